"""What refutes a claim about a network, so that others can see it: the network itself, its certificate, and tokens to run.

A claim that bounds e or error from above is refuted by an input. For one dp-free layer it is the sign sequence of the error kernel, cut
where its tail hardly matters; for couplings the worst sequence that a search found. The error there is enclosed in balls (exact networks)
or that of a run (float networks): it is a lower bound by itself, whatever the certificate says. A claim that bounds them from below is
refuted by the certificate alone, and so are claims about other networks, whose certificate says at which tokens its witness is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.language.claims import Claim, ClaimVerdict, compare
from analyzer.numbers.exact import lower, rational, working_precision
from analyzer.theorems import jl_4_2 as coupled
from constructions.network.transformer import Transformer
from constructions.run.execute import run
from constructions.theorems.construction import Construction
from verify.chain.certificate import Certificate
from verify.chain.layer import FFN_BITS, sign_sequences
from verify.claims.points import judged
from verify.claims.quantities import Quantities, built, certified
from verify.layers import witness as layers
from verify.theorems import jl_4_2

SHOWN = ("e", "error")
"""Quantities that an input shows to be large."""
MEASURED = 8
"""Candidate inputs whose error is enclosed."""


@dataclass(frozen=True)
class Counterexample:
    """A network and, where an input refutes the claim, tokens (N, d) with the error at the token `position`."""

    construction: Construction
    certificate: Certificate
    tokens: np.ndarray | None = None
    position: int = 0
    output: float = 0.0
    """What the network gives there when it runs."""
    error: float = 0.0
    """|output − wanted| there, from below."""
    alone: bool = False
    """Whether this error alone refutes the claim; otherwise more of the past is needed, which the certificate's witness has."""


def counterexample(claim: Claim, sizes: Mapping[str, fmpq], quantities: Quantities) -> Counterexample:
    """The network at a point that refutes a claim, and an input if the claim bounds its error from above."""
    name, target, options = quantities.network(next(name for name in ("error", "e", "mse") if name in claim.quantities))
    found = Counterexample(built(name, target, options), certified(name, target, options))
    shown = _exceeded(claim, sizes, quantities)
    compared = name == coupled.ID
    if shown is None or not (compared or target.as_layer_target is not None):
        return found
    network = found.construction.network
    inputs = [jl_4_2.worst_sequence(network, target)] if compared else sign_sequences(network, target)[:MEASURED]
    exactly = jl_4_2.output_at if compared else layers.output_at
    for tokens in inputs:
        position = 0 if compared else len(tokens) - 1
        output, error = _error_at(network, target, tokens, position, exactly)
        if found.tokens is None or error > found.error:
            found = replace(found, tokens=tokens, position=position, output=output, error=error)
    if shown == "e" and not _passes_on(target):
        return found
    measured = Quantities(sizes, quantities.subject, {**quantities.given, shown: rational(found.error)})
    return replace(found, alone=judged(claim, sizes, measured)["verdict"] == ClaimVerdict.REFUTED.value)


def _passes_on(target: Any) -> bool:
    """Whether the read-out passes errors of the memories on without making them larger, so that its error bounds e from below."""
    return not target.readout.ridges and all(abs(weight) <= 1 for weight in target.readout.affine)


def _exceeded(claim: Claim, sizes: Mapping[str, fmpq], quantities: Quantities) -> str | None:
    """The quantity on the smaller side of an inequality that fails, if an input can show it to be large."""
    with working_precision(FFN_BITS):
        balls = {name: arb(value) for name, value in sizes.items()}
        for small, large, strict in claim.links:
            values = [side.value(balls, quantities) for side in (small, large)]
            if compare(values[0], "<" if strict else "<=", values[1]) is ClaimVerdict.REFUTED:
                return next((name for name in SHOWN if name in small.quantities), None)
    return None


def _error_at(
    network: Transformer, target: Any, tokens: np.ndarray, t: int, exactly: Callable[[Transformer, Any, np.ndarray, int], arb]
) -> tuple[float, float]:
    """What the network gives at token t, and its distance from what is wanted there, from below."""
    output = float(np.asarray(run(network, tokens, form="scan"))[t])
    reached = exactly(network, target, tokens, t) if network.dtype == "exact" else arb(output)
    with working_precision(FFN_BITS):
        return output, max(0.0, lower(abs(reached - wanted_at(target, tokens, t))))


def wanted_at(target: Any, tokens: np.ndarray, t: int) -> arb:
    """The target at token t, in balls."""
    exact = [[rational(float(v)) for v in token] for token in tokens]
    if target.as_layer_target is None:
        compared: arb = target.at([token[0] for token in exact], t)
        return compared
    recent: arb = target.readout(target.memories([[arb(v) for v in token] for token in exact[: t + 1][::-1]]))
    return recent
