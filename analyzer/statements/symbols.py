"""Symbols of formulas that carry their own meaning, so that two theorems may use one letter for different things."""

from typing import Any

import sympy


class Quantity(sympy.Symbol):
    """A positive number of a bound, and what it is in words.

    >>> rate = Quantity("eta", "the learning rate")
    >>> rate.meaning, rate == sympy.Symbol("eta", positive=True)
    ('the learning rate', False)
    """

    __slots__ = ("meaning",)
    meaning: str

    def __new__(cls, name: str, meaning: str) -> "Quantity":
        made: Quantity = sympy.Symbol.__xnew__(cls, name, positive=True)
        made.meaning = meaning
        return made

    def _hashable_content(self) -> tuple[Any, ...]:
        return (*super()._hashable_content(), self.meaning)

    def __getnewargs_ex__(self) -> tuple[tuple[str, str], dict[str, Any]]:
        return (self.name, self.meaning), {}
