"""Counterexamples: a bundle and tokens that show by themselves what refutes a claim, and do not once something is changed."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from verify.claims import quantities

Run = Callable[..., Any]
CLAIM = ["check", "e <= T/H", "--bank", "tuned", "--over", "T=2", "--over", "H=8"]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    place = tmp_path_factory.mktemp("counterexample") / "net"
    return place, lf.check("e <= T/H", ["T=1:2", "H=8"], bank="tuned", out=place).counterexample


def test_verify_shows_the_witness_above_the_claim(written: tuple[Path, Any], run: Run) -> None:
    place, found = written
    assert found["sizes"] == {"T": 2, "H": 8} and found["bundle"] == str(place)
    certificate = run("verify", place, "--json")
    assert certificate.code == 0 and certificate.json["witness"] > 2 / 8
    assert certificate.json["witness"] == found["witness"] and certificate.json["certified"] == found["certified"]


def test_run_shows_the_error(written: tuple[Path, Any], run: Run, tmp_path: Path) -> None:
    place, found = written
    assert run("run", place, "--input", place / "tokens.npy", "--output", tmp_path / "y.npy").code == 0
    tokens, outputs = np.load(place / "tokens.npy"), np.load(tmp_path / "y.npy")
    t = found["position"]
    error = abs(outputs[t] - tokens[t - 2, 0])
    assert found["tokens_refute"] and error > 2 / 8 and error == pytest.approx(found["error"], rel=1e-9)
    assert found["error"] <= found["witness"] and found["wanted"] == tokens[t - 2, 0] and found["output"] == outputs[t]


def test_changed_weights_no_longer_refute(written: tuple[Path, Any], run: Run, tmp_path: Path) -> None:
    place, _ = written
    assert run("break", place, "--weight", "output", "--by", "1e-2", "--out", tmp_path / "broken").code == 0
    assert run("verify", tmp_path / "broken", "--json").json["verdict"] == "violated"
    content = (place / "exact.json").read_bytes()
    try:
        (place / "exact.json").write_bytes(content.replace(b"3", b"4", 1))
        assert run("verify", place).code == 2
    finally:
        (place / "exact.json").write_bytes(content)


def test_other_tokens_do_not_show_it(written: tuple[Path, Any], tmp_path: Path) -> None:
    """The tokens are the point: the same network errs less on tokens without the right signs."""
    place, found = written
    net, tokens = lf.load(place), np.load(place / "tokens.npy")
    constant = net(np.ones_like(tokens))
    assert abs(constant[-1] - 1) < found["error"] / 2


def test_a_place_is_written_once_unless_asked(run: Run, tmp_path: Path) -> None:
    place = tmp_path / "net"
    first = run(*CLAIM, "--out", place, "--json")
    assert first.code == 1 and first.json["counterexample"]["tokens"] == str(place / "tokens.npy")
    again = run(*CLAIM, "--out", place)
    assert again.code == 2 and again.err.count("\n") == 1 and "exists" in again.err
    assert run(*CLAIM, "--out", place, "--force").code == 1
    (place / "notes.txt").write_text("mine")
    assert run(*CLAIM, "--out", place, "--force").code == 2 and (place / "notes.txt").read_text() == "mine"


def test_nothing_is_written_where_nothing_is_refuted(run: Run, tmp_path: Path) -> None:
    assert run("check", "e <= 2", "--over", "T=2", "--out", tmp_path / "net").code == 0 and not (tmp_path / "net").exists()
    none = run("check", "T <= H", "--over", "T=2", "--over", "H=1", "--out", tmp_path / "net")
    assert none.code == 2 and "speaks of none" in none.err
    assert run("check", "e <= 0", "--over", "T=2", "--out", tmp_path / "nowhere" / "net").code == 2


def test_a_claim_from_below_is_refuted_by_the_certificate(tmp_path: Path) -> None:
    found: Any = lf.check("e >= 1", ["T=2", "H=16"], bank="tuned", out=tmp_path / "net").counterexample
    assert found["tokens"] is None and found["certified"] < 1
    assert lf.load(tmp_path / "net").verify().certified == found["certified"]  # type: ignore[union-attr]


def test_a_float_network_is_run(tmp_path: Path) -> None:
    found: Any = lf.check("error < 1e-3", ["T=1"], dtype="float32", out=tmp_path / "net").counterexample
    net, tokens = lf.load(tmp_path / "net"), np.load(tmp_path / "net" / "tokens.npy")
    assert net.dtype == "float32" and found["tokens_refute"]
    assert abs(float(net(tokens)[found["position"]]) - tokens[found["position"] - 1, 0]) == pytest.approx(found["error"], rel=1e-6)


def test_a_steep_read_out_does_not_pass_for_e(tmp_path: Path) -> None:
    """Its error is larger than e, so tokens that show the error say nothing about e."""
    found: Any = lf.check(
        "e <= 0.02", ["H=16"], lf.fixed(lags=(2,), readout="m1/16 + x0"), bank="tuned", out=tmp_path / "net"
    ).counterexample
    assert found["error"] < 0.02 and not found["tokens_refute"]
    steep: Any = lf.check("e <= 0.02", ["H=16"], lf.fixed(lags=(2,), readout="4*m1"), bank="tuned", out=tmp_path / "steep").counterexample
    assert steep["error"] > 0.02 and not steep["tokens_refute"]


def test_an_adaptive_network_has_its_certificate(tmp_path: Path) -> None:
    found: Any = lf.check("error <= 1e-9", ["eps=0.1"], lf.adaptive([-1, 1], {"m1": [1, 2]}), out=tmp_path / "net").counterexample
    assert found["tokens"] is None and lf.load(tmp_path / "net").verify().witness == found["witness"] > 1e-9


def test_tokens_do_not_confirm_a_lie(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An enclosure that is too high refutes a true claim; the tokens, measured by themselves, do not."""
    honest = quantities.ENCLOSED["e"]
    monkeypatch.setitem(quantities.ENCLOSED, "e", lambda point, index: honest(point, index) + 1)  # type: ignore[arg-type]
    found: Any = lf.check("e <= 1.5", ["T=2", "H=8"], bank="tuned", out=tmp_path / "net").counterexample
    assert found["sides"][0][0] > 1.5 and found["error"] < 1 and not found["tokens_refute"]


@pytest.mark.deep
def test_a_coupling_has_a_sequence(tmp_path: Path, run: Run) -> None:
    target = lf.coupling("-4*(u-v)**2", length=4)
    found: Any = lf.check("error <= 0.5", ["m=1"], target, out=tmp_path / "net").counterexample
    tokens = np.load(tmp_path / "net" / "tokens.npy")
    logits = -4 * (tokens[0, 0] - tokens[:, 0]) ** 2
    weights = np.exp(logits) / np.exp(logits).sum()
    assert found["tokens_refute"] and found["wanted"] == pytest.approx(float(weights @ tokens[:, 0]))
    assert abs(lf.load(tmp_path / "net")(tokens)[0] - found["wanted"]) == pytest.approx(found["error"], rel=1e-6)
