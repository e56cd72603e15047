"""Figures as PNG files, by matplotlib where it is installed. A figure is a function of pyplot and of the data it draws."""

import math
from collections.abc import Callable, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

from verify.report.comparisons import shown_layers
from verify.report.experiments import depth_rows

VISIBLE = 0.005
"""A figure ends where all kernels are below this share of the largest value: the width of a line."""
MAX_CURVES = 12
"""Heads that a figure of spectra draws: more curves are not told apart."""

Given = ParamSpec("Given")


def figure(draw: Callable[Concatenate[Any, Given], Any]) -> Callable[Concatenate[Path, Given], bool]:
    """`draw` as a function that writes a PNG file; it says False where matplotlib is not installed."""

    @wraps(draw)
    def written(path: Path, *args: Given.args, **kwargs: Given.kwargs) -> bool:
        plt = _pyplot()
        if plt is None:
            return False
        drawn = draw(plt, *args, **kwargs)
        drawn.savefig(path, dpi=110)
        plt.close(drawn)
        return True

    return written


def _pyplot() -> Any:
    """matplotlib's pyplot without a screen, or None if it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


@figure
def tour(
    plt: Any, kernel: Sequence[float], lag: int, curves: dict[str, list[tuple[int, float]]], growth: dict[str, list[tuple[int, int]]]
) -> Any:
    """Three panels: the kernel, error against heads, heads against lag."""
    page, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4), constrained_layout=True)
    left.stem(range(len(kernel)), kernel, basefmt=" ")
    left.set(title=f"minimal bank, lag {lag}: memory kernel", xlabel="s (tokens back)", ylabel="κ(s)")
    styles = {"bound": ":", "certified": "-"}
    for name, points in curves.items():
        middle.loglog(*zip(*points, strict=True), styles[name.split()[-1]], marker="o", markersize=3, label=name)
    middle.set(title=f"lag {lag}: worst-case error against heads", xlabel="heads H", ylabel="error")
    middle.axhline(1, color="grey", linewidth=0.6)
    middle.legend(fontsize=8)
    for name, counts in growth.items():
        right.loglog(*zip(*counts, strict=True), label=name)
    right.set(title="heads for error 0.01", xlabel="lag T", ylabel="heads")
    right.legend(fontsize=8)
    return page


@figure
def horizon(plt: Any, result: dict[str, Any]) -> Any:
    """E_u against the lag, one curve per arithmetic, with the π-law's line through each."""
    page, axes = plt.subplots(figsize=(7, 4.5), constrained_layout=True)
    bits = {row["arithmetic"]: row["bits"] for row in result["rows"]}
    for colour, (name, rows) in enumerate(result["curves"].items()):
        lags = [row["lag"] for row in rows]
        axes.fill_between(lags, [row["lower"] for row in rows], [row["upper"] for row in rows], color=f"C{colour}", alpha=0.3)
        axes.semilogy(lags, [row["upper"] for row in rows], "o-", color=f"C{colour}", markersize=3, label=f"{name} (2^-{bits[name]})")
        line = [2.0 ** -bits[name] * math.exp(math.pi * lag) for lag in lags]
        axes.semilogy(lags, [min(1.0, v) for v in line], ":", color=f"C{colour}", linewidth=1)
    axes.axhline(0.5, color="grey", linewidth=0.6)
    axes.set(title=f"least error plus price of rounding, {result['rpe']} heads (dotted: u·e^(πT))", xlabel="lag T", ylabel="E_u(T)")
    axes.legend(fontsize=8)
    return page


@figure
def slopes(plt: Any, result: dict[str, Any]) -> Any:
    """Best error against lag for given slopes."""
    page, axes = plt.subplots(figsize=(7, 4), constrained_layout=True)
    rows = result["rows"]
    lags = [row["lag"] for row in rows]
    axes.fill_between(lags, [row["lower"] for row in rows], [row["upper"] for row in rows], alpha=0.3)
    axes.semilogy(lags, [row["upper"] for row in rows], "o-", markersize=3)
    axes.axhline(0.5, color="grey", linewidth=0.6)
    axes.set(
        title=f"slopes {result['slopes']}, {result['dtype']}: least error for every lag",
        xlabel="lag T",
        ylabel="error plus price of rounding",
    )
    return page


@figure
def spectrum(plt: Any, result: dict[str, Any]) -> Any:
    """Singular values against their rank, plain and centred, of the first heads."""
    page, panels = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, constrained_layout=True)
    shown = result["heads"][:MAX_CURVES]
    for axes, kind in zip(panels, ("plain", "centred"), strict=True):
        for h in shown:
            values = [v for v in (h if kind == "plain" else h["centred"])["singular_values"] if v > 0]
            axes.loglog(range(1, len(values) + 1), values, "o-", markersize=3, label=f"{h['layer']}.{h['head']}")
        axes.set(title=f"{kind} logits", xlabel="k")
    panels[0].set_ylabel("σ_k (sampled)")
    panels[0].legend(
        fontsize=7, title="layer.head" if len(shown) == len(result["heads"]) else f"first {MAX_CURVES} heads", title_fontsize=7
    )
    return page


