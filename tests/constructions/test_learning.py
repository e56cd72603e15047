"""Training our own networks: deterministic, resumable to the last bit, and honest about what does not move."""

import json
from dataclasses import asdict, replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from analyzer.errors import InputError, Refusal
from analyzer.targets.files import target_from_dict
from analyzer.targets.fixed import FixedMemory
from constructions.files.bundle import load, write
from constructions.files.card import read_files
from constructions.run import fast, reference
from constructions.run.reference import stream
from constructions.theorems.thm_3_1 import build
from constructions.training import checkpoint
from constructions.training.loop import fit, resumed
from constructions.training.recipes import Shape, Stop, TrainingRecipe
from constructions.training.trainable import (
    as_float,
    initial,
    learnt_at_start,
    outputs,
    randomised,
    run_of,
    sampler,
    slot_values,
    to_network,
    to_parameters,
    train,
)
from tests.conftest import random_network

TARGET = FixedMemory((1,))
SHAPE = Shape(heads=3, width=8, model_dim=3)
RECIPE = TrainingRecipe(length=16, first=4, batch=16, steps=60, rate=1e-2)


def leaves(network):
    return jax.tree.leaves(network)


def same(a, b) -> bool:
    return all(np.array_equal(x, y) for x, y in zip(leaves(a), leaves(b), strict=True))


