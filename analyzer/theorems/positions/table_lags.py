"""Adaptive memories by choosing among fixed ones: a bias per distance brings every token that may matter, neurons pick.

Setting. Tokens from a finite alphabet in [−1, 1]^d, target y_t = f(x_t, x_{t−t_1}, …, x_{t−t_M}) with lags t_k = g_k(x_t and memories of
lower level) (`analyzer.targets.adaptive`); K is the set of all lags that occur, T the longest, N = T + 1, λ the number of levels. One layer
of dp-free heads with a bias for every distance s < N (as in table-heads), then feed-forward networks with precision: some of their
outputs are rounded, [·].

Statement. For every b > 0 with e = (N−2) e^{−b} < 1, and so small that the noise at every lag stays below 1/2, there is a network of
2λ + 1 layers, of which the first alone attends, with |K| heads, and

    |||H − TF||| ≤ E_FFN + Σ_k Lip_k(f) e.                                                                               (L.1)

So heads and weights do not depend on the error, nested memories err by no more than those of the first level, and every float type holds
lags of hundreds.

Proof. The head of lag B delivers x_{t−B} to within e for every B ∈ K (table-heads, (T.1)). By induction over the levels, let the memories
that g_k reads be delivered to within e. (1) The indicators χ_{k,B} = 1{g_k = B} are functions of finitely many tokens: along a
direction w that keeps tokens of different lags apart they are piecewise linear functions of w·u, and what arrives differs from 0 or 1 by
at most the steepest slope times ‖w‖₁ e. Below 1/2, rounding makes it 0 or 1. (2) With |x̂_B| ≤ 1 + e < 2,

    Σ_B relu(x̂_B + 4χ_B − 2) − 2  =  x̂_{g_k},                                                                             (L.2)

for where χ_B = 0 the neuron is off, and where χ_B = 1 it holds x̂_B + 2 > 0. So the memory is delivered to within e again. After λ levels
the last network reads (x_t, memories): E_FFN + Σ_k Lip_k e as in Theorem 3.1. ∎

Remarks. Proposition 4.2 says that dp-free attention with a linear read-out cannot follow a lag that depends on a token: (L.2) is where the
neurons are needed. Theorem 4.4 reads a lag in the heads, T + 1 of them for a lag up to T and with weights that grow like 4^T (π-law), where
here there are |K| with weights next to 1; it sees the whole past, and here the heads end at N. The price is a layer more per level.

Construction. `constructions.theorems.positions.table_lags`. Stream: x_t; the token of every lag in K; the memories; a slot χ_{k,B} for
every lag of every memory. Layer 1 attends, and writes the χ of level 1; layer 2l writes the memories of level l, layer 2l + 1 the χ of
level l + 1, and the last layer is f.

References. Raffel et al., JMLR 21 (2020), for a bias per distance; the targets are those of Wang & E, arXiv 2402.00522, Theorem 4.4.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import sympy
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.families import DEFAULT_ERROR, Adaptive, TableBound
from analyzer.lemmas import feedforward as ff
from analyzer.lemmas.lag_encoding import LagEncoding, encode
from analyzer.numbers.exact import lower, upper, working_precision
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven, product_of
from analyzer.statements.theorem import Case, Theorem
from analyzer.targets.adaptive import AdaptiveMemory
from analyzer.theorems import base, thm_4_4
from analyzer.theorems.positions.table_heads import ERROR, RAFFEL, b, extraction_error, least_bias

if TYPE_CHECKING:
    import networkx as nx

ID = "table-lags"
TITLE = "adaptive memories chosen among fixed ones, with a bias per distance"
_TEXT = "|||H − TF||| ≤ E_FFN + Σ_k Lip_k e with |K| heads in the first of 2λ + 1 layers,  e = (N−2) e^{−b}"
STATEMENT = {"lin": _TEXT, "log": _TEXT, "table": _TEXT}
MARGIN_SHARE = 4
"""Memories may use up one part in this many of the margin 1/2 of the indicators that read them, all together."""


def lags_of(target: AdaptiveMemory) -> tuple[int, ...]:
    """K: every lag that occurs, increasing."""
    return tuple(sorted({lag for k in range(len(target.memories)) for lag in target.occurring(k)}))


def indicator(encoding: LagEncoding, lag: int) -> list[fmpq]:
    """1{g = B} at the places of an encoding."""
    return [fmpq(int(found == lag)) for found in encoding.lags]


def gain(encoding: LagEncoding, coordinates: range) -> fmpq:
    """How much an error of size 1 in these token coordinates can move an indicator: steps from 0 to 1 across the narrowest gap with one."""
    gaps = [b - a for (a, b), (g, h) in zip(pairwise(encoding.places), pairwise(encoding.lags), strict=True) if g != h]
    return sum((abs(encoding.direction[j]) for j in coordinates), fmpq(0)) / min(gaps) if gaps else fmpq(0)


def allowed_error(target: AdaptiveMemory, error: float) -> tuple[base.Shares, float]:
    """The shares of an error, and what every token may err by: Σ_k Lip_k e is within that of the attention, e < 1 as (L.2) asks, and
    Σ over the parents of gain · e is a part of the margin 1/2."""
    shares = base.shares(target.readout, [arb(1)] * target.readout.coordinates, target.dim, error)
    least = min(0.5, error, shares.attention / max(1.0, sum(shares.lipschitz)))
    for k in range(len(target.memories)):
        total = gain(encode(target, k), range(target.dim, (len(target.memories) + 1) * target.dim))
        if total != 0:
            least = min(least, lower(arb(1) / (2 * MARGIN_SHARE * arb(total))))
    return shares, least


def check(target: AdaptiveMemory, options: Adaptive) -> None:
    """Refuse what such a network cannot be, before anything is built."""
    if options.rpe != "table":
        raise InputError(f"{ID} is about heads with a bias per distance: rpe is table, not {options.rpe}")
    thm_4_4.check_alphabet(target, options.dtype)


def expression(rpe: str, bank: str = "minimal") -> sympy.Expr:
    """The extraction error of one memory."""
    return ERROR


def target_graph(target: AdaptiveMemory, ffn: str) -> "nx.DiGraph":
    """The proof for a target, parents first."""
    order = [k for group in target.schedule(deep=False) for k in group]
    parents = {target.names[k]: target.parents[target.names[k]] for k in order}
    return _graph(parents, {target.names[k]: target.occurring(k) for k in order}, ffn)


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """The proof for a chain: every lag is 1 or a given one, and is read off the memory before it."""
    names = [f"m{k}" for k in range(1, len(lags) + 1)]
    parents = {name: (before,) for name, before in zip(names, ["x0", *names], strict=False)}
    return _graph(parents, {name: tuple(sorted({1, lag})) for name, lag in zip(names, lags, strict=True)}, ffn)


def _graph(parents: Mapping[str, tuple[str, ...]], lags: Mapping[str, tuple[int, ...]], ffn: str) -> "nx.DiGraph":
    """A memory uses its indicators and the tokens that it may be; indicators use the memories that they read."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    lemma(graph, "biases", "softmax over N distances, b at the lag", sympy.exp(-b))
    lemma(graph, "storage", "rounded weights and taps, in ℓ¹", sympy.Symbol("sigma", nonnegative=True))
    for lag in sorted({lag for found in lags.values() for lag in found}):
        lemma(graph, base.extraction_lemma(lag), f"worst case of the token {lag} back", ERROR, ("biases", "storage"), measured=True)
    for name, above in parents.items():
        noisy = tuple(thm_4_4.extraction_lemma(parent) for parent in above if parent != "x0")
        lemma(graph, thm_4_4.lag_lemma(name), "indicators of its lag, before rounding", sympy.Rational(1, 2), noisy, measured=True)
        used = (thm_4_4.lag_lemma(name), *(base.extraction_lemma(lag) for lag in lags[name]))
        lemma(graph, thm_4_4.extraction_lemma(name), f"the token chosen for {name}, whatever its lag", ERROR, used, measured=True)
    lemma(graph, base.READ_OUT, f"{ffn} approximation of f", ff.SPLINE if ffn == "spline" else ff.BARRON, measured=True)
    budgets = [sympy.Symbol(f"Lip_{k}", nonnegative=True) * ERROR for k in range(1, len(parents) + 1)]
    used = (base.READ_OUT, *(thm_4_4.extraction_lemma(name) for name in parents))
    lemma(graph, ID, TITLE, sympy.Add(sympy.Symbol("E_FFN"), *budgets, evaluate=False), used)
    return graph


