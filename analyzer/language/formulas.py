"""Formulas in named real variables, such as a coupling `exp(-(u-v)**2)`: parsed over a whitelist, computed in any arithmetic.

Text becomes a tree, never code. One tree serves four arithmetics: rationals (`exact`), balls (`at`), truncated power series with ball
coefficients (`taylor`: derivatives on whole intervals), and anything that looks like numpy (`compiled`: arrays, JAX). A ball or a
coefficient that cannot be shown to be finite comes out as not finite: what is undefined somewhere in a box is never given a value
there.
"""

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from flint import arb, arb_series, ctx, fmpq

from analyzer.errors import InputError
from analyzer.language.reader import Reader
from analyzer.numbers.exact import nearest

MAX_NODES = 400
MAX_EXPONENT = 64
MAX_BITS = 65536
"""Bits of a power of a rational; longer ones are enclosed instead."""
FUNCTIONS = ("exp", "log", "sqrt", "sin", "cos", "tanh", "abs", "relu")

Node = tuple[Any, ...]
"""("number", q) · ("pi",) · ("variable", index) · (operation, Node, …) · ("power", Node, q)."""


@dataclass(frozen=True)
class Formula:
    """A real function of the named variables."""

    text: str
    variables: tuple[str, ...]
    root: Node

    def at(self, *point: arb | fmpq | int) -> arb:
        """The value on a box of balls (not finite if it cannot be shown to be)."""
        return self._balls(tuple(v if isinstance(v, arb) else arb(v) for v in point))

    def exact(self, *point: fmpq) -> fmpq | None:
        """The value at rationals, if only operations that keep numbers rational lead to it; None otherwise."""
        try:
            found: fmpq = self._rationals(point)
            return found
        except (NotRational, ZeroDivisionError):
            return None

    def taylor(self, index: int, order: int, *point: arb) -> list[arb]:
        """Enclosures of ∂^j/j! in one variable for j = 0..order, on a box of balls."""
        before, ctx.cap = ctx.cap, order + 1
        try:
            values = [arb_series([v, arb(1)]) if k == index else arb_series([v]) for k, v in enumerate(point)]
            series = self._series(tuple(values))
            known = series.prec > order  # a series does not say what lies beyond its length: its coefficients there read as 0
            return [_real(series[j]) if known else arb.nan() for j in range(order + 1)]
        finally:
            ctx.cap = before

    def compiled(self, xp: Any) -> Callable[..., Any]:
        """The function on arrays of a numpy-like module."""
        run = _compile(self.root, _Arrays(xp))
        return lambda *values: run(values)

    def symbolic(self, *point: Any) -> Any:
        """The same as an expression of sympy."""
        return _compile(self.root, _Symbols())(point)

    @cached_property
    def _balls(self) -> Callable[[tuple[arb, ...]], arb]:
        return _compile(self.root, _Balls())

    @cached_property
    def _rationals(self) -> Callable[[tuple[fmpq, ...]], fmpq]:
        return _compile(self.root, _Rationals())

    @cached_property
    def _series(self) -> Callable[[tuple[arb_series, ...]], arb_series]:
        return _compile(self.root, _Series())

    @cached_property
    def cost(self) -> int:
        """Operations that one value takes."""
        return sum(1 for _ in _walk(self.root))

    @property
    def used(self) -> set[str]:
        """Variables that really occur."""
        return {self.variables[node[1]] for node in _walk(self.root) if node[0] == "variable"}

    def among(self, variables: Sequence[str], numbers: Mapping[str, int]) -> "Formula":
        """The same function of `variables` alone, the others having become numbers."""

        def changed(node: Node) -> Node:
            if node[0] == "variable":
                name = self.variables[node[1]]
                return ("variable", variables.index(name)) if name in variables else ("number", fmpq(numbers[name]))
            return (node[0], *(changed(part) if isinstance(part, tuple) else part for part in node[1:]))

        return Formula(self.text, tuple(variables), changed(self.root))


