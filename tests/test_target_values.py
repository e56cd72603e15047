"""Targets as functions of arrays: against the definitions in exact arithmetic, for numpy and JAX alike."""

from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb, fmpq

from analyzer.exact import rational
from analyzer.targets import FixedMemory, KernelMemory, adaptive_target, read_toml
from constructions.target_values import adaptive_lags, draw, memories, settled, values

EXAMPLES = Path(__file__).parent.parent / "examples"
READOUTS = ["x0 + 2*m1*m2 - m2**3", "relu(m1 - m2/2) + abs(x0)", "exp(m1) + tanh(2*m2) - sin(x0) + cos(m1 + x0)", None]


def recent(tokens: np.ndarray, t: int, reach: int) -> list[list[arb]]:
    """Tokens from t backwards, zeros before the array."""
    return [[arb(rational(float(v))) for v in tokens[t - s]] if s <= t else [arb(0)] * tokens.shape[1] for s in range(reach)]


@pytest.mark.parametrize("formula", READOUTS)
def test_fixed_targets(formula):
    target = FixedMemory((2, 5), 1, formula)
    tokens = draw(target, np.random.default_rng(1), (2, 12))
    found = values(target, np)(tokens)
    np.testing.assert_allclose(values(target, jnp)(jnp.asarray(tokens, jnp.float32)), found, atol=3e-6)
    for row, t in ((0, 0), (1, 3), (1, 11)):
        wanted = target.readout(target.memories(recent(tokens[row], t, 6)))
        assert found[row, t] == pytest.approx(float(wanted), abs=1e-12)
    assert settled(target) == 5


def test_kernel_targets_and_two_coordinates():
    target = KernelMemory(("exp(-s/2)", "(s+1)**-2"), 2, "x0[0] + k1[1]*k2[0]")
    tokens = draw(target, np.random.default_rng(2), (1, 9))
    found = values(target, np)(tokens)[0]
    for t in range(9):
        wanted = target.readout(target.memories(recent(tokens[0], t, 9)))
        assert found[t] == pytest.approx(float(wanted), abs=1e-12)
    np.testing.assert_allclose(values(target, jnp)(jnp.asarray(tokens))[0], found, atol=1e-6)


@pytest.mark.parametrize("name", ["nested", "tree", "pointer", "content_and_pointer", "prop_4_2"])
def test_adaptive_targets_follow_their_lags(name):
    target = adaptive_target(read_toml(EXAMPLES / f"{name}.toml"), name)
    rng = np.random.default_rng(3)
    letters = rng.integers(len(target.alphabet), size=40)
    tokens = np.array([[float(arb(v)) for v in token] for token in target.alphabet])[letters]
    found, lags, seen = values(target, np)(tokens), adaptive_lags(target, np)(tokens), memories(target, np)(tokens)
    checked = 0
    for t in range(40):
        situation = target.situation(list(letters), t)
        if situation is None:
            continue
        point = target.point(situation)
        assert tuple(lags[t]) == situation.lags
        np.testing.assert_allclose(seen[t], [float(arb(v)) for v in point], atol=1e-12)
        assert found[t] == pytest.approx(float(target.readout([arb(v) for v in point])), abs=1e-12)
        checked += 1
    assert checked >= 40 - settled(target) > 0
    np.testing.assert_allclose(values(target, jnp)(jnp.asarray(tokens, jnp.float32)), found, atol=1e-5)


def test_tokens_are_drawn_from_the_target_s_domain():
    rng = np.random.default_rng(0)
    letters = draw(FixedMemory((1,), 2, None, (fmpq(-1), fmpq(1, 2))), rng, (3, 50))
    assert letters.shape == (3, 50, 2) and set(np.unique(letters)) == {-1.0, 0.5}
    signs = draw(FixedMemory((1,)), rng, (3, 50), signs=True)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    uniform = draw(KernelMemory(("exp(-s)",)), rng, (3, 500))
    assert -1 <= uniform.min() < -0.9 and 0.9 < uniform.max() <= 1
