"""Formulas: one tree, the same numbers in balls, series and arrays; text that is no formula is refused."""

import math

import numpy as np
import pytest
import sympy
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.language.formulas import Formula, parse_formula
from analyzer.numbers.exact import interval
from tests.depth import examples

TEXTS = [
    "exp(-(u-v)**2)",
    "sin(2*pi*u)*cos(2*pi*v) - u/3",
    "tanh(3*u - v) + sqrt(u + v + 1)",
    "log(2 + u*v)**2/(1 + u)",
    "(u + 1)**-2.5 + (v + 0.5)**0.5",
    "abs(u - v) + relu(u - 0.3) - u**3*v**2",
]


u, v = sympy.symbols("u v")
BY_HAND = dict(
    zip(
        TEXTS,
        (
            sympy.exp(-((u - v) ** 2)),
            sympy.sin(2 * sympy.pi * u) * sympy.cos(2 * sympy.pi * v) - u / 3,
            sympy.tanh(3 * u - v) + sympy.sqrt(u + v + 1),
            sympy.log(2 + u * v) ** 2 / (1 + u),
            (u + 1) ** sympy.Rational(-5, 2) + sympy.sqrt(v + sympy.Rational(1, 2)),
        ),
        strict=False,
    )
)
"""The smooth ones, written in sympy."""


def _formula(text: str) -> Formula:
    return parse_formula(text, ("u", "v"), "rho")


@pytest.mark.parametrize("text", TEXTS)
def test_arithmetics_agree(text: str) -> None:
    formula = _formula(text)
    for u, v in [(0.1, 0.7), (0.5, 0.25), (0.9, 0.2)]:
        ball = formula.at(arb(u), arb(v))
        assert abs(float(ball) - formula.compiled(np)(u, v)) < 1e-13
        for index in (0, 1):
            assert formula.taylor(index, 3, arb(u), arb(v))[0].overlaps(ball)


@pytest.mark.parametrize("text", TEXTS[:5])
@pytest.mark.parametrize("index", [0, 1])
def test_taylor_coefficients_are_derivatives(text: str, index: int) -> None:
    expression = BY_HAND[text]
    found = _formula(text).taylor(index, 3, arb(fmpq(3, 10)), arb(fmpq(3, 5)))
    for order, coefficient in enumerate(found):
        exact = sympy.diff(expression, (u, v)[index], order).subs({u: sympy.Rational(3, 10), v: sympy.Rational(3, 5)}) / math.factorial(
            order
        )
        assert abs(float(coefficient) - float(exact.evalf(30))) < 1e-10


@settings(max_examples=examples(60), deadline=None)
@given(
    text=st.sampled_from(TEXTS),
    low=st.tuples(st.floats(0, 0.9), st.floats(0, 0.9)),
    size=st.floats(1e-3, 0.1),
    where=st.tuples(st.floats(0, 1), st.floats(0, 1)),
    index=st.integers(0, 1),
)
def test_boxes_contain_values_and_slopes(text: str, low: tuple[float, float], size: float, where: tuple[float, float], index: int) -> None:
    formula = _formula(text)
    boxes = [interval(arb(a), arb(a) + arb(size)) for a in low]
    points = [arb(a) + arb(size) * arb(w) for a, w in zip(low, where, strict=True)]
    assert formula.at(*boxes).contains(formula.at(*points))
    wide, narrow = formula.taylor(index, 2, *boxes), formula.taylor(index, 2, *points)
    for outer, inner in zip(wide, narrow, strict=True):
        assert not outer.is_finite() or outer.overlaps(inner)


def test_kinks_have_slopes_but_no_curvature() -> None:
    kink = _formula("abs(u - v)")
    value, slope, second = kink.taylor(0, 2, interval(arb(0.4), arb(0.6)), arb(0.5))
    assert value.contains(0) and slope.contains(-1) and slope.contains(1) and not second.is_finite()
    assert [float(c) for c in kink.taylor(0, 2, arb(0.25), arb(0.5))] == [0.25, -1, 0]
    assert kink.taylor(1, 2, interval(arb(0.1), arb(0.2)), interval(arb(0.3), arb(0.4)))[2] == 0


def test_constants_do_not_cut_series_short() -> None:
    """A formula that was expanded to a low order first still has all coefficients later."""
    formula = parse_formula("2*u**5 + 1", ("u",), "f")
    formula.taylor(0, 1, arb(0))
    assert [float(c) for c in formula.taylor(0, 5, arb(0))] == [1, 0, 0, 0, 0, 2]


@pytest.mark.parametrize("text", ["log(u)", "sqrt(u - 2)", "1/(u - v)", "(u - 0.5)**-1", "(u-1)**0.5"])
def test_undefined_values_are_not_finite(text: str) -> None:
    box = interval(arb(0), arb(1))
    assert not _formula(text).at(box, box).is_finite()
    assert not all(c.is_finite() for c in _formula(text).taylor(0, 2, box, box))


BAD = [
    "", "u +", "1j*u", "nan", "inf", "True", "'u'", "u**v", "u**1000", "w", "u[0]", "u if v else 1", "lambda: 1", "__import__('os')",
    "exp(u, v)", "exp(x=u)", "[u]", "u < v", "u and v", "1e999", "u.real", "max(u, v)", "(" * 300 + "u" + ")" * 300, "u+" * 1500 + "u",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_formula_is_refused(text: str) -> None:
    with pytest.raises(InputError) as caught:
        _formula(text)
    assert "\n" not in str(caught.value)


def test_text_is_needed() -> None:
    with pytest.raises(InputError, match="must be text"):
        parse_formula(3, ("u", "v"), "rho")
