"""Functions of one variable inside a network's error: neurons of one direction, ridges, and their differences.

Neurons along one direction are a piecewise linear function P(v). A curve P(v) − Σ s ψ(αv + o) is stored by its values at nodes in double
precision, every kink being a node; between two nodes of distance h it leaves the chord by at most h²/8 sup D'' downwards and
h²/8 sup(−D'') upwards, with D'' = −Σ s α² ψ'' enclosed on the piece.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import arb, fmpq

from analyzer.numbers.exact import nearest, rational, upper
from analyzer.numbers.profiles import Ridge

Row = tuple[fmpq, ...]

ROUND = 2.0**-53
GRID = 128
"""Pieces of a smooth ridge: its chords are off by 2^−14 of the bend over the whole range."""


@dataclass(frozen=True)
class Bends:
    """The neurons of one direction: P(v) = slope·v + intercept + Σ_k jump_k relu(v − kink_k)."""

    direction: Row
    slope: fmpq
    intercept: fmpq
    jumps: tuple[tuple[fmpq, fmpq], ...]

    def __call__(self, v: fmpq) -> fmpq:
        return self.slope * v + self.intercept + sum((jump * (v - kink) for kink, jump in self.jumps if kink < v), fmpq(0))

    @property
    def lipschitz(self) -> fmpq:
        """The largest |P'| on the line."""
        return max(abs(s) for s in itertools.accumulate((jump for _, jump in self.jumps), initial=self.slope))

    def on(self, reach: fmpq) -> "Bends":
        """The same function on [−reach, reach], without the kinks outside it."""
        passed = [(kink, jump) for kink, jump in self.jumps if kink <= -reach]
        slope = self.slope + sum((jump for _, jump in passed), fmpq(0))
        intercept = self.intercept - sum((kink * jump for kink, jump in passed), fmpq(0))
        return Bends(self.direction, slope, intercept, tuple((k, j) for k, j in self.jumps if -reach < k < reach))


def bends_of(inner: Iterable[Iterable[fmpq]], bias: Iterable[fmpq], outer: Iterable[fmpq], offset: Row) -> tuple[list[Bends], fmpq]:
    """Neurons gathered by direction, as functions of direction·(u − offset), and the value of the constant ones.

    The largest entry of a direction is 1: relu(k(v + b)) is k relu(v + b) for k > 0 and −k (relu(v + b) − v − b) for k < 0.
    """
    members: dict[Row, list[tuple[bool, fmpq, fmpq]]] = {}
    constant = fmpq(0)
    for weights, c, a in zip(inner, bias, outer, strict=True):
        row = tuple(weights)
        before = c + sum((w * o for w, o in zip(row, offset, strict=True)), fmpq(0))
        size = max(row, key=abs)
        if size == 0 or a == 0:
            constant += a * max(before, fmpq(0))
        else:
            members.setdefault(tuple(w / size for w in row), []).append((size > 0, before / size, a * abs(size)))
    groups = []
    for direction, neurons in members.items():
        slope, intercept = fmpq(0), fmpq(0)
        jumps: dict[fmpq, fmpq] = {}
        for positive, b, a in neurons:
            jumps[-b] = jumps.get(-b, fmpq(0)) + a
            if not positive:
                slope, intercept = slope - a, intercept - a * b
        groups.append(Bends(direction, slope, intercept, tuple(sorted((k, j) for k, j in jumps.items() if j != 0))))
    return groups, constant


@dataclass(frozen=True)
class Curve:
    """A function D on [nodes_0, nodes_n] that leaves the chord of piece j by at most below_j and above_j, and all of this by `slack`:
    values are rounded, and a kink may lie beside its node by 4·2^−53 of the reach (between two nodes relu(v − kink) leaves its chord by at
    most the distance of the kink to the nearer one)."""

    nodes: np.ndarray
    values: np.ndarray
    below: np.ndarray
    above: np.ndarray
    slack: float

    @cached_property
    def slopes(self) -> np.ndarray:
        return np.diff(self.values) / np.diff(self.nodes)

    @cached_property
    def scale(self) -> float:
        """Bounds every number that occurs in evaluating a chord."""
        return float(np.abs(self.values).max() + 2 * np.abs(self.slopes).max() * np.abs(self.nodes).max())

    def __call__(self, v: np.ndarray) -> np.ndarray:
        """The chords: D up to `below`, `above` and rounding."""
        return np.interp(v, self.nodes, self.values)

    def slope(self, v: np.ndarray) -> np.ndarray:
        return self.slopes[np.clip(np.searchsorted(self.nodes, v, side="right") - 1, 0, len(self.slopes) - 1)]


def _apart(places: list[float], least: float) -> list[float]:
    """Increasing places without those that follow another too closely, both ends kept: slopes between them would be rounding noise."""
    kept = places[:1]
    for place in places[1:-1]:
        if place - kept[-1] > least and places[-1] - place > least:
            kept.append(place)
    return [*kept, places[-1]]


def curve(neurons: Bends | None, ridges: Sequence[Ridge], reach: float) -> Curve:
    """P(v) − Σ s ψ(αv + o) on [−reach, reach]; the direction of a ridge is (α,)."""
    jumps = neurons.jumps if neurons is not None else ()
    kinks = [kink for kink, _ in jumps] + [-r.offset / r.direction[0] for r in ridges if r.profile.kink]
    places = {-reach, reach, *(nearest(k) for k in kinks if abs(k) < rational(reach))}
    if any(not r.profile.kink for r in ridges):
        places |= set(np.linspace(-reach, reach, GRID + 1).tolist())
    nodes = _apart(sorted(v for v in places if abs(v) <= reach), 2 * ROUND * reach)
    values, slack = [], arb(0)
    for v in map(rational, nodes):
        value = sum((-arb(r.scale) * r.profile.value(arb(r.direction[0] * v + r.offset)) for r in ridges), arb(0))
        value += arb(neurons(v)) if neurons is not None else 0
        values.append(float(value))
        slack = slack.max(abs(value - arb(values[-1])))
    below, above = [], []
    for a, b in itertools.pairwise(nodes):
        second = arb(0)
        for r in ridges:
            piece = arb(r.direction[0]) * arb(a).union(arb(b)) + arb(r.offset)
            second -= arb(r.scale * r.direction[0] ** 2) * r.profile.second(piece)
        share = (arb(b) - arb(a)) ** 2 / 8
        below.append(upper((share * second).max(arb(0))))
        above.append(upper((-share * second).max(arb(0))))
    turns = sum((abs(jump) for _, jump in jumps), fmpq(0))
    turns += sum((r.profile.kink * abs(r.scale * r.direction[0]) for r in ridges), fmpq(0))
    slack += arb(turns) * arb(reach) * arb(4 * ROUND)
    return Curve(np.array(nodes), np.array(values), np.array(below), np.array(above), upper(slack))
