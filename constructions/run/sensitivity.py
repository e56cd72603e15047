"""Effective kernels: the mean over given sequences of ∂ŷ_t/∂x_{t−s,i} at their last position t, for networks and for targets.

For a network that is linear in its tokens this is its memory kernel κ_i(s), whatever the sequences. Rounded feed-forward parts pass no
derivative on, and the lags of adaptive targets are held: both are constant almost everywhere.

Exact networks whose stream is a convolution, U_t = offset + Σ_s K(s) x_{t−s}, have κ(s) = mean ∇F(U_t) K(s) with K from ball arithmetic.
All other networks are differentiated through the reference pass in float64; exact ones only where the rounded weights still compute the
same outputs.
"""

import jax
import jax.numpy as jnp
import numpy as np

from analyzer.errors import InputError, Refusal
from analyzer.targets.protocol import Target, memories_of
from constructions.network.precision import with_x64
from constructions.network.transformer import Transformer
from constructions.run.execute import run
from constructions.run.fused import convolved, stream_table
from constructions.run.reference import as_floats, feed_forward, stream
from constructions.run.stream import as_float64, batches, is_fused

CANCELLED = 1e-6
"""Outputs of rounded exact weights may differ by this much from the exact network's: derivatives are then as close, times the size of a
token's share; far below what a comparison shows."""


def network_kernel(network: Transformer, tokens: np.ndarray) -> np.ndarray:
    """κ as (d, N) for tokens (batch, N, d); refused where exact weights cancel in float64."""
    if network.outputs != 1:
        raise Refusal(f"effective kernels belong to one output; this network has {network.outputs}")
    if is_fused(network):
        return _fused_kernel(network, tokens)
    try:
        floats = as_float64(network)
    except InputError:
        raise Refusal("exact weights do not fit into float64") from None
    if network.dtype == "exact":
        check = tokens[: min(len(tokens), 8)]  # cancellation is a matter of the weights: a few sequences show it
        with with_x64("float64"):
            rounded = np.asarray(stream(floats, jnp.asarray(check))[-1][:, -1, 0])
        if not np.abs(rounded - run(network, check)[:, -1]).max() <= CANCELLED:
            raise Refusal("exact weights cancel in float64")
    total = np.zeros(tokens.shape[1:])
    with with_x64("float64"):
        for part in batches(network, tokens):
            total += np.asarray(_slopes(floats, jnp.asarray(part))).sum(axis=0)
    if not np.isfinite(total).all():
        raise Refusal("derivatives are not finite numbers")
    return (total / len(tokens))[::-1].T


@jax.jit
def _slopes(network: Transformer, tokens: jax.Array) -> jax.Array:
    """The derivatives of every sequence's last output, (batch, N, d)."""
    return jax.grad(lambda x: stream(network, x)[-1][:, -1, 0].sum())(tokens)


def _fused_kernel(network: Transformer, tokens: np.ndarray) -> np.ndarray:
    length = tokens.shape[1]
    kernels, offset = stream_table(network, length)
    read = convolved(kernels, offset, tokens)[:, -1]
    with with_x64("float64"):
        readout = as_floats(network.layers[-1].feedforward)
        slopes = np.asarray(jax.grad(lambda u: feed_forward(readout, u).sum())(jnp.asarray(read)))
    kernel = np.einsum("j,jis->is", slopes.mean(axis=0), kernels)
    return np.pad(kernel, ((0, 0), (0, length - kernel.shape[1])))


def target_kernel(target: Target, tokens: np.ndarray) -> np.ndarray:
    """The same of the target, Σ_k ∇_k f ρ_k(s) with ρ_k = 1_lag or the kernel of memory k: (d, N)."""
    memories = memories_of(target)
    seen = memories.memory_values(np)(tokens)[:, -1]
    with with_x64("float64"):
        readout = memories.readout.compiled(jnp)
        slopes = np.asarray(jax.grad(lambda u: readout(u).sum())(jnp.asarray(seen)))
    return memories.mean_kernel(tokens, slopes.reshape(len(tokens), -1, tokens.shape[-1])).T
