"""Theorem 3.1 of Wang & E: one dp-free layer represents fixed, sparse memories.

Setting. Tokens x_t ∈ [−1, 1]^d, target y_t = f(x_t, x_{t−T_1}, …, x_{t−T_M}) with 1 ≤ T_1 < … < T_M; one layer with H dp-free heads
(scores p_h φ(s), φ = −s or −log s) and a feed-forward read-out of width m.

Statement. For every n ≥ 1 there is such a network with |||H − TF||| ≤ E_FFN + Σ_k Lip_k(f) e_k, where E_FFN = O(‖f‖_Barron/√m) and

    lin   Σ_k e_k ≤ C(n)/Hⁿ (Σ_k e^{0.01 T_k})^{n+1},      log   Σ_k e_k ≤ C(n)/Hⁿ (Σ_k T_k^{1.01})^{n+1}.

Constants. e_k is (3.1) or (3.2) in `analyzer.lemmas.extraction`, with H_k heads for lag k; E_FFN is in `analyzer.lemmas.feedforward`. With
the free parameters tuned the factor e^{0.01T} becomes (1+1/T)^T (T+1) < e(T+1); with the `minimal` bank T_M heads reach every e > 0, and by
the lag law (`analyzer.limits.lag_law`) no fewer heads of one type reach an error below 1 for the last memory. A layer with heads of both
types (`mixed`) reaches every e > 0 for one lag T with ⌊T/2⌋ + 1 heads, one log and ⌊T/2⌋ lin ones, by Gauss quadrature ((3.8) in
`analyzer.lemmas.quadrature`), and by the same law no fewer do.

Proof. *One memory.* A bank delivers Σ_s κ(s) x_{t−s} with κ(s) = c·1{s=0} + Σ_h a_h k_h(s). Over tokens in [−1, 1] its distance from
x_{t−T} is at most e = ‖κ − 1_T‖₁, and x_{t−s} = sign(κ(s) − 1_T(s)) attains it.

*The bump.* Let μ = e^{−αT} (lin) or T^{−α} (log), σ the distance to the next such point, e^{−α(T+1)} or (T+1)^{−α}, and Ψ_T(x) = h Ψ((x −
μ)/σ) with Ψ(u) = exp(−1/(1−u²)) on (−1, 1) and h = e^{1+γT} or e T^{1+γ}. The points of other lags are at least σ away from μ, as gaps
shrink, so e^{−γs} Ψ_T(e^{−αs}), or s^{−1−γ} Ψ_T(s^{−α}), is 1{s=T} at the integers. Its interpolant Q of degree H−1 in Chebyshev points of
[0, 1] turns it into a kernel κ of H heads with decays γ + αk, or 1 + γ + αk, k < H, and ‖κ − 1_T‖₁ ≤ sup|Q − Ψ_T| Σ_s e^{−γs}, or Σ_{s≥1}
s^{−1−γ} = ζ(1+γ). Taken to [−1, 1] the n-th derivative of Ψ_T has variation V = B_n h/(2σ)^n, and sup|Q − Ψ_T| ≤ 4V/(πn(H−1−n)^n): (3.1)
and (3.2).

*The rate.* With α = γ = 0.01 and w_k = e^{0.01 T_k} (log: T_k^{1.01}), (3.1) and (3.2) are e_k ≤ C w_k^{n+1}/H_kⁿ; H_k = H w_k/Σ_j w_j
heads for lag k give e_k ≤ C w_k (Σ_j w_j)ⁿ/Hⁿ, whose sum is the statement.

*The read-out.* F being the feed-forward network, |F(û) − f(u)| ≤ |F(û) − f(û)| + |f(û) − f(u)| ≤ E_FFN + Σ_k Lip_k e_k on a box that holds
u and û. ∎

In mean square. Over independent tokens of mean 0 and variance v, ‖·‖₂ ≤ ‖·‖₁ turns every e_k into E|m̂_k − m_k|² ≤ v e_k², and for the
bumps' banks (3.11) in `analyzer.lemmas.extraction` is sharper by ‖w‖₂²/‖w‖₁² of the slowest head w.

Construction. `constructions.theorems.thm_3_1`: x_t in block 0 of the residual stream, head h of block k has decay p_h, W_V = (block 0 →
block k), W_O = a_h; the feed-forward network approximates f on the box of the memories actually delivered.

Repaired. The paper's read-out domain [−2, 2]^D needs e_k ≤ 1, which it does not state: we use the box of the certified memories. Head
splits are rounded to whole numbers, each ≥ n + 2.

References. Wang & E, arXiv 2402.00522 (NeurIPS 2024), Theorem 3.1, Lemmas F.1, F.4; Trefethen, Approximation Theory and Approximation
Practice, Theorem 7.2; E, Ma & Wu, The Barron space and the flow-induced function spaces.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import sympy
from flint import arb

from analyzer.errors import InputError, OptionValue, Refusal, Remedy
from analyzer.families import DEFAULT_ERROR, KERPLE, LEAST_ERROR, MAX_HEADS, TABLES, Fixed, FixedBound
from analyzer.lemmas import extraction as ex
from analyzer.lemmas import feedforward as ff
from analyzer.lemmas.bump import variation
from analyzer.lemmas.quadrature import LONGEST
from analyzer.limits.lag_law import lag_law
from analyzer.limits.pi_law import best_pi_bound
from analyzer.numbers.exact import UNIT, lower, nearest, upper
from analyzer.ranges import check_range
from analyzer.statements.bounds import Bound, Choices
from analyzer.statements.designs import Design, Proven, bank_work, interpolation_work, product_of
from analyzer.statements.theorem import Case, Theorem
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.tokens import TOKEN_LAWS
from analyzer.theorems import base

if TYPE_CHECKING:
    import networkx as nx

ID = "thm-3.1"
BANKS = ("paper", "tuned", "minimal")
LAYER_BANKS = (*BANKS, "balanced")
"""Banks of one layer for fixed lags; `balanced` ones are fitted to a float type (`constructions.banks.balanced`)."""
MAX_BALANCED = 40
"""Heads of a balanced bank of one layer: float64 resolves 11 tokens back, with 2T + 6 heads at most."""
MAX_CHAINED = 256
"""Lags for which a chain of shifts is proposed: float64 carries them to an error of 0.01 or less."""
SHIFT = 128
"""Tokens that a layer shifts by where lags need more layers than one: exact banks of so many heads are quick to build."""
MAX_SHIFTS = 64
"""Such layers that are proposed."""
TITLE = "fixed sparse memories, one dp-free layer"
STATEMENT = {
    "lin": "|||H − TF||| ≤ E_FFN + Σ_k Lip_k e_k,  Σ_k e_k ≤ C(n)/H^n (Σ_k e^{0.01 T_k})^{n+1}  for every n ≥ 1",
    "log": "|||H − TF||| ≤ E_FFN + Σ_k Lip_k e_k,  Σ_k e_k ≤ C(n)/H^n (Σ_k T_k^{1.01})^{n+1}  for every n ≥ 1",
}


def check_layer(target: FixedMemory, rpe: ex.LayerRpe, bank: str, heads: int | None, dtype: str, error: float | None) -> None:
    """Refuse combinations of heads, bank and type that one layer does not come in."""
    if target.alphabet is not None:
        raise InputError("an alphabet is what restore resets values to between layers: set restore and a depth, or leave the alphabet out")
    if bank == "balanced" and (dtype == "exact" or rpe == "mixed"):
        raise InputError("bank is 'balanced', which is fitted to a float type: give dtype float32 or float64, and rpe lin or log")
    if bank == "balanced" and (heads or target.lags[-1]) > MAX_BALANCED:
        fewer: list[Remedy] = [{"heads": None}] if target.lags[-1] <= MAX_BALANCED else []
        reason = f"balanced banks of one layer have at most {MAX_BALANCED} heads: no type resolves more than a dozen tokens"
        raise Refusal(reason, *fewer, *deeper(target, rpe, bank, heads), *exactly(target, bank))
    if bank == "balanced" and rpe == "lin" and not target.readout.ridges:
        least = max(lower(best_pi_bound(lag, UNIT[dtype])[0]) * abs_weight for lag, abs_weight in _weights(target))
        if least > (DEFAULT_ERROR if error is None else error) and heads is None:
            raise Refusal(
                f"no lin heads hold lag {target.lags[-1]} in {dtype} to this error: by the π-law error and price of rounding are "
                f"{least:.3g} at least together",
                *deeper(target, rpe, bank, heads),
                *exactly(target, bank),
            )
    if rpe == "mixed":
        _check_mixed(target, bank, heads, dtype)


def _check_mixed(target: FixedMemory, bank: str, heads: int | None, dtype: str) -> None:
    """Both types in one layer: the minimal bank of one lag, in exact arithmetic."""
    lag = target.lags[-1]
    minimal: dict[str, OptionValue] = {} if bank == "minimal" else {"bank": "minimal"}
    minimal |= ({} if heads is None else {"heads": None}) | ({} if dtype == "exact" else {"dtype": "exact"})
    if len(target.lags) > 1 or lag > LONGEST:
        reason = f"rpe is 'mixed', which delivers one lag up to {LONGEST}"
        one_type: list[Remedy] = [{"rpe": rpe, **minimal} for rpe in ("lin", "log") if lag <= MAX_HEADS]
        raise Refusal(reason, *one_type)
    if bank != "minimal" or heads is not None:
        raise Refusal(f"rpe is 'mixed', which is a minimal bank: it has {lag // 2 + 1} heads for lag {lag}, whatever the error", minimal)
    if dtype != "exact":
        raise Refusal(
            f"rpe is 'mixed', which is built in exact arithmetic only: the weights of its {lag // 2 + 1} heads keep as many zeros, the "
            f"others before lag {lag} rest on all digits of the decays",
            {"dtype": "exact"},
            *deeper(target, "mixed", bank, heads),
        )


def deeper(target: FixedMemory, rpe: ex.LayerRpe, bank: str, heads: int | None, share: bool = False) -> list[Remedy]:
    """A chain of shifts instead of one layer: its heads are lin, their banks minimal or balanced, and it chooses how many it has."""
    if target.lags[-1] > MAX_CHAINED:
        return []
    changes: dict[str, OptionValue] = {"depth": "auto"}
    changes |= {} if rpe == "lin" else {"rpe": "lin"}
    changes |= {"bank": "minimal"} if bank in ("paper", "tuned") else {}
    return [changes | ({} if heads is None else {"heads": None}) | ({"share": False} if share else {})]


def exactly(target: FixedMemory, bank: str) -> list[Remedy]:
    """Exact arithmetic, where a minimal bank reaches every error in one layer (and in a few, if the lag is long)."""
    lag = target.lags[-1]
    if lag > MAX_HEADS:
        return []
    return [{"dtype": "exact"} | ({"bank": "minimal", "heads": None} if bank == "balanced" else {})]


def _weights(target: FixedMemory) -> list[tuple[int, float]]:
    """(lag, the largest weight of its memory in an affine read-out)."""
    affine = target.readout.affine
    return [(lag, max(abs(nearest(affine[j])) for j in target.readout.slot(k))) for k, lag in enumerate(target.lags, start=1)]


def check_sizes(target: FixedMemory, rpe: ex.LayerRpe, bank: str, heads: int | None, error: float | None, width: int | None) -> None:
    """Refuse sizes that cannot work, before anything is built."""
    if error is not None:
        check_range("error", error, LEAST_ERROR, below=math.inf)
    if heads is not None and heads < 1:
        check_range("heads", heads, 1, MAX_HEADS)
    if bank in ("minimal", "balanced") and heads is not None and heads < target.lags[-1]:
        raise Refusal(ex.lag_law_text(target.lags[-1], heads, rpe), {"heads": target.lags[-1]}, {"heads": None})
    needed = max(heads or 0, target.lags[-1] if bank == "minimal" else 0)
    if needed > MAX_HEADS:
        chain = -(-target.lags[-1] // SHIFT)
        ways: list[Remedy] = [{"heads": None}] if target.lags[-1] <= MAX_HEADS else []
        ways += (
            [{"depth": chain, "rpe": "lin", "bank": "minimal", "heads": None, "dtype": "exact"}] if not ways and chain <= MAX_SHIFTS else []
        )
        raise Refusal(f"{needed} heads are too many: {MAX_HEADS} is the most that we build", *ways)
    if width is not None:
        ff.check_width(width, target.readout)


def proof_graph(rpe: ex.Rpe, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """The proof: who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    estimate = ex.minimal_expression(rpe) if bank == "minimal" else ex.EXTRACTION[rpe]
    below = base.extraction_lemmas(graph, rpe, bank, "the kernel vanishes at every s ≤ H except the lag")
    budgets = []
    for k, lag in enumerate(lags, start=1):
        budget = estimate.subs({ex.T: lag, ex.H: sympy.Symbol(f"H_{k}", positive=True)})
        lemma(graph, base.extraction_lemma(lag), f"worst case of memory m{k}", budget, below, measured=True)
        budgets.append(sympy.Symbol(f"Lip_{k}", nonnegative=True) * sympy.Symbol(f"e_{k}", nonnegative=True))
    lemma(graph, base.READ_OUT, f"{ffn} approximation of f", ff.SPLINE if ffn == "spline" else ff.BARRON, measured=True)
    used = (base.READ_OUT, *(base.extraction_lemma(lag) for lag in lags))
    lemma(graph, ID, TITLE, sympy.Add(sympy.Symbol("E_FFN"), *budgets), used, "Wang & E, Theorem 3.1")
    return graph


