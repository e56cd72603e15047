"""Flags from options: every class of options becomes click options with the same names, defaults, ranges and help.

A command returns a result; `answers` adds --json and --quiet, shows the result and sets the exit code, and nothing else does.
"""

import contextlib
import functools
import json
import sys
from collections.abc import Callable
from dataclasses import Field
from pathlib import Path
from typing import Any, Protocol

import click

from analyzer.errors import InputError, OptionValue
from analyzer.options import Options, alternatives, choices, default_text, typed_fields
from analyzer.targets.task import task_kinds, task_of

Command = Callable[..., Any]

NEW = click.Path(path_type=Path)


class Answer(Protocol):
    """What a command returns."""

    def as_dict(self) -> dict[str, Any]: ...


class _Mixed(click.ParamType):
    """A whole number or one of some words; with `reals` any number."""

    def __init__(self, words: tuple[str, ...], reals: bool = False) -> None:
        self.words, self.reals = words, reals
        self.name = f"{'FLOAT' if reals else 'INTEGER'}|{'|'.join(words)}"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        if value in self.words or isinstance(value, int):
            return value
        digits = value.removeprefix("-")
        if digits.isdecimal() and digits.isascii() and len(digits) <= 9:
            return int(value)
        with contextlib.suppress(ValueError):
            if self.reals:
                return float(value)
        number = "number" if self.reals else "whole number"
        self.fail(f"{value[:20]!r} is neither a {number} nor {' or '.join(map(repr, self.words))}", param, context)


class _Whole(click.ParamType):
    """Whole numbers such as 2,5."""

    name = "N,N,…"

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in value.split(",")]
        if not all(p.removeprefix("-").isdecimal() and p.isascii() and len(p) <= 10 for p in parts):
            self.fail(f"{value[:40]!r} is not a list of whole numbers such as 2,5", param, context)
        return tuple(int(part) for part in parts)


class _Numbers(click.ParamType):
    """Numbers such as 0.5,1.5, or one of some words."""

    def __init__(self, words: tuple[str, ...]) -> None:
        self.words = words
        self.name = "|".join(("X,X,…", *words))

    def convert(self, value: Any, param: click.Parameter | None, context: click.Context | None) -> Any:
        if value in self.words or isinstance(value, tuple):
            return value
        try:
            return tuple(float(part) for part in value.split(","))
        except ValueError:
            other = "".join(f", nor {word!r}" for word in self.words)
            self.fail(f"{value[:40]!r} is not a list of numbers such as 0.5,1.5{other}", param, context)


LAGS = _Whole()


def flag(option: str, value: OptionValue) -> str:
    """An option as the command line writes it."""
    name = "--" + option.replace("_", "-")
    if value is None:
        return f"no {name}"
    if value is True:
        return name
    return f"{name} {','.join(map(str, value)) if isinstance(value, tuple) else value}"


def options_of(*classes: type[Options], leave_out: tuple[str, ...] = ()) -> Callable[[Command], Command]:
    """Flags for all fields of some classes; the command gets those that were given, as keywords."""

    def decorate(command: Command) -> Command:
        seen: dict[str, click.Option] = {}
        for cls in classes:
            for entry, hint in typed_fields(cls):
                if entry.name not in leave_out:
                    seen[entry.name] = _joined(seen.get(entry.name), _flag_of(entry, hint))
        params = command.__dict__.setdefault("__click_params__", [])
        params.extend(reversed(list(seen.values())))
        return command

    return decorate


def flags_of(*classes: type[Options]) -> list[click.Option]:
    """The flags of some classes, by themselves."""
    return [_flag_of(entry, hint) for cls in classes for entry, hint in typed_fields(cls)]


def _joined(known: click.Option | None, other: click.Option) -> click.Option:
    """One flag for an option of several classes: what any of them allows; the class itself refuses what is not its own."""
    if known is not None and isinstance(known.type, click.Choice) and isinstance(other.type, click.Choice):
        known.type = click.Choice(list(dict.fromkeys([*known.type.choices, *other.type.choices])))
    if known is not None and isinstance(known.type, _Mixed) and other.type is click.FLOAT:
        known.type = _Mixed(known.type.words, reals=True)
    return known or other


