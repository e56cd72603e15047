"""Parity at every length: a mean, a comparison of positions with the count, and two heads that prefer even and odd positions.

Setting. A begin token 0 at position 0 of the array and bits x_1, …, x_n ∈ {0, 1} after it: N = n + 1 tokens at the positions 0, …, n, for
every n from 1 to L. Let k = Σ_i x_i be the number of ones; y = 1 if k is even and −1 if it is odd, at every position. Network: a table of
positions with the rows (i, (−1)^i, 1{i = 0}), one layer of linear attention and one of softmax, windows over all tokens. u is the unit
roundoff of the weights' type, 2^p = 1/u, and 0 in exact arithmetic.

Statement. Write n_e = ⌈N/2⌉ and n_o = ⌊N/2⌋ for the even and odd positions, logits ±c(−1)^i and ε = e^{−2c}. The two heads differ by

    d = (n_o/N)(1−ε²)/((n_e+n_oε)(n_o+n_eε)) for even k,     −(n_e/N)(1−ε²)/((n_e+n_oε)(n_o+n_eε)) for odd k,                (P.1)

    |d| ≥ (1−ε)/(1+2ε) · 1/(N⌈N/2⌉):                                                                                         (P.2)

the sign is right at every length, with a margin of about 2/N². Plateaus turn it into y, with weights of the order L²:

    `clipped`, four layers: the output is y exactly, all roundings included, for N ≤ 2^p/6 or so (`horizon`);
    `paper`, two layers:    |output − y| ≤ u (5Q/2 + 12), Q = 2g the changes of slope of its one ramp, about L² to 2L².         (P.3)

So at an error e two layers hold L² of the order e/u, four layers L of the order 1/u, and no network that counts in the type can go far
beyond that: the sum of 2^p + 1 ones, in whatever order, is an even number of the type.

Proof. *Difference.* Linear attention is a mean of ⟨q_t, k_s⟩ v_s. Query (i, 1), key (−1{s = 0}, x_s) and value 1 give (k − i)/N, query 1,
key 1{s = 0} and value 1 give 1/N. *Indicator.* relu(m−1) − 2relu(m) + relu(m+1) = 1{m = 0} for whole m, and so is relu(1 − |m|); by
homogeneity both hold for (k − i)/N and 1/N, up to the factor 1/N. *Heads.* Softmax over the logits c(−1)^i has weights 1 on even and ε on
odd positions, over n_e + n_oε; the other head the reverse. Their means of 1{i = k}/N are 1/(n_e+n_oε) and ε/(n_o+n_eε) over N for even k,
whose difference is (P.1); for odd k the same with roles exchanged. As n_o ≤ n_e ≤ 2n_o, n_e + n_oε ≤ n_e(1+ε) and n_o + n_eε ≤ n_o(1+2ε),
so for even k N|d| ≥ (1−ε)/(n_e(1+2ε)); for odd k N|d| ≥ (1−ε)/(n_o+n_eε), which is at least as much. This is (P.2). *Plateaus.* With
g|d| ≥ 1, both relu(2 − relu(1 − gd)) − 1 and relu(gd+1) − relu(gd−1) − 1 are the sign of d. ∎

Proof of roundings. Counts, positions and their differences are whole numbers up to N ≤ 2^p: exact in every order. The quotient by N, or
the product with fl(1/N), is monotone, so D = fl((k−i)/N) and B = fl(1/N) satisfy D = 0 for i = k and |D| ≥ B, with the right sign,
otherwise. *Clipped:* relu(B − |D|) is therefore B at i = k and 0, exactly, elsewhere. Logits are ±c and their differences 0 and −2c,
exactly; e^0 = 1, and e^{−2c} is off by s = 7u of itself at most (held against the executor's exponential by the certificate). A head has
one value that is not zero, so only relative errors arise, N terms of a sum among them: its output is off by the factor 1 + τ at most,

    1 + τ = (1+u)³(1+s)(1+γ_N)/((1−γ_N)(1−s)),        γ_N = Nu/(1−Nu).

The sum of both heads is at most |d|/κ with κ = (1−ε²)/(1+4ε+ε²), and their difference is rounded once more, so that the computed
difference is at least (1−u)(1 − τ/κ)|d|, of the right sign. gd̂ ≥ 1 implies fl(1 − gd̂) ≤ 0 and gd̂ ≤ −1 implies fl(1 − gd̂) ≥ 2: rounding is
monotone. Hence relu(2 − relu(1 − gd̂)) − 1 is ±1 exactly. *Paper:* for i > k all three neurons are 0, at i = k the result is B, and for
i < k it is off by ρ(k−i)/N at most, ρ = (2u + 4(1+u)γ_3)(1+u)² ≤ 15u, for the rounding of D ± B and of the sum. A mean moves by ρ at
most, so d̂ is at least (1−u)((1 − τ/κ)|d| − 2ρ(1+τ)). The ramp is −1 exactly where gd̂ ≤ −1; where z = gd̂ ≥ 1 it is off by
2u(z+1) + γ_3(2z+3)(1+u) at most, and z ≤ (1+u)(1+τ)(1/2+ρ)g ≤ 0.56g as |d| ≤ 1/2 and τ ≤ 1/10: (P.3). *Monotone.* All of these
margins fall with N, so what holds for the longest sequences holds for all. *Flushing:* what is not 0 is at least uε/N² on the way, far
above the least normal number. *Beyond:* numbers of the type between 2^p and 2^{p+1} are even. ∎

Construction. `constructions.theorems.library.parity`. c = 3 is the least whole number with 3ε ≤ 1/100: that much of the margin is given up.
The gain g is the least power of 2 with g·(computed difference) ≥ 1 at N = L + 1. One ramp of this slope must serve short sequences, too,
whose margin is large: gd is of the size L²/4 at n = 1, and ±1 is lost beside it once it exceeds 1/u. Nested ReLUs do not add to gd but
cut it.

Remarks. *Which horizon.* That a margin of 2/N² asks for N² < 1/u is true of one ramp, and of an a priori bound on the second difference. It
is no property of parity: what is averaged can be made exactly 0 but for one position, and then nothing cancels. *n = 0.* The begin token
alone has no parity here: both heads see the same token, d = 0.

Repaired. Chiang & Cholak give positions i/n to the embedding; here the table knows i only, and the network makes i/n itself: linear
attention multiplies i by the mean of 1{s = 0}. With real numbers their construction is right at every length; what floats make of it, and
the plateaus, are ours.

References. Chiang & Cholak, Overcoming a Theoretical Limitation of Self-Attention, arXiv 2202.12172 (ACL 2022), section 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import sympy
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.families import DEFAULT_ERROR, LEAST_ERROR, Dtype
from analyzer.numbers.exact import UNIT, lower, upper, working_precision
from analyzer.options import Options, option
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven, product_of
from analyzer.statements.theorem import Case, Theorem

if TYPE_CHECKING:
    import networkx as nx

    from analyzer.targets.tasks.parity import ParityTarget

ID = "parity"
TITLE = "parity of n bits at every length"
_TEXT = "sign(d) = (−1)^k at every length,  |d| ≥ (1−ε)/((1+2ε) N⌈N/2⌉),  output = y exactly for N up to about 2^p/6 in floats of p bits"
STATEMENT = {"lin": _TEXT, "log": _TEXT, "none": _TEXT}
"""Positions are absolute: the statement is the same whatever relative positions are elsewhere."""
BIBTEX = """@inproceedings{chiang2022overcoming,
  title     = {Overcoming a Theoretical Limitation of Self-Attention},
  author    = {Chiang, David and Cholak, Peter},
  booktitle = {Annual Meeting of the Association for Computational Linguistics},
  year      = {2022},
  note      = {arXiv:2202.12172}
}
"""
Form = Literal["clipped", "paper"]
SHARPNESS = fmpq(3)
"""c: the least whole number with 3e^{−2c} ≤ 1/100."""
SLIP = 7
"""The executor's exponential is off by this many u of itself, at most."""
BITS = 256
INDICATOR, MARGIN, PLATEAU = "indicator", "margin", "plateau"
"""The lemmas of which a certificate shows numbers."""
u, Q, epsilon, N = sympy.symbols("u Q varepsilon N", nonnegative=True)
LEAST_MARGIN = (1 - epsilon) / (1 + 2 * epsilon) / (N * sympy.ceiling(N / 2))
"""(P.2)."""
RAMP = u * (5 * Q / 2 + 12)
"""(P.3)."""