def bound(target: FixedMemory, options: FixedBound) -> Bound:
    """Σ_k of (3.1) or (3.2) at the given heads, or at the fewest that reach the error; or the width of the read-out."""
    if options.norm == "mean-square":
        return _mean_square_bound(target, options)
    if options.solve == "width":
        return base.width_bound(ID, target, options.ffn, options.error, {"lags": list(target.lags)})
    rate = None if options.rate == "best" else options.rate
    rpe, lags, error = options.rpe, target.lags, options.error
    if options.heads is None:
        assert error is not None  # checked when the options were made
        found = ex.solve_heads(rpe, lags, error, options.bank, rate, options.share)
    else:
        found = ex.attention_bound(rpe, lags, options.heads, options.bank, rate, options.share)
    law = lag_law(rpe, lags, error if error is not None else 0.0)
    alphas, gammas = ([nearest(getattr(t, name)) for t in found.tunings] for name in ("alpha", "gamma"))
    single = len(set(zip(alphas, gammas, strict=True))) == 1
    data: dict[str, Any] = {
        "lags": list(lags),
        "rpe": rpe,
        "tuning": options.bank,
        "attention": upper(found.total),
        "heads": found.total_heads,
        "rate": found.rate,
        "alpha": alphas[0] if single else alphas,
        "gamma": gammas[0] if single else gammas,
        "variation": upper(variation(found.rate)),
        "split": list(found.heads),
        "shared": options.share,
        "lower_bound_heads": law.heads,
        "lower_bound_status": law.status,
    }
    hand = ex.hand_tuning(rpe, lags[0])
    if options.bank == "tuned" and len(lags) == 1 and hand is not None:
        value = ex.extraction_bound(rpe, lags[0], found.total_heads, found.rate, hand)
        data["closed_form"] = {"alpha": nearest(hand.alpha), "gamma": nearest(hand.gamma), "attention": upper(value)}
    parts = {base.extraction_lemma(lag): upper(e) for lag, e in zip(lags, found.errors, strict=True)}
    constants = base.PAPER if options.bank == "paper" else {}
    return Bound(ID, upper(found.total), parts, base.attention_expression(rpe, lags), constants, data, claim="attention error")


