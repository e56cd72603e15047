"""A learnt bias per distance: one head per lag, however long the lag is, in every arithmetic.

Setting. Tokens x_t ∈ [−1, 1]^d, target y_t = f(x_t, x_{t−T_1}, …, x_{t−T_M}). One layer with dp-free heads that have a bias b_h(s) for
every distance s < N (`table`) and see no others: k_h(s) = e^{b_h(s)} / Σ_{s'<N} e^{b_h(s')}. T5 shares biases: they are constant on its
buckets of distances (`t5`).

Statement. Let T_M < N, and let b > 0. M heads, one per lag, deliver every memory with the error

    e = (N−2) e^{−b}                                                                                                     (T.1)

and the network errs by at most E_FFN + Σ_k Lip_k(f) e. So b = ⌈ln((N−2)/e)⌉ is enough for e: heads do not depend on the lags, and weights
hardly on the error. T5's biases do the same for lags that have a bucket to themselves; for the others no number of heads helps (bucket
law). No single head of this kind does better than (N−2) e^{−b} with biases that differ by b at most.

Proof. The head of lag T has b(T) = b and b(s) = 0 elsewhere, so that k(T) = p = e^b/(e^b + N−1) and k(s) = e^{−b} p for s ≠ T. With the
value weight a = 1/p = 1 + (N−1) e^{−b} and the residual weight c = −e^{−b} the kernel κ(s) = c·1{s=0} + a k(s) is 1 at T, 0 at s = 0 and
e^{−b} at the N−2 other distances: ‖κ − 1_T‖₁ is (T.1), and x_{t−s} = sign(κ(s) − 1_T(s)) attains it. *No better.* With biases that differ
by b at most, k(s) ≥ e^{−b} k(T) for every s < N. The residual can repair s = 0 alone, so the error of weights a, c is at least |1 − a k(T)|
+ (N−2) e^{−b} |a| k(T) ≥ min(1, (N−2) e^{−b}), as |1 − v| + r|v| ≥ min(1, r). *The read-out* adds up as in Theorem 3.1. ∎

Remarks. The lag law asks for T heads of one type e^{−ps} or s^{−p}, and the π-law for 4.5 bits per step: both are about heads with one
slope. A bias per distance has neither price; it has N numbers per head instead of one, and sees no farther than N. Storing a and c in
floats costs u(3|a| + |c|), the sum over N distances about N u: float32 holds every lag below 512.

Construction. `constructions.theorems.positions.table_heads`: the stream and the read-out of Theorem 3.1, b a whole number, which every
type holds. N is one more than the longest lag unless `reach` says more; T5 has 32 buckets up to the distance 128, and N = 128.

References. Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, JMLR 21 (2020); the setting is
that of Wang & E, arXiv 2402.00522, Theorem 3.1.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sympy
from flint import arb

from analyzer.errors import InputError, Refusal
from analyzer.families import DEFAULT_ERROR, TABLES, Fixed, TableBound
from analyzer.lemmas import feedforward as ff
from analyzer.limits.bucket_law import Buckets
from analyzer.numbers.exact import upper, working_precision
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven, product_of
from analyzer.statements.theorem import Case, Theorem
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems import base

if TYPE_CHECKING:
    import networkx as nx

ID = "table-heads"
TITLE = "a learnt bias per distance: one head per lag"
_TEXT = "|||H − TF||| ≤ E_FFN + Σ_k Lip_k e with M heads,  e = (N−2) e^{−b}  for biases b at the lag and 0 at the other distances below N"
STATEMENT = {"lin": _TEXT, "log": _TEXT, "table": _TEXT}
"""Biases are learnt: the statement is the same whatever the relative positions are elsewhere."""
N, b = sympy.symbols("N b", positive=True)
ERROR = (N - 2) * sympy.exp(-b)
"""(T.1)."""
T5 = Buckets()
LONGEST = {"exact": 4096, "float64": 512, "float32": 512}
"""Distances of a table: exact weights of so many take seconds; floats run longer ones by FFT, whose rounding is not certified."""
RAFFEL = """@article{raffel2020exploring,
  title   = {Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer},
  author  = {Raffel, Colin and Shazeer, Noam and Roberts, Adam and Lee, Katherine and Narang, Sharan and Matena, Michael and others},
  journal = {Journal of Machine Learning Research},
  volume  = {21},
  year    = {2020}
}
"""


def reach_of(target: FixedMemory, options: Fixed | TableBound) -> int:
    """N: what is asked for, or the fewest distances; T5's buckets end at theirs."""
    return options.reach or (T5.distance if options.rpe == "t5" else target.lags[-1] + 1)


def least_bias(reach: int, error: float) -> int:
    """The least whole b ≥ 1 with (N−2) e^{−b} ≤ e."""
    with working_precision(128):
        return 1 if reach == 2 else max(1, math.ceil(upper((arb(reach - 2) / arb(error)).log())))


def extraction_error(reach: int, bias: arb) -> arb:
    """(T.1)."""
    return (reach - 2) * (-bias).exp()


