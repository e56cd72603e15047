"""The recurrence S_t = z S_{t−1} + v_t of lin heads, S_{−1} = 0, in three forms: the same sums in other orders.

* scan: one step after the other, N of them. What processors like, and what a memory of fixed size needs.
* associative: a ← a + Z_w · (a, shifted by w) for w = 1, 2, 4, …: after k of these a_t is the sum over a window of 2^k tokens. All tokens
  at once, and as many steps as it takes until z^w ≤ u/SPARE: what is left out there is less than a rounding, and N does not matter.
* blocked: tokens of a block of C = BLOCK are added by one triangular matrix (Z_{i−j})_{i≥j}; states at the ends of blocks are sums of what
  these gave there, in associative form with z^C for z; and what lies before a block enters it by Z_{i+1} times the state at its start. A
  product of matrices, and windows on one number in C.

Z_k = fl(z^k) is computed in balls outside XLA, |Z_k − z^k| ≤ u z^k + η with η the least normal number. A constant past c, whose state is
c/(1−z), is taken off every token and added again: S_t = c/(1−z) + Σ_s z^s (v_{t−s} − c), so that every form starts from 0. Products with
zeros of the triangular matrix are zero only where all tokens of a block are finite, as certified ones are.

`verify.chain.rounding` has the error analysis of every form, and `using` says which one runs and is certified: what is certified is what
runs. Which is fastest depends on the device (`benchmarks/forms.py`): processors take scans, as their steps cost nothing; other devices wait
for steps that follow each other, and for numbers to be moved, more than they compute, and take blocks.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, get_args

import jax
import jax.numpy as jnp
import numpy as np
from flint import arb

from analyzer.errors import InputError
from analyzer.families import FormName
from analyzer.numbers.exact import UNIT, rational, working_precision
from constructions.network.precision import HIGHEST

BLOCK = 64
"""Tokens of a block: from 32 to 128 the time of a step of training hardly changes."""
SPARE = 8
"""Windows of the associative form end where the share z^w of what lies before them is at most u/SPARE."""
MOST_LEVELS = 64
"""Windows of 2^64 tokens hold every array: no head is that slow."""
REMEMBERED = 32
"""Layers whose constants are kept."""
FORMS: tuple[FormName, ...] = get_args(FormName)
_CHOSEN: ContextVar[FormName | None] = ContextVar("form", default=None)


@contextmanager
def using(form: FormName) -> Iterator[None]:
    """Within this context the fast pass runs, and certificates count, this form."""
    if form not in FORMS:
        raise InputError(f"unknown form {str(form)[:40]!r}; choose from {', '.join(FORMS)}")
    token = _CHOSEN.set(form)
    try:
        yield
    finally:
        _CHOSEN.reset(token)


def chosen() -> FormName:
    """The form of this context; a scan where none was chosen."""
    return _CHOSEN.get() or "scan"


def pinned() -> FormName | None:
    """The form of this context, if one was chosen."""
    return _CHOSEN.get()


def of_device() -> FormName:
    """The form that suits the device that JAX would use."""
    return "scan" if jax.default_backend() == "cpu" else "blocked"


def levels(ratio: float, dtype: str, base: int = 1) -> int:
    """Steps of the associative form for a head: the least k with z^(base·2^k) ≤ u/SPARE; `base` is C for the ends of blocks."""
    least, power, count = float(arb(UNIT[dtype])) / SPARE, float(ratio) ** base, 0
    while power > least and count < MOST_LEVELS:
        power, count = power * power, count + 1
    return count


def form_constants(form: FormName, ratios: np.ndarray) -> dict[str, np.ndarray]:
    """What a form needs beside the ratios z of its heads: `powers` Z_0 … Z_C (C + 1, H) for blocks, and `doubled` (K, H) for windows,

    Z_1, Z_2, Z_4, … of tokens in associative form, Z_C, Z_2C, … of blocks in blocked form. Behind a head's own last step `doubled` is 0,
    and its sums stay as they are.
    """
    return {} if form == "scan" or not len(ratios) else dict(_form_constants(form, np.asarray(ratios).tobytes(), str(ratios.dtype)))


@lru_cache(maxsize=REMEMBERED)
def _form_constants(form: FormName, stored: bytes, dtype: str) -> dict[str, np.ndarray]:
    ratios = np.frombuffer(stored, dtype)
    if form == "associative":
        return {"doubled": _doubled(ratios, 1)}
    with working_precision(160):
        powers = [[float(arb(rational(float(z))) ** k) for z in ratios] for k in range(BLOCK + 1)]
    return {"powers": np.array(powers).astype(dtype), "doubled": _doubled(ratios, BLOCK)}


def _doubled(ratios: np.ndarray, base: int) -> np.ndarray:
    counts = [levels(float(z), str(ratios.dtype), base) for z in ratios]
    found = np.zeros((max(counts), len(ratios)), ratios.dtype)
    with working_precision(160):
        for h, (z, count) in enumerate(zip(ratios, counts, strict=True)):
            power = arb(rational(float(z))) ** base
            for k in range(count):
                found[k, h] = float(power)
                power = power * power
    return found


def from_zero(constants: dict[str, Any]) -> bool:
    """Whether the constants are made for a form that starts from 0, with the constant past taken off every token."""
    return "doubled" in constants


def states(constants: dict[str, Any], values: jax.Array) -> jax.Array:
    """S_t for values (N, …, H, v), from 0, in the form that the constants are made for."""
    if "powers" in constants:
        return blocked_states(constants["powers"], constants["doubled"], values)
    if "doubled" in constants:
        return associative_states(constants["doubled"], values)
    return scan_states(constants["ratio"][:, None], jnp.zeros(values.shape[1:], values.dtype), values)


def scan_states(ratio: jax.Array, start: jax.Array, values: jax.Array) -> jax.Array:
    """S_t = z S_{t−1} + v_t along the first axis, from any start."""

    def step(state: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = ratio * state + value
        return state, state

    return jax.lax.scan(step, jnp.broadcast_to(start, values.shape[1:]), values)[1]


def blocked_states(powers: jax.Array, doubled: jax.Array, values: jax.Array) -> jax.Array:
    """The same from 0 by blocks of C tokens, from powers Z_0 … Z_C (C + 1, H) and Z_C, Z_2C, Z_4C, … (K, H) of the ratios."""
    length, size = len(values), len(powers) - 1
    padded = jnp.pad(values, ((0, -length % size), *[(0, 0)] * (values.ndim - 1)))
    blocks = padded.reshape(-1, size, *values.shape[1:])  # what is filled up at the end is seen by nobody before it
    distance = np.arange(size)[:, None] - np.arange(size)[None, :]
    within = jnp.where(distance[..., None] >= 0, powers[np.maximum(distance, 0)], 0)
    own = jnp.einsum("ijh,bj...hv->bi...hv", within, blocks, precision=HIGHEST)
    before = jnp.pad(associative_states(doubled, own[:-1, -1]), ((1, 0), *[(0, 0)] * (values.ndim - 1)))
    fading = powers[1:].reshape(size, *[1] * (values.ndim - 3), -1, 1)
    return (own + fading * before[:, None]).reshape(-1, *values.shape[1:])[:length]


def associative_states(doubled: jax.Array, values: jax.Array) -> jax.Array:
    """The same from 0 by windows of 1, 2, 4, … tokens, from powers Z_1, Z_2, Z_4, … (K, H) of the ratios."""
    for level, power in enumerate(doubled):
        shift = 1 << level
        if shift >= len(values):
            break
        shifted = jnp.pad(values[:-shift], ((shift, 0), *[(0, 0)] * (values.ndim - 1)))
        values = values + power[:, None] * shifted
    return values
