"""Decisions: the values of a target exactly, the three rules, and margins from below."""

from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.errors import LemmaformerError
from analyzer.numbers.exact import rational, working_precision
from analyzer.targets.decisions import Decision, decision_of, values_of
from tests.depth import examples

THREE = lf.adaptive([-1, 0, 1], {"m1": [1, 2, 3]})
SIGNS = lf.fixed((1, 2), readout="m1*m2/3", alphabet=[-1, 1])
UNEVEN = lf.fixed((1,), readout="m1**2 + m1", alphabet=["-1", "0.5", "1"])
E_DIGITS = "718281828459045235360287471352662497757247093699959574966967627724076630353547"
"""Of e − 2: as many as take longer to tell from e than values are looked at."""
DECISIONS = {"sign": decision_of(SIGNS, 1), "nearest": decision_of(UNEVEN, 1), "argmax": decision_of(THREE, 3)}


@pytest.mark.parametrize(
    ("target", "outputs", "rule", "values"),
    [
        (SIGNS, 1, "sign", [fmpq(-1, 3), fmpq(1, 3)]),
        (SIGNS, 2, "argmax", [fmpq(-1, 3), fmpq(1, 3)]),
        (THREE, 1, "nearest", [-1, 0, 1]),
        (THREE, 3, "argmax", [-1, 0, 1]),
        (UNEVEN, 1, "nearest", [0, fmpq(3, 4), 2]),
        (lf.fixed((1,), readout="m1 + 1", alphabet=[-1, 1]), 1, "nearest", [0, 2]),  # a value that is 0 has no sign
        (lf.fixed((1,), readout="m1 + 2", alphabet=[-1, 1]), 1, "nearest", [1, 3]),
        (lf.fixed((2,), readout="abs(x0 - m1) + relu(m1)", alphabet=[-1, 1]), 3, "argmax", [0, 1, 2, 3]),
    ],
)
def test_rules_and_values(target: Any, outputs: int, rule: str, values: list[Any]) -> None:
    if outputs > 1 and outputs != len(values):
        with pytest.raises(LemmaformerError, match=f"{outputs} outputs, the target {len(values)} values"):
            decision_of(target, outputs)
        return
    found = decision_of(target, outputs)
    assert found.rule == rule and len(found.values) == len(values)
    assert all(ball.overlaps(arb(y)) and ball.rad() < 1e-60 for ball, y in zip(found.values.numbers, values, strict=True))


def test_values_that_are_equal_are_one_value() -> None:
    """sin(1) + sin(−1), sin(0) + sin(0) and 0 are the same number, and 2 sin(1) is no sum of others."""
    found = values_of(lf.fixed((1,), readout="sin(x0) + sin(m1)", alphabet=[-1, 0, 1]))
    assert len(found) == 5 and found.floats() == pytest.approx([k * np.sin(1) for k in range(-2, 3)])
    assert found.table.tolist() == [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
    assert len(values_of(lf.fixed((1,), readout="cos(x0) - exp(m1) + tanh(x0 - m1)", alphabet=[-1, 0, 1]))) == 9


def test_values_are_those_that_occur() -> None:
    """Where both lags are equal both memories hold the same token: their difference is then 0."""
    same = values_of(lf.adaptive([-1, 1], {"a": [1, 2], "b": [1, 2]}, readout="a - b"))
    assert len(same) == 1 and (same.table == -1).sum() == 2
    other = values_of(lf.adaptive([-1, 1], {"a": [1, 2], "b": [1, 1]}, readout="a - b"))
    assert other.floats() == [-2, 0, 2]


@pytest.mark.parametrize("target", [THREE, UNEVEN, SIGNS, lf.load_target("examples/content_and_pointer.toml")], ids=lambda t: t.description)
def test_values_are_looked_up_by_letters(target: Any) -> None:
    values = values_of(target)
    tokens = target.draw(np.random.default_rng(0), (64, target.settled + 3))
    for seen in (tokens, tokens.astype(np.float32).astype(np.float64)):
        index = values.indices(seen)
        for sequence, k in zip(tokens, index, strict=True):
            assert abs(values.numbers[k] - target.exact_value(sequence)) < 1e-12


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (lf.fixed((1,)), "a fixed or adaptive target with an alphabet"),
        (lf.kernel("exp(-s)"), "a fixed or adaptive target with an alphabet"),
        (lf.adaptive([-1, 1], {"a": [1, 2], "b": [1, 2]}, readout="a - b"), "takes one value only"),
        (lf.fixed(tuple(range(1, 18)), alphabet=[-1, 1]), "more than 100000 combinations"),
        (lf.fixed((1,), alphabet=["0.1", "0.1000000000000000000000001"]), "the same number in float64"),
        (lf.fixed((1,), readout=f"exp(m1) - (1 + 0.{E_DIGITS[:38]} + 0.{E_DIGITS[38:]}*1e-38)*m1", alphabet=[0, 1]), "told apart in 256"),
    ],
)
def test_what_cannot_be_decided_is_refused(target: Any, message: str) -> None:
    with pytest.raises(LemmaformerError, match=message):
        decision_of(target, 1)


