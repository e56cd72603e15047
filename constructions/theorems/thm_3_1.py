"""The weights of Theorem 3.1 (statement and bounds: `analyzer.theorems.thm_3_1`).

The network is put together by `constructions.theorems.assembly`; what is decided here is its head banks.

Banks: `paper` and `tuned` give each lag its own heads (or share all of them), `minimal` serves all lags with T_M heads.
"""

import math
from collections.abc import Sequence
from typing import Any

from flint import arb, fmpq

from analyzer.errors import OptionValue, Refusal, Remedy, finer, larger_error
from analyzer.families import Fixed
from analyzer.lemmas.extraction import Rpe, attention_bound, minimal_bound, solve_heads
from analyzer.limits.pi_law import best_pi_bound
from analyzer.numbers.exact import lower, upper, working_precision
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems.base import check_slopes
from analyzer.theorems.thm_3_1 import DEFAULT_ERROR, MAX_HEADS, check, deeper, exactly
from constructions.banks import head_banks as bank_of
from constructions.banks.balanced import MAX_WORK, balanced_bank, fitted_error, weight_sums, work
from constructions.banks.head_banks import HeadBank
from constructions.banks.mixed import mixed_minimal
from constructions.network.precision import MANTISSA, UNIT, slowest_power, tap_count
from constructions.run import fast
from constructions.theorems import assembly
from constructions.theorems.assembly import FEW, box_of, check_taps, representable, rounding_price, with_readout
from constructions.theorems.construction import Construction

slots = assembly.slots
meanings = assembly.meanings


def build(target: FixedMemory, options: Fixed | None = None, **keywords: Any) -> Construction:
    """Build the network of Theorem 3.1 for a target: by heads, or for a total error (half of it for a curved read-out's FFN)."""
    options = Fixed.of(options, keywords)
    check(target, options)
    budget = DEFAULT_ERROR if options.error is None else options.error
    curved = bool(target.readout.ridges)
    cap = min(1.0, budget)
    box = box_of(target, [arb(cap)] * len(target.lags))
    lipschitz = target.readout.lipschitz(box)[1:]
    check_slopes(lipschitz)
    attention_error = budget / 2 if curved else budget
    head_banks = _banks(target, options, lipschitz, attention_error, cap)
    ways = (*deeper(target, options.sloped, options.bank, options.heads, options.share), *exactly(target, options.bank))
    check_taps(head_banks, options.dtype, *ways)
    network, draws = with_readout(target, head_banks, options, budget / 2, box)
    return Construction(target, options, network, draws)


def _banks(target: FixedMemory, options: Fixed, lipschitz: list[arb], attention_error: float, cap: float) -> list[HeadBank]:
    lags, rpe, bank, heads, dtype, share = target.lags, options.sloped, options.bank, options.heads, options.dtype, options.share
    if rpe == "mixed":
        return list(mixed_minimal(lags[0], min(cap, attention_error / max(1.0, upper(lipschitz[0])))))
    if bank == "balanced":
        return [_balanced(target, rpe, heads, dtype)]
    if bank == "minimal":
        count = lags[-1] if heads is None else heads
        if dtype != "exact":
            return [_budgeted(target, rpe, count, dtype, attention_error)]

        def holds(errors: list[arb]) -> bool:
            total = sum((lip * e for lip, e in zip(lipschitz, errors, strict=True)), arb(0))
            return upper(total) <= attention_error and all(upper(e) <= cap for e in errors)

        return [bank_of.exact_minimal(rpe, lags, count, holds, attention_error)]
    if heads is not None:
        bound = attention_bound(rpe, lags, heads, bank, None, share)
    else:
        steepest = max(1.0, *(upper(lip) for lip in lipschitz), 0.0)
        bound = solve_heads(rpe, lags, min(cap, attention_error / steepest), bank, None, share)
        if bound.total_heads > MAX_HEADS:
            per = steepest * (2 if target.readout.ridges else 1)
            reached = upper(attention_bound(rpe, lags, FEW, bank, None, share).total) if 3 * len(lags) <= FEW else math.inf
            minimal: dict[str, OptionValue] = {"bank": "minimal"} | ({"share": False} if share else {})
            raise Refusal(
                f"the {bank} bank's bound asks for {bound.total_heads} heads at this error, {MAX_HEADS} is the most that we build",
                minimal,
                *(larger_error(reached * per) if reached <= 1 else ()),
            )
    tunings = [t if dtype == "exact" else representable(t, h, rpe, dtype) for t, h in zip(bound.tunings, bound.heads, strict=True)]
    if share:
        return [bank_of.interpolation_bank(rpe, lags, heads or bound.heads[0], tunings[0])]
    return [bank_of.interpolation_bank(rpe, (lag,), h, t) for lag, h, t in zip(lags, bound.heads, tunings, strict=True)]


