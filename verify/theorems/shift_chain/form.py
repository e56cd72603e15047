"""The form of a chain of shifts: what must hold of its weights before any number is computed. Everything else is refused."""

from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from constructions.network.transformer import Attention, Layer, Transformer, to_exact, zeros
from constructions.theorems.shift_chain.layout import Layout
from verify.chain.certificate import StrangeWeights
from verify.chain.rounding import Arithmetic

HEADROOM = 1 << 20
"""Values of a linear chain may grow by this factor: its layers are analysed for values of size 1."""
SLIGHTLY = 1 + arb(2) ** -10
"""A source that was rounded exceeds the value that it holds by this factor at most; checked."""


def identity(size: int) -> np.ndarray:
    """The unit matrix in rationals."""
    result = zeros(size, size)
    for i in range(size):
        result[i, i] = fmpq(1)
    return result


def fingerprint(layer: Layer) -> tuple[Any, ...]:
    """Equal for equal layers: a chain of hundreds has few different ones, and each is read once."""
    attention, ffn = layer.attention, layer.feedforward
    arrays = (attention.decay, attention.value, attention.output, ffn.inner, ffn.bias, ffn.outer)
    return (attention.rpe, attention.kind, attention.window, attention.stride, ffn.precision, *map(_contents, arrays))


def _contents(array: Any) -> tuple[Any, ...]:
    values = np.asarray(array)
    return values.shape, tuple(values.flat) if values.dtype == object else values.tobytes()


def check_embedding(network: Transformer, layout: Layout) -> None:
    """The token goes into x0 and source; its multiples may go into the other blocks, coordinate by coordinate, but not into digits."""
    d, embedding = layout.dim, to_exact(network.embedding)
    if embedding.shape != (layout.width, d) or any(b != 0 for b in to_exact(network.bias)):
        raise InputError(f"the embedding is not that of a chain of shifts for this target: {layout.width} rows without bias")
    for block in (layout.memory(0), layout.source):
        if (embedding[list(block)] != identity(d)).any():
            raise StrangeWeights("the embedding does not put the token into x0 and source: not a chain of shifts")
    if any(embedding[j, i] != 0 and j % d != i for j in range(layout.width) for i in range(d)):
        raise StrangeWeights("the embedding mixes coordinates: not a chain of shifts")
    if (embedding[layout.slots + 2 * d :] != 0).any():
        raise StrangeWeights("the embedding writes into digits: not a chain of shifts")
    if network.layers[-1].feedforward.outer.shape[0] != 1:
        raise InputError("a chain of shifts ends with a scalar read-out")


def check_layers(network: Transformer) -> None:
    """Check every different layer once."""
    for layer in {fingerprint(layer): layer for layer in network.layers}.values():
        _check_layer(layer, network.dtype)


def _check_layer(layer: Layer, dtype: str) -> None:
    """What no part of the analysis looks at later: the kind of attention, rounding, and neurons that might overflow, read or not.

    Streams of chains stay below `HEADROOM`, which is checked where they are followed.
    """
    if layer.attention.kind != "dp-free" or layer.attention.window != "infinite":
        raise InputError(f"attention is {layer.attention.kind}, {layer.attention.window}: not a chain of shifts")
    if any(p != "none" for p in layer.feedforward.precision):
        raise InputError("a chain of shifts has no rounding in its feed-forward networks")
    if dtype == "exact":
        return
    inner, bias, outer = (to_exact(a) for a in (layer.feedforward.inner, layer.feedforward.bias, layer.feedforward.outer))
    hidden = [sum((abs(w) for w in row), fmpq(0)) * HEADROOM + abs(b) for row, b in zip(inner, bias, strict=True)]
    sums = [sum((abs(a) * h for a, h in zip(row, hidden, strict=True)), fmpq(0)) for row in outer]
    if not all(arb(v) * 2 < Arithmetic(dtype).largest for v in (*hidden, *sums)):
        raise StrangeWeights(f"a neuron of this chain may overflow {dtype}")


def check_heads(attention: Attention, layout: Layout, writable: set[int]) -> None:
    """Heads read the source and write into the given rows only, without mixing coordinates."""
    value, output = to_exact(attention.value), to_exact(attention.output)
    if set(attention.rpe) != {"lin"} or attention.stride > 1:
        raise InputError("a chain of shifts has lin heads, which see every token")
    others = [j for j in range(layout.width) if j not in layout.source]
    if value.shape[1] != layout.dim or (value[:, :, list(layout.source)] != identity(layout.dim)).any() or (value[:, :, others] != 0).any():
        raise StrangeWeights("a head of a chain of shifts reads something other than the source")
    for j in range(layout.width):
        for i in range(layout.dim):
            if (output[:, j, i] != 0).any() and (j not in writable or j % layout.dim != i):
                raise StrangeWeights(f"a head writes coordinate {i} of the source into coordinate {j}, where nothing is expected")


def check_delivered(layout: Layout, delivered: set[int]) -> None:
    """No memory is left out."""
    if delivered != set(range(1, len(layout.target.lags) + 1)):
        raise StrangeWeights("a memory is never delivered: not a chain of shifts for this target")