_FORM = "four layers whose neurons are exactly 0 where they should be (clipped), or two layers as in the paper, for shorter sequences"


@dataclass(frozen=True)
class Parity(Options):
    """Networks for parity.

    >>> from analyzer.theorems.library.parity import Parity
    >>> Parity(form="paper").bank
    'paper'
    """

    form: Form = option("clipped", _FORM)
    error: float | None = option(None, "total worst-case error, certified", least=LEAST_ERROR, shown="0.01")
    dtype: Dtype = option("exact", "arithmetic of the weights: exact rationals, or floats that are rounded and then certified")

    @property
    def bank(self) -> str:
        """What cards call it."""
        return self.form


@dataclass(frozen=True)
class ParityBound(Options):
    """Margin, gain and horizons of networks for parity."""

    form: Form = option("clipped", _FORM)
    dtype: Dtype = option("exact", "arithmetic of the weights")


def unit_of(dtype: str) -> arb:
    """u."""
    return arb(0) if dtype == "exact" else arb(UNIT[dtype])


def gamma(terms: int, unit: arb) -> arb:
    return terms * unit / (1 - terms * unit)


def head_factor(tokens: int, unit: arb) -> arb:
    """1 + τ, or infinity where N u is no longer small."""
    if not 4 * tokens * unit <= 1:
        return arb.pos_inf()
    added, slip = gamma(tokens, unit), SLIP * unit
    return (1 + unit) ** 3 * (1 + slip) * (1 + added) / ((1 - added) * (1 - slip))


