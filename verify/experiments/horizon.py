"""Is the horizon of lags real for trained networks? y_t = x_{t−T}, T = 1, 2, …, float32, against what is certified for every network.

One dp-free layer. The network is linear (the read-out is u_0), so for independent tokens of variance v its mean square error is
v‖κ − 1_T‖₂², κ its kernel. That population loss ("square") or ‖κ − 1_T‖₁, the worst case itself ("worst"), cut off after `WINDOW`
places, is minimised by Adam in float32: no batch, no noise. Runs differ in heads (T − 1, T, 2T + 2), loss, rate and seed; further runs
start at a bank that is nearly the best for float32 (`verify.limits.pairs.lag_limit`) and go on at a small rate. What is judged is the
stored float32 network: its worst-case error e = ‖κ − 1_T‖₁ (`verify.experiments.layer_bounds`).

Two lower bounds hold for that layer, whatever training did: (i) by its heads, (ii) by the size of its weights (`layer_bounds`). Its mean
square error for tokens of variance 1, ‖κ − 1_T‖₂², has a floor of its own: the optimum over all decays (`verify.limits.mean_square`), for
several linear layers with all their heads.

Several layers. *linear*: attention and residual only; κ is a product of rational functions with L·H poles in all, so e ≥ 1 if L·H ≤ T − 1
(the Hankel argument of the lag law); (ii) does not apply. *relu*: feed-forward networks between the layers, trained on fresh uniform
tokens; their errors are sampled, the largest one seen is a lower bound of the worst case and nothing more.

A layer *learns* a lag if e < 1/2, the error at which a horizon ends (sampled error for relu).
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flint import arb

from analyzer.errors import LemmaformerError, Refusal
from analyzer.limits.budgeted_error import PricedBank
from analyzer.numbers.exact import nearest
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer
from constructions.run import reference
from constructions.training import trainable as learning
from constructions.training.loop import Progress, fit_ensemble
from constructions.training.recipes import Shape, TrainingRecipe
from verify.experiments import check_lags, layer_bounds
from verify.experiments.layer_bounds import DECAY_BITS, UNIT_32, Measured
from verify.limits import pairs as limits
from verify.limits.mean_square import lag_floor

ID = "horizon"
WINDOW = 128
"""Places of the kernel in the loss: ten times the longest default lag."""
PLANS = (("square", 1e-1), ("square", 1e-2), ("worst", 1e-1))
"""Loss and rate; smaller rates were further from the end after the same steps."""
KEEPING = 1e-6
"""Rate of the runs that start at the best bank. Weights of 1e5 have a spacing of 0.008 in float32, so what moves are decays, W_V and W_E;
ten times this rate took lag 4 from 0.07 to 0.23 and lag 5 from 0.35 to 0.99 in 3000 steps."""
DEPTHS = (2, 3, 4)
DEEP_PLANS = (("square", 3e-2),)
DEEP_SEEDS = 1
"""Deep networks cost many times a layer; one run each."""
TABLE_HEADS = 2
RELU_DEPTHS, RELU_HEADS, RELU_DIM, RELU_WIDTH, RELU_RATE, RELU_BATCH = (2, 4), 4, 8, 16, 1e-2, 16
TESTED = 1024
"""Fresh sequences that the errors of relu networks are sampled on."""
LEARNT = 0.5

Report = Callable[[str, Progress], None]


@dataclass(frozen=True)
class HorizonProtocol:
    """Lags 1..most, runs per row and rate, steps of a run."""

    most: int = 12
    seeds: int = 2
    steps: int = 2000


def head_kernels(attention: Attention, length: int) -> jax.Array:
    """k_h(s) of dp-free heads, normalised over the infinite past, s < length: (H, length)."""
    mass = reference.log_past_mass(attention, jnp.full((1,), -1.0, attention.decay.dtype))
    if attention.table is not None:
        reach = attention.table.shape[1]
        return jnp.exp(jnp.pad(attention.table, ((0, 0), (0, max(0, length - reach))), constant_values=-jnp.inf)[:, :length] - mass)
    p, s = attention.decay[:, None], jnp.arange(length, dtype=attention.decay.dtype)
    if attention.rpe[0] == "lin":
        return jnp.exp(-p * s - mass)
    return jnp.where(s >= 1, jnp.exp(-p * jnp.log(jnp.maximum(s, 1)) - mass), 0)


def response(network: Transformer, length: int) -> jax.Array:
    """κ(0..length−1) of a network of attention layers alone: what the tokens 1, 0, 0, … give at u_0.

    Layer 1 sees an impulse, which its kernels answer; the others convolve, by FFT.
    """
    stream = jnp.zeros((length, network.embedding.shape[0]), network.embedding.dtype).at[0].set(network.embedding[:, 0])
    for index, layer in enumerate(network.layers):
        attention = layer.attention
        kernels = head_kernels(attention, length)
        if index == 0:
            read = jnp.einsum("hvd,d->hv", attention.value, network.embedding[:, 0], precision=reference.HIGHEST)
            mixed = kernels[:, :, None] * read[:, None, :]
        else:
            values = jnp.einsum("hvd,sd->hsv", attention.value, stream, precision=reference.HIGHEST)
            product = jnp.fft.rfft(kernels, 2 * length, axis=1)[:, :, None] * jnp.fft.rfft(values, 2 * length, axis=1)
            mixed = jnp.fft.irfft(product, 2 * length, axis=1)[:, :length]
        stream = stream + jnp.einsum("hdv,hsv->sd", attention.output, mixed, precision=reference.HIGHEST)
    return stream[:, 0]


def square(parameters: Transformer, goal: jax.Array) -> jax.Array:
    """‖κ − 1_T‖₂² on the window: the mean square error for tokens of variance 1."""
    return jnp.sum((response(learning.to_network(parameters), goal.shape[-1]) - goal) ** 2)


def worst(parameters: Transformer, goal: jax.Array) -> jax.Array:
    """‖κ − 1_T‖₁ on the window."""
    return jnp.sum(jnp.abs(response(learning.to_network(parameters), goal.shape[-1]) - goal))


LOSSES = {"square": square, "worst": worst}


def random_start(rpe: str, heads: int, padded: int, seed: int, longest: int, layers: int = 1, reach: int = 0) -> Transformer:
    """Random weights of `padded` heads a layer, all but `heads` of which are silent; between layers nothing.

    A silent head has W_V = W_O = 0: the derivative of either has the other as a factor, so it stays silent.
    """
    shape = Shape(heads=heads, layers=layers, model_dim=layers + 1, rpe=rpe, reach=reach, readout="affine", width=1)
    network = learning.initial(shape, 1, seed, longest)
    nothing = FeedForward(np.zeros((1, layers + 1), np.float32), np.zeros(1, np.float32), np.zeros((layers + 1, 1), np.float32))
    stack = [
        Layer(_padded(layer.attention, padded), layer.feedforward if index == layers - 1 else nothing)
        for index, layer in enumerate(network.layers)
    ]
    return replace(network, layers=tuple(stack))


def _padded(attention: Attention, heads: int) -> Attention:
    more = heads - len(attention.rpe)

    def pad(leaf: np.ndarray, mode: Any = "constant") -> np.ndarray:
        return np.pad(leaf, ((0, more), *((0, 0),) * (leaf.ndim - 1)), mode=mode)

    parts: dict[str, Any] = {name: pad(getattr(attention, name)) for name in ("value", "output", "query", "key")}
    table = None if attention.table is None else pad(attention.table)
    return replace(attention, decay=pad(attention.decay, "edge"), rpe=attention.rpe[:1] * heads, table=table, **parts)


def without_silent_heads(network: Transformer) -> Transformer:
    """The same network with its silent heads left out."""
    layers = []
    for layer in network.layers:
        attention = layer.attention
        kept = [h for h in range(len(attention.rpe)) if np.any(attention.value[h]) or np.any(attention.output[h])]
        parts: dict[str, Any] = {name: np.asarray(getattr(attention, name))[kept] for name in ("decay", "value", "output", "query", "key")}
        table = None if attention.table is None else np.asarray(attention.table)[kept]
        layers.append(replace(layer, attention=replace(attention, rpe=attention.rpe[:1] * len(kept), table=table, **parts)))
    return replace(network, layers=tuple(layers))


def bank_network(bank: PricedBank, padded: int = 0) -> Transformer:
    """A bank stored in float32: U_0 = c x + Σ a_h (k_h * x), the heads read U_1 = x; the read-out is U_0."""
    count = len(bank.heads)
    value, output = np.zeros((count, 1, 2), np.float32), np.zeros((count, 2, 1), np.float32)
    value[:, 0, 1] = 1
    output[:, 0, 0] = [float(arb(a)) for a in bank.weights]
    decay = np.array([float(arb(p)) for _, p in bank.heads], np.float32)
    none = np.zeros((count, 0, 2), np.float32)
    attention = Attention(decay, value, output, none, none, np.zeros((0, 2), np.float32), tuple(rpe for rpe, _ in bank.heads))
    embedding = np.array([[float(arb(bank.residual))], [1]], np.float32)
    layer = Layer(_padded(attention, max(padded, count)), learning.affine_readout(2, "float32"))
    return Transformer(embedding, np.zeros(2, np.float32), (layer,))


@dataclass(frozen=True)
class Run:
    """One trained network: e ≤ `error`, what it cannot fall below, the size of its weights, and how it was trained.

    `sampled`: e was only sampled; `before`: the error at the start, for runs that started at a constructed bank; `square`: the mean square
    error, beside its `floor`.
    """

    kind: str
    rpe: str
    lag: int
    layers: int
    heads: int
    loss: str
    rate: float
    seed: int
    error: float
    least: float
    bound: float | None
    weights: float | None
    rounding: float | None = None
    sampled: bool = False
    before: float | None = None
    square: float | None = None
    floor: float | None = None

    @property
    def beats_its_bound(self) -> bool:
        """Whether the error, or the mean square error, is certainly below its lower bound: then the bound is wrong."""
        return (self.bound is not None and not self.error >= self.bound) or self.beats_its_floor

    @property
    def beats_its_floor(self) -> bool:
        """Whether the mean square error is certainly below its floor."""
        return self.square is not None and self.floor is not None and self.square < self.floor


@dataclass(frozen=True)
class HorizonCell:
    """What one member of an ensemble is to learn."""

    lag: int
    heads: int
    seed: int


def trained(
    starts: Sequence[Transformer],
    lags: Sequence[int],
    loss: str,
    rate: float,
    steps: int,
    report: Callable[[Progress], None] | None = None,
) -> list[Transformer]:
    """Linear networks of one form, each trained on the kernel of its own lag, all at once."""
    goals = jnp.stack([jax.nn.one_hot(lag, WINDOW) for lag in lags])
    found = fit_ensemble(
        LOSSES[loss],
        learning.to_parameters(jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)),
        lambda _, goal: goal,
        steps=steps,
        optimiser=learning.optimiser(starts[0], TrainingRecipe(length=WINDOW, steps=steps, rate=rate)),
        seeds=range(len(starts)),
        tasks=goals,
        report=report,
    )
    networks = jax.tree.map(np.asarray, learning.to_network(found.parameters))
    return [without_silent_heads(jax.tree.map(itemgetter(k), networks)) for k in range(len(starts))]


def judged(network: Transformer, lag: int, cell: HorizonCell, kind: str, loss: str, rate: float, before: float | None = None) -> Run:
    """A one-layer network beside its lower bounds; a head that training made so slow that it has no finite sum has no finite error."""
    rpe = network.layers[0].attention.rpe[0]
    try:
        found = layer_bounds.measured(network, lag)
    except LemmaformerError:
        return Run(kind, rpe, lag, 1, cell.heads, loss, rate, cell.seed, float("inf"), 0.0, None, None, before=before)
    bound = None if found.weights is None else layer_bounds.layer_bound(rpe, len(network.layers[0].attention.rpe), lag, found.weights)
    numbers = (found.most, found.least, bound, found.weights, layer_bounds.rounding_of(network))
    floor = None if found.square is None else lag_floor(lag, len(network.layers[0].attention.rpe), rpe)  # type: ignore[arg-type]
    return Run(kind, rpe, lag, 1, cell.heads, loss, rate, cell.seed, *numbers, before=before, square=found.square, floor=floor)


def one_layer(rpe: str, protocol: HorizonProtocol, report: Report | None = None) -> list[Run]:
    """Every lag with too few, just enough and plenty of heads, from random weights."""
    cells = [
        HorizonCell(lag, heads, seed)
        for lag in range(1, protocol.most + 1)
        for heads in sorted({lag - 1, lag, 2 * lag + 2} - {0})
        for seed in range(protocol.seeds)
    ]
    padded, runs = 2 * protocol.most + 2, []
    for loss, rate in PLANS:
        starts = [random_start(rpe, cell.heads, padded, cell.seed, cell.lag) for cell in cells]
        told = None if report is None else partial(report, f"{rpe}, one layer, {loss} at {rate:g}")
        networks = trained(starts, [cell.lag for cell in cells], loss, rate, protocol.steps, told)
        runs += [judged(network, cell.lag, cell, "random start", loss, rate) for network, cell in zip(networks, cells, strict=True)]
    return runs


def kept(rpe: str, protocol: HorizonProtocol, report: Report | None = None) -> list[Run]:
    """Lags within the horizon, from a bank that is nearly the best for float32: does training keep it?"""
    banks = {}
    for lag in range(1, protocol.most + 1):
        bank = limits.lag_limit(rpe, lag, UNIT_32, DECAY_BITS, heads=2 * lag + 2).bank  # type: ignore[arg-type]
        if not bank.heads:
            break
        banks[lag] = bank_network(bank, 2 * protocol.most + 2)
    if not banks:
        return []
    told = None if report is None else partial(report, f"{rpe}, from the best bank")
    networks = trained(list(banks.values()), list(banks), "square", KEEPING, protocol.steps, told)
    runs = []
    for (lag, start), network in zip(banks.items(), networks, strict=True):
        before = without_silent_heads(start)
        cell = HorizonCell(lag, len(before.layers[0].attention.rpe), 0)
        runs.append(judged(before, lag, cell, "best bank", "-", 0.0))
        runs.append(judged(network, lag, cell, "best bank, trained on", "square", KEEPING, before=runs[-1].error))
    return runs


def tables(protocol: HorizonProtocol, report: Report | None = None) -> list[Run]:
    """A learnt bias per distance: two heads, distances up to twice the longest lag."""
    cells = [HorizonCell(lag, TABLE_HEADS, seed) for lag in range(1, protocol.most + 1) for seed in range(protocol.seeds)]
    starts = [random_start("table", TABLE_HEADS, TABLE_HEADS, c.seed, c.lag, reach=2 * protocol.most + 2) for c in cells]
    loss, rate = PLANS[0]
    told = None if report is None else partial(report, "a bias per distance")
    networks = trained(starts, [cell.lag for cell in cells], loss, rate, protocol.steps, told)
    return [judged(network, cell.lag, cell, "random start", loss, rate) for network, cell in zip(networks, cells, strict=True)]


def deep_linear(layers: int, protocol: HorizonProtocol, report: Report | None = None) -> list[Run]:
    """L lin layers with nothing between them: fewer heads in all than the lag, and twice the lag at least."""
    cells = [
        HorizonCell(lag, heads, seed)
        for lag in range(1, protocol.most + 1)
        for heads in sorted({-(-lag // layers) - 1, 2 * -(-lag // layers)} - {0})
        for seed in range(DEEP_SEEDS)
    ]
    padded, runs = 2 * -(-protocol.most // layers), []
    for loss, rate in DEEP_PLANS:
        starts = [random_start("lin", cell.heads, padded, cell.seed, cell.lag, layers) for cell in cells]
        told = None if report is None else partial(report, f"{layers} linear layers at {rate:g}")
        networks = trained(starts, [cell.lag for cell in cells], loss, rate, protocol.steps, told)
        for network, cell in zip(networks, cells, strict=True):
            try:
                found = layer_bounds.measured_deep(network, cell.lag)
            except Refusal:
                found = Measured(0.0, float("inf"), None)
            bound = 1.0 if layers * cell.heads <= cell.lag - 1 else None
            entry = (cell.lag, layers, cell.heads, loss, rate, cell.seed, found.most, found.least, bound, None)
            floor = None if found.square is None else lag_floor(cell.lag, layers * cell.heads, "lin")
            runs.append(Run("linear layers", "lin", *entry, square=found.square, floor=floor))
    return runs


def relu_batch(length: int, key: jax.Array, lag: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Uniform tokens and what is wanted of them; the first `lag` positions of the latter are not what the target says."""
    tokens = jax.random.uniform(key, (RELU_BATCH, length, 1), minval=-1, maxval=1)
    return tokens, jnp.roll(tokens[..., 0], lag, axis=1)


