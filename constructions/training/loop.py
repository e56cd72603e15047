"""Training by stochastic gradients: one loop for every experiment.

A run is a loss ℓ(θ, batch), a source of batches (a random key gives one) and an optimiser of optax. Step n draws its batch with the n-th
key of the run's seed, so a run is a function of (θ_0, seed): the same numbers on the same machine, whatever the chunks. Steps run in
chunks inside one loop of XLA; Python is back only between chunks, to look at the losses, to report progress, to stop early and to save:
what was saved after n steps goes on to the same numbers as a run that was never interrupted. A loss that is not finite ends the run
before its chunk is saved.

An ensemble is several runs at once, `vmap`ped: the leaves of θ_0 (and of the tasks, if runs differ in their data) carry a leading axis. The
members do not interact: each is the run it would be alone, up to the rounding of batched operations. What is trained has the type of
its leaves, float32 unless the caller works inside `precision.with_x64`.

On D devices every one has θ and the D-th part of each batch; the mean over the batch becomes a mean of means, and so do gradients. Keys and
batches are the same as on one device, so the numbers are too, but for the order of these sums.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from analyzer.errors import InputError, Refusal
from constructions.run.sharded import AXIS, mesh_of
from constructions.training.checkpoint import Checkpoint
from constructions.training.recipes import Stop

Pytree = Any
Loss = Callable[[Pytree, Pytree], jax.Array]
Batches = Callable[..., Pytree]

CHUNKS = 40
"""Reports per run unless the caller says otherwise: often enough to watch, rare enough to cost nothing."""


@dataclass(frozen=True)
class Progress:
    """Where a run is. `loss`: mean over the last chunk, one number per member; `seconds`: since the first step was started."""

    step: int
    steps: int
    loss: np.ndarray
    seconds: float
    seconds_left: float


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Trained:
    """`history`: the loss of every step, before it was taken; shape (steps,), for ensembles (members, steps)."""

    parameters: Pytree
    history: np.ndarray

    @property
    def steps(self) -> int:
        """Steps that were taken: fewer than asked for if the run stopped early."""
        return int(self.history.shape[-1])

    def summary(self) -> dict[str, Any]:
        """Of a single run: steps taken, the first loss, and the mean over the last fortieth."""
        last = self.history[-max(1, self.steps // CHUNKS) :]
        return {"steps": self.steps, "first_loss": float(self.history[0]), "loss": float(last.mean())}


@dataclass(frozen=True)
class Saved:
    """A run after some steps: (parameters, memory of the optimiser) and the losses so far; `chunk`: the steps between two looks."""

    learnt: tuple[Pytree, Pytree]
    history: np.ndarray
    chunk: int

    def checkpoint(self, run: str) -> Checkpoint:
        """The run as arrays."""
        arrays = {"history": np.asarray(self.history)}
        for part, tree in zip(PARTS, self.learnt, strict=True):
            arrays |= {f"{part}.{place:05}": np.asarray(leaf) for place, leaf in enumerate(jax.tree.leaves(tree))}
        return Checkpoint(arrays, self.chunk, run)


PARTS = ("parameters", "memory")


def resumed(checkpoint: Checkpoint, like: tuple[Pytree, Pytree], run: str) -> Saved:
    """A saved run, if it is this one: `like` is what its (parameters, memory) look like, `run` the fingerprint that it must have."""
    if checkpoint.run != run:
        raise InputError("the checkpoint belongs to another run: its start, target or recipe differ from what is asked for now")
    left, learnt = dict(checkpoint.arrays), []
    for part, tree in zip(PARTS, like, strict=True):
        leaves, structure = jax.tree.flatten(tree)
        found = [left.pop(f"{part}.{place:05}", None) for place in range(len(leaves))]
        for place, (array, leaf) in enumerate(zip(found, leaves, strict=True)):
            if array is None or array.shape != leaf.shape or array.dtype != leaf.dtype:
                held = "nothing" if array is None else f"shape {array.shape}, type {array.dtype}"
                raise InputError(f"the checkpoint has {held} for {part} {place}; this run has shape {leaf.shape}, type {leaf.dtype}")
        learnt.append(jax.tree.unflatten(structure, [jnp.asarray(array) for array in found]))
    history = left.pop("history")
    if left:
        raise InputError(f"the checkpoint holds {sorted(left)[0]!r}, which does not belong to this run")
    return Saved((learnt[0], learnt[1]), history, checkpoint.chunk)


def warm_cosine(peak: float, steps: int, *, warmup: float = 0.05, final: float = 1e-3) -> optax.Schedule:
    """A rate that rises linearly to `peak` over the share `warmup` of the steps, then follows a cosine down to `final`·peak."""
    rising = max(1, round(warmup * steps))
    if steps <= rising:
        return optax.schedules.constant_schedule(peak)
    return optax.schedules.warmup_cosine_decay_schedule(0.0, peak, rising, steps, end_value=final * peak)


def adam(peak: float, steps: int, *, warmup: float = 0.05, final: float = 1e-3) -> optax.GradientTransformation:
    """Adam at the rate of `warm_cosine`."""
    return optax.adam(warm_cosine(peak, steps, warmup=warmup, final=final))


def minibatches(data: Pytree, size: int) -> Batches:
    """Batches of `size` rows drawn with replacement from a fixed data set (leaves share their first axis)."""
    rows = jax.tree.leaves(data)[0].shape[0]

    def draw(key: jax.Array) -> Pytree:
        chosen = jax.random.randint(key, (size,), 0, rows)
        return jax.tree.map(lambda leaf: leaf[chosen], data)

    return draw


# Many parameters: a run is a loss, a start and batches; the others are keywords that most runs leave out.
def fit(
    loss: Loss,
    parameters: Pytree,
    batches: Batches,
    *,
    steps: int,
    optimiser: optax.GradientTransformation,
    seed: int = 0,
    chunk: int | None = None,
    report: Report | None = None,
    resume: Saved | None = None,
    store: Callable[[Saved], None] | None = None,
    stop: Stop | None = None,
    devices: int = 1,
) -> Trained:
    """One run: `steps` updates of `parameters` on loss(parameters, batches(key)), or what is left of them after `resume`.

    `store` is given the run after every chunk; `devices` share the rows of every batch.
    """
    learnt = (parameters, optimiser.init(parameters))
    if resume is not None:
        learnt, chunk = resume.learnt, resume.chunk
    mesh = shared_by(devices, lambda: batches(jax.random.key(seed)))
    state = _everywhere(State(learnt, jax.random.key(seed), ()), mesh)
    hooks = Hooks(report, store, stop, np.zeros(0, np.float32) if resume is None else resume.history)
    return _run(partial(_advance, BatchRule(loss, batches, optimiser.update, mesh)), state, steps, chunk, hooks)


# Many parameters: as `fit`, one seed and one task per member.
def fit_ensemble(
    loss: Loss,
    parameters: Pytree,
    batches: Batches,
    *,
    steps: int,
    optimiser: optax.GradientTransformation,
    seeds: Sequence[int],
    tasks: Pytree | None = None,
    chunk: int | None = None,
    report: Report | None = None,
    devices: int = 1,
) -> Trained:
    """One run per seed, all at once; leaves are stacked. With `tasks`, stacked too, member i draws batches(key, tasks[i])."""
    leading = {leaf.shape[:1] for leaf in jax.tree.leaves((parameters, tasks))}
    if leading != {(len(seeds),)}:
        raise InputError(f"an ensemble of {len(seeds)} seeds needs leaves with that leading axis, found {sorted(leading)}")
    keys = jnp.stack([jax.random.key(seed) for seed in seeds])
    own = () if tasks is None else (tasks,)
    mesh = shared_by(devices, lambda: batches(keys[0], *jax.tree.map(lambda leaf: leaf[0], own)))
    state = _everywhere(State((parameters, jax.vmap(optimiser.init)(parameters)), keys, own), mesh)
    return _run(partial(_advance_all, BatchRule(loss, batches, optimiser.update, mesh)), state, steps, chunk, Hooks(report))


def shared_by(devices: int, batch: Callable[[], Pytree]) -> Mesh | None:
    """The devices that share batches like this one, in a row; None for one device."""
    if devices == 1:
        return None
    mesh, rows = mesh_of(devices), {leaf.shape[0] if leaf.ndim else 1 for leaf in jax.tree.leaves(jax.eval_shape(batch))}
    uneven = sorted(count for count in rows if count % devices)
    if uneven:
        raise InputError(f"a batch of {uneven[0]} cannot be shared evenly by {devices} devices")
    return mesh


def _everywhere(tree: Pytree, mesh: Mesh | None) -> Pytree:
    """Arrays that every device has."""
    return tree if mesh is None else jax.device_put(tree, NamedSharding(mesh, PartitionSpec()))


class BatchRule(NamedTuple):
    """What is compiled: how a batch is drawn, judged and answered."""

    loss: Loss
    batches: Batches
    update: Callable[..., Any]
    mesh: Mesh | None


class State(NamedTuple):
    """What a run carries: (parameters, memory of the optimiser), its key, and its task if it has one."""

    learnt: tuple[Pytree, Pytree]
    key: jax.Array
    task: tuple[Pytree, ...]


class Hooks(NamedTuple):
    """What happens between chunks, and the losses of the steps that were taken before."""

    report: Report | None = None
    store: Callable[[Saved], None] | None = None
    stop: Stop | None = None
    history: np.ndarray | None = None


def _run(
    advance: Callable[[int, State, jax.Array, jax.Array], tuple[State, jax.Array]],
    state: State,
    steps: int,
    chunk: int | None,
    hooks: Hooks,
) -> Trained:
    if steps < 1 or (chunk is not None and chunk < 1):
        raise InputError(f"training needs at least one step per chunk, got {steps} steps in chunks of {chunk}")
    length = min(steps, chunk or -(-steps // CHUNKS))
    started = time.monotonic()
    losses = [] if hooks.history is None or not hooks.history.size else [hooks.history]
    begun = sum(part.shape[-1] for part in losses)
    if begun > steps or (begun % length and begun < steps):
        raise InputError(f"the saved run has taken {begun} steps, which do not fit into {steps} in chunks of {length}")
    for first in range(begun, steps, length):
        if hooks.stop is not None and losses and hooks.stop.reached(np.concatenate(losses, axis=-1), length):
            break
        done = min(first + length, steps)
        state, values = advance(length, state, jnp.int32(first), jnp.int32(done))
        losses.append(np.asarray(values)[..., : done - first])
        _refuse_divergence(losses[-1], first)
        if hooks.store is not None:
            hooks.store(Saved(state.learnt, np.concatenate(losses, axis=-1), length))
        if hooks.report is not None:
            seconds = time.monotonic() - started
            left = seconds / (done - begun) * (steps - done)
            hooks.report(Progress(done, steps, losses[-1].mean(axis=-1), seconds, left))
    return Trained(state.learnt[0], np.concatenate(losses, axis=-1))


def _refuse_divergence(losses: np.ndarray, first: int) -> None:
    broken = np.nonzero(~np.isfinite(losses).reshape(-1, losses.shape[-1]).all(axis=0))[0]
    if broken.size:
        step = first + int(broken[0]) + 1
        raise Refusal(f"training diverged: the loss is not a finite number at step {step}; a smaller learning rate may help")


def _steps(rule: BatchRule, length: int, state: State, first: jax.Array, done: jax.Array) -> tuple[State, jax.Array]:
    """The steps from `first` to `done`, at most `length`: how many is no part of the program, so the last chunk compiles nothing."""

    def step(index: jax.Array, carried: tuple[tuple[Pytree, Pytree], jax.Array]) -> tuple[tuple[Pytree, Pytree], jax.Array]:
        (parameters, memory), losses = carried
        batch = rule.batches(jax.random.fold_in(state.key, index), *state.task)
        if rule.mesh is not None:
            batch = jax.lax.with_sharding_constraint(batch, NamedSharding(rule.mesh, PartitionSpec(AXIS)))
        value, gradient = jax.value_and_grad(rule.loss)(parameters, batch)
        updates, memory = rule.update(gradient, memory, parameters)
        return (optax.apply_updates(parameters, updates), memory), losses.at[index - first].set(value)

    kind = jax.eval_shape(lambda: rule.loss(state.learnt[0], rule.batches(state.key, *state.task))).dtype
    learnt, losses = jax.lax.fori_loop(first, done, step, (state.learnt, jnp.zeros(length, kind)))
    return state._replace(learnt=learnt), losses


@partial(jax.jit, static_argnums=(0, 1))
def _advance(rule: BatchRule, length: int, state: State, first: jax.Array, done: jax.Array) -> tuple[State, jax.Array]:
    return _steps(rule, length, state, first, done)


@partial(jax.jit, static_argnums=(0, 1))
def _advance_all(rule: BatchRule, length: int, states: State, first: jax.Array, done: jax.Array) -> tuple[State, jax.Array]:
    return jax.vmap(lambda state: _steps(rule, length, state, first, done))(states)
