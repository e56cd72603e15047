"""How notebooks show results: results ask here, and whoever can make pages says so, so that no room has to know the report."""

from collections.abc import Callable


def _one_line(result: object) -> str | None:
    """Nobody makes pages: a notebook prints the result's one line."""
    return None


_html: Callable[[object], str | None] = _one_line


def show_with(html: Callable[[object], str | None]) -> None:
    """Let `html` make the pages of all results."""
    global _html
    _html = html


def html_of(result: object) -> str | None:
    """The page of a result, for its `_repr_html_`."""
    return _html(result)
