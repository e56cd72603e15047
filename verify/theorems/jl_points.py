"""The certificate of couplings of points at positions: from stored weights to witness ≤ certified ≤ bound.

`read` evaluates what the first layer writes, in rational arithmetic: on finite sets at every (position, point); on boxes as sums of
functions of single coordinates at the kinks of all neurons, position by position, a neuron that bends across several coordinates being
refused. Then

    |H_t − Ĥ_t| ≤ Σ_c Lip_c(F) (tanh(δ/2) osc(f_c) + ‖f_c − f̂_c‖) + ‖F − F̂‖                                         (certified)

with δ half the oscillation of ρ − ρ̂ over keys, the largest over all queries (`analyzer.lemmas.points`), whatever the sequence and
whichever position asks. Float networks are read as the rationals that they store, and the rounding of the fast executor is added
(`verify.chain.rounding`); points that are no floats reach it rounded, which is counted.

The bound is the theorem's at the knots and for the rank found in the weights. The witness is the error at an explicit sequence found by
search and evaluated in balls, or, for float networks, of the output that the executor really gives."""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.lemmas.points import (
    MAX_ROWS,
    ROUNDED,
    Frame,
    coupling_table,
    frame,
    half_oscillation,
    interpolation,
    largest_sum,
    point_factors,
    points_budget,
    value_interpolation,
)
from analyzer.lemmas.relu_error import Neuron, neurons_of, readout_error
from analyzer.numbers.exact import UNIT, lower, maximum, nearest, to_text, upper, working_precision
from analyzer.numbers.piecewise import Neurons
from analyzer.targets.coupling import BITS, floats, softmax_mean
from analyzer.targets.points import Point, PointsTarget
from analyzer.theorems.jl_points import COUPLING_LEMMA, ID, READ_OUT, VALUES_LEMMA, proof_graph
from constructions.network.transformer import Transformer, to_exact, to_float
from constructions.run.execute import run
from verify.chain.certificate import Certificate, StrangeWeights, better_than_constant, finite, matched
from verify.chain.layer import readout_bound
from verify.chain.rounding import ONE, Arithmetic, Rounded, readout_rounding

STARTS, SWEEPS, TRIED, CANDIDATES = 32, 2, 8, 6
"""Of the search: sequences, rounds, points tried for a token, and sequences that are evaluated in balls."""
SHOWN = 16
"""Singular values and points that are shown."""
ZERO = fmpq(0)

Table = np.ndarray
"""(functions, knots) of rationals."""


@dataclass(frozen=True, eq=False)
class TokenLayer:
    """(code, x) ↦ E·token + e + A relu(B·token + c), the residual stream after the first layer."""

    embedding: np.ndarray  # (D, d + 1)
    start: np.ndarray  # (D,)
    inner: np.ndarray  # (n, d + 1)
    bias: np.ndarray  # (n,)
    outer: np.ndarray  # (D, n)

    def at(self, token: Sequence[fmpq]) -> np.ndarray:
        """The stream of a token, (D,)."""
        hidden = [_dot(row, token) + c for row, c in zip(self.inner, self.bias, strict=True)]
        active = [n for n, value in enumerate(hidden) if value > 0]
        stream = np.array([_dot(row, token) + e for row, e in zip(self.embedding, self.start, strict=True)], dtype=object)
        for n in active:
            for slot in np.nonzero(self.outer[:, n])[0]:
                stream[slot] += self.outer[slot, n] * hidden[n]
        return stream

    def kinks(self, code: fmpq) -> dict[int, tuple[int, fmpq]]:
        """Neurons that bend inside the box at a position, with the coordinate along which they do and their bias there."""
        found: dict[int, tuple[int, fmpq]] = {}
        for n, (row, c) in enumerate(zip(self.inner, self.bias, strict=True)):
            least, most = self.ends(n, code)
            if least < 0 < most:
                along = [i for i, w in enumerate(row[1:]) if w != 0]
                if len(along) != 1:
                    raise StrangeWeights(
                        "a neuron of the first layer bends across several coordinates of the box; here it may bend along one"
                    )
                found[n] = along[0], row[0] * code + c
        return found

    def ends(self, n: int, code: fmpq) -> tuple[fmpq, fmpq]:
        """The least and the largest argument of a neuron on the box, at a position."""
        middle = self.inner[n][0] * code + self.bias[n]
        return middle + sum((min(w, ZERO) for w in self.inner[n][1:]), ZERO), middle + sum((max(w, ZERO) for w in self.inner[n][1:]), ZERO)

    def along(self, code: fmpq, knots: Sequence[fmpq], axis: int) -> Table:
        """The part of the stream that is a function of one coordinate, at its knots; constants are with the first coordinate."""
        bent = {n: bias for n, (i, bias) in self.kinks(code).items() if i == axis}
        linear = [n for n in range(len(self.bias)) if self.ends(n, code)[0] >= 0]
        neurons = Neurons([self.inner[n][1 + axis] for n in bent], list(bent.values()))
        rows = []
        for slot, weights in enumerate(self.outer):
            used = [n for n in linear if weights[n] != 0]
            slope = self.embedding[slot][1 + axis] + sum((weights[n] * self.inner[n][1 + axis] for n in used), ZERO)
            constant = ZERO
            if axis == 0:
                constant = self.start[slot] + self.embedding[slot][0] * code
                constant += sum((weights[n] * (self.inner[n][0] * code + self.bias[n]) for n in used), ZERO)
            rows.append(neurons.values([weights[n] for n in bent], knots, slope, constant))
        return _table(rows)


