"""The only place that decides which kernel runs. `reference` defines them; the others must agree with it.

`native` is the C core for float32 on the CPU, `triton` serves NVIDIA GPUs. Everything else runs the reference.
`use("reference")` asks for one by name; a request that cannot be met raises and says what there is.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import logging
import os
import shutil
from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from gatewise import core
from gatewise.errors import KernelError
from gatewise.kernels import native, reference
from gatewise.kernels.native import own_threads
from gatewise.kernels.reference import Adam, ResampleRule, entropy, interpreted, leading_logit
from gatewise.wiring import Source

__all__ = [
    "NAMES",
    "Adam",
    "ResampleRule",
    "choose",
    "entropy",
    "interpreted",
    "leading_logit",
    "mix_conv",
    "mix_dense",
]
__all__ += ["own_threads", "resample_rows", "use", "why_no_triton"]

log = logging.getLogger("gatewise")

NAMES = ("auto", "native", "reference", "triton")
OLDEST_TRITON = (3, 6)
MAX_CANDIDATES_TRITON = 128
"""Of a neuron; what its kernels hold in registers grows with them."""
_asked = "auto"


@contextlib.contextmanager
def use(name: str) -> Iterator[None]:
    """Run the named kernels within the block: one of `auto`, `native`, `reference`, `triton`."""
    global _asked
    if name not in NAMES:
        raise KernelError(f"there are no kernels named {name!r}; there are {', '.join(NAMES)}")
    if name == "native" and not core.available():
        raise KernelError(f"the native kernels are not available: {core.why_not()}; 'reference' is")
    if name == "triton" and (reason := why_no_triton()):
        raise KernelError(f"the triton kernels are not available: {reason}; 'reference' is")
    before, _asked = _asked, name
    try:
        yield
    finally:
        _asked = before


@functools.cache
def why_no_triton() -> str | None:
    """One clause that says why the kernels in Triton cannot run on any device, if they cannot; imports nothing."""
    try:
        version = importlib.metadata.version("triton")
    except importlib.metadata.PackageNotFoundError:
        return "Triton is not installed (PyTorch's CUDA builds for Linux bring it along)"
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_TRITON:
        return f"Triton {version} is older than {'.'.join(map(str, OLDEST_TRITON))}"
    if not any(map(shutil.which, (os.environ.get("CC", "gcc"), "gcc", "clang"))):
        return "Triton needs a C compiler where it runs, and there is no gcc or clang"
    return None


@functools.cache
def _say_why_not(reason: str) -> None:
    log.warning("the plain PyTorch kernels run, some 50 times slower: %s", reason)


def choose(asked: str, device: torch.device, dtype: torch.dtype, candidates: int = 16) -> str:
    """Which kernels serve tensors of this device and type; apart from what is installed, the arguments decide."""
    fits = {
        "native": device.type == "cpu" and dtype == torch.float32 and candidates <= native.MAX_CANDIDATES,
        "triton": (device.type == "cuda" or (interpreted() and asked == "triton"))
        and dtype in (torch.float32, torch.float16, torch.bfloat16)
        and candidates <= MAX_CANDIDATES_TRITON,
    }
    if asked in fits and not fits[asked]:
        needs = {
            "native": f"float32 on the CPU and up to {native.MAX_CANDIDATES} candidates",
            "triton": f"float32, float16 or bfloat16 on a GPU and up to {MAX_CANDIDATES_TRITON} candidates",
        }
        raise KernelError(f"the {asked} kernels need {needs[asked]}, not {dtype} on {device.type} and {candidates}")
    if fits["triton"] and asked != "reference" and why_no_triton() is None:
        return "triton"
    if fits["native"] and asked != "reference" and core.available():
        return "native"
    return "reference"


class Kernels(Protocol):
    """What a module of kernels offers."""

    def mix_dense(self, x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor) -> Tensor: ...

    def mix_conv(
        self, x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int, stride: int, padding: int,
        one_channel: bool = False,
    ) -> Tensor: ...  # fmt: skip

    def resample_rows(
        self, rule: ResampleRule, source: Source, seed: int, step: int | Tensor, stream: int,
        weight: Tensor, fanin: Tensor, gate: Tensor, mean: Tensor, count: Tensor,
    ) -> Tensor: ...  # fmt: skip


def _kernels(x: Tensor, weight: Tensor) -> Kernels:
    name = choose(_asked, x.device, x.dtype, weight.shape[1])
    if name == "triton":
        from gatewise.kernels import triton_gpu

        return triton_gpu
    if name == "reference" and _asked == "auto":
        if x.device.type == "cpu" and not core.available():
            _say_why_not(core.why_not())
        elif x.device.type == "cuda" and (reason := why_no_triton()):
            _say_why_not(reason)
        elif x.device.type == "cuda" and weight.shape[1] > MAX_CANDIDATES_TRITON:
            _say_why_not(f"a neuron has more than {MAX_CANDIDATES_TRITON} candidates")
    return native if name == "native" else reference


def mix_dense(x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor) -> Tensor:
    """x [D, B], weight [N, K], fanin int32 [N, K, 2], gate uint8 [N, K] → y [N, B], differentiable in x and weight."""
    return _kernels(x, weight).mix_dense(x, weight, fanin, gate)


def mix_conv(
    x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor, kernel_size: int, stride: int, padding: int,
    one_channel: bool = False,
) -> Tensor:  # fmt: skip
    """x [C, H, W, B], fanin int32 [N, K, 2, 3] → y [N, OH, OW, B], differentiable in x and weight.

    `one_channel` promises that kernel n reads channel n mod C alone.
    """
    return _kernels(x, weight).mix_conv(x, weight, fanin, gate, kernel_size, stride, padding, one_channel)


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
