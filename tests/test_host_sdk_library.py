"""What the host model computes itself: attributes, views of tensors, mappings, and functions of PopLibs."""

from __future__ import annotations

from typing import Any, Callable

import pytest
import torch
from host_sdk.loading import load_op, load_poptorch
from torch import Tensor, nn

poptorch = load_poptorch()
load_op("ops/library")

NAMES = {torch.float32: "FLOAT", torch.float16: "FLOAT16", torch.int32: "INT32"}


class Op(nn.Module):
    def __init__(self, name: str, attributes: dict[str, Any], example: Tensor) -> None:
        super().__init__()
        self.name, self.attributes = name, attributes
        self.shape, self.dtype = example.shape, example.dtype

    def forward(self, x: Tensor) -> Tensor:
        example = torch.empty(self.shape, dtype=self.dtype, device=x.device)
        out: Tensor = poptorch.custom_op([x], self.name, "host.example", 1, [example], self.attributes)[0]
        return out


def library(function: str, x: Tensor, example: Tensor) -> Tensor:
    attributes = {"function": function, "shape": list(example.shape) or [1], "type": NAMES[example.dtype]}
    out: Tensor = poptorch.inferenceModel(Op("Library", attributes, example))(x)
    return out


# Powers of two apart, so that no two sums are alike; the shape is not square, so that no transpose goes unnoticed.
X = torch.arange(24.0).reshape(6, 4) / 8

VIEWS: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("transpose", lambda x: x.T),
    ("roll", lambda x: x.reshape(2, 3, 4).permute(2, 0, 1)),
    ("shuffle_outer", lambda x: x.reshape(2, 3, 4).permute(1, 0, 2)),
    ("subsample", lambda x: x[:, 1::2]),
    ("broadcast", lambda x: x.unsqueeze(1).expand(6, 2, 4)),
    ("concat", lambda x: torch.cat([x, x.flip(0)], 1)),
    ("slice", lambda x: x[1:4, 2:4]),
    ("index", lambda x: x[2, 1:3]),
    ("slices", lambda x: torch.cat([x[:, 3:4], x[:, 0:2]], 1)),
    ("squeeze", lambda x: x.unsqueeze(2)),
    ("reorder", lambda x: x.reshape(-1)),
]
FUNCTIONS: list[tuple[str, Callable[[Tensor], Tensor]]] = [
    ("map_cube", lambda x: x**3),
    ("map_step", lambda x: (x > 0.5).to(x.dtype)),
    ("map_activations", lambda x: torch.minimum((x.sigmoid() + x.abs().tanh()) ** -2, (-x).exp())),
    ("reduce_rows", lambda x: x.sum(0)),
    ("reduce_max", lambda x: x.amax(1)),
    ("reduce_update", lambda x: x.sum(0) + 100),
    ("cast", lambda x: x.to(torch.int32)),
    ("zero", torch.zeros_like),
    ("fill", lambda x: torch.full_like(x, 2.5)),
    ("repeat", lambda x: torch.full_like(x, 32.0)),
]


@pytest.mark.parametrize("name, expected", VIEWS, ids=[v[0] for v in VIEWS])
def test_view__of_a_tensor__is_torchs(name: str, expected: Callable[[Tensor], Tensor]) -> None:
    assert torch.equal(library(name, X, expected(X)), expected(X))


@pytest.mark.parametrize("name, expected", FUNCTIONS, ids=[f[0] for f in FUNCTIONS])
def test_function__of_poplibs__gives_what_torch_gives(name: str, expected: Callable[[Tensor], Tensor]) -> None:
    torch.testing.assert_close(library(name, X, expected(X)), expected(X))


def test_map__in_half__rounds_every_operation() -> None:
    x = (torch.randn(6, 4) / 3).half()

    assert torch.equal(library("map_cube", x, x), x * x * x)


@pytest.mark.parametrize(
    "name, text",
    [
        ("map_select_constants", "of unexpected Type|Copy of float|type"),
        ("map_mixed", "arguments of types half and float"),
    ],
)
def test_map__with_types_that_do_not_fit__is_refused(name: str, text: str) -> None:
    x = X.half()

    with pytest.raises(poptorch.Error, match=text):
        library(name, x, x)


@pytest.mark.parametrize(
    "name, expected",
    [
        # The example that PopLibs' splitRegions gives; its code, unlike the comment, puts the small part first.
        ("split_regions", "(([0,8)) ([8,10) [15,20) [33,38)) ([38,50)) ([50,60)))"),
        ("split_sequences", "((([0,4))) (([4,5) [9,12))) (([20,24))))"),
        ("linear_mapping", "([0,64))([64,132))([132,200))"),
        ("mapped_twice", "([0,2) [4,10))([2,4))"),
    ],
)
def test_regions__split_and_mapped__are_those_of_poplibs(name: str, expected: str) -> None:
    with pytest.raises(poptorch.Error) as error:
        library(name, X, X)

    assert error.value.message == expected


def test_sorted_regions__of_a_transpose__follow_memory() -> None:
    with pytest.raises(poptorch.Error) as error:
        library("sorted_regions", X, X)

    # Columns 0 and 1 of six rows: elements 0, 4, 8 and 1, 5, 9 of memory, in the order of memory.
    assert error.value.message == "(([0,1) [6,7)) ([1,2) [7,8)) ([2,3) [8,9)))"


def test_variable__never_written__is_not_a_number() -> None:
    assert library("never_written", X, X).isnan().all()


@pytest.mark.parametrize(
    "attributes, expected",
    [
        ({}, "f -1 i -1 s absent ints [-1]"),
        ({"f": 0.5, "i": 3, "s": "x", "ints": [1, 2]}, "f 0.5 i 3 s x ints [1 2]"),
        ({"f": 1, "i": 2.5, "s": 7, "ints": [1.5]}, "f 0 i 0 s absent ints []"),
        ({"f": True, "i": True, "s": ""}, "f 0 i 1 s absent ints [-1]"),
        ({"floats": [0.5, 2.0], "strings": ("a", "b")}, "floats [0.5 2] strings [a b]"),
        ({"floats": [1, 2], "strings": [1.0]}, "floats [] strings []"),
    ],
    ids=["absent", "right", "wrong", "bool", "lists", "wrong lists"],
)
def test_attribute__of_another_type_than_read__is_zero_or_empty(attributes: dict[str, Any], expected: str) -> None:
    with pytest.raises(poptorch.Error) as error:
        poptorch.inferenceModel(Op("Describe", attributes, X))(X)

    assert expected in error.value.message
