"""The planner of a chain of shifts: the fewest layers, then the fewest heads in all, over chains of the shifts and banks on offer.

A shift costs log(1 + e + f), its certified extraction error and the rounding of one layer (`shift_banks`), and the costs of a linear chain
add up to at most log(1 + error). Costs are rounded up to a grid, so a plan never promises too much. Restored shifts only have to fit, one
by one, into the room that the plateau leaves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from flint import arb

from analyzer.errors import OptionValue, Refusal, Remedy, larger_error
from analyzer.families import MAX_DEPTH
from analyzer.numbers.exact import upper
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems.shift_chain import composed, exactly, least_heads
from constructions.banks import head_banks
from constructions.banks.head_banks import HeadBank
from constructions.theorems.shift_chain.layout import Layout
from constructions.theorems.shift_chain.plateaus import Plateaus
from constructions.theorems.shift_chain.shift_banks import Option, best_option, shift_errors

MANY_HEADS = 4
"""Balanced banks with 2τ + 4 heads are within a few per cent of the best for the shift τ: they decide how few layers there can be."""
MORE_HEADS = (0, 1, 2, 3, 4, 6, 8, 12)
"""The shifts of such a plan are then offered with τ + this many heads as well, as far as that is fewer."""
MAX_STATES = 1 << 22
"""Lags times cells of the budget in the planner's table: L layers lose at most L cells to rounding up."""
PLANNED_ROOM = 15 / 16
"""Share of the room around the letters that a plan fills: a certificate bounds sums and sizes a little more crudely than the plan."""
LONGEST_SEARCH = 64
"""Lags for which other plans are searched for when one fails: each search takes seconds."""
DOUBLINGS = 8
"""Times that the error is doubled in search of one that there is a plan for."""
LAYER = 1 << 20
"""What a layer counts in heads while plans are compared: it outweighs the heads of any chain."""

Chain = list[tuple[int, HeadBank]]
"""Shift and bank of every layer."""


