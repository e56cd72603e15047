"""Extraction errors of kerple heads (1 + rs)^{−p}: (K.1) of `analyzer.theorems.positions.kerple_heads`, and exponents that reach an error.

With A = 1/r, p_h = B + η(h−1), h = 1..H, and zeros at every s from 1 to H but the lag,

    e ≤ (T+A)^B ζ(B, H+1+A) Π_{1≤j≤H, j≠T} |1 − ((j+A)/(T+A))^η|^{−1}                                                    (K.1)
"""

import itertools
from collections.abc import Callable, Sequence
from functools import partial

from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.numbers.exact import working_precision
from analyzer.numbers.search import least_parameter

STEPS = tuple(fmpq(k, 16) for k in (2, 3, 4, 6, 8, 12, 16, 24, 32))
"""η over T + A that are tried."""


def law_text(lag: int, heads: int) -> str:
    """The lag law as a sentence."""
    return f"{heads} heads cannot extract lag {lag}: by the lag law one dp-free layer of kerple heads of one rate needs at least {lag}"


def extraction_error(lag: int, decays: Sequence[fmpq], rate: fmpq) -> arb:
    """(K.1) for the bank with these exponents, at the working precision."""
    heads = len(decays)
    if lag > heads:
        raise Refusal(law_text(lag, heads))
    steps = [b - a for a, b in itertools.pairwise(decays)]
    if any(step != steps[0] or step <= 0 for step in steps) or decays[0] <= 1:
        raise InputError("the exponents stored are no progression B + ηh with B > 1")
    offset, eta = 1 / rate, arb(steps[0] if steps else 1)
    product = arb(1)
    for j in range(1, heads + 1):
        if j != lag:
            product /= abs(1 - arb((j + offset) / (lag + offset)) ** eta)
    first = arb(decays[0])
    return product * arb(lag + offset) ** first * first.zeta(arb(heads + 1 + offset))


def progression(first: fmpq, step: fmpq, heads: int) -> list[fmpq]:
    """B + ηh, h < H."""
    return [first + step * h for h in range(heads)]


def exponents(lags: Sequence[int], heads: int, rate: fmpq, holds: Callable[[list[arb]], bool]) -> tuple[fmpq, fmpq]:
    """(B, η) with the least largest exponent: for every η of a grid the least B whose errors, lag by lag, satisfy `holds`."""

    def reached(step: fmpq, first: fmpq) -> bool:
        return holds([extraction_error(lag, progression(first, step, heads), rate) for lag in lags])

    steps = [share * (heads + 1 / rate) for share in STEPS] if heads > 1 else [fmpq(1)]
    with working_precision(128 + 8 * heads):
        found = [(least_parameter(partial(reached, step), fmpq(2), grow=True), step) for step in steps]
    return min(found, key=lambda pair: pair[0] + pair[1] * (heads - 1))
