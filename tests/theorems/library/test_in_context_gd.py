"""In-context gradient descent: exact in rationals, contraction, roundings over the whole box, sabotage of every kind of weight."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq

import lemmaformer as lf
from analyzer.numbers.exact import lower, rational, upper, working_precision
from analyzer.targets.tasks.in_context_gd import InContextTarget
from analyzer.theorems.library.in_context_gd import promised
from constructions.network.transformer import FeedForward, Layer, Transformer, exact_array
from constructions.run import fast, reference
from constructions.theorems.library.in_context_gd import assemble, build
from tests.theorems.library.attacks import attacked
from verify.theorems.library.in_context_gd import Following, in_balls, verify
from verify.theorems.library.nearby import arithmetic_of

SIZES: dict[str, dict[str, Any]] = {
    "plane": {"features": 2, "examples": 5, "steps": 3, "rate": "2/5"},
    "line": {"features": 1, "examples": 2, "steps": 4, "rate": "1/3"},
    "unstable": {"features": 3, "examples": 4, "steps": 4, "rate": "3/2"},
    "long": {"features": 2, "examples": 16, "steps": 32, "rate": "1"},
}


@cache
def target_of(name: str) -> InContextTarget:
    found = lf.task("in-context-gd", **SIZES[name])
    assert isinstance(found, InContextTarget)
    return found


def certified(network: Transformer, name: str) -> lf.Certificate:
    return verify(network, target_of(name), "own", "spline")


def descended(target: InContextTarget, tokens: list[list[fmpq]], t: int) -> fmpq:
    """w_L·x_t by the definition, in rationals."""
    d, w = target.features, [fmpq(0)] * target.features
    for _ in range(target.steps):
        rests = [row[2 * d] - sum((a * b for a, b in zip(w, row, strict=False)), fmpq(0)) for row in tokens]
        w = [
            w[i] + target.rate / target.examples * sum((r * row[i] for r, row in zip(rests, tokens, strict=True)), fmpq(0))
            for i in range(d)
        ]
    return sum((w[i] * (tokens[t][i] + tokens[t][d + i]) for i in range(d)), fmpq(0))


def plain(network: Transformer, tokens: list[list[fmpq]]) -> list[fmpq]:
    """Outputs in rationals, token by token, by the formulas of `constructions.network.transformer`."""
    stream = [np.dot(network.embedding, np.array(token, dtype=object)) + network.bias for token in tokens]
    for layer in network.layers:
        one = layer.attention
        query, key, value = ([np.dot(part[0], x) for x in stream] for part in (one.query, one.key, one.value))
        mixed = [sum(np.dot(q, k) * v for k, v in zip(key, value, strict=True)) / fmpq(len(tokens)) for q in query]
        stream = [x + np.dot(one.output[0], m) for x, m in zip(stream, mixed, strict=True)]
    ffn = network.layers[-1].feedforward
    return [np.dot(ffn.outer, np.array([max(v, fmpq(0)) for v in np.dot(ffn.inner, x) + ffn.bias], dtype=object))[0] for x in stream]


def test_layers_are_steps_at_every_sequence_of_small_numbers() -> None:
    """All 3^5 regressions with x, y ∈ {−1, 0, 1}, one feature and two examples, at every token, as equations of rationals."""
    target, network = target_of("line"), assemble(target_of("line"))
    for x1, y1, x2, y2, query in itertools.product((-1, 0, 1), repeat=5):
        tokens = [[fmpq(v) for v in row] for row in ((x1, 0, y1), (x2, 0, y2), (0, query, 0))]
        assert plain(network, tokens) == [descended(target, tokens, t) for t in range(3)]


@pytest.mark.parametrize("name", ["plane", "unstable"])
def test_exact_networks_are_gradient_descent(name: str) -> None:
    target, chain = target_of(name), certified(assemble(target_of(name)), name)
    assert chain.verdict is lf.Verdict.HOLDS and chain.certified == chain.bound == chain.witness == chain.rounding == 0
    tokens = np.round(target.draw(np.random.default_rng(1), (1, target.length))[0] * 16) / 16
    exact = [[rational(float(v)) for v in row] for row in tokens]
    outputs = plain(assemble(target), exact)
    for t, output in enumerate(outputs):
        value = descended(target, exact, t)
        assert output == value and target.exact_value(tokens, t).overlaps(arb(value))
        assert target.values(np)(tokens)[t] == pytest.approx(int(value.p) / int(value.q), abs=1e-9)
    assert all(ball.overlaps(arb(value)) for ball, value in zip(in_balls(assemble(target), tokens), outputs, strict=True))


def test_descent_contracts_towards_the_teacher() -> None:
    """(G.2) in rationals: examples along orthogonal directions (3/5, 4/5), (−4/5, 3/5), whose eigenvalues are known."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        lengths = [fmpq(int(k), 8) for k in rng.integers(1, 9, 4)]
        axes = [(fmpq(3, 5), fmpq(4, 5)), (fmpq(-4, 5), fmpq(3, 5))]
        examples = [[size * axes[k % 2][i] for i in range(2)] for k, size in enumerate(lengths)]
        eigenvalues = [(lengths[k] ** 2 + lengths[k + 2] ** 2) / 4 for k in range(2)]
        teacher, query = ([fmpq(int(k), 16) for k in rng.integers(-8, 9, 2)] for _ in range(2))
        target = lf.task("in-context-gd", features=2, examples=4, steps=int(rng.integers(1, 6)), rate=f"{rng.integers(1, 17)}/8")
        assert isinstance(target, InContextTarget)
        zero = [fmpq(0)] * 2
        tokens = [[*x, *zero, sum((a * b for a, b in zip(teacher, x, strict=True)), fmpq(0))] for x in examples] + [
            [*zero, *query, fmpq(0)]
        ]
        error = plain(assemble(target), tokens)[-1] - sum((a * b for a, b in zip(teacher, query, strict=True)), fmpq(0))
        factor = max(abs(1 - target.rate * value) for value in eigenvalues) ** target.steps
        assert error**2 <= factor**2 * sum(a * a for a in teacher) * sum(a * a for a in query)
        data = lf.bound(
            "in-context-gd", target, least=float(min(map(arb, eigenvalues)).lower()), most=float(max(map(arb, eigenvalues)).upper())
        ).data
        assert float(arb(factor).lower()) <= data["contraction"] * (1 + 1e-12)


