"""Cells that cover the box of (m, q, v), cut where the bound is largest: branch and bound.

At first there is the uncut box, once for each sign of the error. The cells with the largest bounds are halved at the coordinate that
promises most, until every bound is near the witness or the work is done. As the cells of a sign cover the box at all times, the largest
bound among them is one of the error.

The uncut box is bounded once more, by (i) alone, with ℓ¹ norms over the infinite past in ball arithmetic where tails matter.
"""

from dataclasses import dataclass
from typing import Self

import numpy as np
from flint import arb

from verify.layers.cell_bounds import CellBounds, CellRelaxation
from verify.layers.decomposition import ErrorDecomposition
from verify.layers.pairing import paired_terms
from verify.layers.relaxed_terms import NO_WIDTH
from verify.layers.witness import MEASURED, STARTS, WitnessSearch

WORK = 1 << 33
"""Multiplications granted to cells, a node of a curve counting as NODE_WORK: five to ten seconds of one core."""
NODE_WORK = 32
ROOT_STEPS, CELL_STEPS = 200, 8
"""Subgradient steps for slopes and multipliers."""
ROOT_PRICE, CELL_PRICE = ROOT_STEPS + 2, CELL_STEPS + 3
"""Evaluations that a cell is charged: its steps, and starts from chords and from the slopes of the cell it was cut from."""
CRUDE = 2.0**-10
"""The uncut box is done in ball arithmetic if tails and roundings are more than this share of its bound."""
BATCH = 64
"""Cells cut at once."""
NARROW = 2.0**-30
"""Shares of a range that are not cut again."""
CLOSE = 1.05
"""Cells are cut until certified is within this factor of the witness."""


class CellRows:
    """A dataclass of arrays with a row for every cell."""

    def pick(self, rows: np.ndarray) -> Self:
        return type(self)(*(array[rows] for array in vars(self).values()))

    def joined(self, other: Self) -> Self:
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(np.concatenate(pair) for pair in pairs))


@dataclass
class CellStore(CellRows):
    """Boxes low ≤ (m, q, v) ≤ high, signs σ, (λ, θ, δ), bounds, and gaps of the terms."""

    low: np.ndarray
    high: np.ndarray
    side: np.ndarray
    multipliers: np.ndarray
    value: np.ndarray
    gaps: np.ndarray

    def __len__(self) -> int:
        return len(self.side)

    def replaced(self, rows: np.ndarray, count: int, others: "CellStore") -> None:
        """Put `others` in the place of these rows and, the rest of them, after the first `count`; arrays grow by doubling."""
        fresh = len(others) - len(rows)
        for name, mine in vars(self).items():
            theirs, room = getattr(others, name), mine
            while count + fresh > len(room):
                room = np.concatenate([room, np.zeros_like(room)])
            room[rows], room[count : count + fresh] = theirs[: len(rows)], theirs[len(rows) :]
            setattr(self, name, room)


