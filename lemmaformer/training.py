"""Training from the outside: sizes and recipe from options, a run that can be resumed, a card for what comes out."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from analyzer.errors import InputError
from analyzer.targets.decisions import decision_of
from analyzer.targets.protocol import Target
from constructions.files.places import check_place
from constructions.training import checkpoint as runs
from constructions.training import recipes
from lemmaformer.options import STRUCTURE, Recipe, Train
from lemmaformer.progress import PROGRESS, working

if TYPE_CHECKING:
    from lemmaformer.network import Network

SHORTEST = 32
"""Tokens of a training sequence, unless lags reach further back."""


def recipe_of(target: Target, options: Recipe, supervise: float = 0.0) -> recipes.TrainingRecipe:
    """The recipe of a run, checked as far as that goes without the network."""
    length = options.length
    if length is None:
        length = target.length or max(SHORTEST, 3 * target.settled)
    recipe = recipes.TrainingRecipe(
        length=length,
        first=target.settled,
        batch=options.batch,
        steps=options.steps,
        rate=options.rate,
        weight_decay=options.weight_decay,
        seed=options.seed,
        signs=options.tokens == "signs",
        supervise=supervise,
        stop=recipes.Stop(options.until, options.patience),
    )
    recipes.check_numbers(recipe)
    return recipe


def shape_of(target: Target, options: Train, length: int) -> recipes.Shape:
    """The sizes of random weights."""
    remembering = target.as_memory_target
    outputs = len(decision_of(target, 1).values) if options.classes else 1
    default = 2 * options.key_dim + 1 if remembering is None else remembering.readout.coordinates
    return recipes.Shape(
        heads=options.heads,
        width=options.width,
        layers=options.layers,
        model_dim=default if options.model_dim is None else options.model_dim,
        rpe=options.rpe,
        attention=options.attention,
        window=options.window,
        key_dim=options.key_dim,
        reach=options.reach if options.reach is not None else length if options.rpe == "table" else 0,
        readout="affine" if options.linear else "relu",
        outputs=outputs,
    )


def check_checkpoint(checkpoint: Path | None, resume: bool, out: Path | None = None) -> None:
    """Refuse a checkpoint that cannot be written, or that would be lost."""
    if checkpoint is None:
        if resume:
            raise InputError("resume needs a checkpoint, the file to go on from")
        return
    check_place(checkpoint, overwrite=True)
    if out is not None and out.resolve() in (checkpoint.resolve(), *checkpoint.resolve().parents):
        raise InputError(f"the checkpoint {str(checkpoint)[:80]} lies where the bundle goes; choose a place outside it")
    if checkpoint.exists() and not resume:
        raise InputError(f"{checkpoint} exists; resume to go on from it, or choose another checkpoint")


def trained(
    target: Target | None, options: Train, start: "Network | None", checkpoint: Path | None, resume: bool, given: set[str]
) -> "Network":
    """Train, certify, and make a card; `given` are the options that were named."""
    fixed = [name for name in STRUCTURE if start is not None and name in given]
    if fixed:
        raise InputError(f"{fixed[0]} does not go with a start: those weights have their structure")
    if target is None:
        target = None if start is None else start.target
    if target is None:
        raise InputError("there is no target to train on")
    recipe = recipe_of(target, options)
    check_checkpoint(checkpoint, resume)
    before = runs.read(checkpoint) if checkpoint is not None and checkpoint.exists() else None
    shape = shape_of(target, options, recipe.length)
    if start is None:
        recipes.check_shape(shape, target.dim)
        recipes.check_recipe(recipe, target, shape.layers, shape.heads, [shape.attention])
    return _run(target, options, recipe, shape, start, checkpoint, before)


def _run(
    target: Target,
    options: Train,
    recipe: recipes.TrainingRecipe,
    shape: recipes.Shape,
    start: "Network | None",
    checkpoint: Path | None,
    before: runs.Checkpoint | None,
) -> "Network":
    from constructions.network.recurrences import using
    from constructions.run.execute import form_of
    from constructions.training import trainable as learning
    from constructions.training.loop import Progress, resumed
    from lemmaformer.network import Network
    from verify.report.progress import training
    from verify.theorems.no_theorem import trained_card, verify_learnt

    if start is None:
        network = learning.initial(shape, target.dim, recipe.seed, recipe.length, options.dtype)
    else:
        network = learning.as_float(start.transformer, options.dtype)
    run = learning.run_of(network, target, recipe)
    saved = None if before is None else resumed(before, learning.learnt_at_start(network, recipe), run)
    begun = time.perf_counter()
    with training(not PROGRESS.get()) as report:

        def watched(state: Progress) -> None:
            if report is not None:
                report("training", state)

        store = None if checkpoint is None else lambda state: runs.write(checkpoint, state.checkpoint(run))
        found, history = learning.train(network, target, recipe, report=watched, resume=saved, store=store, devices=options.devices)
    seconds = time.perf_counter() - begun
    with working("certifying"), using("scan"):  # of which cards speak
        certificate = verify_learnt(found, target, recipe.length)
    summary = {**history.summary(), "start": "random" if start is None else "bundle", "seconds": seconds}
    card = trained_card(found, target, recipe, summary, certificate)
    return Network(found, cast("dict[str, object]", card), target, certificate if form_of(found, None) == "scan" else None)
