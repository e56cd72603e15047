"""A target as numbers, so that a page can say what is wanted of tokens that were edited.

* `kernels` and `readout`: memories are convolutions, and f is constant + affine + Σ scale ψ(direction·u + offset);
* `readings`: where lags depend on letters, every way in which the letters that f reads can lie, with the value of f there.

Couplings have neither; a page then knows what is wanted of its stored sequences only.
"""

from typing import Any

from flint import arb, fmpq

from analyzer.numbers.exact import nearest, working_precision
from analyzer.targets.protocol import LayerTarget, Target
from analyzer.targets.readout import ReadOut

MOST_READINGS = 2000
"""Ways to lie that a page holds."""
BITS = 128


def target_data(target: Target | None, distances: int) -> dict[str, Any] | None:
    """What a page needs to evaluate a target on sequences of `distances` tokens; None where it cannot."""
    if target is None:
        return None
    if (layer := target.as_layer_target) is not None:
        return {"kernels": _kernels(layer, distances), "readout": _read_out(layer.readout)}
    memories = target.as_memory_target
    readings = None if memories is None else memories.readings()
    if readings is None or len(readings) > MOST_READINGS:
        return None
    return {"readings": [[list(one.letters), list(one.letters.values()), float(one.value)] for one in readings]}


def _kernels(target: LayerTarget, distances: int) -> list[list[list[float]]]:
    """Of (x0, memories) on every input coordinate, by distance."""
    size = target.readout.coordinates
    found = []
    for j in range(size):
        row = tuple(fmpq(int(i == j)) for i in range(size))
        found.append([wanted_kernel(target, row, column, distances) for column in range(target.dim)])
    return found


def _read_out(readout: ReadOut) -> dict[str, Any]:
    ridges = [
        {
            "profile": ridge.profile.name,
            "degree": ridge.profile.degree,
            "scale": nearest(ridge.scale),
            "direction": [nearest(w) for w in ridge.direction],
            "offset": nearest(ridge.offset),
        }
        for ridge in readout.ridges
    ]
    return {"constant": nearest(readout.constant), "affine": [nearest(w) for w in readout.affine], "ridges": ridges}


def wanted_kernel(target: LayerTarget, row: tuple[fmpq, ...], column: int, distances: int) -> list[float]:
    """The kernel that a linear functional of (x0, memories) should have on an input coordinate."""
    spikes, kernels = target.wanted(row, column)
    with working_precision(BITS):
        values = [arb(spikes.get(s, 0)) for s in range(distances)]
        for kernel, weight in kernels.items():
            values = [v + arb(weight) * k for v, k in zip(values, kernel.values(0, distances), strict=True)]
        return [float(v) for v in values]
