"""Lag encoding: how a feed-forward network writes a lag that depends on tokens, and what rounding forgives.

The tokens that a lag reads are projected to a line, v = w·u, such that tokens with different lags stay apart; the lag (or its
logarithm) becomes a piecewise linear function of v through finitely many points. Its atoms are one constant and relus with their kinks
at those points; weighted by their reach they are its Barron representation,

    y(v) = y_k + Σ_a c_a relu(±(v − v_a)),      ‖y‖_B ≤ |y_k| + Σ_a |c_a| (R‖w‖₁ + |v_a|),

with the base point k that makes the norm least. Three ways to write it (`constructions.neurons.lag_encoding`): all atoms (exact), a sample
of them (Barron, the papers' way), or plateaus around the points (relu staircase).

Rounding makes the slot exact if what arrives is off by less than a margin:

    [y]         lag slots of lin heads and of tmx             |y − g| < 1/2
    log[e^y]    lag slots of dot-product log heads            |e^y − g| < 1/2, implied by |y − log g| < log(1 + 1/(2g))

so some sample of m ≥ 16 ‖y‖_B² (D+1)/margin² atoms suffices (`analyzer.lemmas.feedforward`), D the number of coordinates read. Where the
tokens read are memories with extraction error e, the box has radius 1 + e and the margin is what the noise leaves of it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations, product
from typing import Any, Literal

from flint import arb, fmpq

from analyzer.numbers.exact import dyadic, rational, upper, working_precision
from analyzer.targets.adaptive import AdaptiveMemory

ONE = fmpq(1)
Form = Literal["lag", "log"]
"""What a lag slot holds: the lag itself or its logarithm."""


def slot_form(rpe: str, attention: str) -> Form:
    """Dot-product scores of log heads need log g; every other head reads g."""
    return "log" if rpe == "log" and attention == "dp" else "lag"


def rounding_margin(form: Form, lag: int) -> arb:
    """How far a slot may be from the lag (or its logarithm) and still be rounded to it."""
    return arb(1) / 2 if form == "lag" else (1 + arb(1) / (2 * lag)).log()


def slot_ball(form: Form, lag: int) -> arb:
    """What a slot holds after rounding, at the working precision."""
    return arb(lag) if form == "lag" else arb(lag).log()


LOG_BITS = 64
"""Bits to which logarithms of lags are stored before rounding makes them exact; far below every margin."""


def slot_value(form: Form, lag: int, bits: int = LOG_BITS) -> fmpq:
    """The number that the network writes for a lag: the lag, or its logarithm to a number of bits."""
    if form == "lag" or lag == 1:
        return fmpq(lag if form == "lag" else 0)
    with working_precision(bits + 32):
        return dyadic(arb(lag).log(), bits)


@dataclass(frozen=True)
class LagEncoding:
    """The lag of a memory along one direction of its parents' tokens.

    `direction` runs over all token coordinates (x0 and memories); at `places[j]`, increasing, the lag is `lags[j]`.
    """

    memory: int
    direction: tuple[fmpq, ...]
    places: tuple[fmpq, ...]
    lags: tuple[int, ...]

    def values(self, form: Form, bits: int = LOG_BITS) -> list[fmpq]:
        return [slot_value(form, lag, bits) for lag in self.lags]

    def slopes(self, values: Sequence[fmpq]) -> list[fmpq]:
        return [(b - a) / (w - v) for (a, b), (v, w) in zip(pairwise(values), pairwise(self.places), strict=True)]

    def atoms(self, values: Sequence[fmpq], base: int) -> list[tuple[int, fmpq, fmpq]]:
        """(sign, place, weight) of weight · relu(sign·(v − place)); together with the constant values[base] the interpolant."""
        slopes = self.slopes(values)
        changes = [fmpq(0), *(b - a for a, b in pairwise(slopes)), fmpq(0)]  # at every place
        right = [(1, self.places[j], changes[j]) for j in range(base + 1, len(self.places))]
        left = [(-1, self.places[j], changes[j]) for j in range(base)]
        if base < len(slopes):
            right.append((1, self.places[base], slopes[base]))
        if base > 0:
            left.append((-1, self.places[base], -slopes[base - 1]))
        return [atom for atom in (*left, *right) if atom[2] != 0]

    def reach(self, place: fmpq, radius: fmpq) -> fmpq:
        """R‖w‖₁ + |v_a|: the largest value of an atom on the box of this radius, at most."""
        return radius * sum((abs(w) for w in self.direction), fmpq(0)) + abs(place)

    def norm_from(self, values: Sequence[fmpq], base: int, radius: fmpq) -> fmpq:
        """Barron norm of the interpolant with this base point."""
        return sum((abs(c) * self.reach(place, radius) for _, place, c in self.atoms(values, base)), abs(values[base]))

    def best_base(self, values: Sequence[fmpq], radius: fmpq) -> int:
        return min(range(len(self.places)), key=lambda k: self.norm_from(values, k, radius))

    def barron_norm(self, form: Form, radius: fmpq = ONE) -> fmpq:
        """‖g‖_B or ‖log g‖_B on the box of this radius: an upper bound, by this representation."""
        values = self.values(form)
        return self.norm_from(values, self.best_base(values, radius), radius)

    def coordinates(self) -> int:
        """D: how many coordinates the direction reads."""
        return sum(1 for w in self.direction if w != 0)

    def sampling_width(self, form: Form, margin: arb, radius: fmpq = ONE) -> int:
        """m ≥ 16 ‖y‖_B² (D+1)/margin²: atoms to draw for an error below the margin."""
        return math.ceil(upper(16 * arb(self.barron_norm(form, radius)) ** 2 * (self.coordinates() + 1) / margin**2))

    def noise_gain(self, form: Form, coordinates: range) -> fmpq:
        """How much an error of size 1 in these token coordinates can move the interpolant."""
        slopes = [abs(s) for s in self.slopes(self.values(form))]
        return max(slopes, default=fmpq(0)) * sum((abs(self.direction[j]) for j in coordinates), fmpq(0))

    def describe(self, form: Form, margin: arb, radius: fmpq = ONE) -> dict[str, Any]:
        """Barron norms of g and log g, the margin, and the width that sampling to it asks for (None if there is no margin left)."""
        return {
            "barron_norm": upper(arb(self.barron_norm("lag", radius))),
            "barron_norm_log": upper(arb(self.barron_norm("log", radius))),
            "width_theorem": self.sampling_width(form, margin, radius) if margin > 0 else None,
        }

    def steps(self) -> list[int]:
        """Indices j with different lags at places j and j + 1."""
        return [j for j, (a, b) in enumerate(pairwise(self.lags)) if a != b]

    def plateau(self) -> fmpq | None:
        """The least half-width of a plateau in v: a third of the narrowest gap with a step; None if the lag is constant."""
        gaps = [self.places[j + 1] - self.places[j] for j in self.steps()]
        return min(gaps) / 3 if gaps else None


def encode(target: AdaptiveMemory, memory: int) -> LagEncoding:
    """The encoding of a memory's lag along the direction that amplifies errors of its parents least."""
    slots = [target.slot_index(name) for name in target.parents[target.names[memory]]]
    columns = [slot * target.dim + i for slot in slots for i in range(target.dim)]
    table = {tuple(v for t in tokens for v in target.alphabet[t]): lag for tokens, lag in target.lag_table(memory).items()}
    best = min(_directions(list(table)), key=lambda w: _amplification(w, table))
    places = _projected(best, table)
    assert places is not None  # the mixed radix keeps all tokens apart
    direction = [fmpq(0)] * ((len(target.memories) + 1) * target.dim)
    for column, weight in zip(columns, best, strict=True):
        direction[column] = weight
    ordered = sorted(places)
    return LagEncoding(memory, tuple(direction), tuple(ordered), tuple(places[v] for v in ordered))


