"""The command `train`: bundles of trained networks, their certificates and their checkpoints; damage is caught."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from flint import fmpq

from analyzer.targets.fixed import FixedMemory
from constructions.files.bundle import load, write
from constructions.files.card import read_files
from constructions.network.transformer import Attention, Layer, Transformer
from constructions.run import fast
from constructions.training.trainable import affine_readout, train
from tests.conftest import Result
from verify.theorems.no_theorem import verify_learnt

Run = Callable[..., Result]
TABLE = ("train", "--lags", "2", "--rpe", "table", "--linear", "--heads", "2", "--reach", "5", "--steps", "400", "--rate", "0.03")
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@pytest.mark.deep
def test_a_trained_bundle_is_certified_verified_and_run(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "net"
    trained = run(*TABLE, "--out", out, "--json")
    assert trained.code == 0 and trained.err == ""
    assert trained.json["origin"] == "trained" and trained.json["training"]["loss"] < 1e-2 < trained.json["training"]["first_loss"]
    assert 0 < trained.json["witness"] <= trained.json["certified"] < 0.5 and trained.json["verdict"] == "holds"
    again = run("verify", out, "--json")
    assert again.code == 0 and again.json["certified"] == trained.json["certified"] and again.json["witness"] == trained.json["witness"]
    keys = {"theorem", "verdict", "witness", "certified", "bound", "parts", "sizes", "dtype", "rounding", "seconds"}
    assert keys <= set(again.json)
    tokens = np.random.default_rng(0).uniform(-1, 1, 60)
    np.save(tmp_path / "x.npy", tokens)
    assert run("run", out, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy").code == 0
    assert np.abs(np.load(tmp_path / "y.npy")[2:] - tokens[:-2]).max() <= trained.json["certified"]
    twice = run(*TABLE, "--out", tmp_path / "twice", "--json").json
    assert twice["certified"] == trained.json["certified"] and twice["training"]["loss"] == trained.json["training"]["loss"]


def test_trained_bundles_that_lie_are_caught(run: Run, tmp_path: Path) -> None:
    """A changed weight, a better claim, another target, another size: verify says violated."""
    out = tmp_path / "net"
    assert run(*TABLE, "--out", out).code == 0
    bundle = load(read_files(out))
    card = {k: v for k, v in bundle.card.items() if k not in ("format", "version", "integrity")}
    changed = bundle.network.map(np.array)
    changed.layers[0].attention.table[0, 3] += 2
    write(out, changed, card, "", overwrite=True)
    assert run("verify", out).code == 1
    for lie in (
        {**card, "chain": {**card["chain"], "certified": card["chain"]["certified"] / 2}},
        {**card, "chain": {**card["chain"], "bound": card["chain"]["bound"] / 2}},
        {**card, "chain": {**card["chain"], "witness": 1.0}},
        {**card, "chain": {**card["chain"], "rounding": 0.0}},
        {**card, "sizes": {**card["sizes"], "heads": 1}},
        {**card, "target": {**card["target"], "lags": [1]}},
        {**card, "certificate": "thm-3.1"},
        {**card, "theorem": "thm-3.1"},
        {**card, "chain": {**card["chain"], "certified": "1\n2" * 999}},
        {k: v for k, v in card.items() if k != "chain"},
    ):
        write(out, bundle.network, lie, "", overwrite=True)
        assert run("verify", out).code == 1, lie
        fault = run("verify", out, "--json").json["advice"]
        assert "\n" not in fault and len(fault) < 400
    write(out, bundle.network, {**card, "target": None}, "", overwrite=True)
    assert "names no target" in run("verify", out).err
    write(out, bundle.network, card, "", overwrite=True)
    assert run("verify", out).code == 0
    weights = out / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x01")
    assert run("verify", out).code == 2


@pytest.mark.deep
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--lags", "1", "--attention", "nf"], "attention is nf"),
        (["--lags", "1", "--layers", "2"], "2 layers"),
        (["--target", EXAMPLES / "pointer.toml", "--attention", "tmx", "--rpe", "log"], "logarithm of a slot"),
        (["--target", EXAMPLES / "low_rank.toml", "--attention", "dp", "--rpe", "none", "--window", "full"], "coupling"),
    ],
)
def test_targets_and_networks_of_every_kind_are_trained_and_measured(
    run: Run, tmp_path: Path, arguments: list[object], reason: str
) -> None:
    out = tmp_path / "net"
    result = run("train", *arguments, "--heads", "2", "--width", "8", "--steps", "40", "--batch", "8", "--out", out, "--json")
    assert result.code == 0, result.err
    assert result.json["certified"] is None and result.json["bound"] is None and result.json["verdict"] == "measured"
    assert result.json["bound_vacuous"] is False and "measured on random sequences only" in result.json["advice"]
    assert result.json["witness"] > 0 and reason in result.json["uncertified"]
    again = run("verify", out, "--json")
    assert again.code == 0 and again.json["witness"] == result.json["witness"]


NESTED = (
    "train",
    "--target",
    EXAMPLES / "nested.toml",
    "--attention",
    "dp",
    "--rpe",
    "table",
    "--reach",
    "3",
    "--layers",
    "2",
    "--heads",
    "2",
)


@pytest.mark.deep
def test_two_layers_on_letters_are_certified_and_a_changed_weight_is_caught(run: Run, tmp_path: Path) -> None:
    """All sequences of letters; one weight of a hundredth more or less makes the worst case worse than the card says."""
    out = tmp_path / "net"
    trained = run(*NESTED, "--width", "8", "--steps", "30", "--batch", "8", "--out", out, "--json")
    assert trained.code == 0, trained.err
    assert trained.json["theorem"] == "all sequences" and 0 < trained.json["witness"] <= trained.json["certified"]
    assert trained.json["certified"] - trained.json["witness"] <= 2 * trained.json["rounding"] < 0.1
    assert run("verify", out).code == 0
    bundle = load(read_files(out))
    card = {k: v for k, v in bundle.card.items() if k not in ("format", "version", "integrity")}
    codes = []
    for factor in (0.99, 1.01):
        changed = bundle.network.map(np.array)
        outer = changed.layers[-1].feedforward.outer
        outer[0, int(np.abs(outer[0]).argmax())] *= factor
        write(out, changed, card, "", overwrite=True)
        codes.append(run("verify", out).code)
    assert codes.count(1) >= 1 and set(codes) <= {0, 1}
    for lie in ({"certified": card["chain"]["certified"] / 2}, {"rounding": 0.0}, {"witness": 2 * card["chain"]["certified"]}):
        write(out, bundle.network, {**card, "chain": {**card["chain"], **lie}}, "", overwrite=True)
        assert run("verify", out).code == 1


@pytest.mark.deep
def test_a_softmax_layer_is_certified_and_a_changed_weight_is_caught(run: Run, tmp_path: Path) -> None:
    """Tokens in [−1, 1]; a hundredth more of one weight makes the worst case worse than the card says, a damaged file is no bundle."""
    out = tmp_path / "net"
    flags = ("--attention", "dp", "--rpe", "table", "--heads", "1", "--linear", "--length", "6", "--steps", "60", "--batch", "16")
    trained = run("train", "--lags", "1,2", *flags, "--out", out, "--json")
    assert trained.code == 0, trained.err
    assert trained.json["theorem"] == "softmax layer" and trained.json["verdict"] in ("holds", "vacuous")
    assert 0.99 * trained.json["certified"] <= trained.json["witness"] <= trained.json["certified"]
    assert run("verify", out, "--seconds", "1").code == 0
    refused = run("verify", out, "--seconds", "-1")
    assert refused.code == 2 and "seconds -1" in refused.err
    bundle = load(read_files(out))
    card = {k: v for k, v in bundle.card.items() if k not in ("format", "version", "integrity")}
    codes = []
    for factor in (0.99, 1.01):
        changed = bundle.network.map(np.array)
        changed.layers[0].attention.output[...] *= np.float32(factor)
        write(out, changed, card, "", overwrite=True)
        codes.append(run("verify", out).code)
    assert sorted(codes) == [0, 1]
    for lie in ({"certified": 0.99 * card["chain"]["certified"]}, {"rounding": 0.0}, {"witness": 2 * card["chain"]["certified"]}):
        write(out, bundle.network, {**card, "chain": {**card["chain"], **lie}}, "", overwrite=True)
        assert run("verify", out).code == 1
    stored = out / "weights.safetensors"
    stored.write_bytes(stored.read_bytes()[:-1] + b"!")
    assert run("verify", out).code == 2


@pytest.mark.deep
@pytest.mark.parametrize("attention", ["tmx", "nf", "dp"])
def test_heads_that_look_back_for_ever_are_certified_on_letters(run: Run, tmp_path: Path, attention: str) -> None:
    out = tmp_path / "net"
    arguments = [
        "--target",
        EXAMPLES / "pointer.toml",
        "--attention",
        attention,
        "--heads",
        "2",
        "--width",
        "8",
        "--steps",
        "30",
        "--batch",
        "8",
    ]
    result = run("train", *arguments, "--out", out, "--json")
    assert result.code == 0, result.err
    by = "softmax layer" if attention == "dp" else "layer by layer"
    assert result.json["theorem"] == by and result.json["witness"] <= result.json["certified"]
    assert run("verify", out).code == 0


@pytest.mark.deep
def test_a_finite_window_is_certified_at_its_last_token(run: Run, tmp_path: Path) -> None:
    """log heads with p < 1 need a finite window; the certificate speaks of arrays as long as those of the training."""
    out = tmp_path / "net"
    arguments = ["--kernel", "exp(-s)", "--window", "finite", "--rpe", "log", "--heads", "2", "--linear", "--steps", "40", "--length", "20"]
    result = run("train", *arguments, "--out", out, "--json")
    assert result.code == 0 and result.json["witness"] <= result.json["certified"] < 10 and "exact weights" in result.json["arithmetic"]
    network = load(read_files(out)).network
    attention = network.layers[0].attention
    kernel = np.zeros(20)
    for h in range(2):
        weights = np.arange(1, 20) ** -float(attention.decay[h])
        kernel[1:] += float((attention.output[h] @ attention.value[h] @ network.embedding)[0, 0]) * weights / weights.sum()
    kernel[0] += float(network.embedding[0, 0])
    beside = run("compare", out, out, "--length", "20", "--sequences", "4", "--json").json["networks"][0]["certificate"]
    assert beside["certified"] == result.json["certified"] and beside["over"].endswith("at the last of 20")
    assert result.json["certified"] == pytest.approx(np.abs(kernel - np.exp(-np.arange(20.0))).sum(), rel=1e-5)


@pytest.mark.deep
def test_training_goes_on_from_a_bundle_and_from_a_checkpoint(run: Run, tmp_path: Path) -> None:
    out, more, place = tmp_path / "net", tmp_path / "more", tmp_path / "run.ckpt"
    assert run(*TABLE, "--out", out, "--checkpoint", place).code == 0
    first = (out / "weights.safetensors").read_bytes()
    resumed = run(*TABLE, "--out", out, "--force", "--checkpoint", place, "--resume", "--json")  # nothing is left to do: the same weights
    assert resumed.json["training"]["steps"] == 400 and (out / "weights.safetensors").read_bytes() == first
    refused = run(*TABLE, "--seed", "1", "--out", out, "--force", "--checkpoint", place, "--resume")
    assert refused.code == 2 and "another run" in refused.err and (out / "weights.safetensors").read_bytes() == first
    place.write_bytes(place.read_bytes()[:500])
    cut = run(*TABLE, "--out", out, "--force", "--checkpoint", place, "--resume")
    assert cut.code == 2 and cut.err.count("\n") == 1 and "damaged" in cut.err
    result = run("train", "--start", out, "--steps", "40", "--out", more, "--json")
    assert result.code == 0 and result.json["training"]["start"] == "bundle" and result.json["training"]["first_loss"] < 1e-2


@pytest.mark.deep
def test_losses_that_are_no_numbers_are_one_line_and_nothing_is_written(run: Run, tmp_path: Path) -> None:
    out, place = tmp_path / "net", tmp_path / "run.ckpt"
    assert run(*TABLE, "--out", out).code == 0
    bundle = load(read_files(out))
    card = {k: v for k, v in bundle.card.items() if k not in ("format", "version", "integrity")}
    write(out, bundle.network.map(lambda leaf: leaf * np.float32(1e30)), card, "", overwrite=True)
    result = run("train", "--start", out, "--steps", "40", "--checkpoint", place, "--out", tmp_path / "new")
    assert result.code == 2 and "not a finite number at step 1" in result.err and result.err.count("\n") == 1
    assert not (tmp_path / "new").exists() and not place.exists()


@pytest.mark.deep
def test_the_command_is_the_library(run: Run, tmp_path: Path) -> None:
    """What the command writes is what `constructions.training.trainable.train` returns for the recipe in the card."""
    from constructions.training.recipes import Shape, Stop, TrainingRecipe
    from constructions.training.trainable import initial

    out = tmp_path / "net"
    assert run("train", "--lags", "1", "--heads", "3", "--width", "8", "--steps", "40", "--seed", "5", "--out", out).code == 0
    bundle = load(read_files(out))
    plain = bundle.card["training"]["recipe"]
    recipe = TrainingRecipe(**{**plain, "stop": Stop(**plain["stop"])})
    start = initial(Shape(heads=3, width=8, model_dim=2, key_dim=2), 1, 5, recipe.length)
    network, _ = train(start, FixedMemory((1,)), recipe)
    np.testing.assert_array_equal(network.layers[0].attention.decay, bundle.network.layers[0].attention.decay)


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--seed", "9" * 23), "seed 999"),
        (("--seed", "-1"), "seed -1 is out of range"),
        (("--rate", "nan"), "rate is nan"),
        (("--weight-decay", "nan"), "weight_decay is nan"),
        (("--weight-decay", "inf"), "weight_decay is inf"),
        (("--batch", "0"), "batch 0 is out of range"),
        (("--model-dim", "0"), "model_dim 0 is out of range"),
        (("--rpe", "table", "--reach", "0"), "reach 0 is out of range"),
        (("--attention", "dp", "--key-dim", "0"), "key_dim is 0"),
    ],
)
def test_numbers_no_training_has_are_refused_by_name(run: Run, tmp_path: Path, flags: tuple[str, ...], words: str) -> None:
    refused = run("train", "--lags", "2", "--steps", "40", *flags, "--out", tmp_path / "net")
    assert refused.code == 2 and words in refused.err and refused.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.deep
def test_a_checkpoint_does_not_take_the_place_of_the_bundle(run: Run, tmp_path: Path) -> None:
    """At the end the bundle could not be written, and the run would be lost."""
    out = tmp_path / "net"
    same = run(*TABLE, "--out", out, "--checkpoint", tmp_path / "." / "net")
    assert same.code == 2 and "outside it" in same.err and not out.exists()
    assert run("train", "--lags", "1", "--heads", "1", "--steps", "40", "--out", out).code == 0
    inside = run(*TABLE, "--out", out, "--force", "--checkpoint", out / "run.ckpt")
    assert inside.code == 2 and "outside it" in inside.err and not (out / "run.ckpt").exists()
    structure = run("train", "--start", out, "--heads", "1", "--steps", "40", "--out", tmp_path / "more")
    assert structure.code == 2 and "heads does not go with a start" in structure.err


def test_letters_count_as_given_in_the_network_s_type() -> None:
    """A network that returns x_{t−1} to the last bit has no error on 0.1, though float32 has no such number."""
    empty = np.zeros((1, 0, 2), np.float32)
    heads = Attention(
        np.zeros(1, np.float32), np.array([[[0, 1]]], np.float32), np.array([[[1], [0]]], np.float32), empty, empty,
        np.zeros((0, 2), np.float32), ("table",), table=np.array([[-1000, 0]], np.float32),
    )  # fmt: skip
    embedding = np.array([[0], [1]], np.float32)
    network = Transformer(embedding, np.zeros(2, np.float32), (Layer(heads, affine_readout(2, "float32")),))
    found = verify_learnt(network, FixedMemory((1,), 1, None, (fmpq(-1), fmpq(1, 10), fmpq(1))))
    assert found.witness == 0 <= found.certified < 1e-5


@pytest.mark.deep
def test_the_witness_of_an_alphabet_is_made_of_letters(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "letters.toml"
    target.write_text('kind = "fixed"\nlags = [1]\nalphabet = [-1, 1]\n')
    result = run("train", "--target", target, "--heads", "2", "--steps", "40", "--length", "12", "--out", tmp_path / "net", "--json")
    assert (
        result.code == 0 and 0 < result.json["witness"] <= result.json["certified"] and "random sequences" in result.json["witness_input"]
    )
    network = load(read_files(tmp_path / "net")).network
    letters = np.random.default_rng(0).choice([-1.0, 1.0], (512, 12, 1))
    errors = np.abs(fast.forward(network, letters)[:, -1] - letters[:, -2, 0])
    assert result.json["witness"] <= errors.max() * 1.5
