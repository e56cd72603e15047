"""The page of a comparison: the columns as a table, errors as bars, kernels over each other."""

import math
from html import escape
from typing import Any

from verify.report.comparisons import comparison_rows, remarks
from verify.report.web.chains import bars
from verify.report.web.layout import page, paragraph, section, table
from verify.report.words import number

SCRIPTS = ("charts.js", "stems.js")
HUES = (210, 30, 140, 330, 270, 60, 180, 0)
SHOWN = 33
"""Distances of kernels that are drawn."""


def comparison_page(result: dict[str, Any]) -> str:
    """From the JSON of a comparison."""
    networks, names = result["networks"], [str(n["name"]) for n in result["networks"]]
    title = f"{len(names)} networks side by side: {', '.join(names)}"
    drawn = f"{result['sequences']} random sequences of {result['length']} tokens ({result['tokens']}, seed {result['seed']})"
    said = f"{drawn}; sampled unless it says certified."
    rows = [[str(cell) for cell in row] for row in comparison_rows(result)]
    notes = "".join(paragraph(note, "soft") for network in networks for note in remarks(network, result["target_kernel"] is not None))
    found = [
        section("Columns", table(["", *names], rows, "networks side by side"), notes, id="columns"),
        section("Errors", _errors(networks), id="errors"),
    ]
    charts = _charts(result)
    if charts:
        legend = "".join(
            f'<li><span style="color: hsl({HUES[k % len(HUES)]} 65% 50%)" aria-hidden="true">●</span> {escape(name)}</li>'
            for k, name in enumerate(names)
        )
        figures = "".join(f'<figure id="{chart["id"]}"><figcaption>{escape(chart["label"])}</figcaption></figure>' for chart in charts)
        said_kernel = "Effective kernels: the mean of ∂ŷ at t by x at t − s over the sequences (sampled). Rings: the target's."
        found.append(section("Kernels", paragraph(said_kernel, "soft"), f"<ul>{legend}</ul>", figures, id="kernels-together"))
    return page(title, paragraph(said), found, {"charts": charts}, SCRIPTS)


def _errors(networks: list[dict[str, Any]]) -> str:
    rows = []
    for network in networks:
        name, certificate = str(network["name"])[:12], network["certificate"]
        rms = network["sampled"]["overall"]["rms"]
        rows += [(f"{name}: rms", _size(rms), number(rms))]
        if certificate["witness"] is not None:
            rows.append((f"{name}: ≥", _size(certificate["witness"]), number(certificate["witness"])))
        if certificate["certified"] is not None:
            rows.append((f"{name}: ≤", _size(certificate["certified"]), number(certificate["certified"])))
    return bars(rows, "rms: sampled; ≥ witness and ≤ certified of the worst case")


def _size(value: float | None) -> float:
    return math.inf if value is None else float(value)


def _charts(result: dict[str, Any]) -> list[dict[str, Any]]:
    """One chart per input coordinate."""
    target = result["target_kernel"]
    if target is None:
        return []
    found = []
    for c, wanted in enumerate(target):
        series: list[dict[str, Any]] = [{"values": wanted[:SHOWN], "kind": "ring", "label": "target"}]
        for k, network in enumerate(result["networks"]):
            if network["kernel"] is not None:
                values = [v if v is None else float(v) for v in network["kernel"][c][:SHOWN]]
                series.append({"values": values, "kind": "shifted", "hue": HUES[k % len(HUES)], "label": str(network["name"])})
        found.append(
            {"id": f"kernel-{c + 1}", "series": series, "label": f"effective kernels on input coordinate {c + 1}", "axis": "distance s"}
        )
    return found
