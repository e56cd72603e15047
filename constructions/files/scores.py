"""Dot-product scores from anywhere: the query and key matrices of a safetensors file. No JAX here, so bad files are refused at once.

What is expected of a file: pairs of arrays `<prefix>query<suffix>` and `<prefix>key<suffix>`, or with q_proj and k_proj in place of query
and key; the suffix is empty or starts with a dot, such as `.weight`. Shapes are (H, d_k, D), or (d_k, D) for one head, or (H·d_k, D) with
the number of heads given; matrices act from the left (PyTorch's layout). A suffix that ends in `bias` in place of `weight` marks a bias,
(d_k,), (H, d_k) or (H·d_k,), which is added to queries or keys. Other arrays are ignored. The score is ⟨W_Q x + b_Q, W_K x' + b_K⟩: no
1/√d_k, no rotation by position, no norm in between; where a model has one of the latter two, these are not its logits.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  makes numpy know bfloat16
import numpy as np
from safetensors import SafetensorError, safe_open

from analyzer.errors import InputError

PARTNERS = {"query": "key", "q_proj": "k_proj"}
MAX_NUMBERS = 1 << 27
"""Numbers in the query and key arrays that are read: 1 GB of float64, two matrices of 8192 × 8192."""
COUPLED = ("dp", "nf")
"""The kinds of attention of our networks that score pairs of tokens; scores of the others read one token, or none."""
FLOATS = ("F16", "BF16", "F32", "F64")


@dataclass(frozen=True)
class Scores:
    """⟨W_Q x + b_Q, W_K x' + b_K⟩ for the H heads of a layer, in float64."""

    name: str
    query: np.ndarray  # (H, dk, D)
    key: np.ndarray  # (H, dk, D)
    query_bias: np.ndarray  # (H, dk)
    key_bias: np.ndarray  # (H, dk)


@dataclass(frozen=True)
class _Names:
    """The arrays of one pair; None where there is no bias."""

    query: str
    key: str
    query_bias: str | None
    key_bias: str | None


def coupled_places(kinds: Sequence[str], chosen: int | None = None) -> list[int]:
    """Which layers of a network score pairs of tokens, the chosen one or all; refused if there is none."""
    if chosen is not None and not 0 <= chosen < len(kinds):
        raise InputError(f"layer is {chosen}; the network has the layers 0 to {len(kinds) - 1}")
    places = [place for place, kind in enumerate(kinds) if kind in COUPLED and chosen in (None, place)]
    if not places:
        where = "no layer of this network couples" if chosen is None else f"layer {chosen} does not couple"
        found = ", ".join(sorted(set(kinds if chosen is None else [kinds[chosen]])))
        raise InputError(f"{where} tokens: {found} attention has no logits of query and key, {' and '.join(COUPLED)} do")
    return places


def _natural(name: str) -> list[Any]:
    """Sorting key: numbers inside names by their value, however long; texts and numbers alternate, beginning with a text."""
    parts = re.split("0*([0-9]+)", name)
    return [(len(part), part) if place % 2 else part for place, part in enumerate(parts)]


def _pairs(names: list[str]) -> list[_Names]:
    """Pairs in natural order; a query array without its key array is refused."""
    found, present = [], set(names)
    for name in sorted(names, key=_natural):
        match = re.fullmatch(r"(.*)(query|q_proj)((?:\..*)?)", name, re.DOTALL)
        if match is None or match[3].endswith("bias"):
            continue
        prefix, part, suffix = match.groups()
        partner = prefix + PARTNERS[part] + suffix
        if partner not in present:
            raise InputError(f"the array {name[:60]!r} has no partner {partner[:60]!r}")
        stem = suffix[: -len("weight")] if suffix.endswith("weight") else f"{suffix}."
        biases = [prefix + side + stem + "bias" for side in (part, PARTNERS[part])]
        first, second = (bias if bias in present else None for bias in biases)
        found.append(_Names(name, partner, first, second))
    return found


def _check_sizes(file: Any, pairs: Sequence[_Names]) -> None:
    """Refuse empty arrays, and more numbers than fit, before anything is read."""
    total = 0
    for name in (name for pair in pairs for name in (pair.query, pair.key, pair.query_bias, pair.key_bias) if name is not None):
        shape = tuple(file.get_slice(name).get_shape())
        if math.prod(shape) == 0:
            raise InputError(f"the array {name[:60]!r} has shape {shape}: it is empty")
        total += math.prod(shape)
    if total > MAX_NUMBERS:
        raise InputError(f"the query and key arrays hold {total} numbers, more than {MAX_NUMBERS}; `layer` chooses one pair")


def read_array(file: Any, name: str) -> np.ndarray:
    """An array of an open file in float64, which holds every smaller float type exactly."""
    kind = file.get_slice(name).get_dtype()
    if kind not in FLOATS:
        raise InputError(f"the array {name[:60]!r} is of type {kind}; weights are {', '.join(FLOATS)}")
    array = np.asarray(file.get_tensor(name)).astype(np.float64)
    if not np.isfinite(array).all():
        raise InputError(f"the array {name[:60]!r} holds NaN or infinity")
    return array


def _split(array: np.ndarray, name: str, heads: int | None) -> np.ndarray:
    """(H, d_k, D) from what is stored."""
    if array.ndim == 3 and heads in (None, len(array)):
        return array
    if array.ndim == 2 and len(array) % (heads or 1) == 0:
        return array.reshape(heads or 1, -1, array.shape[1])
    wanted = "(H, dk, D) or (dk, D)" if heads is None else f"({heads}, dk, D) or ({heads}·dk, D)"
    raise InputError(f"the array {name[:60]!r} has shape {array.shape}; expected {wanted}")


def _scores(file: Any, names: _Names, heads: int | None) -> Scores:
    query, key = (_split(read_array(file, name), name, heads) for name in (names.query, names.key))
    if query.shape != key.shape:
        raise InputError(f"{names.query[:60]!r} is {query.shape} and {names.key[:60]!r} is {key.shape}; queries and keys must agree")
    biases = []
    for name in (names.query_bias, names.key_bias):
        bias = np.zeros(query.shape[:2]) if name is None else read_array(file, name)
        if bias.shape not in (query.shape[:2], (query.shape[0] * query.shape[1],)):
            raise InputError(f"the bias {str(name)[:60]!r} has shape {bias.shape}, its weights {query.shape}")
        biases.append(bias.reshape(query.shape[:2]))
    return Scores(names.query, query, key, *biases)


def read_scores(path: Path, heads: int | None = None, chosen: int | None = None) -> list[tuple[int, Scores]]:
    """The pairs of a file with their places in natural order of names, or the one chosen."""
    if not path.is_file():
        raise InputError(f"{str(path)[:80]} is neither a bundle folder nor a file")
    try:
        with safe_open(path, framework="numpy") as file:
            pairs = _pairs(list(file.keys()))
            if not pairs:
                raise InputError(f"{path} has no arrays named …query… and …key…, or …q_proj… and …k_proj…")
            if chosen is not None and not 0 <= chosen < len(pairs):
                raise InputError(f"layer is {chosen}; {path} has the pairs 0 to {len(pairs) - 1}")
            places = range(len(pairs)) if chosen is None else [chosen]
            _check_sizes(file, [pairs[place] for place in places])
            return [(place, _scores(file, pairs[place], heads)) for place in places]
    except SafetensorError as error:
        raise InputError(f"{str(path)[:80]} is not a safetensors file, or a damaged one: {str(error)[:80]}") from None
    except OSError as error:
        raise InputError(f"cannot read {str(path)[:80]}: {str(error)[:80]}") from None
