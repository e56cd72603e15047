"""What no network of a class can do, as pairs lower ≤ optimum ≤ upper, both sides certified.

`lag_limit` and `horizon` are about the budgeted error E_u(T) over all decays, `audit` about given decays (the slopes of a real model).
The search (`constructions.banks.balanced`) proposes a bank and a dual sequence, and so do the shipped certificates of the standard lags
and arithmetics (`verify.limits.shipped`) and those that earlier runs kept; what is reported is recomputed from them in ball arithmetic.
A certificate that shows less than it claims, or less than a search would, is put aside and the search is made, begun with the certificate
of a neighbouring lag where there is one.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any, cast

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError, LemmaformerError, Refusal
from analyzer.limits import budgeted_error as theorem
from analyzer.limits.budgeted_error import Dual, PricedBank, RpeSet
from analyzer.limits.lag_law import applies, lag_law
from analyzer.limits.pi_law import best_pi_bound, hand_bound, rule
from analyzer.numbers.exact import dyadic, lower, maximum, nearest, rational, to_text, upper, working_precision
from analyzer.ranges import check_range
from constructions.banks.balanced import Balance, as_priced, balanced_bank, fixed_decays
from verify.limits.exact_parts import bank_as_data, dual_as_data
from verify.limits.shipped import kept, table
from verify.limits.shipped.table import DAMAGE, LagHint, Witness

HALF = arb(1) / 2
SHARP = 1.02
"""Pairs further apart than this are searched for once more, at the lag itself."""
LOOSE = 1.1
"""Searches for mixed heads may leave pairs this far apart, and searching again finds no more."""
FAR = 0.9
"""Lower bounds from which on the zero network, whose error is 1, is as good as any bank: sharper ones are not looked for."""
MAX_LAG = 256
"""Lags beyond this are far behind every horizon: 64 bits see 13 tokens back."""
MAX_BITS = 64
"""Beyond, column generation takes minutes."""
LEAST_BITS = 2
SLACK = 2.0**-20
"""By this share claims are weaker than what was found when they are written: libraries may round the last bits of a ball differently."""
TRIED = 2
"""Certificates of neighbours that are re-checked at most before a search begins with nothing."""
ZERO = PricedBank((), (), fmpq(0))
SOLVED = "solved"
SHIPPED = "shipped certificate, re-checked"
KEPT = "certificate of an earlier run, re-checked"
LAG_LAW = "lag law"
"""Where a pair comes from; both its sides are recomputed whatever it says."""


@dataclass(frozen=True)
class Pair:
    """lower ≤ E_u(T) ≤ upper for one lag, with the bank and the dual sequence that show it.

    `shown` is what the dual sequence alone shows; for lin heads the closed forms of the π-law may be a little above it.
    """

    rpe: RpeSet
    lag: int
    unit: fmpq
    lower: float
    upper: float
    bank: PricedBank
    dual: Dual
    shown: float
    source: str = SOLVED

    @property
    def ratio(self) -> float:
        return self.upper / self.lower if self.lower else float("inf")


@lru_cache(maxsize=64)
def _balance(rpe: RpeSet, unit: fmpq, fresh: bool) -> Balance:
    """What searches have found in this process; those that are made anew share nothing with those that may begin with a certificate."""
    return Balance(rpe, unit)


def forget() -> None:
    """Start anew: what was found for a lag helps with the next one, so answers, all of them right, depend on what was asked before."""
    _balance.cache_clear()
    shipped_pair.cache_clear()
    table.forget()


@lru_cache(maxsize=256)
def _norm(dual: Dual, unit: fmpq, rpe: RpeSet) -> arb:
    return theorem.dual_norm(dual, unit, rpe)


def shown_by(dual: Dual, lag: int, unit: fmpq, rpe: RpeSet) -> arb:
    """The lower bound of E_u(T) that a dual sequence shows; its norm is computed once."""
    return (arb(abs(dual.at(lag))) / _norm(dual, unit, rpe)).lower()


def check_lag(lag: int) -> None:
    """Refuse lags that are no lags, or absurd."""
    check_range("lag", lag, 1, MAX_LAG)


def _best_dual(rpe: RpeSet, lag: int, unit: fmpq, duals: Sequence[Dual]) -> tuple[arb, Dual]:
    """The best bound that the sequences show; for lin also shifted, which turns F into z^k F and keeps the bound."""
    values = []
    for dual in duals:
        places = range(1, lag + 1) if rpe == "lin" else (lag,)
        place = max(places, key=lambda s: (abs(dual.at(s)), s))
        shifted = Dual(tuple(e + lag - place for e in dual.edges), dual.values)
        values.append(((arb(abs(dual.at(place))) / _norm(dual, unit, rpe)).lower(), shifted))
    return max(values, key=lambda pair: float(pair[0]))


def lag_limit(rpe: RpeSet, lag: int, unit: fmpq, decay_bits: int, heads: int | None = None, fresh: bool = False) -> Pair:
    """The pair for one lag, over all decays; with `heads`, the upper side over banks of at most that many heads.

    It is that of the shipped certificate, or of one that an earlier run kept, if there is one that shows what it claims; otherwise, or if
    `fresh`, that of a search.
    """
    check_lag(lag)
    longest = longest_searched(unit)
    if lag > longest and heads is None:
        return _far_pair(rpe, lag, unit, decay_bits, fresh)
    if heads is not None and heads < lag_law(rpe, (lag,)).heads:
        dual = Dual((lag, lag + 1), (fmpq(1), fmpq(0)))  # the law's own δ depends on the decays; the error 1 is the law's
        return Pair(rpe, lag, unit, 1.0, 1.0, ZERO, dual, 0.0, LAG_LAW)
    pair = None if fresh else shipped_pair(rpe, lag, unit, decay_bits)
    pair = pair or (_solved_pair(rpe, lag, unit, decay_bits, True) if fresh else _searched_pair(rpe, lag, unit, decay_bits))
    if heads is not None and len(pair.bank.heads) > heads:
        few = _few_heads(rpe, lag, unit, heads, decay_bits)
        pair = _pair(rpe, lag, unit, few, [pair.dual])
    return pair


def _solved_pair(rpe: RpeSet, lag: int, unit: fmpq, decay_bits: int, fresh: bool = False) -> Pair:
    """The pair that a search finds, with what earlier searches found.

    What was found for another lag may be small at just this one; then the search is made for the lag itself. One for a short lag of mixed
    heads in many bits may end early; heads and sequences of the longest lag in reach serve it as well.
    """
    balance = _balance(rpe, unit, fresh)
    pair = _pair(rpe, lag, unit, balance.bank(lag, decay_bits), balance.known_duals(lag))
    if pair.ratio > SHARP and pair.lower < FAR:
        balance.dual(lag)
        pair = _pair(rpe, lag, unit, balance.bank(lag, decay_bits), balance.known_duals(lag))
    if pair.ratio > LOOSE and pair.bank.heads and lag < rule(unit):
        balance.dual(rule(unit))
        pair = _pair(rpe, lag, unit, balance.bank(lag, decay_bits), balance.known_duals(lag))
    return pair


@lru_cache(maxsize=256)
def shipped_pair(rpe: RpeSet, lag: int, unit: fmpq, decay_bits: int) -> Pair | None:
    """The pair that the shipped certificate shows, recomputed from its bank and its sequence.

    None if there is no certificate; if its exact numbers show less than it claims, so that it is damaged; if the two sides are further
    apart than a search leaves them; or if its decays have more bits than asked for.
    """
    hint = _shipped_hint(rpe, lag, unit, decay_bits)
    return None if hint is None else _recomputed(hint, rpe, lag, unit, decay_bits, SHIPPED)


def _shipped_hint(rpe: RpeSet, lag: int, unit: fmpq, decay_bits: int) -> LagHint | None:
    bits = table.bits_of(unit, decay_bits)
    return None if bits is None else table.lag_hint(rpe, bits, lag)


def _recomputed(hint: LagHint, rpe: RpeSet, lag: int, unit: fmpq, decay_bits: int, source: str) -> Pair | None:
    """The pair that a hint shows; None if that is less than it claims, less than a search would find, or takes decays of more bits."""
    if not _fits(hint.bank, decay_bits):
        return None
    try:
        pair = _pair(rpe, lag, unit, hint.bank, [hint.dual])
    except DAMAGE:
        return None
    shown = hint.lower <= pair.shown and pair.upper <= hint.upper and pair.lower <= pair.upper
    close = pair.ratio <= (LOOSE if rpe == "mixed" else SHARP)
    return replace(pair, source=source) if shown and close else None


def kept_pair(rpe: RpeSet, lag: int, unit: fmpq, decay_bits: int) -> Pair | None:
    """The pair that an earlier run found and kept on disk, recomputed like a shipped one."""
    hint = kept.kept_hint(rpe, unit, decay_bits, lag)
    return None if hint is None else _recomputed(hint, rpe, lag, unit, decay_bits, KEPT)


def _searched_pair(rpe: RpeSet, lag: int, unit: fmpq, decay_bits: int) -> Pair:
    """The pair that was kept, or that a search finds, which is then kept."""
    known = kept_pair(rpe, lag, unit, decay_bits)
    if known is not None:
        return known
    _begin_nearby(rpe, lag, unit, decay_bits)
    pair = _solved_pair(rpe, lag, unit, decay_bits)
    kept.keep(rpe, unit, decay_bits, lag, entry_of(pair))
    return pair


def _begin_nearby(rpe: RpeSet, lag: int, unit: fmpq, decay_bits: int) -> None:
    """Begin a search with the certificate of the next longer lag that has one, or else of the next shorter one, re-checked.

    Its sequence serves this lag about as well, and its heads are near the best ones: two programmes instead of a dozen. Those of other
    arithmetics are of no use: the best decays move with u.
    """
    balance = _balance(rpe, unit, False)
    if balance.begun:
        return
    nearby = (*range(lag + 1, longest_searched(unit) + 1), *range(lag - 1, 0, -1))
    hints = ((near, hint) for near in nearby for hint in _hints(rpe, near, unit, decay_bits) if hint.bank.heads)
    for near, hint in islice(hints, TRIED):
        if _recomputed(hint, rpe, near, unit, decay_bits, KEPT) is not None:
            balance.begin(near, hint.dual, hint.bank)
            return


def _hints(rpe: RpeSet, lag: int, unit: fmpq, decay_bits: int) -> list[LagHint]:
    found = _shipped_hint(rpe, lag, unit, decay_bits), kept.kept_hint(rpe, unit, decay_bits, lag)
    return [hint for hint in found if hint is not None]


def entry_of(pair: "Pair | Audit") -> dict[str, Any]:
    """A pair as certificate files have it: both sides, with the exact numbers that show them."""
    sides = {"primal": bank_as_data(pair.bank), "dual": dual_as_data(pair.dual)}
    return {"lag": pair.lag, "lower": pair.shown * (1 - SLACK), "upper": pair.upper * (1 + SLACK), **sides}


def _fits(bank: PricedBank, decay_bits: int) -> bool:
    """Whether all decays have at most so many significant bits."""
    with working_precision(1 << 12):
        return all(dyadic(arb(p), decay_bits) == p for _, p in bank.heads)


FIRST_TRIED: dict[RpeSet, Callable[[int], int]] = {
    "lin": lambda rule: rule,
    "log": lambda rule: 2 * rule // 3,
    "mixed": lambda rule: rule - 2,
}
"""The lag from which a horizon is looked for, from the rule ⌊ln(1/u)/π⌋: at it or a little before it, since a search that finds a bank
finds the heads of the next."""
BEYOND = 4
"""Lags this far behind the rule ⌊ln(1/u)/π⌋ are out of reach of every type; sequences of shorter lags and differences show it."""


def longest_searched(unit: fmpq) -> int:
    """The longest lag for which banks are looked for."""
    return rule(unit) + BEYOND


def _far_pair(rpe: RpeSet, lag: int, unit: fmpq, decay_bits: int, fresh: bool) -> Pair:
    """The pair of a lag far behind the horizon: the zero network above, below what is known of a lag near it."""
    near = lag_limit(rpe, longest_searched(unit), unit, decay_bits, fresh=fresh)
    orders = range(2, min(lag, theorem.MAX_ORDER), 3)
    differences = [] if rpe == "lin" else [theorem.difference_dual(lag, order) for order in orders]
    return replace(_pair(rpe, lag, unit, ZERO, [near.dual, *differences]), source=near.source)


def _pair(rpe: RpeSet, lag: int, unit: fmpq, bank: PricedBank, duals: Sequence[Dual]) -> Pair:
    least, dual = _best_dual(rpe, lag, unit, duals)
    most = theorem.upper_bound(bank, lag, unit)
    if not most <= 1:
        bank, most = ZERO, arb(1)
    closed = max(lower(best_pi_bound(lag, unit)[0]), lower(arb(hand_bound(lag, unit)))) if rpe == "lin" else 0.0
    return Pair(rpe, lag, unit, max(lower(least), closed), upper(most), bank, dual, lower(least))


def _few_heads(rpe: RpeSet, lag: int, unit: fmpq, heads: int, decay_bits: int) -> PricedBank:
    if rpe == "mixed":
        raise InputError(
            "heads go with rpe lin or log here; a mixed layer with few heads is built for a fixed target with rpe mixed and bank minimal"
        )
    price = float(arb(unit))
    return as_priced(balanced_bank(rpe, (lag,), lambda _: price, heads, decay_bits), 0)


@dataclass(frozen=True)
class CertifiedHorizon:
    """The largest T with E_u(T) < 1/2: `upper` at it is below 1/2, and for every longer lag the error is at least 1/2.

    `next_lower` is the certified lower bound at T + 1; lags up to `checked` were settled one by one, after which a closed argument
    settles all others (see `analyzer.limits.budgeted_error`). `bank` is what reaches `upper`, and `beyond` what shows the lower bounds.
    """

    rpe: RpeSet
    unit: fmpq
    horizon: int
    upper: float
    next_lower: float
    checked: int
    rule: int
    bank: PricedBank
    beyond: tuple[Witness, ...]
    source: str = SOLVED


Step = Callable[[str], None]


def horizon(rpe: RpeSet, unit: fmpq, decay_bits: int, step: Step = lambda _: None, fresh: bool = False) -> CertifiedHorizon:
    """The horizon, certified from both sides: by the shipped certificate if it shows it, and otherwise, or if `fresh`, by a search."""
    known = None if fresh else shipped_horizon(rpe, unit, decay_bits, step)
    if known is not None:
        return known
    fresh = fresh or _balance(rpe, unit, False).borrowed  # lags are given up by the heads that are there: they must be its own
    guess = max(1, FIRST_TRIED[rpe](rule(unit)))
    lag, best, bank = _seen(rpe, unit, guess, decay_bits, step, fresh)
    shown = [_shown_beyond(rpe, longer, unit, step, fresh) for longer in _settled(rpe, lag, unit)]
    lowers, beyond = [lower(least) for least, _ in shown], tuple(witness for _, witness in shown)
    return CertifiedHorizon(rpe, unit, lag, best, lowers[0] if lowers else 1.0, lag + len(shown), rule(unit), bank, beyond)


def shipped_horizon(rpe: RpeSet, unit: fmpq, decay_bits: int, step: Step = lambda _: None) -> CertifiedHorizon | None:
    """The horizon by the shipped certificate, recomputed; None if there is none or if it does not show that this is the horizon.

    A lag too short cannot pass: a sequence that shows 1/2 at a lag that some bank serves with less does not exist. Nor can one too long.
    """
    bits = table.bits_of(unit, decay_bits)
    hint = None if bits is None else table.horizon_hint(rpe, bits)
    if hint is None or not _fits(hint.bank, decay_bits):
        return None
    longer, lowers = _settled(rpe, hint.lag, unit), []
    try:
        most = theorem.upper_bound(hint.bank, hint.lag, unit)
        if not most < HALF or len(hint.beyond) != len(longer):
            return None
        for lag, witness in zip(longer, hint.beyond, strict=True):
            step(f"{rpe} beyond: lag {lag}")
            least = _witnessed(rpe, lag, unit, witness)
            if not least >= HALF:
                return None
            lowers.append(lower(least))
    except LemmaformerError:
        return None
    after = lowers[0] if lowers else 1.0
    lag = hint.lag
    return CertifiedHorizon(rpe, unit, lag, upper(most), after, lag + len(lowers), rule(unit), hint.bank, hint.beyond, SHIPPED)


def _settled(rpe: RpeSet, lag: int, unit: fmpq) -> range:
    """The lags beyond one that must be settled one by one: for lin the next (E_u grows), otherwise all before the closed argument."""
    return range(lag + 1, lag + 2 if rpe == "lin" else theorem.far_lag(unit, rpe))


def _witnessed(rpe: RpeSet, lag: int, unit: fmpq, witness: Witness) -> arb:
    """The lower bound of E_u(T) that a witness shows."""
    if witness is None:
        return best_pi_bound(lag, unit)[0] if rpe == "lin" else arb(0)
    dual = theorem.difference_dual(lag, witness) if isinstance(witness, int) else witness
    return _best_dual(rpe, lag, unit, [dual])[0]


def _seen(rpe: RpeSet, unit: fmpq, guess: int, decay_bits: int, step: Step, fresh: bool) -> tuple[int, float, PricedBank]:
    """(the largest lag around the guess with E_u < 1/2, its upper side, the bank); lag 0 if there is none."""
    balance, lag, best = _balance(rpe, unit, fresh), guess, (0.0, ZERO)

    def seen(candidate: int) -> tuple[float, PricedBank] | None:
        step(f"{rpe} lag {candidate}")
        if rpe == "lin" and best_pi_bound(candidate, unit)[0] >= HALF:
            return None
        for bank in _proposals(balance, candidate, decay_bits):
            value = upper(theorem.upper_bound(bank, candidate, unit))
            if value < 0.5:
                return value, bank
        return None

    while lag >= 1:
        found = seen(lag)
        if found is not None:
            best = found
            break
        lag -= 1
    while lag >= guess:
        found = seen(lag + 1)
        if found is None:
            break
        lag, best = lag + 1, found
    return lag, *best


def _proposals(balance: Balance, lag: int, decay_bits: int) -> Iterator[PricedBank]:
    """Banks to try: for lin the quickly found one of twice the heads, then the best of all."""
    if balance.rpe == "lin":
        yield _few_heads("lin", lag, balance.unit, 2 * lag + 4, decay_bits)
    yield balance.bank(lag, decay_bits)


def least_beyond(rpe: RpeSet, lag: int, unit: fmpq, step: Step) -> float:
    """A certified lower bound of E_u(T) that is at least 1/2, from the sequences known, central differences, or a search."""
    return lower(_shown_beyond(rpe, lag, unit, step)[0])


def _shown_beyond(rpe: RpeSet, lag: int, unit: fmpq, step: Step, fresh: bool = False) -> tuple[arb, Witness]:
    """(a lower bound of E_u(T) that is at least 1/2, what shows it)."""
    step(f"{rpe} beyond: lag {lag}")
    if rpe == "lin":
        closed, _ = best_pi_bound(lag, unit)
        if closed >= HALF:
            return closed, None
    found = _best_dual(rpe, lag, unit, _balance(rpe, unit, fresh).known_duals(lag))
    best, witness = found[0], cast(Witness, found[1])
    for order in range(min(lag - 1, theorem.MAX_ORDER), 1, -3):
        if best >= HALF:
            return best, witness
        shown = _witnessed(rpe, lag, unit, order)
        best, witness = (shown, order) if shown > best else (best, witness)
    if not best >= HALF:
        dual = _balance(rpe, unit, fresh).dual(lag)
        shown = _witnessed(rpe, lag, unit, dual)
        best, witness = (shown, dual) if shown > best else (best, witness)
    if not best >= HALF:
        raise Refusal(f"E_u could not be bounded from below by 1/2 at lag {lag} ({rpe}): best {lower(best):.3g}")
    return best, witness


def least_known(rpe: RpeSet, lag: int, unit: fmpq, decay_bits: int) -> float:
    """A lower bound of E_u(T) by the shipped certificate, or by the sequences found so far, for any lag; by one that is looked for if
    there are none."""
    known = shipped_pair(rpe, lag, unit, decay_bits)
    return lower(_best_dual(rpe, lag, unit, _balance(rpe, unit, False).known_duals(lag))[0]) if known is None else known.lower


def best_known(rpe: RpeSet, lag: int, unit: fmpq, decay_bits: int) -> float:
    """An upper bound of E_u(T) by the shipped certificate, or by the bank of the decays found so far."""
    known = shipped_pair(rpe, lag, unit, decay_bits)
    if known is not None:
        return known.upper
    return upper(theorem.upper_bound(_balance(rpe, unit, False).bank(lag, decay_bits), lag, unit))


@dataclass(frozen=True)
class Audit:
    """lower ≤ best ≤ upper over the weights of given heads, for one lag."""

    lag: int
    lower: float
    upper: float
    bank: PricedBank
    dual: Dual

    @property
    def shown(self) -> float:
        return self.lower


def audit(heads: Sequence[tuple[str, fmpq]], lag: int, unit: fmpq) -> Audit:
    """The least ‖κ − 1_T‖₁ + u(|c| + Σ|a_h|) for heads whose decays are given, by linear programming, both sides certified.

    For fewer heads than the lag law asks for, the dual sequence is looked for with a fourth of u, so that it shows the error 1 with room.
    """
    check_lag(lag)
    strict = unit / 4 if applies(heads, lag) else unit
    bank, dual = fixed_decays(heads, lag, strict)
    most = theorem.upper_bound(bank, lag, unit)
    if not most <= 1:
        bank, most = ZERO, arb(1)
    return Audit(lag, lower(audit_lower(heads, dual, lag, unit)), upper(most), bank, dual)


def audit_lower(heads: Sequence[tuple[str, fmpq]], dual: Dual, lag: int, unit: fmpq) -> arb:
    """|δ_T| / max(sup|δ_s|, |δ_0|/u, |F(p_h)|/u): the lower bound for the given heads alone."""
    with working_precision(theorem.working_bits(unit)):
        return shown_for([theorem.transform_at(dual, head) for head in heads], dual, lag, unit)


def shown_for(transforms: Sequence[arb], dual: Dual, lag: int, unit: fmpq) -> arb:
    """The same from F at every head; call it at the working precision for u."""
    sizes = [arb(max(abs(v) for v in dual.values)), abs(arb(dual.at(0))) / arb(unit)]
    sizes += [abs(value) / arb(unit) for value in transforms]
    return (arb(abs(dual.at(lag))) / maximum(sizes)).lower()


MAX_AUDITED = 24
"""Lags that one audit goes through at most."""
MAX_HEADS = 64


def slopes_of(text: str, rpe: str) -> tuple[tuple[str, fmpq], ...]:
    """Heads from "alibi:8" (Press et al. 2022: 2^{−8i/n}, as float32 stores them) or from a list of decays."""
    match = re.fullmatch(r"alibi:([0-9]{1,4})", text.strip())
    if match is not None:
        count = int(match[1])
        if not 1 <= count <= MAX_HEADS or rpe != "lin":
            raise InputError(f"slopes alibi:N take 1 to {MAX_HEADS} heads, with rpe lin")
        return tuple(("lin", rational(float(np.float32(v)))) for v in _alibi(count))
    parts = text.split(",")
    if len(parts) > MAX_HEADS:
        raise InputError(f"slopes are at most {MAX_HEADS} decays")
    decays = [rational(part) for part in parts]
    least = 1 if rpe == "log" else 0
    if any(not least < p < 1 << 20 or (p - least) * (1 << 20) < 1 for p in decays) or len(set(decays)) < len(decays):
        raise InputError(f"slopes must be different decays above {least} ({rpe}), not absurdly close to it or large")
    return tuple((rpe, p) for p in decays)


def _alibi(count: int) -> list[float]:
    """The slopes of Press et al.: a geometric progression for powers of two, otherwise those of the power below and every other above."""
    power = 1 << (count.bit_length() - 1)
    slopes = [2.0 ** (-8 * i / power) for i in range(1, power + 1)]
    return slopes if power == count else slopes + _alibi(2 * power)[0::2][: count - power]


def describe_pair(pair: Pair) -> dict[str, Any]:
    """A pair as plain data: the two sides, what the closed forms say, and the bank."""
    bank = pair.bank
    result: dict[str, Any] = {
        "unit": to_text(pair.unit),
        "source": pair.source,
        "budgeted_error": {"lower": pair.lower, "upper": pair.upper},
        "ratio": pair.ratio,
        "heads_used": len(bank.heads),
        "decays": [nearest(p) for _, p in bank.heads],
        "rpes": [rpe for rpe, _ in bank.heads],
        "weights_l1": nearest(bank.weight_sum),
    }
    if pair.rpe == "lin":
        closed, frequency = best_pi_bound(pair.lag, pair.unit)
        result |= {"pi_law": lower(closed), "pi_law_frequency": nearest(frequency), "horizon_rule": rule(pair.unit)}
        result["hand_bound"] = lower(arb(hand_bound(pair.lag, pair.unit)))
    return result


def describe_horizon(found: CertifiedHorizon) -> dict[str, Any]:
    """A horizon as plain data."""
    return {
        "horizon": found.horizon,
        "upper": found.upper if found.horizon else None,
        "next_lower": found.next_lower,
        "settled_one_by_one": found.checked,
        "rule": found.rule,
        "source": found.source,
    }


def curve(rpe: RpeSet, unit: fmpq, decay_bits: int, longest: int, fresh: bool = False) -> list[dict[str, Any]]:
    """Both sides for the lags 1 to `longest`, and for lin the π-law beside them."""
    rows: list[dict[str, Any]] = []
    for lag in range(1, longest + 1):
        pair = lag_limit(rpe, lag, unit, decay_bits, fresh=fresh)
        row = {"lag": lag, "lower": pair.lower, "upper": pair.upper}
        rows.append(row | ({"pi_law": lower(best_pi_bound(lag, unit)[0])} if rpe == "lin" else {}))
    return rows
