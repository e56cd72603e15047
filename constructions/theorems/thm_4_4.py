"""The weights of Theorem 4.4, and of Theorem 4.1 and Propositions 4.3 and 4.5 (statements: `analyzer.statements.registry`).

Residual stream of width D = (M+1)(d+1): x_t, the memories, one lag slot per memory, a constant slot.

    W_E       x_t into the block x0; everything else starts at 0
    layer 1   attention off; the FFN writes the lags of the first memories, and 1 into the constant slot
    layer l   head h of memory k: W_V reads x0, W_O writes a_h times it into block k;
              dp:  W_Q = p_h · (lag slot k), W_K = constant slot      tmx:  w = lag slot k
              so that the score is −p_h(s − g) or −p_h log(s/g); its FFN writes the lags of the next memories
    last FFN  f on the box of the memories delivered, by splines or Barron sampling

The inner FFNs are exact encodings or Barron samples followed by rounding, or relu staircases without
(`constructions.neurons.lag_encoding`).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.errors import Refusal, Remedy, larger_error
from analyzer.families import DEFAULT_ERROR, MAX_HEADS, Adaptive
from analyzer.kernels.l1_norms import l1_norm
from analyzer.lemmas.extraction import Rpe, adaptive_heads, adaptive_minimal_bound, attention_bound, choose_tuning, solve_heads
from analyzer.lemmas.feedforward import plan_feedforward
from analyzer.lemmas.lag_encoding import LOG_BITS, Form, LagEncoding, encode, rounding_distance, rounding_margin, slot_ball, slot_form
from analyzer.lemmas.relu_error import Neuron, local_range
from analyzer.numbers.exact import UNIT, rational, upper, working_precision
from analyzer.targets.adaptive import AdaptiveMemory
from analyzer.theorems.base import extraction_budget
from analyzer.theorems.thm_4_4 import MARGIN_SHARE, check_options, check_sizes, exactly, extraction_errors
from constructions.banks.balanced_lags import balanced_lag_bank
from constructions.banks.lag_banks import LagBank, budgeted_minimal, exact_minimal, head_mass, interpolation_lag_bank, weight_mass
from constructions.network.precision import MANTISSA
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, zeros
from constructions.neurons import feedforward
from constructions.neurons.lag_encoding import exact_encoding, sampled_encoding, staircase
from constructions.run.lagged import MAX_TABLE, lagged_layers
from constructions.theorems.assembly import BOX_SHARE, FEW, round_network
from constructions.theorems.construction import Construction

MAX_DRAWS = 4
"""Samples tried at each width before it is doubled."""


@dataclass(frozen=True)
class Slots:
    """Coordinates of the residual stream."""

    memories: int
    dim: int

    def block(self, k: int) -> range:
        """Token block k: 0 is x_t, then the memories."""
        return range(k * self.dim, (k + 1) * self.dim)

    @property
    def tokens(self) -> int:
        return (self.memories + 1) * self.dim

    def lag(self, memory: int) -> int:
        """The lag slot of a memory (counted from 0)."""
        return self.tokens + memory

    @property
    def constant(self) -> int:
        return self.tokens + self.memories

    @property
    def width(self) -> int:
        return self.tokens + self.memories + 1


def slots_of(target: AdaptiveMemory) -> Slots:
    return Slots(len(target.memories), target.dim)


def slots(target: AdaptiveMemory, network: Transformer | None = None) -> dict[str, range]:
    """Named blocks of the residual stream: `x0`, the memories, `lag` and a memory's name, `constant`; they follow from the target."""
    layout = slots_of(target)
    blocks = {name: layout.block(k) for k, name in enumerate(("x0", *target.names))}
    lags = {f"lag {name}": range(layout.lag(k), layout.lag(k) + 1) for k, name in enumerate(target.names)}
    return {"constant": range(layout.constant, layout.width)} | lags | blocks  # a memory may be called constant


def meanings(target: AdaptiveMemory, network: Transformer | None = None) -> dict[str, str]:
    """What the slots hold once their layer has written them."""
    told = {"constant": "the same number at every position, which keys are made of", "x0": "the current token"}
    for name in target.names:
        told |= {f"lag {name}": f"how far back {name} lies, or the logarithm of it", name: f"the token at the lag of {name}"}
    return told