def _mean_square_bound(target: FixedMemory, options: FixedBound) -> Bound:
    """(3.11) for the sum of the memories, at the parameters of the worst case."""
    rpe, tokens = options.rpe, options.tokens or "uniform"
    rate = None if options.rate == "best" else options.rate

    def at(heads: int) -> ex.AttentionBound:
        return ex.attention_bound(rpe, target.lags, heads, options.bank, rate, options.share)

    def total(heads: int) -> arb:
        found = at(heads)
        return base.mean_square_total(rpe, found.errors, [t.gamma for t in found.tunings], TOKEN_LAWS[tokens].variance)

    heads = options.heads or base.fewest_heads(total, options.error or DEFAULT_ERROR)
    found = at(heads)
    worst = bound(target, replace(options, norm="sup", tokens=None, heads=heads, error=None, solve=None))
    terms = base.per_lag(ex.EXTRACTION[rpe] * sympy.sqrt(ex.MEAN_SQUARE_SHARE[rpe]), target.lags)
    return base.in_mean_square(worst, rpe, found.errors, [t.gamma for t in found.tunings], tokens, terms)


def choices(target: FixedMemory, rpe: ex.Rpe, heads: int | None, error: float | None) -> Choices:
    """The heads that each choice of constants needs for an error, or the error it promises at given heads, and the lag law."""
    error = DEFAULT_ERROR if heads is None and error is None else error
    rows = []
    for bank in ("paper", "tuned"):
        found = bound(target, FixedBound(rpe=rpe, bank=bank, heads=heads, error=error))
        rows.append({"bank": bank, "heads": found.heads, "error": found.total, "rate": found.data["rate"]})
    least = target.lags[-1]
    enough = heads is None or heads >= least
    rows.append({"bank": "minimal", "heads": least, "error": (0.0 if error is None else error) if enough else None, "rate": None})
    law = lag_law(rpe, target.lags, error if error is not None else 0.0)
    rows.append({"bank": "lag law", "heads": law.heads, "error": 1.0 if heads is not None and heads < law.heads else None, "rate": None})
    return Choices(ID, tuple(rows), error)


