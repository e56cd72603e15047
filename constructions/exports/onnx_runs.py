"""ONNX files run by onnxruntime, beside the evaluation that certificates speak of."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from analyzer.errors import InputError, Refusal
from analyzer.targets.files import target_from_dict
from analyzer.targets.task import task_kinds
from constructions.exports.exact_parts import reach_of
from constructions.exports.fast_rounding import difference_bound
from constructions.exports.onnx_nodes import HINT
from constructions.network.transformer import Transformer
from constructions.run.execute import run

SEQUENCES, LENGTH = 32, 24
GRID = 64
"""Random tokens are multiples of 1/64, which all float types hold."""


def session(content: bytes) -> Any:
    """A session of onnxruntime on the processor, silent but for errors."""
    try:
        import onnxruntime
    except ImportError:
        raise InputError(HINT) from None
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _outputs(content: bytes, tokens: np.ndarray) -> np.ndarray:
    """What onnxruntime makes of tokens, in float64; a network that it does not run is refused."""
    started = session(content)
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException

    try:
        return np.asarray(started.run(["y"], {"tokens": tokens})[0], np.float64)
    except (Fail, InvalidArgument, RuntimeException):
        raise Refusal("onnxruntime does not run this network on random sequences: its numbers overflow") from None


def sequences(network: Transformer, card: Mapping[str, object] | None, count: int, seed: int = 0) -> np.ndarray:
    """Random tokens (count, N, d) of the network's type: of the card's target, or uniform; no longer than a table of positions."""
    rng = np.random.default_rng(seed)
    described: Any = (card or {}).get("target")
    if described is None:
        drawn = rng.integers(-GRID, GRID + 1, (count, network.within(LENGTH), network.dim)) / GRID
    else:
        target = target_from_dict(described, "card")
        drawn = target.draw(rng, (count, target.length or network.within(target.settled + LENGTH)))
    return np.asarray(drawn).astype("float64" if network.dtype == "exact" else network.dtype)


def measured(network: Transformer, content: bytes, card: Mapping[str, object] | None = None, count: int = SEQUENCES) -> dict[str, object]:
    """The largest difference from `run` on random sequences, and the derived tolerance there, over outputs for which one is known.

    `share` is the largest difference as a share of the tolerance at the same output, `known` how many outputs have one: not those
    that depend on a number which is rounded to an integer and lies within the tolerance of a tie, as at positions whose lags reach
    before the array.
    """
    tokens = sequences(network, card, count)
    outputs, ours = _outputs(content, tokens), run(network, tokens, form="scan")
    tolerance = difference_bound(network, tokens, reach_of(card))
    claimed = _twice_certified(network, card, tokens.shape[1])
    source = "running error analysis"
    if claimed is not None and not (tolerance <= claimed).all():
        source = "running error analysis, and twice the certified error that the card claims"
        tolerance = np.minimum(tolerance, claimed)
    known = np.isfinite(tolerance) & np.isfinite(ours)  # the analysis does not speak of overflow
    difference, allowed = np.abs(outputs - ours)[known], tolerance[known]
    difference = np.where(np.isnan(difference), np.inf, difference)
    if not known.any():
        return {"sequences": count, "difference": None, "tolerance": None, "tolerance_from": source, "share": None, "known": 0.0}
    shares = difference[difference > 0] / np.maximum(allowed[difference > 0], np.finfo(float).tiny)
    return {
        "sequences": count,
        "difference": float(difference.max()),
        "tolerance": float(allowed.max()),
        "tolerance_from": source,
        "share": float(shares.max(initial=0.0)),
        "known": float(known.mean()),
    }


def _twice_certified(network: Transformer, card: Mapping[str, object] | None, length: int) -> np.ndarray | None:
    """2·certified, (length,): two evaluations that the rounding analysis covers are both that close to the target, in a float network
    that a theorem built. ∞ where a memory of letters lies before the array: zeros are no letters, and before a task has settled. Deep
    chains need it, as layers multiply errors.
    """
    claims: Any = card or {}
    described, chain = claims.get("target"), claims.get("chain")
    if network.dtype == "exact" or claims.get("theorem") is None or described is None or not isinstance(chain, dict):
        return None
    certified = chain.get("certified")
    if claims.get("norm", "sup") != "sup" or not isinstance(certified, int | float):
        return None
    bounds = np.full(length, 2.0 * float(certified))
    if described.get("alphabet") is not None or described.get("kind") in task_kinds():
        bounds[: target_from_dict(described, "card").settled] = np.inf
    return bounds
