"""The certificate of `analyzer.theorems.library.position_heads`: from stored weights to witness ≤ certified ≤ bound.

Values are read from the block x0, which nothing writes to after the embedding, keys from the table of positions, queries from the position,
the lag and the constant. So a row of attention weights depends on t and g alone, and all of them are enclosed, for every position t ≥ g of
the longest array (shorter ones are the same rows, for no token sees later ones):

1. *lags* of adaptive targets, memory by memory: for every combination of its parents' tokens that occurs the neurons are evaluated in
   rational arithmetic, with the certified errors of the parents as noise; what arrives must be less than 1/2 from the lag, and is rounded;
2. *memories*: with s the losers' largest share over all rows (`verify.theorems.library.position_rows`), D the spread of a coordinate, ρ the
   rounding of sums and G = W_O, coordinate i is off by |G_ii − 1| + |G_ii|(D s + ρ) + Σ_{i'≠i} |G_ii'|(1 + ρ), and by the rounding of W_O;
3. *read-out*: |F(u + δ) − f(u)| for every situation u of letters, δ being what its memories may be off by; or on the box.

The bound is (P.2) at the sharpness found in the weights. The witness is the worst of some arrays, evaluated at their last position: tokens
that matter at the ends of their range, all others against the read-out's gradient; really run, or in balls where the network is exact.
"""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.lemmas.lag_encoding import finite_or_huge
from analyzer.lemmas.relu_error import Neuron, local_range, neurons_of, readout_error
from analyzer.numbers.exact import lower, maximum, nearest, rational, upper, working_precision
from analyzer.targets.adaptive import AdaptiveMemory, Situation
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems import base, thm_4_4
from analyzer.theorems.library import position_heads as theorem
from constructions.network.transformer import Attention, FeedForward, Transformer, to_exact
from constructions.run.execute import evaluated
from constructions.theorems.library.position_heads import PositionStream
from constructions.theorems.thm_4_4 import parent_points
from verify.chain.certificate import Certificate, StrangeWeights, better_than_constant, matched
from verify.chain.enclosed import Enclosed, EnclosedArithmetic, stacked, stored
from verify.chain.layer import FFN_BITS, SMALLEST_RADIUS, readout_bound
from verify.chain.rounding import exponential_error, feed_forward_error
from verify.theorems.library.position_rows import RowShares, dots, mean_rounding, shares

HALF = fmpq(1, 2)
SLACK = arb(2) ** -28
"""Enclosures of shares are so much wider than (P.1) at most: they are rounded outwards by 2^-30 a step."""
MAX_WORK = 1_500_000
"""Situations times neurons of the read-out gone through one by one (some ten seconds); beyond that the box is certified."""
WITNESSES = 128
"""Situations that are run, the worst by the certificate first."""
MOST_PAIRS = 1 << 25
"""Pairs of tokens of all arrays that are run together."""
IN_BALLS = 4
"""Of those, what is evaluated again where the network is exact."""


@dataclass(frozen=True)
class _Delivered:
    """A memory: how far its lag can be off before it is rounded, its error by lag, the rounding in it, what is promised, and whether its
    scores are computed without rounding."""

    distance: fmpq
    errors: dict[int, arb]
    rounding: arb
    budget: arb
    exact: bool

    @property
    def error(self) -> arb:
        return maximum(list(self.errors.values()))


