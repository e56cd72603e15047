"""[WE] experiments 1a and 3b in small: language models, depth against heads at equal parameters, and with and without dot products.

Published, on OpenWebText with tokens: raising the depth gains 0.802 in loss, raising the number of heads 0.136; losses with and without
dot products 5.796/5.830, 5.374/5.486, 4.994/5.274. Here: the characters of one text, and the very layers of this project: one-hot
characters → W_E, lin heads over the tokens of a finite window, U = X + Attn(X), X ← U + FFN(U), and the V rows of the last feed-forward
network's outer matrix are the logits. There is no layer norm and no 1/√d, as in [WE]'s definition; theirs in the experiment is a usual one.

Sizes. A *small* network is made larger twice, by layers and by heads, at nearly the same number of stored weights (all of them: decays,
W_V, W_O, W_Q, W_K, feed-forward, embedding): the deeper one is given, and the number of heads of the wider one is searched for, then its
feed-forward width, until the counts agree within `AGREE`. The second comparison takes the small and the deep sizes with dp-free and with
dp attention: same D, H, m, L; dot products add their W_Q and W_K.

Losses are nats per character on the last tenth of the text, which is never trained on: means over windows taken one after another. A
sampled number: what is compared with print is its direction, never its size. Steps were cut from 1000 to 600 for time after one trial of
200; sizes and rate were not tuned. With two seeds the lead of depth over heads is of the order of their spread.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from constructions.network.transformer import Transformer
from constructions.training import trainable as learning
from constructions.training.loop import Progress, fit_ensemble
from constructions.training.recipes import Shape, TrainingRecipe
from verify.experiments.corpus import Corpus

ID = "we-lm"
PUBLISHED = {"depth": 0.802, "heads": 0.136, "dp": ((5.796, 5.830), (5.374, 5.486), (4.994, 5.274))}
SMALL = Shape(heads=4, width=64, layers=1, model_dim=32, attention="dp", window="finite", key_dim=8, value_dim=8)
DEEP_LAYERS = 4
AGREE = 0.05
BATCH, RATE = 16, 3e-3
TESTED = 32768
"""Held-out characters that a loss is averaged over at most."""

Report = Callable[[str, Progress], None]


@dataclass(frozen=True)
class Model:
    """A size and its name; `count`: all stored weights."""

    name: str
    shape: Shape
    count: int


def language_model(shape: Shape, letters: int, seed: int, longest: int) -> Transformer:
    """Random weights; the last feed-forward network has one output per letter."""
    network = learning.initial(shape, letters, seed, longest)
    rng = np.random.default_rng([seed, letters])
    outer = (rng.standard_normal((letters, shape.width)) / np.sqrt(shape.width)).astype(np.float32)
    *inner, last = network.layers
    embedding = rng.standard_normal((shape.model_dim, letters)).astype(np.float32)  # a one-hot token picks one column
    return replace(network, embedding=embedding, layers=(*inner, replace(last, feedforward=replace(last.feedforward, outer=outer))))


def parameters(shape: Shape, letters: int) -> int:
    """All stored weights."""
    return language_model(shape, letters, 0, 2).sizes()["parameters"]


def wider(shape: Shape, count: int, letters: int) -> Shape:
    """More heads until the count is reached, the least number that exceeds it or the one before; then the width makes up for the rest."""
    heads = shape.heads
    while parameters(replace(shape, heads=heads + 1), letters) <= count:
        heads += 1
    found = replace(shape, heads=heads)
    per_neuron = parameters(replace(found, width=found.width + 1), letters) - parameters(found, letters)
    return replace(found, width=found.width + max(0, (count - parameters(found, letters)) // per_neuron))


def models(letters: int) -> list[Model]:
    """small, deeper and more heads with dot products; small and deeper without."""
    deep = replace(SMALL, layers=DEEP_LAYERS)
    shapes = {
        "small": SMALL,
        "deeper": deep,
        "more heads": wider(SMALL, parameters(deep, letters), letters),
        "small, dp-free": replace(SMALL, attention="dp-free"),
        "deeper, dp-free": replace(deep, attention="dp-free"),
    }
    return [Model(name, shape, parameters(shape, letters)) for name, shape in shapes.items()]


def loss(weights: Transformer, batch: jax.Array) -> jax.Array:
    """Mean cross-entropy of the next character, nats; batch (B, N + 1) of letters."""
    network = learning.to_network(weights)
    tokens = jax.nn.one_hot(batch[:, :-1], network.embedding.shape[1], dtype=network.embedding.dtype)
    logits = jax.nn.log_softmax(learning.outputs(network, tokens))
    return -jnp.mean(jnp.take_along_axis(logits, batch[:, 1:, None], axis=-1))


def draw(text: jax.Array, length: int, key: jax.Array) -> jax.Array:
    """Windows of length + 1 characters from random places of the text."""
    places = jax.random.randint(key, (BATCH,), 0, len(text) - length)
    return text[places[:, None] + jnp.arange(length + 1)]


def held_out(network: Transformer, text: np.ndarray, length: int) -> float:
    """The loss on consecutive windows of the held-out part; each predicts `length` characters from those before them in the window."""
    count = max(1, min((len(text) - 1) // length, TESTED // length))
    windows = np.stack([text[k * length : (k + 1) * length + 1] for k in range(count)])
    judge, weights = jax.jit(loss), learning.to_parameters(network.map(jnp.asarray))
    parts = [windows[k : k + BATCH] for k in range(0, count, BATCH)]
    return sum(float(judge(weights, jnp.asarray(part))) * len(part) for part in parts) / count


def train(
    model: Model, corpus: Corpus, length: int, steps: int, seeds: int, report: Callable[[Progress], None] | None = None
) -> list[float]:
    """Held-out losses, one per seed."""
    starts = [language_model(model.shape, len(corpus.alphabet), seed, length) for seed in range(seeds)]
    found = fit_ensemble(
        loss,
        learning.to_parameters(jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)),
        partial(draw, jnp.asarray(corpus.train), length),
        steps=steps,
        optimiser=learning.optimiser(starts[0], TrainingRecipe(length=length, steps=steps, rate=RATE)),
        seeds=range(seeds),
        report=report,
    )
    networks = jax.tree.map(np.asarray, learning.to_network(found.parameters))
    return [held_out(jax.tree.map(lambda leaf, k=k: leaf[k], networks), corpus.test, length) for k in range(seeds)]


def run(corpus: Corpus, length: int, steps: int, seeds: int, report: Report | None = None) -> dict[str, Any]:
    """The experiment as data."""
    start = time.perf_counter()
    rows = []
    for model in models(len(corpus.alphabet)):
        losses = train(model, corpus, length, steps, seeds, None if report is None else partial(report, model.name))
        rows.append(describe(model, losses))
    gains = compare(rows)
    return {
        "experiment": ID,
        "text": {
            "characters": len(corpus.train) + len(corpus.test),
            "held_out": len(corpus.test),
            "alphabet": len(corpus.alphabet),
            "entropy": corpus.entropy,
        },
        "length": length,
        "steps": steps,
        "seeds": seeds,
        "batch": BATCH,
        "rate": RATE,
        "rows": rows,
        "gains": gains,
        "published": {"depth": PUBLISHED["depth"], "heads": PUBLISHED["heads"], "with_and_without_dp": PUBLISHED["dp"]},
        "findings": findings(gains, rows),
        "note": "sampled: nats per character on the last tenth of the text, mean and standard deviation over seeds; no layer norm",
        "seconds": time.perf_counter() - start,
    }


def describe(model: Model, losses: Sequence[float]) -> dict[str, Any]:
    """A row as plain data."""
    shape = model.shape
    return {
        "name": model.name,
        "attention": shape.attention,
        "layers": shape.layers,
        "heads": shape.heads,
        "width": shape.width,
        "model_dim": shape.model_dim,
        "parameters": model.count,
        "losses": list(losses),
        "loss": {"mean": float(np.mean(losses)), "std": float(np.std(losses, ddof=1)) if len(losses) > 1 else None},
    }


def compare(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Differences of losses, paired by seed: mean, and the standard error over seeds (0 for one seed)."""
    losses = {row["name"]: np.array(row["losses"]) for row in rows}

    def gain(worse: str, better: str) -> dict[str, float]:
        difference = losses[worse] - losses[better]
        error = float(np.std(difference, ddof=1) / np.sqrt(len(difference))) if len(difference) > 1 else 0.0
        return {"mean": float(difference.mean()), "standard_error": error}

    return {
        "depth": gain("small", "deeper"),
        "heads": gain("small", "more heads"),
        "depth over heads": gain("more heads", "deeper"),
        "dp, small": gain("small, dp-free", "small"),
        "dp, deeper": gain("deeper, dp-free", "deeper"),
    }


