"""Fusing the heads of dp-free layers into memory kernels, and running exact networks.

For a one-layer dp-free network with infinite window, a linear functional w·U of the residual stream after attention is a constant plus
Σ_i Σ_s κ_i(s) x_{t−s,i} with

    κ_i(s) = (w·W_E)_i 1{s=0} + Σ_h (w·W_O^h W_V^h W_E)_i k_h(s).

For exact networks k_h is the ideal normalised kernel; for float networks it is what the fast executor computes with: g z^s with the
rounded ratio and gain, or the rounded taps.

Where the feed-forward networks between dp-free layers are linear maps, the stream that the last one reads is a convolution too:
`stream_kernels` multiplies the layers' generating functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import zip_longest
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flint import arb, arb_poly, ctx, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.kernels.l1_norms import DeliveredKernel, Exponentials, Group, Powers, Strided, Taps
from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.lemmas.relu_error import oriented
from analyzer.numbers.exact import magnitude, working_precision
from analyzer.numbers.zeta import GUARD as ZETA_GUARD
from analyzer.numbers.zeta import ONE, zeta
from constructions.network.precision import with_x64
from constructions.network.transformer import (
    Attention,
    FeedForward,
    Transformer,
    check_relative,
    checked_decays,
    exact_array,
    table_weights,
    to_exact,
    to_float,
    zeros,
)
from constructions.run import fast
from constructions.run.reference import as_floats, as_outputs, feed_forward

GUARD = 256
"""Bits carried beyond the largest weight: kernels of size 1 keep about that many correct bits through the cancellation."""


@dataclass(frozen=True)
class FusedLayer:
    """Exact gains of every head onto every residual coordinate, and how the heads are evaluated."""

    embedding: np.ndarray  # (D, d)
    offset: np.ndarray  # (D,) value of U for the zero sequence
    gains: np.ndarray  # (H, D, d)
    decays: np.ndarray  # (H,)
    rpe: tuple[str, ...]
    constants: dict[str, np.ndarray] | None
    """Rounded ratios, gains and taps of a float network; None for an exact one."""
    tables: tuple[tuple[arb, ...], ...] = ()
    """Normalised weights e^{b(s)}/Σ e^{b} of an exact network's table heads."""
    rates: tuple[fmpq, ...] = ()
    """r_h of kerple heads."""
    stride: int = 1

    @cached_property
    def bits(self) -> int:
        """Working precision for this layer's kernels."""
        return GUARD + max(0, *(magnitude(arb(g)) for g in self.gains.flat if g != 0), 0)

    def banks(self) -> list[list[int]]:
        """Heads cut, in their order, into runs of one RPE type whose decays increase in arithmetic progression."""
        runs: list[list[int]] = []
        for h in range(len(self.rpe)):
            run = runs[-1] if runs else None
            if run is not None and self._continues(run, h):
                run.append(h)
            else:
                runs.append([h])
        return runs

    def _continues(self, run: list[int], h: int) -> bool:
        if self.rpe[h] != self.rpe[run[-1]] or self.decays[h] <= self.decays[run[-1]]:
            return False
        if self.rates and self.rates[h] != self.rates[run[-1]]:
            return False
        return len(run) == 1 or self.decays[h] - self.decays[run[-1]] == self.decays[run[1]] - self.decays[run[0]]

    def serving(self, gains: Sequence[fmpq]) -> list[int]:
        """Heads of the banks in which some head has a gain (an interpolant may have zero coefficients)."""
        return [h for run in self.banks() if any(gains[k] != 0 for k in run) for h in run]

    def functional(self, row: Sequence[fmpq], column: int) -> tuple[fmpq, list[fmpq]]:
        """(residual weight, gain of every head) of w·U on input coordinate `column`."""
        weights = [(j, w) for j, w in enumerate(row) if w != 0]
        residual = sum((w * self.embedding[j, column] for j, w in weights), fmpq(0))
        return residual, [sum((w * self.gains[h, j, column] for j, w in weights), fmpq(0)) for h in range(len(self.rpe))]

    def kernel(
        self,
        row: Sequence[fmpq],
        column: int,
        spikes: dict[int, fmpq] | None = None,
        memories: dict[MemoryKernel, fmpq] | None = None,
    ) -> DeliveredKernel:
        """The kernel of w·U on input coordinate `column`, minus spikes and memory kernels; call it at the working precision `bits`."""
        residual, gains = self.functional(row, column)
        subtracted = tuple((weight, memory) for memory, weight in (memories or {}).items())
        return DeliveredKernel(residual, self.groups(gains), tuple(sorted((spikes or {}).items())), subtracted)

    def groups(self, gains: list[fmpq]) -> tuple[Group, ...]:
        """All heads with these weights, at the distances that they see."""
        found = (*self.lin(gains), *self.log(gains), *self.table(gains), *self.kerple(gains))
        return found if self.stride == 1 else tuple(Strided(group, self.stride) for group in found)

    def lin(self, gains: list[fmpq]) -> list[Exponentials]:
        """The lin heads, with these weights."""
        heads = [h for h, kind in enumerate(self.rpe) if kind == "lin"]
        if self.constants is not None:
            ratio, gain = to_exact(self.constants["ratio"]), to_exact(self.constants["gain"])
            used = [(k, gains[h]) for k, h in enumerate(heads) if gains[h] != 0]
            if not used:
                return []
            return [Exponentials(tuple(arb(ratio[k]) for k, _ in used), tuple(arb(g * gain[k]) for k, g in used))]
        result = []
        for run, progression in self._groups(gains, "lin", shortest=8):
            ratios = tuple((-arb(self.decays[h])).exp() for h in run)
            amplitudes = tuple(arb(gains[h]) * (1 - z) for h, z in zip(run, ratios, strict=True))
            result.append(Exponentials(ratios, amplitudes, progression))
        return result

    def log(self, gains: list[fmpq]) -> list[Powers | Taps]:
        """The log heads, with these weights."""
        heads = [h for h, kind in enumerate(self.rpe) if kind == "log"]
        used = [(k, h) for k, h in enumerate(heads) if gains[h] != 0]
        if not used:
            return []
        if self.constants is not None:
            slowest = min(float(arb(self.decays[h])) for h in heads)
            return [*self._taps(used, gains, f"a log head with decay {slowest:.3g} falls so slowly that all of them run by FFT")]
        result: dict[tuple[fmpq, ...], Powers | Taps] = {}
        for run, progression in self._groups(gains, "log", shortest=3):
            amplitudes = [self._over_zeta(arb(gains[h]), self.decays[h]) for h in run]
            exponents = tuple(self.decays[h] for h in run)
            start = exponents[:2] if progression else ()
            known = result.get(start)
            if isinstance(known, Powers):  # banks that start alike are one: their tails can cancel
                longest = max(exponents, known.exponents, key=len)
                pairs = zip_longest(amplitudes, known.amplitudes, fillvalue=arb(0))
                exponents, amplitudes = longest, [a + b for a, b in pairs]
            result[start] = Powers(exponents, tuple(amplitudes), progression)
        return list(result.values())

    def table(self, gains: list[fmpq]) -> list[Taps]:
        """The heads with a bias per distance, with these weights."""
        used = [(h, h) for h, kind in enumerate(self.rpe) if kind == "table" and gains[h] != 0]
        if not used:
            return []
        if self.constants is not None:
            return self._taps(used, gains, f"a table of more than {fast.MAX_TAPS} distances runs by FFT")
        weights = [[arb(gains[h]) * w for w in self.tables[h]] for h, _ in used]
        return [Taps(tuple(sum(column, arb(0)) for column in zip(*weights, strict=True)))]

    def kerple(self, gains: list[fmpq]) -> list[Powers | Taps]:
        """The kerple heads, with these weights: (s + A)^{−p}/ζ(p, A) with A = 1/r."""
        used = [(h, h) for h, kind in enumerate(self.rpe) if kind == "kerple" and gains[h] != 0]
        if not used:
            return []
        if self.constants is not None:
            return [*self._taps(used, gains, "a kerple head falls so slowly that all of them run by FFT")]
        result = []
        for run, progression in self._groups(gains, "kerple", shortest=3):
            for rate in dict.fromkeys(self.rates[h] for h in run):
                alike = [h for h in run if self.rates[h] == rate]
                amplitudes = tuple(self._over_zeta(arb(gains[h]), self.decays[h], 1 / rate) for h in alike)
                result.append(Powers(tuple(self.decays[h] for h in alike), amplitudes, progression, 1 / rate))
        return [*result]

    def _taps(self, used: list[tuple[int, int]], gains: list[fmpq], slow: str) -> list[Taps]:
        """The sum of a float network's taps with these weights; `used` pairs rows of taps with heads."""
        assert self.constants is not None
        taps = to_exact(self.constants["taps"])
        if taps.shape[1] == 0:
            raise Refusal(f"{slow}, whose rounding is not certified")
        sums = [sum((gains[h] * taps[k, s] for k, h in used), fmpq(0)) for s in range(taps.shape[1])]
        return [Taps(tuple(arb(v) for v in sums))]

    def _over_zeta(self, gain: arb, decay: fmpq, start: fmpq = ONE) -> arb:
        beyond = max(0, ctx.prec - self.bits)  # squared norms ask for more than `bits`
        return gain / zeta(decay, min(self.bits, max(0, magnitude(gain)) + ZETA_GUARD) + beyond, start)

    def _groups(self, gains: list[fmpq], rpe: str, shortest: int) -> list[tuple[list[int], bool]]:
        """Banks with a gain, evaluated as polynomials; runs below `shortest` are gathered into one plain group."""
        used = [run for run in self.banks() if self.rpe[run[0]] == rpe and any(gains[h] != 0 for h in run)]
        plain = [h for run in used if len(run) < shortest for h in run if gains[h] != 0]
        return [(run, True) for run in used if len(run) >= shortest] + ([(plain, False)] if plain else [])


