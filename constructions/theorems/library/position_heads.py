"""The weights of `analyzer.theorems.library.position_heads`: one softmax head per memory that finds its token by absolute positions.

Residual stream in named blocks: `x0`; the memories; for adaptive targets `lag m` of every memory m; `place`, `square`, `constant`.

    W_E, b_E       x_t into x0, 1 into `constant`
    positions      j − c into `place`, (j − c)² into `square`
    head of m      W_K = (place, square), W_Q = (2β(place − g), −β constant), where g is `lag m`, or a constant for fixed lags;
                   W_V reads x0, W_O writes m
    FFNs           adaptive: the lags of the next level, rounded; the last one is f
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flint import arb, fmpq

from analyzer.families import DEFAULT_ERROR
from analyzer.lemmas.lag_encoding import encode
from analyzer.lemmas.relu_error import Neuron
from analyzer.numbers.exact import working_precision
from analyzer.targets.adaptive import AdaptiveMemory
from analyzer.theorems.library.position_heads import (
    BITS,
    Memories,
    PositionHeads,
    adaptive_part,
    centre,
    check,
    extraction_error,
    fixed_part,
    length_of,
    memory_rounding,
    schedule_of,
    sharpness_for,
)
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, to_float, zeros
from constructions.neurons import feedforward
from constructions.neurons.lag_encoding import exact_encoding
from constructions.theorems.assembly import BOX_SHARE
from constructions.theorems.construction import Construction
from constructions.theorems.jl_4_2 import silent


@dataclass(frozen=True)
class PositionStream:
    """Coordinates of the residual stream."""

    memories: int
    dim: int
    adaptive: bool

    @classmethod
    def of(cls, target: Memories) -> "PositionStream":
        return cls(len(target.names), target.dim, adaptive_part(target) is not None)

    @property
    def tokens(self) -> int:
        """Coordinates of (x0, memories), which come first."""
        return (self.memories + 1) * self.dim

    def block(self, memory: int) -> range:
        return range((memory + 1) * self.dim, (memory + 2) * self.dim)

    def lag(self, memory: int) -> int:
        """The lag slot of a memory of an adaptive target."""
        return self.tokens + memory

    @property
    def place(self) -> int:
        return self.tokens + self.memories * self.adaptive

    @property
    def square(self) -> int:
        return self.place + 1

    @property
    def constant(self) -> int:
        return self.place + 2

    @property
    def width(self) -> int:
        return self.place + 3


def slots(target: Memories, network: Transformer | None = None) -> dict[str, range]:
    """Named blocks of the residual stream; they follow from the target."""
    stream = PositionStream.of(target)
    single = {"place": stream.place, "square": stream.square, "constant": stream.constant}
    if stream.adaptive:
        single |= {f"lag {name}": stream.lag(k) for k, name in enumerate(target.names)}
    named = {name: range(j, j + 1) for name, j in single.items()}
    return named | {"x0": range(stream.dim)} | {name: stream.block(k) for k, name in enumerate(target.names)}


def meanings(target: Memories, network: Transformer | None = None) -> dict[str, str]:
    """What the slots hold once their layer has written them."""
    told = {
        "place": "the position of the token, counted from the middle of the longest array",
        "square": "the square of the position",
        "constant": "1, which queries are made of",
        "x0": "the current token",
    }
    fixed = fixed_part(target)
    if fixed is not None:
        return told | {name: f"the token {lag} back" for name, lag in zip(fixed.names, fixed.lags, strict=True)}
    for name in target.names:
        told |= {f"lag {name}": f"how far back {name} lies", name: f"the token at the lag of {name}"}
    return told


def build(target: Memories, options: PositionHeads) -> Construction:
    """Build the network for arrays of at most `length` tokens."""
    check(target, options)
    budget = DEFAULT_ERROR if options.error is None else options.error
    sharpness = sharpness_for(target, budget, options.dtype)
    with working_precision(128):
        delivered = extraction_error(arb(sharpness), arb(2)) * (1 + BOX_SHARE) + memory_rounding(
            sharpness, target.dim, BITS.get(options.dtype)
        )
    radii = [arb(1)] * target.dim + [1 + delivered] * (len(target.names) * target.dim)
    neurons, draws = feedforward.read_out_neurons("spline", target.readout, radii, None, budget / 2, 0)
    network = _assembled(target, sharpness, length_of(target, options), neurons)
    floats = options.dtype != "exact"
    return Construction(target, options, network.map(lambda a: to_float(a, options.dtype)) if floats else network, draws)


def _assembled(target: Memories, sharpness: int, length: int, readout: list[Neuron]) -> Transformer:
    stream = PositionStream.of(target)
    embedding, bias, positions = zeros(stream.width, stream.dim), zeros(stream.width), zeros(length, stream.width)
    for i in range(stream.dim):
        embedding[i, i] = fmpq(1)
    bias[stream.constant] = fmpq(1)
    for j in range(length):
        place = fmpq(j - centre(length))
        positions[j, stream.place], positions[j, stream.square] = place, place**2
    heads = [_heads(target, stream, sharpness, group) for group in schedule_of(target)]
    last = Layer(heads[-1], _neurons(stream, {0: readout}, 1))
    adaptive = adaptive_part(target)
    if adaptive is None:
        return Transformer(embedding, bias, (last,), positions)
    writers = [_lag_writers(adaptive, stream, group) for group in schedule_of(target)]
    attending = [silent(stream.width), *heads[:-1]]
    inner = [Layer(attention, ffn) for attention, ffn in zip(attending, writers, strict=True)]
    return Transformer(embedding, bias, (*inner, last), positions)


def _heads(target: Memories, stream: PositionStream, sharpness: int, group: Sequence[int]) -> Attention:
    """One head for every memory of a layer."""
    count, dim, width, fixed = len(group), stream.dim, stream.width, fixed_part(target)
    query, key = zeros(count, 2, width), zeros(count, 2, width)
    value, output = zeros(count, dim, width), zeros(count, width, dim)
    for h, memory in enumerate(group):
        key[h, 0, stream.place] = key[h, 1, stream.square] = fmpq(1)
        query[h, 0, stream.place] = fmpq(2 * sharpness)
        query[h, 1, stream.constant] = fmpq(-sharpness)
        if fixed is None:
            query[h, 0, stream.lag(memory)] = fmpq(-2 * sharpness)
        else:
            query[h, 0, stream.constant] = fmpq(-2 * sharpness * fixed.lags[memory])
        for i in range(dim):
            value[h, i, i] = output[h, stream.block(memory)[i], i] = fmpq(1)
    return Attention(zeros(count), value, output, query, key, zeros(0, width), ("none",) * count, "dp", "finite")


def _lag_writers(target: AdaptiveMemory, stream: PositionStream, group: Sequence[int]) -> FeedForward:
    """Neurons that write the lags of a level, each rounded to a whole number."""
    encodings = {k: encode(target, k) for k in group}
    writes = {stream.lag(k): exact_encoding(found, found.values("lag")) for k, found in encodings.items()}
    precision = tuple("integer" if j in writes else "none" for j in range(stream.width))
    plain = _neurons(stream, writes, stream.width)
    return FeedForward(plain.inner, plain.bias, plain.outer, precision)


def _neurons(stream: PositionStream, writes: dict[int, list[Neuron]], outputs: int) -> FeedForward:
    """Neurons that read (x0, memories), by the coordinate that they write."""
    every = [(coordinate, neuron) for coordinate, neurons in writes.items() for neuron in neurons]
    inner, bias, outer = zeros(len(every), stream.width), zeros(len(every)), zeros(outputs, len(every))
    for n, (coordinate, neuron) in enumerate(every):
        inner[n, : stream.tokens] = neuron.row
        bias[n], outer[coordinate, n] = neuron.bias, neuron.outer
    return FeedForward(inner, bias, outer)
