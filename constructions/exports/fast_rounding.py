"""How far two evaluations of one network on given tokens can be apart: a running error analysis, in numpy.

Every array carries a bound e of |computed − exact|, the same for all evaluations that perform the operations of the fast pass
(`constructions.run.fast`) in any order of summation, with or without fused multiply-add; two of them differ by at most 2e. With
γ_n = nu/(1−nu), u the unit roundoff, and |x| + 2e in place of values that another evaluation may have,

    Σ_{i≤n} w_i x_i          e' = Σ|w| e + γ_n Σ|w| (|x| + 2e) + flushed: numbers below the least normal one may count as 0
    S ← zS + v               e' = z e_S + e_v + γ_2 (z (|S| + 2e_S) + |v| + 2e_v)
    e^x, own exponential     relative (1+16u) e^{e_x} − 1: `verify.chain.rounding.exponential_error` is below 16u, which a test checks
    N/D                      e' = (e_N + |N/D| e_D)/(D − e_D) + u |N/D|
    Σ_s ⟨q, k_s⟩ v_s / n     e' = Σ (|k||v| e_q + |q||v| e_k + |q||k| e_v)/n + γ_{n+k+4} Σ |q||k||v|/n + flushed: linear heads, any order
    [x]                      0 where x is farther than 2e from a tie, otherwise nothing is known (∞)

Two hypotheses enter where they are needed, and nowhere else: log and exp of libraries are off by at most LIBRARY·u (lag slots of log
heads, tmx log heads), and an FFT of size 2^t is off by t·FFT·u in the Euclidean norm (exact networks, which `run` convolves by FFT; Higham
2002, Theorem 24.2, has u + 4u(√2 + u) per step of radix 2 with twiddle factors that are off by u).
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from analyzer.numbers.exact import UNIT, nearest
from constructions.exports.exact_parts import REACH, columns_read, lag_kernels, memories, neurons_in_float64
from constructions.network.exponential import DEEPEST
from constructions.network.precision import SMALLEST
from constructions.network.transformer import Attention, FeedForward, Transformer, to_float
from constructions.run.execute import runs_rounded
from constructions.run.fast import kernel_heads, network_constants
from constructions.run.fused import stream_table
from constructions.run.lagged import LaggedLayer, lagged_layers
from constructions.run.stream import is_fused

EXPONENTIAL, LIBRARY, FFT = 16, 8, 12
UNDECIDED = 1e100
"""An error that stands for "anything": finite, so that it does not reach what does not read it."""
SLACK = 1 + 2.0**-20
"""For the roundings of the bounds themselves."""


@dataclass(frozen=True)
class Approximate:
    """Values and bounds of their errors."""

    value: np.ndarray
    error: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """A bound of what any evaluation, or the exact one, may have here."""
        return np.abs(self.value) + 2 * self.error

    def __getitem__(self, key: Any) -> "Approximate":
        return Approximate(self.value[key], self.error[key])

    def moved(self, *axes: int) -> "Approximate":
        return Approximate(self.value.transpose(axes), self.error.transpose(axes))

    def shaped(self, *sizes: int) -> "Approximate":
        return Approximate(self.value.reshape(sizes), self.error.reshape(sizes))


@dataclass(frozen=True)
class Bounds:
    """The rules for one float type."""

    dtype: str

    @property
    def unit(self) -> float:
        return nearest(UNIT[self.dtype])

    def gamma(self, terms: int) -> float:
        return terms * self.unit / (1 - terms * self.unit)

    def exactly(self, value: np.ndarray) -> Approximate:
        return Approximate(np.asarray(value, np.float64), np.zeros(np.shape(value)))

    def linear(self, x: Approximate, weights: np.ndarray, bias: np.ndarray | None = None) -> Approximate:
        """W x + b on the last axis, W (out, in)."""
        w = np.asarray(weights, np.float64)
        b = np.zeros(len(w)) if bias is None else np.asarray(bias, np.float64)
        terms = w.shape[1] + (bias is not None)
        size = x.size @ np.abs(w).T + np.abs(b)
        flushed = self.flushed(terms + 1, np.abs(w).max(initial=0), x.size.max(initial=0))
        read = w.any(axis=1)  # a row of zeros gives 0, exactly
        return Approximate(x.value @ w.T + b, x.error @ np.abs(w).T + np.where(read, self.gamma(terms) * size + flushed, 0))

    def flushed(self, products: int, *largest: Any) -> Any:
        """What flushing to zero moves in a sum of products of such factors: of a result by the least normal number, of a factor by that
        times the other one."""
        return 2 * products * nearest(SMALLEST[self.dtype]) * (1 + sum(largest))

    def plus(self, a: Approximate, b: Approximate) -> Approximate:
        error = a.error + b.error
        rounded = self.unit * (np.abs(a.value + b.value) + 2 * error)
        return Approximate(a.value + b.value, error + np.where((a.size == 0) | (b.size == 0), 0, rounded))

    def times(self, a: Approximate, b: Approximate) -> Approximate:
        error = a.error * b.size + b.error * a.size
        return Approximate(a.value * b.value, error + self.unit * a.size * b.size + self.flushed(1, a.size, b.size))

    def scaled(self, factor: np.ndarray, x: Approximate) -> Approximate:
        return self.times(self.exactly(np.asarray(factor)), x)

    def over(self, a: Approximate, b: Approximate) -> Approximate:
        """a/b for b > 0."""
        quotient = a.value / b.value
        error = (a.error + np.abs(quotient) * b.error) / np.maximum(b.value - b.error, 1e-300)
        lost = self.flushed(1, 1 / np.maximum(b.value - b.error, 1e-300))
        return Approximate(quotient, error + self.unit * (np.abs(quotient) + 2 * error) + lost)

    def power(self, score: Approximate) -> Approximate:
        """e^score by the project's own exponential, 0 where nobody looks."""
        seen = np.isfinite(score.value)
        clipped = np.clip(np.where(seen, score.value, 0), -DEEPEST[self.dtype], DEEPEST[self.dtype])
        value = np.where(seen, np.exp(clipped), 0)
        relative = np.expm1(np.minimum(np.where(seen, score.error, 0), 200)) * (1 + EXPONENTIAL * self.unit) + EXPONENTIAL * self.unit
        return Approximate(value, value * relative)


