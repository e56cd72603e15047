"""Mixed minimal banks (`analyzer.lemmas.quadrature`): one log head and ⌊T/2⌋ lin heads for lag T, with exact weights."""

import math

from flint import arb, fmpq

from analyzer.errors import Refusal
from analyzer.lemmas.quadrature import LONGEST, mixed_bound, mixed_rule, precision
from analyzer.numbers.exact import dyadic, to_grid, upper, working_precision
from analyzer.numbers.search import least_parameter
from constructions.banks.head_banks import GUARD, HeadBank


def mixed_minimal(lag: int, error: float) -> tuple[HeadBank, HeadBank]:
    """(log bank of one head, lin bank of ⌊T/2⌋ heads) with e ≤ error by (3.8), at the least decay p that does; the latter has the residual.

    Nodes are rounded so finely that the zeros at 1 ≤ s < T, of which the ⌊T/2⌋ + 1 weights can only keep as many as they are, move by less
    than 2^-64 of e: the kernel changes by at most Σ_i |a_i| times the relative change of a decay times its size. The prescribed node of an
    even lag has a whole decay, which is not rounded.
    """
    if lag > LONGEST:
        raise Refusal(f"mixed minimal banks are built for lags up to {LONGEST}", {"rpe": "lin"}, {"rpe": "log"})
    goal = error * (1 - 2.0**-40)  # what storing the weights may take
    decay = least_parameter(lambda p: upper(mixed_bound(lag, p)) <= goal, fmpq(4), grow=True)
    bits = precision(decay, lag // 2)
    with working_precision(bits):
        rule = mixed_rule(lag, decay)
        scale = 1 / rule.raw(lag)
        depth = GUARD + 64 + max(0, -_exponent(error))
        decays = [dyadic(-z.log(), bits // 2) for z in rule.nodes]
        if rule.fastest is not None:
            decays[0] = rule.fastest
        log_weight = to_grid(scale * arb(decay).zeta(), depth)
        raw = [-scale * w for w in rule.amplitudes]
        weights = [to_grid(a / (1 - z), depth) for a, z in zip(raw, rule.nodes, strict=True)]
        residual = to_grid(-sum(raw, arb(0)), depth)
    log = HeadBank("log", (decay,), (lag,), ((log_weight,),), (fmpq(0),))
    lin = HeadBank("lin", tuple(decays), (lag,), (tuple(weights),), (residual,))
    return log, lin


def _exponent(value: float) -> int:
    return math.frexp(value)[1]
