"""Bundles: round trip, atomic writing, and sabotage that must be caught."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import fmpq

from analyzer.errors import InputError
from analyzer.targets.fixed import FixedMemory
from constructions.files import bundle
from constructions.files.bundle import load, write
from constructions.files.card import read_files
from constructions.network.transformer import Transformer
from constructions.run.execute import run as evaluate
from verify.bundles.claims import verify_bundle
from verify.chain.certificate import Verdict


@pytest.fixture(params=["exact", "float32"])
def stored(request: pytest.FixtureRequest, run: Callable[..., Any], tmp_path: Path) -> Path:
    path = tmp_path / "bundle"
    error = "1e-2" if request.param == "exact" else "0.3"
    lags = "2,5" if request.param == "exact" else "1,2"
    result = run("build", "fixed", "--lags", lags, "--error", error, "--dtype", request.param, "--out", path)
    assert result.code == 0, result.err
    return path


def rewrite(path: Path, change_network: Callable[[Transformer], Transformer], change_card: Callable[[dict[str, Any]], None]) -> None:
    """Tamper and write again with a fresh integrity hash: only the mathematics can notice."""
    found = load(read_files(path))
    card = {k: v for k, v in found.card.items() if k not in ("integrity", "format", "version", "dtype", "structure")}
    change_card(card)
    write(path, change_network(found.network), card, "", overwrite=True)


def keep(value: Any) -> Any:
    return value


def test_round_trip(stored: Path, run: Callable[..., Any]) -> None:
    found = load(read_files(stored))
    certificate = verify_bundle(found)
    assert certificate.verdict is Verdict.HOLDS
    assert found.card["chain"]["certified"] == certificate.certified
    assert run("verify", stored).code == 0
    assert {p.name for p in stored.iterdir()} == {
        "card.json", "citation.bib", "exact.json" if found.network.dtype == "exact" else "weights.safetensors",
    }  # fmt: skip
    tokens = np.random.default_rng(0).uniform(-1, 1, (20, 1))
    assert evaluate(found.network, tokens).shape == (20,)


@pytest.mark.parametrize("array", ["output", "embedding", "decay", "outer", "inner"])
def test_a_weight_changed_by_one_per_cent_is_caught(stored: Path, run: Callable[..., Any], array: str) -> None:
    def change(network: Transformer) -> Transformer:
        layer = network.layers[0]
        places = {
            "output": layer.attention.output, "embedding": network.embedding, "decay": layer.attention.decay,
            "outer": layer.feedforward.outer, "inner": layer.feedforward.inner,
        }  # fmt: skip
        weights = places[array]
        index = next(i for i, v in reversed(list(np.ndenumerate(weights))) if v != 0)
        weights[index] = weights[index] * (fmpq(101, 100) if network.dtype == "exact" else np.float32(1.01))
        return network

    rewrite(stored, change, keep)
    result = run("verify", stored, "--json")
    assert result.code == 1 and result.json["verdict"] == "violated"


def test_a_halved_bound_is_caught(stored: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    from analyzer.theorems import base

    promised = base.extraction_budget
    monkeypatch.setattr(base, "extraction_budget", lambda *arguments: promised(*arguments) / 2)
    result = run("verify", stored, "--json")
    assert result.code == 1 and result.json["verdict"] == "violated"


@pytest.mark.parametrize("claim", ["certified", "bound"])
def test_a_card_that_claims_less_is_caught(stored: Path, run: Callable[..., Any], claim: str) -> None:
    def change(card: dict[str, Any]) -> None:
        card["chain"][claim] /= 2

    rewrite(stored, keep, change)
    result = run("verify", stored, "--json")
    assert result.code == 1 and result.json["verdict"] == "violated" and "the card claims" in result.json["advice"]


@pytest.mark.parametrize("name,value", [("witness", 99.0), ("verdict", "maybe"), ("certified", True), ("bound", None), ("bound", 10**400)])
def test_other_false_claims_are_caught(stored: Path, run: Callable[..., Any], name: str, value: object) -> None:
    rewrite(stored, keep, lambda card: card["chain"].update({name: value}))
    assert run("verify", stored).code == 1


def test_a_card_with_half_a_character_is_damaged(stored: Path, run: Callable[..., Any]) -> None:
    card = stored / "card.json"
    card.write_text(card.read_text().replace('"chain"', '"note": "\\ud800", "chain"', 1))
    result = run("verify", stored)
    assert result.code == 2 and "integrity" in result.err


def test_a_card_that_claims_other_sizes_or_targets_is_caught(stored: Path, run: Callable[..., Any]) -> None:
    rewrite(stored, keep, lambda card: card["sizes"].update(heads=1))
    assert run("verify", stored).code == 1
    rewrite(stored, keep, lambda card: card["target"].update(lags=[1, 3]))
    assert run("verify", stored).code == 1


def test_every_flipped_byte_is_caught(stored: Path, run: Callable[..., Any]) -> None:
    rng = np.random.default_rng(0)
    for file in sorted(stored.iterdir()):
        original = file.read_bytes()
        for position in rng.integers(0, len(original), 12):
            damaged = bytearray(original)
            damaged[position] ^= 1 << int(rng.integers(0, 7))
            file.write_bytes(bytes(damaged))
            try:
                same = json.loads(damaged) == json.loads(original) if file.name == "card.json" else False
            except ValueError:
                same = False
            if not same:  # white space between the card's entries carries nothing
                with pytest.raises(InputError):
                    load(read_files(stored))
        file.write_bytes(original)
    load(read_files(stored))


@pytest.mark.parametrize("name", ["card.json", "citation.bib", "weights"])
def test_truncated_and_missing_files(stored: Path, run: Callable[..., Any], name: str) -> None:
    file = next(p for p in stored.iterdir() if p.name == name or (name == "weights" and p.name.startswith(("weights", "exact"))))
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    result = run("verify", stored)
    assert result.code == 2 and result.err.count("\n") == 1 and result.out == ""
    file.unlink()
    result = run("verify", stored)
    assert result.code == 2 and result.err.count("\n") == 1


def _with(card_change: Callable[[dict[str, Any]], None] = keep, network_change: Callable[[Any], Any] = keep) -> tuple[Any, Any]:
    return network_change, card_change


def _reshape(network: Transformer) -> Transformer:
    from dataclasses import replace

    return replace(network, bias=network.bias[:-1])


def _nan(network: Transformer) -> Transformer:
    if network.dtype == "exact":
        network.layers[0].attention.decay[0] = fmpq(-1)
    else:
        network.embedding[0, 0] = np.nan
    return network


@pytest.mark.parametrize(
    "changes",
    [
        _with(network_change=_reshape),
        _with(network_change=_nan),
        _with(card_change=lambda card: card.update(theorem="thm-9.9")),
        _with(card_change=lambda card: card.update(bank="gold")),
        _with(card_change=lambda card: card.update(target={"kind": "fixed", "lags": [0]})),
        _with(card_change=lambda card: card.pop("target")),
        _with(card_change=lambda card: card["target"].update(lags=[1])),
    ],
)
def test_networks_that_are_none(stored: Path, run: Callable[..., Any], changes: tuple[Any, Any]) -> None:
    rewrite(stored, *changes)
    result = run("verify", stored)
    assert result.code == 2 and result.err.count("\n") == 1, result


def test_other_versions_are_refused(stored: Path, run: Callable[..., Any]) -> None:
    card = json.loads((stored / "card.json").read_text())
    (stored / "card.json").write_text(json.dumps({**card, "version": 99}))
    assert "version 99" in run("verify", stored).err


def test_writing_is_atomic(tmp_path: Path, run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure while writing leaves the old bundle as it was, and no litter."""
    path = tmp_path / "bundle"
    assert run("build", "fixed", "--lags", "1", "--out", path).code == 0
    before = {p.name: p.read_bytes() for p in path.iterdir()}
    from constructions.files import card

    real = card.os.rename

    def failing(source: Any, destination: Any) -> None:
        if str(source).endswith("new"):
            raise OSError(28, "No space left on device")
        real(source, destination)

    monkeypatch.setattr(card.os, "rename", failing)
    result = run("build", "fixed", "--lags", "2", "--out", path, "--force")
    assert result.code == 2 and "No space left" in result.err
    assert {p.name: p.read_bytes() for p in path.iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["bundle"]


def test_replacing_a_bundle_and_refusing_a_stranger(tmp_path: Path, run: Callable[..., Any]) -> None:
    path = tmp_path / "bundle"
    for lags in ("1", "3"):
        assert run("build", "fixed", "--lags", lags, "--out", path, "--force").code == 0
    assert json.loads((path / "card.json").read_text())["target"]["lags"] == [3]
    stranger = tmp_path / "stranger"
    stranger.mkdir()
    (stranger / "thesis.tex").write_text("years of work")
    result = run("build", "fixed", "--lags", "1", "--out", stranger, "--force")
    assert result.code == 2 and [p.name for p in stranger.iterdir()] == ["thesis.tex"]


def test_exact_numbers_survive(tmp_path: Path) -> None:
    from constructions.theorems.thm_3_1 import build

    network = build(FixedMemory((5,)), rpe="log", error=1e-9).network
    write(tmp_path / "b", network, {"theorem": "thm-3.1"}, "")
    again = load(read_files(tmp_path / "b")).network
    for name, array in bundle.arrays_of(network).items():
        assert (bundle.arrays_of(again)[name] == array).all()
