"""Float types: their unit roundoff, and float64 without a global switch.

JAX computes in float32 unless float64 is enabled. We never touch the global flag: every entry point that needs float64 runs inside
JAX's own context manager (`jax.enable_x64`), which is scoped to that call and part of JAX's compilation cache key, so user code
around it keeps its setting.
"""

import itertools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
from flint import fmpq

from analyzer.errors import InputError, Refusal
from analyzer.numbers.exact import UNIT, nearest

HIGHEST = jax.lax.Precision.HIGHEST
"""No reduced-precision matrix products on accelerators: certificates count on IEEE operations of the stated type."""

MANTISSA = {"float32": 24, "float64": 53}
SMALLEST: dict[str, fmpq] = {"float32": fmpq(1, 2**126), "float64": fmpq(1, 2**1022)}
"""Least normal number: results below it may be flushed to zero."""


def tap_count(power: fmpq, dtype: str, reach: int = 1) -> int:
    """Least S with reach^p Σ_{s>S} s^{−p} ≤ reach^p S^{1−p}/(p−1) ≤ u/2; beyond 2^{40} or for p ≤ 1, some larger number."""
    p = nearest(power)
    if p <= 1:
        return 1 << 40
    half_unit = nearest(UNIT[dtype]) / 2
    exponent = (p * math.log(max(reach, 1)) - math.log(half_unit * (p - 1))) / (p - 1)
    return max(1, math.ceil(math.exp(min(exponent, 28.0))))


def shifted_tap_count(power: fmpq, rate: fmpq, dtype: str) -> int:
    """S with Σ_{s≥S} (1+rs)^{−p} ≤ (1+r(S−1))^{1−p}/(r(p−1)) ≤ u/2, a share of the mass, which is 1 at s = 0 alone; as `tap_count`."""
    p, r = nearest(power), nearest(rate)
    if p <= 1:
        return 1 << 40
    exponent = -math.log(nearest(UNIT[dtype]) / 2 * r * (p - 1)) / (p - 1)
    return 1 + max(1, math.ceil(math.expm1(min(max(exponent, 0.0), 28.0)) / r))


def slowest_power(dtype: str, taps: int) -> fmpq:
    """The least p = 9/8, 10/8, … whose head s^{−p} runs as at most this many taps."""
    return next(p for p in (fmpq(k, 8) for k in itertools.count(9)) if tap_count(p, dtype) <= taps)


def with_x64(dtype: str) -> AbstractContextManager[None]:
    """The context in which arrays of this type exist."""
    if dtype not in UNIT:
        raise InputError(f"dtype {dtype!r} is not executable; choose from {', '.join(UNIT)}")
    return jax.enable_x64(True) if dtype == "float64" else nullcontext()


def _sum(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a + b as the device that JAX would use adds them."""
    with with_x64(str(a.dtype)):
        return np.asarray(jnp.add(jnp.asarray(a, dtype=a.dtype), jnp.asarray(b, dtype=b.dtype)))


def missing(dtype: str, add: Callable[[np.ndarray, np.ndarray], np.ndarray] = _sum) -> str | None:
    """Why numbers of a type cannot be computed here; None if they can: 1 + 2u is a number of the type, and comes out as one."""
    one, more = np.ones(1, dtype), np.full(1, np.finfo(dtype).eps, dtype)
    try:
        found = add(one, more)
    except (RuntimeError, NotImplementedError, TypeError, ValueError) as problem:
        return f"{type(problem).__name__}: {' '.join(str(problem).split())[:120]}"
    if found.dtype != np.dtype(dtype):
        return f"sums of {dtype} come back as {found.dtype}"
    return None if found[0] > 1 else f"1 + {float(more[0]):.3g} is 1: numbers of the type {dtype} are stored, but sums have fewer bits"


@cache
def check_device(dtype: str) -> None:
    """Refuse to compute in a type that the device of JAX does not have; asked once."""
    why = missing(dtype)
    if why is not None:
        remedies = [{"dtype": "float32"}] if dtype == "float64" else []
        raise Refusal(f"the device that JAX uses here does not compute in {dtype} ({why})", *remedies)
