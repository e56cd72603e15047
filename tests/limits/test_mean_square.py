"""The mean-square lag law: closed forms against least squares, laws against random banks, optima against what is known."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.kernels.memory_kernels import parse_kernel
from analyzer.limits.mean_square import blaschke, kernel_error, lag_error, law, one_head, section_floor, square_of
from analyzer.numbers.exact import nearest, working_precision
from tests.depth import examples

RATIO = st.fractions(min_value=0, max_value=1, max_denominator=64)


def rationals(ratios: Sequence[object]) -> list[fmpq]:
    return [fmpq(z.numerator, z.denominator) for z in ratios]  # type: ignore[attr-defined]


def least_squares(kernels: np.ndarray, wanted: np.ndarray) -> float:
    """The square of the distance of `wanted` from the rows of `kernels`."""
    basis, sizes, _ = np.linalg.svd(kernels.T, full_matrices=False)
    basis = basis[:, sizes > 1e-12 * sizes[0]]
    return float(np.sum((wanted - basis @ (basis.T @ wanted)) ** 2))


@pytest.mark.parametrize("ratios", [(0.3,), (0.5, 0.8), (0.2, 0.6, 0.9), (0.7, 0.75, 0.8, 0.85)])
def test_the_closed_form_is_the_distance_from_the_heads(ratios: tuple[float, ...]) -> None:
    s = np.arange(1, 400)
    kernels = np.array([z**s for z in ratios])
    exact = [fmpq(*z.as_integer_ratio()) for z in ratios]
    for lag in (1, 2, 5, 9):
        assert nearest(lag_error(exact, lag)) == pytest.approx(least_squares(kernels, (s == lag) * 1.0), rel=1e-9)
    kernel = parse_kernel("(s+1)**-2")
    with working_precision(128):
        values = kernel.values(1, 400)
        least, most = kernel_error([arb(z) for z in exact], values, kernel.tail(400) ** 2)
    distance = least_squares(kernels, np.array([float(v) for v in values]))
    assert float(least) <= distance <= float(most) <= float(least) + 1e-3


@given(st.lists(RATIO, min_size=1, max_size=4))
@settings(max_examples=examples(80), deadline=None)
def test_a_blaschke_product_has_norm_one_and_mean_group_delay_its_degree(ratios: list[object]) -> None:
    exact = [z * fmpq(3, 4) for z in rationals(ratios)]
    with working_precision(128):
        b = blaschke([arb(z) for z in exact], 400)
        assert abs(sum(v * v for v in b) - 1) < 1e-20
        assert abs(sum(j * v * v for j, v in enumerate(b)) - len(exact)) < 1e-15


@given(st.lists(RATIO, min_size=1, max_size=5), st.integers(1, 12))
@settings(max_examples=examples(200), deadline=None)
def test_no_decays_beat_the_law(ratios: list[object], lag: int) -> None:
    """Zeros, ones and repeated decays are among them."""
    exact = rationals(ratios)
    error = lag_error(exact, lag)
    assert law(lag, len(exact)) <= error <= 1
    if len(exact) == 1:
        assert error >= one_head(lag)


def test_one_head_attains_its_optimum_and_wrong_coefficients_do_not() -> None:
    for lag in (1, 2, 4, 9):
        with working_precision(128):
            z = (1 - 1 / arb(lag)).sqrt()
            assert abs(lag_error([z], lag) - arb(one_head(lag))) < 1e-30
            if lag > 1:
                assert abs(sum((b * b for b in blaschke([z], lag - 1)), arb(0)) - arb(one_head(lag))) > 1e-3


@given(st.lists(st.floats(0.05, 1), min_size=1, max_size=3, unique=True), st.integers(2, 6), st.integers(0, 6))
@settings(max_examples=examples(200), deadline=None)
def test_in_a_window_the_law_needs_twice_the_lag(ratios: list[float], lag: int, more: int) -> None:
    window = lag + more
    s = np.arange(1, window + 1)
    distance = least_squares(np.array([z**s for z in ratios]), (s == lag) * 1.0)
    assert distance >= nearest(law(lag, len(ratios), window=window)) - 1e-9
    if window >= 2 * lag - 1:
        assert law(lag, len(ratios), window=window) == law(lag, len(ratios))


def test_short_windows_break_the_law_for_long_ones() -> None:
    """Two heads with z → 1 span the lines: on three places they leave 1/6, and 1 − 2/3 would be a third."""
    assert least_squares(np.array([[1.0, 1, 1], [1, 2, 3]]), np.array([0.0, 0, 1])) == pytest.approx(1 / 6)
    assert law(3, 2) == fmpq(1, 3) and law(3, 2, window=3) == 0


@given(st.lists(st.floats(1.01, 8), min_size=1, max_size=3, unique=True), st.integers(1, 24))
@settings(max_examples=examples(200), deadline=None)
def test_no_log_heads_beat_the_divisors(decays: list[float], lag: int) -> None:
    s = np.arange(1, 600.0)
    assert least_squares(np.array([s**-p for p in decays]), (s == lag) * 1.0) >= nearest(law(lag, len(decays), "log")) - 1e-9
    assert law(lag, 1, "log", window=lag) <= law(lag, 1, "log", window=lag * lag) == law(lag, 1, "log")


@pytest.mark.parametrize("text", ["(s+1)**-2", "exp(-(s-8)**2/8)", "(s+2)**-1.5*cos(s)"])
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_no_random_bank_is_below_a_section(text: str, rpe: str) -> None:
    kernel, s, rng = parse_kernel(text), np.arange(1, 129.0), np.random.default_rng(0)
    values = kernel.values(1, 129)
    wanted = np.array([float(v) for v in values])
    for heads in (1, 2, 3):
        found = section_floor(values, heads, rpe)  # type: ignore[arg-type]
        assert found.value > 0 and found.tokens <= 128
        for _ in range(40):
            p = rng.uniform(0.02, 4, heads)
            kernels = np.exp(-np.outer(p, s if rpe == "lin" else np.log(s)))
            assert least_squares(kernels, wanted) >= found.value - 1e-12


def test_sections_know_the_law_and_what_is_exact() -> None:
    """Lag 8 within 15 tokens is the law; a sum of two exponentials is free for two heads and not for one."""
    values = [arb(int(s == 8)) for s in range(1, 16)]
    assert section_floor(values, 3).value == pytest.approx(5 / 8, rel=1e-12) and section_floor(values, 3).value <= 5 / 8
    mixed = parse_kernel("exp(-s/2) - exp(-s)").values(1, 64)
    assert section_floor(mixed, 2).value < 1e-20 and section_floor(mixed, 1).value > 1e-3
    assert section_floor(values[:3], 4).value == 0


def test_squares_in_closed_form_are_sums() -> None:
    s = np.arange(1, 200001.0)
    terms = [(0.5, 0.75), (-1.25, 0.5)]
    kappa = sum(c * z**s for c, z in terms)
    with working_precision(128):
        assert float(square_of("lin", 0.25, terms, 3)) == pytest.approx(0.0625 + np.sum((kappa - (s == 3)) ** 2), rel=1e-12)
        power = [(0.5, 1.5), (-1.25, 2.5)]
        kappa = sum(c * s**-p for c, p in power)
        assert float(square_of("log", 0.25, power, 3)) == pytest.approx(0.0625 + np.sum((kappa - (s == 3)) ** 2), rel=1e-9)


def test_least_squares_on_simulated_gaussian_tokens_agrees_with_the_closed_form() -> None:
    """Regression on what the heads deliver; the mean of n squares is off by about sqrt(2/n)."""
    rng, count, reach, lag, ratios = np.random.default_rng(1), 20_000, 60, 4, (0.45, 0.75)
    tokens = rng.standard_normal((count, reach + 1))
    seen = np.column_stack([tokens @ z ** np.arange(reach + 1.0) for z in ratios] + [tokens[:, 0]])
    wanted = tokens[:, lag]
    left = wanted - seen @ np.linalg.lstsq(seen, wanted, rcond=None)[0]
    expected = nearest(lag_error([fmpq(*z.as_integer_ratio()) for z in ratios], lag))
    assert abs(np.mean(left**2) / expected - 1) < 4 * math.sqrt(2 / count)


@pytest.mark.parametrize("lag,heads,window", [(0, 1, None), (3, -1, None), (5, 1, 4)])
def test_what_the_law_does_not_take(lag: int, heads: int, window: int | None) -> None:
    with pytest.raises(InputError):
        law(lag, heads, window=window)
