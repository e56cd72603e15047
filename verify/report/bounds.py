"""Bounds: what a theorem promises at given sizes, under every choice of constants, or on two numbers of layers."""

from typing import Any

from analyzer.statements.bounds import Bound, Choices
from verify.report.console import console, table
from verify.report.words import lags_of, number


def show_bound(bound: Bound) -> None:
    """error ≤ …, what it is made of, and the sizes and parameters behind it; formulas are for JSON and the theorem's page."""
    out, data = console(), bound.data
    sizes = f" with {bound.heads} heads" if bound.heads is not None else ""
    choice = f", {data['tuning']} constants" if "tuning" in data else ""
    out.print(f"{bound.theorem}{sizes}{choice}: {bound.claim} ≤ {number(bound.total)}", soft_wrap=True)
    if len(bound.parts) > 1:
        out.print(table("", ["part", "error ≤"], [[name, number(value)] for name, value in bound.parts.items()]))
    if isinstance(data.get("rate"), int) and bound.heads:
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
