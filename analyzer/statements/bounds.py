"""A bound as a result: the number, its parts, the formula behind it."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from analyzer.notebooks import drawn, html_of
from analyzer.numbers.exact import decimal_above

if TYPE_CHECKING:
    import sympy


@dataclass(frozen=True, repr=False)
class Bound:
    """What a theorem promises at given sizes, rounded up.

    >>> import lemmaformer as lf
    >>> bound = lf.bound("thm-3.1", lf.fixed(lags=(4,)), heads=256)
    >>> bound.total < 0.23, list(bound.parts)
    (True, ['extraction lag 4'])
    """

    theorem: str
    total: float
    """error ≤ total."""
    parts: dict[str, float]
    expression: "sympy.Expr"
    constants: "dict[str, sympy.Expr]" = field(default_factory=dict)
    """Values of symbols that are put into the statement: the paper's own, where they were asked for."""
    data: dict[str, Any] = field(default_factory=dict)
    """Sizes and parameters, as they stand in JSON."""
    claim: str = "error"
    """What is bounded."""

    @property
    def heads(self) -> int | None:
        """The heads it was evaluated at, or that it asks for."""
        found = self.data.get("heads")
        return None if found is None else int(found)

    @property
    def latex(self) -> str:
        """The formula in LaTeX."""
        from analyzer.statements.latex import latex

        return latex(self.expression)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {"theorem": self.theorem, **self.data, "expression": str(self.expression), "latex": self.latex}

    def __repr__(self) -> str:
        sizes = f", {self.heads} heads" if self.heads is not None else ""
        return f"<Bound {self.theorem}{sizes}: {self.claim} ≤ {decimal_above(self.total, 6)}>"

    def _repr_latex_(self) -> str:
        from analyzer.statements.latex import statement

        return statement(self.expression, self.constants)

    def _repr_html_(self) -> str | None:
        return html_of(self)


@dataclass(frozen=True, repr=False)
class Choices:
    """One bound under every choice of constants, beside the fewest heads that any layer needs.

    >>> import lemmaformer as lf
    >>> [row["bank"] for row in lf.bounds("thm-3.1", lf.fixed(lags=(4,)), error=0.01).rows]
    ['paper', 'tuned', 'minimal', 'lag law']
    """

    theorem: str
    rows: tuple[dict[str, Any], ...]
    error: float | None
    figure: str | None = None
    """Where its figure was written."""

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        written = {} if self.figure is None else {"figure": self.figure}
        return {"theorem": self.theorem, "error": self.error, "rows": [dict(row) for row in self.rows], **written}

    def draw(self, path: str | Path) -> Self:
        """The same with its figure written as a .pdf, .svg or .png file: heads or errors of every choice as bars."""
        return replace(self, figure=drawn(self, path))

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def __repr__(self) -> str:
        return f"<Bounds {self.theorem}: {', '.join(str(row['bank']) for row in self.rows)}>"
