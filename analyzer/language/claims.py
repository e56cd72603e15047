"""Claims such as `e <= 3*T**2/H`: inequalities, or chains of them, between formulas in sizes and quantities.

A *size* is any name that stands for a given positive number (T, H, n, …). A *quantity* is a name of the table `QUANTITIES`: what the
toolkit encloses by itself. Text becomes a tree, never code. A side is computed in ball arithmetic; where it is undefined, or cannot be
shown to be defined, the ball is not finite and decides nothing:

    left ≤ right   holds where sup left ≤ inf right, is refuted where inf left > sup right, and is undecided otherwise.
"""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.language.formulas import FormulaReader, tanh, whole_power
from analyzer.language.reader import MAX_CHARACTERS

FUNCTIONS = ("exp", "log", "log2", "sqrt", "abs", "sin", "cos", "tanh", "floor", "ceil", "factorial", "zeta")
PAIRS = ("min", "max")
"""Functions of two arguments."""
QUANTITIES = {
    "e": "error of a construction's attention, ‖κ − 1_T‖ in ℓ¹",
    "error": "error of the whole network",
    "bound": "what the theorem promises",
    "heads": "least number of heads for an error",
    "E_u": "least error that arithmetic with unit roundoff u allows",
    "mse": "mean square error for tokens of variance 1",
    "sigma": "singular value sigma(k) of a coupling, counted from 1",
    "width": "width of the feed-forward network",
    "paper": "(3.1) or (3.2) with the paper's constants",
    "tuned": "(3.1) or (3.2) with the best constants",
}
"""Names that the toolkit computes."""
INDEXED = ("sigma",)
"""Quantities with an argument."""
RELATIONS: dict[type[ast.cmpop], str] = {ast.LtE: "<=", ast.Lt: "<", ast.GtE: ">=", ast.Gt: ">"}
MAX_SIDES = 6
MAX_FACTORIAL = 10**4
MAX_WHOLE = 1 << 62
"""Larger exponents are no machine words: there powers of positive bases only."""

Term = tuple[Any, ...]
"""("number", q) · ("pi",) · ("size", name) · ("quantity", name, Term or None) · (operation, Term, …)."""


class ClaimVerdict(Enum):
    """What is known of a claim at one point."""

    HOLDS = "holds"
    REFUTED = "refuted"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class Side:
    """A formula in sizes and quantities."""

    text: str
    root: Term

    def value(self, sizes: Mapping[str, arb], quantity: "Callable[[str, arb | None], arb]") -> arb:
        """An enclosure; `quantity` encloses a named quantity, given its argument."""
        return _balls(self.root, sizes, quantity)

    @property
    def sizes(self) -> set[str]:
        """Names of sizes that occur."""
        return {term[1] for term in walk(self.root) if term[0] == "size"}

    @property
    def quantities(self) -> set[str]:
        """Names of quantities that occur."""
        return {term[1] for term in walk(self.root) if term[0] == "quantity"}


@dataclass(frozen=True)
class Claim:
    """side_0 relation_0 side_1 relation_1 side_2 …"""

    text: str
    sides: tuple[Side, ...]
    relations: tuple[str, ...]

    @property
    def sizes(self) -> set[str]:
        return set().union(*(side.sizes for side in self.sides))

    @property
    def quantities(self) -> set[str]:
        return set().union(*(side.quantities for side in self.sides))

    @property
    def links(self) -> "tuple[tuple[Side, Side, bool], ...]":
        """The inequalities as (smaller, larger, strict)."""
        found = []
        for left, relation, right in zip(self.sides, self.relations, self.sides[1:], strict=False):
            small, large = (left, right) if relation[0] == "<" else (right, left)
            found.append((small, large, len(relation) == 1))
        return tuple(found)

    def judge(self, values: "tuple[arb, ...]") -> ClaimVerdict:
        """The verdict for enclosures of the sides: refuted if one inequality is, holds if all do."""
        found = [compare(a, relation, b) for a, relation, b in zip(values, self.relations, values[1:], strict=False)]
        if ClaimVerdict.REFUTED in found:
            return ClaimVerdict.REFUTED
        return ClaimVerdict.UNDECIDED if ClaimVerdict.UNDECIDED in found else ClaimVerdict.HOLDS


