"""Tables of the user's own, rows as CSV files, and figures."""

import csv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lemmaformer as lf

Run = Callable[..., Any]
TABLE = "T,H,loss\n1,8,0.5\n2,8,0.25\n2,16,1e-300\n"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "losses.csv"
    path.write_text(TABLE)
    return path


def test_the_rows_of_a_table_are_the_grid(run: Run, table: Path) -> None:
    found = run("check", "loss <= T/H", "--data", table, "--json")
    assert found.code == 1 and [row["verdict"] for row in found.json["rows"]] == ["refuted", "holds", "holds"]
    assert found.json["basis"] == "given data" and found.json["given"] == ["loss"]
    shown = run("check", "loss <= T/H", "--data", table)
    assert "holds (given data)" in shown.out and "certified" not in shown.out


def test_rows_are_matched_by_their_sizes(run: Run, table: Path) -> None:
    found = run("check", "loss <= 0.3", "--data", table, "--over", "H=8", "--over", "T=2", "--json")
    assert found.code == 0 and found.json["points"] == 1
    beside = run("check", "loss <= bound", "--bank", "tuned", "--data", table, "--json")
    assert beside.code == 0 and beside.json["rows"][2]["sides"][1][0] > 17


def test_decimals_are_exact_and_own_columns_hide_quantities(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("T,e\n3,0.1\n")
    assert lf.check("e <= 0.1", data=path).verdict == "holds" and lf.check("e < 0.1", data=path).verdict == "refuted"
    with pytest.raises(lf.InputError, match="speaks of none"):
        lf.check("e < 0.1", data=path, out=tmp_path / "net")


@pytest.mark.parametrize(
    ("content", "over", "text"),
    [
        ("", [], "no rows"),
        ("T,loss\n", [], "no rows"),
        ("T,loss\n1,x\n", [], "no finite number"),
        ("T,loss\n1,nan\n", [], "no finite number"),
        ("T,loss\n1\n", [], "1 cells instead of 2"),
        ("T,T\n1,2\n", [], "different names"),
        ("T,a b\n1,2\n", [], "different names"),
        ("T,loss\n0,1\n", [], "positive"),
        ("size,loss\n1,2\n", [], "no column that is a size"),
        ("T,loss\n1,2\n", ["H=8"], "no column H"),
        ("T,loss\n1,2\n", ["T=1:2"], "no rows with T = 2"),
        ("T,loss\n1,2\n1,3\n", ["T=1"], "2 rows with T = 1"),
        ("T,other\n1,2\n", [], "the claim has loss"),
        ("\x00\xff", [], ""),
    ],
)
def test_what_is_no_table_is_one_line(run: Run, tmp_path: Path, content: str, over: list[str], text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content.encode("latin-1"))
    found = run("check", "loss <= T", "--data", path, *(word for value in over for word in ("--over", value)))
    assert found.code == 2 and found.err.count("\n") == 1 and text in found.err


def test_no_table_at_all(run: Run, tmp_path: Path) -> None:
    for place in (tmp_path / "nowhere.csv", tmp_path):
        assert run("check", "loss <= T", "--data", place).code == 2


def test_rows_as_a_file(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "rows.csv"
    line = ["check", "e <= T/H", "--bank", "tuned", "--over", "T=1:2", "--over", "H=8", "--csv", place]
    found = run(*line, "--json")
    rows = list(csv.DictReader(place.read_text().splitlines()))
    assert found.json["csv"] == str(place) and len(rows) == 2
    for row, seen in zip(rows, found.json["rows"], strict=True):
        assert int(row["T"]) == seen["sizes"]["T"] and row["verdict"] == seen["verdict"]
        assert [float(row["e lower"]), float(row["e upper"])] == seen["sides"][0]
    assert run(*line).code == 2 and run(*line, "--force").code == 1


def test_a_point_without_sides_is_a_row_too(tmp_path: Path) -> None:
    lf.check("e <= 1", ["T=3", "H=2,3"]).write_csv(tmp_path / "rows.csv")
    first = next(csv.DictReader((tmp_path / "rows.csv").read_text().splitlines()))
    assert first["e lower"] == "" and first["verdict"] == "undecided" and "lag law" in first["why"]


@pytest.mark.deep(keep="log(T - 1) <= H")
@pytest.mark.parametrize("claim", ["e <= T/H", "0 - T <= H", "log(T - 1) <= H"])
def test_figures_are_drawn(claim: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    drawn = lf.check(claim, ["T=1:2", "H=8"], **({"bank": "tuned"} if "e" in claim.split() else {})).draw(tmp_path / "f.png")
    assert drawn.as_dict()["figure"] and (tmp_path / "f.png").stat().st_size > 5000
