"""The bucket law: lags that share a bias are not told apart, however many heads there are.

Setting. One layer whose scores read positions only: a head weighs the token s steps back by k_h(s) = e^{b_h(β(s))} / Σ_{s'<N}
e^{b_h(β(s'))} over a window of N tokens, all of them there (zero before the first). The biases b_h are learnt, one per class β(s) of
distances. *T5*: β puts the distances into B buckets; m = ⌊B/2⌋ of them hold one distance each, s = 0, …, m−1, the others are spaced
evenly in log s up to the distance D (causal form, Raffel et al.):

    β(s) = min(B−1, m + ⌊(B−m) log(s/m)/log(D/m)⌋)  for s ≥ m.

*Table*: every distance below the reach R is a class of its own, and N = R: no other distance is seen. *Stride*: heads with decays see the
distances 0, c, 2c, … and no others.

There are any number of heads, any real output weights a_h, the residual weight c, any feed-forward network, tokens in [−1, 1]; the target
is y_t = x_{t−T}, T ≥ 1. E_u(T) is the least ‖κ − 1_T‖₁ + u(|c| + Σ|a_h|) for κ(s) = c·1{s=0} + Σ_h a_h k_h(s).

Statement. (1) If β(T) = β(T') for some T' ≠ T with 1 ≤ T' < N, or if the token T back is not seen at all, the worst-case error is at
least 1, that of the zero network, with every read-out; E_u(T) = 1. (2) If T < N has a class of its own, one head serves it: for u ≤ 1

    u ≤ E_u(T) ≤ u + 2(N−1)/(e^b + N−1)     with the bias b at T and 0 elsewhere, so E_u(T) = u.

(3) Stride c: lags that c does not divide fall under (1); for the others, heads with lin, log or both kinds of decays have E_u(cT) equal
to E_u(T) of the same heads without a stride.

Proof. (1) Let x_{t−T} = 1, x_{t−T'} = −1 and all other tokens be 0, in particular x_t. Every head has k_h(T) = k_h(T') and reads k_h(T) −
k_h(T') = 0; so it does for the tokens −x. The read-out gets the same numbers twice and is asked for 1 and for −1: it errs by 1 at least
once. If T is not seen, x_{t−T} = ±1 alone does it. For linear read-outs this is |1 − κ(T)| + |κ(T')| ≥ 1.

(2) *Above.* a = 1, c = 0: κ(T) = e^b/(e^b + N−1), and the error is 1 − κ(T) + Σ_{s≠T} κ(s) = 2(1 − κ(T)). *Below.* k_h(T) ≤ 1 and T ≥ 1,
so with A = Σ|a_h| the budgeted error is at least |1 − κ(T)| + uA ≥ max(0, 1 − A) + uA ≥ u.

(3) e^{−pcj} = e^{−p'j} with p' = cp, and (cj)^{−p} is proportional to j^{−p}: on the places 0, c, 2c, … these are the same families of
normalised kernels. ∎

Remarks. The law is about positions alone; dot products may tell tokens of one bucket apart. With 32 buckets and distance 128 every lag
from 16 on shares its bucket. The last bucket is without end, so that T5's weights need a finite window. b = 64 is enough for every type
here: e^64 < 10^28 is in the range of bfloat16, float32 and float64, and the error that it leaves is below 10^-24 for windows of 1000
tokens.

Construction. `Buckets.of` decides the boundary by integers: β(s) ≥ m + k iff s^{B−m} m^k ≥ D^k m^{B−m}. Programs take ⌊·⌋ of a float32
logarithm, which could fall on the other side where both are equal (s = 32, B = 32, D = 256: 16·log 2/log 16 = 4). `limits positions`
computes the buckets of the window in float32 too and names the distances that differ; we know of none. `table-heads` builds (2) and
`stride-heads` builds (3).

References. Raffel et al., Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer, JMLR 21 (2020).
"""

from dataclasses import dataclass

from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.numbers.exact import working_precision
from analyzer.statements.theorem import Theorem

ID = "bucket-law"
TITLE = "one bias per bucket: lags that share one are not told apart"
BIAS = 64
"""b of (2)."""


@dataclass(frozen=True)
class Buckets:
    """T5's causal buckets: `count` of them, even in log s up to `distance`."""

    count: int = 32
    distance: int = 128

    def __post_init__(self) -> None:
        if self.count < 2 or self.distance <= self.exact:
            raise InputError(
                f"buckets are 2 or more, and distance is more than half of them: {self.count} and {self.distance} do not go together"
            )

    @property
    def exact(self) -> int:
        """m: distances below it have a bucket each."""
        return self.count // 2

    def of(self, s: int) -> int:
        """β(s), in whole numbers."""
        if s < self.exact:
            return s
        rest = self.count - self.exact
        low, high = 0, rest - 1
        while low < high:
            k = (low + high + 1) // 2
            low, high = (k, high) if self._reaches(s, k) else (low, k - 1)
        return self.exact + low

    def _reaches(self, s: int, k: int) -> bool:
        rest = self.count - self.exact
        return s**rest * self.exact**k >= self.distance**k * self.exact**rest

    def partner(self, lag: int, window: int) -> int | None:
        """Another distance of the window in the bucket of the lag, the next one if there is one; buckets hold neighbours."""
        others = (s for s in (lag + 1, lag - 1) if 1 <= s < window)
        return next((s for s in others if self.of(s) == self.of(lag)), None)


def own_class(window: int, unit: fmpq) -> tuple[arb, arb]:
    """(u, u + 2(N−1)/(e^b + N−1)): both sides of E_u for a lag with a bias of its own among N distances."""
    with working_precision(192):
        return arb(unit), arb(unit) + 2 * arb(window - 1) / (arb(BIAS).exp() + (window - 1))


THEOREM = Theorem(id=ID, title=TITLE, page=__doc__, shelf=22.7)
