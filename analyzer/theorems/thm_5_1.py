"""Theorem 5.1 of Wang & E: one dp-free layer represents essentially sparse memories.

Setting. Tokens x_t ∈ [−1, 1]^d, target y_t = f(x_t, (X*ρ_1)(t), …, (X*ρ_M)(t)) with (X*ρ)(t) = Σ_{s≥0} ρ(s) x_{t−s}, ρ_k ∈ ℓ¹; one layer
with H dp-free heads and a feed-forward read-out. lin heads for ρ_k(s) = O(e^{−βs}), log heads for ρ_k(s) = O(s^{−β}).

Statement. |||H − TF||| ≤ E_FFN + Σ_k Lip_k(f) e_k with e_k = ‖κ_k − ρ_k‖₁. For α, γ > 0, every rate n ≥ 1 and H_k ≥ n + 2 heads for
memory k

    e_k ≤ m · 4 V_n / (π n (H_k−1−n)^n),                                                          m = 1/(1−e^{−γ}) or ζ(1+γ),   (5.1)
    e_k ≤ m · (2 + (2/π) ln H_k) (π/2)^n S_n / (H_k (H_k−1) ⋯ (H_k−n+1)),                                                       (5.2)

V_n a variation, S_n a supremum; the smaller of the two is promised. V_n is finite for n < (β−γ)/α (lin), n < (β−2−γ)/(1+α) (log), S_n up
to n = (β−γ)/α (lin), n = (β−1−γ)/(1+α) (log): for log heads one order more, and a rate for every β > 2. Heads split evenly, Σ_k e_k ≤ C(n)
M^{n+1}/Hⁿ, with a factor 1 + ln H where (5.2) is used.

Constants. With μ_T = e^{−αT} (lin, T ≥ 0) or T^{−α} (log, T ≥ 1), Ψ(u) = exp(−1/(1−u²)), B_n = TV(Ψ^(n)) and D_n = sup|Ψ^(n)|,

    lin   V_n = B_n e (1−e^{−α})^{−n} Σ_{T≥0} |ρ(T)| e^{(γ+nα)T}
          S_n = D_n e (1−e^{−α})^{−n} sup_{T≥0} |ρ(T)| e^{(γ+nα)T}
    log   V_n = B_n e Σ_{T≥1} |ρ(T)| T^{1+γ} (T^{−α} − (T+1)^{−α})^{−n}
          S_n = D_n e sup_{T≥1} |ρ(T)| T^{1+γ} (T^{−α} − (T+1)^{−α})^{−n}

Sums and suprema are evaluated over infinitely many T, the log ones through T^{−α} − (T+1)^{−α} ≥ α (T+1)^{−1−α}. The paper has α = 0.005,
γ = 0.01β (lin) and α = 0.01, γ = 10⁻⁴β (log); `tuned` minimises (5.1) and (5.2) over α, γ and n, each for itself. S_n has one term
where V_n has a sum, and 2 D_n ≤ B_n: (5.2) is the smaller one for low rates and slow kernels; (5.1) has neither (π/2)ⁿ nor the logarithm.

Proof. Bumps of half-width σ_T = ½(μ_T − μ_{T+1}) around μ_T are disjoint, as gaps shrink with T. With heights h_T = e^{1+γT} ρ(T) or e
T^{1+γ} ρ(T) their sum F has F(μ_T) = e^{γT} ρ(T) or T^{1+γ} ρ(T). Let Q interpolate F in H Chebyshev points (of the second kind) of [0,
1]: κ(s) = e^{−γs} Q(e^{−αs}) or s^{−1−γ} Q(s^{−α}) is a sum of H heads, and ‖κ − ρ‖₁ ≤ m sup|F − Q|, over s ≥ 0 or s ≥ 1. x = (1+y)/2
takes [−1, 1] to [0, 1] and scales n-th derivatives by 2^{−n}, so that σ_T^{−n} becomes (μ_T − μ_{T+1})^{−n}. There are two ways to
estimate F − Q.

By variations, (5.1): those of disjoint bumps add up, V_n is the variation of F^(n) on [−1, 1], and sup|F − Q| ≤ 4 V_n/(π n (H−1−n)^n). A
term of a sum is at most the sum, so that S_n is finite where V_n is, and F is as smooth at x = 0 as this asks for by what follows.

By suprema, (5.2): at every point one bump at most is not zero, so that sup|F^(n)| ≤ S_n on [−1, 1] without the point x = 0, where bumps
accumulate. F is smooth there as far as we need: if |h_T| σ_T^{−n} ≤ C for all T, then for k < n derivatives are |F^(k)| ≤ D_k C
σ_T^{n−k} on bump T, which tends to 0 with x, as Σ_T 2σ_T ≤ 1; by the mean value theorem F^(k)(0) = 0 for k < n, one k after the other,
and F is in C^{n−1}. F^(n−1) is continuous, and differentiable but at 0 with a derivative of size S_n at most: it is Lipschitz with that
constant. Now let E_N be the distance from polynomials of degree N. If F is Lipschitz with constant L, so is the even function F(cos θ),
and by Favard, Achieser and Krein some trigonometric polynomial of degree N, even without loss, is within (π/2) L/(N+1) of it: E_N(F) ≤
(π/2) L/(N+1), N ≥ 0. If F' is within δ of a polynomial q of degree N−1, subtract ∫q from F, which leaves L = δ: E_N(F) ≤ (π/2)
E_{N−1}(F')/(N+1). After n steps

    E_N(F) ≤ (π/2)^n S_n / ((N+1) N ⋯ (N−n+2)),     N ≥ n−1    (Jackson's theorem),     here N = H−1.

Interpolation reproduces polynomials of degree H−1, so sup|F − Q| ≤ (1+Λ) E_{H−1}(F) with its norm Λ ≤ 1 + (2/π) ln H for these H points.

Construction. `constructions.theorems.thm_5_1`: x_t in block 0, block k receives X*ρ_k: its heads have decays γ + αj (lin) or 1 + γ + αj
(log) and the interpolant's coefficients as weights; log heads do not see s = 0, ρ_k(0) goes through the embedding. `fitted` banks take far
fewer heads: decays and weights of least ℓ¹ error, exact where ρ_k is itself a sum of heads. They follow no rate; what they promise is ‖κ_k
− ρ_k‖₁ of their decays and weights in exact arithmetic, plus the budget for storing them. What no H heads can beat is in
`analyzer.limits.hankel`.

Repaired. Lemma F.3 omits the bump at T = 0, so that ρ(0) would be lost: it is included. The log range n < (β−1−γ)/(1+α) of the paper, n ≤
⌊0.99β⌋ − 1 with its α and γ, as then 1.01 n ≤ 0.9999β − 1.01 < β − 1 − γ, is proved with the smoothness at 0 and with constants; its
polynomial is the best one, ours can be written down and costs the factor 1+Λ, a logarithm (for the best one 1+Λ becomes 1, and C(n)
M^{n+1}/Hⁿ holds as printed). Both estimates are made for lin and log heads, and the smaller one is promised. Log heads cannot see s = 0:
the residual carries ρ(0). The read-out's domain depends on ‖ρ_k‖₁: the box is that of the memories actually delivered. Head splits are
whole numbers, each ≥ n + 2.

References. Wang & E, arXiv 2402.00522 (NeurIPS 2024), Theorem 5.1, Lemmas F.3, F.6; Trefethen, Approximation Theory and Approximation
Practice, Theorems 7.2 (interpolation) and 15.2 (Λ; Ehlich & Zeller 1966); Favard (1937), Achieser & Krein (1937); Jackson's theorem with
these constants: Cheney, Introduction to Approximation Theory, chapter 4.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

import sympy
from flint import arb, fmpq

from analyzer import families
from analyzer.errors import InputError, Refusal
from analyzer.families import LEAST_ERROR, MAX_HEADS
from analyzer.kernels.memory_kernels import LATEST_PEAK, MemoryKernel
from analyzer.lemmas import extraction as ex
from analyzer.lemmas import feedforward as ff
from analyzer.lemmas.bump import RATES, supremum, variation
from analyzer.numbers.exact import maximum, nearest, rational, upper, working_precision
from analyzer.numbers.formula_values import evaluate
from analyzer.ranges import check_range
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven, interpolation_work, product_of
from analyzer.statements.theorem import Case, Theorem
from analyzer.targets.kernel import KernelMemory
from analyzer.targets.tokens import TOKEN_LAWS
from analyzer.theorems import base

if TYPE_CHECKING:
    import networkx as nx

ID = "thm-5.1"
TITLE = "essentially sparse memories, one dp-free layer"
BANKS = ("paper", "tuned", "fitted")
STATEMENT = {
    "lin": "|||H − TF||| ≤ E_FFN + Σ_k Lip_k e_k,  Σ_k e_k ≤ C(n) M^{n+1}/H^n  for ρ_k = O(e^{−βs}) and every n < (β−γ)/α, "
    "or C'(n) (1 + ln H) M^{n+1}/H^n where that is smaller",
    "log": "|||H − TF||| ≤ E_FFN + Σ_k Lip_k e_k,  Σ_k e_k ≤ C(n) M^{n+1}/H^n  for ρ_k = O(s^{−β}) and every n < (β−2−γ)/(1+α), "
    "or C'(n) (1 + ln H) M^{n+1}/H^n for n ≤ (β−1−γ)/(1+α) where that is smaller",
}
FAST = fmpq(100)
"""β of an exponentially decaying kernel as O(s^{−β}): any number would do."""
Argument = Literal["variation", "jackson"]
ARGUMENTS: tuple[Argument, ...] = ("variation", "jackson")
"""The ways to estimate the interpolation error, (5.1) and (5.2)."""
V, S = sympy.Function("V"), sympy.Function("S")
_MASS = {"lin": 1 / (1 - sympy.exp(-ex.gamma)), "log": sympy.zeta(1 + ex.gamma)}
_INDEX = sympy.Symbol("k", integer=True)
BEST = (sympy.pi / 2) ** ex.n * S(ex.n) / sympy.Product(ex.H - _INDEX, (_INDEX, 0, ex.n - 1))
"""Jackson's theorem: the distance from polynomials of degree H−1."""
LEBESGUE = 1 + 2 * sympy.log(ex.H) / sympy.pi
"""Bound of the norm Λ of interpolation in H Chebyshev points of the second kind."""
ESTIMATE: dict[Argument, sympy.Expr] = {
    "variation": 4 * V(ex.n) / (sympy.pi * ex.n * (ex.H - 1 - ex.n) ** ex.n),
    "jackson": (1 + LEBESGUE) * BEST,
}
"""sup|F − Q|."""
EXPRESSION: dict[tuple[str, Argument], sympy.Expr] = {
    (rpe, argument): ESTIMATE[argument] * mass for rpe, mass in _MASS.items() for argument in ARGUMENTS
}
"""(5.1) and (5.2)."""


