"""Weights from elsewhere: PyTorch's layout comes back as the same function, everything else is refused."""

import ast
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from analyzer.errors import InputError
from constructions.files import bundle
from constructions.files.card import read_files
from constructions.files.foreign import read_foreign
from constructions.network.transformer import Transformer
from constructions.run import reference
from tests.conftest import random_network

Run = Callable[..., Any]


def torch_layout(network: Transformer) -> dict[str, np.ndarray]:
    """The state of PyTorch modules with our names: nn.Linear for every matrix, heads stacked, slopes (H, 1, 1)."""
    state = {"embedding.weight": network.embedding, "embedding.bias": network.bias}
    for index, layer in enumerate(network.layers):
        attention, ffn, prefix = layer.attention, layer.feedforward, f"layers.{index}"
        width = network.embedding.shape[0]
        state[f"{prefix}.attention.output.weight"] = attention.output.transpose(1, 0, 2).reshape(width, -1)
        for part in ("value", "query", "key") if attention.query.shape[1] else ("value",):
            state[f"{prefix}.attention.{part}.weight"] = getattr(attention, part).reshape(-1, width)
        if attention.table is None:
            state[f"{prefix}.attention.decay"] = attention.decay[:, None, None]
        else:
            state[f"{prefix}.attention.table"] = attention.table
        if attention.kind == "tmx":
            state[f"{prefix}.attention.pointer"] = attention.pointer
        state |= {f"{prefix}.feedforward.inner.weight": ffn.inner, f"{prefix}.feedforward.inner.bias": ffn.bias}
        state[f"{prefix}.feedforward.outer.weight"] = ffn.outer
    return {name: np.ascontiguousarray(array) for name, array in state.items()}


def layer_text(network: Transformer, more: str = "") -> str:
    tables = []
    for layer in network.layers:
        attention = layer.attention
        rpe = list(attention.rpe) if len(set(attention.rpe)) > 1 else attention.rpe[0]
        tables.append(
            f'[[layer]]\nkind = "{attention.kind}"\nwindow = "{attention.window}"\nrpe = {rpe!r}\nheads = {len(attention.rpe)}\n{more}'
        )
    return "\n".join(tables)


class Place:
    """Two files in a folder, and the network that comes of them."""

    def __init__(self, root: Path) -> None:
        self.root, self.weights, self.config = root, root / "weights.safetensors", root / "config.toml"

    def put(self, state: dict[str, np.ndarray], text: str) -> None:
        save_file(state, self.weights)
        self.config.write_text(text)

    def read(self) -> Transformer:
        found = read_foreign(self.weights, self.config)
        return bundle.network_of(found.arrays, found.structure)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


CASES = [
    *((["lin", "log", "lin"], kind, window) for kind in ("dp-free", "dp", "nf", "tmx") for window in ("infinite", "finite")),
    *((["table"] * 3, kind, "infinite") for kind in ("dp-free", "dp")),
]


@pytest.mark.deep
@pytest.mark.parametrize(("rpe", "kind", "window"), CASES)
def test_round_trip(rpe: list[str], kind: str, window: str, place: Place, run: Run) -> None:
    rng = np.random.default_rng(7)
    network = random_network(rng, rpe, kind, window, layers=2, dtype="float32")
    place.put(torch_layout(network), layer_text(network))
    done = run("import", place.weights, place.config, "--out", place.root / "net", "--json")
    assert done.code == 0 and done.err == "" and done.json["dtype"] == "float32"
    stored = bundle.load(read_files(place.root / "net"))
    assert {key: stored.card[key] for key in ("origin", "theorem", "target", "source", "sizes")} == {
        "origin": "imported",
        "theorem": None,
        "target": None,
        "source": "weights.safetensors",
        "sizes": network.sizes(),
    }
    tokens = rng.uniform(-1, 1, (2, 40, 2))
    assert (reference.forward(stored.network, tokens) == reference.forward(network, tokens)).all()
    np.save(place.root / "x.npy", tokens)
    assert run("run", place.root / "net", "--input", place.root / "x.npy", "--output", place.root / "y.npy").code == 0
    np.testing.assert_allclose(np.load(place.root / "y.npy"), reference.forward(network, tokens), atol=1e-5)