def relu_loss(first: int, parameters: Transformer, batch: tuple[jax.Array, jax.Array]) -> jax.Array:
    """Mean square error over the variance 1/3 of the tokens, at the positions from `first` on."""
    tokens, wanted = batch
    return 3 * jnp.mean((learning.outputs(learning.to_network(parameters), tokens, first)[..., 0] - wanted[:, first:]) ** 2)


def deep_relu(layers: int, protocol: HorizonProtocol, report: Report | None = None) -> list[Run]:
    """L lin layers with trained feed-forward networks between them and a relu read-out, lags up to 2L: sampled errors."""
    most = min(protocol.most, 2 * layers)
    cells = [HorizonCell(lag, RELU_HEADS, seed) for lag in range(1, most + 1) for seed in range(DEEP_SEEDS)]
    shape = Shape(heads=RELU_HEADS, width=RELU_WIDTH, layers=layers, model_dim=RELU_DIM)
    starts = [learning.initial(shape, 1, cell.seed, cell.lag) for cell in cells]
    length = 2 * most + 8
    found = fit_ensemble(
        partial(relu_loss, most),
        learning.to_parameters(jax.tree.map(lambda *leaves: jnp.stack(leaves), *starts)),
        partial(relu_batch, length),
        steps=protocol.steps,
        optimiser=learning.optimiser(starts[0], TrainingRecipe(length=length, steps=protocol.steps, rate=RELU_RATE)),
        seeds=[cell.seed for cell in cells],
        tasks=jnp.array([cell.lag for cell in cells]),
        report=None if report is None else partial(report, f"{layers} layers with relu"),
    )
    errors = _sampled(learning.to_network(found.parameters), [cell.lag for cell in cells], length, most)
    runs = []
    for cell, error in zip(cells, errors, strict=True):
        entry = (cell.lag, layers, cell.heads, "square", RELU_RATE, cell.seed, error, error, None, None)
        runs.append(Run("relu layers", "lin", *entry, sampled=True))
    return runs


