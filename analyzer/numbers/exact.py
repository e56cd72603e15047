"""Exact numbers and ball arithmetic.

Every number of a construction is a rational (`fmpq`); every certified number is a ball (`arb`) that contains the true value.
`upper` and `lower` turn a ball into a float rounded away from, respectively towards, the claim it supports.
"""

import math
import re
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

from flint import arb, ctx, fmpq, fmpz

from analyzer.errors import InputError

UNIT: dict[str, fmpq] = {"float32": fmpq(1, 2**24), "float64": fmpq(1, 2**53)}
"""Unit roundoff u of each type that networks run in."""
_NUMBER = re.compile(r"(-?[0-9]{1,40000})(?:/([0-9]{1,40000})|\*2\^(-?[0-9]{1,7}))?")


def working_precision(bits: int) -> Any:
    """Context in which balls carry `bits` bits."""
    return ctx.workprec(max(64, bits))


def upper(ball: arb) -> float:
    """Least float that is certainly not below the ball (`inf` if there is none)."""
    return _outward(ball.upper(), math.inf)


def lower(ball: arb) -> float:
    """Greatest float that is certainly not above the ball."""
    return _outward(ball.lower(), -math.inf)


def _outward(end: arb, direction: float) -> float:
    if not end.is_finite():
        return direction
    value = float(end)
    if math.isinf(value) and value != direction:  # a finite end beyond the floats on the other side
        return math.copysign(1.7976931348623157e308, value)
    while not math.isinf(value) and (arb(value) < end if direction > 0 else arb(value) > end):
        value = math.nextafter(value, direction)
    return value


def decimal_below(value: float, digits: int = 4) -> str:
    """A certified lower bound in few digits, rounded down so that the text is true."""
    return f"{float(Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(value)):.{digits}g}"


def decimal_above(value: float, digits: int = 4) -> str:
    """The same for an upper bound, rounded up."""
    return f"{float(Context(prec=digits, rounding=ROUND_CEILING).create_decimal(value)):.{digits}g}"


def rational(value: int | float | str | fmpq) -> fmpq:
    """The exact value of an integer, a float, or a decimal such as "0.01"."""
    if isinstance(value, fmpq):
        return value
    if isinstance(value, int):
        return fmpq(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{value} is not a finite number")
        return fmpq(*value.as_integer_ratio())
    match = re.fullmatch(r"([0-9]{0,40})(?:\.([0-9]{0,40}))?(?:[eE]([+-]?[0-9]{1,2}))?", value.strip())
    if match is None or not (match[1] or match[2]):
        raise InputError(f"{value[:40]!r} is not a decimal number of reasonable size")
    digits = match[2] or ""
    exponent = int(match[3] or 0) - len(digits)
    return fmpq(int((match[1] or "") + digits)) * fmpq(10) ** exponent


def nearest(value: fmpq) -> float:
    """The float nearest to a rational (infinite beyond the floats)."""
    try:
        return int(value.p) / int(value.q)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def dyadic(value: arb, bits: int) -> fmpq:
    """The midpoint of a ball, rounded to `bits` significant bits."""
    mantissa, exponent = value.mid().man_exp()
    mantissa, exponent = int(mantissa), int(exponent)
    excess = mantissa.bit_length() - bits
    if excess > 0:
        half = 1 << (excess - 1)
        sign = -1 if mantissa < 0 else 1
        mantissa = sign * ((abs(mantissa) + half) >> excess)
        exponent += excess
    return fmpq(mantissa) * fmpq(2) ** exponent


def magnitude(value: arb) -> int:
    """⌈log₂⌉ of the largest absolute value in the ball; 0 for the number 0."""
    mantissa, exponent = value.abs_upper().man_exp()
    return int(mantissa).bit_length() + int(exponent)


def to_grid(value: arb, depth: int) -> fmpq:
    """The multiple of 2^{−depth} nearest to the midpoint of a ball."""
    mantissa, exponent = value.mid().man_exp()
    return _half_up(int(mantissa), int(exponent) + depth) * fmpq(1, 2) ** depth


def _half_up(mantissa: int, exponent: int) -> fmpq:
    """mantissa · 2^exponent rounded to a whole number."""
    if exponent >= 0:
        return fmpq(mantissa) * fmpq(2) ** exponent
    if -exponent > mantissa.bit_length() + 1:
        return fmpq(0)
    return fmpq((mantissa + (1 << (-exponent - 1))) >> -exponent)


def to_text(value: fmpq) -> str:
    """Exact text of a rational: `m`, `m*2^e` for dyadic numbers, `p/q` otherwise."""
    numerator, denominator = value.p, value.q
    if denominator == 1:
        return str(numerator)
    twos = int(denominator).bit_length() - 1
    if denominator == fmpz(2) ** twos:
        return f"{numerator}*2^{-twos}"
    return f"{numerator}/{denominator}"


def from_text(text: str) -> fmpq:
    """Inverse of `to_text`; anything else is refused."""
    match = _NUMBER.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InputError(f"{str(text)[:40]!r} is not an exact number (m, p/q or m*2^e)")
    numerator = fmpz(match[1])
    if match[2] is not None:
        denominator = fmpz(match[2])
        if denominator == 0:
            raise InputError(f"{text[:40]!r} divides by zero")
        return fmpq(numerator, denominator)
    return fmpq(numerator) * fmpq(2) ** int(match[3] or 0)


def maximum(values: list[arb]) -> arb:
    """Enclosure of the maximum of the given (non-empty) balls."""
    result = values[0]
    for value in values[1:]:
        result = result.max(value)
    return result


def interval(low: arb, high: arb) -> arb:
    """A ball that contains [low, high]."""
    return low.union(high)


def range_pieces(low: arb, high: arb, pieces: int) -> list[arb]:
    """Balls that cover [low, high] in equal pieces."""
    step = (high - low) / pieces
    return [interval(low + step * k, low + step * (k + 1)) for k in range(pieces)]


def number_of(value: object, option: str) -> fmpq:
    """An exact number from Python or from text such as -0.5: decimals are exact."""
    if isinstance(value, fmpq):
        return value
    if isinstance(value, str):
        try:
            size = rational(value.strip().removeprefix("-"))
        except InputError as error:
            raise InputError(f"{option} takes decimals such as -1, 0.5: {error}") from None
        return -size if value.strip().startswith("-") else size
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e9:
        raise InputError(f"{option} holds {str(value)[:40]!r}, which is no number of reasonable size")
    return rational(value)
