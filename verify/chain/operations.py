"""The operations that float certificates speak of, as the fast executor asks a device for them.

An `Operations` takes arrays of numpy and returns such arrays, computed by somebody in the type `dtype`: by the device of JAX
(`JaxOperations`), in programs that are compiled like those of `constructions.run.fast` and from its own functions where it has them, or by
whatever a test puts in its place. Operands are always arguments of the compiled program, never constants that a compiler could fold or
replace by reciprocals: so are the weights and constants of networks.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from constructions.network.exponential import exp, power_of_two
from constructions.network.precision import HIGHEST, with_x64
from constructions.network.recurrences import associative_states, blocked_states, scan_states
from constructions.run import fast

FORMS = (
    "dk,...k->...d", "hvd,...sd->...shv", "hvd,...sd->...hsv", "hvd,d->hv", "hdv,...hv->...d", "hdv,...htv->...td", "hdv,hv->d",
    "hkd,...td->...htk", "hkd,...sd->...hsk", "...htk,...hsk->...hts", "...hts,...hsv->...htv", "hd,...d->...h",
    "...hsk,...hsv->...hkv", "...htk,...hkv->...htv", "...htk,...htkv->...htv",
    "hd,...td->...ht", "ijh,bj...hv->bi...hv", "hs,s...hv->...hv", "ij,...j->...i", "...d,md->...m", "...m,om->...o",
)  # fmt: skip
"""The products of matrices in certified passes, as `jnp.einsum` reads them."""
VALUES, NEURONS = "hvd,...sd->...shv", "...d,md->...m"
"""Two of them: values of tokens, and the inner half of a feed-forward network."""


class Operations(Protocol):
    """What a device does with numbers of one float type."""

    dtype: str

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray: ...

    def subtract(self, a: np.ndarray, b: np.ndarray) -> np.ndarray: ...

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray: ...

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray: ...

    def multiply_add(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        """ab + c in one program: what a compiler may fuse."""

    def contract(self, form: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """A product of matrices, one of `FORMS`."""

    def total(self, a: np.ndarray) -> np.ndarray:
        """Sums along the last axis."""

    def recur(self, ratio: np.ndarray, gain: np.ndarray, past: np.ndarray, values: np.ndarray) -> np.ndarray:
        """gS, S ← zS + v from S = past/g, for values (N, H, v), past (H, v), ratio z and gain g (H,)."""

    def recur_by_blocks(
        self, powers: np.ndarray, doubled: np.ndarray, gain: np.ndarray, past: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        """The same as past + gS, S ← zS + v − past from 0, in blocked form, from powers Z_0 … Z_C (C + 1, H) and Z_C, Z_2C, … of z."""

    def recur_by_doubling(self, doubled: np.ndarray, gain: np.ndarray, past: np.ndarray, values: np.ndarray) -> np.ndarray:
        """That in associative form, from powers Z_1, Z_2, Z_4, … (K, H)."""

    def tap(self, taps: np.ndarray, values: np.ndarray, past: np.ndarray) -> np.ndarray:
        """Σ_s taps_s v_{t−s} for taps (H, S)."""

    def exponential(self, x: np.ndarray) -> np.ndarray:
        """`constructions.network.exponential.exp`."""

    def mean(self, logits: np.ndarray, values: np.ndarray) -> np.ndarray:
        """Σ_s w_s v_s / Σ_s w_s, w_s = e^{a_s − max a}, for logits (B, H, T, S) and values (B, H, S, v)."""

    def power_of_two(self, n: np.ndarray) -> np.ndarray:
        """2ⁿ from its bits, for whole n."""

    def largest(self, a: np.ndarray) -> np.ndarray:
        """Maxima along the last axis."""

    def relu(self, a: np.ndarray) -> np.ndarray: ...

    def clip(self, a: np.ndarray, low: float, high: float) -> np.ndarray: ...

    def whole(self, a: np.ndarray) -> np.ndarray:
        """The nearest integer, ties to even."""

    def index(self, a: np.ndarray) -> np.ndarray:
        """Whole numbers as integers, by which tables are read."""


@partial(jax.jit, static_argnums=0)
def _contract(form: str, a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.einsum(form, a, b, precision=HIGHEST)


@jax.jit
def _recur(ratio: jax.Array, gain: jax.Array, past: jax.Array, values: jax.Array) -> jax.Array:
    return gain[:, None] * scan_states(ratio[:, None], past / gain[:, None], values)


@jax.jit
def _recur_by_blocks(powers: jax.Array, doubled: jax.Array, gain: jax.Array, past: jax.Array, values: jax.Array) -> jax.Array:
    return gain[:, None] * blocked_states(powers, doubled, values - past) + past


@jax.jit
def _recur_by_doubling(doubled: jax.Array, gain: jax.Array, past: jax.Array, values: jax.Array) -> jax.Array:
    return gain[:, None] * associative_states(doubled, values - past) + past


@jax.jit
def _mean(logits: jax.Array, values: jax.Array) -> jax.Array:
    weights = exp(logits - logits.max(axis=-1, keepdims=True))
    return jnp.einsum("...hts,...hsv->...htv", weights, values, precision=HIGHEST) / weights.sum(axis=-1, keepdims=True)


_ADD, _SUBTRACT, _MULTIPLY, _DIVIDE = (jax.jit(one) for one in (jnp.add, jnp.subtract, jnp.multiply, jnp.divide))
_MULTIPLY_ADD, _TOTAL, _LARGEST = jax.jit(lambda a, b, c: a * b + c), jax.jit(lambda a: a.sum(axis=-1)), jax.jit(lambda a: a.max(axis=-1))
_TAP, _EXP, _POWER, _RELU, _WHOLE = (jax.jit(one) for one in (fast.tap_sum, exp, power_of_two, jax.nn.relu, jnp.round))
_CLIP, _INDEX = jax.jit(jnp.clip, static_argnums=(1, 2)), jax.jit(lambda a: a.astype(int))


class JaxOperations:
    """What the device that JAX would use does; float64 inside JAX's own context, never by a global switch."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def _run(self, program: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
        with with_x64(self.dtype):
            return np.asarray(program(*(jnp.asarray(a, dtype=self.dtype) for a in arrays)))

    def add(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._run(_ADD, a, b)

    def subtract(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._run(_SUBTRACT, a, b)

    def multiply(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._run(_MULTIPLY, a, b)

    def divide(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._run(_DIVIDE, a, b)

    def multiply_add(self, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
        return self._run(_MULTIPLY_ADD, a, b, c)

    def contract(self, form: str, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return self._run(partial(_contract, form), a, b)

    def total(self, a: np.ndarray) -> np.ndarray:
        return self._run(_TOTAL, a)

    def recur(self, ratio: np.ndarray, gain: np.ndarray, past: np.ndarray, values: np.ndarray) -> np.ndarray:
        return self._run(_recur, ratio, gain, past, values)

    def recur_by_blocks(
        self, powers: np.ndarray, doubled: np.ndarray, gain: np.ndarray, past: np.ndarray, values: np.ndarray
    ) -> np.ndarray:
        return self._run(_recur_by_blocks, powers, doubled, gain, past, values)

    def recur_by_doubling(self, doubled: np.ndarray, gain: np.ndarray, past: np.ndarray, values: np.ndarray) -> np.ndarray:
        return self._run(_recur_by_doubling, doubled, gain, past, values)

    def tap(self, taps: np.ndarray, values: np.ndarray, past: np.ndarray) -> np.ndarray:
        return self._run(_TAP, taps, values, past)

    def exponential(self, x: np.ndarray) -> np.ndarray:
        return self._run(_EXP, x)

    def mean(self, logits: np.ndarray, values: np.ndarray) -> np.ndarray:
        return self._run(_mean, logits, values)

    def power_of_two(self, n: np.ndarray) -> np.ndarray:
        return self._run(_POWER, n)

    def largest(self, a: np.ndarray) -> np.ndarray:
        return self._run(_LARGEST, a)

    def relu(self, a: np.ndarray) -> np.ndarray:
        return self._run(_RELU, a)

    def clip(self, a: np.ndarray, low: float, high: float) -> np.ndarray:
        return self._run(lambda x: _CLIP(x, low, high), a)

    def whole(self, a: np.ndarray) -> np.ndarray:
        return self._run(_WHOLE, a)

    def index(self, a: np.ndarray) -> np.ndarray:
        return self._run(_INDEX, a)


def device() -> dict[str, str]:
    """The device that JAX would use."""
    found = jax.devices()[0]
    return {"platform": str(found.platform), "kind": str(found.device_kind), "jax": jax.__version__}
