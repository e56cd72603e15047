"""Linear recurrent networks h_t = W h_{t−1} + U x_t, y_t = cᵀh_t on scalar tokens, and the exact one for a sum of exponentials.

A linear RNN is the convolution with its impulse response κ(s) = cᵀW^sU. `forward` runs the recurrence (the reference, and what certificates
speak of); `convolve` evaluates κ once and convolves. W is stored as a matrix, or as the vector of its diagonal.

Construction. ρ(s) = Σ_i a_i e^{−λ_i s} with distinct λ_i > 0 is the impulse response of one unit per exponential: W = diag(e^{−λ_i}),
U = 1, c = a. No approximation is involved: the only error is that e^{−λ_i}, and a_i = r e^{q}, are irrational and have to be stored.

Storage. With z̃, ã in place of z = e^{−λ}, a, both rounded to relative accuracy u, and since z^s − z̃^s has the same sign for all s,

    Σ_s |z^s − z̃^s| = |z − z̃| / ((1−z)(1−z̃)),
    ‖κ − ρ‖₁ ≤ Σ_i |ã_i − a_i|/(1−z̃_i) + |a_i| |z_i − z̃_i| / ((1−z_i)(1−z̃_i)) ≤ Σ_i u |a_i| / ((1−z_i)(1−z_i(1+u))).

That is the storage bound (u/(1−z) + u z/(1−z)², nearly). `exact` networks hold dyadic numbers, with as many bits as make it at most
2^−64: below what any float64 evaluation could show.

A kernel of finite support, ρ(0..m−1), is the impulse response of a delay line: m units, W the shift, U the first unit vector, c = ρ. States
are then the last m tokens, exactly.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.kernels.l1_norms import Exponentials
from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.numbers.exact import UNIT, dyadic, nearest, working_precision
from constructions.network.precision import HIGHEST, MANTISSA, SMALLEST, with_x64
from constructions.network.transformer import exact_array, to_exact

EXACT_ERROR = fmpq(1, 2**64)
"""Storage bound of exact networks, in the sum norm."""
LONGEST_MATRIX = 512
"""Sequences up to this length are convolved by a triangular matrix, longer ones by FFT."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class LinearRNN:
    """m units; leaves are float arrays, or numpy arrays of rationals (`fmpq`) in exact networks."""

    transition: Any  # (m, m) W, or (m,): its diagonal
    input: Any  # (m,) U
    output: Any  # (m,) c

    @property
    def dtype(self) -> str:
        kind = self.transition.dtype
        return "exact" if kind == np.dtype(object) else str(kind)

    @property
    def units(self) -> int:
        return int(self.input.shape[-1])

    @property
    def is_diagonal(self) -> bool:
        return bool(self.transition.ndim == 1)


@dataclass(frozen=True)
class Exponential:
    """a e^{−λs}, a = factor · e^{shift}."""

    rate: fmpq
    parts: tuple[tuple[fmpq, fmpq], ...]
    """(factor, shift): a is the sum of factor · e^{shift}."""

    @property
    def ratio(self) -> arb:
        return (-arb(self.rate)).exp()

    @property
    def amplitude(self) -> arb:
        return sum((arb(factor) * arb(shift).exp() for factor, shift in self.parts), arb(0))


def exponentials(kernel: MemoryKernel) -> list[Exponential]:
    """The terms a e^{−λs} that ρ is the sum of, slowest first; refused, naming the reason, if it has others."""
    found: dict[fmpq, list[tuple[fmpq, fmpq]]] = {}
    for factor, term in kernel.terms:
        shift, slope, curvature = term.exponent
        what = f"the kernel {kernel.text[:60]!r} is no sum of exponentials"
        if term.powers:
            raise Refusal(f"{what}: a term has a power of s, which no linear RNN of finitely many separate units has")
        if term.waves:
            raise Refusal(f"{what}: a term oscillates; only real decays are built")
        if curvature != 0:
            raise Refusal(f"{what}: a term falls like a Gaussian, faster than every exponential")
        found.setdefault(-slope, []).append((factor, shift))
    return [Exponential(rate, tuple(parts)) for rate, parts in sorted(found.items())]


