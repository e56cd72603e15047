"""The weights for couplings of points at positions (statement: `analyzer.theorems.jl_points`).

Residual stream of width D = d + 1 + 2m_h + 2m: the code of the position, the point, q_1..q_m, k_1..k_m, the values, the answers.

    W_E, b_E  the token into the first slots; every other slot starts at its value at position 1 and the first knots
    layer 1   attention off; the FFN writes q, k and f, each Σ_i g_i(s, a_i·x) with g_i(s, ·) linear between knots
    layer 2   one head over all tokens: W_Q picks q, W_K picks k, W_V the values, W_O writes the answer slots
    last FFN  the ridge splines of F on the box of the values; it reads the answer slots only

A function of position and point in one row of neurons: let z = a_i·x, p the code of the position, h the distance of two codes, and Lh at
least twice the length of the range of z. The neuron relu(z − k − L(p − p_s)) is 0 at later positions, relu(z − k) at position s and z − k
+ L(p_s − p), linear, at earlier ones. So Σ_j c_j relu(z − k_j − L(p − p_s)) over all knots k_0 < … < k_M of position s with Σ_j c_j = 0
(the last one levels the function off) is a piecewise linear function of z at position s, 0 later, and the constant −Σ_j c_j k_j earlier.
What all positions have in common, but for a number, is written by relu(z − k_j) alone; the numbers, by kinks relu(p − p_s) in the code."""

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import fmpq

from analyzer.families import DEFAULT_ERROR, Points
from analyzer.lemmas.feedforward import plan_feedforward
from analyzer.lemmas.points import Frame, frame, plan_points, plan_points_readout, point_factors, value_features
from analyzer.numbers.exact import rational, working_precision
from analyzer.targets.coupling import BITS
from analyzer.targets.points import Point, PointsTarget
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, zeros
from constructions.neurons.feedforward import as_network, spline
from constructions.theorems.construction import Construction
from constructions.theorems.jl_4_2 import rounded, silent, slope_changes

SAME = 2.0**-40
"""Functions that differ from position to position by a number and this share of their size are taken to differ by the number only."""


def slots(target: PointsTarget, network: Transformer) -> dict[str, range]:
    """Named coordinates of the residual stream: `position`, `x1` …, `q1` …, `k1` …, `value1` …, `answer1` …"""
    values = len(target.f)
    rank = (int(network.embedding.shape[0]) - target.dim - 2 * values) // 2
    counted = (("x", target.space), ("q", rank), ("k", rank), ("value", values), ("answer", values))
    names = ["position", *(f"{name}{k}" for name, count in counted for k in range(1, count + 1))]
    return {name: range(j, j + 1) for j, name in enumerate(names)}


def meanings(target: PointsTarget, network: Transformer) -> dict[str, str]:
    """What the slots hold once their layer has written them."""
    words = {"x": "coordinate {} of the point", "value": "value {} of the point", "answer": "the mean of value {} under the attention"}
    words |= {letter: f"the point's singular function {{}} as a {what}" for letter, what in (("q", "query"), ("k", "key"))}
    told = {"position": "where the point stands"}
    for name in slots(target, network):
        stem = name.rstrip("0123456789")
        if stem in words:
            told[name] = words[stem].format(name.removeprefix(stem))
    return told


def build(target: PointsTarget, options: Points | None = None, **keywords: Any) -> Construction:
    """Build the network; sizes that are not given follow from the error (default: 0.01)."""
    options = Points.of(options, keywords)
    wanted = DEFAULT_ERROR if options.error is None else options.error
    rank, pieces = plan_points(target, options.rank, options.knots, wanted)
    network = assemble(target, rank, pieces, wanted)
    built = replace(options, rank=rank, knots=pieces if target.points is None else None)
    return Construction(target, built, network if options.dtype == "exact" else rounded(network, options.dtype))


def assemble(target: PointsTarget, rank: int, pieces: int, error: float) -> Transformer:
    """Exact weights from the first singular functions and f at the knots; missing functions (m_h beyond the rank) are zero."""
    found = point_factors(target, frame(target, pieces))
    where, width, values = found.where, target.dim + 2 * rank + 2 * len(target.f), len(target.f)
    starts = (target.dim, target.dim + rank, target.dim + 2 * rank)
    parts = (*found.features(rank), value_features(target, where))
    written = [start + k for start, part in zip(starts, parts, strict=True) for k in range(part[0][0].shape[1])]
    tables = [[np.concatenate([part[s][i] for part in parts], axis=1) for i in range(len(where.directions))] for s in range(target.length)]
    first = _PositionedSplines(target, where, [[_exact(table) for table in line] for line in tables]).neurons()
    embedding, bias = zeros(width, target.dim), zeros(width)
    for k in range(target.dim):
        embedding[k, k] = fmpq(1)
    inner, outer = zeros(len(first.neurons), width), zeros(width, len(first.neurons))
    for n, neuron in enumerate(first.neurons):
        inner[n, : target.dim] = exact_array([neuron.code, *neuron.row])
        for slot, weight in zip(written, neuron.outer, strict=True):
            outer[slot, n] = weight
    for slot, start in zip(written, first.start, strict=True):
        bias[slot] = start
    query, key = zeros(1, rank, width), zeros(1, rank, width)
    value, output = zeros(1, values, width), zeros(1, width, values)
    for k in range(rank):
        query[0, k, starts[0] + k] = key[0, k, starts[1] + k] = fmpq(1)
    for c in range(values):
        value[0, c, starts[2] + c] = output[0, starts[2] + values + c, c] = fmpq(1)
    attention = Attention(zeros(1), value, output, query, key, zeros(0, width), ("none",), "dp", "full")
    hidden = FeedForward(inner, exact_array([neuron.bias for neuron in first.neurons]), outer)
    return Transformer(embedding, bias, (Layer(silent(width), hidden), Layer(attention, _readout(target, error, width))))


