"""Does training find, keep or leave the mechanism of a construction? Three arms of one structure on one target.

* constructed: the network of a bundle, as it was built;
* random: trained from random weights in the same structure (`constructions.training.trainable.randomised`);
* continued: trained from the constructed weights, by the same recipe at its own rate;
* supervised (on request): as random, with the stream before the last feed-forward network pulled to x_t, the memories and the lags.

All arms are compared by `verify.compare.side_by_side`. Whether an arm has the construction's mechanism is read off its effective kernel
(sampled): it is the same if it lies within `SAME` of the constructed one in ℓ¹, relative to the norm of the target's kernel, another one
that does the same job if it is that near to the target's kernel only, and none otherwise. Decays and weights that moved are shown beside.

Constructed weights are large and cancel (lag 2 in float32: 4390 − 8875 + 4486), so a step of Adam at the usual rate throws the output far
off before the weights have moved by a thousandth: the highest loss on the way is shown. At 3e-3 such a network does not come back; at 1e-5
it does.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import jax
import numpy as np

from analyzer.targets.protocol import Target
from constructions.files.bundle import Bundle
from constructions.network.recurrences import using
from constructions.network.transformer import Transformer
from constructions.training.loop import Progress, Trained
from constructions.training.recipes import TrainingRecipe
from constructions.training.trainable import as_float, randomised, slot_values, train
from verify.compare.side_by_side import ComparisonProtocol, compare, derived_length
from verify.theorems.no_theorem import trained_card, verify_learnt

CONSTRUCTED, RANDOM, CONTINUED, SUPERVISED = "constructed", "random", "continued", "supervised"
CONTINUED_RATE = 1e-5
"""The default rate for constructed weights: see above."""
SAME = 0.1
"""Kernels this near, relative to their norm, look alike in a figure; nothing is certified here."""
THROWN = 1e3
"""A loss that rises by this factor was not led anywhere by its gradient: the steps were too long."""
SEQUENCES = 256
Report = Callable[[str, Progress], None]


def train_arms(
    constructed: Bundle,
    target: Target,
    recipe: TrainingRecipe,
    dtype: str,
    *,
    continued_rate: float = CONTINUED_RATE,
    supervise: bool = False,
    report: Report | None = None,
) -> dict[str, tuple[Bundle, Trained | None]]:
    """Every arm as a bundle, with its run."""
    start = as_float(constructed.network, dtype)
    fresh = randomised(start, recipe.seed, recipe.length)
    plans: dict[str, tuple[Transformer, TrainingRecipe]] = {
        RANDOM: (fresh, recipe),
        CONTINUED: (start, replace(recipe, rate=continued_rate)),
    }
    if supervise:
        plans[SUPERVISED] = (fresh, replace(recipe, supervise=1.0))
    arms: dict[str, tuple[Bundle, Trained | None]] = {CONSTRUCTED: (constructed, None)}
    for name, (network, of_arm) in plans.items():
        begun = time.perf_counter()
        slots = slot_values(target, network) if of_arm.supervise else None
        watched = None if report is None else _named(name, report)
        trained, run = train(network, target, of_arm, slots=slots, report=watched)
        summary = {**run.summary(), "start": name, "moved": _moved(network, trained), "seconds": time.perf_counter() - begun}
        with using("scan"):  # of which cards speak
            certificate = verify_learnt(trained, target, recipe.length)
        arms[name] = (Bundle(trained, trained_card(trained, target, of_arm, summary, certificate)), run)
    return arms


def _named(name: str, report: Report) -> Callable[[Progress], None]:
    return lambda progress: report(name, progress)


def _moved(start: Transformer, end: Transformer) -> float:
    """‖θ − θ_0‖/‖θ_0‖ over all weights."""
    pairs = [
        (np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in zip(jax.tree.leaves(start), jax.tree.leaves(end), strict=True)
    ]
    return float(np.sqrt(sum(((b - a) ** 2).sum() for a, b in pairs) / sum((a**2).sum() for a, _ in pairs)))


def compared(arms: dict[str, tuple[Bundle, Trained | None]], target: Target, seed: int, signs: bool) -> dict[str, Any]:
    """The comparison of all arms, with a mechanism for every arm and a sentence."""
    networks = [(name, bundle) for name, (bundle, _) in arms.items()]
    length = derived_length(target, [bundle.network for _, bundle in networks])
    tokens = "letters" if target.alphabet is not None else "signs" if signs else "uniform"
    result = compare(networks, target, ComparisonProtocol(SEQUENCES, length, target.settled, seed, tokens))
    rows = []
    for name, (bundle, run) in arms.items():
        if run is not None:
            training = bundle.card["training"]
            rows.append({"arm": name, **{key: training[key] for key in ("steps", "first_loss", "loss", "moved")}})
            rows[-1]["highest_loss"] = float(run.history.max())
            root = next(c["sampled"]["overall"]["rms"] for c in result["networks"] if c["name"] == name)
            rows[-1]["mean_square"] = None if root is None else root**2
            rows[-1]["mechanism"] = mechanism(result, name)
    return {**result, "arms": rows, "sentence": sentence(rows)}


def mechanism(result: dict[str, Any], name: str) -> dict[str, Any]:
    """How far an arm's effective kernel is from the constructed one and from the target's, relative to the norm of the latter."""
    if result["target_kernel"] is None:
        return {"kind": "unknown", "from_constructed": None, "from_target": None}
    norm = float(np.abs(result["target_kernel"]).sum())
    distance = {frozenset((d["a"], d["b"])): d["l1"] for d in result["kernel_distances"]}
    shares = [distance.get(frozenset((other, name))) for other in (CONSTRUCTED, "target")]
    built, wanted = (None if share is None or norm == 0 else share / norm for share in shares)
    if built is not None and built <= SAME:
        kind = "the construction's"
    elif wanted is not None:
        kind = "another one" if wanted <= SAME else "none"
    else:
        kind = "unknown"
    return {"kind": kind, "from_constructed": built, "from_target": wanted}


def sentence(rows: Sequence[dict[str, Any]]) -> str:
    """What became of the mechanism."""
    answers = {
        "the construction's": "has the construction's kernel",
        "another one": "does the job with another kernel",
        "none": "has not found the target's kernel",
        "unknown": "has no kernel to compare",
    }
    left = {CONTINUED: {"none": "has left the target's kernel", "another one": "has left the construction's kernel for another"}}
    parts = []
    for row in rows:
        answer = (answers | left.get(row["arm"], {}))[row["mechanism"]["kind"]]
        thrown = row["arm"] == CONTINUED and row["mechanism"]["kind"] == "none" and row["highest_loss"] > THROWN * row["first_loss"]
        why = f", thrown off by its first steps (loss up to {row['highest_loss']:.2g}): try a smaller continued_rate" if thrown else ""
        square = "not finite" if row["mean_square"] is None else f"{row['mean_square']:.2g}"
        parts.append(f"{row['arm']} {answer} (mean square error {square}{why})")
    return "; ".join(parts) + " (sampled)"
