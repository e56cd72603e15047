"""Every state that a network can have at a position, by the most recent tokens: words over a finite alphabet.

Let the alphabet have L letters (whole tokens). A state after l layers is listed for every word of at most r_l letters: words of exactly r_l
letters stand for all positions that have seen these letters last, whatever came before; shorter words of j letters for the positions j − 1
of an array, with nothing but its constant past before. The word of no letters is that past.

Layer by layer. A layer that looks k tokens back reads, at a word of j letters, the states of its beginnings: at distance s ≤ min(j − 1, k)
the word without its last s letters, of which the last r_l count. So r_{l+1} = r_l + k, and what lies beyond is

* nothing, where tables end (k = S − 1), or the window is finite and the whole array is listed;
* the constant past, if j ≤ k;
* otherwise the rest (`verify.chain.enclosed_layers`): its states lie in the box of all states of that layer, words of every length and
  the past among them, so nothing is assumed about it. Its mass is closed, and open in a finite window, where the array may begin anywhere.

Equal words are evaluated once: layers below the last have far fewer of them than there are sequences.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from analyzer.errors import Refusal
from constructions.network.transformer import Transformer
from verify.chain.enclosed import Enclosed, hull, stacked
from verify.chain.enclosed_layers import EnclosedNetwork, Projected, gathered

MAX_NUMBERS = 1 << 26
"""Numbers that are held for the states of a layer: half a gigabyte."""
CELLS = 1 << 21
"""Numbers of a batch: words times positions times heads times coordinates."""


@dataclass(frozen=True)
class Reach:
    """How far back every layer is listed; `whole`: nothing lies beyond, so that the words are all there is."""

    back: tuple[int, ...]
    whole: bool

    @property
    def letters(self) -> int:
        """r_L."""
        return 1 + sum(self.back)


class Words:
    """The states of all words, after as many layers as were advanced; `tokens` (L, d) are the letters."""

    def __init__(self, network: EnclosedNetwork, tokens: Enclosed, length: int | None = None) -> None:
        self.network, self.letters, self.length = network, len(tokens.mid), length
        self.states = [network.past, network.embed(tokens)]

    @property
    def longest(self) -> int:
        """r_l."""
        return len(self.states) - 1

    def advance(self, index: int, back: int) -> None:
        """All states after layer `index`, which is not the last."""
        longest = self.after(back)
        self._check_room(index, longest)
        step = _Step(self, index, back)
        self.states = [step.outcome(j, 0, self.letters**j) for j in range(longest + 1)]

    def outputs(self, index: int, back: int, least: int) -> Iterator[tuple[int, int, Enclosed]]:
        """(letters j, number of the first word, outputs (B, c)) of all words of `least` letters or more after the last layer, in parts."""
        step = _Step(self, index, back)
        for j in range(least, self.after(back) + 1):
            total, batch = self.letters**j, step.batch(j)
            for start in range(0, total, batch):
                yield j, start, step.outcome(j, start, min(start + batch, total))

    def after(self, back: int) -> int:
        """r_{l+1}."""
        longest = self.longest + back
        return longest if self.length is None else min(longest, self.length)

    def _check_room(self, index: int, longest: int) -> None:
        attention = self.network.network.layers[index].attention
        width = int(self.network.network.embedding.shape[0]) + attention.value.shape[0] * (
            2 * attention.query.shape[1] + attention.value.shape[1]
        )
        if 4 * self.letters**longest * width > MAX_NUMBERS:
            raise Refusal(f"the states of {self.letters}^{longest} words after layer {index + 1} are more than are held at once")


class _Step:
    """One layer on all words."""

    def __init__(self, words: Words, index: int, back: int) -> None:
        self.words, self.index, self.back = words, index, back
        self.attention = words.network.attentions[index]
        self.projected = [self.attention.project(states) for states in words.states]
        box = hull(words.states)
        self.box = self.attention.project(Enclosed(box.mid[None], box.rad[None]))
        self.largest = np.max([p.value.size.max(axis=(0, 2)) for p in [*self.projected, self.box]], axis=0)

    def batch(self, j: int) -> int:
        heads, (_, keys, _), (_, values, _) = (
            self.attention.heads,
            self.attention.attention.query.shape,
            self.attention.attention.value.shape,
        )
        neurons = self.words.network.network.layers[self.index].feedforward.inner.shape[0]
        return max(1, CELLS // ((min(j, self.back + 1) + 1) * heads * (keys + values + 1) + neurons))

    def outcome(self, j: int, start: int, end: int) -> Enclosed:
        """States after the layer of the words number `start` to `end` of j letters."""
        batch = self.batch(j)
        if end - start > batch:
            return stacked([self.outcome(j, a, min(a + batch, end)) for a in range(start, end, batch)], 0)
        number = np.arange(start, end)
        own = self._place(j, 0, number)
        x, at = self.words.states[own[0]][own[1]], self.projected[own[0]][own[1]]
        count = min(j, self.back + 1)
        listed: list[Projected] = [at]
        for s in range(1, count):
            group, rows = self._place(j, s, number)
            listed.append(self.projected[group][rows])
        listed = listed[:count]
        ended = self.attention.reach is not None and count >= self.attention.reach
        earlier = j > count or j == self.words.after(self.back)  # tokens may lie before those that are listed
        rest = not ended and (self.attention.infinite or (earlier and self.words.length is None))
        if rest:
            listed.append(self.projected[0] if j <= self.back else self.box)
        if not listed:  # the past of a finite window attends to nothing
            return self.words.network.feed(self.index, x)
        columns = self.attention.columns(count, rest)
        return self.words.network.layer(self.index, x, at, gathered(listed), columns, self.largest)

    def _place(self, j: int, s: int, number: np.ndarray) -> tuple[int, np.ndarray]:
        """(letters, numbers) of the words without their last s letters, as far as states are listed."""
        group = min(j - s, self.words.longest)
        return group, number // self.words.letters**s % self.words.letters**group


def reach_of(network: Transformer, letters: int, length: int | None, most: int) -> Reach | None:
    """How far back all of the network looks, if there are at most `most` words of so many letters; None if there are more, or it looks
    back for ever. In a finite window heads without tables look at the whole array, of `length` tokens."""
    back = []
    for layer in network.layers:
        attention = layer.attention
        if attention.table is not None:
            back.append(int(attention.table.shape[1]) - 1)
        elif attention.window == "infinite" or length is None:
            return None
        else:
            back.append(length - 1)
    found = Reach(tuple(back), True)
    limited = any(layer.attention.table is None for layer in network.layers)
    count = found.letters if length is None or not limited else min(found.letters, length)
    return found if letters**count <= most else None


def cut_reach(network: Transformer, letters: int, most: int) -> Reach:
    """As far back as at most `most` words go: tables that fit as they are, the others share what is left, the last layer first."""
    room = 0
    while letters ** (room + 2) <= most and room < 64:
        room += 1
    tables = [layer.attention.table for layer in network.layers]
    back = [0] * len(tables)
    open_layers = list(range(len(tables)))
    while room and open_layers:
        for index in list(reversed(open_layers)):
            table = tables[index]
            if table is not None and back[index] >= table.shape[1] - 1:
                open_layers.remove(index)
            elif room:
                back[index], room = back[index] + 1, room - 1
    return Reach(tuple(back), False)