Table = dict[tuple[fmpq, ...], int]


def _projected(w: Sequence[fmpq], table: Table) -> dict[fmpq, int] | None:
    """The lag at every projected point, or None if two different lags fall together."""
    result: dict[fmpq, int] = {}
    for point, lag in table.items():
        v = sum((a * x for a, x in zip(w, point, strict=True)), fmpq(0))
        if result.setdefault(v, lag) != lag:
            return None
    return result


def _amplification(w: Sequence[fmpq], table: Table) -> tuple[float, float, int]:
    """(steepest slope times ‖w‖₁, ‖w‖₁, points): what a direction should keep small; infinite if it confuses lags."""
    places = _projected(w, table)
    if places is None:
        return math.inf, 0.0, 0
    size = float(arb(sum((abs(a) for a in w), fmpq(0))))
    steepest = max((abs(places[b] - places[a]) / float(arb(b - a)) for a, b in pairwise(sorted(places))), default=0.0)
    return steepest * size, size, len(places)


def _directions(points: list[tuple[fmpq, ...]]) -> Iterator[tuple[fmpq, ...]]:
    """Directions worth trying: small whole numbers, and mixed radices, which keep all points apart."""
    count = len(points[0])
    if count == 0:
        yield ()
        return
    small = range(-2, 3) if count <= 3 else range(-1, 2) if count <= 6 else ()
    for vector in product(small, repeat=count):
        if next((v for v in vector if v), 0) > 0:
            yield tuple(map(fmpq, vector))
    orders = permutations(range(count)) if count <= 4 else [tuple(range(count)), tuple(reversed(range(count)))]
    for order in orders:
        yield _mixed_radix(points, order)


def _mixed_radix(points: list[tuple[fmpq, ...]], order: Sequence[int]) -> tuple[fmpq, ...]:
    """w with w_k · (least gap in coordinate k) > Σ of w_i · (range of coordinate i) over the coordinates i before k."""
    weights, below, first_gap = [fmpq(0)] * len(order), fmpq(0), None
    for k in order:
        values = sorted({point[k] for point in points})
        gaps = [b - a for a, b in pairwise(values)]
        if not gaps:
            continue
        first_gap = min(gaps) if first_gap is None else first_gap
        weights[k] = (below + first_gap) / min(gaps)
        below += weights[k] * (values[-1] - values[0])
    return tuple(weights)


def rounding_distance(form: Form, lag: int, value: fmpq, deviation: fmpq) -> fmpq:
    """Upper bound of |y − g|, or |e^y − g|, over the slot's range; the lag is exact after rounding if it is below 1/2."""
    if form == "lag":
        return abs(value - lag) + deviation
    with working_precision(128):
        ends = [abs(arb(value + s * deviation).exp() - lag) for s in (-1, 1)]
        return finite_or_huge(ends[0].max(ends[1]))


HUGE = fmpq(10) ** 300


def finite_or_huge(size: arb) -> fmpq:
    """A rational upper bound of a size; what is beyond the floats counts as 10^300."""
    return rational(upper(size)) if upper(size) < float("inf") else HUGE
