"""Heads that find tokens by their absolute positions: long lags, the gallery, brute force, horizons, broken weights."""

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.numbers.exact import nearest, upper
from analyzer.theorems.library import position_heads as theorem
from constructions.network.transformer import Transformer
from constructions.run import fast, reference
from constructions.theorems.library.position_heads import PositionStream
from tests.depth import examples
from tests.theorems.library.attacks import mutated
from tests.theorems.test_thm_4_4 import GALLERY, example, random_tokens
from verify.chain.certificate import StrangeWeights, Verdict
from verify.chain.enclosed import Enclosed, EnclosedArithmetic
from verify.theorems.library.position_heads import output_at, verify
from verify.theorems.library.position_rows import dots, grid, shares


def built(target: Any, **options: Any) -> lf.Network:
    return lf.build(target, theorem=theorem.ID, **options)


def errors(net: lf.Network, tokens: np.ndarray) -> np.ndarray:
    """Where every lag lies inside the array."""
    assert net.target is not None
    return np.abs(net(tokens) - net.target.values(np)(tokens))[..., net.target.settled :]


@pytest.mark.deep
@pytest.mark.parametrize(("dtype", "most"), [("exact", 4.6e-7), ("float32", 1.2e-6), ("float64", 4.6e-7)])
def test_lag_200_of_256_tokens_with_one_head(dtype: str, most: float) -> None:
    net = built(lf.fixed(lags=200), length=256, error=1e-4, dtype=dtype)
    found = net.certificate
    assert found.verdict is Verdict.HOLDS and found.sizes["heads"] == found.sizes["layers"] == 1
    assert found.certified <= min(1e-4, most) and found.details["scores"] == "exact"
    assert found.witness >= (1 - 1e-7) * found.certified or dtype == "float32"  # sharp: a sequence of signs
    signs = np.random.default_rng(1).choice([-1.0, 1.0], size=(20, 256, 1))
    assert 0 < errors(net, signs).max() <= found.certified


@pytest.mark.parametrize("sharpness", [1, 2, 8, 16])
def test_the_error_is_what_the_other_tokens_weigh(sharpness: int) -> None:
    """2r/(1+r) with r = Σ e^{−βk²} over the tokens that are seen, added up here; and (P.1) is above it by e^{−6β} of itself at most."""
    length, lag = 40, 7
    places = np.arange(length) - theorem.centre(length)
    keys = np.stack([places, places**2], axis=1).astype(float)
    queries = np.stack([2.0 * sharpness * (places - lag), np.full(length, -float(sharpness))], axis=1)
    rows = shares(EnclosedArithmetic("exact"), *(Enclosed(a, np.zeros_like(a)) for a in (queries, keys)), lag)
    worst = max(sum(math.exp(-sharpness * (j - t + lag) ** 2) for j in range(t + 1) if j != t - lag) for t in range(lag, length))
    assert math.isclose(rows.share, worst / (1 + worst), rel_tol=4e-9) and rows.share >= worst / (1 + worst)
    promised = upper(theorem.extraction_error(arb(sharpness), arb(2)))
    assert 2 * rows.share <= promised * (1 + 2**-28) and promised <= 2 * rows.share * (1 + 2 * math.exp(-6 * sharpness) + 1e-8)


@pytest.mark.deep
@pytest.mark.parametrize("name", GALLERY)
@pytest.mark.parametrize("dtype", ["exact", "float32", "float64"])
def test_the_gallery_runs_through_softmax_with_one_head_per_memory(name: str, dtype: str) -> None:
    target = example(name)
    net = built(target, dtype=dtype)
    found = net.certificate
    assert found.verdict is Verdict.HOLDS and 0 < found.witness <= found.certified <= min(0.01, found.bound)
    assert found.sizes["layers"] == target.depth + 1
    assert sum(len(layer.attention.rpe) for layer in net.transformer.layers[1:]) == len(target.memories)
    assert {layer.attention.kind for layer in net.transformer.layers} == {"dp"}
    assert errors(net, random_tokens(target, 50, 40)).max() <= found.certified * (1 + 1e-9)


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["exact", "float32"])
def test_all_short_sequences(dtype: str) -> None:
    """Brute force over every sequence of the longest array, and of a shorter one."""
    target = example("nested")
    net = built(target, dtype=dtype, error=0.2, length=8)
    words = np.array([[target.letters()[i] for i in word] for word in itertools.product(range(2), repeat=8)])
    worst = errors(net, words).max()
    assert 0.9 * worst <= net.certificate.witness and worst <= net.certificate.certified * (1 + 1e-9)
    assert errors(net, words[:, :5]).max() <= net.certificate.certified * (1 + 1e-9)


