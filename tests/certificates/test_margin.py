"""Margins over all sequences: right, refuted with the sequence, undecided; a skipped batch or a radius of zero is caught."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from analyzer.errors import InputError
from analyzer.targets.decisions import decision_of
from analyzer.targets.fixed import FixedMemory
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer
from constructions.run.execute import run as execute
from lemmaformer.network import Network
from tests.conftest import random_network
from verify.bundles.claims import with_margin
from verify.chain.certificate import Margin
from verify.chain.enclosed import Enclosed
from verify.chain.enclosed_layers import enclosed_pass
from verify.layers import margin as margins
from verify.layers.words import Reach
from verify.theorems.no_theorem import verify_learnt

POINTER = lf.adaptive([-1, 0, 1], {"m1": [1, 2, 3]})
"""Copy the letter that the current one points to."""
LENGTH = 5
SIZES: dict[str, Any] = {
    "rpe": "table", "attention": "dp", "window": "finite", "length": LENGTH, "heads": 4, "model_dim": 8, "key_dim": 3, "width": 32,
    "steps": 400, "batch": 64, "rate": 0.02,
}  # fmt: skip


@pytest.fixture(scope="module")
def classifier() -> Network:
    return lf.train(POINTER, classes=True, **SIZES)


@pytest.fixture(scope="module")
def copier() -> Network:
    return lf.train(POINTER, **SIZES)


def everything(target: Any, length: int) -> np.ndarray:
    """All sequences of letters, by counting."""
    letters = target.letters()
    return letters[np.array(list(itertools.product(range(len(letters)), repeat=length)))]


def margin_of(net: Network) -> Margin:
    found = net.verify(margin=True).margin
    assert found is not None
    return found


def decided(net: Network, tokens: np.ndarray) -> np.ndarray:
    """The letters that a classifier's largest outputs, or the nearest value to an output, stand for."""
    outputs = net(tokens)[:, -1]
    return outputs.argmax(-1) - 1 if outputs.ndim == 2 else np.clip(np.rint(outputs), -1, 1)


@pytest.mark.deep
@pytest.mark.parametrize("which", ["classifier", "copier"])
def test_a_trained_copier_is_right_on_all_sequences(which: str, request: pytest.FixtureRequest) -> None:
    net: Network = request.getfixturevalue(which)
    tokens = everything(POINTER, LENGTH)
    wanted = POINTER.values(np)(tokens)[:, -1]
    assert (decided(net, tokens) == wanted).all()
    assert margin_of(net).verdict == "right" and margin_of(net).certified > 0
    found = margins.certified_margin(net.transformer, POINTER, LENGTH)  # not from the error, which may be certified too
    assert found.verdict == "right" and found.sequences == 3**4 + 3**LENGTH and found.over == "letters of the alphabet"
    assert found.rule == ("argmax" if which == "classifier" else "nearest") and found.values == (-1, 0, 1)
    assert 0 < found.certified <= found.witness <= found.certified * 1.001
    assert found.as_dict()["counterexample"] is None


@pytest.mark.deep
@pytest.mark.parametrize(("which", "weight"), [("classifier", "table"), ("classifier", "value"), ("copier", "table"), ("copier", "outer")])
def test_a_planted_error_is_refuted_with_the_sequence(which: str, weight: str, request: pytest.FixtureRequest) -> None:
    net: Network = request.getfixturevalue(which)
    for by in (-1.0, -2.0, -4.0):
        broken, _, _ = net.broken(weight, by=by)
        tokens = everything(POINTER, LENGTH)
        wrong = decided(broken, tokens) != POINTER.values(np)(tokens)[:, -1]
        found = margin_of(broken)
        assert found.verdict == ("refuted" if wrong.any() else "right")
        if wrong.any():
            sequence = np.array(found.as_dict()["counterexample"])[:, None]
            assert decided(broken, sequence[None])[0] != POINTER.values(np)(sequence)[-1]
            assert found.witness <= 0 and found.certified <= found.witness
            return
    pytest.fail("none of the changes makes a decision wrong")


@pytest.mark.deep
def test_the_command_line_says_right_and_refuted(classifier: Network, tmp_path: Path, run: Callable[..., Any]) -> None:
    classifier.save(tmp_path / "net")
    done = run("verify", tmp_path / "net", "--margin", "--json")
    assert done.code == 0 and done.json["margin"]["verdict"] == "right" and done.json["verdict"] == "measured"
    assert done.json["sizes"]["outputs"] == 3 and "margin" not in run("verify", tmp_path / "net", "--json").json
    shown = run("verify", tmp_path / "net", "--margin")
    assert shown.code == 0 and "decisions right: at all sequences of letters of the alphabet" in shown.out and "3 outputs" in shown.out
    done = run("break", tmp_path / "net", "--weight", "outer", "--by", "-2", "--out", tmp_path / "broken")
    assert done.code == 0
    refuted = run("verify", tmp_path / "broken", "--margin", "--json")
    assert refuted.code == 1 and refuted.json["margin"]["verdict"] == "refuted"
    assert len(refuted.json["margin"]["counterexample"]) in (4, LENGTH)
    assert run("verify", tmp_path / "broken", "--margin").code == 1


