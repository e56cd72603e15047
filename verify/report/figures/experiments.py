"""Figures of the tour and of published experiments, repeated."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from verify.report.experiments import depth_rows
from verify.report.figures.style import COLOURS, DASHES, GREY, colour, figure, legend, legend_below, panels, stems, titled, whole, whole_log

METHODS = ("paper", "tuned", "minimal")
"""Choices of constants: each has one colour in all panels."""


def _method(name: str) -> str:
    return COLOURS[METHODS.index(name.split()[0])]


@figure
def tour(kernel: Sequence[float], lag: int, curves: dict[str, list[tuple[int, float]]], growth: dict[str, list[tuple[int, int]]]) -> Any:
    """Three panels: the kernel, error against heads, heads against lag."""
    page, (left, middle, right) = panels(1, 3, (12, 3.9))
    stems(left, kernel, _method("minimal"))
    titled(left, f"minimal bank, lag {lag}: memory kernel", xlabel="s (tokens back)", ylabel="κ(s)")
    for name, points in curves.items():
        middle.loglog(*zip(*points, strict=True), "o" + DASHES[name.split()[-1]], color=_method(name), label=name)
    titled(middle, f"lag {lag}: worst-case error against heads", xlabel="heads H", ylabel="error")
    middle.axhline(1, color=GREY, linewidth=0.8, linestyle="--")
    whole_log(middle.xaxis, [heads for points in curves.values() for heads, _ in points])
    for name, counts in growth.items():
        right.loglog(*zip(*counts, strict=True), color=_method(name), label=name)
    titled(right, "heads for error 0.01", xlabel="lag T", ylabel="heads")
    whole_log(right.xaxis, [value for points in growth.values() for value, _ in points])
    legend_below(page, columns=7)
    return page


@figure
def digits(result: dict[str, Any]) -> Any:
    """Training error against m_h with its fit and the published slope, and the spectra."""
    page, (left, right) = panels(1, 2, (10.5, 4))
    rows = [row for row in result["rows"] if row["m_h"]]
    ranks = [row["m_h"] for row in rows]
    left.set(xscale="log", yscale="log")
    for k, (name, label) in enumerate((("cross_entropy", "cross-entropy (nats)"), ("error_rate", "error rate"))):
        means = [row[name]["mean"] for row in rows]
        # bars reach down to a tenth of the mean at most: a logarithmic axis has no place for 0
        low = [min(row[name]["std"], 0.9 * row[name]["mean"]) for row in rows]
        left.errorbar(ranks, means, yerr=[low, [row[name]["std"] for row in rows]], fmt="os"[k], capsize=3, color=colour(k), label=label)
        if (fit := result["fits"][name]) is None:
            continue
        middle = math.exp(sum(math.log(mean) for mean in means) / len(means))
        centre = math.exp(sum(math.log(rank) for rank in ranks) / len(ranks))
        for slope, style in ((fit["exponent"], "-"), (result["published"]["exponent"], ":")):
            left.plot(ranks, [middle * (rank / centre) ** slope for rank in ranks], style, color=colour(k), linewidth=1)
    titled(left, "training error (line: fit, dotted: published slope)", xlabel="m_h")
    whole_log(left.xaxis, ranks)
    longest = 1
    for k, row in enumerate(rows):
        values = [value for value in row["centred"]["singular_values"] if value > 0]
        longest = max(longest, len(values))
        right.loglog(range(1, len(values) + 1), values, "o-", color=colour(k), label=f"m_h = {row['m_h']}")
    titled(right, "centred logits on real patches, first seed", xlabel="k", ylabel="σ_k (sampled)")
    whole_log(right.xaxis, range(1, longest + 1))
    legend_below(page, columns=6)
    return page


@figure
def fig_5(result: dict[str, Any]) -> Any:
    """Sampled errors against m_h, one panel per rank, one colour per exponent."""
    ranks = sorted({row["rank"] for row in result["rows"]})
    page, grid = panels(1, len(ranks), (4.6 * len(ranks), 4), squeeze=False, sharey=True)
    named = {"l1": "L¹", "l1_without_self": "L¹ without s = t", "tail": "tail in L²"}
    for panel, rank in zip(grid[0], ranks, strict=True):
        for k, alpha in enumerate(sorted({row["alpha"] for row in result["rows"]})):
            rows = [row for row in result["rows"] if (row["rank"], row["alpha"]) == (rank, alpha)]
            for key, style in (("l1", "o-"), ("l1_without_self", "x:"), ("tail", "--")):
                points = [(row["m_h"], row[key]) for row in rows if row[key] > 0]
                panel.loglog(*zip(*points, strict=True), style, color=colour(k), label=f"{named[key]}, α = {alpha:g}")
        titled(panel, f"rank {rank}", xlabel="m_h")
        whole_log(panel.xaxis, [row["m_h"] for row in result["rows"] if row["rank"] == rank])
    grid[0][0].set_ylabel("sampled error")
    legend_below(page, columns=3)
    return page


@figure
def ranks(result: dict[str, Any]) -> Any:
    """Certified, found and trained errors against m_h, one panel per target, with the singular values."""
    names = list(dict.fromkeys(row["target"] for row in result["rows"]))
    page, grid = panels(1, len(names), (3.4 * len(names), 4), squeeze=False, sharey=True)
    named = (("certified", "certified", "o-"), ("witness", "found (witness)", "v:"), ("trained", "trained, sampled", "s--"))
    for panel, name in zip(grid[0], names, strict=True):
        rows = [row for row in result["rows"] if row["target"] == name]
        for k, (key, label, style) in enumerate((*named, ("singular_value", "σ_m", "x"))):
            points = [(row["m_h"], row[key]) for row in rows if row[key] > 0]
            if points:
                panel.semilogy(*zip(*points, strict=True), style, color=GREY if key == "singular_value" else colour(k), label=label)
        panel.axhline(rows[0]["trivial"], color=GREY, linewidth=0.8, linestyle="--", label="best constant")
        titled(panel, name, xlabel="m_h")
        whole(panel.xaxis)
    grid[0][0].set_ylabel("error")
    legend_below(page, columns=3)
    return page


@figure
def lags(result: dict[str, Any]) -> Any:
    """Errors against the lag: E_u, trained layers, the best bank, deeper networks, tables."""
    page, grid = panels(1, 2, (11, 4.4), sharey=True)
    named = (
        ("few_heads", "trained, H < T", "v"),
        ("enough_heads", "trained, H ≥ T", "o"),
        ("trained_on", "trained from the best bank", "s"),
    )
    for axes, rpe in zip(grid, ("lin", "log"), strict=True):
        rows = [row for row in result["rows"] if row["rpe"] == rpe]
        lags = [row["lag"] for row in rows]
        axes.fill_between(lags, [row["lower"] for row in rows], [row["upper"] for row in rows], color=GREY, alpha=0.3)
        axes.semilogy(lags, [row["upper"] for row in rows], color=GREY, label="E_u, certified optimum of float32")
        for k, (name, label, marker) in enumerate(named):
            points = [(row["lag"], row[name]["error"]) for row in rows if row[name] is not None and row[name]["error"] is not None]
            if points:
                axes.semilogy(*zip(*points, strict=True), marker=marker, linestyle="", color=colour(k), label=label)
        axes.axhline(1, color=GREY, linewidth=0.8)
        axes.axhline(0.5, color=GREY, linewidth=0.8, linestyle="--", label="1/2")
        titled(axes, f"one layer of {rpe} heads", xlabel="lag T")
        whole(axes.xaxis)
    for k, (name, known) in enumerate(depth_rows(result["runs"]).items(), start=len(named)):
        grid[0].semilogy(list(known), list(known.values()), "x--", linewidth=0.8, color=colour(k), label=name)
    grid[0].set_ylabel("worst-case error (relu: sampled)")
    legend_below(page, columns=3)
    return page


def _bars(names: Sequence[str], series: Mapping[str, Sequence[float | None]], what: str, title: str) -> Any:
    """Named rows with a mark per series on a logarithmic axis."""
    page, axes = panels(size=(8.4, 1.6 + 0.32 * len(names)))
    axes.set_xscale("log")
    for k, (label, values) in enumerate(series.items()):
        points = [(value, place) for place, value in enumerate(values) if value]
        if points:
            axes.plot(*zip(*points, strict=True), "o^sD"[k % 4], color=colour(k), markersize=6, label=label)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    titled(axes, title, xlabel=what)
    legend_below(page)
    return page


@figure
def table(result: dict[str, Any]) -> Any:
    """A table of [JL]: sampled and published errors, and the certified floor of causal models."""
    rows = result["rows"]
    names = [f"{row['model']}: {row['target']}" for row in rows]
    altered = next(row["target"] for row in result["ratios"])
    floors = [result["floor"]["mse"] if "RNN" in row["model"] and row["target"] == altered else None for row in rows]
    series = {
        "trained (sampled)": [r["mse_mean"] for r in rows],
        "published": [r["published"] for r in rows],
        "causal floor (certified)": floors,
    }
    return _bars(names, series, "mean square error", f"{result['experiment']}, {result['protocol']['steps']} steps")


@figure
def orders(result: dict[str, Any]) -> Any:
    """Images in another order: errors of classification of every model."""
    rows = result["rows"]
    series = {
        "held out": [100 * row["held_out_error"]["mean"] for row in rows],
        "training": [100 * row["training_error"]["mean"] for row in rows],
    }
    names = [f"{row['model']}: {row['order']}" for row in rows]
    return _bars(names, series, "wrong classes in % (sampled)", f"{result['experiment']}, {result['steps']} steps, {result['seeds']} seeds")


@figure
def squares(result: dict[str, Any]) -> Any:
    """A regression of [WE]: errors, published ones and certified floors, as they stand in its table."""
    rows = result["rows"]
    series = {
        "ours": [row["mse"] for row in rows],
        "published": [row["published"] for row in rows],
        "floor (certified)": [row.get("mean_square_floor") for row in rows],
    }
    title = f"{result['experiment']}: median of {result['protocol']['seeds']} seeds"
    return _bars([row["name"] for row in rows], series, "mean square error", title)


@figure
def losses(result: dict[str, Any]) -> Any:
    """Held-out losses of language models against their number of weights."""
    page, axes = panels(size=(7.4, 3.8))
    kinds = list(dict.fromkeys(row["attention"] for row in result["rows"]))
    for k, kind in enumerate(kinds):
        points = [(row["parameters"], row["loss"]["mean"]) for row in result["rows"] if row["attention"] == kind]
        axes.plot(*zip(*points, strict=True), "os^D"[k % 4], color=colour(k), label=kind)
    axes.axhline(result["text"]["entropy"], color=GREY, linewidth=0.8, linestyle="--", label="single characters")
    titled(axes, f"{result['experiment']}: held-out loss (sampled)", xlabel="weights", ylabel="nats per character")
    whole(axes.xaxis)
    legend(axes)
    return page
