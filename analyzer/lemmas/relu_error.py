"""How far a sum of relu neurons is from a read-out, on a box: a certificate from the neurons as they are stored.

Neurons with the same direction (up to sign) form a univariate piecewise linear function g of v = w·u; a ridge ψ of the read-out is
matched with the group of its direction. On a piece of length Δ where g is linear,

    sup |ψ − g − ℓ| ≤ max over the ends + Δ²/8 sup|ψ''|,

with ℓ the chord of ψ − g between its extreme inner knots, where a spline interpolates. The chords, the affine part of the
read-out and the constant neurons add up to one affine function, whose supremum on a box is exact. A ridge whose direction was
rounded pays sup|ψ'| · ‖w − ŵ‖·R.
"""

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from flint import arb, fmpq

from analyzer.numbers.exact import dyadic, maximum, range_pieces
from analyzer.numbers.profiles import Ridge
from analyzer.targets.readout import ReadOut

SUBDIVISION = 4
"""Sub-pieces of a linear piece that would set the maximum: the excess falls with their square; any number is sound."""

Direction = tuple[fmpq, ...]


@dataclass(frozen=True)
class Neuron:
    """outer · relu(row·u + bias)."""

    row: Direction
    bias: fmpq
    outer: fmpq


@dataclass
class Group:
    """Ridges and neurons along one direction; a neuron is (sign, bias, outer) of outer · relu(sign·v + bias)."""

    direction: Direction
    ridges: list[Ridge] = field(default_factory=list)
    neurons: list[tuple[int, fmpq, fmpq]] = field(default_factory=list)

    def reach(self, radii: Sequence[arb]) -> fmpq:
        """Rational upper bound of |v| on the box, positive even on a box of radius 0."""
        reach = sum((abs(arb(w)) * r for w, r in zip(self.direction, radii, strict=True)), arb(0)).upper()
        return dyadic(reach * (1 + arb(2) ** -40), 48) or fmpq(1, 2**60)

    def breaks(self, reach: fmpq) -> list[fmpq]:
        """Every kink inside the range, in order, between the ends.

        An end is the nearest kink at or outside the range, if there is one: a spline stores its outermost knots, so the certificate
        sees whole intervals and not the ones that the range cuts off. Neurons that bend by nothing together, as relu(v) − relu(−v), make
        no kink; a single neuron of weight 0 marks a knot.
        """
        bends: dict[fmpq, list[fmpq]] = {}
        for sign, bias, outer in self.neurons:
            bends.setdefault(-sign * bias, []).append(outer)
        kinks = {k for k, outers in bends.items() if len(outers) == 1 or sum(outers, fmpq(0)) != 0}
        kinks |= {-r.direction[0] * r.offset for r in self.ridges if r.profile.kink}
        low = max((k for k in kinks if k <= -reach), default=-reach)
        high = min((k for k in kinks if k >= reach), default=reach)
        return [low, *sorted(k for k in kinks if low < k < high), high]

    def linear_pieces(self, breaks: list[fmpq]) -> list[tuple[fmpq, fmpq]]:
        """(slope, intercept) of the neurons' sum on every interval between consecutive breaks."""
        count = len(breaks) - 1
        slopes, intercepts = [fmpq(0)] * (count + 1), [fmpq(0)] * (count + 1)
        for sign, bias, outer in self.neurons:  # active on v > −bias (sign +) or v < bias (sign −)
            kink = -sign * bias
            cut = min(bisect_left(breaks, kink), count)
            first, last = (cut, count) if sign > 0 else (0, cut)
            for table, change in ((slopes, sign * outer), (intercepts, bias * outer)):
                table[first] += change
                table[last] -= change
        pieces, slope, intercept = [], fmpq(0), fmpq(0)
        for j in range(count):
            slope, intercept = slope + slopes[j], intercept + intercepts[j]
            pieces.append((slope, intercept))
        return pieces


def neurons_of(inner: Iterable[Iterable[fmpq]], bias: Iterable[fmpq], outer: Iterable[fmpq]) -> list[Neuron]:
    """Neurons from the rows of exact weight arrays."""
    return [Neuron(tuple(row), b, a) for row, b, a in zip(inner, bias, outer, strict=True)]


