"""Memory kernels κ(s) = c·1{s=0} + Σ_h A_h k_h(s) in ball arithmetic, and their ℓ¹ norms with the infinite tail.

For tokens in [−1, 1] the worst-case error of extracting x_{t−T} with the kernel κ *is* ‖κ − 1_T‖_ℓ¹, attained at the sign
sequence of κ − 1_T: an enclosure of the norm is a certificate and a witness at once.

Tails. A sum of exponentials obeys Σ_{s≥S} |κ(s)| ≤ Σ_h |A_h| z_h^S/(1−z_h), and likewise Σ_h |A_h| ζ(p_h, S) for powers. Powers that
decay slowly (the paper's log bank: s^{−1.01}) need more: their exponents form a progression p_h = p_0 + αh, so
κ(s) = s^{−p_0} Q(s^{−α}) with a polynomial Q of degree n = H−1, and the tail is an integral over x = s^{−α} ∈ [0, S^{−α}]

    ∫_S^∞ |κ| ds = (1/α) ∫_0^{x_S} x^{(p_0−1)/α − 1} |Q(x)| dx

which is enclosed cell by cell on a uniform grid in θ, x = x_S (1 + cos θ)/2, where Q is a trigonometric polynomial F of degree n:
with grid step h = π/(mn), ‖F‖ ≤ max_grid|F| / cos(π/2m) (M. Riesz) and the chord error is at most n²h²/8 ‖F‖ (Bernstein).
The step from the sum to the integral costs at most half the variation of κ.

Kernels from which a memory kernel ρ is subtracted have two tails that cancel only in part. Beyond the window they are summed on blocks
[A, B) that grow geometrically: with m the middle, r the half-length and Taylor coefficients c_k of κ − ρ at m,

    |κ(s) − ρ(s) − Σ_{k<K} c_k (s−m)^k| ≤ C_K |s−m|^K,     C_K the K-th coefficient enclosed on the whole block;

where |c_0| exceeds what the rest can change the sign is constant and Σ_{A≤s<B} |κ − ρ| = |Σ_k c_k Σ_s (s−m)^k| up to C_K r^K (B−A), with
power sums in closed form (Bernoulli polynomials); other blocks are halved, down to single terms.

Other positions. KERPLE's heads (1 + rs)^{−p} are the powers (s + A)^{−p}, A = 1/r, with the same tails at s + A. A stride c moves the s-th
value of a group to the place cs.

State spaces. Modes Re(c z^s) with a complex z have the same tails, |c| |z|^S/(1−|z|), and Re(c e^{s log z}) is analytic in s.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, lru_cache
from typing import ClassVar

from flint import acb, arb, arb_mat, arb_poly, arb_series, ctx, fmpq, fmpq_poly

from analyzer.kernels.memory_kernels import MemoryKernel, power_series
from analyzer.kernels.sign_runs import factors, geometric
from analyzer.numbers import chebyshev
from analyzer.numbers.exact import dyadic, upper, working_precision

TAIL_SHARE = arb(2) ** -12
"""The part of the norm that a crude tail bound may add before more terms are summed: a loss of at most 2^-12 in sharpness."""
MAX_EVALUATIONS = 2**20
"""Terms times heads summed one by one before the tail of a slow power sum is integrated."""
TAIL_BITS = 192
"""Precision of a tail bound: no cancellation there, and equality with (3.4) is seen to far below a weight's last bit."""
MAX_KEPT = 2**18
"""Powers s^{−p} that one kernel keeps."""
MASSES = 2**14
"""Masses ζ(p, A) that are kept for all kernels."""
GRID = 8192
"""Grid points for that integral."""
WINDOW = 512
"""Terms summed one by one before a kernel with a memory kernel in it is summed on blocks."""
ORDER = 12
"""Taylor terms on a block: with r/m ≤ 1/16 the remainder of a power s^−p is below 2^-40 of it."""
MAX_TERMS = 1 << 14
"""Single terms that the blocks of one kernel may fall back to; after that a block of unclear sign is only bounded."""
NEGLIGIBLE = arb(2) ** -40
"""The part of a tail that may be bounded instead of being summed."""
FARTHEST = 1 << 60
"""Blocks end here at the latest."""


