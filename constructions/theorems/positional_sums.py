"""One softmax head with positions computes every linear map of a sequence: y_t = Σ_s A_ts x_s, tokens in [0, 1], any real τ×τ matrix A.

Statement. Tokens are pairs (s/P, x_s), P the least power of 2 that is no less than τ: in [JL]'s words, token domains are disjoint. The
network of [JL], one head, no residual, with m_h = 1, m_v = τ + 1, 2τ + 1 neurons in f̂ and 2τ in F̂, is exactly y = A x. The order of
the tokens is a permutation of the columns of A: it changes weights, and no size.

Proof. *Values.* For x ∈ [0, 1] and whole n, relu(x + n) − relu(n) is x for n ≥ 0 and 0 for n < 0; with n = position − s this is
x·1{position ≥ s}, and the difference of two neighbours is v_s = x·1{position = s}. One more neuron, relu(2 − position), is k =
1{position = 1}. *Weights.* With the logits κt·k of rank 1 the weights are p_t1 = e^{κt}/(e^{κt} + τ − 1) and 1/(e^{κt} + τ − 1) for all
others. So the mean of the values is (p_t1 x_1, …, p_tτ x_τ), that of k is p_t1, which grows with t and tells queries apart. *Read-out.*
Let L_t be the linear form with coefficients A_ts/p_ts, L_0 = 0, and |(L_j − L_{j−1})(mean)| ≤ B_j for the means of all queries. Gates
c_j(p) with c_j ≥ B_j at p_t1 for t ≥ j and c_j ≤ −B_j for t < j are affine in p, and

    F̂(mean) = Σ_j relu((L_j − L_{j−1})(mean) + c_j) − relu(c_j) = Σ_{j≤t} (L_j − L_{j−1})(mean) = L_t(mean) = Σ_s A_ts x_s. ∎

Remarks. A may have any signs. Exact networks hold A and e^{κt} to `BITS` bits; what that costs is certified
(`verify.experiments.positional_sums`), not assumed.
"""

from collections.abc import Sequence

from flint import arb, fmpq

from analyzer.numbers.exact import dyadic, working_precision
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, zeros
from constructions.theorems.jl_4_2 import silent

BITS = 192
STEP = fmpq(1, 8)
"""κ: steps of this size tell 32 queries apart by 0.004 at the least, and no weight is above 0.65."""


def weights(length: int) -> list[tuple[arb, arb]]:
    """(p_t1, p_ts for s > 1) for t = 1, …, τ."""
    powers = [(arb(STEP) * t).exp() for t in range(1, length + 1)]
    return [(power / (power + length - 1), 1 / (power + length - 1)) for power in powers]


def positional_sum(matrix: Sequence[Sequence[arb]]) -> Transformer:
    """Exact weights for a matrix of balls."""
    length = len(matrix)
    whole = 1 << (length - 1).bit_length()
    values, answers = 3, 3 + length
    width = answers + length + 1
    embedding = zeros(width, 2)
    embedding[0, 0] = embedding[1, 1] = fmpq(1)
    inner, bias, outer = zeros(2 * length + 1, width), zeros(2 * length + 1), zeros(width, 2 * length + 1)
    for s in range(length):
        for n, sign in ((2 * s, 1), (2 * s + 1, -1)):
            inner[n, 0], bias[n] = fmpq(whole), fmpq(-s - 1)
            outer[values + s, n] = fmpq(sign)
            if s > 0:
                outer[values + s - 1, n] = fmpq(-sign)
        inner[2 * s, 1] = fmpq(1)
    inner[-1, 0], bias[-1], outer[2, -1] = fmpq(-whole), fmpq(2), fmpq(1)
    query, key = zeros(1, 1, width), zeros(1, 1, width)
    query[0, 0, 0], key[0, 0, 2] = STEP * whole, fmpq(1)
    value, output = zeros(1, length + 1, width), zeros(1, width, length + 1)
    for k in range(length + 1):
        value[0, k, values + k if k < length else 2] = output[0, answers + k, k] = fmpq(1)
    attention = Attention(zeros(1), value, output, query, key, zeros(0, width), ("none",), "dp", "full")
    first = Layer(silent(width), FeedForward(inner, bias, outer))
    return Transformer(embedding, zeros(width), (first, Layer(attention, _gates(matrix, width, answers))))


def _gates(matrix: Sequence[Sequence[arb]], width: int, answers: int) -> FeedForward:
    """F̂: a pair of neurons for every query, open from that query on."""
    length = len(matrix)
    inner, bias, outer = zeros(2 * length, width), zeros(2 * length), zeros(1, 2 * length)
    with working_precision(BITS):
        shares = weights(length)
        rows = [[dyadic(a / shares[t][min(s, 1)], BITS) for s, a in enumerate(row)] for t, row in enumerate(matrix)]
        largest = [max((share[min(s, 1)].upper() for share in shares), key=float) for s in range(length)]
        for j, row in enumerate(rows):
            change = [a - b for a, b in zip(row, rows[j - 1], strict=True)] if j else row
            most = sum((abs(arb(c)) * share for c, share in zip(change, largest, strict=True)), arb(0))
            slope, shift = fmpq(0), fmpq(_power_above(most))
            if j:
                low, high = shares[j - 1][0], shares[j][0]
                slope = fmpq(_power_above(2 * most / (high - low)))
                shift = -slope * dyadic((low + high) / 2, BITS)
            for n, sign in ((2 * j, 1), (2 * j + 1, -1)):
                inner[n, answers + length], bias[n], outer[0, n] = slope, shift, fmpq(sign)
            inner[2 * j, answers : answers + length] = exact_array(change)
    return FeedForward(inner, bias, outer)


def _power_above(value: arb) -> int:
    """The least power of 2, from 1 on, that is certainly larger."""
    found = 1
    while not arb(found) > value:
        found *= 2
    return found
