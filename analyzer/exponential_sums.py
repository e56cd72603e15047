"""Sums of exponentials with polynomial coefficients, f(q) = Σ_i P_i(q) e^{−ω_i q}: rigorous suprema on half lines.

Heads seen as functions of their decay are such sums (`analyzer.theorems.budgeted_error`), and they cancel: f is of size u where its
terms are of size 1. So f is expanded around the centre q_0 of a cell, with all its terms added up before anything is estimated, and the
rest of the expansion is bounded by Cauchy's inequality on the disc |q − q_0| ≤ ϱ,

    |f(q_0 + h) − Σ_{j<M} f_j h^j| ≤ sup_disc |f| · (r/ϱ)^M / (1 − r/ϱ),      |h| ≤ r,

with the crude sup_disc |f| ≤ Σ_i |P_i|(q_0 + ϱ) e^{−ω_i (q_0 − ϱ)}. Cells grow geometrically (r = q_0/8, ϱ = q_0), so a half line costs a
number of cells that is logarithmic in its ends; the polynomial on a cell is bounded piece by piece, bisecting where it matters.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from flint import arb, arb_poly

from analyzer.exact import magnitude

SHARPNESS = 2.0**-11
"""A supremum is pursued until it is known to this relative accuracy."""
RATIO = 8
"""ϱ/r: a term of the expansion gains three bits."""
PER_CELL = 64
"""Samples per cell, which spans a factor 9/7: a function with 10 half periods per factor e shows 12 samples in each."""
MAX_PIECES = 200_000
"""Pieces looked at before the bound is taken as it stands: a sum that oscillates faster than this is not one of ours."""


@dataclass(frozen=True)
class ExponentialSum:
    """Σ_i P_i(q) e^{−ω_i q}, ω_i ≥ 0; `coefficients[i]` lists P_i from its constant term on."""

    frequencies: tuple[arb, ...]
    coefficients: tuple[tuple[arb, ...], ...]

    def taylor(self, centre: arb, order: int) -> list[arb]:
        """The first `order` coefficients in powers of q − centre."""
        total = [arb(0)] * order
        shift = arb_poly([centre, 1])
        for frequency, coefficients in zip(self.frequencies, self.coefficients, strict=True):
            power, series = (-frequency * centre).exp(), []
            for j in range(order):
                series.append(power)
                power = -power * frequency / (j + 1)
            if len(coefficients) == 1:
                scale = coefficients[0]
                total = [t + scale * s for t, s in zip(total, series, strict=True)]
                continue
            product = (arb_poly(list(coefficients))(shift) * arb_poly(series)).coeffs()[:order]
            for j, value in enumerate(product):
                total[j] += value
        return total

    def crude(self, centre: arb, radius: arb) -> arb:
        """Upper bound of |f| on the complex disc."""
        edge, near, total = centre + radius, centre - radius, arb(0)
        for frequency, coefficients in zip(self.frequencies, self.coefficients, strict=True):
            height = arb(0)
            for coefficient in reversed(coefficients):
                height = height * edge + abs(coefficient)
            total += height * (-frequency * near).exp()
        return total


@dataclass(frozen=True)
class Cell:
    """f on [centre − radius, centre + radius] as a polynomial, up to `rest`."""

    centre: arb
    radius: arb
    polynomial: list[arb]
    rest: arb


def cells(function: ExponentialSum, end: arb, accuracy: arb) -> Iterator[Cell]:
    """Cells that cover [0, end], each with a rest of at most about `accuracy`."""
    fastest = max([arb(1), *function.frequencies], key=float)
    half = 1 / (2 * fastest)
    centre, radius, reach = half, half, RATIO * half
    while True:
        crude = function.crude(centre, reach)
        order = max(3, (magnitude(crude) - magnitude(accuracy)) // 3 + 2)
        share = (radius / reach).upper()
        rest = crude * share**order / (1 - share)
        yield Cell(centre, radius, function.taylor(centre, order), rest.upper())
        right = centre + radius
        if right >= end:
            return
        centre = (right * RATIO / (RATIO - 1)).mid()
        radius = (centre - right + centre * arb(2) ** -40).upper().max((centre / RATIO).upper())
        reach = centre.lower()


def supremum(function: ExponentialSum, end: arb, accuracy: arb, divisor: Callable[[arb], arb] | None = None) -> arb:
    """Upper bound of sup |f(q)|/divisor(q) over 0 ≤ q ≤ end; the divisor is positive and increasing, 1 if not given.

    `accuracy` is an absolute error that may be committed without regret, a small share of the supremum that is expected.
    """
    best = accuracy
    worst = arb(0)
    pieces = 0
    for cell in cells(function, end, accuracy / 64):
        first, second = _derivative(cell.polynomial), _derivative(_derivative(cell.polynomial))
        stack = [(-cell.radius, cell.radius)]
        while stack:
            left, right = stack.pop()
            pieces += 1
            middle, half = ((left + right) / 2).mid(), ((right - left) / 2).upper()
            over = arb(1) if divisor is None else divisor((cell.centre + left).lower().max(arb(0)))
            value = abs(_horner(cell.polynomial, middle))
            piece = middle + arb(0, half)
            bend = abs(_horner(second, piece)).upper()
            bound = ((value + abs(_horner(first, middle)) * half + bend * half * half / 2 + cell.rest) / over).upper()
            best = best.max(value.mid() if divisor is None else (value / divisor((cell.centre + right).upper())).mid())
            if bound <= best * (1 + SHARPNESS) or pieces > MAX_PIECES:
                worst = worst.max(bound)
            else:
                stack += [(left, middle), (middle, right)]
    return worst


def samples(function: ExponentialSum, end: arb, accuracy: arb, divisor: Callable[[arb], arb] | None = None) -> list[tuple[arb, arb]]:
    """(q, f(q)/divisor(q)) at places so dense that a function like those of `supremum` shows its peaks; a search aid, not a bound."""
    found = []
    for cell in cells(function, end, accuracy):
        for k in range(PER_CELL):
            h = (cell.radius * (2 * k + 1 - PER_CELL) / PER_CELL).mid()
            place = (cell.centre + h).mid()
            value = _horner(cell.polynomial, h).mid()
            found.append((place, value if divisor is None else (value / divisor(place)).mid()))
    return found


def _derivative(polynomial: Sequence[arb]) -> list[arb]:
    return [j * c for j, c in enumerate(polynomial)][1:] or [arb(0)]


def _horner(polynomial: Sequence[arb], x: arb) -> arb:
    value = arb(0)
    for coefficient in reversed(polynomial):
        value = value * x + coefficient
    return value
