"""The lag law: one dp-free layer with one RPE type needs T heads to see T tokens back.

Setting. One dp-free layer, H heads of one RPE type, the residual, any feed-forward network of any width, tokens ranging over [−1, 1]
coordinate-wise, at least 2T−1 past tokens; target y_t = x_{t−T}.

Statement. If H ≤ T−1, the worst-case error is at least 1, that of the zero network. With the minimal banks of `constructions.banks`:
the least number of heads for lag T is exactly T, for every error in (0, 1).

Proof (lin). The kernel κ on s ≥ 1 is a sum of H ≤ T−1 exponentials, so the T×T Hankel matrix κ(i+j+1) is singular. Its antidiagonal is
κ(T); were |κ(T)| > Σ_{1≤s≤2T−1, s≠T} |κ(s)|, it would be strictly diagonally dominant after reversing its columns, hence regular. So
|1−κ(T)| + Σ_{s≠T} |κ(s)| ≥ 1. By ℓ¹–ℓ^∞ duality there is δ on 1..2T−1 with |δ_s| ≤ 1, δ_T = 1, orthogonal to every head: the inputs ±δ give
any read-out the same numbers and want ±1.

For log heads the same statement has a proof sketch only (densities with at most T−2 sign changes and variation diminution); we print it
as such. Several memories: to deliver each of them with error below 1, T_M heads are needed, shared by all. A single scalar combination
of memories can do with fewer.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from analyzer.extraction import Rpe


@dataclass(frozen=True)
class LagLaw:
    """The least number of heads that delivers each memory with error below 1, and how firmly that is known."""

    heads: int
    status: str


def lag_law(rpe: Rpe, lags: Sequence[int], error: float = 0.0) -> LagLaw:
    """Lower bound on heads; an error of 1 or more needs none (the zero network)."""
    status = "proved" if rpe == "lin" else "proof sketch"
    return LagLaw(0 if error >= 1 else max(lags), status)
