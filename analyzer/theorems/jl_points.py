"""Couplings of points at positions: Jiang & Li's targets with tokens (s, x_s), x_s ∈ R^d, and values in R^m, one softmax head.

Setting. Positions s = 1..N, a domain X_s ⊂ R^d for each: a finite set of points, or the box [0, 1]^d. Target H_t(x) = F(Σ_s softmax[ρ((t,
x_t), (s, x_·))](s) f(s, x_s)) with f = (f_1, …, f_m) into R^m and F a sum of ridge functions on R^m. On boxes ρ = Σ_ij ρ_ij(t, u_i, s,
v_j) and f_c = Σ_i f_ci(s, x_i). Network: one layer that writes functions of one token and one head with W_Q, W_K ∈ R^{m_h×D}, W_V ∈
R^{m×D}, feed-forward F̂ on R^m; tokens carry the code of their position, heads see no positions.

Statement. Let σ_1 ≥ σ_2 ≥ … be the singular values of ρ at the knots modulo functions of the query, T_m half the oscillation over keys
(s, v) of what the first m_h singular functions leave there, the largest over all queries (t, u). Then, over all sequences and all
positions t,

    sup|H_t − Ĥ_t| ≤ Σ_c Lip_c(F) ( osc(f_c) δ/2 + ‖f_c − f̂_c‖ ) + ‖F − F̂‖,      δ ≤ T_m + sup_{t,u} ½ osc_{s,v}(ρ − I ρ),

Lip_c(F) being the largest |∂F/∂y_c| on the box of the values. On finite sets I ρ = ρ and f̂ = f: with m_h the rank of ρ modulo functions
of the query, only F̂ is left. On boxes with M pieces per coordinate both terms of the splines fall like 1/M².

Proof. Logits that differ by at most δ after adding a constant give distributions whose distance in total variation is at most tanh(δ/2)
(proof of jl-4.2), so a mean of f_c moves by at most tanh(δ/2) osc(f_c) ≤ osc(f_c) δ/2; the constant may depend on the query, whence half
the oscillation over keys. F moves by at most Σ_c Lip_c(F) |y_c − ŷ_c|, since the box of the values is convex. Between knots everything
that the first layer writes is linear along each axis, so ρ̂ interpolates its values at pairs of knots; I never increases a sup norm. At
one u the number ρ − I_u ρ is −(u − a)(b − u)/2 times some ρ_uu, of which the query sees the spread over v and s only: (u − v)² costs as
little as −2uv + v².

Construction. `constructions.theorems.jl_points`. Finite sets: along an axis on which the points of a position lie apart every function of
(position, point) is piecewise linear with its knots at the points. Boxes: splines in every coordinate. What differs from position to
position is switched on by the code of the position, in the same row of neurons.

Examples of the paper, as targets here. Nearest point: ρ = −β|u − v|² + a mask of the position that asks, f = x, rank d + 1: 2β u·v −
β|v|² modulo functions of u. If the nearest of n landmarks is nearer by γ in squared distance, softmax gives the others at most (n −
1)e^{−βγ}, so the soft target is within (n − 1)e^{−βγ} osc(f_c) of the nearest point's coordinate. Centre of mass: ρ = log of the mass of
position s, rank 1, f = x. Selection of q inputs: ρ = −β off the positions that are selected, rank 1, f = x_s e_k(s) ∈ R^q; F reads q
times the mean.

Repaired. Nothing is taken from the figures of the paper, which are not repeated here number by number: what is shown is the error against
m_h beside the singular values, with certificates. As in jl-4.2 the rate is that of the logits, not of its square; a query attends to
itself unless ρ masks it; what counts is the rank modulo functions of the query. The paper's domains of different positions are disjoint,
as here: (s, x) with different s.

References. Jiang & Li, Approximation Rate of the Transformer Architecture for Sequence Modeling, arXiv 2305.18475 (NeurIPS 2024), Theorem
4.2 and its examples."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sympy

from analyzer.families import DEFAULT_ERROR, Points, PointsBound
from analyzer.numbers.exact import upper
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven
from analyzer.statements.theorem import Case, Theorem
from analyzer.theorems.jl_4_2 import BIBTEX, COUPLING_LEMMA, READ_OUT, VALUES_LEMMA

if TYPE_CHECKING:
    import networkx as nx

    from analyzer.targets.points import PointsTarget

ID = "jl-points"
TITLE = "couplings of points at positions, values in several dimensions"
_TEXT = "sup|H − Ĥ| ≤ Σ_c Lip_c(F)(osc(f_c) δ/2 + ‖f_c − f̂_c‖) + ‖F − F̂‖,  δ ≤ T_m + sup ½ osc(ρ − Iρ)"
STATEMENT = {"lin": _TEXT, "log": _TEXT, "none": _TEXT}
"""Heads do not see positions: the statement is the same whatever the relative positions are elsewhere."""

L, A, m = sympy.symbols("Lip_F osc_f m", positive=True)
T = sympy.Function("T")
cells, values_off, readout_off = sympy.symbols("I_rho I_f I_F", nonnegative=True)
COUPLING = T(m) + cells
EXPRESSION = L * (A * COUPLING / 2 + values_off) + readout_off


def expression(rpe: str, bank: str) -> sympy.Expr:
    """The worst-case bound, for one component of f; components are added."""
    return EXPRESSION


def citation(bank: str, ffn: str) -> str:
    """What a network rests on."""
    return BIBTEX


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """Who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    lemma(graph, "tail", "half the oscillation of Σ_{k>m} σ_k φ_k ψ_k over keys, at the knots", T(m), source="Jiang & Li, section 4")
    lemma(graph, "interpolation", "ρ between knots, modulo functions of the query (finite sets: 0)", cells)
    against = "ρ against (W_Q f̂)·(W_K f̂), modulo functions of the query"
    lemma(graph, COUPLING_LEMMA, against, COUPLING, ("tail", "interpolation"), measured=True)
    lemma(graph, "softmax", "total variation ≤ tanh(δ/2), for each component of f", A * COUPLING / 2, (COUPLING_LEMMA,))
    lemma(graph, VALUES_LEMMA, "components of f, times the slopes of F", values_off, measured=True)
    lemma(graph, READ_OUT, "ridge splines of F on the box of the values", readout_off, measured=True)
    lemma(graph, ID, TITLE, EXPRESSION, ("softmax", VALUES_LEMMA, READ_OUT), "Jiang & Li, Theorem 4.2, with positions and vectors")
    return graph


