"""The bump Ψ(u) = exp(−1/(1−u²)) on (−1, 1): variations and suprema of its derivatives.

Ψ^(n) = P_n(u) (1−u²)^(−2n) Ψ(u) with P_0 = 1 and

    P_{n+1} = P_n' (1−u²)² + 4n u (1−u²) P_n − 2u P_n,

so the zeros of Ψ^(n+1) in (−1, 1) are those of the integer polynomial P_{n+1}: all of them are isolated rigorously, and

    B_n = TV(Ψ^(n)) = ∫|Ψ^(n+1)| = Σ |Ψ^(n)(r_{i+1}) − Ψ^(n)(r_i)|

    D_n = sup|Ψ^(n)| = max |Ψ^(n)(r_i)|

over (consecutive) zeros r_i, with Ψ^(n)(±1) = 0 at the ends: Ψ^(n) is monotone between them.
"""

import itertools
from functools import cache

from flint import arb, fmpz_poly

from analyzer.numbers.exact import maximum, working_precision

RATES = tuple(range(1, 13))
"""The rates n for which B_n and D_n are offered. The best n for errors down to 1e-12 and lags up to 10^4 lies below 12."""

_ONE_MINUS_SQUARE = fmpz_poly([1, 0, -1])


def bump(u: arb) -> arb:
    """Ψ(u), for a ball that lies inside (−1, 1) or outside [−1, 1]; anything else is enclosed by [0, 1/e]."""
    if abs(u) >= 1:
        return arb(0)
    if abs(u) < 1:
        return (-1 / (1 - u * u)).exp()
    return arb(0).union((-arb(1)).exp())


@cache
def derivative_factor(n: int) -> fmpz_poly:
    """The polynomial P_n of the n-th derivative."""
    if n == 0:
        return fmpz_poly([1])
    previous = derivative_factor(n - 1)
    u = fmpz_poly([0, 1])
    square = _ONE_MINUS_SQUARE
    return previous.derivative() * square * square + 4 * (n - 1) * u * previous * square - 2 * u * previous


def derivative(n: int, u: arb) -> arb:
    """Ψ^(n)(u) for a ball inside (−1, 1)."""
    coefficients = [arb(c) for c in derivative_factor(n).coeffs()]
    value = arb(0)
    for coefficient in reversed(coefficients):
        value = value * u + coefficient
    return value / (1 - u * u) ** (2 * n) * bump(u)


def _turns(n: int) -> list[arb]:
    """Ψ^(n) at −1, at the zeros of Ψ^(n+1) in their order, and at 1, at the working precision."""
    roots = [root.real for root, _ in derivative_factor(n + 1).complex_roots() if root.imag == 0 and abs(root.real) < 1]
    return [arb(0), *(derivative(n, root) for root in sorted(roots, key=lambda r: float(r.mid()))), arb(0)]


@cache
def variation(n: int) -> arb:
    """Rigorous enclosure of B_n = TV(Ψ^(n))."""
    with working_precision(256):
        return sum((abs(b - a) for a, b in itertools.pairwise(_turns(n))), arb(0))


@cache
def supremum(n: int) -> arb:
    """Rigorous enclosure of D_n = sup|Ψ^(n)|."""
    with working_precision(256):
        return maximum([abs(value) for value in _turns(n)])
