"""Whether and how long work is shown while it runs."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from analyzer.ranges import check_range
from verify.report.progress import PROGRESS

if TYPE_CHECKING:
    from verify.theorems.no_theorem import Effort

MOST_SECONDS = 86400.0
"""A day."""

__all__ = ["PROGRESS", "certifying", "counting", "stepping", "working"]


@contextmanager
def working(message: str) -> Iterator[None]:
    """A spinner, if somebody wants to see one."""
    from verify.report.progress import progress

    with progress(message, not PROGRESS.get()):
        yield


@contextmanager
def stepping(message: str) -> Iterator[Callable[[str], None]]:
    """A spinner that says what is being worked on, if somebody wants to see one."""
    from verify.report.progress import steps

    with steps(message, not PROGRESS.get()) as step:
        yield step


@contextmanager
def counting(message: str, total: int) -> Iterator[Callable[[], None]]:
    """A spinner that counts what is done and shows the time left, if somebody wants to see one; what is done inside shows nothing."""
    from verify.report import progress

    with progress.counting(message, total, 0, not PROGRESS.get()) as count:
        token = PROGRESS.set(False)
        try:
            yield count
        finally:
            PROGRESS.reset(token)


@contextmanager
def certifying(seconds: float | None) -> "Iterator[Effort]":
    """What a search for certificates is granted, and a spinner that shows where it stands, if somebody wants to see one."""
    from verify.report.progress import search_line
    from verify.theorems.no_theorem import USUAL, Effort

    if seconds is not None:
        check_range("seconds", seconds, above=0, most=MOST_SECONDS)
    granted = USUAL.seconds if seconds is None else float(seconds)
    with stepping("certifying") as step:
        start = time.perf_counter()
        yield Effort(granted, lambda *state: step(search_line(time.perf_counter() - start, *state)))
