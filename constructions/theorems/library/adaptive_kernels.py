"""The weights of adaptive kernels (statement: `analyzer.theorems.library.adaptive_kernels`).

Residual stream of width 4: the token x0, the sum k, the lag g, a constant.

    W_E        x_t into x0; everything else starts at 0
    layer 1    attention off; the FFN writes g(x_t), rounded to a whole number, and 1 into the constant slot
    layer 2    head h: W_V reads x0, W_O writes a_h times it into k; lin (nf): W_Q = p_h · lag, W_K = constant; log (tmx): w = lag
    last FFN   k = relu(k) − relu(−k)
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.errors import Refusal
from analyzer.families import DEFAULT_ERROR, MAX_HEADS
from analyzer.kernels.memory_kernels import parse_kernel
from analyzer.numbers.exact import UNIT, nearest, rational, working_precision
from analyzer.numbers.piecewise import slope_changes
from analyzer.targets.tasks.adaptive_kernels import MovingKernel
from analyzer.theorems.library.adaptive_kernels import MovingBank, reference, reference_lag, rpe_of
from analyzer.theorems.thm_5_1 import attention_bound, solve_heads
from constructions.banks.head_banks import GUARD, HeadBank, normaliser
from constructions.banks.kernel_banks import (
    CERTIFY_BITS,
    EXACT,
    MAX_FITTED,
    FittedArithmetic,
    bank_for_error,
    exact_bank,
    fitted_bank,
    interpolation_kernel_bank,
)
from constructions.banks.lag_banks import LagBank, store
from constructions.network.precision import MANTISSA, tap_count
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, zeros
from constructions.run.lagged import MAX_TABLE, MAX_TAPS
from constructions.theorems.assembly import round_network
from constructions.theorems.construction import Construction

TOKEN, SUM, LAG, CONSTANT, WIDTH = range(5)
KERNEL_SHARE = 0.9
"""The share of an error that a fitted kernel may use; the rest is for storing and rounding, which the certificate counts."""


def slots(target: MovingKernel, network: Transformer | None = None) -> dict[str, range]:
    """Named coordinates of the residual stream: `x0`, `k1`, `lag`, `constant`."""
    return {name: range(j, j + 1) for name, j in (("x0", TOKEN), ("k1", SUM), ("lag", LAG), ("constant", CONSTANT))}


def meanings(target: MovingKernel, network: Transformer | None = None) -> dict[str, str]:
    """What the slots hold once their layer has written them."""
    return {
        "x0": "the current token",
        "k1": "the past, summed with the moved kernel",
        "lag": "how far the token moves the kernel",
        "constant": "the same number at every position, which keys are made of",
    }


def build(target: MovingKernel, options: MovingBank | None = None, **keywords: Any) -> Construction:
    """Build the network: by heads, or for an error."""
    options = MovingBank.of(options, keywords)
    if options.dtype != "exact" and target.longest > MAX_TABLE[rpe_of(target)]:
        raise Refusal(
            f"{options.dtype} networks read lags from tables up to {MAX_TABLE[rpe_of(target)]} for {rpe_of(target)} heads; "
            f"this target has {target.longest}",
            {"dtype": "exact"},
        )
    return Construction(target, options, round_network(assemble(target, bank_of(target, options)), options.dtype))


def bank_of(target: MovingKernel, options: MovingBank) -> LagBank:
    """The heads: those of ρ itself where it is a sum of them, else a bank for R, moved to g = 0 or 1."""
    rpe, arithmetic = rpe_of(target), _arithmetic(target, options.dtype)
    _check_taps(target, arithmetic, options.dtype)
    own = exact_bank(rpe, parse_kernel(target.rho), 1) if options.bank == "fitted" else None
    if own is not None and options.heads in (None, own.heads):
        return _moved(target, own, 0 if rpe == "lin" else 1)
    share = (DEFAULT_ERROR if options.error is None else options.error) / target.size
    kernel = reference(target)
    if options.bank == "tuned":
        found = solve_heads(rpe, [kernel], share) if options.heads is None else attention_bound(rpe, [kernel], options.heads)
        if found.heads[0] > MAX_HEADS:
            reason = f"the tuned bank's bound asks for {found.heads[0]} heads, {MAX_HEADS} is the most that we build"
            raise Refusal(reason, {"bank": "fitted"})
        bank = interpolation_kernel_bank(rpe, kernel, 1, found.heads[0], found.tunings[0])
    elif options.heads is None:
        bank = bank_for_error(rpe, kernel, 1, KERNEL_SHARE * share, arithmetic, target.size / KERNEL_SHARE)
    else:
        bank = fitted_bank(rpe, kernel, 1, options.heads, arithmetic)
    return _moved(target, bank, reference_lag(target))


def _arithmetic(target: MovingKernel, dtype: str) -> FittedArithmetic:
    """What floats ask of a bank: u times about 10 + H operations per unit of weight, and powers whose taps can be summed."""
    if dtype == "exact":
        return EXACT
    slowest = fmpq(0)
    if target.motion == "stretch":
        powers = (fmpq(k, 8) for k in range(9, 1024))
        slowest = next(p for p in powers if tap_count(p, dtype, MAX_TABLE["log"]) <= MAX_TAPS)
    return FittedArithmetic(nearest(UNIT[dtype] * (10 + MAX_FITTED)), MANTISSA[dtype], slowest)


def _check_taps(target: MovingKernel, arithmetic: FittedArithmetic, dtype: str) -> None:
    """Refuse kernels that fall like a power which floats would sum over too many tokens."""
    envelope = parse_kernel(target.rho).envelope
    if target.motion == "stretch" and envelope.shape == "power" and envelope.rate < arithmetic.slowest:
        raise Refusal(
            f"{dtype} networks sum log heads over at most {MAX_TAPS} tokens: powers from s^-{nearest(fmpq(arithmetic.slowest)):g} on; "
            f"kernel {target.rho[:60]!r} falls like s^-{nearest(envelope.rate):g}",
            {"dtype": "exact"},
        )


def _moved(target: MovingKernel, bank: HeadBank, at: int) -> LagBank:
    """Raw weights a_h = b_h e^{−p_h g} or b_h g^{−p_h} of a bank that is right at g = `at`."""
    rpe, bits = bank.rpe, CERTIFY_BITS + 64 * bank.heads
    steepest = nearest(max(bank.decays)) * at
    with working_precision(2 * bits + int(2 * steepest) + 4 * GUARD):
        weights = []
        for weight, p in zip(bank.weights[0], bank.decays, strict=True):
            back = (-arb(p) * at).exp() if rpe == "lin" else arb(at) ** -arb(p)
            weights.append(arb(weight) / normaliser(rpe, p, bits) * back)
        return store(rpe, target.lags, bank.decays, weights, 2.0**-GUARD)


def assemble(target: MovingKernel, bank: LagBank) -> Transformer:
    """Exact weights."""
    embedding = zeros(WIDTH, 1)
    embedding[TOKEN, 0] = fmpq(1)
    layers = (
        Layer(_heads(bank.rpe, [fmpq(2)], [fmpq(0)], off=True), _writer(target)),
        Layer(_heads(bank.rpe, bank.decays, bank.weights), read_out()),
    )
    return Transformer(embedding, zeros(WIDTH), layers)


def _heads(rpe: str, decays: Sequence[fmpq], weights: Sequence[fmpq], off: bool = False) -> Attention:
    """Heads that read the lag slot; without values if they are off."""
    count, rank = len(decays), 1 if rpe == "lin" else 0
    value, output = zeros(count, 1, WIDTH), zeros(count, WIDTH, 1)
    query, key, pointer = zeros(count, rank, WIDTH), zeros(count, rank, WIDTH), zeros(0 if rank else count, WIDTH)
    if not off:
        value[:, 0, TOKEN] = fmpq(1)
        output[:, SUM, 0] = np.array(weights, dtype=object)
        if rank:
            query[:, 0, LAG] = np.array(decays, dtype=object)
            key[:, 0, CONSTANT] = fmpq(1)
        else:
            pointer[:, LAG] = fmpq(1)
    return Attention(exact_array(list(decays)), value, output, query, key, pointer, (rpe,) * count, "nf" if rank else "tmx")


def _writer(target: MovingKernel) -> FeedForward:
    """relu(1) for the constant and the first lag, then a kink at every letter but the last: g is interpolated, and rounded."""
    pairs = sorted(zip((rational(x) for x in target.alphabet), target.lags, strict=True))
    letters, lags = [x for x, _ in pairs], [fmpq(lag) for _, lag in pairs]
    changes = slope_changes(letters, lags) if len(letters) > 1 else []
    inner, outer = zeros(len(letters), WIDTH), zeros(WIDTH, len(letters))
    inner[1:, TOKEN] = fmpq(1)
    outer[LAG], outer[CONSTANT, 0] = [lags[0], *changes], fmpq(1)
    bias = exact_array([fmpq(1), *(-x for x in letters[:-1])])
    return FeedForward(inner, bias, outer, tuple("integer" if j == LAG else "none" for j in range(WIDTH)))


def read_out() -> FeedForward:
    """relu(k) − relu(−k)."""
    inner = zeros(2, WIDTH)
    inner[0, SUM], inner[1, SUM] = fmpq(1), fmpq(-1)
    return FeedForward(inner, zeros(2), exact_array([[1, -1]]))
