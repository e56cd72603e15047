"""Targets as plain data, from TOML files and from cards: `READERS` is the table of the kinds that may be named."""

from collections.abc import Callable
from typing import Any, TypeVar

from analyzer.errors import InputError
from analyzer.kernels.memory_kernels import envelope_from
from analyzer.targets.adaptive import adaptive_from_dict
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.kernel import KernelMemory
from analyzer.targets.protocol import Target
from analyzer.targets.task import task_from_dict, task_kinds


def target_from_dict(data: Any, source: str) -> Target:
    """A target from parsed TOML or JSON; unknown kinds, keys and types are refused."""
    kind = data.get("kind") if isinstance(data, dict) else None
    reader = READERS.get(kind, task_from_dict if kind in task_kinds() else None) if isinstance(kind, str) else None
    if reader is None:
        *others, last = map(repr, (*READERS, *task_kinds()))
        raise InputError(f"{source}: kind is {str(kind)[:40]!r}, expected {', '.join(others)} or {last}")
    return reader(data, source)


Kind = TypeVar("Kind", bound=Target)


def target_of_kind(data: Any, source: str, kind: type[Kind]) -> Kind:
    """A target from parsed TOML or JSON that must be of the given class."""
    target = target_from_dict(data, source)
    if not isinstance(target, kind):
        needed = f"one of kind {kind.kind} is needed here"
        raise InputError(f"{source} holds a target of kind {target.kind}, {needed}; build {target.kind} takes it")
    return target


def _checked_keys(data: dict[str, Any], allowed: set[str], source: str) -> str | None:
    """The read-out's text, after a look at the keys."""
    unknown = set(data) - {"kind", "dim", "readout"} - allowed
    if unknown:
        raise InputError(f"{source}: unknown key {sorted(unknown)[0]!r}")
    formula = data.get("readout")
    if formula is not None and not isinstance(formula, str):
        raise InputError(f"{source}: readout must be text")
    return formula


def _fixed_from_dict(data: dict[str, Any], source: str) -> FixedMemory:
    formula, lags = _checked_keys(data, {"lags", "alphabet"}, source), data.get("lags")
    if not isinstance(lags, list):
        raise InputError(f"{source}: lags must be a list of whole numbers")
    alphabet = data.get("alphabet")
    if alphabet is not None and not isinstance(alphabet, list):
        raise InputError(f"{source}: alphabet must be a list of letters such as [-1, 1]")
    return FixedMemory(tuple(lags), data.get("dim", 1), formula, None if alphabet is None else tuple(alphabet))


def _kernel_from_dict(data: dict[str, Any], source: str) -> KernelMemory:
    formula, kernels = _checked_keys(data, {"kernels", "envelopes"}, source), data.get("kernels")
    if not isinstance(kernels, list) or not all(isinstance(text, str) for text in kernels):
        raise InputError(f"{source}: kernels must be a list of expressions in s")
    claims = data.get("envelopes", [])
    if not isinstance(claims, list) or len(claims) not in (0, len(kernels)):
        raise InputError(f"{source}: envelopes must be a list with one entry per kernel")
    envelopes = tuple(envelope_from(claim, source) for claim in claims)
    return KernelMemory(tuple(kernels), data.get("dim", 1), formula, envelopes)


def _coupling_from_dict(data: dict[str, Any], source: str) -> Target:
    from analyzer.targets.coupling import coupling_from_dict  # here, so that memories do not wait for numpy

    return coupling_from_dict(data, source)


def _sequence_from_dict(data: dict[str, Any], source: str) -> Target:
    from analyzer.targets.sequence import sequence_from_dict  # here, so that memories do not wait for numpy

    return sequence_from_dict(data, source)


def _points_from_dict(data: dict[str, Any], source: str) -> Target:
    from analyzer.targets.points import points_from_dict

    return points_from_dict(data, source)


READERS: dict[str, Callable[[dict[str, Any], str], Target]] = {
    "fixed": _fixed_from_dict,
    "adaptive": adaptive_from_dict,
    "kernel": _kernel_from_dict,
    "coupling": _coupling_from_dict,
    "sequence": _sequence_from_dict,
    "points": _points_from_dict,
}
"""Who reads a target of which kind; all other kinds are tasks."""
