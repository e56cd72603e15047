"""What is certified of a stored network that is to remember one lag, y_t = x_{t−T}: its error, and what it cannot fall below.

The worst-case error e = ‖κ − 1_T‖₁ is enclosed with the infinite tail. lin and table heads count with the rounded constants that the
executor runs with; log heads count with their ideal kernels s^{−p}/ζ(p), p the stored decay, because slow ones run by FFT. The rounding of
evaluation is not part of e; it is bounded apart, for lin and table heads.

Lower bounds that hold for that layer, whatever training did:

    (i)  e ≥ 1 if it has at most T − 1 heads (`analyzer.limits.lag_law`);
    (ii) e ≥ E_w − w W for every w > 0,  W = |c| + Σ_h |a_h|.

(ii) is the budgeted error read backwards: its banks have κ = c·1{s=0} + Σ a_h k_h with *normalised* k_h, and e + wW ≥ E_w(T) for each of
them. A stored lin head is r·g z^s with gain r = (W_O W_V W_E)_0, rounded ratio z and rounded constant g ≈ 1 − z, so it is the normalised
head (1−z) z^s with a_h = r g/(1−z); a stored log head has a_h = r. w is no roundoff here but the slope of a trade: what error costs in
size of weights. A certified lower bound of E_w for each w = 2^−b gives the largest e that weights of size W cannot avoid. Table heads have
other kernels: neither bound speaks of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from flint import arb, arb_mat, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.kernels.l1_norms import TAIL_SHARE, l1_norm
from analyzer.limits import budgeted_error
from analyzer.limits.budgeted_error import Dual, PricedBank
from analyzer.limits.mean_square import square_of
from analyzer.limits.pi_law import best_pi_bound, rule
from analyzer.numbers.exact import UNIT, lower, magnitude, upper, working_precision
from constructions.banks.balanced import Balance
from constructions.network.transformer import Transformer, to_exact
from constructions.run.fast import head_constants
from constructions.run.fused import FusedLayer, fuse, stream_kernels
from constructions.training import trainable as learning
from verify.chain.rounding import evaluation_error
from verify.limits import pairs as limits

UNIT_32 = UNIT["float32"]
FLOAT32 = DECAY_BITS = 24
SUMMED = 128
"""Places of a log layer's kernel that the lower side of its error sums; the upper side counts all of them."""
PRICES = {"lin": (4, 6, 8, 12, 16, 20, FLOAT32), "log": (6, 8, 12, 16, 20, FLOAT32, 28)}
"""b of w = 2^−b in (ii): from weights of size 16 to float32; for log heads the sequence of b = 28 is large at lag 6, that of 24 is not."""
PLACES = (128, 512, 1024)
"""Places of the kernel of several layers that are summed one by one before it is given up: products of series in balls take seconds."""


@dataclass(frozen=True)
class Measured:
    """least ≤ ‖κ − 1_T‖₁ ≤ most of a stored layer, and W = |c| + Σ|a_h| rounded up; None for table heads, which have no such a_h.

    `square`: ‖κ − 1_T‖₂² rounded up, the mean square error for tokens of variance 1; None for table heads.
    """

    least: float
    most: float
    weights: float | None
    square: float | None = None


def measured(network: Transformer, lag: int) -> Measured:
    """The worst-case error of a stored one-layer network whose read-out is u_0."""
    if not learning.is_affine_readout(network.layers[0].feedforward):
        raise InputError("the error of a kernel is that of a network with the read-out u_0")
    rpe = network.layers[0].attention.rpe
    if set(rpe) == {"log"}:
        return _measured_log(network, lag)
    layer = fuse(network)
    row = _first_row(layer)
    if layer.constants is not None and not (layer.constants["ratio"] < 1).all():
        raise Refusal("a lin head forgets so slowly that its ratio is rounded to 1")
    with working_precision(layer.bits):
        norm = l1_norm(layer.kernel(row, 0, {lag: fmpq(1)}))
        slopes = set(rpe) == {"lin"}
        weights = upper(_lin_weights(layer, row)) if slopes else None
        return Measured(lower(norm.least), upper(norm.most), weights, upper(_lin_square(layer, row, lag)) if slopes else None)


def _first_row(layer: FusedLayer) -> list[fmpq]:
    return [fmpq(int(j == 0)) for j in range(len(layer.embedding))]


def _lin_weights(layer: FusedLayer, row: Sequence[fmpq]) -> arb:
    """|c| + Σ_h |r_h| g_h/(1−z_h)."""
    assert layer.constants is not None
    residual, gains = layer.functional(row, 0)
    ratio, gain = to_exact(layer.constants["ratio"]), to_exact(layer.constants["gain"])
    return arb(sum((abs(r) * g / (1 - z) for r, g, z in zip(gains, gain, ratio, strict=True)), abs(residual)))


def _lin_square(layer: FusedLayer, row: Sequence[fmpq], lag: int) -> arb:
    """‖κ − 1_T‖₂² of κ(s) = c 1_0 + Σ_h r_h g_h z_h^s, s ≥ 0."""
    assert layer.constants is not None
    residual, gains = layer.functional(row, 0)
    ratio, gain = to_exact(layer.constants["ratio"]), to_exact(layer.constants["gain"])
    terms = [(r * g, z) for r, g, z in zip(gains, gain, ratio, strict=True)]
    return square_of("lin", residual + sum((c for c, _ in terms), fmpq(0)), terms, lag)


