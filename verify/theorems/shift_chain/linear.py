"""Linear chains: errors are carried from layer to layer.

    E_l = (1 + E_{l−1})(1 + e_l) − 1,      ε_l ≤ ‖κ_l‖₁ (ε_{l−1} + δ_S) + fresh

in exact arithmetic, and for the rounding. What heads read is the source as it was computed, Ŝ, so its error δ_S passes through κ as a
whole, and only what is rounded between Ŝ and the new carrier (`fresh`) is multiplied by single weights; the carrier found is c Ŝ up to
|c| δ_S + δ_R. δ_S, δ_R and fresh are computed for values of size 1; they are homogeneous but for flushing, so for size ρ ≥ 1 they are at
most ρ times that. The read-out is certified as in `verify.theorems.thm_3_1`, with one Lipschitz constant per memory.
"""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb

from analyzer.errors import Refusal
from analyzer.lemmas.relu_error import neurons_of, readout_error
from analyzer.numbers.exact import maximum, upper, working_precision
from analyzer.theorems import base
from analyzer.theorems import shift_chain as theorem
from constructions.network.transformer import FeedForward, Transformer, to_exact
from constructions.run.fused import linear_map
from constructions.theorems.shift_chain.layout import Layout
from verify.chain.certificate import Part, StrangeWeights, gathered
from verify.chain.layer import FFN_BITS, SMALLEST_RADIUS, readout_bound
from verify.chain.rounding import Arithmetic, Rounded, readout_rounding
from verify.theorems.shift_chain.deliveries import embedded, read_heads, wanted_shifts
from verify.theorems.shift_chain.form import HEADROOM, SLIGHTLY, check_delivered, fingerprint, identity
from verify.theorems.shift_chain.steps import ChainClaim, Delivery, Findings, Given, Place, Step, shift_parts
from verify.theorems.shift_chain.witness import sign_witness


@dataclass(frozen=True)
class Carried:
    """What has become of a token on its way: its error in exact arithmetic, what was promised of that, and its rounding."""

    error: arb
    promised: arb
    rounding: arb

    def through(self, delivery: Delivery, moved: arb, size: arb) -> "Carried":
        """One layer further, where the source has the rounding `moved` per unit and values are of the given size."""
        source = size * (1 + moved)
        return Carried(
            error=theorem.composed([self.error, delivery.error]),
            promised=theorem.composed([self.promised, delivery.promised]),
            rounding=delivery.norm * (self.rounding + moved * size) + delivery.fresh * source,
        )


@dataclass(frozen=True)
class Passage:
    """The way through all layers: steps, the memories as they were delivered, what the carrier was last, and the size of all values."""

    steps: list[Step]
    memories: dict[int, Carried]
    carried: Carried
    size: arb


def linear_chain(network: Transformer, claim: ChainClaim, ffn: str) -> Findings:
    """The chain of a network without restoration."""
    passage = _follow(network, claim)
    check_delivered(claim.layout, set(passage.memories))
    if passage.size < HEADROOM:
        return _read_out(network, claim, ffn, passage)
    claim.faults.append(f"errors grow to {upper(passage.size):.3g} along this chain")  # nothing beyond the shifts is measured
    return Findings(
        steps=passage.steps,
        witness=0.0,
        witness_input="none: the chain is broken",
        certified=math.inf,
        bound=math.inf,
        rounding=upper(passage.carried.rounding),
        trivial=claim.target.constant_error(),
        parts=tuple(shift_parts(passage.steps)),
    )


def _follow(network: Transformer, claim: ChainClaim) -> Passage:
    """Layer by layer, equal ones read once."""
    layout, end = claim.layout, len(network.layers) - 1
    given, before = embedded(network, layout, arb(1)), 0
    carried, size = Carried(arb(0), arb(0), arb(0)), arb(1)
    steps: list[Step] = []
    memories: dict[int, Carried] = {}
    known: dict[tuple[Any, ...], tuple[Step, Given | None]] = {}
    previous: tuple[Any, ...] = ()
    for index, layer in enumerate(network.layers):
        wanted = wanted_shifts(layout, layer.attention, given.found, before, memories)
        place = Place(given, wanted, (*memories, *wanted), first=index == 0, last=index == end)
        here = fingerprint(layer)
        if (previous, here, place.key) not in known:
            step = read_heads(claim, layer.attention, place, arb(1))
            known[previous, here, place.key] = step, None if place.last else _move(claim, layer.feedforward, place.delivered)
        step, then = known[previous, here, place.key]
        steps.append(step)
        memories |= {k: carried.through(delivery, given.moved, size) for k, delivery in step.memories.items()}
        if step.carrier is not None and then is not None:
            carried = carried.through(step.carrier, given.moved, size)
            size = size.max((1 + carried.error + carried.rounding).upper())
            before += step.carrier.shift
            given = then
        previous = here
    return Passage(steps, memories, carried, size)


