"""Training the networks that we construct: the same pytree, the same reference pass, on targets of every kind.

What is optimised is a `Transformer` whose decays are replaced by free numbers θ, p = least + e^θ with least = 1 for log heads over the
infinite past (their mass must be finite) and 0 otherwise; every other weight is itself. The embedding's bias stays at its start (0 for
random starts): a network whose past is the zero sequence keeps its certificate. Feed-forward parts that round ("with precision") pass no
derivative on: weights before them stay where they are.

The loss is the mean square of ŷ_t − y_t over fresh random sequences and the positions from `first` on; with `slots` the mean squares of
named coordinates of the residual stream against memories are added, times a weight (the supervised arm).

A run is a function of (network at the start, recipe): see `constructions.training`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import optax

from analyzer.couplings import CouplingTarget
from analyzer.errors import InputError, Refusal
from analyzer.targets import FixedMemory, KernelMemory, Target
from constructions import reference, target_values
from constructions.precision import MANTISSA, with_x64
from constructions.target_values import letters_of, token_dim
from constructions.training import Report, Saved, Stop, Trained, fit, warm_cosine
from constructions.transformer import Attention, AttentionKind, FeedForward, Layer, Transformer, Window, to_float

ReadOutKind = Literal["relu", "affine"]
MAX_PARAMETERS = 1 << 26
"""Weights of a network to be trained: with both moments of Adam 1 GB of float32."""

MAX_NUMBERS = 1 << 27
"""Attention weights of a step: 512 MB of float32, which the backward pass holds a few times."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a network to be trained; `reach` is the number of distances of table heads.

    `readout` "affine" makes the last feed-forward network relu(u_0) − relu(−u_0) = u_0, which is not trained: the network is linear.
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


@dataclass(frozen=True)
class Recipe:
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


def initial(shape: Shape, dim: int, seed: int, longest: int, dtype: str = "float32") -> Transformer:
    """Random weights: every map has variance 1/inputs, so that streams keep their size; residual branches are divided by √layers.

    Decays of lin heads have half-lives spread geometrically from 1 to `longest` tokens; log heads have p − least from 1/4 to 4 in the same
    way: the kernels s^{−p} between nearly flat and nearly one token. Tables start flat but for noise. Biases start at 0.
    """
    check_shape(shape, dim)
    rng = np.random.default_rng(seed)
    h, d, dk, dv = shape.heads, shape.model_dim, shape.key_dim, shape.value_dim
    scored = shape.attention in ("dp", "nf")

    def normal(*size: int, inputs: int, scale: float = 1.0) -> np.ndarray:
        return (rng.standard_normal(size) * scale / np.sqrt(max(inputs, 1))).astype(dtype)

    branch, layers = 1 / np.sqrt(shape.layers), []
    for index in range(shape.layers):
        attention = Attention(
            decay=spread_decays(shape, longest).astype(dtype),
            value=normal(h, dv, d, inputs=d),
            output=normal(h, d, dv, inputs=h * dv, scale=branch),
            query=normal(h, dk if scored else 0, d, inputs=d),
            key=normal(h, dk if scored else 0, d, inputs=d * max(dk, 1)),
            pointer=normal(h if shape.attention == "tmx" else 0, d, inputs=d),
            rpe=(shape.rpe,) * h,
            kind=shape.attention,
            window=shape.window,
            table=normal(h, shape.reach, inputs=1, scale=0.02) if shape.rpe == "table" else None,
        )
        last = index == shape.layers - 1
        if last and shape.readout == "affine":
            ffn = affine_readout(d, dtype)
        else:
            outer = normal(1 if last else d, shape.width, inputs=shape.width, scale=1.0 if last else branch)
            ffn = FeedForward(normal(shape.width, d, inputs=d), np.zeros(shape.width, dtype), outer)
        layers.append(Layer(attention, ffn))
    return Transformer(normal(d, dim, inputs=dim), np.zeros(d, dtype), tuple(layers))


def affine_readout(model_dim: int, dtype: str) -> FeedForward:
    """relu(u_0) − relu(−u_0) = u_0."""
    inner = np.zeros((2, model_dim), dtype)
    inner[:, 0] = 1, -1
    return FeedForward(inner, np.zeros(2, dtype), np.array([[1, -1]], dtype))


