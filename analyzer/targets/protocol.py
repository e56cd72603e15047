"""What every target answers, whatever its kind, and what the kinds have in common.

A target maps sequences of tokens x_t ∈ [low, high]^dim, or of letters of a finite alphabet, to outputs y_t; tokens before an array are
zero, as for networks. Everything outside the targets' own modules speaks to these protocols:

* `Target`: tokens and outputs;
* `MemoryTarget`: y_t = f(x_t, memory_1, …, memory_M), and f is known: fixed, kernel and adaptive memories;
* `LayerTarget`: its memories are convolutions of the tokens with kernels that do not depend on them: fixed and kernel memories, which
  certificates of one dp-free layer can read.

A function that needs more than a `Target` asks `as_memory_target` or `as_layer_target`, which are None where there is no such thing.

Functions of arrays run on numpy (float64, for measuring) or JAX (for training), whichever module is given as `xp`; numbers made with
them are sampled, never certified.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.notebooks import html_of
from analyzer.numbers.exact import lower, maximum
from analyzer.targets.readout import ReadOut

if TYPE_CHECKING:
    import numpy as np

ArrayMap = Callable[[Any], Any]
"""A function of arrays of numpy or JAX."""

MAX_DESCRIPTION = 60
"""Characters of a target's description."""


@dataclass(frozen=True)
class LetterReading:
    """Letters that f reads, by their distances (places in the alphabet), and its value there."""

    letters: Mapping[int, int]
    value: arb


class Target(Protocol):
    """A map from sequences of tokens to outputs."""

    kind: ClassVar[str]
    """How files and cards call this kind of target."""
    plural: ClassVar[str]
    """How sentences call targets of this kind."""

    @property
    def dim(self) -> int:
        """Coordinates of a token."""

    @property
    def domain(self) -> tuple[int, int]:
        """(low, high): coordinates of tokens lie between them."""

    @property
    def alphabet(self) -> Sequence[object] | None:
        """The exact letters that tokens, or their coordinates, are restricted to; None where there is no such restriction."""

    @property
    def signed(self) -> bool:
        """Whether tokens are any numbers in [−1, 1], among them sequences of signs."""

    @property
    def tokens_text(self) -> str:
        """What statements about all tokens speak of, in words."""

    @property
    def length(self) -> int | None:
        """The number of tokens of every sequence; None where any number will do."""

    @property
    def settled(self) -> int:
        """The first position whose lags lie inside the array, whatever the tokens (kernels reach back for ever: 0)."""

    @property
    def description(self) -> str:
        """One line for people, such as fixed(2, 5)."""

    def describe(self) -> dict[str, Any]:
        """The target as plain data (inverse of `analyzer.targets.files.target_from_dict`)."""

    def tree_lines(self) -> list[str]:
        """Who depends on whom as an indented text tree; empty where memories do not depend on each other."""

    def letters(self) -> "np.ndarray | None":
        """The alphabet as floats: whole tokens (letters, d), or the letters of every coordinate (letters,); None without an alphabet."""

    def tokens_of(self, indices: "np.ndarray") -> "np.ndarray":
        """Tokens from indices of letters: (…, N) for whole tokens, the shape of the tokens for letters of coordinates."""

    def nearest_letters(self, tokens: "np.ndarray", xp: ModuleType) -> "np.ndarray":
        """The index of the letter that is nearest to every token (…, N, d), or to every coordinate; refused without an alphabet."""

    def outside_alphabet(self, tokens: "np.ndarray") -> int | None:
        """How many tokens are no letters; None without an alphabet."""

    def check_tokens(self, tokens: "np.ndarray", source: str) -> None:
        """Refuse tokens at which the target has no value; `source` is where they come from."""

    def check_domain(self, tokens: "np.ndarray", source: str) -> None:
        """Refuse tokens outside the domain, which no certificate speaks of."""

    def draw(self, rng: "np.random.Generator", shape: tuple[int, int], signs: bool = False) -> "np.ndarray":
        """Random tokens (batch, N, d): letters of the alphabet if there is one, ±1 if wanted, else uniform on the domain."""

    def values(self, xp: ModuleType) -> ArrayMap:
        """Tokens (…, N, d) → y (…, N)."""

    def exact_value(self, tokens: "np.ndarray", t: int = -1) -> arb:
        """y at position t of tokens (N, d), the last one unless told otherwise, in ball arithmetic."""

    def constant_error(self, samples: "np.ndarray | None" = None) -> float:
        """Error of the best constant output, from below: half the spread of values that occur. `samples` (batch, N, d) are sequences to
        look at where the target does not know better."""

    def reach(self, share: float, longest: int) -> int:
        """Tokens after the settled position that hold all but a share of every memory's weight, `longest` at most."""

    @property
    def as_memory_target(self) -> "MemoryTarget | None":
        """This target as one with memories, or None."""

    @property
    def as_layer_target(self) -> "LayerTarget | None":
        """This target as one whose memories are convolutions, or None."""


