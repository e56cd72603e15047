"""The weights of in-context gradient descent (statement: `analyzer.theorems.library.in_context_gd`).

Residual stream of width D = 2d + 2: the example's x, the query's x, the residual r, the prediction p.

    W_E        x, x_q and y into the first three slots: r = y before the first step
    L layers   one head of linear attention over all n = N + 1 tokens: W_Q X_t = x_t, the example's or the query's, W_K X_s = x_s, the
               example's alone, W_V X_s = r_s, and W_O adds −ηn/N times the mean to r_t and +ηn/N times it to p_t; no neurons
    last FFN   p = relu(p) − relu(−p)
"""

from typing import Any

from flint import fmpq

from analyzer.targets.tasks.in_context_gd import InContextTarget
from analyzer.theorems.library.in_context_gd import InContextDescent
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, zeros
from constructions.theorems.construction import Construction
from constructions.theorems.jl_4_2 import rounded


def slots(target: InContextTarget, network: Transformer) -> dict[str, range]:
    """Named coordinates of the residual stream: `example`, `query`, `residual`, `prediction`."""
    d = target.features
    return {"example": range(d), "query": range(d, 2 * d), "residual": range(2 * d, 2 * d + 1), "prediction": range(2 * d + 1, 2 * d + 2)}


def meanings(target: InContextTarget, network: Transformer) -> dict[str, str]:
    """What the slots hold: after layer k the weights w_k are those of k steps."""
    return {
        "example": "x of an example, 0 at the query: what tokens are compared with",
        "query": "x of the query, 0 at examples",
        "residual": "y − w_k·x after k steps",
        "prediction": "w_k·x after k steps",
    }


def build(target: InContextTarget, options: InContextDescent | None = None, **keywords: Any) -> Construction:
    """Build the network; its sizes are those of the target."""
    options = InContextDescent.of(options, keywords)
    network = assemble(target)
    return Construction(target, options, network if options.dtype == "exact" else rounded(network, options.dtype))


def assemble(target: InContextTarget) -> Transformer:
    """Exact weights."""
    d, width = target.features, 2 * target.features + 2
    embedding = zeros(width, target.dim)
    for j in range(target.dim):
        embedding[j, j] = fmpq(1)
    query, key, value, output = zeros(1, d, width), zeros(1, d, width), zeros(1, 1, width), zeros(1, width, 1)
    for i in range(d):
        query[0, i, i] = query[0, i, d + i] = key[0, i, i] = fmpq(1)
    value[0, 0, 2 * d] = fmpq(1)
    step = target.rate * target.length / target.examples
    output[0, 2 * d, 0], output[0, 2 * d + 1, 0] = -step, step
    attention = Attention(zeros(1), value, output, query, key, zeros(0, width), ("none",), "linear", "full")
    inner = zeros(2, width)
    inner[0, -1], inner[1, -1] = fmpq(1), fmpq(-1)
    nothing = FeedForward(zeros(0, width), zeros(0), zeros(width, 0))
    readout = FeedForward(inner, zeros(2), exact_array([[1, -1]]))
    layers = [Layer(attention, nothing)] * (target.steps - 1) + [Layer(attention, readout)]
    return Transformer(embedding, zeros(width), tuple(layers))
