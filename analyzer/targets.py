"""Targets: which past tokens matter, and what is made of them.

Fixed memories: y_t = f(x_t, x_{t−T_1}, …, x_{t−T_M}) with 1 ≤ T_1 < … < T_M and tokens in [−1, 1]^dim, or in A^dim for a finite
alphabet A of letters: restored networks need one. Adaptive targets are in `analyzer.adaptive`.
"""

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

from flint import fmpq

from analyzer.adaptive import AdaptiveMemory, adaptive_from_dict, exact_number
from analyzer.errors import InputError
from analyzer.exact import to_text
from analyzer.readout import ReadOut, read_out

# Sizes beyond which a target is taken for a mistake: far above what any layer here can hold.
MAX_LAG = 1_000_000
MAX_MEMORIES = 64
MAX_DIM = 64
MAX_LETTERS = 64
MAX_FILE = 1 << 20


@dataclass(frozen=True)
class FixedMemory:
    """y_t = f(x_t, x_{t−T_1}, …, x_{t−T_M}); `formula` None means the sum of the memories."""

    lags: tuple[int, ...]
    dim: int = 1
    formula: str | None = None
    alphabet: tuple[fmpq, ...] | None = None

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
        if self.alphabet is not None:
            object.__setattr__(self, "alphabet", _letters(self.alphabet))
        _ = self.readout

    @cached_property
    def readout(self) -> ReadOut:
        return read_out(self.formula, [f"m{k}" for k in range(1, len(self.lags) + 1)], self.dim)

    def describe(self) -> dict[str, Any]:
        """The target as plain data (inverse of `target_from_dict`)."""
        plain = {"kind": "fixed", "dim": self.dim, "lags": list(self.lags), "readout": self.formula}
        return plain if self.alphabet is None else {**plain, "alphabet": [to_text(v) for v in self.alphabet]}


def _letters(values: Sequence[Any]) -> tuple[fmpq, ...]:
    """Letters as exact numbers, increasing."""
    if not 2 <= len(values) <= MAX_LETTERS:
        raise InputError(f"the alphabet has {len(values)} letters; give between 2 and {MAX_LETTERS}")
    letters = sorted(exact_number(v, "the alphabet") for v in values)
    for letter in letters:
        if abs(letter) > 1:
            raise InputError(f"the alphabet holds {letter}; letters lie in [-1, 1]")
        if letters.count(letter) > 1:
            raise InputError(f"the alphabet holds {letter} twice")
    return tuple(letters)


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
    unknown = set(data) - {"kind", "dim", "lags", "readout", "alphabet"}
    if unknown:
        raise InputError(f"{source}: unknown key {sorted(unknown)[0]!r}")
    lags, formula = data.get("lags"), data.get("readout")
    if not isinstance(lags, list):
        raise InputError(f"{source}: lags must be a list of whole numbers")
    if formula is not None and not isinstance(formula, str):
        raise InputError(f"{source}: readout must be text")
    alphabet = data.get("alphabet")
    if alphabet is not None and not isinstance(alphabet, list):
        raise InputError(f"{source}: alphabet must be a list of letters such as [-1, 1]")
    return FixedMemory(tuple(lags), data.get("dim", 1), formula, None if alphabet is None else tuple(alphabet))


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
