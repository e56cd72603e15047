"""What a cell says about weights, means and arguments: ranges in double precision, widened by every rounding.

A cell has a range of nodes for every position (`low`, `high`), a range of every mean ξ_h, and ranges of the common functionals y. From
these:

* weights: e^{α(q)·b} is extreme at corners of the ranges of q and b, which are nodes; Lo ≤ D_h ≤ Hi are sums of extremes;
* means: N − ρD ≤ S(ρ) = Σ_s max_b κ_h(s) e^{α_h(q)·b}(b − ρ) for all tokens of the cell, so ξ ≤ ρ + S(ρ)/Lo or, if S(ρ) < 0, ρ + S(ρ)/Hi,
  for any ρ; one step of Dinkelbach's iteration gives the second ρ;
* functionals of (q, ξ): from the ranges of ξ, and for scalar tokens by the mean value theorem from the centre of all tokens,

      ∂ξ_h/∂x_s = p_h(s) (1 + α_h (x_s − ξ_h)),     ∂ξ_h/∂q = α'_h Var_p(x),     p_h(s) = w_h(s)/D_h.
"""

from dataclasses import dataclass

import numpy as np

from constructions.network.exponential import exp
from verify.layers.cells import CellRows
from verify.layers.relaxed_terms import Ranges, TermsOnCells
from verify.layers.softmax.problem import SoftmaxProblem

WIDER = 2.0**-36
"""Ranges are widened by this share of the numbers they come from: far more than 2^12 roundings, and the error of every weight."""


@dataclass
class SoftmaxCells(CellRows):
    """Cells as arrays: node ranges (C, S, axes), ranges of ξ (C, H, d) for all tokens in them (`hull`) and as they were cut (`mean`), of y
    (C, K), multipliers a of the ranges of y (C, few, 2, 4, H, d), signs σ, and constants, which hold σ times the constant part of E and
    the slack of f."""

    low: np.ndarray
    high: np.ndarray
    hull_low: np.ndarray
    hull_high: np.ndarray
    mean_low: np.ndarray
    mean_high: np.ndarray
    common_low: np.ndarray
    common_high: np.ndarray
    keen: np.ndarray
    side: np.ndarray
    constant: np.ndarray

    def __len__(self) -> int:
        return len(self.side)


