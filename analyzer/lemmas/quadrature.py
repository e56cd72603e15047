"""The mixed minimal bank: one log head and n lin heads deliver lag 2n + 1 or 2n, by Gauss quadrature: ⌊T/2⌋ + 1 heads for lag T.

s^{−p} = ∫_0^1 z^s dν(z) with dν = (−log z)^{p−1}/Γ(p) dz/z positive. A quadrature rule for z dν with nodes z_i ∈ (0, 1) and weights
w_i z_i is a sum of n lin heads; what it misses of the moments,

    R(s) = s^{−p} − Σ_i w_i z_i^s,

divided by R(T), is a memory kernel of n + 1 heads. The rules below have w_i > 0, R(s) = 0 for 1 ≤ s < T and R(s) > 0 for s ≥ T. The
residual puts s = 0 right, and as the kernel never changes sign

    1 + e = (ζ(p) − Σ_i w_i z_i/(1 − z_i)) / (T^{−p} − Σ_i w_i z_i^T)   exactly.                                            (3.8)

Let P_k be the monic orthogonal polynomials of z dν.

*Odd lags, T = 2n + 1: Gauss.* The nodes are the zeros of P_n; the rule is exact for 1, z, …, z^{2n−1}, that is for s = 1..2n. Its error
for z^{s−1} is the mean of the divided difference z^{s−1}[z_1, z_1, …, z_n, z_n, z] > 0 under P_n(z)² z dν, so R(s) > 0 for s > 2n, and
R(T) = ∫P_n² z dν.

*Even lags, T = 2n: Radau with a node ε inside.* Let x be the least zero of P_n, 0 < ε < x. The nodes are the zeros of q = P_n − aP_{n−1},
a = P_n(ε)/P_{n−1}(ε): ε, and the n − 1 zeros of r = q/(z − ε), the polynomial of degree n − 1 orthogonal for the moments of
(z − ε) z dν. As q is orthogonal to all degrees below n − 1 the rule is exact for 1, …, z^{2n−2}, that is for s = 1..2n−1.
(i) *Nodes and weights.* P_n/P_{n−1} = z − b − Σ_i λ_i/(z − y_i), λ_i > 0, over the zeros y_i of P_{n−1}, grows from −∞ to ∞ between
neighbouring y_i: it takes the value a once in each of the n intervals that they leave of the line. Below y_1 it grows to 0 at x: so a < 0,
and the node there is ε; in the others the node lies below a zero of P_n, so below 1. All n are in (0, 1). The weights are positive:
integrate (q/(z − z_i))².
(ii) *Sign.* R(s) = ∫ g(z) (z − ε) r(z)² z dν with the divided difference g(z) = z^{s−1}[ε, z_2, z_2, …, z_n, z_n, z], a sum of products
of powers with positive coefficients, so g ≥ 0 grows with z and g(z)(z − ε) ≥ g(ε)(z − ε). Hence R(s) ≥ g(ε) R(T) ≥ 0 for s > T (and > 0, as
g(ε) > 0), and R(T) = ∫ (z − ε) r² z dν = ∫ q r z dν = −a ∫P_{n−1}² z dν > 0.
(iii) *Which ε.* R(s) = R_ε(s) falls as ε grows: the rules for ε < ε' are both exact for s < T, their difference has 2n nodes, so it is a
multiple of the divided difference at these, a positive one since the largest node belongs to ε'. But −a is a concave function of ε
(by (i), below y_1) that vanishes at x, so R_ε(T) ≥ (1 − ε/x) R_0(T). Together

    e(ε) = Σ_{s>T} R_ε(s)/R_ε(T) ≤ e(0)/(1 − ε/x):                                                                         (3.9)

ε = x/8 costs at most a seventh of the error, whatever the error is, and no limit has to be taken. e(0) belongs to the Radau rule with the
node 0, which sees s = 1 only; its other nodes are those of the Gauss rule for z² dν with n − 1 points. We take ε = e^{−q} for the least
whole q with ε ≤ x/8. T = 2 is κ ∝ s^{−p} − ε^{s−1} with ε < x = 2^{−p}.

*e → 0 as p → ∞.* R(s) ≤ s^{−p}, since the weights are positive. From below R_0(T) (R(T) if T is odd) is the least of ∫P² z^j dν over monic
P, of degree n and j = 1 or of degree n − 1 and j = 2: with the Gram matrix G of the powers, ((a+b)/2)^{−p} for a, b ∈ {T, T − 2, …},
positive, it is 1/(G^{−1})_{TT}. Scaled to a unit diagonal G has the entries (2√(ab)/(a+b))^p, so its least eigenvalue is at least 1 − η by
Gershgorin, and

    e ≤ T^p ζ(p, T+1) / ((1 − η)(1 − ε/x)),    η = max_a Σ_{b≠a} (2√(ab)/(a+b))^p over a, b ∈ {T, T − 2, …}, positive,     (3.10)

if η < 1 (the factor 1 − ε/x is for even T only). By the inequality of the means η → 0, and T^p ζ(p, T+1) ≤ (T/(T+1))^p (1 + (T+1)/(p−1))
does, too.

The moments of z dν are (j+1)^{−p}; the orthogonal polynomial solves a Hankel system whose condition grows like that of the powers (2n)^p,
which sets the precision.

References. Gautschi, Orthogonal Polynomials: Computation and Approximation, Oxford 2004, chapters 1 and 3.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from flint import arb, arb_mat, arb_poly, ctx, fmpq

from analyzer.errors import InputError
from analyzer.numbers.exact import maximum, working_precision

MAX_NODES = 16
"""Lags up to 33: the search for p takes seconds up to there."""
LONGEST = 2 * MAX_NODES + 1
ROOM = 8
"""Even lags: the node ε is at most the least node of the Gauss rule over this, so that by (3.9) it costs at most a seventh of e."""


@dataclass(frozen=True)
class Gauss:
    """Nodes z_i and amplitudes w_i with Σ_i w_i z_i^s = s^{−p} for 1 ≤ s < T; T = `lag`."""

    decay: fmpq
    lag: int
    nodes: tuple[arb, ...]
    amplitudes: tuple[arb, ...]
    fastest: fmpq | None = None
    """Even lags: −log of the first node, a whole number unless another one was prescribed."""

    def raw(self, s: int) -> arb:
        """R(s) = s^{−p} − Σ_i w_i z_i^s."""
        return arb(s) ** -arb(self.decay) - sum((w * z**s for w, z in zip(self.amplitudes, self.nodes, strict=True)), arb(0))

    def error(self) -> arb:
        """e of (3.8)."""
        mass = arb(self.decay).zeta() - sum((w * z / (1 - z) for w, z in zip(self.amplitudes, self.nodes, strict=True)), arb(0))
        return mass / self.raw(self.lag) - 1


def precision(decay: fmpq, nodes: int) -> int:
    """Bits for the rule: three times the range (2n+1)^p of the moments, for system, roots and what is left at s = T, and a margin."""
    return 512 + 32 * nodes + 3 * math.ceil(float(arb(decay)) * math.log2(2 * nodes + 2))


def gauss(decay: fmpq, nodes: int) -> Gauss:
    """The rule for T = 2n + 1; call it at the working precision `precision`."""
    _check(decay, nodes)
    moments = _moments(decay, nodes)
    return Gauss(decay, 2 * nodes + 1, *_with_weights(moments, _zeros(moments, nodes)))


def radau(decay: fmpq, nodes: int, fastest: fmpq | None = None) -> Gauss:
    """The rule for T = 2n with the node ε = e^{−`fastest`} below all nodes of the Gauss rule; at the working precision `precision`.

    None: the least whole decay with ε ≤ x/8, x the least node of the Gauss rule, see (3.9).
    """
    _check(decay, nodes)
    if nodes == 0:
        raise InputError("a mixed minimal bank for an even lag has a lin head at least")
    moments = _moments(decay, nodes)
    least = _zeros(moments, nodes)[0]
    if fastest is None:
        fastest = fmpq(math.ceil(float((ROOM / least).log().upper())))
    first = (-arb(fastest)).exp()
    if not 0 < first < least:
        raise InputError("the fastest lin head of a mixed bank for an even lag must fall faster than every head of the Gauss rule")
    shifted = [b - first * a for a, b in pairwise(moments)]
    return Gauss(decay, 2 * nodes, *_with_weights(moments, [first, *_zeros(shifted, nodes - 1)]), fastest)


def _moments(decay: fmpq, nodes: int) -> list[arb]:
    """The moments of z dν that a rule with n nodes rests on."""
    return [arb(j + 1) ** -arb(decay) for j in range(2 * nodes)]


def _check(decay: fmpq, nodes: int) -> None:
    if not 0 <= nodes <= MAX_NODES or not decay > 1:
        raise InputError(f"mixed minimal banks have one log head with p > 1 and at most {MAX_NODES} lin heads")


def _zeros(moments: list[arb], count: int) -> list[arb]:
    """The zeros of the orthogonal polynomial of this degree: those of each one separate those of the next."""
    roots: list[arb] = []
    for degree in range(1, count + 1):
        system = arb_mat(degree, degree, [moments[i + j] for i in range(degree) for j in range(degree)])
        lower = _solve(system, [-moments[i + degree] for i in range(degree)])
        polynomial = arb_poly([*(lower[i, 0] for i in range(degree)), 1])
        roots = [_root(polynomial, a.mid(), b.mid()) for a, b in pairwise([arb(0), *roots, arb(1)])]
    return roots


def _with_weights(moments: list[arb], roots: list[arb]) -> tuple[tuple[arb, ...], tuple[arb, ...]]:
    """Nodes, and the amplitudes that make the first moments right; so are then all that the nodes were chosen for."""
    nodes = len(roots)
    if nodes == 0:
        return (), ()
    powers = arb_mat(nodes, nodes, [z ** (s + 1) for s in range(nodes) for z in roots])
    weights = _solve(powers, moments[:nodes])
    return tuple(roots), tuple(weights[i, 0] for i in range(nodes))


def _solve(system: arb_mat, right: list[arb]) -> arb_mat:
    try:
        return system.solve(arb_mat(len(right), 1, right))
    except ZeroDivisionError:
        raise InputError("a system for a Gauss rule was not seen to be regular: more precision is needed") from None


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


def mixed_rule(lag: int, decay: fmpq, fastest: fmpq | None = None) -> Gauss:
    """The rule for any lag T; for even ones `fastest` is the decay of the head that sees little but s = 1 (none: our choice)."""
    if lag % 2:
        return gauss(decay, lag // 2)
    return radau(decay, lag // 2, fastest)


def mixed_bound(lag: int, decay: fmpq, fastest: fmpq | None = None) -> arb:
    """e of (3.8) for the log decay p and, for even lags, the fastest lin decay."""
    with working_precision(precision(decay, lag // 2)):
        return mixed_rule(lag, decay, fastest).error()


def closed_bound(lag: int, decay: fmpq) -> arb:
    """(3.10) for our choice of ε; infinite where η is not below 1."""
    if lag < 1 or not decay > 1:
        raise InputError("mixed banks deliver lags from 1 on, with a log decay above 1")
    with working_precision(256):
        places, p = range(2 - lag % 2, lag + 1, 2), arb(decay)
        rows = [sum(((2 * arb(a * b).sqrt() / (a + b)) ** p for b in places if b != a), arb(0)) for a in places]
        room = (1 - maximum(rows)) * (1 if lag % 2 else 1 - arb(1) / ROOM)
        return arb(lag) ** p * p.zeta(arb(lag + 1)) / room if room > 0 else arb.pos_inf()
