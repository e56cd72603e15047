"""The certificate of Theorem 4.4 and its relatives: from stored weights to witness ≤ certified ≤ bound, on a finite alphabet.

Values are read from the block x0 only, which nothing writes to after the embedding, and keys from the constant slot only. So at a
position t everything is decided by t's own slots: memory k is Σ_s κ(s; y_k) x_{t−s} with y_k its lag slot at t, whatever the other
positions compute. Memory by memory, in the order of the layers,

1. *lag*: for every combination of its parents' tokens that occurs, the neurons that write its slot are evaluated in rational arithmetic,
   with the certified errors of the parents as noise. What arrives must be rounded to the lag: distance < 1/2. Relu staircases must not
   move at all.
2. *extraction*: e_k(B) = ‖κ(·; y_B) − 1_B‖₁ for every lag B that occurs, with the infinite tail; tokens lie in [−1, 1]^d.

Then the read-out F sees u + δ with |δ_k| ≤ e_k(B_k), and

    |F(u + δ) − f(u)| ≤ |F(u + δ̄) − f(u)| + Σ_j |∂_j F| r_j + (neurons that may switch)      for every situation u, or
                      ≤ sup_box |F − f| + Σ_k Lip_k(f) e_k                                    on the box,

where δ̄ is what the tokens that u fixes contribute to the extraction errors, and r_j what all others can; the smaller is
certified. A stream that this does not describe (a memory written twice, a key that reads a token, …) is a fault.

The bound is the theorem's formula at the decays, knots and sizes found in the weights, plus the budget for storing them; a balanced bank
promises what the best weights of its decays do (`constructions.banks.balanced_lags`), whatever weights are stored. The witness is
found by search: for the worst situations the free tokens are chosen against the gradient, and the network is evaluated in ball
arithmetic.
"""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal, finer
from analyzer.kernels.l1_norms import Norm, l1_norm
from analyzer.lemmas.extraction import Rpe, adaptive_minimal_bound
from analyzer.lemmas.lag_encoding import (
    LOG_BITS,
    Form,
    encode,
    finite_or_huge,
    rounding_distance,
    rounding_margin,
    slot_ball,
    slot_form,
    slot_value,
)
from analyzer.lemmas.relu_error import Neuron, local_range, neurons_of, readout_error
from analyzer.numbers.exact import UNIT, dyadic, lower, maximum, rational, upper, working_precision
from analyzer.targets.adaptive import MAX_LAG, AdaptiveMemory, Situation
from analyzer.theorems import base, thm_4_4
from analyzer.theorems.thm_4_4 import check_alphabet
from constructions.banks.balanced_lags import fitted
from constructions.banks.lag_banks import head_mass
from constructions.network.transformer import Transformer, to_exact
from constructions.run import fast
from constructions.run.lagged import LaggedLayer, constant_coordinates, lagged_layers
from constructions.theorems.assembly import BOX_SHARE
from constructions.theorems.thm_4_4 import parent_points, slots_of
from verify.chain.certificate import Certificate, Part, better_than_constant, matched
from verify.chain.layer import FFN_BITS, SMALLEST_RADIUS, readout_bound
from verify.chain.rounding import extraction_error, feed_forward_error

HALF = fmpq(1, 2)
STAIRCASE = fmpq(1, 2**LOG_BITS)
"""How far a slot that nothing rounds may be from the logarithm of its lag, and what that may cost; lags themselves are exact."""
MAX_WORK = 1_500_000
"""Situations times neurons of the read-out gone through one by one (some ten seconds); beyond that the box is certified."""
STORAGE = arb(2) ** -60
"""The share of an extraction error that storing a bank's weights may add; `constructions.banks.lag_banks` stays eight times below."""
WITNESS_LENGTH = 96
"""Tokens of a witness beyond the longest lag; the kernels fall below their rounding long before, except the paper's slow banks."""
WITNESS_SITUATIONS = 6
"""Situations that are searched; the first is the worst by the certificate, the others guard against ties."""


@dataclass(frozen=True)
class _Slot:
    """What a memory's lag slot holds for one lag, and the error kernels of its block at that value.

    `error` is the worst over the block's coordinates; `rounding` its floating-point share.
    """

    value: arb
    norms: dict[tuple[int, int], Norm]
    error: arb
    rounding: arb