def bound(target: AdaptiveMemory, options: TableBound) -> Bound:
    """(L.1) without read-out and Lipschitz constants: at a bias, or at the least one that reaches the error."""
    if options.rpe != "table" or options.reach is not None:
        raise InputError(f"{ID} is about tables that end at the longest lag: leave rpe and reach out")
    lags, names = lags_of(target), target.names
    reach = lags[-1] + 1
    bias = options.bias or least_bias(reach, (DEFAULT_ERROR if options.error is None else options.error) / len(names))
    with working_precision(128):
        each = extraction_error(reach, arb(bias))
        total = upper(len(names) * each)
    data: dict[str, Any] = {
        "lags": list(lags),
        "rpe": options.rpe,
        "reach": reach,
        "bias": bias,
        "heads": len(lags),
        "attention": total,
        "layers": 2 * target.depth + 1,
    }
    parts = {thm_4_4.extraction_lemma(name): upper(each) for name in names}
    return Bound(ID, total, parts, len(names) * ERROR, {}, data, claim="attention error")


def designs(target: AdaptiveMemory, dtype: str) -> list[Design]:
    """One kind of heads; splines and Barron samples of the read-out."""
    return product_of(rpe=("table",), ffn=base.read_out_ways(target.readout))


def proven(target: AdaptiveMemory, options: Adaptive) -> Proven:
    """2λ + 1 layers, a head for every lag that occurs, and the widest of the read-out and what writes and reads the indicators."""
    error = DEFAULT_ERROR if options.error is None else options.error
    shares, _ = allowed_error(target, error)
    readout = shares.width(options.ffn, target.readout, error)
    writing = [max(len(encode(target, k).places), target.dim * len(target.occurring(k))) for k in range(len(target.memories))]
    widest = max(sum(writing[k] for k in group) + 1 for group in target.schedule(deep=False))
    width_for = "choices" if widest > readout else "read-out"
    return Proven(2 * target.depth + 1, len(lags_of(target)), max(widest, readout), width_for=width_for, drawn=readout)


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="adaptive",
    options=Adaptive,
    bound_options=TableBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=lambda bank, ffn: "\n".join([RAFFEL, thm_4_4.citation("minimal", ffn)]),
    check=check,
    build="constructions.theorems.positions.table_lags:build",
    verify="verify.theorems.positions.table_lags:verify",
    designs=designs,
    proven=proven,
    applies=lambda target, options: options.rpe == "table",
    cases=(
        Case(thm_4_4.NESTED, {"rpe": "table", "error": 0.05}, {"error": 0.01}),
        Case(thm_4_4.PAIR, {"rpe": "table", "dtype": "float32"}, {"bias": 9}),
    ),
    shelf=8.8,
)
