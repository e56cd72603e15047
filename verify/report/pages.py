"""Lines of answers that are mostly text: lists and pages of theorems, and what was written where."""

import shutil
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from verify.chain.certificate import Certificate
from verify.report.words import number


def listed(theorems: Iterable[dict[str, str]]) -> tuple[str, ...]:
    """One theorem a line."""
    return tuple(f"{theorem['id']:15} {theorem['title']}" for theorem in theorems)


def wrapped(text: str) -> tuple[str, ...]:
    """Paragraphs refilled to the terminal; lines that are indented are formulas and stay."""
    width = max(60, min(shutil.get_terminal_size().columns, 140))
    lines: list[str] = []
    for paragraph in text.split("\n\n"):
        rows = paragraph.splitlines()
        if any(row.startswith("    ") for row in rows):
            lines += [piece for row in rows for piece in (textwrap.wrap(row, width, subsequent_indent="        ") or [""])]
        else:
            lines += textwrap.wrap(" ".join(rows), width)
        lines.append("")
    return tuple(lines[:-1])


def drawn(seeds: dict[str, Any]) -> str:
    """How many Barron samples were drawn, and from which seed."""
    draws = seeds["draws"]
    text = ", ".join(f"{name} {count}" for name, count in draws.items() if count) if isinstance(draws, dict) else str(draws)
    return f"Barron samples drawn (seed {seeds['barron']}): {text}"


def trained(summary: dict[str, Any], loss: str) -> str:
    """A training run in one line; `loss` is what was minimised."""
    return (
        f"trained from {summary['start']} weights, {summary['steps']} steps in {summary['seconds']:.1f} s: {loss} "
        f"{summary['first_loss']:.3g} at first, {summary['loss']:.3g} at the end (sampled)"
    )


def chains(certificates: dict[str, Certificate]) -> tuple[str, ...]:
    """Certificates side by side, one a line."""
    rows: list[Sequence[str]] = [("", "witness", "certified", "bound", "verdict")]
    for name, found in certificates.items():
        rows.append((name, number(found.witness), number(found.certified), number(found.bound), found.verdict.value))
    return tuple("  ".join(f"{cell:12}" for cell in row).rstrip() for row in rows)


def evaluated(shape: tuple[int, ...], seconds: float, destination: object) -> str:
    """Outputs that were written, in one line."""
    return f"{shape} outputs in {seconds:.3f} s written to {destination}"


def page_written(kind: str, size: int, place: object) -> str:
    """A page that was written, in one line."""
    return f"{kind}: a page of {size / 1000:.0f} kB written to {place}; open it in a browser"