def test_sequences_shorter_than_lags_are_refused() -> None:
    with pytest.raises(LemmaformerError, match="shorter than the target's lags"):
        values_of(THREE).indices(np.zeros((1, 3, 1)))


def decided(decision: Decision, outputs: np.ndarray) -> int:
    """Which value outputs stand for, and −1 for a tie: by definition, in rationals."""
    if decision.rule == "argmax":
        best = [j for j, y in enumerate(outputs) if y == outputs.max()]
        return best[0] if len(best) == 1 else -1
    found = rational(float(outputs[0]))
    if decision.rule == "sign":
        return -1 if found == 0 else int(found > 0)
    exact = {"nearest": [fmpq(0), fmpq(3, 4), fmpq(2)]}[decision.rule]
    distances = [abs(found - y) for y in exact]
    best = [j for j, d in enumerate(distances) if d == min(distances)]
    return best[0] if len(best) == 1 else -1


numbers = st.one_of(st.sampled_from([0.0, 0.375, 1.375, -0.0, 1.0, 5e-324]), st.floats(-3, 3))


@pytest.mark.parametrize("rule", ["sign", "nearest", "argmax"])
@settings(max_examples=examples(300))
@given(data=st.data())
def test_margins_are_positive_where_decisions_are_right(rule: str, data: st.DataObject) -> None:
    decision = DECISIONS[rule]
    count = 3 if rule == "argmax" else 1
    outputs = np.array([data.draw(numbers) for _ in range(count)])
    right = data.draw(st.integers(0, len(decision.values) - 1))
    margin = decision.margin(outputs.tolist(), right)
    assert bool(margin > 0) == (decided(decision, outputs) == right)
    below = decision.margins_below(outputs[None], np.zeros((1, count)), np.array([right]))[0]
    assert arb(float(below)) <= margin.upper() and below == pytest.approx(float(margin), abs=1e-12)


@pytest.mark.parametrize("rule", ["sign", "nearest", "argmax"])
@settings(max_examples=examples(300))
@given(data=st.data())
def test_margins_from_below_hold_in_all_of_an_enclosure(rule: str, data: st.DataObject) -> None:
    decision = DECISIONS[rule]
    count = 3 if rule == "argmax" else 1
    mid = np.array([data.draw(numbers) for _ in range(count)])
    rad = np.array([data.draw(st.floats(0, 1)) for _ in range(count)])
    right = data.draw(st.integers(0, len(decision.values) - 1))
    below = decision.margins_below(mid[None], rad[None], np.array([right]))[0]
    for corner in range(2**count):
        signs = [1 if corner >> j & 1 else -1 for j in range(count)]
        ends = [rational(float(m)) + s * rational(float(r)) for m, s, r in zip(mid, signs, rad, strict=True)]
        with working_precision(2400):  # sums of two floats are exact
            assert rational(float(below)) <= decision.margin([arb(end) for end in ends], right).upper()  # type: ignore[misc]


def test_what_is_not_finite_has_no_margin() -> None:
    for mid, rad in ((np.inf, 0.0), (np.nan, 0.0), (1.0, np.inf), (1.0, np.nan)):
        assert DECISIONS["sign"].margins_below(np.array([[mid]]), np.array([[rad]]), np.array([1]))[0] == -np.inf


def test_the_room_of_an_error() -> None:
    """An output that is off by less than the room is decided rightly, at the room it is not."""
    assert DECISIONS["nearest"].room() == 0.375 and decision_of(THREE, 1).room() == 0.5
    assert DECISIONS["sign"].room() == float(1 / 3)  # the greatest float below a third
    assert bool(DECISIONS["nearest"].margin([0.375], 1) <= 0) and bool(DECISIONS["nearest"].margin([0.376], 1) > 0)
