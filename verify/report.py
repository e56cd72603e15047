"""Reports for people: rich tables, the demo's figure. The only room that formats."""

import csv
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from analyzer.exact import decimal_below
from verify.certificate import Certificate, Verdict

_COLOURS = {Verdict.HOLDS: "green", Verdict.VACUOUS: "yellow", Verdict.VIOLATED: "red"}


def console() -> Console:
    return Console(highlight=False)


@contextmanager
def progress(message: str, quiet: bool) -> Iterator[None]:
    """A spinner on stderr while long work runs; silent when quiet or not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(message):
        yield


@contextmanager
def steps(message: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A spinner that says what is being worked on; silent when quiet or not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    with Console(stderr=True).status(message) as status:
        yield lambda text: status.update(f"{message}: {text}")


@contextmanager
def training(quiet: bool) -> Iterator[Callable[[str, Any], None] | None]:
    """A spinner that shows what is trained (a name and its `Progress`): step, loss and time left; None when quiet or not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    with Console(stderr=True).status("training") as status:
        yield lambda name, progress: status.update(_training_line(name, progress))


def _training_line(name: str, progress: Any) -> str:
    losses = " ".join(f"{value:.1e}" for value in progress.loss.reshape(-1))
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    return f"{name}: step {progress.step} of {progress.steps}, {minutes}:{seconds:02} left, loss {losses}"


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    result = Table(title=title, title_justify="left")
    for k, column in enumerate(columns):
        result.add_column(column, justify="left" if k == 0 else "right")
    for row in rows:
        result.add_row(*(str(cell) for cell in row))
    return result


def number(value: float) -> str:
    return f"{value:.6g}"


def show_certificate(certificate: Certificate) -> None:
    """The chain and its parts."""
    out = console()
    sizes = certificate.sizes
    law = "" if certificate.least_heads is None else f" (lag law: {certificate.least_heads})"
    layers = "1 layer" if sizes["layers"] == 1 else f"{sizes['layers']} layers"
    out.print(
        f"{certificate.theorem}: {layers}, {sizes['heads']} heads{law}, "
        f"width {sizes['width']}, model dimension {sizes['model_dim']}, {sizes['parameters']} parameters, {certificate.dtype}"
    )
    rows = [[_part_name(part.name), "", number(part.certified), number(part.bound)] for part in certificate.parts]
    if certificate.rounding:
        rows.append(["rounding of evaluation", "", number(certificate.rounding), number(certificate.rounding)])
    rows.append(["total", number(certificate.witness), number(certificate.certified), number(certificate.bound)])
    out.print(table("", ["part", "witness ≤", "certified ≤", "bound"], rows))
    if "plan" in certificate.details:
        _show_plan(certificate.details)
    if "memories" in certificate.details:
        _show_memories(certificate.details)
        out.print("parts stand alone: the total is the worst over all situations, often less than their sum")
    if certificate.conditions:
        failed = [c for c in certificate.conditions if not c.holds]
        outcome = "all hold" if not failed else ", ".join(f"{c.name} fails ({number(c.certified)})" for c in failed)
        slack = max(c.certified / c.bound for c in certificate.conditions)
        out.print(f"conditions that the paper leaves unstated (e ≤ 1, noise at lags < 1/2): {outcome}; {slack:.2%} of the room is used")
    out.print(f"witness: {certificate.witness_input}")
    out.print(f"[{_COLOURS[certificate.verdict]}]{certificate.verdict.value}[/]: {certificate.advice}")


def _part_name(name: str) -> str:
    """Parts that are distances to a lag, before rounding, say so."""
    return f"{name} (off by)" if name.startswith("lag ") else name


def _lags(memory: dict[str, Any]) -> str:
    lags = memory["lags"]
    return ",".join(map(str, lags)) if len(lags) < 8 else f"{lags[0]}…{lags[-1]}"


def _show_memories(details: dict[str, Any]) -> None:
    """Lags, margins, Barron norms and widths per memory, and what a score costs."""
    rows = []
    for m in details["memories"]:
        lags = _lags(m)
        norms = [f"{m['barron_norm']:.4g}", f"{m['barron_norm_log']:.4g}"]
        rows.append([m["name"], m["level"], lags, m["heads"], f"{m['margin']:.4f}", *norms, m["width_theorem"] or "-", m["width_used"]])
    columns = ["memory", "level", "lags", "heads", "margin", "‖g‖", "‖log g‖", "width asked", "width used"]
    out, score = console(), details["score_parameters"]
    out.print(table("", columns, rows))
    out.print(f"score parameters: {score['per_head']} per head, {score['order']}, {score['total']} in all ({details['attention']})")


