"""`poptorch.Options` with the checks of the real one: unknown options, types, freezing."""

from __future__ import annotations

import builtins
import copy
import logging
from typing import Any

import torch

from . import enums

logger = logging.getLogger("poptorch::python")


class OptionsDict:
    """A fixed set of options; frozen once a model or a data loader has them."""

    def __init__(self, **default_values: Any) -> None:
        self._is_frozen = False
        self._values = default_values

    def checkIsFrozen(self) -> None:
        if self.__dict__.get("_is_frozen"):
            raise AttributeError("Can't modify frozen Options")

    def set(self, **kwargs: Any) -> None:
        self.checkIsFrozen()
        for option, value in kwargs.items():
            assert option in self._values, f"Invalid option {option}, valid options are {self._values.keys()}"
            expected = type(self._values[option])
            assert isinstance(value, expected), (
                f"Unexpected type {type(value)} for option {option}. Expected {expected}"
            )
            self._values[option] = value

    def createOrSet(self, **kwargs: Any) -> None:
        self.checkIsFrozen()
        for option, value in kwargs.items():
            if option in self._values:
                self.set(**{option: value})
            else:
                self._values[option] = value

    def exists(self, option: str) -> bool:
        return option in self._values

    def deleteIfExists(self, option: str) -> None:
        self._values.pop(option, None)

    def _setFrozen(self, frozen: bool) -> None:
        self.__dict__["_is_frozen"] = frozen
        for value in self.__dict__.values():
            if isinstance(value, OptionsDict):
                value._setFrozen(frozen)
            elif isinstance(value, _PopartOptions):
                value._is_frozen = frozen

    def _freeze(self) -> None:
        self._setFrozen(True)

    def _unfreeze(self) -> None:
        self._setFrozen(False)

    def toDict(self) -> dict[str, Any]:
        return dict(self._values)

    def __deepcopy__(self, memo: dict[int, Any]) -> OptionsDict:
        # A copy is free to change again.
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        for key, value in self.__dict__.items():
            made.__dict__[key] = False if key == "_is_frozen" else copy.deepcopy(value, memo)
        return made

    def __setattr__(self, option: str, value: Any) -> None:
        if option.startswith("_"):
            if "_values" in self.__dict__ and option not in self.__dict__:
                raise AttributeError(f"Invalid private attribute {option}.")
            if option not in ("_is_frozen", "_values"):
                self.checkIsFrozen()
            object.__setattr__(self, option, value)
        else:
            self.set(**{option: value})

    def __getattr__(self, option: str) -> Any:
        values = self.__dict__.get("_values", {})
        if option not in values:
            raise AttributeError(f"Invalid attribute {option}.")
        return values[option]

    def __repr__(self) -> str:
        inner = ", ".join(f"{k}={v!r}" for k, v in self._values.items())
        return f"{type(self).__name__}({inner})"


class _PopartOptions:
    def __init__(self) -> None:
        self._is_frozen = False
        self.options: dict[str, Any] = {}
        self.set("instrumentWithHardwareCycleCounter", False)
        self.set("rearrangeAnchorsOnHost", False)

    def __deepcopy__(self, memo: dict[int, Any]) -> _PopartOptions:
        made = _PopartOptions()
        memo[id(self)] = made
        made.options = copy.deepcopy(self.options, memo)
        return made

    def set(self, key: str, value: int | float | str | list[str] | builtins.set[str]) -> _PopartOptions:
        if self._is_frozen:
            raise AttributeError("Can't modify frozen Options")
        self.options[key] = value
        return self

    def setEngineOptions(self, engine_options: dict[str, str]) -> _PopartOptions:
        return self._setAny("engineOptions", engine_options)

    def setPatterns(self, patterns: dict[str, bool], level: int = 2) -> _PopartOptions:
        assert isinstance(level, int)
        assert isinstance(patterns, dict)
        self.set("patterns_level", level)
        return self._setAny("patterns", patterns)

    def _setAny(self, key: str, value: Any) -> _PopartOptions:
        return self.set(key, value)

    def __repr__(self) -> str:
        return f"_PopartOptions({self.options!r})"


