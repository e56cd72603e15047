"""The fast pass on several devices: sequences spread over them, or one array cut into a section for each.

Hypotheses. The network is of floats, the D devices are alike and compute as `verify.chain.device` asks of one. For cuts along the array
every layer has a memory of fixed size, as in `constructions.run.token_by_token`; other networks are refused.

**Sequences.** Sequences do not interact: each device runs the operations of the fast pass on its own, with the whole network. The
certificate speaks of every sequence by itself, in any batch and any order of the sums, so it holds unchanged. Zeros fill up the
last devices.

**Sections.** The array is cut into D sections of L tokens, L a multiple of every stride; zeros fill up the last, where nobody looks. In
every layer a device needs the memory at the start of its section k:

* lin heads: the states obey S_{k+1} = z^L S_k + F_k, F_k being the section's own state, scanned from 0. All F_k are computed at once and
  exchanged, and each device adds up those before it from S_0, the state of the constant past. With a stride c it is z^{L/c}.
  Z = fl(z^L) is computed in balls outside XLA, |Z − z^L| ≤ u z^L + η.
* taps: the last values of the sections before, each sent on to the devices that need it; before the array the constant past.

From there on a device runs its section as `token_by_token` does. So taps, projections and neurons are the sums of the fast pass. The states
at the cuts have two operations and a constant more than those of a scan, which the analysis of a scan does not count:
`verify.chain.rounding.Arithmetic.passed` bounds them, and a certificate that is asked for this way (`verify(section=L)`) has them in it,
for all sections of L tokens or more.

Scans run twice, everything else once: D devices take 2/D of the time for scans, and 1/D for products of matrices.
"""

import math
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from flint import arb
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from analyzer.errors import InputError, Refusal
from analyzer.families import FormName
from analyzer.numbers.exact import working_precision
from constructions.network.precision import HIGHEST, check_device, with_x64
from constructions.network.recurrences import chosen
from constructions.network.transformer import Attention, Transformer, to_exact
from constructions.run import fast, token_by_token
from constructions.run.reference import as_outputs, embed
from constructions.run.token_by_token import Constants, HeadMemory

AXIS = "devices"


def mesh_of(count: int) -> Mesh:
    """The first `count` devices of JAX in a row."""
    found = jax.devices()
    if not 1 <= count <= len(found):
        here = f"{len(found)} device{'s' * (len(found) > 1)} of the kind {found[0].device_kind}"
        raise InputError(f"devices is {count}; JAX has {here} here")
    return Mesh(np.array(found[:count]), (AXIS,))


