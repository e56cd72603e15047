"""What every head and every neuron of a network does, read off its weights and the names of its slots.

The gain of a head from stream coordinate to stream coordinate is G = W_O W_V; a head *reads* the slots in which G has a column that is not
0, and *writes* those in which it has such a row. What its scores read of the query and of the key are the columns of W_Q, W_K and w. From
this and the kind of its layer follows its role:

| role    | the head                                                                                       |
|---------|------------------------------------------------------------------------------------------------|
| off     | G = 0: whatever it attends to, it adds nothing                                                 |
| extract | dp-free: adds Σ_s w(s) G X_{t−s} with weights w that depend on the distance only               |
| fetch   | nf, tmx: the same, scaled by what the query's lag slot holds, so that the peak lies at that lag |
| compare | dp with queries and keys: attends to tokens by comparing slots                                 |
| correlate | linear: adds the mean of values, each times the product of a query and a key                |
| average | dp without queries and keys: attends by position only, or to all tokens alike                  |

A neuron reads the slots of its row in B and writes those of its column in A, "output" in the last layer: a *constant* reads nothing, one
without a column is *off*; the others *bend* what they read, relu(B u + c), and are listed together where they read and write the same.
Nothing here is certified or needs to be: it is which weights are 0.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from constructions.network.transformer import Attention, FeedForward, Transformer, to_exact
from constructions.run.stream import Slots

Plain = dict[str, Any]
OUTPUT = "output"


def mechanism(network: Transformer, slots: Slots) -> list[Plain]:
    """One entry per layer: `heads`, one by one, and `neurons`, in groups; numbers count from 1."""
    found = []
    for number, layer in enumerate(network.layers, start=1):
        last = number == len(network.layers)
        found.append({"layer": number, "heads": _heads(layer.attention, slots), "neurons": _neurons(layer.feedforward, slots, last)})
    return found


def _touched(array: np.ndarray, slots: Slots) -> list[str]:
    """Names of the slots at whose coordinates the last axis has a number that is not 0."""
    used = {int(j) for j in np.nonzero(np.any(np.reshape(array != 0, (-1, array.shape[-1])), axis=0))[0]} if array.size else set()
    named = [name for name, places in slots.items() if used & set(places)]
    return [*named, *(f"coordinate {j}" for j in sorted(used - {j for places in slots.values() for j in places}))]


def _heads(attention: Attention, slots: Slots) -> list[Plain]:
    value, output, decay = (to_exact(a) for a in (attention.value, attention.output, attention.decay))
    query, key, pointer = (np.asarray(a) for a in (attention.query, attention.key, attention.pointer))
    found = []
    for h, rpe in enumerate(attention.rpe):
        gain = output[h] @ value[h] if value.shape[1] else np.zeros((value.shape[2], value.shape[2]), dtype=int)
        asks = _touched(pointer[h], slots) if len(pointer) else _touched(query[h], slots)
        answers = [] if len(pointer) else _touched(key[h], slots)
        head: Plain = {
            "head": h + 1,
            "role": _role(attention, gain, asks),
            "reads": _touched(gain, slots),
            "writes": _touched(gain.T, slots),
        }
        head |= {"positions": rpe} | ({"decay": float(decay[h])} if rpe not in ("none", "table") else {})
        found.append(head | ({"query": asks} if asks else {}) | ({"key": answers} if answers else {}))
    return found


def _role(attention: Attention, gain: np.ndarray, asks: Sequence[str]) -> str:
    if not np.any(gain != 0):
        return "off"
    if attention.kind == "dp-free":
        return "extract"
    if attention.kind == "linear":
        return "correlate" if asks else "off"
    if attention.kind == "dp":
        return "compare" if asks else "average"
    return "fetch"


def _neurons(ffn: FeedForward, slots: Slots, last: bool) -> list[Plain]:
    inner, outer = np.asarray(ffn.inner), np.asarray(ffn.outer)
    groups: dict[tuple[str, tuple[str, ...], tuple[str, ...]], list[int]] = {}
    for k in range(len(inner)):
        reads = tuple(_touched(inner[k], slots))
        writes = ((OUTPUT,) if np.any(outer[:, k] != 0) else ()) if last else tuple(_touched(outer[:, k], slots))
        role = "off" if not writes else "bend" if reads else "constant"
        groups.setdefault((role, reads, writes), []).append(k + 1)
    return [{"neurons": k, "role": role, "reads": list(reads), "writes": list(writes)} for (role, reads, writes), k in groups.items()]
