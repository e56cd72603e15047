"""A sweep from its design to its table: what can be refused is refused first, then the jobs run, and the table is written whole."""

import time
from collections import Counter
from pathlib import Path
from typing import Any

from constructions.files.places import check_place, write_file
from lemmaformer.sweeps.design import Design
from lemmaformer.sweeps.engine import check_workers, run_jobs
from lemmaformer.sweeps.journal import Again, Journal, journal_of
from lemmaformer.sweeps.tables import check_format, encoded, table

Line = dict[str, Any]


def sweep_in_memory(design: Design, workers: int = 1, scheduler: str | None = None) -> tuple[Line, tuple[Line, ...]]:
    """Summary and table of a sweep that is written nowhere."""
    return _swept(design, None, workers, scheduler)


def sweep_to_file(
    design: Design, out: Path, overwrite: bool = False, workers: int = 1, scheduler: str | None = None, again: Again | None = None
) -> tuple[Line, tuple[Line, ...]]:
    """Summary and table of a sweep that is written to a file, by way of a journal beside it which it goes on from."""
    check_format(out)
    check_place(out, overwrite)
    check_workers(workers, scheduler)
    with Journal(journal_of(out), again) as journal:
        summary, lines = _swept(design, journal, workers, scheduler)
        write_file(out, encoded(lines, out.suffix), overwrite)
    return {**summary, "out": str(out), "journal": str(journal.path)}, lines


def _swept(design: Design, journal: Journal | None, workers: int, scheduler: str | None) -> tuple[Line, tuple[Line, ...]]:
    start = time.perf_counter()
    kept = 0 if journal is None else sum(journal.get(job.key) is not None for job in design.jobs)
    rows = run_jobs(design.jobs, store=journal, workers=workers, scheduler=scheduler, what=f"sweep of {design.call}")
    counts = Counter(row["status"] for row in rows)
    summary = {"call": design.call, "jobs": len(rows), **{status: counts[status] for status in ("done", "refused", "failed")}}
    summary |= {"violated": sum(row.get("verdict") == "violated" for row in rows), "from_journal": kept}
    return {**summary, "seconds": time.perf_counter() - start}, tuple(table(design.points, rows))
