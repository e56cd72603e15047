"""Any result: on the console, or as the page of a notebook."""

from collections.abc import Sequence
from html import escape
from typing import Any

from analyzer.statements.bounds import Bound, Choices
from verify.chain.certificate import Certificate
from verify.report.bounds import show_bound, show_choices, show_comparison
from verify.report.certificates import show_certificate
from verify.report.console import recorded


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
        case _:
            return recorded(lambda: show(result))


def html_table(rows: Sequence[Sequence[object]]) -> str:
    """Rows as an HTML table."""
    return "<table>" + "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows) + "</table>"
