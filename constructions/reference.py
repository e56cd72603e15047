"""The reference forward pass: plain, O(N²), any weights, jitted, batched.

One formula for all kinds of attention: log-weights for the tokens of the array, one more log-weight for the whole constant past
before it (its mass is closed: Σ_{s>i} e^{−ps} = e^{−p(i+1)}/(1−e^{−p}), Σ_{s>i} s^{−p} = ζ(p, i+1)), then softmax or exp.

Every step has a derivative in every weight, the decays included, so networks are trained through this pass.
"""

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp

from constructions.precision import HIGHEST, with_x64
from constructions.transformer import Attention, FeedForward, Layer, Transformer, to_float


def feed_forward(ffn: FeedForward, u: jax.Array) -> jax.Array:
    """A relu(B u + c) on the last axis, rounded where the network says so."""
    hidden = jax.nn.relu(jnp.einsum("...d,md->...m", u, ffn.inner, precision=HIGHEST) + ffn.bias)
    output = jnp.einsum("...m,om->...o", hidden, ffn.outer, precision=HIGHEST)
    if "integer" in ffn.precision:
        output = jnp.where(np.array([p == "integer" for p in ffn.precision]), jnp.round(output), output)
    if "log" in ffn.precision:
        rounded = jnp.log(jnp.maximum(jnp.round(jnp.exp(output)), 1))
        output = jnp.where(np.array([p == "log" for p in ffn.precision]), rounded, output)
    return output


def as_floats(ffn: FeedForward) -> FeedForward:
    """An exact feed-forward network, rounded to float64 for evaluation; call it where float64 exists."""
    inner, bias, outer = (jnp.asarray(to_float(a, "float64")) for a in (ffn.inner, ffn.bias, ffn.outer))
    return FeedForward(inner, bias, outer, ffn.precision)


TERMS, CORRECTIONS = 12, 8
"""Of Euler and Maclaurin: the first omitted term is below |B_18|/18! · Π_{j≤16}(p+j)/(q+12)^17 of the last summand, at p = 2, q = 1
below 1e-17 of the sum, and less for every larger q; large p damp the summand itself, (q/(q+12))^p."""
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def log_hurwitz(p: jax.Array, q: jax.Array) -> jax.Array:
    """log ζ(p, q) = log Σ_{k≥0} (q+k)^{−p} for p > 1, q > 0, differentiable in p: Euler and Maclaurin's sum relative to q^{−p}.

    Σ_{k<K} (q+k)^{−p} + (q+K)^{1−p}/(p−1) + (q+K)^{−p}/2 + Σ_j B_2j/(2j)! p(p+1)⋯(p+2j−2) (q+K)^{−p−2j+1}
    """
    terms = jnp.exp(-p[..., None] * jnp.log1p(jnp.arange(TERMS, dtype=q.dtype) / q[..., None])).sum(-1)
    end = q + TERMS
    last = jnp.exp(-p * jnp.log1p(TERMS / q))
    rest, factor = end / (p - 1) + 0.5, p / end
    for j, bernoulli in enumerate(_BERNOULLI, start=1):
        rest = rest + bernoulli / math.factorial(2 * j) * factor
        factor = factor * ((p + 2 * j - 1) / end) * ((p + 2 * j) / end)
    return jnp.log(terms + last * rest) - p * jnp.log(q)


def log_past_mass(attention: Attention, position: jax.Array) -> jax.Array:
    """log Σ_{s>i} e^{pφ(s)} for every head and position i ≥ −1 (all of the past for i = −1), shape (H, len(position))."""
    if attention.table is not None:
        tail = jax.lax.cumlogsumexp(attention.table, axis=1, reverse=True)  # Σ_{s≥j}
        beyond = jnp.concatenate([tail, jnp.full_like(tail[:, :1], -jnp.inf)], axis=1)
        return jnp.take(beyond, jnp.clip(position.astype(int) + 1, 0, tail.shape[1]), axis=1)
    p, i = jnp.broadcast_arrays(attention.decay[:, None], position[None, :])
    lin = -p * (i + 1) - jnp.log(-jnp.expm1(-p))
    log = log_hurwitz(jnp.maximum(p, 1 + 1e-6), jnp.maximum(i + 1, 1))
    is_lin = np.array([kind == "lin" for kind in attention.rpe])[:, None]
    return jnp.where(is_lin, lin, log)


def _scores(attention: Attention, queries: jax.Array, keys: jax.Array) -> jax.Array:
    """The part of the score that reads the residual stream, (…, H, queries, keys)."""
    if attention.kind in ("dp", "nf"):
        q = jnp.einsum("hkd,...td->...htk", attention.query, queries, precision=HIGHEST)
        k = jnp.einsum("hkd,...sd->...hsk", attention.key, keys, precision=HIGHEST)
        return jnp.einsum("...htk,...hsk->...hts", q, k, precision=HIGHEST)
    if attention.kind == "tmx":
        slot = jnp.einsum("hd,...td->...ht", attention.pointer, queries, precision=HIGHEST)
        is_lin = np.array([kind == "lin" for kind in attention.rpe])[:, None]
        lag = jnp.where(is_lin, slot, jnp.log(jnp.maximum(slot, 1)))
        return (attention.decay[:, None] * lag)[..., None]
    return jnp.zeros((1, 1, 1), queries.dtype)