def findings(gains: dict[str, dict[str, float]], rows: Sequence[dict[str, Any]]) -> list[str]:
    """What agrees with print, in direction; "clear" is two standard errors over seeds, and any gain if there is one seed."""
    counts = {row["name"]: row["parameters"] for row in rows}
    apart = abs(counts["more heads"] / counts["deeper"] - 1)

    def clear(name: str) -> bool:
        return gains[name]["mean"] > 2 * gains[name]["standard_error"]

    depth = clear("depth over heads")
    result = [
        f"depth gains {gains['depth']['mean']:.3f} nats, heads {gains['heads']['mean']:.3f}, at {counts['deeper']} and "
        f"{counts['more heads']} weights ({apart:.1%} apart): depth gains {'more, as' if depth else 'not clearly more, unlike'} in print "
        f"({PUBLISHED['depth']} and {PUBLISHED['heads']})"
    ]
    for size in ("small", "deeper"):
        found = gains[f"dp, {size}"]
        agrees = "as in print" if clear(f"dp, {size}") else "not clearly, unlike print"
        result.append(f"dot products gain {found['mean']:.3f} ± {found['standard_error']:.3f} nats at the {size} size: {agrees}")
    larger = gains["dp, deeper"]["mean"] > gains["dp, small"]["mean"]
    result.append(
        f"the gain of dot products is {'larger' if larger else 'not larger'} in the larger network"
        f"{', as' if larger else ', unlike'} in print (0.034, 0.112, 0.280)"
    )
    if len(rows[0]["losses"]) == 1:
        result.append("one seed: how far these numbers scatter is not known")
    result.append("directions only: another corpus, characters instead of tokens, networks thousands of times smaller")
    return result
