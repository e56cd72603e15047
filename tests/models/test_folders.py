"""Folders of models: what is read of good ones, and one line for the others. Nothing in them is run."""

import json
import math
import os
import resource
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import lemmaformer as lf
from constructions.files.models import slopes
from constructions.files.models.families import read_model
from tests.models import folders

Run = Callable[..., Any]


def test_bloom_from_the_command_line(run: Run, tmp_path: Path) -> None:
    """Slopes of six heads: those of four, and the first and the third of eight; by position alone they resolve nothing."""
    folder = folders.bloom(tmp_path / "bloom")
    found = run("limits", "slopes", "--model", folder, "--lags", 2, "--figure", tmp_path / "f.png", "--json").json
    (group,) = found["groups"]
    assert (found["family"], found["layers"], found["heads"]) == ("bloom", 2, 6)
    assert group["layers"] == [0, 1] and group["decays"] == [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3]
    assert found["resolved"] == [] and all(row["lower"] > 0.99 for row in group["rows"])
    assert "position part" in found["certified"] and (tmp_path / "f.png").stat().st_size > 1000
    shown = run("limits", "slopes", "--model", folder, "--lags", 1)
    assert shown.code == 0 and "not certified: that a trained model uses it" in shown.out


def test_slopes_of_a_model_are_the_slopes_given_by_hand(tmp_path: Path) -> None:
    model = lf.limits.slopes(model=folders.bloom(tmp_path / "bloom"), longest=1)
    given = lf.limits.slopes("0.25,0.0625,0.015625,0.00390625,0.5,0.125", longest=1)
    ours, theirs = model.data["groups"][0]["rows"][0], given.data["rows"][0]  # type: ignore[index]
    assert ours["lower"] == theirs["lower"] and ours["upper"] == theirs["upper"]
    assert "bloom" in repr(model) and "</pre>" in (model._repr_html_() or "")


def test_spectrum_of_a_model(run: Run, tmp_path: Path) -> None:
    """The singular values are those of the model's logit matrix, with its 1/√d_k and its biases, head by head."""
    folder = folders.bloom(tmp_path / "bloom")
    tokens = np.random.default_rng(5).normal(size=(9, folders.WIDTH))
    np.save(tmp_path / "x.npy", tokens)
    found = run("spectrum", folder, "--input", tmp_path / "x.npy", "--figure", tmp_path / "f.png", "--json").json
    assert len(found["heads"]) == 12 and found["activations"] == "given" and (tmp_path / "f.png").exists()
    arrays = {name: array.astype(float) for name, array in folders.bloom_arrays().items()}
    for head in found["heads"]:
        stem = f"transformer.h.{head['layer']}.self_attention.query_key_value"
        rows = (tokens @ arrays[f"{stem}.weight"].T + arrays[f"{stem}.bias"]).reshape(9, folders.HEADS, 3, 2)[:, head["head"]]
        logits = rows[:, 0] @ rows[:, 1].T / math.sqrt(2) / 9
        np.testing.assert_allclose(head["singular_values"], np.linalg.svd(logits, compute_uv=False)[:2], rtol=1e-12)


def test_random_activations_are_said_to_be_random(run: Run, tmp_path: Path) -> None:
    folder = folders.bloom(tmp_path / "bloom")
    one, again, other = (run("spectrum", folder, "--layer", 1, "--tokens", 7, "--seed", seed, "--json").json for seed in (3, 3, 4))
    assert one == again and one["heads"] != other["heads"] and one["activations"] == "random" and one["tokens"] == 7
    assert "random activations (Gaussian, seed 3), not certified" in one["note"] and {head["layer"] for head in one["heads"]} == {1}
    assert json.loads(json.dumps(lf.spectrum(folder, layer=1, tokens=7, seed=3).data)) == one


