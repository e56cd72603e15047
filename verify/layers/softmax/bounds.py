"""The bound of a cell for any slopes and multipliers: parts (i) to (v) of the proof.

Multipliers are (λ, a, Λ): slopes λ_r of the target's ridges, a_1..a_4 ≥ 0 of the four inequalities of every ξ, and Λ, the slope by which
the read-out F is exchanged for a linear functional of (q, ξ). With L·(m, ξ) = (σ base + Σ_r λ_r coefficients_r)·(m, ξ) + Λ·(q, ξ) and η =
a_1 + a_2 − a_3 − a_4,

    σE ≤ σ constant + max (σF − Λ·(q, ξ)) + Σ_r max (−σ s_r ψ_r − λ_r v) + max_cell (L_ξ − η)·ξ + Σ ±a ζ + Σ_s max_b g_s(b),
    g_s(b) = Σ_h κ_h(s) e^{α_h·b} (A_h·b + B_h) + Σ_k P_k(s) L_k·b,     A = Σ ±a/Ref,   B = −Σ ±a ζ/Ref,

(ζ, Ref) being (lo, Lo), (hi, Hi), (hi, Lo), (lo, Hi). The bound is convex, and what its maximisers do not agree upon is a subgradient.

*Rounding.* A number of the bound goes through fewer than `roundings` operations of double precision, u = 2^−53 each, and weights are off by
`weights_error`; `size` bounds the sum of the absolute values of all that is added.
"""

from dataclasses import dataclass

import numpy as np

from analyzer.numbers.curves import ROUND
from verify.layers.softmax.neurons import NeuronFunction, ReadOutPieces
from verify.layers.softmax.problem import SoftmaxProblem
from verify.layers.softmax.ranges import WIDER, CellRanges

SIGNS = np.array([1.0, 1.0, -1.0, -1.0])[:, None, None]
NARROWED = 8
"""Functionals y whose ranges are found by (ii) to (v); those of the others come from ξ."""
KEEN_STEPS, KEEN = 1, 0.05
"""Subgradient steps for these ranges, and the length of the first one as a share of the functional's size."""
STEP_FALL = 4
"""Steps after which their length has fallen to one half."""


@dataclass
class SoftmaxBounds:
    """Bounds of cells, subgradients by (λ, a, Λ), the tokens (C, S) at which bounds would be attained, as numbers of nodes, and how far
    (q, ξ) at these tokens is from where F would be (`apart`), and from where the four inequalities would put it (`loose`)."""

    value: np.ndarray
    gradient: np.ndarray
    tokens: np.ndarray
    apart: np.ndarray
    loose: np.ndarray

    def take(self, better: np.ndarray, other: "SoftmaxBounds") -> None:
        for name, mine in vars(self).items():
            mine[better] = getattr(other, name)[better]


@dataclass(frozen=True)
class LinearPart:
    """An upper bound of L·(m, ξ) on cells by (ii) to (v), and where it would be attained.

    `tokens` (C, S) are numbers of nodes, `read` is m there, `ratios` is ξ there; `means` is ξ where (L_ξ − η)·ξ is largest, `estimates`
    what the four inequalities make of the tokens, `left_over` is L_ξ − η. `size` bounds what multipliers add to the rounded numbers.
    """

    value: np.ndarray
    size: np.ndarray
    tokens: np.ndarray
    read: np.ndarray
    means: np.ndarray
    ratios: np.ndarray
    estimates: np.ndarray
    left_over: np.ndarray

    @property
    def by_shares(self) -> np.ndarray:
        """Subgradient by a, (C, 4, H, d)."""
        return SIGNS * (self.estimates - self.means[:, None])


@dataclass(frozen=True)
class BoundedCells:
    """Cells with all that does not depend on multipliers."""

    ranges: CellRanges
    pieces: ReadOutPieces


