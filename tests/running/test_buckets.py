"""Lengths and batches that share a program: what fills them up is seen by nobody."""

import numpy as np
import pytest

from constructions.run import fast, reference
from tests.conftest import random_network


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
    whole, known = fast.forward(network, tokens), fast.step._cache_size()
    for sequences, length in ((4, 9), (3, 16), (3, 11)):
        found = fast.forward(network, tokens[:sequences, :length])
        assert found.shape == (sequences, length)
        assert found == pytest.approx(whole[:sequences, :length], rel=1e-12, abs=1e-13)
        assert found == pytest.approx(reference.forward(network, tokens[:sequences, :length]), rel=1e-9, abs=1e-12)
    assert fast.step._cache_size() == known
    fast.forward(network, tokens[:, :8])
    assert fast.step._cache_size() > known


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
