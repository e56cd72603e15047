"""Fig. 5 of Jiang & Li, reduced: the error vanishes at the rank, and the slopes refute what they should refute."""

from typing import Any

import numpy as np
import pytest

from analyzer.errors import InputError
from analyzer.lemmas.low_rank import complexities
from analyzer.numbers.exact import upper
from verify.experiments import jl_fig_5
from verify.theorems.jl_4_2 import random_tokens, wanted


@pytest.fixture(scope="module")
def result() -> dict[str, Any]:
    return jl_fig_5.fig_5(sequences=64, seed=1)


def _slope(result: dict[str, Any], alpha: float, rank: int, norm: str) -> dict[str, Any]:
    return next(e for e in result["slopes"] if (e["alpha"], e["rank"], e["norm"]) == (alpha, rank, norm))


@pytest.mark.deep
def test_the_error_vanishes_at_the_rank(result: dict[str, Any]) -> None:
    for alpha in (0.55, 1.0):
        errors = [row["l1"] for row in result["rows"] if (row["alpha"], row["rank"]) == (alpha, 16)]
        assert len(errors) == 16 and errors == sorted(errors, reverse=True)
        assert errors[15] < 1e-4 < 1e-3 < errors[14]


@pytest.mark.deep
def test_means_stay_below_the_repaired_bound(result: dict[str, Any]) -> None:
    assert all(0 < row["l1"] <= row["l1_bound"] for row in result["rows"])


@pytest.mark.deep
def test_which_exponents_are_refuted(result: dict[str, Any]) -> None:
    """At α = 1 the printed exponent is too large; with s = t even α − 1/2 is, without it that one holds."""
    whole, apart = (_slope(result, 1.0, 256, norm) for norm in ("L1", "L1 without s = t"))
    assert whole["refuted"] == {"printed": True, "repaired for s ≠ t": True} and -0.45 < whole["slope"] < -0.25
    assert apart["refuted"] == {"printed": True, "repaired for s ≠ t": False} and -0.75 < apart["slope"] < -0.5
    assert sum("refutes" in finding for finding in result["findings"]) >= 4


def test_the_printed_inequality_is_broken_by_its_own_network() -> None:
    """α = 3/2, τ = 16, m_h = 256 of R = 1024 terms, ideal feed-forward parts: 1.4e-3 per position against τ C_0 C_1/m_h^{2α−1} = 6.9e-4."""
    target, rank = jl_fig_5.target_of("1.5", 1024), 256
    sizes = complexities(target, rank, 1.5)
    printed = target.length * upper(sizes.c0 * sizes.c1) / rank**2
    tokens = random_tokens(target, 100, "float64")
    errors = np.abs(wanted(target, tokens) - wanted(jl_fig_5.target_of("1.5", rank), tokens)).mean(axis=1)
    assert upper(sizes.c1) < 1 + 1e-12 and printed == pytest.approx(16 * 8**0.5 / 2**16, rel=1e-9)
    assert 1.3e-3 < errors.mean() < 1.5e-3 and errors.mean() - 10 * errors.std() / 10 > printed
    repaired = float(np.sqrt((np.arange(rank + 1, 1025) ** -3.0).sum()) * np.sqrt(15)) + 2 * (np.arange(rank + 1, 1025) ** -1.5).sum()
    assert errors.mean() < repaired


def test_slopes_of_powers() -> None:
    value, error = jl_fig_5.slope([3 * m**-0.7 for m in range(1, 16)])
    assert value == pytest.approx(-0.7) and error < 1e-12
    noisy = [m**-0.7 * np.exp(0.1 * (-1) ** m) for m in range(1, 16)]
    assert 0.02 < jl_fig_5.slope(noisy)[1] < 0.06


def test_self_attention_is_left_out() -> None:
    """Two tokens that do not attend to themselves attend to each other, whatever the coupling."""
    original = jl_fig_5.LENGTH
    try:
        jl_fig_5.LENGTH = 2
        tokens = np.array([[0.1, 0.7]])
        assert np.allclose(jl_fig_5.without_self(np.array([1.0, 0.5]), tokens), [[0.7, 0.1]])
    finally:
        jl_fig_5.LENGTH = original


def test_absurd_counts_are_refused() -> None:
    for count in (0, -1, 10**9):
        with pytest.raises(InputError, match=f"sequences {count} is out of range; give"):
            jl_fig_5.fig_5(sequences=count)
