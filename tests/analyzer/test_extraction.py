"""(3.1) and (3.2): an independent evaluation, the tuned minimum, head splits, growth with the lag."""

import math

import mpmath
import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError, Refusal
from analyzer.lemmas.bump import RATES, variation
from analyzer.lemmas.extraction import (
    B0,
    PAPER,
    Tuning,
    attention_bound,
    b,
    eta,
    extraction_bound,
    minimal_bound,
    minimal_expression,
    shared_tuning,
    solve_heads,
    split_heads,
    tuned,
)
from analyzer.lemmas.extraction import T as LAG
from analyzer.numbers.exact import rational, upper, working_precision
from tests.depth import examples


def formula(rpe: str, lag: float, heads: float, n: int, alpha: float, gamma: float) -> float:
    """(3.1) and (3.2) typed a second time, in mpmath."""
    with mpmath.workdps(40):
        variation_n, e = mpmath.mpf(variation(n).mid().str(40, radius=False)), mpmath.e
        if rpe == "lin":
            sigma = mpmath.exp(-alpha * lag) - mpmath.exp(-alpha * (lag + 1))
            height = mpmath.exp(1 + gamma * lag) / (1 - mpmath.exp(-gamma))
        else:
            sigma = mpmath.mpf(lag) ** -alpha - mpmath.mpf(lag + 1) ** -alpha
            height = e * mpmath.mpf(lag) ** (1 + gamma) * mpmath.zeta(1 + gamma)
        return float(4 * variation_n * height / (mpmath.pi * n * (2 * sigma) ** n * (heads - 1 - n) ** n))


@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("tuning", ["paper", "tuned"])
def test_bound_against_an_independent_evaluation(run, rpe: str, tuning: str) -> None:
    answer = run("bound", "thm-3.1", "--rpe", rpe, "--lags", 4, "--heads", 256, "--tuning", tuning, "--json").json
    if tuning == "paper":
        assert answer["alpha"] == answer["gamma"] == 0.01
    best = min(formula(rpe, 4, 256, n, answer["alpha"], answer["gamma"]) for n in RATES)
    assert answer["attention"] == pytest.approx(best, rel=1e-6)
    assert answer["lower_bound_heads"] == 4


@given(st.sampled_from(["lin", "log"]), st.integers(2, 300), st.integers(1, 8), st.floats(0.001, 3), st.floats(0.001, 3))
@settings(max_examples=examples(60), deadline=None)
def test_tuned_parameters_are_the_minimum(rpe: str, lag: int, rate: int, alpha: float, gamma: float) -> None:
    best = extraction_bound(rpe, lag, 10**5, rate, tuned(rpe, lag))
    other = extraction_bound(rpe, lag, 10**5, rate, Tuning(rational(alpha), rational(gamma)))
    assert not best > other * (1 + arb(2) ** -40)


@given(st.sampled_from(["lin", "log"]), st.integers(1, 1000), st.integers(16, 10**6))
@settings(max_examples=examples(60), deadline=None)
def test_tuned_is_never_above_paper(rpe: str, lag: int, heads: int) -> None:
    assert upper(attention_bound(rpe, (lag,), heads, "tuned").total) <= upper(attention_bound(rpe, (lag,), heads, "paper").total)


