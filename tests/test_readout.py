"""Read-outs: whitelist parser, ridge sums by polarisation, Lipschitz constants and Barron norms."""

import math

import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.exact import upper
from analyzer.readout import read_out
from analyzer.targets import FixedMemory

ENVIRONMENT = {"exp": math.exp, "sin": math.sin, "cos": math.cos, "tanh": math.tanh, "relu": lambda v: max(v, 0.0), "abs": abs}


def expressions(depth: int = 3) -> st.SearchStrategy[str]:
    """Polynomials in x0, m1, m2 plus functions of affine forms."""
    numbers = st.sampled_from(["0.5", "2", "1.25", "3"])
    names = st.sampled_from(["x0", "m1", "m2"])
    affine = st.tuples(names, numbers, names, numbers).map(lambda t: f"({t[1]}*{t[0]} - {t[2]} + {t[3]})")
    ridge = st.tuples(st.sampled_from(sorted(ENVIRONMENT)), affine).map(lambda t: f"{t[0]}({t[1]}/4)")
    power = st.tuples(affine, st.integers(2, 4)).map(lambda t: f"{t[0]}**{t[1]}")
    product = st.lists(names, min_size=1, max_size=4).map("*".join)
    term = st.one_of(ridge, power, product, affine)
    return st.lists(st.tuples(numbers, term), min_size=1, max_size=depth).map(lambda ts: " + ".join(f"{c}*{t}" for c, t in ts))


@given(expressions(), st.tuples(*[st.floats(-1, 1)] * 3))
@settings(max_examples=150, deadline=None)
def test_ridge_sum_is_the_expression(text: str, point: tuple[float, float, float]) -> None:
    """The parsed ridge sum equals Python's own evaluation (of text that this test generated)."""
    readout = read_out(text, 2, 1)
    wanted = eval(text, {**ENVIRONMENT, "x0": point[0], "m1": point[1], "m2": point[2]})
    assert float(readout([arb(v) for v in point])) == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@given(expressions(), st.tuples(*[st.floats(-1, 1)] * 3), st.integers(0, 2), st.floats(-1, 1))
@settings(max_examples=150, deadline=None)
def test_lipschitz_bounds_every_difference(text: str, point: tuple[float, float, float], slot: int, other: float) -> None:
    readout = read_out(text, 2, 1)
    moved = list(point)
    moved[slot] = other
    difference = abs(readout([arb(v) for v in point]) - readout([arb(v) for v in moved]))
    allowed = readout.lipschitz([arb(1)] * 3)[slot] * abs(arb(other) - arb(point[slot]))
    assert not difference > allowed


@pytest.mark.parametrize(
    "text,slot,value", [("m1*m2", 1, 1.0), ("x0 + 3*m1", 1, 3.0), ("m1**3", 1, 3.0), ("m1*m2*x0", 0, 1.0), ("exp(m1)", 1, math.e)]
)
def test_lipschitz_constants_are_sharp(text: str, slot: int, value: float) -> None:
    assert upper(read_out(text, 2, 1).lipschitz([arb(1)] * 3)[slot]) == pytest.approx(value, rel=1e-2)


@pytest.mark.parametrize(
    "text,norm",
    [
        ("m1**2", 2 * (1 * 2 + 1)),  # ∫_{−1}^{1} 2 (1 + |τ|) dτ = 6
        ("relu(m1)", 1.0),  # one neuron: R + 0
        ("abs(m1 - 0.5)", 2 * (1 + 0.5)),
    ],
)
def test_barron_norms_by_hand(text: str, norm: float) -> None:
    assert upper(read_out(text, 1, 1).barron_norm([arb(1)] * 2)) == pytest.approx(norm, rel=2e-2)
    assert upper(read_out(text, 1, 1).barron_norm([arb(1)] * 2)) >= norm * (1 - 1e-12)


@pytest.mark.parametrize(
    "text,names",
    [
        ("__import__('os')", "__import__('os')"),
        ("exp(m1*m2)", "exp(m1*m2)"),
        ("m1.real", "m1.real"),
        ("m1 if x0 else m2", "m1 if x0 else m2"),
        ("(lambda: 1)()", "(lambda: 1)()"),
        ("m7", "m7"),
        ("nan", "nan"),
        ("1e999999999*m1", "1e999999999"),
        ("m1**99", "m1**99"),
        ("9**9**9*m1", "9**9"),
        ("sin(x0)*m1", "sin(x0)*m1"),
        ("m1/m2", "m1/m2"),
        ("x0[3]", "x0[3]"),
        ("m1 +", "m1 +"),
        ("'a'", "'a'"),
        ("True*m1", "True"),
        ("1j*m1", "1j"),
        ("[m1]", "[m1]"),
        ("m1; m2", "m1; m2"),
        ("", ""),
        ("(" * 500 + "m1" + ")" * 500, "("),
        ("m1+" * 900 + "m1", "characters"),
    ],
)
def test_what_is_no_ridge_sum_is_refused_by_name(text: str, names: str) -> None:
    with pytest.raises(InputError) as caught:
        read_out(text, 2, 1)
    assert names[:50] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_coordinates_and_default() -> None:
    readout = read_out("x0[1]*m1[0]", 1, 2)
    assert float(readout([arb(0), arb(2), arb(3), arb(0)])) == 6
    assert float(read_out(None, 2, 2)([arb(9), arb(9), arb(1), arb(2), arb(3), arb(4)])) == 10
    with pytest.raises(InputError, match="2 coordinates"):
        read_out("x0*m1", 1, 2)


@pytest.mark.parametrize("lags", [(), (0,), (2, 2), (5, 2), (-1,), (10**7,), (True,)])
def test_bad_lags_are_refused(lags: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        FixedMemory(lags)
