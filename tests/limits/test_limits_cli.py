"""`limits lag`, `limits slopes` and their certificates, as a user meets them; tampered certificates are caught."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Run = Callable[..., Any]


@pytest.fixture(scope="module")
def lag_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("certificates") / "lag.json"
    command = ["limits", "lag", "--lag", "3", "--dtype", "float32", "--certificate", str(path)]
    subprocess.run([sys.executable, "-c", f"import sys, cli; sys.argv = ['lemmaformer', *{command!r}]; cli.main()"], check=True)
    return path


@pytest.mark.deep
def test_keys_and_law(run: Run) -> None:
    result = run("limits", "lag", "--lag", 5, "--heads", 3, "--json").json
    assert result["min_heads"] == 5 and result["proof"] == "proved" and result["least_error"] == 1.0 and result["budgeted_error"] is None
    result = run("limits", "lag", "--rpe", "log", "--lag", 2, "--bits", 12, "--json").json
    pair = result["budgeted_error"]
    assert 0 < pair["lower"] <= pair["upper"] < 1 and len(result["decays"]) == result["heads_used"] and result["weights_l1"] > 0
    assert run("limits", "lag", "--rpe", "mixed", "--lag", 7, "--json").json["min_heads"] == 4


def test_mean_squares_of_a_lag_and_of_a_kernel(run: Run) -> None:
    result = run("limits", "lag", "--lag", 4, "--heads", 2, "--norm", "mean-square", "--json").json
    pair = result["mean_square"]
    assert pair["lower"] <= 0.7682 <= pair["upper"] <= 1.02 * pair["lower"] and pair["law"] == 0.5 and len(pair["decays"]) == 2
    assert result["norm"] == "mean-square" and result["min_heads"] == 4 and result["budgeted_error"] is None
    shown = run("limits", "lag", "--lag", 4, "--heads", 2, "--norm", "mean-square").out
    assert "0.767453" in shown and "0.768221" in shown and "law for all decays" in shown
    found = run("limits", "kernel", "--kernel", "s*exp(-s)", "--heads", 1, "--norm", "mean-square", "--json").json
    assert 0 < found["lower"] <= found["upper"] <= 1.02 * found["lower"] and found["mean_square"]["law"] is None
    assert "0.00280" in run("limits", "kernel", "--kernel", "s*exp(-s)", "--heads", 1, "--norm", "mean-square").out


@pytest.mark.deep
def test_horizon_table(run: Run, tmp_path: Path) -> None:
    result = run("limits", "lag", "--horizon", "--bits", "8-13", "--figure", tmp_path / "f.png", "--json").json
    assert result["horizon"] == {str(b): h for b, h in zip(range(8, 14), (1, 1, 2, 2, 2, 2), strict=True)}
    assert result["rule_exceptions"] == [] and (tmp_path / "f.png").stat().st_size > 0
    for row in result["rows"]:
        assert row["upper"] < 0.5 <= row["next_lower"]
    assert "horizon" in run("limits", "lag", "--horizon", "--dtype", "bfloat16").out


@pytest.mark.deep
def test_certificates_are_rechecked_without_a_solver(run: Run, lag_file: Path) -> None:
    result = run("verify", lag_file, "--json").json
    claimed = json.loads(lag_file.read_text())["entries"][0]
    assert result["verdict"] == "holds" and result["entries"][0]["lower"] >= claimed["lower"] * (1 - 1e-6)
    code = f"import sys, cli; sys.argv = ['lemmaformer', 'verify', {str(lag_file)!r}]; cli.main(); assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def tampered(data: dict[str, Any], kind: str) -> dict[str, Any]:
    entry = data["entries"][0]
    match kind:
        case "lower claim":
            entry["lower"] *= 1.01
        case "upper claim":
            entry["upper"] *= 0.99
        case "weight":
            entry["primal"]["weights"][0] = "1"
        case "residual":
            entry["primal"]["residual"] = "0"
        case "dual value":
            entry["dual"]["values"][3] = "1"
        case "unit":
            data["unit"] = "1*2^-30"
        case "lag":
            entry["lag"] = 4
        case "type":
            data["rpe"] = "mixed"  # the sequence was never made for log heads
    return data


@pytest.mark.deep(only="type")
@pytest.mark.parametrize("kind", ["lower claim", "upper claim", "weight", "residual", "dual value", "unit", "lag", "type"])
def test_tampered_certificates_are_caught(run: Run, lag_file: Path, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(tampered(json.loads(lag_file.read_text()), kind)))
    result = run("verify", path, "--json")
    assert result.code == 1 and result.json["faults"]


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["entries"][0]["dual"]["edges"].__setitem__(2, "1"),
        lambda d: d["entries"][0]["primal"]["weights"].pop(),
        lambda d: d["entries"][0]["primal"].pop("residual"),
        lambda d: d["entries"][0]["primal"]["heads"].__setitem__(0, ["lin", "-1"]),
        lambda d: d["entries"][0]["primal"]["heads"].__setitem__(0, ["log", "3"]),
        lambda d: d["entries"][0].__setitem__("lag", True),
        lambda d: d.__setitem__("entries", []),
        lambda d: d.__setitem__("version", 2),
        lambda d: d.__setitem__("unit", "nan"),
        lambda d: d.__setitem__("format", "other"),
    ],
)
def test_malformed_certificates_are_refused(run: Run, lag_file: Path, tmp_path: Path, change: Callable[[Any], Any]) -> None:
    data = json.loads(lag_file.read_text())
    change(data)
    path = tmp_path / "m.json"
    path.write_text(json.dumps(data))
    result = run("verify", path)
    assert result.code == 2 and len(result.err.strip().splitlines()) == 1
    path.write_text(lag_file.read_text()[:-100])
    assert run("verify", path).code == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["entries"][0]["primal"]["heads"].__setitem__(0, ["lin", "1*2^-300"]),
        lambda d: d["entries"][0]["primal"]["weights"].__setitem__(0, "1*2^200000"),
        lambda d: d["entries"][0]["dual"]["values"].__setitem__(0, "1*2^9999999"),
        lambda d: d.__setitem__("rpe", ["lin"]),
        lambda d: d.__setitem__("unit", "\u0661/\u0662"),
        lambda d: d.__setitem__("version", True),
        lambda d: d.__setitem__("entries", d["entries"] * 300),
    ],
)
def test_absurd_certificates_are_refused_quickly(run: Run, lag_file: Path, tmp_path: Path, change: Callable[[Any], Any]) -> None:
    data = json.loads(lag_file.read_text())
    change(data)
    path = tmp_path / "absurd.json"
    path.write_text(json.dumps(data))
    assert run("verify", path).code == 2


def test_claims_that_contradict_each_other_are_faults(run: Run, lag_file: Path, tmp_path: Path) -> None:
    data = json.loads(lag_file.read_text())
    entry = data["entries"][0]
    entry["lower"], entry["upper"] = entry["upper"], entry["lower"]
    path = tmp_path / "swapped.json"
    path.write_text(json.dumps(data))
    assert len(run("verify", path, "--json").json["faults"]) == 3
    entry["lower"] = 10**400
    path.write_text(json.dumps(data))
    assert run("verify", path).code == 1


def test_slopes_of_heads_without_a_mass_are_refused(run: Run, tmp_path: Path) -> None:
    entry = {"lag": 1, "lower": 1, "upper": 1, "primal": {"heads": [], "weights": [], "residual": "0"}}
    entry["dual"] = {"edges": ["1", "2"], "values": ["1", "0"]}
    for head in (["lin", "0"], ["lin", "-1*2^-40"]):
        data = {
            "format": "lemmaformer-limit",
            "version": 1,
            "claim": "slopes",
            "rpe": "lin",
            "unit": "1/2",
            "heads": [head],
            "entries": [entry],
        }
        path = tmp_path / "s.json"
        path.write_text(json.dumps(data))
        assert run("verify", path).code == 2


def test_slopes(run: Run, tmp_path: Path) -> None:
    """ALiBi's slopes are too slow to single out any token; fast slopes of one's own do better."""
    path = tmp_path / "s.json"
    result = run(
        "limits", "slopes", "--slopes", "alibi:8", "--lags", 3, "--certificate", path, "--figure", tmp_path / "s.png", "--json"
    ).json
    assert result["heads"] == 8 and result["decays"][0] == 0.5 and result["decays"][-1] == 2.0**-8
    assert result["resolved"] == [] and all(row["lower"] > 0.99 for row in result["rows"])
    assert run("verify", path, "--json").json["verdict"] == "holds"
    data = json.loads(path.read_text())
    data["heads"][0] = ["lin", "8"]  # a faster head than the audited one
    path.write_text(json.dumps(data))
    assert run("verify", path).code == 1
    result = run("limits", "slopes", "--slopes", "8,4,2,1", "--lags", 2, "--dtype", "float64", "--json").json
    assert result["resolved"] == [1, 2]
    for row in result["rows"]:
        assert row["upper"] <= 1.1 * row["lower"]


def test_alibi_slopes_for_other_counts() -> None:
    from verify.limits.pairs import slopes_of

    twelve = [float(p.p) / float(p.q) for _, p in slopes_of("alibi:12", "lin")]
    assert twelve[:8] == [2.0**-k for k in range(1, 9)] and twelve[8:] == pytest.approx([2 ** -(k + 0.5) for k in range(4)], rel=1e-7)
