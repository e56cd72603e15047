"""Tables 2 and 3 of [JL] on a small budget: what is robust there, and that every sentence follows from the numbers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.limits.jl_6 import Floor, swapped_ends
from analyzer.numbers.exact import working_precision
from constructions.run.execute import run as evaluate
from constructions.theorems.jl_4_2 import rounded
from constructions.theorems.positional_sums import positional_sum
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
from verify.experiments.positional_sums import certify, with_positions
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


def test_constructed_transformers_are_certified_on_every_target() -> None:
    """Without training: the rows of Table 2, of the same sizes for all targets, and what really runs is below what is certified."""
    exact = jl_tables.exact_table_2(1)
    assert set(exact) == {"original", "ordering altered", *(f"mixed ({signs})" for signs in SIGNS)}
    kernel, order = np.exp(-np.arange(LENGTH)), swapped_ends(LENGTH, jl_tables.SWAPPED)
    floats = {"original": [causal(kernel)], "ordering altered": [reordered(causal(kernel), order)]}
    floats["mixed (alternating signs)"] = [causal(np.convolve(kernel, random_filter(0, "alternating signs"))[:LENGTH])]
    for name, (matrix,) in floats.items():
        np.testing.assert_allclose([[float(a) for a in row] for row in exact[name][0]], matrix, atol=1e-15)
    rows = jl_tables.constructed_transformers({name: exact[name] for name in floats}, floats, replace(SMALL, held_out=32))
    assert len(rows) == 6 and len({(row["heads"], row["rank"], row["value_dim"], row["width"], row["parameters"]) for row in rows}) == 1
    for row in rows:
        assert row["witness"] <= row["certified"] < (1e-50 if row["dtype"] == "exact" else 1e-7)
        assert row["mse"] is None or row["mse"] <= row["certified"] ** 2
    sentence = jl_tables.transformer_finding(rows)
    assert "ordering altered" in sentence and "m_h = 1" in sentence


@pytest.mark.deep(keep="exact")
@pytest.mark.parametrize("dtype", ["exact", "float64"])
def test_changed_weights_of_a_constructed_transformer_are_seen(dtype: str) -> None:
    """Sums over few positions: certified errors are attained at corners, and a changed weight moves them by what it changes."""
    with working_precision(192):
        matrix = [[arb(1) / (1 + t + s) - arb(s == t) for s in range(4)] for t in range(4)]
    network = positional_sum(matrix) if dtype == "exact" else rounded(positional_sum(matrix), dtype)
    right = certify(network, matrix)
    assert right.witness <= right.certified < 1e-9
    more = fmpq(1, 1000) if dtype == "exact" else 0.001
    first, second = network.layers
    changed = []
    for layer, part in ((0, "outer"), (1, "inner"), (1, "bias"), (1, "outer")):
        array = getattr(network.layers[layer].feedforward, part).copy()
        place = tuple(int(i) for i in np.argwhere(array != 0)[0])
        array[place] = array[place] + more
        layers = list(network.layers)
        layers[layer] = replace(layers[layer], feedforward=replace(layers[layer].feedforward, **{part: array}))
        changed.append(replace(network, layers=tuple(layers)))
    query = second.attention.query.copy()
    query[0, 0, 0] = query[0, 0, 0] + more
    changed.append(replace(network, layers=(first, replace(second, attention=replace(second.attention, query=query)))))
    for broken in changed:
        found = certify(broken, matrix)
        assert found.certified > 1e-6 and found.witness <= found.certified
    assert max(certify(broken, matrix).witness for broken in changed) > 1e-6
    inner = first.feedforward.inner.copy()
    inner[0, 1] = inner[0, 1] * -2
    bent = replace(network, layers=(replace(first, feedforward=replace(first.feedforward, inner=inner)), second))
    with pytest.raises(InputError, match="bends inside"):
        certify(bent, matrix)
    tokens = np.random.default_rng(0).random((64, 4))
    wanted = tokens @ np.array([[float(a) for a in row] for row in matrix]).T
    assert np.abs(evaluate(network, with_positions(tokens)) - wanted).max() <= max(right.certified, 1e-12)


@pytest.mark.deep
def test_random_matrices_are_certified_soundly() -> None:
    """An attack: corners and random tokens of float networks, perturbed ones among them, never beat the certificate."""
    rng = np.random.default_rng(3)
    for trial in range(12):
        length = int(rng.integers(2, 7))
        numbers = rng.integers(-8, 9, (length, length)) / 4
        matrix = [[arb(float(v)) for v in row] for row in numbers]
        network = rounded(positional_sum(matrix), "float64")
        if trial % 2:
            network = network.map(
                lambda leaf: leaf * (1 + rng.normal(0, 1e-6, leaf.shape)) if leaf.ndim == 2 and leaf.shape[0] == 1 else leaf
            )
        found = certify(network, matrix)
        tokens = np.concatenate([rng.integers(0, 2, (200, length)).astype(float), rng.random((200, length))])
        assert np.abs(evaluate(network, with_positions(tokens)) - tokens @ numbers.T).max() <= found.certified


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
    assert {"floor", "constructed", "transformers", "seconds", "findings", "protocol"} <= set(data)
    assert all(isinstance(r["agrees"], bool) for r in data["ratios"])
    assert run("experiment", "jl-table-2", "--full", "--json").code == 0 and asked[1] == jl_tables.FULL


@pytest.mark.deep
def test_the_report_shows_every_row(third: JlExperiment, capsys: pytest.CaptureFixture[str]) -> None:
    show_jl_table(third.as_dict())
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("every causal model", "constructed RNN", "constructed Transformer", "published"))


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
