"""Bundles: a network in a folder. The only room that knows file formats.

    card.json             format version, theorem, target, structure, sizes, dtype, chain, seeds, versions, integrity
    weights.safetensors   float networks            exact.json   exact networks (numbers as strings)
    citation.bib          what the network rests on

`integrity` is the SHA-256 of the card (without that entry) and of the other files: a flipped byte anywhere is noticed. Folders appear
whole or not at all: they are written beside their place and renamed into it.
"""

import hashlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from analyzer.errors import InputError
from analyzer.exact import from_text, to_text
from constructions.transformer import Attention, FeedForward, Layer, Transformer

FORMAT = "lemmaformer-bundle"
VERSION = 1
CARD, FLOATS, EXACT, CITATION = "card.json", "weights.safetensors", "exact.json", "citation.bib"
MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class Bundle:
    """A network and the card that came with it; the card's numbers are claims, to be checked against the weights."""

    network: Transformer
    card: dict[str, Any]


def _arrays(network: Transformer) -> dict[str, np.ndarray]:
    arrays = {"embedding": network.embedding, "bias": network.bias}
    for index, layer in enumerate(network.layers):
        for part in ("decay", "value", "output", "query", "key", "pointer"):
            arrays[f"layers.{index}.attention.{part}"] = getattr(layer.attention, part)
        for part in ("inner", "bias", "outer"):
            arrays[f"layers.{index}.feedforward.{part}"] = getattr(layer.feedforward, part)
    return {name: np.asarray(array) for name, array in arrays.items()}


def _structure(network: Transformer) -> list[dict[str, Any]]:
    return [{"kind": layer.attention.kind, "window": layer.attention.window, "rpe": list(layer.attention.rpe)} for layer in network.layers]


