"""Feed-forward budgets: how well relu neurons approximate a read-out, as a function of the width.

Ridge splines (piecewise linear on m_r equal intervals of the range ℓ_r of each ridge):

    E ≤ Σ_r |scale_r| ℓ_r² sup|ψ_r''| / (8 m_r²),   best split m_r ∝ (|scale_r| ℓ_r² sup|ψ_r''|)^{1/3};

a kink of ψ_r is a knot of its own. Barron sampling (m neurons drawn from the curvature measure; affine part and kinks exact)
on [−R, R]^D:

    E ≤ 4 ‖f‖_{B,R} √((D+1)/m)       (symmetrisation 2 × contraction 2 × ℓ¹ ≤ √(D+1) ℓ²) for some draw.

Neurons that are always there: relu(±a·u) for the affine part and one for the constant.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import sympy
from flint import arb

from analyzer.errors import Refusal, larger_error
from analyzer.families import MAX_WIDTH
from analyzer.numbers.exact import upper
from analyzer.numbers.formula_values import evaluate
from analyzer.numbers.search import least_whole
from analyzer.targets.readout import ReadOut

ell, curvature, m, barron, D = sympy.symbols("ell psi2 m barron D", positive=True)
SPLINE: sympy.Expr = ell**2 * curvature / (8 * m**2)
BARRON: sympy.Expr = 4 * barron * sympy.sqrt((D + 1) / m)

AFFINE_NEURONS = 3
"""relu(a·u), relu(−a·u) and the constant."""


@dataclass(frozen=True)
class FeedForwardPlan:
    """How a width is spent: `pieces` per ridge (spline) or `draws` in all (barron), and the promised error."""

    kind: str
    width: int
    pieces: tuple[int, ...]
    draws: int
    error: arb


def _spline_constants(readout: ReadOut, radii: list[arb]) -> list[arb]:
    """|scale_r| ℓ_r² sup|ψ_r''| / 8 for every ridge."""
    constants = []
    for ridge in readout.ridges:
        low, high = ridge.span(radii)
        values = {ell: high - low, curvature: ridge.profile.curvature(low, high), m: 1}
        constants.append(_finite(abs(arb(ridge.scale)) * evaluate(SPLINE, values)))
    return constants


def _finite(value: arb) -> arb:
    if not upper(value) < 1e300:
        raise Refusal("the read-out is astronomically large on the memories that these heads deliver")
    return value


READOUT_SHARE = 4
"""Total errors of this many read-out errors can be built: a read-out has half of the error, and a larger error has a larger box."""
MOST_ASKED = 2**240
"""Widths that are still computed: a Barron norm of 10^6 to the least error that is built, 10^-30, asks for fewer."""
LEAST_PIECES = 3
"""Intervals per smooth ridge at least: two inner knots fix the affine part of the spline from the stored neurons alone."""


def _knots(readout: ReadOut, pieces: Sequence[int]) -> int:
    """Neurons of splines: one per kink; per smooth ridge its inner knots and its two ends (which bend nothing, but say where it ends)."""
    return sum(1 if ridge.profile.kink else k + 1 for ridge, k in zip(readout.ridges, pieces, strict=True))


def least_width(readout: ReadOut) -> int:
    """Neurons without which a read-out is not started: affine part, constant, kinks, and the shortest splines."""
    return AFFINE_NEURONS + _knots(readout, [LEAST_PIECES] * len(readout.ridges))


def _spline_plan(constants: list[arb], readout: ReadOut, interior: int) -> FeedForwardPlan:
    """Spend `interior` knots beyond the least; a ridge with p inner knots has p + 1 intervals."""
    sizes = [max(0.0, upper(c)) ** (1 / 3) for c in constants]
    total = sum(sizes)
    pieces = [1 if r.profile.kink else LEAST_PIECES + math.floor(interior * s / total) for r, s in zip(readout.ridges, sizes, strict=True)]
    error = sum((c / k**2 for c, k in zip(constants, pieces, strict=True)), arb(0))
    width = AFFINE_NEURONS + _knots(readout, pieces)
    return FeedForwardPlan("spline", width, tuple(pieces), 0, error)


def plan_spline(readout: ReadOut, radii: list[arb], width: int | None, error: float | None, most: int = MAX_WIDTH) -> FeedForwardPlan:
    """The spline plan of a given width, or the narrowest found for a given error (a doubling and bisection over knots)."""
    constants = _spline_constants(readout, radii)
    if width is not None:
        check_width(width, readout)
        return _spline_plan(constants, readout, width - least_width(readout))
    return _narrowest(lambda k: _spline_plan(constants, readout, k), error, most)


def plan_barron(readout: ReadOut, radii: list[arb], width: int | None, error: float | None, most: int = MAX_WIDTH) -> FeedForwardPlan:
    """The Barron plan of a given width, or the narrowest for a given error."""
    norm = _finite(readout.barron_norm(radii, kinks=False))

    def plan(draws: int) -> FeedForwardPlan:
        curved = not norm.is_zero()
        values = {barron: norm, D: readout.coordinates, m: max(1, draws)}
        bound = evaluate(BARRON, values) if curved else arb(0)
        draws = draws if curved else 0
        return FeedForwardPlan("barron", least_width(readout) + draws, (), draws, bound)

    if width is not None:
        check_width(width, readout)
        return plan(max(1, width - least_width(readout)))
    return _narrowest(plan, error, most)


def plan_feedforward(
    kind: str, readout: ReadOut, radii: list[arb], width: int | None, error: float | None, most: int = MAX_WIDTH
) -> FeedForwardPlan:
    """`spline` or `barron`, by width or by error; an error that asks for more than `most` knots or draws is refused."""
    return (plan_spline if kind == "spline" else plan_barron)(readout, radii, width, error, most)


def asked_width(kind: str, readout: ReadOut, radii: list[arb], error: float) -> int:
    """The width that the budget asks for, however large: as error^{-1/2} for splines, error^{-2} for Barron samples."""
    return plan_feedforward(kind, readout, radii, None, error, MOST_ASKED).width


def check_width(width: int, readout: ReadOut) -> None:
    """Refuse a width that cannot hold the read-out, or is absurd."""
    least = least_width(readout)
    if not least <= width <= MAX_WIDTH:
        raise Refusal(f"width {width} is out of range: this read-out needs {least} to {MAX_WIDTH} neurons", {"width": None})


def _narrowest(plan: Callable[[int], FeedForwardPlan], error: float | None, most: int) -> FeedForwardPlan:
    assert error is not None
    high = 1
    while upper(plan(high).error) > error:
        high *= 2
        if high > most:
            raise Refusal(
                f"a read-out error of {error:.3g} needs more than {most} neurons ({high // 2} reach {upper(plan(high // 2).error):.3g})",
                *({"ffn": "spline"} for _ in range(plan(1).kind == "barron")),
                *larger_error(READOUT_SHARE * upper(plan(high // 2).error)),
            )
    low = 0 if high == 1 else high // 2
    if upper(plan(low).error) <= error:
        return plan(low)
    return plan(least_whole(lambda width: upper(plan(width).error) <= error, low, high))
