"""Proposition 4.5: the same un-nested lags on two layers and on M + 1 layers."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from analyzer.errors import Refusal
from analyzer.lemmas.extraction import attention_bound, extraction_bound, tuned
from analyzer.numbers.exact import upper
from analyzer.theorems.thm_4_4 import leveled_bound, parallel_levels, solve_heads
from constructions.theorems.thm_4_4 import build
from tests.theorems.test_thm_4_4 import certify, example
from verify.chain.certificate import Verdict

PAIR = Path(__file__).parent.parent.parent / "examples" / "pair.toml"


@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_the_table(run: Callable[..., Any], rpe: str) -> None:
    """The command: deeper is better in error and width at the same number of heads per layer."""
    answer = run("bound", "prop-4.5", "--target", PAIR, "--rpe", rpe, "--heads", 256, "--json").json
    shallow, deep = answer["comparison"]["two layers"], answer["comparison"]["M + 1 layers"]
    assert (shallow["layers"], deep["layers"]) == (2, 3) and shallow["heads"] == deep["heads"] == 256
    assert deep["attention"] < shallow["attention"] and deep["root_sum_square"] < shallow["root_sum_square"]
    widths = [row["width_theorem"] for row in answer["memories"]]
    assert shallow["inner_width"] == sum(widths) and deep["inner_width"] == max(widths)
    assert sum(shallow["split"][0]) == 256 and deep["split"] == [[256], [256]]
    shown = run("bound", "prop-4.5", "--target", PAIR, "--rpe", rpe, "--heads", 256).out
    for row in (shallow, deep):
        assert str(row["inner_width"]) in shown and f"{row['attention']:.4g}" in shown and f"{row['root_sum_square']:.4g}" in shown
    assert max(map(len, shown.splitlines())) <= 80 and "…" not in shown


@pytest.mark.parametrize("encode", ["exact", "barron"])
def test_both_networks_are_built(encode: str) -> None:
    chosen = example("pair")
    flat, deep = (certify(build(chosen, layers=layers, encode=encode)) for layers in ("auto", "deep"))
    assert (flat.theorem, deep.theorem) == ("thm-4.1", "prop-4.5")
    assert flat.verdict is deep.verdict is Verdict.HOLDS
    assert flat.sizes["layers"] == 2 and deep.sizes["layers"] == 3 and deep.sizes["heads"] < flat.sizes["heads"]
    assert flat.certified == pytest.approx(deep.certified)


def test_bounds_by_hand() -> None:
    found = leveled_bound("lin", [[2], [3, 4]], 200, "tuned", None)
    single = min(upper(extraction_bound("lin", 2, 200, n, tuned("lin", 2))) for n in range(1, 13))
    assert upper(found.errors[0]) == single and len(found.errors) == 3
    assert upper(found.total) == pytest.approx(single + upper(attention_bound("lin", (3, 4), 200).total))
    assert upper(found.root_sum_square) == pytest.approx(sum(upper(e) ** 2 for e in found.errors) ** 0.5)
    assert parallel_levels((2, 3, 4), 1) == [[2], [3, 4]] and parallel_levels((2, 3), 2) == [[2], [3]]


@pytest.mark.parametrize("levels", [[[2, 3]], [[2], [3]], [[2], [3], [1, 4]]])
def test_solving_for_heads_is_tight(levels: list[list[int]]) -> None:
    found = solve_heads("lin", levels, 0.05, "tuned", None)
    assert upper(found.total) <= 0.05
    try:
        fewer = upper(leveled_bound("lin", levels, found.heads - 1, "tuned", None).total)
    except Refusal:
        fewer = float("inf")
    assert fewer > 0.05