@dataclass
class _Reading:
    """A network read as the construction of Theorem 4.4, with everything that does not fit."""

    network: Transformer
    target: AdaptiveMemory
    deep: bool
    faults: list[str] = field(default_factory=list)
    wrong: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    """(memory, parents' tokens) for which a lag is not certified."""

    def __post_init__(self) -> None:
        self.slots = slots_of(self.target)
        self.schedule = self.target.schedule(self.deep)
        self.layers: list[LaggedLayer] = lagged_layers(self.network)
        kinds = {layer.kind for layer in self.layers}
        rpes = {kind for layer in self.layers for kind in layer.rpe}
        if len(kinds) > 1 or len(rpes) > 1:
            raise InputError("the layers mix kinds of attention or of relative position; these theorems use one of each")
        self.attention = "dp" if kinds == {"nf"} else "tmx"
        self.rpe: Rpe = "lin" if rpes == {"lin"} else "log"
        self.form: Form = slot_form(self.rpe, self.attention)
        self._check_stream()
        if self.network.dtype != "exact":
            self._check_overflow()

    def _check_stream(self) -> None:
        """Who may write where: the embedding x0, attention its memories' blocks from x0, inner FFNs the lag slots and the constant.

        The matrices are looked at one by one: what cancels in the product W_O W_V need not cancel in floats.
        """
        slots, embedding = self.slots, to_exact(self.network.embedding)
        for j, i in itertools.product(range(slots.width), range(slots.dim)):
            if embedding[j, i] != int(i == j):
                self.faults.append(f"embedding: coordinate {j} holds {embedding[j, i]} times token coordinate {i}")
        if any(to_exact(self.network.bias)):
            self.faults.append("embedding: it has a bias, the theorem's has none")
        if slots.constant not in constant_coordinates(self.network)[1]:
            self.faults.append("layer 1: the constant slot differs between positions")
        for index in range(len(self.layers)):
            self._check_attention(index, self.schedule[index - 1] if index else ())
            self._check_writers(index, self.schedule[index] if index < len(self.schedule) else ())

    def _check_attention(self, index: int, extracted: Sequence[int]) -> None:
        slots, layer, attention = self.slots, self.layers[index], self.network.layers[index].attention
        value, output = to_exact(attention.value), to_exact(attention.output)
        strange = _support(output.any(axis=(0, 2))) - {j for k in extracted for j in slots.block(k + 1)}
        if strange:
            self.faults.append(f"layer {index + 1}: attention writes coordinate {min(strange)}, which is not its memory")
        strange = _support(value.any(axis=(0, 1))) - set(slots.block(0))
        if strange:
            self.faults.append(f"layer {index + 1}: a value reads coordinate {min(strange)}, not the token")
        for k in extracted:
            block = slots.block(k + 1)
            writers = _support(output[:, block.start : block.stop].any(axis=(1, 2)))
            if any(_support(layer.scores[h]) != {slots.lag(k)} for h in writers):
                self.faults.append(f"layer {index + 1}: the heads of {self.target.names[k]} do not read its lag slot alone")

    def _check_writers(self, index: int, encoded: Sequence[int]) -> None:
        ffn, slots = self.network.layers[index].feedforward, self.slots
        lags = {slots.lag(k) for k in encoded}
        if _support(np.array([p != "none" for p in ffn.precision], dtype=bool)) - lags:
            self.faults.append(f"layer {index + 1}: the FFN rounds more than the lags of its level")
        if index < len(self.schedule):
            strange = _support(to_exact(ffn.outer).any(axis=1)) - lags - ({slots.constant} if index == 0 else set())
            if strange:
                self.faults.append(f"layer {index + 1}: the FFN writes coordinate {min(strange)}, which is no lag of its level")

    def _check_overflow(self) -> None:
        """Positions near the start of an array may hold any lag in the table, and memories up to its limit: they must stay finite."""
        largest = arb(float(np.finfo(self.network.dtype).max))
        stream = [arb(1)] * self.slots.dim + [largest.sqrt()] * (self.slots.tokens - self.slots.dim) + [arb(1)] * (self.slots.memories + 1)
        for layer in self.network.layers:
            ffn = layer.feedforward
            hidden = []
            for row, c in zip(to_exact(ffn.inner), to_exact(ffn.bias), strict=True):
                hidden.append(sum((abs(arb(w)) * m for w, m in zip(row, stream, strict=True) if w != 0), abs(arb(c))))
            outputs = [sum((abs(arb(a)) * v for a, v in zip(row, hidden, strict=True) if a != 0), arb(0)) for row in to_exact(ffn.outer)]
            if not all(2 * value < largest for value in (*hidden, *outputs)):
                raise Refusal(f"{self.network.dtype} may overflow in this network", *finer(self.network.dtype))
            if len(outputs) == len(stream):
                stream = [a + b for a, b in zip(stream, outputs, strict=True)]

    def heads(self, memory: int) -> list[int]:
        """The heads whose scores read a memory's lag slot, by decay (an interpolant may have zero weights)."""
        layer = self.layers[self.place(memory)]
        readers = [h for h in range(len(layer.rpe)) if layer.scores[h, self.slots.lag(memory)] != 0]
        return sorted(readers, key=lambda h: layer.decays[h])

    def place(self, memory: int) -> int:
        """The layer (from 0) whose attention extracts a memory; the FFN before it writes its lag."""
        return 1 + next(index for index, group in enumerate(self.schedule) if memory in group)

    def readout_rounding(self, box: Sequence[arb]) -> arb:
        """Rounding of the read-out of a float network, for a stream in this box."""
        if self.network.dtype == "exact":
            return arb(0)
        longest = [max(self.target.occurring(k)) for k in range(self.slots.memories)]
        return feed_forward_error(self.network.dtype, self.network.layers[-1].feedforward, 0, [*box, *map(arb, longest), arb(1)])

    def writers(self, memory: int) -> list[Neuron]:
        """The neurons with a weight onto a memory's lag slot."""
        ffn, row = self.network.layers[self.place(memory) - 1].feedforward, self.slots.lag(memory)
        inner, bias, outer = to_exact(ffn.inner), to_exact(ffn.bias), to_exact(ffn.outer)
        chosen = [int(n) for n in np.nonzero(outer[row])[0]]
        return neurons_of(inner[chosen], bias[chosen], outer[row, chosen])

    def lag_neurons(self, memory: int) -> list[Neuron]:
        """The same on token coordinates, equal neurons added up."""
        slots = self.slots
        merged: dict[tuple[tuple[fmpq, ...], fmpq], fmpq] = {}
        parents = {j for name in self.target.parents[self.target.names[memory]] for j in slots.block(self.target.slot_index(name))}
        for neuron in self.writers(memory):
            read = {j for j, w in enumerate(neuron.row) if w != 0}
            if read - parents:
                self.faults.append(
                    f"lag {self.target.names[memory]}: a neuron reads coordinate {min(read - parents)}, not one of its parents"
                )
            key = (neuron.row[: slots.tokens], neuron.bias)
            merged[key] = merged.get(key, fmpq(0)) + neuron.outer
        return [Neuron(row, bias, outer) for (row, bias), outer in merged.items()]

    def lag_rounding(self, memory: int, noise: Sequence[fmpq]) -> fmpq:
        """How far rounding can move what arrives at a lag slot of a float network."""
        if self.network.dtype == "exact":
            return fmpq(0)
        ffn, slots = self.network.layers[self.place(memory) - 1].feedforward, self.slots
        longest = [max(self.target.occurring(k)) for k in range(slots.memories)]
        stream = [*(1 + arb(e) for e in noise), *map(arb, longest), arb(1)]
        with working_precision(FFN_BITS):
            return rational(upper(feed_forward_error(self.network.dtype, ffn, slots.lag(memory), stream)))

    def precision(self, memory: int) -> str:
        """How the lag slot of a memory is rounded."""
        ffn = self.network.layers[self.place(memory) - 1].feedforward
        return ffn.precision[self.slots.lag(memory)] if ffn.precision else "none"

    def slot(self, memory: int, lag: int, value: arb) -> _Slot:
        """Error kernels of a memory's block when its slot holds `value` and the lag is `lag`; at the layer's working precision."""
        layer, block = self.layers[self.place(memory)], self.slots.block(memory + 1)
        known: dict[tuple[object, ...], Norm] = {}
        norms, errors = {}, []
        for j, row in enumerate(block):
            total = arb(0)
            for i in range(self.slots.dim):
                spikes = {lag: fmpq(1)} if i == j else {}
                key = (tuple(layer.gains[:, row, i]), tuple(spikes))
                if key not in known:
                    known[key] = l1_norm(layer.kernel(row, i, value, spikes))
                norms[j, i] = known[key]
                total += known[key].most
            errors.append(total)
        rounding = arb(0)
        if self.network.dtype != "exact":
            attention = self.network.layers[self.place(memory)].attention
            rounding = maximum([extraction_error(self.network.dtype, attention, layer, row, lag) for row in block])
        return _Slot(value, norms, maximum(errors) + rounding, rounding)


