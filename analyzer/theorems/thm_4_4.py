"""Theorem 4.4 of Wang & E: adaptive memories whose lags depend on each other, one layer per level.

Setting. Tokens from a finite alphabet in [−1, 1]^d, target y_t = f(x_t, x_{t−t_1}, …, x_{t−t_M}), each lag t_i = g_i(x_t and memories
of lower level) an integer in [1, T_i] (`analyzer.targets.adaptive`). Layers of normalisation-free attention, dot-product or tmx, and
feed-forward networks with precision: FFN(u) is rounded to [·] (lin, tmx) or log[exp(·)] (dot-product log) on its lag slots.

Statement. For every n ≥ 1 there is a network with |||H − TF||| ≤ E_FFN + Σ_k Lip_k(f) e_k, e_k the extraction error of memory k. For
the paper's class, a chain of K memories followed by parallel ones, L = K + 1 + 1{M ≥ K+1} layers of H heads have

    lin   √(Σ e_k²) ≤ C(n)/Hⁿ √( Σ_{l≤K} e^{0.02(n+1)T_l} + (Σ_{l>K} e^{0.01 T_l})^{2n+2} )      log   T_l^{2.02(n+1)}, T_l^{1.01}

if the inner widths are Ω̃(max_{i≤K} ‖g_i‖² ∨ Σ_{i>K} ‖g_i‖²) (log: ‖log g_i‖² T_i²). For any dependency graph without cycles we use one
layer per level and one for the first encoding: L = levels + 1.

Constants. e_k is (3.1) or (3.2) for T_k = max g_k, or (3.6), (3.7) for the minimal banks, in `analyzer.lemmas.extraction`: every lag B ≤
T_k inherits it. Balanced banks of lin heads (`constructions.banks.balanced_lags`) are fitted to a float type: e_k is the least error and
price of rounding together that weights of their decays have, no rate is known. Barron norms, sampling widths and rounding margins are in
`analyzer.lemmas.lag_encoding`. The paper's form Lip₂ √(Σ d e_k²), Lip₂ = sup ‖∇f‖₂, can be smaller than Σ Lip_k e_k when the slots' suprema
are not attained together; we promise the sum, and certify it or, where that is smaller, the worst of all situations. `bound` prints √(Σ
e_k²) beside Σ e_k, without Lipschitz constants.

Proof. By induction over levels every lag slot holds its lag exactly and every memory is delivered to within e_k. Lags of level 1 are
functions of x_t: an encoding that is off by less than the margin is rounded to the lag. Given exact lags B = t_k at a position, the heads
of memory k have the weights e^{−p_h(s−B)} or (s/B)^{−p_h}, and deliver Σ_s κ(s; B) x_{t−s} with κ(s; B) = κ_T(s − B + T), or κ_T(sT/B),
where κ_T is the kernel of Theorem 3.1 for the lag T = T_k: as a function of s it is κ_T at other places, all of them in the domain of its
bump, and only s = B meets the bump (neighbours move to T ± T/B, |T/B| ≥ 1). So (3.1) and (3.2) hold for every B ≤ T_k. Lags of the next
level read these memories; their slots are exact again if encoding error plus gain times e_k stays below the margin. The last network reads
(x_t, memories): E_FFN + Σ_k Lip_k e_k as in Theorem 3.1. In the paper's class memory l ≤ K has a layer of H heads for itself, and those
after K share one, split as in Theorem 3.1: that is the root of the sum of squares. ∎

Construction. `constructions.theorems.thm_4_4`. Residual stream of width (M+1)(d+1): x_t, the memories, their lag slots, a constant slot.
Layer 1 has its attention off; its FFN writes the lags of level 1 and the constant 1. Layer l+1 extracts the memories of level l with scores
−p_h(s − g) or −p_h log(s/g), where g comes from the lag slot and cancels the position; its FFN writes the lags of level l+1. The last
FFN is f.

Repaired. A lag is exact after rounding only if (FFN error) + (gain of the encoding) · (extraction error of its parents) stays below the
margin: H must be large enough, which the paper does not state; the margin is certified for every combination of tokens that occurs. The
read-out's domain [−2, 2]^D needs e_k ≤ 1, also unstated: we use the box of the certified memories, and show the condition. tmx in the
log case needs g itself in the slot, not log g. Only lag slots are rounded, so the constant slot holds 1 and not log 2.

References. Wang & E, arXiv 2402.00522 (NeurIPS 2024), Theorem 4.4, Lemmas F.2, F.5; Trefethen, Approximation Theory and Approximation
Practice, Theorem 7.2; E, Ma & Wu, The Barron space and the flow-induced function spaces.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sympy
from flint import arb, fmpq

from analyzer.errors import InputError, OptionValue, Refusal, Remedy
from analyzer.families import DEFAULT_ERROR, MAX_HEADS, Adaptive, AdaptiveBound
from analyzer.lemmas import extraction as ex
from analyzer.lemmas import feedforward as ff
from analyzer.lemmas.lag_encoding import Form, LagEncoding, encode, rounding_margin, slot_form
from analyzer.numbers.exact import lower, nearest, rational, upper
from analyzer.numbers.search import least_whole
from analyzer.statements.bounds import Bound
from analyzer.statements.designs import Design, Proven, bank_work, interpolation_work, product_of
from analyzer.statements.theorem import Case, Theorem
from analyzer.targets.adaptive import MAX_LAG, AdaptiveMemory, show_token
from analyzer.theorems import base

if TYPE_CHECKING:
    import networkx as nx

ID = "thm-4.4"
TITLE = "adaptive memories with nested lags, one layer per level"
_CHAIN = {
    "lin": "√Σe_k² ≤ C(n)/H^n √(Σ_{l≤K} e^{0.02(n+1)T_l} + (Σ_{l>K} e^{0.01T_l})^{2n+2})",
    "log": "√Σe_k² ≤ C(n)/H^n √(Σ_{l≤K} T_l^{2.02(n+1)} + (Σ_{l>K} T_l^{1.01})^{2n+2})",
}
STATEMENT = {rpe: f"|||H − TF||| ≤ E_FFN + Σ_k Lip_k e_k,  {text},  L = levels + 1" for rpe, text in _CHAIN.items()}


def citation(bank: str, ffn: str) -> str:
    """What a network with this bank and read-out rests on."""
    return base.citation(bank, ffn, "Theorem 4.4")


def fits(value: fmpq, dtype: str) -> bool:
    """Whether a number of [−1, 1] is a float of this type: at most 24 or 53 bits, and not subnormal."""
    bits = {"float32": 24, "float64": 53}[dtype]
    twos = int(value.q).bit_length() - 1
    return value.q == 1 << twos and int(abs(value.p)).bit_length() <= bits and twos <= 126


def check_alphabet(target: AdaptiveMemory, dtype: str) -> None:
    """Refuse tokens that a float type cannot hold: the network would see others."""
    for token in target.alphabet:
        if dtype != "exact" and not all(fits(v, dtype) for v in token):
            raise InputError(f"the token {show_token(token)} is no {dtype} number; give dtype exact, or an alphabet of dyadic numbers")


def theorem_of(target: AdaptiveMemory, attention: str, deep: bool) -> str:
    """The result that a network of this kind belongs to."""
    if target.depth > 1:
        return ID
    if deep and len(target.memories) > 1:
        return "prop-4.5"
    return "thm-4.1" if attention == "dp" else "prop-4.3"


def check_sizes(target: AdaptiveMemory, options: Adaptive) -> None:
    """Refuse sizes that cannot work, before anything is built."""
    for k, name in enumerate(target.names):
        needed = ex.adaptive_heads(options.sloped, target.occurring(k)) if options.resolved_bank == "minimal" else 0
        if needed > MAX_HEADS:
            ways: list[Remedy] = [{"rpe": "lin"}] if options.rpe == "log" and max(target.occurring(k)) < MAX_HEADS else []
            raise Refusal(f"{name} needs {needed} heads of a minimal {options.rpe} bank: {MAX_HEADS} is the most that we build", *ways)


def check_options(target: AdaptiveMemory, options: Adaptive) -> None:
    """Refuse combinations that cannot work in floats, with the reason."""
    bank, dtype = options.resolved_bank, options.dtype
    if dtype == "exact":
        return
    check_alphabet(target, dtype)
    reasons, changes = list[str](), dict[str, OptionValue]()
    if bank in ("paper", "tuned"):
        reasons.append(f"the weights of a {bank} bank are astronomical")
        changes |= {"bank": "balanced" if options.rpe == "lin" else "minimal", "heads": None}
    if options.rounding == "relu":
        reasons.append(f"a staircase in {dtype} leaves a lag slot that is not exactly an integer")
        changes["rounding"] = "ideal"
    if options.rpe == "log" and options.resolved_attention == "dp":
        reasons.append(f"how a machine rounds exp and log in log[exp(.)] is not specified for {dtype}")
        changes["attention"] = "tmx"
    if reasons:
        raise Refusal("; ".join(reasons), changes, exactly(bank))


def exactly(bank: str) -> Remedy:
    """Exact arithmetic; a balanced bank is for floats, minimal ones reach every error there."""
    return {"dtype": "exact"} | ({"bank": "minimal"} if bank == "balanced" else {})


@dataclass(frozen=True)
class LeveledBound:
    """One attention bound per extracting layer: H heads each, split over the memories of that layer."""

    levels: tuple[ex.AttentionBound, ...]

    @property
    def errors(self) -> list[arb]:
        return [e for level in self.levels for e in level.errors]

    @property
    def total(self) -> arb:
        return sum(self.errors, arb(0))

    @property
    def root_sum_square(self) -> arb:
        return sum((e * e for e in self.errors), arb(0)).sqrt()

    @property
    def heads(self) -> int:
        """The most in a layer."""
        return max(level.total_heads for level in self.levels)


def leveled_bound(rpe: ex.Rpe, levels: Sequence[Sequence[int]], heads: int, tuning: str, rate: int | None) -> LeveledBound:
    """Σ of (3.1) or (3.2) over layers that extract memories with these longest lags, H heads per layer."""
    return LeveledBound(tuple(ex.attention_bound(rpe, tuple(lags), heads, tuning, rate) for lags in levels))


def solve_heads(rpe: ex.Rpe, levels: Sequence[Sequence[int]], error: float, tuning: str, rate: int | None) -> LeveledBound:
    """The fewest heads per layer for which the bounds add up to at most `error`."""

    def holds(heads: int) -> bool:
        try:
            return upper(leveled_bound(rpe, levels, heads, tuning, rate).total) <= error
        except Refusal:
            return False

    high = max(ex.solve_heads(rpe, tuple(lags), error / len(levels), tuning, rate).total_heads for lags in levels)
    return leveled_bound(rpe, levels, least_whole(holds, 1, high), tuning, rate)


def lag_lemma(memory: str) -> str:
    """The lemma on the lag of a memory."""
    return f"lag {memory}"


def extraction_lemma(memory: str) -> str:
    """The lemma on what is delivered for a memory."""
    return f"extraction {memory}"


MARGIN_SHARE = 4
"""Extraction errors may use up one part in this many of a rounding margin or plateau; the rest is for the encoding, and for safety."""


def extraction_errors(
    target: AdaptiveMemory, encodings: Sequence[LagEncoding], form: Form, rounding: str, attention_error: float, cap: float
) -> list[float]:
    """What every memory may err by: its share of Σ Lip_k e_k, and so little that the lags that are read off it stay exact."""
    count, dim = len(target.memories), target.dim
    box = [arb(1)] * dim + [arb(1 + cap)] * (count * dim)
    lipschitz = target.readout.lipschitz(box)[1:]
    base.check_slopes(lipschitz)
    allowed = [min(cap, attention_error / (count * upper(lip)) if upper(lip) > 0 else cap) for lip in lipschitz]
    for encoding in encodings:
        parents = [target.names.index(p) for p in target.parents[target.names[encoding.memory]] if p != "x0"]
        for parent in parents:
            block = range((parent + 1) * dim, (parent + 2) * dim)
            if rounding == "ideal":
                room, gain = rounding_margin(form, max(encoding.lags)), encoding.noise_gain(form, block)
            else:
                room, gain = arb(encoding.plateau() or 1), sum((abs(encoding.direction[j]) for j in block), fmpq(0))
            if gain != 0:
                allowed[parent] = min(allowed[parent], lower(room / (MARGIN_SHARE * len(parents) * arb(gain))))
    return allowed


def designs(target: AdaptiveMemory, dtype: str) -> list[Design]:
    """Heads of both types, both ways to read a lag, all banks; neurons by interpolation and splines, or sampled as in the paper; one layer
    per level, and one per memory where that is something else."""
    ways = ("spline", "barron")
    layers = ("auto", "deep") if target.schedule(True) != target.schedule(False) else ("auto",)
    found = product_of(layers=layers, attention=("dp", "tmx"), rpe=("lin", "log"), bank=("paper", "tuned", "minimal"), ffn=ways)
    if dtype != "exact":
        found += product_of(layers=layers, attention=("dp", "tmx"), rpe=("lin",), bank=("balanced",), ffn=ways)
    return [{**design, "encode": "exact" if design["ffn"] == "spline" else "barron"} for design in found]


def proven(target: AdaptiveMemory, options: Adaptive) -> Proven:
    """Levels + 1 layers; heads that bring every memory to its share, (3.6) and (3.7) or the papers' bounds, none for a balanced bank, which
    is fitted to a float type; the widest of the read-out and the lags that one layer writes, (D+1)·16‖g‖²_B/margin² neurons if sampled."""
    error = DEFAULT_ERROR if options.error is None else options.error
    form, schedule = slot_form(options.rpe, options.resolved_attention), target.schedule(options.deep)
    encodings = [encode(target, k) for k in range(len(target.memories))]
    shares = base.shares(target.readout, [arb(1)] * target.readout.coordinates, target.dim, error)
    allowed = extraction_errors(target, encodings, form, options.rounding, shares.attention, min(1.0, error))
    widths = [_lag_width(target, options, encodings[k], allowed) for k in range(len(allowed))]
    lags = max(sum(widths[k] for k in group) for group in schedule)
    readout = shares.width(options.ffn, target.readout, error)
    width_for = "lag encoding" if lags > readout else "read-out"
    if options.resolved_bank == "balanced":
        return Proven(len(schedule) + 1, None, max(lags, readout), base.BALANCED, width_for=width_for, drawn=readout)
    heads = [_heads_for(target, options, k, allowed[k]) for k in range(len(allowed))]
    counted = bank_work if options.resolved_bank == "minimal" else interpolation_work
    work = sum(len(target.occurring(k)) * counted(options.rpe, count) for k, count in enumerate(heads))  # one kernel for every lag
    most = max(sum(heads[k] for k in group) for group in schedule)
    return Proven(len(schedule) + 1, most, max(lags, readout), width_for=width_for, drawn=readout, work=work)


def _heads_for(target: AdaptiveMemory, options: Adaptive, k: int, error: float) -> int:
    lags = target.occurring(k)
    bank = options.resolved_bank
    return (
        ex.adaptive_heads(options.sloped, lags)
        if bank == "minimal"
        else ex.solve_heads(options.sloped, (max(lags),), error, bank).total_heads
    )


def _lag_width(target: AdaptiveMemory, options: Adaptive, encoding: LagEncoding, allowed: Sequence[float]) -> int:
    """Neurons that write a lag: one per place and a constant at most; or a sample of them, in the box and with the margin that the memories
    leave."""
    if options.encode != "barron":
        return len(encoding.places) + 1
    form = slot_form(options.rpe, options.resolved_attention)
    noise = [0.0, *allowed]
    gains = [encoding.noise_gain(form, range(j * target.dim, (j + 1) * target.dim)) for j in range(len(noise))]
    spent = sum((arb(gain) * arb(e) for gain, e in zip(gains, noise, strict=True)), arb(0))
    margin = rounding_margin(form, max(encoding.lags)) - spent
    if not margin > 0:
        raise Refusal(f"the memories that the lag of {target.names[encoding.memory]} is read off leave no margin to sample it")
    return encoding.sampling_width(form, margin, 1 + rational(max(noise)))


def memory_graph(
    rpe: ex.Rpe, bank: str, ffn: str, parents: Mapping[str, Sequence[str]], lags: Mapping[str, int], root: str, title: str
) -> "nx.DiGraph":
    """The proof for given memories: an extraction uses its lag, a lag uses the extractions that its encoding reads."""
    import networkx as nx

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    if bank == "balanced":
        extraction = sympy.Symbol("E", nonnegative=True)
        least = "the least extraction error and price of rounding together, over all weights of these decays"
        lemma(graph, "programme", least, extraction)
        below: tuple[str, ...] = ("programme",)
    else:
        extraction = ex.adaptive_expression(rpe, bank)
        zeros = "the kernel vanishes at every s < B, for every lag B that occurs"
        below = base.extraction_lemmas(graph, rpe, bank, zeros, "Wang & E, Lemma F.2/F.5")
    terms = []
    for k, (name, above) in enumerate(parents.items(), start=1):
        noisy = tuple(extraction_lemma(parent) for parent in above if parent != "x0")
        gain, error = (sympy.Symbol(f"{letter}_{k}", nonnegative=True) for letter in ("Lip", "e"))
        held = "encoding error plus noise of its parents, before rounding"
        lemma(graph, lag_lemma(name), held, sympy.Rational(1, 2), noisy, measured=True)
        budget = extraction.subs({ex.T: lags[name], ex.H: sympy.Symbol(f"H_{k}", positive=True)})
        source = {"minimal": "3.6, 3.7", "balanced": ""}.get(bank, "Wang & E, Lemma F.2/F.5")
        used = (lag_lemma(name), *below)
        lemma(graph, extraction_lemma(name), f"worst case over the lags of {name}", budget, used, source, measured=True)
        terms.append(gain * error)
    lemma(graph, base.READ_OUT, f"{ffn} approximation of f", ff.SPLINE if ffn == "spline" else ff.BARRON, measured=True)
    used = (base.READ_OUT, *(extraction_lemma(name) for name in parents))
    lemma(graph, root, title, sympy.Add(sympy.Symbol("E_FFN"), *terms), used, f"Wang & E, {_long_name(root)}")
    return graph


def target_graph(target: AdaptiveMemory, rpe: ex.Rpe, bank: str, ffn: str, root: str, title: str) -> "nx.DiGraph":
    """The proof for the memories of a target, parents first."""
    order = [k for group in target.schedule(deep=False) for k in group]
    parents = {target.names[k]: target.parents[target.names[k]] for k in order}
    return memory_graph(rpe, bank, ffn, parents, {target.names[k]: max(target.occurring(k)) for k in order}, root, title)


def _long_name(root: str) -> str:
    kind, number = root.split("-")
    return f"{'Theorem' if kind == 'thm' else 'Proposition'} {number}"


def proof_graph(rpe: ex.Rpe, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """The proof for a chain: every lag is read off the memory before it."""
    names = [f"m{k}" for k in range(1, len(lags) + 1)]
    parents = {name: (before,) for name, before in zip(names, ["x0", *names], strict=False)}
    return memory_graph(rpe, bank, ffn, parents, dict(zip(names, lags, strict=True)), ID, TITLE)


def root_of_squares(rpe: ex.Rpe, bank: str) -> sympy.Expr:
    """√(e_1² + e_2²), each memory with heads of its own."""
    terms = []
    for k in (1, 2):
        names = sympy.symbols(f"T_{k} H_{k} alpha_{k} gamma_{k}", positive=True)
        terms.append(ex.adaptive_expression(rpe, bank).subs(dict(zip((ex.T, ex.H, ex.alpha, ex.gamma), names, strict=True))) ** 2)
    return sympy.sqrt(sympy.Add(*terms))


expression = root_of_squares


def parallel_graph(root: str, title: str, rpe: ex.Rpe, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """The proof of one of the results on lags of the current token."""
    names = [f"m{k}" for k in range(1, len(lags) + 1)]
    return memory_graph(rpe, bank, ffn, dict.fromkeys(names, ("x0",)), dict(zip(names, lags, strict=True)), root, title)


def score_parameters(attention: str, model_dim: int, heads: int) -> dict[str, Any]:
    """Numbers that a head's score is made of in the model class: W_Q, W_K ∈ R^{D×D} and p for dot products, w ∈ R^D and p for tmx.

    (The constructions use dot products of rank one only, and store no more than that.)
    """
    per_head = 2 * model_dim**2 + 1 if attention == "dp" else model_dim + 1
    return {"per_head": per_head, "total": per_head * heads, "order": "O(D^2)" if attention == "dp" else "O(D)"}


def parallel_levels(lags: Sequence[int], chain: int) -> list[list[int]]:
    """The paper's class: the first K memories one after the other, the rest in parallel."""
    rest = list(lags[chain:])
    return [[lag] for lag in lags[:chain]] + ([rest] if rest else [])