class _JitOptions(OptionsDict):
    def traceModel(self, trace_model: bool) -> _JitOptions:
        if trace_model:
            raise ValueError("options.Jit.traceModel(True) is no longer supported")
        return self


class _PrecisionOptions(OptionsDict):
    def __init__(self, popart_options: _PopartOptions) -> None:
        self._popart_options = popart_options
        super().__init__()

    def halfFloatCasting(self, half_float_casting: enums.HalfFloatCastingBehavior) -> _PrecisionOptions:
        logger.warning("[Deprecated] options.Precision.halfFloatCasting() has no effect")
        return self

    def runningStatisticsAlwaysFloat(self, value: bool) -> _PrecisionOptions:
        logger.warning("[Deprecated] options.Precision.runningStatisticsAlwaysFloat() has no effect")
        return self

    def enableFloatingPointExceptions(self, enabled: bool) -> _PrecisionOptions:
        assert isinstance(enabled, bool), "enableFloatingPointExceptions needs to be set to a bool"
        self._popart_options.set("enableFloatingPointChecks", enabled)
        return self

    def enableStochasticRounding(self, enabled: bool) -> _PrecisionOptions:
        self._popart_options.set("enableStochasticRounding", enabled)
        return self

    def setPartialsType(self, dtype: torch.dtype) -> _PrecisionOptions:
        names = {torch.float32: "float", torch.float16: "half"}
        if dtype not in names:
            raise ValueError("parameter to setPartialsType should be either torch.float or torch.half")
        self._popart_options.set("partialsTypeMatMuls", names[dtype])
        self._popart_options._setAny("convolutionOptions", {"partialsType": names[dtype]})
        return self


class _TrainingOptions(OptionsDict):
    def __init__(self, popart_options: _PopartOptions) -> None:
        self._popart_options = popart_options
        super().__init__(
            gradient_accumulation=1,
            accumulation_and_replication_reduction_type=enums.ReductionType.Mean,
            meanAccumulationAndReplicationReductionStrategy=enums.MeanReductionStrategy.Post,
        )

    def gradientAccumulation(self, gradient_accumulation: int) -> _TrainingOptions:
        self.set(gradient_accumulation=gradient_accumulation)
        return self

    def accumulationAndReplicationReductionType(self, reduction_type: enums.ReductionType) -> _TrainingOptions:
        if not isinstance(reduction_type, enums.ReductionType) or reduction_type == enums.ReductionType.NoReduction:
            raise ValueError(
                "accumulationAndReplicationReductionType must be set to poptorch.ReductionType.Mean or "
                "poptorch.ReductionType.Sum"
            )
        self.set(accumulation_and_replication_reduction_type=reduction_type)
        return self

    def setMeanAccumulationAndReplicationReductionStrategy(
        self, mean_reduction_strategy: enums.MeanReductionStrategy
    ) -> _TrainingOptions:
        self.set(meanAccumulationAndReplicationReductionStrategy=mean_reduction_strategy)
        return self

    def setAutomaticLossScaling(self, enabled: bool) -> _TrainingOptions:
        self._popart_options.set("automaticLossScalingSettings.enabled", enabled)
        return self

    def setConvolutionDithering(self, enabled: bool) -> _TrainingOptions:
        self._popart_options._setAny("convolutionOptions", {"enableConvDithering": enabled})
        return self


class _DistributedOptions(OptionsDict):
    def __init__(self) -> None:
        super().__init__(num_distributed_processes=1, distributed_process_id=0)

    def disable(self) -> _DistributedOptions:
        return self.configureProcessId(0, 1)

    def configureProcessId(self, process_id: int, num_processes: int) -> _DistributedOptions:
        self.set(distributed_process_id=process_id)
        self.set(num_distributed_processes=num_processes)
        return self

    @property
    def processId(self) -> int:
        return int(self._values["distributed_process_id"])

    @property
    def numProcesses(self) -> int:
        return int(self._values["num_distributed_processes"])


