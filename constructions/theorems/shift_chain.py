"""The weights of a chain of shifts (law, composition and restoration: `analyzer.theorems.shift_chain`).

Residual stream in named blocks of d coordinates: `x0`, the memories `m1` … `mM`, `source` (what heads read), `carrier` (what they write)
and, in restored networks, n − 1 digits for every coordinate of x0 and of the memories. Let v be the carrier after layer l − 1 (x_t at the
start), σ the shift so far. Then layer l finds v in the source, c v in the carrier and c_k v in every memory with σ < T_k ≤ σ + τ_l; its
heads read the source and write with weights of their own into the carrier (shift τ_l) and into those memories (shift T_k − σ). All blocks
but these stay as they are.

    linear     source += carrier − source,  carrier += (c − 1) carrier,  m_k += c_k carrier;  a linear map w·u is relu(w·u) − relu(−w·u)
    restored   the same with plateau(carrier) in the place of carrier, and digits w_j = relu(k(θ_j − m)) for the memories just delivered

where plateau(r) = v_1 + Σ_j (v_{j+1} − v_j)(relu(k r − k λ_j) − relu(k r − k θ_j)), θ_j = λ_j + 1/k, the ramps centred in the gaps. The
last feed-forward network of a linear chain is the read-out f. A restored network ends with a layer without attention that sums the table
of f: coefficients (mixed differences) times relu(1 − Σ_{j∈J} w_j).

The planner minimises the layers, then the heads in all, over chains of the shifts and banks on offer (`MANY_HEADS`, `MORE_HEADS`); a
shift costs log(1 + e + f), its certified extraction error and the rounding of one layer, and the costs of a chain add up to at most log(1
+ error). Costs are rounded up to a grid, so a plan never promises too much. Restored shifts only have to fit into the room that the
plateau leaves.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from typing import Any

import jax
import numpy as np
from flint import arb, fmpq

from analyzer.errors import OptionValue, Refusal, Remedy, larger_error
from analyzer.families import DEFAULT_ERROR, MAX_DEPTH, Fixed
from analyzer.kernels.l1_norms import l1_norm
from analyzer.lemmas.relu_error import Neuron
from analyzer.numbers.exact import UNIT, to_grid, upper, working_precision
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems.shift_chain import check_options, composed, exactly, least_heads, readout_variables
from constructions.banks import head_banks as bank_of
from constructions.banks.balanced import balanced_bank
from constructions.banks.head_banks import HeadBank
from constructions.network.precision import MANTISSA
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, to_exact, to_float, zeros
from constructions.neurons import feedforward
from constructions.run.fused import FusedLayer, fuse_layer
from constructions.theorems.assembly import MAX_SLOPE, round_network
from constructions.theorems.construction import Construction

LINEAR_MOVE = 3
"""Rounding of source += carrier − source in units of u: one rounded sum of size 2, and the residual addition."""
RAMP_SHARE = fmpq(1, 4)
"""The part of the smallest gap that a plateau's ramp takes at most: 3/8 of the gap is left on either side as room for errors."""
MANY_HEADS = 4
"""Balanced banks with 2τ + 4 heads are within a few per cent of the best for the shift τ: they decide how few layers there can be."""
MORE_HEADS = (0, 1, 2, 3, 4, 6, 8, 12)
"""The shifts of such a plan are then offered with τ + this many heads as well, as far as that is fewer."""
MAX_STATES = 1 << 22
"""Lags times cells of the budget in the planner's table: L layers lose at most L cells to rounding up."""
SECOND_ORDER = 1 + arb(2) ** -10
"""Products of roundings, which the prices leave out, are below this share for u·10³ ≤ 2^-10."""


