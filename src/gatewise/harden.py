"""Adaptive discretization (Algorithm 2), its fixed-schedule form, and Gumbel noise.

Algorithm 2 watches the mean entropy of the first layer that is not yet hard. When that has stayed within `stability`
of its own moving average for `patience` steps, the layer is frozen: from then on it runs hard, needs no gradient, and
the layers behind it learn on bits. `every=n` freezes the next layer after each n steps instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from gatewise import kernels
from gatewise.errors import ConfigError
from gatewise.layers import GumbelNoise, LogicConv2d, LogicLayer, logic_layers


class Hardener:
    """Call `step()` after each step of the optimizer, once resampling has ended. Freezes convolutions by default.

    >>> hardener = Hardener(network, patience=200)
    >>> frozen_now = hardener.step()
    """

    def __init__(
        self,
        network: nn.Module,
        *,
        layers: Sequence[LogicLayer] | None = None,
        patience: int = 200,
        momentum: float = 0.99,
        stability: float = 5e-4,
        every: int | None = None,
    ) -> None:
        if patience < 1 or (every is not None and every < 1):
            raise ConfigError(f"patience and every must be at least 1 step, not {patience} and {every}")
        chosen = [m for m in logic_layers(network) if isinstance(m, LogicConv2d)] if layers is None else layers
        self.layers = list(chosen)
        self.patience, self.momentum, self.stability, self.every = patience, momentum, stability, every
        device = self.layers[0].weight.device if self.layers else None
        self.mean = torch.full((), torch.nan, device=device)
        self.count = torch.zeros((), dtype=torch.int64, device=device)
        self._certain = 0  # steps for which the count cannot be high enough

    def step(self) -> LogicLayer | None:
        """The layer that was frozen now, if one was."""
        self.watch()
        return self.ask()

    @property
    def next(self) -> LogicLayer | None:
        """The layer that is frozen next."""
        return next((layer for layer in self.layers if not layer.frozen), None)

    @torch.no_grad()
    def watch(self) -> None:
        """Count the steps for which the next layer has been stable, on its device and without waiting for it."""
        if (layer := self.next) is None:
            return
        if self.every is not None:
            self.count += 1
            return
        h = kernels.entropy(layer.weight).mean()
        self.mean.copy_(torch.where(self.mean.isnan(), h, self.mean))
        self.count.copy_(torch.where((self.mean - h).abs() <= self.stability, self.count + 1, 0))
        self.mean.lerp_(h, 1 - self.momentum)

    def ask(self) -> LogicLayer | None:
        """Freeze the next layer if it has been stable for long enough; call it after each `watch()`.

        A step counts at most one, so the host need not look again until enough steps have passed.
        """
        if (layer := self.next) is None:
            return None
        if self._certain > 0:
            self._certain -= 1
            return None
        count, enough = int(self.count), self.patience if self.every is None else self.every
        if count < enough:
            self._certain = enough - count - 1
            return None
        layer.freeze()
        self.mean.fill_(torch.nan)
        self.count.zero_()
        return layer

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs; which layers are frozen is in the network's own state."""
        return {"mean": self.mean, "count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""
        self.mean.copy_(state["mean"])
        self.count.copy_(state["count"])
        self._certain = 0


def add_gumbel_noise(network: nn.Module, temperature: float = 1.0, *, straight_through: bool = False) -> None:
    """Let every logic layer train with softmax((w + Gumbel(0, 1)) / temperature); evaluation has no noise.

    `straight_through` runs the forward pass on the candidate of largest noisy weight, with the soft gradient.
    """
    if not temperature > 0:
        raise ConfigError(f"the temperature of Gumbel noise must be positive, not {temperature}")
    for layer in logic_layers(network):
        layer.noise = GumbelNoise(temperature, straight_through)
