"""Restored chains: a staircase after every shift resets values to letters, so errors do not add up.

Let ρ bound the values of the source. A shift with extraction error e, rounding `fresh` and letters that are off by ν when it is given them
delivers letters that are off by ω = ρ e + ν + fresh; if ω fits into the room of the staircases, each of them returns what it returns at the
letter itself. The room must also cover what else the carrier may hold, before the array too: no carrier exceeds ρ by more than the room.

The rows of source, carrier and memories to come are all overwritten with staircases of the carrier r. Let P be the source's: the value of
the next layer is P(r). Another row holds S(r) = c P(r) up to sup |S − c P|, where c is read off at the first and the last letter.
*Digits* are neurons of a delivered coordinate that come out as exactly 0 for letters above a gap, and as at least 1 for those below.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.numbers.exact import maximum, working_precision
from constructions.network.transformer import Attention, Layer, Transformer, to_exact, to_float, zeros
from verify.chain.certificate import StrangeWeights
from verify.chain.layer import FFN_BITS
from verify.chain.rounding import ONE, Arithmetic, Rounded
from verify.theorems.shift_chain.deliveries import embedded, read_heads, wanted_shifts
from verify.theorems.shift_chain.form import HEADROOM, SLIGHTLY, check_delivered, fingerprint
from verify.theorems.shift_chain.staircases import RowUpdate, Staircase, row_updates
from verify.theorems.shift_chain.steps import ChainClaim, Delivery, Findings, Given, Place, Restoration, Step
from verify.theorems.shift_chain.tables import table_findings


@dataclass(frozen=True)
class CoordinateReset:
    """One coordinate of the carrier, and all rows that are overwritten with staircases of it: source, carrier, memories to come."""

    source: int
    carrier: int
    updates: dict[int, RowUpdate]
    stairs: dict[int, Staircase]

    @property
    def value(self) -> Staircase:
        """P, which the source takes over."""
        return self.stairs[self.source]

    def largest(self) -> arb:
        """sup |P|."""
        return maximum([abs(arb(v)) for v in self.value.extremes()])

    def room(self, letters: Collection[fmpq]) -> fmpq:
        """How far around every letter all staircases are constant."""
        return min(stair.room(letter) for stair in self.stairs.values() for letter in letters)

    def unevenness(self, letters: Collection[fmpq]) -> arb:
        """max |P(v) − v| over the letters v."""
        return maximum([abs(arb(self.value(v) - v)) for v in letters])

    def storage(self, unit: arb) -> arb:
        """What storing P may move its letters by: u for every outer weight times 1 + |bias| of its neuron, twice."""
        weights = sum((abs(neuron.outer) * (1 + abs(neuron.bias)) for neuron in self.value.neurons), abs(self.value.constant))
        return 2 * unit * arb(weights)

    def rounding(self, row: int, arithmetic: Arithmetic, size: arb, reach: arb) -> arb:
        """Rounding of row + update, carriers up to `reach`, the source's old value up to `size`."""
        if row not in self.updates:
            return arb(0)
        held = {self.source: size, self.carrier: reach}
        change = self.updates[row].computed(arithmetic, held)
        return arithmetic.plus(Rounded(held.get(row, arb(0)), arb(0)), change, change.magnitude).error

    def multiple(self, row: int, first: fmpq, last: fmpq) -> fmpq:
        """c with S(last) − S(first) = c (P(last) − P(first))."""
        rise = self.value(last) - self.value(first)
        if rise == 0:
            raise StrangeWeights("a staircase does not tell the letters apart: not a restored chain of shifts")
        return (self.stairs[row](last) - self.stairs[row](first)) / rise

    def mismatch(self, row: int, multiple: fmpq) -> arb:
        """sup |S − c P|: linear between the kinks of both, constant beyond, so a kink attains it."""
        stair, kinks = self.stairs[row], {kink for stair in self.stairs.values() for kink in stair.kinks}
        return maximum([abs(arb(stair(r) - multiple * self.value(r))) for r in sorted(kinks)])


@dataclass(frozen=True)
class DigitRows:
    """Rows that hold digits, and those of them that are certain: exactly 0 or at least 1."""

    rows: set[int]
    sure: set[int]


@dataclass(frozen=True)
class RestoredLayer:
    """A layer as it was read; `restoration` is None in the last one, which writes digits only."""

    step: Step
    restoration: Restoration | None
    sure: set[int]