def compare(left: arb, relation: str, right: arb) -> ClaimVerdict:
    """One inequality between two enclosures."""
    small, large = (left, right) if relation[0] == "<" else (right, left)
    if not (small.is_finite() and large.is_finite()):
        return ClaimVerdict.UNDECIDED
    strict = len(relation) == 1
    if (small < large) if strict else (small <= large):
        return ClaimVerdict.HOLDS
    return ClaimVerdict.REFUTED if ((small >= large) if strict else (small > large)) else ClaimVerdict.UNDECIDED


def parse_claim(text: Any, *, data: tuple[str, ...] = ()) -> Claim:
    """Read a claim; `data` are names of quantities that the user gives in a table, which may hide those of the toolkit."""
    if not isinstance(text, str) or not text.strip():
        raise InputError("a claim is text such as 'e <= 3*T**2/H'")
    text = text.strip()
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"the claim has {len(text)} characters, the limit is {MAX_CHARACTERS}")
    try:
        tree = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"the claim {text[:60]!r} is no inequality: {type(error).__name__}") from None
    if not isinstance(tree, ast.Compare) or not all(type(op) in RELATIONS for op in tree.ops):
        raise InputError(f"the claim {text[:60]!r} is no inequality; write one with <=, <, >= or >, such as 'e <= 3*T**2/H'")
    parts = [tree.left, *tree.comparators]
    if len(parts) > MAX_SIDES:
        raise InputError(f"the claim has {len(parts)} sides, the limit is {MAX_SIDES}")
    relations = tuple(RELATIONS[type(op)] for op in tree.ops)
    if len({relation[0] for relation in relations}) > 1:
        raise InputError(f"the claim {text[:60]!r} goes up and down; a chain goes one way")
    return Claim(text, tuple(read_side(ast.get_source_segment(text, part) or "", data) for part in parts), relations)


def read_side(text: str, data: tuple[str, ...] = (), what: str = "claim") -> Side:
    """One formula in sizes and quantities."""
    return Side(text, SideReader(text, data, what).whole())


class SideReader(FormulaReader):
    """Sides of claims: formulas in any names, with quantities, functions of two arguments, and exponents that are formulas."""

    functions: tuple[str, ...] = FUNCTIONS

    def __init__(self, text: str, data: tuple[str, ...], what: str) -> None:
        super().__init__(text, (), what)
        self.data = data

    def read(self, node: ast.expr) -> Term:
        match node:
            case ast.Call(func=ast.Name(id=name), args=[left, right], keywords=[]) if name in PAIRS:
                return (name, self.read(left), self.read(right))
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in INDEXED:
                return ("quantity", name, self.read(argument))
        return super().read(node)

    @property
    def vocabulary(self) -> str:
        return f"sizes such as T and H, the quantities {', '.join(QUANTITIES)}, numbers, pi, {', '.join(PAIRS)}"

    def name(self, node: ast.expr, name: str) -> Term:
        if name == "pi":
            return ("pi",)
        if name in self.data:
            return ("quantity", name, None)
        if name in INDEXED:
            raise self.refuse(node, f"needs its index, such as {name}(2)")
        if name in FUNCTIONS or name in PAIRS:
            raise self.refuse(node, "is a function and needs its argument")
        return ("quantity", name, None) if name in QUANTITIES else ("size", name)

    def power(self, node: ast.expr, base: Term, exponent: Term) -> Term:
        return ("power", base, exponent)


def walk(term: Term) -> Iterator[Term]:
    """A tree and all its parts."""
    yield term
    for part in term[1:]:
        if isinstance(part, tuple):
            yield from walk(part)