def build(target: AdaptiveMemory, options: Adaptive | None = None, **keywords: Any) -> Construction:
    """Build the network for a total error (half of it for a curved read-out), or with paper/tuned banks of `heads` heads per layer.

    `width` forces the number of Barron neurons per lag, right or wrong; otherwise the narrowest sample that is certified is taken.
    """
    options = Adaptive.of(options, keywords)
    rpe, attention, bank, rounding, dtype = (
        options.sloped,
        options.resolved_attention,
        options.resolved_bank,
        options.rounding,
        options.dtype,
    )
    check_options(target, options)
    check_sizes(target, options)
    form = slot_form(rpe, attention)
    encodings = [encode(target, k) for k in range(len(target.memories))]
    schedule = target.schedule(options.deep)
    budget = DEFAULT_ERROR if options.error is None else options.error
    readout_error = budget / 2
    attention_error = readout_error if target.readout.ridges else budget
    allowed = extraction_errors(target, encodings, form, rounding, attention_error, min(1.0, budget))
    if dtype == "exact":
        banks = _banks(target, rpe, bank, schedule, options.heads, allowed, options.deep)
    else:
        shared = MARGIN_SHARE * max(1, *map(len, target.parents.values()))  # with nothing left to other parents
        margins = [shared * e for e in extraction_errors(target, encodings, form, rounding, math.inf, 1.0)]
        banks, delivered = _float_banks(target, options, allowed, margins)
        readout_error = _left(target, options, delivered, budget)
    ideal = [exact_encoding(encoding, encoding.values(form)) for encoding in encodings]
    extraction = _Extraction(attention, schedule, banks, form)
    if dtype == "exact":
        draft = _assemble(target, extraction, ideal, _placeholder(target), "ideal")
        delivered = _delivered(target, draft, schedule, form, [_promised(bank, heads_of) for heads_of in banks])
    bits = _log_bits(banks) if rounding == "relu" else LOG_BITS
    lag_neurons, draws = _lag_neurons(target, encodings, form, bits, options, delivered)
    radii = [arb(1)] * target.dim + [1 + e * (1 + BOX_SHARE) for e in delivered for _ in range(target.dim)]
    plan = plan_feedforward(options.ffn, target.readout, radii, None, readout_error)
    if options.ffn == "spline":
        readout, readout_draws = feedforward.spline(target.readout, plan, radii), 0
    else:
        readout, readout_draws = feedforward.barron(target.readout, plan, radii, options.seed)
    network = _assemble(target, extraction, lag_neurons, readout, rounding, options.encode == "exact")
    sampled = {**dict(zip(target.names, draws, strict=True)), "read-out": readout_draws}
    return Construction(target, options.resolved(), round_network(network, dtype), sampled)


def _banks(
    target: AdaptiveMemory, rpe: Rpe, bank: str, schedule: Sequence[Sequence[int]], heads: int | None, allowed: list[float], deep: bool
) -> list[LagBank]:
    lags = [target.occurring(k) for k in range(len(target.memories))]
    if bank == "minimal":
        return [exact_minimal(rpe, lags[k], allowed[k]) for k in range(len(lags))]
    result: dict[int, LagBank] = {}
    for group in schedule:
        longest = tuple(max(lags[k]) for k in group)
        if heads is not None:
            split = attention_bound(rpe, longest, heads, bank).heads
        else:
            split = tuple(solve_heads(rpe, (lag,), allowed[k], bank).total_heads for k, lag in zip(group, longest, strict=True))
        if sum(split) > MAX_HEADS:
            ways: list[Remedy] = [{"layers": "deep"}] if not deep and max(split) <= FEW else []
            reason = f"the {bank} bank's bound asks for {sum(split)} heads in one layer, {MAX_HEADS} is the most that we build"
            raise Refusal(reason, {"bank": "minimal"}, *ways)
        for k, count in zip(group, split, strict=True):
            result[k] = interpolation_lag_bank(rpe, lags[k], count, choose_tuning(bank, rpe, max(lags[k])))
    return [result[k] for k in range(len(lags))]


def _price(target: AdaptiveMemory, heads: int, dtype: str) -> fmpq:
    """What a unit of weight costs in rounding: u times the operations between a token and its memory.

    Storage of weight, factor and ratio: 4, scan and factor: 5, output: H d terms, residual: 1. (Taps come on top.)
    """
    return UNIT[dtype] * (10 + heads * target.dim)