def with_attention(net: Network, card: dict[str, Any] | None = None, **changes: Any) -> Network:
    """A network of one layer with other attention."""
    network = net.transformer
    attention = replace(network.layers[0].attention, **changes)
    return Network(replace(network, layers=(replace(network.layers[0], attention=attention),)), card or net.card, POINTER)


def looking_back(net: Network) -> Network:
    """The same heads over the infinite past, with weights of e^-40 on thirty-five tokens more."""
    table = np.concatenate([net.transformer.layers[0].attention.table, np.full((4, 35), -40, np.float32)], axis=1)
    return with_attention(net, table=table, window="infinite")


@pytest.mark.deep
def test_what_lies_far_back_is_confined(classifier: Network) -> None:
    found = margin_of(looking_back(classifier))
    assert found.verdict == "right" and found.sequences is not None and found.sequences < 3**7


@pytest.mark.deep
def test_finite_windows_are_confined_too(classifier: Network) -> None:
    """Heads whose weights fall like e^-3s in arrays of at most forty tokens: other heads than were trained, so some decision is wrong."""
    card = {**classifier.card, "training": {"recipe": {"length": 40}}}
    found = margin_of(with_attention(classifier, card, rpe=("lin",) * 4, table=None, decay=np.full(4, 3, np.float32)))
    assert found.verdict == "refuted" and found.over == "letters of the alphabet, arrays of at most 40 tokens"
    assert found.certified <= found.witness <= 0 and found.sequences is not None and len(found.worst) <= 40


@pytest.mark.deep
def test_what_cannot_be_gone_through_is_undecided(classifier: Network) -> None:
    """Heads that see all of forty tokens, later ones too, and no positions: nothing is confined, and there are too many arrays."""
    card = {**classifier.card, "training": {"recipe": {"length": 40}}}
    found = margin_of(with_attention(classifier, card, rpe=("none",) * 4, table=None, window="full"))
    assert found.sequences is None and "too many to go through" in found.reason and found.certified == -np.inf
    assert found.verdict == ("refuted" if found.witness <= 0 else "undecided")