def _scan(rules: Bounds, ratio: np.ndarray, start: Approximate, values: Approximate) -> Approximate:
    z = np.asarray(ratio, np.float64)[:, None]
    state, error = (np.broadcast_to(part, values.value[:, 0].shape) for part in (start.value, start.error))
    states, errors = np.empty_like(values.value), np.empty_like(values.value)
    gamma = rules.gamma(2)
    for t in range(values.value.shape[1]):
        fresh = values[:, t]
        lost = rules.flushed(1, np.abs(state) + 2 * error)
        error = z * error + fresh.error + gamma * (z * (np.abs(state) + 2 * error) + fresh.size) + lost
        state = z * state + fresh.value
        states[:, t], errors[:, t] = state, error
    return Approximate(states, errors)


def _taps(rules: Bounds, taps: np.ndarray, values: Approximate, past: Approximate) -> Approximate:
    """Σ_s taps_s v_{t−s}, taps (H, S), values (batch, length, H, dv), past (H, dv)."""
    length, count = values.value.shape[1], taps.shape[1]
    weights = np.asarray(taps, np.float64)

    def padded(part: np.ndarray, before: np.ndarray) -> np.ndarray:
        return np.concatenate([np.broadcast_to(before, (len(part), count, *before.shape)), part], axis=1)

    value, error = padded(values.value, past.value), padded(values.error, past.error)
    total, carried, size = (np.zeros_like(values.value) for _ in range(3))
    for s in range(count):
        w, window = weights[:, s][:, None], slice(count - s, count - s + length)
        total += w * value[:, window]
        carried += np.abs(w) * error[:, window]
        size += np.abs(w) * (np.abs(value[:, window]) + 2 * error[:, window])
    lost = rules.flushed(count, weights.max(initial=0), np.abs(value).max(initial=0) + 2 * error.max(initial=0))
    return Approximate(total, carried + rules.gamma(count) * size + lost)


