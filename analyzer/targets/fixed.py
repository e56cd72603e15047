"""Fixed memories: y_t = f(x_t, x_{t−T_1}, …, x_{t−T_M}) with 1 ≤ T_1 < … < T_M and tokens in [−1, 1]^dim, or in A^dim for a finite alphabet
A.

Fixed and kernel memories (`analyzer.targets.kernel`) are `LayerTarget`s (`analyzer.targets.protocol`): they answer what certificates of a
layer ask, which kernel a linear functional should have (`wanted`), how large a memory can be (`radii`), what the memories are for given
tokens (`memories`), and values that f really takes (`attained`). Restored networks need an alphabet.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar

from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.numbers.exact import nearest, to_text
from analyzer.targets.adaptive import exact_number
from analyzer.targets.protocol import MAX_MEMORIES, ArrayMap, ConvolvedTarget, as_tuple, check_dim, lagged_kernel, shortened
from analyzer.targets.readout import ReadOut, read_out

if TYPE_CHECKING:
    import numpy as np

# Sizes beyond which a target is taken for a mistake: far above what any layer here can hold.
MAX_LAG = 1_000_000
MAX_LETTERS = 64


@dataclass(frozen=True)
class FixedMemory(ConvolvedTarget):
    """y_t = f(x_t, x_{t−T_1}, …, x_{t−T_M}); `formula` None means the sum of the memories."""

    kind: ClassVar[str] = "fixed"
    plural: ClassVar[str] = "fixed memories"

    lags: tuple[int, ...]
    dim: int = 1
    formula: str | None = None
    alphabet: tuple[fmpq, ...] | None = None

    def __post_init__(self) -> None:
        check_dim(self.dim)
        object.__setattr__(self, "lags", tuple(map(_plain, as_tuple(self.lags, "lags", "whole numbers"))))
        if not self.lags or len(self.lags) > MAX_MEMORIES:
            raise InputError(f"there are {len(self.lags)} lags; give between 1 and {MAX_MEMORIES}")
        for lag in self.lags:
            if isinstance(lag, bool) or not isinstance(lag, int) or not 1 <= lag <= MAX_LAG:
                raise InputError(f"lag {lag!r} is not a whole number from 1 to {MAX_LAG}")
        if len(set(self.lags)) < len(self.lags):
            raise InputError(f"the lags {', '.join(map(str, self.lags))} repeat; each lag is one memory")
        if list(self.lags) != sorted(self.lags):
            raise InputError("the lags must be increasing: m1 is the shortest")
        if self.alphabet is not None:
            object.__setattr__(self, "alphabet", alphabet_of(as_tuple(self.alphabet, "the alphabet", "letters such as -1, 1")))
        _ = self.readout

    @property
    def as_memory_target(self) -> "FixedMemory":
        return self

    @property
    def as_layer_target(self) -> "FixedMemory":
        return self

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"m{k}" for k in range(1, len(self.lags) + 1))

    @property
    def description(self) -> str:
        return shortened(self.kind, list(map(str, self.lags)))

    @property
    def settled(self) -> int:
        """The longest lag."""
        return self.lags[-1]

    @cached_property
    def readout(self) -> ReadOut:
        return read_out(self.formula, self.names, self.dim)

    def describe(self) -> dict[str, Any]:
        """The target as plain data (inverse of `target_from_dict`)."""
        plain = {"kind": self.kind, "dim": self.dim, "lags": list(self.lags), "readout": self.formula}
        return plain if self.alphabet is None else {**plain, "alphabet": [to_text(v) for v in self.alphabet]}

    @property
    def bank_labels(self) -> tuple[int, ...]:
        """Lags."""
        return self.lags

    def wanted(self, row: Sequence[fmpq], column: int) -> tuple[dict[int, fmpq], dict[MemoryKernel, fmpq]]:
        """The kernel that a linear functional of the memories should have on an input coordinate: spikes, and weighted kernels."""
        weights = ((lag, row[k * self.dim + column]) for k, lag in enumerate((0, *self.lags)))
        return {lag: weight for lag, weight in weights if weight != 0}, {}

    def radii(self) -> list[arb]:
        """Upper bounds of |u_j| for every coordinate of (x0, memories)."""
        return [arb(1)] * self.readout.coordinates

    def memories(self, recent: Sequence[Sequence[arb]]) -> list[arb]:
        """(x0, memories) for the given tokens, the current one first, zeros before them."""
        zero = [arb(0)] * self.dim
        return [value for lag in (0, *self.lags) for value in (recent[lag] if lag < len(recent) else zero)]

    def letters(self) -> "np.ndarray | None":
        """The letters of every coordinate, (letters,)."""
        import numpy as np

        return None if self.alphabet is None else np.array([nearest(v) for v in self.alphabet])

    def outside_alphabet(self, tokens: "np.ndarray") -> int | None:
        """How many tokens have a coordinate that is no letter."""
        import numpy as np

        letters = self.letters()
        return None if letters is None else int((~np.isin(tokens, letters).all(axis=-1)).sum())

    def memory_values(self, xp: Any) -> ArrayMap:
        """Tokens (…, N, d) → (x_t, x_{t−T_1}, …) as (…, N, coordinates)."""
        return lambda tokens: xp.concatenate([_shifted(tokens, lag, xp) for lag in (0, *self.lags)], axis=-1)

    def mean_kernel(self, tokens: "np.ndarray", slopes: "np.ndarray") -> "np.ndarray":
        """ρ_k = 1_{T_k}."""
        import numpy as np

        return lagged_kernel(np.broadcast_to(np.array(self.lags), (len(tokens), len(self.lags))), slopes, tokens.shape[1])

    @property
    def pointwise(self) -> bool:
        """A memory is the token at its lag."""
        return True

    @property
    def places(self) -> tuple[int, ...]:
        """Where single tokens matter most."""
        return (0, *self.lags)

    def attained(self) -> list[list[arb]]:
        """Some (x0, memories) that occur: corners of the token box and its centre, or of the letters' box."""
        ends = (fmpq(-1), fmpq(1)) if self.alphabet is None else (self.alphabet[0], self.alphabet[-1])
        corners = list(itertools.islice(itertools.product(ends, repeat=self.readout.coordinates), 2**12))
        centre = [] if self.alphabet is not None else [(fmpq(0),) * self.readout.coordinates]
        return [[arb(v) for v in corner] for corner in [*corners, *centre]]


def _plain(lag: Any) -> Any:
    """A whole number of any library as one of Python; everything else as it is."""
    return int(lag) if isinstance(lag, Integral) and not isinstance(lag, bool) else lag


def _shifted(tokens: Any, lag: int, xp: Any) -> Any:
    length = tokens.shape[-2]
    zeros = xp.zeros((*tokens.shape[:-2], min(lag, length), tokens.shape[-1]), tokens.dtype)
    return xp.concatenate([zeros, tokens[..., : max(0, length - lag), :]], axis=-2)


def alphabet_of(values: Sequence[Any]) -> tuple[fmpq, ...]:
    """Letters as exact numbers, increasing."""
    if not 2 <= len(values) <= MAX_LETTERS:
        raise InputError(f"the alphabet has {len(values)} letters; give between 2 and {MAX_LETTERS}")
    letters = sorted(exact_number(v, "the alphabet") for v in values)
    for letter in letters:
        if abs(letter) > 1:
            raise InputError(f"the alphabet holds {letter}; letters lie in [-1, 1]")
        if letters.count(letter) > 1:
            raise InputError(f"the alphabet holds {letter} twice")
    return tuple(letters)
