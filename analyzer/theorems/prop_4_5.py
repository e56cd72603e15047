"""Proposition 4.5 of Wang & E: depth instead of width for lags that do not depend on each other.

Setting. As Theorem 4.1: every lag is read off the current token.

Statement. On M + 1 layers, one memory after the other, for every n ≥ 1 with H heads per layer

    lin   √(Σ e_k²) ≤ C(n)/Hⁿ √(Σ_k e^{0.02(n+1)T_k}),      log   √(Σ e_k²) ≤ C(n)/Hⁿ √(Σ_k T_k^{2.02(n+1)})

and the inner widths are Ω̃(max_i ‖g_i‖²_B) instead of Ω̃(Σ_i ‖g_i‖²_B) (log: ‖log g_i‖²_B T_i²).

Constants. Layer k extracts memory k with all H heads: e_k is (3.1) or (3.2) with H_k = H, where Theorem 4.1 splits H over the memories.

Proof. That of Theorem 4.4, with memories taken one per layer although their lags need no other memory: layer k + 1 has all its H heads for
memory k, and only one lag is written at a time, so widths do not add up. ∎

Construction. `constructions.theorems.thm_4_4` with one memory per layer.

Repaired. The paper writes K for M in the number of layers. The rest as in Theorem 4.4.

References. Wang & E, arXiv 2402.00522 (NeurIPS 2024), Proposition 4.5.
"""

from functools import partial

from analyzer.statements.theorem import Case
from analyzer.theorems import base, thm_4_4

ID = "prop-4.5"
TITLE = "un-nested lags on M + 1 layers: depth instead of width"
STATEMENT = {
    "lin": "√Σe_k² ≤ C(n)/H^n √(Σ_k e^{0.02(n+1)T_k}),  inner widths Ω̃(max ‖g_i‖²),  L = M + 1",
    "log": "√Σe_k² ≤ C(n)/H^n √(Σ_k T_k^{2.02(n+1)}),  inner widths Ω̃(max ‖log g_i‖² T_i²),  L = M + 1",
}
expression = thm_4_4.root_of_squares
citation = partial(base.citation, result="Proposition 4.5")
proof_graph = partial(thm_4_4.parallel_graph, ID, TITLE)

THEOREM = thm_4_4.adaptive_theorem(
    ID,
    TITLE,
    __doc__,
    (Case(thm_4_4.PAIR, {"layers": "deep", "error": 0.05}, {"heads": 128}),),
    6,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
)
