"""One file per neuron: its step function is the definition, its module holds parameters and state."""

from .adaptive_leaky import AdaptiveLeaky as AdaptiveLeaky
from .alpha import Alpha as Alpha
from .base import SpikingNeuron as SpikingNeuron
from .base import neuron as neuron
from .eif import EIF as EIF
from .integrate_and_fire import IF as IF
from .izhikevich import Izhikevich as Izhikevich
from .lapicque import Lapicque as Lapicque
from .leaky import Leaky as Leaky
from .lif import LIF as LIF
from .parametric_leaky import ParametricLeaky as ParametricLeaky
from .qif import QIF as QIF
from .rleaky import RLeaky as RLeaky
from .rsynaptic import RSynaptic as RSynaptic
from .synaptic import Synaptic as Synaptic
