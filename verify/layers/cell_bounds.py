"""The bound of a cell, for any slopes and multipliers: part (ii) of the proof.

A cell is a box low ≤ (m, q, v) ≤ high with a sign σ. Write y = (q, v) and rest = y − μ·m, as in `confinement`. By (i) σE is at most
σ constant + Σ_u max (σD_u − λ_u v) + the linear part, and for any *multipliers* θ, δ

    sup_cell (σB + Σ λ_u v_u) ≤ max_cell (ν·m + θ·y) + ‖κ‖₁,
    κ = σ rest_B + Σ λ_u rest_u − θ·rest_y − δ·m,      ν = σμ_B + Σ λ_u μ_u − θ·μ_y + δ.

Collected by rests, κ + δ·m = *weights*·(rest_v, rest_B, q) with weights (λ − θ_v, σ, −θ_q), and ν − δ = weights·μ. The maximum over the
cell is attained at a corner (m, y), the norm at tokens with the signs of κ. For fixed memories m are single tokens and μ the kernel's
values there: with δ = 0 nothing is lost.

The bound is convex in (λ, θ, δ), and what the maximiser does not agree upon is a subgradient: by λ_u the value of v_u at these tokens less
the place where σD_u − λ_u v is largest, by θ the corner's y less that of the tokens, by δ the corner's m less that of the tokens (of the
window: what lies beyond it is left out, as any step is sound).

Everything is done in double precision. A sum of n products is off by at most nu times the sum of absolute values, u = 2^−53, so
*rounding* is γ times bounds of all that was added, plus what the tables are off, plus underflow.
"""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from analyzer.numbers.exact import nearest
from verify.layers.confinement import Confinement
from verify.layers.decomposition import ErrorDecomposition
from verify.layers.relaxed_terms import RelaxedTerms, TermsOnCells

STEP_FALL = 4
"""Steps after which their length has fallen to one half."""


@dataclass(frozen=True)
class CellBatch:
    """Cells that are bounded together, rows of low and high being (m, q, v), and their terms."""

    low: np.ndarray
    high: np.ndarray
    side: np.ndarray
    """σ."""
    terms: TermsOnCells


@dataclass(frozen=True)
class Multipliers:
    """Slopes λ of the terms, multipliers θ = (θ_q, θ_v) of y and δ of m: views of one array (λ, θ, δ)."""

    lam: np.ndarray
    theta: np.ndarray
    theta_q: np.ndarray
    theta_v: np.ndarray
    delta: np.ndarray


@dataclass(frozen=True)
class LinearBound:
    """max_cell (ν·m + θ·y) + ‖κ‖₁, and where it is attained."""

    value: np.ndarray
    tail: np.ndarray
    """The part of ‖κ‖₁ that is bounded source by source."""
    weights: np.ndarray
    signs: np.ndarray
    """Of κ on the blocks: tokens of the maximiser."""
    corner_m: np.ndarray
    corner_y: np.ndarray
    token_v: np.ndarray
    """v at the maximiser's tokens, its m being that of the corner."""
    token_y: np.ndarray
    """(q, v) there."""


@dataclass
class CellBounds:
    """Bounds of cells, with what is known where they would be attained."""

    value: np.ndarray
    gradient: np.ndarray
    """By (λ, θ, δ)."""
    tops: np.ndarray
    """max (σD_u − λ_u v), for every term."""
    rounding: np.ndarray
    tail: np.ndarray
    signs: np.ndarray
    corner_m: np.ndarray
    token_v: np.ndarray

    @property
    def curved(self) -> np.ndarray:
        """Σ_u max (σD_u − λ_u v), and all rounding."""
        return np.asarray(self.tops.sum(axis=1) + self.rounding)

    @property
    def crude(self) -> np.ndarray:
        """The share of tails and roundings."""
        return self.tail + self.rounding

    def take(self, better: np.ndarray, other: "CellBounds") -> None:
        for name, mine in vars(self).items():
            mine[better] = getattr(other, name)[better]


