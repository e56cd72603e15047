"""JAX: a serialized program (`jax.export`) with the weights inside, for any batch of sequences of one length.

Float networks are exported as the operations of the fast pass itself, the one that certificates speak of, in their own type; exact ones as
their kernels, rounded once from balls, or as their weights in float64 (`constructions.exports.forms`). Programs are compiled for the
machine that runs them, which may order sums in its own way: not certified.

    exported = jax.export.deserialize(open(file, "rb").read())
    with jax.enable_x64(True):                      # for programs in float64
        outputs = exported.call(tokens)             # tokens (batch, N, d)
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import export

from analyzer.errors import InputError
from constructions.exports.agreement import Prepared, prepared, sequences
from constructions.exports.forms import PortableNetwork
from constructions.exports.plain_rounding import tolerance
from constructions.exports.portable import numpy_model
from constructions.files.places import check_place, write_file
from constructions.network.precision import with_x64
from constructions.network.transformer import FeedForward, Transformer
from constructions.run import fast
from constructions.run.fused import convolve
from constructions.run.reference import as_outputs, feed_forward, run_layers
from constructions.run.stream import as_float64

Program = Callable[[jax.Array], jax.Array]
MAX_LENGTH = 1 << 14


def write(
    network: Transformer,
    slots: Mapping[str, Sequence[int]],
    place: Path,
    *,
    overwrite: bool = False,
    tokens: np.ndarray | None = None,
    length: int | None = None,
) -> dict[str, object]:
    """Write the program for sequences of this length, that of the tokens if none is given; what was measured and derived as plain data."""
    if find_spec("flatbuffers") is None:
        raise InputError("programs of jax.export are stored with flatbuffers: pip install 'lemmaformer[jax]'")
    check_place(place, overwrite)
    given = sequences(network) if tokens is None else tokens
    count = given.shape[1] if length is None else length
    if not 1 <= count <= MAX_LENGTH:
        raise InputError(f"length is {count}; it must be from 1 to {MAX_LENGTH}")
    if network.longest is not None and count > network.longest:
        raise InputError(f"length is {count}; this network has positions for {network.longest} tokens")
    full = any(layer.attention.window == "full" for layer in network.layers)
    ready = _ready(network, slots, np.take(given, range(count), axis=1, mode="wrap") if full else given[:, :count])
    if ready.network.longest is not None and count > ready.network.longest:
        raise InputError(f"length is {count}; these kernels are kept for {ready.network.longest} tokens")
    dtype = "float64" if network.dtype == "exact" else network.dtype
    with with_x64(dtype):
        (batch,) = export.symbolic_shape("batch")
        shape = jax.ShapeDtypeStruct((batch, count, network.dim), dtype)
        content = bytes(export.export(jax.jit(jax.vmap(_program(network, ready.network, count))))(shape).serialize())
        used = ready.tokens.shape[1]
        padded = np.pad(ready.tokens, ((0, 0), (0, count - used), (0, 0)))
        outputs = np.asarray(export.deserialize(bytearray(content)).call(jnp.asarray(padded, dtype)))[:, :used]
    found = ready.compared(outputs)
    write_file(place, content, overwrite)
    return {
        "format": "jax",
        "place": str(place),
        "form": ready.network.form,
        "dtype": dtype,
        "shape": ["batch", count, network.dim],
        **found,
    }


def _ready(network: Transformer, slots: Mapping[str, Sequence[int]], tokens: np.ndarray) -> Prepared:
    """The exported form, with the tolerance of the fast pass where that is what runs."""
    ready = prepared(network, slots, tokens)
    if ready.network.form != "heads":
        return ready
    return Prepared(ready.network, tokens, ready.outputs, tolerance(network, ready.network, tokens, fast=_floats(network)))


def _floats(network: Transformer) -> Transformer:
    return as_float64(network) if network.dtype == "exact" else network


def _program(network: Transformer, exported: PortableNetwork, length: int) -> Program:
    """Tokens (N, d) → outputs (N,) or (N, c)."""
    if exported.form == "heads":
        floats = _floats(network)
        constants = fast.network_constants(floats, length)

        def by_heads(tokens: jax.Array) -> jax.Array:
            return run_layers(floats, tokens, lambda index, layer, *state: fast.step(layer, constants[index], *state))

        return by_heads
    return _by_kernels(exported, length) if exported.form == "kernels" else _by_lags(exported, length)


def _neurons(exported: PortableNetwork, index: int) -> FeedForward:
    mlp = numpy_model.part_of(exported.arrays, f"blocks.{index}.mlp")
    return FeedForward(mlp["W_in"].T, mlp["b_in"], mlp["W_out"].T, tuple(exported.layers[index]["precision"]))


def _size(length: int, kernel: np.ndarray) -> int:
    return 1 << (length + kernel.shape[-1] - 1).bit_length()


def _by_kernels(exported: PortableNetwork, length: int) -> Program:
    last = len(exported.layers) - 1
    attn, readout = numpy_model.part_of(exported.arrays, f"blocks.{last}.attn"), _neurons(exported, last)

    def by_kernels(tokens: jax.Array) -> jax.Array:
        stream = convolve(attn["kernel"], attn["offset"], tokens, _size(length, attn["kernel"]))
        return jnp.asarray(as_outputs(feed_forward(readout, stream)))

    return by_kernels


def _by_lags(exported: PortableNetwork, length: int) -> Program:
    def attended(words: Mapping[str, Any], attn: Mapping[str, np.ndarray], x: jax.Array) -> jax.Array:
        change = jnp.zeros_like(x)
        for number, group in enumerate(words["groups"]):
            kernels, held = attn[f"lags.{number}"], x[..., group["slot"]]
            lag = jnp.round(jnp.exp(jnp.minimum(held, 40)) if group["logarithm"] else held)
            place = jnp.clip(lag - group["least"], 0, len(kernels) - 1)
            for n, kernel in enumerate(kernels):
                found = convolve(kernel, np.zeros(len(kernel)), x[..., group["columns"]], _size(length, kernel))
                change = change.at[..., np.array(group["rows"])].add(jnp.where((place == n)[..., None], found, 0))
        return change

    def by_lags(tokens: jax.Array) -> jax.Array:
        x = tokens @ exported.arrays["embed.W_E"] + exported.arrays["embed.b_E"]
        for index, words in enumerate(exported.layers):
            u = x + attended(words, numpy_model.part_of(exported.arrays, f"blocks.{index}.attn"), x)
            change = feed_forward(_neurons(exported, index), u)
            x = change if index == len(exported.layers) - 1 else u + change
        return jnp.asarray(as_outputs(x))

    return by_lags
