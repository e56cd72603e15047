"""Best weights in mean square: closed forms against each other and simulations, optimality, certificates, sabotage, bad input."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.kernels.l2_norms import l2_square
from analyzer.kernels.memory_kernels import parse_kernel
from analyzer.lemmas.least_squares import BestWeights, best_kernel, best_weights
from analyzer.numbers.exact import rational, working_precision
from analyzer.targets.tokens import TOKEN_LAWS
from analyzer.theorems.least_squares import least_distance
from constructions.run.fused import fuse
from tests.depth import examples
from verify.chain.mean_square import AffineError, functional_mean_square

LAG4 = {1: 0.8945, 2: 0.7682, 3: 0.6106}
"""The least E|error|²/v of lag 4 over all lin decays, to four digits, by number of heads."""
DECAYS = st.lists(st.integers(2, 60), min_size=1, max_size=5, unique=True).map(lambda found: [fmpq(k, 16) for k in found])


def spike(lag: int) -> tuple[dict[int, fmpq], dict[Any, fmpq]]:
    return {lag: fmpq(1)}, {}


def blaschke(decays: list[fmpq], terms: int) -> list[float]:
    """Coefficients of Π (w − z)/(1 − zw), in floats."""
    series = np.zeros(terms)
    series[0] = 1
    for p in decays:
        z = math.exp(-float(arb(p)))
        shifted = np.concatenate([[0.0], series[:-1]]) - z * series
        for n in range(1, terms):
            shifted[n] += z * shifted[n - 1]
        series = shifted
    return list(series)


@given(decays=DECAYS, lag=st.integers(1, 12))
@settings(max_examples=examples(80))
def test_the_two_closed_forms_agree(decays: list[fmpq], lag: int) -> None:
    """(L.1) and (L.2), and the mean-square lag law E|error|²/v ≥ 1 − H/T beneath both."""
    found = least_distance("lin", decays, spike(lag))
    assert float(found.most) == pytest.approx(sum(b * b for b in blaschke(decays, lag)), abs=1e-9)
    assert found.most - found.least <= arb(2) ** -40 and float(found.most) >= 1 - len(decays) / lag


@given(data=st.data(), rpe=st.sampled_from(["lin", "log"]), decays=DECAYS, wanted=st.sampled_from([3, "exp(-s/3)", "s**-3"]))
@settings(max_examples=examples(64))
def test_other_weights_are_worse_by_pythagoras(data: st.DataObject, rpe: Any, decays: list[fmpq], wanted: int | str) -> None:
    decays = [p + 1 for p in decays] if rpe == "log" else decays
    memory = spike(wanted) if isinstance(wanted, int) else ({}, {parse_kernel(wanted): fmpq(1)})
    best = best_weights(rpe, decays, memory)
    h = data.draw(st.integers(0, len(decays) - 1))
    step = arb(data.draw(st.sampled_from([-1, 1]))) * arb(2) ** -data.draw(st.integers(2, 12))
    with working_precision(1024):
        amplitudes = tuple(a + step * (k == h) for k, a in enumerate(best.amplitudes))
        at_zero = step if rpe == "lin" else arb(0)
        moved = best_kernel(rpe, decays, BestWeights(amplitudes, (best.residual - at_zero).mid()), memory)
        optimum, reached = least_distance(rpe, decays, memory), l2_square(moved)
        z = (-arb(decays[h])).exp()
        head = z * z / (1 - z * z) if rpe == "lin" else (2 * arb(decays[h])).zeta()
        assert reached.most >= optimum.least
        assert abs(reached.most - optimum.most - step * step * head) <= arb(2) ** -28 * (step * step * head + optimum.most)


@pytest.mark.deep(keep="2")
@pytest.mark.parametrize("heads", [1, 2, 3])
def test_optimised_decays_reach_the_known_optima(heads: int) -> None:
    net = lf.build(lf.fixed(lags=(4,)), norm="mean-square", tokens="signs", heads=heads)
    certificate = net.certificate
    assert net.theorem == "least-squares" and certificate.verdict.value == "holds"
    assert LAG4[heads] - 1e-4 <= certificate.certified <= LAG4[heads] + 1e-3 and certificate.certified >= 1 - heads / 4
    assert certificate.witness <= certificate.certified <= certificate.bound <= certificate.certified * (1 + 1e-9)


@pytest.mark.deep
def test_many_heads_that_nearly_coincide() -> None:
    """Lag 16 with 8 heads, 0.8165 to four digits; as many heads as the lag reach every error."""
    net = lf.build(lf.fixed(lags=(16,)), norm="mean-square", tokens="signs", heads=8)
    assert 0.8164 <= net.certificate.certified <= 0.8167 and net.certificate.bound <= net.certificate.certified * (1 + 1e-9)
    whole = lf.build(lf.fixed(lags=(12,)), norm="mean-square", tokens="signs")
    assert whole.sizes["heads"] == 12 and whole.certificate.certified <= 1e-2 and whole.certificate.verdict.value == "holds"


def test_regression_on_simulated_tokens_agrees_to_sampling_error() -> None:
    """Least squares of x_{t−T} on x_t and the heads' outputs, over Gaussian tokens: the residual is χ² with a standard error of
    √(2/n) of itself."""
    decays, lag, count = [0.3, 0.9, 2.0], 4, 20_000
    promised = lf.bound("least-squares", lf.fixed(lags=(lag,)), decays=tuple(decays), tokens="gaussian").total
    rng = np.random.default_rng(0)
    tokens = rng.standard_normal((count, 80))
    ages = np.arange(80)
    features = np.stack([tokens[:, 0], *(tokens @ np.exp(-p * ages) for p in decays)], axis=1)
    weights, residual, *_ = np.linalg.lstsq(features, tokens[:, lag], rcond=None)
    assert residual[0] / count == pytest.approx(promised, rel=5 * math.sqrt(2 / count) + 1e-3)
    net = lf.build(lf.fixed(lags=(lag,)), norm="mean-square", tokens="gaussian", decays=tuple(decays))
    layer = fuse(net.transformer)
    built = [float(arb(g)) * -math.expm1(-p) for g, p in zip(layer.gains[:, 1, 0], decays, strict=True)]
    assert built == pytest.approx(weights[1:], rel=0.2)


def test_every_affine_read_out_is_served_by_the_same_weights() -> None:
    """(b): the optimum of a sum of memories is that of the target, not the sum of optima; and it is what `bound` says."""
    target = lf.fixed(lags=(2, 5), readout="x0 - m1 + m2/3", dim=1)
    net = lf.build(target, norm="mean-square", decays=(0.4, 1.0, 2.5), tokens="signs")
    assert net.certificate.certified == pytest.approx(lf.bound("least-squares", target, decays=(0.4, 1.0, 2.5), tokens="signs").total)
    names = [part.name for part in net.certificate.parts]
    assert names == ["memory 1", "memory 2", "read-out"] and all(part.holds for part in net.certificate.parts)


@pytest.mark.deep(keep=("lin-decays0-float64", "log-decays1-float32"))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("rpe,decays", [("lin", (0.5, 1.5)), ("log", (10.0, 12.0))])
def test_floats_are_certified_after_rounding(dtype: str, rpe: str, decays: tuple[float, ...]) -> None:
    net = lf.build(lf.fixed(lags=(2,), dim=2, readout="m1[0] - m1[1]/2"), norm="mean-square", rpe=rpe, decays=decays, dtype=dtype)
    found = net.certificate
    assert found.verdict.value == "holds" and 0 < found.rounding < 1e-3 and found.witness < found.certified <= found.bound
    assert found.details["optimum"]["lower"] <= found.certified
    drawn = np.random.default_rng(0).uniform(-1, 1, (2000, 64, 2)).astype(dtype).astype(float)
    assert net.target is not None
    squares = (net(drawn)[:, -1] - net.target.values(np)(drawn)[:, -1]) ** 2
    spare = 5 * squares.std() / math.sqrt(2000) + 1e-7
    assert found.witness - spare <= squares.mean() <= found.certified + spare


def test_a_bundle_is_verified_in_the_norm_it_was_built_for(tmp_path: Path, run: Any) -> None:
    place = tmp_path / "net"
    built = run(
        "build", "fixed", "--lags", 3, "--norm", "mean-square", "--tokens", "signs", "--decays", "0.5,1,2", "--out", place, "--json"
    )
    assert built.code == 0, built.err
    again = run("verify", place, "--json")
    assert again.code == 0 and again.json["norm"] == "mean-square" and again.json["tokens"] == "signs"
    assert again.json["certified"] == built.json["certified"] and again.json["theorem"] == "least-squares"
    worst = run("verify", place, "--norm", "sup", "--json").json
    assert worst["theorem"] == "dp-free layer" and worst["certified"] ** 2 >= again.json["certified"] and "norm" not in worst
    third = run("verify", place, "--tokens", "uniform", "--json").json
    assert third["verdict"] == "holds" and third["certified"] == pytest.approx(again.json["certified"] / 3)
    shown = run("verify", place)
    assert "signs ±1 (variance 1)" in shown.out and "lemmaformer_least_squares" in (place / "citation.bib").read_text()


def test_a_changed_weight_and_changed_claims_are_noticed() -> None:
    net = lf.build(lf.fixed(lags=(3,)), norm="mean-square", decays=(0.5, 1.0, 2.0))
    for name, by in (("output", 1e-6), ("decay", 1e-3), ("embedding", 1e-6)):
        changed, _, after = net.broken(name, by=by)
        assert after.verdict.value == "violated", name
        assert changed.verify().verdict.value == "violated"
    chain = dict(net.card["chain"])
    for key in ("certified", "bound"):
        boasting = lf.Network(net.transformer, {**net.card, "chain": {**chain, key: chain[key] * 0.99}}, net.target)
        assert f"the card claims {key}" in boasting.verify().advice
    strange = lf.Network(net.transformer, {**net.card, "tokens": "cauchy"}, net.target)
    with pytest.raises(lf.InputError, match="the card's tokens"):
        strange.verify()
    with pytest.raises(lf.InputError, match="the card's norm"):
        lf.Network(net.transformer, {**net.card, "norm": "l3"}, net.target).verify()


def test_a_perturbed_network_is_never_better() -> None:
    """From the stored weights: whichever output weight moves, either way, the mean square grows."""
    net = lf.build(lf.fixed(lags=(3,)), norm="mean-square", decays=(0.5, 1.0, 2.0), tokens="signs")
    target, law = net.target, TOKEN_LAWS["signs"]
    assert target is not None and target.as_layer_target is not None
    unit = (fmpq(0), fmpq(1))
    before = functional_mean_square(AffineError(fmpq(0), unit, unit), target.as_layer_target, fuse(net.transformer), law)[1]
    for head in (1, 2, 3):
        for by in (-1e-3, 1e-3):
            changed, _, _ = net.broken("output", head=head, by=by)
            least, _ = functional_mean_square(AffineError(fmpq(0), unit, unit), target.as_layer_target, fuse(changed.transformer), law)
            assert least > before


def test_the_fewest_heads_for_an_error() -> None:
    net = lf.build(lf.fixed(lags=(2,)), norm="mean-square", error=1e-3)
    assert net.sizes["heads"] == 2 and net.certificate.certified <= 1e-3
    loose = lf.build(lf.kernel("exp(-s/5)*cos(s/2)"), norm="mean-square", error=0.05)
    assert loose.sizes["heads"] <= 2 and loose.certificate.certified <= 0.05


BAD: list[tuple[dict[str, Any], str]] = [
    ({"decays": (0.5, 0.5)}, "decays repeats a number"),
    ({"decays": (0.5, -1.0)}, r"decays holds -1\.0; lin heads have decays above 0"),
    ({"decays": (0.5,), "rpe": "log"}, "log heads have decays above 1"),
    ({"decays": (0.5, 1.0), "heads": 3}, "decays gives 2 heads, heads says 3"),
    ({"decays": "good"}, "decays is 'good'; choose from optimised, or give several numbers"),
    ({"heads": 25}, "least squares are for 24 at most"),
    ({"bank": "tuned"}, "tuned banks are for norm=sup"),
    ({"depth": 2}, "norm=mean-square builds one layer"),
    ({"rpe": "mixed"}, "norm=mean-square builds one layer"),
    ({"norm": "sup", "decays": (1.0,)}, "decays goes with norm=mean-square"),
    ({"norm": "sup", "tokens": "signs"}, "tokens goes with norm=mean-square"),
    ({"norm": "sup", "bank": "least-squares"}, "bank=least-squares goes with norm=mean-square"),
    ({"norm": "l2"}, "norm is 'l2'; choose from sup, mean-square"),
]


@pytest.mark.parametrize(("keywords", "said"), BAD)
def test_bad_input(keywords: dict[str, Any], said: str) -> None:
    with pytest.raises(lf.InputError, match=said):
        lf.build(lf.fixed(lags=(3,)), **{"norm": "mean-square", **keywords})


def test_refusals() -> None:
    with pytest.raises(lf.Refusal, match="the read-out is curved"):
        lf.build(lf.fixed(lags=(2,), readout="x0*m1"), norm="mean-square")
    with pytest.raises(lf.Refusal, match="alphabet"):
        lf.build(lf.fixed(lags=(2,), alphabet=[-1, 1]), norm="mean-square")
    with pytest.raises(lf.Refusal, match="no bank of at most 12 lin heads"):
        lf.build(lf.fixed(lags=(40,)), norm="mean-square")
    with pytest.raises(lf.Refusal, match=r"certified to 0\.28"):
        lf.build(lf.fixed(lags=(4,)), norm="mean-square", decays=(0.5, 1.5), error=0.1)
    with pytest.raises(lf.InputError, match="decays are needed"):
        lf.bound("least-squares", lf.fixed(lags=(4,)))
    close = tuple(rational(1.0 + k * 2.0**-50) for k in range(2))
    assert float(least_distance("lin", close, spike(3)).most) < 1


def test_flags_read_numbers_or_the_word(run: Any, tmp_path: Path) -> None:
    wrong = run("build", "fixed", "--lags", 3, "--norm", "mean-square", "--decays", "a,b", "--out", tmp_path / "n")
    assert wrong.code == 2 and "is not a list of numbers such as 0.5,1.5, nor 'optimised'" in wrong.err
    found = run("bound", "least-squares", "--lags", 4, "--decays", "0.5,1.5", "--tokens", "signs", "--json")
    assert found.code == 0 and found.json["mean_square"]["upper"] == pytest.approx(0.856850456059934)
    assert (
        "mean square error (signs tokens) ≤ 0.85685"
        in run("bound", "least-squares", "--lags", 4, "--decays", "0.5,1.5", "--tokens", "signs").out
    )


@pytest.mark.deep
def test_comparisons_speak_of_the_worst_case() -> None:
    best, minimal = lf.build(lf.fixed(lags=(2,)), norm="mean-square", decays=(1.0, 2.0)), lf.build(lf.fixed(lags=(2,)), error=0.1)
    found = lf.compare(best, minimal, sequences=4)
    certified = [column["certificate"]["certified"] for column in found.networks]
    assert certified == [best.verify(norm="sup").certified, minimal.certificate.certified] and found.holds
    assert repr(best).endswith("in mean square>") and "mean square" not in repr(minimal)
