"""Lower bounds for memory kernels: what H heads of one RPE type cannot do, whatever their decays.

Setting. One dp-free layer with H heads of one RPE type and any decays, the residual, *any* feed-forward network of any width, tokens in
[−1, 1]; target y_t = Σ_{s≥0} ρ(s) x_{t−s}. On s ≥ 1 what the heads deliver lies in the span of k_1..k_H, k_h(s) = z_h^s or s^{−p_h}.

Statement. The worst-case error e of such a network obeys

    Hankel (lin)   e ≥ σ_{H+1}(ρ(i+j+1))_{i,j≥0}          Helson (log)   e ≥ σ_{H+1}(ρ(mn))_{m,n≥1}
    signs (both)   e ≥ min Σ |ρ(s)| over the s at which a sign pattern with at most H−1 changes disagrees with ρ,

and finite sections, compressions and windows s ≤ N give smaller, hence true, bounds.

Proof. *From read-outs to distances.* Let dist be the ℓ¹ distance of (ρ(s))_{1≤s≤N} from the span of the k_h restricted to 1..N. By
duality there is δ with |δ_s| ≤ 1, Σ δ_s k_h(s) = 0 for every h and Σ δ_s ρ(s) = dist. The inputs x_{t−s} = ±δ_s (0 at s = 0 and beyond N)
give every head, and the residual, the value 0: the feed-forward network answers both alike, while ±dist is wanted. So e ≥ dist, for every
read-out.

*Hankel.* For κ in the span, (κ(i+j+1)) = Σ_h A_h z_h (z_h^i z_h^j) has rank at most H. With d = κ − ρ the matrix (d(i+j+1)) is Σ_s d(s)
J_s, where J_s has ones at i + j + 1 = s only: a partial permutation, of norm 1. So its operator norm is at most Σ_s |d(s)|, and by
Eckart–Young–Mirsky a matrix of rank H is at least σ_{H+1}(ρ(i+j+1)) away in operator norm.

*Helson.* κ(mn) = Σ_h A_h m^{−p_h} n^{−p_h} has rank at most H, and (d(mn)) = Σ_s d(s) P_s with P_s the ones at mn = s: again a partial
permutation (m = s/n). Sections over any sets of rows and columns are sections of partial permutations.

*Compressions.* For matrices P, Q with orthonormal columns σ_k(PᵀAQ) ≤ σ_k(A). Hankel sections use the normalised indicators of blocks
[b_k, b_{k+1}) that grow geometrically: entries are Σ_{i∈I, j∈J} ρ(i+j+1)/√(|I||J|), a second difference of F with F(n) − 2F(n+1) + F(n+2)
= ρ(n), which for (n+β)^{−σ} is F(n) = ζ(σ−1, n+β) − (n+β−1) ζ(σ, n+β) (Hurwitz, also where the series diverges; −ψ(n+β) in place of ζ(1,
·)) and z^n/(1−z)² for z^n. So heavy tails are seen over many scales with a hundred rows.

*Signs.* Σ_h A_h k_h(s) has at most H−1 changes of sign on s ≥ 1 (Descartes' rule for exponential sums; log: in the variable log s). Where
κ(s) and ρ(s) do not have the same sign, |κ(s) − ρ(s)| ≥ |ρ(s)|. This sees that decays are real and positive, which Hankel's bound does
not: it is the better one for oscillating kernels, whose Hankel matrices may have rank 2. For a single bump both are far below what is
reachable: complex decays would do much better than real ones there.

Certificate. With V an integer matrix of H+1 columns (numerical singular vectors, rounded), Courant–Fischer gives σ_{H+1}(A) ≥ τ whenever
(AV)ᵀ(AV) − τ² VᵀV is positive definite, which an LDLᵀ decomposition in ball arithmetic shows. The least disagreement of signs is found by
dynamic programming over the number of changes.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from flint import arb, arb_mat, fmpq, fmpz_mat

from analyzer.errors import InputError
from analyzer.kernels.memory_kernels import Factors, MemoryKernel
from analyzer.lemmas.extraction import Rpe
from analyzer.numbers.exact import lower, working_precision
from analyzer.statements.theorem import Theorem

ID = "hankel"
TITLE = "heads per kernel: singular values that no H heads can beat"

BITS = 256
"""Precision of sections: second differences lose about twice the bits of the largest index, 60 of them."""
VECTOR_BITS = 44
"""Singular vectors are rounded to multiples of 2^-44: double precision does not know them better."""
PLAIN = 64
"""Rows of a section before blocks begin to grow, and the most of a plain section."""
BLOCK_RATIO = 1.15
FARTHEST = 10**8
SIGN_WINDOW = 512
LONGEST_WINDOW = 1 << 12
"""Signs that are looked at, and the most that a certificate may ask for."""
MAX_EDGES = 400
"""Rows that a certificate may ask for: a few seconds."""
SHRINK = (2.0**-34, 2.0**-24, 2.0**-14, 2.0**-7)
"""Shares by which a numerical singular value is lowered until it can be certified."""


@dataclass(frozen=True)
class LowerBound:
    """e ≥ claim, and the data that show it: `kind` hankel, helson or signs."""

    claim: fmpq
    kind: str
    edges: tuple[int, ...]
    """Block boundaries (hankel), rows (helson), or the window's end (signs)."""
    vectors: tuple[tuple[int, ...], ...] = ()
    """The H+1 columns of V, multiplied by 2^44."""

    @property
    def value(self) -> float:
        """The claim, rounded down."""
        return lower(arb(self.claim))


