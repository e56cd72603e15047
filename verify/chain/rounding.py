"""Rounding of the fast executor: how far a float network's output can be from its real-arithmetic value.

The executor of a dp-free layer (`constructions.run.fast`) performs, outside comparisons, only additions and multiplications of the stated
type; XLA may order sums as it likes and may fuse a product into a sum, and it may flush results below the least normal number η to
zero. With γ_n = nu/(1−nu), for any order and with or without fusing,

    |fl(Σ_{i≤n} a_i b_i) − Σ a_i b_i| ≤ γ_n Σ|a_i b_i| + 2nη (1 + max|a_i| + max|b_i|),

the last term for flushed factors (a token may be subnormal, too) and products. Every quantity carries a magnitude (bound of the exact value
for tokens in [−1, 1]) and an error; both are propagated through embedding, values, heads, output projection, residual addition and
feed-forward network.
A scan state S ← zS + v has, with E its error,

    E (1 − z(1+u)²) ≤ err(v) + ((1+u)² − 1) z |S| + u (|v| + err(v)) + 2η(1 + |S|),     |S| ≤ |v|/(1−z).

On several devices (`constructions.run.sharded`) the states at the cuts of an array, n steps apart, are computed otherwise: S' = ZS + F with
|Z − x| ≤ ux + η for x = zⁿ, and F the n steps scanned from 0. Those have errors below E(1−x) with the E above, as (z(1+u)²)ⁿ ≥ x, and
|F| ≤ (1−x)|S|. A product, a sum and the constant give three factors 1+u, so with r = (1+u)³ the error E' at the cuts obeys

    E' (1 − rx − 2η) ≤ (r−1) x |S| + (1−x)(E + u(|S| + E)) + 4η(1 + |S|),

about E + u|S|(1 + 3x/(1−x)): since E ≥ u|S|(1+z)/(1−z), less than twice E where x is small, and hardly more than E for slow heads. The
right-hand side over 1 − rx − 2η grows with x (its derivative has the sign of (r−1)(|S| + E + u(|S| + E)) + … > 0), so what is
certified for n steps holds for longer sections. After a cut the recurrence goes on, and its error falls towards E. It is counted inside
`passing(n)`.

In other forms (`constructions.network.recurrences`) tokens d = v − c start from 0, and the constant past c is added at the end. In the
associative form windows of 2^k tokens are exact sums A of the tokens as computed, |A| ≤ (|d| + err(d))(1 − x)/(1−z) with x = z^{2^k}, and
what they lose, at first R_0 = η where a token may be flushed, obeys

    p = R_k x + (ux + η)(|A| + R_k) + u(x(1+u) + η)(|A| + R_k) + 2η,      R_{k+1} = (R_k + p)(1+u) + u|A'| + 3η(1+u),

A' being the window twice as long; errors of tokens add err(d)/(1−z), and what the last window leaves out z^{2^K}(|d| + err(d))/(1−z). Since
Π(1+x) = 1/(1−z), that is at most about 2K roundings of |S|, less than the 2/(1−z) of a scan where heads are slow. In the blocked form the
sum of a block of C tokens is at most m|d|, m = (1 − z^C)/(1−z), and off by

    E_own ≤ m err(d) + (u + γ_C(1+u)) m (|d| + err(d)) + 5Cη(1 + |d| + err(d)).

States at the ends of blocks are those of the associative form for z^C and tokens like these sums, off by E_B, say. Every state is
one of them times a constant within uz + η of z, or of a power of it, and such a sum: with r = (1+u)³ and |S| ≤ |d|/(1−z) it is off by

    (rz + 3η) E_B + (r−1) z |S| + (1+u) E_own + u|S| + 6η(1 + |S|).

Softmax over N tokens of an array (`fast._attend_all`) has weights ŵ_s = e^{a_s − max â + θ_s}, where |θ_s| ≤ λ collects the errors of
the logits, of subtracting their maximum and of the exponential (`exponential_error`). Two softmaxes whose logits differ by at most λ
are tanh(λ/2) apart in total variation, so the mean moves by at most tanh(λ/2) times the spread of the values; the sums and the
quotient that are formed with the ŵ_s add (1+u)(1+γ_N)/(1−γ_N) − 1 of the largest value. Division is taken to be correctly rounded.
`verify.chain.device` holds all of these hypotheses against a device.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache

import numpy as np
from flint import arb, fmpq

from analyzer.errors import Refusal, finer
from analyzer.families import FormName
from analyzer.numbers.exact import UNIT, maximum, nearest, upper, working_precision
from constructions.network.exponential import DEEPEST, REDUCED, constants
from constructions.network.precision import SMALLEST
from constructions.network.recurrences import BLOCK, chosen, levels
from constructions.network.transformer import Attention, FeedForward, Transformer, to_exact
from constructions.run.fused import FusedLayer
from constructions.run.lagged import LaggedLayer

_PASSED: ContextVar[int | None] = ContextVar("passed", default=None)


@contextmanager
def passing(steps: int) -> Iterator[None]:
    """Within this context scans are those of arrays that are cut, and their states passed on, after at least so many steps each."""
    token = _PASSED.set(steps)
    try:
        yield
    finally:
        _PASSED.reset(token)


@dataclass(frozen=True)
class Rounded:
    """Bounds of |exact value| and |computed − exact|."""

    magnitude: arb
    error: arb


class Arithmetic:
    """Roundings of a float type; `headroom` is a factor by which values may still grow before they overflow."""

    def __init__(self, dtype: str, headroom: int = 1) -> None:
        self.dtype, self.unit, self.tiny = dtype, arb(UNIT[dtype]), arb(SMALLEST[dtype])
        self.largest = arb(float(np.finfo(dtype).max)) / headroom

    def checked(self, value: Rounded) -> Rounded:
        """Refuse what may overflow, or what has no finite error bound at all."""
        if not value.magnitude + value.error < self.largest:
            raise Refusal(
                f"{self.dtype} may overflow, or lose all accuracy, in this network: a value of {upper(value.magnitude):.3g} arises",
                *finer(self.dtype),
            )
        return value

    def gamma(self, terms: int) -> arb:
        return terms * self.unit / (1 - terms * self.unit)

    def dot(self, weights: Sequence[fmpq], inputs: Sequence[Rounded], count: int | None = None) -> Rounded:
        """A dot product with exact weights. Zero weights add exact zeros, in any order: they count for flushing only (`count` of all
        terms, if some zeros are left out here). Products with powers of 2 are exact but for flushing: a row that picks one input is.
        """
        terms = [(abs(arb(w)), x) for w, x in zip(weights, inputs, strict=True) if w != 0]
        magnitude = sum((w * x.magnitude for w, x in terms), arb(0))
        carried = sum((w * x.error for w, x in terms), arb(0))
        count = len(inputs) if count is None else count
        largest = maximum([arb(0), *(w for w, _ in terms)]) + maximum([arb(0), *(x.magnitude + x.error for x in inputs)])
        flushed = 2 * count * self.tiny * (1 + largest)
        exact_products = all(_power_of_two(w) for w in weights if w != 0)
        rounded = self.gamma(max(0, len(terms) - exact_products)) * (magnitude + carried)
        return self.checked(Rounded(magnitude, carried + rounded + flushed))

    def plus(self, a: Rounded, b: Rounded, magnitude: arb) -> Rounded:
        error = a.error + b.error
        return self.checked(Rounded(magnitude, error + self.unit * (magnitude + error) + self.tiny))

    def times(self, factor: fmpq, value: Rounded) -> Rounded:
        """A product with an exact factor."""
        f = abs(arb(factor))
        error = f * value.error
        return self.checked(Rounded(f * value.magnitude, error + self.unit * (f * value.magnitude + error) + self.tiny))

    def state(self, z: arb, value: Rounded, past: arb | None = None) -> Rounded:
        """Every state of S ← zS + v, from 0 or from a start that is as near to the exact one as the fixed point of the errors.

        A start is c/(1−z) for a constant past |c| ≤ `past`.
        """
        growth = (1 + self.unit) ** 2
        size = (value.magnitude if past is None else value.magnitude.max(past)) / (1 - z)
        fresh = value.error + (growth - 1) * z * size + self.unit * (value.magnitude + value.error) + 2 * self.tiny * (1 + size)
        if not z * growth < 1:
            slow = f"a lin head with ratio 1 - {upper(1 - z):.3g} forgets more slowly than {self.dtype} rounds"
            raise Refusal(slow, {"dtype": "exact"})
        return Rounded(size, fresh / (1 - z * growth))

    def blocked(self, ratio: fmpq, value: Rounded) -> Rounded:
        """Every state of S ← zS + v from 0 in blocked form."""
        z, u, tiny = arb(ratio), self.unit, self.tiny
        mass, given = (1 - z**BLOCK) / (1 - z), value.magnitude + value.error
        own = mass * value.error + (u + self.gamma(BLOCK) * (1 + u)) * mass * given + 5 * BLOCK * tiny * (1 + given)
        ends, factors = self.associative(ratio, Rounded(mass * value.magnitude, own), BLOCK), (1 + u) ** 3
        size = value.magnitude / (1 - z)
        summed = (factors - 1) * z * size + (1 + u) * own + u * size + 6 * tiny * (1 + size)
        return Rounded(size, (factors * z + 3 * tiny) * ends.error + summed)

    def associative(self, ratio: fmpq, value: Rounded, base: int = 1) -> Rounded:
        """Every state of S ← xS + v from 0 in associative form, x = z^base."""
        u, tiny, given = self.unit, self.tiny, value.magnitude + value.error
        first = x = arb(ratio) ** base
        lost = tiny  # a subnormal token may be flushed before anything else happens
        for _ in range(levels(nearest(ratio), self.dtype, base)):
            window, longer = given * (1 - x) / (1 - first), given * (1 - x * x) / (1 - first)
            product = x * lost + (u * x + tiny + u * (x * (1 + u) + tiny)) * (window + lost) + 2 * tiny
            lost = (lost + product) * (1 + u) + u * longer + 3 * tiny * (1 + u)
            x = x * x
        left_out = x * given / (1 - first)
        return Rounded(value.magnitude / (1 - first), value.error / (1 - first) + lost + left_out)

    def _from_zero(self, form: FormName, ratio: fmpq, gain: fmpq, value: Rounded, past: arb | None) -> Rounded:
        """The same as `scan`, in a form that starts from 0: the constant past is taken off every token, and added at the end."""
        z, g, shifted = arb(ratio), arb(gain), value
        if past is not None:
            size, error = value.magnitude + past, 2 * value.error
            shifted = Rounded(size, error + self.unit * (size + error) + self.tiny)
        state = self.checked(self.blocked(ratio, shifted) if form == "blocked" else self.associative(ratio, shifted))
        output = self.times(gain, state)
        if past is None:
            return output
        added = value.error + past * (abs(1 - g / (1 - z)) + 2 * self.unit) + 2 * self.tiny
        magnitude, error = g * value.magnitude.max(past) / (1 - z), output.error + added
        return self.checked(Rounded(magnitude, error + self.unit * (magnitude + error) + self.tiny))

    def scan(self, ratio: fmpq, gain: fmpq, value: Rounded, past: arb | None = None, form: FormName | None = None) -> Rounded:
        """gain · Σ_s ratio^s v_{t−s} by the recurrence, started at 0 or, if the past is a constant below `past`, at fl(c/gain).

        Its c was computed as tokens were, and is off by `value.error` at most. The form is the one that was chosen
        (`constructions.network.recurrences`), if none is given.
        """
        form = form or chosen()
        if form != "scan":
            return self._from_zero(form, ratio, gain, value, past)
        z, g = arb(ratio), arb(gain)
        scanned, steps = self.state(z, value, past), _PASSED.get()
        state, error = scanned.magnitude, scanned.error
        if past is not None:  # E only falls from a start that is off by more than the fixed point
            error = error.max(past * (abs(1 / g - 1 / (1 - z)) + 2 * self.unit / g) + value.error / g + self.tiny)
        if steps is not None:
            error = error.max(self.passed(z**steps, scanned))
        self.checked(Rounded(state, error))
        return self.checked(Rounded(g * state, g * error + self.unit * g * (state + error) + self.tiny))

    def passed(self, power: arb, state: Rounded) -> arb:
        """Error of states S' = ZS + F at the cuts of an array: `power` is zⁿ, `state` bounds every S, and how far a scan is from it."""
        factors = (1 + self.unit) ** 3
        kept = factors * power + 2 * self.tiny
        if not kept < 1:
            raise Refusal(
                f"a lin head keeps all but {upper(1 - power):.3g} of its state from cut to cut, less than {self.dtype} rounds",
                *finer(self.dtype),
            )
        own = state.error + self.unit * (state.magnitude + state.error)
        fresh = (factors - 1) * power * state.magnitude + (1 - power) * own + 4 * self.tiny * (1 + state.magnitude)
        return fresh / (1 - kept)

    def inner(self, left: Sequence[Rounded], right: Sequence[Rounded], magnitude: arb) -> Rounded:
        """A dot product of two computed vectors; `magnitude` bounds its exact value."""
        pairs = list(zip(left, right, strict=True))
        carried = sum((a.magnitude * b.error + b.magnitude * a.error + a.error * b.error for a, b in pairs), arb(0))
        sizes = [(a.magnitude + a.error, b.magnitude + b.error) for a, b in pairs]
        rounded = self.gamma(len(pairs)) * sum((a * b for a, b in sizes), arb(0))
        flushed = 2 * len(pairs) * self.tiny * (1 + sum((a + b for a, b in sizes), arb(0)))
        return self.checked(Rounded(magnitude, carried + rounded + flushed))

    def softmax_mean(self, logits: Rounded, value: Rounded, spread: arb, count: int) -> Rounded:
        """Σ_s softmax(a)(s) v_s over `count` tokens; `spread` bounds the difference of two exact values."""
        if not 2 * (logits.magnitude + logits.error) * (1 + self.unit) < DEEPEST[self.dtype]:
            raise Refusal(
                f"logits of size {upper(logits.magnitude):.3g} span more than {DEEPEST[self.dtype]}, where e^x leaves {self.dtype}",
                *finer(self.dtype),
            )
        off = logits.error + 2 * self.unit * (logits.magnitude + logits.error) - (1 - exponential_error(self.dtype)).log()
        gamma, size = self.gamma(count), value.magnitude + value.error
        self.checked(Rounded(count * value.magnitude, count * (value.error + gamma * size)))  # Σ_s w_s v_s before the quotient, w_s ≤ 1
        sums = (1 + self.unit) * (1 + gamma) / (1 - gamma) - 1
        error = (off / 2).tanh() * (spread + 2 * value.error) + value.error + sums * size + 4 * count * self.tiny * (1 + size)
        return self.checked(Rounded(value.magnitude, error))


