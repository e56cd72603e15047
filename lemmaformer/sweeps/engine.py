"""Many jobs become a list of rows: in this process, on workers of Dask, or from a store that has them already."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

from analyzer.errors import InputError
from analyzer.ranges import check_range
from lemmaformer.sweeps.jobs import CALLS, OWN, Job, Row, run_job

__all__ = ["CALLS", "MAX_WORKERS", "OWN", "Job", "Row", "Store", "run_job", "run_jobs"]

MAX_WORKERS = 256
"""Processes on one machine; a cluster has as many as it has."""


class Store(Protocol):
    """Rows that are kept by key: what a sweep goes on from."""

    def get(self, key: str) -> Row | None: ...

    def put(self, row: Row) -> None: ...


def run_jobs(
    jobs: Sequence[Job], *, store: Store | None = None, workers: int = 1, scheduler: str | None = None, what: str = "jobs"
) -> list[Row]:
    """One row per job, in the order of the jobs; rows that the store has are taken from it, new ones are put there as they come.

    One worker is this process. More are processes of Dask, and `scheduler` is the address of a Dask cluster that exists. Equal jobs are run
    once. `what` names the jobs where progress is shown.

    >>> from lemmaformer.sweeps.engine import Job, run_jobs
    >>> [row["min_heads"] for row in run_jobs([Job("limits.lag", {"lag": lag}) for lag in (1, 4)])]
    [1, 4]
    """
    check_workers(workers, scheduler)
    from verify.report.progress import PROGRESS, counting

    rows: dict[str, Row] = {}
    todo: dict[str, Job] = {}
    for job in jobs:
        kept = None if store is None else store.get(job.key)
        if kept is None:
            todo.setdefault(job.key, job)
        else:
            rows[job.key] = kept
    with counting(what, len(todo), len(rows), not PROGRESS.get()) as count:
        token = PROGRESS.set(False)  # a job shows nothing of its own
        try:
            for row in _run(list(todo.values()), workers, scheduler):
                if store is not None:
                    store.put(row)
                rows[row["key"]] = row
                count()
        finally:
            PROGRESS.reset(token)
    return [rows[job.key] for job in jobs]


def check_workers(workers: int, scheduler: str | None) -> None:
    """Refuse workers that cannot be had before anything runs."""
    check_range("workers", workers, least=1, most=MAX_WORKERS)
    if scheduler is not None and workers != 1:
        raise InputError("give workers or a scheduler, not both: a cluster has workers of its own")
    if workers != 1 or scheduler is not None:
        from lemmaformer.sweeps.cluster import check_dask

        check_dask(scheduler)


def _run(jobs: Sequence[Job], workers: int, scheduler: str | None) -> Iterable[Row]:
    """The rows as they come."""
    if jobs and (workers != 1 or scheduler is not None):
        from lemmaformer.sweeps.cluster import run_on_dask

        return run_on_dask(jobs, min(workers, len(jobs)), scheduler)
    return _in_turn(jobs)


def _in_turn(jobs: Iterable[Job]) -> Iterator[Row]:
    return map(run_job, jobs)
