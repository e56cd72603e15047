"""The margin of a network's decisions over all sequences of letters: certified right, refuted by a sequence, or undecided.

A target on a finite alphabet takes values y_1 < … < y_k, and outputs are read as a decision between them (`analyzer.targets.decisions`): by
the sign, by the nearest value, or by the largest of k outputs. The least margin over all sequences is bounded from below in two ways.

**From an error.** If |F − y| ≤ e at all sequences, the margin is at least ρ − e with ρ the least distance of a value from its next border:
F is at most e nearer to a border than y is. So a certified worst-case error below ρ proves all decisions, wherever it holds.

**By going through all words** (`verify.layers.all_sequences`). Midpoints and radii contain what the executor really computes at a word of
letters, |F_j − mid_j| ≤ rad_j. So sgn(y)F ≥ sgn(y)mid − rad, F − b ≥ mid − rad − b, and F_i − F_j ≥ (mid_i − rad_i) − (mid_j + rad_j),
differences rounded down; the least of these lower bounds is certified at all arrays and positions that the words stand for. What can be
looked at is not taken on trust: the words that come by must be the numbers 0, 1, 2, … with |A| digits, of every length that is needed, to
the last; and those with the least bounds are run by the executor, whose outputs must lie in their enclosures.

*Refuted* means that the executor's own outputs have a margin ≤ 0 at a sequence, which is the counterexample; ties are wrong.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from flint import arb

from analyzer.errors import Refusal
from analyzer.numbers.exact import upper
from analyzer.targets.decisions import Decision, decision_of
from analyzer.targets.protocol import Target
from constructions.network.transformer import Transformer
from constructions.run.execute import run
from verify.chain.certificate import Margin
from verify.chain.enclosed import OUTWARD, Enclosed
from verify.chain.enclosed_layers import enclosed_pass
from verify.layers.all_sequences import BATCH, FIRST_CUT, GROWTH, MAX_CUT, STALLED, Letters, WordSearch
from verify.layers.words import Reach

CANDIDATES = 32
"""Words with the least bounds that are run: the least margin is among them unless radii are wide."""
SAMPLED = 4096
"""Random sequences that are run where words are not gone through; all sequences, if there are no more."""
BEFORE = 24
"""Random letters before the words, where these do not reach as far back as the network."""

Batches = Iterable[tuple[int, int, Enclosed]]
"""(letters j, number of the first word, outputs (B, c) at the last letter of the words)."""


class NotEnclosed(AssertionError):
    """An enclosure does not hold what was run, or not all words came by: a mistake in our code, never in the input."""


class _Bounded(NamedTuple):
    """A word, a lower bound of its margin, and the enclosure of its outputs."""

    bound: float
    letters: int
    number: int
    mid: np.ndarray
    rad: np.ndarray


class _Least:
    """The words with the least bounds so far."""

    def __init__(self) -> None:
        self.bound = np.inf
        self.kept: list[_Bounded] = []

    def add(self, letters: int, numbers: np.ndarray, found: Enclosed, below: np.ndarray) -> None:
        self.bound = min(self.bound, float(below.min()))
        for i in np.argsort(below, kind="stable")[:CANDIDATES]:
            self.kept.append(_Bounded(float(below[i]), letters, int(numbers[i]), found.mid[i], found.rad[i]))
        self.kept = sorted(self.kept, key=lambda entry: entry[:3])[:CANDIDATES]


def least_margin(
    words: WordSearch, reach: Reach, decision: Decision, batches: Batches | None = None
) -> tuple[float, float, np.ndarray, int]:
    """(lower bound of the margin at all words, the least that was run, rounded up, where, and how many words there are)."""
    right = _right(words, decision)
    least, done = _Least(), dict.fromkeys(words.lengths(reach), 0)
    for j, first, found in words.outputs(reach, True) if batches is None else batches:
        if done.get(j) != first or not len(found.mid):
            raise NotEnclosed(f"word number {done.get(j)} of {j} letters did not come by")
        numbers = np.arange(first, first + len(found.mid))
        done[j] += len(numbers)
        least.add(j, numbers, found, decision.margins_below(found.mid, found.rad, right[numbers % len(right)]))
    for j, count in done.items():
        if count != len(words.letters) ** j:
            raise NotEnclosed(f"{count} words of {j} letters came by, there are {len(words.letters) ** j}")
    witness, worst = _run_again(words, reach, decision, least.kept)
    return least.bound, witness, worst, sum(done.values())


def _run_again(words: WordSearch, reach: Reach, decision: Decision, kept: list[_Bounded]) -> tuple[float, np.ndarray]:
    """(least margin, where) of arrays that end with these words: the words alone and, if they are the longest and something may lie before
    them, after random letters. Shorter words stand for the beginnings of arrays only."""
    rng, witness, worst = np.random.default_rng(0), np.inf, np.zeros((0, words.network.dim))
    for j in sorted({entry.letters for entry in kept}):
        chosen = [entry for entry in kept if entry.letters == j]
        word = words.letters.word(j, np.array([entry.number for entry in chosen]))
        mid, rad = (np.array([getattr(entry, name) for entry in chosen]) for name in ("mid", "rad"))
        before = words.letters.tokens[rng.integers(len(words.letters), size=(len(chosen), min(BEFORE, words.longest - j)))]
        longer = [np.concatenate([before, word], axis=1)] if not reach.whole and j == reach.letters else []
        for tokens in [word, *longer]:
            found = outputs_at(words.network, tokens)
            if not (np.abs(found.mid - mid) <= (rad + found.rad) * OUTWARD).all():
                raise NotEnclosed("outputs of the network lie outside their enclosures")
            margin, where = run_margin(decision, found, tokens)
            if margin < witness:
                witness, worst = margin, where
    return witness, worst


def _right(words: WordSearch, decision: Decision) -> np.ndarray:
    """Which value is right at the last of settled + 1 letters, for every such word: the target does not read further back."""
    length = words.target.settled + 1
    total = len(words.letters) ** length
    starts = range(0, total, BATCH)
    parts = [decision.values.indices(words.letters.word(length, np.arange(start, min(start + BATCH, total)))) for start in starts]
    return np.concatenate(parts)


def outputs_at(network: Transformer, tokens: np.ndarray) -> Enclosed:
    """Outputs at the last position, (batch, c): of the executor, but of exact networks enclosed as they are, if that is known."""
    if network.dtype == "exact":
        with suppress(Refusal):
            return enclosed_pass(network, tokens, first=-1).reshape(len(tokens), network.outputs)
    outputs = run(network, tokens)[:, -1].astype(np.float64).reshape(len(tokens), network.outputs)
    return Enclosed(outputs, np.zeros_like(outputs))


def run_margin(decision: Decision, outputs: Enclosed, tokens: np.ndarray) -> tuple[float, np.ndarray]:
    """(the least margin of the outputs at the last of some sequences, rounded up; where). What is not finite decides nothing."""
    right = decision.values.indices(tokens)
    lost = ~np.isfinite(outputs.mid).all(axis=1)
    if lost.any():
        return -np.inf, tokens[int(np.argmax(lost))]
    place = int(np.argmin(decision.margins_below(outputs.mid, outputs.rad, right)))
    balls = [arb(float(mid), float(rad)) for mid, rad in zip(outputs.mid[place], outputs.rad[place], strict=True)]
    return upper(decision.margin(balls, int(right[place]))), tokens[place]


def certified_margin(network: Transformer, target: Target, length: int | None = None, error: float = np.inf, seed: int = 0) -> Margin:
    """The margin of a network's decisions; `error` is a certified worst-case error of its one output, if there is one."""
    decision = decision_of(target, network.outputs)
    by_error = float(np.nextafter(decision.room() - error, -np.inf)) if network.outputs == 1 else -np.inf
    common: dict[str, Any] = {"rule": decision.rule, "values": tuple(decision.values.floats())}
    reason = "the certified error is less than the way to a border, wherever it holds"
    if not by_error > 0:
        try:
            return _by_words(WordSearch(network, target, length), decision, by_error, common)
        except Refusal as refusal:
            reason = str(refusal)
    drawn = _sampled(network, target, target.length or max(length or 0, target.settled + 1), seed)
    witness, worst = run_margin(decision, outputs_at(network, drawn), drawn)
    return Margin(certified=by_error, witness=witness, worst=_plain(worst), sequences=None, over="", reason=reason, **common)


