"""The weights that are best in mean square (statement and bounds: `analyzer.theorems.least_squares`).

The network is that of Theorem 3.1 (`constructions.theorems.assembly`): one bank of heads serves all memories. Decays are given, or found
by a search for so many heads; without heads they are the fewest for which the search reaches the error, as far as it is known: by (L.2)
a lag T of weight w with fewer than T(1 − error/(v w²)) lin heads need not be tried.
"""

import math

from flint import arb

from analyzer.errors import Refusal
from analyzer.families import DEFAULT_ERROR, MOST_LEAST_SQUARES, Fixed, Kernel
from analyzer.lemmas.extraction import Rpe
from analyzer.numbers.exact import nearest, upper, working_precision
from analyzer.targets.protocol import LayerTarget
from analyzer.targets.tokens import TOKEN_LAWS
from analyzer.theorems.least_squares import check, optimum
from constructions.banks.head_banks import HeadBank
from constructions.banks.least_squares import EXACT_PRICE, least_squares_bank, optimised_decays, stored_decays
from constructions.network.precision import slowest_power
from constructions.run.fast import MAX_TAPS
from constructions.theorems import assembly
from constructions.theorems.assembly import box_of, check_taps, rounding_price, with_readout
from constructions.theorems.construction import Construction

slots = assembly.slots
meanings = assembly.meanings
MOST_SEARCHED = 12
"""Heads up to which the fewest are looked for."""


def build(target: LayerTarget, options: Fixed | Kernel) -> Construction:
    """Build the layer whose weights are best in mean square: for given decays, or optimised ones."""
    check(target, options)
    rpe: Rpe = "lin" if options.rpe == "lin" else "log"
    bank = _bank(target, options, rpe)
    check_taps([bank], options.dtype, {"dtype": "exact"})
    network, draws = with_readout(target, [bank], options, DEFAULT_ERROR, box_of(target, [arb(1)] * len(target.bank_labels)))
    return Construction(target, options, network, draws)


def _bank(target: LayerTarget, options: Fixed | Kernel, rpe: Rpe) -> HeadBank:
    if isinstance(options.decays, tuple):
        return least_squares_bank(rpe, stored_decays(options.decays, options.dtype), target)
    if options.heads is not None:
        return _optimised(target, options, rpe, options.heads)
    error = DEFAULT_ERROR if options.error is None else options.error
    variance = TOKEN_LAWS[options.tokens or "uniform"].variance
    reached = math.inf
    for heads in range(_fewest(target, rpe, error / nearest(variance)), MOST_SEARCHED + 1):
        bank = _optimised(target, options, rpe, heads)
        with working_precision(128):
            reached = min(reached, upper(arb(variance) * optimum(rpe, bank.decays, target).most))
        if reached <= error * 0.999:
            return bank
    best = f" {MOST_SEARCHED} heads reach {reached:.3g}" if math.isfinite(reached) else " by (L.2) the lag asks for more heads"
    raise Refusal(
        f"no bank of at most {MOST_SEARCHED} {rpe} heads was found with a mean square error of {error:g}:{best}",
        {"heads": min(MOST_LEAST_SQUARES, 2 * MOST_SEARCHED), "error": None},
    )


def _fewest(target: LayerTarget, rpe: Rpe, error: float) -> int:
    """Heads below which no search is worth while: E|error|²/v ≥ w²(1 − H/T) for a single lag T of weight w and lin heads."""
    lags = [lag for lag in target.places if lag > 0]
    if rpe != "lin" or len(lags) != 1:
        return 1
    weight = sum(nearest(w) ** 2 for w in target.readout.affine[target.dim :])
    return max(1, math.ceil(lags[0] * (1 - error / weight) - 1e-9))


def _optimised(target: LayerTarget, options: Fixed | Kernel, rpe: Rpe, heads: int) -> HeadBank:
    floats = options.dtype != "exact"
    price = nearest(rounding_price(target, heads, options.dtype)) if floats else EXACT_PRICE[rpe]
    slowest = slowest_power(options.dtype, MAX_TAPS) if floats and rpe == "log" else 0
    return least_squares_bank(rpe, optimised_decays(rpe, target, heads, price, slowest, options.dtype), target)
