"""The weights of Theorem 5.1 (statement and bounds: `analyzer.theorems.thm_5_1`).

The residual stream is that of Theorem 3.1: x_t in block `x0`, memory k in block `k1` … `kM`. Every kernel has heads of its own
(`constructions.banks.kernel_banks`); the embedding writes c_k x_t into block k, so that log heads, which do not see s = 0, are completed by
ρ_k(0). The read-out approximates f on the box of radii ‖ρ_k‖₁ + e_k.

Heads are split evenly, as in the theorem; fitted banks for kernels that are themselves sums of heads take what they need first.
"""

from collections.abc import Sequence
from typing import Any

from flint import arb

from analyzer.errors import Refusal
from analyzer.families import DEFAULT_ERROR, Kernel
from analyzer.lemmas.extraction import Rpe
from analyzer.numbers.exact import nearest, upper
from analyzer.targets.kernel import KernelMemory
from analyzer.theorems.base import check_slopes
from analyzer.theorems.thm_5_1 import MAX_HEADS, attention_bound, check_sizes, solve_heads, split
from constructions.banks.head_banks import HeadBank
from constructions.banks.kernel_banks import (
    EXACT,
    MAX_FITTED,
    FittedArithmetic,
    bank_for_error,
    exact_bank,
    fitted_bank,
    interpolation_kernel_bank,
)
from constructions.network.precision import MANTISSA, slowest_power
from constructions.network.transformer import Transformer
from constructions.run.fast import MAX_TAPS
from constructions.theorems import assembly
from constructions.theorems.assembly import box_of, check_taps, representable, rounding_price, with_readout
from constructions.theorems.construction import Construction


def slots(target: KernelMemory, network: Transformer | None = None) -> dict[str, range]:
    """Named blocks of the residual stream: `x0`, then `k1` … `kM`."""
    return assembly.slots(target, network)


meanings = assembly.meanings


def build(target: KernelMemory, options: Kernel | None = None, **keywords: Any) -> Construction:
    """Build the network of Theorem 5.1 for a target: by heads, or for a total error (half of it for a curved read-out's FFN)."""
    options = Kernel.of(options, keywords)
    rpe, bank, heads, dtype = options.rpe, options.bank, options.heads, options.dtype
    check_sizes(target, rpe, bank, heads, options.error, options.width)
    budget = DEFAULT_ERROR if options.error is None else options.error
    box = box_of(target, [arb(min(1.0, budget))] * len(target.kernels))
    slopes = target.readout.lipschitz(box)[1:]
    check_slopes(slopes)
    lipschitz = [upper(slope) for slope in slopes]
    attention_error = budget / 2 if target.readout.ridges else budget
    if bank == "fitted":
        head_banks = _fitted(target, rpe, heads, lipschitz, attention_error, dtype, budget / attention_error)
    else:
        head_banks = _interpolated(target, rpe, bank, heads, lipschitz, attention_error, dtype)
        check_taps(head_banks, dtype, {"bank": "fitted"}, {"dtype": "exact"})
    network, draws = with_readout(target, head_banks, options, budget / 2, box)
    return Construction(target, options, network, draws)


def _fitted(
    target: KernelMemory, rpe: Rpe, heads: int | None, lipschitz: Sequence[float], error: float, dtype: str, per: float
) -> list[HeadBank]:
    """One fitted bank per kernel; floats pay for their weights. `per` is the total error per error of the attention."""
    arithmetic = EXACT if dtype == "exact" else _arithmetic(target, rpe, heads or MAX_FITTED, dtype)
    kernels = target.parsed
    if heads is None:
        shares = [0.9 * error / (len(kernels) * max(lip, 1e-300)) for lip in lipschitz]
        return [
            bank_for_error(rpe, kernel, k, share, arithmetic, per * error / share)
            for k, (kernel, share) in enumerate(zip(kernels, shares, strict=True), 1)
        ]
    exact = [exact_bank(rpe, kernel, k) for k, kernel in enumerate(kernels, start=1)]
    sizes = _sizes(heads, [None if found is None or dtype != "exact" else found.heads for found in exact])
    return [fitted_bank(rpe, kernel, k, size, arithmetic) for k, (kernel, size) in enumerate(zip(kernels, sizes, strict=True), 1)]


def _arithmetic(target: KernelMemory, rpe: Rpe, heads: int, dtype: str) -> FittedArithmetic:
    """Floats pay for their weights, and log heads must fall fast enough to run as taps."""
    price = nearest(rounding_price(target, heads, dtype))
    slowest = 0 if rpe == "lin" else slowest_power(dtype, MAX_TAPS)
    return FittedArithmetic(price, MANTISSA[dtype], slowest)


def _sizes(heads: int, needs: Sequence[int | None]) -> list[int]:
    """An even split, in which kernels that need less leave the rest to those after them; at most what a fitted bank can have."""
    sizes: dict[int, int] = {}
    for k in sorted(range(len(needs)), key=lambda k: needs[k] or MAX_FITTED):
        share = split(heads - sum(sizes.values()), len(needs) - len(sizes))[0]
        sizes[k] = min(share, needs[k] or MAX_FITTED)
    return [sizes[k] for k in range(len(needs))]


def _interpolated(
    target: KernelMemory, rpe: Rpe, bank: str, heads: int | None, lipschitz: Sequence[float], error: float, dtype: str
) -> list[HeadBank]:
    """The proof's banks."""
    if heads is not None:
        bound = attention_bound(rpe, target.parsed, heads, bank)
    else:
        bound = solve_heads(rpe, target.parsed, error / max(1.0, *lipschitz, 0.0), bank)
        if sum(bound.heads) > MAX_HEADS:
            raise Refusal(
                f"the {bank} bank's bound asks for {sum(bound.heads)} heads at this error, {MAX_HEADS} is the most that we build",
                {"bank": "fitted"},
            )
    banks = []
    for k, (kernel, count, tuning) in enumerate(zip(target.parsed, bound.heads, bound.tunings, strict=True), start=1):
        stored = tuning if dtype == "exact" else representable(tuning, count, rpe, dtype)
        banks.append(interpolation_kernel_bank(rpe, kernel, k, count, stored))
    return banks
