"""Networks side by side: every number against an independent computation, equal for equal seeds, contradictions found."""

import contextlib
import copy
import io
import itertools
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq

import cli
from analyzer.errors import InputError, Refusal
from analyzer.targets.adaptive import AdaptiveMemory
from analyzer.targets.coupling import CouplingTarget
from analyzer.targets.files import target_of_kind
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.kernel import KernelMemory
from analyzer.toml import read_toml
from constructions.files.bundle import Bundle, load, write
from constructions.files.card import read_files
from constructions.network.transformer import Transformer, to_exact
from constructions.run import reference
from constructions.run.fast import forward
from constructions.run.sensitivity import network_kernel, target_kernel
from constructions.run.stream import attended
from constructions.theorems import shift_chain as chain
from constructions.training import trainable as learning
from tests.conftest import random_network
from verify.bundles.claims import card_of
from verify.compare import side_by_side as compare
from verify.compare.side_by_side import ComparisonProtocol
from verify.layers import dp_free
from verify.theorems.floors import NetworkFloor
from verify.theorems.shift_chain import verify as certify_chain

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
LAG_2 = FixedMemory((2,))
COUPLING = {"kind": "coupling", "length": 7, "rho": "u*v"}


def build(*arguments: object) -> None:
    with contextlib.redirect_stdout(io.StringIO()):  # bundles are made in the middle of tests that read what commands print
        cli.cli([str(a) for a in arguments], standalone_mode=False)


def trained(path: Path, shape: learning.Shape, target: Any = LAG_2, named: bool = True) -> Transformer:
    """300 steps from a random start, as a bundle."""
    recipe = learning.TrainingRecipe(length=10, first=2, batch=32, steps=300, rate=2e-2)
    network, _ = learning.train(learning.initial(shape, 1, 0, 4), target, recipe)
    card = {"origin": "trained", "theorem": None, "sizes": network.sizes()} | ({"target": target.describe()} if named else {})
    write(path, network, card, "")
    return network


MADE: dict[str, tuple[object, ...] | learning.Shape] = {
    "float": ("fixed", "--lags", 2, "--bank", "minimal", "--dtype", "float32", "--error", 0.05),
    "exact": ("fixed", "--lags", 2, "--error", 1e-3),
    "other": ("fixed", "--lags", 3, "--error", 0.1),
    "plane": ("fixed", "--lags", 2, "--dim", 2, "--error", 0.1),
    "nested": ("adaptive", "--target", EXAMPLES / "nested.toml"),
    "coupling": ("coupling", "--rho", "u*v/2", "--length", 6, "--error", 0.2),
    "linear": learning.Shape(heads=3, readout="affine"),
    "deep": learning.Shape(heads=2, width=4, layers=2, model_dim=3, attention="dp", window="finite", rpe="log"),
    "table": learning.Shape(heads=2, model_dim=3, rpe="table", reach=5, readout="affine"),
}
"""What is built, or trained, for the comparisons."""


class Places(dict[str, Path]):
    """Bundles by name, each made when it is asked for."""

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root

    def __missing__(self, name: str) -> Path:
        self[name] = place = self.root / name
        made = MADE[name]
        if isinstance(made, learning.Shape):
            trained(place, made, named=name != "table")
        else:
            build("build", *made, "--out", place, "--json")
        return place


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(tmp_path_factory.mktemp("compared"))


def bundle(path: Path) -> Bundle:
    return load(read_files(path))


def without_seconds(data: dict[str, Any]) -> dict[str, Any]:
    data = copy.deepcopy(data)
    assert data.pop("seconds") > 0
    for column in data["networks"]:
        assert column.pop("seconds") > 0
    return data


def linear_kernel(network: Transformer, count: int) -> np.ndarray:
    """κ(s) = u_0 of W_E + Σ_h W_O W_V W_E (1 − z) z^s, for lin heads and the read-out u_0."""
    a = network.layers[0].attention
    embedding = np.asarray(network.embedding, np.float64)[:, 0]
    kernel = np.zeros(count)
    kernel[0] = embedding[0]
    for h in range(len(a.rpe)):
        z = math.exp(-float(a.decay[h]))
        gain = np.asarray(a.output[h], np.float64)[0] @ (np.asarray(a.value[h], np.float64) @ embedding)
        kernel += gain * (1 - z) * z ** np.arange(count)
    return kernel


