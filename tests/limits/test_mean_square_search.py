"""Branch and bound over decays: sound on cells, sharp where the optimum is known, and caught when touched."""

from dataclasses import replace

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.limits.mean_square import blaschke, lag_error, law
from analyzer.numbers.exact import nearest
from tests.depth import examples
from verify.limits.mean_square import Landscape, describe, factor, kernel_pair, lag_pair, product, slope

KNOWN = {
    (2, 1): 0.75,
    (4, 1): 0.89453125,
    (8, 1): 0.95091301202,
    (4, 2): 0.7682207360,
    (4, 3): 0.6105725995,
    (8, 2): 0.8965540722,
    (8, 3): 0.8452660609,
}
"""Optima of (lag, heads) that another program found, by Nelder–Mead on the closed form."""


def one_hot(lag: int) -> list[float]:
    return [float(s == lag) for s in range(1, lag + 1)]


@pytest.mark.parametrize("lag", [2, 4, 8])
@pytest.mark.parametrize("heads", [1, 2, 3])
def test_the_optimum_lies_between_both_sides(lag: int, heads: int) -> None:
    found = lag_pair(lag, heads)
    assert found.law == pytest.approx(nearest(law(lag, heads)), rel=1e-15)
    assert 0 <= found.law <= found.lower <= found.upper
    if heads >= lag:
        assert found.lower == found.upper == 0 and found.reached is not None and 0 < found.reached < 1e-10
    else:
        assert found.lower <= KNOWN[lag, heads] + 1e-9 and KNOWN[lag, heads] <= found.upper <= 1.02 * found.lower
    assert len(set(found.decays)) == heads and all(p > 0 for p in found.decays)


@given(st.lists(st.fractions(0, 1, max_denominator=40), min_size=2, max_size=3), st.sampled_from([4, 8]))
@settings(max_examples=examples(400), deadline=None)
def test_random_decays_are_never_below_the_lower_side(ratios: list[object], lag: int) -> None:
    exact = [fmpq(z.numerator, z.denominator) for z in ratios]  # type: ignore[attr-defined]
    assert nearest(lag_error(exact, lag)) >= lag_pair(lag, len(exact)).lower


def test_coefficients_and_derivatives_agree_with_the_theorem() -> None:
    z = np.array([0.0, 0.25, 0.75, 1.0])
    for row, value in zip(factor(z, 7), z, strict=True):
        assert row == pytest.approx([nearest(b) for b in blaschke([fmpq(*float(value).as_integer_ratio())], 7)], abs=1e-15)
    step = 1e-6
    assert slope(z, 7) == pytest.approx((factor(z + step, 7) - factor(z - step, 7)) / (2 * step), abs=1e-6)
    both = product(factor(z[1:2], 7), factor(z[2:3], 7))[0]
    assert both == pytest.approx([nearest(b) for b in blaschke([fmpq(1, 4), fmpq(3, 4)], 7)], abs=1e-15)


def sampled_gap(landscape: Landscape, seed: int) -> float:
    """The least F(point) − bound over random points in random cells."""
    rng, heads = np.random.default_rng(seed), landscape.heads
    levels = rng.integers(0, 8, (300, heads))
    cells = rng.integers(0, 1 << levels)
    bounds, _ = landscape.bounds(cells, levels)
    points = (cells + rng.choice([0.0, 1.0, 0.5, rng.random()], cells.shape)) * 0.5**levels
    return float(np.min(landscape._at(points)[0] - bounds))


@pytest.mark.parametrize("values", [one_hot(5), [0.5, -0.25, 0.125, 1.0, 0.0, -0.5]])
def test_bounds_hold_on_cells_and_a_corrupted_one_does_not(values: list[float]) -> None:
    for heads in (1, 2, 3):
        landscape = Landscape.of(values, heads)
        assert all(sampled_gap(landscape, seed) >= 0 for seed in range(3))
        flat = replace(landscape, tables=(0 * landscape.tables[0], 0 * landscape.tables[1]))  # as if F were linear
        assert min(sampled_gap(flat, seed) for seed in range(3)) < -1e-3


