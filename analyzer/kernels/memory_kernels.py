"""Memory kernels ρ given as text in one variable s, such as `exp(-s/5)` or `(s+1)**-1.5`: values, tails and envelopes in ball arithmetic.

Text is parsed over a whitelist of Python's syntax tree, never evaluated. The normal form is a finite sum of terms

    c · Π_i (α_i s + β_i)^{q_i} · exp(c_0 + c_1 s + c_2 s²) · Π_j sin or cos(ω_j s + φ_j),     every number rational, α_i > 0.

A kernel that is undefined at s = 0 (`s**-2`) counts as 0 there: log heads do not see s = 0, and the residual could repair any value.

Majorant. For s ≥ S ≥ 1 with α_i S + β_i > 0 each term is at most C s^q e^{−as}, q = Σ q_i, because

    ((α s + β)/s)^q lies between α^q and (α + β/S)^q,       c_2 s² ≤ c_2 (2S s − S²) for c_2 ≤ 0 (the tangent at S),      |sin|, |cos| ≤ 1.

Tails. For a > 0 consecutive terms of Σ_{s≥S} C s^q e^{−as} have ratio at most r = max(1, (1+1/S)^q) e^{−a}, so the sum is at most
C S^q e^{−aS}/(1−r); for a = 0 and q < −1 it is C ζ(−q, S). Weights s^θ and e^{θs} change q and a. Anything slower is refused, term by term.
"""

import ast
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, cached_property
from typing import Any, Literal

from flint import arb, arb_series, ctx, fmpq

from analyzer.errors import InputError
from analyzer.language.reader import Reader
from analyzer.numbers.exact import dyadic, from_text, maximum, rational, upper, working_precision

# Sizes beyond which a kernel is taken for a mistake.
MAX_TERMS = 64
MAX_FACTORS = 256
"""Functions in all terms together: kernels are looked at up to `LATEST_PEAK` several times, which takes seconds."""
MAX_POWER = 64
LEAST_RATE = fmpq(1, 10**6)
"""Slower exponentials would have to be summed over more than a million tokens."""
LEAST_POWER = fmpq(101, 100)
"""Slower powers would have to be summed over more than e^100 tokens."""
LATEST_PEAK = 1 << 12
"""Beyond this s every term must fall."""
LARGEST_NORM = 1e9

Shape = Literal["exponential", "power"]
Power = tuple[fmpq, fmpq, fmpq]
Wave = tuple[str, fmpq, fmpq]

_ZERO, _ONE = fmpq(0), fmpq(1)


