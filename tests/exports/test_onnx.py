"""ONNX files: they agree with `run`, they are valid, and they hold what the library says they hold."""

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from analyzer.errors import InputError
from analyzer.targets.task import task_kinds
from constructions.exports.fast_rounding import difference_bound
from constructions.exports.onnx_graphs import model_of, write
from constructions.exports.onnx_runs import sequences, session
from constructions.network.transformer import Transformer
from constructions.run.execute import run
from constructions.run.stream import plain_slots
from lemmaformer.network import Network
from tests.conftest import random_network

pytestmark = [pytest.mark.reach, pytest.mark.filterwarnings("ignore")]

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
LOOSE = {"dtype": "float64", "error": 0.05}
GALLERY: dict[str, list[dict[str, Any]]] = {
    "centre_of_mass": [{"dtype": "float64"}],
    "content_and_pointer": [{}, {"dtype": "float64"}],
    "contrast": [{}, {"dtype": "float64"}],
    "fading": [{}, {"dtype": "float64"}, {"dtype": "float32"}],
    "finite_points": [{"dtype": "float64"}],
    "heavy_tail": [{}, {"dtype": "float64"}, {"dtype": "float32"}],
    "low_rank": [{}, {"dtype": "float64"}, {"dtype": "float32"}],
    "nearest_point": [{"dtype": "float64"}],
    "nested": [{}, {"dtype": "float64"}],
    "nested_twice": [{}, {"dtype": "float64"}],
    "pair": [{}, LOOSE],
    "pointer": [{}, LOOSE],
    "product": [{}],
    "prop_4_2": [{}, {"dtype": "float64"}],
    "selection": [{"dtype": "float64"}],
    "sines": [{}, {"dtype": "float64"}],
    "smooth_coupling": [{}, {"dtype": "float64"}, {"dtype": "float32"}],
    "tree": [{}],
    "two_coordinates": [{}, LOOSE],
}
"""Every example, exact and in the float types that can hold it; product and tree are refused in floats."""
TASKS = [file.stem for file in sorted(EXAMPLES.glob("*.toml")) if tomllib.loads(file.read_text()).get("kind") in task_kinds()]
"""Examples of tasks, whatever tasks there are."""
TOGETHER = 100
"""Sequences whose tolerances are computed at a time: some hundred MB."""
CASES = [(name, options) for name, several in GALLERY.items() for options in several]
TAPS: list[tuple[str, dict[str, Any]]] = [
    ("contrast", {**LOOSE, "rpe": "log"}),
    ("nested", {**LOOSE, "rpe": "log", "attention": "tmx"}),
    ("content_and_pointer", {**LOOSE, "rpe": "log", "attention": "tmx"}),
]
KINDS = [
    ("lin", "dp-free", "infinite"), ("log", "dp-free", "infinite"), ("lin log", "dp-free", "infinite"), ("table", "dp-free", "infinite"),
    ("lin log", "dp-free", "finite"), ("table", "dp-free", "finite"), ("lin log", "dp", "infinite"), ("table", "dp", "infinite"),
    ("lin log", "dp", "finite"), ("none", "dp", "finite"), ("none", "dp", "full"), ("lin log", "nf", "infinite"),
    ("lin log", "nf", "finite"), ("lin log", "tmx", "infinite"), ("lin", "tmx", "infinite"), ("lin log", "tmx", "finite"),
]  # fmt: skip


@cache
def built(name: str, options: tuple[tuple[str, Any], ...]) -> Network:
    return lf.build(lf.load_target(EXAMPLES / f"{name}.toml"), **dict(options))


