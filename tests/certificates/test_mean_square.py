"""Mean squares of networks: closed forms against sums and simulations, roundings, what is sampled only, sabotage, bad input."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.lemmas import extraction as ex
from analyzer.lemmas.bump import variation
from analyzer.numbers.exact import rational
from analyzer.numbers.formula_values import evaluate
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.tokens import TOKEN_LAWS
from constructions.network.transformer import FeedForward, Transformer, to_exact
from constructions.run import reference
from constructions.run.execute import evaluated
from constructions.run.fused import fuse
from tests.conftest import random_network
from tests.depth import examples
from verify.chain.mean_square import affine_mean_square
from verify.theorems import mean_square
from verify.theorems.mean_square import verify_mean_square

LENGTH = 200
"""Tokens after which heads of a random network hold little: a log head decays like s^-1.3 at least."""
FEW = 3000
"""Sequences of a simulation: standard errors are 2 % of the spread."""


def affine(rng: np.random.Generator, network: Transformer) -> Transformer:
    """The network with a read-out that is a straight line: relu(r·u) − relu(−r·u) + constant."""
    row = rng.standard_normal(network.layers[0].feedforward.inner.shape[1])
    ffn = FeedForward(np.stack([row, -row, 0 * row]), np.array([0.0, 0.0, 1.0]), np.array([[1.0, -1.0, 0.3]]))
    return replace(network, layers=(replace(network.layers[0], feedforward=ffn),))


@pytest.mark.deep
@given(seed=st.integers(0, 10**6), rpe=st.lists(st.sampled_from(["lin", "log"]), min_size=1, max_size=4))
@settings(max_examples=examples(48))
def test_random_layers_against_their_impulse_responses(seed: int, rpe: list[str]) -> None:
    rng = np.random.default_rng(seed)
    network = affine(rng, random_network(rng, sorted(rpe)))
    target = FixedMemory((1, 3), 2, "x0[0] - m1[1] + 0.5*m2[0] + 0.1")
    exact = network.map(to_exact)
    layer = fuse(exact)
    found = affine_mean_square(exact, target, layer, TOKEN_LAWS["uniform"])
    silent = reference.forward(network, np.zeros((1, LENGTH, 2)))[0, -1] - 0.1
    total = silent**2
    for i in range(2):
        impulse = np.zeros((1, LENGTH, 2))
        impulse[0, 0, i] = 1
        response = reference.forward(network, impulse)[0] - reference.forward(network, np.zeros((1, LENGTH, 2)))[0]
        wanted = target.values(np)(impulse)[0] - 0.1
        total += ((response - wanted) ** 2).sum() / 3
    gains = float(np.abs(np.array([[float(arb(g)) for g in row] for row in layer.gains.reshape(len(rpe), -1)])).sum()) * 10
    rest = gains**2 * LENGTH**-1.6
    assert float(found.least) - rest <= total * (1 + 1e-9) + 1e-9 and total <= float(found.most) * (1 + 1e-9) + 1e-9
    assert float(found.most - found.least) <= 1e-9 * float(found.most)


NETWORKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "lin": (lf.fixed(lags=(3,)), {"error": 0.3}),
    "two lags": (lf.fixed(lags=(1, 3), readout="x0 - 2*m1 + 0.5*m2 + 0.25"), {"error": 0.3}),
    "log": (lf.fixed(lags=(2,)), {"rpe": "log", "error": 0.3}),
    "mixed": (lf.fixed(lags=(3,)), {"rpe": "mixed", "error": 0.3}),
    "floats": (lf.fixed(lags=(2,), dim=2, readout="m1[0] - m1[1]/2"), {"dtype": "float32", "error": 0.3}),
    "kernel": (lf.kernel("(s+1)**-2"), {"heads": 2}),
    "curved": (lf.fixed(lags=(2,), readout="x0*m1"), {"error": 0.3}),
}


@pytest.fixture(scope="module")
def built() -> Callable[[str], lf.Network]:
    known: dict[str, lf.Network] = {}
    return lambda name: known.setdefault(name, known.get(name) or lf.build(NETWORKS[name][0], **NETWORKS[name][1]))


@pytest.mark.deep(keep=("lin-signs", "two lags-gaussian", "log-uniform", "mixed-uniform", "kernel-signs"))
@pytest.mark.parametrize("tokens", ["uniform", "signs", "gaussian"])
@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "curved"])
def test_simulations_agree_to_sampling_error(name: str, tokens: str, built: Callable[[str], lf.Network]) -> None:
    """The mean over simulated tokens lies within five of its standard errors of witness ≤ certified."""
    net = built(name)
    certificate = net.verify(norm="mean-square", tokens=tokens)
    assert certificate.verdict.value == "holds" and certificate.witness <= certificate.certified <= certificate.bound
    assert certificate.as_dict()["norm"] == "mean-square" and certificate.as_dict()["tokens"] == tokens
    assert net.target is not None
    drawn = TOKEN_LAWS[tokens].draw(np.random.default_rng(1), (FEW, 96, net.target.dim))
    drawn = drawn if net.dtype == "exact" else drawn.astype(net.dtype).astype(float)
    squares = (evaluated(net.transformer, drawn)[:, -1].astype(float) - net.target.values(np)(drawn)[:, -1]) ** 2
    spare = 5 * squares.std() / np.sqrt(FEW) + 1e-9
    assert certificate.witness - spare <= squares.mean() <= certificate.certified + spare
    sharp = net.dtype == "exact" or tokens == "gaussian"
    assert not sharp or certificate.certified <= certificate.witness * (1 + 1e-9)


def test_mean_squares_scale_with_the_variance_and_lie_below_the_worst_case(built: Callable[[str], lf.Network]) -> None:
    net = built("two lags")
    uniform, signs = (net.verify(norm="mean-square", tokens=tokens) for tokens in ("uniform", "signs"))
    assert signs.certified == pytest.approx(3 * uniform.certified, rel=1e-12)
    assert signs.trivial == pytest.approx(5.25) and signs.certified < net.certificate.certified**2
    assert {part.name for part in signs.parts} == {part.name for part in net.certificate.parts}


@pytest.mark.deep(keep=("thm-3.1-target0-options0", "thm-3.1-target1-options1"))
@pytest.mark.parametrize(
    ("theorem", "target", "options"),
    [
        ("thm-3.1", lf.fixed(lags=(2,)), {"bank": "tuned", "heads": 24}),
        ("thm-3.1", lf.fixed(lags=(1, 2)), {"bank": "tuned", "heads": 16, "rpe": "log"}),
        ("thm-5.1", lf.kernel("exp(-s)"), {"bank": "tuned", "heads": 24}),
    ],
)
def test_bounds_in_mean_square_hold_for_the_networks_of_the_proofs(theorem: str, target: Any, options: dict[str, Any]) -> None:
    """(3.11): below v e², above the network that the proof writes down; and the formula that people read is the number."""
    worst, found = (lf.bound(theorem, target, **options, **norm) for norm in ({}, {"norm": "mean-square", "tokens": "signs"}))
    net = lf.build(target, **options)
    certified = net.verify(norm="mean-square", tokens="signs").certified
    assert certified <= found.total < worst.total**2 and found.data["worst_case"] == worst.total
    assert "mean square" in repr(found) and found.heads == worst.heads
    third = lf.bound(theorem, target, **options, norm="mean-square")
    assert third.total == pytest.approx(found.total / 3) and third.data["tokens"] == "uniform"


def test_the_formula_of_a_bound_in_mean_square_is_its_number() -> None:
    found = lf.bound("thm-3.1", lf.fixed(lags=(4,)), heads=256, norm="mean-square")
    data = found.data
    values = {ex.T: 4, ex.H: 256, ex.n: data["rate"], sympy.Symbol("v", positive=True): fmpq(1, 3), ex.B(ex.n): variation(data["rate"])}
    values |= {ex.alpha: rational(data["alpha"]), ex.gamma: rational(data["gamma"])}
    assert float(evaluate(found.expression, values)) == pytest.approx(found.total, rel=1e-12) == pytest.approx(0.00171723, rel=1e-5)


@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_heads_are_solved_for_in_mean_square(rpe: str) -> None:
    found = lf.bound("thm-3.1", lf.fixed(lags=(4,)), rpe=rpe, error=1e-2, norm="mean-square", tokens="signs")
    fewer = lf.bound("thm-3.1", lf.fixed(lags=(4,)), rpe=rpe, heads=found.heads - 1, norm="mean-square", tokens="signs")
    assert found.total <= 1e-2 < fewer.total and found.heads < lf.bound("thm-3.1", lf.fixed(lags=(4,)), rpe=rpe, error=1e-1).heads


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("bound thm-4.4 --lags 2,3 --heads 64 --norm mean-square", "thm-4.4 has no bound in mean square"),
        ("bound jl-4.2 --rho u*v --norm mean-square", "jl-4.2 has no bound in mean square"),
        ("bound thm-3.1 --lags 4 --tokens signs", "tokens goes with norm=mean-square"),
        ("bound thm-3.1 --lags 4 --norm mean-square --solve width --error 0.1", "solve=width goes with norm=sup"),
        ("bound thm-3.1 --lags 4 --all --norm mean-square", "--norm does not go with --all"),
        ("bound thm-3.1 --lags 4 --norm middle", "'middle' is not one of"),
        ("bound least-squares --lags 4", "decays are needed"),
        ("bound least-squares --lags 4 --decays 1 --norm sup", "least-squares is about norm=mean-square"),
        ("bound least-squares --rho u*v --decays 1", "least-squares is about fixed and kernel targets, this one is coupling"),
    ],
)
def test_bad_bounds(line: str, said: str, run: Any) -> None:
    found = run(*line.split())
    assert found.code == 2 and said in found.err and len(found.err.strip().splitlines()) == 1


def test_signs_of_a_short_window_are_enumerated() -> None:
    """Every word of signs of a table network with a finite window, one by one."""
    rng = np.random.default_rng(3)
    network = affine(rng, random_network(rng, ["table", "table"], window="finite", dim=1, bias=False, reach=6))
    target = FixedMemory((2,), 1, "m1 - 0.5*x0")
    found = verify_mean_square(network, target, "signs", length=8)
    words = np.array(np.meshgrid(*[[-1.0, 1.0]] * 8)).reshape(8, -1).T[..., None]
    squares = (reference.forward(network, words)[:, -1] - target.values(np)(words)[:, -1]) ** 2
    assert found.witness == pytest.approx(squares.mean(), rel=1e-9) == pytest.approx(found.certified, rel=1e-9)
    assert "not covered" in found.details["not_covered"]


def test_rounding_is_covered_for_bounded_tokens_only(built: Callable[[str], lf.Network]) -> None:
    net = built("floats")
    uniform, gaussian = (net.verify(norm="mean-square", tokens=tokens) for tokens in ("uniform", "gaussian"))
    assert uniform.rounding > 0 and "not_covered" not in uniform.details and uniform.witness < uniform.certified
    assert gaussian.rounding == 0 and "Gaussian" in gaussian.details["not_covered"]


def test_curved_read_outs_are_certified_from_above_and_sampled(built: Callable[[str], lf.Network]) -> None:
    net = built("curved")
    for tokens in ("uniform", "signs"):
        found = net.verify(norm="mean-square", tokens=tokens)
        sampled = found.details["sampled"]
        assert found.verdict.value == "holds" and "sampled" in found.witness_input
        assert 0 < found.witness < sampled["mean"] <= found.certified <= found.bound <= net.certificate.bound**2 * (1 + 1e-9)
    unbounded = net.verify(norm="mean-square", tokens="gaussian")
    assert unbounded.verdict.value == "measured" and unbounded.as_dict()["certified"] is None
    assert net.verify(norm="mean-square").details == net.verify(norm="mean-square").details, "a seed makes samples repeatable"


def test_bends_outside_the_range_count_for_gaussian_tokens_only(built: Callable[[str], lf.Network]) -> None:
    """relu(v + 9) − 9 is v where |v| ≤ 9."""
    net = built("lin")
    layer = net.transformer.map(to_exact).layers[0]
    row = layer.feedforward.inner[:1]
    bent = FeedForward(np.concatenate([row, 0 * row]), to_exact(np.array([9.0, 1.0])), to_exact(np.array([[1.0, -9.0]])))
    network = replace(net.transformer, layers=(replace(layer, feedforward=bent),))
    assert net.target is not None
    straight = net.verify(norm="mean-square", tokens="signs")
    assert verify_mean_square(network, net.target, "signs").certified == pytest.approx(straight.certified, rel=1e-12)
    assert verify_mean_square(network, net.target, "gaussian").verdict.value == "measured"


def test_other_networks_are_measured(built: Callable[[str], lf.Network]) -> None:
    chain = lf.build(lf.fixed(lags=(2,)), depth=2)
    found = chain.verify(norm="mean-square")
    assert found.verdict.value == "measured" and "one dp-free layer" in found.advice
    assert found.details["sampled"]["sequences"] == mean_square.SEQUENCES and found.witness <= found.details["sampled"]["mean"]
    other = lf.verify(built("lin"), lf.fixed(lags=(2,)), norm="mean-square", tokens="signs")
    assert other.theorem == "dp-free layer" and other.verdict.value == "vacuous" and "in mean square" in other.advice


@pytest.mark.deep
def test_trained_networks_are_certified_or_measured() -> None:
    small: dict[str, Any] = {"heads": 2, "steps": 20, "length": 8, "batch": 4}
    straight = lf.train(lf.fixed(lags=(1,)), linear=True, **small).verify(norm="mean-square")
    assert straight.theorem == "dp-free layer" and straight.rounding > 0 and straight.witness <= straight.certified == straight.bound
    assert straight.witness_input.endswith("infinite past")
    net = lf.train(lf.fixed(lags=(1,)), width=4, **small)
    bent, unbounded = (net.verify(norm="mean-square", tokens=tokens) for tokens in ("signs", "gaussian"))
    assert bent.certified == pytest.approx(net.certificate.certified**2, rel=0.05) and "sampled" in bent.witness_input
    assert bent.witness <= bent.details["sampled"]["mean"] <= bent.certified
    assert unbounded.verdict.value == "measured" and "bends somewhere on the line" in unbounded.advice


def test_a_changed_weight_and_a_changed_claim_are_noticed(built: Callable[[str], lf.Network]) -> None:
    net = built("lin")
    changed, _, _ = net.broken("output", by=0.01)
    assert changed.verify(norm="mean-square").verdict.value == "violated"
    bent, _, _ = built("curved").broken("output", by=0.01)
    for tokens in ("signs", "gaussian"):  # what is only sampled has a broken chain all the same
        assert bent.verify(norm="mean-square", tokens=tokens).verdict.value == "violated"
    claims = {**net.card["chain"], "certified": net.certificate.certified / 2}
    boasting = lf.Network(net.transformer, {**net.card, "chain": claims}, net.target)
    found = boasting.verify(norm="mean-square")
    assert found.verdict.value == "violated" and "the card claims certified" in found.advice


def test_a_wrong_closed_form_would_be_noticed(built: Callable[[str], lf.Network], monkeypatch: pytest.MonkeyPatch) -> None:
    net = built("lin")
    honest = mean_square.affine_mean_square
    grown = lambda *given: replace(honest(*given), most=honest(*given).most * 2)  # noqa: E731
    monkeypatch.setattr(mean_square, "affine_mean_square", grown)
    assert net.verify(norm="mean-square").verdict.value == "violated"


def test_tables_and_words_speak_of_mean_squares(built: Callable[[str], lf.Network], tmp_path: Path, run: Any) -> None:
    built("floats").save(tmp_path / "net")
    shown = run("verify", tmp_path / "net", "--norm", "mean-square", "--tokens", "gaussian")
    assert shown.code == 0 and "mean squares E|error|²" in shown.out and "rounding is not covered" in " ".join(shown.out.split())
    again = run("verify", tmp_path / "net", "--norm", "mean-square", "--json").json
    for key in ("theorem", "verdict", "bound_vacuous", "witness", "certified", "bound", "parts", "sizes", "dtype", "rounding", "seconds"):
        assert key in again
    assert (again["norm"], again["tokens"], again["floor"]) == ("mean-square", "uniform", 0.0)  # as many heads as the lag


@pytest.mark.parametrize(
    ("keywords", "said"),
    [
        ({"norm": "l3"}, "norm is 'l3'; choose from sup, mean-square"),
        ({"norm": "mean-square", "tokens": "cauchy"}, "tokens is 'cauchy'"),
        ({"norm": "sup", "tokens": "signs"}, "tokens are drawn for norm=mean-square"),
        ({"norm": "mean-square", "margin": True}, "margin is about the worst case"),
    ],
)
def test_bad_input(keywords: dict[str, Any], said: str, built: Callable[[str], lf.Network]) -> None:
    with pytest.raises(lf.InputError, match=said):
        built("lin").verify(**keywords)


def test_targets_without_independent_tokens_are_refused() -> None:
    letters = lf.build(lf.adaptive([-1, 1], {"m1": [1, 2]}))
    with pytest.raises(lf.InputError, match="fixed and kernel memories"):
        letters.verify(norm="mean-square")
    net = lf.build(lf.fixed(lags=(1,)))
    with pytest.raises(lf.InputError, match="letters -1, 1 and tokens=signs"):
        lf.verify(net, lf.fixed(lags=(1,), alphabet=[-1, 0, 1]), norm="mean-square")
