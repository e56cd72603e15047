"""ℓ¹ fits with a price on every weight, min ‖goal − K a‖₁ + Σ_h π_h |a_h|, by doubles although a may be of size 1/π.

Three things make doubles enough:

* *Orthogonal columns.* K = QR in multi-precision, with as few columns of Q as describe all columns of K up to a small share of their
  prices. The columns B of a basis have K_B = QR_B, every other column is K_o = K_B C up to less than that share: a unit of κ along what is
  left out would cost more than it can gain. With a_B = R_B^{−1} y − C a_o and b = π_o a_o the programme is

      min ‖goal − Q y‖₁ + Σ_B π_B |R_B^{−1} y − C b/π_o| + Σ_o |b|,

  whose columns are well conditioned: any double (y, b) is an admissible a, and an error in y is an error of that size in κ.
* *Vertices.* The multipliers that the simplex method ends with say which rows are met and which columns are used (`basic`, which completes
  degenerate ones); these are solved for, primal and dual, in multi-precision. Where both agree that is the optimum.
* *Refinement.* Otherwise it is solved again for what is left, scaled to size 1, until the value settles.

Nothing here is trusted: what is made of the weights and the dual values is certified afterwards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from flint import arb, arb_mat

from analyzer.errors import Refusal
from analyzer.numbers.exact import working_precision

DEPENDENT = 2.0**-20
"""Columns within this share of their price of the span of the others are described by them: a unit of κ along the rest costs a million."""
RESOLVED = 2.0**-36
"""A block of the factorisation has columns that are this independent of each other at least, relative to the first of them: doubles, which
choose them, resolve more."""
DOUBLE_BITS = 72
"""Bits beyond the smallest share that columns are known to where all that follows is done in doubles."""
CYCLING = 10
"""Iterations per row and column of a programme after which a simplex method goes in circles: those that end take about two."""
INDEPENDENT = 1e-9
"""Rows of the table with less than this share beyond those chosen depend on them, as doubles see it."""
AGREE = 1e-9
"""Relative difference of the primal and the dual value of a vertex that is taken for the optimum."""
LENIENT = 2.0**6
"""Columns that come later are described by the basis that is there if they are within so many times that share: a unit along the rest
still costs ten thousand, and a new basis for all columns costs more than all else."""
REFINEMENTS = 6


@dataclass(frozen=True)
class BalancedSolution:
    """A solved programme: weights of the columns, values δ of the rows, the programme's value, and (Kᵀδ)_h/π_h in doubles."""

    weights: list[arb]
    dual: list[arb]
    value: arb
    reduced: np.ndarray


@dataclass(frozen=True)
class ColumnBasis:
    """Q, orthonormal, and R_B^{−1} of a basis B of the columns of K: K = QR up to columns shorter than what was asked for."""

    basis: list[int]
    orthogonal: arb_mat
    inverse: arb_mat

    def describe(self, columns: arb_mat, least: Sequence[float]) -> arb_mat | None:
        """C with K_o = K_B C for further columns; None if one of them has much more than `least` beyond the basis."""
        share = even(self.orthogonal.transpose() * columns)
        rest = doubles(columns - self.orthogonal * share)
        beyond = np.sqrt(np.einsum("ij,ij->j", rest, rest)) > LENIENT * np.array(least)
        return None if beyond.any() else self.inverse * share


def factors(matrix: arb_mat, least: Sequence[float]) -> ColumnBasis:
    """Q and R of K, where a column whose rest is at most `least` long counts as dependent.

    Block by block: doubles order the columns by the multiple of `least` that is left of them (a QR factorisation with pivots), those that
    doubles resolve well are made orthonormal in multi-precision, and all columns lose their part along them. Within a block lengths fall by
    at most 1/RESOLVED, so the blocks are few and nearly all work is done by products of matrices.
    """
    limits, rest, left = np.array(least), matrix, list(range(matrix.ncols()))
    basis: list[int] = []
    blocks: list[arb_mat] = []
    while left:
        table = doubles(rest) / limits[left]
        lengths = np.sqrt(np.einsum("ij,ij->j", table, table))
        if not lengths.max() > 1:
            break
        scale = float(lengths.max())
        chosen = pivots(table / scale, max(RESOLVED, 1 / scale))
        block = orthonormal(submatrix(rest, chosen))
        basis += [left[k] for k in chosen]
        blocks.append(block)
        kept = [k for k in np.flatnonzero(lengths > 1).tolist() if k not in set(chosen)]
        left = [left[k] for k in kept]
        rest = submatrix(rest, kept)
        rest = even(rest - block * even(block.transpose() * rest))
    tables = [block.tolist() for block in blocks]
    orthogonal = arb_mat([[v for table in tables for v in table[i]] for i in range(matrix.nrows())])
    triangular = even(orthogonal.transpose() * submatrix(matrix, basis))
    return ColumnBasis(basis, orthogonal, solved(triangular, _identity(len(basis))))


