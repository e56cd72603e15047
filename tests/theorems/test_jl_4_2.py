"""Theorem 4.2 of Jiang & Li, built and certified: the chain, independent evaluations, ranks that are needed, and sabotage."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError, Refusal
from analyzer.lemmas.low_rank import averages, budget, factors, hull_knots, spectrum, uniform_knots
from analyzer.limits.coupling_rank import best_error
from analyzer.numbers.exact import upper, working_precision
from analyzer.targets.coupling import CouplingTarget, coupling_from_dict
from constructions.files.card import read_files, write_files
from constructions.network.transformer import Transformer, to_float
from constructions.run import fast, reference
from constructions.run.execute import run as evaluate
from constructions.theorems.construction import Construction
from constructions.theorems.jl_4_2 import build
from tests.depth import examples
from verify.chain.certificate import Certificate, Verdict
from verify.theorems.jl_4_2 import coupling_error, read, verify

Run = Callable[..., Any]

TARGETS: dict[str, dict[str, Any]] = {
    "rank two": {"rho": "2*sin(2*pi*u)*cos(2*pi*v) + u*v", "f": "x", "F": "y**2"},
    "smooth": {"rho": "exp(-4*(u-v)**2)", "f": "cos(3*x)", "F": "tanh(2*y)"},
    "kink": {"rho": "abs(u-v)", "f": "x", "F": "abs(y-0.4)"},
    "sines": {"sigma": "k**-1", "rank": 3},
}


def target_of(name: str, length: int = 8) -> CouplingTarget:
    return coupling_from_dict({"length": length, **TARGETS[name]}, "test")


@cache
def built(name: str, dtype: str = "exact", bank: str = "pod", rank: int | None = None) -> Construction:
    return build(target_of(name), pod=bank, rank=rank, error=0.05, dtype=dtype)


@cache
def certificate(name: str, dtype: str = "exact", bank: str = "pod", rank: int | None = None) -> Certificate:
    found = built(name, dtype, bank, rank)
    return verify(found.network, found.target, found.bank, found.ffn)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Witnesses are not searched for but drawn, and few sequences are sampled: for tests about other things."""
    monkeypatch.setattr("verify.theorems.jl_4_2.search", lambda error, length, pairs: np.random.default_rng(0).random((4, length)))
    monkeypatch.setattr("verify.theorems.jl_4_2.sample_count", lambda target: 64)


Array = np.ndarray
ORACLES: dict[str, tuple[Callable[[Array, Array], Array], Callable[[Array], Array], Callable[[Array], Array]]] = {
    "rank two": (lambda u, v: 2 * np.sin(2 * np.pi * u) * np.cos(2 * np.pi * v) + u * v, lambda x: x, lambda y: y**2),
    "smooth": (lambda u, v: np.exp(-4 * (u - v) ** 2), lambda x: np.cos(3 * x), lambda y: np.tanh(2 * y)),
    "kink": (lambda u, v: np.abs(u - v), lambda x: x, lambda y: np.abs(y - 0.4)),
    "sines": (
        lambda u, v: sum((2 / k * np.sin(2 * np.pi * k * u) * np.sin(2 * np.pi * k * v) for k in (1, 2, 3)), 0 * u * v),
        lambda x: x,
        lambda y: y,
    ),
}
"""(ρ, f, F) of every target once more, by hand."""


def plain_target(name: str, x: Array) -> Array:
    """H in numpy, by an independent route: no formula of ours."""
    rho, f, readout = ORACLES[name]
    weights = np.exp(rho(x[..., :, None], x[..., None, :]))
    return readout((weights * f(x)[..., None, :]).sum(-1) / weights.sum(-1))


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["exact", "float64", "float32"])
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_chain(name: str, dtype: str) -> None:
    found = certificate(name, dtype)
    assert found.verdict is Verdict.HOLDS and 0 < found.witness <= found.certified <= found.bound <= 0.05
    assert (found.rounding == 0) == (dtype == "exact") and all(part.holds for part in found.parts)
    assert 0.05 < found.details["ratio"] <= 1
    assert found.parts[0].certified >= found.details["limit"]


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["exact", "float32"])
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_ten_thousand_random_and_extreme_inputs_stay_below(name: str, dtype: str) -> None:
    found, network = certificate(name, dtype), built(name, dtype).network
    rng = np.random.default_rng(7)
    x = np.concatenate([rng.random((9000, 8)), rng.integers(0, 2, (500, 8)).astype(float), rng.choice([0, 0.25, 0.5, 1], (500, 8))])
    x = x.astype("float32").astype(float)
    errors = np.abs(evaluate(network, x[..., None]).astype(float) - plain_target(name, x))
    assert errors.max() <= found.certified
    assert errors.max() >= found.witness / 20  # the same error as the certificate speaks of


