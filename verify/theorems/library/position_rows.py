"""Rows of attention weights of heads that read positions only, enclosed: what all tokens but the one wanted weigh together.

A row belongs to a query (t, g); keys are those of the tokens j ≤ t, and the token wanted is t − g. Scores are enclosed in midpoints and
radii (`verify.chain.enclosed`), so that a share covers the exact function of the weights and what the executor computes in its own type.

*Scores without rounding.* Let weights be whole multiples of μ, states of ν, and Σ|w_i||x_i| ≤ 2^p μν. Then all products and partial sums
are whole multiples of μν of at most 2^p μν, numbers of a type of p bits: the dot product is exact in any order, fused or not. Differences
of two such scores are exact, too, or exceed 2^p μν, where e^x has ended. This is (P.3), checked on the weights that are stored; where it
fails (a weight was changed, an array is too long) radii are those of any dot product.

*RowShares.* With d_j the score of j less that of the token wanted, known to ±η_j, the losers weigh r ≤ Σ_j e^{d_j + η_j}(1 + 3ε) of the
winner, ε the error of both exponentials; where the executor's exponential ends, at −X, each of them has e^{−X}. If scores are rounded, so
is their difference from the largest one, that of j and that of the token wanted.

*Sums.* Let b of n terms be large, and the absolute values of the others add up to τ of the largest weight. An addition that joins two
partial sums with a large term each errs by u of it, and there are at most b − 1; one that joins a part of small terms alone errs by no
more than that part, since the other summand is a number of the type itself (rounding is to the nearest), and every small term
is joined so once; additions among small terms err by γ_n τ. Products add u. Numerator and denominator of the softmax mean are so off by

    ε_Σ = (b + 1)u(1 + 2γ_n) + 2τ + 16nη

of Σ w at most, η the least normal number, and the quotient by (1+u)(1+ε_Σ)/(1−ε_Σ) − 1 of the largest value.
"""

import math
from dataclasses import dataclass

import numpy as np

from analyzer.theorems.library.position_heads import BITS
from constructions.network.exponential import exp
from verify.chain.enclosed import DOUBLE, OUTWARD, Enclosed, EnclosedArithmetic

CHUNK = 1 << 22
"""Weights that are enclosed at once."""
STEEP = 600.0
"""A score so far above that of the token wanted leaves it nothing: r counts as infinite."""


@dataclass(frozen=True)
class RowShares:
    """Over the positions t ≥ g of a lag g: the losers' largest share, the most large weights, the largest mass of the small ones, and
    whether scores are computed without rounding."""

    share: float
    large: int
    small: float
    exact: bool


def grid(values: np.ndarray) -> float:
    """The largest power of 2 of which all floats are whole multiples; infinite if all are 0."""
    mantissa, exponent = np.frexp(values[values != 0])
    whole = (np.abs(mantissa) * 2.0**53).astype(np.int64)
    return float(np.ldexp((whole & -whole).astype(np.float64), exponent - 53).min(initial=np.inf))


def dots(arithmetic: EnclosedArithmetic, weights: Enclosed, x: Enclosed) -> Enclosed:
    """W x on the last axis, with radius 0 where no rounding occurs."""
    if not weights.rad.any() and not x.rad.any():
        most = 2.0 ** BITS.get(arithmetic.dtype, 53) * grid(weights.mid) * grid(x.mid)
        if most > 2 * arithmetic.deepest and (np.abs(x.mid) @ np.abs(weights.mid).T).max(initial=0.0) <= most:
            mid = x.mid @ weights.mid.T
            return Enclosed(mid, np.zeros_like(mid))
    return arithmetic.linear(weights, x)


def shares(arithmetic: EnclosedArithmetic, queries: Enclosed, keys: Enclosed, lag: int) -> RowShares:
    """The rows of a lag, for queries (N, k) of all positions that had it, and keys (N, k)."""
    length = len(keys.mid)
    found = []
    for start in range(lag, length, max(1, CHUNK // length)):
        rows = np.arange(start, min(length, start + max(1, CHUNK // length)))
        found.append(_chunk(arithmetic, dots(arithmetic, keys, queries[rows]), rows, lag))
    return RowShares(
        max(f.share for f in found), max(f.large for f in found), max(f.small for f in found), all(f.exact for f in found)
    )  # fmt: skip


def _chunk(arithmetic: EnclosedArithmetic, scores: Enclosed, rows: np.ndarray, lag: int) -> RowShares:
    """The same for scores (rows, N)."""
    length, deepest = scores.mid.shape[1], arithmetic.deepest
    columns = np.arange(length)
    wanted, seen = (np.arange(len(rows)), rows - lag), columns <= rows[:, None]
    above = scores.mid - scores.mid[wanted][:, None]
    exact = not scores.rad.any()
    if not exact:
        noise = scores.rad + scores.rad[wanted][:, None]
        top = np.where(seen, above, 0.0).max(axis=1, keepdims=True)
        above = above + (noise + 2 * arithmetic.unit * (np.abs(above) + top + 2 * noise)) * OUTWARD
    loser = seen & (columns != wanted[1][:, None])
    near = loser & (above > -deepest)
    weights = np.zeros_like(above)
    weights[near] = np.where(above[near] > STEEP, np.inf, exp(np.minimum(above[near], STEEP), np))
    threshold = -2 * BITS.get(arithmetic.dtype, 53) * math.log(2)
    large = near & (above > threshold)
    far = (loser & ~near).sum(axis=1) * math.exp(-deepest)
    slack = (1 + 3 * arithmetic.slip) * OUTWARD
    r = (weights.sum(axis=1) + far) * slack
    small = (np.where(large, 0.0, weights).sum(axis=1) + far) * slack
    share = 1 - 1 / (1 + r) if not np.isfinite(r).all() else r / (1 + r)
    return RowShares(float(share.max()) * (1 + 4 * DOUBLE), 1 + int(large.sum(axis=1).max()), float(small.max()), exact)


def mean_rounding(arithmetic: EnclosedArithmetic, rows: RowShares, length: int) -> float:
    """What sums and quotient of the executor add, of a largest value 1; 0 for exact networks."""
    if arithmetic.dtype not in BITS:
        return 0.0
    unit = 2.0 ** -BITS[arithmetic.dtype]
    sums = (rows.large + 1) * unit * (1 + 2 * arithmetic.gamma(length)) + 2 * rows.small + 16 * length * arithmetic.tiny
    return ((1 + unit) * (1 + sums) / (1 - sums) - 1 + 4 * DOUBLE) * OUTWARD if sums < 1 / 4 else math.inf
