"""Ratios that a paper published, shown beside measurements as a reference; nothing here is measured.

Source: "Exploiting deep learning accelerators for neuromorphic workloads", arXiv 2211.10725. The sizes of its
layers and its absolute numbers could not be recovered.
"""

from __future__ import annotations

from dataclasses import dataclass

TITLE = "Exploiting deep learning accelerators for neuromorphic workloads (arXiv 2211.10725)"


@dataclass(frozen=True)
class SpeedRatio:
    """How many times faster than another device the paper found the IPU (Mk2)."""

    other: str
    ratio: float
    quantity: str

    @property
    def label(self) -> str:
        return f"paper: IPU / {self.other}, {self.ratio:g}×"


SPEED_RATIOS = (
    SpeedRatio("A100", 4.6, "average TFLOPS"),
    SpeedRatio("V100", 6.4, "average TFLOPS"),
    SpeedRatio("GTX 1080", 10.0, "average TFLOPS"),
    SpeedRatio("A100", 14.0, "images/s at batch 8, CSNN and DSNN"),
)

NEURONS_TO_SYNAPSES = "equal on an IPU (CSNN)"
HALF_PRECISION = "difference marginal (fp16 against fp32)"
TWIN = {
    "csnn": "SNN about 57 % lower on an IPU",
    "dsnn": "SNN slightly higher on an IPU",
}
