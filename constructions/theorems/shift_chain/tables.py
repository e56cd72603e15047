"""Read-out tables: any f of finitely many letters as Σ_J a(J) 1{above all gaps of J}.

Let I = (i_1, …, i_m) choose a letter for every coordinate that f depends on. The coefficients a are the mixed differences of f, so that
f(I) = Σ_{J ≤ I} a(J). The digit of a gap is 0 if the letter lies above the gap and at least 1 below, so relu(1 − Σ digits) is the
indicator of "above all gaps of J".
"""

from dataclasses import dataclass
from itertools import product

from flint import arb, fmpq

from analyzer.numbers.exact import to_grid, working_precision
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems.shift_chain import readout_variables
from constructions.network.transformer import FeedForward
from constructions.theorems.shift_chain.layout import Layout
from constructions.theorems.shift_chain.neuron_rows import NeuronRows

TABLE_BITS = 100
"""Values of f on letters are rounded to multiples of 2^-100: exact for polynomials with short coefficients on short letters."""

Choice = tuple[int, ...]
"""A letter, by its index in the alphabet, for every coordinate that a read-out depends on."""


@dataclass(frozen=True)
class LetterTable:
    """A read-out on an alphabet: the coordinates that it depends on, and its value at every choice of letters for them."""

    variables: list[int]
    values: dict[Choice, fmpq]


def readout_table(target: FixedMemory) -> LetterTable:
    """f at every choice of letters; coordinates that f does not depend on hold the first letter."""
    letters = target.alphabet
    assert letters is not None
    variables, values = readout_variables(target), {}
    with working_precision(4 * TABLE_BITS):
        for choice in product(range(len(letters)), repeat=len(variables)):
            u = [arb(letters[0])] * target.readout.coordinates
            for variable, index in zip(variables, choice, strict=True):
                u[variable] = arb(letters[index])
            values[choice] = to_grid(target.readout(u), TABLE_BITS)
    return LetterTable(variables, values)


def mixed_differences(values: dict[Choice, fmpq]) -> dict[Choice, fmpq]:
    """Coefficients a with f(choice) = Σ a(J) over J ≤ choice, entry by entry."""
    result = dict(values)
    for axis in range(len(next(iter(values)))):
        for choice in sorted(result, reverse=True):
            if choice[axis]:
                below = (*choice[:axis], choice[axis] - 1, *choice[axis + 1 :])
                result[choice] = result[choice] - result[below]
    return result


def table_network(target: FixedMemory) -> FeedForward:
    """Σ_J a(J) relu(1 − Σ w), the inner sum over the digit of gap j for every coordinate whose entry of J is j ≥ 1."""
    layout, table = Layout(target), readout_table(target)
    rows = NeuronRows(layout.width)
    for choice, coefficient in mixed_differences(table.values).items():
        inputs = [(layout.digits(variable)[j - 1], fmpq(-1)) for variable, j in zip(table.variables, choice, strict=True) if j]
        rows.add(0, inputs, fmpq(1), coefficient)
    return rows.network(1)