def oriented(direction: Direction) -> tuple[Direction, int]:
    """(direction, sign) with the first non-zero entry made positive."""
    first = next((w for w in direction if w != 0), fmpq(1))
    return (direction, 1) if first > 0 else (tuple(-w for w in direction), -1)


def _mismatch(ridge: Ridge, direction: Direction, sign: int, radii: Sequence[arb]) -> arb:
    """sup |v − v̂| on the box for the ridge's direction and a group's."""
    terms = (abs(arb(w - sign * g)) * r for w, g, r in zip(ridge.direction, direction, radii, strict=True))
    return sum(terms, arb(0))


def group_neurons(readout: ReadOut, neurons: Sequence[Neuron], radii: Sequence[arb]) -> tuple[list[Group], fmpq, arb]:
    """(groups, value of the constant neurons, price of matching ridges with rounded directions)."""
    groups: dict[Direction, Group] = {}
    constant, price = fmpq(0), arb(0)
    for neuron in neurons:
        if all(w == 0 for w in neuron.row):
            constant += neuron.outer * max(neuron.bias, fmpq(0))
            continue
        direction, sign = oriented(neuron.row)
        groups.setdefault(direction, Group(direction)).neurons.append((sign, neuron.bias, neuron.outer))
    stored = list(groups.values())
    for ridge in readout.ridges:
        direction, sign = oriented(ridge.direction)
        home = groups.get(direction)
        if home is None:
            home = min(stored, key=lambda g: float(_mismatch(ridge, g.direction, sign, radii)), default=None)
            size = max(abs(w) for w in ridge.direction)
            if home is None or any(abs(w - sign * g) > size / 1024 for w, g in zip(ridge.direction, home.direction, strict=True)):
                home = groups.setdefault(direction, Group(direction))
            low, high = ridge.span(list(radii))
            shift = _mismatch(ridge, home.direction, sign, radii)
            price += abs(arb(ridge.scale)) * ridge.profile.slope(low - shift, high + shift) * shift
        home.ridges.append(Ridge(ridge.profile, ridge.scale, (fmpq(sign),), ridge.offset))
    return list(groups.values()), constant, price


def _ridge_value(group: Group, v: arb) -> arb:
    return sum((arb(r.scale) * r.profile.value(arb(r.direction[0]) * v + arb(r.offset)) for r in group.ridges), arb(0))


def _curvature(group: Group, low: arb, high: arb, cells: int) -> arb:
    """Upper bound of Σ sup|scale ψ''| on [low, high], from a cover by `cells` balls."""
    total = arb(0)
    for ridge in group.ridges:
        pieces = [arb(ridge.direction[0]) * piece + arb(ridge.offset) for piece in range_pieces(low, high, cells)]
        total += abs(arb(ridge.scale)) * maximum([abs(ridge.profile.second(piece)).upper() for piece in pieces])
    return total


