"""What no head with m_h query and key coordinates can do: the best rank-m coupling, from the spectrum.

Setting. A head with logits a(u, v) = q(u)·k(v), q, k: [0, 1] → R^m arbitrary (any feed-forward network, any weights), in place of a
coupling ρ(u, v). Softmax over v does not see functions of u alone. Let σ_1 ≥ σ_2 ≥ … be the singular values of ρ − ∫ρ(·, v) dv, the
coupling with its mean over v removed, and

    best(m) = (Σ_{k>m} σ_k²)^{1/2}.

Statement. For all q, k with m coordinates, δ = ρ − a and independent uniform u, v, w:

    inf_g ‖ρ − g(u) − a‖_{L²} ≥ best(m), with equality for the truncated decomposition;
    (E[δ(u, v) − δ(u, w)]²)^{1/2} ≥ √2 best(m): by so much are the log-odds of two tokens wrong, in root mean square;
    sup_u ½ osc_v δ(u, ·) ≥ best(m): what `verify` certifies for a network of Theorem 4.2 can never be smaller.

Proof. Let Π take the mean over v, (Πg)(u) = ∫g(u, v) dv, and P = I − Π, an orthogonal projection of L²[0, 1]². It removes functions
of u, and it keeps couplings of rank m: P(Σ_i q_i(u) k_i(v)) = Σ_i q_i(u) (k_i(v) − ∫k_i). So ‖ρ − g − a‖ ≥ ‖Pρ − Pa‖ ≥ best(m), the
distance of Pρ from rank m (Eckart–Young); g = Πρ − Πa and the truncated decomposition of Pρ attain it. For the second, E[δ(u, v) −
δ(u, w)]² = 2 E_u Var_v δ(u, v) = 2‖Pδ‖². For the third, a variance is at most the square of half the range (Popoviciu), so sup_u (½
osc_v δ)² ≥ E_u Var_v δ = ‖Pδ‖².

Plain singular values, without the mean removed, bound ‖ρ − a‖ in the same way. They are what Jiang & Li's Theorem 4.2 speaks of; the
difference is at most one: Π has rank one in v, so σ_{k+1}(ρ) ≤ σ_k(Pρ) ≤ σ_k(ρ).

Certified singular values come from `analyzer.lemmas.pod`: closed forms, or quadrature with Weyl's inequality and a rigorous interpolation
error.

References. Eckart & Young (1936); Popoviciu (1935); Jiang & Li, arXiv 2305.18475.
"""

from typing import TYPE_CHECKING

from flint import arb

from analyzer.numbers.exact import working_precision
from analyzer.statements.theorem import Theorem

if TYPE_CHECKING:
    from analyzer.targets.coupling import Coupling

ID = "coupling-rank"
TITLE = "what m_h query and key coordinates cannot do"


def best_error(coupling: "Coupling", rank: int, bank: str = "centred") -> arb:
    """Enclosure of best(m), or of the same for the plain coupling."""
    from analyzer.lemmas.low_rank import spectrum
    from analyzer.targets.coupling import BITS

    with working_precision(BITS):
        energy = spectrum(coupling, bank).tail_energy(rank)
        return energy.lower().max(arb(0)).sqrt().union(energy.upper().max(arb(0)).sqrt())


THEOREM = Theorem(id=ID, title=TITLE, page=__doc__, shelf=24)
