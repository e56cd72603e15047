"""Figures of limits: what a lag costs, which lags positions resolve, kernels and couplings between their two sides."""

import math
from typing import Any

from verify.report.figures.style import (
    COLOURS,
    GREY,
    colour,
    figure,
    legend,
    legend_below,
    nothing,
    panels,
    stems,
    titled,
    whole,
    whole_log,
)

SHOWN = 20
"""Distances of a kernel that are drawn at most."""
LEAST_SHARE = 1e-12
"""Errors below this share of the largest one are drawn there: on a logarithmic axis 0 has no place."""
VISIBLE = 0.005
"""A figure ends where a kernel is below this share of its largest value: the width of a line."""


@figure
def horizon(result: dict[str, Any]) -> Any:
    """E_u against the lag, one colour per arithmetic, with the π-law's line through each (dotted)."""
    page, axes = panels(size=(7, 4))
    bits = {row["arithmetic"]: row["bits"] for row in result["rows"]}
    for k, (name, rows) in enumerate(result["curves"].items()):
        lags, paint = [row["lag"] for row in rows], colour(k)
        axes.fill_between(lags, [row["lower"] for row in rows], [row["upper"] for row in rows], color=paint, alpha=0.3)
        label = f"2^-{bits[name]}" if str(bits[name]) == name else f"{name} (2^-{bits[name]})"
        axes.semilogy(lags, [row["upper"] for row in rows], "o-", color=paint, label=label)
        line = [2.0 ** -bits[name] * math.exp(math.pi * lag) for lag in lags]
        axes.semilogy(lags, [min(1.0, v) for v in line], ":", color=paint)
    _half(axes)
    titled(axes, f"least error plus price of rounding, {result['rpe']} heads (dotted: u·e^(πT))", xlabel="lag T", ylabel="E_u(T)")
    whole(axes.xaxis)
    legend(axes, "unit roundoff u")
    return page


def _half(axes: Any) -> None:
    """Where a lag stops to be resolved."""
    axes.axhline(0.5, color=GREY, linewidth=0.8, linestyle="--", label="1/2")


@figure
def slopes(result: dict[str, Any]) -> Any:
    """Best error against lag for given slopes: resolved lags are filled."""
    page, axes = panels(size=(6.4, 3.6))
    rows = result["rows"]
    lags, paint = [row["lag"] for row in rows], colour(0)
    axes.fill_between(lags, [row["lower"] for row in rows], [row["upper"] for row in rows], color=paint, alpha=0.3)
    axes.semilogy(lags, [row["upper"] for row in rows], "-", color=paint)
    for wanted, face, label in ((True, paint, "resolved"), (False, "white", "not resolved")):
        points = [(row["lag"], row["upper"]) for row in rows if row["resolved"] == wanted]
        if points:
            axes.semilogy(*zip(*points, strict=True), "o", color=paint, markerfacecolor=face, label=label)
    _half(axes)
    title = f"slopes {result['slopes']}, {result['dtype']}: least error for every lag"
    titled(axes, title, xlabel="lag T", ylabel="error plus price of rounding")
    whole(axes.xaxis)
    legend(axes)
    return page


@figure
def positions(result: dict[str, Any]) -> Any:
    """A grid of lags and schemes: resolved, not resolved, undecided."""
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    rows, colours = result["schemes"], {"resolved": COLOURS[2], "unresolved": "#f0e0b0", "undecided": "#bbbbbb"}
    names = list(colours)
    page, axes = panels(size=(3.4 + min(20, 0.3 * result["longest"]), 1.5 + 0.35 * len(rows)))
    grid = [[names.index(cell["verdict"]) for cell in row["rows"]] for row in rows]
    extent = (0.5, result["longest"] + 0.5, len(rows) - 0.5, -0.5)
    axes.imshow(
        grid, cmap=ListedColormap(list(colours.values())), vmin=-0.5, vmax=2.5, aspect="auto", extent=extent, interpolation="nearest"
    )
    axes.set_yticks(range(len(rows)), [f"{row['scheme']} ({row['about']})" for row in rows])
    axes.set_yticks([k + 0.5 for k in range(len(rows) - 1)], minor=True)
    axes.grid(visible=False)
    axes.grid(which="minor", axis="y", color="white", linewidth=2)
    axes.tick_params(which="minor", length=0)
    whole(axes.xaxis)
    titled(axes, f"lags that positions alone resolve, {result['dtype']}", xlabel="lag T (tokens back)")
    shown = [name for k, name in enumerate(names) if any(k in line for line in grid)]
    legend_below(page, [Patch(color=colours[name], label=name) for name in shown])
    return page


