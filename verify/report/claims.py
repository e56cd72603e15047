"""Claims: the verdict, one row per point, and the rows as a CSV file."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from analyzer.numbers.exact import decimal_above, decimal_below, from_text, nearest
from verify.report.console import console, show_lines, show_places, table

COLOURS = {"holds": "green", "proved": "green", "refuted": "red", "undecided": "yellow"}
MOST_ROWS = 100
"""Rows of a table; beyond, those that hold are left out first."""


def show_claim(result: dict[str, Any]) -> None:
    """Verdict, counts, a table of points and, if there is one, the counterexample."""
    out, rows = console(), result["rows"]
    given = result["basis"] != "certified"
    shown = rows if len(rows) <= MOST_ROWS else [row for row in rows if row["verdict"] != "holds"][:MOST_ROWS]
    names = list(rows[0]["sizes"])
    if shown:
        cells = [[*(f"{row['sizes'][name]:.6g}" for name in names), *_sides(row, result), _said(row, given)] for row in shown]
        out.print(table("", [*names, *result["sides"], "verdict"], cells))
    if len(shown) < len(rows):
        out.print(f"{len(rows) - len(shown)} rows are not shown; a CSV file has them all")
    for reason in dict.fromkeys(row["why"] for row in rows if row["verdict"] == "undecided"):
        show_lines([f"undecided: {reason}"])
    counts = ", ".join(f"{name} {count}" for name, count in result["counts"].items() if count)
    colour = COLOURS[result["verdict"]]
    basis = f"given data: {', '.join(result['given'])}" if given else "certified"
    out.print(f"[{colour}]{result['verdict']}[/] ({basis}): {counts} of {result['points']} points, {result['seconds']:.1f} s")
    if result["counterexample"] is not None:
        show_counterexample(result["counterexample"])
    if result.get("rates"):
        show_rates(result["rates"])
    show_places(result, "csv", "figure")


def show_boxes(result: dict[str, Any]) -> None:
    """One row per box: verdict, and where it is refuted or open."""
    out, names = console(), list(result["rows"][0]["sizes"])
    cells = []
    for row in result["rows"]:
        exact = {name: (from_text(low), None if high is None else from_text(high)) for name, (low, high) in row["box"].items()}
        ends = ", ".join(_range(name, nearest(low), None if high is None else nearest(high)) for name, (low, high) in exact.items())
        said = f"[{COLOURS[row['verdict']]}]{row['verdict']}[/]"
        cells.append([*(f"{row['sizes'][name]:.6g}" for name in names), ends, said, row["cells"], row["why"] or ""])
    out.print(table("", [*names, "for all", "verdict", "cells", ""], cells))
    touching = dict.fromkeys(where for row in result["rows"] for where in row["touching"])
    if touching:
        show_lines([f"both sides touch at {', '.join(touching)}"])
    for row in result["rows"]:
        for cell in row["undecided"][:3]:
            show_lines(["open: " + ", ".join(_range(name, low, high) for name, (low, high) in cell.items())])
    colour = COLOURS[result["verdict"]]
    out.print(f"[{colour}]{result['verdict']}[/]: {result['claim']}, {len(result['rows'])} boxes, {result['seconds']:.1f} s")


def _range(name: str, low: float, high: float | None) -> str:
    return f"{low:.6g} ≤ {name}" if high is None else f"{low:.6g} ≤ {name} ≤ {high:.6g}"


def show_rates(rates: Sequence[dict[str, Any]]) -> None:
    """Fitted slopes of both ends, with their spread, beside the exponents of the formulas."""
    claimed = list(dict.fromkeys(text for rate in rates for text in rate["claimed"]))
    cells = []
    for rate in rates:
        where = ", ".join(f"{name} = {value:.6g}" for name, value in rate["fixed"].items())
        exponents = ["-" if rate["claimed"][text] is None else f"{rate['claimed'][text]:.4g}" for text in claimed]
        cells.append([where or "all points", rate["side"], *(_slope(rate[name]) for name in ("certified", "witness")), *exponents])
    columns = ["", "side", "certified", "witness", *(f"claimed: {text}" for text in claimed)]
    title = f"slopes of the logarithms against log {rates[0]['size']}, fitted; \\[least … largest] between neighbours"
    console().print(table(title, columns, cells))


def _slope(fitted: dict[str, Any] | None) -> str:
    if fitted is None:
        return "-"
    error = "" if fitted["standard_error"] is None else f" ± {fitted['standard_error']:.2g}"
    return f"{fitted['slope']:.4g}{error} \\[{fitted['least']:.4g} … {fitted['largest']:.4g}]"


def _said(row: dict[str, Any], given: bool) -> str:
    """The verdict of a point; data of the user's own are not certified."""
    colour = COLOURS[row["verdict"]]
    return f"[{colour}]{row['verdict']}{' (given data)' if given else ''}[/]"


def _sides(row: dict[str, Any], result: dict[str, Any]) -> list[str]:
    if row["sides"] is None:
        return ["-"] * len(result["sides"])
    return [enclosed(pair) for pair in row["sides"]]


def enclosed(pair: Sequence[float | None]) -> str:
    """Both ends of a side, rounded outwards, or one number where they agree to six digits."""
    low, high = pair
    texts = ["-∞" if low is None else decimal_below(low, 6), "∞" if high is None else decimal_above(high, 6)]
    if low is not None and high is not None and f"{low:.6g}" == f"{high:.6g}":
        return f"{low:.6g}"
    return f"{texts[0]} … {texts[1]}"


def show_counterexample(found: dict[str, Any]) -> None:
    """Where a claim is refuted and, if it was written, what shows it."""
    where = ", ".join(f"{name} = {value:.6g}" for name, value in found["sizes"].items())
    lines = [f"counterexample: {where}: {found['why']}"]
    if "bundle" in found:
        lines.append(f"its network is in {found['bundle']}: witness {found['witness']:.6g}, certified {found['certified']:.6g}")
    if found.get("tokens"):
        place = f"token {found['position']} of {found['tokens']}"
        lines.append(f"at {place} it gives {found['output']:.6g}, {found['wanted']:.6g} is wanted: error {found['error']:.6g}")
        if not found["tokens_refute"]:
            lines.append("these tokens alone do not refute the claim; the witness does, with an infinite past")
    show_lines(lines)


def csv_of(result: dict[str, Any]) -> str:
    """One line per point: sizes, both ends of every side, verdict, why."""
    names = list(result["rows"][0]["sizes"])
    sides = [f"{side} {end}" for side in result["sides"] for end in ("lower", "upper")]
    content = io.StringIO()
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow([*names, *sides, "verdict", "why"])
    for row in result["rows"]:
        pairs = row["sides"] or [[None, None]] * len(result["sides"])
        ends = ["" if end is None else repr(end) for pair in pairs for end in pair]
        writer.writerow([*row["sizes"].values(), *ends, row["verdict"], row["why"] or ""])
    return content.getvalue()