def storage_bound(terms: Sequence[Exponential], unit: arb) -> arb:
    """Σ_i u |a_i| / ((1−z_i)(1−z_i(1+u))): how far a stored kernel can be from ρ in the sum norm; infinite if z_i(1+u) may reach 1."""
    total = arb(0)
    for term in terms:
        room = 1 - term.ratio * (1 + unit)
        if not room > 0:
            return arb.pos_inf()
        total += unit * abs(term.amplitude) / ((1 - term.ratio) * room)
    return total


def exact_bits(terms: Sequence[Exponential]) -> int:
    """The fewest bits (in steps of 8) with a storage bound of at most 2^−64."""
    bits = 64
    while not storage_bound(terms, arb(fmpq(1, 2**bits))) <= arb(EXACT_ERROR):
        bits += 8
    return bits


def exponential_rnn(kernel: MemoryKernel, dtype: str = "exact") -> LinearRNN:
    """One unit per exponential of ρ, its weights rounded to nearest."""
    if dtype != "exact" and dtype not in MANTISSA:
        raise InputError(f"dtype {dtype!r} is not one of exact, {', '.join(MANTISSA)}")
    terms = exponentials(kernel)
    with working_precision(256):
        bits = MANTISSA[dtype] if dtype != "exact" else exact_bits(terms)
    ratios = [_rounded(term, "ratio", bits) for term in terms]
    outputs = [_rounded(term, "amplitude", bits) for term in terms]
    weights = (exact_array(ratios), exact_array([1] * len(terms)), exact_array(outputs))
    if dtype == "exact":
        return LinearRNN(*weights)
    for name, value in [*(("decay", z) for z in ratios), *(("weight", a) for a in outputs)]:
        if not SMALLEST[dtype] <= abs(value) <= 1 / SMALLEST[dtype]:
            raise Refusal(f"{dtype} cannot hold a {name} of {nearest(value):.3g} to full accuracy; use dtype exact")
    if not all(z < 1 for z in ratios):
        raise Refusal(f"a decay rounds to 1 in {dtype}: the network would never forget; use dtype exact")
    return LinearRNN(*(np.array([nearest(v) for v in values]).astype(dtype) for values in weights))


def _rounded(term: Exponential, number: Literal["ratio", "amplitude"], bits: int) -> fmpq:
    """z or a of an exponential, rounded to `bits` bits.

    Balls with twice the bits: then rounding the midpoint is rounding the number, to relative accuracy u/(1+u) plus far less than u².
    Parts of an amplitude may cancel, so the precision grows until that many bits are left. It does end: Σ r_j e^{q_j} with distinct
    rational q_j is not 0 (Lindemann–Weierstrass).
    """
    precision = 2 * bits + 64
    while True:
        with working_precision(precision):
            ball = term.ratio if number == "ratio" else term.amplitude
            if ball.rel_accuracy_bits() >= 2 * bits:
                return dyadic(ball, bits)
        precision *= 2


def delay_line(values: Sequence[float] | np.ndarray, dtype: str = "float64") -> LinearRNN:
    """ρ(0), …, ρ(m−1) and nothing after it: the shift of the last m tokens, read out with weights ρ (rounded to the type)."""
    output = np.asarray(values, np.float64).astype(dtype)
    if output.ndim != 1 or not output.size or not np.isfinite(output).all():
        raise InputError("a delay line needs a list of finite numbers")
    first = np.zeros(output.size, dtype)
    first[0] = 1
    return LinearRNN(np.eye(output.size, k=-1, dtype=dtype), first, output)


def impulse_response(rnn: LinearRNN, length: int) -> jax.Array:
    """κ(0), …, κ(length−1) of a float network, by `length` products with W; differentiable."""

    def step(state: jax.Array, _: None) -> tuple[jax.Array, jax.Array]:
        return _advance(rnn, state), jnp.sum(rnn.output * state)

    return jax.lax.scan(step, rnn.input, None, length=length)[1]