@figure
def lag(result: dict[str, Any]) -> Any:
    """Heads that every lag up to this one needs, and the two sides of its least error where they were asked for."""
    from analyzer.limits.lag_law import lag_law

    pair = result.get("mean_square", result["budgeted_error"])
    page, axes = panels(1, 1 if pair is None else 2, (5 if pair is None else 8.4, 3.4), squeeze=False)
    law, reached = axes[0][0], range(1, result["lag"] + 1)
    step = max(1, result["lag"] // 64)
    shown = [*range(1, result["lag"], step), result["lag"]]
    law.plot(shown, [lag_law(result["rpe"], (T,)).heads for T in shown], "o" if len(reached) <= 64 else "-", color=colour(0))
    law.plot([result["lag"]], [result["min_heads"]], "o", markersize=8, color=colour(1))
    titled(law, f"fewest {result['rpe']} heads for an error below 1 (lag law)", xlabel="lag T", ylabel="heads")
    for axis in (law.xaxis, law.yaxis):
        whole(axis)
    if pair is not None:
        both, what = axes[0][1], "mean square" if "mean_square" in result else "E_u"
        ends = [pair["lower"], pair["upper"]]
        both.barh(["lower", "upper"], ends, color=[colour(2), colour(0)], height=0.5)
        for place, value in enumerate(ends):
            both.annotate(f"{value:.6g}", (value, place), xytext=(4, 0), textcoords="offset points", va="center")
        both.set_xlim(0, max(ends) * 1.35 or 1)
        of = f"{result['heads']} heads" if "mean_square" in result else result["arithmetic"]
        titled(both, f"lag {result['lag']}, {of}: lower ≤ {what} ≤ upper, certified", xlabel=what)
    return page


@figure
def kernel(result: dict[str, Any]) -> Any:
    """The kernel, and how its norm compares with what no heads can beat and what a fitted bank reaches."""
    values = kernel_values(result["kernel"])
    page, (left, right) = panels(1, 2, (8.4, 3.4))
    stems(left, values, colour(0))
    titled(left, f"ρ(s) = {result['kernel']}", xlabel="s (tokens back)", ylabel="ρ(s)")
    known = {name: result[name] for name in ("lower", "upper", "kernel_norm") if result.get(name)}
    names = {"lower": "no bank is below", "upper": "a fitted bank", "kernel_norm": "the zero network"}
    right.barh([names[name] for name in known], list(known.values()), color=[colour(k) for k in range(len(known))], height=0.5, log=True)
    for place, value in enumerate(known.values()):
        right.annotate(f"{value:.3g}", (value, place), xytext=(4, 0), textcoords="offset points", va="center")
    if known:
        right.set_xlim(min(known.values()) / 10, max(known.values()) * 10)
    what = "mean square error" if "mean_square" in result else "worst-case error"
    titled(right, f"{result['heads']} {result['rpe']} heads: {what}, certified", xlabel="error")
    return page


@figure
def architectures(result: dict[str, Any]) -> Any:
    """Both sides of the least error against the size, one colour per architecture: filled between them, the upper one drawn."""
    page, axes = panels(size=(7, 4))
    visible = max(row["upper"] for row in result["rows"]) * LEAST_SHARE
    for k, about in enumerate(result["architectures"]):
        rows = [row for row in result["rows"] if row["architecture"] == about["architecture"]]
        sizes, paint = [row["size"] for row in rows], colour(k)
        low, high = ([max(row[side], visible) for row in rows] for side in ("lower", "upper"))
        axes.fill_between(sizes, low, high, color=paint, alpha=0.2)
        size = {"linewidth": 2.6 - 0.4 * k, "markersize": 7 - 0.9 * k}  # classes that agree stay visible under each other
        axes.loglog(sizes, low, ":", marker="^", color=paint, **size)
        axes.loglog(sizes, high, "-", marker="v", color=paint, label=f"{about['label']} ({about['counts']})", **size)
    if result["error"] is not None:
        axes.axhline(result["error"], color=GREY, linewidth=0.8, linestyle="--", label=f"{result['error']:.3g}")
    titled(axes, f"ρ(s) = {result['kernel']}: certainly above dotted, reached by solid lines", xlabel="size", ylabel="worst-case error")
    whole_log(axes.xaxis, result["sizes"])
    legend(axes)
    return page


@figure
def order(result: dict[str, Any]) -> Any:
    """A kernel as a recurrent network meets it: in order, and with the first and last tokens exchanged."""
    length, swap = result["length"], result["swapped"]
    values = kernel_values(result["kernel"], length)
    ends = [*range(length - swap, length), *range(swap, length - swap), *range(swap)] if 2 * swap <= length else list(range(length))
    page, (left, right) = panels(1, 2, (8.4, 3.4), sharey=True)
    stems(left, values, colour(0))
    titled(left, f"ρ(s) = {result['kernel']}", xlabel="s (tokens back)", ylabel="weight of x_(t-s)")
    stems(right, [values[s] for s in ends], colour(1))
    floor = result["floor"]["mean_square"]
    titled(right, f"first and last {swap} exchanged: every causal model has a mean square error ≥ {floor:.3g}", xlabel="s (tokens back)")
    return page


def kernel_values(text: str, length: int = SHOWN) -> list[float]:
    """ρ(0), ρ(1), …, as far as they can be seen, or all `length` of them."""
    from analyzer.kernels.memory_kernels import parse_kernel
    from analyzer.numbers.exact import working_precision

    with working_precision(128):
        values = [float(v) for v in parse_kernel(text).values(0, length)]
    return values if length != SHOWN else values[: max(seen(values), 4) + 2]


def seen(values: list[float]) -> int:
    """The last place at which a kernel is not lost in the axis."""
    largest = max(map(abs, values), default=0.0)
    return max((s for s, value in enumerate(values) if abs(value) > VISIBLE * largest), default=0)


@figure
def coupling(result: dict[str, Any]) -> Any:
    """Singular values with their bars, and the best error against the rank."""
    page, (left, right) = panels(1, 2, (9, 3.8))
    longest = 1
    for k, (name, label) in enumerate((("singular_values", "ρ"), ("centred_singular_values", "ρ modulo functions of u"))):
        ends = [pair for pair in result[name] if pair[1] > 0]
        ranks = range(1, len(ends) + 1)
        longest = max(longest, len(ends))
        left.loglog(ranks, [high for _, high in ends], "os"[k] + "-", color=colour(k), label=label)
        left.fill_between(ranks, [max(low, 1e-300) for low, _ in ends], [high for _, high in ends], color=colour(k), alpha=0.3)
    titled(left, f"singular values of {result['coupling'][:60]}", xlabel="k", ylabel="σ_k")
    whole_log(left.xaxis, range(1, longest + 1))
    rows = [row for row in result["rows"] if row["upper"] > 0]
    right.loglog([row["rank"] for row in rows], [row["upper"] for row in rows], "s-", color=colour(1))
    if not rows:
        nothing(right, "0 for every rank")
    titled(right, "best error of rank m_h (L², modulo functions of u)", xlabel="m_h", ylabel="best error")
    whole_log(right.xaxis, [row["rank"] for row in rows])
    legend_below(page)
    return page