def pivots(table: np.ndarray, least: float) -> list[int]:
    """Columns, each the one that is farthest from the span of those before, as long as that is more than `least`.

    Without linear algebra's own products, which would start threads for matrices as small as these.
    """
    rest, chosen = table.copy(), list[int]()
    while len(chosen) < min(table.shape):
        lengths = np.einsum("ij,ij->j", rest, rest)
        lengths[chosen] = 0.0
        pivot = int(np.argmax(lengths))
        length = math.sqrt(lengths[pivot])
        if not length > least:
            break
        direction = rest[:, pivot] / length
        rest -= direction[:, None] * np.einsum("i,ij->j", direction, rest)
        chosen.append(pivot)
    return chosen


def submatrix(matrix: arb_mat, columns: Sequence[int]) -> arb_mat:
    """Some columns of a matrix."""
    table = matrix.tolist()
    return arb_mat([[row[k] for k in columns] for row in table])


def orthonormal(columns: arb_mat) -> arb_mat:
    """Columns that are independent of each other, made orthonormal: B L^{−T} with BᵀB = LLᵀ."""
    gram = (columns.transpose() * columns).mid().tolist()
    size = len(gram)
    lower: list[list[arb]] = []
    for j in range(size):
        row: list[arb] = []
        for i in range(j):
            row.append(((gram[j][i] - sum((a * b for a, b in zip(row, lower[i], strict=False)), arb(0))) / lower[i][i]).mid())
        row.append((gram[j][j] - sum((a * a for a in row), arb(0))).mid().sqrt().mid())
        lower.append(row)
    factor = arb_mat([row + [arb(0)] * (size - len(row)) for row in lower])
    return even(columns * solved(factor, _identity(size)).transpose())


def even(matrix: arb_mat) -> arb_mat:
    """Midpoints, without what is below the working precision next to 1: products of entries of one scale cost a fraction."""
    ones = arb_mat(matrix.nrows(), matrix.ncols(), [arb(1)] * (matrix.nrows() * matrix.ncols()))
    return ((matrix + ones) - ones).mid()


def solved(matrix: arb_mat, right: arb_mat) -> arb_mat:
    """A^{−1}B about, without bounds: nothing here is trusted. ZeroDivisionError for singular matrices."""
    return matrix.solve(right, algorithm="approx").mid()


def _identity(size: int) -> arb_mat:
    return arb_mat([[arb(int(i == j)) for j in range(size)] for i in range(size)])


