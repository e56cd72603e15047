"""Networks and files that were made to break exports: every one of them is counted, refused or found out."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from constructions.exports.forms import heads_form
from constructions.exports.onnx_files import first_difference
from constructions.exports.onnx_graphs import write
from constructions.exports.plain_rounding import Analysis, _pairs, tolerance
from constructions.exports.portable import numpy_model
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer
from constructions.run.execute import run
from constructions.run.stream import plain_slots
from tests.conftest import random_network

pytestmark = [pytest.mark.reach, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("onnx") / "net.onnx"
    lf.build(lf.fixed(lags=(2,)), dtype="float64", error=0.1).to_onnx(place)
    assert lf.verify(place).verdict is lf.Verdict.HOLDS
    return place


def changed(place: Path, tmp_path: Path, content: bytes) -> Path:
    (tmp_path / "other.onnx").write_bytes(content)
    return tmp_path / "other.onnx"


def test_bytes_that_parsing_forgets_are_seen(place: Path, tmp_path: Path) -> None:
    """A field that is given twice is parsed as its last copy; programs that look at bytes may read the first one."""
    found = lf.verify(changed(place, tmp_path, b"\x12\x05other" + place.read_bytes()))
    assert found.verdict is lf.Verdict.VIOLATED and "bytes" in found.faults[0]


def test_names_that_are_no_text_are_a_difference(place: Path, tmp_path: Path) -> None:
    content = place.read_bytes()
    spot = content.index(b"tokens")
    found = changed(place, tmp_path, content[:spot] + b"\xff" + content[spot + 1 :])
    try:
        assert lf.verify(found).verdict is lf.Verdict.VIOLATED
    except lf.InputError as error:
        assert "\n" not in str(error)


def edited(place: Path, tmp_path: Path, **values: str) -> Path:
    import onnx

    model = onnx.load(place)
    for prop in model.metadata_props:
        prop.value = values.get(prop.key, prop.value)
    return changed(place, tmp_path, model.SerializeToString())


@pytest.mark.parametrize(
    "values",
    [
        {"slots": json.dumps({"\ud800": [0]})},
        {"slots": json.dumps({f"s{k}": [0] for k in range(5000)})},
        {"slots": json.dumps({"s" * 1000: [0]})},
        {"structure": json.dumps([0] * 100_000)},
        {"dtype": "exact", "weights": '{"bias": ["1*2^999999"]}'},
    ],
    ids=["surrogate", "many slots", "long name", "many layers", "far exponent"],
)
def test_metadata_without_bounds_are_refused(place: Path, tmp_path: Path, values: dict[str, str]) -> None:
    with pytest.raises(lf.InputError):
        lf.verify(edited(place, tmp_path, **values))


def test_pipes_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(lf.InputError, match="is no file"):
        lf.verify(tmp_path / "pipe.onnx")


def test_a_model_is_itself(place: Path) -> None:
    import onnx

    assert first_difference(onnx.load(place), onnx.load(place)) is None


def layer_of(network: Transformer, *, attention: Attention | None = None, neurons: FeedForward | None = None) -> Transformer:
    (layer,) = network.layers
    return Transformer(network.embedding, network.bias, (Layer(attention or layer.attention, neurons or layer.feedforward),))


def apart(network: Transformer, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Differences of the numpy pass from `run`, and the tolerance, (batch, N)."""
    form = heads_form(network, plain_slots(network))
    arrays = {name: array.astype(np.float64) for name, array in form.arrays.items()}
    other, _ = numpy_model.forward_by_heads(list(form.layers), arrays, tokens.astype(np.float64))
    return np.abs(np.asarray(other).reshape(tokens.shape[:2]) - run(network, tokens)), tolerance(network, form, tokens)[..., 0]


