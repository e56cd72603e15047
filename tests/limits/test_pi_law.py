"""The π-law: closed-form coefficients, the energy bound, and its place below the optimum."""

import itertools
import math

import pytest
from flint import arb, arb_series, ctx, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.limits.pi_law import best_pi_bound, coefficients, hand_bound, pi_bound, rule
from analyzer.numbers.exact import upper, working_precision
from tests.depth import examples


def test_coefficients_are_those_of_the_cosine() -> None:
    """b_s from the power series of cos(2λ artanh √z)/(1−z): in w = √z, artanh w = w + w³/3 + …"""
    with working_precision(256):
        previous, ctx.cap = ctx.cap, 17
        try:
            artanh = arb_series([arb(0) if k % 2 == 0 else arb(1) / k for k in range(17)])
            series = (artanh * 7).cos() / arb_series([1, 0, -1])
            expected = [abs(c) for c in series.coeffs()[0::2]]
        finally:
            ctx.cap = previous
        for lag in range(1, 8):
            assert abs(coefficients(lag, fmpq(7, 2)).value - expected[lag]) < 1e-30


@given(st.integers(1, 400), st.integers(1, 20))
@settings(max_examples=examples(30), deadline=None)
def test_the_supremum_is_one(eighths: int, lag: int) -> None:
    """No coefficient of a much longer stretch than the one that was followed exceeds the bound."""
    frequency = fmpq(eighths, 8)
    largest = coefficients(lag, frequency).largest
    before, current, size = 0.0, 1.0, 1.0
    for n in range(40 * max(1, eighths)):
        before, current = current, eighths / 4 / (n + 1) * current - before
        if n % 2:
            size = max(size, abs(current))
    assert size <= upper(largest) * (1 + 1e-6)
    assert upper(largest) <= 1.2 * size + 1e-9


def test_it_nearly_reaches_the_optimum() -> None:
    """E_u(5) in float32 is 0.465 (certified from both sides elsewhere); the closed form gives 96 % of it."""
    bound, _ = best_pi_bound(5, fmpq(1, 2**24))
    assert 0.44 < float(bound) < 0.4652


def test_growth_is_four_and_a_half_bits_per_lag() -> None:
    sizes = [math.log2(float(coefficients(lag, fmpq(2 * lag)).value)) for lag in range(4, 41)]
    steps = [b - a for a, b in itertools.pairwise(sizes)]
    assert steps == sorted(steps) and math.pi / math.log(2) - 0.05 < steps[-1] < math.pi / math.log(2)


def test_the_hand_bound_grows_by_two_bits_per_lag() -> None:
    steps = [math.log2(math.comb(2 * lag + 2, lag + 1) / math.comb(2 * lag, lag)) for lag in range(1, 60)]
    assert steps == sorted(steps) and 1.98 < steps[-1] < 2
    for lag in (1, 4, 9):
        assert float(hand_bound(lag, fmpq(1, 2**40)).p) > 0 and hand_bound(lag, fmpq(1, 2**40)) < fmpq(4**lag, 2**40)


def test_hand_bound_and_rule() -> None:
    assert hand_bound(2, fmpq(1, 16)) == fmpq(6, 16) and hand_bound(9, fmpq(1, 16)) == 1
    assert [rule(fmpq(1, 2**b)) for b in (8, 24, 53)] == [1, 5, 11]


def test_absurd_arguments_are_refused() -> None:
    for lag, frequency in ((0, fmpq(1)), (1, fmpq(0)), (1, fmpq(10**6))):
        with pytest.raises(InputError):
            pi_bound(lag, fmpq(1, 2**24), frequency)
    assert float(pi_bound(3, fmpq(1, 2**24), fmpq(6))) > 0
    assert arb(1) > pi_bound(3, fmpq(1, 2**24), fmpq(6))