@pytest.mark.parametrize("prefix", ["", "transformer.", "model."])
def test_prefixes(prefix: str, tmp_path: Path) -> None:
    plain, other = folders.bloom(tmp_path / "a"), folders.bloom(tmp_path / "b", prefix)
    for ours, theirs in zip(read_model(plain).logits(None), read_model(other).logits(None), strict=True):
        np.testing.assert_array_equal(ours.scores.query, theirs.scores.query)
        np.testing.assert_array_equal(ours.scores.key_bias, theirs.scores.key_bias)


def test_shards_are_one_model(tmp_path: Path) -> None:
    whole, parts = read_model(folders.bloom(tmp_path / "a")), read_model(folders.sharded(tmp_path / "b"))
    for ours, theirs in zip(whole.logits(None), parts.logits(None), strict=True):
        np.testing.assert_array_equal(ours.scores.key, theirs.scores.key)


def test_retnet(tmp_path: Path) -> None:
    """The published decays, another formula for language models, and stored ones, which win."""
    (part,) = read_model(folders.retnet(tmp_path / "a")).positions
    np.testing.assert_allclose(np.exp(-np.array(part.decays)), [1 - 2**-5, 1 - 2**-6, 1 - 2**-7], rtol=1e-15)
    (part,) = read_model(folders.retnet(tmp_path / "b", prefix="decoder.", use_lm_decay=True)).positions
    np.testing.assert_allclose(1 - np.exp(-np.array(part.decays)), [1 / 32, 1 / 128, 1 / 512], rtol=1e-13)
    model = read_model(folders.retnet(tmp_path / "c", stored=True))
    np.testing.assert_allclose(np.exp(-np.array(model.positions[0].decays)), [0.25, 0.5, 0.75], rtol=1e-7)
    assert [logits.scale for logits in model.logits(None)] == [1 / 2, 1 / 2] and "before the rotation" in model.logit_remarks[0]


def test_rwkv_has_decays_and_no_logits(run: Run, tmp_path: Path) -> None:
    """Two layers apart; a channel with e^{−9} sees the token before on its own, slow ones do not."""
    folder = folders.rwkv(tmp_path / "rwkv", np.log([[9.0, 0.01], [0.02, 0.01]]))
    found = run("limits", "slopes", "--model", folder, "--lags", 2, "--json").json
    first, second = found["groups"]
    assert first["resolved"] == [1] and first["alone"] == {"1": [0]} and second["resolved"] == [] == list(second["alone"])
    refused = run("spectrum", folder)
    assert refused.code == 2 and "no logits" in refused.err and refused.err.count("\n") == 1


def test_t5_heads_that_look_at_one_lag(run: Run, tmp_path: Path) -> None:
    """A bias of 40 at bucket 3 resolves lag 3 alone; lags 16 and 17 share a bucket, whatever the bias there."""
    biases = np.zeros((32, 2))
    biases[3, 0] = biases[16, 1] = 40
    found = run("limits", "slopes", "--model", folders.t5(tmp_path / "t5", biases), "--lags", 18, "--window", 64, "--json").json
    (group,) = found["groups"]
    assert found["resolved"] == [3] and group["alone"] == {"3": [0]} and group["layers"] == [0, 1] and found["window"] == 64
    assert group["rows"][2]["lower"] >= 2**-24 * 0.999 and group["rows"][2]["upper"] < 1e-7
    assert all(row["lower"] == 1 for row in group["rows"][15:])


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 16, 24])
def test_published_slopes_are_those_of_the_paper(heads: int) -> None:
    """BLOOM's are those of `limits slopes alibi:N`, MPT's the same as a set for powers of two, up to rounding of float32."""
    from verify.limits.pairs import slopes_of

    paper = [float(p.p) / float(p.q) for _, p in slopes_of(f"alibi:{heads}", "lin")]
    np.testing.assert_allclose(slopes.alibi(heads), paper, rtol=heads * 2**-23)
    assert len(slopes.mpt(heads, 8)) == heads == len(set(slopes.mpt(heads, 8)))
    if heads & (heads - 1) == 0:
        np.testing.assert_allclose(slopes.mpt(heads, 8), paper, rtol=2**-22)
    assert all(p == float(np.float32(p)) for p in slopes.minimax(heads, 1, 4))


