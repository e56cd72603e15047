"""Mean-square floors beside networks: true for random and for fitted weights, silent where nothing is proved, and caught when raised."""

from dataclasses import replace
from typing import Any

import jax
import numpy as np
import pytest
from flint import arb, fmpq

import lemmaformer as lf
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.kernel import KernelMemory
from analyzer.targets.tokens import TOKEN_LAWS
from constructions.network.transformer import Transformer
from constructions.training import trainable as learning
from constructions.training.recipes import Shape
from verify.experiments import horizon, layer_bounds
from verify.experiments.we_rows import WeRow, floor_sentences
from verify.limits.mean_square import lag_floor
from verify.theorems.floors import VARIANCES, contradicted, floor_of, infinite_floor, window_floor

FORWARD = jax.jit(learning.outputs)


def expected_squares(network: Transformer, target: Any, first: int, length: int) -> np.ndarray:
    """E|ŷ_t − y_t|² for uniform tokens, from the network's answers to single tokens."""
    tokens = np.eye(length)[..., None].astype(np.float32)
    answers = np.asarray(FORWARD(network, tokens), np.float64)
    off = answers.reshape(length, length) - np.asarray(target.values(np)(tokens.astype(np.float64))).reshape(length, length)
    return np.asarray((off**2).sum(axis=0)[first:] / 3)


def with_best_weights(network: Transformer, target: Any, t: int) -> Transformer:
    """The same heads with the weights that are best at position t: heads read u_1 = x and write to u_0."""
    heads = len(network.layers[0].attention.rpe)
    attention = network.layers[0].attention
    value = np.tile(np.array([0, 1], np.float32), (heads, 1, 1))
    tokens = np.eye(t + 1)[..., None].astype(np.float32)
    columns = []
    for h in range(heads + 1):
        output = np.zeros((heads, 2, 1), np.float32)
        if h < heads:
            output[h, 0] = 1
        probe = replace(network.layers[0], attention=replace(attention, value=value, output=output))
        one = replace(network, embedding=np.array([[float(h == heads)], [1]], np.float32), layers=(probe,))
        columns.append(np.asarray(FORWARD(one, tokens)).reshape(t + 1, t + 1)[:, t])
    wanted = np.asarray(target.values(np)(tokens.astype(np.float64))).reshape(t + 1, t + 1)[:, t]
    weights = np.linalg.lstsq(np.array(columns).T, wanted, rcond=None)[0]
    output = np.stack([weights[:heads], np.zeros(heads)], -1)[..., None].astype(np.float32)
    layer = replace(network.layers[0], attention=replace(attention, value=value, output=output))
    return replace(network, embedding=np.array([[weights[heads]], [1]], np.float32), layers=(layer,))


TARGETS = {"lag": FixedMemory((6,)), "lags": FixedMemory((4, 6), formula="m1 - 2*m2"), "kernels": KernelMemory(("(s+2)**-2", "exp(-s)"))}


@pytest.mark.deep(keep=("lag-infinite-lin", "lags-finite-log", "kernels-finite-lin"))
@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("window", ["infinite", "finite"])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_no_weights_fall_below_the_floor(rpe: str, window: Any, target: Any) -> None:
    first, length = max(6, target.settled), 26
    for seed, heads in ((0, 2), (1, 2), (2, 1)):
        start = learning.initial(Shape(heads=heads, rpe=rpe, window=window, readout="affine"), 1, seed, 12)
        floor = floor_of(start, target, "uniform", first, length)
        assert floor.heads == heads and floor.value is not None
        if rpe == "lin":
            assert floor.value > 0
        for network in (start, with_best_weights(start, target, length - 1)):
            assert expected_squares(network, target, first, length).mean() >= floor.value


def test_windows_with_random_slopes_stay_above_their_floor() -> None:
    rng, s = np.random.default_rng(0), np.arange(1, 60.0)
    for rpe in ("lin", "log"):
        for lags in ((5,), (48,), (3, 7), (50, 55), (12, 24)):
            wanted = np.isin(s, lags) * 1.0
            for heads in (1, 2, 4):
                floor = window_floor([arb(float(v)) for v in wanted], heads, rpe)  # type: ignore[arg-type]
                for _ in range(20):
                    kernels = np.exp(-np.outer(s if rpe == "lin" else np.log(s), rng.uniform(0, 1.5, heads) ** 3))
                    basis, sizes, _ = np.linalg.svd(kernels, full_matrices=False)
                    basis = basis[:, sizes > 1e-9 * sizes[0]]
                    assert np.sum((wanted - basis @ (basis.T @ wanted)) ** 2) >= floor - 1e-9
    assert window_floor([arb(0)] * 5, 1, "lin") == 0


