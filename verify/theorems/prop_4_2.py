"""Part (A) of Proposition 4.2 certified: the one-layer dot-product network from its stored weights."""

from dataclasses import dataclass

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.kernels.l1_norms import l1_norm
from analyzer.lemmas.extraction import adaptive_minimal_bound
from analyzer.numbers.exact import lower, maximum, upper, working_precision
from analyzer.theorems.prop_4_2 import ALPHABET, LAGS
from constructions.network.transformer import Transformer, to_exact
from constructions.run.lagged import lagged_layers
from constructions.theorems.prop_4_2 import LAG, MEMORY, TOKEN
from verify.theorems.thm_4_4 import STORAGE


@dataclass(frozen=True)
class Reached:
    """witness ≤ certified ≤ bound of a one-layer dot-product network on the target of Proposition 4.2."""

    witness: float
    certified: float
    bound: float
    heads: int


def verify(network: Transformer) -> Reached:
    """Certify a network of part (A) from its weights: ‖κ(·; x+1) − 1_{x+1}‖₁ for every token x."""
    if len(network.layers) != 1 or tuple(network.embedding.shape) != (4, 1):
        raise InputError("the network of Proposition 4.2 has one layer and four coordinates")
    ffn, layer = network.layers[0].feedforward, lagged_layers(network)[0]
    parts = {
        "embedding": (to_exact(network.embedding)[:, 0], [1, 0, 1, 0]),
        "bias": (to_exact(network.bias), [0, 0, 1, 1]),
        "read-out": (
            np.concatenate([to_exact(a).ravel() for a in (ffn.inner, ffn.bias, ffn.outer)]),
            [0, 1, 0, 0, 0, -1, 0, 0, 0, 0, 1, -1],
        ),
        "what values read": (layer.gains.any(axis=(0, 1)), [j == TOKEN for j in range(4)]),
        "what attention writes": (layer.gains.any(axis=(0, 2)), [j == MEMORY for j in range(4)]),
        "what scores read": (layer.scores.any(axis=0), [j == LAG for j in range(4)]),
    }
    if any(p != "none" for p in ffn.precision):
        raise InputError("the read-out of Proposition 4.2's network is not rounded")
    for name, (found, expected) in parts.items():
        if np.asarray(found).tolist() != expected:
            raise InputError(f"this is not the network of Proposition 4.2: {name} differs")
    with working_precision(layer.bits(arb(max(LAGS)))):
        norms = {x: l1_norm(layer.kernel(MEMORY, TOKEN, arb(x + 1), {x + 1: fmpq(1)})) for x in ALPHABET}
        # tokens are free at s ≥ 1 and equal to x at s = 0: the sign sequence attains all but that term
        attained = [lower(sum((abs(v) for v in norm.window[1:]), arb(0)) - abs(norm.window[0] * x)) for x, norm in norms.items()]
        promised = adaptive_minimal_bound("lin", LAGS, list(layer.decays)) * (1 + STORAGE)
        return Reached(max(0.0, *attained), upper(maximum([n.most for n in norms.values()])), upper(promised), len(layer.rpe))
