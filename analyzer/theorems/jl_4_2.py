"""Theorem 4.2 of Jiang & Li: one softmax head approximates a target at the rate at which the singular values of its coupling decay.

Setting. Tokens x_1..x_τ ∈ [0, 1], target H_t(x) = F(Σ_s softmax[ρ(x_t, x_·)](s) f(x_s)) with a coupling ρ(u, v) = Σ_k σ_k φ_k(u)
ψ_k(v) (singular value decomposition in L²[0, 1]²). Network: one layer, one head over all τ tokens, Ĥ_t(x) = F̂(Σ_s softmax[(W_Q
f̂(x_t))·(W_K f̂(x_·))](s) W_V f̂(x_s)) with W_Q, W_K ∈ R^{m_h×n} and feed-forward f̂, F̂; no residual, no positions. Complexities:
C_1^{(α)} is the least c with σ_k ≤ c k^{−α}, α > 1/2; C_2(m) adds up what feed-forward networks need for F, f, φ_k, ψ_k, k ≤ m; C_0 =
max(1, Lip(F) ‖f‖ sup_k(‖φ_k‖ + ‖ψ_k‖)).

Statement. As printed:

    ∫ Σ_t |H_t − Ĥ_t| dx ≤ τ² C_0 ( C_1^{(α)} / m_h^{2α−1} + C_2(m_h) m_h^{β+1} / m_FF^β ),      n = 2m_h + m_v.

Repaired, in mean over independent uniform tokens, E_FFN being the feed-forward part:

    E|H_t − Ĥ_t| ≤ Lip(F) ‖f‖ ( ∫|δ(u, u)| du + √(τ−1) (Σ_{k>m} σ_k²)^{1/2} ) + E_FFN,
    (Σ_{k>m} σ_k²)^{1/2} ≤ C_1^{(α)} m^{−(α−1/2)}/√(2α−1)

with δ = Σ_{k>m} σ_k φ_k ψ_k, and in the worst case, with M pieces of splines for f̂ and N for F̂ on a hull of length ℓ,

    sup|H_t − Ĥ_t| ≤ Lip(F) ( ‖f‖ (T_m + (‖ρ_uu‖ + ‖ρ_vv‖)/(8M²)) + ‖f''‖/(8M²) ) + ℓ²‖F''‖/(8N²),        T_m = sup|δ|.

Proof. The logits of two softmaxes that differ by at most δ after adding a constant give distributions with total variation distance
at most tanh(δ/2): with logits a and a + d, −δ ≤ d ≤ δ, a set of probability p becomes one of probability at most pe^{δ}/(pe^{δ} +
(1−p)e^{−δ}), and the difference is largest where p = 1/(1+e^{δ}). So |Σ_s (p_s − p̂_s) f(x_s)| ≤ tanh(δ/2) (max f − min f) ≤ ‖f‖ δ.
In the worst case δ is half the oscillation over v of ρ − ρ̂ at fixed u, since softmax does not see functions of u. Splines:
`analyzer.numbers.piecewise`, `analyzer.lemmas.low_rank`. In mean, δ is at most |δ(x_t, x_t)| plus the root of Σ_{s≠t} δ(x_t, x_s)², whose
mean is (τ−1) Σ_{k>m} σ_k².

Construction. `constructions.theorems.jl_4_2`: a row of kinks relu(x − u_i) writes √σ_k φ_k, √σ_k ψ_k and f, W_Q, W_K, W_V pick them, a
second spline is F̂.

Repaired. (1) The printed exponent 2α−1 is that of the squared error Σ_{k>m} σ_k²: an L¹ error gets α − 1/2. Not only the proof but the
inequality is wrong for the proof's own network. Take ρ = Σ_{k≤R} k^{−3/2} 2 sin(2πku) sin(2πkv), f(x) = x, F(y) = y, τ = 16: C_0 = 2√2,
C_1^{(3/2)} = 1. With m_h = 256, and feed-forward parts so wide that their term vanishes, so that the network is the target with ρ cut off
after 256 terms, the printed right-hand side is τ²C_0/m_h² = 0.0110 for the sum over t, 6.9e-4 per position. The mean error per position is
8.3e-4, 1.4e-3, 2.1e-3, 2.4e-3 for R = 512, 1024, 4096, 8192 (sampled, standard errors of 1 %; tested for R = 1024). (2) A token attends to
itself: s = t contributes the diagonal of δ, which the L² norm on the square does not bound. It is at most Σ_{k>m} σ_k, m^{−(α−1)} for α >
1; for φ_k = ψ_k and α ≤ 1 it is not bounded at all as the rank grows. `lemmaformer experiment jl-fig-5` measures which of these the error
follows. (3) Softmax does not see functions of u: what counts is the rank of ρ − ∫ρ dv, so (u−v)² has rank 3 but needs m_h = 2 only (bank
`centred`). (4) The three complexities are infima that need not be attained by one representation: ours are those of the given one.

References. Jiang & Li, Approximation Rate of the Transformer Architecture for Sequence Modeling, arXiv 2305.18475 (NeurIPS 2024),
Theorem 4.2.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sympy

from analyzer.families import DEFAULT_ERROR, Coupling, CouplingBound
from analyzer.numbers.exact import upper
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven, product_of
from analyzer.statements.theorem import Case, Theorem

if TYPE_CHECKING:
    import networkx as nx

    from analyzer.targets.coupling import CouplingTarget

ID = "jl-4.2"
TITLE = "low-rank couplings, one softmax head"
_TEXT = "sup|H − Ĥ| ≤ Lip(F)(‖f‖(T_m + (‖ρ_uu‖ + ‖ρ_vv‖)/(8M²)) + ‖f''‖/(8M²)) + ℓ²‖F''‖/(8N²),  T_m = sup|Σ_{k>m} σ_k φ_k ψ_k|"
STATEMENT = {"lin": _TEXT, "log": _TEXT, "none": _TEXT}
"""Heads do not see positions: the statement is the same whatever the relative positions are elsewhere."""
BIBTEX = """@inproceedings{jiang2024approximation,
  title     = {Approximation Rate of the {Transformer} Architecture for Sequence Modeling},
  author    = {Jiang, Haotian and Li, Qianxiao},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2024},
  note      = {arXiv:2305.18475; Theorem 4.2}
}
"""

L, A, ell, M, N, m = sympy.symbols("Lip_F norm_f ell M N m", positive=True)
T = sympy.Function("T")
curvature, f2, F2 = sympy.symbols("D2_rho D2_f D2_F", nonnegative=True)
COUPLING = T(m) + curvature / (8 * M**2)
EXPRESSION = L * (A * COUPLING + f2 / (8 * M**2)) + ell**2 * F2 / (8 * N**2)
alpha, C1 = sympy.symbols("alpha C_1", positive=True)
PRINTED = C1 / m ** (2 * alpha - 1)
"""The tail's rate as printed, for an L¹ error."""
COUPLING_LEMMA, VALUES_LEMMA, READ_OUT = "coupling", "values", "read-out"
"""The lemmas of which a certificate shows numbers."""
REPAIRED = C1 / (sympy.sqrt(2 * alpha - 1) * m ** (alpha - sympy.Rational(1, 2)))
"""The tail's rate that follows for an L¹ error, s = t apart."""
MEAN_SQUARE = REPAIRED**2
"""And for a mean square."""


