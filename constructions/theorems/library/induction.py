"""The weights of `analyzer.theorems.library.induction`: a bank brings the letters 1 … n−1 steps back, a softmax head compares blocks.

Residual stream: `x0`, the letter itself; `back k`, the letter k steps back, to within e; and for every version its own slots:

    hard      `letter k`, back k restored; `one`; `nothing`, 1 before the array and 0 in it; `copied`
    copy      `letter k`, `copied` (`analyzer.theorems.library.copying`: hard where matches are unique, without recency)
    soft      `copied`
    general   `asked` and `told`, the factors of the similarity; `copied`

    W_E, layer 1     the bank of Theorem 3.1 (lin, log), or one head per lag (table), for the lags 1 … n−1
    FFN of layer 1   hard: ramps relu(2z − ½) − relu(2z − 3/2), which are 0 for z ≤ ¼ and 1 for z ≥ ¾, on every coordinate of every block;
                     general: the same ramps on 1 − (letters that differ from a block), times the factors of that block; soft: nothing
    layer 2          one head. hard: W_Q reads β(q_t, n − 3/2), W_K (k_s, nothing), decay p; soft: W_Q reads w q_t, W_K k_s;
                     general: W_Q reads `asked`, W_K `told`; W_V reads the letter's value, W_O writes `copied`
    last FFN         relu(copied + 2) − 2 relu(1)
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import fmpq, fmpq_mat

from analyzer.errors import Refusal
from analyzer.families import DEFAULT_ERROR, Fixed
from analyzer.numbers.exact import rational
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.tasks.induction import BLANK, InductionTarget, Word
from analyzer.theorems.library.induction import Induction, allowed_noise, check_horizon, hard_constants, match_constant
from constructions.network.form import Window
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, to_exact, zeros
from constructions.theorems import thm_3_1
from constructions.theorems.construction import Construction
from constructions.theorems.jl_4_2 import rounded
from constructions.theorems.positions import table_heads

CLEAR = fmpq(2)
"""|copied| stays below this, so that the read-out's neuron is always on."""


@dataclass(frozen=True)
class InductionStream:
    """Coordinates of the residual stream; `rank` factors of a general similarity."""

    target: InductionTarget
    rank: int = 0

    @property
    def slots(self) -> dict[str, range]:
        """Named blocks, in their order."""
        target, names = self.target, {"x0": self.target.size}
        names |= {f"back {k}": target.size for k in range(1, target.n)}
        if target.match in ("hard", "copy"):
            names |= {f"letter {k}": target.size for k in range(1, target.n)}
        if target.match == "hard":
            names |= {"one": 1, "nothing": 1}
        if target.match == "general":
            names |= {"asked": self.rank, "told": self.rank}
        names["copied"] = 1
        ends = np.cumsum(list(names.values()))
        return {name: range(int(end) - size, int(end)) for (name, size), end in zip(names.items(), ends, strict=True)}

    @property
    def width(self) -> int:
        return self.slots["copied"][-1] + 1

    @property
    def brought(self) -> int:
        """Coordinates of the letter and of those that the bank brings."""
        return self.target.n * self.target.size

    def block(self, first: int, restored: bool) -> list[range]:
        """Slots of n−1 letters from `first` steps back."""
        slots, kind = self.slots, "letter" if restored else "back"
        return [slots["x0"] if k == 0 else slots[f"{kind} {k}"] for k in range(first, first + self.target.n - 1)]


