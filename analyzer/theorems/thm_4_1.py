"""Theorem 4.1 of Wang & E: adaptive memories whose lags are read off the current token, two layers.

Setting. Tokens from a finite alphabet in [−1, 1]^d, target y_t = f(x_t, x_{t−g_1(x_t)}, …, x_{t−g_M(x_t)}), every g_i an integer in [1,
T_i]; two layers of normalisation-free dot-product attention with feed-forward precision.

Statement. For every n ≥ 1 there is such a network with |||H − TF||| ≤ E_FFN + Σ_k Lip_k(f) e_k and

    lin   Σ_k e_k ≤ C(n)/Hⁿ (Σ_k e^{0.01 T_k})^{n+1},      log   Σ_k e_k ≤ C(n)/Hⁿ (Σ_k T_k^{1.01})^{n+1}

if the first FFN has width Ω̃(Σ‖g_i‖²_B) (log: Ω̃(Σ‖log g_i‖²_B T_i²)).

Constants. Those of Theorem 3.1 with T_k = max g_k; (3.6), (3.7) for the minimal banks. The width is Σ_i 16‖g_i‖²_B(D+1)/margin² with
margin 1/2 (log: ‖log g_i‖_B and margin log(1+1/(2T_i))), from `analyzer.lemmas.lag_encoding`; the exact encoding has one neuron per token
at most.

Proof. That of Theorem 4.4 with one level: the first layer writes all lags, which depend on x_t alone, the second extracts all memories with
heads split as in Theorem 3.1. ∎

Construction. The one-level case of Theorem 4.4: `constructions.theorems.thm_4_4`.

Repaired. As Theorem 4.4.

References. Wang & E, arXiv 2402.00522 (NeurIPS 2024), Theorem 4.1, Lemmas F.2, F.5.
"""

from functools import partial

from analyzer.lemmas.extraction import adaptive_expression
from analyzer.statements.theorem import Case
from analyzer.theorems import base, thm_3_1, thm_4_4

ID = "thm-4.1"
TITLE = "adaptive memories with lags of the current token, two layers"
STATEMENT = thm_3_1.STATEMENT
expression = adaptive_expression
citation = partial(base.citation, result="Theorem 4.1")
proof_graph = partial(thm_4_4.parallel_graph, ID, TITLE)

THEOREM = thm_4_4.adaptive_theorem(
    ID,
    TITLE,
    __doc__,
    (Case(thm_4_4.POINTER, {"error": 0.05}, {"heads": 128}),),
    2,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
)
