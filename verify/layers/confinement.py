"""What a cell says about the functionals of the curved terms: v = μ·m + η·q + remainder.

Heads are few, so all functionals v_u are nearly functions of the memories m and of a few more functionals q, the *common* ones. The
coordinates of a cell are (m, q, v). For any numbers μ, η

    v_u = μ_u·m + rest_u,      rest_u = η_u·q + remainder_u,      |remainder_u| ≤ its ℓ¹ norm,

so a cell confines v_u to its own interval and to that of μ·m + η·q ± ‖remainder‖₁. B = μ_B·m + rest_B is split likewise, and q is its
own rest, with μ_q = 0. Numbers μ, η and functionals q come from least squares and singular vectors in floats; the rests are then formed in
rationals, so any of them are sound.
"""

from collections.abc import Sequence

import numpy as np
from flint import fmpq

from analyzer.numbers.curves import ROUND
from analyzer.numbers.exact import rational
from verify.layers.decomposition import ErrorDecomposition
from verify.layers.functionals import UNDERFLOW, Functional
from verify.layers.relaxed_terms import Ranges, RelaxedTerms

MAX_COMMON, LEAST_COMMON = 12, 2.0**-10
"""Common functionals that cells may cut, and the least share of the first that they have; any numbers are sound."""


class Confinement:
    """μ, η and the kernels of all rests. `table` and `mu` have a row for every v_u, one for B, and one for every q."""

    def __init__(self, problem: ErrorDecomposition, terms: RelaxedTerms) -> None:
        self.kernels, self.radii, self.reaches = problem.kernels, problem.radii, terms.reaches
        functionals = [*terms.functionals, problem.base]
        self.memories = self.kernels.table(self.kernels.memories)
        mu = _least_squares(self.memories.window, self.kernels.table(functionals).window)
        known = [self.kernels.of_memories(map(rational, row)) for row in mu.tolist()]
        rests = [functional.plus(part, fmpq(-1)) for functional, part in zip(functionals, known, strict=True)]
        common = self._common(rests[:-1])
        self.terms, self.slots, self.common = len(terms.functionals), len(self.radii), len(common)
        self.mu = np.concatenate([mu, np.zeros((self.common, self.slots))])
        self.table = self.kernels.table([*rests, *common])
        table_sizes = self.table.sizes()
        self.sizes = np.abs(self.mu) @ self.radii + table_sizes
        """Bounds of the functionals in the rows of `table`."""
        self.box = np.concatenate([self.radii, np.maximum(table_sizes[self.terms + 1 :], ROUND), self.reaches])
        """Bounds of |(m, q, v)|: the uncut box."""
        eta = _least_squares(self.table.window[self.terms + 1 :], self.table.window[: self.terms])
        remainders = [rest.plus_all(common, (-row).tolist()) for rest, row in zip(rests[:-1], eta, strict=True)]
        self.spread = np.concatenate([self.mu[: self.terms], eta], axis=1)
        """(μ, η)."""
        self.remainders = self.kernels.table(remainders).sizes()
        self._count_roundings()

    def _common(self, rests: Sequence[Functional]) -> list[Functional]:
        """Principal functionals q of the rests: left singular vectors, the rests being divided by their terms' bounds."""
        window = self.kernels.table(rests).window
        left, values, _ = np.linalg.svd(window / self.reaches[:, None], full_matrices=False)
        kept = [j for j in range(min(MAX_COMMON, len(values))) if values[j] > LEAST_COMMON * max(values[0], LEAST_COMMON)]
        return [self.kernels.zero.plus_all(rests, (left[:, j] / self.reaches).tolist()) for j in kept]

    def _count_roundings(self) -> None:
        """γ = 4u times the roundings that a number of a cell's bound goes through at most, and what they may lose by underflow."""
        columns, rows = self.table.window.shape[1], len(self.mu)
        self.gamma = 4 * ROUND * (columns + self.terms + self.slots + self.common + len(self.table.tails) + 64)
        self.underflow = UNDERFLOW * (rows + self.slots) * float(columns + self.radii.sum() + self.table.tails.sum() + 64)
        reach = np.abs(self.spread) @ self.box[: self.slots + self.common] + self.remainders
        self.range_slack = self.gamma * reach

    def ranges(self, low: np.ndarray, high: np.ndarray) -> Ranges:
        """Intervals (C, U) of v on cells low ≤ (m, q, v) ≤ high; a cell that is empty has any."""
        cut = self.slots + self.common
        centre = (low[:, :cut] + high[:, :cut]) / 2 @ self.spread.T
        half = (high[:, :cut] - low[:, :cut]) / 2 @ np.abs(self.spread).T + self.remainders + self.range_slack
        left, right = np.maximum(centre - half, low[:, cut:]), np.minimum(centre + half, high[:, cut:])
        return Ranges(np.minimum(left, right), np.maximum(left, right))


def _least_squares(given: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Rows of numbers with which the rows of `given` come closest to each row of `wanted`."""
    return np.asarray(np.linalg.lstsq(given.T, wanted.T, rcond=None)[0].T)