class MemoryTarget(Target, Protocol):
    """y_t = f(x_t, memory_1, …, memory_M)."""

    @property
    def names(self) -> tuple[str, ...]:
        """The memories' names."""

    @property
    def readout(self) -> ReadOut:
        """f on the slots x0 and the memories."""

    def memory_values(self, xp: ModuleType) -> ArrayMap:
        """Tokens (…, N, d) → (x_t, memories) as (…, N, coordinates)."""

    def lag_values(self, xp: ModuleType) -> ArrayMap | None:
        """Tokens (…, N, d) → the lag of every memory, (…, N, M); None where lags do not depend on tokens, or there are none."""

    def combinations(self, slots: Sequence[int]) -> Iterable[tuple[int, ...]]:
        """Places in the alphabet of the letters in some slots, all ways that occur; a slot is a coordinate of (x_t, memories), or one of
        these tokens where letters are whole tokens."""

    def readings(self) -> "Sequence[LetterReading] | None":
        """Where lags depend on tokens: every way in which the letters that f reads can lie; None where they do not."""

    def mean_kernel(self, tokens: "np.ndarray", slopes: "np.ndarray") -> "np.ndarray":
        """Σ_k mean of slopes_k ρ_k(s) over sequences (batch, N, d), (N, d): ρ_0 = 1_0 for x_t, ρ_k = 1_lag or the kernel of memory k at the
        last position; slopes (batch, 1 + M, d)."""


class LayerTarget(MemoryTarget, Protocol):
    """Memory k is the convolution of the tokens with a kernel ρ_k, the same on every coordinate: what certificates of a layer ask about."""

    @property
    def bank_labels(self) -> tuple[int, ...]:
        """The label of every memory in head banks (`HeadBank.lags`): its lag, or its number where memories are spread out."""

    @property
    def pointwise(self) -> bool:
        """Whether every memory is a single token, that at its place."""

    @property
    def places(self) -> tuple[int, ...]:
        """Where single tokens matter most, increasing from 0, the current one."""

    def wanted(self, row: Sequence[fmpq], column: int) -> tuple[dict[int, fmpq], dict[MemoryKernel, fmpq]]:
        """The kernel that a linear functional of the memories should have on an input coordinate: spikes, and weighted kernels."""

    def radii(self) -> list[arb]:
        """Upper bounds of |u_j| for every coordinate of (x0, memories)."""

    def memories(self, recent: Sequence[Sequence[arb]]) -> list[arb]:
        """(x0, memories) for the given tokens, the current one first, zeros before them."""

    def attained(self) -> list[list[arb]]:
        """Some (x0, memories) that occur."""


class TokenTarget:
    """What targets agree on unless they say otherwise: tokens in [−1, 1]^dim, no alphabet, no memories."""

    def _repr_html_(self) -> str | None:
        return html_of(self)

    @property
    def domain(self) -> tuple[int, int]:
        return -1, 1

    @property
    def signed(self: Target) -> bool:
        return self.alphabet is None and self.domain == (-1, 1)

    @property
    def tokens_text(self: Target) -> str:
        low, high = self.domain
        return f"tokens in [{low}, {high}]" if self.alphabet is None else "letters of the alphabet"

    @property
    def settled(self) -> int:
        return 0

    def tree_lines(self) -> list[str]:
        return []

    def letters(self) -> "np.ndarray | None":
        return None

    def tokens_of(self: Target, indices: Any) -> "np.ndarray":
        import numpy as np

        letters, index = _letters_of(self), np.asarray(indices)
        if index.dtype.kind not in "iu":
            raise InputError("letters are given by whole numbers, their places in the alphabet")
        if index.size and not 0 <= index.min() <= index.max() < len(letters):
            raise InputError(f"letters are numbered from 0 to {len(letters) - 1}; {index.min()} to {index.max()} were given")
        return letters[index]

    def nearest_letters(self: Target, tokens: Any, xp: Any) -> Any:
        letters = xp.asarray(_letters_of(self), tokens.dtype)
        if letters.ndim == 1:
            return abs(tokens[..., None] - letters).argmin(-1)
        return ((tokens[..., None, :] - letters) ** 2).sum(-1).argmin(-1)

    def outside_alphabet(self, tokens: "np.ndarray") -> int | None:
        return None

    def check_tokens(self, tokens: "np.ndarray", source: str) -> None:
        """All tokens are fine."""

    def check_domain(self: Target, tokens: "np.ndarray", source: str) -> None:
        self.check_tokens(tokens, source)
        low, high = self.domain
        if tokens.size and not low <= tokens.min() <= tokens.max() <= high:
            raise InputError(f"{source} holds tokens outside [{low}, {high}], where no certificate holds")

    def draw(self: Target, rng: "np.random.Generator", shape: tuple[int, int], signs: bool = False) -> "np.ndarray":
        letters = self.letters()
        if letters is not None:
            return letters[rng.integers(len(letters), size=shape if letters.ndim == 2 else (*shape, self.dim))]
        if signs and self.signed:
            return rng.choice([-1.0, 1.0], size=(*shape, self.dim))
        return rng.uniform(*self.domain, (*shape, self.dim))

    def reach(self, share: float, longest: int) -> int:
        return 0

    @property
    def as_memory_target(self) -> MemoryTarget | None:
        return None

    @property
    def as_layer_target(self) -> LayerTarget | None:
        return None


