"""Trained layers against certified lower bounds: never beaten, and a wrong bound would be caught."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flint import fmpq

from analyzer.errors import Refusal
from analyzer.limits import budgeted_error
from analyzer.numbers.exact import nearest, upper
from constructions.run import fast
from constructions.training import trainable as learning
from verify.experiments import horizon, layer_bounds
from verify.experiments.horizon import HorizonProtocol, Run
from verify.limits import pairs as limits

FEW_PRICES = {"lin": (6, 12, 24), "log": (6, 12)}
"""Each costs seconds; leaving some out only weakens the bound."""


@pytest.fixture(autouse=True)
def few_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layer_bounds, "PRICES", FEW_PRICES)


@pytest.fixture(scope="module")
def near_optimal() -> tuple[Any, Any]:
    """The best lin bank for lag 5 in float32 with 12 heads, and the same stored in float32."""
    bank = limits.lag_limit("lin", 5, layer_bounds.UNIT_32, layer_bounds.DECAY_BITS, heads=12).bank
    return bank, horizon.bank_network(bank)


@pytest.mark.deep(keep="lin-1")
@pytest.mark.parametrize(("rpe", "layers"), [("lin", 1), ("log", 1), ("table", 1), ("lin", 2)])
def test_the_response_is_what_the_network_answers(rpe: str, layers: int) -> None:
    network = horizon.random_start(rpe, 3, 5, 0, 4, layers, reach=7 if rpe == "table" else 0)
    impulse = np.zeros((24, 1), np.float32)
    impulse[0] = 1
    answer = jax.jit(learning.outputs)(network, jnp.asarray(impulse))[:, 0]
    respond = jax.jit(horizon.response, static_argnums=1)
    kernel = respond(network, 24)
    assert np.abs(np.asarray(answer)).max() > 1e-3
    np.testing.assert_allclose(kernel, answer, atol=1e-5 * float(np.abs(answer).max()))
    bare = horizon.without_silent_heads(network)
    assert all(len(layer.attention.rpe) == 3 for layer in bare.layers)
    np.testing.assert_allclose(respond(bare, 24), kernel, atol=1e-6)


@pytest.mark.deep
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_no_trained_layer_beats_its_lower_bound(rpe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horizon, "PLANS", (("square", 1e-1), ("worst", 1e-1)))
    runs = horizon.one_layer(rpe, HorizonProtocol(most=3, seeds=1, steps=200))
    assert {(found.lag, found.heads) for found in runs} == {(1, 1), (1, 4), (2, 1), (2, 2), (2, 6), (3, 2), (3, 3), (3, 8)}
    for found in runs:
        assert found.bound is not None and found.least <= found.error
        assert found.error >= found.bound, found
        assert not found.beats_its_bound
        assert found.bound == 1 or found.heads >= found.lag
    assert min(found.error for found in runs if found.lag == 1) < 0.5  # something was learnt
    worst = [found for found in runs if found.heads < found.lag and found.loss == "worst"]
    assert worst and all(found.error < 1.2 for found in worst)  # the law is approached, from above


def test_a_wrong_bound_would_be_caught(near_optimal: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The best bank is so close to the bound for its weights that a bound half as large again, or of a longer lag, is beaten."""
    _, network = near_optimal
    cell = horizon.HorizonCell(5, 12, 0)
    honest = horizon.judged(network, 5, cell, "best bank", "-", 0.0)
    assert honest.weights is not None and honest.bound is not None
    assert 0 < honest.bound <= honest.error < 1.1 * honest.bound
    assert not honest.beats_its_bound
    longer = layer_bounds.layer_bound("lin", 12, 7, honest.weights)
    assert replace(honest, bound=longer).beats_its_bound
    known = layer_bounds.least_budgeted
    monkeypatch.setattr(layer_bounds, "least_budgeted", lambda *key: 1.5 * known(*key))
    assert horizon.judged(network, 5, cell, "best bank", "-", 0.0).beats_its_bound


def test_a_law_that_asks_for_one_head_more_would_be_caught() -> None:
    bank = limits.lag_limit("lin", 2, layer_bounds.UNIT_32, layer_bounds.DECAY_BITS, heads=2).bank
    found = horizon.judged(horizon.bank_network(bank), 2, horizon.HorizonCell(2, 2, 0), "best bank", "-", 0.0)
    assert len(bank.heads) == 2 and not found.beats_its_bound and found.error < 0.1
    assert replace(found, bound=layer_bounds.layer_bound("lin", 1, 2, found.weights or 0.0)).beats_its_bound


