"""Theorem 5.1 by suprema of derivatives: every constant against an independent number, networks beyond the reach of variations."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
from flint import arb, fmpq
from scipy.optimize import linprog

from analyzer.errors import Refusal
from analyzer.kernels.memory_kernels import parse_kernel
from analyzer.lemmas.bump import RATES, derivative, supremum, variation
from analyzer.lemmas.extraction import Tuning
from analyzer.lemmas.extraction import n as rate_symbol
from analyzer.numbers.exact import evaluate, lower, upper
from analyzer.targets.kernel import KernelMemory
from analyzer.theorems import thm_5_1 as theorem
from constructions.banks.kernel_banks import bank_error, interpolation_kernel_bank
from constructions.theorems.thm_5_1 import build
from verify.chain.certificate import Verdict
from verify.theorems.thm_5_1 import verify

PRINTED = (0.7984, 7.750, 186.4, 8316, 5.964e5)
NEW = ("(s+1)**-2.5", "s**-2.8*cos(s)", "(s+2)**-2.2 - 3*exp(-s)")
"""Kernels for which V_n is infinite for every rate."""


@pytest.mark.parametrize("n,value", list(enumerate(PRINTED, start=1)))
def test_supremum_of_the_bump(n: int, value: float) -> None:
    """D_n is reached on a fine grid, and nowhere exceeded."""
    assert float(supremum(n)) == pytest.approx(value, rel=1e-4)
    sampled = max(upper(abs(derivative(n, arb(k) / 2000))) for k in range(-1999, 2000))
    assert (1 - 1e-3) * lower(supremum(n)) <= sampled <= upper(supremum(n)) * (1 + 1e-12)


@pytest.mark.parametrize("n", RATES)
def test_supremum_is_tight_and_below_half_the_variation(n: int) -> None:
    """Ψ^(n) starts and ends at 0, so it varies by 2 D_n at least."""
    assert upper(supremum(n)) / lower(supremum(n)) < 1 + 1e-12 and 2 * upper(supremum(n)) <= upper(variation(n))


@pytest.mark.parametrize("heads", [2, 3, 4, 5, 8, 13, 32, 61])
def test_lebesgue_constants(heads: int) -> None:
    """max Σ|l_j| over a fine grid, by the barycentric formula, against 1 + (2/π) ln H."""
    points = np.cos(np.pi * np.arange(heads) / (heads - 1))
    weights = (-1.0) ** np.arange(heads)
    weights[[0, -1]] /= 2
    grid = np.cos(np.pi * (np.arange(20_000) + 0.5) / 20_000)
    terms = weights / (grid[:, None] - points)
    found = (np.abs(terms).sum(axis=1) / np.abs(terms.sum(axis=1))).max()
    promised = float(evaluate(theorem.LEBESGUE, {theorem.ex.H: heads}))
    assert promised == pytest.approx(1 + 2 / math.pi * math.log(heads))
    assert (0.9 if heads > 5 else 0.6) * promised <= found <= promised


def best_polynomial(values: np.ndarray, grid: np.ndarray, degree: int) -> float:
    """The distance from polynomials on a grid, by linear programming: not above that on the interval."""
    basis = np.polynomial.chebyshev.chebvander(grid, degree)
    ones = np.ones((len(grid), 1))
    solved = linprog(
        np.r_[np.zeros(degree + 1), 1],
        np.block([[basis, -ones], [-basis, -ones]]),
        np.r_[values, -values],
        bounds=[(None, None)] * (degree + 2),
    )
    return float(solved.fun)


@pytest.mark.parametrize("rate,degree", [(1, 0), (1, 3), (1, 8), (2, 1), (2, 6), (3, 2), (3, 7)])
def test_the_constant_of_jacksons_theorem(rate: int, degree: int) -> None:
    """Functions whose n-th derivative is ±1, changing sign often: (π/2)^n/((N+1)N⋯(N−n+2)) holds, and a third of it does not."""
    grid = np.cos(np.linspace(0, np.pi, 2001))[::-1]
    promised = float(evaluate(theorem.BEST, {theorem.S(rate_symbol): 1, rate_symbol: rate, theorem.ex.H: degree + 1}))
    assert promised == pytest.approx((math.pi / 2) ** rate / math.prod(degree + 1 - k for k in range(rate)))
    worst = 0.0
    for phase in (0.0, 0.5, 1.0):
        for signs in (degree + 1 - rate, degree + 1, degree + 2):
            values = np.sign(np.cos(signs * np.arccos(np.clip(grid, -1, 1)) + math.pi / 2 * phase) + 1e-12)
            for _ in range(rate):
                values = np.r_[0, np.cumsum((values[1:] + values[:-1]) / 2 * np.diff(grid))]
            worst = max(worst, best_polynomial(values, grid, degree))
    assert promised / 3**rate <= worst <= promised * (1 + 1e-6)


@pytest.mark.parametrize("rate", [1, 2])
def test_supremum_is_that_of_the_bumps(rate: int) -> None:
    """S_n against differences of Σ_T h_T Ψ on [−1, 1]; bumps are narrow, so T ≤ 12 of a kernel that falls."""
    a, g, step = 0.4, 0.3, 1e-4
    y = np.arange(-1, 1, step)
    x, f = (1 + y) / 2, np.zeros_like(y)
    for T in range(1, 13):
        centre, after = T**-a, (T + 1) ** -a
        u = 2 * (x - centre) / (centre - after)
        inside = np.abs(u) < 1
        f[inside] += math.e * T ** (1 + g) * (T + 1) ** -6.0 * np.exp(-1 / (1 - u[inside] ** 2))
    sampled = np.abs(np.diff(f, rate)).max() / step**rate
    promised = upper(theorem.derivative_supremum(parse_kernel("(s+1)**-6"), rate, Tuning(fmpq(2, 5), fmpq(3, 10))))
    assert 0.98 * promised <= sampled <= promised * (1 + 1e-3)


def test_supremum_over_infinitely_many_bumps() -> None:
    """At the end of the range, n(1+α) = β−1−γ, terms tend to α^{−n} from below; beyond it they have no bound."""
    kernel = parse_kernel("(s+1)**-2.5")
    edge = upper(theorem.derivative_supremum(kernel, 1, Tuning(fmpq(1, 4), fmpq(1, 4)))) / (float(supremum(1)) * math.e)
    terms = [T**1.25 * (T + 1) ** -2.5 / (T**-0.25 - (T + 1) ** -0.25) for T in (1, 10, 10**3, 10**5)]
    assert max(terms) <= edge and 4 <= edge <= 4.03
    assert not theorem.derivative_supremum(kernel, 1, Tuning(fmpq(1, 4), fmpq(26, 100))).is_finite()
    late = parse_kernel("exp(-(s-1000)**2/50)")  # falls after the window only
    assert theorem.derivative_supremum(late, 1, Tuning(fmpq(1), fmpq(1))) > 10**12


@pytest.mark.deep
@pytest.mark.parametrize("text,tuning", [*((text, "tuned") for text in NEW), (NEW[0], "paper")])
def test_certified_error_obeys_the_bound(text: str, tuning: str) -> None:
    """‖κ − ρ‖₁ of stored weights with its tail, several H; the bound falls with H, and says how it was found."""
    kernel, before = parse_kernel(text), math.inf
    for heads in (3, 6, 13):
        found = theorem.attention_bound("log", [kernel], heads, tuning)
        assert found.arguments == ("jackson",) and found.rates == (1,)
        error = bank_error(interpolation_kernel_bank("log", kernel, 1, heads, found.tunings[0]), kernel)
        assert upper(error.most) <= upper(found.total) < before
        before = upper(found.total)


def test_the_range_of_rates() -> None:
    """β > 2 has a rate, β = 2 has none; a rate that variations offer is theirs."""
    for text, count in (("s**-2.02", 1), ("(s+1)**-2.9", 1), ("s**-2.0001", 1)):
        assert theorem.attention_bound("log", [parse_kernel(text)], 10**6).rates == (count,)
    for text in ("(s+1)**-2", "s**-1.5"):
        for tuning in ("tuned", "paper"):
            with pytest.raises(Refusal, match=r"n < \(beta - 1 - gamma\)/\(1 \+ alpha\)") as refused:
                theorem.attention_bound("log", [parse_kernel(text)], 64, tuning)
            assert "\n" not in str(refused.value)
    assert theorem.attention_bound("log", [parse_kernel("s**-4.5")], 64, rate=3).arguments == ("jackson",)
    with pytest.raises(Refusal, match="rate n = 4 is not"):
        theorem.attention_bound("log", [parse_kernel("s**-4.5")], 64, rate=4)
    with pytest.raises(Refusal, match="too few"):
        theorem.attention_bound("log", [parse_kernel("s**-2.5")], 2)


def test_tuning_is_a_minimum() -> None:
    """In all directions, the edge of the range included, where moving one parameter alone helps nothing."""
    kernel = parse_kernel("(s+1)**-2.5")
    best = theorem.tuned("log", kernel, 1, "jackson")
    assert best is not None
    value = upper(theorem.kernel_bound("log", kernel, 64, 1, best, "jackson"))
    for da, dg in ((-1, 1), (1, -1), (-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1)):
        moved = Tuning(best.alpha + fmpq(da, 50), best.gamma + fmpq(dg, 50))
        assert upper(theorem.kernel_bound("log", kernel, 64, 1, moved, "jackson")) > value


@pytest.mark.deep
def test_the_command_line(run: Callable[..., Any], tmp_path: Path) -> None:
    arguments = ["bound", "thm-5.1", "--rpe", "log", "--kernel", "(s+1)**-2.5", "--json"]
    solved = run(*arguments, "--solve", "heads", "--error", "0.5").json
    assert solved["attention"] <= 0.5 < run(*arguments, "--heads", solved["heads"] - 1).json["attention"]
    assert solved["argument"] == ["jackson"] and solved["variation"] == [None] and solved["supremum"][0] > 0
    assert r"\prod" in solved["latex"] and "S(n)" in solved["expression"]
    both = run(*arguments, "--kernel", "(s+1)**-6", "--heads", "40").json
    assert both["argument"] == ["jackson", "variation"] and both["expression"].startswith("Min(")
    assert run("build", "kernel", *arguments[2:], "--bank", "tuned", "--heads", "6", "--out", tmp_path / "net").code == 0
    assert run("verify", tmp_path / "net").code == 0


@pytest.mark.parametrize("rpe,argument", [("lin", "variation"), ("log", "jackson")])
def test_kernels_that_fall_late(rpe: str, argument: str, run: Callable[..., Any]) -> None:
    """Their envelope's constant is beyond the floats, and what falls after the window is looked for."""
    found = run("bound", "thm-5.1", "--rpe", rpe, "--kernel", "exp(-(s-1000)**2/100)", "--heads", "100", "--json")
    assert found.code == 0 and found.json.get("argument", ["variation"]) == [argument] and found.json["envelopes"][0]["constant"] is None