@dataclass(frozen=True, eq=False)
class PointsReading:
    """A stored network as functions of tokens. `streams[s][i]` is (D, knots): on finite sets one table for each position, its columns the
    points in the order of the frame."""

    network: Transformer
    target: PointsTarget
    layer: TokenLayer
    where: Frame
    streams: list[list[Table]]
    readout: list[Neuron]
    faults: tuple[str, ...]

    def heads(self, part: str) -> list[list[Table]]:
        """`query`, `key` or `value` of the head as functions of tokens."""
        weights = to_exact(getattr(self.network.layers[1].attention, part))[0]
        return [[_combined(weights, table) for table in line] for line in self.streams]

    @cached_property
    def query(self) -> list[list[Table]]:
        return self.heads("query")

    @cached_property
    def key(self) -> list[list[Table]]:
        return self.heads("key")

    @cached_property
    def value(self) -> list[list[Table]]:
        return self.heads("value")

    @property
    def rank(self) -> int:
        return int(self.network.layers[1].attention.query.shape[1])

    def at(self, points: Sequence[Point], position: int) -> arb:
        """Ĥ at a position, counted from 0, for exact points, in balls."""
        attention = self.network.layers[1].attention
        query, key, value = (to_exact(part)[0] for part in (attention.query, attention.key, attention.value))
        streams = [self.layer.at([code, *point]) for code, point in zip(self.target.codes, points, strict=True)]
        asked = [_dot(row, streams[position]) for row in query]
        logits = [arb(sum((q * _dot(row, stream) for q, row in zip(asked, key, strict=True)), ZERO)) for stream in streams]
        means = [softmax_mean(logits, [arb(_dot(row, stream)) for stream in streams]) for row in value]
        return self.outputs(means)

    def outputs(self, means: Sequence[arb]) -> arb:
        """F̂ of a mean."""
        total = arb(0)
        for neuron in self.readout:
            argument = sum((arb(w) * y for w, y in zip(neuron.row, means, strict=True)), arb(neuron.bias))
            total += arb(neuron.outer) * argument.max(arb(0))
        return total

    def sizes(self, tables: list[list[Table]]) -> list[arb]:
        """sup |g| of every function over all tokens: functions of the coordinates are added."""
        found = []
        for row in range(len(tables[0][0])):
            ends = [(sum((max(t[row]) for t in line), ZERO), sum((min(t[row]) for t in line), ZERO)) for line in tables]
            found.append(arb(max(max(high, -low) for high, low in ends)))
        return found

    def spreads(self, tables: list[list[Table]]) -> list[arb]:
        """max g − min g of every function over all tokens."""
        found = []
        for row in range(len(tables[0][0])):
            ends = [(sum((max(t[row]) for t in line), ZERO), sum((min(t[row]) for t in line), ZERO)) for line in tables]
            found.append(arb(max(high for high, _ in ends) - min(low for _, low in ends)))
        return found


