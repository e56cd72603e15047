"""Mixed minimal banks (`analyzer.lemmas.quadrature`): one log head and n lin heads for lag 2n + 1, with exact weights."""

import math

from flint import arb, fmpq

from analyzer.errors import Refusal
from analyzer.lemmas.quadrature import MAX_NODES, gauss, mixed_bound, precision
from analyzer.numbers.exact import dyadic, to_grid, upper, working_precision
from constructions.banks.head_banks import GUARD, HeadBank, least_parameter


def mixed_minimal(lag: int, error: float) -> tuple[HeadBank, HeadBank]:
    """(log bank of one head, lin bank of n heads) with e ≤ error by (3.8), at the least decay p that does; the lin bank holds the residual.

    Nodes are rounded so finely that the zeros at s = 1..2n, of which the n + 1 weights can only keep n + 1, move by less than 2^-64 of e:
    the kernel changes by at most Σ_i |a_i| times the relative change of a decay times its size.
    """
    nodes = lag // 2
    if lag % 2 == 0:
        raise Refusal(
            f"lag {lag} is even: a mixed minimal bank (one log head, n lin heads) delivers odd lags 2n + 1", {"rpe": "lin"}, {"rpe": "log"}
        )
    if nodes > MAX_NODES:
        raise Refusal(f"mixed minimal banks are built for lags up to {2 * MAX_NODES + 1}", {"rpe": "lin"}, {"rpe": "log"})
    goal = error * (1 - 2.0**-40)  # what storing the weights may take
    decay = least_parameter(lambda p: upper(mixed_bound(lag, p)) <= goal, fmpq(4), grow=True)
    with working_precision(precision(decay, nodes)):
        rule = gauss(decay, nodes)
        scale = 1 / rule.raw(lag)
        depth = GUARD + 64 + max(0, -_exponent(error))
        bits = precision(decay, nodes) // 2
        decays = [dyadic(-z.log(), bits) for z in rule.nodes]
        log_weight = to_grid(scale * arb(decay).zeta(), depth)
        raw = [-scale * w for w in rule.amplitudes]
        weights = [to_grid(a / (1 - z), depth) for a, z in zip(raw, rule.nodes, strict=True)]
        residual = to_grid(-sum(raw, arb(0)), depth)
    log = HeadBank("log", (decay,), (lag,), ((log_weight,),), (fmpq(0),))
    lin = HeadBank("lin", tuple(decays), (lag,), (tuple(weights),), (residual,))
    return log, lin


def _exponent(value: float) -> int:
    return math.frexp(value)[1]
