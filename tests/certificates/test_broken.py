"""One changed weight: every array of a network can be broken, and the verifier notices, or the claims still hold."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import fmpq

from analyzer.errors import InputError, Refusal
from analyzer.numbers.exact import rational
from analyzer.statements.registry import THEOREMS
from analyzer.targets.files import target_from_dict
from analyzer.targets.fixed import FixedMemory
from analyzer.toml import read_toml
from constructions.files.broken import OF_HEADS, Change, breakable, broken
from constructions.files.bundle import Bundle, arrays_of, load
from constructions.files.card import read_files
from constructions.network.transformer import Transformer
from constructions.run.execute import run as evaluate
from constructions.theorems import shift_chain, thm_3_1, thm_4_4
from constructions.theorems.construction import Construction
from tests.conftest import random_network
from verify.bundles.broken import compare_chains, write_broken
from verify.bundles.claims import CLAIM_TOLERANCE, card_of, verify_bundle
from verify.chain.certificate import Certificate, Verdict

PAIR = Path(__file__).parent.parent.parent / "examples" / "pair.toml"
LARGE = FixedMemory((2, 5), 1, "x0 + m1*m2")


def bundle_of(built: Construction, theorem: str) -> Bundle:
    """A network with the card that its build writes."""
    certificate = THEOREMS[theorem].verified_by()(built.network, built.target, built.bank, built.ffn)
    return Bundle(built.network, card_of(built, certificate))


@pytest.fixture(scope="module")
def large() -> Bundle:
    """The network of the README: five heads, exact, weights of order 1e15 that cancel."""
    return bundle_of(thm_3_1.build(LARGE, error=1e-2), "thm-3.1")


@pytest.fixture(scope="module")
def single() -> Bundle:
    return bundle_of(thm_3_1.build(FixedMemory((1, 2)), error=0.3, dtype="float32"), "thm-3.1")


@pytest.fixture(scope="module")
def adaptive() -> Bundle:
    return bundle_of(thm_4_4.build(target_from_dict(read_toml(PAIR), "pair.toml"), attention="tmx"), "thm-4.4")


@pytest.fixture(scope="module")
def chain() -> Bundle:
    return bundle_of(shift_chain.build(FixedMemory((4,)), depth=2, error=0.2, dtype="exact"), "shift-chain")


def smallest(network: Transformer, weight: str, by: float) -> tuple[Transformer, Change]:
    """Broken by this share, or by the least that the network's type can tell."""
    try:
        return broken(network, weight, by=by)
    except Refusal as refusal:
        share = refusal.remedies[0]["by"]
        assert isinstance(share, float)
        return broken(network, weight, by=share)


def judged(bundle: Bundle, changed: Transformer) -> Certificate:
    """What is said of the changed network; unless it is violated, its claims hold, for the verifier and for somebody who only looks."""
    before, after = compare_chains(bundle, changed)
    assert before.verdict is Verdict.HOLDS and not before.faults
    if after.verdict is Verdict.VIOLATED:
        assert after.advice
        return after
    claims, slack = bundle.card["chain"], 1 + CLAIM_TOLERANCE
    assert after.witness <= after.certified <= after.bound
    assert after.certified <= claims["certified"] * slack and after.bound <= claims["bound"] * slack
    return after


def seen_error(network: Transformer, lags: tuple[int, ...]) -> float:
    """The error of the sum of memories on random sequences, from outputs alone."""
    tokens = np.random.default_rng(0).uniform(-1, 1, (50, 40, 1))
    tokens = np.concatenate([tokens, np.sign(tokens)])
    wanted = sum(tokens[:, -1 - lag, 0] for lag in lags)
    return float(np.abs(evaluate(network, tokens)[:, -1] - wanted).max())


ARRAYS = ["embedding", "decay", "value", "output", "inner", "outer"]


