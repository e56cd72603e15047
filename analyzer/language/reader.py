"""One reader for every language that users write in: text becomes a syntax tree, and a whitelist over it becomes values of an algebra.

Text is parsed, never evaluated. A language is a subclass of `Reader`: it says what numbers, names and functions mean and how values are
added, multiplied and raised to powers. What the whitelist does not know is refused, naming the term.
"""

import ast
import warnings
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from flint import fmpq

from analyzer.errors import InputError
from analyzer.language.sizes import check_size
from analyzer.numbers.exact import rational

MAX_CHARACTERS = 2000

Value = TypeVar("Value")


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


def names_in(text: str, what: str) -> list[str]:
    """The names that an expression uses, in order of appearance; function names excluded."""
    nodes = list(ast.walk(syntax_tree(text, what)))
    called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
    return list(dict.fromkeys(node.id for node in nodes if isinstance(node, ast.Name) and id(node) not in called))


class Reader(ABC, Generic[Value]):
    """A language: the meaning of an expression in an algebra of values."""

    def __init__(self, text: str, what: str) -> None:
        """`what` the text is goes into messages."""
        self.text, self.what = text.strip(), what

    def whole(self) -> Value:
        """The meaning of the whole text."""
        try:
            return self.read(syntax_tree(self.text, self.what))
        except (RecursionError, MemoryError, OverflowError) as error:
            raise InputError(f"the {self.what} {self.text[:60]!r} is not an expression: {type(error).__name__}") from None

    def read(self, node: ast.expr) -> Value:
        """The meaning of a sub-tree."""
        match node:
            case ast.Constant(value=bool() | str() | bytes() | complex() | None):
                raise self.refuse(node, "only real numbers are allowed")
            case ast.Constant():
                return self.number(rational(self.source(node).replace("_", "")))
            case ast.Name(id=name):
                return self.name(node, name)
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=int(index))) if not isinstance(index, bool):
                return self.element(node, name, index)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self.negative(self.read(operand))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.read(operand)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self.plus(self.read(left), self.read(right))
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return self.minus(self.read(left), self.read(right))
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                return self.times(node, self.read(left), self.read(right))
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return self.over(node, self.read(left), self.read(right))
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                return self.power(node, self.read(left), self.read(right))
            case ast.Call(func=ast.Name(id=name), args=[argument], keywords=[]) if name in self.functions:
                return self.function(node, name, self.read(argument))
        raise self.unknown(node)

    def source(self, node: ast.AST) -> str:
        """The text of a sub-tree."""
        return ast.get_source_segment(self.text, node) or ""

    def refuse(self, node: ast.AST, reason: str) -> InputError:
        """What to raise for a term that has no meaning here."""
        return InputError(f"{self.what} term {self.source(node)[:60]!r}: {reason}")

    def unknown(self, node: ast.AST) -> InputError:
        """What to raise for a term that the language does not have."""
        return self.refuse(node, f"not allowed; use {self.vocabulary}, + - * / ** and {', '.join(self.functions)}")

    functions: tuple[str, ...]
    """Names that may be called with one argument."""

    @property
    @abstractmethod
    def vocabulary(self) -> str:
        """Names and numbers that may be used, for people."""

    @abstractmethod
    def number(self, value: fmpq) -> Value:
        """A number as it is written."""

    @abstractmethod
    def name(self, node: ast.expr, name: str) -> Value:
        """A name."""

    def element(self, node: ast.expr, name: str, index: int) -> Value:
        """name[index], in languages with vectors."""
        raise self.unknown(node)

    @abstractmethod
    def negative(self, value: Value) -> Value:
        """−value."""

    @abstractmethod
    def plus(self, left: Value, right: Value) -> Value:
        """left + right."""

    def minus(self, left: Value, right: Value) -> Value:
        """left − right."""
        return self.plus(left, self.negative(right))

    @abstractmethod
    def times(self, node: ast.expr, left: Value, right: Value) -> Value:
        """left · right."""

    @abstractmethod
    def over(self, node: ast.expr, left: Value, right: Value) -> Value:
        """left / right."""

    @abstractmethod
    def power(self, node: ast.expr, base: Value, exponent: Value) -> Value:
        """base ** exponent."""

    @abstractmethod
    def function(self, node: ast.expr, name: str, argument: Value) -> Value:
        """name(argument), for a name in `functions`."""
