"""What a network with m_h query and key coordinates promises for a coupling: the numbers behind `analyzer.theorems.jl_4_2`.

Knots u_0 < … < u_M on [0, 1] are those of the splines; A_ik = √σ_k φ_k(u_i), B_jk = √σ_k ψ_k(v_j) are the factors of the coupling
there. Between knots everything the network computes is (bi)linear, and I never increases a sup norm, so with ρ̂ = I(Σ_{k≤m} σ_k φ_k
ψ_k)

    inf_g sup |ρ − g(u) − ρ̂| ≤ T_m + inf_c sup|ρ − I ρ − c| + storage,
    T_m = max_i (Σ_{k>m} A_ik²)^{1/2} · max_j (Σ_{k>m} B_jk²)^{1/2} + max_i ½ osc_j (ρ_ij − Σ_k A_ik B_jk)      (Cauchy–Schwarz).

The last term is what the known singular functions leave over. Softmax does not see a function g(u) of the query alone. Equal singular
values have no preferred singular functions: where m cuts through a group of them, the whole group counts as tail, so that T_m does
not depend on how a machine turned them.

The same tail in mean: for independent uniform tokens, δ = ρ − g(u) − ρ̂ and any t,

    E max_s |δ(x_t, x_s)| ≤ ∫|δ(u, u)| du + √(τ−1) ‖δ‖_{L²},      and the same with root mean squares,

because the token itself is one of those attended to: s = t gives the diagonal, which no L² norm on the square bounds.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal, finer, larger_error
from analyzer.lemmas.pod import Pod, pod
from analyzer.numbers.exact import UNIT, maximum, range_pieces, rational, upper, working_precision
from analyzer.numbers.piecewise import interpolation_error
from analyzer.ranges import check_range
from analyzer.targets.coupling import BITS, MAX_KNOTS, Coupling, CouplingTarget, SineCoupling, grid_error

Bank = Literal["pod", "centred"]
BANKS = ("pod", "centred")
"""Singular functions of ρ, as in the paper, or of ρ − ∫ρ dv: softmax does not see the difference."""
SLACK = 2.0**-40
"""Singular functions are computed in floats; on another machine, or by other orders of summation, they differ by less than this share."""
NEGLIGIBLE = 2.0**-40
"""Singular values below this share of the first are left to the remainder: their functions would be rounding noise."""
CLUSTER = 2.0**-20
"""Singular values closer than this share count as equal."""
PLANNED = 128
"""Pieces at which the rank is planned: by then the tail at the knots hardly changes."""
LEAST_ERROR = 1e-9
"""Singular functions are known to about 2^-40."""
MAX_POD_RANK = 256


def spectrum(coupling: Coupling, pod: str) -> Pod:
    """The certified singular values of a coupling, or of the coupling modulo functions of u."""
    return _spectrum(coupling, pod == "centred")


@lru_cache(maxsize=16)
def _spectrum(coupling: Coupling, centred: bool) -> Pod:
    return pod(coupling, centred=centred)


@dataclass(frozen=True, eq=False)
class CouplingFactors:
    """√σ_k φ_k and √σ_k ψ_k at the knots, and what they leave of ρ there (half the oscillation over v)."""

    knots: tuple[fmpq, ...]
    sigma: np.ndarray  # (r,)
    left: np.ndarray  # (M+1, r)
    right: np.ndarray  # (M+1, r)
    remainder: float
    largest: float
    values: np.ndarray  # (M+1, M+1): ρ

    def gap(self, rank: int) -> np.ndarray:
        """What the first m leave of ρ at the knots, each row's mean over v removed."""
        rest = self.values - self.left[:, :rank] @ self.right[:, :rank].T
        return rest - (rest @ self.weights)[:, None]

    def left_over(self, rank: int) -> np.ndarray:
        """|gap(m)| or, where m cuts through a group of equal singular values, the most it can be for any choice of their functions.

        What such a choice drops is a·Pb with the group's factors a, b at two knots and a projection P: at most |a||b|.
        """
        start, end = self.group(rank), rank + 1
        if start >= min(rank, len(self.sigma)):
            return np.abs(self.gap(rank))
        while end < len(self.sigma) and self.sigma[end - 1] <= self.sigma[end] * (1 + CLUSTER):
            end += 1
        a, b = self.left[:, start:end], self.right[:, start:end] - self.weights @ self.right[:, start:end]
        return np.abs(self.gap(end)) + np.outer(*(np.linalg.norm(part, axis=1) for part in (a, b)))

    @property
    def weights(self) -> np.ndarray:
        """Of the trapezoidal rule."""
        steps = np.diff(np.array([float(arb(x)) for x in self.knots]))
        return (np.append(steps, 0.0) + np.append(0.0, steps)) / 2

    def tail(self, rank: int) -> float:
        """T_m, rounded up."""
        start = self.group(rank)
        sizes = [float(np.sqrt((part[:, start:] ** 2).sum(axis=1).max(initial=0.0))) for part in (self.left, self.right)]
        return (sizes[0] * sizes[1] + self.remainder) * (1 + SLACK) + SLACK * (1 + self.largest)

    def group(self, rank: int) -> int:
        """How many leading functions are kept for sure: m, or where the group of equal singular values begins that m cuts through."""
        if rank >= len(self.sigma):
            return len(self.sigma)
        while rank and self.sigma[rank - 1] <= self.sigma[rank] * (1 + CLUSTER):
            rank -= 1
        return rank


