"""Networks with one changed weight: to see what a certificate notices.

w → w (1 + by) for one entry w ≠ 0. Layers, heads and the places in an array count from 1, as on paper. In exact networks the change is
exact; in float networks the new weight is rounded to their type, and a `by` that rounding undoes is refused.

    embedding (D, d), embedding-bias (D), positions (P, D)                                W_E, b_E, P
    decay (H), value (H, dv, D), output (H, D, dv), query, key (H, dk, D), pointer (H, D)   p, W_V, W_O, W_Q, W_K, w of every layer
    table (H, S), rate (H)                                                                b_h(s), r_h
    inner (m, D), inner-bias (m), outer (D, m), the last one (outputs, m)                 B, c, A of every layer
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import fmpq

from analyzer.errors import InputError, Refusal
from analyzer.numbers.exact import nearest, rational, to_text
from constructions.files.bundle import arrays_of, network_of, structure_of
from constructions.network.form import ATTENTION, OF_TYPE, check_form
from constructions.network.transformer import Transformer, to_float

OF_NETWORK = {"embedding": "embedding", "embedding-bias": "bias", "positions": "positions"}
OF_HEADS = {name: f"attention.{name}" for name in (*ATTENTION, *OF_TYPE)}
OF_NEURONS = {"inner": "feedforward.inner", "inner-bias": "feedforward.bias", "outer": "feedforward.outer"}
MAX_BITS = 4096
"""Of numerator and denominator of `by`: more is taken for a mistake."""


@dataclass(frozen=True)
class Change:
    """One entry of one array, before and after; layer, head and index count from 1, and are None where an array has no such thing."""

    weight: str
    layer: int | None
    head: int | None
    index: tuple[int, ...]
    before: fmpq
    after: fmpq

    @property
    def relative(self) -> float:
        """after / before − 1."""
        return nearest(self.after / self.before - 1)

    def __str__(self) -> str:
        places = [f"layer {self.layer}"] * (self.layer is not None) + [f"head {self.head}"] * (self.head is not None)
        places += [f"entry ({', '.join(map(str, self.index))})"] * bool(self.index)
        return f"{', '.join([self.weight, *places])}: {nearest(self.before):.6g} changed by {self.relative:.3g} of itself"

    def as_dict(self) -> dict[str, Any]:
        """Plain data; `from` and `to` are exact (see `analyzer.numbers.exact.to_text`)."""
        return {
            "weight": self.weight,
            "layer": self.layer,
            "head": self.head,
            "index": list(self.index),
            "from": to_text(self.before),
            "to": to_text(self.after),
            "relative": self.relative,
        }


def breakable(network: Transformer) -> list[str]:
    """The names of the arrays in which there is something to change: an entry that is not 0."""
    found = {weight for weight, *_, array in _arrays(network) if any(value != 0 for value in array.flat)}
    return [weight for weight in (*OF_NETWORK, *OF_HEADS, *OF_NEURONS) if weight in found]


def _arrays(network: Transformer) -> Iterator[tuple[str, str, int | None, np.ndarray]]:
    """Name for people, name in the bundle, layer and entries of every array."""
    arrays = arrays_of(network)
    for weight, name in OF_NETWORK.items():
        if name in arrays:
            yield weight, name, None, arrays[name]
    for index in range(len(network.layers)):
        for weight, part in (OF_HEADS | OF_NEURONS).items():
            name = f"layers.{index}.{part}"
            if name in arrays:
                yield weight, name, index + 1, arrays[name]


def broken(
    network: Transformer,
    weight: str,
    *,
    by: float | fmpq,
    layer: int | None = None,
    head: int | None = None,
    index: tuple[int, ...] | None = None,
) -> tuple[Transformer, Change]:
    """The network with one weight w changed to w (1 + by): the largest in absolute value that has this layer, head and index."""
    share = _share(by)
    _check_places(network, weight, layer, head)
    found: tuple[Any, str, int | None, tuple[int, ...]] | None = None
    for kind, name, where, array in _arrays(network):
        if kind == weight and layer in (None, where):
            for place, value in np.ndenumerate(array):
                matches = head in (None, place[0] + 1) and index in (None, _index(weight, place))
                if matches and (found is None or abs(value) > abs(found[0])):
                    found = value, name, where, place
    if found is None:
        raise InputError(f"there is no entry {index} in {weight}; entries count from 1")
    value, name, where, place = found
    if value == 0:
        raise InputError(f"what is chosen of {weight} is 0, and stays 0 when it is changed by a share of itself; choose another entry")
    arrays = arrays_of(network)
    arrays[name] = np.array(arrays[name])
    arrays[name][place] = _changed(value, share, network.dtype, weight)
    structure = structure_of(network)
    try:
        check_form(arrays, structure, network.dtype)
    except ValueError as error:
        raise InputError(f"{weight} changed by {nearest(share):.3g} of itself is not a network any more: {error}") from None
    number = place[0] + 1 if weight in OF_HEADS else None
    change = Change(weight, where, number, _index(weight, place), _exact(value), _exact(arrays[name][place]))
    return network_of(arrays, structure), change


def _share(by: float | fmpq) -> fmpq:
    """`by` as a rational."""
    share = rational(by)
    if share == 0 or max(int(share.p).bit_length(), int(share.q).bit_length()) > MAX_BITS:
        raise InputError("by is the share of itself by which a weight changes, such as 1e-12 or -0.5; it is not 0, nor absurdly long")
    return share


def _check_places(network: Transformer, weight: str, layer: int | None, head: int | None) -> None:
    names, layers = breakable(network), len(network.layers)
    if weight not in names:
        raise InputError(f"weight is {str(weight)[:40]!r}; this network has {', '.join(names)}")
    if weight in OF_NETWORK and layer is not None:
        raise InputError(f"{weight} comes before the layers; leave layer out")
    if layer is not None and not 1 <= layer <= layers:
        raise InputError(f"layer is {layer}; layers count from 1, and this network has {layers}")
    if weight not in OF_HEADS and head is not None:
        raise InputError(f"{weight} belongs to no head; leave head out")
    chosen = network.layers if layer is None else network.layers[layer - 1 : layer]
    heads = max(len(part.attention.rpe) for part in chosen)
    if head is not None and not 1 <= head <= heads:
        raise InputError(f"head is {head}; heads count from 1, and there are {heads}")


def _index(weight: str, place: tuple[int, ...]) -> tuple[int, ...]:
    """The place in an array, or in the share of it that belongs to a head, counted from 1."""
    return tuple(i + 1 for i in (place[1:] if weight in OF_HEADS else place))


def _exact(value: Any) -> fmpq:
    return value if isinstance(value, fmpq) else rational(float(value))


def _changed(value: Any, share: fmpq, dtype: str, weight: str) -> Any:
    """value (1 + share), in floats rounded to the nearest; refused if that is the value again."""
    if dtype == "exact":
        return value * (1 + share)
    exact = np.array(_exact(value) * (1 + share), dtype=object)
    changed = to_float(exact, dtype)[()]
    if not np.isfinite(changed):
        raise InputError(f"{weight} {value:.6g} changed by {nearest(share):.3g} of itself is beyond {dtype}")
    if changed == value:
        outward = np.inf if (share > 0) == (value > 0) else -np.inf
        half = abs(_exact(np.nextafter(value, value.dtype.type(outward))) - _exact(value)) / abs(_exact(value)) / 2
        least = float(f"{1.01 * nearest(half):.3g}")  # above half a unit in the last place, so that it is not rounded away
        raise Refusal(
            f"{weight} {value:.6g} changed by {nearest(share):.3g} of itself is the same number in {dtype}",
            {"by": least if share > 0 else -least},
        )
    return changed
