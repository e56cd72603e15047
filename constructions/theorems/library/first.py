"""The weights of the first bit (statement: `analyzer.theorems.library.first`).

Slots of the residual stream: the bit, the constant 1, and from the table of positions 1{i = 0}; then what layers write.

    layer 1   one softmax head: query β, key 1{s = 0}, value the bit: mean
              FFN: shortfall relu(3/2 − 2 mean)
    layer 2   FFN: relu(1 − shortfall)
"""

from typing import Any

import numpy as np
from flint import fmpq

from analyzer.errors import Refusal, finer
from analyzer.numbers.exact import nearest, rational
from analyzer.targets.tasks.first import FirstTarget
from analyzer.theorems.library.first import First, horizon, least_logit, reaches
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, zeros
from constructions.theorems.construction import Construction
from constructions.theorems.jl_4_2 import rounded, silent

MEANINGS = {
    "bit": "the token",
    "one": "the constant 1",
    "start": "1 at the first token, else 0",
    "mean": "the mean of the bits in which the first one weighs most",
    "shortfall": "0 where the first bit is 1, else 1 or more",
}
BIT, ONE, START, MEAN, SHORTFALL = range(5)


def slots(target: FirstTarget, network: Transformer) -> dict[str, range]:
    """Named coordinates of the residual stream."""
    return {name: range(place, place + 1) for place, name in enumerate(MEANINGS)}


def meanings(target: FirstTarget, network: Transformer) -> dict[str, str]:
    """What the slots hold once their layer has written them."""
    return MEANINGS


def build(target: FirstTarget, options: First | None = None, **keywords: Any) -> Construction:
    """Build the network; refused beyond the horizon of its logit."""
    options = First.of(options, keywords)
    if options.beta is None:
        logit = least_logit(target.longest, options.dtype)
        assert logit is not None  # tables end far before the types do
    else:
        logit = rational(options.beta if options.dtype == "exact" else float(np.dtype(options.dtype).type(options.beta)))
        if not reaches(target.longest, logit, options.dtype):
            raise Refusal(
                f"a logit of {nearest(logit):.4g} holds sequences of up to {horizon(logit, options.dtype)} bits, about e^beta/3: "
                f"{target.longest} were asked for, of which all but the first then weigh more than a quarter",
                {"beta": None},
                *(finer(options.dtype) if reaches(target.longest, logit, "exact") else ()),
            )
    network = assemble(target.longest, logit)
    return Construction(target, options, network if options.dtype == "exact" else rounded(network, options.dtype))


def assemble(rows: int, logit: fmpq) -> Transformer:
    """Exact weights with the logit β, for arrays of at most `rows` tokens."""
    width = len(MEANINGS)
    embedding, bias, positions = zeros(width, 1), zeros(width), zeros(rows, width)
    embedding[BIT, 0] = bias[ONE] = positions[0, START] = fmpq(1)
    query, key, value, output = zeros(1, 1, width), zeros(1, 1, width), zeros(1, 1, width), zeros(1, width, 1)
    query[0, 0, ONE], key[0, 0, START], value[0, 0, BIT], output[0, MEAN, 0] = logit, fmpq(1), fmpq(1), fmpq(1)
    looking = Attention(zeros(1), value, output, query, key, zeros(0, width), ("none",), "dp", "full")
    falling, rising, written = zeros(1, width), zeros(1, width), zeros(width, 1)
    falling[0, MEAN], rising[0, SHORTFALL], written[SHORTFALL, 0] = fmpq(-2), fmpq(-1), fmpq(1)
    first = Layer(looking, FeedForward(falling, exact_array([fmpq(3, 2)]), written))
    return Transformer(embedding, bias, (first, Layer(silent(width), FeedForward(rising, exact_array([1]), exact_array([[1]])))), positions)
