"""The first bit: all short sequences, the horizon of a fixed logit from both sides, floats, sabotage."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import exp, log
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb, fmpq

import lemmaformer as lf
from analyzer.numbers.exact import rational, upper
from analyzer.targets.tasks.first import FirstTarget
from analyzer.theorems.library.first import distance, horizon, least_logit, wrong_from
from constructions.network.transformer import Transformer
from constructions.run import fast, reference
from constructions.theorems.construction import Construction
from constructions.theorems.jl_4_2 import rounded
from constructions.theorems.library.first import assemble, build
from tests.theorems.library.attacks import mutated
from verify.chain.certificate import StrangeWeights
from verify.chain.enclosed_layers import enclosed_pass
from verify.theorems.library.first import verify

TYPES = ("exact", "float64", "float32")
LONGEST = 40


@cache
def built(dtype: str, longest: int = LONGEST) -> Construction:
    return build(FirstTarget(longest), dtype=dtype)


def certified(found: Construction, network: Transformer | None = None) -> lf.Certificate:
    return verify(found.network if network is None else network, found.target, found.bank, found.ffn)


def all_tokens(n: int) -> np.ndarray:
    return np.array(list(itertools.product((0.0, 1.0), repeat=n)))[..., None]


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_sequences_of_short_lengths(dtype: str) -> None:
    network = built(dtype).network
    for n in range(1, 11):
        tokens = all_tokens(n)
        assert (fast.forward(network, tokens) == tokens[:, :1, 0]).all()
    assert (reference.forward(network, all_tokens(7)) == all_tokens(7)[:, :1, 0]).all()


@pytest.mark.deep(keep="exact")
@pytest.mark.parametrize("dtype", TYPES)
def test_certificates(dtype: str) -> None:
    target = FirstTarget(LONGEST)
    net = lf.build(target, dtype=dtype)
    chain = net.certificate
    assert chain.verdict is lf.Verdict.HOLDS and chain.witness == chain.certified == chain.bound == 0
    assert net.sizes["layers"] == 2 and net.sizes["heads"] == 1 and chain.details["horizon"] >= LONGEST
    tokens = target.draw(np.random.default_rng(1), (200, 99))
    assert tokens.shape == (200, LONGEST, 1) and (net(tokens) == tokens[:, :1, 0]).all()


@pytest.mark.parametrize("dtype", TYPES)
def test_enclosures_that_know_nothing_of_the_construction_agree(dtype: str) -> None:
    network = built(dtype).network
    for n in (1, 2, 7):
        enclosed = enclosed_pass(network, all_tokens(n))
        assert (np.abs(enclosed.mid - all_tokens(n)[:, :1, 0]) <= enclosed.rad).all() and enclosed.rad.max() < 1e-5


def test_horizons_are_those_of_the_page() -> None:
    for beta in range(1, 13):
        assert horizon(fmpq(beta), "exact") == int(1 + exp(beta) / 3) and wrong_from(fmpq(beta)) == int(1 + exp(beta)) + 1
    assert horizon(fmpq(8), "float32") == horizon(fmpq(8), "exact")
    assert 2**24 / 9 <= horizon(fmpq(64), "float32") <= 2**24 / 8 and 2**53 / 9 <= horizon(fmpq(64), "float64") <= 2**53 / 8
    for longest in (2, 40, 999, 2**14):
        least = least_logit(longest, "exact")
        assert least is not None and log(3 * (longest - 1)) <= float(least) < log(3 * (longest - 1)) + 1 / 8


def test_the_worst_mean_is_attained() -> None:
    """|m − x_0| against softmax means formed token by token, over all sequences."""
    weight = (-arb(2)).exp()
    for n in range(1, 9):
        means = [(row, (arb(row[0]) + weight * sum(row[1:])) / (1 + (n - 1) * weight)) for row in itertools.product((0, 1), repeat=n)]
        worst = max(upper(abs(mean - row[0])) for row, mean in means)
        assert worst == pytest.approx(upper(distance(n, fmpq(2), arb(0))), rel=1e-12, abs=1e-12)


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_fixed_logit_is_right_up_to_its_horizon_and_wrong_beyond(dtype: str) -> None:
    """β = 4: all others together weigh a quarter at 19 tokens, a half at 55, three quarters at 164; the table is long enough for all."""
    network = rounded(assemble(200, fmpq(4)), dtype)
    longest, beyond = horizon(fmpq(4), dtype), wrong_from(fmpq(4))
    assert (longest, beyond) == (19, 56)

    def outputs(n: int) -> np.ndarray:
        bits = np.ones((2, n, 1))
        bits[0, 0] = bits[1, 1:] = 0
        found = fast.forward(network, bits)
        assert (found == found[:, :1]).all()
        return found[:, 0]

    assert (outputs(longest) == [0, 1]).all()
    assert outputs(longest + 1)[0] > 0  # the plateau is left at once
    assert outputs(beyond)[0] > 0.5 > outputs(beyond)[1]  # both are told wrongly
    assert (outputs(165) == [1, 0]).all()


def test_logits_are_refused_beyond_their_horizon_with_a_way_that_works() -> None:
    with pytest.raises(lf.Refusal, match="up to 19 bits") as refused:
        build(FirstTarget(20), beta=4.0, dtype="float32")
    assert refused.value.remedies == ({"beta": None},)
    assert certified(build(FirstTarget(20), dtype="float32")).verdict is lf.Verdict.HOLDS
    assert certified(build(FirstTarget(19), beta=4.0, dtype="float32")).verdict is lf.Verdict.HOLDS


def test_parameters_are_read_and_their_limits_certified() -> None:
    found = built("float32")
    blunt = certified(found, rounded(assemble(LONGEST, fmpq(3)), "float32"))
    assert blunt.verdict is lf.Verdict.VIOLATED and blunt.witness > 0.5
    assert certified(found, rounded(assemble(LONGEST, fmpq(9)), "float32")).verdict is lf.Verdict.HOLDS
    for logit in (fmpq(-5), fmpq(81)):
        with pytest.raises(StrangeWeights, match="does not single out"):
            certified(found, rounded(assemble(LONGEST, logit), "float32"))
    with pytest.raises(StrangeWeights, match="do not hold 41 bits"):
        verify(found.network, FirstTarget(LONGEST + 1), "own", "spline")


@pytest.mark.parametrize("dtype", ["exact", "float32"])
def test_changed_weights_are_caught(dtype: str) -> None:
    """One entry of every array, those that are 0 among them."""
    found = built(dtype)
    network = found.network

    def moved(array: np.ndarray, *place: int) -> np.ndarray:
        copy = array.copy()
        copy[place] = copy[place] + (rational(2.0**-10) if copy.dtype == object else 2.0**-10)
        return copy

    first, last = network.layers
    looking, falling = first.attention, first.feedforward
    attentions = [
        replace(looking, query=moved(looking.query, 0, 0, 0)), replace(looking, key=moved(looking.key, 0, 0, 2)),
        replace(looking, value=moved(looking.value, 0, 0, 0)), replace(looking, output=moved(looking.output, 0, 3, 0)),
    ]  # fmt: skip
    neurons = [
        replace(falling, inner=moved(falling.inner, 0, 3)), replace(falling, bias=moved(falling.bias, 0)),
        replace(falling, outer=moved(falling.outer, 4, 0)),
    ]  # fmt: skip
    changed = [
        replace(network, positions=moved(network.positions, 0, 2)),
        replace(network, positions=moved(network.positions, 33, 2)),
        replace(network, embedding=moved(network.embedding, 0, 0)),
        replace(network, bias=moved(network.bias, 1)),
        *(replace(network, layers=(replace(first, attention=attention), last)) for attention in attentions),
        *(replace(network, layers=(replace(first, feedforward=ffn), last)) for ffn in neurons),
        replace(network, layers=(first, replace(last, feedforward=replace(last.feedforward, bias=moved(last.feedforward.bias, 0))))),
    ]
    for other in changed:
        with pytest.raises(StrangeWeights):
            certified(found, other)


def test_targets() -> None:
    target = lf.task("first", longest=5)
    assert target.describe() == {"kind": "first", "longest": 5} and target.constant_error() == 0.5
    tokens = all_tokens(5)
    for xp in (np, jnp):
        assert (np.asarray(target.values(xp)(xp.asarray(tokens))) == tokens[:, :1, 0]).all()
    assert all(target.exact_value(row) == int(row[0, 0]) for row in tokens)
    target.check_tokens(tokens, "here")
    for wrong, text in ((np.zeros((6, 1)), "1 to 5 bits"), (tokens / 2, "bits 0 and 1")):
        with pytest.raises(lf.InputError, match=text):
            target.check_tokens(wrong, "here")


@pytest.mark.deep
def test_commands(run: Callable[..., Any], tmp_path: Any) -> None:
    made = run("build", "first", "--longest", "16", "--dtype", "float32", "--out", tmp_path / "net", "--json")
    assert made.code == 0 and made.json["certified"] == 0, made.err
    found = run("bound", "first", "--longest", "16", "--beta", "4", "--json").json
    assert found["horizon"] == 19 and found["wrong_from"] == 56
    refused = run("build", "first", "--longest", "99", "--beta", "4", "--out", tmp_path / "no")
    assert refused.code == 2 and "up to 19 bits" in refused.err


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attacks(dtype: str) -> None:
    """Any logit, and rude changes: networks that are certified are right on all sequences, and on the worst ones of the longest length."""
    rng, right, found = np.random.default_rng(6), 0, built(dtype)
    worst = np.eye(LONGEST)[0]
    words = [all_tokens(n) for n in (1, 2, 9)] + [np.stack([worst, 1 - worst])[..., None]]
    for _ in range(200):
        network = rounded(assemble(LONGEST, fmpq(int(rng.uniform(2, 8) * 2**12), 2**12)), dtype)
        if rng.integers(4) == 0:
            network = mutated(network, rng)
        try:
            error = certified(found, network).certified
        except StrangeWeights:
            continue
        right += error == 0
        for tokens in words:
            assert np.abs(fast.forward(network, tokens) - tokens[:, :1, 0]).max() <= error
    assert right >= 50