def spread_decays(shape: Shape, longest: int) -> np.ndarray:
    """One decay per head, from fast to slow."""
    if shape.rpe in ("table", "none"):
        return np.zeros(shape.heads)
    if shape.rpe == "lin":
        return np.log(2) / np.geomspace(1, max(longest, 2), shape.heads)
    return _least(shape.rpe, shape.window) + np.geomspace(4, 1 / 4, shape.heads)


def check_shape(shape: Shape, dim: int) -> None:
    """Refuse sizes that are no sizes, or absurd, and combinations that do not exist."""
    for part in fields(shape):
        value = getattr(shape, part.name)
        if isinstance(value, int) and value < (0 if part.name in ("key_dim", "reach") else 1):
            raise InputError(f"{part.name.replace('_', ' ')} is {value}; give a larger number")
    weights = shape.layers * (shape.heads * shape.model_dim * 2 * (shape.key_dim + shape.value_dim) + 2 * shape.width * shape.model_dim)
    if weights + shape.layers * shape.heads * shape.reach > MAX_PARAMETERS:
        raise InputError(f"these sizes ask for about {weights} weights; {MAX_PARAMETERS} is the most that is trained here")
    if (shape.rpe == "table") != (shape.reach > 0):
        raise InputError("a bias per distance needs a reach, the number of distances; other heads have none")
    if shape.rpe == "table" and (shape.attention not in ("dp-free", "dp") or shape.window == "full"):
        raise InputError("a bias per distance needs a softmax, dp-free or dp, and an infinite or finite window")
    if shape.rpe == "none" and (shape.attention != "dp" or shape.window == "infinite"):
        raise InputError("heads that do not see positions need dot products and a finite or full window")
    if shape.window == "full" and shape.rpe != "none":
        raise InputError("the window full is for heads that do not see positions")
    if dim < 1:
        raise InputError(f"tokens have dimension {dim}")


def randomised(network: Transformer, seed: int, longest: int) -> Transformer:
    """Random weights in the structure of a network: the same arrays, heads and windows; nothing is rounded ("with precision")."""
    attention = network.layers[0].attention
    shape = Shape(
        heads=len(attention.rpe),
        width=1,
        layers=len(network.layers),
        model_dim=int(network.embedding.shape[0]),
        rpe=attention.rpe[0],
        attention=attention.kind,
        window=attention.window,
        reach=0 if attention.table is None else int(attention.table.shape[1]),
    )
    layers = []
    for index, layer in enumerate(network.layers):
        sizes = replace(
            shape,
            heads=len(layer.attention.rpe),
            width=int(layer.feedforward.inner.shape[0]),
            key_dim=int(layer.attention.query.shape[1]),
            value_dim=int(layer.attention.value.shape[1]),
        )
        fresh = initial(sizes, network.dim, seed + index, longest, network.dtype)
        drawn = fresh.layers[index if index == len(network.layers) - 1 else 0]
        decays = [spread_decays(replace(sizes, rpe=kind), longest)[h] for h, kind in enumerate(layer.attention.rpe)]
        attention = replace(
            drawn.attention,
            decay=np.array(decays, network.dtype),
            rpe=layer.attention.rpe,
            kind=layer.attention.kind,
            window=layer.attention.window,
            pointer=drawn.attention.pointer[: layer.attention.pointer.shape[0]],
        )
        layers.append(Layer(attention, drawn.feedforward))
    return replace(initial(replace(shape, layers=1), network.dim, seed, longest, network.dtype), layers=tuple(layers))


def as_float(network: Transformer, dtype: str) -> Transformer:
    """A network in a float type that can be trained; weights that the type cannot hold are refused."""
    if dtype not in MANTISSA:
        raise InputError(f"dtype {dtype!r} cannot be trained; choose from {', '.join(MANTISSA)}")

    def convert(leaf: Any) -> np.ndarray:
        array = np.asarray(leaf)
        with np.errstate(over="ignore"):
            return to_float(array, dtype) if array.dtype == object else array.astype(dtype)

    floats = network.map(convert)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(floats)):
        raise Refusal(f"the weights do not fit into {dtype}; train in float64 or start from a network of fewer heads")
    for layer in floats.layers:
        attention = layer.attention
        if not np.all(np.asarray(attention.decay) - _leasts(attention) > 0) and attention.rpe[0] not in ("none", "table"):
            raise Refusal(f"a decay is rounded to the end of its range in {dtype}; train in float64")
    return floats


