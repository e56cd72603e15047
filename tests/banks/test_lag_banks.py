"""Banks for lags known at run time: kernels against the definition, bounds (3.1), (3.2), (3.6), (3.7)."""

from math import gcd

import pytest
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.lemmas.extraction import adaptive_heads, adaptive_minimal_bound, extraction_bound, lag_ratios, tuned
from analyzer.numbers.exact import upper, working_precision
from constructions.banks.lag_banks import LagBank, budgeted_minimal, exact_minimal, interpolation_lag_bank, weight_mass


def errors(bank: LagBank, lag: int, length: int = 200) -> list[arb]:
    """κ(s; B) − 1_B by its definition."""
    result = []
    for s in range(length):
        terms = []
        for p, a in zip(bank.decays, bank.weights, strict=True):
            if bank.rpe == "lin":
                terms.append(arb(a) * (-arb(p) * (s - lag)).exp())
            elif s > 0:
                terms.append(arb(a) * (arb(s) / lag) ** -arb(p))
        result.append(sum(terms, arb(0)) - int(s == lag))
    return result


@pytest.mark.deep(
    only=(
        "0.3-lags2-lin",
        "0.3-lags2-log",
        "0.3-lags3-lin",
        "0.3-lags3-log",
        "1e-06-lags2-lin",
        "1e-06-lags3-lin",
        "1e-06-lags3-log",
        "1e-06-lags4-lin",
    )
)
@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("lags", [(1,), (1, 2), (2, 5), (1, 2, 3, 4, 5, 6), (4,)])
@pytest.mark.parametrize("error", [0.3, 1e-6])
def test_minimal_banks(rpe, lags, error) -> None:  # type: ignore[no-untyped-def]
    bank = exact_minimal(rpe, lags, error)
    assert bank.heads == adaptive_heads(rpe, lags)
    with working_precision(3000):
        bound = upper(adaptive_minimal_bound(rpe, lags, bank.decays))
        assert bound <= error
        for lag in lags:
            found = errors(bank, lag)
            assert upper(sum((abs(v) for v in found), arb(0))) <= bound * (1 + 1e-12)
            assert all(abs(v) < 1e-15 * error for v in found[: lag + 1])
        if rpe == "lin":  # for all lags at once, with equality
            assert upper(sum((abs(v) for v in errors(bank, lags[0], 400)), arb(0))) == pytest.approx(bound, rel=1e-9)


def test_heads_are_farey_fractions() -> None:
    for longest in range(1, 8):
        totients = sum(1 for b in range(1, longest + 1) for a in range(1, b + 1) if gcd(a, b) == 1)
        assert adaptive_heads("log", range(1, longest + 1)) == totients
        assert adaptive_heads("lin", range(1, longest + 1)) == longest + 1
    assert lag_ratios((1, 4)) == [fmpq(1, 4), fmpq(1, 2), fmpq(3, 4)]


@pytest.mark.deep(keep="16-lin")
@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("heads", [16, 96])
def test_interpolation_banks_keep_their_bound_for_every_lag(rpe, heads) -> None:  # type: ignore[no-untyped-def]
    tuning = tuned(rpe, 3)
    bank = interpolation_lag_bank(rpe, (1, 2, 3), heads, tuning)
    bound = min(upper(extraction_bound(rpe, 3, heads, n, tuning)) for n in range(1, 9))
    with working_precision(4000):
        for lag in (1, 2, 3):
            assert upper(sum((abs(v) for v in errors(bank, lag)), arb(0))) <= bound


def test_refusals() -> None:
    with pytest.raises(Refusal, match="3 heads: a minimal lin bank for these lags has 4"):
        adaptive_minimal_bound("lin", (1, 3), [fmpq(1)] * 3)
    with pytest.raises(InputError, match="progression"):
        adaptive_minimal_bound("log", (1, 2), [fmpq(3), fmpq(3)])
    with pytest.raises(Refusal, match="too few"):
        interpolation_lag_bank("lin", (2,), 2, tuned("lin", 2))


@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_budgeted_banks_balance_error_and_weight(rpe) -> None:  # type: ignore[no-untyped-def]
    """Cheaper rounding buys a smaller error with larger weights, and no exact bank of the family does better for the price."""
    price = fmpq(1, 2**20)
    coarse, fine = (budgeted_minimal(rpe, (1, 2), p, 53) for p in (price, price / 2**20))
    with working_precision(300):
        e_coarse, e_fine = (upper(adaptive_minimal_bound(rpe, (1, 2), b.decays)) for b in (coarse, fine))
        assert e_fine < e_coarse / 100 and weight_mass(coarse) < weight_mass(fine)
        best = upper(adaptive_minimal_bound(rpe, (1, 2), coarse.decays) + arb(price) * weight_mass(coarse))
        for error in (0.5, 0.1, 0.02, 0.005):
            other = exact_minimal(rpe, (1, 2), error)
            assert best <= upper(adaptive_minimal_bound(rpe, (1, 2), other.decays) + arb(price) * weight_mass(other)) * 1.05
    assert all(p == fmpq(*float(arb(p)).as_integer_ratio()) for p in fine.decays)
