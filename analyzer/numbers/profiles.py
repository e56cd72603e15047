"""Univariate profiles ψ of ridge functions ψ(w·u + b), with their first two derivatives in ball arithmetic.

A kink at 0 (relu, abs) is the part of ψ'' that is a point mass: `kink` is its weight, `second` the rest.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flint import arb, fmpq

from analyzer.numbers.exact import maximum, range_pieces


@dataclass(frozen=True)
class Profile:
    """ψ, ψ', ψ'' as functions of a ball; `degree` is set for powers, which can be expanded."""

    name: str
    value: Callable[[arb], arb]
    first: Callable[[arb], arb]
    second: Callable[[arb], arb]
    kink: int = 0
    degree: int | None = None

    def __repr__(self) -> str:
        return self.name

    def exactly(self, v: fmpq) -> fmpq | None:
        """ψ(v) where it is rational: powers and piecewise linear profiles."""
        if self.degree is not None:
            return v**self.degree
        return {"relu": max(v, fmpq(0)), "abs": abs(v)}.get(self.name)

    def on_array(self, v: Any, xp: Any) -> Any:
        """ψ on an array of numpy or JAX."""
        if self.degree is not None:
            return v**self.degree
        return xp.maximum(v, 0) if self.name == "relu" else getattr(xp, self.name)(v)

    def slope(self, low: arb, high: arb) -> arb:
        """Upper bound of sup |ψ'| on [low, high]."""
        return supremum(self.first, low, high)

    def curvature(self, low: arb, high: arb) -> arb:
        """Upper bound of sup |ψ''| on [low, high], kink excluded."""
        return supremum(self.second, low, high)


_PIECES = 32
"""Cells for a supremum: enough to lose a few per cent at most on the ranges met here; any number is sound."""


def supremum(function: Callable[[arb], arb], low: arb, high: arb) -> arb:
    """Upper bound of sup |function| on [low, high]: the largest value over a cover by balls."""
    if low.is_exact() and high.is_exact() and low == high:
        return abs(function(low)).upper()
    return maximum([abs(function(piece)).upper() for piece in range_pieces(low, high, _PIECES)])


def whole_power(v: arb, exponent: int) -> arb:
    """v^exponent by multiplication: flint's own power of a ball centred at 0 is undefined."""
    result = arb(1)
    for _ in range(exponent):
        result *= v
    return result


def power(degree: int) -> Profile:
    """v^degree, degree ≥ 2."""
    return Profile(
        name=f"v^{degree}",
        value=lambda v: whole_power(v, degree),
        first=lambda v: degree * whole_power(v, degree - 1),
        second=lambda v: degree * (degree - 1) * whole_power(v, degree - 2),
        degree=degree,
    )


def _sign_range(v: arb) -> arb:
    if v >= 0:
        return arb(1)
    if v <= 0:
        return arb(-1)
    return arb(-1).union(arb(1))


FUNCTIONS: dict[str, Profile] = {
    "exp": Profile("exp", lambda v: v.exp(), lambda v: v.exp(), lambda v: v.exp()),
    "sin": Profile("sin", lambda v: v.sin(), lambda v: v.cos(), lambda v: -v.sin()),
    "cos": Profile("cos", lambda v: v.cos(), lambda v: -v.sin(), lambda v: -v.cos()),
    "tanh": Profile(
        "tanh",
        lambda v: v.tanh(),
        lambda v: 1 - whole_power(v.tanh(), 2),
        lambda v: -2 * v.tanh() * (1 - whole_power(v.tanh(), 2)),
    ),
    "relu": Profile(
        "relu",
        lambda v: v.max(arb(0)),
        lambda v: (_sign_range(v) + 1) / 2,
        lambda v: arb(0),
        kink=1,
    ),
    "abs": Profile("abs", abs, _sign_range, lambda v: arb(0), kink=2),
}


@dataclass(frozen=True)
class Ridge:
    """scale · ψ(direction·u + offset)."""

    profile: Profile
    scale: fmpq
    direction: tuple[fmpq, ...]
    offset: fmpq

    def span(self, radii: list[arb]) -> tuple[arb, arb]:
        """Exact ends of the argument's range over the box Π[−R_j, R_j]."""
        reach = sum((abs(arb(w)) * r for w, r in zip(self.direction, radii, strict=True)), arb(0))
        return (arb(self.offset) - reach).lower(), (arb(self.offset) + reach).upper()
