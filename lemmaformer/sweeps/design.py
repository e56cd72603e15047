"""Which jobs a sweep has: a specification (docs/sweeps.md), read and checked before anything runs.

    call = "build"              the command
    points = 200                [random]: so many points, drawn from
    seed = 1                    this seed
    [target]                    the target, if the command has one; "{T}" stands for the value of T
    [options]                   options and parameters that do not vary
    [grid]                      what varies: every combination, the last name fastest
    [random]                    what is drawn: every draw is combined with the whole grid

Every variable has random numbers of its own, from the seed and its name: more points or variables leave those that were there as they
were.
"""

import difflib
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice, product
from pathlib import Path
from typing import Any

from analyzer.errors import InputError
from lemmaformer.sweeps.commands import check_value, known_names, option_classes, swept
from lemmaformer.sweeps.jobs import Job
from lemmaformer.sweeps.tables import COLUMNS

MAX_JOBS = 100_000
"""Jobs of a sweep."""
KEYS = ("call", "points", "seed", "target", "options", "grid", "random")
TABLES = ("target", "options", "grid", "random")
RANGE = re.compile(r"(-?\d{1,12}):(-?\d{1,12})(?::(\d{1,12}))?")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?")
HOLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")
DIGITS = 6
"""Significant digits of drawn numbers: their last bits would depend on the machine."""
LARGEST_POWER = 400
"""Of ten, in decimals of a target."""
TRIED = 100
"""Targets that are tried to find one that can be read."""

Point = dict[str, Any]


@dataclass(frozen=True)
class Design:
    """The jobs of a sweep, and the values of what varies in each."""

    call: str
    points: tuple[Point, ...]
    jobs: tuple[Job, ...]


def read_design(spec: "str | Path | Mapping[str, Any]") -> Design:
    """The design of a TOML file, or of the same as a mapping."""
    if isinstance(spec, Mapping):
        return design_of(spec, "the specification")
    from analyzer.toml import read_toml

    return design_of(read_toml(Path(spec)), str(spec)[:80])


def design_of(spec: Mapping[str, Any], source: str) -> Design:
    """A specification, checked: names and values are known, there are not too many points, and a target can be read."""
    _check_keys(spec, source)
    call, command = spec["call"], swept(spec["call"])
    target, options = spec.get("target"), spec.get("options", {})
    if target is None and command.target:
        raise InputError(f"{source}: {call} needs a [target]")
    if target is not None and command.target is None:
        raise InputError(f"{source}: {call} has no target")
    points = _points(spec, source)
    varied = list(points[0])
    used = _check_holes([target, options], varied)
    filled = [(_target_at(target, point), _options_at(options, point)) for point in points]
    theorems = dict.fromkeys(said["theorem"] for _, said in filled if isinstance(said.get("theorem"), str))
    kinds = dict.fromkeys(str(found.get("kind")) for found, _ in filled if found is not None)
    classes = option_classes(call, theorems, kinds)
    known = known_names(command, classes)
    _check_names(varied, used, target, known, call)
    for name in options:
        _check_known(name, known, f"unknown option {name[:40]!r} of {call}")
    jobs = [_job(call, found, {name: said[name] for name in said if name in known}) for found, said in filled]
    for name in list(command.parameters)[: command.required]:
        if name not in jobs[0].parameters:
            raise InputError(f"{source}: {call} needs {name}")
    values = {(name, repr(value)): value for job in jobs for name, value in job.parameters.items() if name != "target"}
    for (name, _), value in values.items():
        check_value(command, classes, name, value)
    _check_targets([found for found, _ in filled if found is not None])
    return Design(call, tuple({name: _plain(value) for name, value in point.items()} for point in points), tuple(jobs))