def _header(folder: Path, header: bytes, size: int | None = None, rest: bytes = b"") -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header) if size is None else size) + header + rest)


def _cut(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-8])


def _config(folder: Path, **changes: Any) -> None:
    (folder / "config.json").write_text(json.dumps(folders.bloom_config(**changes)))


def _text(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)


def _swap(folder: Path, name: str, array: np.ndarray | None) -> None:
    arrays = folders.bloom_arrays() | ({} if array is None else {name: array})
    if array is None:
        del arrays[name]
    save_file(arrays, folder / "model.safetensors")


def _index(folder: Path, content: Any) -> None:
    (folder / "model.safetensors.index.json").write_text(content if isinstance(content, str) else json.dumps(content))


def _pickled(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


def _folder_for_config(folder: Path) -> None:
    (folder / "config.json").unlink()
    (folder / "config.json").mkdir()


def _pipe_for_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder / "model.safetensors")


FUSED = "transformer.h.1.self_attention.query_key_value.weight"
BEYOND = json.dumps({FUSED: {"dtype": "F32", "shape": [36, 12], "data_offsets": [0, 10**12]}}).encode()

BAD: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no configuration": (lambda f: (f / "config.json").unlink(), "config.json is not there"),
    "a folder for a configuration": (_folder_for_config, "config.json is not there, or is no file"),
    "no JSON": (lambda f: _text(f, "{"), "is not valid JSON"),
    "a list": (lambda f: _text(f, "[]"), "no JSON object"),
    "no UTF-8": (lambda f: (f / "config.json").write_bytes(b'{"a": "\xff"}'), "is not valid JSON"),
    "deep": (lambda f: _text(f, '{"model_type": ' + "[" * 200_000 + "]" * 200_000 + "}"), "nested too deeply"),
    "vast": (lambda f: _text(f, '{"a": "' + "b" * (1 << 20) + '"}'), "larger than"),
    "long number": (lambda f: _text(f, '{"model_type": "bloom", "hidden_size": ' + "9" * 10_000 + "}"), "is not valid JSON"),
    "no type": (lambda f: _text(f, "{}"), "model_type is 'None'"),
    "other type": (lambda f: _config(f, model_type="llama"), "model_type is 'llama'; the models that are read: bloom"),
    "type that is no text": (lambda f: _config(f, model_type=["bloom"]), "model_type is"),
    "no sizes": (lambda f: _text(f, '{"model_type": "bloom"}'), "does not say hidden_size"),
    "vast heads": (lambda f: _config(f, n_head=10**9), "n_head is 1000000000; a whole number from 1 to 1024"),
    "vaster heads": (lambda f: _config(f, n_head=10**100), "more than 60 digits"),
    "vast layers": (lambda f: _config(f, n_layer=10**7), "n_layer is 10000000"),
    "vast width": (lambda f: _config(f, hidden_size=1 << 40), "hidden_size is"),
    "negative": (lambda f: _config(f, n_head=-1), "n_head is -1"),
    "fraction": (lambda f: _config(f, n_head=1.5), "n_head is 1.5"),
    "truth": (lambda f: _config(f, n_head=True), "n_head is True"),
    "heads that do not divide": (lambda f: _config(f, n_head=5), "5 heads do not divide the width 12"),
    "more layers than there are": (lambda f: _config(f, n_layer=3), "has no array 'h.2.self_attention"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "has neither model.safetensors nor"),
    "pickle": (_pickled, "'pytorch_model.bin' is a pickle, which can run code and is not opened"),
    "pipe": (_pipe_for_weights, "has neither model.safetensors nor"),
    "empty": (lambda f: (f / "model.safetensors").write_bytes(b""), "not a safetensors file"),
    "cut": (_cut, "not a safetensors file, or a damaged one"),
    "vast header": (lambda f: _header(f, b"{}", 1 << 60), "its header has 1152921504606846976 bytes"),
    "large header": (lambda f: _header(f, b" " * (1 << 24) + b"{} "), "its header has"),
    "header that is no JSON": (lambda f: _header(f, b"{{{{{{{{"), "not a safetensors file"),
    "nested header": (lambda f: _header(f, b'{"a":' + b"[" * 4000 + b"]" * 4000 + b"}"), "not a safetensors file"),
    "offsets beyond the file": (lambda f: _header(f, BEYOND, rest=b"\0" * 64), "not a safetensors file"),
    "wrong shape": (lambda f: _swap(f, FUSED, np.zeros((12, 12), np.float32)), "has shape (12, 12); its config.json promises (36, 12)"),
    "whole numbers": (lambda f: _swap(f, FUSED, np.zeros((36, 12), np.int8)), "is of type I8"),
    "missing array": (lambda f: _swap(f, FUSED, None), "has no array"),
    "index without map": (lambda f: _index(f, {}), "has no weight_map"),
    "index that is no JSON": (lambda f: _index(f, "]"), "is not valid JSON"),
    "index upwards": (lambda f: _index(f, {"weight_map": {FUSED: "../bloom/model.safetensors"}}), "files of the folder itself"),
    "index elsewhere": (lambda f: _index(f, {"weight_map": {FUSED: "/etc/passwd"}}), "files of the folder itself"),
    "index of a pickle": (lambda f: _index(f, {"weight_map": {FUSED: "pytorch_model.bin"}}), "files of the folder itself"),
    "index of a number": (lambda f: _index(f, {"weight_map": {FUSED: 1}}), "files of the folder itself"),
    "missing shard": (lambda f: _index(f, {"weight_map": {FUSED: "model-2.safetensors"}}), "lacks 'model-2.safetensors'"),
    "index of a missing array": (lambda f: _index(f, {"weight_map": {"x": "model.safetensors"}}), "has no array 'x', which"),
    "index with a null": (lambda f: _index(f, {"weight_map": {FUSED: "m\0.safetensors"}}), "lacks"),
    "index with escapes": (lambda f: _index(f, {"weight_map": {FUSED: "\x1b[2J\n.safetensors"}}), "lacks '\\x1b[2J\\n.safetensors'"),
}  # fmt: skip


