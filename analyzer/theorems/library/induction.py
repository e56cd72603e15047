"""Induction heads: two layers copy what followed the last occurrence of the current letters, or a mean of what followed similar ones.

Setting. Sequences of at most N letters of an alphabet of A, coded as unit vectors, values v(a) = (a+1)/P in (0, 1]
(`analyzer.targets.tasks.induction`); q_t are the n−1 letters that end at t, k_s those before s. Targets: *hard*, v(x_s) at the largest s ≤
t with k_s = q_t, 0 where there is none; *soft*, Σ_{s≤t} softmax_s(⟨q_t, W k_s⟩) v(x_s) with W = wI; *general*, the same with any similarity
g(q_t, k_s). Network: one dp-free layer of lin, log or table heads, one softmax head.

Statement. Let the bank of layer 1 deliver the letters 1 … n−1 steps back to within e per coordinate.

(hard) If e < 1/4, a head with decay p that adds β for every agreeing letter, and β(n − 3/2) before the array, has

    |||H − TF||| ≤ max( D R/(1+R) + D_0 S, D_0 R_0/(1+R_0) ),                                                                    (I.1)

    R = (e^{−p} + e^{p(N−n)−β})/(1 − e^{−p}),   S = e^{−p−β/2}/(1 − e^{−p}),   R_0 = e^{−β/2}(e^{pN} − 1),

where two letters' values differ by at most D = (A−1)/P, and from 0 by D_0 = A/P ≤ 1. So p = log(1/ε) and β = 2pN + 2 log(1/ε), up to
rounding up, reach every ε: n heads in all, and weights of the order N log(1/ε). The largest part of (I.1) is attained: a … a w a … a with
n−1 letters a at the end, a and w being the first and the last letter, has the error D e^{−p} but for what N cuts off.
(soft) |||H − TF||| ≤ D tanh(δ/2) with δ = Σ|W_ij| (2e + e²) = w(n−1)A(2e + e²).                                                  (I.2)
(general) For (n−1)Ae < 1/4 the factors of g, written block by block, are exact: error 0 with r rows of W_Q and W_K, r the least rank of
g and of g − g(·, nothing), at most A^{n−1}. Where g is no rational number its table is rounded, to within η, and δ = η in (I.2).

Proof. (hard) Ramps that are constant on [−1/4, 1/4] and on [3/4, 5/4] restore the letters, so that logits are β times the number of
agreeing letters. At a match it is β(n−1), elsewhere in the array β(n−2) at most, before it β(n − 3/2). If the last match lies s* steps
back, tokens further away add e^{−p}/(1−e^{−p}) to its weight 1 at most, nearer ones, no matches, Σ_{s<s*} e^{−β+p(s*−s)}: this is (H.2) of
`analyzer.lemmas.hard_attention` with s* ≤ N − n; what lies before the array adds S. Where there is no match, the tokens before the array
win, whose value is 0: together they weigh Σ_{s>t} e^{−ps}, those of the array e^{−β/2} Σ_{s≤t} e^{−ps} at most, and the quotient grows with
t < N: R_0.
(soft) q̂ᵀWk̂ − qᵀWk = (q̂−q)ᵀWk + qᵀW(k̂−k) + (q̂−q)ᵀW(k̂−k), coordinates being at most 1, and softmaxes of logits that differ by δ are
tanh(δ/2) apart in total variation. (general) 1 − #(letters of a block that differ from a word) is 1 or at most 0, and a ramp of it is not
moved by (n−1)Ae < 1/4, since a missing letter is read off all A coordinates: it is the indicator of that word. The factors of g are the
outer weights: g = Σ_i φ_i(q) ψ_i(k) is the factorisation of a matrix, and softmax does not see what depends on q alone. ∎

Remarks. *Beside the paper.* Its bounds are O(·) in the number of heads of layer 1, with unnamed constants; with minimal banks, or a bias
per distance, n − 1 heads reach every e, and (I.2) has every constant. *Ties* do not occur: recency decides, whatever the letters.
*Conventions* are ours: every position is asked, not the last one alone; s = t is allowed, the letter after an occurrence that ends at
t − 1; and it is said what is copied where nothing has occurred. *Floats*: logits of size (n−1)β must be resolved to a share of 1, so that
a type with unit roundoff u holds N of the order 1/(u (n−1) log(1/ε)): `check_horizon` has the constants.

Construction. `constructions.theorems.library.induction`.

References. Wang, Yu, E & Wu, How Transformers Get Rich: Approximation and Dynamics Analysis, arXiv 2410.11474 (vanilla, n-gram and
generalised induction heads); Olsson et al., In-context Learning and Induction Heads, 2022, for the mechanism.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import sympy
from flint import arb, fmpq

from analyzer.errors import Refusal, finer
from analyzer.families import DEFAULT_ERROR, LEAST_ERROR, Dtype
from analyzer.lemmas.hard_attention import recency_share, share
from analyzer.numbers.exact import UNIT, upper, working_precision
from analyzer.options import Options, option
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Proven
from analyzer.statements.symbols import Quantity
from analyzer.statements.theorem import Case, Theorem
from analyzer.theorems import base

if TYPE_CHECKING:
    import networkx as nx

    from analyzer.targets.tasks.induction import InductionTarget

ID = "induction"
TITLE = "copy what followed the last occurrence of the current letters, two layers"
p, beta = Quantity("p", "what a step back costs a logit"), Quantity("beta", "what an agreeing letter adds to a logit")
N, n, A = Quantity("N", "the longest array"), Quantity("n", "letters of an n-gram"), Quantity("A", "letters of the alphabet")
D, D0 = Quantity("D", "the largest difference of two letters' values"), Quantity("D_0", "the largest value of a letter")
w = Quantity("w", "the weight of an agreeing letter, soft")
e = Quantity("e", "what layer 1 errs by")
R = (sympy.exp(-p) + sympy.exp(p * (N - n) - beta)) / (1 - sympy.exp(-p))
R0 = sympy.exp(-beta / 2) * (sympy.exp(p * N) - 1)
HARD = sympy.Max(D * R / (1 + R) + D0 * sympy.exp(-p - beta / 2) / (1 - sympy.exp(-p)), D0 * R0 / (1 + R0))
"""(I.1)."""
NOISE = w * (n - 1) * A * (2 * e + e**2)
SOFT = D * sympy.tanh(NOISE / 2)
"""(I.2)."""
_TEXT = "hard: ε with p = log(1/ε) a step back and β = 2pN + 2 log(1/ε) an agreeing letter; soft: D tanh(w(n−1)A(2e+e²)/2)"
STATEMENT = {"lin": _TEXT, "log": _TEXT, "table": _TEXT}
BIBTEX = """@article{wang2024transformers,
  title   = {How Transformers Get Rich: Approximation and Dynamics Analysis},
  author  = {Wang, Mingze and Yu, Ruoxi and E, Weinan and Wu, Lei},
  journal = {arXiv preprint arXiv:2410.11474},
  year    = {2024}
}
"""
BLOCKS, LOGITS, CHOICE, READ_OUT = "blocks", "logits", "choice", "read-out"
"""The lemmas of which a certificate shows numbers, beside those of layer 1."""
GRID = 64
"""Decays are multiples of 1/64, which every float type has."""
RESTORED = {"table": 2.0**-8, "lin": 2.0**-3, "log": 2.0**-3}
"""What all blocks together may err by where letters are restored: half of the ramps' room; tables do better for nothing."""
RESOLVED = fmpq(1, 8)
"""Floats must resolve logits to this."""