def uniform_knots(pieces: int) -> tuple[fmpq, ...]:
    return tuple(fmpq(i, pieces) for i in range(pieces + 1))


@lru_cache(maxsize=4)
def factors(coupling: Coupling, knots: tuple[fmpq, ...], pod: str) -> CouplingFactors:
    """The factors of a coupling at given knots."""
    found = spectrum(coupling, pod)
    points = np.array([float(arb(x)) for x in knots])
    phi, psi = found.functions(points)
    sigma = np.array([float(v.mid()) for v in found.values])[: phi.shape[1]]
    used = int((sigma > NEGLIGIBLE * sigma[0]).sum()) if len(sigma) and sigma[0] > 0 else 0
    root = np.sqrt(sigma[:used])
    left, right = phi[:, :used] * root, psi[:, :used] * root
    values, error = coupling.grid(knots, knots)
    rest = values - left @ right.T
    remainder = float((rest.max(axis=1) - rest.min(axis=1)).max()) / 2 + error
    return CouplingFactors(knots, sigma[:used], left, right, remainder, float(np.abs(values).max()), values)


def bends(values: np.ndarray, knots: Sequence[fmpq]) -> np.ndarray:
    """Weights of relu(x − u_i), i < M, in the spline through `values` (M+1, …): the first slope, then changes of slope."""
    steps = np.array([float(arb(b - a)) for a, b in itertools.pairwise(knots)]).reshape(-1, *[1] * (values.ndim - 1))
    rises = np.diff(values, axis=0)
    slopes = np.divide(rises, steps, out=np.zeros_like(rises), where=steps > 0)  # the hull of a constant f has no length
    return np.concatenate([slopes[:1], np.diff(slopes, axis=0)])


def storage(values: np.ndarray, knots: Sequence[fmpq], dtype: str) -> np.ndarray:
    """How far rounding the weights to a type can move a spline: u(|a_0| + Σ_i |c_i| (1 − u_i)), for each column; 0 for exact weights."""
    if dtype == "exact":
        return np.zeros(values.shape[1:])
    reach = np.array([float(arb(knots[-1] - x)) for x in knots[:-1]])
    unit = float(arb(UNIT[dtype]))
    return (
        2 * unit * (np.abs(values[0]) + np.tensordot(reach, np.abs(bends(values, knots)), axes=1))
    )  # twice: weights and their rounding here


@dataclass(frozen=True)
class Budget:
    """What the theorem promises, in parts; every number is an upper bound."""

    tail: arb
    interpolation: arb
    stored: arb
    values: arb
    readout: arb
    slope: arb
    largest: arb

    @property
    def coupling(self) -> arb:
        """inf_g sup |ρ − g(u) − ρ̂|."""
        return self.tail + self.interpolation + self.stored

    @property
    def total(self) -> arb:
        """Lip(F)(‖f‖ δ + ‖f − f̂‖) + ‖F − F̂‖."""
        return self.slope * (self.largest * self.coupling + self.values) + self.readout


