"""Fixtures for every test: seeds, NaN-filled outputs, one build cache, a repeatable hypothesis profile."""

from __future__ import annotations

from typing import Any, Iterator

import hypothesis
import pytest
import torch

from snn_ipu import buffers, scan
from snn_ipu.backends import cache, select

hypothesis.settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=False,
    suppress_health_check=list(hypothesis.HealthCheck),
)
hypothesis.settings.register_profile("explore", deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True, scope="session")
def _one_cache() -> Iterator[None]:
    """Kernels are named by their content, so the user's cache is right for tests and makes later runs quick.

    It is fixed here, for child processes too, whatever a test does to the home folder.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SNN_IPU_CACHE_DIR", str(cache.cache_dir()))
        yield


@pytest.fixture(autouse=True)
def _same_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same random numbers in every test, no backend from outside, and no warning given before."""
    torch.manual_seed(0)
    monkeypatch.delenv("SNN_IPU_BACKEND", raising=False)
    monkeypatch.setattr(select, "_warned", set())
    monkeypatch.setattr(scan, "_runners", {})


@pytest.fixture(autouse=True)
def _poisoned_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory that a kernel forgets to write shows as NaN."""
    empty = buffers.empty

    def filled(*args: Any, **kwargs: Any) -> torch.Tensor:
        return empty(*args, **kwargs).fill_(float("nan"))

    monkeypatch.setattr(buffers, "empty", filled)
