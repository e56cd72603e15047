"""Regression experiments of [WE] on a small budget: published orderings, documented disagreements, and sentences that follow numbers."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from analyzer.errors import InputError
from constructions.network.precision import with_x64
from constructions.training.trainable import initial, outputs
from lemmaformer.experiments import WE
from verify.experiments import we, we_rows
from verify.experiments.we import DEFAULT, FULL, Arm, Regression, WeExperiment, WeProtocol
from verify.experiments.we_rows import PrintedClaim, WeRow, WeRule
from verify.report.experiments import show_we

SMALL = WeProtocol(steps=400, seeds=1, length=128, heads=8, width=64, held_out=1024, core=True)


@pytest.fixture(scope="module")
def neurons() -> WeExperiment:
    return we.run("we-2a", SMALL)


@pytest.fixture(scope="module")
def sums() -> WeExperiment:
    return we.run("we-2b", replace(SMALL, width=32))


@pytest.fixture(scope="module")
def heavy() -> WeExperiment:
    return we.run("we-4a", replace(SMALL, steps=1000, length=1000))


@pytest.fixture(scope="module")
def fast() -> WeExperiment:
    return we.run("we-4b", replace(SMALL, steps=3000))


def verdicts(experiment: WeExperiment) -> dict[str, bool]:
    return {claim.text: claim.rule.agrees(value) for claim, value in experiment.claims}


@pytest.mark.deep
def test_one_token_wants_neurons_not_heads(neurons: WeExperiment) -> None:
    assert verdicts(neurons) == {
        "few neurons fail (table, x_99)": True,
        "many neurons suffice (table, x_99)": True,
        "raising H does not help (table, x_99)": True,
    }


@pytest.mark.deep
def test_sums_of_tokens_want_heads_only_where_slopes_reach(sums: WeExperiment) -> None:
    found = verdicts(sums)
    assert found["raising m does not help (lin, lags 1, 2, 3)"]
    assert found["one head fails (lin, least squares, lags 1, 2, 3)"] and found["8 heads suffice (lin, least squares, lags 1, 2, 3)"]
    assert not found["one head fails (table, x_48 + x_56 + x_99)"], "one softmax with a bias per distance has three thirds"
    assert not found["8 heads suffice (lin, x_48 + x_56 + x_99)"], "slopes do not resolve such distances"


@pytest.mark.deep
def test_a_power_law_is_one_log_head_and_hard_for_kept_slopes(heavy: WeExperiment) -> None:
    log, kept, moved = (row.error for row in heavy.rows[:3])
    assert log < 1e-5 and kept > 1e-2
    assert moved < kept, "slopes that are trained do better: the published 0.19 belongs to slopes that are not"
    best = heavy.row("lin, H = 64, ALiBi's slopes, least squares, float64")
    assert best.error < 1e-9 < kept, "no limit of 64 slopes"


@pytest.mark.deep
def test_an_exponential_is_one_lin_head(fast: WeExperiment) -> None:
    assert fast.row("lin, H = 1: t ≥ 0").error < 1e-7
    assert not verdicts(fast)["log, H = 64: t ≥ 0: more than one lin head, tenfold"], "the published 5.3e-4 is not found again"
    assert fast.row("log, H = 64: t ≥ 0").error < 4.5e-5


@pytest.mark.deep
def test_the_expected_loss_is_the_mean_over_tokens() -> None:
    """Over all signs of 9 tokens, of a network of either type: v‖κ − ρ‖² is the mean square error, not only in expectation over samples."""
    protocol = replace(SMALL, length=9)
    tokens = np.array(np.meshgrid(*[[-1.0, 1.0]] * 9)).reshape(9, -1).T
    for rpe in ("lin", "log", "table"):
        network = initial(we._shape(rpe, 3, protocol), 1, 5, 9, "float64")
        task = Regression("kernel", "signs", kernel=we.power_law(9))
        with with_x64("float64"):
            out = np.asarray(jax.jit(outputs, static_argnums=2)(network.map(jnp.asarray), jnp.asarray(tokens)[..., None], 8))[:, 0, 0]
        misses = out - tokens @ np.array(task.kernel)[::-1]
        assert we.expected_error(network, task) == pytest.approx(np.mean(misses**2), rel=1e-12)
        assert we.expected_error(network, replace(task, law="uniform")) == pytest.approx(np.mean(misses**2) / 3, rel=1e-12)


@pytest.mark.deep
@pytest.mark.parametrize("rpe", ["lin", "log", "table"])
def test_predictions_are_those_of_the_reference_pass(rpe: str) -> None:
    protocol = replace(SMALL, length=20)
    tokens = jax.random.uniform(jax.random.key(1), (6, 20), minval=-1)
    for kind in ("dp-free", "dp"):
        network = initial(we._shape(rpe, 4, protocol, 7, kind), 1, 3, 20).map(jnp.asarray)
        wanted = jax.jit(outputs)(network, tokens[..., None])[:, -1, 0]
        np.testing.assert_allclose(jax.jit(we.predict)(network, tokens), wanted, rtol=2e-5, atol=2e-6)


def test_targets_look_at_the_published_positions() -> None:
    tokens = np.zeros((1, 1000), np.float32)
    tokens[0, [47, 55, 98]] = 1, 10, 100
    protocol = WeProtocol()
    total = Regression("sum", "uniform", kernel=we.indicator(we.distances(protocol), 1000))
    assert float(total.values(jnp.asarray(tokens))[0]) == 111
    ridges = Regression("ridges", "signs", we.distances(protocol))
    wanted = np.maximum(ridges.weights() @ np.array([1, 10, 100]), 0).sum()
    assert float(ridges.values(jnp.asarray(tokens))[0]) == pytest.approx(wanted, rel=1e-5)
    kernel = we.power_law(1000)
    assert kernel[0] == 0 and kernel[4] == 0.5 and we.exponential(9, 1)[:2] == (0.0, pytest.approx(np.exp(-5)))


def test_draws_are_even_and_odd_as_said() -> None:
    sums = [abs(Regression("x", "uniform", (1,), draw=draw).weights().sum()) for draw in (we.EVEN, we.ODD)]
    assert sums == pytest.approx([0.114, 1.089], abs=1e-3)


@pytest.mark.deep
def test_kept_slopes_stay_and_runs_repeat() -> None:
    protocol = replace(SMALL, steps=20, length=120)
    task = Regression("kernel", "signs", kernel=we.power_law(120))
    arm = Arm("kept", task, we._shape("lin", 4, protocol), "alibi", True)
    first, again = (we.train(arm, protocol).errors for _ in range(2))
    assert first == again
    assert first != we.train(replace(arm, kept=False), protocol).errors
    for other in (replace(protocol, seed=1), replace(protocol, memory=0.999)):
        assert first != we.train(arm, other).errors
    np.testing.assert_allclose(we.start_of(arm, 0, 120).layers[0].attention.decay, [1 / 4, 1 / 16, 1 / 64, 1 / 256])


def test_fitted_banks_do_what_the_closed_forms_say() -> None:
    power, exponential = (Regression("k", "signs", kernel=k) for k in (we.power_law(300), we.exponential(300, 0)))
    assert we.fitted("log", power, "log", np.array([0.5]), "float32").error < 1e-12
    assert we.fitted("log", power, "log", np.array([0.6]), "float32").error > 1e-3
    assert we.fitted("lin", exponential, "lin", np.array([5.0]), "float32").error < 1e-12


def test_sentences_follow_the_numbers() -> None:
    row = WeRow("a", "x", "lin", 1, None, "exact", (0.2, 0.1, 0.9), 2.0)
    other = replace(row, name="b", errors=(0.05,))
    rows = {"a": row, "b": other}
    rule = WeRule(0, 0.1)
    values = [PrintedClaim("c", "a", rule, m, "b").value(rows) for m in ("error", "share", "ratio", "gain")]
    assert values == pytest.approx([0.2, 0.1, 4.0, 0.075])
    agree, differ = we_rows.agreement([(PrintedClaim("first", "a", rule), 0.1), (PrintedClaim("second", "a", rule), 0.11)])
    assert agree.startswith("agrees") and "first" in agree and differ.startswith("does not agree") and "second" in differ
    assert not rule.agrees(float("nan"))
    table = WeRow("t", "x_48 + x_56 + x_99", "table", 1, None, "exact", (1e-3,), 1.0)
    for error, words in ((1e-3, "H does not matter"), (0.3, "H matters")):
        assert any(words in line for line in we_rows.sentences("we-2b", {"t": replace(table, errors=(error,))}))


@pytest.mark.deep
def test_the_command_prints_json(run: Callable[..., Any], fast: WeExperiment, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, WeProtocol]] = []
    monkeypatch.setattr(we, "run", lambda name, protocol, report: asked.append((name, protocol)) or fast)
    result = run("experiment", "we-4b", "--seeds", "2", "--steps", "700", "--seed", "5", "--json")
    assert result.code == 0 and result.err == ""
    assert run("experiment", "we-2a", "--full", "--json").code == 0
    assert asked == [("we-4b", replace(DEFAULT["we-4b"], seeds=2, steps=700, seed=5)), ("we-2a", FULL["we-2a"])]
    data = result.json
    assert data["experiment"] == "we-4b" and len(data["rows"]) == 6
    assert {"name", "target", "rpe", "heads", "width", "how", "mse", "mse_least", "mse_most", "variance", "published"} <= set(
        data["rows"][0]
    )
    assert all(isinstance(claim["agrees"], bool) for claim in data["claims"])


@pytest.mark.deep
def test_the_report_shows_every_row(sums: WeExperiment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    show_we(sums.as_dict())
    shown = capsys.readouterr().out
    assert all(row.name in shown for row in sums.rows) and "does not agree" in shown


def test_help_names_the_defaults(run: Callable[..., Any]) -> None:
    assert set(WE) == set(we.PLANS) == set(DEFAULT) == set(FULL)
    for name, protocol in DEFAULT.items():
        said = " ".join(run("experiment", name, "--help").out.split())
        more = FULL[name]
        assert f"[default: {protocol.seeds} seeds, {protocol.steps} steps; full: {more.seeds} and {more.steps}]" in said


def test_absurd_protocols_are_refused() -> None:
    for absurd in (replace(SMALL, seeds=0), replace(SMALL, steps=0), replace(SMALL, seed=-1), replace(SMALL, length=99)):
        with pytest.raises(InputError):
            we.run("we-2a", absurd)
    with pytest.raises(InputError, match="we-9"):
        we.run("we-9")
