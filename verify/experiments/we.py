"""Experiments 1b to 4b of [WE] (App. H): one dp-free layer trained to remember three tokens, or all of them with a given kernel.

Sequences have 1000 tokens and the output at the last position counts; AdamW, mean square error. The published targets are

    1b, 3a  Σ_{k≤64} relu(w_k·(x_48, x_56, x_99)), x ∈ {±1}^1000        2a  Σ_{k≤64} relu(w_k x_99)        2b  x_48 + x_56 + x_99
    4a      Σ_s x_s ρ(1000−s), ρ(t) = t^{−1/2}, no FFN                  4b  the same with ρ(t) = e^{−5t}

What the print leaves open, and what we do:
* **RPE of 1–3**: rows for lin, log and table heads (a learnt bias per distance). Slopes cannot do it at such distances: H heads of
  one slope each resolve lags up to H at best (lag law), and float32 up to about 5 (π-law).
* **Tokens of 2 and 4**: independent and uniform on [−1, 1], variance 1/3, in 2a and 2b; ±1, variance 1, in 4. With ±1 tokens
  Σ relu(w_k x_99) is affine in x_99, and m could not matter in 2a; in 2b an FFN could decode the bits of one head (6.1 of the theory).
* **x_99**: position 99 counted from 1, at distance 901 from the end; 2b has rows for the other reading, the lag 99.
* **w_k**: normal, divided by 8 = √64. The target is the same for all seeds. A draw with Σ w_k near 0 makes 2a's target nearly even
  in x_99, and a head that starts flat then finds no slope towards it: 2a has a row for that.
* **Slopes**: trained, p = e^θ, from half-lives spread between 1 and 1000 tokens (log: p from 4 to 1/4), or as a row says from ALiBi's
  2^{−8h/H} or all alike at 1; or kept at ALiBi's, which ALiBi does not train.
* **ρ of 4b at t = 0**: t = 0 counts (x_1000 with weight 1), and there are rows without it; 4a starts at t = 1, where t^{−1/2} is finite.
* **Sizes**: model dimension 8 with an FFN, 2 without; each head passes on one number, which for scalar tokens is no restriction.
* **Rate**: warm-up and cosine, peak = travel/steps, so that shorter runs can move weights as far: travel 10 is AdamW's usual 1e-3 for
  10,000 steps; tables must climb further and have more. Weight decay 1e-4.

Networks without an FFN are linear in the tokens, ŷ = Σ_s κ(s) x_{t−s}, and for independent tokens of variance v the expected loss
is exactly v‖κ − ρ‖². Rows called *exact* train on that, in float32, and report it from the trained weights in float64: batches of any size have
this mean, and it shows 1e-7 where their noise would not. Rows called *sampled* train on fresh batches and report the mean square over
held-out sequences. Rows called *fitted* are not trained: the best weights for given slopes by least squares, as a network of ours.
Attention of dp-free layers is linear too, so a batch costs one product of the tokens with the kernels of the stream.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from analyzer.errors import InputError
from constructions.learning import Recipe, Shape, affine_readout, initial, optimiser, outputs, stream, to_network, to_parameters
from constructions.precision import with_x64
from constructions.reference import feed_forward
from constructions.training import Progress, fit_ensemble
from constructions.transformer import Attention, AttentionKind, Layer, Transformer
from verify.experiments import MAX_SEEDS, MAX_STEPS, MIN_STEPS

POSITIONS = (48, 56, 99)
RIDGES = 64
SHORT = (1, 2, 3)
"""Lags inside the horizon of slopes."""
EVEN, ODD = 0, 1
"""Draws of w_k: Σ w_k is 0.11 for the first, 1.1 for the second."""
VARIANCE = {"signs": 1.0, "uniform": 1 / 3}
_START, _HELD_OUT = 2**32 - 1, 2**32 - 2
"""Keys of a seed that no training step uses."""

Law = Literal["signs", "uniform"]
Start = Literal["spread", "alibi", "alike"]
How = Literal["exact", "sampled", "fitted"]
Report = Callable[[str, Progress], None]


@dataclass(frozen=True)
class Protocol:
    steps: int = 2000
    seeds: int = 3
    seed: int = 0
    """The first of the seeds; the others follow."""
    length: int = 1000
    heads: int = 32
    width: int = 256
    """The largest sizes of 1–3."""
    batch: int = 64
    held_out: int = 4096
    travel: float = 10.0
    table_travel: float = 40.0
    weight_decay: float = 1e-4

    def rate(self, rpe: str) -> float:
        return min(0.1, (self.table_travel if rpe == "table" else self.travel) / self.steps)


DEFAULT = Protocol()
FULL = Protocol(steps=10_000, seeds=5)


@dataclass(frozen=True)
class Rule:
    """Numbers from `least` to `most` agree with the print."""

    least: float
    most: float

    def agrees(self, value: float) -> bool:
        return self.least <= value <= self.most


HELPS, USELESS = Rule(10, float("inf")), Rule(0, 2)
"""Of an error before over one after: raising a size helps if it divides the error by ten, and does not if it fails to halve it."""


@dataclass(frozen=True)
class Task:
    """A target: ridges in the tokens at some lags, Σ_k relu(w_k·(x_{t−T})_T), or a kernel ρ(s), s < length."""

    name: str
    law: Law
    lags: tuple[int, ...] = ()
    draw: int = ODD
    kernel: tuple[float, ...] | None = None

    def weights(self) -> np.ndarray:
        return np.random.default_rng([self.draw, RIDGES]).standard_normal((RIDGES, len(self.lags))) / np.sqrt(RIDGES)

    def tokens(self, key: jax.Array, shape: tuple[int, int]) -> jax.Array:
        if self.law == "signs":
            return jax.random.rademacher(key, shape, jnp.float32)
        return jax.random.uniform(key, shape, jnp.float32, -1, 1)

    def values(self, tokens: jax.Array) -> jax.Array:
        """y at the last position, for tokens (…, N)."""
        if self.kernel is not None:
            return jnp.einsum("...s,s->...", tokens, jnp.asarray(self.kernel[::-1], tokens.dtype), precision="highest")
        seen = tokens[..., tokens.shape[-1] - 1 - np.array(self.lags)]
        return jax.nn.relu(seen @ jnp.asarray(self.weights().T, tokens.dtype)).sum(-1)


@dataclass(frozen=True)
class Arm:
    """One row to be trained: a task and a network; `kept`: slopes are not trained."""

    name: str
    task: Task
    shape: Shape
    start: Start = "spread"
    kept: bool = False
    how: How = "exact"
    published: float | None = None


@dataclass(frozen=True)
class Row:
    """Mean square errors, one per seed, beside the variance of the target: what the best constant has."""

    name: str
    target: str
    rpe: str
    heads: int
    width: int | None
    how: How
    errors: tuple[float, ...]
    variance: float
    published: float | None = None

    @property
    def error(self) -> float:
        """The median over the seeds."""
        return float(np.median(self.errors))


@dataclass(frozen=True)
class Claim:
    """What the print says, as a number of ours and the rule for it: the error of a row, or the ratio `of` over `over`."""

    text: str
    of: str
    rule: Rule
    over: str | None = None
    published: float | None = None

    def value(self, rows: dict[str, Row]) -> float:
        return rows[self.of].error / (1.0 if self.over is None else rows[self.over].error)


@dataclass(frozen=True)
class Experiment:
    """A published experiment; `findings` say in words what the numbers show."""

    id: str
    protocol: Protocol
    rows: tuple[Row, ...]
    claims: tuple[tuple[Claim, float], ...]
    findings: tuple[str, ...]
    seconds: float

    def row(self, name: str) -> Row:
        return next(row for row in self.rows if row.name == name)

    def as_dict(self) -> dict[str, Any]:
        return {
            "experiment": self.id,
            "rows": [
                {"name": r.name, "target": r.target, "rpe": r.rpe, "heads": r.heads, "width": r.width, "how": r.how, "mse": r.error,
                 "mse_least": min(r.errors), "mse_most": max(r.errors), "seeds": len(r.errors), "variance": r.variance,
                 "published": r.published} for r in self.rows
            ],
            "claims": [
                {"claim": c.text, "of": c.of, "over": c.over, "value": value, "published": c.published, "agrees": c.rule.agrees(value),
                 "agreement": {"least": c.rule.least, "most": c.rule.most if np.isfinite(c.rule.most) else None}}
                for c, value in self.claims
            ],
            "findings": list(self.findings),
            "protocol": asdict(self.protocol),
            "seconds": self.seconds,
        }  # fmt: skip


def mixing(network: Transformer, length: int) -> jax.Array:
    """The stream before the FFN of a dp-free layer, at the last position, as a matrix (D, N) on the tokens: its derivative at 0.

    Biases do not appear: that of the embedding is 0 here and stays there.
    """

    def at(tokens: jax.Array) -> jax.Array:
        return stream(network, tokens, length - 1)[-2][0]

    return jax.jacrev(at)(jnp.zeros((length, 1), network.embedding.dtype))[..., 0]


def kernel(network: Transformer, length: int) -> jax.Array:
    """κ(s), 0 ≤ s < N, of a network that reads off u_0."""

    def at(tokens: jax.Array) -> jax.Array:
        return stream(network, tokens, length - 1)[-2][0, 0]

    return jax.grad(at)(jnp.zeros((length, 1), network.embedding.dtype))[::-1, 0]


def predict(network: Transformer, tokens: jax.Array) -> jax.Array:
    """Outputs at the last position, tokens (B, N)."""
    length = tokens.shape[-1]
    if network.layers[0].attention.kind == "dp":
        return outputs(network, tokens[..., None], length - 1)[..., 0, 0]
    seen = jnp.einsum("bs,ds->bd", tokens, mixing(network, length), precision="highest")
    return feed_forward(network.layers[0].feedforward, seen)[..., 0]


def expected_error(network: Transformer, task: Task) -> float:
    """v‖κ − ρ‖² from the stored weights, in float64."""
    assert task.kernel is not None
    with with_x64("float64"):
        found = np.asarray(kernel(network.map(lambda leaf: jnp.asarray(leaf, "float64")), len(task.kernel)))
    return float(VARIANCE[task.law] * np.sum((found - np.array(task.kernel)) ** 2))


def alibi_slopes(heads: int) -> np.ndarray:
    return 2.0 ** (-8 * np.arange(1, heads + 1) / heads)


def start_of(arm: Arm, seed: int, length: int) -> Transformer:
    network = initial(arm.shape, 1, seed, length)
    if arm.start == "spread":
        return network
    slopes = alibi_slopes(arm.shape.heads) if arm.start == "alibi" else np.ones(arm.shape.heads)
    attention = replace(network.layers[0].attention, decay=slopes.astype(np.float32))
    return replace(network, layers=(replace(network.layers[0], attention=attention),))


def train(arm: Arm, protocol: Protocol, report: Report | None = None) -> Row:
    """One run per seed, all at once."""
    seeds = [protocol.seed + k for k in range(protocol.seeds)]
    starts = [start_of(arm, seed, protocol.length) for seed in seeds]
    recipe = Recipe(
        length=protocol.length,
        steps=protocol.steps,
        rate=protocol.rate(arm.shape.rpe),
        weight_decay=protocol.weight_decay,
        decay_rate=0.0 if arm.kept else 1.0,
    )
    stacked = jax.tree.map(lambda *leaves: jnp.stack([jnp.asarray(leaf) for leaf in leaves]), *map(to_parameters, starts))
    trained = fit_ensemble(
        _expected_loss(arm.task) if arm.how == "exact" else partial(_batch_loss, arm.task),
        stacked,
        (lambda key: ()) if arm.how == "exact" else lambda key: arm.task.tokens(key, (protocol.batch, protocol.length)),
        steps=protocol.steps,
        optimiser=optimiser(starts[0], recipe),
        seeds=seeds,
        report=None if report is None else lambda progress: report(arm.name, progress),
    )
    networks = [to_network(jax.tree.map(lambda leaf: leaf[k], trained.parameters)) for k in range(len(seeds))]  # noqa: B023
    if arm.how == "exact":
        assert arm.task.kernel is not None
        errors = [expected_error(network, arm.task) for network in networks]
        variance = VARIANCE[arm.task.law] * float(np.sum(np.square(arm.task.kernel)))
    else:
        pairs = [_held_out(network, arm.task, protocol, seed) for network, seed in zip(networks, seeds, strict=True)]
        errors, variance = [error for error, _ in pairs], float(np.mean([v for _, v in pairs]))
    width = None if arm.shape.readout == "affine" else arm.shape.width
    return Row(arm.name, arm.task.name, arm.shape.rpe, arm.shape.heads, width, arm.how, tuple(errors), variance, arm.published)


def _expected_loss(task: Task) -> Callable[[Transformer, Any], jax.Array]:
    assert task.kernel is not None
    wanted = np.array(task.kernel, np.float32)

    def loss(parameters: Transformer, _: Any) -> jax.Array:
        return VARIANCE[task.law] * jnp.sum((kernel(to_network(parameters), len(wanted)) - wanted) ** 2)

    return loss


def _batch_loss(task: Task, parameters: Transformer, tokens: jax.Array) -> jax.Array:
    return jnp.mean((predict(to_network(parameters), tokens) - task.values(tokens)) ** 2)


_predict = jax.jit(predict)
PART = 256
"""Held-out sequences that are run at once: 32 heads with dot products hold 8 million weights then."""


def _held_out(network: Transformer, task: Task, protocol: Protocol, seed: int) -> tuple[float, float]:
    """Mean square error over fresh sequences, and the variance of the target there."""
    key = jax.random.fold_in(jax.random.key(seed), jnp.uint32(_HELD_OUT))
    misses, wanted = [], []
    for part in range(-(-protocol.held_out // PART)):
        tokens = task.tokens(jax.random.fold_in(key, part), (PART, protocol.length))
        wanted.append(np.asarray(task.values(tokens), np.float64))
        misses.append(np.asarray(_predict(network, tokens), np.float64) - wanted[-1])
    return float(np.mean(np.square(misses))), float(np.var(wanted))


def bank(rpe: str, slopes: np.ndarray, weights: np.ndarray, current: float, dtype: str) -> Transformer:
    """A linear network of ours, κ = c 1_{s=0} + Σ_h a_h k_h: the stream holds (c x, x), heads read the second and write into the first."""
    heads = len(slopes)
    attention = Attention(
        decay=slopes.astype(dtype),
        value=np.tile(np.array([0, 1], dtype), (heads, 1, 1)),
        output=np.stack([weights, np.zeros(heads)], axis=-1)[..., None].astype(dtype),
        query=np.zeros((heads, 0, 2), dtype),
        key=np.zeros((heads, 0, 2), dtype),
        pointer=np.zeros((0, 2), dtype),
        rpe=(rpe,) * heads,
        window="finite",
    )
    return Transformer(np.array([[current], [1]], dtype), np.zeros(2, dtype), (Layer(attention, affine_readout(2, dtype)),))


def fitted(name: str, task: Task, rpe: str, slopes: np.ndarray, dtype: str, cut: float) -> Row:
    """Least squares over the weights of heads with given slopes; singular values below `cut` of the largest are left out."""
    assert task.kernel is not None
    wanted, s = np.array(task.kernel), np.arange(len(task.kernel))
    powers = np.exp(-np.outer(s if rpe == "lin" else np.log(np.maximum(s, 1)), slopes))
    if rpe == "log":
        powers[0] = 0
    columns = powers / powers.sum(axis=0)
    weights = np.linalg.lstsq(columns[1:], wanted[1:], rcond=cut)[0]
    current = wanted[0] - columns[0] @ weights
    network = bank(rpe, slopes, weights, current, dtype)
    variance = VARIANCE[task.law] * float(np.sum(wanted**2))
    return Row(name, task.name, rpe, len(slopes), None, "fitted", (expected_error(network, task),), variance)


def _shape(rpe: str, heads: int, protocol: Protocol, width: int | None = None, attention: AttentionKind = "dp-free") -> Shape:
    """`width` None: no FFN."""
    return Shape(
        heads=heads,
        width=2 if width is None else width,
        model_dim=2 if width is None else 8,
        rpe=rpe,
        attention=attention,
        window="finite",
        reach=protocol.length if rpe == "table" else 0,
        readout="affine" if width is None else "relu",
    )


def distances(protocol: Protocol) -> tuple[int, ...]:
    """From the end, positions counted from 1."""
    return tuple(protocol.length - position for position in POSITIONS)


def indicator(lags: Sequence[int], length: int) -> tuple[float, ...]:
    return tuple(float(s in lags) for s in range(length))


def _named(lags: Sequence[int]) -> str:
    return f"lag {lags[0]}" if len(lags) == 1 else f"lags {', '.join(map(str, lags))}"