def test_the_proof_names_both_arguments() -> None:
    graph = theorem.proof_graph("log", "tuned", "spline", (0,))
    assert {"interpolation", "jackson"} <= set(graph.successors("kernel k1"))
    assert set(graph.successors("jackson")) == {"best polynomial", "Lebesgue constant"}
    assert graph.nodes["jackson"]["budget"] == (1 + theorem.LEBESGUE) * theorem.BEST


@pytest.mark.deep(only="paper-3")
@pytest.mark.parametrize("bank,heads", [("tuned", 8), ("paper", 3)])
def test_networks(bank: str, heads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """witness ≤ certified ≤ bound; with constants that are too small the certificate says so."""
    target = KernelMemory(("(s+1)**-2.5",))
    built = build(target, rpe="log", bank=bank, heads=heads)
    certificate = verify(built.network, target, bank, "spline")
    assert certificate.verdict is not Verdict.VIOLATED and 0 < certificate.witness <= certificate.certified <= certificate.bound < math.inf
    promised = theorem.attention_bound("log", target.parsed, heads, bank).total
    assert certificate.bound == pytest.approx(upper(promised), rel=1e-6)
    if bank == "paper":
        return
    small = {key: formula / 10**4 for key, formula in theorem.EXPRESSION.items()}
    monkeypatch.setattr(theorem, "EXPRESSION", small)
    assert verify(built.network, target, bank, "spline").verdict is Verdict.VIOLATED


def test_products_in_ball_arithmetic() -> None:
    k, n = sympy.symbols("k n")
    falling = 1 / sympy.Product(n - k, (k, 0, 2))
    assert evaluate(falling, {n: 10}).overlaps(arb(1) / 720)
    assert evaluate(sympy.Product(k, (k, 1, n)), {n: 0}) == 1
