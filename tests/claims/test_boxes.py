"""Formulas on boxes: what is proved is true, what is refuted fails where it is said to, and nothing else is claimed."""

import math
import random

import mpmath
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.claims import boxes
from analyzer.claims.boxes import BoxProof, Ends, prove
from analyzer.errors import InputError
from analyzer.language.claims import ClaimVerdict, parse_claim
from analyzer.lemmas.bump import variation
from tests.depth import examples


def proved(text: str, box: dict[str, tuple[float, float | None]], rpe: str = "lin", **sizes: int) -> BoxProof:
    ends: dict[str, Ends] = {name: (_exact(low), None if high is None else _exact(high)) for name, (low, high) in box.items()}
    return prove(parse_claim(text), ends, {name: fmpq(value) for name, value in sizes.items()}, rpe)


def _exact(value: float) -> fmpq:
    return fmpq(*value.as_integer_ratio())


def _rational(text: str) -> fmpq:
    """A number as it is printed: a fraction, or a float."""
    return fmpq(*map(int, text.split("/"))) if "/" in text or text.isdecimal() else _exact(float(text))


def extraction(lag: float, heads: float, rate: int, alpha: float) -> mpmath.mpf:
    """(3.1) in other words: with mpmath, from the printed formula."""
    mp = mpmath.mpf
    x, lag_, heads_ = mp(alpha), mp(lag), mp(heads)
    sigma = mpmath.exp(-x * lag_) - mpmath.exp(-x * (lag_ + 1))
    height = 4 * mp(float(variation(rate))) * mpmath.exp(1 + x * lag_) / (1 - mpmath.exp(-x))
    return height / (mpmath.pi * rate * (2 * sigma) ** rate * (heads_ - 1 - rate) ** rate)


@pytest.mark.deep
@pytest.mark.parametrize("rate", range(1, 9))
def test_the_tuned_constants_are_never_worse_than_the_papers(rate: int) -> None:
    found = proved("tuned <= paper", {"T": (1, 1000), "H": (rate + 2, None)}, n=rate)
    assert found.verdict is ClaimVerdict.HOLDS
    assert found.touching == ("T = 1/(-1 + exp(1/100))",)  # where log(1 + 1/T) is 1/100


def test_the_papers_constants_are_worse_at_a_point() -> None:
    found = proved("paper <= tuned", {"T": (1, 1000), "H": (4, None)}, n=2)
    assert found.verdict is ClaimVerdict.REFUTED
    assert found.point is not None
    assert found.sides is not None
    lag, heads = (float(_rational(text)) for text in found.point.values())
    paper, tuned = extraction(lag, heads, 2, 0.01), extraction(lag, heads, 2, math.log1p(1 / lag))
    assert paper > tuned
    assert found.sides == pytest.approx((float(paper), float(tuned)), rel=1e-9)


@pytest.mark.deep
def test_roots_are_named_by_their_size() -> None:
    """Whichever comes first in the box, and also where the variable of the proof is 1/T."""
    found = proved("tuned < paper", {"H": (4, None), "T": (99, 100)}, n=2)
    assert found.verdict is ClaimVerdict.REFUTED
    assert found.point == {"T": "1/(-1 + exp(1/100))"}
    assert proved("2 <= T + 1/T", {"T": (0.5, None)}).touching in ((), ("T = 1",))
    assert proved("6*T <= T**2 + 9", {"T": (1, None)}).touching == ("T = 3",)


@pytest.mark.deep(keep="tuned <= 0.999999999*paper")
@pytest.mark.parametrize("text", ["tuned <= 0.999999999*paper", "tuned < paper"])
def test_touching_formulas_leave_no_room(text: str) -> None:
    """At T = 99.50 both are equal: a claim that asks for a billionth more is false there."""
    assert proved(text, {"T": (99, 100), "H": (4, None)}, n=2).verdict is not ClaimVerdict.HOLDS


TRUE = [
    ("T/H <= 3*T**2/(H-1)", {"T": (1, 100), "H": (8, None)}),
    ("exp(-H) <= 1/H", {"H": (1, None)}),
    ("T <= T**2", {"T": (1, 100)}),
    ("1 - H/T <= exp(-H/T)", {"T": (1, 100), "H": (1, 100)}),
    ("1 - 1/T <= exp(-1/T)", {"T": (1, None)}),
    ("4**T/(2*T) <= 5**T", {"T": (1, None)}),
    ("factorial(T) >= (T/exp(1))**T", {"T": (1, 50)}),
    ("(1-1/T)**(T-1) >= exp(-1)", {"T": (2, None)}),
    ("1/T**2 <= 1/T <= 1/sqrt(T)", {"T": (1, None)}),
    ("sin(T) <= T", {"T": (0.125, 100)}),
    ("max(T, 30) >= T", {"T": (1, 10)}),
    ("log2(T) <= T", {"T": (1, 1000)}),
]