def _show_plan(details: dict[str, Any]) -> None:
    """Shifts and heads of a chain beside the law, and what restoration achieves."""
    plan, out = details["plan"], console()
    pairs = list(zip(plan["shifts"], plan["heads"], strict=True))
    kinds = ", ".join(f"{pairs.count(pair)} × shift {pair[0]} ({pair[1]} heads)" for pair in dict.fromkeys(pairs))
    law = plan["law"]
    out.print(f"plan ({plan['objective']}): {kinds}; {plan['heads_in_all']} heads in all")
    out.print(f"law for linear chains: layers × heads = {law['layers_times_heads']} ≥ {law['least']}, the longest lag")
    if "digital" in details:
        digital = details["digital"]
        outcome = "exact" if digital["exact"] else "exact up to the sum of the table"
        out.print(f"restored to the letters {', '.join(digital['letters'])} after every shift: {outcome}, at {digital['positions']}")


def show_comparison(result: dict[str, Any]) -> None:
    """prop-4.5: the same lags on two layers and on M + 1 layers."""
    rows = []
    for name, row in result["comparison"].items():
        width = "-" if row["inner_width"] is None else row["inner_width"]
        errors = [f"{row['attention']:.4g}", f"{row['root_sum_square']:.4g}"]
        rows.append([name, row["layers"], row["heads"], row["heads"] * (row["layers"] - 1), width, *errors])
    title = f"longest lags {', '.join(map(str, result['lags']))}, {result['rpe']}, {result['tuning']} constants"
    columns = ["", "layers", "heads", "in all", "width", "Σ e_k ≤", "√Σe_k² ≤"]
    out = console()
    out.print(table(title, columns, rows))
    out.print("heads: per layer; width: Barron neurons of the widest inner FFN")


def show_kernel_limits(result: dict[str, Any]) -> None:
    """Both sides of a memory kernel."""
    out, section = console(), result["section"]
    title = f"y_t = Σ ρ(s) x_(t-s), ρ(s) = {result['kernel']}, {result['rpe']}, {result['heads']} heads"
    ratio = "-" if result["ratio"] is None else f"{result['ratio']:.4g}"
    row = [result["kernel_norm"], result["lower"], result["upper"]]
    out.print(table(title, ["no heads", "any heads ≥", "fitted bank ≤", "ratio"], [[*map(number, row), ratio]]))
    out.print(f"lower: {result['method']}, {section['rows']} rows, {section['tokens']} past tokens")
    out.print("decays: " + ", ".join(f"{p:.5g}" for p in result["decays"]), soft_wrap=True)
    if "note" in result:
        out.print(f"note: {result['note']}")


def show_bound(result: dict[str, Any]) -> None:
    """A bound as lines of text; formulas are for --json and `theorems --latex`."""
    out = console()
    for key, value in result.items():
        if key not in ("latex", "expression", "memories"):
            out.print(f"{key:18} {value}", soft_wrap=True)
    if "memories" in result:
        rows = [
            [m["name"], _lags(m), f"{m['barron_norm']:.4g}", f"{m['barron_norm_log']:.4g}", m["width_theorem"]] for m in result["memories"]
        ]
        out.print(table("", ["memory", "lags", "‖g‖", "‖log g‖", "width asked"], rows))