@dataclass
class _PositionReading:
    """A network read as the construction of position-heads, with everything that does not fit."""

    network: Transformer
    target: theorem.Memories
    faults: list[str] = field(default_factory=list)
    wrong: set[tuple[int, tuple[int, ...]]] = field(default_factory=set)
    """(memory, parents' tokens) for which a lag is not certified."""

    def __post_init__(self) -> None:
        self.stream, self.schedule = PositionStream.of(self.target), theorem.schedule_of(self.target)
        self.first = len(self.network.layers) - len(self.schedule)
        expected, found = theorem.layers_of(self.target), len(self.network.layers)
        shape = tuple(self.network.embedding.shape)
        if shape != (self.stream.width, self.target.dim):
            expected_shape = (self.stream.width, self.target.dim)
            raise InputError(f"the embedding has shape {shape}; {theorem.ID} for this target has {expected_shape}")
        if found != expected:
            raise InputError(f"the network has {found} layers; {theorem.ID} for this target has {expected}")
        if self.network.outputs != 1:
            raise InputError(f"the network has {self.network.outputs} outputs; {theorem.ID} has one")
        if self.network.positions is None or len(self.network.positions) <= self.target.settled:
            raise StrangeWeights(f"{theorem.ID} needs a table of positions that is longer than the longest lag, {self.target.settled}")
        if self.length > theorem.MAX_LENGTH:
            raise Refusal(f"a table of {self.length} positions is too long to be certified; {theorem.MAX_LENGTH} are the most")
        theorem.check_letters(self.target, self.network.dtype)
        for index, group in enumerate(self.schedule, start=self.first):
            heads = self.network.layers[index].attention
            form = (heads.kind, heads.window, set(heads.rpe), len(heads.rpe), heads.query.shape[1], heads.value.shape[1])
            if form != ("dp", "finite", {"none"}, len(group), 2, self.target.dim) or np.any(heads.decay != 0):
                raise StrangeWeights(f"layer {index + 1} is not one softmax head for each of {len(group)} memories over the array up to t")
        self._check_table()
        self._check_heads()
        self._check_neurons()

    @property
    def adaptive(self) -> AdaptiveMemory | None:
        """The target, if its lags are functions of tokens."""
        return theorem.adaptive_part(self.target)

    @property
    def fixed(self) -> FixedMemory:
        """The target where they are not."""
        found = theorem.fixed_part(self.target)
        assert found is not None  # a target is one or the other
        return found

    @property
    def length(self) -> int:
        """N, the tokens of the longest array."""
        return len(self.network.positions)

    @cached_property
    def constant(self) -> fmpq:
        """What the constant slot holds."""
        return to_exact(self.network.bias)[self.stream.constant]

    def head(self, memory: int) -> tuple[Attention, int]:
        """The layer and the number of a memory's head."""
        index = next(n for n, group in enumerate(self.schedule) if memory in group)
        return self.network.layers[self.first + index].attention, self.schedule[index].index(memory)

    def _check_table(self) -> None:
        """Embedding and positions: x0 is the token, `place` counts, `square` is its square, nothing else is written."""
        stream, network = self.stream, self.network
        identity = [[fmpq(int(i == j)) for i in range(stream.dim)] for j in range(stream.width)]
        if to_exact(network.embedding).tolist() != identity:
            self.faults.append("embedding: x0 is not the token, or another slot reads it")
        self._only("bias", np.asarray(network.bias) != 0, [stream.constant])
        table = np.asarray(network.positions)
        self._only("positions: the table", (table != 0).any(axis=0), [stream.place, stream.square])
        place, square = (to_exact(table[:, j]) for j in (stream.place, stream.square))
        if any(b - a != 1 for a, b in itertools.pairwise(place)) or any(s != p * p for p, s in zip(place, square, strict=True)):
            self.faults.append("positions: the table does not hold whole steps and their squares")

    def _check_heads(self) -> None:
        """Who reads and writes where; matrices are looked at one by one, since what cancels in a product need not cancel in floats."""
        stream = self.stream
        for layer in self.network.layers[: self.first]:
            quiet = [getattr(layer.attention, name) for name in ("output", "value", "query", "key", "pointer")]
            if any(np.any(np.asarray(array) != 0) for array in quiet):
                self.faults.append("layer 1: attention is not off")
        for memory, name in enumerate(self.target.names):
            heads, h = self.head(memory)
            asks = [stream.place, stream.constant, *([stream.lag(memory)] if stream.adaptive else [])]
            self._only(f"{name}: its query", (np.asarray(heads.query[h]) != 0).any(axis=0), asks, "reads")
            self._only(f"{name}: its key", (np.asarray(heads.key[h]) != 0).any(axis=0), [stream.place, stream.square], "reads")
            self._only(f"{name}: its head", (np.asarray(heads.output[h]) != 0).any(axis=1), stream.block(memory))
            if to_exact(heads.value[h]).tolist() != [[fmpq(int(i == j)) for j in range(stream.width)] for i in range(stream.dim)]:
                self.faults.append(f"{name}: the value of its head is not the token")

    def _check_neurons(self) -> None:
        *inner, last = (layer.feedforward for layer in self.network.layers)
        for index, (ffn, group) in enumerate(zip(inner, self.schedule, strict=False), start=1):
            lags = [self.stream.lag(k) for k in group]
            self._only(f"layer {index}: the FFN", (np.asarray(ffn.outer) != 0).any(axis=1), lags)
            if {j for j, how in enumerate(ffn.precision) if how != "none"} != set(lags) or "log" in ffn.precision:
                self.faults.append(f"layer {index}: the FFN does not round the lags of its level, and only them, to integers")
        for index, ffn in enumerate((*inner, last), start=1):
            self._only(f"layer {index}: a neuron", (np.asarray(ffn.inner) != 0).any(axis=0), range(self.stream.tokens), "reads")
        if any(how != "none" for how in last.precision):
            self.faults.append("read-out: it is rounded")

    def _only(self, who: str, touched: Any, allowed: Sequence[int], does: str = "writes") -> None:
        strange = {int(j) for j in np.nonzero(touched)[0]} - set(allowed)
        if strange:
            self.faults.append(f"{who} {does} coordinate {min(strange)}, which is not its own")

    def neurons(self, index: int, coordinate: int) -> list[Neuron]:
        """The neurons of layer `index` (from 0) that write a coordinate, on (x0, memories)."""
        ffn = self.network.layers[index].feedforward
        outer = to_exact(ffn.outer)[coordinate]
        kept = [int(n) for n in np.nonzero(outer)[0]] if index < len(self.network.layers) - 1 else list(range(len(outer)))
        return neurons_of(to_exact(ffn.inner[kept][:, : self.stream.tokens]), to_exact(ffn.bias[kept]), outer[kept])

    def evaluation(self, index: int, coordinate: int, sizes: Sequence[arb]) -> arb:
        """Rounding of an output of a float network's FFN that reads (x0, memories) of these sizes, and nothing else, or that is a fault.

        No neuron may overflow, read or not: infinity times 0 is no number.
        """
        if self.network.dtype == "exact":
            return arb(0)
        ffn = self.network.layers[index].feedforward
        weights, shifts = (np.abs(np.asarray(array, np.float64)) for array in (ffn.inner, ffn.bias))
        reach = weights.sum(axis=1) * upper(maximum(list(sizes))) + shifts
        EnclosedArithmetic(self.network.dtype).checked(Enclosed(reach, np.zeros_like(reach)))
        rest = [arb(max(self.length**2, 2))] * (self.stream.width - self.stream.tokens)
        return feed_forward_error(self.network.dtype, ffn, coordinate, [*sizes, *rest])

    def lags_of(self, memory: int) -> tuple[int, ...]:
        """Lags that occur."""
        return (self.fixed.lags[memory],) if self.adaptive is None else self.adaptive.occurring(memory)

    def spreads(self) -> list[arb]:
        """D: the largest difference of two tokens, coordinate by coordinate."""
        if self.adaptive is not None:
            return [arb(max(column) - min(column)) for column in zip(*self.adaptive.alphabet, strict=True)]
        letters = self.fixed.alphabet
        return [arb(2) if letters is None else arb(letters[-1] - letters[0])] * self.target.dim

    def sharpness(self, memory: int) -> fmpq:
        """β: minus what a score has of the square of a position."""
        heads, h = self.head(memory)
        asked = to_exact(heads.query[h])[:, self.stream.constant] * self.constant
        return -sum((q * k for q, k in zip(asked, to_exact(heads.key[h])[:, self.stream.square], strict=True)), fmpq(0))


