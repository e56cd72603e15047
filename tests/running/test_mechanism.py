"""The mechanism of a network, read off its weights, and the gallery of all theorems."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from analyzer.errors import InputError
from analyzer.statements.registry import THEOREMS
from analyzer.targets.files import target_from_dict
from constructions.network.transformer import FeedForward
from constructions.run.mechanism import mechanism

BUILDING = [name for name, theorem in THEOREMS.items() if theorem.build is not None and theorem.cases]
ROLES = {
    "thm-3.1": {"extract"}, "thm-5.1": {"extract"}, "shift-chain": {"extract"}, "table-heads": {"extract"}, "thm-4.1": {"off", "fetch"},
    "thm-4.4": {"off", "fetch"}, "prop-4.3": {"off", "fetch"}, "jl-4.2": {"off", "compare"}, "jl-4.1": {"off", "average"},
}  # fmt: skip


@pytest.mark.deep(keep=("thm-3.1", "thm-4.4"))
@pytest.mark.parametrize("name", BUILDING)
def test_every_slot_head_and_neuron_is_explained(name: str) -> None:
    case = THEOREMS[name].cases[0]
    net = lf.build(target_from_dict(dict(case.target), name), theorem=name, **case.options)
    found: Any = net.mechanism
    assert all(slot["meaning"] for slot in found["slots"].values()), found["slots"]
    assert list(found["slots"]) == list(net.slots)
    for layer, stored in zip(found["layers"], net.transformer.layers, strict=True):
        assert [head["head"] for head in layer["heads"]] == list(range(1, len(stored.attention.rpe) + 1))
        neurons = sorted(k for group in layer["neurons"] for k in group["neurons"])
        assert neurons == list(range(1, len(stored.feedforward.inner) + 1))
        touched = {slot for part in (*layer["heads"], *layer["neurons"]) for slot in (*part["reads"], *part["writes"])}
        assert touched <= {*net.slots, "output"}
        assert all(head["writes"] for head in layer["heads"] if head["role"] != "off")
    roles = {head["role"] for layer in found["layers"] for head in layer["heads"]}
    assert ROLES.get(name, roles) == roles and roles - {"off"}
    json.dumps(found)


def test_what_is_said_follows_the_weights() -> None:
    """A head whose output is cut off is off; a neuron that reads another slot is said to."""
    net = lf.build(lf.fixed(lags=(2, 5), readout="x0 + m1*m2"), error=1e-2)
    layer = net.transformer.layers[0]
    output, inner = layer.attention.output.copy(), layer.feedforward.inner.copy()
    output[1] = 0 * output[1]
    inner[0] = 0 * inner[0]
    inner[0, 2] = inner[0, 2] + 1
    ffn = FeedForward(inner, layer.feedforward.bias, layer.feedforward.outer)
    changed = replace(net.transformer, layers=(replace(layer, attention=replace(layer.attention, output=output), feedforward=ffn),))
    (before,), (after,) = mechanism(net.transformer, net.slots), mechanism(changed, net.slots)
    assert before["heads"][1]["role"] == "extract" and after["heads"][1] | {"decay": 0} == {
        "head": 2, "role": "off", "reads": [], "writes": [], "positions": "lin", "decay": 0
    }  # fmt: skip
    assert [head for head in before["heads"] if head["head"] != 2] == [head for head in after["heads"] if head["head"] != 2]
    of_first = next(group for group in after["neurons"] if 1 in group["neurons"])
    assert of_first["reads"] == ["m2"] and of_first["writes"] == ["output"]


def test_lags_are_read_where_the_page_says() -> None:
    net = lf.build(lf.load_target(Path(__file__).parent.parent.parent / "examples" / "nested.toml"), error=1e-2)
    layers: Any = net.mechanism["layers"]
    assert {head["role"] for head in layers[0]["heads"]} == {"off"}
    assert {tuple(head["query"]) for head in layers[1]["heads"] if head["role"] == "fetch"} == {("lag m1",)}
    assert {tuple(head["writes"]) for head in layers[2]["heads"] if head["role"] == "fetch"} == {("m2",)}
    assert any(group["writes"] == ["lag m2"] for group in layers[1]["neurons"])


def test_networks_without_a_theorem_have_plain_slots() -> None:
    net = lf.build(lf.fixed(lags=(2,)), error=0.1, dtype="float64")
    plain: Any = lf.Network(net.transformer, {"origin": "trained"}, net.target).mechanism
    assert list(plain["slots"]) == ["r0", "r1"] and plain["slots"]["r0"]["meaning"] is None
    assert plain["layers"][0]["heads"][0]["writes"] == ["r1"]
    assert mechanism(net.transformer, {})[0]["heads"][0]["reads"] == ["coordinate 0"]


def test_a_gallery_of_two(run: Callable[..., Any], tmp_path: Path) -> None:
    found = run("gallery", "--out", tmp_path / "g", "--only", "thm-3.1", "--only", "jl-4.1", "--json")
    assert found.code == 0 and [row["theorem"] for row in found.json["networks"]] == ["thm-3.1", "jl-4.1"]
    for row in json.loads((tmp_path / "g" / "gallery.json").read_text())["networks"]:
        again = lf.verify(tmp_path / "g" / row["theorem"] / "network")
        assert again.verdict.value == row["verdict"] == "holds" and again.certified == pytest.approx(row["certified"])
        stored = json.loads((tmp_path / "g" / row["theorem"] / "mechanism.json").read_text())
        assert stored == lf.load(tmp_path / "g" / row["theorem"] / "network").mechanism
    twice = run("gallery", "--out", tmp_path / "g", "--only", "thm-3.1")
    assert twice.code == 2 and "exists" in twice.err and twice.err.count("\n") == 1
    shown = run("gallery", "--out", tmp_path / "h", "--only", "thm-3.1")
    assert shown.code == 0 and "extract" in shown.out


def test_unknown_theorems_are_refused(run: Callable[..., Any], tmp_path: Path) -> None:
    refused = run("gallery", "--out", tmp_path / "g", "--only", "lag-law")
    assert refused.code == 2 and "'lag-law' is no theorem that builds networks" in refused.err and not (tmp_path / "g").exists()
    with pytest.raises(InputError):
        lf.gallery(tmp_path / "g", only=("thm-9.9",))


@pytest.mark.deep
def test_the_whole_gallery(tmp_path: Path) -> None:
    found = lf.gallery(tmp_path / "g")
    assert [row["theorem"] for row in found.networks] == BUILDING and found.holds
    assert all(np.isfinite(row["certified"]) and row["witness"] <= row["certified"] for row in found.networks)  # type: ignore[operator]
