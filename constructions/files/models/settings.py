"""Numbers of a configuration, each of them checked before anything is made of it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from analyzer.errors import InputError

MAX_LAYERS = 1024
MAX_MODEL_HEADS = 1024
MAX_WIDTH = 1 << 17


@dataclass(frozen=True)
class Settings:
    """A table of a configuration, asked key by key."""

    values: Mapping[str, Any]
    source: str

    def whole(self, *names: str, most: int, default: int | None = None, least: int = 1) -> int:
        """A whole number under the first of some names that is there; null counts as absent."""
        name = next((name for name in names if self.values.get(name) is not None), None)
        if name is None:
            if default is None:
                raise InputError(f"{self.source} does not say {names[0]}")
            return default
        value = self.values[name]
        if type(value) is not int or not least <= value <= most:
            raise InputError(f"{self.source}: {name} is {_short(value)}; a whole number from {least} to {most} is needed")
        return value

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.values.get(name)
        if value is not None and type(value) is not bool:
            raise InputError(f"{self.source}: {name} is {_short(value)}, neither true nor false")
        return default if value is None else value

    def number(self, name: str, default: float | None) -> float | None:
        """A positive number."""
        value = self.values.get(name)
        if value is None:
            return default
        if type(value) not in (int, float) or not 0 < value < 1e30 or not math.isfinite(value):
            raise InputError(f"{self.source}: {name} is {_short(value)}; a positive number is needed")
        return float(value)

    def table(self, name: str) -> "Settings":
        """A table inside this one, empty if it is absent."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, dict):
            raise InputError(f"{self.source}: {name} is no table")
        return Settings(value or {}, f"{self.source}, {name}")

    def sizes(self, width: tuple[str, ...], layers: tuple[str, ...], heads: tuple[str, ...]) -> tuple[int, int, int]:
        """(width D, layers L, heads H), where H divides D."""
        found = self.whole(*width, most=MAX_WIDTH), self.whole(*layers, most=MAX_LAYERS), self.whole(*heads, most=MAX_MODEL_HEADS)
        if found[0] % found[2]:
            raise InputError(f"{self.source}: {found[2]} heads do not divide the width {found[0]}")
        return found


def _short(value: Any) -> str:
    """A value for a message; whole numbers of thousands of digits are not written out."""
    if type(value) is int and value.bit_length() > 200:
        return "a number of more than 60 digits"
    return repr(value)[:40] if isinstance(value, str | int | float) else type(value).__name__