@dataclass(frozen=True)
class Factors:
    """Π (α s + β)^q · exp(c_0 + c_1 s + c_2 s²) · Π wave(ω s + φ)."""

    powers: tuple[Power, ...] = ()
    exponent: tuple[fmpq, fmpq, fmpq] = (_ZERO, _ZERO, _ZERO)
    waves: tuple[Wave, ...] = ()

    def times(self, other: "Factors") -> "Factors":
        exponents: dict[tuple[fmpq, fmpq], fmpq] = {}
        for alpha, beta, q in self.powers + other.powers:
            exponents[alpha, beta] = exponents.get((alpha, beta), _ZERO) + q
        powers = tuple(sorted((*line, q) for line, q in exponents.items() if q != 0))
        return Factors(powers, _add(self.exponent, other.exponent), tuple(sorted(self.waves + other.waves)))

    def to_the(self, q: fmpq) -> "Factors":
        c0, c1, c2 = (c * q for c in self.exponent)
        return Factors(tuple((a, b, p * q) for a, b, p in self.powers), (c0, c1, c2))

    @property
    def degree(self) -> fmpq:
        return sum((q for _, _, q in self.powers), _ZERO)

    def defined_at_zero(self) -> bool:
        return all(beta > 0 or (beta == 0 and q > 0) or (beta < 0 and q.q == 1) for _, beta, q in self.powers)

    def value(self, s: int) -> arb:
        """At a whole number, exactly rational powers first."""
        c0, c1, c2 = self.exponent
        result = arb(c0 + c1 * s + c2 * s * s).exp()
        for alpha, beta, q in self.powers:
            base = alpha * s + beta
            exact = q.q == 1 and abs(int(q.p)) * (int(base.p).bit_length() + int(base.q).bit_length()) <= EXACT_BITS
            result *= arb(base ** int(q.p)) if exact else arb(base) ** arb(q)
        for name, omega, phase in self.waves:
            angle = arb(omega * s + phase)
            result *= angle.sin() if name == "sin" else angle.cos()
        return result

    def delayed(self) -> "Factors":
        """The same product at s − 1."""
        c0, c1, c2 = self.exponent
        powers = tuple(sorted((alpha, beta - alpha, q) for alpha, beta, q in self.powers))
        waves = tuple(sorted((name, omega, phase - omega) for name, omega, phase in self.waves))
        return Factors(powers, (c0 - c1 + c2, c1 - 2 * c2, c2), waves)

    def sum_from(self, start: int) -> arb | None:
        """Σ_{s≥start} of an exponential or of a power of one affine form that is positive there; None of anything else."""
        c0, c1, c2 = self.exponent
        if self.waves or c2 != 0 or len(self.powers) > 1:
            return None
        if not self.powers:
            return arb(c0 + c1 * start).exp() / (1 - arb(c1).exp())
        ((alpha, beta, q),) = self.powers
        place = start + beta / alpha
        return None if c1 != 0 or place <= 0 else arb(c0).exp() * arb(alpha) ** arb(q) * arb(-q).zeta(arb(place))

    def taylor(self, x: arb) -> arb_series:
        """Taylor series at x, to the order of the context; x may be an interval on which every αs + β is positive."""
        c0, c1, c2 = (arb(c) for c in self.exponent)
        result = arb_series([c0 + c1 * x + c2 * x * x, c1 + 2 * c2 * x, c2]).exp()
        for alpha, beta, q in self.powers:
            result = result * arb_series(power_series(arb(alpha) * x + arb(beta), arb(alpha), arb(q)))
        for name, omega, phase in self.waves:
            angle = arb_series([arb(omega) * x + arb(phase), arb(omega)])
            result = result * (angle.sin() if name == "sin" else angle.cos())
        return result

    def majorant(self, start: int) -> tuple[arb, fmpq, fmpq] | None:
        """(C, q, a) with |·| ≤ C s^q e^{−as} for s ≥ start ≥ 1; None where the tangent does not fall or a base is not positive."""
        c0, c1, c2 = self.exponent
        rate = -(c1 + 2 * c2 * start)
        constant = arb(c0 - c2 * start * start).exp()
        if rate < 0:
            return None
        for alpha, beta, q in self.powers:
            edge = alpha + beta / start
            if edge <= 0:
                return None
            constant *= (arb(alpha) ** arb(q)).max(arb(edge) ** arb(q))
        return constant, self.degree, rate


def power_series(base: arb, slope: arb, exponent: arb) -> list[arb]:
    """Coefficients of (base + slope t)^exponent, as many as the context keeps."""
    result, binomial = [], arb(1)
    for k in range(ctx.cap):
        result.append(binomial * slope**k * base ** (exponent - k))
        binomial *= (exponent - k) / (k + 1)
    return result


def _add(left: tuple[fmpq, fmpq, fmpq], right: tuple[fmpq, fmpq, fmpq]) -> tuple[fmpq, fmpq, fmpq]:
    return left[0] + right[0], left[1] + right[1], left[2] + right[2]


@dataclass(frozen=True)
class Envelope:
    """|ρ(s)| ≤ C e^{−βs} for s ≥ 0 (`exponential`) or |ρ(s)| ≤ C s^{−β} for s ≥ 1 (`power`)."""

    shape: Shape
    rate: fmpq
    constant: fmpq