class Cover:
    """Cells that cover the box, for both signs, and their bounds: the first `count` of the store."""

    def __init__(self, problem: ErrorDecomposition, search: WitnessSearch) -> None:
        self.problem, self.search = problem, search
        self.terms = paired_terms(problem)
        self.relaxation = CellRelaxation(problem, self.terms)
        self.confinement = self.relaxation.confinement
        rows, columns = self.confinement.table.window.shape
        nodes = sum(stack.nodes.size for stack in self.terms.stacks)
        self.price = 2 * rows * columns + NODE_WORK * (nodes + rows * self.confinement.slots)
        """Multiplications of one evaluation."""
        self.work, self.count = 0, 2
        self.cells, self.whole = self._uncut()
        self._refine()

    def _uncut(self) -> tuple[CellStore, list[arb]]:
        """The box itself for both signs, and for each of them what balls say about it."""
        box = self.confinement.box
        low, high, side = np.stack([-box, -box]), np.stack([box, box]), np.array([1.0, -1.0])
        batch = self.relaxation.batch(low, high, side)
        chords = self.relaxation.chords(batch)
        at_chords = self.relaxation.bound(batch, chords)
        best, found = self.relaxation.improve(batch, chords, at_chords, self.search.best, ROOT_STEPS)
        self.work += len(side) * self.price * ROOT_PRICE
        tried = [(chords, at_chords), (best, found)]
        whole = [self._in_balls(sign, tried, row) for row, sign in enumerate(side.tolist())]
        self.search.ascend(self.relaxation.tokens(found))
        return CellStore(low, high, side, best, found.value, self.relaxation.gaps(batch, best, found)), whole

    def _in_balls(self, sign: float, tried: list[tuple[np.ndarray, CellBounds]], row: int) -> arb:
        """(i) for the uncut box, where tails or roundings matter to its bound; the best of several slopes."""
        best = arb.pos_inf()
        for multipliers, bounds in tried:
            if np.isfinite(multipliers[row]).all() and not bounds.crude[row] <= CRUDE * bounds.value[row]:
                slopes = self.relaxation.split(multipliers).lam[row].tolist()
                linear = self.problem.kernels.zero.plus_all([self.problem.base, *self.terms.functionals], [sign, *slopes])
                if not self.problem.kernels.affordable(linear):
                    continue
                norm = sum((n.most for n in self.problem.kernels.norms(linear)), arb(0))
                here = arb(sign) * arb(self.problem.constant) + arb(float(bounds.curved[row])) + norm
                best = best.min(here.upper())
        return best

    def _refine(self) -> None:
        while self.work < WORK:
            chosen = self._worst(BATCH)
            worst = self.cells.pick(chosen)
            axis, cut = self._cuts(worst)
            wanted = (worst.value > CLOSE * self.search.best) & (axis >= 0)
            if not wanted[0]:
                break
            self._split(chosen[wanted], worst.pick(wanted), axis[wanted], cut[wanted])

    def _worst(self, count: int) -> np.ndarray:
        """The cells with the largest bounds, the largest first."""
        value = self.cells.value[: self.count]
        top = np.argpartition(-value, min(count, len(value)) - 1)[:count]
        return np.asarray(top[np.argsort(-value[top], kind="stable")])

    def _cuts(self, cells: CellStore) -> tuple[np.ndarray, np.ndarray]:
        """For every cell the coordinate whose halving promises most, and where; −1 if there is none.

        Halving m or q narrows the range of every term by its share of that range; halving v narrows one range. Gaps are what it may gain.
        """
        shared = self.confinement.slots + self.confinement.common
        ranges = self.confinement.ranges(cells.low, cells.high)
        gaps, half = np.maximum(cells.gaps, 0), np.maximum((ranges.right - ranges.left) / 2, NO_WIDTH)
        width = (cells.high - cells.low) / 2
        share = np.minimum(1, width[:, None, :shared] * np.abs(self.confinement.spread) / half[..., None])
        together = (gaps[..., None] * share).sum(axis=1) * (width[:, :shared] > NARROW * self.confinement.box[:shared])
        own = gaps * (half > NARROW * self.terms.reaches)
        own[:, list(self.terms.mean_values)] = 0
        scores = np.concatenate([together, own], axis=1)
        axis = np.where(scores.max(axis=1) > 0, scores.argmax(axis=1), -1)
        rows = np.arange(len(cells))
        cut = (cells.low[rows, axis] + cells.high[rows, axis]) / 2
        for row in rows[axis >= shared]:
            term = int(axis[row]) - shared
            cut[row] = self._kink(term, ranges.left[row, term], ranges.right[row, term])
        return axis, cut

    def _kink(self, term: int, left: float, right: float) -> float:
        """Where to cut the range of a functional: at the kink next to its middle, if there is one."""
        nodes, middle = self.terms.curves[term].nodes, (left + right) / 2
        inner = nodes[(nodes > left) & (nodes < right)]
        return float(inner[np.abs(inner - middle).argmin()]) if len(inner) else middle

    def _split(self, chosen: np.ndarray, parents: CellStore, axis: np.ndarray, cut: np.ndarray) -> None:
        """Two cells for each of these; slopes are inherited or those of the new chords."""
        rows = np.arange(len(chosen))
        both = np.tile(rows, 2)
        low, high, side = parents.low[both], parents.high[both], parents.side[both]
        high[rows, axis] = cut
        low[len(rows) + rows, axis] = cut
        batch = self.relaxation.batch(low, high, side)
        start, fresh = parents.multipliers[both], self.relaxation.chords(batch)
        at_start, at_fresh = self.relaxation.bound(batch, start), self.relaxation.bound(batch, fresh)
        better = at_fresh.value < at_start.value
        start[better] = fresh[better]
        at_start.take(better, at_fresh)
        best, found = self.relaxation.improve(batch, start, at_start, self.search.best, CELL_STEPS)
        self.work += len(side) * self.price * CELL_PRICE
        value, gaps = np.minimum(parents.value[both], found.value), self.relaxation.gaps(batch, best, found)
        self.cells.replaced(chosen, self.count, CellStore(low, high, side, best, value, gaps))
        self.count += len(chosen)
        largest = np.argsort(-found.value, kind="stable")[:MEASURED]
        self.search.ascend(self.relaxation.tokens(found)[largest])

    def certified(self) -> arb:
        """The largest bound of a cell, or what the uncut box gives."""
        value, side = self.cells.value[: self.count], self.cells.side[: self.count]
        largest = (arb(float(value[side == sign].max())) for sign in (1, -1))
        best = [cells.min(whole) for cells, whole in zip(largest, self.whole, strict=True)]
        return best[0].max(best[1]).max(arb(0))

    def maximisers(self) -> np.ndarray:
        """Sequences at which the bounds of the worst cells would be attained."""
        worst = self.cells.pick(self._worst(STARTS))
        batch = self.relaxation.batch(worst.low, worst.high, worst.side)
        return self.relaxation.tokens(self.relaxation.bound(batch, worst.multipliers))
