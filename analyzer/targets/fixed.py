"""Targets: which past tokens matter, and what is made of them.

Fixed memories: y_t = f(x_t, x_{t−T_1}, …, x_{t−T_M}) with 1 ≤ T_1 < … < T_M and tokens in [−1, 1]^dim, or in A^dim for a finite
alphabet A of letters: restored networks need one. Essentially sparse ones: y_t = f(x_t, (X*ρ_1)(t), …, (X*ρ_M)(t)),
(X*ρ)(t) = Σ_{s≥0} ρ(s) x_{t−s}. Adaptive ones are in `analyzer.targets.adaptive`.

Both are `LayerTarget`s (`analyzer.targets.protocol`): they answer what certificates of a layer ask, which kernel a linear functional should
have (`wanted`), how large a memory can be (`radii`), what the memories are for given tokens (`memories`), and values that f really takes
(`attained`).
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property, lru_cache
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.kernels.l1_norms import norm_of
from analyzer.kernels.memory_kernels import Envelope, MemoryKernel, envelope_from, parse_kernel
from analyzer.numbers.exact import nearest, to_text, working_precision
from analyzer.targets.adaptive import adaptive_from_dict, exact_number
from analyzer.targets.protocol import ArrayMap, ConvolvedTarget, Target, as_tuple, lagged_kernel, shortened
from analyzer.targets.readout import ReadOut, read_out

if TYPE_CHECKING:
    import numpy as np

# Sizes beyond which a target is taken for a mistake: far above what any layer here can hold.
MAX_LAG = 1_000_000
MAX_MEMORIES = 64
MAX_DIM = 64
MAX_LETTERS = 64
MAX_FILE = 1 << 20
MAX_CONVOLVED = 1 << 14
"""Tokens of an array that is convolved with a kernel: the matrix has 2 GB."""


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
        _check_dim(self.dim)
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
            object.__setattr__(self, "alphabet", _letters(as_tuple(self.alphabet, "the alphabet", "letters such as -1, 1")))
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
    def served(self) -> tuple[int, ...]:
        """The label of every memory in its head bank."""
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


def _letters(values: Sequence[Any]) -> tuple[fmpq, ...]:
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


NORM_BITS = 192
"""Precision of a kernel's norm."""


