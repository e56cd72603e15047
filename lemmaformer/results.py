"""What the functions of the library return: typed objects that know their JSON, their table and whether they are good news.

A result holds plain data, the very JSON that the command line prints, and gives the numbers that matter by name. Tables and figures are
made from it at the edge (`verify.report`): by `show`, by notebooks through `_repr_html_`, by `draw`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np

from analyzer.errors import InputError
from analyzer.notebooks import html_of
from analyzer.numbers.exact import decimal_above, decimal_below
from analyzer.statements.bounds import Bound, Choices
from analyzer.statements.theorem import Theorem
from verify.chain.certificate import Certificate

Plain = dict[str, object]
"""Plain data: what JSON can say."""
MOST_DRAWN = 64
"""Rows of a figure that are still read."""
Pointer = str
"""A function of the report as "module:name", so that tables and figures are loaded when they are asked for."""


def reporter(pointer: Pointer) -> Callable[..., Any]:
    """The function of `verify.report` that a pointer names."""
    module, _, name = pointer.partition(":")
    found: Callable[..., Any] = getattr(import_module(f"verify.report.{module}"), name)
    return found


@dataclass(frozen=True, repr=False)
class Result:
    """Base of what commands and functions return."""

    data: Plain
    shown_by: ClassVar[Pointer]
    """What prints its data."""
    drawn_by: ClassVar[Pointer | None] = None
    """What draws its data, if it has a figure."""

    def as_dict(self) -> Plain:
        """Plain data, for JSON."""
        return self.data

    @property
    def holds(self) -> bool:
        """Whether no claim was found to be violated."""
        return True

    def show(self) -> None:
        """Print it as tables."""
        reporter(self.shown_by)(self.data)

    def draw(self, path: str | Path) -> Self:
        """The same result with its figure written as a .pdf, .svg or .png file; `figure` is None if matplotlib is not installed."""
        if self.drawn_by is None:
            raise InputError(f"there is no figure of a {type(self).__name__}")
        drawn = reporter(self.drawn_by)(Path(path), self.data)
        return type(self)({**self.data, "figure": str(path) if drawn else None})

    def with_place(self, key: str, path: str | Path) -> Self:
        """The same result with the place that something was written to."""
        return type(self)({**self.data, key: str(path)})

    def _number(self, key: str) -> float | None:
        value = self.data.get(key)
        return None if value is None else float(cast(float, value))

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}{self._brief()}>"

    def _brief(self) -> str:
        return ""


class LagLimit(Result):
    """What a lag costs: heads by the lag law and, for an arithmetic, both sides of the least error.

    >>> import lemmaformer as lf
    >>> lf.limits.lag(4).min_heads
    4
    """

    shown_by = "limits:show_lag_limit"
    drawn_by = "figures:lag"

    @property
    def min_heads(self) -> int:
        """The fewest heads for any error below 1."""
        return cast(int, self.data["min_heads"])

    @property
    def lower(self) -> float | None:
        """No bank has a smaller E_u, or mean square error; None without an arithmetic."""
        return None if self._pair is None else self._pair["lower"]

    @property
    def upper(self) -> float | None:
        """A bank that was found has this E_u, or mean square error."""
        return None if self._pair is None else self._pair["upper"]

    @property
    def _pair(self) -> "Mapping[str, float] | None":
        return cast("Mapping[str, float] | None", self.data.get("mean_square", self.data["budgeted_error"]))

    def _brief(self) -> str:
        what = "mean square" if "mean_square" in self.data else "E_u"
        pair = "" if self.lower is None else f", {decimal_below(self.lower)} ≤ {what} ≤ {decimal_above(self.upper or 0.0)}"
        return f" lag {self.data['lag']}, {self.data['rpe']}: at least {self.min_heads} heads{pair}"


class Horizon(Result):
    """The largest lag with an error below 1/2, per arithmetic.

    >>> import lemmaformer as lf
    >>> lf.limits.horizon("lin", bits=8).horizon
    1
    """

    shown_by = "limits:show_horizon"
    drawn_by = "figures:horizon"

    @property
    def horizon(self) -> int | dict[str, int]:
        """The lag; by arithmetic where there are several."""
        return cast("int | dict[str, int]", self.data["horizon"])

    def draw(self, path: str | Path) -> Self:
        """Error against lag; the curves must have been asked for."""
        if "curves" not in self.data:
            raise InputError("the figure needs the curves: ask for the horizon with curves=True")
        return super().draw(path)

    def _brief(self) -> str:
        return f" {self.data['rpe']}: {self.horizon}"


class KernelLimit(Result):
    """Both sides of a memory kernel with H heads.

    >>> import lemmaformer as lf
    >>> found = lf.limits.kernel("exp(-s/5)", heads=1)
    >>> found.lower <= found.upper < 1e-30
    True
    """

    shown_by = "limits:show_kernel_limits"
    drawn_by = "figures:kernel"

    @property
    def lower(self) -> float:
        """No decays and no read-out do better."""
        return cast(float, self.data["lower"])

    @property
    def upper(self) -> float:
        """A fitted bank does this well."""
        return cast(float, self.data["upper"])

    def _brief(self) -> str:
        heads = f"{self.data['heads']} {self.data['rpe']} heads"
        return f" {self.data['kernel']}, {heads}: {decimal_below(self.lower)} ≤ error ≤ {decimal_above(self.upper)}"


class ArchitecturesTable(Result):
    """One memory kernel at several sizes of several architectures: both sides of the least worst-case error.

    >>> import lemmaformer as lf
    >>> found = lf.limits.architectures("exp(-s)", sizes=(1,))
    >>> [row["lower"] <= row["upper"] for row in found.rows]
    [True, True, True, True, True]
    """

    shown_by = "limits:show_architectures"
    drawn_by = "figures:architectures"

    @property
    def rows(self) -> Sequence[Plain]:
        """One row per architecture and size."""
        return cast("Sequence[Plain]", self.data["rows"])

    @property
    def needs(self) -> dict[str, int]:
        """By architecture the size below which the error asked for is certainly missed; empty if none was asked for."""
        return self._sizes("needs")

    @property
    def enough(self) -> dict[str, int | None]:
        """By architecture a size that certainly reaches the error asked for; None where none was found."""
        return self._sizes("enough")

    @property
    def holds(self) -> bool:
        """Whether no lower side exceeds an upper one, of the same class or of one that it contains."""
        return bool(self.data["order"])

    def _sizes(self, key: str) -> dict[str, Any]:
        rows = cast("Sequence[Plain]", self.data["architectures"])
        return {str(row["architecture"]): row[key] for row in rows if key in row}

    def _brief(self) -> str:
        return f" {self.data['kernel']}, sizes {self.data['sizes']}"


class CouplingLimit(Result):
    """Certified singular values of a coupling, and what no m_h coordinates can beat.

    >>> import lemmaformer as lf
    >>> len(lf.limits.coupling(lf.coupling("u*v"), rank=2).ranks)
    2
    """

    shown_by = "limits:show_coupling_limits"
    drawn_by = "figures:coupling"

    @property
    def ranks(self) -> Sequence[Plain]:
        """One row per m_h."""
        return cast("Sequence[Plain]", self.data["rows"])


class PermutationLimit(Result):
    """The least error without positions, from both sides.

    >>> import lemmaformer as lf
    >>> found = lf.limits.permutation(lf.sequence("x1 - x2", alphabet=(0, 1)))
    >>> found.lower, found.upper
    (1.0, 1.0)
    """

    shown_by = "limits:show_permutation"

    @property
    def holds(self) -> bool:
        """Whether the error that was asked about is not excluded."""
        return self.data["possible"] is not False

    @property
    def undecided(self) -> bool:
        """Whether an error was asked about, and is neither excluded nor reached."""
        return self.data["error"] is not None and self.data["possible"] is None

    @property
    def lower(self) -> float:
        """No network without positions errs by less."""
        return cast(float, self.data["lower"])

    @property
    def upper(self) -> float:
        """One without positions that was built errs by no more."""
        return cast(float, self.data["upper"])


class InvarianceLimit(Result):
    """Whether two couplings are one target.

    >>> import lemmaformer as lf
    >>> lf.limits.invariance(lf.coupling("-(u-v)**2"), other_rho="2*u*v - v**2").verdict
    'same'
    """

    shown_by = "limits:show_invariance"

    @property
    def verdict(self) -> str:
        """same, different or undecided."""
        return cast(str, self.data["verdict"])

    @property
    def holds(self) -> bool:
        """Whether no sequence was found at which they differ."""
        return self.verdict != "different"

    @property
    def undecided(self) -> bool:
        return self.verdict == "undecided"


class RnnLimit(Result):
    """A kernel as recurrent networks see it.

    >>> import lemmaformer as lf
    >>> lf.limits.rnn("exp(-s)").floor > 0.03
    True
    """

    shown_by = "limits:show_rnn_limits"
    drawn_by = "figures:order"

    @property
    def floor(self) -> float:
        """No causal model has a smaller mean square error once tokens have changed places."""
        return cast("Mapping[str, float]", self.data["floor"])["mean_square"]


class DpFreeLimit(Result):
    """Proposition 4.2 in numbers.

    >>> import lemmaformer as lf
    >>> lf.limits.dp_free().lower
    1
    """

    shown_by = "limits:show_dp_free"

    @property
    def lower(self) -> float:
        """Every dp-free attention layer errs by this much."""
        return cast(float, self.data["lower_bound"])


class SlopesAudit(Result):
    """Which lags heads with given slopes can resolve.

    >>> import lemmaformer as lf
    >>> lf.limits.slopes("4,3", longest=2).resolved
    [1, 2]
    """

    shown_by = "limits:show_slopes"
    drawn_by = "figures:slopes"

    @property
    def resolved(self) -> list[int]:
        """Lags whose best error is below 1/2."""
        return cast("list[int]", self.data["resolved"])


class ModelAudit(SlopesAudit):
    """Which lags the position part of a published model resolves, layer by layer; what is certified stands under `certified`."""

    shown_by = "limits:show_model"
    drawn_by = "figures:positions"

    @property
    def groups(self) -> Sequence[Plain]:
        """Layers that have a position part in common, one row each."""
        return cast("Sequence[Plain]", self.data["groups"])

    @property
    def undecided(self) -> bool:
        """Whether a lag is neither certainly below 1/2 nor certainly not."""
        return any(row["undecided"] for row in self.groups)

    def draw(self, path: str | Path) -> Self:
        """A grid of lags and layers, the first 64 rows."""
        drawn = reporter("figures:positions")(Path(path), {**self.data, "schemes": self.groups[:MOST_DRAWN]})
        return type(self)({**self.data, "figure": str(path) if drawn else None})

    def _brief(self) -> str:
        return f" {self.data['family']}, {len(self.groups)} position parts: lags {self.resolved or 'none'}"


class PositionsTable(Result):
    """Which lags schemes of relative positions resolve, one row per scheme.

    >>> import lemmaformer as lf
    >>> lf.limits.positions("stride", stride=3, longest=4, dtype="bfloat16").resolved
    {'stride': [3]}
    """

    shown_by = "limits:show_positions"
    drawn_by = "figures:positions"

    @property
    def schemes(self) -> Sequence[Plain]:
        """One row per scheme."""
        return cast("Sequence[Plain]", self.data["schemes"])

    @property
    def resolved(self) -> dict[str, list[int]]:
        """Lags whose least error is certainly below 1/2, by scheme."""
        return {str(row["scheme"]): cast("list[int]", row["resolved"]) for row in self.schemes}

    @property
    def undecided(self) -> bool:
        """Whether a lag is neither certainly below 1/2 nor certainly not."""
        return any(row["undecided"] for row in self.schemes)


class Checked(Result):
    """A certificate file of a limit, re-checked without a solver."""

    shown_by = "limits:show_checked"

    @property
    def holds(self) -> bool:
        return not self.data["faults"]

    def _brief(self) -> str:
        return f": {self.data['verdict']}"


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


class Comparison(Result):
    """Networks of one target side by side.

    >>> import lemmaformer as lf
    >>> one, two = (lf.build(lf.fixed(lags=(1,)), error=error) for error in (0.1, 0.01))
    >>> both = lf.compare(one, two, sequences=4)
    >>> both.holds, len(both.networks)
    (True, 2)
    """

    shown_by = "comparisons:show_compared"
    drawn_by = "figures:compared"

    @property
    def networks(self) -> Sequence[Plain]:
        """One column per network."""
        return cast("Sequence[Plain]", self.data["networks"])

    @property
    def holds(self) -> bool:
        return not any(column["faults"] for column in self.networks)

    def _brief(self) -> str:
        return f" of {', '.join(str(column['name']) for column in self.networks)}"


class Arms(Comparison):
    """A construction beside networks of its structure that were trained."""

    shown_by = "networks:show_arms"


class SpectrumOfLogits(Result):
    """Singular values of attention logits on data (sampled)."""

    shown_by = "networks:show_spectrum"
    drawn_by = "figures:spectrum"


class Experiment(Result):
    """A published experiment, repeated; numbers are sampled unless they are called certified."""

    def _brief(self) -> str:
        return f" {self.data.get('experiment', '')}"


class JlTable(Experiment):
    shown_by = "experiments:show_jl_table"
    drawn_by = "figures:table"


class JlFigure5(Experiment):
    shown_by = "experiments:show_fig_5"
    drawn_by = "figures:fig_5"


class JlPoints(Experiment):
    shown_by = "experiments:show_points"
    drawn_by = "figures:ranks"


class JlFigure1(Experiment):
    shown_by = "experiments:show_digits"
    drawn_by = "figures:digits"


class WeRegression(Experiment):
    shown_by = "experiments:show_we"
    drawn_by = "figures:squares"

    @property
    def holds(self) -> bool:
        return not self.data["violations"]


class WeLanguage(Experiment):
    shown_by = "experiments:show_language"
    drawn_by = "figures:losses"


class HorizonExperiment(Experiment):
    shown_by = "experiments:show_lags"
    drawn_by = "figures:lags"

    @property
    def holds(self) -> bool:
        return not self.data["violations"]


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


class Imported(Result):
    """Weights from elsewhere, as a bundle."""

    shown_by = "networks:show_imported"


class Demo(Result):
    """The tour."""

    shown_by = "demo:show_nothing"

    @property
    def holds(self) -> bool:
        acts = [self.data, *(cast(Plain, self.data[act]) for act in ("adaptive", "depth", "coupling"))]
        return all(cast(Plain, act["chain"])["verdict"] != "violated" for act in acts)


@dataclass(frozen=True, repr=False)
class Shown(Result):
    """A result with text of its own: lines for people beside the data for programs."""

    lines: tuple[str, ...] = field(default=())
    shown_by: ClassVar[Pointer] = "console:show_lines"

    def show(self) -> None:
        reporter(self.shown_by)(self.lines)


@dataclass(frozen=True, repr=False)
class Evaluation:
    """Outputs of a network, and what about the tokens its certificate does not cover."""

    outputs: np.ndarray
    dtype: str
    seconds: float
    not_finite: int
    outside_alphabet: int | None
    beyond_length: int | None

    def as_dict(self) -> Plain:
        """Plain data, for JSON."""
        data: Plain = {"shape": list(self.outputs.shape), "dtype": self.dtype, "seconds": self.seconds}
        counts = {"not_finite": self.not_finite or None, "outside_alphabet": self.outside_alphabet, "beyond_length": self.beyond_length}
        return data | {name: count for name, count in counts.items() if count is not None}

    def remarks(self) -> list[str]:
        """What is not covered, in words."""
        found = []
        if self.not_finite:
            found.append(f"{self.not_finite} outputs are not finite numbers")
        if self.outside_alphabet:
            found.append(
                f"{self.outside_alphabet} tokens are not in the target's alphabet: the certificate does not cover what depends on them"
            )
        if self.beyond_length:
            found.append(f"the certificate counts the rounding of shorter sequences than these of {self.beyond_length} tokens")
        return found

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def __repr__(self) -> str:
        return f"<Evaluation {self.outputs.shape} in {self.seconds:.3f} s>"


__all__ = ["Bound", "Certificate", "Choices", "Evaluation", "Plain", "Result", "Shown", "Theorem"]
