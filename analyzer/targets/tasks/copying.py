"""Copying: a string, marks, and the string again, letter by letter.

The array is m … m w_1 … w_L m … m w_1 … w_{L−1}, with n−1 marks m each time, N = 2(n−1) + 2L − 1 tokens; the mark is one more letter, and
letters are coded and valued as in induction (`analyzer.targets.tasks.induction`). From the last mark on, where the array has shown
w_1 … w_i again, the output is the value of w_{i+1}: y_t = v(x_{t−L−n+2}). No n−1 letters may occur twice in w. Such strings exist up to
L = A^{n−1} + n − 2 (de Bruijn), and one is drawn as a piece of a random Eulerian circuit.
"""

import itertools
from collections import defaultdict
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.options import Options, option
from analyzer.targets.protocol import ArrayMap
from analyzer.targets.task import Task
from analyzer.targets.tasks.induction import MAX_BLOCKS, InductionTarget


@dataclass(frozen=True)
class CopyingTask(Options):
    """The parameters of a copying target."""

    letters: int = option(4, "letters of the alphabet, without the mark", least=2, most=15)
    n: int = option(3, "n-grams: n-1 letters are compared, the n-th one is copied", least=2, most=6)
    string: int = option(16, "letters of the string", least=1, most=512)

    def check(self) -> None:
        if (self.letters + 1) ** self.n > MAX_BLOCKS:
            raise InputError(f"{self.letters} letters and a mark make more than {MAX_BLOCKS} words of {self.n}, too many to go through")
        longest = self.letters ** (self.n - 1) + self.n - 2
        if self.string > longest:
            raise InputError(f"strings of {self.letters} letters in which no {self.n - 1} of them occur twice end at {longest} letters")


@dataclass(frozen=True)
class CopyingTarget(InductionTarget):
    """y_t = the next letter of the string, from the last mark on; `size` counts the mark, which is the last letter."""

    kind: ClassVar[str] = "copying"
    plural: ClassVar[str] = "copies"

    string: int = 16

    @property
    def settled(self) -> int:
        """The last mark."""
        return 2 * (self.n - 1) + self.string - 1

    @property
    def tokens_text(self) -> str:
        return f"strings of {self.string} letters in which no {self.n - 1} letters occur twice"

    @property
    def description(self) -> str:
        return f"copying(n = {self.n}, {self.string} of {self.size - 1} letters)"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "letters": self.size - 1, "n": self.n, "string": self.string}

    def marked(self, strings: np.ndarray) -> np.ndarray:
        """Strings (batch, L) as letters of whole arrays (batch, N)."""
        marks = np.full((len(strings), self.n - 1), self.size - 1)
        return np.concatenate([marks, strings, marks, strings[:, :-1]], axis=1)

    def draw(self, rng: np.random.Generator, shape: tuple[int, int], signs: bool = False) -> np.ndarray:
        """Random strings, as arrays of the target's own length."""
        return self.letters()[self.marked(np.array([self._string(rng) for _ in range(shape[0])]))]

    def _string(self, rng: np.random.Generator) -> list[int]:
        """A piece of a random Eulerian circuit of the graph whose edges are the n−1 letters that may follow each other (Hierholzer)."""
        left = defaultdict[tuple[int, ...], list[int]](lambda: rng.permutation(self.size - 1).tolist())
        path, circuit = [((0,) * (self.n - 2), -1)], list[int]()
        while path:
            node, letter = path[-1]
            if left[node]:
                following = left[node].pop()
                path.append(((*node, following)[1:], following))
            else:
                path.pop()
                circuit.append(letter)
        edges = circuit[-2::-1]  # the start has no letter
        start = int(rng.integers(len(edges)))
        return [edges[(start + i) % len(edges)] for i in range(self.string)]

    def check_tokens(self, tokens: np.ndarray, source: str) -> None:
        """Marks and strings stand where they should, and no n−1 letters occur twice in a string."""
        if tokens.shape[-2] != self.length:
            raise InputError(f"{source} has sequences of {tokens.shape[-2]} tokens, this target has {self.length}")
        super().check_tokens(tokens, source)
        arrays = np.asarray(tokens).argmax(-1).reshape(-1, self.length)
        strings = arrays[:, self.n - 1 : self.n - 1 + self.string]
        if (strings == self.size - 1).any() or (self.marked(strings) != arrays).any():
            raise InputError(f"{source} is not marks, a string, marks, and the string without its last letter")
        for string in strings:
            grams = [tuple(string[i : i + self.n - 1]) for i in range(self.string - self.n + 2)]
            if len(set(grams)) < len(grams):
                raise InputError(f"{source} has a string in which {self.n - 1} letters occur twice")

    def values(self, xp: Any) -> ArrayMap:
        """Tokens (…, N, A+1) → y (…, N): what stood L + n − 2 tokens before."""
        back = self.string + self.n - 2

        def target(tokens: Any) -> Any:
            values = (tokens.argmax(-1) + 1) / (1 << (self.size - 1).bit_length())
            return xp.concatenate([xp.zeros_like(values[..., :back]), values[..., : values.shape[-1] - back]], -1)

        return target

    def exact_value(self, tokens: np.ndarray, t: int = -1) -> arb:
        return arb(self.value(int(np.asarray(tokens)[t % len(tokens) - self.string - self.n + 2].argmax())))

    @property
    def reached(self) -> tuple[fmpq, fmpq]:
        return self.value(0), self.value(self.size - 2)

    def all_strings(self) -> list[tuple[int, ...]]:
        """Every admissible string; for small ones."""
        found = []
        for string in itertools.product(range(self.size - 1), repeat=self.string):
            grams = [string[i : i + self.n - 1] for i in range(self.string - self.n + 2)]
            if len(set(grams)) == len(grams):
                found.append(string)
        return found


def copying(letters: int, n: int, string: int) -> CopyingTarget:
    """The target of the task's parameters."""
    return CopyingTarget(size=letters + 1, n=n, length=2 * (n - 1) + 2 * string - 1, match="copy", string=string)


TASK = Task(
    kind="copying",
    brief="A string, marks, and the string again, letter by letter.",
    help="The array is n-1 marks, a string in which no n-1 letters occur twice, n-1 marks, and the string again; from the last mark on the "
    "output is the value (a+1)/P of the next letter.",
    example={"letters": 4, "n": 3, "string": 16},
    options=CopyingTask,
    make=copying,
)
