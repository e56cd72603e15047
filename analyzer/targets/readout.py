"""Read-outs f as ridge sums, with certified Lipschitz constants and Barron norms on a box.

    f(u) = constant + affine·u + Σ_r scale_r ψ_r(w_r·u + b_r)

Monomials become ridges by polarisation: with d = a_1 + … + a_k and the sum over sign choices,

    d! 2^(d−1) · u_1 ⋯ u_d = Σ_{ε_1 = 1, ε_i = ±1} (Π ε_i) (Σ ε_i u_i)^d.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.language.expressions import MAX_TERMS, MAX_WORK, Monomial, Sum, parse
from analyzer.numbers.exact import nearest, range_pieces
from analyzer.numbers.profiles import Ridge, power


@dataclass(frozen=True)
class ReadOut:
    """f on slots x0 and the memories, of `dim` coordinates each.

    The monomials of degree ≥ 2 in `polynomial` are the ridges in `polarised`; the other ridges are `plain`.
    """

    text: str
    dim: int
    slots: tuple[str, ...]
    constant: fmpq
    affine: tuple[fmpq, ...]
    polynomial: tuple[tuple[Monomial, fmpq], ...]
    polarised: tuple[Ridge, ...]
    plain: tuple[Ridge, ...]

    @property
    def ridges(self) -> tuple[Ridge, ...]:
        return self.polarised + self.plain

    @property
    def coordinates(self) -> int:
        return len(self.slots) * self.dim

    def slot(self, k: int) -> range:
        """Coordinates of slot k (0 is the current token)."""
        return range(k * self.dim, (k + 1) * self.dim)

    def __call__(self, u: list[arb]) -> arb:
        """f in ball arithmetic."""
        value = arb(self.constant) + _dot(self.affine, u)
        for ridge in self.ridges:
            value += arb(ridge.scale) * ridge.profile.value(_dot(ridge.direction, u) + arb(ridge.offset))
        return value

    def compiled(self, xp: Any) -> Callable[[Any], Any]:
        """f on the last axis of arrays of numpy or JAX."""
        import numpy as np

        affine, constant = np.array([nearest(w) for w in self.affine]), nearest(self.constant)
        ridges = [(r.profile, nearest(r.scale), np.array([nearest(w) for w in r.direction]), nearest(r.offset)) for r in self.ridges]

        def f(u: Any) -> Any:
            total = (u * xp.asarray(affine, u.dtype)).sum(-1) + constant
            for profile, scale, direction, offset in ridges:
                total = total + scale * profile.on_array((u * xp.asarray(direction, u.dtype)).sum(-1) + offset, xp)
            return total

        return f

    def lipschitz(self, radii: list[arb]) -> list[arb]:
        """For every slot, an upper bound of sup ‖∇_slot f‖₁ on the box Π[−R_j, R_j].

        Monomials are bounded as they stand (sharper than after polarisation), other ridges through sup|ψ'|.
        """
        gradient = [abs(arb(w)) for w in self.affine]
        for monomial, coefficient in self.polynomial:
            for j, exponent in enumerate(monomial):
                if exponent:
                    term = abs(arb(coefficient)) * exponent
                    for i, e in enumerate(monomial):
                        term *= radii[i] ** (e - (i == j))
                    gradient[j] += term
        for ridge in self.plain:
            slope = abs(arb(ridge.scale)) * ridge.profile.slope(*ridge.span(radii))
            for j, w in enumerate(ridge.direction):
                gradient[j] += abs(arb(w)) * slope
        return [sum((gradient[j] for j in self.slot(k)), arb(0)) for k in range(len(self.slots))]

    def barron_norm(self, radii: list[arb], kinks: bool = True) -> arb:
        """Upper bound of the Barron norm of the curved part, Σ_r |scale| ∫|ψ''(τ)| (‖w‖₁R + |b − τ|) dτ, R the largest radius.

        The affine part is represented exactly and not sampled, so it costs nothing here; `kinks=False` leaves out the point
        masses of ψ'', which can have neurons of their own too.
        """
        radius = max(radii, key=lambda r: float(r.upper()))
        norm = arb(0)
        for ridge in self.ridges:
            reach = sum((abs(arb(w)) for w in ridge.direction), arb(0)) * radius
            low, high = ridge.span(radii)
            mass = arb(0)
            pieces = 64
            for piece in range_pieces(low, high, pieces):
                mass += (
                    abs(ridge.profile.second(piece)).upper() * (reach + abs(piece - arb(ridge.offset)).upper()) * ((high - low) / pieces)
                )
            if kinks and low < 0 < high:
                mass += ridge.profile.kink * (reach + abs(arb(ridge.offset)))
            norm += abs(arb(ridge.scale)) * mass
        return norm


def _dot(weights: tuple[fmpq, ...], u: list[arb]) -> arb:
    return sum((arb(w) * x for w, x in zip(weights, u, strict=True) if w != 0), arb(0))


def read_out(text: str | None, memories: Sequence[str], dim: int) -> ReadOut:
    """The read-out of a target with these memories; the default is their sum."""
    slots = {name: k for k, name in enumerate(["x0", *memories])}
    if text is None:
        names = [name if dim == 1 else f"{name}[{j}]" for name in memories for j in range(dim)]
        text = " + ".join(names)
        affine = tuple(fmpq(int(j >= dim)) for j in range((len(memories) + 1) * dim))
        return ReadOut(text, dim, tuple(slots), fmpq(0), affine, (), (), ())
    parsed = parse(text, slots, dim)
    if parsed.constant() is not None:
        raise InputError(f"the read-out {text[:60]!r} does not depend on any token")
    return _ridge_sum(text, tuple(slots), dim, parsed)


def read_out_of(text: str, slots: Sequence[str]) -> ReadOut:
    """F on slots of one coordinate each that are all equal in rank, such as the coordinates y1, y2, … of a mean; it may be a constant."""
    return _ridge_sum(text, tuple(slots), 1, parse(text, {name: k for k, name in enumerate(slots)}, 1, "F"))


def _ridge_sum(text: str, slots: tuple[str, ...], dim: int, parsed: Sum) -> ReadOut:
    linear = Sum(parsed.coordinates, {m: c for m, c in parsed.polynomial.items() if sum(m) <= 1})
    affine, constant = linear.affine_parts()
    curved = {m: c for m, c in parsed.polynomial.items() if sum(m) > 1}
    polarised, plain = _polarise(curved), _merge(parsed.ridges)
    if len(polarised) + len(plain) > MAX_TERMS:
        raise InputError(f"the read-out needs more than {MAX_TERMS} ridge functions")
    return ReadOut(text, dim, slots, constant, affine, tuple(curved.items()), polarised, plain)


def _polarise(polynomial: dict[Monomial, fmpq]) -> tuple[Ridge, ...]:
    work = sum(len(monomial) << (sum(monomial) - 1) for monomial in polynomial)
    if work > MAX_WORK:
        raise InputError(f"the read-out's polynomial asks for ridge functions of {work} weights in all, the limit is {MAX_WORK}")
    ridges = []
    for monomial, coefficient in polynomial.items():
        variables = [j for j, e in enumerate(monomial) for _ in range(e)]
        degree = len(variables)
        if len(set(variables)) == 1:
            direction = tuple(fmpq(int(e > 0)) for e in monomial)
            ridges.append(Ridge(power(degree), coefficient, direction, fmpq(0)))
            continue
        scale = coefficient / (math.factorial(degree) * 2 ** (degree - 1))
        for signs in product((1, -1), repeat=degree - 1):
            weights = [fmpq(0)] * len(monomial)
            for j, sign in zip(variables, (1, *signs), strict=True):
                weights[j] += sign
            if any(w != 0 for w in weights):
                ridges.append(Ridge(power(degree), scale * math.prod(signs), tuple(weights), fmpq(0)))
    return _merge(ridges)


def _merge(ridges: list[Ridge]) -> tuple[Ridge, ...]:
    """Add up ridges that differ in their scale only; (−v)^d joins v^d."""
    merged: dict[tuple[str, tuple[fmpq, ...], fmpq], Ridge] = {}
    for ridge in ridges:
        direction, offset, scale = ridge.direction, ridge.offset, ridge.scale
        if ridge.profile.degree is not None and next(w for w in direction if w != 0) < 0:
            direction, offset = tuple(-w for w in direction), -offset
            scale = scale * (-1) ** ridge.profile.degree
        key = (ridge.profile.name, direction, offset)
        if key in merged:
            scale += merged[key].scale
        merged[key] = Ridge(ridge.profile, scale, direction, offset)
    return tuple(r for r in merged.values() if r.scale != 0)
