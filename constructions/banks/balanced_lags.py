"""Balanced banks for lags known at run time: lin heads whose decays and weights are best for a float type.

Heads that read a lag slot have the kernel κ(s; B) = Σ_h a_h e^{−p_h(s−B)}, s ≥ 0, for every lag B ≤ T, and no residual weight. It is
κ_T(s − B + T), so a shorter lag sees a part of κ_T − 1_T and smaller amplitudes: error and rounding of the longest lag T serve them all.
At T, with z = e^{−p} and A_h = a_h z_h^{−T}/(1 − z_h) the weight on the normalised kernel (1 − z)z^s, the bank minimises

    ‖κ_T − 1_T‖_ℓ¹ + Σ_h π_h |A_h|,      π_h = u (H + 2 + 3/(1 − z_h)),

over the weights, by the linear programme of `constructions.banks.balanced`, and over decays z_j = tanh²(jθ/2) with one parameter θ. The
prices π_h are what `verify.chain.rounding` charges for the operations that run, to first order in u: the scan with its factor costs
u·2/(1 − z), the sum of H heads uH, the residual addition u; and storing weight, factor and ratio costs u(2 + z/(1 − z)). A hundredth is
added for the second order, which is below it as long as 1 − z is above 1000u.

A minimal bank has zeros at every s < T, and so weights that a float type pays dearly for: in float64 the sum of both terms at T = 5 is
0.04 with its T + 1 heads, and 10^-4 with 2T + 2.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.limits.budgeted_error import PricedBank, extraction_error
from analyzer.numbers.exact import UNIT, dyadic, to_grid, upper, working_precision
from constructions.banks.balanced import NOTHING, STORED, least_of_samples, solve
from constructions.banks.fit_columns import TOP, Head, Rows, rows_for
from constructions.banks.lag_banks import LagBank, store

SECOND_ORDER = fmpq(101, 100)
"""Prices are those to first order in u times this."""
MOST = 32
"""Heads of a balanced bank: tables of factors end at lag 11, for which 2T + 4 are tried."""


@dataclass(frozen=True)
class Fitted:
    """The best weights of given decays for a lag, on normalised kernels; `budget` bounds error and price together, in balls."""

    decays: tuple[fmpq, ...]
    weights: tuple[fmpq, ...]
    budget: arb


def head_price(decay: fmpq, heads: int, dtype: str) -> arb:
    """π_h: what a unit of weight on a normalised kernel costs in storage and evaluation, in a bank of so many heads."""
    return arb(UNIT[dtype] * SECOND_ORDER) * (heads + 2 + 3 / (1 - (-arb(decay)).exp()))


def mantissa(dtype: str) -> int:
    """Bits of a type's numbers: its unit roundoff is 2 to minus this."""
    return int(UNIT[dtype].q).bit_length() - 1


def _bits(dtype: str) -> int:
    """The programme's precision: that of `balanced_bank` for the cheapest unit of weight."""
    return 128 + 3 * mantissa(dtype)


def _programme(decays: Sequence[fmpq], lag: int, dtype: str) -> tuple[dict[fmpq, fmpq], float]:
    """(weights that are not zero, value) for given decays; the value is that of the programme, whose far places are sums over blocks."""
    rows = Rows(rows_for(lag, TOP["lin"], 0, True).edges, ends=True)
    goal = [arb(int(edge == lag)) for edge in rows.edges[:-1]]
    prices = {Head("lin", p): head_price(p, len(decays), dtype) for p in decays}
    heads = list(prices)
    solution = solve(rows, goal, heads, prices.__getitem__)
    depth = mantissa(dtype) + STORED + 16
    stored = {head.decay: to_grid(a, depth) for head, a in zip(heads, solution.weights, strict=True) if head.decay is not None}
    return {p: a for p, a in sorted(stored.items()) if a != 0}, float(solution.value)


@lru_cache(maxsize=256)
def fitted(decays: tuple[fmpq, ...], lag: int, dtype: str) -> Fitted:
    """The best weights of these decays, and what they promise: the norm with its infinite tail, and the price of every weight."""
    if len(decays) > MOST or len(set(decays)) < len(decays):
        raise InputError(f"{len(decays)} heads, {len(set(decays))} of them different: balanced banks have at most {MOST}, all different")
    with working_precision(_bits(dtype)):
        weights, _ = _programme(decays, lag, dtype)
        bank = PricedBank(tuple(("lin", p) for p in weights), tuple(weights.values()), fmpq(0))
        price = sum((head_price(p, len(decays), dtype) * abs(arb(a)) for p, a in weights.items()), arb(0))
        return Fitted(decays, tuple(weights.get(p, fmpq(0)) for p in decays), extraction_error(bank, lag) + price)


@lru_cache(maxsize=256)
def _searched(lag: int, heads: int, dtype: str) -> Fitted | None:
    """The best bank of the family with at most so many heads; None where the zero bank is as good.

    Heads without a weight are left out and the rest is fitted again, as a bank of fewer heads has lower prices. θ is searched for from a
    fortieth of the half period of the extremal function of `analyzer.limits.pi_law` (few heads keep to small z) to one and a half.
    """
    half_period = math.pi**2 / (2 * mantissa(dtype) * math.log(2))
    with working_precision(_bits(dtype)):

        def decays(theta: float) -> tuple[fmpq, ...]:
            found = (dyadic(-2 * (arb(theta) * j / 2).tanh().log(), mantissa(dtype)) for j in range(1, heads + 1))
            return tuple(sorted(set(found)))

        def cost(exponent: float) -> float:
            return math.log(_programme(decays(math.exp(exponent)), lag, dtype)[1])

        chosen = decays(math.exp(least_of_samples(cost, math.log(half_period / 40), math.log(1.5 * half_period))))
        while True:
            weights, value = _programme(chosen, lag, dtype)
            if value > NOTHING or not weights:
                return None
            if len(weights) == len(chosen):
                return fitted(chosen, lag, dtype)
            chosen = tuple(weights)


def sizes(lag: int) -> list[int]:
    """Numbers of heads that are tried for a lag, from the fewest on; beyond 2T + 4 the budget gains a few per cent only."""
    return sorted({lag + 1, lag + 2, lag + 4, 2 * lag + 4})


def balanced_lag_bank(lags: Sequence[int], error: float, dtype: str) -> tuple[LagBank, arb] | None:
    """(the bank of the fewest heads tried whose error and rounding stay below `error`, else the best one; its budget for every lag).

    None where no bank is better than zero: the type does not hold the lag.
    """
    longest = max(lags)
    best: Fitted | None = None
    for heads in sizes(longest):
        found = _searched(longest, heads, dtype)
        if found is not None and (best is None or upper(found.budget) < upper(best.budget)):
            best = found
        if best is not None and upper(best.budget) <= error:
            break
    if best is None:
        return None
    with working_precision(_bits(dtype)):
        ratios = [(-arb(p)).exp() for p in best.decays]
        raw = [arb(a) * (1 - z) * z**longest for a, z in zip(best.weights, ratios, strict=True)]
        return store("lin", lags, best.decays, raw, 2.0 ** -mantissa(dtype)), best.budget
