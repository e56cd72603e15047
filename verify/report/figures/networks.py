"""Figures of networks: their chain, how heads share a kernel, kernels by letter, the stream as a table, and networks side by side."""

from collections.abc import Callable, Sequence
from typing import Any

from verify.report.comparisons import shown_layers
from verify.report.figures.limits import VISIBLE, seen
from verify.report.figures.style import (
    DASHES,
    GREY,
    both_signs,
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

MAX_CURVES = 12
"""Heads that a figure of spectra draws: more curves are not told apart."""
MAX_CELLS = 28
"""Positions of a stream whose numbers are written into its cells."""
CANCELLING = 50
"""Shares that are so many times larger than their sum are drawn on a symmetric logarithmic axis."""


@figure
def chain(result: dict[str, Any]) -> Any:
    """witness ≤ certified ≤ bound, and the same of every part: one colour per part, filled for certified and dotted for promised."""
    rows = [(part["name"], None, part["certified"], part["bound"]) for part in result["parts"]]
    rows.append(("total", result["witness"], result["certified"], result["bound"]))
    page, axes = panels(size=(7.6, 1.7 + 0.36 * len(rows)))
    axes.set_xscale("log")
    for place, (_, witness, certified, bound) in enumerate(rows):
        paint = colour(place % 6) if place < len(rows) - 1 else "black"
        points = [value for value in (witness, certified, bound) if value]
        if points:
            axes.plot([min(points), max(points)], [place, place], DASHES["bound"], color=paint, linewidth=1)
        for value, mark, face in ((witness, "<", "white"), (certified, "o", paint), (bound, ">", "white")):
            if value:
                axes.plot([value], [place], mark, color=paint, markerfacecolor=face, markersize=6)
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    what = "E|error|²" if result.get("norm") == "mean-square" else "worst-case error"
    titled(axes, f"{result['theorem']}: {result['verdict']} ({what})", xlabel=what)
    legend_below(page, _chain_marks())
    return page


def _chain_marks() -> list[Any]:
    from matplotlib.lines import Line2D

    marks = (("<", "white", "witness ≤"), ("o", "black", "certified ≤"), (">", "white", "bound"))
    return [Line2D([], [], marker=m, color="black", markerfacecolor=face, linestyle="", label=label) for m, face, label in marks]


@figure
def shares(result: dict[str, Any]) -> Any:
    """How heads make a kernel: each head's share above, their sum below, one column per slot of the stream."""
    slots = result["slots"]
    page, grid = panels(2, len(slots), (max(5.4, 4.2 * len(slots)), 5.2), squeeze=False, sharex="col")
    for column, (name, held) in enumerate(slots.items()):
        above, below = grid[0][column], grid[1][column]
        end = max(seen(held["sum"]), *(seen(values) for values in held["heads"].values()), 4) + 2
        width = 0.7 / max(1, len(held["heads"]))
        for k, (head, values) in enumerate(held["heads"].items()):
            stems(above, values[:end], colour(k), head, shift=(k + 0.5) * width - 0.35, mark="os^Dv<>"[k % 7])
        stems(below, held["sum"][:end], "black")
        largest = max(abs(v) for values in held["heads"].values() for v in values)
        total = max(abs(v) for v in held["sum"]) or 1.0
        if largest > CANCELLING * total:
            both_signs(above, total, largest)
        titled(above, f"{name}: share of each head")
        titled(below, f"{name}: their sum", xlabel="s (tokens back)")
    grid[0][0].set_ylabel("gain · weight of x_(t-s)")
    grid[1][0].set_ylabel("κ(s)")
    legend_below(page, columns=6)
    return page


@figure
def letters(result: dict[str, Any]) -> Any:
    """Kernels of adaptive memories: one row of panels per memory, one panel per letter that decides its lag."""
    memories = result["memories"]
    columns = max(len(held["kernels"]) for held in memories.values())
    page, grid = panels(
        len(memories), columns, (max(5.0, 2.7 * columns), 0.6 + 2.2 * len(memories)), squeeze=False, sharex=True, sharey="row"
    )
    for row, (name, held) in enumerate(memories.items()):
        end = max([*(seen(kernel["values"]) for kernel in held["kernels"]), 4]) + 2
        for column, axes in enumerate(grid[row]):
            if column >= len(held["kernels"]):
                axes.set_axis_off()
                continue
            kernel = held["kernels"][column]
            stems(axes, kernel["values"][:end], colour(row))
            titled(axes, f"{name}, {held['parent']} = {kernel['letter']}: lag {kernel['lag']}")
            if row == len(memories) - 1:
                axes.set_xlabel("s (tokens back)")
        grid[row][0].set_ylabel("κ(s)")
    return page


@figure
def stream(result: dict[str, Any]) -> Any:
    """The residual stream as a table: one line per slot after every attention, one column per position, coloured by value."""
    lines = [(row["name"], row["values"]) for row in result["rows"]]
    length = len(lines[0][1])
    largest = max((abs(v) for _, values in lines for v in values if v == v), default=1.0) or 1.0
    page, axes = panels(size=(2.2 + min(14.0, 0.52 * length), 1.3 + 0.3 * len(lines)))
    grid = [[v if abs(v) <= largest else float("nan") for v in values] for _, values in lines]
    drawn = axes.imshow(grid, cmap="PuOr", vmin=-largest, vmax=largest, aspect="auto", interpolation="nearest")
    axes.set_yticks(range(len(lines)), [name for name, _ in lines])
    axes.grid(visible=False)
    whole(axes.xaxis)
    for row, (_, values) in enumerate(lines if length <= MAX_CELLS else []):
        for t, value in enumerate(values):
            paint = "white" if abs(value) > 0.6 * largest else "black"
            axes.text(t, row, _cell(value), ha="center", va="center", fontsize=7, color=paint)
    edges = [row["name"].partition(":")[0] for row in result["rows"]]
    for row in range(1, len(edges)):
        if edges[row] != edges[row - 1]:
            axes.axhline(row - 0.5, color="black", linewidth=0.8)
    titled(axes, f"residual stream on one sequence, computed in float64: {result['network']}", xlabel="position t")
    page.colorbar(drawn, ax=axes, fraction=0.03, pad=0.01)
    return page


def _cell(value: float) -> str:
    """Two decimals at most, as wide as a cell; integers as such."""
    text = f"{value:.2f}".rstrip("0").rstrip(".") if abs(value) < 1000 else f"{value:.0e}"
    return "0" if text == "-0" else text


@figure
def spectrum(result: dict[str, Any]) -> Any:
    """Singular values against their rank, plain and centred, of the first heads."""
    page, grid = panels(1, 2, (10, 3.9), sharey=True)
    shown = result["heads"][:MAX_CURVES]
    longest = 1
    for axes, kind in zip(grid, ("plain", "centred"), strict=True):
        for k, h in enumerate(shown):
            values = [v for v in (h if kind == "plain" else h["centred"])["singular_values"] if v > 0]
            longest = max(longest, len(values))
            style = "o-" if k < 7 else "x--"
            axes.loglog(range(1, len(values) + 1), values, style, color=colour(k), label=f"{h['layer']}.{h['head']}")
        if not any(v > 0 for h in shown for v in (h if kind == "plain" else h["centred"])["singular_values"]):
            nothing(axes, "all 0")
        titled(axes, f"{kind} logits", xlabel="k")
        whole_log(axes.xaxis, range(1, longest + 1))
    grid[0].set_ylabel("σ_k (sampled)")
    named = "layer.head" if len(shown) == len(result["heads"]) else f"layer.head, first {MAX_CURVES} of {len(result['heads'])}"
    legend_below(page, columns=6, title=named)
    return page


@figure
def compared(result: dict[str, Any]) -> Any:
    """Networks side by side in four panels: kernels, decays, errors, probes."""
    page, ((kernels, decays), (errors, probes)) = panels(2, 2, (12, 7.6))
    networks = result["networks"]
    _kernels(kernels, result["target_kernel"], networks)
    _decays(decays, networks)
    _errors(errors, networks)
    _probes(probes, networks)
    for panel in (decays, errors):
        panel.set_xticks(range(len(networks)), [_short(n["name"]) for n in networks])
        panel.set_xlim(-0.5, len(networks) - 0.5)
    for panel in (kernels, decays, errors, probes):
        if panel.get_legend_handles_labels()[0]:
            legend(panel)
        else:
            nothing(panel, "none")
    return page


def _short(name: str, most: int = 14) -> str:
    """A name that fits under its tick."""
    return name if len(name) <= most else f"…{name[1 - most :]}"


def _kernels(panel: Any, target: Sequence[Sequence[float]] | None, networks: Sequence[dict[str, Any]]) -> None:
    curves = [curve for curve in (target, *(n["kernel"] for n in networks)) if curve is not None]
    largest = max((abs(v) for curve in curves for v in curve[0]), default=0.0)
    end = max((s for curve in curves for s, v in enumerate(curve[0]) if abs(v) > VISIBLE * largest), default=0)
    width = 0.6 / max(1, len(networks))
    if target is not None:
        panel.bar(range(len(target[0][: end + 2])), target[0][: end + 2], width=0.9, color=GREY, alpha=0.35, label="target")
    for k, n in enumerate(networks):
        if n["kernel"] is not None:
            stems(panel, n["kernel"][0][: end + 2], colour(k), _short(n["name"]), (k + 0.5) * width - 0.3, "os^D"[k % 4])
    if curves:
        panel.set_xlim(-0.7, max(end, 4) + 1.7)
        whole(panel.xaxis)
    titled(panel, "effective kernel (sampled)", xlabel="s (tokens back)", ylabel="mean ∂y_t/∂x_(t-s), first coordinate")


_MARKS = (("half_lives", "o", 0, "half-life (lin heads)"), ("exponents", "x", 1, "exponent (log heads)"))
"""How decays are drawn, by their name in the data."""


def _decays(panel: Any, networks: Sequence[dict[str, Any]]) -> None:
    layers = [(place, layer) for place, n in enumerate(networks) for layer in n["decays"]]
    for key, marker, paint, label in _MARKS:
        points = [(place, v) for place, layer in layers for v in layer[key]]
        if points:
            panel.plot(*zip(*points, strict=True), marker, color=colour(paint), label=label)
    heaviest = [(place, t["distance"]) for place, layer in layers for t in layer["tables"]]
    if heaviest:
        panel.plot(*zip(*heaviest, strict=True), "+", color=colour(2), label="heaviest distance (table heads)")
        panel.set_yscale("symlog", linthresh=0.1)
    else:
        panel.set_yscale("log")
    titled(panel, "decays")


_ERRORS: tuple[tuple[str, str, Callable[[dict[str, Any]], float | None]], ...] = (
    ("root mean square (sampled)", "o", lambda n: n["sampled"]["rms"]["mean"]),
    ("largest (sampled)", "s", lambda n: n["sampled"]["overall"]["max"]),
    ("worst case ≥ (witness)", "^", lambda n: n["certificate"]["witness"]),
    ("worst case ≤ (certified)", "v", lambda n: n["certificate"]["certified"]),
)


def _errors(panel: Any, networks: Sequence[dict[str, Any]]) -> None:
    for k, (label, marker, value) in enumerate(_ERRORS):
        found = [(place, value(n)) for place, n in enumerate(networks) if value(n)]
        if found:
            panel.semilogy(*zip(*found, strict=True), marker, color=colour(k), label=label)
    titled(panel, "errors")


def _probes(panel: Any, networks: Sequence[dict[str, Any]]) -> None:
    layers = shown_layers(networks)
    slots = sorted({(p["layer"], p["memory"]) for n in networks for p in n["probes"] if p["layer"] in layers})
    width = 0.8 / len(networks)
    for k, n in enumerate(networks):
        held = {(p["layer"], p["memory"]): p["r2"] for p in n["probes"] if p["r2"] is not None}
        bars = [(place + (k + 0.5) * width - 0.4, max(held[slot], 0)) for place, slot in enumerate(slots) if slot in held]
        if bars:
            panel.bar(*zip(*bars, strict=True), width=width, color=colour(k), label=_short(n["name"]))
    panel.set_xticks(range(len(slots)), [f"{memory}\nlayer {layer + 1}" for layer, memory in slots])
    titled(panel, "linear probes of the stream (sampled)", ylabel="R²")
