"""The weights of Theorem 4.1 of Jiang & Li on finite alphabets (statement: `analyzer.theorems.jl_4_1`).

Residual stream of width D = 1 + 2m_v: the token's number z, the values, the answers.

    W_E, b_E  z = wP·(s/P) + a, w a power of 2 above max a − min a (z = a where positions do not matter); values start at the first token's
    layer 1   attention off; the FFN is one row of kinks relu(z − z_j) for all values: c(s, a), or one-hot tents
    layer 2   one head over all tokens without queries and keys: every weight is 1/N; W_V picks the values, W_O writes the answers
    last FFN  relu(1), then relu(N·(code's row)·answers − k_i); it reads the answers only, so the residual plays no part
"""

from typing import Any

import numpy as np
from flint import fmpq

from analyzer.families import Representation
from analyzer.lemmas.sequence_codes import Code, code_of
from analyzer.numbers.piecewise import slope_changes
from analyzer.targets.sequence import SequenceTarget
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, zeros
from constructions.theorems.construction import Construction
from constructions.theorems.jl_4_2 import rounded, silent


def slots(target: SequenceTarget, network: Transformer) -> dict[str, range]:
    """Named coordinates of the residual stream: `token`, `values`, `answers`."""
    values = (int(network.embedding.shape[0]) - 1) // 2
    return {"token": range(1), "values": range(1, 1 + values), "answers": range(1 + values, 1 + 2 * values)}


def meanings(target: SequenceTarget, network: Transformer) -> dict[str, str]:
    """What the slots hold once their layer has written them."""
    return {
        "token": "one number for letter and position",
        "values": "the code of that number",
        "answers": "the mean code of all tokens, which tells sequences apart",
    }


def build(target: SequenceTarget, options: Representation | None = None, **keywords: Any) -> Construction:
    """Build the network; its sizes follow from the target."""
    options = Representation.of(options, keywords)
    network = assemble(code_of(target), options.code)
    return Construction(target, options, network if options.dtype == "exact" else rounded(network, options.dtype))


def step_of(target: SequenceTarget) -> int:
    """w: the least power of 2 above the spread of the letters, 1 at the least."""
    spread, step = target.symbols[-1] - target.symbols[0], 1
    while step <= spread:
        step *= 2
    return step


def points(code: Code) -> list[tuple[fmpq, int]]:
    """(z, c(s, a)) for every token, increasing."""
    letters = code.target.symbols
    if not code.positional:
        return [(letter, weight) for letter, weight in zip(letters, code.weights[0], strict=True)]
    step = step_of(code.target)
    return [(letter + step * s, row[i]) for s, row in enumerate(code.weights, start=1) for i, letter in enumerate(letters)]


def assemble(code: Code, values: str) -> Transformer:
    """Exact weights for one of the value codes."""
    tokens = points(code)
    places, numbers = [z for z, _ in tokens], [fmpq(c) for _, c in tokens]
    if values == "scalar":
        columns, readers = [numbers], [fmpq(1)]
    else:
        told = [j for j, number in enumerate(numbers) if number != 0]  # the letter 0 is where all coordinates are 0
        columns, readers = [[fmpq(int(i == j)) for i in range(len(tokens))] for j in told], [numbers[j] for j in told]
    count = len(columns)
    width = 1 + 2 * count
    embedding, bias = zeros(width, 2), zeros(width)
    embedding[0, 1] = fmpq(1)
    if code.positional:
        embedding[0, 0] = step_of(code.target) / code.target.positions[0]
    bends = [slope_changes(places, column) for column in columns]
    used = [j for j in range(len(places) - 1) if any(row[j] != 0 for row in bends)]
    inner, outer = zeros(len(used), width), zeros(width, len(used))
    inner[:, 0] = fmpq(1)
    for k, (column, row) in enumerate(zip(columns, bends, strict=True)):
        bias[1 + k] = column[0]
        outer[1 + k] = [row[j] for j in used]
    first = Layer(silent(width), FeedForward(inner, exact_array([-places[j] for j in used]), outer))
    value, output = zeros(1, count, width), zeros(1, width, count)
    for k in range(count):
        value[0, k, 1 + k] = output[0, 1 + count + k, k] = fmpq(1)
    nothing = zeros(1, 0, width)
    attention = Attention(zeros(1), value, output, nothing, nothing, zeros(0, width), ("none",), "dp", "full")
    return Transformer(embedding, bias, (first, Layer(attention, _table(code, readers, width))))


def _table(code: Code, readers: list[fmpq], width: int) -> FeedForward:
    """F(k_0) relu(1) + Σ_i q_i relu(N Σ_r reader_r answer_r − k_i), without neurons of no weight."""
    knots = list(code.table)
    kept = [i for i, change in enumerate(code.changes) if change != 0]
    inner = zeros(len(kept) + 1, width)
    inner[1:, width - len(readers) :] = np.array([code.target.length * reader for reader in readers], dtype=object)
    bias = exact_array([fmpq(1), *(fmpq(-knots[i]) for i in kept)])
    return FeedForward(inner, bias, exact_array([[code.table[knots[0]], *(code.changes[i] for i in kept)]]))
