"""What the fused scan is expected to cost on an IPU, next to one op per operation and time step: an estimate.

    python experiments/ipu_estimate.py [--batch 128] [--steps 25] [--dtype float16]

No IPU was measured. Bytes and vertices come from the mapping that the op uses; cycles from counting instructions of the
printed codelets, with the constants below.
"""

from __future__ import annotations

import argparse
import math
from dataclasses import dataclass
from typing import Iterator

import torch
from torch import Tensor, nn

import snn_ipu as snn
from snn_ipu.backends.tile_memory import CUSTOM_OPS, ROOM, TILES, ScanBytes, ScanSizes, scan_bytes, spread
from snn_ipu.compiler.adjoint import differentiate
from snn_ipu.compiler.plan import plan
from snn_ipu.compiler.print_poplar import Codelet, math_text, print_scan
from snn_ipu.compiler.printing import Layout
from snn_ipu.compiler.trace import trace

ASSUMPTIONS = """Assumptions
  Mk2: 1472 tiles of 624 KiB, six workers that take turns, so an instruction of a worker takes six cycles of its tile.
  A worker's pass over two neurons and one step takes as many instructions as the codelet has operations, loads and
  stores; divisions and functions take 6 to 40 (print_poplar.py). No two instructions are issued at once.
  A compute set costs 250 cycles besides its work: sync, supervisor, start and end of six workers.
  A tile receives 4 bytes a cycle. Data come from other tiles once: x and the gradient of the spikes.
  Step by step, every operation of the traced step and of its adjoint is a compute set of its own on every step, which
  loads its operands and stores its result (three accesses for two float values, five for two halves), in one type
  throughout, with operands already on the tile; what the backward pass needs is kept, one value for each product,
  comparison and spike.
"""
WORKERS = 6
COMPUTE_SET = 250
RECEIVE = 4
ACCESS = {"float32": 3, "float16": 5}


@dataclass
class Layer:
    """One Leaky layer: its neurons per sample, the mapping of a batch, and what each way costs."""

    name: str
    batch: int
    features: int
    steps: int
    codelet: Codelet
    need: ScanBytes
    tiles: int
    per_tile: int
    operations: int
    kept: int
    dtype: str

    @property
    def rounds(self) -> int:
        return math.ceil(self.per_tile / 2 / WORKERS)

    def fused_cycles(self) -> float:
        """Of a tile, forward and backward, per time step."""
        item = 2 if self.dtype == "float16" else 4
        work = WORKERS * self.rounds * (self.codelet.forward_cycles + self.codelet.backward_cycles)
        received = 2 * self.per_tile * item / RECEIVE
        return work + received + 2 * COMPUTE_SET / self.steps

    def stepwise_cycles(self) -> float:
        work = WORKERS * self.rounds * (ACCESS[self.dtype] + 1)
        return self.operations * (work + COMPUTE_SET)

    def stepwise_bytes(self) -> int:
        item = 2 if self.dtype == "float16" else 4
        return self.kept * self.steps * self.per_tile * item


