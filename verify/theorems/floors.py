"""What no training run can fall below: mean-square floors for networks whose output is linear in the tokens.

Statement. Let the network have nothing but attention with lin heads, or nothing but log heads, and residuals between embedding and output,
H active heads in all, and let tokens be independent with variance v per coordinate. Then for targets y_t = Σ_c Σ_s ρ_c(s) x_{t−s,c}, at
every position with N past tokens, whatever the weights,

    E|ŷ_t − y_t|² ≥ v Σ_c floor_H(ρ_c(1), …, ρ_c(N)),     floor_H by the law or by sections of `analyzer.limits.mean_square`.

Proof. Σ_s runs over the tokens that are there, s ≤ t = N at most. The kernel at position t, cut off at N, lies in the span of the heads
restricted to 1..N, whether a head's weights are divided by their sum over the whole past or over the tokens that are there: that changes a
factor of the head at this position and no more. Laws and sections look at places s ≤ N only. The variance of the output is that of each
coordinate's kernel, added up, and a mean that is wrong adds to it. Several layers: with weights divided by their sum over the whole past
the network is a convolution, and tokens that are not there count as 0, so its kernel is cut off, too, and has poles of total order H; with
finite windows the first layer's factor depends on the position and nothing is claimed. ∎

Floors grow with N, so a mean over positions is at least a sum of steps: the floor at some positions, each up to the next one.

Feed-forward networks are not covered: for tokens that are not Gaussian a curved read-out can do better than a linear one.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from flint import arb

from analyzer.lemmas.extraction import Rpe
from analyzer.limits import mean_square as theorem
from analyzer.numbers.exact import lower, working_precision
from analyzer.targets.protocol import Target
from analyzer.targets.tokens import TokenLaw
from constructions.network.transformer import Attention, Transformer
from constructions.training.trainable import is_affine_readout

LONGEST = 1 << 10
"""Past tokens that a floor looks at; more of them would raise it a little."""
ROUNDED = 1 - 2.0**-20
"""Uniform tokens are numbers of float32, whose variance is that close to 1/3."""
VARIANCES = {"uniform": 1 / 3 * ROUNDED, "signs": 1.0}
FEW_ROWS = 32
"""Rows of a section where a floor is one of many numbers."""
STEPS = 4
"""Positions at which the floor is evaluated: the first one, twice it, four times, …"""
SIGMAS = 5
"""A sampled mean this many standard errors below a floor contradicts it."""


@dataclass(frozen=True)
class NetworkFloor:
    """No weights do better than `value`, a mean square error; None and a reason where nothing is proved."""

    value: float | None
    heads: int | None = None
    reason: str | None = None


def active_heads(attention: Attention) -> int:
    """Heads that read and write anything."""
    value, output = np.asarray(attention.value), np.asarray(attention.output)
    return sum(bool((value[h] != 0).any() and (output[h] != 0).any()) for h in range(len(attention.rpe)))


def window_floor(values: Sequence[arb], heads: int, rpe: Rpe, rows: int = FEW_ROWS) -> float:
    """floor_H of ρ(1), …, ρ(N), rounded down: the law where ρ is a single place, else sections of at most so many rows."""
    places = [s for s, v in enumerate(values, start=1) if not v.is_zero()]
    if len(places) > 1:
        return theorem.section_floor(values, heads, rpe, rows).value
    with working_precision(64):
        known = [arb(theorem.law(s, heads, rpe, len(values))) * values[s - 1] ** 2 for s in places]
        return max(0.0, lower(sum(known, arb(0))))


def floor_of(network: Transformer, target: Target, tokens: str, first: int, length: int) -> NetworkFloor:
    """The floor under the mean square error at the positions from `first` to length − 1."""
    reason = _uncovered(network, target, tokens)
    if reason is not None:
        return NetworkFloor(None, reason=reason)
    heads, rpe = _heads(network)
    steps = sorted({min(max(1, first) << k, length - 1) for k in range(STEPS)})
    total = 0.0
    for here, following in itertools.pairwise([*steps, length]):
        total += (following - here) * _share(target, here, heads, rpe)
    return NetworkFloor(VARIANCES[tokens] * ROUNDED * total / (length - first), heads)


def _share(target: Target, past: int, heads: int, rpe: Rpe) -> float:
    """The floor at a position with so many past tokens, for tokens of variance 1."""
    return sum(window_floor(_wanted(target, c, min(past, LONGEST)), heads, rpe) for c in range(target.dim))


def infinite_floor(network: Transformer, target: Target, law: TokenLaw, affine: bool = False) -> NetworkFloor:
    """The floor with an infinite past; `affine` says that the read-out is known to be, whatever neurons it has."""
    reason = _uncovered(network, target, "signs", affine)
    if reason is not None:
        return NetworkFloor(None, reason=reason)
    heads, rpe = _heads(network)
    with working_precision(64):
        return NetworkFloor(max(0.0, lower(arb(law.variance) * arb(_share(target, LONGEST, heads, rpe)))), heads)


def _heads(network: Transformer) -> tuple[int, Rpe]:
    """Active heads in all, and their type."""
    heads = sum(active_heads(layer.attention) for layer in network.layers)
    return heads, "lin" if network.layers[0].attention.rpe[0] == "lin" else "log"


def _uncovered(network: Transformer, target: Target, tokens: str, affine: bool = False) -> str | None:
    """Why nothing is proved, or None."""
    types = {kind for layer in network.layers for kind in layer.attention.rpe}
    *between, last = (layer.feedforward for layer in network.layers)
    if tokens not in VARIANCES:
        return "tokens are letters"
    if any(layer.attention.kind != "dp-free" for layer in network.layers) or types not in ({"lin"}, {"log"}):
        return "the floor is about dp-free layers with lin heads, or with log heads"
    if any(layer.attention.stride > 1 for layer in network.layers):
        return "the floor is about heads that see every token"
    if any(layer.attention.window == "full" for layer in network.layers):
        return "heads see tokens to come"
    if not (affine or is_affine_readout(last)) or any(np.any(np.asarray(ffn.outer) != 0) for ffn in between):
        return "a feed-forward network may do better than a linear read-out"
    if between and (types != {"lin"} or any(layer.attention.window != "infinite" for layer in network.layers)):
        return "several layers have a floor with lin heads and infinite windows only"
    if target.as_layer_target is None or target.as_layer_target.readout.ridges:
        return "the target is not linear in the tokens"
    return None


def _wanted(target: Target, column: int, count: int) -> list[arb]:
    """ρ_c(1), …, ρ_c(count)."""
    asked = target.as_layer_target
    assert asked is not None  # the caller has seen to it
    spikes, kernels = asked.wanted(asked.readout.affine, column)
    with working_precision(128):
        values = [arb(spikes.get(s, 0)) for s in range(1, count + 1)]
        for kernel, weight in kernels.items():
            values = [v + arb(weight) * k for v, k in zip(values, kernel.values(1, count + 1), strict=True)]
    return values


def contradicted(floor: float | None, squares: np.ndarray) -> bool:
    """Whether the mean of independent squares is below a floor by more than sampling explains."""
    if floor is None or len(squares) < 2 or not np.isfinite(squares).all():
        return False
    return bool(squares.mean() < floor - SIGMAS * squares.std(ddof=1) / np.sqrt(len(squares)))
