"""The JSON of every command is what was recorded: same keys, same words, same numbers up to the tolerances below.

`tests/house/snapshots/commands.toml` names the command lines; a family of them runs in order in one folder, and its outputs stand in a file
of the same name. A change of the JSON that is meant is written into `ADDED` or `_verdicts`, or is recorded again:
`python -m tests.house.record_snapshots [FAMILY …]`.
"""

import json
import math
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from safetensors.numpy import save_file

import cli

Run = Callable[..., Any]
FOLDER = Path(__file__).parent / "snapshots"
EXAMPLES = Path(__file__).parent.parent.parent / "examples"
FAMILIES: dict[str, dict[str, str]] = tomllib.loads((FOLDER / "commands.toml").read_text(encoding="utf-8"))

CONFIG = """
dtype = "float64"
[target]
kind = "fixed"
dim = 2
lags = [2]
readout = "m1[0]"
[[layer]]
kind = "dp-free"
window = "finite"
rpe = ["lin", "log"]
heads = 2
decay = [0.5, 2.5]
"""


def numbers(*shape: int) -> np.ndarray:
    """Dyadic numbers in [-3/4, 3/4] without a pattern, the same on every machine."""
    return ((7 * np.arange(np.prod(shape)) ** 2 % 13) - 6).reshape(shape) / 8


def write_inputs(folder: Path) -> None:
    """The files that the commands read and no command writes."""
    tokens = {
        "x": numbers(24),
        "batch": numbers(2, 12, 1),
        "plane": numbers(12, 2),
        "signs": np.sign(numbers(24) + 1 / 16),
        "letters": np.floor(4 * numbers(24) % 4 + 1) / 4,
        "unit": numbers(3) % 1,
        "long": numbers(9) % 1,
        "stream": numbers(6, 4),
    }
    for name, array in tokens.items():
        np.save(folder / f"{name}.npy", array)
    save_file({"query": numbers(4, 4), "key": numbers(4, 4).T.copy()}, folder / "scores.safetensors")
    weights = {
        "embedding.weight": numbers(3, 2), "embedding.bias": numbers(3), "layers.0.attention.output.weight": numbers(3, 4),
        "layers.0.attention.value.weight": numbers(4, 3), "layers.0.feedforward.inner.weight": numbers(5, 3),
        "layers.0.feedforward.inner.bias": numbers(5), "layers.0.feedforward.outer.weight": numbers(1, 5),
    }  # fmt: skip
    save_file(weights, folder / "weights.safetensors")
    (folder / "config.toml").write_text(CONFIG)
    (folder / "other.toml").write_text('kind = "fixed"\nlags = [1]\nreadout = "x0 + m1"\n')


def answer(run: Run, line: str) -> dict[str, Any]:
    """Exit code and JSON of one command line, and what `run` wrote; paths of this checkout are named as in the command line."""
    arguments = shlex.split(line.replace("EXAMPLES", str(EXAMPLES)))
    done = run(*arguments, "--json")
    found: dict[str, Any] = {"code": done.code, "json": json.loads(done.out.replace(str(EXAMPLES), "EXAMPLES")) if done.out else None}
    if arguments[0] == "run" and done.code == 0:
        outputs = np.load(arguments[arguments.index("--output") + 1])
        found["outputs"] = {"dtype": str(outputs.dtype), "shape": list(outputs.shape), found["json"]["dtype"]: outputs.ravel().tolist()}
    return found


