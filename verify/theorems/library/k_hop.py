"""The certificate of k-hop induction: all sequences, from the stored weights.

By induction over the layers every slot of the residual stream is a function of a few whole numbers: the position j, the letter x_j, the
letter before it, a pointer, the letter that it leads to. So what attention reads of a position is a *box*: the slots that a head is meant
to read at their values, all others anywhere in their range (a weight that reads them widens the box, and is seen in this way). Boxes are
midpoints and radii (`verify.chain.enclosed`) that contain the exact function of the stored weights and what the executor computes.

*Heads.* For every query (a pointer, a position, or a letter) logits of all key boxes are enclosed. If the winner w has a logit of at least
a_w − η_w, and a loser j one of at most a_j + η_j, then with weights relative to the winner's

    |mean − v_w| ≤ Σ_{j≠w} e^{a_j − a_w + η_j + η_w} |v_j − v_w|,   and no more than the spread of all values,

which holds for every part of the positions that a query may see, as long as the winner is among them: find_n(t) ≤ t. η collects the
radius of a logit, the subtraction of the maximum, and the exponential; a query that is off by ε is so for all keys, which moves the
difference by |ε|·|k_j − k_w| only. Weights below e^{−X} count as e^{−X}; sums and quotient add (1+u)(1+γ_N)/(1−γ_N) − 1 of the largest
value. In layer 2 losers after the winner are those whose letter before is another one.

*Feed-forward networks* are evaluated on boxes as the piecewise linear functions that they are, in rational arithmetic: neurons that are on
all over a box are added up before the box is applied, so that on a plateau slopes cancel and the noise is gone; neurons that may be on or
off count with their range. The rounding of the executor is added (`verify.chain.rounding`).

*Slots are written once.* Rows of W_O and A of all other slots must be 0, or it is a fault. Nothing else is assumed: what does not restore
leaves a wide box, which widens all that follows, up to the output.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.numbers.exact import UNIT, nearest, rational, upper, working_precision
from analyzer.targets.tasks.k_hop import KHopTarget
from analyzer.theorems.library.k_hop import ID, PREVIOUS, READ_OUT, Composition, Depth, budgets, find_lemma, target_graph
from constructions.network.exponential import exp
from constructions.network.transformer import FeedForward, Transformer, to_exact
from constructions.run.execute import run
from constructions.theorems.library.k_hop import HopStream
from verify.chain.certificate import Certificate, StrangeWeights, matched
from verify.chain.enclosed import OUTWARD, Enclosed, EnclosedArithmetic, stacked, stored
from verify.chain.enclosed_layers import enclosed_pass
from verify.chain.rounding import check_neurons, feed_forward_error

BITS = 128
RUN, PAIRS = 64, 1 << 22
"""Sequences that are run for a witness, with no more pairs of tokens than this in all."""
RUN_IN_BALLS, SHORT = 4, 8
"""Of an exact network fewer and shorter ones, in midpoints and radii."""
Neuron = tuple[fmpq, list[tuple[int, fmpq]], fmpq]
"""Outer weight, weights of the coordinates that it reads, bias."""


def spanned(box: Enclosed, axes: tuple[int, ...]) -> Enclosed:
    """The least box around all entries along some axes."""
    low, high = (box.mid - box.rad * OUTWARD).min(axis=axes), (box.mid + box.rad * OUTWARD).max(axis=axes)
    mid = (low + high) / 2
    single = (box.mid.max(axis=axes) == box.mid.min(axis=axes)) & (box.rad.max(axis=axes) == box.rad.min(axis=axes))
    first = tuple(0 if axis in axes else slice(None) for axis in range(box.mid.ndim))
    wide = np.maximum(high - mid, mid - low) * OUTWARD + 2.0**-52 * np.abs(mid)
    return Enclosed(np.where(single, box.mid[first], mid), np.where(single, box.rad[first], wide))


@dataclass
class _HopReading:
    """A stored network on the way through its layers: the range of every slot, and its boxes by what it is a function of."""

    network: Transformer
    target: KHopTarget
    stream: HopStream
    whole: Enclosed  # (D,) the range of every coordinate, over all sequences and positions
    known: dict[str, Enclosed] = field(default_factory=dict)
    """Slots by their values, (values, coordinates of the slot): positions and pointers from 0 to N − 1, letters from 1 to A, numbers of
    letters that may be missing from 0 to A."""
    errors: dict[str, float] = field(default_factory=dict)
    """Lemma → how far what attention delivers is from the whole number that it should be."""
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.arithmetic = EnclosedArithmetic(self.network.dtype)

    def box(self, **slots: Enclosed) -> Enclosed:
        """States (S, D) at which some slots have these values (S, ·) or (1, ·), and all others their range."""
        return self.boxes({tuple(self.stream.slots[name]): values for name, values in slots.items()})

    def boxes(self, given: Mapping[tuple[int, ...], Enclosed]) -> Enclosed:
        """The same by coordinates."""
        count = max((len(values.mid) for values in given.values()), default=1)
        mid, rad = (np.broadcast_to(part, (count, self.stream.width)).copy() for part in (self.whole.mid, self.whole.rad))
        for places, values in given.items():
            mid[:, places], rad[:, places] = values.mid, values.rad
        return Enclosed(mid, rad)

    def at_positions(self, rows: slice | np.ndarray = slice(None)) -> dict[str, Enclosed]:
        """What the table of positions says of some of them."""
        return {name: self.known[name][rows] for name in ("first", "place", "bend")}

    def spread(self, places: Sequence[int], values: Enclosed) -> None:
        """The range of some coordinates is that of their values (S, ·)."""
        found = spanned(values, (0,))
        self.whole.mid[list(places)], self.whole.rad[list(places)] = found.mid, found.rad

    def learn(self, name: str, values: Enclosed) -> None:
        """A slot (values, coordinates)."""
        self.known[name] = values
        self.spread(self.stream.slots[name], values)

    def missed(self, lemma: str, found: Enclosed, wanted: np.ndarray) -> None:
        """What is delivered (S,) beside what is wanted, at the worst."""
        worst = float(((np.abs(found.mid - wanted) + found.rad) * OUTWARD).max())
        if not worst <= self.errors.setdefault(lemma, 0.0):
            self.errors[lemma] = worst


def read(network: Transformer, target: KHopTarget, layers: Depth) -> _HopReading:
    """The stream before the first layer; refused unless the network has the shape of the theorem's."""
    stream = HopStream(target, layers)
    attentions, heads = [layer.attention for layer in network.layers], [1, 1, *map(len, stream.chain)]
    formed = [len(one.rpe) for one in attentions] == heads and network.embedding.shape == (stream.width, 1) and network.outputs == 1
    formed = formed and all(one.kind == "dp" and one.window == "finite" and set(one.rpe) == {"none"} for one in attentions)
    formed = formed and [one.value.shape[1] for one in attentions] == [1, *[2] * (len(attentions) - 2), 1]
    if not formed or network.positions is None or len(network.positions) != target.length:
        raise InputError(f"not a network of {ID} for {target.description}: layers, heads, stream or positions have other sizes")
    if any("log" in layer.feedforward.precision for layer in network.layers):
        raise StrangeWeights(f"not a network of {ID}: numbers are rounded to logarithms")
    arithmetic, shape = EnclosedArithmetic(network.dtype), (target.length, target.size, stream.width)
    tokens = target.letters()[:, None]  # dyadic: the same in every type
    embedding, bias, table = (stored(np.asarray(part)) for part in (network.embedding, network.bias, network.positions))
    letters = arithmetic.linear(embedding, Enclosed(tokens, np.zeros_like(tokens)), bias)
    every = arithmetic.plus(
        Enclosed(*(np.broadcast_to(part, shape) for part in (letters.mid, letters.rad))),
        Enclosed(*(np.broadcast_to(part[:, None], shape) for part in (table.mid, table.rad))),
    )
    reading = _HopReading(network, target, stream, spanned(every, (0, 1)))
    reading.faults += _written_twice(network, stream)
    for name in ("first", "place", "bend"):
        reading.learn(name, spanned(every, (1,))[:, list(stream.slots[name])])
    reading.learn("letter", spanned(every, (0,))[:, list(stream.slots["letter"])])
    return reading


