"""The weights of `analyzer.theorems.positions.table_heads`: biases per distance, one head per lag, in the stream of Theorem 3.1."""

import math
from dataclasses import replace

from flint import arb, fmpq

from analyzer.families import DEFAULT_ERROR, LEAST_ERROR, Fixed
from analyzer.numbers.exact import upper, working_precision
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems.positions.table_heads import check, extraction_error, least_bias, reach_of, shared_error
from constructions.banks.head_banks import HeadBank
from constructions.network.precision import UNIT
from constructions.network.transformer import FeedForward, Layer, Transformer, to_float, zeros
from constructions.neurons import feedforward
from constructions.theorems import assembly
from constructions.theorems.assembly import BOX_SHARE, assemble, box_of, placeholder, rounding_price
from constructions.theorems.construction import Construction

slots = assembly.slots
meanings = assembly.meanings
GUARD = 72
"""Bits of exact weights beyond those of the error: what rounding them costs is 2^-71 of it, far below the last bit of float64 too."""


def build(target: FixedMemory, options: Fixed) -> Construction:
    """Build the layer with one head per lag; half of the attention's share of the error is left to rounding in floats."""
    check(target, options)
    budget = DEFAULT_ERROR if options.error is None else options.error
    reach, floats = reach_of(target, options), options.dtype != "exact"
    _, error = shared_error(target, budget)
    bias = least_bias(reach, error / 2 if floats else error * (1 - 2.0**-20))
    delivered = delivered_error(target, reach, bias, options.dtype)
    radii = box_of(target, [delivered] * len(target.lags))
    neurons, draws = feedforward.read_out_neurons(options.ffn, target.readout, radii, options.width, budget / 2, options.seed)
    network = one_head_per_lag(target, reach, bias, error, feedforward.as_network(neurons))
    return Construction(target, options, network.map(lambda a: to_float(a, options.dtype)) if floats else network, draws)


def delivered_error(target: FixedMemory, reach: int, bias: int, dtype: str) -> arb:
    """What a memory may err by, with a share to spare; in floats u for every operation between a token and its memory and for every
    distance, on weights |a| + |c| ≤ 1 + N e^{−b}."""
    with working_precision(128):
        size = 1 + reach * (-arb(bias)).exp()
        operations = 0 if dtype == "exact" else rounding_price(target, len(target.lags), dtype) + 2 * reach * UNIT[dtype]
        return arb(upper(extraction_error(reach, arb(bias)) * (1 + BOX_SHARE) + size * (arb(operations) + BOX_SHARE * LEAST_ERROR)))


def _banks(target: FixedMemory, reach: int, bias: int, error: float) -> list[HeadBank]:
    """One head per lag: a = 1 + (N−1) e^{−b} and c = −e^{−b}, on the grid that the error asks for."""
    grid = fmpq(2) ** (max(0, math.ceil(-math.log2(error))) + GUARD)
    with working_precision(256):
        small = (-arb(bias)).exp()
        weight, residual = _on_grid(1 + (reach - 1) * small, grid), _on_grid(-small, grid)
    return [HeadBank("log", (fmpq(0),), (lag,), ((weight,),), (residual,)) for lag in target.lags]  # a table will stand for the decay


def _on_grid(value: arb, grid: fmpq) -> fmpq:
    """The nearest multiple of 1/grid."""
    return fmpq((arb(grid) * value.mid() + arb(fmpq(1, 2))).mid().floor().unique_fmpz()) / grid


def one_head_per_lag(target: FixedMemory, reach: int, bias: int, error: float, ffn: FeedForward | None = None) -> Transformer:
    """The layer of Theorem 3.1 with a table of biases in place of decays, and a read-out if there is one."""
    banks, ffn = _banks(target, reach, bias, error), ffn or placeholder(target)
    plain = assemble(target, banks, ffn)
    table = zeros(len(banks), reach)
    for head, lag in enumerate(target.lags):
        table[head, lag] = fmpq(bias)
    attention = replace(plain.layers[0].attention, rpe=("table",) * len(banks), table=table)
    return replace(plain, layers=(Layer(attention, ffn),))
