"""The hard-attention lemma: closed forms, a case where it is sharp, random logits below it, and noise."""

import itertools

import numpy as np
from flint import arb

from analyzer.lemmas.hard_attention import loser_share, recency_share, share, tie_shift, with_noise
from analyzer.numbers.exact import upper


def softmax(logits: np.ndarray) -> np.ndarray:
    weights = np.exp(logits - logits.max())
    return weights / weights.sum()


def test_closed_form_for_equal_gaps() -> None:
    r = 6 / 2 * np.exp(-3.0)
    assert abs(upper(loser_share([(6, arb(3))], winners=2)) - r / (1 + r)) < 1e-14
    assert upper(share(arb(1))) == 0.5


def test_it_is_sharp_for_three_letters_and_seven_tokens() -> None:
    """Match 70, recency 7: over all words the copy of the most recent match errs by 0.00182376393 at worst, which is the bound."""
    beta, p, worst = 70.0, 7.0, 0.0
    for word in itertools.product(range(3), repeat=7):
        *past, query = word
        logits = np.array([beta * (letter == query) - p * s for s, letter in enumerate(reversed(past), start=1)])
        matches = [s for s, letter in enumerate(reversed(past), start=1) if letter == query]
        if matches:
            values = softmax(logits)
            worst = max(worst, 2 * (1 - values[matches[0] - 1]))
    gaps = [(1, arb(p * j)) for j in range(1, 6)]  # most recent match at once, all further back matches too
    bound = upper(2 * loser_share(gaps))
    assert worst <= bound * (1 + 1e-12)
    assert abs(bound - 0.00182376393) < 1e-10 and abs(worst - bound) < 1e-12


def test_random_logits_with_noise_stay_below() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        winners, losers, noise = int(rng.integers(1, 4)), int(rng.integers(1, 9)), float(rng.uniform(0, 0.5))
        gap = float(rng.uniform(1.5, 6))
        logits = np.concatenate([np.zeros(winners), -gap - rng.exponential(size=losers)])
        values = rng.uniform(-1, 1, winners + losers)
        moved = softmax(logits + rng.uniform(-noise, noise, len(logits))) @ values
        lost = upper(loser_share([(losers, with_noise(arb(gap), arb(noise)))], winners))
        assert abs(moved - values[:winners].mean()) <= 2 * (lost + upper(tie_shift(arb(noise))))


def test_noise_moves_weights_by_no_more_than_stated_and_some_weights_by_that_much() -> None:
    noise = 0.7
    rare = 1 / (1 + np.exp(noise))
    moved = rare * np.exp(noise) / (rare * np.exp(noise) + (1 - rare) * np.exp(-noise)) - rare
    assert abs(moved - upper(tie_shift(arb(noise)))) < 1e-14


def test_recency_over_the_infinite_past() -> None:
    p, beta, s = 2.0, 30.0, 5
    logits = np.array([-p * j + beta * (j == s or j > s) for j in range(200)])
    assert 1 - softmax(logits)[s] <= upper(recency_share(arb(p), arb(beta), s)) < 1.02 * (1 - softmax(logits)[s])
