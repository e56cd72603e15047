"""What a lag costs by relative and by absolute positions."""

from typing import cast

from lemmaformer.results.base import Plain, Result, reporter

TITLES = ("lag", "heads", "mixed", "bits ≥", "deep: layers", "bits ≥", "absolute: heads", "bits ≤")


class LagCosts(Result):
    """One row per lag."""

    shown_by = "console:show_lines"
    drawn_by = "figures.lag_costs:costs"

    @property
    def rows(self) -> list[Plain]:
        """Heads, bits and depth, by lag."""
        return cast("list[Plain]", self.data["rows"])

    @property
    def lines(self) -> list[str]:
        """The table, line by line."""
        table = [TITLES, *(tuple(map(str, row.values())) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in table]

    def show(self) -> None:
        reporter(self.shown_by)(self.lines)

    def _brief(self) -> str:
        return f" of {len(self.rows)} lags"
