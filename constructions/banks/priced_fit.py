"""ℓ¹ fits with a price on every weight, min ‖goal − K a‖₁ + Σ_h π_h |a_h|, by doubles although a may be of size 1/π.

Three things make doubles enough:

* *Orthogonal columns.* K = QR in multi-precision, with as few columns of Q as describe all columns of K up to a small share of their
  prices. The columns B of a basis have K_B = QR_B, every other column is K_o = K_B C up to less than that share: a unit of κ along what is
  left out would cost more than it can gain. With a_B = R_B^{−1} y − C a_o and b = π_o a_o the programme is

      min ‖goal − Q y‖₁ + Σ_B π_B |R_B^{−1} y − C b/π_o| + Σ_o |b|,

  whose columns are well conditioned: any double (y, b) is an admissible a, and an error in y is an error of that size in κ.
* *Vertices.* The rows and columns that are active at the solution are solved for exactly (`_vertex`), primal and dual; where both agree
  that is the optimum, and the programme is done.
* *Refinement.* Otherwise it is solved again for what is left, scaled to size 1, until the value settles.

Nothing here is trusted: what is made of the weights and the dual values is certified afterwards.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from flint import arb, arb_mat

from analyzer.errors import Refusal

DEPENDENT = 2.0**-20
"""Columns within this share of their price of the span of the others are described by them: a unit of κ along the rest costs a million."""
RESOLVED = 2.0**-20
"""A block of the factorisation has columns that are this independent of each other at least, relative to the first of them: doubles, which
choose them, resolve far more."""
BINDING = 1e-12
"""Multipliers within this of ±1 count as ±1: a simplex method leaves those that bind at their bounds, up to what its scaling rounds."""
AGREE = 1e-9
"""Relative difference of the primal and the dual value of a vertex that is taken for the optimum."""
REFINEMENTS = 6


@dataclass(frozen=True)
class BalancedSolution:
    """A solved programme: weights of the columns, values δ of the rows, and the programme's value."""

    weights: list[arb]
    dual: list[arb]
    value: arb


@dataclass(frozen=True)
class Factors:
    """K = QR up to columns shorter than what was asked for: Q orthonormal, the columns of the basis independent."""

    basis: list[int]
    orthogonal: arb_mat
    triangular: arb_mat


def factors(matrix: arb_mat, least: Sequence[float]) -> Factors:
    """Q and R of K, where a column whose rest is at most `least` long counts as dependent.

    Block by block: doubles order the columns by the multiple of `least` that is left of them (a QR factorisation with pivots), those that
    doubles resolve well are made orthonormal in multi-precision, and all columns lose their part along them. Within a block lengths fall by
    at most 1/RESOLVED, so the blocks are few and nearly all work is done by products of matrices.
    """
    count = matrix.ncols()
    basis: list[int] = []
    parts: list[arb_mat] = []
    shares: list[arb_mat] = []
    limits, rest = np.array(least), matrix
    while True:
        table, scale = scaled_doubles(rest)
        table = table / limits
        lengths = np.linalg.norm(table, axis=0) * scale
        if not np.any(lengths > 1):
            break
        chosen = pivots(table, max(RESOLVED * float(lengths.max()) / scale, 1 / scale))
        block = orthonormal(submatrix(rest, chosen))
        share = (block.transpose() * rest).mid()
        rest = (rest - block * share).mid()
        basis += chosen
        parts.append(block)
        shares.append(share)
    return Factors(basis, _beside(parts, matrix.nrows()), _below(shares, count))


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


def scaled_doubles(matrix: arb_mat) -> tuple[np.ndarray, float]:
    """(doubles of matrix/scale, scale) with a power of two that keeps what is small from vanishing."""
    table = doubles(matrix)
    largest = float(np.abs(table).max(initial=0.0))
    return (table, 1.0) if largest == 0 else (table / largest, largest)


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
    return (columns * factor.inv().mid().transpose()).mid()


def _beside(parts: Sequence[arb_mat], rows: int) -> arb_mat:
    tables = [part.tolist() for part in parts]
    return arb_mat([[v for table in tables for v in table[i]] for i in range(rows)]) if parts else arb_mat(rows, 0)


def _below(parts: Sequence[arb_mat], columns: int) -> arb_mat:
    rows = [row for part in parts for row in part.tolist()]
    return arb_mat(rows) if rows else arb_mat(0, columns)


