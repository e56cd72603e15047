"""Choosing among fixed memories: the gallery and long lags in every arithmetic, brute force, broken weights, refusals."""

import itertools
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.numbers.exact import nearest
from analyzer.targets.adaptive import AdaptiveMemory, adaptive_from_dict
from analyzer.theorems.positions.table_heads import least_bias
from analyzer.theorems.positions.table_lags import lags_of
from constructions.network.transformer import Transformer
from constructions.run import reference
from constructions.theorems.positions.table_lags import Stream
from tests.depth import examples
from tests.theorems.library.attacks import with_neuron
from tests.theorems.positions.test_float_lags import MANUAL, copies
from tests.theorems.test_thm_4_4 import GALLERY, example, random_tokens
from verify.chain.certificate import Verdict
from verify.theorems.positions.table_lags import output_at, verify


def errors(net: lf.Network, target: AdaptiveMemory, tokens: np.ndarray) -> np.ndarray:
    """Where every lag lies inside the array."""
    return np.abs(net(tokens) - target.values(np)(tokens))[..., target.settled :]


@pytest.mark.deep
@pytest.mark.parametrize("name", GALLERY)
@pytest.mark.parametrize("dtype", ["exact", "float32", "float64"])
def test_the_gallery_holds_in_every_arithmetic(name: str, dtype: str) -> None:
    target = example(name)
    net = lf.build(target, rpe="table", dtype=dtype)
    found = net.certificate
    assert found.theorem == "table-lags" and found.verdict is Verdict.HOLDS
    assert 0 < found.witness <= found.certified <= min(0.01, found.bound)
    assert found.sizes["heads"] == len(lags_of(target)) and found.sizes["layers"] == 2 * target.depth + 1
    assert errors(net, target, random_tokens(target, 50, 40)).max() <= found.certified * (1 + 1e-9)


LINES = MANUAL.read_text(encoding="utf-8").splitlines()
ROWS = [line.strip("| ").split(" | ") for line in LINES if re.match(r"\| [a-z_0-9]+ \| \d, \d", line)]
"""target; layers, heads; float32; float64."""


def test_the_table_of_the_manual_has_the_gallery() -> None:
    assert sorted(row[0] for row in ROWS) == sorted(GALLERY)


@pytest.mark.deep
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_the_gallery_is_as_the_manual_says(row: list[str]) -> None:
    """Certified errors, rounded up to three digits."""
    for dtype, told in zip(("float32", "float64"), row[2:], strict=True):
        found = lf.build(example(row[0]), rpe="table", dtype=dtype).certificate
        assert f"{found.sizes['layers']}, {found.sizes['heads']}" == row[1]
        assert found.certified <= float(told) <= found.certified * 1.006


@pytest.mark.deep
@pytest.mark.parametrize("lag", [1, 5, 40, 256])
def test_float32_holds_lags_of_hundreds(lag: int) -> None:
    """Heads that read a lag end at 4 there."""
    net = lf.build(copies(lag), rpe="table", dtype="float32")
    found = net.certificate
    assert found.verdict is Verdict.HOLDS and found.certified <= 0.01 and found.sizes["heads"] == len({1, lag})
    assert found.witness >= 0.99 * found.certified or lag == 1
    x = np.random.default_rng(1).choice([-1.0, 1.0], size=(20, 2 * lag + 40, 1))
    assert errors(net, copies(lag), x).max() <= found.certified


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["exact", "float32"])
def test_all_short_sequences(dtype: str) -> None:
    """Brute force over every sequence of the letters that a position sees."""
    target = example("nested")
    net = lf.build(target, rpe="table", dtype=dtype, error=0.2)
    letters = np.array([[target.letters()[i] for i in word] for word in itertools.product(range(2), repeat=target.settled + 3)])
    worst = errors(net, target, letters).max()
    assert worst <= net.certificate.certified * (1 + 1e-9)
    assert net.certificate.witness >= 0.9 * worst  # the search found (almost) the worst of them


@pytest.mark.deep
def test_both_executors_and_balls_agree() -> None:
    target = example("tree")
    exact, floats = lf.build(target, rpe="table"), lf.build(target, rpe="table", dtype="float64")
    x = random_tokens(target, 4, 30)
    plain = np.asarray(reference.forward(floats.transformer, x))
    assert np.abs(plain - floats(x)).max() <= 1e-12
    for t in (target.settled, 29):
        ball = output_at(exact.transformer, target, x[0], t)
        assert ball is not None and abs(float(ball.mid()) - exact(x)[0, t]) <= 1e-12


