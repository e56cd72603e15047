"""Given heads (1 + rs)^{−p}, KERPLE's logarithmic form: the least error of a lag over their weights, both sides certified.

With A = 1/r the normalised kernel is k(s) = (s + A)^{−p}/ζ(p, A), s ≥ 0, and ζ(p, A + e)/ζ(p, A) of it lie at s ≥ e: sums are Hurwitz
zeta functions. Linear programming proposes weights and a dual sequence (`constructions.banks.balanced`). Below, the sequence is checked
as in `verify.limits.pairs`. Above, ‖κ − 1_T‖₁ is added up term by term, then in blocks [a, b) of ratio 1 + 1/16, then by the triangle
inequality.

A block. With the middle m and the half length ρ, (m + A + ρt)^{−p} = Σ_k c_k t^k for |t| ≤ 1, where c_k = (m + A)^{−p} C(−p, k) q^k, q =
ρ/(m + A). The |c_k| have the ratios q(p + k)/(k + 1), which fall with k as p > 1: after K terms the rest is at most |c_K|/(1 − q(p +
K)/(K + 1)). Added up over the heads, with cancellation, they give |κ − C_0| ≤ Σ_{0<k<K} |C_k| + rest on the whole block. Where that is
below |C_0|, κ has one sign; neighbouring blocks of one sign are one run, and Σ_run |κ| = |Σ_run κ|, a difference of zeta functions. A
block without a sign costs (b − a) max |κ|.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from flint import arb, fmpq

from analyzer.limits import budgeted_error as theorem
from analyzer.limits.budgeted_error import Dual
from analyzer.limits.monotone_law import PowerHead
from analyzer.numbers.exact import lower, magnitude, upper, working_precision
from constructions.banks.balanced import fixed_heads
from constructions.banks.fit_columns import RESIDUAL, TOP, Head, rows_for
from verify.limits.pairs import check_lag, shown_for

BLOCK = 16
"""Blocks have length a/BLOCK: q ≤ 1/32, so that K terms leave a share of about 32^{−K} of a head."""
TERMS = 24
"""K: what is left is far below the weights of every type, 32^{−24} = 2^{−120}."""
NEGLIGIBLE = 2.0**-12
"""Blocks end where the triangle inequality leaves less than this share of what was added up before."""
FARTHEST = 1 << 11
"""They end at 2^FARTHEST in any case: weights of 2^53 and p = 1 + 1/16 need 2^1104."""


@dataclass(frozen=True)
class PowerBank:
    """Heads with exact weights on their normalised kernels, and the residual weight."""

    heads: tuple[PowerHead, ...]
    weights: tuple[fmpq, ...]
    residual: fmpq

    @property
    def weight_sum(self) -> fmpq:
        """|c| + Σ_h |a_h|."""
        return sum((abs(w) for w in self.weights), abs(self.residual))


@dataclass(frozen=True)
class PowerAudit:
    """lower ≤ least error ≤ upper over the weights of given heads, for one lag, and what shows it."""

    lag: int
    lower: float
    upper: float
    bank: PowerBank
    dual: Dual


def audit_powers(heads: Sequence[PowerHead], lag: int, unit: fmpq) -> PowerAudit:
    """The least ‖κ − 1_T‖₁ + u(|c| + Σ|a_h|) for given heads, both sides certified; the zero bank where nothing better is certain."""
    check_lag(lag)
    columns = {Head("power", head.exponent, offset=head.offset): head for head in heads}
    stored, dual = fixed_heads(list(columns), rows_for(lag, TOP["log"], 0, False), lag, unit)
    residual = stored.pop(RESIDUAL, fmpq(0))
    bank = PowerBank(tuple(columns[head] for head in stored), tuple(stored.values()), residual)
    most = power_upper(bank, lag, unit)
    if not most <= 1:
        bank, most = PowerBank((), (), fmpq(0)), arb(1)
    return PowerAudit(lag, lower(power_lower(heads, dual, lag, unit)), upper(most), bank, dual)


def power_lower(heads: Sequence[PowerHead], dual: Dual, lag: int, unit: fmpq) -> arb:
    """What a dual sequence shows for given heads: |δ_T| / max(sup|δ_s|, |δ_0|/u, |F_h|/u), F_h = Σ_i c_i · (mass at s ≥ e_i)."""
    with working_precision(theorem.working_bits(unit)):
        steps = list(zip(dual.edges, dual.steps(), strict=True))
        transforms = [sum((arb(c) * head.tail(e) for e, c in steps if c != 0), arb(0)) for head in heads]
        return shown_for(transforms, dual, lag, unit)


def power_upper(bank: PowerBank, lag: int, unit: fmpq) -> arb:
    """‖κ − 1_T‖₁ + u(|c| + Σ|a_h|), from above."""
    size = max(0, magnitude(arb(bank.weight_sum)))
    with working_precision(theorem.working_bits(unit) + size):
        return (power_error(bank, lag) + arb(unit) * arb(bank.weight_sum)).upper()


def power_error(bank: PowerBank, lag: int) -> arb:
    """Upper bound of ‖κ − 1_T‖₁ with its infinite tail; call it with bits for the weights."""
    raw = [arb(a) * head.amplitude() for head, a in zip(bank.heads, bank.weights, strict=True)]
    count = 4 * lag + 24
    values = [_value(bank.heads, raw, arb(s)) for s in range(count)]
    values[0] += arb(bank.residual)
    values[lag] -= 1
    total = sum((abs(v) for v in values), arb(0))
    begin, sign, edge = count, 0, count
    while edge.bit_length() <= FARTHEST and not _crude(bank, edge) <= NEGLIGIBLE * total:
        after = edge + max(1, edge // BLOCK)
        found, largest = _block(bank.heads, raw, edge, after)
        if found != sign or found == 0:
            total += abs(_sum(bank, begin, edge)) if sign else arb(0)
            begin, sign = edge, found
        if found == 0:
            total += (after - edge) * largest
        edge = after
    total += abs(_sum(bank, begin, edge)) if sign else arb(0)
    return (total + _crude(bank, edge)).upper()


def _value(heads: Sequence[PowerHead], raw: Sequence[arb], s: arb) -> arb:
    return sum((a * (s + arb(head.offset)) ** -arb(head.exponent) for head, a in zip(heads, raw, strict=True)), arb(0))


def _sum(bank: PowerBank, start: int, end: int) -> arb:
    """Σ κ(s) over start ≤ s < end, start ≥ 1."""
    return sum((arb(a) * (head.tail(start) - head.tail(end)) for head, a in zip(bank.heads, bank.weights, strict=True)), arb(0))


def _crude(bank: PowerBank, start: int) -> arb:
    """Σ_{s≥start} |κ(s)| by the triangle inequality."""
    return sum((abs(arb(a)) * head.tail(start) for head, a in zip(bank.heads, bank.weights, strict=True)), arb(0))


def _block(heads: Sequence[PowerHead], raw: Sequence[arb], start: int, end: int) -> tuple[int, arb]:
    """(the sign of κ on start ≤ s < end or 0 if it is open, an upper bound of |κ| there)."""
    middle, half = fmpq(start + end - 1, 2), fmpq(end - 1 - start, 2)
    sums, rest = [arb(0)] * TERMS, arb(0)
    for head, a in zip(heads, raw, strict=True):
        centre, p = arb(middle + head.offset), arb(head.exponent)
        q = arb(half / (middle + head.offset))
        term = a * centre**-p
        for k in range(TERMS):
            sums[k] += term
            term *= -q * (p + k) / (k + 1)
        ratio = q * (p + TERMS) / (TERMS + 1)
        if not ratio < 1:
            return 0, sum((abs(b) * (arb(start) + arb(h.offset)) ** -arb(h.exponent) for h, b in zip(heads, raw, strict=True)), arb(0))
        rest += abs(term) / (1 - ratio)
    swing = sum((abs(c) for c in sums[1:]), rest)
    sign = 1 if sums[0] > swing else -1 if -sums[0] > swing else 0
    return sign, abs(sums[0]) + swing