def _positions(attention: Attention, first: int, length: int) -> jax.Array:
    """p φ(s) or b(s) for the distances of the positions from `first` on to all, (H, T, N); −∞ where a head does not look."""
    steps = jnp.arange(length)
    distance = steps[first:, None] - steps[None, :]
    if attention.table is not None:
        return _along_diagonals(attention.table, first, length)
    p, s = attention.decay[:, None, None], distance.astype(attention.decay.dtype)
    is_lin = np.array([kind == "lin" for kind in attention.rpe])[:, None, None]
    position = jnp.where(is_lin, -p * s, -p * jnp.log(jnp.maximum(s, 1)))
    least = np.array([kind == "log" for kind in attention.rpe])[:, None, None]  # log heads do not see the current token
    return position if attention.window == "full" else jnp.where(distance >= least, position, -jnp.inf)


def _along_diagonals(table: jax.Array, first: int, length: int) -> jax.Array:
    """b(t − s) for t ≥ first, −∞ outside the table: (H, T, N).

    The biases by falling distance, from N − 1 to first − N + 1, and one more entry are repeated T times and cut into rows that are one
    shorter: every row starts one place earlier. Lookups would do the same, but their derivatives are scattered sums, which are slow.
    """
    heads, reach = table.shape
    rows = length - first
    falling = jnp.pad(table[:, :length][:, ::-1], ((0, 0), (max(length - reach, 0), rows)), constant_values=-jnp.inf)  # N + T entries
    period = length + rows
    diagonals = jnp.tile(falling, (1, rows))[:, : rows * (period - 1)].reshape(heads, rows, period - 1)
    return diagonals[:, :, rows - 1 : rows - 1 + length]


BLOCKS, LEAST_BLOCK = 4, 32
"""Blocks of queries, each of which looks at no more tokens than it sees: 5/8 of all pairs. More blocks save little and cost calls."""


