"""The weights of k-hop induction (statement: `analyzer.theorems.library.k_hop`).

Residual stream in named slots, each written once:

    one                     the constant 1
    first, place, bend      1{j = 0}, j and (j − c)² of the position table, c = ⌊N/2⌋
    letter, mark            the number of x_t, 1 … A; the same, but 0 at position 0, which no pointer leads to but for want of a match
    own, previous           one-hot vectors of x_t and of x_{t−1}; the latter is 0 at position 0
    heard                   the number of x_{t−1} as attention delivers it
    sought n                (pointer, letter) after n jumps as attention delivers them; after k jumps the letter alone
    find n, letter n        the same, restored

    layer 1       one head looks at position t − 1, value: letter; the FFN writes mark, own, previous
    layer 2       one head looks at the last j with x_{j−1} = x_t, else at position 0; values: place, mark
    layers 3 …    for every step n + m of the chain a head looks at position find n; values: find m, letter m
    last FFN      Σ_i σ·step_i(letter), which takes the number a to the letter aσ

step_i(z) = relu(2(z−i) + 3/2) − relu(2(z−i) + 1/2) is 0 up to i − 3/4 and 1 from i − 1/4 on: sums of steps restore what is at most 1/4 off.
All weights are whole numbers, or halves, or powers of 2: every float type holds them exactly. Pointers travel with their letters, though
the letter of one that is a query only, and the pointer of the value of the last step, are read by nobody.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from flint import fmpq

from analyzer.targets.tasks.k_hop import KHopTarget
from analyzer.theorems.library.k_hop import Composition, Depth, KHop, Rounding, Scales, addition_chain, check, depth, scales
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, zeros
from constructions.theorems.construction import Construction
from constructions.theorems.jl_4_2 import rounded

Entries = dict[str, int]
"""Weights of a row by the slots that they belong to."""


@dataclass(frozen=True)
class HopStream:
    """Coordinates of the residual stream."""

    target: KHopTarget
    layers: Depth

    @cached_property
    def chain(self) -> list[list[Composition]]:
        return addition_chain(self.target.hops, self.layers)

    @cached_property
    def slots(self) -> dict[str, range]:
        """Names and coordinates, in order."""
        size, last = self.target.size, self.target.hops
        widths = dict.fromkeys(("one", "first", "place", "bend", "letter", "mark"), 1) | {"own": size, "heard": 1, "previous": size}
        for n in [n for n in (1, *(step.n for group in self.chain for step in group)) if n != last]:
            widths |= {f"sought {n}": 2, f"find {n}": 1, f"letter {n}": 1}
        widths[f"sought {last}"] = 1
        ends = np.cumsum(list(widths.values())).tolist()
        return {name: range(end - width, end) for (name, width), end in zip(widths.items(), ends, strict=True)}

    @property
    def width(self) -> int:
        return self.slots[f"sought {self.target.hops}"].stop

    @property
    def centre(self) -> int:
        """c: places are counted from here in keys, which halves them."""
        return self.target.length // 2

    def at(self, name: str) -> int:
        """The first coordinate of a slot."""
        return self.slots[name].start

    def row(self, entries: Entries) -> np.ndarray:
        """Weights on the first coordinates of some slots."""
        row = zeros(self.width)
        for name, weight in entries.items():
            row[self.at(name)] += fmpq(weight)
        return row


def slots(target: KHopTarget, network: Transformer) -> dict[str, range]:
    """Named coordinates of the residual stream."""
    return HopStream(target, depth_of(target, network)).slots


def depth_of(target: KHopTarget, network: Transformer) -> Depth:
    """Which of the two networks for a target has these layers and this stream."""
    ways: tuple[Depth, Depth] = ("doubling", "chain")
    held = len(network.layers), network.embedding.shape[0]
    return next((layers for layers in ways if held == (depth(target.hops, layers), HopStream(target, layers).width)), "doubling")


def meanings(target: KHopTarget, network: Transformer) -> dict[str, str]:
    """What the slots hold once their layer has written them."""
    told = {
        "one": "the constant 1",
        "first": "1 at position 0, else 0",
        "place": "the position",
        "bend": "the square of the position, counted from the middle",
        "letter": "the number of the letter",
        "mark": "the number of the letter, 0 at position 0",
        "own": "the letter, one-hot",
        "heard": "the number of the letter before, as attention delivers it",
        "previous": "the letter before, one-hot; 0 at position 0",
    }
    after = {"sought": "what lies {} back, as attention delivers it", "find": "the position {} back, 0 for none"}
    after["letter"] = "the number of the letter {} back, 0 for none"
    for name in slots(target, network).keys() - told.keys():
        what, n = name.split()
        told[name] = after[what].format("1 jump" if n == "1" else f"{n} jumps")
    return told


def build(target: KHopTarget, options: KHop | None = None, **keywords: Any) -> Construction:
    """Build the network; its sizes follow from the target."""
    options = KHop.of(options, keywords)
    check(target, options)
    network = assemble(target, options.layers, options.rounding, scales(target, options.dtype, options.rounding))
    return Construction(target, options, network if options.dtype == "exact" else rounded(network, options.dtype))


def assemble(target: KHopTarget, layers: Depth, rounding: Rounding, weights: Scales) -> Transformer:
    """Exact weights."""
    stream = HopStream(target, layers)
    embedding, bias = zeros(stream.width, 1), zeros(stream.width)
    embedding[stream.at("letter"), 0], bias[stream.at("one")] = 1 / target.unit, fmpq(1)
    positions = zeros(target.length, stream.width)
    for j, row in enumerate(positions):
        row[stream.at("first")], row[stream.at("place")], row[stream.at("bend")] = (
            fmpq(int(j == 0)),
            fmpq(j),
            fmpq((j - stream.centre) ** 2),
        )
    written = [[1], *([step.n for step in group] for group in stream.chain)]
    attentions = [_before(stream, weights), _last_match(stream, weights), *(_composing(stream, weights, group) for group in stream.chain)]
    networks = [_letters(stream), *(_restoring(stream, numbers, rounding) for numbers in written[:-1]), _read_out(stream)]
    return Transformer(embedding, bias, tuple(map(Layer, attentions, networks)), positions)


def _attention(stream: HopStream, query: np.ndarray, key: np.ndarray, value: np.ndarray, written: Sequence[Iterable[int]]) -> Attention:
    """Heads whose value coordinates are written where `written` says, head by head."""
    heads, count = value.shape[:2]
    output = zeros(heads, stream.width, count)
    for h, places in enumerate(written):
        for i, place in enumerate(places):
            output[h, place, i] = fmpq(1)
    return Attention(zeros(heads), value, output, query, key, zeros(0, stream.width), ("none",) * heads, "dp", "finite")


def _looking_at(stream: HopStream, weights: Scales, pointer: str, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """(query, key) of a head that looks at the position pointer + shift: (2β(pointer + shift − c), −β) against (j − c, (j − c)²)."""
    beta = weights.sharpness
    query = [stream.row({pointer: 2 * beta, "one": 2 * beta * (shift - stream.centre)}), stream.row({"one": -beta})]
    return np.array(query), np.array([stream.row({"place": 1, "one": -stream.centre}), stream.row({"bend": 1})])


def _before(stream: HopStream, weights: Scales) -> Attention:
    query, key = _looking_at(stream, weights, "place", -1)
    return _attention(stream, query[None], key[None], stream.row({"letter": 1})[None, None], [stream.slots["heard"]])


def _last_match(stream: HopStream, weights: Scales) -> Attention:
    """Query (B·own, p, B/2), keys (previous, place, first)."""
    size = stream.target.size
    query, key = zeros(1, size + 2, stream.width), zeros(1, size + 2, stream.width)
    for i, (own, previous) in enumerate(zip(stream.slots["own"], stream.slots["previous"], strict=True)):
        query[0, i, own], key[0, i, previous] = fmpq(weights.match), fmpq(1)
    query[0, size], key[0, size] = stream.row({"one": weights.recency}), stream.row({"place": 1})
    query[0, size + 1], key[0, size + 1] = stream.row({"one": weights.match // 2}), stream.row({"first": 1})
    return _bringing(stream, query, key, [("place", "mark", 1)])


def _composing(stream: HopStream, weights: Scales, group: Sequence[Composition]) -> Attention:
    pairs = [_looking_at(stream, weights, f"find {step.query}", 0) for step in group]
    query, key = (np.array(part) for part in zip(*pairs, strict=True))
    return _bringing(stream, query, key, [(f"find {step.value}", f"letter {step.value}", step.n) for step in group])


def _bringing(stream: HopStream, query: np.ndarray, key: np.ndarray, brought: Sequence[tuple[str, str, int]]) -> Attention:
    """Heads that bring (pointer, letter) of slots into `sought n`; after k jumps the letter alone."""
    last = brought[0][2] == stream.target.hops
    value = np.array([[stream.row({name: 1}) for name in names[last:]] for *names, _ in brought])
    return _attention(stream, query, key, value, [stream.slots[f"sought {n}"] for *_, n in brought])


def _letters(stream: HopStream) -> FeedForward:
    """mark = relu(letter − A·first); own from kinks relu(letter − i); previous from steps of heard, which `first` puts out."""
    size = stream.target.size
    rows = [stream.row({"letter": 1, "first": -size})]
    bias, entries = [fmpq(0)], [(stream.at("mark"), 0, 1)]
    for i in range(size):  # relu(letter − i) bends up at letter i, twice down after it
        rows.append(stream.row({"letter": 1}))
        bias.append(fmpq(-i))
        bends = ((stream.slots["own"][i], 1), *([(stream.slots["own"][i - 1], -2)] if i else []))
        bends += ((stream.slots["own"][i - 2], 1),) if i > 1 else ()
        entries += [(place, len(rows) - 1, weight) for place, weight in bends]
    for i in range(1, size + 1):
        for sign, offset in ((1, fmpq(3, 2)), (-1, fmpq(1, 2))):
            rows.append(stream.row({"heard": 2, "first": -2 * size}))
            bias.append(offset - 2 * i)
            entries.append((stream.slots["previous"][i - 1], len(rows) - 1, sign))
            entries += [(stream.slots["previous"][i - 2], len(rows) - 1, -sign)] if i > 1 else []
    return _feed_forward(stream.width, rows, bias, entries)


def _feed_forward(outputs: int, rows: list[np.ndarray], bias: list[fmpq], entries: list[tuple[int, int, Any]]) -> FeedForward:
    """A network from its neurons and the places (output, neuron, weight) of the outer weights."""
    outer = zeros(outputs, len(rows))
    for place, neuron, weight in entries:
        outer[place, neuron] += weight
    return FeedForward(np.array(rows), exact_array(bias), outer)


def _staircase(stream: HopStream, source: int, steps: int) -> tuple[list[np.ndarray], list[fmpq], list[int]]:
    """Rows, biases and signs of Σ_{i=1}^{steps} step_i of a coordinate."""
    row = zeros(stream.width)
    row[source] = fmpq(2)
    offsets = [(sign, half - 2 * i) for i in range(1, steps + 1) for sign, half in ((1, fmpq(3, 2)), (-1, fmpq(1, 2)))]
    return [row] * len(offsets), [offset for _, offset in offsets], [sign for sign, _ in offsets]


def _restoring(stream: HopStream, numbers: Sequence[int], rounding: Rounding) -> FeedForward:
    """`find n` and `letter n` from `sought n`: relu and [·], or staircases."""
    pairs = [(stream.slots[f"sought {n}"][0], stream.at(f"find {n}"), stream.target.length - 1) for n in numbers]
    pairs += [(stream.slots[f"sought {n}"][1], stream.at(f"letter {n}"), stream.target.size) for n in numbers]
    rows, bias, entries = list[np.ndarray](), list[fmpq](), list[tuple[int, int, Any]]()
    for source, place, steps in pairs:
        if rounding == "ideal":
            row = zeros(stream.width)
            row[source] = fmpq(1)
            neurons = [row], [fmpq(0)], [1]
        else:
            neurons = _staircase(stream, source, steps)
        entries += [(place, len(rows) + n, sign) for n, sign in enumerate(neurons[2])]
        rows, bias = rows + neurons[0], bias + neurons[1]
    plain = _feed_forward(stream.width, rows, bias, entries)
    whole = {place for _, place, _ in pairs} if rounding == "ideal" else set()
    precision = tuple("integer" if j in whole else "none" for j in range(stream.width)) if whole else ()
    return FeedForward(plain.inner, plain.bias, plain.outer, precision)


def _read_out(stream: HopStream) -> FeedForward:
    rows, bias, signs = _staircase(stream, stream.at(f"sought {stream.target.hops}"), stream.target.size)
    return _feed_forward(1, rows, bias, [(0, n, sign * stream.target.unit) for n, sign in enumerate(signs)])
