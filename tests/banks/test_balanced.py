"""Balanced banks: both sides meet, in every arithmetic and type, and rounding them does what the budget says."""

import math

import numpy as np
import pytest
from flint import arb, fmpq

from analyzer.lemmas.quadrature import gauss, mixed_bound, precision
from analyzer.limits.budgeted_error import PricedBank, extraction_error, upper_bound
from analyzer.limits.pi_law import best_pi_bound, hand_bound
from analyzer.numbers.exact import nearest, rational, upper, working_precision
from constructions.banks.balanced import as_priced, balanced_bank
from constructions.banks.mixed import mixed_minimal
from constructions.banks.priced_fit import Programme
from verify.limits.pairs import horizon, lag_limit

CASES = [("lin", 8, (1, 2)), ("lin", 24, (1, 3, 5, 6)), ("log", 8, (1, 2)), ("log", 24, (1, 2, 4)), ("lin", 53, (4, 11))]


@pytest.mark.deep(keep="lin-8-lags0")
@pytest.mark.parametrize("rpe,bits,lags", CASES)
def test_both_sides_meet(rpe: str, bits: int, lags: tuple[int, ...]) -> None:
    unit = fmpq(1, 2**bits)
    for lag in lags:
        pair = lag_limit(rpe, lag, unit, bits, fresh=True)
        assert pair.lower <= pair.upper <= 1
        if pair.upper < 0.9:
            assert pair.ratio <= (1.02 if lag <= 4 else 1.10)
        if rpe == "lin":
            assert float(best_pi_bound(lag, unit)[0]) <= pair.lower * 1.01 and nearest(hand_bound(lag, unit)) <= pair.lower


@pytest.mark.deep
@pytest.mark.parametrize("rpe,dtype,lag", [("lin", "float32", 2), ("lin", "float32", 4), ("log", "float32", 3), ("lin", "float64", 6)])
def test_rounded_banks_stay_within_three_times_the_budget(rpe: str, dtype: str, lag: int) -> None:
    """Weights rounded to the type, decays stored exactly in it: the worst case over all inputs is the exact ℓ¹ norm."""
    bits = {"float32": 24, "float64": 53}[dtype]
    pair = lag_limit(rpe, lag, fmpq(1, 2**bits), bits, fresh=True)

    def stored(value: fmpq) -> fmpq:
        return rational(float(np.array(nearest(value), dtype=dtype)))

    assert all(stored(p) == p for _, p in pair.bank.heads)
    rounded = PricedBank(pair.bank.heads, tuple(stored(a) for a in pair.bank.weights), stored(pair.bank.residual))
    with working_precision(400):
        assert upper(extraction_error(rounded, lag)) <= 3 * pair.upper


@pytest.mark.deep
def test_horizons() -> None:
    """bfloat16 and float32, from both sides; log sees one token more than lin in bfloat16, one less in float32."""
    expected = {("lin", 8): 1, ("lin", 24): 5, ("log", 8): 2, ("log", 24): 4}
    for (rpe, bits), lag in expected.items():
        found = horizon(rpe, fmpq(1, 2**bits), bits, fresh=True)
        assert found.horizon == lag and found.upper < 0.5 <= found.next_lower


@pytest.mark.parametrize(
    "bits,lag,exact", [(9, 1, True), (14, 2, False), (19, 4, True), (28, 5, False), (33, 7, True), (41, 8, False), (64, 13, False)]
)
def test_the_rule_is_right_or_one_too_large(bits: int, lag: int, exact: bool) -> None:
    found = horizon("lin", fmpq(1, 2**bits), bits, fresh=True)
    assert found.horizon == lag and found.upper < 0.5 <= found.next_lower
    assert found.rule == lag + (0 if exact else 1)


@pytest.mark.deep
def test_few_heads() -> None:
    unit = fmpq(1, 2**24)
    uppers = [lag_limit("lin", 3, unit, 24, heads).upper for heads in (3, 4, 6, 9)]
    assert uppers == sorted(uppers, reverse=True)
    best = lag_limit("lin", 3, unit, 24, fresh=True)
    assert best.upper <= uppers[-1] <= 1.2 * best.upper
    assert lag_limit("lin", 3, unit, 24, 2).lower == 1.0


def test_several_lags_share_a_bank() -> None:
    found = balanced_bank("lin", (1, 3), lambda _: 2.0**-24, 8, 24)
    for k, lag in enumerate((1, 3)):
        alone = lag_limit("lin", lag, fmpq(1, 2**24), 24)
        assert alone.lower <= float(upper_bound(as_priced(found, k), lag, fmpq(1, 2**24))) <= 2 * alone.upper


def test_a_programme_with_a_known_solution() -> None:
    """min |1 − a| + |a|/2 + |2a|: nothing is worth buying at that price, and everything is at a tenth of it."""
    expensive = Programme([[arb(1), arb(2)]], [arb(1), arb(0)], [arb(1) / 2]).solve()
    assert float(expensive.value) == pytest.approx(1.0) and float(expensive.weights[0]) == pytest.approx(0.0, abs=1e-9)
    cheap = Programme([[arb(1), arb(0)]], [arb(1), arb(0)], [arb(1) / 20]).solve()
    assert float(cheap.value) == pytest.approx(0.05) and float(cheap.weights[0]) == pytest.approx(1.0)


def test_gauss_rules_are_exact_where_they_should_be() -> None:
    decay, nodes = fmpq(23, 2), 3
    with working_precision(precision(decay, nodes)):
        rule = gauss(decay, nodes)
        assert all(abs(rule.raw(s)) < arb(2) ** -200 for s in range(1, 7))
        assert all(rule.raw(s) > 0 for s in range(7, 20)) and all(0 < z < 1 for z in rule.nodes)


def test_mixed_banks_halve_the_law() -> None:
    """Closed values of two heads for lag 3, and a certified bank of four for lag 7."""
    assert [float(mixed_bound(3, fmpq(p))) for p in (10, 20, 40)] == pytest.approx([0.0673662, 3.21898e-3, 1.00580e-5], rel=1e-5)
    log, lin = mixed_minimal(7, 1e-3)
    bank = PricedBank((("log", log.decays[0]), *(("lin", p) for p in lin.decays)), (log.weights[0][0], *lin.weights[0]), lin.residuals[0])
    with working_precision(4000):
        error = upper(extraction_error(bank, 7))
    assert len(bank.heads) == 4 and math.isclose(error, upper(mixed_bound(7, log.decays[0])), rel_tol=1e-9) and error <= 1e-3