@pytest.mark.deep
@pytest.mark.parametrize("name", ["rank two", "sines"])
def test_the_rank_is_reached_and_needed(name: str) -> None:
    rank = {"rank two": 2, "sines": 3}[name]
    enough, short = certificate(name, rank=rank), certificate(name, rank=rank - 1)
    splines = budget(target_of(name), "pod", rank, read(built(name, rank=rank).network).knots, hull_knots(target_of(name), 1), "exact")
    assert enough.parts[0].certified <= upper(splines.interpolation) * 1.001 + 1e-9  # only the splines are left
    assert short.witness > 5 * enough.certified
    assert short.parts[0].certified >= short.details["limit"] > 0.1
    assert short.verdict is Verdict.HOLDS and short.certified < short.trivial <= short.bound and short.bound_vacuous
    (remedy,) = short.remedies
    assert remedy["rank"] is remedy["knots"] is None and "no rank, no knots" in short.advice
    followed = build(target_of(name), error=remedy["error"])
    better = verify(followed.network, followed.target, followed.bank, followed.ffn)
    assert better.verdict is Verdict.HOLDS and not better.bound_vacuous


@pytest.mark.deep
def test_softmax_needs_the_rank_modulo_functions_of_the_query() -> None:
    """(u−v)² has rank 3, but two coordinates are enough: u² is not seen."""
    target = coupling_from_dict({"length": 8, "rho": "3*(u-v)**2"}, "test")
    plain, centred = (build(target, pod=bank, rank=2, knots=64) for bank in ("pod", "centred"))
    errors = [verify(c.network, target, c.bank, "spline") for c in (plain, centred)]
    assert errors[1].certified < 1e-3 < 0.02 < errors[0].witness
    assert spectrum(target.coupling, "pod").rank == 3 and spectrum(target.coupling, "centred").rank == 2


@pytest.mark.deep
@pytest.mark.parametrize("name", sorted(TARGETS))
def test_executors_agree(name: str) -> None:
    network = built(name, "float64").network
    x = np.random.default_rng(0).random((3, 8, 1))
    assert np.abs(fast.forward(network, x) - reference.forward(network, x)).max() < 1e-13
    exact = built(name).network
    tokens = [fmpq(int(v * 1024), 1024) for v in x[0, :, 0]]
    with working_precision(96):
        ball = read(exact).at(tokens, 3)
    assert abs(float(ball) - evaluate(exact, np.array([[float(arb(v))] for v in tokens]))[3]) < 1e-12


def test_best_rank_is_never_beaten() -> None:
    """No q, k of the right size, however they were found, come below the limit."""
    target = target_of("smooth")
    rng = np.random.default_rng(0)
    for rank in (1, 2):
        limit = best_error(target.coupling, rank)
        found = factors(target.coupling, uniform_knots(32), "centred")
        for noise in (0, 0.01, 0.3):
            left = found.left[:, :rank] + noise * rng.standard_normal((33, rank))
            gap = target.coupling.grid(uniform_knots(32), uniform_knots(32))[0] - left @ found.right[:, :rank].T
            assert (gap.max(axis=1) - gap.min(axis=1)).max() / 2 >= float(limit.lower())
        assert float(limit.lower()) > 0


def _changed(network: Transformer, place: str, index: tuple[int, ...], shift: fmpq) -> Transformer:
    """A copy with one weight moved."""
    layer = 0 if place.startswith("first.") else 1
    part, name = place.split(".")[1:]
    chosen = getattr(network.layers[layer], part)
    array = np.array(getattr(chosen, name), dtype=object)
    array[index] = array[index] + shift
    layers = list(network.layers)
    layers[layer] = replace(layers[layer], **{part: replace(chosen, **{name: array})})
    return replace(network, layers=tuple(layers))


SABOTAGE = [
    ("first.feedforward.outer", (1, 5)),
    ("first.feedforward.outer", (4, 2)),
    ("first.feedforward.bias", (3,)),
    ("first.feedforward.inner", (2, 0)),
    ("second.attention.query", (0, 0, 1)),
    ("second.attention.key", (0, 1, 3)),
    ("second.attention.value", (0, 0, 5)),
    ("second.attention.output", (0, 6, 0)),
    ("second.feedforward.outer", (0, 1)),
    ("second.feedforward.inner", (1, 6)),
    ("second.feedforward.inner", (1, 0)),
]


