"""The certificate of the first bit: all sequences of all lengths up to the longest, from the stored weights.

The logit β is read off the network; every other entry is held against the construction (`verify.theorems.library.written`). For such
weights the page (`analyzer.theorems.library.first`) has the proof, roundings of the fast executor included, and what is left to certify is
its inequality: at the longest sequences the computed mean is within 1/4 of the first bit. It is monotone, so this holds at every length,
and the output is then the bit itself. The sequences 1 0 … 0 and 0 1 … 1 are the worst ones, and are run.
"""

import time

import numpy as np
from flint import arb, fmpq

from analyzer.numbers.exact import nearest, upper, working_precision
from analyzer.targets.tasks.first import FirstTarget
from analyzer.theorems.library.first import ID, PLATEAU, SHARE, distance, horizon, proof_graph, wrong_from
from analyzer.theorems.library.parity import BITS, SLIP, unit_of
from constructions.network.exponential import DEEPEST
from constructions.network.transformer import Transformer, to_exact
from constructions.theorems.library.first import MEANINGS, ONE, assemble
from verify.chain.certificate import Certificate, StrangeWeights, matched
from verify.chain.rounding import exponential_error
from verify.theorems.library.written import check_written, errors_at

LONG = 255
"""The longest sequence that is run in search of a witness; 12 for exact networks, which are enclosed."""


def logit_of(network: Transformer, target: FirstTarget) -> fmpq:
    """β of stored weights; refused if anything else is not what the construction writes."""
    if len(network.layers) != 2 or network.positions is None or network.layers[0].attention.query.shape != (1, 1, len(MEANINGS)):
        raise StrangeWeights("networks for the first bit have two layers, one head and a table of positions")
    logit: fmpq = to_exact(network.layers[0].attention.query)[0, 0, ONE]
    check_written(network, assemble(len(network.positions), logit))
    if len(network.positions) < target.longest:
        raise StrangeWeights(f"{len(network.positions)} positions do not hold {target.longest} bits")
    if not 0 < logit <= DEEPEST["float64" if network.dtype == "exact" else network.dtype]:
        raise StrangeWeights(f"a logit of {nearest(logit):.3g} does not single out the first token")
    return logit


def verify(network: Transformer, target: FirstTarget, bank: str, ffn: str) -> Certificate:
    """The whole chain from the stored weights."""
    start = time.perf_counter()
    logit, dtype = logit_of(network, target), network.dtype
    with working_precision(BITS):
        unit = unit_of(dtype)
        if dtype != "exact" and not exponential_error(dtype) <= SLIP * unit:
            raise ArithmeticError("the exponential is not as exact as the proof says")
        away = distance(target.longest, logit, unit)
        certified = arb(0) if 4 * away <= 1 else arb(1)  # beyond the plateau the output is still between 0 and 1
        witness, shown = _witness(network, target)
    return Certificate(
        theorem=ID,
        witness=witness,
        witness_input=shown,
        certified=upper(certified),
        bound=0.0,
        rounding=0.0,
        trivial=target.constant_error(),
        least_heads=None,
        parts=matched(proof_graph("none", bank, ffn, ()), {SHARE: (away, arb(1) / 4), PLATEAU: (certified, arb(0))}),
        sizes=network.sizes(),
        dtype=dtype,
        seconds=time.perf_counter() - start,
        details={
            "beta": nearest(logit),
            "lengths": [1, target.longest],
            "horizon": horizon(logit, dtype),
            "wrong_from": wrong_from(logit),
        },
    )


def _witness(network: Transformer, target: FirstTarget) -> tuple[float, str]:
    """The largest error at the worst sequences of the longest length that is run, over all positions."""
    length = min(12 if network.dtype == "exact" else LONG, target.longest)
    bits = np.ones((2, length, 1))
    bits[0, 0] = bits[1, 1:] = 0
    errors = errors_at(network, bits, [arb(0), arb(1)])
    worst = int(np.argmax(errors))
    return errors[worst], f"{length} bits, {worst} and then all others {1 - worst}"