def _check_keys(spec: Mapping[str, Any], source: str) -> None:
    for name in spec:
        _check_known(str(name), KEYS, f"{source}: unknown key {str(name)[:40]!r}")
    if "call" not in spec:
        raise InputError(f"{source} does not say which command to call")
    for name in TABLES:
        if not isinstance(spec.get(name, {}), Mapping):
            raise InputError(f"{source}: {name} must be a table")
    for name in ("points", "seed"):
        value = spec.get(name, 1)
        if not _whole(value) or value < (name == "points"):
            raise InputError(f"{source}: {name} is {str(value)[:40]!r}; give a whole number")
    if bool(spec.get("random")) != ("points" in spec):
        raise InputError(f"{source}: points and [random] go together: how many points, and what is drawn for each")
    places = [(name, place) for place in ("options", "grid", "random") for name in spec.get(place, {})]
    for name, place in places:
        strange = not NAME.fullmatch(str(name)) or name in COLUMNS or ("." in name and not name.startswith("target."))
        if strange and (place != "options" or not isinstance(name, str)):
            raise InputError(f"{source}: {str(name)[:40]!r} is no name for what varies; give an option, target.KEY or a name of your own")
        if sum(other == name for other, _ in places) > 1:
            raise InputError(f"{source}: {name} is given twice, in {' and '.join(where for other, where in places if other == name)}")


def _check_known(name: str, known: Sequence[str], message: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        raise InputError(f"{message}; {f'did you mean {near[0]!r}? ' if near else ''}known: {', '.join(known)}")


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _points(spec: Mapping[str, Any], source: str) -> list[Point]:
    """What varies in each job: draws, and for each of them the whole grid."""
    axes = {name: _values(name, values) for name, values in spec.get("grid", {}).items()}
    draws = spec.get("points", 1)
    count = draws * math.prod(len(values) for values in axes.values())
    if count > MAX_JOBS:
        raise InputError(f"{source} has {count if count < 10**12 else 'more than 10^12'} jobs; a sweep has at most {MAX_JOBS}")
    if not count:
        raise InputError(f"{source} has no jobs: something in [grid] has no values")
    seed = spec.get("seed", 0)
    drawn = {name: _drawn(name, how, f"{seed}:{name}", draws) for name, how in spec.get("random", {}).items()}
    grid = [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]
    return [{name: values[k] for name, values in drawn.items()} | point for k in range(draws) for point in grid]


def _values(name: str, values: Any) -> Sequence[Any]:
    """A list, or a range such as 1:12, both ends included, or 8:64:8."""
    if isinstance(values, list | tuple | range):
        return values
    found = RANGE.fullmatch(values) if isinstance(values, str) else None
    if found is None or found[3] in ("0", "00"):
        raise InputError(f"{name} is {str(values)[:40]!r}; give a list of values, or a range such as '1:12' or '8:64:8'")
    return range(int(found[1]), int(found[2]) + 1, int(found[3] or 1))


def _drawn(name: str, how: Any, seed: str, count: int) -> list[Any]:
    """Random values: of a list or a range, or of an interval, {uniform = [low, high]} or {log-uniform = [low, high]}."""
    draw = _drawing(name, how)
    numbers = random.Random(seed)
    return [draw(numbers.random()) for _ in range(count)]


def _drawing(name: str, how: Any) -> Callable[[float], Any]:
    """A value for a number of [0, 1)."""
    if not isinstance(how, Mapping):
        values = _values(name, how)
        if not values:
            raise InputError(f"{name} has no values to draw from")
        return lambda share: values[int(share * len(values))]
    ends = next(iter(how.values()), None)
    law = next(iter(how), None)
    if len(how) != 1 or law not in ("uniform", "log-uniform") or not isinstance(ends, list | tuple) or len(ends) != 2:
        raise InputError(f"{name} is drawn from a list, a range, {{uniform = [low, high]}} or {{log-uniform = [low, high]}}")
    low, high = (_plain(end) for end in ends)
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high)) or not low < high:
        raise InputError(f"{name} is drawn between {str(ends)[:40]}; give two numbers, the smaller one first")
    if law == "log-uniform" and low <= 0:
        raise InputError(f"{name} is drawn log-uniformly from {low}; give positive numbers")
    return _between(low, high, law == "log-uniform")


