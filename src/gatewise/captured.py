"""A training step on a GPU that is captured once as a CUDA graph and replayed: nothing in it waits for the host.

The batch is chosen, augmented and turned into bits on the device; frozen layers in front run on packed words; values
and gradients have the type `precision` asks for, sums and weights float32; what follows the backward pass is one kernel
a layer. A new graph is captured when what a step does changes: when resampling ends, and when a layer is frozen.

Sizes: B samples, N neurons, C channels, H rows, W columns.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import torch
import torch.distributed
from torch import Tensor, nn

from gatewise import draws, kernels
from gatewise.batches import Batches
from gatewise.harden import Hardener
from gatewise.kernels import Adam
from gatewise.layers import GroupSum, LogicConv2d, LogicDense, LogicLayer
from gatewise.presets import Options, Preset
from gatewise.resample import Resampler

if TYPE_CHECKING:
    from gatewise.kernels.triton_gpu import Layer


FLOAT16_SCALE = 16.0
"""Of gradients in float16, which are counted in shares of a sample's loss, at most 1 at the last layer."""


def why_not(network: nn.Sequential, train: Batches, preset: Preset) -> str | None:
    """One clause that says why this run's steps cannot be captured, if they cannot."""
    *body, last = network
    if train.samples.y.device.type != "cuda" and not kernels.interpreted():
        return "they run on the CPU"
    if reason := kernels.why_no_triton():
        return reason
    if preset.gumbel:
        return "Gumbel noise is drawn by torch"
    if preset.candidates > kernels.MAX_CANDIDATES_TRITON:
        return f"a neuron has more than {kernels.MAX_CANDIDATES_TRITON} candidates"
    if train.samples.thresholds is None or len(train.samples.shape) != 3:
        return "its samples are no images of bytes"
    if not isinstance(last, GroupSum) or not all(isinstance(m, LogicLayer | nn.Flatten) for m in body):
        return "its network is no chain of logic layers before a group sum"
    if not isinstance(body[-1], LogicDense):
        return "its last layer is no dense one"
    return None