def restored_chain(network: Transformer, claim: ChainClaim) -> Findings:
    """The chain of a network whose values are reset to letters."""
    layout, letters = claim.layout, _letters(claim)
    if network.dtype == "exact" or len(network.layers) < 2:
        raise InputError("a restored chain of shifts is a float network of two layers at least")
    if any(to_exact(to_float(np.array(letters, dtype=object), claim.dtype)) != np.array(letters, dtype=object)):
        raise InputError(f"{claim.dtype} cannot hold the letters of this target exactly")
    size, end = arb(max(abs(letters[0]), abs(letters[-1]))) * SLIGHTLY, len(network.layers) - 2
    given, before = embedded(network, layout, size), 0
    layers: list[RestoredLayer] = []
    delivered: tuple[int, ...] = ()
    known: dict[tuple[Any, ...], RestoredLayer] = {}
    previous: tuple[Any, ...] = ()
    for index, layer in enumerate(network.layers[:-1]):
        wanted = wanted_shifts(layout, layer.attention, given.found, before, delivered)
        delivered = (*delivered, *wanted)
        place, here = Place(given, wanted, delivered, first=index == 0, last=index == end), fingerprint(layer)
        if (previous, here, place.key) not in known:
            known[previous, here, place.key] = _read_layer(claim, layer, place, size)
        read = known[previous, here, place.key]
        layers.append(read)
        before += read.step.longest.shift
        given = given if read.restoration is None else read.restoration.then
        previous = here
    check_delivered(layout, set(delivered))
    restorations = [read.restoration for read in layers if read.restoration is not None]
    sure = {digit for read in layers for digit in read.sure}
    return table_findings(network, claim, [read.step for read in layers], restorations, sure)


def _letters(claim: ChainClaim) -> tuple[fmpq, ...]:
    assert claim.target.alphabet is not None
    return claim.target.alphabet


def _read_layer(claim: ChainClaim, layer: Layer, place: Place, size: arb) -> RestoredLayer:
    """One layer: its deliveries, the digits of what it delivers, and the staircases that reset the carrier."""
    layout, given = claim.layout, place.given
    step = read_heads(claim, layer.attention, place, size)
    with working_precision(FFN_BITS):

        def off(delivery: Delivery) -> arb:
            return size * delivery.error + given.letter_error + delivery.fresh

        updates = row_updates(layer.feedforward)
        errors = {row: arb(0) for row in layout.memory(0)} if place.first else {}
        errors |= {row: off(delivery) for k, delivery in step.memories.items() for row in layout.memory(k)}
        digits = _read_digits(claim, updates, errors, size)
        others = {row: update for row, update in updates.items() if row not in digits.rows}
        if step.carrier is None:
            if others:
                raise StrangeWeights("the last shift of a restored chain is followed by more than digits")
            return RestoredLayer(step, None, digits.sure)
        worst = off(step.carrier).max(step.carrier.norm * size + step.carrier.fresh - size)
        if given.past is not None:
            worst = worst.max(_past_reach(claim, layer.attention, given, size) - size)
        resets = _coordinate_resets(claim, others, place.delivered, size)
        return RestoredLayer(step, _restoration(claim, resets, step.carrier.shift, worst, size), digits.sure)


def _past_reach(claim: ChainClaim, attention: Attention, given: Given, size: arb) -> arb:
    """Bound of the carrier at the positions before the array, where attention returns Σ_h a_h times the constant state."""
    arithmetic, output, reach = Arithmetic(claim.dtype), to_exact(attention.output), arb(0)
    for i, row in enumerate(claim.layout.carrier):
        weights = [fmpq(w) for w in output[:, row, i]]
        total = abs(arb(given.found[row, i] + sum(weights, fmpq(0)))) * size
        heads = arithmetic.dot(weights, [Rounded(size, arb(0))] * len(weights))
        reach = reach.max(total + arithmetic.plus(Rounded(arb(0), given.noise_of(row)), heads, total).error)
    return reach.upper()


def _read_digits(claim: ChainClaim, updates: dict[int, RowUpdate], errors: dict[int, arb], size: arb) -> DigitRows:
    """The digits of coordinates that were just delivered, with these errors.

    The digit of the gap between v and v' > v is relu(w r + b), w < 0: certain if w(v' − off) + b + δ ≤ 0 and w(v + off) + b − δ ≥ 1, δ its
    rounding. It stays below `HEADROOM`, as the check for overflow assumes of all that neurons read.
    """
    layout, letters, arithmetic = claim.layout, _letters(claim), Arithmetic(claim.dtype)
    digits = DigitRows(set(), set())
    for coordinate, off in errors.items():
        for row, below, above in zip(layout.digits(coordinate), letters, letters[1:], strict=False):
            if row not in updates:
                continue
            digits.rows.add(row)
            update = updates[row]
            neurons = update.neurons.get(coordinate, [])
            alone = update.constant == 0 and not update.linear and set(update.neurons) == {coordinate} and len(neurons) == 1
            if not alone or neurons[0].outer != 1:
                raise StrangeWeights(f"coordinate {row} holds something other than a digit: not a restored chain of shifts")
            w, b, _ = neurons[0]
            rounding = arithmetic.dot([w, b], [Rounded(size + off, arb(0)), ONE]).error
            at_above, at_below = arb(w) * (arb(above) - off) + arb(b), arb(w) * (arb(below) + off) + arb(b)
            if claim.dtype != "exact" and not abs(arb(w)) * (size + off) + abs(arb(b)) + rounding < HEADROOM:
                raise StrangeWeights(f"the digit in coordinate {row} can exceed {HEADROOM}: what reads it may overflow")
            if w < 0 and at_above + rounding <= 0 and at_below - rounding >= 1:
                digits.sure.add(row)
    return digits


