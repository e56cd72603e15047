"""The lag law: what one dp-free layer must have to see T tokens back.

Setting. One dp-free layer with n lin heads and m log heads, the residual, any feed-forward network of any width, tokens ranging over [−1,
1] coordinate-wise, at least 2T−1 past tokens; target y_t = x_{t−T}.

Statement. If m = 0 and n ≤ T−1, or n = 0 and m ≤ T−1, or m ≥ 1 and 2n + m ≤ T−1, the worst-case error is at least 1, that of the zero
network. With the minimal banks **the least number of heads for lag T, for every error in (0, 1), is exactly T with heads of one type, lin
or log, and exactly ⌊T/2⌋ + 1 with heads of both types**.

Both sides. *Fewer do not.* One type: the first two cases. Both types: let H = n + m heads have an error below 1. If m = 0 then H ≥ T ≥
⌊T/2⌋ + 1. If m ≥ 1 then T ≤ 2n + m = 2H − m ≤ 2H − 1, so H ≥ (T+1)/2, and H is whole. *As many do.* lin: κ(s) = 0 for 1 ≤ s < T, 1 at T,
and e = 1/Π_h(1−z_h) − 1 → 0 as the z_h do, (3.3) in `analyzer.lemmas.extraction`. log: zeros at the same places, e → 0 as the decays grow,
(3.4) there. Both: one log head and ⌊T/2⌋ lin heads, the nodes of a Gauss rule (odd T) or of a Radau rule (even T) for the measure of the
log head, with the same zeros and e → 0 as its decay grows, (3.8) and (3.10) in `analyzer.lemmas.quadrature`. There m = 1 and 2n + m is T or
T + 1: for even T one degree of freedom is left, and any small node will do for it.

Proof of the lower bound. On s ≥ 1 the kernel is κ(s) = ∫ z^s dμ(z) with a signed measure μ on (0, 1): an atom for every lin head, and for
log heads s^{−p} = ∫_0^1 z^s (−log z)^{p−1}/Γ(p) dz/z. We show, for measures with at most T−2 sign changes,

    |κ(T)| ≤ Σ_{1≤s≤2T−1, s≠T} |κ(s)|.                                                                        (∗)

*Sign changes.* n atoms have at most n−1. The density of m log heads is a generalised polynomial in t = −log z with m terms, so at most m−1
(Descartes). Each of n atoms put into it adds at most two: 2n + m − 1 in all. In every case of the statement that is at most T−2.

*Atoms only* (at most T−1 of them). The T×T Hankel matrix κ(i+j+1), 0 ≤ i, j < T, has rank at most T−1. Its antidiagonal is κ(T), and the
row i holds κ(i+1), …, κ(i+T), each once: were (∗) false, the matrix with its columns reversed would be strictly diagonally dominant,
hence regular.

*Any measure with V ≤ T−2 sign changes.* Suppose (∗) fails. It fails strictly, so it still fails after μ is restricted to finitely many
closed intervals with gaps between them, on each of which μ has one sign, V sign changes in all. Fix those intervals and signs, and let C
⊂ R^{2T−1} be the cone of the moments (κ(1), …, κ(2T−1)) of all measures with this sign pattern. A polynomial q of degree V with its zeros
in the gaps has q·μ ≥ 0, so the linear form Σ_k q_k κ(k+1) is positive on C∖{0} (V + 1 ≤ 2T−1): C is closed and pointed. Let O be the
orthant that contains the offending κ, κ(T) > 0 say; on C ∩ O the inequality reads L(κ) = κ(T) − Σ_{s≠T} ±κ(s) ≤ 0 with fixed signs,
linear. C ∩ O is a closed pointed cone, so if L > 0 somewhere, L > 0 on an extreme ray e. Let j of the numbers e(s) vanish. The smallest
face of C that contains e has dimension at most j + 1 (otherwise e could be moved in two directions without leaving C ∩ O), so by
Carathéodory e is a combination of at most j + 1 generators, that is of k ≤ j + 1 atoms. An exponential sum with k atoms and at most V
sign changes in its weights has at most min(k − 1, V) zeros (Descartes again), so j ≤ V ≤ T−2 and k ≤ T−1: atoms only, and L(e) ≤ 0 after
all. ∎

*No read-out helps.* By (∗), κ ↦ κ(T) is bounded by the seminorm Σ_{s≠T} |κ(s)| on the span of the heads, so by Hahn–Banach there is δ on
1..2T−1 with |δ_s| ≤ 1, δ_T = 1 and Σ_s δ_s k_h(s) = 0 for every head. With the tokens x_{t−s} = ±δ_s, x_t = 0, the layer hands the same
numbers to its feed-forward network, and is asked for +1 and −1.

Several memories: to deliver each of them with error below 1, as many heads are needed as for the longest lag, shared by all; a single
scalar combination of memories can do with fewer. Tokens ±1 and a wide network escape the law: one head with z < 1/2 is injective on ±1
histories.

Construction. `orthogonal_input` exhibits δ for given decays and certifies it: all but H entries are chosen rational, the remaining ones
are the solution of a linear system that is enclosed in balls, and all of them are shown to lie in [−1, 1].

References. For lin heads and Hankel matrices: Peller, Hankel Operators and Their Applications, Springer 2003; Descartes' rule for
exponential sums: Pólya & Szegő, Problems and Theorems in Analysis II, part V.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flint import arb, arb_mat, fmpq

from analyzer.errors import InputError
from analyzer.numbers.exact import working_precision
from analyzer.statements.theorem import Theorem

ID = "lag-law"
TITLE = "heads per lag: T heads of one type, ⌊T/2⌋ + 1 of both"


@dataclass(frozen=True)
class LagLaw:
    """The least number of heads that delivers each memory with error below 1, and how firmly that is known."""

    heads: int
    status: str


def lag_law(rpe: str, lags: Sequence[int], error: float = 0.0) -> LagLaw:
    """Lower bound on heads; an error of 1 or more needs none (the zero network)."""
    longest = max(lags)
    heads = longest if rpe != "mixed" else (longest + 2) // 2  # ⌊T/2⌋ + 1: least n + m with m ≥ 1 and 2n + m ≥ T, or n ≥ T
    return LagLaw(0 if error >= 1 else heads, "proved")


def applies(heads: Sequence[tuple[str, fmpq]], lag: int) -> bool:
    """Whether these heads are too few for the lag."""
    lin, log = (sum(rpe == kind for rpe, _ in heads) for kind in ("lin", "log"))
    return (lin if log == 0 else 2 * lin + log) <= lag - 1


def orthogonal_input(heads: Sequence[tuple[str, fmpq]], lag: int, guess: Sequence[fmpq], solved: Sequence[int]) -> list[arb]:
    """Enclosure of δ on s = 1..len(guess): equal to the guess except at the places `solved` (s, one per head), where it makes δ orthogonal.

    Raises InputError unless δ_T = 1 and |δ_s| ≤ 1 everywhere are certain: then these heads err by at least 1 on lag T.
    """
    if len(solved) != len(heads) or len(set(solved)) < len(solved) or lag in solved or not all(1 <= s <= len(guess) for s in solved):
        raise InputError("an orthogonal input is solved for at one place per head, not at the lag")
    if not 1 <= lag <= len(guess) or guess[lag - 1] != 1:
        raise InputError("an orthogonal input is 1 at the lag")
    with working_precision(256 + 32 * len(heads) * max(1, len(guess).bit_length())):
        free = set(solved)
        system = arb_mat(len(heads), len(heads), [_raw(head, s) for head in heads for s in solved])
        right = []
        for head in heads:
            fixed = (arb(v) * _raw(head, s) for s, v in enumerate(guess, start=1) if s not in free and v != 0)
            right.append(-sum(fixed, arb(0)))
        try:
            found = system.solve(arb_mat(len(heads), 1, right))
        except ZeroDivisionError:
            raise InputError("the system for the orthogonal input is singular") from None
        result = [arb(v) for v in guess]
        for k, s in enumerate(solved):
            result[s - 1] = found[k, 0]
    if not all(abs(v) <= 1 for v in result):
        raise InputError("an entry of the orthogonal input may exceed 1")
    return result


def _raw(head: tuple[str, fmpq], s: int) -> arb:
    """The kernel of a head at s ≥ 1, not normalised, scaled to 1 at s = 1."""
    rpe, decay = head
    return (-arb(decay) * (s - 1)).exp() if rpe == "lin" else arb(s) ** -arb(decay)


THEOREM = Theorem(id=ID, title=TITLE, page=__doc__, shelf=20)
