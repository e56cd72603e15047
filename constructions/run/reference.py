"""The reference forward pass: plain, O(N²), any weights, jitted, batched.

One formula for all kinds of attention: log-weights for the tokens of the array, one more log-weight for the whole constant past
before it (its mass is closed: Σ_{s>i} e^{−ps} = e^{−p(i+1)}/(1−e^{−p}), Σ_{s>i} s^{−p} = ζ(p, i+1),
Σ_{s>i} (1+rs)^{−p} = r^{−p} ζ(p, i+1+1/r)), then softmax or exp. With a stride c distances are counted in steps of c.

Every step has a derivative in every weight, the decays included, so networks are trained through this pass. The fast pass runs the same
formula on `constants` that were computed outside XLA (`constructions.run.positions`), with an exponential of our own.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.scipy.special import logsumexp

from analyzer.errors import InputError
from constructions.network.exponential import exp
from constructions.network.precision import HIGHEST, with_x64
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, to_float

SCORED = ("dp", "nf", "linear")
"""Kinds whose scores compare tokens."""


def feed_forward(ffn: FeedForward, u: jax.Array) -> jax.Array:
    """A relu(B u + c) on the last axis, rounded where the network says so."""
    hidden = jax.nn.relu(jnp.einsum("...d,md->...m", u, ffn.inner, precision=HIGHEST) + ffn.bias)
    output = jnp.einsum("...m,om->...o", hidden, ffn.outer, precision=HIGHEST)
    if "integer" in ffn.precision:
        output = jnp.where(np.array([p == "integer" for p in ffn.precision]), jnp.round(output), output)
    if "log" in ffn.precision:
        is_log = np.array([p == "log" for p in ffn.precision])
        rounded = jnp.log(jnp.maximum(jnp.round(jnp.exp(jnp.where(is_log, output, 0))), 1))  # e^y of others may overflow
        output = jnp.where(is_log, rounded, output)
    return output


def as_outputs(read: Any) -> Any:
    """What the last feed-forward network gives, (…, N, c), as outputs of the whole one: (…, N) where c = 1."""
    return read[..., 0] if read.shape[-1] == 1 else read


def as_floats(ffn: FeedForward) -> FeedForward:
    """An exact feed-forward network, rounded to float64 for evaluation; call it where float64 exists."""
    inner, bias, outer = (jnp.asarray(to_float(a, "float64")) for a in (ffn.inner, ffn.bias, ffn.outer))
    return FeedForward(inner, bias, outer, ffn.precision)


TERMS, CORRECTIONS = 12, 8
"""Of Euler and Maclaurin: the first omitted term is below |B_18|/18! · Π_{j≤16}(p+j)/(q+12)^17 of the last summand, at p = 2, q = 1
below 1e-17 of the sum, and less for every larger q; large p damp the summand itself, (q/(q+12))^p."""
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


@jax.custom_jvp
def log_hurwitz(p: jax.Array, q: jax.Array) -> jax.Array:
    """log ζ(p, q) = log Σ_{k≥0} (q+k)^{−p} for p > 1, q > 0, differentiable: Euler and Maclaurin's sum relative to q^{−p}.

    Σ_{k<K} (q+k)^{−p} + (q+K)^{1−p}/(p−1) + (q+K)^{−p}/2 + Σ_j B_2j/(2j)! p(p+1)⋯(p+2j−2) (q+K)^{−p−2j+1}
    """
    return _log_hurwitz(p, q)[0]


def _log_hurwitz(p: jax.Array, q: jax.Array) -> tuple[jax.Array, jax.Array]:
    """(log ζ(p, q), its derivative in p), term by term, the corrections by Horner's rule.

    A derivative by the chain rule is the same number, but takes twice as long to compile, and every layer of log heads contains one.
    """
    logs = jnp.log1p(jnp.arange(TERMS, dtype=q.dtype) / q[..., None])
    terms = jnp.exp(-p[..., None] * logs)
    end, log_end = q + TERMS, jnp.log1p(TERMS / q)
    last = jnp.exp(-p * log_end)
    corrections = slope = jnp.zeros_like(last)
    for j in range(CORRECTIONS, 0, -1):
        one, two = (p + 2 * j - 1) / end, (p + 2 * j) / end
        slope = (one + two) / end * corrections + one * two * slope
        corrections = _BERNOULLI[j - 1] / math.factorial(2 * j) + one * two * corrections
    rest = end / (p - 1) + 0.5 + p / end * corrections
    rest_slope = (corrections + p * slope) / end - end / (p - 1) ** 2
    total = terms.sum(-1) + last * rest
    total_slope = last * (rest_slope - log_end * rest) - (logs * terms).sum(-1)
    return jnp.log(total) - p * jnp.log(q), total_slope / total - jnp.log(q)


def _log_hurwitz_jvp(primals: tuple[jax.Array, jax.Array], tangents: tuple[Any, Any]) -> tuple[jax.Array, jax.Array]:
    """∂/∂q log ζ(p, q) = −p ζ(p+1, q)/ζ(p, q), computed only where q is differentiated."""
    (p, q), (p_dot, q_dot) = primals, tangents
    value, slope = _log_hurwitz(p, q)
    change = jnp.zeros_like(value) if isinstance(p_dot, SymbolicZero) else slope * p_dot
    if not isinstance(q_dot, SymbolicZero):
        change = change - p * jnp.exp(_log_hurwitz(p + 1, q)[0] - value) * q_dot
    return value, change


log_hurwitz.defjvp(_log_hurwitz_jvp, symbolic_zeros=True)


def log_past_mass(attention: Attention, position: jax.Array) -> jax.Array:
    """log Σ_{s>i} e^{pφ(s)} for every head and position i ≥ −1 (all of the past for i = −1), in steps of the stride; (H, len(position))."""
    if attention.table is not None:
        tail = jax.lax.cumlogsumexp(attention.table, axis=1, reverse=True)  # Σ_{s≥j}
        beyond = jnp.concatenate([tail, jnp.full_like(tail[:, :1], -jnp.inf)], axis=1)
        return jnp.take(beyond, jnp.clip(position.astype(int) + 1, 0, tail.shape[1]), axis=1)
    if attention.rate is not None:
        return _kerple_mass(attention.decay, attention.rate, position)
    lin = attention.heads_of("lin")
    log = np.setdiff1d(np.arange(len(attention.rpe)), lin)
    parts = [mass(attention.decay[heads], position) for mass, heads in ((_lin_mass, lin), (_log_mass, log)) if len(heads)]
    return parts[0] if len(parts) == 1 else jnp.concatenate(parts)[np.argsort(np.concatenate([lin, log]))]


def _lin_mass(decay: jax.Array, position: jax.Array) -> jax.Array:
    p = decay[:, None]
    return -p * (position + 1) - jnp.log(-jnp.expm1(-p))


def _log_mass(decay: jax.Array, position: jax.Array) -> jax.Array:
    return log_hurwitz(*jnp.broadcast_arrays(jnp.maximum(decay, 1 + 1e-6)[:, None], jnp.maximum(position + 1, 1)))


def _kerple_mass(decay: jax.Array, rate: jax.Array, position: jax.Array) -> jax.Array:
    p, r = jnp.maximum(decay, 1 + 1e-6)[:, None], rate[:, None]
    return log_hurwitz(*jnp.broadcast_arrays(p, position + 1 + 1 / r)) - p * jnp.log(r)


def _queries(attention: Attention, x: jax.Array) -> jax.Array:
    """What scores read of the positions that look: W_Q x (…, H, T, k) or, for tmx, −p φ(w·x) (…, H, T, 1)."""
    if attention.kind in SCORED:
        return jnp.einsum("hkd,...td->...htk", attention.query, x, precision=HIGHEST)
    if attention.kind == "tmx":
        slot = jnp.einsum("hd,...td->...ht", attention.pointer, x, precision=HIGHEST)
        return attention.decay[:, None, None] * _stretched(attention, slot[..., None])
    return jnp.zeros((1, 1, 1), x.dtype)


def _keys(attention: Attention, x: jax.Array) -> jax.Array | None:
    """What scores read of the positions that are looked at, (…, H, N, k); None where that is nothing."""
    return jnp.einsum("hkd,...sd->...hsk", attention.key, x, precision=HIGHEST) if attention.kind in SCORED else None


def _scores(queries: jax.Array, keys: jax.Array | None) -> jax.Array:
    """The part of the score that reads the residual stream, (…, H, T, N or 1)."""
    return queries if keys is None else jnp.einsum("...htk,...hsk->...hts", queries, keys, precision=HIGHEST)


def _stretched(attention: Attention, s: jax.Array) -> jax.Array:
    """−φ(s) for s (…, H or 1, T, N or 1): s for lin heads, log(1 + rs) for kerple heads, log s for all others, as 0 below 1; only what
    occurs is computed."""
    if attention.rate is not None:
        return jnp.log1p(attention.rate[:, None, None] * jnp.maximum(s, 0))
    is_lin = np.array([kind == "lin" for kind in attention.rpe])
    if is_lin.all():
        return s
    log = jnp.log(jnp.maximum(s, 1))
    return jnp.where(is_lin[:, None, None], s, log) if is_lin.any() else log


def _positions(attention: Attention, first: Any, rows: int, length: int) -> jax.Array:
    """p φ(s) or b(s) for the distances of the T positions from `first` on to the N tokens, (H, T, N); −∞ where a head does not look."""
    if attention.table is not None:
        return _along_diagonals(attention.table, first, rows, length)
    distance = first + jnp.arange(rows)[:, None] - jnp.arange(length)[None, :]
    seen = distance % attention.stride == 0
    position = -attention.decay[:, None, None] * _stretched(attention, (distance // attention.stride)[None].astype(attention.decay.dtype))
    least = np.array([kind == "log" for kind in attention.rpe])[:, None, None]  # log heads do not see the current token
    return position if attention.window == "full" else jnp.where((distance >= least) & seen, position, -jnp.inf)


def _along_diagonals(table: jax.Array, first: Any, rows: int, length: int) -> jax.Array:
    """b(t − s) for the T positions t from `first` on and the N tokens s, −∞ outside the table: (H, T, N).

    The biases by falling distance, from first + T − 1 to first − N, are repeated T times and cut into rows that are one shorter: every row
    starts one place earlier. Lookups would do the same, but their derivatives are scattered sums, which are slow.
    """
    heads, reach = table.shape
    period = length + rows
    falling = jnp.pad(table[:, :period][:, ::-1], ((0, 0), (max(period - reach, 0), length)), constant_values=-jnp.inf)
    falling = jax.lax.dynamic_slice_in_dim(falling, length - first, period, axis=1)
    diagonals = jnp.tile(falling, (1, rows))[:, : rows * (period - 1)].reshape(heads, rows, period - 1)
    return diagonals[:, :, rows - 1 : rows - 1 + length]


BLOCKS, LEAST_BLOCK, LEAST_WEIGHTS = 4, 32, 1 << 20
"""Blocks of queries, each of which looks at no more tokens than it sees: 5/8 of all pairs. More blocks save little and cost calls. Every
block is compiled for itself, which takes as long as some hundred passes with fewer attention weights (sequences × heads × pairs) do."""
HELD = 1 << 24
"""Attention weights that are held at once: blocks with more than four times as many are gone through in portions of queries, and
derivatives compute the weights of a portion again instead of keeping them. So memory grows like the array, not like its square."""


Constants = dict[str, Any]
Attend = Callable[..., tuple[jax.Array, jax.Array]]


def attend(
    attention: Attention, x: jax.Array, past: jax.Array, first: int = 0, constants: Constants | None = None
) -> tuple[jax.Array, jax.Array]:
    """Attention output for the positions of x (…, N, D) from `first` on, and for the constant state of those before the array (D,)."""
    rows = x.shape[-2] - first
    weights = math.prod(x.shape[:-1]) * rows * len(attention.rpe)
    causal = attention.kind in SCORED and attention.window != "full"
    blocks = BLOCKS if causal and rows >= BLOCKS * LEAST_BLOCK and weights >= LEAST_WEIGHTS else 1
    return _attend(attention, x, past, first, blocks, constants)


def _attend(
    attention: Attention, x: jax.Array, past: jax.Array, first: int, blocks: int = 1, constants: Constants | None = None
) -> tuple[jax.Array, jax.Array]:
    """Softmax divides once, after values were mixed; what does not depend on the block of queries is computed once for all of them.

    Values are projected before they are mixed or after: whichever takes fewer multiplications. With constants, whose rounding is
    counted, they are projected before.
    """
    dv, width = attention.value.shape[1:]
    length = x.shape[-2]
    rows = length - first
    view = _view(attention, x, past, first, constants)
    past_value = jnp.einsum("hvd,d->hv", attention.value, past, precision=HIGHEST)
    mix_first = constants is None and rows * length * width + rows * width * dv < length * width * dv + rows * length * dv
    values = x if mix_first else jnp.einsum("hvd,...sd->...hsv", attention.value, x, precision=HIGHEST)
    mixing = "...hts,...sd->...htd" if mix_first else "...hts,...hsv->...htv"
    ends = [first + rows * (k + 1) // blocks for k in range(blocks)]

    def given_to(who: tuple[jax.Array, jax.Array], start: Any, count: int, end: int) -> jax.Array:
        """What the queries at `count` positions from `start` on, which see no token from `end` on, are given: (…, H, T, v)."""
        inside, past_weight, total = _weights(attention, view, who, start, count, end)
        mixed = jnp.einsum(mixing, inside, values[..., :end, :], precision=HIGHEST)
        if mix_first:
            mixed = jnp.einsum("hvd,...htd->...htv", attention.value, mixed, precision=HIGHEST)
        mixed = mixed + past_weight * past_value[:, None, :]
        return mixed if total is None else mixed / total

    parts = []
    for start, end in zip([first, *ends], ends, strict=False):
        queries, before = (
            part if part.shape[-2] == 1 else part[..., start - first : end - first, :] for part in (view.queries, view.before)
        )
        weights = math.prod(x.shape[:-2]) * len(attention.rpe) * end * (end - start)
        portion = end - start if attention.kind not in SCORED or weights <= 4 * HELD else max(1, HELD * (end - start) // weights)
        parts.append(_in_portions(given_to, (queries, before), start, end, portion))
    attended = parts[0] if blocks == 1 else jnp.concatenate(parts, axis=-2)
    output = jnp.einsum("hdv,...htv->...td", attention.output, attended, precision=HIGHEST)
    return output, past_output(attention, past, past_value, view.whole, jnp.exp if constants is None else exp)


def _in_portions(given_to: Any, who: tuple[jax.Array, jax.Array], start: int, end: int, portion: int) -> jax.Array:
    """What `given_to` returns for the queries from `start` to `end`, a portion of them after the other; those that fill the last one up
    look from beyond the end, and are cut off."""
    if portion == end - start:
        return given_to(who, start, portion, end)
    count = -(-(end - start) // portion)
    filling = [(0, 0), (0, count * portion - (end - start)), (0, 0)]
    padded = [part if part.shape[-2] == 1 else jnp.pad(part, [(0, 0)] * (part.ndim - 3) + filling) for part in who]

    @jax.checkpoint
    def one(_: None, number: jax.Array) -> tuple[None, jax.Array]:
        cut = [part if part.shape[-2] == 1 else jax.lax.dynamic_slice_in_dim(part, number * portion, portion, axis=-2) for part in padded]
        return None, given_to((cut[0], cut[1]), start + number * portion, portion, end)

    parts = jnp.moveaxis(jax.lax.scan(one, None, jnp.arange(count))[1], 0, -3)
    return parts.reshape(*parts.shape[:-3], count * portion, parts.shape[-1])[..., : end - start, :]


class _View(NamedTuple):
    """What the weights of all queries are made of."""

    queries: jax.Array  # (…, H, T, k)
    keys: jax.Array | None  # (…, H, N, k)
    before: jax.Array  # (…, H, T, 1) log-weight of everything before the array, −∞ if heads do not look there, or their tables end before
    whole: jax.Array  # (H,) log Σ_{s≥0} e^{pφ(s)} or e^{b(s)}, 0 in a finite or full window
    bias: jax.Array | None = None  # (H, N) p φ(s) or b(s) by distance, where it was computed beforehand


def _view(attention: Attention, x: jax.Array, past: jax.Array, first: int, constants: Constants | None = None) -> _View:
    queries, keys = _queries(attention, x[..., first:, :]), _keys(attention, x)
    if constants is not None and "beyond" in constants:
        beyond, whole = constants["beyond"][:, first:], constants["whole"]
    else:
        beyond, whole = _log_masses(attention, first, x.shape[-2], x.dtype)
    before = beyond[..., None]
    if attention.window == "infinite":
        before = before + _scores(queries, _keys(attention, past[None, :]))
    return _View(queries, keys, before, whole, None if constants is None else constants["bias"])


def _log_masses(attention: Attention, first: int, length: int, dtype: Any) -> tuple[jax.Array, jax.Array]:
    """log Σ_{s>i} e^{pφ(s)} for the positions i from `first` on (H, T), −∞ (1, 1) if nothing is there, and the same for all s ≥ 0 (H,)."""
    nothing = jnp.full((1, 1), -jnp.inf, dtype)
    if attention.window != "infinite":
        return nothing, jnp.zeros(len(attention.rpe), dtype)
    if attention.table is not None and attention.table.shape[1] <= first + 1:
        return nothing, logsumexp(attention.table, axis=1)
    steps = (jnp.arange(first, length) // attention.stride).astype(dtype)
    masses = log_past_mass(attention, jnp.concatenate([jnp.full((1,), -1, dtype), steps]))
    return masses[:, 1:], masses[:, 0]


def _weights(
    attention: Attention, view: _View, who: tuple[jax.Array, jax.Array], start: Any, count: int, end: int
) -> tuple[jax.Array, jax.Array, jax.Array | None]:
    """Of the queries start ≤ t < start + count, `who` being their part of the view: weights of the tokens up to end (…, H, T, N) and of the
    constant past (…, H, T, 1), and what they have to be divided by; None where weights read positions only, and their sum over the whole
    past is known beforehand, or are not normalised."""
    queries, before = who
    keys = None if view.keys is None else view.keys[..., :end, :]
    positions = _along_diagonals(view.bias, start, count, end) if view.bias is not None else _positions(attention, start, count, end)
    power: Callable[[Any], jax.Array] = _own_power if view.bias is not None else jnp.exp
    inside = positions + _scores(queries, keys)
    if attention.kind == "linear":
        seen = jnp.isfinite(positions)
        return jnp.where(seen, inside, 0), jnp.zeros_like(before), seen.sum(axis=-1, keepdims=True).astype(inside.dtype)
    if attention.kind == "dp-free" and attention.window == "infinite":
        whole = view.whole[:, None, None]
        return jnp.exp(inside - whole), jnp.exp(before - whole), None
    if attention.kind in ("nf", "tmx"):
        return power(inside), power(before), None
    top = jax.lax.stop_gradient(jnp.maximum(inside.max(axis=-1, keepdims=True), before))
    top = jnp.where(jnp.isfinite(top), top, 0)  # a head that sees nothing
    weights, past_weight = power(inside - top), power(before - top)
    total = weights.sum(axis=-1, keepdims=True) + past_weight
    return weights, past_weight, jnp.where(total > 0, total, 1)


def _own_power(score: jax.Array) -> jax.Array:
    """e^score with a known rounding, and 0 where nobody looks."""
    return jnp.where(score == -jnp.inf, 0, exp(score))


def past_output(attention: Attention, past: jax.Array, past_value: jax.Array, whole: jax.Array, power: Any = jnp.exp) -> jax.Array:
    """What attention returns at positions whose whole past is the constant state, `whole` being the log of its mass (H,).

    In a finite or full window nobody looks there: 0.
    """
    if attention.window != "infinite":
        return jnp.zeros_like(past)
    if attention.kind in ("nf", "tmx"):
        score = _scores(_queries(attention, past[None, :]), _keys(attention, past[None, :]))
        past_value = power(whole[:, None] + score[..., 0]) * past_value
    return jnp.einsum("hdv,hv->d", attention.output, past_value, precision=HIGHEST)


def log_whole_mass(attention: Attention, dtype: Any) -> jax.Array:
    """log Σ_{s≥0} e^{pφ(s)} or e^{b(s)}, (H,); 0 in a finite or full window."""
    return _log_masses(attention, 0, 0, dtype)[1]


@jax.jit
def embed(network: Transformer, tokens: jax.Array) -> jax.Array:
    """X⁰ (…, N, D)."""
    embedded = jnp.einsum("dk,...k->...d", network.embedding, tokens, precision=HIGHEST) + network.bias
    if network.positions is None:
        return embedded
    if tokens.shape[-2] > len(network.positions):
        raise InputError(f"this network has positions for {len(network.positions)} tokens; the array has {tokens.shape[-2]}")
    return embedded + network.positions[: tokens.shape[-2]]


def feed(ffn: FeedForward, x: jax.Array, past: jax.Array, last: bool) -> tuple[jax.Array, jax.Array]:
    """The feed-forward half of a layer, for the array and for the constant state before it; the last one has no residual."""
    change, past_change = feed_forward(ffn, x), feed_forward(ffn, past)
    return (change, past_change) if last else (x + change, past + past_change)


def run_layers(network: Transformer, tokens: jax.Array, step: Any) -> jax.Array:
    """Layer after layer, `step(index, layer, x, past, last)` being compiled: equal layers compile once; tokens (…, N, d) → outputs."""
    x, past = embed(network.first(0), tokens), jnp.asarray(network.bias)
    for index, layer in enumerate(network.layers):
        x, past = step(index, layer, x, past, index == len(network.layers) - 1)
    return as_outputs(x)


@partial(jax.jit, static_argnames="last")
def _step(layer: Layer, x: jax.Array, past: jax.Array, last: bool) -> tuple[jax.Array, jax.Array]:
    attended, past_attended = attend(layer.attention, x, past)
    return feed(layer.feedforward, x + attended, past + past_attended, last)


def forward(network: Transformer, tokens: Any) -> np.ndarray:
    """Outputs (…, N), or (…, N, c) if there are several, of a float network on tokens (…, N, d), in the network's own dtype."""
    with with_x64(network.dtype):
        return np.asarray(run_layers(network, jnp.asarray(tokens, dtype=network.dtype), lambda _, *state: _step(*state)))


