"""What is read of a model: the part of its scores that depends on positions alone, and the dot products beside it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from constructions.files.scores import Scores

PositionKind = Literal["lin", "shifted", "buckets", "none"]
"""lin: weights e^{−ps} from s = 0 on; shifted: e^{−p(s−1)} from s = 1 on, the current token apart; buckets: a learnt bias for each bucket
of distances; none: nothing that decays, such as rotations."""


@dataclass(frozen=True)
class PositionPart:
    """The position part that some layers have in common."""

    kind: PositionKind
    layers: tuple[int, ...]
    about: str
    stack: str = ""
    """encoder or decoder, where a model has both."""
    decays: tuple[float, ...] = ()
    """p of every head, or of every channel."""
    biases: np.ndarray | None = None
    """(buckets, heads)."""
    distance: int = 0
    """From which on all distances share the last bucket."""
    two_sided: bool = False
    """Whether tokens that follow are seen too, with buckets of their own: half of them."""


@dataclass(frozen=True)
class Logits:
    """The dot products of one layer: ⟨f(W_Q x + b_Q), f(W_K x' + b_K)⟩ · scale."""

    layer: int
    stack: str
    scores: Scores
    scale: float = 1.0
    clip: float | None = None
    """f cuts queries and keys off at ± this."""
    activation: Literal["silu"] | None = None

    def factors(self, head: int, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(queries, keys) of a head at tokens (N, D), both (N, d_k); the queries carry the scale."""
        scores = self.scores
        queries = self._shaped(tokens @ scores.query[head].T + scores.query_bias[head])
        return queries * self.scale, self._shaped(tokens @ scores.key[head].T + scores.key_bias[head])

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        if self.clip is not None:
            values = np.clip(values, -self.clip, self.clip)
        return values / (1 + np.exp(-values)) if self.activation == "silu" else values


@dataclass(frozen=True)
class ModelRead:
    """A model's sizes, its position parts, its dot products one layer at a time, and remarks on both."""

    family: str
    source: str
    layers: int
    heads: int
    width: int
    positions: tuple[PositionPart, ...]
    logits: Callable[[int | None], Iterator[Logits]]
    """Of a layer, or of all."""
    position_remarks: tuple[str, ...] = ()
    logit_remarks: tuple[str, ...] = ()
