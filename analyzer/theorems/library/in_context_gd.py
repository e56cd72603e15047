"""In-context gradient descent of von Oswald et al.: L layers of linear attention are L steps on the examples in the context.

Setting. N examples (x_i, y_i) and a query x_q, all coordinates in [−1, 1], x ∈ R^d. Gradient descent on the mean square of the examples,
(1/2N) Σ_i (w·x_i − y_i)², from w_0 = 0 with rate η, predicts w_L·x_q after L steps. Network: n = N + 1 tokens, L layers, one head of linear
attention each, which weighs token s by ⟨W_Q X_t, W_K X_s⟩/n without an exponential; Σ = (1/N) Σ_i x_i x_iᵀ.

Statement. In exact arithmetic the network's output at every token is w_L·x_t, for all examples and queries of the box; at the last token it
is the prediction. In floats with unit roundoff u, with ρ = max(1, |1 − ηd|) and K = n + 2d + 16,

    |computed − w_L·x_t| ≤ u ηd L ρ^{L−1} (K (1 + ηd (L−1)/2) + L) / (1 − τ),        τ = L (1 + ηdK) u < 1.                       (G.1)

Contraction: if y_i = w*·x_i and the eigenvalues of Σ lie in [μ, M], then

    |w_L·x_q − w*·x_q| ≤ max(|1 − ημ|, |1 − ηM|)^L ‖w*‖ ‖x_q‖.                                                                (G.2)

Proof. Let r_t = y_t − w_k·x_t be the residual that token t holds (at the query: −w_k·x_q) and p_t = w_k·x_t. The query's key is 0, so
the mean is m_t = (1/n) Σ_{i≤N} ⟨x_t, x_i⟩ r_i, and (ηn/N) m_t = ⟨x_t, (η/N) Σ_i r_i x_i⟩ = (w_{k+1} − w_k)·x_t: adding it to p_t and
subtracting it from r_t is the step, for all tokens at once. relu(p) − relu(−p) = p. *(G.2).* (η/N) Σ_i r_i x_i = ηΣ(w* − w_k), hence
w* − w_L = (I − ηΣ)^L w*, and the norm of a polynomial of a symmetric matrix is its maximum on the spectrum.
*(G.1).* Measure residuals of the N examples by their root mean square. A step is r ← (I − ηG) r, G = (⟨x_i, x_j⟩/N), whose eigenvalues are
those of Σ and zeros, 0 ≤ λ ≤ tr Σ ≤ d: it multiplies both residuals and their errors by ρ at most, while row by row errors could grow by
1 + ηd. So residuals stay below ρ^k after k steps, |m_t| ≤ (N/n) d ρ^k, and |p_t| ≤ ηd k ρ^{k−1}. One layer adds an error of its own:
two roundings of queries, n + d + 4 of Σ_s ⟨q_t, k_s⟩ v_s/n in whatever order, two of W_O, of which one is its storage; together at most
ηd ρ^k K u/(1 − τ) (*step*; the rest of K pays for the read-out, for flushed subnormals and for products of roundings; 1/(1 − τ) for errors
of errors, as τ/(1 − τ) bounds the relative error of residuals). Adding it to a slot rounds once more, by u times the slot. With ε_k the
error of residuals and π_k that of predictions, in units of u/(1 − τ),

    ε_{k+1} ≤ ρ ε_k + ηdKρ^k + ρ^{k+1},    hence ε_k ≤ k ρ^k (ηdK + 1),
    π_{k+1} ≤ π_k + ηd ε_k + ηdKρ^k + ηd (k+1) ρ^k,

and summing over k < L gives (G.1). ∎

Remarks. *No horizon in depth for stable rates.* If η ≤ 2/d, then ρ = 1 on the whole box and roundings add up like L²: floats hold many
steps. If η > 2/d, some examples make gradient descent itself diverge like ρ^L, and floats are refused where (G.1) passes the error asked
for. *What is certified* is the distance from gradient descent, for all examples; (G.2) is about well-conditioned ones: over the whole box
μ is 0, and what no step has seen of w* stays unknown. *Data that are not linear:* on the span of the examples w_L tends to the
least-squares solution at the same rate.

Construction. `constructions.theorems.library.in_context_gd`: slots for the example's x, the query's x, residual and prediction.

Repaired. As printed, tokens are (x, y), W_K = W_Q picks x, and sums run over the N examples; with the query among the tokens it would be
its own key, and its y-slot, which holds minus the prediction, would act as one more example's residual. Examples and query have separate
coordinates here, so that the query's key is 0, exactly; the mean over n = N + 1 tokens instead of N is paid for by W_O = ηn/N. The
prediction has a slot of its own: in the paper it is minus the query's y-slot.

References. von Oswald, Niklasson, Randazzo, Sacramento, Mordvintsev, Zhmoginov & Vladymyrov, Transformers learn in-context by gradient
descent, arXiv 2212.07677 (ICML 2023), Proposition 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy

from analyzer.errors import InputError
from analyzer.families import LEAST_ERROR, Dtype
from analyzer.options import Options, option
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven
from analyzer.statements.symbols import Quantity
from analyzer.statements.theorem import Case, Theorem

if TYPE_CHECKING:
    import networkx as nx
    from flint import arb

    from analyzer.targets.tasks.in_context_gd import InContextTarget

ID = "in-context-gd"
TITLE = "L layers of linear attention are L steps of gradient descent"
_TEXT = "output = w_L·x_t, the prediction of L steps of gradient descent in context, exactly; |w_L·x − w*·x| ≤ ‖(I − ηΣ)^L‖ ‖w*‖ ‖x‖"
STATEMENT = {"lin": _TEXT, "log": _TEXT, "none": _TEXT}
"""No relative positions: the statement is the same whatever they are elsewhere."""
BIBTEX = """@inproceedings{vonoswald2023transformers,
  title     = {Transformers Learn In-Context by Gradient Descent},
  author    = {von Oswald, Johannes and Niklasson, Eyvind and Randazzo, Ettore and Sacramento, Jo{\\~a}o and Mordvintsev, Alexander and
               Zhmoginov, Andrey and Vladymyrov, Max},
  booktitle = {International Conference on Machine Learning},
  year      = {2023},
  note      = {arXiv:2212.07677; Proposition 1, repaired}
}
"""
u, L = Quantity("u", "the unit roundoff"), Quantity("L", "the number of steps, and of layers")
eta, rho = Quantity("eta", "the learning rate"), Quantity("rho", "the larger of 1 and |1 - eta d|")
d, n = Quantity("d", "the number of features"), Quantity("n", "the number of tokens, one more than examples")
K = n + 2 * d + 16
TAU = L * (1 + eta * d * K) * u
STEP = eta * d * K * u / (1 - TAU)
"""What a layer's own roundings add, as a share of ρ^k."""
EXPRESSION = u * eta * d * L * rho ** (L - 1) * (K * (1 + eta * d * (L - 1) / 2) + L) / (1 - TAU)
"""(G.1)."""
STEP_LEMMA = "step"
"""The lemma of which a certificate shows numbers."""


