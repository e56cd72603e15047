"""A reference of every public name from its docstring: signature, text, examples, and the methods of classes."""

import inspect
import re
from types import ModuleType
from typing import Any

import lemmaformer as lf
from analyzer.options import Options, default_text, typed_fields


def page() -> str:
    """The whole page."""
    parts = ["# Reference", "Every public name with its docstring, in the order of the alphabet; [Python](api.md) has them by subject."]
    for name in lf.__all__:
        thing = getattr(lf, name)
        if isinstance(thing, ModuleType):
            parts += [f"## {name}", _text(thing.__doc__)]
            for inner in thing.__all__:
                parts += _entry(f"{name}.{inner}", getattr(thing, inner), "###")
        else:
            parts += _entry(name, thing, "##")
    return "\n\n".join(part for part in parts if part) + "\n"


def _entry(name: str, thing: Any, level: str) -> list[str]:
    parts = [f"{level} {name}", _signature(name, thing), _text(inspect.getdoc(thing))]
    if inspect.isclass(thing):
        for member, value in vars(thing).items():
            said = None if member.startswith("_") or inspect.isclass(value) else _own(value)
            if said:
                call = " ".join(f"{name}.{member}{_arguments(value) if inspect.isfunction(value) else ''}".split())
                parts += [f"`{call}`", _text(said)]
    return parts


def _own(value: Any) -> str | None:
    """The docstring of a method or property; plain values have that of their type, which is not theirs."""
    if isinstance(value, property | staticmethod | classmethod) or inspect.isfunction(value) or hasattr(value, "attrname"):
        return inspect.getdoc(value)
    return None


def _signature(name: str, thing: Any) -> str:
    if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, BaseException)) or getattr(thing, "_is_protocol", False):
        return ""
    if inspect.isclass(thing) and issubclass(thing, Options) and thing is not Options:
        return "\n".join(_fields(thing))
    call = f"{name}{_arguments(thing)}"
    return f"```{'text' if '<' in call or '…' in call else 'python'}\n{call}\n```"


def _fields(options: type[Options]) -> list[str]:
    """Options as a table: name, default, meaning."""
    rows = ["| option | default | meaning |", "|---|---|---|"]
    for entry, _ in typed_fields(options):
        shown = default_text(entry)
        said = entry.metadata["help"].replace("|", r"\|")
        rows.append(f"| `{entry.name}` | {'-' if shown is None else f'`{shown}`'} | {_escaped(said)} |")
    return rows


def _arguments(thing: Any) -> str:
    try:
        found = re.sub(r"'([^']*)'", r"\1", str(inspect.signature(thing)))
    except (TypeError, ValueError):
        return "(…)"
    return found if len(found) < 100 else re.sub(r", (?=\*{0,2}\w+[:=,])", ",\n    ", found)


def _text(doc: str | None) -> str:
    """A docstring as Markdown: paragraphs as they are, examples as code."""
    parts = []
    for paragraph in (doc or "").split("\n\n"):
        lines = paragraph.splitlines()
        if any(line.lstrip().startswith(">>>") for line in lines):
            parts.append("```pycon\n" + inspect.cleandoc(paragraph) + "\n```")
        elif lines and all(line.startswith("    ") or not line for line in lines):
            parts.append("```text\n" + inspect.cleandoc(paragraph) + "\n```")
        else:
            kept = re.split(r"(`[^`]*`)", paragraph)
            parts.append("".join(piece if piece.startswith("`") else _escaped(piece) for piece in kept))
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    return re.sub(r"([*_<\[\]$#|])", r"\\\1", text)
