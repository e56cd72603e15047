"""Curved terms under slopes, on many cells at once: part (i) of the proof, and the mean values of part (iii).

For any number λ and a sign σ a curved term obeys

    σD(v) ≤ max_{[a, b]} (σD(w) − λw) + λv      for v in [a, b].

D is known by its *chords*, the linear interpolation between nodes, which it leaves by at most `below` and `above`. The chords less λw are
linear between nodes, so their maximum is attained at a, at b or at a node between them. A *mean-value term* −s p e has a factor p that
is known by its range only; max (−σ s p − λ) e is attained at ends of p and e.

Cells are rows here and terms are columns: arrays are (C, U). Whatever depends on the cells alone is computed once for all the slopes that
are tried on them.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb, fmpq

from analyzer.numbers.curves import ROUND, Curve
from analyzer.numbers.exact import lower, nearest, upper
from analyzer.numbers.profiles import Ridge
from verify.layers.functionals import UNDERFLOW, Functional

SLOPE_PIECES = 64
"""Pieces on which ψ' is enclosed."""
SLACK = 2.0**-44
"""Evaluating a chord takes fewer than 2^9 roundings of numbers below its scale."""
FEW_NODES = 8
"""Nodes that are compared all at once instead of by bisection."""
NO_WIDTH = 1e-300
"""Stands for a width of zero where one divides by it."""


@dataclass(frozen=True)
class Ranges:
    """Intervals [left, right] (C, U) that contain the terms' functionals on cells."""

    left: np.ndarray
    right: np.ndarray


class CurveStack:
    """Curves with the same number of nodes, side by side; `where` are their columns among all terms."""

    def __init__(self, where: Sequence[int], curves: Sequence[Curve]) -> None:
        self.where = np.array(where)
        self.nodes, self.values, self.slopes, self.below, self.above = (
            np.array([getattr(c, name) for c in curves]) for name in ("nodes", "values", "slopes", "below", "above")
        )
        self.largest = np.abs(self.nodes).max(axis=1)
        self.slack = np.array([c.slack + SLACK * c.scale for c in curves]) + UNDERFLOW * (1 + self.largest)
        self.rows = np.arange(len(curves))

    def at(self, v: np.ndarray) -> np.ndarray:
        """Chords at v (C, U)."""
        if self.nodes.shape[1] <= FEW_NODES:
            piece = (self.nodes[:, 1:-1] <= v[..., None]).sum(axis=-1)
        else:
            columns = zip(self.nodes, v.T, strict=True)
            piece = np.stack([np.searchsorted(nodes[1:-1], column, side="right") for nodes, column in columns], axis=1)
        return np.asarray(self.values[self.rows, piece] + self.slopes[self.rows, piece] * (v - self.nodes[self.rows, piece]))