def test_a_neuron_is_in_one_pair_only() -> None:
    """relu(y), relu(−y), relu(y) with −1, 1, −1: the third one is not cancelled by the second."""
    rng = np.random.default_rng(0)
    inner = random_network(rng, ["lin"], layers=2, dtype="float32", width=2, dim=1)
    row = np.array([[1.0, 0.5]], np.float32)
    neurons = FeedForward(np.concatenate([row, -row, row]), np.zeros(3, np.float32), np.array([[-1, 1, -1], [-1, 1, -1]], np.float32))
    network = Transformer(inner.embedding * 300, inner.bias, (Layer(inner.layers[0].attention, neurons), inner.layers[1]))
    off, allowed = apart(network, rng.uniform(-1, 1, (16, 20, 1)).astype(np.float32))
    assert off.max() > 0 and (off <= allowed).all()
    assert _pairs(neurons.inner.T, neurons.bias, neurons.outer.T) == ([0], [1])


def test_large_errors_stay_as_large_as_they_are() -> None:
    """A small weight that follows would make a capped error look decided."""
    assert Analysis("float64", certified=True).made(np.zeros(1), np.array([1e200])).error[0] == 1e200


@pytest.mark.parametrize("kind", ["nf", "tmx"])
def test_exponents_beyond_our_own_exponential_are_undecided(kind: str) -> None:
    rng = np.random.default_rng(1)
    network = random_network(rng, ["lin", "lin"], kind, "finite", dtype="float32", width=2, dim=1)
    attention: Any = network.layers[0].attention
    steep = {
        "query": attention.query * 40,
        "key": attention.key * 40,
        "pointer": attention.pointer * 400,
        "output": attention.output * 1e-35,
    }
    fields = {name: steep.get(name, value).astype(np.float32) if name in steep else value for name, value in vars(attention).items()}
    off, allowed = apart(layer_of(network, attention=Attention(**fields)), rng.uniform(-1, 1, (16, 12, 1)).astype(np.float32))
    assert (off[np.isfinite(off)] <= allowed[np.isfinite(off)]).all() and np.isinf(allowed).any()


def flushed_network() -> tuple[Transformer, np.ndarray]:
    """Products below the least normal number, which `run` takes for 0, added up and made large again."""
    base = random_network(np.random.default_rng(2), ["table"], window="finite", dtype="float32", width=1, dim=1, bias=False, reach=400)
    table = np.full((1, 400), -10, np.float32)
    table[0, 0] = 0
    weights: Any = vars(base.layers[0].attention) | {
        "table": table, "value": np.full((1, 1, 1), 1e4 * 2.0**-126, np.float32), "output": np.full((1, 1, 1), 1e36, np.float32),
    }  # fmt: skip
    one = np.ones((1, 1), np.float32)
    neurons = FeedForward(np.concatenate([one, -one]), np.zeros(2, np.float32), np.array([[1, -1]], np.float32))
    network = Transformer(one, np.zeros(1, np.float32), (Layer(Attention(**weights), neurons),))
    tokens = np.ones((1, 400, 1), np.float32)
    tokens[0, -1] = 0
    return network, tokens


def test_flushed_products_are_counted() -> None:
    from constructions.exports.fast_rounding import difference_bound

    network, tokens = flushed_network()
    off, allowed = apart(network, tokens)
    assert off.max() > 0.1 and (off <= allowed).all()
    assert difference_bound(network, tokens).max() >= off.max()


def test_overflow_is_no_agreement(tmp_path: Path) -> None:
    """What `run` cannot hold is not compared; what the other program cannot hold is refused."""
    network, _ = flushed_network()
    large = Transformer(np.full((1, 1), 3e38, np.float32), network.bias, network.layers)
    try:
        found = write(large, plain_slots(large), tmp_path / "large.onnx", overwrite=False)
        assert found["difference"] is None or np.isfinite(float(str(found["difference"])))
    except lf.Refusal as refusal:
        assert not (tmp_path / "large.onnx").exists() and "\n" not in str(refusal)