def fuse(network: Transformer) -> FusedLayer:
    """The fused layer of a one-layer dp-free network; anything else is refused."""
    if len(network.layers) != 1:
        raise InputError(f"this network has {len(network.layers)} layers; kernels are those of one layer")
    check_relative(network, "a kernel")
    return fuse_layer(network.layers[0].attention, to_exact(network.embedding), to_exact(network.bias))


def fuse_layer(attention: Attention, embedding: np.ndarray, bias: np.ndarray) -> FusedLayer:
    """The heads of one dp-free layer whose residual stream is embedding · x + bias, in rationals."""
    if attention.kind != "dp-free" or attention.window != "infinite":
        raise InputError(f"attention is {attention.kind}, {attention.window}; kernels need dp-free attention with an infinite window")
    constants = None if np.asarray(attention.decay).dtype == object else fast.head_constants(attention)
    value, output = to_exact(attention.value), to_exact(attention.output)
    carried = np.array([v @ embedding for v in value])  # (H, dv, d)
    gains = np.array([o @ c for o, c in zip(output, carried, strict=True)])
    if constants is not None and any(b != 0 for b in bias):
        raise InputError("a float network with an embedding bias is not certified: its past is not the zero sequence")
    offset = bias + sum((o @ (v @ bias) for o, v in zip(output, value, strict=True)), start=bias * 0)
    tables: tuple[tuple[arb, ...], ...] = ()
    if constants is None and attention.table is not None:
        with working_precision(GUARD + max(0, *(magnitude(arb(g)) for g in gains.flat if g != 0), 0)):
            tables = tuple(map(tuple, table_weights(attention)))
    rates = () if attention.rate is None else tuple(to_exact(attention.rate))
    return FusedLayer(embedding, offset, gains, checked_decays(attention), attention.rpe, constants, tables, rates, attention.stride)


