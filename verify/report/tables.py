"""Reports for people: rich tables, the demo's figure. The only room that formats."""

import csv
import io
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import groupby, zip_longest
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from analyzer.errors import OptionValue
from analyzer.numbers.exact import decimal_above, decimal_below
from analyzer.statements.bounds import Bound, Choices
from verify.chain.certificate import Certificate, Verdict, finite, plain

_COLOURS = {Verdict.HOLDS: "green", Verdict.VACUOUS: "yellow", Verdict.MEASURED: "yellow", Verdict.VIOLATED: "red"}


_PAGE: ContextVar[Console | None] = ContextVar("page", default=None)
"""Where reports go instead of the terminal: a page that is being made."""


def console() -> Console:
    return _PAGE.get() or Console(highlight=False)


def show(result: Any) -> None:
    """Any result: certificates and bounds have tables of their own, the others know theirs."""
    match result:
        case Certificate():
            show_certificate(result)
        case Bound() if "comparison" in result.data:
            show_comparison(result.as_dict())
        case Bound():
            show_bound(result)
        case Choices():
            show_choices(result)
        case _:
            result.show()


def as_html(print_it: Callable[[], None]) -> str:
    """What is printed, as HTML for a notebook."""
    page = Console(record=True, file=io.StringIO(), width=120, highlight=False)
    token = _PAGE.set(page)
    try:
        print_it()
    finally:
        _PAGE.reset(token)
    return page.export_html(inline_styles=True, code_format='<pre style="font-family:monospace;line-height:1.2">{code}</pre>')


def show_lines(lines: Sequence[str]) -> None:
    """Text as it is."""
    for line in lines:
        console().print(line, soft_wrap=True, markup=False)


def show_nothing(result: dict[str, Any]) -> None:
    """What was shown while it was made."""


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


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"


def show_arms(result: dict[str, Any]) -> None:
    """The comparison of all arms, and what became of the mechanism."""
    show_compared(result)
    out = console()
    arms = result["arms"]
    rows = [["steps", *(row["steps"] for row in arms)]]
    rows += [[name, *(f"{row[key]:.3g}" for row in arms)] for name, key in _LOSSES]
    rows.append(["mean square error", *("-" if row["mean_square"] is None else f"{row['mean_square']:.3g}" for row in arms)])
    rows.append(["weights moved", *(number(row["moved"]) for row in arms)])
    rows += [[name, *(number(row["mechanism"][key]) for row in arms)] for name, key in _FROM]
    rows.append(["mechanism", *(row["mechanism"]["kind"] for row in arms)])
    out.print(table("training (sampled; distances relative to the target's kernel)", ["", *(row["arm"] for row in arms)], rows))
    out.print(result["sentence"], soft_wrap=True)
    out.print(f"written to {result['out']}", soft_wrap=True)


_LOSSES = (("first loss", "first_loss"), ("highest loss", "highest_loss"), ("last loss (with slots, if taught)", "loss"))
_FROM = (("kernel off the construction's", "from_constructed"), ("kernel off the target's", "from_target"))


def show_certificate(certificate: Certificate, write: Callable[[str, OptionValue], str] = plain) -> None:
    """The chain and its parts, and what to do next, `write` spelling options."""
    out = console()
    sizes = certificate.sizes
    law = "" if certificate.least_heads is None else f" (lag law: {certificate.least_heads})"
    layers = "1 layer" if sizes["layers"] == 1 else f"{sizes['layers']} layers"
    out.print(
        f"{certificate.theorem}: {layers}, {sizes['heads']} heads{law}, "
        f"width {sizes['width']}, model dimension {sizes['model_dim']}, {sizes['parameters']} parameters, {certificate.dtype}"
    )
    promised = (lambda _: "-") if "arithmetic" in certificate.details else number  # no theorem speaks of trained weights
    rows = [[_part_name(part.name), "", number(part.certified), promised(part.bound)] for part in certificate.parts]
    if certificate.rounding:
        rows.append(["rounding of evaluation", "", number(certificate.rounding), promised(certificate.rounding)])
    rows.append(["total", number(certificate.witness), number(finite(certificate.certified)), promised(certificate.bound)])
    out.print(table("", ["part", "witness ≤", "certified ≤", "bound"], rows))
    if "plan" in certificate.details:
        _show_plan(certificate.details)
    if "pod" in certificate.details:
        _show_coupling(certificate.details)
    if "memories" in certificate.details:
        _show_memories(certificate.details)
        out.print("parts stand alone: the total is the worst over all situations, often less than their sum")
    if certificate.conditions:
        failed = [c for c in certificate.conditions if not c.holds]
        outcome = "all hold" if not failed else ", ".join(f"{c.name} fails ({number(c.certified)})" for c in failed)
        slack = max(c.certified / c.bound for c in certificate.conditions)
        out.print(f"conditions that the paper leaves unstated (e ≤ 1, noise at lags < 1/2): {outcome}; {slack:.2%} of the room is used")
    out.print(f"witness: {certificate.witness_input}", soft_wrap=True)
    said = certificate.verdict.value
    if certificate.verdict is Verdict.HOLDS and certificate.bound_vacuous:
        said += ", bound vacuous"
    out.print(f"[{_COLOURS[certificate.verdict]}]{said}[/]: {certificate.text(write)}")


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


