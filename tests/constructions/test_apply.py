"""Networks as functions of their weights (jit, grad, vmap), the named slots of their stream, and their attention weights."""

import tomllib
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from analyzer.errors import InputError, Refusal
from analyzer.targets.adaptive import AdaptiveMemory
from analyzer.targets.coupling import CouplingTarget
from analyzer.targets.files import target_from_dict
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.kernel import KernelMemory
from constructions.network.transformer import Transformer, exact_array
from constructions.run import fast, reference, stream
from constructions.run.apply import apply, parameters
from constructions.run.execute import run
from constructions.theorems import jl_4_2, shift_chain, thm_3_1, thm_4_4, thm_5_1
from tests.conftest import random_network

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
SHAPES = [("lin", "dp-free"), ("log", "dp-free"), ("table", "dp-free"), ("lin", "dp"), ("log", "nf"), ("lin", "tmx"), ("log", "tmx")]


def example(name: str) -> AdaptiveMemory | CouplingTarget:
    found = target_from_dict(tomllib.loads((EXAMPLES / name).read_text()), name)
    assert isinstance(found, AdaptiveMemory | CouplingTarget)
    return found


@cache
def nested(rpe: str, attention: str, dtype: str = "exact", error: float = 0.01) -> Transformer:
    """Three layers: the lag of the second memory is read off the first."""
    target = example("nested.toml")
    assert isinstance(target, AdaptiveMemory)
    return thm_4_4.build(target, rpe=rpe, attention=attention, dtype=dtype, error=error).network  # type: ignore[arg-type]


def letters(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice([-1.0, 1.0], shape)


def drawn(rpe: str, kind: str, window: str = "infinite", dtype: str = "float64") -> Transformer:
    return random_network(np.random.default_rng(7), [rpe] * 2, kind, window, layers=2, dtype=dtype)


@pytest.mark.deep
@pytest.mark.parametrize(("rpe", "kind"), SHAPES)
@pytest.mark.parametrize("window", ["infinite", "finite"])
def test_apply_is_the_network(rpe: str, kind: str, window: str) -> None:
    """Against both executors; alone, compiled, and mapped over sequences."""
    network, tokens = drawn(rpe, kind, window), np.random.default_rng(1).uniform(-1, 1, (3, 20, 2))
    wanted, slow = fast.forward(network, tokens), reference.forward(network, tokens)
    function = partial(apply, dtype="float64")
    with jax.enable_x64(True):
        outputs = [function(network, tokens), jax.jit(function)(network, tokens), jax.vmap(function, (None, 0))(network, tokens)]
        outputs.append(function(network, tokens[None])[0])
    for found in outputs:
        assert found.dtype == jnp.float64
        np.testing.assert_allclose(found, slow, atol=1e-13)
        np.testing.assert_allclose(found, wanted, atol=1e-11)


@pytest.mark.deep
@pytest.mark.parametrize(("rpe", "kind"), SHAPES)
def test_derivatives_are_difference_quotients(rpe: str, kind: str) -> None:
    """Of a smooth loss, along random directions in every array of weights by itself, and in the tokens."""
    network, tokens = drawn(rpe, kind), np.random.default_rng(2).uniform(-1, 1, (2, 9, 2))
    weights = np.random.default_rng(3).standard_normal((2, 9))

    def loss(network: Transformer, tokens: jax.Array) -> jax.Array:
        return (weights * apply(network, tokens, dtype="float64")).sum()

    check_derivatives(loss, network, tokens, 1e-5, tolerance=1e-6)


@pytest.mark.deep
@pytest.mark.parametrize(("rpe", "attention"), [("lin", "dp"), ("log", "dp"), ("lin", "tmx"), ("log", "tmx")])
def test_derivatives_of_a_constructed_adaptive_network(rpe: str, attention: str) -> None:
    """At positions whose lags lie in the array: before them the slots of constructed networks may hold anything.

    Rounded feed-forward parts are constant, also around here. The error is large, as weights grow with its inverse and cancel: the
    derivatives of a network for 0.01 are millions, and quotients of floats no longer show them.
    """
    network, tokens = parameters(nested(rpe, attention, error=0.9)), letters(2, 24, 1)

    def loss(network: Transformer, tokens: jax.Array) -> jax.Array:
        return apply(network, tokens, dtype="float64")[:, 8:].sum()

    check_derivatives(loss, network, tokens, 1e-4, tolerance=1e-5)


def check_derivatives(
    loss: Callable[[Transformer, jax.Array], jax.Array], network: Transformer, tokens: np.ndarray, move: float, tolerance: float
) -> None:
    """Central quotients over steps that move the loss by this share of its size or less, along random directions in one array at a time.

    They are off by the step squared and by rounding over the step, which cancellation magnifies; small steps seldom meet kinks of relu.
    """
    rng = np.random.default_rng(4)
    leaves, tree = jax.tree.flatten((network, tokens))
    moved = 0
    with jax.enable_x64(True):
        compiled, slopes = jax.jit(loss), jax.tree.leaves(jax.jit(jax.grad(loss, argnums=(0, 1)))(network, tokens))
        size = max(1.0, abs(float(compiled(network, tokens))))
        for place, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):
            assert slope.dtype == jnp.float64 and np.isfinite(slope).all()
            direction = rng.standard_normal(leaf.shape)
            found = float((np.asarray(slope) * direction).sum())
            quotients = []
            for step in (share * size / max(size, abs(found)) for share in (move, move / 30)):  # the smaller one misses most kinks
                ends = []
                for sign in (1, -1):
                    changed = [*leaves[:place], leaf + sign * step * direction, *leaves[place + 1 :]]
                    ends.append(float(compiled(*jax.tree.unflatten(tree, changed))))
                quotients.append((ends[0] - ends[1]) / (2 * step))
            quotient = min(quotients, key=lambda value: abs(value - found))
            assert found == pytest.approx(quotient, rel=tolerance, abs=tolerance * size), f"array {place} of {len(leaves)}"
            moved += found != 0
    assert moved >= 12  # embedding, bias, and in both layers decays or tables, values, outputs, feed-forward parts


