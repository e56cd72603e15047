"""The certificate of `analyzer.theorems.least_squares`: mean squares from the stored weights, beside the least that their decays allow.

Certified and witness are the two ends of the closed form (M.1) of `verify.chain.mean_square`, with the rounding of float networks added.
The bound is (L.3): the optimum (L.1) of the decays found in the weights, the budget for storing weights and ratios, the read-out's share
and the rounding. By Pythagoras a weight that is off by more than its storage exceeds it.
"""

import time
from dataclasses import dataclass

from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.kernels.l2_norms import Square, square
from analyzer.lemmas.extraction import Rpe
from analyzer.lemmas.relu_error import neurons_of, readout_error
from analyzer.numbers.exact import lower, upper, working_precision
from analyzer.statements.registry import THEOREMS
from analyzer.targets.protocol import LayerTarget
from analyzer.targets.tokens import TOKEN_LAWS, TokenLaw
from analyzer.theorems import base
from analyzer.theorems import least_squares as theorem
from constructions.network.transformer import Transformer, to_exact
from constructions.run.fused import FusedLayer, fuse
from verify.chain.certificate import Certificate, StrangeWeights, matched
from verify.chain.layer import BALL_SHARE, FFN_BITS, check_layout, readout_bound, storage
from verify.chain.mean_square import Curved, affine_mean_square, coordinate_mean_square, stream_sizes, variance_of
from verify.theorems.mean_square import NOT_COVERED, mean_square_details

UNKNOWN = Square(arb(0), arb.pos_inf())


def verify(network: Transformer, target: LayerTarget, bank: str, ffn: str, tokens: str = "uniform") -> Certificate:
    """Certify a stored network in mean square, for a law of tokens."""
    start, law = time.perf_counter(), TOKEN_LAWS[tokens]
    layer, rpe = _checked(network, target)
    try:
        found = affine_mean_square(network, target, layer, law)
    except Curved as curved:
        raise StrangeWeights(str(curved)) from None
    faults: list[str] = []
    promises = _promises(layer, rpe, target, faults)
    with working_precision(FFN_BITS):
        root = arb(law.variance).sqrt()
        memories = [root * (optimum.most.sqrt() + stored) for optimum, stored in zip(promises.memories, promises.stored, strict=True)]
        certified_readout, readout = _read_out(network, target, layer)
        lipschitz = target.readout.lipschitz(target.radii())[1:]
        attention = promises.whole.most.sqrt() + sum((lip * s for lip, s in zip(lipschitz, promises.stored, strict=True)), arb(0))
        bound = square(root * attention + readout + (found.rounding or arb(0))) * (1 + BALL_SHARE)
        measured = {
            theorem.memory_lemma(k): (_memory(target, layer, k, law), square(promised) * (1 + BALL_SHARE))
            for k, promised in enumerate(memories, start=1)
        }
        measured[base.READ_OUT] = square(certified_readout), square(readout)
        whole = [lower(arb(law.variance) * promises.whole.least), upper(arb(law.variance) * promises.whole.most)]
    details = {**mean_square_details(law, network, target, affine=True), "optimum": {"lower": whole[0], "upper": whole[1]}}
    if found.rounding is None:
        details["not_covered"] = NOT_COVERED
    return Certificate(
        theorem=theorem.ID,
        witness=lower(found.witness),
        witness_input="lower end of the closed form, infinite past",
        certified=upper(found.certified),
        bound=upper(bound),
        rounding=0.0 if found.exact else upper(found.certified - found.most),
        trivial=lower(variance_of(target, law)),
        least_heads=None,
        parts=matched(THEOREMS[theorem.ID].proof(rpe, bank, ffn, target.bank_labels), measured),
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=time.perf_counter() - start,
        faults=tuple(faults),
        details=details,
    )


def _checked(network: Transformer, target: LayerTarget) -> tuple[FusedLayer, Rpe]:
    check_layout(network, target, theorem.ID)
    if target.readout.ridges:
        raise InputError(f"{theorem.ID} is about affine read-outs; that of this target is curved")
    layer = fuse(network)
    if len(set(layer.rpe)) != 1 or layer.rpe[0] not in ("lin", "log"):
        raise InputError(f"{theorem.ID} is about heads of one type, lin or log; these are {', '.join(sorted(set(layer.rpe)))}")
    return layer, "lin" if layer.rpe[0] == "lin" else "log"


@dataclass(frozen=True)
class _Promises:
    """Least squared distances of the decays in the weights, for every memory and for the target, and what storing them costs in ℓ¹."""

    memories: list[Square]
    stored: list[arb]
    whole: Square


def _promises(layer: FusedLayer, rpe: Rpe, target: LayerTarget, faults: list[str]) -> _Promises:
    readout, decays, heads = target.readout, list(layer.decays), list(range(len(layer.rpe)))
    dtype = "exact" if layer.constants is None else str(layer.constants["gain"].dtype)
    stored, distances, whole = [], [], UNKNOWN
    with working_precision(layer.bits):
        for k in range(1, len(readout.slots)):
            row = readout.slot(k)[0]
            stored.append(storage(layer, heads, [*(layer.gains[h, row, 0] for h in heads), layer.embedding[row, 0]], dtype))
    try:
        for k in range(1, len(readout.slots)):
            unit = [fmpq(int(i == readout.slot(k)[0])) for i in range(readout.coordinates)]
            distances.append(theorem.least_distance(rpe, decays, target.wanted(unit, 0)))
        whole = theorem.optimum(rpe, decays, target)
    except Refusal as refusal:
        faults.append(refusal.reason)
        distances = [UNKNOWN] * len(stored)
    return _Promises(distances, stored, whole)


def _memory(target: LayerTarget, layer: FusedLayer, k: int, law: TokenLaw) -> arb:
    """The largest mean square over the coordinates of memory k."""
    found = arb(0)
    for j in target.readout.slot(k):
        found = found.max(coordinate_mean_square(target, layer, j, law))
    return found


def _read_out(network: Transformer, target: LayerTarget, layer: FusedLayer) -> tuple[arb, arb]:
    """(sup |F − f| on the box of the stream, what storing the read-out may cost there)."""
    weights = network.layers[0].feedforward
    neurons = neurons_of(to_exact(weights.inner), to_exact(weights.bias), to_exact(weights.outer)[0])
    box = [size.max(r) for size, r in zip(stream_sizes(layer, target.dim), target.radii(), strict=True)]
    return readout_error(target.readout, neurons, box), readout_bound("spline", target.readout, neurons, box, box, network.dtype)
