"""Read-outs: whitelist parser, ridge sums by polarisation, Lipschitz constants and Barron norms."""

import math
from collections.abc import Callable

import pytest
from flint import arb
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.numbers.exact import upper
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.readout import ReadOut, read_out
from tests.depth import examples

ENVIRONMENT = {"exp": math.exp, "sin": math.sin, "cos": math.cos, "tanh": math.tanh, "relu": lambda v: max(v, 0.0), "abs": abs}


Pair = tuple[str, Callable[[dict[str, float]], float]]


def _affine(left: str, scale: float, right: str, offset: float) -> Pair:
    return f"({scale}*{left} - {right} + {offset})", lambda u: scale * u[left] - u[right] + offset


def _ridge(name: str, inner: Pair) -> Pair:
    return f"{name}({inner[0]}/4)", lambda u: ENVIRONMENT[name](inner[1](u) / 4)


def _power(inner: Pair, degree: int) -> Pair:
    return f"{inner[0]}**{degree}", lambda u: inner[1](u) ** degree


def _product(names: list[str]) -> Pair:
    return "*".join(names), lambda u: math.prod(u[name] for name in names)


def _sum(terms: list[tuple[float, Pair]]) -> Pair:
    return " + ".join(f"{c}*{text}" for c, (text, _) in terms), lambda u: sum(c * value(u) for c, (_, value) in terms)


def expressions() -> st.SearchStrategy[Pair]:
    """Polynomials in x0, m1, m2 plus functions of affine forms: the text, and the same function built beside it."""
    numbers, names = st.sampled_from([0.5, 2.0, 1.25, 3.0]), st.sampled_from(["x0", "m1", "m2"])
    affine = st.builds(_affine, names, numbers, names, numbers)
    ridge = st.builds(_ridge, st.sampled_from(sorted(ENVIRONMENT)), affine)
    power = st.builds(_power, affine, st.integers(2, 4))
    product = st.lists(names, min_size=1, max_size=4).map(_product)
    return st.lists(st.tuples(numbers, st.one_of(ridge, power, product, affine)), min_size=1, max_size=3).map(_sum)


def _readout(pair: Pair) -> ReadOut:
    """Sums whose terms cancel to a constant are not read-outs; the generator may produce them."""
    try:
        return read_out(pair[0], ("m1", "m2"), 1)
    except InputError as error:
        assume("does not depend" not in str(error))
        raise


@given(expressions(), st.tuples(*[st.floats(-1, 1)] * 3))
@settings(max_examples=examples(150), deadline=None)
def test_ridge_sum_is_the_expression(pair: Pair, point: tuple[float, float, float]) -> None:
    readout = _readout(pair)
    wanted = pair[1](dict(zip(("x0", "m1", "m2"), point, strict=True)))
    assert float(readout([arb(v) for v in point])) == pytest.approx(wanted, rel=1e-9, abs=1e-9)


@given(expressions(), st.tuples(*[st.floats(-1, 1)] * 3), st.integers(0, 2), st.floats(-1, 1))
@settings(max_examples=examples(150), deadline=None)
def test_lipschitz_bounds_every_difference(pair: Pair, point: tuple[float, float, float], slot: int, other: float) -> None:
    readout = _readout(pair)
    moved = list(point)
    moved[slot] = other
    difference = abs(readout([arb(v) for v in point]) - readout([arb(v) for v in moved]))
    allowed = readout.lipschitz([arb(1)] * 3)[slot] * abs(arb(other) - arb(point[slot]))
    assert not difference > allowed


@pytest.mark.parametrize(
    "text,slot,value", [("m1*m2", 1, 1.0), ("x0 + 3*m1", 1, 3.0), ("m1**3", 1, 3.0), ("m1*m2*x0", 0, 1.0), ("exp(m1)", 1, math.e)]
)
def test_lipschitz_constants_are_sharp(text: str, slot: int, value: float) -> None:
    assert upper(read_out(text, ("m1", "m2"), 1).lipschitz([arb(1)] * 3)[slot]) == pytest.approx(value, rel=1e-2)


@pytest.mark.parametrize(
    "text,norm",
    [
        ("m1**2", 2 * (1 * 2 + 1)),  # ∫_{−1}^{1} 2 (1 + |τ|) dτ = 6
        ("relu(m1)", 1.0),  # one neuron: R + 0
        ("abs(m1 - 0.5)", 2 * (1 + 0.5)),
    ],
)
def test_barron_norms_by_hand(text: str, norm: float) -> None:
    assert upper(read_out(text, ("m1",), 1).barron_norm([arb(1)] * 2)) == pytest.approx(norm, rel=2e-2)
    assert upper(read_out(text, ("m1",), 1).barron_norm([arb(1)] * 2)) >= norm * (1 - 1e-12)


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
        read_out(text, ("m1", "m2"), 1)
    assert names[:50] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_coordinates_and_default() -> None:
    readout = read_out("x0[1]*m1[0]", ("m1",), 2)
    assert float(readout([arb(0), arb(2), arb(3), arb(0)])) == 6
    assert float(read_out(None, ("m1", "m2"), 2)([arb(9), arb(9), arb(1), arb(2), arb(3), arb(4)])) == 10
    with pytest.raises(InputError, match="2 coordinates"):
        read_out("x0*m1", ("m1",), 2)


@pytest.mark.parametrize("lags", [(), (0,), (2, 2), (5, 2), (-1,), (10**7,), (True,)])
def test_bad_lags_are_refused(lags: tuple[int, ...]) -> None:
    with pytest.raises(InputError):
        FixedMemory(lags)
