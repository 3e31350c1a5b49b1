"""What the host model checks, each with an op or codelet that does it wrong and must be caught."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Iterator

import pytest
import torch
from host_sdk.loading import ROOT, load_op, load_poptorch
from torch import Tensor, nn

poptorch = load_poptorch()
load_op("wrong/wrong_ops")
CODELETS = str(ROOT / "wrong" / "wrong_codelets.cpp")


@pytest.fixture(autouse=True)
def _settings() -> Iterator[None]:
    poptorch.configure(checks="full")
    yield
    poptorch.configure(
        checks="first", half="saturate", tiles=1472, tile_bytes=624 * 1024, memory_margin=0.1, target="ipu_model"
    )


def wrong(x: Tensor, mistake: str, outputs: int = 1, name: str = "Wrong", **attributes: Any) -> list[Tensor]:
    values = {"mistake": mistake, "codelets": CODELETS, **attributes}
    out: list[Tensor] = poptorch.custom_op([x], name, "host.wrong", 1, [x] * outputs, values)
    return out


class Call(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.w = nn.Parameter(torch.ones(2, 5))

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def run(function: Callable[..., Any], *args: Any, options: Any = None) -> Any:
    return poptorch.inferenceModel(Call(function), options)(*args)


def train(function: Callable[..., Any], *args: Any) -> Any:
    return poptorch.trainingModel(Call(function))(*args)


FLOATS = torch.arange(10.0).reshape(2, 5)
# mistake, input, what the message says
MISTAKES = [
    ("tensor_not_mapped", FLOATS, r"elements \[0,10\) of variable 'nowhere' are not mapped"),
    (
        "constant_not_mapped",
        FLOATS,
        r"variable '<const>' are not mapped to a tile; call setTileMapping \(constants too",
    ),
    ("vertex_not_mapped", FLOATS, "the vertex is not mapped"),
    ("no_perf_estimate", FLOATS, "setPerfEstimate"),
    ("field_not_connected", FLOATS, "field 'x': the field is not connected"),
    ("field_without_value", FLOATS, "field 'bias': the field has no initial value"),
    ("no_such_field", FLOATS, "has no field 'offset'"),
    ("no_such_vertex", FLOATS, "Vertex type 'wrong::AddBias<int>' not found"),
    ("no_such_tile", FLOATS, "tile 1472 of 1472"),
    ("tensor_of_other_type", FLOATS, "of type half and was connected to a tensor of type float"),
    ("tensor_of_rank_two", FLOATS, r"rank 1, got shape \{1,10\}"),
    ("one_tensor_for_a_list", FLOATS, "is a list"),
    ("state_connected", FLOATS, "use setInitialValue"),
    ("two_write", FLOATS, "both write 'fresh' at element 0"),
    ("one_reads_what_another_writes", FLOATS, "(read and write|write and read) 'fresh'"),
    ("reads_and_writes_through_two_fields", FLOATS, "(read and write|write and read) 'fresh'"),
    ("halves_of_one_word", FLOATS.half(), "both write into one 32-bit word"),
    ("writes_constant", FLOATS, "writes to a constant"),
    ("writes_broadcast", FLOATS, "holds an element twice"),
    ("short_span_too_long", torch.ones(2048), "11 bits: 2048 elements do not fit"),
    ("value_too_large_for_field", FLOATS, "70000 does not fit a field of 2 bytes"),
    ("too_much_for_a_tile", FLOATS, r"Out of memory on tile 0: .* needs 600\d\d\d bytes"),
    ("in_place", FLOATS, r"claims input 0 is not modified, but its program changed it"),
    ("returns_input", FLOATS, "claims input 0 -> output 0 do not contain aliases"),
    ("output_of_other_shape", FLOATS, r"of unexpected shape. Poplar tensor shape: \[10 1\]"),
    ("output_of_other_type", FLOATS, "of unexpected Type. Poplar tensor type : half"),
    ("output_not_set", FLOATS, "did not set output 0"),
    ("chained_workers", FLOATS, "depends on the order of the workers"),
    ("codelet:LeavesLastElement", FLOATS, "field 'y': element 9 of an Output was not written"),
    ("codelet:AccumulatesIntoOutput", FLOATS + 1, "reads an Output before writing it"),
    ("codelet:WritesInput", FLOATS, "field 'x': wrote to an Input"),
    ("codelet:WritesPastEnd", FLOATS, "wrote after the last element"),
    ("codelet:WritesBeforeStart", FLOATS, "wrote before the first element"),
    ("codelet:ReadsPastEnd", FLOATS, "reads outside its vectors"),
    ("codelet:LoadsPairs", FLOATS, "needs more alignment than its field asks for .*wrong_codelets.cpp"),
    ("codelet:InterleavesHalves", FLOATS.half(), "workers 0 and 1 write to the same 32-bit word"),
    ("codelet:AssumesSixWorkers", FLOATS, "differs between 6 workers and 1"),
    ("setup_sets_nothing", FLOATS, r"setup\(\) did not set outInfo\(0\)"),
    ("setup_changes_its_mind", FLOATS, "another shape or type"),
]


@pytest.mark.parametrize("mistake, x, text", MISTAKES, ids=[m[0].replace("codelet:", "") for m in MISTAKES])
def test_mistake__in_an_op_or_codelet__is_caught(mistake: str, x: Tensor, text: str) -> None:
    with pytest.raises(poptorch.Error, match=text):
        run(lambda _, x: wrong(x, mistake), x)


@pytest.mark.parametrize("level", ["full", "first", "light"])
def test_op_without_mistake__at_every_level_of_checks__runs(level: str) -> None:
    poptorch.configure(checks=level)

    [y] = run(lambda _, x: wrong(x, "none"), FLOATS)

    assert torch.equal(y, FLOATS + 1)


def test_mistake__after_the_first_run__is_caught_where_all_runs_are_checked() -> None:
    def caught(level: str) -> list[bool]:
        poptorch.configure(checks=level)
        model = poptorch.inferenceModel(Call(lambda _, x: wrong(x, "codelet:AccumulatesIntoOutput")))
        seen = []
        for _ in range(2):
            try:
                model(FLOATS)
                seen.append(False)
            except poptorch.Error:
                seen.append(True)
        return seen

    assert caught("full") == [True, True]
    assert caught("first") == [True, False]


def test_outputs__that_share_memory__are_caught() -> None:
    with pytest.raises(poptorch.Error, match="outputs 0 and 1 share memory"):
        run(lambda _, x: wrong(x, "outputs_share_memory", outputs=2), FLOATS)


def test_cpu_target__needs_no_perf_estimate() -> None:
    poptorch.configure(target="cpu")

    [y] = run(lambda _, x: wrong(x, "no_perf_estimate"), FLOATS)

    assert torch.equal(y, FLOATS + 1)


@pytest.mark.parametrize("margin, fits", [(0.1, False), (0.05, True)])
def test_tile_memory__within_the_margin_only__is_refused(margin: float, fits: bool) -> None:
    poptorch.configure(memory_margin=margin)

    if fits:
        run(lambda _, x: wrong(x, "too_much_for_a_tile"), FLOATS)
    else:
        with pytest.raises(poptorch.Error, match=r"less a margin of 10 % .* 575078 bytes"):
            run(lambda _, x: wrong(x, "too_much_for_a_tile"), FLOATS)


def test_memory_near_the_limit__is_reported(capfd: pytest.CaptureFixture[str]) -> None:
    poptorch.configure(memory_margin=0.05)

    run(lambda _, x: wrong(x, "too_much_for_a_tile"), FLOATS)

    assert "of 638976 bytes of a tile" in capfd.readouterr().err


def test_op_that_is_not_loaded__is_named() -> None:
    with pytest.raises(poptorch.Error, match=r"No class for host.wrong.Missing:0"):
        run(lambda _, x: wrong(x, "none", name="Missing"), FLOATS)


def test_op_without_opx__is_named() -> None:
    with pytest.raises(poptorch.Error, match=r"Could not create opx for 'host.wrong.NoOpx:1'"):
        run(lambda _, x: wrong(x, "none", name="NoOpx"), FLOATS)


def test_two_versions_of_a_domain__in_one_model__are_refused() -> None:
    def both(_: nn.Module, x: Tensor) -> Any:
        attributes = {"mistake": "none", "codelets": CODELETS}
        [y] = wrong(x, "none")
        return poptorch.custom_op([y], "Wrong", "host.wrong", 2, [y], attributes)

    with pytest.raises(poptorch.Error, match=r"Invalid opset 2 .* already defined as 1"):
        run(both, FLOATS)


def test_op_of_a_newer_version_than_asked_for__is_not_found() -> None:
    with pytest.raises(poptorch.Error, match="No class for"):
        run(lambda _, x: poptorch.custom_op([x], "Wrong", "host.wrong", 0, [x]), FLOATS)


def test_unused_output__whose_gradient_is_not_optional__fails_in_training_only() -> None:
    def loss(m: nn.Module, x: Tensor) -> Any:
        y, _ = wrong(m.w * x, "none", outputs=2)
        return poptorch.identity_loss(y, "sum")

    run(loss, FLOATS)
    with pytest.raises(poptorch.Error, match=r"No input found for input 1 of .*WrongGrad.* input is not optional"):
        train(loss, FLOATS)


def test_op_without_gradient_ops__stops_the_gradient_silently() -> None:
    model = Call(lambda m, x: poptorch.identity_loss(wrong(m.w * x, "no_gradient")[0], "sum"))
    step = poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))

    step(FLOATS)

    assert torch.equal(model.w, torch.ones(2, 5))


def test_gradient_of_another_shape__is_refused() -> None:
    def loss(m: nn.Module, x: Tensor) -> Any:
        y, z = wrong(m.w * x, "gradient_of_wrong_shape", outputs=2)
        return poptorch.identity_loss(y + z, "sum")

    with pytest.raises(poptorch.Error, match=r"gradient of input 0 is FLOAT \[1\], the input is FLOAT \[2 5\]"):
        train(loss, FLOATS)


def test_output_lost_to_a_bool__takes_the_gradient_of_the_whole_op_with_it() -> None:
    def loss(m: nn.Module, x: Tensor) -> Any:
        y, z = wrong(m.w * x, "none", outputs=2)
        return poptorch.identity_loss(y + (z > 0).float(), "sum")

    model = Call(loss)
    poptorch.trainingModel(model, optimizer=poptorch.optim.SGD(model.parameters(), lr=1.0))(FLOATS)

    assert torch.equal(model.w, torch.ones(2, 5))


@pytest.mark.parametrize(
    "mistake, scales, merged",
    [
        ("none", (1.0, 2.0), True),
        ("none", (1.0, 1.0), False),
        ("outline_loses_digits", (1.0, 2.0), False),
        ("outline_loses_digits", (1.0, 1.0000001), True),
    ],
    ids=["not appended", "equal", "appended", "lost digits"],
)
def test_ops__that_the_outliner_would_merge_though_they_differ__are_caught(
    mistake: str, scales: tuple[float, float], merged: bool
) -> None:
    def two(_: nn.Module, x: Tensor) -> Any:
        return [wrong(x, mistake, scale=scale)[0] for scale in scales]

    if merged:
        with pytest.raises(poptorch.Error, match="the outliner takes this op"):
            run(two, FLOATS)
    else:
        run(two, FLOATS)
    options = poptorch.Options()
    options._Popart.set("enableOutlining", False)
    run(two, FLOATS, options=options)


SOURCES = [
    ("uses_double", "implicit conversion from .float. to .double.|double-promotion"),
    ("names_double", "uses `double`: an IPU has no double"),
    ("uses_heap", "codelet needs malloc"),
    ("uses_vector", "includes <vector>"),
    ("private_field", "private"),
    ("array_field", "is an array or a pointer; use a Vector"),
    ("struct_field", "no struct, array or pointer"),
    ("not_instantiated", "no vertex found"),
    ("size_of_pointer", "only SPAN and SHORT_SPAN vectors know their size"),
]


@pytest.mark.parametrize("name, text", SOURCES, ids=[s[0] for s in SOURCES])
def test_codelet_source__that_an_ipu_cannot_run__is_refused(name: str, text: str) -> None:
    path = str(ROOT / "wrong" / f"{name}.cpp")

    with pytest.raises(poptorch.Error, match=text):
        run(lambda _, x: wrong(x, "none", codelets=path), FLOATS)


def test_codelet_file__that_is_not_there__is_named() -> None:
    with pytest.raises(poptorch.Error, match=r"cannot read codelet file '/nowhere\.cpp'"):
        run(lambda _, x: wrong(x, "none", codelets="/nowhere.cpp"), FLOATS)


def popc(*arguments: Any) -> subprocess.CompletedProcess[str]:
    program = sys.modules["poplar_host"].install().root / "bin" / "popc"
    return subprocess.run([str(program), *map(str, arguments)], capture_output=True, text=True, check=False)


def test_popc__for_cpu_and_ipu2__makes_a_gp_that_runs(tmp_path: Path) -> None:
    made = popc("-target", "cpu,ipu2", "-O3", CODELETS, "-o", tmp_path / "all.gp")

    assert made.returncode == 0, made.stderr
    [y] = run(lambda _, x: wrong(x, "none", codelets=str(tmp_path / "all.gp")), FLOATS)
    assert torch.equal(y, FLOATS + 1)


def test_popc__for_hardware_alone__makes_a_gp_that_an_ipu_model_refuses(tmp_path: Path) -> None:
    popc("-target", "ipu2", CODELETS, "-o", tmp_path / "ipu.gp")

    with pytest.raises(poptorch.Error, match="an IPU model runs code of cpu and of ipu2"):
        run(lambda _, x: wrong(x, "none", codelets=str(tmp_path / "ipu.gp")), FLOATS)


def test_popc__version__says_what_it_is() -> None:
    assert "NOT AN IPU" in popc("--version").stdout


def test_op_compiled_without_the_onnx_macro__is_refused(tmp_path: Path) -> None:
    include = sys.modules["poplar_host"].install().root / "include"
    source = tmp_path / "op.cpp"
    source.write_text("#include <popart/op.hpp>\n")

    done = subprocess.run(
        [os.environ.get("CXX", "g++"), "-std=c++17", f"-I{include}", "-fsyntax-only", str(source)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode != 0 and "-DONNX_NAMESPACE=onnx" in done.stderr
