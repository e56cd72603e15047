"""Chebyshev series in ball arithmetic: coefficients from values, values from coefficients, on uniform grids in the angle.

Both are sums Σ_j v_j cos(πjk/N) for all k at once. With b_m = e^{iπm²/2N} and jk = (j² + k² − (k − j)²)/2,

    Σ_j v_j e^{iπjk/N} = b_k Σ_j (v_j b_j) b̄_{k−j}        (Bluestein),

so one product of polynomials gives them all; every factor has modulus 1, and nothing grows on the way.
"""

from collections.abc import Sequence

from flint import acb, acb_poly, arb, fmpq


def cosines(intervals: int) -> list[arb]:
    """cos(πj/N) for j = 0..N."""
    return [(arb.pi() * j / intervals).cos() for j in range(intervals)] + [arb(-1)]


def cosine_sums(values: Sequence[arb], intervals: int) -> list[arb]:
    """Σ_j v_j cos(πjk/N) for k = 0..N."""
    last, period = len(values) - 1, 4 * intervals
    angles = [m * m % period for m in range(max(last, intervals) + 1)]
    known = {r: acb(fmpq(r, 2 * intervals)).exp_pi_i() for r in set(angles)}
    chirp = [known[r] for r in angles]
    turned = acb_poly([v * b for v, b in zip(values, chirp, strict=False)])
    product = turned * acb_poly([chirp[abs(m)].conjugate() for m in range(-last, intervals + 1)])
    return [(chirp[k] * product[k + last]).real for k in range(intervals + 1)]


def series(values: Sequence[arb]) -> list[arb]:
    """Coefficients c_j of the interpolant Σ c_j T_j through the values at cos(πk/N), k = 0..N."""
    degree = len(values) - 1
    sums = cosine_sums([v / (2 if k in (0, degree) else 1) for k, v in enumerate(values)], degree)
    return [2 * total / degree / (2 if j in (0, degree) else 1) for j, total in enumerate(sums)]
