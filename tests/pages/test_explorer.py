"""The explorer's file and its table, which is shipped and re-checked here."""

import json
import re
from pathlib import Path

import pytest

import lemmaformer as lf
from analyzer.limits.lag_law import lag_law
from tests.pages.test_report import checked, data_of
from verify.limits.explorer import BITS, HEADS, horizon_row, interpolation_row, limit_row, minimal_row, shipped_table
from verify.limits.pairs import forget

TABLE = shipped_table()


def test_the_explorer_is_one_small_file(tmp_path: Path) -> None:
    found = lf.explore(tmp_path / "e.html").as_dict()
    text = (tmp_path / "e.html").read_text(encoding="utf-8")
    checked(text)
    assert found["kind"] == "explorer" and found["bytes"] == len(text.encode()) < 1_000_000
    assert data_of(text) == json.loads(json.dumps(TABLE)) and text.count("<math") > 4
    assert set(re.findall(r'<figure id="(\w+)">', text)) == {"kernel", "weights", "curve"}
    with pytest.raises(lf.InputError, match="exists"):
        lf.explore(tmp_path / "e.html")


def test_the_table_is_in_order() -> None:
    assert {(row["rpe"], row["bits"]) for row in TABLE["limits"]} >= {(rpe, bits) for rpe in ("lin", "log") for bits in BITS}
    for row in TABLE["limits"]:
        assert 0 <= row["lower"] <= row["upper"] <= 1
        if "kernel" in row:
            assert len(row["heads"]) >= lag_law(row["rpe"], (row["lag"],)).heads
            assert abs(row["kernel"][row["lag"]] - 1) <= row["upper"] + 1e-6
    for row in TABLE["minimal"]:
        assert row["error"] <= row["total"] and len(row["decays"]) == row["lag"]
        least = next((r["lower"] for r in TABLE["limits"] if all(r[key] == row[key] for key in ("rpe", "bits", "lag"))), 0.0)
        assert least <= row["total"]
    for row in TABLE["horizons"]:
        assert row["upper"] < 0.5 <= row["next_lower"]
    for row in TABLE["interpolation"]:
        assert row["heads"] in HEADS and row["error"] > 0


@pytest.mark.parametrize(("rpe", "bits", "lag"), [("lin", 24, 4), ("log", 24, 3)])
def test_minimal_rows_are_those_of_the_library(rpe: str, bits: int, lag: int) -> None:
    """A search in floats may end a little elsewhere; what it found is certified both times, and the least is flat."""
    stored = next(row for row in TABLE["minimal"] if (row["rpe"], row["bits"], row["lag"]) == (rpe, bits, lag))
    assert minimal_row(rpe, bits, lag)["total"] == pytest.approx(stored["total"], rel=2.0**-20)  # type: ignore[arg-type]


@pytest.mark.deep
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_rows_are_re_checked(rpe: str) -> None:
    """Solvers may find other banks and sequences: both pairs enclose the same number, and rows of the others are formulas."""
    forget()
    for row in [row for row in TABLE["limits"] if row["rpe"] == rpe and row["bits"] in (8, 24) and row["lag"] in (1, 4)]:
        again = limit_row(rpe, row["bits"], row["lag"])  # type: ignore[arg-type]
        assert max(again["lower"], row["lower"]) <= min(again["upper"], row["upper"])
        assert again["upper"] == pytest.approx(row["upper"], rel=0.02)
    for row in [row for row in TABLE["interpolation"] if row["rpe"] == rpe and row["lag"] in (1, 5)]:
        assert interpolation_row(rpe, row["bank"], row["lag"], row["heads"])["error"] == pytest.approx(row["error"], rel=2.0**-40)  # type: ignore[arg-type]
    for row in [row for row in TABLE["horizons"] if row["rpe"] == rpe and row["bits"] == 8]:
        assert horizon_row(rpe, 8)["horizon"] == row["horizon"]  # type: ignore[arg-type]
    for row in [row for row in TABLE["minimal"] if row["rpe"] == rpe and row["bits"] == 53]:
        assert minimal_row(rpe, 53, row["lag"])["total"] == pytest.approx(row["total"], rel=2.0**-20)  # type: ignore[arg-type]


def test_the_banks_of_the_table_do_what_it_says() -> None:
    """The kernel of a stored row, rounded to six digits, is off the lag by no more than the row's upper side."""
    row = next(row for row in TABLE["limits"] if (row["rpe"], row["bits"], row["lag"]) == ("lin", 24, 4))
    off = sum(abs(value - (s == 4)) for s, value in enumerate(row["kernel"]))
    assert off + 2.0**-24 * row["weights"] <= row["upper"] * (1 + 1e-5)
