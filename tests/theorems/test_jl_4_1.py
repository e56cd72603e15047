"""Theorem 4.1 of Jiang & Li on finite alphabets: exact on all sequences, codes and their sizes, floats, sabotage, and the printed step."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import comb
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.lemmas.sequence_codes import code_of
from analyzer.numbers.exact import upper
from analyzer.targets.sequence import SequenceTarget
from constructions.network.transformer import FeedForward, Transformer
from constructions.run.execute import run as evaluate
from constructions.theorems.construction import Construction
from constructions.theorems.jl_4_1 import build
from tests.depth import examples
from verify.theorems.jl_4_1 import read, verify

TARGETS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "order": ("x1*x2 - x3/2", (-1, 0, 1)),
    "counts": ("x1*x2*x3 + x1 + x2 + x3", ("-1/3", "1/2", 1)),
    "sum": ("abs(x1 + x2 + x3 + x4 - 2)", (0, 1)),
    "irrational": ("tanh(x1 + 2*x2)", (-1, 1)),
}


@cache
def target_of(name: str) -> SequenceTarget:
    formula, letters = TARGETS[name]
    found = lf.sequence(formula, alphabet=letters)
    assert isinstance(found, SequenceTarget)
    return found


@cache
def built(name: str, code: str = "scalar", dtype: str = "exact") -> Construction:
    return build(target_of(name), code=code, dtype=dtype)


def certified(found: Construction, network: Transformer | None = None) -> lf.Certificate:
    return verify(found.network if network is None else network, found.target, found.bank, found.ffn)


@pytest.mark.parametrize("code", ["scalar", "one-hot"])
@pytest.mark.parametrize("name", TARGETS)
def test_exact_networks_are_right_at_every_sequence(name: str, code: str) -> None:
    """Read from the weights, and by a plain evaluation of layers and head in rationals that shares nothing with the certificate."""
    found, target = built(name, code), target_of(name)
    chain = certified(found)
    assert chain.verdict is lf.Verdict.HOLDS and chain.sizes["heads"] == 1 and chain.rounding == 0
    assert chain.certified == 0 if name != "irrational" else chain.certified < 1e-70
    for word, value in zip(target.words(), target.table, strict=True):
        assert plain(found.network, [[p, target.symbols[i]] for p, i in zip(target.positions, word, strict=True)]) == value


def plain(network: Transformer, tokens: list[list[fmpq]]) -> fmpq:
    """The output at the first position, by the formulas of `constructions.network.transformer`."""
    first, second = network.layers
    stream = [np.dot(network.embedding, np.array(token, dtype=object)) + network.bias for token in tokens]
    stream = [x + _feed(first.feedforward, x) for x in stream]
    assert second.attention.query.shape[1] == 0
    mean = sum(np.dot(second.attention.value[0], x) for x in stream) / fmpq(len(stream))
    return _feed(second.feedforward, stream[0] + np.dot(second.attention.output[0], mean))[0]


def _feed(ffn: FeedForward, x: np.ndarray) -> np.ndarray:
    hidden = np.array([max(v, fmpq(0)) for v in np.dot(ffn.inner, x) + ffn.bias], dtype=object)
    return np.dot(ffn.outer, hidden) if len(hidden) else x * 0


def test_codes_and_sizes_are_those_of_the_statement() -> None:
    assert [code_of(target_of(name)).reading for name in ("order", "counts", "sum")] == ["order", "counts", "sum"]
    assert len(code_of(target_of("order")).table) == 3**3
    assert len(code_of(target_of("counts")).table) == comb(3 + 3 - 1, 3)
    assert len(code_of(target_of("sum")).table) == 4 * (2 - 1) + 1
    data = lf.bound("jl-4.1", target_of("order"), code="one-hot").data
    assert data["heads"] == 1 and data["rank"] == 0 and data["value_dim"] == 6 and data["width"] == 27
    assert {name: sizes["width"] for name, sizes in data["widths"].items()} == {"sum": 7, "counts": 10, "order": 27}
    assert lf.bound("jl-4.1", target_of("sum")).data["value_dims"] == {"scalar": 1, "one-hot": 1}
    for name in ("order", "counts", "sum"):
        assert built(name).network.sizes()["width"] <= lf.bound("jl-4.1", target_of(name)).data["width"]


@settings(max_examples=examples(40))
@given(st.data())
def test_random_tables_are_represented_exactly(data: st.DataObject) -> None:
    """Any function of two or three letters, as a polynomial with drawn coefficients; the code tells apart what F does."""
    length, letters = data.draw(st.sampled_from([(2, (-1, 0, 1)), (3, (0, 1)), (2, ("1/3", "2/3"))]))
    monomials = [
        "*".join(f"x{s}" for s in chosen) for n in range(1, length + 1) for chosen in itertools.combinations(range(1, length + 1), n)
    ]
    numbers = data.draw(st.lists(st.integers(-3, 3), min_size=len(monomials), max_size=len(monomials)))
    formula = " + ".join(f"({number})*{monomial}" for number, monomial in zip(numbers, monomials, strict=True))
    try:
        target = lf.sequence(formula, alphabet=letters, length=length)
    except lf.InputError as error:
        assert "does not tell any two sequences apart" in str(error)
        return
    assert isinstance(target, SequenceTarget)
    chain = certified(build(target, code=data.draw(st.sampled_from(["scalar", "one-hot"]))))
    assert chain.certified == chain.bound == 0 and chain.verdict is lf.Verdict.HOLDS


@pytest.mark.deep(keep="order-scalar-float32")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("code", ["scalar", "one-hot"])
@pytest.mark.parametrize("name", TARGETS)
def test_floats_are_certified_with_the_rounding_of_what_runs(name: str, code: str, dtype: str) -> None:
    net = lf.build(target_of(name), code=code, dtype=dtype)
    chain, target = net.certificate, target_of(name)
    assert chain.verdict is lf.Verdict.HOLDS and chain.witness <= chain.certified <= chain.bound <= 0.05
    tokens = target.tokens(target.words())
    shuffled = tokens[:, np.random.default_rng(0).permutation(target.length)]  # tokens carry their positions
    for order in (tokens, shuffled):
        outputs = net(order)
        for word, row in zip(tokens, outputs, strict=True):
            value = target.exact_value(word)
            assert all(upper(abs(arb(float(y)) - value)) <= chain.certified for y in row)


@pytest.mark.deep
def test_floats_are_refused_beyond_their_precision() -> None:
    target = lf.sequence("x1*x2*x3*x4*x5*x6*x7 + x8*x9 - x10", alphabet=(0, 1))
    with pytest.raises(lf.Refusal, match=r"rounding 0\.0") as refused:
        lf.build(target, dtype="float32")
    ways = refused.value.remedies
    assert {"dtype": "float64"} in ways
    assert lf.build(target, dtype="float64").certificate.certified < 1e-9


def changed(network: Transformer, layer: int, **arrays: np.ndarray) -> Transformer:
    layers = list(network.layers)
    layers[layer] = replace(layers[layer], feedforward=replace(layers[layer].feedforward, **arrays))
    return replace(network, layers=tuple(layers))


@pytest.mark.parametrize("dtype", ["exact", pytest.param("float32", marks=pytest.mark.deep)])
def test_changed_weights_are_caught(dtype: str) -> None:
    found = built("order", "scalar", dtype)
    network = found.network
    more = fmpq(1, 100) if dtype == "exact" else np.float32(0.01)
    for layer, part in itertools.product((0, 1), ("inner", "bias", "outer")):
        array = getattr(network.layers[layer].feedforward, part).copy()
        place = tuple(int(i) for i in np.argwhere(array != 0)[-1])
        array[place] = array[place] + more
        assert certified(found, changed(network, layer, **{part: array})).verdict is lf.Verdict.VIOLATED, (layer, part)
    second = network.layers[1]
    seen = second.feedforward.inner.copy()
    seen[-1, 0] = seen[-1, 0] + more
    assert any("beside the answers" in fault for fault in read(changed(network, 1, inner=seen), found.target).faults)
    rows = np.full_like(second.attention.value[:, :1], second.attention.output.flat[-1])
    comparing = replace(network, layers=(network.layers[0], replace(second, attention=replace(second.attention, query=rows, key=rows))))
    assert certified(found, comparing).verdict is lf.Verdict.VIOLATED


@pytest.mark.deep
def test_an_attack_on_float_weights_never_beats_the_certificate() -> None:
    """Random relative changes of all weights of float networks: every sequence is run, in a random order of its tokens."""
    rng = np.random.default_rng(5)
    for name, code, dtype in itertools.product(TARGETS, ("scalar", "one-hot"), ("float64", "float32")):
        found, target = built(name, code, dtype), target_of(name)
        for size in (0.0, 1e-6, 1e-2):
            network = found.network.map(lambda leaf: (leaf * (1 + size * rng.normal(size=leaf.shape))).astype(leaf.dtype))  # noqa: B023
            network = replace(network, layers=found.network.layers[:1] + network.layers[1:]) if size else found.network
            chain = certified(found, network)
            tokens = target.tokens(target.words())[:, rng.permutation(target.length)].astype(dtype)
            outputs = evaluate(network, tokens)
            gaps = [upper(abs(arb(float(y)) - v)) for row, v in zip(outputs, target.values_in_balls, strict=True) for y in row]
            assert max(gaps) <= chain.certified * (1 + 1e-12), (name, code, dtype, size)


def test_a_changed_target_is_a_wrong_network() -> None:
    other = lf.sequence("x1*x2 - x3/3", alphabet=(-1, 0, 1))
    assert isinstance(other, SequenceTarget)
    chain = verify(built("order").network, other, "scalar", "spline")
    assert chain.verdict is lf.Verdict.VIOLATED and chain.witness == pytest.approx(1 / 6) and chain.certified == pytest.approx(1 / 6)


def test_the_printed_step_fails() -> None:
    """Taking a token out of the sum over all tokens gives no function of the sum; one more coordinate for that token does."""
    sequences = list(itertools.product((0, 1), repeat=2))
    sums, rests = [sum(x) for x in sequences], [sum(x) - x[0] for x in sequences]
    assert (sums[1], sums[2]) == (1, 1) and (rests[1], rests[2]) == (1, 0)
    least = max(abs(a - b) / 2 for (s, a), (t, b) in itertools.product(zip(sums, rests, strict=True), repeat=2) if s == t)
    assert least == 0.5  # what any F(sum) errs by
    pairs = {(s, x[0]): rest for s, x, rest in zip(sums, sequences, rests, strict=True)}
    assert all(pairs[s, x[0]] == rest for s, x, rest in zip(sums, sequences, rests, strict=True))
    repaired = lf.sequence("x1 + x2 - x1", alphabet=(0, 1), length=2)
    assert isinstance(repaired, SequenceTarget) and certified(build(repaired)).certified == 0


@pytest.mark.parametrize(
    ("formula", "options", "text"),
    [
        ("x1 - x1", {"alphabet": (0, 1)}, "does not tell any two sequences apart"),
        ("1/x1", {"alphabet": (0, 1)}, "has no finite real value at x1 = 0"),
        ("x1*x9", {"alphabet": (0, 1), "length": 3}, "x9"),
        ("x1", {"alphabet": (0, 1), "length": 15}, "32768 sequences"),
        ("x1", {"alphabet": (0, 2)}, "letters lie in"),
        ("x1", {"alphabet": (0,)}, "give between 2 and"),
        ("x1", {"alphabet": (0, 1), "length": 0}, "length is '0'"),
    ],
)
def test_bad_input_is_refused(formula: str, options: dict[str, Any], text: str) -> None:
    with pytest.raises(lf.InputError, match=text):
        lf.sequence(formula, **options)


def test_commands(run: Callable[..., Any], tmp_path: Any) -> None:
    out = tmp_path / "word"
    made = run("build", "sequence", "--formula", "x1*x2 - x3", "--alphabet", "0,1", "--out", out, "--json")
    assert made.code == 0 and made.json["certified"] == 0, made.err
    assert run("verify", out, "--json").json["verdict"] == "holds"
    target = target_of("order")
    np.save(tmp_path / "x.npy", np.zeros((3, 2)))
    wrong = run("run", out, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
    assert wrong.code == 2 and "positions" in wrong.err
    assert run("build", "sequence", "--formula", "x1", "--out", tmp_path / "no").code == 2
    assert run("bound", "jl-4.1", "--formula", "x1*x2", "--alphabet", "0,1", "--json").json["width"] == 3
    with pytest.raises(lf.InputError, match="not the positions"):
        target.check_tokens(np.zeros((3, 2)), "here")
    with pytest.raises(lf.InputError, match="outside the alphabet"):
        target.check_tokens(target.tokens([(0, 0, 0)])[0] * np.array([1, 0.5]), "here")
    thirds = target_of("counts")
    thirds.check_tokens(thirds.tokens([(0, 1, 2)]), "here")
    with pytest.raises(lf.InputError, match="outside the alphabet"):  # the float32 next to 1/3 is another number
        thirds.check_tokens(thirds.tokens([(0, 1, 2)]).astype(np.float32), "here")
