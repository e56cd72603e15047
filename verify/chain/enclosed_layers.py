"""The layers of any network in midpoints and radii (`verify.chain.enclosed`), position by position.

A position attends to the *listed* positions at the distances 0 … c−1 and, over the infinite past, to the *rest*: all positions from
distance c on, whose states lie in one box, which may be a single point (the constant state before an array). The rest is one more column:
its bias is log Σ_{s≥c} e^{pφ(s)}, or its weight the share of the mass, in closed form (`constructions.run.positions`).

In a finite window the rest ends with the longest array, and there may be less of it, or nothing: it is open.

Constants. The executor's biases, masses, taps, ratios and gains are rounded from balls, and so are the midpoints here:

* scores: b is off by (1 + 2^{−20})u|b| at most, and adding it to a score by u(|b| + |score|): 2.1u'|b| + 5u' max|score| in the radius. The
  executor has many terms where the rest is one column; those that are not clipped have |b| ≤ X + 2 max|score| + |largest bias|, so the
  rest has 2.1u'(2X + |b| + 2|largest bias|);
* taps and weights: the difference of the rounded numbers from the exact ones, in the radius of the weight;
* scans: Σ_s |g z^s − (1−e^{−p})e^{−ps}| ≤ |g − g*|/(1−z) + g*|z − z*|/((1−z)(1−z*)) times the largest value, and the rounding of the
  recurrence (`Arithmetic.scan`), added to the head's output.

Sums of the executor have as many terms as a head has weights that are not zero: those of its table or taps, else those of the longest
array and one for the constant past. What has no known rounding is refused: FFTs, the logarithm of a lag slot (tmx), lag tables, log[e^y].
"""

from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np
from flint import arb

from analyzer.errors import InputError, Refusal
from analyzer.numbers.exact import rational, upper, working_precision
from constructions.network.transformer import Attention, FeedForward, Transformer, check_plain, to_exact
from constructions.run import fast
from constructions.run.positions import BITS, MAX_TAPS, head_tails, head_weights
from verify.chain.enclosed import DOUBLE, OUTWARD, Enclosed, EnclosedArithmetic, stacked, stored
from verify.chain.rounding import Arithmetic, Rounded


@dataclass(frozen=True)
class Projected:
    """What attention reads of states (…, D): queries and keys (…, H, k), values (…, H, v)."""

    query: Enclosed
    key: Enclosed
    value: Enclosed

    def __getitem__(self, index: object) -> "Projected":
        return Projected(self.query[index], self.key[index], self.value[index])


def gathered(columns: list[Projected]) -> Projected:
    """Positions (B, H, ·) or (1, H, ·) beside each other, as (B, S, H, ·)."""
    batch = max(len(c.value.mid) for c in columns)

    def beside(parts: list[Enclosed]) -> Enclosed:
        wide = [Enclosed(*(np.broadcast_to(a, (batch, *a.shape[1:]))[:, None] for a in (p.mid, p.rad))) for p in parts]
        return stacked(wide, 1)

    return Projected(beside([c.query for c in columns]), beside([c.key for c in columns]), beside([c.value for c in columns]))


@dataclass(frozen=True)
class Columns:
    """Biases (logarithms) or weights of the positions that are looked at, (H, S); `open`: the last one is anything from 0 up to that;
    `rest`: the last one stands for many positions."""

    weights: Enclosed
    logarithms: bool
    open: bool = False
    rest: bool = False


