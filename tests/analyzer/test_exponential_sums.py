"""Suprema of exponential sums: closed forms, dense samples, and cancellation."""

import math

from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.numbers.exact import upper, working_precision
from analyzer.numbers.exponential_sums import ExponentialSum, supremum
from tests.depth import examples


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(-20, 20)), min_size=1, max_size=8))
@settings(max_examples=examples(60), deadline=None)
def test_never_below_a_sample_and_hardly_above_the_best(terms: list[tuple[int, int]]) -> None:
    function = ExponentialSum(tuple(arb(w) / 10 for w, _ in terms), tuple((arb(c),) for _, c in terms))
    with working_precision(128):
        bound = upper(supremum(function, arb(40), arb(2) ** -30))
    seen = max(abs(sum(c * math.exp(-w / 10 * q) for w, c in terms)) for q in [k / 400 * 1.02**k for k in range(800)] if q <= 40)
    assert bound >= seen * (1 - 1e-12)
    assert bound <= max(1.02 * seen, 2.0**-29) + 1e-3


def test_binomial_cancellation() -> None:
    """(1 − z)^{21} z^3 has terms up to 352716 and a maximum of 2.6e-5, at z = 1/8."""
    coefficients = [(-1) ** k * math.comb(21, k) for k in range(22)]
    function = ExponentialSum(tuple(arb(k + 3) for k in range(22)), tuple((arb(c),) for c in coefficients))
    with working_precision(200):
        bound = upper(supremum(function, arb(30), arb(2) ** -40))
    exact = (7 / 8) ** 21 * (1 / 8) ** 3
    assert exact <= bound <= exact * 1.001


def test_polynomial_coefficients_and_a_divisor() -> None:
    """q e^{−q}/(1 + q) has its maximum where q² + q = 1."""
    function = ExponentialSum((arb(1),), ((arb(0), arb(1)),))
    with working_precision(128):
        bound = upper(supremum(function, arb(50), arb(2) ** -20, lambda q: 1 + q))
    best = (math.sqrt(5) - 1) / 2
    exact = best * math.exp(-best) / (1 + best)
    assert exact <= bound <= exact * 1.001