class TensorLocationSettings(OptionsDict):
    def minElementsForOffChip(self, min_elements: int) -> TensorLocationSettings:
        assert isinstance(min_elements, int)
        self.createOrSet(minElementsForOffChip=min_elements)
        return self

    def minElementsForReplicatedTensorSharding(self, min_elements: int) -> TensorLocationSettings:
        assert isinstance(min_elements, int)
        self.createOrSet(minElementsForReplicatedTensorSharding=min_elements)
        return self

    def useOnChipStorage(self, use: bool = True) -> TensorLocationSettings:
        if use is None:
            self.deleteIfExists("onChip")
            return self
        assert isinstance(use, bool)
        self.createOrSet(onChip=int(use))
        return self

    def useReplicatedTensorSharding(self, use: bool = True) -> TensorLocationSettings:
        assert isinstance(use, bool)
        self.createOrSet(useReplicatedTensorSharding=int(use))
        return self

    def useIOTilesToLoad(self, use: bool = True) -> TensorLocationSettings:
        assert isinstance(use, bool)
        self.createOrSet(useIOTilesToLoad=int(use))
        return self

    def useIOTilesToStore(self, use: bool = True) -> TensorLocationSettings:
        assert isinstance(use, bool)
        self.createOrSet(useIOTilesToStore=int(use))
        return self


class _TensorLocationOptions(OptionsDict):
    def numIOTiles(self, num_tiles: int) -> _TensorLocationOptions:
        assert isinstance(num_tiles, int)
        assert 32 <= num_tiles <= 192 and num_tiles % 2 == 0, "numIOTiles must be an even number between 32 and 192."
        self.createOrSet(numIOTiles=num_tiles)
        return self

    def _location(self, kind: str, location: TensorLocationSettings) -> _TensorLocationOptions:
        assert isinstance(location, TensorLocationSettings)
        self.createOrSet(**{f"location_{kind}": location.toDict()})
        return self

    def setActivationLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        return self._location("activation", location)

    def setWeightLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        return self._location("weight", location)

    def setOptimizerLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        return self._location("optimizer", location)

    def setAccumulatorLocation(self, location: TensorLocationSettings) -> _TensorLocationOptions:
        return self._location("accumulator", location)