def noise(form: str, unit: arb) -> arb:
    """ρ: how far the indicator is from 1{i = k} B, at most."""
    return arb(0) if form == "clipped" else (2 * unit + 4 * (1 + unit) * gamma(3, unit)) * (1 + unit) ** 2


def share_of_minority(sharpness: fmpq) -> arb:
    """ε."""
    return (-2 * arb(sharpness)).exp()


def margin(tokens: int, odd: bool, sharpness: fmpq = SHARPNESS) -> arb:
    """|d|, (P.1)."""
    eps, even_places, odd_places = share_of_minority(sharpness), (tokens + 1) // 2, tokens // 2
    both = (even_places + odd_places * eps) * (odd_places + even_places * eps)
    return (even_places if odd else odd_places) * (1 - eps**2) / both / tokens


def least_margin(tokens: int, sharpness: fmpq = SHARPNESS) -> arb:
    """(P.2): |d| for sequences of at most so many tokens, whatever k."""
    eps = share_of_minority(sharpness)
    return (1 - eps) / (1 + 2 * eps) / (tokens * ((tokens + 1) // 2))


def computed_margin(form: str, tokens: int, unit: arb, sharpness: fmpq = SHARPNESS) -> arb:
    """The least computed difference of the heads, from below, for sequences of at most so many tokens."""
    eps, factor = share_of_minority(sharpness), head_factor(tokens, unit)
    if not factor < 2:
        return arb(-1)
    contrast = (1 - eps**2) / (1 + 4 * eps + eps**2)
    kept = (1 - (factor - 1) / contrast) * least_margin(tokens, sharpness)
    return (1 - unit) * (kept - 2 * noise(form, unit) * factor)


def gain_for(form: str, longest: int, dtype: str) -> int | None:
    """g: the least power of 2 that lifts the margins of all lengths to 1; None beyond what the type resolves."""
    with working_precision(BITS):
        unit, tokens = unit_of(dtype), longest + 1
        least = computed_margin(form, tokens, unit)
        if tokens * unit > 1 or not 2 * least >= least_margin(tokens):
            return None
        gain = 1
        while not gain * least >= 1:
            gain *= 2
        return gain


def ramp_error(form: str, gain: arb, tokens: int, unit: arb) -> arb:
    """How far the output is from ±1 where the margin holds: 0 for nested ReLUs, the rounding of one ramp otherwise."""
    if form == "clipped":
        return arb(0)
    most = (1 + unit) * head_factor(tokens, unit) * (arb(1) / 2 + noise(form, unit)) * gain
    return 2 * unit * (most + 1) + gamma(3, unit) * (2 * most + 3) * (1 + unit)


def promised_error(form: str, gain: int, dtype: str) -> arb:
    """(P.3)."""
    return arb(0) if form == "clipped" else unit_of(dtype) * (5 * gain + 12)


def holds(form: str, longest: int, dtype: str, error: float = DEFAULT_ERROR) -> bool:
    """Whether the statement promises an error for all lengths up to the longest."""
    gain = gain_for(form, longest, dtype)
    return gain is not None and bool(promised_error(form, gain, dtype) <= error)


def horizon(form: str, dtype: str, error: float = DEFAULT_ERROR) -> int | None:
    """The largest L for which the statement promises the error; None if that is every L, 0 if there is none.

    The conditions are monotone in L, so that it is found by bisection; nothing of the size of L is built.

    >>> from analyzer.theorems.library.parity import horizon
    >>> horizon("paper", "float32"), horizon("clipped", "float32")
    (247, 2777811)
    """
    if dtype == "exact":
        return None
    low, high = 0, int(1 / UNIT[dtype])
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(form, middle, dtype, error) else (low, middle)
    return low


def wrong_from(dtype: str) -> int | None:
    """The least n for which the count of a sequence is no number of the type: 2^p + 1; None in exact arithmetic."""
    return None if dtype == "exact" else int(1 / UNIT[dtype]) + 1


def expression(rpe: str, bank: str) -> sympy.Expr:
    """(P.3), 0 for the clipped form."""
    return RAMP if bank == "paper" else sympy.Integer(0)


def citation(bank: str, ffn: str) -> str:
    """What a network rests on."""
    return BIBTEX


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """Who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    source = "Chiang & Cholak, section 3"
    exact = bank != "paper"
    lemma(graph, INDICATOR, "1{i = k}/N at every position, in floats", sympy.Integer(0) if exact else 15 * u, source=source, measured=True)
    lemma(graph, "heads", "difference of the means over even and odd positions", LEAST_MARGIN, (INDICATOR,), source, relation="≥")
    lemma(graph, MARGIN, "1/(g d̂) at the longest sequences: the plateau is reached", sympy.Integer(1), ("heads",), measured=True)
    lemma(graph, PLATEAU, "the sign as ±1", expression(rpe, bank), measured=True)
    lemma(graph, ID, TITLE, expression(rpe, bank), (MARGIN, PLATEAU), source)
    return graph


def bound(target: "ParityTarget", options: ParityBound) -> Bound:
    """What is promised for all lengths up to the longest, with the margin there, the gain and the horizons."""
    gain = gain_for(options.form, target.longest, options.dtype)
    if gain is None:
        raise InputError(f"{options.form} networks in {options.dtype} do not resolve sequences of {target.longest} bits")
    with working_precision(BITS):
        error = upper(promised_error(options.form, gain, options.dtype))
        data: dict[str, Any] = {
            "heads": 2,
            "layers": 4 if options.form == "clipped" else 2,
            "longest": target.longest,
            "margin": lower(least_margin(target.longest + 1)),
            "gain": gain,
            "worst_case": error,
            "horizons": {form: {dtype: horizon(form, dtype) for dtype in UNIT} for form in ("clipped", "paper")},
            "wrong_from": {dtype: wrong_from(dtype) for dtype in UNIT},
        }
    parts = {INDICATOR: upper(noise(options.form, unit_of(options.dtype))), PLATEAU: error}
    return Bound(ID, error, parts, expression("none", options.form), {}, data, claim="worst-case error")


def designs(target: "ParityTarget", dtype: str) -> list[Design]:
    """Both forms."""
    return product_of(form=("clipped", "paper"))


def proven(target: "ParityTarget", options: Parity) -> Proven:
    """The sizes do not depend on the length."""
    return Proven(4, 2, 2) if options.form == "clipped" else Proven(2, 2, 3)


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="parity",
    options=Parity,
    bound_options=ParityBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
    build="constructions.theorems.library.parity:build",
    verify="verify.theorems.library.parity:verify",
    designs=designs,
    proven=proven,
    absolute=True,
    cases=(
        Case({"kind": "parity", "longest": 40}, {"dtype": "float32"}, {"form": "clipped"}),
        Case({"kind": "parity", "longest": 24}, {"form": "paper", "dtype": "float64"}, {"form": "paper", "dtype": "float64"}),
    ),
    shelf=13,
)
