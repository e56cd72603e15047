"""Copying: two layers copy every string in which no n−1 letters occur twice; a state of fixed size cannot.

Setting. Arrays m … m w_1 … w_L m … m w_1 … w_{L−1} of N = 2(n−1) + 2L − 1 tokens, n−1 marks each time, w a string of L of A letters in
which no n−1 letters occur twice; letters and marks are unit vectors, values as in induction (`analyzer.targets.tasks.copying`). From the
last mark on the next letter of w is asked for: L answers. Network: that of induction, without positions in its second layer.

Statement. (i) Let layer 1 deliver letters to within e < 1/4 per coordinate. A head that adds β for every agreeing letter has, for all these
strings and all L answers,

    |||H − TF||| ≤ D R/(1+R),   R = (N−1) e^{−β},                                                                               (C.1)

D = A/P ≤ 1 being the largest difference of two values, the mark's included. So β = log((N−1)/ε) reaches every ε: weights grow like the
logarithm of the length, and n = 1 + ⌈log_A L⌉ letters are enough for some string of every length L.

(ii) A model whose state takes S values when the string has been read, whatever it computes, copies at most S of all A^L strings: if
S < A^L some string is not copied, and of random strings a share of at least 1 − S/A^L; L log₂ A bits are needed.                  (C.2)

Proof. (i) The n−1 tokens that end at an asked position are m … m w_1 … w_i or n−1 letters of w. The former are told apart by their number
of marks in front, the latter occur once in w, and no others in the array begin with marks and end with letters, or have letters only: so
exactly one earlier place s has k_s = q_t, the one in the first copy, and x_s is the next letter. Letters being restored (induction), its
logit is β(n−1), all others are at most β(n−2): the hard-attention lemma with k = 1. (ii) After the marks, what follows is a function of the
state, so there are at most S different copies, each of which is right for one string at most. ∎

Remarks. The network keeps N tokens, so that (C.2) does not touch it: attention is a state that grows. Strings of random letters have
repeated n−1 letters with probability at most L²/(2A^{n−1}): n of the order 2 log_A L copies nearly all of them, as in the paper.

Construction. `constructions.theorems.library.induction` with decay 0 and a finite window.

References. Jelassi, Brandfonbrener, Kakade & Malach, Repeat After Me: Transformers are Better than State Space Models at Copying,
arXiv 2402.01032.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import sympy
from flint import arb, fmpq

from analyzer.families import DEFAULT_ERROR, LEAST_ERROR
from analyzer.lemmas.hard_attention import share
from analyzer.numbers.exact import upper, working_precision
from analyzer.options import Options, option
from analyzer.statements.bounds import Bound
from analyzer.statements.symbols import Quantity
from analyzer.statements.theorem import Case, Theorem
from analyzer.theorems import base
from analyzer.theorems.library import induction

if TYPE_CHECKING:
    import networkx as nx

    from analyzer.targets.tasks.copying import CopyingTarget

ID = "copying"
TITLE = "copy every string in which no n−1 letters occur twice, two layers"
R = (Quantity("N", "the tokens of an array") - 1) * sympy.exp(-induction.beta)
COPIED = induction.D * R / (1 + R)
"""(C.1)."""
_TEXT = "D R/(1+R), R = (N−1) e^{−β}, for all strings in which no n−1 letters occur twice; S states copy at most S of A^L strings"
STATEMENT = {"lin": _TEXT, "log": _TEXT, "table": _TEXT}
BIBTEX = """@inproceedings{jelassi2024repeat,
  title     = {Repeat After Me: Transformers are Better than State Space Models at Copying},
  author    = {Jelassi, Samy and Brandfonbrener, David and Kakade, Sham M. and Malach, Eran},
  booktitle = {International Conference on Machine Learning},
  year      = {2024},
  note      = {arXiv:2402.01032}
}
"""


@dataclass(frozen=True)
class CopyingBound(Options):
    """(C.1) for an error, and (C.2)."""

    error: float | None = option(None, "choose the constants for this error", least=LEAST_ERROR, most=0.25, shown="0.01")


def copied_bound(target: "CopyingTarget", match: arb) -> arb:
    """(C.1)."""
    return arb(induction.spreads(target)[0]) * share((target.length - 1) * (-match).exp())


def copied_share(states: int, letters: int, length: int) -> fmpq:
    """The largest share of all strings that a model with so many states copies: (C.2)."""
    return min(fmpq(1), fmpq(states, letters**length))


def least_bits(letters: int, length: int) -> int:
    """Bits of a state that copies all strings: ⌈L log₂ A⌉."""
    return (letters**length - 1).bit_length()


def proof_graph(rpe: str, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """That of induction, with (C.1) in place of (I.1)."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    graph = nx.relabel_nodes(induction.proof_graph(rpe, bank, ffn, lags), {induction.ID: ID})
    graph.nodes[ID].update(title=TITLE, budget=COPIED, source="Jelassi, Brandfonbrener, Kakade & Malach")
    graph.nodes[induction.CHOICE].update(budget=COPIED)
    return graph


def bound(target: "CopyingTarget", options: CopyingBound) -> Bound:
    """(C.1) at the β that a build takes for the error, and (C.2) beside it."""
    match = induction.match_constant(target, DEFAULT_ERROR if options.error is None else options.error)
    with working_precision(128):
        total = upper(copied_bound(target, arb(match)))
    letters, length = target.size - 1, target.string
    data = {
        "layers": 2,
        "heads": target.n - 1,
        "letters": letters,
        "n": target.n,
        "string": length,
        "gap": float(arb(match)),
        "worst_case": total,
        "state_bits": least_bits(letters, length),
        "longest_string": letters ** (target.n - 1) + target.n - 2,
    }
    return Bound(ID, total, {induction.CHOICE: total}, COPIED, {}, data, claim="worst-case error in exact arithmetic")


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="copying",
    options=induction.Induction,
    bound_options=CopyingBound,
    bound=bound,
    formulas=STATEMENT,
    expression=lambda rpe, bank: COPIED,
    lemmas=proof_graph,
    citation=lambda bank, ffn: "\n".join([BIBTEX, induction.BIBTEX, base.citation("minimal", ffn, "the banks of layer 1")]),
    build="constructions.theorems.library.copying:build",
    verify="verify.theorems.library.copying:verify",
    proven=induction.proven,
    cases=(Case({"kind": "copying", "letters": 3, "n": 3, "string": 8}, {"error": 1e-3, "dtype": "float64"}, {"error": 1e-3}),),
    shelf=16,
)
