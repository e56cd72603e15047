"""Bundles: networks as the arrays of a folder (`constructions.files.card` knows the files)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from analyzer.errors import InputError
from analyzer.numbers.exact import from_text, to_text
from constructions.files.card import Files, write_files
from constructions.network.form import ATTENTION, FEEDFORWARD, OF_TYPE, check_form
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer


@dataclass(frozen=True)
class Bundle:
    """A network and the card that came with it; the card's numbers are claims, to be checked against the weights."""

    network: Transformer
    card: dict[str, Any]


def arrays_of(network: Transformer) -> dict[str, np.ndarray]:
    """All arrays of a network by their names (see `constructions.network.form`)."""
    arrays = {"embedding": network.embedding, "bias": network.bias}
    arrays |= {"positions": network.positions} if network.positions is not None else {}
    for index, layer in enumerate(network.layers):
        for part in (*ATTENTION, *(own for own in OF_TYPE if getattr(layer.attention, own) is not None)):
            arrays[f"layers.{index}.attention.{part}"] = getattr(layer.attention, part)
        for part in FEEDFORWARD:
            arrays[f"layers.{index}.feedforward.{part}"] = getattr(layer.feedforward, part)
    return {name: np.asarray(array) for name, array in arrays.items()}


def structure_of(network: Transformer) -> list[dict[str, Any]]:
    """What is not an array: kind, window, RPE, stride and precision of every layer."""
    layers: list[dict[str, Any]] = []
    for layer in network.layers:
        static: dict[str, Any] = {"kind": layer.attention.kind, "window": layer.attention.window, "rpe": list(layer.attention.rpe)}
        static |= {"stride": layer.attention.stride} if layer.attention.stride > 1 else {}
        layers.append(static | ({"precision": list(layer.feedforward.precision)} if layer.feedforward.precision else {}))
    return layers


def encode(network: Transformer) -> bytes:
    """The weights as the bytes of a bundle's file."""
    arrays = arrays_of(network)
    if network.dtype != "exact":
        return save_safetensors({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    data = {name: {"shape": list(a.shape), "data": [to_text(v) for v in a.flat]} for name, a in arrays.items()}
    return json.dumps(data, separators=(",", ":")).encode()


def write(path: Path, network: Transformer, card: dict[str, Any], citation: str, overwrite: bool = False) -> None:
    """Write a network and its card as a bundle; one that is there is refused unless `overwrite`."""
    write_files(path, {**card, "dtype": network.dtype, "structure": structure_of(network)}, encode(network), citation, overwrite)


def load(files: Files) -> Bundle:
    """The network of a bundle's files, with shapes, types and numbers checked."""
    card = files.card
    try:
        exact = card.get("dtype") == "exact"
        arrays = _decode_exact(files.weights) if exact else load_safetensors(files.weights)
        network = network_of(arrays, card["structure"])
        check_form(arrays_of(network), structure_of(network), str(card["dtype"]))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, SafetensorError) as error:
        reason = str(error)[:80] if isinstance(error, ValueError) else "its arrays or structure are malformed"
        raise InputError(f"{files.path} does not describe a network: {reason}") from None
    return Bundle(network, card)


def _decode_exact(content: bytes) -> dict[str, np.ndarray]:
    arrays = {}
    for name, entry in json.loads(content).items():
        flat = np.empty(len(entry["data"]), dtype=object)
        flat[:] = [from_text(text) for text in entry["data"]]
        if not all(type(size) is int and size >= 0 for size in entry["shape"]):
            raise ValueError(f"{name} has shape {entry['shape']}")
        arrays[name] = flat.reshape(entry["shape"])
    return arrays


def network_of(arrays: dict[str, np.ndarray], structure: list[dict[str, Any]]) -> Transformer:
    """The network with these arrays (see `constructions.network.form`); all of them must have a place."""
    arrays, layers = dict(arrays), []
    for index, static in enumerate(structure):
        prefix = f"layers.{index}"
        parts = (*ATTENTION, *(own for own in OF_TYPE if f"{prefix}.attention.{own}" in arrays))
        weights: dict[str, Any] = {part: arrays.pop(f"{prefix}.attention.{part}") for part in parts}
        words: dict[str, Any] = {"kind": static["kind"], "window": static["window"], "stride": static.get("stride", 1)}
        attention = Attention(**weights, rpe=tuple(static["rpe"]), **words)
        neurons = {part: arrays.pop(f"{prefix}.feedforward.{part}") for part in FEEDFORWARD}
        ffn = FeedForward(**neurons, precision=tuple(static.get("precision", ())))
        layers.append(Layer(attention, ffn))
    network = Transformer(arrays.pop("embedding"), arrays.pop("bias"), tuple(layers), arrays.pop("positions", None))
    if arrays:
        raise ValueError(f"unexpected array {sorted(arrays)[0]}")
    return network