@pytest.mark.deep
def test_names_scale_constants_and_slopes(place: Place, run: Run) -> None:
    """Names from elsewhere, 1/√dk, a bias after the last matrix, zero biases of projections, slopes in the TOML file."""
    rng = np.random.default_rng(8)
    network = random_network(rng, ["lin"] * 3, "dp", "finite", layers=2)
    state = torch_layout(network)
    renamed = {
        name.replace("layers.", "blocks.").replace("attention.value", "attn.v").replace("embedding.", "embed."): array
        for name, array in state.items()
        if not name.endswith("decay")
    }
    renamed |= {
        "blocks.0.attention.query.bias": np.zeros(6),
        "blocks.1.attn.v.bias": np.zeros(6),
        "blocks.1.feedforward.outer.bias": [0.75],
    }
    renamed["positions"] = np.arange(9)
    slopes = [[0.5, 1.25, 2.0], [0.125, 0.25, 4.0]]
    layers = layer_text(network, 'scale = "1/sqrt(dk)"\ndecay = SLOPES\n')
    for row in slopes:
        layers = layers.replace("SLOPES", str(row), 1)
    parts = ["query", "key", "output"]
    names = "".join(f'"layers.*.attention.{part}" = "blocks.*.attention.{part}.weight"\n' for part in parts)
    names += '[names.layers."*"]\nattention.value = "blocks.*.attn.v.weight"\n'
    names += "".join(f'feedforward.{part} = "blocks.*.feedforward.{part}.weight"\n' for part in ("inner", "outer"))
    target = '[target]\nkind = "fixed"\ndim = 2\nlags = [2]\nreadout = "m1[0]"\n'
    text = f'dtype = "float64"\nignore = ["positions"]\n{layers}\n[names]\nembedding = "embed.weight"\n{names}\n{target}'
    assert tomllib.loads(text)
    place.put({name: np.asarray(array) for name, array in renamed.items()}, text)
    found = place.read()
    wanted = network.map(np.array)
    for layer, row in zip(wanted.layers, slopes, strict=True):
        layer.attention.decay[:] = row
        layer.attention.query[:] *= 1 / np.sqrt(2)
    tokens = rng.uniform(-1, 1, (2, 30, 2))
    np.testing.assert_allclose(reference.forward(found, tokens), reference.forward(wanted, tokens) + 0.75, atol=1e-13)
    assert found.layers[1].feedforward.inner.shape[0] == network.layers[1].feedforward.inner.shape[0] + 1
    done = run("import", place.weights, place.config, "--out", place.root / "net")
    assert done.code == 0 and "3 lin" in done.out and "no target" not in done.out
    assert bundle.load(read_files(place.root / "net")).card["target"]["lags"] == [2]


def test_several_outputs_are_imported(place: Place, run: Run) -> None:
    network = random_network(np.random.default_rng(9), ["lin"] * 2, dtype="float32", outputs=2)
    place.put(torch_layout(network), layer_text(network))
    assert run("import", place.weights, place.config, "--out", place.root / "net", "--json").json["sizes"]["outputs"] == 2
    np.testing.assert_array_equal(place.read().layers[0].feedforward.outer, network.layers[0].feedforward.outer)


@pytest.mark.parametrize("kind", [np.float16, ml_dtypes.bfloat16])
def test_half_precision_is_widened_exactly(kind: Any, place: Place) -> None:
    network = random_network(np.random.default_rng(9), ["log"] * 2, dtype="float32")
    state = {name: array.astype(kind) for name, array in torch_layout(network).items()}
    place.put(state, layer_text(network))
    found = place.read()
    assert found.dtype == "float32"
    assert (found.embedding == state["embedding.weight"].astype(np.float64)).all()
    assert (found.layers[0].attention.decay == state["layers.0.attention.decay"].astype(np.float64).reshape(-1)).all()


