"""Fused kernels against the definition, whatever the decays look like."""

import numpy as np
from flint import arb, fmpq
from hypothesis import example, given, settings
from hypothesis import strategies as st

from analyzer.numbers.exact import working_precision
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, zeros
from constructions.run.fused import fuse
from tests.depth import examples

RUNS = st.lists(
    st.tuples(st.sampled_from(["lin", "log"]), st.integers(1, 3), st.sampled_from([1, 2, 5]), st.integers(1, 10)), min_size=1, max_size=5
)


@given(RUNS, st.integers(0, 2**32 - 1))
@example([("log", 1, 1, 5), ("log", 1, 1, 2), ("log", 1, 1, 4)], 3)
@settings(max_examples=examples(60), deadline=None)
def test_kernels_are_the_definition(runs: list[tuple[str, int, int, int]], seed: int) -> None:
    """Banks of many shapes: short runs, equal starts, lin and log mixed, heads without weight."""
    rng = np.random.default_rng(seed)
    rpe, decays = [], []
    for kind, start, step, count in runs:
        rpe += [kind] * count
        decays += [1 + fmpq(start, 4) + fmpq(step, 8) * k for k in range(count)]
    heads = len(rpe)
    weights = [fmpq(int(w)) for w in rng.integers(-3, 4, heads)]
    value, output = zeros(heads, 1, 2), zeros(heads, 2, 1)
    value[:, 0, 0] = fmpq(1)
    output[:, 1, 0] = weights
    attention = Attention(exact_array(decays), value, output, zeros(heads, 0, 2), zeros(heads, 0, 2), zeros(0, 2), tuple(rpe))
    ffn = FeedForward(zeros(1, 2), zeros(1), zeros(1, 1))
    layer = fuse(Transformer(exact_array([[1], [fmpq(1, 3)]]), zeros(2), (Layer(attention, ffn),)))
    with working_precision(layer.bits):
        found = layer.kernel([fmpq(0), fmpq(1)], 0).values(0, 12)
        for s, ball in enumerate(found):
            wanted = arb(fmpq(1, 3)) if s == 0 else arb(0)
            for kind, p, w in zip(rpe, decays, weights, strict=True):
                if kind == "lin":
                    wanted += arb(w) * (1 - (-arb(p)).exp()) * (-arb(p) * s).exp()
                elif s:
                    wanted += arb(w) * arb(s) ** -arb(p) / arb(p).zeta()
            assert ball.overlaps(wanted) or abs(ball - wanted) < arb(2) ** -150
