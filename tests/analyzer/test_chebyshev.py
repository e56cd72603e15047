"""Cosine sums by one product of polynomials, against the sums themselves."""

import random

import pytest
from flint import arb, fmpq

from analyzer.numbers.chebyshev import cosine_sums, cosines, series
from analyzer.numbers.exact import working_precision


@pytest.mark.parametrize(("count", "intervals"), [(1, 1), (1, 7), (5, 4), (5, 31), (12, 3), (40, 40), (33, 200)])
def test_sums_one_by_one(count: int, intervals: int) -> None:
    """More values than intervals, too: then angles wind around."""
    rng = random.Random(count * intervals)
    values = [arb(fmpq(rng.randint(-99, 99), 64)) for _ in range(count)]
    with working_precision(128):
        found = cosine_sums(values, intervals)
        assert len(found) == intervals + 1
        for k, one in enumerate(found):
            wanted = sum((v * arb(fmpq(j * k, intervals)).cos_pi() for j, v in enumerate(values)), arb(0))
            assert one.overlaps(wanted) and one.rad() < arb(2) ** -110


def test_series_pass_through_their_values() -> None:
    rng = random.Random(0)
    with working_precision(200):
        values = [arb(rng.uniform(-1, 1)) for _ in range(18)]
        again = cosine_sums(series(values), 17)
        assert all(one.overlaps(v) and one.rad() < arb(2) ** -180 for one, v in zip(again, values, strict=True))


def test_polynomials_have_their_own_coefficients() -> None:
    """T_3 + T_1/2 at five intervals."""
    with working_precision(128):
        found = series([4 * x**3 - 3 * x + x / 2 for x in cosines(5)])
        assert [round(float(c), 12) for c in found] == [0, 0.5, 0, 1, 0, 0]
