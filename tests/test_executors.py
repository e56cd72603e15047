"""Two executors: the reference pass (O(N²)) and the fast one agree; exact networks agree with both; cost is linear."""

import time

import numpy as np
import pytest

from analyzer.errors import InputError
from analyzer.targets import FixedMemory
from constructions import fast, reference
from constructions.execute import run
from constructions.fused import run_exact
from constructions.thm_3_1 import build, round_network
from tests.conftest import random_network

MIXED = ["lin", "log", "lin", "log", "log"]


@pytest.mark.parametrize("window", ["infinite", "finite"])
@pytest.mark.parametrize("kind", ["dp-free", "dp", "nf", "tmx"])
def test_passes_agree_on_deep_mixed_networks(kind: str, window: str) -> None:
    rng = np.random.default_rng(1)
    network = random_network(rng, MIXED, kind, window, layers=2)
    tokens = rng.uniform(-1, 1, (3, 120, 2))
    slow = reference.forward(network, tokens)
    assert np.abs(fast.forward(network, tokens) - slow).max() < 1e-10
    assert np.abs(fast.forward(network, tokens[0]) - slow[0]).max() < 1e-10
    if window == "infinite":  # zeros before the array change nothing: the constant past is carried
        padded = np.concatenate([np.zeros((3, 40, 2)), tokens], axis=1)
        assert np.abs(fast.forward(network, padded)[:, 40:] - slow).max() < 1e-10
        assert np.abs(reference.forward(network, padded)[:, 40:] - slow).max() < 1e-10


@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("length", [1, 2, 333, 2000])
def test_passes_agree_for_long_arrays(rpe: str, length: int) -> None:
    rng = np.random.default_rng(length)
    network = random_network(rng, [rpe] * 8)
    tokens = rng.uniform(-1, 1, (length, 2))
    assert np.abs(fast.forward(network, tokens) - reference.forward(network, tokens)).max() < 1e-10


def test_softmax_by_hand() -> None:
    """One lin dp-free head in a finite window against the definition, in numpy."""
    rng = np.random.default_rng(5)
    network = random_network(rng, ["lin"], window="finite")
    layer, tokens = network.layers[0], rng.uniform(-1, 1, (6, 2))
    x = tokens @ network.embedding.T + network.bias
    for t in range(6):
        weights = np.exp(-layer.attention.decay[0] * np.arange(t + 1))
        mixed = (weights / weights.sum()) @ (x[t::-1] @ layer.attention.value[0].T)
        u = x[t] + layer.attention.output[0] @ mixed
        wanted = layer.feedforward.outer @ np.maximum(layer.feedforward.inner @ u + layer.feedforward.bias, 0)
        assert fast.forward(network, tokens)[t] == pytest.approx(wanted[0], abs=1e-12)


@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_exact_networks_agree_with_float64(rpe: str) -> None:
    exact = build(FixedMemory((1, 2), 1, "x0 + m1*m2"), rpe=rpe, error=0.3).network
    floats = round_network(exact, "float64")
    tokens = np.random.default_rng(0).uniform(-1, 1, (4, 100, 1))
    fused = run_exact(exact, tokens)
    assert np.abs(fused - fast.forward(floats, tokens)).max() < 1e-10
    assert np.abs(fused - reference.forward(floats, tokens)).max() < 1e-10


@pytest.mark.timing
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_cost_is_linear(rpe: str) -> None:
    network = random_network(np.random.default_rng(0), [rpe] * 16, width=2, dim=1)

    def seconds(length: int) -> float:
        tokens = np.random.default_rng(1).uniform(-1, 1, (length, 1))
        fast.forward(network, tokens)
        times = []
        for _ in range(7):
            start = time.perf_counter()
            fast.forward(network, tokens)
            times.append(time.perf_counter() - start)
        return min(times)

    assert seconds(2**17) < 2.4 * seconds(2**16)


@pytest.mark.parametrize("tokens", [np.full((4, 1), np.nan), np.ones((4, 2)), np.ones(4), np.zeros((0, 1)), 2 * np.ones((4, 1))])
def test_bad_tokens_are_refused(tokens: np.ndarray) -> None:
    network = build(FixedMemory((1,))).network
    with pytest.raises(InputError):
        run(network, tokens)
