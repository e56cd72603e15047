"""Linear regression in context: L steps of gradient descent on N examples, then the prediction at a query.

A sequence has n = N + 1 tokens of 2d + 1 coordinates, (example's x, query's x, y): N examples (x_i, 0, y_i) and, last, the query
(0, x_q, 0); all numbers lie in [−1, 1]. From w_0 = 0

    w_{k+1} = w_k − η ∇_w (1/2N) Σ_i (w·x_i − y_i)²  =  w_k + (η/N) Σ_i (y_i − w_k·x_i) x_i,

and y_t = w_L·x_t with the token's own x_t: the prediction at the last token, and what the examples are fitted to at the others.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from flint import arb, arb_mat, fmpq

from analyzer.errors import InputError
from analyzer.numbers.exact import from_text, nearest, rational, to_text, working_precision
from analyzer.options import Options, option
from analyzer.ranges import check_range
from analyzer.targets.adaptive import exact_number
from analyzer.targets.protocol import ArrayMap, TokenTarget, half_spread, shortened
from analyzer.targets.task import Task

MAX_FEATURES, MAX_EXAMPLES, MAX_STEPS = 32, 512, 64
MAX_RATE = 1024
BITS = 512


@dataclass(frozen=True)
class InContextTarget(TokenTarget):
    """The prediction of L steps of gradient descent with rate η from N examples in R^d."""

    kind: ClassVar[str] = "in-context-gd"
    plural: ClassVar[str] = "regressions in context"

    features: int
    examples: int
    steps: int
    rate: fmpq

    def __post_init__(self) -> None:
        for name, most in (("features", MAX_FEATURES), ("examples", MAX_EXAMPLES), ("steps", MAX_STEPS)):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise InputError(f"{name} is {str(value)[:40]!r}; give a whole number")
            check_range(name, value, 1, most)
        if not fmpq(1, MAX_RATE) <= self.rate <= MAX_RATE:
            raise InputError(f"rate is {nearest(self.rate):.6g}; steps of gradient descent have a rate from 1/{MAX_RATE} to {MAX_RATE}")

    @property
    def dim(self) -> int:
        return 2 * self.features + 1

    @property
    def length(self) -> int:
        return self.examples + 1

    @property
    def alphabet(self) -> None:
        return None

    @property
    def signed(self) -> bool:
        """Coordinates that a token does not use are 0."""
        return False

    @property
    def tokens_text(self) -> str:
        return f"{self.examples} examples and a query in [-1, 1]^{self.features}"

    @property
    def description(self) -> str:
        return shortened(self.kind, [f"d = {self.features}", f"N = {self.examples}", f"L = {self.steps}", f"rate {self.rate}"])

    @cached_property
    def growth(self) -> fmpq:
        """ρ = max(1, |1 − ηd|), an upper bound of ‖I − ηΣ‖ for all examples: 0 ≤ Σ = (1/N) Σ x_i x_iᵀ ≤ d."""
        return max(fmpq(1), abs(1 - self.rate * self.features))

    def tokens(self, x: np.ndarray, y: np.ndarray, query: np.ndarray) -> np.ndarray:
        """Tokens (…, N + 1, 2d + 1) of examples (…, N, d) with values (…, N), and a query (…, d)."""
        d, found = self.features, np.zeros((*np.shape(y)[:-1], self.length, self.dim))
        found[..., :-1, :d], found[..., :-1, 2 * d] = x, y
        found[..., -1, d : 2 * d] = query
        return found

    def check_tokens(self, tokens: np.ndarray, source: str) -> None:
        """N examples whose query is 0, then a query whose example is 0."""
        if tokens.shape[-2] != self.length:
            raise InputError(f"{source} has sequences of {tokens.shape[-2]} tokens, this target has {self.examples} examples and a query")
        d = self.features
        if np.any(tokens[..., :-1, d : 2 * d]) or np.any(tokens[..., -1, :d]) or np.any(tokens[..., -1, 2 * d]):
            raise InputError(f"{source} holds tokens that are neither examples (x, 0, y) nor, last, a query (0, x, 0)")

    def draw(self, rng: np.random.Generator, shape: tuple[int, int], signs: bool = False) -> np.ndarray:
        """Random regressions (batch, N + 1, 2d + 1); their length is the target's own."""
        size = shape[0], self.examples, self.features
        if signs:
            parts = [rng.choice([-1.0, 1.0], size=s) for s in (size, size[:2], (size[0], size[2]))]
        else:
            parts = [rng.uniform(-1, 1, s) for s in (size, size[:2], (size[0], size[2]))]
        return self.tokens(*parts)

    def values(self, xp: Any) -> ArrayMap:
        """Tokens (…, N + 1, 2d + 1) → w_L·x_t at every token, (…, N + 1)."""
        d, step = self.features, nearest(self.rate) / self.examples

        def target(tokens: Any) -> Any:
            x, own, y = tokens[..., :d], tokens[..., :d] + tokens[..., d : 2 * d], tokens[..., 2 * d]
            w = xp.zeros_like(x[..., 0, :])
            for _ in range(self.steps):
                rest = y - (x * w[..., None, :]).sum(-1)
                w = w + step * (rest[..., None] * x).sum(-2)
            return (own * w[..., None, :]).sum(-1)

        return target

    def exact_value(self, tokens: np.ndarray, t: int = -1) -> arb:
        """w_L·x_t in balls."""
        d, rows = self.features, np.asarray(tokens, dtype=float)
        with working_precision(BITS):
            x = arb_mat([[arb(float(v)) for v in row[:d]] for row in rows])
            y = arb_mat([[arb(float(row[2 * d]))] for row in rows])
            own = arb_mat([[arb(float(a)) + arb(float(b)) for a, b in zip(rows[t, :d], rows[t, d : 2 * d], strict=True)]])
            w, step = arb_mat(d, 1), arb(self.rate) / self.examples
            for _ in range(self.steps):
                w = w + x.transpose() * (y - x * w) * step
            return (own * w)[0, 0]

    def constant_error(self, samples: np.ndarray | None = None) -> float:
        """Half the spread of predictions that occur: examples x_i = a(1, …, 1), y_i = 1 and queries ±(1, …, 1) give
        ±(1 − (1 − ηda²)^L)/a."""
        with working_precision(BITS):
            sizes = (arb(fmpq(k, 8)) for k in range(1, 9))
            found = [(1 - (1 - arb(self.rate) * self.features * a**2) ** self.steps) / a for a in sizes]
            return max(half_spread([value, -value]) for value in found)

    def describe(self) -> dict[str, Any]:
        """The target as plain data."""
        sizes = {"features": self.features, "examples": self.examples, "steps": self.steps}
        return {"kind": self.kind, **sizes, "rate": to_text(self.rate)}


