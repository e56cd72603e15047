"""Any result: on the console, as the page of a notebook, or as a figure."""

from collections.abc import Sequence
from dataclasses import fields
from html import escape
from pathlib import Path
from typing import Any

from analyzer.errors import InputError
from analyzer.options import Options
from analyzer.statements.bounds import Bound, Choices
from analyzer.statements.registry import Registry
from verify.chain.certificate import Certificate, Margin, Part
from verify.report.bounds import show_bound, show_choices, show_comparison
from verify.report.certificates import show_certificate
from verify.report.console import recorded
from verify.report.networks import network_rows


def show(result: Any) -> None:
    """Certificates and bounds have tables of their own, the others know theirs."""
    match result:
        case Certificate():
            show_certificate(result)
        case Bound() if "comparison" in result.data:
            show_comparison(result.as_dict())
        case Bound():
            show_bound(result)
        case Choices():
            show_choices(result)
        case _:
            result.show()


def html(result: Any) -> str:
    """The same as HTML; bounds are plain tables beside their LaTeX."""
    match result:
        case Bound():
            parts = ((name, f"≤ {part:.6g}") for name, part in result.parts.items())
            sizes = [(key, value) for key, value in result.data.items() if isinstance(value, int | float | str)]
            return html_table([(result.claim, f"≤ {result.total:.6g}"), *parts, *sizes])
        case Choices():
            names = ("bank", "heads", "error", "rate")
            return html_table([names, *(["" if row[name] is None else row[name] for name in names] for row in result.rows)])
        case Margin() | Part() | Options():
            return html_table(
                [(type(result).__name__, ""), *((entry.name, _cell(getattr(result, entry.name))) for entry in fields(result))]
            )
        case Registry():
            return html_table([(name, theorem.title) for name, theorem in result.items()])
        case _ if hasattr(result, "summary"):
            return html_table(network_rows(result.summary()))
        case _ if hasattr(result, "remarks"):
            return html_table([*result.as_dict().items(), *(("remark", remark) for remark in result.remarks())])
        case _ if hasattr(result, "describe"):
            described = result.describe()
            return html_table([("target", result.description), *((key, _cell(value)) for key, value in described.items())])
        case _:
            return recorded(lambda: show(result))


def _cell(value: object) -> str:
    """A value of an option or of a target, in one cell."""
    match value:
        case None:
            return "-"
        case float():
            return f"{value:.6g}"
        case dict():
            return ", ".join(f"{key} {_cell(part)}" for key, part in value.items())
        case list() | tuple():
            return "; ".join(map(_cell, value)) if any(isinstance(part, dict) for part in value) else ", ".join(map(_cell, value))
        case _:
            return str(value)


def draw(result: Any, path: Path) -> bool:
    """The figure of a certificate or of choices; False where matplotlib is not installed."""
    from verify.report import figures

    match result:
        case Certificate():
            return figures.chain(path, result.as_dict())
        case Choices():
            return figures.choices(path, result.as_dict())
        case _:
            raise InputError(f"there is no figure of a {type(result).__name__}")


def html_table(rows: Sequence[Sequence[object]]) -> str:
    """Rows as an HTML table."""
    return "<table>" + "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows) + "</table>"
