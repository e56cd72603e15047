"""Grids of sizes: exact numbers, counted before they are made, one line for what is none."""

from typing import Any

import pytest
from flint import fmpq

from analyzer.errors import InputError
from analyzer.language.claims import QUANTITIES
from analyzer.language.grids import MAX_POINTS, NEEDS, TAKES, points, read_over
from verify.claims.quantities import ENCLOSED


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("T=1:4", [1, 2, 3, 4]),
        ("T = 3:3", [3]),
        ("T=1:8:3", [1, 4, 7]),
        ("H=8,16", [8, 16]),
        ("eps=0.1,1e-2", [fmpq(1, 10), fmpq(1, 100)]),
        ("u=0.5:1:0.25", [fmpq(1, 2), fmpq(3, 4), fmpq(1)]),
    ],
)
def test_ranges_and_lists_are_read_exactly(text: str, values: list[Any]) -> None:
    (found,) = read_over([text]).values()
    assert list(found) == [fmpq(v) if isinstance(v, int) else v for v in values]


def test_python_gives_sizes_by_name() -> None:
    assert read_over({"T": range(1, 3), "H": (8, "16"), "u": 0.5, "x": "1:2"}) == {  # type: ignore[dict-item]
        "T": (fmpq(1), fmpq(2)),
        "H": (fmpq(8), fmpq(16)),
        "u": (fmpq(1, 2),),
        "x": (fmpq(1), fmpq(2)),
    }
    grid = points(read_over(["T=1:2", "H=8,16"]))
    assert [(int(at["T"].p), int(at["H"].p)) for at in grid] == [(1, 8), (1, 16), (2, 8), (2, 16)]


@pytest.mark.parametrize(
    ("over", "text"),
    [
        (["T=1:oo"], "unbounded"),
        (["T=inf"], "unbounded"),
        (["T=1:1e9"], "too large: T has 1000000000 values"),
        (["T=0.1:1e9:1e-9"], "too large"),
        (["T=1:1000", "H=1:1000", "n=1:1000"], "too large"),
        ({"T": range(1, 10**9)}, "too large"),
        (["T=4:1"], "empty"),
        (["T=1:2:0"], "positive"),
        (["T=0"], "positive"),
        (["T=-1"], "no number"),
        (["T=nan"], "no number"),
        (["T=1:2:3:4"], "no range"),
        (["T"], "no range"),
        (["T=1=2"], "no range"),
        (["T=,"], "no number"),
        (["T=1", "T=2"], "twice"),
        (["e=1"], "meaning of its own"),
        (["pi=3"], "meaning of its own"),
        (["2T=3"], "no name"),
        ([f"x{k}=1" for k in range(9)], "limit"),
        ({"T": []}, "no values"),
        ({"T": None}, "no values"),
    ],
)
def test_what_is_no_grid_is_refused(over: Any, text: str) -> None:
    with pytest.raises(InputError) as caught:
        read_over(over)
    assert text in str(caught.value) and "\n" not in str(caught.value)


def test_the_largest_grid_is_allowed() -> None:
    assert len(points(read_over([f"T=1:{MAX_POINTS}"]))) == MAX_POINTS


def test_every_quantity_is_enclosed_and_says_which_sizes_it_takes() -> None:
    assert set(TAKES) == set(ENCLOSED) == set(QUANTITIES)
    assert all(set(needed) <= set(TAKES[name]) for name, needed in NEEDS.items())