def test_heads_without_a_finite_sum_have_no_finite_error() -> None:
    """Decays that training may reach: e^−p is rounded to 1 (lin), the mass of s^−p is infinite (log)."""
    for rpe, decay in (("lin", 2.0**-40), ("log", 1.0)):
        network = horizon.random_start(rpe, 2, 2, 0, 3)
        attention = replace(network.layers[0].attention, decay=np.array([decay, 2.0], np.float32))
        slow = replace(network, layers=(replace(network.layers[0], attention=attention),))
        found = horizon.judged(slow, 1, horizon.HorizonCell(1, 2, 0), "random start", "square", 0.1)
        assert found.error == float("inf") and found.bound is None and horizon.describe(found)["error"] is None


def test_a_price_is_counted_with_the_error(near_optimal: tuple[Any, Any]) -> None:
    """The best bank's own error is below E_u, with the price of its weights it is not."""
    found = horizon.judged(near_optimal[1], 5, horizon.HorizonCell(5, 12, 0), "best bank", "-", 0.0)
    least = layer_bounds.least_budgeted("lin", 5, 24)
    assert found.error < least <= horizon.budgeted(found) < 1.05 * least


def test_an_undefined_error_beats_its_bound() -> None:
    assert Run("", "lin", 1, 1, 1, "", 0.0, 0, float("nan"), 0.0, 0.5, 1.0).beats_its_bound


def test_weights_are_those_of_the_normalised_heads(near_optimal: tuple[Any, Any]) -> None:
    """Storing a and z moves each a_h by a few roundings, and e by that times Σ|a|."""
    bank, network = near_optimal
    found = layer_bounds.measured(network, 5)
    total = nearest(bank.weight_sum)
    assert found.weights == pytest.approx(total, rel=1e-4)
    ideal = upper(budgeted_error.upper_bound(bank, 5, layer_bounds.UNIT_32)) - nearest(layer_bounds.UNIT_32) * total
    assert abs(found.most - ideal) <= 8 * nearest(layer_bounds.UNIT_32) * total
    attention = network.layers[0].attention
    heavier = replace(network.layers[0], attention=replace(attention, output=attention.output * np.float32(2)))
    doubled = layer_bounds.measured(replace(network, layers=(heavier,)), 5)
    assert doubled.weights == pytest.approx(2 * total - abs(nearest(bank.residual)), rel=1e-4)


@pytest.mark.deep(keep="lin")
@pytest.mark.parametrize("rpe", ["lin", "table"])
def test_the_executor_stays_within_error_and_rounding(rpe: str) -> None:
    network = horizon.without_silent_heads(horizon.random_start(rpe, 4, 4, 1, 3, reach=9 if rpe == "table" else 0))
    found, rounding = layer_bounds.measured(network, 3), layer_bounds.rounding_of(network)
    assert rounding is not None and 0 < rounding < 1e-3
    kernel = np.asarray(jax.jit(horizon.response, static_argnums=1)(network, 64), np.float64) - np.eye(64)[3]
    tokens = np.sign(kernel)[::-1, None].astype(np.float32)
    off = abs(float(fast.forward(network, tokens)[-1]) - float(tokens[-4, 0]))
    assert 0.99 * found.least <= off <= found.most + rounding


def test_the_kernel_of_several_layers_is_enclosed(monkeypatch: pytest.MonkeyPatch) -> None:
    network = horizon.without_silent_heads(horizon.random_start("lin", 2, 2, 3, 4, layers=3))
    found = layer_bounds.measured_deep(network, 4)
    kernel = np.asarray(jax.jit(horizon.response, static_argnums=1)(network, 512), np.float64)
    kernel[4] -= 1
    assert found.least <= np.abs(kernel).sum() * (1 + 1e-4) and found.most >= np.abs(kernel).sum() * (1 - 1e-4)
    assert found.most <= found.least * (1 + 2**-11)
    single = horizon.without_silent_heads(horizon.random_start("lin", 3, 3, 0, 4))
    one, same = layer_bounds.measured(single, 2), layer_bounds.measured_deep(single, 2)
    assert same.least <= one.most and one.least <= same.most
    monkeypatch.setattr(layer_bounds, "PLACES", (8,))  # far too few: what is left over is not small
    with pytest.raises(Refusal, match="too slowly"):
        layer_bounds.measured_deep(network, 4)


