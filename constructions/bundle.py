"""Bundles: networks as the arrays of a folder (`constructions.card` knows the files)."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from analyzer.errors import InputError
from analyzer.exact import UNIT, from_text, to_text
from constructions.card import Files, write_files
from constructions.transformer import Attention, FeedForward, Layer, Transformer

MAX_DECAY = 2**64
"""Decays beyond this, or this close to their lower end, are taken for damage: the paper's largest exact banks stay below 10^5."""
_ATTENTION = ("decay", "value", "output", "query", "key", "pointer")
_FEEDFORWARD = ("inner", "bias", "outer")


@dataclass(frozen=True)
class Bundle:
    """A network and the card that came with it; the card's numbers are claims, to be checked against the weights."""

    network: Transformer
    card: dict[str, Any]


def _arrays(network: Transformer) -> dict[str, np.ndarray]:
    arrays = {"embedding": network.embedding, "bias": network.bias}
    for index, layer in enumerate(network.layers):
        for part in _ATTENTION if layer.attention.table is None else (*_ATTENTION, "table"):
            arrays[f"layers.{index}.attention.{part}"] = getattr(layer.attention, part)
        for part in _FEEDFORWARD:
            arrays[f"layers.{index}.feedforward.{part}"] = getattr(layer.feedforward, part)
    return {name: np.asarray(array) for name, array in arrays.items()}


def _structure(network: Transformer) -> list[dict[str, Any]]:
    layers: list[dict[str, Any]] = []
    for layer in network.layers:
        static = {"kind": layer.attention.kind, "window": layer.attention.window, "rpe": list(layer.attention.rpe)}
        layers.append(static | ({"precision": list(layer.feedforward.precision)} if layer.feedforward.precision else {}))
    return layers


def _encode(network: Transformer) -> bytes:
    arrays = _arrays(network)
    if network.dtype != "exact":
        return save_safetensors({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    data = {name: {"shape": list(a.shape), "data": [to_text(v) for v in a.flat]} for name, a in arrays.items()}
    return json.dumps(data, separators=(",", ":")).encode()


def write(path: Path, network: Transformer, card: dict[str, Any], citation: str) -> None:
    """Write a network and its card as a bundle."""
    write_files(path, {**card, "dtype": network.dtype, "structure": _structure(network)}, _encode(network), citation)


def load(files: Files) -> Bundle:
    """The network of a bundle's files, with shapes, types and numbers checked."""
    card = files.card
    try:
        exact = card.get("dtype") == "exact"
        arrays = _decode_exact(files.weights) if exact else load_safetensors(files.weights)
        network = _network(arrays, card["structure"])
        _check(network, str(card["dtype"]))
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


def _network(arrays: dict[str, np.ndarray], structure: list[dict[str, Any]]) -> Transformer:
    layers = []
    for index, static in enumerate(structure):
        prefix = f"layers.{index}"
        parts = (*_ATTENTION, *(["table"] if f"{prefix}.attention.table" in arrays else []))
        weights = {part: arrays.pop(f"{prefix}.attention.{part}") for part in parts}
        attention = Attention(**weights, rpe=tuple(static["rpe"]), kind=static["kind"], window=static["window"])
        neurons = {part: arrays.pop(f"{prefix}.feedforward.{part}") for part in _FEEDFORWARD}
        ffn = FeedForward(**neurons, precision=tuple(static.get("precision", ())))
        layers.append(Layer(attention, ffn))
    network = Transformer(arrays.pop("embedding"), arrays.pop("bias"), tuple(layers))
    if arrays:
        raise ValueError(f"unexpected array {sorted(arrays)[0]}")
    return network


def _check(network: Transformer, dtype: str) -> None:
    """Shapes, types, finite numbers, positive decays."""
    if not network.layers:
        raise ValueError("no layers")
    if dtype != "exact" and dtype not in UNIT:
        raise ValueError(f"networks run in {', '.join(UNIT)}, not in {dtype[:40]}")
    width = network.embedding.shape[0]
    if not width:
        raise ValueError("the residual stream has width 0")
    expected = {"bias": (width,), "embedding": (width, network.dim)}
    for index, layer in enumerate(network.layers):
        attention, ffn = layer.attention, layer.feedforward
        heads, inner = len(attention.rpe), ffn.inner.shape[0]
        outputs = 1 if index == len(network.layers) - 1 else width
        dv, dk = attention.value.shape[1], attention.query.shape[1]
        pointers = heads if attention.kind == "tmx" else 0
        expected |= {
            f"layers.{index}.attention.{part}": shape
            for part, shape in {
                "decay": (heads,),
                "value": (heads, dv, width),
                "output": (heads, width, dv),
                "query": (heads, dk, width),
                "key": (heads, dk, width),
                "pointer": (pointers, width),
            }.items()
        }
        expected |= {
            f"layers.{index}.feedforward.inner": (inner, width),
            f"layers.{index}.feedforward.bias": (inner,),
            f"layers.{index}.feedforward.outer": (outputs, inner),
        }
        if attention.kind not in ("dp-free", "dp", "nf", "tmx") or attention.window not in ("infinite", "finite", "full"):
            raise ValueError(f"unknown attention {attention.kind}, {attention.window}")
        if ffn.precision and (len(ffn.precision) != outputs or set(ffn.precision) - {"none", "integer", "log"}):
            raise ValueError("unknown precision of a feed-forward network")
        if not heads or set(attention.rpe) - {"lin", "log", "none", "table"}:
            raise ValueError("unknown relative position encoding")
        if (attention.table is not None) != ("table" in attention.rpe):
            raise ValueError("heads of type table, and only they, have a table of biases")
        if attention.table is not None:
            reach = attention.table.shape[-1] if attention.table.ndim == 2 else 0
            expected[f"layers.{index}.attention.table"] = (heads, max(reach, 1))
            if set(attention.rpe) != {"table"} or attention.kind not in ("dp-free", "dp") or attention.window == "full":
                raise ValueError("heads with a bias per distance fill a layer of dp-free or dp attention, window infinite or finite")
        blind = {"none"} == set(attention.rpe) and attention.kind == "dp" and attention.window != "infinite"
        if not blind and ("none" in attention.rpe or attention.window == "full"):
            raise ValueError("heads that do not see positions need dot products and a finite or full window")
        for kind, decay in zip(attention.rpe, attention.decay, strict=True):
            if kind in ("none", "table"):
                if decay != 0:
                    raise ValueError(f"a head of type {kind} has decay 0")
                continue
            least = 1 if kind == "log" and attention.window == "infinite" else 0
            if not least < decay < MAX_DECAY or (decay - least) * MAX_DECAY < 1:
                raise ValueError(f"a {kind} head needs a decay between {least} and {MAX_DECAY:g}, not at the ends")
    for name, array in _arrays(network).items():
        if array.shape != expected[name]:
            raise ValueError(f"{name} has shape {array.shape}, expected {expected[name]}")
        if str(array.dtype) != ("object" if dtype == "exact" else dtype):
            raise ValueError(f"{name} has type {array.dtype}, the card says {dtype}")
        if dtype != "exact" and not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or infinity")
