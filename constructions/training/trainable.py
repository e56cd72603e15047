"""Training the networks that we construct: the same pytree, the same reference pass, on targets of every kind.

What is optimised is a `Transformer` whose decays are replaced by free numbers θ, p = least + e^θ with least = 1 for log heads over the
infinite past (their mass must be finite) and 0 otherwise; every other weight is itself. The embedding's bias stays at its start (0 for
random starts): a network whose past is the zero sequence keeps its certificate. Feed-forward parts that round ("with precision") pass no
derivative on: weights before them stay where they are.

The loss is the mean square of ŷ_t − y_t over fresh random sequences and the positions from `first` on; for networks of several outputs, one
per value of the target (`analyzer.targets.decisions`), it is the mean of −log softmax(ŷ_t) at the value that is right. With `slots` the
mean squares of named coordinates of the residual stream against memories are added, times a weight (the supervised arm).

A run is a function of (network at the start, recipe): see `constructions.training.loop`.
"""

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from analyzer.errors import InputError, Refusal
from analyzer.targets.decisions import decision_of, values_of
from analyzer.targets.protocol import ArrayMap, Target, TokenTarget, memories_of
from constructions.network.precision import MANTISSA, check_device, with_x64
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, check_plain, to_float
from constructions.run import blocked
from constructions.run.reference import SCORED, stream
from constructions.training.checkpoint import fingerprint
from constructions.training.loop import Report, Saved, Trained, fit, warm_cosine
from constructions.training.recipes import Shape, TrainingRecipe, check_recipe, check_shape