class SoftmaxRelaxation:
    """Bounds of cells, and the search for multipliers that make them small."""

    def __init__(self, problem: SoftmaxProblem) -> None:
        self.problem = problem
        self.readout = NeuronFunction(problem)
        self.counts = (len(problem.coefficients), 4 * problem.heads * problem.dim, len(problem.looked))
        self.reach = np.abs(problem.coefficients) @ problem.radii
        self.base_reach = float(np.abs(problem.base) @ problem.radii)
        roundings = sum(self.counts) + problem.positions + len(problem.base) + 4 * problem.dim + 64
        self.gamma = 4 * ROUND * roundings + problem.weights_error

    def split(self, multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        terms, pairs, _ = self.counts
        a = np.maximum(multipliers[:, terms : terms + pairs], 0).reshape(len(multipliers), 4, self.problem.heads, self.problem.dim)
        return multipliers[:, :terms], a, multipliers[:, terms + pairs :]

    def batch(self, ranges: CellRanges) -> BoundedCells:
        self._narrow(ranges)
        return BoundedCells(ranges, ReadOutPieces(self.readout, ranges))

    def _narrow(self, ranges: CellRanges) -> None:
        """Ranges of the first few y by (ii) to (v); multipliers are those of the cell that was cut, and a few steps better."""
        cells = ranges.cells
        for k in range(cells.keen.shape[1]):
            for which, sign in enumerate((1.0, -1.0)):
                most, cells.keen[:, k, which] = self._highest(ranges, sign * self.problem.common[k], cells.keen[:, k, which])
                if sign > 0:
                    cells.common_high[:, k] = np.fmin(cells.common_high[:, k], most)
                else:
                    cells.common_low[:, k] = np.fmax(cells.common_low[:, k], -most)
        ranges.empty |= (cells.common_low > cells.common_high).any(axis=1)
        low, high = np.minimum(cells.common_low, cells.common_high), np.maximum(cells.common_low, cells.common_high)
        cells.common_low, cells.common_high = low, high

    def equal_shares(self, count: int) -> np.ndarray:
        """Multipliers of the ranges of y to begin with: both inequalities of every ξ at equal shares."""
        problem = self.problem
        rest = problem.common[:NARROWED, None, problem.dim :] * np.array([1.0, -1.0])[:, None]
        rest = rest.reshape(-1, 2, 1, problem.heads, problem.dim)
        shares = np.maximum(SIGNS * rest, 0) / 2
        return np.repeat(shares[None], count, axis=0)

    def _highest(self, ranges: CellRanges, row: np.ndarray, start: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """An upper bound of row·(q, ξ) on cells, and its multipliers a (C, 4, H, d)."""
        problem, cells, count = self.problem, ranges.cells, len(ranges.cells)
        rest = np.broadcast_to(row[problem.dim :].reshape(problem.heads, problem.dim), cells.mean_low.shape)
        of_slots = np.zeros((count, problem.slots, problem.dim))
        of_slots[:, 0] = row[: problem.dim]
        unit, size = (cells.mean_high - cells.mean_low)[:, None] + 2.0**-10, np.abs(row).sum()
        a, best, kept = start, np.full(count, np.inf), start
        for step in range(KEEN_STEPS + 1):
            part = self._linear(ranges, of_slots, rest, a)
            most = part.value + 2 * self.gamma * (size + part.size)
            better = most < best
            best, kept = np.where(better, most, best), np.where(better[:, None, None, None], a, kept)
            slope = part.by_shares / unit
            length = np.sqrt((slope**2).sum(axis=(1, 2, 3), keepdims=True))
            a = np.maximum(a - KEEN * np.abs(rest[0]).sum() / (1 + step) * slope / np.maximum(length, 1e-300) / unit, 0)
        return best, kept

    def chords(self, batch: BoundedCells) -> np.ndarray:
        """(λ, a, Λ) to begin with: slopes of chords and of F in the middle, and both inequalities of every ξ at equal shares."""
        ranges, problem = batch.ranges, self.problem
        lam, wanted = ranges.terms.chord_slopes(), batch.pieces.mean_slope()
        linear = lam @ problem.coefficients + ranges.cells.side[:, None] * problem.base
        linear[:, problem.looked] += wanted
        rest = linear[:, problem.slots * problem.dim :]
        a = np.maximum(np.stack([rest, rest, -rest, -rest], axis=1), 0) / 2
        return np.concatenate([lam, a.reshape(len(lam), -1), wanted], axis=1)

    def references(self, ranges: CellRanges) -> tuple[np.ndarray, np.ndarray]:
        """ζ (C, 4, H, d) and Ref (C, 4, H, 1) of the four inequalities."""
        low, high = ranges.cells.mean_low, ranges.cells.mean_high
        mass_low, mass_high = ranges.mass_low[..., None], ranges.mass_high[..., None]
        return np.stack([low, high, high, low], axis=1), np.stack([mass_low, mass_high, mass_low, mass_high], axis=1)

    def bound(self, batch: BoundedCells, multipliers: np.ndarray) -> SoftmaxBounds:
        problem, ranges, cells, count = self.problem, batch.ranges, batch.ranges.cells, len(batch.ranges.cells)
        lam, a, wanted = self.split(multipliers)
        tops, places = ranges.terms.highest(lam)
        highest, looks = batch.pieces.highest(wanted)
        linear = lam @ problem.coefficients + cells.side[:, None] * problem.base
        linear[:, problem.looked] += wanted
        of_slots, of_means = np.split(linear, [problem.slots * problem.dim], axis=1)
        of_slots = of_slots.reshape(count, problem.slots, problem.dim)
        part = self._linear(ranges, of_slots, of_means.reshape(cells.mean_low.shape), a)
        rounding = self._rounding(batch, multipliers, highest, tops, part) + batch.pieces.rounding(wanted)
        value = cells.constant + highest + tops.sum(axis=1) + part.value + rounding
        value = np.where(ranges.empty, -np.inf, np.where(np.isnan(value), np.inf, value))
        at = np.concatenate([part.read, part.means.reshape(count, -1)], axis=1)
        by_a = part.by_shares.reshape(count, -1)
        gradient = np.concatenate([at @ problem.coefficients.T - places, by_a, at[:, problem.looked] - looks], axis=1)
        true = np.concatenate([part.read[:, : problem.dim], part.ratios.reshape(count, -1)], axis=1)
        beside = np.maximum(SIGNS * a * (part.estimates - part.ratios[:, None]), 0).sum(axis=1)
        loose = np.abs(part.left_over) * np.abs(part.means - part.ratios) + beside
        return SoftmaxBounds(value, gradient, part.tokens, looks - true, loose)

    def _linear(self, ranges: CellRanges, of_slots: np.ndarray, of_means: np.ndarray, a: np.ndarray) -> LinearPart:
        """L is `of_slots` (C, slots, d) on m and `of_means` (C, H, d) on ξ."""
        cells = ranges.cells
        zeta, reference = self.references(ranges)
        shares = SIGNS * a / reference
        gain, offset = shares.sum(axis=1), -(shares * zeta).sum(axis=(1, 3))
        left_over = of_means - (SIGNS * a).sum(axis=1)
        means = np.where(left_over >= 0, cells.mean_high, cells.mean_low)
        peaks, tokens, corner = self._separable(ranges, gain, offset, of_slots)
        value = (left_over * means).sum(axis=(1, 2)) + (SIGNS * a * zeta).sum(axis=(1, 2, 3)) + peaks
        value = value + self._spare(ranges, gain, offset, of_slots)
        size = (a * (2 + 2 * ranges.mass_high[:, None, :, None] / reference)).sum(axis=(1, 2, 3))
        read, held, mass = self.coordinates_at(ranges, tokens, corner)
        estimates = zeta + (held[:, None] - zeta * mass[:, None, :, None]) / reference
        return LinearPart(value, size, tokens, read, means, held / mass[..., None], estimates, left_over)

    def _separable(
        self, ranges: CellRanges, gain: np.ndarray, offset: np.ndarray, of_slots: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Σ_s max_b g_s(b) at nodes, for the worst corner of q; the maximising nodes (C, S), and that corner."""
        problem, rows = self.problem, np.arange(len(offset))
        line = ranges.raised(gain @ problem.nodes.values.T + offset[..., None], gain)  # (C, H, n)
        shown = np.matmul(problem.masses.heads.T, ranges.weights * line[:, None])  # (C, Q, S, n)
        single = np.einsum("ks,cki->csi", problem.masses.memories, of_slots)
        shown += (single @ problem.nodes.values.T)[:, None]
        np.copyto(shown, -np.inf, where=~ranges.inside[:, None])
        best = shown.argmax(axis=-1)
        peaks = np.take_along_axis(shown, best[..., None], axis=-1)[..., 0]
        sums = peaks.sum(axis=-1)
        if ranges.coupled:
            own = np.take_along_axis(shown[:, :, 0], ranges.corners[..., None], axis=-1)[..., 0]
            together = sums - peaks[:, :, 0] + own + self._own_curvature(ranges, gain, offset)[:, None]
            coupled = together.max(axis=1) < sums.max(axis=1)
            sums = np.where(coupled[:, None], together, sums)
            best[:, :, 0] = np.where(coupled[:, None], ranges.corners, best[:, :, 0])
        corner = sums.argmax(axis=1)
        return sums[rows, corner], best[rows, corner], corner

    def _own_curvature(self, ranges: CellRanges, gain: np.ndarray, offset: np.ndarray) -> np.ndarray:
        """x_t is the query and a key. As a function of a scalar q its own part u = κ e^{θ(q)} (Aq + B), θ = α(q) q, lies above its chord by
        at most (width)²/8 sup |u''|, |u''| ≤ κ e^θ ((θ'² + |θ''|) |Aq + B| + 2|θ' A|): for narrow cells, where both are the same token."""
        ends = self.problem.nodes.values[ranges.corners][..., 0]  # (C, Q)
        line = np.abs(gain[:, None, :, 0] * ends[..., None] + offset[:, None]).max(axis=1)  # (C, H)
        steep, turn = ranges.own_slope, 2 * np.abs(self.problem.slope1[:, 0, 0])
        bend = ranges.token_high[:, :, 0] * ((steep**2 + turn) * line + 2 * steep * np.abs(gain[..., 0]))
        return np.asarray((ends[:, -1] - ends[:, 0]) ** 2 / 8 * bend.sum(axis=1) * (1 + WIDER))

    def _spare(self, ranges: CellRanges, gain: np.ndarray, offset: np.ndarray, of_slots: np.ndarray) -> np.ndarray:
        """What blocks and tails add."""
        masses = self.problem.masses
        heads = (masses.spare * ranges.peak * (np.abs(gain).sum(axis=2) + np.abs(offset))).sum(axis=1)
        return np.asarray(heads + np.abs(of_slots).sum(axis=2) @ masses.memory_spare)

    def _rounding(
        self, batch: BoundedCells, multipliers: np.ndarray, highest: np.ndarray, tops: np.ndarray, part: LinearPart
    ) -> np.ndarray:
        lam, _, wanted = self.split(multipliers)
        added = np.abs(tops).sum(axis=1) + np.abs(batch.ranges.cells.constant) + np.abs(lam) @ self.reach + self.base_reach
        size = added + np.where(np.isfinite(highest), np.abs(highest), 0) + np.abs(wanted).sum(axis=1) + part.size
        return np.asarray(2 * self.gamma * size + 2.0**-1000)

    def coordinates_at(self, ranges: CellRanges, tokens: np.ndarray, corner: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """m, N and D at nodes (C, S) of the tokens, weights being those of a corner of q."""
        problem, rows = self.problem, np.arange(len(tokens))
        x = problem.nodes.values[tokens]
        weights = problem.masses.heads * np.take_along_axis(ranges.weights[rows, corner], tokens[:, None, :], axis=2)
        read = np.einsum("ks,csi->cki", problem.masses.memories, x).reshape(len(x), -1)
        return read, np.matmul(weights, x), weights.sum(axis=2)

    def units(self, ranges: CellRanges) -> np.ndarray:
        """Widths of (v, ξ four times, (q, ξ)), against which steps are measured."""
        cells, terms = ranges.cells, ranges.terms.ranges
        wide = np.repeat((cells.mean_high - cells.mean_low)[:, None], 4, axis=1).reshape(len(cells), -1)
        widths = np.concatenate([terms.right - terms.left, wide, (ranges.high - ranges.low)[:, self.problem.looked]], axis=1)
        return np.maximum(widths, 2.0**-10)

    def improve(
        self, batch: BoundedCells, start: np.ndarray, at_start: SoftmaxBounds, level: float, steps: int
    ) -> tuple[np.ndarray, SoftmaxBounds]:
        """Polyak's subgradient steps towards a level, below which no bound is of use; the best that was met."""
        best, current, bounds = start.copy(), start, at_start
        kept = SoftmaxBounds(*(array.copy() for array in vars(at_start).values()))
        units = self.units(batch.ranges)
        for step in range(steps):
            scaled = bounds.gradient / units
            square = (scaled**2).sum(axis=1)
            excess = np.maximum(bounds.value - level, 0) / (1 + step / STEP_FALL)
            move = np.where(square > 0, excess / np.maximum(square, 1e-300), 0.0)[:, None] * scaled / units
            current = self.feasible(current - np.where(np.isfinite(move), move, 0.0))
            bounds = self.bound(batch, current)
            better = bounds.value < kept.value
            best[better] = current[better]
            kept.take(better, bounds)
        return best, kept

    def feasible(self, multipliers: np.ndarray) -> np.ndarray:
        terms, pairs, _ = self.counts
        multipliers[:, terms : terms + pairs] = np.maximum(multipliers[:, terms : terms + pairs], 0)
        return multipliers
