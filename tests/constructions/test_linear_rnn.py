"""Linear RNNs: the recurrence and the convolution agree, the construction is exact, and its certificate sees every damaged weight."""

import dataclasses

import jax
import numpy as np
import pytest
from flint import fmpq
from hypothesis import given
from hypothesis import strategies as st

from analyzer.errors import InputError, Refusal
from analyzer.kernels.memory_kernels import parse_kernel
from analyzer.numbers.exact import rational
from constructions.theorems.linear_rnn import LinearRNN, convolve, delay_line, exponential_rnn, exponentials, forward
from constructions.training.jl_models import initial_rnn, initial_transformer, run_rnn, run_transformer
from verify.chain.certificate import Verdict
from verify.theorems.linear_rnn import verify_delay_line, verify_linear_rnn

KERNELS = ["exp(-s)", "2*exp(-s/3) - exp(-s)", "exp(1-s) - exp(-s/7)/3", "exp(-s/1000)"]


def dense(units: int = 5, dtype: str = "float64") -> LinearRNN:
    rng = np.random.default_rng(1)
    return LinearRNN(*(0.4 * rng.standard_normal(shape).astype(dtype) for shape in ((units, units), (units,), (units,))))


@pytest.mark.deep(keep=("float64-1e-12-40", "float32-2e-05-1"))
@pytest.mark.parametrize("length", [1, 40, 700])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-5)])
def test_recurrence_and_convolution_are_the_same_function(length: int, dtype: str, tolerance: float) -> None:
    tokens = np.random.default_rng(0).uniform(-1, 1, (2, 3, length))
    for rnn in (dense(dtype=dtype), exponential_rnn(parse_kernel(KERNELS[1]), dtype)):
        outputs = forward(rnn, tokens)
        assert outputs.shape == tokens.shape and str(outputs.dtype) == dtype
        np.testing.assert_allclose(outputs, convolve(rnn, tokens), atol=tolerance)


def test_the_recurrence_is_the_formula() -> None:
    rnn, tokens = dense(3), np.random.default_rng(2).uniform(0, 1, 6)
    state, wanted = np.zeros(3), []
    for x in tokens:
        state = rnn.transition @ state + rnn.input * x
        wanted.append(rnn.output @ state)
    np.testing.assert_allclose(forward(rnn, tokens), wanted, rtol=1e-13)


@pytest.mark.parametrize("text", KERNELS)
@pytest.mark.parametrize("dtype", ["exact", "float64", "float32"])
def test_the_chain_holds_for_constructed_networks(text: str, dtype: str) -> None:
    kernel = parse_kernel(text)
    rnn = exponential_rnn(kernel, dtype)
    certificate = verify_linear_rnn(rnn, kernel)
    assert rnn.dtype == certificate.dtype == dtype and rnn.units == len(exponentials(kernel))
    assert certificate.verdict is Verdict.HOLDS, certificate.advice
    assert 0 < certificate.witness <= certificate.certified <= certificate.bound
    if dtype == "exact":
        assert certificate.bound <= 2.0**-64 and certificate.rounding == 0
    else:
        assert certificate.rounding > 0


@pytest.mark.parametrize(
    ("digits", "dtype"),
    [
        ("2.71828182845904523536028747135266", "float32"),
        ("2.718281828459045235360287471352662497757", "float64"),
        ("2.718281828459045235360287471352662497757", "exact"),
    ],
)
def test_amplitudes_that_nearly_cancel_are_stored_to_full_accuracy(digits: str, dtype: str) -> None:
    kernel = parse_kernel(f"exp(1-s) - {digits}*exp(-s)")
    certificate = verify_linear_rnn(exponential_rnn(kernel, dtype), kernel)
    assert certificate.verdict is Verdict.HOLDS, certificate.advice


def test_subnormal_tokens_are_covered() -> None:
    """2^100 x is exact but where XLA takes a subnormal token for 0: then all of it is lost."""
    rnn, token = delay_line([2.0**100], "float32"), np.float32(2.0**-127)
    error = abs(float(forward(rnn, [token])[0]) - 2.0**-27)
    assert error <= verify_delay_line(rnn, [fmpq(2) ** 100]).certified < 1e-7


def test_certified_is_not_below_any_sampled_error() -> None:
    kernel = parse_kernel("2*exp(-s/3) - exp(-s)")
    rnn = exponential_rnn(kernel, "float32")
    tokens = np.random.default_rng(3).choice([-1.0, 1.0], (200, 120))
    reference = convolve(exponential_rnn(kernel), tokens)
    sampled = float(np.abs(forward(rnn, tokens) - reference).max())
    assert 0 < sampled <= verify_linear_rnn(rnn, kernel).certified


def test_exact_networks_convolve_in_float64() -> None:
    tokens = np.random.default_rng(4).uniform(0, 1, 30)
    wanted = [sum(np.exp(-s) * tokens[t - s] for s in range(t + 1)) for t in range(30)]
    np.testing.assert_allclose(convolve(exponential_rnn(parse_kernel("exp(-s)")), tokens), wanted, rtol=1e-14)
    with pytest.raises(InputError, match="use convolve"):
        forward(exponential_rnn(parse_kernel("exp(-s)")), tokens)


