"""What is said of a chain of shifts, layer by layer.

A layer finds a value v in its *source*, and multiples of v where its residual weights are wanted. Its heads *deliver* κ * v, nearly v
shifted by τ, into the *carrier*, which the feed-forward network hands on to the next layer, and into the memories whose lag is reached on
the way. `fresh` is what is rounded between the computed source and a delivered value. Restored chains *reset* values after a shift: a
staircase replaces them that is constant near every letter; how far is its *room*.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.numbers.exact import upper
from analyzer.targets.fixed import FixedMemory
from constructions.theorems.shift_chain.layout import Layout
from verify.chain.certificate import Part


@dataclass(frozen=True)
class ChainClaim:
    """What a network is read as: a chain for this target, with banks of this kind, in this arithmetic; and what speaks against it."""

    target: FixedMemory
    bank: str
    dtype: str
    faults: list[str] = field(default_factory=list)

    @property
    def layout(self) -> Layout:
        return Layout(self.target)


@dataclass(frozen=True)
class Given:
    """What a layer finds: the stream as a multiple of the value, the rounding of its rows (None: exact) and of the source. In restored
    chains also how far letters are off, and a bound of the constant state before the array (None: it is 0)."""

    found: np.ndarray
    noise: dict[int, arb] | None
    moved: arb = field(default_factory=lambda: arb(0))
    letter_error: arb = field(default_factory=lambda: arb(0))
    past: arb | None = None

    def noise_of(self, row: int) -> arb:
        return (self.noise or {}).get(row, arb(0))


@dataclass(frozen=True)
class Place:
    """Where a layer stands: what it finds, the shift that every memory wants which it delivers, and all memories delivered after it."""

    given: Given
    wanted: dict[int, int]
    delivered: tuple[int, ...]
    first: bool
    last: bool

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal for places that differ in nothing but what the layer before explains."""
        return tuple(sorted(self.wanted.items())), self.delivered, tuple(self.given.found.flat), self.first, self.last


@dataclass(frozen=True)
class Delivery:
    """A block that a layer writes: the shift wanted of it, its extraction error, kernel norm, promise, and rounding per unit of size."""

    shift: int
    error: arb
    norm: arb
    promised: arb
    fresh: arb


@dataclass(frozen=True)
class Step:
    """One layer of a chain: what happens to the carrier (None in the last layer) and to the memories that it delivers."""

    heads: int
    carrier: Delivery | None
    memories: dict[int, Delivery]
    moved: arb
    """Rounding of the source that the heads read, per unit of size."""

    @property
    def longest(self) -> Delivery:
        return self.carrier or max(self.memories.values(), key=lambda d: d.shift)


@dataclass(frozen=True)
class Restoration:
    """How values are reset after a shift: how far they are off when they come, and the room for that; how far the letters are off that
    leave, in exact arithmetic, and what of it storage explains; what the next layer finds."""

    shift: int
    off: arb
    room: fmpq
    uneven: arb
    storage: arb
    then: Given


@dataclass(frozen=True)
class Findings:
    """What a certificate says of a chain beyond its sizes; `details` is plain data."""

    steps: list[Step]
    witness: float
    witness_input: str
    certified: float
    bound: float
    rounding: float
    trivial: float
    parts: tuple[Part, ...]
    details: dict[str, Any] = field(default_factory=dict)


def shift_parts(steps: Sequence[Step]) -> list[Part]:
    """The longest shift of every layer, equal ones gathered: what is certified of it beside what is promised."""
    counts: dict[tuple[int, int, float, float], int] = {}
    for step in steps:
        here = step.longest
        group = (here.shift, step.heads, upper(here.error), upper(here.promised))
        counts[group] = counts.get(group, 0) + 1
    return [
        Part(f"shift {shift} with {heads} heads ×{count}", certified, promised)
        for (shift, heads, certified, promised), count in counts.items()
    ]