@pytest.mark.deep(keep=("first.feedforward.bias-(3,)", "second.attention.value-(0, 0, 5)"))
@pytest.mark.parametrize(("place", "index"), SABOTAGE, ids=lambda v: str(v))
def test_a_changed_weight_is_caught(quick: None, place: str, index: tuple[int, ...]) -> None:
    network = _changed(built("rank two").network, place, index, fmpq(1, 3))
    found = verify(network, target_of("rank two"), "pod", "spline")
    assert found.verdict is Verdict.VIOLATED
    x = np.random.default_rng(0).random((200, 8))
    if not found.faults:  # and what is certified about it is still true
        errors = np.abs(evaluate(network, x[..., None]) - plain_target("rank two", x))
        assert errors.max() <= found.certified


@settings(max_examples=examples(15), deadline=None)
@given(seed=st.integers(0, 2**32 - 1), scale=st.sampled_from([0.1, 1.0, 3.0]))
def test_random_weights_are_certified_truly(seed: int, scale: float) -> None:
    """Networks of the right shape with any weights: the coupling's error bounds what a fine grid shows."""
    rng = np.random.default_rng(seed)
    base = built("rank two").network
    first, last = base.layers
    neurons = int(rng.integers(1, 7))

    def numbers(*shape: int) -> np.ndarray:
        result = np.empty(shape, dtype=object)
        for index in np.ndindex(*shape):
            result[index] = fmpq(int(rng.normal() * scale * 64), 64)
        return result

    inner = numbers(neurons, 7)
    inner[:, 1:] = fmpq(0)
    outer = numbers(7, neurons)
    outer[[0, 6]] = fmpq(0)
    network = replace(
        base, layers=(replace(first, feedforward=replace(first.feedforward, inner=inner, bias=numbers(neurons), outer=outer)), last)
    )
    target = target_of("rank two")
    reading = read(network)
    with working_precision(96):
        delta, _ = coupling_error(reading, target)
    floats = network.map(lambda a: to_float(a, "float64"))
    xs = np.linspace(0, 1, 57)
    stream = np.concatenate([xs[:, None], np.zeros((57, 6))], axis=1) + np.asarray(floats.bias)
    ffn = floats.layers[0].feedforward
    stream = stream + np.maximum(stream @ ffn.inner.T + ffn.bias, 0) @ ffn.outer.T
    logits = stream[:, 1:3] @ stream[:, 3:5].T
    gap = 2 * np.sin(2 * np.pi * xs[:, None]) * np.cos(2 * np.pi * xs) + xs[:, None] * xs - logits
    assert (gap.max(axis=1) - gap.min(axis=1)).max() / 2 <= float(delta.upper()) + 1e-9


def test_shapes_and_faults(quick: None) -> None:
    network, target = built("rank two").network, target_of("rank two")
    with pytest.raises(InputError, match="not a network of theorem"):
        read(replace(network, layers=network.layers[:1]))
    causal = replace(network.layers[1], attention=replace(network.layers[1].attention, window="finite"))
    with pytest.raises(InputError, match="not a network of theorem"):
        read(replace(network, layers=(network.layers[0], causal)))
    rounded = replace(network.layers[0].feedforward, precision=("integer",) * 7)
    found = verify(replace(network, layers=(replace(network.layers[0], feedforward=rounded), network.layers[1])), target, "pod", "spline")
    assert found.verdict is Verdict.VIOLATED and "rounds its outputs" in found.advice
    ones = np.full((1, 1, 7), fmpq(1), dtype=object)
    busy = replace(network.layers[0].attention, value=ones, output=ones.transpose(0, 2, 1))
    found = verify(replace(network, layers=(replace(network.layers[0], attention=busy), network.layers[1])), target, "pod", "spline")
    assert found.verdict is Verdict.VIOLATED and "attention is not off" in found.advice


@pytest.mark.deep
def test_means_are_below_the_repaired_bounds() -> None:
    for name in sorted(TARGETS):
        sampled = certificate(name).details["sampled"]
        assert 0 < sampled["l1"] <= sampled["l1_bound"] and sampled["mean_square"] <= sampled["mean_square_bound"]
        assert sampled["sequences"] == 10_000 and sampled["worst"] <= certificate(name).certified


@pytest.mark.deep
def test_the_diagonal_is_needed() -> None:
    """δ(u, u) of the tail: the L² norm alone does not bound the mean of what a token does to itself."""
    target, knots = coupling_from_dict({"length": 2, "sigma": "k**-0.55", "rank": 200}, "test"), uniform_knots(1024)
    promised = budget(target, "pod", 1, knots, hull_knots(target, 1), "exact")
    means = averages(target, promised, "pod", 1, knots)
    xs = np.random.default_rng(0).random(400)
    k = np.arange(2, 201)
    diagonal = np.abs((k**-0.55 * 2 * np.sin(2 * np.pi * k * xs[:, None]) ** 2).sum(axis=1)).mean()
    tail = np.sqrt((k ** (-1.1)).sum())
    assert float(means.off_diagonal) == pytest.approx(tail, rel=0.01)
    assert diagonal > 10 * tail and diagonal == pytest.approx(float(means.diagonal), rel=0.05)


