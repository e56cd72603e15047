"""The certificate of `analyzer.theorems.positions.table_lags`: from stored weights to witness ≤ certified ≤ bound, on a finite alphabet.

Only the first layer attends, and its values are read from the block x0, which nothing writes to after the embedding. So at a position
everything is decided by the tokens that its heads see:

1. *tokens*: e_B = ‖κ_B − 1_B‖₁ of every block `back B`, and its rounding, as for one layer with fixed lags (`verify.chain.layer`);
2. *indicators*, memory by memory: for every combination of its parents' tokens that occurs the neurons are evaluated in rational
   arithmetic, with the certified errors of the parents as noise; what arrives must be less than 1/2 away from 0 or 1, and is rounded to it;
3. *choices*: for every lag the neurons that write a memory are on or off for all tokens in [−1 − e, 1 + e]; what those that are on add up
   to is compared with x̂_B, coefficient by coefficient. In floats neurons that are off add exact zeros, so that two terms round;
4. *read-out*: |F(u + δ) − f(u)| for every situation u, δ being what its memories may be off by; or on the box, whichever is smaller.

The bound is (L.1) at the biases found in the weights, plus the budgets of storage, and in floats of evaluation. The witness is the worst of
some sequences, searched against the read-out's gradient, at which the network was evaluated: in balls, or really run in its float type.
"""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.lemmas.lag_encoding import finite_or_huge
from analyzer.lemmas.relu_error import Neuron, local_range, neurons_of, readout_error
from analyzer.numbers.exact import lower, maximum, rational, upper, working_precision
from analyzer.targets.adaptive import AdaptiveMemory, Situation
from analyzer.theorems import base, thm_4_4
from analyzer.theorems.positions import table_lags
from constructions.network.transformer import FeedForward, Layer, Transformer, to_exact, zeros
from constructions.run.execute import evaluated
from constructions.run.fused import FusedLayer
from constructions.theorems.positions.table_lags import Stream, fixed_part
from constructions.theorems.thm_4_4 import parent_points
from verify.chain.certificate import Certificate, Part, StrangeWeights, better_than_constant, matched
from verify.chain.layer import FFN_BITS, SMALLEST_RADIUS, delivered_stream, readout_bound
from verify.chain.rounding import ONE, Arithmetic, Rounded, check_neurons, check_quiet, feed_forward_error
from verify.theorems.positions.table_heads import extraction_budgets

HALF = fmpq(1, 2)
ZERO = Rounded(arb(0), arb(0))
MAX_WORK = 1_500_000
"""Situations times neurons of the read-out gone through one by one (some ten seconds); beyond that the box is certified."""
LARGE = 2**24
"""Beyond anything that a stream holds: tokens up to 1, indicators, which are whole numbers, and memories with their errors."""
WITNESS_SITUATIONS = 128
"""Situations that are run, the worst by the certificate first."""
IN_BALLS = 2
"""Of those, what is evaluated again where the network is exact."""


@dataclass(frozen=True)
class _Token:
    """A block that the heads bring: its error in real arithmetic, what is promised for it, and its rounding."""

    error: arb
    budget: arb
    rounding: arb

    @property
    def total(self) -> arb:
        return self.error + self.rounding


@dataclass(frozen=True)
class _Chosen:
    """A memory: how far its indicators can be from 0 or 1, how far their parents' noise alone moves them, and by lag its error in all."""

    distance: fmpq
    noise: fmpq
    errors: dict[int, arb]
    """By lag, with all roundings; infinite where the neurons do not choose."""
    rounding: arb

    @property
    def error(self) -> arb:
        return maximum(list(self.errors.values()))

    @property
    def usable(self) -> arb:
        """The error; 1 where there is none, which is a fault, so that the rest can be looked at."""
        return self.error if upper(self.error) < float("inf") else arb(1)