@dataclass(frozen=True)
class Demand:
    """What a chain is planned for: layers and heads (None: as few as can be, as many as it takes), and the error of every memory (None in
    restored chains, which reset it)."""

    target: FixedMemory
    bank: str
    depth: int | None
    heads: int | None
    dtype: str
    error: float | None

    @property
    def lag(self) -> int:
        return self.target.lags[-1]

    @property
    def plateaus(self) -> Plateaus | None:
        return None if self.target.alphabet is None else Plateaus(self.target.alphabet)

    @property
    def dearest(self) -> float:
        """What one shift may cost at most: the whole error, or the room around a letter."""
        if self.plateaus is not None:
            return float(arb(self.plateaus.room)) * PLANNED_ROOM
        assert self.error is not None
        return self.error

    @property
    def shifts(self) -> Sequence[int]:
        """Shifts that may occur: all, or those of layers as equal as can be."""
        return range(1, self.lag + 1) if self.depth is None else sorted({self.lag // self.depth, -(-self.lag // self.depth)})


@dataclass(frozen=True)
class Offer:
    """Shifts that cost little enough, and what the first one costs that does not (infinite if there is none)."""

    options: list[Option]
    next_cost: float


def exact_chain(target: FixedMemory, depth: int | None, heads: int | None, error: float) -> Chain:
    """Shifts as equal as can be, in as few layers as the heads allow unless told otherwise; e_l = (1 + error)^{1/L} − 1 in each."""
    layers, layout = depth or (1 if heads is None else least_heads(target.lags[-1], heads)), Layout(target)
    each = math.expm1(math.log1p(error) / layers) * (1 - 2.0**-20)
    known: dict[tuple[int, ...], HeadBank] = {}
    chain, before = [], 0
    for shift in _equal_shifts(target.lags[-1], layers):
        lags = layout.served(before, shift)
        if lags not in known:
            known[lags] = head_banks.exact_minimal("lin", lags, shift, lambda errors: all(upper(e) <= each for e in errors), each)
        chain.append((shift, known[lags]))
        before += shift
    return chain


def planned_chain(demand: Demand, total: float) -> Chain:
    """The chain of a float network; refused with other plans that exist. `total` is the total error per error of a memory."""
    found = _search(demand)
    if isinstance(found, Offer):
        raise Refusal(_no_chain(demand, found), *_other_plans(demand, total))
    return found


def _search(demand: Demand) -> Chain | Offer:
    """The chain of a float network, or what was on offer if there is none.

    Layers that deliver memories on the way serve several shifts with one bank, which costs more than the plan counts: then the plan is
    made again for a smaller error.
    """
    offer = _offer(demand)
    first = plan(offer.options, demand.lag, demand.error, demand.depth) if demand.bank == "balanced" else None
    options = [*offer.options, *_thrifty(demand, offer.options, {option.shift for option in first or ()})]
    for share in (1.0, 0.75, 0.5, 0.25):
        found = plan(options, demand.lag, None if demand.error is None else share * demand.error, demand.depth)
        if found is None or len(found) > MAX_DEPTH:
            break
        serving = _serving(demand, found)
        chain = [(option.shift, option.bank) for option in serving]
        fits = all(option.cost <= demand.dearest for option in serving)
        if fits and (demand.error is None or upper(chain_error(Layout(demand.target), chain, demand.dtype)) <= demand.error):
            return chain
    return Offer(options, offer.next_cost)


def _offer(demand: Demand) -> Offer:
    """Shifts in order, each with its best bank, up to the first that costs too much."""
    options: list[Option] = []
    for shift in demand.shifts:
        heads = shift if demand.bank == "minimal" else 2 * shift + MANY_HEADS
        if demand.heads is not None and demand.heads < shift:
            break
        most = heads if demand.heads is None else min(heads, demand.heads)
        option = best_option(demand.bank, (shift,), most, demand.dtype, demand.plateaus)
        if option.cost > demand.dearest:
            return Offer(options, option.cost)
        options.append(option)
    return Offer(options, math.inf)


def _thrifty(demand: Demand, options: Sequence[Option], shifts: set[int]) -> list[Option]:
    """These shifts with fewer heads, for balanced banks."""
    found = []
    for option in options:
        for more in MORE_HEADS if option.shift in shifts else ():
            if option.shift + more < option.bank.heads:
                thrifty = best_option("balanced", (option.shift,), option.shift + more, demand.dtype, demand.plateaus)
                found += [thrifty] if thrifty.cost <= demand.dearest else []
    return found


def _serving(demand: Demand, options: Sequence[Option]) -> list[Option]:
    """The same chain with banks that serve the memories on the way as well."""
    layout, serving, before = Layout(demand.target), [], 0
    for option in options:
        lags = layout.served(before, option.shift)
        serving.append(best_option(demand.bank, lags, option.bank.heads, demand.dtype, demand.plateaus))
        before += option.shift
    return serving


def chain_error(layout: Layout, chain: Chain, dtype: str) -> arb:
    """Π (1 + e_l + f_l) − 1 for the worst memory."""
    carried, worst, before = arb(0), arb(0), 0
    for shift, bank in chain:
        errors = dict(zip(bank.lags, shift_errors(bank, dtype, None), strict=True))
        for k in layout.extracted(before, shift):
            worst = worst.max(composed([carried, errors[layout.target.lags[k - 1] - before]]))
        carried, before = composed([carried, errors[shift]]), before + shift
    return worst


def _other_plans(demand: Demand, total: float) -> list[Remedy]:
    """Plans that exist, the least change first: other layers, heads, banks and types; then exact arithmetic, then larger errors."""
    freed: dict[str, OptionValue] = {}
    candidates: list[tuple[Remedy, Demand]] = []
    free = replace(demand, depth=None, heads=None)
    if demand.depth is not None:
        freed["depth"] = "auto"
        candidates.append(({"depth": "auto"}, replace(demand, depth=None)))
    if demand.heads is not None:
        freed["heads"] = None
        candidates.append(({"heads": None}, replace(demand, heads=None)))
    if demand.bank == "minimal":
        candidates.append(({"bank": "balanced", **freed}, replace(free, bank="balanced")))
    if demand.dtype == "float32":
        candidates.append(({"dtype": "float64", **freed}, replace(free, dtype="float64")))
    ways = [remedy for remedy, other in candidates if _has_plan(other)] if demand.lag <= LONGEST_SEARCH else []
    if demand.error is None:
        return ways
    ways += exactly(demand.lag, demand.bank, demand.heads)
    if demand.lag <= LONGEST_SEARCH:
        doubled = (demand.error * 2**k for k in range(1, DOUBLINGS))
        enough = next((error for error in doubled if error <= 1 and _has_plan(replace(demand, error=error))), None)
        ways += larger_error(math.inf if enough is None else enough * total)
    return ways


def _has_plan(demand: Demand) -> bool:
    return not isinstance(_search(demand), Offer)


def _no_chain(demand: Demand, offer: Offer) -> str:
    """Why there is no plan."""
    target, options = demand.target, offer.options
    if not options and math.isinf(offer.next_cost):
        return f"no head is left for a shift by {1 if demand.depth is None else demand.lag // demand.depth}"
    letters = ", ".join(map(str, target.alphabet or ()))
    aim = f"error {demand.error:.3g} of every memory" if demand.error is not None else f"letters {letters}"
    cheapest = {shift: min(o.cost for o in options if o.shift == shift) for shift in sorted({o.shift for o in options})}
    costs = ", ".join(f"a shift by {shift} costs {cost:.3g}" for shift, cost in cheapest.items())
    layers = "a chain of shifts" if demand.depth is None else f"a chain of {demand.depth} layers"
    return (
        f"{demand.dtype} cannot hold lag {demand.lag} at {aim} by {layers} with {demand.bank} banks: "
        f"{costs or f'one shift costs {offer.next_cost:.3g} at least'}"
    )


def plan(options: Sequence[Option], lag: int, budget: float | None, depth: int | None) -> list[Option] | None:
    """The chain with the fewest layers, then the fewest heads, whose costs log(1 + e + f) add up to at most log(1 + budget).

    Dynamic programming over the lag covered and the budget spent, which is cut into cells; costs are rounded up to cells (a budget of None
    asks nothing of the sum). With `depth` exactly that many layers are used. None if there is no such chain.
    """
    cells = 0 if budget is None else max(1000, min(16 * lag, MAX_STATES // lag))
    spent = [0 if budget is None else max(1, math.ceil(cells * math.log1p(o.cost) / math.log1p(budget) * (1 + 2.0**-40))) for o in options]
    if depth is not None:
        return _of_depth(options, spent, lag, cells, depth)
    best = np.full((lag + 1, cells + 1), np.inf)
    taken = np.full((lag + 1, cells + 1), -1, dtype=np.int16)
    best[0] = 0
    for reached in range(1, lag + 1):
        for index, (option, price) in enumerate(zip(options, spent, strict=True)):
            if option.shift > reached or price > cells:
                continue
            candidate = best[reached - option.shift, : cells + 1 - price] + LAYER + option.bank.heads
            better = candidate < best[reached, price:]
            best[reached, price:][better] = candidate[better]
            taken[reached, price:][better] = index
    if not np.isfinite(best[lag, cells]):
        return None
    chain, left, reached = [], cells, lag
    while reached:
        index = int(taken[reached, left])
        chain.append(options[index])
        reached, left = reached - options[index].shift, left - spent[index]
    return sorted(chain, key=lambda option: (-option.shift, option.bank.heads))


def _equal_shifts(lag: int, layers: int) -> list[int]:
    """A lag cut into shifts as equal as can be, the longer ones first."""
    return [lag // layers + (index < lag % layers) for index in range(layers)]


def _of_depth(options: Sequence[Option], spent: Sequence[int], lag: int, cells: int, depth: int) -> list[Option] | None:
    """The same with exactly `depth` layers: shifts as equal as can be, the longer ones first, and heads saved from the first layer on."""
    shifts = _equal_shifts(lag, depth)
    offers = {shift: [(price, o) for o, price in zip(options, spent, strict=True) if o.shift == shift] for shift in set(shifts)}
    if not all(offers.values()):
        return None
    cheapest = {shift: min(price for price, _ in offer) for shift, offer in offers.items()}
    slack = cells - sum(cheapest[shift] for shift in shifts)
    if slack < 0:
        return None
    chain = []
    for shift in shifts:
        affordable = [(price, option) for price, option in offers[shift] if price <= cheapest[shift] + slack]
        price, option = min(affordable, key=lambda pair: (pair[1].bank.heads, pair[0]))
        slack -= price - cheapest[shift]
        chain.append(option)
    return chain
