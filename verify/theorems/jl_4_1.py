"""The certificate of Theorem 4.1 of Jiang & Li on finite alphabets: all sequences, from the stored weights.

A token is one of NA pairs, so all that layer 1 writes is a finite table, computed in rational arithmetic. The head has neither queries
nor keys: its softmax weighs all tokens alike, and what neuron n of the read-out sees of a sequence is a sum over positions,

    row_n·mean + c_n = Σ_s g_n(s, x_s) + c_n,        g_n(s, a) = row_n·v(s, a)/N.

Neurons that share a row share their sums. For every row the sums of all A^N sequences are formed, and the read-out, piecewise linear in
a sum, is evaluated at all of them at once. The largest |Ĥ − H| is not a bound but the maximum itself, and the sequence where it is
attained is the witness. Float networks are read as the rationals that they store, at letters rounded to their type; the rounding of the
executor is added (`verify.chain.rounding`), and the witness is an output that was really run.

The bound is (R.1) for the network that the theorem writes down for the target.
"""

import time
from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.lemmas.sequence_codes import Code, code_of
from analyzer.numbers.exact import UNIT, lower, maximum, nearest, rational, upper, working_precision
from analyzer.numbers.piecewise import Neurons
from analyzer.targets.sequence import BITS, SequenceTarget
from analyzer.theorems.jl_4_1 import CODE_LEMMA, ID, TABLE_LEMMA, proof_graph
from constructions.network.transformer import Transformer, to_exact
from constructions.run.execute import run
from constructions.theorems.jl_4_1 import assemble
from verify.chain.certificate import Certificate, matched
from verify.chain.rounding import ONE, Arithmetic, Rounded

CANDIDATES = 64
"""Sequences of a float network that are run in search of a witness: those where its stored weights err most."""
ZERO = fmpq(0)
Row = tuple[fmpq, ...]


@dataclass(frozen=True, eq=False)
class WordReading:
    """A stored network on the tokens of a target: its stream after layer 1, and its neurons by the row that they read."""

    network: Transformer
    target: SequenceTarget
    stream: list[list[Row]]
    """The residual stream after layer 1, by position and letter."""
    faults: tuple[str, ...]

    @property
    def tokens(self) -> list[Row]:
        """Positions and letters as the network's type holds them."""
        dtype = self.network.dtype
        return [(held(place, dtype), held(letter, dtype)) for place in self.target.positions for letter in self.target.symbols]

    @cached_property
    def values(self) -> list[list[Row]]:
        """W_V of the stream."""
        rows = to_exact(self.network.layers[1].attention.value)[0]
        return [[_times(rows, token) for token in row] for row in self.stream]

    @cached_property
    def neurons(self) -> dict[Row, list[int]]:
        """Neurons of the read-out by what they read of the answers, B_n W_O; the row of zeros belongs to constants."""
        attention, ffn = self.network.layers[1].attention, self.network.layers[1].feedforward
        columns = to_exact(attention.output)[0].T
        found: dict[Row, list[int]] = defaultdict(list)
        for n, row in enumerate(to_exact(ffn.inner)):
            found[_times(columns, row)].append(n)
        return found

    def sums(self, row: Row) -> list[fmpq]:
        """row·mean for every sequence, in the order of `SequenceTarget.words`."""
        found = [ZERO]
        for letters in self.values:
            parts = [_dot(row, value) / len(self.values) for value in letters]
            found = [total + part for total in found for part in parts]
        return found

    def answers(self, row: Row, sums: list[fmpq]) -> list[fmpq]:
        """What the neurons of a row add to the output, at these sums."""
        ffn, members = self.network.layers[1].feedforward, self.neurons[row]
        bias, outer = to_exact(ffn.bias), to_exact(ffn.outer)[0]
        neurons = Neurons([fmpq(1)] * len(members), [bias[n] for n in members])
        knots = sorted({*neurons.kinks(min(sums), max(sums)), *sums})
        at = dict(zip(knots, neurons.values([outer[n] for n in members], knots, ZERO, ZERO), strict=True))
        return [at[value] for value in sums]

    @property
    def constant(self) -> fmpq:
        """What neurons add that read nothing."""
        ffn = self.network.layers[1].feedforward
        members = [n for row, held in self.neurons.items() if not any(row) for n in held]
        return sum((to_exact(ffn.outer)[0, n] * max(to_exact(ffn.bias)[n], ZERO) for n in members), ZERO)

    def outputs(self, codes: list[fmpq] | None = None) -> list[fmpq]:
        """The output for every sequence; with `codes` as if every row read these numbers."""
        total = [self.constant] * len(self.target.table)
        for row in self.neurons:
            if any(row):
                total = [a + b for a, b in zip(total, self.answers(row, codes or self.sums(row)), strict=True)]
        return total

    def code_error(self, codes: list[fmpq]) -> fmpq:
        """How far what is read is from the code, at most."""
        rows = [row for row in self.neurons if any(row)]
        return max((abs(a - b) for row in rows for a, b in zip(self.sums(row), codes, strict=True)), default=max(codes))


