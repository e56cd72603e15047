"""Rates: how fast the sides of a claim grow with a size, beside the exponents that its formulas claim.

For all points that differ in one size x only, the slope of log y against log x by least squares, for the upper ends of a side with
quantities (certified) and for its lower ends (witness). The spread is said twice: by the standard error of the fit, and by the least and
the largest slope between neighbours. A fit is no certificate. Formulas without quantities have the slope between the ends of the range,
which for c·x^a is a.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from analyzer.language.claims import Claim

Row = Mapping[str, Any]


def rates(claim: Claim, size: str, sizes: Sequence[str], rows: Sequence[Row]) -> list[dict[str, Any]]:
    """One entry for each choice of the other sizes and each side with quantities, as plain data."""
    others = [name for name in sizes if name != size]
    curves: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row["sides"] is not None:
            curves.setdefault(tuple(row["sizes"][name] for name in others), []).append(row)
    found = []
    for fixed, points in curves.items():
        points = sorted(points, key=lambda row: float(row["sizes"][size]))
        claimed = {
            side.text: _between_ends([(float(row["sizes"][size]), row["sides"][k][1]) for row in points])
            for k, side in enumerate(claim.sides)
            if not side.quantities
        }
        for k, side in enumerate(claim.sides):
            if side.quantities:
                entry: dict[str, Any] = {"fixed": dict(zip(others, fixed, strict=True)), "side": side.text, "size": size}
                for name, end in (("certified", 1), ("witness", 0)):
                    entry[name] = slope([(float(row["sizes"][size]), row["sides"][k][end]) for row in points])
                found.append(entry | {"claimed": claimed})
    return found


def _logs(points: Sequence[tuple[float, float | None]]) -> list[tuple[float, float]]:
    """Logarithms of the points that have any."""
    return [(math.log(x), math.log(y)) for x, y in points if y is not None and y > 0]


def slope(points: Sequence[tuple[float, float | None]]) -> dict[str, Any] | None:
    """Least squares in logarithms: slope, standard error (from three points on), least and largest slope between neighbours."""
    logs = _logs(points)
    local = [(b[1] - a[1]) / (b[0] - a[0]) for a, b in pairwise(logs) if b[0] > a[0]]
    if not local:
        return None
    count = len(logs)
    centre, middle = sum(x for x, _ in logs) / count, sum(y for _, y in logs) / count
    spread = sum((x - centre) ** 2 for x, _ in logs)
    fitted = sum((x - centre) * (y - middle) for x, y in logs) / spread
    rest = sum((y - middle - fitted * (x - centre)) ** 2 for x, y in logs)
    error = math.sqrt(rest / (count - 2) / spread) if count > 2 else None
    return {"slope": fitted, "standard_error": error, "least": min(local), "largest": max(local), "points": count}


def _between_ends(points: Sequence[tuple[float, float | None]]) -> float | None:
    """The slope of log y against log x between the first point and the last."""
    logs = _logs(points)
    if len(logs) < 2 or logs[-1][0] <= logs[0][0]:
        return None
    return (logs[-1][1] - logs[0][1]) / (logs[-1][0] - logs[0][0])