def _digest(card: dict[str, Any], files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    bare = {key: value for key, value in card.items() if key != "integrity"}
    digest.update(json.dumps(bare, sort_keys=True, ensure_ascii=False).encode())
    for name in sorted(files):
        digest.update(name.encode() + hashlib.sha256(files[name]).digest())
    return digest.hexdigest()


def _encode(network: Transformer) -> tuple[str, bytes]:
    arrays = _arrays(network)
    if network.dtype != "exact":
        return FLOATS, save_safetensors({name: np.ascontiguousarray(a) for name, a in arrays.items()})
    data = {name: {"shape": list(a.shape), "data": [to_text(v) for v in a.flat]} for name, a in arrays.items()}
    return EXACT, json.dumps(data, separators=(",", ":")).encode()


def check_output(path: Path) -> None:
    """Refuse an output place that holds anything but a bundle."""
    if path.is_symlink() or path.exists():
        if not path.is_dir() or not _is_bundle(path):
            raise InputError(f"{path} exists and is not a lemmaformer bundle; choose another --out")
    elif not path.absolute().parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist; create it first")


def _is_bundle(path: Path) -> bool:
    try:
        return json.loads((path / CARD).read_text(encoding="utf-8")).get("format") == FORMAT
    except (OSError, ValueError, AttributeError):
        return False


def write(path: Path, network: Transformer, card: dict[str, Any], citation: str) -> dict[str, Any]:
    """Write a bundle atomically, replacing a bundle that is there; returns the card as written."""
    check_output(path)
    name, weights = _encode(network)
    files = {name: weights, CITATION: citation.encode()}
    card = {"format": FORMAT, "version": VERSION, **card, "dtype": network.dtype, "structure": _structure(network)}
    card["integrity"] = _digest(card, files)
    files[CARD] = (json.dumps(card, indent=2, ensure_ascii=False) + "\n").encode()
    place = path.absolute()
    staging = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        fresh = staging / "new"
        fresh.mkdir()
        for file_name, content in files.items():
            (fresh / file_name).write_bytes(content)
        if place.exists():
            os.rename(place, staging / "old")
        os.rename(fresh, place)
    finally:
        if not place.exists() and (staging / "old").exists():
            os.rename(staging / "old", place)
        shutil.rmtree(staging, ignore_errors=True)
    return card


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} is larger than {MAX_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def load(path: Path) -> Bundle:
    """Read a bundle and check its integrity, structure and numbers."""
    if not path.is_dir():
        raise InputError(f"{path} is not a bundle folder")
    try:
        card = json.loads(_read(path / CARD))
    except ValueError:
        raise InputError(f"{path / CARD} is not valid JSON: the bundle is damaged") from None
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise InputError(f"{path / CARD} is not the card of a lemmaformer bundle")
    if card.get("version") != VERSION:
        raise InputError(f"{path} has bundle version {card.get('version')!r}; this program reads version {VERSION}")
    name = EXACT if card.get("dtype") == "exact" else FLOATS
    files = {file_name: _read(path / file_name) for file_name in (name, CITATION)}
    if card.get("integrity") != _digest(card, files):
        raise InputError(f"{path} fails its integrity check: a file was changed or damaged after it was written")
    try:
        arrays = _decode_exact(files[name]) if name == EXACT else load_safetensors(files[name])
        network = _network(arrays, card["structure"])
        _check(network, str(card["dtype"]))
    except (KeyError, TypeError, ValueError, AttributeError, SafetensorError) as error:
        raise InputError(f"{path} does not describe a network: {type(error).__name__} {str(error)[:80]}") from None
    return Bundle(network, card)


def _decode_exact(content: bytes) -> dict[str, np.ndarray]:
    arrays = {}
    for name, entry in json.loads(content).items():
        flat = np.empty(len(entry["data"]), dtype=object)
        flat[:] = [from_text(text) for text in entry["data"]]
        arrays[name] = flat.reshape(entry["shape"])
    return arrays


def _network(arrays: dict[str, np.ndarray], structure: list[dict[str, Any]]) -> Transformer:
    layers = []
    for index, static in enumerate(structure):
        prefix = f"layers.{index}"
        weights = {part: arrays.pop(f"{prefix}.attention.{part}") for part in ("decay", "value", "output", "query", "key", "pointer")}
        attention = Attention(**weights, rpe=tuple(static["rpe"]), kind=static["kind"], window=static["window"])
        ffn = FeedForward(**{part: arrays.pop(f"{prefix}.feedforward.{part}") for part in ("inner", "bias", "outer")})
        layers.append(Layer(attention, ffn))
    network = Transformer(arrays.pop("embedding"), arrays.pop("bias"), tuple(layers))
    if arrays:
        raise ValueError(f"unexpected array {sorted(arrays)[0]}")
    return network


def _check(network: Transformer, dtype: str) -> None:
    """Shapes, types, finite numbers, positive decays."""
    if not network.layers:
        raise ValueError("no layers")
    width = network.embedding.shape[0]
    expected = {"bias": (width,), "embedding": (width, network.dim)}
    for index, layer in enumerate(network.layers):
        attention, ffn = layer.attention, layer.feedforward
        heads, inner = len(attention.rpe), ffn.inner.shape[0]
        last = index == len(network.layers) - 1
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
            f"layers.{index}.feedforward.outer": (1 if last else width, inner),
        }
        if attention.kind not in ("dp-free", "dp", "nf", "tmx") or attention.window not in ("infinite", "finite"):
            raise ValueError(f"unknown attention {attention.kind}, {attention.window}")
        if not heads or set(attention.rpe) - {"lin", "log"}:
            raise ValueError("unknown relative position encoding")
        for kind, decay in zip(attention.rpe, attention.decay, strict=True):
            least = 1 if kind == "log" and attention.window == "infinite" else 0
            if not decay > least:
                raise ValueError(f"a {kind} head needs a decay above {least}")
    for name, array in _arrays(network).items():
        if array.shape != expected[name]:
            raise ValueError(f"{name} has shape {array.shape}, expected {expected[name]}")
        if str(array.dtype) != ("object" if dtype == "exact" else dtype):
            raise ValueError(f"{name} has type {array.dtype}, the card says {dtype}")
        if dtype != "exact" and not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or infinity")