@cache
def exponential_error(dtype: str) -> arb:
    """Relative error of `constructions.network.exponential.exp` on [−X, X]: range reduction, Horner step by step, truncation.

    All bounds are of absolute values, |x| ≤ X and |n| ≤ X/ln 2 + 1, so the sign of x does not matter. The last product, by 2ⁿ, is exact:
    e^r lies between 2^{−0.6} and 2^{0.6}, and 2ⁿ times it between the least normal and the largest number.
    """
    u, tiny = arb(UNIT[dtype]), arb(SMALLEST[dtype])
    _, high, _, coefficients = constants(dtype)
    with working_precision(128):
        log2 = arb.const_log2()
        ratio = DEEPEST[dtype] / log2
        count = ratio + 1  # |n|
        low = abs(log2 - arb(high))
        reduced = (arb(1) / 2 + ratio * (2 * u + u**2)) * log2  # |x − n ln 2|
        first = reduced + count * low  # |x − n ln2_hi|
        off = u * first + count * low * (2 * u + u**2)
        off = off + u * (reduced + off)
        r = reduced + off
        if not r < arb(REDUCED):
            raise ArithmeticError("the reduced argument is larger than the degree was chosen for")
        size, error = arb(coefficients[-1]), u * arb(coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            c = arb(coefficient)
            product = error * r + u * (size + error) * r + 2 * tiny
            size = size * r + c
            error = product + u * c + u * (size + product) + tiny
        d = len(coefficients) - 1
        truncated = r ** (d + 1) / arb(d + 1).fac() * r.exp()
        polynomial, argument = (error + truncated) * r.exp(), off.expm1()
        return (polynomial + argument + polynomial * argument).upper()


def _power_of_two(value: fmpq) -> bool:
    return all(n & (n - 1) == 0 for n in (abs(int(value.p)), int(value.q)))


ONE = Rounded(arb(1), arb(0))


def check_neurons(dtype: str, ffn: FeedForward, stream: Sequence[arb]) -> None:
    """Refuse a neuron that may overflow for a stream with these magnitudes, read by an output or not: infinity times 0 is no number.

    Half of the largest number leaves room for the rounding of these sums, and of the executor's.
    """
    inner, bias = (np.abs(np.asarray(part, np.float64)) for part in (ffn.inner, ffn.bias))
    sizes = np.array([upper(magnitude) for magnitude in stream])
    with np.errstate(over="ignore", invalid="ignore"):
        reached = inner @ sizes + bias
    if not (reached < np.finfo(dtype).max / 2).all():
        raise Refusal(f"{dtype} may overflow in this network: a neuron reaches {reached.max():.3g}", *finer(dtype))


def check_quiet(dtype: str, attentions: Sequence[Attention], size: int) -> None:
    """Refuse attention that writes nothing if its queries, keys, values, or their products, may overflow for a stream below `size`."""
    most = np.sqrt(float(np.finfo(dtype).max)) / 2**24
    for attention in attentions:
        for part in (attention.query, attention.key, attention.value):
            if not (np.abs(np.asarray(part, np.float64)).sum(axis=-1) * size < most).all():
                raise Refusal(f"{dtype} may overflow in this network: attention that is off has queries, keys or values beyond {most:.3g}")


def feed_forward_error(dtype: str, ffn: FeedForward, row: int, stream: Sequence[arb]) -> arb:
    """Rounding of one output of a feed-forward network, before its precision, for a stream with these magnitudes, as given."""
    arithmetic = Arithmetic(dtype)
    check_neurons(dtype, ffn, stream)
    given = [*(Rounded(magnitude, arb(0)) for magnitude in stream), ONE]
    outer = to_exact(ffn.outer)[row]
    used = [int(n) for n in np.nonzero(outer)[0]]
    inner, bias = to_exact(ffn.inner), to_exact(ffn.bias)
    hidden = [arithmetic.dot([*inner[n], bias[n]], given) for n in used]
    return arithmetic.dot(outer[used], hidden, count=len(outer)).error if used else arb(0)


def extraction_error(dtype: str, attention: Attention, layer: LaggedLayer, row: int, lag: int) -> arb:
    """Rounding of a memory's coordinate that the fast pass extracts for a lag: values, scan or taps, factor, output, residual."""
    arithmetic = Arithmetic(dtype)
    assert layer.constants is not None
    value, output = to_exact(attention.value), to_exact(attention.output)
    ratio, factor, taps = (to_exact(layer.constants[name]) for name in ("ratio", "factor", "taps"))
    weights, mixed = [], []
    for h, i in itertools.product(range(len(layer.rpe)), range(value.shape[1])):
        if output[h, row, i] == 0:
            continue
        token = arithmetic.dot(list(value[h, i]), [ONE] * value.shape[2])
        if layer.rpe[h] == "lin":
            head = arithmetic.scan(ratio[h], factor[h, lag], token)
        else:
            head = arithmetic.times(factor[h, lag], arithmetic.dot(list(taps[h]), [token] * taps.shape[1]))
        weights.append(output[h, row, i])
        mixed.append(head)
    if not mixed:
        return arb(0)
    attended = arithmetic.dot(weights, mixed, count=len(layer.rpe) * value.shape[1])
    return arithmetic.plus(Rounded(arb(0), arb(0)), attended, attended.magnitude).error


def evaluation_error(network: Transformer, layer: FusedLayer, stream: Sequence[arb]) -> tuple[arb, list[arb]]:
    """(rounding of the feed-forward network for the stream it is given, rounding of each residual coordinate).

    `stream` bounds |U_j| in exact arithmetic, for a one-layer dp-free float network.
    """
    arithmetic = Arithmetic(network.dtype)
    embedding, bias = to_exact(network.embedding), to_exact(network.bias)
    embedded = [arithmetic.dot([*row, b], [ONE] * (len(row) + 1)) for row, b in zip(embedding, bias, strict=True)]
    residual = attended(arithmetic, network.layers[0].attention, layer, embedded, dict(enumerate(stream)))
    return readout_rounding(arithmetic, network.layers[0].feedforward, list(residual.values())), [r.error for r in residual.values()]


def attended(
    arithmetic: Arithmetic,
    attention: Attention,
    layer: FusedLayer,
    given: Sequence[Rounded],
    stream: Mapping[int, arb],
    past: arb | None = None,
) -> dict[int, Rounded]:
    """Coordinates of the residual stream after a dp-free layer: `given` before it, `stream` bounds those |U_j| in exact arithmetic.

    `past` bounds the constant state before the array where that is not zero.
    """
    assert layer.constants is not None
    outputs = _head_outputs(arithmetic, attention, layer.constants, given, past)
    projection = np.moveaxis(to_exact(attention.output), 1, 0)  # (D, H, dv)
    return {j: arithmetic.plus(given[j], arithmetic.dot(list(projection[j].flat), outputs), bound) for j, bound in stream.items()}


def readout_rounding(arithmetic: Arithmetic, ffn: FeedForward, residual: Sequence[Rounded]) -> arb:
    """Rounding of a scalar feed-forward network for the stream that it is given."""
    given = [Rounded(r.magnitude + r.error, arb(0)) for r in residual]
    hidden = []
    for row, c in zip(to_exact(ffn.inner), to_exact(ffn.bias), strict=True):
        hidden.append(arithmetic.dot([*row, c], [*given, ONE]))
    return arithmetic.dot(list(to_exact(ffn.outer)[0]), hidden).error


def _head_outputs(
    arithmetic: Arithmetic, attention: Attention, constants: dict[str, np.ndarray], given: Sequence[Rounded], past: arb | None
) -> list[Rounded]:
    """Every head's mixed value coordinates, in the order of the heads."""
    values = [[arithmetic.dot(list(row), given) for row in head] for head in to_exact(attention.value)]
    if constants["taps"].shape[1] == 0 and not set(attention.rpe) <= {"lin"}:
        slow = "a table of biases is so long" if attention.table is not None else f"a {attention.rpe[-1]} head falls so slowly"
        raise Refusal(f"{slow} that it runs by FFT, whose rounding is not certified")
    ratio, gain, taps = (to_exact(constants[name]) for name in ("ratio", "gain", "taps"))
    place = {h: k for kind in ("lin", "log", "table", "kerple") for k, h in enumerate(attention.heads_of(kind))}
    outputs = []
    for h, kind in enumerate(attention.rpe):
        k = place[h]
        for value in values[h]:
            if kind == "lin":
                outputs.append(arithmetic.scan(ratio[k], gain[k], value, past))
            else:
                outputs.append(arithmetic.dot(list(taps[k]), [value] * taps.shape[1]))
    return outputs