class RememberingTarget(TokenTarget):
    """What targets with memories share: sequences of any length, y_t = f(x_t, memories)."""

    @property
    def length(self) -> None:
        return None

    def lag_values(self, xp: Any) -> ArrayMap | None:
        return None

    def combinations(self: MemoryTarget, slots: Sequence[int]) -> Iterable[tuple[int, ...]]:
        return product(range(len(_letters_of(self))), repeat=len(slots))

    def readings(self) -> "Sequence[LetterReading] | None":
        return None

    def values(self: MemoryTarget, xp: Any) -> ArrayMap:
        seen, readout = self.memory_values(xp), self.readout.compiled(xp)
        return lambda tokens: readout(seen(tokens))


class ConvolvedTarget(RememberingTarget):
    """What targets share whose memories are convolutions."""

    def exact_value(self: LayerTarget, tokens: "np.ndarray", t: int = -1) -> arb:
        return self.readout(self.memories([[arb(float(v)) for v in token] for token in reversed(tokens[: t % len(tokens) + 1])]))

    def constant_error(self: LayerTarget, samples: "np.ndarray | None" = None) -> float:
        values = [self.readout(point) for point in self.attained()]
        return max(0.0, lower((maximum(values) + maximum([-v for v in values])) / 2))


def _letters_of(target: Target) -> "np.ndarray":
    letters = target.letters()
    if letters is None:
        raise InputError("this target has no alphabet; give its tokens as numbers")
    return letters


def no_memories(target: Target) -> str:
    """Why there is nothing to say about the memories of a target that has none."""
    return f"a {target.kind} reads all tokens at once: it has no memories"


def memories_of(target: Target) -> MemoryTarget:
    """A target that must have memories."""
    found = target.as_memory_target
    if found is None:
        raise Refusal(no_memories(target))
    return found


def half_spread(values: list[arb]) -> float:
    """Half the difference of two of the values, from below: those that look largest and least."""
    most, least = (pick(values, key=lambda ball: float(ball.mid())) for pick in (max, min))
    return max(0.0, lower((most - least) / 2))


def lagged_kernel(lags: "np.ndarray", slopes: "np.ndarray", length: int) -> "np.ndarray":
    """Σ_k mean of slopes_k 1_{lag_k}(s) for lags (batch, M) and slopes (batch, 1 + M, d), the current token first: (N, d)."""
    import numpy as np

    kernel = np.zeros((length, slopes.shape[-1]))
    kernel[0] = slopes[:, 0].mean(axis=0)
    for k in range(lags.shape[1]):
        np.add.at(kernel, lags[:, k], slopes[:, k + 1] / len(slopes))
    return kernel


def as_tuple(values: Any, what: str, such: str) -> tuple[Any, ...]:
    """The entries of a list, a tuple or an array; `what` it is and `such` entries go into the message."""
    try:
        if not isinstance(values, str | bytes | Mapping):
            return tuple(values)
    except TypeError:
        pass
    raise InputError(f"{what} must be a list of {such}, not {str(values)[:40]!r}")


def shortened(kind: str, parts: Sequence[str]) -> str:
    """kind(part, part), cut where it is too long for a line."""
    text = ", ".join(parts)
    return f"{kind}({text if len(text) <= MAX_DESCRIPTION else text[: MAX_DESCRIPTION - 1] + '…'})"


# Sizes beyond which a target is taken for a mistake: far above what any layer here can hold.
MAX_MEMORIES = 64
MAX_DIM = 64


def check_dim(dim: Any) -> None:
    if isinstance(dim, bool) or not isinstance(dim, int) or not 1 <= dim <= MAX_DIM:
        raise InputError(f"dim is {dim!r}; it must be a whole number from 1 to {MAX_DIM}")
