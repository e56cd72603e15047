"""The hard-attention lemma: a softmax whose logits have a gap is nearly a choice.

Statement. Let k ≥ 1 logits of N be maximal and equal, all others at least γ below, and let values lie in a set of diameter D. Then

    |softmax mean − mean of the winners' values| ≤ D r/(1+r),        r = ((N−k)/k) e^{−γ},                                     (H.1)

and with gaps γ_i of groups of n_i losers r = (1/k) Σ_i n_i e^{−γ_i}. Logits that are off by η each leave gaps of γ − 2η at least, and
move the weights among the winners by at most tanh(η/2) in total variation, so that their mean moves by D tanh(η/2).

*Infinite past.* If a match adds β to a logit and every step back costs p, and the most recent match lies s steps back, then

    r ≤ (e^{−p} + e^{ps−β})/(1 − e^{−p}).                                                                                     (H.2)

Proof. The losers share the weight Σ_i n_i e^{−γ_i}/(k + Σ_i n_i e^{−γ_i}) = r/(1+r), and what they hold is at most D away from the winners'
mean; a mean of both moves by that share. *Noise.* Logits that are off by |δ_i| ≤ η turn weights w_i into w_i e^{δ_i}/Σ w e^δ. A set of
weight a then weighs a e^{2η}/(a e^{2η} + 1 − a) at most; less a this is largest at a = 1/(1 + e^η), where it is
e^η/(1 + e^η) − 1/(1 + e^η) = tanh(η/2), and so no set gains more. *(H.2).* Relative to the match at s, tokens further back weigh at
most e^{−p}, e^{−2p}, …, whether they are matches or not, together e^{−p}/(1−e^{−p}); those that are more recent are no matches, at
distances 0 … s−1 with logits −β + p(s − distance), and Σ_{j=1}^{s} e^{pj−β} ≤ e^{ps−β}/(1 − e^{−p}). ∎
"""

from collections.abc import Iterable

from flint import arb


def loser_share(gaps: Iterable[tuple[int, arb]], winners: int = 1) -> arb:
    """r/(1+r), from above: what groups of losers (how many, how far below the winners at least) weigh together."""
    r = sum((count * (-gap).exp() for count, gap in gaps), arb(0)) / winners
    return share(r)


def share(r: arb) -> arb:
    """r/(1+r), from above."""
    return (r / (1 + r)).upper()


def with_noise(gap: arb, noise: arb) -> arb:
    """The gap that is left where every logit may be off by `noise`."""
    return (gap - 2 * noise).lower()


def tie_shift(noise: arb) -> arb:
    """How far weights may move where every logit may be off by `noise`, in total variation."""
    return (noise / 2).tanh().upper()


def recency_share(decay: arb, match: arb, distance: int) -> arb:
    """(H.2): what all other tokens weigh together, the most recent match being `distance` steps back."""
    rest = (-decay).exp()
    return share((rest + (decay * distance - match).exp()) / (1 - rest))
