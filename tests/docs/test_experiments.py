"""Experiments that are kept: pages are drawn from their data, agreement is counted from it, and nothing of it can be changed unseen."""

import copy
import json
from typing import Any

import pytest

from docs.site import experiments
from docs.site.experiments import COMMANDS, FOLDER, OVERVIEW, agreement, drawn, duration, overview, page, records
from tests.house.test_snapshots import commands

KEPT = records()


def test_pages_are_what_is_kept() -> None:
    assert {place: place.read_text(encoding="utf-8") for place in drawn()} == drawn(), "run `python -m docs.site.experiments`"
    assert {file.stem for file in FOLDER.iterdir()} == set(KEPT) and {file.suffix for file in FOLDER.iterdir()} == {".json", ".md"}
    assert OVERVIEW.read_text(encoding="utf-8").count("](experiments/") == len(KEPT)


def test_every_published_experiment_has_its_command() -> None:
    import cli

    names = {name.removeprefix("experiment ") for name in commands(cli.cli) if name.startswith("experiment ")}
    assert set(COMMANDS) == names - {"arms"}  # no published one: it takes a network
    full = {name for name, (command, _) in COMMANDS.items() if command.endswith("--full")}
    assert full == {name for name in COMMANDS if name.startswith(("we-1", "we-2", "we-4", "jl-table-2", "jl-table-3"))}


@pytest.mark.parametrize("name", KEPT)
def test_records_say_what_was_run_where_and_how_long(name: str) -> None:
    kept = KEPT[name]
    assert kept["command"] == f"lemmaformer {COMMANDS[name][0]}" and kept["answer"]["experiment"] == name
    assert kept["date"] > "2026-11" and "cores" in kept["machine"] and kept["seconds"] >= 1 and "/" not in kept["machine"].partition(";")[0]
    assert kept["code"] == (1 if kept["answer"].get("violations") else 0)
    if "--full" in kept["command"]:
        protocol = kept["answer"]["protocol"]
        assert protocol["steps"] == (30_000 if name.startswith("jl") else 10_000)


@pytest.mark.deep(keep=("we-1b", "jl-table-2", "jl-fig-3"))
@pytest.mark.parametrize("name", KEPT)
def test_another_number_is_another_page(name: str) -> None:
    changed: dict[str, Any] = copy.deepcopy(KEPT[name])
    row = changed["answer"]["rows"][0]
    key = next(key for key in ("mse", "mse_mean", "certified", "loss", "held_out_error", "cross_entropy", "l1", "upper") if key in row)
    if isinstance(row[key], dict):
        row[key]["mean"] *= 3
    else:
        row[key] = 3 * row[key]
    assert page(name, changed) != page(name, KEPT[name])


def test_agreement_is_counted() -> None:
    answer = {"claims": [{"agrees": True}, {"agrees": False}], "violations": 0}
    assert agreement(answer) == "1 of 2 claims of the print are found again. Certified floors that a run fell below: none."
    assert "below: 2." in agreement({**answer, "violations": 2}) and agreement({}) == "No number of the print is compared."
    assert agreement({"fits": {"a": {"agrees_with_published": True}, "b": None}}).startswith("1 of 2")
    assert agreement({"ratios": [{"agrees": True}]}).startswith("1 of 1")
    assert (duration(119), duration(130)) == ("119 s", "2 min")


def test_the_overview_has_a_row_for_each() -> None:
    kept = {"we-4a": {"command": "c", "date": "2026-11-18", "seconds": 3, "answer": {"claims": [{"agrees": True}]}}}
    assert (
        overview(kept).splitlines()[-1]
        == "| [we-4a](experiments/we-4a.md) | `c` | 1 of 1 claims of the print are found again. | 2026-11-18 | 3 s |"
    )


def test_unknown_experiments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        experiments.main(["we-5"])
    assert "'we-5' is no experiment; choose from we-1b" in str(refused.value)


def test_data_is_json_with_signs_left_as_they_are() -> None:
    for name in KEPT:
        text = (FOLDER / f"{name}.json").read_text(encoding="utf-8")
        assert json.loads(text) == KEPT[name] and "\\u" not in text
