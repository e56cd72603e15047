"""What the layers of a network read and write, in float64: inputs of layers that score pairs of tokens, the stream after every attention.

Float weights are taken as the float64 numbers they are; exact ones are rounded. Exact networks without a normaliser have weights that
cancel far below float64's rounding: their residual stream comes from the executor that first fuses heads into kernels in ball arithmetic.
"""

from typing import Any

import jax.numpy as jnp
import numpy as np

from analyzer.errors import InputError, Refusal
from constructions.fused import convolved, stream_table
from constructions.lagged import ExactRunner
from constructions.precision import with_x64
from constructions.reference import layer_inputs, stream
from constructions.scores import Scores, coupled_places
from constructions.transformer import Transformer, to_float

MAX_WEIGHTS = 1 << 24
"""Attention weights at a time, heads × N² × sequences: 128 MB of float64, which the reference pass holds several times."""
MAX_WORK = 1 << 32
"""Attention weights in all, over layers and sequences: some minutes on one core."""


def coupled_layers(network: Transformer, tokens: np.ndarray, chosen: int | None = None) -> list[tuple[int, Scores, np.ndarray]]:
    """Index, scores and inputs (batch, N, D) of every layer that couples tokens, or of the chosen one; tokens (N, d) or (batch, N, d)."""
    if tokens.ndim not in (2, 3) or tokens.shape[-1] != network.dim or tokens.size == 0:
        raise InputError(f"tokens have shape {tokens.shape}; expected (N, {network.dim}) or (batch, N, {network.dim}), not empty")
    kinds = ["switched off" if 0 in layer.attention.query.shape else layer.attention.kind for layer in network.layers]
    coupled = coupled_places(kinds, chosen)
    inputs = _inputs(network, np.asarray(tokens, dtype=np.float64).reshape(-1, *tokens.shape[-2:]), coupled[-1] + 1)
    return [(i, _scores(network, i), inputs[i]) for i in coupled]


def _scores(network: Transformer, index: int) -> Scores:
    attention = network.layers[index].attention
    query, key = (_floats(weights) for weights in (attention.query, attention.key))
    return Scores(f"layers.{index}.attention", query, key, np.zeros(query.shape[:2]), np.zeros(key.shape[:2]))


def as_float64(network: Transformer) -> Transformer:
    """The network with float64 weights: float ones are the numbers they are, exact ones are rounded."""
    return network.map(_floats)


def _floats(weights: Any) -> np.ndarray:
    array = np.asarray(weights)
    result = to_float(array, "float64") if array.dtype == object else array.astype(np.float64)
    if not np.isfinite(result).all():
        raise InputError("the exact weights do not fit into float64")
    return result


def _inputs(network: Transformer, tokens: np.ndarray, count: int) -> list[np.ndarray]:
    """The residual stream that the first `count` layers read, (batch, N, D) each."""
    if network.dtype == "exact" and count > 1 and any(layer.attention.kind in ("nf", "tmx") for layer in network.layers):
        first = tokens @ _floats(network.embedding).T + _floats(network.bias)
        return [first, *ExactRunner(network).stream(tokens)[: count - 1]]
    squares = max(len(layer.attention.rpe) for layer in network.layers) * tokens.shape[1] ** 2
    if count > 1 and (squares > MAX_WEIGHTS or squares * len(tokens) * (count - 1) > MAX_WORK):
        raise InputError(
            f"{len(tokens)} sequences of {tokens.shape[1]} tokens are too long for the reference pass; give fewer or shorter ones"
        )
    floats = as_float64(network)
    together = max(1, MAX_WEIGHTS // squares)
    parts = [layer_inputs(floats, tokens[start : start + together], count) for start in range(0, len(tokens), together)]
    return [np.concatenate(layer) for layer in zip(*parts, strict=True)]


def is_fused(network: Transformer) -> bool:
    """Whether the network is exact and its stream is a convolution, run through kernels from ball arithmetic."""
    return network.dtype == "exact" and all(
        layer.attention.kind == "dp-free" and layer.attention.window == "infinite" for layer in network.layers
    )


def batches(network: Transformer, tokens: np.ndarray) -> list[np.ndarray]:
    """Tokens (batch, N, d) in parts that the reference pass can hold; refused if there is too much to do."""
    squares = max(len(layer.attention.rpe) for layer in network.layers) * tokens.shape[1] ** 2
    if squares > MAX_WEIGHTS or squares * len(tokens) * len(network.layers) > MAX_WORK:
        raise Refusal(
            f"{len(tokens)} sequences of {tokens.shape[1]} tokens are too many for the reference pass; give fewer or shorter ones"
        )
    together = max(1, MAX_WEIGHTS // squares)
    return [tokens[start : start + together] for start in range(0, len(tokens), together)]


def attended(network: Transformer, tokens: np.ndarray, first: int) -> list[np.ndarray]:
    """The residual stream (batch, N − first, D) after the attention of every layer, for tokens (batch, N, d)."""
    if is_fused(network):
        parts = [Transformer(network.embedding, network.bias, network.layers[:count]) for count in range(1, len(network.layers) + 1)]
        return [convolved(*stream_table(part, tokens.shape[-2]), tokens)[:, first:] for part in parts]
    if network.dtype == "exact" and any(layer.attention.kind in ("nf", "tmx") for layer in network.layers):
        return [x[:, first:] for x in ExactRunner(network).attended(tokens)]
    floats = as_float64(network)
    with with_x64("float64"):
        seen = [[np.asarray(x[:, first:]) for x in stream(floats, jnp.asarray(part))[:-1]] for part in batches(network, tokens)]
    return [np.concatenate(layer) for layer in zip(*seen, strict=True)]
