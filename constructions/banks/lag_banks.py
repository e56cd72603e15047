"""Head banks for lags known at run time: a_h multiplies the raw exponential e^{−p_h(s−B)} or (s/B)^{−p_h}, there is no residual weight.

`paper` and `tuned` are Wang & E's Lemmas F.2 and F.5, `minimal` is (3.6) and (3.7) of `analyzer.lemmas.extraction`. Decays are rationals,
weights multiples of 2^{−k} with 2^{−k} Σ_h (mass of head h at the longest lag) ≤ 2^{−63} e: storing them moves the error by less than that.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from flint import arb, arb_poly, fmpq

from analyzer.errors import Refusal
from analyzer.lemmas.extraction import Rpe, Tuning, adaptive_heads, adaptive_minimal_bound, lag_ratios
from analyzer.numbers import chebyshev
from analyzer.numbers.exact import dyadic, magnitude, to_grid, upper, working_precision
from analyzer.numbers.search import golden, least_parameter
from analyzer.numbers.zeta import zeta
from constructions.banks.head_banks import GUARD, golden_pair, interpolant, representable_progression

DECAY_BITS = 96


@dataclass(frozen=True)
class LagBank:
    """Decays and raw weights that extract x_{t−B} for every lag B that occurs."""

    rpe: Rpe
    lags: tuple[int, ...]
    decays: tuple[fmpq, ...]
    weights: tuple[fmpq, ...]

    @property
    def heads(self) -> int:
        return len(self.decays)


def head_mass(rpe: Rpe, decay: fmpq, lag: int) -> arb:
    """Σ_s e^{−p(s−B)} over s ≥ 0, or Σ_s (s/B)^{−p} over s ≥ 1."""
    p = arb(decay)
    if rpe == "lin":
        return (p * lag).exp() / (1 - (-p).exp())
    return arb(lag) ** p * zeta(decay, 64)


def store(rpe: Rpe, lags: Sequence[int], decays: Sequence[fmpq], weights: Sequence[arb], error: float) -> LagBank:
    """The bank with its weights on the grid of the module's docstring."""
    with working_precision(64):
        masses = sum((head_mass(rpe, p, max(lags)) for p in decays), arb(0))
        depth = max(0, math.ceil(-math.log2(error))) + GUARD + max(0, magnitude(masses))
    return LagBank(rpe, tuple(lags), tuple(decays), tuple(to_grid(a, depth) for a in weights))


def interpolation_lag_bank(rpe: Rpe, lags: Sequence[int], heads: int, tuning: Tuning) -> LagBank:
    """Lemmas F.2 and F.5: the interpolation bank for the longest lag T, with e^{−p_h T} or T^{−p_h} moved into the weights."""
    if heads < 3:
        raise Refusal(f"{heads} heads are too few for an interpolation bank: rate n = 1 needs 3", {"heads": 3})
    longest = max(lags)
    first = tuning.gamma + (0 if rpe == "lin" else 1)
    decays = [first + tuning.alpha * k for k in range(heads)]
    steepest = float(arb(decays[-1])) * (longest if rpe == "lin" else math.log(longest)) / math.log(2)
    with working_precision(math.ceil(2.55 * heads + steepest) + 4 * GUARD):
        raw = interpolant(rpe, longest, tuning, chebyshev.cosines(heads - 1))
        weights = [a * ((-arb(p) * longest).exp() if rpe == "lin" else arb(longest) ** -arb(p)) for a, p in zip(raw, decays, strict=True)]
        return store(rpe, lags, decays, weights, 2.0**-GUARD)


def _nodes(top: fmpq, heads: int, bits: int) -> list[fmpq]:
    """The decays −log z_h of the nodes z_h = b (1 − cos(πh/H))/2, rounded."""
    return [dyadic(-(arb(top) * (1 - (arb.pi() * h / heads).cos()) / 2).log(), bits) for h in range(1, heads + 1)]


