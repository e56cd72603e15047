"""Depth is the cure: a chain of shifts reaches every lag in floats, and no linear chain of L layers with H lin heads reaches beyond L·H.

Setting. Tokens x_t ∈ [−1, 1]^d, y_t = f(x_t, x_{t−T_1}, …, x_{t−T_M}), T = T_M; L dp-free layers with at most H lin heads each and an
infinite window. Inner feed-forward networks are affine maps (the law), linear or plateaus (the construction); the last one is any f.

Statement. (Law) If L·H ≤ T−1, the worst-case error for y_t = x_{t−T} is at least 1, that of the zero network. (Chain) With shifts τ_1 + …
+ τ_L = T and e_l = ‖κ_l − 1_{τ_l}‖₁ the error of the chain is at most Π_l (1 + e_l) − 1; with rounding f_l per unit of size in layer l at
most Π_l (1 + e_l + f_l) − 1. (Restoration) On tokens of A^d, A = {v_1 < … < v_n} ⊂ [−1, 1], let a plateau follow every shift: constant on
the ω-neighbourhood of every letter, ω < half the smallest gap. If max|A| e_l + f_l ≤ ω in every layer, the errors do not add up, and the
read-out is exact up to the sum that it ends with: any lag in ⌈T/τ⌉ + 1 layers, where τ is the longest shift that obeys the inequality.

Proof of the law. Hold all coordinates but one at 0. A head multiplies by W_O W_V (1−z)/(1−zw) in generating functions, so a layer
multiplies the stream by N(w)/Π_h(1−z_h w), N a polynomial matrix of degree ≤ H; affine maps between layers change neither. Hence the
stream that the last feed-forward network reads has the kernels g_j with generating functions N_j/Q, deg N_j ≤ LH, deg Q ≤ LH, Q(0) = 1
(poles may coincide: nothing here asks for distinct ones). So g_j(1), g_j(2), … obey one linear recurrence of order LH. Let V be the space
of sequences on 1..2T−1 that obey it. For κ ∈ V the T×T Hankel matrix κ(i+j+1) has rank ≤ LH ≤ T−1 and is singular; its antidiagonal is
κ(T), and were |κ(T)| > Σ_{s≠T} |κ(s)| it would be strictly diagonally dominant after reversing its columns. Hence |1−κ(T)| + Σ_{s≠T}
|κ(s)| ≥ 1 for every κ ∈ V: 1_T has ℓ¹ distance ≥ 1 from V, and by duality there is δ ⊥ V with |δ_s| ≤ 1 and δ_T = 1. The inputs ±δ (0
elsewhere) give every coordinate of the stream the same number, and want ±1. Several lags, each to an error below 1: L·H ≥ T_M.

Proof of the chain. ‖κ*κ' − 1_{τ+τ'}‖₁ = ‖(κ − 1_τ)*κ' + 1_τ*(κ' − 1_{τ'})‖₁ ≤ e(1 + e') + e', and induction. In floats layer l computes
κ_l of the sequence that it is given, up to f_l times its size ≤ 1 + E_{l−1}: E_l ≤ (1+e_l)E_{l−1} + e_l + f_l(1+E_{l−1}).

Proof of restoration. A plateau maps into [v_1, v_n], so every layer, also before the first token, reads values v of size ≤ max|A|; where
layer l−1 holds letters, layer l delivers x_{t−σ_l} up to max|A| e_l + f_l ≤ ω, and its plateau returns the letter up to one rounding. At
the end w_j = relu(k(θ_j − r)) is 0 if r belongs to a letter above the j-th gap and ≥ 1 below it, without rounding; relu(1 − Σ_{j∈J} w_j)
is then the indicator of "above all gaps of J", 0 or 1 exactly, and every f on A is a combination of those (mixed differences of its
table).

Construction. `constructions.theorems.shift_chain`: blocks x0, source (read by heads), carrier (written by them), memories; the feed-forward
network of a layer moves the carrier into the source. The planner minimises layers, then heads. Restored networks are certified at
positions all of whose lags lie inside the array.

References. The model is that of Wang & E, arXiv 2402.00522 (NeurIPS 2024), Section 2; law, chain and restoration are ours.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import sympy
from flint import arb, fmpq

from analyzer.errors import InputError, OptionValue, Refusal, Remedy
from analyzer.families import MAX_DEPTH, Fixed
from analyzer.lemmas import extraction as ex
from analyzer.lemmas import feedforward as ff
from analyzer.numbers.exact import UNIT
from analyzer.statements.designs import Design, Proven, bank_work, depth_work, product_of
from analyzer.statements.theorem import Case, Theorem
from analyzer.targets.fixed import FixedMemory
from analyzer.theorems import base, thm_3_1

if TYPE_CHECKING:
    import networkx as nx

ID = "shift-chain"
TITLE = "fixed memories by a chain of shifts: L·H ≥ T, and any lag in floats"
STATEMENT = {
    "lin": "error < 1 needs L·H ≥ T; a chain of shifts has |||H − TF||| ≤ E_FFN + Σ_k Lip_k (Π_l (1 + e_l) − 1), 0 when restored",
    "log": "a chain of shifts has |||H − TF||| ≤ E_FFN + Σ_k Lip_k (Π_l (1 + e_l) − 1)",
}
BANKS = ("minimal", "balanced")
OBJECTIVE = "with depth auto the fewest layers, then the fewest heads in all, of the banks on offer"
MAX_PLANNED_LAG = 4 * MAX_DEPTH
"""Lags that are planned for: four tokens per layer are what float32 restores."""
LONGEST_EXACT = thm_3_1.SHIFT * thm_3_1.MAX_SHIFTS
"""Lags for which an exact chain is proposed."""
MAX_COMBINATIONS = 1024
"""Combinations of letters that the read-out of a restored network may depend on."""

SHIFT, COMPOSITION, RESTORATION, PLATEAUS, TABLE = "shift", "composition", "restoration", "plateaus", "table"
"""Lemmas of which a certificate shows numbers; the last three are those of chains that are restored."""

tau, L = sympy.symbols("tau L", positive=True)


def citation(bank: str, ffn: str) -> str:
    """What a network with this bank and read-out rests on."""
    return base.citation(bank, ffn, "Section 2, the model")


def expression(rpe: ex.Rpe, bank: str) -> sympy.Expr:
    """The error of L equal shifts by τ."""
    return (1 + base.expression(rpe, bank).subs(ex.T, tau)) ** L - 1


def composed(errors: Sequence[arb]) -> arb:
    """Π_l (1 + e_l) − 1."""
    product = arb(1)
    for error in errors:
        product *= 1 + error
    return product - 1


def least_heads(lag: int, layers: int) -> int:
    """⌈T/L⌉: the law as a number of heads per layer."""
    return -(-lag // layers)


def least_budget(unit: fmpq, shift: int) -> float:
    """min(1, u·C(2τ, τ)): no bank of one lin layer has a smaller ‖κ − 1_τ‖₁ + u(|c| + Σ|a_h|) (by duality: u(1−z)^{2τ})."""
    return min(1.0, float(arb(unit) * math.comb(2 * shift, shift)))


def check_options(target: FixedMemory, options: Fixed) -> None:
    """Refuse what cannot work, before anything is built."""
    bank, heads, dtype = options.bank, options.heads, options.dtype
    depth = None if options.depth == "auto" else options.depth
    error = thm_3_1.DEFAULT_ERROR if options.error is None else options.error
    if target.alphabet is not None and not options.restore:
        raise InputError("the alphabet is what restore resets values to: set restore, or leave the alphabet out")
    if options.rpe != "lin":
        raise InputError(f"rpe is {options.rpe!r}; depth chains shifts of lin heads, whose kernels are rational: give rpe lin")
    if bank not in BANKS:
        raise InputError(f"bank is {bank!r}, whose weights are no shifts; depth goes with bank minimal or balanced")
    lag = target.lags[-1]
    if depth is not None and depth > lag:
        raise InputError(f"depth is {depth}, more layers than the lag {lag} has tokens to shift by; give at most {lag}, or auto")
    if heads is not None and depth is not None and depth * heads < lag:
        raise Refusal(
            f"{depth} layers with {heads} heads cannot reach lag {lag}: L·H ≥ T is the law for error below 1",
            {"depth": "auto"},
            {"depth": -(-lag // heads)},
            {"heads": least_heads(lag, depth)},
        )
    if dtype == "exact" and heads is None and least_heads(lag, depth or 1) > thm_3_1.MAX_HEADS:
        chain = least_heads(lag, thm_3_1.SHIFT)
        reason = f"lag {lag} needs more than {thm_3_1.MAX_HEADS} heads in a layer, the most that we build"
        raise Refusal(reason, *({"depth": chain} for _ in range(chain <= thm_3_1.MAX_SHIFTS)))
    if dtype != "exact" and lag > MAX_PLANNED_LAG:
        raise Refusal(
            f"lag {lag} is longer than any chain that we plan: {MAX_PLANNED_LAG} tokens in at most {MAX_DEPTH} layers",
            *exactly(lag, bank, heads),
        )
    if bank == "balanced" and dtype == "exact":
        raise InputError("bank is 'balanced', which is fitted to a float type; with dtype exact give bank minimal")
    if options.restore:
        _check_restoration(target, dtype, options.width)
    elif options.width is not None:
        ff.check_width(options.width, target.readout)
    if dtype != "exact" and depth is not None:
        room = 1.0 if options.restore else error
        budget = least_budget(UNIT[dtype], least_heads(lag, depth))
        if budget > room:
            enough = next((n for n in range(depth, lag + 1) if least_budget(UNIT[dtype], least_heads(lag, n)) <= room), None)
            ways: list[Remedy] = [{"depth": "auto"}, {"depth": enough}] if enough else []
            ways += [] if enough or options.restore or dtype == "float64" else [{"dtype": "float64"}]
            ways += [] if options.restore else exactly(lag, bank, heads)
            raise Refusal(
                f"{depth} layers are too few for lag {lag} in {dtype}: one of them shifts by {least_heads(lag, depth)} tokens, and every "
                f"bank for that costs at least {budget:.3g} in error and rounding (u·C(2τ, τ))",
                *ways,
            )


def exactly(lag: int, bank: str, heads: int | None) -> list[Remedy]:
    """Exact arithmetic, where minimal banks of long shifts reach every error."""
    if lag > LONGEST_EXACT:
        return []
    changes: dict[str, OptionValue] = {"dtype": "exact", "depth": least_heads(lag, thm_3_1.SHIFT)}
    return [changes | ({} if bank == "minimal" else {"bank": "minimal"}) | ({} if heads is None else {"heads": None})]


def _check_restoration(target: FixedMemory, dtype: str, width: int | None) -> None:
    letters = target.alphabet
    if letters is None:
        raise InputError("restore resets errors to letters: give the alphabet of the tokens, for example -1,1")
    if dtype == "exact":
        raise InputError("restore takes the rounding of floats away, exact networks have none; give dtype float32 or float64")
    if width is not None:
        raise InputError("width does not go with restore: the read-out is a table of the alphabet")
    mantissa = (1 / UNIT[dtype]).p.bit_length() - 1
    for letter in letters:
        odd = abs(int(letter.p))
        twos = int(letter.q).bit_length() - 1
        if int(letter.q) != 1 << twos or (odd and odd.bit_length() > mantissa) or twos > 120:
            raise InputError(f"{dtype} cannot hold the letter {letter} exactly; choose letters with few binary digits, such as 0.5 or 0.25")
    variables = len(readout_variables(target))
    if variables * math.log(len(letters)) > math.log(MAX_COMBINATIONS) + 1e-9:
        raise Refusal(
            f"the read-out depends on {len(letters)}^{variables} combinations of letters, a restored network holds a table of at most "
            f"{MAX_COMBINATIONS}; use fewer letters, memories or coordinates"
        )


def readout_variables(target: FixedMemory) -> list[int]:
    """Coordinates of (x0, m1, …) that the read-out depends on."""
    readout = target.readout
    rows = [readout.affine, *(ridge.direction for ridge in readout.ridges)]
    return [j for j in range(readout.coordinates) if any(row[j] != 0 for row in rows)]


def proof_graph(rpe: ex.Rpe, bank: str, ffn: str, lags: Sequence[int]) -> "nx.DiGraph":
    """The proof: who uses whom, with a symbolic budget on every lemma."""
    import networkx as nx

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    below = base.extraction_lemmas(graph, rpe, bank, "the kernel vanishes at every s ≤ H except the shift")
    lemma(graph, SHIFT, "worst case of one shift by τ", base.expression(rpe, bank).subs(ex.T, tau), below, measured=True)
    lemma(graph, COMPOSITION, "errors of L equal shifts", expression(rpe, bank), (SHIFT,), measured=True)
    _law(graph, lags[-1])
    lemma(graph, base.READ_OUT, f"{ffn} approximation of f", ff.SPLINE if ffn == "spline" else ff.BARRON, measured=True)
    slopes = sympy.Symbol("Lip", nonnegative=True) * expression(rpe, bank)
    lemma(graph, ID, TITLE, sympy.Symbol("E_FFN") + slopes, ("law", COMPOSITION, base.READ_OUT))
    return graph


def _law(graph: "nx.DiGraph", lag: int) -> None:
    from analyzer.statements.proof import lemma

    lemma(graph, "Hankel", "rank of the Hankel matrix of LH poles", L * ex.H)
    lemma(graph, "law", f"layers times heads for lag {lag}, error below 1 (lin)", sympy.Integer(lag), ("Hankel",), relation="≥")


def restored_graph(rpe: ex.Rpe, bank: str, lag: int, resets: bool) -> "nx.DiGraph":
    """The proof for a chain whose values are set back to letters after every shift but the last (`resets`: there is more than one), and
    whose read-out is a table: where the error of a shift stays below the room around the letters, only what is stored is off."""
    import networkx as nx

    from analyzer.statements.proof import lemma

    graph = nx.DiGraph()
    below = base.extraction_lemmas(graph, rpe, bank, "the kernel vanishes at every s ≤ H except the shift")
    lemma(graph, SHIFT, "worst case of one shift by τ", base.expression(rpe, bank).subs(ex.T, tau), below, measured=True)
    room, stored, entries = sympy.symbols("r E_letters E_table", nonnegative=True)
    used: tuple[str, ...] = (SHIFT,)
    if resets:
        lemma(graph, RESTORATION, "a shifted letter against the room around letters", room, (SHIFT,), measured=True)
        lemma(graph, PLATEAUS, "staircases at the letters: storage", stored, measured=True)
        used = (RESTORATION, PLATEAUS)
    _law(graph, lag)
    lemma(graph, TABLE, "f at every combination of letters: storage", entries, used, measured=True)
    lemma(graph, ID, TITLE, entries, ("law", TABLE))
    return graph


MOST_DEPTHS = 8
"""Numbers of layers that are set side by side."""
MOVED = 4
"""Neurons that move one coordinate from one shift to the next: two read what arrived, two clear what was there."""


def depths(lag: int) -> list[int]:
    """The fewest layers, two at least, for every number of heads ⌈T/L⌉ that they leave; of many, about evenly on a logarithmic scale."""
    found = sorted({least_heads(lag, heads) for heads in {least_heads(lag, layers) for layers in range(2, min(lag, MAX_DEPTH) + 1)}})
    if len(found) <= MOST_DEPTHS:
        return found
    wanted = [2 * (found[-1] / 2) ** (k / (MOST_DEPTHS - 1)) for k in range(MOST_DEPTHS)]
    return sorted({min(found, key=lambda layers: abs(math.log(layers / about))) for about in wanted})


def designs(target: FixedMemory, dtype: str) -> list[Design]:
    """Chains of several depths; in floats with either bank, and of the depth that the planner finds; restored where there are letters."""
    exact = dtype == "exact"
    chains: list[OptionValue] = [*depths(target.lags[-1]), *(() if exact else ("auto",))]
    ways = base.read_out_ways(target.readout) if target.alphabet is None else ("spline",)
    restored = {} if target.alphabet is None else {"restore": True}
    return [{**design, **restored} for design in product_of(depth=chains, bank=BANKS[:1] if exact else BANKS, ffn=ways)]


def proven(target: FixedMemory, options: Fixed) -> Proven:
    """L layers of ⌈T/L⌉ heads, which by (3.3) make every shift as exact as one likes; the width of the read-out or of the moves between."""
    error = thm_3_1.DEFAULT_ERROR if options.error is None else options.error
    if target.alphabet is not None or not isinstance(options.depth, int):
        return Proven(reason="the chain is planned for its float type: the law L·H ≥ T is all that is known before")
    shares = base.shares(target.readout, target.radii(), target.dim, error)
    heads, moves = least_heads(target.lags[-1], options.depth), MOVED * target.dim
    width = shares.width(options.ffn, target.readout, error)
    work, width_for = options.depth * bank_work("lin", heads) + depth_work(options.depth), "moves" if moves > width else "read-out"
    if options.bank == "balanced":
        return Proven(options.depth, None, max(width, moves), base.BALANCED, width_for, work=work)
    return Proven(options.depth, heads, max(width, moves), width_for=width_for, work=work)


THEOREM = Theorem(
    id=ID,
    title=TITLE,
    page=__doc__,
    target="fixed",
    options=Fixed,
    formulas=STATEMENT,
    expression=expression,
    lemmas=proof_graph,
    citation=citation,
    check=check_options,
    build="constructions.theorems.shift_chain:build",
    verify="verify.theorems.shift_chain:verify",
    designs=designs,
    proven=proven,
    applies=lambda target, options: options.depth is not None,
    cases=(
        Case({"kind": "fixed", "lags": [9]}, {"depth": "auto", "bank": "balanced", "dtype": "float32", "error": 0.05}),
        Case({"kind": "fixed", "lags": [12], "alphabet": ["-1", "1"]}, {"depth": "auto", "restore": True, "dtype": "float32"}),
    ),
    shelf=8,
    instead="it is the law L·H ≥ T and a product over layers; `build fixed` with a depth plans a chain",
)
