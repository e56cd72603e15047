"""k-hop induction: the task by its definition, depth against k, exact on all short sequences, certificates, sabotage, float horizons."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flint import fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.numbers.exact import UNIT, nearest
from analyzer.targets.tasks.k_hop import KHopTarget
from analyzer.theorems.library.k_hop import DELTA, addition_chain, depth, depth_table, horizon, scales, sizes
from constructions.network.transformer import Transformer
from constructions.run import fast, reference
from constructions.run.execute import run as evaluate
from constructions.run.stream import trace
from constructions.theorems.construction import Construction
from constructions.theorems.library.k_hop import HopStream, build, meanings, slots
from tests.depth import examples
from tests.theorems.library.attacks import attacked, with_neuron
from verify.theorems.library.k_hop import verify


def by_definition(letters: tuple[int, ...], t: int, hops: int) -> int:
    """find_k(t) by the recursion, with find_1 as the maximum of a set."""
    if hops == 0:
        return t
    first = max({0} | {j for j in range(1, t + 1) if letters[j - 1] == letters[t]})
    return by_definition(letters, first, hops - 1)


def all_words(size: int, length: int) -> np.ndarray:
    return np.array(list(itertools.product(range(size), repeat=length)))


@cache
def built(hops: int, size: int, length: int, dtype: str = "exact", layers: str = "doubling", rounding: str = "ideal") -> Construction:
    return build(KHopTarget(hops, size, length), dtype=dtype, layers=layers, rounding=rounding)


def certified(found: Construction, network: Transformer | None = None) -> lf.Certificate:
    return verify(found.network if network is None else network, found.target, found.bank, found.ffn)


def test_the_task_is_what_its_definition_says() -> None:
    """Numpy, JAX and the exact values, on all sequences of 6 letters out of 3."""
    words = all_words(3, 6)
    for hops in (1, 2, 3, 6):
        target = KHopTarget(hops, 3, 6)
        tokens = target.tokens_of(words[..., None])
        found = [[by_definition(tuple(word), t, hops) for t in range(6)] for word in words]
        wanted = np.where(np.array(found) > 0, np.take_along_axis(tokens[..., 0], np.array(found), 1), 0)
        assert np.array_equal(target.values(np)(tokens), wanted)
        assert np.array_equal(np.asarray(target.values(jnp)(jnp.asarray(tokens, jnp.float32))), wanted)
        for n in range(0, len(words), 97):
            assert [float(target.exact_value(tokens[n], t)) for t in range(6)] == wanted[n].tolist()


def test_a_worked_example() -> None:
    """a b c a c b: the last c follows the first c's a; b's find is c at 2; two jumps from it lead nowhere."""
    letters = [0, 1, 2, 0, 2, 1]
    assert [KHopTarget(1, 3, 6).find(letters, t) for t in range(6)] == [0, 0, 0, 1, 3, 2]
    assert [KHopTarget(2, 3, 6).find(letters, t) for t in range(6)] == [0, 0, 0, 0, 1, 0]
    target = KHopTarget(1, 3, 6)
    assert target.values(np)(target.tokens_of(np.array(letters)[:, None])).tolist() == [0, 0, 0, 0.5, 0.25, 0.75]
    repeated = target.tokens_of(np.full((6, 1), 2))
    assert KHopTarget(5, 3, 6).values(np)(repeated).tolist() == [0, *[0.75] * 5]  # where a letter is repeated a jump stays


def test_depth_against_k() -> None:
    assert depth_table((1, 2, 4, 8, 16)) == [
        {"hops": 1, "doubling": 2, "chain": 2},
        {"hops": 2, "doubling": 3, "chain": 3},
        {"hops": 4, "doubling": 4, "chain": 5},
        {"hops": 8, "doubling": 5, "chain": 9},
        {"hops": 16, "doubling": 6, "chain": 17},
    ]
    assert lf.bound("k-hop", lf.task("k-hop", hops=12)).data["depths"][-1] == {"hops": 12, "doubling": 6, "chain": 13}
    for hops in range(1, 200):
        assert depth(hops, "doubling") == math.ceil(math.log2(hops)) + 2 <= 2 * math.ceil(math.log2(hops)) + 4


@pytest.mark.parametrize("layers", ["doubling", "chain"])
def test_chains_compose_pointers_that_are_there(layers: Any) -> None:
    for hops in range(1, 130):
        chain, made = addition_chain(hops, layers), {1}
        assert len(chain) + 2 == depth(hops, layers)
        for group in chain:
            assert len(group) <= 2 and all({step.query, step.value} <= made for step in group)
            made |= {step.n for step in group}
        assert hops in made and all(step.n == hops for group in chain[-1:] for step in group)
        used = {n for group in chain for step in group for n in (step.query, step.value)}
        assert made - used <= {hops}  # nothing is made in vain


ALL_SHORT = [
    (1, 3, 6, "float32", "doubling", "ideal"),
    pytest.param((2, 2, 7, "float32", "doubling", "relu"), marks=pytest.mark.deep),
    pytest.param((5, 2, 8, "float64", "chain", "ideal"), marks=pytest.mark.deep),
    pytest.param((7, 3, 6, "float64", "doubling", "relu"), marks=pytest.mark.deep),
]


@pytest.mark.deep
@pytest.mark.parametrize("case", ALL_SHORT)
def test_all_short_sequences_are_right_in_both_executors(case: tuple[int, int, int, str, str, str]) -> None:
    """Every sequence, its prefixes included, as y_t depends on the tokens up to t only."""
    found = built(*case)
    target, chain = found.target, certified(found)
    assert chain.verdict is lf.Verdict.HOLDS and chain.certified <= chain.bound < 1e-4 < nearest(target.unit) / 4
    tokens = target.tokens_of(all_words(target.size, target.length)[..., None]).astype(found.network.dtype)
    wanted = target.values(np)(tokens)
    for forward in (fast.forward, reference.forward):
        assert np.abs(forward(found.network, tokens) - wanted).max() <= chain.certified


@pytest.mark.deep
def test_shorter_arrays_are_prefixes() -> None:
    found = built(1, 3, 6, "float32")
    tokens = found.target.tokens_of(all_words(3, 4)[..., None])
    assert np.abs(evaluate(found.network, tokens) - found.target.values(np)(tokens)).max() <= certified(found).certified
    with pytest.raises(lf.InputError, match="positions for 6 tokens"):
        evaluate(found.network, found.target.tokens_of(all_words(3, 7)[:, :, None]))


@pytest.mark.parametrize(
    "dtype", ["exact", pytest.param("float64", marks=pytest.mark.deep), pytest.param("float32", marks=pytest.mark.deep)]
)
def test_one_to_sixteen_hops_are_certified_in_few_layers(dtype: str) -> None:
    """Exact networks err by 0, floats by their read-out's rounding."""
    for hops in (1, 2, 4, 8, 16) if dtype == "exact" else (16,):
        chain = certified(built(hops, 4, 32, dtype))
        assert chain.verdict is lf.Verdict.HOLDS and chain.sizes["layers"] <= 2 * math.ceil(math.log2(hops)) + 4
        assert chain.certified <= chain.bound == (0 if dtype == "exact" else 1024 * nearest(UNIT[dtype]))
        assert dtype != "exact" or chain.certified == chain.rounding == 0