def expression(rpe: ex.Rpe, bank: str, arguments: Sequence[Argument] | None = None) -> sympy.Expr:
    """The error of one memory, by the arguments used (all of them by default); fitted banks promise no rate, the theorem's is shown."""
    used = [EXPRESSION[rpe, argument] for argument in ARGUMENTS if arguments is None or argument in arguments]
    return used[0] if len(used) == 1 else sympy.Min(*used, evaluate=False)


def citation(bank: str, ffn: str) -> str:
    """What a network with this bank and read-out rests on."""
    return base.citation(bank, ffn, "Theorem 5.1")


def check_sizes(target: KernelMemory, rpe: ex.Rpe, bank: str, heads: int | None, error: float | None, width: int | None) -> None:
    """Refuse sizes that cannot work, before anything is built."""
    if error is not None:
        check_range("error", error, LEAST_ERROR, below=math.inf)
    least = len(target.kernels) * (1 if bank == "fitted" else 3)
    if heads is not None and not least <= heads <= MAX_HEADS:
        raise InputError(f"heads is {heads}; a {bank} bank for {len(target.kernels)} kernels has {least} to {MAX_HEADS}")
    if bank != "fitted":
        for kernel in target.parsed:
            check_shape(rpe, kernel)
    if width is not None:
        ff.check_width(width, target.readout)


