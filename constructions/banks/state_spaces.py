"""State spaces with complex poles that approximate a memory kernel: what linear recurrent networks can do and heads with real decays not.

A real state space with skip, h_t = W h_{t−1} + U x_t, y_t = cᵀh_t + D x_t, whose W has simple eigenvalues delivers

    κ(s) = D·1{s=0} + Σ_h Re(c_h z_h^s),     one state for a real pole z_h, two for a pair of complex ones.

Ho, Kalman and Kung: with the singular value decomposition of a section (ρ(i+j+1)), i, j < N, the first m left singular vectors, scaled
by √σ, nearly are rows aᵀW^i; the W that takes each row to the next one best has the poles. Weights are then the ones of least ℓ¹ or ℓ²
distance on 1 ≤ s < 2N. All that is a search in floating point. Poles and weights are rounded to rational numbers with |z_h| < 1, and
`space_error` encloses ‖κ − ρ‖₁ of these, infinite tail included.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from flint import acb, arb, fmpq

from analyzer.kernels.l1_norms import DeliveredKernel, Modes, Norm, l1_norm
from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.numbers.exact import dyadic, upper, working_precision

BITS = 320
"""Precision in which errors are enclosed."""
SKIP_BITS = 128
"""Bits of the skip, which puts s = 0 right."""
SECTIONS = (32, 64, 128, 256)
"""Rows of the section: as many as leave out little of the kernel."""
LEFT_OUT = 1e-12
NUMERICAL_RANK = 1e-13
"""Singular values below this share of the largest one are noise of double precision."""
NEARLY_REAL = 1e-9
"""Imaginary parts of double real poles that rounding has split."""

Complex = tuple[fmpq, fmpq]
"""Real and imaginary part."""


@dataclass(frozen=True)
class StateSpace:
    """κ(s) = skip·1{s=0} + Σ_h Re(weight_h pole_h^s), with rational poles inside the unit circle."""

    poles: tuple[Complex, ...]
    weights: tuple[Complex, ...]
    skip: fmpq

    @property
    def states(self) -> int:
        """Size of a real W: one for a real pole, two for a complex one."""
        return sum(1 if imaginary == 0 else 2 for _, imaginary in self.poles)

    def matrices(self) -> tuple[list[list[fmpq]], list[fmpq], list[fmpq]]:
        """(W, U, c): blocks (a) or ((a, −b), (b, a)), entered at their first state, read by (p) or (p, −q)."""
        size, place = self.states, 0
        transition = [[fmpq(0)] * size for _ in range(size)]
        entered, read = [fmpq(0)] * size, [fmpq(0)] * size
        for (a, b), (p, q) in zip(self.poles, self.weights, strict=True):
            transition[place][place], entered[place], read[place] = a, fmpq(1), p
            if b != 0:
                transition[place + 1][place + 1], transition[place][place + 1], transition[place + 1][place] = a, -b, b
                read[place + 1] = -q
            place += 1 if b == 0 else 2
        return transition, entered, read


def space_error(space: StateSpace, kernel: MemoryKernel) -> Norm:
    """‖κ − ρ‖₁, certified."""
    with working_precision(BITS):
        modes = Modes(tuple(acb(*map(arb, z)) for z in space.poles), tuple(acb(*map(arb, c)) for c in space.weights))
        return l1_norm(DeliveredKernel(space.skip, (modes,), subtracted=((fmpq(1), kernel),)))


@cache
def realised_space(kernel: MemoryKernel, states: int) -> StateSpace | None:
    """The best realisation found with so many states at most, by certified error; None if the poles found are not stable."""
    with working_precision(64):
        rows = next((n for n in SECTIONS if kernel.tail(n) < LEFT_OUT), SECTIONS[-1])
        values = np.array([float(v) for v in kernel.values(1, 2 * rows)])
    poles = _poles(values, rows, states)
    if poles is None:
        return None
    spaces = [_space(kernel, poles, weights) for weights in _weightings(values, poles)]
    return min(spaces, key=lambda space: upper(space_error(space, kernel).most), default=None)


def _poles(values: np.ndarray, rows: int, states: int) -> list[complex] | None:
    """Poles with Im z ≥ 0 of the realisation with so many states."""
    left, sizes, _ = np.linalg.svd(values[np.add.outer(np.arange(rows), np.arange(rows))])
    kept = min(states, rows - 1, int((sizes > NUMERICAL_RANK * sizes[0]).sum()))
    observed = left[:, :kept] * np.sqrt(sizes[:kept])
    transition = np.linalg.lstsq(observed[:-1], observed[1:], rcond=None)[0]
    found = [complex(z.real, 0.0 if abs(z.imag) < NEARLY_REAL else z.imag) for z in np.linalg.eigvals(transition) if z.imag > -NEARLY_REAL]
    distinct = sorted(set(found), key=lambda z: (z.real, z.imag))
    stable = all(abs(z) < 1 - 2.0**-40 for z in distinct)
    return distinct if stable and sum(1 if z.imag == 0 else 2 for z in distinct) <= states else None


def _weightings(values: np.ndarray, poles: Sequence[complex]) -> list[np.ndarray]:
    """Weights of the columns Re z^s, −Im z^s (of complex poles): least squares, and least absolute values if the solver finds them."""
    s = np.arange(1, len(values) + 1)
    columns = [part for z in poles for part in ((z**s).real, -(z**s).imag)[: 1 if z.imag == 0 else 2]]
    matrix = np.array(columns).T
    found = [np.linalg.lstsq(matrix, values, rcond=None)[0]]
    from scipy.optimize import linprog  # here: the solver is loaded only where something is fitted

    span, triangle = np.linalg.qr(matrix)
    scale = float(np.abs(values).sum()) or 1.0
    dual = linprog(-values / scale, A_eq=span.T, b_eq=np.zeros(span.shape[1]), bounds=(-1.0, 1.0), method="highs-ds")
    if dual.status == 0 and np.abs(np.diag(triangle)).min() > 0:
        found.append(np.linalg.solve(triangle, -dual.eqlin.marginals) * scale)
    return [weights for weights in found if np.isfinite(weights).all()]


def _space(kernel: MemoryKernel, poles: Sequence[complex], weights: np.ndarray) -> StateSpace:
    """The same numbers as rationals, with the skip that puts s = 0 right."""
    numbers = iter(fmpq(*float(v).as_integer_ratio()) for v in weights)
    read = [(next(numbers), fmpq(0) if z.imag == 0 else next(numbers)) for z in poles]
    places = [tuple(fmpq(*part.as_integer_ratio()) for part in (z.real, z.imag)) for z in poles]
    with working_precision(2 * SKIP_BITS):
        skip = dyadic(kernel.value(0) - arb(sum((p for p, _ in read), fmpq(0))), SKIP_BITS)
    return StateSpace(tuple((a, b) for a, b in places), tuple(read), skip)
