"""Extraction errors e = ‖κ − 1_T‖_ℓ¹ of head banks: what the lemmas promise, with explicit constants.

`paper` and `tuned` banks (Wang & E, Lemmas F.1 and F.4). A bump centred at the lag is interpolated in H Chebyshev points; with
B_n = TV(Ψ^(n)), every rate n ≥ 1 and H ≥ n+2,

    lin   e ≤ 4 B_n e^{1+γT} / (π n (2σ)^n (H−1−n)^n) · 1/(1−e^{−γ}),   σ = e^{−αT} − e^{−α(T+1)}          (3.1)
    log   e ≤ 4 B_n e T^{1+γ} ζ(1+γ) / (π n (2σ)^n (H−1−n)^n),          σ = T^{−α} − (T+1)^{−α}              (3.2)

The paper fixes α = γ = 1/100. The right-hand sides separate into a factor of α and a factor of γ, so the best choice is exact:

    lin   α = γ = log(1 + 1/T)     (both stationary conditions read e^x − 1 = 1/T; close to the hand choice 1/T)
    log   α = log(log(T+1)/log T) / log(1 + 1/T),   γ the zero of log T + ζ'(1+γ)/ζ(1+γ)

For T = 1 the log factors only fall as α, γ → ∞; there we stop at the first integers that are within 1 % of the infimum.

`minimal` banks (T heads): lin with decays z_h = e^{−p_h}, e = 1/Π(1−z_h) − 1 for the lag T = H and
e ≤ Σ_{j>H−T} e_j(z)/Π(1−z_h) for T < H (3.3); log with p_h = B + η(h−1), zeros at every s ≤ H but T,
e ≤ T^B ζ(B, H+1) Π_{j≤H, j≠T} |1 − (j/T)^η|^{−1} (3.4).

In mean square over independent tokens of variance v the same interpolation banks have, since κ(s) − 1_T(s) = w(s) δ(s) with |δ| at most
the uniform error of the interpolant and w the slowest head, e^{−γs} or s^{−1−γ}, whose ‖w‖₁ is the last factor of (3.1) and (3.2),

    E|error|² ≤ v e² ‖w‖₂²/‖w‖₁²,    lin: (1−e^{−γ})/(1+e^{−γ}),    log: ζ(2+2γ)/ζ(1+γ)²                           (3.11)

with e from (3.1) or (3.2).

Lags B ≤ T known at run time only (Lemmas F.2, F.5), κ(s; B) = Σ_h a_h e^{−p_h(s−B)} or Σ_h a_h (s/B)^{−p_h}. The interpolation banks
for T keep (3.1) and (3.2) for every B: shifted, κ(s; B) = κ_T(s − B + T), or rescaled, κ(s; B) = κ_T(sT/B), where s = B ± 1 stay
outside the bump. Minimal banks: lin with T+1 heads, zeros at s − B + T = 0 … T−1; log with zeros at the ratios q = s/B < 1 that occur:

    lin   e = 1/Π(1−z_h) − 1 for all B at once                                                               (3.6)
    log   e ≤ T^{B₀} ζ(B₀, T+1) Π_q (1−q^η)^{−1},   p_h = B₀ + η(h−1)                                         (3.7)
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

import sympy
from flint import arb, arb_poly, arb_series, ctx, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.families import LayerRpe, Rpe
from analyzer.lemmas.bump import RATES, variation
from analyzer.numbers.exact import rational, upper, working_precision
from analyzer.numbers.formula_values import evaluate
from analyzer.numbers.search import golden, least_whole

alpha, gamma, n, H, T, b, eta, B0 = sympy.symbols("alpha gamma n H T b eta B", positive=True)
B = sympy.Function("B")


class _Formulas(dict[str, sympy.Expr]):
    """A formula per type of relative positions, made when it is asked for: sympy takes its time over special functions."""

    def __init__(self, make: Callable[[str], sympy.Expr]) -> None:
        super().__init__()
        self.make = make

    def __missing__(self, rpe: str) -> sympy.Expr:
        self[rpe] = formula = self.make(rpe)
        return formula


def _sigma(rpe: str) -> sympy.Expr:
    return sympy.exp(-alpha * T) - sympy.exp(-alpha * (T + 1)) if rpe == "lin" else T**-alpha - (T + 1) ** -alpha


def _extraction(rpe: str) -> sympy.Expr:
    lin = rpe == "lin"
    height = sympy.exp(1 + gamma * T) / (1 - sympy.exp(-gamma)) if lin else sympy.E * T ** (1 + gamma) * sympy.zeta(1 + gamma)
    return 4 * B(n) * height / (sympy.pi * n * (2 * SIGMA[rpe]) ** n * (H - 1 - n) ** n)


def _share(rpe: str) -> sympy.Expr:
    if rpe == "lin":
        return (1 - sympy.exp(-gamma)) / (1 + sympy.exp(-gamma))
    return sympy.zeta(2 + 2 * gamma) / sympy.zeta(1 + gamma) ** 2


SIGMA = _Formulas(_sigma)
EXTRACTION = _Formulas(_extraction)
"""(3.1) and (3.2)."""
MEAN_SQUARE_SHARE = _Formulas(_share)
"""The factor of (3.11)."""

z = sympy.Function("z")


@cache
def minimal_expression(rpe: Rpe) -> sympy.Expr:
    """(3.3) at the optimal nodes on [0, b], and (3.4), for the lag T with T heads; made when asked for, which takes a tenth of a second."""
    if rpe == "lin":
        return 1 / ((1 - b) * (b / 4) ** (T - 1) * sympy.chebyshevu(T - 1, 2 / b - 1)) - 1
    return T**B0 * sympy.zeta(B0, T + 1) * sympy.Product(1 / (1 - (n / T) ** eta), (n, 1, T - 1))


@cache
def adaptive_minimal_expression(rpe: Rpe) -> sympy.Expr:
    """(3.6) and (3.7); q(n) runs over the ratios s/B < 1 of the lags that occur."""
    if rpe == "lin":
        return sympy.Product(1 / (1 - z(n)), (n, 1, T + 1)) - 1
    return T**B0 * sympy.zeta(B0, T + 1) * sympy.Product(1 / (1 - sympy.Function("q")(n) ** eta), (n, 1, H - 1))


def adaptive_expression(rpe: Rpe, bank: str) -> sympy.Expr:
    """The extraction error of one memory whose lag is known at run time."""
    return adaptive_minimal_expression(rpe) if bank == "minimal" else EXTRACTION[rpe]


@dataclass(frozen=True)
class Tuning:
    """The free parameters of (3.1) and (3.2), as exact numbers."""

    alpha: fmpq
    gamma: fmpq


PAPER = Tuning(fmpq(1, 100), fmpq(1, 100))


@cache
def tuned(rpe: Rpe, lag: int) -> Tuning:
    """The minimiser of (3.1) or (3.2) over α and γ, rounded to floats (the bound is evaluated at the rounded values)."""
    if rpe == "lin":
        value = rational(math.log1p(1 / lag))
        return Tuning(value, value)
    if lag == 1:
        return _tuned_log_lag_one()
    best_alpha = math.log(math.log(lag + 1) / math.log(lag)) / math.log1p(1 / lag)
    return Tuning(rational(best_alpha), rational(_best_gamma(lag)))


def _tuned_log_lag_one() -> Tuning:
    """First integers α, γ with (1−2^{−α})^{−n} ≤ 1.005 for every offered n and ζ(1+γ) ≤ 1.005: within 1 % of the infimum."""
    best_alpha = next(a for a in range(1, 64) if (1 - 2.0**-a) ** -RATES[-1] <= 1.005)
    best_gamma = next(g for g in range(1, 64) if upper(arb(1 + g).zeta()) <= 1.005)
    return Tuning(fmpq(best_alpha), fmpq(best_gamma))


def _best_gamma(lag: int) -> float:
    """Bisection for the zero of log T + ζ'/ζ(1+γ), which increases in γ; the bracket follows from −ζ'/ζ(1+γ) < 1/γ."""
    with working_precision(64):
        previous, ctx.cap = ctx.cap, 2
        try:
            low, high = 0.0, 1 / math.log(lag)
            for _ in range(50):
                middle = (low + high) / 2
                value, slope = arb_series([arb(1 + middle), arb(1)]).zeta().coeffs()
                low, high = (middle, high) if float(slope / value) + math.log(lag) < 0 else (low, middle)
        finally:
            ctx.cap = previous
    return (low + high) / 2


def hand_tuning(rpe: Rpe, lag: int) -> Tuning | None:
    """The closed form to read beside the minimum: α = γ = 1/T (lin), 1/log T (log, T ≥ 2)."""
    if rpe == "lin":
        return Tuning(fmpq(1, lag), fmpq(1, lag))
    return Tuning(*[rational(1 / math.log(lag))] * 2) if lag > 1 else None


def choose_tuning(kind: str, rpe: Rpe, lag: int) -> Tuning:
    """`paper` or `tuned`."""
    return PAPER if kind == "paper" else tuned(rpe, lag)


@cache
def shared_tuning(kind: str, rpe: Rpe, lags: tuple[int, ...], rate: int) -> Tuning:
    """One (α, γ) for all lags, minimising the sum of the bounds.

    Each bound is exp(convex in γ + n · convex in α), so the sum is convex and descent by coordinates finds its minimum, which
    lies between the minimisers of the single lags.
    """
    if kind == "paper" or len(lags) == 1:
        return choose_tuning(kind, rpe, lags[-1])
    singles = [tuned(rpe, lag) for lag in lags]
    alphas = [float(arb(t.alpha)) for t in singles]
    gammas = [float(arb(t.gamma)) for t in singles]

    def log_total(a: float, g: float) -> float:
        terms = [_log_height(rpe, lag, g) - rate * _log_sigma(rpe, lag, a) for lag in lags]
        return max(terms) + math.log(sum(math.exp(t - max(terms)) for t in terms))

    a, g = max(alphas), max(gammas)
    for _ in range(6):
        a = golden(partial(lambda g, v: log_total(v, g), g), min(alphas), max(alphas))
        g = golden(partial(log_total, a), min(gammas), max(gammas))
    return Tuning(rational(a), rational(g))


def _log_height(rpe: Rpe, lag: int, g: float) -> float:
    if rpe == "lin":
        return g * lag - math.log(-math.expm1(-g))
    return (1 + g) * math.log(lag) + math.log(float(arb(1 + g).zeta()))


def _log_sigma(rpe: Rpe, lag: int, a: float) -> float:
    if rpe == "lin":
        return -a * lag + math.log(-math.expm1(-a))
    return -a * math.log(lag) + math.log(-math.expm1(-a * math.log1p(1 / lag)))


def coefficient(rpe: Rpe, lag: int, rate: int, tuning: Tuning) -> arb:
    """C with e ≤ C/(H−1−n)^n: (3.1) or (3.2) at H = n + 2."""
    values = {alpha: tuning.alpha, gamma: tuning.gamma, n: rate, T: lag, H: rate + 2, B(n): variation(rate)}
    return evaluate(EXTRACTION[rpe], values)


@cache
def _log_coefficient(rpe: Rpe, lag: int, rate: int, tuning: Tuning) -> float:
    return float(coefficient(rpe, lag, rate, tuning).log())


def extraction_bound(rpe: Rpe, lag: int, heads: int, rate: int, tuning: Tuning) -> arb:
    """(3.1) or (3.2); infinite if H < n + 2."""
    if heads < rate + 2:
        return arb.pos_inf()
    return coefficient(rpe, lag, rate, tuning) / arb(heads - 1 - rate) ** rate


def mean_square_share(rpe: Rpe, slowest: fmpq) -> arb:
    """‖w‖₂²/‖w‖₁² of the slowest head w(s) = e^{−γs} or s^{−1−γ}: an interpolation bank's error kernel is w(s) times what is below its
    uniform error, so that v e² times this bounds its mean square (3.11)."""
    return evaluate(MEAN_SQUARE_SHARE[rpe], {gamma: slowest})


def minimal_bound(rpe: Rpe, lag: int, decays: Sequence[fmpq]) -> arb:
    """(3.3) or (3.4) for the bank with these decays, at the working precision; the lag shares the bank if it is below H."""
    heads = len(decays)
    if lag > heads:
        raise Refusal(lag_law_text(lag, heads, rpe))
    if rpe == "lin":
        ratios = [(-arb(p)).exp() for p in decays]
        whole = arb_poly([1])
        for z in ratios:
            whole = whole * arb_poly([1, -z])
        at_one = whole(arb(1))
        if lag == heads:
            return 1 / at_one - 1
        symmetric = [abs(c) for c in whole.coeffs()]
        return sum(symmetric[heads - lag + 1 :], arb(0)) / at_one
    base, step = _progression(decays)
    product = arb(1)
    for j in range(1, heads + 1):
        if j != lag:
            product /= abs(1 - (arb(j) / lag) ** step)
    return product * arb(lag) ** base * base.zeta(arb(heads + 1))


def _progression(decays: Sequence[fmpq]) -> tuple[arb, arb]:
    """(B, η) of decays B + ηh."""
    if any(b - a != decays[1] - decays[0] or b <= a for a, b in pairwise(decays)):
        raise InputError("the log decays are no progression B + ηh: not a minimal bank")
    return arb(decays[0]), arb(decays[1] - decays[0]) if len(decays) > 1 else arb(1)


def lag_ratios(lags: Sequence[int]) -> list[fmpq]:
    """The ratios s/B < 1, increasing, over the lags B that occur and 1 ≤ s < B: Farey fractions if every B ≤ T occurs."""
    return sorted({fmpq(s, lag) for lag in lags for s in range(1, lag)})


def adaptive_heads(rpe: Rpe, lags: Sequence[int]) -> int:
    """Heads of a minimal bank for lags known at run time: T + 1 (lin), one more than there are ratios s/B < 1 (log)."""
    return max(lags) + 1 if rpe == "lin" else len(lag_ratios(lags)) + 1


def adaptive_minimal_bound(rpe: Rpe, lags: Sequence[int], decays: Sequence[fmpq]) -> arb:
    """(3.6) or (3.7) for the bank with these decays, the worst over the lags that occur, at the working precision."""
    if len(decays) < adaptive_heads(rpe, lags):
        raise Refusal(f"{len(decays)} heads: a minimal {rpe} bank for these lags has {adaptive_heads(rpe, lags)}")
    if rpe == "lin":
        product = arb(1)
        for p in decays:
            product *= 1 - (-arb(p)).exp()
        return 1 / product - 1
    base, step = _progression(decays)
    longest, product = max(lags), arb(1)
    for ratio in lag_ratios(lags):
        product /= 1 - arb(ratio) ** step
    return product * arb(longest) ** base * base.zeta(arb(longest + 1))


def lag_law_text(lag: int, heads: int, rpe: LayerRpe) -> str:
    """The lag law as a sentence."""
    return (
        f"{heads} heads cannot extract lag {lag}: by the lag law ({rpe}) one dp-free layer with one RPE type needs at least "
        f"{lag} heads for any error below 1"
    )


@dataclass(frozen=True)
class AttentionBound:
    """Σ_k e_k for a split of the heads over the lags, at one rate n."""

    rpe: Rpe
    lags: tuple[int, ...]
    heads: tuple[int, ...]
    share: bool
    rate: int
    tunings: tuple[Tuning, ...]
    errors: tuple[arb, ...]

    @property
    def total(self) -> arb:
        return sum(self.errors[1:], self.errors[0])

    @property
    def total_heads(self) -> int:
        return self.heads[0] if self.share else sum(self.heads)


def split_heads(weights: Sequence[float], heads: int, least: int) -> tuple[int, ...] | None:
    """Heads in proportion to the weights, rounded to whole numbers that add up, each at least `least`; None if too few."""
    if heads < least * len(weights):
        return None
    free = heads - least * len(weights)
    ideal = [max(0.0, heads * w / sum(weights) - least) for w in weights]
    scale = free / sum(ideal) if sum(ideal) > 0 else 0.0
    shares = [w * scale for w in ideal]
    counts = [math.floor(s) for s in shares]
    by_remainder = sorted(range(len(shares)), key=lambda k: counts[k] - shares[k])
    for k in by_remainder[: free - sum(counts)]:
        counts[k] += 1
    return tuple(least + c for c in counts)


def attention_bound(
    rpe: Rpe, lags: Sequence[int], heads: int, tuning: str = "tuned", rate: int | None = None, share: bool = False
) -> AttentionBound:
    """The least Σ_k e_k over the offered rates (or at the given one), heads split as H_k ∝ C_k^{1/(n+1)}.

    For the paper's α = γ = 1/100 that split is its H_k ∝ e^{0.01 T_k} (lin) and, up to (1+1/T)^…, T_k^{1.01} (log).
    """
    if rate is not None and rate not in RATES:
        raise InputError(f"rate {rate} is not offered; choose from {RATES[0]} to {RATES[-1]} or 'best'")
    candidates = [_bound_at(rpe, tuple(lags), heads, tuning, r, share) for r in (RATES if rate is None else (rate,))]
    found = [c for c in candidates if c is not None]
    if not found:
        least = ((rate or 1) + 2) * (1 if share else len(lags))
        raise Refusal(
            f"{heads} heads are too few for the bound: rate n = {rate or 1} needs n + 2 heads per lag, {least} in all", {"heads": least}
        )
    return min(found, key=lambda c: upper(c.total))


def _bound_at(rpe: Rpe, lags: tuple[int, ...], heads: int, tuning: str, rate: int, share: bool) -> AttentionBound | None:
    if share:
        if heads < rate + 2:
            return None
        tunings = (shared_tuning(tuning, rpe, lags, rate),) * len(lags)
        split: tuple[int, ...] | None = (heads,) * len(lags)
    else:
        tunings = tuple(choose_tuning(tuning, rpe, lag) for lag in lags)
        logs = [_log_coefficient(rpe, lag, rate, t) / (rate + 1) for lag, t in zip(lags, tunings, strict=True)]
        split = split_heads([math.exp(v - max(logs)) for v in logs], heads, rate + 2)
    if split is None:
        return None
    errors = tuple(extraction_bound(rpe, lag, h, rate, t) for lag, h, t in zip(lags, split, tunings, strict=True))
    return AttentionBound(rpe, lags, split, share, rate, tunings, errors)


def solve_heads(
    rpe: Rpe, lags: Sequence[int], error: float, tuning: str = "tuned", rate: int | None = None, share: bool = False
) -> AttentionBound:
    """The fewest heads for which the bound is at most `error`, over the offered rates."""
    best: AttentionBound | None = None
    for r in RATES if rate is None else (rate,):

        def holds(heads: int, r: int = r) -> bool:
            bound = _bound_at(rpe, tuple(lags), heads, tuning, r, share)
            return bound is not None and upper(bound.total) <= error

        high = 2
        while not holds(high):
            high *= 2
            if best is not None and high >= 2 * best.total_heads:
                break
            if high > 2**200:
                raise Refusal(f"no number of heads below 2^200 brings the bound to {error:g}")
        else:
            heads = least_whole(holds, high // 2, high)
            candidate = _bound_at(rpe, tuple(lags), heads, tuning, r, share)
            if candidate is not None and (best is None or heads < best.total_heads):
                best = candidate
    assert best is not None
    return best