class CapturedStep:
    """Call it once a step; it does what the loop in train.py does in a step, on the GPU of one or several processes."""

    def __init__(
        self, network: nn.Sequential, train: Batches, preset: Preset, options: Options,
        optimizer: torch.optim.Optimizer, resampler: Resampler, hardener: Hardener, loss_sum: Tensor,
    ) -> None:  # fmt: skip
        self.train, self.preset, self.options = train, preset, options
        self.optimizer, self.resampler, self.hardener, self.loss_sum = optimizer, resampler, hardener, loss_sum
        *body, head = network
        assert isinstance(head, GroupSum)
        self.head, self.layers = head, [m for m in body if isinstance(m, LogicLayer)]
        self.described = list(describe(self.layers, train.samples.bit_shape))
        self.dtype: torch.dtype = getattr(torch, options.precision)
        device = loss_sum.device
        self.scale = FLOAT16_SCALE if self.dtype == torch.float16 else 1.0
        self.unit = 1 / (train.batch * train.ranks * head.tau * self.scale)
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.seed = torch.tensor(options.seed, device=device)
        self.order = torch.zeros(len(train.samples), dtype=torch.int64, device=device)
        self.gradients = torch.zeros(sum(layer.weight.numel() for layer in self.layers), device=device)
        self.epoch, self.expected = -1, -1
        self.phase: tuple[bool, ...] | None = None
        self.choices: list[tuple[Tensor, Tensor]] = []
        self.graph: torch.cuda.CUDAGraph | None = None
        self.side = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def __call__(self, step: int) -> None:
        """Learn from the batch of that step, redraw neurons or freeze a layer."""
        self._be_at(step)
        resampling = step < self.preset.resample_steps
        phase = (resampling, *(layer.frozen for layer in self.layers))
        if phase != self.phase:
            self._begin(phase)
            self._learn(resampling)  # compiles what it needs, which must not happen while a graph is captured
        elif not self.loss_sum.is_cuda:
            self._learn(resampling)
        else:
            if self.graph is None:
                self.graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self.graph, capture_error_mode="thread_local"):
                    self._learn(resampling)
            self.graph.replay()
        self.expected = step + 1
        if resampling:
            self.resampler.steps += 1
        else:
            self.hardener.ask()

    def close(self) -> None:
        """Give up the graph: while it is there, the group of processes that it sums gradients over cannot end."""
        self.graph = None

    def _be_at(self, step: int) -> None:
        """The device counts steps by itself; the host says where a run begins, and shuffles for each epoch."""
        if step != self.expected:
            self.step.fill_(step)
        if (epoch := step // self.train.steps_an_epoch) != self.epoch:
            self.order.copy_(self.train.order(step))
            self.epoch = epoch

    def _begin(self, phase: tuple[bool, ...]) -> None:
        self.phase, self.graph = phase, None
        self.choices = [layer.choice() for layer in self.layers[: self.first]]
        self.gradients.zero_()

    @property
    def first(self) -> int:
        """The first layer that learns; those before it are frozen."""
        return next((i for i, layer in enumerate(self.layers) if not layer.frozen), len(self.layers))

    @torch.no_grad()
    def _learn(self, resampling: bool) -> None:
        """A layer is prepared while the one before it runs, and anew for the backward pass unless it was among the last
        two, so that few of these arrays, which are larger than the weights, are there at a time."""
        learning = self.described[self.first :]
        prepared = {0: self._prepare(learning[0][0])}
        x, labels = self._batch()
        x = self._through_frozen(x)
        inputs: list[Tensor] = []
        for i, (layer, shape) in enumerate(learning):
            self._meet()
            if last := i + 1 == len(learning):
                into = self._zeros(shape) if i > 0 else None
            else:
                prepared.pop(i - 1, None)
                prepared[i + 1] = self._prepare(learning[i + 1][0])
            inputs.append(x.view(*shape, x.shape[-1]))
            rows = len(layer.weight)
            x = layer.output(inputs[-1], -rows % self.head.classes if last else 0)
            layer.forward(inputs[-1], prepared[i], x[:rows])
        dy, shared = self._loss(x, labels)
        while inputs:
            i, x, dx = len(inputs) - 1, inputs.pop(), into
            self._meet()
            if i > 0 and i - 1 not in prepared:
                prepared[i - 1] = self._prepare(learning[i - 1][0])
            into = self._zeros(learning[i - 1][1]) if i > 1 else None
            dw = self._gradient(self.first + i)
            slopes = learning[i][0].backward(dy, x, prepared.pop(i), dw, dx, shared=shared, unit=self.unit)
            if slopes is not None:
                dy, shared = slopes, 1
        self._update(resampling)
        self.step += 1

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """What is launched within runs beside what is launched afterwards, until `_meet`."""
        if self.side is None:
            yield
            return
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            yield

    def _meet(self) -> None:
        if self.side is not None:
            torch.cuda.current_stream().wait_stream(self.side)

    def _prepare(self, layer: Layer) -> Tensor:
        into = layer.blank()
        with self._aside():
            layer.prepare(into)
        return into

    def _zeros(self, shape: tuple[int, ...]) -> Tensor:
        """Where the gradient for a layer's inputs is summed."""
        summed_in = torch.int64 if self.options.deterministic else self.dtype
        into = torch.empty(*shape, self.train.batch, dtype=summed_in, device=self.step.device)
        with self._aside():
            return into.zero_()

    def _batch(self) -> tuple[Tensor, Tensor]:
        """Bits [C, H, W, B] and labels."""
        from gatewise.kernels.triton_batch import encode_batch

        samples, train = self.train.samples, self.train
        assert samples.thresholds is not None
        x = torch.empty(*samples.bit_shape, train.batch, dtype=self.dtype, device=self.step.device)
        y = torch.empty(train.batch, dtype=torch.int64, device=self.step.device)
        channels, height, width = samples.shape
        encode_batch(
            samples.data, samples.y, (channels, height, width), samples.level_bits, samples.thresholds,
            train.augmentation, self.order, train.steps_an_epoch, self.seed, self.step, x, y,
            rank=train.rank, ranks=train.ranks,
        )  # fmt: skip
        return x, y

    def _through_frozen(self, x: Tensor) -> Tensor:
        """Frozen layers, on packed bits."""
        from gatewise.kernels import triton_gpu as gpu

        if not self.first:
            return x
        words, batch = gpu.pack(x), x.shape[-1]
        for (layer, shape), (fanin, gate) in zip(self.described, self.choices, strict=False):
            words = words.view(*shape, words.shape[-1])
            y = layer.output(words)
            gpu.hard_words(words, fanin, gate, layer.geometry, y)
            words = y
        return gpu.unpack(words, batch, self.dtype)

    def _loss(self, y: Tensor, labels: Tensor) -> tuple[Tensor, int]:
        """Add the loss to `loss_sum`; → its gradient for what a class counts, over `unit`, and how many share it."""
        from gatewise.kernels.triton_gpu import class_loss

        rows = y.view(self.head.classes, -1, y.shape[-1])
        dy = torch.empty(self.head.classes, y.shape[-1], dtype=self.dtype, device=y.device)
        class_loss(rows.sum(1, dtype=torch.float32), labels, self.head.tau, self.scale, self.loss_sum, dy)
        return dy, rows.shape[1]

    def _gradient(self, i: int) -> Tensor:
        """The part of `gradients` that is layer i's."""
        weight = self.layers[i].weight
        before = sum(layer.weight.numel() for layer in self.layers[:i])
        return self.gradients[before : before + weight.numel()].view_as(weight)

    def _update(self, resampling: bool) -> None:
        if self.train.ranks > 1:
            torch.distributed.all_reduce(self.gradients)
        norm = torch.linalg.vector_norm(self.gradients)
        with self._aside():
            for i in range(self.first, len(self.layers) - 1):
                self._update_layer(i, norm, resampling)
        self._update_layer(len(self.layers) - 1, norm, resampling)
        steps = [self.optimizer.state[layer.weight]["step"] for layer in self.layers[self.first :]]
        torch._foreach_add_(steps, 1)
        self._meet()
        if not resampling:
            self.hardener.watch()

    def _update_layer(self, i: int, norm: Tensor, resampling: bool) -> None:
        from gatewise.kernels.triton_gpu import update_rows

        layer, resampler = self.layers[i], self.resampler
        moments, rule = self.optimizer.state[layer.weight], resampler.rule if resampling else None
        update_rows(
            Adam(self.preset.rate, self.preset.clip), rule, layer.source, self.seed, self.step, draws.LAYERS + i, norm,
            layer.weight.detach(), self._gradient(i), moments["exp_avg"], moments["exp_avg_sq"], layer.fanin,
            layer.gate, resampler.mean[i], resampler.count[i], resampler.redrawn[i],
        )  # fmt: skip


def describe(layers: Iterable[LogicLayer], shape: tuple[int, ...]) -> Iterator[tuple[Layer, tuple[int, ...]]]:
    """Layers as the kernels see them, with the shapes of their inputs, from bits of that shape."""
    from gatewise.kernels.triton_gpu import Geometry, Layer

    for layer in layers:
        arrays = (layer.weight.detach(), layer.fanin, layer.gate)
        if isinstance(layer, LogicConv2d):
            _, height, width = shape
            geometry = Geometry(height, width, layer.kernel_size, layer.stride, layer.padding)
            yield Layer(*arrays, geometry, layer.channels_per_kernel == 1), shape
            shape = (len(layer.weight), *geometry.out)
        else:
            yield Layer(*arrays, Geometry(), False), (math.prod(shape),)
            shape = (len(layer.weight),)
