"""Addition: y_t is digit t of a + b, for two numbers whose digits arrive in pairs, the least significant ones first.

Token t is the pair (a_t, b_t)/16 of digits in base B ≤ 16, exact in every float type. Two numbers of n digits are n + 1 tokens: the last
pair is (0, 0) in an addition, and y_n is the last carry. Any pair may stand there, so a sequence is a sum of two numbers of n + 1 digits
modulo B^{n+1}, and causal: y_t = (a_t + b_t + c_t) mod B with the carry c_0 = 0, c_{t+1} = 1{a_t + b_t + c_t ≥ B}.
"""

from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.options import Options, option
from analyzer.targets.protocol import ArrayMap, TokenTarget
from analyzer.targets.task import Task

SCALE = 16
"""Digits are stored as sixteenths."""
MAX_DIGITS = 64


@dataclass(frozen=True)
class AdditionTask(Options):
    """The sum of two numbers, digit by digit.

    >>> import lemmaformer as lf
    >>> lf.task("addition", digits=3).length
    4
    """

    digits: int = option(10, "n, digits of each number", least=1, most=MAX_DIGITS)
    base: int = option(10, "B, the base of the digits", least=2, most=SCALE)


@dataclass(frozen=True)
class AdditionTarget(TokenTarget):
    """y_t = (a_t + b_t + c_t) mod B at n + 1 positions."""

    kind: ClassVar[str] = "addition"
    plural: ClassVar[str] = "sums of two numbers"

    digits: int = 10
    base: int = 10

    @property
    def dim(self) -> int:
        return 2

    @property
    def length(self) -> int:
        return self.digits + 1

    @property
    def alphabet(self) -> tuple[fmpq, ...]:
        """The digits as letters of every coordinate."""
        return tuple(fmpq(digit, SCALE) for digit in range(self.base))

    def letters(self) -> np.ndarray:
        return np.arange(self.base) / SCALE

    @property
    def tokens_text(self) -> str:
        return f"pairs of digits in base {self.base}, {self.length} of them"

    @property
    def description(self) -> str:
        return f"addition({self.digits} digits{'' if self.base == 10 else f' in base {self.base}'})"

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "digits": self.digits, "base": self.base}

    def outside_alphabet(self, tokens: np.ndarray) -> int:
        return int((~np.isin(tokens, self.letters().astype(tokens.dtype))).any(axis=-1).sum())

    def check_tokens(self, tokens: np.ndarray, source: str) -> None:
        """Pairs of digits, at most n + 1 of them: beyond that carries may be lost."""
        if tokens.shape[-2] > self.length:
            raise InputError(f"{source} has {tokens.shape[-2]} pairs of digits; this target has {self.length}, the last one for the carry")
        if self.outside_alphabet(tokens):
            raise InputError(f"{source} holds tokens that are no pairs of digits 0/{SCALE} … {self.base - 1}/{SCALE}")

    def values(self, xp: ModuleType) -> ArrayMap:
        """The pupil's way: column by column, with the carry in mind."""

        def digits(tokens: Any) -> Any:
            sums = xp.round(SCALE * tokens).sum(axis=-1)
            carry, found = xp.zeros_like(sums[..., 0]), []
            for t in range(sums.shape[-1]):
                column = sums[..., t] + carry
                carry = xp.where(column >= self.base, xp.ones_like(column), xp.zeros_like(column))
                found.append(column - self.base * carry)
            return xp.stack(found, axis=-1)

        return digits

    def exact_value(self, tokens: np.ndarray, t: int = -1) -> arb:
        return arb(float(self.values(np)(np.asarray(tokens, dtype=float))[t]))

    def constant_error(self, samples: np.ndarray | None = None) -> float:
        """Every digit occurs: (B − 1)/2."""
        return (self.base - 1) / 2

    def tokens(self, first: int, second: int) -> np.ndarray:
        """Two numbers as n + 1 pairs of digits; refused if one has more than n digits."""
        if not 0 <= min(first, second) <= max(first, second) < self.base**self.digits:
            raise InputError(f"{min(first, second)} and {max(first, second)} are not both numbers of {self.digits} digits")
        powers = [self.base**t for t in range(self.length)]
        return np.array([[first // power % self.base, second // power % self.base] for power in powers]) / SCALE

    def number(self, outputs: np.ndarray) -> int:
        """The number whose digits are the integers nearest to the outputs (n + 1,)."""
        return sum(int(digit) * self.base**t for t, digit in enumerate(np.rint(outputs)))


TASK = Task(
    kind="addition",
    brief="Sums of two n-digit numbers, right for all of them.",
    help="Addition: pairs of digits (a_t, b_t)/16 in, the least significant ones first, digits of the sum out, by one ALiBi head.",
    example={"digits": 10, "dtype": "float64"},
    options=AdditionTask,
    make=AdditionTarget,
)
