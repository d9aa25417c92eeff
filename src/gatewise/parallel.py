"""Training by several processes, started by torchrun: each has a part of every batch, and all have the same weights."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed
from torch import Tensor

from gatewise.errors import ConfigError, GatewiseError


class Abandoned(GatewiseError):
    """The other processes can no longer be reached."""


class Silent(Exception):
    """Another process has failed before this one, and says why."""


@dataclass(frozen=True)
class Place:
    """Which of the processes this is; the first one alone writes files and speaks."""

    rank: int = 0
    ranks: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    local: int = 0
    """Its number among the processes of its machine."""

    @property
    def leads(self) -> bool:
        return self.rank == 0


def _environment(variable: str, default: str) -> int:
    """A number that torchrun sets."""
    try:
        return int(os.environ.get(variable, default))
    except ValueError as error:
        raise ConfigError(f"{variable}, which torchrun sets, must be a number: {error}") from error


def _met() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


@contextlib.contextmanager
def meeting() -> Iterator[None]:
    """Meet the other processes within the block, if torchrun has started several.

    Of those that fail in the block one, the first, raises its error; the others raise Silent.
    """
    ranks, rank = _environment("WORLD_SIZE", "1"), _environment("RANK", "0")
    if ranks == 1 or _met():
        yield
        return
    from torch.distributed.rendezvous import rendezvous

    # Loaded while there is a group, by the optimizer, it would keep that as a default argument, and its threads beyond
    # the end of Python, which may abort the process.
    importlib.import_module("torch.distributed.nn")
    # Gloo is there besides NCCL, so that the processes can talk before each has its GPU, and without waiting for it.
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and torch.distributed.is_nccl_available() else "gloo"
    try:
        store, _, _ = next(rendezvous("env://"))
        torch.distributed.init_process_group(backend, store=store, rank=rank, world_size=ranks)
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"the {ranks} processes cannot meet: start them with torchrun ({reason})") from error
    try:
        yield
    except BaseException as error:
        traceback.clear_frames(error.__traceback__)  # a captured graph in there would hold on to the group
        with contextlib.suppress(RuntimeError):
            if store.add("failed", 1) > 1:
                raise Silent from error
        raise
    finally:
        torch.distributed.destroy_process_group()


def place(name: str) -> Place:
    """This process among those it has met, with the named device, or a GPU of its own."""
    ranks, rank = 1, 0
    if _met():
        ranks, rank = torch.distributed.get_world_size(), torch.distributed.get_rank()
    local = _environment("LOCAL_RANK", "0")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(f"cuda:{local}" if name == "cuda" else name)
        float(torch.zeros(1, device=device))
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0].split(" device type at start")[0]
        raise ConfigError(f"device {name!r} cannot be used: {reason}") from error
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return Place(rank, ranks, device, local)


@contextlib.contextmanager
def _exchange() -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        cause = error.with_traceback(None)  # in which the group would live on
        raise Abandoned(f"the other processes cannot be reached, so one of them may have ended: {reason}") from cause


def average(gradients: Iterable[Tensor | None], ranks: int) -> None:
    """Replace each gradient by its mean over all processes, in one exchange."""
    there = [gradient for gradient in gradients if gradient is not None]
    if ranks == 1 or not there:
        return
    together = torch.cat([gradient.flatten() for gradient in there])
    with _exchange():
        torch.distributed.all_reduce(together)
    together /= ranks
    start = 0
    for gradient in there:
        gradient.copy_(together[start : start + gradient.numel()].view_as(gradient))
        start += gradient.numel()


def all_of(value: Tensor, place: Place) -> Tensor:
    """The value in every process, by rank; of a single process, the value itself."""
    if place.ranks == 1:
        return value
    value = value.detach().cpu()
    values = [torch.empty_like(value) for _ in range(place.ranks)]
    with _exchange():
        torch.distributed.all_gather(values, value)
    return torch.stack(values)


def any_of(flags: Sequence[bool], place: Place) -> list[bool]:
    """Which of the flags are up in any process."""
    if place.ranks == 1:
        return list(flags)
    return [bool(up) for up in all_of(torch.tensor(flags).int(), place).amax(0)]


def wait(place: Place) -> None:
    """Wait until all processes are here."""
    any_of([False], place)


def same(text: str, place: Place) -> bool:
    """Whether all processes have the same text."""
    digest = torch.frombuffer(bytearray(hashlib.sha256(text.encode()).digest()), dtype=torch.uint8)
    digests = all_of(digest, place).view(-1, len(digest))
    return bool((digests == digests[0]).all())


def share(tensors: Iterable[Tensor], place: Place) -> None:
    """Fill the tensors with those of the process that leads."""
    if place.ranks == 1:
        return
    for tensor in tensors:
        values = tensor.detach().cpu().reshape(-1)
        with _exchange():
            torch.distributed.broadcast(values.view(torch.uint8), 0)  # some types of numbers cannot be sent as such
        tensor.copy_(values.view_as(tensor))
