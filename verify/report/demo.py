"""The acts of the tour, shown one after the other while it runs, and its numbers as files for spreadsheets."""

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from analyzer.targets.adaptive import AdaptiveMemory
from analyzer.targets.fixed import FixedMemory
from verify.chain.certificate import Certificate
from verify.report.certificates import show_certificate
from verify.report.claims import show_counterexample
from verify.report.console import console, show_lines, table
from verify.report.limits import show_rnn_limits
from verify.report.words import number


def show_heads(rows: Sequence[dict[str, Any]], error: float) -> None:
    """How many heads a lag costs."""
    cells = [[r["rpe"], r["lag"], r["paper"], r["tuned"], r["minimal"], r["law"]] for r in rows]
    title = f"Heads to remember one token, worst-case error {error}"
    console().print(table(title, ["RPE", "lag", "paper's constants", "tuned", "minimal bank", "lag law"], cells))


def show_network(target: FixedMemory, error: float, certificate: Certificate) -> None:
    """A network for fixed memories."""
    lags = ", ".join(map(str, target.lags))
    console().print(f"\nA network built from the proof: y = {target.formula}, lags {lags}, error {error}")
    show_certificate(certificate)


_SLOTS = {
    "t": ("t", "d"),
    "token": ("x_t", "+d"),
    "lag_m1": ("lag slot m1", "g"),
    "m1": ("m1 = x_{t-lag}", "+.4f"),
    "lag_m2": ("lag slot m2", "g"),
    "output": ("network", "+.4f"),
    "wanted": ("wanted", "+g"),
}
"""Columns of the residual stream: what they are called and how their numbers are written."""


def show_mechanism(
    target: AdaptiveMemory, error: float, sequence: Sequence[int], rows: Sequence[dict[str, Any]], certificate: Certificate
) -> None:
    """Lags that depend on the tokens, in the residual stream."""
    out = console()
    out.print(f"\nLags that depend on the tokens: y = {target.formula}, read off one after the other, error {error}")
    out.print("\n".join(target.tree_lines()))
    cells = [[format(row[name], form) for name, (_, form) in _SLOTS.items()] for row in rows]
    title = f"The residual stream on {' '.join(f'{x:+d}' for x in sequence)}"
    out.print(table(title, [column for column, _ in _SLOTS.values()], cells))
    show_certificate(certificate)


def show_depth(rows: Sequence[dict[str, Any]], lag: int, error: float, certificate: Certificate) -> None:
    """How far one layer sees, and a chain that sees further."""
    out = console()
    out.print(
        "\nHow far one dp-free layer sees: the largest lag with error plus price of rounding below 1/2, any decays, both sides certified"
    )
    cells = [[r["rpe"], r["arithmetic"], r["horizon"], number(r["upper"]), number(r["next_lower"])] for r in rows]
    out.print(table("", ["heads", "arithmetic", "horizon", "error there <", "error beyond ≥"], cells))
    out.print(f"\nDepth is the cure: lag {lag} in float32, error {error}")
    show_certificate(certificate)


def show_coupling(coupling: str, rows: Sequence[dict[str, Any]], certificate: Certificate, recurrent: dict[str, Any]) -> None:
    """A softmax head instead of positions, and recurrent networks."""
    out = console()
    out.print(f"\nOne softmax head instead of positions: y_t = Σ softmax[ρ(x_t, x_s)] x_s, ρ = {coupling}; error of the logits:")
    cells = [[r["rank"], *(number(r[key]) for key in ("limit", "pod", "centred"))] for r in rows]
    out.print(table("", ["m_h", "any head ≥", "singular functions of ρ ≤", "of ρ modulo functions of u ≤"], cells))
    show_certificate(certificate)
    out.print(f"\nAnd recurrent networks, Σ e^(-s) x_(t-s) on {recurrent['length']} tokens:")
    show_rnn_limits(recurrent)


def show_claims(claims: Sequence[dict[str, Any]]) -> None:
    """Claims about tuned banks, true ones and false ones."""
    out = console()
    out.print("\nClaims of your own, at every point of a grid (e: the error of a tuned bank at lag T with H heads):")
    for claim in claims:
        counts = ", ".join(f"{name} {count}" for name, count in claim["counts"].items() if count)
        show_lines([f"{claim['claim']}: {claim['verdict']}, {claim['basis']} ({counts} of {claim['points']} points)"])
        if claim["counterexample"] is not None:
            show_counterexample(claim["counterexample"])


def show_written(out: Path, bundles: Sequence[str], figure: str | None) -> None:
    """What the tour left behind."""
    names = f"bundles {', '.join(bundles[:-1])} and {bundles[-1]}"
    console().print(f"\n{names} in {out}, figure {figure}, numbers in CSV files beside it", soft_wrap=True)


def show_nothing(result: dict[str, Any]) -> None:
    """The tour as a whole: it was shown while it ran."""


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Rows as a file for spreadsheets."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