def section_of(network: Transformer, tokens: np.ndarray, count: int) -> int | None:
    """Tokens of a section if an array is cut along its length; None if its sequences are spread.

    They are spread if there is one for every device, or if there are several and the network has no memory of fixed size.
    """
    if network.dtype == "exact":
        raise Refusal("several devices run networks of floats, and this one is exact", {"dtype": "float64"})
    sequences, length = int(np.prod(tokens.shape[:-2])), tokens.shape[-2]
    if sequences >= count:
        return None
    try:
        step = check_cut(network)
    except Refusal:
        if sequences > 1:
            return None
        raise
    return -(-length // (count * step)) * step


def check_cut(network: Transformer) -> int:
    """Tokens that sections are multiples of, so that every stride fits; networks that need all tokens so far are refused."""
    try:
        token_by_token.check_streamed(network, fast.network_constants(network, 1) if network.dtype != "exact" else ())
    except Refusal as refusal:
        raise Refusal(f"one sequence is cut into a section for every device: {refusal.reason}", *refusal.remedies) from None
    return math.lcm(*(layer.attention.stride for layer in network.layers))


def forward(network: Transformer, tokens: np.ndarray, count: int, asked: FormName | None = None) -> np.ndarray:
    """Outputs (…, N), or (…, N, c) if there are several, of a float network on tokens (…, N, d), by `count` devices.

    Sections are scanned: a form that was asked for is refused there, if it is another.
    """
    mesh, section = mesh_of(count), section_of(network, tokens, count)
    check_device(network.dtype)
    if section is None:
        return _by_sequences(network, tokens, mesh)
    if asked not in (None, "scan"):
        raise Refusal("an array that devices share is cut into sections, and sections are scanned", {"form": "scan"}, {"devices": 1})
    return _by_sections(network, tokens, mesh, section)


def _by_sequences(network: Transformer, tokens: np.ndarray, mesh: Mesh) -> np.ndarray:
    """Tokens (batch, N, d), as many sequences on every device."""
    batch = len(tokens)
    padded = np.pad(tokens, ((0, -batch % mesh.size), (0, 0), (0, 0))).astype(network.dtype)
    constants = fast.network_constants(network, tokens.shape[-2], chosen())
    with with_x64(network.dtype):
        spread = jax.device_put(padded, NamedSharding(mesh, PartitionSpec(AXIS)))
        return as_outputs(np.asarray(_spread(mesh, network, constants, spread))[:batch])


@partial(jax.jit, static_argnums=0)
def _spread(mesh: Mesh, network: Transformer, constants: tuple[Constants, ...], tokens: jax.Array) -> jax.Array:
    """The fast pass on every device's sequences, compiled."""
    own, alike = PartitionSpec(AXIS), PartitionSpec()
    run = jax.shard_map(fast.program, mesh=mesh, in_specs=(alike, alike, own), out_specs=own, check_vma=False)
    return run(network, constants, tokens)


def _by_sections(network: Transformer, tokens: np.ndarray, mesh: Mesh, section: int) -> np.ndarray:
    """Tokens (…, N, d), the k-th section of every sequence on the k-th device."""
    length, constants = tokens.shape[-2], fast.network_constants(network, 1)
    powers = tuple(
        passing_ratios(layer.attention, known, section // layer.attention.stride)
        for layer, known in zip(network.layers, constants, strict=True)
    )
    filled = [*[(0, 0)] * (tokens.ndim - 2), (0, section * mesh.size - length), (0, 0)]
    with with_x64(network.dtype):
        found = _sections(mesh, network, constants, powers, np.pad(tokens, filled).astype(network.dtype))
        return np.asarray(as_outputs(found[..., :length, :]))


def passing_ratios(attention: Attention, constants: Constants, steps: int) -> np.ndarray:
    """Z = fl(z^n) for the stored ratios z of lin heads and n steps: |Z − z^n| ≤ u z^n + η.

    Rounding to nearest is off by at most u/(1+u), which leaves room for the ball and for float32's way through float64.
    """
    ratio = constants["ratio"]
    scanned, _ = token_by_token.split(attention, constants)
    with working_precision(160):
        return np.array([float(arb(z) ** steps) for z in to_exact(ratio)[: len(scanned)]]).astype(np.asarray(ratio).dtype)


@partial(jax.jit, static_argnums=0)
def _sections(
    mesh: Mesh, network: Transformer, constants: tuple[Constants, ...], powers: tuple[np.ndarray, ...], tokens: jax.Array
) -> jax.Array:
    """Outputs (…, N, c) for tokens (…, N, d), N a multiple of the devices, all layers in one program."""
    cut, alike = PartitionSpec(*[None] * (tokens.ndim - 2), AXIS), PartitionSpec()
    given = (alike, alike, alike, cut)
    run = jax.shard_map(partial(_section, mesh.size), mesh=mesh, in_specs=given, out_specs=cut, check_vma=False)
    return run(network, constants, powers, tokens)


def _section(
    count: int, network: Transformer, constants: tuple[Constants, ...], powers: tuple[np.ndarray, ...], tokens: jax.Array
) -> jax.Array:
    """What one of `count` devices does with its tokens (…, L, d)."""
    first = token_by_token.beginning(network, constants, tokens.shape[:-2])
    x = embed(network, tokens)
    for index, (layer, known, power) in enumerate(zip(network.layers, constants, powers, strict=True)):
        memory = _passed(count, layer.attention, known, power, first[index], x)
        _, x = token_by_token.advance(layer, known, memory, x, index == len(network.layers) - 1)
    return x


def _passed(count: int, attention: Attention, constants: Constants, power: np.ndarray, first: HeadMemory, x: jax.Array) -> HeadMemory:
    """The memory of a layer at the start of this device's section; `first` is that at the start of the array."""
    values = jnp.moveaxis(jnp.einsum("hvd,...sd->...shv", attention.value, x, precision=HIGHEST), -3, 0)
    scanned, tapped = token_by_token.split(attention, constants)
    states, kept = first.states, first.values
    if len(scanned):
        own, _ = token_by_token.scanned_states(constants["ratio"][:, None], jnp.zeros_like(states), values[..., scanned, :])
        states = _passed_states(count, power[:, None], states, own)
    if kept.shape[0]:
        kept = _passed_values(count, kept, values[..., tapped, :])
    return HeadMemory(states, kept)


def _passed_states(count: int, power: np.ndarray, first: jax.Array, own: jax.Array) -> jax.Array:
    """S_k of this device from S_0 and the sections' own states: S ← Z S + F_j for all j < k."""
    place, every, state = jax.lax.axis_index(AXIS), jax.lax.all_gather(own, AXIS), first
    for j in range(count - 1):
        state = jnp.where(j < place, power * state + every[j], state)
    return state


def _passed_values(count: int, first: jax.Array, own: jax.Array) -> jax.Array:
    """The values before this device's section, as many as `first` has; `own` are those of the section."""
    place, (wanted, length) = jax.lax.axis_index(AXIS), (first.shape[0], own.shape[0])
    found: list[jax.Array] = []
    for hop in range(1, -(-wanted // length) + 1):
        most = min(length, wanted - (hop - 1) * length)
        sent = jax.lax.ppermute(own[length - most :], AXIS, [(k, k + hop) for k in range(count - hop)])
        found.insert(0, jnp.where(place >= hop, sent, first[:most]))
    return jnp.concatenate(found)