@pytest.mark.deep
def test_letters_of_fixed_memories() -> None:
    """The error is in proportion to the spread of the alphabet, and the witness is made of letters."""
    wide, narrow = (built(lf.fixed(lags=3, alphabet=letters), length=16) for letters in ((-1, 1), (0.25, 0.5, 0.75)))
    ratio = narrow.certificate.certified / wide.certificate.certified
    assert math.isclose(ratio, 1 / 4, rel_tol=1e-7)
    assert narrow.certificate.witness >= (1 - 1e-7) * narrow.certificate.certified


@pytest.mark.deep
def test_both_executors_and_balls_agree() -> None:
    target = example("tree")
    exact, floats = built(target), built(target, dtype="float64")
    x = random_tokens(target, 4, 30)
    plain, quick = (np.asarray(run.forward(floats.transformer, x)) for run in (reference, fast))
    assert np.abs(plain - quick).max() <= 1e-12
    for t in (target.settled, 29):
        ball = output_at(exact.transformer, target, x[0], t)
        assert ball is not None and abs(float(ball.mid()) - exact(x)[0, t]) <= 1e-12


def test_the_horizon_is_where_scores_stop_being_whole_numbers_of_the_type() -> None:
    assert [theorem.longest(bits) for bits in theorem.BITS.values()] == [19, 53, 4729, 109588317]
    for dtype, unit in (("float16", np.float16), ("float32", np.float32)):
        inside = theorem.longest(theorem.BITS[dtype]) // 2
        assert 3 * inside**2 <= 2 ** theorem.BITS[dtype] < 3 * (inside + 1) ** 2
        places = np.arange(-inside, inside + 1)
        for place in (-inside, inside):
            scores = unit(2 * place) * places.astype(unit) - (places**2).astype(unit)
            assert (scores.astype(np.int64) == 2 * place * places - places**2).all()
    assert theorem.horizon("float32", 1e-4) == 4729 and theorem.horizon("float32", 1e-7) == 0
    assert theorem.horizon("bfloat16", 0.5) == 19 and theorem.horizon("float64", 1e-12) == 109588317


def test_a_dot_product_is_exact_on_its_grid_only() -> None:
    assert grid(np.array([0.0, 12.0, -0.75])) == 0.25 and grid(np.zeros(2)) == np.inf
    arithmetic = EnclosedArithmetic("float32")
    whole, third = (Enclosed(np.array([[v, 2048.0]]), np.zeros((1, 2))) for v in (1.0, 1 / 3))
    assert not dots(arithmetic, whole, whole).rad.any() and dots(arithmetic, whole, third).rad.all()
    assert dots(arithmetic, Enclosed(4 * whole.mid + 1, whole.rad), whole).rad.all()  # more than 2^24


@pytest.mark.deep
def test_float32_reaches_its_horizon() -> None:
    net = built(lf.fixed(lags=2000), length=4729, dtype="float32", error=1e-4)
    assert net.certificate.verdict is Verdict.HOLDS and net.certificate.certified <= 2e-6
    signs = np.random.default_rng(2).choice([-1.0, 1.0], size=(4729, 1))
    assert errors(net, signs).max() <= net.certificate.certified


@pytest.mark.parametrize(
    ("options", "reason", "ways"),
    [
        ({"length": 4730, "dtype": "float32"}, "4730 tokens need 25 bits", [{"dtype": "float64"}, {"dtype": "exact"}, {"length": 4729}]),
        ({"length": 20}, "shorter than lag 20", [{"length": 21}]),
        ({"dtype": "float32", "error": 1e-7}, "delivers a memory to within", [{"dtype": "float64"}, {"dtype": "exact"}]),
    ],
)
def test_refusals_say_what_would_do(options: dict[str, Any], reason: str, ways: list[dict[str, Any]]) -> None:
    with pytest.raises(lf.Refusal, match=reason) as refused:
        built(lf.fixed(lags=20), **options)
    assert list(refused.value.remedies) == ways
    if options.get("length") == 20:
        assert built(lf.fixed(lags=20), **ways[0]).certificate.verdict is Verdict.HOLDS