@pytest.mark.deep
def test_constructed_beside_trained(run: Any, places: dict[str, Path], tmp_path: Path) -> None:
    arguments = [places["float"], places["linear"], places["table"], places["deep"], "--sequences", 40, "--length", 24]
    first = run("compare", *arguments, "--json")
    assert first.code == 0 and first.err == ""
    found = first.json
    assert without_seconds(run("compare", *arguments, "--json").json) == without_seconds(found)
    other = run("compare", places["float"], places["exact"], "--sequences", 40, "--length", 24, "--seed", 1, "--json").json
    assert other["networks"][0]["sampled"] != found["networks"][0]["sampled"]

    made, linear, table, deep = found["networks"]
    assert [n["name"] for n in found["networks"]] == ["float", "linear", "table", "deep"]
    assert [n["origin"] for n in found["networks"]] == ["constructed", "trained", "trained", "trained"]
    assert made["theorem"] == "thm-3.1" and linear["theorem"] is None
    # embedding 2 + 2; two heads: decay 1, W_V 2, W_O 2 each; feed-forward 4 + 2 + 2
    assert made["sizes"]["parameters"] == 4 + 2 * 5 + 8
    # the same with three heads; with biases for 5 distances, D = 3: 6; two heads: 1 + 3 + 3 + 5; feed-forward 6 + 2 + 2
    assert linear["sizes"]["parameters"] == 4 + 3 * 5 + 8 and table["sizes"]["parameters"] == 6 + 2 * 12 + 10

    # errors: the same tokens, the network as a convolution with the kernel of its weights
    tokens = np.random.default_rng(0).uniform(-1, 1, (40, 24, 1)).astype(np.float32).astype(float)[..., 0]
    kernel = linear_kernel(bundle(places["linear"]).network, 24)
    outputs = np.array([np.convolve(kernel, x)[:24] for x in tokens])
    errors = np.abs(outputs[:, 2:] - tokens[:, :-2])
    roots = np.sqrt((errors**2).mean(axis=1))
    sampled = linear["sampled"]
    assert sampled["rms"]["mean"] == pytest.approx(roots.mean(), rel=1e-5)
    assert sampled["rms"]["std"] == pytest.approx(roots.std(ddof=1), rel=1e-4)
    assert sampled["max"]["mean"] == pytest.approx(errors.max(axis=1).mean(), rel=1e-5)
    assert sampled["overall"]["max"] == pytest.approx(errors.max(), rel=1e-5)
    assert sampled["overall"]["rms"] == pytest.approx(np.sqrt((errors**2).mean()), rel=1e-5)

    # a linear network's effective kernel is its kernel, and its worst case the ℓ¹ distance from the target's
    np.testing.assert_allclose(linear["kernel"][0], kernel, atol=1e-9)
    spike = (np.arange(24) == 2).astype(float)
    np.testing.assert_allclose(found["target_kernel"][0], spike, atol=1e-14)
    distances = {(d["a"], d["b"]): d["l1"] for d in found["kernel_distances"]}
    assert len(distances) == 10
    assert distances["target", "linear"] == pytest.approx(np.abs(kernel - spike).sum(), abs=1e-9)
    difference = np.abs(np.array(made["kernel"]) - np.array(deep["kernel"])).sum()
    assert distances["float", "deep"] == pytest.approx(difference)
    whole = np.abs(linear_kernel(bundle(places["linear"]).network, 4000) - (np.arange(4000) == 2)).sum()
    assert linear["certificate"]["certified"] == pytest.approx(whole, rel=1e-4)
    for column in (made, linear, table):
        chain = column["certificate"]
        assert chain["by"] == "dp-free layer" and chain["reason"] is None
        assert 0 < chain["witness"] <= chain["certified"] and column["sampled"]["overall"]["max"] <= chain["certified"]
    none = deep["certificate"]
    assert none["by"] is none["certified"] is none["witness"] is None and "2 layers" in none["reason"]

    # decays: half-lives, the assignment, tables
    p = np.sort(bundle(places["linear"]).network.layers[0].attention.decay.astype(float))
    np.testing.assert_allclose(linear["decays"][0]["half_lives"], np.log(2) / p[::-1])
    q = np.sort(bundle(places["float"]).network.layers[0].attention.decay.astype(float))
    best = min(np.abs(np.log(q) - np.log(p[list(chosen)])).mean() for chosen in itertools.permutations(range(3), 2))
    assert linear["decays_off"]["mean_log_ratio"] == pytest.approx(best) and linear["decays_off"]["unmatched"] == [0, 1]
    assert "decays_off" not in made and deep["decays_off"] is None
    weights = np.exp(bundle(places["table"]).network.layers[0].attention.table.astype(float))
    shares = weights / weights.sum(axis=1, keepdims=True)
    assert sorted(t["distance"] for t in table["decays"][0]["tables"]) == sorted(shares.argmax(axis=1).tolist())
    assert sorted(t["share"] for t in table["decays"][0]["tables"]) == pytest.approx(sorted(shares.max(axis=1)))
    assert [len(layer["exponents"]) for layer in deep["decays"]] == [2, 2]

    # probes: the error e of a memory slot costs e² Σ.. of the variance at most; a stream of two coordinates by hand
    assert [(probe["layer"], probe["memory"]) for probe in deep["probes"]] == [(0, "m1"), (1, "m1")]
    assert made["probes"][0]["r2"] > 1 - made["certificate"]["certified"] ** 2 * 1.5
    stream = reference.stream(bundle(places["linear"]).network, tokens[..., None].astype(np.float32))[0]
    features = np.concatenate([np.asarray(stream, float)[:, 2:], np.ones((40, 22, 1))], axis=-1)
    fit, rest = features[:20].reshape(-1, 3), features[20:].reshape(-1, 3)
    wanted = tokens[20:, :-2].ravel()
    residual = rest @ np.linalg.lstsq(fit, tokens[:20, :-2].ravel(), rcond=None)[0] - wanted
    assert linear["probes"][0]["r2"] == pytest.approx(1 - (residual**2).sum() / ((wanted - wanted.mean()) ** 2).sum(), abs=1e-4)


