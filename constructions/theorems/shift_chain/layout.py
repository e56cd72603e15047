"""The residual stream of a chain of shifts: which coordinates hold what.

Blocks of d coordinates, d the dimension of a token: `x0` is the token, `m1` … `mM` are the memories x_{t−T_1}, …, x_{t−T_M}; heads read the
`source` and write the `carrier`, the value that is passed from layer to layer. Restored networks have *digits* besides: n − 1 for every
coordinate of x0 and of the memories, n the letters of the alphabet; digit j tells whether the letter lies above the j-th gap.
"""

from collections.abc import Collection
from dataclasses import dataclass

from analyzer.targets.fixed import FixedMemory
from constructions.network.transformer import Transformer


@dataclass(frozen=True)
class Layout:
    """Coordinates of the residual stream."""

    target: FixedMemory

    @property
    def dim(self) -> int:
        return self.target.dim

    @property
    def slots(self) -> int:
        """Coordinates of x0 and the memories: the first ones."""
        return self.target.readout.coordinates

    def memory(self, k: int) -> range:
        """Block of m_k, k ≥ 1; k = 0 is x0."""
        return self.target.readout.slot(k)

    @property
    def source(self) -> range:
        return range(self.slots, self.slots + self.dim)

    @property
    def carrier(self) -> range:
        return range(self.slots + self.dim, self.slots + 2 * self.dim)

    def digits(self, coordinate: int) -> range:
        """Digits of a coordinate of x0 or of a memory."""
        count = len(self.target.alphabet or ()) - 1
        start = self.slots + 2 * self.dim + coordinate * count
        return range(start, start + count)

    @property
    def width(self) -> int:
        return self.slots + 2 * self.dim if self.target.alphabet is None else self.digits(self.slots - 1).stop

    def extracted(self, before: int, shift: int) -> list[int]:
        """Memories that a layer delivers which finds the shift `before` and adds `shift`."""
        return [k for k, lag in enumerate(self.target.lags, start=1) if before < lag <= before + shift]

    def served(self, before: int, shift: int) -> tuple[int, ...]:
        """The shifts that the heads of such a layer serve: its own, and those of the memories that it delivers."""
        return tuple(sorted({shift, *(self.target.lags[k - 1] - before for k in self.extracted(before, shift))}))

    def awaited(self, delivered: Collection[int]) -> list[int]:
        """Coordinates of the memories that are not delivered yet."""
        return [row for k in range(1, len(self.target.lags) + 1) if k not in delivered for row in self.memory(k)]


def meanings(target: FixedMemory, network: Transformer | None = None) -> dict[str, str]:
    """What the slots hold after the last layer."""
    told = {"x0": "the current token", "source": "what the next shift reads", "carrier": "what the last shift delivered"}
    told |= {f"m{k}": f"the token {lag} steps back" for k, lag in enumerate(target.lags, start=1)}
    return told | {f"digits {name}": f"the letter of {name} in steps of its alphabet" for name in target.readout.slots if target.alphabet}


def slots(target: FixedMemory, network: Transformer | None = None) -> dict[str, range]:
    """Named blocks of the residual stream: `x0`, the memories, `source`, `carrier`, and of restored chains the digits of all but those."""
    layout = Layout(target)
    blocks = {name: layout.memory(k) for k, name in enumerate(target.readout.slots)}
    named = {**blocks, "source": layout.source, "carrier": layout.carrier}
    if target.alphabet is None:
        return named
    return named | {f"digits {name}": range(layout.digits(b[0]).start, layout.digits(b[-1]).stop) for name, b in blocks.items()}