def _sampled(networks: Transformer, lags: Sequence[int], length: int, first: int) -> list[float]:
    """The largest error on fresh uniform tokens, one number per member of a stack."""
    tokens = jax.random.uniform(jax.random.key(len(lags)), (TESTED, length, 1), minval=-1, maxval=1)
    run = jax.jit(lambda network: learning.outputs(network, tokens, first)[..., 0])
    result = []
    for k, lag in enumerate(lags):
        off = run(jax.tree.map(itemgetter(k), networks)) - jnp.roll(tokens[..., 0], lag, axis=1)[:, first:]
        result.append(float(jnp.max(jnp.abs(off))))
    return result


def run(protocol: HorizonProtocol, report: Report | None = None) -> dict[str, Any]:
    """The experiment as data."""
    check_lags(protocol.most)
    start = time.perf_counter()
    runs: list[Run] = []
    for rpe in ("lin", "log"):
        runs += one_layer(rpe, protocol, report) + kept(rpe, protocol, report)
    runs += tables(protocol, report)
    for layers in DEPTHS:
        runs += deep_linear(layers, protocol, report)
    for layers in RELU_DEPTHS:
        runs += deep_relu(layers, protocol, report)
    return conclude(runs, protocol) | {"seconds": time.perf_counter() - start}