def _move(claim: ChainClaim, ffn: FeedForward, delivered: Collection[int]) -> Given:
    """What an inner feed-forward network leaves to the next layer, roundings per unit of size."""
    layout = claim.layout
    change = _linear_change(layout, ffn, delivered)
    found = (change + identity(layout.width))[:, list(layout.carrier)]
    if claim.dtype == "exact":
        return Given(found, None)
    arithmetic = Arithmetic(claim.dtype, HEADROOM)
    held = {**{j: Rounded(SLIGHTLY, arb(0)) for j in layout.source}, **{j: Rounded(arb(1), arb(0)) for j in layout.carrier}}

    def multiple(row: int) -> arb:
        return abs(arb(found[row, row % layout.dim]))

    def rounding(row: int) -> arb:
        inputs = [i for i in held if change[row, i] != 0]
        if not inputs:
            return arb(0)
        added = arithmetic.dot([change[row, i] for i in inputs], [held[i] for i in inputs], count=layout.width)
        return arithmetic.plus(held.get(row, Rounded(arb(0), arb(0))), added, multiple(row)).error

    moved = maximum([rounding(row) for row in layout.source])
    if not 1 + moved < SLIGHTLY:
        raise Refusal(f"{claim.dtype} is too coarse to move a value from carrier to source")
    noise = {row: rounding(row) + multiple(row) * moved for row in (*layout.carrier, *layout.awaited(delivered))}
    return Given(found, noise, moved)


def _linear_change(layout: Layout, ffn: FeedForward, delivered: Collection[int]) -> np.ndarray:
    """The matrix that an inner feed-forward network adds: it puts the carrier into the source, and its multiples into the carrier and the
    memories to come; nothing else changes."""
    change = linear_map(ffn)
    if change is None or any(sorted(abs(w) for w in row if w != 0) != [1] for row in to_exact(ffn.inner)):
        raise StrangeWeights("an inner feed-forward network is not made of pairs relu(u) - relu(-u): not a linear chain of shifts")
    if len({tuple(row) for row in to_exact(ffn.inner)}) < len(ffn.inner):
        raise StrangeWeights("an inner feed-forward network holds a neuron twice: not a linear chain of shifts")
    after = change + identity(layout.width)
    kept = identity(layout.width)
    kept[list(layout.source)] *= 0
    others = [j for j in range(layout.width) if j not in layout.carrier]
    if (after[:, others] != kept[:, others]).any():
        raise StrangeWeights("an inner feed-forward network changes coordinates that must stay as they are: not a chain of shifts")
    allowed = {*layout.source, *layout.carrier, *layout.awaited(delivered)}
    found = after[:, list(layout.carrier)]
    for j, row in enumerate(found):
        if any(w != 0 and (j not in allowed or j % layout.dim != i) for i, w in enumerate(row)):
            raise StrangeWeights(f"an inner feed-forward network writes the carrier into coordinate {j}, where nothing is expected")
    if (found[list(layout.source)] != identity(layout.dim)).any():
        raise StrangeWeights("an inner feed-forward network does not put the carrier into the source: not a chain of shifts")
    return change


def _read_out(network: Transformer, claim: ChainClaim, ffn: str, passage: Passage) -> Findings:
    """The chain's end: read-out and totals, as in `verify.theorems.thm_3_1` with one Lipschitz constant per memory."""
    target, layout, dtype = claim.target, claim.layout, claim.dtype
    readout, final = target.readout, network.layers[-1].feedforward
    inner = to_exact(final.inner)
    if (inner[:, layout.slots :] != 0).any():
        raise StrangeWeights("the read-out reads the source or the carrier: not a chain of shifts")
    neurons = neurons_of(inner[:, : layout.slots], to_exact(final.bias), to_exact(final.outer)[0])
    slots = [Carried(arb(0), arb(0), arb(0)), *(passage.memories[k] for k in sorted(passage.memories))]
    coordinates = [slot for slot in slots for _ in range(target.dim)]
    errors, promises = [slot.error for slot in slots[1:]], [slot.promised for slot in slots[1:]]
    with working_precision(FFN_BITS):
        stream = [Rounded(1 + slot.error, slot.rounding) for slot in coordinates]
        box = [(u.magnitude + u.error).upper().max(SMALLEST_RADIUS) for u in stream]
        hull = [radius.max(1 + slot.promised) for radius, slot in zip(box, coordinates, strict=True)]
        lipschitz = readout.lipschitz(box)
        rounding = sum((slope * slot.rounding for slope, slot in zip(lipschitz, slots, strict=True)), arb(0))
        if dtype != "exact":
            unread = [Rounded(box[-1], arb(0))] * (layout.width - layout.slots)
            rounding += readout_rounding(Arithmetic(dtype), final, [*stream, *unread])
        certified_readout = readout_error(readout, neurons, box)
        promised_readout = readout_bound(ffn, readout, neurons, box, [radius.max(arb(2)) for radius in box], dtype)
        certified = base.total_budget(certified_readout + rounding, lipschitz[1:], errors)
        bound = base.total_budget(promised_readout + rounding, readout.lipschitz(hull)[1:], promises)
        measured = {
            theorem.SHIFT: shift_parts(passage.steps),
            theorem.COMPOSITION: [
                Part(base.extraction_lemma(lag), upper(slot.error), upper(slot.promised))
                for lag, slot in zip(target.lags, slots[1:], strict=True)
            ],
            base.READ_OUT: [Part(base.READ_OUT, upper(certified_readout), upper(promised_readout))],
        }
        witness, witness_input = sign_witness(network, target)
        return Findings(
            steps=passage.steps,
            witness=witness,
            witness_input=witness_input,
            certified=upper(certified),
            bound=upper(bound),
            rounding=upper(rounding),
            trivial=target.constant_error(),
            parts=gathered(theorem.proof_graph("lin", claim.bank, ffn, target.lags), measured),
        )