@dataclass(frozen=True)
class KernelMemory(ConvolvedTarget):
    """y_t = f(x_t, (X*ρ_1)(t), …, (X*ρ_M)(t)), the same kernels on every coordinate; `formula` None means the sum of the memories.

    `envelopes` are claims |ρ_k(s)| ≤ C e^{−βs} or C s^{−β}, checked for all s; without them the kernels' own are used.
    """

    kind: ClassVar[str] = "kernel"
    plural: ClassVar[str] = "kernel memories"

    kernels: tuple[str, ...]
    dim: int = 1
    formula: str | None = None
    envelopes: tuple[Envelope, ...] = ()

    def __post_init__(self) -> None:
        _check_dim(self.dim)
        object.__setattr__(self, "kernels", as_tuple(self.kernels, "kernels", "expressions in s"))
        object.__setattr__(self, "envelopes", as_tuple(self.envelopes, "envelopes", "one envelope per kernel"))
        if not self.kernels or len(self.kernels) > MAX_MEMORIES:
            raise InputError(f"there are {len(self.kernels)} kernels; give between 1 and {MAX_MEMORIES}")
        for kernel in self.kernels:
            if not isinstance(kernel, str):
                raise InputError(f"kernel {str(kernel)[:40]!r} is not an expression in s, as text")
        if len(set(self.kernels)) < len(self.kernels):
            raise InputError("a kernel repeats; each kernel is one memory")
        if len(self.envelopes) not in (0, len(self.kernels)):
            raise InputError("give one envelope per kernel, or none")
        _ = self.readout
        for parsed, envelope in zip(self.parsed, self.envelopes, strict=False):
            parsed.check_envelope(envelope)

    @property
    def as_memory_target(self) -> "KernelMemory":
        return self

    @property
    def as_layer_target(self) -> "KernelMemory":
        return self

    @property
    def alphabet(self) -> None:
        return None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"k{k}" for k in range(1, len(self.kernels) + 1))

    @property
    def description(self) -> str:
        return shortened(self.kind, self.kernels)

    @cached_property
    def parsed(self) -> tuple[MemoryKernel, ...]:
        claims = self.envelopes or (None,) * len(self.kernels)
        return tuple(replace(parse_kernel(text), claim=claim) for text, claim in zip(self.kernels, claims, strict=True))

    @cached_property
    def readout(self) -> ReadOut:
        return read_out(self.formula, self.names, self.dim)

    def describe(self) -> dict[str, Any]:
        """The target as plain data (inverse of `target_from_dict`)."""
        data = {"kind": self.kind, "dim": self.dim, "kernels": list(self.kernels), "readout": self.formula}
        bounds = [{"shape": e.shape, "rate": to_text(e.rate), "constant": to_text(e.constant)} for e in self.envelopes]
        return data | ({"envelopes": bounds} if bounds else {})

    @property
    def served(self) -> tuple[int, ...]:
        """Memories are numbered."""
        return tuple(range(1, len(self.kernels) + 1))

    def wanted(self, row: Sequence[fmpq], column: int) -> tuple[dict[int, fmpq], dict[MemoryKernel, fmpq]]:
        """x0 is a spike at 0, memory k the kernel ρ_k."""
        current, *weights = (row[k * self.dim + column] for k in range(len(self.kernels) + 1))
        kernels = {kernel: weight for kernel, weight in zip(self.parsed, weights, strict=True) if weight != 0}
        return ({0: current} if current != 0 else {}), kernels

    @cached_property
    def norms(self) -> tuple[arb, ...]:
        """Upper bounds of ‖ρ_k‖₁."""
        with working_precision(NORM_BITS):
            return tuple(norm_of(kernel).most for kernel in self.parsed)

    def radii(self) -> list[arb]:
        """1 for the current token, ‖ρ_k‖₁ for memory k."""
        return [arb(1)] * self.dim + [norm for norm in self.norms for _ in range(self.dim)]

    def memories(self, recent: Sequence[Sequence[arb]]) -> list[arb]:
        """(x0, memories) for the given tokens, the current one first, zeros before them."""
        result = list(recent[0])
        for kernel in self.parsed:
            values = _values(kernel, len(recent))
            result += [sum((v * token[i] for v, token in zip(values, recent, strict=True)), arb(0)) for i in range(self.dim)]
        return result

    def memory_values(self, xp: Any) -> ArrayMap:
        """Tokens (…, N, d) → (x_t, (X*ρ_1)(t), …) as (…, N, coordinates), by matrices ρ(t − t')."""
        import numpy as np

        def convolve(tokens: Any) -> Any:
            length = tokens.shape[-2]
            if length > MAX_CONVOLVED:
                raise InputError(f"sequences of {length} tokens are too long for a kernel; give at most {MAX_CONVOLVED}")
            distance = np.arange(length)[:, None] - np.arange(length)[None, :]
            parts = [tokens]
            for kernel in self.parsed:
                matrix = np.where(distance >= 0, _weights(kernel, length)[np.maximum(distance, 0)], 0)
                parts.append(xp.matmul(xp.asarray(matrix, tokens.dtype), tokens))
            return xp.concatenate(parts, axis=-1)

        return convolve

    def mean_kernel(self, tokens: "np.ndarray", slopes: "np.ndarray") -> "np.ndarray":
        """The same kernels at all sequences."""
        import numpy as np

        kernel = np.zeros(tokens.shape[1:])
        kernel[0] = slopes[:, 0].mean(axis=0)
        for k, memory in enumerate(self.parsed, start=1):
            kernel += _weights(memory, len(kernel))[:, None] * slopes[:, k].mean(axis=0)
        return kernel

    def reach(self, share: float, longest: int) -> int:
        """For the slowest kernel, of its first `longest` values."""
        import numpy as np

        beyond = [np.abs(_weights(kernel, longest))[::-1].cumsum()[::-1] for kernel in self.parsed]
        return max(int((sizes > share * sizes[0]).sum()) for sizes in beyond)

    @property
    def pointwise(self) -> bool:
        """A memory is spread over all tokens."""
        return False

    @property
    def places(self) -> tuple[int, ...]:
        """Kernels spread over all tokens; only the current one stands alone."""
        return (0,)

    def attained(self) -> list[list[arb]]:
        """(x0, memories) at ± the sign sequences of the kernels, on all coordinates at once, and at zero."""
        points = [[arb(0)] * self.readout.coordinates]
        with working_precision(NORM_BITS):
            for kernel in self.parsed:
                signs = [-1 if v < 0 else 1 for v in _values(kernel, ATTAINED)]
                point = self.memories([[arb(sign)] * self.dim for sign in signs])
                points += [[sign * v for v in point] for sign in (1, -1)]
        return points


ATTAINED = 512
"""Tokens of the sequences at which a kernel target's values are looked at."""