def _least(rpe: str, window: str) -> int:
    return 1 if rpe == "log" and window == "infinite" else 0


def _leasts(attention: Attention) -> np.ndarray:
    return np.array([_least(kind, attention.window) for kind in attention.rpe])


def _on_decays(function: Callable[[Attention], Any], network: Transformer) -> Transformer:
    layers = tuple(
        layer
        if layer.attention.rpe[0] in ("none", "table")
        else replace(layer, attention=replace(layer.attention, decay=function(layer.attention)))
        for layer in network.layers
    )
    return replace(network, layers=layers)


def to_parameters(network: Transformer) -> Transformer:
    """θ = log(p − least) in place of the decays."""
    return _on_decays(lambda a: jnp.log(jnp.asarray(a.decay) - _leasts(a).astype(a.decay.dtype)), network)


def to_network(parameters: Transformer) -> Transformer:
    """p = least + e^θ."""
    return _on_decays(lambda a: _leasts(a) + jnp.exp(a.decay), parameters)


def outputs(network: Transformer, tokens: jax.Array, first: int = 0) -> jax.Array:
    """The last feed-forward network's outputs, (…, N − first, out), in one differentiable piece: the reference pass."""
    return stream(network, tokens, first)[-1]


def stream(network: Transformer, tokens: jax.Array, first: int = 0) -> list[jax.Array]:
    """The residual stream after every attention, then the outputs; the last layer at positions from `first` on only."""
    x = jnp.einsum("dk,...k->...d", network.embedding, tokens, precision=reference.HIGHEST) + network.bias
    past, seen = jnp.asarray(network.bias), []
    for index, layer in enumerate(network.layers):
        last = index == len(network.layers) - 1
        start = first if last else 0
        attended, past_attended = reference.attend(layer.attention, x, past, start)
        u, past_u = x[..., start:, :] + attended, past + past_attended
        seen.append(u)
        x, past = reference.feed(layer.feedforward, u, past_u, last)
    return [*seen, x]


def sampler(target: Target, recipe: Recipe, dtype: str) -> Callable[[jax.Array], jax.Array]:
    """Random tokens (batch, length, d) from a key: letters of the alphabet if there is one, ±1 if wanted, else uniform."""
    shape = (recipe.batch, recipe.length)
    if isinstance(target, CouplingTarget):
        return lambda key: jax.random.uniform(key, (*shape, 1), dtype)
    if not isinstance(target, FixedMemory | KernelMemory):
        letters = letters_of(target)
        return lambda key: jnp.asarray(letters, dtype)[jax.random.randint(key, shape, 0, len(letters))]
    if isinstance(target, FixedMemory) and target.alphabet is not None:
        values = np.array([float(v.p) / float(v.q) for v in target.alphabet])
        return lambda key: jnp.asarray(values, dtype)[jax.random.randint(key, (*shape, target.dim), 0, len(values))]
    if recipe.signs:
        return lambda key: jax.random.rademacher(key, (*shape, target.dim), dtype)
    return lambda key: jax.random.uniform(key, (*shape, target.dim), dtype, -1, 1)


def loss_of(target: Target, recipe: Recipe, slots: Mapping[int, int] | None = None) -> Callable[[Transformer, jax.Array], jax.Array]:
    """ℓ(θ, tokens). `slots`: coordinate of the stream before the last feed-forward network → coordinate of (x_t, memories)."""
    wanted = target_values.values(target, jnp)
    seen = target_values.memories(target, jnp) if slots else None

    def loss(parameters: Transformer, tokens: jax.Array) -> jax.Array:
        *before, found = stream(to_network(parameters), tokens, recipe.first)
        total = jnp.mean((found[..., 0] - wanted(tokens)[..., recipe.first :]) ** 2)
        if slots and seen is not None:
            places, of = np.array(list(slots)), np.array(list(slots.values()))
            memories = seen(tokens)[..., recipe.first :, :]
            total = total + recipe.supervise * jnp.mean((before[-1][..., places] - memories[..., of]) ** 2)
        return total

    return loss


