"""Figures of formulas: both sides of a claim, a theorem's rate, and what choices of constants cost."""

import math
from collections.abc import Sequence
from typing import Any

from analyzer.errors import InputError
from verify.report.experiments import TELLING
from verify.report.figures.style import DASHES, GREY, MARKS, VERDICTS, colour, figure, legend, nothing, panels, titled, whole, whole_log

MAX_CURVES = 12
"""Curves with a name: more are not told apart."""
SIDES = ("-", ":", "--", "-.")
SPOKEN = ("line", "dots", "dashes", "both")


@figure
def claim(result: dict[str, Any]) -> Any:
    """Both sides of a claim against its first size: curves for the other sizes, points with the sign of their verdict."""
    rows = [row for row in result["rows"] if row["sides"] is not None]
    first, *others = result["rows"][0]["sizes"]
    page, axes = panels(size=(7.4, 4.2))
    curves: dict[tuple[float, ...], list[dict[str, Any]]] = {}
    for row in rows:
        curves.setdefault(tuple(row["sizes"][name] for name in others), []).append(row)
    for k, (fixed, points) in enumerate(curves.items()):
        label = ", ".join(f"{name} = {value:g}" for name, value in zip(others, fixed, strict=True))
        for side in range(len(result["sides"])):
            shown = [(row["sizes"][first], *row["sides"][side]) for row in points if None not in row["sides"][side]]
            places, low, high = ([point[j] for point in shown] for j in range(3))
            named = {"label": label} if side == 0 and label and k < MAX_CURVES else {}
            axes.plot(places, high, SIDES[side % 4], color=colour(k), linewidth=1, **named)
            axes.fill_between(places, low, high, color=colour(k), alpha=0.3)
    for verdict, paint in VERDICTS.items():
        at = [(row["sizes"][first], row["sides"][0][1]) for row in rows if row["verdict"] == verdict and None not in row["sides"][0]]
        if at:
            axes.plot(*zip(*at, strict=True), MARKS[verdict], color=paint, zorder=3, label=verdict)
    values = [end for row in rows for pair in row["sides"] for end in pair if end is not None]
    axes.set_yscale("log" if values and min(values) > 0 else "symlog", **({} if values and min(values) > 0 else {"linthresh": 1e-12}))
    sides = ", ".join(f"{text} ({style})" for text, style in zip(result["sides"], SPOKEN * 2, strict=False))
    titled(axes, f"{result['claim']}: {result['verdict']} ({result['basis']})", xlabel=first, ylabel=sides)
    if all(float(row["sizes"][first]).is_integer() for row in rows):
        whole(axes.xaxis)
    legend(axes)
    return page


@figure
def swept(result: dict[str, Any], rows: Sequence[dict[str, Any]]) -> Any:
    """What jobs of a sweep found against the first number that varies: one colour per choice of the others, one line style per result."""
    done = [row for row in rows if row["status"] == "done"]
    varied = list(rows[0])[: list(rows[0]).index("status")]
    first = next((name for name in varied if len({row[name] for row in done}) > 1 and all(_is_number(row[name]) for row in done)), None)
    found = [name for name in TELLING if any(_is_number(row.get(name)) for row in done)][: len(SIDES)]
    if first is None or not found:
        raise InputError("no number varies in this sweep, or no job found one: there is nothing to draw")
    page, axes = panels(size=(7.4, 4.2))
    curves: dict[str, list[dict[str, Any]]] = {}
    for row in done:
        curves.setdefault(", ".join(f"{name} = {row[name]}" for name in varied if name != first), []).append(row)
    for k, (label, points) in enumerate(curves.items()):
        for style, name in zip(SIDES, found, strict=False):
            shown = sorted((row[first], row[name]) for row in points if _is_number(row.get(name)))
            named = {"label": label} if name == found[0] and label and k < MAX_CURVES else {}
            if shown:
                axes.plot(*zip(*shown, strict=True), "o" + style, color=colour(k), **named)
    values = [row[name] for row in done for name in found if _is_number(row.get(name))]
    if min(values) > 0 and max(values) > 20 * min(values):
        axes.set_yscale("log")
    told = ", ".join(f"{name} ({style})" for name, style in zip(found, SPOKEN, strict=False)) if len(found) > 1 else found[0]
    titled(axes, f"{len(done)} jobs of {result['call']}", xlabel=first, ylabel=told)
    if all(float(row[first]).is_integer() for row in done):
        whole(axes.xaxis)
    legend(axes)
    return page


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@figure
def rate(result: dict[str, Any]) -> Any:
    """What a theorem promises against the number of heads, one colour per choice of constants."""
    page, axes = panels(size=(6.8, 3.8))
    for k, (name, points) in enumerate(result["curves"].items()):
        axes.loglog(*zip(*points, strict=True), "o" + DASHES["bound"], color=colour(k), label=f"{name} (bound)")
    axes.axhline(1, color=GREY, linewidth=0.8, linestyle="--", label="error 1")
    if result["least_heads"] is not None:
        axes.axvline(result["least_heads"], color=GREY, linewidth=0.8, label=f"lag law: {result['least_heads']} heads")
    least = [] if result["least_heads"] is None else [result["least_heads"]]
    whole_log(axes.xaxis, [*least, *(heads for points in result["curves"].values() for heads, _ in points)])
    titled(axes, f"{result['theorem']}, {result['target']}: {result['claim']}", xlabel="heads H", ylabel=f"{result['claim']} ≤")
    legend(axes)
    return page


