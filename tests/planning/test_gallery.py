"""Plans of the example targets: every row that is printed as built is built and certified."""

from pathlib import Path

import pytest

import lemmaformer as lf
from analyzer.targets.task import task_kinds
from lemmaformer.planning.rows import front
from tests.planning.rechecks import recheck

TASKS = {kind.replace("-", "_") for kind in task_kinds()}
EXAMPLES = sorted(path for path in (Path(__file__).parent.parent.parent / "examples").glob("*.toml") if path.stem not in TASKS)
"""Targets that several theorems are about; a task has one."""


@pytest.mark.deep
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_rows_of_the_gallery_are_built_and_certified(example: Path) -> None:
    found = lf.plan(lf.load_target(example), error=0.05)
    assert recheck(found) >= 1 and not found.undecided
    assert [row.front for row in found.rows] == front([row.built for row in found.rows])
    assert any(row.front for row in found.rows)


@pytest.mark.deep
@pytest.mark.parametrize("name", ["contrast", "pair", "fading"])
def test_rows_in_floats(name: str) -> None:
    """What a float type cannot hold is refused row by row; what is built is certified with its rounding."""
    target = next(path for path in EXAMPLES if path.stem == name)
    found = lf.plan(lf.load_target(target), error=0.1, dtype="float64")
    assert recheck(found) >= 1
    assert all(row.why for row in found.rows if row.built is None)