def _rows(reading: _PositionReading, memory: int) -> dict[int, RowShares]:
    """Every row of a memory's head, by lag."""
    stream, network, (heads, h) = reading.stream, reading.network, reading.head(memory)
    arithmetic = EnclosedArithmetic(network.dtype)
    table = stored(np.asarray(network.positions)[:, [stream.place, stream.square]])
    keys = dots(arithmetic, stored(np.asarray(heads.key[h])[:, [stream.place, stream.square]]), table)
    asks = [stream.place, stream.constant, *([stream.lag(memory)] if stream.adaptive else [])]
    weights = stored(np.asarray(heads.query[h])[:, asks])
    _check_range(reading, weights, keys)
    constant = stored(np.full((reading.length, 1), np.asarray(network.bias)[stream.constant]))
    found = {}
    for lag in reading.lags_of(memory):
        slot = stored(np.full((reading.length, 1), float(lag)))
        queries = dots(arithmetic, weights, stacked([table[:, :1], constant, *([slot] if stream.adaptive else [])], 1))
        found[lag] = shares(arithmetic, queries, keys, lag)
    return found


def _check_range(reading: _PositionReading, query: Enclosed, keys: Enclosed) -> None:
    """Refuse heads that may overflow, at positions before the lags included: there a lag slot holds any number up to 1/u, or its
    neurons' rounding would be a fault, and a score that is no number would spoil its token for those that look at it."""
    most = max(2.0 ** theorem.BITS.get(reading.network.dtype, 53), float(reading.length), abs(nearest(reading.constant)))
    reach = query.size.sum(axis=1).max() * most
    score = reach * keys.size.sum(axis=1).max()
    EnclosedArithmetic(reading.network.dtype).checked(query, float(max(reach, score)))


