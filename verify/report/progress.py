"""Spinners on stderr while long work runs; silent when quiet or not a terminal."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console


@contextmanager
def progress(message: str, quiet: bool) -> Iterator[None]:
    """A spinner on stderr while long work runs; silent when quiet or not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(message):
        yield


@contextmanager
def steps(message: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """A spinner that says what is being worked on; silent when quiet or not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    with Console(stderr=True).status(message) as status:
        yield lambda text: status.update(f"{message}: {text}")


@contextmanager
def training(quiet: bool) -> Iterator[Callable[[str, Any], None] | None]:
    """A spinner that shows what is trained (a name and its `Progress`): step, loss and time left; None when quiet or not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    with Console(stderr=True).status("training") as status:
        yield lambda name, progress: status.update(training_line(name, progress))


def training_line(name: str, progress: Any) -> str:
    losses = " ".join(f"{value:.1e}" for value in progress.loss.reshape(-1))
    minutes, seconds = divmod(round(progress.seconds_left), 60)
    return f"{name}: step {progress.step} of {progress.steps}, {minutes}:{seconds:02} left, loss {losses}"