class Programme:
    """min ‖goal − K a‖₁ + Σ_h price_h |a_h| for the columns of K."""

    def __init__(self, columns: Sequence[Sequence[arb]], goal: Sequence[arb], prices: Sequence[arb]) -> None:
        self.rows, self.count = len(goal), len(columns)
        self.matrix = arb_mat([list(row) for row in zip(*columns, strict=True)]).mid()
        self.goal, self.prices = arb_mat(self.rows, 1, list(goal)), list(prices)

    @cached_property
    def factored(self) -> Factors:
        return factors(self.matrix, [DEPENDENT * float(price) for price in self.prices])

    def solve(self) -> BalancedSolution:
        """The optimum, from doubles that show its active rows and columns; refined where these do not settle it."""
        basis = self.factored.basis
        if not basis:
            return self._at([arb(0)] * self.count, [arb(0)] * self.rows)
        others = [k for k in range(self.count) if k not in set(basis)]
        inverse = submatrix(self.factored.triangular, basis).inv().mid()
        described = (inverse * submatrix(self.factored.triangular, others)).mid() if others else arb_mat(len(basis), 0)
        table = self._table(inverse, described, basis, others)
        left, scale, best = self.goal, arb(1), self._at([arb(0)] * self.count, [arb(0)] * self.rows)
        point = np.zeros(0)
        weights = [arb(0)] * self.count
        for _ in range(REFINEMENTS):
            goals = [*_entries(left), *(-self.prices[k] * weights[k] for k in (*basis, *others))]
            multipliers, point = _linear_programme(table, np.array([float(v / scale) for v in goals]))
            order = np.argsort([*basis, *others])
            active = np.concatenate([multipliers[: self.rows], multipliers[self.rows :][order]])
            found = self._vertex(active)
            if found is not None:
                return found
            step = self._weights(point, inverse, described, basis, others)
            weights = [(a + scale * b).mid() for a, b in zip(weights, step, strict=True)]
            reached = self._at(weights, [arb(float(v)) for v in active[: self.rows]])
            settled = reached.value > best.value * arb(0.999)
            best = reached if reached.value < best.value else best
            if settled:
                break
            left, scale = (self.goal - self.matrix * arb_mat(self.count, 1, weights)).mid(), reached.value
        return best

    def _table(self, inverse: arb_mat, described: arb_mat, basis: list[int], others: list[int]) -> np.ndarray:
        """The programme in (y, b): rows of κ, then π a for the columns of the basis, then for the others."""
        orthogonal, prices = doubles(self.factored.orthogonal), [self.prices[k] for k in basis]
        priced = doubles(arb_mat([[p * v for v in row] for p, row in zip(prices, inverse.tolist(), strict=True)]))
        table = np.zeros((self.rows + self.count, self.count))
        table[: self.rows, : len(basis)] = orthogonal
        table[self.rows : self.rows + len(basis), : len(basis)] = priced
        if others:
            own, theirs = (np.array([float(self.prices[k]) for k in part]) for part in (basis, others))
            table[self.rows : self.rows + len(basis), len(basis) :] = -own[:, None] * doubles(described) / theirs
            table[self.rows + len(basis) :, len(basis) :] = np.eye(len(others))
        return table

    def _weights(self, point: np.ndarray, inverse: arb_mat, described: arb_mat, basis: list[int], others: list[int]) -> list[arb]:
        """a of (y, b)."""
        bought = [arb(float(v)) / self.prices[k] for v, k in zip(point[len(basis) :], others, strict=True)]
        own = inverse * arb_mat(len(basis), 1, [arb(float(v)) for v in point[: len(basis)]])
        if others:
            own = own - described * arb_mat(len(others), 1, bought)
        weights = [arb(0)] * self.count
        for k, value in (*zip(basis, _entries(own), strict=True), *zip(others, bought, strict=True)):
            weights[k] = value.mid()
        return weights

    def _vertex(self, multipliers: np.ndarray) -> BalancedSolution | None:
        """Weights and dual values of the vertex that the multipliers show, if they agree: rows with |δ| < 1 are met, columns at their
        price used."""
        inner = [i for i in range(self.rows) if abs(multipliers[i]) < 1 - BINDING]
        used = [k for k in range(self.count) if abs(multipliers[self.rows + k]) > 1 - BINDING]
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
                weights = square.solve(arb_mat(len(inner), 1, [self.goal[i, 0] for i in inner]))
                solved = square.transpose().solve(right)
            except ZeroDivisionError:
                return None
            for k, value in zip(used, _entries(weights), strict=True):
                values[k] = value.mid()
            for i, value in zip(inner, _entries(solved), strict=True):
                dual[i] = value.mid()
        found = self._at(values, dual)
        shown = sum((g * d for g, d in zip(_entries(self.goal), dual, strict=True)), arb(0))
        within = max((abs(float(v)) for v in dual), default=0.0) < 1 + 1e-3
        return found if within and abs(found.value - shown) <= found.value * arb(AGREE) else None

    def _at(self, weights: list[arb], dual: list[arb]) -> BalancedSolution:
        return BalancedSolution(weights, dual, self.objective(weights))

    def objective(self, weights: Sequence[arb]) -> arb:
        """The value of the programme at given weights."""
        rest = self.goal - self.matrix * arb_mat(self.count, 1, list(weights))
        price = sum((p * abs(a) for p, a in zip(self.prices, weights, strict=True)), arb(0))
        return (sum((abs(v) for v in _entries(rest)), arb(0)) + price).mid()


def _entries(column: arb_mat) -> list[arb]:
    return column.entries()


def doubles(matrix: arb_mat) -> np.ndarray:
    """The matrix in doubles."""
    return np.array([[float(v) for v in row] for row in matrix.tolist()])


def _linear_programme(table: np.ndarray, goal: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(multipliers, minimiser y) of min ‖goal − table·y‖₁, by its dual: max goal·δ over −1 ≤ δ ≤ 1, tableᵀδ = 0."""
    from scipy.optimize import linprog  # not loaded where a shipped certificate answers

    zeros = np.zeros(table.shape[1])
    for tolerance in (1e-10, 1e-9, 1e-8, 1e-7):
        tolerances = {"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance}
        for presolve in (True, False):
            options = {**tolerances, "presolve": presolve}
            found = linprog(-goal, A_eq=table.T, b_eq=zeros, bounds=(-1, 1), method="highs-ds", options=options)
            if found.status == 0 and found.x is not None:
                return found.x, -found.eqlin.marginals
    raise Refusal("the linear programme of a balanced bank was not solved; try another number of bits")
