"""Weights that were trained elsewhere, as arrays of our form. No JAX here, so bad files are refused at once; docs/import.md is the manual.

A safetensors file holds the arrays, a TOML file says what is not an array. Arrays are found under our names (`constructions.network.form`),
with `.weight` after them, or under the names that the TOML file maps them to; nn.Linear's matrices are (out, in), as ours, heads stacked:

    query, key, value   (H·dk, D) → (H, dk, D)          output   (D, H·dv) → (H, D, dv)

The score is ⟨W_Q x, W_K x'⟩: a factor of it, such as 1/√dk, is multiplied into W_Q in double precision and rounded once. The bias of the
outer feed-forward matrix becomes one more neuron, relu(1) times the bias. Biases of query, key, value and output must be 0, and there
is no norm: the model has none, so every array of the file must have found its place, or be named as one to ignore.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from analyzer.errors import InputError
from analyzer.targets.files import target_from_dict
from analyzer.targets.protocol import Target
from analyzer.toml import read_toml
from constructions.files.scores import COUPLED, read_array
from constructions.network.form import ATTENTION, FEEDFORWARD, KINDS, OF_TYPE, RPE, WINDOWS, check_form

MAX_NUMBERS = 1 << 26
"""Numbers in the file: 512 MB of float64, half of what a bundle may hold."""
MAX_LAYERS = 1024
MAX_HEADS = 1 << 16
DTYPES = ("float32", "float64")
ROOT_SCALE = "1/sqrt(dk)"
KEYS = {"dtype", "layer", "names", "ignore", "target"}
LAYER_KEYS = {"kind", "window", "rpe", "heads", "scale", "decay"}
NORM = re.compile(r"norm|(^|[._])ln", re.IGNORECASE)


@dataclass(frozen=True)
class LayerConfig:
    """What the TOML file says of a layer; None where it is silent."""

    kind: str
    window: str
    rpe: str | tuple[str, ...]
    heads: int | None
    scale: float | str | None
    decay: tuple[float, ...] | None


@dataclass(frozen=True)
class Config:
    layers: tuple[LayerConfig, ...]
    names: dict[str, str]
    ignore: frozenset[str]
    dtype: str | None
    target: Target | None


@dataclass(frozen=True)
class Foreign:
    """Arrays in our form, checked, and what the card says of them."""

    arrays: dict[str, np.ndarray]
    structure: list[dict[str, Any]]
    dtype: str
    target: Target | None
    source: str

    def card(self, sizes: dict[str, int]) -> dict[str, Any]:
        """The card of an imported network: no theorem, nothing certified."""
        return {
            "origin": "imported",
            "theorem": None,
            "target": None if self.target is None else self.target.describe(),
            "sizes": sizes,
            "versions": {name: version(name) for name in ("lemmaformer", "jax", "numpy", "python-flint", "sympy")},
            "source": self.source,
        }


def read_foreign(weights: Path, config: Path) -> Foreign:
    """The network of two files."""
    said = read_config(config)
    if not weights.is_file():
        raise InputError(f"{str(weights)[:80]} is not a file")
    try:
        with safe_open(weights, framework="numpy") as file:
            shelf = _Shelf(weights, file, said)
            arrays, structure = _assemble(shelf, said)
            shelf.refuse_strangers()
    except SafetensorError as error:
        raise InputError(f"{str(weights)[:80]} is not a safetensors file, or a damaged one: {str(error)[:80]}") from None
    except OSError as error:
        raise InputError(f"cannot read {str(weights)[:80]}: {str(error)[:80]}") from None
    with np.errstate(over="ignore"):
        arrays = {name: np.ascontiguousarray(array, dtype=shelf.dtype) for name, array in arrays.items()}
    try:
        check_form(arrays, structure, shelf.dtype)
    except (ValueError, IndexError) as error:
        raise InputError(f"{str(weights)[:80]} does not fit {str(config)[:80]}: {str(error)[:120]}") from None
    dim = int(arrays["embedding"].shape[1])
    if said.target is not None and said.target.dim != dim:
        raise InputError(f"{config}: the target has tokens of dimension {said.target.dim}, the embedding reads {dim}")
    return Foreign(arrays, structure, shelf.dtype, said.target, weights.name)


def read_config(path: Path) -> Config:
    """The TOML file, every key and type checked."""
    data, source = read_toml(path), str(path)[:80]
    _refuse_unknown(data, KEYS, source)
    layers = data.get("layer")
    if not isinstance(layers, list) or not 1 <= len(layers) <= MAX_LAYERS or not all(isinstance(part, dict) for part in layers):
        raise InputError(f"{source}: give one table [[layer]] per layer, at most {MAX_LAYERS}")
    dtype, ignore = data.get("dtype"), data.get("ignore", [])
    if dtype is not None and dtype not in DTYPES:
        raise InputError(f"{source}: dtype is {str(dtype)[:40]!r}, expected {' or '.join(DTYPES)}")
    if not isinstance(ignore, list) or not all(isinstance(name, str) for name in ignore):
        raise InputError(f"{source}: ignore must be a list of names of arrays")
    target = None if "target" not in data else target_from_dict(data["target"], f"{source}, [target]")
    found = tuple(_layer_config(part, f"{source}, layer {index}") for index, part in enumerate(layers))
    return Config(found, _names(data.get("names", {}), found, source), frozenset(ignore), dtype, target)


def _refuse_unknown(data: Mapping[str, Any], known: set[str], source: str) -> None:
    unknown = sorted(set(data) - known)
    if unknown:
        raise InputError(f"{source}: unknown key {unknown[0][:40]!r}; known: {', '.join(sorted(known))}")


def _layer_config(data: dict[str, Any], source: str) -> LayerConfig:
    _refuse_unknown(data, LAYER_KEYS, source)
    for key, known in (("kind", KINDS), ("window", WINDOWS)):
        if data.get(key) not in known:
            raise InputError(f"{source}: {key} is {str(data.get(key))[:40]!r}, expected one of {', '.join(known)}")
    rpe, heads, scale = data.get("rpe"), data.get("heads"), data.get("scale")
    types: list[Any] = rpe if isinstance(rpe, list) else [rpe]
    if not types or len(types) > MAX_HEADS or not all(isinstance(kind, str) and kind in RPE for kind in types):
        raise InputError(f"{source}: rpe must be one of {', '.join(RPE)}, or a list with one of them per head")
    if heads is not None and (type(heads) is not int or not 1 <= heads <= MAX_HEADS):
        raise InputError(f"{source}: heads is {str(heads)[:40]}, expected a whole number from 1 to {MAX_HEADS}")
    if scale is not None and scale != ROOT_SCALE:
        scale = _number(scale, f"{source}: scale (a positive number, or {ROOT_SCALE!r})")
    if scale is not None and data["kind"] not in COUPLED:
        raise InputError(f"{source}: {data['kind']} attention has no dot products to scale")
    decay = data.get("decay")
    if decay is not None:
        listed = decay if isinstance(decay, list) else [decay]
        decay = tuple(_number(p, f"{source}: decay (a positive number, or a list with one per head)") for p in listed)
    return LayerConfig(data["kind"], data["window"], tuple(types) if isinstance(rpe, list) else types[0], heads, scale, decay)


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not (Decimal(value).is_finite() and 0 < value < 10**30):
        raise InputError(f"{what} is {str(value)[:40]!r}")
    return float(value)


def _names(data: Any, layers: tuple[LayerConfig, ...], source: str) -> dict[str, str]:
    """Our names → theirs; tables inside tables are joined by dots, and a star on both sides stands for every layer."""
    flat: dict[str, str] = {}
    parts = [f"attention.{part}" for part in (*ATTENTION, *OF_TYPE)] + [f"feedforward.{part}" for part in (*FEEDFORWARD, "outer_bias")]
    known = {"embedding", "bias"} | {f"layers.{index}.{part}" for index in ["*", *range(len(layers))] for part in parts}

    def walk(part: Any, prefix: str) -> None:
        if isinstance(part, dict):
            for key, value in part.items():
                walk(value, f"{prefix}.{key}" if prefix else key)
        elif not isinstance(part, str) or not prefix:
            raise InputError(f"{source}: names must map our names to names of arrays, as text; look at {prefix[:40]!r}")
        elif prefix not in known:
            raise InputError(f"{source}: names has the key {prefix[:60]!r}; keys are our names, such as 'layers.0.attention.value'")
        elif "*" in prefix:
            flat.update({prefix.replace("*", str(index)): part.replace("*", str(index)) for index in range(len(layers))})
        else:
            flat[prefix] = part

    walk(data, "")
    for theirs, count in Counter(flat.values()).items():
        if count > 1:
            raise InputError(f"{source}: names gives the array {theirs[:60]!r} to {count} of ours")
    return flat


class _Shelf:
    """The arrays of an open file, handed out under our names; what is left at the end is refused."""

    def __init__(self, path: Path, file: Any, said: Config) -> None:
        self.path, self.file, self.said = str(path)[:80], file, said
        self.left = set(file.keys())
        shapes = {name: tuple(file.get_slice(name).get_shape()) for name in self.left}
        total = sum(math.prod(shape) for shape in shapes.values())
        if total > MAX_NUMBERS:
            raise InputError(f"{self.path} holds {total} numbers; {MAX_NUMBERS} is the most that is imported")
        doubles = any(file.get_slice(name).get_dtype() == "F64" for name in self.left - said.ignore)
        self.dtype = said.dtype or ("float64" if doubles else "float32")

    def find(self, ours: str, *others: str) -> str | None:
        """Their name of one of our arrays, None if there is no such array; a name from the mapping must exist."""
        mapped = self.said.names.get(ours)
        if mapped is not None:
            if mapped not in self.left:
                raise InputError(f"{self.path} has no array {mapped[:60]!r}, which names gives to {ours}")
            return mapped
        return next((name for name in (ours, f"{ours}.weight", *others) if name in self.left), None)

    def take(self, name: str) -> np.ndarray:
        """An array by their name, in double precision; refused if the network's type does not have its numbers."""
        self.left.discard(name)
        array = read_array(self.file, name)
        with np.errstate(over="ignore"):
            if not np.array_equal(array.astype(self.dtype), array):
                raise InputError(f'{self.path}: {name[:60]!r} holds numbers that {self.dtype} does not have; say dtype = "float64"')
        return array

    def get(self, ours: str) -> np.ndarray:
        """One of our arrays, which must be there."""
        name = self.find(ours)
        if name is None:
            raise InputError(f"{self.path} has no array {ours!r} (nor {ours}.weight); map it in [names]")
        return self.take(name)

    def bias_beside(self, ours: str, of: str) -> np.ndarray | None:
        """The array of one of our biases, or the bias beside the weight `of`, as nn.Linear has it; None if there is none."""
        weight = self.find(of)
        name = self.find(ours, *([] if weight is None else [_bias_of(weight)]))
        return None if name is None else self.take(name)

    def refuse_bias(self, weight: str | None, ours: str) -> None:
        """Query, key, value and output have no biases; zeros are let go."""
        bias = None if weight is None else _bias_of(weight)
        if bias in self.left and np.any(self.take(str(bias))):
            raise InputError(f"{self.path}: {str(bias)[:60]!r} is a bias of {ours} and not 0; the model has none: train with bias=False")

    def refuse_strangers(self) -> None:
        for name in sorted(self.left - self.said.ignore):
            if NORM.search(name):
                raise InputError(f"{self.path}: {name[:60]!r} looks like a layer norm; the model has none: train without")
            raise InputError(f"{self.path}: nothing of ours is called {name[:60]!r}; map it in names, or list it in ignore")