def check_shape(rpe: ex.Rpe, kernel: MemoryKernel) -> None:
    """lin heads need exponential decay for the theorem (fitted banks do not)."""
    if rpe == "lin" and kernel.shape == "power":
        raise Refusal(
            f"theorem 5.1 with lin heads asks for O(e^(-beta s)), kernel {kernel.text[:60]!r} falls like a power",
            {"bank": "fitted"},
            {"rpe": "log"},
        )


def paper_tuning(rpe: ex.Rpe, kernel: MemoryKernel) -> ex.Tuning:
    """α = 0.005, γ = 0.01β (lin) or α = 0.01, γ = 10⁻⁴β (log)."""
    check_shape(rpe, kernel)
    beta = kernel.envelope.rate if rpe == "lin" or kernel.shape == "power" else FAST
    return ex.Tuning(fmpq(1, 200), beta / 100) if rpe == "lin" else ex.Tuning(fmpq(1, 100), beta / 10**4)


WINDOW = 256
"""Bumps whose widths are taken as they are in V_n; beyond them the bound of the docstring."""


def bump_variation(rpe: ex.Rpe, kernel: MemoryKernel, rate: int, tuning: ex.Tuning) -> arb:
    """Upper bound of V_n; infinite where it diverges."""
    a, g = arb(tuning.alpha), arb(tuning.gamma)
    scale = variation(rate) * arb(1).exp()
    if rpe == "lin":
        return scale * (1 - (-a).exp()) ** -rate * kernel.total(rate=tuning.gamma + rate * tuning.alpha)
    total = arb(0)
    for T in range(1, WINDOW):
        total += abs(kernel.value(T)) * arb(T) ** (1 + g) * (arb(T) ** -a - arb(T + 1) ** -a) ** -rate
    widest = ((1 + arb(1) / WINDOW) ** (1 + a) / a) ** rate
    return scale * (total + widest * kernel.tail(WINDOW, power=1 + tuning.gamma + rate * (1 + tuning.alpha)))


