"""Couplings of points at positions, cut off after m_h terms: the numbers behind `analyzer.theorems.jl_points`.

A `Frame` says where functions of a token (s, x) are looked at: along axes a_1 … a_n, at knots of every position. A function that the first
layer of a network writes is Σ_i g_i(s, a_i·x) with g_i(s, ·) linear between the knots of axis i at position s.

* Finite sets: one axis, along which all points of a position lie apart; knots are the points. Every function of (position, point) is such a
  function, exactly: nothing happens between knots.
* Boxes: the axes are the coordinates, the knots uniform. ρ = Σ_ij ρ_ij(t, u_i, s, v_j) is replaced by its interpolants I ρ_ij.

Either way ρ at the knots is a matrix R with rows (t, i, knot) and columns (s, j, knot), and ρ̂ = h(t, u)ᵀ R̂ h(s, v) with hat functions
h. R is not unique: on boxes a function of v_j alone may stand in any row block. It is put evenly into all of them, functions of the query
are removed, which softmax does not see, and what is left has the least rank: 2β u·v − β|v|² has d + 1. The singular value decomposition
is that of √w R √w, w the weight of a knot: its share of all tokens (finite sets) or of the trapezoidal rule (boxes).

**Singular values.** With computed factors U, Σ, V and ‖UᵀU − I‖ ≤ ε_U, ‖VᵀV − I‖ ≤ ε_V (Frobenius), by Ostrowski and Weyl

    |σ_k − Σ_k| ≤ Σ_1 (ε_U + ε_V + ε_U ε_V) + ‖√w R √w − U Σ Vᵀ‖_F + the error of R.

**Half oscillation.** Softmax sees e = ρ − ρ̂ up to functions of the query: what counts is δ = max_{t,u} ½ osc_{s,v} e. On finite sets
this is a maximum over rows. On boxes e at knots is, for every (t, s), Z + Σ_i A_i(u_i) + Σ_j B_j(v_j) + Σ_ij E_ij(u_i, v_j) with means
removed, and

    δ ≤ ½ max_t (max_s h(t, s) − min_s l(t, s)),      h = Z + Σ_i max A'_i + Σ_j max B_j + Σ_ij max E_ij,   l with minima,

A' being A minus its mean over s. Between knots e is interpolated, and ρ − I ρ adds what `seen_error` says.
"""

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal, larger_error
from analyzer.language.formulas import Formula
from analyzer.lemmas.feedforward import plan_feedforward
from analyzer.lemmas.low_rank import CLUSTER, NEGLIGIBLE, uniform_knots
from analyzer.numbers.exact import maximum, nearest, upper, working_precision
from analyzer.numbers.piecewise import interpolation_error, seen_error
from analyzer.targets.coupling import BITS, FormulaCoupling, Grid, floats
from analyzer.targets.points import Point, PointsTarget

SLACK = 2.0**-32
"""Share by which promises made from computed factors exceed them: other machines, orders of summation, and weights that are put right."""
ROUNDED = 2.0**-40
"""Fewer than 2^12 additions of numbers in float64 are off by less than this share of the largest."""
MAX_ROWS = 4096
"""Rows and columns of R."""
DIRECTIONS = 256
"""Axes that are tried for a finite set, in each of which points may fall together."""
SHARES = {"tail": 3, "splines": 3, "readout": 4}
"""The error is divided by these."""


@dataclass(frozen=True)
class Frame:
    """Axes, and increasing knots[s][i] of position s + 1 along axis i; for finite sets `order` says whose token stands at which row."""

    directions: tuple[Point, ...]
    knots: tuple[tuple[tuple[fmpq, ...], ...], ...]
    order: tuple[int, ...] | None

    @property
    def line(self) -> tuple[fmpq, ...]:
        """The knots of a box, the same for all positions and axes."""
        return self.knots[0][0]

    @property
    def rows(self) -> int:
        return sum(len(line) for lines in self.knots for line in lines)

    def split(self, table: np.ndarray) -> list[list[np.ndarray]]:
        """Rows of a table (rows, …) as [position][axis] → (knots, …)."""
        sizes = [len(line) for lines in self.knots for line in lines]
        parts = iter(np.split(table, np.cumsum(sizes)[:-1]))
        return [[next(parts) for _ in lines] for lines in self.knots]