def _restoration(claim: ChainClaim, resets: Sequence[CoordinateReset], shift: int, off: arb, size: arb) -> Restoration:
    """The staircases after a shift, whose carriers are `off` by so much: room, letters, and what they hand on."""
    letters = _letters(claim)
    room = min(reset.room(letters) for reset in resets)
    uneven = maximum([arb(0), *(reset.unevenness(letters) for reset in resets)])
    storage = maximum([arb(0), *(reset.storage(Arithmetic(claim.dtype).unit) for reset in resets)])
    return Restoration(shift, off, room, uneven, storage, then=_handed_on(claim, resets, size, size + arb(room), uneven))


def _handed_on(claim: ChainClaim, resets: Sequence[CoordinateReset], size: arb, reach: arb, uneven: arb) -> Given:
    """What the next layer finds: P in the source, multiples of it elsewhere.

    Roundings δ are those of carriers up to `reach`, which exceeds the size of values by the room; the certificate holds `off` against it. A
    row S that holds c times the source has the noise sup |S − c P| + δ_S + |c| δ_P.
    """
    layout, letters, arithmetic = claim.layout, _letters(claim), Arithmetic(claim.dtype)
    found, noise, moved = zeros(layout.width, layout.dim), dict[int, arb](), arb(0)
    for i, reset in enumerate(resets):
        rounding = {row: reset.rounding(row, arithmetic, size, reach) for row in reset.stairs}
        moved = moved.max(rounding[reset.source])
        if not reset.largest() + moved < size:
            raise Refusal(f"{claim.dtype} is too coarse to restore these letters")
        found[reset.source, i] = fmpq(1)
        for row in (row for row in reset.stairs if row != reset.source):
            multiple = found[row, i] = reset.multiple(row, letters[0], letters[-1])
            if multiple == 0 and row in reset.updates and row != reset.carrier:
                raise StrangeWeights(f"coordinate {row} is written before it holds a memory: not a restored chain of shifts")
            noise[row] = reset.mismatch(row, multiple) + rounding[row] + abs(arb(multiple)) * rounding[reset.source]
    return Given(found, noise, moved, letter_error=uneven + moved, past=size)


def _coordinate_resets(claim: ChainClaim, updates: dict[int, RowUpdate], delivered: Collection[int], size: arb) -> list[CoordinateReset]:
    """Every coordinate of the carrier with its staircases, all bounded, the source's strictly within the size of values.

    A row of source or carrier loses what it held, which the update subtracts; memories to come hold nothing yet.
    """
    layout = claim.layout
    awaited = layout.awaited(delivered)
    if set(updates) - {*layout.source, *layout.carrier, *awaited}:
        raise StrangeWeights("an inner feed-forward network writes where nothing is expected: not a restored chain of shifts")
    resets = []
    for i, (source, carrier) in enumerate(zip(layout.source, layout.carrier, strict=True)):
        stairs: dict[int, Staircase] = {}
        for row in (source, carrier, *(j for j in awaited if j % layout.dim == i)):
            update = updates.get(row, RowUpdate())
            lost = {row: fmpq(-1)} if row in (source, carrier) else {}
            if update.linear != lost or set(update.neurons) - {carrier}:
                raise StrangeWeights(f"coordinate {row} is not overwritten with a staircase of the carrier: not a restored chain of shifts")
            stairs[row] = update.staircase(carrier, kept=row == carrier)
            if not stairs[row].is_bounded():
                raise StrangeWeights(f"the staircase of coordinate {row} is not bounded: not a restored chain of shifts")
        reset = CoordinateReset(source, carrier, {row: updates[row] for row in stairs if row in updates}, stairs)
        if not reset.value.kinks or not reset.largest() < size:
            raise StrangeWeights("a staircase leaves the alphabet's range, or has no steps: not a restored chain of shifts")
        resets.append(reset)
    return resets
