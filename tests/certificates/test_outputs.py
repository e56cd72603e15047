"""Networks of several outputs: executors give those of the networks with one row each; files keep them; what needs one output refuses."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import lemmaformer as lf
from analyzer.errors import InputError, Refusal
from analyzer.targets.fixed import FixedMemory
from constructions.files import bundle
from constructions.files.card import read_files
from constructions.network.precision import with_x64
from constructions.network.transformer import Transformer, to_exact
from constructions.run import fast, reference
from constructions.run.apply import apply, parameters
from constructions.run.execute import run
from constructions.run.sensitivity import network_kernel
from constructions.run.stream import plain_slots, trace
from constructions.theorems.thm_4_4 import build as build_adaptive
from constructions.training import trainable as learning
from constructions.training.recipes import Shape, TrainingRecipe, check_shape
from lemmaformer.network import Network
from tests.conftest import random_network
from verify.bundles.claims import verify_bundle
from verify.layers.dp_free import layer_error

TOKENS = np.random.default_rng(1).uniform(-1, 1, (3, 6, 2))


def row(network: Transformer, j: int) -> Transformer:
    """The network with the output number j alone."""
    last = network.layers[-1]
    alone = replace(last.feedforward, outer=last.feedforward.outer[j : j + 1])
    return replace(network, layers=(*network.layers[:-1], replace(last, feedforward=alone)))


def with_rows(network: Transformer, *factors: int) -> Transformer:
    """The network whose outputs are multiples of its one output."""
    last = network.layers[-1]
    several = replace(last.feedforward, outer=np.concatenate([last.feedforward.outer * factor for factor in factors]))
    return replace(network, layers=(*network.layers[:-1], replace(last, feedforward=several)))


@pytest.mark.deep(keep="rpe1-dp-finite")
@pytest.mark.parametrize(
    ("rpe", "kind", "window"),
    [(["lin", "log"], "dp-free", "infinite"), (["table"] * 2, "dp", "finite"), (["lin"], "tmx", "infinite"), (["none"], "dp", "full")],
)
def test_outputs_are_those_of_the_single_rows(rpe: list[str], kind: str, window: str) -> None:
    network = random_network(np.random.default_rng(0), rpe, kind, window, outputs=3)
    network = network if "none" not in rpe else _without_decays(network)
    assert network.outputs == 3 and network.sizes()["outputs"] == 3 and "outputs" not in row(network, 0).sizes()
    for forward in (fast.forward, reference.forward):
        found = forward(network, TOKENS)
        assert found.shape == (3, 6, 3)
        for j in range(3):
            np.testing.assert_allclose(found[..., j], forward(row(network, j), TOKENS), atol=1e-12)
    assert run(network, TOKENS[0]).shape == (6, 3)
    with with_x64("float64"):
        np.testing.assert_allclose(jax.jit(lambda w, x: apply(w, x, dtype="float64"))(network, TOKENS), run(network, TOKENS), atol=1e-10)
    seen = trace(network, TOKENS, plain_slots(network))["output"]["y"]
    np.testing.assert_array_equal(seen, run(network, TOKENS))


def _without_decays(network: Transformer) -> Transformer:
    layers = [replace(layer, attention=replace(layer.attention, decay=0 * layer.attention.decay)) for layer in network.layers]
    return replace(network, layers=tuple(layers))


@pytest.mark.deep
def test_exact_networks_have_several_outputs_too() -> None:
    network = random_network(np.random.default_rng(0), ["lin", "lin"], outputs=2, bias=False)
    exact = network.map(to_exact)
    found = run(exact, TOKENS)
    np.testing.assert_allclose(found, run(network, TOKENS), atol=1e-10)
    with with_x64("float64"):
        np.testing.assert_allclose(apply(parameters(exact), TOKENS, dtype="float64"), found, atol=1e-10)
    target = lf.adaptive([-1, 1], {"m1": [1, 2]})
    lagged = with_rows(build_adaptive(target).network, 1, -2)  # type: ignore[arg-type]
    tokens = np.array([[-1.0], [1.0], [-1.0], [1.0]])
    alone = run(row(lagged, 0), tokens)[2:]
    np.testing.assert_allclose(run(lagged, tokens)[2:], np.stack([alone, -2 * alone], axis=-1), atol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "exact"])
def test_bundles_keep_several_outputs(dtype: str, tmp_path: Path) -> None:
    network = random_network(np.random.default_rng(0), ["lin", "lin"], outputs=2, bias=False, dtype="float32")
    network = network if dtype == "float32" else network.map(to_exact)
    card = {"origin": "imported", "theorem": None, "target": None, "sizes": network.sizes()}
    bundle.write(tmp_path / "net", network, card, "")
    found = lf.load(tmp_path / "net")
    assert found.transformer.outputs == 2 and found.sizes == network.sizes()
    tokens = TOKENS.astype(np.float32)
    np.testing.assert_array_equal(found(tokens), run(network, tokens))
    assert found.evaluate(tokens).as_dict()["shape"] == [3, 6, 2]


def test_a_file_without_outputs_is_refused(tmp_path: Path) -> None:
    network = random_network(np.random.default_rng(0), ["lin"], outputs=2)
    last = network.layers[-1]
    empty = replace(network, layers=(replace(last, feedforward=replace(last.feedforward, outer=last.feedforward.outer[:0])),))
    bundle.write(tmp_path / "net", empty, {"origin": "imported", "theorem": None, "target": None, "sizes": {}}, "")
    with pytest.raises(InputError, match=r"outer has shape \(0, 7\), expected \(1, 7\)"):
        bundle.load(read_files(tmp_path / "net"))


def test_what_needs_one_output_says_so(tmp_path: Path, run: Callable[..., Any]) -> None:
    target = FixedMemory((1,), alphabet=(-1, 1))  # type: ignore[arg-type]
    plain = lf.build(lf.fixed(lags=(1,)), error=0.1)
    several = Network(with_rows(plain.transformer, 1, 2), plain.card, plain.target)
    with pytest.raises(InputError, match=r"thm-3\.1 is about networks of one output; this one has 2"):
        verify_bundle(several.bundle)
    with pytest.raises(InputError, match="2 has 2 outputs; networks of one output are compared"):
        lf.compare(plain, several)
    with pytest.raises(Refusal, match="kernels belong to one output"):
        network_kernel(several.transformer, np.zeros((1, 4, 1)))
    floats = random_network(np.random.default_rng(0), ["lin"], dim=1, outputs=2, bias=False)
    with pytest.raises(Refusal, match="several outputs"):
        layer_error(floats, target)
    several.save(tmp_path / "net")
    done = run("verify", tmp_path / "net")
    assert done.code == 2 and done.err == "lemmaformer: thm-3.1 is about networks of one output; this one has 2\n"


@pytest.mark.deep
def test_classifiers_are_trained_by_cross_entropy() -> None:
    """The loss of a network that is certain and right is 0, of one that is indifferent log k; random starts have the outputs asked for."""
    target = lf.adaptive([-1, 0, 1], {"m1": [1, 2, 1]})
    shape = Shape(heads=2, width=6, model_dim=4, rpe="table", attention="dp", window="finite", reach=4, outputs=3)
    start = learning.initial(shape, 1, seed=0, longest=4)
    assert start.outputs == 3 and learning.randomised(start, 1, 4).outputs == 3
    recipe = TrainingRecipe(length=4, first=target.settled, batch=32, steps=60, rate=1e-2)
    loss = learning.loss_of(target, recipe)
    tokens = target.draw(np.random.default_rng(0), (32, 4)).astype(np.float32)
    indifferent = start.map(np.zeros_like)
    assert float(loss(learning.to_parameters(indifferent), tokens)) == pytest.approx(np.log(3), rel=1e-6)
    trained, run_of = learning.train(start, target, recipe)
    assert trained.outputs == 3 and run_of.summary()["loss"] < run_of.summary()["first_loss"]


def test_classifiers_need_as_many_outputs_as_there_are_values() -> None:
    target = lf.adaptive([-1, 0, 1], {"m1": [1, 2, 1]})
    shape = Shape(heads=2, width=6, model_dim=4, rpe="table", attention="dp", window="finite", reach=4, outputs=2)
    with pytest.raises(InputError, match="2 outputs, the target 3 values"):
        learning.train(learning.initial(shape, 1, 0, 4), target, TrainingRecipe(length=4, first=2, batch=4, steps=20))
    with pytest.raises(InputError, match="an affine read-out is one output"):
        check_shape(replace(shape, readout="affine"), 1)
    with pytest.raises(InputError, match="linear networks have one output"):
        lf.Train(classes=True, linear=True)
    with pytest.raises(InputError, match="a fixed or adaptive target with an alphabet"):
        lf.train(lf.fixed(lags=(1,)), classes=True, steps=20)