class CurvesOnCells:
    """A stack of curves on the ranges of cells with signs σ."""

    def __init__(self, stack: CurveStack, ranges: Ranges, side: np.ndarray) -> None:
        self.stack, self.side = stack, side[:, None]
        self.left, self.right = ranges.left[:, stack.where], ranges.right[:, stack.where]
        self.at_left, self.at_right = stack.at(self.left), stack.at(self.right)
        left, right, signs = self.left[..., None], self.right[..., None], side[:, None, None]
        self.at_nodes = signs * stack.values
        self.outside = (stack.nodes <= left) | (stack.nodes >= right)
        touched = (stack.nodes[:, :-1] < right) & (stack.nodes[:, 1:] > left)
        self.bend = np.where(touched, np.where(signs > 0, stack.above, stack.below), 0.0).max(axis=-1)
        """How far σD rises above its chords."""

    def chord_slopes(self) -> np.ndarray:
        """Slopes of σD between the ends of the ranges."""
        return np.asarray(self.side * (self.at_right - self.at_left) / np.maximum(self.right - self.left, NO_WIDTH))

    def highest(self, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Upper bound of max_{[a, b]} (σD(v) − λv), and where the chords attain it; λ and both answers are (C, U)."""
        stack = self.stack
        left, right = self.side * self.at_left - lam * self.left, self.side * self.at_right - lam * self.right
        inner = lam[..., None] * stack.nodes
        np.subtract(self.at_nodes, inner, out=inner)
        np.copyto(inner, -np.inf, where=self.outside)
        best = inner.argmax(axis=-1)
        top, end = np.take_along_axis(inner, best[..., None], axis=-1)[..., 0], np.maximum(left, right)
        place = np.where(top > end, stack.nodes[stack.rows, best], np.where(left >= right, self.left, self.right))
        return np.maximum(end, top) + self.bend + stack.slack + SLACK * np.abs(lam) * stack.largest, place

    def at(self, v: np.ndarray, lam: np.ndarray) -> np.ndarray:
        """σD(v) − λv by the chords."""
        return np.asarray(self.side * self.stack.at(v) - lam * v)


@dataclass(frozen=True)
class MeanValueTerm:
    """−s p e, e = w·m − αv_g: p lies in the range of ψ' between the arguments w·m + o and αv_g + o."""

    scale: float
    direction: np.ndarray
    offset: float
    alpha: float
    group: int
    """The column of v_g."""
    edges: np.ndarray
    """Of the pieces of its argument on which ψ' is enclosed."""
    enclosures: np.ndarray
    """Both ends (2, pieces) of ψ' there."""
    pad: float
    """Bounds the rounding of an argument."""

    def derivatives(self, low: np.ndarray, high: np.ndarray, ranges: Ranges) -> np.ndarray:
        """Both ends (2, C) of the range of ψ' on cells low ≤ m ≤ high."""
        centre, half = (low + high) / 2 @ self.direction, (high - low) / 2 @ np.abs(self.direction)
        followed = (self.alpha * ranges.left[:, self.group], self.alpha * ranges.right[:, self.group])
        arguments = np.stack([centre - half, centre + half, *followed])
        first, last = arguments.min(axis=0) + self.offset - self.pad, arguments.max(axis=0) + self.offset + self.pad
        touched = (self.edges[:-1] <= last[:, None]) & (self.edges[1:] >= first[:, None])
        least, most = self.enclosures
        return np.stack([np.where(touched, least, np.inf).min(axis=1), np.where(touched, most, -np.inf).max(axis=1)])


def mean_value_term(ridge: Ridge, alpha: fmpq, group: int, reach: float, radii: np.ndarray) -> MeanValueTerm:
    """What is left of a ridge −s ψ(w·m + o) when −s ψ(αv_g + o) has been taken off, for |v_g| ≤ reach and |m| ≤ radii."""
    direction, middle = np.array([nearest(w) for w in ridge.direction]), nearest(ridge.offset)
    farthest = max(float(np.abs(direction) @ radii), abs(nearest(alpha)) * reach)
    pad = SLACK * (farthest + abs(middle) + ROUND)
    span = farthest + 2 * pad
    edges = np.linspace(middle - span, middle + span, SLOPE_PIECES + 1)
    enclosed = [ridge.profile.first(arb(start).union(arb(stop))) for start, stop in itertools.pairwise(edges.tolist())]
    ends = np.array([[lower(p) for p in enclosed], [upper(p) for p in enclosed]])
    return MeanValueTerm(nearest(ridge.scale), direction, middle, nearest(alpha), group, edges, ends, pad)


class MeanValuesOnCells:
    """A mean-value term in column `where`, on the ranges of cells with signs σ and ψ' in [p_0, p_1]."""

    def __init__(self, term: MeanValueTerm, where: int, ranges: Ranges, side: np.ndarray, derivatives: np.ndarray) -> None:
        self.where = where
        self.ends = np.stack([ranges.left[:, where], ranges.right[:, where]])
        self.widest = np.abs(self.ends).max(axis=0)
        self.factors = -side * term.scale * derivatives
        """−σ s p at both ends of p."""
        self.middle = -side * term.scale * (derivatives[0] + derivatives[1]) / 2
        self.underflow = UNDERFLOW * (1 + self.widest) * (1 + np.abs(derivatives).max(axis=0))

    def highest(self, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Upper bound of max (−σ s p − λ) e, and the e where it is attained; λ and both answers are (C,)."""
        factors = self.factors - lam
        corners = (factors[:, None] * self.ends[None]).reshape(4, -1)
        best = corners.argmax(axis=0)
        top = corners.max(axis=0) + SLACK * self.widest * (np.abs(factors).max(axis=0) + np.abs(lam))
        return top + self.underflow, self.ends[best % 2, np.arange(len(best))]

    def at(self, e: np.ndarray, lam: np.ndarray) -> np.ndarray:
        """(−σ s p − λ) e for the p in the middle."""
        return np.asarray((self.factors - lam).mean(axis=0) * e)


@dataclass(frozen=True)
class RelaxedTerms:
    """All that is bounded term by term: functionals with bounds of them, curves for most columns, mean-value terms for the others."""

    functionals: list[Functional]
    reaches: np.ndarray
    curves: dict[int, Curve]
    mean_values: dict[int, MeanValueTerm]
    stacks: list[CurveStack]


def stacked(curves: dict[int, Curve]) -> list[CurveStack]:
    """Curves gathered by their numbers of nodes."""
    lengths = sorted({len(c.nodes) for c in curves.values()})
    members = [{u: c for u, c in curves.items() if len(c.nodes) == length} for length in lengths]
    return [CurveStack(list(some), list(some.values())) for some in members]


class TermsOnCells:
    """All terms on cells low ≤ m ≤ high with signs σ, their functionals lying in `ranges`."""

    def __init__(self, terms: RelaxedTerms, low: np.ndarray, high: np.ndarray, side: np.ndarray, ranges: Ranges) -> None:
        self.ranges = ranges
        self.curves = [CurvesOnCells(stack, ranges, side) for stack in terms.stacks]
        self.mean_values = [
            MeanValuesOnCells(term, u, ranges, side, term.derivatives(low, high, ranges)) for u, term in terms.mean_values.items()
        ]

    def chord_slopes(self) -> np.ndarray:
        """Slopes λ (C, U) to begin with: those of the chords over the ranges, and of the p in the middle."""
        slopes = np.empty_like(self.ranges.left)
        for curves in self.curves:
            slopes[:, curves.stack.where] = curves.chord_slopes()
        for term in self.mean_values:
            slopes[:, term.where] = term.middle
        return slopes

    def highest(self, lam: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds (C, U) of max (σD_u(v) − λ_u v), and where they are attained."""
        tops, places = np.empty_like(self.ranges.left), np.empty_like(self.ranges.left)
        for curves in self.curves:
            where = curves.stack.where
            tops[:, where], places[:, where] = curves.highest(lam[:, where])
        for term in self.mean_values:
            tops[:, term.where], places[:, term.where] = term.highest(lam[:, term.where])
        return tops, places

    def at(self, v: np.ndarray, lam: np.ndarray) -> np.ndarray:
        """σD_u(v) − λ_u v, v moved into the ranges."""
        inside, values = np.clip(v, self.ranges.left, self.ranges.right), np.empty_like(v)
        for curves in self.curves:
            where = curves.stack.where
            values[:, where] = curves.at(inside[:, where], lam[:, where])
        for term in self.mean_values:
            values[:, term.where] = term.at(inside[:, term.where], lam[:, term.where])
        return values
