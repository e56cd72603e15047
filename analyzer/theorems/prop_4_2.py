"""Proposition 4.2 of Wang & E: one dot-product layer does what no dp-free attention layer can.

Setting. Tokens in {−1, 0, 1}, target y_t = x_{t−g(x_t)} with g(x) = x + 1, so lags 0, 1, 2. One attention layer, no hidden neurons: the
output is a linear functional of the residual stream after attention.

Statement. (A) With dot products, for every ε > 0, an error below ε: the paper uses O(1/ε) heads, three are enough. (B) Without dot
products, for any number of heads, any decays and any relative position encodings, the error is at least 2/3 in the paper; the sharp
constant is 1.

Proof of (B). Without dot products the attention weights do not depend on the tokens, so the output is affine, c + Σ_s a_s x_{t−s}. Take
four inputs with x_t ∈ {0, 1}, x_{t−1} = −x_{t−2} = ±1 and zeros before, with weights ±1/4 that have the sign of the wanted output:

    (x_t, x_{t−1}, x_{t−2})   (0, 1, −1)   (0, −1, 1)   (1, −1, 1)   (1, 1, −1)
    wanted                         1           −1            1           −1

The weights μ have Σ|μ| = 1 and annihilate every affine functional, and Σ μ · wanted = 1. So the errors r obey 1 = Σ μ r ≤ max|r|. The
zero network has error 1. (By hand: |c| + |1−a_1| + |a_2| at x_t = 0 and |c+a_0| + |a_1| + |1−a_2| at x_t = 1 add up to 2 or more.)

Construction. (A) in `constructions.theorems.prop_4_2`: g is affine, so the embedding itself writes the lag slot; a minimal lin bank for
lags up to 2 has 3 heads and error 1/Π(1−z_h) − 1 by (3.6), which also covers lag 0.

Repaired. The paper's class asks for g ≥ 1, its example has g(−1) = 0; `examples/prop_4_2.toml` is the example shifted by one.

References. Wang & E, arXiv 2402.00522 (NeurIPS 2024), Proposition 4.2.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import sympy
from flint import fmpq

from analyzer.errors import InputError
from analyzer.lemmas import extraction as ex
from analyzer.statements.theorem import Theorem
from analyzer.theorems import base

if TYPE_CHECKING:
    import networkx as nx

ID = "prop-4.2"
TITLE = "one dot-product layer against every dp-free attention layer"
STATEMENT = dict.fromkeys(
    ("lin", "log"),
    "y_t = x_{t−x_t−1} on {−1, 0, 1}: (A) one dp layer with 3 heads reaches every ε > 0, (B) every dp-free attention layer errs by ≥ 1",
)
citation = partial(base.citation, result="Proposition 4.2")

ALPHABET = (-1, 0, 1)
LAGS = (0, 1, 2)
PAPER = fmpq(2, 3)
Input = tuple[int, int, int]
"""x_t, x_{t−1}, x_{t−2}; zeros before."""

CERTIFICATE: tuple[tuple[Input, fmpq], ...] = (
    ((0, 1, -1), fmpq(1, 4)),
    ((0, -1, 1), fmpq(-1, 4)),
    ((1, -1, 1), fmpq(1, 4)),
    ((1, 1, -1), fmpq(-1, 4)),
)


def expression(rpe: ex.Rpe, bank: str) -> sympy.Expr:
    """The error of part (A), T = 2; part (B) is the number 1."""
    return ex.adaptive_minimal_expression("lin").subs({ex.T: 2})


def wanted(tokens: Input) -> int:
    """x_{t−g(x_t)}, g(x) = x + 1."""
    return tokens[tokens[0] + 1]


def lower_bound(certificate: Sequence[tuple[Input, fmpq]] = CERTIFICATE) -> fmpq:
    """The bound that a certificate proves, checked in rational arithmetic: Σ μ · wanted / Σ|μ| if μ annihilates all affine functionals."""
    if any(token not in ALPHABET for tokens, _ in certificate for token in tokens):
        raise InputError("an input of the certificate is not over the alphabet")
    total = sum((abs(weight) for _, weight in certificate), fmpq(0))
    if total == 0 or sum((weight for _, weight in certificate), fmpq(0)) != 0:
        raise InputError("the weights of the certificate do not annihilate constants")
    for s in LAGS:
        if sum((weight * tokens[s] for tokens, weight in certificate), fmpq(0)) != 0:
            raise InputError(f"the weights of the certificate do not annihilate x_(t-{s})")
    return sum((weight * wanted(tokens) for tokens, weight in certificate), fmpq(0)) / total


def proof_graph(rpe: ex.Rpe, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """Both parts; sizes other than three lin heads play no role here."""
    import networkx as nx

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    lemma(graph, "zeros", "the kernel vanishes at every s below the lag", sympy.Integer(0), source="3.6")
    lemma(graph, "(A)", "one dot-product layer, three lin heads: worst case", expression("lin", bank), ("zeros",))
    lemma(graph, "affine", "without dot products the output is affine in the tokens", sympy.Integer(0))
    lemma(graph, "(B)", "four inputs that no affine functional tells apart", sympy.Integer(1), ("affine",), "sharp; paper: 2/3", "≥")
    lemma(graph, ID, TITLE, sympy.Integer(1), ("(A)", "(B)"), "Wang & E, Proposition 4.2", "≥")
    return graph


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
    shelf=3,
    instead="it is no rate; its two numbers are in `limits dp-free`",
)