@dataclass(frozen=True)
class MemoryKernel:
    """ρ in normal form; terms are (c, factors). `claim` is an envelope given from outside, and checked."""

    text: str
    terms: tuple[tuple[fmpq, Factors], ...]
    claim: Envelope | None = None

    @cached_property
    def at_zero(self) -> bool:
        """Whether ρ(0) is defined; otherwise it counts as 0."""
        return all(factors.defined_at_zero() for _, factors in self.terms)

    def value(self, s: int) -> arb:
        if s == 0 and not self.at_zero:
            return arb(0)
        return sum((arb(c) * factors.value(s) for c, factors in self.terms), arb(0))

    def values(self, start: int, stop: int) -> list[arb]:
        return [self.value(s) for s in range(start, stop)]

    def taylor(self, x: arb) -> arb_series:
        return sum((arb(c) * factors.taylor(x) for c, factors in self.terms), arb_series([0]))

    def delayed(self) -> "MemoryKernel":
        """ρ(s − 1) for s ≥ 1: one token further back. Needs ρ(0)."""
        if not self.at_zero:
            raise InputError(f"the kernel {self.text[:60]!r} is not defined at s = 0")
        return MemoryKernel(f"{self.text} delayed by one", tuple((c, factors.delayed()) for c, factors in self.terms))

    def sums_from(self, start: int) -> tuple[arb, arb] | None:
        """(|Σ ρ(s)|, Σ_terms |c| Σ …) over s ≥ start: Σ |ρ(s)| lies between them. None if a term has no closed sum from there on."""
        first, signed, unsigned = start if self.at_zero else max(1, start), arb(0), arb(0)
        for c, factors in self.terms:
            part = factors.sum_from(first)
            if part is None:
                return None
            signed, unsigned = signed + arb(c) * part, unsigned + abs(arb(c)) * part
        return abs(signed), unsigned

    @cached_property
    def positive_from(self) -> int:
        """From here on every base αs + β is positive, so that ρ is analytic on [S, ∞)."""
        roots = [-beta / alpha for _, factors in self.terms for alpha, beta, _ in factors.powers]
        return max([1, *(int(r.p // r.q) + 1 for r in roots)])

    def tail(self, start: int, power: fmpq = _ZERO, rate: fmpq = _ZERO) -> arb:
        """Upper bound of Σ_{s≥start} |ρ(s)| s^power e^{rate s}; infinite if `start` is too early or the weight too heavy to tell."""
        total = arb(0)
        for c, factors in self.terms:
            found = factors.majorant(max(1, start))
            if found is None:
                return arb.pos_inf()
            constant, q, a = found
            total += abs(arb(c)) * constant * _power_tail(q + power, a - rate, max(1, start))
        return total if start >= 1 else total + abs(self.value(0))

    def total(self, power: fmpq = _ZERO, rate: fmpq = _ZERO) -> arb:
        """Upper bound of |ρ(0)| + Σ_{s≥1} |ρ(s)| s^power e^{rate s}; infinite if it diverges."""
        weights = ((s, arb(s) ** arb(power) * (arb(rate) * s).exp() if s else arb(1)) for s in range(WINDOW))
        partial = sum((abs(self.value(s)) * w for s, w in weights), arb(0))
        tail, start = self.tail(WINDOW, power, rate), WINDOW
        while not tail.is_finite() and start < LATEST_PEAK:
            more = ((s, arb(s) ** arb(power) * (arb(rate) * s).exp()) for s in range(start, 2 * start))
            partial += sum((abs(self.value(s)) * w for s, w in more), arb(0))
            start *= 2
            tail = self.tail(start, power, rate)
        return partial + tail

    @cached_property
    def shape(self) -> Shape:
        """`power` if some term falls like a power only."""
        slow = any(f.exponent[1] == 0 == f.exponent[2] for _, f in self.terms)
        return "power" if slow else "exponential"

    @cached_property
    def envelope(self) -> Envelope:
        """The claim, or the natural envelope: the slowest term's rate, a hundredth less if a polynomial multiplies an exponential."""
        if self.claim is not None and self.claim.shape == self.shape:
            return self.claim
        rates = []
        for _, factors in self.terms:
            _, c1, c2 = factors.exponent
            if self.shape == "power" and c1 == 0 == c2:
                rates.append(-factors.degree)
            elif self.shape == "exponential":
                rates.append(_ONE if c2 != 0 else -c1 * (fmpq(99, 100) if factors.degree > 0 else 1))
        rate = min(rates)
        return Envelope(self.shape, rate, dyadic(self.supremum(self.shape, rate).upper() * (1 + arb(2) ** -20), 24))

    def supremum(self, shape: Shape, rate: fmpq) -> arb:
        """Upper bound of sup |ρ(s)| e^{βs} over s ≥ 0, or of sup |ρ(s)| s^β over s ≥ 1."""
        power, growth = (_ZERO, rate) if shape == "exponential" else (rate, _ZERO)
        first = 0 if shape == "exponential" else 1
        start = WINDOW
        largest = arb(0)
        while True:
            weighted = [abs(self.value(s)) * arb(max(1, s)) ** arb(power) * (arb(growth) * s).exp() for s in range(first, start)]
            largest = maximum([largest, *weighted])
            beyond = self.supremum_from(start, power, growth)
            if beyond <= largest or start >= LATEST_PEAK:
                return largest.max(beyond)
            first, start = start, 2 * start

    def supremum_from(self, start: int, power: fmpq = _ZERO, growth: fmpq = _ZERO) -> arb:
        """Upper bound of sup |ρ(s)| s^power e^{growth s} over s ≥ start ≥ 1; infinite if `start` is too early or the weight too heavy."""
        total = arb(0)
        for c, factors in self.terms:
            found = factors.majorant(start)
            if found is None:
                return arb.pos_inf()
            constant, q, a = found
            q, a = q + power, a - growth
            if a < 0 or (a == 0 and q > 0):
                return arb.pos_inf()
            peak = arb(q / a) if a > 0 and q > a * start else arb(start)  # s^q e^{−as} rises up to s = q/a
            total += abs(arb(c)) * constant * peak ** arb(q) * (-arb(a) * peak).exp()
        return total

    def check_envelope(self, envelope: Envelope) -> None:
        """Refuse an envelope that is not certainly true for all s (up to 2^-40 of its constant)."""
        with working_precision(128):
            reached = self.supremum(envelope.shape, envelope.rate)
            if not reached <= arb(envelope.constant) * (1 + arb(2) ** -40):
                law = "C e^(-beta s)" if envelope.shape == "exponential" else "C s^-beta"
                raise InputError(f"the envelope {law} does not hold for kernel {self.text[:60]!r}: C must be at least {upper(reached):.6g}")

    def exponentials(self) -> list[tuple[fmpq, int]] | None:
        """(a, k) for every s^k e^{−as} in ρ, if ρ is a sum of nothing else on s ≥ 1: limits of lin heads, exact for k = 0."""
        found: dict[fmpq, int] = {}
        for _, factors in self.terms:
            _, c1, c2 = factors.exponent
            if factors.waves or c2 != 0 or c1 >= 0 or any(q.q != 1 or q < 0 for _, _, q in factors.powers):
                return None
            found[-c1] = max(found.get(-c1, 0), int(factors.degree.p))
        return sorted(found.items())

    def exact_decays(self, rpe: str) -> list[fmpq]:
        """Decays of the terms c e^{−as} (lin) or c s^{−q} (log) of ρ: heads that are exact."""
        if rpe == "lin":
            return sorted({-f.exponent[1] for _, f in self.terms if not f.powers and not f.waves and f.exponent[2] == 0})
        pure = [f.powers[0] for _, f in self.terms if len(f.powers) == 1 and not f.waves and not any(f.exponent[1:])]
        return sorted({-q for alpha, beta, q in pure if alpha == 1 and beta == 0})

    def waves(self) -> bool:
        return any(factors.waves for _, factors in self.terms)


EXACT_BITS = 1 << 12
"""Powers of rationals are computed exactly up to this size, far above every working precision; thousands of values are asked for."""
WINDOW = 64
"""Values summed one by one before a majorant takes over, at least."""


def _power_tail(q: fmpq, a: fmpq, start: int) -> arb:
    """Upper bound of Σ_{s≥start} s^q e^{−as}."""
    if a > 0:
        ratio = arb(1).max((1 + arb(1) / start) ** arb(q)) * (-arb(a)).exp()
        return arb(start) ** arb(q) * (-arb(a) * start).exp() / (1 - ratio) if ratio < 1 else arb.pos_inf()
    return arb(-q).zeta(arb(start)) if a == 0 and q < -1 else arb.pos_inf()


@cache
def parse_kernel(text: str) -> MemoryKernel:
    """The kernel that a text describes; refused if it is malformed, singular or complex at some s ≥ 1, or not summable."""
    parsed = KernelReader(text, "kernel").whole()
    terms = tuple((c, f) for f, c in sorted(parsed.items(), key=lambda item: repr(item[0])))
    if not terms:
        raise InputError(f"the kernel {text[:60]!r} is zero")
    kernel = MemoryKernel(text, terms)
    for _, factors in terms:
        _check(factors, text)
    with working_precision(64):
        if not upper(kernel.total()) <= LARGEST_NORM:
            raise InputError(f"the kernel {text[:60]!r} is too large, or falls too late: its sum exceeds {LARGEST_NORM:g}")
    return kernel


def _check(factors: Factors, text: str) -> None:
    what = f"the kernel {text[:60]!r}"
    _, c1, c2 = factors.exponent
    for alpha, beta, q in factors.powers:
        if abs(q) > MAX_POWER:
            raise InputError(f"{what} has a power beyond {MAX_POWER}")
        zero = -beta / alpha
        if q < 0 and zero >= 1 and zero.q == 1:
            raise InputError(f"{what} is singular at s = {zero}")
        if q.q != 1 and zero > 1:
            raise InputError(f"{what} is not real at s = 1: a power {q} of a negative number")
        if abs(zero) > LATEST_PEAK:
            raise InputError(f"{what} changes only beyond s = {LATEST_PEAK}")
    if c2 > 0 or (c2 == 0 and c1 > 0):
        raise InputError(f"{what} is not summable: an exponential grows")
    if c2 == 0 and 0 < -c1 < LEAST_RATE:
        raise InputError(f"{what} falls too slowly: give exponentials a rate of at least 1e-6")
    if c2 == 0 == c1 and factors.degree > -LEAST_POWER:
        raise InputError(f"{what} is not summable: a term falls like s^{factors.degree}, at least s^-1.01 is needed (term by term)")
    if factors.majorant(LATEST_PEAK) is None:
        raise InputError(f"{what} does not fall before s = {LATEST_PEAK}")


Sum = dict[Factors, fmpq]


def _constant(value: fmpq) -> Sum:
    return {Factors(): value} if value != 0 else {}


def _collect(pairs: Iterable[tuple[Factors, fmpq]]) -> Sum:
    result: Sum = {}
    for factors, c in pairs:
        result[factors] = result.get(factors, _ZERO) + c
    if len(result) > MAX_TERMS:
        raise InputError(f"a kernel has more than {MAX_TERMS} terms")
    work = sum(1 + len(f.powers) + len(f.waves) for f in result)
    if work > MAX_FACTORS:
        raise InputError(f"a kernel has {work} powers, exponentials and waves in its terms, the limit is {MAX_FACTORS}")
    return {f: c for f, c in result.items() if c != 0}


def _polynomial(parsed: Sum) -> list[fmpq] | None:
    """Coefficients of a polynomial of degree at most 2, or None."""
    total = [_ZERO] * 3
    for factors, c in parsed.items():
        if factors.waves or any(factors.exponent) or any(q.q != 1 or q < 0 for _, _, q in factors.powers) or factors.degree > 2:
            return None
        product = [c, _ZERO, _ZERO]
        for alpha, beta, q in factors.powers:
            for _ in range(int(q.p)):
                product = [beta * product[0], beta * product[1] + alpha * product[0], beta * product[2] + alpha * product[1]]
        total = [a + b for a, b in zip(total, product, strict=True)]
    return total


class KernelReader(Reader[Sum]):
    """Kernels ρ(s): sums of products of powers, exponentials and waves of s."""

    functions = ("exp", "sin", "cos", "sqrt")
    vocabulary = "s, numbers"

    def number(self, value: fmpq) -> Sum:
        return _constant(value)

    def name(self, node: ast.expr, name: str) -> Sum:
        if name != "s":
            raise self.unknown(node)
        return {Factors(((_ONE, _ZERO, _ONE),)): _ONE}

    def negative(self, value: Sum) -> Sum:
        return {f: -c for f, c in value.items()}

    def plus(self, left: Sum, right: Sum) -> Sum:
        return _collect([*left.items(), *right.items()])

    def times(self, node: ast.expr, left: Sum, right: Sum) -> Sum:
        return self.product(left, right)

    def over(self, node: ast.expr, left: Sum, right: Sum) -> Sum:
        return self.product(left, self.to_the(node, right, fmpq(-1)))

    def power(self, node: ast.expr, base: Sum, exponent: Sum) -> Sum:
        number = _polynomial(exponent)
        if number is None or number[1] != 0 or number[2] != 0:
            raise self.refuse(node, "exponents are numbers; write exp(...) for an exponential")
        return self.to_the(node, base, number[0])

    @staticmethod
    def product(left: Sum, right: Sum) -> Sum:
        return _collect((f.times(g), a * b) for f, a in left.items() for g, b in right.items())

    def to_the(self, node: ast.AST, base: Sum, q: fmpq) -> Sum:
        if abs(q) > MAX_POWER or q.q > 10**6:
            raise self.refuse(node, f"powers lie between -{MAX_POWER} and {MAX_POWER}")
        whole = q.q == 1
        if not base:
            if q > 0:
                return {}
            raise self.refuse(node, "zero has no such power")
        if set(base) == {Factors()}:
            if not whole:
                raise self.refuse(node, "a number needs a whole power; write the number")
            return _constant(base[Factors()] ** int(q.p))
        line = _polynomial(base)
        if line is not None and line[2] == 0:
            return self.line_power(node, line[1], line[0], q)
        if len(base) == 1:
            ((factors, c),) = base.items()
            if not factors.waves and (whole or (c == 1 and all(alpha + beta > 0 for alpha, beta, _ in factors.powers))):
                return {factors.to_the(q): c ** int(q.p) if whole else _ONE}
        if whole and 0 < q <= 8:
            result = base
            for _ in range(int(q.p) - 1):
                result = self.product(result, base)
            return result
        raise self.refuse(node, "only affine forms and single terms have such powers")

    def line_power(self, node: ast.AST, alpha: fmpq, beta: fmpq, q: fmpq) -> Sum:
        """(αs + β)^q with α > 0, monic if q is a whole number."""
        if q == 0:
            return _constant(_ONE)
        if q.q == 1:
            return {Factors(((_ONE, beta / alpha, q),)): alpha ** int(q.p)}
        if alpha < 0:
            raise self.refuse(node, "not real for large s: a fractional power of a negative number")
        return {Factors(((alpha, beta, q),)): _ONE}

    def function(self, node: ast.AST, name: str, argument: Sum) -> Sum:
        if name == "sqrt":
            return self.to_the(node, argument, fmpq(1, 2))
        polynomial = _polynomial(argument)
        if polynomial is None or (name != "exp" and polynomial[2] != 0):
            raise self.refuse(node, f"the argument of {name} must be a polynomial in s of degree {'2' if name == 'exp' else '1'} at most")
        c0, c1, c2 = polynomial
        if max(abs(c0), abs(c1), abs(c2)) > 10**6:
            raise self.refuse(node, "a coefficient exceeds a million")
        if name == "exp":
            return {Factors(exponent=(c0, c1, c2)): _ONE}
        if c1 < 0:
            sign = -_ONE if name == "sin" else _ONE
            return {Factors(waves=((name, -c1, -c0),)): sign}
        return {Factors(waves=((name, c1, c0),)): _ONE}


def envelope_from(data: Any, source: str) -> Envelope:
    """An envelope from plain data {shape, rate, constant}."""
    if not isinstance(data, dict) or set(data) != {"shape", "rate", "constant"} or data["shape"] not in ("exponential", "power"):
        raise InputError(f"{source}: an envelope has shape ('exponential' or 'power'), rate and constant")
    rate, constant = (_positive(data[key], f"{source}: an envelope's {key}") for key in ("rate", "constant"))
    return Envelope(data["shape"], rate, constant)


def _positive(value: Any, what: str) -> fmpq:
    """A positive number from TOML (integers, exact decimals) or from a card (exact text)."""
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        raise InputError(f"{what} must be a positive number")
    number = from_text(value) if isinstance(value, str) else rational(str(value).lstrip("+"))
    if not number > 0:
        raise InputError(f"{what} must be a positive number")
    return number
