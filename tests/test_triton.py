"""The GPU's kernels against the reference in float64: on a GPU where there is one, else in Triton's interpreter."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import test_kernels
import torch
from interpreter import DEVICE, interpreted, triton_batch, triton_gpu, triton_mix
from test_kernels import assert_agrees

from gatewise import draws, kernels
from gatewise.batches import pack_levels, unpack_levels
from gatewise.data.augment import augment
from gatewise.errors import KernelError
from gatewise.kernels import Adam, ResampleRule, reference
from gatewise.layers import LogicConv2d, LogicDense
from gatewise.wiring import Source, window

__all__ = ["interpreted"]

FLOATS = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 1e-2}
"""How far values of a type may be from float64, relative to their norm."""

# neurons, inputs, samples, candidates
DENSE = [
    (1, 1, 1, 1),
    (1, 2, 129, 16),
    (5, 3, 129, 16),
    (7, 5, 64, 3),
    (20, 17, 15, 16),
    (4, 4, 300, 40),
    (3, 4, 0, 16),
]
# channels, height, width, kernel_size, stride, padding, neurons, channels_per_kernel, samples
CONV = [
    (1, 1, 1, 1, 1, 0, 1, 1, 1),
    (3, 5, 4, 3, 2, 1, 6, 1, 33),
    (2, 4, 5, 3, 1, 1, 4, 2, 16),
    (4, 4, 3, 1, 1, 0, 5, 4, 3),
    (6, 5, 4, 3, 2, 0, 5, 2, 129),
    (3, 4, 4, 2, 1, 0, 4, 1, 20),
    (2, 2, 3, 3, 1, 2, 3, 1, 3),
    (2, 4, 3, 5, 1, 2, 3, 1, 2),
]
if DEVICE.type == "cuda":  # too much for the interpreter
    DENSE += [(4_000, 3_000, 128, 16), (3_000, 700, 200, 64)]
    CONV += [(64, 16, 16, 3, 2, 1, 256, 1, 128), (9, 32, 32, 3, 2, 1, 64, 1, 128), (16, 9, 9, 3, 1, 1, 32, 4, 130)]


@pytest.fixture(autouse=True)
def _poison():
    """Memory that is handed out again holds NaN, so what a kernel leaves unwritten does not go unnoticed."""
    for size in (1 << 8, 1 << 12, 1 << 16, 1 << 20):
        torch.full((size,), torch.nan, device=DEVICE)
    return


def compare(mix: str, x, weight, fanin, gate, *geometry, dtype=torch.float32) -> None:
    """Values and both gradients of the named function."""
    x, weight = x.to(dtype, copy=True).requires_grad_(), weight.clone().requires_grad_()
    y = getattr(triton_gpu, mix)(x, weight, fanin, gate, *geometry)
    assert y.dtype == dtype
    dy = torch.randn_like(y)
    y.backward(dy)
    exact_x, exact_weight = (t.detach().double().requires_grad_() for t in (x, weight))
    exact = getattr(reference, mix)(exact_x, exact_weight, fanin, gate, *geometry)
    exact.backward(dy.double())
    assert_agrees(y.detach(), exact.detach(), FLOATS[dtype])
    assert_agrees(x.grad, exact_x.grad, FLOATS[dtype])
    assert_agrees(weight.grad, exact_weight.grad, FLOATS[dtype])


def dense_case(neurons, inputs, samples, candidates):
    torch.manual_seed(neurons + samples)
    return [t.to(DEVICE) for t in test_kernels.dense_case(neurons, inputs, samples, candidates)]


def conv_case(channels, height, width, kernel_size, stride, padding, neurons, group, samples, candidates=16):
    torch.manual_seed(neurons + samples)
    fanin = window(channels, neurons, candidates, kernel_size, group)
    fanin[:, ::3, 1] = fanin[:, ::3, 0]
    gate = torch.randint(16, (neurons, candidates), dtype=torch.uint8)
    arrays = torch.rand(channels, height, width, samples), torch.randn(neurons, candidates), fanin, gate
    return *(t.to(DEVICE) for t in arrays), kernel_size, stride, padding


SIXTEEN_BITS = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize(
    ("shape", "dtype"), [(s, torch.float32) for s in DENSE] + [(DENSE[2], d) for d in SIXTEEN_BITS]
)
def test_dense_values_and_gradients_equal_the_reference(shape, dtype):
    compare("mix_dense", *dense_case(*shape), dtype=dtype)


@pytest.mark.parametrize(("shape", "dtype"), [(s, torch.float32) for s in CONV] + [(CONV[5], d) for d in SIXTEEN_BITS])
def test_convolution_values_and_gradients_equal_the_reference(shape, dtype):
    case = conv_case(*shape)
    compare("mix_conv", *case, dtype=dtype)
    if shape[7] == 1:  # the way that loads a window once
        compare("mix_conv", *case, True, dtype=dtype)


@pytest.mark.parametrize("queued", [2, 40])
def test_programs_that_serve_several_neurons_equal_the_reference(queued, monkeypatch):
    monkeypatch.setattr(triton_mix, "QUEUED", queued)
    compare("mix_dense", *dense_case(*DENSE[3]))
    compare("mix_conv", *conv_case(*CONV[2]))


def test_the_comparison_would_notice_one_wrong_gate():
    x, weight, fanin, gate = dense_case(20, 10, 33, 16)
    weight[19, 15] = weight.max()
    wrong = gate.clone()
    wrong[19, 15] ^= 1
    with pytest.raises(AssertionError):
        assert_agrees(
            triton_gpu.mix_dense(x, weight, fanin, wrong), reference.mix_dense(x.double(), weight, fanin, gate), 2e-6
        )


FIXED_POINT = {
    "mix_dense": lambda: dense_case(64, 3, 50, 16),
    "mix_conv": lambda: (*conv_case(1, 3, 3, 3, 1, 1, 24, 1, 20), True),
}


@pytest.mark.parametrize("mix", FIXED_POINT)
def test_sums_in_fixed_point_do_not_depend_on_the_order_of_neurons(mix):
    """Permuted neurons add to each input in another order; the sums agree bit for bit, and with the reference."""
    x, weight, fanin, gate, *geometry = FIXED_POINT[mix]()
    run, define = getattr(triton_gpu, mix), getattr(reference, mix)
    exact = x.double().requires_grad_()
    y = define(exact, weight.double(), fanin, gate, *geometry)
    dy = torch.randn(y.shape, device=DEVICE)
    y.backward(dy.double())
    order = torch.randperm(len(weight), device=DEVICE)
    gradients = []
    torch.use_deterministic_algorithms(True)
    try:
        for p in (torch.arange(len(weight), device=DEVICE), order):
            leaf = x.clone().requires_grad_()
            run(leaf, weight[p], fanin[p], gate[p], *geometry).backward(dy[p])
            gradients.append(leaf.grad)
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(*gradients)
    assert_agrees(gradients[0], exact.grad, 2e-6)


# ---- packed bits ----


@pytest.mark.parametrize("samples", [1, 32, 33, 128, 100])
def test_hard_layers_on_packed_words_equal_the_reference_on_numbers(samples):
    torch.manual_seed(samples)
    bits = torch.rand(4, 6, 5, samples, device=DEVICE).round()
    words = reference.pack(bits)
    assert torch.equal(triton_gpu.pack(bits), words)
    for unpack in (reference.unpack, triton_gpu.unpack):
        assert torch.equal(unpack(words, samples, torch.float16), bits.half())
    for layer, rows in ((LogicDense(120, 70), bits.flatten(0, 2)), (LogicConv2d(4, 7, 3, stride=2, padding=1), bits)):
        layer.to(DEVICE)
        fanin, gate = layer.choice()
        conv = isinstance(layer, LogicConv2d)
        geometry = (3, 2, 1) if conv else ()
        zeros = torch.zeros_like(gate, dtype=torch.float32)
        mix, hard = (reference.mix_conv, reference.hard_conv) if conv else (reference.mix_dense, reference.hard_dense)
        expected = mix(rows, zeros, fanin, gate, *geometry)
        packed = hard(reference.pack(rows), fanin, gate, *geometry)
        assert torch.equal(reference.unpack(packed, samples, torch.float32), expected)
        y = torch.empty_like(packed)
        of = triton_gpu.Geometry(6, 5, 3, 2, 1) if conv else triton_gpu.Geometry()
        triton_gpu.hard_words(reference.pack(rows), fanin, gate, of, y)
        assert torch.equal(y, packed)


# ---- the loss, and what follows a backward pass ----


@pytest.mark.parametrize(("classes", "samples"), [(10, 128), (2, 3), (200, 50), (1, 7)])
def test_the_loss_and_its_gradient_equal_the_reference_and_torchs_cross_entropy(classes, samples):
    torch.manual_seed(classes)
    sums, labels = torch.rand(classes, samples) * 50, torch.randint(classes, (samples,))
    mine, theirs = [], []
    for results, module, dtype in ((mine, triton_gpu, torch.float32), (theirs, reference, torch.float64)):
        total, dy = (torch.full(s, 3.0, dtype=dtype, device=DEVICE) for s in ((), (classes, samples)))
        module.class_loss(sums.to(DEVICE, dtype), labels.to(DEVICE), 7.0, 256.0, total, dy)
        results += [total, dy]
    for a, b in zip(mine, theirs, strict=True):
        assert_agrees(a, b, 2e-6)
    logits = (sums.double() / 7).T.requires_grad_()
    loss = torch.nn.functional.cross_entropy(logits, labels)
    loss.backward()
    assert_agrees(theirs[0].cpu() - 3, loss.detach(), 1e-12)
    assert_agrees(theirs[1].cpu(), 256 * samples * logits.grad.T, 1e-12)


SOURCES = {
    "dense": (Source(40), lambda n: torch.randint(40, (n, 16, 2), dtype=torch.int32)),
    "window": (Source(9, width=3), lambda n: window(6, n, 16, 3, 1)),
    "channels": (Source(2, groups=3), lambda n: window(6, n, 16, 1, 2)),
}


def update_case(kind, neurons=101):
    torch.manual_seed(1)
    source, make = SOURCES[kind]
    arrays = [torch.randn(neurons, 16) * torch.rand(neurons, 1) * 6, *(torch.zeros(neurons, 16) for _ in range(3))]
    arrays += [make(neurons), torch.randint(16, (neurons, 16), dtype=torch.uint8)]
    arrays += [
        torch.full((neurons,), torch.nan),
        torch.zeros(neurons, dtype=torch.int32),
        torch.zeros((), dtype=torch.int64),
    ]
    return source, [t.to(DEVICE) for t in arrays]


@pytest.mark.parametrize("restart", ["normal", "uniform"])
@pytest.mark.parametrize("kind", SOURCES)
def test_clipping_adam_and_resampling_in_one_kernel_equal_the_reference(kind, restart):
    source, start = update_case(kind)
    mine, theirs = [t.clone() for t in start], [t.clone() for t in start]
    rule, adam = ResampleRule(patience=3, restart=restart), Adam(rate=0.001, clip=10.0)
    seed = torch.tensor(2**40 + 7, device=DEVICE)
    for at in range(8):
        gradient = torch.randn_like(start[1]) * 0.1
        step, norm = torch.tensor(at, device=DEVICE), gradient.norm() * (3 if at % 2 else 0.1)
        for update, arrays in ((triton_gpu.update_rows, mine), (reference.update_rows, theirs)):
            arrays[1].copy_(gradient)
            update(adam, rule, source, seed, step, 17, norm, *arrays)
        for a, b in zip(mine, theirs, strict=True):
            if a.dtype.is_floating_point:
                assert_agrees(a, b.double(), 2e-6)
            else:
                assert torch.equal(a, b)
    assert 0 < int(mine[-1]) < 8 * 101, "some neurons are redrawn and some are not"


def test_the_reference_of_the_update_is_torchs_own_adam_and_clipping():
    source, arrays = update_case("dense")
    weight = torch.nn.Parameter(arrays[0].clone())
    optimizer = torch.optim.Adam([weight], lr=0.01)
    seed = torch.tensor(0, device=DEVICE)
    for at in range(5):
        gradient = torch.randn_like(weight) * (5 if at % 2 else 0.01)
        weight.grad = gradient.clone()
        norm = torch.nn.utils.clip_grad_norm_([weight], 10.0)
        optimizer.step()
        arrays[1].copy_(gradient)
        reference.update_rows(Adam(0.01, 10.0), None, source, seed, torch.tensor(at, device=DEVICE), 17, norm, *arrays)
    assert_agrees(arrays[0], weight.detach().double(), 2e-6)


# ---- batches ----


@pytest.mark.parametrize(
    ("augmentation", "shape", "bits", "thresholds"),
    [
        ("rotate_shift", (1, 10, 11), 1, [127]),
        ("rotate_shift", (1, 7, 7), 8, [20, 127]),
        ("flip_crop_2", (3, 6, 6), 2, [63, 127, 191]),
        ("flip_crop_4", (3, 5, 7), 4, [31, 63, 127, 191]),
        ("none", (2, 5, 5), 8, [3, 99]),
    ],
)
def test_a_batch_made_on_the_device_equals_choosing_augmenting_and_encoding(augmentation, shape, bits, thresholds):
    torch.manual_seed(0)
    n, samples = 50, 10
    images, labels = torch.randint(256, (n, *shape), dtype=torch.uint8), torch.randint(10, (n,))
    packed = torch.from_numpy(pack_levels(images.numpy(), bits))
    kept = unpack_levels(packed, bits, shape)
    assert torch.equal(kept, images >> (8 - bits) << (8 - bits))
    limits = torch.tensor(thresholds, dtype=torch.int16)
    order = draws.permutation(5, 0, 1, n, torch.device("cpu"))
    for step, rank in ((0, 0), (7, 1)):
        x = torch.full((len(thresholds), *shape, samples), 7.0, device=DEVICE)
        y = torch.full((samples,), -1, device=DEVICE)
        arrays = (t.to(DEVICE) for t in (packed, labels))
        numbers = (torch.tensor(2**40 + 5, device=DEVICE), torch.tensor(step, device=DEVICE))
        triton_batch.encode_batch(
            *arrays,
            shape,
            bits,
            limits.to(DEVICE),
            augmentation,
            order.to(DEVICE),
            2,
            *numbers,
            x,
            y,
            rank=rank,
            ranks=2,
        )
        chosen = order[step % 2 * 2 * samples + rank * samples :][:samples]
        words = draws.philox(2**40 + 5, step, draws.AUGMENTATION, torch.arange(samples) + rank * samples)
        moved = augment(augmentation, kept[chosen], torch.stack(words, 1)).movedim(0, -1)
        expected = (moved[None] > limits.view(-1, 1, 1, 1, 1)).float()
        assert torch.equal(x.cpu(), expected)
        assert torch.equal(y.cpu(), labels[chosen])


# ---- dispatch ----


def test_gpu_tensors_of_the_three_types_run_triton_and_others_the_reference():
    for dtype in FLOATS:
        assert kernels.choose("auto", torch.device("cuda"), dtype) == "triton"
    assert kernels.choose("auto", torch.device("cuda"), torch.float64) == "reference"
    assert kernels.choose("auto", torch.device("cuda"), torch.float32, candidates=129) == "reference"
    assert kernels.choose("reference", torch.device("cuda"), torch.float32) == "reference"
    with pytest.raises(KernelError, match=r"up to 128 candidates, not torch\.float64"):
        kernels.choose("triton", torch.device("cuda"), torch.float64)


def test_a_layer_runs_on_them_when_asked_to():
    torch.manual_seed(0)
    layer = LogicConv2d(3, 6, 3, padding=1).to(DEVICE)
    x = torch.rand(5, 3, 4, 4, device=DEVICE)
    with kernels.use("triton"):
        mine = layer(x)
    with kernels.use("reference"):
        assert_agrees(mine.detach(), layer.double()(x.double()).detach(), 2e-6)


# ---- compiling ----


def test_every_kernel_of_a_captured_step_compiles_for_a_gpu_that_is_not_there(tmp_path):
    """The interpreter lets through what the compiler refuses."""
    script = Path(__file__).parents[1] / "benchmarks" / "gpu_instructions.py"
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path)}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    names = {line.split()[0] for line in done.stdout.splitlines()[1:]}
    expected = {"_batch", "_pack", "_hard", "_unpack", "_plan", "_forward", "_backward", "_update", "_class_loss"}
    assert names == expected | {"_form", "_window_forward", "_window_backward", "_window_finish"}