def exact_response(rnn: LinearRNN) -> Exponentials:
    """κ in ball arithmetic, from the stored weights of a diagonal network whose decays lie in [0, 1)."""
    if not rnn.is_diagonal:
        raise InputError("ball arithmetic follows networks with a diagonal W only")
    ratios, inputs, outputs = (to_exact(leaf) for leaf in (rnn.transition, rnn.input, rnn.output))
    if not all(0 <= z < 1 for z in ratios):
        raise InputError(f"a decay of {max(map(nearest, ratios), key=abs):.6g} lies outside [0, 1): the network does not forget")
    return Exponentials(tuple(arb(z) for z in ratios), tuple(arb(b * c) for b, c in zip(inputs, outputs, strict=True)))


def _advance(rnn: LinearRNN, state: jax.Array) -> jax.Array:
    """W h for states (…, m)."""
    if rnn.is_diagonal:
        return rnn.transition * state
    return jnp.einsum("ij,...j->...i", rnn.transition, state, precision=HIGHEST)


@jax.jit
def _recur(rnn: LinearRNN, tokens: jax.Array) -> jax.Array:
    def step(state: jax.Array, token: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = _advance(rnn, state) + token[..., None] * rnn.input
        return state, jnp.sum(rnn.output * state, axis=-1)

    start = jnp.zeros((*tokens.shape[:-1], rnn.units), tokens.dtype)
    return jnp.moveaxis(jax.lax.scan(step, start, jnp.moveaxis(tokens, -1, 0))[1], 0, -1)


def causal_matrix(kernel: jax.Array) -> jax.Array:
    """The matrix κ(t−s) for s ≤ t, 0 above the diagonal."""
    lag = jnp.arange(kernel.shape[0])[:, None] - jnp.arange(kernel.shape[0])[None, :]
    return jnp.where(lag >= 0, kernel[jnp.maximum(lag, 0)], 0)


@partial(jax.jit, static_argnames="by_matrix")
def _convolution(kernel: jax.Array, tokens: jax.Array, by_matrix: bool) -> jax.Array:
    if by_matrix:
        return jnp.einsum("ts,...s->...t", causal_matrix(kernel), tokens, precision=HIGHEST)
    length = tokens.shape[-1]
    return jnp.fft.irfft(jnp.fft.rfft(kernel, n=2 * length) * jnp.fft.rfft(tokens, n=2 * length), n=2 * length)[..., :length]


_impulse_response = jax.jit(impulse_response, static_argnums=1)


def forward(rnn: LinearRNN, tokens: Any) -> np.ndarray:
    """Outputs (…, N) for tokens (…, N), zero before the array: the recurrence, in the network's own float type."""
    if rnn.dtype == "exact":
        raise InputError("an exact network is evaluated through its impulse response: use convolve")
    with with_x64(rnn.dtype):
        return np.asarray(_recur(rnn, jnp.asarray(tokens, dtype=rnn.dtype)))


def convolve(rnn: LinearRNN, tokens: Any) -> np.ndarray:
    """The same outputs by convolution with κ; exact networks form κ in ball arithmetic and convolve in float64."""
    dtype = "float64" if rnn.dtype == "exact" else rnn.dtype
    length = np.shape(tokens)[-1]
    if length == 0:
        return np.zeros(np.shape(tokens), dtype)
    with with_x64(dtype):
        if rnn.dtype == "exact":
            with working_precision(128):
                kernel = jnp.asarray([float(v) for v in exact_response(rnn).values(0, length)], dtype=dtype)
        else:
            kernel = _impulse_response(rnn, length)
        return np.asarray(_convolution(kernel, jnp.asarray(tokens, dtype=dtype), length <= LONGEST_MATRIX))


def unit_of(rnn: LinearRNN, terms: Sequence[Exponential]) -> arb:
    """Relative accuracy to which the weights of a network for these exponentials are stored."""
    with working_precision(256):
        return arb(fmpq(1, 2 ** exact_bits(terms))) if rnn.dtype == "exact" else arb(UNIT[rnn.dtype])
