"""Every name of PopTorch, PopART, PopLibs and Poplar that we use is one that Graphcore's public sources have."""

from __future__ import annotations

import enum
import inspect
import re
from pathlib import Path
from typing import Any, Iterator

import pytest
from helpers import NEURONS, SURROGATES
from ipu_host import host_sdk

from snn_ipu.backends import ipu
from snn_ipu.compiler.printing import Layout

ROOT = Path(__file__).resolve().parent.parent
# From github.com/graphcore/poptorch, branch sdk-release-3.4, folder python.
POPTORCH = {
    "custom_op": "inputs, name, domain, domain_version, example_outputs, attributes=None",
    "identity_loss": "x, reduction",
    "trainingModel": "model, options=None, optimizer=None",
    "inferenceModel": "model, options=None",
    "ipuHardwareIsAvailable": "num_ipus=1",
    "DataLoader": "options, dataset, batch_size=1, shuffle=None, num_workers=0, drop_last=True, "
    "persistent_workers=None, auto_distributed_partitioning=True, mode=DataLoaderMode.Sync, async_options=None, "
    "rebatched_worker_size=None, batch_sampler=None, **kwargs",
    "Options": "",
    "Options.deviceIterations": "device_iterations",
    "Options.replicationFactor": "replication_factor",
    "Options.setAvailableMemoryProportion": "available_memory_proportion",
    "Options.enableExecutableCaching": "path",
    "Options.logCycleCount": "log_cycle_count",
    "Options.useIpuModel": "use_model",
    "Options.enableSyntheticData": "enabled",
    "Options.randomSeed": "random_seed",
    "Options.Training.gradientAccumulation": "gradient_accumulation",
    "Options.Precision.setPartialsType": "dtype",
    "Options.Precision.enableStochasticRounding": "enabled",
    "Options.TensorLocations.numIOTiles": "num_tiles",
    "optim.SGD": "params, lr, momentum=None, dampening=None, weight_decay=None, nesterov=None, maximize=None, "
    "foreach=None, differentiable=None, loss_scaling=None, velocity_scaling=None, use_combined_accum=None, "
    "accum_type=None, velocity_accum_type=None, max_grad_norm=None",
    "optim.Adam": "params, lr=None, betas=None, eps=None, weight_decay=None, amsgrad=None, foreach=None, "
    "maximize=None, capturable=None, differentiable=None, fused=None, loss_scaling=None, accum_type=None, "
    "first_order_momentum_accum_type=None, second_order_momentum_accum_type=None, max_grad_norm=None",
    "optim.AdamW": "params, lr=None, betas=None, eps=None, weight_decay=None, amsgrad=None, maximize=None, "
    "foreach=None, capturable=None, differentiable=None, fused=None, loss_scaling=None, bias_correction=None, "
    "accum_type=None, first_order_momentum_accum_type=None, second_order_momentum_accum_type=None, "
    "max_grad_norm=None",
    "optim.RMSprop": "params, lr=None, alpha=None, eps=None, weight_decay=None, momentum=None, centered=None, "
    "foreach=None, maximize=None, differentiable=None, loss_scaling=None, accum_type=None, "
    "first_order_momentum_accum_type=None, second_order_momentum_accum_type=None, use_tf_variant=None",
    "executor.isCompiled": "",
    "executor.isAttachedToDevice": "",
    "executor.attachToDevice": "",
    "executor.detachFromDevice": "",
    "executor.copyWeightsToHost": "",
    "executor.copyWeightsToDevice": "",
    "executor.setOptimizer": "optimizer",
    "executor.cycleCount": "",
}
CLASSES = {"DataLoaderMode.Async", "optim", "optim.Optimizer"}


@pytest.fixture(scope="module", autouse=True)
def poptorch() -> Iterator[Any]:
    with host_sdk() as module:
        yield module


def shown(function: Any) -> str:
    parameters = inspect.signature(function).parameters.values()
    parts = []
    for p in parameters:
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        value = f"{type(p.default).__name__}.{p.default.name}" if isinstance(p.default, enum.Enum) else p.default
        default = "" if p.default is p.empty else f"={value}"
        if p.name != "self":
            parts.append(f"{stars}{p.name}{default}")
    return ", ".join(parts)


