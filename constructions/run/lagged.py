"""Heads whose scores read a lag slot: their kernels κ(s; y) for a slot value y, and the execution of exact networks made of them.

A normalisation-free score ⟨W_Q X_t, W_K X_{t−s}⟩ − p s whose keys read only coordinates that are the same at every position (the
constant slot) is u·X_t − p s: the head multiplies Σ_s e^{−ps} V X_{t−s} by e^{u·X_t}. tmx heads are of this form from the start, with
the factor e^{p w·X_t} (lin) or (w·X_t)^p (log). So with y the value of the lag slot that a memory's heads read,

    κ(s; y) = Σ_h a_h e^{θ_h y} e^{−p_h s}    or    Σ_h a_h e^{θ_h y} s^{−p_h}    or    Σ_h a_h (θ_h y)^{p_h} s^{−p_h}  (tmx, log).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.kernels.l1_norms import DeliveredKernel, Exponentials, Powers, Taps
from analyzer.lemmas.lag_encoding import Form, slot_ball, slot_form
from analyzer.numbers.exact import magnitude, rational, working_precision
from analyzer.targets.adaptive import MAX_LAG
from constructions.network.precision import tap_count, with_x64
from constructions.network.transformer import Attention, Transformer, check_relative, checked_decays, to_exact, to_float, zeros
from constructions.run.reference import as_floats, as_outputs, feed_forward

GUARD = 256
"""Bits carried beyond the largest amplitude: kernels of size 1 keep about that many through the cancellation."""
MAX_BITS = 200_000
"""Amplitudes beyond 2^this are taken for damage: a paper bank of 2048 heads for a lag of some hundred stays below."""


def constant_coordinates(network: Transformer) -> list[dict[int, fmpq]]:
    """Before every layer, the residual coordinates that are the same at every position, with their values."""
    check_relative(network, "a lag slot")
    embedding, bias = to_exact(network.embedding), to_exact(network.bias)
    known = {j: bias[j] for j in range(len(bias)) if not any(embedding[j])}
    result = []
    for layer in network.layers:
        result.append(dict(known))
        output = to_exact(layer.attention.output)
        known = {j: v for j, v in known.items() if not any(output[:, j, :].flat)}
        ffn = layer.feedforward
        inner, outer = to_exact(ffn.inner), to_exact(ffn.outer)
        if len(outer) != len(bias):
            break  # the read-out
        hidden: dict[int, fmpq | None] = {}
        for n, (row, c) in enumerate(zip(inner, to_exact(ffn.bias), strict=True)):
            reads = [int(j) for j in np.nonzero(row)[0]]
            value = sum((row[j] * known[j] for j in reads), c) if all(j in known for j in reads) else None
            hidden[n] = None if value is None else max(value, fmpq(0))
        for j in list(known):
            terms = [(outer[j, n], hidden[int(n)]) for n in np.nonzero(outer[j])[0]]
            if any(value is None for _, value in terms) or (ffn.precision and ffn.precision[j] != "none"):
                del known[j]
            else:
                known[j] += sum((a * value for a, value in terms if value is not None), fmpq(0))
    return result


@dataclass(frozen=True)
class LaggedLayer:
    """The attention of one layer: gains from stream coordinate to stream coordinate, and what the scores read."""

    kind: str
    rpe: tuple[str, ...]
    decays: np.ndarray  # (H,)
    gains: np.ndarray  # (H, D, D) W_O W_V
    scores: np.ndarray  # (H, D) nf: u_h; tmx: the pointer w_h
    constants: dict[str, np.ndarray] | None = None
    """Of a float network the rounded ratios, taps and factors that the fast pass computes with; None for an exact one."""

    @property
    def form(self) -> Form:
        """What the lag slots of this layer hold."""
        return slot_form(self.rpe[0], "tmx" if self.kind == "tmx" else "dp")

    def writers(self, row: int) -> list[int]:
        """Heads with a gain onto a coordinate."""
        return [h for h in range(len(self.rpe)) if any(self.gains[h, row])]

    def slot(self, heads: Sequence[int]) -> int:
        """The one coordinate that the scores of these heads read."""
        read = {int(j) for h in heads for j in np.nonzero(self.scores[h])[0]}
        if len(read) != 1:
            raise InputError(f"the scores of a memory's heads read {len(read)} coordinates; these theorems have one lag slot per memory")
        return read.pop()

    def amplitude(self, h: int, slot: int, value: arb) -> arb:
        """e^{θ_h y}, or (θ_h y)^{p_h} for tmx log heads; for float networks the factor from their table, y an integer."""
        if self.constants is not None:
            return arb(rational(float(self.constants["factor"][h, int(value.unique_fmpz())])))
        rate, p = arb(self.scores[h, slot]), arb(self.decays[h])
        if self.kind != "tmx":
            return (rate * value).exp()
        return (p * rate * value).exp() if self.rpe[h] == "lin" else (rate * value).max(arb(1)) ** p

    def bits(self, value: arb) -> int:
        """Working precision for kernels at a slot value."""
        with working_precision(64):
            largest = 0
            for h in range(len(self.rpe)):
                gain = max((abs(g) for g in self.gains[h].flat), default=fmpq(0))
                if gain != 0:
                    amplitude = self.amplitude(h, self.slot([h]), value)
                    size = magnitude(arb(gain)) + magnitude(amplitude) if amplitude.is_finite() else MAX_BITS
                    largest = max(largest, size)
        if largest >= MAX_BITS:
            raise Refusal(f"a head multiplies its values by more than 2^{MAX_BITS}, more than any construction needs")
        return GUARD + max(0, largest)

    def kernel(self, row: int, column: int, value: arb, spikes: dict[int, fmpq] | None = None) -> DeliveredKernel:
        """κ(s; y) from stream coordinate `column` onto `row`, minus the spikes; call it at the working precision `bits`."""
        heads = self.writers(row)
        used = [h for h in heads if self.gains[h, row, column] != 0]
        groups: list[Exponentials | Powers | Taps] = []
        slot = self.slot(heads) if heads else 0
        if self.constants is not None:
            amplitudes = [arb(self.gains[h, row, column]) * self.amplitude(h, slot, value) for h in used]
            groups = self._rounded(used, amplitudes)
            return DeliveredKernel(fmpq(0), tuple(groups), tuple(sorted((spikes or {}).items())))
        for kind in ("lin", "log"):
            members = sorted((h for h in used if self.rpe[h] == kind), key=lambda h: self.decays[h])
            if not members:
                continue
            exact = tuple(arb(self.gains[h, row, column]) * self.amplitude(h, slot, value) for h in members)
            decays = [self.decays[h] for h in members]
            progression = len(members) > 2 and len({b - a for a, b in pairwise(decays)}) == 1
            if kind == "lin":
                groups.append(Exponentials(tuple((-arb(p)).exp() for p in decays), exact, progression))
            else:
                groups.append(Powers(tuple(decays), exact, progression))
        return DeliveredKernel(fmpq(0), tuple(groups), tuple(sorted((spikes or {}).items())))

    def _rounded(self, heads: list[int], amplitudes: list[arb]) -> list[Exponentials | Powers | Taps]:
        """The kernels of float heads, with their rounded ratios or taps."""
        assert self.constants is not None
        if self.rpe[0] == "lin":
            ratios = tuple(arb(rational(float(self.constants["ratio"][h]))) for h in heads)
            return [Exponentials(ratios, tuple(amplitudes))]
        taps = self.constants["taps"]
        table = [
            sum((a * arb(rational(float(taps[h, s]))) for h, a in zip(heads, amplitudes, strict=True)), arb(0))
            for s in range(taps.shape[1])
        ]
        return [Taps(tuple(table))]


def lagged_layer(attention: Attention, constants: dict[int, fmpq]) -> LaggedLayer:
    """The stored attention as a lagged layer; refused if its scores couple pairs of positions."""
    if attention.kind not in ("nf", "tmx") or attention.window != "infinite":
        raise InputError(f"attention is {attention.kind}, {attention.window}; lag slots need nf or tmx attention with an infinite window")
    value, output = to_exact(attention.value), to_exact(attention.output)
    gains = np.array([o @ v for o, v in zip(output, value, strict=True)])
    decays = checked_decays(attention)
    if attention.kind == "tmx":
        return LaggedLayer("tmx", attention.rpe, decays, gains, to_exact(attention.pointer))
    scores = []
    for query, key in zip(to_exact(attention.query), to_exact(attention.key), strict=True):
        seen = [sum((row[j] * constants[int(j)] for j in np.nonzero(row)[0] if int(j) in constants), fmpq(0)) for row in key]
        if any(int(j) not in constants for row in key for j in np.nonzero(row)[0]):
            raise InputError("a key reads a coordinate that differs between positions; these theorems read the constant slot")
        scores.append(sum((row * c for row, c in zip(query, seen, strict=True)), start=zeros(query.shape[1])))
    return LaggedLayer("nf", attention.rpe, decays, gains, np.array(scores))


def lagged_layers(network: Transformer) -> list[LaggedLayer]:
    """Every layer's attention; of float networks with the constants of the fast pass, refused if that has none."""
    known = constant_coordinates(network)
    layers = [lagged_layer(layer.attention, c) for layer, c in zip(network.layers, known, strict=True)]
    if network.dtype == "exact":
        return layers
    counted = [lag_constants(network, index, layer) for index, layer in enumerate(layers)]
    if any(constants is None for constants in counted):
        raise InputError("lag slots of this float network are not integers, or its heads overflow, forget too slowly or need too many taps")
    return [replace(layer, constants=constants) for layer, constants in zip(layers, counted, strict=True)]


