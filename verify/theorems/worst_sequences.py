"""Token sequences at which a network of Theorem 4.2 is far from its target: a search in floats, whose results are only candidates.

Coordinates of [0, 1]^τ are moved one after the other to the best of a grid of values; starts are random sequences and sequences of the two
tokens between which the error of the coupling differs most. The error is looked at in the first position: the target does not know
positions.

Long sequences repeat short ones: τ = r·n tokens, each of n different ones r times, have the same softmax mean as the n tokens alone. So the
search looks at no more than `SEARCHED` different tokens, whatever τ is, and its work is bounded by that of τ = `SEARCHED`.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from constructions.network.precision import with_x64

STARTS = 48
SWEEPS = 3
SCALES = (1.0, 0.1, 0.01)
"""How far a coordinate may move, round after round. These numbers decide how good a witness is, never whether it is true."""
WORK = 2**24
"""Tokens times tokens that are evaluated in one step of the search; long sequences get fewer candidates."""
SEARCHED = 256
"""Different tokens of a sequence: beyond, even the fewest candidates take minutes."""


def search(error: Callable[[Any], Any], length: int, pairs: np.ndarray, seed: int = 0) -> np.ndarray:
    """Sequences (count, τ), the worst first. `error` maps tokens (…, τ) to |H − Ĥ| in the first position; `pairs` (n, 3) are
    (u, v, w): queries, and the tokens where logits are most too large and too small."""
    if length > SEARCHED:
        return search(error, SEARCHED, pairs, seed)[:, np.arange(length) % SEARCHED]
    rng = np.random.default_rng(seed)
    candidates = int(np.clip(WORK // (STARTS * length**2), 5, 65))
    with with_x64("float64"):
        starts = jnp.asarray(np.concatenate([rng.random((STARTS // 2, length)), _structured(rng, pairs, length, STARTS - STARTS // 2)]))
        grid = jnp.linspace(0, 1, candidates)
        refine = _sweeps(error, length)
        x = starts
        for scale in SCALES:
            x = refine(x, (grid - 0.5) * 2 * scale)
        values = np.asarray(error(x))
        return np.asarray(x)[np.argsort(-values)]


def _structured(rng: np.random.Generator, pairs: np.ndarray, length: int, count: int) -> np.ndarray:
    """Sequences that ask with u and are made of the two tokens v and w in all proportions."""
    rows = pairs[rng.integers(len(pairs), size=count)]
    share = rng.random((count, 1))
    x = np.where(rng.random((count, length)) < share, rows[:, 1:2], rows[:, 2:3])
    x[:, 0] = rows[:, 0]
    return x


def _sweeps(error: Callable[[Any], Any], length: int) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """Every coordinate in turn moves to the best of x + shifts (clipped to [0, 1]); staying is one of the candidates."""

    def move(x: jax.Array, position: jax.Array, shifts: jax.Array) -> jax.Array:
        moved = jnp.clip(x[:, position, None] + jnp.append(shifts, 0.0), 0, 1)
        candidates = jnp.broadcast_to(x[:, None, :], (*moved.shape, length)).at[:, :, position].set(moved)
        best = error(candidates).argmax(axis=1)
        return x.at[:, position].set(jnp.take_along_axis(moved, best[:, None], axis=1)[:, 0])

    @jax.jit
    def run(x: jax.Array, shifts: jax.Array) -> jax.Array:
        order = jnp.tile(jnp.arange(length), SWEEPS)
        return jax.lax.scan(lambda state, position: (move(state, position, shifts), None), x, order)[0]

    return run
