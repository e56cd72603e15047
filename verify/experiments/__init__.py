"""Published experiments, repeated: trained networks beside constructed ones and beside what is certified."""

MAX_SEEDS = 32
MIN_STEPS, MAX_STEPS = 20, 10**6
"""Training runs: fewer steps train nothing, more take days."""
