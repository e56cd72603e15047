"""The budgeted error: both sides on closed forms, for arbitrary sequences and banks, and against tampering."""

import math
import random

import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.limits import budgeted_error
from analyzer.limits.budgeted_error import (
    Dual,
    PricedBank,
    difference_dual,
    dual_norm,
    extraction_error,
    far_lag,
    lower_bound,
    transform_at,
    transform_supremum,
    upper_bound,
)
from analyzer.numbers.exact import upper, working_precision
from tests.depth import examples

UNIT = fmpq(1, 2**24)


def random_dual(rng: random.Random) -> Dual:
    edges = sorted(rng.sample(range(0, 60), rng.randint(2, 12)))
    return Dual(tuple(edges), tuple(fmpq(rng.randint(-64, 64), 64) for _ in edges))


def test_merged_edges_leave_the_sequence_as_it_is() -> None:
    rng = random.Random(5)
    for _ in range(20):
        edges = tuple(sorted(rng.sample(range(40), 12)))
        dual = Dual(edges, tuple(fmpq(rng.randint(-1, 1)) for _ in edges))
        merged = dual.merged()
        assert len(merged.edges) < len(edges) and all(merged.at(s) == dual.at(s) for s in range(60)) and merged.merged() == merged
        with working_precision(160):
            for family in ("lin", "log"):
                assert transform_at(merged, (family, fmpq(5, 4))).overlaps(transform_at(dual, (family, fmpq(5, 4))))


@pytest.mark.deep(keep="lin")
@pytest.mark.parametrize("family", ["lin", "log"])
def test_no_head_exceeds_the_supremum(family: str) -> None:
    rng = random.Random(1)
    for _ in range(12):
        dual = random_dual(rng)
        with working_precision(160):
            bound = transform_supremum(dual, family, UNIT)
            seen = []
            for _ in range(60):
                decay = fmpq(int(2**30 * math.exp(rng.uniform(-6, 3))) + 1, 2**30) + (1 if family == "log" else 0)
                seen.append(abs(transform_at(dual, (family, decay))))
            best = max(float(v) for v in seen)
        assert best <= upper(bound)
        assert upper(bound) <= max(abs(float(arb(v))) for v in dual.values) * (1 + 1e-6) + 1e-6


@given(st.integers(1, 12), st.integers(4, 60))
@settings(max_examples=examples(25), deadline=None)
def test_the_hand_bound_is_one_of_these_certificates(lag: int, bits: int) -> None:
    """(−1)^s C(2T, s) gives (1−z)^{2T+1}: min(1, u·C(2T, T)) to within the sharpness of the enclosure."""
    unit = fmpq(1, 2**bits)
    values = tuple(fmpq((-1) ** s * math.comb(2 * lag, s)) for s in range(2 * lag + 1))
    dual = Dual(tuple(range(2 * lag + 2)), (*values, fmpq(0)))
    found = float(lower_bound(dual, lag, unit, "lin"))
    expected = min(1.0, math.comb(2 * lag, lag) / 2**bits)
    assert expected * (1 - 2.0**-9) <= found <= expected * (1 + 1e-12)


def test_closed_forms_of_one_head() -> None:
    """One lin head for lag 1: κ(s) = z^{s−1} with c = −1/z … e = z/(1−z), weights 2/z − … exactly as (3.3)."""
    decay = fmpq(5)
    with working_precision(128):
        z = (-arb(decay)).exp()
        weight = 1 / (z * (1 - z))
        bank = PricedBank(
            (("lin", decay),),
            (fmpq(int((weight * 2**60).floor().unique_fmpz()), 2**60),),
            fmpq(-int((1 / z * 2**60).floor().unique_fmpz()), 2**60),
        )
        assert abs(extraction_error(bank, 1) - z / (1 - z)) < 1e-12
    total = upper_bound(bank, 1, UNIT)
    assert float(total) == pytest.approx(float(z / (1 - z) + arb(UNIT) * (weight + 1 / z)), rel=1e-9)


@pytest.mark.deep(keep="lin")
@pytest.mark.parametrize("rpe", ["lin", "log", "mixed"])
def test_weak_duality_for_random_pairs(rpe: str) -> None:
    """Any sequence is below any bank: the two sides can never cross."""
    rng = random.Random(7)
    for _ in range(25):
        kinds = {"lin": ["lin"] * 3, "log": ["log"] * 3, "mixed": ["lin", "log", "lin"]}[rpe]
        heads = tuple((k, fmpq(rng.randint(1, 600), 100) + (1 if k == "log" else fmpq(1, 4))) for k in kinds)
        if len(set(heads)) < 3:
            continue
        bank = PricedBank(
            heads, tuple(fmpq(rng.choice([-1, 1]) * rng.randint(1, 300), 100) for _ in heads), fmpq(rng.randint(-200, 200), 100)
        )
        unit, lag = fmpq(1, rng.choice([2, 16, 256])), rng.randint(1, 5)
        assert lower_bound(random_dual(rng), lag, unit, rpe) <= upper_bound(bank, lag, unit)