MAX_TABLE = {"lin": 11, "log": 8}
"""Lags that a table of factors reaches at most. lin: in float64 error and rounding of the best bank together are 0.46 at lag 10 and 0.88 at
lag 11. log: the best minimal bank costs 0.75 at lag 9, and a longer table would ask for more taps."""
MAX_TAPS = 4096
"""Taps summed one by one; beyond that a log head is not run by the fast pass."""


def lag_constants(network: Transformer, index: int, layer: LaggedLayer) -> dict[str, np.ndarray] | None:
    """What the fast pass needs for a float layer with lag slots, correctly rounded outside XLA; None if it does not apply.

    `slot`: the coordinate that each head reads; `factor[h, n]`: fl(e^{θ_h n}) or fl((θ_h n)^{p_h}) for n = 0 … `reach[h]`, where a slot
    beyond the reach is read as the reach. `ratio`: fl(e^{−p}), below 1; `taps`: fl(s^{−p}) until reach^p times the rest is below half a
    unit roundoff (heads that are off have none).
    """
    dtype = np.dtype(network.dtype)
    slots = [np.nonzero(row)[0] for row in layer.scores]
    read = {int(j) for row in slots for j in row}
    if any(len(row) > 1 for row in slots) or len(set(layer.rpe)) > 1 or not all(_is_integer(network, index, j) for j in read):
        return None
    slot = [int(row[0]) if len(row) else 0 for row in slots]
    heads = range(len(layer.rpe))
    with working_precision(160):
        ratio = np.array([float((-arb(p)).exp()) for p in layer.decays]).astype(dtype)
        if not (ratio < 1).all():
            return None
        tables = [_factors(network, index, layer, h, slot[h], ratio[h]) for h in heads]
        if not all(tables):
            return None
        longest = max(map(len, tables))
        taps = np.zeros((len(layer.rpe), 0), dtype=dtype)
        if layer.rpe[0] == "log":
            used = [h for h in heads if any(layer.gains[h].flat)]
            count = max((tap_count(layer.decays[h], network.dtype, len(tables[h]) - 1) for h in used), default=1)
            if count > MAX_TAPS:
                return None
            taps = np.zeros((len(layer.rpe), count + 1), dtype=dtype)
            for h in used:
                taps[h, 1:] = [float(arb(s) ** -arb(layer.decays[h])) for s in range(1, count + 1)]
    return {
        "slot": np.array(slot),
        "reach": np.array([len(table) - 1 for table in tables]),
        "factor": np.array([table + table[-1:] * (longest - len(table)) for table in tables]).astype(dtype),
        "ratio": ratio,
        "taps": taps,
    }


