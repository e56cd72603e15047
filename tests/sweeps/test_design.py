"""Specifications of sweeps: which jobs they mean, and what is refused before anything runs."""

import json
import re
import tomllib
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.targets.files import target_from_dict
from lemmaformer.sweeps.commands import SWEPT, known_names, option_classes
from lemmaformer.sweeps.design import MAX_JOBS, design_of, read_design
from lemmaformer.sweeps.jobs import CALLS, INNER, called

ROOT = Path(__file__).parent.parent.parent
LAG = {"call": "limits.lag"}
FIXED = {"kind": "fixed", "lags": [2]}


def test_a_grid_is_every_combination_and_the_last_name_varies_fastest() -> None:
    found = design_of({**LAG, "options": {"dtype": "float32"}, "grid": {"lag": "1:3", "rpe": ["lin", "log"]}}, "here")
    assert [tuple(point.values()) for point in found.points] == [(t, rpe) for t in (1, 2, 3) for rpe in ("lin", "log")]
    assert [job.parameters for job in found.jobs] == [{"dtype": "float32", **point} for point in found.points]
    assert len({job.key for job in found.jobs}) == 6


def test_ranges_have_both_ends_and_steps() -> None:
    assert [point["lag"] for point in design_of({**LAG, "grid": {"lag": "8:20:4"}}, "here").points] == [8, 12, 16, 20]
    assert [point["lag"] for point in design_of({**LAG, "grid": {"lag": range(2, 5)}}, "here").points] == [2, 3, 4]


def test_names_in_braces_stand_for_values_and_within_texts_for_their_text() -> None:
    spec = {
        "call": "build",
        "target": {"kind": "kernel", "kernels": ["exp(-s/{tau})"], "dim": "{d}"},
        "options": {"bank": "{b}"},
        "grid": {"tau": [5, 7], "d": [1], "b": ["tuned"]},
    }
    jobs = design_of(spec, "here").jobs
    assert [job.parameters["target"] for job in jobs] == [{"kind": "kernel", "kernels": [f"exp(-s/{tau})"], "dim": 1} for tau in (5, 7)]
    assert all(set(job.parameters) == {"target", "bank"} and job.parameters["bank"] == "tuned" for job in jobs)


def test_keys_of_the_target_vary_and_decimals_stay_exact(tmp_path: Path) -> None:
    place = tmp_path / "s.toml"
    place.write_text(
        'call = "build"\n[target]\nkind = "fixed"\nalphabet = [0.1, 1]\n[options]\nerror = 0.1\n[grid]\n"target.lags" = [[1], [2, 5]]\n'
    )
    jobs = read_design(place).jobs
    assert [job.parameters["target"]["lags"] for job in jobs] == [[1], [2, 5]]
    assert [job.parameters["error"] for job in jobs] == [0.1, 0.1]
    letters: Any = target_from_dict(dict(jobs[0].parameters["target"]), "here")
    assert Fraction(int(letters.alphabet[0].p), int(letters.alphabet[0].q)) == Fraction(1, 10)


RANDOM = {
    "call": "train",
    "target": FIXED,
    "points": 200,
    "seed": 3,
    "random": {"rate": {"log-uniform": [1e-4, 1e-1]}, "heads": {"uniform": [1, 4]}, "rpe": ["lin", "log", "table"], "width": "8:10"},
}


def test_draws_lie_where_they_should_and_are_the_same_for_the_same_seed() -> None:
    points = design_of(RANDOM, "here").points
    assert points == design_of(RANDOM, "here").points != design_of({**RANDOM, "seed": 4}, "here").points
    assert all(1e-4 <= point["rate"] <= 1e-1 for point in points)
    assert {point["heads"] for point in points} == {1, 2, 3, 4} and {point["width"] for point in points} == {8, 9, 10}
    assert {point["rpe"] for point in points} == {"lin", "log", "table"}
    below = sum(point["rate"] < 1e-2 for point in points)  # two of three decades: 133 ± 6.7; within six deviations
    assert 93 <= below <= 173


def test_more_points_and_names_leave_the_draws_that_were_there() -> None:
    few, many = design_of(RANDOM, "here").points, design_of({**RANDOM, "points": 300}, "here").points
    assert many[:200] == few
    more = design_of({**RANDOM, "random": {"steps": {"log-uniform": [20, 400]}, **RANDOM["random"]}}, "here").points
    assert [{name: point[name] for name in few[0]} for point in more] == list(few)
    assert all(20 <= point["steps"] <= 400 and isinstance(point["steps"], int) for point in more)