@lru_cache(maxsize=64)
def _values(kernel: MemoryKernel, count: int) -> tuple[arb, ...]:
    with working_precision(NORM_BITS):
        return tuple(kernel.values(0, count))


def _weights(kernel: MemoryKernel, count: int) -> "np.ndarray":
    """ρ(0), …, ρ(count − 1) as floats."""
    import numpy as np

    with working_precision(64):
        return np.array([float(v.mid()) for v in kernel.values(0, count)])


def _check_dim(dim: Any) -> None:
    if isinstance(dim, bool) or not isinstance(dim, int) or not 1 <= dim <= MAX_DIM:
        raise InputError(f"dim is {dim!r}; it must be a whole number from 1 to {MAX_DIM}")


def target_from_dict(data: Any, source: str) -> Target:
    """A target from parsed TOML or JSON; unknown kinds, keys and types are refused."""
    kind = data.get("kind") if isinstance(data, dict) else None
    reader = READERS.get(kind) if isinstance(kind, str) else None
    if reader is None:
        *others, last = map(repr, READERS)
        raise InputError(f"{source}: kind is {str(kind)[:40]!r}, expected {', '.join(others)} or {last}")
    return reader(data, source)


Kind = TypeVar("Kind", bound=Target)


def target_of_kind(data: Any, source: str, kind: type[Kind]) -> Kind:
    """A target from parsed TOML or JSON that must be of the given class."""
    target = target_from_dict(data, source)
    if not isinstance(target, kind):
        needed = f"one of kind {kind.kind} is needed here"
        raise InputError(f"{source} holds a target of kind {target.kind}, {needed}; build {target.kind} takes it")
    return target


def _checked_keys(data: dict[str, Any], allowed: set[str], source: str) -> str | None:
    """The read-out's text, after a look at the keys."""
    unknown = set(data) - {"kind", "dim", "readout"} - allowed
    if unknown:
        raise InputError(f"{source}: unknown key {sorted(unknown)[0]!r}")
    formula = data.get("readout")
    if formula is not None and not isinstance(formula, str):
        raise InputError(f"{source}: readout must be text")
    return formula


def _fixed_from_dict(data: dict[str, Any], source: str) -> FixedMemory:
    formula, lags = _checked_keys(data, {"lags", "alphabet"}, source), data.get("lags")
    if not isinstance(lags, list):
        raise InputError(f"{source}: lags must be a list of whole numbers")
    alphabet = data.get("alphabet")
    if alphabet is not None and not isinstance(alphabet, list):
        raise InputError(f"{source}: alphabet must be a list of letters such as [-1, 1]")
    return FixedMemory(tuple(lags), data.get("dim", 1), formula, None if alphabet is None else tuple(alphabet))


def _kernel_from_dict(data: dict[str, Any], source: str) -> KernelMemory:
    formula, kernels = _checked_keys(data, {"kernels", "envelopes"}, source), data.get("kernels")
    if not isinstance(kernels, list) or not all(isinstance(text, str) for text in kernels):
        raise InputError(f"{source}: kernels must be a list of expressions in s")
    claims = data.get("envelopes", [])
    if not isinstance(claims, list) or len(claims) not in (0, len(kernels)):
        raise InputError(f"{source}: envelopes must be a list with one entry per kernel")
    envelopes = tuple(envelope_from(claim, source) for claim in claims)
    return KernelMemory(tuple(kernels), data.get("dim", 1), formula, envelopes)


def _coupling_from_dict(data: dict[str, Any], source: str) -> Target:
    from analyzer.targets.coupling import coupling_from_dict  # here, so that memories do not wait for numpy

    return coupling_from_dict(data, source)


READERS: dict[str, Callable[[dict[str, Any], str], Target]] = {
    "fixed": _fixed_from_dict,
    "adaptive": adaptive_from_dict,
    "kernel": _kernel_from_dict,
    "coupling": _coupling_from_dict,
}
"""Who reads a target of which kind."""


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file, decimals exact."""
    import tomllib

    try:
        if path.exists() and (not path.is_file() or path.stat().st_size > MAX_FILE):
            raise InputError(f"{path} is not a target file of at most {MAX_FILE} bytes")
        return tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except OSError as error:
        raise InputError(f"cannot read {str(path)[:80]}: {error.strerror}") from None
    except (ValueError, RecursionError, ArithmeticError) as error:  # among them TOML and Unicode errors
        raise InputError(f"{path} is not valid TOML: {str(error)[:80]}") from None