@pytest.mark.parametrize("dtype", ["exact", "float64", "float32"])
@pytest.mark.parametrize("leaf", ["transition", "input", "output"])
@given(share=st.sampled_from([-1.0, -1e-3, 2.0**-18, 1e-3, 0.5]))
def test_a_changed_weight_is_caught(dtype: str, leaf: str, share: float) -> None:
    kernel = parse_kernel("exp(-s/2) + exp(-s)")
    rnn = exponential_rnn(kernel, dtype)
    damaged = getattr(rnn, leaf).copy()
    damaged[0] = damaged[0] * (1 + (fmpq(*share.as_integer_ratio()) if dtype == "exact" else np.dtype(dtype).type(share)))
    assert verify_linear_rnn(dataclasses.replace(rnn, **{leaf: damaged}), kernel).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("decay", [1.0, 1.5, -0.5])
def test_networks_that_do_not_forget_are_caught(decay: float) -> None:
    kernel = parse_kernel("exp(-s)")
    rnn = dataclasses.replace(exponential_rnn(kernel, "float64"), transition=np.array([decay]))
    certificate = verify_linear_rnn(rnn, kernel)
    assert certificate.verdict is Verdict.VIOLATED and "does not forget" in certificate.advice


@pytest.mark.parametrize("leaf", ["transition", "input", "output"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_weights_that_are_no_numbers_are_refused(leaf: str, value: float) -> None:
    kernel = parse_kernel("exp(-s)")
    rnn = dataclasses.replace(exponential_rnn(kernel, "float32"), **{leaf: np.array([value], np.float32)})
    with pytest.raises(InputError, match="not a finite number"):
        verify_linear_rnn(rnn, kernel)


def test_the_wrong_kernel_is_caught() -> None:
    rnn = exponential_rnn(parse_kernel("exp(-s)"), "float64")
    assert verify_linear_rnn(rnn, parse_kernel("exp(-s/2)")).verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    ("text", "reason"),
    [("(s+1)**-2", "a power of s"), ("s*exp(-s)", "a power of s"), ("exp(-s)*sin(s)", "oscillates"), ("exp(-s**2)", "Gaussian")],
)
def test_other_kernels_are_refused_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(Refusal, match=reason):
        exponential_rnn(parse_kernel(text))


def test_decays_that_a_type_cannot_hold_are_refused() -> None:
    with pytest.raises(Refusal, match="cannot hold a decay"):
        exponential_rnn(parse_kernel("exp(-200*s)"), "float32")
    with pytest.raises(InputError, match="dtype 'float16'"):
        exponential_rnn(parse_kernel("exp(-s)"), "float16")


def test_delay_lines_have_any_finite_kernel_and_a_chain() -> None:
    values = [0.25, -1.0, 0.0, 1 / 3]
    for dtype in ("float32", "float64"):
        rnn = delay_line(values, dtype)
        np.testing.assert_allclose(forward(rnn, [1, 0, 0, 0, 0, 0]), [*values, 0, 0], rtol=1e-7)
        certificate = verify_delay_line(rnn, [rational(v) for v in values])
        assert certificate.verdict is Verdict.HOLDS, certificate.advice
        assert certificate.witness <= certificate.certified <= certificate.bound < 1e-6
    with pytest.raises(InputError, match="finite numbers"):
        delay_line([1.0, np.nan])


@pytest.mark.parametrize(("leaf", "place"), [("transition", (1, 0)), ("transition", (0, 3)), ("input", (2,)), ("output", (1,))])
def test_a_damaged_delay_line_is_caught(leaf: str, place: tuple[int, ...]) -> None:
    values = [0.25, -1.0, 0.5, 1 / 3]
    rnn = delay_line(values)
    damaged = getattr(rnn, leaf).copy()
    damaged[place] += 1e-9
    certificate = verify_delay_line(dataclasses.replace(rnn, **{leaf: damaged}), [rational(v) for v in values])
    assert certificate.verdict is Verdict.VIOLATED


@pytest.mark.deep
def test_trained_models_are_causal_or_not_as_they_should_be() -> None:
    tokens = np.random.default_rng(5).uniform(0, 1, 8).astype(np.float32)
    changed = tokens.copy()
    changed[5] += 0.5
    rnn, transformer = initial_rnn(jax.random.key(0), 16), initial_transformer(jax.random.key(0), 8, width=16)
    moved = {
        run: np.abs(np.asarray(run(model, tokens) - run(model, changed))) for run, model in ((run_rnn, rnn), (run_transformer, transformer))
    }
    assert (moved[run_rnn][:5] == 0).all() and (moved[run_rnn][5:] > 0).any()
    assert (moved[run_transformer] > 0).all()
    np.testing.assert_allclose(run_rnn(rnn, tokens), forward(rnn, tokens), atol=1e-6)


@pytest.mark.deep
def test_a_radius_can_be_asked_for() -> None:
    for radius in (0.3, 0.9):
        spectrum = np.abs(np.linalg.eigvals(np.asarray(initial_rnn(jax.random.key(1), 128, radius).transition)))
        assert 0.8 * radius < spectrum.max() < 1.25 * radius
