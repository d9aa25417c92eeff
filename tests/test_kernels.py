"""Every kernel against the float64 reference: values and all gradients, on odd shapes, at each vector width."""

import os
import signal
import time
import warnings

import pytest
import torch

from gatewise import core, kernels
from gatewise.errors import KernelError
from gatewise.kernels import ResampleRule, native, reference
from gatewise.layers import LogicDense
from gatewise.resample import Resampler
from gatewise.wiring import Source, window

# neurons, inputs, samples, candidates
DENSE = [
    (1, 1, 1, 1),
    (1, 2, 129, 16),
    (5, 3, 129, 16),
    (7, 5, 64, 3),
    (40, 17, 15, 16),
    (64, 9, 300, 16),
    (33, 20, 128, 128),
    (3, 4, 0, 16),
]
# channels, height, width, kernel_size, stride, padding, neurons, channels_per_kernel, samples
CONV = [
    (1, 1, 1, 1, 1, 0, 1, 1, 1),
    (3, 8, 7, 3, 2, 1, 6, 1, 129),
    (2, 5, 5, 3, 1, 1, 4, 2, 16),
    (4, 6, 6, 1, 1, 0, 5, 4, 3),
    (6, 5, 4, 3, 2, 0, 5, 2, 70),
    (2, 3, 3, 5, 1, 2, 4, 1, 1),
    (1, 28, 28, 3, 2, 1, 3, 1, 64),
]


@pytest.fixture(params=core.LEVELS)
def level(request):
    if request.param not in core.levels():
        pytest.skip(f"this processor has no {request.param}")
    core.set_level(request.param)
    yield request.param
    core.set_level(None)


@pytest.fixture(params=[1, 2, 5])
def threads(request):
    core.set_threads(request.param)
    yield request.param
    core.set_threads(None)


def assert_agrees(got: torch.Tensor, expected: torch.Tensor, tolerance: float = 2e-6) -> None:
    """‖got − expected‖ within `tolerance` of ‖expected‖, both finite."""
    assert got.shape == expected.shape
    assert got.isfinite().all()
    error = (got.double() - expected).norm()
    assert error <= tolerance * expected.norm() + 1e-12, f"{error:.2e} of {expected.norm():.2e}"


def check(native_mix, reference_mix, x, weight, fanin, gate, *geometry) -> None:
    x, weight = x.requires_grad_(), weight.requires_grad_()
    y = native_mix(x, weight, fanin, gate, *geometry)
    dy = torch.randn_like(y)
    y.backward(dy)
    exact_x, exact_weight = (t.detach().double().requires_grad_() for t in (x, weight))
    exact = reference_mix(exact_x, exact_weight, fanin, gate, *geometry)
    exact.backward(dy.double())
    assert_agrees(y.detach(), exact.detach())
    assert_agrees(x.grad, exact_x.grad)
    assert_agrees(weight.grad, exact_weight.grad)


def dense_case(neurons, inputs, samples, candidates):
    fanin = torch.randint(inputs, (neurons, candidates, 2), dtype=torch.int32)
    fanin[:, ::3, 1] = fanin[:, ::3, 0]  # both inputs on one wire
    gate = torch.randint(16, (neurons, candidates), dtype=torch.uint8)
    return torch.rand(inputs, samples), torch.randn(neurons, candidates) * 3, fanin, gate


@pytest.mark.parametrize("shape", DENSE)
def test_dense_values_and_gradients_equal_the_reference(shape, level, threads):
    torch.manual_seed(hash(shape) % 1000)
    check(native.mix_dense, reference.mix_dense, *dense_case(*shape))


@pytest.mark.parametrize("shape", CONV)
def test_convolution_values_and_gradients_equal_the_reference(shape, level, threads):
    channels, height, width, kernel_size, stride, padding, neurons, group, samples = shape
    torch.manual_seed(sum(shape))
    fanin = window(channels, neurons, 16, kernel_size, group)
    gate = torch.randint(16, (neurons, 16), dtype=torch.uint8)
    x = torch.rand(channels, height, width, samples)
    geometry = (kernel_size, stride, padding)
    check(native.mix_conv, reference.mix_conv, x, torch.randn(neurons, 16), fanin, gate, *geometry)


