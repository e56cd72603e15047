"""Induction heads: targets against their definitions, certificates against all short sequences, random long ones, and broken weights."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq

import lemmaformer as lf
from analyzer.numbers.exact import upper, working_precision
from analyzer.targets.tasks.induction import BLANK, InductionTarget
from analyzer.theorems.library.induction import hard_bound, hard_constants
from constructions.files.broken import breakable, broken
from constructions.run import fast, reference
from constructions.theorems.library.induction import build, factors
from tests.theorems.library.attacks import attacked, well_formed, with_neuron
from verify.layers.all_sequences import sequence_error
from verify.theorems.library.induction import CloudSteps, InductionReading, verify

GENERAL = {"match": "general", "similarity": "-4*(u1-v1)**2 + u2*v2"}
VERSIONS: dict[str, dict[str, Any]] = {"hard": {}, "soft": {"match": "soft"}, "general": GENERAL}


def induction(**parameters: Any) -> InductionTarget:
    found = lf.task("induction", **parameters)
    assert isinstance(found, InductionTarget)
    return found


def all_words(letters: int, length: int, batch: int = 4096) -> Iterator[np.ndarray]:
    """All sequences of one length, as places in the alphabet, in batches."""
    places = letters ** np.arange(length)
    for start in range(0, letters**length, batch):
        yield np.arange(start, min(start + batch, letters**length))[:, None] // places % letters


def copied(word: list[int], n: int, letters: int) -> list[float]:
    """The hard target by its definition, position by position."""
    found, whole = [], 1 << (letters - 1).bit_length()
    for t in range(len(word)):
        following = [word[s] for s in range(n - 1, t + 1) if word[s - n + 1 : s] == word[t - n + 2 : t + 1]]
        found.append((following[-1] + 1) / whole if following else 0.0)
    return found


def weighed(word: list[int], n: int, letters: int, sharpness: float) -> list[float]:
    """The soft target by its definition."""
    found, padded = [], [BLANK] * (n - 1) + word
    for t in range(len(word)):
        now = padded[t + 1 : t + n]
        weights = [
            math.exp(sharpness * sum(a == b != BLANK for a, b in zip(now, padded[s : s + n - 1], strict=True))) for s in range(t + 1)
        ]
        values = [(a + 1) / (1 << (letters - 1).bit_length()) for a in word]
        found.append(sum(w * v for w, v in zip(weights, values, strict=False)) / sum(weights))
    return found


@pytest.mark.parametrize("n", [2, 3, 4])
def test_targets_are_their_definitions(n: int) -> None:
    hard, soft = induction(letters=3, n=n, length=12), induction(letters=3, n=n, length=12, match="soft", sharpness=1.5)
    for word in np.random.default_rng(n).integers(3, size=(40, 12)).tolist():
        tokens = hard.word_tokens(word)
        assert hard.values(np)(tokens)[n - 2 :].tolist() == copied(word, n, 3)[n - 2 :]
        assert np.allclose(soft.values(np)(tokens)[n - 2 :], weighed(word, n, 3, 1.5)[n - 2 :], rtol=1e-13)
        for target in (hard, soft):
            assert abs(float(target.exact_value(tokens, 9)) - target.values(np)(tokens)[9]) < 1e-14


def test_a_general_similarity_of_agreeing_letters_is_soft() -> None:
    """Two letters have the values 1/2 and 1, no letter has 0: those 1/2 apart do not agree."""
    soft = induction(letters=2, n=2, length=8, match="soft", sharpness=2)
    general = induction(letters=2, n=2, length=8, match="general", similarity="2*relu(1 - 2*abs(u1-v1))")
    words = soft.word_tokens(np.random.default_rng(0).integers(2, size=(8, 8)))
    assert np.allclose(soft.values(np)(words), general.values(np)(words), rtol=1e-14)


@pytest.mark.deep
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("dtype", ["exact", "float32"])
def test_all_short_sequences_are_within_the_certificate(version: str, dtype: str) -> None:
    target = induction(letters=3, n=3, length=7, **VERSIONS[version])
    net = lf.build(target, dtype=dtype, error=1e-2)
    certificate = net.verify()
    assert certificate.verdict.value == "holds" and certificate.witness <= certificate.certified <= certificate.bound
    worst = 0.0
    for words in all_words(3, 7):
        tokens = target.word_tokens(words)
        worst = max(worst, float(np.abs(net(tokens) - target.values(np)(tokens))[:, 1:].max()))
    assert worst <= certificate.certified * (1 + 1e-12) + 1e-14
    if version == "hard":
        assert worst >= 0.95 * certificate.certified


@pytest.mark.deep
@pytest.mark.parametrize("n", [2, 3, 4])
def test_all_sequences_of_at_most_eight_letters(n: int) -> None:
    """Of four letters: causal networks give at position t of an array what they give at the end of t + 1 letters."""
    target = induction(letters=4, n=n, length=64)
    net = lf.build(target, dtype="float32", error=1e-3)
    certified = net.verify().certified
    for words in all_words(4, 8, 8192):
        tokens = target.word_tokens(words)
        assert np.abs(net(tokens) - target.values(np)(tokens))[:, target.settled :].max() <= certified


@pytest.mark.deep
@pytest.mark.parametrize("n", [2, 3, 4])
def test_random_sequences_of_64_letters(n: int) -> None:
    target = induction(letters=4, n=n, length=64)
    net = lf.build(target, dtype="float32", error=1e-3)
    certified, rng = net.verify().certified, np.random.default_rng(n)
    for _ in range(35):
        tokens = target.draw(rng, (1000, 64))
        assert np.abs(net(tokens) - target.values(np)(tokens))[:, target.settled :].max() <= certified


@pytest.mark.deep(keep="3-exact")
@pytest.mark.parametrize("dtype", ["exact", "float32"])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_four_letters_and_64_tokens_are_certified(n: int, dtype: str) -> None:
    certificate = lf.build(induction(letters=4, n=n, length=64), dtype=dtype, error=1e-3).verify()
    assert certificate.verdict.value == "holds" and 0 < certificate.witness <= certificate.certified <= certificate.bound <= 1e-3
    assert certificate.sizes["layers"] == 2 and certificate.sizes["heads"] == n - 1


@pytest.mark.deep(keep="soft-lin")
@pytest.mark.parametrize("rpe", ["table", "lin", "log"])
@pytest.mark.parametrize("version", VERSIONS)
def test_every_bank_is_certified(version: str, rpe: str) -> None:
    target = induction(letters=2, n=3, length=10, **VERSIONS[version])
    certificate = lf.build(target, rpe=rpe, dtype="float64", error=0.05).verify()
    assert certificate.verdict.value == "holds" and certificate.rounding is not None and 0 < certificate.rounding < 1e-4


def test_restored_letters_are_exact_whatever_the_bank_errs_by() -> None:
    target = induction(letters=3, n=3, length=16)
    network = build(target, rpe="lin", error=1e-3).network
    reading = InductionReading(network, target)
    states = reading.states(CloudSteps(None))
    slots = reading.stream.slots
    assert reading.noise(CloudSteps(None))[list(slots["back 2"])].max() > 0.01
    for word, row, radius in zip(reading.words, states.centre.tolist(), states.radius, strict=True):
        for k in (1, 2):
            assert [row[j] for j in slots[f"letter {k}"]] == [fmpq(int(word[k] == a)) for a in range(3)]
            assert not radius[list(slots[f"letter {k}"])].any()
        assert row[slots["nothing"][0]] == int(word[0] == BLANK)


@pytest.mark.parametrize(("similarity", "rank"), [("u1*v1", 1), ("-(u1-v1)**2", 2), ("u1*v1 + u2*v2", 2), ("exp(-u1*v2)", 3), ("u1", 1)])
def test_similarities_are_factored_exactly_with_the_least_rank(similarity: str, rank: int) -> None:
    target = induction(letters=3, n=3, length=8, match="general", similarity=similarity)
    asked, told = factors(target)
    product, table = asked @ told.T, np.array(target.table[0], dtype=object)
    off = product - table
    assert all(v == row[0] for row in off for v in row) and asked.shape[1] == rank
    assert (upper(target.table[1]) > 0) == ("exp" in similarity) and upper(target.table[1]) < 1e-35


def test_the_hard_bound_is_the_closed_form_at_every_distance() -> None:
    """(I.1) against the weights written out: the last match s steps back, everything else as bad as it can be."""
    target = induction(letters=4, n=2, length=12)
    p, beta = hard_constants(target, 0.01)
    with working_precision(128):
        whole = hard_bound(target, arb(p), arb(beta))
    worst = 0.0
    for s in range(0, 11):
        nearer = sum(math.exp(float(arb(p)) * (s - j) - float(arb(beta))) for j in range(s))
        further = sum(math.exp(-float(arb(p)) * j) for j in range(1, 60))
        worst = max(worst, 3 / 4 * (nearer + further) / (1 + nearer + further))
    ratio = math.exp(-float(arb(beta)) / 2) * (math.exp(float(arb(p)) * 12) - 1)
    assert upper(whole) == pytest.approx(max(worst, ratio / (1 + ratio)), rel=1e-9) and upper(whole) <= 0.01


@pytest.mark.deep
@pytest.mark.parametrize("version", VERSIONS)
def test_both_executors_agree(version: str) -> None:
    target = induction(letters=3, n=3, length=12, **VERSIONS[version])
    network = build(target, dtype="float64").network
    tokens = target.draw(np.random.default_rng(1), (8, 12))
    assert np.allclose(np.asarray(reference.forward(network, tokens)), fast.forward(network, tokens), atol=1e-12)


@pytest.mark.deep(keep="soft")
@pytest.mark.parametrize("version", VERSIONS)
def test_every_kind_of_weight_is_watched(version: str) -> None:
    """The decay of layer 2 is free: with another one it is another network of the theorem, whose numbers change."""
    target = induction(letters=2, n=3, length=8, **VERSIONS[version])
    network = build(target, error=1e-3).network
    before = verify(network, target, "own", "spline")
    tried = 0
    for weight, layer in itertools.product(breakable(network), (1, 2)):
        try:
            changed, _ = broken(network, weight, by=0.02, layer=None if weight == "embedding" else layer)
        except lf.InputError:
            continue  # all of them are 0 there
        after = verify(changed, target, "own", "spline")
        tried += 1
        if weight == "decay":
            assert after.verdict.value == "holds" and after.certified != before.certified and after.bound != before.bound
        else:
            assert after.verdict.value == "violated", (weight, layer)
    assert tried >= 8


@pytest.mark.deep
def test_a_wrong_sign_of_the_past_is_caught_and_really_errs() -> None:
    """Without a score for what lies before the array, letters that have not occurred are answered with another letter."""
    target = induction(letters=3, n=2, length=8)
    network = build(target).network
    attention = network.layers[1].attention
    attention.query[0, -1] = attention.query[0, -1] * 0
    certificate = verify(network, target, "own", "spline")
    assert certificate.verdict.value == "violated" and certificate.witness > 0.3


def test_floats_are_refused_beyond_their_horizon() -> None:
    with pytest.raises(lf.Refusal, match=r"float32 cannot resolve logits .* about \d+ tokens would do") as refused:
        build(induction(letters=4, n=4, length=4096), dtype="float32")
    assert refused.value.remedies == ({"dtype": "float64"}, {"dtype": "exact"})
    with pytest.raises(lf.Refusal, match="float32 cannot hold lag") as bank:
        build(induction(letters=3, n=3, length=8, match="soft"), rpe="lin", dtype="float32", error=1e-4)
    assert bank.value.remedies == ({"rpe": "table"},)


def test_bad_tasks_and_tokens_are_refused() -> None:
    with pytest.raises(lf.InputError, match="does not fit"):
        induction(letters=3, n=4, length=3)
    with pytest.raises(lf.InputError, match="words of 6"):
        induction(letters=16, n=6)
    with pytest.raises(lf.InputError, match="similarity goes with match general"):
        induction(match="general")
    with pytest.raises(lf.InputError, match="no finite value"):
        induction(n=2, match="general", similarity="1/v1")
    target = induction(letters=3, n=2, length=6)
    with pytest.raises(lf.InputError, match="unit vectors"):
        target.check_tokens(np.full((1, 4, 3), 0.5), "x")
    with pytest.raises(lf.InputError, match="at most 6"):
        target.check_tokens(np.zeros((1, 7, 3)), "x")


@pytest.mark.deep
def test_the_command_line_bounds_and_builds(run: Any, tmp_path: Any) -> None:
    promised = run("bound", "induction", "--letters", "3", "--n", "3", "--length", "12", "--error", "0.001", "--json")
    assert promised.code == 0 and promised.json["worst_case"] <= 1e-3 and promised.json["length"] == 12
    made = run("build", "induction", "--alphabet", "3", "--n", "3", "--length", "12", "--out", str(tmp_path / "net"), "--json")
    assert made.code == 0 and made.json["theorem"] == "induction"
    net = lf.load(tmp_path / "net")
    assert list(net.slots) == ["x0", "back 1", "back 2", "letter 1", "letter 2", "one", "nothing", "copied"]
    assert net([0, 1, 2, 0, 1], letters=True)[-1] == pytest.approx(0.75, abs=0.01)  # what followed 0, 1 was 2
    compares = net.mechanism["layers"][1]["heads"][0]
    assert compares["query"] == ["x0", "letter 1", "one"] and compares["key"] == ["letter 1", "letter 2", "nothing"]


@pytest.mark.deep
@pytest.mark.parametrize("version", VERSIONS)
def test_all_arrays_by_enclosure_and_the_theorem_agree(version: str) -> None:
    """Two certificates of one network that share no step: every array of at most 7 letters in midpoints and radii, and states of words."""
    target = induction(letters=2, n=3, length=7, **VERSIONS[version])
    network = build(target, error=1e-2).network
    theorem, arrays = verify(network, target, "own", "spline"), sequence_error(network, target)
    assert arrays.sequences == sum(2**j for j in range(2, 8)) and arrays.over == "letters of the alphabet, arrays of at most 7 tokens"
    assert theorem.witness <= arrays.certified * (1 + 1e-12) + 1e-14 and arrays.witness <= theorem.certified + 1e-14
    if version == "hard":
        assert arrays.witness == pytest.approx(theorem.certified, rel=1e-3)


@pytest.mark.deep
def test_a_trained_network_is_certified_and_compared() -> None:
    """Two trained layers come near to the target on random sequences; the worst of all arrays is certified, and it is not near."""
    target = induction(letters=2, n=2, length=7)
    sizes = {"layers": 2, "heads": 2, "model_dim": 12, "width": 32, "key_dim": 6}
    net = lf.train(target, rpe="lin", attention="dp", steps=600, batch=128, seed=1, **sizes)
    certificate = net.certificate
    assert certificate.theorem == "all sequences" and certificate.witness <= certificate.certified < 1
    for length in range(1, 8):
        tokens = target.word_tokens(np.concatenate(list(all_words(2, length))))
        assert np.abs(net(tokens) - target.values(np)(tokens))[:, -1].max() <= certificate.certified
    built = lf.build(target, dtype="float32", error=1e-3)
    table = lf.compare(built, net).as_dict()["networks"]
    ours, learnt = (column["certificate"]["certified"] for column in table)
    assert ours <= 1e-3 < learnt == pytest.approx(certificate.certified)
    assert table[1]["sampled"]["overall"]["rms"] < 0.2


def test_too_many_arrays_are_measured_only() -> None:
    target = induction(letters=4, n=2, length=64)
    with pytest.raises(lf.Refusal, match="too many to go through"):
        sequence_error(build(target).network, target)


@pytest.mark.deep
def test_what_overflows_is_not_certified() -> None:
    """A neuron that nothing reads, and that is infinite after one word of three letters only: infinity times 0 is no number."""
    target = induction(letters=4, n=3, length=8)
    net = lf.build(target, dtype="float32", error=0.1).transformer
    row, word = np.zeros(net.embedding.shape[0]), [3, 2, 1]
    row[[4 * k + letter for k, letter in enumerate(reversed(word))]] = 2.0**126.5
    for index in (0, 1):
        silent = with_neuron(net, index, row, -(2.0**126))
        outputs = fast.forward(silent, target.word_tokens(np.array([word, word[::-1]])))
        assert np.isnan(outputs[0]).any() and np.isfinite(outputs[1]).all()
        with pytest.raises(lf.InputError, match="beyond 2"):
            verify(silent, target, "own", "spline")
    steps = CloudSteps("float32")
    for size in (2.0**127, np.nan):
        with pytest.raises(lf.Refusal, match="overflow"):
            steps.checked(np.array([1.0, size]))


@pytest.mark.deep
def test_networks_without_queries_or_neurons_are_refused_in_one_line() -> None:
    target = induction(letters=2, n=3, length=8)
    first, second = (net := lf.build(target, dtype="float32", error=0.1).transformer).layers
    deaf = replace(second, attention=replace(second.attention, query=second.attention.query[:, :0], key=second.attention.key[:, :0]))
    empty = [
        replace(one, feedforward=replace(one.feedforward, inner=one.feedforward.inner[:0], bias=one.feedforward.bias[:0],
                                         outer=one.feedforward.outer[:, :0]))
        for one in (first, second)
    ]  # fmt: skip
    for layers in ((first, deaf), (empty[0], second), (first, empty[1])):
        changed = replace(net, layers=layers)
        assert well_formed(changed)
        with pytest.raises(lf.InputError, match="no queries, or no neurons"):
            verify(changed, target, "own", "spline")


@pytest.mark.deep
def test_what_does_not_fit_certifies_nothing() -> None:
    """Layer 1 writes a letter elsewhere, too: the output is off by as much."""
    target = induction(letters=2, n=3, length=8, match="soft")
    net = lf.build(target, dtype="float32", error=1e-2).transformer
    embedding = net.embedding.copy()
    embedding[-1, 0] = 0.25
    found = verify(replace(net, embedding=embedding), target, "own", "spline")
    assert found.faults and found.certified == float("inf")


@pytest.mark.deep
@pytest.mark.parametrize("match", ["hard", "soft"])
def test_attacks(match: str) -> None:
    """Rude changes: where something finite is certified, no sequence of two letters errs by more."""
    target = induction(letters=2, n=3, length=8, match=match)
    net = lf.build(target, dtype="float32", error=1e-2).transformer
    words = [target.word_tokens(word) for length in (2, 3, 8) for word in all_words(2, length)]
    given = [(tokens, target.values(np)(tokens)) for tokens in words]

    def worst(network: Any) -> float:
        return max(float(np.abs(fast.forward(network, tokens) - y)[:, target.settled :].max(initial=0.0)) for tokens, y in given)

    assert attacked(net, lambda network: verify(network, target, "own", "spline"), worst, np.random.default_rng(3), 60) >= 20
