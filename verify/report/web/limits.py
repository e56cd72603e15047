"""The page of a certificate file: the law, both sides, the bank of the upper one and the dual sequence of the lower one."""

import math
from collections.abc import Sequence
from typing import Any

from analyzer.statements.theorem import Theorem
from verify.report.web.chains import bars
from verify.report.web.layout import page, paragraph, section, table
from verify.report.web.prose import prose
from verify.report.words import number

SCRIPTS = ("charts.js", "stems.js")


def limit_page(checked: dict[str, Any], theorem: Theorem, sides: Sequence[dict[str, Any]], unit: str) -> str:
    """`checked` is what re-checking the file gave, `sides` what it holds of every entry, for figures."""
    law = prose(theorem.statement or theorem.page)
    whole = f"<details><summary>the whole page, with its proof</summary>{prose(theorem.page)}</details>"
    found = [
        section("Law", paragraph(f"{theorem.id}: {theorem.title}"), law, whole, id="statement"),
        section("Both sides", _sides(checked), id="chain"),
    ]
    charts: list[dict[str, Any]] = []
    for side in sides:
        found.append(_entry(side, charts))
    subtitle = paragraph(_subtitle(checked, unit))
    return page(_title(checked), subtitle, found, {"charts": charts}, SCRIPTS)


def _title(checked: dict[str, Any]) -> str:
    if "entries" not in checked:
        return f"Limit: {checked['kernel']}, {checked['heads']} {checked['rpe']} heads"
    lags = ", ".join(str(entry["lag"]) for entry in checked["entries"][:8])
    several = "lag" if len(checked["entries"]) == 1 else "lags"
    return f"Limit: {several} {lags}{' …' if len(checked['entries']) > 8 else ''}, {checked['rpe']} heads"


def _subtitle(checked: dict[str, Any], unit: str) -> str:
    rounding = f"; u = {unit} is the unit roundoff" if unit else ""
    return f"Re-checked from the exact numbers of the file, without a solver: {checked['verdict']}{rounding}."


def _sides(checked: dict[str, Any]) -> str:
    rows = checked.get("entries", [checked])
    parts = []
    for row in rows:
        name = f"lag {row['lag']}" if "lag" in row else str(row["kernel"])
        upper = math.inf if row["upper"] is None else row["upper"]
        said = "no network of the class has a smaller error than lower; the bank of the file reaches upper"
        parts.append(paragraph(f"{name}: {number(row['lower'])} ≤ least error ≤ {number(row['upper'])}"))
        parts.append(bars([("lower", row["lower"], number(row["lower"])), ("upper", upper, number(row["upper"]))], said))
    parts += [paragraph(fault, "violated") for fault in checked["faults"]]
    return "".join(parts)


def _entry(side: dict[str, Any], charts: list[dict[str, Any]]) -> str:
    lag = side["lag"]
    wanted = [float(s == lag) for s in range(len(side["kernel"]))]
    charts.append({"id": f"primal-{lag}", "series": [
        {"values": wanted, "kind": "ring", "label": "wanted"}, {"values": side["kernel"], "kind": "stem", "label": "delivered"},
    ], "label": f"kernel of the bank for lag {lag}", "axis": "distance s"})  # fmt: skip
    rows = [[f"{kind}, p = {decay:.5g}", f"{weight:.6g}"] for kind, decay, weight in side["heads"]]
    bank = f"<details><summary>{len(rows)} heads and their weights</summary>{table(['head', 'weight'], rows, 'the bank')}</details>"
    primal = (
        f'<figure id="primal-{lag}"></figure><p class="soft">Upper side: the kernel of the stored bank; rings: what is wanted.</p>{bank}'
    )
    dual = _dual(side["dual"], lag)
    return section(f"Lag {lag}", primal, dual)


WIDTH, HEIGHT, LEFT, ROOM = 640, 220, 62, 34


def _dual(steps: Sequence[Sequence[float]], lag: int) -> str:
    """δ as a step function over log(1 + s)."""
    if not steps:
        return ""
    far = math.log1p(4 * steps[-1][0] + 8)
    low, high = min(0.0, *(v for _, v in steps)), max(0.0, *(v for _, v in steps))
    span = (high - low) or 1.0

    def x(s: float) -> float:
        return LEFT + (WIDTH - LEFT - 10) * math.log1p(s) / far

    def y(v: float) -> float:
        return 10 + (HEIGHT - 10 - ROOM) * (high - v) / span

    path, last = f"M{x(0):.1f} {y(0):.1f}", 0.0
    for edge, value in steps:
        path += f" L{x(edge):.1f} {y(last):.1f} L{x(edge):.1f} {y(value):.1f}"
        last = value
    path += f" L{WIDTH - 10} {y(last):.1f}"
    parts = [
        f'<path d="{path}" class="stem" fill="none"/>',
        f'<line class="axis" x1="{LEFT}" x2="{WIDTH - 10}" y1="{y(0):.1f}" y2="{y(0):.1f}"/>',
    ]
    for v in {low, 0.0, high}:
        parts.append(f'<text x="{LEFT - 6}" y="{y(v) + 4:.1f}" text-anchor="end">{v:.3g}</text>')
    for s in [0, lag, *(10**k for k in range(1, 13))]:
        if math.log1p(s) <= far and (s in (0, lag) or abs(math.log1p(s) - math.log1p(lag)) > 0.3):
            parts.append(f'<text x="{x(s):.1f}" y="{HEIGHT - 16}" text-anchor="middle">{s if s < 1000 else f"1e{len(str(s)) - 1}"}</text>')
    label = f"dual sequence for lag {lag}"
    svg = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    said = (
        "Lower side: a dual sequence δ at distance s (scale log(1 + s)) that every head nearly annihilates; its value at the lag, divided "
        "by its norm, is the lower bound."
    )
    return f"<figure>{svg}<figcaption>{said}</figcaption></figure>"
