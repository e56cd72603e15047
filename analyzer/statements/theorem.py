"""What a theorem is to the program: its page, its formulas, and pointers to the rooms that build and certify it.

A theorem's file ends with a `THEOREM`; the registry (`analyzer.statements.registry`) finds it by the file's name, thm-3.1 in thm_3_1.py.
Theorems from elsewhere are found through the entry-point group `lemmaformer.theorems`; nothing else has to know of them.

`build` and `verify` are given as pointers "module:function" to the rooms above, which this one never imports, or as functions:

    build(target, options) -> Construction          verify(network, target, bank, ffn) -> Certificate

(`bank` and `ffn` are what a bundle's card claims.) `bound(target, options)` evaluates the formula. `cases` are small targets with options
for which all of it must work: they are this theorem's rows of the conformance table.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any

from analyzer.errors import InputError, OptionValue
from analyzer.options import Options

if TYPE_CHECKING:
    import networkx as nx
    import sympy

    from analyzer.statements.bounds import Bound
    from analyzer.statements.designs import Design, Proven

Pointer = str | Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """A row of the conformance table: a target as plain data, and the options of the network and of the bound."""

    target: Mapping[str, Any]
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    bound: Mapping[str, OptionValue] = field(default_factory=dict)


@dataclass(frozen=True, repr=False)
class Theorem:
    """A theorem, or a limit: what is stated, and what can be done with it.

    >>> import lemmaformer as lf
    >>> lf.theorems["lag-law"].title
    'heads per lag: T heads of one type, ⌊T/2⌋ + 1 of both'
    """

    id: str
    title: str
    page: str
    """The whole page: setting, statement, proof or construction, what is repaired, references."""
    target: str | None = None
    """The kind of targets that it speaks of."""
    options: type[Options] | None = None
    others: Mapping[str, type[Options]] = field(default_factory=dict)
    """Further kinds of targets, with the options of their networks."""
    bound_options: type[Options] | None = None
    needs_target: bool = True
    """Whether its bound speaks of a target, or can do with sizes among the options."""
    bound: "Callable[[Any, Any], Bound] | None" = None
    formulas: Mapping[str, str] = field(default_factory=dict)
    """The statement in one line, by relative positions."""
    expression: "Callable[[Any, str], sympy.Expr] | None" = None
    lemmas: "Callable[[Any, str, str, Any], nx.DiGraph] | None" = None
    """The proof as a graph, for (rpe, bank, ffn, lags)."""
    citation: Callable[[str, str], str] | None = None
    check: Callable[[Any, Any], None] | None = None
    """Refuses what cannot work before anything is built, or JAX is loaded."""
    build: Pointer | None = None
    verify: Pointer | None = None
    absolute: bool = False
    """Whether its networks may have a table of absolute positions, or linear attention: those of other theorems must not."""
    applies: Callable[[Any, Any], bool] = lambda target, options: True
    """Whether a network with these options belongs to this theorem rather than to another one about the same targets."""
    designs: "Callable[[Any, str], Iterable[Design]] | None" = None
    """The designs in which networks for (target, dtype) come, for `plan`; by default all combinations of its named options."""
    proven: "Callable[[Any, Any], Proven] | None" = None
    """The sizes for which it promises the error of (target, options), for `plan`; by default what its bound, solved for it, says."""
    cases: tuple[Case, ...] = ()
    shelf: float = 1000.0
    """Its place in lists."""
    instead: str = ""
    """Where a theorem that is no rate is evaluated."""

    def __repr__(self) -> str:
        return f"<{self.id}: {self.title}>"

    @property
    def kinds(self) -> tuple[str, ...]:
        """All kinds of targets that it speaks of."""
        return () if self.target is None else (self.target, *self.others)

    def options_for(self, kind: str) -> type[Options] | None:
        """The options of its networks for a kind of targets."""
        return self.others.get(kind, self.options)

    @property
    def is_limit(self) -> bool:
        """Whether it says what no network can do."""
        return self.build is None and self.bound is None and self.lemmas is None

    @property
    def statement(self) -> str:
        """Setting and statement, without proof and construction.

        >>> import lemmaformer as lf
        >>> lf.theorems["lag-law"].statement.splitlines()[0][:40]
        'Setting. One dp-free layer with n lin he'
        """
        parts = sections(self.page)
        kept = [f"{name}. {text}" for name, text in parts.items() if name in ("Setting", "Statement")]
        return "\n\n".join(kept)

    def proof(self, rpe: str, bank: str, ffn: str, lags: Any) -> "nx.DiGraph":
        """The proof as a graph: lemmas with their budgets, and who uses whom."""
        if self.lemmas is None:
            raise InputError(f"{self.id} has its proof as text")
        return self.lemmas(rpe, bank, ffn, lags)

    def built_by(self) -> Callable[..., Any]:
        """The function that builds its networks."""
        return self._resolved("build")

    def verified_by(self) -> Callable[..., Any]:
        """The function that certifies its networks."""
        return self._resolved("verify")

    def _resolved(self, what: str) -> Callable[..., Any]:
        pointer: Pointer | None = getattr(self, what)
        if pointer is None:
            raise InputError(f"{self.id} builds no network{': ' + self.instead if self.instead else ''}")
        if not isinstance(pointer, str):
            return pointer
        module, _, name = pointer.partition(":")
        found: Callable[..., Any] = getattr(import_module(module), name)
        return found

    def _repr_latex_(self) -> str:
        from analyzer.statements.latex import statement

        lines = [r"\textbf{" + self.id + "} " + self.title]
        if self.expression is not None:
            lines += [f"({rpe}) {statement(self.expression(rpe, 'tuned'))}" for rpe in ("lin", "log")]
        return "\n\n".join(lines)


def sections(page: str) -> dict[str, str]:
    """The parts of a page by the word that opens them: "Setting", "Statement", "Proof", …"""
    found = re.split(r"^([A-Z][a-z]+(?: of [a-z ]+)?)\. ", page.strip(), flags=re.MULTILINE)
    return {name: text.strip() for name, text in zip(found[1::2], found[2::2], strict=True)}