@pytest.mark.deep
def test_weights_cut_to_32_bits_are_refused() -> None:
    network, tokens = parameters(nested("lin", "dp", "float64")), letters(2, 24, 1)
    function = partial(apply, dtype=network.dtype)
    for call in (function, jax.jit(function), jax.grad(lambda n, t: function(n, t).sum()), jax.vmap(function, (None, 0))):
        with pytest.raises(InputError, match=r"with jax\.enable_x64\(True\)"):
            call(network, tokens)
    cut = network.map(lambda leaf: jnp.asarray(leaf, jnp.float32))
    with jax.enable_x64(True):
        with pytest.raises(InputError, match="weights are float32"):
            function(cut, tokens)
        with pytest.raises(InputError, match="tokens are float32"):
            jax.jit(function)(network, tokens.astype(np.float32))
        np.testing.assert_allclose(function(network, tokens.astype(int)), function(network, tokens))


@pytest.mark.deep
def test_single_precision_needs_nothing() -> None:
    network, tokens = drawn("lin", "dp", dtype="float32"), np.random.default_rng(1).uniform(-1, 1, (3, 20, 2))
    found = jax.jit(partial(apply, dtype="float32"))(network, tokens)
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, fast.forward(network, tokens), atol=1e-5)


@pytest.mark.parametrize("tokens", [np.ones((4, 2)), np.ones(4), np.zeros((0, 1)), np.ones((2, 0, 1))])
def test_tokens_of_another_shape_are_refused(tokens: np.ndarray) -> None:
    network = thm_3_1.build(FixedMemory((1,)), dtype="float32").network
    for call in (partial(apply, network, dtype="float32"), partial(stream.patterns, network), lambda t: stream.trace(network, t, {})):
        with pytest.raises(InputError, match="shape"):
            call(tokens)