@dataclass(frozen=True)
class InContextDescent(Options):
    """Networks of in-context-gd: the sizes are the target's."""

    error: float | None = option(None, "total worst-case error, certified", least=LEAST_ERROR, shown="0.01")
    dtype: Dtype = option("exact", "arithmetic of the weights: exact rationals, or floats that are rounded and then certified")


@dataclass(frozen=True)
class InContextBound(Options):
    """The bounds of in-context-gd: (G.1) for a type of floats, (G.2) for examples whose second moments are known."""

    dtype: Dtype = option("exact", "arithmetic of the network: exact rationals have no error")
    least: float = option(0.0, "μ: the least eigenvalue of the mean of x xᵀ over the examples", least=0)
    most: float | None = option(None, "M: the largest one", above=0, shown="d, which holds for all examples")
    teacher: float = option(1.0, "the norm of the teacher w*, y = w*·x", above=0)


def expression(rpe: str, bank: str) -> sympy.Expr:
    """(G.1)."""
    return EXPRESSION


def citation(bank: str, ffn: str) -> str:
    """What a network rests on."""
    return BIBTEX


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """Who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    lemma(
        graph, STEP_LEMMA, "one layer against one step, as a share of ρ^k", STEP, source="von Oswald et al., Proposition 1", measured=True
    )
    lemma(graph, "growth", "what a step does to residuals and to their errors, ‖I − ηΣ‖", rho)
    lemma(graph, ID, TITLE, EXPRESSION, (STEP_LEMMA, "growth"), "von Oswald et al., Proposition 1")
    return graph


def promised(target: "InContextTarget", dtype: str) -> "tuple[arb, arb]":
    """((G.1), its share of one step) at the sizes of a target; 0 in exact arithmetic, infinite where τ ≥ 1."""
    from flint import arb

    from analyzer.numbers.exact import UNIT
    from analyzer.numbers.formula_values import evaluate

    if dtype == "exact":
        return arb(0), arb(0)
    unit = UNIT[dtype]
    sizes = {u: unit, eta: target.rate, d: target.features, n: target.length, L: target.steps, rho: target.growth}
    values = {symbol: arb(value) for symbol, value in sizes.items()}
    if not evaluate(TAU, values) < 1:
        return arb("inf"), arb("inf")
    return evaluate(EXPRESSION, values), evaluate(STEP, values)


def bound(target: "InContextTarget", options: InContextBound) -> Bound:
    """(G.1), and the contraction (G.2) beside it."""
    from flint import arb

    from analyzer.numbers.exact import rational, upper, working_precision

    features = target.features
    most = float(features) if options.most is None else options.most
    if not options.least <= most <= features:
        raise InputError(f"eigenvalues from {options.least:g} to {most:g}: for x in [-1, 1]^{features} they lie between 0 and {features}")
    with working_precision(256):
        total, step = (upper(part) for part in promised(target, options.dtype))
        factor = arb(max(abs(1 - target.rate * rational(end)) for end in (options.least, most))) ** target.steps
        teacher = factor * arb(rational(options.teacher)) * arb(features).sqrt()
        data = {
            "heads": 1,
            "layers": target.steps,
            "width": 2,
            "total": total,
            "growth": upper(arb(target.growth)),
            "eigenvalues": [options.least, most],
            "contraction": upper(factor),
            "teacher_error": upper(teacher),
        }
    return Bound(ID, total, {STEP_LEMMA: step}, EXPRESSION, {}, data, claim="distance from L steps of gradient descent")


def designs(target: "InContextTarget", dtype: str) -> list[Design]:
    """One design: nothing is chosen."""
    return [{}]


def proven(target: "InContextTarget", options: InContextDescent) -> Proven:
    """One layer with one head per step."""
    return Proven(target.steps, 1, 2)


_PLANE = {"kind": ID, "features": 2, "examples": 8, "steps": 4, "rate": "1/2"}
_LINE = {"kind": ID, "features": 1, "examples": 3, "steps": 3, "rate": "3/5"}

THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target=ID,
    options=InContextDescent,
    bound_options=InContextBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
    build="constructions.theorems.library.in_context_gd:build",
    verify="verify.theorems.library.in_context_gd:verify",
    absolute=True,
    designs=designs,
    proven=proven,
    cases=(Case(_PLANE, {"dtype": "float32"}, {"dtype": "float32", "least": 0.25}), Case(_LINE, {}, {"least": 0.5})),
    shelf=14.0,
)
