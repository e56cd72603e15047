"""Evaluating any network: float ones by the fast pass, long arrays block by block where that can be done, exact ones through their kernels.

Several devices share the sequences, or one long one, where that is asked for (`constructions.run.sharded`).

Exact networks that compare tokens, or have absolute positions, are rounded to float64 first.
"""

from typing import Any

import numpy as np

from analyzer.errors import Refusal
from analyzer.families import FormName
from constructions.network import recurrences
from constructions.network.precision import check_device
from constructions.network.transformer import Transformer, check_tokens, to_float
from constructions.run import fast, sharded, token_by_token
from constructions.run.fused import run_exact
from constructions.run.lagged import ExactRunner

RECURRENT = ("dp-free", "nf", "tmx")
"""Kinds of attention whose lin heads may run as recurrences."""


def run(network: Transformer, tokens: Any, devices: int = 1, form: FormName | None = None) -> np.ndarray:
    """Outputs (N,) or (batch, N), with an axis for c > 1 outputs at the end, for tokens (N, d) or (batch, N, d) in [−1, 1].

    Lin heads of float networks run in the given form, or in that of this context or of this device. Sections of an array that devices
    share are scanned, whatever suits the device.
    """
    given = check_tokens(network, tokens)
    with recurrences.using(form_of(network, form)):
        return evaluated(network, given) if devices == 1 else sharded.forward(network, given, devices, form)


def form_of(network: Transformer, asked: FormName | None) -> FormName:
    """The form in which lin heads run: what was asked for, here or of this context, or that of this device; exact networks have none."""
    if network.dtype != "exact":
        recurs = any("lin" in layer.attention.rpe and layer.attention.kind in RECURRENT for layer in network.layers)
        return asked or recurrences.pinned() or (recurrences.of_device() if recurs else "scan")
    if asked is not None and asked != "scan":
        raise Refusal("forms are for networks of floats, and this one is exact", {"dtype": "float64"})
    return "scan"


def runs_rounded(network: Transformer) -> bool:
    """Whether the network, if it is exact, is rounded to float64 before it runs: it compares tokens, or has absolute positions."""
    return network.positions is not None or any(layer.attention.kind in ("dp", "linear") for layer in network.layers)


def evaluated(network: Transformer, tokens: np.ndarray) -> np.ndarray:
    """The same for finite tokens of any size, such as Gaussian ones: worst cases are certified on [−1, 1] only."""
    if network.dtype != "exact":
        check_device(network.dtype)
        return token_by_token.forward(network, tokens)
    if runs_rounded(network):
        check_device("float64")
        return fast.forward(network.map(lambda weights: to_float(weights, "float64")), tokens)
    if any(layer.attention.kind in ("nf", "tmx") for layer in network.layers):
        return ExactRunner(network).stream(tokens)[-1]
    return run_exact(network, tokens)