@pytest.mark.deep
def test_parameters_of_exact_networks() -> None:
    """Rounded to float64 if that changes nothing, and refused if it does or cannot be done."""
    network, probe = nested("log", "tmx"), letters(4, 24, 1)
    floats = parameters(network, probe)
    assert floats.dtype == "float64"
    with jax.enable_x64(True):
        np.testing.assert_allclose(apply(floats, probe, dtype="float64")[:, 8:], run(network, probe)[:, 8:], atol=1e-9)
    own = drawn("lin", "dp")
    assert parameters(own) is own
    far = {"name": "m1", "lag": ["11", "12"], "parent": "x0"}
    target = target_from_dict({"kind": "adaptive", "alphabet": [["-1"], ["1"]], "memory": [far]}, "far")
    cancelling = thm_4_4.build(target, error=1e-6).network
    with pytest.raises(Refusal, match="cancel"):
        parameters(cancelling, letters(2, 40, 1))
    with pytest.raises(Refusal, match="do not fit"):
        parameters(cancelling.map(lambda leaf: leaf * exact_array(10**400)[()]))


@pytest.mark.deep(keep="2")
@pytest.mark.parametrize("depth", [1, 2])
def test_exact_convolutions_stay_whole(depth: int) -> None:
    """Weights of 1e30 cancel in exact arithmetic; kernels rounded once keep what is left of them, and have derivatives."""
    network = shift_chain.build(FixedMemory((12,)), depth=depth, dtype="exact").network
    floats, tokens = parameters(network), np.random.default_rng(0).uniform(-1, 1, (3, 40, 1))
    with jax.enable_x64(True):
        outputs = jax.jit(partial(apply, dtype="float64"))(floats, tokens)
        np.testing.assert_allclose(outputs, run(network, tokens), atol=1e-12)
        slope = jax.grad(lambda x: apply(floats, x, dtype="float64")[0, -1])(jnp.asarray(tokens))
    assert np.abs(slope).max() == pytest.approx(1, abs=0.02)  # the output is one token, up to the error
    with pytest.raises(InputError, match="cut"):
        apply(floats, tokens, dtype="float64")


def settled(values: np.ndarray, longest: int) -> np.ndarray:
    return values[:, longest:]


@pytest.mark.deep(keep="exact")
@pytest.mark.parametrize("dtype", ["exact", "float64"])
def test_slots_hold_the_memories_of_a_fixed_target(dtype: str) -> None:
    target, error = FixedMemory((1, 3), 2, "x0[0] + m1[0]*m2[1]"), 0.05
    network = thm_3_1.build(target, error=error, dtype=dtype).network
    tokens = np.random.default_rng(0).uniform(-1, 1, (2, 3, 30, 2))
    seen = stream.trace(network, tokens, thm_3_1.slots(target, network))
    assert list(seen) == ["layer 1", "output"] and list(seen["layer 1"]) == ["x0", "m1", "m2"]
    np.testing.assert_allclose(seen["layer 1"]["x0"], tokens, atol=1e-12)
    for name, lag in (("m1", 1), ("m2", 3)):
        assert np.abs(seen["layer 1"][name][..., lag:, :] - tokens[..., :-lag, :]).max() <= error
        assert seen["layer 1"][name].shape == tokens.shape
    flat = run(network, tokens.reshape(-1, 30, 2)).reshape(2, 3, 30)
    np.testing.assert_array_equal(seen["output"]["y"], flat)


@pytest.mark.deep(keep="log-tmx-exact")
@pytest.mark.parametrize(("rpe", "attention", "dtype"), [("lin", "dp", "exact"), ("log", "tmx", "exact"), ("lin", "tmx", "float64")])
def test_slots_hold_the_memories_of_an_adaptive_target(rpe: str, attention: str, dtype: str) -> None:
    """Memories, their lags as the heads read them, and the constant; a memory appears in the layer that extracts it, and stays."""
    target, network, tokens = example("nested.toml"), nested(rpe, attention, dtype), letters(3, 40, 1)
    assert isinstance(target, AdaptiveMemory)
    slots = thm_4_4.slots(target, network)
    seen = stream.trace(network, tokens, slots)
    assert sorted(slots) == ["constant", "lag m1", "lag m2", "m1", "m2", "x0"]
    assert sorted(j for block in slots.values() for j in block) == list(range(network.embedding.shape[0]))
    wanted = target.memory_values(np)(tokens)
    lags = target.lag_values(np)(tokens)
    for layer, memory in (("layer 2", 0), ("layer 3", 0), ("layer 3", 1)):
        name = target.names[memory]
        assert np.abs(settled(seen[layer][name], 4) - settled(wanted[..., memory + 1], 4)).max() < 0.01
        held = settled(seen[layer][f"lag {name}"], 4)
        assert np.abs((np.exp(held) if (rpe, attention) == ("log", "dp") else held) - settled(lags[..., memory], 4)).max() < 1e-9
    assert (seen["layer 1"]["m1"] == 0).all() and (settled(seen["layer 2"]["m2"], 4) == 0).all()
    assert (seen["layer 1"]["constant"] == 0).all() and (seen["layer 2"]["constant"] == 1).all()


