"""The least error without positions from both sides: the floor of `analyzer.limits.permutation_law`, and a network that attains it."""

from typing import Any

from flint import arb

from analyzer.lemmas.sequence_codes import Code, Reading, code_weights
from analyzer.limits.permutation_law import ID, permutation_floor
from analyzer.numbers.exact import lower, maximum, upper, working_precision
from analyzer.targets.sequence import BITS, SequenceTarget
from constructions.theorems.jl_4_1 import assemble
from verify.theorems.jl_4_1 import certified_errors, read


def permutation_limits(target: SequenceTarget, error: float | None = None) -> dict[str, Any]:
    """lower ≤ least error without positions ≤ upper, the second certified from the weights of a network; whether an error is possible."""
    found = permutation_floor(target)
    codes = code_weights(len(target.symbols), target.length, None)
    blind: list[Reading] = ["sum", "counts"]
    code = next(code for name in blind if (code := Code(target, name, codes[name], found.middle)).consistent)
    network = assemble(code, "scalar")
    reading = read(network, target)
    if reading.faults or any(v != 0 for v in network.embedding[:, 0]):
        raise AssertionError("the network for the middle of the orders reads positions")
    with working_precision(BITS):
        certified = upper(maximum(certified_errors(reading.outputs(), target)))
    least = max(0.0, lower(found.floor))
    possible = None if error is None else _possible(found.floor, error, certified)
    return {
        "theorem": ID,
        "target": target.description,
        "length": target.length,
        "letters": len(target.symbols),
        "equivariant": bool(found.exact == 0) if found.exact is not None else (False if least > 0 else None),
        "lower": least,
        "upper": certified,
        "floor_exact": None if found.exact is None else str(found.exact),
        "orders": [target.shown(word) for word in found.orders] if least > 0 else [],
        "constructed": {"certified": certified, "reads": code.reading, "sizes": network.sizes()},
        "error": error,
        "possible": possible,
    }


def _possible(floor: arb, error: float, reached: float) -> bool | None:
    """Whether a network without positions has this error: no below the floor, yes where one was built, else unknown."""
    if floor > arb(error):
        return False
    return True if reached <= error else None
