"""The console that everything is printed on, its tables, and lines that many reports end with."""

import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from rich.console import Console
from rich.table import Table

_PAGE: ContextVar[Console | None] = ContextVar("page", default=None)
"""Where reports go instead of the terminal: a page that is being made."""


def console() -> Console:
    """The terminal, or the page that is being made."""
    return _PAGE.get() or Console(highlight=False)


@contextmanager
def printed_on(page: Console) -> Iterator[None]:
    """Reports go to a page instead of the terminal."""
    token = _PAGE.set(page)
    try:
        yield
    finally:
        _PAGE.reset(token)


def recorded(print_it: Callable[[], None]) -> str:
    """What is printed, as HTML for a notebook."""
    page = Console(record=True, file=io.StringIO(), width=120, highlight=False)
    with printed_on(page):
        print_it()
    return page.export_html(inline_styles=True, code_format='<pre style="font-family:monospace;line-height:1.2">{code}</pre>')


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    """A table whose first column is flush left and whose others are flush right."""
    result = Table(title=title, title_justify="left")
    for k, column in enumerate(columns):
        result.add_column(column, justify="left" if k == 0 else "right")
    for row in rows:
        result.add_row(*(str(cell) for cell in row))
    return result


def show_lines(lines: Sequence[str]) -> None:
    """Text as it is."""
    for line in lines:
        console().print(line, soft_wrap=True, markup=False)


def show_findings(result: dict[str, Any]) -> None:
    """What the numbers of an experiment say, one finding a line."""
    for finding in result["findings"]:
        console().print(f"• {finding}", soft_wrap=True)


def show_seconds(result: dict[str, Any]) -> None:
    """What it took."""
    console().print(f"took {result['seconds']:.0f} s")


def show_places(result: dict[str, Any], *kinds: str) -> None:
    """Where the figure, or files of other kinds, went."""
    for kind in kinds or ("figure",):
        if result.get(kind):
            console().print(f"{kind} written to {result[kind]}", soft_wrap=True)
