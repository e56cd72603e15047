"""Rounding of one softmax layer, a priori: how far its float output can be from the exact function of its weights, for all tokens.

Statement. Let a network have one dp layer, tokens in [−1, 1]^d, and arrays of at most N tokens. Then at every position

    |computed − exact| ≤ `softmax_layer_rounding`(network, N).

Proof. Embedding, queries, keys and values are dot products with stored weights (`Arithmetic.dot`); a dot product ⟨q, k⟩ of computed vectors
is `Arithmetic.inner`. The logit of a token is a_s = ⟨q, k_s⟩ + b_s, where the executor's b_s is p φ(s), b(s) or, for the whole past before
the array, the logarithm of its mass (`constructions.run.positions`), rounded once (twice by way of float64), so that it is off by at
most (1 + 2^{−20})u |b_s|. Let A bound |⟨q, k⟩| as computed, M = max_s â_s, and λ the errors of ⟨q, k⟩ of two kinds.

*Near tokens*, those with â_s − M ≥ −X: both |b_s| ≤ B := X + 2A + |b_max| and the weight is e^{a_s − M + θ_s} with |θ_s| ≤ λ,

    λ = err⟨q, k⟩ + (1 + 2^{−20})u B + u (A + B) + u X − log(1 − ε_exp),

for bias, addition, subtraction of M and exponential; b_max is the largest bias that is seen. (Biases that are stored or that are −p s are
counted as if they were rounded, too.)
*Far tokens* have e^{a_s − M} ≤ e^{−X+λ}, and the executor gives them e^{−X}(1 ± ε_exp): the sum of weights is at least 1 − ε, that of the
maximum itself, so all of them together move the mean by at most 4 (N+1) e^{−X} e^{λ} times the spread.

Two softmaxes whose logits differ by at most λ are tanh(λ/2) apart in total variation; sums and quotient are those of
`Arithmetic.softmax_mean`, with N + 1 terms: the tokens of the array and, as one more, the constant past. Tokens beyond a table weigh
exactly 0 and add nothing in any order. Projection, residual and read-out follow, relu being 1-Lipschitz.
"""

from dataclasses import replace

import numpy as np
from flint import arb, fmpq

from analyzer.errors import Refusal
from analyzer.numbers.exact import maximum, rational, working_precision
from constructions.network.exponential import DEEPEST
from constructions.network.transformer import Attention, Transformer, check_relative, to_exact
from constructions.run.positions import score_constants
from verify.chain.rounding import ONE, Arithmetic, Rounded, exponential_error, readout_rounding

BITS = 256
TWICE = 1 + fmpq(1, 2**20)
"""A constant rounded to float64 and then to float32 is off by at most this times u."""


def softmax_layer_rounding(network: Transformer, length: int) -> arb:
    """sup |computed − exact| of the output of one dp layer, over all tokens in [−1, 1]^d and arrays of at most `length` tokens."""
    if network.dtype == "exact":
        return arb(0)
    if len(network.layers) != 1 or network.layers[0].attention.kind != "dp":
        raise Refusal("this bound of roundings is for one layer of dp attention")
    check_relative(network, "this bound of roundings")
    attention, ffn = network.layers[0].attention, network.layers[0].feedforward
    arithmetic = Arithmetic(network.dtype)
    with working_precision(BITS):
        embedding, bias = to_exact(network.embedding), to_exact(network.bias)
        embedded = [arithmetic.dot([*row, b], [ONE] * (len(row) + 1)) for row, b in zip(embedding, bias, strict=True)]
        heads = [_head(arithmetic, attention, h, embedded, length) for h in range(len(attention.rpe))]
        outputs = [value for head in heads for value in head]
        projection = np.moveaxis(to_exact(attention.output), 1, 0)  # (D, H, dv)
        residual = []
        for row, before in zip(projection, embedded, strict=True):
            added = arithmetic.dot(list(row.flat), outputs)
            residual.append(arithmetic.plus(before, added, before.magnitude + added.magnitude))
        inner, outer = to_exact(ffn.inner), to_exact(ffn.outer)[0]
        carried = arb(0)
        for weight, row in zip(outer, inner, strict=True):
            carried += abs(arb(weight)) * sum((abs(arb(w)) * r.error for w, r in zip(row, residual, strict=True)), arb(0))
        return (carried + readout_rounding(arithmetic, ffn, residual)).upper()


def _head(arithmetic: Arithmetic, attention: Attention, h: int, given: list[Rounded], length: int) -> list[Rounded]:
    """The mean values that a head delivers, coordinate by coordinate."""
    query, key, value = (
        [arithmetic.dot(list(row), given) for row in to_exact(w[h])] for w in (attention.query, attention.key, attention.value)
    )
    size = sum((q.magnitude * k.magnitude for q, k in zip(query, key, strict=True)), arb(0))
    score = arithmetic.inner(query, key, size) if query else Rounded(arb(0), arb(0))
    top, count = _largest_bias(attention, h, length)
    unit, deepest, slip = arithmetic.unit, arb(DEEPEST[arithmetic.dtype]), exponential_error(arithmetic.dtype)
    dots = score.magnitude + score.error
    biases = deepest + 2 * dots + top
    off = score.error + unit * arb(TWICE) * biases + unit * (dots + biases) + unit * deepest - (1 - slip).log()
    far = 4 * count * (off - deepest).exp()
    result = []
    for one in value:
        spread = 2 * one.magnitude
        gamma, most = arithmetic.gamma(count), one.magnitude + one.error
        arithmetic.checked(Rounded(count * one.magnitude, count * (one.error + gamma * most)))
        sums = (1 + unit) * (1 + gamma) / (1 - gamma) - 1
        moved = ((off / 2).tanh() + far) * (spread + 2 * one.error)
        error = moved + one.error + sums * most + 4 * count * arithmetic.tiny * (1 + most)
        result.append(arithmetic.checked(Rounded(one.magnitude, error)))
    return result


def _largest_bias(attention: Attention, h: int, length: int) -> tuple[arb, int]:
    """(|b_max| of the biases that are seen from any position, terms of the sums)."""
    window = attention.window
    if window == "full":
        return arb(0), length
    single = replace(
        attention, decay=attention.decay[h : h + 1], rpe=attention.rpe[h : h + 1],
        table=None if attention.table is None else attention.table[h : h + 1],
    )  # fmt: skip
    constants = score_constants(single, length)
    # A position i sees the distances 0 … i and, over the infinite past, what lies before it; the largest of them, for every i.
    seen = np.maximum.accumulate(constants["bias"][0].astype(float))
    if window == "infinite":
        seen = np.maximum(seen, constants["beyond"][0])
    seen = seen[np.isfinite(seen)]
    reach = length if attention.table is None else min(length, attention.table.shape[1])
    top = maximum([abs(arb(rational(float(b)))) for b in (seen.max(), seen.min())]) if len(seen) else arb(0)
    return top * (1 + 2 * arb(fmpq(1, 2**20))), reach + 1
