"""The error analysis of the fast executor against real float runs, for constructed and for arbitrary weights."""

import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import Refusal
from analyzer.kernels.l1_norms import l1_norm
from analyzer.numbers.exact import rational, upper, working_precision
from constructions.network.transformer import Transformer, to_exact
from constructions.run import fast
from constructions.run.fused import fuse
from tests.conftest import random_network
from tests.depth import examples
from verify.chain.rounding import Arithmetic, Rounded, evaluation_error


def exact_output(network: Transformer, tokens: np.ndarray) -> arb:
    """The network's real-arithmetic output at the last token, with the executor's constants, in balls."""
    layer = fuse(network)
    width = layer.embedding.shape[0]
    stream = []
    for j in range(width):
        unit = [fmpq(int(i == j)) for i in range(width)]
        total = arb(0)
        for column in range(network.dim):
            kernel = layer.kernel(unit, column).values(0, len(tokens))
            total += sum((k * arb(rational(float(x))) for k, x in zip(kernel, tokens[::-1, column], strict=True)), arb(0))
        stream.append(total)
    ffn = network.layers[0].feedforward
    output = arb(0)
    for row, bias, outer in zip(to_exact(ffn.inner), to_exact(ffn.bias), to_exact(ffn.outer)[0], strict=True):
        before = sum((arb(w) * u for w, u in zip(row, stream, strict=True)), arb(bias))
        output += arb(outer) * before.max(arb(0))
    return output


@given(st.integers(0, 2**32 - 1), st.sampled_from(["lin", "log"]), st.sampled_from(["float32", "float64"]))
@settings(max_examples=examples(30), deadline=None)
def test_real_runs_stay_within_the_analysis(seed: int, rpe: str, dtype: str) -> None:
    rng = np.random.default_rng(seed)
    network = random_network(rng, [rpe] * 4, dtype=dtype, bias=False)
    shift = 0.0 if rpe == "lin" else 6.0  # short log heads
    attention = network.layers[0].attention
    object.__setattr__(attention, "decay", (attention.decay + shift).astype(dtype))
    tokens = rng.choice([-1.0, 1.0], (60, 2)) if seed % 2 else rng.uniform(-1, 1, (60, 2)).astype("float32").astype(float)
    layer = fuse(network)
    with working_precision(layer.bits):
        width = layer.embedding.shape[0]
        units = [[fmpq(int(i == j)) for i in range(width)] for j in range(width)]
        stream = [sum((l1_norm(layer.kernel(u, c)).enclosure for c in range(2)), arb(0)) for u in units]
        readout, residual = evaluation_error(network, layer, stream)
        ffn = network.layers[0].feedforward
        slope = sum(
            (abs(arb(a)) * sum((abs(arb(w)) * e for w, e in zip(row, residual, strict=True)), arb(0))
             for a, row in zip(to_exact(ffn.outer)[0], to_exact(ffn.inner), strict=True)), arb(0),
        )  # fmt: skip
        computed = rational(float(fast.forward(network, tokens)[-1]))
        seen = abs(arb(computed) - exact_output(network, tokens))
    assert upper(seen) <= upper(readout + slope)
    assert upper(readout + slope) < (1e-3 if dtype == "float32" else 1e-11)


def test_coarser_types_round_more() -> None:
    network = random_network(np.random.default_rng(0), ["lin"] * 3, dtype="float64", bias=False)
    errors = {}
    for dtype in ("float32", "float64"):
        cast = network.map(lambda a, dtype=dtype: np.asarray(a).astype(dtype))
        layer = fuse(cast)
        errors[dtype] = upper(evaluation_error(cast, layer, [arb(3)] * 3)[0])
    assert errors["float32"] / errors["float64"] == pytest.approx(2**29, rel=0.01)


def test_a_head_that_forgets_too_slowly_is_refused() -> None:
    network = random_network(np.random.default_rng(0), ["lin"], dtype="float32", bias=False)
    network.layers[0].attention.decay[0] = 5e-8
    with pytest.raises(Refusal, match="forgets more slowly"):
        evaluation_error(network, fuse(network), [arb(1)] * 3)


