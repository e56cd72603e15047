"""Language models of characters: sizes that agree, losses that are losses, and texts that are refused."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from analyzer.errors import InputError
from constructions.training import trainable as learning
from verify.experiments import we_lm
from verify.experiments.corpus import Corpus, read_corpus

LENGTH = 8


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Random syllables: the second letter of a pair is known from the first."""
    rng = np.random.default_rng(0)
    path = tmp_path / "text.txt"
    path.write_text("".join(rng.choice(["ba", "du", "ke", "lo"], 400)), encoding="utf-8")
    return path


def test_the_last_tenth_is_held_out(text: Path) -> None:
    corpus = read_corpus(text, LENGTH)
    assert corpus.alphabet == tuple(sorted("badukelo"))
    whole = "".join(corpus.alphabet[k] for k in (*corpus.train, *corpus.test))
    assert whole == text.read_text(encoding="utf-8")
    assert len(corpus.test) == 80
    assert corpus.entropy == pytest.approx(math.log(8), abs=0.05)  # eight letters, equally often


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "characters"),
        (b"ab" * 20, "at least"),
        (b"a" * 5000, "different characters"),
        ("äö".encode("latin-1") * 5000, "UTF-8"),
        ("".join(map(chr, range(0x4E00, 0x5600))).encode(), "different characters"),
    ],
)
def test_texts_that_are_refused(content: bytes, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(content)
    with pytest.raises(InputError, match=complaint):
        read_corpus(tmp_path / "text", LENGTH)


def test_sizes_agree_and_counts_are_those_of_the_networks() -> None:
    for letters in (2, 60, 200):
        found = {model.name: model for model in we_lm.models(letters)}
        deep, wide = found["deeper"], found["more heads"]
        assert abs(wide.count / deep.count - 1) <= we_lm.AGREE
        assert wide.shape.heads > deep.shape.heads and wide.shape.layers == 1 < deep.shape.layers
        for name in ("small", "deeper"):
            free, full = found[f"{name}, dp-free"].shape, found[name].shape
            assert replace(free, attention="dp") == full
            scores = 2 * full.layers * full.heads * full.key_dim * full.model_dim
            assert found[name].count - found[f"{name}, dp-free"].count == scores


@pytest.mark.deep
def test_the_loss_is_that_of_the_network_and_reads_the_past_only() -> None:
    shape = replace(we_lm.SMALL, layers=2)
    network = we_lm.language_model(shape, 5, 0, LENGTH)
    batch = np.random.default_rng(1).integers(0, 5, (3, LENGTH + 1))
    outputs = jax.jit(learning.outputs)
    logits = np.asarray(outputs(network, jnp.asarray(np.eye(5, dtype=np.float32)[batch[:, :-1]])))
    odds = logits - np.log(np.exp(logits.astype(np.float64)).sum(-1, keepdims=True))
    wanted = -np.take_along_axis(odds, batch[:, 1:, None], -1).mean()
    weights = learning.to_parameters(network.map(jnp.asarray))
    assert float(jax.jit(we_lm.loss)(weights, jnp.asarray(batch))) == pytest.approx(wanted, rel=1e-5)
    changed = np.eye(5, dtype=np.float32)[batch[:, :-1]].copy()
    changed[:, -1] = np.roll(changed[:, -1], 1, axis=-1)
    again = np.asarray(outputs(network, jnp.asarray(changed)))
    assert np.array_equal(again[:, :-1], logits[:, :-1]) and not np.allclose(again[:, -1], logits[:, -1])


@pytest.mark.deep
def test_what_is_predictable_is_learnt_and_runs_repeat(text: Path) -> None:
    corpus = read_corpus(text, LENGTH)
    small = replace(we_lm.SMALL, heads=2, width=16, model_dim=12, key_dim=2, value_dim=4)
    model = we_lm.Model("small", small, we_lm.parameters(small, len(corpus.alphabet)))
    first, again = (we_lm.train(model, corpus, LENGTH, 200, 1)[0] for _ in range(2))
    assert first == again
    # every other character is one of four, the others are known: log(4)/2 nats
    assert 0.9 * math.log(4) / 2 < first < 0.75 * corpus.entropy


def _rows(**losses: list[float]) -> list[dict[str, Any]]:
    names = {"small": "small", "deeper": "deeper", "wide": "more heads", "free": "small, dp-free", "deep_free": "deeper, dp-free"}
    return [{"name": names[key], "losses": value, "parameters": 1000} for key, value in losses.items()]


def test_findings_follow_the_numbers() -> None:
    rows = _rows(small=[2.0, 2.1], deeper=[1.5, 1.6], wide=[1.9, 2.0], free=[2.1, 2.2], deep_free=[1.9, 2.0])
    gains = we_lm.compare(rows)
    assert gains["depth"]["mean"] == pytest.approx(0.5) and gains["heads"]["mean"] == pytest.approx(0.1)
    said = we_lm.findings(gains, rows)
    assert "more, as in print" in said[0] and all("as in print" in line for line in said[1:3]) and "larger in" in said[3]
    rows = _rows(small=[2.0, 2.1], deeper=[1.9, 2.0], wide=[1.5, 1.6], free=[1.9, 2.0], deep_free=[1.5, 1.6])
    said = we_lm.findings(we_lm.compare(rows), rows)
    assert "not clearly more, unlike" in said[0] and all("unlike print" in line for line in said[1:3]) and "not larger" in said[3]


def test_the_command(run: Any, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All but the training, which has its own test."""
    monkeypatch.setattr(we_lm, "train", lambda model, *_: [3.0 - 1e-5 * model.count] * 2)
    arguments = ("experiment", "we-lm", "--text", text, "--length", LENGTH, "--steps", 20, "--seeds", 2)
    done = run(*arguments, "--json")
    assert done.code == 0, done.err
    assert [row["name"] for row in done.json["rows"]] == ["small", "deeper", "more heads", "small, dp-free", "deeper, dp-free"]
    shown = run(*arguments)
    assert shown.code == 0
    for row in done.json["rows"]:
        assert f"{3.0 - 1e-5 * row['parameters']:.4f}" in shown.out and str(row["parameters"]) in shown.out
    assert all(finding in shown.out for finding in done.json["findings"])


def test_random_windows_stay_inside_the_text() -> None:
    corpus = Corpus(("a", "b"), np.arange(30, dtype=np.int32), np.arange(3, dtype=np.int32), 0.0)
    seen = np.concatenate([np.asarray(we_lm.draw(jnp.asarray(corpus.train), 10, jax.random.key(k))) for k in range(40)])
    assert (np.diff(seen, axis=1) == 1).all() and seen.min() == 0 and seen.max() == 29
