"""Sums of exponentials with polynomial coefficients, f(q) = Σ_i P_i(q) e^{−ω_i q}: rigorous suprema on half lines.

Heads seen as functions of their decay are such sums (`analyzer.limits.budgeted_error`), and they cancel: f is of size u where its
terms are of size 1. So on a cell |q − q_0| ≤ r every term is expanded, e^{−ω(q_0 + rt)} = e^{−ωq_0} Σ_j (−ωr)^j/j! t^j, all terms are
added up, and only then is anything estimated. A term whose size on the cell is below a floor goes into the rest, and so do the expansions
after J terms, with |rest| ≤ 2 e^{−ωq_0} (ωr)^J/J! once ωr ≤ (J+1)/2; J is the same for all terms of a cell, so that adding them up is one
product with the matrix of the moments ω_i^j/j!, which all cells share. Cells grow geometrically, r = q_0/8, so a half line costs a number
of cells that is logarithmic in its ends; the polynomial on a cell is bounded piece by piece, bisecting where it matters.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from flint import arb, arb_mat, arb_poly

SHARPNESS = 2.0**-11
"""A supremum is pursued until it is known to this relative accuracy."""
RATIO = 8
"""q_0/r."""
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
    _known: list[list[arb]] = field(default_factory=list, compare=False, repr=False)

    def moments(self, j: int) -> list[arb]:
        """ω_i^j/j! for all i; call it always at the same precision."""
        while len(self._known) <= j:
            last = self._known[-1] if self._known else None
            following = [arb(1)] * len(self.frequencies)
            if last is not None:
                following = [m * w / len(self._known) for m, w in zip(last, self.frequencies, strict=True)]
            self._known.append(following)
        return self._known[j]

    def cell(self, centre: arb, radius: arb, accuracy: arb) -> SumCell:
        """The sum on a cell of q ≥ 0, with a rest below the accuracy."""
        floor = accuracy / len(self.frequencies)
        rest = arb(0)
        edge, near = centre + radius, (centre - radius).max(arb(0))
        kept: list[int] = []
        heights: list[arb] = []
        powers = _powers_of(edge, max(map(len, self.coefficients)))
        for i, (frequency, coefficients) in enumerate(zip(self.frequencies, self.coefficients, strict=True)):
            height = sum((abs(c) * power for c, power in zip(coefficients, powers, strict=False)), arb(0)).upper()
            size = height * (-frequency * near).exp()
            if size < floor:
                rest += size
            else:
                kept.append(i)
                heights.append(height)
        if not kept:
            return SumCell(centre, radius, [arb(0)], rest.upper())
        steps = [self.frequencies[i] * radius for i in kept]
        sizes = [(-self.frequencies[i] * centre).exp() for i in kept]
        terms = _terms_needed(steps, [2 * a * h / floor for a, h in zip(sizes, heights, strict=True)])
        omitted = self.moments(terms)
        rest += 2 * radius**terms * sum((a * h * omitted[i] for a, h, i in zip(sizes, heights, kept, strict=True)), arb(0))
        return SumCell(centre, radius, self._series(kept, sizes, centre, radius, terms), rest.upper())

    def _series(self, kept: Sequence[int], sizes: Sequence[arb], centre: arb, radius: arb, terms: int) -> list[arb]:
        """Σ_i P_i(q_0 + rt) e^{−ω_i q_0} Σ_{j<J} (−ω_i r t)^j/j! as a polynomial in t."""
        length = max(len(self.coefficients[i]) for i in kept)
        scaled = [[a * c for c in self.coefficients[i]] for a, i in zip(sizes, kept, strict=True)]
        polynomials = [row + [arb(0)] * (length - len(row)) for row in scaled]
        rows = [self.moments(j) for j in range(terms)]
        moments = arb_mat([[row[i] for i in kept] for row in rows])
        table = moments * (arb_mat(polynomials) * _shift(length, centre, radius))
        total, scale = [arb(0)] * (length + terms - 1), arb(1)
        for j, row in enumerate(table.tolist()):
            for k, value in enumerate(row):
                total[j + k] += scale * value
            scale = -scale * radius
        return total


def _terms_needed(steps: Sequence[arb], sizes: Sequence[arb]) -> int:
    """Least J ≥ 2ωr with size·(ωr)^J/J! < 1 for all terms, about: what is left out is enclosed whatever J is, if only 2ωr ≤ J + 1."""
    logs = [(_log(step), _log(size) if size > 0 else -math.inf) for step, size in zip(steps, sizes, strict=True) if step > 0]
    low = max([1, *(math.ceil(2 * float(step.upper())) for step in steps)])
    high = low
    while any(size + high * step > math.lgamma(high + 1) for step, size in logs):
        high += 32
    while low < high:
        middle = (low + high) // 2
        enough = all(size + middle * step <= math.lgamma(middle + 1) for step, size in logs)
        low, high = (low, middle) if enough else (middle + 1, high)
    return low


def _log(value: arb) -> float:
    """log of a positive number, also of one that doubles do not hold."""
    near = float(value)
    return math.log(near) if 0 < near < math.inf else float(value.log())


def _shift(length: int, centre: arb, radius: arb) -> arb_mat:
    """The matrix that turns the coefficients of P, as a row, into those of P(q_0 + rt): row m holds C(m, k) q_0^{m−k} r^k."""
    near, far = _powers_of(centre, length), _powers_of(radius, length)
    return arb_mat([[math.comb(m, k) * near[m - k] * far[k] if k <= m else arb(0) for k in range(length)] for m in range(length)])


def _powers_of(base: arb, count: int) -> list[arb]:
    found = [arb(1)]
    while len(found) < count:
        found.append(found[-1] * base)
    return found


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
        whole, first = arb_poly(cell.polynomial), arb_poly(cell.polynomial).derivative()
        second = _derivative(_derivative(cell.polynomial))
        least = arb(1) if divisor is None else divisor((cell.centre - cell.radius).lower().max(arb(0)))
        stack: list[tuple[arb, arb, arb | None]] = [(arb(-1), arb(1), least)]
        while stack:
            left, right, over = stack.pop()
            pieces += 1
            middle, half = ((left + right) / 2).mid(), ((right - left) / 2).upper()
            value = abs(whole(middle))
            piece = middle + arb(0, half)
            bend = abs(_horner(second, piece)).upper()
            most = value + abs(first(middle)) * half + bend * half * half / 2 + cell.rest
            bound = (most / (least if over is None else over)).upper()
            if divisor is None:
                best = best.max(value.mid())
            elif not _settled(bound, cell, best):  # the divisor grows: at this piece, not only at the cell
                over = divisor((cell.centre + cell.radius * left).lower().max(arb(0))) if over is None else over
                bound = (most / over).upper()
                if not value <= best * over:
                    best = best.max((value / divisor((cell.centre + cell.radius * right).upper())).mid())
            if _settled(bound, cell, best) or pieces > MAX_PIECES or half < SMALLEST:
                worst = worst.max(bound)
            else:
                stack += [(left, middle, over), (middle, right, None)]
    return worst


def _settled(bound: arb, cell: SumCell, best: arb) -> bool:
    """Whether a bound on a piece is hardly more than what is attained; the rest of its cell stays as it is."""
    return bool(bound - cell.rest <= best * (1 + SHARPNESS))


def _derivative(polynomial: Sequence[arb]) -> list[arb]:
    return [j * c for j, c in enumerate(polynomial)][1:] or [arb(0)]


def _horner(polynomial: Sequence[arb], x: arb) -> arb:
    value = arb(0)
    for coefficient in reversed(polynomial):
        value = value * x + coefficient
    return value
