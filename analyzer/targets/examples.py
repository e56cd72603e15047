"""The examples of Jiang & Li as targets of points at positions: nearest point, centre of mass, selection of inputs.

They are soft: softmax gives every position a share. How far a soft target is from the hard one is a matter of the weight β alone:
landmarks that are farther by γ in squared distance get at most (n − 1)e^{−βγ} of the mass, positions that are not selected (N −
q)e^{−β}/q of that of the others."""

from flint import arb, fmpq

from analyzer.numbers.exact import upper
from analyzer.targets.points import PointsTarget, points_from_dict

BETA = 16
"""Weight of a squared distance in the unit square."""
MASK = 24
"""What the position that asks, or those that are not selected, are put down by."""


def nearest_point(count: int, beta: int = BETA) -> PointsTarget:
    """Position 1 asks which of `count` landmarks in the unit square, at positions 2, 3, …, is nearest; H is its first coordinate."""
    near = [f"-{beta}*(u{i}-v{i})**2" for i in (1, 2)]
    data = {
        "kind": "points",
        "length": count + 1,
        "space": 2,
        "rho": [*near, f"-{2 * beta + MASK}*relu(2-s)"],
        "f": ["x1", "x2"],
        "F": "y1",
    }
    return points_from_dict(data, "nearest point")


def nearest_softness(count: int, gap: fmpq, beta: int = BETA) -> float:
    """How far H is from the coordinate of the nearest landmark where all others are farther by `gap` in squared distance: their share
    of the mass is at most (n − 1)e^{−β gap}, that of the position that asks e^{−24}, as squared distances in the square are below 2."""
    return upper((count - 1) * (-arb(beta * gap)).exp() + (-arb(MASK)).exp())


def centre_of_mass(count: int) -> PointsTarget:
    """The first coordinate of the centre of mass of `count` points in the unit square with masses 1, 2, 3, …"""
    data = {"kind": "points", "length": count, "space": 2, "rho": "log(s)", "f": ["x1", "x2"], "F": "y1"}
    return points_from_dict(data, "centre of mass")


def selected(count: int, length: int) -> list[int]:
    """Positions that are selected, counted from 1: evenly spread, the first one the second."""
    return [2 + k * (length // count) for k in range(count)]


def selection_softness(count: int, length: int, beta: int = MASK) -> float:
    """How far H is from the product: the selected ones have 1/(1 + ε) of the mass, ε = (N − q)e^{−β}/q, and 1 − (1 + ε)^{−q} ≤ qε."""
    return upper((length - count) * (-arb(beta)).exp())


def selection(count: int, length: int, beta: int = MASK) -> PointsTarget:
    """The product of the numbers at `count` of `length` positions: values in R^q, one component each, of which F reads q times the mean."""
    picks = [f"relu(1-abs(s-{place}))" for place in selected(count, length)]
    product = "*".join(f"y{k}" for k in range(1, count + 1))
    data = {
        "kind": "points",
        "length": length,
        "rho": f"-{beta}*(1 - {' - '.join(picks)})",
        "f": [f"x1*{pick}" for pick in picks],
        "F": f"{count**count}*{product}",
    }
    return points_from_dict(data, "selection")