def most_pieces(target: PointsTarget) -> int:
    """Pieces of splines, a power of 2, for which the coupling is looked at in all pairs of knots."""
    room = MAX_ROWS // (target.length * target.space) - 1
    return 0 if room < 1 else 1 << (room.bit_length() - 1)


@lru_cache(maxsize=16)
def frame(target: PointsTarget, pieces: int) -> Frame:
    """Where functions of the tokens of a target are looked at; `pieces` is for boxes."""
    if target.points is None:
        axes = tuple(tuple(fmpq(int(i == j)) for j in range(target.space)) for i in range(target.space))
        return Frame(axes, ((uniform_knots(pieces),) * target.space,) * target.length, None)
    axis = _apart(target)
    knots, order, start = [], list[int](), 0
    for points in target.points:
        places = [sum((a * x for a, x in zip(axis, point, strict=True)), fmpq(0)) for point in points]
        ranked = sorted(range(len(points)), key=places.__getitem__)
        knots.append((tuple(places[k] for k in ranked),))
        order += [start + k for k in ranked]
        start += len(points)
    return Frame((axis,), tuple(knots), tuple(order))


def _apart(target: PointsTarget) -> Point:
    """An axis along which different points of a position are far apart: the best of some with few digits, |a|₁ ≤ 1."""
    assert target.points is not None
    rng = np.random.default_rng(0)
    whole = 64 // target.space
    tried = [*np.eye(target.space, dtype=int) * whole, *rng.integers(-whole, whole + 1, (DIRECTIONS, target.space))]
    sets = [np.array([[nearest(x) for x in point] for point in points]) for points in set(target.points)]

    def gap(axis: np.ndarray) -> float:
        return min((float(np.diff(np.sort(points @ axis)).min()) for points in sets if len(points) > 1), default=1.0)

    best = max(tried, key=gap)
    if gap(best) < 1e-9:
        raise InputError("two points of a position are too close to be told apart along one axis; move them, or leave one out")
    return tuple(fmpq(int(a), 64) for a in best)


@dataclass(frozen=True, eq=False)
class CouplingTable:
    """ρ at pairs of knots, as floats that are off by at most `error`.

    Finite sets: (rows, rows). Boxes: (kinds of t, axes, knots, kinds of s, axes, knots), position t being of kind `asking[t − 1]` and s of
    kind `asked[s − 1]`: positions that the formulas do not tell apart are looked at once.
    """

    values: np.ndarray
    error: float
    asking: tuple[int, ...]
    asked: tuple[int, ...]


@lru_cache(maxsize=8)
def coupling_table(target: PointsTarget, where: Frame) -> CouplingTable:
    """R as the formulas give it."""
    positions = tuple(range(target.length))
    if where.order is not None:
        values, error = floats(target.couplings)
        return CouplingTable(values[np.ix_(where.order, where.order)], error, positions, positions)
    grids = {term: _grids(target, term, where.line) for term in target.rho}
    told = {letter: any(letter in term.used for term in target.rho) for letter in "ts"}
    asking = positions if told["t"] else (0,) * target.length
    asked = _kinds(target, grids) if told["s"] else (0,) * target.length
    axes, count = target.space, len(where.line)
    table, error = np.zeros((max(asking) + 1, axes, count, max(asked) + 1, axes, count)), 0.0
    for term, found in grids.items():
        i, j = target.axes(term)
        for t, s in itertools.product({k: p for p, k in enumerate(asking)}.items(), {k: p for p, k in enumerate(asked)}.items()):
            pair = (t[1] + 1 if "t" in term.used else 1, s[1] + 1 if "s" in term.used else 1)
            table[t[0], i, :, s[0], j, :] += found[pair][0]
        error += max(off + float(np.abs(values).max()) * 2.0**-46 for values, off in found.values())  # up to 64 summands are added
    return CouplingTable(table, 2 * error, asking, asked)


def _grids(target: PointsTarget, term: Formula, knots: tuple[fmpq, ...]) -> dict[tuple[int, int], Grid]:
    """A summand at the knots for all pairs of positions that it tells apart; one knot is enough for a side that it does not see."""
    us, vs = (knots if any(name[0] == letter for name in term.used) else knots[:1] for letter in "uv")
    return {pair: target.pair_coupling(term, *pair).grid(us, vs) for pair in target.position_pairs(term)}