def _show_coupling(details: dict[str, Any]) -> None:
    """What the head could do at best, and means over random tokens."""
    out, sampled = console(), details["sampled"]
    limit = f"no head with m_h = {details['rank']} has a coupling error below {number(details['limit'])}"
    out.print(f"witness/certified {details['ratio']:.2f}; {limit}")
    bar = sampled["l1_standard_error"]
    rows = [
        ["worst", number(sampled["worst"]), ""],
        ["E|H - Ĥ|", f"{number(sampled['l1'])} ± {number(None if bar is None else float(f'{bar:.1g}'))}", number(sampled["l1_bound"])],
        ["E|H - Ĥ|²", number(sampled["mean_square"]), number(sampled["mean_square_bound"])],
    ]
    title = f"sampled: {sampled['sequences']} random sequences of {details['length']} tokens"
    out.print(table(title, ["", "sampled", "bound (repaired theorem)"], rows))


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


def show_bound(bound: Bound) -> None:
    """error ≤ …, what it is made of, and the sizes and parameters behind it; formulas are for JSON and the theorem's page."""
    out, data = console(), bound.data
    sizes = f" with {bound.heads} heads" if bound.heads is not None else ""
    choice = f", {data['tuning']} constants" if "tuning" in data else ""
    out.print(f"{bound.theorem}{sizes}{choice}: {bound.claim} ≤ {number(bound.total)}", soft_wrap=True)
    if len(bound.parts) > 1:
        out.print(table("", ["part", "error ≤"], [[name, number(value)] for name, value in bound.parts.items()]))
    if isinstance(data.get("rate"), int) and bound.heads:
        constant = bound.total * float(bound.heads) ** data["rate"]
        out.print(f"rate n = {data['rate']}: C(n)/H^n with C({data['rate']}) = {constant:.4g} for these lags")
    hidden = ("latex", "expression", "memories", "attention", "heads", "tuning", "rate", "errors")
    for key, value in data.items():
        if key not in hidden:
            out.print(f"{key.replace('_', ' '):18} {_plain(value)}", soft_wrap=True)
    if "memories" in data:
        rows = [
            [m["name"], _lags(m), f"{m['barron_norm']:.4g}", f"{m['barron_norm_log']:.4g}", m["width_theorem"]] for m in data["memories"]
        ]
        out.print(table("", ["memory", "lags", "‖g‖", "‖log g‖", "width asked"], rows))


def _plain(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) if value else "-"
    return ", ".join(f"{key} {_plain(part)}" for key, part in value.items()) if isinstance(value, dict) else str(value)


def show_choices(found: Choices) -> None:
    """One bound under every choice of constants."""
    rows = [[row["bank"], row["heads"], number(row["error"]), "-" if row["rate"] is None else row["rate"]] for row in found.rows]
    asked = "at these heads" if found.error is None else f"for error {found.error:g}"
    console().print(table(f"{found.theorem} {asked}", ["constants", "heads", "error ≤", "rate n"], rows))
    console().print("minimal: built and certified for any error; lag law: no layer has fewer heads and an error below 1")


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
    out.print(f"took {result['seconds']:.0f} s")