@partial(jax.jit, static_argnames=("first", "by"))
def _attended(attention: Attention, x: jax.Array, past: jax.Array, first: int, by: Attend) -> tuple[jax.Array, jax.Array]:
    change, past_change = by(attention, x, past, first)
    return x[..., first:, :] + change, past + past_change


_fed = jax.jit(feed, static_argnames="last")


def stream(network: Transformer, tokens: jax.Array, first: int = 0, by: Attend = attend) -> list[jax.Array]:
    """The residual stream (…, N, D) after every attention, and last the outputs (…, N, out), with their derivatives.

    The last layer is evaluated at positions from `first` on only. Compiled by half layers, or with whatever is compiled around it. `by` is
    another way to compute attention, such as `constructions.run.blocked.attend`.
    """
    x, past = embed(network.first(0), tokens), jnp.asarray(network.bias)
    seen: list[jax.Array] = []
    for index, layer in enumerate(network.layers):
        last = index == len(network.layers) - 1
        x, past = _attended(layer.attention, x, past, first if last else 0, by)
        seen.append(x)
        x, past = _fed(layer.feedforward, x, past, last=last)
    return [*seen, x]


def layer_inputs(network: Transformer, tokens: Any, count: int) -> list[np.ndarray]:
    """What the first `count` layers of a float network read, (…, N, D) each, in the network's own dtype."""
    seen: list[np.ndarray] = []

    def step(_: int, layer: Layer, x: jax.Array, past: jax.Array, last: bool) -> tuple[jax.Array, jax.Array]:
        seen.append(np.asarray(x))
        return (x, past) if last else _step(layer, x, past, False)

    with with_x64(network.dtype):
        run_layers(network.first(count), jnp.asarray(tokens, dtype=network.dtype), step)
    return seen


