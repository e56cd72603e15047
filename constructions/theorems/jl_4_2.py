"""The weights of Theorem 4.2 of Jiang & Li (statement: `analyzer.theorems.jl_4_2`).

Residual stream of width D = 2m_h + 3: the token, q_1..q_m, k_1..k_m, the value, the answer.

    W_E, b_E  x_t into the first slot; every other slot starts at the value of its spline at 0
    layer 1   attention off (no values); the FFN is one row of kinks relu(x − u_i), shared by all splines: it writes
              q_k = √σ_k φ_k, k_k = √σ_k ψ_k and f
    layer 2   one head over all tokens of the array: W_Q picks q, W_K picks k, W_V the value, W_O writes the answer slot
    last FFN  the spline of F on the hull of the values; it reads the answer slot only, so the residual plays no part

Knots are dyadic, so that subtracting them is exact in the weights of every type. In exact networks splines pass exactly through the
computed values of the singular functions.
"""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
from flint import fmpq

from analyzer.errors import Refusal, finer
from analyzer.families import DEFAULT_ERROR, Coupling
from analyzer.lemmas.low_rank import factors, plan_readout, plan_sizes, uniform_knots
from analyzer.numbers.exact import rational, working_precision
from analyzer.numbers.piecewise import slope_changes
from analyzer.targets.coupling import BITS, CouplingTarget
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, to_float, zeros
from constructions.theorems.construction import Construction


def slots(target: CouplingTarget, network: Transformer) -> dict[str, range]:
    """Named coordinates of the residual stream: `token`, `q1` … , `k1` … , `value`, `answer`; the rank follows from the width."""
    rank = (int(network.embedding.shape[0]) - 3) // 2
    names = ["token", *(f"q{k}" for k in range(1, rank + 1)), *(f"k{k}" for k in range(1, rank + 1)), "value", "answer"]
    return {name: range(j, j + 1) for j, name in enumerate(names)}


def meanings(target: CouplingTarget, network: Transformer) -> dict[str, str]:
    """What the slots hold once their layer has written them."""
    told = {"token": "the token", "value": "f of the token", "answer": "the mean of f under the attention"}
    told |= {name: f"the token's singular function {name[1:]} as a query" for name in slots(target, network) if name[0] == "q"}
    return told | {name: f"the token's singular function {name[1:]} as a key" for name in slots(target, network) if name[0] == "k"}


def build(target: CouplingTarget, options: Coupling | None = None, **keywords: Any) -> Construction:
    """Build the network; sizes that are not given follow from the error (default: 0.01)."""
    options = Coupling.of(options, keywords)
    wanted = DEFAULT_ERROR if options.error is None else options.error
    rank, knots = plan_sizes(target, options.pod, options.rank, options.knots, wanted, options.dtype)
    us = uniform_knots(knots)
    found = factors(target.coupling, us, options.pod)
    network = assemble(target, found.left[:, :rank], found.right[:, :rank], us, rank, wanted)
    built = replace(options, rank=rank, knots=knots)
    return Construction(target, built, network if options.dtype == "exact" else rounded(network, options.dtype))


def rounded(network: Transformer, dtype: str) -> Transformer:
    """The network in a float type; refused if a weight overflows it."""
    result = network.map(lambda weights: to_float(weights, dtype))
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result)):
        raise Refusal(f"a weight exceeds the largest {dtype}", *finer(dtype))
    return result


def assemble(target: CouplingTarget, left: np.ndarray, right: np.ndarray, us: tuple[fmpq, ...], rank: int, error: float) -> Transformer:
    """Exact weights from the values of all splines at the knots; missing factors (m_h beyond the rank) are zero."""
    kept, pieces = left.shape[1], len(us) - 1
    width = 2 * rank + 3
    value_slot, answer = width - 2, width - 1
    with working_precision(BITS):
        columns = {1 + k: [rational(float(v)) for v in left[:, k]] for k in range(kept)}
        columns |= {1 + rank + k: [rational(float(v)) for v in right[:, k]] for k in range(kept)}
        columns[value_slot] = [rational(float(target.f.at(x))) for x in us]
    embedding, bias, outer = zeros(width, 1), zeros(width), zeros(width, pieces)
    embedding[0, 0] = fmpq(1)
    for slot, values in columns.items():
        bias[slot] = values[0]
        outer[slot] = slope_changes(us, values)
    inner = zeros(pieces, width)
    inner[:, 0] = fmpq(1)
    first = Layer(silent(width), FeedForward(inner, exact_array([-x for x in us[:-1]]), outer))
    query, key, value, output = zeros(1, rank, width), zeros(1, rank, width), zeros(1, 1, width), zeros(1, width, 1)
    for k in range(rank):
        query[0, k, 1 + k] = key[0, k, 1 + rank + k] = fmpq(1)
    value[0, 0, value_slot] = output[0, answer, 0] = fmpq(1)
    attention = Attention(zeros(1), value, output, query, key, zeros(0, width), ("none",), "dp", "full")
    low, high = min(columns[value_slot]), max(columns[value_slot])
    readout = spline_readout(target, plan_readout(target, low, high, error), width, answer)
    return Transformer(embedding, bias, (first, Layer(attention, readout)))


def silent(width: int) -> Attention:
    """A head without values: attention that is off."""
    return Attention(
        zeros(1), zeros(1, 0, width), zeros(1, width, 0), zeros(1, 0, width), zeros(1, 0, width), zeros(0, width), ("none",), "dp", "full"
    )


def spline_readout(target: CouplingTarget, ys: tuple[fmpq, ...], width: int, answer: int) -> FeedForward:
    """F̂(y) = F(y_0) relu(1) + Σ_i c_i relu(y − y_i), on the answer slot."""
    with working_precision(BITS):
        values = [rational(float(target.F.at(y))) for y in ys]
    changes = [] if ys[0] == ys[-1] else slope_changes(ys, values)
    inner = zeros(len(changes) + 1, width)
    inner[1:, answer] = fmpq(1)
    bias = exact_array([fmpq(1), *(-y for y in ys[: len(changes)])])
    return FeedForward(inner, bias, exact_array([[values[0], *changes]]))
