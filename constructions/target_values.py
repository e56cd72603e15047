"""Targets as functions of arrays, for data: what a network is trained on, measured against and probed for.

`memories` gives (x_t, memory_1, …) at every position, `values` gives y_t; tokens before the array are zero, as for networks. Positions
from `settled` on see nothing of that zero past (kernels reach back for ever: their tokens count as zero there). Adaptive lags that reach
before the array find the zero token.

The functions run on numpy (float64, for measuring) or JAX arrays (for training); numbers made with them are sampled, never certified.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from analyzer.adaptive import AdaptiveMemory
from analyzer.couplings import CouplingTarget
from analyzer.errors import InputError
from analyzer.exact import nearest, working_precision
from analyzer.profiles import Profile
from analyzer.readout import ReadOut
from analyzer.targets import FixedMemory, KernelMemory, Target
from constructions.recipes import MAX_LENGTH

MAX_COMBINATIONS = 1 << 20
"""Entries of a lag table over all tokens of the parents: 4 MB."""

ArrayMap = Callable[[Any], Any]


def values(target: Target, xp: Any) -> ArrayMap:
    """Tokens (…, N, d) → y (…, N)."""
    if isinstance(target, CouplingTarget):
        coupled = target.compiled(xp)
        return lambda tokens: coupled(tokens[..., 0])
    seen, readout = memories(target, xp), read_out_values(target.readout, xp)
    return lambda tokens: readout(seen(tokens))


def read_out_values(readout: ReadOut, xp: Any) -> ArrayMap:
    """f on the last axis."""
    affine, constant = _floats(readout.affine), nearest(readout.constant)
    ridges = [(r.profile, nearest(r.scale), _floats(r.direction), nearest(r.offset)) for r in readout.ridges]

    def f(u: Any) -> Any:
        total = (u * xp.asarray(affine, u.dtype)).sum(-1) + constant
        for profile, scale, direction, offset in ridges:
            total = total + scale * _profile(profile, (u * xp.asarray(direction, u.dtype)).sum(-1) + offset, xp)
        return total

    return f


def _floats(numbers: Any) -> np.ndarray:
    return np.array([nearest(v) for v in numbers])


def _profile(profile: Profile, v: Any, xp: Any) -> Any:
    if profile.degree is not None:
        return v**profile.degree
    return xp.maximum(v, 0) if profile.name == "relu" else getattr(xp, profile.name)(v)


def memories(target: Target, xp: Any) -> ArrayMap:
    """Tokens (…, N, d) → (x_t, memories) as (…, N, coordinates)."""
    match target:
        case FixedMemory():
            return lambda tokens: xp.concatenate([_shifted(tokens, lag, xp) for lag in (0, *target.lags)], axis=-1)
        case KernelMemory():
            return _convolutions(target, xp)
        case AdaptiveMemory():
            return lambda tokens: _followed(target, tokens, xp)[0]
    raise InputError("a coupling reads all tokens at once: it has no memories")


def adaptive_lags(target: AdaptiveMemory, xp: Any) -> ArrayMap:
    """Tokens (…, N, d) → the lag of every memory, (…, N, M)."""
    return lambda tokens: _followed(target, tokens, xp)[1]


def settled(target: Target) -> int:
    """The first position whose lags lie inside the array, whatever the tokens."""
    match target:
        case FixedMemory():
            return target.lags[-1]
        case AdaptiveMemory():
            return max(max(target.occurring(k)) for k in range(len(target.memories)))
    return 0


def _shifted(tokens: Any, lag: int, xp: Any) -> Any:
    length = tokens.shape[-2]
    zeros = xp.zeros((*tokens.shape[:-2], min(lag, length), tokens.shape[-1]), tokens.dtype)
    return xp.concatenate([zeros, tokens[..., : max(0, length - lag), :]], axis=-2)


def _convolutions(target: KernelMemory, xp: Any) -> ArrayMap:
    def convolve(tokens: Any) -> Any:
        length = tokens.shape[-2]
        if length > MAX_LENGTH:
            raise InputError(f"sequences of {length} tokens are too long for a kernel; give at most {MAX_LENGTH}")
        distance = np.arange(length)[:, None] - np.arange(length)[None, :]
        parts = [tokens]
        for kernel in target.parsed:
            with working_precision(64):
                weights = np.array([float(v.mid()) for v in kernel.values(0, length)])
            matrix = np.where(distance >= 0, weights[np.maximum(distance, 0)], 0)
            parts.append(xp.matmul(xp.asarray(matrix, tokens.dtype), tokens))
        return xp.concatenate(parts, axis=-1)

    return convolve


def _followed(target: AdaptiveMemory, tokens: Any, xp: Any) -> tuple[Any, Any]:
    """(x_t, memories) and lags: every memory's parents are looked up in its lag table, then its token is fetched."""
    letters = xp.concatenate([xp.asarray(letters_of(target), tokens.dtype), xp.zeros((1, target.dim), tokens.dtype)])
    count = len(target.alphabet)
    index = ((tokens[..., None, :] - letters[:-1]) ** 2).sum(-1).argmin(-1)  # (…, N)
    steps = xp.arange(tokens.shape[-2])
    known: dict[int, Any] = {0: index}
    lags: dict[int, Any] = {}
    for k in (k for level in target.schedule(deep=False) for k in level):
        slots = [target.slot_index(name) for name in target.parents[target.names[k]]]
        if (count + 1) ** len(slots) > MAX_COMBINATIONS:
            raise InputError(f"the lag of {target.names[k]} depends on too many tokens at once for a table")
        table = np.ones([count + 1] * len(slots), dtype=np.int32)  # a parent before the array: any lag will do, nothing is there
        for tokens_of_parents, lag in target.lag_table(k).items():
            table[tokens_of_parents] = lag
        lags[k] = xp.asarray(table)[tuple(known[s] for s in slots)] + xp.zeros_like(index)
        place = steps - lags[k]
        fetched = xp.take_along_axis(index, xp.clip(place, 0, None), axis=-1)
        known[k + 1] = xp.where(place >= 0, fetched, count)
    order = range(len(target.memories))
    seen = xp.concatenate([letters[known[s]] for s in range(len(target.memories) + 1)], axis=-1)
    return seen, xp.stack([lags[k] for k in order], axis=-1)


def draw(target: Target, rng: np.random.Generator, shape: tuple[int, int], signs: bool = False) -> np.ndarray:
    """Random tokens (batch, N, d): letters of the alphabet if there is one, ±1 if wanted, else uniform on the target's domain."""
    match target:
        case AdaptiveMemory():
            return letters_of(target)[rng.integers(len(target.alphabet), size=shape)]
        case CouplingTarget():
            return rng.uniform(0, 1, (*shape, 1))
        case FixedMemory(alphabet=alphabet) if alphabet is not None:
            return _floats(alphabet)[rng.integers(len(alphabet), size=(*shape, target.dim))]
    if signs:
        return rng.choice([-1.0, 1.0], size=(*shape, target.dim))
    return rng.uniform(-1, 1, (*shape, target.dim))


def letters_of(target: AdaptiveMemory) -> np.ndarray:
    """The alphabet as floats, (letters, d)."""
    return np.array([[nearest(v) for v in token] for token in target.alphabet])


def token_dim(target: Target) -> int:
    return 1 if isinstance(target, CouplingTarget) else target.dim