@pytest.mark.parametrize("weight", [*ARRAYS, "inner-bias"])
@pytest.mark.parametrize("by", [1e-12, -1e-12, 1e-3])
def test_every_array_of_an_exact_network(large: Bundle, weight: str, by: float) -> None:
    assert breakable(large.network) == ["embedding", "decay", "value", "output", "inner", "inner-bias", "outer"]
    changed, change = broken(large.network, weight, by=by)
    assert change.after == change.before * (1 + rational(by))
    after = judged(large, changed)
    if by > 0:
        assert after.verdict is Verdict.VIOLATED


def test_the_example_of_the_documentation(large: Bundle, tmp_path: Path) -> None:
    """break --weight output --head 2 --by 1e-12: a right hash, and `verify` says violated and why."""
    changed, change = broken(large.network, "output", head=2, by=1e-12)
    assert (change.weight, change.layer, change.head) == ("output", 1, 2) and abs(change.before) > 10**15
    write_broken(tmp_path / "net2", large, changed)
    found = load(read_files(tmp_path / "net2"))
    assert found.card["chain"] == large.card["chain"] and found.card["target"] == large.card["target"]
    assert "@" in (tmp_path / "net2" / "citation.bib").read_text()
    certificate = verify_bundle(found)
    assert certificate.verdict is Verdict.VIOLATED and "the card claims certified 0.0095" in certificate.advice
    assert certificate.certified > 1e6
    before, after = compare_chains(large, changed)
    assert (before.verdict, after.certified) == (Verdict.HOLDS, certificate.certified)
    with pytest.raises(InputError, match="exists"):
        write_broken(tmp_path / "net2", large, changed)
    write_broken(tmp_path / "net2", large, large.network, overwrite=True)
    assert verify_bundle(load(read_files(tmp_path / "net2"))).verdict is Verdict.HOLDS


@pytest.mark.parametrize("weight", ARRAYS)
@pytest.mark.parametrize("by", [1e-12, -1e-12, 1e-3])
def test_every_array_of_a_float_network(single: Bundle, weight: str, by: float) -> None:
    assert breakable(single.network) == ARRAYS
    changed, change = smallest(single.network, weight, by)
    assert (change.after > change.before) == ((by > 0) == (change.before > 0)) and change.after != change.before
    after = judged(single, changed)
    if abs(by) == 1e-3:
        assert after.verdict is Verdict.VIOLATED
    if after.verdict is not Verdict.VIOLATED:
        assert seen_error(changed, (1, 2)) <= single.card["chain"]["certified"] * (1 + CLAIM_TOLERANCE)


@pytest.mark.parametrize("weight", [*ARRAYS, "pointer", "inner-bias"])
def test_every_array_of_an_adaptive_network(adaptive: Bundle, weight: str) -> None:
    """Lags are rounded to whole numbers, so errors of the feed-forward networks that write them are forgiven; nothing else is."""
    assert set(breakable(adaptive.network)) == {*ARRAYS, "pointer", "inner-bias"}
    after = judged(adaptive, broken(adaptive.network, weight, by=1e-12)[0])
    assert after.verdict is Verdict.VIOLATED or weight in ("inner", "outer")


@pytest.mark.parametrize("weight", ARRAYS)
def test_weights_that_are_no_chain_of_shifts_any_more_are_violated(chain: Bundle, weight: str) -> None:
    after = judged(chain, broken(chain.network, weight, by=1e-3, layer=None if weight == "embedding" else 1)[0])
    assert after.verdict is Verdict.VIOLATED
    if weight in ("value", "inner", "outer"):
        assert "chain of shifts" in after.advice