def conclude(runs: Sequence[Run], protocol: HorizonProtocol) -> dict[str, Any]:
    """Runs beside E_u, and what they say."""
    limit = {rpe: [layer_bounds.float32_limit(rpe, lag) for lag in range(1, protocol.most + 1)] for rpe in ("lin", "log")}
    horizons = {rpe: horizon_of(limit[rpe]) for rpe in limit}
    return {
        "experiment": ID,
        "lags": protocol.most,
        "seeds": protocol.seeds,
        "steps": protocol.steps,
        "limits": limit,
        "horizons": horizons,
        "rows": summary(runs, limit, protocol.most),
        "runs": [describe(found) for found in runs],
        "violations": sum(found.beats_its_bound for found in runs),
        "findings": findings(runs, limit, horizons, protocol.most),
        "note": "errors are certified from the stored weights, without the rounding of evaluation (those of relu layers are sampled); "
        "E_u counts the price u Σ|a| of storing weights, too, so a bank's own error can be below it",
    }


def horizon_of(rows: Sequence[dict[str, float]]) -> int:
    """The largest of these lags with E_u < 1/2 (lin: E_u grows with the lag; log: as far as the rows go)."""
    return max((int(row["lag"]) for row in rows if row["upper"] < LEARNT), default=0)


def describe(found: Run) -> dict[str, Any]:
    """A run as plain data."""
    return {
        "kind": found.kind,
        "rpe": found.rpe,
        "lag": found.lag,
        "layers": found.layers,
        "heads": found.heads,
        "loss": found.loss,
        "rate": found.rate,
        "seed": found.seed,
        "error": found.error if np.isfinite(found.error) else None,
        "error_at_least": found.least,
        "bound": found.bound,
        "weights_l1": found.weights,
        "rounding": found.rounding,
        "sampled": found.sampled,
        "error_before": found.before,
        "mean_square": found.square,
        "mean_square_floor": found.floor,
    }


