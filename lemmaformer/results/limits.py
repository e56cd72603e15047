"""Answers about limits: what no network of a class can do."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self, cast

from analyzer.errors import InputError
from analyzer.numbers.exact import decimal_above, decimal_below
from lemmaformer.results.base import Plain, Result, reporter

MOST_DRAWN = 64
"""Rows of a figure that are still read."""


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
    def source(self) -> str | None:
        """Whether the pair comes from a shipped certificate, re-checked, from a search, or from the lag law; None without an arithmetic."""
        return cast("str | None", self.data.get("source"))

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