class Programme:
    """min ‖goal − K a‖₁ + Σ_h price_h |a_h| for the columns of K, some of which may be exchanged for others.

    A column whose price exceeds its length is never used; one that is no number may not be among them.
    """

    def __init__(self, columns: Sequence[Sequence[arb]], goal: Sequence[arb], prices: Sequence[arb]) -> None:
        self.rows, self.goal = len(goal), arb_mat(len(goal), 1, list(goal))
        self.matrix, self.prices = _beside(columns), list(prices)
        self._factor()

    @property
    def count(self) -> int:
        return len(self.prices)

    def _least(self) -> list[float]:
        return [DEPENDENT * float(price) for price in self.prices]

    def _enough(self) -> int:
        """Bits that show every column's part beyond the others in doubles."""
        return DOUBLE_BITS + max(0, -math.frexp(min(self._least()))[1])

    def _factor(self) -> None:
        """A basis of all columns, and the others by it."""
        with working_precision(self._enough()):
            matrix = even(self.matrix)
            self.factors = factors(matrix, self._least())
            basis = set(self.factors.basis)
            self.others = [k for k in range(self.count) if k not in basis]
            self.described = self.factors.inverse * even(self.factors.orthogonal.transpose() * submatrix(matrix, self.others))

    def exchange(self, idle: set[int], columns: Sequence[Sequence[arb]], prices: Sequence[arb]) -> list[int]:
        """Further columns for idle ones; which of the old columns stay, in the order that they have from now on.

        What is new is described by the basis that is there, whose columns stay, or there is a new basis for all.
        """
        stay = [k for k in range(self.count) if k not in idle or k in set(self.factors.basis)]
        place = {k: i for i, k in enumerate(stay)}
        kept = [i for i, k in enumerate(self.others) if k in place]
        fresh = _beside(columns)
        self.matrix = _joined(submatrix(self.matrix, stay), fresh)
        self.prices = [*(self.prices[k] for k in stay), *prices]
        with working_precision(self._enough()):
            described = self.factors.describe(even(fresh), self._least()[len(stay) :])
        if described is None:
            self._factor()
            return stay
        self.factors = replace(self.factors, basis=[place[k] for k in self.factors.basis])
        self.described = _joined(submatrix(self.described, kept), described)
        self.others = [*(place[self.others[i]] for i in kept), *range(len(stay), self.count)]
        return stay

    def solve(self) -> BalancedSolution:
        """The optimum, from doubles that show its active rows and columns; refined where these do not settle it."""
        table, order = self._table(), np.argsort([*self.factors.basis, *self.others])
        weights, left, scale = [arb(0)] * self.count, self.goal, arb(1)
        best: BalancedSolution | None = None
        for _ in range(REFINEMENTS):
            paid = (-self.prices[k] * weights[k] for k in (*self.factors.basis, *self.others))
            multipliers, point, held = _linear_programme(table, np.array([float(v / scale) for v in (*left.entries(), *paid)]))
            fixed = ~basic(table, multipliers, held)
            active, fixed = (np.concatenate([part[: self.rows], part[self.rows :][order]]) for part in (multipliers, fixed))
            found = self._vertex(active, fixed)
            if found is not None:
                return found
            dual, reduced = [arb(float(v)) for v in active[: self.rows]], active[self.rows :]
            best = best or self._at(weights, dual, reduced)
            weights = [(a + scale * b).mid() for a, b in zip(weights, self._weights(point), strict=True)]
            reached = self._at(weights, dual, reduced)
            before, best = best.value, reached if reached.value < best.value else best
            if reached.value > before * arb(0.999):
                break
            left, scale = (self.goal - self.matrix * arb_mat(self.count, 1, weights)).mid(), reached.value
        assert best is not None
        return best

    def _table(self) -> np.ndarray:
        """The programme in (y, b): rows of κ, then π a for the columns of the basis, then for the others."""
        basis, others = self.factors.basis, self.others
        size, own, theirs = len(basis), *(np.array([float(self.prices[k]) for k in part]) for part in (basis, others))
        table = np.zeros((self.rows + self.count, self.count))
        table[: self.rows, :size] = doubles(self.factors.orthogonal)
        inner = table[self.rows : self.rows + size]
        inner[:, :size] = own[:, None] * doubles(self.factors.inverse)
        inner[:, size:] = -own[:, None] * doubles(self.described) / theirs
        table[self.rows + size :, size:] = np.eye(len(others))
        return table

    def _weights(self, point: np.ndarray) -> list[arb]:
        """a of (y, b)."""
        size = len(self.factors.basis)
        bought = [arb(float(v)) / self.prices[k] for v, k in zip(point[size:], self.others, strict=True)]
        own = self.factors.inverse * arb_mat(size, 1, [arb(float(v)) for v in point[:size]])
        own = own - self.described * arb_mat(len(self.others), 1, bought)
        weights = [arb(0)] * self.count
        for k, value in (*zip(self.factors.basis, own.entries(), strict=True), *zip(self.others, bought, strict=True)):
            weights[k] = value.mid()
        return weights

    def _vertex(self, multipliers: np.ndarray, held: np.ndarray) -> BalancedSolution | None:
        """Weights and dual values of the vertex where the held multipliers are ±1, if they agree: other rows are met, held columns used."""
        inner = np.flatnonzero(~held[: self.rows]).tolist()
        used = np.flatnonzero(held[self.rows :]).tolist()
        if len(inner) != len(used):
            return None
        outer = sorted(set(range(self.rows)) - set(inner))
        table = self.matrix.tolist()
        signs = arb_mat(len(outer), 1, [arb(round(float(multipliers[i]))) for i in outer])
        values, dual = [arb(0)] * self.count, [arb(0)] * self.rows
        for place, i in enumerate(outer):
            dual[i] = signs[place, 0]
        if used:
            square = arb_mat([[table[i][k] for k in used] for i in inner])
            price = arb_mat(len(used), 1, [-self.prices[k] * round(float(multipliers[self.rows + k])) for k in used])
            right = price - arb_mat([[table[i][k] for i in outer] for k in used]) * signs if outer else price
            try:
                weights = solved(square, arb_mat(len(inner), 1, [self.goal[i, 0] for i in inner]))
                multiples = solved(square.transpose(), right)
            except ZeroDivisionError:
                return None
            for k, value in zip(used, weights.entries(), strict=True):
                values[k] = value.mid()
            for i, value in zip(inner, multiples.entries(), strict=True):
                dual[i] = value.mid()
        found = self._at(values, dual, multipliers[self.rows :])
        shown = sum((g * d for g, d in zip(self.goal.entries(), dual, strict=True)), arb(0))
        within = max((abs(float(v)) for v in dual), default=0.0) < 1 + 1e-3
        return found if within and abs(found.value - shown) <= found.value * arb(AGREE) else None

    def _at(self, weights: list[arb], dual: list[arb], reduced: np.ndarray) -> BalancedSolution:
        return BalancedSolution(weights, dual, self.objective(weights), reduced)

    def objective(self, weights: Sequence[arb]) -> arb:
        """The value of the programme at given weights."""
        rest = self.goal - self.matrix * arb_mat(self.count, 1, list(weights))
        price = sum((p * abs(a) for p, a in zip(self.prices, weights, strict=True)), arb(0))
        return (sum((abs(v) for v in rest.entries()), arb(0)) + price).mid()


