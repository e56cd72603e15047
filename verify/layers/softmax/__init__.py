"""The certified worst-case error of any network with one softmax layer, whatever its weights.

Statement. Let a layer have softmax heads with dot products and positions, and let q be the token that looks. Heads return means of
tokens,

    ξ_h = N_h / D_h,   N_h = Σ_s w_h(s, x_s) x_s,   D_h = Σ_s w_h(s, x_s),   w_h(s, b) = κ_h(s) e^{α_h(q)·b},   α_h affine in q,

and the error E = F(q, ξ) − f(m) is a constant, a linear functional of (m, ξ), neurons, which are functions of (q, ξ), and ridges of f,
which are functions of m = (q, memories), what the target reads. Then |E| ≤ certified for all tokens in [−1, 1]^d, or for all letters;
float networks add the rounding of their evaluation.

Proof. Cells cover the values of single tokens, of the ξ_h and of a few functionals y of (q, ξ) that the neurons mostly read. On a cell:
(i) *Exchange.* For any Λ and λ, σE is at most a constant, plus max (σF − Λ·(q, ξ)) over the cell's box of y (`neurons`), plus the ridges'
own max (−σ s ψ − λ v), plus a linear functional L of (m, ξ).
(ii) *Ratios become sums.* With lo ≤ ξ ≤ hi and Lo ≤ D ≤ Hi on the cell, products of two of these differences are not negative:

    ξ ≤ lo + (N − lo D)/Lo,   ξ ≤ hi + (N − hi D)/Hi,   ξ ≥ hi + (N − hi D)/Lo,   ξ ≥ lo + (N − lo D)/Hi.

So L·(m, ξ) is at most a linear functional of (m, N, D), for any multipliers of these four and of the cell's own intervals (`bounds`).
(iii) *Sums are separable:* a linear functional of (m, N, D) is Σ_s g_s(x_s), and its supremum is Σ_s max_b g_s(b), one token at a time,
for as many tokens as there are; tokens of a cell that are cut have their own ranges.
(iv) *Nodes.* g_s and its dependence on q are known at nodes; between them weights are enclosed by Hoeffding's lemma (`ranges`). On a
finite alphabet the letters are the nodes, and nothing is lost.
(v) *Tails.* Far positions are taken together in blocks; what tells them apart, and all that lies beyond the last block, enters by its
mass (`masses`).

The ranges of y on a cell come from (ii) to (v), too. All of this is convex in multipliers; they come from subgradient steps, and any of
them are sound: bounds are evaluated in double precision with an a-priori bound of every rounding. Cells are cut until the certificate is
near its witness, or the work granted is done (`cover`). At every moment the largest bound of a cell is a certificate.
"""