def _written_twice(network: Transformer, stream: HopStream) -> list[str]:
    """Faults: slots that a layer writes to that are not its own."""
    numbers = [[], [1], *([step.n for step in group] for group in stream.chain)]
    faults = []
    for index, (layer, group) in enumerate(zip(network.layers, numbers, strict=True)):
        brought = [f"sought {n}" for n in group] if index else ["heard"]
        made = [f"{what} {n}" for n in group for what in ("find", "letter")] if index else ["mark", "own", "previous"]
        parts = [(np.moveaxis(np.asarray(layer.attention.output), 1, 0), brought, "attention")]
        parts += [(np.asarray(layer.feedforward.outer), made, "feed-forward network")] if index < len(network.layers) - 1 else []
        for weights, names, what in parts:
            touched = np.flatnonzero(np.reshape(weights != 0, (stream.width, -1)).any(axis=1))
            strange = sorted(set(touched.tolist()) - {j for name in names for j in stream.slots[name]})
            if strange:
                name = next(name for name, places in stream.slots.items() if strange[0] in places)
                faults.append(f"layer {index + 1}: its {what} writes to {name}, which is not its own")
    return faults


def project(reading: _HopReading, index: int, name: str, head: int, states: Enclosed) -> Enclosed:
    """W_Q, W_K or W_V of a head on states (S, D): (S, rows). Columns of zeros add exact zeros, in any order, and are left out."""
    weights = stored(np.asarray(getattr(reading.network.layers[index].attention, name)))[head]
    used = np.flatnonzero(weights.size.any(axis=0))
    return reading.arithmetic.linear(weights[:, used], states[:, used])


