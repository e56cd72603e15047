"""What is certified is what runs: no certificate counts the roundings of one form beside runs of another."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
from flint import arb

import lemmaformer as lf
from analyzer.errors import Refusal
from analyzer.families import FormName
from analyzer.numbers.exact import rational, working_precision
from constructions.network import recurrences
from constructions.network.precision import with_x64
from constructions.network.recurrences import FORMS, form_constants, using
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer
from constructions.run import execute, fast
from lemmaformer.network import Network
from verify.chain.rounding import Arithmetic, Rounded

OTHERS: tuple[FormName, ...] = ("blocked", "associative")


def float32(*values: Any) -> list[np.ndarray]:
    return [np.array(value, np.float32) for value in values]


def one_head(decay: float, slope: float, shift: float) -> Transformer:
    """F = slope · x_t + (what the head holds) + shift, in float32."""
    attention = Attention(
        *float32([decay], [[[1, 0]]], [[[0], [1]]], *[np.zeros((1, 0, 2))] * 2, np.zeros((0, 2))), ("lin",), "dp-free", "infinite"
    )
    neurons = FeedForward(*float32([[slope, 1], [-slope, -1], [0, 0]], [shift, -shift, 0], [[1, -1, 0]]))
    return Transformer(*float32([[1], [0]], [0, 0]), (Layer(attention, neurons),))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[FormName]:
    """The forms of all runs of the fast pass."""
    seen: list[FormName] = []
    forward = fast._forward
    monkeypatch.setattr(fast, "_forward", lambda *given: (seen.append(recurrences.chosen()), forward(*given))[1])
    return seen


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("device", ["scan", "blocked"])
def test_witnesses_run_in_the_form_that_is_certified(
    form: FormName, device: FormName, ran: list[FormName], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recurrences, "of_device", lambda: device)
    target = lf.fixed(lags=(1,), readout="x0", alphabet=[-1, 1])
    found = lf.verify(Network(one_head(1.0, 0.8, 0.0), {}, None), target, form=form, margin=True)
    assert set(ran) == {form} and found.details.get("form", "scan") == form


def test_a_decision_that_only_another_form_gets_wrong_is_not_refuted() -> None:
    """At −1, …, −1, 1 the blocks give +2⁻²⁵, as they should, and the scan −2⁻²⁵."""
    network = one_head(1.4950965642929077, -0.5515460968017578, -(2.0**-25))
    tokens = np.append(-np.ones(11), 1.0)[:, None]
    assert execute.run(network, tokens, form="scan")[-1] < 0 < execute.run(network, tokens, form="blocked")[-1]
    target = lf.fixed(lags=(1,), readout="x0", alphabet=[-1, 1])
    verdicts = {form: lf.verify(Network(network, {}, None), target, form=form, margin=True).margin for form in FORMS}
    assert verdicts["blocked"] is not None and verdicts["blocked"].verdict != "refuted"


def test_a_run_without_a_form_takes_that_of_its_context() -> None:
    network, tokens = one_head(0.01, 0.5, 0.0), np.random.default_rng(0).uniform(-1, 1, (200, 1))
    outputs = {form: execute.run(network, tokens, form=form) for form in FORMS}
    assert not np.array_equal(outputs["scan"], outputs["blocked"])
    for form in FORMS:
        with using(form):
            assert np.array_equal(execute.run(network, tokens), outputs[form])
            assert np.array_equal(execute.run(network, tokens, form="scan"), outputs["scan"])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_past_larger_than_the_tokens_is_within_the_analysis(form: FormName, dtype: str) -> None:
    """Heads that start from a constant c and are given tokens 0: every state is c z^t/(1−z)."""
    decays = np.array([2.0**-9, 0.01, 0.3, 2.0], dtype)
    heads, past = len(decays), dtype_value(0.7, dtype)
    nothing = np.zeros((heads, 1, 1), dtype)
    attention = Attention(
        decays, nothing, nothing, *[np.zeros((heads, 0, 1), dtype)] * 2, np.zeros((0, 1), dtype), ("lin",) * heads, "dp-free", "infinite"
    )
    constants = fast.head_constants(attention)
    constants |= form_constants(form, constants["ratio"])
    with with_x64(dtype):
        run: Callable[..., jax.Array] = jax.jit(lambda c, v, p: fast._scan(attention, c, np.arange(heads), v, p))
        found = np.asarray(run(constants, np.zeros((3000, heads, 1), dtype), np.full((heads, 1), past, dtype)))[..., 0]
    with working_precision(300):
        for h in range(heads):
            z, g = (rational(float(constants[name][h])) for name in ("ratio", "gain"))
            allowed = Arithmetic(dtype).scan(z, g, Rounded(arb(0), arb(0)), abs(arb(past)), form).error
            start = arb(g) / (1 - arb(z)) * arb(past)
            for t in (0, 1, 7, 100, 1000, 2999):
                assert abs(arb(rational(float(found[t, h]))) - start * arb(z) ** (t + 1)) <= allowed.upper()


def dtype_value(value: float, dtype: str) -> float:
    return float(np.dtype(dtype).type(value))


def test_an_adder_is_certified_where_it_is_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    net = lf.build(lf.task("addition", digits=2), dtype="float32")
    assert net.verify().verdict.value == "holds"
    for form in OTHERS:
        with pytest.raises(Refusal, match="where they are scanned"):
            net.verify(form=form)
    monkeypatch.setattr(recurrences, "of_device", lambda: "blocked")
    with pytest.raises(Refusal, match="where they are scanned"):
        net.verify()
    assert net.verify(form="scan").verdict.value == "holds"
    assert lf.build(lf.task("addition", digits=2), dtype="float32").card["chain"] == net.card["chain"]


def test_trained_and_compared_networks_are_certified_as_they_run(monkeypatch: pytest.MonkeyPatch) -> None:
    from verify.compare.side_by_side import certificate

    monkeypatch.setattr(recurrences, "of_device", lambda: "blocked")
    net = lf.train(lf.fixed(lags=(1,)), rpe="lin", heads=1, width=2, steps=20, batch=4, length=8)
    assert net.certificate.details["form"] == "blocked"
    target = net.target
    assert target is not None
    for one in (net, lf.build(lf.fixed(lags=(1,)), dtype="float32", error=0.1)):
        column = certificate(one.bundle, target, 0)
        assert column["rounding"] == one.verify(form="blocked").rounding != one.verify(form="scan").rounding
    assert one.broken("output", by=2.0**-20)[2].details["form"] == "blocked"
