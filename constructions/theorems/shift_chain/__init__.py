"""The weights of a chain of shifts (law, composition and restoration: `analyzer.theorems.shift_chain`).

Every layer shifts the value that it is given by τ_l tokens, τ_1 + … + τ_L = T, and delivers the memories on the way. The last feed-forward
network of a linear chain is the read-out f. With an alphabet every shift but the last is followed by a plateau that resets the value to
the nearest letter; such a restored network ends with a layer without attention that sums the table of f.

    layout        blocks of the residual stream: x0, memories, source, carrier, digits
    plateaus      staircases that are constant near every letter
    shift_banks   banks of heads for a shift, and their cost e + f: extraction error and rounding
    planner       the chain with the fewest layers, then heads, whose costs fit the error
    neuron_rows   feed-forward networks, collected neuron by neuron
    tables        read-outs of letters as sums of indicators
    assembly      the network
"""

from dataclasses import dataclass, replace
from typing import Any

from flint import arb

from analyzer.families import DEFAULT_ERROR, Fixed
from analyzer.numbers.exact import upper
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems.base import check_slopes
from analyzer.theorems.shift_chain import check_options
from constructions.neurons.feedforward import read_out_neurons
from constructions.theorems.assembly import round_network
from constructions.theorems.construction import Construction
from constructions.theorems.shift_chain.assembly import assemble
from constructions.theorems.shift_chain.layout import Layout, meanings, slots
from constructions.theorems.shift_chain.planner import Demand, chain_error, exact_chain, plan, planned_chain
from constructions.theorems.shift_chain.plateaus import Plateaus
from constructions.theorems.shift_chain.shift_banks import Option, quickened, shift_errors
from constructions.theorems.shift_chain.tables import mixed_differences, readout_table

__all__ = [
    "Demand",
    "Layout",
    "Option",
    "Plateaus",
    "ShiftChain",
    "assemble",
    "build",
    "chain_error",
    "meanings",
    "mixed_differences",
    "plan",
    "planned_chain",
    "quickened",
    "readout_table",
    "shift_errors",
    "slots",
]


@dataclass(frozen=True)
class ShiftChain(Construction):
    """A chain built for a target, and what it was built from."""

    shifts: tuple[int, ...] = ()


def build(target: FixedMemory, options: Fixed | None = None, **keywords: Any) -> ShiftChain:
    """Plan and build a chain for a target, restored if it has an alphabet; depth auto plans it, `heads` is the most in a layer."""
    if options is None:
        keywords = {"depth": "auto", "restore": target.alphabet is not None, "dtype": "float32", **keywords}
    options = Fixed.of(options, keywords)
    check_options(target, options)
    demand = Demand(target, options.bank, None if options.depth == "auto" else options.depth, options.heads, options.dtype, None)
    return _linear(demand, options) if target.alphabet is None else _restored(demand, options)


def _restored(demand: Demand, options: Fixed) -> ShiftChain:
    """The chain whose values are reset to letters."""
    chain = planned_chain(demand, 1.0)
    network = assemble(demand.target, chain, None)
    return ShiftChain(demand.target, options, round_network(network, options.dtype), 1, tuple(shift for shift, _ in chain))


def _linear(demand: Demand, options: Fixed) -> ShiftChain:
    """The chain without restoration. A curved read-out takes half of the error; the memories share the rest by Σ_k Lip_k."""
    target, readout = demand.target, demand.target.readout
    delivered = readout.coordinates - target.dim
    error = DEFAULT_ERROR if options.error is None else options.error
    box = [arb(1)] * target.dim + [arb(1 + min(1.0, error))] * delivered
    slopes = readout.lipschitz(box)[1:]
    check_slopes(slopes)
    lipschitz = [upper(slope) for slope in slopes]
    share = min(1.0, error, (error / 2 if readout.ridges else error) / max(sum(lipschitz), 2.0**-40))
    if options.dtype == "exact":
        chain = exact_chain(target, demand.depth, demand.heads, share)
    else:
        chain = planned_chain(replace(demand, error=share), error / share)
    radii = [arb(1)] * target.dim + [arb(1 + share)] * delivered
    neurons, draws = read_out_neurons(options.ffn, readout, radii, options.width, error / 2, options.seed)
    network = assemble(target, chain, neurons)
    return ShiftChain(target, options, round_network(network, options.dtype), draws, tuple(shift for shift, _ in chain))
