"""ONNX files of ours, read back: the network in them, and whether graph and initialisers are the ones that this network has.

Nothing is executed and nothing outside the file is read. Weights that the graph reads are initialisers under the names that a bundle gives
them; the rest is in the metadata. From weights, slots and card the whole file is written again, derived constants recomputed with correct
rounding, and compared with what was found: node by node, initialiser by initialiser, and at last byte by byte, since programs may read
other things in bytes than the last word of every field, which is what parsing keeps.
"""

import base64
import binascii
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from analyzer.errors import InputError, LemmaformerError
from constructions.exports.onnx_graphs import FORMAT, MAX_FILE, VERSION, model_of
from constructions.exports.onnx_nodes import onnx_package
from constructions.files.bundle import Bundle, load
from constructions.files.card import Files
from constructions.network.form import ATTENTION, FEEDFORWARD, OF_TYPE

KINDS = {1: np.float32, 11: np.float64, 7: np.int64, 9: np.bool_}
"""Element types of our initialisers by ONNX's numbers."""
MAX_LAYERS, MAX_SLOTS, MAX_NAME, MAX_HELD = 4096, 4096, 256, 1 << 16
"""Layers, slots, letters of a slot's name, and slots times layers, before anything is made of them."""
FAR_EXPONENT = re.compile(r"\^-?\d{6}")
"""Exact weights beyond 2^±99999 are nobody's, and slow to compute with."""


@dataclass(frozen=True)
class OnnxNetwork:
    """What an ONNX file holds: network and card, slots, and the first place where the file is not the one that they make."""

    bundle: Bundle
    slots: dict[str, list[int]]
    difference: str | None


def read(place: Path) -> OnnxNetwork:
    """The network of an ONNX file; one line says what is wrong with a file that is not ours, or damaged."""
    model, stored = _parsed(place)
    properties = {prop.key: prop.value for prop in model.metadata_props}
    if properties.get("format") != FORMAT:
        raise InputError(f"{str(place)[:80]} is an ONNX file, but not one that lemmaformer wrote")
    if properties.get("version") != str(VERSION):
        raise InputError(f"{str(place)[:80]} has version {properties.get('version', 'none')[:20]!r}; this program reads version {VERSION}")
    try:
        bundle, slots = _content(place, model, properties)
        wanted = model_of(bundle.network, slots, json.loads(properties["card"]))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, SafetensorError, binascii.Error) as error:
        if isinstance(error, LemmaformerError):
            raise
        raise InputError(f"{str(place)[:80]} does not describe a network: its metadata or initialisers are malformed") from None
    difference = first_difference(model, wanted)
    if difference is None and stored != wanted.SerializeToString(deterministic=True):
        difference = "its bytes are not those of this network's file, although they are parsed as them"
    return OnnxNetwork(bundle, slots, difference)


def _parsed(place: Path) -> tuple[Any, bytes]:
    """The file as a ModelProto, and its bytes."""
    onnx = onnx_package()
    from google.protobuf.message import DecodeError

    try:
        if not place.is_file() and place.exists():
            raise InputError(f"{str(place)[:80]} is no file")
        with place.open("rb") as file:
            content = file.read(MAX_FILE + 1)
    except OSError as error:
        raise InputError(f"cannot read {str(place)[:80]}: {error.strerror}") from None
    if len(content) > MAX_FILE:
        raise InputError(f"{str(place)[:80]} is larger than {MAX_FILE} bytes")
    try:
        model = onnx.ModelProto.FromString(content)
    except (DecodeError, ValueError, RecursionError):
        raise InputError(f"{str(place)[:80]} is not an ONNX file, or damaged") from None
    if any(tensor.data_location or tensor.external_data for tensor in model.graph.initializer):
        raise InputError(f"{str(place)[:80]} keeps numbers in other files, which are not read")
    return model, content