def _bias_of(weight: str) -> str:
    return f"{weight.removesuffix('weight')}bias" if weight.endswith(".weight") else f"{weight}.bias"


def _assemble(shelf: _Shelf, said: Config) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    bias = shelf.bias_beside("bias", "embedding")
    embedding = shelf.get("embedding")
    width = embedding.shape[0] if embedding.ndim else 0
    if embedding.ndim != 2 or not embedding.size:
        raise InputError(f"{shelf.path}: the embedding has shape {embedding.shape}, expected (D, d)")
    arrays = {"embedding": embedding, "bias": np.zeros(width) if bias is None else bias}
    structure = []
    for index, layer in enumerate(said.layers):
        prefix = f"layers.{index}"
        attention, rpe = _attention(shelf, layer, f"{prefix}.attention", width)
        structure.append({"kind": layer.kind, "window": layer.window, "rpe": list(rpe)})
        neurons = _feed_forward(shelf, f"{prefix}.feedforward")
        arrays |= {f"{prefix}.attention.{part}": array for part, array in attention.items()}
        arrays |= {f"{prefix}.feedforward.{part}": array for part, array in neurons.items()}
    return arrays, structure


def _attention(shelf: _Shelf, layer: LayerConfig, prefix: str, width: int) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
    parts = ("value", "output", "query", "key") if layer.kind in COUPLED else ("value", "output")
    for part in parts:
        shelf.refuse_bias(shelf.find(f"{prefix}.{part}"), f"{prefix}.{part}")
    found = {part: shelf.get(f"{prefix}.{part}") for part in parts}
    heads = layer.heads or (len(found["value"]) if found["value"].ndim == 3 else None)
    if not isinstance(layer.rpe, str):
        if heads not in (None, len(layer.rpe)):
            raise InputError(f"{shelf.path}: {prefix} has {heads} heads, its rpe lists {len(layer.rpe)}")
        heads = len(layer.rpe)
    if heads is None:
        raise InputError(f"{shelf.path}: {prefix}.value has shape {found['value'].shape}; say how many heads there are: heads = …")
    rpe = (layer.rpe,) * heads if isinstance(layer.rpe, str) else layer.rpe
    for part, array in found.items():
        found[part] = _split(array, heads, part == "output", f"{shelf.path}: {prefix}.{part}")
    if layer.kind not in COUPLED:
        found |= {"query": np.zeros((heads, 0, width)), "key": np.zeros((heads, 0, width))}
    elif layer.scale is not None:
        rank = found["query"].shape[1]
        found["query"] = found["query"] * (1 / math.sqrt(max(rank, 1)) if isinstance(layer.scale, str) else layer.scale)
    found["pointer"] = shelf.get(f"{prefix}.pointer") if layer.kind == "tmx" else np.zeros((0, width))
    found |= {part: shelf.get(f"{prefix}.{part}") for part, kind in OF_TYPE.items() if kind in rpe}
    return found | {"decay": _decays(shelf, layer, rpe, prefix)}, rpe


