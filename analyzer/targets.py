"""Targets: which past tokens matter, and what is made of them.

Fixed memories: y_t = f(x_t, x_{t−T_1}, …, x_{t−T_M}) with 1 ≤ T_1 < … < T_M and tokens in [−1, 1]^dim. Adaptive ones are in
`analyzer.adaptive`.
"""

import tomllib
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from analyzer.adaptive import AdaptiveMemory, adaptive_from_dict
from analyzer.errors import InputError
from analyzer.readout import ReadOut, read_out

# Sizes beyond which a target is taken for a mistake: far above what any layer here can hold.
MAX_LAG = 1_000_000
MAX_MEMORIES = 64
MAX_DIM = 64
MAX_FILE = 1 << 20


@dataclass(frozen=True)
class FixedMemory:
    """y_t = f(x_t, x_{t−T_1}, …, x_{t−T_M}); `formula` None means the sum of the memories."""

    lags: tuple[int, ...]
    dim: int = 1
    formula: str | None = None

    def __post_init__(self) -> None:
        if isinstance(self.dim, bool) or not isinstance(self.dim, int) or not 1 <= self.dim <= MAX_DIM:
            raise InputError(f"dim is {self.dim!r}; it must be a whole number from 1 to {MAX_DIM}")
        if not self.lags or len(self.lags) > MAX_MEMORIES:
            raise InputError(f"there are {len(self.lags)} lags; give between 1 and {MAX_MEMORIES}")
        for lag in self.lags:
            if isinstance(lag, bool) or not isinstance(lag, int) or not 1 <= lag <= MAX_LAG:
                raise InputError(f"lag {lag!r} is not a whole number from 1 to {MAX_LAG}")
        if len(set(self.lags)) < len(self.lags):
            raise InputError(f"the lags {', '.join(map(str, self.lags))} repeat; each lag is one memory")
        if list(self.lags) != sorted(self.lags):
            raise InputError("the lags must be increasing: m1 is the shortest")
        _ = self.readout

    @cached_property
    def readout(self) -> ReadOut:
        return read_out(self.formula, [f"m{k}" for k in range(1, len(self.lags) + 1)], self.dim)

    def describe(self) -> dict[str, Any]:
        """The target as plain data (inverse of `target_from_dict`)."""
        return {"kind": "fixed", "dim": self.dim, "lags": list(self.lags), "readout": self.formula}


Target = FixedMemory | AdaptiveMemory


def target_from_dict(data: Any, source: str) -> Target:
    """A target from parsed TOML or JSON; unknown kinds, keys and types are refused."""
    kind = data.get("kind") if isinstance(data, dict) else None
    if kind == "fixed":
        return _fixed_from_dict(data, source)
    if kind == "adaptive":
        return adaptive_from_dict(data, source)
    raise InputError(f"{source}: kind is {str(kind)[:40]!r}, expected 'fixed' or 'adaptive'")


def fixed_target(data: Any, source: str) -> FixedMemory:
    """A target that must be of the fixed kind."""
    target = target_from_dict(data, source)
    if not isinstance(target, FixedMemory):
        raise InputError(f"{source} holds an adaptive target, a fixed one is needed here; build adaptive takes it")
    return target


def adaptive_target(data: Any, source: str) -> AdaptiveMemory:
    """A target that must be of the adaptive kind."""
    target = target_from_dict(data, source)
    if not isinstance(target, AdaptiveMemory):
        raise InputError(f"{source} holds a fixed target, an adaptive one is needed here; build fixed takes it")
    return target


def _fixed_from_dict(data: dict[str, Any], source: str) -> FixedMemory:
    unknown = set(data) - {"kind", "dim", "lags", "readout"}
    if unknown:
        raise InputError(f"{source}: unknown key {sorted(unknown)[0]!r}")
    lags, formula = data.get("lags"), data.get("readout")
    if not isinstance(lags, list):
        raise InputError(f"{source}: lags must be a list of whole numbers")
    if formula is not None and not isinstance(formula, str):
        raise InputError(f"{source}: readout must be text")
    return FixedMemory(tuple(lags), data.get("dim", 1), formula)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, decimals exact."""
    try:
        if path.exists() and (not path.is_file() or path.stat().st_size > MAX_FILE):
            raise InputError(f"{path} is not a target file of at most {MAX_FILE} bytes")
        return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except OSError as error:
        raise InputError(f"cannot read {str(path)[:80]}: {error.strerror}") from None
    except (ValueError, RecursionError, ArithmeticError) as error:  # among them TOML and Unicode errors
        raise InputError(f"{path} is not valid TOML: {str(error)[:80]}") from None
