"""Piecewise linear functions of one variable, and how far interpolation by them can be from a formula.

On an interval of length h let I g be the chord of g. Then g − I g = −½ (x − left)(right − x) g''(ξ) lies between

    −h²/8 · max(g'', 0)   and   h²/8 · max(−g'', 0),        and if a ≤ g' ≤ b only:   |g − I g| ≤ h/4 · (b − a)      (tent of slopes a, b).

In two variables interpolate on the cells of a grid, I = I_u I_v (bilinear). Chords keep a range, so ρ − I ρ = (ρ − I_u ρ) + I_u(ρ −
I_v ρ) lies between the sums of the one-dimensional ends in u and in v. A function ρ̂ that is bilinear on the same cells differs from
ρ by its differences at the corners, interpolated, plus this. If it lies between −below and above, then after moving by a constant,
which softmax does not see, it is at most (below + above)/2.
"""

import itertools
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flint import arb, fmpq

from analyzer.numbers.exact import interval, maximum, range_pieces

BLOCKS = 32
"""Blocks per side on which derivatives of a coupling are enclosed; cells inside a block share the enclosure."""
REFINED = 4
"""Subdivisions of a piece on which the derivatives of a function of one variable are enclosed."""

Taylor = Callable[[arb], list[arb]]
"""(g, g', g''/2) on an interval."""


@dataclass(frozen=True)
class Neurons:
    """x ↦ offset + slope·x + Σ_i outer_i relu(inner_i x + bias_i), exactly."""

    inner: Sequence[fmpq]
    bias: Sequence[fmpq]

    def kinks(self, low: fmpq, high: fmpq) -> list[fmpq]:
        """Where a neuron bends strictly between low and high, increasing, each once, with the ends."""
        inside = {-c / b for b, c in zip(self.inner, self.bias, strict=True) if b != 0 and low < -c / b < high}
        return [low, *sorted(inside), high]

    def values(self, outer: Sequence[fmpq], knots: Sequence[fmpq], slope: fmpq, offset: fmpq) -> list[fmpq]:
        """The function at `knots` (which contain all kinks): the slope of a piece changes by |b|·a at the kink of a neuron."""
        start = knots[0]
        value, change = offset + slope * start, slope
        jumps = [fmpq(0)] * len(knots)
        for b, c, a in zip(self.inner, self.bias, outer, strict=True):
            if a == 0:
                continue
            at_start = b * start + c
            if at_start > 0:
                value += a * at_start
            if at_start > 0 or (at_start == 0 and b > 0):
                change += a * b
            if b != 0 and -c / b > start:
                jumps[min(bisect_right(knots, -c / b) - 1, len(knots) - 1)] += a * abs(b)
        result = [value]
        for k, (left, right) in enumerate(itertools.pairwise(knots)):
            change += jumps[k]
            value += change * (right - left)
            result.append(value)
        return result


def slope_changes(knots: Sequence[fmpq], values: Sequence[fmpq]) -> list[fmpq]:
    """Weights of relu(x − u_i) in the spline through the values, minus its value at the first knot."""
    ends = zip(itertools.pairwise(values), itertools.pairwise(knots), strict=True)
    slopes = [(b - a) / (v - u) for (a, b), (u, v) in ends]
    return [*slopes[:1], *(b - a for a, b in itertools.pairwise(slopes))]


def chord_error(length: arb, coefficients: Sequence[arb]) -> tuple[arb, arb]:
    """(below, above) with −below ≤ g − I g ≤ above for (g, g', g''/2) on an interval of this length; infinite if neither bound holds."""
    _, slope, half = coefficients
    found = []
    if half.is_finite():
        found.append(((length**2 / 4 * half.max(arb(0))).upper(), (length**2 / 4 * (-half).max(arb(0))).upper()))
    if slope.is_finite():
        bent = (length / 4 * (slope.upper() - slope.lower())).upper()
        found.append((bent, bent))
    return min(found, key=lambda ends: float(ends[0] + ends[1]), default=(arb.pos_inf(), arb.pos_inf()))


def interpolation_error(taylor: Taylor, knots: Sequence[fmpq], refined: int = REFINED) -> list[arb]:
    """sup |g − I g| on every piece: derivatives are enclosed on a few parts of it and joined."""
    errors = []
    for left, right in itertools.pairwise(knots):
        step = (right - left) / refined
        parts = [taylor(interval(arb(left + step * k), arb(left + step * (k + 1)))) for k in range(refined)]
        errors.append(maximum(list(chord_error(arb(right - left), [_join(values) for values in zip(*parts, strict=True)]))))
    return errors