def best(runs: Iterable[Run]) -> Run | None:
    """The run with the smallest error."""
    return min(runs, key=lambda found: found.error, default=None)


def summary(runs: Sequence[Run], limit: dict[str, list[dict[str, float]]], most: int) -> list[dict[str, Any]]:
    """One row per type and lag: E_u beside the best layers with too few heads, with enough, and from the best bank."""
    rows = []
    for rpe in limit:
        for lag in range(1, most + 1):
            here = [found for found in runs if (found.rpe, found.lag, found.layers) == (rpe, lag, 1)]
            few = best(found for found in here if found.kind == "random start" and found.heads < lag)
            enough = best(found for found in here if found.kind == "random start" and found.heads >= lag)
            built, after = (best(found for found in here if found.kind == kind) for kind in ("best bank", "best bank, trained on"))
            square = min((f for f in here if f.heads < lag and f.square is not None), key=lambda f: f.square or 0.0, default=None)
            parts = {"few_heads": few, "few_heads_square": square, "enough_heads": enough, "best_bank": built, "trained_on": after}
            rows.append(
                {"rpe": rpe, **limit[rpe][lag - 1]} | {name: None if found is None else describe(found) for name, found in parts.items()}
            )
    return rows


def learnt(runs: Iterable[Run]) -> list[int]:
    """Lags at which some run has an error below 1/2."""
    return sorted({found.lag for found in runs if found.error < LEARNT})


