"""Differentiable logic layers.

In training mode a neuron is a mixture of K candidates, each a gate with two inputs, weighted by a softmax. In eval
mode, or once it is frozen, it is the candidate of largest weight, on bits. Fanin and gates are buffers, so a
`state_dict` holds a network whole. Layers hand each other views whose samples are innermost in memory.

Sizes: B samples, N neurons, K candidates, D inputs, C channels, H rows, W columns.
"""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gatewise import gates, kernels, wiring
from gatewise.errors import WiringError

RESIDUAL = 0.9
"""The probability that residual initialisation gives to passing the first input on."""


@dataclass(frozen=True)
class GumbelNoise:
    """Noise on the weights in training: softmax((w + Gumbel(0, 1)) / temperature); see harden.py."""

    temperature: float = 1.0
    straight_through: bool = False


class LogicLayer(nn.Module):
    """What dense and convolutional layers share: candidates, weights, freezing and noise."""

    weight: Tensor
    fanin: Tensor
    gate: Tensor

    def __init__(self, fanin: Tensor, source: wiring.Source | None, init: str, limits: tuple[int, ...]) -> None:
        """`limits` are the numbers that a fanin's coordinates stay below."""
        super().__init__()
        neurons, candidates = fanin.shape[:2]
        gate = torch.arange(candidates).remainder(16).to(torch.uint8)
        self.register_buffer("fanin", fanin)
        self.register_buffer("gate", gate.repeat(neurons, 1))
        self.weight = nn.Parameter(initial_weight(neurons, candidates, init))
        self.source, self.limits = source, limits
        self.frozen = False
        self.noise: GumbelNoise | None = None

    def freeze(self) -> None:
        """Run hard from now on, in training too, and stop learning."""
        self.frozen = True
        self.weight.requires_grad_(False)
        self.weight.grad = None  # a gradient that is left there would still be applied

    def choice(self, weight: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The fanin [N, 1, …] and gate [N, 1] of each neuron's candidate of largest weight (ties: the first)."""
        best = (self.weight if weight is None else weight).argmax(1)
        neurons = torch.arange(len(best), device=best.device)
        return self.fanin[neurons, best][:, None], self.gate[neurons, best][:, None]

    def get_extra_state(self) -> Tensor:
        return torch.tensor(self.frozen)

    def set_extra_state(self, state: Tensor) -> None:
        self.frozen = bool(state)
        self.weight.requires_grad_(not self.frozen)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        """Load, unless the wiring is that of a layer with more inputs."""
        fanin, gate = state_dict.get(f"{prefix}fanin"), state_dict.get(f"{prefix}gate")
        if fanin is not None and fanin.shape == self.fanin.shape and fanin.numel():
            reads = (fanin if fanin.ndim > 3 else fanin[..., None]).flatten(0, 2)
            low, high = reads.amin(0).tolist(), reads.amax(0).tolist()
            if min(low) < 0 or any(top >= limit for top, limit in zip(high, self.limits, strict=True)):
                raise WiringError(
                    f"{prefix}fanin reads {low} to {high}, but this layer has inputs from 0 to below "
                    f"{list(self.limits)}: it was saved from another network"
                )
            self._check_wiring(fanin, prefix)
        if gate is not None and gate.numel() and not 0 <= int(gate.amin()) <= int(gate.amax()) < 16:
            raise WiringError(f"{prefix}gate has ids up to {int(gate.amax())}, but there are 16 gates")
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _check_wiring(self, fanin: Tensor, prefix: str) -> None:
        """Raise a WiringError if a saved fanin within the limits is none that this layer can have."""

    def activations(self, x: Tensor) -> Tensor:
        """x in a type that the layer computes in: 16-bit floats stay what they are, all else has the weights' type."""
        return x if x.dtype in (torch.float16, torch.bfloat16) else x.to(self.weight.dtype)

    def mix(self, x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor) -> Tensor:
        raise AssertionError("a layer says how it mixes")

    def hard(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        fanin, gate = self.choice(weight)
        return self.mix(x, torch.zeros(len(gate), 1, dtype=self.weight.dtype, device=x.device), fanin, gate)

    def evaluate(self, x: Tensor) -> Tensor:
        """Mix or choose, as the mode asks; x and the result have samples innermost."""
        if self.frozen or not self.training:
            return self.hard(x)
        if self.noise is None:
            return self.mix(x, self.weight, self.fanin, self.gate)
        uniform = torch.rand_like(self.weight).clamp_min(torch.finfo(self.weight.dtype).tiny)
        weight = (self.weight - torch.log(-torch.log(uniform))) / self.noise.temperature
        soft = self.mix(x, weight, self.fanin, self.gate)
        return soft + (self.hard(x, weight) - soft).detach() if self.noise.straight_through else soft


def initial_weight(neurons: int, candidates: int, init: str) -> Tensor:
    """[N, K]: N(0, 1), or RESIDUAL on the first candidate that passes its first input on and the rest shared."""
    if init == "normal":
        return torch.randn(neurons, candidates)
    if init == "residual":
        if candidates <= gates.FIRST:
            raise WiringError(f"init='residual' needs at least {gates.FIRST + 1} candidates, not {candidates}")
        weight = torch.zeros(neurons, candidates)
        weight[:, gates.FIRST] = kernels.leading_logit(RESIDUAL, candidates)
        return weight
    raise WiringError(f"init is 'normal' or 'residual', not {init!r}")


def _check(wiring_name: str, **positive: int) -> None:
    for name, value in positive.items():
        whole: object = value  # callers are free to ignore annotations
        if isinstance(whole, bool) or not isinstance(whole, numbers.Integral) or value < 1:
            raise WiringError(f"{name} must be a positive whole number, not {value!r}")
    if wiring_name not in ("learned", "fixed"):
        raise WiringError(f"wiring is 'learned' or 'fixed', not {wiring_name!r}")


class LogicDense(LogicLayer):
    """N neurons over D inputs: [B, D] → [B, N].

    >>> layer = LogicDense(64, 128)
    >>> layer(torch.rand(5, 64)).shape
    torch.Size([5, 128])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        candidates: int = 16,
        wiring: str = "learned",
        init: str = "normal",
    ) -> None:
        _check(wiring, in_features=in_features, out_features=out_features, candidates=candidates)
        super().__init__(*_dense_wiring(in_features, out_features, candidates, wiring), init, (in_features,))
        self.in_features, self.out_features = in_features, out_features

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 2 or x.shape[1] != self.in_features:
            raise WiringError(f"LogicDense expects [batch, {self.in_features}], not {list(x.shape)}")
        return self.evaluate(self.activations(x.t())).t()

    def mix(self, x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor) -> Tensor:
        return kernels.mix_dense(x, weight, fanin, gate)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, candidates={self.weight.shape[1]}"


def _dense_wiring(inputs: int, neurons: int, candidates: int, name: str) -> tuple[Tensor, wiring.Source | None]:
    if name == "fixed":
        return wiring.share(wiring.coverage(inputs, neurons, 1), candidates), None
    return wiring.coverage(inputs, neurons, candidates), wiring.Source(inputs)


class LogicConv2d(LogicLayer):
    """One gate is the whole kernel, shared over positions: [B, C, H, W] → [B, N, OH, OW], zeros around the image.

    `channels_per_kernel=1` lets kernel n see channel n mod C; None lets it see all; a number g lets it see the
    n-th group of g neighbouring channels, counted round.

    >>> layer = LogicConv2d(3, 8, 3, stride=2, padding=1)
    >>> layer(torch.rand(5, 3, 32, 32)).shape
    torch.Size([5, 8, 16, 16])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        *,
        stride: int = 1,
        padding: int = 0,
        channels_per_kernel: int | None = 1,
        candidates: int = 16,
        wiring: str = "learned",
        init: str = "normal",
    ) -> None:
        sizes = {"in_channels": in_channels, "out_channels": out_channels, "kernel_size": kernel_size}
        group = in_channels if channels_per_kernel is None else channels_per_kernel
        _check(wiring, **sizes, stride=stride, channels_per_kernel=group, candidates=candidates)
        if isinstance(padding, bool) or not isinstance(padding, int) or padding < 0:
            raise WiringError(f"padding must be a whole number from 0, not {padding!r}")
        if in_channels % group:
            raise WiringError(f"channels_per_kernel={group} does not divide the {in_channels} input channels")
        wired = _window_wiring(in_channels, out_channels, candidates, kernel_size, group, wiring)
        super().__init__(*wired, init, (in_channels, kernel_size, kernel_size))
        self.in_channels, self.out_channels, self.channels_per_kernel = in_channels, out_channels, group
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding

    def output_size(self, size: int) -> int:
        """How many positions the kernel takes along a side of `size`."""
        return kernels.reference.conv_output_size(size, self.kernel_size, self.stride, self.padding)

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != self.in_channels:
            raise WiringError(f"LogicConv2d expects [batch, {self.in_channels}, height, width], not {list(x.shape)}")
        if min(map(self.output_size, x.shape[2:])) < 1:
            raise WiringError(
                f"an image of {x.shape[2]}×{x.shape[3]} is smaller than the {self.kernel_size}-wide window"
            )
        return self.evaluate(self.activations(x.permute(1, 2, 3, 0))).permute(3, 0, 1, 2)

    def mix(self, x: Tensor, weight: Tensor, fanin: Tensor, gate: Tensor) -> Tensor:
        geometry = (self.kernel_size, self.stride, self.padding)
        return kernels.mix_conv(x, weight, fanin, gate, *geometry, one_channel=self.channels_per_kernel == 1)

    def _check_wiring(self, fanin: Tensor, prefix: str) -> None:
        groups = self.in_channels // self.channels_per_kernel
        own = torch.arange(len(fanin), device=fanin.device)[:, None, None] % groups
        if not torch.equal((fanin[..., 0] // self.channels_per_kernel).long(), own.expand(fanin.shape[:3])):
            raise WiringError(
                f"{prefix}fanin reads channels outside its kernels' groups: it was saved from another layer"
            )

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, {self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding}, channels_per_kernel={self.channels_per_kernel}, candidates={self.weight.shape[1]}"
        )


def _window_wiring(
    channels: int, neurons: int, candidates: int, kernel_size: int, group: int, name: str
) -> tuple[Tensor, wiring.Source | None]:
    if name == "fixed":
        return wiring.share(wiring.window(channels, neurons, 1, kernel_size, group), candidates), None
    fanin = wiring.window(channels, neurons, candidates, kernel_size, group)
    if kernel_size == 1:
        return fanin, wiring.Source(group, groups=channels // group)
    return fanin, wiring.Source(kernel_size**2, width=kernel_size)


class GroupSum(nn.Module):
    """Counts the bits of each class over equal groups, divided by tau: [B, N] → [B, classes].

    A class count that does not divide N is met by zeros after the last input.
    """

    def __init__(self, classes: int, tau: float = 1.0) -> None:
        super().__init__()
        _check("learned", classes=classes)
        if not (math.isfinite(tau) and tau > 0):
            raise WiringError(f"tau must be a positive number, not {tau!r}")
        self.classes, self.tau = classes, tau

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 2:
            raise WiringError(f"GroupSum expects [batch, features], not {list(x.shape)}")
        rows = x.t()
        if missing := -len(rows) % self.classes:
            rows = torch.cat([rows, rows.new_zeros(missing, rows.shape[1])])
        grouped = rows.reshape(self.classes, len(rows) // self.classes, rows.shape[1])
        wide = rows.dtype if rows.dtype == torch.float64 else torch.float32  # 16 bits cannot count far
        return grouped.sum(1, dtype=wide).t() / self.tau

    def extra_repr(self) -> str:
        return f"{self.classes}, tau={self.tau}"


def logic_layers(network: nn.Module) -> list[LogicLayer]:
    """The logic layers of a network, in order."""
    return [module for module in network.modules() if isinstance(module, LogicLayer)]


@contextlib.contextmanager
def relaxed(network: nn.Module) -> Iterator[None]:
    """Evaluate the relaxed network within the block: its logic layers mix, without noise; others stay as they are."""
    layers = logic_layers(network)
    before = [(layer.training, layer.noise) for layer in layers]
    for layer in layers:
        layer.training, layer.noise = True, None
    try:
        yield
    finally:
        for layer, (training, noise) in zip(layers, before, strict=True):
            layer.training, layer.noise = training, noise
