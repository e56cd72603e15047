"""How notebooks show results, and who draws them: results ask here, and whoever can make pages and figures says so, so that no room has to
know the report."""

from collections.abc import Callable
from pathlib import Path

from analyzer.errors import InputError


def _one_line(result: object) -> str | None:
    """Nobody makes pages: a notebook prints the result's one line."""
    return None


def _nothing(result: object, path: Path) -> bool:
    """Nobody draws."""
    raise InputError("figures are drawn by the package lemmaformer: import it first")


_html: Callable[[object], str | None] = _one_line
_draw: Callable[[object, Path], bool] = _nothing


def show_with(html: Callable[[object], str | None], draw: Callable[[object, Path], bool]) -> None:
    """Let `html` make the pages of all results, and `draw` their figures."""
    global _html, _draw
    _html, _draw = html, draw


def html_of(result: object) -> str | None:
    """The page of a result, for its `_repr_html_`."""
    return _html(result)


def drawn(result: object, path: str | Path) -> str | None:
    """The figure of a result as a file, for its `draw`: the place, or None where matplotlib is not installed."""
    return str(path) if _draw(result, Path(path)) else None