def findings(runs: Sequence[Run], limit: dict[str, list[dict[str, float]]], horizons: dict[str, int], most: int) -> list[str]:
    """The answers, from the numbers at hand."""
    slopes = [found for found in runs if found.layers == 1 and found.rpe in limit]
    bounded = [found for found in runs if found.bound is not None]
    wrong = [found for found in bounded if found.beats_its_bound]
    few = best(found for found in slopes if found.heads < found.lag)
    result = [
        f"none of {len(bounded)} networks is below its certified lower bound"
        if not wrong
        else f"{len(wrong)} of {len(bounded)} networks are below a certified lower bound: that bound is wrong"
    ]
    result += _floor_findings(runs)
    if few is not None:
        result.append(f"with fewer heads than the lag the smallest error is {few.error:.6g} (lag law: at least 1)")
    for rpe, rows in limit.items():
        result += _findings_of(rpe, [found for found in slopes if found.rpe == rpe], rows, horizons[rpe], most)
    result += _depth_findings(runs, most)
    free = [found for found in runs if found.rpe == "table"]
    escaped = sorted({found.lag for found in free if found.error < limit["lin"][found.lag - 1]["lower"]})
    largest = max(min(found.error for found in free if found.lag == lag) for lag in range(1, most + 1))
    result.append(
        f"{TABLE_HEADS} heads with a learnt bias per distance learn {_spans(learnt(free))}, error at most {largest:.2g}: "
        f"below E_u of lin heads at {_spans(escaped)}, which does not speak of them"
    )
    return result


