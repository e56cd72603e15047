"""Whether and how long work is shown while it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

PROGRESS: ContextVar[bool] = ContextVar("progress", default=False)
"""Whether long work shows what it does on a terminal: the command line wants it, a library is silent."""


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
