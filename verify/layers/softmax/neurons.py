"""The read-out on a cell, as a whole: upper bounds of σF(q, ξ) − Λ·(q, ξ) for any Λ.

Neurons with weights of both signs cancel, and relaxing them one by one would add up what cancels. But F is a function of few functionals
y = R(q, ξ), so the box of y is cut into *pieces* on which most neurons are straight. For z = v − kink in [l, r] and c = σ jump,

    c relu(z) ≤ cs z + max(c, 0) s max(−l, 0),     s = r/(r − l) moved into [0, 1]

(for c < 0 any such s will do). So on a piece σF ≤ height + slope·y, and

    max σF − Λ·(q, ξ) ≤ max over pieces of height + max_{y in the piece} (slope − Λ R⁻¹)·y.

Heights and slopes do not depend on Λ: pieces are made once for a cell, and evaluated for every Λ that is tried.
"""

import numpy as np

from verify.layers.softmax.problem import SoftmaxProblem
from verify.layers.softmax.ranges import WIDER, CellRanges

PIECES = 64
"""Pieces of a cell at most."""
TINY = 1e-300
"""Stands for a width of zero where one divides by it."""


class NeuronFunction:
    """The neurons of a problem as functions of y."""

    def __init__(self, problem: SoftmaxProblem) -> None:
        self.problem = problem
        self.weights = problem.arguments @ problem.inverse
        """v = weights·y up to rounding, (T, K)."""
        moved = np.abs(problem.arguments) + np.abs(self.weights) @ np.abs(problem.common)
        self.error = WIDER * moved.sum(axis=1) + 2 * np.abs(self.weights @ problem.common - problem.arguments).sum(axis=1)
        """How far v may be from weights·y, for |(q, ξ)| ≤ 1."""
        self.reaches = np.abs(problem.arguments).sum(axis=1) * (1 + WIDER)

    def counts(self, half: np.ndarray) -> list[int]:
        """Pieces along every y: halve where the neurons' arguments vary most, on average over the cells."""
        worth, counts = self.problem.importance * half.mean(axis=0), np.ones(half.shape[1], dtype=int)
        while 2 * counts.prod() <= PIECES and worth.max(initial=0) > 0:
            counts[(worth / counts).argmax()] *= 2
        return counts.tolist()


class ReadOutPieces:
    """Heights (C, J) and slopes (C, J, K) on the pieces of a batch of cells, with their middles; empty ones have height −∞."""

    def __init__(self, readout: NeuronFunction, ranges: CellRanges) -> None:
        self.readout, problem, cells = readout, readout.problem, ranges.cells
        low, high = cells.common_low, cells.common_high
        counts = readout.counts((high - low) / 2)
        steps = np.stack(np.meshgrid(*[np.arange(n) for n in counts], indexing="ij"), axis=-1).reshape(-1, len(counts))
        self.middle = low[:, None] + (steps + 0.5) / np.array(counts) * (high - low)[:, None]
        self.half = ((high - low) / 2 / np.array(counts) * (1 + WIDER) + WIDER * (np.abs(low) + np.abs(high)))[:, None]
        centre = self.middle @ readout.weights.T - problem.kinks
        reach = self.half @ np.abs(readout.weights).T + readout.error + WIDER * (readout.reaches + np.abs(problem.kinks))
        left = np.maximum(centre - reach, -readout.reaches - problem.kinks)
        right = np.minimum(centre + reach, readout.reaches - problem.kinks)
        empty = (left > right).any(axis=2)
        jumps = cells.side[:, None, None] * problem.jumps
        slopes = jumps * np.clip(right / np.maximum(right - left, TINY), 0, 1)
        heights = (np.maximum(slopes, 0) * np.maximum(-left, 0) - slopes * problem.kinks).sum(axis=2)
        sizes = np.abs(problem.jumps) * (readout.error + WIDER * (readout.reaches + 2 * np.abs(problem.kinks)))
        self.heights = np.where(empty, -np.inf, heights + 4 * sizes.sum())
        self.slopes = slopes @ readout.weights

    def mean_slope(self) -> np.ndarray:
        """Slopes of F, averaged over the pieces, in the coordinates (q, ξ)."""
        return np.asarray(self.slopes.mean(axis=1) @ self.readout.problem.common)

    def highest(self, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """max σF − Λ·(q, ξ) for Λ (C, K) in the coordinates (q, ξ), and the (q, ξ) where it is attained."""
        inverse = self.readout.problem.inverse
        left = self.slopes - (wanted @ inverse)[:, None]
        values = self.heights + (left * self.middle).sum(axis=2) + (np.abs(left) * self.half).sum(axis=2)
        best, rows = values.argmax(axis=1), np.arange(len(values))
        at = self.middle[rows, best] + np.sign(left[rows, best]) * self.half[:, 0]
        return values[rows, best], at @ inverse.T

    def rounding(self, wanted: np.ndarray) -> np.ndarray:
        """What rounding R, R⁻¹ and the sums of `highest` may add, for |(q, ξ)| ≤ 1."""
        problem = self.readout.problem
        sizes = np.abs(self.middle).max(axis=1) + self.half[:, 0]
        off = np.abs(problem.inverse @ problem.common - np.eye(len(problem.common))).sum(axis=1)
        moved = np.abs(wanted) @ off * 2 + WIDER * np.abs(wanted) @ (np.abs(problem.inverse) @ np.abs(problem.common)).sum(axis=1)
        return np.asarray(moved + WIDER * ((np.abs(self.slopes).max(axis=1) + np.abs(wanted @ problem.inverse)) * sizes).sum(axis=1))