@pytest.mark.deep
def test_wide_enclosures_leave_decisions_undecided(
    classifier: Network, tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, passes = margins.WordSearch.outputs, []

    def wide(words: Any, *arguments: Any) -> Iterator[tuple[int, int, Enclosed]]:
        passes.append(arguments)
        return ((j, first, Enclosed(found.mid, found.rad + 100)) for j, first, found in plain(words, *arguments))

    monkeypatch.setattr(margins.WordSearch, "outputs", wide)
    found = margin_of(classifier)
    assert found.verdict == "undecided" and found.certified < -100 and found.witness > 0 and len(passes) == 1
    assert margin_of(looking_back(classifier)).verdict == "undecided" and len(passes) == 3  # a second one, with more words, helps no more
    classifier.save(tmp_path / "net")
    done = run("verify", tmp_path / "net", "--margin", "--json")
    assert done.code == 3 and done.json["margin"]["verdict"] == "undecided" and "too wide" in done.json["margin"]["advice"]
    assert done.json["margin"]["counterexample"] is None and run("verify", tmp_path / "net", "--margin").code == 3


def passed(net: Network) -> tuple[margins.WordSearch, Reach, list[tuple[int, int, Enclosed]]]:
    """The pass over all words, in batches of 50."""
    words = margins.WordSearch(net.transformer, POINTER, LENGTH)
    reach = words.reach()
    cut = [
        (j, start, found[start : start + 50]) for j, _, found in words.outputs(reach, True) for start in range(0, len(found.mid), 50)
    ]  # fmt: skip
    return words, reach, cut


def test_a_skipped_batch_is_caught(classifier: Network) -> None:
    words, reach, batches = passed(classifier)
    decision = decision_of(POINTER, 3)
    assert [(j, first) for j, first, _ in batches] == [(4, 0), (4, 50), (5, 0), (5, 50), (5, 100), (5, 150), (5, 200)]
    assert margins.least_margin(words, reach, decision, batches)[0] > 0
    renamed = [*batches[:-2], (5, 150, batches[-1][2]), batches[-1]]
    swapped = [*batches[:-2], batches[-1], batches[-2]]
    twice = [*batches[:3], batches[2], *batches[4:]]
    for wrong in (batches[1:], batches[:-1], batches[:3] + batches[4:], batches[2:], batches[:2], twice, swapped, renamed, []):
        with pytest.raises(margins.NotEnclosed):
            margins.least_margin(words, reach, decision, wrong)


def test_a_radius_of_zero_is_caught(classifier: Network) -> None:
    words, reach, batches = passed(classifier)
    sharp = [(j, first, Enclosed(found.mid, np.zeros_like(found.rad))) for j, first, found in batches]
    with pytest.raises(margins.NotEnclosed, match="outside their enclosures"):
        margins.least_margin(words, reach, decision_of(POINTER, 3), sharp)


def test_enclosures_of_all_outputs_hold_what_is_run(classifier: Network) -> None:
    _, _, batches = passed(classifier)
    found = [part for j, _, part in batches if j == LENGTH]
    mid, rad = np.concatenate([part.mid for part in found]), np.concatenate([part.rad for part in found])
    tokens = everything(POINTER, LENGTH)
    whole = enclosed_pass(classifier.transformer, tokens)[:, -1]
    outputs = classifier(tokens)[:, -1]
    assert mid.shape == whole.mid.shape == outputs.shape == (243, 3)
    for centre, radius in ((mid, rad), (whole.mid, whole.rad)):
        assert (np.abs(outputs - centre) <= radius).all() and 0 < radius.max() < 1e-2


def test_a_certified_error_proves_decisions_without_sequences(tmp_path: Path, run: Callable[..., Any]) -> None:
    """A constructed network whose error is below the room is right at every length; with a coarse error words are gone through."""
    net = lf.build(lf.load_target("examples/nested.toml"))
    found = margin_of(net)
    assert found.rule == "sign" and found.verdict == "right" and found.sequences is None
    assert found.certified == np.nextafter(1 - net.certificate.certified, -np.inf) <= found.witness
    weak = margins.certified_margin(net.transformer, net.target, 3, error=1.5)  # type: ignore[arg-type]
    assert weak.verdict == "right" and weak.sequences is not None and weak.sequences < 2 * margins.FIRST_CUT
    assert found.certified - 0.1 < weak.certified <= weak.witness


def test_what_has_no_decisions_is_refused(tmp_path: Path, run: Callable[..., Any]) -> None:
    net = lf.build(lf.fixed(lags=(2,)))
    with pytest.raises(InputError, match="with an alphabet, not fixed"):
        net.verify(margin=True)
    net.save(tmp_path / "net")
    done = run("verify", tmp_path / "net", "--margin")
    assert done.code == 2 and done.out == "" and done.err.count("\n") == 1
    (tmp_path / "c.json").write_text("{}")
    done = run("verify", tmp_path / "c.json", "--margin")
    assert done.code == 2 and "margin is for networks" in done.err


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(12))
def test_no_array_has_a_smaller_margin(seed: int) -> None:
    """Random networks at every position of all arrays of six letters: none is below what is certified, and the least one is found."""
    rng = np.random.default_rng(seed)
    target, outputs = lf.adaptive([-1, 0, 1], {"m1": [1, 2, 1]}), (1, 3)[seed % 2]
    window, layers, dtype = rng.choice(["finite", "infinite"]), int(rng.integers(1, 3)), str(rng.choice(["float32", "float64"]))
    network = random_network(rng, ["table"] * 2, "dp", window, layers=layers, dim=1, reach=3, outputs=outputs, dtype=dtype)
    found, decision = margins.certified_margin(network, target), decision_of(target, outputs)
    tokens, least = everything(target, 6), np.inf
    for t in range(target.settled, 6):
        answers = execute(network, tokens)[:, t].astype(np.float64).reshape(len(tokens), -1)
        margin = decision.margins_below(answers, np.zeros_like(answers), decision.values.indices(tokens[:, : t + 1]))
        least = min(least, float(margin.min()))
    assert found.certified <= least <= found.witness + 1e-4 and found.witness - found.certified < 1e-3
    assert found.verdict == ("refuted" if least <= 0 else "right")


@pytest.mark.deep
def test_an_error_without_its_roundings_proves_no_decision() -> None:
    """3·relu(u − c) and relu(3u − 3c) are equal, but 2^26 times their difference is not 0 in float32, where chance hardly gets."""
    near, size = 1 - 2.0**-7, 2.0**26
    nothing = np.zeros((1, 0, 2))
    attention = Attention(
        np.array([0.3]), np.array([[[1.0, 0.0]]]), np.array([[[0.0], [1.0]]]), nothing, nothing, np.zeros((0, 2)),
        ("lin",), "dp-free", "finite",
    )  # fmt: skip
    inner, bias = np.array([[1.0, 0], [-1, 0], [0, 3], [0, 1]]), np.array([0, 0, -3 * near, -near])
    ffn = FeedForward(inner, bias, np.array([[1, -1, size, -3 * size]]))
    weights = Transformer(np.array([[1.0], [0.0]]), np.zeros(2), (Layer(attention, ffn),))
    network, target = weights.map(lambda array: np.asarray(array, "float32")), FixedMemory((1,), 1, "x0 + 0*m1", (-1, 1))
    tokens = np.random.default_rng(0).choice([-1.0, 1.0], size=(512, 32, 1))
    tokens[:, -20:] = 1
    assert execute(network, tokens)[:, -1].min() < 0  # where 1 is right
    certificate = verify_learnt(network, target, length=32)
    found = with_margin(network, target, certificate, 32).margin
    assert certificate.certified < 0.1 and found is not None and found.verdict != "right"
    assert certificate.as_dict()["rounding"] is None and "rounding not counted" in certificate.advice
