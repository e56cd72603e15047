"""Directed operands: numbers of a float type at which arithmetic goes wrong first if it does.

With p bits, u = 2^{−p}, least normal number η and largest number Ω: powers of 2, their neighbours (last bits set, results at ties), three
times powers of 2, sizes 1, u and 1/u (sums that lose one operand, cancellations), √η and √Ω (products at both ends), η and Ω themselves.
Random mantissas stand beside them, of a fixed seed.
"""

import itertools
import math
from dataclasses import dataclass

import numpy as np

from constructions.network.exponential import DEEPEST
from constructions.network.precision import MANTISSA

RANDOM = 1000
"""Pairs with random mantissas beside the directed ones."""
BATCH, HEADS = 2, 2
"""Lengths of the axes … and h of a product of matrices."""


def directed(dtype: str) -> np.ndarray:
    """0 and normal numbers of both signs, positive ones first."""
    p, kind = MANTISSA[dtype], np.dtype(dtype).type
    least, most = int(np.finfo(dtype).minexp), int(np.finfo(dtype).maxexp)
    exponents = {
        0,
        1,
        -1,
        p // 2,
        -(p // 2),
        p - 1,
        p,
        -p,
        1 - p,
        -p - 1,
        p + 1,
        least // 2,
        most // 2,
        least,
        least + 1,
        least + p,
        most - 1,
    }
    found = {kind(0.0), np.finfo(dtype).max}
    for exponent in exponents:
        power = kind(math.ldexp(1.0, exponent))
        near = {power, np.nextafter(power, kind(np.inf)), np.nextafter(power, kind(0)), power * kind(1.5)}
        found |= {x for x in near if x >= np.finfo(dtype).tiny and np.isfinite(x)}
    positive = np.array(sorted(found), dtype)
    return np.concatenate([positive, -positive[1:]])


def scattered(rng: np.random.Generator, dtype: str, shape: int | tuple[int, ...], least: int, most: int) -> np.ndarray:
    """±(1 + k 2u) 2^e with uniform k < 1/(2u) and least ≤ e ≤ most."""
    bits = MANTISSA[dtype] - 1
    mantissa = 1 + rng.integers(0, 1 << bits, shape) / float(1 << bits)
    return (np.ldexp(mantissa, rng.integers(least, most + 1, shape)) * rng.choice([-1.0, 1.0], shape)).astype(dtype)


def pairs(dtype: str, small: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of directed numbers, the first not negative; with those of a list of `small` ones; and random ones of all sizes."""
    rng, numbers = np.random.default_rng(0), directed(dtype)
    positive = numbers[: len(numbers) // 2 + 1]
    chosen = list(itertools.product(positive, numbers))
    chosen += itertools.product(small, [*small, *numbers[:: max(1, len(numbers) // 16)]])
    first, second = (np.array(column, dtype) for column in zip(*chosen, strict=True))
    p, info = MANTISSA[dtype], np.finfo(dtype)
    near = [scattered(rng, dtype, RANDOM, -p, p) for _ in range(2)]
    up, down = scattered(rng, dtype, RANDOM, 1, info.maxexp // 2), scattered(rng, dtype, RANDOM, info.minexp // 2, -1)
    with_up = float(info.max) / up.astype(np.float64) * rng.uniform(0.25, 1, RANDOM)  # products at both ends of the range
    with_down = float(info.tiny) / down.astype(np.float64) * rng.uniform(0.5, 4, RANDOM)
    return np.concatenate([first, near[0], up, down]), np.concatenate([second, near[1], with_up.astype(dtype), with_down.astype(dtype)])


ROWS = (
    "ones", "random numbers", "1 before many just below 2u", "1 before many u", "halves that cancel", "large ones with changing signs",
    "the least normal numbers", "subnormal numbers",
)  # fmt: skip


def rows(dtype: str, terms: int, seed: int) -> np.ndarray:
    """Terms of sums, (8, n), as `ROWS` says."""
    rng, kind, info = np.random.default_rng(seed), np.dtype(dtype).type, np.finfo(dtype)
    unit, half = kind(info.eps / 2), terms // 2
    nearly = np.full(terms, np.nextafter(2 * unit, kind(0)), dtype)
    ties = np.full(terms, unit, dtype)
    nearly[0] = ties[0] = 1
    cancelling = scattered(rng, dtype, terms, -3, 3)
    cancelling[half : 2 * half] = -cancelling[:half]
    large = np.where(np.arange(terms) % 2, -1, 1) * scattered(rng, dtype, terms, MANTISSA[dtype], MANTISSA[dtype])
    tiny = scattered(rng, dtype, terms, int(info.minexp), int(info.minexp) + 2)
    subnormal = np.full(terms, info.smallest_subnormal * 5, dtype)
    return np.stack([np.ones(terms), scattered(rng, dtype, terms, -2, 2), nearly, ties, cancelling, large, tiny, subnormal]).astype(dtype)


@dataclass(frozen=True)
class Contraction:
    """Operands of a product of matrices. Each output is a sum Σ a_i b_i of a row of terms `left_rows` times one of `right_rows`."""

    form: str
    left: np.ndarray
    right: np.ndarray
    left_rows: np.ndarray
    right_rows: np.ndarray
    left_of: np.ndarray
    right_of: np.ndarray
    """Which rows meet in each output, in the shape of all outputs."""

    @property
    def terms(self) -> int:
        return int(self.left_rows.shape[1])


def contraction(form: str, terms: int, kept: int, dtype: str) -> Contraction:
    """Directed operands of a form with about so many terms; axes that are kept and are not … or h have the length `kept`."""
    given, out = form.replace("...", "z").split("->")
    summed = [c for c in given.split(",")[0] if c in given.split(",")[1] and c not in out]
    length = dict.fromkeys(given.replace(",", ""), kept) | {"z": BATCH, "h": HEADS}
    length |= {c: max(1, terms // (HEADS if "h" in summed else 1)) for c in summed if c != "h"}
    count = math.prod(length[c] for c in summed)
    arrays, tables, places = [], [], []
    for seed, letters in enumerate(given.split(","), start=1):
        own = [c for c in letters if c not in summed]
        pattern, shape = rows(dtype, count, seed), [length[c] for c in own]
        which = np.arange(math.prod(shape)).reshape(shape) % len(pattern)
        whole = pattern[which].reshape([length[c] for c in (*own, *summed)])
        arrays.append(whole.transpose([[*own, *summed].index(c) for c in letters]))
        tables.append(pattern)
        ordered = which.transpose([own.index(c) for c in out if c in own]).reshape([length[c] if c in own else 1 for c in out])
        places.append(np.broadcast_to(ordered, [length[c] for c in out]))
    return Contraction(form, *arrays, *tables, *places)


def exponents(dtype: str) -> np.ndarray:
    """Arguments of e^x: ends, 0, neighbours of the places (k + 1/2) ln 2 where the reduction jumps, of k ln 2, tiny, random ones."""
    rng, deepest, kind = np.random.default_rng(3), DEEPEST[dtype], np.dtype(dtype).type
    halves = np.arange(math.floor(-2 * deepest / math.log(2)), math.ceil(2 * deepest / math.log(2)) + 1) * (math.log(2) / 2)
    jumps = halves[np.abs(halves) < deepest].astype(dtype)
    around = [np.nextafter(jumps, kind(np.inf)), jumps, np.nextafter(jumps, kind(-np.inf))]
    ends = [0.0, -0.0, deepest, -deepest, np.finfo(dtype).eps, -np.finfo(dtype).tiny]
    spread = rng.uniform(-deepest, deepest, RANDOM)
    return np.concatenate([*around, np.array(ends), spread]).astype(dtype)