def test_the_comparison_would_notice_one_wrong_gate():
    torch.manual_seed(0)
    x, weight, fanin, gate = dense_case(50, 20, 100, 16)
    weight[49, 15] = weight.max()
    wrong = gate.clone()
    wrong[49, 15] ^= 1
    with pytest.raises(AssertionError):
        assert_agrees(native.mix_dense(x, weight, fanin, wrong), reference.mix_dense(x.double(), weight, fanin, gate))


def test_every_output_is_written():
    """Memory that the allocator hands out again is poisoned first, so an element left alone would be NaN."""
    torch.manual_seed(0)
    for _ in range(3):
        for size in (50 * 100, 20 * 100, 50 * 16):
            torch.full((size,), torch.nan)
        check(native.mix_dense, reference.mix_dense, *dense_case(50, 20, 100, 16))


def test_extreme_weights_give_finite_values_and_gradients():
    torch.manual_seed(0)
    x, _, fanin, gate = dense_case(20, 10, 33, 16)
    weight = torch.randn(20, 16) * 1e4
    check(native.mix_dense, reference.mix_dense, x, weight, fanin, gate)


def test_gradients_for_the_inputs_are_left_out_when_nobody_wants_them():
    torch.manual_seed(0)
    x, weight, fanin, gate = dense_case(20, 10, 33, 16)
    weight.requires_grad_()
    native.mix_dense(x, weight, fanin, gate).sum().backward()
    exact = weight.detach().double().requires_grad_()
    reference.mix_dense(x.double(), exact, fanin, gate).sum().backward()
    assert x.grad is None
    assert_agrees(weight.grad, exact.grad)


def test_tensors_may_be_strided():
    torch.manual_seed(0)
    x, weight, fanin, gate = dense_case(20, 10, 34, 16)
    strided = x.t().contiguous().t()[:, ::2]
    check(native.mix_dense, reference.mix_dense, strided.detach(), weight.t().contiguous().t(), fanin, gate)