@figure
def digits(plt: Any, result: dict[str, Any]) -> Any:
    """Training error against m_h with its fit and the published slope, and the spectra."""
    page, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), constrained_layout=True)
    rows = [row for row in result["rows"] if row["m_h"]]
    ranks = [row["m_h"] for row in rows]
    for colour, (name, label) in enumerate((("cross_entropy", "cross-entropy (nats)"), ("error_rate", "error rate"))):
        means = [row[name]["mean"] for row in rows]
        # bars reach down to a tenth of the mean at most: a logarithmic axis has no place for 0
        low = [min(row[name]["std"], 0.9 * row[name]["mean"]) for row in rows]
        left.errorbar(ranks, means, yerr=[low, [row[name]["std"] for row in rows]], fmt="o", capsize=3, color=f"C{colour}", label=label)
        if (fit := result["fits"][name]) is None:
            continue
        middle = math.exp(sum(math.log(mean) for mean in means) / len(means))
        centre = math.exp(sum(math.log(rank) for rank in ranks) / len(ranks))
        for slope, style in ((fit["exponent"], "-"), (result["published"]["exponent"], ":")):
            left.plot(ranks, [middle * (rank / centre) ** slope for rank in ranks], style, color=f"C{colour}", linewidth=1)
    left.set(xscale="log", yscale="log", title="training error (line: fit, dotted: published slope)", xlabel="m_h")
    left.set_xticks(ranks, [str(rank) for rank in ranks], minor=False)
    left.legend(fontsize=8)
    for row in rows:
        values = [value for value in row["centred"]["singular_values"] if value > 0]
        right.loglog(range(1, len(values) + 1), values, "o-", markersize=3, label=f"m_h = {row['m_h']}")
    right.set(title="centred logits on real patches, first seed", xlabel="k", ylabel="σ_k (sampled)")
    right.legend(fontsize=8)
    return page


@figure
def coupling(plt: Any, result: dict[str, Any]) -> Any:
    """Singular values with their bars, and the best error against the rank."""
    page, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
    for name, label in (("singular_values", "ρ"), ("centred_singular_values", "ρ modulo functions of u")):
        ends = [pair for pair in result[name] if pair[1] > 0]
        ranks = range(1, len(ends) + 1)
        left.loglog(ranks, [high for _, high in ends], "o-", markersize=3, label=label)
        left.fill_between(ranks, [max(low, 1e-300) for low, _ in ends], [high for _, high in ends], alpha=0.3)
    left.set(title=f"singular values of {result['coupling'][:60]}", xlabel="k", ylabel="σ_k")
    left.legend(fontsize=8)
    rows = [row for row in result["rows"] if row["upper"] > 0]
    right.loglog([row["rank"] for row in rows], [row["upper"] for row in rows], "o-", markersize=3)
    right.set(title="best error of rank m_h (L², modulo functions of u)", xlabel="m_h", ylabel="best error")
    return page


@figure
def fig_5(plt: Any, result: dict[str, Any]) -> Any:
    """Sampled errors against m_h, one panel per rank."""
    ranks = sorted({row["rank"] for row in result["rows"]})
    page, panels = plt.subplots(1, len(ranks), figsize=(6 * len(ranks), 4), constrained_layout=True, squeeze=False)
    for panel, rank in zip(panels[0], ranks, strict=True):
        for colour, alpha in enumerate(sorted({row["alpha"] for row in result["rows"]})):
            rows = [row for row in result["rows"] if (row["rank"], row["alpha"]) == (rank, alpha)]
            for key, style in (("l1", "o-"), ("l1_without_self", "x:"), ("tail", "--")):
                points = [(row["m_h"], row[key]) for row in rows if row[key] > 0]
                panel.loglog(*zip(*points, strict=True), style, color=f"C{colour}", markersize=3, label=f"{key}, α = {alpha:g}")
        panel.set(title=f"rank {rank}", xlabel="m_h", ylabel="sampled error, tail in L²")
        panel.legend(fontsize=7)
    return page


@figure
def compared(plt: Any, result: dict[str, Any]) -> Any:
    """Networks side by side in four panels: kernels, decays, errors, probes."""
    page, ((kernels, decays), (errors, probes)) = plt.subplots(2, 2, figsize=(13, 9), constrained_layout=True)
    networks = result["networks"]
    _kernels(kernels, result["target_kernel"], networks)
    _decays(decays, networks)
    _errors(errors, networks)
    _probes(probes, networks)
    for panel in (decays, errors):
        panel.set_xticks(range(len(networks)), [n["name"] for n in networks], fontsize=8)
        panel.set_xlim(-0.5, len(networks) - 0.5)
    for panel in (kernels, decays, errors, probes):
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=8)
        else:
            panel.text(0.5, 0.5, "none", transform=panel.transAxes, ha="center")
    return page


