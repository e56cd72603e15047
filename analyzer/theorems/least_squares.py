"""Best weights in mean square: the least E|error|² that one dp-free layer with given decays can have.

Setting. Tokens x_t ∈ R^d whose coordinates are independent with mean 0 and variance v. Memories m_k(t) = Σ_s ρ_k(s) x_{t−s}, where a fixed
lag T is ρ = 1_T; a target y_t = b + w_0·x_t + Σ_k w_k·m_k that is affine in them. One layer with H dp-free heads of one type and distinct
decays p_1 … p_H; it delivers m̂_k with the kernel κ_k(s) = c_k 1{s=0} + Σ_h A_kh k_h(s), k_h(s) = z_h^s, z_h = e^{−p_h} (lin) or s^{−p_h} on
s ≥ 1 (log), weights c_k, A_kh free.

Statement. (a) E|m̂_k − m_k|² = v‖κ_k − ρ_k‖² per coordinate, and with G_ij = Σ_{s≥1} k_i(s)k_j(s), that is z_i z_j/(1 − z_i z_j) (lin) or
ζ(p_i + p_j) (log), and g_i = Σ_{s≥1} k_i(s)ρ_k(s), it is least exactly at

    G A_k = g,    c_k = ρ_k(0) − Σ_h A_kh k_h(0),           the least value being v(Σ_{s≥1} ρ_k(s)² − gᵀG⁻¹g).              (L.1)

(b) Of all affine read-outs of all such layers with these decays, the one that adds up the memories of (a) as the target does is best.

(c) For lin heads and the lag T the least value is, with B(w) = Π_h (w − z_h)/(1 − z_h w) = Σ_j β_j w^j,

    v Σ_{j<T} β_j²  ≥  v (1 − H/T).                                                                                    (L.2)

(d) Weights that are stored with errors that change κ_k by at most σ_k in ℓ¹, under a read-out that is off by at most R, rounding
included, have E|error|² ≤ (√opt + √v Σ_k Lip_k σ_k + R)², opt the least value of the target.                               (L.3)

Proof. (a) The mean square is that of `verify.chain.mean_square`. At s = 0 the residual weight repairs every value, and on s ≥ 1 the
kernels of the heads span a subspace of ℓ² of dimension H: distinct exponentials, or powers, are linearly independent. The nearest point of
a subspace is where the error is orthogonal to it: the normal equations; Pythagoras gives the value. (b) The error of any affine read-out
of such a layer is, up to a constant, the kernel of a point of span + residual minus w_0 1_0 + Σ_k w_k ρ_k, and orthogonal projection is
linear: it takes the sum to the sum of the projections. (c) Let κ on s ≥ 1 stand for Σ_s κ(s) w^s ∈ wH². The head z w/(1 − z w) has the
inner product f(z) with f ∈ wH² on the disc, so f is orthogonal to all heads if and only if f vanishes at z_1 … z_H, that is f ∈ wB·H².
Since |B| = 1 on the circle, the functions w^{j+1}B, j ≥ 0, are an orthonormal basis of that space, and the squared distance of w^T from
the heads is Σ_j ⟨w^T, w^{j+1}B⟩² = Σ_{j≥0} β_{T−1−j}². Now Σ_j β_j² = ‖B‖² = 1, and Σ_j j β_j² = (1/2π)∫ w B'(w) B̄(w) dθ = H, the number
of times that B winds around 0; by Markov's inequality Σ_{j≥T} β_j² ≤ H/T. (d) Minkowski's inequality and ‖·‖₂ ≤ ‖·‖₁. ∎

Construction. `constructions.theorems.least_squares`: the layer of Theorem 3.1 with A_kh from (L.1), solved in ball arithmetic and
rounded. Decays are given, or found by a numerical search, which is a hint only: (L.1) is evaluated at what is stored.

References. The setting is that of Wang & E, arXiv 2402.00522, Theorems 3.1 and 5.1; (L.2) is the classical distance to a span of rational
functions in H² (Malmquist, Takenaka; Walsh, Interpolation and Approximation by Rational Functions).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sympy
from flint import arb, arb_mat, fmpq

from analyzer.errors import Refusal
from analyzer.families import LEAST_SQUARES, Fixed, Kernel, LeastSquaresBound, Rpe
from analyzer.kernels.l2_norms import Square, l2_square
from analyzer.lemmas.least_squares import BITS, Wanted, best_kernel, best_weights, gram, products
from analyzer.numbers.exact import lower, magnitude, nearest, rational, upper, working_precision
from analyzer.statements.bounds import Bound
from analyzer.statements.theorem import Case, Theorem
from analyzer.targets.protocol import LayerTarget
from analyzer.targets.tokens import TOKEN_LAWS
from analyzer.theorems import base

if TYPE_CHECKING:
    import networkx as nx

ID = LEAST_SQUARES
TITLE = "best weights in mean square, one dp-free layer with given decays"
STATEMENT = {
    "lin": "E|error|² ≥ v Σ_{j<T} β_j² for every read-out weight, with equality at the normal equations; Σ β_j w^j = Π_h (w−z_h)/(1−z_h w)",
    "log": "E|error|² ≥ v (Σ_{s≥1} ρ(s)² − gᵀG⁻¹g) for every read-out weight, with equality at the normal equations; G_ij = ζ(p_i + p_j)",
}
LATEST = 256
"""Lags for which decays are looked for: the search looks at four times as many tokens."""
v, T = sympy.symbols("v T", positive=True)
j = sympy.Symbol("j", integer=True, nonnegative=True)


def expression(rpe: str, bank: str = LEAST_SQUARES) -> sympy.Expr:
    """(L.2), or (L.1) with P the share of the squared norm that the heads span."""
    if rpe == "lin":
        return v * sympy.Sum(sympy.Function("beta")(j) ** 2, (j, 0, T - 1))
    return v * (1 - sympy.Function("P")(T))


def memory_lemma(k: int) -> str:
    """The lemma on memory k."""
    return f"memory {k}"


def proof_graph(rpe: Rpe, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """The proof for as many memories as there are entries."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    lemma(graph, "orthogonality", "different tokens are orthogonal in L²: E|m̂ − m|² = v‖κ − ρ‖²", sympy.Integer(0))
    lemma(graph, "normal equations", "the nearest kernel has an error orthogonal to all heads", expression(rpe), ("orthogonality",))
    lemma(graph, "storage", "rounded weights and ratios, in ℓ¹", sympy.Symbol("sigma", nonnegative=True))
    for k in range(1, len(lags) + 1):
        lemma(graph, memory_lemma(k), f"mean square of memory {k}", expression(rpe), ("normal equations", "storage"), measured=True)
    lemma(graph, base.READ_OUT, "the affine read-out, squared", sympy.Symbol("R", nonnegative=True) ** 2, measured=True)
    used = (base.READ_OUT, *(memory_lemma(k) for k in range(1, len(lags) + 1)))
    lemma(graph, ID, TITLE, expression(rpe), used)
    return graph