def test_overflow_is_refused() -> None:
    network = random_network(np.random.default_rng(0), ["lin"], dtype="float32", bias=False)
    network.layers[0].feedforward.inner[:] = 3e38
    with pytest.raises(Refusal, match="overflow"):
        evaluation_error(network, fuse(network), [arb(1)] * 3)


def test_long_log_heads_are_not_certified_in_floats() -> None:
    network = random_network(np.random.default_rng(0), ["log"], dtype="float32", bias=False)
    network.layers[0].attention.decay[0] = 1.01
    with pytest.raises(Refusal, match="FFT"):
        evaluation_error(network, fuse(network), [arb(1)] * 3)


@settings(max_examples=examples(200), deadline=None)
@given(st.floats(-1e6, 1e6, width=32), st.floats(-1e6, 1e6, width=32), st.floats(0, 1e-3))
def test_products_with_a_factor(factor: float, value: float, off: float) -> None:
    """fl(factor · (value + off)) against factor · value, with the error that the value carries."""
    arithmetic = Arithmetic("float32")
    exact = arb(rational(value))
    given_value = float(np.float32(value + off))
    carried = abs(arb(rational(given_value)) - exact)
    found = arithmetic.times(rational(factor), Rounded(abs(exact), carried))
    computed = arb(rational(float(np.float32(factor) * np.float32(given_value))))
    assert abs(computed - arb(rational(factor)) * exact) <= found.error.upper()
    assert found.magnitude >= abs(arb(rational(factor)) * exact).lower()


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_sums_in_any_order(seed: int) -> None:
    """Zeros and powers of 2 among the weights: float32 sums in a random order against the bound, which counts neither."""
    rng = np.random.default_rng(seed)
    weights = rng.choice([0.0, 1.0, -2.0, 0.5] if seed % 2 else [0.0, 0.0, 0.3, 7.1, -1.0], 12).astype("float32")
    values = rng.standard_normal(12).astype("float32")
    total = np.float32(0)
    for i in rng.permutation(12):
        total = np.float32(total + weights[i] * values[i])
    exact = sum((rational(float(w)) * rational(float(v)) for w, v in zip(weights, values, strict=True)), fmpq(0))
    given_values = [Rounded(abs(arb(rational(float(v)))), arb(0)) for v in values]
    bound = Arithmetic("float32").dot([rational(float(w)) for w in weights], given_values)
    assert abs(arb(rational(float(total)) - exact)) <= bound.error.upper()


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(0.02, 4.0))
def test_scans_that_start_from_a_constant_past(seed: int, decay: float) -> None:
    """Heads of a float32 network whose past is not zero, against the exact sum over the infinite past."""
    rng = np.random.default_rng(seed)
    network = random_network(rng, ["lin"], width=1, dim=1, dtype="float32", bias=False)
    attention = network.layers[0].attention
    attention.decay[:] = decay
    attention.value[:] = 1
    attention.output[:] = 0
    attention.output[0, 0, 0] = 1
    constants = fast.head_constants(attention)
    ratio, gain = (rational(float(constants[name][0])) for name in ("ratio", "gain"))
    tokens, past = rng.uniform(-1, 1, (20, 1)).astype("float32"), rng.uniform(-1, 1, 1).astype("float32")
    seen, _ = fast.attend(attention, constants, jnp.asarray(tokens), jnp.asarray(past))
    bound = Arithmetic("float32").scan(ratio, gain, Rounded(arb(1), arb(0)), arb(1)).error
    state = rational(float(past[0])) / (1 - ratio)
    for token, value in zip(tokens[:, 0], np.asarray(seen)[:, 0], strict=True):
        state = ratio * state + rational(float(token))
        assert abs(arb(rational(float(value)) - gain * state)) <= bound.upper()
