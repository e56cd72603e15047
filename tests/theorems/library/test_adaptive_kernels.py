"""Adaptive kernels: one head for an exponential and for a power, every lag against the formula, brute force, floats, sabotage."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from flint import arb

import lemmaformer as lf
from analyzer.numbers.exact import upper
from analyzer.targets.tasks.adaptive_kernels import MovingKernel
from analyzer.theorems.library.adaptive_kernels import reference
from constructions.network.transformer import Transformer
from constructions.run import fast
from constructions.run import reference as plain
from constructions.theorems.library.adaptive_kernels import CONSTANT, LAG, SUM, TOKEN
from tests.theorems.library.attacks import attacked, with_neuron
from verify.theorems.library.adaptive_kernels import MovingReading, verify

TARGETS: dict[str, dict[str, Any]] = {
    "exponential": {"alphabet": (-1.0, 0.5, 1.0), "lags": (1, 3, 2), "rho": "exp(-s/2)", "motion": "shift"},
    "power": {"alphabet": (-1.0, 1.0), "lags": (2, 3), "rho": "s**-2.5", "motion": "stretch"},
    "window": {"alphabet": (-1.0, 1.0), "lags": (1, 3), "rho": "exp(-s**2/8)", "motion": "shift"},
    "stretched": {"alphabet": (-0.5, 1.0), "lags": (1, 2), "rho": "exp(-s)", "motion": "stretch"},
    "steep": {"alphabet": (-1.0, 1.0), "lags": (1, 2), "rho": "s**-8", "motion": "stretch"},
}


@cache
def target_of(name: str) -> MovingKernel:
    found = lf.task("adaptive-kernels", **TARGETS[name])
    assert isinstance(found, MovingKernel)
    return found


@cache
def built(name: str, error: float = 0.1, dtype: str = "exact") -> Any:
    return lf.build(target_of(name), error=error, dtype=dtype)


FORMULAS: dict[str, Callable[[float], float]] = {
    "exponential": lambda v: math.exp(-v / 2),
    "power": lambda v: v**-2.5,
    "window": lambda v: math.exp(-(v**2) / 8),
    "stretched": lambda v: math.exp(-v),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_targets_are_the_formula(name: str) -> None:
    """By two loops over s, from the text of the definition."""
    target, rho = target_of(name), FORMULAS[name]
    tokens = target.draw(np.random.default_rng(0), (1, 9))[0]
    for t in range(9):
        g = target.lags[target.alphabet.index(tokens[t, 0])]
        terms = range(t + 1) if target.motion == "shift" else range(1, t + 1)
        wanted = sum(rho(s - g if target.motion == "shift" else s / g) * tokens[t - s, 0] for s in terms)
        assert target.values(np)(tokens)[t] == pytest.approx(wanted, rel=1e-12, abs=1e-12)
        assert float(target.exact_value(tokens, t)) == pytest.approx(wanted, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("name", ["exponential", "power"])
def test_one_head_is_exactly_one_exponential_or_one_power(name: str) -> None:
    net = built(name)
    assert net.sizes["heads"] == 1 and net.sizes["layers"] == 2
    assert net.certificate.verdict is lf.Verdict.HOLDS and net.certificate.certified < 1e-12


@pytest.mark.deep(keep="window")
@pytest.mark.parametrize("name", ["window", "stretched"])
def test_fitted_banks_follow_all_lags(name: str) -> None:
    """witness ≤ certified ≤ bound; the distance from R is no less than that at any lag; all sequences of length 7 stay below."""
    net, target = built(name), target_of(name)
    chain, reading = net.certificate, MovingReading(net.transformer, target)
    assert chain.verdict is lf.Verdict.HOLDS and 0.9 * chain.certified < chain.witness <= chain.certified <= chain.bound <= 0.1
    assert reference(target).value(1).overlaps(target.moved(max(target.lags)).value(0 if target.motion == "shift" else 1))
    norms = [upper(reading.norm(lag, target.moved(lag), reading.layer).most) for lag in target.lags]
    assert max(norms) * target.size <= chain.bound
    words = np.array(list(itertools.product(target.alphabet, repeat=7)))[..., None]
    assert np.abs(net(words) - target.values(np)(words)).max() <= chain.certified + 1e-12


@pytest.mark.deep
def test_the_banks_of_the_proof_keep_its_rate() -> None:
    target = lf.task("adaptive-kernels", lags=(1, 1), rho="exp(-s)")
    promised = lf.bound("adaptive-kernels", target, heads=64)
    net = lf.build(target, bank="tuned", heads=64)
    chain = net.certificate
    assert chain.witness <= chain.certified <= chain.bound and chain.bound <= promised.total * (1 + 1e-9)
    assert chain.certified < 0.1 * promised.total
    assert net.broken("decay", layer=2, by=0.01)[2].verdict is lf.Verdict.VIOLATED


@pytest.mark.deep
@pytest.mark.parametrize(("name", "dtype"), [("exponential", "float32"), ("exponential", "float64"), ("steep", "float32")])
def test_floats_are_certified_with_their_roundings(name: str, dtype: str) -> None:
    net, target = built(name, dtype=dtype), target_of(name)
    chain = net.certificate
    assert chain.verdict is lf.Verdict.HOLDS and 0 < chain.witness <= chain.certified <= chain.bound
    assert 0 < chain.rounding <= chain.certified < (1e-12 if dtype == "float64" else 1e-2)
    tokens = target.draw(np.random.default_rng(1), (6, 24))
    outputs = fast.forward(net.transformer, tokens)
    for row, sequence in zip(outputs, tokens, strict=True):
        for t in (0, 5, 23):
            assert upper(abs(arb(float(row[t])) - target.exact_value(sequence, t))) <= chain.certified
    assert np.allclose(plain.forward(net.transformer, tokens), outputs, rtol=1e-4, atol=2 * chain.certified)


def test_floats_are_refused_beyond_their_tables_and_taps() -> None:
    far = lf.task("adaptive-kernels", lags=(2, 12), rho="exp(-s)")
    with pytest.raises(lf.Refusal, match="tables up to 11") as refused:
        lf.build(far, dtype="float64")
    assert {"dtype": "exact"} in refused.value.remedies and lf.build(far).certificate.certified < 1e-12
    with pytest.raises(lf.Refusal, match=r"powers from s\^-4 on; .* falls like s\^-2\.5"):
        lf.build(target_of("power"), dtype="float32", error=1e-4)


def certified(network: Transformer, name: str) -> lf.Certificate:
    return verify(network, target_of(name), "fitted", "spline")


@pytest.mark.deep(keep="exponential")
@pytest.mark.parametrize("name", ["exponential", "steep"])
def test_changed_weights_are_caught(name: str) -> None:
    net = built(name)
    for weight in ("value", "output", "query" if name == "exponential" else "pointer", "decay", "inner", "outer"):
        _, _, after = net.broken(weight, layer=2, by=0.01)
        assert after.verdict is lf.Verdict.VIOLATED and after.certified > net.certificate.certified, weight
    assert net.broken("embedding", by=0.01)[2].verdict is lf.Verdict.VIOLATED
    first, second = net.transformer.layers

    def changed(layer: int, part: str, place: tuple[int, ...], by: Any) -> Transformer:
        layers = [first, second]
        array = getattr(layers[layer].feedforward, part).copy()
        array[place] = array[place] + by
        layers[layer] = replace(layers[layer], feedforward=replace(layers[layer].feedforward, **{part: array}))
        return replace(net.transformer, layers=tuple(layers))

    wrong = certified(changed(0, "outer", (LAG, 0), 1), name)  # every lag is one more
    assert wrong.verdict is lf.Verdict.VIOLATED and "margin 1/2 is missed" in wrong.advice
    kept = certified(changed(0, "outer", (LAG, 0), first.feedforward.outer[LAG, 0] / 100), name)  # what is rounded away does no harm
    assert kept.verdict is lf.Verdict.HOLDS and kept.certified == net.certificate.certified
    for place in ((TOKEN, 0), (SUM, 0)):
        with pytest.raises(lf.InputError, match="write more than lag and constant"):
            certified(changed(0, "outer", place, 1), name)
    with pytest.raises(lf.InputError, match="differs between positions"):
        certified(changed(0, "outer", (CONSTANT, 1), 1), name)
    with pytest.raises(lf.InputError, match="two layers"):
        certified(replace(net.transformer, layers=(second,)), name)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"alphabet": (0.1, 1.0)}, "numbers that float32 holds"),
        ({"lags": (1,)}, "one for every letter"),
        ({"lags": (1, 65)}, "from 1 to 64"),
        ({"rho": "(s+2)**-2", "lags": (1, 2)}, "singular"),
        ({"rho": "1/s", "motion": "stretch"}, "not summable"),
        ({"alphabet": (0.0,), "lags": (1,)}, "only the letter 0"),
    ],
)
def test_bad_parameters_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(lf.InputError, match=text):
        lf.task("adaptive-kernels", **given)


def test_commands(run: Callable[..., Any], tmp_path: Any) -> None:
    made = run("build", "adaptive-kernels", "--lags", "1,3", "--rho", "exp(-s/2)", "--out", tmp_path / "net", "--json")
    assert made.code == 0 and made.json["verdict"] == "holds", made.err
    assert run("verify", tmp_path / "net", "--json").json["certified"] < 1e-12
    np.save(tmp_path / "x.npy", np.full((5, 1), 0.5))
    wrong = run("run", tmp_path / "net", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
    assert wrong.code == 2 and "no letters" in wrong.err
    promised = run("bound", "adaptive-kernels", "--lags", "1,1", "--rho", "exp(-s)", "--heads", "64", "--json")
    assert promised.code == 0 and promised.json["reference"] == "exp(-(s-2))" and promised.json["heads"] == 64, promised.err
    assert lf.load_target("examples/adaptive_kernels.toml").description.startswith("adaptive-kernels(exp(-s**2/8), shift")


@pytest.mark.deep
def test_a_neuron_that_overflows_is_not_certified() -> None:
    """Nothing reads it, and it is infinite for one letter: infinity times 0 is no number."""
    network, target = built("exponential", dtype="float32").transformer, target_of("exponential")
    silent = with_neuron(network, 0, np.array([-3e38, 0, 0, 0]), 1e38)
    assert np.isnan(fast.forward(silent, np.full((3, 1), -1.0))).any()
    with pytest.raises(lf.Refusal, match="a neuron reaches"):
        verify(silent, target, "fitted", "spline")


def test_a_large_constant_is_refused_in_one_line() -> None:
    network, target = built("exponential", dtype="float32").transformer, target_of("exponential")
    writer = network.layers[0].feedforward
    outer = writer.outer.copy()
    outer[CONSTANT] *= np.float32(1e30)
    large = replace(network, layers=(replace(network.layers[0], feedforward=replace(writer, outer=outer)), network.layers[1]))
    with pytest.raises(lf.Refusal, match="overflows for lag 3"):
        verify(large, target, "fitted", "spline")
    heads = network.layers[1].attention
    value = heads.value.copy()
    value[0, 0, CONSTANT] = 1e-30
    reading = replace(network, layers=(network.layers[0], replace(network.layers[1], attention=replace(heads, value=value))))
    with pytest.raises(lf.InputError, match="read more than the token"):
        verify(reading, target, "fitted", "spline")


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attacks(dtype: str) -> None:
    """Rude changes: where something finite is certified, no sequence errs by more."""
    network, target, rng = built("exponential", dtype=dtype).transformer, target_of("exponential"), np.random.default_rng(7)
    given = [np.array(list(itertools.product(target.alphabet, repeat=n)))[..., None] for n in (1, 5)] + [target.draw(rng, (200, 40))]
    wanted = [target.values(np)(tokens) for tokens in given]

    def worst(changed: Transformer) -> float:
        return max(float(np.abs(fast.forward(changed, tokens) - y).max()) for tokens, y in zip(given, wanted, strict=True))

    assert attacked(network, lambda changed: verify(changed, target, "fitted", "spline"), worst, rng, 80) >= 30


@pytest.mark.parametrize("bank", [None, 3, "own"])
def test_other_banks_are_refused_in_one_line(bank: Any) -> None:
    """A card may say anything."""
    with pytest.raises(lf.InputError, match="fitted and tuned"):
        verify(built("exponential").transformer, target_of("exponential"), bank, "spline")