@pytest.mark.deep
@pytest.mark.parametrize("rpe", ["lin", "log", "table"])
@pytest.mark.parametrize("window", ["infinite", "finite"])
def test_decays_survive_the_change_of_variable_and_the_pass_is_the_reference_pass(rpe, window):
    network = random_network(np.random.default_rng(0), [rpe] * 3, "dp-free", window, layers=2, dtype="float32")
    back = to_network(to_parameters(network.map(np.asarray)))
    for a, b in zip(leaves(network), leaves(back), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    tokens = np.random.default_rng(1).uniform(-1, 1, (2, 20, 2)).astype("float32")
    np.testing.assert_allclose(outputs(network, tokens, 7)[..., 0], reference.forward(network, tokens)[:, 7:], atol=1e-5)
    np.testing.assert_allclose(outputs(network, tokens, 7)[..., 0], fast.forward(network, tokens)[:, 7:], atol=1e-5)


@pytest.mark.deep(keep="log-finite")
@pytest.mark.parametrize(("rpe", "window"), [("lin", "infinite"), ("log", "infinite"), ("log", "finite")])
def test_decays_at_the_ends_of_their_range_can_be_stored(rpe, window, tmp_path):
    network = random_network(np.random.default_rng(0), [rpe] * 2, "dp-free", window, dtype="float32", bias=False)
    attention = network.layers[0].attention
    for theta in (-1e4, 1e4):
        moved = replace(attention, decay=np.full(2, theta, np.float32))
        bounded = to_network(replace(network, layers=(replace(network.layers[0], attention=moved),))).map(np.asarray)
        write(tmp_path / "net", bounded, {}, "", overwrite=True)
        assert np.isfinite(fast.forward(load(read_files(tmp_path / "net")).network, np.ones((5, 2)))).all()


@pytest.mark.deep
@pytest.mark.parametrize(
    "shape",
    [
        Shape(heads=2, width=8, model_dim=3, rpe="log"),
        Shape(heads=2, width=8, model_dim=3, rpe="table", reach=6),
        Shape(heads=2, width=8, model_dim=3, rpe="table", reach=6, attention="dp", key_dim=2, window="finite", layers=2),
        Shape(heads=2, width=8, model_dim=3, attention="tmx"),
        Shape(heads=2, width=8, model_dim=3, attention="dp", key_dim=2, window="finite"),
        Shape(heads=3, width=2, model_dim=2, readout="affine"),
    ],
)
def test_every_kind_of_network_learns_the_last_token(shape):
    start = initial(shape, 1, 0, 8)
    trained, run = train(start, TARGET, replace(RECIPE, steps=300))
    assert run.steps == 300 and run.history[-30:].mean() < 0.8 * run.history[:30].mean()
    assert trained.dtype == "float32" and jax.tree.structure(trained) == jax.tree.structure(start)
    tokens = TARGET.draw(np.random.default_rng(7), (64, 16))
    error = fast.forward(trained, tokens)[:, 4:] - TARGET.values(np)(tokens)[:, 4:]
    assert np.mean(error**2) == pytest.approx(run.history[-30:].mean(), rel=0.35)
    np.testing.assert_array_equal(trained.bias, start.bias)  # the past stays the zero sequence
    frozen = np.array_equal(trained.layers[-1].feedforward.inner, start.layers[-1].feedforward.inner)
    assert frozen == (shape.readout == "affine")


@pytest.mark.deep
def test_a_run_is_a_function_of_its_seed():
    start = initial(SHAPE, 1, 0, 8)
    first, again, other = (train(start, TARGET, replace(RECIPE, seed=seed))[0] for seed in (3, 3, 4))
    assert same(first, again) and not same(first, other)


@pytest.mark.deep
def test_an_interrupted_run_ends_in_the_same_weights(tmp_path):
    """Killed after every possible save, resumed from the file: the same bits in the end, in the weights and in the history."""
    start, place = initial(SHAPE, 1, 0, 8), tmp_path / "run.ckpt"
    run = run_of(start, TARGET, RECIPE)
    whole, whole_run = train(start, TARGET, RECIPE)
    like = learnt_at_start(start, RECIPE)
    for stop_after in (1, 7, 29):
        saves = 0

        def save(saved):
            nonlocal saves
            checkpoint.write(place, saved.checkpoint(run))
            saves += 1
            if saves == stop_after:  # noqa: B023  used in this round only
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(start, TARGET, RECIPE, store=save)
        saved = resumed(checkpoint.read(place), like, run)
        assert len(saved.history) == stop_after * saved.chunk < RECIPE.steps
        again, again_run = train(start, TARGET, RECIPE, resume=saved)
        assert same(whole, again)
        np.testing.assert_array_equal(whole_run.history, again_run.history)


@pytest.mark.deep
def test_damaged_checkpoints_are_refused_with_one_line(tmp_path):
    start, place = initial(SHAPE, 1, 0, 8), tmp_path / "run.ckpt"
    train(start, TARGET, replace(RECIPE, steps=20), store=lambda saved: checkpoint.write(place, saved.checkpoint("run")))
    like = learnt_at_start(start, RECIPE)
    good = place.read_bytes()
    assert len(resumed(checkpoint.read(place), like, "run").history) == 20
    with pytest.raises(InputError, match="another run"):
        resumed(checkpoint.read(place), like, "other")
    with pytest.raises(InputError, match="this run has shape"):
        resumed(checkpoint.read(place), learnt_at_start(initial(replace(SHAPE, heads=4), 1, 0, 8), RECIPE), "run")
    with pytest.raises(InputError, match="does not belong"):
        resumed(checkpoint.read(place), (like[0], {}), "run")
    for damaged, reason in (
        (good[: len(good) // 2], "damaged"),
        (good[:-3], "damaged"),
        (b"", "damaged"),
        (good[:-8] + bytes(8 - 4) + b"\x00\x00\x80\x3f", "integrity"),
        (good.replace(b'"version":"1"', b'"version":"9"'), "version"),
    ):
        place.write_bytes(damaged)
        with pytest.raises(InputError, match=reason) as refused:
            checkpoint.read(place)
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match="cannot read"):
        checkpoint.read(tmp_path / "nowhere")


def test_divergence_loses_only_the_chunk_in_flight(tmp_path):
    """A loss that stops being a number at step 33: what was saved before, after 32 steps, is whole and goes on."""
    place = tmp_path / "run.ckpt"

    def loss(parameters, batch):
        return jnp.where(parameters["w"] > 3.25, jnp.nan, parameters["w"])

    def falling(steps, **options):
        return fit(loss, {"w": jnp.float32(0)}, lambda key: 0, steps=steps, optimiser=optax.sgd(-0.1), chunk=4, **options)

    with pytest.raises(Refusal, match="not a finite number at step 34"):
        falling(80, store=lambda saved: checkpoint.write(place, saved.checkpoint("run")))
    start = {"w": jnp.float32(0)}
    saved = resumed(checkpoint.read(place), (start, optax.sgd(-0.1).init(start)), "run")
    assert len(saved.history) == 32 and np.isfinite(saved.history).all()
    assert falling(33, resume=saved).steps == 33


@pytest.mark.deep
def test_early_stop_looks_at_the_history_only():
    falling = np.repeat(np.geomspace(1, 1e-3, 10), 5)
    assert not Stop(patience=2).reached(falling, 5) and Stop(below=2e-3).reached(falling, 5)
    assert Stop(patience=2).reached(np.concatenate([falling, np.full(10, 1e-3)]), 5)
    assert not Stop(patience=3).reached(np.concatenate([falling, np.full(10, 1e-3)]), 5)
    recipe = replace(RECIPE, steps=400, stop=Stop(below=0.2))
    trained, run = train(initial(SHAPE, 1, 0, 8), TARGET, recipe)
    assert run.steps < 400 and run.history[-10:].mean() < 0.2 <= run.history[-20:-10].mean()
    assert same(trained, train(initial(SHAPE, 1, 0, 8), TARGET, recipe)[0])


def test_random_weights_in_the_structure_of_a_construction():
    built = build(FixedMemory((1, 2), 1, "x0 + m1*m2"), rpe="lin", dtype="float32", error=0.5).network
    fresh = randomised(built, 1, 8)
    assert [leaf.shape for leaf in leaves(fresh)] == [leaf.shape for leaf in leaves(built)]
    assert jax.tree.structure(fresh) == jax.tree.structure(built) and not same(fresh, built)
    assert not same(fresh, randomised(built, 2, 8))


@pytest.mark.deep
def test_slots_are_learnt_when_they_are_supervised():
    """The stream before the read-out is pulled to (x_t, x_{t−1}): coordinate 1 becomes the memory."""
    start = initial(Shape(heads=3, width=8, model_dim=2), 1, 0, 8)
    recipe = replace(RECIPE, steps=600, supervise=1.0)
    trained, _ = train(start, TARGET, recipe, slots=slot_values(TARGET, start))
    plain, _ = train(start, TARGET, replace(recipe, supervise=0.0))
    tokens = TARGET.draw(np.random.default_rng(5), (32, 16)).astype("float32")

    def miss(network) -> float:
        return float(np.mean((np.asarray(stream(network, tokens, 4)[0])[..., 1] - tokens[:, 3:-1, 0]) ** 2))

    assert miss(trained) < 0.1 < 3 * miss(trained) < miss(plain)


def test_what_cannot_be_trained_is_refused():
    start = initial(SHAPE, 1, 0, 8)
    for recipe, reason in (
        (replace(RECIPE, length=0), "length"),
        (replace(RECIPE, first=16), "first position"),
        (replace(RECIPE, rate=float("nan")), "rate"),
        (replace(RECIPE, batch=10**9), "attention weights"),
        (replace(RECIPE, steps=0), "at least one step"),
    ):
        with pytest.raises(InputError, match=reason):
            train(start, TARGET, recipe)
    with pytest.raises(InputError, match="dimension"):
        train(start, FixedMemory((1,), 2), RECIPE)
    for shape, reason in (
        (replace(SHAPE, heads=0), "heads"),
        (replace(SHAPE, width=10**9), "weights"),
        (replace(SHAPE, rpe="table"), "reach"),
        (replace(SHAPE, rpe="table", reach=3, attention="tmx"), "softmax"),
        (replace(SHAPE, rpe="none"), "dot products"),
        (replace(SHAPE, window="full"), "full"),
    ):
        with pytest.raises(InputError, match=reason):
            initial(shape, 1, 0, 8)
    huge = build(FixedMemory((14,)), error=1e-3).network
    with pytest.raises((InputError, Refusal)):
        as_float(huge.map(lambda leaf: leaf * 10**60), "float32")
    assert json.dumps(asdict(RECIPE))


@pytest.mark.deep(only="parity")
@pytest.mark.parametrize(
    "data",
    [
        {"kind": "parity", "longest": 8},
        {"kind": "copying", "letters": 3, "n": 2, "string": 3},
        {"kind": "in-context-gd", "features": 1, "examples": 3, "steps": 2},
        {"kind": "sequence", "formula": "x1*x2 - x3", "alphabet": [0, 1], "length": 3},
    ],
    ids=lambda data: str(data["kind"]),
)
def test_batches_hold_sequences_of_the_target_only(data: dict[str, object]) -> None:
    """Arrays of independent tokens would be none of them: a begin token, a copy, a query or positions would be missing."""
    target = target_from_dict(data, "test")
    recipe = replace(RECIPE, length=target.length or 9, first=0)
    draw = sampler(target, recipe, "float32")
    first, second = (np.asarray(draw(jax.random.key(seed))) for seed in (0, 1))
    assert first.shape == (RECIPE.batch, recipe.length, target.dim) and (first != second).any()
    for batch in (first, second):
        target.check_tokens(batch, "a batch")
    broken = first.copy()
    broken[0, 0] = 1 / 3
    with pytest.raises(InputError):
        target.check_tokens(broken, "a batch")
