"""A theorem from another distribution: installed beside us, it is listed, bounded, built, certified and a row of the conformance table."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
OWN = ROOT / "examples" / "own_theorem"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example, installed into a folder of its own."""
    place = tmp_path_factory.mktemp("site")
    source = tmp_path_factory.mktemp("source") / "own_theorem"
    source.mkdir()
    for file in OWN.glob("*.*"):
        (source / file.name).write_bytes(file.read_bytes())
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    subprocess.run([*pip, "--target", str(place), str(source)], check=True, capture_output=True)
    return place


def call(place: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The interpreter with the example on its path, in a folder elsewhere."""
    paths = os.pathsep.join([str(place), str(ROOT)])
    environment = {
        **os.environ,
        "PYTHONPATH": paths,
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "",
        "PYTEST_ADDOPTS": "",
        "LEMMAFORMER_TESTS": "all",
    }
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


@pytest.mark.deep
def test_it_is_found_by_every_command(installed: Path, tmp_path: Path) -> None:
    def run(*arguments: str) -> str:
        done = call(installed, tmp_path, "-m", "cli", *arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "last-token" in run("theorems") and "Statement." in run("theorems", "last-token")
    assert json.loads(run("bound", "last-token", "--lags", "1", "--decay", "5", "--json"))["error"] == pytest.approx(0.006783655)
    assert "last-token" in run("build", "--help")
    built = json.loads(run("build", "last-token", "--lags", "1", "--readout", "x0*m1", "--error", "0.1", "--out", "net", "--json"))
    assert built["theorem"] == "last-token" and built["certified"] <= 0.1
    verified = json.loads(run("verify", "net", "--json"))
    assert verified["verdict"] == "holds" and verified["certified"] == built["certified"]


@pytest.mark.deep
def test_it_is_a_row_of_the_conformance_table(installed: Path) -> None:
    table = ("-m", "pytest", "-p", "no:cacheprovider", "-n0", "tests/theorems/test_theorems.py", "-k", "last-token or has_cases")
    done = call(installed, ROOT, *table)
    assert done.returncode == 0 and "........" in done.stdout, done.stdout[-2000:]
    file = installed / "last_token.py"
    text = file.read_text()
    assert "    cases=(Case(" in text
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith("    cases=(Case(")) + "\n")
    try:
        done = call(installed, ROOT, *table)
        assert done.returncode == 1 and "test_every_theorem_that_builds_networks_has_cases" in done.stdout
    finally:
        file.write_text(text)


def test_it_is_small() -> None:
    assert sum(len(file.read_text().splitlines()) for file in OWN.glob("*.*")) < 100
