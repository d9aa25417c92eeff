"""What follows a backward pass, in one kernel a layer: clipping, Adam, and one step of Algorithm 1.

A program serves a few neurons. It reads a neuron's gradient, weights and moments once, decides whether the neuron is
redrawn, and writes all of it once; nothing waits for the host and no list of rows is made. The random numbers are those
of draws.py: functions of seed, step, stream and candidate.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from gatewise.kernels.reference import Adam, ResampleRule, leading_logit
from gatewise.wiring import Source

ROWS = 8  # neurons a program, of one warp: four candidates a thread, and few neurons wait for one that is redrawn


@triton.jit
def below(word, size):
    """A word turned into a number in [0, size)."""
    return (word.to(tl.uint64) * size >> 32).to(tl.int32)


@triton.jit
def _normal(first, second):
    """N(0, 1) from the upper 28 bits of one word and all of another."""
    radius = tl.sqrt(-2 * tl.log(((first >> 4).to(tl.float64) + 0.5) * (1.0 / 268435456.0)))
    return (radius * tl.cos(second.to(tl.float64) * (6.283185307179586 / 4294967296.0))).to(tl.float32)


@triton.jit(do_not_specialize=["stream", "patience", "size", "width", "groups"])
def _update(
    weight, grad, exp_avg, exp_avg_sq, fanin, gate, mean, count, redrawn, norm, step, seed, stream, N, clip, rate,
    share1, share2, log_beta1, log_beta2, eps, patience, momentum, stability, dominant, dispersed, leading, size, width,
    groups, K: tl.constexpr, KP: tl.constexpr, COORDINATES: tl.constexpr, RESAMPLE: tl.constexpr,
    NORMAL: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    i = tl.arange(0, KP)
    at = n[:, None] * K + i[None, :]
    here = n < N
    there = here[:, None] & (i < K)[None, :]
    now = tl.load(step)

    # Adam, with the gradient clipped to its norm over all layers.
    g = tl.load(grad + at, mask=there, other=0) * tl.minimum(clip / (tl.load(norm) + 1e-6), 1.0)
    t = (now + 1).to(tl.float64)
    correction1 = (1 - tl.exp(t * log_beta1)).to(tl.float32)
    correction2 = tl.sqrt(1 - tl.exp(t * log_beta2)).to(tl.float32)
    m = tl.load(exp_avg + at, mask=there, other=0)
    m += share1 * (g - m)
    v = tl.load(exp_avg_sq + at, mask=there, other=0)
    v += share2 * (g * g - v)
    w = tl.load(weight + at, mask=there, other=-3.0e38)  # less than any other, and finite
    w -= rate / correction1 * (m / (tl.sqrt(v) / correction2 + eps))

    if RESAMPLE:
        top = tl.max(w, 1)
        lower = w - top[:, None]
        e = tl.exp(lower)
        whole = tl.sum(e, 1)
        h = (tl.log(whole) - tl.sum(e * lower, 1) / whole) / tl.log(K * 1.0)
        average = tl.load(mean + n, mask=here, other=0)
        average = tl.where(average == average, average, h)
        stable = tl.abs(average - h) <= stability
        steps = tl.where(stable, tl.load(count + n, mask=here, other=0) + 1, 0)
        ready = (steps >= patience) & here
        tl.store(mean + n, average + (1 - momentum) * (h - average), mask=here)
        tl.store(count + n, tl.where(ready, 0, steps), mask=here)

        share = 1 / whole  # of the largest weight
        dominated, scattered = ready & (share >= dominant), ready & (share <= dispersed)
        redraw = dominated | scattered
        number = tl.sum(redraw.to(tl.int32), 0)
        if number > 0:
            tl.atomic_add(redrawn, number.to(tl.int64), sem="relaxed")
            best = tl.argmax(w, 1)
            is_best = i[None, :] == best[:, None]
            fresh = there & (scattered[:, None] | (dominated[:, None] & (is_best == 0)))
            low, high = now.to(tl.uint32), (now >> 32).to(tl.uint32)
            zero = tl.zeros([ROWS, KP], tl.uint32)
            first, second, third, fourth = tl.philox(
                tl.load(seed), at.to(tl.uint32), zero + stream.to(tl.uint32), zero + low, zero + high
            )
            tl.store(gate + at, (first & 15).to(tl.uint8), mask=fresh)
            for side in tl.static_range(2):
                drawn = below(second if side == 0 else third, size)
                to = fanin + (at * 2 + side) * COORDINATES
                if COORDINATES == 1:
                    tl.store(to, drawn, mask=fresh)
                elif groups > 0:
                    tl.store(to, n[:, None] % groups * size + drawn, mask=fresh)
                else:
                    tl.store(to + 1, drawn // width, mask=fresh)
                    tl.store(to + 2, drawn % width, mask=fresh)
            restart = tl.zeros([ROWS, KP], tl.float32)
            if NORMAL & (tl.sum(scattered.to(tl.int32), 0) > 0):
                restart = _normal(first, fourth)
            w = tl.where(dominated[:, None], tl.where(is_best, leading, 0.0), tl.where(scattered[:, None], restart, w))
            m = tl.where(redraw[:, None], 0.0, m)
            v = tl.where(redraw[:, None], 0.0, v)

    tl.store(weight + at, w, mask=there)
    tl.store(exp_avg + at, m, mask=there)
    tl.store(exp_avg_sq + at, v, mask=there)


def update_rows(
    adam: Adam, rule: ResampleRule | None, source: Source | None, seed: Tensor, step: Tensor, stream: int,
    norm: Tensor, weight: Tensor, grad: Tensor, exp_avg: Tensor, exp_avg_sq: Tensor, fanin: Tensor, gate: Tensor,
    mean: Tensor, count: Tensor, redrawn: Tensor,
) -> None:  # fmt: skip
    """As `reference.update_rows`, with all numbers that change from step to step on the device."""
    neurons, candidates = weight.shape
    resample = rule is not None and source is not None and candidates > 1
    rule, source = rule or ResampleRule(), source or Source(1)
    _update[(triton.cdiv(neurons, ROWS),)](
        weight, grad, exp_avg, exp_avg_sq, fanin, gate, mean, count, redrawn, norm, step, seed, stream, neurons,
        adam.clip, adam.rate, 1 - adam.beta1, 1 - adam.beta2, math.log(adam.beta1), math.log(adam.beta2), adam.eps,
        rule.patience, rule.momentum, rule.stability, rule.dominant, rule.dispersed,
        leading_logit(rule.reset, max(candidates, 2)), source.size, source.width, source.groups,
        K=candidates, KP=triton.next_power_of_2(candidates), COORDINATES=1 if fanin.ndim == 3 else 3,
        RESAMPLE=resample, NORMAL=rule.restart == "normal", ROWS=ROWS, num_warps=1, enable_fp_fusion=True,
    )  # fmt: skip