@pytest.mark.deep
@pytest.mark.parametrize("hops", [1, 2, 4, 8, 16])
def test_ten_thousand_random_sequences_are_right(hops: int) -> None:
    """In as many portions as take one compilation."""
    found, rng = built(hops, 4, 32, "float32"), np.random.default_rng(hops)
    certain = certified(found).certified
    for _ in range(157):
        tokens = found.target.draw(rng, (64, 32))
        assert np.abs(evaluate(found.network, tokens) - found.target.values(np)(tokens)).max() <= certain < nearest(found.target.unit) / 4


@settings(max_examples=examples(16, 3), deadline=None)
@given(
    st.integers(1, 40), st.integers(2, 6), st.integers(2, 24), st.sampled_from(["doubling", "chain"]), st.sampled_from(["ideal", "relu"])
)
def test_exact_networks_of_any_size_err_by_nothing(hops: int, size: int, length: int, layers: Any, rounding: Any) -> None:
    found = build(KHopTarget(hops, size, length), layers=layers, rounding=rounding)
    chain = certified(found)
    assert chain.verdict is lf.Verdict.HOLDS and chain.certified == chain.bound == 0
    assert sizes(found.target, layers, rounding).items() <= chain.sizes.items()


@pytest.mark.deep
def test_slots_hold_what_their_names_say() -> None:
    """The stream of a random sequence: letters, one-hot vectors, pointers and the letters there."""
    found = built(13, 4, 40)
    target, rng = found.target, np.random.default_rng(3)
    word = tuple(int(i) for i in rng.integers(4, size=40))
    tokens = target.tokens_of(np.array(word)[:, None])
    named = slots(target, found.network)
    after = trace(found.network, tokens, named)[f"layer {len(found.network.layers)}"]
    assert np.array_equal(after["own"].argmax(1), word) and np.array_equal(after["previous"][1:].argmax(1), word[:-1])
    assert np.array_equal(after["own"].sum(1), np.ones(40)) and np.array_equal(after["previous"].sum(1), [0, *[1] * 39])
    for n in (1, 2, 4, 5, 8):
        pointers = [by_definition(word, t, n) for t in range(40)]
        assert np.array_equal(np.ravel(after[f"find {n}"]), pointers)
        assert np.array_equal(np.ravel(after[f"letter {n}"]), [word[j] + 1 if j else 0 for j in pointers])
        assert np.abs(after[f"sought {n}"][:, 0] - pointers).max() <= DELTA
    told = meanings(target, found.network)
    assert set(told) == set(named) and told["find 5"] == "the position 5 jumps back, 0 for none"


