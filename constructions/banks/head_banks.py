"""Head banks: decays and weights that turn relative positions into memories.

A bank has decays p_1..p_H of one RPE type and, for every lag it serves, weights a_h on the normalised kernels and a residual
weight c. All numbers are exact: decays are rationals, weights are rounded to multiples of 2^{−k}, where k follows from the inequality
(H + 1) 2^{−k} ≤ 2^{−63} e: storing them moves the error by less than 2^{−63} of itself.

`interpolation_bank` is the proof of Wang & E's Lemmas F.1 and F.4; `minimal_lin` and `minimal_log` use as many heads as the lag.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from flint import arb, arb_poly, fmpq

from analyzer.errors import Refusal
from analyzer.families import Rpe
from analyzer.lemmas.bump import bump
from analyzer.numbers import chebyshev
from analyzer.numbers.exact import dyadic, magnitude, to_grid, upper, working_precision
from analyzer.numbers.search import golden, least_parameter
from analyzer.numbers.zeta import GUARD as ZETA_GUARD
from analyzer.numbers.zeta import ONE, zeta

if TYPE_CHECKING:
    from analyzer.lemmas.extraction import Tuning

GUARD = 64
"""Bits by which the storage of exact weights stays below the error (see the module's docstring)."""


@dataclass(frozen=True)
class HeadBank:
    """Decays shared by several lags; `weights[k][h]` multiplies the normalised kernel of head h for lag k."""

    rpe: Rpe
    decays: tuple[fmpq, ...]
    lags: tuple[int, ...]
    weights: tuple[tuple[fmpq, ...], ...]
    residuals: tuple[fmpq, ...]

    @property
    def heads(self) -> int:
        return len(self.decays)


def normaliser(rpe: Rpe, decay: fmpq, bits: int, start: fmpq = ONE) -> arb:
    """1/(1−e^{−p}) or ζ(p), of powers that begin at `start` ζ(p, start)."""
    return 1 / (1 - (-arb(decay)).exp()) if rpe == "lin" else zeta(decay, bits, start)


def store(
    rpe: Rpe, decays: Sequence[fmpq], lags: Sequence[int], raw: list[list[arb]], residuals: list[arb], error: float, start: fmpq = ONE
) -> HeadBank:
    """Normalise the raw amplitudes and round them to the grid that the error asks for."""
    depth = bits_below(error) + GUARD + len(decays).bit_length()
    weights = []
    for amplitudes in raw:
        row = []
        for amplitude, decay in zip(amplitudes, decays, strict=True):
            size = max(0, magnitude(amplitude)) + max(0, magnitude(normaliser(rpe, decay, ZETA_GUARD, start)))  # ζ(p, A) is A^{−p} and more
            needed = size + max(depth + 8, ZETA_GUARD)
            row.append(to_grid(amplitude * normaliser(rpe, decay, needed, start), depth))
        weights.append(tuple(row))
    return HeadBank(rpe, tuple(decays), tuple(lags), tuple(weights), tuple(to_grid(c, depth) for c in residuals))


def bits_below(error: float) -> int:
    return max(0, math.ceil(-math.log2(error)))


def interpolation_bank(rpe: Rpe, lags: Sequence[int], heads: int, tuning: "Tuning") -> HeadBank:
    """Lemmas F.1 (lin) and F.4 (log): κ(s) = w(s) Q(x(s)), Q interpolating the bump at the lag in Chebyshev points of [0, 1].

    lin: w = e^{−γs}, x = e^{−αs}, p_k = γ + αk. log: w = s^{−1−γ}, x = s^{−α}, p_k = 1 + γ + αk.
    The monomial coefficients of a Chebyshev series of degree N grow like (1+√2)^{2N} ≤ 2^{2.55 N}, which sets the precision.
    """
    with working_precision(interpolation_bits(heads)):
        table = chebyshev.cosines(heads - 1)
        raw = [interpolant(rpe, lag, tuning, table) for lag in lags]
        return store(rpe, progression(rpe, heads, tuning), lags, raw, [arb(0)] * len(lags), 2.0**-GUARD)


def interpolation_bits(heads: int) -> int:
    """Precision in which the weights of an interpolation bank are computed; too few heads are refused."""
    if heads < 3:
        raise Refusal(f"{heads} heads are too few for an interpolation bank: rate n = 1 needs 3", {"heads": 3})
    return math.ceil(2.55 * (heads - 1)) + 4 * GUARD


def progression(rpe: Rpe, heads: int, tuning: "Tuning") -> list[fmpq]:
    """The decays γ + αk (lin) or 1 + γ + αk (log)."""
    first = tuning.gamma + (0 if rpe == "lin" else 1)
    return [first + tuning.alpha * k for k in range(heads)]


def interpolant(rpe: Rpe, lag: int, tuning: "Tuning", table: list[arb]) -> list[arb]:
    """Monomial coefficients of the interpolant of e^{1+γT} Ψ((x−μ)/σ) (lin) or e T^{1+γ} Ψ((x−μ)/σ) (log)."""
    a, g = arb(tuning.alpha), arb(tuning.gamma)
    if rpe == "lin":
        centre, neighbour, height = (-a * lag).exp(), (-a * (lag + 1)).exp(), (1 + g * lag).exp()
    else:
        centre, neighbour, height = arb(lag) ** -a, arb(lag + 1) ** -a, arb(1).exp() * arb(lag) ** (1 + g)
    width = centre - neighbour
    return polynomial_through([height * bump(((1 + y) / 2 - centre) / width) for y in table])


def polynomial_through(samples: list[arb]) -> list[arb]:
    """Coefficients in x of the interpolant Σ_j series_j T_j(2x − 1) at the Chebyshev points, by Clenshaw's recurrence on polynomials."""
    series, argument = chebyshev.series(samples), arb_poly([-1, 2])
    later, latest = arb_poly([0]), arb_poly([0])
    for coefficient in reversed(series[1:]):
        latest, later = 2 * argument * latest - later + arb_poly([coefficient]), latest
    result = (argument * latest - later + arb_poly([series[0]])).coeffs()
    return result + [arb(0)] * (len(series) - len(result))


def minimal_lin(lags: Sequence[int], heads: int, top: fmpq, decay_bits: int, error: float) -> HeadBank:
    """(3.3) at the optimal nodes z_h = b (1 − cos(πh/H))/2, h = 1..H, b = `top`; decays rounded to `decay_bits` first.

    κ has the generating function w P(w)/Π(1−z_h w), P = w^{T−1} Π(1−z_h w) cut off after degree H−1: the values at s = 1..H are
    exactly 1{s=T}. Then A_h = z_h^{H−2} P(1/z_h)/Π_{j≠h}(z_h − z_j) and c = −Σ_h A_h.
    """
    bits = _minimal_bits(heads, error) + math.ceil(2 * heads * max(1.0, -math.log2(float(arb(top)))))
    with working_precision(bits):
        angles = [(arb.pi() * h / heads).cos() if h < heads else arb(-1) for h in range(1, heads + 1)]
        decays = [dyadic(-(arb(top) * (1 - angle) / 2).log(), decay_bits) for angle in angles]
        ratios = [(-arb(p)).exp() for p in decays]
        denominator = arb_poly([1])
        for z in ratios:
            denominator = denominator * arb_poly([1, -z])
        raw = []
        for lag in lags:
            numerator = [*[arb(0)] * (lag - 1), *denominator.coeffs()[: heads - lag + 1]]
            raw.append([_amplitude(h, ratios, numerator) for h in range(heads)])
        return store("lin", decays, lags, raw, [-sum(row, arb(0)) for row in raw], error)


def _amplitude(h: int, ratios: list[arb], numerator: list[arb]) -> arb:
    z = ratios[h]
    differences = arb(1)
    for j, other in enumerate(ratios):
        if j != h:
            differences *= z - other
    reversed_value = arb(0)  # z^{H−1} P(1/z)
    for coefficient in numerator:
        reversed_value = reversed_value * z + coefficient
    return reversed_value / (z * differences)


def _minimal_bits(heads: int, error: float) -> int:
    """Bits for storage (64 below the error), the products over H nodes, and the weights' 2^{2H−1}, with room to spare."""
    return 6 * GUARD + 6 * heads + 2 * bits_below(error)


def minimal_log(lags: Sequence[int], heads: int, base: fmpq, step: fmpq, error: float) -> HeadBank:
    """(3.4): p_h = B + η(h−1) and κ(s) = (T/s)^B Π_{j≤H, j≠T} (s^{−η} − j^{−η})/(T^{−η} − j^{−η})."""
    decays = [base + step * h for h in range(heads)]
    bits = _minimal_bits(heads, error) + math.ceil(2 * float(arb(decays[-1])) * math.log2(heads + 1))
    with working_precision(bits):
        power, raw = arb(step), []
        for lag in lags:
            zeros = [arb(j) ** -power for j in range(1, heads + 1) if j != lag]
            scale = arb(lag) ** arb(base)
            for zero in zeros:
                scale /= arb(lag) ** -power - zero
            raw.append([scale * c for c in arb_poly.from_roots(zeros).coeffs()])
        return store("log", decays, lags, raw, [arb(0)] * len(lags), error)


def exact_minimal(rpe: Rpe, lags: Sequence[int], heads: int, target: Callable[[list[arb]], bool], error: float) -> HeadBank:
    """The minimal bank whose bounds (3.3)/(3.4), lag by lag, satisfy `target`; nothing but the error constrains the weights.

    lin: the largest b (smallest weights) that does. log: for every η the least B that does, and the η for which the largest
    exponent B + η(H−1), which sets the size of the weights, is least.
    """
    from analyzer.lemmas.extraction import minimal_bound  # with its formulas, which limits do without

    if rpe == "lin":

        def bounds_lin(top: fmpq) -> list[arb]:
            nodes = [-(arb(top) * (1 - (arb.pi() * h / heads).cos()) / 2).log().mid() for h in range(1, heads + 1)]
            decays = [dyadic(p, 96) for p in nodes]
            return [minimal_bound("lin", lag, decays) for lag in lags]

        with working_precision(256 + 8 * heads):
            top = least_parameter(lambda b: target(bounds_lin(b)), fmpq(1, 2), grow=False)
        return minimal_lin(lags, heads, top, 96, error)

    def bounds_log(base: fmpq, step: fmpq) -> list[arb]:
        decays = [base + step * h for h in range(heads)]
        return [minimal_bound("log", lag, decays) for lag in lags]

    def least_base(step: fmpq) -> fmpq:
        return least_parameter(lambda b: target(bounds_log(b, step)), fmpq(2), grow=True)

    with working_precision(128):
        if heads == 1:
            return minimal_log(lags, heads, least_base(fmpq(1)), fmpq(1), error)
        steps = [fmpq(heads) * fmpq(2) ** k for k in range(-4, 3)]
        bases = [least_base(step) for step in steps]
        base, step = min(zip(bases, steps, strict=True), key=lambda pair: pair[0] + pair[1] * (heads - 1))
    return minimal_log(lags, heads, base, step, error)


def weight_sum(bank: HeadBank) -> arb:
    """Σ_k (|c_k| + Σ_h |a_kh|)."""
    return sum((abs(arb(a)) for row in (*bank.weights, bank.residuals) for a in row), arb(0))


def budgeted_minimal(rpe: Rpe, lags: Sequence[int], heads: int, price: fmpq, precision: int) -> HeadBank:
    """The minimal bank that is best for a float type: minimise Σ_k e_k + price · Σ_k (|c_k| + Σ_h |a_kh|).

    lin over b ∈ (0, 1); log over (B, η) by descent in the two coordinates. Decays are rounded to the type before the weights
    are computed from them.
    """
    from analyzer.lemmas.extraction import minimal_bound  # with its formulas, which limits do without

    def budget(bank: HeadBank) -> float:
        with working_precision(256):
            errors = sum((minimal_bound(rpe, lag, bank.decays) for lag in lags), arb(0))
            return upper(errors + arb(price) * weight_sum(bank))

    def lin(logit: float) -> HeadBank:
        return minimal_lin(lags, heads, _short(1 / (1 + math.exp(-logit)), precision), precision, 2.0**-precision)

    def log(base: float, step: float) -> HeadBank:
        return minimal_log(lags, heads, *representable_progression(math.exp(base), math.exp(step), heads, precision), 2.0**-precision)

    if rpe == "lin":
        return lin(golden(lambda v: budget(lin(v)), -40.0, 10.0))
    return log(*golden_pair(lambda b, s: budget(log(b, s)), math.log(16.0), math.log(heads), heads > 1))


def representable_progression(base: float, step: float, heads: int, precision: int) -> tuple[fmpq, fmpq]:
    """(B, η) near the given ones such that every B + ηh is exact in the type: a grid of step 2^e with p_max < 2^{precision + e}."""
    grid = fmpq(2) ** (math.ceil(math.log2(base + step * heads)) - precision + 1)
    exact_base, exact_step = (max(1, round(v / float(arb(grid)))) * grid for v in (base, step))
    return exact_base, exact_step


def golden_pair(budget: Callable[[float, float], float], base: float, step: float, both: bool) -> tuple[float, float]:
    """Descent in log B and, if `both`, log η, by golden sections, from the given start."""
    for _ in range(3 if both else 1):
        base = golden(partial(lambda step, base: budget(base, step), step), math.log(1.5), math.log(200.0), 30)
        if both:
            step = golden(partial(budget, base), math.log(0.05), math.log(100.0), 30)
    return base, step


def _short(value: float, bits: int) -> fmpq:
    return dyadic(arb(value), bits)
