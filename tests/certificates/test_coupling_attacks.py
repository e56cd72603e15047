"""Attacks on the certificate of Theorem 4.2 of Jiang & Li: weights and targets on which it was, or could be, too optimistic."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.language.formulas import parse_formula
from analyzer.lemmas.pod import pod
from analyzer.targets.coupling import CouplingTarget, SineCoupling, coupling_from_dict
from constructions.files.bundle import load, write
from constructions.files.card import read_files
from constructions.network.transformer import FeedForward, Layer, Transformer
from constructions.run.execute import run as execute
from constructions.theorems.jl_4_2 import build
from verify.theorems.jl_4_2 import evaluation_rounding, read

TOKENS = np.random.default_rng(0).random((64, 4))


def coupling(**data: Any) -> CouplingTarget:
    return coupling_from_dict({"kind": "coupling", "length": 4, "rho": "u*v", **data}, "attack")


@pytest.fixture(scope="module")
def plain() -> Transformer:
    return build(coupling(), rank=1, knots=4, dtype="float64").network


def padded(array: Any, axis: int) -> np.ndarray:
    """One more zero along an axis."""
    array = np.asarray(array)
    return np.concatenate(
        [array, np.zeros_like(array, shape=[1 if k == axis % array.ndim else n for k, n in enumerate(array.shape)])], axis
    )


def with_silent_slot(network: Transformer, seen: float, kinks: list[tuple[float, float]]) -> Transformer:
    """One more slot, written by Σ a relu(b x) and read with weight `seen` by every neuron of the read-out."""
    layers = []
    for layer in network.layers:
        attention, ffn = layer.attention, layer.feedforward
        weights = {name: padded(getattr(attention, name), -1) for name in ("value", "query", "key", "pointer")}
        layers.append(
            Layer(
                replace(attention, **weights, output=padded(attention.output, 1)),
                replace(ffn, inner=padded(ffn.inner, 1), outer=ffn.outer if layer is network.layers[-1] else padded(ffn.outer, 0)),
            )
        )
    first, last = layers[0].feedforward, layers[1].feedforward
    width = len(network.embedding) + 1
    rows, columns = np.zeros((len(kinks), width)), np.zeros((width, len(kinks)))
    rows[:, 0], columns[-1] = [b for _, b in kinks], [a for a, _ in kinks]
    first = FeedForward(
        np.concatenate([first.inner, rows]), np.append(first.bias, np.zeros(len(kinks))), np.concatenate([first.outer, columns], 1)
    )
    inner = np.array(last.inner)
    inner[:, -1] = seen
    layers = [replace(layers[0], feedforward=first), replace(layers[1], feedforward=replace(last, inner=inner))]
    return Transformer(padded(network.embedding, 0), padded(network.bias, 0), tuple(layers))


@pytest.mark.deep
def test_slots_that_cancel_bring_their_rounding(plain: Transformer) -> None:
    """relu(5x) − relu(3x) − 2 relu(x) = 0, but not in floats; the read-out magnifies the difference."""
    scale = 2.0**20
    network = with_silent_slot(plain, 1024.0, [(scale, 5.0), (-scale, 3.0), (-2 * scale, 1.0)]).map(lambda a: np.asarray(a, "float32"))
    reading = read(network)
    assert not reading.faults  # exactly, the slot is 0
    tokens = TOKENS.astype("float32")
    moved = np.abs(execute(network, tokens[..., None]) - execute(network.map(lambda a: a.astype("float64")), tokens[..., None])).max()
    assert 1 < moved <= float(evaluation_rounding(reading, 4))


@pytest.mark.parametrize("part", ["value", "query", "key", "output"])
def test_attention_is_off_only_if_all_of_it_is_zero(plain: Transformer, part: str) -> None:
    """A value that overflows times an output of 0 is not a number."""
    first, width = plain.layers[0], len(plain.embedding)
    shape = (1, width, 1) if part == "output" else (1, 1, width)
    arrays = {name: np.zeros((1, width, 1) if name == "output" else (1, 1, width)) for name in ("value", "query", "key", "output")}
    arrays[part] = np.full(shape, 1.7e308)
    network = replace(plain, layers=(replace(first, attention=replace(first.attention, **arrays)), plain.layers[1]))
    assert any("attention is not off" in fault for fault in read(network).faults)
    arrays[part] = np.zeros(shape)
    silent = replace(plain, layers=(replace(first, attention=replace(first.attention, **arrays)), plain.layers[1]))
    assert not read(silent).faults


def test_an_overflowing_slot_is_refused_though_nobody_reads_it(plain: Transformer) -> None:
    network = with_silent_slot(plain, 0.0, [(1.5e308, 1.0)])
    bias = np.array(network.bias)
    bias[-1] = 1.5e308
    network = replace(network, bias=bias)
    assert not np.isfinite(execute(network, TOKENS[..., None])).all()
    with pytest.raises(Refusal, match="overflow"):
        evaluation_rounding(read(network), 4)


def test_sums_that_overflow_before_the_quotient_are_refused() -> None:
    """Σ_s w_s v_s over 4096 tokens of size 10^35 exceeds float32, though the mean does not; relu then turns NaN into 0."""
    target = coupling(length=4096, f="0.97e35*x", F="y/0.97e35")
    network = build(target, rank=1, knots=4, dtype="float32").network
    assert abs(execute(network, np.ones((4096, 1), "float32"))[0] - 1) > 0.5
    with pytest.raises(Refusal, match="overflow"):
        evaluation_rounding(read(network), 4096)
    assert evaluation_rounding(read(network), 256) < 1


@pytest.mark.deep
def test_exact_weights_beyond_the_floats_make_valid_json(tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verify.theorems.jl_4_2.SAMPLES", 16)
    target = coupling()
    network = build(target, rank=1, knots=4).network
    attention = network.layers[1].attention
    query = np.array(attention.query)
    query[0, 0, 1] *= fmpq(2) ** 2000
    network = replace(network, layers=(network.layers[0], replace(network.layers[1], attention=replace(attention, query=query))))
    write(tmp_path / "b", network, {"theorem": "jl-4.2", "target": target.describe(), "bank": "pod", "ffn": "spline"}, "")
    result = run("verify", tmp_path / "b", "--json")
    found = json.loads(result.out, parse_constant=pytest.fail)
    assert result.code == 1 and found["verdict"] == "violated" and found["certified"] is None
    assert run("verify", tmp_path / "b").code == 1


def test_a_read_out_without_neurons(plain: Transformer) -> None:
    width = len(plain.embedding)
    empty = FeedForward(np.zeros((0, width)), np.zeros(0), np.zeros((1, 0)))
    network = replace(plain, layers=(plain.layers[0], replace(plain.layers[1], feedforward=empty)))
    assert evaluation_rounding(read(network), 4) >= 0
    assert not execute(network, TOKENS[..., None]).any()


def test_logits_that_underflow_have_an_error(plain: Transformer) -> None:
    attention = plain.layers[1].attention
    faint = replace(attention, query=np.asarray(attention.query) * 1e-200, key=np.asarray(attention.key) * 1e-200)
    logits, error = read(replace(plain, layers=(plain.layers[0], replace(plain.layers[1], attention=faint)))).logits
    assert not logits.any() and error > 0


@pytest.mark.parametrize("text", ["tanh(sqrt(u))", "tanh(1/u)", "tanh(log(u))"])
def test_tanh_of_what_is_not_defined_is_not_finite(text: str) -> None:
    found = parse_formula(text, ("u", "v"), "rho").taylor(0, 2, arb(0, 1), arb(1))
    assert not any(c.is_finite() for c in found)


def test_tanh_is_finite_on_long_intervals() -> None:
    """t, t', t''/2 at a point lie in the enclosures on [−40, 40], which are finite though e^{2x} spans 2^115."""
    formula = parse_formula("tanh(80*u - 40)", ("u",), "f")
    wide, point = formula.taylor(0, 2, arb(0).union(arb(1))), formula.taylor(0, 2, arb(fmpq(13, 25)))
    t = arb(fmpq(8, 5)).tanh()
    slope = 1 - t * t
    for found, value in zip(point, (t, 80 * slope, -6400 * t * slope), strict=True):
        assert found.overlaps(value)
    assert all(c.is_finite() and c.contains(p) for c, p in zip(wide, point, strict=True))