def _factors(network: Transformer, index: int, layer: LaggedLayer, h: int, slot: int, ratio: np.floating) -> list[float]:
    """The factors of a head for the lags 0, 1, … as long as nothing that it computes can overflow.

    A position near the start of an array may hold any lag, so this bounds value, state, factor and their product, for tokens in [−1, 1], by
    an eighth of the largest float, and what the output projection makes of them by its root over H: H heads together stay below the
    root, and feed-forward weights have the other half of the exponents. Heads that are off count too: 0 times infinity is not 0.
    """
    attention = network.layers[index].attention
    value, output = to_exact(attention.value)[h], to_exact(attention.output)[h]
    largest = arb(float(np.finfo(network.dtype).max))
    mass = 1 / (1 - arb(rational(float(ratio)))) if layer.rpe[h] == "lin" else 1 + 1 / (arb(layer.decays[h]) - 1)
    inside, outside = arb(1), arb(0)
    for i, row in enumerate(value):
        size = sum((abs(arb(w)) for w in row), arb(0))
        inside += size
        outside += size * max((abs(arb(w)) for w in output[:, i]), default=arb(0))
    table: list[float] = []
    for n in range(MAX_TABLE[layer.rpe[h]] + 1):
        factor = layer.amplitude(h, slot, arb(n))
        if not ((1 + factor) * inside * mass < largest / 8 and factor * outside * mass < largest.sqrt() / len(layer.rpe)):
            break
        table.append(float(factor))
    return table