def show_jl_table(result: dict[str, Any]) -> None:
    """A table of [JL]: trained, constructed and certified rows, ratios, and what they say."""
    out = console()
    rows = []
    for row in result["rows"]:
        spread = "-" if row["seeds"] == 1 else f"{row['mse_spread']:.2g}"
        published = "-" if row["published"] is None else f"{row['published']:.3g}"
        rows.append([f"{row['model']}: {row['target']}", f"{row['mse_mean']:.3g}", spread, row["seeds"], published])
    built, floor = result["constructed"], result["floor"]
    altered = next(row["target"] for row in result["ratios"])
    unit = "unit" if built["units"] == 1 else "units"
    rows.append([f"constructed RNN, {built['units']} {unit}, {built['dtype']}: {built['target']}", f"{built['mse']:.3g}", "-", "-", "-"])
    rows.append([f"every causal model: {altered}", f"≥ {decimal_below(floor['mse'])}", "-", "-", "-"])
    rows.append([f"every linear RNN, any biases: {altered}", f"≥ {decimal_below(floor['mse_linear'])}", "-", "-", "-"])
    rows.append([f"every linear RNN, no biases: {altered}", f"≥ {decimal_below(floor['mse_linear_without_biases'])}", "-", "-", "-"])
    protocol = result["protocol"]
    title = f"{result['experiment']}: mean square errors (sampled), {protocol['steps']} steps; floors (≥) are certified"
    out.print(table(title, ["", "error", "spread", "seeds", "published"], rows))
    ratios = []
    for r in result["ratios"]:
        ratios.append([f"{r['model']}: {r['target']}", f"{r['ratio']:.3g}", f"{r['published']:.3g}", "yes" if r["agrees"] else "no"])
    out.print(table("altered / original", ["", "ratio", "published", "agrees"], ratios))
    for finding in result["findings"]:
        out.print(f"• {finding}", soft_wrap=True)
    out.print(f"{result['seconds']:.0f} s")


def show_dp_free(result: dict[str, Any]) -> None:
    """prop-4.2 in four inputs and two numbers."""
    out, dp = console(), result["dp"]
    rows = [[str(tuple(p["tokens"])), p["wanted"], p["weight"]] for p in result["certificate"]]
    title = "y_t = x_{t-g(x_t)}, g(x) = x + 1: four inputs that no affine functional tells apart"
    out.print(table(title, ["(x_t, x_{t-1}, x_{t-2})", "wanted", "weight"], rows))
    exact, paper = result["lower_bound_exact"], result["paper_exact"]
    out.print(f"every dp-free attention layer with a linear read-out, any number of heads: error ≥ {exact} (paper: {paper})")
    out.print(
        f"one dot-product layer with {dp['heads']} heads: {number(dp['witness'])} ≤ {number(dp['certified'])} ≤ {number(dp['bound'])}"
    )


def show_lag_limit(result: dict[str, Any]) -> None:
    """A lag between its two sides."""
    out = console()
    what = "heads of both types" if result["rpe"] == "mixed" else f"{result['rpe']} heads"
    out.print(
        f"lag {result['lag']}, one dp-free layer: at least {result['min_heads']} {what} for any error below 1 (lag law, {result['proof']})"
    )
    if result.get("least_error"):
        out.print(f"{result['heads']} heads are too few: whatever their decays and the read-out, the worst-case error is at least 1")
    pair = result["budgeted_error"]
    if pair is None:
        out.print("give --dtype or --bits for the least error that an arithmetic allows")
        return
    rows = [["certified lower bound", number(pair["lower"])], ["certified upper bound", number(pair["upper"])]]
    if "pi_law" in result:
        rows.append([f"π-law, closed form (λ = {result['pi_law_frequency']:g})", number(result["pi_law"])])
        rows.append(["by hand: min(1, u·C(2T, T))", number(result["hand_bound"])])
    out.print(f"least error plus price of rounding, {result['arithmetic']} (u = {result['unit']}), any decays:")
    out.print(table("", ["E_u", "value"], rows))
    used = f"{result['heads_used']} heads" if result["heads_used"] else "the zero network"
    out.print(f"upper bound by {used}, weights adding up to {number(result['weights_l1'])}")
    if "certificate" in result:
        out.print(f"certificate written to {result['certificate']}", soft_wrap=True)


def show_horizon(result: dict[str, Any]) -> None:
    """Horizons, one row per arithmetic."""
    out = console()
    columns = ["arithmetic", "horizon", "E_u there <", "E_u beyond ≥", "⌊ln(1/u)/π⌋"]
    rows = [
        [r["arithmetic"], r["horizon"], "-" if r["upper"] is None else number(r["upper"]), number(r["next_lower"]), r["rule"]]
        for r in result["rows"]
    ]
    out.print(f"the largest lag with E_u < 1/2, {result['rpe']} heads, any number of them:")
    out.print(table("", columns, rows))
    if "rule_holds" in result:
        verdict = "holds" if result["rule_holds"] else f"fails at {', '.join(map(str, result['rule_exceptions']))} bits"
        out.print(f"the rule ⌊ln(1/u)/π⌋ {verdict}")
    if result.get("figure"):
        out.print(f"figure written to {result['figure']}", soft_wrap=True)


