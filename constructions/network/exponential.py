"""e^x for |x| ≤ X by additions and multiplications only, so that its rounding can be bounded: libraries do not say how theirs round.

    n = [x/ln 2],   r = (x − n·ln2_hi) − n·ln2_lo,   e^x = 2ⁿ e^r,   e^r = 1 + r(1 + r(1/2 + … )) by Horner to the degree DEGREE.

ln2_hi carries HIGH_BITS bits, so that n·ln2_hi is exact for |n| ≤ X/ln 2 + 1; scaling by 2ⁿ is exact because e^{−X} is a normal number and
e^X is far from the largest one. The degree is the least with (ln 2/2 + small)^{d+1}/(d+1)! below half a unit roundoff.
`verify.chain.rounding` has the error analysis.
"""

from functools import cache
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flint import arb, fmpq

from analyzer.numbers.exact import UNIT, dyadic, nearest, working_precision

DEEPEST = {"float32": 80, "float64": 700}
"""X: e^{−80} > 2^{−126}, e^{−700} > 2^{−1022}, the least normal numbers; e^{80} < 2^{116}, e^{700} < 2^{1010}, while
2^{128}, 2^{1024} are the first that overflow: sums of thousands of terms have room."""
HIGH_BITS = {"float32": 12, "float64": 40}
"""With |n| below 2^7 and 2^10 the product n·ln2_hi has at most 24 and 53 bits."""
REDUCED = fmpq(9, 25)
"""|r| ≤ ln 2/2 plus what rounding x/ln 2 can add: 0.36."""


def degree(dtype: str) -> int:
    """Least d with 0.36^{d+1} e^{0.36}/(d+1)! ≤ u/2."""
    term, d = 1.5 * nearest(REDUCED), 0
    while term > nearest(UNIT[dtype]) / 2:
        d += 1
        term *= nearest(REDUCED) / (d + 1)
    return d


@cache
def constants(dtype: str) -> tuple[fmpq, fmpq, fmpq, list[fmpq]]:
    """(1/ln 2, ln2_hi, ln2_lo, 1/k! for k = 0..d) as the numbers of the type that are used."""
    bits = {"float32": 24, "float64": 53}[dtype]
    with working_precision(160):
        log2 = arb.const_log2()
        high = dyadic(log2, HIGH_BITS[dtype])
        return (
            dyadic(1 / log2, bits),
            high,
            dyadic(log2 - arb(high), bits),
            [dyadic(1 / arb(k).fac(), bits) for k in range(degree(dtype) + 1)],
        )


def exp(x: Any, xp: ModuleType = jnp) -> Any:
    """e^x; anything beyond ±X counts as ±X. Runs on JAX, or in numpy's own arithmetic."""
    dtype = str(x.dtype)
    inverse, high, low, coefficients = constants(dtype)
    x = xp.clip(x, -DEEPEST[dtype], DEEPEST[dtype])
    n = xp.round(x * _number(inverse, dtype))
    r = (x - n * _number(high, dtype)) - n * _number(low, dtype)
    result = xp.full_like(x, _number(coefficients[-1], dtype))
    for coefficient in reversed(coefficients[:-1]):
        result = result * r + _number(coefficient, dtype)
    return result * power_of_two(n, xp)


def _number(value: fmpq, dtype: str) -> Any:
    return np.dtype(dtype).type(nearest(value))


def power_of_two(n: Any, xp: ModuleType = jnp) -> Any:
    """2ⁿ for whole n in the range of normal numbers, from its bits."""
    mantissa, bias, whole = (23, 127, xp.int32) if n.dtype == xp.float32 else (52, 1023, xp.int64)
    bits = (n.astype(whole) + bias) << mantissa
    return bits.view(n.dtype) if xp is np else jax.lax.bitcast_convert_type(bits, n.dtype)