def _dot(left: Iterable[fmpq], right: Iterable[fmpq]) -> fmpq:
    return sum((a * b for a, b in zip(left, right, strict=True) if a != 0 and b != 0), ZERO)


def _table(rows: Sequence[Sequence[fmpq]]) -> Table:
    result = np.empty((len(rows), len(rows[0])), dtype=object)
    for k, row in enumerate(rows):
        result[k] = list(row)
    return result


def _combined(weights: np.ndarray, streams: Table) -> Table:
    """weights @ streams, most weights being zero."""
    result = np.empty((len(weights), streams.shape[1]), dtype=object)
    result.fill(ZERO)
    for k, row in enumerate(weights):
        for j in np.nonzero(row)[0]:
            result[k] = result[k] + streams[j] * row[j]
    return result


def read(network: Transformer, target: PointsTarget) -> PointsReading:
    """The functions that a stored network computes; refused unless it has the shape of the theorem's."""
    whole = [
        layer.attention.kind == "dp" and layer.attention.window == "full" and layer.attention.rpe == ("none",) for layer in network.layers
    ]
    if len(network.layers) != 2 or not all(whole) or network.dim != target.dim or network.outputs != 1:
        raise InputError(f"not a network of {ID}: two layers, one head over all tokens, tokens of {target.dim} coordinates, one output")
    first, second = network.layers
    if second.attention.value.shape[1] != len(target.f):
        raise InputError(f"not a network for this target: its head has {second.attention.value.shape[1]} values, f has {len(target.f)}")
    faults = []
    silenced = (first.attention.value, first.attention.output, first.attention.query, first.attention.key)
    if any(np.any(to_exact(part)) for part in silenced):  # one zero factor does not silence floats: 0 times infinity is not 0
        faults.append("the first layer's attention is not off: what it writes need not be functions of one token")
    if any(layer.feedforward.precision for layer in network.layers):
        faults.append(f"a feed-forward network rounds its outputs, which {ID} does not know")
    embedding, start, inner = to_exact(network.embedding), to_exact(network.bias), to_exact(first.feedforward.inner)
    rows = _table([[_dot(row, embedding[:, k]) for k in range(target.dim)] for row in inner])
    bias = np.array([_dot(row, start) + c for row, c in zip(inner, to_exact(first.feedforward.bias), strict=True)], dtype=object)
    layer = TokenLayer(embedding, start, rows, bias, to_exact(first.feedforward.outer))
    last, write = to_exact(second.feedforward.inner), to_exact(second.attention.output)[0]
    seen = (embedding, start[:, None], layer.outer)
    if any(np.any(_combined(last, part)) for part in seen):
        faults.append("the read-out sees the token beside the answer slots: there is no residual in this theorem")
    directions = _table([[_dot(row, write[:, c]) for c in range(len(target.f))] for row in last])
    readout = neurons_of(directions, to_exact(second.feedforward.bias), to_exact(second.feedforward.outer)[0])
    where = _frame(layer, target)
    return PointsReading(network, target, layer, where, _streams(layer, target, where), readout, tuple(faults))


def _frame(layer: TokenLayer, target: PointsTarget) -> Frame:
    """Points, or the places on a box at which some neuron bends at some position, for all coordinates together."""
    if target.points is not None:
        return frame(target, 1)
    places = {ZERO, fmpq(1)}
    for code in target.codes:
        places |= {-bias / layer.inner[n][1 + axis] for n, (axis, bias) in layer.kinks(code).items()}
    knots = tuple(sorted(places))
    if len(knots) * target.space * target.length > 2 * MAX_ROWS:
        raise StrangeWeights(f"the first layer bends at {len(knots)} places: more than are compared")
    return Frame(frame(target, 1).directions, ((knots,) * target.space,) * target.length, None)