class CellRanges:
    """Ranges on a batch of cells. `empty` are cells in which no tokens lie; the cells' own ξ and y are narrowed in place."""

    def __init__(self, problem: SoftmaxProblem, cells: SoftmaxCells) -> None:
        self.problem, self.cells = problem, cells
        nodes = problem.nodes
        self.least, self.most = nodes.ends(cells.low, cells.high)
        self.inside = nodes.inside(cells.low, cells.high)
        self.corners = nodes.corners(cells.low[:, 0], cells.high[:, 0])
        self.weights = problem.table[self.corners]
        """e^{α(q)·b} at the corners of q, (C, Q, H, n)."""
        self.slopes = problem.slopes[self.corners]
        self.largest_slope = np.abs(self.slopes).max(axis=1)
        self.coupled = nodes.continuous and problem.dim == 1
        if self.coupled:  # θ' = α0 + 2α1 q, largest at an end
            self.own_slope = np.abs(problem.slope0[:, 0] + 2 * problem.slope1[:, 0, 0] * nodes.values[self.corners]).max(axis=1)
        self.empty = np.zeros(len(cells), dtype=bool)
        self._token_weights()
        self._between_nodes()
        self._means()
        self._arguments()

    def _token_weights(self) -> None:
        masses, wide = self.problem.masses, 1 + WIDER
        if self.problem.nodes.continuous:
            ends = self.problem.nodes.corners(self.cells.low, self.cells.high)  # (C, S, 2^axes)
            flat = np.take_along_axis(self.weights, ends.reshape(len(ends), 1, 1, -1), axis=3)
            at_ends = flat.reshape(*self.weights.shape[:3], *ends.shape[1:])
            least, most = at_ends.min(axis=(1, 4)), at_ends.max(axis=(1, 4))
        else:
            shown, mask = self.weights[:, 0, :, None, :], self.inside[:, None]
            least, most = np.where(mask, shown, np.inf).min(axis=-1), np.where(mask, shown, 0.0).max(axis=-1)
        self.token_low, self.token_high = masses.heads * least / wide, masses.heads * most * wide  # (C, H, S)
        self.peak = self.weights.max(axis=(1, 3)) * wide
        """The largest e^{α(q)·b}, (C, H)."""
        self.mass_low = self.token_low.sum(axis=2) / wide
        self.mass_high = (self.token_high.sum(axis=2) + masses.spare * self.peak) * wide

    def _between_nodes(self) -> None:
        """What weights do between nodes. They are exponentials of affine functions of q and b, so that on a cell of the grid

            e^{−ε'} w̄ ≤ w ≤ w̄,     ε' = Σ (range of the logarithm along a coordinate)²/8,

        w̄ being the multilinear interpolation of their values at its corners: the arithmetic mean of corners is at least the geometric
        one, and by Hoeffding's lemma at most e^{ε'} times as large. And w̄ l, for l affine, exceeds the interpolation of its values at
        corners by a quarter of the product of both differences along a coordinate at most. So with l⁻ = max(−l, 0)

            w l ≤ the largest of w (l + ε l⁻ + ν) at the corners,     ε = 1 − e^{−ε'},   ν = 2^axes Σ_i (e^{|α_i|Δ} − 1) |A_i| Δ/4,

        where every coordinate that is interpolated adds its part of ν at most (1 + ε) times per coordinate that follows. Along q the
        logarithm's range depends on b, and ε must be one number on a cell of the grid: that of a node holds in all cells around it."""
        problem, nodes = self.problem, self.problem.nodes
        if not nodes.continuous:
            return
        width = self.most[:, 0] - self.least[:, 0]
        around = nodes.step * np.abs(problem.slope1).sum(axis=1)[:, None]
        turned = np.abs(np.einsum("hij,ni->hnj", problem.slope1, nodes.values)) + around  # (H, n, d)
        square = np.einsum("hnj,cj->chn", turned**2, width**2) / 8 + ((self.largest_slope * nodes.step) ** 2).sum(axis=-1)[..., None] / 8
        self.shrink = -np.expm1(-square) * (1 + WIDER)
        self.bump = 2**nodes.axes * np.expm1(self.largest_slope * nodes.step) * nodes.step / 4 * (1 + WIDER)  # (C, H, d)

    def raised(self, line: np.ndarray, gain: np.ndarray) -> np.ndarray:
        """l = A·b + B at the nodes (C, H, n), raised so that weights times it are bounded between nodes, too; gain is A (C, H, d)."""
        if not self.problem.nodes.continuous:
            return line
        return np.asarray(line + self.shrink * np.maximum(-line, 0) + (self.bump * np.abs(gain)).sum(axis=-1)[..., None])

    def _means(self) -> None:
        """Upper and lower ends of every ξ_h, from the ends that are known and one step of Dinkelbach's iteration."""
        cells = self.cells
        for sign in (1.0, -1.0):
            known = (cells.hull_high if sign > 0 else -cells.hull_low).copy()
            rho = known
            for _ in range(2):
                found, attained = self._ratio(sign, rho)
                known, rho = np.minimum(known, found), np.minimum(attained, known)
            if sign > 0:
                cells.hull_high = known
            else:
                cells.hull_low = -known
        cells.mean_low, cells.mean_high = _narrower((cells.mean_low, cells.mean_high), (cells.hull_low, cells.hull_high))

    def _ratio(self, sign: float, rho: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """An upper bound of σξ from ρ (C, H, d), and the largest σξ that the maximising tokens attain at a corner of q."""
        problem = self.problem
        values, masses = problem.nodes.values, problem.masses
        bound, attained = np.empty_like(rho), np.empty_like(rho)
        for i in range(problem.dim):
            gain = np.zeros((*rho.shape[:2], problem.dim))
            gain[..., i] = sign
            gap = self.raised(sign * values[:, i] - rho[..., i, None], gain)  # (C, H, n)
            shown = self.weights * gap[:, None]
            best = np.where(self.inside[:, None, None], shown[:, :, :, None], -np.inf).argmax(axis=-1)  # (C, Q, H, S)
            weight = masses.heads * np.take_along_axis(self.weights, best, axis=-1)
            total, held = (weight * np.take_along_axis(gap[:, None], best, axis=-1)).sum(axis=-1), weight.sum(axis=-1)
            reached = total / held + rho[:, None, :, i]
            slack = masses.spare * self.peak * (1 + np.abs(rho[..., i])) + WIDER * self.mass_high
            most = total.max(axis=1) + slack
            bound[..., i] = rho[..., i] + np.where(most > 0, most / self.mass_low, most / self.mass_high) + WIDER
            attained[..., i] = reached.max(axis=1)
        return np.where(np.isfinite(bound), bound, np.inf), np.where(np.isfinite(attained), attained, rho)

    def _arguments(self) -> None:
        """Ranges of (m, ξ), y and v."""
        problem, cells, count = self.problem, self.cells, len(self.cells)
        memories = problem.masses.memories
        half = np.einsum("ks,csi->cki", np.abs(memories), self.most - self.least) / 2
        middle = np.einsum("ks,csi->cki", memories, self.most + self.least) / 2
        half = half + problem.masses.memory_spare[:, None] + WIDER
        self.empty |= (cells.mean_low > cells.mean_high).any(axis=(1, 2))
        cells.mean_low, cells.mean_high = np.minimum(cells.mean_low, cells.mean_high), np.maximum(cells.mean_low, cells.mean_high)
        low = np.concatenate([(middle - half).reshape(count, -1), cells.mean_low.reshape(count, -1)], axis=1)
        high = np.concatenate([(middle + half).reshape(count, -1), cells.mean_high.reshape(count, -1)], axis=1)
        self.low, self.high = np.maximum(low, -problem.radii), np.minimum(high, problem.radii)
        centre, reach = (self.low + self.high) / 2, (self.high - self.low) / 2
        self.terms = TermsOnCells(problem.terms, self.low, self.high, cells.side, self._ridge_ranges(centre, reach))
        looked = problem.looked
        y_low, y_high = _interval(centre[:, looked], reach[:, looked], problem.common)
        self.shares = self._crude_shares()
        """Parts of half the ranges of y that are due to every token, (C, K, S, d): hints."""
        if problem.dim == 1:
            y_low, y_high = _narrower((y_low, y_high), self._around_centre(problem.common))
        cells.common_low, cells.common_high = _narrower((cells.common_low, cells.common_high), (y_low, y_high))
        self.empty |= (cells.common_low > cells.common_high).any(axis=1)
        cells.common_low, cells.common_high = _ordered(cells.common_low, cells.common_high)

    def _ridge_ranges(self, centre: np.ndarray, reach: np.ndarray) -> Ranges:
        left, right = _interval(centre, reach, self.problem.coefficients)
        reaches = self.problem.terms.reaches
        return Ranges(*_ordered(np.maximum(left, -reaches), np.minimum(right, reaches)))

    def _crude_shares(self) -> np.ndarray:
        problem = self.problem
        heads = np.abs(problem.common[:, problem.dim :]).reshape(-1, problem.heads, problem.dim)
        held = (self.token_high / self.mass_high[..., None])[..., None] * (self.most - self.least)[:, None] / 2  # (C, H, S, d)
        shares = np.einsum("khi,chsi->cksi", heads, np.minimum(held, 1))
        shares[:, :, 0] += np.abs(problem.common[:, : problem.dim]) * (self.most - self.least)[:, None, 0] / 2
        return np.asarray(shares)

    def _around_centre(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ranges of functionals (K, 1 + H) of (q, ξ) by the mean value theorem, for scalar tokens: between the centre
        and any tokens of the cell ξ stays in its hull, but not where it was cut.

        A block holds many tokens. Up to δ it has p_h(s) = r(s) π_h(s) with π_h(s) = K_h e^{α_h x_s}/D_h, where the block's part of D_h
        belongs to its other tokens, and adds Σ_s r(s) Σ_h π_h(s) (1 + α_h (x_s − ξ_h)) (x_s − centre). What is spared, of share τ, adds
        (1 + 2|α|)τ, and moves the mean at the centre by τ and the variance by 4τ at most."""
        problem = self.problem
        least, most = self.least[..., 0], self.most[..., 0]
        centre, half = (least + most) / 2, (most - least) / 2
        slope = problem.slope0[:, 0] + problem.slope1[:, 0, 0] * centre[:, :1]
        logits = slope[:, :, None] * centre[:, None, :]
        weight = problem.masses.heads * exp(logits - logits.max(axis=2, keepdims=True), np)
        mean = (weight * centre[:, None, :]).sum(axis=2) / weight.sum(axis=2)
        others_low, others_high = self.mass_low[..., None] - self.token_low, self.mass_high[..., None] - self.token_high
        alone = np.diff(problem.masses.edges) == 1
        own_low, own_high = np.where(alone, self.token_high, self.token_low), np.where(alone, self.token_low, self.token_high)
        share_low = self.token_low / (own_high + np.maximum(others_high, 0) * (1 + WIDER) + 1e-300) / (1 + WIDER)
        share_high = self.token_high / (own_low + np.maximum(others_low, 0) / (1 + WIDER)) * (1 + WIDER)
        share_high = np.where(alone, np.minimum(1, share_high), share_high)
        hull_low, hull_high = self._between_letters(least, most)
        gap_low, gap_high = least[:, None] - hull_high[..., None], most[:, None] - hull_low[..., None]
        steep = self.slopes[..., 0]  # (C, Q, H)
        products = np.stack([1 + steep[:, k, :, None] * gap for k in range(steep.shape[1]) for gap in (gap_low, gap_high)])
        factor_low, factor_high = products.min(axis=0), products.max(axis=0)
        corners = np.stack([share_low * factor_low, share_low * factor_high, share_high * factor_low, share_high * factor_high])
        slope_low, slope_high = corners.min(axis=0), corners.max(axis=0)
        middle, radius = (slope_low + slope_high) / 2, (slope_high - slope_low) / 2  # of ∂ξ_h/∂x_s, (C, H, S)
        widest = (most.max(axis=1)[:, None] - hull_low) * (hull_high - least.min(axis=1)[:, None])
        variance = np.clip(widest, 0, 1)
        turning = problem.slope1[:, 0, 0] * variance / 2  # ∂ξ/∂q lies between 0 and twice this
        spared = 2 + 2 * self.largest_slope[..., 0] + 4 * np.abs(problem.slope1[:, 0, 0])
        spare = problem.masses.spare * self.peak / self.mass_low * spared
        loose = (radius * half[:, None]).sum(axis=2) + np.abs(turning) * half[:, :1] + spare

        of_token, heads = rows[:, :1], rows[:, 1:]
        linear = np.einsum("uh,chs->cus", heads, middle)
        linear[:, :, 0] += turning @ heads.T + of_token[:, 0]
        size = (np.abs(linear) * half[:, None]).sum(axis=2) + loose @ np.abs(heads).T
        at = centre[:, :1] * of_token[:, 0] + mean @ heads.T
        self.shares = ((np.abs(linear) + np.einsum("uh,chs->cus", np.abs(heads), radius)) * half[:, None])[..., None]
        size = size * (1 + WIDER) + WIDER * np.abs(rows).sum(axis=1)
        return at - size, at + size

    def _between_letters(self, least: np.ndarray, most: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Both ends (C, H) of ξ for scalar tokens between letters: ρ + Σ_s max_x κ_h(s) e^{αx}(x − ρ)/Lo, from the end ρ for letters.

        The maximum over x is attained at an end or at x = ρ − 1/α. Boxes hold what is between their tokens."""
        problem, ends = self.problem, []
        for sign, known in ((-1.0, -self.cells.hull_low[..., 0]), (1.0, self.cells.hull_high[..., 0])):
            if problem.nodes.continuous:
                ends.append(sign * known)
                continue
            slope, rho = self.slopes[:, 0, :, 0, None], known[..., None]
            left, right = np.broadcast_arrays(least[:, None], most[:, None])
            places = np.stack([*np.broadcast_arrays(left, right, np.clip(sign * rho - 1 / slope, left, right))])
            tops = (exp(slope * places - problem.shift[:, None], np) * (sign * places - rho)).max(axis=0)
            slack = problem.masses.spare * self.peak * (1 + np.abs(known)) + WIDER * self.mass_high
            ends.append(sign * (known + np.maximum((problem.masses.heads * tops).sum(axis=2) + slack, 0) / self.mass_low))
        return ends[0], ends[1]


def _interval(centre: np.ndarray, half: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    middle, reach = centre @ rows.T, half @ np.abs(rows).T + WIDER * (np.abs(centre) @ np.abs(rows).T + np.abs(rows).sum(axis=1))
    return middle - reach, middle + reach


def _narrower(one: tuple[np.ndarray, np.ndarray], other: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    return np.fmax(one[0], other[0]), np.fmin(one[1], other[1])


def _ordered(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.minimum(left, right), np.maximum(left, right)