def _cells(pieces: int) -> int:
    """Cells per piece: few pieces are long, and a ball that covers a long piece overestimates ψ''."""
    return max(1, 64 // pieces)


def _group_error(group: Group, radii: Sequence[arb]) -> tuple[arb, arb, arb]:
    """(sup |d − ℓ|, slope, intercept) for d = ridges − neurons along the group's direction and its chord ℓ."""
    breaks = group.breaks(group.reach(radii))
    pieces = [(arb(slope), arb(intercept)) for slope, intercept in group.linear_pieces(breaks)]
    points = [arb(v) for v in breaks]
    profile = [_ridge_value(group, v) for v in points]
    cells = _cells(len(pieces))
    first, last = (1, len(breaks) - 2) if len(breaks) > 3 else (0, len(breaks) - 1)
    left = profile[first] - pieces[first][0] * points[first] - pieces[first][1]
    right = profile[last] - pieces[last - 1][0] * points[last] - pieces[last - 1][1]
    slope = (right - left) / (points[last] - points[first])
    intercept = left - slope * points[first]

    def bound(nodes: list[arb], values: list[arb], piece: tuple[arb, arb]) -> arb:
        ends = [abs(f - (piece[0] + slope) * v - piece[1] - intercept) for v, f in zip(nodes, values, strict=True)]
        bends = [(b - a) ** 2 / 8 * _curvature(group, a, b, cells) for a, b in itertools.pairwise(nodes)]
        return maximum([(a.max(b) + bend).upper() for a, b, bend in zip(ends, ends[1:], bends, strict=False)])

    worst = arb(0)
    for k, piece in enumerate(pieces):
        coarse = bound(points[k : k + 2], profile[k : k + 2], piece)
        if not coarse <= worst:
            length = points[k + 1] - points[k]
            nodes = [points[k] + length * i / SUBDIVISION for i in range(SUBDIVISION + 1)]
            worst = worst.max(coarse.min(bound(nodes, [_ridge_value(group, v) for v in nodes], piece)))
    return worst, slope, intercept


def readout_error(readout: ReadOut, neurons: Sequence[Neuron], radii: Sequence[arb]) -> arb:
    """Upper bound of sup |f − Σ outer relu(row·u + bias)| on the box Π[−R_j, R_j]."""
    groups, constant, total = group_neurons(readout, neurons, radii)
    affine = [arb(w) for w in readout.affine]
    offset = arb(readout.constant) - arb(constant)
    for group in groups:
        error, slope, intercept = _group_error(group, radii)
        total += error
        offset += intercept
        affine = [a + slope * arb(w) for a, w in zip(affine, group.direction, strict=True)]
    return total + abs(offset) + sum((abs(a) * r for a, r in zip(affine, radii, strict=True)), arb(0))


def spline_bound(readout: ReadOut, neurons: Sequence[Neuron], radii: Sequence[arb]) -> arb:
    """Σ h² sup|ψ''|/8 with h the largest gap between the knots stored for each direction: the spline estimate of these knots."""
    groups, _, price = group_neurons(readout, neurons, radii)
    for group in groups:
        points = [arb(v) for v in group.breaks(group.reach(radii))]
        intervals = list(itertools.pairwise(points))
        gap = maximum([b - a for a, b in intervals])
        price += gap**2 / 8 * maximum([_curvature(group, a, b, _cells(len(intervals))) for a, b in intervals])
    return price


def local_range(neurons: Sequence[Neuron], point: Sequence[fmpq], noise: Sequence[fmpq]) -> tuple[fmpq, fmpq]:
    """(y, δ): the neurons' sum at a point, and how far it can move when coordinate j moves by at most noise_j. Exact arithmetic.

    Neurons that are on for all of the noise contribute their slope, those that are off nothing. Those that may switch are gathered by
    direction: each direction contributes the slope of a chord, and the distance of its piecewise linear function from that chord.
    """
    value, slope = fmpq(0), [fmpq(0)] * len(point)
    switching: dict[Direction, list[tuple[int, fmpq, fmpq]]] = {}
    for neuron in neurons:
        before = sum((w * x for w, x in zip(neuron.row, point, strict=True) if w != 0), neuron.bias)
        reach = sum((abs(w) * r for w, r in zip(neuron.row, noise, strict=True) if w != 0), fmpq(0))
        value += neuron.outer * max(before, fmpq(0))
        if before >= reach:
            slope = [s + neuron.outer * w for s, w in zip(slope, neuron.row, strict=True)]
        elif before > -reach:
            direction, sign = oriented(neuron.row)
            switching.setdefault(direction, []).append((sign, before, neuron.outer))
    moved = fmpq(0)
    for direction, members in switching.items():
        reach = sum((abs(w) * r for w, r in zip(direction, noise, strict=True)), fmpq(0))
        rise, bend = _chord(members, reach)
        moved += bend
        slope = [s + rise * w for s, w in zip(slope, direction, strict=True)]
    return value, moved + sum((abs(s) * r for s, r in zip(slope, noise, strict=True)), fmpq(0))


def _chord(members: Sequence[tuple[int, fmpq, fmpq]], reach: fmpq) -> tuple[fmpq, fmpq]:
    """(slope of the chord over [−r, r], largest distance from the line of that slope through t = 0) of Σ outer·relu(before + sign·t)."""

    def change(t: fmpq) -> fmpq:
        return sum((a * (max(b + s * t, fmpq(0)) - max(b, fmpq(0))) for s, b, a in members), fmpq(0))

    rise = (change(reach) - change(-reach)) / (2 * reach)
    ends = {-reach, reach, *(-s * b for s, b, _ in members)}
    return rise, max(abs(change(t) - rise * t) for t in ends)
