"""One training epoch with backpropagation through time (BPTT), truncated (TBPTT), or step by step (RTRL).

The network is called once per step, so any network runs; snn_ipu.training_model runs whole sequences in fused
kernels and is much faster where all of BPTT is wanted.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Tuple

import torch
from torch import Tensor, nn

from . import utils
from .errors import ShapeError

Batches = Iterable[Tuple[Tensor, Tensor]]


def TBPTT(
    net: nn.Module,
    dataloader: Batches,
    optimizer: torch.optim.Optimizer,
    criterion: Callable[[Tensor, Tensor], Tensor],
    num_steps: int = False,
    time_var: bool = True,
    time_first: bool = True,
    regularization: Callable[[Tensor], Tensor] | bool = False,
    device: torch.device | str = "cpu",
    K: int = 1,
) -> Tensor:
    """Trains for one epoch, with a weight update and a cut of the graph every K steps.

    Each part of K steps (the last may be shorter) is a loss of its own: count losses ask for the counts of a part.

    Args:
        net: network of neurons with init_hidden=True, the last one with output=True: called with one step, it
            returns spikes, or spikes and states with the membrane last.
        dataloader: batches (data, targets).
        optimizer: optimizer of the network's parameters.
        criterion: loss of snn_ipu.functional, or any loss with an attribute `reads` that is "spk" or "mem".
        num_steps: number of steps T for data that stays the same; leave out with time_var.
        time_var: data changes over time, [T, B, ...]; otherwise it is [B, ...].
        time_first: False for data [B, T, ...] (and targets [B, T], if they change over time).
        regularization: penalty added to each loss, as l1_rate_sparsity.
        device: where to train.
        K: steps per update; all steps of the sequence if False.

    Returns: the mean loss per step over the epoch, a scalar without graph.
    Raises: ValueError for arguments that contradict; TypeError for a criterion or network that does not fit.
    Source: snnTorch; truncation: R. J. Williams and J. Peng, 1990.
    """
    _check_arguments(num_steps, time_var, time_first, K)
    terms: list[Any] = [criterion] if regularization is False else [criterion, regularization]
    for term in terms:
        if getattr(term, "reads", None) not in ("spk", "mem"):
            raise TypeError(
                f"{term!r} does not say what it reads; expected a loss of snn_ipu.functional, or one with the"
                " attribute reads = 'spk' or 'mem'."
            )
    targets_vary = bool(getattr(criterion, "time_var_targets", False))
    net = net.to(device)
    net.train()
    epoch_loss = torch.zeros((), device=device)
    num_batches = 0
    for data, targets in dataloader:
        data, targets = data.to(device), targets.to(device)
        if time_var:
            data = data if time_first else data.transpose(0, 1)
        if targets_vary and not time_first and targets.dim() > 1:
            targets = targets.transpose(0, 1)
        length = data.shape[0] if time_var else num_steps
        if not length:
            raise ShapeError(f"got data of shape {tuple(data.shape)}; expected at least one time step.")
        utils.reset(net)
        for start in range(0, length, K or length):
            steps = range(start, min(start + (K or length), length))
            recordings = _record(net, [data[step] if time_var else data for step in steps])
            part_targets = targets[steps.start : steps.stop] if targets_vary else targets
            loss = criterion(_read(recordings, criterion), part_targets).reshape(())
            if regularization is not False:
                loss = loss + terms[1](_read(recordings, terms[1]))
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            utils.detach(net)
            epoch_loss += loss.detach() * (len(steps) / length)
        num_batches += 1
    if not num_batches:
        raise ValueError("the dataloader yielded no batch; expected at least one.")
    return epoch_loss / num_batches


def BPTT(
    net: nn.Module,
    dataloader: Batches,
    optimizer: torch.optim.Optimizer,
    criterion: Callable[[Tensor, Tensor], Tensor],
    num_steps: int = False,
    time_var: bool = True,
    time_first: bool = True,
    regularization: Callable[[Tensor], Tensor] | bool = False,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Trains for one epoch, with one weight update per sequence: TBPTT over all its steps.

    Args, Returns, Raises: see TBPTT.
    Source: snnTorch; P. J. Werbos, 1990.
    """
    return TBPTT(
        net, dataloader, optimizer, criterion, num_steps, time_var, time_first, regularization, device, K=False
    )


def RTRL(
    net: nn.Module,
    dataloader: Batches,
    optimizer: torch.optim.Optimizer,
    criterion: Callable[[Tensor, Tensor], Tensor],
    num_steps: int = False,
    time_var: bool = True,
    time_first: bool = True,
    regularization: Callable[[Tensor], Tensor] | bool = False,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Trains for one epoch, with a weight update at every step: TBPTT with K = 1.

    The name is snnTorch's; it is not the algorithm of Williams and Zipser (1989), which carries the influence of
    earlier steps forward.

    Args, Returns, Raises: see TBPTT.
    Source: snnTorch.
    """
    return TBPTT(net, dataloader, optimizer, criterion, num_steps, time_var, time_first, regularization, device, K=1)


def _check_arguments(num_steps: int, time_var: bool, time_first: bool, K: int) -> None:
    if bool(num_steps) == time_var:
        raise ValueError(
            f"num_steps={num_steps} with time_var={time_var}; expected num_steps for data that stays the same"
            " (time_var=False), and none for data [T, B, ...]."
        )
    if not time_var and not time_first:
        raise ValueError("time_first=False with time_var=False; data that stays the same has no time dimension.")
    if K < 0 or (num_steps and num_steps < K):
        raise ValueError(f"K={K} with num_steps={num_steps}; expected K from 1 to num_steps, or False for all steps.")


def _record(net: nn.Module, inputs: list[Tensor]) -> dict[str, Tensor]:
    """Spikes, and membranes if the network returns states, of consecutive steps, [K, B, ...]."""
    outputs = [net(x) for x in inputs]
    if isinstance(outputs[0], Tensor):
        return {"spk": torch.stack(outputs)}
    return {
        "spk": torch.stack([output[0] for output in outputs]),
        "mem": torch.stack([output[-1] for output in outputs]),
    }


def _read(recordings: dict[str, Tensor], term: Any) -> Tensor:
    if term.reads not in recordings:
        raise TypeError(
            f"{term!r} reads membranes, but the network returns spikes alone. Build its last neuron with output=True."
        )
    return recordings[term.reads]
