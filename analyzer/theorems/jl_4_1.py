"""Theorem 4.1 of Jiang & Li, repaired: one softmax head that weighs all tokens alike represents every function of a sequence of letters.

Setting. A finite alphabet of A letters, N positions, a target H(x) = F(x_1, …, x_N), the same at every position. Tokens carry their
positions: token s is the pair (s/P, x_s), in [JL]'s words a token from a domain of its own. Network: one layer, one head over all N
tokens, no residual, Ĥ_t(x) = F̂(Σ_s softmax[ρ̂(x_t, x_·)](s) f̂(x_s)), with feed-forward f̂ and F̂.

Statement. As printed: every continuous target has the form H_t(x) = F(Σ_s softmax[ρ(x_t, x_·)](s) f(x_s)). Repaired, with sizes: on
sequences of letters H has this form with ρ = 0, so that m_h = 0 query and key coordinates are enough, and networks of ReLUs compute it
exactly,

    Ĥ(x) = H(x) for all A^N sequences,

with one head and, if F is a function of a code (`analyzer.lemmas.sequence_codes`): of the order A^N neurons in F̂; where F does not
depend on the order C(N+A−1, N); where it depends on the sum of letter numbers only N(A−1)+1. Values are a whole number (scalar code,
m_v = 1) or one coordinate per token whose number is not 0 (one-hot, m_v = N(A−1); without positions A − 1); f̂ has at most NA − 1
neurons, without positions A − 1. In floats with unit roundoff u the stored weights err by at most

    ε_F + Q (δ + 3uK) + u|F_0|,                                                                                             (R.1)

K the largest code, Q = Σ|q_i| the changes of slope of the table, δ what stored values move a code by, ε_F = 0 where F is rational; the
rounding of evaluation is added by the certificate.

Proof. The tokens (s/P, a) are NA different points; a linear form z = wP·(s/P) + a with w > max a − min a tells them apart, and the
spline in z through the values f(s, a) is a feed-forward network. With ρ = 0 every token has the weight 1/N, so N times the mean is
the code Σ_s c(s, x_s) itself (or, for one-hot values, a linear form of the mean is), a whole number that tells apart all sequences
that F does. The spline through F at the codes, F(k_0) + Σ_i q_i relu(k − k_i), is exact there. *(R.1).* q_i and the knots k_i are
each off by their share u, which moves |q_i| relu(k − k_i) by at most |q_i|(2u + u²)K; a code that is off by δ, the rounding of the
row that reads it included, moves the spline by at most its slope, Qδ. ∎

Remarks. *A horizon of precision.* Q grows with the number of codes, and so does K: the rounding is of the order u·A^{2N} times the
size of F. Exact networks have no such horizon; floats are refused beyond it. *m_h.* The head need not compare tokens: what F needs of
them is in the values. *Positions* are needed exactly where F depends on the order: `lemmaformer limits permutation` has the error
that no network without them goes below. *Targets that differ from position to position* need a head that tells queries apart, as with
ρ = 0 all queries get the same answer. Logits κt·1{s = 1} of rank 1, m_h = 1, are enough for that: the mean then holds the weight of
the first token, which grows with t. `constructions.theorems.positional_sums` builds this for linear maps, on the whole of [0, 1]^N;
for tables it is not built.

Construction. `constructions.theorems.jl_4_1`: a row of kinks relu(z − z_j) writes the values, a head without queries and keys takes
their mean, a second row of kinks relu(N·mean − k_i) is the table.

Repaired. The printed proof starts from Kolmogorov's and Arnold's representation H_t = Σ_q Φ_{q,t}(Σ_s ψ_{q,s}(x_s)) and makes f from
the ψ_{q,s}. It then takes ψ_{q,t}(x_t) out of the sum over all tokens and goes on with the difference as a function of the sum. It is
none: with N = 2 and ψ_1(x) = ψ_2(x) = x the sequences (0, 1) and (1, 0) have the same sum 1, but without the first token 1 and 0 are
left, so that any F errs by at least 1/2 on one of them (tested). One more coordinate, which holds the token that is taken out, would
mend it. Here nothing is taken out: the sum over all tokens tells sequences apart by itself. What is given up is the continuum of
tokens.

References. Jiang & Li, Approximation Rate of the Transformer Architecture for Sequence Modeling, arXiv 2305.18475 (NeurIPS 2024),
Theorem 4.1 and Appendix A.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import sympy

from analyzer.families import Representation, RepresentationBound
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven, product_of
from analyzer.statements.theorem import Case, Theorem

if TYPE_CHECKING:
    import networkx as nx

    from analyzer.targets.sequence import SequenceTarget

ID = "jl-4.1"
TITLE = "every function of a sequence of letters, one head"
_TEXT = "Ĥ = H on all A^N sequences of letters with one head, m_h = 0, and A^N neurons; C(N+A−1, N) where the order does not matter"
STATEMENT = {"lin": _TEXT, "log": _TEXT, "none": _TEXT}
"""Positions are part of the tokens: the statement is the same whatever the relative positions are elsewhere."""
BIBTEX = """@inproceedings{jiang2024approximation,
  title     = {Approximation Rate of the {Transformer} Architecture for Sequence Modeling},
  author    = {Jiang, Haotian and Li, Qianxiao},
  booktitle = {Advances in Neural Information Processing Systems},
  year      = {2024},
  note      = {arXiv:2305.18475; Theorem 4.1, repaired}
}
"""
u, Q, K, delta, epsilon, F0 = sympy.symbols("u Q K delta epsilon_F F_0", nonnegative=True)
TABLE = epsilon + 3 * u * K * Q + u * F0
EXPRESSION = TABLE + Q * delta
"""(R.1)."""
CODE_LEMMA, TABLE_LEMMA = "code", "table"
"""The lemmas of which a certificate shows numbers."""


def expression(rpe: str, bank: str) -> sympy.Expr:
    """(R.1)."""
    return EXPRESSION


def citation(bank: str, ffn: str) -> str:
    """What a network rests on."""
    return BIBTEX


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """Who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    lemma(graph, CODE_LEMMA, "N times the mean against the code of the sequence", delta, source="Jiang & Li, Theorem 4.1", measured=True)
    lemma(graph, TABLE_LEMMA, "the spline through F at the codes", TABLE, measured=True)
    lemma(graph, ID, TITLE, EXPRESSION, (CODE_LEMMA, TABLE_LEMMA), "Jiang & Li, Theorem 4.1")
    return graph