@pytest.mark.deep
def test_longer_arrays_are_refused() -> None:
    net = built(lf.fixed(lags=2), length=8)
    with pytest.raises(lf.InputError, match="positions for 8 tokens"):
        net(np.zeros((9, 1)))


def edited(network: Transformer, index: int, part: str, name: str, where: Any, by: fmpq) -> Transformer:
    """One weight of a layer changed."""
    layer = network.layers[index]
    block = getattr(layer, part)
    layers = list(network.layers)
    layers[index] = replace(layer, **{part: replace(block, **{name: added(getattr(block, name), where, by)})})
    return replace(network, layers=tuple(layers))


def added(array: np.ndarray, where: Any, by: fmpq) -> np.ndarray:
    changed = array.copy()
    changed[where] += by if array.dtype == object else array.dtype.type(nearest(by))
    return changed


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["exact", "float32"])
def test_changed_weights_are_caught(dtype: str) -> None:
    target = example("nested")
    network, stream = built(target, length=16, dtype=dtype).transformer, PositionStream.of(target)
    assert verify(network, target, "own", "spline").verdict is Verdict.HOLDS
    memory, small, large = stream.block(0)[0], fmpq(1, 4), fmpq(5, 8)
    attention = [
        ("query", (0, 0, stream.place)), ("query", (0, 0, stream.lag(0))), ("query", (0, 1, stream.constant)), ("query", (0, 0, 0)),
        ("key", (0, 0, stream.place)), ("key", (0, 1, stream.square)), ("key", (0, 1, 0)), ("value", (0, 0, 0)),
        ("value", (0, 0, stream.place)), ("output", (0, memory, 0)), ("output", (0, 0, 0)), ("decay", 0),
    ]  # fmt: skip
    broken = {f"{name} {where}": edited(network, 1, "attention", name, where, fmpq(2)) for name, where in attention}
    broken |= {
        "the embedding": replace(network, embedding=added(network.embedding, (0, 0), small)),
        "the constant": replace(network, bias=added(network.bias, stream.constant, small)),
        "a bias of the token": replace(network, bias=added(network.bias, 0, small)),
        "a place": replace(network, positions=added(network.positions, (3, stream.place), small)),
        "a square": replace(network, positions=added(network.positions, (15, stream.square), small)),
        "a position in the token": replace(network, positions=added(network.positions, (3, 0), small)),
        "a lag": edited(network, 0, "feedforward", "outer", (stream.lag(0), 0), large),
        "a lag of the second level": edited(network, 1, "feedforward", "outer", (stream.lag(1), 0), large),
        "a lag's neuron": edited(network, 1, "feedforward", "inner", (0, stream.place), small),
        "the read-out": edited(network, 2, "feedforward", "outer", (0, 0), fmpq(1, 10)),
        "the read-out's neuron": edited(network, 2, "feedforward", "inner", (0, stream.lag(0)), small),
    }
    for what, changed in broken.items():
        try:
            found = verify(changed, target, "own", "spline").verdict
        except StrangeWeights:
            continue  # not of the theorem's form at all
        assert found is Verdict.VIOLATED, what


def test_rounding_left_out_is_caught() -> None:
    """Lags that nothing rounds carry noise into queries."""
    target = example("nested")
    network = built(target, length=16).transformer
    layers = list(network.layers)
    layers[1] = replace(layers[1], feedforward=replace(layers[1].feedforward, precision=()))
    found = verify(replace(network, layers=tuple(layers)), target, "own", "spline")
    assert found.verdict is Verdict.VIOLATED and any("does not round" in fault for fault in found.faults)


@pytest.mark.deep
def test_rounded_scores_are_counted() -> None:
    """A sharpness that is no power of 2 costs bits: scores are no longer exact in float32, and the share is larger, not smaller."""
    target = lf.fixed(lags=3)
    network = built(target, length=2048, dtype="float32").transformer
    heads = network.layers[0].attention
    factor = np.float32(1 + 2**-20)
    changed = replace(network.layers[0], attention=replace(heads, query=heads.query * factor))
    found, plain = (verify(net, target, "own", "spline") for net in (replace(network, layers=(changed,)), network))
    assert (plain.details["scores"], found.details["scores"]) == ("exact", "rounded")
    assert found.certified > plain.certified and found.verdict is Verdict.VIOLATED
    signs = np.random.default_rng(3).choice([-1.0, 1.0], size=(2048, 1))
    run = np.abs(fast.forward(replace(network, layers=(changed,)), signs) - target.values(np)(signs))[3:]
    assert run.max() <= found.certified


