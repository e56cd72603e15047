"""Sums of exponentials with polynomial coefficients, f(q) = Σ_i P_i(q) e^{−ω_i q}: rigorous suprema on half lines.

Heads seen as functions of their decay are such sums (`analyzer.limits.budgeted_error`), and they cancel: f is of size u where its
terms are of size 1. So on a cell |q − q_0| ≤ r every term is expanded, e^{−ω(q_0 + rt)} = e^{−ωq_0} Σ_j (−ωr)^j/j! t^j, all terms are
added up, and only then is anything estimated. A term whose size on the cell is below a floor goes into the rest, and so does an expansion
after J terms, with |rest| ≤ 2 e^{−ωq_0} (ωr)^J/J! once ωr ≤ (J+1)/2. Cells grow geometrically, r = q_0/8, so a half line costs a number
of cells that is logarithmic in its ends; the polynomial on a cell is bounded piece by piece, bisecting where it matters.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from flint import arb, arb_poly

SHARPNESS = 2.0**-11
"""A supremum is pursued until it is known to this relative accuracy."""
RATIO = 8
"""q_0/r."""
PER_CELL = 64
"""Samples per cell, which spans a factor 9/7: a function with 10 half periods per factor e shows 12 samples in each."""
SMALLEST = arb(2) ** -48
"""Half-lengths below which a piece is not bisected."""
MAX_PIECES = 50_000
"""Pieces looked at before the bound is taken as it stands: a sum that oscillates faster than this is not one of ours."""


@dataclass(frozen=True)
class SumCell:
    """f at centre + radius·t, |t| ≤ 1, as a polynomial in t, up to `rest`."""

    centre: arb
    radius: arb
    polynomial: list[arb]
    rest: arb


@dataclass(frozen=True)
class ExponentialSum:
    """Σ_i P_i(q) e^{−ω_i q}, ω_i ≥ 0; `coefficients[i]` lists P_i from its constant term on."""

    frequencies: tuple[arb, ...]
    coefficients: tuple[tuple[arb, ...], ...]

    def cell(self, centre: arb, radius: arb, accuracy: arb) -> SumCell:
        """The sum on a cell of q ≥ 0, with a rest below the accuracy."""
        floor = accuracy / len(self.frequencies)
        total: list[arb] = []
        rest = arb(0)
        edge, near = centre + radius, (centre - radius).max(arb(0))
        for frequency, coefficients in zip(self.frequencies, self.coefficients, strict=True):
            height = abs(_horner([abs(c) for c in coefficients], edge)).upper()
            size = height * (-frequency * near).exp()
            if size < floor:
                rest += size
                continue
            step, power = frequency * radius, (-frequency * centre).exp()
            series: list[arb] = []
            while not (2 * step <= len(series) + 1 and abs(power) * height * 2 < floor):
                series.append(power)
                power = -power * step / len(series)
            rest += 2 * abs(power) * height
            if len(coefficients) > 1:
                series = (arb_poly(list(coefficients))(arb_poly([centre, radius])) * arb_poly(series)).coeffs()
            else:
                series = [coefficients[0] * term for term in series]
            total += [arb(0)] * (len(series) - len(total))
            for j, value in enumerate(series):
                total[j] += value
        return SumCell(centre, radius, total or [arb(0)], rest.upper())


def cells(function: ExponentialSum, end: arb, accuracy: arb) -> Iterator[SumCell]:
    """Cells that cover [0, end], each with a rest of at most about `accuracy`."""
    centre = radius = 1 / (2 * max([arb(1), *function.frequencies], key=lambda f: (f.log() if f > 0 else arb(0)).mid()))
    centre = radius = centre.mid()
    while True:
        yield function.cell(centre, radius, accuracy)
        right = (centre + radius).lower()
        if right >= end:
            return
        centre = (right * RATIO / (RATIO - 1)).mid()
        radius = (centre - right).upper().max((centre / RATIO).upper())


def supremum(function: ExponentialSum, end: arb, accuracy: arb, divisor: Callable[[arb], arb] | None = None) -> arb:
    """Upper bound of sup |f(q)|/divisor(q) over 0 ≤ q ≤ end; the divisor is positive and increasing, 1 if not given.

    `accuracy` is an absolute error that may be committed without regret, a small share of the supremum that is expected.
    """
    best = accuracy
    worst = arb(0)
    pieces = 0
    for cell in cells(function, end, accuracy / 64):
        first, second = _derivative(cell.polynomial), _derivative(_derivative(cell.polynomial))
        stack = [(arb(-1), arb(1))]
        while stack:
            left, right = stack.pop()
            pieces += 1
            middle, half = ((left + right) / 2).mid(), ((right - left) / 2).upper()
            over = arb(1) if divisor is None else divisor((cell.centre + cell.radius * left).lower().max(arb(0)))
            value = abs(_horner(cell.polynomial, middle))
            piece = middle + arb(0, half)
            bend = abs(_horner(second, piece)).upper()
            bound = ((value + abs(_horner(first, middle)) * half + bend * half * half / 2 + cell.rest) / over).upper()
            best = best.max(value.mid() if divisor is None else (value / divisor((cell.centre + cell.radius * right).upper())).mid())
            if bound - cell.rest <= best * (1 + SHARPNESS) or pieces > MAX_PIECES or half < SMALLEST:  # the rest stays
                worst = worst.max(bound)
            else:
                stack += [(left, middle), (middle, right)]
    return worst


def samples(function: ExponentialSum, end: arb, accuracy: arb, divisor: Callable[[arb], arb] | None = None) -> list[tuple[arb, arb]]:
    """(q, f(q)/divisor(q)) at places so dense that a function like those of `supremum` shows its peaks; a search aid, not a bound."""
    found = []
    for cell in cells(function, end, accuracy):
        for k in range(PER_CELL):
            t = arb(2 * k + 1 - PER_CELL) / PER_CELL
            place = (cell.centre + cell.radius * t).mid()
            value = _horner(cell.polynomial, t).mid()
            found.append((place, value if divisor is None else (value / divisor(place)).mid()))
    return found


def _derivative(polynomial: Sequence[arb]) -> list[arb]:
    return [j * c for j, c in enumerate(polynomial)][1:] or [arb(0)]


def _horner(polynomial: Sequence[arb], x: arb) -> arb:
    value = arb(0)
    for coefficient in reversed(polynomial):
        value = value * x + coefficient
    return value