def test_bounds_have_the_closed_form() -> None:
    target = lf.task("in-context-gd", features=2, examples=8, steps=4, rate="1/2")
    found = lf.bound("in-context-gd", target, dtype="float32", least=0.5, most=1.0, teacher=2.0)
    u, K = 2.0**-24, 9 + 4 + 16
    assert found.total == pytest.approx(u * 4 * (K * 2.5 + 4) / (1 - 4 * (1 + K) * u), rel=1e-12)
    assert found.data["contraction"] == pytest.approx(0.75**4) and found.data["teacher_error"] == pytest.approx(0.75**4 * 2 * 2**0.5)
    assert lf.bound("in-context-gd", target).total == 0
    with pytest.raises(lf.InputError, match="lie between 0 and 2"):
        lf.bound("in-context-gd", target, least=0.5, most=3.0)


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("name", ["plane", "long"])
def test_floats_are_certified_for_the_whole_box(name: str, dtype: str) -> None:
    net, target = lf.build(target_of(name), dtype=dtype), target_of(name)
    chain = net.certificate
    assert chain.verdict is lf.Verdict.HOLDS and 0 < chain.witness <= chain.certified <= chain.bound <= 0.01
    rng = np.random.default_rng(3)
    tokens = np.concatenate([target.draw(rng, (8, target.length), signs) for signs in (False, True)]).astype(dtype)
    outputs = fast.forward(net.transformer, tokens)
    for row, sequence in zip(outputs, tokens, strict=True):
        for t in (0, -1):
            assert upper(abs(arb(float(row[t])) - target.exact_value(sequence, t))) <= chain.certified
    assert np.abs(reference.forward(net.transformer, tokens) - outputs).max() <= 2 * chain.certified


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_closed_form_pays_for_all_sizes(dtype: str) -> None:
    """(G.1) and its step are no less than what is followed through the layers, from one example to many, stable or not."""
    sizes = [(1, 1, 1, "1/64"), (1, 512, 3, "1"), (32, 3, 2, "1/16"), (3, 31, 17, "2/3"), (5, 7, 12, "5/2"), (2, 64, 33, "1/7")]
    for features, examples, steps, rate in sizes:
        target = lf.task("in-context-gd", features=features, examples=examples, steps=steps, rate=rate)
        assert isinstance(target, InContextTarget)
        with working_precision(512):
            found = Following(build(target, dtype=dtype).network, target, arithmetic_of(dtype)).followed()
            assert all(0 < upper(one) <= upper(most) for one, most in zip(found, promised(target, dtype), strict=True)), (
                features,
                examples,
            )


