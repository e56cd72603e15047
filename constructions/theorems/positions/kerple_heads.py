"""The weights of `analyzer.theorems.positions.kerple_heads`: kerple heads of one rate, in the stream of Theorem 3.1."""

from dataclasses import replace

from flint import arb, fmpq

from analyzer.errors import Refusal, Remedy
from analyzer.families import DEFAULT_ERROR, KERPLE, Fixed
from analyzer.kernels.l1_norms import l1_norm
from analyzer.lemmas.kerple import exponents
from analyzer.limits.pi_law import best_pi_bound
from analyzer.numbers.exact import lower, rational, upper, working_precision
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems import base
from analyzer.theorems.positions.kerple_heads import check, rate_of
from constructions.banks.head_banks import HeadBank, weight_sum
from constructions.banks.kerple import budgeted_kerple, minimal_kerple
from constructions.network.precision import MANTISSA, UNIT, shifted_tap_count
from constructions.network.transformer import FeedForward, Layer, Transformer, exact_array, to_float
from constructions.neurons import feedforward
from constructions.run.fast import MAX_TAPS
from constructions.run.fused import fuse
from constructions.theorems import assembly
from constructions.theorems.assembly import BOX_SHARE, assemble, box_of, placeholder, round_network, rounding_price
from constructions.theorems.construction import Construction

slots = assembly.slots
meanings = assembly.meanings
MOST_HEADS = 12
"""Float banks with more heads are not searched for: float64 resolves 11 tokens back (`analyzer.limits.pi_law`)."""


def build(target: FixedMemory, options: Fixed) -> Construction:
    """Build the layer with as many heads as the longest lag; in floats the bank that is best for the type."""
    check(target, options)
    budget = DEFAULT_ERROR if options.error is None else options.error
    shares = base.shares(target.readout, target.radii(), target.dim, budget)
    cap = min(1.0, budget)
    heads, rate = options.heads or target.lags[-1], _stored_rate(target, options)
    if options.dtype == "exact":
        lipschitz = [arb(lip) for lip in shares.lipschitz]

        def holds(errors: list[arb]) -> bool:
            total = sum((lip * e for lip, e in zip(lipschitz, errors, strict=True)), arb(0))
            return upper(total) <= shares.attention and all(upper(e) <= cap for e in errors)

        bank = minimal_kerple(target.lags, heads, rate, *exponents(target.lags, heads, rate, holds), shares.attention)
    else:
        bank = _in_floats(target, options, heads, rate, shares)
    network = _network(target, bank, rate, placeholder(target))
    radii = box_of(target, _delivered(target, network, bank, rate, options.dtype)) if target.readout.ridges else shares.radii
    neurons, draws = feedforward.read_out_neurons(options.ffn, target.readout, radii, options.width, budget / 2, options.seed)
    whole = _network(target, bank, rate, feedforward.as_network(neurons))
    return Construction(target, options, round_network(whole, options.dtype), draws)


def _stored_rate(target: FixedMemory, options: Fixed) -> fmpq:
    """The rate as a number of the type: weights belong to the rate that is stored."""
    rate = rate_of(target, options.rate)
    return rate if options.dtype == "exact" else rational(float(to_float(exact_array([rate]), options.dtype)[0]))


def _price(target: FixedMemory, heads: int, rate: fmpq, dtype: str, bank: HeadBank) -> fmpq:
    """u for every operation between a token and its memory, and for every tap."""
    return rounding_price(target, heads, dtype) + UNIT[dtype] * shifted_tap_count(min(bank.decays), rate, dtype)


def _in_floats(target: FixedMemory, options: Fixed, heads: int, rate: fmpq, shares: base.Shares) -> HeadBank:
    """The best bank for a float type, refused when (K.1) and the rounding of its weights exceed the error."""
    dtype, longest = options.dtype, target.lags[-1]
    ways: list[Remedy] = [{"dtype": "exact"}] + ([{"rpe": "table", "heads": None, "rate": None}] if longest < MAX_TAPS else [])
    least = lower(best_pi_bound(longest, UNIT[dtype])[0])
    if least > shares.attention and not target.readout.ridges:
        raise Refusal(
            f"no kerple heads hold lag {longest} in {dtype} to this error: by the monotone law they do no better than lin heads, and by "
            f"the π-law error and price of rounding are {least:.3g} at least together",
            *ways,
        )
    if heads > MOST_HEADS:
        raise Refusal(f"the weights of {heads} kerple heads add up to more than {dtype} resolves", *ways)
    spent, bank = budgeted_kerple(target.lags, heads, rate, lambda found: _price(target, heads, rate, dtype, found), MANTISSA[dtype])
    allowed = shares.attention / shares.steepest
    if not spent <= allowed:
        raise Refusal(
            f"{dtype} cannot hold lag {longest} with kerple heads at this error: the best bank's weights add up to "
            f"{upper(weight_sum(bank)):.3g}, extraction and rounding to {spent:.3g} where {allowed:.3g} is allowed",
            *ways,
        )
    if shifted_tap_count(min(bank.decays), rate, dtype) > MAX_TAPS:
        raise Refusal(
            f"kerple heads with rate {float(arb(rate)):.3g} fall so slowly that {dtype} runs them by FFT, whose rounding is not certified",
            *ways,
        )
    return bank


def _delivered(target: FixedMemory, network: Transformer, bank: HeadBank, rate: fmpq, dtype: str) -> list[arb]:
    """Certified extraction errors of the exact bank with a share to spare, enlarged by what rounding may add."""
    layer, errors = fuse(network), []
    with working_precision(layer.bits):
        for k in range(1, len(target.lags) + 1):
            row = [fmpq(int(j == k * target.dim)) for j in range(layer.embedding.shape[0])]
            error = l1_norm(layer.kernel(row, 0, *target.wanted(row, 0))).most * (1 + BOX_SHARE)
            slack = arb(0) if dtype == "exact" else arb(_price(target, bank.heads, rate, dtype, bank)) * (1 + weight_sum(bank))
            errors.append(arb(upper(error + slack)))
    return errors


def _network(target: FixedMemory, bank: HeadBank, rate: fmpq, ffn: FeedForward) -> Transformer:
    """The layer of Theorem 3.1 with a rate beside every exponent."""
    plain = assemble(target, [bank], ffn)
    attention = replace(plain.layers[0].attention, rpe=(KERPLE,) * bank.heads, rate=exact_array([rate] * bank.heads))
    return replace(plain, layers=(Layer(attention, ffn),))
