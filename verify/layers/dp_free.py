"""The certified worst-case error of any network with one dp-free layer on a fixed or kernel memory target, whatever its weights.

Statement. Let U = offset + Σ_s K(s) x_{t−s} be the residual stream, F = Σ_n a_n relu(b_n·U + c_n) the read-out, m = (x_t, memories) what
the target f = constant + affine·m + Σ_r s_r ψ_r(w_r·m + o_r) reads. Then for all tokens in [−1, 1]

    |F(U) − f(m)| ≤ certified,

and float networks add the rounding of their evaluation. Memories need no slots in the stream, neurons no common directions.

Proof. Neurons along one direction add up to a piecewise linear function P(v) of one functional v of the tokens (`decomposition`), so that

    E = F − f = constant + B(x) + Σ_u D_u(v_u(x)),      B, v_u linear in the tokens, D_u = P or −s ψ(· + o).

(i) *Slopes* (`relaxed_terms`). For any numbers λ_u and a sign σ, with ranges [a_u, b_u] of v_u,

    σE ≤ σ constant + Σ_u max_{[a_u, b_u]} (σD_u(v) − λ_u v) + sup_x (σB + Σ_u λ_u v_u)(x).

The last functional has one kernel, combined before its norm is taken (`functionals`). The right-hand side is convex in λ, and its minimum
is the supremum of the concave envelopes. Slopes come from subgradient steps; soundness does not depend on them.
(ii) *Cells* (`cells`). Heads are few, so all v_u are nearly functions of m and of a few more functionals q: v = μ·m + η·q + remainder for
any numbers μ, η (`confinement`). The box of (m, q, v) is cut into cells; a cell confines v to μ·m + η·q ± ‖remainder‖₁ besides its own
interval, and multipliers θ, δ make use of what it says about (m, q, v) in the linear part, too (`cell_bounds`). All of this is convex in
(λ, θ, δ).
(iii) *Pairs* (`pairing`). A ridge ψ whose argument is nearly αv_g for a group of neurons is compared with them as a function of v_g, and
the mean value theorem bounds the rest.

Norms are sums over a window plus what the heads hold beyond it; kernels come from ball arithmetic, cells are done in double precision
with an a-priori bound of every rounding. The uncut box is done once more with ℓ¹ norms over the infinite past in ball arithmetic where
tails matter: for affine targets and linear read-outs that is the worst-case error itself.

The witness is the error at an explicit sequence (`witness`), found by ascent from the maximisers in (ii) and from random sequences.
"""

import math
import time
from dataclasses import dataclass

import jax
import numpy as np
from flint import arb

from analyzer.errors import InputError, Refusal
from analyzer.numbers.exact import lower, upper, working_precision
from analyzer.targets.protocol import LayerTarget
from constructions.network.transformer import Transformer, check_relative, to_exact
from constructions.run.fused import fuse
from verify.chain.layer import FFN_BITS
from verify.chain.rounding import evaluation_error
from verify.layers.cells import Cover
from verify.layers.decomposition import ErrorDecomposition
from verify.layers.finite_windows import array_layer
from verify.layers.functionals import LATEST
from verify.layers.witness import WitnessSearch, measured, output_at

__all__ = ["NOT_COUNTED", "LayerError", "layer_error", "output_at"]

NOT_COUNTED = "exact weights; rounding not counted"


@dataclass(frozen=True)
class LayerError:
    """witness ≤ worst-case error ≤ certified. `rounding` is the floating-point share of certified, None if it was not counted; `trivial` is
    the error of the best constant output, from below."""

    witness: float
    witness_input: str
    certified: float
    rounding: float | None
    arithmetic: str
    trivial: float
    cells: int
    seconds: float


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def layer_error(network: Transformer, target: LayerTarget, *, seed: int = 0, length: int | None = None) -> LayerError:
    """Certify a network with one dp-free layer against a target; `seed` is that of the witness's random starts.

    A float network whose rounding is refused is certified as the exact function of its weights, and the result says so; so are networks
    with a finite window, whose error is that at the last position of arrays of `length` tokens, tokens before them being zero for f.
    Numbers beyond double precision end in an infinite bound or a refusal: no warning is due.
    """
    start = time.perf_counter()
    _check(network, target, length)
    if length is not None:
        exact = network.map(to_exact)
        return _certify(ErrorDecomposition(exact, target, array_layer(exact, length)), seed, NOT_COUNTED, start)
    if network.dtype == "exact":
        return _certify(ErrorDecomposition(network, target, fuse(network)), seed, "exact", start)
    try:
        return _certify(ErrorDecomposition(network, target, fuse(network)), seed, network.dtype, start)
    except Refusal:
        exact = network.map(to_exact)
        return _certify(ErrorDecomposition(exact, target, fuse(exact)), seed, NOT_COUNTED, start)