def show_slopes(result: dict[str, Any]) -> None:
    """The audit of given slopes."""
    out = console()
    rows = [[r["lag"], number(r["lower"]), number(r["upper"]), "yes" if r["resolved"] else "no"] for r in result["rows"]]
    out.print(f"{result['heads']} {result['rpe']} heads with slopes {result['slopes']}, any weights, stored in {result['dtype']}:")
    out.print(table("", ["lag", "best error ≥", "best error ≤", "below 1/2"], rows))
    resolved = ", ".join(map(str, result["resolved"])) or "none"
    out.print(f"lags that position alone can resolve: {resolved}")
    for key in ("certificate", "figure"):
        if result.get(key):
            out.print(f"{key} written to {result[key]}", soft_wrap=True)


def show_checked(result: dict[str, Any]) -> None:
    """A certificate file, re-checked."""
    out = console()
    if "entries" in result:
        rows = [[e["lag"], number(e["lower"]), "-" if e["upper"] is None else number(e["upper"])] for e in result["entries"]]
        out.print(f"{result['claim']}, {result['rpe']}: from the exact numbers in the file")
        out.print(table("", ["lag", "lower", "upper"], rows))
    else:
        out.print(f"{result['kernel']}, {result['rpe']}, {result['heads']} heads: {number(result['lower'])} ≤ {number(result['upper'])}")
    for fault in result["faults"]:
        out.print(fault, soft_wrap=True)
    colour = "red" if result["faults"] else "green"
    out.print(f"[{colour}]{result['verdict']}[/] in {result['seconds']:.2f} s, without a solver")


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def demo_figure(
    path: Path, kernel: Sequence[float], lag: int, curves: dict[str, list[tuple[int, float]]], growth: dict[str, list[tuple[int, int]]]
) -> bool:
    """Three panels: the kernel, error against heads, heads against lag. False if matplotlib is not installed."""
    plt = _pyplot()
    if plt is None:
        return False
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4), constrained_layout=True)
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
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


def _pyplot() -> Any:
    """matplotlib's pyplot without a screen, or None if it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def horizon_figure(path: Path, rpe: str, curves: dict[str, list[dict[str, Any]]], bits: dict[str, int]) -> bool:
    """E_u against the lag, one curve per arithmetic, with the π-law's line through each. False if matplotlib is not installed."""
    plt = _pyplot()
    if plt is None:
        return False
    figure, axes = plt.subplots(figsize=(7, 4.5), constrained_layout=True)
    for colour, (name, rows) in enumerate(curves.items()):
        lags = [row["lag"] for row in rows]
        axes.fill_between(lags, [row["lower"] for row in rows], [row["upper"] for row in rows], color=f"C{colour}", alpha=0.3)
        axes.semilogy(lags, [row["upper"] for row in rows], "o-", color=f"C{colour}", markersize=3, label=f"{name} (2^-{bits[name]})")
        line = [2.0 ** -bits[name] * math.exp(math.pi * lag) for lag in lags]
        axes.semilogy(lags, [min(1.0, v) for v in line], ":", color=f"C{colour}", linewidth=1)
    axes.axhline(0.5, color="grey", linewidth=0.6)
    axes.set(title=f"least error plus price of rounding, {rpe} heads (dotted: u·e^(πT))", xlabel="lag T", ylabel="E_u(T)")
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


def slopes_figure(path: Path, slopes: str, dtype: str, rows: Sequence[dict[str, Any]]) -> bool:
    """Best error against lag for given slopes. False if matplotlib is not installed."""
    plt = _pyplot()
    if plt is None:
        return False
    figure, axes = plt.subplots(figsize=(7, 4), constrained_layout=True)
    lags = [row["lag"] for row in rows]
    axes.fill_between(lags, [row["lower"] for row in rows], [row["upper"] for row in rows], alpha=0.3)
    axes.semilogy(lags, [row["upper"] for row in rows], "o-", markersize=3)
    axes.axhline(0.5, color="grey", linewidth=0.6)
    axes.set(title=f"slopes {slopes}, {dtype}: least error for every lag", xlabel="lag T", ylabel="error plus price of rounding")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True
