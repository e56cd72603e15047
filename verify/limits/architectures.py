"""One memory kernel seen by several architectures: lower ≤ least worst-case error ≤ upper for every size, and sizes for an error.

The classes, the sizes and the proofs are those of `analyzer.limits.curse_of_memory`. From below come singular values, sign changes and
tails; from above explicit networks whose ℓ¹ error is enclosed with its infinite tail:

    rnn   a fitted lin bank, or a realisation with complex poles, of the delayed kernel ρ(s−1): κ(s) = Σ_h A_h z_h^{s+1}; what ssm reaches
          with fewer states, one for the skip; a delay line
    ssm   a fitted lin bank, W = diag(e^{−p_h}); a realisation; a delay line beside the skip
    cnn   the truncated kernel
    lin, log   a fitted bank

Smaller networks are part of larger ones, and lower bounds of larger classes hold for smaller ones: sizes beyond what is searched keep the
best of what was found, and a bound of 0. The size that is needed is one above the largest that certainly fails; the size that is enough is
that of a network that certainly does it. Completely monotone kernels are approximated by real poles only, which serve them best.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from analyzer.errors import Refusal
from analyzer.kernels.memory_kernels import MemoryKernel, parse_kernel
from analyzer.limits.curse_of_memory import ID, parameters, state_bound, window_error
from analyzer.limits.hankel import lower_bound
from analyzer.numbers.exact import lower, upper
from constructions.banks.kernel_banks import MAX_FITTED, bank_error, fitted_bank
from constructions.banks.state_spaces import realised_space, space_error

Architecture = Literal["rnn", "ssm", "cnn", "lin", "log"]
MOST_RANK = 32
"""States and heads up to which lower bounds are looked for: double precision does not see singular values of more."""
WIDEST = 1 << 48
"""Windows that are looked at for an error."""
EXACT = 1e-13
"""A bank below this error is as good as a realisation in double precision can be."""
COUNTING = "numbers that determine a linear network's kernel: 2m (rnn), 2m+1 (ssm), w (cnn), 2H+1 (lin, log)"


@dataclass(frozen=True)
class Described:
    """An architecture in words."""

    label: str
    counts: str
    about: str


ARCHITECTURES: dict[Architecture, Described] = {
    "rnn": Described("linear RNN", "states", "m states, h_t = W h_(t-1) + U x_t, any real W, any function of h_t"),
    "ssm": Described("SSM", "states", "the same with a skip: any function of h_t and x_t"),
    "cnn": Described("CNN", "window", "any function of the last w tokens, in one layer or a stack that reaches so far"),
    "lin": Described("Transformer, lin", "heads", "one dp-free layer with H heads of kernels e^(-ps), any feed-forward network"),
    "log": Described("Transformer, log", "heads", "one dp-free layer with H heads of kernels s^-p, any feed-forward network"),
}


@dataclass(frozen=True)
class ErrorSide:
    """One side of an error, rounded outwards, and what shows it."""

    value: float
    by: str


@dataclass(frozen=True)
class SizedPair:
    """lower ≤ E(size) ≤ upper of an architecture."""

    architecture: Architecture
    size: int
    below: ErrorSide
    above: ErrorSide


@cache
def _tail(kernel: MemoryKernel, start: int) -> tuple[float, float]:
    least, most = window_error(kernel, start)
    return lower(least), upper(most)


def _unused(name: Architecture) -> int:
    """The window that a network without states or heads has: the current token, which a linear RNN sees through its state only."""
    return 0 if name == "rnn" else 1


@cache
def below(name: Architecture, kernel: MemoryKernel, size: int) -> ErrorSide:
    """No network of the class and size has a smaller error."""
    if name == "cnn" or size == 0:
        return ErrorSide(max(0.0, _tail(kernel, size if name == "cnn" else _unused(name))[0]), "tail")
    if size > MOST_RANK:
        return ErrorSide(0.0, "none")
    found = state_bound(kernel, size, name == "ssm") if name in ("rnn", "ssm") else lower_bound(kernel, _rpe(name), size)
    return ErrorSide(max(0.0, found.value), found.kind if found.claim > 0 else "none")


def _rpe(name: Architecture) -> Literal["lin", "log"]:
    return "log" if name == "log" else "lin"


@cache
def above(name: Architecture, kernel: MemoryKernel, size: int) -> ErrorSide:
    """A network of the class and size has this error."""
    if name == "cnn":
        return ErrorSide(_tail(kernel, size)[1], "truncation")
    nothing = ErrorSide(_tail(kernel, _unused(name))[1], "no states" if name in ("rnn", "ssm") else "no heads")
    if size == 0:
        return nothing
    searched = min(size, MAX_FITTED)
    if name in ("lin", "log"):
        found = [_bank(_rpe(name), kernel, searched)]
    elif name == "ssm":
        found = [*_states(kernel, searched), ErrorSide(_tail(kernel, size + 1)[1], "delay line")]
    else:
        found = _states(kernel.delayed(), searched) if kernel.at_zero else [_with_skip(kernel, size - 1)]
        found.append(ErrorSide(_tail(kernel, size)[1], "delay line"))
    return min((*(side for side in found if side is not None), nothing), key=lambda side: side.value)


def _with_skip(kernel: MemoryKernel, states: int) -> ErrorSide:
    """What an RNN with one more state reaches, which holds x_t in place of the skip."""
    found = above("ssm", kernel, states)
    return ErrorSide(found.value, f"{found.by} and x_t")


def _states(kernel: MemoryKernel, size: int) -> list[ErrorSide | None]:
    """What so many states and a skip reach: a lin bank, and a realisation unless that is exact or real poles are best."""
    bank = _bank("lin", kernel, size)
    if bank is not None and (bank.value < EXACT or completely_monotone(kernel)):
        return [bank]
    space = realised_space(kernel, size)
    return [bank, None if space is None else ErrorSide(upper(space_error(space, kernel).most), "realisation")]


def _bank(rpe: Literal["lin", "log"], kernel: MemoryKernel, heads: int) -> ErrorSide | None:
    try:
        return ErrorSide(upper(bank_error(fitted_bank(rpe, kernel, 1, heads), kernel).most), f"{rpe} bank")
    except Refusal:  # no bank was found: something else serves
        return None


def completely_monotone(kernel: MemoryKernel) -> bool:
    """Whether every term is one sign's exponential times negative powers of s + β, β > −1: a mixture of e^{−ps} on s ≥ 1, p > 0."""
    signs = {c > 0 for c, _ in kernel.terms}
    falling = all(q < 0 and beta > -alpha for _, factors in kernel.terms for alpha, beta, q in factors.powers)
    return len(signs) == 1 and falling and not any(factors.waves or factors.exponent[2] != 0 for _, factors in kernel.terms)


