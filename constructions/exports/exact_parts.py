"""What exact networks run with, rounded once to float64: kernels κ(s; n) of layers with lag slots, from balls, and read-outs."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from analyzer.lemmas.lag_encoding import slot_ball
from analyzer.numbers.exact import working_precision
from analyzer.targets.adaptive import MAX_LAG
from analyzer.targets.files import target_from_dict
from constructions.network.transformer import FeedForward, to_float
from constructions.run.lagged import LaggedLayer

REACH = 32
"""Lags that kernels are kept for at least; a position with a longer one than they are kept for gets NaN."""
MAX_KERNEL = 4096
"""Taps of an exact network's kernels at most; where they do not end before, arrays may have as many tokens."""


def columns_read(layer: LaggedLayer, rows: list[int]) -> list[int]:
    """Coordinates of the stream that the heads of these memories read."""
    return sorted({int(c) for row in rows for c in np.nonzero(layer.gains[:, row].any(axis=0))[0]})


def memories(layer: LaggedLayer) -> dict[int, list[int]]:
    """Lag slot → rows of the stream that its heads write."""
    found: dict[int, list[int]] = {}
    for row in range(layer.gains.shape[1]):
        if heads := layer.writers(row):
            found.setdefault(layer.slot(heads), []).append(row)
    return found


def reach_of(card: Mapping[str, object] | None) -> int:
    """Lags that kernels are kept for: all that the card's target has, or REACH."""
    described: Any = (card or {}).get("target")
    return REACH if described is None else min(MAX_LAG, max(REACH, target_from_dict(described, "card").settled))


def lag_kernels(layer: LaggedLayer, rows: list[int], columns: list[int], reach: int) -> np.ndarray:
    """κ(s; n) as (S, reach + 2, C, J); NaN for the last n, which stands for all longer lags, and no kernel for lag 0 of log heads."""
    kernels = []
    for lag in range(1 if "log" in layer.rpe else 0, reach + 1):
        value = slot_ball(layer.form, lag)
        with working_precision(layer.bits(value)):
            at = slot_ball(layer.form, lag)
            kernels.append([[layer.kernel(row, c, at).floats(MAX_KERNEL) for row in rows] for c in columns])
    longest = max(len(values) for by_column in kernels for by_row in by_column for values in by_row)
    table = np.zeros((longest, reach + 2, len(columns), len(rows)))
    for n, c, r in np.ndindex(len(kernels), len(columns), len(rows)):
        values = kernels[n][c][r]
        table[: len(values), n + reach + 1 - len(kernels), c, r] = values
    table[:, reach + 1] = np.nan
    return table


def neurons_in_float64(ffn: FeedForward) -> FeedForward:
    """A feed-forward network with its weights rounded."""
    inner, bias, outer = (to_float(array, "float64") for array in (ffn.inner, ffn.bias, ffn.outer))
    return FeedForward(inner, bias, outer, ffn.precision)