def test_parts_are_the_hard_attention_lemma() -> None:
    """V·2e^{−β}/(1−e^{−3β}) for lookups; (K.2) for the last match, of which the letters' part is attained."""
    found = built(4, 3, 20)
    weights, parts = scales(found.target, "exact", "ideal"), {part.name: part.certified for part in certified(found).parts}
    lookup = 19 * 2 * math.exp(-weights.sharpness) / (1 - math.exp(-3 * weights.sharpness))
    assert lookup / 2 <= parts["find 2"] <= lookup * (1 + 1e-6) <= DELTA / 2
    rest = math.exp(-weights.recency) / (1 - math.exp(-weights.recency))
    assert 3 * rest / 2 <= parts["find 1"] <= 3 * rest / (1 - math.exp(-weights.recency)) + DELTA / 4


def changed(network: Transformer, layer: int | None, part: str, place: tuple[int, ...], to: fmpq) -> Transformer:
    """One weight set to another number."""
    number = to if network.dtype == "exact" else np.dtype(network.dtype).type(nearest(to))
    if layer is None:
        array = np.array(getattr(network, part))
        array[place] = number
        table: dict[str, Any] = {part: array}
        return replace(network, **table)
    layers = list(network.layers)
    kind = "feedforward" if part in ("inner", "bias", "outer") else "attention"
    held = getattr(layers[layer], kind)
    array = np.array(getattr(held, part))
    array[place] = number
    layers[layer] = replace(layers[layer], **{kind: replace(held, **{part: array})})
    return replace(network, layers=tuple(layers))