def _table(layer: FusedLayer, length: int) -> np.ndarray:
    """Kernels (D, d, S) in float64, S ≤ length: cut where the tail is below the last bit of float64."""
    rows, columns = layer.embedding.shape
    tables, cache = [], {}
    with working_precision(layer.bits):
        for j in range(rows):
            unit = tuple(fmpq(int(i == j)) for i in range(rows))
            for column in range(columns):
                key = (layer.embedding[j, column], tuple(layer.gains[:, j, column]))
                if key not in cache:
                    cache[key] = layer.kernel(unit, column).floats(length)
                tables.append(cache[key])
    longest = max(map(len, tables))
    padded = [t + [0.0] * (longest - len(t)) for t in tables]
    return np.array(padded).reshape(rows, columns, longest)


def linear_map(ffn: FeedForward) -> np.ndarray | None:
    """The matrix of a feed-forward network made of pairs a (relu(w·u) − relu(−w·u)); None if it is not linear in that way."""
    inner, bias, outer = (to_exact(a) for a in (ffn.inner, ffn.bias, ffn.outer))
    slopes: dict[tuple[fmpq, ...], dict[int, np.ndarray]] = {}
    for row, offset, weights in zip(inner, bias, outer.T, strict=True):
        if offset != 0 or ffn.precision:
            return None
        direction, sign = oriented(tuple(row))
        sides = slopes.setdefault(direction, {})
        sides[sign] = sides.get(sign, weights * 0) + weights
    total = zeros(outer.shape[0], inner.shape[1])
    for direction, sides in slopes.items():
        right = sides.get(1, zeros(outer.shape[0]))
        if any(a + b != 0 for a, b in zip(right, sides.get(-1, zeros(outer.shape[0])), strict=True)):
            return None
        total = total + np.outer(right, np.array(direction, dtype=object))
    return total


