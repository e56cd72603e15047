"""What a sweep may call, as its specification sees it: parameters and options of each command, and what is wrong with a value by itself.

What options ask of each other, and of a target, is found out by the job, whose row says so.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from importlib import import_module
from typing import Any

from analyzer.errors import InputError
from analyzer.options import Options, check_option
from analyzer.statements.registry import THEOREMS

Kinds = tuple[type, ...]


@dataclass(frozen=True)
class SweptCall:
    """A command: its own parameters by type, the first `required` of them needed, and the class of its options.

    `target` says what the command does with one: None nothing, False it may be given, True it must be. The options of `bound` and `build`
    are those of the theorems that may be meant, so their classes are looked up.
    """

    parameters: Mapping[str, Kinds]
    required: int = 0
    options: str | None = None
    leave_out: tuple[str, ...] = ()
    target: bool | None = None


NUMBERS: Kinds = (list, tuple)
SWEPT: Mapping[str, SweptCall] = {
    "bound": SweptCall({"theorem": (str,)}, 1, target=False),
    "build": SweptCall({"theorem": (str,)}, target=True),
    "verify": SweptCall({"what": (str,), "margin": (bool,), "seconds": (int, float), "norm": (str,), "tokens": (str,)}, 1, target=False),
    "train": SweptCall({}, options="Train", target=True),
    "limits.lag": SweptCall({"lag": (int,)}, 1, "LagLimits"),
    "limits.horizon": SweptCall({}, 0, "LagLimits", leave_out=("heads", "norm")),
    "limits.kernel": SweptCall({"kernel": (str,)}, 1, "KernelLimits"),
    "limits.architectures": SweptCall({"kernel": (str,)}, 1, "ArchitecturesLimits"),
    "limits.coupling": SweptCall({}, 0, "CouplingLimits", target=True),
    "limits.rnn": SweptCall({"kernel": (str,), "filter": NUMBERS}, 1, "RnnLimits"),
    "limits.slopes": SweptCall({"slopes": (str,)}, 1, "SlopesLimits", leave_out=("layer", "window")),
    "limits.positions": SweptCall({"schemes": (str, list, tuple)}, 0, "PositionsLimits"),
    "limits.dp_free": SweptCall({}, 0, "DpFreeLimits"),
}
"""What the `call` of a specification may name."""
WORDS = {str: "text", bool: "true or false", int: "a whole number", float: "a number", list: "a list"}


def swept(name: Any) -> SweptCall:
    """A command by its name."""
    if not isinstance(name, str) or name not in SWEPT:
        raise InputError(f"call is {str(name)[:40]!r}; choose from {', '.join(SWEPT)}")
    return SWEPT[name]


def option_classes(name: str, theorems: Iterable[Any], kinds: Iterable[Any]) -> list[type[Options]]:
    """The classes that an option of a command may belong to, given the theorems and the kinds of targets that occur."""
    command = SWEPT[name]
    if command.options is not None:
        found: type[Options] = getattr(import_module("lemmaformer.options"), command.options)
        return [found]
    if name == "verify":
        return []
    named = [THEOREMS[theorem] for theorem in theorems]
    if name == "bound":
        missing = [theorem.id for theorem in named if theorem.bound_options is None]
        if missing:
            raise InputError(f"{missing[0]} has no bound to evaluate")
        return _distinct(theorem.bound_options for theorem in named)
    named = named or [theorem for kind in kinds for theorem in THEOREMS.of_kind(str(kind))]
    return _distinct(theorem.options for theorem in named if theorem.build is not None)


def _distinct(classes: Iterable[type[Options] | None]) -> list[type[Options]]:
    return list(dict.fromkeys(found for found in classes if found is not None))


def known_names(command: SweptCall, classes: Iterable[type[Options]]) -> list[str]:
    """The parameters and options of a command."""
    options = (entry.name for cls in classes for entry in fields(cls) if entry.name not in command.leave_out)
    return list(dict.fromkeys([*command.parameters, *options]))


def check_value(command: SweptCall, classes: Iterable[type[Options]], name: str, value: Any) -> None:
    """Refuse a value that no class allows by itself: of another type, an unknown word, out of range."""
    if name in command.parameters:
        kinds = command.parameters[name]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise InputError(f"{name} is {str(value)[:40]!r}; give {' or '.join(WORDS[kind] for kind in kinds if kind in WORDS)}")
        return
    refusals = []
    for cls in classes:
        if name in (entry.name for entry in fields(cls)):
            try:
                check_option(cls, name, value)
                return
            except InputError as error:
                refusals.append(error)
    raise refusals[0]