def _streams(layer: TokenLayer, target: PointsTarget, where: Frame) -> list[list[Table]]:
    if where.order is None:
        return [[layer.along(code, where.line, i) for i in range(target.space)] for code in target.codes]
    tokens = iter([target.tokens[k] for k in where.order])
    columns = [[layer.at([target.codes[s - 1], *x]) for s, x in itertools.islice(tokens, len(line))] for (line,) in where.knots]
    return [[_table(list(zip(*part, strict=True)))] for part in columns]


def output_at(network: Transformer, target: PointsTarget, tokens: np.ndarray, t: int) -> arb:
    """The output at token t of (N, d + 1), in balls."""
    return read(network, target).at(target.exact_points(tokens), t)


def verify(network: Transformer, target: PointsTarget, bank: str, ffn: str) -> Certificate:
    """Certify a stored network for a target of points at positions, at every position and for all sequences."""
    start = time.perf_counter()
    reading = read(network, target)
    with working_precision(BITS):
        delta = coupling_error(reading)
        values = value_errors(reading)
        sizes = reading.sizes(reading.value)
        hull = [a.max(b) for a, b in zip(sizes, target.value_sizes, strict=True)]
        slopes = target.readout.lipschitz(hull)
        readout = readout_error(target.readout, reading.readout, sizes)
        turned = (delta / 2).tanh() if delta.is_finite() else arb(1)
        parts = zip(slopes, target.oscillations, values, strict=True)
        exact = sum((lip * (turned * osc + off) for lip, osc, off in parts), readout)
        rounding = arb(0) if network.dtype == "exact" else evaluation_rounding(reading)
        kept = stored_errors(reading)
        promised_readout = readout_bound("spline", target.readout, reading.readout, sizes, sizes, network.dtype)
        promised = points_budget(target, max(1, reading.rank), reading.where, promised_readout, *kept)
        bound = promised.total + rounding
        witness, worst, position = _witness(reading)
        trivial = target.constant_error()
    measured = {
        COUPLING_LEMMA: (delta, promised.coupling),
        VALUES_LEMMA: (sum((lip * off for lip, off in zip(slopes, values, strict=True)), arb(0)), promised.moved),
        READ_OUT: (readout, promised.readout),
    }
    found, certified = point_factors(target, reading.where), upper(exact + rounding)
    details = {
        "rank": reading.rank,
        "knots": None if target.points is not None else len(reading.where.line) - 1,
        "length": target.length,
        "ratio": witness / certified if certified > 0 else 1.0,
        "tail": finite(upper(promised.tail)),
        "singular_values": [float(value) for value in found.sigma[:SHOWN]],
        "singular_error": found.sigma_error,
    }
    return Certificate(
        theorem=ID,
        witness=witness,
        witness_input=_show(worst, position),
        certified=certified,
        bound=upper(bound),
        rounding=upper(rounding),
        trivial=trivial,
        least_heads=None,
        parts=matched(proof_graph("none", bank, ffn, ()), measured),
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=time.perf_counter() - start,
        faults=reading.faults,
        details=details,
        remedies=better_than_constant(upper(bound), trivial, rank=None, knots=None),
    )


def _floats(tables: list[list[Table]]) -> tuple[list[np.ndarray], float]:
    """[position] → (axes·knots, functions) as floats, and how far an entry is off."""
    found = [floats([[arb(v) for v in column] for table in line for column in table.T]) for line in tables]
    return [values for values, _ in found], max(error for _, error in found)


@dataclass(frozen=True, eq=False)
class StoredLogits:
    """ρ̂ at pairs of knots, in the form of a `CouplingTable`, for one position of every kind that formulas or network tell apart."""

    values: np.ndarray
    error: float
    asking: list[int]
    asked: list[int]
    blocks: int
    """Entries that add up to one value of ρ̂."""