@dataclass
class _ChoiceReading:
    """A network read as the construction of table-lags, with everything that does not fit."""

    network: Transformer
    target: AdaptiveMemory
    faults: list[str] = field(default_factory=list)
    wrong: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)
    """(memory, parents' tokens) for which a lag is not certified."""

    def __post_init__(self) -> None:
        self.stream, self.schedule = Stream(self.target), self.target.schedule(deep=False)
        expected, found = 2 * self.target.depth + 1, len(self.network.layers)
        if tuple(self.network.embedding.shape) != (self.stream.width, self.target.dim):
            raise InputError(
                f"the embedding has shape {tuple(self.network.embedding.shape)}; {table_lags.ID} for this target has "
                f"{(self.stream.width, self.target.dim)}"
            )
        if found != expected:
            raise InputError(f"the network has {found} layers; {table_lags.ID} for this target has {expected}")
        if self.network.layers[0].attention.table is None:
            raise StrangeWeights(f"{table_lags.ID} is about heads with a bias per distance")
        thm_4_4.check_alphabet(self.target, self.network.dtype)
        self._check_writers()
        self._check_overflow()

    def _check_overflow(self) -> None:
        """Refuse what may overflow and is not written, or not read: infinity times 0 is no number. Nothing of the stream is near LARGE."""
        if self.network.dtype == "exact":
            return
        for layer in self.network.layers:
            check_neurons(self.network.dtype, layer.feedforward, [arb(LARGE)] * self.stream.width)
        check_quiet(self.network.dtype, [layer.attention for layer in self.network.layers[1:]], LARGE)

    def _check_writers(self) -> None:
        """Who may write where; matrices are looked at one by one, since what cancels in a product need not cancel in floats."""
        stream, network = self.stream, self.network
        if to_exact(network.embedding)[stream.brought :].any() or to_exact(network.bias).any():
            self.faults.append("embedding: it writes more than the token into its blocks")
        identity = [[fmpq(int(i == j)) for i in range(self.target.dim)] for j in range(self.target.dim)]
        if to_exact(network.embedding)[: self.target.dim].tolist() != identity:
            self.faults.append("embedding: x0 is not the token")
        for index, layer in enumerate(network.layers):
            output, value = to_exact(layer.attention.output), to_exact(layer.attention.value)
            allowed = range(self.target.dim, stream.brought) if index == 0 else range(0)
            self._only(f"layer {index + 1}: attention", output.any(axis=(0, 2)), allowed)
            if index == 0:
                self._only("layer 1: a value", value.any(axis=(0, 1)), range(self.target.dim), "reads")
        for index, ffn in enumerate(layer.feedforward for layer in network.layers[:-1]):
            group, chooses = self.schedule[index // 2], index % 2 == 1
            indicators = [stream.indicators[k, lag] for k in group for lag in self.target.occurring(k)]
            memories = [j for k in group for j in stream.memory(k)]
            self._only(f"layer {index + 1}: the FFN", to_exact(ffn.outer).any(axis=1), memories if chooses else indicators)
            rounded = {j for j, how in enumerate(ffn.precision) if how != "none"}
            if rounded != (set() if chooses else set(indicators)) or any(how == "log" for how in ffn.precision):
                self.faults.append(f"layer {index + 1}: the FFN does not round the indicators of its level, and only them, to integers")
        last = network.layers[-1].feedforward
        self._only("read-out: a neuron", to_exact(last.inner).any(axis=0), stream.tokens, "reads")
        if any(how != "none" for how in last.precision) or last.outer.shape[0] != 1:
            self.faults.append("read-out: it is not one number that nothing rounds")

    def _only(self, who: str, touched: Any, allowed: Sequence[int], does: str = "writes") -> None:
        strange = {int(j) for j in np.nonzero(touched)[0]} - set(allowed)
        if strange:
            self.faults.append(f"{who} {does} coordinate {min(strange)}, which is not its own")

    @property
    def bringing(self) -> Transformer:
        """The heads alone, in the stream that they write; what is left out is 0 or a fault."""
        first, brought = self.network.layers[0].attention, self.stream.brought
        attention = replace(
            first, value=first.value[:, :, :brought], output=first.output[:, :brought], query=first.query[:, :, :brought],
            key=first.key[:, :, :brought], pointer=first.pointer[:, :brought],
        )  # fmt: skip
        kind = first.output.dtype
        nothing = FeedForward(zeros(1, brought).astype(kind), zeros(1).astype(kind), zeros(1, 1).astype(kind))
        return Transformer(self.network.embedding[:brought], self.network.bias[:brought], (Layer(attention, nothing),))

    def neurons(self, index: int, coordinate: int, columns: Sequence[int] | None = None) -> list[Neuron]:
        """The neurons of layer `index` (from 0) that write a coordinate, on some columns of the stream."""
        ffn = self.network.layers[index].feedforward
        inner, bias, outer = to_exact(ffn.inner), to_exact(ffn.bias), to_exact(ffn.outer)[coordinate]
        used = [int(n) for n in np.nonzero(outer)[0]]
        kept = inner[used] if columns is None else inner[used][:, columns]
        if columns is not None and inner[used].any() and set(np.nonzero(inner[used].any(axis=0))[0]) - set(columns):
            self.faults.append(f"layer {index + 1}: a neuron that writes coordinate {coordinate} reads what it should not")
        return neurons_of(kept, bias[used], outer[used])

    def readout_neurons(self) -> list[Neuron]:
        """All neurons of the read-out on (x0, memories): one of weight 0 marks a knot."""
        ffn = self.network.layers[-1].feedforward
        return neurons_of(to_exact(ffn.inner)[:, self.stream.tokens], to_exact(ffn.bias), to_exact(ffn.outer)[0])


def _tokens(reading: _ChoiceReading) -> tuple[FusedLayer, dict[int, _Token]]:
    """What the heads bring, by lag."""
    fixed, network = fixed_part(reading.target), reading.bringing
    layer, stream = delivered_stream(network, fixed, table_lags.ID)
    with working_precision(layer.bits):
        budgets = extraction_budgets(network.layers[0].attention, layer, fixed, "minimal", "log", network.dtype, reading.faults)
    result = {}
    for lag, budget in zip(reading.stream.lags, budgets, strict=True):
        block = reading.stream.back(lag)
        result[lag] = _Token(maximum([stream.errors[j] for j in block]), budget, maximum([stream.slack[j] for j in block]))
        if not upper(result[lag].total) < 1:
            reading.faults.append(f"{base.extraction_lemma(lag)}: the error {upper(result[lag].total):.3g} is not below 1, as (L.2) asks")
    return layer, result


def _indicators(reading: _ChoiceReading, k: int, noise: Sequence[fmpq]) -> tuple[fmpq, fmpq]:
    """(how far an indicator of memory k can be from 0 or 1 before it is rounded, what noise and rounding move it by)."""
    target, stream, name = reading.target, reading.stream, reading.target.names[k]
    index = 2 * next(n for n, group in enumerate(reading.schedule) if k in group)
    worst, moved_most = fmpq(0), fmpq(0)
    for lag in target.occurring(k):
        coordinate = stream.indicators[k, lag]
        neurons = reading.neurons(index, coordinate, stream.tokens)
        evaluation = finite_or_huge(_evaluation(reading, index, coordinate, [1 + arb(e) for e in noise]))
        for (point, right), tokens in zip(parent_points(target, k), target.lag_table(k), strict=True):
            y, moved = local_range(neurons, point, noise)
            moved += evaluation
            distance = abs(y - int(right == lag)) + moved
            moved_most = max(moved_most, moved)
            if not distance < HALF:
                reading.wrong.append((k, tokens))
                if distance > worst:
                    at = target.describe_tokens(dict(zip(map(target.slot_index, target.parents[name]), tokens, strict=True)))
                    off = f"the indicator of {lag} can be {float(arb(distance)):.3g} off before rounding"
                    reading.faults.append(f"lag {name}: its lag is {right}{at}, but {off}")
            worst = max(worst, distance)
    return worst, moved_most


def _chosen(reading: _ChoiceReading, k: int, tokens: dict[int, _Token], noise: Sequence[fmpq]) -> _Chosen:
    """A memory: its indicators, then what the neurons make of each of its lags."""
    distance, moved = _indicators(reading, k, noise)
    index = 1 + 2 * next(n for n, group in enumerate(reading.schedule) if k in group)
    errors, roundings = {}, []
    for lag in reading.target.occurring(k):
        found = [_chosen_coordinate(reading, index, k, lag, i, tokens) for i in range(reading.target.dim)]
        errors[lag] = tokens[lag].total + maximum([off + rounding for off, rounding in found])
        roundings.append(tokens[lag].rounding + maximum([rounding for _, rounding in found]))
    return _Chosen(distance, moved, errors, maximum(roundings))


def _chosen_coordinate(reading: _ChoiceReading, index: int, k: int, lag: int, i: int, tokens: dict[int, _Token]) -> tuple[arb, arb]:
    """(how far coordinate i of memory k can be from that of x̂ at this lag, rounding of its evaluation), its indicators being right."""
    stream, name, dtype = reading.stream, reading.target.names[k], reading.network.dtype
    brought = [(j, fmpq(0), 1 + finite_or_huge(token.total)) for back, token in tokens.items() for j in stream.back(back)]
    own = [(stream.indicators[k, other], fmpq(int(other == lag)), fmpq(0)) for other in reading.target.occurring(k)]
    columns, centre, radius = (list(values) for values in zip(*brought, *own, strict=True))
    neurons = reading.neurons(index, stream.memory(k)[i], columns)
    slope, constant, terms = [fmpq(0)] * len(columns), fmpq(0), list[tuple[fmpq, Rounded]]()
    given = [*(Rounded(abs(arb(c)) + arb(r), arb(0)) for c, r in zip(centre, radius, strict=True)), ONE]
    for neuron in neurons:
        middle = sum((w * c for w, c in zip(neuron.row, centre, strict=True) if w != 0), neuron.bias)
        reach = sum((abs(w) * r for w, r in zip(neuron.row, radius, strict=True) if w != 0), fmpq(0))
        before = ZERO if dtype == "exact" else Arithmetic(dtype).dot([*neuron.row, neuron.bias], given, count=stream.width + 1)
        if arb(middle + reach) + before.error < 0:
            continue  # off, whatever the tokens are
        if middle < reach:
            reading.faults.append(f"extraction {name}: a neuron that chooses its coordinate {i} may be on or off at lag {lag}")
            return arb.pos_inf(), arb(0)
        slope = [s + neuron.outer * w for s, w in zip(slope, neuron.row, strict=True)]
        constant += neuron.outer * neuron.bias
        terms.append((neuron.outer, before))
    slope[columns.index(stream.back(lag)[i])] -= 1
    value = abs(constant + sum((s * c for s, c in zip(slope, centre, strict=True)), fmpq(0)))
    off = value + sum((abs(s) * r for s, r in zip(slope, radius, strict=True)), fmpq(0))
    weights, hidden = [weight for weight, _ in terms], [before for _, before in terms]
    width = len(reading.network.layers[index].feedforward.bias)
    return arb(off), arb(0) if dtype == "exact" else Arithmetic(dtype).dot(weights, hidden, count=width).error


def verify(network: Transformer, target: AdaptiveMemory, bank: str, ffn: str) -> Certificate:
    """Certify a stored network that chooses among the tokens that its heads bring."""
    start = time.perf_counter()
    reading = _ChoiceReading(network, target)
    dim, readout = target.dim, target.readout
    with working_precision(FFN_BITS):
        layer, tokens = _tokens(reading)
        noise, chosen = [fmpq(0)] * len(reading.stream.tokens), dict[int, _Chosen]()
        for k in itertools.chain.from_iterable(reading.schedule):
            chosen[k] = _chosen(reading, k, tokens, noise)
            noise[(k + 1) * dim : (k + 2) * dim] = [finite_or_huge(chosen[k].usable)] * dim
        memories = [chosen[k] for k in range(len(chosen))]
        errors = [m.usable for m in memories]
        budgets = [maximum([tokens[lag].budget for lag in m.errors]) + m.rounding for m in memories]
        box = [arb(1)] * dim + [(1 + e).upper().max(SMALLEST_RADIUS) for e in errors for _ in range(dim)]
        neurons = reading.readout_neurons()
        on_box = readout_error(readout, neurons, box)
        promised = readout_bound(ffn, readout, neurons, box, box, network.dtype)
        evaluation = _evaluation(reading, -1, 0, box)
        lipschitz = readout.lipschitz(box)[1:]
        certified = on_box + sum((lip * e for lip, e in zip(lipschitz, errors, strict=True)), arb(0))
        search = _situation_errors(reading, memories, neurons)
        if search is not None:
            certified = certified.min(maximum([error for error, _ in search]))
        certified = arb.pos_inf() if reading.faults else certified + evaluation
        rounding = sum((lip * m.rounding for lip, m in zip(lipschitz, memories, strict=True)), evaluation)
        hull = box[:dim] + [(1 + b).max(box[j]) for k, b in enumerate(budgets, 1) for j in range(k * dim, (k + 1) * dim)]
        bound = base.total_budget(promised + evaluation, readout.lipschitz(hull)[1:], budgets)
        witness, description = _witness(reading, layer, neurons, search)
        if reading.faults:  # running it may have found one
            certified = arb.pos_inf()
        measured = {base.READ_OUT: (on_box, promised)} | {base.extraction_lemma(lag): (t.error, t.budget) for lag, t in tokens.items()}
        for name, memory, budget in zip(target.names, memories, budgets, strict=True):
            measured[thm_4_4.lag_lemma(name)] = (arb(memory.distance), arb(HALF))
            measured[thm_4_4.extraction_lemma(name)] = (memory.error, budget)
        parts, trivial = matched(table_lags.target_graph(target, ffn), measured), target.constant_error()
    return Certificate(
        theorem=table_lags.ID,
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
        conditions=_conditions(target, memories, tokens),
        details={"rpe": "table", "lags": list(reading.stream.lags), "reach": int(network.layers[0].attention.table.shape[1])},
        remedies=better_than_constant(upper(bound), trivial),
    )


def _conditions(target: AdaptiveMemory, memories: Sequence[_Chosen], tokens: dict[int, _Token]) -> tuple[Part, ...]:
    """What the statement asks of e: below 1 for (L.2), and noise below 1/2 at every lag."""
    worst = maximum([token.total for token in tokens.values()])
    noise = (
        Part(f"noise at the lag of {name} below 1/2", upper(arb(m.noise)), 0.5) for name, m in zip(target.names, memories, strict=True)
    )
    return (Part("e ≤ 1 for every token", upper(worst), 1.0), *noise)


def _evaluation(reading: _ChoiceReading, index: int, coordinate: int, sizes: Sequence[arb]) -> arb:
    """Rounding of an output of a float network's FFN that reads (x0, memories) of these sizes, and nothing else, or that is a fault."""
    if reading.network.dtype == "exact":
        return arb(0)
    stream = [arb(2)] * reading.stream.width
    for j, size in zip(reading.stream.tokens, sizes, strict=True):
        stream[j] = size
    return feed_forward_error(reading.network.dtype, reading.network.layers[index].feedforward, coordinate, stream)


def _situation_errors(
    reading: _ChoiceReading, memories: Sequence[_Chosen], neurons: Sequence[Neuron]
) -> list[tuple[arb, Situation]] | None:
    """For every situation the worst |F(u + δ) − f(u)|, or None if there are too many to go through."""
    target, dim = reading.target, reading.target.dim
    if len(target.situations) * len(neurons) > MAX_WORK or not all(upper(m.error) < float("inf") for m in memories):
        return None
    radii = [{lag: finite_or_huge(error) for lag, error in m.errors.items()} for m in memories]
    result = []
    for situation in target.situations:
        noise = [fmpq(0)] * dim + [radius[lag] for radius, lag in zip(radii, situation.lags, strict=True) for _ in range(dim)]
        value, moved = local_range(neurons, target.point(situation), noise)
        wanted = target.readout([arb(v) for v in target.point(situation)])
        result.append((abs(arb(value) - wanted) + arb(moved), situation))
    return result


def _witness(
    reading: _ChoiceReading, layer: FusedLayer, neurons: Sequence[Neuron], search: list[tuple[arb, Situation]] | None
) -> tuple[float, str]:
    """(the largest error found, what the input is): the worst situations, or where a lag is not certified those that show it, are run; an
    exact network's worst are evaluated again in balls."""
    target, exact = reading.target, reading.network.dtype == "exact"
    if exact and any(to_exact(layer.attention.output).any() for layer in reading.network.layers[1:]):
        return 0.0, "none: more than one layer attends"
    situations = [s for _, s in sorted(search, key=lambda pair: -upper(pair[0]))] if search else list(target.situations)
    shown = set(reading.wrong)
    blamed = [s for s in situations if any((k, _parents(target, s, k)) in shown for k in range(len(target.memories)))]
    chosen = (blamed or situations)[:WITNESS_SITUATIONS]
    inputs = [(situation, _adversary(reading, neurons, situation, sign)) for situation in chosen for sign in (1, -1)]
    outputs = evaluated(reading.network, target.letters()[[list(reversed(letters)) for _, letters in inputs]])[:, -1]
    if not np.isfinite(outputs).all():
        reading.faults.append(f"the network computes numbers that are not finite in {reading.network.dtype}")
        return 0.0, "none"
    wanted = [target.readout([arb(v) for v in target.point(situation)]) for situation, _ in inputs]
    errors = [lower(abs(arb(rational(float(output))) - right)) for output, right in zip(outputs, wanted, strict=True)]
    if not exact:
        return max(errors), f"searched token sequence, run in {reading.network.dtype}"
    evaluator, best = _ChoiceEvaluator(reading, layer), 0.0
    for n in sorted(range(len(errors)), key=lambda n: -errors[n])[:IN_BALLS]:
        output = evaluator([target.alphabet[letter] for letter in inputs[n][1]])
        best = max(best, 0.0 if output is None else lower(abs(output - wanted[n])))
    return best, "searched token sequence, in ball arithmetic"


def _parents(target: AdaptiveMemory, situation: Situation, k: int) -> tuple[int, ...]:
    return tuple(situation.tokens[target.slot_index(name)] for name in target.parents[target.names[k]])


def _adversary(reading: _ChoiceReading, neurons: Sequence[Neuron], situation: Situation, sign: int) -> list[int]:
    """Letters of x_t, x_{t−1}, …: the situation's where it fixes them; elsewhere, where all heads have the same small weight, the letter
    that adds most along the read-out's gradient."""
    target, dim = reading.target, reading.target.dim
    point, slope = target.point(situation), np.zeros(dim)
    for neuron in neurons:
        if sum((w * x for w, x in zip(neuron.row, point, strict=True) if w != 0), neuron.bias) > 0:
            weights = np.array([float(arb(neuron.outer * w)) for w in neuron.row])[dim:]
            slope += weights.reshape(-1, dim).sum(axis=0)
    fixed = {0: situation.tokens[0]} | dict(zip(situation.lags, situation.tokens[1:], strict=True))
    letter = int(np.argmax(sign * target.letters() @ np.nan_to_num(slope)))
    return [fixed.get(s, letter) for s in range(reading.stream.lags[-1] + 1)]


def output_at(network: Transformer, target: AdaptiveMemory, tokens: np.ndarray, t: int) -> arb | None:
    """The output of an exact network at token t of (N, d), in balls; None if a rounding is ambiguous."""
    reading = _ChoiceReading(network, target)
    layer, _ = delivered_stream(reading.bringing, fixed_part(target), table_lags.ID)
    letters = target.nearest_letters(tokens[: t + 1], np)
    return _ChoiceEvaluator(reading, layer)([target.alphabet[int(letter)] for letter in reversed(letters)])


class _ChoiceEvaluator:
    """The network's output at the first token of a reversed sequence, in balls; None if a rounding is ambiguous."""

    def __init__(self, reading: _ChoiceReading, layer: FusedLayer) -> None:
        self.reading, self.layer = reading, layer
        reach, rows = int(reading.network.layers[0].attention.table.shape[1]), reading.stream.brought
        with working_precision(layer.bits):
            units = [[fmpq(int(i == j)) for i in range(rows)] for j in range(rows)]
            self.kernels = [[layer.kernel(unit, i).values(0, reach) for i in range(reading.target.dim)] for unit in units]

    def __call__(self, tokens: Sequence[tuple[fmpq, ...]]) -> arb | None:
        with working_precision(self.layer.bits):
            stream = [arb(0)] * self.reading.stream.width
            for j, row in enumerate(self.kernels):
                terms = (k * arb(token[i]) for i, kernel in enumerate(row) for k, token in zip(kernel, tokens, strict=False))
                stream[j] = sum(terms, arb(0))
            for layer in self.reading.network.layers[:-1]:
                written = _fed(layer.feedforward, stream)
                if written is None:
                    return None
                stream = [a + b for a, b in zip(stream, written, strict=True)]
            last = _fed(self.reading.network.layers[-1].feedforward, stream)
            return None if last is None else last[0]


def _fed(ffn: FeedForward, stream: Sequence[arb]) -> list[arb] | None:
    """A feed-forward network in balls; None if it is not known to which integer something is rounded."""
    hidden = []
    for row, bias in zip(to_exact(ffn.inner), to_exact(ffn.bias), strict=True):
        hidden.append(sum((arb(w) * x for w, x in zip(row, stream, strict=True) if w != 0), arb(bias)).max(arb(0)))
    outputs: list[Any] = [sum((arb(a) * h for a, h in zip(row, hidden, strict=True) if a != 0), arb(0)) for row in to_exact(ffn.outer)]
    for j, how in enumerate(ffn.precision):
        if how == "integer":
            shifted = outputs[j] + arb(1) / 2
            whole = shifted.floor().unique_fmpz()
            if whole is None or shifted.contains(arb(whole)):
                return None
            outputs[j] = arb(whole)
    return outputs
