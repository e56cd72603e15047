"""The comparison with auto_LiRPA without auto_LiRPA: it runs, says how to get it, and believes no peer that computes something else."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import lemmaformer as lf
from benchmarks import certificates, ratios

NAME = "dp, 1 head"
CASE = replace(certificates.CASES[NAME], steps=20)


@pytest.fixture(scope="module")
def network() -> lf.Network:
    return certificates.trained(CASE)


@pytest.mark.deep
def test_without_the_peer_its_columns_are_empty(tmp_path, monkeypatch, capsys):
    (tmp_path / "torch.py").write_text("raise ImportError('there is no torch')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    certificates.main(["--case", NAME, "--steps", "20", "--markdown"])
    said = capsys.readouterr()
    assert said.err.splitlines()[0] == certificates.HINT
    row = next(line for line in said.out.splitlines() if line.startswith(f"| {NAME} "))
    _, _, witness, *peers, _, _ = (cell.strip() for cell in row.split("|"))
    assert float(witness) > 0 and peers == ["–"] * len(certificates.PEERS)


def _peer(place: Path, difference: float, certified: float) -> str:
    """An interpreter that answers as `benchmarks/lirpa.py` does, whatever it is asked."""
    bounds = {method: {"certified": certified, "seconds": 1.0} for method in certificates.PEERS}
    answer = json.dumps({"difference": difference, "bounds": bounds})
    place.write_text(f"#!{sys.executable}\nprint({answer!r})\n")
    place.chmod(0o755)
    return str(place)


@pytest.mark.deep
def test_a_peer_is_believed_only_where_it_computes_the_same_network(tmp_path, network):
    found = certificates.peer_bounds(_peer(tmp_path / "same", 1e-7, 8.0), CASE, network, 1, 1.0)
    assert certificates.Row(NAME, 1.0, found).cell("CROWN") == "8 (0.125; 1.0 s)"
    with pytest.raises(SystemExit, match="differs from the network"):
        certificates.peer_bounds(_peer(tmp_path / "other", 0.1, 8.0), CASE, network, 1, 1.0)


def test_a_bound_below_an_error_that_occurs_is_refused(tmp_path, monkeypatch, network):
    monkeypatch.setattr(certificates, "trained", lambda case: network)
    with pytest.raises(SystemExit, match=r"IBP certifies .* below the error"):
        certificates.compared(NAME, CASE, _peer(tmp_path / "wrong", 0.0, 0.001), 1, 1.0)


def test_ratios_that_fall_behind_are_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(ratios, "KEPT", tmp_path / "ratios.json")
    assert ratios.guard("forward", {"short": 1.0, "long": 8.0}, keep=True) == []
    assert ratios.guard("forward", {"long": 12.0}, keep=True) == []  # the other row stays
    assert ratios.guard("forward", {"short": 0.51, "long": 6.1, "new": 0.1}, keep=False) == []
    assert capsys.readouterr().err == ""
    assert ratios.guard("forward", {"short": 0.49, "long": float("nan")}, keep=False) == ["short", "long"]
    assert "forward, short: 0.49 times ours for the peer, 1 when it was kept" in capsys.readouterr().err
    assert ratios.guard("limits", {"short": 0.1}, keep=False) == []
