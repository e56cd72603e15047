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


def runs(lags: Sequence[int]) -> str:
    """Increasing whole numbers, neighbours joined: 1–3, 7."""
    ends = [k for k in range(len(lags)) if k + 1 == len(lags) or lags[k + 1] != lags[k] + 1]
    starts = [0, *(k + 1 for k in ends[:-1])]
    return ", ".join(str(lags[a]) if a == b else f"{lags[a]}–{lags[b]}" for a, b in zip(starts, ends, strict=False))