@dataclass(frozen=True)
class HopLogits:
    """⟨q, k_s⟩ of queries and keys: midpoints (Q, S); radii `own` (Q, S) of all that happens to a logit for itself, its exponential
    included; and radii (Q, k) of the queries, which all logits of a query share."""

    mid: np.ndarray
    own: np.ndarray
    query: np.ndarray
    keys: Enclosed  # (S, k)

    @property
    def rad(self) -> np.ndarray:
        return (self.own + self.query @ self.keys.size.T) * OUTWARD

    def relative(self, winners: np.ndarray) -> np.ndarray:
        """Exponents (Q, S) of all others relative to the winner (Q,) of every query: a query that is off moves ⟨q, k_s − k_w⟩ only."""
        rows, won = np.arange(len(winners)), self.keys[winners]
        apart = np.abs(self.keys.mid - won.mid[:, None]) + self.keys.rad + won.rad[:, None]
        low = self.mid[rows, winners] - self.own[rows, winners]
        exponents = self.mid - low[:, None] + (self.own + np.einsum("qk,qsk->qs", self.query, apart)) * OUTWARD
        exponents[rows, winners] = -np.inf
        return exponents


def scored(reading: _HopReading, index: int, head: int, queries: Enclosed, keys: Enclosed) -> HopLogits:
    """Logits of boxes: dot products, biases of 0 that are added to them, the subtraction of the maximum, and the exponential.

    Of the 12 units of the largest |a| 5 are for the bias, 2 for a − max a, and 5 for what is computed here with the midpoints."""
    arithmetic = reading.arithmetic
    query, key = project(reading, index, "query", head, queries), project(reading, index, "key", head, keys)
    shape = (len(query.mid), len(key.mid), 1, key.mid.shape[-1])
    beside = Enclosed(*(np.broadcast_to(part[:, None], shape) for part in (key.mid, key.rad)))
    scores = arithmetic.scores(Enclosed(query.mid[:, None], query.rad[:, None]), beside)
    own = arithmetic.scores(Enclosed(query.size[:, None], np.zeros_like(query.rad[:, None])), beside).rad  # as if the query were a point
    own = own + arithmetic.unit * 12 * scores.size.max(axis=-1, keepdims=True) + arithmetic.slip
    return HopLogits(scores.mid[:, 0], own[:, 0] * OUTWARD, query.rad, key)


