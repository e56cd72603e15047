"""Expressions for read-outs and lags (`analyzer.language.reader`): the algebra of ridge sums.

What the algebra can hold is a polynomial plus a sum of ridges ψ(affine): addition and scaling
stay inside it, a power of an affine form is a ridge, products of polynomials are polynomials, and a function of anything that is
not affine is refused, naming the term.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field

from flint import fmpq

from analyzer.errors import InputError
from analyzer.language.reader import Reader
from analyzer.numbers.profiles import FUNCTIONS, Ridge, power

MAX_DEGREE = 8
MAX_TERMS = 2000
MAX_WORK = 1 << 20
"""Exponents that one product of polynomials, or the polarisation of one polynomial, adds up: seconds."""

Monomial = tuple[int, ...]


@dataclass
class Sum:
    """polynomial (monomial exponents → coefficient) plus ridges, in the given coordinates."""

    coordinates: int
    polynomial: dict[Monomial, fmpq] = field(default_factory=dict)
    ridges: list[Ridge] = field(default_factory=list)

    def degree(self) -> int:
        return max((sum(m) for m in self.polynomial), default=0)

    def is_affine(self) -> bool:
        return not self.ridges and self.degree() <= 1

    def constant(self) -> fmpq | None:
        """The value, if this is a constant."""
        if self.ridges or self.degree() > 0:
            return None
        return self.polynomial.get((0,) * self.coordinates, fmpq(0))

    def affine_parts(self) -> tuple[tuple[fmpq, ...], fmpq]:
        """(direction, offset) of an affine form."""
        direction, offset = [fmpq(0)] * self.coordinates, fmpq(0)
        for monomial, coefficient in self.polynomial.items():  # of few terms, however many coordinates there are
            if any(monomial):
                direction[monomial.index(1)] = coefficient
            else:
                offset = coefficient
        return tuple(direction), offset

    def plus(self, other: "Sum", factor: fmpq) -> "Sum":
        polynomial = dict(self.polynomial)
        for monomial, coefficient in other.polynomial.items():
            polynomial[monomial] = polynomial.get(monomial, fmpq(0)) + factor * coefficient
        scaled = other.scaled(factor)
        return Sum(self.coordinates, {m: c for m, c in polynomial.items() if c != 0}, self.ridges + scaled.ridges)

    def scaled(self, factor: fmpq) -> "Sum":
        if factor == 0:
            return Sum(self.coordinates)
        ridges = [Ridge(r.profile, r.scale * factor, r.direction, r.offset) for r in self.ridges]
        return Sum(self.coordinates, {m: c * factor for m, c in self.polynomial.items()}, ridges)

    def at(self, point: Sequence[fmpq]) -> fmpq | None:
        """The exact value, or None if a transcendental function is in it."""
        total = fmpq(0)
        for monomial, coefficient in self.polynomial.items():
            term = coefficient
            for x, exponent in zip(point, monomial, strict=True):
                term *= x**exponent
            total += term
        for ridge in self.ridges:
            value = ridge.profile.exactly(sum((w * x for w, x in zip(ridge.direction, point, strict=True)), ridge.offset))
            if value is None:
                return None
            total += ridge.scale * value
        return total

    def expanded(self) -> "Sum | None":
        """The same sum as a polynomial, or None if it holds a function that is none."""
        result = Sum(self.coordinates, dict(self.polynomial))
        for ridge in self.ridges:
            if ridge.profile.degree is None:
                return None
            base = affine(ridge.direction, ridge.offset)
            product = constant(self.coordinates, ridge.scale)
            for _ in range(ridge.profile.degree):
                product = _multiply(product, base)
            result = result.plus(product, fmpq(1))
        return result


def constant(coordinates: int, value: fmpq) -> Sum:
    return Sum(coordinates, {(0,) * coordinates: value} if value != 0 else {})


def affine(direction: tuple[fmpq, ...], offset: fmpq) -> Sum:
    n = len(direction)
    polynomial = {tuple(int(i == j) for i in range(n)): w for j, w in enumerate(direction) if w != 0}
    if offset != 0:
        polynomial[(0,) * n] = offset
    return Sum(n, polynomial)


def _multiply(left: Sum, right: Sum) -> Sum:
    work = len(left.polynomial) * len(right.polynomial) * left.coordinates
    if work > MAX_WORK:
        raise InputError(f"an expression asks for products of {work} exponents in all, the limit is {MAX_WORK}")
    polynomial: dict[Monomial, fmpq] = {}
    for m, a in left.polynomial.items():
        for k, b in right.polynomial.items():
            monomial = tuple(i + j for i, j in zip(m, k, strict=True))
            if sum(monomial) > MAX_DEGREE:
                raise InputError(f"an expression has degree above {MAX_DEGREE}")
            polynomial[monomial] = polynomial.get(monomial, fmpq(0)) + a * b
            if len(polynomial) > MAX_TERMS:
                raise InputError(f"an expression expands to more than {MAX_TERMS} terms")
    return Sum(left.coordinates, {m: c for m, c in polynomial.items() if c != 0})


def parse(text: str, slots: dict[str, int], dim: int, what: str = "read-out", functions: Sequence[str] = tuple(FUNCTIONS)) -> Sum:
    """Parse an expression over named slots (name → position), each of `dim` coordinates; `what` it is goes into error messages."""
    return RidgeReader(text, slots, dim, what, functions).whole()


class RidgeReader(Reader[Sum]):
    """Read-outs and lags: sums of ridge functions of the slots' coordinates."""

    def __init__(self, text: str, slots: dict[str, int], dim: int, what: str, functions: Sequence[str]) -> None:
        super().__init__(text, what)
        self.slots, self.dim, self.functions = slots, dim, tuple(functions)
        self.coordinates = len(slots) * dim

    @property
    def vocabulary(self) -> str:
        return f"{', '.join(self.slots)}, numbers"

    def number(self, value: fmpq) -> Sum:
        return constant(self.coordinates, value)

    def name(self, node: ast.expr, name: str) -> Sum:
        if self.dim > 1 and name in self.slots:
            raise self.refuse(node, f"has {self.dim} coordinates; write {name}[0] … {name}[{self.dim - 1}]")
        return self.element(node, name, 0)

    def element(self, node: ast.expr, name: str, index: int) -> Sum:
        if name not in self.slots:
            raise self.refuse(node, f"unknown name; the slots are {', '.join(self.slots)}")
        if not 0 <= index < self.dim:
            raise self.refuse(node, f"coordinate {index} of {self.dim}")
        position = self.slots[name] * self.dim + index
        return affine(tuple(fmpq(int(j == position)) for j in range(self.coordinates)), fmpq(0))

    def negative(self, value: Sum) -> Sum:
        return value.scaled(fmpq(-1))

    def plus(self, left: Sum, right: Sum) -> Sum:
        return left.plus(right, fmpq(1))

    def minus(self, left: Sum, right: Sum) -> Sum:
        return left.plus(right, fmpq(-1))

    def times(self, node: ast.expr, left: Sum, right: Sum) -> Sum:
        for factor, other in ((left, right), (right, left)):
            value = factor.constant()
            if value is not None:
                return other.scaled(value)
        a, b = left.expanded(), right.expanded()
        if a is None or b is None:
            raise self.refuse(node, "a product with a function in it is no sum of ridge functions")
        return _multiply(a, b)

    def over(self, node: ast.expr, left: Sum, right: Sum) -> Sum:
        divisor = right.constant()
        if divisor is None or divisor == 0:
            raise self.refuse(node, "division is allowed by a non-zero number only")
        return left.scaled(1 / divisor)

    def power(self, node: ast.expr, base: Sum, exponent: Sum) -> Sum:
        number = exponent.constant()
        if number is None or number.q != 1 or not 0 <= number <= MAX_DEGREE:
            raise self.refuse(node, f"exponents are whole numbers from 0 to {MAX_DEGREE}")
        degree = int(number.p)
        if degree == 0:
            return constant(self.coordinates, fmpq(1))
        if degree == 1:
            return base
        value = base.constant()
        if value is not None:
            return constant(self.coordinates, value**degree)
        if base.is_affine():
            direction, offset = base.affine_parts()
            return Sum(self.coordinates, {}, [Ridge(power(degree), fmpq(1), direction, offset)])
        result = base
        for _ in range(degree - 1):
            result = self.times(node, result, base)
        return result

    def function(self, node: ast.expr, name: str, argument: Sum) -> Sum:
        if not argument.is_affine():
            raise self.refuse(node, f"no ridge function: the argument of {name} must be affine in the slots")
        direction, offset = argument.affine_parts()
        if all(w == 0 for w in direction) and name not in ("relu", "abs"):
            raise self.refuse(node, "a function of a number; write the number")
        if all(w == 0 for w in direction):
            return constant(self.coordinates, max(offset, fmpq(0)) if name == "relu" else abs(offset))
        return Sum(self.coordinates, {}, [Ridge(FUNCTIONS[name], fmpq(1), direction, offset)])
