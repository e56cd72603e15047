"""k-hop induction: y_t is the letter that k jumps back lead to, each to what followed the last earlier occurrence of a letter.

Tokens x_0, …, x_{N−1} are letters σ, 2σ, …, Aσ, where σ = 2^{−⌈log₂A⌉}, so that every float type holds them and 0 is no letter. The jump
from position t leads to

    find_1(t) = the largest j with 1 ≤ j ≤ t and x_{j−1} = x_t,   or 0 if there is none,        find_k(t) = find_1(find_{k−1}(t)),

and y_t = x_{find_k(t)}, or 0 where find_k(t) = 0. Position 0 follows nothing: find_1(0) = 0, so that `undefined` is absorbing, and no
jump leads to the first token otherwise. With k = 1 this is the induction head; j = t is allowed, as where a letter is repeated.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.numbers.exact import nearest
from analyzer.options import Options, option
from analyzer.ranges import check_range
from analyzer.targets.protocol import ArrayMap, TokenTarget
from analyzer.targets.task import Task

MAX_HOPS, MAX_SIZE, MAX_LENGTH = 1024, 64, 1024


@dataclass(frozen=True)
class KHopTask(Options):
    """The parameters of k-hop induction.

    >>> import lemmaformer as lf
    >>> lf.task("k-hop", hops=4, size=3, length=16).description
    'k-hop(4 hops, 3 letters, 16 tokens)'
    """

    hops: int = option(2, "k, the jumps back", least=1, most=MAX_HOPS)
    size: int = option(4, "A, the letters of the alphabet", least=2, most=MAX_SIZE)
    length: int = option(16, "N, the tokens of the longest sequence", least=2, most=MAX_LENGTH)


@dataclass(frozen=True)
class KHopTarget(TokenTarget):
    """y_t = x_{find_k(t)} for sequences of at most `length` tokens of `size` letters."""

    kind: ClassVar[str] = "k-hop"
    plural: ClassVar[str] = "k-hop inductions"

    hops: int
    size: int
    length: int

    def __post_init__(self) -> None:
        for name, least, most in (("hops", 1, MAX_HOPS), ("size", 2, MAX_SIZE), ("length", 2, MAX_LENGTH)):
            check_range(name, getattr(self, name), least, most)

    @property
    def dim(self) -> int:
        return 1

    @property
    def unit(self) -> fmpq:
        """σ, the first letter and the distance of two."""
        return fmpq(1, 1 << (self.size - 1).bit_length())

    @property
    def alphabet(self) -> tuple[fmpq, ...]:
        """σ, 2σ, …, Aσ."""
        return tuple(self.unit * number for number in range(1, self.size + 1))

    def letters(self) -> np.ndarray:
        """The alphabet as floats, (A,)."""
        return np.array([nearest(letter) for letter in self.alphabet])

    @property
    def description(self) -> str:
        hops = "1 hop" if self.hops == 1 else f"{self.hops} hops"
        return f"{self.kind}({hops}, {self.size} letters, {self.length} tokens)"

    def describe(self) -> dict[str, Any]:
        """The target as plain data."""
        return {"kind": self.kind, "hops": self.hops, "size": self.size, "length": self.length}

    def outside_alphabet(self, tokens: np.ndarray) -> int:
        """How many tokens are no letters."""
        return int((~np.isin(tokens, self.letters()).all(axis=-1)).sum())

    def check_tokens(self, tokens: np.ndarray, source: str) -> None:
        """Letters only, and no more of them than there are positions."""
        if tokens.shape[-2] > self.length:
            raise InputError(f"{source} has sequences of {tokens.shape[-2]} tokens, this target has positions for {self.length}")
        if self.outside_alphabet(tokens):
            raise InputError(f"{source} holds tokens outside the alphabet {', '.join(map(str, self.alphabet))}")

    def values(self, xp: Any) -> ArrayMap:
        """Tokens (…, N, 1) → y (…, N): all pairs of positions are compared once, then jumps are doubled."""

        def target(tokens: Any) -> Any:
            letters = self.nearest_letters(tokens, xp)[..., 0]
            places = xp.arange(letters.shape[-1])
            follows = (letters[..., :, None] == xp.roll(letters, 1, -1)[..., None, :]) & (places >= 1) & (places <= places[:, None])
            jump = xp.where(follows, places, 0).max(-1)
            found = xp.broadcast_to(places, jump.shape)
            for bit in range(self.hops.bit_length()):
                if self.hops >> bit & 1:
                    found = xp.take_along_axis(jump, found, -1)
                jump = xp.take_along_axis(jump, jump, -1)
            return xp.where(found > 0, xp.take_along_axis(tokens[..., 0], found, -1), 0)

        return target

    def find(self, letters: list[int], t: int) -> int:
        """find_k(t), jump by jump."""
        for _ in range(self.hops):
            t = next((j for j in range(t, 0, -1) if letters[j - 1] == letters[t]), 0)
        return t

    def exact_value(self, tokens: np.ndarray, t: int = -1) -> arb:
        """y at position t of tokens (N, 1)."""
        letters = [int(i) for i in self.nearest_letters(np.asarray(tokens, dtype=float), np)[:, 0]]
        found = self.find(letters, t % len(letters))
        return arb(self.alphabet[letters[found]]) if found else arb(0)

    def constant_error(self, samples: np.ndarray | None = None) -> float:
        """Half the spread of all values: 0 at the first token, Aσ from the second one on where the last letter is repeated."""
        return nearest(self.alphabet[-1] / 2)


TASK = Task(
    kind="k-hop",
    brief="k jumps back, each to what followed the last earlier occurrence of a letter",
    help="y_t = x_{find_k(t)}: find_1(t) is the position after the last earlier occurrence of x_t, find_k its k-th iterate, y_t = 0 where "
    "that is undefined. Pointer doubling needs ⌈log₂k⌉ + 2 layers, one jump per layer k + 1.",
    example={"hops": 4, "length": 32},
    options=KHopTask,
    make=KHopTarget,
)