def logits_of(reading: PointsReading) -> StoredLogits:
    """Rounded factors, sums of m_h products, underflow: `error` bounds what these do to an entry."""
    given, where = coupling_table(reading.target, reading.where), reading.where
    (left, e_left), (right, e_right) = _floats(reading.query), _floats(reading.key)
    sizes = [float(max(np.abs(part).max(initial=0.0) for part in side)) for side in (left, right)]
    terms, unit, least = reading.rank, 2.0**-53, 2.0**-1022
    with np.errstate(all="ignore"):  # what overflows has an infinite error
        off = 2 * terms * (sizes[0] * e_right + sizes[1] * e_left + 2 * (terms + 1) * unit * sizes[0] * sizes[1] + 8 * least)
        everywhere = list(range(reading.target.length))
        if where.order is not None:
            return StoredLogits(np.concatenate(left) @ np.concatenate(right).T, off, everywhere, everywhere, 1)
        asking, asked = (_distinct(kinds, side) for kinds, side in ((given.asking, left), (given.asked, right)))
        rows, columns = np.concatenate([left[t] for t in asking]), np.concatenate([right[s] for s in asked])
        axes, count = len(where.directions), len(where.line)
        table = (rows @ columns.T).reshape(len(asking), axes, count, len(asked), axes, count)
        return StoredLogits(table, off, asking, asked, axes**2)


def coupling_error(reading: PointsReading) -> arb:
    """δ = sup_{t,u} ½ osc_{s,v} (ρ − ρ̂), from above."""
    given, found = coupling_table(reading.target, reading.where), logits_of(reading)
    wanted = given.values
    if reading.where.order is None:
        wanted = wanted[[given.asking[t] for t in found.asking]][:, :, :, [given.asked[s] for s in found.asked]]
    with np.errstate(all="ignore"):
        gap = wanted - found.values
        corners, largest = half_oscillation(gap), float(np.abs(gap).max(initial=0.0))
    if not np.isfinite([corners, largest, found.error]).all():
        return arb.pos_inf()
    rounded = arb(ROUNDED) * arb(largest) * found.blocks + arb(given.error) + found.blocks * arb(found.error)
    return (arb(corners) + rounded + interpolation(reading.target, reading.where)).upper()


def _distinct(kinds: Sequence[int], tables: Sequence[np.ndarray]) -> list[int]:
    """One position for each kind that the formulas and the network tell apart."""
    seen: dict[tuple[int, bytes], int] = {}
    for position, (kind, table) in enumerate(zip(kinds, tables, strict=True)):
        seen.setdefault((kind, table.tobytes()), position)
    return list(seen.values())


def value_errors(reading: PointsReading) -> list[arb]:
    """sup |f_c − f̂_c| of every component, from above."""
    target, where = reading.target, reading.where
    if where.order is not None:
        wanted = iter([target.value(*target.tokens[k]) for k in where.order])
        pairs = [(next(wanted), column) for (table,) in reading.value for column in table.T]
        return [maximum([abs(f[c] - arb(v[c])) for f, v in pairs]).upper() for c in range(len(target.f))]
    bent = value_interpolation(target, where)
    found = []
    for c in range(len(target.f)):
        ends = []
        for s in range(1, target.length + 1):
            gaps = [
                [w - arb(v) for w, v in zip(_wanted(target, c, s, i, where.line), table[c], strict=True)]
                for i, table in enumerate(reading.value[s - 1])
            ]
            high, low = (sum((maximum([sign * g for g in line]) for line in gaps), arb(0)) for sign in (1, -1))
            ends.append(high.max(low))
        found.append((maximum(ends) + bent[c]).upper())
    return found


def _wanted(target: PointsTarget, c: int, s: int, axis: int, knots: Sequence[fmpq]) -> list[arb]:
    """The part of f_c that is a function of one coordinate, at its knots."""
    formulas = [target.value_formula(term, s) for term in target.f[c] if target.value_axis(term) == axis]
    return [sum((formula.at(x) for formula in formulas), arb(0)) for x in knots]


