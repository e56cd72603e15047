"""`break` and `net.broken`: the public side of breaking a weight."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from constructions.files.broken import breakable

ARRAYS = ("embedding", "decay", "value", "output", "inner", "outer")


@pytest.fixture(scope="module")
def nets() -> dict[str, lf.Network]:
    target = lf.fixed(lags=(2, 5), readout="x0 + m1*m2")
    return {"exact": lf.build(target, error=1e-2), "float64": lf.build(lf.fixed(lags=(2,)), dtype="float64", error=1e-3)}


@pytest.mark.parametrize("dtype", ["exact", "float64"])
@pytest.mark.parametrize("weight", ARRAYS)
def test_a_changed_weight_is_caught(nets: dict[str, lf.Network], dtype: str, weight: str) -> None:
    net = nets[dtype]
    assert weight in breakable(net.transformer)
    changed, change, after = net.broken(weight, by=0.05)
    assert after.verdict is lf.Verdict.VIOLATED and changed.verify().verdict is lf.Verdict.VIOLATED and after.advice
    assert net.verify().verdict is lf.Verdict.HOLDS  # the original is as it was
    assert change.relative == pytest.approx(0.05, rel=1e-6)


def test_small_changes_of_large_weights_are_caught(nets: dict[str, lf.Network]) -> None:
    """Σ|a_h| is about 1e14 for these two lags: a change of 1e-12 moves the memory by far more than the error."""
    _, _, after = nets["exact"].broken("output", head=2, by=1e-12)
    assert after.verdict is lf.Verdict.VIOLATED


@pytest.mark.parametrize(
    "options",
    [{"weight": "outptu"}, {"weight": "output", "head": 99}, {"weight": "output", "layer": 7}, {"weight": "pointer"}],
    ids=str,
)
def test_what_is_not_there_is_refused(nets: dict[str, lf.Network], options: dict[str, Any]) -> None:
    with pytest.raises(lf.InputError):
        nets["exact"].broken(**options, by=0.1)
    with pytest.raises(lf.LemmaformerError):
        nets["exact"].broken("output", by=float("nan"))


def test_too_small_for_a_float_is_refused(nets: dict[str, lf.Network]) -> None:
    with pytest.raises(lf.LemmaformerError):
        nets["float64"].broken("output", by=1e-30)


def test_the_command_writes_a_bundle_that_verify_finds_out(run: Callable[..., Any], nets: dict[str, lf.Network], tmp_path: Path) -> None:
    nets["exact"].save(tmp_path / "net")
    shown = run("break", tmp_path / "net", "--weight", "output", "--head", 2, "--by", 1e-3, "--out", tmp_path / "net2")
    assert shown.code == 0 and "before" in shown.out and "after" in shown.out and "violated" in shown.out
    old, new = (json.loads((tmp_path / name / "card.json").read_text()) for name in ("net", "net2"))
    assert new["chain"] == old["chain"] and new["integrity"] != old["integrity"]
    found = run("verify", tmp_path / "net2", "--json")
    assert found.code == 1 and found.json["verdict"] == "violated" and found.json["faults"]
    again = run("break", tmp_path / "net", "--by", 0.1, "--out", tmp_path / "net2")
    assert again.code == 2 and "exists" in again.err
    data = run("break", tmp_path / "net", "--by", 0.1, "--out", tmp_path / "net2", "--force", "--json").json
    assert data["before"]["verdict"] == "holds" and data["after"]["verdict"] == "violated" and set(data["change"]) >= {"weight"}
    assert np.isfinite(lf.load(tmp_path / "net2")([0.5] * 8)).all()
