"""Numbers and lags as words."""

from collections.abc import Sequence
from typing import Any


def number(value: float | None) -> str:
    """Six digits; a dash where there is no number."""
    return "-" if value is None else f"{value:.6g}"


def enclosure(pair: Sequence[float]) -> str:
    """A number whose certified ends agree to six digits, or both ends."""
    low, high = (number(v) for v in pair)
    return low if low == high else f"{low} … {high}"


def mean_and_std(value: dict[str, float] | None, scale: float = 1.0) -> str:
    """A mean with its standard deviation."""
    return "-" if value is None else f"{scale * value['mean']:.3g} ± {scale * value['std']:.2g}"


def lags_of(memory: dict[str, Any]) -> str:
    """The lags of a memory, or the first and the last of many."""
    lags = memory["lags"]
    return ",".join(map(str, lags)) if len(lags) < 8 else f"{lags[0]}…{lags[-1]}"
