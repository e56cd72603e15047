"""[JL] Table 1 on digits: images whose patches come in another order, for a Transformer and for recurrent networks.

Their claim: the order of tokens is nothing to a Transformer and something to an RNN. The print is about other images and larger
networks, which are not at hand, so no number of it is repeated; what is compared is the direction. Here: the 1797 digits of
scikit-learn, every fifth of them held out, 16 patches row by row (*original*) or in one random order per seed, the same for all images
(*permuted*); the Transformer of `digits_vit` with m_h = 16, and RNNs of 64 units (`digits_rnn`), linear and with tanh. Adam, batches of
128, peak rate 0.005 with a cosine, gradients of RNNs clipped to norm 1.

What is proved (Prop 6.2, here an identity). With positions p and an order π let p' be p in that order. The Transformer with p' on the
patches x_{π(1)}, …, x_{π(16)} attends to the same vectors h as the one with p on x: sums over patches do not see their order, so both
give the same scores. The functions that it can be are the same in every order, and so is the law of its errors after training, because
initial positions are independent and alike. The row *permuted, positions too* trains from the permuted start: it is the original run up
to rounding, which training magnifies.

Nothing like it holds for an RNN of a given size: W must keep the patch that comes first for 15 steps, whichever it is. With 64 units a
linear RNN can keep all 64 pixels and is then a linear classifier in every order, so an order changes what training finds, not what there
is.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from constructions.training.digits import PATCHES
from constructions.training.digits_rnn import UNITS, initial_rnn, recurrent_scores
from constructions.training.digits_vit import class_scores, initial
from constructions.training.loop import Progress, adam, fit_ensemble
from verify.experiments.jl_digits import spread

ID = "jl-table-1"
RANK = 16
BATCH, PEAK, CLIP = 128, 0.005, 1.0
EVERY = 5
"""Every fifth image is held out."""
ORIGINAL, PERMUTED, FOLLOWED = "original", "permuted", "permuted, positions too"
TRANSFORMER = f"Transformer, m_h = {RANK}"
Scores = Callable[[Any, jax.Array], jax.Array]
Report = Callable[[str, Progress], None]


@dataclass(frozen=True)
class ImageReader:
    """A model: its start for a seed and its scores; `clipped`: its gradients are."""

    name: str
    start: Callable[[int], Any]
    scores: Scores
    clipped: bool


READERS = (
    ImageReader(TRANSFORMER, partial(initial, rank=RANK), class_scores, False),
    ImageReader(f"linear RNN, {UNITS} units", initial_rnn, recurrent_scores, True),
    ImageReader(f"tanh RNN, {UNITS} units", initial_rnn, partial(recurrent_scores, activation=jnp.tanh), True),
)


@dataclass(frozen=True)
class OrderRow:
    """One model and order: errors of classification, one per seed, as shares of 1."""

    model: str
    order: str
    training: np.ndarray
    held_out: np.ndarray


def orders(seeds: int) -> np.ndarray:
    """(seeds, 16): one random order of the patches for every seed."""
    return np.stack([np.random.default_rng([seed, PATCHES]).permutation(PATCHES) for seed in range(seeds)])


def split(images: np.ndarray, labels: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Images to learn from, and every fifth one, held out."""
    held = np.arange(len(images)) % EVERY == EVERY - 1
    return (images[~held], labels[~held]), (images[held], labels[held])


