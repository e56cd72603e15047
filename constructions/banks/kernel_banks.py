"""Head banks for memory kernels ρ (essentially sparse memories).

`interpolation_kernel_bank` is the proof of Wang & E's Lemmas F.3 and F.6: disjoint bumps of half-width σ_T = ½(μ_T − μ_{T+1}), μ_T =
e^{−αT} or T^{−α}, one at every T, are interpolated in H Chebyshev points of [0, 1]; a point lies in one bump at most.

`fitted_bank` is what is best in practice: decays from `constructions.banks.kernel_fit`, rounded to short dyadic numbers first, weights then
from the equations κ(s) = ρ(s) at the H places where the ℓ¹-optimal kernel meets ρ, solved in ball arithmetic. Exponentials (lin) or
powers (log) in ρ itself are taken as they are: their heads are exact. A term s^k e^{−as} is the limit of k+1 lin heads; we take decays
a(1 + 2^{−32}(j − k/2)), an error of about 2^{−64} of it, in exact arithmetic. The residual puts s = 0 right: c = ρ(0) − Σ_h A_h (lin), c
= ρ(0) (log).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from flint import arb, arb_mat, fmpq

from analyzer.errors import Refusal, larger_error
from analyzer.kernels.l1_norms import DeliveredKernel, Exponentials, Norm, Powers, l1_norm
from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.lemmas.bump import bump
from analyzer.lemmas.extraction import Rpe, Tuning
from analyzer.numbers import chebyshev
from analyzer.numbers.exact import dyadic, to_grid, upper, working_precision
from analyzer.numbers.zeta import zeta
from constructions.banks.head_banks import GUARD, HeadBank, interpolation_bits, polynomial_through, progression, store

MAX_FITTED = 12
"""Heads that are searched for: beyond them the linear programmes reach the limits of double precision."""
CONFLUENCE = fmpq(1, 2**32)
"""Relative distance of decays that stand for a multiple one: the error is its square, the weights its powers' inverse."""
LARGEST_PLACE = 1 << 200
"""Bumps beyond this T are left out: heights T^{1+γ}ρ(T) are far below the weights' last bit there."""
CERTIFY_BITS = 320
"""Bits for the kernel of a bank, and 64 more for each head: clustered decays cancel."""


@dataclass(frozen=True)
class FittedArithmetic:
    """What a number type asks of a fitted bank: the price of a unit of weight, bits of a decay, and the slowest decay that can run."""

    price: float = 0.0
    precision: int = 53
    slowest: fmpq | int = 0


EXACT = FittedArithmetic()


def interpolation_kernel_bank(rpe: Rpe, kernel: MemoryKernel, memory: int, heads: int, tuning: Tuning) -> HeadBank:
    """Lemmas F.3 (lin) and F.6 (log): e^{−γs} Q(e^{−αs}) or s^{−1−γ} Q(s^{−α}), Q interpolating all bumps of ρ; c = ρ(0) for log."""
    with working_precision(interpolation_bits(heads)):
        table = chebyshev.cosines(heads - 1)
        samples = [_bumps(rpe, kernel, tuning, (1 + y) / 2) for y in table]
        residual = arb(0) if rpe == "lin" else kernel.value(0)
        return store(rpe, progression(rpe, heads, tuning), (memory,), [polynomial_through(samples)], [residual], 2.0**-GUARD)


def _bumps(rpe: Rpe, kernel: MemoryKernel, tuning: Tuning, x: arb) -> arb:
    """Σ_T height_T Ψ((x − μ_T)/σ_T) at a point: at most the bumps of the two T next to it can be hit."""
    if not x > 0:
        return arb(0)
    a, g = arb(tuning.alpha), arb(tuning.gamma)
    place = -x.log() / a if rpe == "lin" else (-x.log() / a).exp()
    if not place < LARGEST_PLACE:
        return arb(0)
    nearest, first = int(to_grid(place, 0).p), 0 if rpe == "lin" else 1
    total = arb(0)
    for T in range(max(first, nearest - 1), nearest + 2):
        centre, neighbour = ((-a * t).exp() if rpe == "lin" else arb(t) ** -a for t in (T, T + 1))
        shape = bump(2 * (x - centre) / (centre - neighbour))
        if not shape.is_zero():
            height = (1 + g * T).exp() if rpe == "lin" else arb(1).exp() * arb(T) ** (1 + g)
            total += height * kernel.value(T) * shape
    return total


def _raw_kernel(rpe: Rpe, decay: fmpq, s: int) -> arb:
    return (-arb(decay) * s).exp() if rpe == "lin" else arb(s) ** -arb(decay)


def bank_through(
    rpe: Rpe, kernel: MemoryKernel, memory: int, decays: Sequence[fmpq], nodes: Sequence[int], error: float
) -> HeadBank | None:
    """The bank with κ(s) = ρ(s) at the nodes s ≥ 1, as many as decays, and at s = 0; None if the equations are singular."""
    heads = len(decays)
    with working_precision(4 * GUARD + 128 * heads):
        matrix = arb_mat([[_raw_kernel(rpe, p, s) for p in decays] for s in nodes])
        try:
            solution = matrix.solve(arb_mat([[kernel.value(s)] for s in nodes]))
        except ZeroDivisionError:
            return None
        raw = [solution[h, 0] for h in range(heads)]
        residual = kernel.value(0) - (sum(raw, arb(0)) if rpe == "lin" else arb(0))
        return store(rpe, decays, (memory,), [raw], [residual], error)


