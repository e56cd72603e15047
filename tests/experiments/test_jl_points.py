"""Figs. 2 to 4 of Jiang & Li, reduced: the certificate drops at the rank of the coupling, and sampled errors stay below it."""

from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from analyzer.errors import InputError
from analyzer.numbers.exact import rational
from analyzer.targets.examples import nearest_point, nearest_softness, selected, selection, selection_softness
from verify.experiments import jl_points
from verify.experiments.jl_points import PointsExample


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return jl_points.run(2, steps=20, seeds=1, examples=[PointsExample("nearest of 2", nearest_point(2), (1, 2, 3))])


@pytest.mark.deep
def test_the_certificate_drops_at_the_rank(result: dict[str, Any]) -> None:
    rows = {row["m_h"]: row for row in result["rows"]}
    assert rows[3]["verdict"] == "holds" and rows[3]["certified"] <= jl_points.ERROR < 0.2 < rows[2]["witness"] < rows[1]["certified"]
    assert all(
        row["constructed"] <= row["certified"] * (1 + 1e-9) and row["witness"] <= row["certified"] <= row["bound"] for row in rows.values()
    )
    assert rows[1]["singular_value"] >= rows[2]["singular_value"] >= rows[3]["singular_value"] > 0 and rows[1]["rank"] == 3
    assert rows[3]["trained"] > rows[3]["certified"]  # 20 steps teach nothing: the column is that of another network
    assert all(row["hard"] >= row["certified"] for row in rows.values())
    assert "rank 3" in result["findings"][0] and "less than the trained one" in result["findings"][0]


@pytest.mark.deep
def test_training_helps() -> None:
    examples = [PointsExample("2 of 4", selection(2, 4), (1,))]
    short, long = (jl_points.run(4, steps, 1, examples=examples)["rows"][0]["trained_mean_square"] for steps in (20, 600))
    assert long < short / 4


@pytest.mark.deep(keep="3")
@pytest.mark.parametrize("figure", [2, 3, 4])
def test_every_case_is_certified_at_its_rank(figure: int) -> None:
    """Four, 8 and 16 points, q = 2 and 3 of 16 and 32: without training."""
    for example in jl_points.cases(figure):
        net = lf.build(example.target, rank=3 if figure == 2 else 1, error=0.02)
        certificate = net.verify()
        assert certificate.verdict.value == "holds" and certificate.certified <= 0.02
        assert max(example.ranks) > certificate.details["rank"] == len(certificate.details["singular_values"])


@pytest.mark.deep
def test_the_command_draws_its_figure(run: Any, tmp_path: Any) -> None:
    picture = tmp_path / "ranks.svg"
    found = run("experiment", "jl-fig-3", "--steps", "20", "--figure", picture, "--json")
    assert found.code == 0 and picture.exists() and len(found.json["rows"]) == 6
    assert all(row["certified"] < 1e-6 for row in found.json["rows"])


def test_other_figures_are_refused() -> None:
    with pytest.raises(InputError, match="choose from 2, 3, 4"):
        jl_points.cases(5)
    with pytest.raises(InputError, match="choose from 2, 3, 4"):
        lf.experiments.jl_points(5)  # type: ignore[arg-type]


def test_soft_targets_are_close_to_the_hard_tasks() -> None:
    """At random tokens, by the formula of the task itself."""
    rng = np.random.default_rng(0)
    target = nearest_point(4)
    tokens = target.draw(rng, (4000, 5))
    away = ((tokens[:, :1, 1:] - tokens[:, 1:, 1:]) ** 2).sum(-1)
    nearest = np.take_along_axis(tokens[:, 1:, 1], away.argmin(axis=1)[:, None], axis=1)[:, 0]
    apart = np.diff(np.sort(away, axis=1)[:, :2], axis=1)[:, 0]
    for gap in (0.1, 0.25):
        errors = np.abs(target.values(np)(tokens)[:, 0] - nearest)[apart >= gap]
        assert len(errors) > 100 and errors.max() <= nearest_softness(4, rational(gap))
    chosen = selection(3, 16)
    tokens = chosen.draw(rng, (500, 16))
    product = np.prod(tokens[:, [place - 1 for place in selected(3, 16)], 1], axis=1)
    assert np.abs(chosen.values(np)(tokens) - product[:, None]).max() <= selection_softness(3, 16) + 1e-12