def test_two_linear_layers_count_all_their_heads() -> None:
    target = FixedMemory((6,))
    for seed in range(2):
        network = horizon.random_start("lin", 1, 1, seed, 6, layers=2)
        floor = floor_of(network, target, "uniform", 11, 30)
        assert floor.heads == 2 and floor.value == pytest.approx((1 - 2 / 6) / 3, rel=1e-5)
        assert expected_squares(network, target, 11, 30).mean() >= floor.value


def silent(network: Transformer, target: Any = None, tokens: str = "uniform") -> str:
    found = floor_of(network, target or FixedMemory((6,)), tokens, 6, 20)
    assert found.value is None and found.reason
    return found.reason


def test_nothing_is_said_where_nothing_is_proved() -> None:
    shape = Shape(heads=2, readout="affine")
    linear = learning.initial(shape, 1, 0, 8)
    assert "feed-forward" in silent(learning.initial(replace(shape, readout="relu"), 1, 0, 8))
    assert "lin heads" in silent(learning.initial(replace(shape, rpe="table", reach=8), 1, 0, 8))
    assert "dp-free" in silent(learning.initial(replace(shape, attention="dp"), 1, 0, 8))
    deep = horizon.random_start("lin", 1, 1, 0, 6, layers=2)
    finite = tuple(replace(layer, attention=replace(layer.attention, window="finite")) for layer in deep.layers)
    assert "several layers" in silent(replace(deep, layers=finite))
    assert "not linear" in silent(linear, FixedMemory((2, 6), formula="m1*m2"))
    assert "letters" in silent(linear, FixedMemory((6,), alphabet=(fmpq(-1), fmpq(1))), "letters")


def test_a_raised_floor_is_contradicted_and_sampling_is_not() -> None:
    rng = np.random.default_rng(0)
    squares = rng.chisquare(20, 4096) / 20
    assert not contradicted(1.0, squares) and not contradicted(None, squares)
    assert contradicted(1.03, squares)
    row = WeRow("a", "t", "lin", 1, None, "exact", (0.5,), 1.0, floor=0.5)
    assert not row.below_its_floor and replace(row, floor=0.515).below_its_floor
    said = " ".join(floor_sentences([replace(row, published=1e-6)]))
    assert "none of 1 rows is below" in said and "1e-06 below 0.5 (a)" in said
    assert "is wrong: a" in " ".join(floor_sentences([replace(row, floor=0.6)]))
    sampled = replace(row, how="sampled", held_out=4096)
    assert not replace(sampled, floor=0.515).below_its_floor and replace(sampled, floor=0.6).below_its_floor


def test_trained_lags_stand_beside_their_floor() -> None:
    """‖κ − 1_T‖² from the stored weights is the sum over the kernel, and no start is below the floor; a lower number would be counted."""
    for rpe, layers in (("lin", 1), ("log", 1), ("lin", 2)):
        network = horizon.without_silent_heads(horizon.random_start(rpe, 2, 2, 1, 4, layers))
        found = layer_bounds.measured(network, 5) if layers == 1 else layer_bounds.measured_deep(network, 5)
        kernel = np.array(jax.jit(horizon.response, static_argnums=1)(network, 4000), np.float64)
        kernel[5] -= 1
        assert found.square == pytest.approx(np.sum(kernel**2), rel=1e-3)
        floor = lag_floor(5, 2 * layers, rpe)  # type: ignore[arg-type]
        assert found.square is not None and found.square >= floor
    run = horizon.Run("k", "lin", 5, 1, 2, "square", 0.1, 0, 2.0, 1.0, 1.0, 1.0, square=0.9, floor=0.8)
    assert not run.beats_its_bound and replace(run, square=0.7).beats_its_bound
    assert "none is below" in horizon._floor_findings([run])[0] and "1 are below" in horizon._floor_findings([replace(run, square=0.7)])[0]
    assert VARIANCES["uniform"] < 1 / 3


@pytest.mark.parametrize("tokens", ["signs", "gaussian", "uniform"])
def test_certificates_in_mean_square_name_the_floor(tokens: str) -> None:
    net = lf.build(lf.fixed(lags=(4,)), norm="mean-square", decays=(0.5, 1.5), tokens=tokens)
    found = net.verify().as_dict()
    variance = 1 / 3 if tokens == "uniform" else 1.0
    assert found["floor"] == pytest.approx(variance * (1 - 2 / 4), rel=1e-12)
    assert found["floor"] <= found["witness"] <= found["certified"]
    target = lf.fixed(lags=(2,))
    assert infinite_floor(net.transformer, target, TOKEN_LAWS["signs"], affine=True).value == 0  # two heads recover a lag of 2