def _float_banks(
    target: AdaptiveMemory, options: Adaptive, allowed: Sequence[float], margins: Sequence[float]
) -> tuple[list[LagBank], list[arb]]:
    """(the bank of every memory in a float type, what it delivers: extraction error and rounding together).

    Minimal banks have the best parameter. Balanced ones have the fewest heads that reach a memory's share, `allowed`, of the error; where
    one of them does not, all have as many as are worth their rounding, for memories may use up each other's shares and the read-out's.
    Whether the network reaches the error is for its certificate to say. What cannot be of use is refused: a bank that is no better than
    none, or that uses up all of the margin (`margins`) of the lags that are read off its memory.
    """
    chosen = _chosen(target, options, allowed)
    if any(found is None or upper(found[1]) > share for found, share in zip(chosen, allowed, strict=True)):
        chosen = _chosen(target, options, [0.0] * len(allowed))
    banks, delivered = [], []
    for k, found in enumerate(chosen):
        longest = max(target.occurring(k))
        subject = f"{options.dtype} cannot hold lag {longest} of {target.names[k]}"
        if found is None or not upper(found[1]) < 1:
            raise Refusal(f"{subject}: no {options.resolved_bank} {options.rpe} bank is better than none", *_ways(options, longest))
        bank, error = found
        if not upper(error) < margins[k]:
            raise Refusal(
                f"{subject} so well that lags can be read off it: extraction error and rounding of its {options.resolved_bank} "
                f"{options.rpe} bank are {upper(error):.3g}, the margin is {margins[k]:.3g}",
                *_ways(options, longest),
            )
        banks.append(bank)
        delivered.append(error)
    return banks, delivered


def _chosen(target: AdaptiveMemory, options: Adaptive, allowed: Sequence[float]) -> list[tuple[LagBank, arb] | None]:
    """A bank for every memory, with its error and rounding together; None where its lag is beyond any table or type."""
    dtype, rpe = options.dtype, options.sloped
    lags = [target.occurring(k) for k in range(len(target.memories))]
    price = _price(target, max(sum(adaptive_heads(rpe, lags[k]) for k in group) for group in target.schedule(options.deep)), dtype)
    result: list[tuple[LagBank, arb] | None] = []
    for found, share in zip(lags, allowed, strict=True):
        if max(found) > MAX_TABLE[rpe]:
            result.append(None)
        else:
            minimal = options.resolved_bank == "minimal"
            result.append(_minimal(rpe, found, price, dtype) if minimal else balanced_lag_bank(found, share, dtype))
    return result


@lru_cache(maxsize=64)
def _minimal(rpe: Rpe, lags: tuple[int, ...], price: fmpq, dtype: str) -> tuple[LagBank, arb]:
    """The best minimal bank for a float type, and its error and rounding together."""
    bank = budgeted_minimal(rpe, lags, price, MANTISSA[dtype])
    with working_precision(256):
        return bank, adaptive_minimal_bound(rpe, lags, bank.decays) + arb(price) * weight_mass(bank)


def _ways(options: Adaptive, lag: int) -> list[Remedy]:
    """Other heads and more bits, where a table of factors reaches the lag; a bias per distance (table-lags), which every type holds; exact
    arithmetic."""
    ways: list[Remedy] = []
    if options.resolved_bank == "minimal" and lag <= MAX_TABLE["lin"]:
        ways.append({"bank": "balanced"} | ({"rpe": "lin"} if options.rpe == "log" else {}))
    if options.dtype == "float32" and lag <= MAX_TABLE[options.rpe]:
        ways.append({"dtype": "float64"})
    return [*ways, {"rpe": "table", **options.unlike_a_table}, exactly(options.resolved_bank)]


LEAST_SHARE = 8
"""A curved read-out may use one part in this many of the error, or all that the memories leave."""
FAR = 16
"""Memories that use this many times the error are not built: certificates were found up to 2.2 times below what memories may use."""


def _left(target: AdaptiveMemory, options: Adaptive, delivered: Sequence[arb], error: float) -> float:
    """What memories that are delivered so well leave to the read-out: half of the error, or what is left of it if that is less."""
    box = [arb(1)] * target.dim + [1 + e for e in delivered for _ in range(target.dim)]
    lipschitz = target.readout.lipschitz(box)[1:]
    used = upper(sum((lip * e for lip, e in zip(lipschitz, delivered, strict=True)), arb(0)))
    if used > FAR * error:
        enough = used * (2.1 if target.readout.ridges else 1.05)
        longest = max(max(target.occurring(k)) for k in range(len(delivered)))
        raise Refusal(
            f"{options.dtype} does not hold these memories to error {error:g}: extraction and rounding of their {options.resolved_bank} "
            f"{options.rpe} banks use up to {used:.3g}",
            *_ways(options, longest),
            *(larger_error(enough) if enough <= 1 else ()),
        )
    return min(error / 2, max(error - used, error / LEAST_SHARE))


def _promised(bank: str, heads: LagBank) -> arb:
    """The bound of a bank."""
    with working_precision(256):
        if bank == "minimal":
            return adaptive_minimal_bound(heads.rpe, heads.lags, sorted(heads.decays))
        return extraction_budget(bank, heads.rpe, max(heads.lags), heads.decays)


