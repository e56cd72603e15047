"""Cells that cover all tokens, cut where the bound is largest: branch and bound.

The cells with the largest bounds are cut first, at the coordinate that promises most. Cells whose bounds fall below the witness are
dropped: the largest of their bounds is kept, so that the certificate never sinks below what was proved.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from flint import arb, fmpq

from analyzer.numbers.exact import upper
from verify.layers.cells import CellRows
from verify.layers.softmax.bounds import KEEN_STEPS, BoundedCells, SoftmaxBounds, SoftmaxRelaxation
from verify.layers.softmax.problem import SoftmaxProblem
from verify.layers.softmax.ranges import CellRanges, SoftmaxCells

BATCH, ENTRIES = 64, 1 << 22
"""Cells that are cut together, fewer where they have more entries than this: positions times nodes times heads times corners of x_t."""
CELL_STEPS = 6
"""Subgradient steps after a cell was cut."""
PER_SECOND = 1.2e9
"""Multiplications that count as one second: work, not time, is granted, so that answers do not depend on the machine."""
OVERHEAD = 2e5
"""What a cell costs besides its multiplications, in their unit."""
WORTH, FAR = 0.05, 0.5
"""Weights of the functionals y and of ξ in the choice where to cut; any are sound."""
CLOSE, CLOSER = 1.01, 1 + 2.0**-12
"""Cells are cut until certified is within this factor of the witness; one head and a linear read-out come closer within a second."""
TINY = 1e-12
"""Stands for a width of zero where one divides by it."""
NARROW = 2.0**-10
"""Ranges of ξ and y that are not cut again."""

Watch = Callable[[float, float, float], None]
"""Told (share of the work done, witness, certified) now and then."""


@dataclass
class Searched(CellRows):
    """What is stored of cells besides themselves."""

    multipliers: np.ndarray
    value: np.ndarray
    scores: np.ndarray


class SoftmaxCover:
    """Branch and bound; `witness` is the largest error known to occur, and `ascend` climbs from tokens (C, S, d) and returns a larger
    one."""

    def __init__(self, problem: SoftmaxProblem, witness: float, ascend: Callable[[np.ndarray], float]) -> None:
        self.problem, self.witness, self.ascend = problem, witness, ascend
        self.relaxation = SoftmaxRelaxation(problem)
        self.close = CLOSER if problem.heads == 1 and not len(problem.jumps) else CLOSE
        entries = problem.positions * len(problem.nodes.values) * problem.heads * 2 ** (problem.nodes.axes * problem.nodes.continuous)
        self.batch = int(np.clip(ENTRIES // entries, 8, BATCH))
        self.work, self.count, self.dropped = 0.0, 0, 0.0
        self.cells, self.found = self._begin()

    @property
    def certified(self) -> float:
        """The largest bound of a cell, dropped ones included."""
        return max(self.dropped, float(self.found.value.max(initial=0.0)))

    def _begin(self) -> tuple[SoftmaxCells, Searched]:
        problem, starts = self.problem, self.problem.starts
        low, high = np.stack([s.low for s in starts] * 2), np.stack([s.high for s in starts] * 2)
        side = np.repeat([1.0, -1.0], len(starts))
        constant = np.array([_rounded_up(fmpq(sign) * s.constant, s.slack) for sign in (1, -1) for s in starts])
        ends, wide = np.ones((len(side), problem.heads, problem.dim)), np.full((len(side), len(problem.common)), np.inf)
        keen = self.relaxation.equal_shares(len(side))
        cells = SoftmaxCells(low, high, -ends, ends.copy(), -ends, ends.copy(), -wide, wide, keen, side, constant)
        return cells, self._bounded(cells, None, np.full(len(side), np.inf))

    def _bounded(self, cells: SoftmaxCells, inherited: np.ndarray | None, known: np.ndarray) -> Searched:
        """Bounds of new cells, from chords and from the multipliers of the cell they were cut from."""
        batch = self.relaxation.batch(CellRanges(self.problem, cells))
        start = self.relaxation.chords(batch)
        bounds = self.relaxation.bound(batch, start)
        if inherited is not None:
            other = self.relaxation.bound(batch, inherited)
            better = other.value < bounds.value
            start[better] = inherited[better]
            bounds.take(better, other)
        best, bounds = self.relaxation.improve(batch, start, bounds, self.witness, CELL_STEPS)
        self.count += len(cells)
        self.work += len(cells) * self._price(batch)
        largest = np.argsort(-bounds.value, kind="stable")[:4]
        self.witness = max(self.witness, self.ascend(self.problem.nodes.values[bounds.tokens[largest]]))
        return Searched(best, np.minimum(bounds.value, known), self._scores(batch, best, bounds))

    def _price(self, batch: BoundedCells) -> float:
        """Multiplications for one cell."""
        problem, narrowed = self.problem, batch.ranges.cells.keen.shape[1]
        evaluations = CELL_STEPS + 2 + 2 * narrowed * (KEEN_STEPS + 1) + 2 * problem.heads * problem.dim
        separable = batch.ranges.weights.shape[1] * problem.positions * len(problem.nodes.values) * (problem.heads + 8)
        pieces = batch.pieces.heights.shape[1] * (16 * len(problem.jumps) + CELL_STEPS * 8 * len(problem.looked))
        return float(evaluations * separable + pieces + OVERHEAD)

    def refine(self, seconds: float, watch: Watch | None = None) -> None:
        """Look at cells until certified is near the witness or the work granted is done."""
        granted = self.work + seconds * PER_SECOND
        while self.work < granted and len(self.cells):
            value = self.found.value
            top = np.argpartition(-value, min(self.batch, len(value)) - 1)[: self.batch]
            top = top[np.argsort(-value[top], kind="stable")]
            top = top[value[top] > self.close * self.witness]
            if not len(top):
                break
            possible = top[self.found.scores[top].max(axis=1) > 0]
            if not len(possible) or possible[0] != top[0]:
                break  # the worst cell cannot be cut
            self._cut(possible)
            if watch is not None:
                watch(1 - (granted - self.work) / (seconds * PER_SECOND), self.witness, self.certified)

    def _scores(self, batch: BoundedCells, multipliers: np.ndarray, bounds: SoftmaxBounds) -> np.ndarray:
        """What cutting every coordinate promises, (C, coordinates): tokens narrow the functionals y that neurons vary with, the target's
        ridges where their maximisers disagree with the tokens', and, for x_t, what is lost between nodes; ξ and y themselves are cut for
        that part of the ranges of y which no single token accounts for.
        """
        problem, ranges, cells, count = self.problem, batch.ranges, batch.ranges.cells, len(batch.ranges.cells)
        lam, _, wanted = self.relaxation.split(multipliers)
        slots, inside, spans = problem.slots * problem.dim, ranges.terms.ranges, ranges.most - ranges.least
        single = np.diff(problem.masses.edges) == 1
        worth, wide = WORTH * problem.importance, cells.common_high - cells.common_low
        tokens = np.einsum("k,cksi->csi", worth, ranges.shares)
        gaps = np.abs(lam * bounds.gradient[:, : lam.shape[1]])
        width, half = np.maximum(ranges.high - ranges.low, TINY), np.maximum((inside.right - inside.left) / 2, TINY)
        parts = np.minimum(1, width[:, None] / 2 * np.abs(problem.coefficients) / half[..., None])
        along = (gaps[..., None] * parts).sum(axis=1)[:, :slots]
        read = np.abs(problem.masses.memories)[None, :, :, None] * spans[:, None] / width[:, :slots].reshape(count, -1, 1, problem.dim)
        tokens += (along.reshape(count, -1, 1, problem.dim) * np.minimum(1, read)).sum(axis=1)
        tokens[:, 0] += np.abs(wanted * bounds.apart)[:, : problem.dim]
        mean_wide = np.maximum(cells.mean_high - cells.mean_low, TINY)
        if problem.nodes.continuous:
            steep = np.abs(wanted[:, problem.dim :]).reshape(mean_wide.shape).sum(axis=2)
            tokens[:, 0] += (steep * ranges.shrink.max(axis=2) * mean_wide.sum(axis=2)).sum(axis=1)[:, None]
        by_axis = tokens if problem.nodes.continuous else tokens.sum(axis=2, keepdims=True)
        cuttable = cells.high - cells.low > (1 if problem.nodes.continuous else 0)
        by_axis = np.where(cuttable & single[:, None], by_axis, 0.0)
        left = np.maximum(wide - 2 * ranges.shares[:, :, single].sum(axis=(2, 3)), 0)
        common = np.where(wide > NARROW, worth * left, 0.0)
        means = np.where(mean_wide > NARROW, FAR * bounds.loose, 0.0)
        means *= np.clip(1 - (ranges.token_high / ranges.mass_high[..., None])[:, :, single].sum(axis=2), 0, 1)[..., None]
        return np.concatenate([by_axis.reshape(count, -1), means.reshape(count, -1), common], axis=1)

    def _cut(self, rows: np.ndarray) -> None:
        """Two cells for each of these."""
        problem, parents, found = self.problem, self.cells.pick(rows), self.found.pick(rows)
        axis = found.scores.argmax(axis=1)
        count, both = len(rows), np.tile(np.arange(len(rows)), 2)
        cells = parents.pick(both)
        tokens, means = problem.positions * problem.nodes.axes, problem.heads * problem.dim
        flat = [array.reshape(2 * count, -1) for array in (cells.low, cells.high, cells.mean_low, cells.mean_high)]
        for row in range(count):
            place = int(axis[row])
            if place < tokens:
                end, begin = problem.nodes.halves(flat[0][row, place], flat[1][row, place])
                flat[1][row, place], flat[0][count + row, place] = end, begin
            elif place < tokens + means:
                place -= tokens
                middle = (flat[2][row, place] + flat[3][row, place]) / 2
                flat[3][row, place] = flat[2][count + row, place] = middle
            else:
                place -= tokens + means
                middle = (cells.common_low[row, place] + cells.common_high[row, place]) / 2
                cells.common_high[row, place] = cells.common_low[count + row, place] = middle
        cells.low, cells.high, cells.mean_low, cells.mean_high = (
            part.reshape(shape.shape) for part, shape in zip(flat, (cells.low, cells.high, cells.mean_low, cells.mean_high), strict=True)
        )
        self._replace(rows, cells, self._bounded(cells, found.multipliers[both], found.value[both]))

    def _replace(self, rows: np.ndarray, cells: SoftmaxCells, found: Searched) -> None:
        """Put cells in the place of these rows; those below the witness are dropped."""
        keep = np.ones(len(self.cells), dtype=bool)
        keep[rows] = False
        alive = found.value > self.witness
        self.dropped = max(self.dropped, float(found.value[~alive].max(initial=0.0)))
        self.cells = self.cells.pick(np.flatnonzero(keep)).joined(cells.pick(np.flatnonzero(alive)))
        self.found = self.found.pick(np.flatnonzero(keep)).joined(found.pick(np.flatnonzero(alive)))


def _rounded_up(constant: fmpq, slack: float) -> float:
    return upper(arb(constant) + arb(slack))