@dataclass(frozen=True)
class Plateaus:
    """A staircase that is constant near every letter: ramps of width 1/k, k a power of 2, in the middle of every gap."""

    letters: tuple[fmpq, ...]

    @property
    def gaps(self) -> list[fmpq]:
        return [b - a for a, b in zip(self.letters, self.letters[1:], strict=False)]

    @cached_property
    def steepness(self) -> fmpq:
        wanted = 1 / (RAMP_SHARE * min(self.gaps))
        return fmpq(2) ** math.ceil(math.log2(float(arb(wanted))))

    @property
    def ramps(self) -> list[tuple[fmpq, fmpq]]:
        """(λ_j, θ_j)."""
        half = 1 / (2 * self.steepness)
        middles = [(a + b) / 2 for a, b in zip(self.letters, self.letters[1:], strict=False)]
        return [(middle - half, middle + half) for middle in middles]

    @property
    def room(self) -> fmpq:
        """How far a value may be from its letter and still be restored."""
        return min(self.gaps) / 2 - 1 / (2 * self.steepness)

    @property
    def size(self) -> fmpq:
        return max(abs(self.letters[0]), abs(self.letters[-1]))

    @property
    def move(self) -> fmpq:
        """Rounding of source += plateau(carrier) − source in units of u, for carriers within the room of the letters.

        Hidden values k r − kλ have one rounded sum of size k(ρ + |λ|); the outer sum has 2(n−1) + 2 terms; one residual addition.
        """
        reach, terms = self.size + self.room, 2 * len(self.letters)
        hidden, outer = fmpq(0), 2 * self.size
        for gap, ramp in zip(self.gaps, self.ramps, strict=True):
            for knot in ramp:
                hidden += 2 * gap * self.steepness * (reach + abs(knot))
                outer += gap * self.steepness * max(reach - knot, fmpq(0))
        return hidden + terms * outer + 2


@dataclass(frozen=True)
class Layout:
    """Coordinates of the residual stream."""

    target: FixedMemory

    @property
    def dim(self) -> int:
        return self.target.dim

    @property
    def slots(self) -> int:
        """Coordinates of x0 and the memories: the first ones."""
        return self.target.readout.coordinates

    def memory(self, k: int) -> range:
        """Block of m_k, k ≥ 1; k = 0 is x0."""
        return self.target.readout.slot(k)

    @property
    def source(self) -> range:
        return range(self.slots, self.slots + self.dim)

    @property
    def carrier(self) -> range:
        return range(self.slots + self.dim, self.slots + 2 * self.dim)

    def digits(self, coordinate: int) -> range:
        """Digits of a coordinate of x0 or of a memory."""
        count = len(self.target.alphabet or ()) - 1
        start = self.slots + 2 * self.dim + coordinate * count
        return range(start, start + count)

    @property
    def width(self) -> int:
        return self.slots + 2 * self.dim if self.target.alphabet is None else self.digits(self.slots - 1).stop

    def extracted(self, before: int, shift: int) -> list[int]:
        """Memories that a layer delivers which finds the shift `before` and adds `shift`."""
        return [k for k, lag in enumerate(self.target.lags, start=1) if before < lag <= before + shift]


def slots(target: FixedMemory, network: Transformer | None = None) -> dict[str, range]:
    """Named blocks of the residual stream: `x0`, the memories, `source`, `carrier`, and of restored chains the digits of all but those."""
    layout = Layout(target)
    blocks = {name: layout.memory(k) for k, name in enumerate(target.readout.slots)}
    named = {**blocks, "source": layout.source, "carrier": layout.carrier}
    if target.alphabet is None:
        return named
    return named | {f"digits {name}": range(layout.digits(b[0]).start, layout.digits(b[-1]).stop) for name, b in blocks.items()}


@dataclass(frozen=True)
class Option:
    """A shift on offer: its bank, what it costs (e + f, rounded up), exact for `bank.lags` = (shift,)."""

    shift: int
    bank: HeadBank
    cost: float


@dataclass(frozen=True)
class ShiftChain(Construction):
    """A chain built for a target, and what it was built from."""

    shifts: tuple[int, ...] = ()


