"""Couplings ρ(u, v) of two tokens u, v ∈ [0, 1]: how strongly the token v is attended to when u asks.

Either a formula in u and v, or a singular value decomposition that is given: ρ(u, v) = Σ_{k≤R} σ_k φ_k(u) ψ_k(v) with σ_k from a
formula in k and sine bases φ_k(x) = ψ_k(x) = √2 sin(2πkx), orthonormal on [0, 1].

Both answer the same questions: values on a grid as floats with a rigorous error, values and Taylor coefficients on boxes of balls,
and the same function for arrays of numpy or JAX.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.language.formulas import Formula, parse_formula
from analyzer.numbers.exact import lower, maximum, range_pieces, rational, upper, working_precision
from analyzer.numbers.piecewise import bilinear_error
from analyzer.targets.protocol import ArrayMap, TokenTarget, half_spread, shortened

MAX_LENGTH = 4096
MAX_RANK = 4096
"""Terms of a given decomposition."""
BITS = 96
"""Precision of balls: far below the 53 bits of what is compared with them."""
FINEST = 10
"""A formula must be finite on boxes of side 2^-FINEST, or it is taken to be undefined there."""
MAX_BOXES = 8 * 2**FINEST
"""Boxes looked at together: a curve of the square on which a formula is undefined crosses about 2·2^FINEST of the finest ones."""

CONSTANTS, SAMPLED = 33, 64
"""Constant sequences, and samples, at which a target's values are looked at."""

MAX_KNOTS = 1024
"""Pieces of a spline."""
MAX_SINE_KNOTS = 4096
MAX_POINTS = 1 << 24
"""Operations in balls at all pairs of knots: a million values of formulas with up to sixteen of them, some seconds."""
MAX_SINES = 1 << 20
"""Sines in balls at all knots: a second."""

Grid = tuple[np.ndarray, float]
"""Floats and a bound of how far each is from the true value."""