def stored_errors(reading: PointsReading) -> tuple[arb, list[arb]]:
    """How far rounding the weights of the first layer to the type may have moved logits, and every component of f; 0 for exact weights."""
    if reading.network.dtype == "exact":
        return arb(0), [arb(0)] * len(reading.target.f)
    unit, layer = 4 * arb(UNIT[reading.network.dtype]), reading.layer
    reach = [sum((abs(arb(w)) for w in row), abs(arb(c))) for row, c in zip(layer.inner, layer.bias, strict=True)]
    moved = []
    for slot, weights in enumerate(layer.outer):
        size = abs(arb(layer.start[slot])) + sum((abs(arb(w)) for w in layer.embedding[slot]), arb(0))
        moved.append(unit * sum((abs(arb(weights[n])) * reach[n] for n in np.nonzero(weights)[0]), size))
    attention, streams = reading.network.layers[1].attention, reading.sizes(reading.streams)
    sides = []
    for part in (attention.query, attention.key, attention.value):
        rows = to_exact(part)[0]
        sides.append([sum((abs(arb(row[j])) * (moved[j] + unit * streams[j]) for j in np.nonzero(row)[0]), arb(0)) for row in rows])
    q, k = reading.sizes(reading.query), reading.sizes(reading.key)
    logits = sum((a * f + b * e + e * f for a, b, e, f in zip(q, k, sides[0], sides[1], strict=True)), arb(0))
    return logits, sides[2]


def evaluation_rounding(reading: PointsReading) -> arb:
    """Rounding of the fast executor: tokens that are no floats, the first layer, logits, softmax, read-out."""
    network, arithmetic, target = reading.network, Arithmetic(reading.network.dtype), reading.target
    first, second = network.layers
    point = ONE if target.points is None else Rounded(arb(1), 2 * arithmetic.unit)
    token = [ONE, *[point] * target.space, ONE]
    embedded = [arithmetic.dot([*row, b], token) for row, b in zip(reading.layer.embedding, reading.layer.start, strict=True)]
    inner, bias = to_exact(first.feedforward.inner), to_exact(first.feedforward.bias)
    hidden = [arithmetic.dot([*row, c], [*embedded, ONE]) for row, c in zip(inner, bias, strict=True)]
    stream = []
    for size, outer, given in zip(reading.sizes(reading.streams), reading.layer.outer, embedded, strict=True):
        stream.append(arithmetic.plus(given, arithmetic.dot(list(outer), hidden), size) if np.any(outer) else given)
    attention = second.attention
    q, k, v = (
        [arithmetic.dot(list(row), stream) for row in to_exact(part)[0]] for part in (attention.query, attention.key, attention.value)
    )
    logits = arithmetic.inner(q, k, _largest_logit(reading))
    means = [
        arithmetic.softmax_mean(logits, value, spread, target.length)
        for value, spread in zip(v, reading.spreads(reading.value), strict=True)
    ]
    answered = []
    for row, given in zip(to_exact(attention.output)[0], stream, strict=True):
        if not np.any(row):
            answered.append(given)
            continue
        written = arithmetic.dot(list(row), means)
        answered.append(arithmetic.plus(given, written, given.magnitude + written.magnitude))
    # slots that cancel in exact arithmetic, so that the read-out does not see them, still bring their rounding
    moved = sum((_weight(reading, j) * slot.error for j, slot in enumerate(answered)), arb(0))
    return (moved + readout_rounding(arithmetic, second.feedforward, answered)).upper()


def _largest_logit(reading: PointsReading) -> arb:
    """sup |ρ̂|."""
    found = logits_of(reading)
    with np.errstate(all="ignore"):
        largest = largest_sum(found.values) + found.blocks * (found.error + ROUNDED * float(np.abs(found.values).max(initial=0.0)))
    return arb(largest) * (1 + arb(ROUNDED)) if np.isfinite(largest) else arb.pos_inf()


def _weight(reading: PointsReading, slot: int) -> arb:
    """Lipschitz constant of the last feed-forward network in a slot: Σ_n |outer_n inner_n|."""
    ffn = reading.network.layers[1].feedforward
    total = sum((abs(a * row[slot]) for a, row in zip(to_exact(ffn.outer)[0], to_exact(ffn.inner), strict=True)), ZERO)
    return arb(total)


def worst_sequence(network: Transformer, target: PointsTarget) -> np.ndarray:
    """Tokens (N, d + 1) with the largest error found."""
    with working_precision(BITS):
        return target.array_of(_witness(read(network, target))[1])


