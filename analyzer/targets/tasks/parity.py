"""Parity: is the number of ones even?

A begin token, 0, stands at position 0 of the array, and bits x_1, …, x_n ∈ {0, 1} follow it, n of any size from 1 to `longest`. At every
position y = 1 if the number of ones k = Σ_i x_i is even and y = −1 if it is odd: y = Π_i (1 − 2x_i).
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from flint import arb

from analyzer.errors import InputError
from analyzer.options import Options, option
from analyzer.targets.protocol import ArrayMap, TokenTarget
from analyzer.targets.task import Task

MOST_BITS = 2**14
"""Rows of a table of positions that are stored; a pass over so many tokens compares 2^28 pairs."""


@dataclass(frozen=True)
class ParityTask(Options):
    """The longest sequence of bits."""

    longest: int = option(64, "the most bits of a sequence; all lengths from 1 up to it are meant", least=1, most=MOST_BITS)


@dataclass(frozen=True)
class ParityTarget(TokenTarget):
    """y = Π_i (1 − 2x_i) at every position, for the bits after the begin token."""

    kind: ClassVar[str] = "parity"
    plural: ClassVar[str] = "parities"

    longest: int = 64

    @property
    def dim(self) -> int:
        return 1

    @property
    def domain(self) -> tuple[int, int]:
        return 0, 1

    @property
    def alphabet(self) -> None:
        """The begin token is none of the bits, so tokens may not stand anywhere."""
        return None

    @property
    def signed(self) -> bool:
        return False

    @property
    def length(self) -> None:
        return None

    @property
    def tokens_text(self) -> str:
        return f"a begin token 0 and any 1 to {self.longest} bits"

    @property
    def description(self) -> str:
        return f"parity({self.longest})"

    def tokens(self, bits: Any) -> np.ndarray:
        """Bits (…, n) as tokens (…, n + 1, 1)."""
        given = np.asarray(bits, dtype=float)
        return np.concatenate([np.zeros((*given.shape[:-1], 1)), given], axis=-1)[..., None]

    def check_tokens(self, tokens: np.ndarray, source: str) -> None:
        """A begin token, and between 1 and `longest` bits after it."""
        if not 2 <= tokens.shape[-2] <= self.longest + 1:
            raise InputError(
                f"{source} has arrays of {tokens.shape[-2]} tokens; parity is that of 1 to {self.longest} bits after a begin token"
            )
        if (tokens[..., 0, :] != 0).any() or not np.isin(tokens, (0, 1)).all():
            raise InputError(f"{source} holds other tokens than a begin token 0 and bits 0 and 1 after it")

    def draw(self, rng: np.random.Generator, shape: tuple[int, int], signs: bool = False) -> np.ndarray:
        """Random bits after the begin token, (batch, N, 1); no more than there may be."""
        return self.tokens(rng.integers(2, size=(shape[0], max(1, min(shape[1] - 1, self.longest)))))

    def values(self, xp: Any) -> ArrayMap:
        def target(tokens: Any) -> Any:
            signs = (1 - 2 * tokens[..., 0]).prod(axis=-1, keepdims=True)
            return xp.broadcast_to(signs, tokens.shape[:-1])

        return target

    def exact_value(self, tokens: np.ndarray, t: int = -1) -> arb:
        return arb(1 - 2 * (int(np.asarray(tokens).sum()) % 2))

    def constant_error(self, samples: np.ndarray | None = None) -> float:
        """Half of 1 − (−1)."""
        return 1.0

    def describe(self) -> dict[str, Any]:
        """The target as plain data."""
        return {"kind": self.kind, "longest": self.longest}


TASK = Task(
    kind="parity",
    brief="is the number of ones even? at every length",
    help="1 if the number of ones among the bits is even, else -1, for every length up to the longest",
    example={"longest": 64},
    options=ParityTask,
    make=ParityTarget,
)