@pytest.mark.parametrize("fault", BAD)
def test_bad_folders_are_refused_on_one_line(fault: str, run: Run, tmp_path: Path) -> None:
    spoil, expected = BAD[fault]
    folder = folders.bloom(tmp_path / "bloom")
    spoil(folder)
    refused = run("limits", "slopes", "--model", folder)
    assert refused.code == 2 and refused.out == "" and refused.err.count("\n") == 1, refused.err
    assert expected in refused.err, refused.err
    if (folder / "config.json").exists():
        again = run("spectrum", folder, "--tokens", 3)
        assert again.code == 2 and again.err.count("\n") == 1 and expected in again.err


@pytest.mark.parametrize("value", [np.nan, np.inf, 80.0, -200.0])
def test_decays_that_are_no_decays(value: float, run: Run, tmp_path: Path) -> None:
    refused = run("limits", "slopes", "--model", folders.rwkv(tmp_path / "m", np.array([[0.0, value]])))
    assert refused.code == 2 and refused.err.count("\n") == 1 and ("NaN or infinity" in refused.err or "which no model has" in refused.err)


def test_weights_that_are_not_finite(run: Run, tmp_path: Path) -> None:
    """Slopes of BLOOM do not depend on them, its logits do."""
    folder = folders.bloom(tmp_path / "bloom")
    _swap(folder, FUSED, np.full((36, 12), np.nan, np.float32))
    refused = run("spectrum", folder)
    assert refused.code == 2 and "holds NaN or infinity" in refused.err and refused.err.count("\n") == 1
    assert run("limits", "slopes", "--model", folder, "--lags", 1).code == 0