ADDED = {"bound_vacuous", "mean_square_floor", "mean_square_floor_reason"}
"""Keys that may be there without having been recorded."""
FREE_TEXT = {
    "advice",
    "faults",
    "findings",
    "kernel_reason",
    "note",
    "objective",
    "page",
    "probes_reason",
    "reason",
    "sentence",
    "uncertified",
    "why",
}
"""Sentences for people: there has to be one wherever there was one, and its words may change."""
VARYING = {"seconds", "cells", "singular_error"}
"""Time, and how far a search had to refine: whole numbers or not, their type counts."""
TRAINED = {"trained"}
"""Families whose numbers come out of training, where differences in the last digit grow with every step: their types count."""
RESTORED = re.compile(r"\.restored run( outside\.outputs\.float32\[\d+\]|\.outputs\.float32\[(\d|1[01])\])")
"""Outputs of a restored chain that no certificate covers: its staircases read zeros before the array, or tokens that are no letters, so
that the last bits of the machine decide. The chain for lag 12 settles at the twelfth token."""
NUMBER = re.compile(r"-?[0-9]+(\*2\^-?[0-9]+)?")
VERDICTS = {"holds", "vacuous", "violated", "measured"}


def tolerance(path: str, rounding: float) -> tuple[float, float]:
    """Relative and absolute; checked by recording with another instruction set (OPENBLAS_CORETYPE=Prescott, --xla_cpu_max_isa=SSE4_2).

    `rounding` is the certificate's: on every machine the outputs of the network are that close to those in exact arithmetic, so two
    machines differ by at most twice as much, and so do witnesses and means of errors.
    """
    parts = path.split(".")
    if parts[-1].startswith("float32["):
        return 0.0, 1e-2  # outputs, before there is a certificate to ask; their networks are built for errors of that size and more
    if "sampled" in parts:
        return 1e-3, max(2 * rounding, 1e-6)  # sampled errors of float32 outputs of size 1 carry a few roundings of 2^-24
    if "decay" in parts:
        return 1e-3, 0.0  # a line through logarithms of singular values, the last of which are known to a few digits
    if parts[-1] == "witness":
        return 1e-6, max(2 * rounding, 1e-14)
    # searches and decompositions end within 1e-11 of each other on different machines; what vanishes does so to a few roundings of 2^-53
    return 1e-6, 1e-14


def differences(wanted: Any, found: Any, trained: bool = False, path: str = "", rounding: float = 0.0) -> Iterator[str]:
    """Where and how the JSON differs from the recorded one; `trained`: numbers and verdicts of trained networks are not compared."""
    key = path.rpartition(".")[2].partition("[")[0]
    if isinstance(wanted, dict) and isinstance(found, dict):
        certificate = wanted.get("certificate")
        near = next((data["rounding"] for data in (wanted, certificate) if isinstance(data, dict) and "rounding" in data), None)
        for name in sorted(wanted.keys() | found.keys()):
            place = f"{path}.{name}"
            if name not in found:
                yield f"{place} is missing"
            elif name not in wanted:
                if name not in ADDED:
                    yield f"{place} is new"
            elif name != "verdict" or trained:
                yield from differences(wanted[name], found[name], trained, place, near if isinstance(near, float) else rounding)
        if not trained and "verdict" in wanted and "verdict" in found:
            yield from _verdicts(wanted, found, path)
    elif isinstance(wanted, list) and isinstance(found, list):
        if len(wanted) != len(found):
            yield f"{path}: {len(found)} entries instead of {len(wanted)}"
        for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
            yield from differences(one, other, trained, f"{path}[{index}]", rounding)
    elif trained and isinstance(wanted, float | None) and isinstance(found, float | None):
        return  # what is not finite is null
    elif type(wanted) is not type(found):
        yield f"{path}: {found!r} instead of {wanted!r}"
    elif key in FREE_TEXT and isinstance(wanted, str):
        if bool(wanted.strip()) != bool(found.strip()):
            yield f"{path}: {found!r} instead of {wanted!r}"
    elif key in VARYING or (isinstance(wanted, float) and RESTORED.fullmatch(path)):
        return
    elif key == "verdict" and trained:
        if found not in VERDICTS:
            yield f"{path}: {found!r} is no verdict"
    elif key == "witness_input":
        # the worst of equally bad tokens is another one on another machine; comparisons show a sampled witness where it is larger
        if NUMBER.sub("#", wanted) != NUMBER.sub("#", found) and not found.startswith("sampled sequence"):
            yield f"{path}: {found!r} instead of {wanted!r}"
    elif isinstance(wanted, float):
        relative, absolute = tolerance(path, rounding)
        if not math.isclose(wanted, found, rel_tol=relative, abs_tol=absolute):
            yield f"{path}: {found!r} instead of {wanted!r}; {relative:g} of it and {absolute:g} are allowed"
    elif wanted != found:
        yield f"{path}: {found!r} instead of {wanted!r}"


