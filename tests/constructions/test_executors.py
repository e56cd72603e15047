"""Two executors: the reference pass (O(N²)) and the fast one agree; exact networks agree with both; cost is linear."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.numbers.exact import rational, working_precision
from analyzer.targets.fixed import FixedMemory
from constructions.network.precision import with_x64
from constructions.network.transformer import Attention, Transformer, to_exact
from constructions.run import fast, reference
from constructions.run.execute import run
from constructions.run.fused import run_exact
from constructions.theorems.assembly import round_network
from constructions.theorems.thm_3_1 import build
from tests.conftest import random_network

MIXED = ["lin", "log", "lin", "log", "log"]


@pytest.mark.deep
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


@pytest.mark.deep
@pytest.mark.parametrize("reach", [1, 9, 700])
@pytest.mark.parametrize("window", ["infinite", "finite"])
@pytest.mark.parametrize("kind", ["dp-free", "dp"])
def test_passes_agree_on_biases_per_distance(kind: str, window: str, reach: int) -> None:
    rng = np.random.default_rng(reach)
    network = random_network(rng, ["table"] * 3, kind, window, layers=2, reach=reach)
    tokens = rng.uniform(-1, 1, (3, 120, 2))
    slow = reference.forward(network, tokens)
    assert np.abs(fast.forward(network, tokens) - slow).max() < 1e-10
    if window == "infinite":
        padded = np.concatenate([np.zeros((3, 40, 2)), tokens], axis=1)
        assert np.abs(fast.forward(network, padded)[:, 40:] - slow).max() < 1e-10


@pytest.mark.deep
@pytest.mark.parametrize("rpe", ["lin", "log", "table"])
@pytest.mark.parametrize("window", ["infinite", "finite"])
@pytest.mark.parametrize("first", [0, 3])
def test_blocks_of_queries_change_nothing(rpe: str, window: str, first: int) -> None:
    """Long arrays are attended to in blocks, which see shorter arrays: the same outputs as all at once."""
    rng = np.random.default_rng(first)
    length = reference.BLOCKS * reference.LEAST_BLOCK + 7
    network = random_network(rng, [rpe] * 2, "dp", window)
    x, past = rng.uniform(-1, 1, (2, length, 3)), rng.uniform(-1, 1, 3)
    with with_x64("float64"):
        attention = network.layers[0].attention
        blocks, blocks_past = reference._attend(attention, jnp.asarray(x), jnp.asarray(past), first, reference.BLOCKS)
        whole, whole_past = reference._attend(attention, jnp.asarray(x), jnp.asarray(past), first)
    np.testing.assert_allclose(blocks, whole, atol=1e-13)
    np.testing.assert_allclose(blocks_past, whole_past, atol=1e-13)
    assert blocks.shape == (2, length - first, 3)


@pytest.mark.deep
@pytest.mark.parametrize("rpe", ["lin", "log", "table"])
@pytest.mark.parametrize("window", ["infinite", "finite"])
def test_portions_of_queries_change_nothing(rpe: str, window: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays with very many pairs go through their queries in portions: the same outputs and derivatives as all at once."""
    rng = np.random.default_rng(5)
    network = random_network(rng, [rpe] * 2, "dp", window)
    x, past = rng.uniform(-1, 1, (2, 101, 3)), rng.uniform(-1, 1, 3)

    def outputs(attention: Attention) -> jax.Array:
        output, before = reference._attend(attention, jnp.asarray(x), jnp.asarray(past), 2)
        return jnp.sum(output**2) + jnp.sum(before)

    with with_x64("float64"):
        whole = jax.value_and_grad(outputs)(network.layers[0].attention)
        monkeypatch.setattr(reference, "HELD", 7 * 2 * 2 * 101)  # seven queries at once
        portions = jax.value_and_grad(outputs)(network.layers[0].attention)
        assert "scan" in str(jax.make_jaxpr(outputs)(network.layers[0].attention))
    for one, other in zip(jax.tree.leaves(portions), jax.tree.leaves(whole), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-13)


