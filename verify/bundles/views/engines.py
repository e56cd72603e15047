"""A network as numbers that a page can run in float64, one engine per way of evaluating it.

* `kernels`: exact dp-free networks whose stream is a convolution; the kernels come from ball arithmetic, rounded once, because the weights
  themselves cancel far below float64's last bit;
* `lagged`: exact networks with lag slots; one kernel per memory and lag;
* `weights`: all others; the plain formula of `constructions.network.transformer` with the weights as float64, and what heads read of
  positions correctly rounded.

None of them is the evaluation that certificates cover. How far an engine is from `run` is measured where it is used.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from analyzer.errors import InputError, LemmaformerError
from analyzer.lemmas.lag_encoding import slot_ball
from analyzer.numbers.exact import working_precision
from constructions.network.transformer import Attention, FeedForward, Transformer, to_float
from constructions.run.execute import runs_rounded
from constructions.run.fused import stream_table
from constructions.run.lagged import LaggedLayer, lagged_layers
from constructions.run.positions import score_constants
from constructions.run.stream import as_float64, is_fused

MAX_NUMBERS = 120_000
"""Numbers of an engine: about two megabytes of text."""
LAGS_BEYOND = 2
"""Kernels are stored for lags up to the longest that occurs and so many more."""

Engine = dict[str, Any]


def engine_of(network: Transformer, length: int, longest: int) -> Engine:
    """The engine for sequences of `length` tokens, whose lags are at most `longest`; refused if it would be too large for a page."""
    found = _engine(network, length, longest)
    if (count := _numbers(found)) > MAX_NUMBERS:
        raise InputError(f"this network is {count} numbers, more than the {MAX_NUMBERS} that a page holds")
    return found


def _engine(network: Transformer, length: int, longest: int) -> Engine:
    if is_fused(network):
        try:
            return _kernels(network, length)
        except LemmaformerError:  # several layers with curved networks between them: their weights are small enough for float64
            return _weights(network, length)
    if network.dtype == "exact" and not runs_rounded(network) and any(layer.attention.kind in ("nf", "tmx") for layer in network.layers):
        return _lagged(network, length, longest)
    return _weights(network, length)


def _numbers(part: Any) -> int:
    if isinstance(part, dict):
        return sum(_numbers(value) for value in part.values())
    return sum(_numbers(value) for value in part) if isinstance(part, list) else 1


def plain(array: Any) -> Any:
    """Arrays of floats as nested lists; what is not finite is None."""
    if isinstance(array, np.ndarray):
        return plain(array.tolist())
    if isinstance(array, list):
        return [plain(value) for value in array]
    return array if math.isfinite(array) else None


def _floats(array: Any) -> np.ndarray:
    values = np.asarray(array)
    return to_float(values, "float64") if values.dtype == object else values.astype(np.float64)


def _read_out(ffn: FeedForward) -> dict[str, Any]:
    weights = {name: plain(_floats(getattr(ffn, name))) for name in ("inner", "bias", "outer")}
    return {**weights, "precision": list(ffn.precision)}


def _kernels(network: Transformer, length: int) -> Engine:
    parts = [network.first(count) for count in range(1, len(network.layers) + 1)]
    tables = [stream_table(part, length) for part in parts]
    return {
        "kind": "kernels",
        "layers": [{"kernels": plain(kernels[..., :length]), "offset": plain(offset)} for kernels, offset in tables],
        "heads": [_position_weights(layer.attention, length) for layer in network.layers],
        "readout": _read_out(network.layers[-1].feedforward),
    }


def _position_weights(attention: Attention, length: int) -> Any:
    """Normalised weights of heads that read positions only, by distance: (H, N); None where there are too many to look at."""
    if len(attention.rpe) * length > MAX_NUMBERS // 8:
        return None
    constants = score_constants(_scoring(attention), -(-length // attention.stride))
    with np.errstate(divide="ignore"):
        seen = np.exp(constants["bias"] - constants["whole"][:, None])
    weights = np.zeros((len(attention.rpe), seen.shape[1] * attention.stride))
    weights[:, :: attention.stride] = seen
    return plain(weights[:, :length])


def _scoring(attention: Attention) -> Attention:
    """An attention whose decays, tables and rates are float64; nothing else of it is read for positions."""
    table, rate = (None if part is None else _floats(part) for part in (attention.table, attention.rate))
    return replace(attention, decay=_floats(attention.decay), table=table, rate=rate)


def _lagged(network: Transformer, length: int, longest: int) -> Engine:
    layers = []
    for layer, lagged in zip(network.layers, lagged_layers(network), strict=True):
        groups: dict[int, list[int]] = {}
        for row in range(lagged.gains.shape[1]):
            if heads := lagged.writers(row):
                groups.setdefault(lagged.slot(heads), []).append(row)
        memories = [_memory(lagged, slot, rows, length, longest + LAGS_BEYOND) for slot, rows in groups.items()]
        layers.append({"memories": memories, "ffn": _read_out(layer.feedforward)})
    return {"kind": "lagged", "embedding": plain(_floats(network.embedding)), "bias": plain(_floats(network.bias)), "layers": layers}


def _memory(layer: LaggedLayer, slot: int, rows: list[int], length: int, longest: int) -> dict[str, Any]:
    """The coordinates that heads with one lag slot write, and their kernels for every lag."""
    least = 1 if "log" in layer.rpe or layer.form == "log" else 0
    columns = sorted({int(c) for row in rows for c in np.nonzero(layer.gains[:, row].any(axis=0))[0]})
    kernels = []
    for lag in range(least, longest + 1):
        value = slot_ball(layer.form, lag)
        with working_precision(layer.bits(value)):
            kernels.append([[plain(layer.kernel(row, column, value).floats(length)) for column in columns] for row in rows])
    return {"slot": slot, "form": layer.form, "least": least, "rows": rows, "columns": columns, "kernels": kernels}


def _weights(network: Transformer, length: int) -> Engine:
    floats = as_float64(network)
    layers = [{"attention": _attention(layer.attention, length), "ffn": _read_out(layer.feedforward)} for layer in floats.layers]
    rows = {} if floats.positions is None else {"positions": plain(floats.positions[:length])}
    return {"kind": "weights", "embedding": plain(floats.embedding), "bias": plain(floats.bias), **rows, "layers": layers}


def _attention(attention: Attention, length: int) -> dict[str, Any]:
    names = ("decay", "value", "output", "query", "key", "pointer")
    found: dict[str, Any] = {name: plain(np.asarray(getattr(attention, name))) for name in names}
    found |= {"rpe": list(attention.rpe), "kind": attention.kind, "window": attention.window}
    return found | {name: plain(part) for name, part in score_constants(attention, length).items()}
