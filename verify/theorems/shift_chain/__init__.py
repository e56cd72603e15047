"""The certificate of a chain of shifts: from stored weights to witness ≤ certified ≤ bound.

The network is read layer by layer. Before a layer the stream is E v for the value v that the source holds, besides coordinates that
nobody reads there; the heads turn it into κ * v, coordinate by coordinate, and the feed-forward network makes the next E and v of it.
Whatever is written where the layout has no place for it is refused.

    form          what must hold of the weights before any number is computed
    steps         what is said of a chain, layer by layer
    deliveries    the heads of one layer: shifts, extraction errors e_l = ‖κ_l − 1_{τ_l}‖₁, rounding
    linear        chains whose errors are carried on: memories have Π(1 + e) − 1, and the read-out is that of `thm_3_1`
    staircases    feed-forward networks as piecewise linear functions in rational arithmetic
    restoration   chains whose values are reset to letters, as long as a shift is off by less than the room around them
    tables        the table of f that ends a restored chain
    letters       f on the letters of an alphabet
    witness       the sign sequence of the composed error kernel; random tokens for a restored chain

The bound is Π(1 + ê_l) − 1, ê_l what is promised at the stored decays (`deliveries.LayerHeads.promised`) plus the budget for storing the
bank; restored chains are promised the storage of their table.
"""

import time

from analyzer.targets.fixed import FixedMemory
from analyzer.theorems import shift_chain as theorem
from constructions.network.transformer import Transformer
from verify.chain.certificate import Certificate, better_than_constant
from verify.theorems.shift_chain.form import check_embedding, check_layers
from verify.theorems.shift_chain.linear import linear_chain
from verify.theorems.shift_chain.restoration import restored_chain
from verify.theorems.shift_chain.steps import ChainClaim
from verify.theorems.shift_chain.witness import output_at

__all__ = ["output_at", "verify"]


def verify(network: Transformer, target: FixedMemory, bank: str, ffn: str) -> Certificate:
    """Certify a stored network as a chain of shifts for a target, restored if the target has an alphabet."""
    start = time.perf_counter()
    claim = ChainClaim(target, bank, network.dtype)
    check_embedding(network, claim.layout)
    check_layers(network)
    found = linear_chain(network, claim, ffn) if target.alphabet is None else restored_chain(network, claim)
    lag, layers = target.lags[-1], len(found.steps)
    heads = [step.heads for step in found.steps]
    plan = {
        "shifts": [step.longest.shift for step in found.steps], "heads": heads, "layers": layers, "heads_in_all": sum(heads),
        "law": {"layers_times_heads": layers * max(heads), "least": lag}, "objective": theorem.OBJECTIVE,
    }  # fmt: skip
    return Certificate(
        theorem=theorem.ID,
        witness=found.witness,
        witness_input=found.witness_input,
        certified=found.certified,
        bound=found.bound,
        rounding=found.rounding,
        trivial=found.trivial,
        least_heads=theorem.least_heads(lag, layers),
        parts=found.parts,
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=time.perf_counter() - start,
        faults=tuple(claim.faults),
        details={"plan": plan, **found.details},
        remedies=better_than_constant(found.bound, found.trivial, heads=None),
    )