def train(
    reader: ImageReader, order: str, data: tuple[np.ndarray, np.ndarray], protocol: tuple[int, int], report: Report | None
) -> OrderRow:
    """All seeds of one model and order in one run; `protocol` is (seeds, steps)."""
    seeds, steps = protocol
    (images, labels), held_out = split(*data)
    chosen = orders(seeds) if order != ORIGINAL else np.tile(np.arange(PATCHES), (seeds, 1))
    starts = [reader.start(seed) for seed in range(seeds)]
    if order == FOLLOWED:
        starts = [replace(start, position=start.position[one]) for start, one in zip(starts, chosen, strict=True)]
    patches, classes = jnp.asarray(images), jnp.asarray(labels)

    def loss(network: Any, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(reader.scores(network, batch[0]), batch[1]).mean()

    def batches(key: jax.Array, one: jax.Array) -> tuple[jax.Array, jax.Array]:
        rows = jax.random.randint(key, (BATCH,), 0, len(classes))
        return patches[rows][:, one], classes[rows]

    optimiser = adam(PEAK, steps)
    trained = fit_ensemble(
        loss,
        jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *starts),
        batches,
        steps=steps,
        optimiser=optax.chain(optax.clip_by_global_norm(CLIP), optimiser) if reader.clipped else optimiser,
        seeds=range(seeds),
        tasks=jnp.asarray(chosen),
        report=None if report is None else partial(report, f"{reader.name}, {order}"),
    )
    wrong = [_wrong(reader, trained.parameters, chosen, part) for part in ((images, labels), held_out)]
    return OrderRow(reader.name, order, *wrong)


def _wrong(reader: ImageReader, networks: Any, chosen: np.ndarray, part: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    """The share of wrong classes of every member."""
    images, labels = jnp.asarray(part[0]), jnp.asarray(part[1])

    def of_one(network: Any, one: jax.Array) -> jax.Array:
        return (reader.scores(network, images[:, one]).argmax(axis=-1) != labels).mean()

    return np.asarray(jax.jit(jax.vmap(of_one))(networks, jnp.asarray(chosen)), np.float64)


def run(images: np.ndarray, labels: np.ndarray, seeds: int, steps: int, report: Report | None = None) -> dict[str, Any]:
    """The experiment as data: rows, what the order does to each model, and what that says."""
    start = time.perf_counter()
    rows = []
    for reader in READERS:
        for order in (ORIGINAL, PERMUTED, FOLLOWED) if reader.name == TRANSFORMER else (ORIGINAL, PERMUTED):
            rows.append(train(reader, order, (images, labels), (seeds, steps), report))
    effects = [effect(rows, reader.name) for reader in READERS]
    return {
        "experiment": ID,
        "data": {"name": "scikit-learn digits", "images": len(images), "held_out": len(images) // EVERY, "patches": PATCHES},
        "rows": [
            {"model": row.model, "order": row.order, "training_error": spread(row.training), "held_out_error": spread(row.held_out)}
            for row in rows
        ],
        "effects": effects,
        "findings": findings(rows, effects),
        "seeds": seeds,
        "steps": steps,
        "note": "sampled: means and standard deviations over seeds; no number of the print is repeated",
        "seconds": time.perf_counter() - start,
    }


def effect(rows: Sequence[OrderRow], model: str) -> dict[str, Any]:
    """Permuted minus original, held out, seed by seed: mean, standard error, and whether it is beyond two of them."""
    before, after = (next(row.held_out for row in rows if (row.model, row.order) == (model, order)) for order in (ORIGINAL, PERMUTED))
    change = after - before
    error = float(np.std(change, ddof=1) / np.sqrt(len(change)))
    return {
        "model": model, "change": float(change.mean()), "standard_error": error, "matters": bool(abs(change.mean()) > 2 * error),
    }  # fmt: skip


def findings(rows: Sequence[OrderRow], effects: Sequence[dict[str, Any]]) -> list[str]:
    """What the order does to each model, as far as these runs can tell."""
    said = []
    for found in effects:
        words = "changes" if found["matters"] else "does not clearly change"
        by = f"by {100 * found['change']:+.2f} ± {100 * found['standard_error']:.2f} points"
        said.append(f"{found['model']}: another order {words} the held-out error ({by})")
    first, followed = (
        next((row for row in rows if (row.model, row.order) == (TRANSFORMER, order)), None) for order in (ORIGINAL, FOLLOWED)
    )
    if first is not None and followed is not None:
        most = 100 * float(np.max(np.abs(first.held_out - followed.held_out)))
        said.append(
            f"{TRANSFORMER}: with positions in the same order it is the same run up to rounding; errors differ by {most:.2f} points at most"
        )
    as_said = not effects[0]["matters"] and any(found["matters"] and found["change"] > 0 for found in effects[1:])
    said.append(f"the paper's direction, an order that an RNN minds and a Transformer does not, is {'' if as_said else 'not '}seen here")
    return said
