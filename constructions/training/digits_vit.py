"""A small vision Transformer in the shape of Jiang & Li's model: what patches learn of each other goes through one coupling of rank m_h.

    h_i = E x_i + p_i                                    a patch of 4 pixels and its position, i = 1..16
    a_ij = softmax_j ⟨W_Q h_i, W_K h_j⟩ / √m_h           one head, W_Q, W_K ∈ R^{m_h × D}
    u_i = Σ_j a_ij W_V h_j
    y = C · mean_i A relu(B u_i + b) + c                 scores of the ten classes

There is no residual around the attention and no layer norm, as in the model of their theorems, so that no other path makes up for a small
m_h. m_h = 0 is allowed: then the attention is the plain mean over patches. All sizes but m_h are fixed.
"""

import math
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from constructions.training.digits import CLASSES, PATCHES, PIXELS

WIDTH = 32
"""D. More than the 20 dimensions that patches and positions span, and more than any m_h of the experiment: neither is cut off by it."""
NEURONS = 64


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DigitsTransformer:
    embedding: Any  # (D, 4)      E
    position: Any  # (16, D)     p
    query: Any  # (m_h, D)    W_Q
    key: Any  # (m_h, D)    W_K
    value: Any  # (D, D)      W_V
    inner: Any  # (m, D)      B
    bias: Any  # (m,)        b
    outer: Any  # (D, m)      A
    classes: Any  # (10, D)     C
    offset: Any  # (10,)       c


def initial(seed: int, rank: int) -> DigitsTransformer:
    """Normal weights of variance 1/inputs, biases 0; all but W_Q and W_K are the same for every rank, so like is compared with like."""
    draw = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (draw.standard_normal((rows, columns)) / math.sqrt(columns)).astype(np.float32)

    return DigitsTransformer(
        embedding=matrix(WIDTH, PIXELS),
        position=matrix(PATCHES, WIDTH) * math.sqrt(WIDTH) / 2,  # about as large as E x: pixels are at most 1, and often 0
        value=matrix(WIDTH, WIDTH),
        inner=matrix(NEURONS, WIDTH),
        bias=np.zeros(NEURONS, np.float32),
        outer=matrix(WIDTH, NEURONS),
        classes=matrix(CLASSES, WIDTH),
        offset=np.zeros(CLASSES, np.float32),
        query=matrix(rank, WIDTH),  # drawn last: the number of draws depends on the rank
        key=matrix(rank, WIDTH),
    )


def tokens(network: DigitsTransformer, patches: Any) -> Any:
    """h (…, 16, D): what the attention reads."""
    return patches @ network.embedding.T + network.position


def class_scores(network: DigitsTransformer, patches: jax.Array) -> jax.Array:
    """y (…, 10) for patches (…, 16, 4)."""
    h = tokens(network, patches)
    rank, values = network.query.shape[0], h @ network.value.T
    if rank:
        logits = jnp.einsum("...ik,...jk->...ij", h @ network.query.T, h @ network.key.T) / math.sqrt(rank)
        mixed = jax.nn.softmax(logits, axis=-1) @ values
    else:
        mixed = values.mean(axis=-2, keepdims=True)  # the same for every patch
    hidden = jax.nn.relu(mixed @ network.inner.T + network.bias).mean(axis=-2)  # A and the mean commute
    return hidden @ network.outer.T @ network.classes.T + network.offset


def cross_entropy(network: DigitsTransformer, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Mean cross-entropy in nats over (patches, labels)."""
    patches, labels = batch
    return optax.softmax_cross_entropy_with_integer_labels(class_scores(network, patches), labels).mean()


@jax.jit
def training_errors(network: DigitsTransformer, batch: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
    """Cross-entropy and share of wrong classes of every member of an ensemble (leaves with a leading axis)."""

    def of_one(member: DigitsTransformer) -> tuple[jax.Array, jax.Array]:
        return cross_entropy(member, batch), (class_scores(member, batch[0]).argmax(axis=-1) != batch[1]).mean()

    return jax.vmap(of_one)(network)