def _witness(reading: PointsReading) -> tuple[float, list[Point], int]:
    """The largest certified error among the sequences found, the points, and the position where it is made."""
    target, network = reading.target, reading.network
    best, worst, where = 0.0, list[Point](), 0
    found = _search(reading)
    answers = None if network.dtype == "exact" else run(network, found)
    if answers is not None and not np.isfinite(answers).all():
        raise Refusal(f"{network.dtype} overflows in this network: its outputs are not finite numbers", {"dtype": "exact"})
    errors = np.abs((_in_floats(reading)(found) if answers is None else answers.astype(float)) - target.values(np)(found))
    for sequence, position in zip(range(len(found)), errors.argmax(axis=1), strict=True):
        points = target.exact_points(found[sequence])
        output = reading.at(points, int(position)) if answers is None else arb(float(answers[sequence, position]))
        error = lower(abs(output - target.at(points, int(position))))
        if error > best or not worst:
            best, worst, where = max(error, 0.0), points, int(position)
    return best, worst, where


def _search(reading: PointsReading) -> np.ndarray:
    """Sequences that look worst in floats: tokens move one after the other to the best of some points."""
    target, rng = reading.target, np.random.default_rng(0)
    wanted, network = target.values(np), _in_floats(reading)
    dtype = "float64" if reading.network.dtype == "exact" else reading.network.dtype

    def errors(tokens: np.ndarray) -> np.ndarray:
        with np.errstate(all="ignore"):
            return np.nan_to_num(np.abs(network(tokens) - wanted(tokens)).max(axis=-1), nan=0.0, posinf=0.0)

    def drawn(count: int) -> np.ndarray:  # on a box corners, too, and numbers that the type can hold
        tokens = target.draw(rng, (count, target.length))
        if target.points is None:
            tokens[::3, :, 1:] = np.round(tokens[::3, :, 1:])
            tokens = tokens.astype(dtype).astype(float)
        return tokens

    found = drawn(STARTS)
    for _, s in itertools.product(range(SWEEPS), range(target.length)):
        tried = np.repeat(found[:, None], TRIED, axis=1)
        tried[:, 1:, s] = drawn(STARTS * (TRIED - 1))[:, s].reshape(STARTS, TRIED - 1, -1)
        scores = errors(tried.reshape(STARTS * TRIED, target.length, -1)).reshape(STARTS, TRIED)
        found = tried[np.arange(STARTS), scores.argmax(axis=1)]
    return found[np.argsort(-errors(found))[:CANDIDATES]]


def _in_floats(reading: PointsReading) -> Callable[[np.ndarray], np.ndarray]:
    """The network in float64, tokens (batch, N, d + 1) → (batch, N): for the search only."""
    layer, attention = reading.layer, reading.network.layers[1].attention
    arrays = (layer.embedding, layer.start, layer.inner, layer.bias, layer.outer)
    embedding, start, inner, bias, outer = (to_float(part, "float64") for part in arrays)
    query, key, value = (to_float(to_exact(part)[0], "float64") for part in (attention.query, attention.key, attention.value))
    rows = np.array([[nearest(w) for w in neuron.row] for neuron in reading.readout])
    offsets, weights = (np.array([nearest(getattr(neuron, name)) for neuron in reading.readout]) for name in ("bias", "outer"))

    def outputs(tokens: np.ndarray) -> np.ndarray:
        stream = tokens @ embedding.T + start + np.maximum(tokens @ inner.T + bias, 0) @ outer.T
        logits = (stream @ query.T) @ np.swapaxes(stream @ key.T, -1, -2)
        masses = np.exp(logits - logits.max(axis=-1, keepdims=True))
        means = masses @ (stream @ value.T) / masses.sum(axis=-1, keepdims=True)
        result: np.ndarray = np.maximum(means @ rows.T + offsets, 0) @ weights
        return result

    return outputs


def _show(points: list[Point], position: int) -> str:
    """The sequence, exactly, and who asks; long ones are cut."""
    shown = [f"({', '.join(map(to_text, point))})" for point in points[:SHOWN]]
    return f"position {position + 1} of the points {', '.join(shown)}{', …' if len(points) > SHOWN else ''}"
