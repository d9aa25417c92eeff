"""How large and how small gradients get between layers, in shares of a sample's loss: what float16 has to hold.

    python experiments/gradient_range.py cifar-conv-t --data DIR --steps 1000

Trains on the CPU, in float32, and looks at the gradient for each layer's inputs. The share of a sample is the gradient
of its loss for one logit, which is at most 1; the captured step multiplies it by `captured.FLOAT16_SCALE` in float16,
whose largest number is 65,504, smallest with full precision 6.1e-5, and smallest of all 6.0e-8.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import torch
from torch import Tensor, nn

from gatewise import kernels
from gatewise.captured import FLOAT16_SCALE
from gatewise.layers import LogicLayer, logic_layers
from gatewise.presets import Options, preset
from gatewise.train import _learn, begin, prepare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("preset")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--steps", type=int, default=1_000)
    parser.add_argument("--looks", type=int, default=50, help="how many steps are looked at")
    args = parser.parse_args()
    row, options = dataclasses.replace(preset(args.preset), steps=args.steps), Options(protocol="paper", device="cpu")
    task = prepare(row, options, args.data)
    network, *changes = begin(row, options, task.encoder.bit_shape, task.classes, torch.device("cpu"))
    layers = logic_layers(network.train())
    shares = task.train.batch * row.tau
    largest = torch.zeros(len(layers))
    lost, coarse = torch.zeros(len(layers)), torch.zeros(len(layers))  # of the gradient's norm, squared
    whole = torch.zeros(len(layers))

    def look(i: int, layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        def measure(gradient: Tensor) -> None:
            size = gradient.abs() * shares
            squares = size.double() ** 2
            largest[i] = max(float(largest[i]), float(size.max()))
            whole[i] += squares.sum()
            lost[i] += squares[size < 6.0e-8 / FLOAT16_SCALE].sum()
            coarse[i] += squares[size < 6.1e-5 / FLOAT16_SCALE].sum()

        if watching and isinstance(layer, LogicLayer) and inputs[0].requires_grad:
            inputs[0].register_hook(measure)

    for i, layer in enumerate(layers):
        layer.register_forward_pre_hook(lambda layer, inputs, i=i: look(i, layer, inputs))
    loss_sum = torch.zeros(())
    parts = (network, task.train, row, options, *changes, loss_sum)
    every = max(1, args.steps // args.looks)
    with kernels.own_threads():
        for step in range(args.steps):
            watching = step % every == 0
            _learn(*parts, step)
            if (step + 1) % max(1, args.steps // 4) == 0:
                print(f"step {step + 1:,}  mean loss {float(loss_sum) / (step + 1):.3f}", flush=True)
    print(f"{args.preset}, {args.steps:,} steps, every {every}th looked at, float16 scale {FLOAT16_SCALE:g}")
    print("layer  neurons   largest share   times scale   norm below full precision   norm lost")
    for i in range(1, len(layers)):
        print(
            f"{i:5}  {len(layers[i].weight):7,}  {float(largest[i]):14.2f}  {float(largest[i]) * FLOAT16_SCALE:12.1f}"
            f"  {float((coarse[i] / whole[i]).sqrt()):26.1e}  {float((lost[i] / whole[i]).sqrt()):10.1e}"
        )


if __name__ == "__main__":
    main()