def _floor_findings(runs: Sequence[Run]) -> list[str]:
    """Mean square errors beside their floors."""
    floored = [(found, found.square / found.floor) for found in runs if found.square is not None and found.floor]
    if not floored:
        return []
    closest, ratio = min(floored, key=lambda pair: pair[1])
    below = sum(found.beats_its_floor for found, _ in floored)
    said = "none is" if not below else f"{below} are"
    return [
        f"mean squares: of {len(floored)} networks with fewer heads than the lag {said} below the floor; the closest is {ratio:.4g} times "
        f"it, {closest.square:.4g} at lag {closest.lag} with {closest.layers * closest.heads} {closest.rpe} heads"
    ]


def _findings_of(rpe: str, runs: Sequence[Run], rows: Sequence[dict[str, float]], horizon: int, most: int) -> list[str]:
    """Beaten or not, where learning stops, what the weights explain, and whether the best bank is kept."""
    started = [found for found in runs if found.kind == "random start"]
    ratios = {found: found.error / rows[found.lag - 1]["lower"] for found in runs}
    closest = min((found for found in started if found.lag <= max(1, horizon)), key=ratios.__getitem__)
    beaten = [found for found in started if ratios[found] < 1]
    largest = max(found.weights or 0.0 for found in started)
    lags = learnt(started)
    missing = [lag for lag in range(1, horizon + 1) if lag not in lags]
    result = [
        f"{rpe}: from random weights E_u of float32 is "
        + (f"beaten at {_spans(sorted({found.lag for found in beaten}))}" if beaten else "never beaten")
        + f"; within the horizon the closest error is {ratios[closest]:.3g} E_u, at lag {closest.lag}",
        f"{rpe}: training learns {_spans(lags)}; float32 would allow {_spans(list(range(1, horizon + 1)))}"
        + (f" of {most}" if horizon < most else ""),
    ]
    built = {found.lag: found for found in runs if found.kind == "best bank"}
    if missing and missing[0] in built:
        lag = missing[0]
        enough = [found for found in started if found.lag == lag and found.heads >= lag and found.bound is not None]
        heavy = max(enough, key=lambda found: found.weights or 0.0)
        result.append(
            f"{rpe}: weights explain it: at lag {lag} training reaches |c| + Σ|a| = {heavy.weights:.3g} at most, where no layer errs by "
            f"less than {heavy.bound:.3g}; the best bank has {built[lag].weights:.3g} (largest of all trained layers: {largest:.3g})"
        )
    after = [found for found in runs if found.kind == "best bank, trained on"]
    if after:
        held = [found.lag for found in after if found.before is not None and found.error <= KEPT * found.before]
        changes = ", ".join(f"{found.before:.2g} → {found.error:.2g}" for found in after)
        result.append(f"{rpe}: training from the best bank keeps its error (within {KEPT - 1:.0%}) at {_spans(held)}: {changes}")
        alone = [found.lag for found in after if ratios[found] < 1]
        priced = [found.lag for found in after if budgeted(found) < rows[found.lag - 1]["lower"]]
        result.append(
            f"{rpe}: there the error alone is below E_u at {_spans(alone)}; with the price u Σ|a| of the weights, at {_spans(priced)}"
        )
    return result


def budgeted(found: Run) -> float:
    """e + u (|c| + Σ|a_h|), u = 2^−24: what E_u is the least value of."""
    return found.error + nearest(UNIT_32) * (found.weights or 0.0)


KEPT = 1.1
"""A bank counts as kept if its error grows by less than a tenth."""


def _depth_findings(runs: Sequence[Run], most: int) -> list[str]:
    result = []
    for kind in ("linear layers", "relu layers"):
        deep = [found for found in runs if found.kind == kind]
        parts = [f"{layers}: {_spans(learnt(f for f in deep if f.layers == layers))}" for layers in sorted({f.layers for f in deep})]
        note = " (sampled errors, lags up to 2L)" if kind == "relu layers" else f" (lags up to {most})"
        result.append(f"learnt by L {kind}{note}: L = {'; '.join(parts)}")
    return result


def _spans(lags: Sequence[int]) -> str:
    """1, 2, 3, 7 as "lags 1-3, 7"."""
    parts: list[list[int]] = []
    for lag in lags:
        if parts and lag == parts[-1][-1] + 1:
            parts[-1].append(lag)
        else:
            parts.append([lag])
    spans = ", ".join(str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts)
    return f"lag {spans}" if len(lags) == 1 else f"lags {spans}" if lags else "no lag"