def show_we(result: dict[str, Any]) -> None:
    """A regression experiment of [WE]: rows beside the published numbers, what the print claims, and what the numbers say."""
    out, protocol = console(), result["protocol"]
    rows = []
    for row in result["rows"]:
        spread = "-" if row["seeds"] == 1 else f"{row['mse_least']:.2g} … {row['mse_most']:.2g}"
        published = "-" if row["published"] is None else f"{row['published']:.3g}"
        rows.append([row["name"], row["how"], f"{row['mse']:.3g}", spread, f"{row['mse'] / row['variance']:.2g}", published])
    title = f"{result['experiment']}: mean square errors, median of {protocol['seeds']} seeds, {protocol['steps']} steps"
    out.print(table(title, ["", "how", "error", "from … to", "of variance", "published"], rows))
    claims = [[c["claim"], c["measure"], f"{c['value']:.3g}", "yes" if c["agrees"] else "no"] for c in result["claims"]]
    out.print(table("what the print says", ["", "measure", "ours", "agrees"], claims))
    for finding in result["findings"]:
        out.print(f"• {finding}", soft_wrap=True)
    out.print("exact: v‖κ − ρ‖² of the trained weights; sampled: held-out sequences; fitted: least squares, not trained")
    out.print(f"took {result['seconds']:.0f} s")


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
        out.print("give a dtype or bits for the least error that an arithmetic allows")
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


def _decay(found: dict[str, Any]) -> str:
    return "-" if found["decay_exponent"] is None else f"{found['decay_exponent']:.3g} ± {found['decay_error']:.2g}"


def show_spectrum(result: dict[str, Any]) -> None:
    """Spectra of the logits of every head, as they are and as softmax sees them."""
    out = console()
    rows = []
    for h in result["heads"]:
        plain, centred = h, h["centred"]
        for kind, found in (("plain", plain), ("centred", centred)):
            first = found["singular_values"][0] if found["singular_values"] else 0.0
            place = [f"{h['layer']}.{h['head']}", h["dk"]] if found is plain else ["", ""]
            counts = [found["numerical_rank"], f"{found['effective_rank']:.3f}", found["values_for_99_percent"]]
            rows.append([*place, kind, f"{first:.4g}", *counts, _decay(found), _tail(found, h["dk"])])
    columns = ["head", "dk", "logits", "σ₁", "rank", "effective", "99 %", "α", "tail"]
    out.print(f"{result['source']}: logits on {result['tokens']} tokens", soft_wrap=True)
    out.print(table("", columns, rows))
    out.print("effective rank: exp of the entropy of σ²/Σσ²; 99 %: how many values hold so much of Σσ²; α: σ_k ~ k^-α;", soft_wrap=True)
    out.print("tail: share of Σσ² beyond dk/2; centred: each row's mean over keys removed, which softmax does not see", soft_wrap=True)
    out.print(result["note"], soft_wrap=True)
    if result.get("figure"):
        out.print(f"figure written to {result['figure']}", soft_wrap=True)


def show_imported(result: dict[str, Any]) -> None:
    """What was found in foreign weights, layer by layer."""
    out, sizes = console(), result["sizes"]
    rows = []
    for index, layer in enumerate(result["structure"]):
        counts = {kind: layer["rpe"].count(kind) for kind in dict.fromkeys(layer["rpe"])}
        rows.append([index, layer["kind"], layer["window"], ", ".join(f"{count} {kind}" for kind, count in counts.items())])
    out.print(table("", ["layer", "attention", "window", "heads"], rows))
    out.print(f"{sizes['parameters']} weights in {result['dtype']}, model dimension {sizes['model_dim']}, at most {sizes['width']} neurons")
    if result["target"] is None:
        out.print("no target: the network runs and shows its spectra; compare and verify need a [target] in the TOML file", soft_wrap=True)
    out.print(f"written to {result['out']}", soft_wrap=True)


def _tail(found: dict[str, Any], dk: int) -> str:
    """Share of the energy that half of the head's dimensions would miss."""
    shares, half = found["tail_shares"], dk // 2
    return f"{shares[half - 1]:.2g}" if 1 <= half <= len(shares) else "-"


def _spread(value: dict[str, float] | None, scale: float = 1.0) -> str:
    return "-" if value is None else f"{scale * value['mean']:.3g} ± {scale * value['std']:.2g}"


