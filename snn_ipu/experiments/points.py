"""One point of a throughput sweep, and the sweeps: each changes one setting of a base point."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Iterable, Mapping, Sequence

NETWORKS = ("dsnn", "csnn")
OWN_DEVICES = ("cpu", "cuda", "ipu", "reference")
PEER_DEVICES = ("snntorch-cpu", "snntorch-cuda")
DEVICES = (*OWN_DEVICES, *PEER_DEVICES)
NEURONS = ("leaky", "synaptic", "rleaky-one-to-one", "rleaky-all-to-all")
PRECISIONS = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Point:
    """What is measured at once: a network, its minibatch and the device.

    Attributes:
        hidden, channels: sizes of the hidden layers of a dsnn or of the convolutions of a csnn; None for the other.
        spiking: False for the twin with the same synapses, rectifiers for neurons and one pass in place of time steps.
        threads: of torch and of the kernels on the CPU.
    """

    network: str = "dsnn"
    device: str = "cpu"
    batch: int = 128
    num_steps: int = 25
    hidden: tuple[int, ...] | None = (1000,)
    channels: tuple[int, ...] | None = None
    neuron: str = "leaky"
    precision: str = "float32"
    spiking: bool = True
    threads: int = 1

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(values: Mapping[str, Any]) -> Point:
        sizes = {name: None if values[name] is None else tuple(values[name]) for name in ("hidden", "channels")}
        return Point(**{**values, **sizes})

    def __str__(self) -> str:
        sizes = "-".join(map(str, self.hidden or self.channels or ()))
        kind = self.neuron if self.spiking else "not spiking"
        return (
            f"{self.network} {sizes} on {self.device}, batch {self.batch}, {self.num_steps} steps, {kind}, "
            f"{self.precision}"
        )


# The published sweep points of width and depth are not known; these lie around the sizes of the snnTorch tutorials.
SWEEPS: dict[str, dict[str, Sequence[Mapping[str, Any]]]] = {
    "batch": {name: [{"batch": b} for b in (8, 16, 32, 64, 128)] for name in NETWORKS},
    "width": {"dsnn": [{"hidden": (n,)} for n in (250, 500, 1000, 2000)]},
    "depth": {"csnn": [{"channels": c} for c in ((6, 32), (12, 64), (24, 128))]},
    "steps": {name: [{"num_steps": t} for t in (1, 5, 10, 25, 50)] for name in NETWORKS},
    "neuron": {name: [{"neuron": n} for n in NEURONS] for name in NETWORKS},
    "precision": {name: [{"precision": p} for p in PRECISIONS] for name in NETWORKS},
    "twin": {name: [{"spiking": s} for s in (True, False)] for name in NETWORKS},
    "shares": {name: [{}] for name in NETWORKS},
}
QUICK: dict[str, dict[str, Sequence[Mapping[str, Any]]]] = {
    "batch": {"dsnn": [{"batch": b} for b in (8, 32)], "csnn": [{"batch": 8}]},
    "twin": {"dsnn": [{"spiking": s} for s in (True, False)]},
    "shares": {"dsnn": [{}]},
}


def base(network: str, *, quick: bool = False) -> Point:
    """The point that every sweep goes through: 784-1000-10 or 12C5-MP2-64C5-MP2-10, batch 128, 25 steps; or a small
    one."""
    if network == "dsnn":
        point = Point(network="dsnn", hidden=(100,) if quick else (1000,))
    else:
        point = Point(network="csnn", hidden=None, channels=(4, 8) if quick else (12, 64))
    return replace(point, batch=8, num_steps=5) if quick else point


def plan(
    networks: Iterable[str], sweeps: Iterable[str], devices: Sequence[str], threads: int, *, quick: bool = False
) -> dict[Point, list[str]]:
    """The points in order of measurement, devices side by side, each with the sweeps it belongs to.

    The twin that does not spike holds no neuron, so it is left out on the devices of snnTorch.
    """
    table = QUICK if quick else SWEEPS
    found: dict[Point, list[str]] = {}
    for network in networks:
        for sweep in sweeps:
            for change in table.get(sweep, {}).get(network, ()):
                for device in devices:
                    point = replace(base(network, quick=quick), device=device, threads=threads, **change)
                    if point.spiking or device in OWN_DEVICES:
                        found.setdefault(point, []).append(sweep)
    return found
