"""The monotone law: heads whose weights fall completely monotonely see no further than exponentials do.

Setting. One dp-free layer; a head weighs the token s ≥ 0 steps back by k(s) = w(s)/Σ w, Σ w < ∞, where w is *completely monotone from 1
on*:

    w(s) = ∫ z^s dμ(z)  for s ≥ 1,   μ ≥ 0 on [0, 1),   w(0) ≥ 0;      *from 0 on* if the formula holds at s = 0 too (0⁰ = 1).

From 0 on are lin heads (ALiBi), w = e^{−ps}; KERPLE's logarithmic form w = (1 + rs)^{−p} = ∫_0^∞ e^{−rsx} x^{p−1} e^{−x} dx/Γ(p) with r >
0 and p > 1, without which an infinite softmax leaves no weight to any token; and KERPLE's power form w = exp(−as^b), a > 0, 0 < b ≤ 1
(Bernstein: s^b has a completely monotone derivative). From 1 on are log heads, w = s^{−p}, w(0) = 0. There are any number of heads, any
real output weights a_h, the residual weight c. E_u(T) is the least ‖κ − 1_T‖₁ + u(|c| + Σ|a_h|) for κ = c·1{s=0} + Σ a_h k_h, and E_u^lin
that of lin heads.

Statement. (1) Heads that are completely monotone from 0 on have E_u(T) ≥ E_u^lin(T). (2) From 1 on, E_u(T) ≥ E_u^lin(T−1), T ≥ 2. (3) For
KERPLE's logarithmic form with free r and p, and for its power form with free a and b ≤ 1, **E_u(T) = E_u^lin(T)**. (4) For *given* lin
decays too the least error never falls with T.

So the lags that an arithmetic lets lin heads resolve, E_u < 1/2, are those of KERPLE; and log heads, or lin and log heads together,
resolve at most one lag more. What the π-law says of lin heads it says of all of them.

Proof. (1) With ℓ_z(s) = (1−z)z^s, the normalised lin kernel, k_h = ∫ ℓ_z dμ_h(z)/((1−z)Σw_h): a mean of lin kernels, for the masses ∫
dμ_h/(1−z) = Σw_h add up to 1. So Σ a_h k_h = ∫ ℓ_z dν(z), |ν| ≤ Σ|a_h|. The map z ↦ ℓ_z ∈ ℓ¹ is continuous and of norm 1 on [0, 1), so
finite sums Σ b_j ℓ_{z_j} with Σ|b_j| ≤ Σ|a_h| come as close to it in ℓ¹ as we like (z_j = 0 is the residual). They are lin banks.

(2) Look at κ(s+1), s ≥ 0, which has no residual and the error ‖κ(·+1) − 1_{T−1}‖₁ ≤ ‖κ − 1_T‖₁. Here k_h(s+1) = ∫ ℓ_z z dμ_h/((1−z)Σw_h)
with the mass ∫ z/(1−z) dμ_h = Σ_{s≥1} w_h(s) ≤ Σw_h: a mean of lin kernels again, times at most 1. Go on as in (1).

(3) ≥ is (1). ≤: p = λ/r and r → 0 gives (1 + rs)^{−p} → e^{−λs} for every s, and the normalised kernels converge in ℓ¹ (Scheffé; for r ≤
r_0 the weights are below those of r_0, which have a finite sum); so every lin bank is a limit. The power form has the lin heads at b = 1.

(4) If κ serves the lag T+1 with weights a_h, then κ(s+1), s ≥ 0, serves T with the weights a_h z_h, no larger, and without residual. ∎

Construction. `verify.limits.powers` certifies both sides of the best error for given heads (1 + rs)^{−p}; `kerple-heads` builds networks
of them.

References. Chi, Fan, Ramadge & Rudnicky, KERPLE: Kernelized Relative Positional Embedding for Length Extrapolation, NeurIPS 2022; Press,
Smith & Lewis, Train Short, Test Long, ICLR 2022; Schilling, Song & Vondraček, Bernstein Functions, de Gruyter 2012.
"""

import re
from dataclasses import dataclass

from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.numbers.exact import rational
from analyzer.statements.theorem import Theorem

ID = "monotone-law"
TITLE = "ALiBi, KERPLE and powers see no further than exponentials"
LEAST_EXCESS = fmpq(1, 16)
"""Exponents are at least 1 plus this: slower heads have their mass beyond every block."""
MOST = 1 << 10
MAX_HEADS = 64


@dataclass(frozen=True)
class PowerHead:
    """A head (1 + rs)^{−p}."""

    exponent: fmpq
    rate: fmpq

    @property
    def offset(self) -> fmpq:
        """A = 1/r."""
        return 1 / self.rate

    def tail(self, start: int) -> arb:
        """The share of its mass at s ≥ start."""
        p = arb(self.exponent)
        return p.zeta(arb(self.offset + start)) / p.zeta(arb(self.offset))

    def amplitude(self) -> arb:
        """k(s) is this times (s + A)^{−p}."""
        return 1 / arb(self.exponent).zeta(arb(self.offset))


def powers_of(text: str) -> tuple[PowerHead, ...]:
    """Heads from text: p:r for every head, such as "2:1,3:0.5"; r is 1 where it is left out."""
    parts = [re.fullmatch(r"\s*([^:\s]+)\s*(?::\s*([^:\s]+)\s*)?", part) for part in text.split(",")]
    if len(parts) > MAX_HEADS:
        raise InputError(f"kerple takes at most {MAX_HEADS} heads")
    heads = []
    for part in parts:
        if part is None:
            raise InputError(f"kerple is {text[:40]!r}; give p:r for every head of weights (1 + rs)^-p, such as 2:1,3:0.5")
        heads.append(PowerHead(rational(part[1]), rational(part[2] or "1")))
    if any(not 1 + LEAST_EXCESS <= h.exponent <= MOST or not 1 <= h.rate * MOST <= MOST**2 for h in heads):
        raise InputError(
            f"kerple takes exponents from 1.0625 to {MOST} (an infinite softmax needs p > 1) and rates from 1/{MOST} to {MOST}"
        )
    if len(set(heads)) < len(heads):
        raise InputError("kerple has the same head twice")
    return tuple(heads)


THEOREM = Theorem(id=ID, title=TITLE, page=__doc__, shelf=22.4)
