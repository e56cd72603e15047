"""Plateaus: staircases of relu neurons that reset a value to the nearest letter of an alphabet.

    plateau(r) = v_1 + Σ_j (v_{j+1} − v_j)(relu(k r − k λ_j) − relu(k r − k θ_j)),   θ_j = λ_j + 1/k

for the letters v_1 < … < v_n: the j-th *ramp* [λ_j, θ_j] climbs from one letter to the next in the middle of the gap between them. Around
every letter the staircase is flat; how far is its *room*, and an error below it is forgotten.
"""

import math
from dataclasses import dataclass
from functools import cached_property

from flint import arb, fmpq

RAMP_SHARE = fmpq(1, 4)
"""The part of the smallest gap that a plateau's ramp takes at most: 3/8 of the gap is left on either side as room for errors."""


@dataclass(frozen=True)
class Plateaus:
    """A staircase that is constant near every letter: ramps of width 1/k, k a power of 2, in the middle of every gap."""

    letters: tuple[fmpq, ...]

    @cached_property
    def gaps(self) -> list[fmpq]:
        return [b - a for a, b in zip(self.letters, self.letters[1:], strict=False)]

    @cached_property
    def steepness(self) -> fmpq:
        wanted = 1 / (RAMP_SHARE * min(self.gaps))
        return fmpq(2) ** math.ceil(math.log2(float(arb(wanted))))

    @cached_property
    def ramps(self) -> list[tuple[fmpq, fmpq]]:
        """(λ_j, θ_j)."""
        half = 1 / (2 * self.steepness)
        middles = [(a + b) / 2 for a, b in zip(self.letters, self.letters[1:], strict=False)]
        return [(middle - half, middle + half) for middle in middles]

    @property
    def room(self) -> fmpq:
        """How far a value may be from its letter and still be restored."""
        return min(self.gaps) / 2 - 1 / (2 * self.steepness)

    @property
    def size(self) -> fmpq:
        return max(abs(self.letters[0]), abs(self.letters[-1]))

    @property
    def move(self) -> fmpq:
        """Rounding of source += plateau(carrier) − source in units of u, for carriers within the room of the letters.

        Hidden values k r − kλ have one rounded sum of size k(ρ + |λ|); the outer sum has 2(n−1) + 2 terms; one residual addition.
        """
        reach, terms = self.size + self.room, 2 * len(self.letters)
        hidden, outer = fmpq(0), 2 * self.size
        for gap, ramp in zip(self.gaps, self.ramps, strict=True):
            for knot in ramp:
                hidden += 2 * gap * self.steepness * (reach + abs(knot))
                outer += gap * self.steepness * max(reach - knot, fmpq(0))
        return hidden + terms * outer + 2
