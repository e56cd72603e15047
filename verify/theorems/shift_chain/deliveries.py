"""The heads of one layer: which blocks they deliver, shifted by how much, and how well.

The carrier's shift is read off its kernel κ: τ is where |κ| is largest. e = ‖κ − 1_τ‖₁ has the constants of the executor and the infinite
tail; so has ‖κ‖₁, which is 1 + e at most.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.kernels.l1_norms import l1_norm, with_spikes
from analyzer.numbers.exact import UNIT, maximum, working_precision
from analyzer.theorems import base
from constructions.network.transformer import Attention, Transformer, to_exact, zeros
from constructions.run.fused import FusedLayer, fuse_layer
from constructions.theorems.shift_chain.layout import Layout
from verify.chain.certificate import StrangeWeights
from verify.chain.layer import storage
from verify.chain.rounding import Arithmetic, Rounded, attended
from verify.theorems.shift_chain.form import HEADROOM, check_heads
from verify.theorems.shift_chain.steps import ChainClaim, Delivery, Given, Place, Step

MAX_SHIFT = 4096
"""Where the largest value of a carrier's kernel is looked for."""


@dataclass(frozen=True)
class LayerHeads:
    """The heads of a layer on the stream that they are given, for source values of the given size."""

    claim: ChainClaim
    attention: Attention
    fused: FusedLayer
    given: Given
    stream: list[Rounded]
    size: arb

    def unit(self, row: int) -> list[fmpq]:
        """The functional that reads one row of the stream."""
        return [fmpq(int(j == row)) for j in range(self.claim.layout.width)]

    def deliver(self, row: int, wanted: int | None) -> Delivery:
        """What happens to one row, of which this shift is wanted; None: it is read off the kernel."""
        unit, column = self.unit(row), row % self.claim.layout.dim
        shift = peak(self.fused, unit, column) if wanted is None else wanted
        off = l1_norm(self.fused.kernel(unit, column, {shift: fmpq(1)}))
        whole, error = with_spikes(off, {shift: fmpq(1)}) or l1_norm(self.fused.kernel(unit, column)), off.most
        norm = whole.most.min((1 + error).upper())
        promised, fresh = self.promised(row, shift), arb(0)
        if self.given.noise is not None:
            arithmetic = Arithmetic(self.claim.dtype)
            fresh = attended(arithmetic, self.attention, self.fused, self.stream, {row: norm * self.size}, self.given.past)[row].error
        return Delivery(shift, error, norm, promised, fresh)

    def promised(self, row: int, shift: int) -> arb:
        """What the lemma promises at these decays, and the budget for storing the bank; the residual weight is stored next to 1.

        Minimal banks: (3.3). Balanced banks have no closed form: they are promised the ℓ¹ error of their weights on the ideal kernels, in
        exact arithmetic, and (3.5)'s budget for what storing ratios, gains and weights may add to it.
        """
        fused, dtype, column = self.fused, self.claim.dtype, row % self.claim.layout.dim
        heads = list(range(len(fused.rpe)))
        if self.claim.bank == "minimal":
            try:
                promised = base.extraction_budget(self.claim.bank, "lin", shift, [fused.decays[h] for h in heads])
            except (InputError, Refusal) as error:
                self.claim.faults.append(f"shift {shift}: {error}")
                promised = arb.pos_inf()
        else:
            promised = l1_norm(replace(fused, constants=None).kernel(self.unit(row), column, {shift: fmpq(1)})).most
        residual = fused.embedding[row, column]
        promised += storage(fused, heads, [*(fused.gains[h, row, column] for h in heads), residual], dtype)
        return promised if dtype == "exact" else promised + 3 * arb(UNIT[dtype]) * (1 + abs(arb(residual)))


def peak(fused: FusedLayer, unit: list[fmpq], column: int) -> int:
    """Where a kernel is largest; at least 1."""
    values = [abs(float(v)) for v in fused.kernel(unit, column).values(0, min(MAX_SHIFT, 4 * len(fused.rpe) + 4))]
    return max(range(1, len(values)), key=lambda s: values[s])


def wanted_shifts(layout: Layout, attention: Attention, found: np.ndarray, before: int, delivered: Collection[int]) -> dict[int, int]:
    """Memories that a layer delivers, and the shift that each wants of it: those whose rows the stream or the heads fill."""
    output, wanted = to_exact(attention.output), {}
    for k, lag in enumerate(layout.target.lags, start=1):
        rows = list(layout.memory(k))
        if (found[rows] != 0).any() or (output[:, rows] != 0).any():
            if k in delivered or lag <= before:
                raise StrangeWeights(f"memory m{k} is written after it was delivered, or too late: not a chain of shifts for this target")
            wanted[k] = lag - before
    return wanted


def read_heads(claim: ChainClaim, attention: Attention, place: Place, size: arb) -> Step:
    """The deliveries of one layer for source values of the given size."""
    layout, given = claim.layout, place.given
    memories = {row for k in place.wanted for row in layout.memory(k)}
    writable = memories if place.last else {*memories, *layout.carrier}
    check_heads(attention, layout, writable)
    fused = fuse_layer(attention, given.found, zeros(layout.width))
    stream = [Rounded(size, arb(0))] * layout.width
    for row in writable:
        stream[row] = Rounded(size * abs(arb(given.found[row, row % layout.dim])), given.noise_of(row))
    heads = LayerHeads(claim, attention, fused, given, stream, size)
    with working_precision(fused.bits):
        delivered = {k: _worst([heads.deliver(row, shift) for row in layout.memory(k)]) for k, shift in place.wanted.items()}
        carrier = None if place.last else _worst([heads.deliver(row, None) for row in layout.carrier])
    return Step(len(attention.rpe), carrier, delivered, given.moved)


def _worst(deliveries: Sequence[Delivery]) -> Delivery:
    """One delivery that bounds those of all coordinates of a block."""
    if len({d.shift for d in deliveries}) > 1:
        raise StrangeWeights("the coordinates of one block are shifted differently: not a chain of shifts")
    return Delivery(
        shift=deliveries[0].shift,
        error=maximum([d.error for d in deliveries]),
        norm=maximum([d.norm for d in deliveries]),
        promised=maximum([d.promised for d in deliveries]),
        fresh=maximum([d.fresh for d in deliveries]),
    )


def embedded(network: Transformer, layout: Layout, size: arb) -> Given:
    """What the first layer finds, for tokens of the given size: the embedding and its rounding.

    The source holds the token itself; what may move it is that subnormal tokens are flushed to zero.
    """
    embedding = to_exact(network.embedding)
    if network.dtype == "exact":
        return Given(embedding, None)
    arithmetic, tokens = Arithmetic(network.dtype, HEADROOM), [Rounded(size, arb(0))] * layout.dim
    noise = {row: arithmetic.dot(list(weights), tokens).error for row, weights in enumerate(embedding)}
    return Given(embedding, noise, moved=maximum([noise[row] for row in layout.source]))
