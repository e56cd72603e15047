"""A read-out on the letters of an alphabet."""

from collections.abc import Sequence

from flint import arb, fmpq

from analyzer.numbers.exact import lower, maximum
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.readout import ReadOut
from constructions.theorems.shift_chain.tables import readout_table


def value_at(target: FixedMemory, variables: Sequence[int], choice: Sequence[int]) -> arb:
    """f at a choice of letters for the coordinates that it depends on: exact for polynomials, a ball otherwise."""
    readout, letters = target.readout, target.alphabet
    assert letters is not None
    u = [letters[0]] * readout.coordinates
    for variable, index in zip(variables, choice, strict=True):
        u[variable] = letters[index]
    if readout.plain:
        return readout([arb(v) for v in u])
    return arb(_polynomial(readout, u))


def _polynomial(readout: ReadOut, u: Sequence[fmpq]) -> fmpq:
    """constant + w·u + Σ coefficient · u^monomial."""
    value = sum((w * x for w, x in zip(readout.affine, u, strict=True)), readout.constant)
    for monomial, coefficient in readout.polynomial:
        term = coefficient
        for x, exponent in zip(u, monomial, strict=True):
            term = term * x**exponent
        value += term
    return value


def letter_spread(target: FixedMemory) -> float:
    """Error of the best constant output on the alphabet."""
    table = readout_table(target)
    values = [value_at(target, table.variables, choice) for choice in table.values]
    return lower((maximum(values) + maximum([-v for v in values])) / 2)
