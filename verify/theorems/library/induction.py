"""The certificate of `analyzer.theorems.library.induction`: all sequences, from the stored weights.

1. *Layer 1*: e of every coordinate of every block, ‖κ − 1_k‖₁ with its infinite tail, and its rounding, as for fixed lags
   (`verify.chain.layer`).
2. *States.* What a position holds after layer 1 depends on its n last letters up to that noise: for every word of n letters, of which the
   earliest may be missing, and for the positions before the array, the feed-forward network is evaluated in rational arithmetic. On the box
   of the noise ν a neuron is on, off, or may be either; with those that are on the stream is U + A_on(B_on U + c_on), affine in ν, so that
   ramps that restore a letter have slope 0 exactly; what may be on or off adds its largest value.
3. *Logits* of every question with every state, exact at the centres, radii from those of the states. *hard*: the least logit of a match,
   the largest of no match, of anything, and of the past, which the hard-attention lemma turns into the share of what loses, for the
   farthest match (s* = N − n) and for the longest array without one: both shares grow with the distance. *soft*, *general*: for every
   question half the oscillation over all states of logit − wanted, which is δ of (I.2).
4. *Read-out*: with the copied value as one more noise coordinate, as in 2.

Floats: the same with radii that contain what the executor computes: dot products of n terms are off by γ_n of their sizes, logits of
near tokens by λ (`verify.chain.softmax_rounding` has the proof), far ones weigh e^{−X} instead of less. `rounding` is the difference, and
the bound is (I.1), (I.2) at the constants found in the weights plus that difference. Radii are in double precision, times 1 + 2^{−30}
after every step.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from flint import arb, fmpq, fmpq_mat

from analyzer.errors import InputError, Refusal, finer
from analyzer.lemmas.extraction import Rpe
from analyzer.lemmas.hard_attention import share
from analyzer.numbers.exact import UNIT, lower, maximum, upper, working_precision
from analyzer.targets.tasks.induction import BLANK, InductionTarget, Word
from analyzer.theorems import base
from analyzer.theorems.library import induction as theorem
from constructions.network.exponential import DEEPEST
from constructions.network.transformer import FeedForward, Layer, Transformer, to_exact, zeros
from constructions.run.execute import run
from constructions.theorems.library.induction import brought_letters, stream_of
from verify.chain.certificate import Certificate, StrangeWeights, better_than_constant, matched
from verify.chain.enclosed import OUTWARD, EnclosedArithmetic
from verify.chain.enclosed_layers import enclosed_pass
from verify.chain.layer import delivered_stream
from verify.chain.rounding import Arithmetic, exponential_error
from verify.chain.softmax_rounding import TWICE
from verify.theorems import thm_3_1
from verify.theorems.positions.table_heads import extraction_budgets

if TYPE_CHECKING:
    import networkx as nx

BITS = 256
ZERO = fmpq(0)
MATCHING = ("hard", "copy")
"""Versions that count agreeing letters, restored ones."""
LEMMAS = {"blocks": theorem.BLOCKS, "logits": theorem.LOGITS, "choice": theorem.CHOICE, "copied": theorem.READ_OUT}
RANDOM, LONGEST = 64, 256
"""Random sequences that are run for a witness, and their tokens at most: shorter arrays are admissible, too."""
LEAST_WEIGHT, LOST = fmpq(1, 2**100), arb(2) ** -200
"""Sizes of weights from below, and what radii that double precision flushes to 0 can come to in the output."""
SPARE = 1 + arb(2) ** -24
"""Radii are rounded outward in double precision: so much a certificate may exceed what it encloses."""


@dataclass(frozen=True)
class Cloud:
    """Rows of vectors: exact centres (B, D), radii in double precision."""

    centre: fmpq_mat
    radius: np.ndarray

    def rows(self, chosen: Sequence[int]) -> "Cloud":
        """Some of the vectors."""
        every = self.centre.tolist()
        return Cloud(fmpq_mat([every[i] for i in chosen]), self.radius[list(chosen)])

    @property
    def size(self) -> np.ndarray:
        """Upper bounds of absolute values."""
        return (magnitudes(self.centre) + self.radius) * OUTWARD


def magnitudes(matrix: fmpq_mat) -> np.ndarray:
    """Absolute values, rounded to double precision: off by a share that OUTWARD covers."""
    return np.array([[abs(float(arb(v))) for v in row] for row in matrix.tolist()]).reshape(matrix.nrows(), matrix.ncols())


def entries(weights: np.ndarray) -> np.ndarray:
    """Weights as rationals; refused beyond 2^±100, for what radii of six such matrices lose below the least double is then nothing."""
    exact = to_exact(weights)
    if any(weight != 0 and not LEAST_WEIGHT <= abs(weight) <= 1 / LEAST_WEIGHT for weight in exact.flat):
        raise StrangeWeights("a weight is beyond 2^100, or below 2^-100 and not 0")
    return exact


def matrix_of(weights: np.ndarray) -> fmpq_mat:
    exact = entries(weights)
    return fmpq_mat(*exact.shape, list(exact.flat))


class CloudSteps:
    """Affine maps and feed-forward networks of clouds: as the exact function of weights, or with what a float type computes as well."""

    def __init__(self, dtype: str | None) -> None:
        self.arithmetic = None if dtype is None else EnclosedArithmetic(dtype)

    def rounding(self, terms: int, sizes: np.ndarray, largest: float = 1.0) -> np.ndarray:
        """Of dot products with so many terms, whose absolute values add up to `sizes`."""
        if self.arithmetic is None:
            return np.zeros_like(sizes)
        self.checked(sizes)
        return (self.arithmetic.gamma(terms) * sizes + 4 * terms * self.arithmetic.tiny * (1 + largest)) * OUTWARD

    def checked(self, sizes: np.ndarray) -> None:
        """Refuse what may overflow where it is computed, though a 0 multiplies it: infinity times 0 is no number."""
        if self.arithmetic is not None and not (sizes < self.arithmetic.most / 4).all():
            dtype = self.arithmetic.dtype
            raise Refusal(f"{dtype} may overflow, or lose all accuracy, in this network: {sizes.max():.3g} arises", *finer(dtype))

    def linear(self, weights: fmpq_mat, x: Cloud) -> Cloud:
        """W x, row by row."""
        reach, size = magnitudes(weights), x.size
        rounded = self.rounding(weights.ncols(), size @ reach.T * OUTWARD, float(size.max() + reach.max()))
        return Cloud(x.centre * weights.transpose(), (x.radius @ reach.T + rounded) * OUTWARD)

    def scores(self, queries: Cloud, keys: Cloud) -> Cloud:
        """⟨q, k⟩ for every query (rows) and every key (columns)."""
        reach, size = magnitudes(queries.centre), keys.size
        moved = reach @ keys.radius.T + queries.radius @ size.T
        rounded = self.rounding(keys.centre.ncols() + 1, queries.size @ size.T * OUTWARD, float(queries.size.max() + size.max()))
        return Cloud(queries.centre * keys.centre.transpose(), (moved + rounded) * OUTWARD)

    def fed(self, kept: fmpq_mat, inner: fmpq_mat, bias: Sequence[fmpq], outer: fmpq_mat, u: Cloud) -> Cloud:
        """kept·u + outer·relu(inner·u + bias), row by row: affine in the noise where neurons are on, or off, on the whole box."""
        reach, size = magnitudes(inner), u.size
        before = [[v + b for v, b in zip(row, bias, strict=True)] for row in (u.centre * inner.transpose()).tolist()]
        sums = (size @ reach.T + np.array([abs(float(arb(b))) for b in bias])) * OUTWARD
        slack = self.rounding(len(reach[0]) + 1, sums, float(size.max() + reach.max()))
        ends = (u.radius @ reach.T + slack) * OUTWARD
        level = np.array([[float(arb(v)) for v in row] for row in before])
        near = ends + 2.0**-50 * np.abs(level)  # doubles stand for rationals
        on, off = level >= near, level < -near
        active = np.where(off, 0.0, (np.abs(level) + ends) * OUTWARD)
        written = fmpq_mat([[v if certain else ZERO for v, certain in zip(*pair, strict=True)] for pair in zip(before, on, strict=True)])
        weights = magnitudes(outer).T
        radius = slopes(kept, inner, outer, on, u.radius) + (np.where(on, slack, 0.0) + np.where(on | off, 0.0, active)) @ weights
        terms = int((~off).sum(axis=1).max()) + 2
        centre = u.centre * kept.transpose() + written * outer.transpose()
        sizes = (active @ weights + size @ magnitudes(kept).T) * OUTWARD
        return Cloud(centre, (radius + self.rounding(terms, sizes, float(weights.max() + active.max()))) * OUTWARD)


def slopes(kept: fmpq_mat, inner: fmpq_mat, outer: fmpq_mat, on: np.ndarray, radius: np.ndarray) -> np.ndarray:
    """Σ_j |∂ output_i/∂u_j| radius_j with the neurons that are on; derivatives in rational arithmetic."""
    result = np.zeros((len(on), outer.nrows()))
    rows, columns, known = inner.tolist(), outer.transpose().tolist(), dict[bytes, np.ndarray]()
    for b in np.nonzero(radius.any(axis=1))[0]:
        key = on[b].tobytes()
        if key not in known:
            used = np.nonzero(on[b])[0]
            slope = kept
            if len(used):
                slope = kept + fmpq_mat([columns[n] for n in used]).transpose() * fmpq_mat([rows[n] for n in used])
            known[key] = magnitudes(slope)
        result[b] = known[key] @ radius[b] * OUTWARD
    return result


def words_of(target: InductionTarget) -> list[Word]:
    """What a position can see of its n last letters, the past first: (BLANK, …)."""
    return [(BLANK,) * target.n, *((a, *block) for block in target.blocks() for a in range(target.size))]


@dataclass
class InductionReading:
    """A network read as the construction, with what does not fit."""

    network: Transformer
    target: InductionTarget
    faults: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        network, target = self.network, self.target
        self.stream, self.fixed = stream_of(target, network), brought_letters(target)
        if tuple(network.embedding.shape) != (self.stream.width, target.size) or len(network.layers) != 2 or network.outputs != 1:
            raise InputError(f"{theorem.ID} for this target has two layers, one output, and a stream of {self.stream.width} coordinates")
        head, hard = network.layers[1].attention, target.match == "hard"
        if (head.kind, head.window, head.rpe) != (("dp", "infinite", ("lin",)) if hard else ("dp", "finite", ("none",))):
            raise StrangeWeights("the second layer is not the one head that compares letters")
        if head.value.shape[1] != 1 or any(layer.feedforward.precision for layer in network.layers) or network.positions is not None:
            raise StrangeWeights("one value is copied, nothing is rounded, and positions are relative")
        if not head.query.shape[1] or not all(len(layer.feedforward.bias) for layer in network.layers):
            raise StrangeWeights("there are no queries, or no neurons")
        self.words = words_of(target)
        brought = self.stream.brought
        if to_exact(network.embedding)[brought:].any() or to_exact(network.layers[0].attention.output)[:, brought:].any():
            self.faults.append("blocks: layer 1 writes more than letters into its blocks")
        self.decay = to_exact(head.decay)[0]
        largest = max(abs(weight) for weight in to_exact(head.query).flat)
        self.match = largest / max(target.n - fmpq(3, 2), 1) if hard else largest
        self.delivered()

    def delivered(self) -> None:
        """What layer 1 errs by, and rounds, coordinate by coordinate, and what is promised for every block."""
        network, width = self.network, self.stream.brought
        attention = network.layers[0].attention
        nothing = zeros(len(attention.rpe), 0, width).astype(np.asarray(attention.decay).dtype)
        narrow = replace(
            attention, value=attention.value[:, :, :width], output=attention.output[:, :width], query=nothing, key=nothing,
            pointer=attention.pointer[:, :width],
        )  # fmt: skip
        row, one, outer = (zeros(*shape).astype(nothing.dtype) for shape in ((1, width), (1,), (1, 1)))
        silent = FeedForward(row, one, outer)
        bringing = Transformer(network.embedding[:width], network.bias[:width], (Layer(narrow, silent),))
        if to_exact(network.bias).any():
            raise StrangeWeights("the embedding has a bias; before the array there is nothing")
        layer, stream = delivered_stream(bringing, self.fixed, theorem.ID)
        with working_precision(layer.bits):
            budgets = thm_3_1.RULES.budgets if attention.table is None else partial(extraction_budgets, attention)
            rpe: Rpe = "lin" if attention.rpe[0] == "lin" else "log"
            self.budgets = budgets(layer, self.fixed, "minimal", rpe, network.dtype, self.faults)
        self.errors, self.slack = stream.errors, stream.slack

    def noise(self, steps: CloudSteps) -> np.ndarray:
        """Radii of the stream after the attention of layer 1."""
        rounded = [arb(0)] * len(self.errors) if steps.arithmetic is None else self.slack
        radii = np.zeros(self.stream.width)
        radii[: len(self.errors)] = [upper(e + r) for e, r in zip(self.errors, rounded, strict=True)]
        return radii

    def states(self, steps: CloudSteps) -> Cloud:
        """What positions hold after layer 1, word by word."""
        rows = []
        for word in self.words:
            row = [ZERO] * self.stream.width
            for k, letter in enumerate(word):
                if letter != BLANK:
                    row[k * self.target.size + letter] = fmpq(1)
            rows.append(row)
        ffn, width = self.network.layers[0].feedforward, self.stream.width
        identity = fmpq_mat(width, width, [fmpq(int(i == j)) for i, j in np.ndindex(width, width)])
        given = Cloud(fmpq_mat(rows), np.tile(self.noise(steps), (len(rows), 1)))
        return steps.fed(identity, matrix_of(ffn.inner), list(entries(ffn.bias)), matrix_of(ffn.outer), given)


@dataclass(frozen=True)
class LayerNumbers:
    """Numbers of one pass over all states: what is compared, logits, the mean, values, the output."""

    blocks: arb
    logits: arb
    choice: arb
    copied: arb
    total: arb
    storage: arb
    """What storing queries and keys in floats may have moved logits by."""


class BlockComparison:
    """Layer 2 for every question and every state, as the exact function of the weights or as executed."""

    def __init__(self, reading: InductionReading, executed: bool) -> None:
        self.reading, self.target, self.network = reading, reading.target, reading.network
        self.steps = CloudSteps(self.network.dtype if executed else None)
        self.states = reading.states(self.steps)
        asking = [i for i, word in enumerate(reading.words) if BLANK not in word[:-1]]
        self.questions = self.states.rows(asking)
        head = self.network.layers[1].attention
        queries = self.steps.linear(matrix_of(head.query[0]), self.questions)
        self.asked, different = self._different([reading.words[i][:-1] for i in asking], queries)
        self.queries = queries.rows(different)
        self.keys = self.steps.linear(matrix_of(head.key[0]), self.states)
        self.values = self.steps.linear(matrix_of(head.value[0]), self.states)
        self.scores = self.steps.scores(self.queries, self.keys)

    def _different(self, blocks: list[Word], queries: Cloud) -> tuple[list[Word], list[int]]:
        """Questions that are not the same to the head: their n−1 letters, and their places."""
        first = dict[tuple[object, ...], int]()
        for i, (block, row, radius) in enumerate(zip(blocks, queries.centre.tolist(), queries.radius, strict=True)):
            first.setdefault((block, *((v.p, v.q) for v in row), radius.tobytes()), i)
        return [blocks[i] for i in first.values()], list(first.values())

    @cached_property
    def ends(self) -> tuple[list[list[arb]], list[list[arb]]]:
        """Lower and upper ends of all logits without positions."""
        centres = self.scores.centre.tolist()
        pairs = [[(arb(v), arb(r)) for v, r in zip(*row, strict=True)] for row in zip(centres, self.scores.radius, strict=True)]
        return [[(v - r).lower() for v, r in row] for row in pairs], [[(v + r).upper() for v, r in row] for row in pairs]

    def found(self) -> LayerNumbers:
        """All numbers; infinite where the read-out is none."""
        target, stream = self.target, self.reading.stream
        lam, far, sums = self._softmax_rounding()
        wrong, seen = (
            self._logits(),
            range(target.match != "hard", len(self.reading.words)),
        )  # the past is seen over an infinite window only
        values = [arb(row[0]) for row in self.values.centre.tolist()]
        radii = [arb(r) for r in self.values.radius[:, 0]]
        letters, spread = (self._spread(values, radii, states) for states in (range(1, len(values)), seen))
        choice = self._loser_error(lam, letters, spread) if target.match in MATCHING else (wrong / 2 + lam / 2).tanh() * letters
        copied = maximum([abs(values[i] - target.value(self.reading.words[i][0])) + radii[i] for i in seen])
        written = self.states.radius[:, stream.brought :] if target.match != "soft" else self.states.radius
        terms = (self.queries.size @ self.keys.size.T).max() * OUTWARD
        total = self._read_out(choice + copied + far * spread + sums)
        return LayerNumbers(arb(float(written.max())), wrong, choice, copied, total, arb(float(terms)))

    def _spread(self, values: Sequence[arb], radii: Sequence[arb], states: range) -> arb:
        """The largest difference of two states' values."""
        return maximum([values[i] + radii[i] for i in states]) + maximum([radii[i] - values[i] for i in states])

    def _logits(self) -> arb:
        """How far logits are from those that are wanted; in soft and general but for a constant of the question."""
        low, high = self.ends
        worst = [arb(0)]
        for question, below, above in zip(self.asked, low, high, strict=True):
            wanted = self._wanted(question)
            seen = range(len(self.reading.words) - len(wanted), len(self.reading.words))
            most = maximum([above[j] - w for j, w in zip(seen, wanted, strict=True)])
            least = maximum([w - below[j] for j, w in zip(seen, wanted, strict=True)])
            worst.append(most.max(least) if self.target.match in MATCHING else (most + least) / 2)
        return maximum(worst) + (0 if self.target.match in MATCHING else self.target.table[1])

    def _wanted(self, question: Word) -> list[arb]:
        """The logits of all states that are seen."""
        words, target = self.reading.words, self.target
        if target.match in MATCHING:
            beta = self.reading.match
            agreeing = [arb(beta * sum(a == b for a, b in zip(question, word[1:], strict=True))) for word in words[1:]]
            return [arb(beta * (target.n - fmpq(3, 2))), *agreeing] if target.match == "hard" else agreeing
        row = dict(zip(target.blocks(), target.table[0][target.questions().index(question)], strict=True))
        return [arb(row[word[1:]]) for word in words[1:]]

    def _loser_error(self, lam: arb, letters: arb, most: arb) -> arb:
        """What is not copied moves the mean by so much at most: at the farthest match and in the longest array without one, or in any
        where matches are unique. Letters differ from what is copied by `letters`, the past by `most`."""
        target, decay = self.target, arb(self.reading.decay)
        low, high = self.ends
        rest, steps, noise = (-decay).exp(), target.length - target.n, (2 * lam).exp()
        errors = []
        for question, below, above in zip(self.asked, low, high, strict=True):
            match = [j for j, word in enumerate(self.reading.words) if word[1:] == question]
            others = [j for j in range(1, len(self.reading.words)) if j not in match]
            won, lost = -maximum([-below[j] for j in match]), maximum([above[j] for j in others])
            if target.match == "copy":
                errors.append(letters * share((target.length - 1) * (lost - won).exp() * noise))
                continue
            nearer = (lost - won + decay * steps).exp() * (1 - (-decay * steps).exp()) / (1 - rest)
            further = (maximum(above[1:]) - won - decay).exp() / (1 - rest)
            past = (above[0] - won - decay).exp() / (1 - rest)
            nothing = (lost - below[0]).exp() * ((decay * target.length).exp() - 1)
            missed = letters * share((nearer + further) * noise) + most * past * noise
            errors += [missed.min(most), most * share(nothing * noise)]  # a mean stays between the values
        return maximum(errors)

    def _softmax_rounding(self) -> tuple[arb, arb, arb]:
        """(λ: errors of near logits and their exponentials, share of far tokens, rounding of sums), of `verify.chain.softmax_rounding`."""
        if self.steps.arithmetic is None:
            return arb(0), arb(0), arb(0)
        dtype, count = self.network.dtype, self.target.length + 1
        arithmetic, deepest = Arithmetic(dtype), arb(DEEPEST[dtype])
        dots, decay = arb(float(self.scores.size.max())), arb(self.reading.decay)
        top = arb(0) if decay == 0 else (-decay - (1 - (-decay).exp()).log()).max(arb(0))
        biases = deepest + 2 * dots + top
        unit = arithmetic.unit
        lam = unit * arb(TWICE) * biases + unit * (dots + biases) + unit * deepest - (1 - exponential_error(dtype)).log()
        gamma, most = arithmetic.gamma(count), arb(float(self.values.size.max()))
        self.steps.checked(count * self.values.size)
        sums = ((1 + unit) * (1 + gamma) / (1 - gamma) - 1) * most + 4 * count * arithmetic.tiny * (1 + most)
        return lam, 4 * count * (lam - deepest).exp(), sums

    def _read_out(self, error: arb) -> arb:
        """|output − y| for all questions and all y: the stream with y and what the mean errs by as two more coordinates."""
        target, width, ffn = self.target, self.reading.stream.width, self.network.layers[1].feedforward
        output = matrix_of(self.network.layers[1].attention.output[0])
        identity = [[fmpq(int(i == j)) for j in range(width)] for i in range(width)]
        joined = fmpq_mat([[*row, *written, *written] for row, written in zip(identity, output.tolist(), strict=True)])
        least, most = target.reached
        middle, half = (least + most) / 2, float(arb((most - least) / 2))
        rows = [[*row, middle, ZERO] for row in self.questions.centre.tolist()]
        size = self.questions.size + magnitudes(output)[:, 0] * (float(arb(most)) + upper(error)) * OUTWARD
        radius = self.questions.radius + self.steps.rounding(3, size)
        ends = np.tile([half, upper(error)], (len(rows), 1))
        given = Cloud(fmpq_mat(rows), np.concatenate([radius, ends], axis=1) * OUTWARD)
        subtracted = fmpq_mat([[ZERO] * width + [fmpq(-1), ZERO]])
        outer = matrix_of(ffn.outer)
        found = self.steps.fed(subtracted, matrix_of(ffn.inner) * joined, list(entries(ffn.bias)), outer, given)
        return arb(float(found.size.max() * OUTWARD)) + LOST