def _support(values: Any) -> set[int]:
    """The indices of what is not zero."""
    return {int(j) for j in np.nonzero(values)[0]}


@dataclass(frozen=True)
class _Lag:
    """How a lag slot is written: the worst over the combinations of its parents' tokens.

    `distance` is how far from the lag what arrives can be, `noise` how far the parents' errors alone can move it; `values` are the
    numbers that the slot holds afterwards, by lag: the lag itself where it is rounded, what the neurons say where it is not.
    """

    distance: fmpq
    noise: fmpq
    allowed: fmpq
    worst: str
    values: dict[int, set[int | fmpq]]


@dataclass(frozen=True)
class _Memory:
    """A memory as certified: its lag, its slots by lag, and what its extraction may cost."""

    name: str
    lag: _Lag
    slots: dict[int, _Slot]
    budget: arb
    description: dict[str, Any]

    @property
    def error(self) -> arb:
        return maximum([slot.error for slot in self.slots.values()])

    @property
    def rounding(self) -> arb:
        return maximum([slot.rounding for slot in self.slots.values()])


def _certify_lag(reading: _Reading, memory: int, noise: list[fmpq]) -> _Lag:
    """Go through the combinations of the parents' tokens that occur, in rational arithmetic."""
    target, name, precision = reading.target, reading.target.names[memory], reading.precision(memory)
    expected = {"lag": "integer", "log": "log"}[reading.form]
    if precision not in ("none", expected):
        reading.faults.append(f"lag {name}: its slot is rounded by {precision!r}, this theorem's by {expected!r}")
    rounded = precision != "none"
    allowed = HALF if rounded else fmpq(0) if reading.form == "lag" else STAIRCASE
    neurons, evaluation = reading.lag_neurons(memory), reading.lag_rounding(memory, noise)
    values: dict[int, set[int | fmpq]] = {}
    distance, largest_noise, worst = fmpq(-1), fmpq(0), ""
    faults: list[str] = []
    for (point, lag), tokens in zip(parent_points(target, memory), target.lag_table(memory), strict=True):
        y, moved = local_range(neurons, point, noise)
        moved += evaluation
        at = target.describe_tokens(dict(zip(map(target.slot_index, target.parents[name]), tokens, strict=True)))
        if rounded:
            off = rounding_distance(reading.form, lag, y, moved)
            wrong = not off < HALF
        else:
            off = finite_or_huge(abs(arb(y) - slot_ball(reading.form, lag)))
            wrong = moved != 0 or not off <= allowed
        values.setdefault(lag, set()).add(lag if rounded else y)
        largest_noise = max(largest_noise, rounding_distance(reading.form, lag, slot_value(reading.form, lag), moved))
        if wrong:
            reading.wrong.append((memory, tokens))
            if not faults or off > distance:
                faults.append(_lag_fault(lag, at, y, off, moved, rounded))
        if off > distance:
            distance, worst = off, at.removeprefix(" at ")
    reading.faults += [f"lag {name}: {fault}" for fault in faults[-1:]]  # the worst speaks for all
    return _Lag(distance, largest_noise, allowed, worst, values)