def _is_integer(network: Transformer, index: int, coordinate: int) -> bool:
    """Whether a coordinate holds an integer before layer `index`: it starts at 0 and only rounded feed-forward outputs are added."""
    if any(to_exact(network.embedding)[coordinate]) or to_exact(network.bias)[coordinate] != 0:
        return False
    for number, layer in enumerate(network.layers[: index + 1]):
        if any(to_exact(layer.attention.output)[:, coordinate].flat):
            return False
        ffn = layer.feedforward
        written = number < index and any(to_exact(ffn.outer)[coordinate])
        if written and (not ffn.precision or ffn.precision[coordinate] != "integer"):
            return False
    return True


MAX_KERNELS = 256
"""Different lags in one array that a network is run with."""


@partial(jax.jit, static_argnames="size")
def _extract(kernels: jax.Array, values: jax.Array, lag: jax.Array, lags: jax.Array, size: int) -> jax.Array:
    """Σ_s κ(s; lag_t) X_{t−s}: kernels (B, J, C, S) for the lags (B,), values (…, N, C), lag (…, N)."""
    length = values.shape[-2]
    signal = jnp.fft.rfft(jnp.swapaxes(values, -1, -2), n=size)

    def add(total: jax.Array, entry: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, None]:
        kernel, served = entry
        spectrum = jnp.einsum("jcf,...cf->...jf", jnp.fft.rfft(kernel, n=size), signal)
        memory = jnp.swapaxes(jnp.fft.irfft(spectrum, n=size)[..., :length], -1, -2)
        return total + jnp.where((lag == served)[..., None], memory, 0), None

    start = jnp.zeros((*values.shape[:-1], kernels.shape[1]))
    return jax.lax.scan(add, start, (kernels, lags))[0]


