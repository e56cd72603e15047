"""Networks as pure functions of their weights: what `jax.jit`, `jax.grad` and `jax.vmap` may be put around.

The function is the reference pass (`constructions.reference`), which has a derivative in every weight and in the tokens. Certificates
speak of `constructions.execute.run`, whose constants are correctly rounded outside XLA; the two agree up to rounding.

JAX without x64 cuts 64-bit numbers to 32 bits as they enter a traced function, without a word, and weights that cancel are noise in 32
bits. So `apply` is told the type that the network has, and refuses weights or tokens that have lost some of it.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from analyzer.errors import InputError, Refusal
from constructions.execute import run
from constructions.precision import with_x64
from constructions.reference import stream
from constructions.stream import as_float64
from constructions.transformer import Transformer

CANCELLED = 1e-6
"""Outputs of rounded exact weights may differ by this much from the exact network's: far below the errors that are certified."""


def parameters(network: Transformer, probe: np.ndarray | None = None) -> Transformer:
    """The weights as a pytree of floats: a float network's own, an exact one's rounded to float64.

    Refused if exact weights do not fit into float64 or if, on the sequences `probe` (batch, N, d), the rounded network's outputs at the
    last position are others than the exact network's: weights that cancel can lose everything by being rounded.
    """
    if network.dtype != "exact":
        return network
    try:
        floats = as_float64(network)
    except InputError:
        raise Refusal("exact weights do not fit into float64", {"dtype": "float64"}) from None
    if probe is not None:
        with with_x64("float64"):
            rounded = np.asarray(apply(floats, probe.astype(np.float64), dtype="float64")[:, -1])
        difference = float(np.abs(rounded - run(network, probe)[:, -1]).max())
        if not difference <= CANCELLED:
            raise Refusal(f"rounded to float64 the exact weights no longer cancel: outputs move by {difference:.3g}", {"dtype": "float64"})
    return floats


def apply(parameters: Transformer, tokens: Any, *, dtype: str) -> jax.Array:
    """Outputs (…, N) for tokens (…, N, d), with derivatives; `dtype` is the type that the weights have where they are whole.

    Tokens are not looked at, as they may be traced: outside [−1, 1] no certificate holds. Integers are taken as they are.
    """
    if dtype not in ("float32", "float64"):
        raise InputError(f"dtype is {dtype!r}; weights are float32 or float64")
    if jax.dtypes.canonicalize_dtype(dtype) != dtype:
        raise InputError(f"this network is {dtype}, and JAX would cut its weights to float32: {_way_out(dtype)}")
    _check_whole("weights", jax.tree.leaves(parameters), dtype)
    given = jnp.asarray(tokens)
    _check_whole("tokens", [given], dtype)
    if given.ndim < 2 or given.shape[-1] != parameters.dim or 0 in given.shape:
        raise InputError(f"tokens have shape {given.shape}; expected (…, N, {parameters.dim}), not empty")
    return stream(parameters, given.astype(dtype))[-1][..., 0]


def _check_whole(what: str, arrays: list[Any], dtype: str) -> None:
    for array in arrays:
        kind = array.dtype
        if kind == np.dtype(object):
            raise InputError(f"{what} are exact rationals, which JAX cannot hold; `parameters` rounds them to float64")
        if jnp.issubdtype(kind, jnp.floating) and jnp.finfo(kind).bits < jnp.finfo(dtype).bits:
            raise InputError(f"{what} are {kind} where this network is {dtype}: they were cut before they came here; {_way_out(dtype)}")


def _way_out(dtype: str) -> str:
    return f"make them {dtype} and call inside `with jax.enable_x64(True): …`" if dtype == "float64" else f"make them {dtype}"
