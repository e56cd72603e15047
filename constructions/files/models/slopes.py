"""Slopes p of heads that weigh the token s steps back by e^{−ps}, computed from a configuration as the models do.

Models compute powers in float32, where programs differ in the last bit; here a power of a float32 number is taken in float64 and rounded
once, so that a slope is within 2^−22 of the model's own, relatively; RetNet's language models, whose own formula takes differences of
logarithms in float32, are within 2^−16.
"""

import math

import ml_dtypes
import numpy as np


def _powers(base: float, exponents: range) -> list[float]:
    """Powers of a float32 number, rounded to float32."""
    rounded = float(np.float32(base))
    return [float(np.float32(rounded**k)) for k in exponents]


def alibi(heads: int) -> tuple[float, ...]:
    """BLOOM's and Falcon's: 2^{−8k/n} for the power of two n ≤ H below, then every other slope of 2n heads."""
    power = 1 << (heads.bit_length() - 1)
    found = _powers(2 ** -(2 ** -(math.log2(power) - 3)), range(1, power + 1))
    rest = heads - power
    return tuple(found + _powers(2 ** -(2 ** -(math.log2(2 * power) - 3)), range(1, 2 * rest, 2)))


def falcon(heads: int, head_dim: int) -> tuple[float, ...]:
    """ALiBi's slopes as bfloat16 stores them, divided by √d_k with the rest of the logits."""
    return tuple(float(ml_dtypes.bfloat16(p)) / math.sqrt(head_dim) for p in alibi(heads))


def mpt(heads: int, bias_max: float) -> tuple[float, ...]:
    """2^{−bk/n}, k = 1, …, n, for the power of two n ≥ H above; of more slopes than heads the second, fourth, … come first."""
    power = 1 << (heads - 1).bit_length()
    exponents = np.arange(1, power + 1, dtype=np.float32) * np.float32(bias_max / power)
    slopes = [float(1 / np.float32(2.0 ** float(e))) for e in exponents]
    return tuple(slopes if power == heads else (slopes[1::2] + slopes[::2])[:heads])


def minimax(heads: int, layer: int, layers: int) -> tuple[float, ...]:
    """Lightning attention's: 2^{−8k/H} times a factor that falls from layer to layer, from 1 + 10⁻⁵ to little more than 10⁻⁵."""
    factor = np.float32(1 - layer / (layers - 1 + 1e-5) + 1e-5)
    return tuple(float(np.float32(p) * factor) for p in _powers(1 / 2 ** (8 / heads), range(1, heads + 1)))


def retnet(heads: int, language: bool) -> tuple[float, ...]:
    """−log γ_h for γ_h = 1 − 2^{−5−h}, h = 0, 1, …; with `language` 1 − γ runs from 1/32 to 1/512, evenly in its logarithm."""
    if language:
        rests = np.exp(np.linspace(math.log(1 / 32), math.log(1 / 512), heads))
        return tuple(float(-np.log1p(-rest)) for rest in rests)
    return tuple(-math.log1p(-(2.0 ** (-5 - h))) for h in range(heads))