def stream_kernels(network: Transformer, length: int, extra: int = 0) -> list[list[arb_poly]]:
    """For every coordinate of the stream before the last feed-forward network and every input coordinate the kernel's first values, as a
    polynomial; for dp-free layers with linear maps between them and no constants. `extra` bits are carried where layers multiply what
    is left of weights that cancelled."""
    check_relative(network, "a kernel")
    if any(b != 0 for b in to_exact(network.bias)):
        raise InputError("kernels of several layers need a network without embedding bias")
    identity = exact_array(np.eye(network.embedding.shape[0], dtype=int).tolist())
    embedding, stream = to_exact(network.embedding), list[list[arb_poly]]()
    for index, layer in enumerate(network.layers):
        attention = layer.attention
        fused = fuse_layer(attention, identity[:, :1], zeros(len(identity)))
        with working_precision(fused.bits + 2 * GUARD + extra):
            if index == 0:  # here, as residual weights are as large as those of the heads that cancel them
                stream = [[arb_poly([arb(v)]) for v in row] for row in embedding]
            stream = _attended(attention, fused, stream, length)
            if index < len(network.layers) - 1:
                matrix = linear_map(layer.feedforward)
                if matrix is None:
                    raise InputError("kernels of several layers need linear maps between them; this network is not linear there")
                stream = [_combination(row, stream) for row in identity + matrix]
    return stream


def _combination(weights: np.ndarray, rows: list[list[arb_poly]]) -> list[arb_poly]:
    used = [(arb(w), row) for w, row in zip(weights, rows, strict=True) if w != 0]
    return [sum((w * row[c] for w, row in used), arb_poly([])) for c in range(len(rows[0]))]


def _attended(attention: Attention, fused: FusedLayer, stream: list[list[arb_poly]], length: int) -> list[list[arb_poly]]:
    """The stream after the heads, cut off after `length` values; heads that read the same are added up before they are multiplied."""
    value, output = to_exact(attention.value), to_exact(attention.output)
    readers: dict[tuple[fmpq, ...], list[tuple[int, int]]] = {}
    for h, i in np.ndindex(value.shape[:2]):
        readers.setdefault(tuple(value[h, i]), []).append((h, i))
    result = [list(row) for row in stream]
    for weights, heads in readers.items():
        read = _combination(np.array(weights, dtype=object), stream)
        for j in range(len(stream)):
            gains = [fmpq(0)] * len(attention.rpe)
            for h, i in heads:
                gains[h] += output[h, j, i]
            if any(g != 0 for g in gains):
                series = arb_poly(DeliveredKernel(fmpq(0), fused.groups(gains)).values(0, length))
                result[j] = [a + _cut(series * b, length) for a, b in zip(result[j], read, strict=True)]
    return result