def _balls(term: Term, sizes: Mapping[str, arb], quantity: "Callable[[str, arb | None], arb]") -> arb:
    match term:
        case ("number", value):
            return arb(value)
        case ("pi",):
            return arb.pi()
        case ("size", name):
            return sizes[name]
        case ("quantity", name, index):
            return quantity(name, None if index is None else _balls(index, sizes, quantity))
    operation, arguments = term[0], [_balls(part, sizes, quantity) for part in term[1:]]
    return OPERATIONS[operation](*arguments)


def power(base: arb, exponent: arb) -> arb:
    """base^exponent: whole exponents for any base that is defined, others for positive bases only."""
    whole = exponent.unique_fmpz() if exponent.is_exact() else None
    if whole is not None and abs(int(whole)) < MAX_WHOLE:
        size = whole_power(base, abs(int(whole)))
        return size if whole >= 0 else 1 / size
    return (exponent * base.log()).exp() if base > 0 else arb.nan()


def _factorial(x: arb) -> arb:
    """Γ(x+1) for x ≥ 0."""
    return (x + 1).gamma() if x >= 0 and x <= MAX_FACTORIAL else arb.nan()


def _zeta(x: arb) -> arb:
    return x.zeta() if x > 1 else arb.nan()


OPERATIONS: dict[str, Callable[..., arb]] = {
    "negative": lambda x: -x,
    "plus": lambda x, y: x + y,
    "minus": lambda x, y: x - y,
    "times": lambda x, y: x * y,
    "over": lambda x, y: x / y,
    "power": power,
    "exp": lambda x: x.exp(),
    "log": lambda x: x.log(),
    "log2": lambda x: x.log() / arb(2).log(),
    "sqrt": lambda x: x.sqrt(),
    "abs": lambda x: abs(x),
    "sin": lambda x: x.sin(),
    "cos": lambda x: x.cos(),
    "tanh": tanh,
    "floor": lambda x: x.floor(),
    "ceil": lambda x: x.ceil(),
    "factorial": _factorial,
    "zeta": _zeta,
    "min": lambda x, y: x.min(y),
    "max": lambda x, y: x.max(y),
}
"""What the operations of a side do to balls; undefined values are not finite."""


def rational_value(term: Term, sizes: Mapping[str, fmpq], quantity: "Callable[[str], fmpq | None]" = lambda name: None) -> fmpq | None:
    """The exact value of a side that is made of rational numbers by rational operations, of moderate size; None for others."""
    match term:
        case ("number", value):
            return fmpq(value)
        case ("size", name):
            return sizes[name]
        case ("quantity", name, None):
            return quantity(name)
    parts = [rational_value(part, sizes, quantity) for part in term[1:] if isinstance(part, tuple)]
    known = [part for part in parts if part is not None]
    if term[0] not in RATIONAL or len(known) < len(parts):
        return None
    return RATIONAL[term[0]](*known)


def _quotient(left: fmpq, right: fmpq) -> fmpq | None:
    return None if right == 0 else left / right


def _power(base: fmpq, exponent: fmpq) -> fmpq | None:
    bits = int(abs(base.p)).bit_length() + int(base.q).bit_length()
    if exponent.q != 1 or abs(exponent) * bits > MAX_RATIONAL_BITS or (base == 0 and exponent < 0):
        return None
    return base ** int(exponent.p)


MAX_RATIONAL_BITS = 1 << 16
RATIONAL: Mapping[str, Callable[..., fmpq | None]] = {
    "negative": lambda x: -x,
    "plus": lambda x, y: x + y,
    "minus": lambda x, y: x - y,
    "times": lambda x, y: x * y,
    "over": _quotient,
    "power": _power,
    "abs": abs,
    "floor": lambda x: fmpq(x.p // x.q),
    "ceil": lambda x: fmpq(-(-x.p // x.q)),
    "min": min,
    "max": max,
}
"""Operations that keep numbers rational."""
