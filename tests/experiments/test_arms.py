"""Three arms of one structure: what training finds, keeps and leaves."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Result
from verify.experiments.arms import mechanism, sentence

Run = Callable[..., Result]


@pytest.mark.deep
def test_arms_of_a_constructed_network(run: Run, tmp_path: Path) -> None:
    net, out = tmp_path / "net", tmp_path / "arms"
    assert run("build", "fixed", "--lags", "1", "--dtype", "float32", "--error", "0.1", "--out", net).code == 0
    arguments = ["--steps", "40", "--batch", "16", "--length", "16", "--supervise"]
    result = run("experiment", "arms", net, *arguments, "--out", out, "--json")
    assert result.code == 0 and result.err == ""
    found = result.json
    assert [column["name"] for column in found["networks"]] == ["constructed", "random", "continued", "supervised"]
    assert len({column["sizes"]["parameters"] for column in found["networks"]}) == 1
    rows = {row["arm"]: row for row in found["arms"]}
    assert rows["continued"]["first_loss"] < 0.01 < rows["random"]["first_loss"] and rows["continued"]["moved"] < rows["random"]["moved"]
    assert rows["continued"]["mechanism"]["kind"] == "the construction's" and rows["random"]["mechanism"]["kind"] == "none"
    for column in found["networks"]:
        certificate = column["certificate"]
        assert certificate["by"] == "dp-free layer" and certificate["witness"] <= certificate["certified"]
        assert run("verify", out / column["name"]).code == 0
    assert run("compare", out / "constructed", out / "random", "--sequences", "8").code == 0
    taken = run("experiment", "arms", net, *arguments, "--out", out)
    assert taken.code == 2 and "exists" in taken.err
    wrong = run("experiment", "arms", out / "random", *arguments, "--out", tmp_path / "more")
    assert wrong.code == 2 and "not constructed" in wrong.err and not (tmp_path / "more").exists()


@pytest.mark.parametrize(
    ("built", "wanted", "kind"),
    [(0.05, 0.3, "the construction's"), (0.3, 0.05, "another one"), (0.5, 0.5, "none"), (None, 0.01, "another one")],
)
def test_a_mechanism_is_read_off_the_kernels(built: float | None, wanted: float, kind: str) -> None:
    distances = [{"a": "target", "b": "arm", "l1": 2 * wanted}]
    if built is not None:
        distances.append({"a": "constructed", "b": "arm", "l1": 2 * built})
    found = mechanism({"target_kernel": [[0.0, -2.0]], "kernel_distances": distances}, "arm")
    assert found == {"kind": kind, "from_constructed": built, "from_target": wanted}


def test_outputs_that_are_no_numbers_are_said_so() -> None:
    row = {"arm": "random", "mechanism": {"kind": "none"}, "mean_square": None, "first_loss": 1.0, "highest_loss": 1.0}
    assert sentence([row]) == "random has not found the target's kernel (mean square error not finite) (sampled)"
    thrown = {**row, "arm": "continued", "mean_square": 0.5, "highest_loss": 1e9}
    assert "thrown off by its first steps (loss up to 1e+09)" in sentence([thrown])


@pytest.mark.deep
def test_arms_of_a_coupling_fit_a_terminal(run: Run, tmp_path: Path) -> None:
    """The first layer of the construction has no values: a layer of neurons alone."""
    net, out = tmp_path / "net", tmp_path / "arms"
    assert run("build", "coupling", "--rho", "exp(-4*(u-v)**2)", "--F", "tanh(2*y)", "--error", "0.2", "--out", net).code == 0
    result = run("experiment", "arms", net, "--steps", "40", "--batch", "4", "--out", out)
    assert result.code == 0 and "…" not in result.out.split("training (sampled")[1]
    assert sorted(place.name for place in out.iterdir()) == ["constructed", "continued", "random"]
