"""Certificates of limits as files: primal and dual as exact numbers, re-checked without any solver.

    {"format": "lemmaformer-limit", "version": 1, "claim": "lag" | "slopes", "rpe": …, "unit": "1*2^-24", …,
     "entries": [{"lag": 3, "lower": …, "upper": …, "primal": {heads, weights, residual}, "dual": {edges, values}}]}

`lag` claims lower ≤ E_u(T) ≤ upper over all decays of the type, `slopes` the same over the weights of the given heads. Kernels have a
certificate of their own (`verify.limits.hankel`). A claim is false if the exact numbers in the file do not show it.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.limits import budgeted_error as theorem
from analyzer.numbers.exact import lower, magnitude, nearest, to_text, upper, working_precision
from constructions.files.places import write_file
from verify.limits.exact_parts import heads_as_data, read_bank, read_dual, read_exact, read_heads
from verify.limits.pairs import Audit, Pair, audit_lower, check_lag, entry_of, shown_by

FORMAT = "lemmaformer-limit"
VERSION = 1
MAX_BYTES = 1 << 26
SMALLEST_UNIT = fmpq(1, 2**96)
MAX_ENTRIES = 256
"""More of them are taken for damage."""


def certificate(
    pairs: Sequence[Pair] | Sequence[Audit], rpe: str, unit: fmpq, heads: Sequence[tuple[str, fmpq]] | None = None
) -> dict[str, Any]:
    """The file's content for pairs of one type and unit roundoff; with `heads`, the audit of those heads."""
    data: dict[str, Any] = {"format": FORMAT, "version": VERSION, "claim": "lag" if heads is None else "slopes"}
    data |= {"rpe": rpe, "unit": to_text(unit)}
    if heads is not None:
        data["heads"] = heads_as_data(heads)
    return data | {"entries": [entry_of(pair) for pair in pairs]}


def write_json(path: Path, data: dict[str, Any], overwrite: bool = False) -> None:
    """Write a certificate whole or not at all; a file that is there is refused unless `overwrite`."""
    write_file(path, (json.dumps(data, ensure_ascii=False) + "\n").encode(), overwrite)


def read_json(path: Path) -> Any:
    """The content of a certificate file."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} is larger than {MAX_BYTES} bytes")
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"cannot read {str(path)[:80]}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise InputError(f"{path} is not valid JSON: the certificate is damaged") from None


def check(data: Any) -> dict[str, Any]:
    """{claim, rpe, entries: [{lag, lower, upper}], faults}: every side recomputed from the exact numbers, false claims as faults."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError("this file is no certificate of a limit")
    if type(data.get("version")) is not int or data["version"] != VERSION:
        raise InputError(f"the certificate has version {str(data.get('version'))[:20]!r}; this program reads version {VERSION}")
    claim, rpe, entries = data.get("claim"), data.get("rpe"), data.get("entries")
    if not isinstance(rpe, str) or rpe not in theorem.FAMILIES or not isinstance(claim, str) or claim not in ("lag", "slopes"):
        raise InputError("a certificate claims something about lags or slopes, for lin, log or mixed heads")
    if not isinstance(entries, list) or not 1 <= len(entries) <= MAX_ENTRIES:
        raise InputError(f"a certificate has between 1 and {MAX_ENTRIES} entries")
    unit = read_exact(data.get("unit", ""))
    if not SMALLEST_UNIT <= unit < 1:
        raise InputError("the certificate's unit roundoff is not between 2^-96 and 1")
    heads = read_heads(data.get("heads"), rpe) if claim == "slopes" else None
    rows, faults = [], []
    for entry in entries:
        row, found = _check_entry(entry, rpe, unit, heads)
        rows.append(row)
        faults += found
    return {"claim": claim, "rpe": rpe, "entries": rows, "faults": faults}


def _check_entry(entry: Any, rpe: Any, unit: fmpq, heads: tuple[tuple[str, fmpq], ...] | None) -> tuple[dict[str, Any], list[str]]:
    if not isinstance(entry, dict) or type(entry.get("lag")) is not int:
        raise InputError("an entry of a certificate has a lag")
    lag = entry["lag"]
    check_lag(lag)
    bank, dual = read_bank(entry.get("primal"), rpe), read_dual(entry.get("dual"))
    if heads is not None and not set(bank.heads) <= set(heads):
        raise InputError(f"lag {lag}: the bank has heads that are not among those audited")
    least = lower(shown_by(dual, lag, unit, rpe) if heads is None else audit_lower(heads, dual, lag, unit))
    most = upper(theorem.upper_bound(bank, lag, unit))
    claimed = {name: _number(entry, name) for name in ("lower", "upper")}
    faults = []
    for name, found, holds in (("lower", least, claimed["lower"] <= least), ("upper", most, claimed["upper"] >= most)):
        if not holds:
            faults.append(f"lag {lag}: the certificate claims {name} {str(entry.get(name))[:40]!a}, its exact numbers show {found:.6g}")
    if claimed["lower"] > claimed["upper"]:
        faults.append(f"lag {lag}: the certificate claims a lower bound above its upper bound")
    return {"lag": lag, "lower": max(least, 0.0), "upper": most if math.isfinite(most) else None}, faults


def _number(entry: dict[str, Any], name: str) -> float:
    value = entry.get(name)
    try:
        return math.nan if isinstance(value, bool) or not isinstance(value, int | float) else float(value)
    except OverflowError:
        return math.nan


DRAWN_EDGE = 10**12
"""Edges of a dual sequence beyond this are left out of figures."""


def sides(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Both sides of every entry of a checked certificate for figures, rounded to floats: the bank's kernel with heads and weights, and the
    dual sequence δ as steps."""
    return [_sides(entry, data["rpe"]) for entry in data["entries"]]


def _sides(entry: dict[str, Any], rpe: str) -> dict[str, Any]:
    bank, dual = read_bank(entry["primal"], rpe), read_dual(entry["dual"])
    count = 2 * entry["lag"] + 8
    with working_precision(128 + max(0, magnitude(arb(bank.weight_sum)))):
        groups = [group for group in (bank.runs("lin"), bank.runs("log")) if group is not None]
        values = [sum(column, arb(0)) for column in zip(*(group.values(count) for group in groups), strict=True)] or [arb(0)] * count
        kernel = [float(v) for v in (values[0] + arb(bank.residual), *values[1:])]
    heads = [[kind, nearest(p), nearest(w)] for (kind, p), w in zip(bank.heads, bank.weights, strict=True)]
    near = [(edge, nearest(value)) for edge, value in zip(dual.edges, dual.values, strict=True) if edge <= DRAWN_EDGE]
    return {"lag": entry["lag"], "kernel": kernel, "heads": heads, "residual": nearest(bank.residual), "dual": near}