def _joined(left: arb_mat, right: arb_mat) -> arb_mat:
    return arb_mat([[*a, *b] for a, b in zip(left.tolist(), right.tolist(), strict=True)])


def _beside(columns: Sequence[Sequence[arb]]) -> arb_mat:
    return arb_mat([list(row) for row in zip(*columns, strict=True)]).mid()


def doubles(matrix: arb_mat) -> np.ndarray:
    """The matrix in doubles."""
    return np.array([[float(v) for v in row] for row in matrix.tolist()])


def basic(table: np.ndarray, multipliers: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Which multipliers the equations tableᵀδ = 0 determine: as many as there are equations, with independent rows of the table.

    Those strictly between their bounds, and, in degenerate programmes, some that are ±1 as well: first those whose bound has no price.
    """
    chosen = np.abs(multipliers) < 1
    for further in (~held, held):
        missing = table.shape[1] - int(chosen.sum())
        candidates = np.flatnonzero(further & ~chosen & table.any(axis=1))
        if missing <= 0 or not candidates.size:
            continue
        known = np.linalg.qr(table[chosen].T)[0]
        rest = table[candidates].T - known @ (known.T @ table[candidates].T)
        chosen[candidates[pivots(rest / np.linalg.norm(table[candidates], axis=1), INDEPENDENT)[:missing]]] = True
    return chosen


def _linear_programme(table: np.ndarray, goal: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(multipliers, minimiser y, whether bounds ±1 have a price) of min ‖goal − table·y‖₁, by its dual: max goal·δ over −1 ≤ δ ≤ 1,
    tableᵀδ = 0."""
    from scipy.optimize import linprog  # not loaded where a shipped certificate answers

    zeros = np.zeros(table.shape[1])
    for tolerance in (1e-10, 1e-9, 1e-8, 1e-7):
        tolerances = {"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance}
        for presolve in (False, True):  # there is nothing to leave out of a dense programme; devex prices halve the time
            options = {**tolerances, "presolve": presolve, "simplex_dual_edge_weight_strategy": "devex"}
            options["maxiter"] = CYCLING * sum(table.shape)
            found = linprog(-goal, A_eq=table.T, b_eq=zeros, bounds=(-1, 1), method="highs-ds", options=options)
            if found.status == 0 and found.x is not None:
                return found.x, -found.eqlin.marginals, (found.lower.marginals != 0) | (found.upper.marginals != 0)
    raise Refusal("the linear programme of a balanced bank was not solved; try another number of bits")
