"""Training by several processes, started by torchrun: each has a part of every batch, and all have the same weights."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from gatewise.errors import ConfigError


@dataclass(frozen=True)
class Place:
    """Which of the processes this is; the first one alone writes files and speaks."""

    rank: int = 0
    ranks: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def leads(self) -> bool:
        return self.rank == 0


_ENVIRONMENT = (("WORLD_SIZE", "1"), ("RANK", "0"), ("LOCAL_RANK", "0"))


def join(name: str) -> Place:
    """Meet the other processes, if torchrun has started several, and take the named device, or a GPU of one's own."""
    try:
        ranks, rank, local = (int(os.environ.get(variable, default)) for variable, default in _ENVIRONMENT)
    except ValueError as error:
        raise ConfigError(f"the environment that torchrun sets cannot be understood: {error}") from error
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(f"cuda:{local}" if name == "cuda" else name)
        float(torch.zeros(1, device=device))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device {name!r} cannot be used: {reason}") from error
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if ranks > 1 and not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return Place(rank, ranks, device)


def average(gradients: Iterable[Tensor | None], ranks: int) -> None:
    """Replace each gradient by its mean over all processes, in one exchange."""
    there = [gradient for gradient in gradients if gradient is not None]
    if ranks == 1 or not there:
        return
    together = torch.cat([gradient.flatten() for gradient in there])
    torch.distributed.all_reduce(together)
    together /= ranks
    start = 0
    for gradient in there:
        gradient.copy_(together[start : start + gradient.numel()].view_as(gradient))
        start += gradient.numel()


def any_of(flag: bool, place: Place) -> bool:
    """Whether the flag is up in any process."""
    if place.ranks == 1:
        return flag
    raised = torch.tensor(int(flag), device=place.device)
    torch.distributed.all_reduce(raised, torch.distributed.ReduceOp.MAX)
    return bool(raised)


def mean_of(value: Tensor, place: Place) -> Tensor:
    """The mean over all processes."""
    if place.ranks == 1:
        return value
    whole = value.clone()
    torch.distributed.all_reduce(whole)
    return whole / place.ranks