def initial(shape: Shape, dim: int, seed: int, longest: int, dtype: str = "float32") -> Transformer:
    """Random weights: every map has variance 1/inputs, so that streams keep their size; residual branches are divided by √layers.

    Decays of lin heads have half-lives spread geometrically from 1 to `longest` tokens; log heads have p − least from 1/4 to 4 in the same
    way: the kernels s^{−p} between nearly flat and nearly one token. Tables start flat but for noise of 2 %, which tells heads apart.
    Biases start at 0.
    """
    check_shape(shape, dim)
    rng = np.random.default_rng(seed)
    h, d, dk, dv = shape.heads, shape.model_dim, shape.key_dim, shape.value_dim
    scored = shape.attention in SCORED

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
            outer = normal(shape.outputs if last else d, shape.width, inputs=shape.width, scale=1.0 if last else branch)
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
        outputs=network.outputs,
    )
    layers = []
    for index, layer in enumerate(network.layers):
        sizes = replace(
            shape,
            heads=len(layer.attention.rpe),
            rpe=layer.attention.rpe[0],
            attention=layer.attention.kind,
            window=layer.attention.window,
            reach=0 if layer.attention.table is None else int(layer.attention.table.shape[1]),
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
    fresh = initial(replace(shape, layers=1), network.dim, seed, longest, network.dtype)
    return replace(fresh, layers=tuple(layers), positions=_random_positions(network, seed))


def _random_positions(network: Transformer, seed: int) -> np.ndarray | None:
    """A table of positions as GPT-2's begins, normal of deviation 0.02, where a network has one."""
    if network.positions is None:
        return None
    return (0.02 * np.random.default_rng([seed, 1]).standard_normal(np.shape(network.positions))).astype(network.dtype)


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
        check_plain(attention, "training")
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


SLOWEST, FASTEST = 2.0**-19, 2.0**20
"""What p − least may be after training: the reference pass takes decays of log heads below 1 + 1e-6 for that number, and heads faster than
2^20 see one token in every float type. Networks at these ends can be stored and read again."""


def to_network(parameters: Transformer) -> Transformer:
    """p = least + e^θ, within what can be told apart."""
    return _on_decays(lambda a: _leasts(a) + jnp.clip(jnp.exp(a.decay), SLOWEST, FASTEST), parameters)


def outputs(network: Transformer, tokens: jax.Array, first: int = 0) -> jax.Array:
    """The last feed-forward network's outputs, (…, N − first, out), in one differentiable piece: the reference pass, by blocks where long
    arrays meet heads that read positions only."""
    return stream(network, tokens, first, blocked.attend)[-1]


POOL = 1 << 13
"""Sequences that batches are drawn from where a target has its own."""


def sampler(target: Target, recipe: TrainingRecipe, dtype: str) -> Callable[[jax.Array], jax.Array]:
    """Random tokens (batch, length, d) from a key: letters of the alphabet if there is one, ±1 if wanted, else uniform. Targets whose
    sequences are not all arrays of tokens draw `POOL` of them beforehand, and batches are drawn from these."""
    shape, letters = (recipe.batch, recipe.length, target.dim), target.letters()
    if type(target).draw is not TokenTarget.draw:
        pool = jnp.asarray(target.draw(np.random.default_rng(recipe.seed), (POOL, recipe.length)), dtype)
        return lambda key: pool[jax.random.randint(key, shape[:1], 0, POOL)]
    if letters is not None:
        indices = shape[:2] if letters.ndim == 2 else shape
        return lambda key: jnp.asarray(letters, dtype)[jax.random.randint(key, indices, 0, len(letters))]
    if recipe.signs and target.signed:
        return lambda key: jax.random.rademacher(key, shape, dtype)
    return lambda key: jax.random.uniform(key, shape, dtype, *target.domain)


def slot_values(target: Target, network: Transformer) -> ArrayMap:
    """Tokens (…, N, d) → what a construction holds in its first coordinates before the last feed-forward network: x_t, the memories
    and, where they depend on tokens, the lags (their logarithms where log heads read them by dot products)."""
    memories = memories_of(target)
    seen, lags = memories.memory_values(jnp), memories.lag_values(jnp)
    width = int(network.embedding.shape[0])
    count = memories.readout.coordinates + (0 if lags is None else len(memories.names))
    if width < count:
        raise InputError(f"the stream has {width} coordinates; x0, memories and lags of this target need {count}")
    if lags is None:
        return seen
    attention = network.layers[-1].attention
    logarithms = attention.kind == "nf" and attention.rpe[0] == "log"

    def slots(tokens: jax.Array) -> jax.Array:
        steps = lags(tokens).astype(tokens.dtype)
        return jnp.concatenate([seen(tokens), jnp.log(steps) if logarithms else steps], axis=-1)

    return slots


def loss_of(target: Target, recipe: TrainingRecipe, slots: ArrayMap | None = None) -> Callable[[Transformer, jax.Array], jax.Array]:
    """ℓ(θ, tokens); `slots` gives what the first coordinates of the stream before the last feed-forward network should hold."""
    wanted, classes = target.values(jnp), cache(lambda: np.array(values_of(target).floats()))

    def error(found: jax.Array, y: jax.Array) -> jax.Array:
        if found.shape[-1] == 1:
            return jnp.mean((found[..., 0] - y) ** 2)
        right = jnp.abs(y[..., None] - jnp.asarray(classes(), y.dtype)).argmin(-1)
        return jnp.mean(optax.softmax_cross_entropy_with_integer_labels(found, right))

    def loss(parameters: Transformer, tokens: jax.Array) -> jax.Array:
        *before, found = stream(to_network(parameters), tokens, recipe.first, blocked.attend)
        total = error(found, wanted(tokens)[..., recipe.first :])
        if slots is not None:
            held = slots(tokens)[..., recipe.first :, :]
            total = total + recipe.supervise * jnp.mean((before[-1][..., : held.shape[-1]] - held) ** 2)
        return total

    return loss


def trainable(network: Transformer) -> Transformer:
    """1 for what is trained, 0 for what is not: the embedding's bias, decays that have no meaning (heads of type none or table), and a last
    feed-forward network that is u_0."""
    ones = jax.tree.map(lambda leaf: 1.0, network)
    last = network.layers[-1].feedforward
    layers = [
        replace(ones_of, attention=replace(ones_of.attention, decay=0.0)) if layer.attention.rpe[0] in ("none", "table") else ones_of
        for ones_of, layer in zip(ones.layers, network.layers, strict=True)
    ]
    if is_affine_readout(last):
        layers[-1] = replace(layers[-1], feedforward=jax.tree.map(lambda leaf: 0.0, last))
    return replace(ones, bias=0.0, layers=tuple(layers))


def is_affine_readout(ffn: FeedForward) -> bool:
    plain = affine_readout(ffn.inner.shape[1], "float32")
    pairs = ((ffn.inner, plain.inner), (ffn.bias, plain.bias), (ffn.outer, plain.outer))
    return all(np.shape(a) == b.shape and bool(np.all(np.asarray(a) == b)) for a, b in pairs)


def optimiser(network: Transformer, recipe: TrainingRecipe) -> optax.GradientTransformation:
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
    recipe: TrainingRecipe,
    *,
    slots: ArrayMap | None = None,
    report: Report | None = None,
    resume: Saved | None = None,
    store: Callable[[Saved], None] | None = None,
    devices: int = 1,
) -> tuple[Transformer, Trained]:
    """The trained network, in the type of the one given, and the run; `devices` share every batch."""
    check_device(network.dtype)
    if network.dim != target.dim:
        raise InputError(f"the network reads tokens of dimension {network.dim}, the target has {target.dim}")
    if network.outputs > 1:
        decision_of(target, network.outputs)
    kinds = [layer.attention.kind for layer in network.layers]
    check_recipe(recipe, target, len(kinds), max(len(layer.attention.rpe) for layer in network.layers), kinds)
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
            devices=devices,
        )
        found = to_network(trained.parameters).map(np.asarray)
    if not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(found)):
        raise Refusal("training diverged in its last step: a weight is not a finite number; a smaller learning rate may help")
    return found, trained


def learnt_at_start(network: Transformer, recipe: TrainingRecipe) -> tuple[Any, Any]:
    """(parameters, memory of the optimiser) before the first step."""
    with with_x64(network.dtype):
        parameters = to_parameters(network.map(jnp.asarray))
        return parameters, optimiser(network, recipe).init(parameters)


def run_of(network: Transformer, target: Target, recipe: TrainingRecipe) -> str:
    """The fingerprint of a run."""
    return fingerprint(jax.tree.leaves(network), str(jax.tree.structure(network)), target.describe(), asdict(recipe))
