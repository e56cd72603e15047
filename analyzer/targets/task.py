"""Tasks: kinds of targets that a few parameters describe, such as an alphabet and a length.

A task is a file in `analyzer.targets.tasks` that ends with a `TASK`; it is found by its name, k-hop in k_hop.py. Its parameters are one
class of options, from which Python keywords, TOML files, cards and command-line flags are read, so nothing else has to know of it:

    TASK = Task(kind="parity", …, options=ParityTask, make=ParityTarget)

`make(**parameters)` gives the target, whose `describe()` is {"kind": kind, **parameters}.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from decimal import Decimal
from importlib import import_module
from typing import TYPE_CHECKING, Any

from analyzer.errors import InputError, OptionValue
from analyzer.options import Options

if TYPE_CHECKING:
    from analyzer.targets.protocol import Target

FOLDER = os.path.join(os.path.dirname(__file__), "tasks")


@dataclass(frozen=True)
class Task:
    """A kind of targets: what it is, in one line and in a few, options of a network that is built as an example, and its parameters."""

    kind: str
    brief: str
    help: str
    example: Mapping[str, OptionValue]
    options: type[Options]
    make: "Callable[..., Target]"

    def target(self, parameters: Mapping[str, Any]) -> "Target":
        """The target with these parameters; unknown names and values are refused."""
        read = self.options.read(parameters, f" of {self.kind}")
        return self.make(**{entry.name: getattr(read, entry.name) for entry in fields(read)})


def task_kinds() -> list[str]:
    """The kinds of all tasks; nothing is loaded."""
    return sorted(name[:-3].replace("_", "-") for name in os.listdir(FOLDER) if name.endswith(".py") and not name.startswith("_"))


def task_of(kind: str) -> Task:
    """The task of a kind."""
    if kind not in task_kinds():
        raise InputError(f"unknown task {str(kind)[:40]!r}; choose from {', '.join(task_kinds())}")
    found: Task = import_module(f"analyzer.targets.tasks.{kind.replace('-', '_')}").TASK
    return found


def task_from_dict(data: Mapping[str, Any], source: str) -> "Target":
    """A task's target from parsed TOML or JSON."""
    given = {name: _plain(value) for name, value in data.items() if name != "kind"}
    try:
        return task_of(data["kind"]).target(given)
    except InputError as error:
        raise InputError(f"{source}: {error}") from None


def _plain(value: Any) -> Any:
    """Decimals of TOML as floats, in lists too."""
    if isinstance(value, list):
        return [_plain(member) for member in value]
    return float(value) if isinstance(value, Decimal) else value
