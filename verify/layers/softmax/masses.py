"""What positions weigh: κ_h(s) = e^{pφ(s)} or e^{b(s)}, in blocks of positions, and how far blocks are from being one position each.

Near positions are blocks of their own. Far ones are taken together. On a block with masses K_h = Σ_s κ_h(s) and any shares r(s) ≥ 0 of
sum 1,

    Σ_s max_b Σ_h κ_h(s) g_h(b) ≤ max_b Σ_h K_h g_h(b) + Σ_h δ_h max_b |g_h(b)|,     δ_h = Σ_s |κ_h(s) − K_h r(s)|.

Shares are a mean of the heads' own, each counting by the part of its mass that the block holds, so one head alone loses nothing. Far out,
where closed forms give K_h, shares are those of the log head of most mass, s^{−p*}; for another log head K_h r(s)/κ_h(s) lies within a
factor (last/first)^{|p − p*|} of 1 either way, so δ_h is at most that factor less 1, times K_h. Other heads, whose κ falls, have r equal:
δ is at most ½ (number of positions) (first − last), and K_h times 2 in any case. What lies beyond the last block enters by its mass.
Memories that are convolutions are spread over the blocks in the same way.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.errors import Refusal
from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.numbers.exact import upper, working_precision
from constructions.network.transformer import Attention, to_exact
from constructions.run.positions import head_weights, mass_beyond, position_weight

NEAR = 16
"""Positions that are blocks of their own, besides the places a target reads."""
SUMMED = 1 << 12
"""Positions up to which masses are summed one by one; closed forms lie beyond. Tables have none and are summed to their ends."""
GROWTH = ((256, 8), (SUMMED, 4))
"""Blocks are an eighth of their age long up to 256, a quarter as long as masses are summed, and half of it beyond."""
FARTHEST, FAINT = 1 << 40, 2.0**-10
"""Blocks end here, or where every head has this share of its mass left."""
BITS = 128
ROUNDED = 2.0**-50
"""Bounds the relative error of a mass in double precision."""


@dataclass(frozen=True)
class Masses:
    """K (H, S) and, for memories, P (M, S); `spare` (H,) and `memory_spare` (M,) are the δ of all blocks and what lies beyond them.

    Every head is divided by its largest mass."""

    edges: tuple[int, ...]
    heads: np.ndarray
    spare: np.ndarray
    memories: np.ndarray
    memory_spare: np.ndarray


class _Head:
    """κ of one head, in balls; `end` is how far it looks, None for the whole past."""

    def __init__(self, kind: str, decay: fmpq, biases: Sequence[fmpq], length: int | None) -> None:
        self.kind, self.decay = kind, arb(decay)
        seen = biases[:length]
        largest = max(seen, default=fmpq(0))
        self.table = [arb(b - largest) for b in seen]
        self.end = len(seen) if kind == "table" else length

    def values(self, count: int) -> list[arb]:
        """κ(s) at s < count."""
        seen = count if self.end is None else min(count, self.end)
        return [*head_weights(self.kind, self.decay, self.table, seen), *[arb(0)] * (count - seen)]

    def value(self, s: int) -> arb:
        """κ(s) of a head without a table."""
        return arb(0) if self.end is not None and s >= self.end else position_weight(self.kind, self.decay, s)

    def beyond(self, start: int) -> arb:
        """Σ_{s≥start} κ(s) over the whole past."""
        return mass_beyond(self.kind, self.decay, start)


def position_masses(attention: Attention, length: int | None, places: Sequence[int], kernels: Sequence[MemoryKernel | int]) -> Masses:
    """Masses for arrays of `length` tokens, or for the infinite past; memories are lags or kernels."""
    exact = to_exact(attention.decay)
    biases: Any = [[]] * len(attention.rpe) if attention.table is None else to_exact(attention.table)
    with working_precision(BITS):
        heads = [_Head(kind, p, list(row), length) for kind, p, row in zip(attention.rpe, exact, biases, strict=True)]
        edges = _edges(heads, places, [k for k in kernels if isinstance(k, MemoryKernel)])
        summed = [head.values(min(edges[-1], _last_summed(heads))) for head in heads]
        masses = np.array([_block_masses(head, row, edges) for head, row in zip(heads, summed, strict=True)])
        largest = masses.max(axis=1)
        if not (largest > 0).all():
            raise Refusal("a head sees no token of these arrays; give longer ones")
        near = np.array([[float(v) for v in row] for row in summed])
        shares = _shares(near, edges, masses.sum(axis=1))
        total = _deviations(near, shares, edges) + _far_deviations(heads, masses, near.shape[1], edges)
        memories, memory_spare = _memories(kernels, shares, edges, length)
    return Masses(tuple(edges), masses / largest[:, None], total * (1 + ROUNDED) / largest, memories, memory_spare)


def _last_summed(heads: Sequence[_Head]) -> int:
    return max(SUMMED, *(len(head.table) for head in heads if head.kind == "table"), 0)


def _edges(heads: Sequence[_Head], places: Sequence[int], kernels: Sequence[MemoryKernel]) -> list[int]:
    """Single positions near by and at the places that are read, then blocks that grow geometrically."""
    ends = [head.end for head in heads]
    last = max((end for end in ends if end is not None), default=0) if None not in ends else FARTHEST
    summed = _last_summed(heads)
    last = max(last, 1 + max(places), summed if kernels else 0)
    marks = sorted({last, *places, *(place + 1 for place in places)})
    edges = [0]
    while edges[-1] < last:
        start = edges[-1]
        step = 1 if start < NEAR else start // next((part for age, part in GROWTH if start < age), 2)
        stop = min([start + step, *(mark for mark in marks if mark > start), *([summed] if start < summed else [])])
        edges.append(stop)
        endless = [head for head in heads if head.end is None]
        settled = stop > max(places) and (not kernels or stop >= summed)
        if last == FARTHEST and settled and all(upper(head.beyond(stop)) <= FAINT * upper(head.beyond(0)) for head in endless):
            break
    return edges


def _block_masses(head: _Head, values: Sequence[arb], edges: Sequence[int]) -> list[float]:
    """K of every block."""
    masses = []
    for start, stop in itertools.pairwise(edges):
        end = stop if head.end is None else min(stop, head.end)
        if stop <= len(values):
            masses.append(float(sum(values[start:stop], arb(0))))
        elif end <= start:
            masses.append(0.0)
        else:
            masses.append(float(end - start if head.kind == "none" else head.beyond(start) - head.beyond(end)))
    return masses


def _far_deviations(heads: Sequence[_Head], masses: np.ndarray, near: int, edges: Sequence[int]) -> np.ndarray:
    """δ_h of the blocks that closed forms give, and what lies beyond the last of them; all heads have equal shares unless all are log."""
    spare = [head.beyond(edges[-1]) if head.end is None else arb(0) for head in heads]
    parts = masses / masses.sum(axis=1, keepdims=True)
    for k, (start, stop) in enumerate(itertools.pairwise(edges)):
        if stop <= near:
            continue
        leader = heads[int(parts[:, k].argmax())]
        for h, head in enumerate(heads):
            held = arb(float(masses[h, k]) * (1 + ROUNDED))
            if all(other.kind == "log" and other.end is None for other in heads):
                spare[h] += held * ((arb(stop) / start) ** abs(head.decay - leader.decay) - 1 + arb(ROUNDED))
            else:
                spare[h] += ((stop - start) * (head.value(start) - head.value(stop - 1)) / 2 + held * arb(ROUNDED)).min(2 * held)
    return np.array([upper(s) for s in spare])


def _shares(near: np.ndarray, edges: Sequence[int], whole: np.ndarray) -> np.ndarray:
    """r(s) for the positions that are summed: the mean of the heads' shares, each by the part of its whole mass, or equal."""
    shares = np.zeros(near.shape[1])
    for start, stop in itertools.pairwise(e for e in edges if e <= near.shape[1]):
        part = near[:, start:stop]
        mean = (part / whole[:, None]).sum(axis=0)
        shares[start:stop] = mean / mean.sum() if mean.sum() > 0 else 1 / (stop - start)
    return shares


