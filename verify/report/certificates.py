"""Certificates: the chain and its parts, what a theorem has to say beyond them, and what to do next."""

from collections.abc import Callable
from typing import Any

from analyzer.errors import OptionValue
from analyzer.numbers.exact import decimal_above, decimal_below
from analyzer.targets.tokens import TOKEN_LAWS
from verify.chain.certificate import Certificate, Margin, Verdict, finite, plain
from verify.report.console import console, show_places, table
from verify.report.words import lags_of, number

_COLOURS = {Verdict.HOLDS: "green", Verdict.VACUOUS: "yellow", Verdict.MEASURED: "yellow", Verdict.VIOLATED: "red"}


def show_certificate(certificate: Certificate, write: Callable[[str, OptionValue], str] = plain) -> None:
    """The chain and its parts, and what to do next, `write` spelling options."""
    out = console()
    sizes = certificate.sizes
    law = "" if certificate.least_heads is None else f" (lag law: {certificate.least_heads})"
    layers = "1 layer" if sizes["layers"] == 1 else f"{sizes['layers']} layers"
    several = f", {sizes['outputs']} outputs" if "outputs" in sizes else ""
    out.print(
        f"{certificate.theorem}: {layers}, {sizes['heads']} heads{law}, "
        f"width {sizes['width']}, model dimension {sizes['model_dim']}, {sizes['parameters']} parameters, {certificate.dtype}{several}"
    )
    promised = (lambda _: "-") if "arithmetic" in certificate.details else number  # no theorem speaks of trained weights
    rows = [[_part_name(part.name), "", number(part.certified), promised(part.bound)] for part in certificate.parts]
    if certificate.rounding:
        rows.append(["rounding of evaluation", "", number(certificate.rounding), promised(certificate.rounding)])
    rows.append(["total", number(certificate.witness), number(finite(certificate.certified)), promised(certificate.bound)])
    out.print(table("", ["part", "witness ≤", "certified ≤", "bound"], rows))
    if certificate.norm == "mean-square":
        _show_mean_square(certificate.details)
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
    if certificate.margin is not None:
        _show_margin(certificate.margin)
    said = certificate.verdict.value
    if certificate.verdict is Verdict.HOLDS and certificate.bound_vacuous:
        said += ", bound vacuous"
    out.print(f"[{_COLOURS[certificate.verdict]}]{said}[/]: {certificate.text(write)}")
    show_places(certificate.details)


_DECIDED = {"right": "green", "undecided": "yellow", "refuted": "red"}
MAX_VALUES = 12
"""Values of a target that are listed."""


def _show_margin(margin: Margin) -> None:
    """How decisions are made, both sides of the least margin, and whether all are right."""
    shown = [f"{value:.4g}" for value in margin.values[:MAX_VALUES]] + ["…"] * (len(margin.values) > MAX_VALUES)
    gone = "-" if margin.sequences is None else margin.sequences
    pairs = ((margin.certified, decimal_below), (margin.witness, decimal_above))
    ends = ["-" if finite(value) is None else write(value, 6) for value, write in pairs]
    row = [margin.rule, ", ".join(shown), *ends, gone]
    console().print(table("", ["decided by", "values", "certified ≤", "margin ≤ witness", "sequences"], [row]))
    console().print(f"decisions [{_DECIDED[margin.verdict]}]{margin.verdict}[/]: {margin.advice}", soft_wrap=True)


def _show_mean_square(details: dict[str, Any]) -> None:
    """What was squared and averaged, what was only sampled, and what is not covered."""
    out = console()
    out.print(f"all numbers are mean squares E|error|² over {TOKEN_LAWS[details['tokens']].text}", soft_wrap=True)
    if details.get("floor"):
        out.print(
            f"no decays and weights of so many heads have less than {decimal_below(details['floor'], 6)} (`theorems mean-square`)",
            soft_wrap=True,
        )
    if "sampled" in details:
        sampled = details["sampled"]
        drawn = f"{sampled['sequences']} sequences of {sampled['length']} tokens, seed {sampled['seed']}"
        out.print(f"sampled: {number(sampled['mean'])} ± {sampled['standard_error']:.1g} (standard error), {drawn}", soft_wrap=True)
    if "not_covered" in details:
        out.print(details["not_covered"], soft_wrap=True)


def _part_name(name: str) -> str:
    """Parts that are distances to a lag, before rounding, say so."""
    return f"{name} (off by)" if name.startswith("lag ") else name


def _show_memories(details: dict[str, Any]) -> None:
    """Lags, margins, Barron norms and widths per memory, and what a score costs."""
    rows = []
    for m in details["memories"]:
        lags = lags_of(m)
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