@pytest.mark.deep
def test_floats_are_refused_where_descent_diverges() -> None:
    target = lf.task("in-context-gd", features=4, examples=8, steps=8, rate="2")
    with pytest.raises(lf.Refusal) as refused:
        lf.build(target, dtype="float32")
    assert refused.value.remedies
    for remedy in refused.value.remedies:
        assert lf.build(target, **{"dtype": "float32", **remedy}).certificate.verdict is lf.Verdict.HOLDS
    further = lf.task("in-context-gd", features=8, examples=4, steps=12, rate="1024")
    with pytest.raises(lf.Refusal, match="overflow"):
        lf.build(further, dtype="float32")
    assert lf.build(further).certificate.certified == 0


def noisy(network: Transformer, rng: np.random.Generator, size: float, sparse: float) -> Transformer:
    """Every weight changed, zeros too; p of linear heads stays 0."""

    def moved(leaf: Any) -> Any:
        noise = rng.normal(size=leaf.shape) * size * (rng.random(leaf.shape) < sparse)
        if leaf.dtype == object:
            return exact_array([rational(float(v)) for v in noise.flat]).reshape(leaf.shape) + leaf if leaf.size else leaf
        return (leaf + noise).astype(leaf.dtype)

    layers = tuple(
        Layer(
            replace(layer.attention, **{name: moved(getattr(layer.attention, name)) for name in ("query", "key", "value", "output")}),
            FeedForward(*(moved(part) for part in (layer.feedforward.inner, layer.feedforward.bias, layer.feedforward.outer))),
        )
        for layer in network.layers
    )
    return replace(network, embedding=moved(network.embedding), bias=moved(network.bias), layers=layers)


@pytest.mark.deep(keep="plane-exact")
@pytest.mark.parametrize("dtype", ["exact", "float32"])
@pytest.mark.parametrize("name", ["plane", "line", "unstable"])
def test_an_attack_on_all_weights_never_beats_the_certificate(name: str, dtype: str) -> None:
    """Changed networks are certified too, as what they are: further from gradient descent, but by no more than that."""
    target, rng = target_of(name), np.random.default_rng(4)
    for size, sparse in itertools.product((1e-6, 1e-2), (0.05, 1.0)):
        network = noisy(build(target, dtype=dtype).network, rng, size, sparse)
        chain = certified(network, name)
        assert chain.certified > chain.bound or (size < 1e-5 and dtype == "float32")  # below the roundings that are allowed anyway
        tokens = np.concatenate([target.draw(rng, (6, target.length), signs) for signs in (False, True)]).astype("float32")
        for sequence in tokens:
            with working_precision(256):
                run = in_balls(network, sequence) if dtype == "exact" else [arb(float(y)) for y in fast.forward(network, sequence)]
                assert max(lower(abs(y - target.exact_value(sequence, t))) for t, y in enumerate(run)) <= chain.certified


