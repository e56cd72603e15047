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
    """What draws its data as a PNG file, if it has a figure."""

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
        """The same result with its figure written as a PNG file; `figure` is None if matplotlib is not installed."""
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

    @property
    def min_heads(self) -> int:
        """The fewest heads for any error below 1."""
        return cast(int, self.data["min_heads"])

    @property
    def lower(self) -> float | None:
        """No bank has a smaller E_u; None without an arithmetic."""
        pair = cast("Mapping[str, float] | None", self.data["budgeted_error"])
        return None if pair is None else pair["lower"]

    @property
    def upper(self) -> float | None:
        """A bank that was found has this E_u."""
        pair = cast("Mapping[str, float] | None", self.data["budgeted_error"])
        return None if pair is None else pair["upper"]

    def _brief(self) -> str:
        pair = "" if self.lower is None else f", {decimal_below(self.lower)} ≤ E_u ≤ {decimal_above(self.upper or 0.0)}"
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


class RnnLimit(Result):
    """A kernel as recurrent networks see it.

    >>> import lemmaformer as lf
    >>> lf.limits.rnn("exp(-s)").floor > 0.03
    True
    """

    shown_by = "limits:show_rnn_limits"

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


class Checked(Result):
    """A certificate file of a limit, re-checked without a solver."""

    shown_by = "limits:show_checked"

    @property
    def holds(self) -> bool:
        return not self.data["faults"]

    def _brief(self) -> str:
        return f": {self.data['verdict']}"


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


class JlFigure5(Experiment):
    shown_by = "experiments:show_fig_5"
    drawn_by = "figures:fig_5"


class JlFigure1(Experiment):
    shown_by = "experiments:show_digits"
    drawn_by = "figures:digits"


class WeRegression(Experiment):
    shown_by = "experiments:show_we"


class WeLanguage(Experiment):
    shown_by = "experiments:show_language"


class HorizonExperiment(Experiment):
    shown_by = "experiments:show_lags"
    drawn_by = "figures:lags"

    @property
    def holds(self) -> bool:
        return not self.data["violations"]


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

    def __repr__(self) -> str:
        return f"<Evaluation {self.outputs.shape} in {self.seconds:.3f} s>"


__all__ = ["Bound", "Certificate", "Choices", "Evaluation", "Plain", "Result", "Shown", "Theorem"]