def _join(values: Sequence[arb]) -> arb:
    result = values[0]
    for value in values[1:]:
        result = result.union(value)
    return result if all(value.is_finite() for value in values) else arb.nan()


def distance(value: Callable[[fmpq], arb], taylor: Taylor, knots: Sequence[fmpq], values: Sequence[fmpq]) -> arb:
    """Upper bound of sup |g − ĝ| for ĝ linear between `knots` with these values."""
    corners = [abs(value(x) - arb(y)) for x, y in zip(knots, values, strict=True)]
    errors = interpolation_error(taylor, knots)
    if not all(v.is_finite() for v in [*corners, *errors]):
        return arb.pos_inf()
    return maximum([a.max(b) + e for (a, b), e in zip(itertools.pairwise(corners), errors, strict=True)]).upper()


def bilinear_error(taylor: Callable[[int, arb, arb], list[arb]], us: Sequence[fmpq], vs: Sequence[fmpq]) -> arb:
    """Upper bound of sup |ρ − I ρ − c| over the cells of a grid, c a constant.

    `taylor(index, u, v)` gives (ρ, ∂ρ, ∂²ρ/2) in one variable on a box.
    """
    below = above = arb(0)
    for (parts_u, long_u), (parts_v, long_v) in itertools.product(_blocks(us), _blocks(vs)):
        boxes = list(itertools.product(parts_u, parts_v))
        in_u, in_v = ([_join(values) for values in zip(*(taylor(index, *box) for box in boxes), strict=True)] for index in (0, 1))
        (low_u, high_u), (low_v, high_v) = chord_error(long_u, in_u), chord_error(long_v, in_v)
        below, above = below.max(low_u + low_v), above.max(high_u + high_v)
        if not (below.is_finite() and above.is_finite()):
            return arb.pos_inf()
    return ((below + above) / 2).upper()


def seen_error(taylors: Sequence[Callable[[int, arb, arb], list[arb]]], us: Sequence[fmpq], vs: Sequence[fmpq]) -> arb:
    """Upper bound of sup_u ½ osc_{s,v} (ρ_s − I ρ_s) over the cells of a grid: what softmax over s and v sees when u asks.

    `taylors[s](index, u, v)` gives (ρ_s, ∂ρ_s, ∂²ρ_s/2) in one variable on a box. With I = I_u I_v the error is ρ − I_u ρ, at one u
    the number −(u − a)(b − u)/2 times some ρ_uu on the cell, whose spread alone is seen, and a mean of ρ − I_v ρ at the ends of the cell.
    """
    asking, below, above = arb(0), arb(0), arb(0)
    columns = _blocks(vs)
    for parts_u, long_u in _blocks(us):
        seen = []
        for taylor, (parts_v, long_v) in itertools.product(taylors, columns):
            boxes = list(itertools.product(parts_u, parts_v))
            in_u, in_v = ([_join(values) for values in zip(*(taylor(index, *box) for box in boxes), strict=True)] for index in (0, 1))
            low, high = chord_error(long_v, in_v)
            below, above = below.max(low), above.max(high)
            seen.append(in_u)
        _, slope, half = (_join(values) for values in zip(*seen, strict=True))
        found = [long_u**2 / 4 * (half.upper() - half.lower())] if half.is_finite() else []
        found += [long_u / 2 * (slope.upper() - slope.lower())] if slope.is_finite() else []
        asking = asking.max(min((bent.upper() for bent in found), key=float, default=arb.pos_inf()))
        if not (asking.is_finite() and below.is_finite() and above.is_finite()):
            return arb.pos_inf()
    return ((asking + below + above) / 2).upper()


def _blocks(knots: Sequence[fmpq]) -> list[tuple[list[arb], arb]]:
    """At most `BLOCKS` stretches of consecutive pieces: the stretch, cut into parts if there are few, and the longest piece in it."""
    pieces = list(itertools.pairwise(knots))
    size = -(-len(pieces) // BLOCKS)
    stretches = [pieces[k : k + size] for k in range(0, len(pieces), size)]
    cuts = max(1, BLOCKS // len(stretches))
    return [(range_pieces(arb(s[0][0]), arb(s[-1][1]), cuts), arb(max(b - a for a, b in s))) for s in stretches]