class EnclosedAttention:
    """One attention layer, for arrays of at most `length` tokens."""

    def __init__(self, arithmetic: EnclosedArithmetic, attention: Attention, length: int) -> None:
        check_plain(attention, "an enclosure of all outputs")
        self.arithmetic, self.attention, self.length = arithmetic, attention, length
        heads, dv, width = attention.value.shape
        self.heads, self.infinite = heads, attention.window == "infinite"
        self.scored = attention.kind in ("dp", "nf")
        self.weights = {name: stored(np.asarray(getattr(attention, name))) for name in ("query", "key", "value", "output", "pointer")}
        self.projection = Enclosed(
            *(np.moveaxis(w, 1, 0).reshape(width, heads * dv) for w in (self._of("output").mid, self._of("output").rad))
        )
        self.columns = cache(self._columns)
        _check_known(attention, length, arithmetic.dtype)

    def _of(self, name: str) -> Enclosed:
        return self.weights[name]

    def project(self, x: Enclosed) -> Projected:
        """Queries, keys and values of states (B, D)."""

        def part(name: str) -> Enclosed:
            weights = self._of(name)
            heads, rows, width = weights.mid.shape
            return self.arithmetic.linear(weights.reshape(heads * rows, width), x).reshape(len(x.mid), heads, rows)

        return Projected(part("query"), part("key"), part("value"))

    @cached_property
    def _exact(self) -> list[tuple[str, arb, list[arb], arb]]:
        """(type, decay, table less its maximum, maximum) of every head."""
        tables = [[]] * self.heads if self.attention.table is None else [list(row) for row in to_exact(self.attention.table)]
        found = []
        for rpe, p, table in zip(self.attention.rpe, to_exact(self.attention.decay), tables, strict=True):
            top = max(table, default=p * 0)
            found.append((rpe, arb(p), [arb(b - top) for b in table], arb(top)))
        return found

    @property
    def reach(self) -> int | None:
        """Distances that heads see, None where that is all of them."""
        return None if self.attention.table is None else int(self.attention.table.shape[1])

    @property
    def terms(self) -> int:
        """Terms of the executor's sums."""
        if self.reach is not None:
            return self.reach + 1
        taps = self._constants["taps"].shape[1] if not self.scored and self._constants else 0
        return taps or self.length + 1

    @cached_property
    def _constants(self) -> dict[str, np.ndarray]:
        return {} if self.arithmetic.dtype == "exact" or self.scored else fast.head_constants(self.attention)

    def _columns(self, count: int, rest: bool) -> Columns:
        """The distances 0 … count−1 and, if wanted, everything beyond."""
        open_rest = rest and not self.infinite
        logarithms = self.scored or (open_rest and self.attention.kind == "dp-free")
        with working_precision(BITS):
            rows = [self._scored_row(h, count, rest) if logarithms else self._weight_row(h, count, rest) for h in range(self.heads)]
        weights = Enclosed(np.array([mid for mid, _ in rows]), np.array([rad for _, rad in rows]))
        if logarithms and not self.scored:  # weights and mass are rounded each
            weights = Enclosed(weights.mid, weights.rad + 4.1 * self.arithmetic.unit)
        return Columns(weights, logarithms, open_rest, rest)

    def _beyond(self, h: int, weights: list[arb]) -> arb:
        """Σ over the distances beyond the listed ones: for ever, or up to the longest array."""
        rpe, p, table, _ = self._exact[h]
        if self.infinite:
            return head_tails(rpe, p, table, weights)[-1]
        return sum(head_weights(rpe, p, table, self.length)[len(weights) :], arb(0))

    def _scored_row(self, h: int, count: int, rest: bool) -> tuple[np.ndarray, np.ndarray]:
        rpe, p, table, top = self._exact[h]
        weights = head_weights(rpe, p, table, count)
        tails = [self._beyond(h, weights)] if rest else []
        mid = np.array([float(w.log() + top) if w > 0 else -np.inf for w in [*weights, *tails]])
        known = np.where(np.isfinite(mid), np.abs(mid), 0)
        wide = np.zeros(len(mid))
        if rest:
            largest = float(known[:-1].min(initial=0.0)) if count else 0.0
            wide[-1] = 2 * self.arithmetic.deepest + 2 * max(largest, abs(float(top)))
        return mid, 2.1 * self.arithmetic.unit * (known + wide) * OUTWARD

    def _weight_row(self, h: int, count: int, rest: bool) -> tuple[np.ndarray, np.ndarray]:
        rpe, p, table, _ = self._exact[h]
        weights = head_weights(rpe, p, table, count)
        plain = self.attention.kind == "tmx"
        if not self.infinite:
            seen = sum(weights, arb(0))
            whole = arb(1) if plain or seen == 0 else seen
            mid = np.array([float(w / whole) for w in [*weights, *([self._beyond(h, weights)] if rest else [])]])
            return mid, 4.1 * self.arithmetic.unit * mid
        tails = head_tails(rpe, p, table, weights)
        whole = arb(1) if plain else tails[0]
        mid = np.array([float(w / whole) for w in [*weights, *(tails[-1:] if rest else [])]])
        off = self._tap_error(h, mid, count, rest) + 4 * DOUBLE * mid
        if rest and plain:
            off[-1] += 2.1 * self.arithmetic.unit * mid[-1]  # a constant of its own where nothing is listed
        return mid, off

    def _tap_error(self, h: int, mid: np.ndarray, count: int, rest: bool) -> np.ndarray:
        """How far the executor's weights over the infinite past are from the exact ones; scans are counted elsewhere."""
        if not self._constants or self.attention.rpe[h] == "lin":
            return np.zeros(len(mid))
        taps = self._constants["taps"]
        if taps.shape[1] == 0:
            return 2.1 * self.arithmetic.unit * mid
        row = taps[list(self.attention.heads_of(self.attention.rpe[h])).index(h)].astype(np.float64)
        known = np.concatenate([row, np.zeros(max(0, count - len(row)))])
        off = np.abs(known[:count] - mid[:count])
        return off if not rest else np.append(off, 2.1 * self.arithmetic.unit * (mid[-1] + row[count:].sum()) + self.arithmetic.unit)

    def _scan_error(self, largest: np.ndarray) -> np.ndarray:
        """Absolute errors (H,) of lin heads that are scanned, for values up to `largest` (H,)."""
        off = np.zeros(self.heads)
        if not self._constants or not self.infinite:
            return off
        arithmetic = Arithmetic(self.arithmetic.dtype)
        for k, h in enumerate(self.attention.heads_of("lin")):
            z, g = (to_exact(self._constants[name])[k] for name in ("ratio", "gain"))
            with working_precision(BITS):
                exact, size = (-self._exact[h][1]).exp(), arb(rational(float(largest[h])))
                scanned = arithmetic.scan(z, g, Rounded(size, arb(0)), size).error
                moved = abs(arb(g) - (1 - exact)) / (1 - arb(z)) + (1 - exact) * abs(arb(z) - exact) / ((1 - arb(z)) * (1 - exact))
                total = scanned + moved * size
                off[h] = upper(total / arb(g) if self.attention.kind == "tmx" else total)
        return off

    def attend(self, x: Enclosed, at: Projected, seen: Projected, columns: Columns, largest: np.ndarray) -> Enclosed:
        """Attention output (B, D) of states (B, D) with their projections, for positions (B, S, …) with these biases or weights.

        `largest` (H,) bounds the values of all positions that there may be.
        """
        kind, terms = self.attention.kind, self.terms
        if kind == "linear":
            mixed = self.arithmetic.linear_mean(at.query, seen.key, seen.value)
            return self.arithmetic.linear(self.projection, mixed.reshape(len(mixed.mid), -1))
        if self.infinite and not self.scored and set(self.attention.rpe) == {"lin"}:
            terms = seen.value.mid.shape[1]  # of the midpoint only: the executor's scans are counted by themselves
        weights = Enclosed(columns.weights.mid[None], columns.weights.rad[None])
        if self.scored:
            weights = self.arithmetic.logits(self.arithmetic.scores(at.query, seen.key), columns.weights)
        if kind in ("dp", "dp-free") and columns.logarithms:
            shape = (len(x.mid), *weights.mid.shape[1:])
            logits = Enclosed(np.broadcast_to(weights.mid, shape), np.broadcast_to(weights.rad, shape))
            mean = self.arithmetic.open_mean if columns.open else self.arithmetic.softmax_mean
            mixed = mean(logits, seen.value, terms)
        else:
            if columns.logarithms:
                many = np.ones(weights.mid.shape[-1])
                many[-1] = terms if columns.rest else 1  # each of the positions may be clipped
                weights = self.arithmetic.exponential(weights, many)
            mixed = self.arithmetic.weighted_sum(_opened(weights) if columns.open else weights, seen.value, terms)
        if not self.scored:
            mixed = Enclosed(mixed.mid, mixed.rad + self._scan_error(largest)[:, None])
        if kind == "tmx":
            slot = self.arithmetic.linear(self._of("pointer"), x)
            power = self.arithmetic.times(stored(np.asarray(self.attention.decay)), slot)
            factor = self.arithmetic.exponential(power)
            mixed = self.arithmetic.times(Enclosed(factor.mid[..., None], factor.rad[..., None]), mixed)
        return self.arithmetic.linear(self.projection, mixed.reshape(len(mixed.mid), -1))


