"""Priced ℓ¹ fits and their columns: tails of heads, peaks between places, vertices of degenerate programmes, exchanged columns."""

import random

import numpy as np
import pytest
from flint import arb, arb_mat, fmpq

from analyzer.numbers.exact import working_precision
from constructions.banks import fit_columns, priced_fit
from constructions.banks.fit_columns import Head, Rows, Scale, rows_for
from constructions.banks.priced_fit import Programme, factors


def furthest(rows: Rows, head: Head) -> float:
    """How far the tails of a head are from their closed forms."""
    p = arb(head.decay)
    exact = [(-p * e).exp() if head.rpe == "lin" else p.zeta(arb(e)) / p.zeta() for e in rows.edges]
    return max(float(abs(found - known).upper()) for found, known in zip(rows.tails(head), exact, strict=True))


@pytest.mark.parametrize("decay", ["1.0002", "1.5", "3", "40"])
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_tails_are_those_of_the_closed_forms(rpe: str, decay: str) -> None:
    head = Head(rpe, fmpq(round(float(decay) * 2**20), 2**20))
    with working_precision(256):
        assert furthest(rows_for(1, 1 << 60 if rpe == "log" else 1 << 14, rpe == "log", rpe == "lin"), head) < 2.0**-130


def test_fewer_terms_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_columns, "TERMS", 4)
    with working_precision(256):
        assert furthest(rows_for(1, 1 << 60, 1, False), Head("log", fmpq(3))) > 2.0**-100


def test_a_peak_between_two_places_is_found() -> None:
    """F(p) = z − z² with z = e^{−p} is largest at p = log 2, where it is 1/4."""
    rows, scale = Rows(tuple(range(64))), Scale.of("lin", 8)
    dual = [arb(0)] * 64
    for place, step in ((1, 1), (2, -1)):  # δ changes by these at s = 1, 2
        dual = [v + step if s >= place else v for s, v in enumerate(dual)]
    found = scale.peaks(scale.columns(rows), dual, 0.2, 2.0**-8)
    assert [float(arb(h.decay)) for h in found] == pytest.approx([0.6931], abs=2e-3)
    assert scale.peaks(scale.columns(rows), dual, 0.2501, 2.0**-8) == []


def random_programme(seed: int, columns: int, rows: int = 20) -> tuple[list[list[arb]], list[arb], list[arb]]:
    rng = random.Random(seed)
    table = [[arb(fmpq(rng.randint(-99, 99), 100)) for _ in range(rows)] for _ in range(columns)]
    return table, [arb(int(s == 3)) for s in range(rows)], [arb(fmpq(1, 50))] * columns


@pytest.mark.parametrize("seed", range(4))
def test_primal_and_dual_agree(seed: int) -> None:
    """Σ goal·δ is the value, |δ| ≤ 1 and |Kᵀδ| ≤ π: by the columns alone, whatever was done to find them."""
    table, goal, prices = random_programme(seed, 12)
    with working_precision(128):
        solution = Programme(table, goal, prices).solve()
        shown = sum((g * d for g, d in zip(goal, solution.dual, strict=True)), arb(0))
        assert abs(float(shown - solution.value)) < 1e-12 and all(abs(float(d)) <= 1 + 1e-9 for d in solution.dual)
        for column, price in zip(table, prices, strict=True):
            assert abs(float(sum((k * d for k, d in zip(column, solution.dual, strict=True)), arb(0)) / price)) <= 1 + 1e-9


def test_where_nothing_pays_a_dual_shows_it() -> None:
    """All weights are zero, so every multiplier's bound is free: the basis must be completed by those that are ±1."""
    table, goal, _ = random_programme(0, 12)
    with working_precision(128):
        solution = Programme(table, goal, [arb(3)] * 12).solve()
        assert float(solution.value) == 1.0 and not any(float(a) for a in solution.weights)
        assert float(solution.dual[3]) == 1.0
        for column in table:
            assert abs(float(sum((k * d for k, d in zip(column, solution.dual, strict=True)), arb(0)))) <= 3 * (1 + 1e-9)


@pytest.mark.parametrize("alike", [False, True])
def test_exchanged_columns_are_as_good_as_a_new_programme(alike: bool) -> None:
    """Columns that are new to the basis, and columns that are nearly old ones."""
    table, goal, prices = random_programme(1, 16)
    fresh = [[a + arb(2) ** -40 * b for a, b in zip(table[k], table[k + 1], strict=True)] for k in range(4)] if alike else table[12:]
    with working_precision(128):
        programme = Programme(table[:12], goal, prices[:12])
        programme.solve()
        stay = programme.exchange({0, 5}, fresh, prices[12:])
        again = Programme([*(table[k] for k in stay), *fresh], goal, prices[: len(stay) + 4])
        assert float(programme.solve().value) == pytest.approx(float(again.solve().value), rel=1e-9)


def test_dependent_columns_are_described_by_a_basis() -> None:
    rng = np.random.default_rng(0)
    independent = rng.standard_normal((30, 5))
    matrix = arb_mat([[arb(float(v)) for v in row] for row in np.hstack([independent, independent @ rng.standard_normal((5, 6))])])
    with working_precision(192):
        found = factors(matrix, [1e-12] * 11)
        assert len(found.basis) == 5
        gram = priced_fit.doubles(found.orthogonal.transpose() * found.orthogonal)
    assert np.abs(gram - np.eye(5)).max() < 1e-15


def test_a_solver_that_goes_in_circles_is_asked_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    import scipy.optimize

    asked: list[dict[str, object]] = []
    solver = scipy.optimize.linprog

    def circling(*given: object, **named: object) -> object:
        asked.append(named["options"])  # type: ignore[arg-type]
        return solver(*given, **{**named, "options": {**named["options"], "maxiter": 0}}) if len(asked) == 1 else solver(*given, **named)  # type: ignore[dict-item]

    monkeypatch.setattr(scipy.optimize, "linprog", circling)
    table, goal, prices = random_programme(2, 12)
    with working_precision(128):
        assert float(Programme(table, goal, prices).solve().value) <= 1
    assert len(asked) >= 2 and asked[0]["presolve"] != asked[1]["presolve"]
