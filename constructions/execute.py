"""Evaluating any network: float ones by the fast pass, exact ones through their kernels.

Exact networks with softmax over all tokens are rounded to float64 first.
"""

from typing import Any

import numpy as np

from analyzer.errors import InputError
from constructions import fast
from constructions.fused import run_exact
from constructions.lagged import ExactRunner
from constructions.transformer import Transformer, to_float


def run(network: Transformer, tokens: Any) -> np.ndarray:
    """Outputs (N,) or (batch, N) for tokens (N, d) or (batch, N, d) in [−1, 1]."""
    tokens = np.asarray(tokens)
    if tokens.ndim not in (2, 3) or tokens.shape[-1] != network.dim or tokens.size == 0:
        raise InputError(f"tokens have shape {tokens.shape}; expected (N, {network.dim}) or (batch, N, {network.dim}), not empty")
    if tokens.dtype.kind not in "fiu" or not np.isfinite(tokens).all():
        raise InputError("tokens must be finite real numbers")
    if tokens.max() > 1 or tokens.min() < -1:
        raise InputError("tokens must lie in [-1, 1]: outside it no certificate holds")
    if network.dtype != "exact":
        return fast.forward(network, tokens)
    if any(layer.attention.window == "full" for layer in network.layers):
        return fast.forward(network.map(lambda weights: to_float(weights, "float64")), tokens)
    if any(layer.attention.kind in ("nf", "tmx") for layer in network.layers):
        return ExactRunner(network).stream(tokens)[-1]
    return run_exact(network, tokens)