def _dot(left: Row, right: Row) -> fmpq:
    return sum((a * b for a, b in zip(left, right, strict=True) if a != 0 and b != 0), ZERO)


def _times(rows: np.ndarray, vector: Row | np.ndarray) -> Row:
    """A matrix times a vector, most entries being zero."""
    used = [j for j, v in enumerate(vector) if v != 0]
    return tuple(sum((row[j] * vector[j] for j in used if row[j] != 0), ZERO) for row in rows)


def held(value: fmpq, dtype: str) -> fmpq:
    """A coordinate of a token as a type holds it."""
    return value if dtype == "exact" else rational(float(np.dtype(dtype).type(nearest(value))))


def read(network: Transformer, target: SequenceTarget) -> WordReading:
    """The network on the tokens of a target; refused unless it has the shape of the theorem's."""
    attentions = [layer.attention for layer in network.layers]
    whole = [one.kind == "dp" and one.window == "full" and one.rpe == ("none",) for one in attentions]
    if len(attentions) != 2 or not all(whole) or network.dim != target.dim or network.outputs != 1:
        raise InputError("not a network of theorem 4.1: two layers, one head over all tokens, tokens of a position and a letter")
    faults = []
    silenced = (attentions[0].value, attentions[0].output, attentions[0].query, attentions[0].key)
    if any(np.any(to_exact(part)) for part in silenced):
        faults.append("the first layer's attention is not off: its values need not be functions of one token")
    if any(np.any(to_exact(part)) for part in (attentions[1].query, attentions[1].key)):
        faults.append("the head compares tokens: theorem 4.1 weighs all of them alike")
    if any(layer.feedforward.precision for layer in network.layers):
        faults.append("a feed-forward network rounds its outputs, which theorem 4.1 does not know")
    embedding, bias, ffn = to_exact(network.embedding), to_exact(network.bias), network.layers[0].feedforward
    inner, shift, outer = to_exact(ffn.inner), to_exact(ffn.bias), to_exact(ffn.outer)
    stream = []
    for place in target.positions:
        stream.append(list[Row]())
        for letter in target.symbols:
            token = (held(place, network.dtype), held(letter, network.dtype))
            given = tuple(a + b for a, b in zip(_times(embedding, token), bias, strict=True))
            hidden = tuple(max(a + b, ZERO) for a, b in zip(_times(inner, given), shift, strict=True))
            stream[-1].append(tuple(a + b for a, b in zip(given, _times(outer, hidden), strict=True)))
    written = {j for row in stream for token in row for j, value in enumerate(token) if value != 0}
    if np.any(to_exact(network.layers[1].feedforward.inner)[:, sorted(written)]):
        faults.append("the read-out sees the token beside the answers: theorem 4.1 has no residual")
    return WordReading(network, target, stream, tuple(faults))


def promised(code: Code, values: str, dtype: str) -> tuple[arb, arb]:
    """(δ, the table's part of (R.1)) for the theorem's own network; δ holds the rounding of the row that reads the code."""
    network, unit = assemble(code, values), arb(0) if dtype == "exact" else arb(UNIT[dtype])
    first, last = (layer.feedforward for layer in network.layers)
    knots = [-b for b in first.bias]
    places = [*knots, ZERO]
    spread = arb(max(places) - min(places) + code.target.symbols[-1] - code.target.symbols[0] + 4)
    count = (len(network.bias) - 1) // 2
    readers = last.inner[-1, 1 + count :]
    delta = arb(0)
    for r in range(count):
        moved = sum((abs(arb(d)) * unit * (spread + abs(arb(z)) + 1) for d, z in zip(first.outer[1 + r], knots, strict=True)), arb(0))
        delta += abs(arb(readers[r])) * (moved + unit * abs(arb(network.bias[1 + r])))
    largest = arb(code.largest)
    delta = delta * (1 + unit) ** 2 + unit * largest * (1 + unit)
    first_value = abs(arb(next(iter(code.table.values()))))
    return delta, code.target.table_error + 3 * unit * largest * code.bend + unit * first_value