def _kernels(panel: Any, target: Sequence[Sequence[float]] | None, networks: Sequence[dict[str, Any]]) -> None:
    if target is not None:
        panel.plot(target[0], "k-", linewidth=3, alpha=0.25, label="target")
    for colour, n in enumerate(networks):
        if n["kernel"] is not None:
            panel.plot(n["kernel"][0], "o-", markersize=3, linewidth=1, color=f"C{colour}", label=n["name"])
    curves = [curve for curve in (target, *(n["kernel"] for n in networks)) if curve is not None]
    if curves:
        largest = max(abs(v) for curve in curves for v in curve[0])
        seen = max((s for curve in curves for s, v in enumerate(curve[0]) if abs(v) > VISIBLE * largest), default=0)
        panel.set_xlim(-0.5, max(seen, 4) + 1.5)
    panel.set(title="effective kernel (sampled)", xlabel="s (tokens back)", ylabel="mean ∂y_t/∂x_(t-s), first coordinate")


_MARKS = (("half_lives", "o", "C0", "half-life (lin heads)"), ("exponents", "x", "C1", "exponent (log heads)"))
"""How decays are drawn, by their name in the data."""


def _decays(panel: Any, networks: Sequence[dict[str, Any]]) -> None:
    layers = [(place, layer) for place, n in enumerate(networks) for layer in n["decays"]]
    for key, marker, colour, label in _MARKS:
        points = [(place, v) for place, layer in layers for v in layer[key]]
        if points:
            panel.plot(*zip(*points, strict=True), marker, color=colour, label=label)
    heaviest = [(place, t["distance"]) for place, layer in layers for t in layer["tables"]]
    if heaviest:
        panel.plot(*zip(*heaviest, strict=True), "+", color="C2", label="heaviest distance (table heads)")
        panel.set_yscale("symlog", linthresh=0.1)
    else:
        panel.set_yscale("log")
    panel.set(title="decays")


_ERRORS: tuple[tuple[str, str, Callable[[dict[str, Any]], float | None]], ...] = (
    ("root mean square (sampled)", "o", lambda n: n["sampled"]["rms"]["mean"]),
    ("largest (sampled)", "s", lambda n: n["sampled"]["overall"]["max"]),
    ("worst case ≥ (witness)", "^", lambda n: n["certificate"]["witness"]),
    ("worst case ≤ (certified)", "v", lambda n: n["certificate"]["certified"]),
)


def _errors(panel: Any, networks: Sequence[dict[str, Any]]) -> None:
    for label, marker, value in _ERRORS:
        found = [(place, value(n)) for place, n in enumerate(networks) if value(n)]
        if found:
            panel.semilogy(*zip(*found, strict=True), marker, label=label)
    panel.set(title="errors")


def _probes(panel: Any, networks: Sequence[dict[str, Any]]) -> None:
    layers = shown_layers(networks)
    slots = sorted({(p["layer"], p["memory"]) for n in networks for p in n["probes"] if p["layer"] in layers})
    width = 0.8 / len(networks)
    for colour, n in enumerate(networks):
        held = {(p["layer"], p["memory"]): p["r2"] for p in n["probes"] if p["r2"] is not None}
        bars = [(k + (colour + 0.5) * width - 0.4, max(held[slot], 0)) for k, slot in enumerate(slots) if slot in held]
        if bars:
            panel.bar(*zip(*bars, strict=True), width=width, color=f"C{colour}", label=n["name"])
    panel.set_xticks(range(len(slots)), [f"{memory}\nlayer {layer + 1}" for layer, memory in slots], fontsize=7)
    panel.set(title="linear probes of the stream (sampled)", ylabel="R²")


@figure
def lags(plt: Any, result: dict[str, Any]) -> Any:
    """Errors against the lag: E_u, trained layers, the best bank, deeper networks, tables."""
    page, panels = plt.subplots(1, 2, figsize=(12, 4.5), sharey=True, constrained_layout=True)
    for axes, rpe in zip(panels, ("lin", "log"), strict=True):
        rows = [row for row in result["rows"] if row["rpe"] == rpe]
        lags = [row["lag"] for row in rows]
        axes.fill_between(lags, [row["lower"] for row in rows], [row["upper"] for row in rows], color="grey", alpha=0.3)
        axes.semilogy(lags, [row["upper"] for row in rows], color="grey", label="E_u, certified optimum of float32")
        named = (
            ("few_heads", "trained, H < T", "v"),
            ("enough_heads", "trained, H ≥ T", "o"),
            ("trained_on", "trained from the best bank", "s"),
        )
        for name, label, marker in named:
            points = [(row["lag"], row[name]["error"]) for row in rows if row[name] is not None and row[name]["error"] is not None]
            if points:
                axes.semilogy(*zip(*points, strict=True), marker=marker, linestyle="", markersize=4, label=label)
        axes.axhline(1, color="grey", linewidth=0.6)
        axes.axhline(0.5, color="grey", linewidth=0.6, linestyle=":")
        axes.set(title=f"one layer of {rpe} heads", xlabel="lag T")
    for name, known in depth_rows(result["runs"]).items():
        panels[0].semilogy(list(known), list(known.values()), "x--", linewidth=0.6, markersize=4, label=name)
    panels[0].set_ylabel("worst-case error (relu: sampled)")
    panels[0].legend(fontsize=7)
    return page