@st.composite
def targets(draw: st.DrawFn) -> Any:
    """Fixed lags in one or two coordinates, or two memories of which the second may be read off the first."""
    if draw(st.booleans()):
        lags = tuple(sorted(draw(st.sets(st.integers(1, 20), min_size=1, max_size=3))))
        readout = draw(st.sampled_from([None, "m1[0] - x0[0]", "tanh(m1[0])*2", "m1[0]*x0[0]"]))
        dim = draw(st.integers(1, 2))
        return lf.fixed(lags, dim=dim, readout=readout if dim == 2 or readout is None else readout.replace("[0]", ""))
    letters = draw(st.sampled_from([(-1, 1), (-1, 0, 0.5)]))
    lags = [[draw(st.integers(1, 12)) for _ in letters] for _ in range(2)]
    memories = {"m1": lags[0], "m2": (lags[1], draw(st.sampled_from(["x0", "m1"])))}
    return lf.adaptive(letters, memories, readout=draw(st.sampled_from(["m1 - m2", "m1*m2 + x0", "m2"])))


@pytest.mark.deep
@settings(max_examples=examples(24), deadline=None)
@given(targets(), st.sampled_from(["exact", "float32", "float64"]), st.sampled_from([0.3, 0.02]), st.integers(0, 1000))
def test_no_sequence_errs_by_more(target: Any, dtype: str, error: float, seed: int) -> None:
    net = built(target, dtype=dtype, error=error, length=24)
    found = net.certificate
    assert found.verdict in (Verdict.HOLDS, Verdict.VACUOUS) and found.certified <= error
    tokens = target.draw(np.random.default_rng(seed), (100, 24))
    assert errors(net, tokens).max() <= found.certified * (1 + 1e-6) + 1e-12


def test_the_bound_is_solved_for_the_sharpness() -> None:
    found = lf.bound(theorem.ID, lf.fixed(lags=200), error=1e-4)
    assert (found.heads, found.data["sharpness"], found.data["horizon"]["float32"]) == (1, 16, 4729)
    assert found.total <= 1e-4 < lf.bound(theorem.ID, lf.fixed(lags=200), sharpness=8).total
    assert lf.bound(theorem.ID, example("tree"), sharpness=8).data["layers"] == 3


def test_the_command_line_builds_it(run: Any, tmp_path: Any) -> None:
    place = tmp_path / "net"
    made = run(
        "build", theorem.ID, "--lags", "200", "--length", "256", "--error", "1e-4", "--dtype", "float64", "--out", str(place), "--json"
    )
    assert made.code == 0, made.err
    again = run("verify", str(place), "--json")
    assert again.json["verdict"] == "holds" and again.json["certified"] <= 1e-4 and again.json["length"] == 256
    nested = run("build", theorem.ID, "--target", "examples/nested.toml", "--length", "16", "--out", str(tmp_path / "nested"), "--json")
    assert nested.code == 0, nested.err


def test_what_a_lag_costs_agrees_with_the_certified_horizons() -> None:
    """lin heads: lags 1, 5 and 11 are the last that 8, 24 and 53 bits resolve; one absolute head needs 2 bits more for twice the lag."""
    rows = {row["lag"]: row for row in lf.limits.heads(lags=(1, 2, 5, 6, 11, 12, 32, 64)).rows}
    for last, bits in ((1, 8), (5, 24), (11, 53)):
        assert rows[last]["relative_bits"] <= bits < rows[last + 1]["relative_bits"]  # type: ignore[operator]
    assert all(row["relative_heads"] == row["deep_layers"] == lag and row["absolute_heads"] == 1 for lag, row in rows.items())
    assert rows[64]["absolute_bits"] == rows[32]["absolute_bits"] + 2 == 12  # type: ignore[operator]
    length = 65
    assert theorem.longest(12) >= length > theorem.longest(11)
    with pytest.raises(lf.InputError, match="from 1 to 512"):
        lf.limits.heads(lags=(0,))


def test_the_costs_are_shown_and_drawn(tmp_path: Any, capsys: Any) -> None:
    found = lf.limits.heads(lags=(1, 2)).draw(tmp_path / "costs.svg")
    assert (tmp_path / "costs.svg").read_text(encoding="utf-8").startswith("<?xml")
    found.show()
    assert "absolute: heads" in capsys.readouterr().out and repr(found) == "<LagCosts of 2 lags>"


