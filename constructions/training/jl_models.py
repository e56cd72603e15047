"""The two models that [JL] train side by side, on sequences of scalars of a fixed length τ.

Linear RNN, m units: h_t = W h_{t−1} + U x_t, y_t = cᵀh_t with a dense W. It is the convolution with its impulse response κ(s) = cᵀW^sU, so
training evaluates κ(0), …, κ(τ−1) by τ products of W with a vector, and then one τ×τ triangular matrix serves the whole batch: the same
function of the same parameters as the recurrence of `constructions.theorems.linear_rnn`, in the time of one sequence.

Transformer: one layer, one head, no residual, softmax over *all* τ positions,

    Ĥ_t(x) = F̂( Σ_s softmax_s[ (W_Q f̂(x_t))ᵀ W_K f̂(x_s) ] W_V f̂(x_s) ).

f̂ : token and position → R^n and F̂ : R^{m_v} → R are feed-forward networks: `depth` affine maps, tanh between them, hidden layers of width
`width`. Positions enter as [JL] say, by making the token domains disjoint: the first affine map of f̂ is w x_t + e_t with a learnt
vector e_t for every position. No 1/√m_h in the score: W_Q would absorb it.

Parameters are float32 pytrees. The Transformer starts with Gaussian weights of variance 1/(inputs), but W_Q and W_K half as large, so that
attention starts nearly uniform and no pair of positions is preferred; w has variance 1 and e_t variance 4, so that positions are told apart
whatever the token. The RNN starts where libraries start recurrent networks, uniformly in ±1/√m: the spectrum of W then fills a disc of
radius 1/√3; another radius can be asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp

from constructions.theorems.linear_rnn import LinearRNN, causal_matrix, impulse_response

DEFAULT_RADIUS = 3**-0.5
"""Spectral radius of a large matrix with entries uniform in ±1/√m: their standard deviation is 1/√(3m)."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CouplingTransformer:
    position: Any  # (τ, width) e_t
    token: Any  # (width,) w, or (space, width) for points
    inner: tuple[Any, ...]  # further affine maps of f̂: (weight (out, in), bias (out,))
    query: Any  # (m_h, n)
    key: Any  # (m_h, n)
    value: Any  # (m_v, n)
    outer: tuple[Any, ...]  # affine maps of F̂


def _normal(key: jax.Array, *shape: int) -> jax.Array:
    """Gaussian entries with variance 1/(inputs): the last axis is summed over."""
    return jax.random.normal(key, shape) / jnp.sqrt(shape[-1])


def _affine(key: jax.Array, sizes: Sequence[int]) -> tuple[tuple[jax.Array, jax.Array], ...]:
    keys = jax.random.split(key, len(sizes) - 1)
    return tuple((_normal(k, b, a), jnp.zeros(b)) for k, a, b in zip(keys, sizes[:-1], sizes[1:], strict=True))


def initial_rnn(key: jax.Array, units: int, radius: float = DEFAULT_RADIUS) -> LinearRNN:
    """Uniform in ±1/√m; W scaled so that its spectrum fills a disc of this radius, nearly."""
    shapes = [(units, units), (units,), (units,)]
    drawn = [jax.random.uniform(k, shape, minval=-1, maxval=1) for k, shape in zip(jax.random.split(key, 3), shapes, strict=True)]
    transition, first, last = (leaf / units**0.5 for leaf in drawn)
    return LinearRNN(radius / DEFAULT_RADIUS * transition, first, last)


def initial_transformer(
    key: jax.Array, length: int, *, features: int = 32, head_dim: int = 32, value_dim: int = 32, width: int = 128, depth: int = 3
) -> CouplingTransformer:
    keys = jax.random.split(key, 7)
    hidden = [width] * (depth - 1)
    return CouplingTransformer(
        position=2 * jax.random.normal(keys[0], (length, width)),
        token=jax.random.normal(keys[1], (width,)),
        inner=_affine(keys[2], [*hidden, features]),
        query=0.5 * _normal(keys[3], head_dim, features),
        key=0.5 * _normal(keys[4], head_dim, features),
        value=_normal(keys[5], value_dim, features),
        outer=_affine(keys[6], [value_dim, *hidden, 1]),
    )


def initial_points_transformer(key: jax.Array, length: int, space: int, *, head_dim: int, value_dim: int) -> CouplingTransformer:
    """The same for points of several coordinates: w is a matrix, (space, width); smaller parts, which train in seconds."""
    first, rest = jax.random.split(key)
    model = initial_transformer(rest, length, features=32, head_dim=head_dim, value_dim=value_dim, width=64)
    return replace(model, token=jax.random.normal(first, (space, 64)))


def run_rnn(rnn: LinearRNN, x: jax.Array) -> jax.Array:
    """Outputs (…, τ) for tokens (…, τ)."""
    return x @ causal_matrix(impulse_response(rnn, x.shape[-1])).T


def _feed(maps: Sequence[tuple[jax.Array, jax.Array]], x: jax.Array) -> jax.Array:
    for index, (weight, bias) in enumerate(maps):
        x = (jnp.tanh(x) if index else x) @ weight.T + bias
    return x


def run_transformer(model: CouplingTransformer, x: jax.Array) -> jax.Array:
    """Outputs (…, τ) for tokens (…, τ)."""
    return _attended(model, x[..., None] * model.token + model.position)


def run_points_transformer(model: CouplingTransformer, x: jax.Array) -> jax.Array:
    """Outputs (…, τ) for points (…, τ, space)."""
    return _attended(model, x @ model.token + model.position)


def _attended(model: CouplingTransformer, embedded: jax.Array) -> jax.Array:
    features = _feed(model.inner, jnp.tanh(embedded))
    scores = jnp.einsum("...th,...sh->...ts", features @ model.query.T, features @ model.key.T)
    mixed = jax.nn.softmax(scores, axis=-1) @ (features @ model.value.T)
    return _feed(model.outer, mixed)[..., 0]