def _flag_of(entry: Field[Any], hint: Any) -> click.Option:
    names = [f"--{name.replace('_', '-')}" for name in (entry.name, *entry.metadata["spelt"])]
    shown = default_text(entry)
    help = entry.metadata["help"] + (f"  [default: {shown}]" if shown is not None else "")
    help = help[0].upper() + help[1:] if help.split()[0].strip(":;,").isalpha() else help
    if bool in alternatives(hint):
        return click.Option([*names, entry.name], is_flag=True, default=None, help=help)
    return click.Option([*names, entry.name], type=_type_of(hint), default=None, help=help)


def _type_of(hint: Any) -> click.ParamType:
    words, parts = choices(hint), alternatives(hint)
    if any(getattr(part, "__args__", ())[:1] == (float,) for part in parts):
        return _Numbers(words)
    if words:
        return _Mixed(words) if int in parts else click.Choice(list(words))
    if any(getattr(part, "__origin__", None) is tuple for part in parts):
        return LAGS
    if Path in parts:
        return NEW
    return click.FLOAT if float in parts else click.INT if int in parts else click.STRING


def given(keywords: dict[str, Any]) -> dict[str, Any]:
    """The flags that were given, those that may be given several times at least once."""
    return {name: value for name, value in keywords.items() if value not in (None, ())}


def of_target(*kinds: str) -> Callable[[Command], Command]:
    """--target, and the flags of the kinds that can be described by flags."""
    alphabet = click.option("--alphabet", help="With --lags or --formula: the letters that tokens are made of, such as -1,1.")
    words = "Tokens in a sequence.  [default: 16 with --rho, the largest number with --formula]"
    length = click.option("--length", "tokens_in_all", type=int, help=words)
    about = {
        "fixed": [
            click.option("--lags", type=LAGS, help="Fixed memories: how many tokens back, such as 2,5."),
            alphabet,
        ],
        "sequence": [
            click.option("--formula", help="A function of a sequence of letters in x1, x2, …, e.g. 'x1*x2 - x3'."),
            alphabet,
            length,
        ],
        "kernel": [click.option("--kernel", "kernels", multiple=True, help="A kernel in s such as '(s+1)**-2'; once per memory.")],
        "coupling": [
            click.option("--rho", help="A coupling in u and v, e.g. 'exp(-(u-v)**2)'."),
            click.option("--f", "values", help="f in x (with --rho).  [default: x]"),
            click.option("--F", "outer", help="F in y (with --rho).  [default: y]"),
            length,
        ],
    }
    shared = [
        click.option("--dim", type=int, help="Token dimension (with --lags or --kernel).  [default: 1]"),
        click.option("--readout", help="Read-out such as 'x0 + m1*m2'.  [default: the sum of the memories]"),
    ]

    def decorate(command: Command) -> Command:
        for kind in set(kinds) & set(task_kinds()):
            command = options_of(task_of(kind).options)(command)
        flags = [click.option("--target", "target_file", type=NEW, help="A TOML file with the target (docs/targets.md).")]
        flags += dict.fromkeys(one for kind in kinds for one in about.get(kind, []))  # kinds share flags
        flags += shared if {"fixed", "kernel"} & set(kinds) else []
        for one in reversed(flags):
            command = one(command)
        return command

    return decorate


_TARGET = ("target_file", "lags", "alphabet", "formula", "kernels", "rho", "values", "outer", "tokens_in_all", "dim", "readout")
_SPELT = {"target_file": "target", "kernels": "kernel", "values": "f", "outer": "F", "tokens_in_all": "length"}