def pattern(attention: Attention, x: jax.Array, past: jax.Array) -> tuple[np.ndarray, np.ndarray]:
    """Attention weights of every query on the tokens, (…, H, N, N), and on the constant past before them, (…, H, N).

    Without the axes of the batch where weights read positions only.
    """
    weights, before = _pattern(attention, x, past)
    return np.asarray(weights), np.asarray(before)


@jax.jit
def _pattern(attention: Attention, x: jax.Array, past: jax.Array) -> tuple[jax.Array, jax.Array]:
    view, length = _view(attention, x, past, 0), x.shape[-2]
    inside, before, total = _weights(attention, view, (view.queries, view.before), 0, length, length)
    if total is not None:
        inside, before = inside / total, before / total
    return inside, jnp.broadcast_to(before, (*inside.shape[:-1], 1))[..., 0]


def patterns_of(network: Transformer, tokens: Any) -> list[tuple[np.ndarray, np.ndarray]]:
    """The `pattern` of every layer of a float network on tokens (…, N, d), in the network's own dtype."""
    seen: list[tuple[np.ndarray, np.ndarray]] = []

    def step(_: int, layer: Layer, x: jax.Array, past: jax.Array, last: bool) -> tuple[jax.Array, jax.Array]:
        seen.append(pattern(layer.attention, x, past))
        return (x, past) if last else _step(layer, x, past, False)

    with with_x64(network.dtype):
        run_layers(network, jnp.asarray(tokens, dtype=network.dtype), step)
    return seen