def _heads(rules: Bounds, weights: np.ndarray, x: Approximate) -> Approximate:
    """W x by heads, (batch, length, H, k)."""
    heads, rank, width = weights.shape
    found = rules.linear(x, np.asarray(weights, np.float64).reshape(-1, width))
    return found.shaped(*found.value.shape[:-1], heads, rank)


def _joined(rules: Bounds, attention: Attention, mixed: Approximate) -> Approximate:
    heads, width, rank = attention.output.shape
    flat = mixed.shaped(*mixed.value.shape[:-2], heads * rank)
    return rules.linear(flat, np.moveaxis(np.asarray(attention.output, np.float64), 1, 0).reshape(width, -1))


def _by_position(rules: Bounds, attention: Attention, constants: dict[str, np.ndarray], x: Approximate, past: Approximate) -> Approximate:
    values, before = _heads(rules, attention.value, x), _heads(rules, attention.value, past)
    mixed = Approximate(np.zeros_like(values.value), np.zeros_like(values.value))
    weighted = kernel_heads(attention, constants) if "weights" in constants else np.zeros(0, int)
    lin, log, table = (np.setdiff1d(attention.heads_of(kind), weighted) for kind in ("lin", "log", "table"))
    for heads, kind in ((weighted, "all"), (lin, "lin"), (np.concatenate([log, table]), "taps")):
        if not len(heads):
            continue
        chosen, first = values[:, :, heads], before[heads]
        if kind == "all":
            length = chosen.value.shape[1]
            found = _taps(rules, constants["weights"][:, :length], chosen, rules.exactly(np.zeros_like(first.value)))
            share = np.asarray(constants["beyond" if "beyond" in constants else "mass"][:, :length], np.float64).T[:, :, None]
            exact = rules.exactly(share)
            found = rules.plus(found, rules.times(exact, first)) if "beyond" in constants else rules.over(found, exact)
        elif kind == "lin":
            gain = np.asarray(constants["gain"], np.float64)[:, None]
            found = _scan(rules, constants["ratio"], rules.over(first, rules.exactly(gain)), chosen)
            found = found if attention.kind == "tmx" else rules.scaled(gain, found)
        else:
            found = _taps(rules, constants["taps"], chosen, first)
        mixed.value[:, :, heads], mixed.error[:, :, heads] = found.value, found.error
    if attention.kind == "tmx":
        stretch = _stretch(rules, attention, x)
        mixed = rules.times(stretch[..., None], mixed)
    return _joined(rules, attention, mixed)


def _stretch(rules: Bounds, attention: Attention, x: Approximate) -> Approximate:
    slot = rules.linear(x, attention.pointer)
    is_lin = np.array([kind == "lin" for kind in attention.rpe])
    least = np.maximum(slot.value, 1)
    logs = Approximate(np.log(least), slot.error / np.maximum(least - slot.error, 0.5) + LIBRARY * rules.unit * np.abs(np.log(least)))
    chosen = Approximate(np.where(is_lin, slot.value, logs.value), np.where(is_lin, slot.error, logs.error))
    return rules.power(rules.scaled(attention.decay, chosen))


def _by_lag(rules: Bounds, attention: Attention, constants: dict[str, np.ndarray], x: Approximate, past: Approximate) -> Approximate:
    values, before = _heads(rules, attention.value, x), _heads(rules, attention.value, past)
    if attention.rpe[0] == "lin":
        states = _scan(rules, constants["ratio"], _lag_mass(rules, attention, constants, before), values)
    else:
        states = _taps(rules, constants["taps"], values, before)
    return _joined(rules, attention, rules.times(_factor(rules, constants, x)[..., None], states))


