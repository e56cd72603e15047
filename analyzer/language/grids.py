"""Grids of sizes such as T=1:12 and H=8,16,32, boxes such as T=1:100 and H=8:oo, and which sizes the quantities of a claim speak of.

A range is first:last or first:last:step, both ends included; a list has commas. Numbers are exact. Points are counted before any of them is
made, so that a grid of a billion points is refused at once.
"""

import itertools
import re
from collections.abc import Mapping, Sequence

from flint import fmpq

from analyzer.errors import InputError
from analyzer.language.claims import FUNCTIONS, PAIRS, QUANTITIES, Side, rational_value, read_side
from analyzer.numbers.exact import number_of, rational

MAX_POINTS = 20_000
"""Points of a grid: a second each would be hours."""
MAX_SIZES = 8
MAX_BOX_SIZES = 4
"""Real sizes: cutting a box of more takes too many cells."""
UNBOUNDED = ("oo", "+oo", "inf", "infinity", "∞")
NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]{0,30}")

Over = Mapping[str, "Sequence[int | float | str | fmpq] | str"] | Sequence[str]
"""Sizes by name, or texts such as "T=1:12"."""

Boxes = Mapping[str, "Sequence[int | float | str | None] | str"] | Sequence[str]
"""Ends of sizes by name, or texts such as "T=1:100" and "H=n+2:oo"."""

TAKES: Mapping[str, tuple[str, ...]] = {
    "e": ("T", "H", "eps"),
    "error": ("T", "H", "m", "eps"),
    "bound": ("T", "H", "m", "n"),
    "heads": ("T", "eps", "n"),
    "E_u": ("T", "u"),
    "mse": ("T", "H", "eps"),
    "sigma": (),
    "width": ("T", "eps"),
    "paper": ("T", "H", "n"),
    "tuned": ("T", "H", "n"),
}
"""Sizes that a quantity depends on, where they are given: T the lag, H heads, m coordinates m_h of a coupling or else neurons of the
read-out, eps the error asked for, n the rate of a bound, u the unit roundoff."""
NEEDS: Mapping[str, tuple[str, ...]] = {"heads": ("eps",), "width": ("eps",), "paper": ("T", "H"), "tuned": ("T", "H"), "E_u": ("T",)}
"""Sizes without which a quantity has no meaning; the lag T may also come with a target."""


def read_over(over: Over) -> dict[str, tuple[fmpq, ...]]:
    """The values of every size, in the order given."""
    pairs = list(over.items()) if isinstance(over, Mapping) else [_split(text) for text in over]
    if len(pairs) > MAX_SIZES:
        raise InputError(f"over has {len(pairs)} sizes, the limit is {MAX_SIZES}")
    result: dict[str, tuple[fmpq, ...]] = {}
    for name, values in pairs:
        check_name(name)
        if name in result:
            raise InputError(f"size {name} is given twice")
        room = MAX_POINTS
        for known in result.values():
            room //= len(known)
        result[name] = _values(name, values, room)
    return result


def read_boxes(box: Boxes) -> dict[str, tuple[Side, Side | None]]:
    """Both ends of every size, formulas in sizes of a grid; None is ∞."""
    pairs = list(box.items()) if isinstance(box, Mapping) else [_split(text) for text in box]
    if len(pairs) > MAX_BOX_SIZES:
        raise InputError(f"the box has {len(pairs)} sizes, the limit is {MAX_BOX_SIZES}")
    result: dict[str, tuple[Side, Side | None]] = {}
    for name, ends in pairs:
        check_name(name)
        if name in result:
            raise InputError(f"size {name} is given twice")
        texts = ends.split(":") if isinstance(ends, str) else [str(end) for end in ends]
        if len(texts) != 2 or not all(text.strip() for text in texts):
            raise InputError(f"the box {name}={str(ends)[:40]} is no range such as {name}=1:100 or {name}=8:oo")
        low, high = (text.strip() for text in texts)
        result[name] = (_end(low), None if high in UNBOUNDED or high == "None" else _end(high))
    return result


def _end(text: str) -> Side:
    side = read_side(text, what="end of a box")
    if side.quantities:
        raise InputError(f"the end {text[:40]!r} of a box has a quantity; ends are numbers, or formulas in sizes of the grid")
    return side


def end_at(name: str, side: Side, sizes: Mapping[str, fmpq]) -> fmpq:
    """An end of a box at a point of the grid."""
    unknown = sorted(side.sizes - set(sizes))
    if unknown:
        raise InputError(f"the box of {name} ends at {side.text[:40]!r}, and {unknown[0]} has no values in the grid")
    found = rational_value(side.root, sizes)
    if found is None:
        raise InputError(f"the box of {name} ends at {side.text[:40]!r}, which is no rational number")
    return found


def points(over: Mapping[str, Sequence[fmpq]]) -> list[dict[str, fmpq]]:
    """All combinations, the last size running fastest."""
    return [dict(zip(over, values, strict=True)) for values in itertools.product(*over.values())]


def check_name(name: str) -> None:
    """Refuse what cannot stand for a size."""
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise InputError(f"{str(name)[:40]!r} is no name of a size, such as T")
    if name in (*QUANTITIES, *FUNCTIONS, *PAIRS, "pi"):
        raise InputError(f"{name} has a meaning of its own in claims; a size has another name, such as T")


def _split(text: object) -> tuple[str, str]:
    if not isinstance(text, str) or text.count("=") != 1:
        raise InputError(f"{str(text)[:40]!r} is no range of sizes such as T=1:12 or H=8,16,32")
    name, values = text.split("=")
    return name.strip(), values.strip()


def _values(name: str, given: object, room: int) -> tuple[fmpq, ...]:
    if isinstance(given, str) and ":" in given:
        return _range(name, given, room)
    parts = given.split(",") if isinstance(given, str) else given
    if isinstance(parts, int | float | fmpq):
        parts = [parts]
    if not isinstance(parts, Sequence) or not parts:
        raise InputError(f"{name} has no values; give such as {name}=1:12")
    _check_count(name, len(parts), room)
    return tuple(_number(name, part) for part in parts)


def _range(name: str, text: str, room: int) -> tuple[fmpq, ...]:
    ends = text.split(":")
    if len(ends) > 3:
        raise InputError(f"{name}={text[:40]} is no range; give first:last or first:last:step")
    first, last, step = (_number(name, end) for end in (*ends, *["1"] * (3 - len(ends))))
    if last < first:
        raise InputError(f"{name}={text[:40]} is empty: the last is below the first")
    steps = (last - first) / step
    count = int(steps.p // steps.q) + 1
    _check_count(name, count, room)
    return tuple(first + step * k for k in range(count))


def _check_count(name: str, count: int, room: int) -> None:
    if count > room:
        raise InputError(f"the grid is too large: {name} has {count} values, and a grid at most {MAX_POINTS} points in all")


def _number(name: str, value: object) -> fmpq:
    if isinstance(value, str) and value.strip() in UNBOUNDED:
        raise InputError(f"{name} is unbounded here: a grid has an end; a claim for all sizes is proved on a box instead")
    if isinstance(value, str):
        try:
            found = rational(value.strip())
        except InputError:
            raise InputError(f"{name} has the value {value.strip()[:40]!r}, which is no number such as 8 or 0.01") from None
    else:
        found = number_of(value, name)
    if not found > 0:
        raise InputError(f"{name} is {value}; sizes are positive")
    return found
