"""What is lost where the gradients that an input gets from its readers are added up in 16 bits, one after the other.

    python experiments/sums_in_16_bits.py runs/cifar-conv-t --data DIR

Takes a run's best network and one training batch, on the CPU: for each dense layer the gradient for its inputs, summed
in float64, and in float16 and bfloat16 with rounding after each addition, as atomic additions on a GPU do.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn

from gatewise import checkpoint, gates, kernels
from gatewise.captured import FLOAT16_SCALE
from gatewise.layers import LogicDense, logic_layers
from gatewise.presets import build_network
from gatewise.train import prepare

TYPES = (torch.float64, torch.float16, torch.bfloat16)


def input_gradients(layer: LogicDense, x: Tensor, dy: Tensor) -> dict[torch.dtype, Tensor]:
    """The gradient for x [D, B] in each type, from dy [N, B]; candidates add theirs in turn."""
    p = torch.softmax(layer.weight.detach(), 1)[..., None]
    _, ca, cb, cab = (p * torch.from_numpy(gates.COEFFICIENTS).float()[layer.gate.long()]).unbind(-1)  # [N, K]
    sums = {dtype: torch.zeros(x.shape, dtype=dtype) for dtype in TYPES}
    for i in range(layer.weight.shape[1]):
        rows = [layer.fanin[:, i, side].long() for side in (0, 1)]
        a, b = (x[row] for row in rows)
        slopes = (cab[:, i, None] * b + ca[:, i, None], cab[:, i, None] * a + cb[:, i, None])
        for row, slope in zip(rows, slopes, strict=True):
            for dtype, total in sums.items():
                total.index_add_(0, row, (dy * slope).to(dtype))
    return sums


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path)
    args = parser.parse_args()
    row, options = checkpoint.settings(args.run / "best.safetensors")
    step = checkpoint.header(args.run / "best.safetensors")["run"]["step"]
    task = prepare(row, options, args.data)
    network = build_network(row, task.encoder.bit_shape, task.classes).train()
    state = checkpoint.load(args.run / "best.safetensors", {"network": dict(network.state_dict())})
    network.load_state_dict(state["network"])
    seen: dict[nn.Module, tuple[Tensor, Tensor]] = {}

    def look(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        output.retain_grad()
        seen[layer] = inputs[0].detach(), output

    layers = [layer for layer in logic_layers(network) if isinstance(layer, LogicDense)]
    for layer in layers:
        layer.register_forward_hook(look)
    x, labels = task.train.take(step)
    with kernels.own_threads():
        torch.nn.functional.cross_entropy(network(x), labels).backward()
    print(f"{row.name} at step {step:,}: error of sums over readers, relative to the norm, and along the gradient")
    print("layer  neurons  " + "".join(f"{dtype!s:>28}" for dtype in TYPES[1:]))
    for i, layer in enumerate(layers):
        inputs, output = seen[layer]
        assert output.grad is not None
        dy = output.grad.T * (task.train.batch * row.tau * FLOAT16_SCALE)
        exact, *rounded = input_gradients(layer, inputs.T, dy).values()
        errors = [total.double() - exact for total in rounded]
        cells = (f"{e.norm() / exact.norm():.2e}  {(e * exact).sum() / (exact * exact).sum():+.1e}" for e in errors)
        print(f"{i:5}  {len(layer.weight):7,}  " + "".join(f"{cell:>28}" for cell in cells))


if __name__ == "__main__":
    main()