def _placeholder(target: AdaptiveMemory) -> list[Neuron]:
    return [Neuron((fmpq(0),) * slots_of(target).tokens, fmpq(0), fmpq(0))]


def _delivered(
    target: AdaptiveMemory, network: Transformer, schedule: Sequence[Sequence[int]], form: Form, promised: Sequence[arb]
) -> list[arb]:
    """Extraction error of every memory when its slot is right: what is promised or, if that is above 1, certified for all its lags."""
    layers, slots = lagged_layers(network), slots_of(target)
    errors = {}
    for index, group in enumerate(schedule, start=1):
        layer = layers[index]
        for k in group:
            if upper(promised[k]) <= 1:
                errors[k] = promised[k]
                continue
            worst = arb(0)
            for lag in target.occurring(k):
                with working_precision(layer.bits(slot_ball(form, lag))):
                    kernel = layer.kernel(slots.block(k + 1)[0], 0, slot_ball(form, lag), {lag: fmpq(1)})
                    worst = worst.max(l1_norm(kernel).most)
            errors[k] = worst
    return [errors[k] for k in range(len(errors))]


def _log_bits(banks: Sequence[LagBank]) -> int:
    """Bits of a stored logarithm so that its error, times Σ|a_h| p_h (mass of head h), stays below 2^-64: nothing rounds it later."""
    with working_precision(64):
        total = arb(1)
        for bank in banks:
            for decay, weight in zip(bank.decays, bank.weights, strict=True):
                total += abs(arb(weight)) * arb(decay) * head_mass(bank.rpe, decay, max(bank.lags))
        return 2 * LOG_BITS + max(0, int(upper(total.log() / arb(2).log())) + 1)


def _lag_neurons(
    target: AdaptiveMemory,
    encodings: list[LagEncoding],
    form: Form,
    bits: int,
    options: Adaptive,
    delivered: list[arb],
) -> tuple[list[list[Neuron]], list[int]]:
    """The neurons of every lag, and how many samples each took."""
    neurons, draws = [], []
    for encoding in encodings:
        values = encoding.values(form, bits)
        if options.rounding == "relu":
            chosen, took = staircase(encoding, values), 0
        elif options.encode == "exact":
            chosen, took = exact_encoding(encoding, values), 0
        else:
            chosen, took = _certified_sample(target, encoding, form, options.width, options.seed, delivered)
        neurons.append(chosen)
        draws.append(took)
    return neurons, draws


def _certified_sample(
    target: AdaptiveMemory, encoding: LagEncoding, form: Form, width: int | None, seed: int, delivered: list[arb]
) -> tuple[list[Neuron], int]:
    """The narrowest sample (in powers of 2) that is certified to be rounded to the right lag; or one of the given width, right or wrong."""
    rng = np.random.default_rng([seed, encoding.memory])
    values = encoding.values(form)
    radius = 1 + max((rational(upper(e)) for e in delivered), default=fmpq(0))
    if width is not None:
        return sampled_encoding(encoding, values, radius, width, rng), 1
    noise = [fmpq(0)] * target.dim + [rational(upper(e)) for e in delivered for _ in range(target.dim)]
    most = max(1, encoding.sampling_width(form, rounding_margin(form, max(encoding.lags)), radius))
    count, took = 1, 0
    while count <= 2 * most:
        for _ in range(MAX_DRAWS):
            took += 1
            sample = sampled_encoding(encoding, values, radius, count, rng)
            if all(
                rounding_distance(form, lag, *local_range(sample, point, noise)) < fmpq(1, 2)
                for point, lag in parent_points(target, encoding.memory)
            ):
                return sample, took
        count *= 2
    name = target.names[encoding.memory]
    raise Refusal(f"no sample of up to {count // 2} neurons encodes the lag of {name} within its margin", {"encode": "exact"})


def parent_points(target: AdaptiveMemory, memory: int) -> list[tuple[list[fmpq], int]]:
    """(token coordinates with the parents' tokens in place, lag) for every combination of parents' tokens that occurs."""
    slots = slots_of(target)
    blocks = [slots.block(target.slot_index(name)) for name in target.parents[target.names[memory]]]
    result = []
    for tokens, lag in target.lag_table(memory).items():
        point = [fmpq(0)] * slots.tokens
        for block, token in zip(blocks, tokens, strict=True):
            for j, v in zip(block, target.alphabet[token], strict=True):
                point[j] = v
        result.append((point, lag))
    return result


