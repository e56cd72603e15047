"""Minimal banks of kerple heads: p_h = B + η(h−1), one rate r, zeros at every s from 1 to H but the lag
(`analyzer.theorems.positions.kerple_heads`).

κ(s) = ((T+A)/(s+A))^B Π_{j≤H, j≠T} (y_s − y_j)/(y_T − y_j) with A = 1/r and y_s = (s+A)^{−η}; the coefficients of the product in y_s are
elementary symmetric functions of positive numbers, nothing cancels in them. The residual weight is −κ(0).
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

from flint import arb, arb_poly, fmpq

from analyzer.lemmas.kerple import extraction_error, progression
from analyzer.numbers.exact import upper, working_precision
from analyzer.numbers.search import golden
from constructions.banks.head_banks import GUARD, HeadBank, bits_below, representable_progression, store, weight_sum

Price = Callable[[HeadBank], fmpq]
"""What a unit of weight costs in rounding, for a bank."""


def minimal_kerple(lags: Sequence[int], heads: int, rate: fmpq, first: fmpq, step: fmpq, error: float) -> HeadBank:
    """The bank of (K.1) for B = `first` and η = `step`; powers of A set the precision, and differences of neighbouring y_s."""
    decays, offset = progression(first, step, heads), 1 / rate
    far = float(arb(heads + 1 + offset))
    grown = 2 * float(arb(decays[-1])) * math.log2(far / float(arb(offset))) + heads * math.log2(far)
    with working_precision(6 * GUARD + 6 * heads + 2 * bits_below(error) + math.ceil(grown)):
        eta, raw, residuals = arb(step), [], []
        nodes = [arb(s + offset) ** -eta for s in range(heads + 1)]
        for lag in lags:
            zeros = [nodes[j] for j in range(1, heads + 1) if j != lag]
            scale = arb(lag + offset) ** arb(first)
            at_zero = scale * arb(offset) ** -arb(first)
            for zero in zeros:
                scale /= nodes[lag] - zero
                at_zero *= (nodes[0] - zero) / (nodes[lag] - zero)
            raw.append([scale * c for c in arb_poly.from_roots(zeros).coeffs()])
            residuals.append(-at_zero)
        return store("log", decays, lags, raw, residuals, error, offset)  # a rate will stand beside the exponents


def budgeted_kerple(lags: Sequence[int], heads: int, rate: fmpq, price: Price, precision: int) -> tuple[float, HeadBank]:
    """The bank that is best for a float type, and its budget: minimise Σ_k e_k + price · Σ_k (|c_k| + Σ_h |a_kh|) over B and η, whose
    sums are numbers of the type."""
    unit = float(arb(heads + 1 + 1 / rate)) / (heads + 1)

    def bank(base: float, step: float) -> HeadBank:
        first, eta = representable_progression(1 + unit * math.exp(base), unit * math.exp(step), heads, precision)
        return minimal_kerple(lags, heads, rate, max(first, fmpq(9, 8)), eta, 2.0**-precision)

    def budget(base: float, step: float) -> float:
        found = bank(base, step)
        with working_precision(256):
            errors = sum((extraction_error(lag, found.decays, rate) for lag in lags), arb(0))
            return upper(errors + arb(price(found)) * weight_sum(found))

    base, step = math.log(16.0), math.log(heads)
    for _ in range(3 if heads > 1 else 1):
        base = golden(partial(lambda step, base: budget(base, step), step), math.log(0.5), math.log(200.0), 24)
        if heads > 1:
            step = golden(partial(budget, base), math.log(0.05), math.log(100.0), 24)
    return budget(base, step), bank(base, step)