def trainable(network: Transformer) -> Transformer:
    """1 for what is trained, 0 for what is not: the embedding's bias, and a last feed-forward network that is u_0."""
    ones = jax.tree.map(lambda leaf: 1.0, network)
    last = network.layers[-1].feedforward
    layers = list(ones.layers)
    if is_affine_readout(last):
        layers[-1] = replace(layers[-1], feedforward=jax.tree.map(lambda leaf: 0.0, last))
    return replace(ones, bias=0.0, layers=tuple(layers))


def is_affine_readout(ffn: FeedForward) -> bool:
    plain = affine_readout(ffn.inner.shape[1], "float32")
    pairs = ((ffn.inner, plain.inner), (ffn.bias, plain.bias), (ffn.outer, plain.outer))
    return all(np.shape(a) == b.shape and bool(np.all(np.asarray(a) == b)) for a, b in pairs)


def optimiser(network: Transformer, recipe: Recipe) -> optax.GradientTransformation:
    """AdamW (Adam if there is no weight decay) with warm-up and cosine; frozen weights do not move, decays at their own rate.

    Weights are pulled to 0, decays are not: θ = 0 is no special decay.
    """
    factors = trainable(network)
    scaled = _on_decays(lambda a: a.decay * recipe.decay_rate, factors)
    pulled = jax.tree.map(bool, _on_decays(lambda a: 0.0, factors))
    rule = optax.adamw(warm_cosine(recipe.rate, recipe.steps), b2=recipe.memory, weight_decay=recipe.weight_decay, mask=pulled)
    return optax.chain(rule, optax.stateless(lambda updates, _: jax.tree.map(lambda u, f: u * f, updates, scaled)))


def train(
    network: Transformer,
    target: Target,
    recipe: Recipe,
    *,
    slots: Mapping[int, int] | None = None,
    report: Report | None = None,
    resume: Saved | None = None,
    store: Callable[[Saved], None] | None = None,
) -> tuple[Transformer, Trained]:
    """The trained network, in the type of the one given, and the run."""
    check_recipe(recipe, network, target)
    with with_x64(network.dtype):
        start = to_parameters(network.map(jnp.asarray))
        trained = fit(
            loss_of(target, recipe, slots),
            start,
            sampler(target, recipe, network.dtype),
            steps=recipe.steps,
            optimiser=optimiser(network, recipe),
            seed=recipe.seed,
            report=report,
            resume=resume,
            store=store,
            stop=recipe.stop,
        )
        found = to_network(trained.parameters).map(np.asarray)
    return found, trained


def check_recipe(recipe: Recipe, network: Transformer, target: Target) -> None:
    """Refuse a training that cannot be run, or that trains nothing."""
    if network.dim != token_dim(target):
        raise InputError(f"the network reads tokens of dimension {network.dim}, the target has {token_dim(target)}")
    if isinstance(target, CouplingTarget) and recipe.length != target.length:
        raise InputError(f"this coupling has sequences of {target.length} tokens, not {recipe.length}")
    if not 1 <= recipe.length <= target_values.MAX_LENGTH:
        raise InputError(f"sequences of {recipe.length} tokens; give 1 to {target_values.MAX_LENGTH}")
    if not 0 <= recipe.first < recipe.length:
        raise InputError(f"the first position that counts is {recipe.first}, of {recipe.length}")
    if recipe.batch < 1 or not 0 < recipe.rate < 1 or recipe.weight_decay < 0 or recipe.seed < 0:
        raise InputError("a batch has at least 1 sequence, the rate lies between 0 and 1, weight decay and seed are not negative")
    heads = max(len(layer.attention.rpe) for layer in network.layers)
    coupled = any(layer.attention.kind in ("dp", "nf") for layer in network.layers)
    rows = recipe.length - (recipe.first if len(network.layers) == 1 else 0)
    numbers = heads * recipe.length * max(rows * (recipe.batch if coupled else 1), recipe.batch)
    if numbers > MAX_NUMBERS:
        raise InputError(
            f"a step would hold {numbers} attention weights; {MAX_NUMBERS} is the most: shorter sequences, fewer heads or a smaller batch"
        )