def derivative_supremum(rpe: ex.Rpe, kernel: MemoryKernel, rate: int, tuning: ex.Tuning) -> arb:
    """Upper bound of S_n; infinite where there is none."""
    a, g = arb(tuning.alpha), arb(tuning.gamma)
    if rpe == "lin":
        growth = tuning.gamma + rate * tuning.alpha
        if not kernel.supremum_from(LATEST_PEAK, growth=growth).is_finite():
            return arb.pos_inf()
        return supremum(rate) * arb(1).exp() * (1 - (-a).exp()) ** -rate * kernel.supremum("exponential", growth)
    power = 1 + tuning.gamma + rate * (1 + tuning.alpha)
    first, start, largest = 1, WINDOW, arb(0)
    while True:
        gaps = ((T, arb(T) ** -a - arb(T + 1) ** -a) for T in range(first, start))
        largest = maximum([largest, *(abs(kernel.value(T)) * arb(T) ** (1 + g) * gap**-rate for T, gap in gaps)])
        beyond = kernel.supremum_from(start, power)
        if beyond.is_finite() or kernel.shape == "power" or start >= LATEST_PEAK:
            widest = ((1 + arb(1) / start) ** (1 + a) / a) ** rate
            return supremum(rate) * arb(1).exp() * largest.max(widest * beyond)
        first, start = start, 2 * start


@cache
def smoothness(rpe: ex.Rpe, kernel: MemoryKernel, rate: int, tuning: ex.Tuning, argument: Argument) -> arb:
    """Upper bound of V_n or S_n."""
    with working_precision(128):
        return (bump_variation if argument == "variation" else derivative_supremum)(rpe, kernel, rate, tuning)


def kernel_bound(rpe: ex.Rpe, kernel: MemoryKernel, heads: int, rate: int, tuning: ex.Tuning, argument: Argument = "variation") -> arb:
    """(5.1) or (5.2); infinite if H < n + 2 or V_n or S_n is."""
    value = smoothness(rpe, kernel, rate, tuning, argument)
    if heads < rate + 2 or not value.is_finite():
        return arb.pos_inf()
    with working_precision(128):
        return evaluate(EXPRESSION[rpe, argument], {V(ex.n): value, S(ex.n): value, ex.n: rate, ex.H: heads, ex.gamma: tuning.gamma})