def test_every_draw_is_combined_with_the_grid() -> None:
    found = design_of({**RANDOM, "points": 3, "grid": {"seed": "0:3"}}, "here").points
    assert [point["seed"] for point in found] == [0, 1, 2, 3] * 3
    assert len({point["rate"] for point in found}) == 3


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no call": ({}, "does not say which command"),
    "unknown call": ({"call": "nonsense"}, "call is 'nonsense'; choose from bound, build"),
    "a call of the program's own": ({"call": "check.point"}, "call is 'check.point'; choose from"),
    "a call that is no text": ({"call": ["bound"]}, "choose from"),
    "unknown key": ({**LAG, "gird": {}}, "unknown key 'gird'; did you mean 'grid'"),
    "no table": ({**LAG, "grid": 3}, "grid must be a table"),
    "what is needed": ({**LAG, "grid": {"rpe": ["lin"]}}, "limits.lag needs lag"),
    "unknown option": ({**LAG, "options": {"lag": 1, "head": 2}}, "unknown option 'head' of limits.lag; did you mean 'heads'"),
    "unknown name": (
        {**LAG, "grid": {"lag": [1], "head": [2]}},
        "'head' is no option of limits.lag, and {head} stands nowhere; did you mean 'heads'",
    ),
    "another kind's option": ({"call": "build", "target": FIXED, "grid": {"pod": ["pod"]}}, "'pod' is no option of build"),
    "an option of Python only": ({"call": "train", "target": FIXED, "options": {"checkpoint": "c"}}, "unknown option 'checkpoint'"),
    "unknown word": ({**LAG, "options": {"rpe": "LIN"}, "grid": {"lag": [1]}}, "rpe is 'LIN'; choose from lin, log, mixed"),
    "one unknown word of many": ({**LAG, "grid": {"lag": [1], "rpe": ["lin", "cubic"]}}, "rpe is 'cubic'"),
    "out of range": ({**LAG, "grid": {"lag": [1], "heads": [1, 0]}}, "heads 0 is out of range"),
    "another type": ({**LAG, "grid": {"lag": [1.5]}}, "lag is '1.5'; give a whole number"),
    "truth": ({**LAG, "grid": {"lag": [True]}}, "lag is 'True'; give a whole number"),
    "not a number": ({**LAG, "grid": {"lag": [float("nan")]}}, "give finite numbers"),
    "no value": ({**LAG, "grid": {"lag": [object]}}, "is no value for a parameter"),
    "a billion jobs": ({**LAG, "grid": {"lag": "1:1000000000"}}, f"1000000000 jobs; a sweep has at most {MAX_JOBS}"),
    "a billion draws": ({**LAG, "points": 10**9, "random": {"lag": "1:4"}}, "1000000000 jobs"),
    "a product": ({**LAG, "grid": {"lag": "1:400", "heads": "1:64", "bits": "2:64"}}, "1612800 jobs"),
    "no jobs": ({**LAG, "grid": {"lag": []}}, "no jobs"),
    "a range backwards": ({**LAG, "grid": {"lag": "5:1"}}, "no jobs"),
    "no range": ({**LAG, "grid": {"lag": "1-5"}}, "lag is '1-5'; give a list of values, or a range"),
    "no step": ({**LAG, "grid": {"lag": "1:5:0"}}, "give a list of values, or a range"),
    "a value without a list": ({**LAG, "grid": {"lag": 4}}, "give a list of values"),
    "a name of ours": ({**LAG, "grid": {"lag": [1], "status": [1]}}, "'status' is no name for what varies"),
    "a strange name": ({**LAG, "grid": {"lag": [1], "a b": [1]}}, "'a b' is no name for what varies"),
    "twice": ({**LAG, "options": {"lag": 1}, "grid": {"lag": [1]}}, "lag is given twice, in options and grid"),
    "an empty brace": ({"call": "build", "target": {"kind": "fixed", "lags": ["{T}"]}}, "{T} stands for nothing"),
    "no target": ({"call": "build"}, "build needs a [target]"),
    "a target too many": ({**LAG, "options": {"lag": 1}, "target": FIXED}, "limits.lag has no target"),
    "no target to vary": ({"call": "bound", "options": {"theorem": "thm-3.1"}, "grid": {"target.lags": [[1]]}}, "there is no [target]"),
    "an unknown kind": ({"call": "build", "target": {"kind": "fixt"}}, "kind is 'fixt'"),
    "an unknown key of the target": ({"call": "build", "target": {**FIXED, "lagz": 1}}, "unknown key 'lagz'"),
    "an unknown theorem": ({"call": "bound", "options": {"theorem": "thm-9.9"}}, "unknown theorem 'thm-9.9'"),
    "a limit": ({"call": "bound", "options": {"theorem": "lag-law"}}, "lag-law has no bound to evaluate"),
    "points alone": ({**LAG, "points": 3, "options": {"lag": 1}}, "points and [random] go together"),
    "random alone": ({**LAG, "random": {"lag": "1:3"}}, "points and [random] go together"),
    "no points": ({**LAG, "points": 0, "random": {"lag": "1:3"}}, "points is '0'"),
    "a seed": ({**LAG, "points": 1, "seed": -1, "random": {"lag": "1:3"}}, "seed is '-1'"),
    "an unknown law": ({**LAG, "points": 1, "random": {"lag": {"normal": [0, 1]}}}, "lag is drawn from a list, a range"),
    "ends": ({**LAG, "points": 1, "random": {"lag": {"uniform": [3, 1]}}}, "the smaller one first"),
    "words as ends": ({**LAG, "points": 1, "random": {"lag": {"uniform": ["a", "b"]}}}, "the smaller one first"),
    "a logarithm of zero": ({**LAG, "points": 1, "random": {"lag": {"log-uniform": [0, 1]}}}, "give positive numbers"),
    "nothing to draw": ({**LAG, "points": 1, "random": {"lag": []}}, "no values to draw from"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_said_in_one_line_before_anything_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, message = BAD[name]
    monkeypatch.setattr("lemmaformer.sweeps.jobs.called", lambda call: pytest.fail("a job ran"))
    with pytest.raises(lf.InputError, match=re.escape(message)) as caught:
        lf.sweep(spec)
    assert "\n" not in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6), lambda inner: st.lists(inner, max_size=3), max_leaves=4
)
TABLE = st.dictionaries(st.sampled_from(["lag", "rpe", "heads", "T", "target.lags", "x y"]), JSON | st.just("1:3"), max_size=3)