@pytest.mark.parametrize(("text", "box"), TRUE)
def test_true_claims_are_proved(text: str, box: dict[str, tuple[float, float | None]]) -> None:
    assert proved(text, box).verdict is ClaimVerdict.HOLDS


@pytest.mark.parametrize(
    ("text", "box"),
    [
        ("sin(T) <= 0.999", {"T": (1, 100)}),
        ("T**2 <= 50*T", {"T": (1, None)}),
        ("exp(T/100) <= T**3 + 2", {"T": (1, None)}),
        ("1/T <= 1/T**2 <= 1", {"T": (1, 9)}),
        ("T < T**2", {"T": (1, 9)}),
        ("(T - 7)**2 >= 0.001", {"T": (1, 9)}),
    ],
)
def test_false_claims_are_refuted_where_they_fail(text: str, box: dict[str, tuple[float, float | None]]) -> None:
    found = proved(text, box)
    assert found.verdict is ClaimVerdict.REFUTED
    assert found.point is not None
    assert found.sides is not None
    claim, sizes = parse_claim(text), {name: _rational(value) for name, value in found.point.items()}
    assert all(box[name][0] <= x and (box[name][1] is None or x <= box[name][1]) for name, x in sizes.items())  # type: ignore[operator]
    values = tuple(side.value({name: arb(x) for name, x in sizes.items()}, lambda name, index: arb.nan()) for side in claim.sides)
    assert claim.judge(values) is ClaimVerdict.REFUTED
    assert found.sides == pytest.approx(tuple(map(float, values)), rel=1e-12)


numbers = st.sampled_from(["1", "2", "0.5", "3", "7"])
powers = st.sampled_from(["-2", "-1", "0.5", "1", "2"])


@st.composite
def formulas(draw: st.DrawFn) -> str:
    parts = [f"{draw(numbers)}*T**{draw(powers)}*H**{draw(powers)}" for _ in range(draw(st.integers(1, 2)))]
    return " + ".join(parts)


@pytest.mark.deep
@settings(max_examples=examples(12), deadline=None)
@given(small=formulas(), large=formulas(), unbounded=st.booleans(), seed=st.integers(0, 9))
def test_verdicts_agree_with_points(small: str, large: str, unbounded: bool, seed: int) -> None:
    found = proved(f"{small} <= {large}", {"T": (1, 20), "H": (2, None if unbounded else 50)})
    draw = random.Random(seed)
    points = [(draw.uniform(1, 20), draw.uniform(2, 50) if not unbounded else 2 * 10 ** draw.uniform(0, 6)) for _ in range(100)]
    holds = [eval(small, {"T": t, "H": h}) <= eval(large, {"T": t, "H": h}) * (1 + 1e-12) for t, h in points]
    assert all(holds) or found.verdict is not ClaimVerdict.HOLDS
    if found.verdict is ClaimVerdict.REFUTED:
        assert found.sides is not None
        assert found.sides[0] > found.sides[1]


@pytest.mark.deep
def test_equal_formulas_on_a_curve_stay_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(boxes, "CELLS", 60)
    found = proved("max(T, H) >= sqrt(T*H)", {"T": (2, 3), "H": (2, 3)})
    assert found.verdict is ClaimVerdict.UNDECIDED
    assert found.undecided
    assert found.reason is not None
    assert any(cell["T"][0] <= cell["H"][1] and cell["H"][0] <= cell["T"][1] for cell in found.undecided)  # cells on the diagonal