def parse_formula(text: Any, variables: Sequence[str], what: str) -> Formula:
    """Parse a formula; `what` it is goes into error messages."""
    if not isinstance(text, str):
        raise InputError(f"{what} must be text such as 'sin(2*pi*{variables[0]})', not {str(text)[:40]!r}")
    root = FormulaReader(text, variables, what).whole()
    if sum(1 for _ in _walk(root)) > MAX_NODES:
        raise InputError(f"{what} has more than {MAX_NODES} terms and factors")
    return Formula(text, tuple(variables), root)


def _walk(node: Node) -> Any:
    yield node
    for part in node[1:]:
        if isinstance(part, tuple):
            yield from _walk(part)


class FormulaReader(Reader[Node]):
    """Formulas: the tree itself, with exponents folded to numbers."""

    functions: tuple[str, ...] = FUNCTIONS

    def __init__(self, text: str, variables: Sequence[str], what: str) -> None:
        super().__init__(text, what)
        self.variables = tuple(variables)

    @property
    def vocabulary(self) -> str:
        return f"{', '.join(self.variables)}, numbers, pi"

    def number(self, value: fmpq) -> Node:
        return ("number", value)

    def name(self, node: ast.expr, name: str) -> Node:
        if name == "pi":
            return ("pi",)
        if name not in self.variables:
            raise self.unknown(node)
        return ("variable", self.variables.index(name))

    def negative(self, value: Node) -> Node:
        return ("negative", value)

    def plus(self, left: Node, right: Node) -> Node:
        return ("plus", left, right)

    def minus(self, left: Node, right: Node) -> Node:
        return ("minus", left, right)

    def times(self, node: ast.expr, left: Node, right: Node) -> Node:
        return ("times", left, right)

    def over(self, node: ast.expr, left: Node, right: Node) -> Node:
        return ("over", left, right)

    def power(self, node: ast.expr, base: Node, exponent: Node) -> Node:
        number = _constant(exponent)
        if number is None or abs(number) > MAX_EXPONENT:
            raise self.refuse(node, f"exponents are numbers from -{MAX_EXPONENT} to {MAX_EXPONENT}")
        return ("power", base, number)

    def function(self, node: ast.expr, name: str, argument: Node) -> Node:
        return (name, argument)


def _constant(node: Node) -> fmpq | None:
    """The rational that a sub-tree without variables stands for."""
    match node:
        case ("number", value):
            return value
        case ("negative", inner):
            value = _constant(inner)
            return None if value is None else -value
        case ("over", above, below):
            numerator, denominator = _constant(above), _constant(below)
            return None if numerator is None or not denominator else numerator / denominator
    return None


def _compile(node: Node, algebra: Any) -> Callable[[tuple[Any, ...]], Any]:
    """Closures instead of a tree walk: couplings are evaluated at hundreds of thousands of points."""
    match node:
        case ("number", value):
            return lambda _: algebra.number(value)  # anew each time: precision and length of series are those of the call
        case ("pi",):
            return lambda _: algebra.pi()
        case ("variable", index):
            return lambda values: values[index]
        case ("power", base, exponent):
            inner, power = _compile(base, algebra), algebra.power
            return lambda values: power(inner(values), exponent)
        case (name, left, right):
            first, second = _compile(left, algebra), _compile(right, algebra)
            if name == "plus":
                return lambda values: first(values) + second(values)
            if name == "minus":
                return lambda values: first(values) - second(values)
            if name == "times":
                return lambda values: first(values) * second(values)
            over = algebra.over
            return lambda values: over(first(values), second(values))
        case (name, argument):
            inner, function = _compile(argument, algebra), getattr(algebra, name)
            return lambda values: function(inner(values))
    raise TypeError(f"no operation {node[0]}")