def _kinds(target: PointsTarget, grids: dict[Formula, dict[tuple[int, int], Grid]]) -> tuple[int, ...]:
    """Positions s with the same values in all summands are of one kind."""
    seen: dict[tuple[bytes, ...], int] = {}
    kinds = []
    for s in range(1, target.length + 1):
        parts = tuple(
            values.tobytes() for term, found in grids.items() if "s" in term.used for (_, place), (values, _) in found.items() if place == s
        )
        kinds.append(seen.setdefault(parts, len(seen)))
    return tuple(kinds)


def centred(given: CouplingTable) -> np.ndarray:
    """R without its mean over keys, functions of one side spread evenly over the axes of the other."""
    table = given.values
    if table.ndim == 2:
        return table - table.mean(axis=1, keepdims=True)
    constant, asking, asked, pairs = _parts(table, np.bincount(given.asked) / len(given.asked))
    axes = table.shape[1]
    spread: np.ndarray = pairs + asking[:, :, :, :, None, None] / axes + asked[:, None, None, :, :, :] / axes
    return spread + constant[:, None, None, :, None, None] / axes**2


def _parts(full: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Z (t, s), A' (t, i, a, s), B (t, s, j, b), E (t, i, a, s, j, b): the sum over i and j, without its mean over s by these shares."""
    over_a, over_b = full.mean(axis=2), full.mean(axis=5)  # (t, i, s, j, b), (t, i, a, s, j)
    both = over_b.mean(axis=2)  # (t, i, s, j)
    pairs = full - over_a[:, :, None] - over_b[..., None] + both[:, :, None, :, :, None]
    asking = (over_b - both[:, :, None]).sum(axis=4)
    asked = (over_a - both[..., None]).sum(axis=1)
    constant = both.sum(axis=(1, 3))
    return constant - (constant @ shares)[:, None], asking - (asking @ shares)[..., None], asked, pairs


def half_oscillation(gap: np.ndarray) -> float:
    """δ of e given at pairs of knots, from above but for the rounding of sums (`ROUNDED` of the largest entry)."""
    with np.errstate(all="ignore"):  # infinite entries make an infinite or undefined number, which no comparison lets pass
        if gap.ndim == 2:
            return float((gap.max(axis=1) - gap.min(axis=1)).max()) / 2
        low, high = _ends(gap, np.full(gap.shape[3], 1 / gap.shape[3]))
        return float((high.max(axis=1) - low.min(axis=1)).max()) / 2


def largest_sum(table: np.ndarray) -> float:
    """sup |Σ_ij R_ij|, in the same way."""
    if table.ndim == 2:
        return float(np.abs(table).max(initial=0.0))
    low, high = _ends(table, np.zeros(table.shape[3]))
    return float(max(np.abs(low).max(), np.abs(high).max()))


def _ends(full: np.ndarray, shares: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(least, largest) value for every (t, s), without the mean over s by these shares."""
    constant, asking, asked, pairs = _parts(full, shares)
    low = constant + asking.min(axis=2).sum(axis=1) + asked.min(axis=3).sum(axis=2) + pairs.min(axis=(2, 5)).sum(axis=(1, 3))
    high = constant + asking.max(axis=2).sum(axis=1) + asked.max(axis=3).sum(axis=2) + pairs.max(axis=(2, 5)).sum(axis=(1, 3))
    return low, high


@dataclass(frozen=True, eq=False)
class PointFactors:
    """√σ_k φ_k and √σ_k ψ_k at the rows and columns of R, (rows, r) each, with singular values that are off by at most `sigma_error`."""

    where: Frame
    given: CouplingTable
    table: np.ndarray
    sigma: np.ndarray
    sigma_error: float
    left: np.ndarray
    right: np.ndarray

    @property
    def largest(self) -> float:
        return float(np.abs(self.table).max(initial=0.0))

    def tail(self, rank: int) -> float:
        """δ of ρ − ρ̂ at the knots for m_h = rank, from above, whichever functions belong to equal singular values."""
        start, end = min(rank, len(self.sigma)), min(rank, len(self.sigma))
        if 0 < end < len(self.sigma) and self._equal(end):
            while start and self._equal(start):
                start -= 1
            while end < len(self.sigma) and self._equal(end):
                end += 1
        gap = self.table - (self.left[:, :end] @ self.right[:, :end].T).reshape(self.table.shape)
        dropped = 1.0
        for part, shape in ((self.left, self.table.shape[:3]), (self.right, self.table.shape[3:])):
            sizes = np.linalg.norm(
                part[:, start:end], axis=1
            )  # what a choice of functions drops is a·Pb with a projection P: at most |a||b|
            dropped *= float(sizes.max() if self.table.ndim == 2 else sizes.reshape(shape).max(axis=2).sum(axis=1).max())
        return (half_oscillation(gap) + dropped + self.given.error) * (1 + SLACK) + SLACK * (1 + self.largest)

    def _equal(self, k: int) -> bool:
        return bool(self.sigma[k - 1] <= self.sigma[k] * (1 + CLUSTER))

    def features(self, rank: int) -> tuple[list[list[np.ndarray]], list[list[np.ndarray]]]:
        """The first factors of both sides as [position][axis] → (knots, ≤ rank)."""
        found = []
        for part, kinds, shape in (
            (self.left, self.given.asking, self.table.shape[:3]),
            (self.right, self.given.asked, self.table.shape[3:]),
        ):
            kept = part[:, :rank]
            if self.table.ndim == 2:
                found.append(self.where.split(kept))
            else:
                blocks = kept.reshape(*shape, -1)
                found.append([list(blocks[kind]) for kind in kinds])
        return found[0], found[1]


@lru_cache(maxsize=8)
def point_factors(target: PointsTarget, where: Frame) -> PointFactors:
    """The decomposition of the coupling at the knots; rows that are equal are decomposed once."""
    if where.rows > MAX_ROWS:
        raise InputError(f"{where.rows} knots at all positions; the coupling is compared at {MAX_ROWS} at most")
    given = coupling_table(target, where)
    table = centred(given)
    matrix = table if table.ndim == 2 else table.reshape(math.prod(table.shape[:3]), -1)
    rows, columns = _classes(matrix), _classes(matrix.T)
    weights = [_weights(where, kinds) for kinds in (given.asking, given.asked)]
    left_weights, right_weights = (np.sqrt(np.bincount(of, weights=w)) for (_, of), w in zip((rows, columns), weights, strict=True))
    small = matrix[np.ix_(rows[0], columns[0])]
    weighted = left_weights[:, None] * small * right_weights
    u, sigma, vt = np.linalg.svd(weighted, full_matrices=False)
    kept = int((sigma > NEGLIGIBLE * sigma[0]).sum()) if sigma.size and sigma[0] > 0 else 0
    root = np.sqrt(sigma[:kept])
    left = (u[:, :kept] * root / left_weights[:, None])[rows[1]]
    right = (vt[:kept].T * root / right_weights[:, None])[columns[1]]
    merged = float(np.abs(matrix - small[np.ix_(rows[1], columns[1])]).max(initial=0.0))
    size = math.sqrt(float(weights[0].sum() * weights[1].sum()))
    off = _sigma_error(weighted, u, sigma, vt) + 2 * (given.error + merged + ROUNDED * float(np.abs(matrix).max(initial=0.0))) * size
    return PointFactors(where, given, table, sigma[:kept], _power_above(off), left, right)


def _weights(where: Frame, kinds: tuple[int, ...]) -> np.ndarray:
    """The weight of every row: a share of all tokens, or of the trapezoidal rule times the share of positions of a kind."""
    if where.order is not None:
        return np.full(where.rows, 1 / where.rows)
    steps = np.diff([nearest(x) for x in where.line])
    line = (np.append(steps, 0.0) + np.append(0.0, steps)) / 2
    shares = np.bincount(kinds) / len(kinds)
    return np.kron(np.repeat(shares, len(where.directions)), line)


def _classes(table: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(one row of every kind, the kind of every row); rows that differ by rounding only are of one kind."""
    size = float(np.abs(table).max(initial=0.0)) or 1.0
    seen: dict[bytes, int] = {}
    kinds = np.array([seen.setdefault(row.tobytes(), len(seen)) for row in np.round(table / (size * 2.0**-44)) + 0.0])
    return np.array([int(np.argmax(kinds == k)) for k in range(len(seen))]), kinds


def _sigma_error(matrix: np.ndarray, u: np.ndarray, sigma: np.ndarray, vt: np.ndarray) -> float:
    """How far computed singular values are from those of a matrix of floats: Ostrowski for the factors, Weyl for what they leave."""
    count = len(sigma)
    slack = max(matrix.shape) * 2.0**-50  # products of n terms of vectors of length 1, in Frobenius norm
    bent = [float(np.linalg.norm(part - np.eye(count))) + slack * math.sqrt(count) for part in (u.T @ u, vt @ vt.T)]
    first = float(sigma[0]) if count else 0.0
    rest = float(np.linalg.norm(matrix - (u * sigma) @ vt)) + slack * math.sqrt(count) * first
    return 2 * (first * (bent[0] + bent[1] + bent[0] * bent[1]) + rest)


def _power_above(value: float) -> float:
    """The least power of 2 that is not below a positive number: what is left of rounding noise is a matter of its size."""
    return 2.0 ** math.ceil(math.log2(value)) if value > 0 else 0.0


def _second(coupling: FormulaCoupling, index: int, u: arb, v: arb) -> list[arb]:
    """(ρ, ∂ρ, ∂²ρ/2) in one variable."""
    return coupling.taylor(index, 2, u, v)


@lru_cache(maxsize=32)
def interpolation(target: PointsTarget, where: Frame) -> arb:
    """sup_{t,u} ½ osc_{s,v} (ρ − I ρ) on the box; 0 on finite sets."""
    total = arb(0)
    if where.order is not None:
        return total
    with working_precision(BITS):
        for term in target.rho:
            moving = {name[0] for name in term.used}
            if not moving & {"u", "v"} or not moving & {"s", "v"}:
                continue  # numbers at the positions, and functions of the query
            grids = [where.line if letter in moving else (fmpq(0), fmpq(1)) for letter in "uv"]
            errors = []
            for _, pairs in itertools.groupby(target.position_pairs(term), key=lambda pair: pair[0]):
                found = [target.pair_coupling(term, *pair) for pair in pairs]
                errors.append(seen_error([partial(_second, one) for one in found], *grids))
            total += maximum(errors)
    return total.upper()


def value_features(target: PointsTarget, where: Frame) -> list[list[np.ndarray]]:
    """f at the knots, [position][axis] → (knots, m): on boxes the functions of each coordinate."""
    with working_precision(BITS):
        if where.order is not None:
            values = [target.value(*target.tokens[k]) for k in where.order]
            return where.split(np.array([[float(v.mid()) for v in row] for row in values]))
        table = np.zeros((target.length, target.space, len(where.line), len(target.f)))
        for c, terms in enumerate(target.f):
            for term in terms:
                for s in target.positions_of(term):
                    formula = target.value_formula(term, s)
                    chosen = slice(s - 1, s) if "s" in term.used else slice(None)
                    table[chosen, target.value_axis(term), :, c] += np.array([float(formula.at(x).mid()) for x in where.line])
        return [list(blocks) for blocks in table]


def value_interpolation(target: PointsTarget, where: Frame) -> list[arb]:
    """sup |f_c − I f_c| of every component; 0 on finite sets."""
    if where.order is not None:
        return [arb(0) for _ in target.f]
    knots, errors = where.line, []
    with working_precision(BITS):
        for terms in target.f:
            total = arb(0)
            for term in terms:
                formulas = [target.value_formula(term, s) for s in target.positions_of(term)]
                bent = [maximum(interpolation_error(partial(formula.taylor, 0, 2), knots)) for formula in formulas]
                total += maximum(bent)
            errors.append(total.upper())
    return errors


@dataclass(frozen=True)
class PointsBudget:
    """What the theorem promises, in parts; every number is an upper bound."""

    tail: arb
    interpolation: arb
    stored: arb
    values: list[arb]
    readout: arb
    slopes: list[arb]
    oscillations: list[arb]

    @property
    def coupling(self) -> arb:
        """δ."""
        return self.tail + self.interpolation + self.stored

    @property
    def moved(self) -> arb:
        """Σ_c Lip_c ‖f_c − f̂_c‖."""
        return sum((lip * error for lip, error in zip(self.slopes, self.values, strict=True)), arb(0))

    @property
    def price(self) -> arb:
        """Σ_c Lip_c osc(f_c)/2: what δ costs."""
        return sum((lip * osc for lip, osc in zip(self.slopes, self.oscillations, strict=True)), arb(0)) / 2

    @property
    def total(self) -> arb:
        """Σ_c Lip_c (osc(f_c) δ/2 + ‖f_c − f̂_c‖) + ‖F − F̂‖."""
        return self.price * self.coupling + self.moved + self.readout


def points_budget(target: PointsTarget, rank: int, where: Frame, readout: arb, stored: arb, values_stored: list[arb]) -> PointsBudget:
    """The promise for m_h = rank, splines with these knots on boxes, a read-out that is off by `readout`, and rounded weights."""
    found = point_factors(target, where)
    with working_precision(BITS):
        sizes, slack = target.value_sizes, arb(SLACK)
        bent = value_interpolation(target, where)
        values = [error + kept + slack * (1 + size) for error, kept, size in zip(bent, values_stored, sizes, strict=True)]
        slopes = target.readout.lipschitz([size + error for size, error in zip(sizes, values, strict=True)])
        tail = arb(found.tail(rank))
        return PointsBudget(tail, interpolation(target, where), stored, values, readout, slopes, target.oscillations)


def exact_budget(target: PointsTarget, rank: int, pieces: int, readout: arb) -> PointsBudget:
    """The same for exact weights."""
    return points_budget(target, rank, frame(target, pieces), readout, arb(0), [arb(0)] * len(target.f))


def plan_points(target: PointsTarget, rank: int | None, pieces: int | None, error: float) -> tuple[int, int]:
    """(m_h, pieces): as given, or the fewest for which the tail and the splines cost a third of the error each."""
    found = _plan_pieces(target, error) if pieces is None else _checked_pieces(target, pieces)
    if rank is not None:
        return rank, found
    decomposed = point_factors(target, frame(target, found))
    price = upper(exact_budget(target, 1, found, arb(0)).price)
    for m in range(1, max(1, len(decomposed.sigma)) + 1):
        if price * decomposed.tail(m) <= error / SHARES["tail"]:
            return m, found
    most = max(1, len(decomposed.sigma))
    least = price * decomposed.tail(most)
    raise Refusal(
        f"no rank up to {most} brings the tail of the coupling below {error / SHARES['tail']:.3g}", *larger_error(SHARES["tail"] * least)
    )


def _checked_pieces(target: PointsTarget, pieces: int) -> int:
    if target.points is not None:
        raise InputError("knots is for boxes; on finite sets the points are the knots")
    most = most_pieces(target)
    if not 1 <= pieces <= most or pieces & (pieces - 1):
        raise InputError(f"{pieces} knots: splines have a power of 2 of pieces, from 1 to {most} for this target")
    return pieces


def _plan_pieces(target: PointsTarget, error: float) -> int:
    """The fewest pieces (a power of 2) for which splines cost at most a third of the error."""
    if target.points is not None:
        return 1
    pieces, most, cost = 1, most_pieces(target), math.inf
    if not most:
        raise Refusal(
            f"{target.length} positions in dimension {target.space} are too many for a box: the coupling is compared at {MAX_ROWS} knots"
        )
    sizes = target.value_sizes
    with working_precision(BITS):
        while pieces <= most:
            where = frame(target, pieces)
            values = value_interpolation(target, where)
            slopes = target.readout.lipschitz([size + off for size, off in zip(sizes, values, strict=True)])
            delta = interpolation(target, where)
            parts = zip(slopes, target.oscillations, values, strict=True)
            cost = upper(sum((lip * (osc * delta / 2 + off) for lip, osc, off in parts), arb(0)))
            if cost <= error / SHARES["splines"]:
                return pieces
            pieces *= 2
    raise Refusal(f"splines of {most} pieces leave {cost:.3g} of the error {error:g}", *larger_error(SHARES["splines"] * cost))


def readout_radii(target: PointsTarget) -> list[arb]:
    """The box of values on which F is approximated: a little larger than those of f, as f̂ is."""
    return [size * (1 + arb(2) ** -20) + arb(2) ** -20 for size in target.value_sizes]


def plan_points_readout(target: PointsTarget, error: float) -> "tuple[list[arb], float]":
    """The box, and the error that the read-out may have."""
    return readout_radii(target), error / SHARES["readout"]


def readout_promise(target: PointsTarget, error: float) -> arb:
    """What the spline of F costs that is planned for a total error."""
    radii, share = plan_points_readout(target, error)
    with working_precision(BITS):
        return plan_feedforward("spline", target.readout, radii, None, share).error
