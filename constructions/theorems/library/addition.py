"""The weights of addition (statement: `analyzer.theorems.library.addition`).

*plateaus*, residual stream of width 4: the digits' sum d, its prefix sum F = (B−1)f, and two slots that are 0 where there is a carry.

    W_E      d = 16·(a/16) + 16·(b/16)
    layer 1  one lin head, p = ln B: W_V reads d, W_O = B writes F, so that F = B(1−1/B)f has whole-number thresholds;
             FFN: q_in = relu(K(θ_in − F + (B−1)d)), q_out = relu(K(θ_out − F)), θ_in = (B−1)(1 − g/2), θ_out = (B−1)(B − g/2), g = B^{−n},
             K the least power of 2 with K(B−1)g ≥ 8
    layer 2  attention off; y = relu(d) + relu(1 − q_in) − B relu(1 − q_out)

*integers*, residual stream of width 1, P the least power of 2 that is at least 4B, δ = g(P−B)/(2PB):

    W_E      d/P
    layer 1  the same head with W_V = 1, W_O = (P−B)/(B−1): the stream holds û = (d + (P−B)f/B)/P;
             FFN: û ← û − [relu(û + 1/P + δ − 1/2)]
    layer 2  attention off; y = [relu(Bû + B(1/P + δ) − 1/2)]
"""

from typing import Any

from flint import arb, fmpq

from analyzer.numbers.exact import to_grid, working_precision
from analyzer.targets.tasks.addition import SCALE, AdditionTarget
from analyzer.theorems.library.addition import Adder
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, exact_array, zeros
from constructions.theorems.construction import Construction
from constructions.theorems.jl_4_2 import rounded, silent

PLATEAUS = ("sum", "prefix", "no-carry-in", "no-carry-out")


def slots(target: AdditionTarget, network: Transformer) -> dict[str, range]:
    """Named coordinates of the residual stream."""
    names = PLATEAUS if network.embedding.shape[0] == len(PLATEAUS) else ("prefix",)
    return {name: range(j, j + 1) for j, name in enumerate(names)}


def meanings(target: AdditionTarget, network: Transformer) -> dict[str, str]:
    """What the slots hold once their layer has written them."""
    if "sum" not in slots(target, network):
        return {"prefix": "the prefix sum, scaled; after layer 1 less its carry"}
    return {
        "sum": "d_t, the sum of the two digits",
        "prefix": f"{target.base - 1} times the prefix sum f_t",
        "no-carry-in": "0 if a carry comes in, at least 1 if not",
        "no-carry-out": "0 if a carry goes out, at least 1 if not",
    }


def build(target: AdditionTarget, options: Adder | None = None, **keywords: Any) -> Construction:
    """Build the network; its sizes are always the same, its thresholds follow from digits and base."""
    options = Adder.of(options, keywords)
    network = with_plateaus(target) if options.restore == "plateaus" else with_integers(target)
    return Construction(target, options, network if options.dtype == "exact" else rounded(network, options.dtype))


def decay(target: AdditionTarget) -> fmpq:
    """ln B on a grid of 2^{−bits} ≤ B^{−n−1}/64: 16 times that is what the gap B^{−n} loses by it at most, less than 1/8 of it.

    64 bits at least, so that floats hold the number that is nearest to ln B.
    """
    bits = max((target.base ** (target.digits + 1)).bit_length() + 6, 64)
    with working_precision(bits + 64):
        return to_grid(arb(target.base).log(), bits)


def head(target: AdditionTarget, width: int, slot: int, weight: fmpq) -> Attention:
    """A lin head that reads slot 0 and writes its prefix sums, times a weight, into a slot."""
    value, output, nothing = zeros(1, 1, width), zeros(1, width, 1), zeros(1, 0, width)
    value[0, 0, 0], output[0, slot, 0] = fmpq(1), weight
    return Attention(exact_array([decay(target)]), value, output, nothing, nothing, zeros(0, width), ("lin",))


def with_plateaus(target: AdditionTarget) -> Transformer:
    """Exact weights of the network of ReLUs."""
    base, width = target.base, len(PLATEAUS)
    half = fmpq(1, 2 * base**target.digits)
    steep = 1
    while steep * 2 * (base - 1) * half < 8:
        steep *= 2
    embedding, inner, outer = zeros(width, 2), zeros(2, width), zeros(width, 2)
    embedding[0] = fmpq(SCALE)
    inner[:, 1] = fmpq(-steep)
    inner[0, 0] = fmpq(steep * (base - 1))
    bias = exact_array([steep * (base - 1) * (threshold - half) for threshold in (1, base)])
    outer[2, 0] = outer[3, 1] = fmpq(1)
    first = Layer(head(target, width, 1, fmpq(base)), FeedForward(inner, bias, outer))
    read = zeros(3, width)
    read[0, 0], read[1, 2], read[2, 3] = fmpq(1), fmpq(-1), fmpq(-1)
    last = Layer(silent(width), FeedForward(read, exact_array([0, 1, 1]), exact_array([[1, 1, -base]])))
    return Transformer(embedding, zeros(width), (first, last))


def with_integers(target: AdditionTarget) -> Transformer:
    """Exact weights of the network of 13 numbers."""
    base, whole = target.base, 1
    while whole < 4 * base:
        whole *= 2
    shift = fmpq(1, whole) + fmpq(whole - base, 2 * whole * base ** (target.digits + 1))
    carry = FeedForward(exact_array([[1]]), exact_array([shift - fmpq(1, 2)]), exact_array([[-1]]), ("integer",))
    digit = FeedForward(exact_array([[base]]), exact_array([base * shift - fmpq(1, 2)]), exact_array([[1]]), ("integer",))
    first = Layer(head(target, 1, 0, fmpq(whole - base, base - 1)), carry)
    return Transformer(exact_array([[fmpq(SCALE, whole)] * 2]), zeros(1), (first, Layer(silent(1), digit)))
