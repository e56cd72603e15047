"""Expressions for read-outs and lags: a whitelist over Python's syntax tree, and the algebra of ridge sums.

Text is parsed, never evaluated. What the algebra can hold is a polynomial plus a sum of ridges ψ(affine): addition and scaling
stay inside it, a power of an affine form is a ridge, products of polynomials are polynomials, and a function of anything that is
not affine is refused, naming the term.
"""

import ast
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

from flint import fmpq

from analyzer.errors import InputError
from analyzer.language.sizes import check_size
from analyzer.numbers.exact import rational
from analyzer.numbers.profiles import FUNCTIONS, Ridge, power

MAX_CHARACTERS = 2000
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
    tree = syntax_tree(text, what)
    try:
        return _Reader(text.strip(), slots, dim, what, functions).read(tree)
    except (RecursionError, MemoryError) as error:
        raise InputError(f"the {what} {text[:60]!r} is not an expression: {type(error).__name__}") from None


def names_in(text: str, what: str) -> list[str]:
    """The names that an expression uses, in order of appearance; function names excluded."""
    nodes = list(ast.walk(syntax_tree(text, what)))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return list(dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called))


def syntax_tree(text: str, what: str) -> ast.expr:
    """The expression's tree; text that is too long, no expression, or one with enormous numbers (`analyzer.language.sizes`) is refused."""
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"the {what} has {len(text)} characters, the limit is {MAX_CHARACTERS}")
    try:
        with warnings.catch_warnings():  # the parser comments on odd spellings; the whitelist decides
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(text.strip(), mode="eval").body
        check_size(text.strip(), tree, what)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"the {what} {text[:60]!r} is not an expression: {type(error).__name__}") from None
    return tree


class _Reader:
    def __init__(self, text: str, slots: dict[str, int], dim: int, what: str, functions: Sequence[str]) -> None:
        self.text, self.slots, self.dim, self.what, self.functions = text, slots, dim, what, functions
        self.coordinates = len(slots) * dim

    def source(self, node: ast.AST) -> str:
        return (ast.get_source_segment(self.text, node) or "")[:60]

    def refuse(self, node: ast.AST, reason: str) -> InputError:
        return InputError(f"{self.what} term {self.source(node)!r}: {reason}")

    def read(self, node: ast.expr) -> Sum:
        match node:
            case ast.Constant(value=bool() | str() | bytes() | complex() | None):
                raise self.refuse(node, "only real numbers are allowed")
            case ast.Constant():
                return constant(self.coordinates, rational(self.source(node).replace("_", "")))
            case ast.Name(id=name):
                if self.dim > 1 and name in self.slots:
                    raise self.refuse(node, f"has {self.dim} coordinates; write {name}[0] … {name}[{self.dim - 1}]")
                return self.coordinate(node, name, 0)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(index))) if not isinstance(index, bool):
                return self.coordinate(node, name, index)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.read(operand).scaled(fmpq(-1))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.read(left).plus(self.read(right), fmpq(1))
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self.read(left).plus(self.read(right), fmpq(-1))
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self.product(node, self.read(left), self.read(right))
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                divisor = self.read(right).constant()
                if divisor is None or divisor == 0:
                    raise self.refuse(node, "division is allowed by a non-zero number only")
                return self.read(left).scaled(1 / divisor)
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self.power(node, self.read(left), self.read(right).constant())
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in self.functions:
                return self.function(node, name, self.read(argument))
        allowed = ", ".join(self.functions)
        raise self.refuse(node, f"not allowed; use {', '.join(self.slots)}, numbers, + - * / ** and {allowed}")

    def coordinate(self, node: ast.AST, name: str, index: int) -> Sum:
        if name not in self.slots:
            raise self.refuse(node, f"unknown name; the slots are {', '.join(self.slots)}")
        if not 0 <= index < self.dim:
            raise self.refuse(node, f"coordinate {index} of {self.dim}")
        position = self.slots[name] * self.dim + index
        return affine(tuple(fmpq(int(j == position)) for j in range(self.coordinates)), fmpq(0))

    def product(self, node: ast.AST, left: Sum, right: Sum) -> Sum:
        for factor, other in ((left, right), (right, left)):
            value = factor.constant()
            if value is not None:
                return other.scaled(value)
        a, b = left.expanded(), right.expanded()
        if a is None or b is None:
            raise self.refuse(node, "a product with a function in it is no sum of ridge functions")
        return _multiply(a, b)

    def power(self, node: ast.AST, base: Sum, exponent: fmpq | None) -> Sum:
        if exponent is None or exponent.q != 1 or not 0 <= exponent <= MAX_DEGREE:
            raise self.refuse(node, f"exponents are whole numbers from 0 to {MAX_DEGREE}")
        degree = int(exponent.p)
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
            result = self.product(node, result, base)
        return result

    def function(self, node: ast.AST, name: str, argument: Sum) -> Sum:
        if not argument.is_affine():
            raise self.refuse(node, f"no ridge function: the argument of {name} must be affine in the slots")
        direction, offset = argument.affine_parts()
        if all(w == 0 for w in direction) and name not in ("relu", "abs"):
            raise self.refuse(node, "a function of a number; write the number")
        if all(w == 0 for w in direction):
            return constant(self.coordinates, max(offset, fmpq(0)) if name == "relu" else abs(offset))
        return Sum(self.coordinates, {}, [Ridge(FUNCTIONS[name], fmpq(1), direction, offset)])
