"""Answers about many points: claims of a user, on grids and on boxes, and sweeps."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self, cast

from lemmaformer.results.base import Plain, Pointer, Result, reporter


class JudgedClaim(Result):
    """A claim and its rows."""

    @property
    def verdict(self) -> str:
        """refuted if one row is, undecided if one row is, else holds (at points) or proved (on boxes)."""
        return cast(str, self.data["verdict"])

    @property
    def holds(self) -> bool:
        return self.verdict != "refuted"

    @property
    def undecided(self) -> bool:
        """Whether no row refutes the claim, but one is open."""
        return self.verdict == "undecided"

    @property
    def rows(self) -> Sequence[Plain]:
        """One per point or box: sizes, verdict, why."""
        return cast("Sequence[Plain]", self.data["rows"])

    def _brief(self) -> str:
        return f" {self.data['claim']}: {self.verdict}"


class ClaimCheck(JudgedClaim):
    """A claim at every point of a grid.

    >>> import lemmaformer as lf
    >>> found = lf.check("heads >= T", ["T=1:4", "eps=0.01"], bank="tuned")
    >>> found.verdict, found.counts["holds"], found.rows[0]["sizes"]
    ('holds', 4, {'T': 1, 'eps': 0.01})
    """

    shown_by = "claims:show_claim"
    drawn_by = "figures:claim"

    @property
    def counts(self) -> Mapping[str, int]:
        """Points by verdict."""
        return cast("Mapping[str, int]", self.data["counts"])

    @property
    def counterexample(self) -> Plain | None:
        """The first point that refutes the claim and, where it was written, the network and the tokens that show it."""
        return cast("Plain | None", self.data["counterexample"])

    def write_csv(self, path: str | Path, *, overwrite: bool = False) -> Self:
        """The same result with its rows written as a CSV file."""
        from constructions.files.places import write_file

        write_file(Path(path), reporter("claims:csv_of")(self.data).encode(), overwrite)
        return self.with_place("csv", path)

    def _brief(self) -> str:
        reached = f"{self.counts[self.verdict]} of {self.data['points']} points"
        return f" {self.data['claim']}: {self.verdict} at {reached}, {self.data['basis']}"


class BoxCheck(JudgedClaim):
    """A claim between formulas for all real sizes of a box.

    >>> import lemmaformer as lf
    >>> found = lf.check("T**2 <= 9*T", box=["T=1:10"])
    >>> found.verdict, found.rows[0]["point"]
    ('refuted', {'T': '10'})
    """

    shown_by = "claims:show_boxes"


@dataclass(frozen=True, repr=False)
class Sweep(Result):
    """Many jobs, one row each: what varied, its status and what came out; failures and refusals are rows too.

    >>> import lemmaformer as lf
    >>> found = lf.sweep({"call": "limits.lag", "grid": {"lag": "1:3", "rpe": ["lin", "mixed"]}})
    >>> [(row["lag"], row["rpe"], row["min_heads"]) for row in found.rows][-2:]
    [(3, 'lin', 3), (3, 'mixed', 2)]
    """

    rows: tuple[Plain, ...] = field(default=())
    """One mapping per job, all with the same columns."""
    shown_by: ClassVar[Pointer] = "experiments:show_sweep"
    drawn_by: ClassVar[Pointer | None] = "figures:swept"

    @property
    def columns(self) -> list[str]:
        """The names of the columns.

        >>> import lemmaformer as lf
        >>> lf.sweep({"call": "limits.lag", "grid": {"lag": [4]}}).columns[:3]
        ['lag', 'status', 'reason']
        """
        return list(self.rows[0])

    @property
    def holds(self) -> bool:
        """Whether no job found a claim violated."""
        return not self.data["violated"]

    def to_csv(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the table to a .csv file, or with pyarrow to a .parquet file.

        >>> import lemmaformer as lf
        >>> found = lf.sweep({"call": "limits.lag", "grid": {"lag": [4, 5]}})
        >>> found.to_csv("heads.csv").read_text().splitlines()[0][:23]
        'lag,status,reason,rpe,m'
        """
        from constructions.files.places import write_file
        from lemmaformer.sweeps.tables import check_format, encoded

        check_format(Path(path))
        write_file(Path(path), encoded(self.rows, Path(path).suffix), overwrite)
        return Path(path)

    def show(self) -> None:
        reporter(self.shown_by)(self.data, self.rows)

    def draw(self, path: str | Path) -> Self:
        """The same with its figure written: results against the first number that varies, one colour per choice of the others."""
        drawn = reporter("figures:swept")(Path(path), self.data, self.rows)
        return type(self)({**self.data, "figure": str(path) if drawn else None}, self.rows)

    def with_place(self, key: str, path: str | Path) -> Self:
        return type(self)({**self.data, key: str(path)}, self.rows)

    def _brief(self) -> str:
        return f" of {self.data['call']}: {self.data['done']} done, {self.data['refused']} refused, {self.data['failed']} failed"