def check_rank(rank: Any) -> None:
    if isinstance(rank, bool) or not isinstance(rank, int):
        raise InputError(f"rank {str(rank)[:40]} is no whole number; give 1 to {MAX_POD_RANK}")
    check_range("rank", rank, 1, MAX_POD_RANK)


def budget(target: CouplingTarget, pod: str, rank: int, us: tuple[fmpq, ...], ys: Sequence[fmpq], dtype: str) -> Budget:
    """The promise for splines with knots `us` on [0, 1] and `ys` on the hull of the values."""
    check_rank(rank)
    found = factors(target.coupling, us, pod)
    with working_precision(BITS):
        values = values_budget(target, us, dtype)
        low, high = target.value_range
        return Budget(
            tail=arb(found.tail(rank)),
            interpolation=grid_error(target.coupling, us, us),
            stored=stored_error(target, pod, rank, us, dtype),
            values=values,
            readout=readout_budget(target, ys, dtype),
            slope=target.slope(arb(low) - values, arb(high) + values),
            largest=target.largest_value,
        )


def stored_error(target: CouplingTarget, pod: str, rank: int, us: tuple[fmpq, ...], dtype: str) -> arb:
    """How far rounding the weights of the splines can move logits."""
    found = factors(target.coupling, us, pod)
    kept = min(rank, len(found.sigma))
    left, right = found.left[:, :kept], found.right[:, :kept]
    e_left, e_right = storage(left, us, dtype), storage(right, us, dtype)
    sizes = [np.abs(part).max(axis=0, initial=0.0) for part in (left, right)]
    return arb(float((sizes[0] * e_right + sizes[1] * e_left + e_left * e_right).sum()) * (1 + SLACK))


def values_budget(target: CouplingTarget, us: Sequence[fmpq], dtype: str) -> arb:
    """sup |f − f̂| for the spline of f."""
    at_knots = np.array([float(target.f.at(x)) for x in us])
    rounding = arb(float(storage(at_knots, us, dtype))) + arb(SLACK) * (1 + target.largest_value)
    return maximum(interpolation_error(lambda x: target.f.taylor(0, 2, x), us)) + rounding


def readout_budget(target: CouplingTarget, ys: Sequence[fmpq], dtype: str) -> arb:
    """sup |F − F̂| for the spline of F; rounded knots move it by its slope besides."""
    at_knots = np.array([float(target.F.at(y)) for y in ys])
    moved = 0.0
    if dtype != "exact":
        moved = 2 * float(arb(UNIT[dtype])) * max(abs(float(arb(y))) for y in ys) * float(np.abs(bends(at_knots, ys)).sum())
    rounding = arb(float(storage(at_knots, ys, dtype)) + moved) + arb(SLACK) * (1 + arb(float(np.abs(at_knots).max())))
    return maximum(interpolation_error(lambda y: target.F.taylor(0, 2, y), ys)) + rounding


@dataclass(frozen=True)
class Averages:
    """Upper bounds of E|H_t − Ĥ_t| and of (E|H_t − Ĥ_t|²)^{1/2} for independent uniform tokens, and their ingredients."""

    l1: arb
    root_mean_square: arb
    diagonal: arb
    off_diagonal: arb