def antidifference(kernel: MemoryKernel, n: int) -> arb | None:
    """F(n) with F(n) − 2F(n+1) + F(n+2) = ρ(n), if every term is a power of one affine form or an exponential."""
    total = arb(0)
    for c, factors in kernel.terms:
        value = _second_sum(factors, n)
        if value is None:
            return None
        total += arb(c) * value
    return total


def _second_sum(factors: Factors, n: int) -> arb | None:
    c0, c1, c2 = factors.exponent
    if factors.waves or c2 != 0:
        return None
    if not factors.powers:
        z = arb(c1).exp()
        return arb(c0).exp() * z**n / (1 - z) ** 2
    if c1 != 0 or len(factors.powers) > 1:
        return None
    ((alpha, beta, q),) = factors.powers
    place = arb(n + beta / alpha)
    if not place > 0:
        return None
    first = -place.digamma() if q == -2 else arb(-q - 1).zeta(place)
    return arb(c0).exp() * arb(alpha) ** arb(q) * (first - (place - 1) * arb(-q).zeta(place))


def block_edges(kernel: MemoryKernel, rows: int) -> tuple[int, ...]:
    """0, 1, …, rows; for heavy tails with a closed antidifference blocks go on geometrically from the middle."""
    if kernel.shape == "exponential" or antidifference(kernel, 1) is None:
        return tuple(range(rows + 1))
    edges = list(range(rows // 2 + 1))
    while edges[-1] < FARTHEST:
        edges.append(max(edges[-1] + 1, int(edges[-1] * BLOCK_RATIO)))
    return tuple(edges)


def hankel_section(kernel: MemoryKernel, edges: Sequence[int]) -> list[list[arb]]:
    """PᵀΓP in balls, P the normalised indicators of the blocks between the edges."""
    blocks = list(itertools.pairwise(edges))
    known: dict[int, arb] = {}

    def second(n: int) -> arb:
        if n not in known:
            value = antidifference(kernel, n)
            if value is None:
                raise InputError(f"kernel {kernel.text[:60]!r} has no closed sums over blocks; give single rows")
            known[n] = value
        return known[n]

    singles: dict[int, arb] = {}
    matrix = [[arb(0)] * len(blocks) for _ in blocks]
    for (i, (a, b)), (j, (c, d)) in itertools.combinations_with_replacement(enumerate(blocks), 2):
        if b - a == 1 == d - c:
            s = a + c + 1
            if s not in singles:
                singles[s] = kernel.value(s)
            entry = singles[s]
        else:
            difference = second(a + c + 1) - second(b + c + 1) - second(a + d + 1) + second(b + d + 1)
            entry = difference / arb((b - a) * (d - c)).sqrt()
        matrix[i][j] = matrix[j][i] = entry
    return matrix


def helson_section(kernel: MemoryKernel, rows: Sequence[int]) -> list[list[arb]]:
    """(ρ(mn)) for m, n in the given set."""
    products: dict[int, arb] = {}
    for m, n in itertools.combinations_with_replacement(rows, 2):
        if m * n not in products:
            products[m * n] = kernel.value(m * n)
    return [[products[m * n] for n in rows] for m in rows]


@lru_cache(maxsize=8)
def _section(kernel: MemoryKernel, rpe: Rpe, edges: tuple[int, ...]) -> list[list[arb]]:
    """The section of a kernel for the heads of one type: computing it is the slow part, and all H share it."""
    with working_precision(BITS):
        return hankel_section(kernel, edges) if rpe == "lin" else helson_section(kernel, edges)


def singular_bound(section: list[list[arb]], vectors: Sequence[Sequence[int]], claim: fmpq) -> bool:
    """Whether (AV)ᵀ(AV) − τ²VᵀV is certainly positive definite: then σ_{H+1}(A) ≥ τ."""
    columns = fmpz_mat([list(row) for row in vectors]).transpose()
    product = arb_mat(section) * arb_mat(columns)
    gram = product.transpose() * product
    exact = columns.transpose() * columns
    size = exact.ncols()
    matrix = [[gram[i, j] - arb(claim * claim) * arb(exact[i, j]) for j in range(size)] for i in range(size)]
    for k in range(size):  # LDLᵀ: every pivot must be positive
        if not matrix[k][k] > 0:
            return False
        for i in range(k + 1, size):
            factor = matrix[i][k] / matrix[k][k]
            for j in range(k + 1, size):
                matrix[i][j] -= factor * matrix[k][j]
    return True


@lru_cache(maxsize=8)
def _singular(kernel: MemoryKernel, rpe: Rpe, edges: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Numerical singular values and vectors (rows) of a section."""
    _, values, rows = np.linalg.svd(np.array([[float(v) for v in row] for row in _section(kernel, rpe, edges)]))
    return values, rows


def matrix_bound(section: list[list[arb]], values: np.ndarray, rows: np.ndarray, heads: int) -> tuple[fmpq, tuple[tuple[int, ...], ...]]:
    """A certified lower bound of σ_{H+1} of a section (0 if there is none) with the vectors that show it, from its numerical ones."""
    if len(section) <= heads:
        return fmpq(0), ()
    scaled = tuple(tuple(round(float(v) * 2**VECTOR_BITS) for v in row) for row in rows[: heads + 1])
    for share in SHRINK:
        claim = fmpq(*(float(values[heads]) * (1 - share)).as_integer_ratio())
        if claim > 0 and singular_bound(section, scaled, claim):
            return claim, scaled
    return fmpq(0), ()


def sign_bound(kernel: MemoryKernel, heads: int, window: int) -> fmpq:
    """Least Σ|ρ(s)|, 1 ≤ s ≤ window, over the s at which a pattern with at most H−1 sign changes disagrees with ρ; rounded down."""
    best = {(sign, changes): fmpq(0) for sign in (-1, 1) for changes in range(heads)}
    for value in kernel.values(1, window + 1):
        size = lower(abs(value))
        weight = fmpq(*size.as_integer_ratio()) if size > 0 else fmpq(0)
        wrong = {1: weight if value < 0 else fmpq(0), -1: weight if value > 0 else fmpq(0)}
        reached = {}
        for (sign, changes), cost in best.items():
            turned = best[-sign, changes - 1] if changes else cost
            reached[sign, changes] = min(cost, turned) + wrong[sign]
        best = reached
    return min(best.values())


def section_bound(kernel: MemoryKernel, rpe: Rpe, heads: int, rows: int = PLAIN) -> LowerBound:
    """The singular value bound of a section with about so many rows."""
    edges = block_edges(kernel, rows) if rpe == "lin" else tuple(range(1, rows + 1))
    with working_precision(BITS):
        claim, vectors = matrix_bound(_section(kernel, rpe, edges), *_singular(kernel, rpe, edges), heads)
        return LowerBound(claim, "hankel" if rpe == "lin" else "helson", edges, vectors)


def singular_lower_bound(kernel: MemoryKernel, rpe: Rpe, heads: int) -> LowerBound:
    """The bound by singular values; a plain section that leaves something out is tried three times as large."""
    best = section_bound(kernel, rpe, heads)
    if len(best.edges) <= PLAIN + 1 and kernel.tail(PLAIN // 2) > 1e-3 * max(best.value, 1e-9):
        best = max(best, section_bound(kernel, rpe, heads, 3 * PLAIN), key=lambda bound: bound.claim)
    return best


def lower_bound(kernel: MemoryKernel, rpe: Rpe, heads: int) -> LowerBound:
    """The best of the bounds offered here."""
    best = singular_lower_bound(kernel, rpe, heads)
    with working_precision(BITS):
        signs = LowerBound(sign_bound(kernel, heads, SIGN_WINDOW), "signs", (SIGN_WINDOW,))
    return signs if signs.claim > best.claim else best


def check_lower_bound(kernel: MemoryKernel, rpe: Rpe, heads: int, bound: LowerBound) -> bool:
    """Whether the data really show e ≥ its claim; malformed data are refused."""
    if bound.claim < 0 or not bound.edges or len(bound.edges) > MAX_EDGES or not all(0 <= e <= 2 * FARTHEST for e in bound.edges):
        raise InputError(f"a lower bound needs a claim that is not negative and 1 to {MAX_EDGES} edges in range")
    if bound.claim == 0:
        return True
    with working_precision(BITS):
        if bound.kind == "signs":
            return bound.edges[-1] <= LONGEST_WINDOW and bound.claim <= sign_bound(kernel, heads, bound.edges[-1])
        if bound.kind != {"lin": "hankel", "log": "helson"}[rpe]:
            raise InputError(f"a {bound.kind[:20]} section says nothing about {rpe} heads")
        least = 0 if rpe == "lin" else 1
        if bound.edges[0] < least or any(b <= a for a, b in itertools.pairwise(bound.edges)):
            raise InputError("the edges of a section must increase")
        size = len(bound.edges) - (rpe == "lin")
        if len(bound.vectors) != heads + 1 or any(len(row) != size for row in bound.vectors):
            raise InputError(f"a section of {size} rows and {heads} heads needs {heads + 1} vectors of that length")
        return singular_bound(_section(kernel, rpe, bound.edges), bound.vectors, bound.claim)


def remark(kernel: MemoryKernel, rpe: Rpe, heads: int, bound: LowerBound) -> str:
    """Why a bound is known to be loose, or empty."""
    limits = kernel.exponentials() if rpe == "lin" else None
    if limits is not None and heads >= sum(k + 1 for _, k in limits):
        return "the kernel is a limit of so many exponentials: the infimum is 0"
    if rpe == "log" and len(kernel.exact_decays("log")) == len(kernel.terms) <= heads:
        return "the kernel is a sum of so many powers: the infimum is 0"
    if bound.kind == "signs":
        return "bound by sign changes: real decays cannot oscillate"
    if any(f.exponent[2] != 0 or f.waves for _, f in kernel.terms) or (rpe == "log" and kernel.shape == "exponential"):
        return "loose: singular values allow complex decays, heads have real ones"
    return ""


THEOREM = Theorem(id=ID, title=TITLE, page=__doc__, shelf=23)
