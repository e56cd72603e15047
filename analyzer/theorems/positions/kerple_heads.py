"""KERPLE's logarithmic form: heads (1 + rs)^{−p}, as many as the lag, between lin and log heads.

Setting. Tokens x_t ∈ [−1, 1]^d, target y_t = f(x_t, x_{t−T_1}, …, x_{t−T_M}), T_M the longest lag. One layer with H dp-free heads that
weigh the token s ≥ 0 steps back by k_h(s) = (1 + rs)^{−p_h} / Σ_{s≥0} (1 + rs)^{−p_h} = (s + A)^{−p_h} / ζ(p_h, A), A = 1/r, over the
infinite past, with one rate r > 0 and exponents p_h > 1.

Statement. Let H ≥ T_M and p_h = B + η(h−1), h = 1..H. With suitable weights the memory of the lag T errs by at most

    e ≤ (T+A)^B ζ(B, H+1+A) Π_{1≤j≤H, j≠T} |1 − ((j+A)/(T+A))^η|^{−1}                                                    (K.1)

which goes to 0 as B → ∞, and the network by at most E_FFN + Σ_k Lip_k(f) e_k. **T_M heads of one rate are enough for every error, and no
fewer reach an error below 1.**

Proof. Let y_s = (s+A)^{−η} and κ(s) = ((T+A)/(s+A))^B Π_{j≤H, j≠T} (y_s − y_j)/(y_T − y_j) for s ≥ 0: (s+A)^{−B} times a polynomial of
degree H−1 in y_s, so a combination of the H heads. It is 1 at T, 0 at the other s from 1 to H, and the residual weight c = −κ(0) makes it
0 at s = 0. For s > H all y_s − y_j lie between −y_j and 0, so |κ(s)| ≤ ((T+A)/(s+A))^B Π y_j/|y_T − y_j|: the sum over s is (K.1). The
first factors are Σ_{s>H} ((T+A)/(s+A))^B, every term of which falls to 0. *The read-out* adds up as in Theorem 3.1.

*Fewer do not.* (1 + rs)^{−p} = ∫_0^∞ e^{−rsx} x^{p−1} e^{−x} dx/Γ(p), so on s ≥ 1 the kernel of m heads of one rate is ∫ z^s dμ(z), z =
e^{−rx}, with a density that is e^{−x} times a generalised polynomial of m terms in x: at most m−1 sign changes (Descartes). For m ≤ T−1
that is what the lag law (`analyzer.limits.lag_law`) asks for: the error is at least 1. ∎

The rate. ((T+A)/(T+1+A))^B ≤ e^{−B/(T+1+A)}, so B = (T+1+A) L makes the first factor e^{−L}, and the residual weight holds (1 + rT)^B ≤
e^{rTB} = e^{TL (1 + r(T+1))}: the digits of the weights are 1 + r(T+1) times those of r → 0. r(T+1) ≤ 1/4 keeps that below 5/4; unless
`rate` says otherwise r is the largest power of 2 with r(T_M+1) ≤ 1/4.

Remarks. r → 0 with rp = λ fixed gives lin heads e^{−λs}. r → ∞ gives log heads s^{−p} at s ≥ 1, but almost all of the weight of a
normalised head lies at s = 0 then, and weights grow like r^p to make up for it. For lag 4 and an error of 0.01 the weights of the four
heads add up to about 2^39 (lin, `thm-3.1`), 2^47 (r = 1/32), 2^60 (log) and 2^89 (r = 1). By the monotone law no such bank beats the best
lin bank in floats; lin heads also have their nodes where weights are least, where these have a progression.

Construction. `constructions.theorems.positions.kerple_heads`: η from a grid around T + A with the least B that reaches the error, such
that the largest exponent is least; floats weigh (K.1) against the rounding of large weights, and refuse lags whose weights they cannot
hold.

References. Chi, Fan, Ramadge & Rudnicky, KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation, NeurIPS 2022; the
setting is that of Wang & E, arXiv 2402.00522, Theorem 3.1.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import sympy
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.families import DEFAULT_ERROR, KERPLE, Fixed, KerpleBound
from analyzer.lemmas import extraction as ex
from analyzer.lemmas import feedforward as ff
from analyzer.lemmas.kerple import exponents, extraction_error, law_text, progression
from analyzer.limits.lag_law import lag_law
from analyzer.numbers.exact import nearest, rational, upper, working_precision
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven, bank_work, product_of
from analyzer.statements.theorem import Case, Theorem
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems import base

if TYPE_CHECKING:
    import networkx as nx

ID = "kerple-heads"
TITLE = "KERPLE: as many heads (1+rs)^-p as the lag"
_TEXT = "|||H − TF||| ≤ E_FFN + Σ_k Lip_k e_k with T_M heads (1+rs)^{−p},  e_k → 0 as the exponents grow"
STATEMENT = {"lin": _TEXT, "log": _TEXT, "kerple": _TEXT}
"""The statement is the same whatever the relative positions are elsewhere."""
A = sympy.Symbol("A", positive=True)
LONGEST = 128
"""Heads that are built: exact weights of so many take seconds."""
CHI = """@inproceedings{chi2022kerple,
  title     = {{KERPLE}: Kernelized Relative Positional Embedding for Length Extrapolation},
  author    = {Chi, Ta-Chung and Fan, Ting-Han and Ramadge, Peter J. and Rudnicky, Alexander I.},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2022}
}
"""


def expression(rpe: str = KERPLE, bank: str = "minimal") -> sympy.Expr:
    """(K.1) for the lag T with T heads."""
    product = sympy.Product(1 / (1 - ((ex.n + A) / (ex.T + A)) ** ex.eta), (ex.n, 1, ex.T - 1))
    return (ex.T + A) ** ex.B0 * sympy.zeta(ex.B0, ex.T + 1 + A) * product


def rate_of(target: FixedMemory, rate: float | None) -> fmpq:
    """The rate asked for, or the largest power of 2 with r(T+1) ≤ 1/4."""
    return fmpq(1, 4 << target.lags[-1].bit_length()) if rate is None else rational(rate)


def check(target: FixedMemory, options: Fixed) -> None:
    """Refuse what such a layer cannot be, before anything is built."""
    if options.rpe != KERPLE:
        raise InputError(f"{ID} is about heads (1+rs)^-p: rpe is kerple, not {options.rpe}")
    if target.alphabet is not None:
        raise InputError("an alphabet is what restore resets values to between layers: set restore and a depth, or leave the alphabet out")
    longest = target.lags[-1]
    if options.heads is not None and options.heads < longest:
        raise Refusal(law_text(longest, options.heads), {"heads": longest}, {"heads": None})
    if max(options.heads or 0, longest) > LONGEST:
        ways = [{"heads": None}] if longest <= LONGEST else [{"rpe": "table", "heads": None, "rate": None}] if longest < 4096 else []
        raise Refusal(f"{LONGEST} kerple heads are the most that we build, and lag {longest} needs as many heads", *ways)
    if options.width is not None:
        ff.check_width(options.width, target.readout)


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """The proof: who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    lemma(graph, "zeros", "the kernel vanishes at every s ≤ H except the lag", sympy.Integer(0))
    budgets = []
    for k, lag in enumerate(lags, start=1):
        lemma(graph, base.extraction_lemma(lag), f"worst case of memory m{k}", expression().subs(ex.T, lag), ("zeros",), measured=True)
        budgets.append(sympy.Symbol(f"Lip_{k}", nonnegative=True) * sympy.Symbol(f"e_{k}", nonnegative=True))
    lemma(graph, base.READ_OUT, f"{ffn} approximation of f", ff.SPLINE if ffn == "spline" else ff.BARRON, measured=True)
    used = (base.READ_OUT, *(base.extraction_lemma(lag) for lag in lags))
    lemma(graph, ID, TITLE, sympy.Add(sympy.Symbol("E_FFN"), *budgets), used)
    return graph


