"""Linear functionals of the tokens: exact rows, their kernels on a window, bounds of their ℓ¹ norms.

A functional stream·(U − offset) − memory·m has rational weights, so functionals are added without error. It is a convolution of the tokens
with one kernel κ per input coordinate; for tokens in [−1, 1] its supremum is ‖κ‖₁. Up to single tokens κ = Σ_h G_h k_h over *sources*,
the heads and the memories.

The *window* is the recent past. It is cut into *blocks*: single tokens first, later blocks that grow geometrically. On a block

    Σ_s |κ(s)| ≤ |Σ_s κ(s)| + Σ_h |G_h| Σ_s |k_h(s) − mean k_h|,

so norms are bounded by block sums of κ and the weights G_h alone: the *tail* of a source is the last sum, added up over all blocks, plus
what it holds beyond the window. Block sums come from ball arithmetic and are stored in double precision with a bound of how far they are
off.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from flint import arb, arb_mat, fmpq

from analyzer.errors import Refusal
from analyzer.kernels.l1_norms import TAIL_BITS, TAIL_SHARE, DeliveredKernel, Norm, Powers, l1_norm
from analyzer.numbers.curves import ROUND, Row
from analyzer.numbers.exact import nearest, rational, upper, working_precision
from analyzer.targets.protocol import LayerTarget
from constructions.run.fused import FusedLayer

ENTRIES = 1 << 20
"""Values of heads computed for the window: coordinates times heads times tokens, about a second of ball arithmetic."""
SINGLE, BLOCK = 128, 32
"""Tokens that are taken one by one, and the length of later blocks as a share of their age: a power s^−p is off by p/128 there."""
LATEST = 1 << 14
"""Tokens of a window at most."""
LONGEST = 1 << 12
"""Tokens of a window at most, unless a lag asks for more."""
WINDOW_TAIL = 2.0**-20
"""The window grows until the heads hold this much beyond it, or until it is full."""
EXACT_NORMS = 8
"""ℓ¹ norms in ball arithmetic for functionals whose tail the heads bound only crudely."""
UNDERFLOW = 2.0**-1070
"""Bounds the error of a few products or quotients below the normal numbers, 2^−1075 each, where no relative bound holds."""


@dataclass(frozen=True)
class Functional:
    """stream·(U − offset) − memory·m: linear in the tokens."""

    stream: Row
    memory: Row

    def plus(self, other: "Functional", factor: fmpq) -> "Functional":
        pairs = ((self.stream, other.stream), (self.memory, other.memory))
        return Functional(*(tuple(mine + factor * theirs for mine, theirs in zip(*rows, strict=True)) for rows in pairs))

    def plus_all(self, others: Iterable["Functional"], factors: Iterable[float]) -> "Functional":
        """The sum with these multiples, exact whatever the floats."""
        total = self
        for other, factor in zip(others, factors, strict=True):
            total = total.plus(other, rational(factor))
        return total


@dataclass(frozen=True)
class KernelTable:
    """Kernels of functionals in double precision, a row each."""

    window: np.ndarray
    """Sums over the blocks, one input coordinate after the other."""
    errors: np.ndarray
    """How far a row is off in all."""
    beyond: np.ndarray
    """Weights of the sources, one input coordinate after the other."""
    tails: np.ndarray
    """Tails of the sources, the same for all rows."""

    def tail_sizes(self) -> np.ndarray:
        sizes = np.nan_to_num(np.abs(self.beyond) @ self.tails, nan=np.inf, posinf=np.inf)
        return np.asarray(sizes * (1 + len(self.tails) * 4 * ROUND))

    def sizes(self) -> np.ndarray:
        """Upper bounds of the ℓ¹ norms."""
        count = self.window.shape[1]
        return np.asarray((np.abs(self.window).sum(axis=1) + self.errors + self.tail_sizes()) * (1 + count * 4 * ROUND))


def unit(place: int, size: int) -> Row:
    return tuple(fmpq(int(i == place)) for i in range(size))


def block_edges(count: int, lags: Sequence[int]) -> list[int]:
    """Where the blocks of a window begin: single tokens, then blocks that grow geometrically, the lags being blocks of their own."""
    marks = sorted({count, *lags, *(lag + 1 for lag in lags)})
    edges = list(range(SINGLE + 1))
    while edges[-1] < count:
        last = edges[-1]
        edges.append(min(last + last // BLOCK, *(mark for mark in marks if mark > last), count))
    return edges


class WindowKernels:
    """Kernels of functionals of one layer and one target's memories, on a window that is chosen once."""

    def __init__(self, target: LayerTarget, layer: FusedLayer) -> None:
        self.target, self.layer = target, layer
        width, slots = layer.embedding.shape[0], target.readout.coordinates
        self.zero = Functional((fmpq(0),) * width, (fmpq(0),) * slots)
        self.coordinates = [self.of_stream(unit(j, width)) for j in range(width)]
        self.memories = [self.of_memories(unit(k, slots)) for k in range(slots)]
        self.exact_left = EXACT_NORMS
        with working_precision(layer.bits):
            heads = [self._head(h) for h in range(len(layer.rpe))]
            self.count = self._window_length(heads)
            self.edges = block_edges(self.count, target.places)
            head_tails = [self._tail(head, head.values(0, self.count)) for head in heads]
            columns = [self._column(column) for column in range(target.dim)]
        self.atoms = [sums for sums, _ in columns]
        """For every input coordinate the block sums of the coordinates of the stream, then of the memories."""
        self.tails = np.array([[*head_tails, *memory_tails] for _, memory_tails in columns]).ravel()

    def of_stream(self, row: Row) -> Functional:
        """row·(U − offset)."""
        return Functional(row, self.zero.memory)

    def of_memories(self, weights: Iterable[fmpq]) -> Functional:
        """weights·m."""
        return Functional(self.zero.stream, tuple(-w for w in weights))

    def _head(self, h: int) -> DeliveredKernel:
        """One head alone."""
        gains = np.full((len(self.layer.rpe), 1, 1), fmpq(0), dtype=object)
        gains[h, 0, 0] = fmpq(1)
        nothing = np.array([[fmpq(0)]], dtype=object)
        return replace(self.layer, embedding=nothing, offset=nothing[0], gains=gains).kernel([fmpq(1)], 0)

    def _window_length(self, heads: Sequence[DeliveredKernel]) -> int:
        farthest = self.target.places[-1]
        count = 1 + max(SINGLE, farthest)
        if count > LATEST:
            raise Refusal(f"lag {farthest} is not certified: kernels of arbitrary weights are looked at for lags below {LATEST}")
        most = max(count, min(LONGEST, ENTRIES // (self.target.dim * len(self.coordinates) * len(heads))))
        while count < most and not sum((upper(head.tail(count)) for head in heads), 0.0) < WINDOW_TAIL:
            count = min(most, 2 * count)
        return count

    def _block_sums(self, values: Sequence[arb]) -> list[arb]:
        return [sum(values[start:stop], arb(0)) for start, stop in itertools.pairwise(self.edges)]

    def _column(self, column: int) -> tuple[arb_mat, list[float]]:
        """Block sums of the coordinates of the stream and of the memories on one input coordinate, and the tails of the latter."""
        kernels = [self.kernel(functional, column) for functional in (*self.coordinates, *self.memories)]
        values = [kernel.values(0, self.count) for kernel in kernels]
        memories = list(zip(kernels, values, strict=True))[len(self.coordinates) :]
        return arb_mat([self._block_sums(row) for row in values]), [self._tail(*memory) for memory in memories]

    def _tail(self, source: DeliveredKernel, values: Sequence[arb]) -> float:
        """What a source holds beyond the window, and Σ |k(s) − its mean| over the blocks, from its values on the window."""
        total = source.tail(self.count)
        total += sum((abs(arb(w)) for lag, w in source.spikes if lag >= self.count), arb(0))
        for start, stop in itertools.pairwise(self.edges):
            if stop > start + 1:
                mean = sum(values[start:stop], arb(0)) / (stop - start)
                total += sum((abs(v - mean) for v in values[start:stop]), arb(0))
        return upper(total)

    def kernel(self, functional: Functional, column: int) -> DeliveredKernel:
        return self.layer.kernel(functional.stream, column, *self.target.wanted(functional.memory, column))

    def norms(self, functional: Functional) -> list[Norm]:
        """ℓ¹ norms over the infinite past, one per input coordinate."""
        with working_precision(self.layer.bits):
            return [l1_norm(self.kernel(functional, column)) for column in range(self.target.dim)]

    def affordable(self, functional: Functional) -> bool:
        """Whether an ℓ¹ norm in ball arithmetic gains anything soon: slow powers that are no bank are summed over a million tokens, and
        their tails bounded head by head all the same."""
        with working_precision(TAIL_BITS):
            groups = [g for c in range(self.target.dim) for g in self.kernel(functional, c).groups if isinstance(g, Powers)]
            return all(g.is_slow() or g.tail(LONGEST) <= TAIL_SHARE * g.tail(1) for g in groups)

    def table(self, functionals: Sequence[Functional]) -> KernelTable:
        with working_precision(self.layer.bits):
            # the memories' atoms are kernels of +m, functionals subtract memory·m
            rows = [w for f in functionals for w in (*map(arb, f.stream), *(-arb(w) for w in f.memory))]
            given = arb_mat(len(functionals), len(self.coordinates) + len(self.memories), rows)
            sums = [self._rounded(given * atoms) for atoms in self.atoms]
            weights = [self._source_weights(functionals, column) for column in range(self.target.dim)]
        windows, errors = zip(*sums, strict=True)
        return KernelTable(np.concatenate(windows, axis=1), np.asarray(sum(errors)), np.concatenate(weights, axis=1), self.tails)

    def _rounded(self, sums: arb_mat) -> tuple[np.ndarray, np.ndarray]:
        """Block sums in double precision, and for every row how far they are off; underflow of the sources' weights is counted here."""
        shape, entries = (sums.nrows(), sums.ncols()), sums.entries()
        window = np.array([float(e) for e in entries]).reshape(shape)
        radii = np.array([float(e.rad()) for e in entries]).reshape(shape)
        off = np.abs(window) * (2 * ROUND) + radii * (1 + 4 * ROUND) + UNDERFLOW
        return window, off.sum(axis=1) * (1 + self.count * 4 * ROUND) + UNDERFLOW * self.tails.sum()

    def _source_weights(self, functionals: Sequence[Functional], column: int) -> np.ndarray:
        gains = [[*self.layer.functional(f.stream, column)[1], *(-w for w in f.memory)] for f in functionals]
        rounded = np.array([[nearest(w) for w in row] for row in gains])
        return rounded.reshape(len(functionals), len(self.layer.rpe) + len(self.memories))

    def sizes(self, functionals: Sequence[Functional]) -> list[float]:
        """Upper bounds of the ℓ¹ norms; where the heads' tails are most of it, in ball arithmetic."""
        table = self.table(functionals)
        result = []
        for functional, crude, tail in zip(functionals, table.sizes(), table.tail_sizes(), strict=True):
            size = crude
            if self.exact_left > 0 and not tail <= crude / 2 and self.affordable(functional):
                self.exact_left -= 1
                size = np.fmin(crude, upper(sum((n.most for n in self.norms(functional)), arb(0))))
            if not np.isfinite(size):
                raise Refusal("a functional of this network's stream has no bound in double precision: its weights are too large")
            result.append(max(float(size), ROUND))
        return result