def edited(network: Transformer, index: int, part: str, name: str, change: Any) -> Transformer:
    """One array of a layer changed."""
    layer = network.layers[index]
    block = getattr(layer, part)
    array = getattr(block, name).copy()
    change(array)
    layers = list(network.layers)
    layers[index] = replace(layer, **{part: replace(block, **{name: array})})
    return replace(network, layers=tuple(layers))


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["exact", "float32"])
def test_changed_weights_are_caught(dtype: str) -> None:
    target = example("nested")
    network, stream = lf.build(target, rpe="table", dtype=dtype).transformer, Stream(target)
    assert verify(network, target, "minimal", "spline").verdict is Verdict.HOLDS
    memory, back, slot = stream.memory(0)[0], stream.back(1)[0], stream.indicators[0, 1]

    def add(where: Any, text: str) -> Any:
        ratio = fmpq(*map(int, text.split("/")))
        return lambda array: array.__setitem__(where, array[where] + (ratio if dtype == "exact" else np.float32(nearest(ratio))))

    broken = {
        "an output weight": edited(network, 0, "attention", "output", add((0, back, 0), "1/100")),
        "a bias": edited(network, 0, "attention", "table", add((0, 0), "3/1")),
        "an indicator": edited(network, 0, "feedforward", "outer", add((slot, 0), "3/5")),
        "a choice": edited(network, 1, "feedforward", "outer", add((memory, 1), "1/10")),
        "a choice that is always on": edited(network, 1, "feedforward", "bias", add(1, "2/1")),
        "a choice that reads another slot": edited(network, 1, "feedforward", "inner", add((1, memory), "1/8")),
        "a later head that speaks": edited(
            edited(network, 2, "attention", "value", add((0, 0, 0), "1/1")), 2, "attention", "output", add((0, memory, 0), "1/50")
        ),
        "the second level": edited(network, 2, "feedforward", "outer", add((stream.indicators[1, 1], 0), "3/5")),
        "the read-out": edited(network, 4, "feedforward", "outer", add((0, 0), "1/10")),
    }
    for what, changed in broken.items():
        assert verify(changed, target, "minimal", "spline").verdict is Verdict.VIOLATED, what


def test_rounding_left_out_is_caught() -> None:
    """Indicators that nothing rounds carry noise on."""
    target = example("nested")
    network = lf.build(target, rpe="table").transformer
    layers = list(network.layers)
    layers[2] = replace(layers[2], feedforward=replace(layers[2].feedforward, precision=()))
    found = verify(replace(network, layers=tuple(layers)), target, "minimal", "spline")
    assert found.verdict is Verdict.VIOLATED and any("does not round" in fault for fault in found.faults)


@st.composite
def targets(draw: st.DrawFn) -> AdaptiveMemory:
    """Two letters or three, two memories, the second read off the first or the token."""
    letters = draw(st.sampled_from([(("-1",), ("1",)), (("-1",), ("0",), ("1/2",))]))
    lags = [[draw(st.integers(1, 6)) for _ in letters] for _ in range(2)]
    memories = [
        {"name": "m1", "lag": lags[0], "parent": "x0"},
        {"name": "m2", "lag": lags[1], "parent": draw(st.sampled_from(["x0", "m1"]))},
    ]
    readout = draw(st.sampled_from(["m1 - m2", "m1*m2 + x0", "m2"]))
    data = {"kind": "adaptive", "alphabet": [list(t) for t in letters], "memory": memories, "readout": readout}
    return adaptive_from_dict(data, "drawn")


@pytest.mark.deep
@settings(max_examples=examples(40), deadline=None)
@given(targets(), st.sampled_from(["exact", "float32", "float64"]), st.sampled_from([0.3, 0.02]), st.integers(0, 1000))
def test_no_sequence_errs_by_more(target: AdaptiveMemory, dtype: str, error: float, seed: int) -> None:
    net = lf.build(target, rpe="table", dtype=dtype, error=error)
    found = net.certificate
    assert found.verdict in (Verdict.HOLDS, Verdict.VACUOUS) and found.certified <= error
    tokens = target.letters()[np.random.default_rng(seed).integers(0, len(target.alphabet), (200, 16))]
    assert errors(net, target, tokens).max() <= found.certified * (1 + 1e-9)


@pytest.mark.deep
def test_refusals_lead_to_tables() -> None:
    with pytest.raises(lf.Refusal, match="float32 cannot hold lag 5 of both") as refused:
        lf.build(example("tree"), dtype="float32")
    ways = [way for way in refused.value.remedies if way.get("rpe") == "table"]
    assert ways and lf.build(example("tree"), dtype="float32", **ways[0]).certificate.verdict is Verdict.HOLDS


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bank": "minimal"}, "leave bank out"),
        ({"attention": "tmx"}, "leave attention out"),
        ({"rounding": "relu"}, "leave rounding out"),
        ({"layers": "deep"}, "leave layers out"),
    ],
)
def test_what_does_not_go_together_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(lf.InputError, match=text):
        lf.build(example("pair"), rpe="table", **options)


def test_the_bound_is_solved_for_the_bias() -> None:
    found = lf.bound("table-lags", example("tree"), error=0.01)
    assert (found.heads, found.data["layers"], found.data["reach"]) == (4, 5, 6)
    assert found.total <= 0.01 and found.data["bias"] == least_bias(6, 0.0025)
    with pytest.raises(lf.InputError, match="leave rpe and reach out"):
        lf.bound("table-lags", example("tree"), reach=9)


@pytest.mark.deep(keep="1")
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_neuron_that_overflows_is_not_certified(index: int) -> None:
    """Nothing reads it, but infinity times 0 is no number; here it is infinite for one pair of tokens only."""
    target = example("pointer")
    network = lf.build(target, rpe="table", dtype="float32", error=0.2).transformer
    row = np.zeros(network.embedding.shape[0])
    row[[0, 1]] = 1.8e38
    with pytest.raises(lf.Refusal, match="a neuron reaches"):
        verify(with_neuron(network, index, row, 1.0), target, "minimal", "spline")


def test_heads_that_are_off_stay_finite() -> None:
    target = example("pointer")
    network = lf.build(target, rpe="table", dtype="float32", error=0.2).transformer
    heads = network.layers[1].attention
    count, _, width = heads.value.shape
    loud = replace(heads, value=np.full((count, 1, width), 3e38, "float32"), output=np.zeros((count, width, 1), "float32"))
    layers = list(network.layers)
    layers[1] = replace(layers[1], attention=loud)
    with pytest.raises(lf.Refusal, match="attention that is off"):
        verify(replace(network, layers=tuple(layers)), target, "minimal", "spline")