def show_digits(result: dict[str, Any]) -> None:
    """Training error and spectra against the dimension of the head."""
    out, network, data = console(), result["network"], result["data"]
    rows = []
    for row in result["rows"]:
        spectrum = row.get("centred", {"effective_rank": None, "decay_exponent": None})
        errors = [_spread(row["cross_entropy"]), _spread(row["error_rate"], 100)]
        rows.append([row["m_h"], *errors, _spread(spectrum["effective_rank"]), _spread(spectrum["decay_exponent"])])
    title = (
        f"{data['images']} images of {data['patches']} patches; one layer, one head, D = {network['model_dim']}, {network['width']} neurons"
    )
    out.print(f"{title}; {result['steps']} steps, {result['seeds']} seeds", soft_wrap=True)
    out.print(table("", ["m_h", "cross-entropy", "error, %", "effective rank", "decay α"], rows))
    out.print("sampled: training errors, spectra of centred logits on all patches; mean ± standard deviation over seeds", soft_wrap=True)
    for finding in result["findings"]:
        out.print(f"• {finding}", soft_wrap=True)
    if result.get("figure"):
        out.print(f"figure written to {result['figure']}", soft_wrap=True)


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


MAX_CURVES = 12
"""Heads that a figure of spectra draws: more curves are not told apart."""


def spectrum_figure(path: Path, result: dict[str, Any]) -> bool:
    """Singular values against their rank, plain and centred, of the first heads. False if matplotlib is not installed."""
    plt = _pyplot()
    if plt is None:
        return False
    figure, panels = plt.subplots(1, 2, figsize=(11, 4.2), sharey=True, constrained_layout=True)
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
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


def digits_figure(path: Path, result: dict[str, Any]) -> bool:
    """Training error against m_h with its fit and the published slope, and the spectra. False if matplotlib is not installed."""
    plt = _pyplot()
    if plt is None:
        return False
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.5), constrained_layout=True)
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
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


def show_coupling_limits(result: dict[str, Any]) -> None:
    """Certified singular values of a coupling, and the best error of every rank."""
    out = console()
    out.print(
        f"coupling {result['coupling']}: singular values by {result['method']}, error bar {number(result['error_bar'])}", soft_wrap=True
    )
    pairs = zip_longest(result["singular_values"][:8], result["centred_singular_values"][:8])
    rows = [[k, *(_enclosure(p) if p else "-" for p in pair)] for k, pair in enumerate(pairs, start=1)]
    out.print(table("", ["k", "σ_k of ρ", "σ_k of ρ modulo functions of u"], rows))
    best = [
        [r["rank"], _enclosure([r["lower"], r["upper"]]), decimal_below(r["log_odds"], 6), decimal_above(r["plain_upper"], 6)]
        for r in result["rows"]
    ]
    out.print("no query and key maps with m_h coordinates come closer to ρ, in L² and modulo functions of u, than")
    out.print(table("", ["m_h", "best error", "log-odds of two tokens off by ≥", "best without the modulo ≤"], best))
    ranks = ["infinite or undecided" if result[key] is None else str(result[key]) for key in ("rank", "centred_rank")]
    out.print(f"rank {ranks[0]}; modulo functions of u {ranks[1]}")
    if result["decay"] is not None:
        decay = result["decay"]
        out.print(f"fitted decay σ_k ~ k^-{decay['alpha']:.3f} (± {decay['standard_error']:.3f}) over {decay['values']} values")
    if "complexities" in result:
        found = result["complexities"]
        c2 = "not bounded (a kink)" if found["c2"] is None else f"≤ {number(found['c2'])}"
        out.print(f"complexities at α = {found['alpha']:.4g}: C_0 ≤ {number(found['c0'])}, C_1 ≤ {number(found['c1'])}, C_2 (splines) {c2}")
    if result.get("figure"):
        out.print(f"figure written to {result['figure']}", soft_wrap=True)


def _enclosure(pair: Sequence[float]) -> str:
    """A number whose certified ends agree to six digits, or both ends."""
    low, high = (number(v) for v in pair)
    return low if low == high else f"{low} … {high}"