def evaluation_rounding(reading: WordReading) -> arb:
    """Rounding of the fast executor: values, the mean of N of them, the answers, the read-out.

    Letters and codes are short dyadic numbers: where all products of a sum are multiples of 2^{−k} and add up to at most 2^{p−k}, p bits of
    the type, every order of summation is exact. Then the quotient by N is the first rounding that occurs.
    """
    network, arithmetic = reading.network, Arithmetic(reading.network.dtype)
    means = _means(reading, arithmetic, _values(reading, arithmetic))
    second = network.layers[1]
    outputs, ffn = to_exact(second.attention.output)[0], second.feedforward
    answered = [arithmetic.dot(list(row), means) if np.any(row) else Rounded(arb(0), arb(0)) for row in outputs]
    most = {row: max(reading.sums(row)) if any(row) else ZERO for row in reading.neurons}
    hidden: dict[int, Rounded] = {}
    inner, bias = to_exact(ffn.inner), to_exact(ffn.bias)
    for row, members in reading.neurons.items():
        for n in members:
            found = arithmetic.dot([*inner[n], bias[n]], [*answered, ONE])
            hidden[n] = Rounded(arb(max(most[row] + bias[n], ZERO)), found.error)
    return arithmetic.dot(list(to_exact(ffn.outer)[0]), [hidden[n] for n in range(len(hidden))]).error.upper()


def _values(reading: WordReading, arithmetic: Arithmetic) -> list[Rounded]:
    """The values of tokens as computed: layer 1 and W_V, exact where all sums are."""
    network, (first, second) = reading.network, reading.network.layers
    embedding, shift = to_exact(network.embedding), to_exact(network.bias)
    inner, bias, outer = (to_exact(part) for part in (first.feedforward.inner, first.feedforward.bias, first.feedforward.outer))
    rows = to_exact(second.attention.value)[0]
    sizes = [max(abs(v) for v in slot) for slot in zip(*(value for letters in reading.values for value in letters), strict=True)]
    if all(_exactly(reading, token, embedding, shift, inner, bias, outer, rows) for token in reading.tokens):
        return [Rounded(arb(size), arb(0)) for size in sizes]
    embedded = [arithmetic.dot([*row, b], [ONE] * (len(row) + 1)) for row, b in zip(embedding, shift, strict=True)]
    hidden = [arithmetic.dot([*row, c], [*embedded, ONE]) for row, c in zip(inner, bias, strict=True)]
    most = np.array([[abs(v) for v in token] for letters in reading.stream for token in letters], dtype=object).max(axis=0)
    stream = []
    for size, row, given in zip(most, outer, embedded, strict=True):
        stream.append(arithmetic.plus(given, arithmetic.dot(list(row), hidden), arb(size)) if np.any(row) else given)
    return [Rounded(arb(size), arithmetic.dot(list(row), stream).error) for size, row in zip(sizes, rows, strict=True)]


def _exactly(reading: WordReading, token: Row, *arrays: np.ndarray) -> bool:
    """Whether no operation on a token rounds, up to its values."""
    embedding, shift, inner, bias, outer, rows = arrays
    bits = {"float32": 24, "float64": 53}[reading.network.dtype]
    given = tuple(a + b for a, b in zip(_times(embedding, token), shift, strict=True))
    hidden = tuple(max(a + b, ZERO) for a, b in zip(_times(inner, given), bias, strict=True))
    stream = tuple(a + b for a, b in zip(given, _times(outer, hidden), strict=True))
    stages = ((embedding, token, shift), (inner, given, bias), (outer, hidden, given), (rows, stream, (ZERO,) * len(rows)))
    return all(_no_rounding(row, vector, more, bits) for part, vector, added in stages for row, more in zip(part, added, strict=True))


def _no_rounding(row: Row, vector: Row, more: fmpq, bits: int) -> bool:
    """Whether Σ row·vector + more has all its terms on one grid with a sum of sizes that the type holds."""
    terms = [abs(a * b) for a, b in zip(row, vector, strict=True) if a != 0 and b != 0] + [abs(more)]
    finest = max(int(term.q) for term in terms)
    return finest < 2**64 and sum(terms, ZERO) * finest <= 2**bits


