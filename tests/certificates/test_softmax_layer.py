"""One softmax layer from any weights: never below an error that occurs, near the witness, the same twice, sharper with more work."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from flint import fmpq

from analyzer.errors import Refusal
from analyzer.targets.adaptive import AdaptiveMemory, Memory
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.kernel import KernelMemory
from analyzer.targets.protocol import Target
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, to_exact
from constructions.run.execute import run
from constructions.training.recipes import Shape, TrainingRecipe
from constructions.training.trainable import initial, train
from tests.depth import FULL
from verify.layers.softmax.certificate import softmax_error
from verify.theorems.no_theorem import verify_learnt

PRODUCT = FixedMemory((1, 3), 1, "m1*m2")


def layer(seed: int, dim: int = 1, dtype: str = "float64", size: float = 1.0, **shape: object) -> Transformer:
    """Random weights; `size` multiplies queries, so that heads become steep."""
    sizes = Shape(**{"heads": 2, "width": 6, "model_dim": 3, "attention": "dp", "rpe": "table", "reach": 5, **shape})
    network = initial(sizes, dim, seed, 8, dtype)
    first = network.layers[0]
    attention = replace(first.attention, query=(first.attention.query * size).astype(dtype))
    return replace(network, layers=(replace(first, attention=attention),))


def sampled(network: Transformer, target: Target, length: int, count: int = 4000) -> float:
    """The largest error of random sequences, half of them signs."""
    rng = np.random.default_rng(7)
    tokens = target.draw(rng, (count, length))
    if target.signed:
        tokens[::2] = np.sign(tokens[::2])
    return float(np.abs(run(network, tokens)[:, -1] - target.values(np)(tokens)[:, -1]).max())


TARGETS = {
    "product": (PRODUCT, {}, 12),
    "two coordinates": (FixedMemory((1,), 2, "m1[0]*m1[1] + x0[0]"), {"reach": 3}, 6),
    "kernel": (KernelMemory(("exp(-s)",), 1, "abs(k1)"), {"rpe": "lin", "reach": 0}, 24),
    "log heads": (FixedMemory((2,), 1, "relu(m1 - x0)"), {"rpe": "log", "reach": 0}, 40),
    "letters": (FixedMemory((1, 2), 1, "m1*m2", (-1, 0, 1)), {}, 8),
    "pointer": (AdaptiveMemory(((-1,), (1,)), (Memory("m1", "2 + x0"),), "m1"), {"rpe": "lin", "reach": 0}, 24),
}


@pytest.mark.deep(keep=("1.0-letters", "1.0-product"))
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("size", [1.0, pytest.param(6.0, marks=pytest.mark.deep)])
def test_no_error_exceeds_the_certificate(name: str, size: float) -> None:
    target, shape, length = TARGETS[name]
    for seed in range(2 if FULL else 1):
        network = layer(seed, target.dim, size=size, **shape)
        found = softmax_error(network, target, seconds=0.2)
        assert sampled(network, target, length) <= found.certified
        assert 0 < found.witness <= found.certified < np.inf


@pytest.mark.deep
@pytest.mark.parametrize("window", ["finite", "full"])
def test_arrays_of_a_given_length(window: str) -> None:
    network = layer(3, rpe="none" if window == "full" else "lin", reach=0, window=window)
    found = softmax_error(network, PRODUCT, length=6, seconds=0.3)
    assert sampled(network, PRODUCT, 6) <= found.certified
    assert found.witness / found.certified > 0.8
    with pytest.raises(Refusal, match="give the length"):
        softmax_error(network, PRODUCT)


@pytest.mark.deep
def test_letters_agree_with_all_sequences() -> None:
    target = FixedMemory((1, 2), 1, "m1*m2", (-1, 1))
    network = layer(5, window="finite", rpe="lin", reach=0, size=3.0)
    found = softmax_error(network, target, length=7, seconds=1.0)
    words = np.array(list(itertools.product((-1.0, 1.0), repeat=7)))[..., None]
    worst = float(np.abs(run(network, words)[:, -1] - target.values(np)(words)[:, -1]).max())
    assert found.witness == pytest.approx(worst, rel=1e-12)
    assert worst <= found.certified <= 1.011 * worst


@pytest.mark.deep(keep="m1 + m2")
@pytest.mark.parametrize("formula", ["m1*m2", "m1 + m2"])
def test_one_head_read_linearly_is_exact(formula: str) -> None:
    target = FixedMemory((1, 3), 1, formula)
    network = layer(1, heads=1, width=2, readout="affine", reach=8, size=3.0)
    found = softmax_error(network, target, seconds=1.0)
    assert 0.999 <= found.witness / found.certified <= 1


@pytest.mark.deep
def test_a_trained_layer_is_certified_near_its_witness() -> None:
    shape = Shape(heads=2, width=16, model_dim=4, rpe="table", attention="dp", key_dim=2, value_dim=1, reach=5)
    network, _ = train(initial(shape, 1, 0, 8), PRODUCT, TrainingRecipe(length=12, first=6, batch=128, steps=400, seed=0))
    few, more = (softmax_error(network, PRODUCT, seconds=seconds) for seconds in (0.3, 6.0))
    assert few.witness <= more.certified <= few.certified
    assert more.witness / more.certified >= 0.8
    again = softmax_error(network, PRODUCT, seconds=0.3)
    assert (few.certified, few.witness, few.cells) == (again.certified, again.witness, again.cells)


def test_exact_weights_have_no_rounding_and_floats_do() -> None:
    network = layer(2, dtype="float32")
    exact = softmax_error(network.map(to_exact), PRODUCT, seconds=0.2)
    floats = softmax_error(network, PRODUCT, seconds=0.2)
    assert exact.rounding == 0 < floats.rounding < 1e-4
    assert floats.certified == pytest.approx(exact.certified + floats.rounding, rel=1e-9)
    assert abs(floats.witness - exact.witness) <= floats.rounding


def test_logits_beyond_double_precision_are_refused() -> None:
    with pytest.raises(Refusal, match="logits of one head span"):
        softmax_error(layer(0, size=3000.0), PRODUCT)


@pytest.mark.deep
def test_a_witness_has_no_zeros_among_its_letters() -> None:
    """Zeros stand before arrays. Between letters above 0 they would make this error larger than any array of letters does."""
    query, key = np.zeros((2, 1, 3)), np.zeros((2, 1, 3))
    value, output = np.zeros((2, 1, 3)), np.zeros((2, 3, 1))
    value[:, 0, 0] = output[0, 1, 0] = output[1, 2, 0] = 1
    attention = Attention(np.array([0.7, 0.1]), value, output, query, key, np.zeros((0, 3)), ("lin", "lin"), "dp", "infinite")
    ffn = FeedForward(np.array([[0.0, -3, 4], [0, 3, -4]]), np.zeros(2), np.array([[1.0, -1]]))
    network = Transformer(np.array([[1.0], [0], [0]]), np.zeros(3), (Layer(attention, ffn),))
    found = softmax_error(network, FixedMemory((1,), 1, "0.001*m1", (fmpq(1, 2), 1)), seconds=0.5)
    s = np.arange(4000)
    kernel = -3 * np.exp(-0.7 * s) * -np.expm1(-0.7) + 4 * np.exp(-0.1 * s) * -np.expm1(-0.1)
    kernel[1] -= 0.001
    worst = max(np.cumsum(np.where(sign * kernel > 0, sign * kernel, sign * kernel / 2))[1:].max() for sign in (1, -1))
    assert 0.99 * worst < found.witness <= worst + 1e-12 <= found.certified


@pytest.mark.parametrize(("lag", "witness"), [(300, 0.5), (4500, 0.0)])
def test_a_witness_holds_the_longest_lag(lag: int, witness: float) -> None:
    """Before an array of letters there are zeros, but no certificate speaks of positions that read them."""
    nothing = np.zeros((1, 1, 1))
    attention = Attention(np.ones(1), nothing, nothing, nothing, nothing, np.zeros((0, 1)), ("lin",), "dp", "infinite")
    network = Transformer(np.ones((1, 1)), np.zeros(1), (Layer(attention, FeedForward(np.zeros((1, 1)), np.ones(1), np.ones((1, 1)))),))
    found = softmax_error(network, FixedMemory((lag,), 1, "m1", (fmpq(1, 2), 1)), seconds=0.1)
    assert found.witness == witness and 0.5 <= found.certified < 0.5 + 1e-9


@pytest.mark.deep
def test_sampled_arrays_hold_the_longest_lag() -> None:
    """A network that was trained on shorter ones has the same witness."""
    nothing, none = np.zeros((1, 1, 1)), np.zeros((1, 0, 1))
    attention = Attention(np.ones(1), nothing, nothing, none, none, np.zeros((0, 1)), ("lin",), "dp-free", "infinite")
    network = Transformer(np.ones((1, 1)), np.zeros(1), (Layer(attention, FeedForward(np.zeros((1, 1)), np.ones(1), np.ones((1, 1)))),))
    found = verify_learnt(network, FixedMemory((40,), 1, "m1", (fmpq(1, 2), 1)), length=32)
    assert found.witness == 0.5 <= found.certified and "41 tokens" in found.witness_input
