"""Rates: slopes of powers are their exponents, the spread is that of the points, both ends count."""

import math
from collections.abc import Callable
from typing import Any

import pytest

import lemmaformer as lf
from verify.claims.rates import slope

Run = Callable[..., Any]


def test_the_slope_of_a_power_is_its_exponent() -> None:
    found = slope([(x, 3 * x**-1.5) for x in (1.0, 2.0, 5.0, 11.0)])
    assert found is not None and found["slope"] == pytest.approx(-1.5) and found["standard_error"] == pytest.approx(0, abs=1e-9)
    assert found["least"] == pytest.approx(-1.5) == found["largest"]


def test_the_spread_is_that_of_the_points() -> None:
    found = slope([(1.0, 1.0), (math.e, math.e), (math.e**2, math.e**3)])
    assert found is not None and found["slope"] == pytest.approx(1.5)
    assert (found["least"], found["largest"]) == (pytest.approx(1), pytest.approx(2))
    assert found["standard_error"] == pytest.approx(math.sqrt(1 / 6 / 2))  # residuals 1/6, -1/3, 1/6; one degree of freedom; Σx² = 2


def test_points_without_a_logarithm_are_left_out() -> None:
    found = slope([(1.0, 2.0), (2.0, 0.0), (4.0, None), (8.0, 16.0)])
    assert found is not None and found["points"] == 2 and found["slope"] == pytest.approx(1) and found["standard_error"] is None
    assert slope([(1.0, 2.0), (2.0, -1.0)]) is None


def test_both_ends_stand_beside_the_claim(run: Run) -> None:
    found = run("check", "e <= 3*T**2/H", "--bank", "tuned", "--over", "T=1,2", "--over", "H=16,32,64", "--rate", "H", "--json").json
    assert [rate["fixed"] for rate in found["rates"]] == [{"T": 1}, {"T": 2}]
    for rate in found["rates"]:
        rows = [row for row in found["rows"] if row["sizes"]["T"] == rate["fixed"]["T"]]
        ends = [row["sides"][0][1] for row in rows]
        assert rate["claimed"] == {"3*T**2/H": pytest.approx(-1)} and rate["side"] == "e"
        assert rate["certified"]["slope"] == pytest.approx((math.log(ends[2]) - math.log(ends[0])) / math.log(4))
        assert rate["certified"]["least"] <= rate["certified"]["slope"] <= rate["certified"]["largest"]
    shown = run("check", "e <= 3*T**2/H", "--bank", "tuned", "--over", "T=1", "--over", "H=16,32,64", "--rate", "H").out
    assert "slopes of the logarithms against log H, fitted; [least … largest]" in shown and "claimed" in shown


def test_singular_values_of_a_coupling_have_a_rate() -> None:
    found: Any = lf.check("sigma(k) <= 3*k**-1.5", ["k=1:5"], lf.coupling("exp(-(u-v)**2)"), rate="k").as_dict()
    (rate,) = found["rates"]
    assert found["verdict"] == "holds" and rate["certified"]["slope"] < -1.5 == pytest.approx(rate["claimed"]["3*k**-1.5"])


@pytest.mark.parametrize("size", ["X", "T", ""])
def test_a_rate_needs_a_size_with_several_values(size: str) -> None:
    with pytest.raises(lf.InputError, match="no size with several values"):
        lf.check("T <= H", ["T=1", "H=1:2"], rate=size)


@pytest.mark.deep
def test_the_error_of_a_coupling_falls_with_its_coordinates() -> None:
    found: Any = lf.check("error <= bound", ["m=1:2"], lf.coupling("-4*(u-v)**2", length=4), rate="m").as_dict()
    sides = {rate["side"]: rate for rate in found["rates"]}
    assert found["verdict"] == "holds" and set(sides) == {"error", "bound"}
    assert sides["error"]["certified"]["slope"] < -1 and sides["error"]["witness"]["slope"] < -1