def _measured_log(network: Transformer, lag: int) -> Measured:
    layer = fuse(network.map(to_exact))
    residual, gains = layer.functional(_first_row(layer), 0)
    merged: dict[fmpq, fmpq] = {}
    for decay, gain in zip(layer.decays, gains, strict=True):
        merged[decay] = merged.get(decay, fmpq(0)) + gain
    used = {decay: gain for decay, gain in merged.items() if gain != 0}
    bank = PricedBank(tuple(("log", decay) for decay in used), tuple(used.values()), residual)
    with working_precision(budgeted_error.working_bits(UNIT_32) + max(0, magnitude(arb(bank.weight_sum)))):
        most = budgeted_error.extraction_error(bank, lag)
        seen = bank.runs("log")
        values = [arb(0)] * (lag + 1) if seen is None else seen.values(SUMMED)
        values[0] += arb(residual)
        values[lag] -= 1
        square = square_of("log", residual, [(arb(a) / arb(p).zeta(), p) for p, a in used.items()], lag)
        return Measured(lower(sum((abs(v) for v in values), arb(0))), upper(most), upper(arb(bank.weight_sum)), upper(square))


def measured_deep(network: Transformer, lag: int) -> Measured:
    """The worst-case error of a linear network of several lin layers: places one by one, then a weighted norm.

    For r > 1 with z_h r < 1, Σ_s |κ(s)| r^s ≤ e_0ᵀ Π_l (I + Σ_h |W_O^h W_V^h| g_h/(1 − z_h r)) |W_E| entrywise, so the places from S on
    hold at most r^{−S} times that.
    """
    slowest = max(float(z) for layer in network.layers for z in head_constants(layer.attention)["ratio"])
    for count in PLACES:
        with working_precision(256):
            kernel = [*stream_kernels(network, count)[0][0].coeffs()]
            kernel += [arb(0)] * (count - len(kernel))
            kernel[lag] -= 1
            seen = sum((abs(v) for v in kernel), arb(0))
            tail = _deep_tail(network, count, arb(slowest) ** (-arb(7) / 8))
        if tail <= TAIL_SHARE * seen:
            square = sum((v * v for v in kernel), tail * tail)
            return Measured(lower(seen), upper(seen + tail), None, upper(square))
    raise Refusal(f"a head with ratio {slowest:.6f} forgets too slowly for the kernel of several layers to be summed")


def _deep_tail(network: Transformer, start: int, growth: arb) -> arb:
    total = arb_mat(len(network.embedding), 1, [abs(arb(v)) for v in to_exact(network.embedding).flat])
    for layer in network.layers:
        attention = layer.attention
        constants, size = head_constants(attention), len(network.embedding)
        matrix = [arb(int(i == j)) for i in range(size) for j in range(size)]
        for h, (output, value) in enumerate(zip(to_exact(attention.output), to_exact(attention.value), strict=True)):
            z, g = (arb(to_exact(constants[name])[h]) for name in ("ratio", "gain"))
            factor = g / (1 - z * growth)
            matrix = [m + abs(arb(w)) * factor for m, w in zip(matrix, (output @ value).flat, strict=True)]
        total = arb_mat(size, size, matrix) * total
    return total[0, 0] * growth ** (-start)


def rounding_of(network: Transformer) -> float | None:
    """How far the executor's output can be from the stored function, for tokens in [−1, 1].

    None for log heads, whose stored function is not made of the executor's taps, and where a bound does not exist.
    """
    if "log" in network.layers[0].attention.rpe:
        return None
    layer = fuse(network)
    units = [[fmpq(int(i == j)) for i in range(len(layer.embedding))] for j in range(len(layer.embedding))]
    try:
        with working_precision(layer.bits):
            readout, coordinates = evaluation_error(network, layer, [l1_norm(layer.kernel(unit, 0)).most for unit in units])
    except Refusal:
        return None
    return upper(readout + coordinates[0])


@cache
def sequence(rpe: str, bits: int) -> Dual:
    """A sequence δ for w = 2^−bits, of the longest lag that a bank can serve at that price, about."""
    unit = fmpq(1, 2**bits)
    return Balance(rpe, unit).dual(max(1, rule(unit) - (rpe == "log")))  # type: ignore[arg-type]


@cache
def least_budgeted(rpe: str, lag: int, bits: int) -> float:
    """A certified lower bound of E_w(T), w = 2^−bits: by δ; for lin at its best place up to T (E_w grows with T), and in closed form."""
    if bits == FLOAT32:
        return limits.lag_limit(rpe, lag, UNIT_32, DECAY_BITS).lower  # type: ignore[arg-type]
    unit, dual = fmpq(1, 2**bits), sequence(rpe, bits)
    places = range(1, lag + 1) if rpe == "lin" else (lag,)
    shown = max(lower(limits.shown_by(dual, place, unit, rpe)) for place in places)  # type: ignore[arg-type]
    return max(shown, lower(best_pi_bound(lag, unit)[0])) if rpe == "lin" else shown


def layer_bound(rpe: str, heads: int, lag: int, weights: float) -> float:
    """(i) and (ii): what a layer of one type with so many heads and weights of size W cannot fall below."""
    if heads <= lag - 1:
        return 1.0
    with working_precision(64):
        return max([0.0, *(lower(arb(least_budgeted(rpe, lag, b)) - arb(weights) / 2**b) for b in PRICES[rpe])])


def float32_limit(rpe: str, lag: int) -> dict[str, float]:
    """lower ≤ E_u(T) ≤ upper, u = 2^−24; sequences for smaller u are feasible for u too."""
    pair = limits.lag_limit(rpe, lag, UNIT_32, DECAY_BITS)  # type: ignore[arg-type]
    finer = [least_budgeted(rpe, lag, bits) for bits in PRICES[rpe] if bits >= FLOAT32]
    return {"lag": lag, "lower": max([pair.lower, *finer]), "upper": pair.upper}
