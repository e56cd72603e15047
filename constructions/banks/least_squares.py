"""Banks whose weights are best in mean square (`analyzer.theorems.least_squares`), and a search for good decays.

The search works in floating point and is a hint: whatever decays it ends at, weights are solved for and certified at what is stored. It
minimises, over sorted decays that keep a distance,

    (Σ_i ‖κ_i − wanted_i‖²)^{1/2} + price · (|c| + Σ_h |a_h|),

the price of a unit of weight being that of its rounding, or next to nothing in exact arithmetic: optimal decays may coincide, where
weights are infinite. On s ≥ 1 the error is the least squares residual over the first tokens. Where weights cost nothing, for lin heads in
exact arithmetic, it is the norm of the projection onto w^{j+1}B, j ≥ 0, as in (L.2): no matrix, however close the decays.
"""

import itertools
from collections.abc import Sequence

import numpy as np
from flint import arb, fmpq

from analyzer.families import Rpe
from analyzer.lemmas.least_squares import best_weights
from analyzer.numbers.exact import magnitude, nearest, rational, working_precision
from analyzer.targets.protocol import LayerTarget
from constructions.banks.head_banks import HeadBank, store

EXACT_PRICE = {"lin": 0.0, "log": 1e-9}
"""Price of a unit of weight in exact arithmetic; log heads have no stable form for decays that nearly coincide."""
STORED = 2.0**-40
"""Exact weights are stored to 2^-64 of this."""
WINDOW = {"lin": 512, "log": 1024}
"""Tokens over which the search looks."""
STARTS = 4
"""Starts of the search, spread out and close together."""
SEARCHED = {"lin": 12.0, "log": 64.0}
"""Decays up to which the search goes: lin weights grow like e^{pT}, log weights like T^p."""
MOST_STEPS = 2000
"""Values that a start may ask for."""
APART = 1.01
"""Neighbouring decays differ by this factor at least."""


def least_squares_bank(rpe: Rpe, decays: Sequence[fmpq], target: LayerTarget) -> HeadBank:
    """One bank that serves all memories, each with its best weights."""
    raw, residuals = [], []
    width, dim = target.readout.coordinates, target.dim
    for k in range(1, len(target.bank_labels) + 1):
        unit = [fmpq(int(i == k * dim)) for i in range(width)]
        found = best_weights(rpe, decays, target.wanted(unit, 0))
        raw.append(list(found.amplitudes))
        residuals.append(found.residual)
    with working_precision(512 + max(0, *(magnitude(a) for row in raw for a in row), *(magnitude(c) for c in residuals))):
        return store(rpe, decays, target.bank_labels, raw, residuals, STORED)


class DecaySearch:
    """The objective of a target, in floats."""

    def __init__(self, rpe: Rpe, target: LayerTarget, price: float, slowest: float) -> None:
        count = max(WINDOW[rpe], 4 * (target.places[-1] + 1))
        self.rpe, self.price = rpe, price
        self.s = np.arange(1, count + 1, dtype=float)
        self.least = max(slowest, 1.01 if rpe == "log" else 1e-3)
        self.wanted = np.stack([self._column(target, column, count) for column in range(target.dim)], axis=1)

    @staticmethod
    def _column(target: LayerTarget, column: int, count: int) -> np.ndarray:
        lags, memories = target.wanted(target.readout.affine, column)
        values = np.zeros(count)
        for lag, weight in lags.items():
            if 0 < lag <= count:
                values[lag - 1] += nearest(weight)
        with working_precision(64):
            for memory, weight in memories.items():
                values += nearest(weight) * np.array([float(v) for v in memory.values(1, count + 1)])
        return values

    def heads(self, decays: np.ndarray) -> np.ndarray:
        """Normalised heads on s ≥ 1, a column each; ζ(p) by its first terms."""
        if self.rpe == "lin":
            return np.exp(-np.outer(self.s, decays)) * -np.expm1(-decays)
        raw = self.s[:, None] ** -decays
        tail = self.s[-1] ** (1 - decays) / (decays - 1)
        return raw / (raw.sum(axis=0) + tail)

    def decays(self, logs: np.ndarray) -> np.ndarray:
        """Sorted decays within their range that keep their distance, from any logarithms."""
        found = np.sort(self.least * (1 + np.exp(np.clip(logs, -30, 10))))
        for h in range(1, len(found)):
            found[h] = max(found[h], found[h - 1] * APART)
        return np.minimum(found, SEARCHED[self.rpe] * APART ** -np.arange(len(found))[::-1].astype(float))

    def projected(self, decays: np.ndarray) -> float:
        """The norm of the projection onto w^{j+1}B, B the Blaschke product of the ratios: Σ_n β_n ρ(n + j + 1), j ≥ 0."""
        from scipy.signal import lfilter

        series = np.zeros(len(self.s))
        series[0] = 1
        for z in np.exp(-decays):
            series = lfilter([-z, 1], [1, -z], series)
        found = [np.correlate(column, series, "full")[len(series) - 1 :] for column in self.wanted.T]
        return float(np.sqrt(sum((f**2).sum() for f in found)))

    def __call__(self, logs: np.ndarray) -> float:
        if self.price == 0:
            return self.projected(self.decays(logs))
        heads = self.heads(self.decays(logs))
        weights, *_ = np.linalg.lstsq(heads, self.wanted, rcond=None)
        return float(np.sqrt(((heads @ weights - self.wanted) ** 2).sum()) + self.price * 2 * np.abs(weights).sum())

    def best(self, heads: int) -> np.ndarray:
        """The best decays of a few starts: progressions of different speeds, deterministic."""
        from scipy.optimize import minimize  # here: scipy's solvers are loaded only where something is fitted

        candidates = []
        centre = np.log(0.7 / self.least) if self.rpe == "lin" else 0.5
        for start, spread in itertools.product(np.linspace(-1.2, 1.2, STARTS), (1.5, 0.1)):
            first = centre + start + spread * np.linspace(-1, 1, heads)
            options = {"maxfev": min(MOST_STEPS, 300 * heads), "xatol": 1e-7, "fatol": 1e-13}
            candidates.append(minimize(self, first, method="Nelder-Mead", options=options))
        return self.decays(min(candidates, key=lambda found: float(found.fun)).x)


def optimised_decays(rpe: Rpe, target: LayerTarget, heads: int, price: float, slowest: fmpq, dtype: str) -> list[fmpq]:
    """Good decays for so many heads, as numbers of the type."""
    search = DecaySearch(rpe, target, price, float(arb(slowest)))
    return stored_decays([float(p) for p in search.best(heads)], dtype)


def stored_decays(decays: Sequence[float], dtype: str) -> list[fmpq]:
    """Decays as numbers of the type."""
    return [rational(float(np.float32(p)) if dtype == "float32" else p) for p in decays]