@dataclass(frozen=True)
class CopyRules:
    """What a theorem says beyond the common chain: its name, its proof for lags, and what it promises for the mean."""

    theorem: str
    proof: Callable[[str, str, str, Sequence[int]], "nx.DiGraph"]
    choice: Callable[[Any, arb, arb, arb], arb]
    """Of target, decay, β, and what logits of soft and general may err by."""


def _choice(target: InductionTarget, decay: arb, match: arb, delta: arb) -> arb:
    """(I.1) or (I.2)."""
    return theorem.hard_bound(target, decay, match) if target.match == "hard" else theorem.soft_bound(target, delta)


RULES = CopyRules(theorem.ID, theorem.proof_graph, _choice)


def verify(network: Transformer, target: InductionTarget, bank: str, ffn: str) -> Certificate:
    """Certify a stored network that copies what followed."""
    return certify(network, target, bank, ffn, RULES)


def certify(network: Transformer, target: InductionTarget, bank: str, ffn: str, rules: CopyRules) -> Certificate:
    """The chain of a network with the layers of induction."""
    start = time.perf_counter()
    reading = InductionReading(network, target)
    with working_precision(BITS), np.errstate(over="ignore", invalid="ignore"):  # radii may be infinite, or none
        exact = BlockComparison(reading, executed=False).found()
        found = exact if network.dtype == "exact" else BlockComparison(reading, executed=True).found()
        promised = _promised(reading, exact, rules)
        more = {name: (getattr(found, name) - getattr(exact, name)).max(arb(0)) for name in (*LEMMAS, "total")}
        measured = {base.extraction_lemma(lag): pair for lag, pair in zip(reading.fixed.lags, _extraction(reading), strict=True)}
        measured |= {lemma: (getattr(found, name), promised[name] + more[name] * SPARE) for name, lemma in LEMMAS.items()}
        bound = upper(promised["choice"] + LOST + more["total"] * SPARE)
        witness, description = _witness(reading)
    trivial = target.constant_error()
    return Certificate(
        theorem=rules.theorem,
        witness=witness,
        witness_input=description,
        certified=float("inf") if reading.faults else upper(found.total),
        bound=bound,
        rounding=upper(more["total"]),
        trivial=trivial,
        least_heads=None,
        parts=matched(rules.proof("table", bank, ffn, reading.fixed.lags), measured),
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=time.perf_counter() - start,
        faults=tuple(reading.faults),
        details={"match": target.match, "n": target.n, "letters": target.size, "length": target.length, "states": len(reading.words)},
        remedies=better_than_constant(bound, trivial),
    )