def target_of(keywords: dict[str, Any], needed: str | None = None, optional: bool = False) -> Any:
    """Take the flags that describe a target out of the keywords and make it; `needed` is the kind it must be of."""
    import lemmaformer as lf

    if needed in task_kinds():
        return _task(keywords, needed)
    said = {name: value for name in _TARGET if (value := keywords.pop(name, None)) not in (None, ())}
    ways = [name for name in ("target_file", "lags", "kernels", "rho", "formula") if name in said]
    if optional and not said:
        return None
    if len(ways) != 1:
        raise InputError("give one target: --target, or the flags that describe it (--lags, --kernel, --rho or --formula)")
    belong = {
        "target_file": (),
        "lags": ("dim", "readout", "alphabet"),
        "kernels": ("dim", "readout"),
        "rho": ("values", "outer", "tokens_in_all"),
        "formula": ("alphabet", "tokens_in_all"),
    }[ways[0]]
    strange = [name for name in said if name not in (*ways, *belong)]
    if strange:
        raise InputError(f"--{_SPELT.get(strange[0], strange[0])} does not go with --{_SPELT.get(ways[0], ways[0])}")
    extra = {name: said[name] for name in belong if name in said and name in ("dim", "readout")}
    letters = [part.strip() for part in said["alphabet"].split(",")] if "alphabet" in said else None
    if ways[0] == "formula":
        if letters is None:
            raise InputError("--formula needs the letters that it is a function of: --alphabet, such as 0,1")
        return lf.sequence(said["formula"], alphabet=letters, length=said.get("tokens_in_all"))
    if ways[0] == "lags":
        return lf.fixed(said["lags"], alphabet=letters, **extra)
    if ways[0] == "kernels":
        return lf.kernel(said["kernels"], **extra)
    if ways[0] == "rho":
        named = {"f": said.get("values", "x"), "F": said.get("outer", "y"), "length": said.get("tokens_in_all", 16)}
        return lf.coupling(said["rho"], **named)
    target = lf.load_target(said["target_file"])
    if needed is not None and target.kind != needed:
        raise InputError(f"{said['target_file']} holds a target of kind {target.kind}, one of kind {needed} is needed here")
    return target


def _task(keywords: dict[str, Any], kind: str) -> Any:
    """A task from --target or from the flags of its parameters."""
    import lemmaformer as lf

    task, file = task_of(kind), keywords.pop("target_file", None)
    said = {entry.name: value for entry, _ in typed_fields(task.options) if (value := keywords.pop(entry.name, None)) is not None}
    strange = [name for name in _TARGET if keywords.pop(name, None) not in (None, ())]
    if strange:
        raise InputError(f"--{_SPELT.get(strange[0], strange[0])} does not describe a target of kind {kind}")
    if file is None:
        return task.target(said)
    if said:
        raise InputError(f"--{next(iter(said)).replace('_', '-')} does not go with --target, which describes the whole task")
    target = lf.load_target(file)
    if target.kind != kind:
        raise InputError(f"{file} holds a target of kind {target.kind}, one of kind {kind} is needed here")
    return target


def place(name: str, help: str) -> Callable[[Command], Command]:
    """A flag for a file to write; a place that cannot be written is refused at once."""

    def checked(context: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
        from constructions.files.places import check_place

        if value is not None:
            check_place(value, overwrite=True)
            if name == "figure":
                from verify.report.figures.style import check_suffix

                check_suffix(value)
        return value

    return click.option(f"--{name}", type=NEW, callback=checked, help=help)


def output(command: Command) -> Command:
    """--out for a bundle, and --force."""
    command = click.option("--force", is_flag=True, help="Replace a bundle that is there, in one step.")(command)
    return click.option("--out", type=NEW, required=True, help="Folder of the bundle: card, weights, citation.")(command)


def answers(command: Callable[..., Answer]) -> Callable[..., None]:
    """Add --json and --quiet; show what the command returns, and exit with 1 if it is a violated claim, with 3 if it is undecided."""

    @click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
    @click.option("--quiet", is_flag=True, help="No progress display.")
    @functools.wraps(command)
    def run(*args: Any, as_json: bool, quiet: bool, **kwargs: Any) -> None:
        from lemmaformer.progress import PROGRESS

        token = PROGRESS.set(not (as_json or quiet))
        try:
            result = command(*args, **kwargs)
        finally:
            PROGRESS.reset(token)
        if as_json:
            click.echo(json.dumps(result.as_dict(), ensure_ascii=False))
        else:
            from verify.report.showing import show

            show(result)
        if not getattr(result, "holds", True):
            sys.exit(1)
        if getattr(result, "undecided", False):
            sys.exit(3)

    return run