def pairs(kernel: MemoryKernel, name: Architecture, sizes: Sequence[int]) -> list[SizedPair]:
    """Both sides for every size, in increasing order; what a smaller network reaches a larger one does too, and so for lower bounds."""
    ordered = sorted(set(sizes))
    lows, highs = [below(name, kernel, size) for size in ordered], [above(name, kernel, size) for size in ordered]
    for k in range(1, len(ordered)):
        fewer = [_with_skip(kernel, ordered[k - 1])] if name == "rnn" else []
        highs[k] = min(highs[k], highs[k - 1], *fewer, key=lambda side: side.value)
        lows[-k - 1] = max(lows[-k - 1], lows[-k], key=lambda side: side.value)
    return [SizedPair(name, size, low, high) for size, low, high in zip(ordered, lows, highs, strict=True)]


def needed(name: Architecture, kernel: MemoryKernel, error: float) -> int:
    """Every smaller network certainly errs by more than `error`; as far as lower bounds are looked for."""
    if name == "cnn":
        return _first(lambda window: not below("cnn", kernel, window).value > error)
    return next((size for size in range(MOST_RANK + 1) if not below(name, kernel, size).value > error), MOST_RANK + 1)


def enough(name: Architecture, kernel: MemoryKernel, error: float, start: int) -> int | None:
    """A size at which a network certainly errs by `error` at most, looked for from `start` on; None if none was found."""
    if name == "cnn":
        found = _first(lambda window: above("cnn", kernel, window).value <= error)
        return found if found <= WIDEST else None
    return next((size for size in range(start, MAX_FITTED + 1) if above(name, kernel, size).value <= error), None)


def _first(holds: Callable[[int], bool]) -> int:
    """The end of doubling and halving: a window ≥ 1 at which `holds`, the one before it not; beyond `WIDEST` if there is none."""
    high = 1
    while not holds(high):
        if high >= WIDEST:
            return high + 1
        high *= 2
    low = high // 2  # it does not hold there, or it is 0
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def architecture_limits(text: str, sizes: Sequence[int], error: float | None, step: Callable[[str], None]) -> dict[str, Any]:
    """What `lemmaformer limits architectures` prints."""
    kernel = parse_kernel(text)
    rows: list[dict[str, Any]] = []
    for name in ARCHITECTURES:
        step(ARCHITECTURES[name].label)
        rows += [describe(pair) for pair in pairs(kernel, name, sizes)]
    found = {"theorem": ID, "kernel": text, "sizes": sorted(set(sizes)), "error": error, "counting": COUNTING, "rows": rows}
    summaries = []
    for name, about in ARCHITECTURES.items():
        step(f"{about.label}, sizes for an error")
        row = {"architecture": name, "label": about.label, "counts": about.counts, "about": about.about}
        summaries.append(row | ({} if error is None else sizes_for(name, kernel, error)))
    return found | {"architectures": summaries, "order": consistent(rows)}


def sizes_for(name: Architecture, kernel: MemoryKernel, error: float) -> dict[str, Any]:
    """{needs, enough, parameters}: sizes for an error, and the parameters of the one that is enough."""
    least = needed(name, kernel, error)
    most = enough(name, kernel, error, least)
    return {"needs": least, "enough": most, "parameters": None if most is None else parameters(name, most)}


def describe(pair: SizedPair) -> dict[str, Any]:
    """A row as plain data."""
    return {
        "architecture": pair.architecture,
        "size": pair.size,
        "parameters": parameters(pair.architecture, pair.size),
        "lower": pair.below.value,
        "upper": pair.above.value,
        "lower_by": pair.below.by,
        "upper_by": pair.above.by,
    }


def consistent(rows: Iterable[dict[str, Any]]) -> bool:
    """Whether lower ≤ upper everywhere, also across architectures where one class contains another, (4) of the law."""
    known = {(row["architecture"], row["size"]): row for row in rows}

    def ordered(larger: tuple[str, int], smaller: tuple[str, int]) -> bool:
        return larger not in known or smaller not in known or bool(known[larger]["lower"] <= known[smaller]["upper"])

    contained = (("ssm", "rnn", 0), ("rnn", "ssm", -1), ("rnn", "cnn", 0), ("ssm", "lin", 0), ("ssm", "cnn", 1))
    return all(
        row["lower"] <= row["upper"] and all(ordered((big, size), (small, size + shift)) for big, small, shift in contained if big == name)
        for (name, size), row in known.items()
    )