def sabotages(found: Construction) -> dict[str, Transformer]:
    """One weight of every kind, in every layer that has it."""
    network, at = found.network, {name: places.start for name, places in slots(found.target, found.network).items()}
    changes: list[tuple[int | None, str, tuple[int, ...], fmpq]] = [
        (None, "embedding", (at["letter"], 0), fmpq(5)),
        (None, "embedding", (at["place"], 0), fmpq(1)),
        (None, "bias", (at["one"],), fmpq(3, 4)),
        (None, "bias", (at["find 1"],), fmpq(1)),
        (None, "positions", (3, at["place"]), fmpq(2)),
        (None, "positions", (3, at["bend"]), fmpq(0)),
        (None, "positions", (0, at["first"]), fmpq(0)),
        (None, "positions", (5, at["letter"]), fmpq(1)),
        (0, "query", (0, 0, at["one"]), fmpq(0)),
        (1, "query", (0, 0, at["own"]), fmpq(10)),
        (2, "query", (0, 0, at["find 1"]), fmpq(1)),
        (0, "key", (0, 1, at["bend"]), fmpq(1, 2)),
        (1, "key", (0, 0, at["previous"] + 1), fmpq(1)),
        (2, "key", (0, 0, at["letter"]), fmpq(2)),
        (0, "value", (0, 0, at["letter"]), fmpq(9, 10)),
        (1, "value", (0, 0, at["place"]), fmpq(99, 100)),
        (2, "value", (0, 1, at["letter 1"]), fmpq(101, 100)),
        (1, "output", (0, at["sought 1"], 0), fmpq(101, 100)),
        (2, "output", (0, at["place"], 0), fmpq(1, 1000)),
        (0, "inner", (0, at["first"]), fmpq(0)),
        (1, "inner", (0, at["sought 1"]), fmpq(9, 10)),
        (0, "bias", (1,), fmpq(1, 4)),
        (-1, "bias", (0,), fmpq(1)),
        (0, "outer", (at["previous"], 4), fmpq(2)),
        (1, "outer", (at["find 1"], 0), fmpq(9, 10)),
        (-1, "outer", (0, 0), fmpq(1, 5)),
    ]
    return {f"{layer} {part} {place}": changed(network, layer, part, place, to) for layer, part, place, to in changes}


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["exact", pytest.param("float32", marks=pytest.mark.deep)])
def test_changed_weights_are_caught(dtype: str) -> None:
    found = built(4, 3, 10, dtype)
    assert certified(found).verdict is lf.Verdict.HOLDS
    for name, network in sabotages(found).items():
        chain = certified(found, network)
        assert chain.verdict is lf.Verdict.VIOLATED and chain.witness <= chain.certified, name


def test_neurons_that_read_the_other_head_are_caught() -> None:
    """Layer 4 of 7 jumps brings find 4 and find 3 side by side: each may be restored from its own slot only."""
    found = built(7, 3, 10)
    at = {name: places.start for name, places in slots(found.target, found.network).items()}
    for neuron, other in ((1, "sought 4"), (2, "sought 3")):  # of find 3 and of letter 4, which the last layer reads
        assert found.network.layers[3].feedforward.inner[neuron, at[other]] == 0
        chain = certified(found, changed(found.network, 3, "inner", (neuron, at[other]), fmpq(1)))
        assert chain.verdict is lf.Verdict.VIOLATED and chain.certified > chain.bound and chain.witness <= chain.certified


def test_other_targets_and_other_chains_are_caught() -> None:
    found = built(4, 3, 10)
    for bank in ("doubling", "chain"):
        other = build(KHopTarget(3, 3, 10), layers=bank)
        wrong = "chain" if bank == "doubling" else "doubling"
        assert certified(other).certified == 0
        assert verify(other.network, other.target, wrong, "spline").verdict is lf.Verdict.VIOLATED  # same sizes, other slots
    assert verify(found.network, KHopTarget(3, 3, 10), "doubling", "spline").verdict is lf.Verdict.VIOLATED  # same sizes, another k
    with pytest.raises(lf.InputError, match="other sizes"):
        verify(found.network, KHopTarget(8, 3, 10), "doubling", "spline")
    with pytest.raises(lf.InputError, match="layers doubling and chain"):
        verify(found.network, found.target, "minimal", "spline")


