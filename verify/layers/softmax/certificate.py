"""witness ≤ worst-case error ≤ certified of a network with one softmax layer: the statement is that of the package.

Arrays. Over the infinite past the statement holds at every position from the target's longest lag on, whatever the array's length:
letters that are read lie inside it, and a position before an array holds zero. With a finite window it holds at the last of `length`
tokens; heads that do not see positions in a full window hold it at every position of such arrays whose lags lie inside.
"""

import time

import jax
import numpy as np
from flint import arb

from analyzer.errors import InputError, Refusal
from analyzer.numbers.exact import upper
from analyzer.targets.protocol import Target
from constructions.network.transformer import Transformer, check_relative, to_exact
from verify.chain.softmax_rounding import softmax_layer_rounding
from verify.layers.dp_free import NOT_COUNTED, LayerError
from verify.layers.softmax.cover import SoftmaxCover, Watch
from verify.layers.softmax.problem import SoftmaxProblem
from verify.layers.softmax.witness import SoftmaxWitness

SECONDS = 10.0
"""Work that is granted unless more is asked for."""
RUN = 4096
"""Tokens of arrays over the infinite past for which the rounding of float networks is counted: sums of longer ones are longer."""


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def softmax_error(
    network: Transformer,
    target: Target,
    *,
    length: int | None = None,
    seconds: float = SECONDS,
    seed: int = 0,
    watch: Watch | None = None,
) -> LayerError:
    """Certify a network with one softmax layer; `seconds` is work, not time, and `seed` that of the witness's random starts.

    Where the rounding of a float network is refused, it is certified as the exact function of its weights, and the result says so.
    """
    start = time.perf_counter()
    _check(network, target, length)
    windowed = network.layers[0].attention.window != "infinite"
    try:
        rounding, arithmetic = softmax_layer_rounding(network, length if windowed and length else RUN), network.dtype
    except Refusal:
        network, rounding, arithmetic = network.map(to_exact), arb(0), NOT_COUNTED
    problem = SoftmaxProblem(network, target, length if windowed else None)
    witness = SoftmaxWitness(problem, seed)
    cover = SoftmaxCover(problem, witness.best, witness.ascend)
    cover.refine(seconds, watch)
    found, description = witness.measured()
    return LayerError(
        witness=found,
        witness_input=description,
        certified=upper(arb(cover.certified) + rounding),
        rounding=None if arithmetic == NOT_COUNTED else upper(rounding),
        arithmetic=arithmetic,
        trivial=target.constant_error(),
        cells=cover.count,
        seconds=time.perf_counter() - start,
    )


def _check(network: Transformer, target: Target, length: int | None) -> None:
    if len(network.layers) != 1:
        raise Refusal(f"this network has {len(network.layers)} layers; on boxes worst-case errors are certified for one")
    check_relative(network, "this certificate")
    attention, ffn = network.layers[0].attention, network.layers[0].feedforward
    if attention.kind not in ("dp", "dp-free"):
        raise Refusal(f"attention is {attention.kind}; on boxes worst-case errors are certified for softmax attention")
    if any(p != "none" for p in ffn.precision) or network.outputs != 1:
        raise Refusal("the read-out is rounded or has several outputs; worst-case errors are certified for one real output")
    if target.as_memory_target is None:
        raise Refusal(f"a {target.kind} reads all tokens at once; softmax layers are certified for targets with memories")
    if target.letters() is None and target.domain != (-1, 1):
        raise Refusal("tokens lie in another box than [-1, 1]")
    if attention.window != "infinite":
        if length is None:
            raise Refusal(f"the window is {attention.window}; give the length of the arrays")
        if length <= target.settled:
            raise Refusal(f"arrays of {length} tokens are not longer than lag {target.settled}")
    if network.dtype != "exact" and not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(network)):
        raise InputError("a weight of this network is not a finite number")
