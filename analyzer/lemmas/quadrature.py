"""The mixed minimal bank: one log head and n lin heads deliver lag T = 2n + 1, by Gauss quadrature.

s^{−p} = ∫_0^1 z^s dν(z) with dν = (−log z)^{p−1}/Γ(p) dz/z positive. The n-point Gauss rule for z dν, with nodes z_i ∈ (0, 1) and weights
w_i z_i, is exact for 1, z, …, z^{2n−1}, so

    s^{−p} − Σ_i w_i z_i^s = 0 for s = 1..2n,   and > 0 for s ≥ 2n + 1

(the error of the rule for z^{s−1} is its 2n-th derivative at some point, over (2n)!, times the square norm of the orthogonal polynomial).
Divided by its value at T = 2n + 1 this is a memory kernel with (T+1)/2 heads, half of what one type of head needs, and since it never
changes sign

    1 + e = (ζ(p) − Σ_i w_i z_i/(1 − z_i)) / (T^{−p} − Σ_i w_i z_i^T)   exactly;    e → 0 as p → ∞.                       (3.8)

The residual puts s = 0 right. The moments of z dν are (j+1)^{−p}; the orthogonal polynomial solves a Hankel system whose condition grows
like that of the powers (2n)^p, which sets the precision.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from flint import arb, arb_mat, arb_poly, ctx, fmpq

from analyzer.errors import InputError
from analyzer.numbers.exact import working_precision

MAX_NODES = 16
"""Lags up to 33: the search for p takes seconds up to there."""


@dataclass(frozen=True)
class Gauss:
    """Nodes z_i and amplitudes w_i with Σ_i w_i z_i^s = s^{−p} for s = 1..2n."""

    decay: fmpq
    nodes: tuple[arb, ...]
    amplitudes: tuple[arb, ...]

    def raw(self, s: int) -> arb:
        """s^{−p} − Σ_i w_i z_i^s."""
        return arb(s) ** -arb(self.decay) - sum((w * z**s for w, z in zip(self.amplitudes, self.nodes, strict=True)), arb(0))

    def error(self) -> arb:
        """e of (3.8)."""
        mass = arb(self.decay).zeta() - sum((w * z / (1 - z) for w, z in zip(self.amplitudes, self.nodes, strict=True)), arb(0))
        return mass / self.raw(2 * len(self.nodes) + 1) - 1


def precision(decay: fmpq, nodes: int) -> int:
    """Bits for the rule: three times the range (2n+1)^p of the moments, for system, roots and what is left at s = T, and a margin."""
    return 512 + 32 * nodes + 3 * math.ceil(float(arb(decay)) * math.log2(2 * nodes + 2))


def gauss(decay: fmpq, nodes: int) -> Gauss:
    """The rule; call it at the working precision `precision`."""
    if not 0 <= nodes <= MAX_NODES or not decay > 1:
        raise InputError(f"mixed minimal banks have one log head with p > 1 and at most {MAX_NODES} lin heads")
    moments = [arb(j + 1) ** -arb(decay) for j in range(2 * nodes)]
    if nodes == 0:
        return Gauss(decay, (), ())
    roots: list[arb] = []
    for degree in range(1, nodes + 1):  # the roots of each orthogonal polynomial separate those of the next
        system = arb_mat(degree, degree, [moments[i + j] for i in range(degree) for j in range(degree)])
        lower = system.solve(arb_mat(degree, 1, [-moments[i + degree] for i in range(degree)]))
        polynomial = arb_poly([*(lower[i, 0] for i in range(degree)), 1])
        roots = [_root(polynomial, a.mid(), b.mid()) for a, b in pairwise([arb(0), *roots, arb(1)])]
    powers = arb_mat(nodes, nodes, [z ** (s + 1) for s in range(nodes) for z in roots])
    weights = powers.solve(arb_mat(nodes, 1, [moments[s] for s in range(nodes)]))
    return Gauss(decay, tuple(roots), tuple(weights[i, 0] for i in range(nodes)))


def _root(polynomial: arb_poly, left: arb, right: arb) -> arb:
    """Enclosure of the one root between two points: bisection, Newton, and a certified change of sign."""
    sign = polynomial(left) > 0
    while not right - left <= left * arb(2) ** -24:  # near enough for Newton: roots of one sign, all simple
        middle = ((left + right) / 2).mid()
        left, right = (middle, right) if (polynomial(middle).mid() > 0) == sign else (left, middle)
    root, slope = ((left + right) / 2).mid(), polynomial.derivative()
    for _ in range(ctx.prec.bit_length()):
        root = (root - polynomial(root) / slope(root)).mid()
    radius = abs(root) * arb(2) ** -(ctx.prec // 2)
    ends = polynomial(root - radius), polynomial(root + radius)
    if not ends[0] * ends[1] < 0:
        raise InputError("a node of the Gauss rule was not separated: more precision is needed")
    return arb(root, radius.upper())


def mixed_bound(lag: int, decay: fmpq) -> arb:
    """e of (3.8) for the log decay p, T = 2n + 1."""
    if lag % 2 == 0:
        raise InputError(f"lag {lag} is even; one log head and n lin heads deliver odd lags 2n + 1")
    with working_precision(precision(decay, lag // 2)):
        return gauss(decay, lag // 2).error()
