"""Kernels that move with the token: y_t = Σ_s ρ(s − g(x_t)) x_{t−s} (shift) or Σ_s ρ(s/g(x_t)) x_{t−s} (stretch).

Tokens are letters of a finite alphabet in [−1, 1]; g gives every letter a whole number, 1 ≤ g ≤ T. A shifted kernel is summed over s ≥ 0,
so ρ is needed at all whole numbers from −T on: where ρ(s) is a formula, it is taken as it is, nothing is cut off at s = g. A stretched
kernel is summed over s ≥ 1. Tokens before an array are 0.
"""

import re
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, Literal

import numpy as np
from flint import arb

from analyzer.errors import InputError
from analyzer.kernels.memory_kernels import MemoryKernel, parse_kernel
from analyzer.numbers.exact import working_precision
from analyzer.options import Options, option
from analyzer.targets.protocol import ArrayMap, TokenTarget, half_spread, shortened
from analyzer.targets.task import Task

Motion = Literal["shift", "stretch"]
MAX_LETTERS, MAX_LAG = 64, 64
BITS = 256
SHOWN = 96
"""Tokens of the sequences whose values are looked at for the error of a constant."""


@dataclass(frozen=True)
class BeyondZero(MemoryKernel):
    """A kernel on s ≥ 1: whatever its formula says at s = 0, it counts as 0 there."""

    @property
    def at_zero(self) -> bool:
        return False


@dataclass(frozen=True)
class MovingKernel(TokenTarget):
    """y_t = Σ_s ρ(s − g(x_t)) x_{t−s} or Σ_s ρ(s/g(x_t)) x_{t−s}; `lags` holds g of every letter."""

    kind: ClassVar[str] = "adaptive-kernels"
    plural: ClassVar[str] = "kernels that move with the token"

    alphabet: tuple[float, ...]
    lags: tuple[int, ...]
    rho: str
    motion: Motion = "shift"

    def __post_init__(self) -> None:
        if not 1 <= len(self.alphabet) <= MAX_LETTERS or len(set(self.alphabet)) < len(self.alphabet):
            raise InputError(f"the alphabet has {len(self.alphabet)} letters; give between 1 and {MAX_LETTERS}, each once")
        for letter in self.alphabet:
            if not abs(letter) <= 1 or float(np.float32(letter)) != letter:
                raise InputError(f"the alphabet holds {letter}; letters lie in [-1, 1] and are numbers that float32 holds, such as 0.5")
        if not any(self.alphabet):
            raise InputError("the alphabet has only the letter 0, with which every sum is 0")
        if len(self.lags) != len(self.alphabet) or not all(1 <= lag <= MAX_LAG for lag in self.lags):
            raise InputError(f"lags are {', '.join(map(str, self.lags))}; give one for every letter, from 1 to {MAX_LAG}")
        for lag in {*self.lags, self.longest + (self.motion == "shift")}:  # the last one asks for ρ(−T)
            self.moved(lag)

    @property
    def dim(self) -> int:
        return 1

    @property
    def length(self) -> None:
        return None

    @property
    def longest(self) -> int:
        """T: the largest value of g."""
        return max(self.lags)

    @property
    def size(self) -> float:
        """The largest |letter|."""
        return max(abs(letter) for letter in self.alphabet)

    @property
    def description(self) -> str:
        return shortened(self.kind, [self.rho, self.motion, f"g up to {self.longest}"])

    def moved(self, lag: int, beyond: bool = False) -> MemoryKernel:
        """ρ(s − g) or ρ(s/g) as a function of s; on s ≥ 1 only for stretched kernels, and where that is asked for (`beyond`)."""
        return _moved(self.rho, self.motion, lag, beyond or self.motion == "stretch")

    def best_letter(self, weight: float) -> float:
        """The letter that makes the most of a weight."""
        return max(self.alphabet) if weight > 0 else min(self.alphabet)

    def letters(self) -> np.ndarray:
        return np.array(self.alphabet)[:, None]

    def outside_alphabet(self, tokens: np.ndarray) -> int:
        return int((~np.isin(tokens, self.alphabet)).sum())

    def check_tokens(self, tokens: np.ndarray, source: str) -> None:
        if self.outside_alphabet(tokens):
            raise InputError(f"{source} holds tokens that are no letters; the alphabet is {', '.join(map(str, self.alphabet))}")

    def values(self, xp: Any) -> ArrayMap:
        """Tokens (…, N, 1) → y (…, N)."""

        def target(tokens: Any) -> Any:
            count = tokens.shape[-2]
            rows = xp.asarray(np.array([_row(self.moved(lag), count) for lag in self.lags]))[self.nearest_letters(tokens, xp)]  # (…, N, S)
            place = np.arange(count)[:, None] - np.arange(count)  # t − s
            seen = tokens[..., 0][..., np.maximum(place, 0)] * xp.asarray(place >= 0)
            return (rows * seen).sum(-1)

        return target

    def exact_value(self, tokens: np.ndarray, t: int = -1) -> arb:
        recent = np.asarray(tokens, dtype=float)[: t % len(tokens) + 1, 0][::-1]
        with working_precision(BITS):
            weights = self.moved(self.lags[self.alphabet.index(float(recent[0]))]).values(0, len(recent))
            return sum((w * arb(float(x)) for w, x in zip(weights, recent, strict=True)), arb(0))

    @cached_property
    def _spread(self) -> float:
        with working_precision(BITS):
            found = []
            for letter, lag in zip(self.alphabet, self.lags, strict=True):
                first, *weights = self.moved(lag).values(0, SHOWN)
                for sign in (1, -1):
                    best = [w * arb(self.best_letter(sign * float(w))) for w in weights]
                    found.append(sum(best, first * arb(letter)))
            return half_spread(found)

    def constant_error(self, samples: np.ndarray | None = None) -> float:
        """Half the spread of the largest and the least values of sequences of some length."""
        return self._spread

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "alphabet": list(self.alphabet), "lags": list(self.lags), "rho": self.rho, "motion": self.motion}


@cache
def _moved(text: str, motion: Motion, lag: int, beyond: bool) -> MemoryKernel:
    """The kernel with s − g or s/g in place of s."""
    parse_kernel(text)  # what is wrong with the formula itself is said of the formula
    inside = f"(s-{lag})" if motion == "shift" else f"(s/{lag})"
    found = parse_kernel(re.sub(r"\bs\b", inside, text))
    return BeyondZero(found.text, found.terms) if beyond else found


@cache
def _row(kernel: MemoryKernel, count: int) -> list[float]:
    with working_precision(BITS):
        return [float(value) for value in kernel.values(0, count)]


@dataclass(frozen=True)
class MovingKernelTask(Options):
    """A kernel, and how it moves."""

    alphabet: tuple[float, ...] = option((-1.0, 1.0), "the letters, in [-1, 1]")
    lags: tuple[int, ...] = option((1, 2), "g of every letter")
    rho: str = option("exp(-s/2)", "the kernel ρ(s)")
    motion: Motion = option("shift", "ρ(s - g), which lin heads follow, or ρ(s/g), which log heads follow")


TASK = Task(
    kind="adaptive-kernels",
    brief="kernels that a token shifts or stretches: sums of ρ(s - g(x_t)) x_{t-s} or ρ(s/g(x_t)) x_{t-s}",
    help="Tokens are letters; every letter has a number g, which moves the kernel with which the past is summed.",
    example={"lags": (1, 3), "rho": "exp(-s**2/8)"},
    options=MovingKernelTask,
    make=MovingKernel,
)
