"""The form of a network: the names, shapes and types of its arrays, and what is not an array. No JAX here.

    embedding (D, d)   bias (D,)   positions (P, D), where the network has absolute ones
    layers.i.attention.    decay (H,)   value (H, dv, D)   output (H, D, dv)   query, key (H, dk, D)   pointer (H or 0, D)
                           table (H, S)   rate (H,)
    layers.i.feedforward.  inner (m, D)   bias (m,)   outer (D, m), the last one (c, m) with c ≥ 1 outputs

The structure is a list with one entry per layer: `kind`, `window`, `rpe` (a list, one per head) and, where there is
one, the `stride` c of heads that see every c-th token only and the `precision` of rounded outputs.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from analyzer.numbers.exact import UNIT

AttentionKind = Literal["dp-free", "dp", "nf", "tmx", "linear"]
Window = Literal["infinite", "finite", "full"]

MAX_DECAY = 2**64
"""Decays beyond this, or this close to their lower end, are taken for damage: the paper's largest exact banks stay below 10^5."""
ATTENTION = ("decay", "value", "output", "query", "key", "pointer")
FEEDFORWARD = ("inner", "bias", "outer")
KINDS = ("dp-free", "dp", "nf", "tmx", "linear")
WINDOWS = ("infinite", "finite", "full")
RPE = ("lin", "log", "none", "table", "kerple")
OF_TYPE = {"table": "table", "rate": "kerple"}
"""Arrays that heads of one type have, and no others."""
MAX_STRIDE = 4096
"""Strides beyond this are taken for damage: lags that are built are not longer."""


def check_form(arrays: Mapping[str, np.ndarray], structure: Sequence[Mapping[str, Any]], dtype: str) -> None:
    """Kinds, shapes, types, finite numbers, positive decays; what is wrong is a ValueError, what is missing a KeyError."""
    if not structure:
        raise ValueError("no layers")
    if dtype != "exact" and dtype not in UNIT:
        raise ValueError(f"networks run in {', '.join(UNIT)}, not in {dtype[:40]}")
    width, dim = arrays["embedding"].shape
    if not width:
        raise ValueError("the residual stream has width 0")
    expected: dict[str, tuple[int, ...]] = {"bias": (width,), "embedding": (width, dim)}
    if "positions" in arrays:
        expected["positions"] = (max(len(arrays["positions"]), 1), width)
    for index, static in enumerate(structure):
        outputs = max(len(arrays[f"layers.{index}.feedforward.outer"]), 1) if index == len(structure) - 1 else width
        own = {part for part in OF_TYPE if f"layers.{index}.attention.{part}" in arrays}
        _check_structure(static, own, outputs)
        expected |= _shapes(arrays, static, f"layers.{index}", width, outputs)
    for name, array in arrays.items():
        if array.shape != expected[name]:
            raise ValueError(f"{name} has shape {array.shape}, expected {expected[name]}")
        if str(array.dtype) != ("object" if dtype == "exact" else dtype):
            raise ValueError(f"{name} has type {array.dtype}, the card says {dtype}")
        if dtype != "exact" and not np.isfinite(array).all():
            raise ValueError(f"{name} holds NaN or infinity")
    for index, static in enumerate(structure):
        _check_decays(arrays[f"layers.{index}.attention.decay"], static)
        _check_rates(arrays.get(f"layers.{index}.attention.rate", ()))


def _shapes(
    arrays: Mapping[str, np.ndarray], static: Mapping[str, Any], prefix: str, width: int, outputs: int
) -> dict[str, tuple[int, ...]]:
    heads, inner = len(static["rpe"]), arrays[f"{prefix}.feedforward.inner"].shape[0]
    dv, dk = arrays[f"{prefix}.attention.value"].shape[1], arrays[f"{prefix}.attention.query"].shape[1]
    shapes: dict[str, tuple[int, ...]] = {
        "attention.decay": (heads,),
        "attention.value": (heads, dv, width),
        "attention.output": (heads, width, dv),
        "attention.query": (heads, dk, width),
        "attention.key": (heads, dk, width),
        "attention.pointer": (heads if static["kind"] == "tmx" else 0, width),
        "feedforward.inner": (inner, width),
        "feedforward.bias": (inner,),
        "feedforward.outer": (outputs, inner),
    }
    if f"{prefix}.attention.table" in arrays:
        table = arrays[f"{prefix}.attention.table"]
        shapes["attention.table"] = (heads, max(table.shape[-1], 1) if table.ndim == 2 else 1)
    if f"{prefix}.attention.rate" in arrays:
        shapes["attention.rate"] = (heads,)
    return {f"{prefix}.{part}": shape for part, shape in shapes.items()}


def _check_structure(static: Mapping[str, Any], own: set[str], outputs: int) -> None:
    kind, window, rpe, precision = static["kind"], static["window"], static["rpe"], static.get("precision", ())
    if kind not in KINDS or window not in WINDOWS:
        raise ValueError(f"unknown attention {kind}, {window}")
    if precision and (len(precision) != outputs or set(precision) - {"none", "integer", "log"}):
        raise ValueError("unknown precision of a feed-forward network")
    if not rpe or set(rpe) - set(RPE):
        raise ValueError("unknown relative position encoding")
    if ("table" in own) != ("table" in rpe):
        raise ValueError("heads of type table, and only they, have a table of biases")
    if ("rate" in own) != ("kerple" in rpe):
        raise ValueError("heads of type kerple, and only they, have a rate")
    _check_positions(static)
    if "table" in own and (set(rpe) != {"table"} or kind not in ("dp-free", "dp") or window == "full"):
        raise ValueError("heads with a bias per distance fill a layer of dp-free or dp attention, window infinite or finite")
    blind = {"none"} == set(rpe) and kind in ("dp", "linear") and window != "infinite"
    if kind == "linear" and not blind:
        raise ValueError("linear attention needs heads of type none in a finite or full window")
    if not blind and ("none" in rpe or window == "full"):
        raise ValueError("heads that do not see positions need dot products and a finite or full window")


def _check_positions(static: Mapping[str, Any]) -> None:
    """KERPLE heads fill their layer; they, and heads with a stride, read positions only, over the whole past."""
    rpe, stride = static["rpe"], static.get("stride", 1)
    if type(stride) is not int or not 1 <= stride <= MAX_STRIDE:
        raise ValueError(f"a stride is a whole number from 1 to {MAX_STRIDE}")
    endless = (static["kind"], static["window"]) == ("dp-free", "infinite")
    if "kerple" in rpe and (set(rpe) != {"kerple"} or not endless):
        raise ValueError("heads of type kerple fill a layer of dp-free attention with an infinite window")
    if stride > 1 and ("table" in rpe or not endless):
        raise ValueError("heads with a stride are lin, log or kerple heads of dp-free attention with an infinite window")


def _check_rates(rates: Any) -> None:
    if any(not 0 < r < MAX_DECAY or r * MAX_DECAY < 1 for r in rates):
        raise ValueError(f"a kerple head needs a rate between 0 and {MAX_DECAY:g}, not at the ends")


def _check_decays(decays: np.ndarray, static: Mapping[str, Any]) -> None:
    for kind, decay in zip(static["rpe"], decays, strict=True):
        if kind in ("none", "table"):
            if decay != 0:
                raise ValueError(f"a head of type {kind} has decay 0")
            continue
        least = 1 if kind in ("log", "kerple") and static["window"] == "infinite" else 0
        if not least < decay < MAX_DECAY or (decay - least) * MAX_DECAY < 1:
            raise ValueError(f"a {kind} head needs a decay between {least} and {MAX_DECAY:g}, not at the ends")
