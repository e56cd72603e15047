"""The certificate of addition: all inputs at once, from the stored weights, by a dynamic programme over carries.

A head's state S_t = z S_{t−1} + v_t has seen B^{2t+2} sequences of digits, but what comes after depends on them only through S and the
carry. For each carry the programme keeps the *span* of S, the least and the largest value that any digits with this carry give,

    span_{t+1}(c') = hull of z span_t(c) + v(a, b) over all c, a, b with 1{a + b + c ≥ B} = c',

with digits that attain its ends. At every position a network then has 2B² cases, a carry and a pair of digits, and each is one pass of
its two layers over a span; the output is to be (a + b + c) mod B. Ramps leave a span of width 0 where a carry is restored, so the
certificate of a right network says 0, and that of a wrong one has digits at which it is wrong.

Spans have rational ends and contain both the exact function of the stored weights and what the executor computes. A sum of m products
x_i ∈ [l_i, h_i] is within Σ γ|x_i| of the exact one in floats, for any order, fused or not, and x ± γ|x| increases with x: so it lies in

    [Σ (l_i − γ|l_i|) − φ,  Σ (h_i + γ|h_i|) + φ],     γ = mu(1 + 2^{−10}) ≥ mu/(1 − mu),     φ for results that are flushed.

The relative part stays at the end where it belongs: a slot may hold 1 at one end and 10^{12} at the other. Sums of known dyadic numbers
whose partial sums the type holds are exact. `verify.chain.rounding` has the hypotheses, and the constants of the scan are those of
`constructions.run.fast`: the stored decay's e^{−p} and its float are hulled, and so are the gains.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import jax
import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.numbers.exact import UNIT, lower, rational, upper, working_precision
from analyzer.targets.tasks.addition import SCALE, AdditionTarget
from analyzer.theorems.library.addition import DIGIT_LEMMA, GAP_LEMMA, ID, lost, proof_graph
from constructions.network.precision import SMALLEST
from constructions.network.recurrences import chosen
from constructions.network.transformer import Attention, FeedForward, Transformer, to_exact
from constructions.run import fast
from constructions.run.execute import run
from verify.chain.certificate import Certificate, StrangeWeights, matched

ZERO = fmpq(0)
BITS = {"float32": 24, "float64": 53}
SHORT = fmpq(1, 2**160)
"""Taken for the least normal number where that is less: rationals stay short."""
LEAST_RATIO = fmpq(1, 2**1100)
"""Ratios e^{−p} below this, beyond every float, are taken for anything from 0 on."""
Pair = tuple[int, int]


@dataclass(frozen=True)
class Span:
    """All numbers from `low` to `high`."""

    low: fmpq
    high: fmpq

    @property
    def largest(self) -> fmpq:
        return max(abs(self.low), abs(self.high))

    def times(self, other: "Span") -> "Span":
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return Span(min(ends), max(ends))


def point(value: fmpq) -> Span:
    return Span(value, value)


def hulled(spans: Sequence[Span]) -> Span:
    return Span(min(s.low for s in spans), max(s.high for s in spans))


Stream = tuple[Span, ...]


class SpanArithmetic:
    """Sums and products of spans in a float type, or exactly."""

    def __init__(self, dtype: str) -> None:
        self.unit = UNIT.get(dtype, ZERO) * fmpq(1025, 1024)
        self.tiny = ZERO if dtype == "exact" else max(SMALLEST[dtype], SHORT)
        self.bits = BITS.get(dtype, 0)
        self.most = None if dtype == "exact" else rational(float(np.finfo(dtype).max)) / 4

    def dot(self, weights: Sequence[Span], inputs: Sequence[Span]) -> Span:
        """Σ w_i x_i; products that are 0 add nothing, and those with powers of 2 are exact but for flushing."""
        terms = [(w, x, w.times(x)) for w, x in zip(weights, inputs, strict=True)]
        terms = [(w, x, p) for w, x, p in terms if p.low != 0 or p.high != 0]
        products = [p for _, _, p in terms]
        if self.most is not None and not sum((p.largest for p in products), ZERO) < self.most:
            raise StrangeWeights("a sum of this network may overflow: what runs then is no number")
        low, high = sum((p.low for p in products), ZERO), sum((p.high for p in products), ZERO)
        if self.unit == 0 or self._held(products):
            return Span(low, high)
        if not 1025 * len(terms) * self.unit <= 1:
            raise StrangeWeights(f"sums of {len(terms)} terms are too long for the type of this network")
        gamma = (len(terms) - all(_power_of_two(w) for w, _, _ in terms)) * self.unit
        sizes = max(w.largest for w, _, _ in terms) + max(x.largest for _, x, _ in terms)
        flushed = 2 * len(weights) * self.tiny * (1 + sizes)
        low -= gamma * sum((abs(p.low) for p in products), ZERO) + flushed
        high += gamma * sum((abs(p.high) for p in products), ZERO) + flushed
        return Span(low, high)

    def _held(self, products: Sequence[Span]) -> bool:
        """Whether all terms are known numbers on one dyadic grid with a sum of sizes that the type holds: then no order rounds."""
        finest = max((int(p.low.q) for p in products), default=1)
        known = all(p.low == p.high for p in products) and finest < 2**64 and finest & (finest - 1) == 0
        return known and sum((abs(p.low) for p in products), ZERO) * finest <= 2**self.bits

    def linear(self, rows: np.ndarray, x: Stream, bias: np.ndarray | None = None) -> Stream:
        """W x + b for exact weights."""
        shifts = [ZERO] * len(rows) if bias is None else bias
        return tuple(self.dot([*map(point, row), point(b)], [*x, ONE]) for row, b in zip(rows, shifts, strict=True))

    def plus(self, a: Stream, b: Stream) -> Stream:
        return tuple(self.dot([ONE, ONE], pair) for pair in zip(a, b, strict=True))


ONE = point(fmpq(1))


def _power_of_two(weight: Span) -> bool:
    value = weight.low
    return value == weight.high and all(k & (k - 1) == 0 for k in (abs(int(value.p)), int(value.q)))


def _nearest_integer(value: fmpq) -> fmpq:
    """Ties to even."""
    return fmpq(round(Fraction(int(value.p), int(value.q))))


@dataclass(frozen=True)
class Column:
    """A column of the sum: its carry, its pair of digits, what the head has seen, what comes out and what should."""

    position: int
    carry: int
    pair: Pair
    state: Span
    output: Span
    wanted: int
    lowest: tuple[Pair, ...]
    """Digits up to this position at which the state is lowest, and those at which it is highest."""
    highest: tuple[Pair, ...]

    @property
    def error(self) -> fmpq:
        return max(abs(self.output.low - self.wanted), abs(self.output.high - self.wanted))


class AdderReading:
    """A stored network on pairs of digits: the exact function of its weights, and with `executed` what runs beside it."""

    def __init__(self, network: Transformer, target: AdditionTarget, executed: bool = True) -> None:
        self.network, self.target = network, target
        self.arithmetic = SpanArithmetic(network.dtype if executed else "exact")
        attention = network.layers[0].attention
        self.ratio, self.gain = _constants(attention, target, executed and network.dtype != "exact")
        self.value, self.output = to_exact(attention.value)[0], to_exact(attention.output)[0]
        self.neurons = [_exact_neurons(layer.feedforward) for layer in network.layers]
        self.streams = self._streams()

    def _streams(self) -> dict[tuple[Stream, int], Pair]:
        """A pair for every embedded token and sum of its digits: what both share, all that follows shares."""
        embedding, bias = to_exact(self.network.embedding), to_exact(self.network.bias)
        digits, found = range(self.target.base), dict[tuple[Stream, int], Pair]()
        for a in digits:
            for b in digits:
                token = (point(fmpq(a, SCALE)), point(fmpq(b, SCALE)))
                found.setdefault((self.arithmetic.linear(embedding, token, bias), a + b), (a, b))
        return found

    @property
    def unit(self) -> fmpq:
        """What one more in a digit adds to a value."""
        zero, one = (self._value(next(x for (x, total) in self.streams if total == k)) for k in (0, 1))
        return one.low - zero.high

    def _value(self, x: Stream) -> Span:
        return self.arithmetic.linear(self.value, x)[0]

    def step(self, state: Span, x: Stream) -> Span:
        """z S + v: the product is rounded, then the sum."""
        moved = self.arithmetic.dot([self.ratio], [state])
        return self.arithmetic.dot([ONE, ONE], [moved, self._value(x)])

    @property
    def start(self) -> Span:
        """The state before the array: that of the constant W_V b_E for ever."""
        value = self._value(tuple(map(point, to_exact(self.network.bias))))
        if value.low == value.high == 0:
            return value
        inverse = Span(1 / self.gain.high, 1 / self.gain.low)
        return self.arithmetic.dot([inverse], [value])

    def outputs(self, state: Span, x: Stream) -> Span:
        """What comes out for this state of the head and this embedded token."""
        mixed = self.arithmetic.dot([self.gain], [state])
        x = self.arithmetic.plus(x, self.arithmetic.linear(self.output, (mixed,)))
        for index, (inner, bias, outer, precision) in enumerate(self.neurons):
            hidden = tuple(Span(max(s.low, ZERO), max(s.high, ZERO)) for s in self.arithmetic.linear(inner, x, bias))
            change = self.arithmetic.linear(outer, hidden)
            if precision:
                change = tuple(
                    Span(_nearest_integer(s.low), _nearest_integer(s.high)) if p == "integer" else s
                    for s, p in zip(change, precision, strict=True)
                )
            x = change if index == len(self.neurons) - 1 else self.arithmetic.plus(x, change)
        return x[0]

    def columns(self) -> Iterator[Column]:
        """Every carry and pair at every position."""
        base = self.target.base
        states: dict[int, tuple[Span, tuple[Pair, ...], tuple[Pair, ...]]] = {0: (self.start, (), ())}
        for t in range(self.target.length):
            left: dict[int, list[Column]] = defaultdict(list)
            for carry, (before, lowest, highest) in states.items():
                for (x, total), pair in self.streams.items():
                    state, out = self.step(before, x), int(total + carry >= base)
                    seen = (*lowest, pair), (*highest, pair)
                    found = Column(t, carry, pair, state, self.outputs(state, x), total + carry - base * out, *seen)
                    left[out].append(found)
                    yield found
            states = {out: _ends(found) for out, found in left.items()}

    def lost(self, columns: Sequence[Column]) -> fmpq:
        """The largest share of the gap B^{−t} between states that leave a carry and states that leave none which is not there."""
        worst, unit = ZERO, self.unit
        if unit <= 0:
            return fmpq(1)
        for t in range(self.target.length):
            here = [s for s in columns if s.position == t]
            ends = [
                min(s.state.low for s in here if sum(s.pair) + s.carry >= self.target.base),
                max(s.state.high for s in here if sum(s.pair) + s.carry < self.target.base),
            ]
            worst = max(worst, 1 - (ends[0] - ends[1]) / unit * fmpq(self.target.base) ** t)
        return worst


def _ends(columns: Sequence[Column]) -> tuple[Span, tuple[Pair, ...], tuple[Pair, ...]]:
    low, high = min(columns, key=lambda s: s.state.low), max(columns, key=lambda s: s.state.high)
    return Span(low.state.low, high.state.high), low.lowest, high.highest


def _exact_neurons(ffn: FeedForward) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[str, ...]]:
    return to_exact(ffn.inner), to_exact(ffn.bias), to_exact(ffn.outer), ffn.precision


def _constants(attention: Attention, target: AdditionTarget, executed: bool) -> tuple[Span, Span]:
    """e^{−p} and 1 − e^{−p} of the stored decay, and their floats if these run."""
    with working_precision(2 * (target.base ** (target.length + 2)).bit_length() + 256):
        ratio = (-arb(to_exact(attention.decay)[0])).exp()
        if ratio < LEAST_RATIO:
            ratio = arb(0).union(arb(LEAST_RATIO))
        spans = [Span(*(_end(end) for end in (ball.lower(), ball.upper()))) for ball in (ratio, 1 - ratio)]
    if executed:
        constants = fast.head_constants(attention)
        spans = [hulled([span, point(to_exact(constants[name])[0])]) for span, name in zip(spans, ("ratio", "gain"), strict=True)]
    return spans[0], spans[1]


def _end(ball: arb) -> fmpq:
    mantissa, exponent = ball.man_exp()
    return fmpq(int(mantissa)) * fmpq(2) ** int(exponent)


def check_adder(network: Transformer, target: AdditionTarget) -> tuple[str, ...]:
    """Refuse what has another shape; say what makes this no network of the theorem."""
    first, *others = [layer.attention for layer in network.layers]
    plain = first.kind == "dp-free" and first.window == "infinite" and first.rpe == ("lin",) and first.stride == 1
    if not plain or first.value.shape[1] != 1 or network.dim != 2 or network.outputs != 1 or network.positions is not None:
        raise InputError("not a network of addition: one lin head with one value, dp-free over the infinite past, pairs of digits")
    if any("log" in layer.feedforward.precision for layer in network.layers):
        raise InputError("not a network of addition: a feed-forward network rounds to logarithms")
    quiet = [array for one in others for array in (one.value, one.output, one.query, one.key, one.pointer)]
    if any(np.any(to_exact(array)) for array in quiet):  # one by one: what overflows is no number, even times 0
        return ("a later layer attends: digits are to follow from one prefix sum",)
    return ()


def verify(network: Transformer, target: AdditionTarget, bank: str, ffn: str) -> Certificate:
    """Certify a stored network for all digits at all positions, its prefix sums scanned token by token."""
    start = time.perf_counter()
    if chosen() != "scan":
        raise Refusal(f"the prefix sums of an adder are certified where they are scanned, not {chosen()}", {"form": "scan"})
    faults = check_adder(network, target)
    reading = AdderReading(network, target)
    columns = list(reading.columns())
    worst = max(columns, key=lambda s: s.error)
    measured = {
        GAP_LEMMA: (arb(reading.lost(columns)), arb(lost(target.base, target.digits, network.dtype))),
        DIGIT_LEMMA: (arb(worst.error), arb(0)),
    }
    certified = upper(arb(worst.error))
    witness, shown = _witness(reading, worst)
    counts = _counts(network)
    return Certificate(
        theorem=ID,
        witness=witness,
        witness_input=shown,
        certified=float("inf") if faults else certified,
        bound=0.0,
        rounding=_rounding(network, target, worst.error),
        trivial=target.constant_error(),
        least_heads=None,
        parts=matched(proof_graph("lin", bank, ffn, ()), measured),
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=time.perf_counter() - start,
        faults=faults,
        details={"digits": target.digits, "base": target.base, "inputs": str(target.base ** (2 * target.digits)), **counts},
    )


def _rounding(network: Transformer, target: AdditionTarget, error: fmpq) -> float:
    """How much of the error is not there in exact arithmetic."""
    if error == 0 or network.dtype == "exact":
        return 0.0
    exact = max(s.error for s in AdderReading(network, target, executed=False).columns())
    return upper(arb(max(error - exact, ZERO)))


def _counts(network: Transformer) -> dict[str, int]:
    """What the network stores: all numbers, those that are not 0, and how many different ones these are."""
    numbers = [value for leaf in jax.tree.leaves(network) for value in to_exact(leaf).flat]
    kept = [value for value in numbers if value != 0]
    return {"stored": len(numbers), "nonzero": len(kept), "distinct": len(set(kept))}


def _witness(reading: AdderReading, worst: Column) -> tuple[float, str]:
    """The error at digits that lead to an end of the worst column, which float networks are run on."""
    found = []
    for digits in (worst.lowest, worst.highest):
        if reading.network.dtype == "exact":
            span = _output(reading, digits)
            error = max(span.low - worst.wanted, worst.wanted - span.high, ZERO)
        else:
            later = [(0, 0)] * (reading.target.length - len(digits))
            tokens = (np.array([*digits, *later]) / SCALE).astype(reading.network.dtype)
            output = float(run(reading.network, tokens)[worst.position])
            if not np.isfinite(output):
                raise StrangeWeights("the network computes something that is no finite number")
            error = abs(rational(output) - worst.wanted)
        found.append((max(0.0, lower(arb(error))), digits))
    error, digits = max(found)
    first, second = (" ".join(str(pair[k]) for pair in reversed(digits)) for k in (0, 1))
    return error, f"a = {first}, b = {second}"


def _output(reading: AdderReading, digits: Sequence[Pair]) -> Span:
    """The output at the last of these digits."""
    embedding, bias = to_exact(reading.network.embedding), to_exact(reading.network.bias)
    state: Span = reading.start
    x: Stream = ()
    for pair in digits:
        x = reading.arithmetic.linear(embedding, tuple(point(fmpq(digit, SCALE)) for digit in pair), bias)
        state = reading.step(state, x)
    return reading.outputs(state, x)
