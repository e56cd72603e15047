"""How large the numbers of an expression can become: a bound in bits, from its syntax tree alone, before anything is computed.

All languages (read-outs, lags, kernels, formulas) keep a sub-expression as a sum of basic functions with rational coefficients. Over a
common denominator 10^k Q the numerators are integers P_i; let Σ|P_i| ≤ 2^n and Q ≤ 2^d. Then (n, k, d) is bounded bottom-up:

    sum       10^max(k, k') QQ', numerators brought to it: n = 1 + max(n + (max − k) log₂10 + d', n' + (max − k') log₂10 + d);
    product   Σ|P_i P'_j| = Σ|P_i| Σ|P'_j|: everything adds up, and one bit for the halves of product-to-sum formulas;
    quotient  by a number P'/(10^k' Q'): the product with 10^k' Q'/P';
    power e   |e| times everything, numerator and denominator exchanged for e < 0; fractional powers keep their base and carry e beside it;
    function  its argument is kept as it is: a number of that size in a basic function.

Powers of ten are kept apart because decimals share them: a sum of a hundred decimals has the denominator of one.
"""

import ast
import math
from dataclasses import dataclass

from flint import fmpq

from analyzer.errors import InputError
from analyzer.numbers.exact import rational

MAX_BITS = 1 << 16
"""Bits of a number in an expression, numerator and denominator together. A literal has at most 80 digits and an exponent of 99, 730 bits in
all, and exponents reach 64: every power of a literal fits. Products of such numbers take microseconds, so the operations that 2000
characters can hold take less than a second; and twice as many bits still fit into a bundle, whose numbers have 40,000 digits."""
MAX_DEPTH = 400
"""Operations inside each other: readers go down one call for each, and Python allows a thousand."""
FOLDED = 128
"""Numbers of up to this many bits are computed here: exponents, of which all languages take small ones only."""
TEN = math.log2(10)


@dataclass(frozen=True)
class Height:
    """Coefficients P_i/(10^k Q) with Σ|P_i| ≤ 2^n and Q ≤ 2^d; `value` is the number itself if it is one and small."""

    n: int
    k: int = 0
    d: int = 0
    value: fmpq | None = None

    @property
    def bits(self) -> int:
        """Numerator and denominator together."""
        return self.n + self.denominator

    @property
    def denominator(self) -> int:
        """Bits of 10^k Q."""
        return math.ceil(self.k * TEN) + self.d

    def plus(self, other: "Height") -> "Height":
        k = max(self.k, other.k)
        mine, theirs = (math.ceil((k - h.k) * TEN) for h in (self, other))
        return Height(1 + max(self.n + mine + other.d, other.n + theirs + self.d), k, self.d + other.d)

    def times(self, other: "Height") -> "Height":
        return Height(self.n + other.n + 1, self.k + other.k, self.d + other.d)

    def inverse(self) -> "Height":
        return Height(self.denominator, 0, self.n)

    def power(self, exponent: fmpq) -> "Height":
        base = self if exponent >= 0 else self.inverse()
        if exponent.q != 1:
            return Height(base.bits + _bits(exponent) + 1)
        e = abs(int(exponent.p))
        return Height(e * (base.n + 1), e * base.k, e * base.d)

    def inside(self) -> "Height":
        """Of a function with this argument."""
        return Height(self.bits + 1)


def _bits(value: fmpq) -> int:
    return int(value.p).bit_length() + int(value.q).bit_length()


def check_size(text: str, tree: ast.expr, what: str) -> None:
    """Refuse an expression whose numbers could exceed `MAX_BITS`, naming the smallest part that does; what no language knows passes."""
    if _depth(tree) > MAX_DEPTH:
        raise InputError(f"the {what} has operations nested more than {MAX_DEPTH} deep")
    _Sizes(text, what).height(tree)


def _depth(tree: ast.expr) -> int:
    """Nesting, without recursion."""
    deepest, stack = 0, [(tree, 1)]
    while stack:
        node, depth = stack.pop()
        deepest = max(deepest, depth)
        stack += [(child, depth + 1) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr)]
    return deepest


class _Sizes:
    def __init__(self, text: str, what: str) -> None:
        self.text, self.what = text, what

    def height(self, node: ast.expr) -> Height:
        found = self._height(node)
        if found.bits > MAX_BITS:
            source = ast.get_source_segment(self.text, node) or ""
            kind = "power" if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) else "term"
            size = f"{found.bits}" if found.bits < 10**12 else f"more than 2^{found.bits.bit_length() - 1}"
            raise InputError(f"{self.what} {kind} {source[:60]!r}: its numbers can have {size} bits, the limit is {MAX_BITS}")
        return found

    def _height(self, node: ast.expr) -> Height:
        match node:
            case ast.Constant(value=int() | float()) if not isinstance(node.value, bool):
                return self.literal(node)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                inner = self.height(operand)
                return Height(inner.n, inner.k, inner.d, None if inner.value is None else -inner.value)
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.height(operand)
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.Pow() as op, right=right):
                return self.binary(self.height(left), op, self.height(right))
            case ast.Call(args=arguments):
                inner_heights = [self.height(argument) for argument in arguments]
                return max((h.inside() for h in inner_heights), key=lambda h: h.n, default=Height(0))
        return Height(0)

    def literal(self, node: ast.Constant) -> Height:
        """Decimals p·10^−k as they are written; what is no decimal of reasonable size is for the reader to refuse."""
        try:
            value = rational((ast.get_source_segment(self.text, node) or "").replace("_", ""))
        except InputError:
            return Height(0)
        tens = 0
        while (value * fmpq(10) ** tens).q != 1:
            tens += 1
        return Height(int((value * fmpq(10) ** tens).p).bit_length(), tens, 0, value)

    def binary(self, left: Height, op: ast.operator, right: Height) -> Height:
        value = _folded(left.value, op, right.value)
        match op:
            case ast.Add() | ast.Sub():
                found = left.plus(right)
            case ast.Mult():
                found = left.times(right)
            case ast.Div():
                found = left.times(right.inverse())
            case _:  # an exponent that is no small number is refused by every reader before it computes
                found = left.times(right) if right.value is None else left.power(right.value)
        return Height(found.n, found.k, found.d, value)


def _folded(left: fmpq | None, op: ast.operator, right: fmpq | None) -> fmpq | None:
    """left op right where that is a small number."""
    if left is None or right is None or (isinstance(op, ast.Div) and right == 0):
        return None
    match op:
        case ast.Add():
            value = left + right
        case ast.Sub():
            value = left - right
        case ast.Mult():
            value = left * right
        case ast.Div():
            value = left / right
        case _:
            if right.q != 1 or abs(right) * _bits(left) > FOLDED or (left == 0 and right < 0):
                return None
            value = left ** int(right.p)
    return value if _bits(value) <= FOLDED else None