def mean_rounding(reading: _HopReading, values: Enclosed) -> np.ndarray:
    """What sums and quotient of a mean of values (S, dv) are off by, (dv,)."""
    arithmetic, terms = reading.arithmetic, reading.target.length + 1
    arithmetic.checked(values, terms * values.largest)
    gamma, largest = arithmetic.gamma(terms), values.size.max(axis=0)
    return ((1 + arithmetic.unit) * (1 + gamma) / (1 - gamma) - 1) * largest * OUTWARD + 8 * terms * arithmetic.tiny * (1 + largest)


def deviation(reading: _HopReading, exponents: np.ndarray, values: Enclosed) -> np.ndarray:
    """How far means (dv,) can be from the winners' values: exponents (W, S) of all losers relative to the winner, −∞ for itself, and value
    boxes by position, of which row w is that of winner w, (S, dv), or (1, dv) where they do not depend on the position.

    A weight that is clipped at e^{−X} is at most e^{−X} times the largest weight relative to the winner's, or times 1."""
    ratios = exp(np.clip(exponents, -700.0, 600.0), np) * OUTWARD
    clipped = 2.1 * np.exp(-reading.arithmetic.deepest) * np.maximum(1.0, ratios.max(axis=1, keepdims=True))
    ratios = np.where(np.isneginf(exponents), 0.0, ratios + clipped)
    found = []
    for mid, rad in zip(values.mid.T, values.rad.T, strict=True):
        apart = np.abs(mid[:, None] - mid) + rad[:, None] + rad
        with np.errstate(over="ignore"):
            found.append(np.minimum((ratios * apart).sum(axis=1), apart.max()).max() * OUTWARD)
    return np.array(found) + mean_rounding(reading, values)


def delivered(reading: _HopReading, index: int, head: int, slot: int, values: Enclosed, off: np.ndarray) -> Enclosed:
    """A coordinate (S,) of the stream after attention, where this head delivers values (S, dv) to within `off` (dv,), and the others
    anything in the range of theirs."""
    attention = reading.network.layers[index].attention
    parts = []
    for h in range(len(attention.rpe)):
        others = project(reading, index, "value", h, reading.box())
        mixed = Enclosed(values.mid, values.rad + off) if h == head else Enclosed(others.mid, others.rad + mean_rounding(reading, others))
        parts.append(Enclosed(*(np.broadcast_to(part, values.mid.shape) for part in (mixed.mid, mixed.rad))))
    rows, mixed = stored(np.asarray(attention.output)[:, slot].reshape(1, -1)), stacked(parts, 1)
    used = np.flatnonzero(rows.size.any(axis=0))
    return _on_top(reading, slot, reading.arithmetic.linear(rows[:, used], mixed[:, used])[:, 0])


def _on_top(reading: _HopReading, slot: int, added: Enclosed) -> Enclosed:
    """The residual: what a coordinate held before, plus what is added (S,)."""
    before = reading.whole[slot]
    return reading.arithmetic.plus(Enclosed(*(np.broadcast_to(part, added.mid.shape) for part in (before.mid, before.rad))), added)


