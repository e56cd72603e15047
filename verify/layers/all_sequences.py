"""The certified worst-case error of any network on a target with a finite alphabet: all sequences, or all words of recent tokens.

Statement. Let tokens be letters. Then at every position t whose lags lie inside the array (t ≥ settled),

    |network − target| ≤ certified,

for arrays of every length where all heads have tables and none of them runs by FFT in long arrays, as those without dot products do in a
finite window, or with more than `MAX_TAPS` distances (arrays of at most `LONGEST` tokens then); at the last of `length` tokens where a
window that is finite or full has heads without and all sequences are gone through, in all arrays of at most `length` tokens where a finite
one has and they are not, or where the target has no memories and reads whole arrays; and for arrays of at most `LONGEST` tokens over the
infinite past.

Proof. *All sequences.* The output depends on the last R = 1 + Σ(S_l − 1) tokens at most, S_l being the distances that the heads of layer l
see, or on the whole array. Every word of R letters, and every shorter one that begins an array, is evaluated in midpoints and radii
(`verify.layers.words`, `verify.chain.enclosed`), which contain the exact function of the weights and what the executor computes. The target
depends on the letters that it reads, a few of them: its value is enclosed once for every combination that occurs, in ball arithmetic. So

    certified = max over words of |midpoint − value| + radius.

*Layer by layer.* Where heads look back for ever, or there are too many words, the R most recent letters are gone through, and what lies
before is confined: states of earlier positions to the box of all states of their layer, their share of a head's mass by its closed sum.
Both are radius from then on, layer by layer.

The witness is the largest error of sequences that were really run, the worst words first, alone and after random letters; the target in
balls, rounded down. Runs lie inside the radii, so witness ≤ certified. For exact networks it is |midpoint − value| less the radius.
"""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from flint import arb

from analyzer.errors import Refusal
from analyzer.numbers.exact import UNIT, lower, rational, upper
from analyzer.targets.protocol import Target, memories_of
from constructions.network.transformer import Attention, Transformer, check_relative, exact_array
from constructions.run.execute import run
from constructions.run.positions import MAX_TAPS
from verify.chain.enclosed import DOUBLE, OUTWARD, Enclosed, stored
from verify.chain.enclosed_layers import EnclosedNetwork, enclosed_pass
from verify.layers.words import Reach, Words, cut_reach, reach_of

MAX_SEQUENCES = 10**7
"""Sequences that are gone through: minutes."""
MAX_CUT = 10**6
"""Words of recent letters where what lies before is confined."""
FIRST_CUT, GROWTH, NEAR, STALLED = 1 << 10, 8, 1.02, 1.1
"""They are first that many and then grow by this factor, until certified is near to the largest error of a midpoint, or hardly better than
what fewer words gave: slow heads are not helped by a few letters more."""
MAX_VALUES = 20_000
"""Different values of a target that are enclosed: seconds."""
LONGEST = MAX_TAPS
"""Tokens of an array over the infinite past, where the rounding of sums depends on their number."""
BATCH = 1 << 14
CANDIDATES, BEFORE = 8, 24
"""Worst words that are run again, and random letters before them."""


@dataclass(frozen=True)
class SequenceError:
    """witness ≤ worst-case error ≤ certified over all sequences of letters; `rounding` is the floating-point share, `trivial` the error of
    the best constant output, from below. `whole`: nothing was confined; `over` says which arrays and positions."""

    witness: float
    witness_input: str
    certified: float
    rounding: float
    arithmetic: str
    trivial: float
    sequences: int
    whole: bool
    over: str
    seconds: float


def sequence_error(network: Transformer, target: Target, *, length: int | None = None, seed: int = 0, cut: bool = True) -> SequenceError:
    """Certify a network on a target with an alphabet; `length` is that of the arrays where windows are finite or full.

    Without `cut` only if all sequences can be gone through.
    """
    start = time.perf_counter()
    if network.outputs != 1:
        raise Refusal(f"worst-case errors are certified for one output; this network has {network.outputs}")
    search = WordSearch(network, target, length)
    certified, rounding = search.certified(cut)
    witness, description = search.witness(seed)
    return SequenceError(
        witness=witness,
        witness_input=description,
        certified=certified,
        rounding=rounding,
        arithmetic=network.dtype,
        trivial=target.constant_error(),
        sequences=search.count,
        whole=search.whole,
        over=search.over,
        seconds=time.perf_counter() - start,
    )


