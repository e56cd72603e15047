"""Networks as pure functions of their weights: what `jax.jit`, `jax.grad` and `jax.vmap` may be put around.

The function is the reference pass (`constructions.run.reference`), which has a derivative in every weight and in the tokens. Certificates
speak of `constructions.run.execute.run`, whose constants are correctly rounded outside XLA; the two agree up to rounding.

Exact networks have weights of any size that cancel. Where all layers are dp-free, what they compute is a convolution: their parameters are
its kernels, rounded once from ball arithmetic, and the read-out. Others are rounded weight by weight, and refused if that loses them.

JAX without x64 cuts 64-bit numbers to 32 bits as they enter a traced function, without a word, and weights that cancel are noise in 32
bits. So `apply` is told the type that the network has, and refuses weights or tokens that have lost some of it.
"""

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from analyzer.errors import InputError, Refusal
from constructions.network.precision import with_x64
from constructions.network.transformer import FeedForward, Transformer, to_float
from constructions.run.execute import run
from constructions.run.fused import convolve, stream_table
from constructions.run.reference import as_outputs, feed_forward, stream
from constructions.run.stream import as_float64, is_fused

CANCELLED = 1e-6
"""Outputs of rounded exact weights may differ by this much from the exact network's: far below the errors that are certified."""


MAX_KERNEL = 4096
"""Tokens that the kernels of an exact network are kept for."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Convolution:
    """What an exact network of dp-free layers computes: the stream as a convolution of the tokens, and the read-out, in float64."""

    kernels: Any  # (D, d, S)
    offset: Any  # (D,)
    readout: FeedForward

    @property
    def dtype(self) -> str:
        return str(self.kernels.dtype)

    @property
    def dim(self) -> int:
        return int(self.kernels.shape[1])


Parameters = Transformer | Convolution


def parameters(network: Transformer, probe: np.ndarray | None = None) -> Parameters:
    """The weights as a pytree of floats: a float network's own; of an exact one its kernels or, where it is no convolution, its weights
    rounded to float64.

    Refused if exact weights do not fit into float64 or if, on the sequences `probe` (batch, N, d), the rounded network's outputs at the
    last position are others than the exact network's: weights that cancel can lose everything by being rounded.
    """
    if network.dtype != "exact":
        return network
    if is_fused(network):
        ffn = network.layers[-1].feedforward
        inner, bias, outer = (to_float(a, "float64") for a in (ffn.inner, ffn.bias, ffn.outer))
        return Convolution(*stream_table(network, MAX_KERNEL), FeedForward(inner, bias, outer, ffn.precision))
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


def apply(parameters: Parameters, tokens: Any, *, dtype: str) -> jax.Array:
    """Outputs (…, N), or (…, N, c) if there are several, for tokens (…, N, d), with derivatives; `dtype` is the type that the weights
    have where they are whole.

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
    if not isinstance(parameters, Convolution):
        return as_outputs(stream(parameters, given.astype(dtype))[-1])
    taps = parameters.kernels.shape[-1]
    if taps == MAX_KERNEL < given.shape[-2]:
        raise InputError(f"sequences of {given.shape[-2]} tokens are longer than the {MAX_KERNEL} that these kernels are kept for")
    size = 1 << (given.shape[-2] + taps - 1).bit_length()
    held = convolve(parameters.kernels, parameters.offset, given.astype(dtype), size)
    return as_outputs(feed_forward(parameters.readout, held))


def _check_whole(what: str, arrays: list[Any], dtype: str) -> None:
    for array in arrays:
        kind = array.dtype
        if kind == np.dtype(object):
            raise InputError(f"{what} are exact rationals, which JAX cannot hold; `parameters` rounds them to float64")
        if jnp.issubdtype(kind, jnp.floating) and jnp.finfo(kind).bits < jnp.finfo(dtype).bits:
            raise InputError(f"{what} are {kind} where this network is {dtype}: they were cut before they came here; {_way_out(dtype)}")


def _way_out(dtype: str) -> str:
    return f"make them {dtype} and call inside `with jax.enable_x64(True): …`" if dtype == "float64" else f"make them {dtype}"
