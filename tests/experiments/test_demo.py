"""The tour in small: the same acts on shorter lags, its numbers against what they mean (the whole of it is held against the README)."""

from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import InputError
from lemmaformer.progress import PROGRESS
from lemmaformer.tour import toured
from verify.experiments import demo


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "LAGS": (1, 4),
        "HEADS": (8, 16),
        "GROWTH": (1, 4),
        "LONG_LAG": 7,
        "KNOTS": 16,
        "CLAIM_SIZES": ("T=1:2", "H=8"),
        "BITS": {"bfloat16": 6, "float32": 8, "float64": 10},
    }.items():
        monkeypatch.setattr(demo, name, value)


@pytest.mark.deep
@pytest.mark.usefixtures("small")
def test_the_tour_in_small(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = PROGRESS.set(True)
    try:
        tour: Any = toured(tmp_path / "demo", False).as_dict()
    finally:
        PROGRESS.reset(token)
    assert "holds" in capsys.readouterr().out
    assert {row["lag"] for row in tour["heads"]} == {1, 4}
    assert all(row["lag"] == row["minimal"] == row["law"] <= row["tuned"] <= row["paper"] for row in tour["heads"])
    certified = tour["adaptive"]["chain"]["certified"]
    assert 0 < certified <= demo.ERROR
    assert all(abs(row["output"] - row["wanted"]) <= certified for row in tour["adaptive"]["slots"] if row["wanted"] is not None)
    assert all(row["upper"] < 0.5 <= row["next_lower"] for row in tour["depth"]["horizons"])
    assert tour["depth"]["chain"]["certified"] <= demo.ERROR
    assert all(row["limit"] <= row["pod"] and row["limit"] <= row["centred"] for row in tour["coupling"]["ranks"])
    true, false = tour["claims"]
    assert true["verdict"] == "holds" and true["counterexample"] is None and false["verdict"] == "refuted"
    assert false["counterexample"]["tokens_refute"] and false["counterexample"]["error"] > false["counterexample"]["sides"][1][1]
    for name in (demo.FIGURE, *demo.NUMBERS, *(f"{bundle}/card.json" for bundle in demo.BUNDLES)):
        assert (tmp_path / "demo" / name).stat().st_size > 0
    with pytest.raises(InputError, match="exist"):
        toured(tmp_path / "demo", False)