def _lag_mass(rules: Bounds, attention: Attention, constants: dict[str, np.ndarray], before: Approximate) -> Approximate:
    """The constant past as a head with a lag slot weighs it."""
    if attention.rpe[0] == "lin":
        rest = 1 - np.asarray(constants["ratio"], np.float64)[:, None]
        return rules.over(before, Approximate(rest, rules.unit * rest))
    taps = np.asarray(constants["taps"], np.float64)
    return rules.times(before, Approximate(taps.sum(axis=1)[:, None], rules.gamma(taps.shape[1]) * taps.sum(axis=1)[:, None]))


def _factor(rules: Bounds, constants: dict[str, np.ndarray], x: Approximate) -> Approximate:
    """Factors of the lags in the slots; a slot that is not known exactly has none."""
    table = np.asarray(constants["factor"], np.float64)
    held = x[..., constants["slot"]]
    lag = np.clip(np.nan_to_num(held.value), 0, table.shape[1] - 1).astype(int)
    return Approximate(table[np.arange(len(table)), lag], np.where(held.error > 0, UNDECIDED, 0.0))


def _scores(rules: Bounds, queries: Approximate, keys: Approximate) -> Approximate:
    """⟨q, k⟩ of two computed vectors, (batch, H, T, N) from (batch, H, T, k) and (batch or none, H, N, k)."""
    value = queries.value @ np.swapaxes(keys.value, -1, -2)
    carried = queries.error @ np.swapaxes(keys.size, -1, -2) + queries.size @ np.swapaxes(keys.error, -1, -2)
    rounded = rules.gamma(max(queries.value.shape[-1], 1)) * (queries.size @ np.swapaxes(keys.size, -1, -2))
    lost = rules.flushed(max(queries.value.shape[-1], 1), queries.size.max(initial=0), keys.size.max(initial=0))
    return Approximate(value, carried + rounded + lost)


def _mixed(rules: Bounds, weights: Approximate, values: Approximate) -> Approximate:
    """Σ_s w_s v_s, weights (batch, H, T, N), values (batch, H, N, dv)."""
    carried = weights.error @ values.size + weights.size @ values.error
    count = weights.value.shape[-1]
    lost = rules.flushed(count, weights.size.max(initial=0), values.size.max(initial=0))
    return Approximate(weights.value @ values.value, carried + rules.gamma(count + 1) * (weights.size @ values.size) + lost)


