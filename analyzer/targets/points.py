"""Couplings of vectors at positions: tokens (s, x_s) with x_s ∈ R^d, values in R^m, tokens of different positions from different domains.

    H_t(x) = F(Σ_s softmax[ρ((t, x_t), (s, x_·))](s) f(s, x_s)),      t and s from 1 to `length`, f into R^m, F on R^m.

The domain of a position is a finite set of points, exact rationals in [−1, 1]^d, or the box [0, 1]^d. A token of an array has d + 1
coordinates: the code of its position, (s − 1)/P with P the least power of 2 that is not below `length`, then x_s. So a network knows
positions although its heads do not see any.

ρ is a sum of formulas in t, s, u1 … ud (who asks) and v1 … vd (who is asked), every component of f a sum of formulas in s, x1 … xd. On
boxes a summand of ρ holds at most one of the u and one of the v, and a summand of f at most one of the x: then ρ = Σ_ij ρ_ij(t, u_i, s,
v_j), and everything is a question about functions of one or two variables. On finite sets summands are any formulas.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.language.formulas import Formula, parse_formula
from analyzer.numbers.exact import maximum, nearest, rational, to_text, working_precision
from analyzer.targets.adaptive import exact_number
from analyzer.targets.coupling import BITS, FormulaCoupling, check_finite, range_of, softmax_mean
from analyzer.targets.protocol import ArrayMap, TokenTarget, half_spread, shortened
from analyzer.targets.readout import ReadOut, read_out_of

MAX_LENGTH = 64
MAX_SPACE = 8
"""Coordinates of a point."""
MAX_VALUES = 16
"""Components of f."""
MAX_TERMS = 64
"""Summands of ρ, and of a component of f."""
MAX_PAIRS = 1024
"""Pairs (position, point): the coupling is looked at in all pairs of them."""
NEAR = 2.0**-24
"""How far the float of a token may be from the point that it stands for: float32 and float64 round points by less."""
TRIED = 24
"""Sequences at which the values of a target are looked at."""

Point = tuple[fmpq, ...]
Terms = tuple[Formula, ...]


@dataclass(frozen=True)
class PointsTarget(TokenTarget):
    """H_t(x) = F(Σ_s softmax[ρ((t, x_t), (s, x_·))](s) f(s, x_s)); `points` has the points of every position, None for the box."""

    kind: ClassVar[str] = "points"
    plural: ClassVar[str] = "couplings of points"

    length: int
    space: int
    rho: Terms
    f: tuple[Terms, ...]
    F: str
    points: tuple[tuple[Point, ...], ...] | None = None

    def __post_init__(self) -> None:
        self._check_sizes()
        if self.points is None:
            self._check_boxes()
        sizes = self.value_sizes
        if not all(size.is_finite() for size in sizes):
            raise InputError("f is not shown to be a finite real number at all tokens")
        with working_precision(BITS):
            if not self.readout([arb(0).union(size).union(-size) for size in sizes]).is_finite():
                raise InputError(f"F {self.F[:60]!r} has no finite bounds on the values of f")
            if self.points is not None and not all(value.is_finite() for row in self.couplings for value in row):
                raise InputError("rho is not shown to be a finite real number at all pairs of tokens")

    def _check_sizes(self) -> None:
        _check_whole("length", self.length, MAX_LENGTH)
        _check_whole("space", self.space, MAX_SPACE)
        if self.points is None:
            return
        if len(self.points) != self.length:
            raise InputError(f"points has {len(self.points)} sets for {self.length} positions; give one set for all, or one for each")
        for s, points in enumerate(self.points, start=1):
            if not points or len(set(points)) < len(points) or any(len(point) != self.space for point in points):
                raise InputError(f"the points of position {s} must be one or more different vectors of {self.space} coordinates")
            if any(abs(x) > 1 for point in points for x in point):
                raise InputError(f"a point of position {s} lies outside [-1, 1]: divide all coordinates by the largest")
        if sum(map(len, self.points)) > MAX_PAIRS:
            raise InputError(
                f"{sum(map(len, self.points))} pairs of a position and a point; the coupling is compared at {MAX_PAIRS} at most"
            )

    def _check_boxes(self) -> None:
        """Summands must be functions of single coordinates, and finite there."""
        for term in self.rho:
            for letter in "uv":
                several = sorted(name for name in term.used if name[0] == letter)
                if len(several) > 1:
                    raise InputError(
                        f"rho {term.text[:60]!r} holds {several[0]} and {several[1]}: on a box give rho as a list of summands with one "
                        f"{letter} each, or give points"
                    )
            for t, s in self.position_pairs(term):
                self.pair_coupling(term, t, s)  # which is checked when it is made
        for term in (term for terms in self.f for term in terms):
            several = sorted(name for name in term.used if name != "s")
            if len(several) > 1:
                raise InputError(
                    f"f {term.text[:60]!r} holds {several[0]} and {several[1]}: on a box give a list of summands with one x each, or points"
                )
            for s in self.positions_of(term):
                check_finite(self.value_formula(term, s), "f")

    @property
    def dim(self) -> int:
        return self.space + 1

    @property
    def domain(self) -> tuple[int, int]:
        return (0, 1) if self.points is None else (-1, 1)

    @property
    def alphabet(self) -> None:
        return None

    @property
    def signed(self) -> bool:
        return False

    @property
    def tokens_text(self) -> str:
        return f"tokens in [0, 1]^{self.space} at their positions" if self.points is None else "points of each position"

    @property
    def description(self) -> str:
        where = "the box" if self.points is None else f"{max(map(len, self.points))} points"
        return shortened(self.kind, [f"{self.length} positions", f"{where} in dimension {self.space}", f"values in R^{len(self.f)}"])

    @cached_property
    def readout(self) -> ReadOut:
        """F on y1 … ym."""
        return read_out_of(self.F, [f"y{k}" for k in range(1, len(self.f) + 1)])

    @cached_property
    def codes(self) -> tuple[fmpq, ...]:
        """(s − 1)/P, the first coordinate of the token at position s."""
        size = 1 << max(0, (self.length - 1).bit_length())
        return tuple(fmpq(s, size) for s in range(self.length))

    def positions_of(self, term: Formula) -> range:
        """Positions s that a summand of f tells apart."""
        return range(1, self.length + 1) if "s" in term.used else range(1, 2)

    def position_pairs(self, term: Formula) -> list[tuple[int, int]]:
        """Pairs (t, s) that a summand of ρ tells apart."""
        ts, ss = (range(1, self.length + 1) if name in term.used else range(1, 2) for name in "ts")
        return [(t, s) for t in ts for s in ss]

    def axes(self, term: Formula) -> tuple[int, int]:
        """(i, j): a summand of ρ on a box is a function of u_i and v_j, the first ones if it holds none."""
        u, v = ([int(name[1:]) - 1 for name in term.used if name[0] == letter] for letter in "uv")
        return (u or [0])[0], (v or [0])[0]

    def pair_coupling(self, term: Formula, t: int, s: int) -> FormulaCoupling:
        """A summand of ρ on a box as a coupling of two numbers."""
        i, j = self.axes(term)
        return FormulaCoupling(term.among((f"u{i + 1}", f"v{j + 1}"), {"t": t, "s": s}))

    def value_axis(self, term: Formula) -> int:
        """i: a summand of f on a box is a function of x_i."""
        return ([int(name[1:]) - 1 for name in term.used if name != "s"] or [0])[0]

    def value_formula(self, term: Formula, s: int) -> Formula:
        """A summand of f on a box as a function of one number."""
        return term.among((f"x{self.value_axis(term) + 1}",), {"s": s})

    @cached_property
    def tokens(self) -> tuple[tuple[int, Point], ...]:
        """All (position, point), position by position; for finite sets."""
        assert self.points is not None
        return tuple((s, point) for s, points in enumerate(self.points, start=1) for point in points)

    @cached_property
    def couplings(self) -> list[list[arb]]:
        """ρ at all pairs of tokens of finite sets."""
        with working_precision(BITS):
            return [[self.coupling(t, u, s, v) for s, v in self.tokens] for t, u in self.tokens]

    def coupling(self, t: int, u: Point, s: int, v: Point) -> arb:
        """ρ((t, u), (s, v))."""
        point = (arb(t), arb(s), *map(arb, u), *map(arb, v))
        return sum((term.at(*point) for term in self.rho), arb(0))

    def value(self, s: int, x: Point) -> list[arb]:
        """f(s, x)."""
        point = (arb(s), *map(arb, x))
        return [sum((term.at(*point) for term in terms), arb(0)) for terms in self.f]

    @cached_property
    def value_ranges(self) -> tuple[tuple[arb, arb], ...]:
        """(low, high) around all values of every component of f."""
        with working_precision(BITS):
            if self.points is not None:
                values = list(zip(*(self.value(s, x) for s, x in self.tokens), strict=True))
                return tuple((-maximum([-v for v in column]).upper(), maximum(list(column)).upper()) for column in values)
            return tuple(self._box_range(terms) for terms in self.f)

    def _box_range(self, terms: Terms) -> tuple[arb, arb]:
        ends = []
        for s in range(1, self.length + 1):
            parts = [range_of(self.value_formula(term, s), arb(0), arb(1), 64) for term in terms]
            ends.append((sum((arb(low) for low, _ in parts), arb(0)), sum((arb(high) for _, high in parts), arb(0))))
            if not any("s" in term.used for term in terms):
                break
        return -maximum([-low for low, _ in ends]).upper(), maximum([high for _, high in ends]).upper()

    @property
    def value_sizes(self) -> list[arb]:
        """‖f_c‖_∞ of every component, from above."""
        return [abs(low).max(abs(high)).upper() for low, high in self.value_ranges]

    @property
    def oscillations(self) -> list[arb]:
        """max f_c − min f_c of every component, from above."""
        return [(high - low).upper() for low, high in self.value_ranges]

    def at(self, points: Sequence[Point], position: int) -> arb:
        """H at a position, counted from 0, for exact points."""
        with working_precision(BITS):
            logits = [self.coupling(position + 1, points[position], s, x) for s, x in enumerate(points, start=1)]
            values = [self.value(s, x) for s, x in enumerate(points, start=1)]
            return self.readout([softmax_mean(logits, list(column)) for column in zip(*values, strict=True)])

    def exact_points(self, tokens: np.ndarray) -> list[Point]:
        """The points that the tokens (N, d + 1) of an array stand for."""
        given = [tuple(rational(float(x)) for x in token[1:]) for token in tokens]
        if self.points is None:
            return given
        return [_nearest(x, points) for x, points in zip(given, self.points, strict=True)]

    def array_of(self, points: Sequence[Point]) -> np.ndarray:
        """Tokens (N, d + 1) of exact points."""
        return np.array([[nearest(code), *map(nearest, point)] for code, point in zip(self.codes, points, strict=True)])

    def exact_value(self, tokens: np.ndarray, t: int = -1) -> arb:
        return self.at(self.exact_points(tokens), t % len(tokens))

    def constant_error(self, samples: np.ndarray | None = None) -> float:
        """Half the spread of the values at the first position of some sequences."""
        rows = self.draw(np.random.default_rng(0), (TRIED, self.length)) if samples is None else samples[:TRIED]
        return half_spread([self.exact_value(row, t) for row in rows for t in (0, self.length - 1)])

    def check_tokens(self, tokens: np.ndarray, source: str) -> None:
        """Tokens must be at their positions, and among the points of them."""
        if not tokens.size:
            return
        if tokens.shape[-2:] != (self.length, self.dim):
            raise InputError(f"{source} holds sequences of {tokens.shape[-2]} tokens; this target has {self.length} positions")
        codes = np.array([nearest(code) for code in self.codes])
        if not np.array_equal(np.broadcast_to(codes, tokens.shape[:-1]), tokens[..., 0]):
            raise InputError(
                f"{source} holds tokens whose first coordinate is not the code of their position, 0, 1/{1 / codes[1]:.0f}, …"
                if len(codes) > 1
                else f"{source} holds a token whose first coordinate is not 0, the code of its position"
            )
        if self.points is None:
            if not 0 <= tokens.min() <= tokens.max() <= 1:
                raise InputError(f"{source} holds tokens outside [0, 1], the domain of this target")
            return
        for s, points in enumerate(self.points):
            known = np.array([[nearest(x) for x in point] for point in points])
            away = np.abs(tokens[..., s, None, 1:] - known).max(-1).min(-1)
            if away.max() > NEAR:
                raise InputError(f"{source} holds a token at position {s + 1} that is none of its points")

    def draw(self, rng: np.random.Generator, shape: tuple[int, int], signs: bool = False) -> np.ndarray:
        """Independent uniform points at their positions, (batch, N, d + 1)."""
        if shape[1] != self.length:
            raise InputError(f"sequences of {shape[1]} tokens were asked for; this target has {self.length} positions")
        tokens = np.empty((*shape, self.dim))
        tokens[..., 0] = [nearest(code) for code in self.codes]
        if self.points is None:
            tokens[..., 1:] = rng.random((*shape, self.space))
            return tokens
        for s, points in enumerate(self.points):
            known = np.array([[nearest(x) for x in point] for point in points])
            tokens[:, s, 1:] = known[rng.integers(len(known), size=shape[0])]
        return tokens

    def values(self, xp: Any) -> ArrayMap:
        """Tokens (…, N, d + 1) → H (…, N)."""
        rho, f = [term.compiled(xp) for term in self.rho], [[term.compiled(xp) for term in terms] for terms in self.f]
        readout, places = self.readout.compiled(xp), np.arange(1.0, self.length + 1)

        def target(tokens: Any) -> Any:
            x = [tokens[..., k] for k in range(1, self.dim)]
            shape = (*tokens.shape[:-1], self.length)
            asking, asked = [column[..., :, None] for column in x], [column[..., None, :] for column in x]
            logits = xp.zeros(shape) + sum(term(places[:, None], places[None, :], *asking, *asked) for term in rho)
            weights = xp.exp(logits - logits.max(axis=-1, keepdims=True))
            weights = weights / weights.sum(axis=-1, keepdims=True)
            columns = [xp.zeros(tokens.shape[:-1]) + sum(term(places, *x) for term in terms) for terms in f]
            return readout(xp.stack([(weights * column[..., None, :]).sum(-1) for column in columns], axis=-1))

        return target

    def describe(self) -> dict[str, Any]:
        """The target as plain data (inverse of `points_from_dict`)."""
        rho, f = [term.text for term in self.rho], [[term.text for term in terms] for terms in self.f]
        where: dict[str, Any] = {}
        if self.points is not None:
            sets = [[[to_text(x) for x in point] for point in points] for points in self.points]
            where = {"points": sets[0] if all(points == sets[0] for points in sets) else sets}
        return {"kind": self.kind, "length": self.length, "space": self.space, "rho": rho, "f": f, "F": self.F, **where}


def _check_whole(name: str, value: Any, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise InputError(f"{name} is {str(value)[:40]!r}; it must be a whole number from 1 to {most}")


def _nearest(x: Point, points: Sequence[Point]) -> Point:
    return min(points, key=lambda point: max(abs(a - b) for a, b in zip(point, x, strict=True)))


def points_from_dict(data: dict[str, Any], source: str) -> PointsTarget:
    """A target of points from parsed TOML or JSON."""
    unknown = set(data) - {"kind", "length", "space", "rho", "f", "F", "points"}
    if unknown:
        raise InputError(f"{source}: unknown key {sorted(unknown)[0]!r}")
    space, length = data.get("space", 1), data.get("length", 0)
    _check_whole(f"{source}: space", space, MAX_SPACE)
    _check_whole(f"{source}: length", length, MAX_LENGTH)
    u, v, x = ([f"{letter}{k}" for k in range(1, space + 1)] for letter in "uvx")
    given = data.get("f", x)
    if not isinstance(given, str) and not (isinstance(given, list) and 1 <= len(given) <= MAX_VALUES):
        raise InputError(f"{source}: f must be a formula, or a list of 1 to {MAX_VALUES} of them, one for each component")
    components = [given] if isinstance(given, str) else given
    outer = data.get("F", "y1")
    if not isinstance(outer, str):
        raise InputError(f"{source}: F must be text in y1, y2, …")
    rho = _terms(data.get("rho"), ["t", "s", *u, *v], "rho", source)
    f = tuple(_terms(component, ["s", *x], "f", source) for component in components)
    return PointsTarget(length, space, rho, f, outer, _points(data.get("points"), length, source))


def _terms(given: Any, variables: list[str], what: str, source: str) -> Terms:
    """Summands, from a text or from a list of texts."""
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list) or not 1 <= len(texts) <= MAX_TERMS:
        raise InputError(f"{source}: {what} must be a formula in {', '.join(variables)}, or a list of up to {MAX_TERMS} that are added")
    return tuple(parse_formula(text, variables, what) for text in texts)


def _points(given: Any, length: int, source: str) -> tuple[tuple[Point, ...], ...] | None:
    """One set of points for all positions, or a list with one set for each."""
    if given is None:
        return None
    wrong = InputError(
        f"{source}: points must be a list of vectors such as [[0, 0.5], [1, 0.25]], or a list of such lists, one for each position"
    )
    if not isinstance(given, list) or not given or not all(isinstance(entry, list) and entry for entry in given):
        raise wrong
    shared = not any(isinstance(entry[0], list) for entry in given)
    sets = [given] * length if shared else given
    if not all(isinstance(point, list) for points in sets for point in points):
        raise wrong
    return tuple(tuple(tuple(exact_number(x, "points") for x in point) for point in points) for points in sets)