def _opened(weights: Enclosed) -> Enclosed:
    """Weights whose last column may be anything from 0 up to what it is."""
    half = weights.mid[..., -1:] / 2
    return stacked([weights[..., :-1], Enclosed(half, (half + weights.rad[..., -1:]) * OUTWARD)], -1)


def _check_known(attention: Attention, length: int, dtype: str) -> None:
    """Refuse what runs with unknown roundings."""
    if attention.kind == "tmx" and set(attention.rpe) != {"lin"}:
        raise Refusal("log heads of tmx attention take the logarithm of a slot, whose rounding is not known")
    if dtype == "exact" or attention.kind in ("dp", "nf") or length <= MAX_TAPS:
        return
    if attention.window == "finite" or (set(attention.rpe) != {"lin"} and fast.head_constants(attention)["taps"].shape[1] == 0):
        raise Refusal(f"arrays of more than {MAX_TAPS} tokens run by FFT here, whose rounding is not certified")


class EnclosedNetwork:
    """All layers of a network, for arrays of at most `length` tokens; unless `executed`, as the exact function of its weights only."""

    def __init__(self, network: Transformer, length: int, executed: bool = True) -> None:
        if network.dtype != "exact" and any("factor" in c for c in fast.network_constants(network, 1)):
            raise Refusal("heads that read lag slots from tables are certified by their theorem only")
        if any("log" in layer.feedforward.precision for layer in network.layers):
            raise Refusal("a feed-forward network rounds to logarithms, log[e^y], whose rounding is not known")
        self.network = network
        self.arithmetic = EnclosedArithmetic(network.dtype if executed else "exact")
        self.attentions = [EnclosedAttention(self.arithmetic, layer.attention, length) for layer in network.layers]
        self.embedding, self.bias = stored(np.asarray(network.embedding)), stored(np.asarray(network.bias))

    def embed(self, tokens: Enclosed, places: np.ndarray | None = None) -> Enclosed:
        """States of tokens (B, d), which stand at these places (B,) of an array where the network has absolute positions."""
        embedded = self.arithmetic.linear(self.embedding, tokens, self.bias)
        if self.network.positions is None:
            return embedded
        if places is None:
            raise Refusal("this network has absolute positions: its states are known for tokens at places only")
        return self.arithmetic.plus(embedded, stored(np.asarray(self.network.positions)[places]))

    @property
    def past(self) -> Enclosed:
        """The state before an array, (1, D)."""
        return self.bias[None]

    def feed(self, index: int, u: Enclosed) -> Enclosed:
        """The feed-forward half of a layer, with its residual unless it is the last one."""
        ffn: FeedForward = self.network.layers[index].feedforward
        inner, bias, outer = (stored(np.asarray(w)) for w in (ffn.inner, ffn.bias, ffn.outer))
        change = self.arithmetic.linear(outer, self.arithmetic.relu(self.arithmetic.linear(inner, u, bias)))
        if "integer" in ffn.precision:
            whole, rounded = np.array([p == "integer" for p in ffn.precision]), self.arithmetic.integer(change)
            change = Enclosed(np.where(whole, rounded.mid, change.mid), np.where(whole, rounded.rad, change.rad))
        return change if index == len(self.network.layers) - 1 else self.arithmetic.plus(u, change)

    def layer(self, index: int, x: Enclosed, at: Projected, seen: Projected, columns: Columns, largest: np.ndarray) -> Enclosed:
        """States (B, D) after a layer; the outputs (B, c) after the last one."""
        return self.feed(index, self.arithmetic.plus(x, self.attentions[index].attend(x, at, seen, columns, largest)))


