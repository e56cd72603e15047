"""Which lags the position part of a model's layer resolves: E_u(T) < 1/2, both sides certified, for the very slopes or biases of the model.

A layer's heads are taken as if all dot products were equal, so that the scores read positions only; output weights a_h and the residual
weight c are free. E_u(T) is the least ‖κ − 1_T‖₁ + u(|c| + Σ|a_h|) for κ(s) = c·1{s=0} + Σ_h a_h k_h(s), where every kernel k_h has the
mass 1:

| kind | k_h(s) | past |
|---|---|---|
| lin | (1 − z)z^s, s ≥ 0, z = e^{−p} | infinite |
| shifted | (1 − z)z^{s−1}, s ≥ 1, and any share g_h of the mass at s = 0 | infinite |
| buckets | e^{b_h(β(s))} / Σ_{s'} e^{b_h(β(s'))} | a window of N tokens, or N on either side |

*Lin*: linear programming over given decays (`verify.limits.pairs.audit`). A model may have thousands of channels: the programme is solved
for some of them, those that its dual sequence violates are added, and the lower side is computed for all. The error never falls with T
(monotone-law, 4), so that nothing is resolved beyond the first lag whose lower side is 1/2.

*Shifted* (RWKV-4, whose current token has a weight of its own). With a share g_h of the mass at s = 0, κ(s) = Σ a_h(1 − g_h)(1 −
z_h)z_h^{s−1} for s ≥ 1, and |a_h(1 − g_h)| ≤ |a_h|: no g and no c does better than g = 0 and c = 0. So E_u(T) is the least error of lin
kernels *without residual* for the place T − 1 ≥ 0; for sequences δ on s ≥ 0 it is at least |δ_{T−1}| / max(sup|δ|, |F(p_h)|/u), F(p) = Σ_s
δ_s (1 − z)z^s. Since κ(s + 1) serves T with the weights a_h z_h if κ serves T + 1, this error never falls with T either.

*Buckets*: a lag that shares its bucket with another one of the window has E_u = 1 whatever the biases (bucket-law, 1). For the others, sums
over the places of a bucket make the programme one row per bucket: with n_β places in bucket β and m_h(β) = n_β k_h, ‖κ − 1_T‖₁ = Σ_β |n_β
κ_β − 1{β = β(T)}|, as β(T) has one place; a sequence δ_β shows E_u ≥ |δ_{β(T)}| / max(max|δ|, |δ_{β(0)}|/u, |Σ_β δ_β m_h(β)|/u). In an
encoder the tokens that follow have buckets of their own and are among the places.

*One head alone* with the weights m_T at the lag, m_0 at the current token and R elsewhere, m_T + m_0 + R = 1: κ = a k_h, and c = −a m_0
pays since u < 1. The error |1 − a m_T| + |a|(R + u(1 + m_0)) is least at a = 0 or a = 1/m_T, so E_u(T) = min(1, (R + u(1 + m_0))/m_T). A
lin head can do this for T = 1 only (lag law: T heads for the lag T), and so can a shifted one, since its weights fall.

What this does not say: what dot products, rotations, several layers together, or token shifts do. They may resolve more.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.kernels import sign_runs
from analyzer.limits import budgeted_error as theorem
from analyzer.limits.bucket_law import Buckets
from analyzer.limits.budgeted_error import Dual, PricedBank
from analyzer.limits.pi_law import best_pi_bound
from analyzer.numbers.exact import lower, magnitude, maximum, rational, to_grid, upper, working_precision
from constructions.banks.balanced import STORED, fixed_decays, fixed_heads
from constructions.banks.fit_columns import TOP, Head, rows_for
from constructions.banks.priced_fit import Programme
from constructions.files.models.parts import ModelRead, PositionPart
from verify.limits.pairs import audit_lower
from verify.limits.positions import LagCell, float_differs

AT_ONCE, MORE, ROUNDS = 24, 8, 8
"""Decays of the first programme, decays that are added to it, and how often."""
SLOW = fmpq(1, 1 << 40)
"""Slower heads are not used above, where their places would have no end; below they count like all others."""
FAST, NEAR = (1 << 30, 16, 8, 4), 64
"""Decays from which on heads are taken to be gone, none of them first; after 64 places their weights have fallen by e^−256 at least."""
LISTED = 128
"""Decays that an answer lists one by one."""
CERTIFIED = "both sides, for the position part of one layer alone: dot products equal, any output weights"
NOT_CERTIFIED = "that a trained model uses it, what dot products or several layers add, and the rounding of the model's own operations"


def audit_model(model: ModelRead, layer: int | None, longest: int, unit: fmpq, window: int, step: Callable[[str], None]) -> dict[str, Any]:
    """Every group of layers that have a position part in common, lag by lag."""
    groups, without = [], dict[str, list[int]]()
    for part in model.positions:
        layers = [index for index in part.layers if layer in (None, index)]
        if not layers:
            continue
        if part.kind == "none":
            without[part.about] = without.get(part.about, []) + layers
            continue
        place = f"{part.stack} layers {layers[0]}–{layers[-1]}".strip()
        cells = tuple(cells_of(part, longest, unit, window, lambda text, place=place: step(f"{place}, {text}")))  # type: ignore[misc]
        groups.append(_described(part, layers, cells, alone(part, longest, unit, window)))
    if not groups:
        what = "the model" if layer is None else f"layer {layer} of the model"
        raise InputError(f"{what} has no slopes or biases that fall with the distance: {', '.join(without)}")
    buckets = [buckets_of(part) for part in model.positions if part.kind == "buckets"]
    differing = sorted({s for one in buckets for s in float_differs(one, window)})
    rows = [{"layers": layers, "reason": reason} for reason, layers in without.items()]
    return {"groups": groups, "without": rows, "float32_differs": differing}


def cells_of(part: PositionPart, longest: int, unit: fmpq, window: int, step: Callable[[str], None]) -> Iterator[LagCell]:
    """The lags 1, …, longest of one position part."""
    if part.kind == "buckets":
        yield from _bucket_cells(part, longest, unit, window, step)
        return
    decays = sorted({rational(p) for p in part.decays}, reverse=True)
    floor = 0.0
    for lag in range(1, longest + 1):
        if floor >= 0.5:
            yield LagCell(lag, floor, 1.0)
            continue
        step(f"lag {lag}")
        least, most = audit_decays(decays, lag, unit, part.kind == "shifted")
        floor = max(floor, least)
        yield LagCell(lag, floor, most)


def audit_decays(decays: Sequence[fmpq], lag: int, unit: fmpq, shifted: bool) -> tuple[float, float]:
    """(lower, upper) of E_u(T) for lin heads with these decays, fastest first, or for shifted ones."""
    usable = [p for p in decays if p >= SLOW]
    chosen = usable if len(usable) <= AT_ONCE else [usable[round(k * (len(usable) - 1) / (AT_ONCE - 1))] for k in range(AT_ONCE)]
    most, shown_most, hints = arb(1), 0.0, list[Dual]()
    for _ in range(ROUNDS if chosen else 0):
        strict = unit / 4 if not shifted and len(chosen) < lag else unit  # fewer than the lag law asks for: the error 1, with room
        bank, dual = _shifted_bank(chosen, lag - 1, strict) if shifted else fixed_decays([("lin", p) for p in chosen], lag, strict)
        found = _upper(bank, lag - shifted, unit)
        most = found if found < most else most
        excess, beyond = _violating(dual, usable, unit)
        if float(arb(abs(dual.at(lag - shifted)))) / max(1.0, excess) > shown_most:
            shown_most, hints = float(arb(abs(dual.at(lag - shifted)))) / max(1.0, excess), [dual]
        if most < arb(1) / 2 or set(beyond) <= set(chosen):
            break
        chosen = sorted({*chosen, *beyond}, reverse=True)
    heads, place = [("lin", p) for p in decays], lag - shifted
    duals = hints + _differences(place)
    shown = [_shown(dual, heads, place, unit) if shifted else audit_lower(heads, dual, lag, unit) for dual in duals]
    closed = lower(best_pi_bound(place, unit)[0]) if place else 0.0
    return max([closed, *(lower(value) for value in shown)]), upper(most)


def _differences(place: int) -> list[Dual]:
    """Differences at a place, central ones and 1, −1 from it on: slow heads hardly see them."""
    ahead = Dual((place, place + 1, place + 2), (fmpq(1), fmpq(-1), fmpq(0)))
    return [ahead, *(theorem.difference_dual(place, order) for order in range(1, min(place, 4)))]


def _shifted_bank(decays: Sequence[fmpq], place: int, unit: fmpq) -> tuple[PricedBank, Dual]:
    """The best weights of lin heads without residual for a place s ≥ 0, and the dual sequence."""
    top = max(TOP["lin"], 64 * (int(1 / float(arb(min(decays)))) + 1))
    stored, dual = fixed_heads([Head("lin", p) for p in decays], rows_for(place, top, 0, True), place, unit, residual=False)
    return PricedBank(tuple((h.rpe, h.decay) for h in stored if h.decay is not None), tuple(stored.values()), fmpq(0)), dual


def _upper(bank: PricedBank, place: int, unit: fmpq) -> arb:
    """‖κ − 1_place‖₁ + u(|c| + Σ|a_h|) from above: place by place first, then by the runs of constant sign of the heads that are left.

    Heads from some decay on are gone there, and added by the triangle inequality: among the others one of them can add a zero before the
    first place, where no sign change is seen. Several such decays are tried; each gives a bound.
    """
    count = 4 * place + NEAR
    with working_precision(theorem.working_bits(unit) + max(0, magnitude(arb(bank.weight_sum)))):
        price = arb(unit) * arb(bank.weight_sum)
        whole = bank.runs("lin")
        values = [arb(0)] * count if whole is None else list(whole.values(count))
        values[0] += arb(bank.residual)
        values[place] -= 1
        near = sum((abs(v) for v in values), arb(0))
        splits = {tuple(p >= fast for _, p in bank.heads): fast for fast in FAST}
        return min(((near + _tail(bank, fast, count) + price).upper() for fast in splits.values()), key=float)


def _tail(bank: PricedBank, fast: int, start: int) -> arb:
    """Σ_{s≥start} |κ(s)| from above; heads with decays from `fast` on by the triangle inequality."""
    total = arb(0)
    for gone in (True, False):
        kept = [(head, weight) for head, weight in zip(bank.heads, bank.weights, strict=True) if (head[1] >= fast) == gone]
        group = PricedBank(tuple(head for head, _ in kept), tuple(weight for _, weight in kept), fmpq(0)).runs("lin")
        if group is not None:
            found = None if gone else sign_runs.tail(group, start)
            total += sign_runs.crude_tail(group, start) if found is None else found
    return total


def _shown(dual: Dual, heads: Sequence[tuple[str, fmpq]], place: int, unit: fmpq) -> arb:
    """|δ_place| / max(sup|δ|, |F(p_h)|/u) from below: no residual."""
    with working_precision(theorem.working_bits(unit)):
        sizes = [arb(max(abs(v) for v in dual.values)), *(abs(theorem.transform_at(dual, head)) / arb(unit) for head in heads)]
        return (arb(abs(dual.at(place))) / maximum(sizes)).lower()


def _violating(dual: Dual, decays: Sequence[fmpq], unit: fmpq) -> tuple[float, list[fmpq]]:
    """(the largest |F|/u over these decays, those where it peaks above 1), in floats: a hint for the search."""
    slopes = np.array([float(p.p) / float(p.q) for p in decays])
    edges, steps = np.array(dual.edges, dtype=float), np.array([float(c.p) / float(c.q) for c in dual.steps()])
    sizes = np.abs(np.exp(-np.outer(slopes, edges)) @ steps) / (float(unit.p) / float(unit.q))
    around = np.concatenate([[0.0], sizes, [0.0]])
    peaks = np.flatnonzero((sizes > 1.02) & (sizes >= around[:-2]) & (sizes >= around[2:]))
    worst = peaks[np.argsort(-sizes[peaks])][:MORE]
    return float(sizes.max()), [decays[int(k)] for k in worst]


def buckets_of(part: PositionPart) -> Buckets:
    """The buckets of the past: all of them, or half where tokens that follow have the others."""
    assert part.biases is not None
    return Buckets(len(part.biases) // (1 + part.two_sided), part.distance)


def _places(part: PositionPart, window: int) -> dict[int, int]:
    """How many places of the window every bucket holds."""
    buckets, found = buckets_of(part), dict[int, int]()
    for s in range(window):
        found[buckets.of(s)] = found.get(buckets.of(s), 0) + 1
        if part.two_sided and s:
            ahead = buckets.count + buckets.of(s)
            found[ahead] = found.get(ahead, 0) + 1
    return found


def _bucket_cells(part: PositionPart, longest: int, unit: fmpq, window: int, step: Callable[[str], None]) -> Iterator[LagCell]:
    buckets, places = buckets_of(part), _places(part, window)
    for lag in range(1, longest + 1):
        if lag >= window or buckets.partner(lag, window) is not None:
            yield LagCell(lag, 1.0, 1.0)
            continue
        step(f"lag {lag}")
        assert part.biases is not None
        yield LagCell(lag, *audit_biases(part.biases, places, buckets.of(lag), unit))


def audit_biases(biases: np.ndarray, places: dict[int, int], bucket: int, unit: fmpq) -> tuple[float, float]:
    """(lower, upper) of E_u for heads with given biases (buckets, heads), and a lag that is alone in its bucket."""
    rows = sorted(places)
    with working_precision(theorem.working_bits(unit)):
        heads = [_masses(column, places, rows) for column in np.unique(biases, axis=1).T]
        columns, goal = [[arb(int(row == 0)) for row in rows], *heads], [arb(int(row == bucket)) for row in rows]
        solved = Programme(columns, goal, [arb(unit)] * len(columns)).solve()
        depth = -magnitude(arb(unit)) + STORED
        weights = [arb(to_grid(a, depth + 16)) for a in solved.weights]
        reached = [sum((a * column[i] for a, column in zip(weights, columns, strict=True)), arb(0)) for i in range(len(rows))]
        error = sum((abs(g - v) for g, v in zip(goal, reached, strict=True)), arb(0))
        most = (error + arb(unit) * sum((abs(a) for a in weights), arb(0))).upper()
        dual = [arb(to_grid(v, depth)) for v in solved.dual]
        seen = [sum((d * m for d, m in zip(dual, column, strict=True)), arb(0)) for column in columns]
        sizes = maximum([*(abs(d) for d in dual), *(abs(v) / arb(unit) for v in seen), arb(unit)])
        least = (abs(dual[rows.index(bucket)]) / sizes).lower()
    return lower(least), upper(most) if most < 1 else 1.0


def _masses(biases: np.ndarray, places: dict[int, int], rows: Sequence[int]) -> list[arb]:
    """n_β e^{b(β)} / Σ n e^b for the buckets that hold places."""
    top = max(float(biases[row]) for row in rows)
    sizes = [places[row] * arb(rational(float(biases[row])) - rational(top)).exp() for row in rows]
    whole = sum(sizes, arb(0))
    return [size / whole for size in sizes]


def alone(part: PositionPart, longest: int, unit: fmpq, window: int) -> dict[int, list[int]]:
    """Lag → the heads each of which resolves it on its own; lags that none does are left out."""
    found: dict[int, list[int]] = {}
    with working_precision(theorem.working_bits(unit)):
        for head, (lag, seen, current) in _peaks(part, longest, window):
            if seen > 0 and (1 - seen - current + arb(unit) * (1 + current)) / seen < arb(1) / 2:
                found.setdefault(lag, []).append(head)
    return {lag: found[lag] for lag in sorted(found)}


def _peaks(part: PositionPart, longest: int, window: int) -> Iterator[tuple[int, tuple[int, arb, arb]]]:
    """(head, (lag, its weight there, its weight at the current token)) for the lags that one head can resolve at all."""
    for head, decay in enumerate(part.decays):
        z = (-arb(rational(decay))).exp()
        yield head, (1, 1 - z, arb(0)) if part.kind == "shifted" else (1, (1 - z) * z, 1 - z)
    if part.biases is None:
        return
    buckets, places = buckets_of(part), _places(part, window)
    rows = sorted(places)
    lags = [lag for lag in range(1, min(longest, window - 1) + 1) if buckets.partner(lag, window) is None]
    for head in range(part.biases.shape[1]):
        masses = dict(zip(rows, _masses(part.biases[:, head], places, rows), strict=True))
        for lag in lags:
            yield head, (lag, masses[buckets.of(lag)], masses[0])


def _described(part: PositionPart, layers: list[int], cells: tuple[LagCell, ...], single: dict[int, list[int]]) -> dict[str, Any]:
    count = part.biases.shape[1] if part.biases is not None else len(part.decays)
    verdicts = {verdict: [cell.lag for cell in cells if cell.verdict == verdict] for verdict in ("resolved", "unresolved", "undecided")}
    first = next((cell for cell in cells if cell.verdict == "unresolved"), None)
    many = len(part.decays) > LISTED
    found: dict[str, Any] = {
        "scheme": f"{part.stack} {_runs(layers)}".strip(),
        "about": f"{count} {'channels' if part.kind == 'shifted' else 'heads'}, {part.about}",
        "stack": part.stack,
        "layers": layers,
        "kind": part.kind,
        "heads": count,
    }
    if part.decays:
        found |= {"fastest": max(part.decays), "slowest": min(part.decays), "decays": None if many else list(part.decays)}
    return found | {
        "resolved": verdicts["resolved"],
        "undecided": verdicts["undecided"],
        "alone": {str(lag): heads for lag, heads in single.items()},
        "first_unresolved": None if first is None else {"lag": first.lag, "lower": first.lower},
        "rows": [{"lag": cell.lag, "lower": cell.lower, "upper": cell.upper, "verdict": cell.verdict} for cell in cells],
    }


def _runs(layers: Sequence[int]) -> str:
    """Layers as one run; a group has neighbours, or one layer."""
    return f"layer {layers[0]}" if len(layers) == 1 else f"layers {layers[0]}–{layers[-1]}"