@pytest.mark.deep
def test_slots_of_kernels_chains_couplings_and_strangers() -> None:
    kernel = KernelMemory(("exp(-s)",))
    network = thm_5_1.build(kernel).network
    tokens = np.random.default_rng(0).uniform(-1, 1, (2, 60, 1))
    seen = stream.trace(network, tokens, thm_5_1.slots(kernel, network))["layer 1"]
    assert list(seen) == ["x0", "k1"]
    assert np.abs(seen["k1"] - kernel.memory_values(np)(tokens)[..., 1]).max() < 0.01

    chained = FixedMemory((2, 5))
    chain = shift_chain.build(chained, dtype="float64", depth=2, error=0.01).network
    held = stream.trace(chain, tokens, shift_chain.slots(chained, chain))
    assert list(held["layer 1"]) == ["x0", "m1", "m2", "source", "carrier"]
    assert np.abs(held["layer 1"]["m1"][:, 2:] - tokens[:, :-2, 0]).max() < 0.01
    assert np.abs(held["layer 2"]["m2"][:, 5:] - tokens[:, :-5, 0]).max() < 0.01

    restored = FixedMemory((2,), alphabet=(-1, 1))
    names = shift_chain.slots(restored)
    assert {"digits x0", "digits m1"} < set(names)
    assert sorted(j for block in names.values() for j in block) == list(range(shift_chain.Layout(restored).width))

    coupling = example("low_rank.toml")
    assert isinstance(coupling, CouplingTarget)
    coupled = jl_4_2.build(coupling, rank=2, knots=8, dtype="float64").network
    named = jl_4_2.slots(coupling, coupled)
    assert list(named) == ["token", "q1", "q2", "k1", "k2", "value", "answer"]
    last, last_pattern = stream.trace(coupled, np.abs(tokens), named)["layer 2"], stream.patterns(coupled, np.abs(tokens))[1]
    scores = sum(last[f"q{k}"][:, :, None] * last[f"k{k}"][:, None, :] for k in (1, 2))
    np.testing.assert_allclose(np.log(last_pattern.weights[:, 0] / last_pattern.weights[:, 0, :, :1]), scores - scores[..., :1], atol=1e-9)
    mixed = (last_pattern.weights[:, 0] @ last["value"][..., None])[..., 0]
    np.testing.assert_allclose(last["answer"], coupled.bias[-1] + mixed, atol=1e-12)
    np.testing.assert_array_equal(last["token"], np.abs(tokens)[..., 0])
    assert (last_pattern.past == 0).all()

    own = drawn("lin", "dp")
    plain = stream.trace(own, np.zeros((5, 2)), stream.plain_slots(own))
    assert list(plain) == ["layer 1", "layer 2", "output"] and list(plain["layer 1"]) == ["r0", "r1", "r2"]
    with pytest.raises(InputError, match="coordinates"):
        stream.trace(own, np.zeros((5, 2)), {"far": range(2, 4)})