@pytest.mark.deep
@pytest.mark.parametrize("rounds", [3, pytest.param(40, marks=pytest.mark.deep)])
def test_an_attack_on_float_weights_never_beats_the_certificate(rounds: int) -> None:
    """Random relative changes of all weights, small and large: no sequence errs by more than is certified."""
    rng = np.random.default_rng(7)
    found = built(2, 2, 6, "float32")
    target = found.target
    tokens = target.tokens_of(all_words(2, 6)[..., None]).astype(np.float32)
    wanted, sharp = target.values(np)(tokens), 0
    for n in range(rounds):
        size = (1e-4, 1e-2, 0.1)[n % 3]
        network = found.network.map(lambda leaf: (leaf * (1 + size * rng.normal(size=leaf.shape))).astype(leaf.dtype))  # noqa: B023
        chain = certified(found, network)
        worst = float(np.abs(evaluate(network, tokens) - wanted).max())
        assert worst <= chain.certified, size
        sharp += chain.certified < 0.5
    assert sharp  # small changes are certified, too


@pytest.mark.deep
def test_an_attack_on_weights_that_are_zero_never_beats_the_certificate() -> None:
    """What heads and neurons read beside their slots, two heads to a layer: everything but what is written is changed by small numbers."""
    rng, found = np.random.default_rng(8), built(7, 2, 6, "float32")
    tokens = found.target.tokens_of(all_words(2, 6)[..., None]).astype(np.float32)
    wanted, finite = found.target.values(np)(tokens), 0
    for n in range(30):
        size = (1e-7, 1e-5, 1e-3)[n % 3]

        def moved(part: Any, names: tuple[str, ...], size: float = size) -> Any:
            held = {name: np.asarray(getattr(part, name)) for name in names}
            return replace(
                part, **{name: (array + size * rng.normal(size=array.shape)).astype(array.dtype) for name, array in held.items()}
            )

        pairs = [
            (moved(one.attention, ("query", "key", "value")), moved(one.feedforward, ("inner", "bias"))) for one in found.network.layers
        ]
        layers = tuple(replace(one, attention=a, feedforward=f) for one, (a, f) in zip(found.network.layers, pairs, strict=True))
        network = replace(moved(found.network, ("embedding", "positions")), layers=layers)
        certain = certified(found, network).certified
        assert np.abs(evaluate(network, tokens) - wanted).max() <= certain, size
        finite += certain < 1e-3
    assert finite >= 10  # the smallest changes are certified


def test_floats_are_refused_beyond_their_horizon() -> None:
    assert horizon("float32") == 511 and horizon("float64") == 11863283
    with pytest.raises(lf.Refusal, match=r"1/\(8 sqrt\(u\)\) positions, that is 511, and 512") as refused:
        build(KHopTarget(2, 2, 512), dtype="float32")
    assert {"dtype": "float64"} in refused.value.remedies
    with pytest.raises(lf.Refusal, match="staircases of relu neurons over 64 positions") as refused:
        build(KHopTarget(2, 2, 64), dtype="float32", rounding="relu")
    assert refused.value.remedies[0] == {"rounding": "ideal"}
    with pytest.raises(lf.Refusal, match="at most 1/2 is needed"):
        build(KHopTarget(2, 64, 100), dtype="float32")
    for dtype, rounding in (("float64", "relu"), ("float32", "ideal")):  # the remedies
        assert build(KHopTarget(2, 2, 64), dtype=dtype, rounding=rounding).network.dtype == dtype
    assert build(KHopTarget(2, 2, 512), dtype="float64").network.sizes()["layers"] == 3


@pytest.mark.deep
@pytest.mark.parametrize(("size", "dtype", "rounding"), [(2, "float32", "ideal"), (4, "float32", "relu"), (16, "float32", "ideal")])
def test_what_is_not_refused_is_certified_up_to_the_last_length(size: int, dtype: str, rounding: Any) -> None:
    """The longest sequences that the formulas allow: the certificate, which counts roundings from the weights, agrees."""

    def allowed(length: int) -> bool:
        try:
            return bool(scales(KHopTarget(3, size, length), dtype, rounding))
        except lf.Refusal:
            return False

    longest = max(length for length in range(2, 513) if allowed(length))
    assert longest == {(2, "ideal"): 498, (4, "relu"): 50, (16, "ideal"): 106}[size, rounding]
    assert certified(build(KHopTarget(2, size, longest), dtype=dtype, rounding=rounding)).verdict is lf.Verdict.HOLDS


