"""The least mean square error over all decays, between a certified floor and a bank: branch and bound on the cube of decay ratios.

F(z) = ‖Γb(z)‖² is the error of a kernel ρ with support 1..N for the decay ratios z in [0, 1]^H, Γ = (ρ(i+j+1)) and b the coefficients of
B = Π_h φ_h, φ(w) = (w−z)/(1−zw) (`analyzer.limits.mean_square`; a lag is ρ = 1_T). F is symmetric, so z_1 ≤ … ≤ z_H will do.

Bound on a cell with centre m and radii r. With R(z) = Γb(z), Taylor's formula gives

    F(z) = F(m) + ∇F(m)·(z−m) + ‖J(z−m)‖² + ⟨R, Σ_hk (z−m)_h (z−m)_k ∂_h∂_k R⟩,    J and the derivatives of R at a point between,

    F(z) ≥ F(m) − Σ_h |∂_h F(m)| r_h − ρ* (Σ_h e_h r_h² + 2 Σ_{h<k} x_hk r_h r_k),

where ρ* bounds ‖R‖ on the cell, e_h bounds ‖∂_h² R‖ and x_hk bounds ‖∂_h∂_k R‖. *The constants.* Γ turns shifts into backward shifts, ΓS =
S*Γ, so Γ(fg) = g(S)*Γf, and for an inner function g, such as a part of B, ‖Γ(fg)‖ ≤ ‖Γf‖. Hence ‖R‖ ≤ ‖Γ1‖ = ‖ρ‖₂, ‖∂_h R‖ ≤ ‖Γφ_h'‖,
‖∂_h²R‖ ≤ ‖Γφ_h''‖ and ‖∂_h∂_kR‖ ≤ ‖Γ(φ_h'φ_k')‖, with

    φ'  = −(1−w²)/(1−zw)²    = −Σ_j ((j+1) z^j − (j−1) z^{j−2}) w^j,
    φ'' = −2w(1−w²)/(1−zw)³  = −Σ_j (j(j+1) z^{j−1} − (j−1)(j−2) z^{j−3}) w^j.

Over a cell each of these coefficients is bounded by its values with z at the ends; |Γ| and the bounds of coefficients bound the norms.
ρ* is the smaller of ‖ρ‖₂ and ‖R(m)‖ + Σ_h ‖∂_h R‖ r_h, which is small where the kernel is nearly met.

Rounding. Centres and radii are dyadic, exact in float64, and so are 1 ± z. A factor has Σ_j |φ_j| ≤ 3 and Σ_{j<N} |φ'_j| ≤ N². So computed
b and ∂_h b are off by at most ε_b = 3^H H(2N+8) 2^−52 and ε_d = N² ε_b in ℓ¹, F by 4G²ε_b and ∂_h F by 8G²ε_d, G = ‖Γ‖_HS: these are
subtracted. The subtracted terms are sums of positive numbers, raised by a share 2^−30, which is far above their rounding.

A cell with a bound above a threshold τ is done; others are halved, in the direction that costs most. When none is left, F ≥ τ everywhere.
Work is counted, in multiplications; when it is used up, what stands is the law or the sections, which need no search.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.kernels.memory_kernels import MemoryKernel, parse_kernel
from analyzer.lemmas.extraction import Rpe
from analyzer.limits import mean_square as theorem
from analyzer.numbers.exact import lower, upper, working_precision
from analyzer.ranges import check_range

LEVEL = 9
"""Bounds of coefficients are tabulated for the dyadic cells down to this level; smaller cells use those of the cell around them."""
DEEPEST = 40
"""Halvings in one direction: centres and radii stay exact in float64."""
RATIOS = (1.02, 1.005, 1.001)
"""upper/τ of one search after the other, as far as the work goes."""
CHEAP = 1 << 24
"""Multiplications that a floor beside many losses may cost: a fraction of a second."""
WORK = 1 << 29
"""Multiplications: a few seconds."""
BATCH = 2048
SLACK = 1 + 2.0**-30
MAX_LAG = 256
MOST_SEARCHED = 8
"""Heads up to which a search is tried at all: 2^8 corners a cell."""
LONGEST_SEARCHED = 96
"""Places of a kernel that a search can afford."""
PLACES = (1 << 10, 1 << 12, 1 << 13)
"""Places of a kernel in the closed form of a bank's error: as many as it takes to see it fall."""
PLACES_SEARCHED = (16, 32, 64, LONGEST_SEARCHED)
CUT = 2.0**-10
"""The share of the error that may be cut off before a search takes more places."""
LONGEST_FITTED = 512
STARTS = ((-3.0, 3.0), (-1.0, 1.0), (0.0, 4.0))
"""Where fits of a kernel begin: log(z/(1−z)) spread over these ranges."""