class CellRelaxation:
    """Bounds of cells, and the search for slopes and multipliers that make them small."""

    def __init__(self, problem: ErrorDecomposition, terms: RelaxedTerms) -> None:
        self.problem, self.terms = problem, terms
        self.confinement = confinement = Confinement(problem, terms)
        self.constant = nearest(problem.constant)
        self.several_tokens = not problem.target.pointwise
        """Memories that are single tokens need no δ."""
        self.row_errors = confinement.table.errors + confinement.gamma * confinement.sizes
        self.memory_errors = confinement.memories.errors + confinement.gamma * confinement.radii
        self.units = np.concatenate([terms.reaches, confinement.box[confinement.slots :], confinement.radii])
        """Sizes of (v, y, m), against which steps of (λ, θ, δ) are measured."""

    def batch(self, low: np.ndarray, high: np.ndarray, side: np.ndarray) -> CellBatch:
        slots, ranges = self.confinement.slots, self.confinement.ranges(low, high)
        return CellBatch(low, high, side, TermsOnCells(self.terms, low[:, :slots], high[:, :slots], side, ranges))

    def split(self, multipliers: np.ndarray) -> Multipliers:
        terms, common = self.confinement.terms, self.confinement.common
        theta = multipliers[:, terms : 2 * terms + common]
        return Multipliers(multipliers[:, :terms], theta, theta[:, :common], theta[:, common:], multipliers[:, 2 * terms + common :])

    def chords(self, cells: CellBatch) -> np.ndarray:
        """(λ, θ, δ) to begin with: slopes of the chords, no multipliers."""
        result = np.zeros((len(cells.side), len(self.units)))
        result[:, : self.confinement.terms] = cells.terms.chord_slopes()
        return result

    def bound(self, cells: CellBatch, multipliers: np.ndarray) -> CellBounds:
        """σ constant + Σ_u max (σD_u − λ_u v) + the linear part + rounding."""
        given = self.split(multipliers)
        linear = self._linear(cells, given)
        tops, places = cells.terms.highest(given.lam)
        rounding = self._rounding(given, linear.weights, tops)
        value = cells.side * self.constant + tops.sum(axis=1) + linear.value + rounding
        return CellBounds(
            value=np.where(np.isfinite(value), value, np.inf),
            gradient=np.concatenate([linear.token_v - places, linear.corner_y - linear.token_y, self._by_delta(linear)], axis=1),
            tops=tops,
            rounding=rounding,
            tail=linear.tail,
            signs=linear.signs,
            corner_m=linear.corner_m,
            token_v=linear.token_v,
        )

    def _linear(self, cells: CellBatch, given: Multipliers) -> LinearBound:
        mu, table, memories = self.confinement.mu, self.confinement.table, self.confinement.memories
        slots, terms = self.confinement.slots, self.confinement.terms
        weights = np.concatenate([given.lam - given.theta_v, cells.side[:, None], -given.theta_q], axis=1)
        nu = weights @ mu + given.delta
        kappa, sources = weights @ table.window, weights @ table.beyond
        if self.several_tokens:
            kappa -= given.delta @ memories.window
            sources -= given.delta @ memories.beyond
        signs = np.where(kappa < 0, -1.0, 1.0)
        corner_m = np.where(nu >= 0, cells.high[:, :slots], cells.low[:, :slots])
        reached = corner_m @ mu.T + signs @ table.window.T + (np.sign(sources) * table.tails) @ table.beyond.T
        token_v, token_q = reached[:, :terms], reached[:, terms + 1 :]
        token_y = np.concatenate([token_q, token_v], axis=1)
        low, high = cells.low[:, slots:], cells.high[:, slots:]
        corner_y = np.where(given.theta > 0, high, np.where(given.theta < 0, low, np.clip(token_y, low, high)))
        tail = np.abs(sources) @ table.tails
        value = (nu * corner_m).sum(axis=1) + (given.theta * corner_y).sum(axis=1) + np.abs(kappa).sum(axis=1) + tail
        return LinearBound(value, tail, weights, signs, corner_m, corner_y, token_v, token_y)

    def _rounding(self, given: Multipliers, weights: np.ndarray, tops: np.ndarray) -> np.ndarray:
        confinement = self.confinement
        added = np.abs(tops).sum(axis=1) + np.abs(given.theta) @ confinement.box[confinement.slots :] + abs(self.constant)
        linear = np.abs(weights) @ self.row_errors + np.abs(given.delta) @ self.memory_errors
        return np.asarray(linear + (confinement.gamma * added + confinement.underflow))

    def _by_delta(self, linear: LinearBound) -> np.ndarray:
        if not self.several_tokens:
            return np.zeros_like(linear.corner_m)
        return np.asarray(linear.corner_m - linear.signs @ self.confinement.memories.window.T)

    def improve(self, cells: CellBatch, start: np.ndarray, at_start: CellBounds, level: float, steps: int) -> tuple[np.ndarray, CellBounds]:
        """Polyak's subgradient steps from (λ, θ, δ) towards a level, below which no bound is of use; the best that was met."""
        best, best_bounds = start.copy(), deepcopy(at_start)
        current, bounds = start, at_start
        for step in range(steps):
            current = current - self._polyak_step(bounds, level, 1 + step / STEP_FALL)
            bounds = self.bound(cells, current)
            better = bounds.value < best_bounds.value
            best[better] = current[better]
            best_bounds.take(better, bounds)
        return best, best_bounds

    def _polyak_step(self, bounds: CellBounds, level: float, divisor: float) -> np.ndarray:
        """(bound − level) / ‖gradient‖² times the gradient, over a divisor, in units."""
        scaled = bounds.gradient / self.units
        square = (scaled**2).sum(axis=1)
        excess = np.maximum(bounds.value - level, 0) / divisor
        step = np.where(square > 0, excess / square, 0.0)[:, None] * scaled / self.units
        return np.where(np.isfinite(step), step, 0.0)

    def gaps(self, cells: CellBatch, multipliers: np.ndarray, bounds: CellBounds) -> np.ndarray:
        """max (σD_u − λ_u v) less its value at the maximiser: what cutting the range of v_u can gain."""
        return np.asarray(bounds.tops - cells.terms.at(bounds.token_v, self.split(multipliers).lam))

    def tokens(self, bounds: CellBounds) -> np.ndarray:
        """Maximisers: signs of κ and, where memories are single tokens, the cell's corner."""
        target, edges = self.problem.target, self.problem.kernels.edges
        if self.several_tokens:
            return bounds.signs
        tokens = bounds.signs.copy()
        for k in range(self.confinement.slots):
            slot, column = divmod(k, target.dim)
            tokens[:, column * (len(edges) - 1) + edges.index(target.places[slot])] = bounds.corner_m[:, k]
        return tokens
