"""A memory kernel seen by recurrent networks: C_RNN, the network that is exact, and what order and mixing do (`analyzer.limits.jl_6`)."""

from collections.abc import Sequence
from typing import Any

from flint import fmpq

from analyzer.errors import Refusal
from analyzer.kernels.memory_kernels import parse_kernel
from analyzer.limits.jl_6 import ID, LONGEST, PRECISION, causal_floor, mixing, rnn_complexity, swapped_ends
from analyzer.numbers.exact import nearest, working_precision
from analyzer.ranges import check_range
from constructions.theorems.linear_rnn import exponential_rnn
from verify.theorems.linear_rnn import verify_linear_rnn


def rnn_limits(text: str, length: int, swap: int, theta: Sequence[fmpq] = (), dtype: str = "float32") -> dict[str, Any]:
    """Everything section 6 says about one kernel, on sequences of `length` tokens whose first and last `swap` are exchanged."""
    check_range("length", length, 1, LONGEST)
    order = swapped_ends(length, swap)
    kernel = parse_kernel(text)
    complexity = rnn_complexity(kernel)
    result: dict[str, Any] = {
        "theorem": ID,
        "kernel": text,
        "length": length,
        "swapped": swap,
        "complexity": {
            "c1": None if complexity.c1 is None else nearest(complexity.c1),
            "c2": [complexity.c2_lower, complexity.c2_upper] if complexity.in_rnn_space else None,
            "c_rnn": [complexity.lower, complexity.upper] if complexity.in_rnn_space else None,
        },
    }
    with working_precision(PRECISION):
        floor = causal_floor(kernel.values(0, length), order)
    result["floor"] = {
        "breaking": list(floor.breaking),
        "supremum": floor.supremum,
        "mean_square": floor.mean_square,
        "linear": floor.linear,
        "unbiased": floor.unbiased,
    }
    if theta:
        mixed = mixing(kernel, theta)
        numbers = {"c2": mixed.c2, "allowed": mixed.allowed, "holds": mixed.holds}
        result["mixing"] = {**numbers, "rank_before": mixed.ranks[0], "rank_after": mixed.ranks[1]}
    try:
        chain = verify_linear_rnn(exponential_rnn(kernel, dtype), kernel)
        result["constructed"] = {**chain.chain(), "sizes": chain.sizes, "dtype": dtype}
    except Refusal as refusal:
        result["constructed"] = {"refused": str(refusal)}
    return result
