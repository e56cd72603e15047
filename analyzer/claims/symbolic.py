"""Sides of claims as sympy expressions in real variables, and where they are defined.

Every name of a side is a variable of the box or a number; a variable x without an upper end is 1/y, with y in (0, 1/low]. `paper` and
`tuned` stand for (3.1) or (3.2) of `analyzer.lemmas.extraction`, as functions of T and H for a rate n, with B_n as a named positive
constant that is enclosed. sympy cancels: x/x becomes 1 and log x − log x becomes 0, also where x is 0. So the places where a side is
undefined are read from the tree before sympy sees it: what is divided by is not 0, arguments of logarithms and bases of real powers are
positive, those of square roots are not negative.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import sympy
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.language.claims import MAX_FACTORIAL, Side, Term
from analyzer.lemmas import extraction
from analyzer.lemmas.bump import RATES, variation

FORMULAS = ("paper", "tuned")
"""Quantities with a formula in real sizes."""
LARGEST_POWER = 1 << 16
"""Bits of a power of numbers that is computed; larger ones stay exponentials."""

Need = Literal["positive", "not negative", "not zero"]


@dataclass(frozen=True)
class Meaning:
    """A side on a box: its expression, and what must hold for it to be defined."""

    text: str
    expression: sympy.Expr
    needs: tuple[tuple[str, sympy.Expr, Need], ...]


class Variables:
    """What names stand for: variables of a box are positive symbols, or 1 over one (`unbounded`), all others are numbers."""

    def __init__(
        self, box: tuple[str, ...], unbounded: frozenset[str], given: Mapping[str, fmpq], rpe: Literal["lin", "log"] = "lin"
    ) -> None:
        self.symbols = {name: sympy.Symbol(name, positive=True) for name in box}
        self.unbounded = unbounded
        self.given, self.rpe = given, rpe
        self.constants: dict[sympy.Basic, arb] = {}

    def of(self, name: str) -> sympy.Expr:
        if name in self.symbols:
            return 1 / self.symbols[name] if name in self.unbounded else self.symbols[name]
        if name not in self.given:
            raise InputError(f"the size {name} has no value; give a box, a list of values, or a range for it")
        return _rational(self.given[name])

    def formula(self, name: str) -> tuple[sympy.Expr, sympy.Expr]:
        """`paper` or `tuned` for the rate n, and H − n − 2, which is not negative where the lemma speaks."""
        rate = self.given.get("n")
        if rate is None or rate.q != 1 or int(rate.p) not in RATES:
            raise InputError(f"{name} needs the rate n, a whole number from {RATES[0]} to {RATES[-1]}, one value at a time")
        order, lag, heads = int(rate.p), self.of("T"), self.of("H")
        bounded = sympy.Symbol(f"B_{order}", positive=True)
        self.constants[bounded] = variation(order)
        best = self.best_constants(name, lag)
        values = {extraction.alpha: best, extraction.gamma: best, extraction.H: heads, extraction.T: lag}
        found = extraction.EXTRACTION[self.rpe].subs(extraction.n, order).subs(extraction.B(order), bounded)
        return found.subs(values, simultaneous=True), heads - order - 2

    def best_constants(self, name: str, lag: sympy.Expr) -> sympy.Expr:
        """α = γ."""
        if name == "paper":
            return _rational(extraction.PAPER.alpha)
        if self.rpe == "log":
            raise InputError("tuned has no closed form in T for log positions; compare values of T one by one, not in a box")
        return sympy.log(1 + 1 / lag)


def meaning(side: Side, variables: Variables) -> Meaning:
    """A side on a box."""
    needs: list[tuple[str, sympy.Expr, Need]] = []
    return Meaning(side.text, _Builder(variables, needs).build(side.root), tuple(needs))


def _rational(value: fmpq) -> sympy.Expr:
    return sympy.Rational(int(value.p), int(value.q))


@dataclass
class _Builder:
    """A tree as an expression; what has to hold on the way is put down in `needs`."""

    variables: Variables
    needs: list[tuple[str, sympy.Expr, Need]]

    def build(self, term: Term) -> sympy.Expr:
        match term:
            case ("number", value):
                return _rational(value)
            case ("pi",):
                return sympy.pi
            case ("size", name):
                return self.variables.of(name)
            case ("quantity", name, _):
                return self.quantity(name)
            case ("power", base, exponent):
                return self.power(self.build(base), self.build(exponent))
        operation, arguments = term[0], [self.build(part) for part in term[1:]]
        need = self.conditions.get(operation)
        if need is not None:
            self.need(*need, arguments[-1])
        if operation in ("factorial", "zeta") and arguments[0].is_number and arguments[0] > MAX_FACTORIAL:
            raise InputError(f"{operation} of a number beyond {MAX_FACTORIAL} is not computed")
        return self.operations[operation](*arguments)

    def quantity(self, name: str) -> sympy.Expr:
        if name not in FORMULAS:
            raise InputError(f"{name} is computed at single points; on boxes use {', '.join(FORMULAS)} and formulas of your own")
        found, room = self.variables.formula(name)
        self.need("room for the rate, H - n - 2 =", "not negative", room)
        return found

    def need(self, place: str, need: Need, argument: sympy.Expr) -> None:
        self.needs.append((place, argument, need))

    def power(self, base: sympy.Expr, exponent: sympy.Expr) -> sympy.Expr:
        if exponent.is_Integer:
            if exponent < 0:
                self.need("base of a negative power", "not zero", base)
        else:
            self.need("base of a real power", "positive", base)
        if (
            base.is_Rational
            and exponent.is_Rational
            and abs(exponent) * (int(base.p).bit_length() + int(base.q).bit_length()) > LARGEST_POWER
        ):
            return sympy.exp(exponent * sympy.log(base, evaluate=False), evaluate=False)
        return base**exponent

    @cached_property
    def conditions(self) -> dict[str, tuple[str, Need]]:
        return {
            "over": ("divisor", "not zero"),
            "log": ("logarithm of", "positive"),
            "log2": ("logarithm of", "positive"),
            "sqrt": ("square root of", "not negative"),
            "factorial": ("factorial of", "not negative"),
        }

    @cached_property
    def operations(self) -> dict[str, "sympy.FunctionClass"]:
        return {
            "negative": lambda x: -x,
            "plus": lambda x, y: x + y,
            "minus": lambda x, y: x - y,
            "times": lambda x, y: x * y,
            "over": _quotient,
            "exp": sympy.exp,
            "log": sympy.log,
            "log2": lambda x: sympy.log(x) / sympy.log(2),
            "sqrt": sympy.sqrt,
            "abs": sympy.Abs,
            "sin": sympy.sin,
            "cos": sympy.cos,
            "tanh": sympy.tanh,
            "floor": sympy.floor,
            "ceil": sympy.ceiling,
            "factorial": lambda x: sympy.gamma(x + 1),
            "zeta": self.zeta,
            "min": sympy.Min,
            "max": sympy.Max,
        }

    def zeta(self, argument: sympy.Expr) -> sympy.Expr:
        self.need("zeta of 1 plus", "positive", argument - 1)
        return sympy.zeta(argument)


def _quotient(above: sympy.Expr, below: sympy.Expr) -> sympy.Expr:
    if below == 0:
        raise InputError("the claim divides by zero")
    return above / below