def bound(theorem: str, target: AdaptiveMemory | None, options: AdaptiveBound) -> Bound:
    """Bounds with H heads in every layer: one level after the other, and for prop-4.5 two layers beside M + 1."""
    if (target is None) == (options.lags is None):
        raise InputError("give either a target, or the longest lag of each memory as lags")
    if options.solve == "width":
        if target is None:
            raise InputError("solve=width needs a target: the width depends on the read-out")
        return base.width_bound(theorem, target, options.ffn, options.error, {})
    longest = options.lags if target is None else tuple(max(target.occurring(k)) for k in range(len(target.memories)))
    assert longest is not None
    levels = _levels(theorem, target, longest, options.chain)
    data: dict[str, Any] = {"rpe": options.rpe, "tuning": options.bank, "lags": list(longest), "levels": levels}
    flat = _described(levels, options)
    data |= flat
    if target is not None:
        data["memories"] = _lag_widths(target, options.rpe)
    if theorem == "prop-4.5":
        deep = [[lag] for lag in longest]
        widths = [row["width_theorem"] for row in data["memories"]] if target is not None else None
        shallow = flat | {"inner_width": sum(widths) if widths else None}
        deeper = _described(deep, options) | {"inner_width": max(widths) if widths else None}
        data |= deeper | {"levels": deep, "comparison": {"two layers": shallow, "M + 1 layers": deeper}}
    parts = {f"extraction m{k}": error for k, error in enumerate(data["errors"], start=1)}
    expression = base.attention_expression(options.rpe, longest)
    constants = base.PAPER if options.bank == "paper" else {}
    return Bound(theorem, data["attention"], parts, expression, constants, data, claim="attention error")