@pytest.mark.parametrize("kind", ["dp-free", "dp", "nf", "tmx"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_entry_changes_and_nothing_else(kind: str, dtype: str) -> None:
    network = random_network(np.random.default_rng(0), ["lin", "log"], kind, layers=2, width=4, dtype=dtype)
    names = breakable(network)
    assert ("query" in names) == ("key" in names) == (kind in ("dp", "nf")) and ("pointer" in names) == (kind == "tmx")
    for weight in names:
        changed, change = broken(network, weight, by=0.25)
        old, new = arrays_of(network), arrays_of(changed)
        differing = [(name, place) for name in old for place, same in np.ndenumerate(old[name] == new[name]) if not same]
        ((name, place),) = differing
        counted = tuple(i + 1 for i in place)
        assert counted == ((change.head, *change.index) if weight in OF_HEADS else change.index)
        assert (change.head is None) == (weight not in OF_HEADS)
        assert name.startswith(f"layers.{change.layer - 1}." if change.layer else ("embedding", "bias"))
        last = ".".join(name.split(".")[2:])
        peers = [old[name]] if change.layer is None else [old[f"layers.{index}.{last}"] for index in range(2)]
        assert abs(old[name][place]) == max(abs(array).max() for array in peers)
        assert change.before == rational(float(old[name][place])) and change.after == rational(float(new[name][place]))
        assert change.relative == pytest.approx(0.25, rel=1e-6)
        again, same = broken(network, weight, by=0.25, layer=change.layer, head=change.head, index=change.index)
        assert same == change and (arrays_of(again)[name] == new[name]).all()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sign", [1, -1])
def test_the_least_change_is_one_unit_in_the_last_place(dtype: str, sign: int) -> None:
    network = random_network(np.random.default_rng(1), ["lin"], "dp-free", dtype=dtype)
    for weight in breakable(network):
        with pytest.raises(Refusal, match=f"the same number in {dtype}") as refused:
            broken(network, weight, by=sign * 1e-18)
        (remedy,) = refused.value.remedies
        least = remedy["by"]
        assert isinstance(least, float) and least * sign > 0
        _, change = broken(network, weight, by=least)
        before = np.dtype(dtype).type(float(change.before.p) / float(change.before.q))
        assert rational(float(np.nextafter(before, before * (1 + sign)))) == change.after
        with pytest.raises(Refusal):
            broken(network, weight, by=0.95 * least)


def test_changes_describe_themselves(large: Bundle) -> None:
    _, change = broken(large.network, "decay", head=2, by=fmpq(1, 4))
    assert str(change) == "decay, layer 1, head 2: 7.47333 changed by 0.25 of itself"
    assert str(broken(large.network, "embedding", by=-0.5)[1]).startswith("embedding, entry (3, 1): ")
    plain = change.as_dict()
    assert plain["head"] == 2 and plain["index"] == [] and plain["relative"] == 0.25 and plain["from"] != plain["to"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"weight": "outputs"}, "this network has embedding, decay, value, output, inner, inner-bias, outer"),
        ({"weight": "query"}, "this network has embedding, decay"),
        ({"weight": "bias"}, "this network has embedding, decay"),
        ({"weight": "output", "layer": 0}, "layers count from 1, and this network has 1"),
        ({"weight": "output", "layer": 2}, "layers count from 1, and this network has 1"),
        ({"weight": "output", "head": 0}, "heads count from 1, and there are 5"),
        ({"weight": "output", "head": 6}, "heads count from 1, and there are 5"),
        ({"weight": "embedding", "layer": 1}, "leave layer out"),
        ({"weight": "outer", "head": 1}, "leave head out"),
        ({"weight": "output", "index": (0, 0)}, "entries count from 1"),
        ({"weight": "output", "index": (1,)}, "entries count from 1"),
        ({"weight": "output", "index": (1, 1)}, "stays 0"),
        ({"weight": "output", "by": 0.0}, "it is not 0"),
        ({"weight": "output", "by": float("nan")}, "not a finite number"),
        ({"weight": "output", "by": fmpq(1, 3**4000)}, "absurdly long"),
        ({"weight": "decay", "by": -1.0}, "needs a decay between"),
        ({"weight": "decay", "by": -2.0}, "needs a decay between"),
    ],
)
def test_what_cannot_be_broken_is_refused_by_name(large: Bundle, arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        broken(large.network, **({"by": 0.5} | arguments))


def test_floats_that_overflow_are_refused(single: Bundle) -> None:
    with pytest.raises(InputError, match="beyond float32"):
        broken(single.network, "output", by=1e38)