def fed(reading: _HopReading, index: int, row: int, states: Enclosed) -> tuple[Enclosed, arb]:
    """(an output (S,) of a feed-forward network on states (S, D), the executor's rounding in it): slopes are added up before boxes are
    applied."""
    ffn = reading.network.layers[index].feedforward
    used = np.flatnonzero(np.asarray(ffn.outer)[row] != 0)
    columns = np.flatnonzero((np.asarray(ffn.inner)[used] != 0).any(axis=0))
    inner, bias, outer = np.asarray(ffn.inner)[np.ix_(used, columns)], np.asarray(ffn.bias)[used], np.asarray(ffn.outer)[[row]][:, used]
    neurons = list(zip(to_exact(outer)[0], [list(enumerate(weights)) for weights in to_exact(inner)], to_exact(bias), strict=True))
    neurons = [(a, [(k, w) for k, w in weights if w != 0], c) for a, weights, c in neurons]
    found = [_on_box(neurons, mid, rad) for mid, rad in zip(states.mid[:, columns], states.rad[:, columns], strict=True)]
    rounding = arb(0)
    if reading.network.dtype != "exact":
        check_neurons(reading.network.dtype, ffn, [arb(float(size)) for size in states.size.max(axis=0)])
        sizes = [arb(float(size)) for size in states.size[:, columns].max(axis=0)]
        rounding = feed_forward_error(reading.network.dtype, FeedForward(inner, bias, outer), 0, sizes)
    mid = np.array([nearest(value) for value, _ in found])
    off = [upper(arb(moved) + abs(arb(value - rational(float(m)))) + rounding) for (value, moved), m in zip(found, mid, strict=True)]
    result = Enclosed(mid, np.array(off))
    whole = bool(ffn.precision) and ffn.precision[row] == "integer"
    return (reading.arithmetic.integer(result) if whole else result), rounding


def _on_box(neurons: Sequence[Neuron], mid: np.ndarray, rad: np.ndarray) -> tuple[fmpq, fmpq]:
    """(centre, radius) of Σ outer·relu(row·x + bias) for x in mid ± rad."""
    centre, reach = [rational(float(v)) for v in mid], [rational(float(r)) for r in rad]
    slope, constant, doubtful = [fmpq(0)] * len(centre), fmpq(0), fmpq(0)
    for outer, row, bias in neurons:
        middle = sum((w * centre[k] for k, w in row), bias)
        wide = sum((abs(w) * reach[k] for k, w in row), fmpq(0))
        if middle + wide <= 0:
            continue  # off all over the box
        if middle >= wide:  # on all over the box
            constant += outer * bias
            for k, w in row:
                slope[k] += outer * w
        else:
            constant += outer * (middle + wide) / 2
            doubtful += abs(outer) * (middle + wide) / 2
    value = sum((s * c for s, c in zip(slope, centre, strict=True)), constant)
    return value, sum((abs(s) * r for s, r in zip(slope, reach, strict=True)), doubtful)


def restore(reading: _HopReading, index: int, slot: str, states: Enclosed) -> None:
    """A slot that a feed-forward network writes on these states after attention."""
    parts = [_on_top(reading, place, fed(reading, index, place, states)[0]) for place in reading.stream.slots[slot]]
    reading.learn(slot, Enclosed(np.stack([p.mid for p in parts], 1), np.stack([p.rad for p in parts], 1)))


def before(reading: _HopReading) -> None:
    """Layer 1: position t looks at t − 1; at position 0 nothing but itself is seen, and `first` puts out what is heard."""
    length, size = reading.target.length, reading.target.size
    places = reading.box(**reading.at_positions())
    logits = scored(reading, 0, 0, places[1:], places)
    off = deviation(reading, logits.relative(np.arange(length - 1)), project(reading, 0, "value", 0, reading.box()))
    letters = project(reading, 0, "value", 0, stacked([reading.box(), reading.box(letter=reading.known["letter"])], 0))
    heard = delivered(reading, 0, 0, reading.stream.at("heard"), letters, off)
    reading.missed(PREVIOUS, heard[1:], np.arange(1, size + 1))
    reading.learn("heard", heard.reshape(-1, 1))
    later = spanned(reading.known["first"][1:], (0,)).reshape(1, 1)
    firsts = stacked([reading.known["first"][:1], *[later] * size], 0)  # position 0 with any letter, then every letter after it
    letter = reading.whole[list(reading.stream.slots["letter"])].reshape(1, 1)
    marked = reading.box(first=firsts, letter=stacked([letter, reading.known["letter"]], 0))
    own, previous = reading.box(letter=reading.known["letter"]), reading.box(first=firsts, heard=reading.known["heard"])
    for name, states in (("mark", marked), ("own", own), ("previous", previous)):
        restore(reading, 0, name, states)