@figure
def choices(result: dict[str, Any]) -> Any:
    """Heads that each choice of constants asks for, or the error that it promises, beside the lag law."""
    wanted = "heads" if result["error"] is not None else "error"
    rows = [row for row in result["rows"] if row[wanted]]
    page, axes = panels(size=(6.4, 1.4 + 0.4 * len(rows)))
    values = [float(row[wanted]) for row in rows]
    axes.barh([row["bank"] for row in rows], values, color=[colour(k) for k in range(len(rows))], height=0.55, log=True)
    for place, value in enumerate(values):
        axes.annotate(
            f"{value:g}" if wanted == "heads" else f"{value:.3g}", (value, place), xytext=(4, 0), textcoords="offset points", va="center"
        )
    if values:
        axes.set_xlim(min(values) / 3, max(values) * 10)
    axes.invert_yaxis()
    title = f"{result['theorem']}: heads for error {result['error']:g}" if wanted == "heads" else f"{result['theorem']}: error ≤"
    titled(axes, title, xlabel=wanted)
    return page


@figure
def front(result: dict[str, Any]) -> Any:
    """Heads against width, one colour per number of layers: built networks full, proven sizes hollow, their front ringed."""
    page, axes = panels(size=(6.8, 4.2))
    rows = [(row, kind, row[kind]) for row in result["rows"] for kind in ("proven", "built") if _is_known(row[kind])]
    if not rows:
        nothing(axes, f"no design of {result['target']} has definite sizes at error {result['error']:g}")
        return page
    depths = sorted({sizes["layers"] for _, _, sizes in rows})
    for row, kind, sizes in rows:
        paint, place = colour(depths.index(sizes["layers"])), (sizes["width"], sizes["heads"])
        axes.plot(*place, "o", color=paint, markerfacecolor=paint if kind == "built" else "none", markersize=5)
        if row["front" if result["build"] else "proven_front"] and kind == ("built" if result["build"] else "proven"):
            axes.plot(*place, "o", color="black", markerfacecolor="none", markersize=10)
    for k, layers in enumerate(depths[:MAX_CURVES]):
        axes.plot([], [], "o", color=colour(k), label=f"{layers} layer{'s' if layers > 1 else ''}")
    axes.plot([], [], "o", color=GREY, markerfacecolor="none", label="proven (hollow)")
    axes.plot([], [], "o", color="black", markerfacecolor="none", markersize=9, label="front")
    axes.set_xscale("log")
    axes.set_yscale("log")
    whole_log(axes.xaxis, [sizes["width"] for _, _, sizes in rows])
    whole_log(axes.yaxis, [sizes["heads"] for _, _, sizes in rows])
    titled(axes, f"{result['target']}, error {result['error']:g}: depth against width", xlabel="width m", ylabel="heads H")
    legend(axes)
    return page


def _is_known(sizes: dict[str, Any] | None) -> bool:
    return sizes is not None and all(sizes[name] for name in ("layers", "heads", "width"))