def test_the_torch_operator_passes_torchs_own_checks():
    torch.manual_seed(0)
    x, weight, fanin, gate = dense_case(5, 4, 9, 16)
    arguments = (x.requires_grad_(), weight.requires_grad_(), fanin, gate, 1, 1, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.library.opcheck(native._mix, arguments, test_utils=("test_schema", "test_faketensor"))


# ---- Algorithm 1 ----

SOURCES = {
    "dense": (Source(40), lambda: torch.randint(40, (300, 16, 2), dtype=torch.int32)),
    "window": (Source(9, width=3), lambda: window(6, 300, 16, 3, 1)),
    "channels": (Source(2, groups=3), lambda: window(6, 300, 16, 1, 2)),
}


@pytest.mark.parametrize("restart", ["normal", "uniform"])
@pytest.mark.parametrize("kind", SOURCES)
def test_resampling_redraws_the_same_rows_with_the_same_numbers_as_the_reference(kind, restart, level, threads):
    torch.manual_seed(1)
    source, make = SOURCES[kind]
    weight = torch.randn(300, 16) * torch.rand(300, 1) * 6
    start = [weight, make(), torch.randint(16, (300, 16), dtype=torch.uint8)]
    start += [torch.full((300,), torch.nan), torch.zeros(300, dtype=torch.int32)]
    rule = ResampleRule(patience=3, restart=restart)
    mine, theirs = [t.clone() for t in start], [t.clone() for t in start]
    seen = torch.zeros(3, dtype=torch.int64)
    for step in range(7):
        redrawn = native.resample_rows(rule, source, 2**40 + 7, step, 17, *mine)
        assert torch.equal(redrawn, reference.resample_rows(rule, source, 2**40 + 7, step, 17, *theirs))
        for a, b in zip(mine, theirs, strict=True):
            if a.dtype.is_floating_point:
                assert_agrees(a, b.double())
            else:
                assert torch.equal(a, b)
        seen += torch.bincount(redrawn.long(), minlength=3)
    assert (seen > 0).all(), "the case has kept, dominated and dispersed rows"


def test_ties_go_to_the_first_candidate():
    weight = torch.zeros(1, 16)
    weight[0, [5, 9]] = 20.0
    arrays = [weight, torch.zeros(1, 16, 2, dtype=torch.int32), torch.arange(16, dtype=torch.uint8)[None]]
    arrays += [torch.full((1,), torch.nan), torch.zeros(1, dtype=torch.int32)]
    rule = ResampleRule(patience=1, dominant=0.4, dispersed=0.1)
    assert native.resample_rows(rule, Source(3), 0, 0, 16, *arrays).tolist() == [1]
    assert weight.argmax() == 5
    assert arrays[2][0, 5] == 5
    assert torch.softmax(weight, 1)[0, 5].item() == pytest.approx(0.9)


# ---- dispatch ----


def test_the_package_under_test_has_its_c_core():
    assert core.available(), core.why_not()


def test_float64_and_other_devices_run_the_reference():
    assert kernels.choose("auto", torch.device("cpu"), torch.float32) == "native"
    assert kernels.choose("auto", torch.device("cpu"), torch.float64) == "reference"
    assert kernels.choose("auto", torch.device("cuda"), torch.float64) == "reference"
    assert kernels.choose("reference", torch.device("cpu"), torch.float32) == "reference"


def test_a_request_that_cannot_be_met_says_what_there_is():
    with pytest.raises(KernelError, match=r"float32 on the CPU .*, not torch\.float64"):
        kernels.choose("native", torch.device("cpu"), torch.float64)
    with pytest.raises(KernelError, match="auto, native, reference, triton"), kernels.use("fast"):
        pass


def test_named_kernels_are_used_within_the_block_alone():
    x, weight, fanin, gate = dense_case(4, 4, 4, 16)
    with kernels.use("reference"):
        first = kernels.mix_dense(x, weight, fanin, gate)
    assert torch.equal(first, reference.mix_dense(x, weight, fanin, gate))
    assert torch.equal(kernels.mix_dense(x, weight, fanin, gate), native.mix_dense(x, weight, fanin, gate))


def test_more_candidates_than_the_core_takes_run_the_reference():
    x, weight, fanin, gate = dense_case(2, 2, 2, 257)
    assert torch.equal(kernels.mix_dense(x, weight, fanin, gate), reference.mix_dense(x, weight, fanin, gate))
    with pytest.raises(KernelError, match="up to 256 candidates"), kernels.use("native"):
        kernels.mix_dense(x, weight, fanin, gate)


def test_a_forked_process_can_use_the_kernels():
    core.set_threads(2)
    x, weight, fanin, gate = dense_case(200, 20, 64, 16)
    expected = native.mix_dense(x, weight, fanin, gate)
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(native.mix_dense(x, weight, fanin, gate), expected) else 1)
    core.set_threads(None)
    for _ in range(600):
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the forked process hangs")
    assert status == 0


def test_redrawing_between_forward_and_backward_is_noticed():
    network = torch.nn.Sequential(LogicDense(6, 50))
    network[0].weight.data.zero_()
    loss = network(torch.rand(4, 6)).sum()
    Resampler(network, patience=1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("threads", [1, 2, 3, 7, 200])
@pytest.mark.parametrize(("size", "grain"), [(0, 1), (1, 1), (128, 16), (129, 16), (100, 64), (7, 16)])
def test_spans_cover_everything_once(size, grain, threads):
    core.set_threads(threads)
    try:
        spans = core.split(size, grain)
    finally:
        core.set_threads(None)
    assert len(spans) <= max(threads, 1)
    assert [i for start, stop in spans for i in range(start, stop)] == list(range(size))
    assert all(start % grain == 0 for start, _ in spans)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_weight_that_is_no_number_is_not_hidden(bad, level):
    torch.manual_seed(0)
    x, weight, fanin, gate = dense_case(3, 4, 20, 16)
    weight[1, 5] = bad
    y = native.mix_dense(x, weight, fanin, gate)
    assert y[1].isnan().all()
    assert y[[0, 2]].isfinite().all()
    assert reference.mix_dense(x, weight, fanin, gate)[1].isnan().all()
