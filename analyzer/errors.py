"""The two ways in which an answer can fail to exist.

Messages speak of options by their names (`heads`, `bank`); how an option is spelt is the caller's business. The command line writes
flags, Python writes `depth='auto'`, both from the same data: a remedy is a mapping from options to values.
"""

import math
from collections.abc import Callable, Mapping
from decimal import ROUND_CEILING, Context

OptionValue = str | int | float | bool | tuple[int, ...] | tuple[float, ...] | None
"""What an option can be set to; None means: leave it out."""
Remedy = Mapping[str, OptionValue]
"""Options to change, all of them together, and the values that lead on."""


class LemmaformerError(Exception):
    """Base of our own errors; the message is one line that names the input and what would help."""


class InputError(LemmaformerError):
    """The input is malformed, out of range, or not of the kind that was asked for."""


def keyword(option: str, value: OptionValue) -> str:
    """An option as Python writes it."""
    return f"no {option}" if value is None else f"{option}={value!r}"


class Refusal(LemmaformerError):
    """The input is well formed, but no network of the requested class and size can do what is asked.

    `remedies` are ways out, the best one first; each has been found to lead on, or follows from the inequality in the reason.
    """

    def __init__(self, reason: str, *remedies: Remedy) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedies: tuple[dict[str, OptionValue], ...] = tuple(dict(remedy) for remedy in remedies)

    def text(self, write: Callable[[str, OptionValue], str]) -> str:
        """Reason and remedies on one line, `write` spelling every option."""
        ways = [" and ".join(write(option, value) for option, value in remedy.items()) for remedy in self.remedies]
        return f"{self.reason}; try {', or '.join(ways)}" if ways else self.reason

    def __str__(self) -> str:
        return self.text(keyword)


def rounded_up(value: float) -> float:
    """The least number of two significant digits that is not below `value`."""
    return float(Context(prec=2, rounding=ROUND_CEILING).create_decimal_from_float(value))


def larger_error(value: float) -> tuple[Remedy, ...]:
    """The remedy of asking for this error, in two digits; none if it is not finite."""
    return ({"error": rounded_up(value)},) if math.isfinite(value) else ()


def finer(dtype: str) -> tuple[Remedy, ...]:
    """The remedies of more bits."""
    return tuple({"dtype": finer} for finer in {"float32": ("float64", "exact"), "float64": ("exact",)}.get(dtype, ()))