def minimal_lin(lags: Sequence[int], top: fmpq, decay_bits: int, error: float) -> LagBank:
    """(3.6) at the nodes z_h = b (1 − cos(πh/H))/2, h = 1..H = T+1, b = `top`: a_h = z_h^T/Π_{j≠h}(z_h − z_j)."""
    heads = adaptive_heads("lin", lags)
    bits = 6 * GUARD + 8 * heads + math.ceil(2 * heads * max(1.0, -math.log2(float(arb(top))))) + 2 * max(0, math.ceil(-math.log2(error)))
    with working_precision(bits):
        decays = _nodes(top, heads, decay_bits)
        ratios = [(-arb(p)).exp() for p in decays]
        weights = []
        for h, z in enumerate(ratios):
            weight = arb(1)
            for j, other in enumerate(ratios):
                weight *= z / (z - other) if j != h else 1
            weights.append(weight)
        return store("lin", lags, decays, weights, error)


def minimal_log(lags: Sequence[int], base: fmpq, step: fmpq, error: float) -> LagBank:
    """(3.7): p_h = B₀ + η(h−1) and κ = r^{−B₀} Π_q (r^{−η} − q^{−η})/(1 − q^{−η}), r = s/B, q over the ratios below 1 that occur."""
    ratios = lag_ratios(lags)
    decays = [base + step * h for h in range(len(ratios) + 1)]
    largest = float(arb(decays[-1])) * math.log2(max(lags) + 1)
    with working_precision(6 * GUARD + 6 * len(decays) + math.ceil(3 * largest) + 2 * max(0, math.ceil(-math.log2(error)))):
        zeros = [arb(q) ** -arb(step) for q in ratios]
        scale = arb(1)
        for zero in zeros:
            scale /= 1 - zero
        coefficients = arb_poly.from_roots(zeros).coeffs() if zeros else [arb(1)]
        return store("log", lags, decays, [scale * c for c in coefficients], error)


def exact_minimal(rpe: Rpe, lags: Sequence[int], error: float) -> LagBank:
    """The minimal bank with bound at most `error` and the smallest weights found: largest b (lin), smallest B₀ + η(H−1) (log)."""
    heads = adaptive_heads(rpe, lags)
    if rpe == "lin":

        def holds(top: fmpq) -> bool:
            return upper(adaptive_minimal_bound("lin", lags, _nodes(top, heads, DECAY_BITS))) <= error

        with working_precision(256 + 8 * heads):
            top = least_parameter(holds, fmpq(1, 2), grow=False)
        return minimal_lin(lags, top, DECAY_BITS, error)

    def holds_log(step: fmpq, base: fmpq) -> bool:
        return upper(adaptive_minimal_bound("log", lags, [base + step * h for h in range(heads)])) <= error

    with working_precision(128):
        steps = [fmpq(max(lags)) * fmpq(2) ** k for k in range(-3, 3)] if heads > 1 else [fmpq(1)]
        bases = [least_parameter(partial(holds_log, step), fmpq(2), grow=True) for step in steps]
        base, step = min(zip(bases, steps, strict=True), key=lambda pair: pair[0] + pair[1] * (heads - 1))
    return minimal_log(lags, base, step, error)


def weight_mass(bank: LagBank) -> arb:
    """Σ_h |a_h| (mass of head h at the longest lag): what relative errors of the weights and factors are multiplied with."""
    pairs = zip(bank.decays, bank.weights, strict=True)
    return sum((abs(arb(a)) * head_mass(bank.rpe, p, max(bank.lags)) for p, a in pairs), arb(0))


def budgeted_minimal(rpe: Rpe, lags: Sequence[int], price: fmpq, precision: int) -> LagBank:
    """The minimal bank that is best for a float type: minimise e + price · Σ_h |a_h| mass_h, decays rounded to the type first."""

    def budget(bank: LagBank) -> float:
        with working_precision(256):
            return upper(adaptive_minimal_bound(rpe, lags, bank.decays) + arb(price) * weight_mass(bank))

    def lin(logit: float) -> LagBank:
        return minimal_lin(lags, dyadic(arb(1 / (1 + math.exp(-logit))), precision), precision, 2.0**-precision)

    if rpe == "lin":
        return lin(golden(lambda v: budget(lin(v)), -40.0, 10.0))
    heads = adaptive_heads(rpe, lags)

    def log(base: float, step: float) -> LagBank:
        return minimal_log(lags, *representable_progression(math.exp(base), math.exp(step), heads, precision), 2.0**-precision)

    base, step = golden_pair(lambda b, s: budget(log(b, s)), math.log(16.0), math.log(max(lags)), heads > 1)
    return log(base, step)
