"""The certificate of parity: all sequences of all lengths up to the longest, from the stored weights.

The weights are whole numbers but for the sharpness c of the logits and the gain g, which are read off the network; every other entry is
held against the construction (`verify.theorems.library.written`). For such weights the page (`analyzer.theorems.library.parity`) has the
proof, roundings of the fast executor included; what is left to certify are its hypotheses, in balls:

    indicator   what is averaged is 1{i = k}/N, off by ρ at most: 0 for the clipped form
    margin      1/(g d̂) ≤ 1 at N = L + 1, d̂ the least computed difference of the heads; bounds are monotone, so at every length
    plateau     the error that is left where the margin holds

and that c's exponentials are in range and as exact as the proof says. Permutations of the bits change nothing that a head adds up, so k
stands for all its sequences, and (P.1) for all k of a parity: there are two cases per length. The bound is (P.3) for the theorem's own
gain.
"""

import time

import numpy as np
from flint import arb, fmpq

from analyzer.numbers.exact import lower, nearest, upper, working_precision
from analyzer.targets.tasks.parity import ParityTarget
from analyzer.theorems.library.parity import (
    BITS,
    ID,
    INDICATOR,
    MARGIN,
    PLATEAU,
    SLIP,
    computed_margin,
    gain_for,
    horizon,
    margin,
    noise,
    promised_error,
    proof_graph,
    ramp_error,
    unit_of,
    wrong_from,
)
from constructions.network.exponential import DEEPEST
from constructions.network.transformer import Transformer, to_exact
from constructions.theorems.library.parity import assemble, slots
from verify.chain.certificate import Certificate, StrangeWeights, matched
from verify.chain.rounding import exponential_error
from verify.theorems.library.written import check_written, errors_at

SHORT = 2
"""Lengths up to which every k is tried in search of a witness."""
LONG = 255
"""The longest sequence that is run in search of a witness."""


def parameters(network: Transformer, target: ParityTarget) -> tuple[str, fmpq, fmpq]:
    """(form, c, g) of stored weights; refused if anything else is not what the construction writes."""
    form = {4: "clipped", 2: "paper"}.get(len(network.layers))
    if form is None or network.positions is None:
        raise StrangeWeights("networks for parity have two or four layers, and a table of positions")
    place = {name: where.start for name, where in slots(target, network).items()}
    comparing = network.layers[2 if form == "clipped" else 1]
    query, inner = comparing.attention.query, comparing.feedforward.inner
    row = 0 if form == "clipped" else 1
    if query.shape != (2, 1, len(place)) or inner.ndim != 2 or inner.shape[0] <= row or inner.shape[1] != len(place):
        raise StrangeWeights("the heads that compare even and odd positions are not those of the construction")
    sharpness, slope = to_exact(query[:1, :, place["one"]])[0, 0], to_exact(inner[row : row + 1, place["comparison"]])[0]
    gain = -slope if form == "clipped" else slope
    check_written(network, assemble(form, len(network.positions), sharpness, gain))
    if len(network.positions) < target.longest + 1:
        raise StrangeWeights(f"{len(network.positions)} positions do not hold a begin token and {target.longest} bits")
    if not (gain > 0 and 0 < 2 * sharpness <= DEEPEST["float64" if network.dtype == "exact" else network.dtype]):
        raise StrangeWeights(f"sharpness {nearest(sharpness):.3g} and gain {nearest(gain):.3g} are not those of heads that compare")
    return form, sharpness, gain


def verify(network: Transformer, target: ParityTarget, bank: str, ffn: str) -> Certificate:
    """The whole chain from the stored weights."""
    start = time.perf_counter()
    form, sharpness, gain = parameters(network, target)
    dtype, tokens = network.dtype, target.longest + 1
    with working_precision(BITS):
        unit = unit_of(dtype)
        if dtype != "exact" and not exponential_error(dtype) <= SLIP * unit:
            raise ArithmeticError("the exponential is not as exact as the proof says")
        least = computed_margin(form, tokens, unit, sharpness)
        lifted = 1 / (arb(gain) * least) if least > 0 else arb.pos_inf()
        own = gain_for(form, target.longest, dtype)
        promised = arb.pos_inf() if own is None else promised_error(form, own, dtype)
        left = ramp_error(form, arb(gain), tokens, unit)
        certified = left if lifted <= 1 else arb.pos_inf()
        measured = {
            INDICATOR: (noise(form, unit), arb(0) if form == "clipped" else 15 * unit),
            MARGIN: (lifted, arb(1)),
            PLATEAU: (left, promised),
        }
        witness, shown = _witness(network, target)
        margins = {n: lower(min(margin(n + 1, odd, sharpness) for odd in (False, True))) for n in _lengths(target.longest)}
    return Certificate(
        theorem=ID,
        witness=witness,
        witness_input=shown,
        certified=upper(certified),
        bound=upper(promised),
        rounding=upper(certified),
        trivial=target.constant_error(),
        least_heads=None,
        parts=matched(proof_graph("none", form, ffn, ()), measured),
        sizes=network.sizes(),
        dtype=dtype,
        seconds=time.perf_counter() - start,
        details={
            "form": form,
            "gain": nearest(gain),
            "lengths": [1, target.longest],
            "computed_margin": max(0.0, lower(least)),
            "margins": {str(n): value for n, value in margins.items()},
            "horizon": horizon(form, dtype),
            "wrong_from": wrong_from(dtype),
        },
    )


def _lengths(longest: int) -> list[int]:
    """1, 2, 4, … and the longest."""
    return sorted({longest, *(2**j for j in range(longest.bit_length()))})


def _witness(network: Transformer, target: ParityTarget) -> tuple[float, str]:
    """The largest error among sequences that were run: every k at short lengths, some k at one long one. Exact networks are enclosed."""
    cases = [(n, k) for n in range(1, min(SHORT, target.longest) + 1) for k in range(n + 1)]
    if network.dtype != "exact":
        n = min(LONG, target.longest)
        cases += [(n, k) for k in sorted({0, 1, n // 2, n - 1, n})]
    best, shown = 0.0, ""
    for n in sorted({n for n, _ in cases}):
        counts = [k for length, k in cases if length == n]
        tokens = target.tokens(np.array([[1] * k + [0] * (n - k) for k in counts]))
        for k, error in zip(counts, errors_at(network, tokens, [target.exact_value(row) for row in tokens]), strict=True):
            if error > best or not shown:
                best, shown = max(best, error), f"{n} bits, the first {k} of them ones"
    return best, shown