def bound(target: FixedMemory, options: KerpleBound) -> Bound:
    """(K.1), added up over the lags, at exponents that reach the error."""
    error = DEFAULT_ERROR if options.error is None else options.error
    rate, heads = rate_of(target, options.rate), target.lags[-1]
    if heads > LONGEST:
        raise Refusal(f"exponents are solved for lags up to {LONGEST}")
    first, step = exponents(target.lags, heads, rate, lambda errors: upper(sum(errors, arb(0))) <= error)
    with working_precision(256 + 8 * heads):
        errors = [extraction_error(lag, progression(first, step, heads), rate) for lag in target.lags]
        total = upper(sum(errors, arb(0)))
    law = lag_law("log", target.lags, error)
    data: dict[str, Any] = {
        "lags": list(target.lags),
        "rpe": KERPLE,
        "kernel_rate": nearest(rate),
        "heads": heads,
        "exponents": [nearest(first), nearest(first + step * (heads - 1))],
        "attention": total,
        "lower_bound_heads": law.heads,
        "lower_bound_status": law.status,
    }
    parts = {base.extraction_lemma(lag): upper(e) for lag, e in zip(target.lags, errors, strict=True)}
    return Bound(ID, total, parts, expression(), {}, data, claim="attention error")


def designs(target: FixedMemory, dtype: str) -> list[Design]:
    """One design per read-out."""
    return product_of(rpe=(KERPLE,) if target.alphabet is None else (), ffn=base.read_out_ways(target.readout))


def proven(target: FixedMemory, options: Fixed) -> Proven:
    """One layer, as many heads as the longest lag, the width of the read-out."""
    error = DEFAULT_ERROR if options.error is None else options.error
    shares = base.shares(target.readout, target.radii(), target.dim, error)
    longest = target.lags[-1]
    return Proven(1, longest, shares.width(options.ffn, target.readout, error), work=bank_work("log", longest))


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="fixed",
    options=Fixed,
    bound_options=KerpleBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=lambda bank, ffn: "\n".join([CHI, base.citation("minimal", ffn, "the setting of Theorem 3.1")]),
    check=check,
    build="constructions.theorems.positions.kerple_heads:build",
    verify="verify.theorems.positions.kerple_heads:verify",
    designs=designs,
    proven=proven,
    applies=lambda target, options: options.rpe == KERPLE,
    cases=(
        Case({"kind": "fixed", "lags": [1, 3], "readout": "x0 + m1*m2"}, {"rpe": "kerple", "error": 0.05}, {"error": 0.01}),
        Case({"kind": "fixed", "lags": [1]}, {"rpe": "kerple", "dtype": "float32", "error": 0.05}, {"rate": 0.5}),
        Case({"kind": "fixed", "lags": [2], "dim": 2}, {"rpe": "kerple", "dtype": "float64", "rate": 0.25}, {"rate": 0.25}),
    ),
    shelf=8.8,
)