class _Balls:
    """arb: undefined values are not finite."""

    def number(self, value: fmpq) -> arb:
        return arb(value)

    def pi(self) -> arb:
        return arb.pi()

    def power(self, base: arb, exponent: fmpq) -> arb:
        if exponent.q == 1:
            whole = int(exponent.p)
            return whole_power(base, whole) if whole >= 0 else 1 / whole_power(base, -whole)
        return base.sqrt() ** int(exponent.p) if exponent.q == 2 and exponent > 0 else base ** arb(exponent)

    def over(self, above: arb, below: arb) -> arb:
        return above / below

    def negative(self, x: arb) -> arb:
        return -x

    def exp(self, x: arb) -> arb:
        return x.exp()

    def log(self, x: arb) -> arb:
        return x.log()

    def sqrt(self, x: arb) -> arb:
        return x.sqrt()

    def sin(self, x: arb) -> arb:
        return x.sin()

    def cos(self, x: arb) -> arb:
        return x.cos()

    def tanh(self, x: arb) -> arb:
        return tanh(x)

    def abs(self, x: arb) -> arb:
        return abs(x)

    def relu(self, x: arb) -> arb:
        return x.max(arb(0))


class _Symbols:
    """sympy, exactly: tanh is written by exponentials, so that what is equal can be seen to be."""

    def __init__(self) -> None:
        import sympy  # here, so that formulas do not wait for it

        self.exp, self.log, self.sqrt, self.sin, self.cos, self.abs = sympy.exp, sympy.log, sympy.sqrt, sympy.sin, sympy.cos, sympy.Abs
        self.rational, self.largest, self.constant = sympy.Rational, sympy.Max, sympy.pi

    def number(self, value: fmpq) -> Any:
        return self.rational(int(value.p), int(value.q))

    def pi(self) -> Any:
        return self.constant

    def power(self, base: Any, exponent: fmpq) -> Any:
        return base ** self.number(exponent)

    def over(self, above: Any, below: Any) -> Any:
        return above / below

    def negative(self, x: Any) -> Any:
        return -x

    def tanh(self, x: Any) -> Any:
        return 1 - 2 / (self.exp(2 * x) + 1)

    def relu(self, x: Any) -> Any:
        return self.largest(x, 0)


class NotRational(ArithmeticError):
    """A function was met whose values at rationals are, in general, none."""


class _Rationals:
    """fmpq: four operations, whole powers, abs and relu."""

    def number(self, value: fmpq) -> fmpq:
        return value

    def pi(self) -> fmpq:
        raise NotRational

    def power(self, base: fmpq, exponent: fmpq) -> fmpq:
        whole = int(exponent.p)
        if exponent.q != 1 or abs(whole) * (int(base.p).bit_length() + int(base.q).bit_length()) > MAX_BITS:
            raise NotRational
        return base**whole

    def over(self, above: fmpq, below: fmpq) -> fmpq:
        return above / below

    def negative(self, x: fmpq) -> fmpq:
        return -x

    def abs(self, x: fmpq) -> fmpq:
        return abs(x)

    def relu(self, x: fmpq) -> fmpq:
        return max(x, fmpq(0))

    def exp(self, x: fmpq) -> fmpq:
        raise NotRational

    log = sqrt = sin = cos = tanh = exp


def whole_power(base: arb, exponent: int) -> arb:
    """x^n on a ball; the library's power is undefined on balls around 0, where odd powers are monotone and even ones not negative."""
    if exponent == 0:
        return arb(1) if base.is_finite() else arb.nan()
    if not base.contains(0):
        return base**exponent
    if exponent % 2 == 0:
        return arb(0).union(base.abs_upper() ** exponent)
    return (base.lower() ** exponent).union(base.upper() ** exponent)


def tanh(x: arb) -> arb:
    """tanh on a ball, from its ends; the library's is undefined on long balls around 0."""
    return x.lower().tanh().union(x.upper().tanh()) if x.is_finite() else arb.nan()