@cache
def tuned(rpe: ex.Rpe, kernel: MemoryKernel, rate: int, argument: Argument = "variation") -> ex.Tuning | None:
    """The α, γ that minimise (5.1) or (5.2) at a rate, found in floating point and rounded; None if V_n or S_n is infinite for all."""
    import numpy as np

    check_shape(rpe, kernel)
    log_size = _log_terms(rpe, kernel, argument)
    room = float(arb(kernel.envelope.rate)) if rpe == "lin" or kernel.shape == "power" else float(arb(FAST))
    if rpe == "log":
        room -= rate + (2 if argument == "variation" else 1)
    if room <= 0:
        return None

    def value(log_alpha: float, log_gamma: float) -> float:
        a, g = math.exp(log_alpha), math.exp(log_gamma)
        if g + rate * a >= room:
            return 1e6 * (1 + g + rate * a)
        mass = -math.log(-math.expm1(-g)) if rpe == "lin" else math.log(float(arb(1 + g).zeta()))
        with np.errstate(over="ignore"):
            return mass + log_size(rate, a, g)

    best = (_by_coordinates if argument == "variation" else _by_share)(value, room, rate)
    return ex.Tuning(*(rational(float(f"{math.exp(v):.6g}")) for v in best))


Objective = Callable[[float, float], float]


def _by_coordinates(value: Objective, room: float, rate: int) -> tuple[float, float]:
    """log α and log γ in turn: V_n grows beyond all bounds where γ + nα fills the room, so the minimum lies inside."""
    top = math.log(room)
    a, g = top - math.log(2.0 * rate + 2), top - math.log(4.0)
    for _ in range(6):
        a = ex.golden(partial(lambda g, v: value(v, g), g), top - 9, min(top, math.log(8.0)), 30)
        g = ex.golden(partial(value, a), top - 9, min(top, math.log(8.0)), 30)
    return a, g


def _by_share(value: Objective, room: float, rate: int) -> tuple[float, float]:
    """How much of the room γ + nα takes, and the share of nα in it, in turn: S_n is finite up to the edge, where coordinates get stuck."""
    top = math.log(room * (1 - 1e-5))  # what is rounded to six digits stays inside

    def at(size: float, odds: float) -> tuple[float, float]:
        return size - math.log1p(math.exp(-odds)) - math.log(rate), size - math.log1p(math.exp(odds))

    size, odds = top, 0.0
    for _ in range(6):
        odds = ex.golden(partial(lambda size, v: value(*at(size, v)), size), -7.0, 7.0, 30)
        size = min(ex.golden(partial(lambda odds, v: value(*at(v, odds)), odds), top - 7, top, 30), top, key=lambda v: value(*at(v, odds)))
    return at(size, odds)


