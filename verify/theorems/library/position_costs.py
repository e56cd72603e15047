"""What a lag costs: heads that read relative positions against one head that reads absolute ones, in heads, bits and depth.

For y_t = x_{t−T}, tokens in [−1, 1], and an error below 1/2:

* *relative, one layer* (dp-free, lin or log heads, any read-out): T heads by the lag law, ⌊T/2⌋ + 1 if both types are mixed; both are
  attained. Bits of lin heads, by the π-law: E_u(T) ≥ |b_T|/max(1/u, max_s |b_s|) for every λ, so E_u(T) ≥ 1/2 for all u ≥ 1/(2|b_T|) where
  max_s |b_s| ≤ 2|b_T|, and by hand for all u ≥ 1/(2 C(2T, T)): with fewer bits than that no weights resolve the lag. E_u counts
  a price u for every unit of weight; about 4.53 bits per unit of lag.
* *relative, deep* (linear inner FFNs, or letters that are restored): layers times heads is T at least, and one head each in T layers
  attains it; T layers have each the bits of lag 1.
* *absolute* (position-heads): one head, one layer, whatever T; bits so that arrays of T + 1 tokens are within the horizon (P.3),
  2 log₂ T + O(1). That is what is certified, no lower bound: fewer bits may do.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import comb
from typing import Any

from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.limits.lag_law import lag_law
from analyzer.limits.pi_law import coefficients
from analyzer.numbers.exact import magnitude, working_precision
from analyzer.theorems.library.position_heads import BITS, least_bits

MOST_LAG = 512
"""Lags whose π-law is evaluated in seconds."""
RESOLVED = 0.5
"""A lag is resolved if the error is below this, as in all horizons."""


@dataclass(frozen=True)
class LagCost:
    """One lag: heads of one layer, and of one that mixes types; least bits of lin heads (from below); layers of one head each, and the
    same bits for each of them; bits with which one absolute head is certified."""

    lag: int
    relative_heads: int
    mixed_heads: int
    relative_bits: int
    deep_layers: int
    deep_bits: int
    absolute_heads: int
    absolute_bits: int


def relative_bits(lag: int) -> int:
    """Bits without which lin heads of one layer err by 1/2 at least: u = 2^{−p} for every smaller p."""
    with working_precision(64):
        large = [2 * arb(comb(2 * lag, lag))]
        for step in range(1, 5):  # λ a little above 2T
            found = coefficients(lag, fmpq(4 * lag + step, 2))
            if found.largest <= 2 * found.value:
                large.append(2 * found.value)
        # E_u ≥ 1/2 for 1/u = 2^p ≤ these: p + 1 bits at least, p = ⌊log₂⌋, from below.
        return max(magnitude(value.lower()) - 1 for value in large) + 1


def lag_cost(lag: int) -> LagCost:
    """What one lag costs."""
    if isinstance(lag, bool) or not isinstance(lag, int) or not 1 <= lag <= MOST_LAG:
        raise InputError(f"lag {lag!r} is not a whole number from 1 to {MOST_LAG}")
    return LagCost(
        lag=lag,
        relative_heads=lag_law("lin", (lag,)).heads,
        mixed_heads=lag_law("mixed", (lag,)).heads,
        relative_bits=relative_bits(lag),
        deep_layers=lag,
        deep_bits=relative_bits(1),
        absolute_heads=1,
        absolute_bits=least_bits(lag + 1, RESOLVED),
    )


def position_costs(lags: Sequence[int]) -> dict[str, Any]:
    """The table as plain data."""
    return {"error": RESOLVED, "dtypes": BITS, "rows": [asdict(lag_cost(lag)) for lag in lags]}
