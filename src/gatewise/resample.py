"""Adaptive resampling of wiring: Algorithm 1 of the paper.

A neuron is stable when the entropy of its candidates has stayed within `stability` of its own moving average for
`patience` steps. A stable neuron that is dominated by one candidate keeps it, with weight `reset`, and draws all its
others anew; one that is dispersed over many draws all of them anew; one in between goes on learning.
The definition of a step is `kernels.reference.resample_rows`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from gatewise import draws, kernels
from gatewise.errors import ConfigError
from gatewise.kernels import ResampleRule
from gatewise.layers import LogicLayer, logic_layers


class Resampler:
    """Call `step()` after each step of the optimizer.

    The optimizer's state for a redrawn neuron (Adam's moments, say) is set to zero, since it belongs to candidates
    that are gone. Layers with fixed wiring, and frozen ones, are left alone.

    >>> network = nn.Sequential(LogicDense(64, 256), GroupSum(2))
    >>> optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    >>> resampler = Resampler(network, optimizer, patience=100)
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: torch.optim.Optimizer | None = None,
        *,
        patience: int = 100,
        momentum: float = 0.99,
        stability: float = 5e-4,
        dominant: float = 0.95,
        dispersed: float = 0.4,
        reset: float = 0.9,
        restart: str = "normal",
        seed: int = 0,
    ) -> None:
        if restart not in ("normal", "uniform"):
            raise ConfigError(f"restart is 'normal' or 'uniform', not {restart!r}")
        if patience < 1:
            raise ConfigError(f"patience must be at least 1 step, not {patience}")
        self.rule = ResampleRule(patience, momentum, stability, dominant, dispersed, reset, restart)
        self.optimizer, self.seed, self.steps = optimizer, seed, 0
        self.layers = logic_layers(network)
        self.mean = [torch.full_like(layer.weight[:, 0], torch.nan) for layer in self.layers]
        self.count = [torch.zeros_like(mean, dtype=torch.int32) for mean in self.mean]
        self.redrawn = [torch.zeros((), dtype=torch.int64, device=mean.device) for mean in self.mean]
        """Per layer: how many neurons have been redrawn since the start."""

    @torch.no_grad()
    def step(self) -> None:
        """Look at every neuron once, and redraw those that are stable without a use for it."""
        for i, layer in enumerate(self.layers):
            if layer.source is None or layer.frozen or layer.weight.shape[1] < 2:
                continue
            arrays = (layer.weight, layer.fanin, layer.gate, self.mean[i], self.count[i])
            stream = draws.LAYERS + i
            redrawn = kernels.resample_rows(self.rule, layer.source, self.seed, self.steps, stream, *arrays)
            if redrawn.is_cpu and not redrawn.any():  # the host may look where looking costs nothing
                continue
            self.redrawn[i] += redrawn.count_nonzero()
            self._forget(layer, redrawn)
        self.steps += 1

    def _forget(self, layer: LogicLayer, redrawn: Tensor) -> None:
        if self.optimizer is None:
            return
        for moment in self.optimizer.state.get(layer.weight, {}).values():
            if isinstance(moment, Tensor) and moment.shape == layer.weight.shape:
                moment.masked_fill_(redrawn[:, None] > 0, 0)

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs, as tensors and a number."""
        return {"steps": self.steps, "mean": self.mean, "count": self.count, "redrawn": self.redrawn}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from `state_dict()`."""
        self.steps = int(state["steps"])
        for name in ("mean", "count", "redrawn"):
            for mine, saved in zip(getattr(self, name), state[name], strict=True):
                mine.copy_(saved)