def test_the_zeroth_power_of_what_is_undefined_is_undefined() -> None:
    with pytest.raises(InputError, match="not shown"):
        coupling(rho="sqrt(u-2)**0")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ({"rho": "exp(700*u*v)"}, "no finite bound"),
        ({"rho": "1e99**64*u*v"}, "range of floats"),
        ({"rho": "1e99*1e99*1e99*1e99*u*v"}, "range of floats"),
        ({"rho": "u/(1e-99**64)"}, "range of floats"),
        ({"f": "exp(1000*x)"}, "among the floats"),
    ],
)
def test_what_exceeds_the_floats_is_refused_in_one_line(data: dict[str, Any], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        pod(coupling(**data).coupling)


def test_given_singular_values_at_the_ends() -> None:
    with pytest.raises(InputError, match="positive number"):
        SineCoupling(parse_formula("1e99**64/k", ("k",), "sigma"), 3)
    assert len(SineCoupling(parse_formula("1/3", ("k",), "sigma"), 3).sigmas) == 3


def test_limits_of_tiny_singular_values(tmp_path: Path, run: Callable[..., Any]) -> None:
    target = tmp_path / "target.toml"
    target.write_text('kind = "coupling"\nlength = 3\nsigma = "exp(-1000*k)"\nrank = 3\n')
    result = run("limits", "coupling", "--target", target, "--rank", "2", "--json")
    assert result.code == 0 and result.err == ""


def test_limits_of_nothing(run: Callable[..., Any]) -> None:
    result = run("limits", "coupling", "--rho", "u-u", "--alpha", "1", "--rank", "1", "--json")
    assert result.code == 0 and result.json["rank"] == 0 and "complexities" not in result.json


def test_a_constant_f_has_a_hull_without_length() -> None:
    built = build(coupling(f="1", F="abs(y-1)"), rank=1, dtype="float32")
    assert not read(built.network).faults


@pytest.mark.parametrize("dtype", ["float16", "int32"])
def test_bundles_of_other_types_are_refused(plain: Transformer, tmp_path: Path, run: Callable[..., Any], dtype: str) -> None:
    path = tmp_path / "bundle"
    card = {"theorem": "jl-4.2", "target": coupling().describe(), "bank": "pod", "ffn": "spline"}
    write(path, plain.map(lambda a: np.asarray(a).astype(dtype)), card, "")
    result = run("verify", path, "--json")
    assert result.code == 2 and result.err.count("\n") == 1 and "networks run in" in result.err
    with pytest.raises(InputError):
        load(read_files(path))
    assert json.loads((path / "card.json").read_text())["dtype"] == dtype