def expression(rpe: str, bank: str) -> sympy.Expr:
    """The worst-case bound."""
    return EXPRESSION


def citation(bank: str, ffn: str) -> str:
    """What a network rests on."""
    return BIBTEX


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """Who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    lemma(graph, "tail", "Σ_{k>m} σ_k φ_k ψ_k at the knots", T(m), source="Jiang & Li, section 4")
    lemma(graph, "interpolation", "splines of ρ in both tokens", curvature / (8 * M**2))
    against = "ρ against (W_Q f̂)·(W_K f̂), modulo functions of u"
    lemma(graph, COUPLING_LEMMA, against, COUPLING, ("tail", "interpolation"), measured=True)
    lemma(graph, "softmax", "total variation ≤ tanh(δ/2)", A * COUPLING, (COUPLING_LEMMA,))
    lemma(graph, VALUES_LEMMA, "spline of f", f2 / (8 * M**2), measured=True)
    lemma(graph, READ_OUT, "spline of F on the hull of the values", ell**2 * F2 / (8 * N**2), measured=True)
    lemma(graph, ID, TITLE, EXPRESSION, ("softmax", VALUES_LEMMA, READ_OUT), "Jiang & Li, Theorem 4.2")
    return graph


def bound(target: "CouplingTarget", options: CouplingBound) -> Bound:
    """The worst case, and means with the exponents as printed and as repaired."""
    from analyzer.lemmas.low_rank import averages, budget, hull_knots, is_affine, plan_sizes, uniform_knots

    error = DEFAULT_ERROR if options.error is None else options.error
    rank, pieces = plan_sizes(target, "pod", options.rank, options.knots, error, "exact")
    readout_pieces = 1 if is_affine(target) else pieces
    promised = budget(target, "pod", rank, uniform_knots(pieces), hull_knots(target, readout_pieces), "exact")
    means = averages(target, promised, "pod", rank, uniform_knots(pieces))
    parts = {name: upper(getattr(promised, name)) for name in ("tail", "interpolation", "values", "readout")}
    data = {
        "rank": rank,
        "knots": pieces,
        "readout_knots": readout_pieces,
        **parts,
        "worst_case": upper(promised.total),
        "mean_l1": upper(means.l1),
        "root_mean_square": upper(means.root_mean_square),
        "printed_rate": str(PRINTED),
        "repaired_rate": str(REPAIRED),
        "mean_square_rate": str(MEAN_SQUARE),
    }
    return Bound(ID, upper(promised.total), parts, EXPRESSION, {}, data, claim="worst-case error")


def designs(target: "CouplingTarget", dtype: str) -> list[Design]:
    """Both decompositions; the rank and the knots follow from the error."""
    return product_of(pod=("pod", "centred"))


def proven(target: "CouplingTarget", options: Coupling) -> Proven:
    """Two layers with one head of m_h coordinates; one row of kinks for all splines, or the splines of F on the range of f."""
    from analyzer.lemmas.low_rank import plan_readout, plan_sizes
    from analyzer.numbers.exact import rational

    error = DEFAULT_ERROR if options.error is None else options.error
    _, knots = plan_sizes(target, options.pod, options.rank, options.knots, error, "exact")
    low, high = (rational(end) for end in target.value_range)
    readout = len(plan_readout(target, low, high, error))
    return Proven(2, 1, max(knots, readout), width_for="queries, keys and values" if knots > readout else "read-out", attention="rank")


_SMALL = {"kind": "coupling", "rho": "-(u-v)**2", "f": "x", "F": "y", "length": 4}

THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="coupling",
    options=Coupling,
    bound_options=CouplingBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
    build="constructions.theorems.jl_4_2:build",
    verify="verify.theorems.jl_4_2:verify",
    designs=designs,
    proven=proven,
    cases=(Case(_SMALL, {"rank": 3, "knots": 16}, {"rank": 3}), Case(_SMALL, {"error": 0.1, "dtype": "float32"}, {"error": 0.1})),
    shelf=9,
)
