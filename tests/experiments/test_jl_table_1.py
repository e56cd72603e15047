"""[JL] Table 1 on digits: a Transformer does not see the order of patches, recurrences are formulas, findings follow the numbers."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from constructions.network.precision import with_x64
from constructions.training.digits import PATCHES, digits
from constructions.training.digits_rnn import UNITS, initial_rnn, recurrent_scores
from constructions.training.digits_vit import class_scores, initial
from verify.experiments import jl_table_1
from verify.experiments.jl_table_1 import FOLLOWED, ORIGINAL, PERMUTED, READERS, TRANSFORMER, OrderRow, effect, findings, orders, split
from verify.report.experiments import show_orders


def _in_float64(network: Any) -> Any:
    return type(network)(*(jnp.asarray(np.asarray(getattr(network, name), np.float64)) for name in network.__dataclass_fields__))


@pytest.mark.deep
def test_positions_that_follow_the_patches_give_the_same_scores() -> None:
    """Prop 6.2 as an identity, and that it takes the positions: without them the scores differ."""
    order = orders(3)[2]
    assert sorted(order) == list(range(PATCHES)) and (order != np.arange(PATCHES)).any() and (orders(3)[0] != order).any()
    with with_x64("float64"):
        network, images = _in_float64(initial(1, 16)), jnp.asarray(digits()[0][:50], "float64")
        plain = class_scores(network, images)
        followed = class_scores(replace(network, position=network.position[order]), images[:, order])
        left = class_scores(network, images[:, order])
        assert float(abs(followed - plain).max()) < 1e-12 < 1e-3 < float(abs(left - plain).max())


def test_the_recurrence_is_the_formula() -> None:
    network, image = initial_rnn(4), digits()[0][7]
    for activation, function in ((None, lambda v: v), (jnp.tanh, np.tanh)):
        state = np.zeros(UNITS)
        for patch in image:
            state = function(network.transition @ state + network.entrance @ patch + network.bias)
        wanted = network.classes @ state + network.offset
        assert np.asarray(recurrent_scores(network, jnp.asarray(image), activation)) == pytest.approx(wanted, abs=1e-5)
    assert np.abs(network.transition @ network.transition.T - np.eye(UNITS)).max() < 1e-5


def test_every_fifth_image_is_held_out() -> None:
    (images, labels), (held, answers) = split(*digits())
    assert len(images) == len(labels) == 1438 and len(held) == len(answers) == 359
    assert (held[0] == digits()[0][4]).all() and (images[4] == digits()[0][5]).all()


def _rows(change: float) -> list[OrderRow]:
    errors = np.array([0.10, 0.11, 0.12])
    made = [OrderRow(TRANSFORMER, order, errors, errors) for order in (ORIGINAL, PERMUTED)]
    made.append(OrderRow(TRANSFORMER, FOLLOWED, errors, errors + np.array([0, 0, 0.02])))
    for reader in READERS[1:]:
        made += [
            OrderRow(reader.name, ORIGINAL, errors, errors),
            OrderRow(reader.name, PERMUTED, errors, errors + change * np.array([1, 1.1, 0.9])),
        ]
    return made


@pytest.mark.parametrize(("change", "seen"), [(0.05, True), (0.0, False), (-0.05, False)])
def test_findings_follow_the_numbers(change: float, seen: bool) -> None:
    rows = _rows(change)
    effects = [effect(rows, reader.name) for reader in READERS]
    assert effects[0]["change"] == 0 and not effects[0]["matters"] and effects[1]["matters"] == (change != 0)
    assert effects[1]["change"] == pytest.approx(change) and effects[1]["standard_error"] == pytest.approx(abs(change) * 0.1 / 3**0.5)
    said = findings(rows, effects)
    assert "2.00 points at most" in said[3] and said[-1].endswith("is seen here" if seen else "is not seen here")


@pytest.mark.deep
def test_a_short_run(run: Callable[..., Any], tmp_path: Path) -> None:
    result = run("experiment", "jl-table-1", "--seeds", 2, "--steps", 60, "--figure", tmp_path / "f.svg", "--json")
    assert result.code == 0 and result.err == "" and (tmp_path / "f.svg").stat().st_size > 0
    rows = {(row["model"], row["order"]): row for row in result.json["rows"]}
    assert len(rows) == 7 and all(0 < row["held_out_error"]["mean"] < 0.85 for row in rows.values())  # chance: 0.9
    first, followed = (rows[TRANSFORMER, order]["held_out_error"]["mean"] for order in (ORIGINAL, FOLLOWED))
    assert abs(first - followed) < 0.02  # the same run, up to rounding
    assert run("experiment", "jl-table-1", "--seeds", 1).code == 2
    show_orders(result.json)


@pytest.mark.deep
def test_orders_reach_the_batches() -> None:
    """What is trained on is in another order: the runs of a recurrent network differ."""
    images, labels = digits()
    found = [jl_table_1.train(READERS[1], order, (images[:200], labels[:200]), (2, 20), None) for order in (ORIGINAL, PERMUTED)]
    assert (found[0].training != found[1].training).any()
