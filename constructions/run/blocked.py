"""Attention that reads positions only, in O(N log N), with derivatives in every weight, the decays included: for training on long arrays.

Statement. For dp-free heads that see every token the output is Σ_s w_h(s) v_{t−s} and the share of the constant past, as in
`constructions.run.reference`, and so are its derivatives; only the order of the sums differs.

* lin: with S_t = Σ_{s≤t} z^s v_{t−s} + z^{t+1} S_{−1} and blocks of C tokens, tokens of the same block are added by one triangular matrix
  (z^{i−j})_{i≥j}, and what lies before the block by z^{i+1} times the state at its end, S ← z^C S + (the block's own sum): C additions per
  token in a product of matrices, which is what processors like, and N/C steps one after the other. The constant past is
  S_{−1} = v/(1−z), and the output (1−z) S_t; in a finite window S_{−1} = 0, and it is divided by Σ_{s≤t} z^s = (1−z^{t+1})/(1−z).
* all others: a convolution by FFT (`constructions.run.fast`).

The derivative of a product of matrices and of a transform costs as much as they do. Roundings are not counted here: what is certified is
what `constructions.run.execute` runs.
"""

import jax
import jax.numpy as jnp
import numpy as np

from constructions.network.precision import HIGHEST
from constructions.network.transformer import Attention
from constructions.run import fast, reference

BLOCK = 64
"""Tokens of a block: from 32 to 128 the time of a step hardly changes."""
LEAST_PAIRS = 1 << 20
"""Pairs of tokens of all sequences from which on this is faster than the plain pass, which compiles sooner and keeps no blocks."""


def attend(attention: Attention, x: jax.Array, past: jax.Array, first: int = 0) -> tuple[jax.Array, jax.Array]:
    """As `reference.attend`, by blocks where that pays: many pairs of tokens, and weights that read positions only."""
    length, sequences = x.shape[-2], int(np.prod(x.shape[:-2]))
    apt = attention.kind == "dp-free" and attention.stride == 1 and attention.window in ("infinite", "finite")
    if not apt or sequences * (length - first) * length < LEAST_PAIRS:
        return reference.attend(attention, x, past, first)
    values = jnp.einsum("hvd,...sd->s...hv", attention.value, x, precision=HIGHEST)
    past_value = jnp.einsum("hvd,d->hv", attention.value, past, precision=HIGHEST)
    lin = attention.heads_of("lin")
    others = np.setdiff1d(np.arange(len(attention.rpe)), lin)
    parts = []
    if len(lin):
        parts.append(_scanned(attention, lin, values[..., lin, :], past_value[lin]))
    if len(others):
        parts.append(fast.convolved(attention, others, values[..., others, :], past_value[others]))
    mixed = jnp.concatenate(parts, axis=-2)[..., np.argsort(np.concatenate([lin, others])), :][first:]
    output = jnp.einsum("hdv,s...hv->...sd", attention.output, mixed, precision=HIGHEST)
    return output, reference.past_output(attention, past, past_value, reference.log_whole_mass(attention, past.dtype))


def _scanned(attention: Attention, heads: np.ndarray, values: jax.Array, past: jax.Array) -> jax.Array:
    """Σ_s w(s) v_{t−s} of lin heads for values (N, …, H, v) and the constant past (H, v)."""
    decay, infinite = attention.decay[heads], attention.window == "infinite"
    lost = -jnp.expm1(-decay)  # 1 − z
    start = past / lost[:, None] if infinite else jnp.zeros_like(past)
    sums = _states(decay, values, start)
    if infinite:
        return lost[:, None] * sums
    steps = jnp.arange(1, len(values) + 1, dtype=values.dtype)
    mass = -jnp.expm1(-decay * steps[:, None]) / lost
    return sums / mass.reshape(len(values), *[1] * (values.ndim - 3), len(heads), 1)


def _states(decay: jax.Array, values: jax.Array, start: jax.Array) -> jax.Array:
    """S_t = z S_{t−1} + v_t for values (N, …, H, v), from S_{−1} = start (H, v)."""
    length = len(values)
    padded = jnp.pad(values, ((0, -length % BLOCK), *[(0, 0)] * (values.ndim - 1)))
    blocks = padded.reshape(-1, BLOCK, *values.shape[1:])  # what is filled up at the end is seen by nobody before it
    steps = jnp.arange(BLOCK, dtype=values.dtype)
    distance = steps[:, None] - steps[None, :]
    within = jnp.where(distance >= 0, jnp.exp(-decay[:, None, None] * jnp.maximum(distance, 0)), 0)
    own = jnp.einsum("hij,bj...hv->bi...hv", within, blocks, precision=HIGHEST)
    whole = jnp.exp(-decay * BLOCK)[:, None]

    def step(state: jax.Array, last: jax.Array) -> tuple[jax.Array, jax.Array]:
        return whole * state + last, state

    before = jax.lax.scan(step, jnp.broadcast_to(start, own.shape[2:]), own[:, -1])[1]  # (blocks, …, H, v)
    fading = jnp.exp(-decay * (steps[:, None] + 1)).reshape(BLOCK, *[1] * (values.ndim - 3), len(decay), 1)
    return (own + fading * before[:, None]).reshape(-1, *values.shape[1:])[:length]