@dataclass(frozen=True)
class FormulaCoupling:
    """ρ given by a formula in u and v."""

    formula: Formula

    def __post_init__(self) -> None:
        check_finite(self.formula, "rho")

    @property
    def name(self) -> str:
        return self.formula.text

    def at(self, u: arb, v: arb) -> arb:
        return self.formula.at(u, v)

    def taylor(self, index: int, order: int, u: arb, v: arb) -> list[arb]:
        """∂^j ρ/j! in u (index 0) or v (index 1) on a box, j = 0..order."""
        return self.formula.taylor(index, order, u, v)

    def grid(self, us: Sequence[fmpq | arb], vs: Sequence[fmpq | arb]) -> Grid:
        """ρ(u_i, v_j)."""
        with working_precision(BITS):
            rows, columns = [arb(u) for u in us], [arb(v) for v in vs]
            parts = [floats([[self.formula.at(u, v) for v in columns]]) for u in rows]  # balls of one row at a time: they are large
            return np.concatenate([values for values, _ in parts]), max(error for _, error in parts)

    def compiled(self, xp: Any) -> Callable[[Any, Any], Any]:
        return self.formula.compiled(xp)

    def pairs(self, xp: Any) -> Callable[[Any, Any], Any]:
        """(…, n) and (…, m) → ρ of every pair, (…, n, m), for arrays of numpy or JAX."""
        rho = self.compiled(xp)

        def values(u: Any, v: Any) -> Any:
            shape = (*u.shape, v.shape[-1])
            return xp.broadcast_to(rho(xp.broadcast_to(u[..., None], shape), xp.broadcast_to(v[..., None, :], shape)), shape)

        return values

    @property
    def most_knots(self) -> int:
        """Pieces of splines for which ρ is looked at in all pairs of knots."""
        return _power_of_two(min(MAX_KNOTS, math.isqrt(MAX_POINTS // self.formula.cost)))


@dataclass(frozen=True)
class SineCoupling:
    """ρ = Σ_{k≤rank} σ(k) 2 sin(2πku) sin(2πkv), σ(k) > 0 and not increasing."""

    sigma: Formula
    rank: int

    def __post_init__(self) -> None:
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or not 1 <= self.rank <= MAX_RANK:
            raise InputError(f"rank is {str(self.rank)[:40]!r}; it must be a whole number from 1 to {MAX_RANK}")
        for k, value in enumerate(self.sigmas, start=1):
            if not math.isfinite(upper(value)) or not value > 0:
                raise InputError(f"sigma {self.sigma.text[:60]!r} is not a positive number at k = {k}")
            if k > 1 and self.sigma.used and not value <= self.sigmas[k - 2]:
                raise InputError(f"sigma {self.sigma.text[:60]!r} grows at k = {k}; singular values come in decreasing order")

    @cached_property
    def sigmas(self) -> tuple[arb, ...]:
        with working_precision(BITS):
            return tuple(self.sigma.at(k) for k in range(1, self.rank + 1))

    @property
    def name(self) -> str:
        return f"sum of {self.sigma.text} * 2 sin(2 pi k u) sin(2 pi k v), k <= {self.rank}"

    def at(self, u: arb, v: arb) -> arb:
        return sum((2 * s * (2 * u * k).sin_pi() * (2 * v * k).sin_pi() for k, s in enumerate(self.sigmas, start=1)), arb(0))

    def taylor(self, index: int, order: int, u: arb, v: arb) -> list[arb]:
        """∂^j ρ/j! in u (index 0) or v (index 1) on a box, j = 0..order; sin^{(j)}(x) = sin(x + jπ/2)."""
        moving, fixed = (u, v) if index == 0 else (v, u)
        result = []
        for j in range(order + 1):
            total = arb(0)
            for k, s in enumerate(self.sigmas, start=1):
                total += 2 * s * (2 * arb.pi() * k) ** j * (2 * moving * k + arb(j) / 2).sin_pi() * (2 * fixed * k).sin_pi()
            result.append(total / arb(j).fac())
        return result

    def basis(self, xs: Sequence[fmpq | arb]) -> Grid:
        """√2 sin(2πkx_i), (points, rank)."""
        with working_precision(BITS):
            root, points = arb(2).sqrt(), [arb(x) for x in xs]
            return floats([[root * (2 * x * k).sin_pi() for k in range(1, self.rank + 1)] for x in points])

    def grid(self, us: Sequence[fmpq | arb], vs: Sequence[fmpq | arb]) -> Grid:
        """ρ(u_i, v_j) as a product of matrices: entries of the bases and σ are off by at most ε each, a sum of R products adds γ_R."""
        (left, e_left), (right, e_right) = self.basis(us), self.basis(vs)
        sigma, e_sigma = floats([list(self.sigmas)])
        values = (left * sigma) @ right.T
        size, top, unit = float(np.sum(sigma)), 2.0**0.5 * (1 + 2.0**-50), 2.0**-53
        inputs = size * top * (e_left + e_right) + self.rank * top**2 * e_sigma
        rounding = 2 * (self.rank + 2) * unit * size * top**2
        return values, 2 * (inputs + rounding)  # twice, for the products of errors and for rounding here

    def compiled(self, xp: Any) -> Callable[[Any, Any], Any]:
        frequencies = 2 * np.pi * np.arange(1, self.rank + 1)
        sigma = np.array([2 * float(s) for s in self.sigmas])

        def coupling(u: Any, v: Any) -> Any:
            return (sigma * xp.sin(frequencies * u[..., None]) * xp.sin(frequencies * v[..., None])).sum(-1)

        return coupling

    def pairs(self, xp: Any) -> Callable[[Any, Any], Any]:
        """(…, n) and (…, m) → ρ of every pair, (…, n, m), by the factors: R(n + m) sines instead of Rnm."""
        frequencies = 2 * np.pi * np.arange(1, self.rank + 1)
        sigma = np.array([2 * float(s) for s in self.sigmas])

        def values(u: Any, v: Any) -> Any:
            return (sigma * xp.sin(frequencies * u[..., None])) @ xp.swapaxes(xp.sin(frequencies * v[..., None]), -1, -2)

        return values

    @property
    def most_knots(self) -> int:
        """Pieces of splines: values at all pairs are a product of R sines at each knot."""
        return _power_of_two(min(MAX_SINE_KNOTS, MAX_SINES // self.rank))


Coupling = FormulaCoupling | SineCoupling


def _power_of_two(most: int) -> int:
    """The largest power of two up to a positive number."""
    return 1 << (most.bit_length() - 1)


def floats(balls: list[list[arb]]) -> Grid:
    """Midpoints as floats, and a bound of their distance from the true values."""
    values = np.array([[float(b.mid()) for b in row] for row in balls])
    error = max((upper(abs(b - arb(float(b.mid())))) for row in balls for b in row), default=0.0)
    return values, error


def check_finite(formula: Formula, what: str, low: fmpq | int = 0, high: fmpq | int = 1) -> None:
    """Refuse a formula that cannot be shown to be finite on [low, high]^n: complex or undefined values."""
    boxes = [tuple((arb(low), arb(high)) for _ in formula.variables)]
    with working_precision(BITS):
        for _ in range(FINEST * len(formula.variables)):
            boxes = [half for box in boxes if not formula.at(*(a.union(b) for a, b in box)).is_finite() for half in _halves(box)]
            if not boxes:
                return
            if len(boxes) > MAX_BOXES:
                break
        where = ", ".join(f"{name} = {float(a):.4g}" for name, (a, _) in zip(formula.variables, boxes[0], strict=True))
    raise InputError(f"{what} {formula.text[:60]!r} is not shown to be a finite real number near {where}")


def _halves(box: tuple[tuple[arb, arb], ...]) -> list[tuple[tuple[arb, arb], ...]]:
    """The box cut in two along its longest side."""
    sides = [float(b - a) for a, b in box]
    k = sides.index(max(sides))
    middle = (box[k][0] + box[k][1]) / 2
    return [(*box[:k], (box[k][0], middle), *box[k + 1 :]), (*box[:k], (middle, box[k][1]), *box[k + 1 :])]


def parse_coupling(rho: Any) -> FormulaCoupling:
    """A coupling from text in u and v."""
    return FormulaCoupling(parse_formula(rho, ("u", "v"), "rho"))


def range_of(formula: Formula, low: arb, high: arb, pieces: int = 256) -> tuple[float, float]:
    """Floats below and above every value of a formula in one variable on [low, high]."""
    values = [formula.at(piece) for piece in range_pieces(low, high, pieces)]
    return min(lower(v) for v in values), max(upper(v) for v in values)


@dataclass(frozen=True)
class CouplingTarget(TokenTarget):
    """H_t(x) = F(Σ_s softmax[ρ(x_t, x_·)](s) f(x_s)), t and s from 1 to `length`, tokens in [0, 1]."""

    kind: ClassVar[str] = "coupling"
    plural: ClassVar[str] = "couplings"

    length: int
    coupling: Coupling
    f: Formula
    F: Formula

    def __post_init__(self) -> None:
        if isinstance(self.length, bool) or not isinstance(self.length, int) or not 1 <= self.length <= MAX_LENGTH:
            raise InputError(f"length is {str(self.length)[:40]!r}; it must be a whole number from 1 to {MAX_LENGTH}")
        check_finite(self.f, "f")
        low, high = self.value_range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise InputError(f"f {self.f.text[:60]!r} has no finite bounds among the floats; divide it by its size")
        check_finite(self.F, "F", rational(low), rational(high))

    @property
    def dim(self) -> int:
        return 1

    @property
    def domain(self) -> tuple[int, int]:
        return 0, 1

    @property
    def alphabet(self) -> None:
        return None

    @property
    def description(self) -> str:
        return shortened(self.kind, [self.coupling.name, f"{self.length} tokens"])

    def check_tokens(self, tokens: np.ndarray, source: str) -> None:
        """Outside [0, 1] the formulas may have no value."""
        if tokens.size and not 0 <= tokens.min() <= tokens.max() <= 1:
            raise InputError(f"{source} holds tokens outside [0, 1], the domain of this coupling")

    @cached_property
    def value_range(self) -> tuple[float, float]:
        """Floats around all values of f."""
        with working_precision(BITS):
            return range_of(self.f, arb(0), arb(1))

    @cached_property
    def oscillation(self) -> arb:
        """max f − min f, from above."""
        low, high = self.value_range
        return arb(high) - arb(low)

    @cached_property
    def largest_value(self) -> arb:
        """‖f‖_∞, from above."""
        return arb(max(map(abs, self.value_range)))

    def slope(self, low: arb, high: arb) -> arb:
        """sup |F'| on [low, high], from above; infinite where it is not shown to be finite."""
        with working_precision(BITS):
            slopes = [abs(self.F.taylor(0, 1, piece)[1]) for piece in range_pieces(low, high, 64)]
            return maximum(slopes).upper() if all(s.is_finite() for s in slopes) else arb.pos_inf()

    def at(self, tokens: Sequence[fmpq], position: int) -> arb:
        """H_t for exact tokens."""
        query = arb(tokens[position])
        seen = {v: (self.coupling.at(query, arb(v)), self.f.at(v)) for v in dict.fromkeys(tokens)}
        return self.F.at(softmax_mean([seen[v][0] for v in tokens], [seen[v][1] for v in tokens]))

    def exact_value(self, tokens: np.ndarray, t: int = -1) -> arb:
        """H at position t of tokens (τ, 1)."""
        exact = [rational(float(token[0])) for token in tokens]
        return self.at(exact, t % len(exact))

    def constant_error(self, samples: np.ndarray | None = None) -> float:
        """Half the spread of the values at some of the samples, or on constant sequences, where H is F(f(x))."""
        if samples is not None:
            return half_spread([self.exact_value(row) for row in samples[:: max(1, len(samples) // SAMPLED)]])
        values = [self.F.at(self.f.at(fmpq(k, CONSTANTS - 1))) for k in range(CONSTANTS)]
        return max(0.0, (max(lower(v) for v in values) - min(upper(v) for v in values)) / 2)

    def values(self, xp: Any) -> ArrayMap:
        """Tokens (…, τ, 1) → H (…, τ)."""
        coupled = self.compiled(xp)
        return lambda tokens: coupled(tokens[..., 0])

    def compiled(self, xp: Any, positions: slice = slice(None)) -> Callable[[Any], Any]:
        """Tokens (…, τ) → H at some positions, (…, positions), for arrays of numpy or JAX."""
        rho, f, readout = self.coupling.pairs(xp), self.f.compiled(xp), self.F.compiled(xp)

        def target(x: Any) -> Any:
            queries = x[..., positions]
            logits = rho(queries, x)
            weights = xp.exp(logits - logits.max(axis=-1, keepdims=True))
            values = xp.broadcast_to(f(x), x.shape)
            return xp.broadcast_to(readout((weights * values[..., None, :]).sum(-1) / weights.sum(-1)), queries.shape)

        return target

    def describe(self) -> dict[str, Any]:
        """The target as plain data (inverse of `coupling_from_dict`)."""
        match self.coupling:
            case FormulaCoupling(formula):
                pair: dict[str, Any] = {"rho": formula.text}
            case SineCoupling(sigma, rank):
                pair = {"sigma": sigma.text, "rank": rank}
        return {"kind": self.kind, "length": self.length, **pair, "f": self.f.text, "F": self.F.text}


def softmax_mean(logits: Sequence[arb], values: Sequence[arb]) -> arb:
    """Σ e^{a_s} v_s / Σ e^{a_s} in balls; the largest midpoint is taken out first, so that nothing overflows."""
    top = max((a.mid() for a in logits), key=float)
    weights = [(a - top).exp() for a in logits]
    return sum((w * v for w, v in zip(weights, values, strict=True)), arb(0)) / sum(weights, arb(0))


def grid_error(coupling: Coupling, us: Sequence[fmpq], vs: Sequence[fmpq]) -> arb:
    """Upper bound of sup |ρ − I ρ − c| for bilinear interpolation on a grid, c a constant."""
    with working_precision(BITS):
        if isinstance(coupling, SineCoupling):  # |∂²ρ| ≤ Σ 2σ_k (2πk)², the same everywhere
            curvature = sum((2 * s * (2 * arb.pi() * k) ** 2 for k, s in enumerate(coupling.sigmas, start=1)), arb(0))
            widest = [max(b - a for a, b in itertools.pairwise(knots)) for knots in (us, vs)]
            return (curvature / 8 * sum((arb(h) ** 2 for h in widest), arb(0))).upper()
        return bilinear_error(lambda index, u, v: coupling.taylor(index, 2, u, v), us, vs)


def coupling_from_dict(data: dict[str, Any], source: str) -> CouplingTarget:
    """A coupling target from parsed TOML or JSON."""
    unknown = set(data) - {"kind", "length", "dim", "rho", "sigma", "rank", "f", "F"}
    if unknown:
        raise InputError(f"{source}: unknown key {sorted(unknown)[0]!r}")
    if type(data.get("dim", 1)) is not int or data.get("dim", 1) != 1:
        raise InputError(f"{source}: couplings have tokens of dim 1")
    if ("rho" in data) == ("sigma" in data) or ("rank" in data) != ("sigma" in data):
        raise InputError(f"{source}: give either rho in u and v, or sigma in k and a rank")
    if "rho" in data:
        coupling: Coupling = parse_coupling(data["rho"])
    else:
        coupling = SineCoupling(parse_formula(data["sigma"], ("k",), "sigma"), data["rank"])
    f, readout = parse_formula(data.get("f", "x"), ("x",), "f"), parse_formula(data.get("F", "y"), ("y",), "F")
    return CouplingTarget(data.get("length", 0), coupling, f, readout)