def test_a_slope_of_the_wrong_sign_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of false claims is sharp: with the signs of slopes turned round, a false one would be called proved."""
    text, box = "T**3 <= 50*T**2", {"T": (1.0, 100.0)}
    assert proved(text, box).verdict is ClaimVerdict.REFUTED
    right = boxes.sign
    monkeypatch.setattr(boxes, "sign", lambda *arguments: -right(*arguments))
    assert proved(text, box).verdict is ClaimVerdict.HOLDS


@pytest.mark.parametrize(
    ("text", "box", "sizes", "reason"),
    [
        ("log(T-5) <= T", {"T": (1, 100)}, {}, "not positive at T = 1"),
        ("sqrt(T-5) <= T", {"T": (1, 100)}, {}, "not at least 0"),
        ("T <= H", {"T": (1, 100)}, {}, "the size H has no value"),
        ("T <= 2*T", {"T": (1, 100), "H": (1, 2)}, {}, "does not occur"),
        ("T <= 2*T", {"T": (0, 100)}, {}, "sizes are positive"),
        ("T <= 2*T", {"T": (9, 3)}, {}, "the lower end comes first"),
        ("e <= T", {"T": (1, 100)}, {}, "computed at single points"),
        ("tuned <= 1", {"T": (1, 2), "H": (8, 9)}, {}, "needs the rate n"),
        ("tuned <= 1", {"T": (1, 2), "H": (2, 9)}, {"n": 3}, "H - n - 2"),
        ("T/0 <= 1", {"T": (1, 2)}, {}, "divides by zero"),
        ("T <= factorial(10**6)", {"T": (1, 2)}, {}, "not computed"),
    ],
)
def test_what_has_no_meaning_on_the_box_is_refused(
    text: str, box: dict[str, tuple[float, float | None]], sizes: dict[str, int], reason: str
) -> None:
    with pytest.raises(InputError, match=reason):
        proved(text, box, **sizes)


def test_tuned_log_has_no_closed_form() -> None:
    with pytest.raises(InputError, match="closed form"):
        proved("tuned <= paper", {"T": (1, 2), "H": (8, 9)}, "log", n=1)


def test_poles_inside_the_box_are_no_proof() -> None:
    """sympy cancels (T-5)/(T-5) to 1; the claim is undefined at T = 5 all the same."""
    found = proved("(T-5)/(T-5) <= 2", {"T": (1, 10)})
    assert found.verdict is ClaimVerdict.UNDECIDED
    assert found.reason is not None
    assert "T - 5" in found.reason


@pytest.mark.parametrize("ends", [(fmpq(1, 10**400), fmpq(1, 10**398)), (fmpq(10**300), fmpq(10**350))])
def test_boxes_whose_cells_floats_cannot_cut_are_refused(ends: Ends) -> None:
    """(x − 1)(2 + sin 5x) ≥ 0 for x from 1 to 100, x = 10^400 T: a middle of cells that is 0 in floats lies outside, where it is false."""
    with pytest.raises(InputError, match=r"10\^-100"):
        prove(parse_claim("(10**400*T-1)*(2+sin(5*10**400*T)) >= 0"), {"T": ends}, {})


@pytest.mark.deep(keep="(1-sin(T))*(2+sin(3*T)) >= 0-2.0")
@pytest.mark.parametrize(
    ("claim", "high"),
    [
        ("T**5000 + (T+1)**300 >= (T+2)**3000 + T", 2.0),
        ("(T**5-T-1)**2*exp(T) >= 0", 2.0),
        ("(1-sin(T))*(2+sin(3*T)) >= 0", 2.0),
        ("(T-sqrt(T+1))**2*log(T+2) >= 0", 3.0),
    ],
)
def test_sympy_is_not_asked_what_takes_it_minutes(monkeypatch: pytest.MonkeyPatch, claim: str, high: float) -> None:
    """Few operations that stand for polynomials of large degree, and equations in several functions of one variable."""

    def asked(*_: object) -> None:
        raise AssertionError("sympy would take minutes over this")

    for name in ("solve", "factor", "limit"):
        monkeypatch.setattr(boxes.sympy, name, asked)
    monkeypatch.setattr(boxes, "CELLS", 60)
    assert proved(claim, {"T": (1.0, high)}).verdict is not ClaimVerdict.HOLDS


def test_equations_that_mix_a_variable_and_its_logarithm_are_not_solved() -> None:
    """The slope of log(1+(T−2)²)(6+1/T) took sympy minutes; r + c log g it solves at once."""
    x = boxes.sympy.Symbol("T", positive=True)
    logarithm = boxes.sympy.log(1 + (x - 2) ** 2)
    assert not boxes._solvable(boxes.sympy.diff(logarithm * (6 + 1 / x), x), x)
    assert boxes._solvable(3 * boxes.sympy.log(x) + x - 1, x)


def test_long_derivatives_end_a_search_before_its_cells_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """1500 cells of this took minutes."""
    monkeypatch.setattr(boxes, "OPERATIONS", 1 << 14)
    found = proved("tanh(H+T)**-2 >= 1", {"T": (0.1, 4.0), "H": (1.0, None)})
    assert found.verdict is ClaimVerdict.UNDECIDED
    assert found.cells < 100


def test_towers_of_powers_are_compared_without_being_written_out() -> None:
    """750^(750^750) has more digits than any computer holds; its logarithm refutes, and it is not shown as a side."""
    found = proved("T**T**T <= 5", {"T": (500.0, 1000.0)})
    assert found.verdict is ClaimVerdict.REFUTED
    assert found.sides is None
