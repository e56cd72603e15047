"""Which lags a scheme of relative positions resolves by position alone: E_u(T) < 1/2, lag by lag, both sides certified.

E_u(T) is the least ‖κ − 1_T‖₁ + u(|c| + Σ|a_h|) over what the scheme leaves free: output weights always; biases, decays and the number of
heads where they are learnt. A lag is *resolved* if the upper side is below 1/2, *unresolved* if the lower side is at least 1/2, else
*undecided*.

| scheme | given | law |
|---|---|---|
| alibi | slopes | linear programming per lag; the error of given lin heads never falls with T (monotone-law, 4) |
| t5 | buckets, window | bucket-law, 1 and 2 |
| kerple | nothing | the lin heads' (monotone-law, 3) |
| kerple | (p, r) of every head | linear programming; no lag that lin heads cannot resolve (monotone-law, 1) |
| table | reach | bucket-law |
| stride | stride, lin heads | bucket-law, 3 |
| lin | nothing | horizon |
| log, mixed | nothing | column generation; no lag two beyond the horizon of lin heads (monotone-law, 2) |
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from flint import fmpq

from analyzer.errors import Refusal
from analyzer.limits.bucket_law import Buckets, own_class
from analyzer.limits.budgeted_error import RpeSet
from analyzer.limits.monotone_law import PowerHead
from analyzer.numbers.exact import lower, upper
from verify.limits.pairs import audit, best_known, horizon, lag_limit, least_beyond, least_known, slopes_of
from verify.limits.powers import audit_powers

Scheme = Literal["alibi", "t5", "kerple", "table", "stride", "lin", "log", "mixed"]
T5 = Buckets()
"""The published buckets."""


@dataclass(frozen=True)
class LagCell:
    """lower ≤ E_u(T) ≤ upper for one lag under one scheme."""

    lag: int
    lower: float
    upper: float

    @property
    def verdict(self) -> str:
        """A comparison with NaN fails, so that it decides nothing."""
        return "resolved" if self.upper < 0.5 else "unresolved" if self.lower >= 0.5 else "undecided"


@dataclass(frozen=True)
class SchemeRow:
    """A scheme: what was given, the page of the law that settles most of its lags, how, and the lags one by one."""

    scheme: Scheme
    about: str
    law: str
    reason: str
    cells: tuple[LagCell, ...]


@dataclass(frozen=True)
class PositionsGiven:
    """What the schemes are given, besides the lags 1 to `longest` and the unit roundoff 2^−bits."""

    longest: int
    bits: int
    alibi: int = 8
    buckets: Buckets = T5
    window: int = 512
    kerple: tuple[PowerHead, ...] | None = None
    reach: int = 128
    stride: int = 2

    @property
    def unit(self) -> fmpq:
        return fmpq(1, 2**self.bits)


class Audits:
    """The rows of the schemes; what several of them rest on is computed once."""

    def __init__(self, given: PositionsGiven, schemes: Sequence[Scheme], step: Callable[[str], None] = lambda _: None) -> None:
        self.given, self.schemes, self.step = given, tuple(schemes), step
        self.lags = range(1, given.longest + 1)

    def rows(self) -> list[SchemeRow]:
        """One row per scheme."""
        return [self._row(scheme) for scheme in self.schemes]

    def _row(self, scheme: Scheme) -> SchemeRow:
        given, lags = self.given, self.lags
        match scheme:
            case "alibi":
                reason = "the given slopes by linear programming; their error never falls with the lag"
                return SchemeRow(scheme, f"{given.alibi} heads", "monotone-law", reason, tuple(self._alibi()))
            case "t5":
                about = f"{given.buckets.count} buckets, distance {given.buckets.distance}, window {given.window}"
                return SchemeRow(scheme, about, "bucket-law", "lags in one bucket are not told apart by any heads", tuple(self._t5()))
            case "table":
                cells = tuple(self._own(lag < given.reach, lag, given.reach) for lag in lags)
                return SchemeRow(scheme, f"reach {given.reach}", "bucket-law", "a bias for every distance below the reach", cells)
            case "stride":
                cells = tuple(self._seen(lag, lag // given.stride) if lag % given.stride == 0 else LagCell(lag, 1.0, 1.0) for lag in lags)
                reason = f"multiples of {given.stride} only, as lin heads see the quotients"
                return SchemeRow(scheme, f"stride {given.stride}, any heads", "bucket-law", reason, cells)
            case "kerple" if given.kerple is not None:
                reason = "the given heads by linear programming, as far as lin heads see"
                return SchemeRow(scheme, f"{len(given.kerple)} heads", "monotone-law", reason, tuple(self._kerple(given.kerple)))
            case "kerple":
                return SchemeRow(scheme, "any heads", "monotone-law", "as lin heads", tuple(self.lin))
            case "lin":
                return SchemeRow(scheme, "any heads", "pi-law", "the horizon of the arithmetic", tuple(self.lin))
            case "log" | "mixed":
                reason = "the horizon of the arithmetic, at most one lag beyond that of lin heads"
                return SchemeRow(scheme, "any heads", "budgeted-error", reason, tuple(self.log if scheme == "log" else self.mixed))

    def _own(self, alone: bool, lag: int, window: int) -> LagCell:
        """A lag with a class of its own, or one that is not told from another."""
        if not alone:
            return LagCell(lag, 1.0, 1.0)
        least, most = own_class(window, self.given.unit)
        return LagCell(lag, lower(least), upper(most))

    def _t5(self) -> Iterator[LagCell]:
        buckets, window = self.given.buckets, self.given.window
        for lag in self.lags:
            yield self._own(lag < window and buckets.partner(lag, window) is None, lag, window)

    def _alibi(self) -> Iterator[LagCell]:
        heads, floor = slopes_of(f"alibi:{self.given.alibi}", "lin"), 0.0
        for lag in self.lags:
            if floor < 0.5:
                self.step(f"alibi lag {lag}")
                found = audit(heads, lag, self.given.unit)
                floor = max(floor, found.lower)
                yield LagCell(lag, floor, found.upper)
            else:
                yield LagCell(lag, floor, 1.0)

    def _kerple(self, heads: tuple[PowerHead, ...]) -> Iterator[LagCell]:
        for lag, free in zip(self.lags, self.lin, strict=True):
            if free.lower >= 0.5:
                yield LagCell(lag, free.lower, 1.0)
            else:
                self.step(f"kerple lag {lag}")
                found = audit_powers(heads, lag, self.given.unit)
                yield LagCell(lag, max(free.lower, found.lower), found.upper)

    def _seen(self, lag: int, quotient: int) -> LagCell:
        """A lag that costs what the quotient costs lin heads."""
        return LagCell(lag, self.lin[quotient - 1].lower, self.lin[quotient - 1].upper)

    @cached_property
    def lin(self) -> list[LagCell]:
        """Lin heads of any decays; the error never falls with the lag, so that what is known at the horizon holds before it and beyond."""
        given = self.given
        found = horizon("lin", given.unit, given.bits, self.step)
        cells = []
        for lag in self.lags:
            if lag > found.horizon:
                cells.append(LagCell(lag, found.next_lower, 1.0))
                continue
            self.step(f"lin lag {lag}")
            pair = lag_limit("lin", lag, given.unit, given.bits)
            cells.append(LagCell(lag, pair.lower, min(pair.upper, found.upper)))
        return cells

    @cached_property
    def log(self) -> list[LagCell]:
        """Log heads of any decays; they are mixed heads, and what these cannot do they cannot."""
        return self._powers("log", (), ("mixed",) if "mixed" in self.schemes else ())

    @cached_property
    def mixed(self) -> list[LagCell]:
        """Lin and log heads; banks of one type are mixed banks."""
        banks = [self.lin] if "log" not in self.schemes else [self.lin, self.log]
        return self._powers("mixed", banks, ())

    def _powers(self, rpe: RpeSet, banks: Sequence[list[LagCell]], wider: Sequence[RpeSet]) -> list[LagCell]:
        """Lags from the longest: what serves it starts the search for the others."""
        cells = []
        for lag in reversed(self.lags):
            floor = self.lin[lag - 2].lower if lag > 1 else 0.0
            most = min((bank[lag - 1].upper for bank in banks), default=1.0)
            cells.append(LagCell(lag, floor, 1.0) if floor >= 0.5 else self._searched(rpe, lag, floor, most, wider))
        return cells[::-1]

    def _searched(self, rpe: RpeSet, lag: int, floor: float, most: float, wider: Sequence[RpeSet]) -> LagCell:
        unit = self.given.unit
        self.step(f"{rpe} lag {lag}")
        floor = max(floor, least_known(rpe, lag, unit, self.given.bits))
        if most >= 0.5 and floor < 0.5:
            most = min(most, best_known(rpe, lag, unit, self.given.bits))
        for other in wider if most >= 0.5 and floor < 0.5 else ():
            floor = max(floor, least_known(other, lag, unit, self.given.bits))
        if most >= 0.5 and floor < 0.5:
            try:
                floor = max(floor, least_beyond(rpe, lag, unit, self.step))
            except Refusal:
                return LagCell(lag, floor, most)
        return LagCell(lag, floor, most)


def float_buckets(buckets: Buckets, distances: Sequence[int], real: type[np.floating[Any]] = np.float32) -> list[int]:
    """The buckets as programs compute them, in float32 (here numpy's logarithm); `Buckets.of` is exact."""
    exact, s = buckets.exact, np.asarray(distances)
    ratio = np.log(np.maximum(s, exact).astype(real) / real(exact)) / real(np.log(buckets.distance / exact))
    large = exact + (ratio * real(buckets.count - exact)).astype(np.int64)
    return [int(b) for b in np.where(s < exact, s, np.minimum(large, buckets.count - 1))]


def float_differs(buckets: Buckets, window: int, real: type[np.floating[Any]] = np.float32) -> list[int]:
    """Distances of the window that a float logarithm puts into another bucket."""
    places = range(window)
    return [s for s, b in zip(places, float_buckets(buckets, places, real), strict=True) if b != buckets.of(s)]


def describe(row: SchemeRow) -> dict[str, Any]:
    """A row as plain data."""
    lags = {verdict: [cell.lag for cell in row.cells if cell.verdict == verdict] for verdict in ("resolved", "unresolved", "undecided")}
    first = next((cell for cell in row.cells if cell.verdict == "unresolved"), None)
    return {
        "scheme": row.scheme,
        "about": row.about,
        "law": row.law,
        "reason": row.reason,
        "resolved": lags["resolved"],
        "undecided": lags["undecided"],
        "first_unresolved": None if first is None else {"lag": first.lag, "lower": first.lower},
        "rows": [{"lag": c.lag, "lower": c.lower, "upper": c.upper, "verdict": c.verdict} for c in row.cells],
    }