def _extraction(reading: InductionReading) -> list[tuple[arb, arb]]:
    """Of every block: what layer 1 errs by, and what is promised."""
    size = reading.target.size
    errors = [maximum(reading.errors[k * size : (k + 1) * size]) for k in range(1, reading.target.n)]
    return list(zip(errors, reading.budgets, strict=True))


def _promised(reading: InductionReading, exact: LayerNumbers, rules: CopyRules) -> dict[str, arb]:
    """What is promised for the mean, and by the lemmas before it, at the constants in the weights; what is restored is exact."""
    target, dtype = reading.target, reading.network.dtype
    noise = maximum(reading.budgets)
    stored = arb(0) if dtype == "exact" else 3 * arb(UNIT[dtype]) * exact.storage
    soft = {"soft": theorem.logit_noise(target, noise), "general": target.table[1]} if target.match not in MATCHING else {}
    delta = (soft[target.match] + stored) * SPARE if soft else arb(0)
    choice = rules.choice(target, arb(reading.decay), arb(reading.match), delta) * SPARE
    return {"blocks": noise * SPARE if target.match == "soft" else arb(0), "logits": delta, "choice": choice, "copied": arb(0)}


def _witness(reading: InductionReading) -> tuple[float, str]:
    """The largest error found and its sequence: adversarial and random ones are run, and in an exact network the worst is enclosed."""
    target, network = reading.target, reading.network
    length, pairs = min(target.length, LONGEST), list(itertools.permutations((0, target.size - 1)))
    tokens = target.draw(np.random.default_rng(0), (RANDOM, length))
    if target.match != "copy":
        words = [[a] * (length - target.n) + [b] + [a] * (target.n - 1) for a, b in pairs] + [[a] * (length - 1) + [b] for a, b in pairs]
        tokens = np.concatenate([target.word_tokens(np.array(words)), tokens])
    outputs = run(network, tokens.astype("float64" if network.dtype == "exact" else network.dtype)).astype(float)
    if not np.isfinite(outputs).all():
        reading.faults.append(f"the network computes numbers that are not finite in {network.dtype}")
        return 0.0, "none"
    errors = np.abs(outputs - target.values(np)(tokens))
    errors[:, : target.settled] = 0.0
    place, t = (int(i) for i in np.unravel_index(errors.argmax(), errors.shape))
    right = target.exact_value(tokens[place], t)
    runs = [(letter, len(list(run))) for letter, run in itertools.groupby(tokens[place, : t + 1].argmax(-1).tolist())]
    shown = f"letters {', '.join(f'{letter} ({count} times)' if count > 2 else ', '.join([str(letter)] * count) for letter, count in runs)}"
    if network.dtype != "exact":
        return max(0.0, lower(abs(arb(float(outputs[place, t])) - right))), shown
    found = enclosed_pass(network, tokens[place : place + 1, : t + 1], first=-1)
    return max(0.0, lower(abs(arb(float(found.mid[0, 0])) - right) - arb(float(found.rad[0, 0])))), shown
