"""Whether two couplings are one target: shown symbolically, refuted by a sequence, or undecided (`analyzer.limits.coupling_invariance`)."""

from typing import Any

import numpy as np
from flint import arb

from analyzer.errors import InputError
from analyzer.lemmas.low_rank import spectrum
from analyzer.limits.coupling_invariance import ID, apart, moved_at_most, query_oscillation, sameness
from analyzer.numbers.exact import rational, working_precision
from analyzer.targets.coupling import BITS, CouplingTarget, FormulaCoupling
from verify.chain.certificate import finite

SAMPLED = 512
"""Random sequences that are compared in floats."""
COMPARED = 8
"""Of these, those that are compared in balls."""
GRID = 64
"""Tokens are multiples of 1/64: exact in every type."""


def invariance(first: CouplingTarget, second: CouplingTarget) -> dict[str, Any]:
    """The verdict, what is shown to vanish, a sequence at which the two differ, (iii), and ranks, also modulo functions of the query."""
    couplings = (first.coupling, second.coupling)
    if not isinstance(couplings[0], FormulaCoupling) or not isinstance(couplings[1], FormulaCoupling):
        raise InputError("couplings are compared as formulas rho in u and v; this one is given by its singular values")
    if first.length != second.length:
        raise InputError(f"sequences of {first.length} and of {second.length} tokens: two targets are compared on the same sequences")
    rho = (couplings[0].formula, couplings[1].formula)
    found = sameness(rho, (first.f, second.f), (first.F, second.F))
    witness, tokens = (0.0, []) if found.whole else _difference(first, second)
    verdict = "same" if found.whole else "different" if witness > 0 else "undecided"
    delta = arb(0) if found.query_only else query_oscillation(rho)
    low, high = first.value_range
    with working_precision(BITS):
        most = moved_at_most(first.slope(arb(low), arb(high)), first.oscillation, delta) if found.affine else float("inf")
    spectra = {name: [spectrum(coupling, name).rank for coupling in couplings] for name in ("pod", "centred")}
    return {
        "theorem": ID,
        "couplings": [coupling.name for coupling in couplings],
        "verdict": verdict,
        "query_only": found.query_only,
        "affine": found.affine,
        "difference": witness,
        "difference_upper": finite(most),
        "tokens": tokens,
        "ranks": spectra["pod"],
        "ranks_modulo_query": spectra["centred"],
    }


def _difference(first: CouplingTarget, second: CouplingTarget) -> tuple[float, list[float]]:
    """The largest certified |H − H'| at the first of the tokens, among sequences that look worst in floats, and the sequence."""
    rng = np.random.default_rng(0)
    length = first.length
    drawn = rng.integers(GRID + 1, size=(SAMPLED, length))
    drawn[: GRID + 1] = np.arange(GRID + 1)[:, None]  # constant sequences: F∘f
    drawn[GRID + 1 : SAMPLED // 2, 1:] = drawn[GRID + 1 : SAMPLED // 2, 1:2]  # a query u, all others v
    tokens = drawn / GRID
    with np.errstate(all="ignore"):
        gaps = np.abs(first.compiled(np, slice(0, 1))(tokens) - second.compiled(np, slice(0, 1))(tokens))[:, 0]
    best, worst = 0.0, list[float]()
    for k in np.argsort(-np.nan_to_num(gaps))[:COMPARED]:
        exact = [rational(float(v)) for v in tokens[k]]
        with working_precision(BITS):
            gap = apart(first.at(exact, 0), second.at(exact, 0))
        if gap > best:
            best, worst = gap, [float(v) for v in tokens[k]]
    return best, worst