def least_distance(rpe: Rpe, decays: Sequence[fmpq], wanted: Wanted) -> Square:
    """Both ends of the least ‖κ − ρ‖² over the weights of these decays.

    Any weights A give an upper end; G(A* − A) = g − GA = r says how far they are from the best ones, and by Pythagoras the optimum is
    rᵀG⁻¹r less.
    """
    weights = best_weights(rpe, decays, wanted)
    with working_precision(BITS + 4 * max(magnitude(a) for a in (*weights.amplitudes, weights.residual, arb(1)))):
        reached = l2_square(best_kernel(rpe, decays, weights, wanted))
        matrix, right = gram(rpe, decays), products(rpe, decays, wanted)
        missing = [g - sum((matrix[i, h] * a for h, a in enumerate(weights.amplitudes)), arb(0)) for i, g in enumerate(right)]
        try:
            step = matrix.solve(arb_mat([[r] for r in missing]))
            gained = sum((r * step[i, 0] for i, r in enumerate(missing)), arb(0)).abs_upper()
        except ZeroDivisionError:
            gained = reached.most
        return Square((reached.least - gained).max(arb(0)).lower(), reached.most)


def optimum(rpe: Rpe, decays: Sequence[fmpq], target: LayerTarget) -> Square:
    """Both ends of the least Σ_i ‖κ_i − wanted_i‖², i over the input coordinates, for an affine target."""
    columns = [least_distance(rpe, decays, target.wanted(target.readout.affine, column)) for column in range(target.dim)]
    return Square(sum((c.least for c in columns), arb(0)).lower(), sum((c.most for c in columns), arb(0)).upper())