def last_match(reading: _HopReading) -> None:
    """Layer 2: the query's letter against the letter before every position; the last match wins, or position 0 if there is none."""
    length, size = reading.target.length, reading.target.size
    positions = np.concatenate([[0], np.repeat(np.arange(1, length), size)])
    numbers = np.concatenate([[0], np.tile(np.arange(1, size + 1), length - 1)])
    keys = reading.box(previous=reading.known["previous"][numbers], **reading.at_positions(positions))
    values = project(reading, 1, "value", 0, reading.box(**reading.at_positions()))
    off = np.zeros(values.mid.shape[1])
    later = np.arange(length)[:, None] < np.arange(length)  # (winner, loser)
    for a in range(size):
        queries = reading.box(letter=reading.known["letter"][a : a + 1], own=reading.known["own"][a : a + 1])
        logits = scored(reading, 1, 0, queries, keys)
        high, low = logits.mid[0] + logits.rad[0], logits.mid[0] - logits.rad[0]
        table = high[1:].reshape(length - 1, size)
        every = np.concatenate([high[:1], table.max(axis=1)])
        other = np.concatenate([high[:1], np.delete(table, a, axis=1).max(axis=1)])
        winner = np.concatenate([low[:1], low[1:].reshape(length - 1, size)[:, a]])
        exponents = np.where(later, other, every) - winner[:, None]
        np.fill_diagonal(exponents, -np.inf)
        off = np.maximum(off, deviation(reading, exponents, values))
    marks = project(reading, 1, "value", 0, reading.box(mark=reading.known["mark"]))
    arrive(reading, 1, 0, 1, (values, marks), off)


def compose(reading: _HopReading, index: int, head: int, step: Composition) -> None:
    """Later layers: a pointer is the query, positions are the keys."""
    length = reading.target.length
    queries = reading.box(**{f"find {step.query}": reading.known[f"find {step.query}"]})
    logits = scored(reading, index, head, queries, reading.box(**reading.at_positions()))
    off = deviation(reading, logits.relative(np.arange(length)), project(reading, index, "value", head, reading.box()))
    names = f"find {step.value}", f"letter {step.value}"
    values = [project(reading, index, "value", head, reading.box(**{name: reading.known[name]})) for name in names]
    arrive(reading, index, head, step.n, values, off)


def arrive(reading: _HopReading, index: int, head: int, n: int, values: Sequence[Enclosed], off: np.ndarray) -> None:
    """Pointer and letter after n jumps, as attention delivers them; after k jumps the letter alone."""
    target, places = reading.target, reading.stream.slots[f"sought {n}"]
    wanted = np.arange(target.length), np.arange(target.size + 1)
    kinds = zip(places, values[-len(places) :], wanted[-len(places) :], ("find", "letter")[-len(places) :], strict=True)
    for place, given, numbers, kind in kinds:
        found = delivered(reading, index, head, place, given, off)
        reading.missed(find_lemma(n), found, numbers)
        reading.known[f"sought {kind} {n}"] = found.reshape(-1, 1)


