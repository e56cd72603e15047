"""Published experiments repeated, and the demo.

May import from `verify.compare` and `verify.limits` and what lies below them.
"""

from analyzer.errors import InputError

MAX_SEEDS = 32
MIN_STEPS, MAX_STEPS = 20, 10**6
"""Training runs: fewer steps train nothing, more take days."""
MOST_LAGS = 16
"""Lags of the horizon's experiment: three times what float32 can see."""


def check_lags(most: int) -> None:
    if not 1 <= most <= MOST_LAGS:
        raise InputError(f"lags is {most}; give 1 to {MOST_LAGS}")
