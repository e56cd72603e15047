"""Options: frozen dataclasses that are validated when they are made.

A class lists the options of a theorem or a command: name, type, default, range, what it means. Python keywords, TOML files and
command-line flags are all read from it, so they have the same names, defaults, help and errors. A string that nobody knows is an error that
names the option and what it allows.

    @dataclass(frozen=True)
    class Fixed(Options):
        rpe: Literal["lin", "log"] = option("lin", "relative positions: scores fall like -p·s (lin) or -p·log s (log)")
        heads: int | None = option(None, "heads in all", least=1, most=2048)
"""

import math
import numbers
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from analyzer.errors import InputError, OptionValue
from analyzer.notebooks import html_of
from analyzer.ranges import check_range


def option(
    default: OptionValue | Path,
    help: str,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    spelt: tuple[str, ...] = (),
    shown: str | None = None,
) -> Any:  # a dataclass field of whatever type stands beside it
    """A field with its meaning and range: `least` ≤ value ≤ `most`, `above` < value < `below`.

    `spelt`: other names that a command line takes for it; `shown`: the default in words, where it is not a constant.
    """
    limits = {"least": least, "most": most, "above": above, "below": below}
    return field(default=default, metadata={"help": help, "spelt": spelt, "shown": shown, **limits})


@dataclass(frozen=True)
class Options:
    """Base of all options; making one checks every field."""

    def __post_init__(self) -> None:
        for entry, hint in typed_fields(type(self)):
            object.__setattr__(self, entry.name, _checked(entry, hint, getattr(self, entry.name)))
        self.check()

    def check(self) -> None:
        """What fields ask of each other; an InputError says what does not go together."""

    def _repr_html_(self) -> str | None:
        return html_of(self)

    @classmethod
    def read(cls, given: Mapping[str, Any], whose: str = "") -> Self:
        """The options of keywords, a TOML table or flags; unknown names are refused, with the nearest known one."""
        known = [entry.name for entry in fields(cls)]
        for name in given:
            if name not in known:
                import difflib

                near = difflib.get_close_matches(str(name), known, 1)
                hint = f"did you mean {near[0]!r}? " if near else ""
                raise InputError(f"unknown option {str(name)[:40]!r}{whose}; {hint}the options are {', '.join(known)}")
        return cls(**given)

    @classmethod
    def read_file(cls, path: str | Path) -> Self:
        """The options of a TOML file: one line `name = value` per option."""
        from analyzer.toml import read_toml

        given = {name: float(value) if isinstance(value, Decimal) else value for name, value in read_toml(Path(path)).items()}
        return cls.read(given, f" in {str(path)[:80]}")

    @classmethod
    def of(cls, options: Self | None, keywords: Mapping[str, Any]) -> Self:
        """Options that were made before, with keywords changed; or those of the keywords alone."""
        if options is None:
            return cls.read(keywords)
        if not isinstance(options, cls):
            raise InputError(f"options are of type {type(options).__name__}; {cls.__name__} is needed here")
        return replace(options, **keywords) if keywords else options

    def chosen(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        return {entry.name: getattr(self, entry.name) for entry in fields(self) if getattr(self, entry.name) != entry.default}


_FIELDS: dict[type[Options], tuple[tuple[Field[Any], Any], ...]] = {}


def typed_fields(cls: type[Options]) -> tuple[tuple[Field[Any], Any], ...]:
    """Every field of a class of options with its resolved type."""
    if cls not in _FIELDS:
        hints = get_type_hints(cls)
        _FIELDS[cls] = tuple((entry, hints[entry.name]) for entry in fields(cls))
    return _FIELDS[cls]


def check_option(cls: type[Options], name: str, value: Any) -> None:
    """Refuse a value that an option cannot have, whatever the others are."""
    entry, hint = next(pair for pair in typed_fields(cls) if pair[0].name == name)
    _checked(entry, hint, value)


def alternatives(hint: Any) -> tuple[Any, ...]:
    """The members of a union, or the type itself."""
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def choices(hint: Any) -> tuple[str, ...]:
    """The strings that a type allows by name."""
    return tuple(value for part in alternatives(hint) if get_origin(part) is Literal for value in get_args(part))


def choices_of(cls: type[Options], name: str) -> tuple[str, ...]:
    """The strings that an option allows."""
    return next(choices(hint) for entry, hint in typed_fields(cls) if entry.name == name)


def _checked(entry: Field[Any], hint: Any, value: Any) -> Any:
    parts = alternatives(hint)
    if value is None and type(None) in parts:
        return None
    for part in parts:
        found = _read(part, value)
        if found is not None:
            return _in_range(entry, found)
    if isinstance(value, numbers.Real) and not isinstance(value, bool) and not math.isfinite(value):
        raise InputError(f"{entry.name} is {value}; give a finite number")
    raise InputError(f"{entry.name} is {str(value)[:40]!r}; {_wanted(parts)}")


def _read(part: Any, value: Any) -> Any:
    """The value as a member of a type, or None if it is none."""
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if get_origin(part) is Literal:
        return value if isinstance(value, str) and value in get_args(part) else None
    if get_origin(part) is tuple:
        members = value if isinstance(value, list | tuple) else (value,)
        inner = [_read(get_args(part)[0], member) for member in members]
        return None if None in inner else tuple(inner)
    if part is bool:
        return value if isinstance(value, bool) else None
    if part is int:
        return int(value) if whole else None
    if part is float:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        return float(value) if real and abs(value) < math.inf else None
    if part is Path:
        return Path(value) if isinstance(value, str | Path) else None
    if part is str:
        return value if isinstance(value, str) else None
    return None


def _wanted(parts: tuple[Any, ...]) -> str:
    kinds = {int: "a whole number", float: "a number", bool: "True or False", str: "text", Path: "a path"}
    named = [f"{', '.join(get_args(part))}" for part in parts if get_origin(part) is Literal]
    plain = [kinds[part] for part in parts if part in kinds]
    members = [get_args(part)[0] for part in parts if get_origin(part) is tuple]
    several = ["several whole numbers" if member is int else "several numbers" for member in members]
    plain += several if named else []
    return "choose from " + ", ".join(named) + "".join(f", or give {kind}" for kind in plain) if named else "give " + (several or plain)[0]


def _in_range(entry: Field[Any], value: Any) -> Any:
    limits = entry.metadata
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    check_range(entry.name, value, limits.get("least"), limits.get("most"), above=limits.get("above"), below=limits.get("below"))
    return value


def default_text(entry: Field[Any]) -> str | None:
    """The default for people, or None if there is nothing to say."""
    if entry.metadata["shown"] is not None:
        return str(entry.metadata["shown"])
    return None if entry.default in (None, False, MISSING) else str(entry.default)
