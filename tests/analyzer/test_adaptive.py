"""Adaptive targets: dependency graphs, situations, and what is refused."""

import itertools
from pathlib import Path
from typing import Any

import pytest
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.targets.adaptive import AdaptiveMemory, Memory, adaptive_from_dict
from analyzer.targets.files import target_from_dict, target_of_kind
from analyzer.targets.fixed import FixedMemory
from analyzer.toml import read_toml
from tests.depth import examples

SIGNS = [[-1], [1]]


def target(memories: dict[str, Any], alphabet: list[list[Any]] | None = None, readout: str | None = None) -> AdaptiveMemory:
    """A target from `name: lag` or `name: (table, parent)`."""
    rows = []
    for name, lag in memories.items():
        rows.append({"name": name, "lag": lag[0], "parent": lag[1]} if isinstance(lag, tuple) else {"name": name, "lag": lag})
    data = {"kind": "adaptive", "alphabet": SIGNS if alphabet is None else alphabet, "memory": rows}
    return adaptive_from_dict(data | ({"readout": readout} if readout else {}), "test")


def test_levels_and_schedules() -> None:
    tree = target({"a": "2 + x0", "c": "2 + b", "b": "2 + a", "d": "3", "e": "4 + a + b + x0"})
    assert tree.levels == {"a": 1, "c": 3, "b": 2, "d": 1, "e": 3}
    assert tree.parents["e"] == ("x0", "a", "b") and tree.parents["d"] == ()
    assert tree.schedule(deep=False) == ((0, 3), (2,), (1, 4))
    assert [len(group) for group in tree.schedule(deep=True)] == [1] * 5
    text = "\n".join(tree.tree_lines())
    assert "c: level 3, lag 2 + b ∈ {1, 3}" in text and "    a: level 1" in text
    assert '"e" -> "b";' in tree.dot()


def test_situations_are_what_sequences_can_show() -> None:
    """Every situation of long sequences is listed and every listed one occurs; two memories at one place hold one token."""
    nested = target({"m1": "(3 - x0)/2", "m2": "(3 - m1)/2"})
    seen = set()
    for sequence in itertools.product(range(2), repeat=6):
        found = nested.situation(sequence, 5)
        assert found is not None
        seen.add(found)
    assert seen == set(nested.situations) and len(seen) == 6
    assert nested.situation((0, 0, 0), 1) is None
    assert nested.occurring(1) == (1, 2) and nested.lag_table(1) == {(0,): 2, (1,): 1}


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 9)), min_size=1, max_size=4))
def test_situations_by_brute_force(tables: list[tuple[int, int, int]]) -> None:
    memories: dict[str, Any] = {}
    for k, (a, b, choice) in enumerate(tables):
        parent = ["x0", *memories][choice % (k + 1)]
        memories[f"m{k}"] = ([a, b], parent)
    chosen = target(memories)
    sequences = itertools.product(range(2), repeat=4)
    assert {chosen.situation(s, 3) for s in sequences} == set(chosen.situations)


def test_description_round_trips() -> None:
    for path in sorted((Path(__file__).parent.parent.parent / "examples").glob("*.toml")):
        found = target_from_dict(read_toml(path), path.name)
        assert target_from_dict(found.describe(), "card") == found
    decimals = target_of_kind(read_toml(Path(__file__).parent.parent.parent / "examples" / "pointer.toml"), "pointer", AdaptiveMemory)
    assert decimals.alphabet[0] == (fmpq(1, 4),)


def test_decimals_are_exact() -> None:
    from decimal import Decimal

    assert target({"m": "10*x0"}, [[Decimal("0.1")], [Decimal("0.3")]]).occurring(0) == (1, 3)


