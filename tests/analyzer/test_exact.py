"""Outward rounding, exact text, and sympy in balls."""

import math

import pytest
import sympy
from flint import arb, fmpq
from hypothesis import given
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.numbers.exact import (
    decimal_above,
    decimal_below,
    dyadic,
    from_text,
    lower,
    rational,
    to_grid,
    to_text,
    upper,
    working_precision,
)
from analyzer.numbers.formula_values import evaluate


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 10**6))
def test_rounding_is_outward(value: float, divisor: int) -> None:
    ball = arb(rational(value)) / divisor
    exact = rational(value) / divisor
    assert lower(ball) <= upper(ball)
    if math.isfinite(upper(ball)):
        assert rational(upper(ball)) >= exact
    if math.isfinite(lower(ball)):
        assert rational(lower(ball)) <= exact


@given(st.integers(-(10**30), 10**30), st.integers(1, 10**30), st.integers(-200, 200))
def test_text_round_trip(numerator: int, denominator: int, exponent: int) -> None:
    for value in (fmpq(numerator, denominator), fmpq(numerator) * fmpq(2) ** exponent):
        assert from_text(to_text(value)) == value


@pytest.mark.parametrize("text", ["", "nan", "1/0", "1e5", "0x10", "1*2^99999999", "--1", "1/2/3", " 1", 3])
def test_bad_numbers_are_refused(text: object) -> None:
    with pytest.raises(InputError):
        from_text(text)  # type: ignore[arg-type]


@given(st.fractions(), st.integers(2, 80))
def test_rounding_to_bits_and_grids(value: object, bits: int) -> None:
    exact = fmpq(value.numerator, value.denominator)  # type: ignore[attr-defined]
    with working_precision(400):
        assert abs(dyadic(arb(exact), bits) - exact) <= abs(exact) * fmpq(1, 2) ** (bits - 1)
        assert abs(to_grid(arb(exact), 20) - exact) <= fmpq(1, 2) ** 21 + fmpq(1, 2) ** 200


@pytest.mark.parametrize("text,value", [("0.01", fmpq(1, 100)), ("2e-3", fmpq(1, 500)), ("17", fmpq(17)), (".5", fmpq(1, 2))])
def test_decimals_are_exact(text: str, value: fmpq) -> None:
    assert rational(text) == value


def test_sympy_in_balls() -> None:
    x, y = sympy.symbols("x y")
    expression = sympy.exp(x) * sympy.zeta(y) / (sympy.pi - sympy.Rational(1, 3)) ** 3 + sympy.log(x) ** y
    found = evaluate(expression, {x: fmpq(3, 2), y: fmpq(5, 2)})
    assert float(found) == pytest.approx(float(expression.subs({x: sympy.Rational(3, 2), y: sympy.Rational(5, 2)})), rel=1e-12)
    with pytest.raises(TypeError):
        evaluate(sympy.erf(x), {x: fmpq(3)})


@given(st.floats(1e-20, 1e20))
def test_shown_bounds_stay_true(value: float) -> None:
    below, above = float(decimal_below(value)), float(decimal_above(value, 3))
    assert below <= value <= above and above - below <= 2e-2 * value