@dataclass(frozen=True)
class InContextTask(Options):
    """The sizes of a regression in context."""

    features: int = option(2, "d: coordinates of x", least=1, most=MAX_FEATURES)
    examples: int = option(8, "N: pairs (x, y) in the context", least=1, most=MAX_EXAMPLES)
    steps: int = option(4, "L: steps of gradient descent", least=1, most=MAX_STEPS)
    rate: str = option("1/2", "the learning rate, such as 1/3 or 0.1, as text exactly; steps are stable on all data up to 2/d")

    def __post_init__(self) -> None:
        if isinstance(self.rate, float | int):  # the dyadic number that a float is
            object.__setattr__(self, "rate", to_text(exact_number(self.rate, "the rate")))
        super().__post_init__()


def make(features: int, examples: int, steps: int, rate: str) -> InContextTarget:
    """The target of these sizes."""
    return InContextTarget(features, examples, steps, rational(rate) if "." in rate else from_text(rate))


TASK = Task(
    kind="in-context-gd",
    brief="linear regression in context: the prediction of L steps of gradient descent",
    help="Tokens are N examples (x, 0, y) and a query (0, x, 0); the output is what L steps of gradient descent on the examples predict.",
    example={"features": 2, "examples": 8, "steps": 4},
    options=InContextTask,
    make=make,
)