def build(target: FixedMemory, options: Fixed | None = None, **keywords: Any) -> ShiftChain:
    """Plan and build a chain for a target, restored if it has an alphabet; depth auto plans it, `heads` is the most in a layer."""
    if options is None:
        keywords = {"depth": "auto", "restore": target.alphabet is not None, "dtype": "float32", **keywords}
    options = Fixed.of(options, keywords)
    bank, heads, dtype = options.bank, options.heads, options.dtype
    depth = None if options.depth == "auto" else options.depth
    budget = DEFAULT_ERROR if options.error is None else options.error
    check_options(target, options)
    if target.alphabet is not None:
        chain = _planned(target, bank, depth, heads, dtype, None, 1.0)
        network = _assemble(target, chain, None)
        return ShiftChain(target, options, round_network(network, dtype), 1, tuple(s for s, _ in chain))
    curved = bool(target.readout.ridges)
    box = [arb(1)] * target.dim + [arb(1 + min(1.0, budget))] * (target.readout.coordinates - target.dim)
    lipschitz = [upper(lip) for lip in target.readout.lipschitz(box)[1:]]
    if not all(lip < MAX_SLOPE for lip in lipschitz):
        raise Refusal(f"the read-out is steeper than {MAX_SLOPE:g} on its box; scale it down")
    share = min(1.0, budget, (budget / 2 if curved else budget) / max(sum(lipschitz), 2.0**-40))
    chain = (
        _exact_chain(target, depth, heads, share)
        if dtype == "exact"
        else _planned(target, bank, depth, heads, dtype, share, budget / share)
    )
    radii = [arb(1)] * target.dim + [arb(1 + share)] * (target.readout.coordinates - target.dim)
    neurons, draws = feedforward.read_out_neurons(options.ffn, target.readout, radii, options.width, budget / 2, options.seed)
    network = _assemble(target, chain, neurons)
    return ShiftChain(target, options, round_network(network, dtype), draws, tuple(s for s, _ in chain))


PLANNED_ROOM = 15 / 16
"""Share of the room around the letters that a plan fills: a certificate bounds sums and sizes a little more crudely than the plan."""

Chain = list[tuple[int, HeadBank]]


def _exact_chain(target: FixedMemory, depth: int | None, heads: int | None, error: float) -> Chain:
    """Shifts as equal as can be, in as few layers as the heads allow unless told otherwise; e_l = (1 + error)^{1/L} − 1 in each."""
    layers, layout = depth or (1 if heads is None else least_heads(target.lags[-1], heads)), Layout(target)
    each = math.expm1(math.log1p(error) / layers) * (1 - 2.0**-20)
    known: dict[tuple[int, ...], HeadBank] = {}
    chain, before = [], 0
    for index in range(layers):
        shift = target.lags[-1] // layers + (index < target.lags[-1] % layers)
        lags = _lags(layout, before, shift)
        if lags not in known:
            known[lags] = bank_of.exact_minimal("lin", lags, shift, lambda errors: all(upper(e) <= each for e in errors), each)
        chain.append((shift, known[lags]))
        before += shift
    return chain


def _lags(layout: Layout, before: int, shift: int) -> tuple[int, ...]:
    """The shifts that a layer's heads serve."""
    return tuple(sorted({shift, *(layout.target.lags[k - 1] - before for k in layout.extracted(before, shift))}))


def head_price(dtype: str, heads: int) -> Callable[[fmpq], float]:
    """What a unit of weight on a lin head of decay p costs: u(H + 2/(1−z)) for the output sum, scan and gain (`verify.chain.rounding`), and
    u(2 + z/(1−z)) for storing weight, gain and ratio: u(H + 1 + 3/(1−z)) in all."""
    unit = float(arb(UNIT[dtype]))
    return lambda p: unit * (heads + 1 + 3 / -math.expm1(-float(arb(p))))