def check(target: FixedMemory, options: Fixed) -> None:
    """Refuse what one layer cannot be, before anything is built."""
    check_layer(target, options.sloped, options.bank, options.heads, options.dtype, options.error)
    check_sizes(target, options.sloped, options.bank, options.heads, options.error, options.width)


def designs(target: FixedMemory, dtype: str) -> list[Design]:
    """Heads of either type with every bank that they come in, and of both types for one lag; balanced banks are those of floats."""
    banks = (*BANKS, *(("balanced",) if dtype != "exact" else ()))
    found = product_of(rpe=("lin", "log"), bank=banks, ffn=base.read_out_ways(target.readout))
    mixed = dtype == "exact" and len(target.lags) == 1 and target.lags[0] <= LONGEST
    return [*found, *product_of(rpe=("mixed",), bank=("minimal",), ffn=base.read_out_ways(target.readout) if mixed else ())]


def proven(target: FixedMemory, options: Fixed) -> Proven:
    """One layer; heads by (3.1) or (3.2) for the share of the attention, T_M of them in a minimal bank, ⌊T/2⌋ + 1 of both types; the width
    of the read-out. A balanced bank is fitted to a float type: there is no bound to solve."""
    error = DEFAULT_ERROR if options.error is None else options.error
    shares = base.shares(target.readout, target.radii(), target.dim, error)
    rpe, longest = options.sloped, target.lags[-1]
    width = shares.width(options.ffn, target.readout, error)
    if options.bank == "balanced":
        return Proven(1, None, width, base.BALANCED)
    if rpe == "mixed":
        return Proven(1, longest // 2 + 1, width, work=bank_work("log", longest))
    if options.bank == "minimal":
        return Proven(1, longest, width, work=bank_work(rpe, longest))
    found = ex.solve_heads(rpe, target.lags, min(1.0, error, shares.attention / shares.steepest), options.bank, None, options.share)
    return Proven(1, found.total_heads, width, work=interpolation_work(rpe, found.total_heads))


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="fixed",
    options=Fixed,
    bound_options=FixedBound,
    bound=bound,
    formulas=STATEMENT,
    expression=base.expression,
    lemmas=proof_graph,
    citation=base.citation,
    check=check,
    build="constructions.theorems.thm_3_1:build",
    verify="verify.theorems.thm_3_1:verify",
    designs=designs,
    proven=proven,
    applies=lambda target, options: (
        options.depth is None and options.norm == "sup" and options.rpe not in (*TABLES, KERPLE) and options.stride == 1
    ),
    cases=(
        Case({"kind": "fixed", "lags": [2, 4], "readout": "x0 + m1*m2"}, {"error": 0.05}, {"heads": 64}),
        Case({"kind": "fixed", "lags": [2]}, {"dtype": "float32", "error": 0.1}, {"error": 0.1, "bank": "paper"}),
        Case({"kind": "fixed", "lags": [4]}, {"rpe": "mixed", "error": 1e-6}),
    ),
    shelf=1,
)
