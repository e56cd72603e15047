"""The π-law: a lag costs about π/ln 2 ≈ 4.53 bits of precision per step (lin heads), with a closed-form certificate.

Setting. The budgeted error E_u(T) of lin heads (`analyzer.limits.budgeted_error`): any number of heads, any decays, the residual.

Statement. For every real λ > 0 let r_{−1} = 0, r_0 = 1, r_{n+1} = a_n r_n − r_{n−1} with a_n = 2λ/(n+1), and b_s = (−1)^s r_{2s}. Then

    E_u(T) ≥ |b_T| / max(1/u, sup_s |b_s|),    and for every N ≥ λ    sup_{n≥N} r_n² ≤ 2 I_N/(2 − a_N),  I_n = r_n² + r_{n−1}² − a_n r_n
    r_{n−1}.

What is proved, and what is not. Both displays are theorems for every λ, T and u, and `pi_bound` evaluates them rigorously. "About 4.53
bits per step" is not one. From below it says that the largest b_T at a given sup|b| grows like e^{πT}, up to powers of T (λ near 2T, and
near 2 ln(1/u)/π where sup|b| reaches 1/u): a sketch, below. From above it says that banks reach what the bound leaves: that is
numerical, by banks certified one by one. The rule of thumb ⌊ln(1/u)/π⌋ for the horizon, the largest T with E_u(T) < 1/2, is right for
bfloat16, float32 and float64 (1, 5, 11) and one too large at 14 and at 23 bits (the horizon of `limits lag` for 14 bits).

Proof. *The sequence.* R(x) = Σ r_n x^n satisfies (1 + x²)R' = (2λ − 2x)R, so R(x) = e^{2λ arctan x}/(1 + x²). At x = i√z its real part is

    Σ_s b_s z^s = cos(2λ artanh √z)/(1 − z),     hence  |(1 − z) Σ_s b_s z^s| ≤ 1 on [0, 1).

The transform of b at a lin decay is F = (1 − z)Σ b_s z^s with z = e^{−p}: b/max(1/u, sup|b|) is a feasible dual sequence.

*The supremum.* From the recurrence, r_{n+1}² + r_n² − a_n r_{n+1} r_n = I_n, so I_{n+1} = I_n + (a_n − a_{n+1}) r_n r_{n+1}. While a_n <
2, that is n + 1 > λ, I_n is a positive definite form with I_n ≥ (1 − a_n/2)(r_n² + r_{n−1}²), so |r_n r_{n+1}| ≤ I_{n+1}/(2 − a_{n+1})
and

    I_{n+1} (1 − (a_n − a_{n+1})/(2 − a_{n+1})) ≤ I_n,    that is    I_{n+1}/(2 − a_{n+1}) ≤ I_n/(2 − a_n):

this energy never grows. Since I_n ≥ r_n² (1 − a_n²/4), r_n² ≤ 4 I_n/((2 − a_n)(2 + a_n)) ≤ 2 I_n/(2 − a_n) ≤ 2 I_N/(2 − a_N) for n ≥ N.
∎

*The growth* (sketch). For n < λ the recurrence grows without turning; r_{2T} is the Meixner–Pollaczek polynomial P^{(1)}_{2T}(λ; π/2),
orthogonal for the weight πλ/sinh πλ, whose size at its turning point λ = 2T is (sinh(πλ)/πλ)^{1/2} ≈ e^{πT} up to powers of T.

A cruder bound by hand: δ_s = (−1)^s C(2T, s) has (1 − z)Σδ_s z^s = (1 − z)^{2T+1} ≤ 1 and largest entry C(2T, T) at s = T, so
E_u(T) ≥ min(1, u·C(2T, T)). This one is proved for all T and u, but C(2T, T) < 4^T: two bits per step instead of about 4.53.

Construction. `pi_bound` evaluates both sides in balls for a rational λ; the N of the energy is 16λ, where a_N ≤ 1/8 costs at most 7 %.

References. Koekoek, Lesky & Swarttouw, Hypergeometric Orthogonal Polynomials, Springer 2010, 9.7.
"""

import math
from dataclasses import dataclass

from flint import arb, fmpq, fmpz

from analyzer.errors import InputError
from analyzer.numbers.exact import magnitude, maximum, working_precision
from analyzer.statements.theorem import Theorem

ID = "pi-law"
TITLE = "bits per lag: e^{πT} against 1/u"
TURNS = 16
"""N/λ: the recurrence is followed exactly up to there."""


@dataclass(frozen=True)
class Coefficients:
    """|b_T| and an upper bound of sup_s |b_s|, for one λ."""

    frequency: fmpq
    value: arb
    largest: arb


def coefficients(lag: int, frequency: fmpq) -> Coefficients:
    """b_T from the recurrence, and the supremum of the whole sequence: exactly up to N, by the energy after it."""
    if lag < 1 or not 0 < frequency <= 1 << 12:
        raise InputError("the π-law takes lags from 1 on and frequencies between 0 and 4096")
    count = max(2 * lag, math.ceil(float(arb(frequency)) * TURNS)) + 2
    with working_precision(128 + 2 * count):  # each step may lose two bits at most: |a_n| ≤ 2λ ≤ 2N
        double = 2 * arb(frequency)
        before, current, even = arb(0), arb(1), [arb(1)]
        for n in range(count):
            before, current = current, double / (n + 1) * current - before
            if n % 2:
                even.append(abs(current))
        ratio = double / (count + 1)
        energy = current * current + before * before - ratio * current * before
        after = (2 * energy / (2 - ratio)).sqrt()
        return Coefficients(frequency, even[lag], maximum([*even, after]).upper())


def pi_bound(lag: int, unit: fmpq, frequency: fmpq) -> arb:
    """The lower bound of E_u(T) by δ_λ."""
    found = coefficients(lag, frequency)
    return (found.value / (1 / arb(unit)).max(found.largest)).lower()


def best_pi_bound(lag: int, unit: fmpq) -> tuple[arb, fmpq]:
    """(bound, λ) for the best λ among eighths near 2T and near the frequency at which sup|b| reaches 1/u."""
    bits = max(1, -magnitude(arb(unit)))
    centres = {2 * lag, round(2 * bits * math.log(2) / math.pi)}
    candidates = {fmpq(8 * c + k, 8) for c in centres for k in range(-24, 25) if 8 * c + k > 0}
    return max(((pi_bound(lag, unit, f), f) for f in candidates), key=lambda pair: float(pair[0]))


def hand_bound(lag: int, unit: fmpq) -> fmpq:
    """min(1, u·C(2T, T))."""
    return min(fmpq(1), unit * fmpq(fmpz(math.comb(2 * lag, lag))))


def rule(unit: fmpq) -> int:
    """⌊ln(1/u)/π⌋."""
    with working_precision(256):
        value = (-arb(unit).log() / arb.pi()).floor().unique_fmpz()
    assert value is not None
    return int(value)


THEOREM = Theorem(id=ID, title=TITLE, page=__doc__, shelf=22)
