"""Trained network → Circuit: the only file that knows both worlds."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import nn

from gatewise.circuit import Circuit
from gatewise.errors import CircuitError
from gatewise.layers import GroupSum, LogicConv2d, LogicDense

Nets = NDArray[np.int32]
ZERO = 0  # the net that is constant 0: what padding reads


@dataclass
class _Gates:
    """The gates so far, as one pair of arrays a layer."""

    next_net: int
    tables: list[NDArray[np.uint64]] = field(default_factory=list)
    fanins: list[Nets] = field(default_factory=list)

    def add(self, table: NDArray[np.uint8], fanin: Nets) -> Nets:
        """Append gates and return their nets."""
        nets = np.arange(self.next_net, self.next_net + len(table), dtype=np.int32)
        self.next_net += len(table)
        self.tables.append(table.astype(np.uint64))
        self.fanins.append(fanin.astype(np.int32, copy=False))
        return nets


def discretize(network: nn.Module, input_shape: tuple[int, ...]) -> Circuit:
    """The hard network as a circuit, its outputs those that GroupSum counts (all, where there is no GroupSum).

    `input_shape` is the shape of one sample's bits, (C, H, W) or (D,); the circuit's inputs are these in C order.
    Convolutions are unrolled over positions and padding is the constant 0.

    >>> circuit = discretize(network, input_shape=(3, 32, 32))
    """
    inputs = int(np.prod(input_shape))
    nets = np.arange(2, 2 + inputs, dtype=np.int32).reshape(input_shape)
    gates = _Gates(2 + inputs)
    stages = _stages(network)
    for i, stage in enumerate(stages):
        if isinstance(stage, GroupSum):
            if i + 1 < len(stages):
                raise CircuitError(f"GroupSum must come last, but {type(stages[i + 1]).__name__} follows it")
        elif isinstance(stage, nn.Flatten):
            nets = nets.reshape(-1)
        elif isinstance(stage, LogicDense):
            nets = _dense(stage, nets, gates)
        elif isinstance(stage, LogicConv2d):
            nets = _conv(stage, nets, gates)
        elif not isinstance(stage, nn.Identity | nn.Dropout):
            known = "LogicDense, LogicConv2d, GroupSum, Flatten and Identity"
            raise CircuitError(f"a {type(stage).__name__} cannot become gates; a network may hold {known}")
    table = np.concatenate([np.empty(0, np.uint64), *gates.tables])
    fanin = np.concatenate([np.empty((0, 2), np.int32), *gates.fanins])
    return Circuit(inputs, table, fanin, nets.reshape(-1))


def _stages(network: nn.Module) -> list[nn.Module]:
    if isinstance(network, nn.Sequential):
        return [stage for child in network for stage in _stages(child)]
    return [network]


def _choice(layer: LogicDense | LogicConv2d) -> tuple[Nets, NDArray[np.uint8]]:
    """Fanin [N, 2, …] and gate [N] of the candidate each neuron has settled on."""
    fanin, gate = layer.choice()
    return fanin[:, 0].cpu().numpy(), gate[:, 0].cpu().numpy()


def _dense(layer: LogicDense, nets: Nets, gates: _Gates) -> Nets:
    if nets.shape != (layer.in_features,):
        raise CircuitError(f"a LogicDense of {layer.in_features} inputs cannot follow a shape of {list(nets.shape)}")
    fanin, gate = _choice(layer)
    return gates.add(gate, nets[fanin])


def _conv(layer: LogicConv2d, nets: Nets, gates: _Gates) -> Nets:
    if nets.ndim != 3 or nets.shape[0] != layer.in_channels:
        raise CircuitError(f"a LogicConv2d of {layer.in_channels} channels cannot follow a shape of {list(nets.shape)}")
    height, width = map(layer.output_size, nets.shape[1:])
    if min(height, width) < 1:
        raise CircuitError(f"an image of {list(nets.shape[1:])} is smaller than the {layer.kernel_size}-wide window")
    around = layer.padding
    padded = np.pad(nets, ((0, 0), (around, around), (around, around)), constant_values=ZERO)
    fanin, gate = _choice(layer)
    channel, row, column = (fanin[:, :, None, None, i] for i in range(3))  # [N, 2, 1, 1]
    y = layer.stride * np.arange(height, dtype=np.int32)[:, None]
    x = layer.stride * np.arange(width, dtype=np.int32)
    read = padded[channel, row + y, column + x]  # [N, 2, OH, OW]
    out = gates.add(np.repeat(gate, height * width), np.moveaxis(read, 1, 3).reshape(-1, 2))
    return out.reshape(len(gate), height, width)
