"""Heads as columns of a priced fit: what each of them puts into every row, by type, decay and place.

Rows are the places s = 0, 1, 2, … one by one and then, in geometric blocks, their sums. A head's column follows from its tails, the mass
at s ≥ e for every edge e. For log heads and edges A ≥ FIRST_BLOCK these are Euler–Maclaurin sums

    ζ(p, A) = A^{−p} (A/(p − 1) + 1/2 + Σ_{k≤K} B_{2k}/(2k)! (p)_{2k−1} A^{1−2k}) + R,

for which |R| ≤ 4 (p)_{2K−1}/(2π)^{2K} · A^{1−p−2K}: below 2^−135 for all p > 1 with K = 24 and A ≥ 24. One table serves all heads.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from flint import arb, arb_mat, fmpq

from analyzer.numbers.exact import dyadic, working_precision
from constructions.banks.priced_fit import doubles

DENSE = 24
"""Places written out one by one: this many and four times the lag, so that every block starts well behind the lag."""
TURNS = {True: 12, False: 24}
"""Blocks have length e/TURNS at edge e, for lin heads alone and for others: kernels turn on a logarithmic scale, and a block should not
hold two turns."""
TOP: dict[str, int] = {"lin": 1 << 14, "log": 1 << 400, "mixed": 1 << 14}
"""Edge after which one row holds all that follows: what a lin head with p > 2^-14, or a log head with p > 1 + 2^-7, has left is small."""
LEAST = {"lin": 0, "log": 1}
"""Decays are above this: what rounds to it is no head."""
FIRST_BLOCK, TERMS = 24, 24
"""The least edge A and the number K of terms of the Euler–Maclaurin sums."""
STEPS, COARSE = 8, 6
"""Places of the fine scale per half turn of F, so that a parabola through three of them shows where it peaks; every so many of them are
what column generation starts with, about four for three half turns."""
SLOWER = 4
"""The scales reach decays e^−SLOWER times those that the last edge resolves: what is slower is the limit p → 0 or 1 up to as much."""
SCALE_BITS = 128
"""Precision of the columns of the fine scale: F is of size 2^-64 or more, and the terms that cancel are at most 1."""
NO_OFFSET = fmpq(0)


@dataclass(frozen=True)
class Head:
    """A head by type and decay; `decay` None stands for a limit: the residual and lin p → ∞ (`edge` 0), log p → ∞ (1), p → 0 or 1 (−1).

    Heads of type `power` weigh s ≥ 0 by (s + offset)^{−p}, offset > 0.
    """

    rpe: str
    decay: fmpq | None
    edge: int = 0
    offset: fmpq = NO_OFFSET


RESIDUAL = Head("lin", None, 0)


@dataclass(frozen=True, eq=False)
class Rows:
    """The places of a programme: row i stands for edges[i] ≤ s < edges[i+1], the last one for all that follows."""

    edges: tuple[int, ...]
    ends: bool = False
    """Whether the rows end before the last edge; what heads have left there is then paid for head by head."""
    _known: dict[Head, list[arb]] = field(default_factory=dict)

    def column(self, head: Head) -> list[arb]:
        """What a head puts into every row."""
        if head.decay is None:
            place = len(self.edges) - 1 if head.edge < 0 else self.edges.index(head.edge)
            return [arb(int(i == place)) for i in range(len(self.edges) - self.ends)]
        tails = self.tails(head)
        return [a - b for a, b in zip(tails, [*tails[1:], arb(0)], strict=True)][: len(tails) - self.ends]

    def beyond(self, head: Head) -> arb:
        """The mass of a head that the rows do not hold."""
        return self.tails(head)[-1] if self.ends and head.decay is not None else arb(0)

    def tails(self, head: Head) -> list[arb]:
        """The mass of a head at s ≥ e, for every edge e."""
        if head not in self._known:
            self._known[head] = self._survival(head)
        return self._known[head]

    def _survival(self, head: Head) -> list[arb]:
        p = arb(head.decay)
        if head.rpe == "lin":
            return self._lin_tails(p)
        if head.rpe == "power":
            tails = [p.zeta(arb(head.offset + e)) for e in self.edges]
            return [tail / p.zeta(arb(head.offset)) for tail in tails]
        return self._log_tails(p)

    def _lin_tails(self, p: arb) -> list[arb]:
        """e^{−pe}: a product for edges that follow each other."""
        ratio, last, result = (-p).exp(), -1, list[arb]()
        for edge in self.edges:
            result.append(result[-1] * ratio if edge == last + 1 and result else (-p * edge).exp())
            last = edge
        return result

    def _log_tails(self, p: arb) -> list[arb]:
        """ζ(p, e)/ζ(p): less and less of ζ(p) while edges follow each other, by Euler–Maclaurin sums for the edges behind."""
        whole = p.zeta()
        share, running, result = 1 / whole, whole, list[arb]()
        for edge in self.edges[: self._singles]:
            result.append(running * share)
            running -= arb(edge) ** -p if edge else arb(0)
        rising, terms = p, [1 / (p - 1), arb(1) / 2]
        for k in range(TERMS):
            terms.append(rising)
            rising = rising * (p + (2 * k + 1)) * (p + (2 * k + 2))
        sums = (arb_mat([terms]) * self._bernoulli).entries()
        result += [(-p * log).exp() * total * share for log, total in zip(self._logs, sums, strict=True)]
        return result

    @cached_property
    def _singles(self) -> int:
        """How many edges have the one before as neighbour, or are too small for Euler–Maclaurin sums."""
        place = next((i for i in range(1, len(self.edges)) if self.edges[i] != self.edges[i - 1] + 1), len(self.edges))
        if place < len(self.edges) and self.edges[place] < FIRST_BLOCK:
            raise ValueError(f"blocks of log heads start at {FIRST_BLOCK} or later")
        return place

    @cached_property
    def _logs(self) -> list[arb]:
        return [arb(edge).log() for edge in self.edges[self._singles :]]

    @cached_property
    def _bernoulli(self) -> arb_mat:
        """Rows A, 1 and B_{2k}/(2k)! A^{1−2k} for the edges A behind."""
        behind = [arb(edge) for edge in self.edges[self._singles :]]
        numbers = [arb(fmpq.bernoulli(2 * k)) / math.factorial(2 * k) for k in range(1, TERMS + 1)]
        powers = [[number * edge ** (1 - 2 * k) for edge in behind] for k, number in enumerate(numbers, start=1)]
        return arb_mat([behind, [arb(1)] * len(behind), *powers])


def rows_for(lag: int, top: int, first: int, linear: bool, turns: int = TURNS[False]) -> Rows:
    """Rows for a lag: one by one up to 4T + DENSE, then blocks up to `top`."""
    edges = list(range(first, 4 * lag + DENSE))
    while edges[-1] < top:
        edge = edges[-1]
        edges.append(edge + max(1, edge // turns if linear else int(edge * math.expm1(min(1.0, math.log(edge) / turns)))))
    return Rows(tuple(edges))


@dataclass(frozen=True)
class Scale:
    """Decays of one type in even steps x of a scale on which F turns evenly: for lin z = tanh²(x/2), for log p = 1 + e^x.

    With u = 2^−bits the half turns of the lin optimum are π/λ long, λ = 2 ln(1/u)/π (π-law). For log heads half turns are longer than
    `half` as far as we have seen.
    """

    rpe: str
    places: tuple[float, ...]

    @classmethod
    def of(cls, rpe: str, bits: int) -> "Scale":
        if rpe == "lin":
            half = math.pi**2 / (2 * bits * math.log(2))
            return cls(rpe, tuple(float(x) for x in np.arange(half / STEPS, math.log(4 * TOP["lin"]) + SLOWER, half / STEPS)))
        slow = -math.log(math.log(TOP["log"]))
        half = (math.log(bits) - slow + 1) / bits
        return cls(rpe, tuple(float(x) for x in np.arange(math.log(2 * bits), slow - SLOWER, -half / STEPS)))

    def head(self, place: float) -> Head:
        """The head at a place of the scale."""
        x = arb(place)
        return Head(self.rpe, dyadic(-2 * (x / 2).tanh().log() if self.rpe == "lin" else 1 + x.exp(), 64))

    def coarse(self) -> list[Head]:
        """The heads that column generation starts with."""
        return [self.head(x) for x in self.places[::COARSE]]

    def columns(self, rows: Rows) -> arb_mat:
        """The columns of all places, each a row of the matrix."""
        with working_precision(SCALE_BITS):
            own = Rows(rows.edges, rows.ends)
            return arb_mat([own.column(self.head(x)) for x in self.places]).mid()

    def peaks(self, columns: arb_mat, dual: Sequence[arb], unit: float, tolerance: float) -> list[Head]:
        """Heads at which |F| = |Σ δ_s k(s)| has a maximum above (1 + tolerance)u, by parabolas; none if there is no such place."""
        with working_precision(SCALE_BITS):
            sizes = np.abs(doubles(columns * arb_mat(len(dual), 1, list(dual)))[:, 0]) / unit
        result, highest, step = list[Head](), max(sizes[0], sizes[-1]), self.places[1] - self.places[0]
        for k in range(1, len(sizes) - 1):
            left, size, right = sizes[k - 1 : k + 2]
            bend = left - 2 * size + right
            if not (size >= left and size >= right and bend < 0):
                continue
            top = size - (left - right) ** 2 / (8 * bend)
            highest = max(highest, top)
            if top >= 1 + tolerance / 4:
                result.append(self.head(self.places[k] + step * (left - right) / (2 * bend)))
        return result if highest > 1 + tolerance else []