def test_the_zero_bank_costs_one() -> None:
    assert upper_bound(PricedBank((), (), fmpq(0)), 7, UNIT) == 1


@pytest.mark.deep(keep="8-log")
@pytest.mark.parametrize("rpe", ["log", "mixed"])
@pytest.mark.parametrize("bits", [8, 24])
def test_far_lags_are_out_of_reach(rpe: str, bits: int) -> None:
    """At T_0 and at a few longer lags some central difference shows the error 1, as the closed argument says."""
    unit = fmpq(1, 2**bits)
    first = far_lag(unit, rpe)
    for lag in (first, first + 3, 2 * first):
        assert max(float(lower_bound(difference_dual(lag, n), lag, unit, rpe)) for n in range(2, min(lag, 9))) >= 1 - 1e-9


def test_lin_errors_grow_with_the_lag() -> None:
    """s ↦ κ(s+1) with weights a_h z_h serves the lag before at no higher price."""
    rng = random.Random(3)
    for _ in range(10):
        decays = [fmpq(rng.randint(5, 300), 100) for _ in range(3)]
        if len(set(decays)) < 3:
            continue
        bank = PricedBank(tuple(("lin", p) for p in decays), tuple(fmpq(rng.randint(1, 500), 100) for _ in decays), fmpq(1, 2))
        with working_precision(200):
            shifted = tuple(
                fmpq(int((arb(a) * (-arb(p)).exp() * 2**80).floor().unique_fmpz()), 2**80)
                for a, p in zip(bank.weights, decays, strict=True)
            )
        before = PricedBank(bank.heads, shifted, fmpq(0))
        assert float(upper_bound(before, 2, UNIT)) <= float(upper_bound(bank, 3, UNIT)) + 1e-12


def test_malformed_data_are_refused() -> None:
    for edges, values in (((), ()), ((1, 1), (fmpq(1), fmpq(1))), ((-1, 2), (fmpq(1), fmpq(1))), ((1, 2), (fmpq(1),))):
        with pytest.raises(InputError):
            Dual(edges, values)
    for heads, weights in (((("lin", fmpq(0)),), (fmpq(1),)), ((("log", fmpq(1)),), (fmpq(1),)), ((("cubic", fmpq(2)),), (fmpq(1),))):
        with pytest.raises(InputError):
            PricedBank(heads, weights, fmpq(0))
    with pytest.raises(InputError):
        PricedBank((("lin", fmpq(1)), ("lin", fmpq(1))), (fmpq(1), fmpq(2)), fmpq(0))
    with pytest.raises(InputError):
        lower_bound(Dual((1,), (fmpq(1),)), 0, UNIT, "lin")


def test_a_constant_sequence_is_worth_u() -> None:
    """δ = 1 for ever has F = 1 at slow heads: it shows u and no more, however innocent it looks near the lag."""
    dual = Dual((0,), (fmpq(1),))
    assert float(lower_bound(dual, 3, UNIT, "lin")) == pytest.approx(2.0**-24, rel=1e-3)
    assert float(dual_norm(dual, UNIT, "lin")) == pytest.approx(2.0**24, rel=1e-3)


@pytest.mark.parametrize("q", [2.0**-60, 2.0**-20, 0.125, 0.5, 1 - 2.0**-40, 1.0, 1.5, 40.0])
def test_the_divisor_is_that_of_zeta(q: float) -> None:
    """Below 1 by a Laurent series, from there on by ζ itself."""
    found = budgeted_error._zeta_divisor(arb(q))
    with working_precision(200):
        wanted = arb(q) * (1 + arb(q)).zeta()
        assert found.overlaps(wanted) and found.rad() < arb(2) ** -50 * wanted
    assert budgeted_error._zeta_divisor(arb(0)) == 1


def test_a_series_that_ends_early_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage: with four terms the rest is more than is counted."""
    budgeted_error._laurent.cache_clear()
    monkeypatch.setattr(budgeted_error, "LAURENT_TERMS", 4)
    found = budgeted_error._zeta_divisor(arb(0.9))
    budgeted_error._laurent.cache_clear()
    with working_precision(200):
        assert not found.overlaps(arb(0.9) * (1 + arb(0.9)).zeta())


def test_edges_beyond_doubles_are_certified() -> None:
    """F(p) = e^{−p} − e^{−pe} comes as near to 1 as one likes, for p between 1/e and 1: steps of the first cell are below all doubles."""
    found = dual_norm(Dual((1, 2**1100), (fmpq(1), fmpq(0))), UNIT, "lin") * arb(UNIT)
    assert 1 - 2.0**-10 < found < 1 + 2.0**-10