def test_single_precision_does_not_round_doubles(place: Place) -> None:
    network = random_network(np.random.default_rng(9), ["lin"] * 2)
    place.put(torch_layout(network), 'dtype = "float32"\n' + layer_text(network))
    with pytest.raises(InputError, match="does not have"):
        place.read()
    place.put(torch_layout(network), layer_text(network))
    assert place.read().dtype == "float64"


Change = dict[str, Any]
WRONG: dict[str, tuple[Change, str, str, str]] = {
    "a bias": ({"layers.0.attention.value.bias": np.ones(4)}, "", "", "bias of layers.0.attention.value and not 0"),
    "a norm": ({"layers.0.ln_1.weight": np.ones(3)}, "", "", "layer norm"),
    "a stranger": ({"head.weight": np.ones(3)}, "", "", "nothing of ours is called"),
    "missing": ({"embedding.weight": None}, "", "", "no array 'embedding'"),
    "missing slopes": ({"layers.0.attention.decay": None}, "", "", "list the slopes"),
    "nan": ({"embedding.weight": np.full((3, 2), np.nan)}, "", "", "NaN"),
    "integers": ({"embedding.weight": np.ones((3, 2), int)}, "", "", "of type I64"),
    "transposed": ({"layers.0.attention.value.weight": np.ones((3, 4))}, "", "", "expected"),
    "narrow": ({"layers.0.attention.value.weight": np.ones((4, 2))}, "", "", "expected (2, 2, 3)"),
    "no outputs": ({"layers.0.feedforward.outer.weight": np.ones((0, 7))}, "", "", "expected (1, 7)"),
    "negative slope": ({"layers.0.attention.decay": np.array([1.0, -1.0])}, "", "", "needs a decay"),
    "one slope": ({"layers.0.attention.decay": np.ones(1)}, "", "", "1 decays for 2 heads"),
    "vector": ({"embedding.weight": np.ones(3)}, "", "", "expected (D, d)"),
    "empty": ({"embedding.weight": np.ones((0, 2))}, "", "", "expected (D, d)"),
    "scalar": ({"layers.0.feedforward.inner.weight": np.ones(())}, "", "", "expected (m, D)"),
    "queries of dp-free": ({"layers.0.attention.query.weight": np.ones((4, 3))}, "", "", "nothing of ours"),
    "unknown key": ({}, 'colour = "red"\n', "", "unknown key 'colour'"),
    "unknown layer key": ({}, "", "dropout = 0.1\n", "unknown key 'dropout'"),
    "kind": ({}, 'kind = "dp-free"', 'kind = "cosine"', "kind is 'cosine'"),
    "window": ({}, 'window = "infinite"', 'window = "sliding"', "window is 'sliding'"),
    "rpe": ({}, "rpe = 'lin'", 'rpe = "rope"', "rpe must be"),
    "heads of a list": ({}, "rpe = 'lin'", 'rpe = ["lin", "log", "lin"]', "its rpe lists 3"),
    "no heads": ({}, "heads = 2", "", "say how many heads"),
    "heads that do not divide": ({}, "heads = 2", "heads = 3", "expected (3, dk, D)"),
    "heads": ({}, "heads = 2", "heads = true", "whole number"),
    "scale without scores": ({}, "heads = 2", "heads = 2\nscale = 0.5", "no dot products to scale"),
    "slopes twice": ({}, "heads = 2", "heads = 2\ndecay = 0.5", "give them once"),
    "slopes that are no numbers": ({}, "heads = 2", "heads = 2\ndecay = [nan, 1]", "is 'NaN'"),
    "blind": ({}, "rpe = 'lin'", 'rpe = "none"', "do not see positions"),
    "slow log": ({"layers.0.attention.decay": np.array([1.0, 2.0])}, "rpe = 'lin'", 'rpe = "log"', "between 1 and"),
    "no layers": ({}, "[[layer]]", "[layer]", "one table [[layer]]"),
    "dtype": ({}, 'dtype = "float16"\n', "", "dtype is 'float16'"),
    "ignore": ({}, "ignore = 3\n", "", "list of names"),
    "names": ({}, "", '[names]\nembedding = "nowhere"\n', "no array 'nowhere'"),
    "names of nothing": ({}, "", '[names]\ncolour = "embedding.weight"\n', "has the key 'colour'"),
    "names twice": ({}, "", '[names]\nembedding = "a"\nbias = "a"\n', "to 2 of ours"),
    "names of numbers": ({}, "", "[names]\nembedding = 3\n", "as text"),
    "target": ({}, "", '[target]\nkind = "fixed"\nlags = [0]\n', "lag 0"),
    "target's dimension": ({}, "", '[target]\nkind = "fixed"\nlags = [1]\n', "tokens of dimension 1"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_wrong_things_are_refused(fault: str, place: Place, run: Run) -> None:
    """A pair of texts is a replacement, or put before and after the TOML file if the first does not occur."""
    change, old, new, reason = WRONG[fault]
    network = random_network(np.random.default_rng(10), ["lin"] * 2)
    text = layer_text(network)
    text = text.replace(old, new) if old and old in text else old + text + new
    state = {name: array for name, array in (torch_layout(network) | change).items() if array is not None}
    place.put(state, text)
    done = run("import", place.weights, place.config, "--out", place.root / "net")
    assert done.code == 2 and done.out == "" and done.err.count("\n") == 1
    assert reason in done.err
    assert not (place.root / "net").exists()


def test_other_forms_of_the_same_arrays(place: Place) -> None:
    """Our own names and axes need no heads; a missing bias is 0."""
    network = random_network(np.random.default_rng(11), ["lin"] * 2, bias=False)
    arrays = bundle.arrays_of(network)
    for unused in ("bias", "layers.0.attention.query", "layers.0.attention.key", "layers.0.attention.pointer"):
        del arrays[unused]
    place.put(arrays, layer_text(network).replace("heads = 2", ""))
    tokens = np.random.default_rng(12).uniform(-1, 1, (20, 2))
    assert (reference.forward(place.read(), tokens) == reference.forward(network, tokens)).all()


@pytest.mark.deep
def test_the_export_of_the_pytorch_example(place: Place, run: Run) -> None:
    """The layout that examples/train_in_pytorch.py writes, made here without PyTorch: names, heads and slopes are understood."""
    rng = np.random.default_rng(13)
    heads, width, neurons = 8, 4, 16
    state = {
        "embed.weight": rng.standard_normal((width, 1)),
        "value.weight": rng.standard_normal((heads, width)),
        "output.weight": rng.standard_normal((width, heads)),
        "slopes": rng.uniform(0.1, 2, heads),
        "inner.weight": rng.standard_normal((neurons, width)),
        "inner.bias": rng.standard_normal(neurons),
        "outer.weight": rng.standard_normal((1, neurons)),
        "outer.bias": rng.standard_normal(1),
    }
    tree = ast.parse((Path(__file__).parent.parent.parent / "examples" / "train_in_pytorch.py").read_text())
    said = {node.targets[0].id: node.value for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)}
    place.put(state, ast.literal_eval(said["CONFIG"]).format(heads=heads, lag=2))
    found = place.read()
    x = rng.uniform(-1, 1, (30, 1))
    stream = x @ state["embed.weight"].T
    values, z = stream @ state["value.weight"].T, np.exp(-state["slopes"])
    mixed = np.array([sum((1 - z) * z**s * values[t - s] for s in range(t + 1)) for t in range(30)])
    u = stream + mixed @ state["output.weight"].T
    wanted = np.maximum(u @ state["inner.weight"].T + state["inner.bias"], 0) @ state["outer.weight"].T + state["outer.bias"]
    np.testing.assert_allclose(reference.forward(found, x), wanted[:, 0], atol=1e-12)
    done = run("import", place.weights, place.config, "--out", place.root / "net", "--json")
    assert done.code == 0 and done.json["target"]["lags"] == [2]
