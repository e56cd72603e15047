"""The command line: stable keys, exit codes, one line for bad input, nothing half-written."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Run = Callable[..., Any]

BUILD = ["build", "fixed", "--out", "OUT"]
BAD = [
    [*BUILD, "--lags", "0"],
    [*BUILD, "--lags", "2,2"],
    [*BUILD, "--lags", "-3"],
    [*BUILD, "--lags", "2;5"],
    [*BUILD, "--lags", "2", "--readout", "__import__('os')"],
    [*BUILD, "--lags", "2,5", "--readout", "exp(m1*m2)"],
    [*BUILD, "--lags", "2", "--heads", "1000000000"],
    [*BUILD, "--lags", "2", "--error", "nan"],
    [*BUILD, "--lags", "2", "--error", "-1"],
    [*BUILD, "--lags", "2", "--rpe", "cubic"],
    [*BUILD, "--lags", "2", "--dim", "0"],
    [*BUILD, "--lags", "1000000000"],
    [*BUILD, "--target", "nowhere.toml"],
    [*BUILD],
    ["build", "fixed", "--lags", "2", "--out", "STRANGER"],
    ["verify", "nowhere"],
    ["verify", "STRANGER"],
    ["verify", "TRUNCATED"],
    ["run", "BUNDLE", "--input", "NAN", "--output", "OUT"],
    ["run", "BUNDLE", "--input", "nowhere.npy", "--output", "OUT"],
    ["run", "BUNDLE", "--input", "PICKLE", "--output", "OUT"],
    ["bound", "thm-3.1", "--lags", "4"],
    ["bound", "thm-3.1", "--lags", "4", "--heads", "1000000000"],
    ["bound", "thm-3.1", "--lags", "4", "--heads", "10", "--rate", "x"],
    ["bound", "thm-3.1", "--lags", "4", "--solve", "heads"],
    ["bound", "thm-9.9", "--lags", "4", "--heads", "10"],
    ["theorems", "thm-9.9"],
    ["nonsense"],
    [*BUILD, "--lags", "２"],
    [*BUILD, "--lags", "2", "--width", "-5"],
    [*BUILD, "--lags", "2", "--width", "1000000000"],
    [*BUILD, "--lags", "2", "--error", "1e-300"],
    [*BUILD, "--lags", "5", "--heads", "4"],
    [*BUILD, "--lags", "2", "--share"],
    [*BUILD, "--lags", "2", "--seed", "-1"],
    [*BUILD, "--target", "/dev/zero"],
    [*BUILD, "--target", "DEEP"],
    ["build", "fixed", "--lags", "2", "--out", "x" * 300],
    ["build", "fixed", "--lags", "2", "--out", "LITTERED"],
    ["verify", "NESTED"],
    ["run", "BUNDLE", "--input", "MINIMUM", "--output", "OUT"],
    ["run", "BUNDLE", "--input", "EMPTY", "--output", "OUT"],
    ["run", "BUNDLE", "--input", "HUGE", "--output", "OUT"],
    ["bound", "thm-3.1", "--lags", "4", "--heads", "10", "--rate", "²"],
    ["bound", "thm-3.1", "--lags", "4", "--heads", "10", "--readout", "m1"],
]


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("places")
    code = "import sys, cli; sys.argv = ['lemmaformer', 'build', 'fixed', '--lags', '2', '--out', sys.argv[1]]; cli.main()"
    for name in ("bundle", "truncated"):
        subprocess.run([sys.executable, "-c", code, str(root / name)], check=True, capture_output=True)
    exact = root / "truncated" / "exact.json"
    exact.write_bytes(exact.read_bytes()[:-40])
    (root / "stranger").mkdir()
    (root / "stranger" / "notes.txt").write_text("mine")
    np.save(root / "nan.npy", np.array([0.0, np.nan]))
    np.save(root / "pickle.npy", np.array([{}], dtype=object), allow_pickle=True)
    (root / "littered").mkdir()
    for file in (root / "bundle").iterdir():
        (root / "littered" / file.name).write_bytes(file.read_bytes())
    (root / "littered" / "notes.txt").write_text("mine")
    (root / "nested").mkdir()
    (root / "nested" / "card.json").write_text("[" * 100_000)
    (root / "deep.toml").write_text("a=" + "[" * 5000)
    np.save(root / "minimum.npy", np.array([-128], np.int8))
    np.save(root / "empty.npy", np.zeros((0, 5, 1)))
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (99999999999999,), }"
    (root / "huge.npy").write_bytes(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    return {
        "LITTERED": root / "littered", "NESTED": root / "nested", "DEEP": root / "deep.toml", "MINIMUM": root / "minimum.npy",
        "EMPTY": root / "empty.npy", "HUGE": root / "huge.npy",
        "BUNDLE": root / "bundle", "TRUNCATED": root / "truncated", "STRANGER": root / "stranger",
        "NAN": root / "nan.npy", "PICKLE": root / "pickle.npy", "ROOT": root,
    }  # fmt: skip


@pytest.mark.timing
@pytest.mark.parametrize("arguments", BAD, ids=lambda a: " ".join(a)[:60])
def test_bad_input_is_one_line_and_quick(arguments: list[str], places: dict[str, Path], tmp_path: Path) -> None:
    real = [str(places.get(a, tmp_path / "out" if a == "OUT" else a)) for a in arguments]
    before = sorted(p for p in places["ROOT"].rglob("*"))
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", "import cli; cli.main()", *real], capture_output=True, text=True, cwd=tmp_path)
    assert time.perf_counter() - start < 2
    assert done.returncode == 2, done
    assert done.stdout == ""
    assert done.stderr.startswith("lemmaformer: ") and done.stderr.count("\n") == 1 and "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
    assert sorted(p for p in places["ROOT"].rglob("*")) == before


def test_build_verify_run(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "net"
    built = run("build", "fixed", "--lags", "2,5", "--readout", "x0 + m1*m2", "--error", "1e-2", "--out", out, "--json")
    assert built.code == 0 and built.err == ""
    again = run("verify", out, "--json").json
    keys = {"theorem", "verdict", "witness", "certified", "bound", "parts", "sizes", "dtype", "rounding", "seconds"}
    assert keys <= set(again) and again["verdict"] == "holds"
    assert set(again["sizes"]) == {"layers", "heads", "width", "model_dim", "parameters"}
    assert all(set(part) == {"name", "certified", "bound"} for part in again["parts"])
    assert again["certified"] == built.json["certified"] <= 1e-2
    tokens = np.random.default_rng(0).uniform(-1, 1, 40)
    np.save(tmp_path / "x.npy", tokens)
    assert run("run", out, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--json").json["shape"] == [40]
    wanted = tokens[5:] + tokens[3:-2] * tokens[:-5]
    assert np.abs(np.load(tmp_path / "y.npy")[5:] - wanted).max() <= again["certified"]


def test_target_files(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "target.toml"
    target.write_text('kind = "fixed"\ndim = 2\nlags = [1, 3]\nreadout = "x0[0] + m1[1]*m2[0]"\n')
    assert run("build", "fixed", "--target", target, "--error", "0.1", "--out", tmp_path / "net").code == 0
    for text in (
        'kind = "adaptive"',
        "lags = [1",
        'kind = "fixed"\nlags = [1]\ncolour = "red"',
        'kind = "fixed"\nlags = 3',
        'kind="fixed"\nlags=[true]',
    ):
        target.write_text(text)
        assert run("build", "fixed", "--target", target, "--out", tmp_path / "other").code == 2


@pytest.mark.parametrize("example", sorted((Path(__file__).parent.parent / "examples").glob("*.toml")), ids=lambda p: p.stem)
def test_examples(run: Run, example: Path, tmp_path: Path) -> None:
    result = run("build", "fixed", "--target", example, "--error", "0.05", "--out", tmp_path / "net", "--json")
    assert result.code == 0 and result.json["verdict"] == "holds" and result.json["certified"] <= 0.05


@pytest.mark.parametrize("lag,rpe", [(64, "lin"), (64, "log")])
def test_long_lags_are_quick(run: Run, tmp_path: Path, lag: int, rpe: str) -> None:
    start = time.perf_counter()
    result = run(
        "build",
        "fixed",
        "--lags",
        lag,
        "--rpe",
        rpe,
        "--bank",
        "minimal",
        "--error",
        "1e-6",
        "--dtype",
        "exact",
        "--out",
        tmp_path / "n",
        "--json",
    )
    assert result.json["sizes"]["heads"] == lag and result.json["certified"] <= 1e-6
    assert run("verify", tmp_path / "n").code == 0
    assert time.perf_counter() - start < 20


def test_refusals_say_why(run: Run, tmp_path: Path) -> None:
    result = run("build", "fixed", "--lags", "12", "--dtype", "float32", "--error", "1e-2", "--out", tmp_path / "n")
    assert result.code == 2 and "float32 cannot hold lag 12" in result.err and "use --dtype exact" in result.err
    result = run("build", "fixed", "--lags", "5", "--heads", "4", "--out", tmp_path / "n")
    assert result.code == 2 and "lag law" in result.err
    for readout in ("exp(-1000000000*m1)", "tanh(1e30*m1)"):
        assert "steeper" in run("build", "fixed", "--lags", "2", "--readout", readout, "--out", tmp_path / "n").err
    result = run("build", "fixed", "--lags", "64", "--bank", "paper", "--error", "1e-2", "--out", tmp_path / "n")
    assert result.code == 2 and "--bank minimal" in result.err
    result = run("build", "fixed", "--lags", "2", "--dtype", "float32", "--readout", "m1**2", "--error", "0.1", "--out", tmp_path / "n")
    assert result.code == 2 and "certified to" in result.err
    assert list(tmp_path.iterdir()) == []


def test_theorems(run: Run) -> None:
    assert "thm-3.1" in run("theorems").out
    assert run("theorems", "thm-3.1", "--json").json["id"] == "thm-3.1"
    assert "Wang & E" in run("theorems", "thm-3.1").out
    assert "extraction lag 4" in run("theorems", "thm-3.1", "--graph").out
    assert run("theorems", "thm-3.1", "--dot").out.startswith("digraph")
    assert r"\frac" in run("theorems", "thm-3.1", "--latex").out


def test_bound_keys(run: Run) -> None:
    keys = {"attention", "expression", "latex", "rate", "alpha", "gamma", "heads", "lower_bound_heads"}
    answer = run("bound", "thm-3.1", "--rpe", "log", "--lags", "2,5", "--solve", "heads", "--error", "1e-2", "--json").json
    assert keys <= set(answer) and answer["attention"] <= 1e-2 and answer["lower_bound_heads"] == 5
    assert len(answer["alpha"]) == 2 and sum(answer["split"]) == answer["heads"]
    fixed_rate = run("bound", "thm-3.1", "--lags", "4", "--heads", "256", "--rate", "2", "--json").json
    assert fixed_rate["rate"] == 2
    width = run("bound", "thm-3.1", "--lags", "2,5", "--readout", "x0 + m1*m2", "--solve", "width", "--error", "1e-2", "--json").json
    assert width["width"] > 3 and width["readout_error"] <= 1e-2 and width["barron_norm"] > 0


def test_json_is_alone_on_stdout(run: Run, tmp_path: Path) -> None:
    result = run("demo", "--out", tmp_path / "demo", "--json")
    assert result.code == 0 and result.json["chain"]["verdict"] == "holds"
    rows = {(row["rpe"], row["lag"]): row for row in result.json["heads"]}
    assert all(row["minimal"] == row["law"] == row["lag"] for row in rows.values())
    assert all(row["minimal"] <= row["tuned"] <= row["paper"] for row in rows.values())
