"""The certificate of a linear RNN built for a sum of exponentials: witness ≤ certified ≤ bound, over all sequences with an infinite past.

For tokens in [−1, 1] (so also for [0, 1]) the worst-case error of a linear RNN in real arithmetic is ‖κ − ρ‖₁, κ(s) = Σ_i c_i z_i^s U_i its
impulse response: an ℓ¹ norm with an infinite tail, enclosed from the stored weights by `analyzer.kernels.l1_norms.l1_norm`. Float networks
round: a state S ← fl(fl(zS) + fl(Ux)), or with the product fused, is within E of its real value with

    E (1 − |z|(1+u)²) ≤ ((1+u)² − 1)|z||S| + two roundings of U x + flushes,     |S| ≤ |U|/(1−|z|),

and the read-out cᵀh adds one dot product (`verify.chain.rounding`). certified = ‖κ − ρ‖₁ + that. The bound never looks at the stored
weights: it is the storage bound Σ_i u|a_i|/((1−z_i)(1−z_i(1+u))) of the kernel's own exponentials, plus the rounding of the largest weights
that storage allows. The witness is the error of the network that really runs at the sign sequence of κ − ρ, the target in ball arithmetic.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.kernels.l1_norms import DeliveredKernel, Norm, l1_norm, norm_of
from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.numbers.exact import dyadic, lower, rational, upper, working_precision
from constructions.network.transformer import to_exact
from constructions.theorems.linear_rnn import Exponential, LinearRNN, exact_response, exponentials, forward, storage_bound, unit_of
from verify.chain.certificate import Certificate, Part
from verify.chain.rounding import ONE, Arithmetic

PRECISION = 512
"""Bits of the balls: kernels of exact networks agree with ρ to 64 bits and more, and their differences are summed."""
LONGEST_WITNESS = 4096
"""Tokens of the sign sequence that is run."""


def verify_linear_rnn(rnn: LinearRNN, kernel: MemoryKernel) -> Certificate:
    """The chain of a network for the target y_t = Σ_{s≥0} ρ(s) x_{t−s}; weights that are no numbers are refused (InputError)."""
    started = time.perf_counter()
    leaves = [to_exact(leaf) for leaf in (rnn.transition, rnn.input, rnn.output)]
    terms = exponentials(kernel)
    faults: list[str] = []
    error, rounding, witness = arb.pos_inf(), arb.pos_inf(), 0.0
    with working_precision(PRECISION):
        unit = unit_of(rnn, terms)
        stored, budget = storage_bound(terms, unit), _rounding_bound(rnn.dtype, terms, unit)
        try:
            norm = l1_norm(DeliveredKernel(fmpq(0), (exact_response(rnn),), subtracted=((fmpq(1), kernel),)))
            rounding = _rounding(rnn.dtype, *(list(leaf) for leaf in leaves))
            error, witness = norm.most, _witness(rnn, kernel, norm)
        except (InputError, Refusal) as problem:
            faults.append(str(problem))
        chain = _Chain(error, rounding, stored, budget, witness, norm_of(kernel).least)
        said = f"x_(t-s) = sign of κ(s) - ρ(s), the last {LONGEST_WITNESS} tokens at most"
        return _certificate(rnn, chain, said, faults, started)


def verify_delay_line(rnn: LinearRNN, values: Sequence[fmpq]) -> Certificate:
    """The chain of a delay line for a kernel of finite support. States are tokens, without rounding: only the read-out rounds."""
    started = time.perf_counter()
    if rnn.dtype == "exact" or rnn.is_diagonal:
        raise InputError("a delay line is a float network with a matrix of transitions")
    transition, first, output = (to_exact(leaf) for leaf in (rnn.transition, rnn.input, rnn.output))
    faults: list[str] = []
    error, rounding, witness = arb.pos_inf(), arb.pos_inf(), 0.0
    wanted = [*values, *[fmpq(0)] * (rnn.units - len(values))]
    with working_precision(PRECISION):
        arithmetic, total = Arithmetic(rnn.dtype), sum((abs(arb(v)) for v in wanted), arb(0))
        grown = [_above(abs(arb(v)) * (1 + arithmetic.unit)) for v in wanted]
        budget = arithmetic.dot(grown, [ONE] * len(wanted)).error
        shift = all(transition[i, j] == (i == j + 1) for i in range(rnn.units) for j in range(rnn.units))
        if not shift or any(v != (i == 0) for i, v in enumerate(first)) or len(wanted) != rnn.units:
            faults.append("the weights are not those of a delay line: the states are not the last tokens")
        else:
            error = sum((abs(arb(c - v)) for c, v in zip(output, wanted, strict=True)), arb(0))
            rounding = arithmetic.dot(list(output), [ONE] * rnn.units).error
            signs = np.array([1.0 if c >= 0 else -1.0 for c in output])
            ran = rational(float(forward(rnn, signs[::-1])[-1]))
            witness = max(0.0, lower(abs(arb(ran) - sum((int(x) * arb(v) for x, v in zip(signs, wanted, strict=True)), arb(0)))))
        chain = _Chain(error, rounding, arithmetic.unit * total + len(wanted) * arithmetic.tiny, budget, witness, total)
        return _certificate(rnn, chain, "x_(t-s) = sign of ρ(s)", faults, started)


@dataclass(frozen=True)
class _Chain:
    """‖κ − ρ‖₁ and rounding, certified; what storage and rounding may cost; the witness; ‖ρ‖₁, the error of the zero network."""

    error: arb
    rounding: arb
    stored: arb
    budget: arb
    witness: float
    norm: arb


def _certificate(rnn: LinearRNN, chain: _Chain, said: str, faults: Sequence[str], started: float) -> Certificate:
    return Certificate(
        theorem="jl-6",
        witness=chain.witness,
        witness_input=said,
        certified=upper(chain.error + chain.rounding),
        bound=upper(chain.stored + chain.budget),
        rounding=upper(chain.rounding),
        trivial=lower(chain.norm),
        least_heads=None,
        parts=(Part("kernel", upper(chain.error), upper(chain.stored)), Part("rounding", upper(chain.rounding), upper(chain.budget))),
        sizes={"layers": 1, "units": rnn.units, "parameters": sum(int(np.size(leaf)) for leaf in (rnn.transition, rnn.input, rnn.output))},
        dtype=rnn.dtype,
        seconds=time.perf_counter() - started,
        faults=tuple(faults),
    )


def _rounding(dtype: str, ratios: Sequence[fmpq], inputs: Sequence[fmpq], outputs: Sequence[fmpq]) -> arb:
    """Rounding of the recurrence with these weights, over all sequences of any length."""
    if dtype == "exact":
        return arb(0)
    arithmetic = Arithmetic(dtype)
    states = [arithmetic.scan(abs(z), fmpq(1), arithmetic.times(b, ONE), form="scan") for z, b in zip(ratios, inputs, strict=True)]
    return arithmetic.dot(list(outputs), states).error


def _rounding_bound(dtype: str, terms: Sequence[Exponential], unit: arb) -> arb:
    """The same for the largest weights that rounding to nearest can give: z(1+u), 1 and |a|(1+u)."""
    if dtype == "exact":
        return arb(0)
    grown = [[_above(ball * (1 + unit)) for ball in balls] for balls in zip(*((t.ratio, abs(t.amplitude)) for t in terms), strict=True)]
    return _rounding(dtype, grown[0], [fmpq(1)] * len(terms), grown[1])


def _above(ball: arb) -> fmpq:
    """A rational not below the ball, closer than any float rounds."""
    return dyadic(ball.upper(), PRECISION) * (1 + fmpq(1, 2 ** (PRECISION // 2)))


def _witness(rnn: LinearRNN, kernel: MemoryKernel, norm: Norm) -> float:
    """Error at the sign sequence: of the running recurrence for float networks; exact ones reach the window's part of the norm."""
    window = norm.window[:LONGEST_WITNESS]
    if rnn.dtype == "exact":
        return max(0.0, lower(sum((abs(v) for v in window), arb(0))))
    signs = [1 if v > 0 else -1 for v in window]
    output = rational(float(forward(rnn, np.array(signs[::-1], dtype=np.float64))[-1]))
    wanted = sum((sign * kernel.value(s) for s, sign in enumerate(signs)), arb(0))
    return max(0.0, lower(abs(arb(output) - wanted)))