def _exact(table: np.ndarray) -> list[list[fmpq]]:
    """Columns of floats as rationals."""
    return [[rational(float(v)) for v in column] for column in table.T]


def _readout(target: PointsTarget, error: float, width: int) -> FeedForward:
    """The spline of F on the answer slots, the last ones of the stream."""
    radii, share = plan_points_readout(target, error)
    with working_precision(BITS):
        plan = plan_feedforward("spline", target.readout, radii, None, share)
        narrow = as_network(spline(target.readout, plan, radii))
    inner = zeros(narrow.inner.shape[0], width)
    inner[:, width - len(target.f) :] = narrow.inner
    return FeedForward(inner, narrow.bias, narrow.outer)


@dataclass(frozen=True)
class TokenNeuron:
    """relu(code·p + row·x + bias), with its weight in every function."""

    code: fmpq
    row: Point
    bias: fmpq
    outer: list[fmpq]


@dataclass(frozen=True)
class TokenFunctions:
    """start + Σ outer relu(code·p + row·x + bias)."""

    start: list[fmpq]
    neurons: list[TokenNeuron]


@dataclass(frozen=True)
class _PositionedSplines:
    """Functions Σ_i g_i(s, a_i·x): tables[s][i] has one column of values at knots[s][i] for each of them."""

    target: PointsTarget
    where: Frame
    tables: Sequence[Sequence[list[list[fmpq]]]]

    def neurons(self) -> TokenFunctions:
        count, positions = len(self.tables[0][0]), self.target.length
        numbers = [[fmpq(0)] * positions for _ in range(count)]
        found: list[TokenNeuron] = []
        sizes = [max(abs(v) for line in self.tables for table in line for v in table[k]) for k in range(count)]
        for i, axis in enumerate(self.where.directions):
            knots, common = self.where.knots[0][i], self.tables[0][i]
            bends = [_bends(knots, column) for column in common]
            found += [TokenNeuron(fmpq(0), axis, -k, [bend[j] for bend in bends]) for j, k in enumerate(knots[:-1])]
            for s in range(positions):
                rest = [_minus(column, self.where.knots[s][i], knots, base) for column, base in zip(self.tables[s][i], common, strict=True)]
                for total, column, base in zip(numbers, rest, common, strict=True):
                    total[s] += base[0] + column[0]
                if any(max(column) - min(column) > rational(SAME) * size for column, size in zip(rest, sizes, strict=True)):
                    gated, earlier = self._gated(s, i, rest)
                    found += gated
                    for total, change in zip(numbers, earlier, strict=True):
                        total[:s] = [v - change for v in total[:s]]
        codes = self.target.codes
        if positions > 1:
            changes = [slope_changes(codes, line) for line in numbers]
            none = (fmpq(0),) * self.target.space
            found += [TokenNeuron(fmpq(1), none, -codes[s], [change[s] for change in changes]) for s in range(positions - 1)]
        kept = [neuron for neuron in found if any(w != 0 for w in neuron.outer)] or found[:1]
        return TokenFunctions(
            [line[0] for line in numbers], kept or [TokenNeuron(fmpq(1), (fmpq(0),) * self.target.space, fmpq(0), [fmpq(0)] * count)]
        )

    def _gated(self, s: int, i: int, rest: list[list[fmpq]]) -> tuple[list[TokenNeuron], list[fmpq]]:
        """Neurons of functions that live at one position, and the constants that they leave at earlier ones."""
        knots, axis, codes = self.where.knots[s][i], self.where.directions[i], self.target.codes
        reach = sum((abs(a) for a in axis), fmpq(0))
        steep = 4 * reach / (codes[1] - codes[0]) if len(codes) > 1 else fmpq(0)
        bends = [_bends(knots, column) for column in rest]
        weights = [[*bend, -sum(bend, fmpq(0))] for bend in bends]
        neurons = [TokenNeuron(-steep, axis, steep * codes[s] - k, [w[j] for w in weights]) for j, k in enumerate(knots)]
        return neurons, [-sum((w * k for w, k in zip(line, knots, strict=True)), fmpq(0)) for line in weights]


def _bends(knots: Sequence[fmpq], values: list[fmpq]) -> list[fmpq]:
    return slope_changes(tuple(knots), values) if len(knots) > 1 else []


def _minus(column: list[fmpq], at: Sequence[fmpq], knots: Sequence[fmpq], base: list[fmpq]) -> list[fmpq]:
    """A function at its knots, minus the function that all positions have, which is linear beyond its own knots."""
    if tuple(at) == tuple(knots):
        return [a - b for a, b in zip(column, base, strict=True)]
    changes, result = _bends(knots, base), []
    for x, value in zip(at, column, strict=True):
        active = bisect_right(list(knots), x)
        moved = sum((c * (x - k) for c, k in itertools.islice(zip(changes, knots, strict=False), active)), base[0])
        result.append(value - moved)
    return result
