"""A step of training on long arrays: heads that read positions only, by blocks in O(N log N), against the plain O(N²) pass.

    python -m benchmarks.long_training [--longest 8192] [--repeats 5] [--keep]

One layer of four heads, float32, one sequence, the error at every position. Losses and derivatives in all weights are compared before
anything is timed, and the run ends there if they differ by more than 1e-5 of the largest of their kind. Passes alternate; medians count.
"""

import argparse
import statistics
import sys
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from analyzer.targets.fixed import FixedMemory
from benchmarks.ratios import guard
from constructions.run import blocked, reference
from constructions.training.recipes import Shape
from constructions.training.trainable import initial, to_network, to_parameters

LENGTHS = (1024, 2048, 4096, 8192)
KINDS = ("lin", "log", "table")
SAME = 1e-5


def prepared(rpe: str, length: int) -> tuple[Any, jax.Array, jax.Array]:
    """Parameters, tokens and what is wanted."""
    shape = Shape(
        attention="dp-free", rpe=rpe, window="infinite", heads=4, layers=1, model_dim=2, key_dim=1, value_dim=1, width=32,
        reach=length if rpe == "table" else 0,
    )  # fmt: skip
    network = initial(shape, 1, 0, longest=length)
    tokens = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (1, length, 1)), jnp.float32)
    return to_parameters(network.map(jnp.asarray)), tokens, FixedMemory((2,)).values(jnp)(tokens)


def step_by(way: Any) -> Any:
    """Loss and derivatives of one step, compiled."""

    def loss(parameters: Any, tokens: jax.Array, wanted: jax.Array) -> jax.Array:
        return jnp.mean((reference.stream(to_network(parameters), tokens, 0, way)[-1][..., 0] - wanted) ** 2)

    return jax.jit(jax.value_and_grad(loss))


def seconds(step: Any, given: Any) -> float:
    start = time.perf_counter()
    jax.block_until_ready(step(*given))
    return time.perf_counter() - start


def median_seconds(step: Any, given: Any, repeats: int) -> float:
    """By itself, after a turn that does not count: what the other side leaves to be freed is not ours to pay for."""
    seconds(step, given)
    return statistics.median(seconds(step, given) for _ in range(repeats))


def differences(one: Any, other: Any) -> float:
    """The largest difference of two derivatives, relative to the largest number of its array."""
    pairs = [(a, b) for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True) if a.size]
    return max(float(jnp.abs(a - b).max() / jnp.maximum(jnp.abs(a).max(), 1e-6)) for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="keep the ratios of this run")
    asked, ratios = parser.parse_args(), {}
    print(f"{'heads':6} {'tokens':>7} {'plain':>10} {'blocks':>10} {'ratio':>7} {'difference':>11}")
    for rpe in KINDS:
        for length in (n for n in LENGTHS if n <= asked.longest):
            given, plain, quick = prepared(rpe, length), step_by(reference.attend), step_by(blocked.attend)
            off = differences(plain(*given), quick(*given))
            if not off <= SAME:
                sys.exit(f"{rpe}, {length} tokens: derivatives differ by {off:.3g}")
            slow, fast = (median_seconds(step, given, asked.repeats) for step in (plain, quick))
            ratios[f"{rpe}, {length} tokens"] = slow / fast
            print(f"{rpe:6} {length:7} {1e3 * slow:8.1f}ms {1e3 * fast:8.1f}ms {slow / fast:7.1f} {off:11.1e}", flush=True)
    guard("long_training", ratios, asked.keep)


if __name__ == "__main__":
    main()
