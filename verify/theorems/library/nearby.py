"""Stored weights beside ideal ones: how far what is computed is from what a construction means, in floats and in exact arithmetic.

A `Rounded` input has the size of its ideal value and the distance of what is computed from it. A dot product with stored weights ŵ instead
of the ideal w is off by what its inputs and its roundings bring, and by Σ |ŵ − w| times the ideal inputs.
"""

from collections.abc import Sequence

import numpy as np
from flint import arb, fmpq

from constructions.network.transformer import FeedForward, to_exact
from verify.chain.rounding import ONE, Arithmetic, Rounded

ZERO = arb(0)


class ExactArithmetic(Arithmetic):
    """Arithmetic without roundings."""

    def __init__(self) -> None:
        super().__init__("float64")
        self.dtype, self.unit, self.tiny, self.largest = "exact", ZERO, ZERO, arb("inf")

    def checked(self, value: Rounded) -> Rounded:
        return value


def arithmetic_of(dtype: str) -> Arithmetic:
    """The roundings of a type, none for exact networks."""
    return ExactArithmetic() if dtype == "exact" else Arithmetic(dtype)


def applied(arithmetic: Arithmetic, weights: Sequence[fmpq], ideal: Sequence[fmpq], inputs: Sequence[Rounded], size: arb) -> Rounded:
    """Σ stored weight · computed input against Σ ideal weight · ideal input, of which `size` is a bound."""
    used = [(w, x) for w, x in zip(weights, inputs, strict=True) if w != 0]  # what a zero multiplies, however large, is an exact zero
    computed = arithmetic.dot([w for w, _ in used], [x for _, x in used], count=len(inputs))
    moved = sum((abs(arb(a - b)) * x.magnitude for a, b, x in zip(weights, ideal, inputs, strict=True) if a != b), ZERO)
    return Rounded(size, computed.error + moved)


def slot_readout(arithmetic: Arithmetic, stored: FeedForward, ideal: FeedForward, stream: Sequence[Rounded], slot: int) -> arb:
    """|what is put out − the ideal value of a slot|, where the ideal read-out, relu(v) − relu(−v), passes on what it is given: the stored
    one is compared with it at the same states, which cannot double the error of the slot."""
    seen = [Rounded(one.magnitude + one.error, ZERO) for one in stream]
    size = seen[slot].magnitude
    rows = [np.column_stack([to_exact(one.inner), to_exact(one.bias)]) for one in (stored, ideal)]
    hidden = [applied(arithmetic, list(a), list(b), [*seen, ONE], size) for a, b in zip(*rows, strict=True)]
    weights, meant = (list(to_exact(one.outer)[0]) for one in (stored, ideal))
    return stream[slot].error + applied(arithmetic, weights, meant, hidden, size).error
