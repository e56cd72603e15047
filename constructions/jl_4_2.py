"""The weights of Theorem 4.2 of Jiang & Li (statement: `analyzer.theorems.jl_4_2`).

Residual stream of width D = 2m_h + 3: the token, q_1..q_m, k_1..k_m, the value, the answer.

    W_E, b_E  x_t into the first slot; every other slot starts at the value of its spline at 0
    layer 1   attention off (no values); the FFN is one row of kinks relu(x − u_i), shared by all splines: it writes
              q_k = √σ_k φ_k, k_k = √σ_k ψ_k and f
    layer 2   one head over all tokens of the array: W_Q picks q, W_K picks k, W_V the value, W_O writes the answer slot
    last FFN  the spline of F on the hull of the values; it reads the answer slot only, so the residual plays no part

Knots are dyadic, so that subtracting them is exact in the weights of every type. In exact networks splines pass exactly through the
computed values of the singular functions.
"""

import itertools
from dataclasses import dataclass

import jax
import numpy as np
from flint import arb, fmpq

from analyzer.couplings import BITS, CouplingTarget, SineCoupling
from analyzer.errors import InputError, Refusal
from analyzer.exact import rational, upper, working_precision
from analyzer.low_rank import MAX_KNOTS, MAX_POD_RANK, budget, check_rank, factors, readout_budget, uniform_knots
from analyzer.theorems.jl_4_2 import DEFAULT_ERROR, LEAST_ERROR
from constructions.transformer import Attention, FeedForward, Layer, Transformer, exact_array, to_float, zeros

PLANNED = 128
"""Pieces at which the rank is planned: by then the tail at the knots hardly changes."""


@dataclass(frozen=True)
class Construction:
    """A network and what it was built for."""

    network: Transformer
    target: CouplingTarget
    bank: str
    rank: int
    ffn: str = "spline"
    seed: int = 0
    draws: int = 0


def build(
    target: CouplingTarget,
    *,
    bank: str = "pod",
    rank: int | None = None,
    knots: int | None = None,
    error: float | None = None,
    dtype: str = "exact",
) -> Construction:
    """Build the network; sizes that are not given follow from the error (default: 0.01)."""
    if rank is not None:
        check_rank(rank)
    if error is not None and not LEAST_ERROR <= error < float("inf"):
        raise InputError(f"error {error} is out of range; give at least {LEAST_ERROR}")
    wanted = DEFAULT_ERROR if error is None else error
    if rank is None:
        rank = plan_rank(target, bank, wanted)
    if knots is None:
        knots = plan_knots(target, bank, rank, wanted, dtype)
    check_knots(target, knots)
    us = uniform_knots(knots)
    found = factors(target.coupling, us, bank)
    network = assemble(target, found.left[:, :rank], found.right[:, :rank], us, rank, wanted)
    return Construction(network if dtype == "exact" else rounded(network, dtype), target, bank, rank)


def rounded(network: Transformer, dtype: str) -> Transformer:
    """The network in a float type; refused if a weight overflows it."""
    result = network.map(lambda weights: to_float(weights, dtype))
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(result)):
        raise Refusal(f"a weight exceeds the largest {dtype}; use --dtype exact")
    return result


def check_knots(target: CouplingTarget, knots: int) -> None:
    most = MAX_KNOTS["sine" if isinstance(target.coupling, SineCoupling) else "formula"]
    if isinstance(knots, bool) or not 1 <= knots <= most or knots & (knots - 1):
        raise InputError(f"{knots} knots: splines have a power of 2 of pieces, from 1 to {most}")


def plan_rank(target: CouplingTarget, bank: str, error: float) -> int:
    """The least m_h whose tail costs at most half of the error."""
    found = factors(target.coupling, uniform_knots(PLANNED), bank)
    low, high = target.value_range
    price = upper(target.slope(arb(low), arb(high)) * target.largest_value)
    for rank in range(1, MAX_POD_RANK + 1):
        if price * found.tail(rank) <= error / 2:
            return rank
        if rank >= len(found.sigma):
            break
    raise Refusal(
        f"no rank up to {min(MAX_POD_RANK, len(found.sigma))} brings the tail of the coupling below {error / 2:.3g}; "
        "use a larger --error, or give --rank"
    )