def _lag_fault(lag: int, at: str, y: fmpq, off: fmpq, moved: fmpq, rounded: bool) -> str:
    """What is wrong at the worst tokens."""
    if rounded:
        certainty = "can be" if moved != 0 else "is"
        return (
            f"the lag is {lag}{at}, but what arrives {certainty} {_short(off)} away from it before rounding: "
            f"the margin 1/2 is missed by {_short(off - HALF)}"
        )
    if moved != 0:
        return f"the staircase is not flat{at}: noise of the parents moves the slot by {_short(moved)}"
    return f"the staircase holds {_short(y)}{at}, the lag is {lag}"


def _certify_memory(reading: _Reading, memory: int, noise: list[fmpq], bank: str) -> _Memory:
    """Its lag, then its extraction for every lag that occurs."""
    target, name = reading.target, reading.target.names[memory]
    layer, longest = reading.layers[reading.place(memory)], max(target.occurring(memory))
    if layer.constants is not None and any(longest > layer.constants["reach"][h] for h in reading.heads(memory)):
        raise Refusal(f"{reading.network.dtype} overflows for lag {longest} in these heads", *finer(reading.network.dtype))
    with working_precision(layer.bits(slot_ball(reading.form, longest))):
        lag = _certify_lag(reading, memory, noise)
        slots: dict[int, _Slot] = {}
        for b, found in lag.values.items():  # tokens with the same lag may differ in what a staircase holds: the worst counts
            every = [reading.slot(memory, b, slot_ball(reading.form, v) if isinstance(v, int) else arb(v)) for v in found]
            worst = max(every, key=lambda slot: upper(slot.error))
            slots[b] = replace(worst, error=maximum([slot.error for slot in every]))
        budget = _extraction_budget(reading, memory, bank, slots)
        error = maximum([slot.error for slot in slots.values()])
        if not upper(error) <= upper(budget):
            reading.faults.append(f"extraction {name}: certified {upper(error):.6g} exceeds its bound {upper(budget):.6g}")
    return _Memory(name, lag, slots, budget, _describe(reading, memory, lag, noise))


