"""Networks without positions, and couplings that are one target: floors that are attained, verdicts that can fail."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flint import arb
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.limits.permutation_law import permutation_floor
from analyzer.targets.coupling import CouplingTarget
from analyzer.targets.sequence import SequenceTarget
from constructions.network.transformer import Transformer
from constructions.run.execute import run as evaluate
from tests.depth import examples

Run = Callable[..., Any]


def sequence(formula: str, letters: tuple[Any, ...] = (0, 1), length: int | None = None) -> SequenceTarget:
    found = lf.sequence(formula, alphabet=letters, length=length)
    assert isinstance(found, SequenceTarget)
    return found


@pytest.mark.parametrize(
    ("formula", "letters", "floor"),
    [
        ("x1 - x2*x3", (0, 1), "1"),
        ("x1*x2*x3", (0, 1), "0"),
        ("x1", (-1, 1), "1"),
        ("x1/2 + x2/3", (0, 1), "1/12"),
        ("x1*(1 - x2)*(x3 + 1)", (0, "1/2", 1), "1"),
    ],
)
def test_the_floor_is_exact_and_attained(formula: str, letters: tuple[Any, ...], floor: str) -> None:
    target = sequence(formula, letters, 3 if formula == "x1" else None)
    found = lf.limits.permutation(target).data
    assert found["floor_exact"] == floor and found["equivariant"] == (floor == "0")
    assert found["lower"] <= found["upper"] <= found["lower"] * (1 + 1e-15)
    by_hand = max(
        abs(float(target.exact_value(target.tokens([one])[0]) - target.exact_value(target.tokens([other])[0]))) / 2
        for one in target.words()
        for other in set(itertools.permutations(one))
    )
    assert found["lower"] == pytest.approx(by_hand, abs=1e-12)


@settings(max_examples=examples(40))
@given(st.lists(st.integers(-4, 4), min_size=7, max_size=7))
def test_no_symmetric_function_beats_the_floor(numbers: list[int]) -> None:
    """Any function of the counts, least squares or not: here the mean over the orders, and a drawn one."""
    monomials = ["x1", "x2", "x3", "x1*x2", "x2*x3", "x1*x3", "x1*x2*x3"]
    text = " + ".join(f"({n})*{m}" for n, m in zip(numbers, monomials, strict=True))
    if not any(numbers):
        return
    target = sequence(text)
    floor = permutation_floor(target)
    assert floor.exact is not None
    words, values = target.words(), [float(arb(v)) for v in target.table]
    sums = [sum(word) for word in words]
    for answer in ({k: np.mean([v for v, s in zip(values, sums, strict=True) if s == k]) for k in range(4)}, dict(enumerate(numbers))):
        assert max(abs(v - answer[s]) for v, s in zip(values, sums, strict=True)) >= float(arb(floor.exact)) - 1e-12
    assert max(abs(v - float(arb(m))) for v, m in zip(values, floor.middle, strict=True)) <= float(arb(floor.exact)) + 1e-12


@pytest.mark.deep
def test_networks_without_positions_are_equivariant() -> None:
    """A.1 on a stored network of Theorem 4.2, and on one of Theorem 4.1, which reads positions: there it fails."""
    rng = np.random.default_rng(0)
    blind = lf.build(lf.coupling("u*v", length=4), rank=1, knots=4, dtype="float64").transformer
    order = np.array([2, 0, 3, 1])
    tokens = rng.random((8, 4, 1))
    assert np.abs(evaluate(blind, tokens[:, order]) - evaluate(blind, tokens)[:, order]).max() < 1e-12
    target = sequence("x1 - x2")
    seeing: Transformer = lf.build(target, dtype="float64").transformer
    words = target.tokens([(0, 1), (1, 0)])
    assert np.abs(evaluate(seeing, words)[0] - evaluate(seeing, words)[1]).min() > 1.9


COUPLINGS = {
    "a function of the query": ({"rho": "-(u-v)**2"}, {"other_rho": "2*u*v - v**2"}, "same"),
    "wilder functions of it": ({"rho": "exp(u*v)"}, {"other_rho": "exp(u*v) + tanh(3*u) - abs(u-1/2)"}, "same"),
    "an affine map": ({"rho": "u*v", "f": "x**2", "F": "tanh(y)"}, {"other_f": "2*x**2 - 1", "other_F": "tanh((y+1)/2)"}, "same"),
    "an affine map of a bump": ({"rho": "u*v", "f": "x*(1-x)"}, {"other_f": "1 - 3*x + 3*x**2", "other_F": "(1 - y)/3"}, "same"),
    "a sign that F does not see": ({"rho": "u*v", "F": "y**2"}, {"other_f": "-x"}, "same"),
    "a function of the key": ({"rho": "u*v"}, {"other_rho": "u*v + v/1000"}, "different"),
    "another read-out": ({"rho": "u*v"}, {"other_F": "y + y**2*(1-y)/1000"}, "different"),
    "a square": ({"rho": "u*v", "F": "y"}, {"other_f": "(x+1)**2", "other_F": "sqrt(y) - 1"}, "different"),
}


@pytest.mark.deep(only="wilder functions of it")
@pytest.mark.parametrize("name", COUPLINGS)
def test_verdicts_on_couplings(name: str) -> None:
    given_, other, verdict = COUPLINGS[name]
    target = lf.coupling(**given_, length=3)
    found = lf.limits.invariance(target, **other)  # type: ignore[arg-type]
    assert found.verdict == verdict and found.holds == (verdict == "same")
    second = lf.coupling(**{**given_, **{key.removeprefix("other_"): text for key, text in other.items()}}, length=3)
    tokens = np.random.default_rng(1).random((200, 3, 1))
    gap = np.abs(target.values(np)(tokens) - second.values(np)(tokens)).max()
    assert (gap < 1e-12) == (verdict == "same")
    if found.data["difference_upper"] is not None:
        assert gap <= found.data["difference_upper"] + 1e-12  # type: ignore[operator]
    if verdict == "different":
        worst = np.array(found.data["tokens"])[:, None]
        assert isinstance(target, CouplingTarget) and abs(target.values(np)(worst) - second.values(np)(worst))[0] > 0


def test_ranks_count_modulo_functions_of_the_query() -> None:
    found = lf.limits.invariance(lf.coupling("-(u-v)**2"), other_rho="2*u*v - v**2").data
    assert found["ranks"] == [3, 2] and found["ranks_modulo_query"] == [2, 2]


def test_what_is_not_shown_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sameness that sympy is not asked to show, and no sequence that differs."""
    monkeypatch.setattr("analyzer.limits.coupling_invariance.MOST_SIMPLIFIED", 0)
    found = lf.limits.invariance(lf.coupling("u*v", length=2), other_rho="u*v + sin(v)**2 + cos(v)**2")
    assert found.verdict == "undecided" and found.undecided and found.holds


def test_commands(run: Run) -> None:
    words = ("limits", "permutation", "--formula", "x1 - x2*x3", "--alphabet", "0,1")
    assert "at least 1" in run(*words).out
    assert run(*words, "--error", "0.5").code == 1 and run(*words, "--error", "1").code == 0
    same = ("limits", "invariance", "--rho", "u*v", "--length", "3")
    assert run(*same, "--other-rho", "u*v + u").code == 0
    refuted = run(*same, "--other-rho", "u*v + v")
    assert refuted.code == 1 and "different" in refuted.out
    for wrong in (same, (*same, "--other-rho", "u*w"), ("limits", "permutation"), (*words, "--error", "-1")):
        done = run(*wrong)
        assert done.code == 2 and len(done.err.strip().splitlines()) == 1, wrong
