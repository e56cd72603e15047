"""Parity: all short sequences, the margin in closed form, certificates at every length, horizons from both sides, sabotage."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb, fmpq

import lemmaformer as lf
from analyzer.numbers.exact import lower, rational, upper
from analyzer.targets.tasks.parity import ParityTarget
from analyzer.theorems.library.parity import Parity, gain_for, horizon, least_margin, margin, share_of_minority, wrong_from
from constructions.network.transformer import Transformer
from constructions.run import fast, reference
from constructions.run.stream import trace
from constructions.theorems.construction import Construction
from constructions.theorems.jl_4_2 import rounded
from constructions.theorems.library.parity import assemble, build, meanings, slots
from tests.theorems.library.attacks import mutated
from verify.chain.certificate import StrangeWeights
from verify.chain.enclosed_layers import enclosed_pass
from verify.theorems.library.parity import verify

FORMS = ("clipped", "paper")
TYPES = ("exact", "float64", "float32")
LONGEST = 40


@cache
def built(form: str, dtype: str, longest: int = LONGEST) -> Construction:
    return build(ParityTarget(longest), form=form, dtype=dtype)


def certified(found: Construction, network: Transformer | None = None) -> lf.Certificate:
    return verify(found.network if network is None else network, found.target, found.bank, found.ffn)


def all_bits(n: int) -> np.ndarray:
    return np.array(list(itertools.product((0, 1), repeat=n)))


def parity(bits: np.ndarray) -> np.ndarray:
    return np.where(bits.sum(axis=-1) % 2 == 0, 1.0, -1.0)


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("form", FORMS)
def test_all_sequences_of_short_lengths(form: str, dtype: str) -> None:
    """Every position of every sequence of at most 10 bits; clipped networks are exact, whatever the arithmetic."""
    found = built(form, dtype)
    worst = certified(found).certified
    assert (worst == 0) == (form == "clipped")
    for n in range(1, 11):
        bits = all_bits(n)
        outputs = fast.forward(found.network, found.target.tokens(bits))
        assert outputs.shape == (2**n, n + 1)
        assert np.abs(outputs.astype(float) - parity(bits)[:, None]).max() <= worst


@pytest.mark.deep
@pytest.mark.parametrize("form", FORMS)
def test_both_executors_agree(form: str) -> None:
    found = built(form, "float64")
    tokens = found.target.tokens(all_bits(7))
    plain, quick = reference.forward(found.network, tokens), fast.forward(found.network, tokens)
    assert np.abs(plain - quick).max() <= certified(found).certified


@pytest.mark.deep(keep="clipped-exact")
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("form", FORMS)
def test_certificates(form: str, dtype: str) -> None:
    target = ParityTarget(LONGEST)
    net = lf.build(target, form=form, dtype=dtype)
    chain = net.certificate
    assert chain.verdict is lf.Verdict.HOLDS and chain.witness <= chain.certified <= chain.bound
    assert (chain.certified == 0) == (form == "clipped" or dtype == "exact")
    assert net.sizes["layers"] == (4 if form == "clipped" else 2) and net.sizes["heads"] == 2
    assert chain.details["lengths"] == [1, LONGEST] and chain.details["computed_margin"] * chain.details["gain"] >= 1
    tokens = target.draw(np.random.default_rng(1), (200, LONGEST + 1))
    assert np.abs(net(tokens).astype(float) - parity(tokens[:, 1:, 0])[:, None]).max() <= max(chain.certified, 1e-11 * (form == "paper"))
    assert list(net.slots) == list(meanings(target, net.transformer))


def test_the_margin_is_the_formula() -> None:
    """(P.1) against softmax means formed position by position, for every k; (P.2) below it, and nearly attained."""
    eps = share_of_minority(fmpq(3))
    for tokens in range(2, 14):
        found = []
        for k in range(tokens):
            heads = []
            for wanted in (0, 1):
                weights = [arb(1) if i % 2 == wanted else eps for i in range(tokens)]
                heads.append(weights[k] / sum(weights, arb(0)) / tokens)
            difference = heads[0] - heads[1]
            assert (difference > 0) if k % 2 == 0 else (difference < 0)
            assert abs(abs(difference) - margin(tokens, k % 2 == 1)) < 1e-12
            found.append(abs(difference))
        assert all(value >= least_margin(tokens) for value in found)
        assert lower(min(found)) <= 1.01 * upper(least_margin(tokens))


@pytest.mark.deep
@pytest.mark.parametrize("form", FORMS)
def test_the_network_computes_this_margin(form: str) -> None:
    found = built(form, "float64", 9)
    tokens = found.target.tokens([[1] * k + [0] * (9 - k) for k in range(10)])
    held = trace(found.network, tokens, {name: list(place) for name, place in slots(found.target, found.network).items()})
    for k, seen in enumerate(held[f"layer {3 if form == 'clipped' else 2}"]["comparison"]):
        assert np.allclose(seen, (-1) ** k * float(margin(10, k % 2 == 1)), rtol=1e-12, atol=0)


@pytest.mark.deep(keep=("exact-paper", "float32-clipped"))
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", TYPES)
def test_enclosures_that_know_nothing_of_the_construction_agree(form: str, dtype: str) -> None:
    found = built(form, dtype)
    for n in range(1, 8):
        counts = np.array([[1] * k + [0] * (n - k) for k in range(n + 1)])
        enclosed = enclosed_pass(found.network, found.target.tokens(counts))
        off = np.abs(enclosed.mid - parity(counts)[:, None])
        assert (off <= enclosed.rad + 1e-12).all() and enclosed.rad.max() < 0.2


def test_horizons_of_the_page() -> None:
    found = {(form, dtype): horizon(form, dtype) for form in FORMS for dtype in TYPES}
    assert found["paper", "exact"] is None and found["clipped", "exact"] is None
    for dtype, bits in (("float32", 24), ("float64", 53)):
        paper, clipped = found["paper", dtype], found["clipped", dtype]
        assert paper is not None and clipped is not None
        assert 0.01 * 2**bits / 10 <= paper**2 <= 0.01 * 2**bits  # L² of the order e/u
        assert 2**bits / 7 <= clipped <= 2**bits / 6 and wrong_from(dtype) == 2**bits + 1
        assert gain_for("clipped", clipped, dtype) is not None and gain_for("clipped", clipped + 1, dtype) is None


def one_query(n: int, k: int, gain: float, one_by_one: bool = False) -> float:
    """The clipped network in float32 at one position, slot by slot in O(n): the first k bits are ones. Sums run pairwise, or one by one."""
    number, places = np.float32, np.arange(n + 1)

    def total(terms: np.ndarray) -> np.float32:
        return terms.cumsum(dtype=number)[-1] if one_by_one else terms.sum(dtype=number)

    count = total(((places >= 1) & (places <= k)).astype(number))
    difference, unit = (count - places.astype(number)) / number(n + 1), number(1) / number(n + 1)
    indicator = np.maximum(unit - np.abs(difference), number(0))
    heads = []
    for wanted in (0, 1):
        weights = np.where(places % 2 == wanted, number(1), number(np.exp(-6.0)))
        heads.append(total(weights * indicator) / total(weights))
    shortfall = np.maximum(number(1) - number(gain) * (heads[0] - heads[1]), number(0))
    return float(np.maximum(number(2) - shortfall, number(0)) - number(1))


@pytest.mark.deep
def test_the_clipped_form_at_the_horizon_of_float32() -> None:
    """Right at the longest certified length, also where sums run in the worst order that is easy to run."""
    found, gain = built("clipped", "float32", 9), gain_for("clipped", 9, "float32")
    assert gain is not None
    for k in range(10):
        outputs = fast.forward(found.network, found.target.tokens([1] * k + [0] * (9 - k)))
        assert set(outputs.tolist()) == {one_query(9, k, gain)} == {(-1.0) ** k}
    longest = horizon("clipped", "float32")
    assert longest is not None
    gain = gain_for("clipped", longest, "float32")
    assert gain is not None
    for k in (longest // 2, longest):
        assert one_query(longest, k, gain, one_by_one=True) == (-1.0) ** k


@pytest.mark.deep
def test_beyond_the_bits_of_its_type_the_clipped_form_is_wrong() -> None:
    """2^24 + 1 ones in float32: an even number, and so is the position that it would have to meet; the output is 0."""
    beyond = wrong_from("float32")
    assert beyond is not None and float(np.float32(beyond)) == beyond - 1
    ones = jnp.ones((1, beyond, 1), jnp.float32)
    assert float(jnp.einsum("hsk,hsv->hkv", ones, ones)[0, 0, 0]) in (beyond - 1, beyond + 1)
    gain = gain_for("clipped", beyond, "exact")
    assert gain is not None
    assert one_query(beyond, beyond, gain) > -0.5  # an odd count is not told


@pytest.mark.deep(keep="float64-268435456-2")
@pytest.mark.parametrize(("dtype", "longest", "rows"), [("float32", 2**14 - 1, 2**14), ("float64", 2**28, 2)])
def test_beyond_its_horizon_the_paper_form_is_wrong(dtype: str, longest: int, rows: int) -> None:
    """Its one ramp is so steep that ±1 are lost beside g d at n = 1. float64: with the gain for 2^28 bits, and the rows that are run."""
    beyond = horizon("paper", dtype)
    gain = gain_for("paper", longest, "exact")
    assert beyond is not None and longest > beyond and gain is not None and gain_for("paper", longest, dtype) is None
    network = rounded(assemble("paper", rows, fmpq(3), fmpq(gain)), dtype)
    target = ParityTarget(1)
    outputs = fast.forward(network, target.tokens([[0], [1]]))
    assert np.abs(outputs[0] - 1).min() >= 1 and (outputs[1] == -1).all()  # an even count is not told
    clipped = rounded(assemble("clipped", rows, fmpq(3), fmpq(gain)), dtype)
    assert (fast.forward(clipped, target.tokens([[0], [1]])) == [[1], [-1]]).all()


@pytest.mark.deep
def test_floats_are_refused_beyond_the_horizon_with_ways_that_work() -> None:
    longest = horizon("paper", "float32")
    assert longest is not None
    assert built("paper", "float32", longest).network.dtype == "float32"
    target = lf.task("parity", longest=longest + 9)
    with pytest.raises(lf.Refusal, match=f"up to {longest} bits") as refused:
        lf.build(target, form="paper", dtype="float32")
    assert {"form": "clipped"} in refused.value.remedies and {"dtype": "float64"} in refused.value.remedies
    for remedy in refused.value.remedies:
        found = build(ParityTarget(longest + 9), Parity.read({"form": "paper", "dtype": "float32", **remedy}))
        assert certified(found).certified <= 1e-2


@pytest.mark.deep
def test_long_sequences() -> None:
    """Lengths of thousands, far beyond the horizon of the paper's form in float32."""
    found = built("clipped", "float32", 3000)
    assert certified(found).certified == 0
    rng = np.random.default_rng(3)
    for n in (3000, 1025):
        bits = np.stack([rng.permutation([1] * k + [0] * (n - k)) for k in (n // 2, n // 2 + 1)])
        assert (fast.forward(found.network, found.target.tokens(bits)) == parity(bits)[:, None]).all()


def changed(network: Transformer, name: str, layer: int | None, place: tuple[int, ...], by: float) -> Transformer:
    """One entry of one array with `by` added."""

    def moved(array: np.ndarray) -> np.ndarray:
        copy = array.copy()
        copy[place] = copy[place] + (rational(by) if copy.dtype == object else by)
        return copy

    if layer is None:
        own: dict[str, Any] = {name: moved(getattr(network, name))}
        return replace(network, **own)
    layers = list(network.layers)
    part = "attention" if hasattr(layers[layer].attention, name) and name != "bias" else "feedforward"
    half = getattr(layers[layer], part)
    layers[layer] = replace(layers[layer], **{part: replace(half, **{name: moved(getattr(half, name))})})
    return replace(network, layers=tuple(layers))


@pytest.mark.parametrize("dtype", ["exact", "float32"])
@pytest.mark.parametrize("form", FORMS)
def test_changed_weights_are_caught(form: str, dtype: str) -> None:
    """One entry of every array, those that are 0 among them."""
    found = built(form, dtype)
    last = len(found.network.layers) - 1
    places: list[tuple[str, int | None, tuple[int, ...]]] = [
        ("embedding", None, (0, 0)), ("bias", None, (1,)),
        ("positions", None, (17, 2)), ("positions", None, (LONGEST, 3)), ("positions", None, (3, 4)),
        ("query", 0, (0, 0, 2)), ("key", 0, (0, 1, 0)), ("value", 0, (1, 0, 1)), ("output", 0, (1, 6, 0)),
        ("inner", 0, (0, 5)), ("bias", 0, (0,)), ("outer", 0, (7, 0)),
        ("outer", last, (0, 0)), ("bias", last, (0,)), ("inner", last, (0, 0)),
        *((name, last // 2 + 1 if form == "clipped" else last, place) for name, place in (
            ("query", (1, 0, 1)), ("key", (0, 0, 3)), ("value", (0, 0, 7)), ("output", (1, 8, 0)), ("decay", (0,)))),
    ]  # fmt: skip
    for name, layer, place in places:
        with pytest.raises(StrangeWeights):
            certified(found, changed(found.network, name, layer, place, 2.0**-10))


@pytest.mark.deep(keep="paper")
@pytest.mark.parametrize("form", FORMS)
def test_parameters_are_read_and_their_limits_certified(form: str) -> None:
    """Half the gain leaves the longest sequences off the plateau, and blunt heads do; one blunt head is no construction at all."""
    found = built(form, "float32")
    gain = gain_for(form, LONGEST, "float32")
    assert gain is not None

    def chain(sharpness: fmpq, slope: fmpq) -> lf.Certificate:
        return certified(found, rounded(assemble(form, LONGEST + 1, sharpness, slope), "float32"))

    assert chain(fmpq(3), fmpq(gain)).verdict is lf.Verdict.HOLDS
    assert chain(fmpq(3), fmpq(gain, 2)).verdict is lf.Verdict.VIOLATED
    assert chain(fmpq(1, 4), fmpq(gain)).verdict is lf.Verdict.VIOLATED
    for sharpness, slope in ((fmpq(-3), fmpq(gain)), (fmpq(3), fmpq(-gain)), (fmpq(50), fmpq(gain))):
        with pytest.raises(StrangeWeights, match="not those of heads that compare"):
            chain(sharpness, slope)
    steep = chain(fmpq(3), fmpq(64 * gain))
    assert steep.verdict is (lf.Verdict.HOLDS if form == "clipped" else lf.Verdict.VIOLATED)
    with pytest.raises(StrangeWeights, match="do not hold a begin token"):
        verify(found.network, ParityTarget(LONGEST + 1), form, "spline")


def test_targets() -> None:
    target = lf.task("parity", longest=5)
    assert target.describe() == {"kind": "parity", "longest": 5} and target.length is None and target.constant_error() == 1
    bits = all_bits(5)
    tokens = ParityTarget(5).tokens(bits)
    assert tokens.shape == (32, 6, 1) and (tokens[:, 0] == 0).all()
    for xp in (np, jnp):
        assert (np.asarray(target.values(xp)(xp.asarray(tokens))) == parity(bits)[:, None]).all()
    assert all(target.exact_value(row) == value for row, value in zip(tokens, parity(bits), strict=True))
    drawn = target.draw(np.random.default_rng(0), (3, 24))
    assert drawn.shape == (3, 6, 1)
    target.check_tokens(drawn, "drawn")
    for wrong, text in (
        (tokens[:, 1:2], "1 to 5 bits"),
        (np.zeros((7, 1)), "1 to 5 bits"),
        (1 - tokens, "begin token"),
        (tokens / 2, "bits 0 and 1"),
    ):
        with pytest.raises(lf.InputError, match=text):
            target.check_tokens(wrong, "here")
    for longest in (0, 2**14 + 1):
        with pytest.raises(lf.InputError, match="longest"):
            lf.task("parity", longest=longest)


@pytest.mark.deep
def test_commands(run: Callable[..., Any], tmp_path: Any) -> None:
    out = tmp_path / "net"
    made = run("build", "parity", "--longest", "16", "--dtype", "float32", "--out", out, "--json")
    assert made.code == 0 and made.json["certified"] == 0, made.err
    assert run("verify", out, "--json").json["lengths"] == [1, 16]
    found = run("bound", "parity", "--longest", "16", "--form", "paper", "--dtype", "float32", "--json").json
    assert found["gain"] == gain_for("paper", 16, "float32") and found["horizons"]["paper"]["float32"] == horizon("paper", "float32")
    refused = run("build", "parity", "--longest", "999", "--form", "paper", "--dtype", "float32", "--out", tmp_path / "no")
    assert refused.code == 2 and "--form clipped" in refused.err


@pytest.mark.deep
@pytest.mark.parametrize("form", FORMS)
def test_attacks(form: str) -> None:
    """Any sharpness and gain, and rude changes: what is certified is never exceeded, whether it is promised or not."""
    rng, finite, found = np.random.default_rng(5), 0, built(form, "float32", 12)
    words = [all_bits(n) for n in (1, 4)] + [rng.integers(2, size=(200, 12))]
    for _ in range(200):
        sharpness, gain = (fmpq(int(v * 2**12), 2**12) for v in 2.0 ** rng.uniform([-5, 0], [5.5, 20]))
        network = rounded(assemble(form, 13, sharpness, gain), "float32")
        network = mutated(network, rng) if rng.integers(4) == 0 else network
        try:
            worst = certified(found, network).certified
        except StrangeWeights:
            continue
        if worst < float("inf"):
            finite += 1
            for bits in words:
                assert np.abs(fast.forward(network, found.target.tokens(bits)) - parity(bits)[:, None]).max() <= worst
    assert finite >= 50
