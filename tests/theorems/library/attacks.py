"""Random changes of stored networks, small and rude: what a certificate says of them must still be true."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from analyzer.errors import InputError, Refusal
from constructions.files.bundle import arrays_of, network_of, structure_of
from constructions.network.form import check_form
from constructions.network.transformer import Transformer
from verify.chain.certificate import Certificate

SIZES = (1e-7, 1e-4, 1e-2, 0.5)


def mutated(network: Transformer, rng: np.random.Generator) -> Transformer:
    """One to three changes of a float network: weights, rows, neurons, what attention that is off holds, scales of queries and keys."""
    for _ in range(rng.integers(1, 4)):
        network = _CHANGES[rng.integers(len(_CHANGES))](network, rng)
    return network


def _weights(network: Transformer, rng: np.random.Generator) -> Transformer:
    """Some entries of an array, by a share of themselves, a number, or a power of 2 up to the ends of the type; 0 where it was not."""
    arrays = arrays_of(network)
    name = rng.choice([name for name, array in arrays.items() if array.size])
    array = arrays[name].copy()
    place = tuple(rng.integers(n) for n in array.shape)
    how, size = rng.integers(4), float(rng.choice(SIZES) * rng.choice([-1, 1]))
    far = 2.0 ** rng.integers(*((-120, 120) if array.dtype == np.float32 else (-900, 900)))
    with np.errstate(all="ignore"):
        array[place] = (array[place] * (1 + size), array[place] + size, array[place] * far, far)[how]
    return _with(network, {name: array}) if np.isfinite(array).all() else network


def _rows(network: Transformer, rng: np.random.Generator) -> Transformer:
    """Two rows exchanged."""
    arrays = arrays_of(network)
    names = [name for name, array in arrays.items() if len(array) > 1]
    if not names:
        return network
    name = rng.choice(names)
    array = arrays[name].copy()
    i, j = rng.choice(len(array), 2, replace=False)
    array[[i, j]] = array[[j, i]]
    return _with(network, {name: array})


def _neuron(network: Transformer, rng: np.random.Generator) -> Transformer:
    """One more neuron, which may write nothing, and be so large that it overflows."""
    index = int(rng.integers(len(network.layers)))
    ffn, size = network.layers[index].feedforward, rng.choice([1e-6, 1.0, 1e37])
    row, write = rng.normal(size=(1, ffn.inner.shape[1])) * size, np.zeros((len(ffn.outer), 1))
    if rng.integers(2):
        write[rng.integers(len(write))] = rng.choice(SIZES)
    read = rng.integers(2, size=row.shape)
    parts = (ffn.inner, row * read, 0), (ffn.bias, rng.normal(size=1) * size, 0), (ffn.outer, write, 1)
    inner, bias, outer = (np.concatenate([old, new.astype(old.dtype)], axis=axis) for old, new, axis in parts)
    return _replaced(network, index, feedforward=replace(ffn, inner=inner, bias=bias, outer=outer))


def _quiet(network: Transformer, rng: np.random.Generator) -> Transformer:
    """A layer whose head has values that nobody writes, or writes what nobody has."""
    index = int(rng.integers(len(network.layers)))
    heads = network.layers[index].attention
    if heads.value.shape[1]:
        return network
    width, dtype = heads.value.shape[2], heads.value.dtype
    value, output = np.zeros((len(heads.rpe), 1, width), dtype), np.zeros((len(heads.rpe), width, 1), dtype)
    (value[:, 0] if rng.integers(2) else output[..., 0])[:, rng.integers(width)] = rng.choice([1.0, 3e38])
    return _replaced(network, index, attention=replace(heads, value=value, output=output))


def _scales(network: Transformer, rng: np.random.Generator) -> Transformer:
    """Queries and keys by a power of 2 and its inverse: the same scores, unless they overflow or are flushed on the way."""
    index = int(rng.integers(len(network.layers)))
    heads = network.layers[index].attention
    factor = heads.query.dtype.type(2.0 ** rng.integers(-125, 126))
    with np.errstate(all="ignore"):
        query, key = heads.query * factor, heads.key / factor
    return _replaced(network, index, attention=replace(heads, query=query, key=key)) if np.isfinite([query, key]).all() else network


_CHANGES = (_weights, _weights, _rows, _neuron, _quiet, _scales)


def _with(network: Transformer, arrays: dict[str, np.ndarray]) -> Transformer:
    return network_of(arrays_of(network) | arrays, structure_of(network))


def _replaced(network: Transformer, index: int, **parts: Any) -> Transformer:
    layers = list(network.layers)
    layers[index] = replace(layers[index], **parts)
    return replace(network, layers=tuple(layers))


def well_formed(network: Transformer) -> bool:
    """Whether a bundle may hold it: what no file can hold need not be certified."""
    try:
        check_form(arrays_of(network), structure_of(network), network.dtype)
    except (ValueError, KeyError):
        return False
    return True


def with_neuron(network: Transformer, index: int, row: np.ndarray, bias: float, write: np.ndarray | None = None) -> Transformer:
    """One more neuron in a layer, which writes nothing unless told."""
    ffn = network.layers[index].feedforward
    column = np.zeros(len(ffn.outer)) if write is None else write
    inner = np.concatenate([ffn.inner, np.asarray(row, ffn.inner.dtype)[None]])
    outer = np.concatenate([ffn.outer, column.astype(ffn.outer.dtype)[:, None]], axis=1)
    grown = replace(ffn, inner=inner, bias=np.append(ffn.bias, ffn.bias.dtype.type(bias)), outer=outer)
    return _replaced(network, index, feedforward=grown)


def attacked(
    network: Transformer,
    certify: Callable[[Transformer], Certificate],
    run: Callable[[Transformer], float],
    rng: np.random.Generator,
    count: int,
) -> int:
    """So many rude changes: where something finite is certified, `run`, the largest error of some sequences, is no larger. How many."""
    finite = 0
    for _ in range(count):
        changed = mutated(network, rng)
        if not well_formed(changed):
            continue
        try:
            found = certify(changed).certified
        except (InputError, Refusal):
            continue
        if found < float("inf"):
            finite += 1
            assert run(changed) <= found * (1 + 1e-9)
    return finite