def _levels(theorem: str, target: AdaptiveMemory | None, longest: tuple[int, ...], chain: int | None) -> list[list[int]]:
    """The longest lag of every memory, level by level."""
    if not longest or not all(1 <= lag <= MAX_LAG for lag in longest):
        raise InputError(f"lags are whole numbers from 1 to {MAX_LAG}")
    if chain is not None and (theorem != ID or target is not None or chain > len(longest)):
        raise InputError(f"chain goes with {ID} and lags, and counts at most the {len(longest)} memories")
    if target is not None and target.depth > 1 and theorem != ID:
        raise InputError(f"this target has {target.depth} levels; {theorem} is about lags of the current token, use {ID}")
    if theorem != ID:
        return [list(longest)]
    if target is not None:
        return [[longest[k] for k in group] for group in target.schedule(False)]
    return parallel_levels(longest, len(longest) if chain is None else chain)


def _described(levels: list[list[int]], options: AdaptiveBound) -> dict[str, Any]:
    rate = None if options.rate == "best" else options.rate
    if options.heads is None:
        assert options.error is not None  # checked when the options were made
        found = solve_heads(options.rpe, levels, options.error, options.bank, rate)
    else:
        found = leveled_bound(options.rpe, levels, options.heads, options.bank, rate)
    return {
        "layers": len(levels) + 1,
        "heads": found.heads,
        "split": [list(level.heads) for level in found.levels],
        "rate": [level.rate for level in found.levels],
        "alpha": [[nearest(t.alpha) for t in level.tunings] for level in found.levels],
        "gamma": [[nearest(t.gamma) for t in level.tunings] for level in found.levels],
        "errors": [upper(e) for e in found.errors],
        "attention": upper(found.total),
        "root_sum_square": upper(found.root_sum_square),
    }


