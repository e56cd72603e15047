"""B_n = TV(Ψ^(n)) against the printed values and against quadrature."""

import mpmath
import pytest
from flint import arb

from analyzer.lemmas.bump import RATES, bump, derivative, variation
from analyzer.numbers.exact import lower, upper

PRINTED = (3.1937, 35.647, 1076.1, 59547, 5.3166e6, 6.9762e8, 1.2637e11, 3.0215e13)


@pytest.mark.parametrize("n,value", list(enumerate(PRINTED, start=1)))
def test_variation_matches_the_printed_digits(n: int, value: float) -> None:
    assert float(variation(n)) == pytest.approx(value, rel=1e-4)


@pytest.mark.parametrize("n", RATES)
def test_variation_is_a_tight_enclosure(n: int) -> None:
    assert upper(variation(n)) / lower(variation(n)) < 1 + 1e-12


@pytest.mark.deep(only=("2", "3"))
@pytest.mark.parametrize("n", [1, 2, 3])
def test_variation_against_quadrature(n: int) -> None:
    """∫|Ψ^(n+1)| by mpmath's own differentiation and quadrature on many panels: a lower-accuracy, independent oracle."""
    panels = mpmath.linspace(-0.999, 0.999, 160)
    integral = mpmath.quad(lambda u: abs(mpmath.diff(lambda v: mpmath.exp(-1 / (1 - v * v)), u, n + 1)), panels, maxdegree=3)
    assert float(variation(n)) == pytest.approx(float(integral), rel=1e-3)


def test_bump_and_its_derivative() -> None:
    assert bump(arb(2)) == 0
    assert float(bump(arb(0))) == pytest.approx(0.36787944117, rel=1e-10)
    half = arb(1) / 2
    step = arb(2) ** -20
    slope = (bump(half + step) - bump(half - step)) / (2 * step)
    assert float(derivative(1, half)) == pytest.approx(float(slope), rel=1e-9)
