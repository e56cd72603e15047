"""What all results share, and results with text or arrays of their own."""

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np

from analyzer.errors import InputError
from analyzer.notebooks import html_of

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
    section: int | None = None
    """Tokens of a section, where devices shared arrays."""
    form: str | None = None
    """In which form lin heads ran, where they were not scanned."""

    def as_dict(self) -> Plain:
        """Plain data, for JSON."""
        data: Plain = {"shape": list(self.outputs.shape), "dtype": self.dtype, "seconds": self.seconds}
        counts = {"not_finite": self.not_finite or None, "outside_alphabet": self.outside_alphabet, "beyond_length": self.beyond_length}
        return data | {name: count for name, count in {**counts, "section": self.section, "form": self.form}.items() if count is not None}

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
        if self.section:
            counted = f"the certificate with section={self.section} counts their rounding"
            found.append(f"states were passed from device to device every {self.section} tokens; {counted}")
        if self.form:
            found.append(f"lin heads ran in {self.form} form; the certificate with form={self.form} counts its rounding")
        return found

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def __repr__(self) -> str:
        return f"<Evaluation {self.outputs.shape} in {self.seconds:.3f} s>"


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
