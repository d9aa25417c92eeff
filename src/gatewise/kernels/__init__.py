"""The only place that decides which kernel runs. `reference` defines them; the others must agree with it.

`native` is the C core for float32 on the CPU. Everything else runs the reference. `use("reference")` asks for one
by name; a request that cannot be met raises and says what there is.
"""

from __future__ import annotations

import contextlib
import functools
import logging
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from gatewise import core
from gatewise.errors import KernelError
from gatewise.kernels import native, reference
from gatewise.kernels.native import own_threads
from gatewise.kernels.reference import ResampleRule, entropy, leading_logit
from gatewise.wiring import Source

__all__ = ["NAMES", "ResampleRule", "choose", "entropy", "leading_logit", "mix_conv", "mix_dense", "own_threads"]
__all__ += ["resample_rows", "use"]

log = logging.getLogger("gatewise")

NAMES = ("auto", "native", "reference")
_asked = "auto"


@contextlib.contextmanager
def use(name: str) -> Iterator[None]:
    """Run the named kernels within the block: one of `auto`, `native`, `reference`."""
    global _asked
    if name not in NAMES:
        raise KernelError(f"there are no kernels named {name!r}; there are {', '.join(NAMES)}")
    if name == "native" and not core.available():
        raise KernelError(f"the native kernels are not available: {core.why_not()}; 'reference' is")
    before, _asked = _asked, name
    try:
        yield
    finally:
        _asked = before


@functools.cache
def _say_why_not() -> None:
    log.warning("the plain PyTorch kernels run, some 50 times slower: %s", core.why_not())


def choose(asked: str, device: torch.device, dtype: torch.dtype, candidates: int = 16) -> str:
    """Which kernels serve tensors of this device and type; apart from what is installed, the arguments decide."""
    fits = device.type == "cpu" and dtype == torch.float32 and candidates <= native.MAX_CANDIDATES
    if asked == "native" and not fits:
        raise KernelError(
            f"the native kernels need float32 on the CPU and up to {native.MAX_CANDIDATES} candidates, not {dtype} on "
            f"{device.type} and {candidates}"
        )
    if asked == "reference" or not fits:
        return "reference"
    return "native" if core.available() else "reference"


class Kernels(Protocol):
    """What a module of kernels offers."""

    def mix_dense(self, x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor) -> Tensor: ...

    def mix_conv(
        self, x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int, stride: int, padding: int
    ) -> Tensor: ...

    def resample_rows(
        self, rule: ResampleRule, source: Source, seed: int, step: int | Tensor, stream: int,
        weight: Tensor, fanin: Tensor, gate: Tensor, mean: Tensor, count: Tensor,
    ) -> Tensor: ...  # fmt: skip


def _kernels(x: Tensor, weight: Tensor) -> Kernels:
    name = choose(_asked, x.device, x.dtype, weight.shape[1])
    if name == "reference" and _asked == "auto" and x.device.type == "cpu" and not core.available():
        _say_why_not()
    return native if name == "native" else reference


def mix_dense(x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor) -> Tensor:
    """x [D, B], weight [N, K], fanin int32 [N, K, 2], gate uint8 [N, K] → y [N, B], differentiable in x and weight."""
    return _kernels(x, weight).mix_dense(x, weight, fanin, gate)


def mix_conv(
    x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int, stride: int, padding: int
) -> Tensor:
    """x [C, H, W, B], fanin int32 [N, K, 2, 3] → y [N, OH, OW, B], differentiable in x and weight."""
    return _kernels(x, weight).mix_conv(x, weight, fanin, gate, kernel_size, stride, padding)


def resample_rows(
    rule: ResampleRule,
    source: Source,
    seed: int,
    step: int | Tensor,
    stream: int,
    weight: Tensor,
    fanin: Tensor,
    gate: Tensor,
    mean: Tensor,
    count: Tensor,
) -> Tensor:
    """One step of Algorithm 1 on a layer, in place; → uint8 [N]: 0 kept, 1 dominated, 2 dispersed (see resample.py)."""
    return _kernels(weight, weight).resample_rows(rule, source, seed, step, stream, weight, fanin, gate, mean, count)
