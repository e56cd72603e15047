"""Spectra of logits: closed forms, dense singular values as the oracle, what softmax does not see, networks and files from anywhere."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save, save_file

from analyzer.errors import InputError
from constructions.files.bundle import load, write
from constructions.files.card import read_files
from constructions.files.scores import Scores, read_scores
from constructions.run import stream
from constructions.run.reference import forward
from constructions.run.stream import coupled_layers
from tests.conftest import random_network
from tests.depth import examples
from verify.compare.spectrum import coupling_spectra, power_law, spectra, summarise

Run = Callable[..., Any]
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def waves(count: int, points: int) -> np.ndarray:
    """√2 sin(2πjx), j = 1..count, on an equidistant grid: orthonormal for its empirical distribution, and of mean 0."""
    x = (np.arange(points) + 0.5) / points
    return np.sqrt(2) * np.sin(2 * np.pi * np.outer(x, np.arange(1, count + 1)))


def scores_of(query: np.ndarray, key: np.ndarray) -> Scores:
    return Scores("here", query[None], key[None], np.zeros((1, len(query))), np.zeros((1, len(key))))


@pytest.mark.parametrize("exponent", [0.55, 1.0])
@pytest.mark.parametrize("points", [64, 1000])
def test_a_power_law_is_recovered_whatever_the_length(exponent: float, points: int) -> None:
    sigma = np.arange(1.0, 17) ** -exponent
    basis = waves(16, points)
    plain, centred = coupling_spectra(basis * sigma, basis[::-1])
    for found in (plain, centred):
        assert found.singular_values == pytest.approx(sigma, rel=1e-12)
        assert found.decay_exponent == pytest.approx(exponent, abs=1e-12) and found.decay_error == pytest.approx(0, abs=1e-12)
        assert found.numerical_rank == 16
        assert found.tail_shares[3] == pytest.approx((sigma[4:] ** 2).sum() / (sigma**2).sum())


def test_summaries_of_known_values() -> None:
    flat = summarise(np.array([2.0] * 8))
    assert flat.effective_rank == pytest.approx(8) and flat.values_for_99_percent == 8 and flat.decay_exponent == 0
    one = summarise(np.array([5.0, 0.0, 0.0]))
    assert (one.effective_rank, one.values_for_99_percent, one.numerical_rank, one.decay_exponent) == (1, 1, 1, None)
    nothing = summarise(np.zeros(3))
    assert (nothing.effective_rank, nothing.values_for_99_percent, nothing.decay_exponent) == (0, 0, None)
    shares = np.array([0.9, 0.085, 0.01, 0.005])
    assert summarise(np.sqrt(shares)).values_for_99_percent == 3
    assert summarise(np.sqrt(shares)).effective_rank == pytest.approx(np.exp(-(shares * np.log(shares)).sum()))
    assert summarise(np.array([1e200, 1e199, 1e198])).effective_rank == pytest.approx(summarise(np.array([1, 0.1, 0.01])).effective_rank)


def test_the_standard_error_is_the_textbook_one() -> None:
    x, y = np.array([1.0, 2, 4, 8, 16]), np.array([1.0, 0.9, 0.6, 0.55, 0.4])
    found = power_law(x, y)
    design = np.stack([np.log(x), np.ones(5)], axis=1)
    solution, residual, *_ = np.linalg.lstsq(design, np.log(y))
    covariance = np.linalg.inv(design.T @ design) * residual[0] / 3
    assert found is not None
    assert (found.exponent, found.intercept) == pytest.approx(tuple(solution)) and found.error == pytest.approx(np.sqrt(covariance[0, 0]))
    assert power_law(x[:2], y[:2]) is None and power_law(x, y - 0.4) is None and power_law(np.ones(5), y) is None


@settings(max_examples=examples(60), deadline=None)
@given(
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    dk=st.integers(1, 6),
    rank=st.integers(1, 6),
    shift=st.sampled_from([0.0, 3.0, -40.0]),
)
def test_small_factors_agree_with_the_dense_matrix(seed: int, rows: int, columns: int, dk: int, rank: int, shift: float) -> None:
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((min(rank, dk), dk))
    queries = rng.standard_normal((rows, len(mixing))) @ mixing
    keys = rng.standard_normal((columns, dk)) + shift
    plain, centred = coupling_spectra(queries, keys)
    logits = queries @ keys.T
    scale = np.linalg.norm(queries) * np.linalg.norm(keys) / np.sqrt(rows * columns)
    for found, matrix in ((plain, logits), (centred, logits - logits.mean(axis=1, keepdims=True))):
        dense = np.linalg.svd(matrix, compute_uv=False) / np.sqrt(rows * columns)
        count = min(rows, columns, dk)
        assert len(found.singular_values) == count
        assert np.abs(np.array(found.singular_values) - dense[:count]).max() <= 1e-13 * scale
        assert found.numerical_rank <= min(rows, columns, len(mixing))
    inner = zip(centred.singular_values, plain.singular_values, (*plain.singular_values[1:], 0.0), strict=True)
    assert all(after - 1e-13 * scale <= value <= before + 1e-13 * scale for value, before, after in inner)


def test_centring_removes_functions_of_the_query() -> None:
    rng = np.random.default_rng(0)
    queries, keys = rng.standard_normal((50, 5)), rng.standard_normal((70, 5))
    keys[:, 0] = 100.0  # ⟨q, k⟩ = 100 q_0 + a coupling of rank 4
    plain, centred = coupling_spectra(queries, keys)
    _, bare = coupling_spectra(queries[:, 1:], keys[:, 1:])
    assert plain.numerical_rank == 5 and centred.numerical_rank == 4 and plain.values_for_99_percent == 1
    assert centred.singular_values[:4] == pytest.approx(bare.singular_values, rel=1e-10)
    _, nothing = coupling_spectra(queries, np.full((70, 5), 0.3))
    assert nothing.numerical_rank == 0 and nothing.effective_rank == 0


def test_no_function_of_the_query_beats_the_mean() -> None:
    rng = np.random.default_rng(1)
    queries, keys = rng.standard_normal((9, 3)), rng.standard_normal((8, 3)) + 1
    _, centred = coupling_spectra(queries, keys)
    for _ in range(20):
        changed = queries @ keys.T - rng.standard_normal((9, 1)) * 3
        assert (np.linalg.svd(changed, compute_uv=False)[:3] / np.sqrt(72) >= np.array(centred.singular_values) - 1e-12).all()


def test_a_batch_is_its_tokens() -> None:
    rng = np.random.default_rng(2)
    scores = scores_of(rng.standard_normal((3, 4)), rng.standard_normal((3, 4)))
    tokens = rng.standard_normal((5, 7, 4))
    assert spectra(scores, 0, tokens) == spectra(scores, 0, tokens.reshape(35, 4))
    twice = spectra(scores, 0, np.concatenate([tokens, tokens]))[0]
    assert twice.plain.singular_values == pytest.approx(spectra(scores, 0, tokens)[0].plain.singular_values, rel=1e-12)


def test_a_long_array_is_quick() -> None:
    rng = np.random.default_rng(3)
    scores = scores_of(rng.standard_normal((8, 16)), rng.standard_normal((8, 16)))
    found = spectra(scores, 0, rng.standard_normal((200_000, 16)))[0]  # the matrix itself would take 320 GB
    expected = np.linalg.svd(scores.query[0].T @ scores.key[0], compute_uv=False)[:8]  # tokens are white
    assert found.plain.singular_values == pytest.approx(expected, rel=0.05)


@pytest.mark.deep
@pytest.mark.parametrize("kind,dtype", [("dp", "float64"), ("nf", "float32")])
def test_layers_of_a_network(kind: str, dtype: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(4)
    network = random_network(rng, ["lin", "log"], kind, layers=3, width=4, dtype=dtype)
    tokens = rng.uniform(-1, 1, (5, 9, 2))
    found = coupled_layers(network, tokens)
    assert [index for index, _, _ in found] == [0, 1, 2]
    embedded = tokens @ network.embedding.T.astype(float) + network.bias
    assert found[0][2] == pytest.approx(embedded, rel=1e-12, abs=1e-12)
    # the last layer alone, on what it is said to read, must give the network's output: with a finite window nothing else enters
    finite = random_network(rng, ["lin"], kind, "finite", layers=2, width=4)
    from constructions.network.transformer import Transformer

    last = Transformer(np.eye(4), np.zeros(4), finite.layers[1:])
    assert forward(last, coupled_layers(finite, tokens)[1][2]) == pytest.approx(forward(finite, tokens), rel=1e-9, abs=1e-12)
    monkeypatch.setattr(stream, "MAX_WEIGHTS", 2 * 81 * 2)  # two sequences at a time
    for (_, _, whole), (_, _, parts) in zip(found, coupled_layers(network, tokens), strict=True):
        assert whole == pytest.approx(parts, rel=1e-12)
    monkeypatch.setattr(stream, "MAX_WORK", 100)
    with pytest.raises(InputError, match="fewer or shorter"):
        coupled_layers(network, tokens)
    assert len(coupled_layers(network, tokens, 0)) == 1  # the first layer reads the embedding: no pass is needed


@pytest.mark.deep
def test_bundles(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    network = random_network(rng, ["lin", "log"], "dp", layers=2, width=4)
    write(tmp_path / "net", network, {}, "")
    tokens = rng.uniform(-1, 1, (3, 8, 2))
    np.save(tmp_path / "x.npy", tokens)
    answer = run("spectrum", tmp_path / "net", "--input", tmp_path / "x.npy", "--figure", tmp_path / "f.png", "--json").json
    assert {"source", "heads", "tokens", "note", "figure"} == set(answer) and answer["tokens"] == 24 and "sampled" in answer["note"]
    assert [(h["layer"], h["head"], h["dk"]) for h in answer["heads"]] == [(0, 0, 2), (0, 1, 2), (1, 0, 2), (1, 1, 2)]
    assert (tmp_path / "f.png").stat().st_size > 0
    summary = {
        "singular_values",
        "effective_rank",
        "values_for_99_percent",
        "decay_exponent",
        "decay_error",
        "numerical_rank",
        "tail_shares",
    }
    assert set(answer["heads"][0]) == summary | {"layer", "head", "name", "dk", "tokens", "centred"}
    assert set(answer["heads"][0]["centred"]) == summary
    embedded = (tokens @ network.embedding.T + network.bias).reshape(24, 4)
    attention = network.layers[0].attention
    for h in range(2):
        logits = embedded @ attention.query[h].T @ attention.key[h] @ embedded.T
        assert answer["heads"][h]["singular_values"] == pytest.approx(np.linalg.svd(logits, compute_uv=False)[:2] / 24, rel=1e-9)
    only = run("spectrum", tmp_path / "net", "--input", tmp_path / "x.npy", "--layer", "1", "--json").json
    assert only["heads"] == answer["heads"][2:]
    shown = " ".join(run("spectrum", tmp_path / "net", "--input", tmp_path / "x.npy").out.split())
    assert "logits on 24 tokens" in shown and "which softmax does not see" in shown
    for arguments, reason in (
        (("--layer", "2"), "layers 0 to 1"),
        (("--heads", "2"), "a bundle knows its heads"),
        (("--figure", tmp_path), "cannot write"),
    ):
        refused = run("spectrum", tmp_path / "net", "--input", tmp_path / "x.npy", *arguments)
        assert refused.code == 2 and reason in refused.err


@pytest.mark.parametrize("kind", ["dp-free", "tmx"])
def test_layers_without_a_coupling(run: Run, tmp_path: Path, kind: str) -> None:
    rng = np.random.default_rng(6)
    write(tmp_path / "net", random_network(rng, ["lin"], kind), {}, "")
    np.save(tmp_path / "x.npy", rng.uniform(-1, 1, (8, 2)))
    refused = run("spectrum", tmp_path / "net", "--input", tmp_path / "x.npy")
    assert refused.code == 2 and f"no layer of this network couples tokens: {kind} attention" in refused.err


@pytest.mark.deep
def test_a_constructed_coupling_has_the_spectrum_of_its_target(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "net"
    sizes = ["--rank", "3", "--length", "4", "--knots", "64", "--dtype", "float64"]
    assert run("build", "coupling", "--rho", "exp(-(u-v)**2)", *sizes, "--out", out, "--quiet").code == 0
    x = (np.arange(400) + 0.5) / 400
    np.save(tmp_path / "x.npy", np.random.default_rng(0).permutation(x).reshape(100, 4, 1))
    answer = run("spectrum", out, "--input", tmp_path / "x.npy", "--json").json
    assert [h["layer"] for h in answer["heads"]] == [1]  # the first layer has no attention, only the feed-forward network
    dense = np.linalg.svd(np.exp(-((x[:, None] - x) ** 2)) / 400, compute_uv=False)
    assert answer["heads"][0]["singular_values"] == pytest.approx(dense[:3], rel=1e-2)
    refused = run("spectrum", out, "--input", tmp_path / "x.npy", "--layer", "0")
    assert refused.code == 2 and "layer 0 does not couple tokens: switched off attention" in refused.err


@pytest.mark.deep
def test_exact_networks(run: Run, tmp_path: Path) -> None:
    """The constructed scores p·(lag slot)·(constant slot): rank 1, and nothing is left once functions of the query are removed."""
    out = tmp_path / "net"
    assert run("build", "adaptive", "--target", EXAMPLES / "nested.toml", "--attention", "dp", "--out", out).code == 0
    assert load(read_files(out)).network.dtype == "exact"
    np.save(tmp_path / "x.npy", np.random.default_rng(7).choice([-1.0, 1.0], 60))
    answer = run("spectrum", out, "--input", tmp_path / "x.npy", "--json").json
    heads = [h for h in answer["heads"] if h["layer"] > 0]
    assert heads and all(h["numerical_rank"] == 1 and h["centred"]["numerical_rank"] == 0 for h in heads)
    assert "without a normaliser" in answer["note"]
    attention = load(read_files(out)).network.layers[1].attention
    decays = sorted(float(p.p) / float(p.q) for p in attention.decay)
    lags = np.where(np.load(tmp_path / "x.npy") == 1, 1, 2)
    expected = [p * np.sqrt((lags**2).mean()) for p in decays]
    assert sorted(h["singular_values"][0] for h in heads if h["layer"] == 1) == pytest.approx(expected, rel=1e-9)
    figure = run("spectrum", out, "--input", tmp_path / "x.npy", "--figure", tmp_path / "f.png")
    assert figure.code == 0 and figure.err == "" and (tmp_path / "f.png").stat().st_size > 0


def test_files_from_anywhere(run: Run, tmp_path: Path) -> None:
    rng = np.random.default_rng(8)
    weights = rng.standard_normal((2, 6, 4, 5))
    bias = rng.standard_normal(12)
    x = rng.standard_normal((3, 10, 5)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    path = tmp_path / "w.safetensors"
    arrays = {
        "h.10.q_proj.weight": weights[0, :3].reshape(12, 5), "h.10.k_proj.weight": weights[1, :3].reshape(12, 5), "h.10.q_proj.bias": bias,
        "h.9.attn.query": weights[0, 3:], "h.9.attn.key": weights[1, 3:], "h.9.attn.key.bias": bias.reshape(3, 4), "h.9.value": weights[0],
        "h.9.query_norm.weight": np.ones(4),
    }  # fmt: skip
    save_file(arrays, path)
    answer = run("spectrum", path, "--input", tmp_path / "x.npy", "--heads", "3", "--json").json
    assert [h["name"] for h in answer["heads"]] == ["h.9.attn.query"] * 3 + ["h.10.q_proj.weight"] * 3
    assert "the same input" in answer["note"] and answer["tokens"] == 30
    tokens = x.reshape(30, 5).astype(float)
    biases = bias.reshape(3, 4)
    for h in range(3):
        later = (tokens @ weights[0, h].T + biases[h]) @ (tokens @ weights[1, h].T).T
        assert answer["heads"][3 + h]["singular_values"] == pytest.approx(np.linalg.svd(later, compute_uv=False)[:4] / 30, rel=1e-9)
        early = (tokens @ weights[0, 3 + h].T) @ (tokens @ weights[1, 3 + h].T + biases[h]).T
        assert answer["heads"][h]["singular_values"] == pytest.approx(np.linalg.svd(early, compute_uv=False)[:4] / 30, rel=1e-9)
    one = run("spectrum", path, "--input", tmp_path / "x.npy", "--layer", "1", "--json").json
    assert [h["dk"] for h in one["heads"]] == [12] and "the same input" not in one["note"]
    assert len(one["heads"][0]["singular_values"]) == 12 and one["heads"][0]["numerical_rank"] <= 6
    half = {"query": weights[0, 0].astype(ml_dtypes.bfloat16), "key": weights[1, 0].astype(np.float16)}
    save_file(half, path)
    rounded = run("spectrum", path, "--input", tmp_path / "x.npy", "--json").json["heads"][0]
    exact = tokens @ half["query"].astype(float).T @ half["key"].astype(float) @ tokens.T
    assert rounded["singular_values"] == pytest.approx(np.linalg.svd(exact, compute_uv=False)[:4] / 30, rel=1e-9)


def test_pairs_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    names = ["l.2.query", "l.010.query", "l.9.query", "query", f"l.{'9' * 5000}.query", "a.q_proj.weight", "l.query"]
    partner = {"query": "key", "q_proj": "k_proj"}
    arrays = {}
    for name in names:
        part = "query" if "query" in name else "q_proj"
        arrays |= {name: np.ones((1, 1)), name.replace(part, partner[part]): np.ones((1, 1))}
    save_file(arrays, tmp_path / "w.safetensors")
    found = [scores.name for _, scores in read_scores(tmp_path / "w.safetensors")]
    assert found == ["a.q_proj.weight", "l.2.query", "l.9.query", "l.010.query", f"l.{'9' * 5000}.query", "l.query", "query"]


ONES = np.ones((4, 5))
BAD_ARRAYS: dict[str, tuple[dict[str, np.ndarray], str]] = {
    "no pair": ({"value": ONES}, "has no arrays named"),
    "no partner": ({"query": ONES, "key.weight": ONES}, "has no partner 'key'"),
    "not a number": ({"query": ONES, "key": ONES * np.nan}, "'key' holds NaN"),
    "shapes": ({"query": ONES, "key": np.ones((3, 5))}, "must agree"),
    "vectors": ({"query": np.ones(4), "key": np.ones(4)}, "expected (H, dk, D)"),
    "whole numbers": ({"query": ONES.astype(int), "key": ONES.astype(int)}, "of type I64"),
    "empty": ({"query": np.ones((0, 5)), "key": np.ones((0, 5))}, "it is empty"),
    "bias": ({"query": ONES, "key": ONES, "query.bias": np.ones(5)}, "has shape (5,)"),
    "width": ({"query": np.ones((4, 6)), "key": np.ones((4, 6))}, "reads arrays of shape (N, 6)"),
    "overflow": ({"query": ONES * 1e200, "key": ONES * 1e200}, "too large"),
}


@pytest.mark.parametrize("name", BAD_ARRAYS)
def test_bad_arrays(run: Run, tmp_path: Path, name: str) -> None:
    arrays, reason = BAD_ARRAYS[name]
    save_file(arrays, tmp_path / "w.safetensors")
    np.save(tmp_path / "x.npy", np.ones((7, 5)))
    refused = run("spectrum", tmp_path / "w.safetensors", "--input", tmp_path / "x.npy")
    assert refused.code == 2 and reason in refused.err and refused.err.count("\n") == 1


def test_bad_files(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    np.save(tmp_path / "x.npy", np.ones((7, 5)))
    good = save({"query": ONES, "key": ONES})
    header = json.dumps({"query": {"dtype": "F64", "shape": [1 << 40, 1 << 20], "data_offsets": [0, 8]}}).encode()
    tampered = len(header).to_bytes(8, "little") + header + b"\0" * 8
    for content in (b"", b"\0" * 64, b"\xff" * 64, good[:-8], good[:40], good + b"more", tampered):
        path.write_bytes(content)
        refused = run("spectrum", path, "--input", tmp_path / "x.npy")
        assert refused.code == 2 and "damaged" in refused.err and refused.err.count("\n") == 1
    path.write_bytes(good)
    for arguments in (("--layer", "1"), ("--layer", "-1"), ("--heads", "0"), ("--heads", "3"), ("--figure", "nowhere/f.png")):
        assert run("spectrum", path, "--input", tmp_path / "x.npy", *arguments).code == 2
    assert run("spectrum", tmp_path / "nowhere", "--input", tmp_path / "x.npy").code == 2


def test_what_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from constructions.files import scores
    from verify.compare import spectrum

    save_file({"query": ONES, "key": ONES}, tmp_path / "w.safetensors")
    found = read_scores(tmp_path / "w.safetensors")[0][1]
    monkeypatch.setattr(spectrum, "MAX_OPERATIONS", 100)
    with pytest.raises(InputError, match="7 tokens are too many"):
        spectra(found, 0, np.ones((7, 5)))
    monkeypatch.setattr(scores, "MAX_NUMBERS", 39)
    with pytest.raises(InputError, match="hold 40 numbers, more than 39"):
        read_scores(tmp_path / "w.safetensors")


def test_tokens_that_are_not_finite_are_left_out() -> None:
    rng = np.random.default_rng(9)
    scores, tokens = scores_of(rng.standard_normal((2, 3)), rng.standard_normal((2, 3))), rng.standard_normal((10, 3))
    tokens[4, 1] = np.inf
    found = spectra(scores, 0, tokens)[0]
    assert found.tokens == 9 and found.plain == spectra(scores, 0, np.delete(tokens, 4, axis=0))[0].plain
    with pytest.raises(InputError, match="not finite in float64 at any token"):
        spectra(scores, 0, np.full((3, 3), np.inf))
