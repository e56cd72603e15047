"""Piecewise linear functions: neurons evaluated exactly, interpolation errors that contain the true ones."""

import itertools

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.language.formulas import parse_formula
from analyzer.numbers.piecewise import Neurons, bilinear_error, distance, interpolation_error
from analyzer.targets.coupling import coupling_from_dict, grid_error
from tests.depth import examples

rationals = st.fractions(-3, 3, max_denominator=16).map(lambda q: fmpq(q.numerator, q.denominator))


@settings(max_examples=examples(150), deadline=None)
@given(rows=st.lists(st.tuples(rationals, rationals, rationals), min_size=0, max_size=8), slope=rationals, offset=rationals)
def test_neurons_are_evaluated_exactly(rows: list[tuple[fmpq, fmpq, fmpq]], slope: fmpq, offset: fmpq) -> None:
    neurons = Neurons([b for b, _, _ in rows], [c for _, c, _ in rows])
    outer = [a for _, _, a in rows]

    def plain(x: fmpq) -> fmpq:
        return sum((a * max(b * x + c, fmpq(0)) for b, c, a in rows), offset + slope * x)

    knots = neurons.kinks(fmpq(0), fmpq(1))
    values = neurons.values(outer, knots, slope, offset)
    assert values == [plain(x) for x in knots]
    for (a, b), (y, z) in zip(itertools.pairwise(knots), itertools.pairwise(values), strict=True):
        assert plain((a + b) / 2) == (y + z) / 2  # linear in between


@pytest.mark.parametrize("text", ["sin(7*x)", "exp(-x)*x**3", "abs(x - 0.3)", "relu(x-0.51)**2", "tanh(9*(x-0.5))"])
@pytest.mark.parametrize("pieces", [1, 3, 8, 64])
def test_interpolation_errors_are_upper_bounds(text: str, pieces: int) -> None:
    formula = parse_formula(text, ("x",), "f")
    knots = [fmpq(i, pieces) for i in range(pieces + 1)]
    errors = interpolation_error(lambda x: formula.taylor(0, 2, x), knots)
    xs, ks = np.linspace(0, 1, 4001), np.array([i / pieces for i in range(pieces + 1)])
    g = formula.compiled(np)
    true = np.abs(g(xs) - np.interp(xs, ks, g(ks)))
    worst = [true[(xs >= a) & (xs <= b)].max() for a, b in itertools.pairwise(ks)]
    assert all(t <= float(e) + 1e-15 for t, e in zip(worst, errors, strict=True))
    values = [fmpq(*float(v).as_integer_ratio()) for v in g(ks)]
    total = float(distance(formula.at, lambda x: formula.taylor(0, 2, x), knots, values))
    assert max(worst) <= total + 1e-15
    if pieces == 64 and "abs" not in text:
        assert total <= 3 * max(worst)  # second order: the bound is of the right size


@pytest.mark.parametrize("text", ["exp(-(u-v)**2)", "sin(3*u*v)", "abs(u-v)", "relu(u+v-1)*u", "u*v"])
def test_bilinear_errors_are_upper_bounds(text: str) -> None:
    formula = parse_formula(text, ("u", "v"), "rho")
    knots = [fmpq(i, 20) for i in range(21)]
    bound = float(bilinear_error(lambda index, u, v: formula.taylor(index, 2, u, v), knots, knots))
    fine, coarse = np.linspace(0, 1, 401), np.linspace(0, 1, 21)
    rho = formula.compiled(np)
    values = rho(coarse[:, None], coarse[None, :])
    half = np.array([np.interp(fine, coarse, row) for row in values])
    full = np.array([np.interp(fine, coarse, column) for column in half.T]).T
    gap = rho(fine[:, None], fine[None, :]) - full
    true = (gap.max() - gap.min()) / 2  # modulo constants
    assert true <= bound + 1e-15
    assert bound <= max((8 if "abs" in text or "relu" in text else 3) * true, 1e-30)  # kinks are bounded by their slopes, on both sides


def test_given_bases_have_a_closed_curvature() -> None:
    target = coupling_from_dict({"length": 2, "sigma": "k**-1", "rank": 3}, "test")
    knots = [fmpq(i, 32) for i in range(33)]
    closed = grid_error(target.coupling, knots, knots)
    boxes = bilinear_error(lambda index, u, v: target.coupling.taylor(index, 2, u, v), knots, knots)
    assert boxes <= closed * arb("1.0001") and closed <= 4 * boxes
