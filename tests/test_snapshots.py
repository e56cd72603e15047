"""The JSON of every command is what was recorded: same keys, same words, same numbers up to the tolerances below.

`tests/snapshots/commands.toml` names the command lines; a family of them runs in order in one folder, and its outputs stand in a file of
the same name. A change of the JSON that is meant goes into `ADDED` or `_verdict_may_be`, or is recorded again:
`python -m tests.record_snapshots [FAMILY …]`.
"""

import json
import math
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
EXAMPLES = Path(__file__).parent.parent / "examples"
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
        found["outputs"] = {"dtype": str(outputs.dtype), "shape": list(outputs.shape), "values": outputs.ravel().tolist()}
    return found


ADDED = {"bound_vacuous"}
"""Keys that may be there without having been recorded."""
FREE_TEXT = {"advice", "faults", "findings", "kernel_reason", "note", "page", "probes_reason", "reason", "sentence", "uncertified"}
"""Sentences for people: there has to be one wherever there was one, and its words may change."""
CLOCK = {"seconds"}
TRAINED = {"trained"}
"""Families whose numbers come out of training, where the last digits of a machine's arithmetic grow with every step: their types count."""
VERDICTS = {"holds", "vacuous", "violated", "measured"}

CERTIFIED = 1e-6
MEASURED = 1e-3


def differences(wanted: Any, found: Any, trained: bool = False, path: str = "") -> Iterator[str]:
    """Where and how the JSON differs from the recorded one; `trained`: numbers and verdicts of trained networks are not compared."""
    key = path.rpartition(".")[2].partition("[")[0]
    if key in FREE_TEXT and isinstance(wanted, str):
        if not isinstance(found, str) or not found.strip():
            yield f"{path}: {found!r} is no text"
    elif isinstance(wanted, dict) and isinstance(found, dict):
        for name in wanted.keys() | found.keys():
            if name not in found:
                yield f"{path}.{name} is missing"
            elif name in wanted:
                if name != "verdict" or trained:
                    yield from differences(wanted[name], found[name], trained, f"{path}.{name}")
            elif name not in ADDED:
                yield f"{path}.{name} is new"
        if "verdict" in wanted and "verdict" in found and not trained:
            yield from _verdicts(wanted, found, path)
    elif isinstance(wanted, list) and isinstance(found, list):
        if len(wanted) != len(found):
            yield f"{path}: {len(found)} entries instead of {len(wanted)}"
        for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
            yield from differences(one, other, trained, f"{path}[{index}]")
    elif trained and key == "verdict":
        if found not in VERDICTS:
            yield f"{path}: {found!r} is no verdict"
    elif trained and isinstance(wanted, float | None) and isinstance(found, float | None):
        return  # what is not finite is null
    elif type(wanted) is not type(found):
        yield f"{path}: {found!r} instead of {wanted!r}"
    elif isinstance(wanted, float):
        relative, absolute = tolerance(key)
        if not math.isclose(wanted, found, rel_tol=relative, abs_tol=absolute):
            yield f"{path}: {found!r} instead of {wanted!r}, by more than {relative} of it"
    elif wanted != found:
        yield f"{path}: {found!r} instead of {wanted!r}"


def tolerance(key: str) -> tuple[float, float]:
    return CERTIFIED, 0.0


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


@pytest.mark.parametrize("family", FAMILIES)
def test_json_is_as_recorded(family: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_inputs(tmp_path)
    recorded = json.loads((FOLDER / f"{family}.json").read_text(encoding="utf-8"))
    assert list(recorded) == list(FAMILIES[family])
    found = {name: answer(run, line) for name, line in FAMILIES[family].items()}
    assert [*differences(recorded, found, family in TRAINED)] == []