def test_means_do_not_depend_on_how_equal_singular_values_are_turned() -> None:
    """f_1 g_1 + f_2 g_2 with orthonormal sines: what m = 1 leaves is (f·e)(g·e) for any direction e."""
    one, two = "sin(2*pi*{0})", "sin(4*pi*{0})"
    rho = " + ".join(f"2*{f.format('u')}*{g.format('v')}" for f, g in ((one, two), (two, one)))
    target, knots = coupling_from_dict({"length": 4, "rho": rho}, "test"), uniform_knots(128)
    means = averages(target, budget(target, "pod", 1, knots, hull_knots(target, 1), "exact"), "pod", 1, knots)
    x = np.linspace(0, 1, 1001)
    f = np.sqrt(2) * np.stack([np.sin(2 * np.pi * x), np.sin(4 * np.pi * x)])
    for angle in np.linspace(0, np.pi, 9):
        e = np.array([np.cos(angle), np.sin(angle)])
        assert np.abs((e @ f) * (e @ f[::-1])).mean() <= float(means.diagonal)
    assert float(means.off_diagonal) >= np.sqrt(3)


def test_no_mean_is_promised_above_the_worst_case() -> None:
    target, knots = coupling_from_dict({"length": 16, "rho": "sin(3*u*v)"}, "test"), uniform_knots(16)
    promised = budget(target, "pod", 8, knots, hull_knots(target, 1), "exact")
    means = averages(target, promised, "pod", 8, knots)
    assert max(upper(means.l1), upper(means.root_mean_square)) <= upper(promised.total)


@pytest.mark.deep
def test_floats_that_cannot_hold_it_are_refused(quick: None) -> None:
    wide = coupling_from_dict({"length": 8, "rho": "60*u*v"}, "test")
    found = build(wide, rank=1, knots=16, dtype="float32")
    with pytest.raises(Refusal, match="dtype='exact'"):
        verify(found.network, wide, "pod", "spline")
    assert verify(build(wide, rank=1, knots=16, dtype="float64").network, wide, "pod", "spline").rounding > 0


@pytest.mark.deep
def test_a_card_that_claims_more_is_caught(quick: None, run: Run, tmp_path: Path) -> None:
    out = tmp_path / "net"
    assert run("build", "coupling", "--rho", "sin(3*u*v)", "--length", "4", "--out", out, "--json").json["verdict"] == "holds"
    files = read_files(out)
    card = {key: value for key, value in files.card.items() if key not in ("format", "version", "integrity")}
    for change in ({"certified": 1e-5}, {"bound": 1e-5}, {"witness": 0.5}):
        write_files(out, card | {"chain": card["chain"] | change}, files.weights, "", overwrite=True)
        assert run("verify", out, "--json").code == 1
    write_files(out, card | {"target": card["target"] | {"rho": "sin(3*u*v) + v"}}, files.weights, "", overwrite=True)
    assert run("verify", out, "--json").json["verdict"] == "violated"
    write_files(out, card | {"target": card["target"] | {"rho": "log(u)"}}, files.weights, "", overwrite=True)
    assert run("verify", out).code == 2
    write_files(out, card, files.weights, "", overwrite=True)
    text = (out / "card.json").read_text()
    (out / "card.json").write_text(json.dumps({**json.loads(text), "bank": "centred"}))
    assert run("verify", out).code == 2


@pytest.mark.deep
def test_tokens_of_other_domains_are_refused(quick: None, run: Run, tmp_path: Path) -> None:
    out, tokens = tmp_path / "net", tmp_path / "x.npy"
    assert run("build", "coupling", "--rho", "u*v", "--length", "4", "--dtype", "float32", "--out", out, "--quiet").code == 0
    for outside in (-0.5, 1.5):
        np.save(tokens, np.array([0.5, outside]))
        for command in (["run", out, "--output", tmp_path / "y.npy"], ["spectrum", out]):
            refused = run(*command, "--input", tokens)
            assert refused.code == 2 and "outside [0, 1]" in refused.err
    np.save(tokens, np.linspace(0, 1, 6))
    assert run("run", out, "--input", tokens, "--output", tmp_path / "y.npy", "--json").json["beyond_length"] == 6
