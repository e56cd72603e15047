"""Values of ζ at rational points, remembered at the highest precision asked for."""

from flint import arb, fmpq

from analyzer.numbers.exact import working_precision

GUARD = 192
"""Bits kept beyond the size of a weight that ζ normalises: kernels of size 1 are then right to 2^-192."""

_KNOWN: dict[fmpq, tuple[int, arb]] = {}


def zeta(point: fmpq, bits: int) -> arb:
    """ζ(point) with about `bits` correct bits; computing it is the slow part of large log banks."""
    known = _KNOWN.get(point)
    if known is None or known[0] < bits:
        with working_precision(bits):
            known = (bits, arb(point).zeta())
        _KNOWN[point] = known
    return known[1]
