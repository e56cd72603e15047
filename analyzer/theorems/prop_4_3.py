"""Proposition 4.3 of Wang & E: tmx attention attains Theorem 4.1's rate with O(D) parameters in each score.

Setting. As Theorem 4.1, with the score p_h(φ(s) − φ(w_h·X_t)) ("t minus x") in place of a dot product.

Statement. The bound of Theorem 4.1 holds word for word. A dot-product head has W_Q, W_K ∈ R^{D×D} and p_h, 2D² + 1 numbers; a tmx head
has w_h ∈ R^D and p_h, D + 1 numbers.

Proof. With w_h the unit vector of the lag slot, w_h·X_t = g after rounding, and the score is −p_h(s − g) (lin) or −p_h log(s/g) (log): that
of the dot product in Theorem 4.1, hence the same kernels and errors. ∎

Construction. `constructions.theorems.thm_4_4` with attention tmx: w_h picks the lag slot, so the score is −p_h(s − g) or −p_h log(s/g), the
same kernel as the dot product's.

Repaired. In the log case the slot must hold g, with plain rounding, not log g.

References. Wang & E, arXiv 2402.00522 (NeurIPS 2024), Proposition 4.3.
"""

from functools import partial

from analyzer.lemmas.extraction import adaptive_expression
from analyzer.statements.theorem import Case
from analyzer.theorems import base, thm_3_1, thm_4_4

ID = "prop-4.3"
TITLE = "tmx attention: the same rate with O(D) score parameters"
STATEMENT = {rpe: f"{text}; D + 1 score parameters per head instead of 2D² + 1" for rpe, text in thm_3_1.STATEMENT.items()}
expression = adaptive_expression
citation = partial(base.citation, result="Proposition 4.3")
proof_graph = partial(thm_4_4.parallel_graph, ID, TITLE)

THEOREM = thm_4_4.adaptive_theorem(
    ID,
    TITLE,
    __doc__,
    (Case(thm_4_4.POINTER, {"attention": "tmx", "error": 0.05}, {"heads": 128}),),
    4,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
)
