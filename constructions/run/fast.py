"""The fast forward pass: O(N) for lin heads (a scan), O(N·taps) or O(N log N) for log heads, jitted, batched.

Per-head constants are computed once, outside XLA, correctly rounded from the stored decays (`head_constants`):

* lin: ratio z = fl(e^{−p}) and gain g = fl(1−e^{−p}); the state S ← z S + v runs over the tokens, the head's output is g S. On devices
  that wait long for one step after the other it is computed in another form (`constructions.network.recurrences`);
* log, short: the normalised kernel s^{−p}/ζ(p) falls below half a unit roundoff of mass after at most `MAX_TAPS` taps: those taps,
  each correctly rounded, are the head, summed tap by tap;
* kerple: the same with (1+rs)^{−p} and its mass, from s = 0 on;
* table: the taps e^{b(s)}/Σ e^{b}, each correctly rounded, if there are at most `MAX_TAPS`;
* log or table, long, and all heads in a finite window: in arrays of at most `MAX_TAPS` tokens all weights, each correctly rounded
  (`constructions.run.positions`), summed tap by tap; in longer ones by FFT, all heads in one transform where they see the same tokens with
  fixed weights (`fused`), or by a scan for lin heads.

A stride c cuts the array into c interleaved ones, each of which runs by itself: an axis of the batch.

Heads that read a lag slot (`constructions.run.lagged`) run the same scan or taps, without gain, and multiply the result by a factor looked
up for their lag: fl(e^{θn}) or fl(n^p).

So but for FFTs and for the logarithm of a lag slot (tmx), XLA performs additions, multiplications and divisions only, and
`verify.chain.rounding` can bound every one of them. Linear attention adds up products of keys and values along the array, O(N). Softmax
over all tokens of the array (window "full") couples all pairs: O(N²), with an exponential of our own (`constructions.network.exponential`)
whose rounding is known. Other dp and nf scores run through the formula of the reference pass, O(N²), with the same exponential and with
biases and masses of the past that were computed beforehand.
"""

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flint import arb

from analyzer.errors import InputError
from analyzer.families import FormName
from analyzer.numbers.exact import working_precision
from constructions.network.exponential import exp
from constructions.network.precision import HIGHEST, shifted_tap_count, tap_count, with_x64
from constructions.network.recurrences import chosen, form_constants, from_zero, scan_states, states
from constructions.network.remembered import Remembered
from constructions.network.transformer import Attention, Layer, Transformer, table_weights, to_exact
from constructions.run import reference
from constructions.run.lagged import lagged_layers
from constructions.run.positions import MAX_TAPS, kernel_constants, score_constants, whole_masses


def head_constants(attention: Attention) -> dict[str, np.ndarray]:
    """Correctly rounded `ratio`, `gain` (lin heads) and `taps` (all other heads, (heads, taps); none if some head is long)."""
    dtype = np.asarray(attention.decay).dtype
    decays = to_exact(attention.decay)
    if attention.table is not None:
        return {"ratio": np.zeros(0, dtype), "gain": np.zeros(0, dtype), "taps": _table_taps(attention, dtype)}
    if attention.rate is not None:
        return {"ratio": np.zeros(0, dtype), "gain": np.zeros(0, dtype), "taps": _kerple_taps(attention, dtype)}
    with working_precision(160):
        ratios = [(-arb(decays[h])).exp() for h in attention.heads_of("lin")]
        powers = [arb(decays[h]) for h in attention.heads_of("log")]
        count = max((tap_count(decays[h], str(dtype)) for h in attention.heads_of("log")), default=0)
        taps = np.zeros((len(powers), 0), dtype=dtype)
        if 0 < count <= MAX_TAPS and attention.kind == "dp-free" and attention.window == "infinite":
            table = [[0.0, *(float(arb(s) ** -p / p.zeta()) for s in range(1, count + 1))] for p in powers]
            taps = np.array(table).astype(dtype)
        return {
            "ratio": np.array([float(z) for z in ratios]).astype(dtype),
            "gain": np.array([float(1 - z) for z in ratios]).astype(dtype),
            "taps": taps,
        }


def _table_taps(attention: Attention, dtype: np.dtype) -> np.ndarray:
    if attention.kind != "dp-free" or attention.window != "infinite" or attention.table.shape[1] > MAX_TAPS:
        return np.zeros((len(attention.rpe), 0), dtype)
    with working_precision(160):
        return np.array([[float(w) for w in row] for row in table_weights(attention)]).astype(dtype)


