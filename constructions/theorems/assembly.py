"""Networks put together from head banks and neurons: what the constructions with one dp-free layer have in common.

Residual stream of width D = (M+1)d in named blocks: `x0` holds x_t, `m1` … `mM` (`k1` … for kernels) the memories.

    W_E   x_t into x0, and c_k x_t into block m_k (the residual weight of its bank)
    heads W_V^h reads x0, W_O^h writes a_kh times it into every block m_k that head h serves, decay p_h
    FFN   f on the box of the memories delivered, by splines or Barron sampling
"""

import math
from collections.abc import Sequence

import numpy as np
from flint import arb, fmpq

from analyzer.errors import Refusal, Remedy
from analyzer.families import Fixed, Kernel
from analyzer.kernels.l1_norms import l1_norm
from analyzer.lemmas.extraction import Rpe, Tuning
from analyzer.numbers.exact import upper, working_precision
from analyzer.targets.protocol import LayerTarget
from constructions.banks.head_banks import HeadBank
from constructions.network.precision import MANTISSA, SMALLEST, UNIT, tap_count
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, to_float, zeros
from constructions.neurons import feedforward
from constructions.run import fast
from constructions.run.fused import fuse

BOX_SHARE = arb(2) ** -10
"""By this share of e the read-out's box exceeds the memories delivered."""


def slots(target: LayerTarget, network: Transformer | None = None) -> dict[str, range]:
    """Named blocks of the residual stream; they follow from the target, whatever the network."""
    return {name: target.readout.slot(k) for k, name in enumerate(target.readout.slots)}


def meanings(target: LayerTarget, network: Transformer | None = None) -> dict[str, str]:
    """What the slots hold after the attention."""
    told = [f"the token {label} steps back" if target.pointwise else f"the past weighed by kernel {label}" for label in target.bank_labels]
    return dict(zip(target.readout.slots, ["the current token", *told], strict=True))


def with_readout(
    target: LayerTarget, head_banks: list[HeadBank], options: Fixed | Kernel, error: float, box: list[arb]
) -> tuple[Transformer, int]:
    """The network of these banks with a read-out on the box of what they deliver (or on `box`, if it is affine), and the draws it took."""
    network = assemble(target, head_banks, placeholder(target))
    radii = box_of(target, _delivered(target, network, head_banks, options.dtype)) if target.readout.ridges else box
    neurons, draws = feedforward.read_out_neurons(options.ffn, target.readout, radii, options.width, error, options.seed)
    return round_network(assemble(target, head_banks, feedforward.as_network(neurons)), options.dtype), draws


def box_of(target: LayerTarget, errors: Sequence[arb]) -> list[arb]:
    """Radii of the box of (x0, memories): what they can be, and e_k more for memory k."""
    slack = [arb(0)] * target.dim + [e for e in errors for _ in range(target.dim)]
    return [r + e for r, e in zip(target.radii(), slack, strict=True)]


def placeholder(target: LayerTarget) -> FeedForward:
    return FeedForward(zeros(1, target.readout.coordinates), zeros(1), zeros(1, 1))


def _delivered(target: LayerTarget, network: Transformer, head_banks: list[HeadBank], dtype: str) -> list[arb]:
    """Certified extraction errors of the banks, enlarged by what rounding may add, so that the read-out's range covers it."""
    layer = fuse(network)
    heads = sum(b.heads for b in head_banks)
    slowest = min((p for b in head_banks if b.rpe == "log" for p in b.decays), default=None)
    taps = 0 if slowest is None or dtype == "exact" else min(fast.MAX_TAPS + 1, tap_count(slowest, dtype))
    errors = []
    with working_precision(layer.bits):
        for k, lag in enumerate(target.bank_labels, start=1):
            row = [fmpq(int(j == k * target.dim)) for j in range(layer.embedding.shape[0])]
            error = l1_norm(layer.kernel(row, 0, *target.wanted(row, 0))).most * (1 + BOX_SHARE)
            size = sum((abs(arb(b.weights[b.lags.index(lag)][h])) for b in head_banks if lag in b.lags for h in range(b.heads)), arb(0))
            size += sum((abs(arb(b.residuals[b.lags.index(lag)])) for b in head_banks if lag in b.lags), arb(1))
            slack = arb(0) if dtype == "exact" else arb(rounding_price(target, heads, dtype) + taps * UNIT[dtype]) * size
            errors.append(arb(upper(error + slack)))
    return errors


