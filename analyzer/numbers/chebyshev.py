"""Chebyshev series in ball arithmetic: coefficients from values, values from coefficients, on uniform grids in the angle."""

from collections.abc import Sequence

from flint import arb


def cosines(intervals: int) -> list[arb]:
    """cos(πj/N) for j = 0..N."""
    return [(arb.pi() * j / intervals).cos() for j in range(intervals)] + [arb(-1)]


def _cosine(table: Sequence[arb], k: int) -> arb:
    """cos(πk/N) for any k ≥ 0 from the table for 0 ≤ k ≤ N."""
    period = 2 * (len(table) - 1)
    k %= period
    return table[min(k, period - k)]


def series(values: Sequence[arb], table: Sequence[arb]) -> list[arb]:
    """Coefficients c_j of the interpolant Σ c_j T_j through the values at cos(πk/N), k = 0..N (`table` holds those points)."""
    degree = len(values) - 1
    halves = {k: v / (2 if k in (0, degree) else 1) for k, v in enumerate(values) if not v.is_zero()}
    result = []
    for j in range(degree + 1):
        total = sum((v * _cosine(table, j * k) for k, v in halves.items()), arb(0))
        result.append(2 * total / degree / (2 if j in (0, degree) else 1))
    return result


def on_grid(coefficients: Sequence[arb], table: Sequence[arb]) -> list[arb]:
    """Σ_j c_j cos(jθ) on the finer grid of `table`; θ and π − θ share their sums over even and over odd j."""
    intervals = len(table) - 1
    circle = [*table, *table[-2:0:-1]]
    result = [arb(0)] * (intervals + 1)
    for k in range(intervals // 2 + 1):
        sums, angle = [arb(0), arb(0)], 0
        for j, coefficient in enumerate(coefficients):
            sums[j % 2] += coefficient * circle[angle]
            angle = (angle + k) % (2 * intervals)
        result[k], result[intervals - k] = sums[0] + sums[1], sums[0] - sums[1]
    return result