def _content(place: Path, model: Any, properties: dict[str, str]) -> tuple[Bundle, dict[str, list[int]]]:
    structure, card, slots = (json.loads(properties[key]) for key in ("structure", "card", "slots"))
    if not isinstance(card, dict) or not isinstance(slots, dict) or not isinstance(structure, list):
        raise ValueError("no card")
    for places in slots.values():
        if not isinstance(places, list) or not places or not all(type(j) is int for j in places):
            raise ValueError("no slots")
    if len(structure) > MAX_LAYERS or len(slots) > MAX_SLOTS or len(structure) * len(slots) > MAX_HELD:
        raise ValueError("too many layers or slots")
    if any(len(name) > MAX_NAME for name in slots):
        raise ValueError("too long a name")
    if properties["dtype"] == "exact":
        weights = properties["weights"].encode()
        if FAR_EXPONENT.search(properties["weights"]):
            raise ValueError("weights beyond all bounds")
    else:
        stored = load_safetensors(base64.b64decode(properties["weights"], validate=True))
        names = _names(len(structure)) - set(stored)
        read_by_graph = {tensor.name: _array(tensor) for tensor in model.graph.initializer if tensor.name in names}
        weights = save_safetensors({**stored, **read_by_graph})
    bundle = load(Files(place, {**card, "dtype": properties["dtype"], "structure": structure}, weights))
    width = bundle.network.embedding.shape[0]
    if not all(0 <= j < width for places in slots.values() for j in places):
        raise ValueError("slots outside the stream")
    return bundle, slots


def _names(layers: int) -> set[str]:
    """The names of a network's arrays."""
    parts = [f"attention.{part}" for part in (*ATTENTION, *OF_TYPE)] + [f"feedforward.{part}" for part in FEEDFORWARD]
    return {"embedding", "bias", "positions", *(f"layers.{index}.{part}" for index in range(layers) for part in parts)}


def _array(tensor: Any) -> np.ndarray:
    """An initialiser, its bytes counted before they are used."""
    kind = np.dtype(KINDS[tensor.data_type])
    shape = tuple(tensor.dims)
    if min(shape, default=0) < 0 or int(np.prod(shape, dtype=object)) * kind.itemsize != len(tensor.raw_data):
        raise ValueError("an initialiser has another size than its shape says")
    return np.frombuffer(tensor.raw_data, kind.newbyteorder("<")).astype(kind).reshape(shape)


def first_difference(found: Any, wanted: Any) -> str | None:
    """Where a file differs from the one that its network makes, in words; None if nowhere."""
    checks: list[tuple[str, Sequence[Any], Sequence[Any]]] = [
        ("initialiser", found.graph.initializer, wanted.graph.initializer),
        ("node", found.graph.node, wanted.graph.node),
        ("input", found.graph.input, wanted.graph.input),
        ("output", found.graph.output, wanted.graph.output),
        ("operator set", found.opset_import, wanted.opset_import),
        ("entry of the metadata", found.metadata_props, wanted.metadata_props),
    ]
    for what, these, those in checks:
        for number, (one, other) in enumerate(zip(these, those, strict=False), start=1):
            if one.SerializeToString(deterministic=True) != other.SerializeToString(deterministic=True):
                return f"{what} {number}, {_name(other)}, is not the one that this network has{_detail(what, one, other)}"
        if len(these) != len(those):
            return f"there are {len(these)} times {what}; this network has {len(those)}"
    if found.SerializeToString(deterministic=True) != wanted.SerializeToString(deterministic=True):
        return "something beside graph and metadata is not what this network's file has"
    return None


def _name(part: Any) -> str:
    return repr(str(getattr(part, "name", "") or getattr(part, "key", "") or getattr(part, "domain", "")))


def _detail(what: str, one: Any, other: Any) -> str:
    """What a node or number was replaced by, cut to a line."""
    if what == "node" and one.op_type != other.op_type:
        return f": {one.op_type[:20]!r} for {other.op_type}"
    if what == "node" and list(one.input) != list(other.input):
        return f": it reads {', '.join(map(str, one.input))[:60]!r} for {', '.join(other.input)[:60]!r}"
    if what == "initialiser" and one.dims == other.dims and len(one.raw_data) == len(other.raw_data):
        apart = [place for place, (a, b) in enumerate(zip(one.raw_data, other.raw_data, strict=True)) if a != b]
        return f": byte {apart[0]} differs" if apart else ""
    if what == "entry of the metadata" and one.key == "sha256":
        return ": the weights are not those that were written"
    return ""