def _balanced(target: FixedMemory, rpe: Rpe, heads: int | None, dtype: str) -> HeadBank:
    """The balanced bank with the given heads, or the best of a few sizes between T and 2T + 6, for the price of this type's rounding.

    Log heads must fall so fast that they run as taps: slower ones run by FFT, whose rounding is not certified.
    """
    slowest = fmpq(0) if rpe == "lin" else slowest_power(dtype, fast.MAX_TAPS)
    longest, unit = target.lags[-1], float(arb(UNIT[dtype]))
    sizes = [heads] if heads is not None else sorted({longest, longest + 2, longest + 4, 2 * longest + 2, 2 * longest + 6})

    needed = sum(work(rpe, target.lags, count) for count in sizes)
    if needed > MAX_WORK:
        raise Refusal(
            f"a balanced {rpe} bank for {len(target.lags)} lags up to {longest} asks for linear programmes of {needed} heads in all, the "
            f"limit is {MAX_WORK}",
            {"bank": "minimal", "dtype": "exact"},
        )

    def found(count: int) -> tuple[float, HeadBank]:
        operations = float(arb(rounding_price(target, count, dtype)))
        price = {
            "lin": lambda p: operations + 2 * unit / -math.expm1(-float(arb(p))),
            "log": lambda p: operations + unit * tap_count(p, dtype),
        }[rpe]
        chosen = balanced_bank(rpe, target.lags, price, count, MANTISSA[dtype], slowest)
        with working_precision(256):
            budgets = [fitted_error(chosen, k) + arb(operations) * arb(weight) for k, weight in enumerate(weight_sums(chosen))]
        return sum(upper(b) for b in budgets), chosen

    return min((found(count) for count in sizes), key=lambda pair: pair[0])[1]


MAX_FLOAT_HEADS = 27
"""u·2^{2T−1} reaches 1 at T = 27 in float64: no float bank with more heads is searched for."""


def _may_hold(way: Remedy, rpe: Rpe, lags: Sequence[int], error: float) -> bool:
    """Whether no law excludes the longest lag in this arithmetic: one layer of lin heads obeys the π-law."""
    dtype = str(way["dtype"])
    return dtype == "exact" or rpe != "lin" or not lower(best_pi_bound(lags[-1], UNIT[dtype])[0]) > error


def _budgeted(target: FixedMemory, rpe: Rpe, count: int, dtype: str, error: float) -> HeadBank:
    """The best minimal bank for a float type, refused when storing its weights alone costs more than the error."""
    unit, lags = UNIT[dtype], target.lags
    ways = [
        *deeper(target, rpe, "minimal", None if count == lags[-1] else count),
        *(w for w in finer(dtype) if _may_hold(w, rpe, lags, error)),
    ]
    least = arb(unit) * arb(2) ** (2 * count - 1)
    if rpe == "lin" and count == lags[-1] and upper(least) > error:
        raise Refusal(
            f"{dtype} cannot hold lag {count} at error {error:g}: the minimal bank's weights add up to at least 2^{2 * count - 1}, so "
            f"rounding them costs up to u·2^{2 * count - 1} = {upper(least):.3g}",
            *_more_heads(target, rpe, count, dtype, error),
            *ways,
        )
    if count > MAX_FLOAT_HEADS:
        fewer: list[Remedy] = [{"heads": None}] if lags[-1] < count else []
        raise Refusal(f"{count} heads of a minimal bank are more than any float type resolves (limit {MAX_FLOAT_HEADS})", *fewer, *ways)
    price = rounding_price(target, count, dtype)
    bank = bank_of.budgeted_minimal(rpe, lags, count, price, MANTISSA[dtype])
    with working_precision(256):
        promised = sum((minimal_bound(rpe, lag, bank.decays) for lag in lags), arb(0))
        size = bank_of.weight_sum(bank)
        if upper(promised + arb(unit) * size) > error:
            enough = upper(promised + arb(price) * size) * (2 if target.readout.ridges else 1)
            raise Refusal(
                f"{dtype} cannot hold lag {lags[-1]} at error {error:g}: the best minimal {rpe} bank has extraction error "
                f"{upper(promised):.3g} and weights adding up to {upper(size):.3g}, which costs "
                f"{upper(arb(unit) * size):.3g} to store",
                *_more_heads(target, rpe, count, dtype, error),
                *ways,
                *(larger_error(enough) if enough < 1 else ()),
            )
    return bank


def larger_sizes(lag: int) -> list[int]:
    """Numbers of heads that are tried for a lag when as many heads as the lag do not do: zeros beyond the lag are worth their weights."""
    return sorted({lag + 2, lag + 4, 2 * lag + 2, 2 * lag + 6})


def _more_heads(target: FixedMemory, rpe: Rpe, count: int, dtype: str, error: float) -> list[Remedy]:
    """The first larger minimal bank whose extraction error and price of rounding stay below the error, with what rounding adds to spare."""
    for heads in larger_sizes(target.lags[-1]):
        if count < heads <= MAX_FLOAT_HEADS:
            price = rounding_price(target, heads, dtype)
            bank = bank_of.budgeted_minimal(rpe, target.lags, heads, price, MANTISSA[dtype])
            slow = rpe == "log" and tap_count(min(bank.decays), dtype) > fast.MAX_TAPS
            with working_precision(256):
                cost = sum((minimal_bound(rpe, lag, bank.decays) for lag in target.lags), arb(0)) + arb(price) * bank_of.weight_sum(bank)
            if not slow and upper(cost) <= error / 2:
                return [{"heads": heads}]
    return []
