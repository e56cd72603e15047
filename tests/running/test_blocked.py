"""Attention by blocks: the same numbers and derivatives as the plain pass, at a cost that grows with the array and not with its square."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from constructions.network.precision import with_x64
from constructions.network.transformer import Transformer
from constructions.run import blocked, reference
from tests.conftest import random_network

HEADS = {"lin": ["lin"] * 5, "mixed": ["log", "lin", "log"], "table": ["table"] * 2}


def loss(network: Transformer, tokens: jax.Array, by: Any) -> jax.Array:
    return jnp.mean(reference.stream(network, tokens, 1, by)[-1] ** 2)


@pytest.fixture(autouse=True)
def _always_by_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked, "LEAST_PAIRS", 0)
    jax.clear_caches()


@pytest.mark.deep
@pytest.mark.parametrize("length", [1, 64, 150])
@pytest.mark.parametrize("window", ["infinite", "finite"])
@pytest.mark.parametrize("heads", HEADS)
def test_values_and_derivatives_are_those_of_the_plain_pass(heads: str, window: str, length: int) -> None:
    network = random_network(np.random.default_rng(length), HEADS[heads], "dp-free", window, layers=2)
    tokens = np.random.default_rng(0).uniform(-1, 1, (2, length + 1, 2))
    with with_x64("float64"):
        found, wanted = (jax.value_and_grad(loss)(network, jnp.asarray(tokens), by) for by in (blocked.attend, reference.attend))
        assert abs(float(found[0] - wanted[0])) < 1e-13
        for name, one, other in zip(
            jax.tree_util.tree_leaves_with_path(wanted[1]), jax.tree.leaves(found[1]), jax.tree.leaves(wanted[1]), strict=True
        ):
            assert np.abs(one - other).max(initial=0) < 1e-11, name


@pytest.mark.deep
def test_a_wrong_decay_is_seen() -> None:
    """Decays have a derivative, and it is not 0: a pass that lost them would not train positions."""
    network = random_network(np.random.default_rng(1), HEADS["lin"], "dp-free", "infinite")
    tokens = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (2, 100, 2)).astype(np.float32))
    slopes = jax.grad(loss)(network.map(lambda w: jnp.asarray(w, jnp.float32)), tokens, blocked.attend).layers[0].attention.decay
    assert float(jnp.abs(slopes).min()) > 0


def numbers(network: Transformer, length: int, by: Any) -> int:
    """Numbers that the pass with its derivatives writes."""
    tokens = jax.ShapeDtypeStruct((1, length, 2), jnp.float32)
    program = jax.make_jaxpr(jax.grad(lambda net, given: loss(net, given, by)))(network, tokens)
    return _written(program.jaxpr)


def _written(program: Any) -> int:
    total = 0
    for line in program.eqns:
        inner = [value for value in line.params.values() if hasattr(value, "jaxpr") or hasattr(value, "eqns")]
        times = line.params.get("length", 1) if line.primitive.name == "scan" else 1
        for part in inner:
            total += times * _written(getattr(part, "jaxpr", part))
        total += sum(math.prod(out.aval.shape) for out in line.outvars) if not inner else 0
    return total


def test_twice_the_tokens_cost_twice_as_much_and_not_four_times() -> None:
    network = random_network(np.random.default_rng(1), HEADS["lin"], "dp-free", "infinite", dtype="float32")
    short, long = (numbers(network, length, blocked.attend) for length in (4096, 8192))
    assert 1.8 < long / short < 2.05  # a matrix of one block does not grow
    plain = [numbers(network, length, reference.attend) for length in (4096, 8192)]
    assert plain[1] > 3.5 * plain[0] and plain[1] > 20 * long


@pytest.mark.deep
def test_what_blocks_do_not_know_goes_through_the_plain_pass() -> None:
    rng = np.random.default_rng(2)
    tokens = jnp.asarray(rng.uniform(-1, 1, (2, 30, 3)).astype(np.float32))
    network = random_network(rng, ["lin"] * 2, "dp", "finite", dtype="float32", dim=3)
    attention, past = network.layers[0].attention, jnp.zeros(3, jnp.float32)
    found, wanted = (by(attention, tokens, past, 3)[0] for by in (blocked.attend, reference.attend))
    assert found.shape == (2, 27, 3) and float(jnp.abs(found - wanted).max()) == 0.0
