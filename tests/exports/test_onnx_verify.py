"""`verify FILE.onnx`: what was changed in a file is found, and files that are no files of ours are refused in one line."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from analyzer.errors import InputError
from constructions.exports.onnx_graphs import write
from constructions.network import recurrences
from lemmaformer.network import Network

pytestmark = [pytest.mark.reach, pytest.mark.filterwarnings("ignore")]

NETWORKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lin": (lf.fixed(lags=(2,)), {"dtype": "float64"}),
    "log": (lf.fixed(lags=(2,)), {"dtype": "float64", "rpe": "log", "error": 0.05}),
    "exact": (lf.fixed(lags=(2,)), {}),
    "adaptive": (lf.adaptive([-1, 1], {"m1": [1, 2]}, readout="m1"), {"dtype": "float64"}),
    "adaptive, exact": (lf.adaptive([-1, 1], {"m1": [1, 2]}, readout="m1"), {}),
}


@cache
def network(name: str) -> Network:
    target, options = NETWORKS[name]
    return lf.build(target, **options)


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def to_file(name: str) -> Path:
        net = network(name)
        write(net.transformer, net.slots, tmp_path / "net.onnx", overwrite=True, card=net.card)
        return tmp_path / "net.onnx"

    return to_file


def changed(place: Path, change: Callable[[Any], None]) -> Path:
    """The file after a change to its model."""
    import onnx

    model = onnx.load(place)
    change(model)
    place.write_bytes(model.SerializeToString(deterministic=True))
    return place


def entry(model: Any, key: str) -> Any:
    return next(prop for prop in model.metadata_props if prop.key == key)


def initialiser(model: Any, name: str) -> Any:
    return next(tensor for tensor in model.graph.initializer if tensor.name.endswith(name))


def flipped(tensor: Any, bit: int = 0) -> None:
    data = bytearray(tensor.raw_data)
    data[bit // 8] ^= 1 << bit % 8
    tensor.raw_data = bytes(data)


@pytest.mark.parametrize("name", NETWORKS)
def test_the_chain_is_that_of_the_network(name: str, written: Callable[[str], Path], run: Any) -> None:
    place = written(name)
    found, own = lf.verify(place), network(name).verify()
    assert (found.certified, found.bound, found.witness, found.faults) == (own.certified, own.bound, own.witness, ())
    said = run("verify", place, "--json")
    assert said.code == 0 and said.json["verdict"] == "holds" and said.json["certified"] == own.certified


@pytest.mark.parametrize("name", NETWORKS)
def test_one_bit_of_any_initialiser_is_noticed(name: str, written: Callable[[str], Path]) -> None:
    import onnx

    content = written(name).read_bytes()
    for index, tensor in enumerate(onnx.ModelProto.FromString(content).graph.initializer):
        if not tensor.raw_data:
            continue
        place = written(name)
        found = lf.verify(changed(place, lambda model, index=index: flipped(model.graph.initializer[index])))
        assert found.verdict.value == "violated", tensor.name
        assert any(fault.startswith("the ONNX file: ") for fault in found.faults), tensor.name


def exchange_ratio_and_gain(model: Any) -> None:
    ratio, gain = (initialiser(model, part).name for part in (".ratio", ".gain"))
    for node in model.graph.node:
        for body in [node, *(inner for attribute in node.attribute for inner in attribute.g.node)]:
            body.input[:] = [{ratio: gain, gain: ratio}.get(name, name) for name in body.input]


def swap_values(model: Any) -> None:
    ratio, gain = (initialiser(model, part) for part in (".ratio", ".gain"))
    ratio.raw_data, gain.raw_data = gain.raw_data, ratio.raw_data


def replace_op(model: Any) -> None:
    next(node for node in model.graph.node if node.op_type == "Relu").op_type = "Abs"


def change_inside_the_scan(model: Any) -> None:
    scan = next(node for node in model.graph.node if node.op_type == "Scan")
    body = next(attribute.g for attribute in scan.attribute if attribute.name == "body")
    next(node for node in body.node if node.op_type == "Add").op_type = "Sub"


def drop_a_node(model: Any) -> None:
    del model.graph.node[-1]


def another_theorem(model: Any) -> None:
    entry(model, "theorem").value = "thm-5.1"


def better_claim(model: Any) -> None:
    card = entry(model, "card")
    assert '"certified": ' in card.value
    card.value = card.value.replace('"certified": ', '"certified": 0.000000000001, "was": ', 1)


def another_slot(model: Any) -> None:
    entry(model, "slots").value = '{"x0": [1], "m1": [0]}'


def another_operator_set(model: Any) -> None:
    model.opset_import[0].version = 18


def more_output(model: Any) -> None:
    model.graph.output.add().name = "surprise"


def a_function(model: Any) -> None:
    model.functions.add().name = "Relu"


CHANGES = [
    (exchange_ratio_and_gain, "reads"), (swap_values, "gain"), (replace_op, "'Abs' for Relu"), (change_inside_the_scan, "node"),
    (drop_a_node, "node"), (another_theorem, "theorem"), (better_claim, "ONNX"), (another_slot, "slots"),
    (another_operator_set, "operator set"), (more_output, "output"), (a_function, "beside graph"),
]  # fmt: skip


@pytest.mark.parametrize(("change", "says"), CHANGES, ids=lambda part: getattr(part, "__name__", ""))
def test_changes_are_named(change: Callable[[Any], None], says: str, written: Callable[[str], Path], run: Any) -> None:
    place = changed(written("lin"), change)
    found = lf.verify(place)
    assert found.verdict.value == "violated" and any(says in fault for fault in found.faults), found.faults
    said = run("verify", place, "--json")
    assert said.code == 1 and said.json["verdict"] == "violated"


def test_a_network_that_was_broken_before_it_was_written_is_violated(tmp_path: Path) -> None:
    net = network("lin")
    worse, _, _ = net.broken("output", by=0.01)
    write(worse.transformer, net.slots, tmp_path / "worse.onnx", overwrite=False, card=net.card)
    found = lf.verify(tmp_path / "worse.onnx")
    assert found.verdict.value == "violated" and not any("ONNX" in fault for fault in found.faults)


def test_without_a_card_a_target_is_needed(tmp_path: Path) -> None:
    net = network("lin")
    place = tmp_path / "bare.onnx"
    write(net.transformer, net.slots, place, overwrite=False)
    with pytest.raises(InputError, match="no card"):
        lf.verify(place)
    assert lf.verify(place, lf.fixed(lags=(2,))).certified < 0.01


def external(model: Any) -> None:
    tensor = model.graph.initializer[0]
    tensor.data_location = 1
    tensor.external_data.add(key="location", value="/etc/passwd")


def wrong_size(model: Any) -> None:
    initialiser(model, "embedding").dims[0] = 1 << 40


def negative_size(model: Any) -> None:
    initialiser(model, "embedding").dims[0] = -1


def strange_type(model: Any) -> None:
    initialiser(model, "embedding").data_type = 8


def no_weights(model: Any) -> None:
    entry(model, "weights").value = "!"


def not_a_number(model: Any) -> None:
    tensor = initialiser(model, "embedding")
    tensor.raw_data = np.full(len(tensor.raw_data) // 8, np.nan).tobytes()


def deep_card(model: Any) -> None:
    entry(model, "card").value = "[" * 100_000


def list_card(model: Any) -> None:
    entry(model, "card").value = "[1]"


def strange_target(model: Any) -> None:
    entry(model, "card").value = '{"theorem": "thm-3.1", "target": 5}'


def far_slot(model: Any) -> None:
    entry(model, "slots").value = '{"x0": [77]}'


def another_version(model: Any) -> None:
    entry(model, "version").value = "2"


def not_ours(model: Any) -> None:
    del model.metadata_props[:]


def exact_claimed(model: Any) -> None:
    entry(model, "dtype").value = "exact"


def many_layers(model: Any) -> None:
    entry(model, "structure").value = "[" + ",".join(["{}"] * 1000) + "]"


@pytest.mark.parametrize(
    "change",
    [external, wrong_size, negative_size, strange_type, no_weights, not_a_number, deep_card, list_card, strange_target, far_slot,
     another_version, not_ours,
     exact_claimed, many_layers],
)  # fmt: skip
def test_hostile_files_are_refused_in_one_line(change: Callable[[Any], None], written: Callable[[str], Path], run: Any) -> None:
    said = run("verify", changed_without_loading(written("lin"), change))
    assert said.code == 2 and said.err.count("\n") == 1 and "Traceback" not in said.err and not said.out


def changed_without_loading(place: Path, change: Callable[[Any], None]) -> Path:
    import onnx

    model = onnx.ModelProto.FromString(place.read_bytes())
    change(model)
    place.write_bytes(model.SerializeToString(deterministic=True))
    return place


@pytest.mark.parametrize("content", ["cut", "empty", "text", "noise"])
def test_damaged_files_are_refused_in_one_line(content: str, written: Callable[[str], Path], run: Any) -> None:
    place = written("lin")
    whole = place.read_bytes()
    noise = np.random.default_rng(0).bytes(1000)
    place.write_bytes({"cut": whole[: len(whole) // 2], "empty": b"", "text": b"lemmaformer\n" * 9, "noise": noise}[content])
    said = run("verify", place)
    assert said.code == 2 and said.err.count("\n") == 1 and not said.out


def test_files_that_are_missing_or_too_large(tmp_path: Path, run: Any) -> None:
    assert run("verify", tmp_path / "none.onnx").code == 2
    (tmp_path / "large.onnx").touch()
    with (tmp_path / "large.onnx").open("r+b") as file:
        file.truncate((1 << 25) + 1)
    said = run("verify", tmp_path / "large.onnx")
    assert said.code == 2 and "larger" in said.err


def test_files_scan_whatever_suits_the_device(written: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    file = written("lin")
    found = lf.verify(file)
    with pytest.raises(InputError, match="form is scan there"):
        lf.verify(file, form="blocked")
    monkeypatch.setattr(recurrences, "of_device", lambda: "blocked")
    assert lf.verify(file).rounding == found.rounding == network("lin").verify(form="scan").rounding  # type: ignore[union-attr]
    assert network("lin").verify().rounding != found.rounding  # type: ignore[union-attr]
