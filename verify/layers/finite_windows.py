"""Layers whose softmax runs over the tokens of an array, seen from its last position.

Over an array of N tokens the weights of a head are w_s = e^{b(s)} / Σ_{r<N} e^{b(r)} for every distance s < N: finitely many values, so
whatever holds for kernels over the infinite past holds for them. Memories end with the array, too: tokens before it are zero.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from flint import arb, ctx, fmpq

from analyzer.kernels.l1_norms import DeliveredKernel, Taps
from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.numbers.curves import Row
from analyzer.numbers.exact import working_precision
from constructions.network.transformer import Transformer
from constructions.run.fused import FusedLayer, fuse


@dataclass(frozen=True)
class ArrayLayer(FusedLayer):
    """The fused layer at the last of `length` tokens: kernels end with the array, and so do memories."""

    length: int = 0
    biases: tuple[Row, ...] = ()
    """b_h(s) of table heads."""

    def lin(self, gains: list[fmpq]) -> list[Any]:
        """All heads at once, whatever their type."""
        rows = self.biases or ((),) * len(gains)
        used = [
            (arb(gain), _array_weights(kind, decay, row, self.length, ctx.prec))
            for gain, kind, decay, row in zip(gains, self.rpe, self.decays, rows, strict=True)
            if gain != 0
        ]
        return [Taps(tuple(sum((gain * weights[s] for gain, weights in used), arb(0)) for s in range(self.length)))] if used else []

    def log(self, gains: list[fmpq]) -> list[Any]:
        return []

    def table(self, gains: list[fmpq]) -> list[Any]:
        return []

    def kerple(self, gains: list[fmpq]) -> list[Any]:
        return []

    def kernel(
        self,
        row: Sequence[fmpq],
        column: int,
        spikes: dict[int, fmpq] | None = None,
        memories: dict[MemoryKernel, fmpq] | None = None,
    ) -> DeliveredKernel:
        whole = super().kernel(row, column, spikes)
        cut = [Taps(tuple(-arb(w) * v for v in memory.values(0, self.length))) for memory, w in (memories or {}).items()]
        return replace(whole, groups=(*whole.groups, *cut))


@lru_cache(maxsize=256)
def _array_weights(kind: str, decay: fmpq, biases: Row, length: int, bits: int) -> tuple[arb, ...]:
    """softmax of p φ(s) over 0 ≤ s < length (lin, none) or 1 ≤ s < length (log), or of the biases as far as they and the array go."""
    with working_precision(bits):
        if kind == "table":
            raw = [arb(b - max(biases[:length])).exp() for b in biases[:length]]
            raw += [arb(0)] * (length - len(raw))
        elif kind == "log":
            raw = [arb(0), *(arb(s) ** -arb(decay) for s in range(1, length))]
        else:
            raw = [(-arb(decay) * s).exp() for s in range(length)]
        mass = sum(raw, arb(0))
        return tuple(w / mass for w in raw)


def array_layer(network: Transformer, length: int) -> ArrayLayer:
    """The fused layer of an exact network with a finite window, for the last of `length` tokens."""
    attention = network.layers[0].attention
    decays = attention.decay
    closed = np.array([fmpq(2)] * len(decays), dtype=object)  # any decay is summable over an array
    summable = replace(attention, decay=closed, rpe=("lin",) * len(decays), window="infinite", table=None)
    layer = fuse(replace(network, layers=(replace(network.layers[0], attention=summable),)))
    biases = () if attention.table is None else tuple(map(tuple, attention.table))
    return ArrayLayer(layer.embedding, layer.offset, layer.gains, decays, attention.rpe, None, length=length, biases=biases)