def _by_words(words: WordSearch, decision: Decision, least: float, common: dict[str, Any]) -> Margin:
    """Few words first, where what lies before them is confined, then more until that decides or the gap to the witness hardly closes."""
    most, gap = FIRST_CUT, np.inf
    while True:
        reach = words.reach(most)
        try:
            bound, witness, worst, count = least_margin(words, reach, decision)
        except Refusal:  # perhaps of the box of all states, which more words make smaller
            if reach.whole or most >= MAX_CUT:
                raise
        else:
            least = max(least, bound)
            stalled, gap = STALLED * (witness - bound) >= gap, witness - bound
            if reach.whole or least > 0 or not witness > 0 or stalled or most >= MAX_CUT:
                break
        most = min(GROWTH * most, MAX_CUT)
    over = words.described(reach.whole)
    return Margin(certified=least, witness=witness, worst=_plain(worst), sequences=count, over=over, reason="", **common)


def _sampled(network: Transformer, target: Target, length: int, seed: int) -> np.ndarray:
    """Random sequences, or all if there are no more, as the network's type holds them."""
    letters = Letters(target, network.dtype)
    total = len(letters) ** length
    drawn = letters.word(length, np.arange(total)) if total <= SAMPLED else target.draw(np.random.default_rng(seed), (SAMPLED, length))
    return drawn if network.dtype == "exact" else drawn.astype(network.dtype).astype(np.float64)


def _plain(tokens: np.ndarray) -> tuple[Any, ...]:
    """A sequence as plain data: numbers, or vectors where tokens have several coordinates."""
    return tuple((tokens[:, 0] if tokens.shape[1] == 1 else tokens).tolist())
