"""What is being worked on: a spinner on stderr at a terminal, a line that changes in a notebook; silent when quiet or elsewhere."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

PROGRESS: ContextVar[bool] = ContextVar("progress", default=False)
"""Whether long work shows what it does on a terminal or in a notebook: the command line wants it, a library is silent."""
BETWEEN = 0.2
"""Seconds between two changes of a notebook's line: each one is a message to the browser."""


class Line(Protocol):
    """What says what is being worked on."""

    def update(self, text: str) -> None: ...


def in_notebook() -> bool:
    """Whether a notebook's kernel runs this: nothing is loaded to find out."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def is_silent(quiet: bool) -> bool:
    """Whether nothing is shown: nobody asked, or there is neither a terminal nor a notebook to show it on."""
    return quiet or not (sys.stderr.isatty() or in_notebook())


class NotebookLine:
    """A line of a notebook's output that is replaced in place; needs no widgets."""

    def __init__(self, message: str) -> None:
        from IPython.display import display

        self._start = self._last = time.perf_counter()
        self._message = message
        self._handle = display({"text/plain": f"{message} …"}, raw=True, display_id=True)

    def update(self, text: str) -> None:
        now = time.perf_counter()
        if now - self._last >= BETWEEN:
            self._last = now
            self._replace(text)

    def finish(self) -> None:
        self._replace(f"{self._message}: {time.perf_counter() - self._start:.1f} s")

    def _replace(self, text: str) -> None:
        self._handle.update({"text/plain": text}, raw=True)


@contextmanager
def _spinner(message: str) -> Iterator[Line]:
    if in_notebook():
        line = NotebookLine(message)
        try:
            yield line
        finally:
            line.finish()
        return
    from rich.console import Console  # here, as whether progress is wanted is asked before anything is shown

    with Console(stderr=True).status(message) as status:
        yield status


@contextmanager
def progress(message: str, quiet: bool) -> Iterator[None]:
    """A spinner on stderr while long work runs; silent when quiet, or without terminal and notebook."""
    if is_silent(quiet):
        yield
        return
    with _spinner(message):
        yield


@contextmanager
def steps(message: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A spinner that says what is being worked on; silent when quiet, or without terminal and notebook."""
    if is_silent(quiet):
        yield lambda _: None
        return
    with _spinner(message) as status:
        yield lambda text: status.update(f"{message}: {text}")


@contextmanager
def training(quiet: bool) -> Iterator[Callable[[str, Any], None] | None]:
    """A spinner that shows what is trained (a name and its `Progress`): step, loss and time left; None when silent."""
    if is_silent(quiet):
        yield None
        return
    with _spinner("training") as status:
        yield lambda name, progress: status.update(training_line(name, progress))


def training_line(name: str, progress: Any) -> str:
    losses = " ".join(f"{value:.1e}" for value in progress.loss.reshape(-1))
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    return f"{name}: step {progress.step} of {progress.steps}, {minutes}:{seconds:02} left, loss {losses}"


def search_line(seconds: float, share: float, witness: float, certified: float) -> str:
    """Where a search stands: witness, certified, and the time left if the rest goes as the beginning went."""
    minutes, rest = divmod(round(seconds * (1 / max(share, 1e-9) - 1)) if share < 1 else 0, 60)
    return f"witness {witness:.4g}, certified {certified:.4g}, {minutes}:{rest:02} left"


@contextmanager
def counting(message: str, total: int, before: int, quiet: bool) -> Iterator[Callable[[], None]]:
    """A spinner that counts `total` jobs, each one done when the function is called, `before` having been done earlier."""
    if not total or is_silent(quiet):
        yield lambda: None
        return
    done, start = 0, time.perf_counter()
    with _spinner(counting_line(message, 0, total, before, 0.0)) as status:

        def count() -> None:
            nonlocal done
            done += 1
            status.update(counting_line(message, done, total, before, time.perf_counter() - start))

        yield count


def counting_line(message: str, done: int, total: int, before: int, seconds: float) -> str:
    """How many of all jobs are done, and the time left if the rest goes as the beginning went."""
    minutes, rest = divmod(round(seconds * (total - done) / done), 60) if done else (0, 0)
    left = f", {minutes}:{rest:02} left" if done else ""
    return f"{message}: {before + done} of {before + total}{left}"