@pytest.mark.parametrize(
    "memories,alphabet,message",
    [
        ({"a": "2 + b", "b": "2 + c", "c": "2 + a"}, None, r"circle: a → b → c → a"),
        ({"a": "2 + a"}, None, "circle: a → a"),
        ({"a": "1 + x0"}, None, r"lag of a is 0 at x0 = -1"),
        ({"a": "x0/2 + 2"}, None, r"lag of a is 3/2 at x0 = -1"),
        ({"a": "2 + x0", "b": "1 + a*x0"}, None, r"lag of b is 0 at x0 = -1, a = 1"),
        ({"a": "2 + y"}, None, "uses 'y'"),
        ({"a": ([1, 2], "z")}, None, "uses 'z'"),
        ({"a": "exp(x0)"}, None, r"not allowed; use x0, a, numbers, \+ - \* / \*\* and relu, abs"),
        ({"a": "__import__('os')"}, None, "uses '__import__'|not allowed"),
        ({"a": ([1, 2, 3], "x0")}, None, "3 entries for 2 tokens"),
        ({"a": ([1, "x"], "x0")}, None, "not an exact number"),
        ({"a": ([1, 0.5], "x0")}, None, "lag of a is 1/2 at x0 = 1"),
        ({"a": 10**8}, None, "whole numbers from 1 to"),
        ({"a": 16**5000}, None, "enormous integer"),
        ({"a": ([1, 16**5000], "x0")}, None, "enormous integer"),
        ({"a": "1"}, [[16**5000]], "enormous integer"),
        ({"x0": "1"}, None, "cannot be the name"),
        ({"exp": "1"}, None, "cannot be the name"),
        ({"a b": "1"}, None, "cannot be the name"),
        ({"a": "1"}, [[float("nan")]], "finite"),
        ({"a": "1"}, [[1], [1.0]], "holds 1 twice"),
        ({"a": "1"}, [[2]], r"lie in \[-1, 1\]"),
        ({"a": "1"}, [[1], [0, 1]], "same length"),
        ({"a": "1"}, [[]], "same length"),
        ({"a": "1"}, [], "0 tokens"),
        ({"a": "1"}, [[True]], "not a number"),
        ({}, None, "0 memories"),
        ({f"m{k}": f"{k + 1}" for k in range(9)}, [[k / 10] for k in range(10)], "more than 20000 ways"),
    ],
)
def test_bad_targets_are_named(memories: dict[str, Any], alphabet: list[list[Any]] | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        target(memories, alphabet)


@pytest.mark.parametrize(
    "change,message",
    [
        ({"colour": "red"}, "unknown key 'colour'"),
        ({"alphabet": 3}, "alphabet must be"),
        ({"memory": "m"}, r"one \[\[memory\]\]"),
        ({"memory": [{"name": "m", "lag": True}]}, "must be an expression"),
        ({"memory": [{"name": "m", "lag": "1", "parent": "x0"}]}, "parent goes with a lag table"),
        ({"memory": [{"name": "m", "lag": "1", "size": 3}]}, "unknown key 'size'"),
        ({"memory": [{"name": 3, "lag": "1"}]}, "name and parent are text"),
        ({"memory": [{"name": "m", "lag": "1"}] * 2}, "two memories"),
        ({"readout": 3}, "readout must be text"),
        ({"readout": "m*z"}, "unknown name"),
    ],
)
def test_bad_files_are_named(change: dict[str, Any], message: str) -> None:
    data = {"kind": "adaptive", "alphabet": SIGNS, "memory": [{"name": "m", "lag": "1"}]} | change
    with pytest.raises(InputError, match=message):
        adaptive_from_dict(data, "test")


def test_enormous_numbers_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "target.toml"
    path.write_text(f"kind = 'adaptive'\nalphabet = [[{'9' * 5000}]]")
    with pytest.raises(InputError, match="not valid TOML"):
        read_toml(path)
    path.write_text("kind = 'adaptive'\nalphabet = [[1e-999999999]]\n[[memory]]\nname = 'm'\nlag = '1'")
    with pytest.raises(InputError, match="reasonable size"):
        target_from_dict(read_toml(path), "test")


def test_kinds_are_told_apart() -> None:
    fixed = {"kind": "fixed", "lags": [1]}
    with pytest.raises(InputError, match="build fixed takes it"):
        target_of_kind(fixed, "test", AdaptiveMemory)
    with pytest.raises(InputError, match="build adaptive takes it"):
        target_of_kind({"kind": "adaptive", "alphabet": SIGNS, "memory": [{"name": "m", "lag": "1"}]}, "test", FixedMemory)
    with pytest.raises(InputError, match="kind is 'None'"):
        target_from_dict([], "test")


def test_memories_can_be_made_in_python() -> None:
    made = AdaptiveMemory(((-1,), (1.0,)), (Memory("m1", "2 + x0"), Memory("m2", (1, 2), "m1")), "m1*x0*m2")  # type: ignore[arg-type]
    assert made.depth == 2 and made.occurring(0) == (1, 3) and made.occurring(1) == (1, 2)
    assert made.alphabet == ((fmpq(-1),), (fmpq(1),))
