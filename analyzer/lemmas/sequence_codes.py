"""Codes of sequences: whole numbers c(s, a) for a letter a at position s whose sum tells apart what a function F of the sequence does.

With A letters, numbered from 0, and N positions:

| code   | c(s, a)                         | tells apart            | codes                |
|--------|---------------------------------|------------------------|----------------------|
| sum    | a                               | sums of letter numbers | N(A−1) + 1           |
| counts | (N+1)^{a−1}, 0 for the letter 0 | multisets              | C(N+A−1, N)          |
| order  | a A^{s−1}                       | sequences              | A^N                  |

*counts*: the sum is Σ_{a≥1} n_a (N+1)^{a−1} with counts n_a ≤ N, a number in base N+1. *order*: the sum is the sequence read as a
number in base A. The first code in the table of which F is a function is taken, *counts* only where its largest number N(N+1)^{A−2} is
at most 2^20.

The spline through the values of F at the codes in increasing order, F(k_0) + Σ_i q_i relu(k − k_i), is exact at every code.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import sympy
from flint import arb, fmpq

from analyzer.numbers.piecewise import slope_changes
from analyzer.targets.sequence import SequenceTarget

Reading = Literal["sum", "counts", "order"]
MOST = 2**20
"""The largest number of the code of counts: beyond, the rounding of floats costs more than neurons save."""
A, N = sympy.symbols("A N", integer=True, positive=True)
CODES: dict[Reading, sympy.Expr] = {"sum": N * (A - 1) + 1, "counts": sympy.binomial(N + A - 1, N), "order": A**N}
"""How many codes there are, which is the read-out's number of neurons, its constant included."""


@dataclass(frozen=True)
class Code:
    """A code of the sequences of a target, and F as a function of it."""

    target: SequenceTarget
    reading: Reading
    weights: tuple[tuple[int, ...], ...]
    """c(s, a), position by position."""
    wanted: tuple[fmpq, ...] | None = None
    """What stands for F at every sequence, in the order of `SequenceTarget.words`; None for F itself."""

    @cached_property
    def of_words(self) -> list[int]:
        """The code of every sequence, in the order of `SequenceTarget.words`."""
        return [sum(row[i] for row, i in zip(self.weights, word, strict=True)) for word in self.target.words()]

    @cached_property
    def table(self) -> dict[int, fmpq]:
        """F by code, increasing."""
        found: dict[int, fmpq] = {}
        for code, value in zip(self.of_words, self.wanted or self.target.table, strict=True):
            found.setdefault(code, value)
        return dict(sorted(found.items()))

    @property
    def consistent(self) -> bool:
        """Whether what stands for F is a function of the code, exactly."""
        return all(self.table[code] == value for code, value in zip(self.of_words, self.wanted or self.target.table, strict=True))

    @property
    def fits(self) -> bool:
        """Whether F is a function of the code; where it is not rational, as far as its enclosures tell."""
        for code, value, ball in zip(self.of_words, self.target.table, self.target.values_in_balls, strict=True):
            kept = self.table[code]
            if kept != value and (self.target.table_error == 0 or not ball.contains(kept)):
                return False
        return True

    @property
    def positional(self) -> bool:
        """Whether the code depends on positions."""
        return self.reading == "order"

    @cached_property
    def largest(self) -> int:
        """K."""
        return max(self.table)

    @cached_property
    def changes(self) -> list[fmpq]:
        """q_i: the changes of slope of the spline at all codes but the last."""
        return slope_changes(tuple(fmpq(k) for k in self.table), list(self.table.values()))

    @cached_property
    def bend(self) -> arb:
        """Q = Σ|q_i|."""
        return sum((abs(arb(q)) for q in self.changes), arb(0))


def code_of(target: SequenceTarget) -> Code:
    """The first code of the table of which F is a function."""
    letters, length = len(target.symbols), target.length
    for reading, weights in code_weights(letters, length).items():
        code = Code(target, reading, weights)
        if code.fits:
            return code
    raise AssertionError("every function of a sequence is one of its code")


def code_weights(letters: int, length: int, most: int | None = MOST) -> dict[Reading, tuple[tuple[int, ...], ...]]:
    """c(s, a) of every code of the table; counts only if its numbers are at most `most`."""
    choices: dict[Reading, tuple[tuple[int, ...], ...]] = {
        "sum": (tuple(range(letters)),) * length,
        "counts": ((0, *((length + 1) ** (a - 1) for a in range(1, letters))),) * length,
        "order": tuple(tuple(a * letters**s for a in range(letters)) for s in range(length)),
    }
    if most is not None and length * max(choices["counts"][0]) > most:
        del choices["counts"]
    return choices


def codes_of(reading: Reading, letters: int, length: int) -> int:
    """How many codes there are."""
    match reading:
        case "sum":
            return length * (letters - 1) + 1
        case "counts":
            return math.comb(length + letters - 1, length)
    return letters**length