def _describe(reading: _Reading, memory: int, lag: _Lag, noise: list[fmpq]) -> dict[str, Any]:
    """What a person wants to know of a memory: lags, margin, Barron norms, and the width that the theorem asks for beside the one used.

    The theorem's width is that of sampling on the box that the parents' errors leave, to the margin that their noise leaves.
    """
    target, name = reading.target, reading.target.names[memory]
    encoding = encode(target, memory)
    read = [noise[j] for j, w in enumerate(encoding.direction) if w != 0]
    gain = sum((encoding.noise_gain(reading.form, range(j, j + 1)) * e for j, e in enumerate(noise)), fmpq(0))
    margin = rounding_margin(reading.form, max(target.occurring(memory))) - arb(gain)
    return {
        "name": name,
        "level": target.levels[name],
        "lags": list(target.occurring(memory)),
        "heads": len(reading.heads(memory)),
        "slot": "log g" if reading.form == "log" else "g",
        "rounding": "relu" if reading.precision(memory) == "none" else "ideal",
        "margin": lower(arb(HALF - lag.distance)),
        "worst_tokens": lag.worst,
        **encoding.describe(reading.form, margin, 1 + max(read, default=fmpq(0))),
        "width_used": len(reading.writers(memory)),
    }


def _short(value: fmpq) -> str:
    return f"{float(arb(value)):.3g}"


def _extraction_budget(reading: _Reading, memory: int, bank: str, slots: dict[int, _Slot]) -> arb:
    """What the lemma promises for the heads of a memory, plus the budget for storing their weights and, without rounding, its slots."""
    target, name = reading.target, reading.target.names[memory]
    layer, row = reading.layers[reading.place(memory)], reading.slots.block(memory + 1)[0]
    heads = reading.heads(memory)
    decays = [layer.decays[h] for h in heads]
    lags = target.occurring(memory)
    try:
        if bank == "balanced" and (reading.network.dtype == "exact" or reading.rpe != "lin"):
            raise InputError("a balanced bank is one of lin heads in floats")
        if bank == "balanced":  # the best weights of these decays, with storage and rounding
            return fitted(tuple(decays), max(lags), reading.network.dtype).budget * (1 + STORAGE)
        if bank == "minimal":
            promised = adaptive_minimal_bound(reading.rpe, lags, decays)
        else:
            promised = base.extraction_budget(bank, reading.rpe, max(lags), decays)
    except (InputError, Refusal) as error:
        reading.faults.append(f"extraction {name}: {error}")
        return arb.pos_inf()
    if reading.network.dtype != "exact":
        rounding = maximum([slot.rounding for slot in slots.values()])
        return promised + rounding + _float_storage(reading, heads, row, max(lags))
    storage = promised * STORAGE
    slack = arb(STAIRCASE if reading.form == "log" and reading.precision(memory) == "none" else 0)
    return promised + storage + slack


