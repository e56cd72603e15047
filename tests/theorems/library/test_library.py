"""What all constructions of the library share: tasks by name, examples that build, and networks that can be compared and trained on."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from analyzer.options import typed_fields
from analyzer.statements.registry import THEOREMS
from analyzer.targets.files import target_from_dict
from analyzer.targets.task import task_kinds, task_of

TRAINED = ("addition", "in-context-gd", "parity")
"""Constructions that training starts from here: heads that read positions only, linear ones, and softmax with a table of positions."""
EXAMPLES = Path(__file__).parent.parent.parent.parent / "examples"


def test_every_task_has_a_theorem_and_a_file_of_its_own() -> None:
    assert set(THEOREMS.library()) - set(task_kinds()) == {"position-heads"}
    for kind in task_kinds():
        assert next(theorem.id for theorem in THEOREMS.of_kind(kind)) == kind
        target = lf.load_target(EXAMPLES / f"{kind.replace('-', '_')}.toml")
        assert target.kind == kind and target_from_dict(target.describe(), "again").describe() == target.describe()


@pytest.mark.parametrize("kind", task_kinds())
def test_tokens_that_a_task_draws_are_its_own(kind: str) -> None:
    target = lf.load_target(EXAMPLES / f"{kind.replace('-', '_')}.toml")
    tokens = target.draw(np.random.default_rng(0), (3, target.length or 12))
    target.check_domain(tokens, "a draw")
    assert target.values(np)(tokens).shape == tokens.shape[:2] and tokens.shape[-1] == target.dim
    value = target.exact_value(tokens[0], tokens.shape[1] - 1)
    assert abs(float(value) - target.values(np)(tokens)[0, -1]) < 1e-12


@pytest.mark.parametrize("kind", task_kinds())
def test_unknown_parameters_and_values_are_refused(kind: str) -> None:
    with pytest.raises(lf.InputError, match="unknown option 'colour'"):
        lf.task(kind, colour=3)
    counted = [entry.name for entry, hint in typed_fields(task_of(kind).options) if hint is int]
    for name in counted:
        with pytest.raises(lf.InputError):
            lf.task(kind, **{name: -1})
    with pytest.raises(lf.InputError, match="unknown task"):
        lf.task(f"{kind}-2")


@pytest.mark.deep
@pytest.mark.parametrize("kind", task_kinds())
def test_examples_of_the_help_build(kind: str) -> None:
    task = task_of(kind)
    own = {entry.name for entry, _ in typed_fields(task.options)}
    target = lf.task(kind, **{name: value for name, value in task.example.items() if name in own})
    net = lf.build(target, **{name: value for name, value in task.example.items() if name not in own})
    assert net.theorem == kind and net.certificate.verdict is lf.Verdict.HOLDS


@pytest.mark.deep
@pytest.mark.parametrize("name", THEOREMS.library())
def test_networks_are_compared_traced_and_trained_on(name: str, tmp_path: Path) -> None:
    case = THEOREMS[name].cases[0]
    target = target_from_dict(dict(case.target), "case")
    options: dict[str, Any] = dict(case.options)
    net = lf.build(target, theorem=name, **options)
    table = net.transformer.positions
    length = target.length or (16 if table is None else len(table))
    assert lf.compare(net, net, sequences=4, length=length).holds
    tokens = target.draw(np.random.default_rng(0), (1, length))[0]
    assert set(net.trace(tokens)) == {*(f"layer {k + 1}" for k in range(net.sizes["layers"])), "output"}
    assert len(net.patterns(tokens)) == net.sizes["layers"] and {"slots", "layers"} <= set(net.mechanism)
    if name in TRAINED:
        arms = lf.experiments.arms(net, out=tmp_path / "arms", steps=20, batch=4, length=length)
        assert arms.holds and (tmp_path / "arms").is_dir()
