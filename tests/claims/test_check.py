"""`check` as a whole: verdicts, exit codes, rows, and one line for what makes no sense, before anything heavy is loaded."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from lemmaformer.checking import point
from lemmaformer.progress import PROGRESS
from lemmaformer.sweeps.engine import run_jobs
from tests.depth import FULL, examples
from verify.claims import quantities

Run = Callable[..., Any]
ROOT = Path(__file__).parent.parent.parent
TUNED = ["--bank", "tuned", "--rpe", "lin"]


def test_a_true_claim_holds_certified(run: Run) -> None:
    found = run("check", "e <= 3*T**2/H", *TUNED, "--over", "T=1:3", "--over", "H=8,16", "--json")
    assert found.code == 0 and found.json["verdict"] == "holds" and found.json["basis"] == "certified"
    assert found.json["counts"] == {"holds": 6, "refuted": 0, "undecided": 0} and found.json["counterexample"] is None
    for row in found.json["rows"]:
        (low, high), (least, most) = row["sides"]
        assert 0 < low <= high <= least <= most and least <= 3 * row["sizes"]["T"] ** 2 / row["sizes"]["H"] <= most


def test_a_false_claim_is_refuted(run: Run) -> None:
    found = run("check", "e <= T/H", *TUNED, "--over", "T=1:2", "--over", "H=8", "--json")
    assert found.code == 1 and found.json["verdict"] == "refuted"
    assert [row["verdict"] for row in found.json["rows"]] == ["holds", "refuted"]
    assert found.json["counterexample"]["sizes"] == {"T": 2, "H": 8}
    assert found.json["counterexample"]["sides"][0][0] > 0.25


def test_an_open_claim_is_undecided(run: Run) -> None:
    found = run("check", "sqrt(H)**2 <= H", "--over", "H=4,5", "--json")
    assert found.code == 3 and found.json["counts"] == {"holds": 1, "refuted": 0, "undecided": 1}
    assert found.json["rows"][1]["why"].startswith("the two sides agree")
    mixed = lf.check("e <= 1", ["T=3", "H=2,3"])
    assert mixed.undecided and mixed.holds and mixed.counts["undecided"] == 1 and "lag law" in str(mixed.rows[0]["why"])


def test_the_arithmetic_gives_u(run: Run) -> None:
    for arithmetic in (["--dtype", "bfloat16"], ["--bits", "8"], ["--over", "u=0.00390625"])[: 3 if FULL else 1]:
        found = run("check", "E_u >= u*4**T/(2*T)", *arithmetic, "--over", "T=1:2", "--json")
        assert found.code == 0 and found.json["rows"][1]["sides"][1][0] == 2.0**-8 * 16 / 4


@pytest.mark.deep
def test_the_claim_of_the_manual_about_float32(run: Run) -> None:
    found = run("check", "E_u >= u*4**T/(2*T)", "--dtype", "float32", "--over", "T=1:5", "--json")
    assert found.code == 0 and found.json["counts"]["holds"] == 5


@pytest.mark.deep
def test_72_points_are_certified(run: Run) -> None:
    found = run("check", "e <= 3*T**2/H", *TUNED, "--over", "T=1:12", "--over", "H=8,16,32,64,128,256", "--json")
    assert found.code == 0 and found.json["counts"]["holds"] == found.json["points"] == 72


def test_targets_of_other_kinds(run: Run) -> None:
    assert run("check", "sigma(k) <= k**-2", "--rho", "u*v", "--over", "k=1:3", "--json").json["verdict"] == "holds"
    assert run("check", "e <= 1/H", "--kernel", "exp(-s/5)", "--over", "H=1", "--json").json["target"] == "kernel(exp(-s/5))"


def test_the_table_is_for_people(run: Run) -> None:
    shown = run("check", "e <= T/H", *TUNED, "--over", "T=1:2", "--over", "H=8")
    assert "refuted (certified): holds 1, refuted 1 of 2 points" in shown.out
    assert "counterexample: T = 2, H = 8: e is at least 0.93" in shown.out
    many = run("check", "T <= H", "--over", "T=1:150", "--over", "H=150")
    assert "150 rows are not shown" in many.out and many.code == 0
    page = lf.check("T <= H", ["T=1:2", "H=2"])._repr_html_()
    assert page is not None and "T" in page and "holds" in page


def test_points_are_jobs_of_plain_data() -> None:
    token = PROGRESS.set(False)
    row = point("e <= T/H", {"T": "2", "H": "8"}, {"bank": "tuned"})
    PROGRESS.reset(token)
    assert row["verdict"] == "refuted" and json.loads(json.dumps(row)) == row
    rank_one = lf.coupling("u*v")
    described = point("sigma(k) <= 1/2", {"k": "1"}, target=rank_one.describe())
    assert described == point("sigma(k) <= 1/2", {"k": "1"}, target=rank_one) and described["verdict"] == "holds"
    again = lf.check("e <= T/H", {"T": [2], "H": [8]}, bank="tuned")
    assert again.rows[0]["sides"] == row["sides"] and repr(again) == "<ClaimCheck e <= T/H: refuted at 1 of 1 points, certified>"


def test_points_go_through_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}

    def spy(jobs: Any, **how: Any) -> Any:
        seen.update(how, calls=[job.call for job in jobs])
        return run_jobs(jobs)

    monkeypatch.setattr("lemmaformer.checking.grid.run_jobs", spy)
    lf.check("T <= H", ["T=1:2", "H=2"], workers=3)
    assert seen["workers"] == 3 and seen["calls"] == ["check.point"] * 2


def test_a_computation_that_fails_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(point: Any, index: Any) -> Any:
        raise ZeroDivisionError("of all things")

    monkeypatch.setitem(quantities.ENCLOSED, "e", broken)  # type: ignore[arg-type]
    found = lf.check("e <= T", ["T=1:2"])
    assert found.undecided and found.rows[0]["why"] == "the computation failed: ZeroDivisionError: of all things"


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 3), st.sampled_from([8, 16]), st.integers(1, 400), st.sampled_from(["<=", "<", ">=", ">"]))
def test_verdicts_agree_with_the_number(lag: int, heads: int, hundredths: int, relation: str) -> None:
    """Whatever is claimed of e, the verdict is what its enclosure says, and the opposite claim has the opposite verdict."""
    sizes = {"T": str(lag), "H": str(heads)}
    number = f"{hundredths}/100"
    row = point(f"e {relation} {number}", sizes, {"bank": "tuned"})
    low, high = row["quantities"]["e"]
    inside = low <= hundredths / 100 <= high
    true = high < hundredths / 100 if relation[0] == "<" else low > hundredths / 100
    assert row["verdict"] == ("undecided" if inside else "holds" if true else "refuted")
    opposite = point(f"e {'>' if relation[0] == '<' else '<'} {number}", sizes, {"bank": "tuned"})
    assert {row["verdict"], opposite["verdict"]} in ({"holds", "refuted"}, {"undecided"})


BAD = [
    ["e <=", "--over", "T=1:3"],
    ["", "--over", "T=1:3"],
    ["e == T", "--over", "T=1:3"],
    ["e <= T >= 1", "--over", "T=1:3"],
    ["T", "--over", "T=1:3"],
    ["__import__('os') <= T", "--over", "T=1:3"],
    ["e <= T.real", "--over", "T=1:3"],
    ["e <= X", "--over", "T=1:3"],
    ["e <= foo(T)", "--over", "T=1:3"],
    ["e <= sigma", "--over", "T=1:3"],
    ["e <= 1"],
    ["e <= 1", "--over", "T=1:oo"],
    ["e <= 1", "--over", "T=1:1e9"],
    ["e <= 1", "--over", "T=1:1000", "--over", "H=1:1000000"],
    ["e <= 1", "--over", "T=3:1"],
    ["e <= 1", "--over", "T=0"],
    ["e <= 1", "--over", "T=2.5"],
    ["e <= 1", "--over", "T"],
    ["e <= 1", "--over", "H=8"],
    ["e <= 1", "--over", "T=1", "--over", "T=2"],
    ["e <= 1", "--over", "T=1", "--over", "X=2"],
    ["e <= 1", "--over", "T=1", "--over", "u=0.5"],
    ["e <= 1", "--over", "T=5", "--over", "H=4"],
    ["e <= 1", "--over", "T=2", "--bank", "balanced"],
    ["e <= 1", "--over", "T=2", "--bank", "fitted"],
    ["e <= 1", "--over", "T=2", "--bank", "best"],
    ["e <= 1", "--over", "T=2", "--dtype", "bfloat16"],
    ["e <= 1", "--over", "T=2", "--bits", "8"],
    ["e <= 1", "--over", "T=2", "--readout", "m1"],
    ["e <= 1", "--over", "T=2", "--dim", "2"],
    ["e <= 1", "--over", "T=2", "--length", "4"],
    ["e <= 1", "--over", "T=2", "--f", "x"],
    ["e <= 1", "--over", "T=2", "--target", "nowhere.toml"],
    ["e <= 1", "--over", "T=2", "--pod", "centred"],
    ["e <= 1", "--over", "T=2", "--kernel", "exp(-s)"],
    ["e <= 1", "--over", "T=2", "--workers", "0"],
    ["e <= 1", "--over", "T=2", "--workers", "1000"],
    ["T <= 3", "--over", "T=1", "--bank", "tuned"],
    ["e <= bound", "--over", "T=1", "--over", "H=8"],
    ["error <= 1", "--over", "T=2", "--readout", "m1*"],
    ["E_u <= 1", "--over", "T=2"],
    ["E_u <= 1", "--over", "T=2", "--dtype", "exact"],
    ["E_u <= 1", "--over", "T=2", "--over", "u=0.9"],
    ["E_u <= u", "--over", "T=2", "--dtype", "float32", "--bits", "8"],
    ["heads <= T", "--over", "T=1:3"],
    ["tuned <= paper", "--over", "T=1:3"],
    ["sigma(k) <= 1", "--over", "k=1:3"],
    ["sigma(k) <= 1", "--rho", "1/u", "--over", "k=1"],
    ["sigma(k) <= 1", "--rho", "u*v", "--over", "k=0.5"],
    ["T <= H", "--over", "T=1", "--over", "H=2", "--figure", "nowhere/f.png"],
]


@pytest.mark.parametrize("arguments", BAD, ids=" ".join)
def test_bad_input_is_one_line(arguments: list[str], run: Run) -> None:
    found = run("check", *arguments)
    assert found.code == 2 and found.out == "" and found.err.count("\n") == 1 and found.err.startswith("lemmaformer: ")


def test_bad_input_is_refused_before_jax_is_loaded() -> None:
    lines = [["e <= X", "--over", "T=1"], ["e <= 1", "--over", "T=1:1e9"], ["e <= 1", "--over", "T=1:oo"], ["e <=", "--over", "T=1"]]
    code = (
        "import sys, cli\n"
        f"for line in {lines!r}:\n"
        "    sys.argv = ['lemmaformer', 'check', *line]\n"
        "    try:\n        cli.main()\n        assert False\n    except SystemExit as stop:\n        assert stop.code == 2\n"
        "assert 'jax' not in sys.modules, 'jax was loaded'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)


def test_python_refuses_what_the_command_line_does() -> None:
    with pytest.raises(lf.InputError, match="needs sizes"):
        lf.check("e <= 1")
    with pytest.raises(lf.InputError, match="unknown option 'banc'; did you mean 'bank'"):
        lf.check("e <= 1", ["T=1"], banc="tuned")
    with pytest.raises(lf.InputError, match="claim is text"):
        lf.check(3, ["T=1"])  # type: ignore[arg-type]