@pytest.mark.deep
@pytest.mark.parametrize(("rpe", "kind"), [*SHAPES, ("table", "dp")])
@pytest.mark.parametrize("window", ["infinite", "finite"])
def test_patterns_are_what_the_network_mixes_with(rpe: str, kind: str, window: str) -> None:
    """Rows of a softmax add up to 1 with the past; and values mixed by hand give the stream after attention."""
    network, tokens = drawn(rpe, kind, window), np.random.default_rng(1).uniform(-1, 1, (2, 3, 12, 2))
    found = stream.patterns(network, tokens)
    assert [(p.weights.shape, p.past.shape) for p in found] == [((2, 3, 2, 12, 12), (2, 3, 2, 12))] * 2
    for weights, past in found:
        assert (weights >= 0).all() and (np.triu(weights, 1) == 0).all() and (past >= 0).all()
        if kind in ("dp-free", "dp"):
            total = weights.sum(axis=-1) + past
            sees = slice(1, None) if (rpe, window) == ("log", "finite") else slice(None)
            np.testing.assert_allclose(total[..., sees], 1, atol=1e-13)
            assert (total[..., 0] == 0).all() or sees == slice(None)
        assert (past > 0).any() == (window == "infinite")
    attention = network.layers[0].attention
    x = tokens @ network.embedding.T + network.bias
    values = np.einsum("hvd,...sd->...hsv", attention.value, x)
    before = np.einsum("hvd,d->hv", attention.value, network.bias)
    mixed = found[0].weights @ values + found[0].past[..., None] * before[:, None]
    after = x + np.einsum("hdv,...htv->...td", attention.output, mixed)
    seen = stream.trace(network, tokens, {"all": range(3)})["layer 1"]["all"]
    np.testing.assert_allclose(after, seen, atol=1e-12)


@pytest.mark.deep
def test_patterns_of_exact_networks() -> None:
    """Heads without dot products by their formulas; heads that read lags as the same heads in floats."""
    target = FixedMemory((30,))
    fixed = thm_3_1.build(target).network
    decays = np.array([float(p.p) / float(p.q) for p in fixed.layers[0].attention.decay])
    (found,) = stream.patterns(fixed, np.zeros((2, 40, 1)))
    assert found.weights.shape == (2, len(decays), 40, 40)
    for lag in (0, 1, 7):
        np.testing.assert_allclose(found.weights[1, :, 20, 20 - lag], -np.expm1(-decays) * np.exp(-decays * lag), rtol=1e-12)
    np.testing.assert_allclose(found.past[0, :, 20], np.exp(-21 * decays), rtol=1e-12)

    tokens = letters(2, 24, 1)
    exact, floats = (stream.patterns(network, tokens) for network in (nested("log", "dp"), parameters(nested("log", "dp"))))
    for (weights, past), (wanted, wanted_past) in zip(exact, floats, strict=True):
        np.testing.assert_allclose(weights[..., 8:, :], wanted[..., 8:, :], rtol=1e-9)
        np.testing.assert_allclose(past[..., 8:], wanted_past[..., 8:], rtol=1e-9)
    lag = example("nested.toml").lag_values(np)(tokens)[0, 20, 0]  # type: ignore[arg-type]
    np.testing.assert_allclose(exact[1].weights[0, :, 20, 20 - lag], 1, rtol=1e-9)  # e^{−p log(s/g)} at s = g


def test_too_many_patterns_are_refused() -> None:
    with pytest.raises(Refusal, match="fewer or shorter"):
        stream.patterns(drawn("lin", "dp"), np.zeros((100, 4000, 2)))


@pytest.mark.deep(keep="lin-tmx")
@pytest.mark.parametrize(("rpe", "attention"), [("lin", "dp"), ("log", "dp"), ("lin", "tmx"), ("log", "tmx")])
def test_derivatives_of_three_layers_are_small_programs(rpe: str, attention: str) -> None:
    """Time to compile is size of program: about three times the pass itself, and no loop written out (the log pass has 971 lines)."""
    network, tokens = parameters(nested(rpe, attention)), letters(2, 256, 1)

    def loss(network: Any, tokens: Any) -> jax.Array:
        return (apply(network, tokens, dtype="float64") ** 2).mean()

    with jax.enable_x64(True):
        once, both = (jax.jit(f).lower(network, tokens).as_text().count("\n") for f in (loss, jax.value_and_grad(loss)))
    assert once < 1200 and both < 3 * once
