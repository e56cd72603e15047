"""A small recurrent network that reads an image patch by patch, in the shape of Jiang & Li's other model.

    h_i = σ(W h_{i−1} + U x_i + b),  h_0 = 0        a patch of 4 pixels at a time, i = 1..16
    y = C h_16 + c                                  scores of the ten classes

σ is the identity in their linear RNN, tanh in the one that is used in practice. Only the last state is read, when every patch was seen: no
causal floor forbids any order (Prop 6.1 is about outputs at every position). What an order changes is how long each patch must be kept.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from constructions.training.digits import CLASSES, PIXELS

UNITS = 64
"""As many as an image has pixels: a linear RNN of this size can keep all of them."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class DigitsRNN:
    transition: Any  # (m, m)     W
    entrance: Any  # (m, 4)     U
    bias: Any  # (m,)       b
    classes: Any  # (10, m)    C
    offset: Any  # (10,)      c


def initial_rnn(seed: int) -> DigitsRNN:
    """Normal weights of variance 1/inputs but W, which starts orthogonal: states neither fade nor grow before training says so."""
    draw = np.random.default_rng(seed)
    transition = np.linalg.qr(draw.standard_normal((UNITS, UNITS)))[0].astype(np.float32)
    entrance, classes = (
        (draw.standard_normal(shape) / math.sqrt(shape[1])).astype(np.float32) for shape in ((UNITS, PIXELS), (CLASSES, UNITS))
    )
    return DigitsRNN(transition, entrance, np.zeros(UNITS, np.float32), classes, np.zeros(CLASSES, np.float32))


def recurrent_scores(network: DigitsRNN, patches: jax.Array, activation: Callable[[jax.Array], jax.Array] | None = None) -> jax.Array:
    """y (…, 10) for patches (…, 16, 4); the identity if no activation is given."""
    state = jnp.zeros((*patches.shape[:-2], UNITS), patches.dtype)
    for i in range(patches.shape[-2]):
        state = state @ network.transition.T + patches[..., i, :] @ network.entrance.T + network.bias
        state = state if activation is None else activation(state)
    return state @ network.classes.T + network.offset