def _softmax(rules: Bounds, scores: Approximate, values: Approximate) -> Approximate:
    """Σ softmax(a)_s v_s; dividing by e^{max a} changes nothing but what is rounded. Weights below e^{−X} count as e^{−X}."""
    top = np.max(scores.value, axis=-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    seen = np.isfinite(scores.value)
    apart = np.where(seen, np.abs(scores.value - top), 0)
    shifted = Approximate(scores.value - top, np.where(seen, scores.error + 2 * rules.unit * (apart + 2 * scores.error), 0))
    weights = rules.power(shifted)
    weights = Approximate(weights.value, weights.error + np.where(seen, 2 * np.exp(-float(DEEPEST[rules.dtype])), 0))
    total = weights.value.sum(axis=-1, keepdims=True)
    spread = weights.error.sum(axis=-1, keepdims=True)
    spread = spread + rules.gamma(weights.value.shape[-1]) * (total + 2 * spread)
    blind = total == 0
    return rules.over(_mixed(rules, weights, values), Approximate(np.where(blind, 1, total), np.where(blind, 0, spread)))


def _with_past(values: Approximate, past: Approximate) -> Approximate:
    """(batch, H, N, dv) and one more token, (H, dv)."""
    parts = []
    for inside, before in ((values.value, past.value), (values.error, past.error)):
        more = np.broadcast_to(before[:, None, :], (*inside.shape[:2], 1, inside.shape[3]))
        parts.append(np.concatenate([inside, more], axis=2))
    return Approximate(*parts)


def _scored(rules: Bounds, attention: Attention, constants: dict[str, np.ndarray], x: Approximate, past: Approximate) -> Approximate:
    q, k, v = (_heads(rules, weights, x).moved(0, 2, 1, 3) for weights in (attention.query, attention.key, attention.value))
    length = x.value.shape[1]
    if attention.window == "infinite":
        k, v = (_with_past(a, _heads(rules, w, past)) for a, w in ((k, attention.key), (v, attention.value)))
    scores = _scores(rules, q, k)
    if attention.window != "full":
        bias = np.asarray(constants["bias"], np.float64)[:, :length]
        steps = np.arange(length)
        distance = steps[:, None] - steps
        position = np.where(distance >= 0, bias[:, np.maximum(distance, 0)], -np.inf)
        if attention.window == "infinite":
            position = np.concatenate([position, np.asarray(constants["beyond"], np.float64)[:, :length, None]], axis=2)
        seen = np.isfinite(position)
        finite = np.where(seen, position, 0)
        error = scores.error + rules.unit * (np.abs(finite + scores.value) + 2 * scores.error)
        scores = Approximate(np.where(seen, finite + scores.value, -np.inf), np.where(seen, error, 0))
    mixed = _softmax(rules, scores, v) if attention.kind == "dp" else _mixed(rules, rules.power(scores), v)
    return _joined(rules, attention, mixed.moved(0, 2, 1, 3))


def _linear(rules: Bounds, attention: Attention, x: Approximate) -> Approximate:
    """Σ_s ⟨q_t, k_s⟩ v_s / n over the n tokens that t sees: two products, fewer than n + k additions and a quotient, in any order."""
    q, k, v = (_heads(rules, weights, x).moved(0, 2, 1, 3) for weights in (attention.query, attention.key, attention.value))
    length, rank = x.value.shape[1], q.value.shape[-1]
    seen = np.ones((length, length)) if attention.window == "full" else np.tril(np.ones((length, length)))
    count = seen.sum(axis=1, keepdims=True)

    def mean(*parts: np.ndarray) -> np.ndarray:
        return np.einsum("bhtk,bhsk,bhsv,ts->bhtv", *parts, seen / count, optimize=True)

    carried = mean(q.error, k.size, v.size) + mean(q.size, k.error, v.size) + mean(q.size, k.size, v.error)
    terms = count + rank + 4
    rounded = terms * rules.unit / (1 - terms * rules.unit) * mean(q.size, k.size, v.size)
    largest = [1 + part.size.max(initial=0) for part in (q, k, v)]
    lost = 2 * rules.flushed(length * rank + 1, math.prod(largest))
    mixed = Approximate(mean(q.value, k.value, v.value), carried + rounded + lost)
    return _joined(rules, attention, mixed.moved(0, 2, 1, 3))


def _past_attended(rules: Bounds, attention: Attention, constants: dict[str, np.ndarray], past: Approximate) -> Approximate:
    """What attention adds to the constant state (D,)."""
    if attention.window != "infinite":
        return rules.exactly(np.zeros_like(past.value))
    value = _heads(rules, attention.value, past)
    if "factor" in constants:
        value = rules.times(_factor(rules, constants, past)[..., None], _lag_mass(rules, attention, constants, value))
    elif attention.kind == "tmx":
        whole = rules.scaled(np.asarray(constants["whole"], np.float64)[:, None], value)
        value = rules.times(_stretch(rules, attention, past)[..., None], whole)
    elif attention.kind == "nf":
        q, k = (_heads(rules, weights, past)[:, None] for weights in (attention.query, attention.key))
        score = rules.plus(rules.exactly(np.asarray(constants["whole"], np.float64)[:, None]), _scores(rules, q, k)[..., 0])
        value = rules.times(rules.power(score), value)
    return _joined(rules, attention, value)


def attention_bound(
    rules: Bounds, attention: Attention, constants: dict[str, np.ndarray], x: Approximate, past: Approximate
) -> tuple[Approximate, Approximate]:
    """What attention adds to the stream (batch, length, D), and to the constant state (D,)."""
    if "factor" in constants:
        found = _by_lag(rules, attention, constants, x, past)
    elif attention.kind == "linear":
        found = _linear(rules, attention, x)
    elif attention.window == "full" or attention.kind in ("dp", "nf"):
        found = _scored(rules, attention, constants, x, past)
    else:
        found = _by_position(rules, attention, constants, x, past)
    return found, _past_attended(rules, attention, constants, past)


def fed_bound(rules: Bounds, ffn: FeedForward, u: Approximate) -> Approximate:
    """A relu(B u + c), rounded where the network says so; relu is 1-Lipschitz."""
    hidden = rules.linear(u, ffn.inner, ffn.bias)
    found = rules.linear(Approximate(np.maximum(hidden.value, 0), hidden.error), ffn.outer)
    if not ffn.precision:
        return found
    value, error = found.value.copy(), found.error.copy()
    for j, kind in enumerate(ffn.precision):
        if kind == "none":
            continue
        y, e = value[..., j], error[..., j]
        if kind == "log":
            with np.errstate(over="ignore"):
                y = np.exp(np.minimum(y, 600))
                e = y * (np.expm1(np.minimum(2 * e, 100)) + LIBRARY * rules.unit)
        decided = np.abs(y - np.floor(y) - 0.5) > 2 * e
        whole = np.rint(y)
        value[..., j] = whole if kind == "integer" else np.log(np.maximum(whole, 1))
        off = 0.0 if kind == "integer" else LIBRARY * rules.unit * np.abs(value[..., j])
        error[..., j] = np.where(decided, off, UNDECIDED)
    return Approximate(value, error)


def difference_bound(network: Transformer, tokens: np.ndarray, reach: int = REACH) -> np.ndarray:
    """2e at every output, (batch, length) or (batch, length, c), on tokens (batch, length, d); ∞ where nothing is known, as of exact
    networks at lags beyond the reach of their kernels."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if network.dtype != "exact":
            return _float_difference(network, tokens)
        if is_fused(network):
            return _convolution_difference(network, tokens)
        if runs_rounded(network):
            return _float_difference(network.map(lambda weights: to_float(weights, "float64")), tokens)
        return _lagged_difference(network, tokens, reach)


def _float_difference(network: Transformer, tokens: np.ndarray) -> np.ndarray:
    rules = Bounds(network.dtype)
    found = network_constants(network, tokens.shape[-2])
    x = rules.linear(rules.exactly(tokens), network.embedding, network.bias)
    past = rules.exactly(network.bias)
    if network.positions is not None:
        x = rules.plus(x, rules.exactly(np.broadcast_to(network.positions[: tokens.shape[-2]], x.value.shape)))
    for index, layer in enumerate(network.layers):
        change, past_change = attention_bound(rules, layer.attention, found[index], x, past)
        x, past = rules.plus(x, change), rules.plus(past, past_change)
        change, past_change = (fed_bound(rules, layer.feedforward, part) for part in (x, past))
        last = index == len(network.layers) - 1
        x, past = (change, past_change) if last else (rules.plus(x, change), rules.plus(past, past_change))
    return twice(x)


def _convolved(rules: Bounds, kernels: np.ndarray, values: Approximate) -> Approximate:
    """Σ_s κ_s v_{t−s}, one by one or by FFT; kernels (S, C, J), or (batch, length, S, C, J) for positions with different ones.

    ‖κ∗v‖ of two FFTs and one back, each with error ε = t·FFT·u in the Euclidean norm, is off by ε (‖κ‖₂ ‖v‖₁ + 2 ‖κ‖₁ ‖v‖₂) anywhere.
    """
    length = values.value.shape[1]
    taps = kernels.shape[-3]
    shape = (*values.value.shape[:2], kernels.shape[-1])
    total, carried, size = (np.zeros(shape) for _ in range(3))
    for s in range(min(taps, length)):
        kernel, shifted = (kernels[s] if kernels.ndim == 3 else kernels[:, s:, s]), values[:, : length - s]
        parts = (total, shifted.value, kernel), (carried, shifted.error, np.abs(kernel)), (size, shifted.size, np.abs(kernel))
        for target, part, k in parts:
            target[:, s:] += part @ k if kernels.ndim == 3 else np.einsum("btc,btcj->btj", part, k)
    weights = np.abs(kernels)
    one, two = weights.sum(axis=-3), np.sqrt((weights**2).sum(axis=-3))
    v_one, v_two = values.size.sum(axis=1), np.sqrt((values.size**2).sum(axis=1))  # (batch, C)
    steps = np.log2(2 * (length + taps)) + 1
    mixing = "bc,cj->bj" if kernels.ndim == 3 else "bc,btcj->btj"
    by_fft = np.einsum(mixing, v_one, two) + 2 * np.einsum(mixing, v_two, one)
    by_fft = steps * FFT * rules.unit * (by_fft[:, None] if kernels.ndim == 3 else by_fft)
    tail = 2.0**-58 * values.size.max(initial=1.0)  # kernels end where the rest is below 2^−60
    return Approximate(total, carried + rules.gamma(taps * kernels.shape[-2] + 4) * size + by_fft + tail)


def _convolution_difference(network: Transformer, tokens: np.ndarray) -> np.ndarray:
    rules = Bounds("float64")
    kernels, offset = stream_table(network, tokens.shape[-2])
    stream = _convolved(rules, np.moveaxis(kernels, -1, 0).transpose(0, 2, 1), rules.exactly(tokens))
    stream = rules.plus(stream, rules.exactly(np.broadcast_to(offset, stream.value.shape)))
    return twice(fed_bound(rules, neurons_in_float64(network.layers[-1].feedforward), stream))


def _lagged_difference(network: Transformer, tokens: np.ndarray, reach: int) -> np.ndarray:
    rules, layers = Bounds("float64"), lagged_layers(network)
    x = rules.linear(rules.exactly(tokens), to_float(network.embedding, "float64"), to_float(network.bias, "float64"))
    for index, layer in enumerate(network.layers):
        value, error = x.value.copy(), x.error.copy()
        for slot, rows in memories(layers[index]).items():
            columns = columns_read(layers[index], rows)
            lag, known = _lag(rules, layers[index], x[..., slot], reach)
            table = lag_kernels(layers[index], rows, columns, reach)[: tokens.shape[1]]
            found = _convolved(rules, np.moveaxis(table[:, lag], 0, 2), x[..., columns])
            memory = rules.plus(x[..., rows], Approximate(found.value, np.where(known[..., None], found.error, UNDECIDED)))
            value[..., rows], error[..., rows] = memory.value, memory.error
        x = Approximate(np.nan_to_num(value, nan=0.0), np.nan_to_num(np.where(np.isnan(value), UNDECIDED, error), nan=UNDECIDED))
        change = fed_bound(rules, neurons_in_float64(layer.feedforward), x)
        x = change if index == len(network.layers) - 1 else rules.plus(x, change)
    return twice(x)


def _lag(rules: Bounds, layer: LaggedLayer, held: Approximate, reach: int) -> tuple[np.ndarray, np.ndarray]:
    """The lags in a slot, and where they are known."""
    value, error = held.value, held.error
    if layer.form == "log":
        value = np.exp(np.minimum(held.value, 40))
        error = value * (np.expm1(np.minimum(2 * held.error, 100)) + LIBRARY * rules.unit)
    lag = np.clip(np.rint(value), 1 if "log" in layer.rpe else 0, reach + 1).astype(int)
    return lag, (np.abs(value - np.rint(value)) + 2 * error < 0.5) & (lag <= reach)


def twice(output: Approximate) -> np.ndarray:
    """Two evaluations differ by at most this."""
    bound = 2 * SLACK * output.error
    bound = np.where(np.isfinite(bound) & np.isfinite(output.value) & (bound < UNDECIDED / 1e50), bound, np.inf)
    return bound[..., 0] if bound.shape[-1] == 1 else bound
