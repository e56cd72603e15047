"""Theorem 4.4 of Wang & E: adaptive memories whose lags depend on each other, one layer per level.

Setting. Tokens from a finite alphabet in [−1, 1]^d, target y_t = f(x_t, x_{t−t_1}, …, x_{t−t_M}), each lag t_i = g_i(x_t and memories
of lower level) an integer in [1, T_i] (`analyzer.adaptive`). Layers of normalisation-free attention, dot-product or tmx, and
feed-forward networks with precision: FFN(u) is rounded to [·] (lin, tmx) or log[exp(·)] (dot-product log) on its lag slots.

Statement. For every n ≥ 1 there is a network with |||H − TF||| ≤ E_FFN + Σ_k Lip_k(f) e_k, e_k the extraction error of memory k. For
the paper's class, a chain of K memories followed by parallel ones, L = K + 1 + 1{M ≥ K+1} layers of H heads have

    lin   √(Σ e_k²) ≤ C(n)/Hⁿ √( Σ_{l≤K} e^{0.02(n+1)T_l} + (Σ_{l>K} e^{0.01 T_l})^{2n+2} )      log   T_l^{2.02(n+1)}, T_l^{1.01}

if the inner widths are Ω̃(max_{i≤K} ‖g_i‖² ∨ Σ_{i>K} ‖g_i‖²) (log: ‖log g_i‖² T_i²). For any dependency graph without cycles we use one
layer per level and one for the first encoding: L = levels + 1.

Constants. e_k is (3.1) or (3.2) for T_k = max g_k, or (3.6), (3.7) for the minimal banks, in `analyzer.extraction`: every lag B ≤ T_k
inherits it. Barron norms, sampling widths and rounding margins are in `analyzer.lag_encoding`. The
paper's form Lip₂ √(Σ d e_k²), Lip₂ = sup ‖∇f‖₂, can be smaller than Σ Lip_k e_k when the slots' suprema are not attained together; we
promise the sum, and certify it or, where that is smaller, the worst of all situations. `bound` prints √(Σ e_k²) beside Σ e_k, without
Lipschitz constants.

Construction. `constructions.thm_4_4`. Residual stream of width (M+1)(d+1): x_t, the memories, their lag slots, a constant slot. Layer 1
has its attention off; its FFN writes the lags of level 1 and the constant 1. Layer l+1 extracts the memories of level l with scores
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

from analyzer import extraction as ex
from analyzer import feedforward as ff
from analyzer.adaptive import AdaptiveMemory, show_token
from analyzer.errors import InputError, Refusal
from analyzer.exact import upper
from analyzer.theorems import thm_3_1
from analyzer.theorems.thm_3_1 import LEAST_ERROR, MAX_HEADS

if TYPE_CHECKING:
    import networkx as nx

ID = "thm-4.4"
TITLE = "adaptive memories with nested lags, one layer per level"
_CHAIN = {
    "lin": "√Σe_k² ≤ C(n)/H^n √(Σ_{l≤K} e^{0.02(n+1)T_l} + (Σ_{l>K} e^{0.01T_l})^{2n+2})",
    "log": "√Σe_k² ≤ C(n)/H^n √(Σ_{l≤K} T_l^{2.02(n+1)} + (Σ_{l>K} T_l^{1.01})^{2n+2})",
}
STATEMENT = {rpe: f"|||H − TF||| ≤ E_FFN + Σ_k Lip_k e_k,  {text},  L = levels + 1" for rpe, text in _CHAIN.items()}
OPTIONS = {
    "rpe": ("lin", "log"),
    "attention": ("dp", "tmx"),
    "bank": thm_3_1.BANKS,
    "encode": ("exact", "barron"),
    "rounding": ("ideal", "relu"),
    "dtype": ("exact", "float64", "float32"),
}


def citation(bank: str, ffn: str) -> str:
    """What a network with this bank and read-out rests on."""
    return thm_3_1.citation(bank, ffn, "Theorem 4.4")


def fits(value: fmpq, dtype: str) -> bool:
    """Whether a number of [−1, 1] is a float of this type: at most 24 or 53 bits, and not subnormal."""
    bits = {"float32": 24, "float64": 53}[dtype]
    twos = int(value.q).bit_length() - 1
    return value.q == 1 << twos and int(abs(value.p)).bit_length() <= bits and twos <= 126


def check_alphabet(target: AdaptiveMemory, dtype: str) -> None:
    """Refuse tokens that a float type cannot hold: the network would see others."""
    for token in target.alphabet:
        if dtype != "exact" and not all(fits(v, dtype) for v in token):
            raise InputError(f"the token {show_token(token)} is no {dtype} number; use --dtype exact or an alphabet of dyadic numbers")


def theorem_of(target: AdaptiveMemory, attention: str, deep: bool) -> str:
    """The result that a network of this kind belongs to."""
    if target.depth > 1:
        return ID
    if deep and len(target.memories) > 1:
        return "prop-4.5"
    return "thm-4.1" if attention == "dp" else "prop-4.3"


def check_sizes(target: AdaptiveMemory, rpe: ex.Rpe, bank: str, heads: int | None, error: float | None) -> None:
    """Refuse sizes that cannot work, before anything is built."""
    if error is not None and not LEAST_ERROR <= error < float("inf"):
        raise InputError(f"error {error} is out of range; give at least {LEAST_ERROR}")
    if heads is not None and not 1 <= heads <= MAX_HEADS:
        raise InputError(f"{heads} heads: give 1 to {MAX_HEADS}")
    if heads is not None and bank == "minimal":
        raise InputError("a minimal bank has the heads it needs; --heads goes with --bank paper or tuned")
    for k, name in enumerate(target.names):
        needed = ex.adaptive_heads(rpe, target.occurring(k)) if bank == "minimal" else 0
        if needed > MAX_HEADS:
            raise Refusal(f"{name} needs {needed} heads of a minimal {rpe} bank: {MAX_HEADS} is the most that we build; use shorter lags")


def check_options(
    target: AdaptiveMemory, rpe: ex.Rpe, attention: str, bank: str, encode: str, rounding: str, width: int | None, dtype: str
) -> None:
    """Refuse unknown options, and combinations that cannot work, with the reason."""
    chosen = {"rpe": rpe, "attention": attention, "bank": bank, "encode": encode, "rounding": rounding, "dtype": dtype}
    for name, value in chosen.items():
        if value not in OPTIONS[name]:
            raise InputError(f"{name} is {value!r}; choose from {', '.join(OPTIONS[name])}")
    if encode == "barron" and rounding == "relu":
        raise InputError("a relu staircase is built on the alphabet itself, nothing is sampled; use --encode exact or --rounding ideal")
    if width is not None and encode != "barron":
        raise InputError("--width is the number of Barron neurons per lag; it goes with --encode barron")
    if width is not None and not 1 <= width <= ff.MAX_WIDTH:
        raise InputError(f"--width {width} is out of range; give 1 to {ff.MAX_WIDTH}")
    if dtype == "exact":
        return
    if bank != "minimal":
        raise Refusal(f"the weights of a {bank} bank are astronomical; use --bank minimal or --dtype exact")
    check_alphabet(target, dtype)
    if rounding == "relu":
        raise Refusal(f"a staircase in {dtype} leaves a lag slot that is not exactly an integer; use --rounding ideal or --dtype exact")
    if rpe == "log" and attention == "dp":
        raise Refusal(f"how a machine rounds exp and log in log[exp(.)] is not specified for {dtype}; use --attention tmx or --dtype exact")


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
    low = 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return leveled_bound(rpe, levels, high, tuning, rate)


def lag_lemma(memory: str) -> str:
    """The lemma on the lag of a memory."""
    return f"lag {memory}"


def extraction_lemma(memory: str) -> str:
    """The lemma on what is delivered for a memory."""
    return f"extraction {memory}"


def memory_graph(
    rpe: ex.Rpe, bank: str, ffn: str, parents: Mapping[str, Sequence[str]], lags: Mapping[str, int], root: str, title: str
) -> "nx.DiGraph":
    """The proof for given memories: an extraction uses its lag, a lag uses the extractions that its encoding reads."""
    import networkx as nx

    from analyzer.proof import lemma

    graph = nx.DiGraph()
    extraction = ex.adaptive_expression(rpe, bank)
    zeros = "the kernel vanishes at every s < B, for every lag B that occurs"
    below = thm_3_1.extraction_lemmas(graph, rpe, bank, zeros, "Wang & E, Lemma F.2/F.5")
    terms = []
    for k, (name, above) in enumerate(parents.items(), start=1):
        noisy = tuple(extraction_lemma(parent) for parent in above if parent != "x0")
        gain, error = (sympy.Symbol(f"{letter}_{k}", nonnegative=True) for letter in ("Lip", "e"))
        held = "encoding error plus noise of its parents, before rounding"
        lemma(graph, lag_lemma(name), held, sympy.Rational(1, 2), noisy, measured=True)
        budget = extraction.subs({ex.T: lags[name], ex.H: sympy.Symbol(f"H_{k}", positive=True)})
        source = "Wang & E, Lemma F.2/F.5" if bank != "minimal" else "3.6, 3.7"
        used = (lag_lemma(name), *below)
        lemma(graph, extraction_lemma(name), f"worst case over the lags of {name}", budget, used, source, measured=True)
        terms.append(gain * error)
    lemma(graph, thm_3_1.READ_OUT, f"{ffn} approximation of f", ff.SPLINE if ffn == "spline" else ff.BARRON, measured=True)
    used = (thm_3_1.READ_OUT, *(extraction_lemma(name) for name in parents))
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