@dataclass(frozen=True)
class DecayCover:
    """F ≥ threshold on the whole cube if `finished`; the cells that were looked at and the multiplications that it took."""

    finished: bool
    cells: int
    work: int


def factor(z: np.ndarray, count: int) -> np.ndarray:
    """Coefficients of (w−z)/(1−zw): −z, (1−z²) z^{j−1}."""
    powers = np.concatenate([np.ones((*z.shape, 1)), np.repeat(z[..., None], count - 1, -1)], -1).cumprod(-1)
    return np.concatenate([-z[..., None], ((1 - z) * (1 + z))[..., None] * powers[..., : count - 1]], -1)


def slope(z: np.ndarray, count: int) -> np.ndarray:
    """Coefficients of the derivative of the factor with respect to z."""
    j = np.arange(count)
    powers = np.concatenate([np.ones((*z.shape, 1)), np.repeat(z[..., None], count - 1, -1)], -1).cumprod(-1)
    back = np.concatenate([np.zeros((*z.shape, min(2, count))), powers[..., : max(0, count - 2)]], -1)
    return np.asarray(-((j + 1) * powers - (j - 1) * back))


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The first coefficients of products of series, row by row."""
    count = a.shape[-1]
    found = np.zeros_like(a)
    for k in range(count):
        found[..., k:] += a[..., k : k + 1] * b[..., : count - k]
    return found


@dataclass(frozen=True)
class Landscape:
    """F for a kernel with H heads: Γ, ‖ρ‖₂, bounds of coefficients by cell, and by how much F and a derivative of it can be off."""

    heads: int
    hankel: np.ndarray
    norm: float
    tables: tuple[np.ndarray, np.ndarray]
    roundings: tuple[float, float]

    @classmethod
    def of(cls, values: Sequence[float], heads: int) -> "Landscape":
        """For ρ(1), …, ρ(N), numbers of float64 that count as exact."""
        count = len(values)
        padded = np.concatenate([values, np.zeros(count)])
        hankel = padded[np.add.outer(np.arange(count), np.arange(count))]
        square = float((hankel**2).sum()) * SLACK
        off = 3.0**heads * heads * (2 * count + 8) * 2.0**-52
        norm = float(np.linalg.norm(values)) * SLACK
        return cls(heads, hankel, norm, _tables(count), (4 * square * off, 8 * square * off * count**2))

    @property
    def cost(self) -> int:
        """Multiplications per cell."""
        return (self.heads**2 + self.heads * (self.heads - 1) // 2 + 3 * self.heads + 1) * len(self.hankel) ** 2

    def bounds(self, cells: np.ndarray, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(lower bounds of F, what each direction costs) on the cells [k, k+1]·2^−level."""
        width = 0.5**levels
        centre, radius = (cells + 0.5) * width, width / 2
        value, gradient = self._at(centre)
        first, second, mixed = self._constants(cells, levels)
        size = np.minimum(self.norm, np.sqrt(np.maximum(value + self.roundings[0], 0)) + (first * radius).sum(1)) * SLACK
        curved = second * radius**2
        for (h, k), bound in mixed.items():
            both = bound * radius[:, h] * radius[:, k]
            curved[:, h] += both
            curved[:, k] += both
        costs = (np.abs(gradient) + self.roundings[1]) * radius + size[:, None] * curved
        return value - self.roundings[0] - costs.sum(1) * SLACK, costs

    def _at(self, centre: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """F and its gradient."""
        count = len(self.hankel)
        factors = [factor(centre[:, h], count) for h in range(self.heads)]
        whole = factors[0]
        for other in factors[1:]:
            whole = product(whole, other)
        reached = whole @ self.hankel
        gradient = np.empty_like(centre)
        for h in range(self.heads):
            part = slope(centre[:, h], count)
            for k, other in enumerate(factors):
                part = part if k == h else product(part, other)
            gradient[:, h] = 2 * (reached * (part @ self.hankel)).sum(1)
        return (reached**2).sum(1), gradient

    def _constants(self, cells: np.ndarray, levels: np.ndarray) -> tuple[np.ndarray, np.ndarray, dict[tuple[int, int], np.ndarray]]:
        """Bounds of ‖∂_hR‖, ‖∂_h²R‖ and ‖∂_h∂_kR‖ on the cells."""
        shallow = np.minimum(levels, LEVEL)
        place = (1 << shallow) - 1 + (cells >> (levels - shallow))
        slopes, curvatures = self.tables
        size = np.abs(self.hankel)
        seen = [slopes[place[:, h]] for h in range(self.heads)]
        first = np.stack([np.linalg.norm(part @ size, axis=1) for part in seen], 1)
        second = np.stack([np.linalg.norm(curvatures[place[:, h]] @ size, axis=1) for h in range(self.heads)], 1)
        pairs = [(h, k) for h in range(self.heads) for k in range(h + 1, self.heads)]
        return first, second, {(h, k): np.linalg.norm(product(seen[h], seen[k]) @ size, axis=1) for h, k in pairs}

    def exceeds(self, threshold: float, work: int = WORK) -> DecayCover:
        """Whether F ≥ threshold for all decays, as far as so many multiplications show."""
        stack = [(np.zeros((1, self.heads), np.int64), np.zeros((1, self.heads), np.int64))]
        looked, most = 0, max(1, work // self.cost)
        while stack:
            cells, levels = stack.pop()
            if looked + len(cells) > most or levels.max() >= DEEPEST:
                return DecayCover(False, looked, looked * self.cost)
            looked += len(cells)
            bounds, costs = self.bounds(cells, levels)
            left = ~(bounds >= threshold)
            if left.any():
                stack += _halves(cells[left], levels[left], costs[left].argmax(1))
        return DecayCover(True, looked, looked * self.cost)


def _halves(cells: np.ndarray, levels: np.ndarray, direction: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
    """Both halves of every cell that hold an ordered point, in batches."""
    rows = np.arange(len(cells))
    levels = levels.copy()
    levels[rows, direction] += 1
    below = cells.copy()
    below[rows, direction] *= 2
    above = below.copy()
    above[rows, direction] += 1
    cells, levels = np.concatenate([below, above]), np.concatenate([levels, levels])
    least, most = cells * 0.5**levels, (cells + 1) * 0.5**levels
    ordered = (least[:, :-1] <= most[:, 1:]).all(1)
    cells, levels = cells[ordered], levels[ordered]
    return [(cells[k : k + BATCH], levels[k : k + BATCH]) for k in range(0, len(cells), BATCH)]


@lru_cache(maxsize=8)
def _tables(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of the coefficients of φ' and φ'' on the dyadic cells, level after level: cell k of level l stands at 2^l − 1 + k."""
    j = np.arange(count, dtype=float)
    cells = np.arange(1 << LEVEL)[:, None]
    least, most = cells / (1 << LEVEL), (cells + 1) / (1 << LEVEL)

    def between(plus: np.ndarray, up: int, minus: np.ndarray, down: int) -> np.ndarray:
        """Bound of |plus z^{j−up} − minus z^{j−down}|, powers below 0 counting as those of 0 (their factor is 0)."""
        low, high = np.maximum(j - up, 0), np.maximum(j - down, 0)
        ends = plus * least**low - minus * most**high, plus * most**low - minus * least**high
        return np.asarray(np.maximum(np.abs(ends[0]), np.abs(ends[1])) * SLACK + 2.0**-30)

    found = []
    for finest in (between(j + 1, 0, np.maximum(j - 1, 0), 2), between(j * (j + 1), 1, np.maximum((j - 1) * (j - 2), 0), 3)):
        levels = [finest]
        while len(levels[-1]) > 1:
            levels.append(levels[-1].reshape(-1, 2, count).max(1))
        found.append(np.concatenate(levels[::-1]))
    return found[0], found[1]


@dataclass(frozen=True)
class MeanSquarePair:
    """lower ≤ infimum of E|error|²/v over all decays ≤ upper, the law (None for kernels), and the decays of the bank above, if any.

    `method`: what shows the lower side: branch and bound, closed form, law, or sections. `reached`: the bank's own error where that is not
    `upper`: an infimum of 0 is the limit of banks whose decays grow.
    """

    lower: float
    upper: float
    law: float | None
    decays: tuple[float, ...]
    method: str
    cells: int = 0
    reached: float | None = None


@lru_cache(maxsize=256)
def lag_pair(lag: int, heads: int, rpe: Rpe = "lin", work: int = WORK) -> MeanSquarePair:
    """Lag T over all decays: p > 0 (lin), or p > 1 (log), and their limits."""
    check_range("lag", lag, 1, MAX_LAG)
    check_range("heads", heads, 1, MAX_LAG)
    least = lower(arb(theorem.law(lag, heads, rpe)))
    if rpe == "log":
        return _log_lag_pair(lag, heads, least)
    ratios = _apart(_alike(lag, heads), heads)
    with working_precision(256 + 8 * (heads + lag)):
        reached = upper(theorem.lag_error([arb(z) for z in ratios], lag))
        decays = tuple(float(-arb(z).log()) for z in ratios)
    if heads >= lag:  # all z = 0: B = w^H has no coefficient below w^H
        return MeanSquarePair(0.0, 0.0, least, decays, "closed form", reached=reached)
    if heads == 1:
        return MeanSquarePair(lower(arb(theorem.one_head(lag))), reached, least, decays, "closed form")
    shown, cells = _searched([float(s == lag) for s in range(1, lag + 1)], heads, reached, work)
    return MeanSquarePair(max(least, shown), reached, least, decays, "branch and bound" if shown > least else "law", cells)


def _searched(values: Sequence[float], heads: int, reached: float, work: int) -> tuple[float, int]:
    """(the best threshold that the work shows, cells): a few ratios below what is reached, the easiest first; 0 if none."""
    shown, cells = 0.0, 0
    if heads > MOST_SEARCHED or len(values) > LONGEST_SEARCHED:
        return shown, cells
    landscape = Landscape.of(values, heads)
    for ratio in RATIOS:
        search = landscape.exceeds(reached / ratio, work)
        cells, work = cells + search.cells, work - search.work
        if not search.finished:
            break
        shown = reached / ratio
    return shown, cells


def _alike(lag: int, heads: int) -> float:
    """The best ratio if all decays are alike, in floats; 2^−20 where the infimum is at 0."""
    if heads >= lag:
        return 2.0**-20
    low, high = 0.0, 1.0
    for _ in range(4):
        grid = np.linspace(low, high, 65)
        best = int(np.argmin(sum(b * b for b in theorem.blaschke([grid] * heads, lag))))
        low, high = grid[max(0, best - 1)], grid[min(64, best + 1)]
    return float((low + high) / 2)


def _apart(ratio: float, heads: int) -> tuple[fmpq, ...]:
    """Different ratios near one, so that they are those of a bank: by a share of 2^−12 each."""
    middle = fmpq(*ratio.as_integer_ratio())
    return tuple(middle * (1 + fmpq(2 * h - heads + 1, 2**13)) for h in range(heads))


def _log_lag_pair(lag: int, heads: int, least: float) -> MeanSquarePair:
    """Log heads. One of them leaves 1 − T^{−2p}/ζ(2p) at best, which for T ≥ 2 grows with p > 1: −ζ'(2)/ζ(2) < 0.57 < ln 2 ≤ ln T."""
    if heads >= lag:  # the minimal bank of log heads: its error tends to 0 as the decays grow, in ℓ¹ and so in ℓ²
        return MeanSquarePair(0.0, 0.0, least, (), "closed form")
    wanted = np.zeros(PLACES[0])
    wanted[lag - 1] = 1
    weights, decays = _log_bank(wanted, heads)
    with working_precision(256):
        reached = upper(theorem.square_of("log", fmpq(0), list(zip(weights, decays, strict=True)), lag))
        if heads == 1:
            known = lower(1 - arb(lag) ** -2 / arb(2).zeta())
            return MeanSquarePair(known, reached, least, decays, "closed form")
    return MeanSquarePair(least, reached, least, decays, "law")


def _log_bank(wanted: np.ndarray, heads: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(weights, decays) of a good bank of log heads, in floats; decays p > 1, each at least a twentieth above the one before it."""
    from scipy.optimize import least_squares  # here, as it takes half a second to load

    logs = np.log(np.arange(1, len(wanted) + 1))

    def decays_of(free: np.ndarray) -> np.ndarray:
        steps = np.exp(np.clip(free, -12, 3))
        return np.asarray(1 + steps[0] + np.cumsum(np.concatenate([[0], 0.05 + steps[1:]])))

    def bank(free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        kernels = np.exp(-np.outer(logs, decays_of(free)))
        scale = np.linalg.norm(kernels, axis=0)
        return kernels, np.linalg.lstsq(kernels / scale, wanted, rcond=1e-13)[0] / scale

    def left(free: np.ndarray) -> np.ndarray:
        kernels, weights = bank(free)
        return np.asarray(kernels @ weights - wanted)

    tried = [least_squares(left, np.full(heads, start), max_nfev=100).x for start in (-4.0, -1.0, 1.0)]
    best = min(tried, key=lambda x: float(np.sum(left(x) ** 2)))
    return tuple(map(float, bank(best)[1])), tuple(map(float, decays_of(best)))


def _log_kernel_error(values: Sequence[arb], tail: arb, weights: Sequence[float], decays: Sequence[float]) -> float:
    """E|error|²/v of a bank of log heads, rounded up: the places one by one, beyond them Σ ρ² ≤ tail and ζ(2p, ·)."""
    heads = [(arb(a), arb(p)) for a, p in zip(weights, decays, strict=True)]
    seen = sum((sum((a * arb(s) ** -p for a, p in heads), -v) ** 2 for s, v in enumerate(values, 1)), arb(0))
    beyond = tail.sqrt() + sum((abs(a) * (2 * p).zeta(arb(len(values) + 1)).sqrt() for a, p in heads), arb(0))
    return upper(seen + beyond**2)


@lru_cache(maxsize=64)
def kernel_pair(text: str, heads: int, rpe: Rpe = "lin", work: int = WORK) -> MeanSquarePair:
    """A memory kernel over all decays; ρ(0) is the residual's."""
    check_range("heads", heads, 1, MAX_LAG)
    kernel = parse_kernel(text)
    with working_precision(256):
        count = next((n for n in PLACES if _square_tail(kernel, n + 1).is_finite()), 0)
        if not count:
            raise InputError(f"the kernel {text[:60]!r} is not seen to fall within {PLACES[-1]} tokens")
        values, tail = kernel.values(1, count + 1), _square_tail(kernel, count + 1)
        section = theorem.section_floor(values[: 2 * theorem.ROWS if rpe == "lin" else PLACES[0]], heads, rpe)
        if rpe == "log":
            weights, decays = _log_bank(np.array([float(v) for v in values]), heads)
            reached = _log_kernel_error(values, tail, weights, decays)
            return MeanSquarePair(section.value, reached, None, decays, "sections")
        fitted = values if count > PLACES[0] else values[:LONGEST_FITTED]
        ratios, _ = _fitted(np.array([float(v) for v in fitted]), heads, kernel.exact_decays("lin"))
        reached = upper(theorem.kernel_error([arb(z) for z in ratios], values, tail)[1])
        decays = tuple(float(-arb(z).log()) for z in ratios)
        shown, cells = _searched_kernel(kernel, values, heads, reached, work)
    method = "branch and bound" if shown > section.value else "sections"
    return MeanSquarePair(max(section.value, shown), reached, None, decays, method, cells)


def _square_tail(kernel: MemoryKernel, start: int) -> arb:
    """Upper bound of Σ_{s≥start} ρ(s)²: that of the kernel ρ², or of (Σ|ρ|)² where ρ² has too many terms to be written down."""
    plain = kernel.tail(start) ** 2
    try:
        return plain.min(parse_kernel(f"({kernel.text})*({kernel.text})").tail(start))
    except InputError:
        return plain


def _fitted(wanted: np.ndarray, heads: int, exact: Sequence[fmpq] = ()) -> tuple[tuple[fmpq, ...], float]:
    """(ratios of a good bank, its error), in floats: least squares on Γb from several starts, one of them the kernel's own exponentials."""
    from scipy.optimize import least_squares

    size = 2 * len(wanted)
    spectrum = np.fft.rfft(wanted, size)

    def ratios_of(free: np.ndarray) -> np.ndarray:
        return 1 / (1 + np.exp(-np.clip(free, -30, 30)))

    def left(free: np.ndarray) -> np.ndarray:
        b = np.array(theorem.blaschke(list(ratios_of(free)), len(wanted)))
        return np.fft.irfft(np.conj(np.fft.rfft(b, size)) * spectrum, size)[: len(wanted)]

    starts = [np.linspace(low, high, heads) if heads > 1 else np.array([(low + high) / 2]) for low, high in STARTS]
    own = [-float(np.log(np.expm1(float(arb(p))))) for p in exact][:heads]  # log(z/(1−z)) at z = e^{−p}
    if own:
        starts.append(np.array(own + [0.0] * (heads - len(own))))
    tried = [least_squares(left, start, max_nfev=80).x for start in starts] + [starts[-1]]
    best = min(tried, key=lambda x: float(np.sum(left(x) ** 2)))
    return tuple(fmpq(round(z * 2**60), 2**60) for z in ratios_of(best)), float(np.sum(left(best) ** 2))


def _searched_kernel(kernel: MemoryKernel, values: Sequence[arb], heads: int, reached: float, work: int) -> tuple[float, int]:
    """The search on the first N places: the distance of ρ from the heads is at least that of its beginning, less what is cut off."""
    size = arb(reached).sqrt()
    for count in PLACES_SEARCHED:
        start = [float(v.mid()) for v in values[:count]]
        off = sum((abs(v - x) for v, x in zip(values, start, strict=False)), arb(0))
        cut = (_square_tail(kernel, count + 1).sqrt() + off).upper()
        if upper(cut / size) <= CUT or count == PLACES_SEARCHED[-1]:
            break
    if reached == 0 or upper(cut / size) > 1 / 2:
        return 0.0, 0
    _, least = _fitted(np.array(start), heads, kernel.exact_decays("lin"))
    shown, cells = _searched(start, heads, least, work)
    return max(0.0, lower((arb(shown).sqrt() - cut).max(arb(0)) ** 2)), cells


def describe(pair: MeanSquarePair) -> dict[str, Any]:
    """A pair as plain data; the law is None where there is none."""
    return {
        "lower": pair.lower,
        "upper": pair.upper,
        "ratio": pair.upper / pair.lower if pair.lower > 0 else None,
        "law": pair.law,
        "method": pair.method,
        "decays": list(pair.decays),
        "reached": (pair.upper if pair.reached is None else pair.reached) if pair.decays else None,
        "cells": pair.cells,
    }


def lag_floor(lag: int, heads: int, rpe: Rpe) -> float:
    """The floor of one lag with an infinite past, variance 1: the optimum over all decays where it is cheap, else the law."""
    return lag_pair(lag, heads, rpe, CHEAP).lower if heads else 1.0
