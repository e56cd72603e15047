"""What the layers of a network read and write, in float64: inputs of layers that score pairs of tokens, the stream after every attention
under the names of its slots, and the attention weights.

Float weights are taken as the float64 numbers they are; exact ones are rounded. Exact networks without a normaliser have weights that
cancel far below float64's rounding: their residual stream comes from the executor that first fuses heads into kernels in ball arithmetic.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from analyzer.errors import InputError, Refusal
from constructions.files.scores import Scores, coupled_places
from constructions.network.precision import with_x64
from constructions.network.transformer import Attention, Transformer, check_tokens, to_float
from constructions.run.execute import run
from constructions.run.fused import convolved, stream_table
from constructions.run.lagged import ExactRunner, lagged_layers
from constructions.run.reference import layer_inputs, pattern, patterns_of, stream

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
    return (
        network.dtype == "exact"
        and network.positions is None
        and all(layer.attention.kind == "dp-free" and layer.attention.window == "infinite" for layer in network.layers)
    )


def batches(network: Transformer, tokens: np.ndarray) -> list[np.ndarray]:
    """Tokens (batch, N, d) in parts that the reference pass can hold; refused if there is too much to do."""
    squares = max(len(layer.attention.rpe) for layer in network.layers) * tokens.shape[1] ** 2
    if squares > MAX_WEIGHTS or squares * len(tokens) * len(network.layers) > MAX_WORK:
        raise Refusal(
            f"{len(tokens)} sequences of {tokens.shape[1]} tokens are too many for the reference pass; give fewer or shorter ones"
        )
    parts = -(-len(tokens) // max(1, MAX_WEIGHTS // squares))
    together = max(1, -(-len(tokens) // max(1, parts)))  # as even as can be: parts of one size share a program
    return [tokens[start : start + together] for start in range(0, len(tokens), together)]


def attended(network: Transformer, tokens: np.ndarray, first: int) -> list[np.ndarray]:
    """The residual stream (batch, N − first, D) after the attention of every layer, for tokens (batch, N, d)."""
    if is_fused(network):
        parts = [network.first(count) for count in range(1, len(network.layers) + 1)]
        return [convolved(*stream_table(part, tokens.shape[-2]), tokens)[:, first:] for part in parts]
    if network.dtype == "exact" and any(layer.attention.kind in ("nf", "tmx") for layer in network.layers):
        return [x[:, first:] for x in ExactRunner(network).attended(tokens)]
    floats = as_float64(network)
    with with_x64("float64"):
        seen = [[np.asarray(x[:, first:]) for x in stream(floats, jnp.asarray(part))[:-1]] for part in batches(network, tokens)]
    return [np.concatenate(layer) for layer in zip(*seen, strict=True)]


Slots = Mapping[str, Sequence[int]]
"""Names of blocks of the residual stream and their coordinates; every construction has a function `slots` that gives them."""


def plain_slots(network: Transformer) -> dict[str, range]:
    """r0, r1, …: the coordinates of a stream that nobody has named, as in trained and imported networks."""
    return {f"r{j}": range(j, j + 1) for j in range(int(network.embedding.shape[0]))}


def trace(network: Transformer, tokens: Any, slots: Slots) -> dict[str, dict[str, np.ndarray]]:
    """What the slots hold after every attention, for tokens (…, N, d): "layer 1", "layer 2", … → slot → (…, N), or (…, N, d) for slots of
    d > 1 coordinates; and "output" → "y" → (…, N), or (…, N, c) if there are several, the
    outputs that certificates speak of."""
    batch, flat = _sequences(network, tokens)
    width = int(network.embedding.shape[0])
    for name, coordinates in slots.items():
        if not coordinates or not all(0 <= j < width for j in coordinates):
            raise InputError(f"the slot {name[:40]!r} has coordinates {list(coordinates)[:4]}; the stream has those from 0 to {width - 1}")
    result: dict[str, dict[str, np.ndarray]] = {}
    for number, held in enumerate(attended(network, flat.astype(np.float64), 0), start=1):
        streams = held.reshape(*batch, -1, width)
        result[f"layer {number}"] = {name: _taken(streams, list(coordinates)) for name, coordinates in slots.items()}
    outputs = run(network, flat)
    return {**result, "output": {"y": outputs.reshape(*batch, *outputs.shape[1:])}}


def _sequences(network: Transformer, tokens: Any) -> tuple[tuple[int, ...], np.ndarray]:
    """The shape before (N, d), and the tokens as (sequences, N, d), checked."""
    given = np.asarray(tokens)
    whole = given.ndim < 2 or given.size == 0
    return given.shape[:-2], check_tokens(network, given if whole else given.reshape(-1, *given.shape[-2:]))


def _taken(stream: np.ndarray, coordinates: list[int]) -> np.ndarray:
    return stream[..., coordinates[0]] if len(coordinates) == 1 else stream[..., coordinates]


class Pattern(NamedTuple):
    """Attention weights of one layer: of query t on token s, and on the whole constant past before the array.

    For softmax weights[…, h, t, :].sum() + past[…, h, t] is 1, or 0 where a head sees nothing (a log head in a finite window at its first
    token). Other kinds are not normalised.
    """

    weights: np.ndarray  # (…, H, N, N)
    past: np.ndarray  # (…, H, N)


MAX_PATTERNS = 1 << 25
"""Attention weights that `patterns` returns, in all: 256 MB."""


def patterns(network: Transformer, tokens: Any) -> list[Pattern]:
    """The attention weights of every layer for tokens (…, N, d), normalised as the layer's kind says.

    Layers whose weights read positions only return the same ones for every sequence, as a read-only view.
    """
    batch, flat = _sequences(network, tokens)
    length = flat.shape[1]
    heads = sum(len(layer.attention.rpe) for layer in network.layers)
    if heads * len(flat) * length**2 > MAX_PATTERNS:
        raise Refusal(
            f"{heads} heads on {len(flat)} sequences of {length} tokens have more than {MAX_PATTERNS} attention weights; "
            "give fewer or shorter sequences"
        )
    found = _patterns(network, flat.astype(np.float64))
    return [Pattern(_spread(weights, 3, batch), _spread(past, 2, batch)) for weights, past in found]


def _spread(part: np.ndarray, axes: int, batch: tuple[int, ...]) -> np.ndarray:
    """The same for every sequence, if the array has only its own axes."""
    return np.broadcast_to(part, batch + part.shape) if part.ndim == axes else part.reshape(batch + part.shape[1:])


def _patterns(network: Transformer, tokens: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """From the exact stream where exact weights may cancel in float64; dp-free layers do not read the stream at all.

    Keys of layers with lag slots read only what is the same at every position: any token's serve for the past.
    """
    if is_fused(network):
        inputs = [np.zeros((tokens.shape[1], network.embedding.shape[0]))] * len(network.layers)
    elif network.dtype == "exact" and any(layer.attention.kind in ("nf", "tmx") for layer in network.layers):
        lagged_layers(network)  # refuses keys that read anything else
        inputs = [np.nan_to_num(x) for x in _inputs(network, tokens, len(network.layers))]
    else:
        return patterns_of(as_float64(network), tokens)
    scoring = [_without_values(layer.attention) for layer in network.layers]
    with with_x64("float64"):
        pasts = [x.reshape(-1, x.shape[-1])[0] for x in inputs]
        return [pattern(a, jnp.asarray(x), jnp.asarray(past)) for a, x, past in zip(scoring, inputs, pasts, strict=True)]


def _without_values(attention: Attention) -> Attention:
    """An exact layer's scores in float64; its values may be out of range there."""
    heads, _, width = attention.value.shape
    return replace(
        attention,
        decay=_floats(attention.decay),
        value=np.zeros((heads, 0, width)),
        output=np.zeros((heads, width, 0)),
        query=_floats(attention.query),
        key=_floats(attention.key),
        pointer=_floats(attention.pointer),
        table=None if attention.table is None else _floats(attention.table),
        rate=None if attention.rate is None else _floats(attention.rate),
    )
