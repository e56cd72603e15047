"""Hypotheses about a device: what float certificates assume of its arithmetic, held against exact arithmetic on directed operands.

The analysis of roundings (`verify.chain.rounding`, `verify.chain.softmax_rounding`, `verify.chain.enclosed`) assumes of the type with unit
roundoff u and least normal number η, wherever nothing exceeds the largest number, and with γ_n = nu/(1−nu):

* *sum*, *product*: |fl(a ∘ b) − a ∘ b| ≤ u|a ∘ b| + η for a, b that are 0, normal, or smaller and returned by the device itself;
* *quotient*: the same, for divisors between u and 1/u: gains g = 1 − z (a scan needs z(1+u)² < 1) and sums of N weights (γ_N needs Nu < 1);
* *exact results*: a sum or product that is 0 or a normal number of the type is returned itself. Products with powers of 2, n·ln2_hi, digits
  and tables of restored chains, words of letters and e^0 = 1 rest on it; |error| ≤ u alone would not do;
* *products of matrices*, *taps*: |fl(Σ a_i b_i) − Σ a_i b_i| ≤ γ_n Σ|a_i b_i| + 2nη(1 + max|a_i| + max|b_i|), in whatever order, n − 1
  in γ if the weights a_i are powers of 2 (`Arithmetic.dot`), and Σ(|a_i| + |b_i|) for the maxima if both sides were computed
  (`Arithmetic.inner`); *sums of weights*: the same with b_i = 1 and γ_n;
* *recurrence* (in every form), *softmax*, *exponential*: what `Arithmetic.scan`, `Arithmetic.softmax_mean` and `exponential_error` derive
  from these, checked on the programs that run, which a compiler may have rearranged;
* *comparisons*: maxima, relu and clipping return one of their operands; *whole numbers*: rounding goes to the nearest integer, ties to
  even, conversion to an index is exact; *powers of two*: 2ⁿ from its bits is exact.

What is allowed, and therefore a fact and no fault:

* *Fusing* ab + c into one rounding. The bounds above count two, of which fusing leaves out one. Nothing needs the product to be rounded: in
  the exponential n·ln2_hi is exact, so that x − n·ln2_hi is the same number fused or not; exact sums on a grid stay exact; a logit q·k that
  is fused with the subtraction of its maximum is rounded once, where two roundings are counted. What breaks the bounds is a fused sum that
  aligns its terms to the largest and truncates them: n terms just below 2u beside a 1 lose 2nu, where γ_n allows nu. A compiler that
  reassociates, (x − n·ln2_hi) − n·ln2_lo into x − n·ln 2, breaks the exponential, which is checked as it was compiled.
* *Flushing* results below η to 0, and operands below η together with results: every bound has η per operation, and dot products have
  2η(1 + max|a| + max|b|) per term for given operands that are flushed. Two faults are told apart from it. A device that flushes normal
  numbers loses more than η. One that flushes operands but keeps results below η loses up to 2η in a sum of two such results, where η is
  counted, and c times as much in a product with c.

A check can refute a hypothesis, with the operands; it cannot prove one: operands are directed and many, not all.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.families import FormName
from analyzer.numbers.exact import UNIT, nearest, rational, working_precision
from constructions.network.exponential import DEEPEST
from constructions.network.precision import MANTISSA, SMALLEST
from constructions.network.recurrences import form_constants
from verify.chain import operands
from verify.chain.operations import FORMS, NEURONS, VALUES, Operations
from verify.chain.rounding import Arithmetic, Rounded, exponential_error

BITS = 256
"""Of the balls that recurrences and exponentials are enclosed in."""
TERMS, MANY, KEPT, WIDE = 36, 300, 8, 64
"""Terms of every form of product, and of one that is large enough for a library of matrix products; lengths of the axes that are kept,
in the first case one for each of `operands.ROWS`."""
STEPS = 200
"""Tokens of a recurrence."""
ZERO = fmpq(0)


@dataclass(frozen=True)
class CheckedHypothesis:
    """A hypothesis, and how far the device went on the way to breaking it."""

    name: str
    hypothesis: str
    holds: bool
    worst: float | None
    """The largest error over the allowed one; None if a result is no number, or is wrong where no error is allowed."""
    operands: tuple[str, ...]
    """Where that was."""

    def as_dict(self) -> dict[str, object]:
        return {
            "name": self.name,
            "hypothesis": self.hypothesis,
            "holds": self.holds,
            "worst": self.worst,
            "operands": list(self.operands),
        }


class Evidence:
    """The worst of what was seen: the largest ratio of an error to the allowed one, compared exactly."""

    def __init__(self) -> None:
        self.error, self.allowed = ZERO, fmpq(1)
        self.broken = False
        self.operands: tuple[Any, ...] = ()

    def see(self, error: fmpq | None, allowed: fmpq, *places: Any) -> None:
        """An error, or None for a result that is no number, with the operands."""
        if self.broken or error == 0:
            return
        if error is None or allowed == 0:
            self.broken, self.operands = True, places
        elif error * self.allowed > self.error * allowed:
            self.error, self.allowed, self.operands = error, allowed, places

    def judged(self, name: str, hypothesis: str) -> CheckedHypothesis:
        """The hypothesis with what was seen."""
        texts = tuple(place if isinstance(place, str) else repr(float(place)) for place in self.operands)
        holds = not self.broken and self.error <= self.allowed
        worst = None if self.broken else min(nearest(self.error / self.allowed), sys.float_info.max)
        return CheckedHypothesis(name, hypothesis, holds, worst, texts)


def number(value: Any) -> fmpq | None:
    """A float as a rational; None if it is not finite."""
    return rational(float(value)) if np.isfinite(value) else None


def above(ball: arb) -> fmpq:
    """The upper end of a ball, exactly."""
    mantissa, exponent = ball.upper().man_exp()
    return fmpq(int(mantissa)) * fmpq(2) ** int(exponent)


def distance(computed: Any, exact: fmpq) -> fmpq | None:
    found = number(computed)
    return None if found is None else abs(found - exact)


@dataclass(frozen=True)
class FloatType:
    """u, η and the largest number of a type as rationals, and numbers below η that the device itself returns."""

    dtype: str
    small: np.ndarray

    @cached_property
    def unit(self) -> fmpq:
        return UNIT[self.dtype]

    @cached_property
    def tiny(self) -> fmpq:
        return SMALLEST[self.dtype]

    @cached_property
    def largest(self) -> fmpq:
        return rational(float(np.finfo(self.dtype).max))

    @cached_property
    def arithmetic(self) -> Arithmetic:
        """What the analysis allows."""
        return Arithmetic(self.dtype)

    def holds_exactly(self, value: fmpq) -> bool:
        """Whether a value is 0 or a normal number of the type."""
        if value == 0:
            return True
        p, q = abs(int(value.p)), int(value.q)
        odd = p >> ((p & -p).bit_length() - 1)
        return q & (q - 1) == 0 and odd.bit_length() <= MANTISSA[self.dtype] and self.tiny <= abs(value) <= self.largest

    def is_nearest(self, computed: Any, exact: fmpq) -> bool:
        """Whether no number of the type is nearer, and a tie has gone to the even one."""
        kind = np.dtype(self.dtype).type
        found, off = number(computed), distance(computed, exact)
        if found is None or off is None or off == 0:
            return off == 0
        with np.errstate(over="ignore"):
            ends = [number(np.nextafter(kind(computed), kind(way))) for way in (-np.inf, np.inf)]
        others = [abs(end - exact) for end in ends if end is not None]
        whole = int(np.asarray(computed, self.dtype).view(np.int32 if self.dtype == "float32" else np.int64))
        return all(off < other or (off == other and whole % 2 == 0) for other in others)


def small_results(operations: Operations) -> np.ndarray:
    """Products between η/8 and 2η as the device returns them: 0 where it flushes, subnormal numbers where it does not."""
    info, kind = np.finfo(operations.dtype), np.dtype(operations.dtype).type
    factors = np.array([0.125, 0.5, 0.75, 1 - info.eps, 1, 1.5, -0.75, -0.875], operations.dtype)
    return operations.multiply(np.full(len(factors), kind(info.tiny)), factors)


Exactly = Callable[[fmpq, fmpq], fmpq]


@dataclass(frozen=True)
class Single:
    """One operation on all pairs: operands, results, exact results; those that overflow are left out."""

    first: np.ndarray
    second: np.ndarray
    computed: np.ndarray
    exact: list[fmpq]

    def __iter__(self) -> Iterator[tuple[Any, Any, Any, fmpq]]:
        return zip(self.first, self.second, self.computed, self.exact, strict=True)


def single(kind: FloatType, operation: Callable[[np.ndarray, np.ndarray], np.ndarray], exactly: Exactly, quotient: bool = False) -> Single:
    """An operation on directed pairs; divisors of a quotient lie between u and 1/u."""
    first, second = operands.pairs(kind.dtype, kind.small)
    if quotient:
        unit = nearest(kind.unit)
        kept = (np.abs(second) >= unit) & (np.abs(second) <= 1 / unit)
        first, second = first[kept], second[kept]
    values = [exactly(rational(float(a)), rational(float(b))) for a, b in zip(first, second, strict=True)]
    inside = np.array([abs(value) <= kind.largest for value in values])
    first, second = first[inside], second[inside]
    return Single(first, second, operation(first, second), [value for value, fits in zip(values, inside, strict=True) if fits])


def check_single(kind: FloatType, name: str, sign: str, found: Sequence[Single], about: str) -> CheckedHypothesis:
    """|fl(a ∘ b) − a ∘ b| ≤ u|a ∘ b| + η."""
    evidence = Evidence()
    for one in found:
        for a, b, computed, exact in one:
            evidence.see(distance(computed, exact), kind.unit * abs(exact) + kind.tiny, a, b)
    return evidence.judged(name, f"|fl(a {sign} b) − (a {sign} b)| ≤ u|a {sign} b| + η {about}")


def check_exact(kind: FloatType, found: Sequence[Single], operations: Operations) -> CheckedHypothesis:
    """Results that the type holds are returned, sums of numbers on a grid among them."""
    evidence, least = Evidence(), np.finfo(kind.dtype).tiny
    for one in found:
        for a, b, computed, exact in one:
            if kind.holds_exactly(exact) and not (0 < abs(a) < least or 0 < abs(b) < least):
                evidence.see(distance(computed, exact), ZERO, a, b)
    bits, rng = MANTISSA[kind.dtype] // 2 - 3, np.random.default_rng(4)  # 2^5 products of two such numbers: below 2^p on their grid
    left, right = (rng.integers(-(1 << bits), 1 << bits, (KEPT, 32)).astype(kind.dtype) / (1 << bits) for _ in range(2))
    sums = operations.contract(NEURONS, left, right)
    for (i, j), computed in np.ndenumerate(sums):
        exact = sum((rational(float(a)) * rational(float(b)) for a, b in zip(left[i], right[j], strict=True)), ZERO)
        evidence.see(distance(computed, exact), ZERO, "a sum of 32 products on one grid", computed)
    return evidence.judged("exact results", "fl(a + b) = a + b and fl(ab) = ab where the result is 0 or a normal number of the type")


def check_products(kind: FloatType, operations: Operations) -> CheckedHypothesis:
    """Products of matrices in all forms, and in one of them in several sizes."""
    evidence = Evidence()
    cases = [(form, TERMS, KEPT) for form in FORMS]
    for form, terms, kept in [*cases, (VALUES, 1, KEPT), (VALUES, 3, KEPT), (VALUES, MANY, WIDE)]:
        given = operands.contraction(form, terms, kept, kind.dtype)
        computed = operations.contract(form, given.left, given.right)
        for i, j in sorted({*zip(given.left_of.ravel().tolist(), given.right_of.ravel().tolist(), strict=True)}):
            left, right = (list(map(rational, row.tolist())) for row in (given.left_rows[i], given.right_rows[j]))
            exact, allowed = sum((a * b for a, b in zip(left, right, strict=True)), ZERO), form_bound(kind, form, left, right)
            where = f"{given.terms} terms: {operands.ROWS[i]}; times {operands.ROWS[j]}"
            for value in np.unique(computed[(given.left_of == i) & (given.right_of == j)]):
                evidence.see(distance(value, exact), allowed, form, where, value)
    text = "|fl(Σ a_i b_i) − Σ a_i b_i| ≤ γ_n Σ|a_i b_i| + 2nη(1 + max|a_i| + max|b_i|) for every product of matrices of the executor"
    return evidence.judged("products of matrices", text)


def form_bound(kind: FloatType, form: str, left: Sequence[fmpq], right: Sequence[fmpq]) -> fmpq:
    """What the analysis allows an output of a product of matrices to be off: one side has weights, unless both run over the batch."""
    first, second = (side.startswith("...") for side in form.split("->")[0].split(","))
    if not (first and second):
        return dot_bound(kind, right, left) if first else dot_bound(kind, left, right)
    with working_precision(BITS):
        sides = [[Rounded(abs(arb(x)), arb(0)) for x in side] for side in (left, right)]
        return above(
            kind.arithmetic.inner(sides[0], sides[1], sum((abs(arb(a * b)) for a, b in zip(left, right, strict=True)), arb(0))).error
        )


def dot_bound(kind: FloatType, weights: Sequence[fmpq], inputs: Sequence[fmpq]) -> fmpq:
    """What the analysis allows Σ w_i x_i to be off."""
    with working_precision(BITS):
        return above(kind.arithmetic.dot(weights, [Rounded(abs(arb(x)), arb(0)) for x in inputs]).error)


def check_sums(kind: FloatType, operations: Operations) -> CheckedHypothesis:
    """Sums of weights, as softmax divides by."""
    evidence = Evidence()
    for terms in (1, TERMS, MANY):
        given = operands.rows(kind.dtype, terms, 5)
        for name, row, computed in zip(operands.ROWS, given, operations.total(given), strict=True):
            values = list(map(rational, row.tolist()))
            gamma = terms * kind.unit / (1 - terms * kind.unit)
            allowed = gamma * sum(map(abs, values), ZERO) + 2 * terms * kind.tiny * (2 + max(map(abs, values)))
            evidence.see(distance(computed, sum(values, ZERO)), allowed, f"{terms} terms: {name}", computed)
    return evidence.judged("sums of weights", "|fl(Σ a_i) − Σ a_i| ≤ γ_n Σ|a_i| + 2nη(2 + max|a_i|)")


def check_taps(kind: FloatType, operations: Operations) -> CheckedHypothesis:
    """Σ_s taps_s v_{t−s}, tap by tap."""
    evidence = Evidence()
    count, heads = TERMS, len(operands.ROWS)
    taps, values = operands.rows(kind.dtype, count, 6), operands.rows(kind.dtype, 3 * count, 7)[[1, 2, 0, 0, 4, 1, 5, 1]].T[:, :, None]
    computed = operations.tap(taps, values, np.zeros_like(values[0]))
    for t, h in ((t, h) for t in (0, count - 1, 2 * count, 3 * count - 1) for h in range(heads)):
        seen = [ZERO if t < s else rational(float(values[t - s, h, 0])) for s in range(count)]
        weights = list(map(rational, taps[h].tolist()))
        exact = sum((w * v for w, v in zip(weights, seen, strict=True)), ZERO)
        where = f"{count} taps: {operands.ROWS[h]}", f"position {t}"
        evidence.see(distance(computed[t, h, 0], exact), dot_bound(kind, weights, seen), *where, computed[t, h, 0])
    return evidence.judged("taps", "|fl(Σ_s w_s v_(t−s)) − Σ_s w_s v_(t−s)| ≤ γ_n Σ|w_s v_(t−s)| + 2nη(1 + max|w_s| + max|v_s|)")


RECURRENCES: dict[str, FormName] = {"recurrence": "scan", "recurrence by blocks": "blocked", "recurrence by doubling": "associative"}
"""What lin heads run as, by the name of its hypothesis."""


def check_recurrence(kind: FloatType, operations: Operations, name: str) -> CheckedHypothesis:
    """gS, S ← zS + v, from 0 and from a constant past, in one of its forms."""
    evidence, dtype, form = Evidence(), kind.dtype, RECURRENCES[name]
    ratio = np.array([0.25, 1 / 3, 0.9, 1 - 2.0**-6, 1 - 2.0**-10], dtype)
    gain = (1 - ratio.astype(np.float64)).astype(dtype)
    rng = np.random.default_rng(8)
    columns = {
        "ones": np.ones(STEPS),
        "changing signs": np.where(np.arange(STEPS) % 2, -1, 1),
        "random numbers": rng.uniform(-1, 1, STEPS),
        "thirds": np.full(STEPS, 1 / 3),
        "an impulse": np.eye(1, STEPS)[0],
    }
    names = list(columns)
    values = np.repeat(np.stack(list(columns.values()), axis=1)[:, None], len(ratio), axis=1).astype(dtype)
    pasts = [np.zeros(values.shape[1:], dtype), np.broadcast_to(np.array([1, -1, 0.7, 1 / 3, 0], dtype), values.shape[1:])]
    for past in pasts:
        computed = recurred(operations, form, ratio, gain, past, values)
        for h, i in np.ndindex(*values.shape[1:]):
            with working_precision(BITS):
                z, g, before = (rational(float(x)) for x in (ratio[h], gain[h], past[h, i]))
                constant = None if before == 0 else abs(arb(before))
                allowed = above(kind.arithmetic.scan(z, g, Rounded(arb(1), arb(0)), constant, form).error)
                state = arb(before) / (1 - arb(z))
                for t in range(STEPS):
                    state = arb(z) * state + arb(rational(float(values[t, h, i])))
                    found = number(computed[t, h, i])
                    off = None if found is None else above(abs(arb(found) - arb(g) * state))
                    evidence.see(off, allowed, ratio[h], f"{names[i]} after {float(past[h, i]):.3g}", f"step {t}")
    return evidence.judged(name, STATED[name])


def recurred(
    operations: Operations, form: FormName, ratio: np.ndarray, gain: np.ndarray, past: np.ndarray, values: np.ndarray
) -> np.ndarray:
    """gS for S ← zS + v, in a form and with its constants."""
    if form == "scan":
        return operations.recur(ratio, gain, past, values)
    constants = form_constants(form, ratio)
    if form == "blocked":
        return operations.recur_by_blocks(constants["powers"], constants["doubled"], gain, past, values)
    return operations.recur_by_doubling(constants["doubled"], gain, past, values)


STATED = {
    "recurrence": "g times the state S ← zS + v, from 0 or fl(past/g), is off by at most gE + ug(|S| + E) + η,"
    " E(1 − z(1+u)²) = ((1+u)² − 1)z|S| + u|v| + 2η(1 + |S|)",
    "recurrence by blocks": "past + gS, S ← zS + v − past from 0, by blocks of C tokens is as near as γ_C for sums of a block, and"
    " recurrence by doubling for their ends, allow",
    "recurrence by doubling": "past + gS, S ← zS + v − past from 0, by windows of 1, 2, 4, … tokens is as near as three roundings for every"
    " window, and u/8 of a state for what lies before the last, allow",
}
"""Recurrences in words; `verify.chain.rounding` has the inequalities."""


def check_exponential(kind: FloatType, operations: Operations) -> CheckedHypothesis:
    """|fl(e^x)/e^x − 1| on [−X, X], e^0 = 1, and X for what lies beyond."""
    evidence, deepest = Evidence(), DEEPEST[kind.dtype]
    x = operands.exponents(kind.dtype)
    x = np.concatenate([x, np.array([2 * deepest, -2 * deepest], kind.dtype)])
    with working_precision(BITS):
        allowed = above(exponential_error(kind.dtype))
        for argument, computed in zip(x, operations.exponential(x), strict=True):
            clipped = rational(float(np.clip(argument, -deepest, deepest)))
            found = number(computed)
            off = None if found is None else above(abs(arb(found) / arb(clipped).exp() - 1))
            evidence.see(off, ZERO if argument == 0 else allowed, argument, computed)
    text = f"|fl(e^x)/e^x − 1| ≤ {nearest(allowed / kind.unit):.4g}u for |x| ≤ {deepest}, e^0 = 1, and ±{deepest} for what lies beyond"
    return evidence.judged("exponential", text)


def check_softmax(kind: FloatType, operations: Operations) -> CheckedHypothesis:
    """Means with the weights e^{a_s − max a}."""
    evidence, rng, tokens = Evidence(), np.random.default_rng(9), TERMS
    logits = np.stack([np.zeros((4, tokens)), rng.uniform(-1, 1, (4, tokens)), rng.uniform(-20, 20, (4, tokens))])[None].astype(kind.dtype)
    values = rng.uniform(-1, 1, (1, 3, tokens, 2)).astype(kind.dtype)
    values[..., 1] = np.sign(values[..., 1])
    computed = operations.mean(logits, values)
    with working_precision(BITS):
        for h, t, v in np.ndindex(3, 4, 2):
            row = [arb(rational(float(a))) for a in logits[0, h, t]]
            size = arb(rational(float(np.abs(logits[0, h, t]).max())))
            bound = kind.arithmetic.softmax_mean(Rounded(size, arb(0)), Rounded(arb(1), arb(0)), arb(2), tokens)
            weights = [a.exp() for a in row]
            exact = sum((w * arb(rational(float(x))) for w, x in zip(weights, values[0, h, :, v], strict=True)), arb(0)) / sum(
                weights, arb(0)
            )
            found = number(computed[0, h, t, v])
            off = None if found is None else above(abs(arb(found) - exact))
            evidence.see(off, above(bound.error), f"{tokens} logits up to {float(abs(logits[0, h, t]).max()):.3g}", computed[0, h, t, v])
    text = "Σ w_s v_s/Σ w_s, w_s = e^(a_s − max a), is off by at most tanh(λ/2) max|v_s − v_t| + (1+u)(1+γ_N)/(1−γ_N) − 1 of max|v_s|"
    text += " + 4Nη(1 + max|v_s|), λ = 2u max|a_s| − log(1 − ε)"
    return evidence.judged("softmax", text)


def check_comparisons(kind: FloatType, operations: Operations) -> CheckedHypothesis:
    """Maxima, relu, clipping."""
    evidence, numbers = Evidence(), operands.directed(kind.dtype)
    table = np.stack([numbers, np.roll(numbers, 1), -numbers], axis=1)
    deepest = float(DEEPEST[kind.dtype])
    found = (
        ("max", operations.largest(table), table.max(axis=1)),
        ("relu", operations.relu(numbers), np.maximum(numbers, 0)),
        ("clip", operations.clip(numbers, -deepest, deepest), np.clip(numbers, -deepest, deepest)),
    )
    for name, computed, wanted in found:
        for given, here, there in zip(numbers, computed, wanted, strict=True):
            evidence.see(distance(here, rational(float(there))), ZERO, name, given, here)
    return evidence.judged("comparisons", "max, relu and clipping return one of their operands, the right one")


def check_whole(kind: FloatType, operations: Operations) -> CheckedHypothesis:
    """Rounding to integers, ties to even, and indices."""
    evidence, dtype = Evidence(), np.dtype(kind.dtype).type
    halves = np.arange(-20, 21, dtype=kind.dtype) / 2
    far = np.array([2.0**20 + 0.5, 2.0**20 + 1.5, 2.0 ** (MANTISSA[kind.dtype] - 1) + 1], kind.dtype)
    given = np.concatenate([halves, np.nextafter(halves, dtype(np.inf)), np.nextafter(halves, dtype(-np.inf)), far])
    given = given[(given == 0) | (np.abs(given) >= np.finfo(kind.dtype).tiny)]
    for x, computed in zip(given, operations.whole(given), strict=True):
        value = rational(float(x))
        below = fmpq((value + fmpq(1, 2)).floor())
        wanted = below - 1 if below - value == fmpq(1, 2) and int(below.p) % 2 else below
        evidence.see(distance(computed, wanted), ZERO, "round", x, computed)
    whole = np.arange(-300, 301, dtype=kind.dtype)
    for x, computed in zip(whole, operations.index(whole), strict=True):
        evidence.see(distance(computed, rational(float(x))), ZERO, "index", x, computed)
    return evidence.judged(
        "whole numbers", "rounding goes to the nearest integer, ties to even; whole numbers become the index that they are"
    )


def check_powers(kind: FloatType, operations: Operations) -> CheckedHypothesis:
    """2ⁿ for |n| ≤ X/ln 2 + 1."""
    evidence, most = Evidence(), int(DEEPEST[kind.dtype] / np.log(2)) + 1
    exponents = np.arange(-most, most + 1)
    for n, computed in zip(exponents, operations.power_of_two(exponents.astype(kind.dtype)), strict=True):
        evidence.see(distance(computed, fmpq(2) ** int(n)), ZERO, n, computed)
    return evidence.judged("powers of two", f"2^n from its bits is exact for whole |n| ≤ {most}")


def facts(kind: FloatType, operations: Operations, found: Mapping[str, Single]) -> dict[str, object]:
    """What no certificate depends on: fusing, flushing, and whether results that do not underflow are the nearest numbers."""
    info, scalar = np.finfo(kind.dtype), np.dtype(kind.dtype).type
    count = 19  # lanes of a vector, and some that are left over
    a = np.full(count, 1 + scalar(2.0 ** -((MANTISSA[kind.dtype] + 1) // 2)))  # its square has one bit too many
    rest = operations.multiply_add(a, a, -operations.multiply(a, a))
    operand = operations.multiply(np.full(count, info.tiny / 4, kind.dtype), np.full(count, 1 / info.eps, kind.dtype))
    result = operations.multiply(np.full(count, info.tiny, kind.dtype), np.full(count, 0.5, kind.dtype))
    rounded = {
        name: all(kind.is_nearest(computed, exact) for *_, computed, exact in one if abs(exact) >= kind.tiny) for name, one in found.items()
    }
    return {
        "fused": bool(rest.any()),
        "flushes_inputs": not operand.all(),
        "flushes_outputs": not result.all(),
        "correctly_rounded": rounded,
    }


@dataclass(frozen=True)
class Examined:
    """A float type on a device: hypotheses and facts."""

    dtype: str
    checks: tuple[CheckedHypothesis, ...]
    facts: Mapping[str, object]

    @property
    def broken(self) -> tuple[str, ...]:
        """The names of hypotheses that do not hold."""
        return tuple(check.name for check in self.checks if not check.holds)


def examine(operations: Operations) -> Examined:
    """All hypotheses about one float type, held against a device."""
    kind = FloatType(operations.dtype, small_results(operations))
    plus = single(kind, operations.add, lambda a, b: a + b)
    minus = single(kind, operations.subtract, lambda a, b: a - b)
    times = single(kind, operations.multiply, lambda a, b: a * b)
    ratio = single(kind, operations.divide, lambda a, b: a / b, quotient=True)
    numbers = "for normal a, b and for smaller ones that the device returns"
    checks = (
        check_single(kind, "sum", "+", [plus, minus], numbers),
        check_single(kind, "product", "·", [times], numbers),
        check_single(kind, "quotient", "/", [ratio], "for the same and u ≤ |b| ≤ 1/u"),
        check_exact(kind, [plus, minus, times], operations),
        check_products(kind, operations),
        check_sums(kind, operations),
        check_taps(kind, operations),
        *(check_recurrence(kind, operations, name) for name in RECURRENCES),
        check_exponential(kind, operations),
        check_softmax(kind, operations),
        check_comparisons(kind, operations),
        check_whole(kind, operations),
        check_powers(kind, operations),
    )
    return Examined(kind.dtype, checks, facts(kind, operations, {"sum": plus, "product": times, "quotient": ratio}))


COMMON = ("sum", "product", "quotient", "exact results", "products of matrices", "comparisons")
EXPONENTIALS = ("sums of weights", "exponential", "powers of two", "softmax")
NEEDED: dict[str, tuple[str, ...]] = {
    "one dp-free layer": (*COMMON, "recurrence", "taps"),
    "chains of shifts": (*COMMON, "recurrence"),
    "adaptive memories": (*COMMON, "recurrence", "taps", "whole numbers"),
    "softmax layers": (*COMMON, *EXPONENTIALS),
    "any layers on finite alphabets": (*COMMON, *EXPONENTIALS, "recurrence", "taps", "whole numbers"),
    "lin heads in blocked form": (*COMMON, "recurrence by blocks"),
    "lin heads in associative form": (*COMMON, "recurrence by doubling"),
    "linear RNNs": ("sum", "product", "products of matrices", "sums of weights", "recurrence"),
}
"""Families of float certificates, and the hypotheses that each rests on."""
WITHOUT = {
    "exact networks": "they speak of exact functions of the stored weights: no device takes part",
    "limits": "balls and exact numbers on the processor: no float of a device takes part",
}


def certificates(examined: Mapping[str, Examined | str]) -> list[dict[str, object]]:
    """Which families of certificates apply on a device, by type; a text stands for a type that it does not have."""
    rows: list[dict[str, object]] = [{"what": what, "dtype": None, "applies": True, "why": why} for what, why in WITHOUT.items()]
    for dtype, found in examined.items():
        for what, needed in NEEDED.items():
            if isinstance(found, str):
                rows.append({"what": what, "dtype": dtype, "applies": False, "why": f"{dtype} is not there: {found}"})
                continue
            broken = [name for name in needed if name in found.broken]
            why = f"violated: {', '.join(broken)}" if broken else f"{len(needed)} hypotheses hold on directed operands"
            rows.append({"what": what, "dtype": dtype, "applies": not broken, "why": why})
    return rows


def diagnosis(given: Mapping[str, Operations | str]) -> dict[str, object]:
    """Types of a device, or why one is not there, as plain data: hypotheses, facts, and the certificates that apply."""
    examined = {dtype: one if isinstance(one, str) else examine(one) for dtype, one in given.items()}
    types = []
    for dtype, found in examined.items():
        if isinstance(found, str):
            types.append({"dtype": dtype, "available": False, "reason": found, "checks": [], "facts": None})
        else:
            checks = [check.as_dict() for check in found.checks]
            types.append({"dtype": dtype, "available": True, "reason": None, "checks": checks, "facts": dict(found.facts)})
    violated = [f"{found.dtype}: {name}" for found in examined.values() if not isinstance(found, str) for name in found.broken]
    return {"holds": not violated, "violated": violated, "dtypes": types, "certificates": certificates(examined)}
