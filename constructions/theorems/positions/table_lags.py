"""The weights of `analyzer.theorems.positions.table_lags`: heads with a bias per distance, indicators of lags, neurons that choose.

Residual stream in named blocks: `x0`; `back B`, the token B back, for every lag B ∈ K; the memories; `lag m = B`, the indicator of a lag of
a memory.

    W_E            x_t into x0, and the residual weight of a head times x_t into its block
    layer 1        head B: b at distance B, 0 elsewhere; W_V reads x0, W_O writes `back B`; its FFN the indicators of level 1
    layer 2l       no attention; the FFN writes Σ_B relu(x̂_B + 4χ_B − 2) − 2 into the memories of level l
    layer 2l + 1   no attention; the FFN writes the indicators of level l + 1, rounded; the last one is f
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from flint import arb, fmpq

from analyzer.families import DEFAULT_ERROR, Adaptive
from analyzer.lemmas.lag_encoding import encode
from analyzer.lemmas.relu_error import Neuron
from analyzer.targets.adaptive import AdaptiveMemory
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems.positions.table_heads import least_bias
from analyzer.theorems.positions.table_lags import allowed_error, check, indicator, lags_of
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, to_float, zeros
from constructions.neurons import feedforward
from constructions.neurons.lag_encoding import exact_encoding
from constructions.theorems.construction import Construction
from constructions.theorems.positions.table_heads import delivered_error, one_head_per_lag

CLEAR = fmpq(2)
"""|x̂| + what rounding adds stays below this, so that (L.2) holds; a power of 2, which every type multiplies by without rounding."""


@dataclass(frozen=True)
class Stream:
    """Coordinates of the residual stream."""

    target: AdaptiveMemory

    @cached_property
    def lags(self) -> tuple[int, ...]:
        return lags_of(self.target)

    @property
    def brought(self) -> int:
        """Coordinates of the current token and of those that the heads bring."""
        return (1 + len(self.lags)) * self.target.dim

    def back(self, lag: int) -> range:
        """The token so far back."""
        start = (1 + self.lags.index(lag)) * self.target.dim
        return range(start, start + self.target.dim)

    def memory(self, k: int) -> range:
        start = self.brought + k * self.target.dim
        return range(start, start + self.target.dim)

    @cached_property
    def indicators(self) -> dict[tuple[int, int], int]:
        """(memory, lag) → coordinate."""
        pairs = [(k, lag) for k in range(len(self.target.memories)) for lag in self.target.occurring(k)]
        start = self.brought + len(self.target.memories) * self.target.dim
        return {pair: start + n for n, pair in enumerate(pairs)}

    @property
    def width(self) -> int:
        return self.brought + len(self.target.memories) * self.target.dim + len(self.indicators)

    @cached_property
    def tokens(self) -> list[int]:
        """Where (x0, memories) are, coordinate by coordinate: what indicators and the read-out read."""
        return [*range(self.target.dim), *(j for k in range(len(self.target.memories)) for j in self.memory(k))]

    def spread(self, row: Sequence[fmpq]) -> list[fmpq]:
        """A functional of (x0, memories) as one of the stream."""
        result = [fmpq(0)] * self.width
        for j, weight in zip(self.tokens, row, strict=True):
            result[j] = weight
        return result


def slots(target: AdaptiveMemory, network: Transformer | None = None) -> dict[str, range]:
    """Named blocks of the residual stream; they follow from the target."""
    stream = Stream(target)
    named = {f"back {lag}": stream.back(lag) for lag in stream.lags}
    named |= {f"lag {target.names[k]} = {lag}": range(j, j + 1) for (k, lag), j in stream.indicators.items()}
    return {"x0": range(target.dim)} | named | {name: stream.memory(k) for k, name in enumerate(target.names)}


def meanings(target: AdaptiveMemory, network: Transformer | None = None) -> dict[str, str]:
    """What the slots hold once their layer has written them."""
    stream = Stream(target)
    told = {"x0": "the current token"} | {f"back {lag}": f"the token {lag} steps back" for lag in stream.lags}
    told |= {f"lag {target.names[k]} = {lag}": f"1 if {target.names[k]} lies {lag} steps back, else 0" for k, lag in stream.indicators}
    return told | {name: f"the token at the lag of {name}" for name in target.names}


def fixed_part(target: AdaptiveMemory) -> FixedMemory:
    """What the heads deliver: the token of every lag that occurs."""
    return FixedMemory(lags_of(target), dim=target.dim)


def build(target: AdaptiveMemory, options: Adaptive) -> Construction:
    """Build the network; half of what a token may err by is left to rounding in floats."""
    check(target, options)
    budget = DEFAULT_ERROR if options.error is None else options.error
    floats = options.dtype != "exact"
    _, error = allowed_error(target, budget)
    fixed, reach = fixed_part(target), lags_of(target)[-1] + 1
    bias = least_bias(reach, error / 2 if floats else error * (1 - 2.0**-20))
    delivered = delivered_error(fixed, reach, bias, options.dtype)
    radii = [arb(1)] * target.dim + [1 + delivered] * (len(target.memories) * target.dim)
    neurons, draws = feedforward.read_out_neurons(options.ffn, target.readout, radii, None, budget / 2, options.seed)
    network = _network(target, one_head_per_lag(fixed, reach, bias, error), neurons)
    return Construction(target, options, network.map(lambda a: to_float(a, options.dtype)) if floats else network, draws)


def _network(target: AdaptiveMemory, bringing: Transformer, readout: list[Neuron]) -> Transformer:
    """The heads of `bringing` in a wider stream, then indicators and choices level by level, then the read-out."""
    stream, schedule = Stream(target), target.schedule(deep=False)
    attention = bringing.layers[0].attention
    heads, dim = len(attention.rpe), target.dim
    embedding, value, output = zeros(stream.width, dim), zeros(heads, dim, stream.width), zeros(heads, stream.width, dim)
    embedding[: stream.brought] = bringing.embedding
    value[:, :, : stream.brought] = attention.value
    output[:, : stream.brought] = attention.output
    empty = zeros(heads, 0, stream.width)
    attending = replace(attention, value=value, output=output, query=empty, key=empty, pointer=zeros(0, stream.width))
    networks = [ffn for group in schedule for ffn in (_indicators(stream, group), _choices(stream, group))]
    networks.append(_read_out(stream, readout))
    silent = _silence(stream.width)
    layers = [Layer(silent if n else attending, ffn) for n, ffn in enumerate(networks)]
    return Transformer(embedding, zeros(stream.width), tuple(layers))


def _silence(width: int) -> Attention:
    """A head that sees its own token and says nothing."""
    nothing = zeros(1, 0, width)
    return Attention(zeros(1), zeros(1, 1, width), zeros(1, width, 1), nothing, nothing, zeros(0, width), ("table",), table=zeros(1, 1))


def _indicators(stream: Stream, group: Sequence[int]) -> FeedForward:
    """χ_{k,B} of some memories: one neuron per kink of an encoding, which all its lags share, and a constant."""
    target = stream.target
    hidden: dict[tuple[tuple[fmpq, ...], fmpq], int] = {}
    entries: list[tuple[int, int, fmpq]] = []
    for k in group:
        encoding = encode(target, k)
        for lag in target.occurring(k):
            for neuron in exact_encoding(encoding, indicator(encoding, lag)):
                place = hidden.setdefault((neuron.row, neuron.bias), len(hidden))
                entries.append((stream.indicators[k, lag], place, neuron.outer))
    inner, bias, outer = zeros(len(hidden), stream.width), zeros(len(hidden)), zeros(stream.width, len(hidden))
    for (row, offset), n in hidden.items():
        inner[n], bias[n] = stream.spread(row), offset
    for coordinate, n, weight in entries:
        outer[coordinate, n] += weight
    written = {stream.indicators[k, lag] for k in group for lag in target.occurring(k)}
    return FeedForward(inner, bias, outer, tuple("integer" if j in written else "none" for j in range(stream.width)))


def _choices(stream: Stream, group: Sequence[int]) -> FeedForward:
    """(L.2) for some memories: one neuron per lag and coordinate, and a constant that all share."""
    target, dim = stream.target, stream.target.dim
    count = 1 + sum(dim * len(target.occurring(k)) for k in group)
    inner, bias, outer = zeros(count, stream.width), zeros(count), zeros(stream.width, count)
    bias[0], n = fmpq(1), 1
    for k in group:
        for j in stream.memory(k):
            outer[j, 0] = -CLEAR
        for lag in target.occurring(k):
            for j, token in zip(stream.memory(k), stream.back(lag), strict=True):
                inner[n, token], inner[n, stream.indicators[k, lag]] = fmpq(1), 2 * CLEAR
                bias[n], outer[j, n] = -CLEAR, fmpq(1)
                n += 1
    return FeedForward(inner, bias, outer)


def _read_out(stream: Stream, neurons: list[Neuron]) -> FeedForward:
    plain = feedforward.as_network(neurons)
    inner = zeros(len(neurons), stream.width)
    inner[:, stream.tokens] = plain.inner
    return FeedForward(inner, plain.bias, plain.outer)
