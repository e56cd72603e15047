"""Our exponential and the softmax made of it: really as accurate as the error analysis says."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb

from analyzer.errors import Refusal
from analyzer.numbers.exact import UNIT, rational, working_precision
from constructions.network.exponential import DEEPEST, constants, degree, exp
from constructions.network.precision import with_x64
from verify.chain.rounding import Arithmetic, Rounded, exponential_error


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_relative_error_is_below_its_bound(dtype: str) -> None:
    rng = np.random.default_rng(0)
    below = -np.concatenate([[0.0, DEEPEST[dtype]], rng.random(4000) * DEEPEST[dtype], 2.0 ** -rng.uniform(0, 40, 1000)]).astype(dtype)
    x = np.concatenate([below, -below])
    with with_x64(dtype):
        found = np.asarray(jax.jit(exp)(jnp.asarray(x)))
        beyond = np.asarray(exp(jnp.asarray([-2, 2], dtype) * DEEPEST[dtype]))
    assert (found[[1, len(below) + 1]] == beyond).all() and np.isfinite(beyond).all()  # clipped on both sides
    in_numpy = exp(x, np)
    with working_precision(128):
        assert max(float(abs(arb(float(y)) / arb(float(v)).exp() - 1)) for v, y in zip(x, in_numpy, strict=True)) <= exponential_error(
            dtype
        )
    with working_precision(128):
        worst = max(float(abs(arb(float(y)) / arb(float(v)).exp() - 1)) for v, y in zip(x, found, strict=True))
    bound = float(exponential_error(dtype))
    assert worst <= bound <= 8 * float(arb(UNIT[dtype]))
    assert worst >= bound / 20  # the bound is not idle
    assert found[0] == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_constants_are_numbers_of_the_type(dtype: str) -> None:
    inverse, high, low, coefficients = constants(dtype)
    for value in (inverse, high, low, *coefficients):
        assert rational(float(np.dtype(dtype).type(float(arb(value))))) == value
    largest = int(DEEPEST[dtype] / np.log(2)) + 1
    product = high * largest
    assert rational(float(np.dtype(dtype).type(float(arb(product))))) == product  # n·ln2_hi is exact
    assert degree(dtype) == len(coefficients) - 1


def test_softmax_means_stay_within_their_error() -> None:
    """float32 softmax of given logits and values against float64, for errors of the size that the analysis assumes."""
    from constructions.network.transformer import Attention
    from constructions.run.fast import _attend_all

    rng, count = np.random.default_rng(1), 64
    arithmetic = Arithmetic("float32")
    eye = np.eye(3, dtype="float32")
    attention = Attention(
        np.zeros(1, "float32"), eye[None, 2:], eye[None, 2:].transpose(0, 2, 1), eye[None, :1], eye[None, 1:2], np.zeros((0, 3), "float32"),
        ("none",), "dp", "full",
    )  # fmt: skip
    for scale in (0.5, 3.0):
        stream = rng.uniform(-scale, scale, (count, 3)).astype("float32")
        found = np.asarray(_attend_all(attention, jnp.asarray(stream)))[:, 2].astype(float)
        q, k, v = stream.astype(float).T
        logits = q[:, None] * k[None, :]
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        exact = (weights * v).sum(axis=1) / weights.sum(axis=1)
        one = Rounded(arb(scale), arb(0))
        mean = arithmetic.softmax_mean(arithmetic.inner([one], [one], arb(scale) ** 2), one, arb(2 * scale), count)
        assert np.abs(found - exact).max() <= float(mean.error)
        assert float(mean.error) < 1e-3


def test_logits_that_leave_the_type_are_refused() -> None:
    wide = Rounded(arb(50), arb(0))
    with pytest.raises(Refusal, match="span more than 80"):
        Arithmetic("float32").softmax_mean(wide, wide, arb(1), 8)
    Arithmetic("float64").softmax_mean(wide, wide, arb(1), 8)
