"""One file per neuron: its step function is the definition, its module holds parameters and state."""

from .adaptive_leaky import AdaptiveLeaky as AdaptiveLeaky
from .alpha import Alpha as Alpha
from .associative import AssociativeLeaky as AssociativeLeaky
from .base import SpikingNeuron as SpikingNeuron
from .base import neuron as neuron
from .deltaleaky import DeltaLeaky as DeltaLeaky
from .eif import EIF as EIF
from .integrate_and_fire import IF as IF
from .izhikevich import Izhikevich as Izhikevich
from .lapicque import Lapicque as Lapicque
from .leaky import Leaky as Leaky
from .leakyparallel import LeakyParallel as LeakyParallel
from .lif import LIF as LIF
from .linearleaky import LinearLeaky as LinearLeaky
from .parametric_leaky import ParametricLeaky as ParametricLeaky
from .qif import QIF as QIF
from .rleaky import RLeaky as RLeaky
from .rsynaptic import RSynaptic as RSynaptic
from .sconv2dlstm import SConv2dLSTM as SConv2dLSTM
from .slstm import SLSTM as SLSTM
from .stateleaky import StateLeaky as StateLeaky
from .synaptic import Synaptic as Synaptic