def enclosed_pass(network: Transformer, tokens: np.ndarray, first: int = 0) -> Enclosed:
    """Outputs (B, N), or (B, N, c) if there are several, for token arrays (B, N, d), which count as given in the network's own type.

    The last layer is evaluated at positions from `first` on only, −1 being the last one.
    """
    batch, length, dim = tokens.shape
    enclosed = EnclosedNetwork(network, length)
    given = tokens if network.dtype == "exact" else tokens.astype(network.dtype).astype(np.float64)
    flat = given.reshape(batch * length, dim).astype(np.float64)
    if network.positions is not None and length > len(network.positions):
        raise InputError(f"this network has positions for {len(network.positions)} tokens; the array has {length}")
    x = enclosed.embed(Enclosed(flat, np.zeros_like(flat)), np.tile(np.arange(length), batch)).reshape(batch, length, -1)
    past = enclosed.past
    for index, attention in enumerate(enclosed.attentions):
        states = [x[:, t] for t in range(length)]
        projected, before = [attention.project(state) for state in states], attention.project(past)
        largest = np.max([p.value.size.max(axis=(0, 2), initial=0.0) for p in [*projected, before]], axis=0)
        after = []
        for t in range(first % length if index == len(enclosed.attentions) - 1 else 0, length):
            if attention.attention.window == "full":
                flat = np.zeros((attention.heads, length))
                listed, columns = projected, Columns(Enclosed(flat, flat), True)
            else:
                rest = attention.infinite
                listed = [*reversed(projected[: t + 1]), *([before] if rest else [])]
                columns = attention.columns(t + 1, rest)
            after.append(enclosed.layer(index, states[t], projected[t], gathered(listed), columns, largest))
        if attention.infinite:
            past = enclosed.layer(index, past, before, gathered([before]), attention.columns(0, True), largest)
        else:
            past = enclosed.feed(index, past)
        x = Enclosed(np.stack([a.mid for a in after], 1), np.stack([a.rad for a in after], 1))
    return x[..., 0] if network.outputs == 1 else x