def settle(reading: _HopReading, index: int, numbers: Sequence[int]) -> None:
    """`find n` and `letter n` of a layer, restored from what was delivered; neurons see all that was, and nothing that they write."""
    brought = [
        (kind, n, place) for n in numbers for kind, place in zip(("find", "letter"), reading.stream.slots[f"sought {n}"], strict=True)
    ]
    for kind, n, place in brought:
        reading.spread([place], reading.known[f"sought {kind} {n}"])
    states = [reading.boxes({(place,): reading.known[f"sought {kind} {n}"]}) for kind, n, place in brought]
    for (kind, n, _), box in zip(brought, states, strict=True):
        restore(reading, index, f"{kind} {n}", box)


def walk(reading: _HopReading) -> tuple[float, arb]:
    """Through all layers; (the largest error of the output, the executor's rounding in the read-out)."""
    target, chain = reading.target, reading.stream.chain
    before(reading)
    last_match(reading)
    for index, group in enumerate(chain, start=2):
        settle(reading, index - 1, [step.n for step in chain[index - 3]] if index > 2 else [1])
        for head, step in enumerate(group):
            compose(reading, index, head, step)
    place = reading.stream.at(f"sought {target.hops}")
    output, rounding = fed(reading, -1, 0, reading.boxes({(place,): reading.known[f"sought letter {target.hops}"]}))
    wanted = np.array([0.0, *target.letters()])
    return float((np.abs(output.mid - wanted) + output.rad).max()), rounding


def verify(network: Transformer, target: KHopTarget, bank: str, ffn: str) -> Certificate:
    """Certify a stored network of k jumps; `bank` says whether it claims to double pointers or to go jump by jump."""
    start = time.perf_counter()
    if bank not in ("doubling", "chain"):
        raise InputError(f"{ID} has networks of layers doubling and chain, not {str(bank)[:40]!r}")
    layers = cast(Depth, bank)
    reading = read(network, target, layers)
    with working_precision(BITS):
        error, rounding = walk(reading)
        unit = arb(0) if network.dtype == "exact" else arb(UNIT[network.dtype])
        bound = 16 * (2 * target.size) ** 2 * unit
        relu = not any(layer.feedforward.precision for layer in network.layers)
        _, allowed = budgets(target, network.dtype, "relu" if relu else "ideal")
        measured = {lemma: (arb(found), arb(allowed)) for lemma, found in reading.errors.items()} | {READ_OUT: (arb(error), bound)}
        parts = matched(target_graph(target.hops, layers), measured)
    witness, shown = _witness(reading)
    return Certificate(
        theorem=ID,
        witness=witness,
        witness_input=shown,
        certified=float("inf") if reading.faults else error,
        bound=upper(bound),
        rounding=upper(rounding),
        trivial=target.constant_error(),
        least_heads=None,
        parts=parts,
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=time.perf_counter() - start,
        faults=tuple(reading.faults),
        details={"layers": layers, "hops": target.hops, "rounding": "relu" if relu else "ideal"},
    )


def _witness(reading: _HopReading) -> tuple[float, str]:
    """The largest error at random sequences, from below: float networks are run, exact ones enclosed."""
    network, target, rng = reading.network, reading.target, np.random.default_rng(0)
    if network.dtype == "exact":
        tokens = target.draw(rng, (RUN_IN_BALLS, min(SHORT, target.length)))
        found = enclosed_pass(network, tokens)
        errors = np.abs(found.mid - target.values(np)(tokens)) - found.rad * OUTWARD - 2.0**-50
    else:
        tokens = target.draw(rng, (min(RUN, PAIRS // target.length**2), target.length))
        errors = np.abs(run(network, tokens).astype(np.float64) - target.values(np)(tokens)) * (1 - 2.0**-50)
    if not np.isfinite(errors).all():
        reading.faults.append(f"the network computes numbers that are not finite in {network.dtype}")
        return 0.0, "none"
    row, t = np.unravel_index(errors.argmax(), errors.shape)
    letters = " ".join(str(number + 1) for number in target.nearest_letters(tokens[row, : t + 1], np)[:, 0])
    return max(0.0, float(errors[row, t])), f"letters {letters}, the last one's output"
