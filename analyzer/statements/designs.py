"""Designs: the choices in which a theorem's networks come, and the sizes that its bound, solved for an error, asks for.

`plan` sets the designs of all theorems about a target side by side. A theorem may name its own (`Theorem.designs`) and say what it asks for
(`Theorem.proven`); one that says nothing has every combination of the named choices among its options, and the sizes that its bound, solved
for the error, carries. So a theorem of another distribution has its rows without anything else having to know of it.
"""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from analyzer.errors import OptionValue
from analyzer.options import Options, choices_of, typed_fields

Design = Mapping[str, OptionValue]
"""Options of a network, by name; all others have their defaults."""
SHARED = ("dtype", "norm", "tokens", "decays")
"""Options that are no choices of a design: the arithmetic is asked for, and the error is that of the worst case."""
MOST_COMBINED = 24
"""Combinations of choices that are all set side by side; of more, every choice is taken by itself."""
MOST_WORK = 2**29
"""Operations, as theorems count them (`Proven.work`), up to which a network is built on the way through a table: 20 seconds of one core."""


@dataclass(frozen=True)
class Proven:
    """Sizes for which a theorem promises the error, in exact arithmetic; None where its bound does not speak of one."""

    layers: int | None = None
    heads: int | None = None
    """The most in a layer."""
    width: int | None = None
    """Neurons of the widest feed-forward network."""
    reason: str = ""
    """Why a size is missing."""
    width_for: str = "read-out"
    """What the widest feed-forward network is for."""
    attention: str = "heads"
    """The size that attention's share of the error is bought with."""
    drawn: int | None = None
    """Neurons that are built as they are asked for, if these are fewer: samples of lags end with the first that is certified."""
    work: float = 0.0
    """About how many operations the exact weights of its banks take."""

    @property
    def sizes(self) -> tuple[int, int, int] | None:
        """(layers, heads, width), if all are known."""
        found = (self.layers, self.heads, self.width)
        return None if None in found else found  # type: ignore[return-value]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        reason = {"reason": self.reason} if self.reason else {}
        return {"layers": self.layers, "heads": self.heads, "width": self.width, "width_for": self.width_for, **reason}


def bank_work(rpe: str, heads: int) -> float:
    """About what the exact weights of a minimal bank take to find and to certify: H² quotients of numbers whose digits grow with H, hence
    H⁴; lin heads, whose decays may be few-digit numbers, take a thirtieth of it (measured for 64 to 500 heads)."""
    return float(heads) ** 4 / (32 if rpe == "lin" else 1)


def interpolation_work(rpe: str, heads: int) -> float:
    """The same of the banks that the papers write down, whose decays are a progression (measured for 130 to 1900 heads: H³)."""
    return float(heads) ** 3 / (128 if rpe == "lin" else 4)


def depth_work(layers: int) -> float:
    """About what a certificate of many layers takes: each is carried through all that follow, with digits that grow (measured: L³)."""
    return 64.0 * layers**3


def named_choices(family: type[Options]) -> dict[str, tuple[OptionValue, ...]]:
    """Options with several named values and these values; the default first, which may be to leave the option out."""
    found: dict[str, tuple[OptionValue, ...]] = {}
    for entry, _ in typed_fields(family):
        words = choices_of(family, entry.name)
        if words and entry.name not in SHARED:
            default: Any = entry.default
            found[entry.name] = tuple(dict.fromkeys((default, *words)))
    return found


def combined(choices: Mapping[str, Sequence[OptionValue]]) -> list[Design]:
    """Every combination, or if these are too many the defaults and every other choice by itself."""
    combinations = 1
    for values in choices.values():
        combinations *= len(values)
    if combinations <= MOST_COMBINED:
        return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
    return [{}, *({name: value} for name, values in choices.items() for value in values[1:])]


def product_of(**choices: Iterable[OptionValue]) -> list[Design]:
    """All combinations of some options."""
    return [dict(zip(choices, values, strict=True)) for values in itertools.product(*choices.values())]
