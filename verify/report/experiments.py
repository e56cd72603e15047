"""Published experiments, repeated: rows beside published or certified numbers, and what they say."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from analyzer.numbers.exact import decimal_above, decimal_below
from verify.report.console import console, show_findings, show_places, show_seconds, table
from verify.report.words import mean_and_std


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
    for made in result["transformers"]:
        if made["mse"] is not None:
            rows.append(
                [f"constructed Transformer, m_h = {made['rank']}, {made['dtype']}: {made['target']}", f"{made['mse']:.3g}", "-", "-", "-"]
            )
    rows.append([f"every causal model: {altered}", f"≥ {decimal_below(floor['mse'])}", "-", "-", "-"])
    rows.append([f"every linear RNN, any biases: {altered}", f"≥ {decimal_below(floor['mse_linear'])}", "-", "-", "-"])
    rows.append([f"every linear RNN, no biases: {altered}", f"≥ {decimal_below(floor['mse_linear_without_biases'])}", "-", "-", "-"])
    protocol = result["protocol"]
    title = f"{result['experiment']}: mean square errors (sampled), {protocol['steps']} steps; floors (≥) are certified"
    out.print(table(title, ["", "error", "spread", "seeds", "published"], rows))
    chains = [
        [made["target"], made["dtype"], decimal_below(made["witness"], 3), decimal_above(made["certified"], 3)]
        for made in result["transformers"]
    ]
    title = "constructed Transformer, one head: worst error over all sequences"
    out.print(table(title, ["target", "arithmetic", "witness", "certified ≤"], chains))
    ratios = []
    for r in result["ratios"]:
        ratios.append([f"{r['model']}: {r['target']}", f"{r['ratio']:.3g}", f"{r['published']:.3g}", "yes" if r["agrees"] else "no"])
    out.print(table("altered / original", ["", "ratio", "published", "agrees"], ratios))
    show_findings(result)
    show_places(result)
    show_seconds(result)


def show_fig_5(result: dict[str, Any]) -> None:
    """Errors for m_h = 1, 2, 4, 8, 15, 16 and the slopes of all of them."""
    out = console()
    for rank in sorted({row["rank"] for row in result["rows"]}):
        rows = [
            [f"{r['alpha']:g}", r["m_h"], f"{r['l1']:.3g}", f"{r['mean_square']:.3g}", f"{r['l1_without_self']:.3g}", f"{r['tail']:.3g}"]
            for r in result["rows"]
            if r["rank"] == rank and r["m_h"] in (1, 2, 4, 8, 15, 16)
        ]
        title = f"σ_k = k^-α, rank {rank}, {result['sequences']} random sequences (sampled)"
        out.print(table(title, ["α", "m_h", "E|H - Ĥ|", "E|H - Ĥ|²", "E|.| without s = t", "tail in L²"], rows))
    rows = []
    for entry in result["slopes"]:
        claims = "  ".join(f"{name} {value:+.2f}{' ✗' if entry['refuted'][name] else ''}" for name, value in entry["claims"].items())
        rows.append([f"{entry['alpha']:g}", entry["rank"], entry["norm"], f"{entry['slope']:+.2f} ± {entry['standard_error']:.2f}", claims])
    out.print(
        table("slope of log error on log m_h (✗: the error falls more slowly than claimed)", ["α", "rank", "norm", "slope", "claims"], rows)
    )
    for finding in result["findings"]:
        out.print(finding, soft_wrap=True)
    show_places(result)


def show_points(result: dict[str, Any]) -> None:
    """Certified networks of every m_h beside trained ones."""
    out = console()
    rows = [
        [
            row["target"],
            row["m_h"],
            f"{row['singular_value']:.3g}",
            decimal_below(row["witness"], 3),
            decimal_above(row["certified"], 3),
            decimal_above(row["hard"], 3),
            row["verdict"],
            f"{row['constructed']:.2g}",
            f"{row['trained']:.2g}",
        ]
        for row in result["rows"]
    ]
    title = f"{result['title']}: worst cases over all sequences; sampled: largest errors on {result['sequences']} random sequences"
    heads = ["target", "m_h", "σ_m", "witness ≤", "certified", "hard task ≤", "verdict", "constructed (sampled)", "trained (sampled)"]
    out.print(table(title, heads, rows))
    out.print(
        f"trained: networks of the paper's form, {result['steps']} steps, {result['seeds']} per row; no number of the paper is repeated"
    )
    show_findings(result)
    show_places(result)
    show_seconds(result)


def show_orders(result: dict[str, Any]) -> None:
    """Errors of classification for patches in reading order and in others."""
    out, data = console(), result["data"]
    rows = [
        [row["model"], row["order"], mean_and_std(row["training_error"], 100), mean_and_std(row["held_out_error"], 100)]
        for row in result["rows"]
    ]
    title = f"{data['images']} images of {data['patches']} patches, {data['held_out']} held out"
    title += f"; {result['steps']} steps, {result['seeds']} seeds"
    out.print(table(title, ["model", "order", "training error, %", "held-out error, %"], rows))
    out.print("sampled: mean ± standard deviation over seeds, one order per seed; no number of the print is repeated", soft_wrap=True)
    show_findings(result)
    show_places(result)
    show_seconds(result)


def show_digits(result: dict[str, Any]) -> None:
    """Training error and spectra against the dimension of the head."""
    out, network, data = console(), result["network"], result["data"]
    rows = []
    for row in result["rows"]:
        spectrum = row.get("centred", {"effective_rank": None, "decay_exponent": None})
        errors = [mean_and_std(row["cross_entropy"]), mean_and_std(row["error_rate"], 100)]
        rows.append([row["m_h"], *errors, mean_and_std(spectrum["effective_rank"]), mean_and_std(spectrum["decay_exponent"])])
    title = (
        f"{data['images']} images of {data['patches']} patches; one layer, one head, D = {network['model_dim']}, {network['width']} neurons"
    )
    out.print(f"{title}; {result['steps']} steps, {result['seeds']} seeds", soft_wrap=True)
    out.print(table("", ["m_h", "cross-entropy", "error, %", "effective rank", "decay α"], rows))
    out.print("sampled: training errors, spectra of centred logits on all patches; mean ± standard deviation over seeds", soft_wrap=True)
    show_findings(result)
    show_places(result)


def show_we(result: dict[str, Any]) -> None:
    """A regression experiment of [WE]: rows beside the published numbers, what the print claims, and what the numbers say."""
    out, protocol = console(), result["protocol"]
    rows = []
    for row in result["rows"]:
        spread = "-" if row["seeds"] == 1 else f"{row['mse_least']:.2g} … {row['mse_most']:.2g}"
        published = "-" if row["published"] is None else f"{row['published']:.3g}"
        floor = "-" if row.get("mean_square_floor") is None else decimal_below(row["mean_square_floor"], 3)
        rows.append([row["name"], row["how"], f"{row['mse']:.3g}", floor, spread, f"{row['mse'] / row['variance']:.2g}", published])
    title = f"{result['experiment']}: mean square errors, median of {protocol['seeds']} seeds, {protocol['steps']} steps"
    out.print(table(title, ["", "how", "error", "floor", "from … to", "of variance", "published"], rows))
    claims = [[c["claim"], c["measure"], f"{c['value']:.3g}", "yes" if c["agrees"] else "no"] for c in result["claims"]]
    out.print(table("what the print says", ["", "measure", "ours", "agrees"], claims))
    show_findings(result)
    out.print("exact: v‖κ − ρ‖² of the trained weights; sampled: held-out sequences; fitted: least squares, not trained")
    out.print("floor: certified, no slopes and weights of so many heads do better (`theorems mean-square`)")
    show_places(result)
    show_seconds(result)


def show_language(result: dict[str, Any]) -> None:
    """Held-out losses of language models of several sizes, and the gains."""
    out, text = console(), result["text"]
    rows = []
    for row in result["rows"]:
        spread = "-" if row["loss"]["std"] is None else f"{row['loss']['std']:.2g}"
        sizes = [row["attention"], row["layers"], row["heads"], row["width"], row["parameters"]]
        rows.append([row["name"], *sizes, f"{row['loss']['mean']:.4f}", spread])
    title = f"{text['characters']} characters of {text['alphabet']} kinds, {text['held_out']} held out; windows of {result['length']}"
    out.print(f"{title}; {result['steps']} steps of {result['batch']} windows, {result['seeds']} seeds", soft_wrap=True)
    out.print(table("", ["", "attention", "layers", "heads", "width", "weights", "loss", "spread"], rows))
    out.print(f"single characters by their frequency: {text['entropy']:.4f}")
    out.print(result["note"], soft_wrap=True)
    show_findings(result)
    show_places(result)
    show_seconds(result)


def show_lags(result: dict[str, Any]) -> None:
    """Trained layers beside E_u, one row per type and lag."""
    out = console()
    rows = []
    for row in result["rows"]:
        few, enough, built, after = (row[name] for name in ("few_heads", "enough_heads", "best_bank", "trained_on"))
        error, bound, weights = (_brief(enough, key) for key in ("error", "bound", "weights_l1"))
        cells = [_brief(found, "error") for found in (few, built, after)]
        squares = _square_and_floor(row.get("few_heads_square"))
        rows.append([f"{row['rpe']} {row['lag']}", _enclosure_of(row), cells[0], *squares, error, bound, weights, *cells[1:]])
    columns = ["lag", "E_u", "H < T", "mean square", "floor", "H ≥ T", "≥", "Σ|a|", "best bank", "goes on"]
    title = f"y_t = x_(t-T), one dp-free layer, float32, {result['steps']} steps, smallest errors over heads, losses, rates and seeds"
    out.print(title, soft_wrap=True)
    out.print(table("", columns, rows))
    out.print("E_u: both sides within 2 %, or shown; ≥: lower bound for that very layer, from its weights (H < T: 1, by the lag law);")
    out.print("mean square, floor: the smallest ‖κ − 1_T‖² of a layer with H < T, and what no decays and weights can beat;")
    out.print("best bank: constructed for float32 with 2T + 2 heads; goes on: training started there;", soft_wrap=True)
    out.print("an error of 1 with Σ|a| near 0 is the zero network, which training on the worst case itself finds", soft_wrap=True)
    depth = depth_rows(result["runs"])
    out.print(table("several layers, and a learnt bias per distance (smallest error)", ["lag", *depth], _columns(depth, result["lags"])))
    out.print(result["note"], soft_wrap=True)
    show_findings(result)
    show_places(result)
    show_seconds(result)


def _brief(found: dict[str, Any] | None, key: str) -> str:
    return "-" if found is None or found[key] is None else f"{found[key]:.2g}"


def _square_and_floor(found: dict[str, Any] | None) -> list[str]:
    """A mean square error rounded up, its floor rounded down."""
    if found is None:
        return ["-", "-"]
    floor = found["mean_square_floor"]
    return [decimal_above(found["mean_square"], 3), "-" if floor is None else decimal_below(floor, 3)]


CLOSE = 1.02
"""Two sides of E_u this close are shown as one number, the upper one."""


def _enclosure_of(row: dict[str, Any]) -> str:
    low, high = f"{row['lower']:.2g}", f"{row['upper']:.2g}"
    return high if row["upper"] <= CLOSE * row["lower"] else f"{low} … {high}"


def depth_rows(runs: Sequence[dict[str, Any]]) -> dict[str, dict[int, float]]:
    """Smallest errors by lag for every kind of network that is not one layer of lin or log heads."""
    found: dict[str, dict[int, float]] = {}
    for run in runs:
        if run["error"] is None or (run["layers"] == 1 and run["rpe"] != "table"):
            continue
        name = "table" if run["rpe"] == "table" else f"{run['layers']} {run['kind'].split()[0]}"
        known = found.setdefault(name, {})
        known[run["lag"]] = min(known.get(run["lag"], math.inf), run["error"])
    return found


def _columns(found: dict[str, dict[int, float]], most: int) -> list[list[Any]]:
    return [[lag, *(f"{known[lag]:.3g}" if lag in known else "-" for known in found.values())] for lag in range(1, most + 1)]


SHOWN_ROWS, SHOWN_REASONS = 12, 5
"""Rows and reasons of a sweep that fit on a screen; the table has all."""
TELLING = (
    "witness", "certified", "bound", "verdict", "attention", "lower", "upper", "min_heads", "budgeted_error.lower", "budgeted_error.upper",
    "horizon", "training.loss",
)  # fmt: skip
"""Results of jobs that people look for first."""


def show_sweep(result: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    """How many jobs were done, the first rows, and why others were not done."""
    out = console()
    kept = f" ({result['from_journal']} of them before)" if result["from_journal"] else ""
    counts = ", ".join(f"{result[status]} {status}" for status in ("done", "refused", "failed"))
    out.print(f"{result['jobs']} jobs of {result['call']}{kept}: {counts}; took {result['seconds']:.1f} s")
    columns = [name for name in rows[0] if name == "status" or name in TELLING or list(rows[0]).index(name) < list(rows[0]).index("status")]
    shown = [[_swept_cell(row[name]) for name in columns] for row in rows[:SHOWN_ROWS]]
    out.print(table("" if len(rows) <= SHOWN_ROWS else f"the first {SHOWN_ROWS} rows", columns, shown))
    reasons = Counter(f"{row['status']}: {row['reason']}" for row in rows if row["reason"] is not None)
    for reason, count in reasons.most_common(SHOWN_REASONS):
        out.print(f"{count} {reason}", soft_wrap=True, markup=False)
    if result["violated"]:
        out.print(f"{result['violated']} jobs found a claim violated")
    if "out" in result:
        out.print(f"written to {result['out']}; {result['journal']} has the time of every job", soft_wrap=True, markup=False)
    show_places(result)


def _swept_cell(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else escape(str(value)[:40])