def _kerple_taps(attention: Attention, dtype: np.dtype) -> np.ndarray:
    """(s+A)^{−p}/ζ(p, A), A = 1/r, which is (1+rs)^{−p} over its mass."""
    pairs = list(zip(to_exact(attention.decay), to_exact(attention.rate), strict=True))
    count = max(shifted_tap_count(p, r, str(dtype)) for p, r in pairs)
    if count > MAX_TAPS:
        return np.zeros((len(pairs), 0), dtype)
    with working_precision(160):
        heads = [(arb(p), arb(1 / r)) for p, r in pairs]
        return np.array([[float((s + a) ** -p / p.zeta(a)) for s in range(count)] for p, a in heads]).astype(dtype)


def _scan(attention: Attention, constants: dict[str, Any], heads: np.ndarray, values: jax.Array, past: jax.Array) -> jax.Array:
    """Σ_s z^s v_{t−s} for the lin heads; values (N, …, H, dv), past (H, dv)."""
    gain, infinite = constants["gain"][:, None], attention.window == "infinite"
    if infinite and from_zero(constants):
        sums = states(constants, values - past)
        return past / gain + sums if attention.kind == "tmx" else gain * sums + past
    found = scan_states(constants["ratio"][:, None], past / gain, values) if infinite else states(constants, values)
    if attention.kind == "tmx":
        return found
    if infinite:
        return gain * found
    ages = jnp.arange(1, values.shape[0] + 1, dtype=values.dtype)
    mass = -jnp.expm1(-attention.decay[heads] * ages[:, None]) / constants["gain"]
    return found / mass.reshape(mass.shape[0], *[1] * (values.ndim - 3), mass.shape[1], 1)


def tap_sum(taps: Any, values: jax.Array, past: jax.Array) -> jax.Array:
    """Σ_s taps_s v_{t−s} tap by tap; the constant past fills the positions before the array."""
    length, count = values.shape[0], taps.shape[1]
    padded = jnp.concatenate([jnp.broadcast_to(past, (count, *values.shape[1:])), values])

    def add(total: jax.Array, s: jax.Array) -> tuple[jax.Array, None]:
        shifted = jax.lax.dynamic_slice_in_dim(padded, count - s, length)
        return total + taps[:, s][:, None] * shifted, None

    total, _ = jax.lax.scan(add, jnp.zeros_like(values), jnp.arange(count))
    return total


def kernel_heads(attention: Attention, constants: dict[str, Any]) -> np.ndarray:
    """Heads that are neither scanned nor cut to a few taps: all in a finite window, long ones that are not lin over the infinite past."""
    if attention.window == "infinite" and constants["taps"].shape[1] > 0:
        return np.zeros(0, int)
    scanned = attention.heads_of("lin" if attention.window == "infinite" else "")
    return np.setdiff1d(np.arange(len(attention.rpe)), scanned)


def _kernel_sum(constants: dict[str, Any], values: jax.Array, past: jax.Array) -> jax.Array:
    """Σ_s w(s) v_{t−s} over the array, with the constant past's share added, or divided by the mass that t sees."""
    total = tap_sum(constants["weights"], values, jnp.zeros_like(past))
    share = constants["beyond" if "beyond" in constants else "mass"].T
    share = share.reshape(share.shape[0], *[1] * (values.ndim - 3), share.shape[1], 1)
    return total + share * past if "beyond" in constants else total / share


