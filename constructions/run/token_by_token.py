"""The fast pass token by token, with a memory of fixed size, for sequences without end.

What a layer has to remember of the tokens before t, per head:

* lin: the state S_{t−1} of its scan, S_t = z S_{t−1} + v_t; heads with a stride c have one for each of the c interleaved sequences;
* taps (tables, and log and kerple heads that are short): the last values v_{t−1}, …, as many as the head has taps after its first.

Both start as the constant past of the layer leaves them: S = v/g (v/(1−z) for heads that read a lag), every value v.
The numbers z, g, taps and factors are those of `constructions.run.fast`, and they enter the same sums and products: in another order,
perhaps, which is all that the analysis of that pass leaves open (`verify.chain.rounding`: any order, fused or not). So every output of the
stream obeys the certificate of the network where lin heads are scanned (form "scan"), at any length.

Other heads have no memory of fixed size: softmax over scores, long log heads and finite windows look at all tokens again. They are refused.

Arrays of N tokens are cut into pieces of 2^k ≤ `LARGEST` tokens, so that all lengths together compile a few programs. Whole arrays that
are long run by blocks too (`forward`).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from analyzer.errors import InputError, Refusal
from analyzer.ranges import check_range
from constructions.network.precision import HIGHEST, check_device, with_x64
from constructions.network.recurrences import chosen
from constructions.network.remembered import Remembered
from constructions.network.transformer import Attention, Layer, Transformer, check_relative, check_tokens
from constructions.run import fast
from constructions.run.reference import SCORED, as_outputs, embed, feed_forward

LARGEST = 4096
"""Tokens of one piece: its values are held at once."""
LEAST, BLOCK, LEAST_BLOCK = 4096, 512, 16
"""Whole arrays run by blocks if they have at least so many tokens in all, and each sequence those of one block; tokens of all sequences in
a block, and the fewest of one sequence. From 256 to 1024 tokens the time of a block hardly changes per token."""
MAX_BATCH = 1 << 20

Constants = dict[str, Any]


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class HeadMemory:
    """What one layer remembers of the tokens so far."""

    states: Any  # (c, …, H_lin, dv): the scan states of the last c tokens, oldest first
    values: Any  # ((S−1)c, …, H_taps, dv): the last values, oldest first


Memory = tuple[HeadMemory, ...]


def split(attention: Attention, constants: Constants) -> tuple[np.ndarray, np.ndarray]:
    """The heads that are scanned, and those that are summed tap by tap."""
    every = np.arange(len(attention.rpe))
    if "factor" in constants:
        return (every, every[:0]) if attention.rpe[0] == "lin" else (every[:0], every)
    scanned = attention.heads_of("lin")
    return scanned, np.setdiff1d(every, scanned)


def check_streamed(network: Transformer, constants: tuple[Constants, ...]) -> None:
    """Refuse networks whose heads need all tokens so far."""
    if network.dtype == "exact":
        raise Refusal("streams run in floats, and this network is exact", {"dtype": "float64"})
    check_relative(network, "a memory of fixed size")
    obstacle = _obstacle(network, constants)
    if obstacle is not None:
        raise Refusal(f"{obstacle}; lin and table heads have one, and log heads that decay fast")


def _obstacle(network: Transformer, constants: tuple[Constants, ...]) -> str | None:
    """Which layer needs all tokens so far, and why; None if there is none."""
    for number, (layer, known) in enumerate(zip(network.layers, constants, strict=True), start=1):
        attention = layer.attention
        if "factor" in known:
            continue
        if attention.window != "infinite":
            why = f"a softmax over a {attention.window} window divides by what is in the window"
        elif attention.kind in SCORED:
            why = f"{attention.kind} heads score every token again"
        elif len(fast.kernel_heads(attention, known)):
            why = f"heads with so slow a decay have more than {fast.MAX_TAPS} taps"
        else:
            continue
        return f"layer {number} has no memory of fixed size: {why}"
    return None


class TokenByToken:
    """A float network that is given its tokens one after the other, or some at a time."""

    def __init__(self, network: Transformer) -> None:
        self.network = network
        self.constants = fast.network_constants(network, 1) if network.dtype != "exact" else ({},) * len(network.layers)
        check_streamed(network, self.constants)
        check_device(network.dtype)

    def start(self, batch: int | None = None) -> Memory:
        """The memory before the first token, of one sequence or of a batch of them."""
        if batch is not None:
            check_range("batch", batch, 1, MAX_BATCH)
        shape = () if batch is None else (batch,)
        with with_x64(self.network.dtype):
            return beginning(self.network, self.constants, shape)

    def step(self, memory: Memory, token: Any) -> tuple[Memory, np.ndarray]:
        """The output at the next token (d,) or (batch, d), and the memory after it; the given one stays as it is."""
        memory, outputs = self.feed(memory, np.asarray(token)[..., None, :])
        return memory, outputs[0] if batch_of(memory) is None else outputs[:, 0]

    def feed(self, memory: Memory, tokens: Any) -> tuple[Memory, np.ndarray]:
        """The outputs at the next tokens (N, d) or (batch, N, d), and the memory after them."""
        given = check_tokens(self.network, tokens)
        wanted = batch_of(memory)
        if (given.shape[0] if given.ndim == 3 else None) != wanted:
            kept = "one sequence" if wanted is None else f"{wanted} sequences"
            raise InputError(f"tokens have shape {given.shape}; this memory is of {kept}")
        outputs = []
        with with_x64(self.network.dtype):
            for piece in pieces(given.shape[-2]):
                memory, found = _advanced(self.network, self.constants, memory, jnp.asarray(given[..., piece, :], self.network.dtype))
                outputs.append(np.asarray(found))
        return memory, np.concatenate(outputs, axis=0 if wanted is None else 1)


def forward(network: Transformer, tokens: np.ndarray) -> np.ndarray:
    """As `fast.forward`; block by block if there are many tokens and the network has a memory of fixed size.

    What a block holds stays in a processor's cache, and lengths up to the same power of two share a program: zeros fill up what is behind
    the last token, where nobody looks.
    """
    many, length = tokens.size // network.dim, tokens.shape[-2]
    if many < LEAST or length < BLOCK or network.positions is not None or chosen() != "scan":
        return fast.forward(network, tokens)
    constants = _of_fixed_memory(network)
    if constants is None:
        return fast.forward(network, tokens)
    filled = 1 << (length - 1).bit_length()
    block = 1 << (min(filled, max(LEAST_BLOCK, BLOCK * length // many)).bit_length() - 1)
    given = tokens.astype(network.dtype, copy=False)
    if filled > length:
        given = np.pad(given, [*[(0, 0)] * (tokens.ndim - 2), (0, filled - length), (0, 0)])
    with with_x64(network.dtype):
        return as_outputs(np.asarray(compiled(network)(network, constants, given, block))[..., :length, :])


@Remembered
def _of_fixed_memory(network: Transformer) -> tuple[Constants, ...] | None:
    """The constants of all layers; None if one of them has no memory of fixed size."""
    constants = fast.network_constants(network, 1)
    return constants if _obstacle(network, constants) is None else None


def _by_blocks(network: Transformer, constants: tuple[Constants, ...], tokens: jax.Array, block: int) -> jax.Array:
    """Outputs (…, N, c) for tokens (…, N, d), N a multiple of the block."""
    parts = jnp.moveaxis(tokens.reshape(*tokens.shape[:-2], -1, block, tokens.shape[-1]), -3, 0)
    found = jax.lax.scan(partial(_layers, network, constants), beginning(network, constants, tokens.shape[:-2]), parts)[1]
    return jnp.moveaxis(found, 0, -3).reshape(*tokens.shape[:-1], found.shape[-1])


_plain, _in_place = (jax.jit(_by_blocks, static_argnames="block", donate_argnames=given) for given in ((), "tokens"))


def compiled(network: Transformer) -> Any:
    """The program by blocks as this network runs it."""
    return fast.compiled(network, _plain, _in_place)


def pieces(length: int) -> Iterator[slice]:
    """Slices of 2^k ≤ LARGEST tokens, the large ones first."""
    start = 0
    while start < length:
        size = min(LARGEST, 1 << ((length - start).bit_length() - 1))
        yield slice(start, start + size)
        start += size


def batch_of(memory: Memory) -> int | None:
    """How many sequences a memory is of; None for one without an axis for them."""
    shape = memory[0].states.shape
    return int(shape[1]) if len(shape) == 4 else None


def beginning(network: Transformer, constants: tuple[Constants, ...], shape: tuple[int, ...]) -> Memory:
    """The memory of all layers before the first token, for sequences of this shape."""
    past, found = jnp.asarray(network.bias), []
    for index, (layer, known) in enumerate(zip(network.layers, constants, strict=True)):
        found.append(_begun(layer.attention, known, past, shape))
        if index < len(network.layers) - 1:
            _, past = fast.step(layer, known, past[None], past, False)
    return tuple(found)


def _begun(attention: Attention, constants: Constants, past: jax.Array, shape: tuple[int, ...]) -> HeadMemory:
    """What a layer remembers of the constant past."""
    value = jnp.einsum("hvd,d->hv", attention.value, past, precision=HIGHEST)
    scanned, tapped = split(attention, constants)
    mass = 0 if not len(scanned) else 1 - constants["ratio"][:, None] if "factor" in constants else constants["gain"][:, None]
    states = value[scanned] / mass if len(scanned) else value[scanned]
    kept = max(0, constants["taps"].shape[1] - 1) * attention.stride if len(tapped) else 0
    return HeadMemory(
        jnp.broadcast_to(states, (attention.stride, *shape, *states.shape)),
        jnp.broadcast_to(value[tapped], (kept, *shape, len(tapped), value.shape[1])),
    )


@jax.jit
def _advanced(network: Transformer, constants: tuple[Constants, ...], memory: Memory, tokens: jax.Array) -> tuple[Memory, jax.Array]:
    """All layers on a piece (…, N, d), one compiled program."""
    memory, x = _layers(network, constants, memory, tokens)
    return memory, as_outputs(x)


def _layers(network: Transformer, constants: tuple[Constants, ...], memory: Memory, tokens: jax.Array) -> tuple[Memory, jax.Array]:
    """The memory after tokens (…, N, d), and what the last layer gives there, (…, N, c)."""
    x, after = embed(network, tokens), list[HeadMemory]()
    layers = list(zip(network.layers, constants, memory, strict=True))
    for first, count in fast.equal_runs(layers[:-1]):
        if count == 1:
            held, x = advance(*layers[first], x, False)
            after.append(held)
        else:
            x, kept = jax.lax.scan(_inner_layer, x, fast.stacked(layers[first : first + count]))
            after += [jax.tree.map(itemgetter(k), kept) for k in range(count)]
    held, x = advance(*layers[-1], x, True)
    return (*after, held), x


def _inner_layer(x: jax.Array, part: tuple[Layer, Constants, HeadMemory]) -> tuple[jax.Array, HeadMemory]:
    """What a layer that is not the last gives at tokens (…, N, D), and its memory after them."""
    held, x = advance(*part, x, False)
    return x, held


def advance(layer: Layer, constants: Constants, memory: HeadMemory, x: jax.Array, last: bool) -> tuple[HeadMemory, jax.Array]:
    """One layer on x (…, N, D)."""
    attention = layer.attention
    values = jnp.moveaxis(jnp.einsum("hvd,...sd->...shv", attention.value, x, precision=HIGHEST), -3, 0)
    scanned, tapped = split(attention, constants)
    states, kept, parts = memory.states, memory.values, []
    if len(scanned):
        states, found = scanned_states(constants["ratio"][:, None], states, values[..., scanned, :])
        plain = "factor" in constants or attention.kind == "tmx"
        parts.append(found if plain else constants["gain"][:, None] * found)
    if len(tapped):
        kept, found = _tapped(constants["taps"], attention.stride, kept, values[..., tapped, :])
        parts.append(found)
    mixed = jnp.concatenate(parts, axis=-2)[..., np.argsort(np.concatenate([scanned, tapped])), :]
    mixed = jnp.moveaxis(mixed, 0, -3)
    if "factor" in constants:
        mixed = fast.lag_factor(constants, x)[..., None] * mixed
    elif attention.kind == "tmx":
        mixed = fast.stretch(attention, x)[..., None] * mixed
    attended = x + jnp.einsum("hdv,...hv->...d", attention.output, mixed, precision=HIGHEST)
    change = feed_forward(layer.feedforward, attended)
    return HeadMemory(states, kept), change if last else attended + change


def scanned_states(ratio: Any, states: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """S_t = z S_{t−c} + v_t along the first axis; `states` are the last c."""

    def step(held: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = ratio * held[0] + value
        return jnp.concatenate([held[1:], state[None]]), state

    return jax.lax.scan(step, states, values)


def _tapped(taps: Any, stride: int, kept: jax.Array, values: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Σ_s taps_s v_{t−cs}; `kept` are the values before the piece."""
    length, count = values.shape[0], taps.shape[1]
    known = jnp.concatenate([kept, values])
    if length == 1:
        return known[1:], jnp.einsum("hs,s...hv->...hv", taps[:, ::-1], known[::stride], precision=HIGHEST)[None]

    def add(total: jax.Array, s: jax.Array) -> tuple[jax.Array, None]:
        return total + taps[:, s][:, None] * jax.lax.dynamic_slice_in_dim(known, (count - 1 - s) * stride, length), None

    total, _ = jax.lax.scan(add, jnp.zeros_like(values), jnp.arange(count))
    return known[length:], total
