"""[JL] Figure 1 on digits: patches, the network, the fit, and a short run of the experiment."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from constructions.training.digits import digits, patches
from constructions.training.digits_vit import NEURONS, WIDTH, class_scores, cross_entropy, initial, tokens
from verify.experiments import jl_digits
from verify.experiments.jl_digits import DigitsRow, findings, fit, head_spectrum

Run = Callable[..., Any]


def test_patches_are_squares_in_reading_order() -> None:
    image = np.arange(64.0).reshape(1, 8, 8)
    found = patches(image)
    assert found.shape == (1, 16, 4) and found.dtype == np.float32
    assert found[0, 0].tolist() == [0, 1, 8, 9] and found[0, 1].tolist() == [2, 3, 10, 11] and found[0, 4].tolist() == [16, 17, 24, 25]
    images, labels = digits()
    assert images.shape == (1797, 16, 4) and images.min() == 0 and images.max() == 1 and set(labels) == set(range(10))


@pytest.mark.deep(keep="5")
@pytest.mark.parametrize("rank", [0, 1, 5])
def test_the_network_is_the_formula(rank: int) -> None:
    network = initial(0, rank)
    x = np.random.default_rng(1).uniform(0, 1, (3, 16, 4)).astype(np.float32)
    found = np.asarray(class_scores(network, jax.numpy.asarray(x)))
    for image, scores in zip(x, found, strict=True):
        h = image @ network.embedding.T + network.position
        logits = (h @ network.query.T) @ (h @ network.key.T).T / max(rank, 1) ** 0.5
        weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        u = weights @ h @ network.value.T
        hidden = np.maximum(u @ network.inner.T + network.bias, 0) @ network.outer.T
        assert scores == pytest.approx(network.classes @ hidden.mean(axis=0) + network.offset, rel=1e-4, abs=1e-5)
    assert network.inner.shape == (NEURONS, WIDTH) and float(cross_entropy(network, (x, np.zeros(3, int)))) > 0


def test_ranks_of_a_seed_differ_in_the_coupling_only() -> None:
    small, large = initial(3, 2), initial(3, 7)
    for name in ("embedding", "position", "value", "inner", "outer", "classes"):
        assert (getattr(small, name) == getattr(large, name)).all()
    assert small.query.shape == (2, WIDTH) and large.key.shape == (7, WIDTH)
    assert (initial(4, 2).value != small.value).any()


def test_the_spectrum_is_that_of_the_logits() -> None:
    network, images = initial(5, 3), digits()[0][:4]
    h = tokens(network, images.astype(float)).reshape(64, WIDTH)
    logits = h @ network.query.T @ network.key @ h.T / 3**0.5
    found = head_spectrum(network, images)
    assert found.plain.singular_values == pytest.approx(np.linalg.svd(logits, compute_uv=False)[:3] / 64, rel=1e-5)
    assert found.dk == 3 and found.tokens == 64


def test_the_power_and_its_errors() -> None:
    ranks = np.array([1.0, 2, 4, 8, 16])
    exact = fit([1, 2, 4, 8, 16], np.outer(3 * ranks**-0.27, [0.5, 1, 1.5]))
    assert exact is not None and exact.exponent == pytest.approx(-0.27) and exact.error == pytest.approx(0, abs=1e-12)
    noise = np.exp(np.random.default_rng(0).normal(0, 0.3, (5, 400, 6)))
    found = [fit([1, 2, 4, 8, 16], ranks[:, None] ** -0.5 * noise[:, k]) for k in range(400)]
    slopes = [one.exponent for one in found if one is not None]
    assert len(slopes) == 400 and np.mean(slopes) == pytest.approx(-0.5, abs=0.01)
    for name in ("line_error", "seed_error"):  # both estimate the scatter of the slopes
        assert np.sqrt(np.mean([getattr(one, name) ** 2 for one in found])) == pytest.approx(np.std(slopes), rel=0.15)
    assert exact.local == pytest.approx([-0.27] * 4)
    assert fit([1, 2, 4], np.array([[0.1, 0.2], [0.1, 0.1], [0.0, 0.0]])) is None


def test_findings_follow_the_numbers() -> None:
    def rows(power: float) -> list[DigitsRow]:
        errors = {m: 0.1 * m**power * np.array([0.98, 1.02]) for m in (1, 2, 4, 8, 16)}
        heads = tuple(head_spectrum(initial(seed, 16), digits()[0][:20]) for seed in range(2))
        return [DigitsRow(m, e, np.zeros(2), heads if m == 16 else ()) for m, e in errors.items()]

    def said(power: float) -> str:
        made = rows(power)
        errors = np.stack([row.cross_entropy for row in made])
        noisy = errors * np.array([[1.01], [0.99], [1.0], [1.01], [0.99]])
        return "\n".join(findings(made, {"cross_entropy": fit([1, 2, 4, 8, 16], noisy), "error_rate": None}))

    assert "falls with m_h: m_h^(-0.27 ± 0.00), within two" in said(-0.27)
    assert "falls with m_h: m_h^(-0.80 ± 0.00), not within" in said(-0.8)
    assert "does not clearly fall" in said(0.0) and "error rate: it is 0 somewhere" in said(0.0)


@pytest.mark.deep
def test_a_short_run(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jl_digits, "RANKS", (1, 2, 4))
    arguments = ["experiment", "jl-fig-1", "--seeds", "2", "--steps", "80", "--figure", tmp_path / "f.png", "--json"]
    result = run(*arguments)
    assert result.code == 0 and result.err == ""
    answer = result.json
    assert [row["m_h"] for row in answer["rows"]] == [1, 2, 4] and answer["published"]["exponent"] == -0.27
    for row in answer["rows"]:
        assert row["cross_entropy"]["mean"] < np.log(10) and 0 < row["error_rate"]["mean"] < 0.8  # chance: log 10 and 0.9
        assert len(row["centred"]["singular_values"]) == row["m_h"] >= row["centred"]["effective_rank"]["mean"] - 1e-9
    assert answer["rows"][1]["centred"]["decay_exponent"] is None and answer["rows"][2]["centred"]["decay_exponent"]["mean"] > 0
    assert answer["fits"]["cross_entropy"]["line_error"] > 0 and (tmp_path / "f.png").stat().st_size > 0
    from verify.report.experiments import show_digits

    show_digits(answer)


@pytest.mark.parametrize(
    "arguments", [("--seeds", "1"), ("--seeds", "1000"), ("--steps", "0"), ("--steps", "10000000"), ("--figure", "no/f")]
)
def test_absurd_sizes(run: Run, arguments: tuple[str, str]) -> None:
    refused = run("experiment", "jl-fig-1", *arguments)
    assert refused.code == 2 and refused.err.count("\n") == 1 and refused.out == ""


def test_only_one_room_knows_scikit_learn() -> None:
    root = Path(__file__).parent.parent.parent
    files = [root / "cli.py", *(file for room in ("analyzer", "constructions", "verify") for file in (root / room).rglob("*.py"))]
    assert [file.name for file in files if "sklearn" in file.read_text()] == ["digits.py"]


def test_without_scikit_learn(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    refused = run("experiment", "jl-fig-1")
    assert refused.code == 2 and "pip install 'lemmaformer[digits]'" in refused.err and refused.err.count("\n") == 1