@dataclass(frozen=True)
class Induction(Options):
    """Two layers that copy what followed."""

    rpe: Literal["table", "lin", "log"] = option("table", "heads of layer 1: a bias per distance, or a bank of lin or log heads")
    error: float | None = option(None, "worst-case error, certified", least=LEAST_ERROR, most=0.25, shown="0.01")
    dtype: Dtype = option("exact", "arithmetic of the weights: exact rationals, or floats that are rounded and then certified")


@dataclass(frozen=True)
class InductionBound(Options):
    """(I.1) or (I.2) for an error, or at given constants."""

    error: float | None = option(None, "choose the constants for this error", least=LEAST_ERROR, most=0.25, shown="0.01")
    decay: float | None = option(None, "hard: recency p", above=0, most=1000)
    gap: float | None = option(None, "hard: what an agreeing letter adds to a logit, β", above=0, most=10**7)
    noise: float | None = option(None, "soft: what layer 1 errs by, e", least=0, most=0.25)


def spreads(target: "InductionTarget") -> tuple[fmpq, fmpq]:
    """(D, D_0)."""
    most = target.value(target.size - 1)
    return most - target.value(0), most


def hard_constants(target: "InductionTarget", error: float) -> tuple[fmpq, fmpq]:
    """(p, β): p ≥ log(1/ε) + 1/64 on the grid, so that e^{−p} ≤ ε e^{−1/64} leaves room for the rest of R, and β ≥ 2pN + 2 log(1/ε)."""
    with working_precision(128):
        needed = -arb(error).log()
        decay = fmpq(math.ceil(upper(needed * GRID)) + 1, GRID)
        return decay, fmpq(math.ceil(upper(2 * arb(decay) * target.length + 2 * needed)))


def match_constant(target: "InductionTarget", error: float) -> fmpq:
    """β where matches are unique: the least one on the grid with (N−1) e^{−β} ≤ ε; otherwise that of `hard_constants`."""
    if target.match == "hard":
        return hard_constants(target, error)[1]
    with working_precision(128):
        return fmpq(math.ceil(upper(GRID * (arb(target.length - 1) / arb(error)).log())), GRID)


def hard_bound(target: "InductionTarget", decay: arb, match: arb) -> arb:
    """(I.1)."""
    letters, most = (arb(d) for d in spreads(target))
    past = (-decay - match / 2).exp() / (1 - (-decay).exp())
    nothing = (-match / 2).exp() * ((decay * target.length).exp() - 1)
    return (letters * recency_share(decay, match, target.length - target.n) + most * past).max(most * share(nothing))


