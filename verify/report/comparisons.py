"""Networks of one target side by side, one column each."""

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any

from analyzer.numbers.exact import decimal_below
from verify.report.console import console, show_places, table
from verify.report.words import number

SHOWN_DECAYS = 6
"""Decays of a layer that a table lists; more are given by their ends."""


SHOWN_LAYERS = 4
"""Layers that are listed one by one; of deeper networks the last ones are shown."""


def show_compared(result: dict[str, Any]) -> None:
    """One column per network: sizes, errors, decays, kernels, probes."""
    out, networks = console(), result["networks"]
    title = f"{result['sequences']} random sequences of {result['length']} tokens ({result['tokens']}, seed {result['seed']})"
    out.print(table(title, ["", *(n["name"] for n in networks)], comparison_rows(result)))
    _show_legend(result)
    for n in networks:
        _show_remarks(n, result["target_kernel"] is not None)
    show_places(result)


def comparison_rows(result: dict[str, Any]) -> list[list[str]]:
    """What is compared, one row each: its name, then a cell per network."""
    networks = result["networks"]
    return _size_and_error_rows(networks) + _decay_rows(networks) + _kernel_and_probe_rows(result)


def _size_and_error_rows(networks: Sequence[dict[str, Any]]) -> list[list[str]]:
    return [
        ["origin", *(n["origin"] for n in networks)],
        ["theorem", *(n["theorem"] or "-" for n in networks)],
        ["attention", *(_attention(n["structure"]) for n in networks)],
        *([name, *(n["sizes"][key] for n in networks)] for key, name in _SIZES.items()),
        ["dtype", *(n["dtype"] for n in networks)],
        ["rms error (sampled)", *(_mean(n["sampled"]["rms"]) for n in networks)],
        *_floor_rows(networks),
        ["max error (sampled)", *(_mean(n["sampled"]["max"]) for n in networks)],
        ["max of all (sampled)", *(number(n["sampled"]["overall"]["max"]) for n in networks)],
        ["worst case ≥ (witness)", *(number(n["certificate"]["witness"]) for n in networks)],
        ["worst case ≤ (certified)", *(number(n["certificate"]["certified"]) for n in networks)],
        ["certificate", *(n["certificate"]["by"] or "-" for n in networks)],
    ]


def _floor_rows(networks: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The root of the mean-square floor, where one of the networks has a floor."""
    floors = [n.get("mean_square_floor") for n in networks]
    if all(floor is None for floor in floors):
        return []
    return [["rms error ≥ (floor)", *("-" if floor is None else decimal_below(math.sqrt(floor)) for floor in floors)]]


def _decay_rows(networks: Sequence[dict[str, Any]]) -> list[list[str]]:
    rows, layers = [], shown_layers(networks)
    for key, name, shown in _DECAYS:
        for layer in layers:
            cells = [shown(n["decays"][layer][key]) if layer < len(n["decays"]) else "-" for n in networks]
            if any(cell != "-" for cell in cells):
                rows.append([name if layers == [0] else f"{name}, layer {layer + 1}", *cells])
    if any(n.get("decays_off") for n in networks):
        rows.append(["decays off by", *(_off(n.get("decays_off")) for n in networks)])
    return rows


def _kernel_and_probe_rows(result: dict[str, Any]) -> list[list[str]]:
    rows, networks = [], result["networks"]
    layers = shown_layers(networks)
    if result["target_kernel"] is not None:
        away = {d["b"]: d["l1"] for d in result["kernel_distances"] if d["a"] == "target"}
        rows.append(["kernel off by (sampled)", *(number(away.get(n["name"])) for n in networks)])
    probed = dict.fromkeys((p["layer"], p["memory"]) for n in networks for p in n["probes"] if p["layer"] in layers)
    for layer, memory in sorted(probed, key=lambda place: place[0]):
        values = [next((p["r2"] for p in n["probes"] if (p["layer"], p["memory"]) == (layer, memory)), None) for n in networks]
        rows.append([f"R² {memory}, layer {layer + 1} (sampled)", *("-" if v is None else f"{v:.5f}" for v in values)])
    return rows


def _show_legend(result: dict[str, Any]) -> None:
    """What the rows mean."""
    out, networks = console(), result["networks"]
    layers = shown_layers(networks)
    out.print(
        f"sampled: positions from {result['first']} on, mean ± standard deviation over sequences; max of all: over all of them",
        soft_wrap=True,
    )
    if any(n.get("mean_square_floor") is not None for n in networks):
        out.print("floor: what no decays and weights of so many heads can beat in mean, linear read-outs (`theorems mean-square`)")
    if any(n.get("decays_off") for n in networks):
        out.print("decays off by: mean |log p/p'| over the best assignment to the heads of the first network", soft_wrap=True)
    if result["target_kernel"] is not None:
        out.print(
            "kernel: mean of ∂ŷ_t/∂x_(t-s), off by Σ|.| from the target's; R²: memory from the stream by a linear map", soft_wrap=True
        )
    out.print(result["counting_rule"], soft_wrap=True)
    if layers[0] or len(layers) < max(n["sizes"]["layers"] for n in networks):
        out.print("deep networks: only the last layers are listed here, all of them are in the JSON", soft_wrap=True)


def remarks(n: dict[str, Any], has_kernel: bool) -> list[str]:
    """What a network has no number for and why, what its certificate covers, and how many outputs are lost."""
    notes = {"certificate": n["certificate"]["reason"], "kernel": n["kernel_reason"], "probes": n["probes_reason"]}
    found = [
        f"{n['name']}, {what}: {note}"
        for what, note in notes.items()
        if note is not None and note not in n["faults"] and (what == "certificate" or has_kernel)
    ]
    if n["certificate"]["rounding"] is None and n["certificate"]["by"] is not None:
        found.append(f"{n['name']}: certified for {n['certificate']['arithmetic']}, {n['certificate']['over']}")
    if n["sampled"]["not_finite"]:
        found.append(f"{n['name']}: {n['sampled']['not_finite']} outputs are not finite numbers")
    return found


def _show_remarks(n: dict[str, Any], has_kernel: bool) -> None:
    """Remarks on a network, and what is wrong with it."""
    out = console()
    for remark in remarks(n, has_kernel):
        out.print(remark, soft_wrap=True)
    for fault in n["faults"]:
        out.print(f"[red]{n['name']}: {fault}[/]", soft_wrap=True)


def shown_layers(networks: Sequence[dict[str, Any]]) -> list[int]:
    """All layers of shallow networks, the last one of each of deep ones."""
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