def averages(target: CouplingTarget, promised: Budget, pod: str, rank: int, us: tuple[fmpq, ...]) -> Averages:
    """The repaired Theorem 4.2 for splines: δ in L² for s ≠ t, on the diagonal for s = t, the sup norm of everything else.

    δ = I τ + (ρ − I ρ) + storage, τ what the first m singular functions leave of ρ. On a cell I τ is a mean of its corners, with
    weights that integrate to 1/4 of the area each and, along the diagonal, to 1/3, 1/6, 1/6, 1/3 of its length. Squares are convex, so
    the same weights bound ∫(I τ)² by the squares at corners: trapezoidal sums. Nothing depends on how equal singular values are turned.
    """
    found = factors(target.coupling, us, pod)
    gap, slack = found.left_over(rank), SLACK * (1 + found.largest)
    squares = float(found.weights @ gap**2 @ found.weights)
    steps = np.diff(np.array([float(arb(x)) for x in us]))
    sides = [np.diag(gap)[:-1], np.diag(gap, 1), np.diag(gap, -1), np.diag(gap)[1:]]
    means = [
        sum(share * (steps @ part**power) for share, part in zip((1 / 3, 1 / 6, 1 / 6, 1 / 3), sides, strict=True)) for power in (1, 2)
    ]
    with working_precision(BITS):
        diagonal, square = arb(float(means[0])) * (1 + slack) + slack, arb(float(means[1])).sqrt() * (1 + slack) + slack
        off = arb(target.length - 1).sqrt() * (arb(squares).sqrt() * (1 + slack) + slack)
        rest = promised.interpolation + promised.stored
        outside = promised.slope * promised.values + promised.readout
        scale = promised.slope * promised.largest
        # no mean is above the worst case
        l1, root = ((scale * (part + off + rest) + outside).min(promised.total) for part in (diagonal, square))
        return Averages(l1, root, diagonal, off)


@dataclass(frozen=True)
class Complexities:
    """C_0, C_1^{(α)} and C_2^{(2)}(m) of a representation, from above; None where a second derivative is not bounded.

    C_1 is over the singular values that are known one by one. C_2 is that of splines: an error of at most C_2/M² each for M pieces.
    """

    alpha: float
    c0: arb
    c1: arb
    c2: arb | None


def complexities(target: CouplingTarget, rank: int, alpha: float) -> Complexities:
    """‖φ_k‖ ≤ sup|ρ|/σ_k and ‖φ_k''‖ ≤ sup|ρ_uu|/σ_k, because σ_k φ_k(u) = ∫ρ(u, v) ψ_k(v) dv and ‖ψ_k‖_{L²} = 1."""
    check_rank(rank)
    coupling = target.coupling
    with working_precision(BITS):
        values = spectrum(coupling, "pod").values
        c1 = maximum([s.upper() * arb(k) ** arb(alpha) for k, s in enumerate(values, start=1)])
        kept = values[:rank]
        if isinstance(coupling, SineCoupling):
            sup = [2 * arb(2).sqrt() for _ in kept]
            bent = [2 * arb(2).sqrt() * (2 * arb.pi() * k) ** 2 for k in range(1, len(kept) + 1)]
        else:
            largest, curvature = _suprema(coupling)
            sup = [2 * largest / s.lower() for s in kept]
            bent = [curvature / s.lower() for s in kept]
        low, high = target.value_range
        slope = target.slope(arb(low), arb(high))
        c0 = arb(1).max(slope * target.largest_value * maximum([s.upper() for s in sup]))
        second = [_curvature(target.f, arb(0), arb(1)), arb(high - low) ** 2 * _curvature(target.F, arb(low), arb(high)), *bent]
        c2 = sum(second, arb(0)) / 8
        return Complexities(alpha, c0.upper(), c1.upper(), c2.upper() if c2.is_finite() else None)


def _curvature(formula: Any, low: arb, high: arb) -> arb:
    return _largest([2 * formula.taylor(0, 2, piece)[2] for piece in range_pieces(low, high, 64)])


def _suprema(coupling: Coupling) -> tuple[arb, arb]:
    """sup |ρ|, and sup |ρ_uu| + sup |ρ_vv|."""
    pieces = range_pieces(arb(0), arb(1), 32)
    boxes = list(itertools.product(pieces, pieces))
    second = [_largest([2 * coupling.taylor(index, 2, u, v)[2] for u, v in boxes]) for index in (0, 1)]
    return _largest([coupling.at(u, v) for u, v in boxes]), second[0] + second[1]


def _largest(values: list[arb]) -> arb:
    if not all(v.is_finite() for v in values):
        return arb.pos_inf()
    return arb(max(upper(abs(v)) for v in values))


def plan_sizes(target: CouplingTarget, pod: str, rank: int | None, knots: int | None, error: float, dtype: str) -> tuple[int, int]:
    """(m_h, pieces of the splines): as given, or the fewest for which the tail costs half of the error and the splines a third of it."""
    check_range("error", error, LEAST_ERROR, below=math.inf)
    if rank is not None:
        check_rank(rank)
    if knots is not None:
        check_knots(target, knots)
    if rank is None:
        rank = plan_rank(target, pod, error)
    return rank, plan_knots(target, pod, rank, error, dtype) if knots is None else knots