def _lag(reading: _PositionReading, memory: int, noise: Sequence[fmpq]) -> fmpq:
    """How far what is written for a lag can be from it before it is rounded."""
    target = reading.adaptive
    if target is None:
        return fmpq(0)
    name, coordinate = target.names[memory], reading.stream.lag(memory)
    index = next(n for n, group in enumerate(reading.schedule) if memory in group)
    neurons = reading.neurons(index, coordinate)
    parents = {j for parent in target.parents[name] for j in reading.stream.block(target.slot_index(parent) - 1)}
    strange = {j for neuron in neurons for j, w in enumerate(neuron.row) if w != 0} - parents
    if strange:
        reading.faults.append(f"lag {name}: a neuron reads coordinate {min(strange)}, which is not one of its parents'")
    evaluation = finite_or_huge(reading.evaluation(index, coordinate, [1 + arb(e) for e in noise]))
    worst = fmpq(0)
    for (point, lag), tokens in zip(parent_points(target, memory), target.lag_table(memory), strict=True):
        y, moved = local_range(neurons, point, noise)
        distance = abs(y - lag) + moved + evaluation
        if not distance < HALF:
            reading.wrong.add((memory, tokens))
            if distance > worst:
                at = target.describe_tokens(dict(zip(map(target.slot_index, target.parents[name]), tokens, strict=True)))
                reading.faults.append(f"lag {name}: it is {lag}{at}, but what is written can be {float(arb(distance)):.3g} off")
        worst = max(worst, distance)
    return worst


def _delivered(reading: _PositionReading, memory: int, noise: Sequence[fmpq]) -> _Delivered:
    """A memory: its lag, the rows of its head, and what the output matrix makes of the mean."""
    distance = _lag(reading, memory, noise)
    heads, h = reading.head(memory)
    dtype, dim = reading.network.dtype, reading.target.dim
    arithmetic, spreads = EnclosedArithmetic(dtype), reading.spreads()
    gain = to_exact(heads.output[h])[list(reading.stream.block(memory))]
    errors, roundings, exact = {}, [], True
    for lag, rows in _rows(reading, memory).items():
        mean = mean_rounding(arithmetic, rows, reading.length)
        rho, lost = (arb(v) if v < float("inf") else arb.pos_inf() for v in (mean, rows.share))
        unit = arb(0) if dtype == "exact" else arb(arithmetic.gamma(dim))
        added = [sum((abs(arb(g)) for g in row), arb(0)) * (rho + unit * (1 + rho)) for row in gain]
        off = []
        for i, row in enumerate(gain):
            others = sum((abs(arb(g)) for j, g in enumerate(row) if j != i), arb(0))
            off.append(abs(arb(row[i] - 1)) + abs(arb(row[i])) * spreads[i] * lost + others + added[i])
        errors[lag], exact = maximum(off), exact and rows.exact
        roundings.append(maximum(added))
    sharpness = reading.sharpness(memory)
    if not 0 < sharpness <= 2**20:
        reading.faults.append(f"{reading.target.names[memory]}: the scores of its head do not fall with the squared distance")
        return _Delivered(distance, errors, maximum(roundings), arb(2), exact)
    slip = arb(0) if dtype == "exact" else 4 * exponential_error(dtype)
    promised = theorem.extraction_error(arb(sharpness), maximum(spreads)) * (1 + SLACK + slip)
    budget = promised + theorem.memory_rounding(nearest(sharpness), dim, theorem.BITS.get(dtype))
    return _Delivered(distance, errors, maximum(roundings), budget, exact)


