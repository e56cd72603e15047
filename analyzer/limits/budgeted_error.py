"""The budgeted error E_u(T): what a lag costs in an arithmetic of unit roundoff u, bounded from both sides.

Setting. One dp-free layer whose heads may have any decays of one RPE type (lin, log) or of both (mixed), any number of them, and the
residual. For a bank with kernel κ(s) = c·1{s=0} + Σ_h a_h k_h(s), k_h normalised,

    E_u(T) = inf over banks of ‖κ − 1_T‖_ℓ¹ + u (|c| + Σ_h |a_h|):

the worst-case error of delivering x_{t−T} plus what rounding the weights to a type of unit roundoff u can add. A *horizon* is the largest
T with E_u(T) < 1/2: beyond it the worst case no longer tells a token 1 from a token 0.

Statement. For every sequence δ with δ_s constant from some s on,

    E_u(T) ≥ δ_T / max( sup_s |δ_s|,  (1/u) sup_p |F(p)| ),     F(p) = Σ_s δ_s k_p(s),

the supremum over all decays p of the type (both suprema for mixed); and E_u(T) is the supremum of the right-hand side over δ ∈ ℓ^∞.

Proof of the inequality. Scale δ so that the maximum is 1, that is |δ_s| ≤ 1 and |F(p)| ≤ u. As a lin decay tends to ∞, F tends to δ_0, so
|δ_0| ≤ u; for log alone s = 0 is not seen and δ_0 = 0 is chosen. For any bank

    ‖κ − 1_T‖₁ ≥ Σ_s δ_s (1_T − κ)(s) = δ_T − c δ_0 − Σ_h a_h F(p_h) ≥ δ_T − u(|c| + Σ_h |a_h|).        ∎

Equality. The infimum is that of a convex functional of (c, a) ∈ ℓ¹(decays), composed with the bounded map to kernels in ℓ¹; its Fenchel
dual is the supremum over δ ∈ ℓ^∞, and the functional is continuous at the zero bank, which gives strong duality (Rockafellar). We never
use this half: every pair that is printed has both its sides certified.

Construction. A bank is found by linear programming (`constructions.banks.balanced`), its error is the exact ℓ¹ norm
(`analyzer.kernels.sign_runs`). The multipliers of the same programme are δ, constant on [e_i, e_{i+1}) for edges e_0 < e_1 < … and from the
last edge on. With c_i = δ_i − δ_{i−1} and the survival functions of a head,

    lin  F(p) = Σ_i c_i e^{−p e_i},   p > 0;          log  F(p) = Σ_i c_i ζ(p, e_i)/ζ(p),   p > 1.

`lower_bound` encloses the suprema over all decays, not over a grid: for lin by `analyzer.numbers.exponential_sums` up to a decay P beyond
which |F| ≤ |δ_0| + Σ_{i≥1} |c_i| e^{−P e_i}. For log with q = p − 1 and the Euler–Maclaurin formula at the edges A of blocks longer than
one,

    q ζ(1+q, A) = A^{−q} (1 + q/2A + q Σ_{k≤K} B_{2k}/(2k)! (p)_{2k−1} A^{−2k}) + R,   |R| ≤ 4q (p)_{2K} / ((2π)^{2K} (p+2K−1)) A^{−q−2K},

q F(p) ζ(p) is such an exponential sum too, in the frequencies log s and log A, and the divisor qζ(1+q) increases from 1: it is the mean of
h(t) = (t − 1 + e^{−t})/(1 − e^{−t})² over a Gamma(1+q) variable t, which grows stochastically with q, and
h' = 2e^{−t}(sinh t − t)/(1 − e^{−t})³ ≥ 0.

Longer lags. *lin*: E_u(T) ≤ E_u(T+1), since s ↦ κ(s+1), s ≥ 0, is the kernel of the bank with weights a_h z_h and no residual: one lag with
E_u ≥ 1/2 settles all that follow. *log, mixed*: δ_{T+j} = (−1)^j C(2n, n+j)/C(2n, n), a central difference, has δ_T = 1 and, with M = T −
n,

    log  |F(p)| ≤ sup |(s^{−p})^{(2n)}| / C(2n, n) = (p)_{2n} M^{−p−2n} / C(2n, n) ≤ (n!)² M^{−1−2n}     if log M ≥ 1 + 1/2 + … + 1/2n

(then (p)_{2n}M^{−p} falls in p ≥ 1), and at a lin head |F| = z^M (1−z)^{2n+1}/C(2n, n). Both fall with M, so once they are below u,
E_u(T) = 1 for every longer lag too. `difference_dual` is checked like any other sequence for the lags before that.

References. R. T. Rockafellar, Conjugate Duality and Optimization, SIAM 1974; F. Johansson, Rigorous high-precision computation of the
Hurwitz zeta function and its derivatives, Numer. Algorithms 69 (2015), for R; B. C. Berndt, On the Hurwitz zeta-function, Rocky Mountain
J. Math. 2 (1972), for the Laurent coefficients γ_n of ζ.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Literal

from flint import arb, arb_poly, arb_series, fmpq

from analyzer.errors import InputError
from analyzer.kernels import sign_runs
from analyzer.kernels.l1_norms import series_order
from analyzer.numbers.exact import magnitude, maximum, working_precision
from analyzer.numbers.exponential_sums import ExponentialSum, supremum
from analyzer.statements.theorem import Theorem

ID = "budgeted-error"
TITLE = "what a lag costs in bits: the least error plus the price of rounding"
RpeSet = Literal["lin", "log", "mixed"]
FAMILIES: dict[str, tuple[str, ...]] = {"lin": ("lin",), "log": ("log",), "mixed": ("lin", "log")}
"""Types of heads that a layer of each kind has."""
ACCURACY = fmpq(1, 2**12)
"""Share of u that the enclosure of sup|F| may waste in absolute terms."""
BERNOULLI_TERMS = 8
"""K of the Euler–Maclaurin formula is this plus an eighth of the bits of u: at A = 16, |R| ≈ (2K)!/(32π)^{2K} is then far below u for
up to 80 bits; beyond that the bound gets coarser, never wrong."""
FIRST_BLOCK = 16
"""Least edge at which the formula is used; terms before it are written out."""


@dataclass(frozen=True)
class Dual:
    """A sequence δ: `values[i]` on [edges[i], edges[i+1]), the last value for ever; 0 before the first edge."""

    edges: tuple[int, ...]
    values: tuple[fmpq, ...]

    def __post_init__(self) -> None:
        if not self.edges or len(self.edges) != len(self.values) or self.edges[0] < 0 or any(b <= a for a, b in pairwise(self.edges)):
            raise InputError("a dual sequence needs increasing edges from 0 on, and a value for each")

    def at(self, s: int) -> fmpq:
        """δ_s."""
        found = fmpq(0)
        for edge, value in zip(self.edges, self.values, strict=True):
            if edge > s:
                break
            found = value
        return found

    def merged(self) -> "Dual":
        """The same sequence without the edges at which it stays as it is: shorter, and its transform costs less."""
        changes = [0, *(i for i in range(1, len(self.edges)) if self.values[i] != self.values[i - 1])]
        return Dual(tuple(self.edges[i] for i in changes), tuple(self.values[i] for i in changes))

    def steps(self) -> list[fmpq]:
        """c_i = δ_i − δ_{i−1}."""
        return [b - a for a, b in pairwise((fmpq(0), *self.values))]


def dual_norm(dual: Dual, unit: fmpq, rpe: RpeSet) -> arb:
    """Upper bound of max(sup_s |δ_s|, sup_p |F(p)|/u): E_u(T) ≥ |δ_T| over this, for every T at once."""
    with working_precision(working_bits(unit)):
        sizes = [arb(max(abs(v) for v in dual.values))]
        if sizes[0].is_zero():
            return arb(1)
        sizes += [transform_supremum(dual, family, unit) / arb(unit) for family in FAMILIES[rpe]]
        return maximum(sizes).upper()


def lower_bound(dual: Dual, lag: int, unit: fmpq, rpe: RpeSet) -> arb:
    """The certified lower bound of E_u(T) by δ (or −δ, whichever is positive at T)."""
    if lag < 1:
        raise InputError(f"lag {lag} is not a whole number from 1 on")
    value = abs(dual.at(lag))
    return (arb(value) / dual_norm(dual, unit, rpe)).lower() if value else arb(0)


def difference_dual(lag: int, order: int) -> Dual:
    """δ_{T+j} = (−1)^j C(2n, n+j)/C(2n, n), |j| ≤ n < T: a central difference, whose transform at any head is tiny when T is large."""
    if not 0 <= order < lag:
        raise InputError("a central difference of order 2n around the lag T needs n < T")
    whole = math.comb(2 * order, order)
    values = [fmpq((-1) ** abs(j) * math.comb(2 * order, order + j), whole) for j in range(-order, order + 1)]
    return Dual(tuple(range(lag - order, lag + order + 2)), (*values, fmpq(0)))


def far_lag(unit: fmpq, rpe: RpeSet) -> int:
    """A lag T_0 from which on E_u(T) = 1, by central differences (log, mixed): see the docstring."""
    return min(order + _far_start(order, unit, rpe) for order in range(1, MAX_ORDER))


MAX_ORDER = 40
"""Orders tried: enough for the least T_0 at up to 128 bits."""


def _far_start(order: int, unit: fmpq, rpe: RpeSet) -> int:
    """Least M with log M ≥ H_{2n} and (n!)² M^{−1−2n} ≤ u (log), and max_z z^M (1−z)^{2n+1} ≤ u C(2n, n) (lin heads of mixed layers)."""
    with working_precision(256):
        harmonic = arb(sum((fmpq(1, k) for k in range(1, 2 * order + 1)), fmpq(0)))
        start = math.ceil(float(harmonic.exp())) + 1
        square = arb(math.factorial(order)) ** 2

        def small(start: int) -> bool:
            log = square * arb(start) ** -(2 * order + 1) <= arb(unit)
            peak = arb(start) / (start + 2 * order + 1)
            lin = peak**start * (1 - peak) ** (2 * order + 1) <= arb(unit) * math.comb(2 * order, order)
            return bool(log and (lin or rpe == "log"))

        while not small(start):
            start += max(1, start // 16)
    return start


@dataclass(frozen=True)
class PricedBank:
    """Heads as (type, decay) with exact weights on their normalised kernels, and the residual weight c."""

    heads: tuple[tuple[str, fmpq], ...]
    weights: tuple[fmpq, ...]
    residual: fmpq

    def __post_init__(self) -> None:
        for rpe, decay in self.heads:
            if rpe not in ("lin", "log") or not decay > (rpe == "log"):
                raise InputError("a bank's heads are lin with decays above 0, or log with decays above 1")
        if len(self.heads) != len(self.weights) or len(set(self.heads)) < len(self.heads) or any(w == 0 for w in self.weights):
            raise InputError("a bank has one weight, not zero, for each of its different heads")

    @property
    def weight_sum(self) -> fmpq:
        """|c| + Σ_h |a_h|."""
        return sum((abs(w) for w in self.weights), abs(self.residual))

    def runs(self, rpe: str) -> sign_runs.SignedBank | None:
        """The heads of one type as a sum with raw amplitudes; None if there are none."""
        chosen = [(p, arb(a)) for (kind, p), a in zip(self.heads, self.weights, strict=True) if kind == rpe]
        raw = [a * (1 - (-arb(p)).exp()) if rpe == "lin" else a / arb(p).zeta() for p, a in chosen]
        return sign_runs.SignedBank(rpe, tuple(p for p, _ in chosen), tuple(raw)) if chosen else None


def extraction_error(bank: PricedBank, lag: int) -> arb:
    """Upper bound of ‖κ − 1_T‖₁ with its infinite tail; call it at the working precision for u.

    Term by term up to 4T + 24 and, if both types are there, until the lin heads have died out; then by the runs of constant sign of the one
    type that is left, or by the triangle inequality where not all zeros are seen.
    """
    groups = [group for group in (bank.runs("lin"), bank.runs("log")) if group is not None]
    count = 4 * lag + 24
    if len(groups) == 2:
        share = arb(2) ** -16 * _window(bank, groups, lag, count)
        while not sign_runs.crude_tail(groups[0], count) <= share:
            count *= 2
            if count > MAX_WINDOW:
                raise InputError("a lin head of this mixed bank decays too slowly to be certified")
    total = _window(bank, groups, lag, count)
    for k, group in enumerate(groups):
        whole = sign_runs.tail(group, count) if k == len(groups) - 1 else None
        total += sign_runs.crude_tail(group, count) if whole is None else whole
    return total.upper()


MAX_WINDOW = 1 << 17
"""Places that are added up one by one at most."""


def _window(bank: PricedBank, groups: list[sign_runs.SignedBank], lag: int, count: int) -> arb:
    """Σ_{s<count} |κ(s) − 1_T(s)|."""
    values = [arb(0)] * count
    for group in groups:
        values = [a + b for a, b in zip(values, group.values(count), strict=True)]
    values[0] += arb(bank.residual)
    values[lag] -= 1
    return sum((abs(v) for v in values), arb(0))


def upper_bound(bank: PricedBank, lag: int, unit: fmpq) -> arb:
    """The certified upper bound of E_u(T) by a bank: ‖κ − 1_T‖₁ + u(|c| + Σ|a_h|)."""
    if lag < 1:
        raise InputError(f"lag {lag} is not a whole number from 1 on")
    size = max(0, magnitude(arb(bank.weight_sum)))
    with working_precision(working_bits(unit) + size):
        return (extraction_error(bank, lag) + arb(unit) * arb(bank.weight_sum)).upper()


def working_bits(unit: fmpq) -> int:
    """Precision for sums of size 1 that cancel to a small share of u, and for solving systems with the square of that condition."""
    return 128 + 3 * max(0, -magnitude(arb(unit)))


@dataclass(frozen=True)
class Transform:
    """F as numerator(q)/divisor(q), q = p − `least`, for 0 < q ≤ end; beyond it |F| ≤ `far`. `rest` is what the numerator leaves out."""

    least: int
    numerator: ExponentialSum
    divisor: Callable[[arb], arb] | None
    end: arb
    far: arb
    rest: arb


def transform(dual: Dual, family: str, unit: fmpq) -> Transform:
    """F for all decays of a type, resolved to a small share of u; call it at the working precision for u."""
    accuracy = arb(ACCURACY * unit)
    if family == "lin":
        coefficients = tuple((arb(c),) for c in dual.steps())
        end = _far(lambda p: _lin_rest(dual, p), accuracy)
        far = abs(arb(dual.at(0))) + _lin_rest(dual, end)
        return Transform(0, ExponentialSum(tuple(arb(e) for e in dual.edges), coefficients), None, end, far.upper(), arb(0))
    end = _far(lambda q: _log_rest(dual, q), accuracy)
    function, rest = _log_sum(dual, end, BERNOULLI_TERMS - magnitude(arb(unit)) // 8)
    far = abs(arb(dual.at(1))) + _log_rest(dual, end)
    return Transform(1, function, _zeta_divisor, end, far.upper(), rest)


def transform_supremum(dual: Dual, family: str, unit: fmpq) -> arb:
    """Upper bound of sup_p |F(p)| over all decays of a type; accurate to a small share of u."""
    found = transform(dual, family, unit)
    return (supremum(found.numerator, found.end, arb(ACCURACY * unit), found.divisor) + found.rest).max(found.far)


def transform_at(dual: Dual, head: tuple[str, fmpq]) -> arb:
    """F(p) for one head: Σ_i c_i · (mass of the head at s ≥ e_i)."""
    rpe, decay = head
    p = arb(decay)
    if rpe == "lin":
        return sum((arb(c) * (-p * e).exp() for e, c in zip(dual.edges, dual.steps(), strict=True)), arb(0))
    whole = p.zeta()
    return sum((arb(c) * p.zeta(arb(max(e, 1))) for e, c in zip(dual.edges, dual.steps(), strict=True)), arb(0)) / whole


def _far(rest: Callable[[arb], arb], accuracy: arb) -> arb:
    """A decay beyond which everything but the first entry is below the accuracy."""
    end = arb(4)
    while not rest(end) <= accuracy:
        end = end * 2
        if end > 1 << 12:
            raise InputError("the dual sequence is far too large next to u")
    return end


def _lin_rest(dual: Dual, p: arb) -> arb:
    """Σ over the edges e ≥ 1 of |c_i| e^{−p e}: how far F is from δ_0 beyond the decay p."""
    pairs = zip(dual.edges, dual.steps(), strict=True)
    return sum((abs(arb(c)) * (-p * e).exp() for e, c in pairs if e > 0), arb(0)).upper()


def _log_rest(dual: Dual, q: arb) -> arb:
    """Σ_{s≥2} |δ_s| s^{−1−q} and more: how far F can be above |δ_1| beyond the exponent 1 + q."""
    p, total = 1 + q, arb(0)
    for (edge, value), after in zip(zip(dual.edges, dual.values, strict=True), (*dual.edges[1:], None), strict=True):
        first = max(edge, 2)
        if after is not None and after <= first:
            continue
        single = after == first + 1
        total += abs(arb(value)) * (arb(first) ** -p if single else arb(first) ** -p * (1 + arb(first) / (p - 1)))
    return total.upper()


def _log_sum(dual: Dual, end: arb, terms: int) -> tuple[ExponentialSum, arb]:
    """(q ζ(p) F(p) as an exponential sum in q, upper bound of what the Euler–Maclaurin formula leaves out for 0 ≤ q ≤ end)."""
    singles: dict[int, fmpq] = {}
    tails: dict[int, fmpq] = {}
    for edge, value, after in zip(dual.edges, dual.values, (*dual.edges[1:], None), strict=True):
        if after == edge + 1:
            singles[edge] = singles.get(edge, fmpq(0)) + value
            continue
        for place, weight in ((edge, value), (after, -value)):
            if place is None:
                continue
            for s in range(place, FIRST_BLOCK):
                singles[s] = singles.get(s, fmpq(0)) + weight
            place = max(place, FIRST_BLOCK)
            tails[place] = tails.get(place, fmpq(0)) + weight
    frequencies = [arb(s).log() for s in (*(s for s in singles if s > 0), *tails)]
    coefficients = [(arb(0), arb(v) / s) for s, v in singles.items() if s > 0]
    coefficients += [tuple(arb(v) * c for c in _euler_maclaurin(edge, terms)) for edge, v in tails.items()]
    weights = (abs(arb(v)) * (arb(FIRST_BLOCK) / edge) ** (2 * terms) for edge, v in tails.items())
    rest = sum(weights, arb(0)) * _euler_maclaurin_rest(FIRST_BLOCK, end, terms)
    return ExponentialSum(tuple(frequencies), tuple(coefficients)), rest.upper()


def _euler_maclaurin(edge: int, terms: int) -> list[arb]:
    """Coefficients in q of 1 + q/2A + q Σ_{k≤K} B_{2k}/(2k)! (1+q)_{2k−1} A^{−2k}."""
    q, total = arb_poly([0, 1]), arb_poly([1, arb(1) / (2 * edge)])
    rising = arb_poly([1, 1])
    for k in range(1, terms + 1):
        if k > 1:
            rising = rising * (q + (2 * k - 2)) * (q + (2 * k - 1))
        total += q * rising * (arb(fmpq.bernoulli(2 * k)) / math.factorial(2 * k) / arb(edge) ** (2 * k))
    return list(total.coeffs())


def _euler_maclaurin_rest(edge: int, end: arb, terms: int) -> arb:
    """Upper bound of |R| for 0 ≤ q ≤ end: on every unit cell of q the polynomial at its right and A^{−q} at its left end."""
    worst, left = arb(0), 0
    while not left >= end:
        p = arb(left + 2)
        value = 4 * (p - 1) / (p + 2 * terms - 1) * arb(edge) ** -(left + 2 * terms) / (2 * arb.pi()) ** (2 * terms)
        for j in range(2 * terms):
            value *= p + j
        worst = worst.max(value.upper())
        left += 1
    return worst


def _zeta_divisor(q: arb) -> arb:
    """q ζ(1+q), increasing, at an exact point q ≥ 0; what is divided by it need not be known better than to some 50 bits."""
    with working_precision(DIVISOR_BITS):
        if not q < 1:
            return q * (1 + q).zeta()
        return _laurent()(q) + arb(0, LAURENT_REST * q) if q > 0 else arb(1)


DIVISOR_BITS = 64
LAURENT_TERMS = 48
LAURENT_REST = arb(2) ** -78
"""For q ≤ 1 the terms n ≥ 48 of q ζ(1+q) = 1 + Σ_n (−1)^n γ_n/n! q^{n+1} add up to less than 4q/48 · π^−48/(1 − 1/π) < 2^-80 q, as
|γ_n| ≤ 4 (n−1)!/π^n (Berndt)."""


@cache
def _laurent() -> arb_poly:
    """1 + Σ_{n<48} (−1)^n γ_n/n! q^{n+1}."""
    with working_precision(DIVISOR_BITS + LAURENT_TERMS), series_order(LAURENT_TERMS):
        return arb_poly([1, *arb_series([1, 1]).zeta(deflate=True).coeffs()])


THEOREM = Theorem(id=ID, title=TITLE, page=__doc__, shelf=21)
