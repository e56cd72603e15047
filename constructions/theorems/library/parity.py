"""The weights of parity (statement: `analyzer.theorems.library.parity`).

Slots of the residual stream: the bit, the constant 1, and from the table of positions i, (−1)^i and 1{i = 0}; then what layers write.

    clipped                                                       paper
    layer 1   linear heads: difference (k − i)/N, unit 1/N        the same
              FFN: distance |difference|                          FFN: indicator, a second difference of three ReLUs
    layer 2   FFN: indicator relu(unit − distance)
    layer 3   softmax heads: comparison d, even less odd          layer 2   the same
              FFN: shortfall relu(1 − g d)                        FFN: relu(g d + 1) − relu(g d − 1) − 1
    layer 4   FFN: relu(2 − shortfall) − 1

All weights are whole numbers, but for what the user may choose: every float type holds them exactly.
"""

from typing import Any

from flint import fmpq

from analyzer.errors import Refusal, finer
from analyzer.families import DEFAULT_ERROR
from analyzer.targets.tasks.parity import ParityTarget
from analyzer.theorems.library.parity import SHARPNESS, Parity, gain_for, holds, horizon
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, zeros
from constructions.theorems.construction import Construction
from constructions.theorems.jl_4_2 import rounded, silent

ALWAYS = ("bit", "one", "position", "sign", "start", "difference", "unit", "indicator", "comparison")
CLIPPED = (*ALWAYS, "distance", "shortfall")
MEANINGS = {
    "bit": "the token",
    "one": "the constant 1",
    "position": "i, from the table of positions",
    "sign": "1 at even positions, −1 at odd ones",
    "start": "1 at the begin token, else 0",
    "difference": "(k − i)/N: how many ones there are, less the position, over the number of tokens",
    "unit": "1/N",
    "indicator": "1/N at the position that is the number of ones, else 0",
    "comparison": "the mean of indicators over even positions less that over odd ones: its sign is the parity",
    "distance": "|k − i|/N",
    "shortfall": "0 where the number of ones is even, 2 or more where it is odd",
}


def slots(target: ParityTarget, network: Transformer) -> dict[str, range]:
    """Named coordinates of the residual stream."""
    names = CLIPPED if len(network.layers) == 4 else ALWAYS
    return {name: range(place, place + 1) for place, name in enumerate(names)}


def meanings(target: ParityTarget, network: Transformer) -> dict[str, str]:
    """What the slots hold once their layer has written them."""
    return {name: MEANINGS[name] for name in slots(target, network)}


def build(target: ParityTarget, options: Parity | None = None, **keywords: Any) -> Construction:
    """Build the network; refused beyond the horizon of its type."""
    options = Parity.of(options, keywords)
    error = DEFAULT_ERROR if options.error is None else options.error
    gain = gain_for(options.form, target.longest, options.dtype)
    if gain is None or not holds(options.form, target.longest, options.dtype, error):
        longest = horizon(options.form, options.dtype, error)
        raise Refusal(
            f"{options.dtype} holds the {options.form} form at error {error:.2g} for up to {longest} bits, not {target.longest}: "
            "its ramp has a slope of the order of their square, beside which 1 is lost in roundings",
            {"form": "clipped"},
            *finer(options.dtype),
        )
    network = assemble(options.form, target.longest + 1, SHARPNESS, fmpq(gain))
    return Construction(target, options, network if options.dtype == "exact" else rounded(network, options.dtype))


def assemble(form: str, rows: int, sharpness: fmpq, gain: fmpq) -> Transformer:
    """Exact weights with logits ±c and gain g, for arrays of at most `rows` tokens."""
    place = {name: index for index, name in enumerate(CLIPPED if form == "clipped" else ALWAYS)}
    width = len(place)
    embedding, bias, positions = zeros(width, 1), zeros(width), zeros(rows, width)
    embedding[place["bit"], 0] = bias[place["one"]] = positions[0, place["start"]] = fmpq(1)
    for i in range(rows):
        positions[i, place["position"]], positions[i, place["sign"]] = fmpq(i), fmpq(1 - 2 * (i % 2))
    parts = _Parts(place)
    counting, comparing, off = parts.counting(), parts.comparing(sharpness), silent(width)
    if form == "clipped":
        layers: tuple[Layer, ...] = (
            Layer(counting, parts.neurons("distance", ({"difference": 1}, 0, 1), ({"difference": -1}, 0, 1))),
            Layer(off, parts.neurons("indicator", ({"unit": 1, "distance": -1}, 0, 1))),
            Layer(comparing, parts.neurons("shortfall", ({"comparison": -gain}, 1, 1))),
            Layer(off, parts.neurons(None, ({}, 1, -1), ({"shortfall": -1}, 2, 1))),
        )
    else:
        bends = [({"difference": 1, "unit": shift}, 0, weight) for shift, weight in ((-1, 1), (0, -2), (1, 1))]
        ramp = [({}, 1, -1), ({"comparison": gain}, 1, 1), ({"comparison": gain}, -1, -1)]
        layers = Layer(counting, parts.neurons("indicator", *bends)), Layer(comparing, parts.neurons(None, *ramp))
    return Transformer(embedding, bias, layers, positions)


class _Parts:
    """Attention and neurons on named slots."""

    def __init__(self, place: dict[str, int]) -> None:
        self.place, self.width = place, len(place)

    def neurons(self, written: str | None, *neurons: tuple[dict[str, Any], int, int]) -> FeedForward:
        """Neurons (what they read, bias, weight) that write one slot, or the output."""
        inner = zeros(len(neurons), self.width)
        for row, (reads, _, _) in zip(inner, neurons, strict=True):
            for name, weight in reads.items():
                row[self.place[name]] = fmpq(weight)
        outer = zeros(1 if written is None else self.width, len(neurons))
        outer[0 if written is None else self.place[written]] = [fmpq(weight) for _, _, weight in neurons]
        return FeedForward(inner, exact_array([bias for _, bias, _ in neurons]), outer)

    def counting(self) -> Attention:
        """Means of i·(−1{s = 0}) + 1·x_s, which is (k − i)/N, and of 1·1{s = 0}, which is 1/N."""
        query, key, value, output = (zeros(2, 2, self.width), zeros(2, 2, self.width), zeros(2, 1, self.width), zeros(2, self.width, 1))
        at = self.place
        query[0, 0, at["position"]] = query[0, 1, at["one"]] = query[1, 0, at["one"]] = fmpq(1)
        key[0, 0, at["start"]] = fmpq(-1)
        key[0, 1, at["bit"]] = key[1, 0, at["start"]] = fmpq(1)
        value[:, 0, at["one"]] = fmpq(1)
        output[0, at["difference"], 0] = output[1, at["unit"], 0] = fmpq(1)
        return Attention(zeros(2), value, output, query, key, zeros(0, self.width), ("none", "none"), "linear", "full")

    def comparing(self, sharpness: fmpq) -> Attention:
        """Means of the indicator with logits c(−1)^i and −c(−1)^i; the second is taken from the first."""
        query, key, value, output = (zeros(2, 1, self.width), zeros(2, 1, self.width), zeros(2, 1, self.width), zeros(2, self.width, 1))
        at = self.place
        query[:, 0, at["one"]] = sharpness
        key[0, 0, at["sign"]], key[1, 0, at["sign"]] = fmpq(1), fmpq(-1)
        value[:, 0, at["indicator"]] = fmpq(1)
        output[0, at["comparison"], 0], output[1, at["comparison"], 0] = fmpq(1), fmpq(-1)
        return Attention(zeros(2), value, output, query, key, zeros(0, self.width), ("none", "none"), "dp", "full")
