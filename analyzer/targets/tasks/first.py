"""First: does the sequence begin with a 1?

Bits x_0, …, x_{n−1} ∈ {0, 1}, n of any size from 1 to `longest`; at every position y = x_0.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.options import Options, option
from analyzer.targets.protocol import ArrayMap, TokenTarget
from analyzer.targets.task import Task
from analyzer.targets.tasks.parity import MOST_BITS


@dataclass(frozen=True)
class FirstTask(Options):
    """The longest sequence of bits."""

    longest: int = option(64, "the most bits of a sequence; all lengths from 1 up to it are meant", least=1, most=MOST_BITS)


@dataclass(frozen=True)
class FirstTarget(TokenTarget):
    """y = x_0 at every position."""

    kind: ClassVar[str] = "first"
    plural: ClassVar[str] = "first bits"

    longest: int = 64

    @property
    def dim(self) -> int:
        return 1

    @property
    def domain(self) -> tuple[int, int]:
        return 0, 1

    @property
    def alphabet(self) -> tuple[fmpq, ...]:
        return fmpq(0), fmpq(1)

    @property
    def length(self) -> None:
        return None

    @property
    def tokens_text(self) -> str:
        return f"any 1 to {self.longest} bits"

    @property
    def description(self) -> str:
        return f"first({self.longest})"

    def letters(self) -> np.ndarray:
        return np.array([0.0, 1.0])

    def outside_alphabet(self, tokens: np.ndarray) -> int:
        return int((~np.isin(tokens, (0, 1))).sum())

    def check_tokens(self, tokens: np.ndarray, source: str) -> None:
        """Between 1 and `longest` bits."""
        if not 1 <= tokens.shape[-2] <= self.longest:
            raise InputError(f"{source} has arrays of {tokens.shape[-2]} tokens; the first of 1 to {self.longest} bits is asked for")
        if self.outside_alphabet(tokens):
            raise InputError(f"{source} holds other tokens than the bits 0 and 1")

    def draw(self, rng: np.random.Generator, shape: tuple[int, int], signs: bool = False) -> np.ndarray:
        """Random bits (batch, N, 1); no more than there may be."""
        return rng.integers(2, size=(shape[0], min(shape[1], self.longest), 1)).astype(float)

    def values(self, xp: Any) -> ArrayMap:
        return lambda tokens: xp.broadcast_to(tokens[..., :1, 0], tokens.shape[:-1])

    def exact_value(self, tokens: np.ndarray, t: int = -1) -> arb:
        return arb(int(np.asarray(tokens)[0, 0]))

    def constant_error(self, samples: np.ndarray | None = None) -> float:
        """Half of 1 − 0."""
        return 0.5

    def describe(self) -> dict[str, Any]:
        """The target as plain data."""
        return {"kind": self.kind, "longest": self.longest}


TASK = Task(
    kind="first",
    brief="does the sequence begin with a 1? at every length",
    help="the first bit, at every position and for every length up to the longest",
    example={"longest": 64},
    options=FirstTask,
    make=FirstTarget,
)