def verify(network: Transformer, target: theorem.Memories, bank: str, ffn: str) -> Certificate:
    """Certify a stored network whose heads find tokens by their positions."""
    start = time.perf_counter()
    reading = _PositionReading(network, target)
    dim, readout = target.dim, target.readout
    with working_precision(FFN_BITS):
        noise, found = [fmpq(0)] * reading.stream.tokens, dict[int, _Delivered]()
        for k in itertools.chain.from_iterable(reading.schedule):
            found[k] = _delivered(reading, k, noise)
            noise[(k + 1) * dim : (k + 2) * dim] = [finite_or_huge(found[k].error)] * dim
        memories = [found[k] for k in range(len(found))]
        errors, budgets = [m.error for m in memories], [m.budget for m in memories]
        box = [arb(1)] * dim + [(1 + e).upper().max(SMALLEST_RADIUS) for e in errors for _ in range(dim)]
        neurons = reading.neurons(len(network.layers) - 1, 0)
        on_box = readout_error(readout, neurons, box)
        promised = readout_bound(ffn, readout, neurons, box, box, network.dtype)
        evaluation = reading.evaluation(len(network.layers) - 1, 0, box)
        lipschitz = readout.lipschitz(box)[1:]
        certified = on_box + sum((lip * e for lip, e in zip(lipschitz, errors, strict=True)), arb(0))
        search = _situation_errors(reading, memories, neurons)
        if search is not None:
            certified = certified.min(maximum([error for error, _ in search]))
        certified += evaluation
        rounding = sum((lip * m.rounding for lip, m in zip(lipschitz, memories, strict=True)), evaluation)
        hull = box[:dim] + [(1 + b).max(box[j]) for k, b in enumerate(budgets, 1) for j in range(k * dim, (k + 1) * dim)]
        bound = base.total_budget(promised + evaluation, readout.lipschitz(hull)[1:], budgets)
        witness, description = _witness(reading, neurons, search)
        measured = {base.READ_OUT: (on_box, promised)}
        for name, m in zip(target.names, memories, strict=True):
            measured[thm_4_4.extraction_lemma(name)] = (m.error, m.budget)
            if reading.stream.adaptive:
                measured[thm_4_4.lag_lemma(name)] = (arb(m.distance), arb(HALF))
        trivial = target.constant_error()
    return Certificate(
        theorem=theorem.ID,
        witness=max(0.0, witness),
        witness_input=description,
        certified=float("inf") if reading.faults else upper(certified),
        bound=upper(bound),
        rounding=upper(rounding),
        trivial=trivial,
        least_heads=None,
        parts=matched(theorem.target_graph(target, ffn), measured),
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=time.perf_counter() - start,
        faults=tuple(reading.faults),
        details=_details(reading, memories),
        remedies=better_than_constant(upper(bound), trivial),
    )


def _details(reading: _PositionReading, memories: Sequence[_Delivered]) -> dict[str, Any]:
    """For which arrays and positions the certificate holds, and how the scores are computed."""
    dtype, which = reading.network.dtype, "the longest lag" if reading.adaptive is None else "their own lags"
    return {
        "length": reading.length,
        "over": f"arrays of at most {reading.length} tokens, at positions from {which} on",
        "sharpness": [nearest(reading.sharpness(k)) for k in range(len(memories))],
        "scores": "exact" if all(m.exact for m in memories) else "rounded",
        "horizon": None if dtype == "exact" else theorem.longest(theorem.BITS[dtype]),
    }