@pytest.mark.deep
def test_deep_linear_networks_with_too_few_poles_obey_the_law(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(horizon, "DEEP_PLANS", (("worst", 3e-2),))
    runs = horizon.deep_linear(2, HorizonProtocol(most=3, seeds=1, steps=200))
    few = [found for found in runs if found.layers * found.heads < found.lag]
    assert [(found.lag, found.heads) for found in few] == [(3, 1)]
    assert few[0].bound == 1 and 1 <= few[0].error < 2
    assert all(found.bound is None for found in runs if found not in few)


@pytest.mark.deep
def test_tables_escape_the_bound_of_slopes() -> None:
    """At lag 7 every lin layer errs by 1 in float32; two heads with a bias per distance do not."""
    start = horizon.random_start("table", 2, 2, 0, 7, reach=12)
    (network,) = horizon.trained([start], [7], "square", 1e-1, 400)
    found = horizon.judged(network, 7, horizon.HorizonCell(7, 2, 0), "random start", "square", 1e-1)
    assert found.bound is None and found.weights is None
    assert found.error < 0.1 < layer_bounds.least_budgeted("lin", 7, 24)


def _run(rpe: str, lag: int, heads: int, error: float, bound: float | None, kind: str = "random start", **more: Any) -> Run:
    layers = more.pop("layers", 1)
    return Run(kind, rpe, lag, layers, heads, "square", 0.1, 0, error, error, bound, None if rpe == "table" else 3.0, **more)


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """An experiment of which one number is chosen: the error of a lin layer with one head at lag 2."""

    def choose(error: float) -> None:
        layers = {rpe: [_run(rpe, 1, 1, 0.2, 0.1), _run(rpe, 2, 1, error, 1.0), _run(rpe, 2, 2, 0.9, 0.3)] for rpe in ("lin", "log")}
        banks = [_run("lin", 2, 6, 0.01, 0.001, "best bank"), _run("lin", 2, 6, 0.02, 0.001, "best bank, trained on", before=0.01)]
        deep = [_run("lin", 1, 2, 0.1, None, "linear layers", layers=2), _run("lin", 2, 2, 0.7, None, "linear layers", layers=2)]
        relu = [_run("lin", 2, 2, 0.3, None, "relu layers", layers=2, sampled=True)]
        monkeypatch.setattr(horizon, "one_layer", lambda rpe, *_: layers[rpe])
        monkeypatch.setattr(horizon, "kept", lambda rpe, *_: banks if rpe == "lin" else [])
        monkeypatch.setattr(horizon, "tables", lambda *_: [_run("table", lag, 2, 1e-6, None) for lag in (1, 2)])
        monkeypatch.setattr(horizon, "deep_linear", lambda layers, *_: deep if layers == 2 else [])
        monkeypatch.setattr(horizon, "deep_relu", lambda layers, *_: relu if layers == 2 else [])
        monkeypatch.setattr(layer_bounds, "float32_limit", lambda _, lag: {"lag": lag, "lower": 0.001 * lag, "upper": 0.002 * lag})

    return choose


def test_the_command_says_what_the_numbers_say(run: Any, made_up: Callable[[float], None], tmp_path: Any) -> None:
    made_up(1.25)
    done = run("experiment", "horizon", "--lags", 2, "--figure", tmp_path / "lags.png", "--json")
    assert done.code == 0, done.err
    assert done.json["violations"] == 0 and (tmp_path / "lags.png").stat().st_size > 1000
    said = done.json["findings"]
    assert said[0] == "none of 8 networks is below its certified lower bound"
    assert "smallest error is 1.25" in said[1]
    assert "never beaten" in said[2] and "learns lag 1; float32 would allow lags 1-2" in said[3]
    assert "keeps its error (within 10%) at no lag: 0.01 → 0.02" in said[5]
    assert "alone is below E_u at no lag; with the price u Σ|a| of the weights, at no lag" in said[6]
    assert "L = 2: lag 1" in said[-3] and "L = 2: lag 2" in said[-2] and "learn lags 1-2" in said[-1]
    shown = run("experiment", "horizon", "--lags", 2)
    assert shown.code == 0 and all(finding in shown.out for finding in said) and "1.2" in shown.out


def test_a_beaten_bound_is_an_alarm(run: Any, made_up: Callable[[float], None]) -> None:
    made_up(0.75)
    done = run("experiment", "horizon", "--lags", 2, "--json")
    assert done.code == 1 and done.json["violations"] == 2
    assert "that bound is wrong" in done.json["findings"][0]


@pytest.mark.deep
def test_every_lower_bound_is_below_what_a_bank_reaches() -> None:
    """E_w is at most 1 and at most what the best bank for 2^−24 costs at w."""
    for rpe in ("lin", "log"):
        for lag in (1, 2, 3):
            bank = limits.lag_limit(rpe, lag, layer_bounds.UNIT_32, layer_bounds.DECAY_BITS).bank  # type: ignore[arg-type]
            for bits in FEW_PRICES[rpe]:
                reached = min(1.0, upper(budgeted_error.upper_bound(bank, lag, fmpq(1, 2**bits))))
                assert 0 <= layer_bounds.least_budgeted(rpe, lag, bits) <= reached
