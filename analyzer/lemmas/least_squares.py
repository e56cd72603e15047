"""Least squares over head banks: the weights of given decays whose kernel is nearest to a memory in ℓ² (`analyzer.theorems.least_squares`).

Raw heads are z^s = e^{−ps} (lin) or s^{−p} (log). On s ≥ 1 their Gram matrix and their products with a memory ρ are

    lin   G_ij = z_i z_j / (1 − z_i z_j),    g_i = Σ_{s≥1} z_i^s ρ(s)        (z_i^T for the lag T)
    log   G_ij = ζ(p_i + p_j),               g_i = Σ_{s≥1} s^{−p_i} ρ(s)     (T^{−p_i})

The residual weight puts s = 0 right whatever the heads do there. Terms c e^{−as} and c s^{−q} of a memory have closed forms with heads of
their own kind; other products are summed until the heads' tail is below the precision, or taken from squared norms by polarisation,
2⟨k, ρ⟩ = ‖k‖² + ‖ρ‖² − ‖k − ρ‖².
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flint import arb, arb_mat, ctx, fmpq

from analyzer.errors import Refusal
from analyzer.families import Rpe
from analyzer.kernels.l1_norms import DeliveredKernel, Exponentials, Powers
from analyzer.kernels.l2_norms import l2_square, split_memory
from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.numbers.exact import working_precision
from analyzer.numbers.zeta import zeta

Wanted = tuple[Mapping[int, fmpq], Mapping[MemoryKernel, fmpq]]
"""A memory: weights of single lags, and weighted kernels."""
BITS, MOST_BITS = 512, 1 << 13
"""Precision in which Gram matrices are solved, doubled until they can be: nearby decays make them nearly singular."""
SHARP_BITS = 128
"""Amplitudes are known to 2^-128, however large: by Pythagoras the square of that is what the least mean square may lack."""
POLARISED_BITS = 192
"""Precision of products by polarisation, of which squared norms keep 40 bits."""
LONGEST = 1 << 14
"""Terms of a product that are summed."""


@dataclass(frozen=True)
class BestWeights:
    """Amplitudes of the raw heads and the residual weight, as midpoints of balls."""

    amplitudes: tuple[arb, ...]
    residual: arb


def best_weights(rpe: Rpe, decays: Sequence[fmpq], wanted: Wanted) -> BestWeights:
    """The solution of G A = g, and the residual weight that puts s = 0 right; refused if the decays are too close to each other."""
    bits = BITS
    while bits <= MOST_BITS:
        with working_precision(bits):
            found = _solved(gram(rpe, decays), products(rpe, decays, wanted))
            if found is not None:
                amplitudes = tuple(a.mid() for a in found)
                at_zero = sum(amplitudes, arb(0)) if rpe == "lin" else arb(0)
                return BestWeights(amplitudes, (value_at_zero(wanted) - at_zero).mid())
        bits *= 2
    raise Refusal("the decays are so close to each other that their heads cannot be told apart; give decays that differ more")


def _solved(matrix: arb_mat, right: list[arb]) -> list[arb] | None:
    """The solution for the midpoints of the right-hand side; None if the matrix may be singular, or nearly so, at this precision."""
    try:
        found = [entry[0] for entry in matrix.solve(arb_mat([[v.mid()] for v in right])).tolist()]
    except ZeroDivisionError:
        return None
    return found if all(v.rad() <= arb(2) ** -SHARP_BITS for v in found) else None


def value_at_zero(wanted: Wanted) -> arb:
    """ρ(0)."""
    lags, memories = wanted
    return sum((arb(w) * memory.value(0) for memory, w in memories.items()), arb(lags.get(0, 0)))


def gram(rpe: Rpe, decays: Sequence[fmpq]) -> arb_mat:
    """Σ_{s≥1} k_i(s) k_j(s) of the raw heads."""
    if rpe == "log":
        return arb_mat([[zeta(p + q, ctx.prec) for q in decays] for p in decays])
    ratios = [(-arb(p)).exp() for p in decays]
    return arb_mat([[z * w / (1 - z * w) for w in ratios] for z in ratios])


def products(rpe: Rpe, decays: Sequence[fmpq], wanted: Wanted) -> list[arb]:
    """Σ_{s≥1} k_i(s) ρ(s) of every raw head."""
    lags, memories = wanted
    result = []
    for p in decays:
        total = sum((arb(w) * _raw(rpe, p, lag) for lag, w in lags.items() if lag > 0), arb(0))
        result.append(total + sum((arb(w) * _product(rpe, p, memory) for memory, w in memories.items()), arb(0)))
    return result


def _raw(rpe: Rpe, p: fmpq, s: int) -> arb:
    return (-arb(p) * s).exp() if rpe == "lin" else arb(s) ** -arb(p)


def _product(rpe: Rpe, p: fmpq, memory: MemoryKernel) -> arb:
    exponentials, powers, rest = split_memory(memory)
    ratio = (-arb(p)).exp()
    if rpe == "lin":
        total = sum((c * z * ratio / (1 - z * ratio) for c, z in exponentials), arb(0))
        total += sum((c * _polylog(ratio, q) for c, q in powers), arb(0))
        return total + (arb(0) if rest is None else _summed(ratio, rest))
    total = sum((c * _polylog(z, p) for c, z in exponentials), arb(0))
    total += sum((c * zeta(p + q, ctx.prec) for c, q in powers), arb(0))
    return total + (arb(0) if rest is None else _polarised(p, rest))


def _polylog(ratio: arb, power: fmpq) -> arb:
    """Σ_{s≥1} z^s s^{−p}; what is left after S terms is at most z^S/(1−z)."""
    count = _terms(ratio)
    powers = Powers((power,), (arb(1),)).values(1, count)
    total = sum((ratio**s * v for s, v in enumerate(powers, start=1)), arb(0))
    return total + arb(0, (ratio**count / (1 - ratio)).abs_upper())


def _terms(ratio: arb) -> int:
    """Terms until z^S is below the precision, `LONGEST` at most."""
    return min(LONGEST, 2 + int(float((ctx.prec * arb.const_log2() / -ratio.log()).upper())))


def _summed(ratio: arb, memory: MemoryKernel) -> arb:
    """Σ_{s≥1} z^s ρ(s); what is left after S terms is at most z^S Σ_{s≥S}|ρ(s)|."""
    count = max(_terms(ratio), memory.positive_from)
    total = sum((ratio**s * v for s, v in enumerate(memory.values(1, count), start=1)), arb(0))
    return total + arb(0, (ratio**count * memory.tail(count)).abs_upper())


def _polarised(p: fmpq, memory: MemoryKernel) -> arb:
    """Σ_{s≥1} s^{−p} ρ(s) from squared norms: ‖k − ρ‖² and ‖ρ‖² both count s = 0 with ρ(0)²."""
    head = DeliveredKernel(fmpq(0), (Powers((p,), (arb(1),)),))
    alone = DeliveredKernel(fmpq(0), (), (), ((fmpq(1), memory),))
    apart = DeliveredKernel(fmpq(0), head.groups, (), ((fmpq(1), memory),))
    with working_precision(POLARISED_BITS):
        return (l2_square(head).enclosure + l2_square(alone).enclosure - l2_square(apart).enclosure) / 2


def best_kernel(rpe: Rpe, decays: Sequence[fmpq], weights: BestWeights, wanted: Wanted) -> DeliveredKernel:
    """κ − ρ of these weights on ideal heads; the residual is taken to the last bit of its midpoint."""
    lags, memories = wanted
    groups: tuple[Exponentials | Powers, ...]
    if rpe == "lin":
        groups = (Exponentials(tuple((-arb(p)).exp() for p in decays), weights.amplitudes),)
    else:
        groups = (Powers(tuple(decays), weights.amplitudes),)
    mantissa, exponent = weights.residual.man_exp()
    residual = fmpq(int(mantissa)) * fmpq(2) ** int(exponent)
    return DeliveredKernel(residual, groups, tuple(sorted(lags.items())), tuple((w, memory) for memory, w in memories.items()))