@pytest.mark.parametrize("name", POPTORCH)
def test_poptorch__signature_of_the_host_model__is_the_real_one(poptorch: Any, name: str) -> None:
    target: Any = poptorch.PoplarExecutor if name.startswith("executor.") else poptorch
    for part in name.split("."):
        if part == "executor":
            continue
        if isinstance(target, type) and part in ("Training", "Precision", "TensorLocations"):
            target = target()
        target = getattr(target, part)
    function = target.__init__ if isinstance(target, type) else target
    assert shown(function) == POPTORCH[name]


def test_poptorch__every_name_in_our_sources__is_in_the_table() -> None:
    text = "".join((ROOT / "snn_ipu" / f).read_text() for f in ("backends/ipu.py", "ipu.py"))
    used = set(re.findall(r"poptorch\(\)\.([A-Za-z_.]+)", text))
    used |= {n for n in re.findall(r"module\.([A-Za-z.]+)", text) if n[0].isupper() or n.startswith("ipu")}
    used |= {f"Options.{n}" for n in re.findall(r"\bopts\.([A-Za-z.]+)", text)}
    used |= {f"executor.{n}" for n in re.findall(r"executor\.([A-Za-z]+)", text)}
    used |= {f"optim.{name}" for name, _ in ipu._OPTIMIZERS.values()}
    assert len(used) > 25
    assert used - CLASSES == set(POPTORCH)


def _documented() -> set[str]:
    """The names in the table of docs/ipu.md, each with a public source file."""
    text = (ROOT / "docs" / "ipu.md").read_text()
    rows = re.findall(r"^\| `([^`]+)` \| `[a-z-]+: ([^`]+)` \|$", text, re.MULTILINE)
    assert all(path.endswith((".hpp", ".cpp", ".py")) for _, path in rows)
    return {name for names, _ in rows for name in names.split(", ")}


def _sources() -> str:
    text = "".join(p.read_text() for p in sorted((ROOT / "custom_ops").glob("*.[ch]pp")))
    module = NEURONS[1].make()
    for layout in (Layout("float16", training=True), Layout("float32", traced=("mem",), training=True)):
        for checkpoint in (0, 4):
            text += ipu._scan_codelet(
                type(module).step,
                module.state_names,
                tuple(module.params()),
                tuple(sorted(module.flags().items())),
                ipu._shape_of(SURROGATES[0]),
                layout,
                (),
                checkpoint,
            ).source
    return re.sub(r"//.*", "", text)


def test_poplar__every_name_in_our_sources__is_in_the_documented_table() -> None:
    text = _sources()
    used = set(re.findall(r"\b(?:poplar|popops|poputil|popart|ipu)::[A-Za-z_:0-9]*[A-Za-z0-9]", text))
    used |= {f".{n}" for n in re.findall(r"\bgraph_?(?:\(\))?\.([A-Za-z]+)", text)}
    used |= {f".{n}" for n in re.findall(r"\b(?:getTarget\(\)|target)\.([A-Za-z]+)", text)}
    used |= set(
        re.findall(r"\b(?:get|set)(?:In|Out)Tensor\b|\bverifyOp\b|\bgetOp\b|\bdebugContext\b|\bhasInput\b", text)
    )
    used |= {n for n in ("half2", "numWorkers") if n in text}
    used = {n for n in used if not n.startswith("poplar::program") or n.count("::") == 2}
    missing = used - _documented()
    assert not missing, sorted(missing)


def test_poplar__documented_names__are_all_used() -> None:
    text = _sources()
    unused = [n for n in _documented() if n.lstrip(".").split("::")[-1] not in text]
    assert not unused, unused


def test_codelets__of_all_neurons__write_float_literals_and_no_double() -> None:
    for neuron in NEURONS:
        module = neuron.make(**neuron.modes[0])
        flags = tuple(sorted(module.flags().items()))
        params = tuple(module.params())
        codelet = ipu._scan_codelet(
            type(module).step, module.state_names, params, flags, ipu._shape_of(SURROGATES[1]), Layout("float32"), (), 0
        )
        code = codelet.source[codelet.source.index("class Scan") :]
        assert not re.search(r"(?<![\w.])\d+\.\d*(e[+-]?\d+)?(?![\w.])", code), neuron.name
