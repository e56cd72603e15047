"""Induction: what followed earlier occurrences of the letters that stand at the end.

Tokens are letters 0 … A−1, coded as unit vectors of {0, 1}^A; before the array there is no letter, the zero vector. The *value* of letter a
is v(a) = (a+1)/P, P the least power of 2 that is no less than A, so that all values are different, exact in every float type, and not 0:
that is the value of no letter. Let q_t = (x_t, …, x_{t−n+2}) be the n−1 letters that end at t, and k_s = (x_{s−1}, …, x_{s−n+1}) those
before s.

* `hard`: y_t = v(x_s) for the largest s with n−1 ≤ s ≤ t and k_s = q_t: the letter that followed the last earlier occurrence of the current
  n−1 letters (the occurrence may overlap them); y_t = 0 where they have not occurred before.
* `soft`: y_t = Σ_{0≤s≤t} softmax_s(w·#{i : (k_s)_i = (q_t)_i}) v(x_s): logits ⟨q_t, W k_s⟩ with W = w times the identity.
* `general`: y_t = Σ_{0≤s≤t} softmax_s(g(q_t, k_s)) v(x_s) for any formula g in the values u1, …, u_{n−1} of the letters of q_t, the latest
  first, and v1, …, v_{n−1} of k_s.

Positions t ≥ n−2 count, where q_t consists of letters. In soft and general k_s may reach before the array, where no letter agrees with
any and values are 0.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.language.formulas import Formula, parse_formula
from analyzer.numbers.exact import dyadic, maximum, nearest, rational, working_precision
from analyzer.options import Options, option
from analyzer.targets.protocol import ArrayMap, TokenTarget
from analyzer.targets.task import Task

BITS = 128
BLANK = -1
"""No letter: what stands before an array."""
MAX_BLOCKS = 4096
"""Words of n letters that are gone through one by one."""

Word = tuple[int, ...]
"""Letters, the latest first, BLANK where the array has not begun."""


@dataclass(frozen=True)
class InductionTask(Options):
    """The parameters of an induction target."""

    letters: int = option(4, "letters of the alphabet", least=2, most=16, spelt=("alphabet",))
    n: int = option(3, "n-grams: n-1 letters are compared, the n-th one is copied", least=2, most=6)
    length: int = option(64, "tokens of a sequence, at most", least=2, most=4096)
    match: Literal["hard", "soft", "general"] = option(
        "hard", "copy what followed the last occurrence (hard), or a mean weighed by agreeing letters (soft) or a similarity (general)"
    )
    sharpness: float = option(4.0, "soft: what every agreeing letter adds to a logit", above=0, most=64)
    similarity: str = option("", "general: logits, a formula in u1, u2, … (current letters' values) and v1, v2, … (earlier ones')")

    def check(self) -> None:
        if self.length < self.n:
            raise InputError(f"length is {self.length}: an n-gram of {self.n} letters does not fit")
        if self.letters**self.n > MAX_BLOCKS:
            raise InputError(f"{self.letters} letters make {self.letters**self.n} words of {self.n}; at most {MAX_BLOCKS} are gone through")
        if (self.match == "general") != bool(self.similarity):
            raise InputError("similarity goes with match general, and match general needs one, such as -(u1-v1)**2")


@dataclass(frozen=True)
class InductionTarget(TokenTarget):
    """y_t from what followed earlier occurrences of the last n−1 letters."""

    kind: ClassVar[str] = "induction"
    plural: ClassVar[str] = "inductions"

    size: int
    n: int
    length: int
    match: str = "hard"
    sharpness: float = 4.0
    similarity: str = ""

    def __post_init__(self) -> None:
        if self.formula is not None and not all(value.is_finite() for row in self.similarities for value in row):
            raise InputError(f"similarity {self.similarity[:60]!r} has no finite value at some letters")

    @property
    def dim(self) -> int:
        return self.size

    @property
    def alphabet(self) -> tuple[tuple[fmpq, ...], ...]:
        """The unit vectors."""
        return tuple(tuple(fmpq(int(i == a)) for i in range(self.size)) for a in range(self.size))

    @property
    def settled(self) -> int:
        return self.n - 2

    @property
    def tokens_text(self) -> str:
        return f"sequences of at most {self.length} letters"

    @property
    def description(self) -> str:
        return f"induction({self.match}, n = {self.n}, {self.size} letters)"

    def describe(self) -> dict[str, Any]:
        plain = {"kind": self.kind, "letters": self.size, "n": self.n, "length": self.length, "match": self.match}
        return plain | {"sharpness": self.sharpness, "similarity": self.similarity}

    @cached_property
    def formula(self) -> Formula | None:
        """g of the general version."""
        if self.match != "general":
            return None
        names = [f"{block}{k}" for block in "uv" for k in range(1, self.n)]
        return parse_formula(self.similarity, names, "similarity")

    def value(self, letter: int) -> fmpq:
        """v(a) = (a+1)/P, and 0 for no letter."""
        return fmpq(letter + 1, 1 << (self.size - 1).bit_length())

    def blocks(self) -> list[Word]:
        """All k_s: n−1 letters of which the earliest may be missing."""
        return [w + (BLANK,) * (self.n - 1 - j) for j in range(self.n) for w in itertools.product(range(self.size), repeat=j)]

    def questions(self) -> list[Word]:
        """All q_t that count."""
        return list(itertools.product(range(self.size), repeat=self.n - 1))

    @cached_property
    def similarities(self) -> list[list[arb]]:
        """The logits of soft and general, for every q (rows, `questions`) and every k (columns, `blocks`)."""
        with working_precision(BITS):
            return [[self._similarity(q, k) for k in self.blocks()] for q in self.questions()]

    @cached_property
    def table(self) -> tuple[list[list[fmpq]], arb]:
        """The same logits as rationals, rounded to `BITS` bits where they are none, and how far off that is at most."""
        rows, off = list[list[fmpq]](), arb(0)
        with working_precision(2 * BITS):
            for q, balls in zip(self.questions(), self.similarities, strict=True):
                exact = [self._exact_similarity(q, k) for k in self.blocks()]
                rows.append([dyadic(ball, BITS) if value is None else value for value, ball in zip(exact, balls, strict=True)])
                rounded = [abs(ball - arb(v)).upper() for v, ball, known in zip(rows[-1], balls, exact, strict=True) if known is None]
                off = maximum([off, *rounded])
        return rows, off

    def _exact_similarity(self, q: Word, k: Word) -> fmpq | None:
        if self.formula is None:
            return rational(self.sharpness) * sum(a == b for a, b in zip(q, k, strict=True))
        return self.formula.exact(*(self.value(a) for a in (*q, *k)))

    def _similarity(self, q: Word, k: Word) -> arb:
        exact = self._exact_similarity(q, k)
        if exact is not None or self.formula is None:
            return arb(exact)
        return self.formula.at(*(self.value(a) for a in (*q, *k)))

    def letters(self) -> np.ndarray:
        return np.eye(self.size)

    def outside_alphabet(self, tokens: np.ndarray) -> int:
        return int((~self._known(tokens)).sum())

    def _known(self, tokens: np.ndarray) -> np.ndarray:
        return np.isin(tokens, (0, 1)).all(axis=-1) & (tokens.sum(axis=-1) == 1)

    def check_tokens(self, tokens: np.ndarray, source: str) -> None:
        """Every token is a unit vector, and there are no more than the length allows."""
        if tokens.shape[-2] > self.length:
            raise InputError(f"{source} has sequences of {tokens.shape[-2]} tokens, this target has at most {self.length}")
        if not self._known(np.asarray(tokens)).all():
            raise InputError(f"{source} holds tokens that are no letters: letters are the unit vectors of {self.size} coordinates")

    def values(self, xp: Any) -> ArrayMap:
        """Tokens (…, N, A) → y (…, N)."""
        return self._hard(xp) if self.match == "hard" else self._soft(xp)

    def _codes(self, xp: Any, tokens: Any) -> tuple[Any, Any, Any]:
        """Numbers of q_t and k_s, in base A+1 with 0 for no letter, and values v(x_s)."""
        length, base = tokens.shape[-2], self.size + 1
        digits = tokens.argmax(-1) + 1
        padded = xp.concatenate([xp.zeros((*digits.shape[:-1], self.n - 1), digits.dtype), digits], -1)
        back = [padded[..., self.n - 1 - k : self.n - 1 - k + length] for k in range(self.n)]
        question = sum(back[k] * base**k for k in range(self.n - 1))
        key = sum(back[k + 1] * base**k for k in range(self.n - 1))
        return question, key, digits / (1 << (self.size - 1).bit_length())

    def _hard(self, xp: Any) -> ArrayMap:
        def target(tokens: Any) -> Any:
            length = tokens.shape[-2]
            question, key, values = self._codes(xp, tokens)
            t, s = xp.arange(length)[:, None], xp.arange(length)[None, :]
            found = (question[..., :, None] == key[..., None, :]) & (s <= t) & (s >= self.n - 1)
            last = length - 1 - found[..., ::-1].argmax(-1)
            return xp.where(found.any(-1), xp.take_along_axis(values, last, -1), 0.0)

        return target

    def _soft(self, xp: Any) -> ArrayMap:
        base = self.size + 1
        table = np.zeros((base ** (self.n - 1),) * 2)

        def number(word: Word) -> int:
            return sum((a + 1) * base**k for k, a in enumerate(word))

        keys = [number(k) for k in self.blocks()]
        for q, row in zip(self.questions(), self.similarities, strict=True):
            table[number(q), keys] = [float(v) for v in row]

        def target(tokens: Any) -> Any:
            length = tokens.shape[-2]
            question, key, values = self._codes(xp, tokens)
            logits = xp.asarray(table, values.dtype)[question[..., :, None], key[..., None, :]]
            logits = xp.where(xp.arange(length)[:, None] >= xp.arange(length)[None, :], logits, -xp.inf)
            weights = xp.exp(logits - logits.max(-1, keepdims=True))
            return (weights * values[..., None, :]).sum(-1) / weights.sum(-1)

        return target

    def words_at(self, tokens: np.ndarray, t: int) -> list[Word]:
        """What stands at t, t−1, …, 0 and n−1 steps back from there: n letters each."""
        letters = [int(a) for a in np.asarray(tokens).argmax(-1)]
        return [tuple(letters[j - k] if j >= k else BLANK for k in range(self.n)) for j in range(t, -1, -1)]

    def exact_value(self, tokens: np.ndarray, t: int = -1) -> arb:
        words = self.words_at(tokens, t % len(tokens))
        q = words[0][:-1]
        if self.match == "hard":
            return arb(next((self.value(w[0]) for w in words if w[1:] == q), fmpq(0)))
        row = dict(zip(self.blocks(), self.similarities[self.questions().index(q)], strict=True))
        with working_precision(BITS):
            weights = [row[w[1:]].exp() for w in words]
            return sum((e * self.value(w[0]) for e, w in zip(weights, words, strict=True)), arb(0)) / sum(weights, arb(0))

    @property
    def reached(self) -> tuple[fmpq, fmpq]:
        """The least and the largest value of y that occur."""
        return (fmpq(0) if self.match == "hard" else self.value(0)), self.value(self.size - 1)

    def constant_error(self, samples: np.ndarray | None = None) -> float:
        """Half the spread of all values: sequences of one letter have its value, and hard has 0 as well."""
        least, most = self.reached
        return nearest((most - least) / 2)

    def word_tokens(self, letters: Sequence[int] | np.ndarray) -> np.ndarray:
        """Letters (…, N) in the order of time as tokens (…, N, A)."""
        return self.letters()[np.asarray(letters, dtype=int)]


def induction(letters: int, **parameters: Any) -> InductionTarget:
    """The target of the task's parameters."""
    return InductionTarget(size=letters, **parameters)


TASK = Task(
    kind="induction",
    brief="What followed earlier occurrences of the last n-1 letters.",
    help="Letters are unit vectors; the output is the value (a+1)/P of the letter a that followed the last occurrence of the current n-1 "
    "letters (match hard, 0 where there was none), or a mean over all earlier letters, weighed by how alike the letters before them are.",
    example={"letters": 4, "n": 3, "length": 64},
    options=InductionTask,
    make=induction,
)