def check_knots(target: CouplingTarget, knots: int) -> None:
    """Knots are dyadic: a power of 2 of pieces, as many as the coupling can be compared at."""
    most = target.coupling.most_knots
    if isinstance(knots, bool) or not 1 <= knots <= most or knots & (knots - 1):
        raise InputError(f"{knots} knots: splines have a power of 2 of pieces, from 1 to {most}")


def plan_rank(target: CouplingTarget, pod: str, error: float) -> int:
    """The least m_h whose tail costs at most half of the error."""
    found = factors(target.coupling, uniform_knots(PLANNED), pod)
    low, high = target.value_range
    price = upper(target.slope(arb(low), arb(high)) * target.largest_value)
    for rank in range(1, MAX_POD_RANK + 1):
        if price * found.tail(rank) <= error / 2:
            return rank
        if rank >= len(found.sigma):
            break
    most = min(MAX_POD_RANK, len(found.sigma))
    raise Refusal(
        f"no rank up to {most} brings the tail of the coupling below {error / 2:.3g}",
        *larger_error(2 * price * found.tail(most)),
        {"rank": most, "error": None},
    )


def plan_knots(target: CouplingTarget, pod: str, rank: int, error: float, dtype: str) -> int:
    """The fewest pieces (a power of 2) for which splines and their storage cost at most a third of the error."""
    most = target.coupling.most_knots
    knots = min(4, most)
    while True:
        rest = _spline_cost(target, pod, rank, knots, dtype, error / 3 if knots < most else math.inf)
        if rest <= error / 3:
            return knots
        if knots >= most:
            types = [way for way in finer(dtype) if _spline_cost(target, pod, rank, knots, str(way["dtype"])) <= error / 3]
            raise Refusal(f"splines of {knots} pieces leave {rest:.3g} of the error {error:g}", *types, *larger_error(3 * rest))
        knots *= 2


def _spline_cost(target: CouplingTarget, pod: str, rank: int, knots: int, dtype: str, enough: float = math.inf) -> float:
    """What splines of so many pieces and their storage cost; without the storage, which takes long, if the splines exceed `enough`."""
    us = uniform_knots(knots)
    with working_precision(BITS):
        values, (low, high) = values_budget(target, us, dtype), target.value_range
        slope = target.slope(arb(low) - values, arb(high) + values)
        error = grid_error(target.coupling, us, us)
        cost = upper(slope * (target.largest_value * error + values))
        if dtype == "exact" or cost > enough:
            return cost
        error += stored_error(target, pod, rank, us, dtype)
        return upper(slope * (target.largest_value * error + values))


def is_affine(target: CouplingTarget) -> bool:
    """Whether F'' vanishes identically on the range of f."""
    low, high = target.value_range
    with working_precision(BITS):
        return bool(target.F.taylor(0, 2, arb(low).union(arb(high)))[2] == 0)


def hull_knots(target: CouplingTarget, pieces: int, low: fmpq | None = None, high: fmpq | None = None) -> tuple[fmpq, ...]:
    """Equal pieces of the range of f, or of a given hull."""
    start, end = target.value_range
    first, last = rational(start) if low is None else low, rational(end) if high is None else high
    return tuple(first + (last - first) * fmpq(i, pieces) for i in range(pieces + 1))


def plan_readout(target: CouplingTarget, low: fmpq, high: fmpq, error: float) -> tuple[fmpq, ...]:
    """Knots of F̂ on the hull: the fewest pieces (a power of 2) with an error of at most a sixth of what is asked for."""
    if is_affine(target) or low == high:
        return (low, high)
    pieces, reached = 1, math.inf
    while pieces <= MAX_KNOTS:
        knots = hull_knots(target, pieces, low, high)
        with working_precision(BITS):
            reached = upper(readout_budget(target, knots, "exact"))
        if reached <= error / 6:
            return knots
        pieces *= 2
    raise Refusal(f"no spline of {MAX_KNOTS} pieces follows F to {error / 6:.3g}", *larger_error(6 * reached))
