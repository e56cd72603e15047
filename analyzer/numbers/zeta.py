"""Values of ζ(p) and ζ(p, A) at rational points, remembered at the highest precision asked for."""

from flint import arb, fmpq

from analyzer.numbers.exact import working_precision

ONE = fmpq(1)
GUARD = 192
"""Bits kept beyond the size of a weight that ζ normalises: kernels of size 1 are then right to 2^-192."""

_KNOWN: dict[tuple[fmpq, fmpq], tuple[int, arb]] = {}


def zeta(point: fmpq, bits: int, start: fmpq = ONE) -> arb:
    """ζ(point, start), which is ζ(point) at 1, with about `bits` correct bits; computing it is the slow part of large log banks."""
    known = _KNOWN.get((point, start))
    if known is None or known[0] < bits:
        with working_precision(bits):
            known = (bits, arb(point).zeta() if start == ONE else arb(point).zeta(arb(start)))
        _KNOWN[point, start] = known
    return known[1]