def logit_noise(target: "InductionTarget", noise: arb) -> arb:
    """δ of (I.2)."""
    return arb(target.sharpness) * (target.n - 1) * target.size * (2 * noise + noise**2)


def soft_bound(target: "InductionTarget", delta: arb) -> arb:
    """(I.2) for logits that are off by δ."""
    return arb(spreads(target)[0]) * (delta / 2).tanh()


def allowed_noise(target: "InductionTarget", error: float, rpe: str) -> float:
    """What all blocks together may err by: in general A times that stays in the ramps' room; in soft δ ≤ w(n−1)A·2.25e and
    D tanh(δ/2) ≤ δ/2, so that e = ε/(1.25 w(n−1)A) will do."""
    allowed = error / (1.25 * target.sharpness * (target.n - 1) * target.size)
    if target.match == "soft":
        return max(LEAST_ERROR, min(RESTORED[rpe], allowed))
    return RESTORED[rpe] / (target.size if target.match == "general" else 1)


def check_horizon(target: "InductionTarget", dtype: str, error: float) -> None:
    """Refuse floats that do not resolve the logits of hard induction: 2u(dk + 8)(n−1)β ≤ 1/8, dk = (n−1)A + 1 terms a logit."""
    if dtype == "exact" or target.match != "hard":
        return
    _, match = hard_constants(target, error)
    terms = (target.n - 1) * target.size + 9
    noise = 2 * UNIT[dtype] * terms * (target.n - 1) * match
    if noise > RESOLVED:
        longest = int(target.length * RESOLVED / noise)
        raise Refusal(
            f"{dtype} cannot resolve logits of {int((target.n - 1) * match)} to 1/8, which {target.length} tokens need at this error: "
            f"2u·{terms}·(n-1)β = {float(arb(noise)):.2g}; about {longest} tokens would do",
            *finer(dtype),
        )


def expression(rpe: str, bank: str) -> sympy.Expr:
    """(I.1)."""
    return HARD


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """Who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    for lag in lags:
        lemma(graph, base.extraction_lemma(lag), f"the letter {lag} steps back", e, source="Theorem 3.1", measured=True)
    lemma(graph, BLOCKS, "what is compared, after layer 1", e, tuple(base.extraction_lemma(lag) for lag in lags), measured=True)
    lemma(graph, LOGITS, "logits against what they should be, up to a constant of the question", NOISE, (BLOCKS,), measured=True)
    lemma(graph, CHOICE, "the mean against what should be copied", HARD, (LOGITS,), "hard-attention", measured=True)
    lemma(graph, READ_OUT, "copied values", sympy.Integer(0), measured=True)
    lemma(graph, ID, TITLE, HARD, (CHOICE, READ_OUT), "Wang, Yu, E & Wu")
    return graph


def bound(target: "InductionTarget", options: InductionBound) -> Bound:
    """(I.1) or (I.2), at given constants or at those that a build takes for the error."""
    error = DEFAULT_ERROR if options.error is None else options.error
    data: dict[str, object] = {"layers": 2, "heads": target.n - 1, "letters": target.size, "n": target.n, "length": target.length}
    with working_precision(256):
        if target.match == "hard":
            decay, match = hard_constants(target, error)
            used, gap = (arb(found if asked is None else asked) for asked, found in ((options.decay, decay), (options.gap, match)))
            total, formula = hard_bound(target, used, gap), HARD
            data |= {"decay": float(used), "gap": float(gap)}
        elif target.match == "soft":
            noise = arb(allowed_noise(target, error, "table") if options.noise is None else options.noise)
            total, formula = soft_bound(target, logit_noise(target, noise)), SOFT
            data |= {"noise": float(noise)}
        else:
            total, formula = soft_bound(target, target.table[1]), sympy.Integer(0)
    data["worst_case"] = upper(total)
    return Bound(ID, upper(total), {CHOICE: upper(total)}, formula, {}, data, claim="worst-case error in exact arithmetic")


def proven(target: "InductionTarget", options: Induction) -> Proven:
    """Two layers; n − 1 heads in the first; neurons that restore letters, or write the factors of every block."""
    blocks = 2 * (len(target.questions()) + len(target.blocks()))
    restored = 2 * (target.n - 1) * target.size
    width = {"soft": 2, "general": blocks, "hard": restored + 2, "copy": restored}[target.match]
    return Proven(2, target.n - 1, width, width_for="restoring")


_SMALL = {"kind": "induction", "letters": 3, "n": 3, "length": 16}

THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="induction",
    options=Induction,
    bound_options=InductionBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=lambda bank, ffn: "\n".join([BIBTEX, base.citation("minimal", ffn, "the banks of layer 1")]),
    build="constructions.theorems.library.induction:build",
    verify="verify.theorems.library.induction:verify",
    proven=proven,
    cases=(
        Case(_SMALL, {"error": 1e-3}, {"error": 1e-3}),
        Case({**_SMALL, "match": "soft"}, {"rpe": "lin", "dtype": "float64"}, {"noise": 1e-4}),
    ),
    shelf=11,
)
