"""The mean-square lag law: H heads recover at most H/T of the variance of the token T steps back.

Setting. Tokens independent, mean 0, variance v per coordinate. Dp-free layers with H lin heads in all, any decays, residual, any affine
read-out; L layers with nothing but residuals between them count with all their heads. (Log heads: one layer.) Target y_t = Σ_{s≥0} ρ(s)
x_{t−s}; the lag T is ρ = 1_T. For an affine network with kernel κ and bias β the mean square error is exactly v‖κ − ρ‖₂² + β². The residual
makes κ(0) free; on s ≥ 1 κ lies in the span of the heads, z_h^s with z_h = e^{−p_h} in (0, 1), or s^k z_h^s with k below its multiplicity
where several layers share a decay.

Statement. For all decays

    lag T       E|error|² ≥ v (1 − H/T);  with log heads v (1 − H/d(T)), d(T) the number of divisors of T                         (law)
    kernel ρ    E|error|² ≥ v Σ_{k>H} σ_k(√(a_i b_j) ρ(i+j+1))²  if a, b ≥ 0 and Σ_{i+j+1=s} a_i b_j ≤ 1 for every s         (sections)
                with log heads the same of √(a_m b_n) ρ(mn) if Σ_{mn=s} a_m b_n ≤ 1 for every s

and for given decays, with B(w) = Π_h (w − z_h)/(1 − z_h w) = Σ_j b_j w^j, the best weights reach exactly

    lag T       v Σ_{j<T} b_j²                                                                                               (closed form)
    kernel ρ    v Σ_{k≥0} (Σ_{j≥0} b_j ρ(1+j+k))² = v‖Γb‖²,  Γ = (ρ(i+j+1)).

One head: the least error of lag T over all decays is exactly v (1 − (1/T)(1 − 1/T)^{T−1}). For Gaussian tokens all of it holds for *any*
read-out.

Proof. *Sections.* Let d = ρ − κ and A_d = (√(a_i b_j) d(i+j+1)). Its Hilbert–Schmidt norm is ‖A_d‖² = Σ_s d(s)² Σ_{i+j+1=s} a_i b_j ≤
‖d‖². A_κ has rank at most H: z^{i+j+1} is a product, and a pole of order k has Hankel rank k. By Eckart–Young–Mirsky ‖A_ρ − A_κ‖² ≥
Σ_{k>H} σ_k(A_ρ)². Log heads: (mn)^{−p} is a product. Only the places s with a_i b_j > 0 are looked at: the bound holds for every position
with so many past tokens, whatever the window and its normalisation, as far as one layer goes.

*Law.* a_i = 1/T and b_j = 1 for i, j < T: A has 1/√T on its antidiagonal, T singular values, and looks at 2T − 1 past tokens. A shorter
window of N ≥ T tokens leaves min(T, N−T+1) of the rows. Log: rows m and columns T/m for the divisors m of T; each s is Tm/m' for at most
d(T) pairs. Several layers with an infinite past: κ is an entry of a product of rational matrices, bounded at w = ∞, each of whose simple
poles 1/z_h comes from one head; so its partial fractions are a constant and poles of total order at most H. (In a finite window the first
layer's normalisation depends on the position, and for two layers and more none of this is claimed.)

*Closed form.* Identify (f(s))_{s≥1} with Σ f(s) w^s in wH². ⟨w g, Σ z^s w^s⟩ = z g(z), so the complement of the heads is {w g : g(z_h) =
0} = wBH², and wBw^k, k ≥ 0, is an orthonormal basis of it, as |B| = 1 on the circle. The coefficients of ρ are Σ_j b_j ρ(1+j+k); those of
w^T are b_{T−1−k}. Repeated decays are limits (the span of z^s and its derivatives); so is z = 0, the place s = 1 alone, with factor w; as
z → 1 the head leaves ℓ² and its factor tends to −1, no head. The coefficients of (w−z)/(1−zw) are −z and (1−z²)z^{j−1}, polynomials in z:
**the error of lag T is a polynomial on the closed cube [0, 1]^H**, its least value there is the infimum over all decays.

*One head.* b_0² + … + b_{T−1}² = z² + (1−z²)(1−z^{2T−2}) = 1 − z^{2T−2}(1−z²), least at z² = 1 − 1/T.

*The law once more.* Σ_j b_j² = 1 and Σ_j j b_j² = (1/2πi)∮ B'/B dw = H, the mean group delay of a Blaschke product. By Markov Σ_{j≥T} b_j²
≤ H/T: a second proof of the law, with an infinite past.

*Any read-out.* A read-out is a function of finitely many linear forms of the tokens. If these are Gaussian, the best such function, the
conditional expectation, is linear. For other tokens it need not be: one head with z < 1/2 is injective on ±1 histories. ∎

Remarks. Several coordinates: the error of one of them is at least what it costs from its own tokens. Several lags: take ρ = Σ_T c_T 1_T.
Weights a_i = b_i = C(2i, i)/4^i have Σ_{i+j+1=s} a_i b_j = 1 for every s ≥ 1 (the square of (1−w)^{−1/2}), so no part of ‖d‖ is lost; with
log heads the coefficients of ζ^{1/2} do that. The law is not sharp: with T = 4 and two heads the optimum is 0.7682, the law says 0.5. The
numerical optima have all decays alike, which is not proved; `verify.limits.mean_square` encloses the optimum over all decays by branch and
bound. In a window of N < 2T − 1 tokens 1 − H/T can fail: two heads with z → 1 see T = N = 3 with an error of 1/6. For heads of both types
no law is known here.

References. Takenaka (1925), Malmquist (1926); Nikolski, Operators, Functions, and Systems I, AMS 2002; Eckart & Young (1936), Mirsky.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, arb_poly, fmpq

from analyzer.errors import InputError
from analyzer.lemmas.extraction import Rpe
from analyzer.limits.jl_6 import singular_values
from analyzer.numbers.exact import lower, working_precision
from analyzer.statements.theorem import Theorem

ID = "mean-square"
TITLE = "variance per lag: H heads recover at most H/T of it"
ROWS, MAX_ROWS = 64, 128
"""Rows of a section: the singular values of 64 are certified in a third of a second, those of 128 in two."""
LISTED = 1 << 12
"""Places of a kernel that sections look at."""


def law(lag: int, heads: int, rpe: Rpe = "lin", window: int | None = None) -> fmpq:
    """The least E|error|²/v that the law allows, at a position with `window` past tokens (None: all of them).

    >>> law(4, 2)
    1/2
    """
    if lag < 1 or heads < 0 or (window is not None and window < lag):
        raise InputError("the mean-square lag law takes lags from 1 on, heads, and a window that holds the lag")
    if rpe == "lin":
        rows = lag if window is None else min(lag, window - lag + 1)
    else:
        divisors = [m for m in range(1, lag + 1) if lag % m == 0]
        reach = lag if window is None else window // lag  # products are at most T·(largest/least of the divisors used)
        rows = max(sum(low <= m <= low * reach for m in divisors) for low in divisors)
    return max(fmpq(0), 1 - fmpq(heads, rows))


def one_head(lag: int) -> fmpq:
    """1 − (1/T)(1 − 1/T)^{T−1}: the optimum of one lin head."""
    return 1 - fmpq(1, lag) * (1 - fmpq(1, lag)) ** (lag - 1)


def blaschke(ratios: Sequence[Any], count: int) -> list[Any]:
    """b_0, …, b_{count−1} for decay ratios z_h in [0, 1], in the arithmetic of the ratios (rationals or balls)."""
    one = ratios[0] * 0 + 1 if ratios else fmpq(1)
    found = [one] + [one * 0] * (count - 1)
    for z in ratios:
        before, remembered = one * 0, one * 0
        for k, value in enumerate(found):  # multiply by w − z, divide by 1 − zw
            remembered = before - z * value + z * remembered
            before, found[k] = value, remembered
    return found


def lag_error(ratios: Sequence[Any], lag: int) -> Any:
    """Σ_{j<T} b_j²: the least E|error|²/v of lag T with these decay ratios."""
    return sum((b * b for b in blaschke(ratios, lag)), 0 * ratios[0] if ratios else fmpq(0))


def kernel_error(ratios: Sequence[arb], values: Sequence[arb], tail: arb) -> tuple[arb, arb]:
    """(least, most) of the best E|error|²/v of a kernel with ρ(1), … as `values` and Σ ρ(s)² ≤ `tail` beyond them.

    Cutting ρ off moves a projection of it by at most the norm of what is cut off.
    """
    count = len(values)
    product = arb_poly(blaschke(list(ratios), count)[::-1]) * arb_poly(list(values))
    seen = sum((product[count - 1 + k] ** 2 for k in range(count)), arb(0)).abs_upper().sqrt()
    floor = sum((arb(product[count - 1 + k].abs_lower()) ** 2 for k in range(count)), arb(0)).lower().sqrt()
    cut = tail.abs_upper().sqrt()
    return (floor - cut).max(arb(0)) ** 2, (seen + cut) ** 2


def square_of(rpe: Rpe, residual: Any, terms: Sequence[tuple[Any, Any]], lag: int) -> arb:
    """‖κ − 1_T‖₂² of κ = residual·1_0 + Σ c z^s (lin) or Σ c s^{−p} (log) on s ≥ 1, for terms (c, z) or (c, p): sums in closed form."""
    heads = [(arb(c), arb(x)) for c, x in terms]
    total = arb(residual) ** 2 + 1
    for c, x in heads:
        total -= 2 * c * (x**lag if rpe == "lin" else arb(lag) ** -x)
        for other, y in heads:
            total += c * other * (x * y / (1 - x * y) if rpe == "lin" else (x + y).zeta())
    return total


@dataclass(frozen=True)
class SectionFloor:
    """E|error|²/v ≥ value, and the section that shows it: rows, weights (flat or even), tokens that it looks at."""

    value: float
    rows: int
    weights: str
    tokens: int


def section_floor(values: Sequence[arb], heads: int, rpe: Rpe = "lin", rows: int = ROWS) -> SectionFloor:
    """The best of some sections, of at most so many rows, for ρ(1), ρ(2), … = `values`: found in floats, its singular values certified."""
    listed = values[:LISTED]
    middle = np.array([float(v.mid()) for v in listed])
    best, chosen = 0.0, None
    for candidate in _sections(len(listed), np.flatnonzero(middle) + 1, rpe, min(rows, MAX_ROWS)):
        if min(len(candidate.rows), len(candidate.columns)) <= heads:
            continue
        square = np.linalg.svd(candidate.matrix(middle), compute_uv=False) ** 2
        if square[heads:].sum() > best:
            best, chosen = square[heads:].sum(), candidate
    if chosen is None:
        return SectionFloor(0.0, 0, "none", 0)
    with working_precision(128):
        exact = chosen.balls(listed)
        sizes = [v.least for v in singular_values(exact)[heads:]]
        value = lower(sum((arb(v) ** 2 for v in sizes), arb(0)))
    return SectionFloor(max(0.0, value), len(chosen.rows), chosen.weights, int(chosen.places.max()))


@dataclass(frozen=True)
class _Section:
    """Rows and columns of a matrix of values ρ(s), with the weights that keep its Hilbert–Schmidt norm below ‖ρ‖₂."""

    rows: tuple[int, ...]
    columns: tuple[int, ...]
    weights: str
    places: np.ndarray
    """The s that each entry looks at."""

    def weight(self, index: int) -> fmpq:
        """a_i of the even weights; 1 of flat ones."""
        return fmpq(math.comb(2 * index, index), 4**index) if self.weights == "even" else fmpq(1)

    @property
    def multiplicity(self) -> int:
        """The largest number of entries that look at one s: what flat weights are divided by."""
        return 1 if self.weights == "even" else int(np.unique(self.places, return_counts=True)[1].max())

    def matrix(self, middle: np.ndarray) -> np.ndarray:
        """In floats."""
        a = np.sqrt([float(arb(self.weight(i))) for i in range(len(self.rows))])
        b = np.sqrt([float(arb(self.weight(j))) for j in range(len(self.columns))])
        found: np.ndarray = np.outer(a, b) * middle[self.places - 1] / math.sqrt(self.multiplicity)
        return found

    def balls(self, values: Sequence[arb]) -> list[list[arb]]:
        """In balls."""
        a = [(arb(self.weight(i)) / self.multiplicity).sqrt() for i in range(len(self.rows))]
        b = [arb(self.weight(j)).sqrt() for j in range(len(self.columns))]
        return [[x * y * values[s - 1] for y, s in zip(b, row, strict=True)] for x, row in zip(a, self.places.tolist(), strict=True)]


def _sections(count: int, support: np.ndarray, rpe: Rpe, most: int) -> list[_Section]:
    """Sections within s ≤ count. lin: flat and even ones at the beginning, flat ones at the end; log: divisors, or the first numbers."""
    if rpe == "log":
        sets = [tuple(range(1, n + 1)) for n in _sizes(min(math.isqrt(count), most))]
        sets += [tuple(m for m in range(1, int(s) + 1) if s % m == 0) for s in support[:most] if s * s <= count]
        return [_Section(rows, rows, "flat", np.multiply.outer(rows, rows)) for rows in sets]
    most = min((count + 1) // 2, most)
    near = {int(s) for s in support[:8]} | {count + 1 - int(s) for s in support[-8:]}
    found = []
    for n in sorted({*_sizes(most), *(n for n in near if n <= most)}):
        rows = tuple(range(n))
        plain = np.add.outer(rows, rows) + 1
        found += [_Section(rows, rows, "flat", plain), _Section(rows, rows, "even", plain)]
        if 2 * n - 1 < count:
            found.append(_Section(rows, rows, "flat", plain + (count - 2 * n + 1)))
    return found


def _sizes(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, … up to `most`, and `most`."""
    sizes = {k << shift for k in (1, 3) for shift in range(most.bit_length())}
    return sorted({n for n in sizes if n <= most} | {most})


THEOREM = Theorem(id=ID, title=TITLE, page=__doc__, shelf=20.5)
