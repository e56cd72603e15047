"""A table of the user's own: a CSV file whose columns are sizes and quantities."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flint import fmpq

from analyzer.errors import InputError
from analyzer.language.grids import MAX_POINTS, NAME
from analyzer.numbers.exact import number_of, rational

MAX_BYTES = 1 << 26
USUAL_SIZES = ("T", "H", "n", "M", "m", "u", "eps", "p", "k", "d", "N", "L", "r")
"""Columns that are sizes where no grid says which are."""


@dataclass(frozen=True)
class GivenTable:
    """Rows of exact numbers by column."""

    path: Path
    columns: tuple[str, ...]
    rows: tuple[dict[str, fmpq], ...]

    def split(self, sizes: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Sizes and quantities: those of a grid and the rest or, without a grid, the usual names of sizes and the rest."""
        absent = [name for name in sizes if name not in self.columns]
        if absent:
            raise InputError(f"{self.path} has no column {absent[0]}, by which its rows are matched")
        chosen = sizes or tuple(name for name in self.columns if name in USUAL_SIZES)
        if not chosen:
            raise InputError(f"{self.path} has no column that is a size such as T or H; over says which are")
        low = next((name for name in chosen for row in self.rows if not row[name] > 0), None)
        if low is not None:
            raise InputError(f"{self.path} has a value of {low} that is not positive; sizes are positive")
        return chosen, tuple(name for name in self.columns if name not in chosen)

    def matched(self, points: Sequence[Mapping[str, fmpq]]) -> list[dict[str, fmpq]]:
        """The one row of every point: the one with its sizes."""
        index: dict[tuple[str, ...], list[dict[str, fmpq]]] = {}
        for row in self.rows:
            index.setdefault(tuple(str(row[name]) for name in points[0]), []).append(row)
        result = []
        for sizes in points:
            found = index.get(tuple(str(value) for value in sizes.values()), [])
            if len(found) != 1:
                shown = ", ".join(f"{name} = {value}" for name, value in sizes.items())
                raise InputError(f"{self.path} has {len(found) or 'no'} rows with {shown}; one is needed")
            result += found
        return result


def read_table(path: Path) -> GivenTable:
    """The table in a CSV file with a line of names."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{str(path)[:80]} is larger than {MAX_BYTES} bytes")
        with path.open(newline="", encoding="utf-8-sig") as file:
            lines = [line for line in csv.reader(file) if line]
    except OSError as error:
        raise InputError(f"cannot read {str(path)[:80]}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error, ValueError):
        raise InputError(f"{str(path)[:80]} is no CSV file of numbers") from None
    if len(lines) < 2:
        raise InputError(f"{str(path)[:80]} has no rows below a line of names")
    names = tuple(name.strip() for name in lines[0])
    if not all(NAME.fullmatch(name) for name in names) or len(set(names)) < len(names):
        raise InputError(f"{str(path)[:80]}: the first line must hold different names such as T,H,e")
    if len(lines) - 1 > MAX_POINTS:
        raise InputError(f"{str(path)[:80]} has {len(lines) - 1} rows, the limit is {MAX_POINTS}")
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(names):
            raise InputError(f"{str(path)[:80]}, row {number}: {len(line)} cells instead of {len(names)}")
        rows.append({name: _cell(cell.strip(), f"{str(path)[:80]}, row {number}, {name}") for name, cell in zip(names, line, strict=True)})
    return GivenTable(path, names, tuple(rows))


def _cell(text: str, where: str) -> fmpq:
    """Decimals are exact; what is no short decimal is read as a float."""
    try:
        return number_of(text, where)
    except InputError:
        pass
    try:
        return rational(float(text))
    except (ValueError, InputError):
        raise InputError(f"{where}: {text[:40]!r} is no finite number") from None
