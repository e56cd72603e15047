"""Attention that reads positions only, in O(N log N), with derivatives in every weight, the decays included: for training on long arrays.

Statement. For dp-free heads that see every token the output is Σ_s w_h(s) v_{t−s} and the share of the constant past, as in
`constructions.run.reference`, and so are its derivatives; only the order of the sums differs.

* lin: S_t = Σ_{s≤t} z^s d_{t−s} in blocked form (`constructions.network.recurrences`). Over the infinite past d = v − c for its constant c,
  and the output is (1−z) S_t + c; in a finite window d = v, and S_t is divided by Σ_{s≤t} z^s = (1−z^{t+1})/(1−z).
* all others: a convolution by FFT (`constructions.run.fast`).

The derivative of a product of matrices and of a transform costs as much as they do. Roundings are not counted here: what is certified is
what `constructions.run.execute` runs.
"""

import jax
import jax.numpy as jnp
import numpy as np

from constructions.network.precision import HIGHEST
from constructions.network.recurrences import BLOCK, blocked_states
from constructions.network.transformer import Attention
from constructions.run import fast, reference

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
    lin, together = attention.heads_of("lin"), fast.heads_of_one_transform(attention, {"taps": np.zeros((0, 0))})
    others = np.setdiff1d(np.arange(len(attention.rpe)), np.concatenate([lin, together]))
    output = jnp.zeros_like(x[..., first:, :])
    if len(lin):
        scanned = _scanned(attention, lin, values[..., lin, :], past_value[lin])[first:]
        output += jnp.einsum("hdv,s...hv->...sd", attention.output[lin], scanned, precision=HIGHEST)
    if len(others):
        mixed = fast.convolved(attention, others, values[..., others, :], past_value[others])[first:]
        output += jnp.einsum("hdv,s...hv->...sd", attention.output[others], mixed, precision=HIGHEST)
    if len(together):
        output += jnp.moveaxis(fast.fused(attention, together, jnp.moveaxis(x, -2, 0), past)[first:], 0, -2)
    return output, reference.past_output(attention, past, past_value, reference.log_whole_mass(attention, past.dtype))


def _scanned(attention: Attention, heads: np.ndarray, values: jax.Array, past: jax.Array) -> jax.Array:
    """Σ_s w(s) v_{t−s} of lin heads for values (N, …, H, v) and the constant past (H, v)."""
    decay, infinite = attention.decay[heads], attention.window == "infinite"
    lost = -jnp.expm1(-decay)  # 1 − z
    powers = jnp.exp(-decay * jnp.arange(BLOCK + 1, dtype=values.dtype)[:, None])
    doubled = jnp.exp(-decay * BLOCK * jnp.asarray(2.0 ** np.arange((len(values) // BLOCK).bit_length()), values.dtype)[:, None])
    sums = blocked_states(powers, doubled, values - past if infinite else values)
    if infinite:
        return lost[:, None] * sums + past
    steps = jnp.arange(1, len(values) + 1, dtype=values.dtype)
    mass = -jnp.expm1(-decay * steps[:, None]) / lost
    return sums / mass.reshape(len(values), *[1] * (values.ndim - 3), len(heads), 1)