def bound(target: LayerTarget, options: LeastSquaresBound) -> Bound:
    """(L.1) for an affine target at given decays."""
    check_affine(target)
    assert options.decays is not None  # checked when the options were made
    law, decays = TOKEN_LAWS[options.tokens], [rational(p) for p in options.decays]
    with working_precision(128):
        found = optimum(options.rpe, decays, target)
        ends = lower(arb(law.variance) * found.least), upper(arb(law.variance) * found.most)
    data: dict[str, Any] = {
        "target": target.description,
        "rpe": options.rpe,
        "decays": list(options.decays),
        "heads": len(decays),
        "norm": options.norm,
        "tokens": law.name,
        "variance": nearest(law.variance),
        "mean_square": {"lower": ends[0], "upper": ends[1]},
    }
    return Bound(ID, ends[1], {"optimum": ends[1]}, expression(options.rpe), {}, data, claim=f"mean square error ({law.name} tokens)")


def check_affine(target: LayerTarget) -> None:
    """Refuse targets for which least squares are not the best, or that have letters for tokens."""
    if target.readout.ridges:
        raise Refusal("the read-out is curved; best weights in mean square are for affine ones: give one such as m1 + m2, or norm=sup")
    if target.alphabet is not None:
        raise Refusal("the target has an alphabet; best weights in mean square are for independent tokens: leave the alphabet out")
    if all(w == 0 for w in target.readout.affine[target.dim :]):
        raise Refusal("the read-out has no memory in it: there is nothing to fit")


def check(target: LayerTarget, options: Fixed | Kernel) -> None:
    """Refuse what no such layer can be, before anything is built."""
    check_affine(target)
    if not isinstance(options.decays, tuple) and target.places[-1] > LATEST:
        raise Refusal(f"decays are optimised for lags up to {LATEST}; give decays for lag {target.places[-1]}")
    if options.width is not None or options.ffn != "spline":
        raise Refusal("an affine read-out has the neurons it needs: leave width and ffn out", {"width": None, "ffn": "spline"})


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="fixed",
    options=Fixed,
    others={"kernel": Kernel},
    bound_options=LeastSquaresBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=lambda bank, ffn: base.citation(bank, ffn, "the setting of Theorems 3.1 and 5.1"),
    check=check,
    build="constructions.theorems.least_squares:build",
    verify="verify.theorems.least_squares:verify",
    designs=lambda target, dtype: (),  # its error is a mean square
    applies=lambda target, options: options.norm == "mean-square",
    cases=(
        Case(
            {"kind": "fixed", "lags": [4], "readout": "x0 + m1/2"},
            {"norm": "mean-square", "decays": (0.5, 1.5, 3.0)},
            {"decays": (0.5, 1.5, 3.0)},
        ),
        Case({"kind": "fixed", "lags": [2]}, {"norm": "mean-square", "tokens": "signs", "dtype": "float32", "decays": (1.0, 2.0)}),
        Case({"kind": "kernel", "kernels": ["(s+1)**-2"]}, {"norm": "mean-square", "rpe": "log", "decays": (1.5, 3.0)}),
    ),
    shelf=8.5,
)
