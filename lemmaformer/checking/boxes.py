"""`lf.check` on boxes: two formulas for all real sizes, once for every point of a grid of the other sizes."""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from flint import fmpq

from analyzer.errors import InputError
from analyzer.language.claims import ClaimVerdict, parse_claim
from analyzer.language.grids import Boxes, Over, end_at, points, read_boxes, read_over
from analyzer.numbers.exact import from_text, nearest, to_text
from lemmaformer.options import Check
from lemmaformer.results.base import Plain
from lemmaformer.results.claims import BoxCheck
from lemmaformer.sweeps.engine import Job, run_jobs

WORDS = {ClaimVerdict.HOLDS: "proved", ClaimVerdict.REFUTED: "refuted", ClaimVerdict.UNDECIDED: "undecided"}
TOGETHER = ("rpe", "workers")
"""Options that mean something on boxes."""


def check_box(claim: str, over: Over | None, box: Boxes, options: Check, idle: str | None) -> BoxCheck:
    """The claim on the box at every point of the grid; `idle` is something that was given in vain."""
    start = time.perf_counter()
    idle = idle or next((name for name in options.chosen() if name not in TOGETHER), None)
    if idle is not None:
        raise InputError(f"{idle} is given, but formulas on boxes do not depend on it")
    if options.rpe == "mixed":
        raise InputError("rpe is mixed; paper and tuned are formulas for lin and log")
    read, ends = parse_claim(claim), read_boxes(box)
    grid = points(read_over(over)) if over else [{}]
    used = read.sizes.union(("n", "T", "H") if read.quantities else (), *(side.sizes for pair in ends.values() for side in pair if side))
    for name in grid[0]:
        if name in ends:
            raise InputError(f"{name} has a box and values in the grid; give one of them")
        if name not in used:
            raise InputError(f"size {name} is given, but nothing in the claim depends on it")
    jobs = [_job(claim, sizes, ends, options) for sizes in grid]
    found = run_jobs(jobs, workers=options.workers, what="boxes")
    bad = next((row for row in found if row["status"] != "done"), None)
    if bad is not None:
        raise InputError(str(bad["reason"]))
    rows = [_row(sizes, job, row) for sizes, job, row in zip(grid, jobs, found, strict=True)]
    verdicts = [row["verdict"] for row in rows]
    verdict = next((word for word in ("refuted", "undecided") if word in verdicts), "proved")
    return BoxCheck({"claim": read.text, "verdict": verdict, "rows": rows, "seconds": time.perf_counter() - start})


def _job(claim: str, sizes: Mapping[str, fmpq], ends: Mapping[str, Any], options: Check) -> Job:
    box = {
        name: [to_text(end_at(name, low, sizes)), None if high is None else to_text(end_at(name, high, sizes))]
        for name, (low, high) in ends.items()
    }
    given = {name: to_text(value) for name, value in sizes.items()}
    return Job("check.box", {"claim": claim, "box": box, "sizes": given, "rpe": options.rpe})


def _row(sizes: Mapping[str, fmpq], job: Job, found: Mapping[str, Any]) -> Plain:
    shown = {name: int(value.p) if value.q == 1 else nearest(value) for name, value in sizes.items()}
    return {"sizes": shown, "box": job.parameters["box"], **{key: found[key] for key in KEYS}}


KEYS = ("verdict", "point", "sides", "undecided", "touching", "cells", "why")


def box_point(claim: str, box: Mapping[str, Sequence[str | None]], sizes: Mapping[str, str], rpe: str) -> dict[str, Any]:
    """One box as plain data: what the jobs of `check` on boxes call. Numbers are exact text.

    >>> box_point("T <= T**2", {"T": ["1", None]}, {}, "lin")["verdict"]
    'proved'
    """
    from analyzer.claims.boxes import prove

    ends = {name: (from_text(str(low)), None if high is None else from_text(high)) for name, (low, high) in box.items()}
    found = prove(parse_claim(claim), ends, {name: from_text(value) for name, value in sizes.items()}, rpe)
    why = found.reason
    if found.point is not None:
        why = "at " + ", ".join(f"{name} = {value}" for name, value in found.point.items()) + (f": {why}" if why else "")
        why += "" if found.sides is None else ": the sides are " + ", ".join(f"{value:.6g}" for value in found.sides)
    open_cells = [{n: [low, None if high == float("inf") else high] for n, (low, high) in cell.items()} for cell in found.undecided]
    return {
        "verdict": WORDS[found.verdict],
        "point": found.point,
        "sides": None if found.sides is None else list(found.sides),
        "undecided": open_cells,
        "touching": list(found.touching),
        "cells": found.cells,
        "why": why,
    }
