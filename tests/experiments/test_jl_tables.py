"""Tables 2 and 3 of [JL] on a small budget: what is robust there, and that every sentence follows from the numbers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from analyzer.errors import InputError
from analyzer.limits.jl_6 import Floor
from constructions.training.loop import Progress
from verify.experiments import jl_tables
from verify.experiments.jl_tables import (
    DEFAULT,
    LENGTH,
    PLAIN,
    RNN,
    SIGNS,
    STOPPED,
    TRANSFORMER,
    JlExperiment,
    JlProtocol,
    JlRow,
    Ratio,
    causal,
    random_filter,
    random_kernel,
    reordered,
)
from verify.report.experiments import show_jl_table
from verify.report.progress import training_line

SMALL = replace(DEFAULT, steps=600, seeds=1, width=32, held_out=512)


@pytest.fixture(scope="module")
def second() -> JlExperiment:
    return jl_tables.table_2(SMALL)


@pytest.fixture(scope="module")
def third() -> JlExperiment:
    return jl_tables.table_3(SMALL)


def errors(experiment: JlExperiment) -> dict[tuple[str, str], float]:
    return {(row.model, row.target): row.mean for row in experiment.rows}


def test_targets_are_what_they_say() -> None:
    kernel, x = np.exp(-np.arange(LENGTH)), np.random.default_rng(0).uniform(0, 1, LENGTH)
    wanted = [sum(kernel[s] * x[t - s] for s in range(t + 1)) for t in range(LENGTH)]
    np.testing.assert_allclose(causal(kernel) @ x, wanted)
    order = [*range(1, LENGTH), 0]
    np.testing.assert_allclose(reordered(causal(kernel), order) @ x, causal(kernel) @ x[order])
    filters = {signs: random_filter(1, signs) for signs in SIGNS}
    assert all(np.abs(theta).sum() == pytest.approx(1) and theta.shape == (5,) for theta in filters.values())
    assert (filters["positive"] > 0).all() and (filters["alternating signs"][:-1] * filters["alternating signs"][1:] < 0).all()
    assert sorted(random_kernel(2)[1]) == list(range(LENGTH))


@pytest.mark.deep
def test_table_2_moves_as_published(second: JlExperiment) -> None:
    found = errors(second)
    ratio = {(r.model, r.target): r for r in second.ratios}
    assert found[RNN, "original"] < 1e-5 and ratio[RNN, "ordering altered"].agrees
    assert 1 / 3 < found[TRANSFORMER, "ordering altered"] / found[TRANSFORMER, "original"] < 3
    assert found[TRANSFORMER, "ordering altered"] < found[RNN, "ordering altered"], "only the Transformer sees the swapped tokens"


@pytest.mark.deep
def test_no_trained_rnn_beats_the_certified_floor(second: JlExperiment, third: JlExperiment) -> None:
    """Held-out means over 16384 positions: 10 percent is many standard deviations."""
    for experiment, target in ((second, "ordering altered"), (third, "permuted")):
        assert errors(experiment)[RNN, target] > 0.9 * experiment.floor.unbiased
        assert experiment.floor.unbiased > experiment.floor.linear > experiment.floor.mean_square > 0


@pytest.mark.deep
def test_constructed_networks_beat_trained_ones(second: JlExperiment, third: JlExperiment) -> None:
    for experiment in (second, third):
        built = experiment.constructed
        assert built["verdict"] == "holds" and built["witness"] <= built["certified"] <= built["bound"]
        assert built["mse"] <= built["certified"] ** 2
        assert built["mse"] < 1e-3 * errors(experiment)[RNN, "original"]


@pytest.mark.deep
def test_table_3_has_ratios_of_order_one_early_in_training(third: JlExperiment) -> None:
    assert all(1 / 10 < r.ratio < 10 for r in third.ratios if r.model == TRANSFORMER)
    assert {row.model for row in third.rows} == {RNN, PLAIN, STOPPED, TRANSFORMER}
    stopped = next(ratio for ratio in third.ratios if ratio.model == STOPPED)
    assert stopped.agrees and 0.5 < stopped.ratio < 2


@pytest.mark.deep
def test_runs_repeat() -> None:
    tiny = replace(SMALL, steps=20, held_out=64)
    targets = {"original": [causal(np.exp(-np.arange(LENGTH)))]}
    first, again = (jl_tables._rows(2, RNN, targets, tiny, None)[0][0].errors for _ in range(2))
    assert first == again


def test_sentences_follow_the_numbers() -> None:
    rows = [
        JlRow(RNN, "original", (1e-7,), 1.02e-7),
        JlRow(RNN, "ordering altered", (0.08,), 3.57e-2),
        JlRow(RNN, "mixed (positive)", (1e-3,), 1.58e-7),
    ]
    ratios = jl_tables._ratios(2, rows)
    assert [r.agrees for r in ratios] == [True, False]
    agree, differ = jl_tables._agreement(ratios)
    assert agree.startswith("agrees") and "ordering altered" in agree and differ.startswith("does not agree") and "mixed" in differ
    low, high = (jl_tables._order_findings(rows, Floor((0,), 0.5, 0.03, linear, 0.08))[1] for linear in (0.03, 0.05))
    assert "consistent" in low and "below both" in high
    assert not Ratio(TRANSFORMER, "mixed", 0.9, 11.0).agrees and not any(Ratio(RNN, "mixed (positive)", r, 1.5).agrees for r in (0.3, 3.1))


@pytest.mark.deep
def test_the_command_prints_json(run: Callable[..., Any], second: JlExperiment, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[JlProtocol] = []
    monkeypatch.setattr(jl_tables, "table_2", lambda protocol, report: asked.append(protocol) or second)
    result = run("experiment", "jl-table-2", "--seeds", "2", "--steps", "700", "--json")
    assert result.code == 0 and result.err == ""
    assert asked == [replace(DEFAULT, seeds=2, steps=700)]
    data = result.json
    assert data["experiment"] == "jl-table-2" and len(data["rows"]) == 10 and len(data["ratios"]) == 8
    assert {"model", "target", "mse_mean", "mse_spread", "seeds", "published"} <= set(data["rows"][0])
    assert {"floor", "constructed", "seconds", "findings", "protocol"} <= set(data)
    assert all(isinstance(r["agrees"], bool) for r in data["ratios"])
    assert run("experiment", "jl-table-2", "--full", "--json").code == 0 and asked[1] == jl_tables.FULL


@pytest.mark.deep
def test_the_report_shows_every_row(third: JlExperiment, capsys: pytest.CaptureFixture[str]) -> None:
    show_jl_table(third.as_dict())
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("every causal model", "constructed RNN", "Transformer", "published"))


def test_progress_says_step_loss_and_time_left() -> None:
    line = training_line("RNN", Progress(30, 60, np.array([1e-3, 2e-4]), 75.0, 75.0))
    assert line == "RNN: step 30 of 60, 1:15 left, loss 1.0e-03 2.0e-04"


def test_absurd_protocols_are_refused() -> None:
    with pytest.raises(InputError, match="out of range"):
        jl_tables.table_2(replace(DEFAULT, seeds=0))


@pytest.mark.parametrize("table", ["jl-table-2", "jl-table-3"])
def test_help_names_the_defaults(run: Callable[..., Any], table: str) -> None:
    said = " ".join(run("experiment", table, "--help").out.split())
    default, full = jl_tables.DEFAULT, jl_tables.FULL
    assert f"[default: {default.seeds} seeds, {default.steps} steps; full: {full.seeds} and {full.steps}]" in said