def coupling_figure(path: Path, result: dict[str, Any]) -> bool:
    """Singular values with their bars, and the best error against the rank. False if matplotlib is not installed."""
    plt = _pyplot()
    if plt is None:
        return False
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), constrained_layout=True)
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
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


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
    if result.get("figure"):
        out.print(f"figure written to {result['figure']}", soft_wrap=True)


def fig_5_figure(path: Path, result: dict[str, Any]) -> bool:
    """Sampled errors against m_h, one panel per rank. False if matplotlib is not installed."""
    plt = _pyplot()
    if plt is None:
        return False
    ranks = sorted({row["rank"] for row in result["rows"]})
    figure, panels = plt.subplots(1, len(ranks), figsize=(6 * len(ranks), 4), constrained_layout=True, squeeze=False)
    for panel, rank in zip(panels[0], ranks, strict=True):
        for colour, alpha in enumerate(sorted({row["alpha"] for row in result["rows"]})):
            rows = [row for row in result["rows"] if (row["rank"], row["alpha"]) == (rank, alpha)]
            for key, style in (("l1", "o-"), ("l1_without_self", "x:"), ("tail", "--")):
                points = [(row["m_h"], row[key]) for row in rows if row[key] > 0]
                panel.loglog(*zip(*points, strict=True), style, color=f"C{colour}", markersize=3, label=f"{key}, α = {alpha:g}")
        panel.set(title=f"rank {rank}", xlabel="m_h", ylabel="sampled error, tail in L²")
        panel.legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


def show_rnn_limits(result: dict[str, Any]) -> None:
    """C_RNN, floors for causal models, filters, and the RNN that is exact."""
    out, found, floor, made = console(), result["complexity"], result["floor"], result["constructed"]
    if found["c1"] is None:
        out.print(f"{result['kernel']}: C_RNN is infinite, a power law is not in the RNN space")
    else:
        out.print(f"{result['kernel']}: C_1 = {number(found['c1'])}, C_2 = {_enclosure(found['c2'])}, C_RNN = {_enclosure(found['c_rnn'])}")
    rows = [
        [name, decimal_below(floor[key], 6)]
        for name, key in (
            ("any causal model, worst case", "supremum"),
            ("any causal model, mean square", "mean_square"),
            ("linear RNNs with biases, mean square", "linear"),
            ("linear RNNs without, mean square", "unbiased"),
        )
    ]
    title = f"first and last {result['swapped']} of {result['length']} tokens exchanged"
    out.print(table(title, ["certified floor", "error ≥"], rows))
    if "mixing" in result:
        mixed = result["mixing"]
        ranks = f"rank of the softmax logits at least {mixed['rank_before']} before and {mixed['rank_after']} after"
        out.print(f"filtered: C_2 ≤ {decimal_above(mixed['c2'], 6)} (Prop 6.3 allows {number(mixed['allowed'])}); {ranks}")
    if "refused" in made:
        out.print(f"no RNN built: {made['refused']}", soft_wrap=True)
    else:
        chain = f"{number(made['witness'])} ≤ {number(made['certified'])} ≤ {number(made['bound'])}"
        out.print(f"RNN built from the exponentials, {made['dtype']}, tokens in order: {chain} ({made['verdict']})")


SHOWN_DECAYS = 6
"""Decays of a layer that a table lists; more are given by their ends."""
VISIBLE = 0.005
"""A figure ends where all kernels are below this share of the largest value: the width of a line."""
SHOWN_LAYERS = 4
"""Layers that are listed one by one; of deeper networks the last ones are shown."""