@dataclass(frozen=True)
class _Extraction:
    """How memories are extracted: kind of attention, memories by layer, a bank for each of them, and what lag slots hold (g or log g)."""

    attention: str
    schedule: Sequence[Sequence[int]]
    banks: Sequence[LagBank]
    form: Form


def _assemble(
    target: AdaptiveMemory,
    extraction: _Extraction,
    lag_neurons: Sequence[list[Neuron]],
    readout: list[Neuron],
    rounding: str,
    share_constants: bool = True,
) -> Transformer:
    """The network: layer l extracts the memories of its level and writes the lags of the next one; the last layer reads out."""
    schedule, banks, form = extraction.schedule, extraction.banks, extraction.form
    slots = slots_of(target)
    embedding = zeros(slots.width, target.dim)
    for i in range(target.dim):
        embedding[i, i] = fmpq(1)
    layers = []
    for index in range(len(schedule) + 1):
        extracted = schedule[index - 1] if index else ()
        heads = _attention(slots, extraction.attention, banks[0].rpe, [(k, banks[k]) for k in extracted])
        if index == len(schedule):
            layers.append(Layer(heads, _readout(slots, readout)))
        else:
            writes = {slots.lag(k): lag_neurons[k] for k in schedule[index]}
            if index == 0:
                writes[slots.constant] = [Neuron((fmpq(0),) * slots.tokens, fmpq(1), fmpq(1))]
            precision = {"lag": "integer", "log": "log"}[form] if rounding == "ideal" else ""
            layers.append(Layer(heads, _writers(slots, writes, precision, share_constants)))
    return Transformer(embedding, zeros(slots.width), tuple(layers))


def _attention(slots: Slots, kind: str, rpe: Rpe, banks: Sequence[tuple[int, LagBank]]) -> Attention:
    """The heads of one layer; without banks a single head that is off."""
    total = max(1, sum(bank.heads for _, bank in banks))
    value, output = zeros(total, slots.dim, slots.width), zeros(total, slots.width, slots.dim)
    rank = 1 if kind == "dp" else 0
    query, key = zeros(total, rank, slots.width), zeros(total, rank, slots.width)
    pointer = zeros(total if kind == "tmx" else 0, slots.width)
    decays: list[fmpq] = []
    for memory, bank in banks:
        for decay, weight in zip(bank.decays, bank.weights, strict=True):
            h = len(decays)
            decays.append(decay)
            for i in range(slots.dim):
                value[h, i, i] = fmpq(1)
                output[h, slots.block(memory + 1)[i], i] = weight
            if kind == "dp":
                query[h, 0, slots.lag(memory)] = decay
                key[h, 0, slots.constant] = fmpq(1)
            else:
                pointer[h, slots.lag(memory)] = fmpq(1)
    decay_array = exact_array(decays or [fmpq(2)])
    return Attention(decay_array, value, output, query, key, pointer, (rpe,) * total, "nf" if kind == "dp" else "tmx")


def _writers(slots: Slots, writes: dict[int, list[Neuron]], precision: str, share_constants: bool) -> FeedForward:
    """One FFN that writes several slots; constant neurons may be shared, sampled neurons are kept as they were drawn."""
    hidden: list[tuple[tuple[fmpq, ...], fmpq]] = []
    entries: list[tuple[int, int, fmpq]] = []
    constant: int | None = None
    for slot, neurons in writes.items():
        merged = fmpq(0)
        for neuron in neurons:
            if share_constants and not any(neuron.row) and neuron.bias == 1:
                merged += neuron.outer
                continue
            entries.append((slot, len(hidden), neuron.outer))
            hidden.append((neuron.row, neuron.bias))
        if merged != 0:
            if constant is None:
                constant = len(hidden)
                hidden.append(((fmpq(0),) * slots.tokens, fmpq(1)))
            entries.append((slot, constant, merged))
    if not hidden:
        hidden.append(((fmpq(0),) * slots.tokens, fmpq(1)))
    inner, bias, outer = zeros(len(hidden), slots.width), zeros(len(hidden)), zeros(slots.width, len(hidden))
    for n, (row, c) in enumerate(hidden):
        inner[n, : slots.tokens] = row
        bias[n] = c
    for slot, n, weight in entries:
        outer[slot, n] = weight
    rounded = {slot for slot in writes if slot != slots.constant}
    return FeedForward(inner, bias, outer, tuple(precision if j in rounded else "none" for j in range(slots.width)) if precision else ())


def _readout(slots: Slots, neurons: list[Neuron]) -> FeedForward:
    plain = feedforward.as_network(neurons)
    inner = zeros(len(neurons), slots.width)
    inner[:, : slots.tokens] = plain.inner
    return FeedForward(inner, plain.bias, plain.outer)
