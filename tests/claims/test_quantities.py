"""Quantities of claims: enclosures that contain what independent computations give, and that notice what is broken."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq

import lemmaformer as lf
from analyzer.errors import InputError, Refusal
from analyzer.language.claims import parse_claim
from analyzer.numbers.exact import lower, upper
from verify.claims import quantities as rooms
from verify.claims.points import judged
from verify.claims.quantities import Quantities, Subject, ends


def at(name: str, sizes: dict[str, Any], index: int | None = None, target: Any = None, **options: Any) -> tuple[float, float]:
    """Both ends of a quantity."""
    unit = options.pop("unit", None)
    exact = {size: value if isinstance(value, fmpq) else fmpq(value) for size, value in sizes.items()}
    found = Quantities(exact, Subject(target, tuple(sorted(options.items())), None, unit))(name, None if index is None else arb(index))
    return lower(found), upper(found)


def attained(net: Any, lag: int, length: int = 60) -> float:
    """The error at the sign sequence of the kernel that the network shows when it runs on a single 1."""
    impulse = np.zeros(length)
    impulse[0] = 1
    kernel = np.array(net(impulse))
    kernel[lag] -= 1
    signs = np.where(kernel < 0, -1.0, 1.0)[::-1]
    return float(abs(net(signs)[-1] - signs[-1 - lag]))


@pytest.mark.deep(only="lin-tuned-2-8")
@pytest.mark.parametrize(("rpe", "bank", "lag", "heads"), [("lin", "tuned", 2, 8), ("lin", "minimal", 3, 3), ("log", "minimal", 2, 2)])
def test_e_is_the_error_of_the_network_that_is_built(rpe: str, bank: str, lag: int, heads: int) -> None:
    low, high = at("e", {"T": lag, "H": heads}, rpe=rpe, bank=bank)
    seen = attained(lf.build(lf.fixed(lags=(lag,)), rpe=rpe, bank=bank, heads=heads), lag)
    assert low <= high * (1 + 1e-12) and seen <= high * (1 + 1e-9)
    assert seen >= 0.9 * low
    rough, sure = at("error", {"T": lag, "H": heads}, rpe=rpe, bank=bank)
    assert rough <= high and low <= sure


def test_e_of_a_float_network_is_that_of_its_rounded_weights() -> None:
    low, high = at("e", {"T": 2, "eps": fmpq(1, 10)}, dtype="float32")
    assert 0 < low <= high < 0.1
    assert at("e", {"T": 2, "eps": fmpq(1, 10)}) != (low, high)


def test_e_adds_up_over_the_memories_of_a_target() -> None:
    both = at("e", {"H": 16}, target=lf.fixed(lags=(1, 2)), bank="tuned")
    assert both[0] > 0 and both[1] >= at("e", {"T": 2, "H": 16}, bank="tuned")[0]
    low, high = at("e", {"H": 1}, target=lf.kernel("exp(-s/5)"))
    assert 0 < low <= high < 1e-30


@pytest.mark.deep(only="lin-tuned-8")
@pytest.mark.parametrize(
    ("rpe", "bank", "heads"), [("lin", "tuned", 8), ("log", "tuned", 8), ("lin", "minimal", 2), ("mixed", "minimal", 2)]
)
def test_the_mean_square_is_the_sum_of_squares(rpe: str, bank: str, heads: int) -> None:
    low, high = at("mse", {"T": 2, "H": heads} if rpe != "mixed" else {"T": 2}, rpe=rpe, bank=bank)
    net = lf.build(lf.fixed(lags=(2,)), rpe=rpe, bank=bank, **({} if rpe == "mixed" else {"heads": heads}))
    impulse = np.zeros(4000)
    impulse[0] = 1
    kernel = np.array(net(impulse))
    kernel[2] -= 1
    seen = float((kernel**2).sum())
    assert low <= high and low * (1 - 1e-6) - 1e-15 <= seen <= high * (1 + 1e-6) + 1e-15


def test_bounds_are_those_of_the_theorem() -> None:
    for bank in ("paper", "tuned"):
        promised = lf.bound("thm-3.1", lf.fixed(lags=(3,)), heads=32, bank=bank)
        for name in ("bound", bank):
            low, high = at(name, {"T": 3, "H": 32}, bank=bank)
            assert low <= high <= promised.total < low * (1 + 1e-12)
        low, high = at(bank, {"T": 3, "H": 32, "n": 2})
        assert low <= high <= lf.bound("thm-3.1", lf.fixed(lags=(3,)), heads=32, bank=bank, rate=2).total < low * (1 + 1e-12)
    assert at("bound", {"H": 16}, target=lf.kernel("exp(-s)"))[1] == lf.bound("thm-5.1", lf.kernel("exp(-s)"), heads=16).total


def test_heads_are_those_of_the_bound_or_of_the_lag_law() -> None:
    hundredth = fmpq(1, 100)
    assert at("heads", {"T": 4, "eps": hundredth}, bank="tuned") == (527, 527)
    assert at("heads", {"T": 4, "eps": hundredth}) == (4, 4) == at("heads", {"T": 4, "eps": hundredth}, bank="minimal")
    assert at("heads", {"T": 4, "eps": hundredth}, rpe="mixed") == (3, 3)
    assert at("heads", {"T": 4, "eps": 1}) == (0, 0)
    with pytest.raises(InputError, match="one lag"):
        at("heads", {"eps": hundredth}, target=lf.fixed(lags=(2,)))


def test_the_other_quantities_are_those_of_the_limits() -> None:
    pair = lf.limits.lag(2, bits=8)
    for low, high in (at("E_u", {"T": 2}, unit=fmpq(1, 256)), at("E_u", {"T": 2, "u": fmpq(1, 256)})):
        assert pair.lower is not None and pair.upper is not None
        assert pair.lower * (1 - 1e-9) < low <= pair.lower <= pair.upper <= high < pair.upper * (1 + 1e-9)
    low, high = at("sigma", {}, 1, target=lf.coupling("u*v"))
    assert low <= 1 / 3 <= high < 0.34
    assert at("sigma", {}, 2, target=lf.coupling("u*v")) == (0, 0)
    asked = lf.bound("thm-3.1", lf.fixed(lags=(2,), readout="x0*m1"), solve="width", error=0.1)
    assert at("width", {"eps": fmpq(1, 10)}, target=lf.fixed(lags=(2,), readout="x0*m1")) == (asked.data["width"],) * 2


@pytest.mark.parametrize(
    ("name", "sizes", "options", "text"),
    [
        ("e", {"T": fmpq(5, 2)}, {}, "whole numbers"),
        ("e", {"T": 5, "H": 4}, {}, "lag law"),
        ("e", {"H": 4}, {}, "size T is needed"),
        ("e", {}, {"target": lf.coupling("u*v")}, "dp-free layer"),
        ("error", {"H": 4}, {"target": lf.coupling("u*v")}, "no such size"),
        ("mse", {}, {"target": lf.fixed(lags=(2,), readout="m1**2")}, "curved"),
        ("mse", {"T": 1}, {"dtype": "float32"}, "exact weights"),
        ("E_u", {"T": 2}, {}, "arithmetic"),
        ("E_u", {"T": 2, "u": fmpq(9, 10)}, {}, "unit roundoff"),
        ("tuned", {"T": 2, "H": 8, "n": 99}, {}, "rates are"),
        ("tuned", {"T": 2, "H": 8}, {"rpe": "mixed"}, "lin or log"),
        ("sigma", {}, {"target": lf.fixed(lags=(2,)), "index": 1}, "kind"),
        ("sigma", {}, {"target": lf.coupling("u*v"), "index": 0}, "index"),
    ],
)
def test_what_has_no_meaning_is_refused(name: str, sizes: dict[str, Any], options: dict[str, Any], text: str) -> None:
    with pytest.raises((InputError, Refusal)) as caught:
        at(name, sizes, **options)
    assert text in str(caught.value)


CLAIM = parse_claim("e <= 3*T**2/H")
SIZES = {"T": fmpq(2), "H": fmpq(8)}
TUNED = Subject(options=(("bank", "tuned"),))


def test_a_shifted_enclosure_changes_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = rooms.ENCLOSED["e"]
    assert judged(CLAIM, SIZES, Quantities(SIZES, TUNED))["verdict"] == "holds"
    for shift, verdict in ((1, "refuted"), (-1, "holds")):
        monkeypatch.setitem(rooms.ENCLOSED, "e", lambda point, index, shift=shift: honest(point, index) + shift)  # type: ignore[arg-type]
        assert judged(CLAIM, SIZES, Quantities(SIZES, TUNED))["verdict"] == verdict
    monkeypatch.setitem(rooms.ENCLOSED, "e", lambda point, index: honest(point, index) + arb(0, 1))  # type: ignore[arg-type]
    found = judged(CLAIM, SIZES, Quantities(SIZES, TUNED))
    assert found["verdict"] == "undecided" and "more terms of its ℓ¹ norm would" in found["why"]


def test_a_corrupted_certificate_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    claim = parse_claim("error <= 1")
    assert judged(claim, SIZES, Quantities(SIZES, TUNED))["verdict"] == "holds"
    honest = rooms.certified(*Quantities(SIZES, TUNED).network("error"))
    rooms.certified.cache_clear()
    lying = replace(honest, certified=honest.witness / 2)
    monkeypatch.setattr("verify.theorems.thm_3_1.verify", lambda *_: lying)
    with pytest.raises(Refusal, match="violated"):
        judged(claim, SIZES, Quantities(SIZES, TUNED))
    rooms.certified.cache_clear()


@pytest.mark.parametrize(
    ("claim", "verdict", "why"),
    [
        ("T <= T", "holds", ""),
        ("T < T", "refuted", "T is at least 3, T at most 3"),
        ("sqrt(T)**2 <= T", "undecided", "agree to"),
        ("log(T - 4) <= T", "undecided", "not defined"),
        ("1 <= T <= 4 <= 3", "refuted", "4 is at least 4, 3 at most 3"),
        ("T/30 <= 0.1", "holds", ""),
        ("T/30 < 0.1", "refuted", "as rational numbers"),
        ("1/3 + T**-1 <= floor(T/2)*2/3 <= max(0.1, 2/3)", "holds", ""),
        ("T/30 <= 0.1 <= pi/pi/10", "undecided", "agree to"),
        ("heads*0.1 <= 0.3", "holds", ""),
        ("T >= 4", "refuted", "T is at most 3, 4 at least 4"),
        ("exp(T) - exp(T) + 1e-60 > 0", "holds", ""),
    ],
)
def test_formulas_are_judged_and_the_reason_is_said(claim: str, verdict: str, why: str) -> None:
    sizes = {"T": fmpq(3), "eps": fmpq(1, 10)}
    found = judged(parse_claim(claim), sizes, Quantities(sizes, Subject()))
    assert found["verdict"] == verdict and why in (found["why"] or "")


def test_ends_are_rounded_outwards() -> None:
    low, high = ends(arb(1) / 3)
    assert low is not None and high is not None and Fraction(low) < Fraction(1, 3) < Fraction(high) < Fraction(low) + Fraction(1, 10**15)
    assert ends(arb.nan()) == [None, None]