def _float_storage(reading: _Reading, heads: Sequence[int], row: int, lag: int) -> arb:
    """Effect of rounding weight, factor and ratio, u (2 + z/(1−z)) of a lin head's mass, or weight, factor and taps, 3u of a log head's,
    where the taps left out add u/2: 4u. Second-order terms are below one hundredth of that as long as 1 − z is above 100u.
    """
    layer, total = reading.layers[reading.place(row // reading.slots.dim - 1)], arb(0)
    for h in heads:
        decay = layer.decays[h]
        z = (-arb(decay)).exp()
        share = 2 + z / (1 - z) if layer.rpe[h] == "lin" else arb(4)
        total += abs(arb(layer.gains[h, row, 0])) * head_mass(reading.rpe, decay, lag) * share
    return arb(UNIT[reading.network.dtype]) * total * arb(fmpq(101, 100))


def verify(network: Transformer, target: AdaptiveMemory, bank: str, ffn: str) -> Certificate:
    """Certify a stored network for an adaptive target; `bank` and `ffn` say which lemmas it claims to follow."""
    start = time.perf_counter()
    reading = _read(network, target)
    slots, readout = reading.slots, target.readout
    noise = [fmpq(0)] * slots.tokens
    memories: dict[int, _Memory] = {}
    for memory in itertools.chain.from_iterable(reading.schedule):
        memories[memory] = certified = _certify_memory(reading, memory, noise, bank)
        for j in slots.block(memory + 1):
            noise[j] = finite_or_huge(certified.error)
    ordered = [memories[k] for k in range(len(memories))]
    with working_precision(FFN_BITS):
        neurons = _readout_neurons(reading)
        errors = [m.error for m in ordered]
        box = [arb(1)] * slots.dim + [(1 + e).upper().max(SMALLEST_RADIUS) for e in errors for _ in range(slots.dim)]
        on_box = readout_error(readout, neurons, box)
        drawn_box = [arb(1)] * slots.dim + [(1 + e * (1 + BOX_SHARE)).upper() for e in errors for _ in range(slots.dim)]
        promised_readout = readout_bound(ffn, readout, neurons, box, drawn_box, network.dtype)
        lipschitz = readout.lipschitz(box)[1:]
        certified = on_box + sum((lip * e for lip, e in zip(lipschitz, errors, strict=True)), arb(0))
        search = _situation_errors(reading, ordered, neurons)
        if search is not None:
            certified = certified.min(maximum([error for error, _ in search]))
        evaluation = reading.readout_rounding(box)
        certified += evaluation
        rounding = evaluation
        for lip, m in zip(lipschitz, ordered, strict=True):
            rounding += lip * m.rounding
        budgets = [m.budget for m in ordered]
        hull = box[: slots.dim] + [(1 + b).max(box[j]) for k, b in enumerate(budgets, 1) for j in slots.block(k)]
        bound = base.total_budget(promised_readout + evaluation, readout.lipschitz(hull)[1:], budgets)
        measured = {base.READ_OUT: (on_box, promised_readout)}
        for m in ordered:
            measured[thm_4_4.lag_lemma(m.name)] = (arb(m.lag.distance), arb(m.lag.allowed))
            measured[thm_4_4.extraction_lemma(m.name)] = (m.error, m.budget)
        theorem = thm_4_4.theorem_of(target, reading.attention, reading.deep)
        parts = matched(thm_4_4.target_graph(target, reading.rpe, bank, ffn, theorem, ""), measured)
        witness, description = _witness(reading, ordered, neurons, search)
        if reading.faults:
            certified = arb.pos_inf()
        trivial = target.constant_error()
    return Certificate(
        theorem=theorem,
        witness=max(0.0, witness),
        witness_input=description,
        certified=upper(certified),
        bound=upper(bound),
        rounding=upper(rounding),
        trivial=trivial,
        least_heads=None,
        parts=parts,
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=time.perf_counter() - start,
        faults=tuple(reading.faults),
        conditions=_conditions(ordered),
        details=_details(reading, ordered),
        remedies=better_than_constant(upper(bound), trivial, heads=None, **({"bank": "minimal"} if bank in ("paper", "tuned") else {})),
    )


def _read(network: Transformer, target: AdaptiveMemory) -> _Reading:
    slots, count = slots_of(target), len(network.layers)
    if tuple(network.embedding.shape) != (slots.width, slots.dim):
        raise InputError(f"the embedding has shape {tuple(network.embedding.shape)}; this target's has {(slots.width, slots.dim)}")
    if count not in (target.depth + 1, len(target.memories) + 1):
        raise InputError(f"the network has {count} layers; this target needs {target.depth + 1}, or {len(target.memories) + 1} when deep")
    check_alphabet(target, network.dtype)
    return _Reading(network, target, deep=count != target.depth + 1)


def _readout_neurons(reading: _Reading) -> list[Neuron]:
    """The read-out's neurons on token coordinates; it may read nothing else."""
    ffn, tokens = reading.network.layers[-1].feedforward, reading.slots.tokens
    inner, bias, outer = to_exact(ffn.inner), to_exact(ffn.bias), to_exact(ffn.outer)
    if any(inner[:, tokens:].flat):
        reading.faults.append("read-out: a neuron reads a lag slot or the constant slot")
    return neurons_of(inner[:, :tokens], bias, outer[0])


def _situation_errors(reading: _Reading, memories: Sequence[_Memory], neurons: Sequence[Neuron]) -> list[tuple[arb, Situation]] | None:
    """For every situation the worst |F(u + δ) − f(u)|, or None if there are too many to go through."""
    target = reading.target
    if len(target.situations) * len(neurons) > MAX_WORK or not all(upper(m.error) < float("inf") for m in memories):
        return None
    result = []
    for situation in target.situations:
        value, moved = local_range(neurons, *_delivered(reading, memories, situation))
        wanted = target.readout([arb(v) for v in target.point(situation)])
        result.append((abs(arb(value) - wanted) + arb(moved), situation))
    return result


def _delivered(reading: _Reading, memories: Sequence[_Memory], situation: Situation) -> tuple[list[fmpq], list[fmpq]]:
    """(centre, radius) of what the read-out is given: the tokens that the situation fixes contribute what they do, all others at most |κ|.

    Where a staircase holds more than one value for a lag, it is not known which, and the error of the worst is the radius.
    """
    target, dim = reading.target, reading.slots.dim
    fixed = {0: situation.tokens[0]} | dict(zip(situation.lags, situation.tokens[1:], strict=True))
    centre, radius = target.point(situation), [fmpq(0)] * dim
    for k, (memory, lag) in enumerate(zip(memories, situation.lags, strict=True)):
        slot = memory.slots[lag]
        if len(memory.lag.values[lag]) > 1:
            radius += [finite_or_huge(slot.error)] * dim
            continue
        for j in range(dim):
            shift, free = arb(0), slot.rounding
            for i in range(dim):
                window = slot.norms[j, i].window
                free += slot.norms[j, i].most
                for s, token in fixed.items():
                    if s < len(window):
                        shift += window[s] * arb(target.alphabet[token][i])
                        free -= abs(window[s])
            middle = dyadic(shift, 64)
            centre[(k + 1) * dim + j] += middle
            radius.append(finite_or_huge(free + abs(shift - middle)))
    return centre, radius


def _conditions(memories: Sequence[_Memory]) -> tuple[Part, ...]:
    """What the paper needs and does not state: e_k ≤ 1 for its read-out domain, and H so large that noise does not use up a margin."""
    domain = [Part(f"e ≤ 1 for {m.name}", upper(m.error), 1.0) for m in memories]
    return (*domain, *(Part(f"noise at the lag of {m.name} below 1/2", upper(arb(m.lag.noise)), 0.5) for m in memories))


def _details(reading: _Reading, memories: Sequence[_Memory]) -> dict[str, Any]:
    heads = sum(len(layer.rpe) for layer in reading.layers[1:])  # layer 1 has its attention off
    return {
        "attention": reading.attention,
        "rpe": reading.rpe,
        "memories": [m.description for m in memories],
        "score_parameters": thm_4_4.score_parameters(reading.attention, reading.slots.width, heads),
    }


def _witness(
    reading: _Reading, memories: Sequence[_Memory], neurons: Sequence[Neuron], search: list[tuple[arb, Situation]] | None
) -> tuple[float, str]:
    """(the largest error found, what the input is): the worst situations, or where a lag is not certified those that show it."""
    target = reading.target
    situations = [s for _, s in sorted(search, key=lambda pair: -upper(pair[0]))] if search else list(target.situations)
    blamed = [s for s in situations if any(_shows(target, s, memory, tokens) for memory, tokens in reading.wrong)]
    chosen = (blamed or situations)[:WITNESS_SITUATIONS]
    inputs = [(situation, _adversary(reading, memories, neurons, situation, sign)) for situation in chosen for sign in (1, -1)]
    if reading.network.dtype != "exact":
        measured = max(_measured(reading, tokens) for _, tokens in inputs)
        return measured, f"searched token sequence, run in {reading.network.dtype}, worst position"
    evaluator = _Evaluator(reading, neurons)
    best = 0.0
    for situation, tokens in inputs:
        output = evaluator([target.alphabet[token] for token in tokens])
        if output is not None:
            best = max(best, lower(abs(output - target.readout([arb(v) for v in target.point(situation)]))))
    return best, "searched token sequence, in ball arithmetic"


def _shows(target: AdaptiveMemory, situation: Situation, memory: int, tokens: tuple[int, ...]) -> bool:
    """Whether a memory's parents hold these tokens."""
    slots = (target.slot_index(name) for name in target.parents[target.names[memory]])
    return tuple(situation.tokens[slot] for slot in slots) == tokens


def _measured(reading: _Reading, tokens: Sequence[int]) -> float:
    """The worst error over all positions of a reversed sequence, as the float network really computes it."""
    target, sequence = reading.target, list(reversed(tokens))
    outputs = fast.forward(reading.network, np.array([[float(arb(v)) for v in target.alphabet[token]] for token in sequence]))
    if not np.isfinite(outputs).all():
        reading.faults.append(f"the network computes numbers that are not finite in {reading.network.dtype}")
        return 0.0
    worst = 0.0
    for t, output in enumerate(outputs):
        situation = target.situation(sequence, t)
        if situation is not None:
            wanted = target.readout([arb(v) for v in target.point(situation)])
            worst = max(worst, lower(abs(arb(rational(float(output))) - wanted)))
    return worst


def _adversary(reading: _Reading, memories: Sequence[_Memory], neurons: Sequence[Neuron], situation: Situation, sign: int) -> list[int]:
    """Alphabet indices of x_t, x_{t−1}, …: the situation's where it fixes them, elsewhere the worst against the read-out's gradient."""
    target, slots = reading.target, reading.slots
    point = target.point(situation)
    slope = [0.0] * slots.tokens
    for neuron in neurons:
        before = sum((w * x for w, x in zip(neuron.row, point, strict=True) if w != 0), neuron.bias)
        if before > 0:
            slope = [s + float(arb(neuron.outer * w)) for s, w in zip(slope, neuron.row, strict=True)]
    fixed = {0: situation.tokens[0]} | dict(zip(situation.lags, situation.tokens[1:], strict=True))
    length = WITNESS_LENGTH + max(fixed)
    alphabet = np.array([[float(arb(v)) for v in token] for token in target.alphabet])
    pull = np.zeros((length, slots.dim))
    for k, (memory, lag) in enumerate(zip(memories, situation.lags, strict=True)):
        for (j, i), norm in memory.slots[lag].norms.items():
            window = np.nan_to_num([float(v.mid()) for v in norm.window[:length]])
            pull[: len(window), i] += np.nan_to_num(slope[slots.block(k + 1)[j]]) * window
    choice = np.argmax(sign * pull @ alphabet.T, axis=1)
    return [fixed.get(s, int(choice[s])) for s in range(length)]


def output_at(network: Transformer, target: AdaptiveMemory, tokens: np.ndarray, t: int) -> arb | None:
    """The output of an exact network at token t of (N, d), in balls; None if a rounding is ambiguous."""
    reading, letters = _read(network, target), target.nearest_letters(tokens[: t + 1], np)
    return _Evaluator(reading, _readout_neurons(reading))([target.alphabet[int(letter)] for letter in reversed(letters)])


class _Evaluator:
    """The network's output at the first token of a reversed sequence, in ball arithmetic; None if a rounding is ambiguous."""

    def __init__(self, reading: _Reading, neurons: Sequence[Neuron]) -> None:
        self.reading, self.neurons = reading, neurons
        self.lag_neurons = [reading.writers(k) for k in range(len(reading.target.memories))]
        self.constant = constant_coordinates(reading.network)[1].get(reading.slots.constant, fmpq(0))
        longest = [slot_ball(reading.form, max(reading.target.occurring(k))) for k in range(reading.slots.memories)]
        self.bits = max(reading.layers[reading.place(k)].bits(value) for k, value in enumerate(longest))
        self.known: dict[tuple[int, int, int, object], list[arb]] = {}

    def __call__(self, tokens: Sequence[tuple[fmpq, ...]]) -> arb | None:
        with working_precision(self.bits):
            return self._evaluate(tokens)

    def _evaluate(self, tokens: Sequence[tuple[fmpq, ...]]) -> arb | None:
        reading, slots = self.reading, self.reading.slots
        stream = [arb(0)] * slots.width
        for j, v in enumerate(tokens[0]):
            stream[j] = arb(v)
        stream[slots.constant] = arb(self.constant)
        for memory in itertools.chain.from_iterable(reading.schedule):
            slot = self._slot(memory, stream)
            if slot is None:
                return None
            for j, row in enumerate(slots.block(memory + 1)):
                stream[row] = self._extract(memory, j, row, slot, tokens)
        return _network_value(self.neurons, stream[: slots.tokens])

    def _slot(self, memory: int, stream: list[arb]) -> int | arb | None:
        """The lag that rounding leaves, or the slot as it is; None if rounding cannot be decided."""
        y = _network_value(self.lag_neurons[memory], stream)
        precision = self.reading.precision(memory)
        if not abs(y) < MAX_LAG:
            return None
        if precision == "none":
            return y
        shifted = (y if precision == "integer" else y.exp()) + arb(1) / 2
        whole = shifted.floor().unique_fmpz()
        if whole is None or shifted.contains(arb(whole)):  # cannot be decided, or a tie
            return None
        return int(whole) if precision == "integer" else max(1, int(whole))

    def _ball(self, slot: int | arb) -> arb:
        """A slot's value at the working precision: of a rounded lag, or the slot as it is."""
        return slot_ball(self.reading.form, slot) if isinstance(slot, int) else slot

    def _extract(self, memory: int, j: int, row: int, slot: int | arb, tokens: Sequence[tuple[fmpq, ...]]) -> arb:
        reading = self.reading
        layer = reading.layers[reading.place(memory)]
        total = arb(0)
        for i in range(reading.slots.dim):
            if not any(layer.gains[:, row, i]):
                continue
            key = (memory, j, i, slot if isinstance(slot, int) else (slot.mid().man_exp(), slot.rad().man_exp()))
            if key not in self.known or len(self.known[key]) < len(tokens):
                with working_precision(layer.bits(self._ball(slot))):
                    self.known[key] = layer.kernel(row, i, self._ball(slot)).values(0, len(tokens))
            total += sum((k * arb(token[i]) for k, token in zip(self.known[key], tokens, strict=False)), arb(0))
        return total


def _network_value(neurons: Sequence[Neuron], stream: Sequence[arb]) -> arb:
    total = arb(0)
    for neuron in neurons:
        before = sum((arb(w) * u for w, u in zip(neuron.row, stream, strict=True) if w != 0), arb(neuron.bias))
        total += arb(neuron.outer) * before.max(arb(0))
    return total