def test_vast_arrays_are_not_read(run: Run, tmp_path: Path) -> None:
    """Three gigabytes of holes: refused from the header, without memory."""
    width = 1 << 14
    folder = folders.bloom(tmp_path / "bloom", hidden_size=width, n_head=16, n_layer=1)
    size = 3 * width * width * 4
    name = "h.0.self_attention.query_key_value.weight"
    _header(folder, json.dumps({name: {"dtype": "F32", "shape": [3 * width, width], "data_offsets": [0, size]}}).encode())
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate((folder / "model.safetensors").stat().st_size + size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = run("spectrum", folder, "--tokens", 3)
    assert refused.code == 2 and "holds more than" in refused.err
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB; the array alone would be 3 GB


def test_nothing_in_a_folder_is_run(run: Run, tmp_path: Path) -> None:
    """Code that a configuration points to, and a pickle beside the weights, are left alone; transformers and torch are not loaded."""
    folder = folders.bloom(tmp_path / "bloom", auto_map={"AutoConfig": "evil.Config", "AutoModel": "evil.Model"}, trust_remote_code=True)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (folder / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'touch " + str(tmp_path / "ran").encode() + b"'\ntR.")
    loaded = {"torch", "transformers"} & set(sys.modules)
    assert run("limits", "slopes", "--model", folder, "--lags", 1).code == 0 and run("spectrum", folder, "--tokens", 3).code == 0
    assert not (tmp_path / "ran").exists() and {"torch", "transformers"} & set(sys.modules) == loaded


@pytest.mark.parametrize(
    "line",
    [
        ("limits", "slopes", "--model", "nowhere"),
        ("limits", "slopes", "--model", "bloom", "--slopes", "alibi:8"),
        ("limits", "slopes", "--model", "bloom", "--rpe", "log"),
        ("limits", "slopes", "--model", "bloom", "--layer", 2),
        ("limits", "slopes", "--model", "bloom", "--layer", -1),
        ("limits", "slopes", "--model", "bloom", "--lags", 25),
        ("limits", "slopes", "--model", "bloom", "--window", 1),
        ("limits", "slopes", "--model", "bloom", "--certificate", "c.json"),
        ("limits", "slopes", "--model", "bloom", "--figure", "nowhere/f.png"),
        ("limits", "slopes", "--model", "bloom/config.json"),
        ("limits", "slopes", "--slopes", "alibi:8", "--layer", 0),
        ("limits", "slopes", "--slopes", "alibi:8", "--window", 16),
        ("spectrum", "bloom", "--layer", 2),
        ("spectrum", "bloom", "--heads", 2),
        ("spectrum", "bloom", "--tokens", 0),
        ("spectrum", "bloom", "--input", "x.npy", "--seed", 1),
        ("spectrum", "bloom", "--input", "nowhere.npy"),
        ("spectrum", "bloom", "--input", "narrow.npy"),
        ("spectrum", "bloom/model.safetensors", "--tokens", 3, "--input", "x.npy"),
        ("spectrum", "bloom/model.safetensors"),
    ],
    ids=lambda line: " ".join(map(str, line)),
)
def test_bad_options(line: tuple[Any, ...], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders.bloom(tmp_path / "bloom")
    np.save(tmp_path / "x.npy", np.ones((4, folders.WIDTH)))
    np.save(tmp_path / "narrow.npy", np.ones((4, 3)))
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    refused = run(*line)
    assert refused.code == 2 and refused.out == "" and refused.err.count("\n") == 1, refused.err
    assert sorted(tmp_path.rglob("*")) == before
