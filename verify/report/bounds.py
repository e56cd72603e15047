"""Bounds: what theorems promise at given sizes, under every choice of constants, on few or many layers, and beside what was built."""

from typing import Any

from rich.box import SIMPLE_HEAD

from analyzer.numbers.exact import decimal_above
from analyzer.statements.bounds import Bound, Choices
from verify.report.console import console, show_places, table
from verify.report.words import lags_of, number


def show_bound(bound: Bound) -> None:
    """error ≤ …, what it is made of, and the sizes and parameters behind it; formulas are for JSON and the theorem's page."""
    out, data = console(), bound.data
    sizes = f" with {bound.heads} heads" if bound.heads is not None else ""
    choice = f", {data['tuning']} constants" if "tuning" in data else ""
    out.print(f"{bound.theorem}{sizes}{choice}: {bound.claim} ≤ {number(bound.total)}", soft_wrap=True)
    if len(bound.parts) > 1:
        out.print(table("", ["part", "error ≤"], [[name, number(value)] for name, value in bound.parts.items()]))
    if isinstance(data.get("rate"), int) and bound.heads and "norm" not in data:
        constant = bound.total * float(bound.heads) ** data["rate"]
        out.print(f"rate n = {data['rate']}: C(n)/H^n with C({data['rate']}) = {constant:.4g} for these lags")
    hidden = ("latex", "expression", "memories", "attention", "heads", "tuning", "rate", "errors")
    for key, value in data.items():
        if key not in hidden:
            out.print(f"{key.replace('_', ' '):18} {_plain(value)}", soft_wrap=True)
    if "memories" in data:
        rows = [
            [m["name"], lags_of(m), f"{m['barron_norm']:.4g}", f"{m['barron_norm_log']:.4g}", m["width_theorem"]] for m in data["memories"]
        ]
        out.print(table("", ["memory", "lags", "‖g‖", "‖log g‖", "width asked"], rows))


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) if value else "-"
    return ", ".join(f"{key} {_plain(part)}" for key, part in value.items()) if isinstance(value, dict) else str(value)


def show_choices(found: Choices) -> None:
    """One bound under every choice of constants."""
    rows = [[row["bank"], row["heads"], number(row["error"]), "-" if row["rate"] is None else row["rate"]] for row in found.rows]
    asked = "at these heads" if found.error is None else f"for error {found.error:g}"
    console().print(table(f"{found.theorem} {asked}", ["constants", "heads", "error ≤", "rate n"], rows))
    console().print("minimal: built and certified for any error; lag law: no layer has fewer heads and an error below 1")
    show_places({"figure": found.figure})


def show_comparison(result: dict[str, Any]) -> None:
    """prop-4.5: the same lags on two layers and on M + 1 layers."""
    rows = []
    for name, row in result["comparison"].items():
        width = "-" if row["inner_width"] is None else row["inner_width"]
        errors = [f"{row['attention']:.4g}", f"{row['root_sum_square']:.4g}"]
        rows.append([name, row["layers"], row["heads"], row["heads"] * (row["layers"] - 1), width, *errors])
    title = f"longest lags {', '.join(map(str, result['lags']))}, {result['rpe']}, {result['tuning']} constants"
    columns = ["", "layers", "heads", "in all", "width", "Σ e_k ≤", "√Σe_k² ≤"]
    out = console()
    out.print(table(title, columns, rows))
    out.print("heads: per layer; width: Barron neurons of the widest inner FFN")


def show_plan(result: dict[str, Any]) -> None:
    """Every design with its layers/heads/width, proven and built, a table for each theorem; reasons stand below, one line each."""
    out, notes = console(), dict[str, int]()
    out.print(f"{result['target']}, error {result['error']:g}, {result['dtype']}: layers/heads/width", soft_wrap=True)
    for theorem in dict.fromkeys(row["theorem"] for row in result["rows"]):
        rows = [row for row in result["rows"] if row["theorem"] == theorem]
        told = _telling(rows)
        cells = [[_design(row, told), *_planned(row, result["build"], notes)] for row in rows]
        more = ["built", "certified", "binds"] if result["build"] else []
        page = table(theorem, ["design", "proven", *more, "front"], cells)
        page.box, page.pad_edge = SIMPLE_HEAD, False  # many narrow columns: without lines they fit into 80 characters
        for column in page.columns[1:]:
            column.no_wrap = True
        out.print(page)
    for why, note in notes.items():
        out.print(f"[{note}] {why}", soft_wrap=True, markup=False)
    built = f"; {result['built']} built and certified to {result['error']:g} or less" if result["build"] else ""
    out.print(f"{result['designs']} designs{built}. Proven: what the bound asks for in exact arithmetic", soft_wrap=True)
    show_places(result)


def _telling(rows: list[dict[str, Any]]) -> list[str]:
    """Options that tell rows apart; of those that tell the same ones apart the first."""
    names = dict.fromkeys(name for row in rows for name in row["options"])
    seen, kept = set[tuple[int, ...]](), list[str]()
    for name in names:
        values = [row["options"].get(name) for row in rows]
        groups = tuple(values.index(value) for value in values)
        if any(groups) and groups not in seen:
            kept.append(name)
        seen.add(groups)
    return kept or list(names)[:1]


def _design(row: dict[str, Any], told: list[str]) -> str:
    found = ((name, row["options"].get(name)) for name in told)
    return " ".join(
        f"{name} {value}" if name in ("depth", "layers", "stride") else str(value) for name, value in found if value is not None
    )


def _planned(row: dict[str, Any], build: bool, notes: dict[str, int]) -> list[str]:
    """Sizes, certified error, what binds, and which fronts a row is on; reasons are numbered."""
    on = ("both" if row["proven_front"] else "built") if row["front"] else "proven" if row["proven_front"] else ""
    proven = _triple(row["proven"]) + ("" if not row["proven"].get("reason") else f" {_note(notes, row['proven']['reason'])}")
    if not build:
        return [proven, on]
    built = _note(notes, row["why"]) if row["built"] is None else _triple(row["built"])
    certified = "-" if row["built"] is None else decimal_above(row["built"]["certified"], 3)
    return [proven, built, certified, (row["binds"] or "-").partition(":")[0], on]


def _note(notes: dict[str, int], reason: str) -> str:
    """The number of a reason, between brackets that are no markup."""
    return f"\\[{notes.setdefault(reason, len(notes) + 1)}]"


def _triple(sizes: dict[str, Any] | None) -> str:
    """layers/heads/width, with a dash for what is not known."""
    return "-" if sizes is None else "/".join(_whole(sizes[name]) for name in ("layers", "heads", "width"))


def _whole(value: int | None) -> str:
    if value is None or value < 10**6:
        return "-" if value is None else str(value)
    mantissa, _, exponent = f"{value:.2e}".partition("e")
    return f"{mantissa}e{int(exponent)}"
