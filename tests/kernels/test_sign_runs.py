"""ℓ¹ norms by counting zeros, against sums term by term."""

import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.kernels.sign_runs import SignedBank, crude_tail, tail
from analyzer.numbers.exact import working_precision
from tests.depth import examples

DECAYS = {"lin": st.integers(1, 60), "log": st.integers(25, 120)}


@pytest.mark.parametrize("rpe", ["lin", "log"])
@given(st.data())
@settings(max_examples=examples(40), deadline=None)
def test_tails_enclose_the_sum(rpe: str, data: st.DataObject) -> None:
    sixteenths = data.draw(st.lists(DECAYS[rpe], min_size=1, max_size=5, unique=True))
    weights = data.draw(st.lists(st.integers(-50, 50).filter(bool), min_size=len(sixteenths), max_size=len(sixteenths)))
    start = data.draw(st.integers(1, 12))
    with working_precision(128):
        bank = SignedBank(rpe, tuple(fmpq(p, 16) for p in sixteenths), tuple(arb(w) for w in weights))
        found = tail(bank, start)
        count = 3000
        partial = sum((abs(bank.value(arb(s))) for s in range(start, count)), arb(0))
        least, most = partial, partial + crude_tail(bank, count)
        if found is not None:
            assert found.upper() >= least.lower() and found.lower() <= most.upper()
        assert crude_tail(bank, start) >= least.lower()


@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("count", [1, 2, 30, 1000])
def test_values_at_once_are_those_one_by_one(rpe: str, count: int) -> None:
    """Matrix products (lin) and multiplicativity (log) against every term by itself: balls of the same numbers, both sharp."""
    with working_precision(128):
        bank = SignedBank(rpe, (fmpq(9, 8), fmpq(5, 2), fmpq(40)), (arb(3), arb(-7), arb(2) ** 40))
        found = bank.values(count)
        assert len(found) == count and (rpe == "lin" or found[0] == 0)
        for s in range(rpe == "log", count):
            assert found[s].overlaps(bank.value(arb(s))) and found[s].rad() < arb(2) ** -60


def test_zeros_at_integers_are_no_obstacle() -> None:
    """κ(s) = x(x − e^-2)(x − e^-5) at x = e^-s vanishes exactly at s = 2 and 5, and changes sign there."""
    with working_precision(200):
        decays = tuple(fmpq(k) for k in (1, 2, 3))
        zero = [(-arb(s)).exp() for s in (2, 5)]
        amplitudes = (zero[0] * zero[1], -(zero[0] + zero[1]), arb(1))
        bank = SignedBank("lin", decays, amplitudes)
        found = tail(bank, 1)
        assert found is not None
        brute = sum((abs(bank.value(arb(s))) for s in range(1, 200)), arb(0))
        assert abs(found - brute) < 1e-40


def test_missing_zeros_are_noticed() -> None:
    """x³ − 1.9x² + x·0.905 has Descartes' two sign changes but no real zero: no run of constant sign is claimed."""
    bank = SignedBank("lin", (fmpq(1), fmpq(2), fmpq(3)), (arb("0.905"), arb("-1.9"), arb(1)))
    assert bank.descartes() == 2 and tail(bank, 1) is None


def test_heads_must_differ() -> None:
    with pytest.raises(InputError, match="differ"):
        SignedBank("lin", (fmpq(1), fmpq(1)), (arb(1), arb(-1))).descartes()