def convolved(attention: Attention, heads: np.ndarray, values: jax.Array, past: jax.Array) -> jax.Array:
    """Σ_s s^{−p} v_{t−s}, or Σ_s e^{b(s)} v_{t−s} up to a factor, by FFT, with the past's mass added; normalised unless tmx."""
    length = values.shape[0]
    kernel, beyond, whole = _long_kernels(attention, heads, length, values.dtype)
    size = 2 * length
    shape = (size // 2 + 1, *[1] * (values.ndim - 3), len(heads), 1)
    spectrum = jnp.fft.rfft(kernel, n=size, axis=0).reshape(shape) * jnp.fft.rfft(values, n=size, axis=0)
    total = jnp.fft.irfft(spectrum, n=size, axis=0)[:length]
    column = (length, *[1] * (values.ndim - 3), len(heads), 1)
    if attention.window == "infinite":
        total = total + beyond.reshape(column) * past
    if attention.kind == "tmx":
        return total
    mass = whole if attention.window == "infinite" else jnp.cumsum(kernel, axis=0)
    mass = jnp.broadcast_to(mass, (length, len(heads))).reshape(column)
    return jnp.where(mass > 0, total / jnp.where(mass > 0, mass, 1), 0)


def heads_of_one_transform(attention: Attention, constants: dict[str, Any]) -> np.ndarray:
    """Heads that are transformed, if kernels from stream to stream take fewer transforms than these heads one by one."""
    heads = kernel_heads(attention, constants) if "weights" not in constants else np.zeros(0, int)
    width, count, rank = attention.output.shape[1], len(heads), attention.value.shape[1]
    fewer = width * (width + 2) <= count * (1 + 2 * rank)
    return heads if attention.kind == "dp-free" and attention.window == "infinite" and fewer else heads[:0]


def fused(attention: Attention, heads: np.ndarray, x: jax.Array, past: jax.Array) -> jax.Array:
    """Σ_h W_O^h Σ_s w_h(s) W_V^h x_{t−s} of dp-free heads over the infinite past, for x (N, …, D): all heads in one convolution.

    They see the same tokens, so their kernels add up to one of D × D matrices, K(s) = Σ_h w_h(s) W_O^h W_V^h. What cancels between heads
    cancels there, before anything is transformed.
    """
    length = x.shape[0]
    kernel, beyond, whole = _long_kernels(attention, heads, length, x.dtype)
    mixing = jnp.einsum("hiv,hvj->hij", attention.output[heads], attention.value[heads], precision=HIGHEST)
    matrices, shares = (jnp.einsum("sh,hij->sij", part / whole, mixing, precision=HIGHEST) for part in (kernel, beyond))
    spectrum = jnp.fft.rfft(matrices, n=2 * length, axis=0), jnp.fft.rfft(x, n=2 * length, axis=0)
    total = jnp.fft.irfft(jnp.einsum("fij,f...j->f...i", *spectrum, precision=HIGHEST), n=2 * length, axis=0)[:length]
    share = jnp.einsum("sij,j->si", shares, past, precision=HIGHEST)
    return total + share.reshape(length, *[1] * (x.ndim - 2), share.shape[1])


def _long_kernels(attention: Attention, heads: np.ndarray, length: int, dtype: Any) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(values at s < N, sum over s > t for every position t, sum over all s), each (…, H), before normalisation."""
    positions = jnp.arange(-1, length, dtype=dtype)
    beyond = jnp.exp(reference.log_past_mass(attention, positions)[heads].T)
    s = positions[1:, None]
    if attention.rate is not None:
        return (1 + attention.rate[heads] * s) ** -attention.decay[heads], beyond[1:], beyond[:1]
    if attention.table is None:
        return jnp.where(s >= 1, jnp.maximum(s, 1) ** -attention.decay[heads], 0), beyond[1:], beyond[:1]
    top = attention.table.max(axis=1)
    kernel = jnp.exp(attention.table - top[:, None]).T[:length]
    kernel = jnp.concatenate([kernel, jnp.zeros((length - kernel.shape[0], len(heads)), dtype)])
    return kernel, beyond[1:] * jnp.exp(-top), beyond[:1] * jnp.exp(-top)


def attend(attention: Attention, constants: dict[str, Any], x: jax.Array, past: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Attention output for x (…, N, D), and for the constant past (D,)."""
    if "factor" in constants:
        return _attend_by_lag(attention, constants, x, past)
    if attention.kind == "linear":
        return _attend_linearly(attention, x), jnp.zeros_like(past)
    if attention.window == "full":
        return _attend_all(attention, x), jnp.zeros_like(past)
    if attention.kind in ("dp", "nf"):
        return reference.attend(attention, x, past, constants=constants if "bias" in constants else None)
    past_value = jnp.einsum("hvd,d->hv", attention.value, past, precision=HIGHEST)
    together = heads_of_one_transform(attention, constants)
    others = np.setdiff1d(np.arange(len(attention.rpe)), together)
    output = _one_by_one(attention, constants, others, x, past_value) if len(others) else jnp.zeros_like(x)
    if len(together):
        tokens = _interleaved(jnp.moveaxis(x, -2, 0), attention.stride)
        output = output + jnp.moveaxis(_joined(fused(attention, together, tokens, past), attention.stride, x.shape[-2]), 0, -2)
    if attention.kind == "tmx" and attention.window == "infinite" and "whole" in constants:
        past_value = stretch(attention, past)[:, None] * (constants["whole"][:, None] * past_value)
        return output, jnp.einsum("hdv,hv->d", attention.output, past_value, precision=HIGHEST)
    return output, reference.past_output(attention, past, past_value, reference.log_whole_mass(attention, past.dtype))


def _one_by_one(attention: Attention, constants: dict[str, Any], heads: np.ndarray, x: jax.Array, past_value: jax.Array) -> jax.Array:
    """What these heads add to x (…, N, D), each scanned, summed tap by tap or transformed by itself."""
    values = jnp.moveaxis(jnp.einsum("hvd,...sd->...shv", attention.value, x, precision=HIGHEST), -3, 0)
    values, length = _interleaved(values, attention.stride), values.shape[0]
    parts, order = [], []
    weighted = kernel_heads(attention, constants) if "weights" in constants else np.zeros(0, int)
    lin = np.setdiff1d(attention.heads_of("lin"), weighted)
    log = np.concatenate([np.setdiff1d(attention.heads_of(kind), weighted) for kind in ("log", "table", "kerple")])
    log = log[np.isin(log, heads)]
    if len(weighted):
        parts.append(_kernel_sum(constants, values[..., weighted, :], past_value[weighted]))
        order.append(weighted)
    if len(lin):
        parts.append(_scan(attention, constants, lin, values[..., lin, :], past_value[lin]))
        order.append(lin)
    if len(log):
        chosen, chosen_past = values[..., log, :], past_value[log]
        short = constants["taps"].shape[1] > 0
        parts.append(tap_sum(constants["taps"], chosen, chosen_past) if short else convolved(attention, log, chosen, chosen_past))
        order.append(log)
    mixed = _joined(jnp.concatenate(parts, axis=-2)[..., np.argsort(np.concatenate(order)), :], attention.stride, length)
    if attention.kind == "tmx":
        mixed = jnp.moveaxis(stretch(attention, x), -2, 0)[..., None] * mixed
    return jnp.moveaxis(jnp.einsum("hdv,...hv->...d", attention.output[heads], mixed, precision=HIGHEST), 0, -2)


def _interleaved(values: jax.Array, stride: int) -> jax.Array:
    """(N, …) → (⌈N/c⌉, c, …): every c-th token of the array, c times; what is filled up at the end is seen by nobody before it."""
    if stride == 1:
        return values
    padded = jnp.pad(values, ((0, -values.shape[0] % stride), *[(0, 0)] * (values.ndim - 1)))
    return padded.reshape(-1, stride, *values.shape[1:])


def _joined(mixed: jax.Array, stride: int, length: int) -> jax.Array:
    """The way back from `_interleaved`."""
    return mixed if stride == 1 else mixed.reshape(-1, *mixed.shape[2:])[:length]


def stretch(attention: Attention, x: jax.Array) -> jax.Array:
    """e^{p y} or y^p for the slots y = w·x of tmx heads, (…, H)."""
    slot = jnp.einsum("hd,...d->...h", attention.pointer, x, precision=HIGHEST)
    is_lin = np.array([kind == "lin" for kind in attention.rpe])
    return exp(attention.decay * (slot if is_lin.all() else jnp.where(is_lin, slot, jnp.log(jnp.maximum(slot, 1)))))


def _attend_all(attention: Attention, x: jax.Array) -> jax.Array:
    """Softmax of the dot products over all tokens: Σ_s w_s v_s / Σ_s w_s with w_s = e^{a_s − max a}."""
    q, k, v = (jnp.einsum("hkd,...td->...htk", w, x, precision=HIGHEST) for w in (attention.query, attention.key, attention.value))
    logits = jnp.einsum("...htk,...hsk->...hts", q, k, precision=HIGHEST)
    weights = exp(logits - logits.max(axis=-1, keepdims=True))
    mixed = jnp.einsum("...hts,...hsv->...htv", weights, v, precision=HIGHEST) / weights.sum(axis=-1, keepdims=True)
    return jnp.einsum("hdv,...htv->...td", attention.output, mixed, precision=HIGHEST)


def _attend_linearly(attention: Attention, x: jax.Array) -> jax.Array:
    """Σ_s ⟨q_t, k_s⟩ v_s / n = ⟨q_t, Σ_s k_s v_sᵀ⟩ / n over the n tokens that t sees: the sum of products runs along, O(N)."""
    q, k, v = (jnp.einsum("hkd,...td->...htk", w, x, precision=HIGHEST) for w in (attention.query, attention.key, attention.value))
    length = x.shape[-2]
    if attention.window == "full":
        products = jnp.einsum("...hsk,...hsv->...hkv", k, v, precision=HIGHEST)
        mixed = jnp.einsum("...htk,...hkv->...htv", q, products, precision=HIGHEST) / length
    else:
        running = jnp.cumsum(k[..., :, None] * v[..., None, :], axis=-3)
        seen = jnp.arange(1, length + 1, dtype=x.dtype)[:, None]
        mixed = jnp.einsum("...htk,...htkv->...htv", q, running, precision=HIGHEST) / seen
    return jnp.einsum("hdv,...htv->...td", attention.output, mixed, precision=HIGHEST)


def _attend_by_lag(attention: Attention, constants: dict[str, Any], x: jax.Array, past: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Attention of heads that read lag slots: Σ_s e^{−ps} v_{t−s} or Σ_s s^{−p} v_{t−s}, times the factor of the position's lag."""
    values = jnp.moveaxis(jnp.einsum("hvd,...sd->...shv", attention.value, x, precision=HIGHEST), -3, 0)
    past_value = jnp.einsum("hvd,d->hv", attention.value, past, precision=HIGHEST)
    is_lin = attention.rpe[0] == "lin"
    if is_lin:
        mass = past_value / (1 - constants["ratio"])[:, None]
        if from_zero(constants):
            sums = mass + states(constants, values - past_value)
        else:
            sums = scan_states(constants["ratio"][:, None], mass, values)
    else:
        mass = past_value * jnp.sum(constants["taps"], axis=1)[:, None]
        sums = tap_sum(constants["taps"], values, past_value)
    mixed = lag_factor(constants, x)[..., None] * jnp.moveaxis(sums, 0, -3)
    output = jnp.einsum("hdv,...hv->...d", attention.output, mixed, precision=HIGHEST)
    return output, jnp.einsum("hdv,hv->d", attention.output, lag_factor(constants, past)[:, None] * mass, precision=HIGHEST)


def lag_factor(constants: dict[str, Any], x: jax.Array) -> jax.Array:
    """The factor of every head for the lag in its slot, (…, H)."""
    table = constants["factor"]
    lag = jnp.clip(jnp.take(x, constants["slot"], axis=-1), 0, table.shape[1] - 1).astype(int)
    return table[jnp.arange(table.shape[0]), lag]


@partial(jax.jit, static_argnames="last")
def step(layer: Layer, constants: dict[str, Any], x: jax.Array, past: jax.Array, last: bool) -> tuple[jax.Array, jax.Array]:
    """One layer, compiled."""
    attended, past_attended = attend(layer.attention, constants, x, past)
    return reference.feed(layer.feedforward, x + attended, past + past_attended, last)


def equal_runs(parts: Sequence[Any]) -> list[tuple[int, int]]:
    """(first, count) of neighbours with the same structure, shapes and types, which one loop goes through."""
    kinds = [(jax.tree.structure(part), [(np.shape(leaf), str(leaf.dtype)) for leaf in jax.tree.leaves(part)]) for part in parts]
    firsts = [k for k in range(len(kinds)) if k == 0 or kinds[k] != kinds[k - 1]]
    return [(first, after - first) for first, after in itertools.pairwise([*firsts, len(kinds)])]


def stacked(parts: Sequence[Any]) -> Any:
    """Equal parts as one, with an axis for which of them."""
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *parts)


def whole(network: Transformer, constants: tuple[dict[str, Any], ...], tokens: jax.Array) -> jax.Array:
    """The whole network on tokens (…, N, d): what the last layer gives, (…, N, c). Equal layers after each other are one loop."""
    state = reference.embed(network.first(0), tokens), jnp.asarray(network.bias)
    layers = list(zip(network.layers, constants, strict=True))
    for first, count in equal_runs(layers[:-1]):
        if count == 1:
            state = step(*layers[first], *state, False)
        else:
            state, _ = jax.lax.scan(lambda x, part: (step(*part, *x, False), None), state, stacked(layers[first : first + count]))
    return step(*layers[-1], *state, True)[0]


program, program_in_place = jax.jit(whole), jax.jit(whole, donate_argnames="tokens")


def compiled(network: Transformer, plain: Any = program, in_place: Any = program_in_place) -> Any:
    """The program as this network runs it: outputs are written over the device's copy of the tokens if they are as many numbers."""
    return in_place if network.outputs == network.dim else plain


def network_constants(network: Transformer, length: int, form: FormName = "scan") -> tuple[dict[str, np.ndarray], ...]:
    """The constants of every layer for arrays of a length, from lag tables where its heads read lag slots; lin heads in a form."""
    found = tuple(dict(known) for known in _constants(network, length))
    return found if form == "scan" else tuple(known | form_constants(form, known.get("ratio", np.zeros(0))) for known in found)


@Remembered
def _constants(network: Transformer, length: int) -> tuple[dict[str, np.ndarray], ...]:
    lagged = all(layer.attention.kind in ("nf", "tmx") and layer.attention.window == "infinite" for layer in network.layers)
    if lagged and network.positions is None:
        try:
            return tuple(layer.constants or {} for layer in lagged_layers(network))
        except InputError:
            pass
    return tuple(_array_constants(layer.attention, length) for layer in network.layers)


def _array_constants(attention: Attention, length: int) -> dict[str, np.ndarray]:
    """The constants of a layer without lag slots for arrays of a length."""
    if attention.window == "full" or attention.kind == "linear":
        return {}
    if attention.kind in ("dp", "nf"):
        return score_constants(attention, length)
    constants = head_constants(attention)
    if attention.kind == "tmx" and attention.window == "infinite":
        constants["whole"] = whole_masses(attention)
    heads, length = kernel_heads(attention, constants), -(-length // attention.stride)
    return constants if length > MAX_TAPS or not len(heads) else constants | kernel_constants(attention, list(heads), length)


COARSE = 64
"""Up to so many tokens, or sequences, buckets are powers of two; beyond, lengths have eight buckets between two of them."""


def bucket(count: int) -> int:
    """The least bucket that holds so many: lengths of one bucket share a program, which is at most an eighth longer than needed."""
    power = 1 << max(0, count - 1).bit_length()
    return power if power <= COARSE else -(-count // (power // 16)) * (power // 16)


def _filled(network: Transformer, tokens: np.ndarray) -> np.ndarray:
    """Tokens (…, N, d) whose lengths and batches fill their buckets, by the last token and the last sequence again.

    No position before them looks there, but in full windows, and neither do other sequences. Zeros could be tokens that the network is not
    made for.
    """
    *batch, length, _ = tokens.shape
    longer = bucket(length) if length and all(layer.attention.window != "full" for layer in network.layers) else length
    if network.positions is not None:
        longer = max(length, min(longer, len(network.positions)))
    more = [bucket(count) if 0 < count <= COARSE else count for count in batch]
    filling = [(0, after - before) for before, after in zip((*batch, length), (*more, longer), strict=True)]
    return np.pad(tokens, [*filling, (0, 0)], mode="edge") if any(after for _, after in filling) else tokens


def forward(network: Transformer, tokens: Any) -> np.ndarray:
    """Outputs (…, N), or (…, N, c) if there are several, of a float network on tokens (…, N, d), in the network's own dtype.

    One program is made for all layers and a bucket of lengths, so that new lengths seldom compile. Where what was filled up spoils a
    number, as a product of a weight 0 and an overflow does, the array runs as it is.
    """
    given = np.asarray(tokens)
    filled = _filled(network, given)
    found = _forward(network, filled)[tuple(slice(count) for count in given.shape[:-1])]
    return found if filled is given or np.isfinite(found).all() else _forward(network, given)


def _forward(network: Transformer, tokens: np.ndarray) -> np.ndarray:
    constants = network_constants(network, tokens.shape[-2], chosen())
    with with_x64(network.dtype):
        return reference.as_outputs(np.asarray(compiled(network)(network, constants, tokens.astype(network.dtype, copy=False))))
