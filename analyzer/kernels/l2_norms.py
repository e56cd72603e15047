"""Squared ℓ² norms of kernels with the infinite tail: what a kernel makes of independent tokens, in mean square.

Statement. Let tokens be independent with mean 0 and variance v. Then E|Σ_s κ(s) x_{t−s}|² = v Σ_s κ(s)²: nothing but mean and variance
enters, and an enclosure of ‖κ‖₂² is a certificate from both sides.

Closed form. A kernel is κ = f + E + P − R: finitely many values f (residual, spikes, taps), exponentials E(s) = Σ A_i z_i^s, powers
P(s) = Σ B_k s^{−p_k} on s ≥ 1, and memory kernels R that are neither. Terms c e^{−as} and c s^{−q} of a memory kernel count to E and P.
With g = E + P − R,

    ‖κ‖² = Σ_s f(s) (f(s) + 2 g(s)) + ‖g‖²,      ‖g‖² = ‖E‖² + ‖P‖² + Σ_s D(s),      D = 2EP − 2R(E + P) + R²,
    ‖E‖² = Σ_ij A_i A_j / (1 − z_i z_j),          ‖P‖² = Σ_kl B_k B_l ζ(p_k + p_l).

If the ratios or exponents are a progression, E² and P² are polynomials in its step: 2H − 1 terms instead of H².

D is summed term by term, then on blocks [A, B) that grow geometrically, by its Taylor series at the middle m of a block, with the last
coefficient enclosed on all of it: Σ_s D(s) = Σ_{k<K} c_k Σ_s (s−m)^k ± C_K r^K (B−A). What is left beyond S is at most

    2 sup|E| Σ|P| + sup|R| (2 Σ|E| + 2 Σ|P| + Σ|R|),      suprema and sums over s ≥ S.

Where weights are so large that this says little (an interpolation bank beside a memory kernel), the ℓ¹ norm bounds the rest:
Σ_{s≥S} κ(s)² ≤ (Σ_{s≥S} |κ(s)|)².
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from flint import arb, arb_poly, arb_series, ctx, fmpq

from analyzer.errors import InputError
from analyzer.kernels.l1_norms import (
    ORDER,
    DeliveredKernel,
    Exponentials,
    Powers,
    Strided,
    Taps,
    l1_norm,
    power_sum,
    series_coefficients,
    series_order,
)
from analyzer.kernels.memory_kernels import Factors, MemoryKernel
from analyzer.numbers.zeta import zeta

SHARP = arb(2) ** -40
"""The share of the norm that may remain unknown before more terms of D are summed."""
LOOSE = arb(2) ** -10
"""The share beyond which the ℓ¹ norm is asked as well."""
WINDOW = 1 << 10
"""Terms of D summed one by one before blocks are."""
LATEST = 1 << 14
"""Terms of D summed one by one where Taylor series on blocks lose too much."""
FARTHEST = 1 << 60


@dataclass(frozen=True)
class Square:
    """Both ends of a squared ℓ² norm."""

    least: arb
    most: arb

    @property
    def enclosure(self) -> arb:
        return self.least.union(self.most)


def square(value: arb) -> arb:
    """x·x: a power of a ball around 0 is no number."""
    return value * value


@dataclass
class _Split:
    """f, E, P and R of a kernel."""

    values: dict[int, arb] = field(default_factory=dict)
    ratios: list[arb] = field(default_factory=list)
    amplitudes: list[arb] = field(default_factory=list)
    exponents: list[fmpq] = field(default_factory=list)
    coefficients: list[arb] = field(default_factory=list)
    rest: list[tuple[fmpq, MemoryKernel]] = field(default_factory=list)

    def add(self, place: int, value: arb) -> None:
        self.values[place] = self.values.get(place, arb(0)) + value

    @property
    def lin(self) -> Exponentials:
        return Exponentials(tuple(self.ratios), tuple(self.amplitudes))

    @property
    def log(self) -> Powers:
        return Powers(tuple(self.exponents), tuple(self.coefficients))

    def smooth(self, place: int) -> arb:
        """g at one place."""
        heads = self.lin.values(place, place + 1)[0] + self.log.values(place, place + 1)[0]
        return heads - sum((arb(w) * memory.value(place) for w, memory in self.rest), arb(0))


def split_memory(memory: MemoryKernel) -> tuple[list[tuple[arb, arb]], list[tuple[arb, fmpq]], MemoryKernel | None]:
    """Terms c e^{−as} as (c, e^{−a}), terms c s^{−q} as (c, q), and the other ones."""
    exponentials, powers, rest = [], [], []
    for c, factors in memory.terms:
        c0, c1, c2 = factors.exponent
        if not factors.powers and not factors.waves and c2 == 0:
            exponentials.append((arb(c) * arb(c0).exp(), arb(c1).exp()))
        elif _is_power(factors):
            powers.append((arb(c) * arb(c0).exp(), -factors.powers[0][2]))
        else:
            rest.append((c, factors))
    return exponentials, powers, MemoryKernel(memory.text, tuple(rest)) if rest else None


def _is_power(factors: Factors) -> bool:
    plain = len(factors.powers) == 1 and not factors.waves and factors.exponent[1] == 0 == factors.exponent[2]
    return plain and factors.powers[0][:2] == (fmpq(1), fmpq(0))


def _split(kernel: DeliveredKernel) -> _Split:
    found = _Split()
    found.add(0, arb(kernel.residual))
    for lag, weight in kernel.spikes:
        found.add(lag, -arb(weight))
    for group in kernel.groups:
        if isinstance(group, Taps):
            for place, value in enumerate(group.table):
                found.add(place, value)
        elif isinstance(group, Exponentials):
            found.ratios += group.ratios
            found.amplitudes += group.amplitudes
        elif isinstance(group, Powers):
            found.exponents += group.exponents
            found.coefficients += group.amplitudes
        else:
            raise InputError("mean squares are computed for heads, not for state spaces with complex poles")
    for weight, memory in kernel.subtracted:
        exponentials, powers, rest = split_memory(memory)
        found.ratios += [ratio for _, ratio in exponentials]
        found.amplitudes += [-arb(weight) * c for c, _ in exponentials]
        found.exponents += [q for _, q in powers]
        found.coefficients += [-arb(weight) * c for c, _ in powers]
        parts = sum((c for c, _ in exponentials), arb(0))
        if rest is not None:
            found.rest.append((weight, rest))
            parts += rest.value(0)
        if not memory.at_zero:  # the whole kernel counts as 0 there
            found.add(0, arb(weight) * parts)
    return found


def exponential_energy(ratios: Sequence[arb], left: Sequence[arb], right: Sequence[arb]) -> arb:
    """Σ_{s≥0} (Σ_i A_i z_i^s)(Σ_j B_j z_j^s) = Σ_ij A_i B_j / (1 − z_i z_j)."""
    total = arb(0)
    for a, z in zip(left, ratios, strict=True):
        total += a * sum((b / (1 - z * w) for b, w in zip(right, ratios, strict=True)), arb(0))
    return total


def power_energy(exponents: Sequence[fmpq], left: Sequence[arb], right: Sequence[arb]) -> arb:
    """Σ_{s≥1} (Σ_k A_k s^{−p_k})(Σ_l B_l s^{−p_l}) = Σ_kl A_k B_l ζ(p_k + p_l)."""
    total = arb(0)
    for a, p in zip(left, exponents, strict=True):
        total += a * sum((b * zeta(p + q, ctx.prec) for b, q in zip(right, exponents, strict=True)), arb(0))
    return total


def _energies(kernel: DeliveredKernel, split: _Split) -> arb:
    """‖E‖² + ‖P‖²; a single progression is squared as a polynomial."""
    groups = [g for g in kernel.groups if not isinstance(g, Taps | Strided)]
    alone = groups[0] if len(groups) == 1 and groups[0].progression and len(groups[0].amplitudes) > 2 else None
    lin = log = None
    if isinstance(alone, Exponentials) and len(alone.ratios) == len(split.ratios):
        step, first = alone.ratios[1] / alone.ratios[0], square(alone.ratios[0])
        squared = arb_poly(list(alone.amplitudes)) ** 2
        lin = sum((c / (1 - first * step**k) for k, c in enumerate(squared.coeffs())), arb(0))
    if isinstance(alone, Powers) and len(alone.exponents) == len(split.exponents):
        step_power, twice = alone.exponents[1] - alone.exponents[0], 2 * alone.exponents[0]
        squared = arb_poly(list(alone.amplitudes)) ** 2
        log = sum((c * zeta(twice + step_power * k, ctx.prec) for k, c in enumerate(squared.coeffs())), arb(0))
    lin = exponential_energy(split.ratios, split.amplitudes, split.amplitudes) if lin is None else lin
    log = power_energy(split.exponents, split.coefficients, split.coefficients) if log is None else log
    return lin + log


def l2_square(kernel: DeliveredKernel) -> Square:
    """‖κ‖₂² of a kernel. Weights of size 2^M need 2M bits more than the precision that is wanted.

    Of kerple heads and of heads with a stride the values of the window are squared, and what lies beyond it is bounded.
    """
    if any(isinstance(g, Strided) or (isinstance(g, Powers) and g.offset > 0) for g in kernel.groups):
        return Square(*_by_sums(kernel))
    split = _split(kernel)
    total = _energies(kernel, split)
    for place, value in split.values.items():
        if not value.is_zero():
            total += value * (value + 2 * split.smooth(place))
    if split.rest or (split.ratios and split.exponents):
        total += _Remainder(split).sum(total)
    least, most = total.lower().max(arb(0)), total.upper()
    if not most - least <= LOOSE * most:
        known, by_sums = _by_sums(kernel)
        least = least.max(known) if least.is_finite() else known
        most = most.min(by_sums) if most.is_finite() else by_sums
    return Square(least, most)


def _by_sums(kernel: DeliveredKernel) -> tuple[arb, arb]:
    """Both ends of ‖κ‖₂² from the values that an ℓ¹ norm was summed from: what lies beyond has at most its square."""
    norm = l1_norm(kernel)
    known = sum((v * v for v in norm.window), arb(0))
    beyond = (norm.most - sum((abs(v) for v in norm.window), arb(0))).upper().max(arb(0))
    return known.lower(), (known + square(beyond)).upper()


class _Remainder:
    """Σ_s D(s), D = 2EP − 2R(E + P) + R²."""

    def __init__(self, split: _Split) -> None:
        self.lin, self.log, self.rest = split.lin, split.log, split.rest
        self.analytic = max([1, *(memory.positive_from for _, memory in self.rest)])

    def sum(self, known: arb) -> arb:
        """The sum over all s ≥ 0; more terms are summed until what is left is a small share of `known` and the sum."""
        total, count = arb(0), 0
        stop = max(64, self.analytic)
        while True:
            total += sum(self.values(count, stop), arb(0))
            count = stop
            beyond = self.beyond(count)
            if beyond <= SHARP * abs(known + total) or count >= max(WINDOW, self.analytic):
                break
            stop = 2 * count
        while count < FARTHEST and not beyond <= SHARP * abs(known + total):
            stop = count + count // 8
            part = self.block(count, stop)
            if not part.rad() <= abs(known + total) * SHARP and count < LATEST:
                part = sum(self.values(count, stop), arb(0))
            if not part.rad() <= beyond:  # a block that says less than the rest as a whole
                break
            total, count = total + part, stop
            beyond = self.beyond(count)
        return total + arb(0, beyond.abs_upper())

    def values(self, start: int, stop: int) -> list[arb]:
        known = [arb(0)] * (stop - start)
        for weight, memory in self.rest:
            known = [a + arb(weight) * b for a, b in zip(known, memory.values(start, stop), strict=True)]
        triples = zip(self.lin.values(start, stop), self.log.values(start, stop), known, strict=True)
        return [2 * e * p - 2 * r * (e + p) + r * r for e, p, r in triples]

    def beyond(self, start: int) -> arb:
        """Upper bound of Σ_{s≥start} |D(s)|; infinite where a memory kernel says nothing yet."""
        peak = sum((abs(a) * z**start for a, z in zip(self.lin.amplitudes, self.lin.ratios, strict=True)), arb(0))
        lin, log = self.lin.tail(start), self.log.tail(start)
        total = 2 * peak * log
        if self.rest:
            highest = sum((abs(arb(w)) * memory.supremum_from(start) for w, memory in self.rest), arb(0))
            known = sum((abs(arb(w)) * memory.tail(start) for w, memory in self.rest), arb(0))
            total += highest * (2 * lin + 2 * log + known)
        return total if total.is_finite() else arb.pos_inf()

    def block(self, start: int, stop: int) -> arb:
        """Σ_{start≤s<stop} D(s) by Taylor series."""
        count = stop - start
        middle, radius = arb(fmpq(start + stop - 1, 2)), arb(fmpq(count - 1, 2))
        with series_order(ORDER + 1):
            here = series_coefficients(self.taylor(middle))
            everywhere = series_coefficients(self.taylor(arb(middle, radius)))
        signed = sum((c * arb(power_sum(count, k)) for k, c in enumerate(here[:ORDER]) if k % 2 == 0), arb(0))
        return signed + arb(0, (count * abs(everywhere[ORDER]) * radius**ORDER).abs_upper())

    def taylor(self, x: arb) -> arb_series:
        lin, log = self.lin.taylor(x), self.log.taylor(x)
        known = sum((arb(w) * memory.taylor(x) for w, memory in self.rest), arb_series([0]))
        return 2 * lin * log - 2 * known * (lin + log) + known * known