class Options(OptionsDict):
    """The options of a model, as PopTorch has them; see the README for those without effect here."""

    def __init__(self) -> None:
        self._jit = _JitOptions()
        self._popart = _PopartOptions()
        self._graphProcessing = _PrecisionOptions(self._popart)
        self._training = _TrainingOptions(self._popart)
        self._distributed = _DistributedOptions()
        self._tensor_locations = _TensorLocationOptions()
        self._relax_optimizer_checks = False
        self._show_compilation_progress_bar = True
        self._module_namescope_enabled = True
        super().__init__(
            replication_factor=1,
            input_group_size=1,
            input_cgt=enums.CommGroupType.Consecutive,
            broadcast_buffers=True,
            device_iterations=1,
            log_dir=".",
            max_repeat_logs=4,
            auto_round_num_ipus=False,
            anchored_tensors={},
            output_mode=enums.OutputMode.Default.value,
            output_return_period=1,
            connection_type=enums.ConnectionType.Always.value,
            sync_pattern=enums.SyncPattern.Full.value,
            available_memory_proportion={},
        )

    @property
    def TensorLocations(self) -> _TensorLocationOptions:
        return self._tensor_locations

    @property
    def Distributed(self) -> _DistributedOptions:
        return self._distributed

    @property
    def Jit(self) -> _JitOptions:
        return self._jit

    @property
    def Precision(self) -> _PrecisionOptions:
        return self._graphProcessing

    @property
    def Training(self) -> _TrainingOptions:
        return self._training

    @property
    def _Popart(self) -> _PopartOptions:
        return self._popart

    def relaxOptimizerAttributesChecks(self, relax: bool = True) -> Options:
        self._relax_optimizer_checks = relax
        return self

    def showCompilationProgressBar(self, show: bool = True) -> Options:
        self._show_compilation_progress_bar = show
        return self

    def autoRoundNumIPUs(self, auto_round_num_ipus: bool = True) -> Options:
        self.set(auto_round_num_ipus=auto_round_num_ipus)
        return self

    def deviceIterations(self, device_iterations: int) -> Options:
        self.set(device_iterations=device_iterations)
        return self

    def setAvailableMemoryProportion(self, available_memory_proportion: dict[str, float]) -> Options:
        actual = {}
        for key, memory in available_memory_proportion.items():
            assert key.startswith("IPU"), (
                'Available memory proportions are expected to be in a dictionary of {"IPU0": 0.5} where the 0 in '
                f"IPU is the index of the IPU. Invalid key: {key}"
            )
            actual[int(key[3:])] = memory
        self.createOrSet(available_memory_proportion=actual)
        return self

    def replicationFactor(self, replication_factor: int) -> Options:
        self.set(replication_factor=replication_factor)
        return self

    def broadcastBuffers(self, broadcast_buffers: bool = True) -> Options:
        self.set(broadcast_buffers=broadcast_buffers)
        return self

    def logDir(self, log_dir: str) -> Options:
        self.set(log_dir=log_dir)
        return self

    def modelName(self, name: str) -> Options:
        self.createOrSet(model_name=name)
        return self

    def enableExecutableCaching(self, path: str | None) -> Options:
        if path is None:
            self._Popart.set("enableEngineCaching", False)
        else:
            self._Popart.set("cachePath", path)
            self._Popart.set("enableEngineCaching", True)
        return self

    def useIpuModel(self, use_model: bool) -> Options:
        self.createOrSet(use_model=use_model)
        return self

    def connectionType(self, connection_type: enums.ConnectionType) -> Options:
        assert isinstance(connection_type, enums.ConnectionType)
        self.set(connection_type=connection_type.value)
        return self

    def syncPattern(self, sync_pattern: enums.SyncPattern) -> Options:
        assert isinstance(sync_pattern, enums.SyncPattern)
        self.set(sync_pattern=sync_pattern.value)
        return self

    def useIpuId(self, ipu_id: int) -> Options:
        assert isinstance(ipu_id, int)
        self.createOrSet(ipu_id=ipu_id)
        return self

    def useOfflineIpuTarget(self, ipu_version: int = 2) -> Options:
        self.connectionType(enums.ConnectionType.Never)
        self.createOrSet(ipu_version=ipu_version)
        return self

    def outputMode(self, output_mode: enums.OutputMode, output_return_period: int | None = None) -> Options:
        assert isinstance(output_mode, enums.OutputMode)
        if output_mode == enums.OutputMode.EveryN:
            assert output_return_period and output_return_period > 0, (
                "EveryN anchor must have output_return_period set to valid positive integer"
            )
        self.set(output_mode=output_mode.value, output_return_period=output_return_period or 1)
        return self

    def defaultOutputMode(self) -> bool:
        return bool(self.output_mode == enums.OutputMode.Default)

    def randomSeed(self, random_seed: int) -> Options:
        assert isinstance(random_seed, int)
        torch.manual_seed(random_seed)
        self.createOrSet(random_seed=random_seed)
        return self

    def enableStableNorm(self, enabled: bool) -> Options:
        self._Popart.set("enableStableNorm", enabled)
        return self

    def enableSyntheticData(self, enabled: bool) -> Options:
        self._Popart.set("syntheticDataMode", 2 if enabled else 0)
        return self

    def logCycleCount(self, log_cycle_count: bool) -> Options:
        self._Popart.set("instrumentWithHardwareCycleCounter", log_cycle_count)
        return self

    def enableProfiling(self, profile_dir: str | None = None) -> Options:
        self._Popart.setEngineOptions(
            {
                "debug.allowOutOfMemory": "true",
                "autoReport.directory": profile_dir or ".",
                "autoReport.all": "true",
            }
        )
        return self

    def disableModuleNamescope(self) -> Options:
        self._module_namescope_enabled = False
        return self

    def updatableNamedBuffers(self, buffers: list[str]) -> Options:
        self._Popart.set("updatableNamedBuffers", buffers)
        return self

    def clone(self) -> Options:
        return copy.deepcopy(self)
