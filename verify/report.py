"""Reports for people: rich tables, the demo's figure. The only room that formats."""

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

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
    out.print(
        f"{certificate.theorem}: {sizes['layers']} layer, {sizes['heads']} heads (lag law: {certificate.least_heads}), "
        f"width {sizes['width']}, model dimension {sizes['model_dim']}, {sizes['parameters']} parameters, {certificate.dtype}"
    )
    rows = [[part.name, "", number(part.certified), number(part.bound)] for part in certificate.parts]
    if certificate.rounding:
        rows.append(["rounding of evaluation", "", number(certificate.rounding), number(certificate.rounding)])
    rows.append(["total", number(certificate.witness), number(certificate.certified), number(certificate.bound)])
    out.print(table("", ["part", "witness ≤", "certified ≤", "bound"], rows))
    out.print(f"witness: {certificate.witness_input}")
    out.print(f"[{_COLOURS[certificate.verdict]}]{certificate.verdict.value}[/]: {certificate.advice}")


def write_csv(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)


def demo_figure(
    path: Path, kernel: Sequence[float], lag: int, curves: dict[str, list[tuple[int, float]]], growth: dict[str, list[tuple[int, int]]]
) -> bool:
    """Three panels: the kernel, error against heads, heads against lag. False if matplotlib is not installed."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

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