def _verdicts(wanted: dict[str, Any], found: dict[str, Any], path: str) -> Iterator[str]:
    """`vacuous` was said of errors that were only sampled, now `measured`, and of certified errors below those of a constant beside a bound
    above them, now `holds` with `bound_vacuous`; all other verdicts stay."""
    before, now, marked = wanted["verdict"], found["verdict"], found.get("bound_vacuous", False)
    if before == "vacuous" and wanted.get("certified") is None:
        allowed = now in ("vacuous", "measured")
    elif before == "vacuous" and now == "holds":
        allowed = wanted["certified"] < wanted["trivial"] and marked is True
    else:
        allowed = now == before
    if not allowed:
        yield f"{path}.verdict: {now!r} (bound_vacuous {marked!r}) instead of {before!r}"
    if marked is not False and before != "vacuous":
        yield f"{path}.bound_vacuous: {marked!r} beside {before!r}"


def recorded_answers(family: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{family}.json").read_text(encoding="utf-8"))


@pytest.mark.deep(keep=("claims", "theorems"))
@pytest.mark.parametrize("family", FAMILIES)
def test_json_is_as_recorded(family: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    recorded = recorded_answers(family)
    assert list(recorded) == list(FAMILIES[family])
    found = {name: answer(run, line) for name, line in FAMILIES[family].items()}
    assert [*differences(recorded, found, family in TRAINED)] == []


LEFT_OUT = {
    "demo", "doctor", "experiment jl-table-1", "experiment jl-table-2", "experiment jl-table-3", "experiment jl-fig-1",
    "experiment jl-fig-2", "experiment jl-fig-3", "experiment jl-fig-4", "experiment jl-fig-5", "experiment horizon",
    "experiment we-1b", "experiment we-2a", "experiment we-2b", "experiment we-3a", "experiment we-4a", "experiment we-4b",
    "experiment we-lm", "explore", "export", "gallery", "report", "sweep",
}  # fmt: skip
"""Commands that take more than ten seconds with the fewest steps, `sweep`, those that write pages and exports, and `doctor`, whose numbers
are the machine's; tests of their own read their JSON."""


def commands(group: click.Group, prefix: tuple[str, ...] = ()) -> Iterator[str]:
    """All commands below a group, as they are typed."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*prefix, name))
        else:
            yield " ".join((*prefix, name))


def test_every_command_is_recorded() -> None:
    lines = [line for family in FAMILIES.values() for line in family.values()]
    missing = [command for command in commands(cli.cli) if not any(line.startswith(command) for line in lines)]
    assert sorted(missing) == sorted(LEFT_OUT)
    assert {path.stem for path in FOLDER.glob("*.json")} == set(FAMILIES)


def test_nothing_of_this_machine_is_recorded() -> None:
    for family in FAMILIES:
        text = (FOLDER / f"{family}.json").read_text(encoding="utf-8")
        assert str(EXAMPLES) not in text and "/tmp" not in text


def changed(family: str, command: str, change: Callable[[dict[str, Any]], object], trained: bool = False) -> list[str]:
    """Differences that are seen after a change of one recorded answer."""
    wanted, found = recorded_answers(family)[command], recorded_answers(family)[command]
    change(found)
    return [*differences(wanted, found, trained)]


@pytest.mark.parametrize(
    ("change", "seen"),
    [
        (lambda a: a.update(code=1), ".code: 1 instead of 0"),
        (lambda a: a.update(json=None), ".json: None instead of"),
        (lambda a: a["json"].update(certified=a["json"]["certified"] * 1.00001), ".json.certified"),
        (lambda a: a["json"].update(certified=str(a["json"]["certified"])), ".json.certified"),
        (lambda a: a["json"].update(certified=None), ".json.certified: None"),
        (lambda a: a["json"].pop("rounding"), ".json.rounding is missing"),
        (lambda a: a["json"].update(extra=1), ".json.extra is new"),
        (lambda a: a["json"]["sizes"].update(heads=6), ".json.sizes.heads: 6 instead of 5"),
        (lambda a: a["json"]["sizes"].update(heads=5.0), ".json.sizes.heads: 5.0 instead of 5"),
        (lambda a: a["json"]["parts"].pop(), ".json.parts: "),
        (lambda a: a["json"]["parts"][0].update(name="extraction"), ".json.parts[0].name"),
        (lambda a: a["json"].update(advice=" "), ".json.advice"),
        (lambda a: a["json"].update(faults=["a fault"]), ".json.faults: 1 entries instead of 0"),
        (lambda a: a["json"].update(witness=a["json"]["witness"] * 1.001), ".json.witness"),
        (lambda a: a["json"].update(witness_input="nothing"), ".json.witness_input"),
        (lambda a: a["json"].update(verdict="vacuous"), ".json.verdict: 'vacuous'"),
        (lambda a: a["json"].update(verdict="measured"), ".json.verdict: 'measured'"),
        (lambda a: a["json"].update(bound_vacuous=True), ".json.bound_vacuous"),
    ],
)  # fmt: skip
def test_changes_are_seen(change: Callable[[dict[str, Any]], object], seen: str) -> None:
    (found,) = changed("fixed", "minimal", change)
    assert found.startswith(seen)


def test_what_may_change_is_not_seen() -> None:
    assert changed("fixed", "minimal", lambda a: a["json"].update(advice="well done", seconds=1e3, bound_vacuous=False)) == []
    assert changed("fixed", "minimal", lambda a: a["json"].update(certified=a["json"]["certified"] * (1 + 1e-9))) == []
    assert changed("coupling", "pod", lambda a: a["json"].update(witness_input=a["json"]["witness_input"].replace("1", "3"))) == []
    assert changed("constructed", "imported verified", lambda a: a["json"].update(verdict="measured")) == []
    better = {"verdict": "holds", "bound_vacuous": True}
    assert changed("fixed", "tuned heads", lambda a: a["json"].update(better)) == []
    assert changed("fixed", "tuned heads", lambda a: a["json"].update(verdict="holds")) != []  # the mark is missing
    assert changed("fixed", "tuned heads", lambda a: a["json"].update(verdict="measured")) != []  # the error is certified
    assert changed("fixed", "paper", lambda a: a["json"].update(better)) != []  # certified 4.95, where a constant errs by 1
    assert changed("constructed", "imported verified", lambda a: a["json"].update(better)) != []  # nothing is certified


def test_trained_numbers_may_change_and_nothing_else() -> None:
    def look(change: Callable[[dict[str, Any]], object]) -> list[str]:
        return changed("trained", "dp-free", lambda a: change(a["json"]), trained=True)

    assert look(lambda a: a.update(certified=0.5, verdict="holds", cells=3)) == []
    assert look(lambda a: a.update(certified="0.5")) != [] and look(lambda a: a.update(verdict="fine")) != []
    assert look(lambda a: a["training"].pop("loss")) != [] and look(lambda a: a["training"].update(more=1)) != []
    assert look(lambda a: a["sizes"].update(heads=3)) != []


@pytest.mark.deep
def test_roundings_are_allowed_for() -> None:
    """Witnesses and samples of float networks may differ by twice their certified rounding, certified numbers may not."""
    rounding = recorded_answers("floats")["float32"]["json"]["rounding"]

    def off(key: str, by: float) -> list[str]:
        return changed("floats", "float32", lambda a: a["json"].update({key: a["json"][key] + by * rounding}))

    assert off("witness", 1.9) == [] and off("witness", 2.1) != [] and off("certified", 0.1) != []