def shift_errors(bank: HeadBank, dtype: str, plateaus: Plateaus | None) -> list[arb]:
    """e + f for every lag of a bank, as a chain in this type would have it: extraction by the stored bank, with the constants that
    the executor uses, and the rounding of one layer per unit of size."""
    layer, unit = stored_bank(bank, dtype), arb(UNIT[dtype])
    move = arb(LINEAR_MOVE) if plateaus is None else arb(plateaus.move)
    found_again = move + 2 if plateaus is None else 2 * move + 4  # c v in the carrier: its own sums, and the source's
    size = arb(1) if plateaus is None else arb(plateaus.size)
    found = []
    with working_precision(layer.bits):
        assert layer.constants is not None
        ratios = to_exact(layer.constants["ratio"])
        for k, lag in enumerate(bank.lags, start=1):
            row = [fmpq(int(j == k)) for j in range(len(bank.lags) + 1)]
            extraction = l1_norm(layer.kernel(row, 0, {lag: fmpq(1)})).most
            residual = abs(arb(layer.embedding[k, 0]))
            weights = sum((abs(arb(layer.gains[h, k, 0])) * (bank.heads + 2 / (1 - arb(z))) for h, z in enumerate(ratios)), arb(0))
            rounding = unit * (weights + found_again * residual + (1 + extraction) * (move + 1) + 3)
            found.append(size * extraction + rounding * SECOND_ORDER)
    return found


def stored_bank(bank: HeadBank, dtype: str) -> FusedLayer:
    """A bank as one layer of a float network on a stream (source, a block for every lag)."""
    width = 1 + len(bank.lags)
    attention = _attention(bank, width, range(1), [(lag, range(k, k + 1)) for k, lag in enumerate(bank.lags, start=1)])
    column = exact_array([[fmpq(1)], *([c] for c in bank.residuals)])
    floats = jax.tree.map(lambda a: to_float(a, dtype), attention)
    return fuse_layer(floats, to_exact(to_float(column, dtype)), zeros(width))


QUICK = fmpq(48)
"""Decay of a head that sees the current token only: e^-48 < 2^-69, below the last bit of any weight that a type resolves next to 1."""


def quickened(bank: HeadBank) -> HeadBank:
    """The bank with a very fast head in the place of its residual weights, which restoration would multiply by the plateau's rounding."""
    weights = tuple((*row, c) for row, c in zip(bank.weights, bank.residuals, strict=True))
    return HeadBank(bank.rpe, (*bank.decays, QUICK), bank.lags, weights, (fmpq(0),) * len(bank.lags))


@cache
def _balanced(lags: tuple[int, ...], heads: int, dtype: str) -> HeadBank:
    return balanced_bank("lin", lags, head_price(dtype, heads), heads, MANTISSA[dtype])


@cache
def _minimal(lags: tuple[int, ...], dtype: str) -> HeadBank:
    price = head_price(dtype, lags[-1])(fmpq(1))
    return bank_of.budgeted_minimal("lin", lags, lags[-1], fmpq(*price.as_integer_ratio()), MANTISSA[dtype])


@cache
def _bank(kind: str, lags: tuple[int, ...], heads: int, dtype: str, plateaus: Plateaus | None) -> tuple[HeadBank, float]:
    """The best bank on offer with that many heads, and its largest cost over the lags.

    Minimal banks have as many heads as the longest lag. Balanced ones are those of `constructions.banks.balanced`, whose decays follow a
    family: at its edge, with as many heads as the lag, the minimal bank can be better and is then taken.
    """
    found = [_minimal(lags, dtype)] if heads == lags[-1] else []
    if kind == "balanced":
        found.append(_balanced(lags, heads, dtype))
        if plateaus is not None and heads > lags[-1]:
            found.append(quickened(_balanced(lags, heads - 1, dtype)))
    costs = [max(upper(e) for e in shift_errors(bank, dtype, plateaus)) for bank in found]
    return min(zip(found, costs, strict=True), key=lambda pair: pair[1])


def _options(
    kind: str, dtype: str, shifts: Sequence[int], most: int | None, limit: float, plateaus: Plateaus | None
) -> tuple[list[Option], float]:
    """(shifts that cost at most the limit, in order, each with its best bank; the cost of the first that does not)."""
    found: list[Option] = []
    for shift in shifts:
        heads = shift if kind == "minimal" else 2 * shift + MANY_HEADS
        if most is not None and most < shift:
            break
        option = Option(shift, *_bank(kind, (shift,), heads if most is None else min(heads, most), dtype, plateaus))
        if option.cost > limit:
            return found, option.cost
        found.append(option)
    return found, math.inf


