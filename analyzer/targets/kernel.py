"""Essentially sparse memories: y_t = f(x_t, (X*ρ_1)(t), …, (X*ρ_M)(t)), (X*ρ)(t) = Σ_{s≥0} ρ(s) x_{t−s}, tokens in [−1, 1]^dim."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.kernels.l1_norms import norm_of
from analyzer.kernels.memory_kernels import Envelope, MemoryKernel, parse_kernel
from analyzer.numbers.exact import to_text, working_precision
from analyzer.targets.protocol import ArrayMap, ConvolvedTarget, as_tuple, shortened
from analyzer.targets.readout import ReadOut, read_out

if TYPE_CHECKING:
    import numpy as np

from analyzer.targets.protocol import MAX_MEMORIES, check_dim

MAX_CONVOLVED = 1 << 14
"""Tokens of an array that is convolved with a kernel: the matrix has 2 GB."""
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
        check_dim(self.dim)
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
    def bank_labels(self) -> tuple[int, ...]:
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
