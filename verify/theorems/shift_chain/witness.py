"""Witnesses of chains of shifts: explicit inputs, and the error that they show.

A linear chain is a convolution of the tokens, and its read-out goes wrong most where the tokens are the signs of the composed error kernel.
A restored chain makes no error that a sequence could add up; random tokens of its alphabet are run.
"""

from itertools import product

import numpy as np
from flint import arb, arb_poly

from analyzer.numbers.exact import lower, rational, working_precision
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems.shift_chain import readout_variables
from constructions.network.transformer import Transformer
from constructions.run import fast
from constructions.run.fused import stream_kernels
from verify.chain.layer import FFN_BITS, read_out_in_balls
from verify.theorems.shift_chain.letters import value_at

WITNESS_TAIL = 128
"""Tokens beyond twice the lag in a linear chain's witness."""
MAX_WITNESS = 2048
"""Tokens of a witness at most."""
WITNESS_ROWS = 8
"""Random sequences that are run through a restored network, and tokens of each beyond the lag."""
WITNESS_TOKENS = 256

StreamValues = list[list[list[arb]]]
"""The first values κ(0), κ(1), … of the kernel of every stream coordinate, for every coordinate of a token."""


def sign_witness(network: Transformer, target: FixedMemory) -> tuple[float, str]:
    """(the error at the sign sequences of the composed error kernels, how they were run): in the float type, or in ball arithmetic."""
    length = min(MAX_WITNESS, 2 * target.lags[-1] + WITNESS_TAIL)
    length = max(length, target.lags[-1] + 1)
    kernels = _stream_values(network, target, length)
    candidates = _sign_sequences(target, kernels, length)
    if network.dtype == "exact":
        balls = [_error_in_balls(network, target, kernels, recent) for recent in candidates]
        return max(balls), "sign sequence of the composed kernel, in ball arithmetic"
    outputs = fast.forward(network, np.stack([recent[::-1] for recent in candidates]))[:, -1]
    errors = [lower(abs(arb(rational(float(y))) - _target_value(target, c))) for y, c in zip(outputs, candidates, strict=True)]
    return max(errors), f"sign sequence of the composed kernel, run in {network.dtype}"


def _sign_sequences(target: FixedMemory, kernels: StreamValues, length: int) -> list[np.ndarray]:
    """± sign(w·(κ − 1)) for the directions w of the read-out; entry s is the token s positions back."""
    readout, d = target.readout, target.dim
    candidates = []
    for direction in [readout.affine, *(ridge.direction for ridge in readout.ridges)]:
        if all(w == 0 for w in direction):
            continue
        signs = np.ones((length, d))
        for i, s in product(range(d), range(length)):
            value = sum((arb(w) * kernels[j][i][s] for j, w in enumerate(direction) if w != 0), arb(0))
            for k, lag in enumerate((0, *target.lags)):
                value -= arb(direction[k * d + i] if s == lag else 0)
            signs[s, i] = -1 if value.mid() < 0 else 1
        candidates += [signs, -signs]
    return candidates


def _target_value(target: FixedMemory, recent: np.ndarray) -> arb:
    """f at the last position; recent[s] is the token s positions back."""
    return target.readout([arb(rational(float(v))) for lag in (0, *target.lags) for v in recent[lag]])


def _error_in_balls(network: Transformer, target: FixedMemory, kernels: StreamValues, recent: np.ndarray) -> float:
    return max(0.0, lower(abs(_output(network, kernels, recent) - _target_value(target, recent))))


def _output(network: Transformer, kernels: StreamValues, recent: np.ndarray) -> arb:
    """The read-out of the stream with these kernels; recent[s] is the token s positions back."""
    tokens = [[arb(rational(float(v))) for v in column] for column in recent.T]
    stream = [
        sum((k * x for kernel, xs in zip(row, tokens, strict=True) for k, x in zip(kernel, xs, strict=True)), arb(0)) for row in kernels
    ]
    final = network.layers[-1].feedforward
    return read_out_in_balls(final.inner, final.bias, final.outer[0], stream)


def output_at(network: Transformer, target: FixedMemory, tokens: np.ndarray, t: int) -> arb:
    """The output of an exact linear chain at token t of (N, d), in balls; tokens before them are zero."""
    recent = tokens[: t + 1][::-1]
    with working_precision(FFN_BITS):
        return _output(network, _stream_values(network, target, len(recent)), recent)


def _stream_values(network: Transformer, target: FixedMemory, length: int) -> StreamValues:
    """The kernels of x0 and the memories."""
    return [[_values(p, length) for p in row] for row in stream_kernels(network, length)[: target.readout.coordinates]]


def _values(polynomial: arb_poly, length: int) -> list[arb]:
    """The first values of a kernel that is given as a polynomial."""
    return [*polynomial.coeffs(), *[arb(0)] * (length - len(polynomial.coeffs()))]


def random_witness(network: Transformer, target: FixedMemory) -> float:
    """The largest error that random tokens show, at positions whose lags lie inside the array."""
    letters, lag = target.alphabet, target.lags[-1]
    assert letters is not None
    rng = np.random.default_rng(0)
    chosen = rng.integers(0, len(letters), (WITNESS_ROWS, lag + WITNESS_TOKENS, target.dim))
    outputs = fast.forward(network, np.array([float(arb(v)) for v in letters])[chosen])
    variables = readout_variables(target)
    lags, worst, known = (0, *target.lags), 0.0, dict[tuple[float, tuple[int, ...]], float]()
    for row, t in product(range(WITNESS_ROWS), range(lag, lag + WITNESS_TOKENS)):
        choice = tuple(int(chosen[row, t - lags[j // target.dim], j % target.dim]) for j in variables)
        output = float(outputs[row, t])
        if (output, choice) not in known:
            known[output, choice] = lower(abs(arb(rational(output)) - value_at(target, variables, choice)))
        worst = max(worst, known[output, choice])
    return worst