@pytest.mark.deep
def test_a_neuron_that_overflows_is_not_certified() -> None:
    """Nothing reads it, and only one corner in 256 makes it infinite: one that no witness visits. Infinity times 0 is no number."""
    target = lf.fixed((1, 2, 3), dim=2)
    network = built(target, length=8, dtype="float32", error=0.05).transformer
    ffn, corner = network.layers[0].feedforward, np.array([-1, -1, -1, -1, -1, -1, -1, 1])
    row = np.zeros((1, ffn.inner.shape[1]), "float32")
    row[0, :8] = 3e37 * corner
    silent = np.zeros((1, 1), "float32")
    inner, bias, outer = np.concatenate([ffn.inner, row]), np.append(ffn.bias, np.float32(1.3e38)), np.append(ffn.outer, silent, axis=1)
    grown = replace(network, layers=(replace(network.layers[0], feedforward=replace(ffn, inner=inner, bias=bias, outer=outer)),))
    assert np.isnan(fast.forward(grown, corner.reshape(4, 2)[::-1])[-1])
    with pytest.raises(lf.Refusal, match="overflow"):
        verify(grown, target, "own", "spline")


def test_lags_read_their_parents_only() -> None:
    """The second lag of `nested` is a function of m1; here its neuron reads x0 as well, which is 0 where lags are certified."""
    target = example("nested")
    network = built(target, length=16, dtype="float32").transformer
    found = verify(edited(network, 1, "feedforward", "inner", (0, 0), fmpq(4)), target, "own", "spline")
    assert found.certified == float("inf") and any("not one of its parents" in fault for fault in found.faults)


def test_numbers_that_doubles_do_not_hold_widen_scores() -> None:
    """1 + 2^-80 in the constant slot is 1 in double precision, but scores are not whole numbers any more."""
    target = lf.fixed(lags=3)
    network = built(target, length=16).transformer
    bias = network.bias.copy()
    bias[PositionStream.of(target).constant] += fmpq(1, 2**80)
    found, plain = (verify(net, target, "own", "spline") for net in (replace(network, bias=bias), network))
    assert (plain.details["scores"], found.details["scores"]) == ("exact", "rounded") and found.certified >= plain.certified


@pytest.mark.deep
def test_what_cannot_be_certified_is_refused_in_one_line() -> None:
    target = lf.fixed(lags=1)
    network = built(target, length=4, dtype="float32").transformer
    layer = network.layers[0]
    twice = replace(layer, feedforward=replace(layer.feedforward, outer=np.repeat(layer.feedforward.outer, 2, axis=0)))
    with pytest.raises(lf.InputError, match="2 outputs"):
        verify(replace(network, layers=(twice,)), target, "own", "spline")
    places = np.arange(theorem.MAX_LENGTH + 1, dtype="float32")
    table = np.stack([0 * places, 0 * places, places, places**2, 0 * places], axis=1)
    with pytest.raises(lf.Refusal, match="too long"):
        verify(replace(network, positions=table), target, "own", "spline")
    heads, factor = layer.attention, np.float32(2.0**123)
    far = replace(layer, attention=replace(heads, query=heads.query * factor, key=heads.key / factor))
    assert np.isnan(fast.forward(replace(network, layers=(far,)), np.ones((4, 1)))[1])
    with pytest.raises(lf.Refusal, match="overflow"):
        verify(replace(network, layers=(far,)), target, "own", "spline")


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["nested", "fixed"])
def test_attacks(name: str, dtype: str) -> None:
    """Rude changes: where something finite is certified, no sequence errs by more."""
    target: Any = lf.fixed((1, 3), readout="m1 - m2") if name == "fixed" else example(name)
    network, rng, finite = built(target, length=10, dtype=dtype, error=0.1).transformer, np.random.default_rng(9), 0
    tokens = target.draw(rng, (200, 10))
    for _ in range(60):
        changed = mutated(network, rng)
        try:
            found = verify(changed, target, "own", "spline")
        except (lf.InputError, lf.Refusal):
            continue
        if found.certified < float("inf"):
            finite += 1
            given = tokens.astype(dtype)
            away = np.abs(fast.forward(changed, given) - target.values(np)(given.astype(float)))[:, target.settled :]
            assert away.max() <= found.certified * (1 + 1e-9)
    assert finite >= 10
