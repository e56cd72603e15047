"""The verdict of a claim at one point: holds, refuted, or undecided with what would decide it.

Sides are computed with more and more bits until every inequality is settled. More bits sharpen formulas, not the enclosures of quantities:
where one of these is too wide, the verdict says so. Balls never show that two sides are equal; sides that are rational numbers are compared
as such.
"""

from collections.abc import Mapping
from typing import Any

from flint import arb, fmpq

from analyzer.language.claims import Claim, ClaimVerdict, Side, compare, rational_value
from analyzer.numbers.exact import decimal_above, decimal_below, lower, upper, working_precision
from verify.claims.quantities import DECIDES, Quantities, ends

PRECISIONS = (128, 512, 4096)
"""Bits that sides are computed with."""


def judged(claim: Claim, sizes: Mapping[str, fmpq], quantities: Quantities) -> dict[str, Any]:
    """ClaimVerdict, both ends of every side and of every quantity, and why, as plain data."""
    values, verdict = _settled(claim, sizes, quantities)
    return {
        "verdict": verdict.value,
        "sides": [ends(value) for value in values],
        "quantities": {name: ends(ball) for name, ball in quantities.known.items()},
        "why": _reason(claim, values, verdict, quantities),
    }


def _settled(claim: Claim, sizes: Mapping[str, fmpq], quantities: Quantities) -> tuple[tuple[arb, ...], ClaimVerdict]:
    for bits in PRECISIONS:
        with working_precision(bits):
            balls = {name: arb(value) for name, value in sizes.items()}
            values = tuple(side.value(balls, quantities) for side in claim.sides)
            verdict = claim.judge(values)
        if verdict is not ClaimVerdict.UNDECIDED:
            return values, verdict
    exact = [rational_value(side.root, sizes, lambda name: _known(name, quantities)) for side in claim.sides]
    found = [
        compare(a, relation, b) if p is None or q is None else _ordered(p, relation, q)
        for a, b, p, q, relation in zip(values, values[1:], exact, exact[1:], claim.relations, strict=False)
    ]
    return values, next(
        (open_or_not for open_or_not in (ClaimVerdict.REFUTED, ClaimVerdict.UNDECIDED) if open_or_not in found), ClaimVerdict.HOLDS
    )


def _known(name: str, quantities: Quantities) -> fmpq | None:
    """A quantity that is given, or a whole number."""
    ball = quantities(name, None)
    found = ball.unique_fmpz() if ball.is_exact() else None
    return quantities.given.get(name, None if found is None else fmpq(found))


def _ordered(left: fmpq, relation: str, right: fmpq) -> ClaimVerdict:
    return (
        ClaimVerdict.HOLDS
        if {"<=": left <= right, "<": left < right, ">=": left >= right, ">": left > right}[relation]
        else ClaimVerdict.REFUTED
    )


def _reason(claim: Claim, values: tuple[arb, ...], verdict: ClaimVerdict, quantities: Quantities) -> str | None:
    """Which inequality fails or is open, and what would decide it."""
    if verdict is ClaimVerdict.HOLDS:
        return None
    pairs = zip(claim.sides, claim.relations, claim.sides[1:], values, values[1:], strict=False)
    links = [(compare(a, relation, b), left, relation, right, a, b) for left, relation, right, a, b in pairs]
    for found, left, relation, right, a, b in links:
        if found is verdict:
            return _failed(left, relation, right, a, b) if verdict is ClaimVerdict.REFUTED else _open(left, right, a, b, quantities)
    _, left, relation, right, _, _ = next(link for link in links if link[0] is ClaimVerdict.UNDECIDED)  # settled as rational numbers
    return f"{left.text} and {right.text} are equal, or in the wrong order, as rational numbers"


def _failed(left: Side, relation: str, right: Side, a: arb, b: arb) -> str:
    down = relation[0] == "<"
    shown = [_decimal(a, above=not down), _decimal(b, above=down)]
    return f"{left.text} is {'at least' if down else 'at most'} {shown[0]}, {right.text} {'at most' if down else 'at least'} {shown[1]}"


def _decimal(ball: arb, above: bool) -> str:
    """One end in six digits, rounded outwards; numbers that have no more digits stay as they are."""
    value = upper(ball) if above else lower(ball)
    short = f"{value:.6g}"
    return short if float(short) == value else decimal_above(value, 6) if above else decimal_below(value, 6)


def _open(left: Side, right: Side, a: arb, b: arb, quantities: Quantities) -> str:
    for side, value in ((left, a), (right, b)):
        if not value.is_finite():
            return f"{side.text} is not defined here, or too large for ball arithmetic"
    names = left.quantities | right.quantities
    wide = {key: ball for key, ball in quantities.known.items() if key.split("(")[0] in names and not ball.is_exact()}
    if not wide:
        return f"the two sides agree to {PRECISIONS[-1]} bits: they may be equal, which balls do not show"
    key = max(wide, key=lambda key: float(wide[key].rad() / (1 + abs(wide[key]).mid())))
    low, high = _decimal(wide[key], above=False), _decimal(wide[key], above=True)
    how = DECIDES.get(key.split("(")[0])
    return f"{key} lies in [{low}, {high}], which settles nothing" + ("" if how is None else f"; {how} would")