def _thrifty(options: Sequence[Option], shifts: set[int], dtype: str, limit: float, plateaus: Plateaus | None) -> list[Option]:
    """The same shifts with fewer heads, for balanced banks."""
    found = []
    for option in options:
        for more in MORE_HEADS if option.shift in shifts else ():
            if option.shift + more < option.bank.heads:
                thrifty = Option(option.shift, *_bank("balanced", (option.shift,), option.shift + more, dtype, plateaus))
                found += [thrifty] if thrifty.cost <= limit else []
    return found


def _planned(target: FixedMemory, bank: str, depth: int | None, heads: int | None, dtype: str, error: float | None, per: float) -> Chain:
    """The chain of a float network; refused with other plans that exist. `per` is the total error per error of a memory."""
    found = _search(target, bank, depth, heads, dtype, error)
    if isinstance(found, _NoPlan):
        raise Refusal(_no_chain(target, bank, depth, dtype, error, found), *_other_plans(target, bank, depth, heads, dtype, error, per))
    return found


@dataclass(frozen=True)
class _NoPlan:
    """The shifts that were on offer, and what the first one costs that was not."""

    options: list[Option]
    least: float


def _search(target: FixedMemory, bank: str, depth: int | None, heads: int | None, dtype: str, error: float | None) -> "Chain | _NoPlan":
    """The chain of a float network: for an error of every memory or, if that is None, for restoration.

    Layers that deliver memories on the way serve several shifts with one bank, which costs more than the plan counts: then the plan is
    made again for a smaller error.
    """
    lag, layout = target.lags[-1], Layout(target)
    plateaus = None if target.alphabet is None else Plateaus(target.alphabet)
    limit = float(arb(plateaus.room)) * PLANNED_ROOM if plateaus is not None else error
    assert limit is not None
    shifts = range(1, lag + 1) if depth is None else sorted({lag // depth, -(-lag // depth)})
    options, least = _options(bank, dtype, shifts, heads, limit, plateaus)
    first = plan(options, lag, error, depth) if bank == "balanced" else None
    options += _thrifty(options, {option.shift for option in first or ()}, dtype, limit, plateaus)
    for share in (1.0, 0.75, 0.5, 0.25):
        found = plan(options, lag, None if error is None else share * error, depth)
        if found is None or len(found) > MAX_DEPTH:
            break
        chain, before, fits = [], 0, True
        for option in found:
            lags = _lags(layout, before, option.shift)
            chosen, cost = _bank(bank, lags, option.bank.heads, dtype, plateaus)
            fits = fits and cost <= limit
            chain.append((option.shift, chosen))
            before += option.shift
        if fits and (error is None or upper(_chain_error(layout, chain, dtype)) <= error):
            return chain
    return _NoPlan(options, least)


LONGEST_SEARCH = 64
"""Lags for which other plans are searched for when one fails: each search takes seconds."""
DOUBLINGS = 8
"""Times that the error is doubled in search of one that there is a plan for."""


def _other_plans(
    target: FixedMemory, bank: str, depth: int | None, heads: int | None, dtype: str, error: float | None, per: float
) -> list[Remedy]:
    """Plans that exist, the least change first: other layers, heads, banks and types; then exact arithmetic, then larger errors."""
    lag, ways = target.lags[-1], list[Remedy]()
    candidates: list[tuple[Remedy, str, int | None, int | None, str]] = []
    freed: dict[str, OptionValue] = {}
    if depth is not None:
        freed["depth"] = "auto"
        candidates.append(({"depth": "auto"}, bank, None, heads, dtype))
    if heads is not None:
        freed["heads"] = None
        candidates.append(({"heads": None}, bank, depth, None, dtype))
    if bank == "minimal":
        candidates.append(({"bank": "balanced", **freed}, "balanced", None, None, dtype))
    if dtype == "float32":
        candidates.append(({"dtype": "float64", **freed}, bank, None, None, "float64"))
    for way, other, layers, most, finer in candidates if lag <= LONGEST_SEARCH else ():
        if not isinstance(_search(target, other, layers, most, finer, error), _NoPlan):
            ways.append(way)
    if error is not None:
        ways += exactly(lag, bank, heads)
    if error is not None and lag <= LONGEST_SEARCH:
        doubled = (error * 2**k for k in range(1, DOUBLINGS))
        enough = next((e for e in doubled if e <= 1 and not isinstance(_search(target, bank, depth, heads, dtype, e), _NoPlan)), None)
        ways += larger_error(math.inf if enough is None else enough * per)
    return ways


def _chain_error(layout: Layout, chain: Chain, dtype: str) -> arb:
    """Π (1 + e_l + f_l) − 1 for the worst memory."""
    carried, worst, before = arb(0), arb(0), 0
    for shift, bank in chain:
        errors = dict(zip(bank.lags, shift_errors(bank, dtype, None), strict=True))
        for k in layout.extracted(before, shift):
            worst = worst.max(composed([carried, errors[layout.target.lags[k - 1] - before]]))
        carried, before = composed([carried, errors[shift]]), before + shift
    return worst


def _no_chain(target: FixedMemory, bank: str, depth: int | None, dtype: str, error: float | None, found: _NoPlan) -> str:
    """Why there is no plan."""
    options, least = found.options, found.least
    if not options and math.isinf(least):
        return f"no head is left for a shift by {1 if depth is None else target.lags[-1] // depth}"
    aim = f"error {error:.3g} of every memory" if error is not None else f"letters {', '.join(map(str, target.alphabet or ()))}"
    cheapest = {s: min(o.cost for o in options if o.shift == s) for s in sorted({o.shift for o in options})}
    costs = ", ".join(f"a shift by {s} costs {cost:.3g}" for s, cost in cheapest.items()) or f"one shift costs {least:.3g} at least"
    layers = "a chain of shifts" if depth is None else f"a chain of {depth} layers"
    return f"{dtype} cannot hold lag {target.lags[-1]} at {aim} by {layers} with {bank} banks: {costs}"


def plan(options: Sequence[Option], lag: int, budget: float | None, depth: int | None) -> list[Option] | None:
    """The chain with the fewest layers, then the fewest heads, whose costs log(1 + e + f) add up to at most log(1 + budget).

    Dynamic programming over the lag covered and the budget spent, which is cut into cells; costs are rounded up to cells (a budget of None
    asks nothing of the sum). With `depth` exactly that many layers are used. None if there is no such chain.
    """
    cells = 0 if budget is None else max(1000, min(16 * lag, MAX_STATES // lag))
    spent = [0 if budget is None else max(1, math.ceil(cells * math.log1p(o.cost) / math.log1p(budget) * (1 + 2.0**-40))) for o in options]
    if depth is not None:
        return _of_depth(options, spent, lag, cells, depth)
    layer = 1 << 20  # outweighs the heads of any chain
    best = np.full((lag + 1, cells + 1), np.inf)
    taken = np.full((lag + 1, cells + 1), -1, dtype=np.int16)
    best[0] = 0
    for reached in range(1, lag + 1):
        for index, (option, price) in enumerate(zip(options, spent, strict=True)):
            if option.shift > reached or price > cells:
                continue
            candidate = best[reached - option.shift, : cells + 1 - price] + layer + option.bank.heads
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


def _of_depth(options: Sequence[Option], spent: Sequence[int], lag: int, cells: int, depth: int) -> list[Option] | None:
    """The same with exactly `depth` layers: shifts as equal as can be, the longer ones first, and heads saved from the first layer on."""
    shifts = [lag // depth + (index < lag % depth) for index in range(depth)]
    offers = {s: [(p, o) for o, p in zip(options, spent, strict=True) if o.shift == s] for s in set(shifts)}
    if not all(offers.values()):
        return None
    cheapest = {s: min(p for p, _ in offer) for s, offer in offers.items()}
    slack = cells - sum(cheapest[s] for s in shifts)
    if slack < 0:
        return None
    chain = []
    for s in shifts:
        price, option = min(((p, o) for p, o in offers[s] if p <= cheapest[s] + slack), key=lambda pair: (pair[1].bank.heads, pair[0]))
        slack -= price - cheapest[s]
        chain.append(option)
    return chain


def _attention(bank: HeadBank, width: int, source: range, blocks: Sequence[tuple[int, range]]) -> Attention:
    """Heads that read the source and write, for every (lag, block), the bank's weights for that lag."""
    heads, d = bank.heads, len(source)
    value, output = zeros(heads, d, width), zeros(heads, width, d)
    for i in range(d):
        value[:, i, source[i]] = fmpq(1)
        for lag, block in blocks:
            output[:, block[i], i] = bank.weights[bank.lags.index(lag)]
    empty = zeros(heads, 0, width)
    return Attention(exact_array(list(bank.decays)), value, output, empty, empty, zeros(0, width), (bank.rpe,) * heads)


class _Rows:
    """The feed-forward network between two layers, collected neuron by neuron."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.neurons: dict[tuple[tuple[tuple[int, fmpq], ...], fmpq], dict[int, fmpq]] = {}

    def add(self, row: int, inputs: Sequence[tuple[int, fmpq]], bias: fmpq, outer: fmpq) -> None:
        """row += outer · relu(inputs · u + bias)."""
        if outer != 0:
            target = self.neurons.setdefault((tuple(inputs), bias), {})
            target[row] = target.get(row, fmpq(0)) + outer

    def linear(self, row: int, coordinate: int, weight: fmpq) -> None:
        """row += weight · u."""
        for sign in (1, -1):
            self.add(row, [(coordinate, fmpq(sign))], fmpq(0), sign * weight)

    def plateau(self, row: int, coordinate: int, weight: fmpq, plateaus: Plateaus) -> None:
        """row += weight · plateau(u)."""
        k = plateaus.steepness
        self.add(row, [], fmpq(1), weight * plateaus.letters[0])
        for gap, (low, high) in zip(plateaus.gaps, plateaus.ramps, strict=True):
            self.add(row, [(coordinate, k)], -k * low, weight * gap)
            self.add(row, [(coordinate, k)], -k * high, -weight * gap)

    def digits(self, rows: range, coordinate: int, plateaus: Plateaus) -> None:
        """row_j += relu(k(θ_j − u))."""
        k = plateaus.steepness
        for row, (_, high) in zip(rows, plateaus.ramps, strict=True):
            self.add(row, [(coordinate, -k)], k * high, fmpq(1))

    def network(self, outputs: int) -> FeedForward:
        count = max(1, len(self.neurons))
        inner, bias, outer = zeros(count, self.width), zeros(count), zeros(outputs, count)
        for index, ((inputs, offset), targets) in enumerate(self.neurons.items()):
            bias[index] = offset
            for coordinate, weight in inputs:
                inner[index, coordinate] = weight
            for row, weight in targets.items():
                outer[row, index] = weight
        return FeedForward(inner, bias, outer)


def _found(layout: Layout, chain: Chain, index: int, before: int) -> dict[int, fmpq]:
    """What layer `index` finds in front of the value: block coordinate 0 → its residual weight (carrier first)."""
    shift, bank = chain[index]
    weights = dict(zip(bank.lags, bank.residuals, strict=True))
    found = {layout.carrier[0]: weights[shift] if index < len(chain) - 1 else fmpq(0)}
    for k in layout.extracted(before, shift):
        found[layout.memory(k)[0]] = weights[layout.target.lags[k - 1] - before]
    return found


def _assemble(target: FixedMemory, chain: Chain, readout: list[Neuron] | None) -> Transformer:
    """The network of a chain: with these read-out neurons, or restored."""
    layout = Layout(target)
    plateaus = None if target.alphabet is None else Plateaus(target.alphabet)
    width, last = layout.width, len(chain) - 1
    embedding = zeros(width, target.dim)
    for i in range(target.dim):
        embedding[i, i] = embedding[layout.source[i], i] = fmpq(1)
        for start, weight in _found(layout, chain, 0, 0).items():
            embedding[start + i, i] = weight
    layers, before = [], 0
    for index, (shift, bank) in enumerate(chain):
        delivered = layout.extracted(before, shift)
        blocks = [(target.lags[k - 1] - before, layout.memory(k)) for k in delivered]
        attention = _attention(bank, width, layout.source, blocks if index == last else [*blocks, (shift, layout.carrier)])
        before += shift
        if index == last and readout is not None:
            layers.append(Layer(attention, _padded(readout, width)))
            break
        rows = _Rows(width)
        if index < last:
            _move(rows, layout, _found(layout, chain, index + 1, before), plateaus)
        if plateaus is not None:
            for slot in [*delivered, *([0] if index == 0 else [])]:
                for coordinate in layout.memory(slot):
                    rows.digits(layout.digits(coordinate), coordinate, plateaus)
        layers.append(Layer(attention, rows.network(width)))
    if plateaus is not None:
        layers.append(Layer(_silent(width), _table_network(target, layout)))
    return Transformer(embedding, zeros(width), tuple(layers))


def _move(rows: _Rows, layout: Layout, found: dict[int, fmpq], plateaus: Plateaus | None) -> None:
    """Put the carrier, restored if there are plateaus, into the source, and its multiples where the next layer wants them."""
    for i, (source, carrier) in enumerate(zip(layout.source, layout.carrier, strict=True)):
        for start, weight in ((source - i, fmpq(1)), *found.items()):
            row = start + i
            kept = row == carrier and plateaus is None
            if plateaus is not None:
                rows.plateau(row, carrier, weight, plateaus)
            else:
                rows.linear(row, carrier, weight - kept)
            if row in (source, carrier) and not kept:
                rows.linear(row, row, fmpq(-1))


def _padded(neurons: list[Neuron], width: int) -> FeedForward:
    ffn = feedforward.as_network(neurons)
    padding = zeros(len(neurons), width - ffn.inner.shape[1])
    return FeedForward(np.concatenate([ffn.inner, padding], axis=1), ffn.bias, ffn.outer)


def _silent(width: int) -> Attention:
    """Attention switched off: one head that reads and writes nothing."""
    empty = zeros(1, 0, width)
    return Attention(exact_array([1]), zeros(1, 1, width), zeros(1, width, 1), empty, empty, zeros(0, width), ("lin",))


TABLE_BITS = 100
"""Values of f on letters are rounded to multiples of 2^-100: exact for polynomials with short coefficients on short letters."""


def readout_table(target: FixedMemory) -> tuple[list[int], dict[tuple[int, ...], fmpq]]:
    """(coordinates that f depends on, f at every choice of letters, given by their indices)."""
    letters = target.alphabet
    assert letters is not None
    variables = readout_variables(target)
    table = {}
    with working_precision(4 * TABLE_BITS):
        for choice in product(range(len(letters)), repeat=len(variables)):
            u = [arb(letters[0])] * target.readout.coordinates
            for j, letter in zip(variables, choice, strict=True):
                u[j] = arb(letters[letter])
            table[choice] = to_grid(target.readout(u), TABLE_BITS)
    return variables, table


def mixed_differences(table: dict[tuple[int, ...], fmpq]) -> dict[tuple[int, ...], fmpq]:
    """Coefficients a with f(choice) = Σ a(J) over J ≤ choice, entry by entry."""
    result = dict(table)
    for axis in range(len(next(iter(table)))):
        for choice in sorted(result, reverse=True):
            if choice[axis]:
                below = (*choice[:axis], choice[axis] - 1, *choice[axis + 1 :])
                result[choice] = result[choice] - result[below]
    return result


def _table_network(target: FixedMemory, layout: Layout) -> FeedForward:
    """Σ_J a(J) relu(1 − Σ w), the sum over the digit of gap j in J for every coordinate: 1 where all of them are above their gaps."""
    variables, table = readout_table(target)
    rows = _Rows(layout.width)
    for choice, coefficient in mixed_differences(table).items():
        inputs = [(layout.digits(variable)[j - 1], fmpq(-1)) for variable, j in zip(variables, choice, strict=True) if j]
        rows.add(0, inputs, fmpq(1), coefficient)
    return rows.network(1)