def compared(network: Transformer, tokens: np.ndarray, card: Any = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Outputs of onnxruntime and of `run`, and the derived tolerance."""
    content = model_of(network, plain_slots(network), card).SerializeToString()
    outputs = session(content).run(["y"], {"tokens": tokens})[0]
    bounds = [difference_bound(network, tokens[start : start + TOGETHER]) for start in range(0, len(tokens), TOGETHER)]
    return outputs, run(network, tokens), np.concatenate(bounds)


def test_every_example_is_in_the_table() -> None:
    assert set(GALLERY) | set(TASKS) == {file.stem for file in EXAMPLES.glob("*.toml")}


@pytest.mark.parametrize("name", TASKS)
def test_examples_of_tasks_are_written_and_certified(name: str, tmp_path: Path) -> None:
    net = built(name, ())
    said = write(net.transformer, net.slots, tmp_path / "task.onnx", overwrite=False, card=net.card)
    assert float(str(said["share"])) <= 1 and float(str(said["known"])) > 0.9
    assert lf.verify(tmp_path / "task.onnx").verdict.value == "holds"


@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda case: case if isinstance(case, str) else case.get("dtype", "exact"))
def test_gallery_agrees_with_run_on_a_thousand_sequences(name: str, options: dict[str, Any]) -> None:
    net = built(name, tuple(options.items()))
    outputs, wanted, tolerance = compared(net.transformer, sequences(net.transformer, net.card, 1000, seed=1))
    known = np.isfinite(tolerance)
    assert (np.abs(outputs.astype(float) - wanted) <= tolerance)[known].all()
    assert net.target is not None and known[:, min(net.target.settled, known.shape[1] - 1) :].all()
    assert tolerance[known].max() <= 0.05, "a tolerance beyond the error that was asked for says nothing"
    if net.dtype == "exact":
        assert tolerance[known].max() < net.certificate.certified / 1000


@pytest.mark.parametrize(("name", "options"), TAPS, ids=lambda case: case if isinstance(case, str) else "log")
def test_log_taps_have_equal_bits(name: str, options: dict[str, Any]) -> None:
    net = built(name, tuple(options.items()))
    outputs, wanted, _ = compared(net.transformer, sequences(net.transformer, net.card, 1000, seed=2))
    assert np.array_equal(outputs, wanted)


@pytest.mark.parametrize("rpe", ["log", "table"])
def test_taps_of_random_networks_have_equal_bits(rpe: str) -> None:
    rng = np.random.default_rng(3)
    network = random_network(rng, [rpe] * 3, bias=False)
    outputs, wanted, _ = compared(network, rng.uniform(-1, 1, (50, 40, 2)))
    assert np.array_equal(outputs, wanted)


@pytest.mark.parametrize(("dtype", "layers"), [("float64", 1), ("float32", 2)])
@pytest.mark.parametrize(("rpe", "kind", "window"), KINDS)
def test_every_kind_of_attention(rpe: str, kind: str, window: str, dtype: str, layers: int) -> None:
    import onnx

    rng = np.random.default_rng(len(rpe) + 7 * len(kind) + 31 * len(window) + layers)
    heads = (rpe.split() * 3)[:3]
    network = random_network(rng, heads, kind, window, layers=layers, dtype=dtype, outputs=layers)
    onnx.checker.check_model(model_of(network, plain_slots(network)), full_check=True)
    for shape in ((5, 17, 2), (1, 1, 2)):
        outputs, wanted, tolerance = compared(network, rng.uniform(-1, 1, shape).astype(dtype))
        assert outputs.shape == wanted.shape and np.isfinite(tolerance).all()
        assert (np.abs(outputs.astype(float) - wanted) <= tolerance).all()


def test_rounded_feed_forward_networks_round_ties_to_even() -> None:
    from dataclasses import replace

    network = random_network(np.random.default_rng(0), ["lin"], layers=1, dim=1, width=1, neurons=2, bias=False)
    layer = network.layers[0]
    ffn = replace(
        layer.feedforward, inner=np.array([[1.0], [-1.0]]), bias=np.zeros(2), outer=np.array([[4.0, -4.0]]), precision=("integer",)
    )
    still = replace(layer.attention, output=np.zeros_like(layer.attention.output))
    network = replace(network, embedding=np.ones((1, 1)), layers=(replace(layer, attention=still, feedforward=ffn),))
    tokens = np.array([0.125, 0.375, 0.625, -0.125, -0.375, 0.5])[None, :, None]
    outputs, wanted, _ = compared(network, tokens)
    assert outputs.tolist() == wanted.tolist() == [[0.0, 2.0, 2.0, 0.0, -2.0, 2.0]]


def test_logarithms_of_lags_are_rounded() -> None:
    net = lf.build(lf.load_target(EXAMPLES / "pair.toml"), rpe="log", error=0.05)
    outputs, wanted, tolerance = compared(net.transformer, sequences(net.transformer, net.card, 50))
    known = np.isfinite(tolerance)
    assert known[:, 8:].all() and (np.abs(outputs - wanted) <= tolerance)[known].all()


def test_long_lags_of_exact_networks_are_those_of_the_card(tmp_path: Path) -> None:
    net = lf.build(lf.adaptive([-1, 1], {"m1": [1, 40]}, readout="m1"))
    said = write(net.transformer, net.slots, tmp_path / "far.onnx", overwrite=False, card=net.card)
    assert said["known"] == 1.0 and float(str(said["share"])) <= 1
    content = model_of(net.transformer, net.slots).SerializeToString()
    tokens = np.array([[[-1.0]] * 44 + [[1.0]]])
    assert np.isnan(session(content).run(["y"], {"tokens": tokens})[0][0]).tolist() == [False] * 44 + [True]


def test_slots_are_outputs(tmp_path: Path) -> None:
    net = built("nested", (("dtype", "float64"),))
    write(net.transformer, net.slots, tmp_path / "n.onnx", overwrite=False, card=net.card)
    tokens = sequences(net.transformer, net.card, 3)
    running = session((tmp_path / "n.onnx").read_bytes())
    held = net.trace(tokens)
    for layer in ("layer 1", "layer 2", "layer 3"):
        for name, values in held[layer].items():
            found = running.run([f"{layer}.{name}"], {"tokens": tokens})[0]
            assert found.shape == values.shape
            if name in ("x0", "constant", "lag m1"):
                assert np.array_equal(found[:, 4:], values[:, 4:])
    kernel = built("fading", ())
    content = model_of(kernel.transformer, kernel.slots).SerializeToString()
    tokens = sequences(kernel.transformer, kernel.card, 3)
    found = session(content).run(["layer 1.k2"], {"tokens": tokens})[0]
    assert np.abs(found - kernel.trace(tokens)["layer 1"]["k2"]).max() < 1e-12  # 64 terms below 1: 100 u


def test_chains_of_layers_in_float32(tmp_path: Path) -> None:
    net = lf.build(lf.fixed(lags=(12,)), dtype="float32", depth="auto", bank="balanced")
    assert len(net.transformer.layers) > 1
    said = write(net.transformer, net.slots, tmp_path / "chain.onnx", overwrite=False, card=net.card)
    assert said["tolerance"] <= 2 * net.certificate.certified and 0 < said["share"] <= 1 and said["known"] == 1.0  # type: ignore[operator]
    assert "certified" in str(said["tolerance_from"])
    net = lf.build(lf.fixed(lags=(60,), alphabet=[-1, 1]), dtype="float32", depth="auto", bank="balanced", restore=True)
    said = write(net.transformer, net.slots, tmp_path / "restored.onnx", overwrite=False, card=net.card)
    assert said["difference"] == said["tolerance"] == 0 and 0 < float(str(said["known"])) < 1
    assert lf.verify(tmp_path / "restored.onnx").verdict.value == "holds"


def test_arrays_longer_than_the_constants_are_refused_by_the_runtime() -> None:
    network = random_network(np.random.default_rng(0), ["lin", "log"], "dp", "infinite")
    running = session(model_of(network, {}).SerializeToString())
    running.run(["y"], {"tokens": np.zeros((1, 512, 2))})
    with pytest.raises(Exception, match=r"(?i)bounds|shape|broadcast|dimension"):
        running.run(["y"], {"tokens": np.zeros((1, 513, 2))})


def test_what_write_says(tmp_path: Path) -> None:
    net = built("contrast", (("dtype", "float64"),))
    said = write(net.transformer, net.slots, tmp_path / "c.onnx", overwrite=False, card=net.card)
    assert said["format"] == "onnx" and said["certified"] is False and said["covered"] is True and said["longest"] is None
    assert 0 <= float(str(said["difference"])) <= float(str(said["tolerance"])) < 0.01 and said["known"] == 1.0
    with pytest.raises(InputError, match="exists"):
        write(net.transformer, net.slots, tmp_path / "c.onnx", overwrite=False)
    write(net.transformer, net.slots, tmp_path / "c.onnx", overwrite=True)
    with pytest.raises(InputError, match=r"end in \.onnx"):
        write(net.transformer, net.slots, tmp_path / "c.txt", overwrite=False)
    with pytest.raises(InputError, match="coordinates"):
        write(net.transformer, {"far": [99]}, tmp_path / "d.onnx", overwrite=False)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["c.onnx"]
    exact = built("contrast", ())
    assert write(exact.transformer, exact.slots, tmp_path / "e.onnx", overwrite=False)["covered"] is False
