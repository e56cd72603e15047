"""Depth against width: rows that are printed as built are built and certified, fronts are fronts, and theorems come from the registry."""

import importlib.util
import json
import math
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.errors import Refusal
from analyzer.statements import registry
from analyzer.statements.designs import MOST_WORK, Proven, combined
from analyzer.statements.theorem import Theorem
from analyzer.theorems.shift_chain import depths
from lemmaformer.planning.planner import NEURON_WORK, check_work
from lemmaformer.planning.rows import front
from tests.depth import examples
from tests.planning.rechecks import recheck

ROOT = Path(__file__).parent.parent.parent
SMALL: dict[str, Callable[[], lf.Target]] = {
    "fixed": lambda: lf.fixed(lags=(2,), readout="x0*m1"),
    "adaptive": lambda: lf.adaptive([-1, 1], {"m1": [1, 2]}, readout="m1"),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", SMALL)
def test_rows_of_small_targets_are_built_and_certified(name: str) -> None:
    found = lf.plan(SMALL[name](), error=0.1)
    assert recheck(found) >= 4


def test_a_plan_that_lies_is_seen() -> None:
    """The check above can fail: sizes, certificate or network of a row are changed."""
    found = lf.plan(lf.fixed(lags=(2,)), error=0.1, theorem="shift-chain")
    assert recheck(found) == 1
    row = found.rows[0]
    assert row.network is not None
    broken = lf.build(lf.fixed(lags=(2,)), error=0.5)
    data = json.loads(json.dumps(found.data))
    data["rows"][0]["built"]["heads"] += 1
    for lie in (
        replace(found, data=data),
        replace(found, rows=(replace(row, network=broken),)),
        replace(found, rows=(replace(row, network=row.network.broken("output", by=0.5)[0]),)),
        replace(found, rows=(replace(row, network=None),)),
    ):
        with pytest.raises(AssertionError):
            recheck(lie)


def test_corrupted_networks_are_not_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A builder that writes a wrong weight has no row with sizes, and its reason is that the certificate misses the error."""
    honest = Theorem.built_by

    def corrupted(theorem: Theorem) -> Callable[..., Any]:
        def build(target: Any, options: Any) -> Any:
            built = honest(theorem)(target, options)
            layer = built.network.layers[-1]
            wrong = replace(layer, attention=replace(layer.attention, output=2 * layer.attention.output))
            return replace(built, network=replace(built.network, layers=(*built.network.layers[:-1], wrong)))

        return build

    assert all(row.built for row in lf.plan(lf.fixed(lags=(2,)), error=0.1, theorem="shift-chain").rows)
    monkeypatch.setattr(Theorem, "built_by", corrupted)
    found = lf.plan(lf.fixed(lags=(2,)), error=0.1, theorem="shift-chain")
    assert found.undecided and not any(row.built or row.front for row in found.rows)
    assert all(row.why for row in found.rows)


def test_networks_that_miss_the_error_are_not_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where `build` does not refuse them."""
    from lemmaformer import api

    honest = api.build
    monkeypatch.setattr(api, "build", lambda target, options, theorem: honest(target, replace(options, error=0.5), theorem=theorem))
    found = lf.plan(lf.fixed(lags=(2,)), error=0.01, theorem="shift-chain")
    assert found.undecided and "where 0.01 was asked for" in str(found.rows[0].why)


triples = st.tuples(*[st.integers(1, 4)] * 3)


@settings(max_examples=examples(200), deadline=None)
@given(sizes=st.lists(st.none() | triples, max_size=12))
def test_the_front_by_brute_force(sizes: list[tuple[int, int, int] | None]) -> None:
    """On the front is who has for every other row a size in which it is smaller, or the same three sizes."""
    for one, marked in zip(sizes, front(sizes), strict=True):
        beaten = one is not None and all(b is None or b == one or any(x < y for x, y in zip(one, b, strict=True)) for b in sizes)
        assert marked == beaten


@pytest.mark.deep
def test_smoothness_buys_width() -> None:
    """Splines need error^(-1/2) neurons, Barron samples error^(-2): both widths are what the bounds ask for, built or not."""
    target = lf.fixed(lags=(2,), readout="tanh(m1)")

    def width(error: float, way: str) -> int:
        found = lf.plan(target, error=error, build=False, theorem="thm-3.1")
        (one,) = {row.proven.width for row in found.rows if row.options["ffn"] == way}
        assert one is not None
        return one

    assert 9 < width(1e-6, "spline") / width(1e-4, "spline") < 11
    assert 9000 < width(1e-6, "barron") / width(1e-4, "barron") < 11000
    assert width(1e-4, "barron") > 10**6 * width(1e-4, "spline")


@pytest.mark.deep
def test_depth_instead_of_width() -> None:
    """Proposition 4.5 beside Theorem 4.1: a layer more, and heads and sampled lag neurons of one memory instead of the sum over both."""
    found = lf.plan(lf.adaptive([-1, 1], {"m1": [1, 2], "m2": [3, 1]}, readout="m1 + m2"), error=0.05, build=False)
    sampled = {"attention": "dp", "rpe": "lin", "bank": "minimal", "ffn": "barron"}
    rows = [row for row in found.rows if sampled.items() <= row.options.items()]
    flat, deep = (next(row.proven for row in rows if row.theorem == theorem) for theorem in ("thm-4.1", "prop-4.5"))
    described = lf.bound("prop-4.5", lags=(2, 3), heads=64).data["comparison"]
    assert (flat.layers, deep.layers) == (described["two layers"]["layers"], described["M + 1 layers"]["layers"]) == (2, 3)
    assert (flat.heads, deep.heads) == (3 + 4, 4) and flat.width_for == deep.width_for == "lag encoding"
    assert flat.width is not None and deep.width is not None and deep.width < flat.width < 2 * deep.width


def test_nothing_is_built_unless_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Theorem, "built_by", lambda theorem: pytest.fail("a network was built"))
    found = lf.plan(lf.fixed(lags=(4,)), error=0.01, build=False)
    assert not any(row.built for row in found.rows) and not found.undecided
    chains = {row.proven.sizes for row in found.rows if row.theorem == "shift-chain"}
    assert chains == {(2, 2, 4), (4, 1, 4)}
    law = lf.bounds("thm-3.1", lf.fixed(lags=(4,)), error=0.01)
    proven = {row.options["bank"]: row.proven.heads for row in found.rows if row.options.get("rpe") == "lin"}
    assert proven == {row["bank"]: row["heads"] for row in law.rows if row["bank"] != "lag law"}