@dataclass
class ExactRunner:
    """An exact network of lagged layers: slots and read-out in float64, kernels from ball arithmetic, one per lag that occurs.

    A lag slot is read as the nearest integer (of e^y where it holds logarithms) up to MAX_LAG, which it is wherever the network's
    certificate holds. Positions whose lags reach before the array may hold anything, even what is not finite; no other position sees it.
    """

    network: Transformer
    _kernels: dict[tuple[int, int, int, int, int], list[float]] = field(default_factory=dict)

    @cached_property
    def layers(self) -> list[LaggedLayer]:
        return lagged_layers(self.network)

    @cached_property
    def _silent_before(self) -> set[int]:
        """Coordinates that are 0 at the positions before the array: no bias, and no inner layer writes them."""
        silent = {j for j, b in enumerate(to_exact(self.network.bias)) if b == 0}
        for layer in self.network.layers[:-1]:
            written = to_exact(layer.attention.output), to_exact(layer.feedforward.outer)
            silent = {j for j in silent if not any(written[0][:, j].flat) and not any(written[1][j])}
        return silent

    def _row(self, index: int, row: int, column: int, lag: int, length: int) -> list[float]:
        key = (index, row, column, lag, length)
        if key not in self._kernels:
            layer = self.layers[index]
            with working_precision(layer.bits(slot_ball(layer.form, lag))):
                self._kernels[key] = layer.kernel(row, column, slot_ball(layer.form, lag)).floats(length)
        return self._kernels[key]

    def stream(self, tokens: Any) -> list[np.ndarray]:
        """The residual stream (…, N, D) after every inner layer, and last the outputs, (…, N) or (…, N, c)."""
        return [after for _, after in self._layers(tokens)]

    def attended(self, tokens: Any) -> list[np.ndarray]:
        """The residual stream (…, N, D) after the attention of every layer."""
        return [before for before, _ in self._layers(tokens)]

    def _layers(self, tokens: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        """Of every layer the stream between its halves, and after it."""
        tokens = np.asarray(tokens, dtype=np.float64)
        past = to_float(self.network.bias, "float64")
        with with_x64("float64"):
            embedding = to_float(self.network.embedding, "float64")
            x = np.asarray(jnp.asarray(tokens) @ embedding.T + past)
            result = []
            for index, layer in enumerate(self.network.layers):
                between = x + self._attend(index, x)
                change = np.asarray(_feed_forward(as_floats(layer.feedforward), jnp.asarray(between)))
                last = index == len(self.network.layers) - 1
                x = as_outputs(change) if last else between + change
                result.append((between, x))
        return result

    def memories(self, index: int) -> list["LagRows"]:
        """What a layer extracts: for every lag slot the coordinates that are written, and those that values are read from."""
        layer = self.layers[index]
        by_slot: dict[int, list[int]] = {}
        for row in range(layer.gains.shape[1]):
            if heads := layer.writers(row):
                by_slot.setdefault(layer.slot(heads), []).append(row)
        found = []
        for slot, rows in by_slot.items():
            columns = sorted({int(c) for row in rows for c in np.nonzero(layer.gains[:, row].any(axis=0))[0]})
            if not set(columns) <= self._silent_before:
                raise InputError("a value reads a coordinate that is not zero before the array; these theorems read the token")
            found.append(LagRows(slot, rows, columns, layer.form == "log", 1 if "log" in layer.rpe else 0))
        return found

    def kernels(self, index: int, memory: "LagRows", lags: Sequence[int], length: int) -> np.ndarray:
        """κ(s; n) for these lags n, (lags, rows, columns, S) with S ≤ length, each rounded once from balls."""
        kernels = [[[self._row(index, row, c, lag, length) for c in memory.columns] for row in memory.rows] for lag in lags]
        longest = max(len(values) for by_row in kernels for by_column in by_row for values in by_column)
        table = np.zeros((len(lags), len(memory.rows), len(memory.columns), longest))
        for b, r, c in np.ndindex(*table.shape[:3]):
            table[b, r, c, : len(kernels[b][r][c])] = kernels[b][r][c]
        return table

    def _attend(self, index: int, x: np.ndarray) -> np.ndarray:
        length = x.shape[-2]
        change = np.zeros_like(x)
        for memory in self.memories(index):
            lag = memory.lags(x)
            lags = np.unique(lag)
            if len(lags) > MAX_KERNELS:
                raise InputError(f"{len(lags)} different lags arise in this array; {MAX_KERNELS} is the most that are run")
            table = self.kernels(index, memory, [int(b) for b in lags], length)
            size = 1 << (length + table.shape[-1] - 1).bit_length()
            extracted = _extract(jnp.asarray(table), jnp.asarray(x[..., memory.columns]), jnp.asarray(lag), jnp.asarray(lags), size)
            change[..., memory.rows] += np.asarray(extracted)
        return change


@dataclass(frozen=True)
class LagRows:
    """The coordinates of one layer that are extracted for the lag in one slot."""

    slot: int
    rows: list[int]
    columns: list[int]
    logarithm: bool  # the slot holds log n
    least: int

    def lags(self, x: np.ndarray) -> np.ndarray:
        """The lags in the slot of a stream (…, N, D): the nearest integers."""
        held = np.nan_to_num(x[..., self.slot], nan=1.0)
        return np.clip(np.rint(np.exp(np.minimum(held, 40)) if self.logarithm else held), self.least, MAX_LAG)


_feed_forward = jax.jit(feed_forward)
