"""What is trained and how, before anything is: sizes and recipes. No JAX here, so absurd requests are refused at once."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Literal

import numpy as np

from analyzer.errors import InputError
from analyzer.ranges import check_range
from analyzer.targets.protocol import Target
from constructions.network.form import AttentionKind, Window

MAX_LENGTH = 1 << 14
"""Tokens per sequence: a kernel's convolution is an N × N matrix, 1 GB of float32."""
MAX_STEPS = 10**6
"""More take days."""
MAX_SEED = (1 << 31) - 1
"""JAX without 64 bit types reads seeds as int32."""
ReadOutKind = Literal["relu", "affine"]
MAX_PARAMETERS = 1 << 26
"""Weights of a network to be trained: with both moments of Adam 1 GB of float32."""

MAX_NUMBERS = 1 << 27
"""Attention weights of a step: 512 MB of float32, which the backward pass holds a few times."""


@dataclass(frozen=True)
class Stop:
    """When to stop before the last step, judged by the mean loss of a chunk: it is below `below`, or the best one so far has not been
    undercut by a thousandth for `patience` chunks. Functions of the history alone, so a resumed run stops where the whole one does."""

    below: float = 0.0
    patience: int | None = None

    def reached(self, history: np.ndarray, chunk: int) -> bool:
        means = [history[start : start + chunk].mean() for start in range(0, len(history), chunk)]
        if means[-1] < self.below:
            return True
        if self.patience is None:
            return False
        best, since = np.inf, 0
        for mean in means:
            best, since = (mean, 0) if mean < best * (1 - IMPROVEMENT) else (best, since + 1)
        return since >= self.patience


IMPROVEMENT = 1e-3
"""Less than this share of a loss is noise of batches, not progress."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a network to be trained; `reach` is the number of distances of table heads.

    `readout` "affine" makes the last feed-forward network relu(u_0) − relu(−u_0) = u_0, which is not trained: the network is linear.
    A network of several `outputs` is a classifier.
    """

    heads: int
    width: int = 2
    layers: int = 1
    model_dim: int = 2
    rpe: str = "lin"
    attention: AttentionKind = "dp-free"
    window: Window = "infinite"
    key_dim: int = 1
    value_dim: int = 1
    reach: int = 0
    readout: ReadOutKind = "relu"
    outputs: int = 1


@dataclass(frozen=True)
class TrainingRecipe:
    """How a network is trained. `first`: the first position that counts; `signs`: tokens ±1 instead of uniform ones."""

    length: int
    first: int = 0
    batch: int = 64
    steps: int = 2000
    rate: float = 3e-3
    decay_rate: float = 1.0
    """Factor of the rate for the decays' θ."""
    weight_decay: float = 0.0
    memory: float = 0.999
    """Adam's β₂: how long squared gradients are remembered, 1/(1 − β₂) steps."""
    seed: int = 0
    signs: bool = False
    supervise: float = 0.0
    """Weight of the slots' loss."""
    stop: Stop = field(default_factory=Stop)


def check_shape(shape: Shape, dim: int) -> None:
    """Refuse sizes that are no sizes, or absurd, and combinations that do not exist."""
    for part in fields(shape):
        value = getattr(shape, part.name)
        bare = part.name in ("key_dim", "value_dim", "reach", "width")  # layers without heads or without neurons
        if isinstance(value, int) and value < (0 if bare else 1):
            raise InputError(f"{part.name.replace('_', ' ')} is {value}; give a larger number")
    weights = shape.layers * (shape.heads * shape.model_dim * 2 * (shape.key_dim + shape.value_dim) + 2 * shape.width * shape.model_dim)
    weights += shape.width * shape.outputs
    if weights + shape.layers * shape.heads * shape.reach > MAX_PARAMETERS:
        raise InputError(f"these sizes ask for about {weights} weights; {MAX_PARAMETERS} is the most that is trained here")
    if (shape.rpe == "table") != (shape.reach > 0):
        raise InputError("a bias per distance needs a reach, the number of distances; other heads have none")
    if shape.rpe == "table" and (shape.attention not in ("dp-free", "dp") or shape.window == "full"):
        raise InputError("a bias per distance needs a softmax, dp-free or dp, and an infinite or finite window")
    if shape.rpe == "none" and (shape.attention not in ("dp", "linear") or shape.window == "infinite"):
        raise InputError("heads that do not see positions need dot products and a finite or full window")
    if shape.attention == "linear" and shape.rpe != "none":
        raise InputError("linear attention is for heads that do not see positions")
    if shape.window == "full" and shape.rpe != "none":
        raise InputError("the window full is for heads that do not see positions")
    if shape.outputs > 1 and shape.readout == "affine":
        raise InputError(f"an affine read-out is one output; {shape.outputs} are asked for")
    if dim < 1:
        raise InputError(f"tokens have dimension {dim}")


def check_numbers(recipe: TrainingRecipe) -> None:
    """Refuse numbers that no training has, whatever the network; comparisons are such that NaN fails."""
    check_range("batch", recipe.batch, 1)
    check_range("rate", recipe.rate, above=0, below=1)
    check_range("weight_decay", recipe.weight_decay, 0, below=np.inf)
    check_range("seed", recipe.seed, 0, MAX_SEED)


def check_recipe(recipe: TrainingRecipe, target: Target, layers: int, heads: int, attention: Sequence[str]) -> None:
    """Refuse a training that cannot be run, or that trains nothing; `heads` are the most in a layer, `attention` its kinds."""
    if target.length is not None and recipe.length != target.length:
        raise InputError(f"this {target.kind} has sequences of {target.length} tokens, not {recipe.length}")
    check_range("length", recipe.length, 1, MAX_LENGTH)
    if not 0 <= recipe.first < recipe.length:
        raise InputError(f"the first position that counts is {recipe.first}, of {recipe.length}")
    check_numbers(recipe)
    coupled = bool({"dp", "nf", "linear"} & set(attention))
    rows = recipe.length - (recipe.first if layers == 1 else 0)
    numbers = heads * recipe.length * max(rows * (recipe.batch if coupled else 1), recipe.batch)
    if numbers > MAX_NUMBERS:
        raise InputError(
            f"a step would hold {numbers} attention weights; {MAX_NUMBERS} is the most: shorter sequences, fewer heads or a smaller batch"
        )
