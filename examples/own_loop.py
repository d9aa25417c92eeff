"""Your own training loop: build a network, train it with any optimizer, and turn it into a circuit.

python examples/own_loop.py [--steps 300] [--out digits.gatewise]
"""

import argparse

import torch

import gatewise
from gatewise.circuit import count_bops, prune, simulate
from gatewise.data import load_dataset
from gatewise.encode import Thermometer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--out", default="digits.gatewise")
    args = parser.parse_args()

    torch.manual_seed(0)
    digits = load_dataset("digits")
    encoder = Thermometer.equal(3, low=0, high=16, shape=(1, 8, 8))
    bits = torch.from_numpy(encoder.transform(digits.train_x))  # [1433, 3, 8, 8]
    labels = torch.from_numpy(digits.train_y)

    network = torch.nn.Sequential(
        gatewise.LogicConv2d(3, 48, 3, padding=1, init="residual"),
        gatewise.LogicConv2d(48, 48, 3, stride=2, padding=1, init="residual"),
        torch.nn.Flatten(),
        gatewise.LogicDense(48 * 16, 1_500),
        gatewise.GroupSum(10, tau=10),
    )
    optimizer = torch.optim.AdamW(network.parameters(), lr=0.02, weight_decay=0)
    resampler = gatewise.Resampler(network, optimizer, patience=50)
    hardener = gatewise.Hardener(network, patience=50)
    with gatewise.own_threads():  # the C core gets the processor's threads, torch one
        for step in range(args.steps):
            chosen = torch.randint(len(bits), (128,))
            loss = torch.nn.functional.cross_entropy(network(bits[chosen]), labels[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step < args.steps // 2:
                resampler.step()
            elif frozen := hardener.step():
                print(f"step {step}: froze {frozen}")

    circuit = gatewise.discretize(network, input_shape=(3, 8, 8))
    test = torch.from_numpy(encoder.transform(digits.test_x))
    with torch.no_grad():
        hard = network[:-1].eval()(test).numpy().astype(bool)
    assert (simulate(circuit, test.flatten(1).numpy()) == hard).all(), "the circuit is the network, on every bit"

    model = gatewise.BooleanModel(encoder, prune(circuit), gatewise.Head(10))
    model.save(args.out)
    right = (gatewise.load(args.out).predict(digits.test_x) == digits.test_y).mean()
    print(f"{circuit.gates:,} neurons, {count_bops(circuit):,} BOPs, {right:.1%} of test samples right: {args.out}")


if __name__ == "__main__":
    main()
