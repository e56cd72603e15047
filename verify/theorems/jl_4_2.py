"""The certificate of Theorem 4.2 of Jiang & Li: from stored weights to witness ≤ certified ≤ bound.

Everything that layer 1 writes is piecewise linear in the token. `Reading` evaluates it in rational arithmetic at the kinks of all neurons:
logits ρ̂(u, v) are bilinear on the cells between them, values f̂ and the read-out F̂ are piecewise linear. Then

    |H_t − Ĥ_t| ≤ Lip(F) (tanh(δ/2) (max f − min f) + ‖f − f̂‖) + ‖F − F̂‖                                              (certified)

with δ = sup_u ½ osc_v (ρ − ρ̂): the largest over rows of corners, plus the interpolation error of ρ on the cells
(`analyzer.numbers.piecewise`). It holds for any number of tokens. Float networks are read as the rationals that they store, and the
rounding of the fast executor on τ tokens is added (`verify.chain.rounding`), carried through the read-out by its own slope.

The bound is the theorem's at the knots found in the weights, for the rank and the singular functions of the target
(`analyzer.lemmas.low_rank`).

The witness is the error at an explicit sequence found by search and evaluated in balls, or, for float networks, of the output that the
executor really gives. Means over random tokens are sampled, and called so.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.lemmas.low_rank import Averages, averages, budget
from analyzer.limits.coupling_rank import best_error
from analyzer.numbers.exact import lower, nearest, rational, to_text, upper, working_precision
from analyzer.numbers.piecewise import Neurons, distance
from analyzer.targets.coupling import BITS, CouplingTarget, SineCoupling, floats, grid_error, softmax_mean
from analyzer.theorems.jl_4_2 import COUPLING_LEMMA, ID, READ_OUT, VALUES_LEMMA, proof_graph
from constructions.network.transformer import Transformer, to_exact
from constructions.run.execute import run
from verify.chain.certificate import Certificate, better_than_constant, finite, matched
from verify.chain.rounding import ONE, Arithmetic, readout_rounding
from verify.theorems.worst_sequences import search

SAMPLES = 10_000
"""Random sequences whose errors are averaged; fewer for long ones."""
SAMPLED_WORK = 2**26
"""Pairs of tokens that sampling may cost, four sequences at the least."""
AT_ONCE = 2**23
"""Numbers that one piece of the sample may hold: 64 MB, of which a formula keeps several."""
CANDIDATES = 8
"""Sequences from the search that are evaluated in balls."""
MAX_CORNERS = 2**24
"""Pairs of kinks at which the coupling is compared; more are taken for damage."""
ZERO, UNIT_END = fmpq(0), fmpq(1)


@dataclass(frozen=True, eq=False)
class Reading:
    """A stored network as functions of tokens: rows of `query` and `key` (m, kinks), `value` (kinks), and the read-out's neurons."""

    network: Transformer
    knots: tuple[fmpq, ...]
    slots: np.ndarray  # (D, kinks): the residual stream after layer 1
    query: np.ndarray  # (m, kinks)
    key: np.ndarray
    value: list[fmpq]
    readout: Neurons
    outer: list[fmpq]
    faults: tuple[str, ...]

    @cached_property
    def answers(self) -> tuple[list[fmpq], list[fmpq]]:
        """Kinks of F̂ on the hull of the values, and F̂ there."""
        low, high = min(self.value), max(self.value)
        knots = self.readout.kinks(low, high) if low < high else [low]
        return knots, self.readout.values(self.outer, knots, ZERO, ZERO)

    @cached_property
    def logits(self) -> tuple[np.ndarray, float]:
        """ρ̂ at the corners, with a bound of the error of these floats: rounded factors, a sum of m products, underflow."""
        (left, e_left), (right, e_right) = (floats([[arb(v) for v in row] for row in part]) for part in (self.query, self.key))
        sizes = [float(np.abs(part).max(initial=0.0)) for part in (left, right)]
        terms, unit, least = len(left), 2.0**-53, 2.0**-1022
        error = 2 * terms * (sizes[0] * e_right + sizes[1] * e_left + 2 * (terms + 1) * unit * sizes[0] * sizes[1] + 8 * least)
        with np.errstate(all="ignore"):  # what overflows has an infinite error
            return left.T @ right, error

    def at(self, tokens: Sequence[fmpq], position: int) -> arb:
        """Ĥ_t for exact tokens, in balls."""
        query, row = self._blend(self.query, self._place(tokens[position])), np.array([self.value], dtype=object)
        seen: dict[fmpq, tuple[arb, arb]] = {}
        for x in dict.fromkeys(tokens):  # long sequences repeat tokens
            place = self._place(x)
            logit = sum((a * b for a, b in zip(query, self._blend(self.key, place), strict=True)), ZERO)
            seen[x] = arb(logit), arb(self._blend(row, place)[0])
        y = softmax_mean([seen[x][0] for x in tokens], [seen[x][1] for x in tokens])
        neurons = zip(self.readout.inner, self.readout.bias, self.outer, strict=True)
        return sum((arb(a) * (arb(b) * y + arb(c)).max(arb(0)) for b, c, a in neurons), arb(0))

    def _place(self, x: fmpq) -> tuple[int, fmpq]:
        k = min(int(np.searchsorted(self._floats, float(arb(x)), side="right")) - 1, len(self.knots) - 2)
        while k > 0 and x < self.knots[k]:
            k -= 1
        while k < len(self.knots) - 2 and x > self.knots[k + 1]:
            k += 1
        k = max(k, 0)
        return k, (x - self.knots[k]) / (self.knots[k + 1] - self.knots[k])

    @cached_property
    def _floats(self) -> np.ndarray:
        return np.array([float(arb(x)) for x in self.knots])

    @staticmethod
    def _blend(rows: np.ndarray, place: tuple[int, fmpq]) -> np.ndarray:
        k, share = place
        return rows[:, k] * (1 - share) + rows[:, k + 1] * share

    def error_function(self, target: CouplingTarget) -> Any:
        """|H − Ĥ| in the first position as a JAX function of tokens (…, τ): floats, for the search only."""
        first = target.compiled(jnp, slice(0, 1))
        knots = self._floats
        query, key, value = (_float_rows(part) for part in (self.query, self.key, np.array([self.value], dtype=object)))
        ys, answers = (np.array([float(arb(v)) for v in part]) for part in self.answers)

        def interpolate(rows: np.ndarray, x: Any) -> Any:
            place = jnp.clip(jnp.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
            start = jnp.asarray(knots)[place]
            share = ((x - start) / (jnp.asarray(knots)[place + 1] - start))[..., None]
            table = jnp.asarray(rows.T)
            return table[place] * (1 - share) + table[place + 1] * share

        def error(x: Any) -> Any:
            logits = (interpolate(query, x[..., :1]) * interpolate(key, x)).sum(-1)
            weights = jnp.exp(logits - logits.max(axis=-1, keepdims=True))
            y = (weights * interpolate(value, x)[..., 0]).sum(-1) / weights.sum(-1)
            output = jnp.interp(y, ys, answers) if len(ys) > 1 else answers[0] + 0 * y
            return jnp.abs(output - first(x)[..., 0])

        return error


def _float_rows(rows: np.ndarray) -> np.ndarray:
    return np.array([[float(arb(v)) for v in row] for row in rows]).reshape(rows.shape)


def read(network: Transformer) -> Reading:
    """The functions that a stored network computes; refused unless it has the shape of the theorem's."""
    attention = network.layers[-1].attention
    whole = [
        layer.attention.kind == "dp" and layer.attention.window == "full" and layer.attention.rpe == ("none",) for layer in network.layers
    ]
    if len(network.layers) != 2 or not all(whole) or network.dim != 1 or attention.value.shape[1] != 1:
        raise InputError("not a network of theorem 4.2: two layers, one head over all tokens, tokens and values of dimension 1")
    first = network.layers[0]
    faults = []
    silenced = (first.attention.value, first.attention.output, first.attention.query, first.attention.key)
    if any(np.any(to_exact(part)) for part in silenced):  # one zero factor does not silence floats: 0 times infinity is not 0
        faults.append("the first layer's attention is not off: its splines need not be functions of one token")
    if any(layer.feedforward.precision for layer in network.layers):
        faults.append("a feed-forward network rounds its outputs, which theorem 4.2 does not know")
    embedding, bias = to_exact(network.embedding)[:, 0], to_exact(network.bias)
    inner = to_exact(first.feedforward.inner)
    neurons = Neurons(
        [_dot(row, embedding) for row in inner],
        [_dot(row, bias) + c for row, c in zip(inner, to_exact(first.feedforward.bias), strict=True)],
    )
    knots = tuple(neurons.kinks(ZERO, UNIT_END))
    if len(knots) ** 2 > MAX_CORNERS:
        raise InputError(f"the first layer bends at {len(knots)} places: more pairs than are compared")
    rows = zip(to_exact(first.feedforward.outer), embedding, bias, strict=True)
    slots = _table([neurons.values(outer, knots, slope, offset) for outer, slope, offset in rows])
    query, key, value = (_combined(to_exact(part)[0], slots) for part in (attention.query, attention.key, attention.value))
    ffn = network.layers[1].feedforward
    write = to_exact(attention.output)[0, :, 0]
    last = to_exact(ffn.inner)
    if any(any(v != 0 for v in row) for row in _combined(last, slots)):
        faults.append("the read-out sees the token beside the answer slot: theorem 4.2 has no residual")
    readout = Neurons([_dot(row, write) for row in last], list(to_exact(ffn.bias)))
    return Reading(network, knots, slots, query, key, list(value[0]), readout, list(to_exact(ffn.outer)[0]), tuple(faults))


def _dot(left: Iterable[fmpq], right: Iterable[fmpq]) -> fmpq:
    return sum((a * b for a, b in zip(left, right, strict=True) if a != 0 and b != 0), ZERO)


def _table(rows: list[list[fmpq]]) -> np.ndarray:
    result = np.empty((len(rows), len(rows[0])), dtype=object)
    for k, row in enumerate(rows):
        result[k] = row
    return result


def _combined(weights: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """weights @ slots, most weights being zero."""
    result = np.empty((len(weights), slots.shape[1]), dtype=object)
    result.fill(ZERO)
    for k, row in enumerate(weights):
        for j in np.nonzero(row)[0]:
            result[k] = result[k] + slots[j] * row[j]
    return result


def output_at(network: Transformer, target: CouplingTarget, tokens: np.ndarray, t: int) -> arb:
    """The output at token t of (τ, 1), in balls."""
    return read(network).at([rational(float(v)) for v in tokens[:, 0]], t)


def verify(network: Transformer, target: CouplingTarget, bank: str, ffn: str) -> Certificate:
    """Certify a stored network against Theorem 4.2 for a target; `bank` says whose singular functions it claims to use."""
    start = time.perf_counter()
    reading = read(network)
    with working_precision(BITS):
        delta, pairs = coupling_error(reading, target)
        values = distance(target.f.at, lambda x: target.f.taylor(0, 2, x), reading.knots, reading.value)
        ys, answers = reading.answers
        readout = _readout_error(target, ys, answers)
        hull = arb(min(reading.value)).union(arb(max(reading.value))).union(arb(target.value_range[0])).union(arb(target.value_range[1]))
        slope = target.slope(hull.lower(), hull.upper())
        turned = (delta / 2).tanh() * target.oscillation
        exact = slope * (turned + values) + readout
        rounding = arb(0) if network.dtype == "exact" else evaluation_rounding(reading, target.length)
        promised = budget(target, bank, max(1, len(reading.query)), reading.knots, _promised_knots(ys), network.dtype)
        bound = promised.total + rounding
        witness, worst = _witness(reading, target, pairs)
        trivial = target.constant_error()
    means = averages(target, promised, bank, max(1, len(reading.query)), reading.knots)
    measured = {
        COUPLING_LEMMA: (delta, promised.coupling),
        VALUES_LEMMA: (values, promised.values),
        READ_OUT: (readout, promised.readout),
    }
    certified = upper(exact + rounding)
    details = {
        "rank": len(reading.query),
        "pod": bank,
        "length": target.length,
        "ratio": witness / certified if certified > 0 else 1.0,
        "tail": finite(upper(promised.tail)),
        "limit": lower(best_error(target.coupling, len(reading.query))),
        "sampled": _sampled(reading, target, means),
    }
    return Certificate(
        theorem=ID,
        witness=witness,
        witness_input=_show(worst),
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


def _promised_knots(ys: Sequence[fmpq]) -> Sequence[fmpq]:
    return ys if len(ys) > 1 else (ys[0], ys[0] + 1)


def coupling_error(reading: Reading, target: CouplingTarget) -> tuple[arb, np.ndarray]:
    """δ = sup_u ½ osc_v (ρ − ρ̂) from above, and the queries (u, v, w) of the rows with the largest oscillation."""
    coupling, e_coupling = target.coupling.grid(reading.knots, reading.knots)
    logits, e_logits = reading.logits
    with np.errstate(all="ignore"):  # infinite logits make an infinite error
        gap = coupling - logits
        high, low = gap.max(axis=1), gap.min(axis=1)
        spread = high - low
    rows = np.argsort(-spread)[:CANDIDATES]
    xs = reading._floats
    pairs = np.stack([xs[rows], xs[gap[rows].argmin(axis=1)], xs[gap[rows].argmax(axis=1)]], axis=1)
    subtraction = arb(2.0**-52) * arb(float(np.abs(gap).max()))
    corners = arb(float(spread.max())) / 2
    return corners + subtraction + arb(e_coupling) + arb(e_logits) + grid_error(target.coupling, reading.knots, reading.knots), pairs


def _readout_error(target: CouplingTarget, ys: Sequence[fmpq], answers: Sequence[fmpq]) -> arb:
    """sup |F − F̂| on the hull of the values."""
    if len(ys) == 1:
        return abs(target.F.at(ys[0]) - arb(answers[0])).upper()
    return distance(target.F.at, lambda y: target.F.taylor(0, 2, y), ys, answers)


def evaluation_rounding(reading: Reading, length: int) -> arb:
    """Rounding of the fast executor on `length` tokens: splines, logits, softmax, read-out."""
    network, arithmetic = reading.network, Arithmetic(reading.network.dtype)
    first, second = network.layers
    embedded = [
        arithmetic.dot([*row, b], [ONE] * (len(row) + 1))
        for row, b in zip(to_exact(network.embedding), to_exact(network.bias), strict=True)
    ]
    inner, bias = to_exact(first.feedforward.inner), to_exact(first.feedforward.bias)
    hidden = [arithmetic.dot([*row, c], [*embedded, ONE]) for row, c in zip(inner, bias, strict=True)]
    stream = []
    for slot, outer, given in zip(reading.slots, to_exact(first.feedforward.outer), embedded, strict=True):
        size = arb(max(abs(v) for v in slot))
        stream.append(arithmetic.plus(given, arithmetic.dot(list(outer), hidden), size) if np.any(outer) else given)
    attention = second.attention
    q, k, v = (
        [arithmetic.dot(list(row), stream) for row in to_exact(part)[0]] for part in (attention.query, attention.key, attention.value)
    )
    largest = arb(float(np.abs(reading.logits[0]).max(initial=0.0))) + arb(reading.logits[1])
    spread = arb(max(reading.value) - min(reading.value))
    mean = arithmetic.softmax_mean(arithmetic.inner(q, k, largest), v[0], spread, length)
    rows = to_exact(attention.output)[0]
    answered = [
        arithmetic.plus(given, arithmetic.dot(list(row), [mean]), given.magnitude + abs(arb(row[0])) * mean.magnitude)
        if row[0] != 0
        else given
        for row, given in zip(rows, stream, strict=True)
    ]
    # slots that cancel in exact arithmetic, so that the read-out does not see them, still bring their rounding
    moved = sum((arb(_weight(reading, j)) * slot.error for j, slot in enumerate(answered)), arb(0))
    return (moved + readout_rounding(arithmetic, second.feedforward, answered)).upper()


def _weight(reading: Reading, slot: int) -> fmpq:
    """Lipschitz constant of the last feed-forward network in a slot: Σ_n |outer_n inner_n|."""
    ffn = reading.network.layers[1].feedforward
    return sum((abs(a * row[slot]) for a, row in zip(to_exact(ffn.outer)[0], to_exact(ffn.inner), strict=True)), ZERO)


def worst_sequence(network: Transformer, target: CouplingTarget) -> np.ndarray:
    """Tokens (τ, 1) with the largest error found, which is that of the first of them."""
    reading = read(network)
    with working_precision(BITS):
        tokens = _witness(reading, target, coupling_error(reading, target)[1])[1]
    return np.array([[nearest(v)] for v in tokens])


def _witness(reading: Reading, target: CouplingTarget, pairs: np.ndarray) -> tuple[float, list[fmpq]]:
    """The largest certified error among the sequences found, and the sequence."""
    found = search(reading.error_function(target), target.length, pairs)[:CANDIDATES]
    dtype = reading.network.dtype
    found = found.astype("float64" if dtype == "exact" else dtype)
    answers = None if dtype == "exact" else run(reading.network, found[..., None])
    if answers is not None and not np.isfinite(answers).all():
        raise Refusal(f"{dtype} overflows in this network: its outputs are not finite numbers", {"dtype": "exact"})
    best, worst = 0.0, list[fmpq]()
    for k, sequence in enumerate(found):
        tokens = [rational(float(v)) for v in sequence]
        output = reading.at(tokens, 0) if answers is None else arb(float(answers[k, 0]))
        error = lower(abs(output - target.at(tokens, 0)))
        if error > best or not worst:
            best, worst = max(error, 0.0), tokens
    return best, worst


def _show(tokens: list[fmpq]) -> str:
    """The sequence, exactly, the first token asking; long ones are cut."""
    text = ", ".join(to_text(v) for v in tokens[:64])
    return f"first of the tokens {text}{', …' if len(tokens) > 64 else ''}"


def random_tokens(target: CouplingTarget, count: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Independent uniform tokens (count, τ) that the type can hold."""
    x = np.random.default_rng(seed).random((count, target.length))
    return x if dtype == "exact" else x.astype(dtype).astype(float)


def outputs(network: Transformer, tokens: np.ndarray) -> np.ndarray:
    """What the network gives when it really runs, in pieces that fit into memory."""
    neurons = max(int(layer.feedforward.inner.shape[0]) for layer in network.layers)
    return _in_pieces(lambda x: run(network, x[..., None]).astype(float), tokens, neurons)


def wanted(target: CouplingTarget, tokens: np.ndarray) -> np.ndarray:
    """H in float64."""
    return _in_pieces(
        target.compiled(np), tokens, max(target.length, target.coupling.rank if isinstance(target.coupling, SineCoupling) else 1)
    )


def _in_pieces(function: Callable[[np.ndarray], np.ndarray], tokens: np.ndarray, cost: int) -> np.ndarray:
    """Apply a function that needs `cost` numbers per token to some sequences at a time."""
    chunk = max(1, AT_ONCE // (tokens.shape[1] * max(cost, tokens.shape[1])))
    return np.concatenate([function(tokens[k : k + chunk]) for k in range(0, len(tokens), chunk)])


def sample_count(target: CouplingTarget) -> int:
    """Sequences that are sampled: `SAMPLES`, or as many as make 2^26 pairs of tokens."""
    return int(np.clip(SAMPLED_WORK // target.length**2, 4, SAMPLES))


def _sampled(reading: Reading, target: CouplingTarget, means: Averages) -> dict[str, Any]:
    """Means over random sequences beside what the repaired theorem promises for them."""
    count = sample_count(target)
    tokens = random_tokens(target, count, reading.network.dtype)
    with np.errstate(all="ignore"):  # what overflows here is shown as no number
        errors = np.abs(outputs(reading.network, tokens) - wanted(target, tokens))
        per_sequence = errors.mean(axis=1)
        numbers = {
            "worst": float(errors.max()),
            "l1": float(per_sequence.mean()),
            "l1_standard_error": float(per_sequence.std() / np.sqrt(count)),
            "l1_bound": upper(means.l1),
            "mean_square": float((errors**2).mean()),
            "mean_square_bound": upper(means.root_mean_square**2),
            "diagonal": upper(means.diagonal),
            "off_diagonal": upper(means.off_diagonal),
        }
    return {"sequences": count, "seed": 0, **{name: finite(value) for name, value in numbers.items()}}