def _check(network: Transformer, target: LayerTarget, length: int | None) -> None:
    if len(network.layers) != 1:
        raise Refusal(f"this network has {len(network.layers)} layers; worst-case errors are certified for one dp-free layer")
    check_relative(network, "this certificate")
    attention, ffn = network.layers[0].attention, network.layers[0].feedforward
    if attention.kind != "dp-free":
        raise Refusal(f"attention is {attention.kind}; worst-case errors are certified for dp-free attention")
    if attention.window == "full":
        raise Refusal("the window is full; worst-case errors are certified for infinite and finite windows")
    if (attention.window == "finite") != (length is not None):
        raise Refusal(f"the window is {attention.window}; give the length of the arrays for finite windows, and only for them")
    if length is not None and not target.places[-1] < length <= LATEST:
        raise Refusal(f"arrays of {length} tokens are not certified: the length exceeds lag {target.places[-1]} and is at most {LATEST}")
    if length == 1 and "log" in attention.rpe:
        raise Refusal("log heads see nothing of an array of one token; give arrays of two tokens at least")
    if any(p != "none" for p in ffn.precision) or ffn.outer.shape[0] != 1:
        raise Refusal("the read-out is rounded or has several outputs; worst-case errors are certified for one real output")
    if network.dim != target.dim:
        raise InputError(f"the network reads tokens of dimension {network.dim}, the target has dimension {target.dim}")
    if network.dtype != "exact" and not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(network)):
        raise InputError("a weight of this network is not a finite number")


def _certify(problem: ErrorDecomposition, seed: int, arithmetic: str, start: float) -> LayerError:
    rounding = _rounding(problem)
    search = WitnessSearch(problem, seed)
    if problem.terms:
        cover = Cover(problem, search)
        search.ascend(cover.maximisers())
        certified, cells, attained = cover.certified(), cover.count, -math.inf
    else:
        cells, (certified, attained) = 1, _linear_error(problem)
    witness, description = measured(problem, search.candidates())
    if attained > witness and problem.network.dtype == "exact":
        witness, description = attained, "sign sequence of the error kernel, over all of the past"
    return LayerError(
        witness=max(0.0, witness),
        witness_input=description,
        certified=upper(certified + rounding),
        rounding=None if arithmetic == NOT_COUNTED else upper(rounding),
        arithmetic=arithmetic,
        trivial=problem.target.constant_error(),
        cells=cells,
        seconds=time.perf_counter() - start,
    )


def _linear_error(problem: ErrorDecomposition) -> tuple[arb, float]:
    """|constant| + ‖κ‖₁ for an error that is affine in the tokens, from above and from below: the sign sequence of κ attains it."""
    norms = problem.kernels.norms(problem.base)
    most, least = (abs(arb(problem.constant)) + sum(ends, arb(0)) for ends in ([n.most for n in norms], [n.least for n in norms]))
    return most, lower(least)


def _rounding(problem: ErrorDecomposition) -> arb:
    """Rounding of a float network's output: that of the read-out, and that of the stream times the groups' Lipschitz constants."""
    if problem.network.dtype == "exact":
        return arb(0)
    stream = [arb(size) for size in problem.kernels.sizes(problem.kernels.coordinates)]
    with working_precision(FFN_BITS):
        total, slack = evaluation_error(problem.network, problem.layer, stream)
        for group in problem.groups:
            moved = sum((abs(arb(w)) * s for w, s in zip(group.direction, slack, strict=True)), arb(0))
            total += arb(group.lipschitz) * moved
        return total