def bound(target: "PointsTarget", options: PointsBound) -> Bound:
    """The worst case over all sequences and positions, with the singular values behind it."""
    from analyzer.lemmas.points import exact_budget, frame, plan_points, point_factors, readout_promise

    error = DEFAULT_ERROR if options.error is None else options.error
    rank, pieces = plan_points(target, options.rank, options.knots, error)
    promised = exact_budget(target, rank, pieces, readout_promise(target, error))
    found = point_factors(target, frame(target, pieces))
    parts = {
        "tail": upper(promised.price * promised.tail),
        "interpolation": upper(promised.price * promised.interpolation),
        "values": upper(promised.moved),
        "readout": upper(promised.readout),
    }
    data = {
        "rank": rank,
        "knots": pieces if target.points is None else None,
        **parts,
        "coupling": upper(promised.coupling),
        "worst_case": upper(promised.total),
        "singular_values": [float(value) for value in found.sigma[:16]],
        "singular_error": found.sigma_error,
    }
    return Bound(ID, upper(promised.total), parts, EXPRESSION, {}, data, claim="worst-case error")


def designs(target: "PointsTarget", dtype: str) -> list[Design]:
    """One: rank and knots follow from the error."""
    return [{}]


def proven(target: "PointsTarget", options: Points) -> Proven:
    """Two layers with one head of m_h coordinates; neurons for all positions and knots, or the splines of F."""
    from analyzer.lemmas.feedforward import plan_feedforward
    from analyzer.lemmas.points import frame, plan_points, plan_points_readout

    error = DEFAULT_ERROR if options.error is None else options.error
    _, pieces = plan_points(target, options.rank, options.knots, error)
    first = frame(target, pieces).rows + target.length + (pieces + 1) * target.space
    radii, share = plan_points_readout(target, error)
    readout = plan_feedforward("spline", target.readout, radii, None, share).width
    return Proven(2, 1, max(first, readout), width_for="queries, keys and values" if first > readout else "read-out", attention="rank")


_NEAREST = {
    "kind": "points",
    "length": 3,
    "space": 2,
    "rho": "-4*((u1-v1)**2 + (u2-v2)**2) - 12*relu(2-s)",
    "f": ["x1", "x2"],
    "F": "y1*y2",
    "points": [[0, 0], ["1/3", 1], [1, 0.5]],
}
_BOX = {"kind": "points", "length": 3, "space": 1, "rho": ["-(u1-v1)**2", "s/4"], "f": ["x1"], "F": "y1"}

THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="points",
    options=Points,
    bound_options=PointsBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
    build="constructions.theorems.jl_points:build",
    verify="verify.theorems.jl_points:verify",
    designs=designs,
    proven=proven,
    cases=(Case(_NEAREST, {"error": 0.05}, {"rank": 3}), Case(_BOX, {"error": 0.1, "dtype": "float32"}, {"error": 0.1})),
    shelf=9.5,
)
