"""The recurrence S_t = z S_{t−1} + v_t of lin heads, S_{−1} = 0, in three forms: the same sums in other orders.

* scan: one step after the other, N of them. What processors like, and what a memory of fixed size needs.
* blocked: BLOCK tokens at a time. Tokens of a block are added by one triangular matrix (Z_{i−j})_{i≥j}, what lies before the block by
  Z_{i+1} times the state B at its end, B ← Z_BLOCK B + (the block's own sum): products of matrices, and N/BLOCK steps.
* associative: a ← a + Z_w · (a, shifted by w) for w = 1, 2, 4, …: after k of these a_t is the sum over a window of 2^k tokens. All tokens
  at once, and as many steps as it takes until z^w ≤ u/SPARE: what is left out there is less than a rounding, and N does not matter.

Z_k = fl(z^k) is computed in balls outside XLA, |Z_k − z^k| ≤ u z^k + η with η the least normal number. A constant past c, whose state is
c/(1−z), is taken off every token and added again: S_t = c/(1−z) + Σ_s z^s (v_{t−s} − c), so that every form starts from 0.

`verify.chain.rounding` has the error analysis of every form, and `using` says which one runs and is certified: what is certified is what
runs. Which is fastest depends on the device (`benchmarks/forms.py`); processors take scans, and other devices the associative form, as
they wait longer for one step after the other than they compute.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
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
FORMS: tuple[FormName, ...] = get_args(FormName)
_CHOSEN: ContextVar[FormName] = ContextVar("form", default="scan")


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
    return _CHOSEN.get()


def of_device() -> FormName:
    """The form that suits the device that JAX would use."""
    return "scan" if jax.default_backend() == "cpu" else "associative"


def levels(ratio: float, dtype: str) -> int:
    """Steps of the associative form for a head: the least k with z^(2^k) ≤ u/SPARE."""
    least, power, count = float(arb(UNIT[dtype])) / SPARE, float(ratio), 0
    while power > least and count < MOST_LEVELS:
        power, count = power * power, count + 1
    return count


def form_constants(form: FormName, ratios: np.ndarray) -> dict[str, np.ndarray]:
    """What a form needs beside the ratios z of its heads: `powers` Z_0 … Z_BLOCK (BLOCK + 1, H), or `doubled` Z_1, Z_2, Z_4, … (K, H).

    Behind a head's own last step `doubled` is 0, and its sums stay as they are.
    """
    if form == "scan" or not len(ratios):
        return {}
    exact, dtype = [rational(float(z)) for z in ratios], str(ratios.dtype)
    if form == "blocked":
        with working_precision(160):
            return {"powers": np.array([[float(arb(z) ** k) for z in exact] for k in range(BLOCK + 1)]).astype(dtype)}
    counts = [levels(float(z), dtype) for z in ratios]
    doubled = np.zeros((max(counts), len(exact)), dtype)
    with working_precision(160):
        for h, (z, count) in enumerate(zip(exact, counts, strict=True)):
            power = arb(z)
            for k in range(count):
                doubled[k, h] = float(power)
                power = power * power
    return {"doubled": doubled}


def from_zero(constants: dict[str, Any]) -> bool:
    """Whether the constants are made for a form that starts from 0, with the constant past taken off every token."""
    return "powers" in constants or "doubled" in constants


def states(constants: dict[str, Any], values: jax.Array) -> jax.Array:
    """S_t for values (N, …, H, v), from 0, in the form that the constants are made for."""
    if "powers" in constants:
        return blocked_states(constants["powers"], jnp.zeros(values.shape[1:], values.dtype), values)
    if "doubled" in constants:
        return associative_states(constants["doubled"], values)
    return scan_states(constants["ratio"][:, None], jnp.zeros(values.shape[1:], values.dtype), values)


def scan_states(ratio: jax.Array, start: jax.Array, values: jax.Array) -> jax.Array:
    """S_t = z S_{t−1} + v_t along the first axis, from any start."""

    def step(state: jax.Array, value: jax.Array) -> tuple[jax.Array, jax.Array]:
        state = ratio * state + value
        return state, state

    return jax.lax.scan(step, jnp.broadcast_to(start, values.shape[1:]), values)[1]


def blocked_states(powers: jax.Array, start: jax.Array, values: jax.Array) -> jax.Array:
    """The same by blocks, from powers Z_0 … Z_C (C + 1, H) of the ratios."""
    length, size = len(values), len(powers) - 1
    padded = jnp.pad(values, ((0, -length % size), *[(0, 0)] * (values.ndim - 1)))
    blocks = padded.reshape(-1, size, *values.shape[1:])  # what is filled up at the end is seen by nobody before it
    distance = np.arange(size)[:, None] - np.arange(size)[None, :]
    within = jnp.where(distance[..., None] >= 0, powers[np.maximum(distance, 0)], 0)
    own = jnp.einsum("ijh,bj...hv->bi...hv", within, blocks, precision=HIGHEST)

    def step(state: jax.Array, last: jax.Array) -> tuple[jax.Array, jax.Array]:
        return powers[size][:, None] * state + last, state

    before = jax.lax.scan(step, jnp.broadcast_to(start, own.shape[2:]), own[:, -1])[1]  # (blocks, …, H, v)
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
