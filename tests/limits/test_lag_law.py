"""The lag law, case by case: too few heads leave an input that none of them sees."""

import random

import numpy as np
import pytest
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.limits.lag_law import applies, lag_law, orthogonal_input
from constructions.banks.balanced import orthogonal_guess
from verify.limits.pairs import audit

UNIT = fmpq(1, 2**24)


def random_heads(seed: int, rpe: str, lag: int) -> tuple[tuple[str, fmpq], ...]:
    """Between 1 and T−1 heads with decays over several orders of magnitude; for mixed, as many as 2n + m ≤ T−1 allows."""
    rng = random.Random(seed)

    def head(kind: str) -> tuple[str, fmpq]:
        return kind, fmpq(int(2**20 * (rng.uniform(0.05, 4.0) ** 2 + (1 if kind == "log" else 0))), 2**20)

    if rpe == "mixed":
        lin = rng.randint(1, (lag - 2) // 2)
        return (*(head("lin") for _ in range(lin)), *(head("log") for _ in range(lag - 1 - 2 * lin)))
    return tuple(head(rpe) for _ in range(rng.randint(1, lag - 1)))


@pytest.mark.deep(keep=("lin", "mixed"))
@pytest.mark.parametrize("rpe", ["lin", "log", "mixed"])
def test_a_hundred_random_sets_of_too_few_heads_err_by_one(rpe: str) -> None:
    for seed in range(100 if rpe != "mixed" else 30):
        lag = 2 + seed % 6 if rpe != "mixed" else 4 + seed % 4
        heads = random_heads(seed, rpe, lag)
        assert applies(heads, lag)
        delta = orthogonal_input(heads, lag, *orthogonal_guess(heads, lag))
        assert delta[lag - 1] == 1 and all(abs(v) <= 1 for v in delta)
        for kind, p in heads[:2]:  # orthogonal, by the definition of a head
            seen = sum((d * ((-arb(p) * s).exp() if kind == "lin" else arb(s) ** -arb(p)) for s, d in enumerate(delta, start=1)), arb(0))
            assert abs(seen) < 1e-12


@pytest.mark.deep(keep="lin")
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_the_audit_agrees_with_the_law(rpe: str) -> None:
    """With weights priced at u the certified lower bound is exactly 1 as well: nothing is lost to rounding."""
    for seed in range(10):
        lag = 2 + seed % 4
        found = audit(random_heads(seed, rpe, lag), lag, UNIT)
        assert found.lower == 1.0 and found.upper == 1.0


def test_as_many_heads_as_the_lag_are_enough() -> None:
    heads = tuple(("lin", fmpq(p)) for p in (3, 4, 5))
    assert not applies(heads, 3)
    assert audit(heads, 3, fmpq(1, 2**53)).upper < 0.1


def test_an_input_that_is_not_orthogonal_is_refused() -> None:
    heads = random_heads(3, "lin", 5)
    guess, places = orthogonal_guess(heads, 5)
    large = [fmpq(1) if s == 4 else 50 * v for s, v in enumerate(guess)]
    with pytest.raises(InputError, match="exceed 1"):
        orthogonal_input(heads, 5, large, places)
    with pytest.raises(InputError, match="1 at the lag"):
        orthogonal_input(heads, 5, [v / 2 for v in guess], places)
    with pytest.raises(InputError, match="one place per head"):
        orthogonal_input(heads, 5, guess, places[:-1])


def test_enough_heads_see_every_input() -> None:
    """For H = T well separated heads the least |δ| off the lag exceeds 1: the guess is refused, as it must be."""
    heads = tuple(("lin", fmpq(p)) for p in (3, 6, 9))
    with pytest.raises(InputError, match="exceed 1"):
        orthogonal_input(heads, 3, *orthogonal_guess(heads, 3))


def test_the_inequality_by_linear_algebra() -> None:
    """H ≤ T−1 exponentials: the Hankel matrix is singular, so no kernel has |κ(T)| above the rest of its window."""
    rng = np.random.default_rng(0)
    for lag in (2, 3, 5):
        for _ in range(200):
            ratios, weights = rng.uniform(0, 1, lag - 1), rng.standard_normal(lag - 1)
            kernel = np.array([np.sum(weights * ratios**s) for s in range(1, 2 * lag)])
            others = np.abs(np.delete(kernel, lag - 1)).sum()
            assert abs(kernel[lag - 1]) <= others * (1 + 1e-9)


def test_counting() -> None:
    assert lag_law("lin", (3, 7)).heads == 7 and lag_law("log", (7,)).heads == 7 and lag_law("lin", (7,), error=1.0).heads == 0
    assert [lag_law("mixed", (lag,)).heads for lag in range(1, 8)] == [1, 2, 2, 3, 3, 4, 4]
    assert lag_law("log", (4,)).status == "proved"
    lin, log = ("lin", fmpq(1)), ("log", fmpq(2))
    assert applies((lin, log), 4) and not applies((lin, log), 3)


def test_the_inequality_on_random_mixed_kernels() -> None:
    """|κ(T)| ≤ Σ_{s≠T} |κ(s)| for n atoms and m powers with 2n + m ≤ T−1, and a violation as soon as 2n + m = T."""
    rng = np.random.default_rng(0)
    s = np.arange(1, 12)
    for _ in range(300):
        kernel = rng.standard_normal() * rng.uniform(0, 1) ** s + rng.standard_normal() * s ** -rng.uniform(1, 9.0)
        kernel += rng.standard_normal() * s ** -rng.uniform(1, 9.0)
        assert abs(kernel[4]) <= (np.abs(kernel[:9]).sum() - abs(kernel[4])) * (1 + 1e-9)  # T = 5, n = 1, m = 2
    gauss = s**-20.0 - 2.0 ** (-20.0 * (s - 1))
    assert abs(gauss[2]) > np.abs(gauss).sum() - abs(gauss[2])  # T = 3, n = 1, m = 1