def _means(reading: WordReading, arithmetic: Arithmetic, values: list[Rounded]) -> list[Rounded]:
    """The means of N values: exact sums of them are divided by N, whose logits are 0 and whose weights are e^0 = 1 exactly."""
    length, found = reading.target.length, []
    bits = {"float32": 24, "float64": 53}[reading.network.dtype]
    for k, value in enumerate(values):
        seen = [[token[k] for token in letters] for letters in reading.values]
        ends = [sum((pick(row) for row in seen), ZERO) / length for pick in (max, min)]
        largest = arb(max(abs(end) for end in ends))
        finest = max(int(v.q) for row in seen for v in row)
        whole = sum((max(abs(v) for v in row) for row in seen), ZERO)
        if value.error == 0 and finest < 2**64 and whole * finest <= 2**bits:
            found.append(arithmetic.checked(Rounded(largest, arithmetic.unit * largest + arithmetic.tiny)))
        else:
            spread = arb(max(map(max, seen)) - min(map(min, seen)))
            mean = arithmetic.softmax_mean(Rounded(arb(0), arb(0)), value, spread, length)
            found.append(Rounded(largest, mean.error))
    return found


def verify(network: Transformer, target: SequenceTarget, bank: str, ffn: str) -> Certificate:
    """Certify a stored network against Theorem 4.1 for a target; `bank` says which value code it claims to use."""
    start = time.perf_counter()
    if bank not in ("scalar", "one-hot"):
        raise InputError(f"theorem 4.1 has the value codes scalar and one-hot, not {str(bank)[:40]!r}")
    reading, code = read(network, target), code_of(target)
    with working_precision(BITS):
        delta, table = promised(code, bank, network.dtype)
        codes = [fmpq(c) for c in code.of_words]
        errors = certified_errors(reading.outputs(), target)
        rounding = arb(0) if network.dtype == "exact" else evaluation_rounding(reading)
        exact = maximum(errors).upper()
        measured = {
            CODE_LEMMA: (arb(reading.code_error(codes)), delta),
            TABLE_LEMMA: (maximum(certified_errors(reading.outputs(codes), target)).upper(), table),
        }
        bound = table + code.bend * delta + rounding
        witness, worst = _witness(reading, errors)
    return Certificate(
        theorem=ID,
        witness=witness,
        witness_input=target.shown(worst),
        certified=upper(exact + rounding),
        bound=upper(bound),
        rounding=upper(rounding),
        trivial=target.constant_error(),
        least_heads=None,
        parts=matched(proof_graph("none", bank, ffn, ()), measured),
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=time.perf_counter() - start,
        faults=reading.faults,
        details={"code": bank, "reads": code.reading, "codes": len(code.table), "sequences": len(codes)},
    )


def certified_errors(outputs: list[fmpq], target: SequenceTarget) -> list[arb]:
    """|Ĥ − H| for every sequence: exact where F is rational, else with its enclosure."""
    if target.table_error == 0:
        return [arb(abs(a - b)) for a, b in zip(outputs, target.table, strict=True)]
    return [abs(arb(a) - b) for a, b in zip(outputs, target.values_in_balls, strict=True)]


def _witness(reading: WordReading, errors: list[arb]) -> tuple[float, tuple[int, ...]]:
    """The largest error that occurs and its sequence: the largest of all for exact networks, of those that were run for float ones."""
    words, dtype = reading.target.words(), reading.network.dtype
    order = sorted(range(len(words)), key=lambda k: -float(errors[k].mid()))
    if dtype == "exact":
        return max(0.0, lower(errors[order[0]])), words[order[0]]
    chosen = order[:CANDIDATES]
    given = run(reading.network, reading.target.tokens([words[k] for k in chosen]).astype(dtype))
    if not np.isfinite(given).all():
        raise Refusal(f"{dtype} overflows in this network: its outputs are not finite numbers", {"dtype": "exact"})
    best, worst = 0.0, words[chosen[0]]
    for k, row in zip(chosen, given, strict=True):
        error = max(lower(abs(arb(float(y)) - reading.target.values_in_balls[k])) for y in (row.min(), row.max()))
        if error > best:
            best, worst = error, words[k]
    return best, worst
