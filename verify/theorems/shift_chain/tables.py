"""The end of a restored chain: whether every shift fitted into its room, and the table of f that is summed from digits.

Digits are exactly 0 or at least 1, so the table's neurons relu(1 − Σ digits) are exactly 0 or 1; their sum is exact if all partial sums lie
on a grid that the type holds. Positions count whose lags all lie inside the array; what comes before it only has to stay in [v_1, v_n].
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from flint import arb, fmpq

from analyzer.numbers.exact import UNIT, lower, upper, working_precision
from analyzer.theorems import shift_chain as theorem
from constructions.network.precision import MANTISSA
from constructions.network.transformer import Layer, Transformer, to_exact, to_float
from constructions.theorems.shift_chain.tables import LetterTable, mixed_differences, readout_table
from verify.chain.certificate import Part, StrangeWeights, gathered
from verify.chain.layer import FFN_BITS
from verify.chain.rounding import ONE, Arithmetic
from verify.theorems.shift_chain.letters import letter_spread, value_at
from verify.theorems.shift_chain.steps import ChainClaim, Findings, Restoration, Step, shift_parts
from verify.theorems.shift_chain.witness import random_witness

GRID_BITS = 100
"""Coefficients with more binary places than this are not taken for exact: their products with 1 may be flushed."""
TABLE_STORAGE = arb(2) ** -90
"""What a stored coefficient may be off beyond u times its size: values of f are rounded to multiples of 2^-100 first."""


class TableTerm(NamedTuple):
    """coefficient · relu(1 − Σ digits)."""

    digits: frozenset[int]
    coefficient: fmpq


@dataclass(frozen=True)
class TableError:
    """Error of a table, what storing it may cost, and the rounding of its sum, which is part of both."""

    certified: arb
    promised: arb
    rounding: arb


def table_findings(
    network: Transformer, claim: ChainClaim, steps: list[Step], restorations: Sequence[Restoration], sure: set[int]
) -> Findings:
    """Restoration layer by layer, and the table that ends the chain; digits that are `sure` are 0 or at least 1."""
    target = claim.target
    with working_precision(FFN_BITS):
        groups = _grouped(restorations)
        measured = {theorem.SHIFT: shift_parts(steps), **_room_parts(restorations, groups)}
        table = _table_error(network.layers[-1], claim, sure)
        certified = table.certified
        if not all(group["margin"] > 0 for group in groups):
            claim.faults.append("a shift is off by more than the room around the letters: errors are not reset")
            certified = arb.pos_inf()
        measured[theorem.TABLE] = [Part("read-out table", upper(certified), upper(table.promised))]
        digital = {
            "letters": [str(v) for v in target.alphabet or ()], "restored": groups, "exact": upper(certified) == 0,
            "positions": f"t >= {target.lags[-1]}: all lags inside the array",
        }  # fmt: skip
        return Findings(
            steps=steps,
            witness=random_witness(network, target),
            witness_input=f"random tokens of the alphabet, run in {claim.dtype}",
            certified=upper(certified),
            bound=upper(table.promised),
            rounding=upper(table.rounding),
            trivial=letter_spread(target),
            parts=gathered(theorem.restored_graph("lin", claim.bank, target.lags[-1], len(steps) > 1), measured),
            details={"digital": digital},
        )


def _grouped(restorations: Sequence[Restoration]) -> list[dict[str, Any]]:
    """Equal shifts gathered: error, room and margin of each, and the number of layers, as plain data."""
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for here in restorations:
        shown = {"shift": here.shift, "error": upper(here.off), "room": lower(arb(here.room))}
        group = groups.setdefault(tuple(shown.values()), {**shown, "margin": lower(arb(here.room) - here.off), "layers": 0})
        group["layers"] += 1
    return list(groups.values())


def _room_parts(restorations: Sequence[Restoration], groups: Sequence[dict[str, Any]]) -> dict[str, list[Part]]:
    """Restoration and plateaus as lemmas; a chain of one shift has neither."""
    if not restorations:
        return {}
    worst = max(restorations, key=lambda here: upper(here.uneven - here.storage))
    return {
        theorem.RESTORATION: [
            Part(f"restoration after shift {group['shift']} ×{group['layers']}", group["error"], group["room"]) for group in groups
        ],
        theorem.PLATEAUS: [Part("plateaus at the letters", upper(worst.uneven), upper(worst.storage))],
    }


def _table_error(layer: Layer, claim: ChainClaim, sure: set[int]) -> TableError:
    """The table in the last layer against f at every choice of letters."""
    terms = []
    for term in _terms(layer):
        if not term.digits <= sure:
            claim.faults.append("the table reads a digit that is not certain to be 0 or at least 1")
            return TableError(arb.pos_inf(), arb.pos_inf(), arb(0))
        terms.append(term)
    table, rounding = readout_table(claim.target), _sum_rounding(terms, claim.dtype)
    return TableError(_worst_choice(claim, terms, table) + rounding, _stored(table, claim.dtype) + rounding, rounding)


def _terms(layer: Layer) -> Iterator[TableTerm]:
    """The last layer as a table, neuron by neuron."""
    inner, bias, outer = (to_exact(a) for a in (layer.feedforward.inner, layer.feedforward.bias, layer.feedforward.outer))
    if any((to_exact(a) != 0).any() for a in (layer.attention.output, layer.attention.value)):
        raise StrangeWeights("the last layer of a restored chain attends to something")
    for row, constant, coefficient in zip(inner, bias, outer[0], strict=True):
        used = [int(j) for j in np.nonzero(row)[0]]
        if constant != 1 or any(row[j] != -1 for j in used):
            raise StrangeWeights("a neuron of the table is not relu(1 - digits): not a restored chain of shifts")
        yield TableTerm(frozenset(used), coefficient)


def _sum_rounding(terms: Sequence[TableTerm], dtype: str) -> arb:
    """Rounding of Σ coefficients · 0 or 1: none if all partial sums are multiples of one power of 2 that the mantissa holds."""
    coefficients = [term.coefficient for term in terms]
    total = sum((abs(a) for a in coefficients), fmpq(0))
    grid = max((int(a.q) for a in coefficients), default=1)
    if total * grid <= 2 ** MANTISSA[dtype] and grid <= 2**GRID_BITS:
        return arb(0)
    return Arithmetic(dtype).dot(coefficients, [ONE] * len(terms)).error


def _worst_choice(claim: ChainClaim, terms: Sequence[TableTerm], table: LetterTable) -> arb:
    """The largest error over all choices of letters; digits of coordinates that f does not depend on may be anything."""
    layout, worst = claim.layout, arb(0)
    loose = {digit for row in range(layout.slots) if row not in table.variables for digit in layout.digits(row)}
    for choice in table.values:
        zero = {digit for row, index in zip(table.variables, choice, strict=True) for digit in layout.digits(row)[:index]}
        value = sum((a for digits, a in terms if digits <= zero), fmpq(0))
        doubtful = sum((abs(a) for digits, a in terms if digits & loose and digits - loose <= zero), fmpq(0))
        worst = worst.max(abs(arb(value) - value_at(claim.target, table.variables, choice)) + arb(doubtful))
    return worst


def _stored(table: LetterTable, dtype: str) -> arb:
    """What storing the coefficients may cost."""
    unit, promised = arb(UNIT[dtype]), arb(0)
    for coefficient in mixed_differences(table.values).values():
        stored = to_exact(to_float(np.array([coefficient], dtype=object), dtype))[0]
        promised += arb(0) if stored == coefficient else unit * abs(arb(coefficient)) + TABLE_STORAGE
    return promised