def _deviations(near: np.ndarray, shares: np.ndarray, edges: Sequence[int]) -> np.ndarray:
    """δ_h of the blocks that are summed, rounding included; rows are heads or memories."""
    total = np.zeros(len(near))
    for start, stop in itertools.pairwise(e for e in edges if e <= near.shape[1]):
        part = near[:, start:stop]
        if stop > start + 1:
            total += np.abs(part - part.sum(axis=1, keepdims=True) * shares[start:stop]).sum(axis=1)
        total += ROUNDED * np.abs(part).sum(axis=1)
    return total


def _memories(
    kernels: Sequence[MemoryKernel | int], shares: np.ndarray, edges: Sequence[int], length: int | None
) -> tuple[np.ndarray, np.ndarray]:
    """P and δ of the memories: a lag is one position, a kernel is spread over the blocks and ends with the array."""
    blocks = list(itertools.pairwise(edges))
    spread, spare = np.zeros((len(kernels), len(blocks))), np.zeros(len(kernels))
    for k, kernel in enumerate(kernels):
        if not isinstance(kernel, MemoryKernel):
            spread[k, edges.index(kernel)] = 1.0
            continue
        count = len(shares) if length is None else min(len(shares), length)
        values = np.array([[float(v) for v in kernel.values(0, count)] + [0.0] * (len(shares) - count)])
        spread[k, : sum(stop <= len(shares) for _, stop in blocks)] = [
            values[0, start:stop].sum() for start, stop in blocks if stop <= len(shares)
        ]
        beyond = arb(0) if length is not None and length <= len(shares) else kernel.tail(len(shares))
        spare[k] = _deviations(values, shares, edges)[0] + upper(beyond)
    return spread, spare