def _log_terms(rpe: ex.Rpe, kernel: MemoryKernel, argument: Argument) -> Callable[[int, float, float], float]:
    """log of the sum in V_n or the supremum in S_n as a function of (n, α, γ) in floating point, over single T and then geometric steps."""
    import numpy as np

    places = [*range(0 if rpe == "lin" else 1, WINDOW)]
    counts = [1.0] * len(places)
    while places[-1] < 10**5:
        step = max(1, places[-1] // 16)
        places.append(places[-1] + step)
        counts.append(float(step))
    with working_precision(64):
        sizes = [abs(kernel.value(t)) for t in places]
        logs = np.array([float(v.log()) if v > 0 else -math.inf for v in sizes])
    at, weights = np.array(places, float), np.log(np.array(counts))

    if argument == "jackson":
        weights = np.zeros_like(weights)

    def log_size(rate: int, a: float, g: float) -> float:
        if rpe == "lin":
            exponents = logs + weights + (g + rate * a) * at
            width = -rate * math.log(-math.expm1(-a))
        else:
            width = 0.0
            gaps = np.log(-np.expm1(-a * np.log1p(1 / at))) - a * np.log(at)
            exponents = logs + weights + (1 + g) * np.log(at) - rate * gaps
        peak = exponents.max()
        summed = math.log(np.exp(exponents - peak).sum()) if argument == "variation" else 0.0
        return float(peak + summed + width)

    return log_size


@dataclass(frozen=True)
class KernelsBound:
    """Σ_k e_k for heads split evenly over the kernels, each at its best rate (or at the given one)."""

    heads: tuple[int, ...]
    rates: tuple[int, ...]
    tunings: tuple[ex.Tuning, ...]
    arguments: tuple[Argument, ...]
    errors: tuple[arb, ...]

    @property
    def total(self) -> arb:
        return sum(self.errors[1:], self.errors[0])


def split(heads: int, kernels: int) -> tuple[int, ...]:
    """H heads over M kernels as evenly as whole numbers allow."""
    return tuple(heads // kernels + (k < heads % kernels) for k in range(kernels))


@dataclass(frozen=True)
class _Choice:
    rate: int
    tuning: ex.Tuning
    argument: Argument
    error: arb


def _best(rpe: ex.Rpe, kernel: MemoryKernel, heads: int, tuning: str, rate: int | None) -> _Choice | None:
    """The least bound over both arguments and the rates."""
    found = []
    for argument, n in itertools.product(ARGUMENTS, RATES if rate is None else (rate,)):
        chosen = paper_tuning(rpe, kernel) if tuning == "paper" else tuned(rpe, kernel, n, argument)
        if chosen is not None:
            found.append(_Choice(n, chosen, argument, kernel_bound(rpe, kernel, heads, n, chosen, argument)))
    finite = [choice for choice in found if choice.error.is_finite()]
    return min(finite, key=lambda choice: upper(choice.error), default=None)


def attention_bound(
    rpe: ex.Rpe, kernels: Sequence[MemoryKernel], heads: int, tuning: str = "tuned", rate: int | None = None
) -> KernelsBound:
    """(5.1) or (5.2) for every kernel with its share of the heads."""
    if rate is not None and rate not in RATES:
        raise InputError(f"rate {rate} is not offered; choose from {RATES[0]} to {RATES[-1]} or 'best'")
    shares, found = split(heads, len(kernels)), []
    for kernel, share in zip(kernels, shares, strict=True):
        best = _best(rpe, kernel, share, tuning, rate)
        if best is None:
            reason = _no_rate(rpe, kernel, tuning, rate)
            if reason is not None:
                raise Refusal(reason, {"bank": "fitted"})
            needed = (rate or 1) + 2
            few = f"{share} heads are too few for kernel {kernel.text[:60]!r}: rate n = {rate or 1} needs {needed} of them"
            raise Refusal(few, {"heads": needed * len(kernels)})
        found.append(best)
    rates, tunings = tuple(c.rate for c in found), tuple(c.tuning for c in found)
    return KernelsBound(shares, rates, tunings, tuple(c.argument for c in found), tuple(c.error for c in found))


def _no_rate(rpe: ex.Rpe, kernel: MemoryKernel, tuning: str, rate: int | None) -> str | None:
    """Why no number of heads helps; None if some does."""
    if _best(rpe, kernel, 10**6, tuning, rate) is not None:
        return None
    law = "n <= (beta - gamma)/alpha" if rpe == "lin" else "n <= (beta - 1 - gamma)/(1 + alpha)"
    which = "no rate n is" if rate is None else f"rate n = {rate} is not"
    return f"{which} within theorem 5.1 for kernel {kernel.text[:60]!r}: the bound is finite for {law} only"


def solve_heads(rpe: ex.Rpe, kernels: Sequence[MemoryKernel], error: float, tuning: str = "tuned", rate: int | None = None) -> KernelsBound:
    """The fewest heads for which the bound is at most `error`."""
    for kernel in kernels:
        reason = _no_rate(rpe, kernel, tuning, rate)
        if reason is not None:
            raise Refusal(reason, {"bank": "fitted"})
    heads = base.fewest_heads(lambda heads: attention_bound(rpe, kernels, heads, tuning, rate).total, error)
    return attention_bound(rpe, kernels, heads, tuning, rate)


def kernel_budget(rpe: ex.Rpe, kernel: MemoryKernel, decays: Sequence[fmpq]) -> arb:
    """What (5.1) or (5.2) promises for an interpolation bank with these decays, at its best rate."""
    if len(decays) < 3:
        raise InputError(f"{len(decays)} heads serve a kernel: an interpolation bank has 3 at least")
    tuning = ex.Tuning(decays[1] - decays[0], decays[0] - (0 if rpe == "lin" else 1))
    if tuning.alpha <= 0 or tuning.gamma <= 0 or any(b - a != tuning.alpha for a, b in itertools.pairwise(decays)):
        raise InputError("the decays stored for a kernel are no progression γ + αj: not an interpolation bank")
    bounds = [kernel_bound(rpe, kernel, len(decays), rate, tuning, argument) for argument in ARGUMENTS for rate in RATES]
    return min((b for b in bounds if b.is_finite()), key=upper, default=arb.pos_inf())


def kernel_lemma(k: int) -> str:
    """The lemma on memory k."""
    return f"kernel k{k}"


def proof_graph(rpe: ex.Rpe, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """The proof for as many kernels as there are entries: who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx  # here, so that evaluating a bound does not wait for it

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    if bank == "fitted":
        lemma(graph, "fit", "decays and weights of small ‖κ − ρ‖₁, certified as stored", sympy.Symbol("e", nonnegative=True))
        below: tuple[str, ...] = ("fit",)
    else:
        lemma(graph, "bumps", "disjoint bumps give ρ(s) at every s", sympy.Integer(0), source="Wang & E, Lemma F.3/F.6")
        lemma(graph, "variation", "variations of disjoint bumps add up", V(ex.n))
        used = (("variation",), "Trefethen, Thm 7.2")
        lemma(graph, "interpolation", "Chebyshev interpolation in H points", ESTIMATE["variation"], *used)
        lemma(graph, "supremum", "sup|F^(n)| of disjoint bumps F is that of one of them, F is in C^{n−1} at x = 0", S(ex.n))
        lemma(graph, "best polynomial", "Jackson's theorem for degree H−1", BEST, ("supremum",), "Favard; Achieser & Krein; Jackson")
        lemma(graph, "Lebesgue constant", "norm of interpolation in H Chebyshev points", LEBESGUE, source="Trefethen, Thm 15.2")
        title = "interpolation without variations: 1+Λ times the best polynomial"
        lemma(graph, "jackson", title, ESTIMATE["jackson"], ("best polynomial", "Lebesgue constant"))
        lemma(graph, "mass", "Σ_s of the slowest kernel", _MASS[rpe])
        below = ("bumps", "interpolation", "jackson", "mass")
    budgets = []
    for k in range(1, len(lags) + 1):
        budget = sympy.Symbol(f"e_{k}", nonnegative=True)
        shown = budget if bank == "fitted" else expression(rpe, bank).subs(ex.H, sympy.Symbol(f"H_{k}", positive=True))
        lemma(graph, kernel_lemma(k), f"‖κ − ρ‖₁ of memory k{k}", shown, below, measured=True)
        budgets.append(sympy.Symbol(f"Lip_{k}", nonnegative=True) * budget)
    lemma(graph, base.READ_OUT, f"{ffn} approximation of f", ff.SPLINE if ffn == "spline" else ff.BARRON, measured=True)
    parts = (base.READ_OUT, *(kernel_lemma(k) for k in range(1, len(lags) + 1)))
    lemma(graph, ID, TITLE, sympy.Add(sympy.Symbol("E_FFN"), *budgets), parts, "Wang & E, Theorem 5.1")
    return graph


def bound(target: KernelMemory, options: families.KernelBound) -> Bound:
    """Σ_k of (5.1) or (5.2) at the given heads, or at the fewest that reach the error."""
    if options.norm == "mean-square":
        return _mean_square_bound(target, options)
    rpe, parsed = options.rpe, target.parsed
    rate = None if options.rate == "best" else options.rate
    if options.heads is None:
        assert options.error is not None  # checked when the options were made
        found = solve_heads(rpe, parsed, options.error, options.bank, rate)
    else:
        found = attention_bound(rpe, parsed, options.heads, options.bank, rate)
    envelopes = [kernel.envelope for kernel in parsed]
    errors = [upper(e) for e in found.errors]
    chosen = zip(parsed, found.rates, found.tunings, found.arguments, strict=True)
    sizes = [upper(smoothness(rpe, *choice)) for choice in chosen]
    data: dict[str, Any] = {
        "kernels": list(target.kernels),
        "rpe": rpe,
        "tuning": options.bank,
        "attention": upper(found.total),
        "heads": sum(found.heads),
        "split": list(found.heads),
        "rate": list(found.rates),
        "alpha": [nearest(t.alpha) for t in found.tunings],
        "gamma": [nearest(t.gamma) for t in found.tunings],
        "variation": [v if argument == "variation" else None for argument, v in zip(found.arguments, sizes, strict=True)],
        "errors": errors,
        "envelopes": [{"shape": e.shape, "rate": nearest(e.rate), "constant": _finite(nearest(e.constant))} for e in envelopes],
    }
    if "jackson" in found.arguments:
        suprema = [v if argument == "jackson" else None for argument, v in zip(found.arguments, sizes, strict=True)]
        data |= {"argument": list(found.arguments), "supremum": suprema}
    parts = {f"kernel k{k}": error for k, error in enumerate(errors, start=1)}
    constants = PAPER[rpe] if options.bank == "paper" else {}
    formula = expression(rpe, options.bank, found.arguments)
    return Bound(ID, upper(found.total), parts, formula, constants, data, claim="attention error")


def _mean_square_bound(target: KernelMemory, options: families.KernelBound) -> Bound:
    """(3.11) of `analyzer.lemmas.extraction`, with (5.1) or (5.2) for e, summed over memories; α, γ, n are best in the worst case."""
    rpe, tokens = options.rpe, options.tokens or "uniform"
    rate = None if options.rate == "best" else options.rate

    def total(heads: int) -> arb:
        found = attention_bound(rpe, target.parsed, heads, options.bank, rate)
        return base.mean_square_total(rpe, found.errors, [t.gamma for t in found.tunings], TOKEN_LAWS[tokens].variance)

    for kernel in target.parsed:
        reason = _no_rate(rpe, kernel, options.bank, rate)
        if reason is not None:
            raise Refusal(reason)
    heads = options.heads or base.fewest_heads(total, options.error or families.DEFAULT_ERROR)
    found = attention_bound(rpe, target.parsed, heads, options.bank, rate)
    worst = bound(target, replace(options, norm="sup", tokens=None, heads=heads, error=None, solve=None))
    terms = [worst.expression * sympy.sqrt(ex.MEAN_SQUARE_SHARE[rpe])]
    return base.in_mean_square(worst, rpe, found.errors, [t.gamma for t in found.tunings], tokens, terms)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


_BETA = sympy.Symbol("beta", positive=True)
PAPER = {
    "lin": {"alpha": sympy.Rational(1, 200), "gamma": _BETA / 100},
    "log": {"alpha": sympy.Rational(1, 100), "gamma": _BETA / 10000},
}
"""The free parameters as printed."""


def designs(target: KernelMemory, dtype: str) -> list[Design]:
    """Heads of either type, every bank, both read-outs."""
    return product_of(rpe=("lin", "log"), bank=("paper", "tuned", "fitted"), ffn=base.read_out_ways(target.readout))


def proven(target: KernelMemory, options: families.Kernel) -> Proven:
    """One layer; heads by (5.1) or (5.2) for the share of the attention; the width of the read-out. A fitted bank has no bound to solve."""
    error = families.DEFAULT_ERROR if options.error is None else options.error
    shares = base.shares(target.readout, target.radii(), target.dim, error)
    width = shares.width(options.ffn, target.readout, error)
    if options.bank == "fitted":
        return Proven(1, None, width, "a fitted bank is certified as it is found, no bound asks for its heads")
    try:
        for kernel in target.parsed:
            check_shape(options.rpe, kernel)
        found = solve_heads(options.rpe, target.parsed, min(1.0, error, shares.attention / shares.steepest), options.bank)
    except Refusal as refusal:
        return Proven(1, None, width, refusal.reason)
    return Proven(1, sum(found.heads), width, work=interpolation_work(options.rpe, sum(found.heads)))


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="kernel",
    options=families.Kernel,
    bound_options=families.KernelBound,
    bound=bound,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
    check=lambda target, options: check_sizes(target, options.rpe, options.bank, options.heads, options.error, options.width),
    build="constructions.theorems.thm_5_1:build",
    verify="verify.theorems.thm_5_1:verify",
    designs=designs,
    proven=proven,
    applies=lambda target, options: options.norm == "sup",
    cases=(
        Case({"kind": "kernel", "kernels": ["exp(-s/2)"]}, {"error": 0.05}, {"heads": 64}),
        Case({"kind": "kernel", "kernels": ["(s+1)**-4"]}, {"rpe": "log", "heads": 3}, {"heads": 64, "rpe": "log"}),
    ),
    shelf=7,
)