def test_depths_of_chains() -> None:
    assert depths(1) == [] and depths(5) == [2, 3, 5] and depths(4) == [2, 4]
    for lag in (7, 64, 3000, 10**6):
        found = depths(lag)
        assert 2 in found and len(found) <= 8 and all((layers - 1) * -(-lag // layers) < lag for layers in found)


def test_work_is_bounded() -> None:
    found = lf.plan(lf.fixed(lags=(600,)), error=0.01, theorem="thm-3.1")
    assert [row.built for row in found.rows] == [None] * len(found.rows)
    assert any("build this one by itself" in str(row.why) for row in found.rows)
    check_work(Proven(1, 2048, 100, work=MOST_WORK / 2))
    for large in (
        Proven(heads=2049),
        Proven(width=200_001),
        Proven(work=2.0 * MOST_WORK),
        Proven(width=math.ceil(MOST_WORK / NEURON_WORK) + 1),
    ):
        with pytest.raises(Refusal):
            check_work(large)


def test_a_theorem_of_another_distribution_has_its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found through its entry point; the planner knows no theorem by name."""
    spec = importlib.util.spec_from_file_location("last_token", ROOT / "examples" / "own_theorem" / "last_token.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    class Entry(EntryPoint):
        def load(self) -> Any:
            return module.THEOREM

    monkeypatch.setattr(registry, "_entries", lambda: iter([Entry("last-token", "last_token:THEOREM", registry.GROUP)]))
    found = lf.plan(lf.fixed(lags=(1,), readout="m1"), error=0.1, theorem="last-token")
    (row,) = found.rows
    assert row.theorem == "last-token" and row.built is not None and row.built[:2] == (1, 1)
    assert row.proven.reason == "its bound is not solved for an error"
    assert "last-token" in {row.theorem for row in lf.plan(lf.fixed(lags=(1,), readout="m1"), error=0.1, build=False).rows}
    (refused,) = lf.plan(lf.fixed(lags=(1,), readout="m1"), error=0.1, dtype="float32", theorem="last-token").rows
    assert refused.built is None and refused.why == "its networks do not come in float32"


def test_designs_of_theorems_that_name_none() -> None:
    assert len(combined({"a": ("x", "y"), "b": (None, "z")})) == 4
    assert len(combined(dict.fromkeys("abc", ("x", "y", "z")))) == 1 + 3 * 2


KEYS = {"target", "kind", "error", "dtype", "theorem", "build", "designs", "built", "reached", "rows"}
ROW = {"theorem", "options", "proven", "built", "why", "binds", "front", "proven_front"}
BUILT = {"layers", "heads", "width", "model_dim", "parameters", "witness", "certified", "rounding", "verdict"}


def test_json(run: Callable[..., Any]) -> None:
    done = run("plan", "--lags", 2, "--error", 0.1, "--theorem", "shift-chain", "--json")
    assert done.code == 0 and done.err == "" and set(done.json) == KEYS
    (row,) = done.json["rows"]
    assert set(row) == ROW and set(row["built"]) == BUILT and row["built"]["certified"] <= 0.1 and row["why"] is None
    assert row["options"] == {"depth": 2, "bank": "minimal", "ffn": "spline"} and row["binds"].startswith("heads: ")


@pytest.mark.deep
def test_nothing_reaches_the_error(run: Callable[..., Any]) -> None:
    """Undecided: exit code 3, every row with its reason."""
    done = run("plan", "--lags", 2, "--error", 1e-20, "--dtype", "float32", "--theorem", "shift-chain")
    assert done.code == 3 and "float32 cannot hold lag 2" in done.out and "precision" in done.out and done.err == ""


@pytest.mark.deep
def test_the_page_shows_what_the_command_prints(run: Callable[..., Any]) -> None:
    page = (ROOT / "docs" / "plan.md").read_text(encoding="utf-8")
    done = run("plan", "--lags", 3, "--error", 0.01)
    shown = [line.rstrip() for line in page.split("```text\n")[1].split("```")[0].splitlines()]
    assert [line for line in shown if line] == [line.rstrip() for line in done.out.splitlines() if line.strip()]


def test_figures_and_pages(tmp_path: Path) -> None:
    found = lf.plan(lf.fixed(lags=(3,)), error=0.1, build=False)
    assert found.draw(tmp_path / "front.png").data["figure"] == str(tmp_path / "front.png")
    assert (tmp_path / "front.png").read_bytes().startswith(b"\x89PNG")
    page = found._repr_html_()
    assert page is not None and "shift-chain" in page
    assert "stride-heads" in repr(found.rows[-1]) and "13 designs" in repr(found)
