"""Claims on boxes from the front door: verdicts, exit codes, and what does not go together."""

from collections.abc import Callable
from typing import Any

import pytest

import lemmaformer as lf
from analyzer.errors import InputError

Run = Callable[..., Any]


def test_ends_are_formulas_in_the_other_sizes() -> None:
    found = lf.check("n <= H/2 + 1", ["n=1,2"], box=["H=2*n:oo"])
    assert found.verdict == "proved"
    assert [row["box"]["H"] for row in found.rows] == [["2", None], ["4", None]]
    assert lf.check("n <= H/2", ["n=1,2"], box=["H=2*n - 1:oo"]).verdict == "refuted"


@pytest.mark.deep(only="max(T, 2) >= abs(T)-flags2-3-undecided")
@pytest.mark.parametrize(
    ("claim", "flags", "code", "verdict"),
    [
        ("T <= T**2", ["--box", "T=1:oo"], 0, "proved"),
        ("T**2 <= 9*T", ["--box", "T=1:10"], 1, "refuted"),
        ("max(T, 2) >= abs(T)", ["--box", "T=1:3"], 3, "undecided"),
    ],
)
def test_exit_codes(run: Run, claim: str, flags: list[str], code: int, verdict: str) -> None:
    done = run("check", claim, *flags, "--json")
    assert done.code == code
    assert done.json["verdict"] == verdict


@pytest.mark.parametrize(
    ("claim", "keywords", "reason"),
    [
        ("T <= H", {"box": ["T=1:2"], "over": ["T=1:2"]}, "a box and values"),
        ("T <= 2*T", {"box": ["T=1:2"], "over": ["n=1:2"]}, "nothing in the claim depends"),
        ("T <= 2*T", {"box": ["T=1"]}, "no range"),
        ("T <= 2*T", {"box": ["T=1:2:3"]}, "no range"),
        ("T <= 2*T", {"box": ["T=e:3"]}, "has a quantity"),
        ("T <= 2*T", {"box": ["T=sqrt(2):3"]}, "no rational number"),
        ("T <= 2*T", {"box": ["T=k:3"]}, "k has no values"),
        ("T <= 2*T", {"box": ["T=1:2", "T=1:2"]}, "given twice"),
        ("a*b*c*d*f <= 1", {"box": [f"{x}=1:2" for x in "abcdf"]}, "the limit is"),
        ("T <= 2*T", {"box": ["T=1:2"], "bank": "tuned"}, "bank is given"),
        ("T <= 2*T", {"box": ["T=1:2"], "rate": "T"}, "rate is given"),
        ("paper <= 2*paper", {"box": ["T=1:2", "H=8:9"], "over": ["n=1"], "rpe": "mixed"}, "mixed"),
    ],
)
def test_what_does_not_go_together(claim: str, keywords: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        lf.check(claim, **keywords)  # type: ignore[arg-type]