def _check(network: Transformer, target: Target) -> None:
    if target.letters() is None:
        raise Refusal(f"all sequences are gone through for letters; a {target.kind} target has no finite alphabet here")
    if any("log" in layer.feedforward.precision for layer in network.layers):
        raise Refusal("a feed-forward network rounds to logarithms, log[e^y], whose rounding is not known")


class Letters:
    """Whole tokens: what the network reads, what the target reads, and the target's value at words of them."""

    def __init__(self, target: Target, dtype: str) -> None:
        self.target = target
        letters = np.asarray(target.letters())
        exact = stored(exact_array(target.alphabet).reshape(letters.shape))
        if letters.ndim == 1:  # the letters of every coordinate
            index = np.array(list(product(range(len(letters)), repeat=target.dim)))
            letters, exact = letters[index], exact[index]
        self.stated = letters
        self.tokens = letters if dtype == "exact" else letters.astype(dtype).astype(np.float64)
        if len(np.unique(self.tokens, axis=0)) < len(self.tokens):
            raise Refusal(f"two letters of the alphabet are the same number in {dtype if dtype in UNIT else 'float64'}")
        self.read = exact if dtype == "exact" else Enclosed(self.tokens, np.zeros_like(letters))

    def __len__(self) -> int:
        return len(self.tokens)

    def word(self, j: int, number: np.ndarray | int, stated: bool = False) -> np.ndarray:
        """Tokens (…, j, d) of words by their numbers, the last letter changing fastest; letters as given to the network, or stated."""
        places = len(self) ** np.arange(j - 1, -1, -1, dtype=np.int64)
        return np.asarray((self.stated if stated else self.tokens)[np.asarray(number)[..., None] // places % len(self)])

    def values(self) -> Enclosed:
        """The target at the last of settled + 1 letters, for every such word: enclosed once for everything that it reads.

        Letters that the network's type does not have count as given there, and as stated: the enclosure contains both values.
        """
        seen = memories_of(self.target).memory_values(np)
        length, dim = self.target.settled + 1, self.target.dim
        total = len(self) ** length
        known: dict[bytes, int] = {}
        examples: list[int] = []
        place = np.empty(total, dtype=np.int32)
        for start in range(0, total, BATCH):
            number = np.arange(start, min(start + BATCH, total))
            read = np.asarray(seen(self.word(length, number)))[:, -1]
            index = self.target.nearest_letters(read.reshape(len(number), -1, dim), np).reshape(len(number), -1)
            rows, first, inverse = np.unique(index, axis=0, return_index=True, return_inverse=True)
            codes = []
            for row, example in zip(rows, first, strict=True):
                code = known.setdefault(row.tobytes(), len(examples))
                if code == len(examples):
                    examples.append(int(number[example]))
                codes.append(code)
            if len(examples) > MAX_VALUES:
                raise Refusal(f"the target reads more than {MAX_VALUES} combinations of letters, too many to enclose one by one")
            place[number] = np.array(codes)[inverse.reshape(-1)]
        return self.enclosed(length, examples)[place]

    def enclosed(self, length: int, examples: Sequence[int]) -> Enclosed:
        """The target at the last of `length` letters of some words."""
        balls = [self.target.exact_value(self.word(length, example)) for example in examples]
        if (self.stated != self.tokens).any():
            balls = [ball.union(self.target.exact_value(self.word(length, e, True))) for ball, e in zip(balls, examples, strict=True)]
        mid = np.array([float(ball) for ball in balls])
        rad = np.array([upper(abs(ball - arb(m))) for ball, m in zip(balls, mid, strict=True)])
        return Enclosed(mid, rad)


class WordSearch:
    """The pass over all words, and the worst of them."""

    def __init__(self, network: Transformer, target: Target, length: int | None) -> None:
        _check(network, target)
        check_relative(network, "a search through all words")
        self.network, self.target, self.length = network, target, length
        windows = {layer.attention.window for layer in network.layers}
        self.arrays = target.as_memory_target is None  # the target reads whole arrays
        self.full = "full" in windows
        self.bounded = self.arrays or any(
            layer.attention.window != "infinite" and layer.attention.table is None for layer in network.layers
        )
        if self.arrays and length is None:
            self.length = length = target.length
        if self.bounded and length is None:
            raise Refusal("finite and full windows are certified for arrays of one length: give it")
        if self.bounded and length is not None and length <= target.settled:
            raise Refusal(f"arrays of {length} tokens are shorter than the target's lags: it needs {target.settled + 1}")
        self.letters = Letters(target, network.dtype)
        self.worst: list[tuple[float, int, int]] = []
        self.count, self.over, self.whole = 0, "", True

    def certified(self, cut: bool) -> tuple[float, float]:
        """(certified, rounding)."""
        reach = self._whole_reach(cut)
        self.whole = reach is not None
        self.over = self.described(self.whole)
        if reach is not None and self.arrays:
            self.values = self._array_values(self.lengths(reach))
        else:
            self.values = {self.target.settled + 1: self.letters.values()}
        return self._pass(reach, True) if reach is not None else self._layer_by_layer()

    def _array_values(self, lengths: range) -> dict[int, Enclosed]:
        """The target at the end of all arrays, by their lengths."""
        total = sum(len(self.letters) ** j for j in lengths)
        if total > MAX_VALUES:
            raise Refusal(f"{total} arrays of letters are too many to enclose this target one by one, {MAX_VALUES} is the most")
        return {j: self.letters.enclosed(j, range(len(self.letters) ** j)) for j in lengths}

    def _layer_by_layer(self) -> tuple[float, float]:
        """Few words first, then more as long as that helps; a refusal may be one of the box, which more words make smaller."""
        best, most = math.inf, min(FIRST_CUT, MAX_CUT)
        kept = reach = self._cut_reach(most)
        while True:
            try:
                found, _ = self._pass(reach, True)
            except Refusal:
                if most >= MAX_CUT and math.isinf(best):
                    raise
                found = math.inf
            settled = math.isfinite(found) and (found <= NEAR * self.worst[0][0] or best <= STALLED * found)
            if found < best:
                best, kept = found, reach
            if settled or most >= MAX_CUT:
                return best, max(0.0, best - self._pass(kept, False)[0])
            most = min(GROWTH * most, MAX_CUT)
            reach = self._cut_reach(most)

    def reach(self, most: int = MAX_CUT) -> Reach:
        """How far back words go: as far as the network looks or, if these are too many, as `most` of them do."""
        return self._whole_reach(cut=True) or self._cut_reach(most)

    def _cut_reach(self, most: int) -> Reach:
        """The reach of so many words, but no shorter than the target's lags."""
        found = cut_reach(self.network, len(self.letters), most)
        return self._extended(found)

    def _extended(self, reach: Reach) -> Reach:
        missing = max(0, self.target.settled - sum(reach.back))
        return Reach((*reach.back[:-1], reach.back[-1] + missing), reach.whole)

    def _whole_reach(self, cut: bool) -> Reach | None:
        """The reach of all sequences; None if there are too many and cutting is allowed."""
        letters, settled = len(self.letters), self.target.settled
        if self.full or self.arrays:
            assert self.length is not None
            found: Reach | None = Reach((self.length - 1,), True) if letters**self.length <= MAX_SEQUENCES else None
        else:
            found = reach_of(self.network, letters, self.length, MAX_SEQUENCES)
        if found is None and (self.full or self.arrays or not cut):
            what = f"arrays of {self.length} tokens" if self.bounded else "words as long as the heads look back"
            raise Refusal(f"{letters} letters make more than {MAX_SEQUENCES} {what}, too many to go through")
        if letters ** (settled + 1) > MAX_SEQUENCES:
            raise Refusal(f"{letters} letters make more than {MAX_SEQUENCES} words of {settled + 1} tokens, which the target reads")
        return None if found is None else self._extended(found)

    def described(self, whole: bool) -> str:
        """Which arrays and positions the certificate speaks of, if all sequences were gone through, or what lies before was confined."""
        if self.full or (self.bounded and whole and not self.arrays):
            return f"letters of the alphabet, at the last of {self.length} tokens"
        endless = not self.arrays and all(self._endless(layer.attention) for layer in self.network.layers)
        return "letters of the alphabet" if endless else f"letters of the alphabet, arrays of at most {self.longest} tokens"

    def _endless(self, attention: Attention) -> bool:
        """Whether roundings of a layer do not depend on the length of arrays: tables that do not run by FFT in long ones."""
        if attention.table is None:
            return False
        taps = attention.window == "infinite" and attention.table.shape[1] <= MAX_TAPS
        return self.network.dtype == "exact" or attention.kind == "dp" or taps

    @property
    def longest(self) -> int:
        """Tokens of the arrays that a certificate may speak of."""
        return self.length if self.bounded and self.length is not None else LONGEST

    def _pass(self, reach: Reach, executed: bool) -> tuple[float, float]:
        """(largest |midpoint − value| + radius, largest radius) over all words; the worst words are kept."""
        most, radius = 0.0, 0.0
        if executed:
            self.worst = []
        self.count = 0
        for j, first, outputs in self.outputs(reach, executed):
            found = outputs[:, 0]
            number = np.arange(first, first + len(found.mid))
            known = self.values.get(j, next(iter(self.values.values())))
            wanted = known[number % len(known.mid)]
            gap = np.abs(found.mid - wanted.mid)
            error = gap * (1 + 4 * DOUBLE) + (found.rad + wanted.rad) * OUTWARD
            if not np.isfinite(error).all():
                raise Refusal("the network's outputs have no finite bound")
            most, radius = max(most, float(error.max())), max(radius, float(found.rad.max()))
            self.count += len(number)
            if executed:
                chosen = np.argsort(-gap)[:CANDIDATES]
                self.worst = sorted([*self.worst, *((float(gap[i]), j, int(number[i])) for i in chosen)], reverse=True)[:CANDIDATES]
        return most, radius

    def lengths(self, reach: Reach) -> range:
        """How many letters words have: as many as an array, or any number from the first that the target reads."""
        if self.full or (self.bounded and reach.whole):
            assert self.length is not None
            return range(self.target.settled + 1 if self.arrays and not self.full else self.length, self.length + 1)
        return range(self.target.settled + 1, reach.letters + 1)

    def outputs(self, reach: Reach, executed: bool) -> Iterator[tuple[int, int, Enclosed]]:
        """(letters j, number of the first word, outputs (B, c)) of all words, in batches; unless `executed`, of the exact function."""
        if self.full or self.arrays:
            for j in self.lengths(reach):
                for start in range(0, len(self.letters) ** j, BATCH):
                    tokens = self.letters.word(j, np.arange(start, min(start + BATCH, len(self.letters) ** j)))
                    yield j, start, enclosed_pass(self.network, tokens, first=-1).reshape(len(tokens), -1)
            return
        longest = self.length if self.bounded else None
        limit = longest if reach.whole else None
        enclosed = EnclosedNetwork(self.network, longest or LONGEST, executed)
        words = Words(enclosed, self.letters.read, limit)
        for index, back in enumerate(reach.back[:-1]):
            words.advance(index, back)
        least = self.target.settled + 1 if limit is None else limit
        yield from words.outputs(len(reach.back) - 1, reach.back[-1], least)

    def witness(self, seed: int) -> tuple[float, str]:
        """The largest error that was really seen, rounded down, and the letters; words of one length run together."""
        rng, best = np.random.default_rng(seed), (0.0, "no error was found")
        for j in sorted({j for _, j, _ in self.worst}):
            found = self.letters.word(j, np.array([number for _, length, number in self.worst if length == j]))
            arrays = [(found, "")]
            if not self.whole and (not self.bounded or j + BEFORE <= (self.length or 0)):
                before = self.letters.tokens[rng.integers(len(self.letters), size=(len(found), BEFORE))]
                arrays.append((np.concatenate([before, found], axis=1), f", after {BEFORE} random letters"))
            for tokens, how in arrays:
                errors = self._errors(tokens)
                worst = int(np.argmax(errors))
                if errors[worst] > best[0]:
                    best = errors[worst], _shown(found[worst]) + how
        return best

    def _errors(self, tokens: np.ndarray) -> list[float]:
        """Errors at the last of tokens (B, N, d), from below."""
        values = [self.target.exact_value(sequence) for sequence in tokens]
        if self.network.dtype == "exact":
            found = enclosed_pass(self.network, tokens, first=-1)[:, -1]
            balls = [(arb(float(mid)), arb(float(rad))) for mid, rad in zip(found.mid, found.rad, strict=True)]
        else:
            balls = [(arb(rational(float(output))), arb(0)) for output in run(self.network, tokens)[:, -1]]
        return [lower(abs(output - value) - rad) for (output, rad), value in zip(balls, values, strict=True)]


def output_at(network: Transformer, target: Target, tokens: np.ndarray, t: int) -> arb:
    """The output at token t of (N, d), as the exact function of the weights, in a ball."""
    full = any(layer.attention.window == "full" for layer in network.layers)
    found = enclosed_pass(network, tokens[None] if full else tokens[None, : t + 1], first=t)[0, 0]
    return arb(float(found.mid), float(found.rad))


def _shown(word: np.ndarray) -> str:
    """The letters of a word, the latest last."""
    shown = [f"{token[0]:g}" if len(token) == 1 else f"({', '.join(f'{v:g}' for v in token)})" for token in word]
    return f"the letters {', '.join(shown)}"
