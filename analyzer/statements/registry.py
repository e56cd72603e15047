"""One file per theorem or limit; its docstring is the page. `THEOREMS` finds them all, from here and from entry points.

A file is found by its name: thm-3.1 is in `thm_3_1.py`, lag-law in `lag_law.py`; it is loaded when it is asked for, so that evaluating one
bound does not wait for the others. Other distributions add theorems through the entry-point group `lemmaformer.theorems`.
"""

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from analyzer.errors import InputError, OptionValue
from analyzer.notebooks import html_of
from analyzer.options import Options
from analyzer.statements.theorem import Theorem

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from analyzer.targets.protocol import Target

GROUP = "lemmaformer.theorems"
HOUSE = os.path.dirname(os.path.dirname(__file__))
LIBRARY = "theorems.library"
ROOMS = ("theorems", "theorems.positions", LIBRARY, "limits")
SHARED = ("__init__.py", "base.py")


class UnknownTheorem(InputError, KeyError):
    """No theorem has this id."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would put it in quotes


class Registry(Mapping[str, Theorem]):
    """All theorems and limits by id.

    >>> import lemmaformer as lf
    >>> lf.theorems["thm-3.1"]
    <thm-3.1: fixed sparse memories, one dp-free layer>
    """

    def __getitem__(self, name: str) -> Theorem:
        if self.is_own(str(name)):
            return _own(_module(str(name)), self._files()[_module(str(name))])
        for entry in _entries():
            if entry.name == name:
                return _foreign(entry.name, entry.load())
        raise UnknownTheorem(f"unknown theorem {str(name)[:40]!r}; known: {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        known = [_own(module, room) for module, room in self._files().items()]
        known += self.foreign()
        return iter([theorem.id for theorem in sorted(known, key=lambda theorem: (theorem.shelf, theorem.id))])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _repr_html_(self) -> str | None:
        return html_of(self)

    def is_own(self, name: str) -> bool:
        """Whether this distribution has a file for it; nothing is loaded."""
        return "_" not in name and _module(name) in self._files()

    def library(self) -> list[str]:
        """The ids of the library's constructions; nothing is loaded."""
        return sorted(module.replace("_", "-") for module, room in self._files().items() if room == LIBRARY)

    def foreign(self) -> list[Theorem]:
        """The theorems of other distributions."""
        return [_foreign(entry.name, entry.load()) for entry in _entries()]

    def of_kind(self, kind: str) -> list[Theorem]:
        """The theorems that build networks for a kind of target."""
        return [theorem for theorem in self.values() if kind in theorem.kinds and theorem.build is not None]

    def choose(self, target: "Target", given: Mapping[str, OptionValue], options: Options | None = None) -> tuple[Theorem, Options]:
        """The theorem that networks for this target and these options belong to, and the options as its class reads them."""
        candidates = [theorem for theorem in self.of_kind(target.kind) if theorem.shelf < Theorem.shelf]
        family = candidates[0].options_for(target.kind)
        assert family is not None  # theorems that build have options
        read = family.of(options, given)
        return next(theorem for theorem in candidates if theorem.applies(target, read)), read

    def _files(self) -> dict[str, str]:
        """The room of every theorem's file."""
        rooms = {room: os.listdir(os.path.join(HOUSE, *room.split("."))) for room in ROOMS}
        return {name[:-3]: room for room, names in rooms.items() for name in sorted(names) if name.endswith(".py") and name not in SHARED}


def _module(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


def _entries() -> "Iterator[EntryPoint]":
    from importlib.metadata import entry_points  # here, as it loads a reader of e-mail

    return iter(entry_points(group=GROUP))


def _own(module: str, room: str) -> Theorem:
    found: Theorem = import_module(f"analyzer.{room}.{module}").THEOREM
    return found


def _foreign(name: str, found: object) -> Theorem:
    if not isinstance(found, Theorem) or found.id != name:
        raise InputError(f"the entry point {name[:40]!r} of group {GROUP} holds no Theorem with that id")
    return found


THEOREMS = Registry()