def check_reach(target: FixedMemory, options: Fixed | TableBound) -> None:
    """Refuse lags that are not seen, or that share a bucket."""
    reach, farthest = reach_of(target, options), target.lags[-1]
    if reach <= farthest:
        raise Refusal(f"reach is {reach}: lag {farthest} is not seen, heads see distances below their reach", {"reach": farthest + 1})
    if options.rpe == "t5":
        for lag in target.lags:
            partner = T5.partner(lag, reach)
            if partner is not None:
                raise Refusal(
                    f"lag {lag} shares its bucket of biases with {partner}: by the bucket law no number of heads tells them apart",
                    {"rpe": "table"},
                )


def check(target: FixedMemory, options: Fixed) -> None:
    """Refuse what such a layer cannot be, before anything is built."""
    if options.rpe not in TABLES:
        raise InputError(f"{ID} is about heads with a bias per distance: rpe is table or t5, not {options.rpe}")
    if target.alphabet is not None:
        raise InputError("an alphabet is what restore resets values to between layers: set restore and a depth, or leave the alphabet out")
    check_reach(target, options)
    if reach_of(target, options) > LONGEST[options.dtype]:
        exact = {"dtype": "exact"} if target.lags[-1] < LONGEST["exact"] and options.dtype != "exact" else None
        reason = f"tables of at most {LONGEST[options.dtype]} distances are built in {options.dtype}"
        raise Refusal(reason, *([exact] if exact else []))
    if options.heads not in (None, len(target.lags)):
        raise Refusal(f"one head serves one lag: there are {len(target.lags)}, heads says {options.heads}", {"heads": None})
    if options.width is not None:
        ff.check_width(options.width, target.readout)


def shared_error(target: FixedMemory, error: float) -> tuple[base.Shares, float]:
    """The shares of an error, and what every memory may err by: Σ_k Lip_k e is within that of the attention."""
    shares = base.shares(target.readout, target.radii(), target.dim, error)
    return shares, min(1.0, error, shares.attention / max(1.0, sum(shares.lipschitz)))


def expression(rpe: str, bank: str = "minimal") -> sympy.Expr:
    """The extraction error of one memory."""
    return ERROR


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """The proof: who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    lemma(graph, "biases", "softmax over N distances, b at the lag", sympy.exp(-b))
    lemma(graph, "storage", "rounded weights and taps, in ℓ¹", sympy.Symbol("sigma", nonnegative=True))
    for k, lag in enumerate(lags, start=1):
        lemma(graph, base.extraction_lemma(lag), f"worst case of memory m{k}", ERROR, ("biases", "storage"), measured=True)
    lemma(graph, base.READ_OUT, f"{ffn} approximation of f", ff.SPLINE if ffn == "spline" else ff.BARRON, measured=True)
    budgets = [sympy.Symbol(f"Lip_{k}", nonnegative=True) * ERROR for k in range(1, len(lags) + 1)]
    used = (base.READ_OUT, *(base.extraction_lemma(lag) for lag in lags))
    lemma(graph, ID, TITLE, sympy.Add(sympy.Symbol("E_FFN"), *budgets, evaluate=False), used)
    return graph


def bound(target: FixedMemory, options: TableBound) -> Bound:
    """(T.1), added up over the lags: at a bias, or at the least one that reaches the error."""
    check_reach(target, options)
    reach, count = reach_of(target, options), len(target.lags)
    bias = options.bias or least_bias(reach, (DEFAULT_ERROR if options.error is None else options.error) / count)
    with working_precision(128):
        each = extraction_error(reach, arb(bias))
        total = upper(count * each)
    data: dict[str, Any] = {
        "lags": list(target.lags),
        "rpe": options.rpe,
        "reach": reach,
        "bias": bias,
        "heads": count,
        "attention": total,
        "layers": 1,
    }
    parts = {base.extraction_lemma(lag): upper(each) for lag in target.lags}
    return Bound(ID, total, parts, count * ERROR, {}, data, claim="attention error")


def designs(target: FixedMemory, dtype: str) -> list[Design]:
    """A bias per distance, and T5's where every lag has a bucket to itself."""
    alone = all(T5.partner(lag, T5.distance) is None for lag in target.lags) and target.lags[-1] < T5.distance
    kinds = TABLES if alone else TABLES[:1]
    return product_of(rpe=kinds if target.alphabet is None else (), ffn=base.read_out_ways(target.readout))


def proven(target: FixedMemory, options: Fixed) -> Proven:
    """One layer, one head per lag, the width of the read-out."""
    error = DEFAULT_ERROR if options.error is None else options.error
    shares, _ = shared_error(target, error)
    return Proven(1, len(target.lags), shares.width(options.ffn, target.readout, error))


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="fixed",
    options=Fixed,
    bound_options=TableBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=lambda bank, ffn: "\n".join([RAFFEL, base.citation("minimal", ffn, "the setting of Theorem 3.1")]),
    check=check,
    build="constructions.theorems.positions.table_heads:build",
    verify="verify.theorems.positions.table_heads:verify",
    designs=designs,
    proven=proven,
    applies=lambda target, options: options.rpe in TABLES,
    cases=(
        Case({"kind": "fixed", "lags": [2, 40], "readout": "x0 + m1*m2"}, {"rpe": "table", "error": 0.05}, {"error": 0.01}),
        Case({"kind": "fixed", "lags": [200]}, {"rpe": "table", "dtype": "float32"}, {"bias": 12}),
        Case({"kind": "fixed", "lags": [3, 12], "dim": 2}, {"rpe": "t5", "dtype": "float64"}, {"rpe": "t5"}),
    ),
    shelf=8.7,
)