def _decays(shelf: _Shelf, layer: LayerConfig, rpe: tuple[str, ...], prefix: str) -> np.ndarray:
    """One slope per head, from the file or the TOML file; 0 for heads that have none."""
    name = shelf.find(f"{prefix}.decay")
    if name is not None and layer.decay is not None:
        raise InputError(f"{shelf.path} has the decays {name[:60]!r}, and the TOML file lists decays; give them once")
    if name is None and layer.decay is None:
        if set(rpe) <= {"none", "table"}:
            return np.zeros(len(rpe))
        raise InputError(f"{shelf.path} has no array '{prefix}.decay'; map it in [names], or list the slopes: decay = […]")
    decays = np.array(layer.decay) if name is None else shelf.take(name).reshape(-1)
    if len(decays) != len(rpe):
        raise InputError(f"{shelf.path}: {prefix} has {len(decays)} decays for {len(rpe)} heads")
    return decays


def _split(array: np.ndarray, heads: int, of_output: bool, what: str) -> np.ndarray:
    """Heads as the first axis: (H·dk, D) → (H, dk, D), output (D, H·dv) → (H, D, dv); three axes are left alone."""
    if array.ndim == 3 and len(array) == heads:
        return array
    if array.ndim != 2 or array.shape[1 if of_output else 0] % heads:
        wanted = f"({heads}, D, dv) or (D, {heads}·dv)" if of_output else f"({heads}, dk, D) or ({heads}·dk, D)"
        raise InputError(f"{what} has shape {array.shape}, expected {wanted}")
    if of_output:
        return array.reshape(array.shape[0], heads, -1).transpose(1, 0, 2)
    return array.reshape(heads, -1, array.shape[1])


def _feed_forward(shelf: _Shelf, prefix: str) -> dict[str, np.ndarray]:
    """A relu(B u + c) + b, the last term as one more neuron."""
    bias = shelf.bias_beside(f"{prefix}.bias", f"{prefix}.inner")
    constant = shelf.bias_beside(f"{prefix}.outer_bias", f"{prefix}.outer")
    inner, outer = shelf.get(f"{prefix}.inner"), shelf.get(f"{prefix}.outer")
    if inner.ndim != 2 or outer.ndim != 2:
        raise InputError(f"{shelf.path}: {prefix} has shapes {inner.shape} and {outer.shape}, expected (m, D) and (out, m)")
    bias = np.zeros(len(inner)) if bias is None else bias
    if constant is not None and np.any(constant):
        if constant.shape != outer.shape[:1] or bias.ndim != 1:
            raise InputError(f"{shelf.path}: {prefix} has an outer bias of shape {constant.shape}, its outer matrix {outer.shape}")
        inner = np.concatenate([inner, np.zeros((1, inner.shape[1]))])
        bias, outer = np.append(bias, 1.0), np.concatenate([outer, constant[:, None]], axis=1)
    return {"inner": inner, "bias": bias, "outer": outer}
