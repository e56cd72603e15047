"""Published experiments repeated, and the demo.

May import from `verify.compare` and what lies below it.
"""

from analyzer.ranges import check_range

MAX_SEEDS = 32
MIN_STEPS, MAX_STEPS = 20, 10**6
"""Training runs: fewer steps train nothing, more take days."""
MOST_LAGS = 16
"""Lags of the horizon's experiment: three times what float32 can see."""


def check_lags(most: int) -> None:
    check_range("lags", most, 1, MOST_LAGS)