def bound(target: "SequenceTarget", options: RepresentationBound) -> Bound:
    """The sizes, for both value codes and for F as it is and as any function of a sequence; the error is that of exact arithmetic."""
    from analyzer.lemmas.sequence_codes import CODES, code_of, codes_of
    from analyzer.numbers.exact import upper

    code, letters, length = code_of(target), len(target.symbols), target.length
    places = length if code.positional else 1
    told = places * (letters - 1)
    sizes = {reading: {"codes": str(count), "width": codes_of(reading, letters, length)} for reading, count in CODES.items()}
    error = upper(target.table_error)
    data = {
        "heads": 1,
        "rank": 0,
        "letters": letters,
        "length": length,
        "code": options.code,
        "reads": code.reading,
        "value_dim": 1 if options.code == "scalar" else told,
        "value_dims": {"scalar": 1, "one-hot": told},
        "width": max(len(code.table), places * letters - 1),
        "widths": sizes,
        "largest_code": code.largest,
        "worst_case": error,
    }
    return Bound(ID, error, {TABLE_LEMMA: error, CODE_LEMMA: 0.0}, EXPRESSION, {}, data, claim="worst-case error in exact arithmetic")


def designs(target: "SequenceTarget", dtype: str) -> list[Design]:
    """Both value codes."""
    return product_of(code=("scalar", "one-hot"))


def proven(target: "SequenceTarget", options: Representation) -> Proven:
    """Two layers, of which the first only writes values, with one head; neurons for the codes."""
    found = bound(target, RepresentationBound(options.code)).data
    return Proven(2, 1, found["width"], width_for="read-out", attention="rank")


_ORDERED = {"kind": "sequence", "formula": "x1*x2 - x3/2", "alphabet": [-1, 0, 1], "length": 3}
_SYMMETRIC = {"kind": "sequence", "formula": "relu(x1 + x2 + x3 + x4 - 1)", "alphabet": [0, 1], "length": 4}

THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="sequence",
    options=Representation,
    bound_options=RepresentationBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
    build="constructions.theorems.jl_4_1:build",
    verify="verify.theorems.jl_4_1:verify",
    designs=designs,
    proven=proven,
    cases=(Case(_ORDERED, {"dtype": "float64"}, {"code": "scalar"}), Case(_SYMMETRIC, {"code": "one-hot"}, {"code": "one-hot"})),
    shelf=8.5,
)
