"""Functions of a whole sequence: y = F(x_1, …, x_N) at every position, letters x_s of a finite alphabet.

Tokens carry their positions, as in [JL], where x_s lies in a domain of its own: token s is the pair (s/P, x_s), P the least power of 2
that is no less than N, so that every float type holds s/P exactly. The order in which the pairs stand does not matter.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.language.formulas import Formula, parse_formula
from analyzer.numbers.exact import dyadic, nearest, to_text, working_precision
from analyzer.targets.fixed import alphabet_of
from analyzer.targets.protocol import ArrayMap, TokenTarget, as_tuple, half_spread, shortened

MAX_SEQUENCES = 2**14
"""Sequences that are gone through one by one."""
MAX_LENGTH = 64
BITS = 256


@dataclass(frozen=True)
class SequenceTarget(TokenTarget):
    """y = F(x_1, …, x_N) at every position; `symbols` are the letters, increasing."""

    kind: ClassVar[str] = "sequence"
    plural: ClassVar[str] = "functions of a sequence"

    formula: Formula
    symbols: tuple[fmpq, ...]

    def __post_init__(self) -> None:
        if len(self.symbols) ** self.length > MAX_SEQUENCES:
            raise InputError(
                f"{len(self.symbols)} letters at {self.length} positions are {len(self.symbols) ** self.length} sequences; "
                f"at most {MAX_SEQUENCES} are gone through"
            )
        for word, value in zip(self.words(), self.values_in_balls, strict=True):
            if not value.is_finite():
                raise InputError(f"formula {self.formula.text[:60]!r} has no finite real value at {self.shown(word)}")
        if self.constant_error() == 0:
            raise InputError(f"formula {self.formula.text[:60]!r} does not tell any two sequences apart: there is nothing to represent")

    @property
    def length(self) -> int:
        return len(self.formula.variables)

    @property
    def dim(self) -> int:
        return 2

    @property
    def alphabet(self) -> None:
        """Tokens are pairs of a position and a letter: no letters of a coordinate, and no tokens that may stand anywhere."""
        return None

    @property
    def signed(self) -> bool:
        return False

    @property
    def tokens_text(self) -> str:
        return f"sequences of {self.length} letters"

    @property
    def description(self) -> str:
        return shortened(self.kind, [self.formula.text, f"{len(self.symbols)} letters"])

    @property
    def positions(self) -> tuple[fmpq, ...]:
        """s/P for s = 1, …, N."""
        whole = 1 << (self.length - 1).bit_length()
        return tuple(fmpq(s, whole) for s in range(1, self.length + 1))

    def words(self) -> list[tuple[int, ...]]:
        """All sequences, as places of their letters in the alphabet."""
        return list(itertools.product(range(len(self.symbols)), repeat=self.length))

    def shown(self, word: Sequence[int]) -> str:
        """A sequence for people, letter by letter."""
        return ", ".join(f"x{s} = {self.symbols[i]}" for s, i in enumerate(word, start=1))

    @cached_property
    def values_in_balls(self) -> list[arb]:
        """F of every sequence."""
        with working_precision(BITS):
            return [self.formula.at(*(self.symbols[i] for i in word)) for word in self.words()]

    @cached_property
    def table(self) -> list[fmpq]:
        """F of every sequence where it is rational, else the nearest rational of `BITS` bits."""
        exact = [self.formula.exact(*(self.symbols[i] for i in word)) for word in self.words()]
        with working_precision(BITS):
            return [dyadic(ball, BITS) if value is None else value for value, ball in zip(exact, self.values_in_balls, strict=True)]

    @cached_property
    def table_error(self) -> arb:
        """How far `table` is from F, from above, with room for other ways to enclose F: 0 where F is rational."""
        exact = (self.formula.exact(*(self.symbols[i] for i in word)) for word in self.words())
        worst = arb(0)
        with working_precision(BITS):
            for value, stored, ball in zip(exact, self.table, self.values_in_balls, strict=True):
                if value is None:
                    worst = worst.max(2 * abs(ball - arb(stored)).upper())
        return worst

    def tokens(self, words: Sequence[Sequence[int]] | np.ndarray) -> np.ndarray:
        """Sequences of places in the alphabet as tokens (…, N, 2)."""
        places, letters = (np.array([nearest(v) for v in part]) for part in (self.positions, self.symbols))
        chosen = letters[np.asarray(words, dtype=int)]
        return np.stack([np.broadcast_to(places, chosen.shape), chosen], axis=-1)

    def word_of(self, tokens: np.ndarray) -> tuple[int, ...]:
        """The letters of tokens (N, 2) in the order of their positions."""
        ordered = tokens[np.argsort(tokens[:, 0], kind="stable"), 1]
        letters = np.array([nearest(v) for v in self.symbols])
        return tuple(int(i) for i in np.abs(ordered[:, None] - letters).argmin(axis=1))

    def check_tokens(self, tokens: np.ndarray, source: str) -> None:
        """Every position stands once, with a letter, which is the float64 nearest to it: near a letter nothing is certified."""
        if tokens.shape[-2] != self.length:
            raise InputError(f"{source} has sequences of {tokens.shape[-2]} tokens, this target has {self.length}")
        places, letters = (np.array([nearest(v) for v in part]) for part in (self.positions, self.symbols))
        if not (np.sort(tokens[..., 0], axis=-1) == places).all():
            shown = ", ".join(map(str, self.positions))
            raise InputError(f"{source} holds tokens whose first coordinates are not the positions {shown}, each once")
        if not np.isin(tokens[..., 1].astype(float), letters).all():
            raise InputError(f"{source} holds letters outside the alphabet {', '.join(map(str, self.symbols))}")

    def draw(self, rng: np.random.Generator, shape: tuple[int, int], signs: bool = False) -> np.ndarray:
        """Random sequences (batch, N, 2) in the order of the positions; their length is the target's own."""
        return self.tokens(rng.integers(len(self.symbols), size=(shape[0], self.length)))

    def values(self, xp: Any) -> ArrayMap:
        """Tokens (…, N, 2) → F at every position, (…, N)."""
        run = self.formula.compiled(xp)

        def target(tokens: Any) -> Any:
            order = xp.argsort(tokens[..., 0], axis=-1)
            letters = xp.take_along_axis(tokens[..., 1], order, axis=-1)
            value = run(*(letters[..., s] for s in range(self.length)))
            return xp.broadcast_to(xp.asarray(value)[..., None], tokens.shape[:-1])

        return target

    def exact_value(self, tokens: np.ndarray, t: int = -1) -> arb:
        """F of tokens (N, 2); it is the same at every position."""
        with working_precision(BITS):
            return self.formula.at(*(self.symbols[i] for i in self.word_of(np.asarray(tokens, dtype=float))))

    def constant_error(self, samples: np.ndarray | None = None) -> float:
        """Half the spread of all values."""
        return half_spread(self.values_in_balls)

    def describe(self) -> dict[str, Any]:
        """The target as plain data (inverse of `sequence_from_dict`)."""
        return {
            "kind": self.kind,
            "formula": self.formula.text,
            "alphabet": [to_text(v) for v in self.symbols],
            "length": self.length,
        }


def sequence_from_dict(data: dict[str, Any], source: str) -> SequenceTarget:
    """A function of a sequence from parsed TOML or JSON."""
    unknown = set(data) - {"kind", "formula", "alphabet", "length"}
    if unknown:
        raise InputError(f"{source}: unknown key {sorted(unknown)[0]!r}")
    length = data.get("length")
    if isinstance(length, bool) or not isinstance(length, int) or not 1 <= length <= MAX_LENGTH:
        raise InputError(f"{source}: length is {str(length)[:40]!r}; it must be a whole number from 1 to {MAX_LENGTH}")
    letters = alphabet_of(as_tuple(data.get("alphabet"), f"{source}: the alphabet", "letters such as 0, 1"))
    return SequenceTarget(parse_formula(data.get("formula"), [f"x{s}" for s in range(1, length + 1)], "formula"), letters)
