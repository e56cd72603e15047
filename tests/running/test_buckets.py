"""Lengths and batches that share a program: what fills them up is seen by nobody."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import lemmaformer as lf
from constructions.network.precision import with_x64
from constructions.run import execute, fast, reference, token_by_token
from tests.conftest import random_network

ROOT = Path(__file__).resolve().parents[2]


def test_buckets_are_few_and_hardly_too_long() -> None:
    found = [fast.bucket(n) for n in range(1, 5000)]
    assert all(n <= most <= (2 * n - 1 if n <= fast.COARSE else 1.125 * n) for n, most in enumerate(found, start=1))
    assert found == sorted(found) and fast.bucket(64) == 64 and fast.bucket(65) == 72 and fast.bucket(4097) == 4608
    assert len(set(found)) == 7 + 6 * 8 + 2


KINDS = {
    "lin, dp-free": (["lin", "lin"], "dp-free", "infinite"),
    "log, dp-free": (["log", "log"], "dp-free", "infinite"),
    "lin, dp": (["lin", "lin"], "dp", "infinite"),
    "lin, dp, finite": (["lin", "lin"], "dp", "finite"),
    "table, finite": (["table", "table"], "dp-free", "finite"),
    "log, nf": (["log", "log"], "nf", "infinite"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_new_lengths_and_batches_of_a_bucket_do_not_compile(kind: str) -> None:
    rpe, attention, window = KINDS[kind]
    network = random_network(np.random.default_rng(3), rpe, attention, window, layers=2)
    tokens = np.random.default_rng(4).uniform(-1, 1, (4, 16, 2))
    whole, known = fast.forward(network, tokens), fast.compiled(network)._cache_size()
    for sequences, length in ((4, 9), (3, 16), (3, 11)):
        found = fast.forward(network, tokens[:sequences, :length])
        assert found.shape == (sequences, length)
        assert found == pytest.approx(whole[:sequences, :length], rel=1e-12, abs=1e-13)
        assert found == pytest.approx(reference.forward(network, tokens[:sequences, :length]), rel=1e-9, abs=1e-12)
    assert fast.compiled(network)._cache_size() == known
    fast.forward(network, tokens[:, :8])
    assert fast.compiled(network)._cache_size() > known


def test_equal_layers_are_one_loop() -> None:
    """Twelve layers make the program of six, and compute what they compute one by one."""
    rng = np.random.default_rng(3)
    deep = random_network(rng, ["lin", "log"], layers=12)
    shallow = replace(deep, layers=deep.layers[6:])
    tokens = rng.uniform(-1, 1, (2, 16, 2))
    with with_x64("float64"):
        sizes = [len(fast.program.lower(one, fast.network_constants(one, 16), tokens).as_text().splitlines()) for one in (shallow, deep)]
    assert sizes[1] < 1.2 * sizes[0]  # only the stack of weights grows
    looped = fast.forward(deep, tokens)
    assert looped == pytest.approx(reference.forward(deep, tokens), rel=1e-10, abs=1e-12)
    changed = deep.map(np.copy)
    changed.layers[7].attention.value[:] += 0.1
    assert np.abs(fast.forward(changed, tokens) - looped).max() > 1e-3  # every layer has its own weights


def test_neighbours_of_one_shape_are_found() -> None:
    a, b, wide = np.zeros(2), np.ones(2), np.zeros(3)
    assert fast.equal_runs([]) == []
    assert fast.equal_runs([a, b, wide, a, wide, wide]) == [(0, 2), (2, 1), (3, 1), (4, 2)]
    assert fast.equal_runs([{"x": a}, {"y": a}, {"y": a.astype(np.float32)}]) == [(0, 1), (1, 1), (2, 1)]


def test_windows_that_see_every_token_are_not_filled_up() -> None:
    network = random_network(np.random.default_rng(3), ["none", "none"], "dp", "full")
    network.layers[0].attention.decay[:] = 0
    tokens = np.random.default_rng(4).uniform(-1, 1, (2, 5, 2))
    assert fast.forward(network, tokens) == pytest.approx(reference.forward(network, tokens), rel=1e-12)
    assert fast._filled(network, tokens).shape == (2, 5, 2)


def test_arrays_that_filling_up_would_spoil_run_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    network = random_network(np.random.default_rng(3), ["lin"])
    tokens = np.random.default_rng(4).uniform(-1, 1, (5, 2))
    wanted = fast._forward(network, tokens)
    monkeypatch.setattr(fast, "_filled", lambda network, given: np.pad(given, ((3, 0), (0, 0)), constant_values=np.nan))
    assert (fast.forward(network, tokens) == wanted).all()


def test_no_tokens_are_no_outputs() -> None:
    network = random_network(np.random.default_rng(3), ["lin"])
    assert fast._filled(network, np.zeros((0, 2))).shape == (0, 2)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("length", [16, 4096])
def test_outputs_take_the_place_of_tokens_where_they_fit(outputs: int, length: int) -> None:
    """On the device; the array that was given stays as it is."""
    network = random_network(np.random.default_rng(3), ["lin", "lin"], dim=1, outputs=outputs)
    tokens = np.random.default_rng(4).uniform(-1, 1, (length, 1))
    given = tokens.copy()
    with with_x64("float64"):
        constants = fast.network_constants(network, length)
        lowered = [
            fast.compiled(network).lower(network, constants, tokens),
            token_by_token.compiled(network).lower(network, constants, tokens, 16),
        ]
        written_over = [one.compile().memory_analysis().alias_size_in_bytes for one in lowered]
    assert written_over == [tokens.nbytes if outputs == 1 else 0] * 2
    found = execute.run(network, tokens)
    assert found == pytest.approx(reference.forward(network, tokens), rel=1e-9, abs=1e-12) and (tokens == given).all()


def test_what_follows_from_weights_is_remembered_by_their_content(monkeypatch: pytest.MonkeyPatch) -> None:
    network, tokens = random_network(np.random.default_rng(3), ["lin", "log"]), np.linspace(-1, 1, 24).reshape(12, 2)
    asked: list[int] = []
    constants = fast.head_constants
    monkeypatch.setattr(fast, "head_constants", lambda attention: (asked.append(1), constants(attention))[1])
    fast._constants.forget()
    before = fast.forward(network, tokens)
    assert (fast.forward(network, tokens) == before).all() and len(asked) == 1
    assert (fast.forward(network.map(np.copy), tokens) == before).all() and len(asked) == 1
    network.layers[0].attention.decay[0] += 0.5  # in place
    changed = fast.forward(network, tokens)
    assert len(asked) == 2 and np.abs(changed - before).max() > 1e-3
    assert changed == pytest.approx(reference.forward(network, tokens), rel=1e-9, abs=1e-12)


def test_a_cache_for_compiled_programs_is_used(tmp_path: Path) -> None:
    """The command line keeps its programs, short as they take, where JAX is told to; a second run compiles nothing."""
    lf.build(lf.fixed(lags=(1,)), dtype="float64").save(tmp_path / "net")
    np.save(tmp_path / "x.npy", np.linspace(-1, 1, 40))
    words = ["run", str(tmp_path / "net"), "--input", str(tmp_path / "x.npy"), "--output", str(tmp_path / "y.npy"), "--force"]
    code = f"import sys, cli; sys.argv[1:] = {words!r}; cli.main()"
    ours = {name: value for name, value in os.environ.items() if not name.startswith("JAX_PERSISTENT_CACHE")}
    found = []
    for _ in range(2):
        subprocess.run(
            [sys.executable, "-c", code], check=True, cwd=ROOT, env={**ours, "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "kept")}
        )
        found.append({file.name: file.stat().st_mtime_ns for file in (tmp_path / "kept").iterdir() if "-cache" in file.name})
    assert found[0] and found[0] == found[1]