def test_a_floor_raised_by_three_percent_is_not_shown() -> None:
    for (lag, heads), known in KNOWN.items():
        landscape = Landscape.of(one_hot(lag), heads)
        assert landscape.exceeds(0.99 * known).finished
        assert not landscape.exceeds(1.03 * known, work=1 << 24).finished


def test_without_work_the_law_stands() -> None:
    found = lag_pair(8, 3, work=1)
    assert found.method == "law" and found.lower == found.law == 0.625


def test_log_heads_between_the_divisors_and_a_bank() -> None:
    for lag, heads in ((2, 1), (4, 1), (4, 2), (12, 2)):
        found = lag_pair(lag, heads, "log")
        assert found.law == pytest.approx(nearest(law(lag, heads, "log")))
        assert found.law <= found.lower <= found.upper <= 1 and all(p > 1 for p in found.decays)
        s = np.arange(1, 20001.0)
        kernels = np.array([s**-p for p in found.decays])
        wanted = (s == lag) * 1.0
        basis = np.linalg.qr(kernels.T)[0]
        assert 1 - np.sum((basis.T @ wanted) ** 2) == pytest.approx(found.upper, rel=1e-3)
    assert lag_pair(4, 1, "log").upper / lag_pair(4, 1, "log").lower < 1.0001
    limit = describe(lag_pair(3, 4, "log"))  # the infimum is known, a bank was not looked for
    assert limit["upper"] == 0 and limit["reached"] is None and limit["ratio"] is None


@pytest.mark.parametrize("text,heads", [("exp(-(s-4)**2/4)", 2), ("s*exp(-s)", 1), ("(s+1)**-3", 1)])
def test_kernels_between_both_sides(text: str, heads: int) -> None:
    found = kernel_pair(text, heads)
    assert found.method == "branch and bound" and 0 < found.lower <= found.upper <= 1.02 * found.lower
    s, rng = np.arange(1, 400.0), np.random.default_rng(0)
    wanted = eval(text, {"exp": np.exp, "s": s})
    for decays in [np.array(found.decays), *rng.uniform(0.05, 3, (50, heads))]:
        basis = np.linalg.qr(np.exp(-np.outer(s, decays)))[0]
        distance = np.sum((wanted - basis @ (basis.T @ wanted)) ** 2)
        assert distance >= found.lower * (1 - 1e-6)
    assert float(np.sum(wanted**2)) >= found.lower


def test_kernels_that_heads_reproduce_cost_nothing() -> None:
    assert kernel_pair("exp(-s/2) - exp(-s)", 2).upper < 1e-20 and kernel_pair("exp(-s/2) - exp(-s)", 2).lower == 0
    log = kernel_pair("(s+1)**-2", 2, "log")
    assert 0 < log.lower <= log.upper and log.method == "sections"


@pytest.mark.deep
def test_late_bumps_are_seen() -> None:
    """A bump of norm² about 5 at s = 2000: one head recovers next to nothing of it."""
    found = kernel_pair("exp(-(s-2000)**2/16)", 1)
    assert 4.9 < found.upper < 5.1 and found.lower <= found.upper


def test_absurd_lags_and_heads_are_refused() -> None:
    for lag, heads in ((0, 1), (10**6, 1), (4, 0)):
        with pytest.raises(InputError):
            lag_pair(lag, heads)


def test_the_bank_above_reaches_what_is_said() -> None:
    found = lag_pair(8, 3)
    s = np.arange(1, 400.0)
    basis = np.linalg.svd(np.exp(-np.outer(s, found.decays)), full_matrices=False)[0]
    assert 1 - float(np.sum(basis[7] ** 2)) == pytest.approx(found.upper, abs=1e-6)
    assert arb(found.upper) > arb(found.lower)