def _situation_errors(
    reading: _PositionReading, memories: Sequence[_Delivered], neurons: Sequence[Neuron]
) -> list[tuple[arb, Situation]] | None:
    """For every situation the worst |F(u + δ) − f(u)|; None if there are too many to go through, or tokens are no letters."""
    target = reading.adaptive
    if target is None or len(target.situations) * len(neurons) > MAX_WORK:
        return None
    radii = [{lag: finite_or_huge(error) for lag, error in m.errors.items()} for m in memories]
    result = []
    for situation in target.situations:
        noise = [fmpq(0)] * target.dim
        noise += [radius[lag] for radius, lag in zip(radii, situation.lags, strict=True) for _ in range(target.dim)]
        value, moved = local_range(neurons, target.point(situation), noise)
        wanted = target.readout([arb(v) for v in target.point(situation)])
        result.append((abs(arb(value) - wanted) + arb(moved), situation))
    return result


@dataclass(frozen=True)
class _Case:
    """(x0, memories) as a vector, and the lags."""

    point: tuple[fmpq, ...]
    lags: tuple[int, ...]


def _cases(reading: _PositionReading, search: list[tuple[arb, Situation]] | None) -> list[_Case]:
    """What to try, the worst by the certificate first, or what shows that a lag is wrong; of fixed memories some corners of their box."""
    target = reading.adaptive
    if target is None:
        points = [tuple(rational(float(v)) for v in point) for point in reading.fixed.attained()]
        return [_Case(point, reading.fixed.lags) for point in points[:: -(-len(points) // WITNESSES)]]
    ordered = [s for _, s in sorted(search, key=lambda pair: -upper(pair[0]))] if search else list(target.situations)
    slots = [[target.slot_index(name) for name in target.parents[memory]] for memory in target.names]

    def shown(s: Situation) -> bool:
        return any((k, tuple(s.tokens[slot] for slot in slots[k])) in reading.wrong for k in range(len(slots)))

    chosen = sorted(ordered, key=lambda s: not shown(s))[:WITNESSES] if reading.wrong else ordered[:WITNESSES]
    return [_Case(tuple(target.point(s)), s.lags) for s in chosen]


def _adversary(reading: _PositionReading, neurons: Sequence[Neuron], case: _Case, sign: int) -> np.ndarray:
    """An array (N, d) whose last position is the case: other tokens are the worst against the read-out's gradient."""
    target, dim, length = reading.adaptive, reading.target.dim, reading.length
    slope = np.zeros(reading.stream.tokens)
    for neuron in neurons:
        if sum((w * x for w, x in zip(neuron.row, case.point, strict=True) if w != 0), neuron.bias) > 0:
            slope += np.array([nearest(neuron.outer * w) for w in neuron.row])
    distance, pull = np.arange(length)[::-1], np.zeros((length, dim))
    for k, lag in enumerate(case.lags):
        falling = np.exp(-np.minimum(max(nearest(reading.sharpness(k)), 0.0) * (distance - lag) ** 2.0, 700.0))
        pull += sign * falling[:, None] * np.nan_to_num(slope[list(reading.stream.block(k))])
    if target is not None:
        tokens = target.letters()[np.argmax(pull @ target.letters().T, axis=1)]
    else:
        letters = reading.fixed.alphabet
        low, high = (-1.0, 1.0) if letters is None else (nearest(letters[0]), nearest(letters[-1]))
        tokens = np.where(pull > 0, high, low)
    for block, lag in enumerate((0, *case.lags)):
        tokens[length - 1 - lag] = [nearest(v) for v in case.point[block * dim : (block + 1) * dim]]
    return tokens


def _witness(reading: _PositionReading, neurons: Sequence[Neuron], search: list[tuple[arb, Situation]] | None) -> tuple[float, str]:
    """(the largest error found at the last position of an array, what the input is)."""
    network, target = reading.network, reading.target
    most = max(1, min(WITNESSES, MOST_PAIRS // reading.length**2 // 2))
    cases = [(case, sign) for case in _cases(reading, search)[:most] for sign in (1, -1)]
    arrays = np.stack([_adversary(reading, neurons, case, sign) for case, sign in cases])
    outputs = evaluated(network, arrays)[:, -1]
    if not np.isfinite(outputs).all():
        reading.faults.append(f"the network computes numbers that are not finite in {network.dtype}")
        return 0.0, "none"
    wanted = [target.readout([arb(v) for v in case.point]) for case, _ in cases]
    errors = [lower(abs(arb(rational(float(output))) - right)) for output, right in zip(outputs, wanted, strict=True)]
    if network.dtype != "exact":
        return max(errors), f"searched array of {reading.length} tokens, run in {network.dtype}"
    worst = sorted(range(len(errors)), key=lambda n: -errors[n])[:IN_BALLS]
    found = [(_output(reading, arrays[n]), wanted[n]) for n in worst]
    return max(0.0 if out is None else lower(abs(out - right)) for out, right in found), "searched array, in ball arithmetic"


def output_at(network: Transformer, target: theorem.Memories, tokens: np.ndarray, t: int) -> arb | None:
    """The output at token t of (N, d), in balls; None if a rounding is ambiguous."""
    with working_precision(FFN_BITS):
        return _output(_PositionReading(network, target), tokens[: t + 1])


def _output(reading: _PositionReading, tokens: np.ndarray) -> arb | None:
    """The same at the last token: what other positions hold is their token and their place."""
    stream, network, t = reading.stream, reading.network, len(tokens) - 1
    given = [[arb(rational(float(v))) for v in token] for token in tokens]
    place, square = (to_exact(np.asarray(network.positions)[: t + 1, j]) for j in (stream.place, stream.square))
    state = [arb(0)] * stream.width
    state[: stream.dim] = given[t]
    state[stream.place], state[stream.square], state[stream.constant] = arb(place[t]), arb(square[t]), arb(reading.constant)
    for index, layer in enumerate(network.layers):
        for memory in reading.schedule[index - reading.first] if index >= reading.first else ():
            heads, h = reading.head(memory)
            query = [_dot(row, state) for row in to_exact(heads.query[h])]
            keys = to_exact(heads.key[h])[:, [stream.place, stream.square]]
            scores = [
                sum((q * arb(k[0] * p + k[1] * s) for q, k in zip(query, keys, strict=True)), arb(0))
                for p, s in zip(place, square, strict=True)
            ]
            top = maximum(scores)
            weights = [(score - top).exp() for score in scores]
            total = sum(weights, arb(0))
            mean = [sum((w * x[i] for w, x in zip(weights, given, strict=True)), arb(0)) / total for i in range(stream.dim)]
            for row in stream.block(memory):
                state[row] += _dot(to_exact(heads.output[h])[row], mean)
        written = _fed(layer.feedforward, state)
        if written is None or index == len(network.layers) - 1:
            return None if written is None else written[0]
        state = [a + b for a, b in zip(state, written, strict=True)]
    raise AssertionError("a network has a last layer")


def _dot(weights: Sequence[fmpq], values: Sequence[arb]) -> arb:
    return sum((arb(w) * v for w, v in zip(weights, values, strict=True) if w != 0), arb(0))


def _fed(ffn: FeedForward, state: Sequence[arb]) -> list[arb] | None:
    """A feed-forward network in balls; None if it is not known to which integer something is rounded."""
    hidden = [(_dot(row, state) + arb(bias)).max(arb(0)) for row, bias in zip(to_exact(ffn.inner), to_exact(ffn.bias), strict=True)]
    outputs = [_dot(row, hidden) for row in to_exact(ffn.outer)]
    for j, how in enumerate(ffn.precision):
        if how == "integer":
            shifted = outputs[j] + arb(1) / 2
            whole = shifted.floor().unique_fmpz()
            if whole is None or shifted.contains(arb(whole)):  # cannot be decided, or a tie
                return None
            outputs[j] = arb(whole)
    return outputs