@pytest.mark.parametrize(
    ("options", "text"),
    [({"hops": 0}, "hops 0"), ({"size": 1}, "size 1"), ({"length": 1025}, "length 1025"), ({"jumps": 3}, "unknown option 'jumps'")],
)
def test_bad_input_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(lf.InputError, match=text):
        lf.task("k-hop", **options)


def test_bad_tokens_and_chains_are_refused() -> None:
    target = KHopTarget(2, 3, 6)
    target.check_tokens(target.tokens_of(np.zeros((6, 1), int)), "here")
    with pytest.raises(lf.InputError, match="positions for 6"):
        target.check_tokens(target.tokens_of(np.zeros((7, 1), int)), "here")
    with pytest.raises(lf.InputError, match="outside the alphabet"):
        target.check_tokens(np.zeros((6, 1)), "here")
    with pytest.raises(lf.InputError, match="up to 64 jumps"):
        build(KHopTarget(65, 2, 6), layers="chain")


def test_commands(run: Callable[..., Any], tmp_path: Any) -> None:
    out = tmp_path / "net"
    made = run("build", "k-hop", "--hops", "4", "--size", "3", "--length", "10", "--out", out, "--json")
    assert made.code == 0 and made.json["certified"] == 0, made.err
    checked = run("verify", out, "--json").json
    assert checked["verdict"] == "holds" and checked["sizes"]["layers"] == 4 and checked["layers"] == "doubling"
    assert run("bound", "k-hop", "--hops", "16", "--json").json["layers"] == 6
    assert run("bound", "k-hop", "--hops", "16", "--layers", "chain", "--json").json["layers"] == 17


def test_a_neuron_that_overflows_is_not_certified() -> None:
    """Nothing reads it, and only one pair of jumps in thousands makes it infinite."""
    found = built(3, 4, 24, "float32")
    places = HopStream(found.target, "doubling")
    row = np.zeros(places.width)
    row[[places.at("find 1"), places.at("find 2")]] = 2.0**124, 2.0**123
    with pytest.raises(lf.Refusal, match="a neuron reaches"):
        certified(found, with_neuron(found.network, -1, row, -(2.0**127)))


def test_logarithms_and_sums_beyond_the_type_are_refused() -> None:
    found = built(3, 2, 7, "float32")
    layers = list(found.network.layers)
    layers[1] = replace(layers[1], feedforward=replace(layers[1].feedforward, precision=("log",) * len(layers[1].feedforward.outer)))
    with pytest.raises(lf.InputError, match="rounded to logarithms"):
        certified(found, replace(found.network, layers=tuple(layers)))
    heads, layers = found.network.layers[1].attention, list(found.network.layers)
    far = replace(heads, value=heads.value * np.float32(2.0**122), output=heads.output / np.float32(2.0**122))
    layers[1] = replace(layers[1], attention=far)
    with pytest.raises(lf.Refusal, match="overflow"):
        certified(found, replace(found.network, layers=tuple(layers)))


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_attacks(dtype: str) -> None:
    """Rude changes: where something finite is certified, no sequence of two letters errs by more."""
    found = built(3, 2, 7, dtype)
    given = [found.target.tokens_of(all_words(2, length)[..., None]) for length in (1, 2, 7)]
    wanted = [found.target.values(np)(tokens) for tokens in given]

    def worst(network: Transformer) -> float:
        return max(float(np.abs(fast.forward(network, tokens) - y).max()) for tokens, y in zip(given, wanted, strict=True))

    assert attacked(found.network, lambda network: certified(found, network), worst, np.random.default_rng(5), 50) >= 20


@pytest.mark.parametrize("bank", [None, 3, "own"])
def test_other_layers_than_doubling_and_chain_are_refused_in_one_line(bank: Any) -> None:
    """A card may say anything."""
    found = built(3, 2, 7)
    with pytest.raises(lf.InputError, match="doubling and chain"):
        verify(found.network, found.target, bank, found.ffn)
