"""Decays that approximate a memory kernel best in ℓ¹: a search in floating point, whose result is certified elsewhere.

For given decays the weights of the least Σ_s |ρ(s) − Σ_h a_h k_h(s)| + price (|c| + Σ_h |a_h|) solve a linear programme. We solve its dual,

    max Σ_s w_s η_s ρ(s)   over |η_s| ≤ 1 with |Σ_s w_s η_s k_h(s)| ≤ price,

which has H rows only: s = 1, 2, … one by one, then Gauss points of geometric blocks with the block's length as weight w_s (and, for lin
heads, s = 0 with w_0 = price, as c = ρ(0) − Σ_h a_h(1−z_h) puts s = 0 right). Decays are improved by sequential linear programming: the
kernels are linearised in θ_h = log p_h (lin) or log(p_h − 1) (log), steps |Δθ_h| ≤ r are kept if the value falls, and r adapts. Starts
are the best progressions in θ, wide and narrow. Where η_s is strictly inside (−1, 1) the optimal kernel meets ρ: those s are returned
too, so that the weights can be computed exactly.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import arb
from scipy.optimize import linprog

from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.lemmas.extraction import Rpe
from analyzer.numbers.exact import working_precision

HORIZON = {"lin": {"exponential": 1e6, "power": 1e14}, "log": {"exponential": 1e40, "power": 1e40}}
"""Tokens that the search looks at: beyond them even the slowest decays tried hold less than 1e-3 of their mass."""
RANGES = {"lin": (None, math.log(40.0)), "log": (math.log(0.05), math.log(60.0))}
"""θ that are tried; the slowest lin decay follows from the horizon."""
TOPS = {"lin": (0.2, 0.4, 0.8, 1.4, 2.2, 3.5), "log": (1.0, 2.0, 4.0, 8.0, 16.0)}
WIDE, CLUSTERED = (0.2, 0.4, 0.7, 1.0, 1.4, 2.0, 3.0), (0.03, 0.07, 0.12)
"""Fastest decays and spacings of the starts: heavy tails want many scales, bumps and waves want decays that nearly agree."""
ITERATIONS = 60
LEAST_STEP = 1e-4
TOLERANCE = 1e-10
"""The finest feasibility tolerance that HiGHS offers."""
MAX_PIVOTS = 3000
"""Programmes take a few hundred pivots; one that cycles near degeneracy is given up."""


@dataclass(frozen=True)
class FittedKernel:
    """Decays (θ), normalised weights, the value of the linear programme, and the s at which the kernel meets ρ."""

    theta: tuple[float, ...]
    weights: tuple[float, ...]
    value: float
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class Search:
    """The search for one kernel and RPE type; a positive price keeps weights small, and decays stay above `slowest`."""

    kernel: MemoryKernel
    rpe: Rpe
    price: float = 0.0
    slowest: float = 0.0

    @cached_property
    def rows(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(s, w_s, ρ(s))."""
        singles, most = 64, 1024 if self.kernel.waves() else 128
        while self.kernel.shape == "exponential" and singles < most and not self.kernel.tail(singles) < 1e-7:
            singles *= 2
        points = [(s, 1.0) for s in range(1, singles + 1)]
        if self.rpe == "lin" and self.price:
            points.insert(0, (0, self.price))
        nodes, shares = np.polynomial.legendre.leggauss(3)
        low = math.log(singles + 0.5)
        while low < math.log(HORIZON[self.rpe][self.kernel.shape]):
            half = math.log(1.25 if low < math.log(1e6) else 1.6) / 2
            places = np.exp(low + half * (1 + nodes))
            points += [(round(s), float(share) * half * s) for s, share in zip(places, shares, strict=True)]
            low += 2 * half
        with working_precision(64):
            wanted = [float(self.kernel.value(s)) for s, _ in points]
        return np.array([float(s) for s, _ in points]), np.array([w for _, w in points]), np.array(wanted)

    @cached_property
    def scale(self) -> float:
        _, weights, wanted = self.rows
        return float(weights @ np.abs(wanted)) or 1.0

    @property
    def range(self) -> tuple[float, float]:
        """The θ that are tried."""
        low, high = RANGES[self.rpe]
        least = math.log(30 / self.rows[0][-1]) if low is None else low
        asked = self.slowest - (self.rpe == "log")
        return max(least, math.log(asked) if asked > 0 else least), high

    def decay(self, theta: float) -> float:
        return math.exp(theta) + (self.rpe == "log")

    def column(self, theta: float) -> np.ndarray:
        """The normalised kernel of a head at the rows."""
        s, p = self.rows[0], self.decay(theta)
        if self.rpe == "lin":
            return -math.expm1(-p) * np.exp(-p * s)
        return np.exp(-p * np.log(s)) / float(arb(p).zeta())

    def _span(self, theta: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
        """(Q, R): the weighted columns as QR. Without a price only their span matters, and Q is well conditioned when decays cluster."""
        columns = (np.array([self.column(t) for t in theta]) * self.rows[1]).T
        return (columns, np.eye(len(theta))) if self.price else np.linalg.qr(columns)

    def solve(self, theta: Sequence[float]) -> FittedKernel | None:
        """The best weights for given decays."""
        span, triangle = self._span(theta)
        found = self._programme(np.hstack([span.T, np.eye(len(theta))]), [(-self.price, self.price)] * len(theta), np.zeros(len(theta)))
        if found is None or not np.abs(np.diag(triangle)).min() > 0:
            return None
        value, duals, signs = found
        nodes = tuple(int(s) for s, eta in zip(self.rows[0], signs, strict=True) if abs(eta) < 1 - 1e-7)
        return FittedKernel(tuple(theta), tuple(np.linalg.solve(triangle, duals) * self.scale), value * self.scale, nodes)

    def step(self, at: FittedKernel, reach: float) -> tuple[float, ...] | None:
        """The θ that minimise the linearised value within the trust region, weights free."""
        count, width = len(at.theta), 1e-5
        span, _ = self._span(at.theta)
        pairs = zip(at.weights, at.theta, strict=True)
        slopes = np.array([a * (self.column(t + width) - self.column(t - width)) / (2 * width) for a, t in pairs])
        slopes *= self.rows[1] / self.scale
        if not self.price:  # what the weights can do themselves is taken out
            slopes -= slopes @ span @ span.T
        sizes = np.maximum(np.abs(slopes).sum(axis=1), 1e-300)
        zero, one = np.zeros((count, count)), np.eye(count)
        matrix = np.block([[span.T, one, zero, zero], [slopes / sizes[:, None], zero, -one, one]])
        limits = [(-self.price, self.price)] * count + [(0.0, None)] * (2 * count)
        found = self._programme(matrix, limits, np.concatenate([np.zeros(count), reach * sizes, reach * sizes]))
        if found is None:
            return None
        moved = np.array(at.theta) + found[1][count:] / sizes
        return tuple(float(v) for v in np.clip(moved, *self.range))

    def _programme(
        self, matrix: np.ndarray, limits: Sequence[tuple[float, float | None]], cost: np.ndarray
    ) -> tuple[float, np.ndarray, np.ndarray] | None:
        """max Σ wηρ − cost·(slack variables): (value, multipliers of the rows, η), or None if HiGHS gives up."""
        _, weights, wanted = self.rows
        objective = np.concatenate([-weights * wanted / self.scale, cost])
        result = linprog(
            objective, A_eq=matrix, b_eq=np.zeros(len(matrix)), bounds=[(-1.0, 1.0)] * len(weights) + [*limits], method="highs-ds",
            options={"primal_feasibility_tolerance": TOLERANCE, "dual_feasibility_tolerance": TOLERANCE, "maxiter": MAX_PIVOTS},
        )  # fmt: skip
        return (-result.fun, -result.eqlin.marginals, result.x[: len(weights)]) if result.status == 0 else None

    def improve(self, start: FittedKernel) -> FittedKernel:
        """Sequential linear programming from a start."""
        best, reach = start, 0.3
        for _ in range(ITERATIONS):
            theta = self.step(best, reach)
            found = None if theta is None else self.solve(theta)
            if found is None or not found.value < best.value * (1 - 1e-9):
                reach /= 4
            else:
                gain = 1 - found.value / best.value
                best, reach = found, min(1.0, 1.7 * reach)
                if gain < 1e-5:
                    break
            if reach < LEAST_STEP:
                break
        return best

    def starts(self, heads: int, known: Sequence[float], widths: Sequence[float]) -> list[FittedKernel]:
        """Progressions in θ, so wide per head, beside the known θ; best first."""
        free, found = heads - len(known), []
        for top, width in itertools.product(map(math.log, TOPS[self.rpe]), widths):
            spaced = np.clip([top - width * k for k in range(free)], *self.range)
            found.append(self.solve([*known, *(float(t) for t in spaced)]))
        return sorted((s for s in found if s is not None), key=lambda s: s.value)

    def fit(self, heads: int, known: Sequence[float] = ()) -> list[FittedKernel]:
        """Solutions from the best starts, the best first; `known` θ are part of one start."""
        starts = self.starts(heads, (), WIDE)[:2] + self.starts(heads, (), CLUSTERED)[:2]
        if known and len(known) < heads:
            starts += self.starts(heads, known, WIDE)[:1]
        return sorted((self.improve(start) for start in starts), key=lambda s: s.value)