def stream_of(target: InductionTarget, network: Transformer) -> InductionStream:
    """The stream of a stored network."""
    width = int(network.embedding.shape[0])
    return InductionStream(target, max(0, width - 1 - target.n * target.size) // 2 if target.match == "general" else 0)


def slots(target: InductionTarget, network: Transformer) -> dict[str, range]:
    """Named blocks of the residual stream."""
    return stream_of(target, network).slots


def meanings(target: InductionTarget, network: Transformer) -> dict[str, str]:
    """What the slots hold once their layer has written them."""
    told = {"x0": "the current letter, a unit vector"}
    told |= {f"back {k}": f"the letter {k} steps back, to within e" for k in range(1, target.n)}
    told |= {f"letter {k}": f"the letter {k} steps back, exactly" for k in range(1, target.n)}
    told |= {"one": "1", "nothing": "1 before the array, 0 in it", "copied": "the value of the letter that is copied"}
    told |= {"asked": "factors of the similarity for the current letters", "told": "factors for the letters before this one"}
    return {name: told[name] for name in stream_of(target, network).slots}


def brought_letters(target: InductionTarget) -> FixedMemory:
    """What layer 1 delivers: the tokens 1 … n−1 steps back."""
    return FixedMemory(tuple(range(1, target.n)), dim=target.size)


def build(target: InductionTarget, options: Induction | None = None, **keywords: Any) -> Construction:
    """Build the network; in floats half of the error is left to rounding."""
    options = Induction.of(options, keywords)
    error = (DEFAULT_ERROR if options.error is None else options.error) / (1 if options.dtype == "exact" else 2)
    check_horizon(target, options.dtype, error)
    network = assemble(target, _bringing(target, options, error), error)
    return Construction(target, options, network if options.dtype == "exact" else rounded(network, options.dtype))


def _bringing(target: InductionTarget, options: Induction, error: float) -> Transformer:
    """The layer that brings the letters 1 … n−1 steps back, in rationals; half of what it may err by is left to rounding in floats."""
    noise = allowed_noise(target, error, options.rpe) / (1 if options.dtype == "exact" else 2)
    bank = Fixed(rpe=options.rpe, error=noise, dtype=options.dtype)
    if options.rpe == "table":
        return table_heads.build(brought_letters(target), bank).network.map(to_exact)
    try:
        return thm_3_1.build(brought_letters(target), bank).network.map(to_exact)
    except Refusal as refusal:
        raise Refusal(refusal.reason, {"rpe": "table"}) from None


def assemble(target: InductionTarget, bringing: Transformer, error: float) -> Transformer:
    """Exact weights: the layer of a bank in a wider stream, then the comparison."""
    if target.match in ("hard", "copy"):
        stream = InductionStream(target)
        first, query, key = _restoring(stream), *_matching(stream, error)
    elif target.match == "soft":
        stream = InductionStream(target)
        first = FeedForward(zeros(1, stream.width), zeros(1), zeros(stream.width, 1))
        query, key = _rows(stream, 0, False, rational(target.sharpness)), _rows(stream, 1, False, fmpq(1))
    else:
        asked, told = factors(target)
        stream = InductionStream(target, asked.shape[1])
        first = _factored(stream, asked, told)
        query, key = _picked(stream, "asked"), _picked(stream, "told")
    comparing = _comparing(stream, query, key, error)
    embedding, bias = zeros(stream.width, target.size), zeros(stream.width)
    embedding[: stream.brought] = bringing.embedding
    last = FeedForward(zeros(2, stream.width), exact_array([CLEAR, 1]), exact_array([[1, -CLEAR]]))
    last.inner[0, stream.slots["copied"][0]] = fmpq(1)
    return Transformer(embedding, bias, (Layer(_widened(stream, bringing.layers[0].attention), first), Layer(comparing, last)))


def _widened(stream: InductionStream, attention: Attention) -> Attention:
    """A bank in a wider stream."""
    heads, dim = len(attention.rpe), stream.target.size
    value, output, nothing = zeros(heads, dim, stream.width), zeros(heads, stream.width, dim), zeros(heads, 0, stream.width)
    value[:, :, : stream.brought] = attention.value
    output[:, : stream.brought] = attention.output
    return replace(attention, value=value, output=output, query=nothing, key=nothing, pointer=zeros(0, stream.width))


class _Neurons:
    """A feed-forward network, neuron by neuron."""

    def __init__(self, width: int) -> None:
        self.width, self.rows, self.biases, self.outers = width, list[np.ndarray](), list[fmpq](), list[np.ndarray]()

    def add(self, row: dict[int, fmpq], bias: fmpq, outer: dict[int, fmpq]) -> None:
        """outer · relu(row·u + bias)."""
        for weights, kept in ((row, self.rows), (outer, self.outers)):
            full = zeros(self.width)
            for place, weight in weights.items():
                full[place] = weight
            kept.append(full)
        self.biases.append(bias)

    def ramp(self, row: dict[int, fmpq], bias: fmpq, outer: dict[int, fmpq]) -> None:
        """outer times a ramp of z = row·u + bias: 0 for z ≤ ¼, 1 for z ≥ ¾."""
        double = {place: 2 * weight for place, weight in row.items()}
        self.add(double, 2 * bias - fmpq(1, 2), outer)
        self.add(double, 2 * bias - fmpq(3, 2), {place: -weight for place, weight in outer.items()})

    def network(self) -> FeedForward:
        return FeedForward(np.array(self.rows), exact_array(self.biases), np.array(self.outers).T)


def _restoring(stream: InductionStream) -> FeedForward:
    """letter k = back k, restored coordinate by coordinate; in hard one, and nothing = relu(1 − Σ x0)."""
    slots, neurons, one = stream.slots, _Neurons(stream.width), fmpq(1)
    for k in range(1, stream.target.n):
        for noisy, clean in zip(slots[f"back {k}"], slots[f"letter {k}"], strict=True):
            neurons.ramp({noisy: one}, fmpq(0), {clean: one})
    if stream.target.match == "hard":
        neurons.add({}, one, {slots["one"][0]: one})
        neurons.add(dict.fromkeys(slots["x0"], -one), one, {slots["nothing"][0]: one})
    return neurons.network()


def _rows(stream: InductionStream, first: int, restored: bool, weight: fmpq) -> np.ndarray:
    """n−1 letters from `first` steps back, coordinate by coordinate, times a weight: (dk, D)."""
    places = [j for slot in stream.block(first, restored) for j in slot]
    rows = zeros(len(places), stream.width)
    rows[range(len(places)), places] = weight
    return rows


def _picked(stream: InductionStream, name: str) -> np.ndarray:
    """The coordinates of a slot."""
    rows = zeros(len(stream.slots[name]), stream.width)
    rows[range(len(rows)), list(stream.slots[name])] = fmpq(1)
    return rows


def _matching(stream: InductionStream, error: float) -> tuple[np.ndarray, np.ndarray]:
    """β(q_t, n − 3/2) against (k_s, nothing): β for every agreeing letter, and before the array β(n − 3/2) where it is seen."""
    beta = match_constant(stream.target, error)
    query, key = _rows(stream, 0, True, beta), _rows(stream, 1, True, fmpq(1))
    if stream.target.match == "copy":
        return query, key
    last = beta * (stream.target.n - fmpq(3, 2)) * _picked(stream, "one")
    return np.concatenate([query, last]), np.concatenate([key, _picked(stream, "nothing")])


def _comparing(stream: InductionStream, query: np.ndarray, key: np.ndarray, error: float) -> Attention:
    """The head of layer 2."""
    target, hard = stream.target, stream.target.match == "hard"
    value, output = zeros(1, 1, stream.width), zeros(1, stream.width, 1)
    for letter, j in enumerate(stream.slots["x0"]):
        value[0, 0, j] = target.value(letter)
    output[0, stream.slots["copied"][0], 0] = fmpq(1)
    decay = exact_array([hard_constants(target, error)[0] if hard else fmpq(0)])
    rpe = "lin" if hard else "none"
    window: Window = "infinite" if hard else "finite"
    return Attention(decay, value, output, query[None], key[None], zeros(0, stream.width), (rpe,), "dp", window)


def factors(target: InductionTarget) -> tuple[np.ndarray, np.ndarray]:
    """(questions × r, blocks × r) with Σ_i asked_i told_i = g up to functions of the question, which softmax does not see, r least.

    A matrix is the product of its pivot columns and the rows of its reduced echelon form, exactly; that of g − g(·, first block) may have a
    rank that is less by one.
    """
    table, _ = target.table
    shifted = [[v - row[0] for v in row] for row in table]
    found = []
    for rows in (table, shifted):
        reduced, rank = fmpq_mat(rows).rref()
        told = np.array(reduced.tolist(), dtype=object)[: max(rank, 1)]
        pivots = [next(j for j, v in enumerate(row) if v != 0) if rank else 0 for row in told]
        found.append((np.array(rows, dtype=object)[:, pivots], told.T))
    return min(found, key=lambda pair: pair[0].shape[1])


def _factored(stream: InductionStream, asked: np.ndarray, told: np.ndarray) -> FeedForward:
    """Both factors, block by block: a ramp of 1 − #(letters that differ) is 1 at the block and 0 at all others."""
    target, slots, neurons = stream.target, stream.slots, _Neurons(stream.width)
    sides = ((0, target.questions(), asked, "asked"), (1, target.blocks(), told, "told"))
    for first, words, rows, name in sides:
        for word, row in zip(words, rows, strict=True):
            outer = {j: weight for j, weight in zip(slots[name], row, strict=True) if weight != 0}
            if outer:
                neurons.ramp(*_agreement(stream, first, word), outer)
    return neurons.network()


def _agreement(stream: InductionStream, first: int, word: Word) -> tuple[dict[int, fmpq], fmpq]:
    """1 − #(letters that differ from a word) as row and bias: a missing letter is one that no coordinate shows."""
    row, bias = dict[int, fmpq](), fmpq(1)
    for slot, letter in zip(stream.block(first, False), word, strict=True):
        if letter == BLANK:
            row |= {j: fmpq(-1) for j in slot}
        else:
            row[slot[letter]] = fmpq(1)
            bias -= 1
    return row, bias