@pytest.mark.parametrize("dtype", ["exact", "float32"])
def test_changed_weights_are_caught(dtype: str) -> None:
    net = lf.build(target_of("plane"), dtype=dtype)
    for weight in ("embedding", "query", "key", "value", "output", "inner", "outer"):
        for layer in (None, 2) if weight in ("query", "key", "value", "output") else (None,):
            _, _, after = net.broken(weight, by=0.01, **({} if layer is None else {"layer": layer}))
            assert after.verdict is lf.Verdict.VIOLATED and after.certified > after.bound, weight
    assert net.broken("output", by=0.01)[2].witness > net.certificate.bound  # and the witness shows it
    network = net.transformer
    first, *rest = network.layers
    neurons = FeedForward(network.embedding.T, network.bias[:5], network.embedding)
    strange = [
        replace(network, positions=network.embedding.T),
        replace(network, layers=network.layers[1:]),
        replace(network, layers=(replace(first, attention=replace(first.attention, kind="dp")), *rest)),
        replace(network, layers=(replace(first, feedforward=neurons), *rest)),
    ]
    for other in strange:
        with pytest.raises(lf.InputError, match="not a network of in-context-gd"):
            certified(other, "plane")


@pytest.mark.deep
def test_slots_hold_residuals_and_predictions() -> None:
    net, target = lf.build(target_of("plane"), dtype="float64"), target_of("plane")
    tokens = target.draw(np.random.default_rng(5), (1, target.length))[0]
    seen = net.trace(tokens)
    for k in (1, 2):
        fewer = replace(target, steps=k).values(np)(tokens)
        assert np.allclose(np.ravel(seen[f"layer {k}"]["prediction"]), fewer, atol=1e-12)
        assert np.allclose(np.ravel(seen[f"layer {k}"]["residual"]), tokens[:, 4] - fewer, atol=1e-12)


@pytest.mark.parametrize(
    ("given", "text"),
    [({"rate": "-1"}, "rate is -1"), ({"rate": "fast"}, "not an exact number"), ({"steps": 0}, "steps"), ({"features": 99}, "features")],
)
def test_bad_parameters_are_refused(given: dict[str, Any], text: str) -> None:
    with pytest.raises(lf.InputError, match=text):
        lf.task("in-context-gd", **given)


@pytest.mark.deep
def test_commands(run: Callable[..., Any], tmp_path: Any) -> None:
    made = run(
        "build",
        "in-context-gd",
        "--features",
        "1",
        "--examples",
        "3",
        "--rate",
        "0.1",
        "--dtype",
        "float64",
        "--out",
        tmp_path / "net",
        "--json",
    )
    assert made.code == 0 and made.json["verdict"] == "holds", made.err
    assert run("verify", tmp_path / "net", "--json").json["certified"] == made.json["certified"] < 1e-12
    np.save(tmp_path / "x.npy", np.ones((4, 3)))
    wrong = run("run", tmp_path / "net", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
    assert wrong.code == 2 and "neither examples" in wrong.err
    told = run("bound", "in-context-gd", "--features", "2", "--rate", "1/3", "--least", "0.5", "--most", "1", "--json")
    assert told.code == 0 and told.json["contraction"] == pytest.approx((5 / 6) ** 4), told.err
    assert lf.task("in-context-gd", rate=0.5) == lf.task("in-context-gd", rate="1/2") == lf.task("in-context-gd", rate="0.5")
    target = lf.load_target("examples/in_context_gd.toml")
    assert target.describe() == {"kind": "in-context-gd", "features": 2, "examples": 8, "steps": 4, "rate": "1*2^-1"}
    with pytest.raises(lf.InputError, match="8 examples and a query"):
        target.check_tokens(np.zeros((3, 5)), "here")


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attacks(dtype: str) -> None:
    """Rude changes: where something finite is certified, no regression errs by more at its query."""
    target, rng = target_of("plane"), np.random.default_rng(6)
    network = lf.build(target, dtype=dtype).transformer
    tokens = np.concatenate([target.draw(rng, (200, target.length), signs) for signs in (False, True)]).astype(dtype)
    wanted = target.values(np)(tokens.astype(float))[:, -1]

    def worst(changed: Transformer) -> float:
        return float(np.abs(fast.forward(changed, tokens)[:, -1] - wanted).max())

    assert attacked(network, lambda changed: certified(changed, "plane"), worst, rng, 300) >= 100
