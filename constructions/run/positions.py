"""What heads read of positions, for arrays of a given length: computed once, outside XLA, correctly rounded from balls.

Scores of dp and nf heads (`score_constants`):

* `bias` (H, N): p φ(s) or b(s) for every distance s < N, −∞ where a head does not look;
* `beyond` (H, N): for every position i the logarithm of what lies before the array, log Σ_{s>i} e^{pφ(s)}, that is
  −p(i+1) − log(1−e^{−p}) for lin heads, log ζ(p, i+1) for log heads, log r^{−p} ζ(p, i+1+1/r) for kerple heads, and the tail of a
  table, −∞ where it has ended;
* `whole` (H,): the same over all s ≥ 0.

Heads whose weights read positions only and that are neither scanned nor cut to a few taps (`kernel_constants`): the weights themselves, if
the array is no longer than `MAX_TAPS`. Over the infinite past they are divided by their sum (but for tmx), and `beyond` is what lies before
the array; in a finite window `mass` is the sum that position i divides by, 1 where a head sees nothing. Heads with a stride c see c
interleaved arrays: lengths and distances are then counted in steps of c.

ζ(p, i+1) = ζ(p, N+1) + Σ_{i<s≤N} s^{−p} is added up from one value of Hurwitz's zeta function: all terms are positive, nothing cancels.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate

import numpy as np
from flint import arb

from analyzer.numbers.exact import rational, working_precision
from constructions.network.transformer import Attention

BITS = 160
MAX_TAPS = 512
"""Beyond this an FFT is cheaper than summing taps for arrays of a few thousand tokens and more."""
REMEMBERED = 32
"""Layers and lengths whose constants are kept."""


def score_constants(attention: Attention, length: int) -> dict[str, np.ndarray]:
    """`bias`, `beyond` and `whole` of a layer whose scores read the stream; `beyond` and `whole` for the infinite window only."""
    dtype = str(np.asarray(attention.decay).dtype)
    heads = [_logarithms(*head, attention.window, length, dtype) for head in _heads(attention)]
    names = ("bias", "beyond", "whole") if attention.window == "infinite" else ("bias",)
    return {name: np.array([head[k] for head in heads]).astype(dtype) for k, name in enumerate(names)}


def kernel_constants(attention: Attention, heads: Sequence[int], length: int) -> dict[str, np.ndarray]:
    """`weights` (H, N) and `beyond` or `mass` (H, N) of these heads of a layer whose weights read positions only."""
    dtype = str(np.asarray(attention.decay).dtype)
    every = _heads(attention)
    found = [_weights(*every[h], attention.window, attention.kind == "tmx", length) for h in heads]
    second = "beyond" if attention.window == "infinite" else "mass"
    return {name: np.array([head[k] for head in found]).astype(dtype) for k, name in enumerate(("weights", second))}


def whole_masses(attention: Attention) -> np.ndarray:
    """Σ_{s≥0} e^{pφ(s)} of every head over the infinite past, (H,)."""
    with working_precision(BITS):
        masses = [head_tails(rpe, arb(rational(p)), [], [])[0] for rpe, p, _, _ in _heads(attention)]
        return np.array([float(mass) for mass in masses]).astype(np.asarray(attention.decay).dtype)


def _heads(attention: Attention) -> list[tuple[str, float, tuple[float, ...], float]]:
    """(type, decay, table, rate) of every head: plain numbers, which can be remembered; a rate of 0 where there is none."""
    decays = np.asarray(attention.decay, np.float64)
    tables = [()] * len(decays) if attention.table is None else [tuple(map(float, row)) for row in np.asarray(attention.table)]
    rates = [0.0] * len(decays) if attention.rate is None else [float(r) for r in np.asarray(attention.rate)]
    return [(rpe, float(p), table, r) for rpe, p, table, r in zip(attention.rpe, decays, tables, rates, strict=True)]


def head_weights(rpe: str, decay: arb, table: Sequence[arb], length: int, rate: arb | None = None) -> list[arb]:
    """e^{pφ(s)} or e^{b(s)} at s < N in balls, 0 where a head does not look."""
    if table:
        return [*(b.exp() for b in table[:length]), *[arb(0)] * (length - len(table))]
    return [position_weight(rpe, decay, s, rate) for s in range(length)]


def position_weight(rpe: str, decay: arb, s: int, rate: arb | None = None) -> arb:
    """e^{pφ(s)}, 0 where a head does not look; heads that do not see positions have p = 0."""
    if rate is not None:
        return (1 + rate * s) ** -decay
    if rpe == "log":
        return arb(s) ** -decay if s else arb(0)
    return (-decay * s).exp()


def mass_beyond(rpe: str, decay: arb, start: int, rate: arb | None = None) -> arb:
    """Σ_{s≥start} e^{pφ(s)} over the infinite past."""
    if rate is not None:
        return rate**-decay * decay.zeta(start + 1 / rate)
    if rpe == "log":
        return decay.zeta(arb(max(start, 1)))
    return (-decay * start).exp() / (1 - (-decay).exp())


def head_tails(rpe: str, decay: arb, table: Sequence[arb], weights: Sequence[arb], rate: arb | None = None) -> list[arb]:
    """Σ_{s≥i} over the infinite past for i = 0 … N, from the weights at s < N and what lies beyond."""
    length = len(weights)
    rest = sum((b.exp() for b in table[length:]), arb(0)) if table else mass_beyond(rpe, decay, length, rate)
    return list(accumulate(reversed(weights), initial=rest))[::-1]


@lru_cache(maxsize=REMEMBERED)
def _logarithms(
    rpe: str, decay: float, table: tuple[float, ...], rate: float, window: str, length: int, dtype: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    steps = np.arange(length, dtype=dtype)
    bias = np.full(length, -np.inf, dtype)
    with working_precision(BITS), np.errstate(over="ignore"):
        p = arb(rational(decay))
        if table:
            bias[: len(table)] = table[:length]
        elif rpe == "kerple":
            bias[:] = [float(-p * (1 + arb(rational(rate)) * s).log()) for s in range(length)]
        elif rpe == "log":
            bias[1:] = [float(-p * arb(s).log()) for s in range(1, length)]
        else:
            bias[:] = -np.dtype(dtype).type(decay) * steps  # one product of two numbers of the type: correctly rounded
        if window != "infinite":
            return bias, bias, bias
        if rpe == "lin":
            gain = (1 - (-p).exp()).log()
            return bias, np.array([float(-p * (i + 1) - gain) for i in range(length)]), np.array(float(-gain))
        top = max(table, default=0.0)  # e^{10³} is beyond floats, not beyond balls; far tables are shifted to be safe
        shifted = [arb(rational(b)) - arb(rational(top)) for b in table]
        r = arb(rational(rate)) if rpe == "kerple" else None
        sums = head_tails(rpe, p, shifted, head_weights(rpe, p, shifted, length, r), r)
        logs = [float(m.log() + arb(rational(top))) if m > 0 else -np.inf for m in sums]
        return bias, np.array(logs[1:]), np.array(logs[0])


@lru_cache(maxsize=REMEMBERED)
def _weights(
    rpe: str, decay: float, table: tuple[float, ...], rate: float, window: str, plain: bool, length: int
) -> tuple[np.ndarray, np.ndarray]:
    with working_precision(BITS):
        p, top, r = arb(rational(decay)), max(table, default=0.0), arb(rational(rate)) if rpe == "kerple" else None
        shifted = [arb(rational(b)) - arb(rational(top)) for b in table]
        weights = head_weights(rpe, p, shifted, length, r)
        if window == "infinite":
            sums = head_tails(rpe, p, shifted, weights, r)
            whole = arb(1) if plain else sums[0]
            return np.array([float(w / whole) for w in weights]), np.array([float(m / whole) for m in sums[1:]])
        seen = [1.0 if plain or m == 0 else float(m) for m in accumulate(weights)]
        return np.array([float(w) for w in weights]), np.array(seen)