def attend(attention: Attention, x: jax.Array, past: jax.Array, first: int = 0) -> tuple[jax.Array, jax.Array]:
    """Attention output for the positions of x (…, N, D) from `first` on, and for the constant state of those before the array (D,)."""
    length = x.shape[-2]
    rows = length - first
    if attention.window == "full" or attention.kind not in ("dp", "nf") or rows < BLOCKS * LEAST_BLOCK:
        return _attend(attention, x, past, first)
    ends = [first + rows * (k + 1) // BLOCKS for k in range(BLOCKS)]
    parts = [_attend(attention, x[..., :end, :], past, start) for start, end in zip([first, *ends], ends, strict=False)]
    return jnp.concatenate([attended for attended, _ in parts], axis=-2), parts[0][1]


def _attend(attention: Attention, x: jax.Array, past: jax.Array, first: int) -> tuple[jax.Array, jax.Array]:
    """Softmax divides once, after values were mixed; where weights read positions only, its sum over the whole past is known beforehand."""
    length, queries = x.shape[-2], x[..., first:, :]
    inside = _positions(attention, first, length) + _scores(attention, queries, x)
    before = _before(attention, queries, past, first)
    if attention.kind == "dp-free" and attention.window == "infinite":
        whole = _log_whole_mass(attention)[:, None, None]
        inside, before = inside - whole, before - whole
    elif attention.kind in ("dp-free", "dp"):
        top = jax.lax.stop_gradient(jnp.maximum(inside.max(axis=-1, keepdims=True), before))
        top = jnp.where(jnp.isfinite(top), top, 0)  # a head that sees nothing
        inside, before = inside - top, before - top
    weights, past_weight = jnp.exp(inside), jnp.exp(before)
    past_value = jnp.einsum("hvd,d->hv", attention.value, past, precision=HIGHEST)
    mixed = _mix(attention, weights, x) + past_weight * past_value[:, None, :]
    if attention.kind == "dp" or (attention.kind == "dp-free" and attention.window != "infinite"):
        total = weights.sum(axis=-1, keepdims=True) + past_weight
        mixed = mixed / jnp.where(total > 0, total, 1)
    output = jnp.einsum("hdv,...htv->...td", attention.output, mixed, precision=HIGHEST)
    return output, past_output(attention, past, past_value)


def _log_whole_mass(attention: Attention) -> jax.Array:
    """log Σ_{s≥0} e^{pφ(s)} or e^{b(s)}, (H,)."""
    if attention.table is not None:
        return logsumexp(attention.table, axis=1)
    return log_past_mass(attention, jnp.full((1,), -1.0, attention.decay.dtype))[:, 0]


def _before(attention: Attention, queries: jax.Array, past: jax.Array, first: int) -> jax.Array:
    """The log-weight of everything before the array, (…, H, T, 1); −∞ if heads do not look there, or their tables end before."""
    if attention.window != "infinite" or (attention.table is not None and attention.table.shape[1] <= first + 1):
        return jnp.full((1, 1, 1), -jnp.inf, queries.dtype)
    positions = jnp.arange(first, first + queries.shape[-2], dtype=queries.dtype)
    return log_past_mass(attention, positions)[..., None] + _scores(attention, queries, past[None, :])


def _mix(attention: Attention, weights: jax.Array, x: jax.Array) -> jax.Array:
    """Σ_s w(t, s) W_V x_s, (…, H, T, dv), values or sums first: whichever takes fewer multiplications."""
    dv, width = attention.value.shape[1:]
    rows, length = weights.shape[-2:]
    if rows * length * width + rows * width * dv < length * width * dv + rows * length * dv:
        sums = jnp.einsum("...hts,...sd->...htd", weights, x, precision=HIGHEST)
        return jnp.einsum("hvd,...htd->...htv", attention.value, sums, precision=HIGHEST)
    values = jnp.einsum("hvd,...sd->...hsv", attention.value, x, precision=HIGHEST)
    return jnp.einsum("...hts,...hsv->...htv", weights, values, precision=HIGHEST)


def past_output(attention: Attention, past: jax.Array, past_value: jax.Array) -> jax.Array:
    """What attention returns at positions whose whole past is the constant state."""
    if attention.kind in ("nf", "tmx"):
        mass = log_past_mass(attention, jnp.full((1,), -1.0, past.dtype)) + _scores(attention, past[None, :], past[None, :])[..., 0]
        past_value = jnp.exp(mass) * past_value
    return jnp.einsum("hdv,hv->d", attention.output, past_value, precision=HIGHEST)


@jax.jit
def _embed(network: Transformer, tokens: jax.Array) -> jax.Array:
    return jnp.einsum("dk,...k->...d", network.embedding, tokens, precision=HIGHEST) + network.bias


def feed(ffn: FeedForward, x: jax.Array, past: jax.Array, last: bool) -> tuple[jax.Array, jax.Array]:
    """The feed-forward half of a layer, for the array and for the constant state before it; the last one has no residual."""
    change, past_change = feed_forward(ffn, x), feed_forward(ffn, past)
    return (change, past_change) if last else (x + change, past + past_change)


def run_layers(network: Transformer, tokens: jax.Array, step: Any) -> jax.Array:
    """Layer after layer, `step(index, layer, x, past, last)` being compiled: equal layers compile once; tokens (…, N, d) → (…, N)."""
    x, past = _embed(Transformer(network.embedding, network.bias, ()), tokens), jnp.asarray(network.bias)
    for index, layer in enumerate(network.layers):
        x, past = step(index, layer, x, past, index == len(network.layers) - 1)
    return x[..., 0]


@partial(jax.jit, static_argnames="last")
def _step(layer: Layer, x: jax.Array, past: jax.Array, last: bool) -> tuple[jax.Array, jax.Array]:
    attended, past_attended = attend(layer.attention, x, past)
    return feed(layer.feedforward, x + attended, past + past_attended, last)


def forward(network: Transformer, tokens: Any) -> np.ndarray:
    """Outputs (…, N) of a float network on tokens (…, N, d), in the network's own dtype."""
    with with_x64(network.dtype):
        return np.asarray(run_layers(network, jnp.asarray(tokens, dtype=network.dtype), lambda _, *state: _step(*state)))


@partial(jax.jit, static_argnames="first")
def _attended(attention: Attention, x: jax.Array, past: jax.Array, first: int) -> tuple[jax.Array, jax.Array]:
    change, past_change = attend(attention, x, past, first)
    return x[..., first:, :] + change, past + past_change


_fed = jax.jit(feed, static_argnames="last")


def stream(network: Transformer, tokens: jax.Array, first: int = 0) -> list[jax.Array]:
    """The residual stream (…, N, D) after every attention, and last the outputs (…, N, out), with their derivatives.

    The last layer is evaluated at positions from `first` on only. Compiled by half layers, or with whatever is compiled around it.
    """
    x, past = _embed(Transformer(network.embedding, network.bias, ()), tokens), jnp.asarray(network.bias)
    seen: list[jax.Array] = []
    for index, layer in enumerate(network.layers):
        last = index == len(network.layers) - 1
        x, past = _attended(layer.attention, x, past, first if last else 0)
        seen.append(x)
        x, past = _fed(layer.feedforward, x, past, last=last)
    return [*seen, x]


def layer_inputs(network: Transformer, tokens: Any, count: int) -> list[np.ndarray]:
    """What the first `count` layers of a float network read, (…, N, D) each, in the network's own dtype."""
    seen: list[np.ndarray] = []

    def step(_: int, layer: Layer, x: jax.Array, past: jax.Array, last: bool) -> tuple[jax.Array, jax.Array]:
        seen.append(np.asarray(x))
        return (x, past) if last else _step(layer, x, past, False)

    with with_x64(network.dtype):
        run_layers(Transformer(network.embedding, network.bias, network.layers[:count]), jnp.asarray(tokens, dtype=network.dtype), step)
    return seen