@given(
    st.fixed_dictionaries(
        {},
        optional={"call": st.sampled_from([*SWEPT, "x"]) | JSON, "points": JSON, "seed": JSON}
        | dict.fromkeys(("target", "options", "grid", "random"), TABLE | JSON),
    )
)
def test_whatever_is_given_is_a_design_or_one_line(spec: dict[str, Any]) -> None:
    try:
        found = design_of(spec, "here")
    except lf.InputError as error:
        assert "\n" not in str(error)
        return
    assert len(found.jobs) == len(found.points) <= MAX_JOBS
    assert all(json.loads(json.dumps(job.parameters)) == job.parameters and len(job.key) == 64 for job in found.jobs)


def test_calls_are_functions_of_the_library_with_the_parameters_that_are_listed() -> None:
    import inspect

    assert set(SWEPT) == set(CALLS) - set(INNER)
    for name, command in SWEPT.items():
        taken = inspect.signature(called(name)).parameters
        assert set(command.parameters) <= set(taken), name
        assert ("target" in taken) == (command.target is not None), name


def page() -> str:
    return (ROOT / "docs" / "sweeps.md").read_text(encoding="utf-8")


def test_the_page_has_every_call_with_its_options_and_an_example_that_is_the_one_in_examples() -> None:
    rows = {row[0].strip(" `"): row for row in (line.strip("|").split("|") for line in page().splitlines() if line.startswith("| `"))}
    assert set(SWEPT) <= set(rows)
    for name in SWEPT:
        if name.startswith("limits."):
            listed = set(re.findall("`([a-z_]+)`", rows[name][1] + rows[name][2]))
            assert listed <= set(known_names(SWEPT[name], option_classes(name, [], []))), name
    spec = next(tomllib.loads(text, parse_float=Decimal) for text in re.findall(r"^```toml\n(.*?)^```$", page(), re.MULTILINE | re.DOTALL))
    shown = read_design(ROOT / "examples" / "sweeps" / "heads_and_lags.toml")
    assert design_of(spec, "the page") == shown and len(shown.jobs) == 18
    assert str(MAX_JOBS) in page()


def test_the_examples_of_the_page_run() -> None:
    import doctest

    text = "\n".join(re.findall(r"^```python\n(.*?)^```$", page(), re.MULTILINE | re.DOTALL))
    found = doctest.DocTestRunner().run(doctest.DocTestParser().get_doctest(text, {}, "docs/sweeps.md", None, 0))
    assert found.attempted >= 4 and not found.failed