@pytest.mark.deep
def test_memory_of_dot_products_grows_like_the_array(monkeypatch: pytest.MonkeyPatch) -> None:
    """What XLA holds for a derivative: four times as much for twice the tokens all at once, twice in portions."""
    attention = random_network(np.random.default_rng(6), ["lin"] * 2, "dp", "finite", dtype="float32").layers[0].attention

    def held(length: int) -> int:
        def loss(given: Attention, x: jax.Array) -> jax.Array:
            return jnp.sum(reference._attend(given, x, jnp.zeros(3, x.dtype), 0)[0] ** 2)

        program = jax.jit(jax.grad(loss)).lower(attention, jax.ShapeDtypeStruct((length, 3), jnp.float32)).compile()
        return int(program.memory_analysis().temp_size_in_bytes)

    assert held(2048) > 3.5 * held(1024)
    monkeypatch.setattr(reference, "HELD", 1 << 14)
    assert held(2048) < 2.5 * held(1024) and 20 * held(2048) < 2 * 2048**2 * 4


def test_a_bias_per_distance_by_hand() -> None:
    """One table head over the infinite past: its exact kernel, and the definition in numpy."""
    network = random_network(np.random.default_rng(3), ["table"], bias=False, dim=1)
    layer, tokens = network.layers[0], np.random.default_rng(4).uniform(-1, 1, (30, 1))
    weights = np.exp(layer.attention.table[0]) / np.exp(layer.attention.table[0]).sum()
    x = tokens @ network.embedding.T
    mixed = np.array([sum(w * x[t - s] for s, w in enumerate(weights) if s <= t) for t in range(30)])
    u = x + mixed @ layer.attention.value[0].T @ layer.attention.output[0].T
    wanted = np.maximum(u @ layer.feedforward.inner.T + layer.feedforward.bias, 0) @ layer.feedforward.outer[0]
    np.testing.assert_allclose(fast.forward(network, tokens), wanted, atol=1e-12)
    np.testing.assert_allclose(run_exact(network.map(to_exact), tokens), wanted, atol=1e-12)