def layers(net: nn.Module, image: Tensor, batch: int, steps: int, dtype: str) -> Iterator[Layer]:
    """The neuron layers of a network, with shapes from one pass over an image."""
    _, states = snn.unroll(net, image, num_steps=1)
    sizes = {name: state[0][0].numel() for name, state in states.items()}
    for name, features in sizes.items():
        module = net.get_submodule(name)
        assert isinstance(module, snn.Leaky)
        program = trace(snn.Leaky.step, ("mem",), tuple(module.params()), module.flags(), module.spike_grad)
        adjoint = differentiate(program)
        layout = Layout(dtype, training=True)
        codelet = print_scan(program, layout, math_text(CUSTOM_OPS), adjoint, plan(program, adjoint, (), layout.narrow))
        item = 2 if layout.narrow else 4
        need = scan_bytes(
            ScanSizes(
                steps=steps,
                batch=batch,
                features=features,
                item_bytes=item,
                static=False,
                states=1,
                traces=0,
                saves=codelet.saves,
                save_bytes=item if codelet.narrow else 4,
                checkpoint=0,
                params=0,
                learned=0,
                needs_x=codelet.needs_x,
                kept_traces=0,
                training=True,
            )
        )
        shares = spread(batch * features, TILES, 4 if layout.narrow else 2)
        varying = program.varying()
        roots = [r for r in (adjoint.x, *adjoint.states.values()) if r is not None]
        forward = program.graph.reach([program.spk, *program.new_states])
        used = {i for i in (*forward, *program.graph.reach(roots)) if i in varying}
        operations = [program.graph.nodes[i] for i in used if program.graph.nodes[i].op not in ("input", "detach")]
        kept = sum(1 for i in forward if i in varying and program.graph.nodes[i].op in ("mul", "spike", "gt"))
        yield Layer(
            name=name,
            batch=batch,
            features=features,
            steps=steps,
            codelet=codelet,
            need=need,
            tiles=len(shares),
            per_tile=shares[0].padded,
            operations=len(operations),
            kept=kept,
            dtype=dtype,
        )


def report(title: str, found: list[Layer]) -> float:
    """Print one network; returns fused cycles over step-by-step cycles."""
    print(f"{title}, batch {found[0].batch}, T = {found[0].steps}, {found[0].dtype}")
    row = "  {:<6} {:>9} {:>6} {:>8} | {:>11} {:>11} {:>8} | {:>11} {:>11} {:>8}"
    print(row.format("", "", "", "neurons", "fused", "", "", "stepwise", "", ""))
    print(
        row.format("layer", "neurons", "tiles", "per tile", "bytes/tile", "cycles/step", "vertices", "kept/tile",
                   "cycles/step", "vertices")
    )  # fmt: skip
    fused = stepwise = 0.0
    for layer in found:
        fused += layer.fused_cycles()
        stepwise += layer.stepwise_cycles()
        print(
            row.format(
                layer.name,
                f"{layer.features:,}",
                layer.tiles,
                layer.per_tile,
                f"{max(layer.need.forward, layer.need.backward):,}",
                f"{layer.fused_cycles():,.0f}",
                f"{2 * layer.tiles:,}",
                f"{layer.stepwise_bytes():,}",
                f"{layer.stepwise_cycles():,.0f}",
                f"{layer.operations * layer.steps * layer.tiles:,}",
            )
        )
    exchanged = sum(layer.need.exchanged for layer in found)
    print(f"  exchanged by the fused ops: {exchanged / 2**20:,.1f} MiB a minibatch, forward and backward")
    largest = max(max(layer.need.forward, layer.need.backward) for layer in found)
    print(f"  the largest op takes {largest / ROOM:.0%} of the {ROOM:,} bytes that a tile has free")
    print(
        f"  cycles of a tile per time step: fused {fused:,.0f}, stepwise {stepwise:,.0f}: {stepwise / fused:.1f} to 1"
    )
    return fused / stepwise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--dtype", choices=sorted(ACCESS), default="float16")
    args = parser.parse_args()
    image = torch.zeros(1, 1, 28, 28)
    print(ASSUMPTIONS)
    nets = {"DSNN 784-1000-10": snn.models.DSNN(), "CSNN 12C5-MP2-64C5-MP2-10": snn.models.CSNN()}
    ratio = 1.0
    for title, net in nets.items():
        ratio = report(title, list(layers(net, image, args.batch, args.steps, args.dtype)))
        print()
    share = ratio / (1 + ratio)
    print(
        "The paper found neuron dynamics to take half of the CSNN's time on the IPU. If its neurons cost what the\n"
        f"stepwise columns say, the fused op takes that half to {share:.0%} of a step that is {(1 + ratio) / 2:.0%}\n"
        "as long. Why: one compute set instead of one for each operation and step, and values that stay in registers\n"
        "between operations and between steps instead of being loaded and stored."
    )


if __name__ == "__main__":
    main()