def _between(low: float, high: float, by_ratio: bool) -> Callable[[float], Any]:
    """Uniform in the number or its logarithm; whole numbers, both ends included, where both ends are whole."""
    whole = _whole(low) and _whole(high)
    top = high + 1 if whole else high

    def draw(share: float) -> float:
        value = low * (top / low) ** share if by_ratio else low + share * (top - low)
        return min(int(value), high) if whole else min(max(float(f"{value:.{DIGITS}g}"), low), high)

    return draw


def _plain(value: Any) -> Any:
    """A value as JSON says it; decimals become floats."""
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(part) for name, part in value.items()}
    if hasattr(value, "item"):  # a number of numpy
        value = value.item()
    if isinstance(value, Decimal):
        value = float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(f"{value} is no value for a parameter; give finite numbers")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise InputError(f"{str(value)[:40]!r} is no value for a parameter; give numbers, text or lists of them")


def _exact(value: Any) -> Any:
    """The same for targets, whose decimals are exact: they become fractions as text."""
    if isinstance(value, list | tuple):
        return [_exact(part) for part in value]
    if isinstance(value, Mapping):
        return {str(name): _exact(part) for name, part in value.items()}
    if not isinstance(value, Decimal) or not value.is_finite():
        return _plain(value)
    if abs(value.adjusted()) > LARGEST_POWER:
        raise InputError(f"{str(value)[:40]} is no value for a target; give numbers of a usual size")
    return "{}/{}".format(*value.as_integer_ratio())


def _check_holes(where: Any, varied: Sequence[str]) -> set[str]:
    """The names that stand in braces; all of them must vary."""
    named = {name for text in _texts(where) for name in HOLE.findall(text)}
    for name in sorted(named - set(varied)):
        raise InputError(f"{{{name}}} stands for nothing: neither [grid] nor [random] has {name!r}")
    return named


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


def _filled(value: Any, point: Point) -> Any:
    """A value with the names in braces replaced: a text that is one name by the value itself, others by its text."""
    if isinstance(value, Mapping):
        return {name: _filled(part, point) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(part, point) for part in value]
    if not isinstance(value, str):
        return value
    alone = HOLE.fullmatch(value)
    return point[alone[1]] if alone else HOLE.sub(lambda hole: str(point[hole[1]]), value)


def _target_at(target: Mapping[str, Any] | None, point: Point) -> dict[str, Any] | None:
    if target is None:
        return None
    said = {name.removeprefix("target."): value for name, value in point.items() if name.startswith("target.")}
    found: dict[str, Any] = _exact({**_filled(target, point), **said})
    return found


def _options_at(options: Mapping[str, Any], point: Point) -> dict[str, Any]:
    found: dict[str, Any] = _plain({**_filled(options, point), **{name: value for name, value in point.items() if "." not in name}})
    return found


def _check_names(varied: Sequence[str], used: set[str], target: object, known: Sequence[str], call: str) -> None:
    """What varies must mean something: an option, a key of the target, or a name in braces."""
    for name in varied:
        if name.startswith("target."):
            if target is None:
                raise InputError(f"{name} varies, but there is no [target]")
        elif name not in used:
            _check_known(name, known, f"{name!r} is no option of {call}, and {{{name}}} stands nowhere")


def _job(call: str, target: dict[str, Any] | None, said: dict[str, Any]) -> Job:
    return Job(call, said if target is None else {"target": target, **said})


def _check_targets(targets: Sequence[dict[str, Any]]) -> None:
    """Refuse a sweep all of whose targets are malformed; one that is so by itself is a row."""
    from analyzer.targets.files import target_from_dict

    first: InputError | None = None
    for target in islice({repr(target): target for target in targets}.values(), TRIED):
        try:
            target_from_dict(target, "target")
            return
        except InputError as error:
            first = first or error
    if first is not None:
        raise first