def show_compared(result: dict[str, Any]) -> None:
    """One column per network: sizes, errors, decays, kernels, probes."""
    out, networks = console(), result["networks"]
    title = f"{result['sequences']} random sequences of {result['length']} tokens ({result['tokens']}, seed {result['seed']})"
    rows = [
        ["origin", *(n["origin"] for n in networks)],
        ["theorem", *(n["theorem"] or "-" for n in networks)],
        ["attention", *(_attention(n["structure"]) for n in networks)],
        *([name, *(n["sizes"][key] for n in networks)] for key, name in _SIZES.items()),
        ["dtype", *(n["dtype"] for n in networks)],
        ["rms error (sampled)", *(_mean(n["sampled"]["rms"]) for n in networks)],
        ["max error (sampled)", *(_mean(n["sampled"]["max"]) for n in networks)],
        ["max of all (sampled)", *(number(n["sampled"]["overall"]["max"]) for n in networks)],
        ["worst case ≥ (witness)", *(number(n["certificate"]["witness"]) for n in networks)],
        ["worst case ≤ (certified)", *(number(n["certificate"]["certified"]) for n in networks)],
        ["certificate", *(n["certificate"]["by"] or "-" for n in networks)],
    ]
    layers = _shown_layers(networks)
    for key, name, shown in _DECAYS:
        for layer in layers:
            cells = [shown(n["decays"][layer][key]) if layer < len(n["decays"]) else "-" for n in networks]
            if any(cell != "-" for cell in cells):
                rows.append([name if layers == [0] else f"{name}, layer {layer + 1}", *cells])
    if any(n.get("decays_off") for n in networks):
        rows.append(["decays off by", *(_off(n.get("decays_off")) for n in networks)])
    if result["target_kernel"] is not None:
        away = {d["b"]: d["l1"] for d in result["kernel_distances"] if d["a"] == "target"}
        rows.append(["kernel off by (sampled)", *(number(away.get(n["name"])) for n in networks)])
    probed = dict.fromkeys((p["layer"], p["memory"]) for n in networks for p in n["probes"] if p["layer"] in layers)
    for layer, memory in sorted(probed, key=lambda place: place[0]):
        values = [next((p["r2"] for p in n["probes"] if (p["layer"], p["memory"]) == (layer, memory)), None) for n in networks]
        rows.append([f"R² {memory}, layer {layer + 1} (sampled)", *("-" if v is None else f"{v:.5f}" for v in values)])
    out.print(table(title, ["", *(n["name"] for n in networks)], rows))
    out.print(
        f"sampled: positions from {result['first']} on, mean ± standard deviation over sequences; max of all: over all of them",
        soft_wrap=True,
    )
    if any(n.get("decays_off") for n in networks):
        out.print("decays off by: mean |log p/p'| over the best assignment to the heads of the first network", soft_wrap=True)
    if result["target_kernel"] is not None:
        out.print(
            "kernel: mean of ∂ŷ_t/∂x_(t-s), off by Σ|.| from the target's; R²: memory from the stream by a linear map", soft_wrap=True
        )
    out.print(result["counting_rule"], soft_wrap=True)
    if layers[0] or len(layers) < max(n["sizes"]["layers"] for n in networks):
        out.print("deep networks: only the last layers are listed here, all of them are in the JSON", soft_wrap=True)
    for n in networks:
        notes = {"certificate": n["certificate"]["reason"], "kernel": n["kernel_reason"], "probes": n["probes_reason"]}
        for what, note in notes.items():
            if note is not None and note not in n["faults"] and (what == "certificate" or result["target_kernel"] is not None):
                out.print(f"{n['name']}, {what}: {note}", soft_wrap=True)
        if n["certificate"]["rounding"] is None and n["certificate"]["by"] is not None:
            out.print(f"{n['name']}: certified for {n['certificate']['arithmetic']}, {n['certificate']['over']}", soft_wrap=True)
        if n["sampled"]["not_finite"]:
            out.print(f"{n['name']}: {n['sampled']['not_finite']} outputs are not finite numbers", soft_wrap=True)
        for fault in n["faults"]:
            out.print(f"[red]{n['name']}: {fault}[/]", soft_wrap=True)
    if result.get("figure"):
        out.print(f"figure written to {result['figure']}", soft_wrap=True)


def _shown_layers(networks: Sequence[dict[str, Any]]) -> list[int]:
    depths = {n["sizes"]["layers"] for n in networks}
    return list(range(max(depths))) if max(depths) <= SHOWN_LAYERS else sorted(depth - 1 for depth in depths)


_SIZES = {"heads": "heads", "width": "width", "model_dim": "model dimension", "parameters": "parameters"}


def _mean(value: dict[str, float | None]) -> str:
    return "-" if value["mean"] is None or value["std"] is None else f"{value['mean']:.4g} ± {value['std']:.2g}"