def test_growth_with_the_lag() -> None:
    """Tuned heads grow like T^{1+o(1)}, the paper's like e^{0.01 T}: slopes over T from 1 to 1000."""
    lags = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]
    tuned_heads = [solve_heads("lin", (lag,), 1e-2, "tuned").total_heads for lag in lags]
    paper_heads = [solve_heads("lin", (lag,), 1e-2, "paper").total_heads for lag in lags]
    assert all(t <= p for t, p in zip(tuned_heads, paper_heads, strict=True))
    slopes = np.diff(np.log(tuned_heads)) / np.diff(np.log(lags))
    assert slopes[-1] < 1 + 1 / 6 + 0.03  # (n+1)/n at the best rate there, n ≥ 6
    assert solve_heads("lin", (1000,), 1e-2, "tuned").rate >= 6
    # the paper's heads obey H ≥ n + 1 + (C e^{0.01(n+1)T})^{1/n}: their logarithm grows at least like 0.01 T
    assert math.log(paper_heads[-1] / paper_heads[-2]) > 0.01 * 500
    assert math.log(tuned_heads[-1] / tuned_heads[-2]) < 1.2 * math.log(2)


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_solved_heads_are_least(rpe: str, share: bool) -> None:
    found = solve_heads(rpe, (3, 7), 1e-2, "tuned", share=share)
    assert upper(found.total) <= 1e-2
    for rate in RATES:
        fewer = attention_bound(rpe, (3, 7), found.total_heads - 1, "tuned", rate, share)
        assert upper(fewer.total) > 1e-2


def test_sharing_helps() -> None:
    split, shared = (solve_heads("lin", (3, 7, 12), 1e-2, "tuned", share=share).total_heads for share in (False, True))
    assert shared < split


def test_shared_tuning_beats_the_single_ones() -> None:
    lags, rate = (3, 7, 12), 5
    total = {t: sum(float(extraction_bound("lin", lag, 2000, rate, t)) for lag in lags) for t in (tuned("lin", 3), tuned("lin", 12))}
    best = shared_tuning("tuned", "lin", lags, rate)
    assert sum(float(extraction_bound("lin", lag, 2000, rate, best)) for lag in lags) <= min(total.values())


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=6), st.integers(0, 500), st.integers(1, 10))
def test_split_adds_up(weights: list[float], extra: int, least: int) -> None:
    heads = least * len(weights) + extra
    split = split_heads(weights, heads, least)
    assert split is not None
    assert sum(split) == heads and min(split) >= least
    assert split_heads(weights, least * len(weights) - 1, least) is None


def test_paper_split_is_the_papers() -> None:
    heads = attention_bound("lin", (10, 110), 10_000, "paper", 3).heads
    assert heads[1] / heads[0] == pytest.approx(math.exp(0.01 * 100), rel=1e-3)


def test_bad_rates_and_too_few_heads() -> None:
    with pytest.raises(InputError):
        attention_bound("lin", (4,), 100, "paper", 99)
    with pytest.raises(Refusal):
        attention_bound("lin", (4,), 2, "paper")


@pytest.mark.parametrize("lag", [1, 2, 5, 12])
def test_minimal_closed_form(lag: int) -> None:
    """(3.3): 1/Π(1−z_h) − 1 at the optimal nodes is the Chebyshev expression; (3.4) is its symbolic form."""
    from analyzer.numbers.exact import dyadic
    from analyzer.numbers.formula_values import evaluate

    with working_precision(200):
        top = fmpq(1, 3)
        nodes = [arb(top) * (1 - (arb.pi() * h / lag).cos()) / 2 for h in range(1, lag + 1)]
        decays = [dyadic(-z.log(), 150) for z in nodes]
        closed = evaluate(minimal_expression("lin"), {LAG: lag, b: top})
        assert float(minimal_bound("lin", lag, decays)) == pytest.approx(float(closed), rel=1e-12)
        symbolic = minimal_expression("log").subs({LAG: lag, B0: 20, eta: 2}).doit()
        exponents = [fmpq(20 + 2 * h) for h in range(lag)]
        assert float(minimal_bound("log", lag, exponents)) == pytest.approx(float(symbolic), rel=1e-9)


def test_paper_constants_are_the_papers() -> None:
    assert Tuning(fmpq(1, 100), fmpq(1, 100)) == PAPER


def test_foreign_log_decays_have_no_bound() -> None:
    with pytest.raises(InputError, match="no progression"):
        minimal_bound("log", 3, [fmpq(10), fmpq(11), fmpq(20)])
