"""Spiking neural networks in PyTorch, snnTorch style, with fused multi-step kernels."""

from . import buffers as buffers
from . import functional as functional
from . import ipu as ipu
from . import models as models
from . import spikegen as spikegen
from . import surrogate as surrogate
from . import utils as utils
from .backends.ipu import build_at_import as _build_at_import
from .convert import from_snntorch as from_snntorch
from .errors import FallbackWarning as FallbackWarning
from .layers import BatchNormTT1d as BatchNormTT1d
from .layers import BatchNormTT2d as BatchNormTT2d
from .layers import GradedSpikes as GradedSpikes
from .neurons import EIF as EIF
from .neurons import IF as IF
from .neurons import LIF as LIF
from .neurons import QIF as QIF
from .neurons import SLSTM as SLSTM
from .neurons import AdaptiveLeaky as AdaptiveLeaky
from .neurons import Alpha as Alpha
from .neurons import AssociativeLeaky as AssociativeLeaky
from .neurons import DeltaLeaky as DeltaLeaky
from .neurons import Izhikevich as Izhikevich
from .neurons import Lapicque as Lapicque
from .neurons import Leaky as Leaky
from .neurons import LeakyParallel as LeakyParallel
from .neurons import LinearLeaky as LinearLeaky
from .neurons import ParametricLeaky as ParametricLeaky
from .neurons import RLeaky as RLeaky
from .neurons import RSynaptic as RSynaptic
from .neurons import SConv2dLSTM as SConv2dLSTM
from .neurons import SpikingNeuron as SpikingNeuron
from .neurons import StateLeaky as StateLeaky
from .neurons import Synaptic as Synaptic
from .neurons import neuron as neuron
from .surrogate import spike as spike
from .training import inference_model as inference_model
from .training import training_model as training_model
from .unroll import unroll as unroll

__version__ = "0.1.0"

_build_at_import()