@pytest.mark.deep
def test_log_hurwitz_and_its_derivative() -> None:
    """Against flint's zeta, and against a difference quotient in 200 bits, for decays and positions that occur."""
    p, q = np.meshgrid([1.001, 1.5, 2.0, 7.3, 40.0, 900.0], [1.0, 2.0, 13.0, 1000.0, 1e6])
    step = fmpq(1, 10**20)
    with working_precision(400):
        exact = [arb(rational(float(a))).zeta(arb(b)).log() for a, b in zip(p.flat, q.flat, strict=True)]
        moved = [arb(rational(float(a)) + step).zeta(arb(b)).log() for a, b in zip(p.flat, q.flat, strict=True)]
        slopes = [float((m - e) / arb(step)) for m, e in zip(moved, exact, strict=True)]
    with with_x64("float64"):
        values = np.asarray(reference.log_hurwitz(jnp.asarray(p), jnp.asarray(q)))
        gradients = np.asarray(jax.grad(lambda p: reference.log_hurwitz(p, jnp.asarray(q)).sum())(jnp.asarray(p)))
    np.testing.assert_allclose(values.ravel(), [float(e) for e in exact], rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(gradients.ravel(), slopes, rtol=1e-10, atol=1e-12)


@pytest.mark.deep
@pytest.mark.parametrize(("rpe", "kind"), [(r, k) for r in ("lin", "log") for k in ("dp-free", "dp", "tmx")] + [("table", "dp")])
@pytest.mark.parametrize("window", ["infinite", "finite"])
def test_every_weight_has_a_finite_derivative(rpe: str, kind: str, window: str) -> None:
    """A head of type log sees nothing at the first token: nothing there may turn into NaN."""
    network = random_network(np.random.default_rng(2), [rpe] * 2, kind, window, layers=2, dtype="float32")
    tokens = jnp.asarray(np.random.default_rng(3).uniform(-1, 1, (2, 7, 2)), jnp.float32)

    def total(weights: Transformer) -> jax.Array:
        x, past = tokens @ weights.embedding.T + weights.bias, weights.bias
        for index, layer in enumerate(weights.layers):
            attended, past_attended = reference.attend(layer.attention, x, past, first=3 * index)
            x, past = reference.feed(layer.feedforward, x[:, 3 * index :] + attended, past + past_attended, index == 1)
        return (x**2).sum()

    value, gradient = jax.value_and_grad(total)(network.map(jnp.asarray))
    assert value == pytest.approx(float((reference.forward(network, tokens)[:, 3:] ** 2).sum()), rel=1e-4)
    assert all(bool(jnp.isfinite(leaf).all()) for leaf in jax.tree.leaves(gradient))
    moved = jax.tree.leaves(gradient.layers[0].attention)
    assert float(jnp.abs(moved[0] if rpe != "table" else moved[-1]).max()) > 0


@pytest.mark.deep(keep="333-lin")
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


@pytest.mark.deep
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_exact_networks_agree_with_float64(rpe: str) -> None:
    exact = build(FixedMemory((1, 2), 1, "x0 + m1*m2"), rpe=rpe, error=0.3).network
    floats = round_network(exact, "float64")
    tokens = np.random.default_rng(0).uniform(-1, 1, (4, 100, 1))
    fused = run_exact(exact, tokens)
    assert np.abs(fused - fast.forward(floats, tokens)).max() < 1e-10
    assert np.abs(fused - reference.forward(floats, tokens)).max() < 1e-10


def work(program: Any) -> int:
    """Numbers that a traced program writes, loops counted as often as they run: its cost up to a logarithm for transforms."""
    total = 0
    for equation in program.eqns:
        inner = [v for v in equation.params.values() if hasattr(v, "eqns") or hasattr(v, "jaxpr")]
        rounds = equation.params["length"] if equation.primitive.name == "scan" else 1
        total += rounds * sum(work(getattr(v, "jaxpr", v)) for v in inner)
        total += 0 if inner else sum(math.prod(v.aval.shape) for v in equation.outvars)
    return total


def pass_work(network: Transformer, length: int, attend: Callable[..., Any]) -> int:
    constants = fast.network_constants(network, length)[0]
    with jax.enable_x64(True):
        x, past = jnp.zeros((length, network.embedding.shape[0])), jnp.zeros(network.embedding.shape[0])
        return work(jax.make_jaxpr(lambda x, past: attend(network.layers[0].attention, constants, x, past))(x, past).jaxpr)


@pytest.mark.deep(keep="lin")
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_cost_is_linear(rpe: str) -> None:
    """Twice the tokens, twice the work; the plain pass does four times as much, so the count can tell them apart."""
    network = random_network(np.random.default_rng(0), [rpe] * 16, width=2, dim=1)
    short, long = (pass_work(network, length, fast.attend) for length in (2**16, 2**17))
    assert long <= 2 * short
    short, long = (
        pass_work(network, length, lambda attention, _, x, past: reference.attend(attention, x, past)) for length in (2**8, 2**9)
    )
    assert long > 3.5 * short


@pytest.mark.parametrize("tokens", [np.full((4, 1), np.nan), np.ones((4, 2)), np.ones(4), np.zeros((0, 1)), 2 * np.ones((4, 1))])
def test_bad_tokens_are_refused(tokens: np.ndarray) -> None:
    network = build(FixedMemory((1,))).network
    with pytest.raises(InputError):
        run(network, tokens)


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize("heads", [1, 6])
def test_heads_in_one_transform_are_those_one_by_one(heads: int, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Six slow log heads take fewer transforms together, one does not; lin heads beside them are scanned."""
    network = random_network(np.random.default_rng(heads), ["log"] * heads + ["lin"], layers=2)
    network = replace(network, layers=tuple(replace(one, attention=replace(one.attention, stride=stride)) for one in network.layers))
    tokens = np.random.default_rng(0).uniform(-1, 1, (2, 600 * stride, 2))
    constants = fast.network_constants(network, tokens.shape[-2])[0]
    assert len(fast.heads_of_one_transform(network.layers[0].attention, constants)) == (6 if heads == 6 else 0)
    found = fast.forward(network, tokens)
    monkeypatch.setattr(fast, "heads_of_one_transform", lambda attention, constants: np.zeros(0, int))
    jax.clear_caches()
    alone = fast.forward(network, tokens)
    assert np.abs(found - alone).max() < 1e-12 and (heads == 1 or (found != alone).any())
    jax.clear_caches()