class _Series:
    """Power series with ball coefficients: Taylor coefficients on an interval are those of the series at the interval."""

    def number(self, value: fmpq) -> arb_series:
        return arb_series([arb(value)])

    def pi(self) -> arb_series:
        return arb_series([arb.pi()])

    def power(self, base: arb_series, exponent: fmpq) -> arb_series:
        if exponent.q == 1 and exponent >= 0:
            result, factor, left = arb_series([arb(1)]), base, int(exponent.p)
            while left:
                if left & 1:
                    result = result * factor
                left >>= 1
                factor = factor * factor if left else factor
            return result
        if exponent.q == 1:
            return self.over(arb_series([arb(1)]), self.power(base, -exponent))
        return self._defined(base, _real(base[0]) > 0, lambda: (base.log() * arb_series([arb(exponent)])).exp())

    def over(self, above: arb_series, below: arb_series) -> arb_series:
        return self._defined(below, not _real(below[0]).contains(0), lambda: above / below)

    def negative(self, x: arb_series) -> arb_series:
        return -x

    def exp(self, x: arb_series) -> arb_series:
        return x.exp()

    def log(self, x: arb_series) -> arb_series:
        return self._defined(x, _real(x[0]) > 0, x.log)

    def sqrt(self, x: arb_series) -> arb_series:
        return self._defined(x, _real(x[0]) > 0, x.sqrt)

    def sin(self, x: arb_series) -> arb_series:
        return x.sin()

    def cos(self, x: arb_series) -> arb_series:
        return x.cos()

    def tanh(self, x: arb_series) -> arb_series:
        """t' = (1 − t²) x', coefficient by coefficient: finite on every interval, however long."""
        inner = [_real(x[j]) if x.prec > j else arb.nan() for j in range(ctx.cap)]
        start = tanh(inner[0])
        outer, slope = [start], [1 - start * start]
        for k in range(1, ctx.cap):
            outer.append(sum((slope[j] * (k - j) * inner[k - j] for j in range(k)), arb(0)) / k)
            slope.append(-sum((outer[i] * outer[k - i] for i in range(k + 1)), arb(0)))
        return arb_series(outer)

    def abs(self, x: arb_series) -> arb_series:
        return self._kink(x, arb(-1))

    def relu(self, x: arb_series) -> arb_series:
        return self._kink(x, arb(0))

    def _kink(self, x: arb_series, left: arb) -> arb_series:
        """Slope `left` below 0 and 1 above it; across 0 the slope is between them and higher derivatives do not exist."""
        value = _real(x[0])
        if value >= 0:
            return x
        if value <= 0:
            return arb_series([left]) * x
        size = abs(value) if left < 0 else value.max(arb(0))
        slope = left.union(arb(1)) * _real(x[1]) if ctx.cap > 1 else arb(0)
        flat = all(_real(x[j]) == 0 for j in range(1, ctx.cap))
        return arb_series([size, slope] + [arb(0) if flat else arb.nan()] * max(ctx.cap - 2, 0))

    def _defined(self, x: arb_series, defined: bool, value: Callable[[], arb_series]) -> arb_series:
        return value() if defined else arb_series([arb.nan()] * ctx.cap)


def _real(coefficient: Any) -> arb:
    return arb(coefficient)


class _Arrays:
    """Anything with numpy's names; values outside a domain, and constants beyond the floats, become NaN there."""

    def __init__(self, xp: Any) -> None:
        self.xp = xp
        for name in ("exp", "log", "sqrt", "sin", "cos", "tanh", "abs"):
            setattr(self, name, getattr(xp, name))

    def number(self, value: fmpq) -> float:
        return nearest(value)

    def pi(self) -> float:
        return float(arb.pi())

    def power(self, base: Any, exponent: fmpq) -> Any:
        try:
            return base ** (int(exponent.p) if exponent.q == 1 else nearest(exponent))
        except (OverflowError, ZeroDivisionError):  # constants are Python's floats, which raise
            return math.nan

    def over(self, above: Any, below: Any) -> Any:
        try:
            return above / below
        except ZeroDivisionError:
            return math.nan

    def negative(self, x: Any) -> Any:
        return -x

    def relu(self, x: Any) -> Any:
        return self.xp.maximum(x, 0)