def _attention(structure: Sequence[dict[str, Any]]) -> str:
    """Equal neighbours counted: '2 × dp, 4 lin, finite'."""
    names = []
    for layer in structure:
        heads = " + ".join(f"{count} {kind}" for kind, count in layer["rpe"].items())
        silent = layer["off"] == sum(layer["rpe"].values())
        names.append("no heads" if silent else f"{layer['kind']}, {heads}, {layer['window']}")
    return "\n".join(f"{len(list(group))} × {name}" for name, group in groupby(names))


def _listed(values: Sequence[float]) -> str:
    if len(values) > SHOWN_DECAYS:
        return f"{values[0]:.3g} … {values[-1]:.3g} ({len(values)})"
    return ", ".join(f"{v:.3g}" for v in values) or "-"


def _tables(tables: Sequence[dict[str, Any]]) -> str:
    return ", ".join(f"{t['distance']} ({t['share']:.0%})" for t in tables[:SHOWN_DECAYS]) or "-"


_DECAYS: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("half_lives", "half-lives", _listed),
    ("exponents", "exponents", _listed),
    ("tables", "heaviest distance", _tables),
)


def _off(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    rest = [f"{count} {which}" for count, which in zip(found["unmatched"], ("of the first", "of these"), strict=True) if count]
    return f"{found['mean_log_ratio']:.3g}" + (f" ({' and '.join(rest)} unmatched)" if rest else "")


def compare_figure(path: Path, result: dict[str, Any]) -> bool:
    """Four panels: kernels, decays, errors, probes. False if matplotlib is not installed."""
    plt = _pyplot()
    if plt is None:
        return False
    figure, ((kernels, decays), (errors, probes)) = plt.subplots(2, 2, figsize=(13, 9), constrained_layout=True)
    networks = result["networks"]
    names, places = [n["name"] for n in networks], range(len(networks))
    if result["target_kernel"] is not None:
        kernels.plot(result["target_kernel"][0], "k-", linewidth=3, alpha=0.25, label="target")
    for colour, n in enumerate(networks):
        if n["kernel"] is not None:
            kernels.plot(n["kernel"][0], "o-", markersize=3, linewidth=1, color=f"C{colour}", label=n["name"])
    curves = [curve for curve in (result["target_kernel"], *(n["kernel"] for n in networks)) if curve is not None]
    if curves:
        largest = max(abs(v) for curve in curves for v in curve[0])
        seen = max((s for curve in curves for s, v in enumerate(curve[0]) if abs(v) > VISIBLE * largest), default=0)
        kernels.set_xlim(-0.5, max(seen, 4) + 1.5)
    kernels.set(title="effective kernel (sampled)", xlabel="s (tokens back)", ylabel="mean ∂y_t/∂x_(t-s), first coordinate")
    for key, marker, label in (("half_lives", "o", "half-life"), ("exponents", "x", "exponent")):
        points = [(place, v) for place, n in zip(places, networks, strict=True) for layer in n["decays"] for v in layer[key]]
        if points:
            decays.plot(*zip(*points, strict=True), marker, color="C0" if marker == "o" else "C1", label=f"{label} ({_HEADS[key]} heads)")
    heaviest = [(place, t["distance"]) for place, n in zip(places, networks, strict=True) for layer in n["decays"] for t in layer["tables"]]
    if heaviest:
        decays.plot(*zip(*heaviest, strict=True), "+", color="C2", label="heaviest distance (table heads)")
        decays.set_yscale("symlog", linthresh=0.1)
    else:
        decays.set_yscale("log")
    decays.set(title="decays")
    for key, marker, value in (
        ("root mean square (sampled)", "o", lambda n: n["sampled"]["rms"]["mean"]),
        ("largest (sampled)", "s", lambda n: n["sampled"]["overall"]["max"]),
        ("worst case ≥ (witness)", "^", lambda n: n["certificate"]["witness"]),
        ("worst case ≤ (certified)", "v", lambda n: n["certificate"]["certified"]),
    ):
        found = [(place, value(n)) for place, n in zip(places, networks, strict=True) if value(n)]
        if found:
            errors.semilogy(*zip(*found, strict=True), marker, label=key)
    errors.set(title="errors")
    layers = _shown_layers(networks)
    slots = sorted({(p["layer"], p["memory"]) for n in networks for p in n["probes"] if p["layer"] in layers})
    width = 0.8 / len(networks)
    for colour, n in enumerate(networks):
        held = {(p["layer"], p["memory"]): p["r2"] for p in n["probes"] if p["r2"] is not None}
        bars = [(k + (colour + 0.5) * width - 0.4, max(held[slot], 0)) for k, slot in enumerate(slots) if slot in held]
        if bars:
            probes.bar(*zip(*bars, strict=True), width=width, color=f"C{colour}", label=n["name"])
    probes.set_xticks(range(len(slots)), [f"{memory}\nlayer {layer + 1}" for layer, memory in slots], fontsize=7)
    probes.set(title="linear probes of the stream (sampled)", ylabel="R²")
    for panel in (decays, errors):
        panel.set_xticks(places, names, fontsize=8)
        panel.set_xlim(-0.5, len(networks) - 0.5)
    for panel in (kernels, decays, errors, probes):
        if panel.get_legend_handles_labels()[0]:
            panel.legend(fontsize=8)
        else:
            panel.text(0.5, 0.5, "none", transform=panel.transAxes, ha="center")
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


_HEADS = {"half_lives": "lin", "exponents": "log"}


def show_lags(result: dict[str, Any]) -> None:
    """Trained layers beside E_u, one row per type and lag."""
    out = console()
    rows = []
    for row in result["rows"]:
        few, enough, built, after = (row[name] for name in ("few_heads", "enough_heads", "best_bank", "trained_on"))
        error, bound, weights = (_brief(enough, key) for key in ("error", "bound", "weights_l1"))
        cells = [_brief(found, "error") for found in (few, built, after)]
        rows.append([f"{row['rpe']} {row['lag']}", _enclosure_of(row), cells[0], error, bound, weights, *cells[1:]])
    columns = ["lag", "E_u", "H < T", "H ≥ T", "≥", "Σ|a|", "best bank", "goes on"]
    title = f"y_t = x_(t-T), one dp-free layer, float32, {result['steps']} steps, smallest errors over heads, losses, rates and seeds"
    out.print(title, soft_wrap=True)
    out.print(table("", columns, rows))
    out.print("E_u: both sides within 2 %, or shown; ≥: lower bound for that very layer, from its weights (H < T: 1, by the lag law);")
    out.print("best bank: constructed for float32 with 2T + 2 heads; goes on: training started there;", soft_wrap=True)
    out.print("an error of 1 with Σ|a| near 0 is the zero network, which training on the worst case itself finds", soft_wrap=True)
    depth = _depth_rows(result["runs"])
    out.print(table("several layers, and a learnt bias per distance (smallest error)", ["lag", *depth], _columns(depth, result["lags"])))
    out.print(result["note"], soft_wrap=True)
    for finding in result["findings"]:
        out.print(f"• {finding}", soft_wrap=True)
    if result.get("figure"):
        out.print(f"figure written to {result['figure']}", soft_wrap=True)
    out.print(f"took {result['seconds']:.0f} s")


def _brief(found: dict[str, Any] | None, key: str) -> str:
    return "-" if found is None or found[key] is None else f"{found[key]:.2g}"


CLOSE = 1.02
"""Two sides of E_u this close are shown as one number, the upper one."""


def _enclosure_of(row: dict[str, Any]) -> str:
    low, high = f"{row['lower']:.2g}", f"{row['upper']:.2g}"
    return high if row["upper"] <= CLOSE * row["lower"] else f"{low} … {high}"


def _depth_rows(runs: Sequence[dict[str, Any]]) -> dict[str, dict[int, float]]:
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


def lags_figure(path: Path, result: dict[str, Any]) -> bool:
    """Errors against the lag: E_u, trained layers, the best bank, deeper networks, tables. False if matplotlib is not installed."""
    plt = _pyplot()
    if plt is None:
        return False
    figure, panels = plt.subplots(1, 2, figsize=(12, 4.5), sharey=True, constrained_layout=True)
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
    for name, known in _depth_rows(result["runs"]).items():
        panels[0].semilogy(list(known), list(known.values()), "x--", linewidth=0.6, markersize=4, label=name)
    panels[0].set_ylabel("worst-case error (relu: sampled)")
    panels[0].legend(fontsize=7)
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return True


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
    for finding in result["findings"]:
        out.print(f"• {finding}", soft_wrap=True)
    out.print(f"took {result['seconds']:.0f} s")