def _cut(polynomial: arb_poly, length: int) -> arb_poly:
    return arb_poly(polynomial.coeffs()[:length])


def _deep_table(network: Transformer, length: int) -> np.ndarray:
    """Kernels (D, d, S) of a deep network in float64, S ≤ length: cut where the last quarter adds up to less than the last bit of 1."""
    count, extra = min(length, 256), 0
    while True:
        kernels = stream_kernels(network, count, extra)
        if _blurred(kernels):
            if extra > MAX_EXTRA:
                raise Refusal(f"the weights of these {len(network.layers)} layers cancel to less than {MAX_EXTRA} bits can show")
            extra = 2 * extra + GUARD
            continue
        columns = [[_padded(p, count) for p in row] for row in kernels]
        table = np.array(columns)
        if count == length or np.abs(table[..., -(count // 4) :]).sum(axis=-1).max() < 2.0**-60:
            return table
        count = min(length, 2 * count)


def _blurred(kernels: list[list[arb_poly]]) -> bool:
    """Whether some value is not known to the last bit of a number of its size, or of 1."""
    values = (v for row in kernels for polynomial in row for v in polynomial.coeffs())
    return not all(v.rad() <= arb(2) ** -60 * (1 + abs(v).mid()) for v in values)


MAX_EXTRA = 1 << 15
"""Bits beyond which values are given up: a hundred layers that lose three hundred bits each."""


def _padded(polynomial: arb_poly, length: int) -> list[float]:
    values = [float(v) for v in polynomial.coeffs()]
    return values + [0.0] * (length - len(values))


@partial(jax.jit, static_argnames="size")
def convolve(kernels: jax.Array, offset: jax.Array, tokens: jax.Array, size: int) -> jax.Array:
    """offset + Σ κ * x for tokens (…, N, d)."""
    length = tokens.shape[-2]
    spectrum = jnp.fft.rfft(kernels, n=size)
    signal = jnp.fft.rfft(jnp.swapaxes(tokens, -1, -2), n=size)
    stream = jnp.fft.irfft(jnp.einsum("dif,...if->...df", spectrum, signal), n=size)[..., :length]
    return jnp.swapaxes(stream, -1, -2) + offset


_read_out = jax.jit(lambda ffn, stream: as_outputs(feed_forward(ffn, stream)))


def stream_table(network: Transformer, length: int) -> tuple[np.ndarray, np.ndarray]:
    """Kernels (D, d, S), S ≤ length, and constant (D,) of the stream before the last feed-forward network, rounded once to float64."""
    if len(network.layers) == 1:
        layer = fuse(network)
        return _table(layer, length), to_float(layer.offset, "float64")
    return _deep_table(network, length), to_float(to_exact(network.bias), "float64")


def convolved(kernels: np.ndarray, offset: np.ndarray, tokens: np.ndarray) -> np.ndarray:
    """The stream (…, N, D) with these kernels on tokens (…, N, d), in float64."""
    size = 1 << (tokens.shape[-2] + kernels.shape[-1] - 1).bit_length()
    with with_x64("float64"):
        return np.asarray(convolve(jnp.asarray(kernels), jnp.asarray(offset), jnp.asarray(tokens), size))


def run_exact(network: Transformer, tokens: Any) -> np.ndarray:
    """An exact network on tokens (…, N, d): kernels in ball arithmetic, rounded once, then convolution and read-out in float64.

    Where only the first layer attends, all feed-forward networks are evaluated there, whatever they are.
    """
    tokens = np.asarray(tokens, dtype=np.float64)
    first, *later = network.layers
    if later and not any(to_exact(layer.attention.output).any() for layer in later):
        stream = convolved(*stream_table(replace(network, layers=(first,)), tokens.shape[-2]), tokens)
        with with_x64("float64"):
            for layer in network.layers[:-1]:
                stream = stream + np.asarray(feed_forward(as_floats(layer.feedforward), jnp.asarray(stream)))
    else:
        stream = convolved(*stream_table(network, tokens.shape[-2]), tokens)
    with with_x64("float64"):
        return np.asarray(_read_out(as_floats(network.layers[-1].feedforward), jnp.asarray(stream)))
