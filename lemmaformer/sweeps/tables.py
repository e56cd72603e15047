"""Rows as a table: the parameters that vary, then what came out, with dots between the levels of a result; CSV, or Parquet.

Equal jobs give equal bytes: rows are in the order of the jobs, columns in the order in which the rows bring them, and times are left to the
journal.
"""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from analyzer.errors import InputError
from lemmaformer.sweeps.jobs import Row

FORMATS = (".csv", ".parquet")
COLUMNS = ("status", "reason", "key")
"""Columns of every table."""
TIMES = "seconds"


def check_format(path: Path) -> None:
    """Refuse a table that could not be written in the end."""
    if path.suffix not in FORMATS:
        raise InputError(f"{str(path)[:80]} is neither a {' nor a '.join(FORMATS)} file")
    if path.suffix == ".parquet" and find_spec("pyarrow") is None:
        raise InputError("Parquet needs pyarrow, which is not installed: pip install 'lemmaformer[cluster]'; .csv needs nothing")


def table(points: Sequence[Mapping[str, Any]], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One flat mapping per job, all with the same columns; None where a job has nothing to say."""
    flat = [_line(point, row) for point, row in zip(points, rows, strict=True)]
    columns = list(dict.fromkeys(name for line in flat for name in line))
    return [{name: line.get(name) for name in columns} for line in flat]


def _line(point: Mapping[str, Any], row: Row) -> dict[str, Any]:
    found = dict(_flat({name: value for name, value in row.items() if name not in COLUMNS}))
    said = {**point, "status": row["status"], "reason": row["reason"]}
    new = {name: value for name, value in found.items() if name not in point or value != point[name]}
    told = {f"result.{name}" if name in point else name: value for name, value in new.items()}
    return said | told | {"key": row["key"]}


def _flat(data: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{before}{name}.")
        elif name != TIMES:
            yield f"{before}{name}", value


def encoded(lines: Sequence[Mapping[str, Any]], form: str) -> bytes:
    """A table as the content of a file."""
    return _parquet(lines) if form == ".parquet" else _csv(lines)


def _csv(lines: Sequence[Mapping[str, Any]]) -> bytes:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(lines[0])
    writer.writerows([_cell(value) for value in line.values()] for line in lines)
    return out.getvalue().encode()


def _cell(value: Any) -> str:
    """Text as it is, nothing for None, and JSON for everything else."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _parquet(lines: Sequence[Mapping[str, Any]]) -> bytes:
    import pyarrow
    import pyarrow.parquet

    columns = {name: _typed([line[name] for line in lines]) for name in lines[0]}
    out = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table({name: pyarrow.array(*column) for name, column in columns.items()}), out)
    return out.getvalue()


def _typed(values: Sequence[Any]) -> tuple[list[Any], Any]:
    """A column of one type: whole numbers, numbers, truth values, else text as in CSV."""
    import pyarrow

    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return list(values), pyarrow.bool_()
    small = all(abs(value) < 1 << 63 for value in values if type(value) is int)
    if kinds == {int} and small:
        return list(values), pyarrow.int64()
    if kinds and kinds <= {int, float} and small:
        return [None if value is None else float(value) for value in values], pyarrow.float64()
    return [None if value is None else _cell(value) for value in values], pyarrow.string()