def error_kernel(bank: HeadBank, kernel: MemoryKernel, index: int = 0) -> DeliveredKernel:
    """κ − ρ of a bank, at the working precision."""
    weights, residual = bank.weights[index], bank.residuals[index]
    steps = {b - a for a, b in pairwise(bank.decays)}
    regular = bank.heads > 2 and len(steps) == 1 and min(steps) > 0  # an interpolation bank
    if bank.rpe == "lin":
        ratios = tuple((-arb(p)).exp() for p in bank.decays)
        group: Exponentials | Powers = Exponentials(ratios, tuple(arb(a) * (1 - z) for a, z in zip(weights, ratios, strict=True)), regular)
    else:
        amplitudes = (arb(a) / zeta(p, CERTIFY_BITS + 64 * bank.heads) for a, p in zip(weights, bank.decays, strict=True))
        group = Powers(bank.decays, tuple(amplitudes), regular)
    return DeliveredKernel(residual, (group,), subtracted=((fmpq(1), kernel),))


def bank_error(bank: HeadBank, kernel: MemoryKernel, index: int = 0) -> Norm:
    """‖κ − ρ‖₁, certified."""
    with working_precision(CERTIFY_BITS + 64 * bank.heads):
        return l1_norm(error_kernel(bank, kernel, index))


def exact_bank(rpe: Rpe, kernel: MemoryKernel, memory: int) -> HeadBank | None:
    """The bank that reproduces ρ (up to storage and confluence), if ρ is made of heads of this type."""
    decays: list[fmpq] = []
    if rpe == "lin":
        for rate, order in kernel.exponentials() or []:
            decays += [rate * (1 + CONFLUENCE * (j - fmpq(order, 2))) for j in range(order + 1)]
    elif len(kernel.exact_decays("log")) == len(kernel.terms):
        decays = kernel.exact_decays("log")
    if not decays or len(decays) > MAX_FITTED:
        return None
    return bank_through(rpe, kernel, memory, decays, range(1, len(decays) + 1), 2.0**-GUARD)


@cache
def fitted_bank(rpe: Rpe, kernel: MemoryKernel, memory: int, heads: int, arithmetic: FittedArithmetic = EXACT) -> HeadBank:
    """The best bank found with so many heads at most, by certified ℓ¹ error plus price times its weights."""
    price = arithmetic.price
    if not 1 <= heads <= MAX_FITTED:
        raise Refusal(f"{heads} heads: fitted banks have 1 to {MAX_FITTED} per kernel")
    exact = exact_bank(rpe, kernel, memory)
    if exact is not None and exact.heads <= heads and not price:
        return exact
    from constructions.banks.kernel_fit import Search  # here: scipy's solver is loaded only where something is fitted

    search = Search(kernel, rpe, price, float(arb(arithmetic.slowest)))
    own = (float((arb(p) - (rpe == "log")).log()) for p in kernel.exact_decays(rpe))
    known = [theta for theta in own if search.range[0] <= theta <= search.range[1]]
    usable = exact is not None and exact.heads <= heads and all(p >= arithmetic.slowest for p in exact.decays)
    candidates = [exact] if exact is not None and usable else []
    for solution in search.fit(heads, known)[:2]:
        pairs = sorted(zip(solution.theta, solution.weights, strict=True))
        decays = _distinct([dyadic(arb(search.decay(t)), arithmetic.precision) for t, _ in pairs])
        nodes = [s for s in solution.nodes if s > 0]
        if len(nodes) == heads:
            through = bank_through(rpe, kernel, memory, decays, nodes, solution.value or 1.0)
            candidates += [through] if through is not None else []
        else:
            weights = [arb(a) for _, a in pairs]
            with working_precision(4 * GUARD):
                raw = [a * (1 - (-arb(p)).exp() if rpe == "lin" else 1 / arb(p).zeta()) for a, p in zip(weights, decays, strict=True)]
                residual = kernel.value(0) - (sum(raw, arb(0)) if rpe == "lin" else arb(0))
                candidates.append(store(rpe, decays, (memory,), [raw], [residual], solution.value or 1.0))
    if not candidates:
        raise Refusal(f"no bank with {heads} heads was found for kernel {kernel.text[:60]!r}")
    return min(candidates, key=lambda bank: upper(bank_error(bank, kernel).most) + price * _size(bank))


def _size(bank: HeadBank) -> float:
    return upper(sum((abs(arb(a)) for row in (*bank.weights, bank.residuals) for a in row), arb(0)))


def _distinct(decays: list[fmpq]) -> list[fmpq]:
    """Increasing decays with equal ones moved apart by a millionth."""
    result: list[fmpq] = []
    for p in decays:
        result.append(p if not result or p > result[-1] else result[-1] * fmpq(2**20 + 1, 2**20))
    return result


def bank_for_error(
    rpe: Rpe, kernel: MemoryKernel, memory: int, error: float, arithmetic: FittedArithmetic = EXACT, per: float = 1.0
) -> HeadBank:
    """The fewest heads whose fitted bank is certified to `error`; `per` is the total error per error of this memory."""
    reached = float("inf")
    for heads in range(1, MAX_FITTED + 1):
        bank = fitted_bank(rpe, kernel, memory, heads, arithmetic)
        reached = min(reached, upper(bank_error(bank, kernel).most))
        if reached <= error:
            return bank
    raise Refusal(
        f"{MAX_FITTED} {rpe} heads bring kernel {kernel.text[:60]!r} to {reached:.3g} only, {error:.3g} is asked for",
        *larger_error(reached * per),
    )