def plan_knots(target: CouplingTarget, bank: str, rank: int, error: float, dtype: str) -> int:
    """The fewest pieces (a power of 2) for which everything but the tail costs at most half of the error."""
    most = MAX_KNOTS["sine" if isinstance(target.coupling, SineCoupling) else "formula"]
    knots = 4
    while True:
        promised = budget(target, bank, rank, uniform_knots(knots), hull_knots(target, 1), dtype)
        rest = promised.slope * (promised.largest * (promised.interpolation + promised.stored) + promised.values)
        if upper(rest) <= error / 3:
            return knots
        if knots >= most:
            raise Refusal(
                f"splines of {knots} pieces leave {upper(rest):.3g} of the error {error:g}; use a larger --error or a smoother coupling"
                + ("" if dtype == "exact" else ", or more bits")
            )
        knots *= 2


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
    pieces = 1
    while pieces <= MAX_KNOTS["formula"]:
        knots = hull_knots(target, pieces, low, high)
        with working_precision(BITS):
            if upper(readout_budget(target, knots, "exact")) <= error / 6:
                return knots
        pieces *= 2
    raise Refusal(f"no spline of {MAX_KNOTS['formula']} pieces follows F to {error / 6:.3g}; use a larger --error or a smoother F")


def assemble(target: CouplingTarget, left: np.ndarray, right: np.ndarray, us: tuple[fmpq, ...], rank: int, error: float) -> Transformer:
    """Exact weights from the values of all splines at the knots; missing factors (m_h beyond the rank) are zero."""
    kept, pieces = left.shape[1], len(us) - 1
    width = 2 * rank + 3
    value_slot, answer = width - 2, width - 1
    with working_precision(BITS):
        columns = {1 + k: [rational(float(v)) for v in left[:, k]] for k in range(kept)}
        columns |= {1 + rank + k: [rational(float(v)) for v in right[:, k]] for k in range(kept)}
        columns[value_slot] = [rational(float(target.f.at(x))) for x in us]
    embedding, bias, outer = zeros(width, 1), zeros(width), zeros(width, pieces)
    embedding[0, 0] = fmpq(1)
    for slot, values in columns.items():
        bias[slot] = values[0]
        outer[slot] = slope_changes(us, values)
    inner = zeros(pieces, width)
    inner[:, 0] = fmpq(1)
    first = Layer(silent(width), FeedForward(inner, exact_array([-x for x in us[:-1]]), outer))
    query, key, value, output = zeros(1, rank, width), zeros(1, rank, width), zeros(1, 1, width), zeros(1, width, 1)
    for k in range(rank):
        query[0, k, 1 + k] = key[0, k, 1 + rank + k] = fmpq(1)
    value[0, 0, value_slot] = output[0, answer, 0] = fmpq(1)
    attention = Attention(zeros(1), value, output, query, key, zeros(0, width), ("none",), "dp", "full")
    low, high = min(columns[value_slot]), max(columns[value_slot])
    readout = spline_readout(target, plan_readout(target, low, high, error), width, answer)
    return Transformer(embedding, bias, (first, Layer(attention, readout)))


def slope_changes(knots: tuple[fmpq, ...], values: list[fmpq]) -> list[fmpq]:
    """Weights of relu(x − u_i) in the spline through the values, minus its value at the first knot."""
    slopes = [(b - a) / (v - u) for (a, b), (u, v) in zip(_pairs(values), _pairs(knots), strict=True)]
    return [slopes[0], *(b - a for a, b in _pairs(slopes))]


def _pairs(values: list[fmpq] | tuple[fmpq, ...]) -> list[tuple[fmpq, fmpq]]:
    return list(itertools.pairwise(values))


def silent(width: int) -> Attention:
    """A head without values: attention that is off."""
    return Attention(
        zeros(1), zeros(1, 0, width), zeros(1, width, 0), zeros(1, 0, width), zeros(1, 0, width), zeros(0, width), ("none",), "dp", "full"
    )


def spline_readout(target: CouplingTarget, ys: tuple[fmpq, ...], width: int, answer: int) -> FeedForward:
    """F̂(y) = F(y_0) relu(1) + Σ_i c_i relu(y − y_i), on the answer slot."""
    with working_precision(BITS):
        values = [rational(float(target.F.at(y))) for y in ys]
    changes = [] if ys[0] == ys[-1] else slope_changes(ys, values)
    inner = zeros(len(changes) + 1, width)
    inner[1:, answer] = fmpq(1)
    bias = exact_array([fmpq(1), *(-y for y in ys[: len(changes)])])
    return FeedForward(inner, bias, exact_array([[values[0], *changes]]))
