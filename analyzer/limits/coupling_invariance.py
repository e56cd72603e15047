"""When two couplings are one target: functions of the query, and affine maps between values and read-out.

Setting. H_t(x) = F(Σ_s softmax[ρ(x_t, x_·)](s) f(x_s)) and H'_t(x), the same with ρ', f', F'; tokens in [0, 1], τ ≥ 2 of them.

Statement. (i) If ρ' − ρ is a function of the query u alone, f' = af + b with a ≠ 0 and F'(ay + b) = F(y) on the hull of f, then H' = H.
So m_h counts the rank of ρ *modulo functions of u*. (ii) If H' = H, then F'∘f' = F∘f on [0, 1]; and if f' = af + b, a ≠ 0, and F is
one-to-one on the hull of f, then ρ'(u, v) − ρ'(u, u) = ρ(u, v) − ρ(u, u) wherever f(u) ≠ f(v): there is nothing else to choose in ρ.
(iii) If f' = af + b and F'(ay + b) = F(y), then |H − H'| ≤ Lip(F) (max f − min f) tanh(δ/2) with δ = sup_u ½ osc_v(ρ' − ρ). (iv) For τ
= 2 and a one-to-one F the read-out can be moved through the mean: H has the form with F'(y) = y, f' = F∘f and some ρ'.

Proof. (i) Softmax does not change if a constant is added to all logits, and g(x_t) is one; a mean commutes with an affine map, so the
mean of f' is ay + b where that of f is y. (ii) On the constant sequence x = (c, …, c) the mean is f(c), whatever ρ is. For the second
part take u at the asking position and v at all others: the mean is f(u) + (f(v) − f(u)) (τ−1)/(τ−1 + e^{ρ(u,u) − ρ(u,v)}), which
determines ρ(u,v) − ρ(u,u) if f(u) ≠ f(v), and F is one-to-one. (iii) Two softmaxes whose logits differ by δ at most, after adding a
constant, are tanh(δ/2) apart in total variation. (iv) F is monotone on the hull of f, so F of a proper mean of f(u) and f(v) lies
strictly between F(f(u)) and F(f(v)) where these differ: it is their mean with some odds, and log-odds are a ρ'(u, v) with ρ'(u, u) = 0.
∎ (For τ ≥ 3 (iv) fails in general: the odds of two tokens would have to change with a third one.)

Decided. Sameness by (i): symbolically, a and b from two tokens that f tells apart. Difference by a sequence at which the two values,
enclosed in balls, are apart. What is neither is undecided. The ranks shown are those of `analyzer.lemmas.pod`.

References. Jiang & Li, arXiv 2305.18475, Proposition B.1.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flint import arb

from analyzer.numbers.exact import lower, maximum, range_pieces, upper, working_precision
from analyzer.statements.theorem import Theorem

if TYPE_CHECKING:
    import sympy

    from analyzer.language.formulas import Formula

ID = "coupling-invariance"
TITLE = "when two couplings are one target"
MOST_SIMPLIFIED = 120
"""Operations of an expression that sympy is asked to simplify."""
PIECES = 48
"""Pieces of [0, 1] on which ρ' − ρ is enclosed."""


@dataclass(frozen=True)
class Sameness:
    """What is shown to vanish: ρ' − ρ modulo functions of u; f' − (af + b), F'(ay + b) − F(y) for some a ≠ 0, b."""

    query_only: bool
    affine: bool

    @property
    def whole(self) -> bool:
        return self.query_only and self.affine


def sameness(rho: "tuple[Formula, Formula]", values: "tuple[Formula, Formula]", readouts: "tuple[Formula, Formula]") -> Sameness:
    """(i), symbolically; False where nothing is shown."""
    import sympy

    u, v, x, y = sympy.symbols("u v x y", real=True)
    first, second = (formula.symbolic(u, v) for formula in rho)
    difference = second - first
    query_only = vanishes(difference - difference.subs(v, 0))
    (f, g), (outer, other) = (formula.symbolic(x) for formula in values), (formula.symbolic(y) for formula in readouts)
    if vanishes(g - f):
        return Sameness(query_only, vanishes(other - outer))
    ends = (sympy.Integer(1), sympy.Rational(1, 2), sympy.Rational(1, 3))
    end = next((point for point in ends if not vanishes(f.subs(x, point) - f.subs(x, 0))), None)
    if end is None:
        return Sameness(query_only, False)
    a = (g.subs(x, end) - g.subs(x, 0)) / (f.subs(x, end) - f.subs(x, 0))
    b = g.subs(x, 0) - a * f.subs(x, 0)
    return Sameness(query_only, not vanishes(a) and vanishes(g - a * f - b) and vanishes(other.subs(y, a * y + b) - outer))


def vanishes(expression: "sympy.Expr") -> bool:
    """Whether sympy shows that an expression is 0."""
    import sympy

    if expression == 0 or sympy.expand(expression) == 0:
        return True
    return sympy.count_ops(expression) <= MOST_SIMPLIFIED and sympy.simplify(expression) == 0


def query_oscillation(rho: "tuple[Formula, Formula]") -> arb:
    """δ = sup_u ½ osc_v(ρ' − ρ), from above."""
    with working_precision(64):
        pieces = range_pieces(arb(0), arb(1), PIECES)
        worst = arb(0)
        for u in pieces:
            row = [rho[1].at(u, v) - rho[0].at(u, v) for v in pieces]
            if not all(ball.is_finite() for ball in row):
                return arb.pos_inf()
            worst = worst.max((maximum(row).upper() + maximum([-ball for ball in row]).upper()) / 2)
        return worst


def apart(first: arb, second: arb) -> float:
    """How far two values are from each other, from below; 0 where enclosures touch."""
    return max(0.0, lower(abs(first - second)))


def moved_at_most(lipschitz: arb, oscillation: arb, delta: arb) -> float:
    """(iii), rounded up."""
    return upper(lipschitz * oscillation * (delta / 2).tanh()) if delta.is_finite() else float("inf")


THEOREM = Theorem(id=ID, title=TITLE, page=__doc__, shelf=24.5)
