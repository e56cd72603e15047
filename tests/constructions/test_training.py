"""The training loop: right on a convex problem, deterministic, the same in chunks and in ensembles, and it refuses divergence."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from analyzer.errors import InputError, Refusal
from constructions.training.loop import Progress, adam, fit, fit_ensemble, minibatches

SLOPE = jnp.array([1.0, -2.0, 0.5])


def loss(parameters, batch):
    inputs, outputs = batch
    return jnp.mean((inputs @ parameters["w"] - outputs) ** 2)


def batches(key, slope=SLOPE):
    inputs = jax.random.normal(key, (32, 3))
    return inputs, inputs @ slope


def start(members=None):
    return {"w": jnp.zeros((3,) if members is None else (members, 3))}


@pytest.mark.deep
def test_a_linear_problem_is_solved_and_the_history_is_the_loss():
    trained = fit(loss, start(), batches, steps=400, optimiser=adam(0.1, 400), seed=3)
    np.testing.assert_allclose(trained.parameters["w"], SLOPE, atol=1e-4)
    assert trained.history.shape == (400,)
    first = loss(start(), batches(jax.random.fold_in(jax.random.key(3), 0)))
    assert trained.history[0] == pytest.approx(float(first), rel=1e-6)


@pytest.mark.deep
def test_chunks_do_not_matter_and_progress_is_reported():
    seen: list[Progress] = []
    optimiser = optax.sgd(0.05)
    whole = fit(loss, start(), batches, steps=25, optimiser=optimiser, seed=1, chunk=25)
    parts = fit(loss, start(), batches, steps=25, optimiser=optimiser, seed=1, chunk=10, report=seen.append)
    np.testing.assert_array_equal(whole.parameters["w"], parts.parameters["w"])
    np.testing.assert_array_equal(whole.history, parts.history)
    assert [p.step for p in seen] == [10, 20, 25] and seen[-1].seconds_left == 0 < seen[0].seconds_left
    assert float(seen[0].loss) == pytest.approx(whole.history[:10].mean(), rel=1e-6)


@pytest.mark.deep
def test_members_of_an_ensemble_are_the_single_runs_and_have_their_own_tasks():
    optimiser = optax.sgd(0.05)
    together = fit_ensemble(loss, start(2), batches, steps=30, optimiser=optimiser, seeds=[5, 6])
    for member, seed in enumerate([5, 6]):
        alone = fit(loss, start(), batches, steps=30, optimiser=optimiser, seed=seed)
        np.testing.assert_allclose(together.parameters["w"][member], alone.parameters["w"], rtol=1e-5)
    slopes = jnp.stack([SLOPE, -SLOPE])
    tasks = fit_ensemble(loss, start(2), batches, steps=300, optimiser=optimiser, seeds=[5, 5], tasks=slopes)
    np.testing.assert_allclose(tasks.parameters["w"], slopes, atol=1e-4)


@pytest.mark.deep
def test_minibatches_draw_rows():
    data = (jnp.arange(10), 2 * jnp.arange(10))
    rows, doubled = minibatches(data, 6)(jax.random.key(0))
    assert rows.shape == (6,) and bool(jnp.all(doubled == 2 * rows))


def test_divergence_and_absurd_requests_are_refused():
    with pytest.raises(Refusal, match=r"not a finite number at step \d+"):
        fit(loss, start(), batches, steps=200, optimiser=optax.sgd(100.0), seed=0)
    with pytest.raises(InputError, match="at least one step"):
        fit(loss, start(), batches, steps=0, optimiser=optax.sgd(0.1))
    with pytest.raises(InputError, match="leading axis"):
        fit_ensemble(loss, start(3), batches, steps=1, optimiser=optax.sgd(0.1), seeds=[1, 2])