@dataclass(frozen=True)
class Exponentials:
    """Σ_h amplitude_h ratio_h^s for s ≥ 0, every ratio in [0, 1)."""

    ratios: tuple[arb, ...]
    amplitudes: tuple[arb, ...]
    progression: bool = False
    """The ratios are r_0, r_0 q, r_0 q², …: evaluate as a polynomial."""

    def values(self, start: int, stop: int) -> list[arb]:
        if self.progression and len(self.ratios) > 2:
            step = self.ratios[1] / self.ratios[0]
            polynomial = arb_poly(list(self.amplitudes))
            return [self.ratios[0] ** s * polynomial(step**s) for s in range(start, stop)]
        if stop <= start or not self.ratios:
            return [arb(0)] * (stop - start)
        ratios, length = list(self.ratios), max(2, math.isqrt(stop - start))
        near = [[arb(1)] * len(ratios), *geometric(ratios, ratios, length)]  # z^k for k ≤ length
        first = [a * z**start for a, z in zip(self.amplitudes, ratios, strict=True)] if start else list(self.amplitudes)
        far = geometric(first, near.pop(), -(-(stop - start) // length))
        return (arb_mat(far) * arb_mat(near).transpose()).entries()[: stop - start]

    def taylor(self, x: arb) -> arb_series:
        """Taylor series at x > 0 (possibly an interval); a ratio that is exactly 0 is seen at s = 0 only."""
        rates = [(a, z.log()) for a, z in zip(self.amplitudes, self.ratios, strict=True) if not z.is_zero()]
        return sum((arb_series([a]) * arb_series([rate * x, rate]).exp() for a, rate in rates), arb_series([0]))

    def tail(self, start: int) -> arb:
        """Upper bound of Σ_{s≥start} |·|."""
        terms = (abs(a) * z**start / (1 - z) for a, z in zip(self.amplitudes, self.ratios, strict=True))
        return sum(terms, arb(0))


_NOTHING = fmpq(0)


@dataclass(frozen=True)
class Powers:
    """Σ_h amplitude_h (s + A)^{−p_h}, every p_h > 1: for s ≥ 0 if the offset A is positive, for s ≥ 1 and nothing at s = 0 if A = 0."""

    exponents: tuple[fmpq, ...]
    amplitudes: tuple[arb, ...]
    progression: bool = False
    offset: fmpq = _NOTHING
    _known: dict[int, dict[int, list[arb]]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def first(self) -> int:
        """The first s with a value."""
        return 0 if self.offset > 0 else 1

    def values(self, start: int, stop: int) -> list[arb]:
        result = [arb(0)] * max(0, min(stop, self.first) - start)
        first = max(self.first, start)
        if self.progression and len(self.exponents) > 1:
            base, step = arb(self.exponents[0]), arb(self.exponents[1] - self.exponents[0])
            polynomial = arb_poly(list(self.amplitudes))
            return result + [x**-base * polynomial(x**-step) for x in (arb(s + self.offset) for s in range(first, stop))]
        if stop <= first or not self.exponents:
            return result + [arb(0)] * (stop - first)
        weights = arb_mat(len(self.amplitudes), 1, list(self.amplitudes))
        if self.offset == 0 and len(self.exponents) * stop <= MAX_KEPT:
            return result + (arb_mat(self._rows(first, stop)) * weights).entries()
        return result + [(arb_mat([self._row(arb(s + self.offset).log())]) * weights)[0, 0] for s in range(first, stop)]

    def _row(self, log: arb) -> list[arb]:
        return [(-arb(p) * log).exp() for p in self.exponents]

    def _rows(self, start: int, stop: int) -> list[list[arb]]:
        """s^{−p} for all p, for s = start … stop − 1: a power for every prime, a product for every other s."""
        known = self._known.setdefault(ctx.prec, {1: [arb(1)] * len(self.exponents)})
        factor = factors(stop)
        for s in range(len(known) + 1, stop):
            pairs = zip(known[factor[s]], known[s // factor[s]], strict=True) if factor[s] else ()
            known[s] = [a * b for a, b in pairs] or self._row(arb(s).log())
        return [known[s] for s in range(start, stop)]

    def taylor(self, x: arb) -> arb_series:
        """Taylor series at x > 0 (possibly an interval)."""
        pairs = zip(self.amplitudes, self.exponents, strict=True)
        return sum((arb_series([a]) * arb_series(power_series(x + arb(self.offset), arb(1), -arb(p))) for a, p in pairs), arb_series([0]))

    def tail(self, start: int) -> arb:
        """Upper bound of Σ_{s≥start} |·| by the triangle inequality, Σ_h |A_h| ζ(p_h, start + A)."""
        end = max(self.first, start) + self.offset
        with working_precision(TAIL_BITS):
            return sum((abs(a) * _mass_from(p, end) for a, p in zip(self.amplitudes, self.exponents, strict=True)), arb(0))

    def is_slow(self) -> bool:
        """Whether `slow_tail` applies: two exponents at least, in progression."""
        return self.progression and len(self.exponents) > 1

    def slow_tail(self, start: int) -> arb:
        """Enclosure of Σ_{s≥start} |·| for exponents in progression: the integral described in the module's docstring."""
        base, step = arb(self.exponents[0]), arb(self.exponents[1] - self.exponents[0])
        degree = len(self.exponents) - 1
        polynomial = arb_poly(list(self.amplitudes))
        density = max(4, GRID // degree)  # m of the docstring
        cells = density * degree
        edge = arb(start + self.offset) - arb(1) / 2
        end = edge**-step
        samples = [_short(polynomial(end * (1 + y) / 2)) for y in chebyshev.cosines(degree)]
        with working_precision(128):
            values = chebyshev.cosine_sums(chebyshev.series(samples), cells)
            points = [_short(end * (1 + y) / 2) for y in chebyshev.cosines(cells)]
            return self._integrate(_short(base), _short(step), _short(edge), points, values, density)

    @staticmethod
    def _integrate(base: arb, step: arb, edge: arb, points: list[arb], values: list[arb], density: int) -> arb:
        """The integral and its slack from the values of Q on the grid."""
        cells = len(points) - 1
        largest = arb(max(upper(abs(v)) for v in values))
        peak = largest / (arb.pi() / (2 * density)).cos()
        chord = (arb.pi() / density) ** 2 / 8 * peak
        rate = (base - 1) / step
        measure = [x**rate / (base - 1) for x in points[:-1]] + [arb(0)]
        total, variation = arb(0), peak * edge**-base
        for j in range(cells):
            mass = (measure[j] - measure[j + 1]).nonnegative_part()
            left, right = abs(values[j]), abs(values[j + 1])
            spread = _density_ratio(points, j, cells, rate)
            if values[j] * values[j + 1] > 0:
                centroid = (1 / (1 + spread.sqrt())).union(spread.sqrt() / (1 + spread.sqrt())) if spread.is_finite() else _UNIT
                mean = left + (right - left) * centroid
            else:
                highest = left.max(right)
                mean = arb(0).union(highest.upper())
                if spread.is_finite() and values[j] * values[j + 1] < 0:
                    crossing = (left * left + right * right) / (2 * (left + right))
                    mean = (crossing / spread).union((crossing * spread).upper())
            total += mass * (mean + chord * _SIGNED).nonnegative_part()
            # |F| varies by at most n·h·‖F‖ on a cell, and s^{−p} ≤ x_j^{p/α} there
            variation += points[j] ** (base / step) * (arb.pi() / density) * peak
        slack = variation / 2
        return (total + slack * _SIGNED).nonnegative_part()


@lru_cache(maxsize=MASSES)
def _mass_from(exponent: fmpq, end: fmpq) -> arb:
    """ζ(p, A) to TAIL_BITS: what a head holds from A on does not depend on the lag that it serves."""
    with working_precision(TAIL_BITS):
        return arb(exponent).zeta(arb(end))


_UNIT = arb(0).union(arb(1))
_SIGNED = arb(-1).union(arb(1))


def _short(value: arb) -> arb:
    """The same enclosure with a midpoint of at most 128 bits, so that later operations are cheap."""
    middle = arb(dyadic(value, 128))
    return arb(middle, (value - middle).abs_upper())


def _density_ratio(points: list[arb], j: int, cells: int, rate: arb) -> arb:
    """Largest over smallest density x^{r−1} sin θ (with respect to θ) on cell j; infinite at the two ends."""
    if j in (0, cells - 1):
        return arb.pos_inf()
    sines = [(arb.pi() * k / cells).sin() for k in (j, j + 1)]
    top = arb(1) if 2 * j <= cells <= 2 * (j + 1) else sines[0].max(sines[1])
    ratio = (points[j] / points[j + 1]) ** abs(rate - 1)
    return arb((ratio * top / sines[0].min(sines[1])).upper())


@dataclass(frozen=True)
class Taps:
    """Finitely many values, s = 0, 1, …; zero afterwards."""

    table: tuple[arb, ...]

    def values(self, start: int, stop: int) -> list[arb]:
        return [self.table[s] if s < len(self.table) else arb(0) for s in range(start, stop)]

    def tail(self, start: int) -> arb:
        return sum((abs(v) for v in self.table[start:]), arb(0))


@dataclass(frozen=True)
class Modes:
    """Σ_h Re(amplitude_h pole_h^s) for s ≥ 0, every |pole_h| < 1: what a real state space with such eigenvalues, or pairs, delivers."""

    poles: tuple[acb, ...]
    amplitudes: tuple[acb, ...]
    progression: ClassVar[bool] = False

    def values(self, start: int, stop: int) -> list[arb]:
        terms = [c * z**start for c, z in zip(self.amplitudes, self.poles, strict=True)]
        result = []
        for _ in range(start, stop):
            result.append(sum((term.real for term in terms), arb(0)))
            terms = [term * z for term, z in zip(terms, self.poles, strict=True)]
        return result

    def taylor(self, x: arb) -> arb_series:
        """Taylor series of Re(c e^{s log z}) at x > 0 (possibly an interval); a pole that is exactly 0 is seen at s = 0 only."""
        total = arb_series([0])
        for c, z in zip(self.amplitudes, self.poles, strict=True):
            if not z.is_zero():
                rate = z.log()
                angle = arb_series([rate.imag * x, rate.imag])
                total += arb_series([rate.real * x, rate.real]).exp() * (c.real * angle.cos() - c.imag * angle.sin())
        return total

    def tail(self, start: int) -> arb:
        """Upper bound of Σ_{s≥start} |·|."""
        sizes = ((abs(c), abs(z)) for c, z in zip(self.amplitudes, self.poles, strict=True))
        return sum((c * z**start / (1 - z) for c, z in sizes), arb(0))


@dataclass(frozen=True)
class Strided:
    """A group that is seen every `stride` tokens: its s-th value at the distance cs, nothing in between."""

    group: "Exponentials | Powers | Taps"
    stride: int

    def _steps(self, start: int) -> int:
        """The first s with cs ≥ start."""
        return -(-start // self.stride)

    def values(self, start: int, stop: int) -> list[arb]:
        result = [arb(0)] * (stop - start)
        first = self._steps(start)
        for s, value in enumerate(self.group.values(first, self._steps(stop)), start=first):
            result[self.stride * s - start] = value
        return result

    def tail(self, start: int) -> arb:
        return self.group.tail(self._steps(start))


Group = Exponentials | Powers | Modes | Taps | Strided
"""What delivered kernels are made of."""


@dataclass(frozen=True)
class DeliveredKernel:
    """residual·1{s=0} plus the groups; `spikes` (lag → weight) and weighted memory kernels are subtracted: an error kernel is a kernel."""

    residual: fmpq
    groups: tuple[Group, ...]
    spikes: tuple[tuple[int, fmpq], ...] = ()
    subtracted: tuple[tuple[fmpq, MemoryKernel], ...] = ()

    def values(self, start: int, stop: int) -> list[arb]:
        parts = [group.values(start, stop) for group in self.groups] or [[arb(0)] * (stop - start)]
        total = parts[0] if len(parts) == 1 else [sum(values, arb(0)) for values in zip(*parts, strict=True)]
        for weight, memory in self.subtracted:
            total = [a - arb(weight) * b for a, b in zip(total, memory.values(start, stop), strict=True)]
        for lag, weight in ((0, -self.residual), *self.spikes):
            if start <= lag < stop:
                total[lag - start] -= arb(weight)
        return total

    def tail(self, start: int) -> arb:
        known = sum((abs(arb(weight)) * memory.tail(start) for weight, memory in self.subtracted), arb(0))
        return sum((group.tail(start) for group in self.groups), known)

    def taylor(self, x: arb) -> arb_series:
        """Taylor series at x beyond the residual, the spikes and the taps, of groups without a stride."""
        known = sum((-arb(weight) * memory.taylor(x) for weight, memory in self.subtracted), arb_series([0]))
        return sum((group.taylor(x) for group in self.groups if not isinstance(group, Taps | Strided)), known)

    def floats(self, length: int) -> list[float]:
        """The first values, `length` of them at most, in float64: cut where the rest adds up to less than the last bit of 1."""
        count = min(length, 64)
        while count < length and not self.tail(count) < arb(2) ** -60:
            count = min(length, 2 * count)
        return [float(v) for v in self.values(0, count)]


@dataclass(frozen=True)
class Norm:
    """Both ends of an ℓ¹ norm, and the kernel's values on the window that was summed term by term.

    Two numbers and not one ball: a ball's radius has 30 bits only, and (3.3) and (3.4) can be met with equality.
    """

    least: arb
    most: arb
    window: tuple[arb, ...]

    @property
    def enclosure(self) -> arb:
        return self.least.union(self.most)


def l1_norm(kernel: DeliveredKernel) -> Norm:
    """‖κ‖_ℓ¹: terms until the tail is a small share of the sum, or until a slow tail has to be integrated or summed on blocks."""
    stride = _common_stride(kernel)
    if stride is not None:
        return _strided_norm(kernel, stride)
    count = 1 + max([64, *(2 * lag for lag, _ in kernel.spikes)])
    allowed = MAX_EVALUATIONS // (8 if kernel.subtracted else 1)  # values of a memory kernel cost more
    summed = [g.group if isinstance(g, Strided) else g for g in kernel.groups]
    most = max(count, allowed // max([1, *(len(g.amplitudes) for g in summed if not isinstance(g, Taps))]))
    in_blocks = bool(kernel.subtracted) and not any(isinstance(g, Strided) or _is_progression(g) for g in kernel.groups)
    if in_blocks:
        analytic = [*(m.positive_from for _, m in kernel.subtracted), *(len(g.table) for g in kernel.groups if isinstance(g, Taps))]
        most = max([WINDOW, count, *analytic])
    window: list[arb] = []
    partial, tail = arb(0), kernel.tail(count)
    while True:
        further = kernel.values(len(window), count)
        window += further
        partial = sum(map(abs, further), partial)
        settled = tail <= TAIL_SHARE * partial
        if settled or count >= most:
            break
        while True:  # the sum only grows: a tail that is small next to what is known is small next to all
            count = min(2 * count, most)
            tail = kernel.tail(count)
            if count >= most or tail <= TAIL_SHARE * partial:
                break
    least, most_tail = arb(0), tail.upper()  # the crude tail is an upper bound only
    if not settled:
        if in_blocks:
            least, summed = _Blocks(kernel).tail(count, partial)
        else:
            integrated = _integrated_tail(kernel, count)
            least, summed = integrated.lower(), integrated.upper()
        most_tail = most_tail.min(summed)
    return Norm((partial + least).lower(), (partial + most_tail).upper(), tuple(window))


def with_spikes(norm: Norm, spikes: Mapping[int, fmpq]) -> Norm | None:
    """‖κ + Σ w_i 1_{T_i}‖_ℓ¹ from what is known of κ: the window changes and what lies beyond it stays; None if a spike lies there."""
    if any(lag >= len(norm.window) for lag in spikes):
        return None
    window = list(norm.window)
    for lag, weight in spikes.items():
        window[lag] += arb(weight)
    before, after = (sum((abs(v) for v in values), arb(0)) for values in (norm.window, window))
    beyond = (norm.least - before).lower().max(arb(0)), (norm.most - before).upper().max(arb(0))
    return Norm((after + beyond[0]).lower(), (after + beyond[1]).upper(), tuple(window))


def _is_progression(group: Group) -> bool:
    return not isinstance(group, Taps | Strided) and group.progression


def _common_stride(kernel: DeliveredKernel) -> int | None:
    """The stride of all groups, if they have one and nothing but spikes is subtracted."""
    strides = {g.stride if isinstance(g, Strided) else 1 for g in kernel.groups}
    return strides.pop() if len(strides) == 1 and strides != {1} and not kernel.subtracted else None


def _strided_norm(kernel: DeliveredKernel, stride: int) -> Norm:
    """κ lives on the multiples of c, where it is the kernel without a stride; spikes at other places are added as they are."""
    on = tuple((lag // stride, weight) for lag, weight in kernel.spikes if lag % stride == 0)
    off = {lag: arb(weight) for lag, weight in kernel.spikes if lag % stride}
    inner = l1_norm(DeliveredKernel(kernel.residual, tuple(g.group for g in kernel.groups if isinstance(g, Strided)), on))
    window = [arb(0)] * (stride * len(inner.window))
    window[::stride] = inner.window
    for lag, weight in off.items():
        if lag < len(window):
            window[lag] = -weight
    missed = sum((abs(weight) for weight in off.values()), arb(0))
    return Norm((inner.least + missed).lower(), (inner.most + missed).upper(), tuple(window))


@dataclass
class _Blocks:
    """Σ|κ| over geometric blocks; `left` counts the single terms that may still be evaluated."""

    kernel: DeliveredKernel
    left: int = MAX_TERMS

    def tail(self, start: int, partial: arb) -> tuple[arb, arb]:
        """Both ends of Σ_{s≥start} |κ(s)|; blocks end where what is left is a small share of the sum."""
        least, most, rest = arb(0), arb(0), self.kernel.tail(start)
        while start < FARTHEST and not rest <= TAIL_SHARE / 4 * (partial + least):
            stop = start + start // 8
            part = self.block(start, stop, TAIL_SHARE**3 * (partial + least))
            least, most = least + part.lower().max(arb(0)), most + part.upper().min(rest.upper())
            start, rest = stop, self.kernel.tail(stop)
        return least.lower(), (most + rest).upper()

    def block(self, start: int, stop: int, negligible: arb) -> arb:
        """Enclosure of Σ_{start≤s<stop} |κ(s)|."""
        count = stop - start
        if count <= 2 * ORDER and self.left > 0:
            self.left -= count
            return sum((abs(v) for v in self.kernel.values(start, stop)), arb(0))
        middle, radius = arb(fmpq(start + stop - 1, 2)), arb(fmpq(count - 1, 2))
        with series_order(ORDER + 1):
            here = series_coefficients(self.kernel.taylor(middle))
            everywhere = series_coefficients(self.kernel.taylor(arb(middle, radius)))
        remainder = abs(everywhere[ORDER]) * radius**ORDER
        spread = sum((abs(c) * radius**k for k, c in enumerate(here[1:ORDER], start=1)), remainder)
        if abs(here[0]) > spread:
            signed = sum((c * arb(power_sum(count, k)) for k, c in enumerate(here[:ORDER]) if k % 2 == 0), arb(0))
            return (abs(signed) + count * remainder * _SIGNED).nonnegative_part()
        crude = (count * (abs(here[0]) + spread).min(abs(everywhere[0]))).upper()
        if crude <= negligible or self.left <= 0 or count <= 2 * ORDER:
            return arb(0).union(crude)
        half = (start + stop) // 2
        self.left -= ORDER // 2
        return self.block(start, half, negligible) + self.block(half, stop, negligible)


@contextmanager
def series_order(terms: int) -> Iterator[None]:
    """Context in which power series keep so many terms."""
    previous, ctx.cap = ctx.cap, terms
    try:
        yield
    finally:
        ctx.cap = previous


def series_coefficients(series: arb_series) -> list[arb]:
    """ORDER + 1 coefficients, zeros where the series ends."""
    found = series.coeffs()
    return found + [arb(0)] * (ORDER + 1 - len(found))


@cache
def _bernoulli(k: int) -> fmpq_poly:
    return fmpq_poly.bernoulli_poly(k)


def power_sum(count: int, k: int) -> fmpq:
    """Σ_j (j − (count−1)/2)^k over 0 ≤ j < count, as (B_{k+1}((count+1)/2) − B_{k+1}((1−count)/2))/(k+1)."""
    polynomial = _bernoulli(k + 1)
    return (polynomial(fmpq(count + 1, 2)) - polynomial(fmpq(1 - count, 2))) / (k + 1)


def _integrated_tail(kernel: DeliveredKernel, start: int) -> arb:
    """The tail with slow power groups integrated; an enclosure for a single such group, otherwise [0, upper bound]."""
    groups = kernel.groups
    parts = [g.slow_tail(start) if isinstance(g, Powers) and g.is_slow() else arb(0).union(g.tail(start).upper()) for g in groups]
    parts += [arb(0).union((abs(arb(weight)) * memory.tail(start)).upper()) for weight, memory in kernel.subtracted]
    total = sum(parts, arb(0))
    return total if len(parts) == 1 else arb(0).union(total.upper())


def norm_of(memory: MemoryKernel) -> Norm:
    """‖ρ‖_ℓ¹ of a memory kernel."""
    return l1_norm(DeliveredKernel(fmpq(0), (), subtracted=((fmpq(-1), memory),)))


def tail_of(memory: MemoryKernel, start: int) -> tuple[arb, arb]:
    """Both ends of Σ_{s≥start} |ρ(s)|: term by term until a closed sum or a bound is enough for the rest, or blocks take over."""
    partial, count = arb(0), start
    latest = max(start, memory.positive_from, MAX_TERMS >> 2)
    while True:
        closed = memory.sums_from(count)
        if closed is not None and closed[1] - closed[0] <= NEGLIGIBLE * (partial + closed[1]):
            return (partial + closed[0]).lower(), (partial + closed[1]).upper()
        rest = memory.tail(count)
        if rest <= NEGLIGIBLE * partial:
            return partial.lower(), (partial + rest).upper()
        if count >= latest:
            break
        stop = min(latest, max(2 * count, count + 64))
        partial += sum((abs(v) for v in memory.values(count, stop)), arb(0))
        count = stop
    least, most = _Blocks(DeliveredKernel(fmpq(0), (), subtracted=((fmpq(-1), memory),))).tail(count, partial)
    if closed is not None:
        least, most = least.max(closed[0].lower()), most.min(closed[1].upper())
    return (partial + least).lower(), (partial + most).upper()