def _lag_widths(target: AdaptiveMemory, rpe: ex.Rpe) -> list[dict[str, Any]]:
    """Barron norms and sampling widths of a target's lags, for dot-product attention and parents without error."""
    rows, form = [], slot_form(rpe, "dp")
    for k, name in enumerate(target.names):
        margin = rounding_margin(form, max(target.occurring(k)))
        row: dict[str, Any] = {"name": name, "lags": list(target.occurring(k)), "margin": upper(margin)}
        rows.append(row | encode(target, k).describe(form, margin))
    return rows


POINTER = {
    "kind": "adaptive",
    "alphabet": [["-1"], ["1"]],
    "readout": "x0*m1",
    "memory": [{"name": "m1", "lag": ["1", "2"], "parent": "x0"}],
}
NESTED = {**POINTER, "readout": "m1*m2", "memory": [*POINTER["memory"], {"name": "m2", "lag": ["2", "1"], "parent": "m1"}]}
PAIR = {**POINTER, "readout": "m1 + m2", "memory": [*POINTER["memory"], {"name": "m2", "lag": ["3", "1"], "parent": "x0"}]}
"""Small targets: one lag, two nested lags, two lags side by side."""


def check(target: AdaptiveMemory, options: Adaptive) -> None:
    """Refuse what cannot work, before anything is built."""
    check_options(target, options)
    check_sizes(target, options)


def adaptive_theorem(id: str, title: str, page: str, cases: tuple[Case, ...], shelf: float, **symbolic: Any) -> Theorem:
    """One of the four results that share construction and certificate."""
    return Theorem(
        id=id,
        title=title,
        page=page,
        target="adaptive",
        options=Adaptive,
        bound_options=AdaptiveBound,
        needs_target=False,
        bound=lambda target, options: bound(id, target, options),
        check=check,
        build="constructions.theorems.thm_4_4:build",
        verify="verify.theorems.thm_4_4:verify",
        designs=designs,
        proven=proven,
        applies=lambda target, options: options.rpe != "table" and theorem_of(target, options.resolved_attention, options.deep) == id,
        cases=cases,
        shelf=shelf,
        **symbolic,
    )


THEOREM = adaptive_theorem(
    ID,
    TITLE,
    __doc__,
    (Case(NESTED, {"error": 0.05}, {"heads": 256}), Case(NESTED, {"rpe": "log", "attention": "tmx"}, {"error": 0.5})),
    5,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
)
