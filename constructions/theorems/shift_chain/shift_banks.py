"""Banks of heads that shift: what they cost, and the best one on offer.

A bank serves one or several lags τ: with weights of its own for each, its heads and a residual weight on the current token make a kernel
κ_τ that is nearly 1_τ. Its *cost* in a float type is e + f, the largest over the lags: e = ρ‖κ_τ − 1_τ‖₁ for values of size ρ, of the bank
as it is stored and run, and f the rounding of one layer.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import jax
from flint import arb, fmpq

from analyzer.kernels.l1_norms import l1_norm
from analyzer.numbers.exact import UNIT, upper, working_precision
from constructions.banks import head_banks
from constructions.banks.balanced import balanced_bank
from constructions.banks.head_banks import HeadBank
from constructions.network.precision import MANTISSA
from constructions.network.transformer import Attention, exact_array, to_exact, to_float, zeros
from constructions.run.fused import FusedLayer, fuse_layer
from constructions.theorems.shift_chain.plateaus import Plateaus

LINEAR_MOVE = 3
"""Rounding of source += carrier − source in units of u: one rounded sum of size 2, and the residual addition."""
SECOND_ORDER = 1 + arb(2) ** -10
"""Products of roundings, which the prices leave out, are below this share for u·10³ ≤ 2^-10."""
QUICK = fmpq(48)
"""Decay of a head that sees the current token only: e^-48 < 2^-69, below the last bit of any weight that a type resolves next to 1."""


@dataclass(frozen=True)
class Option:
    """A shift on offer: its bank, and what that costs (rounded up)."""

    shift: int
    bank: HeadBank
    cost: float


def bank_attention(bank: HeadBank, width: int, source: range, blocks: Sequence[tuple[int, range]]) -> Attention:
    """Heads that read the source and write, for every (lag, block), the bank's weights for that lag."""
    heads, d = bank.heads, len(source)
    value, output = zeros(heads, d, width), zeros(heads, width, d)
    for i in range(d):
        value[:, i, source[i]] = fmpq(1)
        for lag, block in blocks:
            output[:, block[i], i] = bank.weights[bank.lags.index(lag)]
    empty = zeros(heads, 0, width)
    return Attention(exact_array(list(bank.decays)), value, output, empty, empty, zeros(0, width), (bank.rpe,) * heads)


def stored_bank(bank: HeadBank, dtype: str) -> FusedLayer:
    """A bank as one layer of a float network on a stream (source, a block for every lag)."""
    width = 1 + len(bank.lags)
    attention = bank_attention(bank, width, range(1), [(lag, range(k, k + 1)) for k, lag in enumerate(bank.lags, start=1)])
    column = exact_array([[fmpq(1)], *([c] for c in bank.residuals)])
    floats = jax.tree.map(lambda a: to_float(a, dtype), attention)
    return fuse_layer(floats, to_exact(to_float(column, dtype)), zeros(width))


def head_price(dtype: str, heads: int) -> Callable[[fmpq], float]:
    """What a unit of weight on a lin head of decay p costs: u(H + 2/(1−z)) for the output sum, scan and gain (`verify.chain.rounding`), and
    u(2 + z/(1−z)) for storing weight, gain and ratio: u(H + 1 + 3/(1−z)) in all."""
    unit = float(arb(UNIT[dtype]))
    return lambda p: unit * (heads + 1 + 3 / -math.expm1(-float(arb(p))))


def shift_errors(bank: HeadBank, dtype: str, plateaus: Plateaus | None) -> list[arb]:
    """e + f for every lag of a bank, as a chain in this type would have it: extraction by the stored bank, with the constants that
    the executor uses, and the rounding of one layer per unit of size."""
    layer, unit = stored_bank(bank, dtype), arb(UNIT[dtype])
    move = arb(LINEAR_MOVE) if plateaus is None else arb(plateaus.move)
    found_again = move + 2 if plateaus is None else 2 * move + 4  # c v in the carrier: its own sums, and the source's
    size = arb(1) if plateaus is None else arb(plateaus.size)
    errors = []
    with working_precision(layer.bits):
        assert layer.constants is not None
        ratios = to_exact(layer.constants["ratio"])
        for k, lag in enumerate(bank.lags, start=1):
            row = [fmpq(int(j == k)) for j in range(len(bank.lags) + 1)]
            extraction = l1_norm(layer.kernel(row, 0, {lag: fmpq(1)})).most
            residual = abs(arb(layer.embedding[k, 0]))
            weights = sum((abs(arb(layer.gains[h, k, 0])) * (bank.heads + 2 / (1 - arb(z))) for h, z in enumerate(ratios)), arb(0))
            rounding = unit * (weights + found_again * residual + (1 + extraction) * (move + 1) + 3)
            errors.append(size * extraction + rounding * SECOND_ORDER)
    return errors


def quickened(bank: HeadBank) -> HeadBank:
    """The bank with a very fast head in the place of its residual weights, which restoration would multiply by the plateau's rounding."""
    weights = tuple((*row, c) for row, c in zip(bank.weights, bank.residuals, strict=True))
    return HeadBank(bank.rpe, (*bank.decays, QUICK), bank.lags, weights, (fmpq(0),) * len(bank.lags))


@cache
def _balanced(lags: tuple[int, ...], heads: int, dtype: str) -> HeadBank:
    return balanced_bank("lin", lags, head_price(dtype, heads), heads, MANTISSA[dtype])


@cache
def _minimal(lags: tuple[int, ...], dtype: str) -> HeadBank:
    price = head_price(dtype, lags[-1])(fmpq(1))
    return head_banks.budgeted_minimal("lin", lags, lags[-1], fmpq(*price.as_integer_ratio()), MANTISSA[dtype])


@cache
def best_option(kind: str, lags: tuple[int, ...], heads: int, dtype: str, plateaus: Plateaus | None) -> Option:
    """The shift by the longest of these lags, with the cheapest bank on offer that serves them all with that many heads.

    Minimal banks have as many heads as the longest lag. Balanced ones are those of `constructions.banks.balanced`, whose decays follow a
    family: at its edge, with as many heads as the lag, the minimal bank can be better and is then taken.
    """
    shift = lags[-1]
    banks = [_minimal(lags, dtype)] if heads == shift else []
    if kind == "balanced":
        banks.append(_balanced(lags, heads, dtype))
        if plateaus is not None and heads > shift:
            banks.append(quickened(_balanced(lags, heads - 1, dtype)))
    offers = [Option(shift, bank, max(upper(e) for e in shift_errors(bank, dtype, plateaus))) for bank in banks]
    return min(offers, key=lambda option: option.cost)