@pytest.mark.deep
def test_the_page_and_the_figure(run: Any, places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    figure = tmp_path / "side.png"
    shown = run("compare", places["exact"], places["deep"], places["table"], "--sequences", 20, "--figure", figure)
    assert shown.code == 0 and figure.read_bytes().startswith(b"\x89PNG")
    for text in ("constructed", "trained", "dp-free layer", "2 × dp, 2 log, finite", "R² m1, layer 2 (sampled)", "rms error (sampled)"):
        assert text in shown.out
    assert "deep, certificate: this network has 2 layers" in shown.out and compare.COUNTING_RULE in shown.out
    missing = run("compare", places["table"], places["table"])
    assert missing.code == 2 and "give a target" in missing.err


def test_a_memory_slot_is_found_and_a_lost_one_is_missed(places: dict[str, Path]) -> None:
    network = bundle(places["exact"]).network
    tokens = compare.sequences_of(LAG_2, ComparisonProtocol(80, 14, 2, 0, "uniform"))
    (probe,) = compare.probes(network, LAG_2, 2, tokens)
    assert 1 - 1e-5 < probe["r2"] <= 1
    layer = network.layers[0]
    silent = replace(network, layers=(replace(layer, attention=replace(layer.attention, output=layer.attention.output * fmpq(0))),))
    (lost,) = compare.probes(silent, LAG_2, 2, tokens)
    assert lost["r2"] < 0.05
    assert compare.decays_of(silent.layers[0].attention)["half_lives"] == []  # heads that are off do not count


@pytest.mark.deep
def test_adaptive_memories_and_lags_layer_by_layer(run: Any, places: dict[str, Path]) -> None:
    found = run("compare", places["nested"], places["nested"], "--sequences", 60, "--json").json
    column, again = found["networks"]
    assert again["name"] == f"{column['name']} (2)"
    assert column["certificate"]["by"] == "thm-4.4" and found["tokens"] == "letters"
    assert column["sampled"]["overall"]["max"] <= column["certificate"]["certified"] * (1 + compare.EVALUATION)
    r2 = {(probe["layer"], probe["memory"]): probe["r2"] for probe in column["probes"]}
    assert min(r2[0, "lag of m1"], r2[1, "m1"], r2[1, "lag of m2"], r2[2, "m2"]) > 0.999
    assert max(r2[0, "m1"], r2[0, "lag of m2"], r2[1, "m2"]) < 0.7


@pytest.mark.deep
def test_couplings_have_sizes_errors_and_their_theorem(run: Any, places: dict[str, Path], tmp_path: Path) -> None:
    result = run("compare", places["coupling"], places["coupling"], "--sequences", 30, "--figure", tmp_path / "c.png", "--json")
    found = result.json
    assert result.code == 0 and found["length"] == 6 and found["target_kernel"] is None and found["kernel_distances"] == []
    column = found["networks"][0]
    assert column["kernel"] is None and column["probes"] == [] and column["certificate"]["by"] == "jl-4.2"
    assert column["sampled"]["overall"]["max"] <= column["certificate"]["certified"] + compare.EVALUATION
    # against another coupling: softmax means of the tokens with logits uv/2 and uv
    (tmp_path / "t.toml").write_text('kind = "coupling"\nlength = 6\nrho = "u*v"\n')
    arguments = [places["coupling"], places["coupling"], "--target", tmp_path / "t.toml", "--sequences", 30, "--json"]
    other = run("compare", *arguments).json["networks"][0]
    assert other["certificate"]["certified"] is None and "another target" in other["certificate"]["reason"]
    x = np.random.default_rng(0).uniform(0, 1, (30, 6, 1)).astype(np.float32).astype(float)[..., 0]
    means = []
    for factor in (0.5, 1):
        weights = np.exp(factor * x[:, :, None] * x[:, None, :])
        means.append((weights * x[:, None, :]).sum(-1) / weights.sum(-1))
    assert other["sampled"]["overall"]["max"] == pytest.approx(np.abs(means[0] - means[1]).max(), rel=1e-9)
    assert run("compare", places["coupling"], places["coupling"], "--length", 5).code == 2


@pytest.mark.deep
def test_targets_must_agree_or_be_given(run: Any, places: dict[str, Path], tmp_path: Path) -> None:
    refused = run("compare", places["exact"], places["other"])
    assert refused.code == 2 and "give a target" in refused.err
    (tmp_path / "t.toml").write_text('kind = "fixed"\nlags = [3]\n')
    found = run("compare", places["exact"], places["other"], "--target", tmp_path / "t.toml", "--sequences", 10, "--json").json
    wrong, right = found["networks"]
    assert right["certificate"]["certified"] <= 0.1 < 1 < wrong["certificate"]["witness"] <= wrong["certificate"]["certified"]
    dims = run("compare", places["exact"], places["plane"], "--target", tmp_path / "t.toml")
    assert dims.code == 2 and "dimension 2" in dims.err and dims.err.count("\n") == 1
    pointer = target_of_kind(read_toml(EXAMPLES / "pointer.toml"), "", AdaptiveMemory)
    found = compare.certificate(bundle(places["nested"]), pointer, 0)
    assert found["by"] == "layer by layer" and 0.9 < found["witness"] <= found["certified"] < 1  # lags of another target
    reason = compare.certificate(bundle(places["nested"]), FixedMemory((1,)), 0)["reason"]
    assert reason.endswith("the card's theorem speaks of another target")


def test_a_witness_that_is_not_made_of_letters_is_not_shown(places: dict[str, Path]) -> None:
    lettered = FixedMemory((2,), alphabet=(fmpq(-1, 2), fmpq(1, 2)))
    plain, restricted = (compare.certificate(bundle(places["exact"]), target, 0) for target in (LAG_2, lettered))
    assert plain["witness"] > 0 and restricted["witness"] is None and restricted["certified"] == plain["certified"]


def test_signs_are_drawn() -> None:
    tokens = compare.sequences_of(LAG_2, ComparisonProtocol(4, 6, 2, 3, "signs"))
    assert set(np.unique(tokens)) == {-1.0, 1.0}


@pytest.mark.deep
def test_a_contradicted_certificate_is_a_fault(run: Any, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    honest = dp_free.layer_error

    def small(network: Transformer, target: Any, *, seed: int, length: int | None) -> dp_free.LayerError:
        return replace(honest(network, target, seed=seed, length=length), witness=0.0, certified=1e-3)

    monkeypatch.setattr(dp_free, "layer_error", small)
    result = run("compare", places["float"], places["linear"], "--sequences", 10, "--json")
    assert result.code == 1 and all("exceeds the certified error 0.001" in n["faults"][0] for n in result.json["networks"])

    def refusing(network: Transformer, target: Any, *, seed: int, length: int | None) -> dp_free.LayerError:
        raise Refusal("not this one")

    monkeypatch.setattr(dp_free, "layer_error", refusing)
    made, linear = run("compare", places["float"], places["linear"], "--sequences", 10, "--json").json["networks"]
    assert made["certificate"]["by"] == "thm-3.1" and linear["certificate"]["reason"] == "not this one" and not linear["faults"]


@pytest.mark.deep
def test_a_mean_square_below_its_floor_is_a_fault(run: Any, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three heads reach lag 2, so the floor is 0; a table has none; a floor above what was sampled must be noticed."""
    arguments = ("compare", places["linear"], places["table"], "--sequences", 40, "--length", 12, "--json")
    found = run(*arguments)
    linear, table = found.json["networks"]
    assert found.code == 0 and linear["mean_square_floor"] == 0 and linear["mean_square_floor_reason"] is None
    assert table["mean_square_floor"] is None and table["mean_square_floor_reason"]
    monkeypatch.setattr(compare, "floor_of", lambda *_: NetworkFloor(1.0, 3))
    wrong = run(*arguments)
    assert wrong.code == 1 and all("no 3 heads can beat" in n["faults"][-1] for n in wrong.json["networks"])


def witnessless(found: Any) -> Any:
    return replace(found, witness=0.0, witness_input="none")


@pytest.mark.deep(keep="chain")
@pytest.mark.parametrize("name", ["float", "exact", "linear", "table", "nested", "coupling", "chain", "float chain", "finite"])
def test_the_witness_is_no_smaller_than_what_was_sampled(
    name: str, run: Any, places: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Certificates that come without a witness are given the worst of the sample, from below and in their own arithmetic."""
    layer, theorem = dp_free.layer_error, compare.verify_in_form
    monkeypatch.setattr(dp_free, "layer_error", lambda *a, **options: witnessless(layer(*a, **options)))
    monkeypatch.setattr(compare, "verify_in_form", lambda *given, **norm: witnessless(theorem(*given, **norm)))
    path, arguments = places[name] if name in MADE else tmp_path / "net", ["--sequences", 12]
    if name.endswith("chain"):
        dtype = "exact" if name == "chain" else "float64"
        built = chain.build(FixedMemory((4,), 1, "x0 + m1/2"), error=0.1, depth=2, dtype=dtype)
        write(path, built.network, card_of(built, certify_chain(built.network, built.target, built.bank, built.ffn)), "")
    if name == "finite":
        trained(path, learning.Shape(heads=2, window="finite", rpe="log", readout="affine"))
        card = {k: v for k, v in bundle(path).card.items() if k not in ("format", "version", "integrity")}
        write(tmp_path / "length", bundle(path).network, {**card, "training": {"recipe": {"length": 9}}}, "")
        path = tmp_path / "length"
    if name == "table":
        (tmp_path / "t.toml").write_text('kind = "fixed"\nlags = [2]\n')
        arguments += ["--target", tmp_path / "t.toml"]
    found = run("compare", path, path, *arguments, "--json")
    assert found.code == 0, found.err
    column = found.json["networks"][0]
    chain_, worst = column["certificate"], column["sampled"]["overall"]["max"]
    assert chain_["by"] == {"nested": "thm-4.4", "coupling": "jl-4.2", "chain": "shift-chain"}.get(name.split()[-1], "dp-free layer")
    assert chain_["witness_input"].startswith("sampled sequence ") and 0 < chain_["witness"] <= chain_["certified"]
    exact = chain_["arithmetic"] not in ("float32", "float64")
    assert chain_["witness_input"].endswith("in ball arithmetic" if exact else f"run in {chain_['arithmetic']}")
    if name == "finite":  # only the last of 9 tokens counts
        assert ", token 8, " in chain_["witness_input"] and chain_["witness"] < worst * (1 + 1e-9)
    else:
        assert chain_["witness"] == pytest.approx(worst, rel=1e-6, abs=1e-13)


@pytest.mark.deep
def test_a_larger_witness_stays(run: Any, places: dict[str, Path]) -> None:
    column = run("compare", places["float"], places["exact"], "--sequences", 4, "--json").json["networks"][0]
    assert column["certificate"]["witness"] > column["sampled"]["overall"]["max"]
    assert column["certificate"]["witness_input"].startswith("ascent")


def test_a_sampled_error_that_is_certain_is_a_fault(run: Any, places: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Within float64's own rounding of the certificate a sample proves nothing; evaluated again in balls it does."""
    honest, exact = dp_free.layer_error, dp_free.output_at
    seen = run("compare", places["exact"], places["exact"], "--sequences", 6, "--json").json["networks"][0]["sampled"]["overall"]["max"]
    shown = seen * (1 - 2.0**-42)
    monkeypatch.setattr(dp_free, "layer_error", lambda *a, **o: replace(honest(*a, **o), witness=0.0, certified=shown))
    result = run("compare", places["exact"], places["exact"], "--sequences", 6, "--json")
    column = result.json["networks"][0]
    assert result.code == 1 and "in the certificate's own arithmetic, exceeds it" in column["faults"][0]
    assert column["certificate"]["witness"] == 0  # nothing above certified is called a witness
    monkeypatch.setattr(dp_free, "output_at", lambda *a: exact(*a) * arb(0, 2))  # a ball that contains everything shows nothing
    assert run("compare", places["exact"], places["exact"], "--sequences", 6, "--json").code == 0


@pytest.mark.deep(keep="log-finite")
@pytest.mark.parametrize("rpe,window", [("lin", "infinite"), ("log", "infinite"), ("log", "finite"), ("table", "infinite")])
def test_outputs_in_balls_are_those_of_the_network(rpe: str, window: str) -> None:
    rng = np.random.default_rng(3)
    network = random_network(rng, [rpe] * 2, window=window, dim=2, bias=False)
    tokens = rng.uniform(-1, 1, (7, 2))
    for count in (3, 7):
        ball = dp_free.output_at(network, FixedMemory((1,)), tokens, count - 1)
        assert float(ball.rad()) < 1e-30 and float(ball.mid()) == pytest.approx(forward(network, tokens[:count])[-1], abs=1e-12)


@pytest.mark.deep
def test_a_false_card_is_a_fault(run: Any, places: dict[str, Path], tmp_path: Path) -> None:
    original = bundle(places["nested"])
    card = {key: value for key, value in original.card.items() if key not in ("format", "version", "integrity")}
    card["chain"] = {**card["chain"], "certified": 1e-9}
    write(tmp_path / "false", original.network, card, "")
    result = run("compare", tmp_path / "false", places["nested"], "--sequences", 10, "--json")
    assert result.code == 1 and "claims certified" in result.json["networks"][0]["faults"][0] and not result.json["networks"][1]["faults"]


@pytest.mark.deep
@pytest.mark.parametrize("kind,window,rpe", [("dp", "finite", "lin"), ("dp", "infinite", "log"), ("nf", "infinite", "lin")])
def test_kernels_are_derivatives(kind: str, window: str, rpe: str) -> None:
    rng = np.random.default_rng(5)
    network = random_network(rng, [rpe] * 2, kind, window, layers=2, dim=2)
    tokens = rng.uniform(-0.9, 0.9, (3, 7, 2))
    kernel = network_kernel(network, tokens)
    assert kernel.shape == (2, 7)
    step = 1e-6
    for s, i in itertools.product(range(7), range(2)):
        moved = np.zeros((7, 2))
        moved[6 - s, i] = step
        slope = (forward(network, tokens + moved)[:, -1] - forward(network, tokens - moved)[:, -1]).mean() / (2 * step)
        assert kernel[i, s] == pytest.approx(slope, abs=1e-7)


@pytest.mark.deep
def test_derivatives_that_overflow_are_refused() -> None:
    network = random_network(np.random.default_rng(1), ["lin"], dim=1)
    ffn = network.layers[0].feedforward
    steep = replace(ffn, inner=np.full_like(ffn.inner, 1e200), bias=np.ones_like(ffn.bias), outer=np.full_like(ffn.outer, 1e200))
    with pytest.raises(Refusal, match="not finite"):
        network_kernel(replace(network, layers=(replace(network.layers[0], feedforward=steep),)), np.full((2, 5, 1), 0.5))


@pytest.mark.deep
@pytest.mark.deep(only="1")
@pytest.mark.parametrize("layers", [1, 2])
def test_exact_kernels_and_streams_are_those_of_floats(layers: int) -> None:
    """The fused way and the reference pass agree where nothing cancels."""
    rng = np.random.default_rng(2)
    network = random_network(rng, ["lin", "log"], layers=layers, bias=False)
    if layers == 2:  # between layers a linear map: relu(u) − relu(−u)
        first, last = network.layers
        mixed = replace(
            first.feedforward, inner=np.vstack([np.eye(3), -np.eye(3)]), bias=np.zeros(6), outer=np.hstack([np.eye(3), -np.eye(3)])
        )
        network = replace(network, layers=(replace(first, feedforward=mixed), last))
    exact = network.map(to_exact)
    tokens = rng.uniform(-1, 1, (5, 9, 2))
    np.testing.assert_allclose(network_kernel(exact, tokens), network_kernel(network, tokens), atol=1e-12)
    for ours, theirs in zip(attended(exact, tokens, 3), attended(network, tokens, 3), strict=True):
        assert ours.shape == (5, 6, 3)
        np.testing.assert_allclose(ours, theirs, atol=1e-12)


@pytest.mark.deep
def test_cancelling_weights_are_refused_not_differentiated(places: dict[str, Path], tmp_path: Path) -> None:
    build("build", "adaptive", "--target", EXAMPLES / "pointer.toml", "--bank", "tuned", "--heads", 24, "--out", tmp_path / "p", "--json")
    huge = bundle(tmp_path / "p").network
    target = target_of_kind(read_toml(EXAMPLES / "pointer.toml"), "", AdaptiveMemory)
    tokens = target.draw(np.random.default_rng(0), (6, 12))
    with pytest.raises(Refusal, match="cancel in float64"):
        network_kernel(huge, tokens)
    assert [x.shape for x in attended(huge, tokens, 4)] == [(6, 8, 4)] * 2


def test_target_kernels_by_hand() -> None:
    rng = np.random.default_rng(7)
    tokens = rng.uniform(-1, 1, (50, 8, 1))
    square = target_kernel(FixedMemory((2, 5), 1, "x0 + m1*m2"), tokens)[0]
    wanted = np.zeros(8)
    wanted[[0, 2, 5]] = 1, tokens[:, 2, 0].mean(), tokens[:, 5, 0].mean()
    np.testing.assert_allclose(square, wanted, atol=1e-14)
    fading = target_kernel(KernelMemory(("exp(-s/5)", "exp(-s)"), 1, "2*k1 - k2"), tokens)[0]
    s = np.arange(8)
    np.testing.assert_allclose(fading, 2 * np.exp(-s / 5) - np.exp(-s), rtol=1e-12)
    pointer = target_of_kind(read_toml(EXAMPLES / "pointer.toml"), "", AdaptiveMemory)
    letters = pointer.draw(rng, (50, 8))
    counts = np.bincount((4 * letters[:, -1, 0]).astype(int), minlength=8) / 50
    np.testing.assert_allclose(target_kernel(pointer, letters)[0], counts, atol=1e-14)
    with pytest.raises(Refusal):
        target_kernel(target_of_kind(COUPLING, "", CouplingTarget), tokens)


def test_lengths_follow_the_slowest_head() -> None:
    network = random_network(np.random.default_rng(0), ["lin"], dim=1)

    def slow(p: float, rpe: str = "lin") -> Transformer:
        attention = replace(network.layers[0].attention, decay=np.array([p]), rpe=(rpe,))
        return replace(network, layers=(replace(network.layers[0], attention=attention),))

    lengths = [
        compare.derived_length(LAG_2, [n]) for n in (slow(50), slow(math.log(2) / 19.95), slow(1e-6), slow(3.5, "log"), slow(1.1, "log"))
    ]
    assert lengths == [12, 202, 256, 2 + 16, 256]
    assert compare.derived_length(FixedMemory((1000,)), [slow(1e-6)]) == 1010
    kernel = KernelMemory(("exp(-s/5)",))  # e^{−s/5} has fallen below 2^−10 after 5 ln 2^10 = 34.66 tokens
    assert compare.derived_length(kernel, [slow(50)]) == 35
    two = replace(network, layers=slow(math.log(2) / 3.94).layers * 2)
    assert compare.derived_length(LAG_2, [two]) == 2 + 79
    assert compare.derived_length(target_of_kind(COUPLING, "", CouplingTarget), [network]) == 7


@pytest.mark.deep
def test_strange_origins_are_refused() -> None:
    assert compare.origin_of({}) == "constructed" and compare.origin_of({"origin": "imported"}) == "imported"
    with pytest.raises(InputError):
        compare.origin_of({"origin": "found"})
