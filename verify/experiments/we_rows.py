"""What an experiment of [WE] reports: rows with their errors and floors, what the print claims, and what the numbers say in words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from verify.theorems.floors import SIGMAS

How = Literal["exact", "sampled", "fitted"]
ROUNDED = 2.0**-30
"""Room for the rounding of float64 where an exact error is held against a floor: thousands of roundings."""


@dataclass(frozen=True)
class WeRule:
    """Numbers from `least` to `most` agree with the print."""

    least: float
    most: float

    def agrees(self, value: float) -> bool:
        return self.least <= value <= self.most


FAILS, SUFFICES = WeRule(0.1, float("inf")), WeRule(0, 0.01)
"""Of an error over the variance of the target: a network fails if it misses a tenth of it, and suffices if it misses a hundredth."""
USELESS = WeRule(0, 2)
"""Of an error before over one after: raising a size does not help if it fails to halve the error."""
MARGINAL = WeRule(-0.01, 0.01)
"""Of a gain over the variance of the target."""


@dataclass(frozen=True)
class WeRow:
    """Mean square errors, one per seed, beside the variance of the target: what the best constant has."""

    name: str
    target: str
    rpe: str
    heads: int
    width: int | None
    how: How
    errors: tuple[float, ...]
    variance: float
    published: float | None = None
    floor: float | None = None
    """What no weights and no slopes can beat; None where nothing is proved (tables, FFNs)."""
    held_out: int | None = None
    """Sequences of a sampled error."""

    @property
    def error(self) -> float:
        """The median over the seeds."""
        return float(np.median(self.errors))

    @property
    def below_its_floor(self) -> bool:
        """Whether an error is below the floor: exact ones beyond rounding, sampled ones beyond sampling error.

        A linear form of independent ±1 or uniform tokens has a fourth moment of at most three times its variance squared, so the mean of n
        squares is off by a share √(2/n), about.
        """
        room = ROUNDED if self.held_out is None else SIGMAS * (2 / self.held_out) ** 0.5
        return self.floor is not None and min(self.errors) < self.floor * (1 - room)


@dataclass(frozen=True)
class PrintedClaim:
    """What the print says, as a number of ours and the rule for it.

    `measure`: the error of the row `of`, its share of the target's variance, the ratio of `of` over `to`, or the gain (of − to)/variance.
    """

    text: str
    of: str
    rule: WeRule
    measure: Literal["error", "share", "ratio", "gain"] = "share"
    to: str | None = None

    def value(self, rows: dict[str, WeRow]) -> float:
        row = rows[self.of]
        other = 0.0 if self.to is None else rows[self.to].error
        return {
            "error": lambda: row.error,
            "share": lambda: row.error / row.variance,
            "ratio": lambda: row.error / other,
            "gain": lambda: (row.error - other) / row.variance,
        }[self.measure]()


def agreement(judged: Sequence[tuple[PrintedClaim, float]]) -> list[str]:
    """Which claims hold for our numbers, and which do not."""
    result = []
    for flag, words in ((True, "agrees with the print"), (False, "does not agree with the print")):
        named = [f"{c.text} ({c.measure} {value:.3g})" for c, value in judged if c.rule.agrees(value) is flag]
        if named:
            result.append(f"{words}: {'; '.join(named)}")
    return result


def sentences(name: str, rows: dict[str, WeRow]) -> list[str]:
    """What the rows say beyond agreement; rows that were not run are not spoken of."""
    speak = {"we-1b": _on_slopes, "we-2a": _on_neurons, "we-2b": _on_heads, "we-4a": _on_heavy_tail, "we-4b": _on_fast_decay}
    return list(speak[name](rows)) if name in speak else []


def floor_sentences(rows: Sequence[WeRow]) -> Iterator[str]:
    """Whether an error is below what no slopes and weights can beat, and where that says most."""
    floored = [row for row in rows if row.floor]
    below = [row.name for row in floored if row.below_its_floor]
    if below:
        yield f"below a proved floor, so that the floor or the error is wrong: {', '.join(below)}"
    elif floored:
        most = max(floored, key=lambda row: (row.floor or 0.0) / row.variance)
        yield (
            f"none of {len(floored)} rows is below its mean-square floor; no slopes and weights of {most.name} leave less than "
            f"{(most.floor or 0.0) / most.variance:.2g} of the variance"
        )
    beyond = [row for row in floored if row.published is not None and row.published < (row.floor or 0.0)]
    if beyond:
        named = "; ".join(f"{row.published:.3g} below {row.floor:.3g} ({row.name})" for row in beyond)
        yield f"published numbers that slopes without an FFN cannot have, whatever training does: {named}"


def _share(row: WeRow) -> str:
    return f"{row.error / row.variance:.2g}"


def _on_slopes(rows: dict[str, WeRow]) -> Iterator[str]:
    far = [row for row in rows.values() if row.target.startswith("x_48")]
    slopes, tables = [row for row in far if row.rpe != "table"], [row for row in far if row.rpe == "table"]
    if slopes and tables:
        best, least = min(slopes, key=lambda row: row.error), min(tables, key=lambda row: row.error)
        yield (
            f"at the published positions slopes leave at least {_share(best)} of the variance ({best.name}), a learnt bias per distance "
            f"{_share(least)} ({least.name})"
        )


def _on_neurons(rows: dict[str, WeRow]) -> Iterator[str]:
    for row in rows.values():
        if row.target.endswith("even draw"):
            yield f"with weights w_k that nearly cancel, m = {row.width} leaves {_share(row)} of the variance: flat heads do not find x_99"
        if row.rpe == "lin" and row.target == "x_99":
            yield f"{row.heads} slopes leave {_share(row)} of the variance at the published position, whatever m"


def _on_heads(rows: dict[str, WeRow]) -> Iterator[str]:
    table = next((row for row in rows.values() if row.rpe == "table" and row.heads == 1), None)
    if table is not None:
        verdict = "so H does not matter with tables" if table.error < 0.01 * table.variance else "so H matters with tables"
        yield f"one table head leaves {_share(table)} of the variance, {verdict}: its softmax can put 1/3 on each of three distances"
    slopes = [row for row in rows.values() if row.rpe != "table" and row.target != "lags 1, 2, 3"]
    if slopes:
        best = min(slopes, key=lambda row: row.error)
        yield f"slopes at such distances leave at least {_share(best)} of the variance ({best.name})"
    near = [row for row in rows.values() if row.target == "lags 1, 2, 3"]
    fits, runs = [r for r in near if r.how == "fitted"], [r for r in near if r.how == "exact" and r.rpe == "lin"]
    if fits and runs:
        first, last, few, many = fits[0], fits[-1], min(runs, key=lambda r: r.heads), max(runs, key=lambda r: r.heads)
        yield (
            f"lags 1, 2, 3 are within reach of slopes: with weights fitted at given slopes H = {first.heads} to {last.heads} "
            f"takes the error from {first.error:.2g} to {last.error:.2g}, training "
            f"takes it from {few.error:.2g} (H = {few.heads}) to {many.error:.2g} (H = {many.heads})"
        )


def _on_heavy_tail(rows: dict[str, WeRow]) -> Iterator[str]:
    trained = [row for row in rows.values() if row.rpe == "lin" and row.how == "exact"]
    fits = [row for row in rows.values() if row.rpe == "lin" and row.how == "fitted"]
    if trained and fits:
        best = min(fits, key=lambda row: row.error)
        worst = max(trained, key=lambda row: row.error)
        yield (
            f"64 slopes can do {best.error:.2g} ({best.name}): an error such as the published 0.19 is what training finds, not a limit; "
            f"ours lie between {min(row.error for row in trained):.2g} and {worst.error:.2g} ({worst.name})"
        )


def _on_fast_decay(rows: dict[str, WeRow]) -> Iterator[str]:
    energy = sum(np.exp(-10.0 * t) for t in range(1, 10))
    log = next((row for row in rows.values() if row.rpe == "log" and row.how == "exact"), None)
    if log is not None:
        yield (
            f"all of ρ beyond the current token weighs {energy:.2g}: the published {log.published:.2g} of log heads is more than a network "
            f"that passes on the current token and nothing else has; ours have {log.error:.2g} ({log.name})"
        )