def rounding_price(target: LayerTarget, heads: int, dtype: str) -> fmpq:
    """What a unit of weight costs in rounding: u times the operations between a token and its memory.

    Storage of weight, ratio and gain: 4. Embedding: d + 1 terms, values: D terms, scan and gain: 5, output: H d terms, residual: 1.
    (Taps of log heads come on top: their number follows from the decays.)
    """
    return UNIT[dtype] * (4 + (target.dim + 1) + target.readout.coordinates + 5 + heads * target.dim + 1)


FEW = 512
"""Heads of an interpolation bank that are built in a second: larger errors are proposed for so many."""


def check_taps(head_banks: list[HeadBank], dtype: str, *remedies: Remedy) -> None:
    """Refuse log heads that fall so slowly that a float network runs them by FFT, whose rounding is not certified."""
    slowest = min((p for bank in head_banks if bank.rpe == "log" for p in bank.decays), default=None)
    if dtype != "exact" and slowest is not None and tap_count(slowest, dtype) > fast.MAX_TAPS:
        reason = (
            f"a log head with decay {float(arb(slowest)):.3g} falls so slowly that {dtype} runs it by FFT, whose rounding is not certified"
        )
        raise Refusal(reason, *remedies)


def representable(tuning: Tuning, heads: int, rpe: Rpe, dtype: str) -> Tuning:
    """α and γ on a grid so coarse that every decay γ + αk (log: 1 + γ + αk) is a number of the type."""
    top = float(arb(tuning.gamma + tuning.alpha * heads)) + (rpe == "log")
    grid = fmpq(2) ** (math.ceil(math.log2(top)) + 1 - MANTISSA[dtype])

    def snap(value: fmpq) -> fmpq:
        return max(fmpq(1), fmpq(round(float(arb(value / grid))))) * grid

    return Tuning(snap(tuning.alpha), snap(tuning.gamma))


def assemble(target: LayerTarget, head_banks: list[HeadBank], ffn: FeedForward) -> Transformer:
    """The network of named blocks: embedding, values and outputs as in the module's docstring, and a read-out."""
    d, blocks = target.dim, slots(target)
    width = target.readout.coordinates
    block_of = dict(zip(target.bank_labels, list(blocks.values())[1:], strict=True))
    total = sum(b.heads for b in head_banks)
    embedding, value, output = zeros(width, d), zeros(total, d, width), zeros(total, width, d)
    for i in range(d):
        embedding[blocks["x0"][i], i] = fmpq(1)
        value[:, i, blocks["x0"][i]] = fmpq(1)
    start = 0
    for bank in head_banks:
        for lag, weights, residual in zip(bank.lags, bank.weights, bank.residuals, strict=True):
            for i, row in enumerate(block_of[lag]):
                embedding[row, i] += residual
                for h, weight in enumerate(weights):
                    output[start + h, row, i] = weight
        start += bank.heads
    attention = Attention(
        decay=exact_array([p for b in head_banks for p in b.decays]),
        value=value,
        output=output,
        query=zeros(total, 0, width),
        key=zeros(total, 0, width),
        pointer=zeros(0, width),
        rpe=tuple(b.rpe for b in head_banks for _ in range(b.heads)),
    )
    return Transformer(embedding, zeros(width), (Layer(attention, ffn),))


def round_network(network: Transformer, dtype: str) -> Transformer:
    """The network in a float type; refused if a weight overflows or underflows it."""
    if dtype == "exact":
        return network
    largest = np.finfo(dtype).max
    for layer in network.layers:
        arrays = {"output": layer.attention.output, "embedding": network.embedding, "feed-forward": layer.feedforward.outer}
        for name, array in arrays.items():
            if not np.isfinite(to_float(array, dtype)).all():
                raise Refusal(f"a {name} weight exceeds {largest:.3g}, the largest {dtype}", {"dtype": "exact"})
        if not (to_float(layer.attention.decay, dtype) >= float(arb(SMALLEST[dtype]))).all():
            raise Refusal(f"a decay is below the least normal {dtype}", {"dtype": "exact"})
    return network.map(lambda a: to_float(a, dtype))
