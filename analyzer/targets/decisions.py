"""Decisions: what a network says about a target that takes finitely many values.

On a finite alphabet f takes values y_1 < … < y_k. A network of k outputs F_1, …, F_k decides for the value of the largest; a network of
one output F decides by its sign if k = 2 and y_1 < 0 < y_2, and else for the value that is nearest. Where y_i is right, the *margin* says
how far the decision is from changing:

    sign      sgn(y_i) F
    nearest   min(F − b_{i−1}, b_i − F),     b_i = (y_i + y_{i+1})/2,  b_0 = −∞,  b_k = ∞
    argmax    F_i − max_{j≠i} F_j

The decision is right if and only if its margin is > 0: ties are wrong.

**Values.** f is evaluated on every combination of letters that it reads and that occurs: rational parts exactly, the others as sums of
functions at rational points. Combinations with equal sums have equal values; the others are compared as balls, and refused where these
overlap. sin and tanh are odd and cos is even, so that sin(−v) + sin(v) is the number 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal, cast

from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.numbers.exact import lower, maximum, upper, working_precision
from analyzer.numbers.profiles import FUNCTIONS
from analyzer.targets.protocol import MemoryTarget, Target
from analyzer.targets.readout import ReadOut

if TYPE_CHECKING:
    import numpy as np

Rule = Literal["sign", "nearest", "argmax"]
MAX_COMBINATIONS = 100_000
"""Combinations of letters that f is evaluated on: some seconds of exact arithmetic."""
BITS = 256
"""Of the balls that values are compared as: numbers that agree so far are taken to be equal for reasons that are not seen here."""
SYMMETRY = {"sin": -1, "tanh": -1, "cos": 1}
"""ψ(−v) = ± ψ(v)."""
AT_ZERO = {"sin": 0, "tanh": 0, "relu": 0, "abs": 0, "cos": 1, "exp": 1}

_Sum = tuple[fmpq, tuple[tuple[str, fmpq, fmpq], ...]]
"""A rational number, and (function, argument, weight) in order."""


@dataclass(frozen=True, eq=False)
class Values:
    """y_1 < … < y_k, and which belongs to which letters: `table` has an axis per slot that f reads, and −1 where letters do not occur."""

    target: MemoryTarget
    numbers: tuple[arb, ...]
    slots: tuple[int, ...]
    table: "np.ndarray"

    def __len__(self) -> int:
        return len(self.numbers)

    def floats(self) -> list[float]:
        """The values as floats, to show and to train on."""
        return [float(y.mid()) for y in self.numbers]

    def indices(self, tokens: "np.ndarray") -> "np.ndarray":
        """Which value is right at the last position of sequences of letters (batch, N, d): looked up by letters, so nothing is rounded."""
        import numpy as np

        if tokens.shape[1] <= self.target.settled:
            raise InputError(f"sequences of {tokens.shape[1]} tokens are shorter than the target's lags")
        seen = self.target.memory_values(np)(tokens)[:, -1]
        seen = seen.reshape(len(tokens), -1, _size(self.target))[:, list(self.slots)]
        letters = self.target.nearest_letters(seen, np).reshape(len(tokens), -1)
        found: np.ndarray = self.table[tuple(letters.T)]
        assert (found >= 0).all(), "letters that do not occur together have occurred"
        return found


def values_of(target: Target) -> Values:
    """The values of a target on a finite alphabet; refused without one, and where there are too many combinations of letters."""
    import numpy as np

    memories, letters = target.as_memory_target, target.letters()
    if memories is None or letters is None:
        raise InputError(f"decisions need finitely many values: a fixed or adaptive target with an alphabet, not {target.description}")
    if len(np.unique(letters, axis=0)) < len(letters):
        raise InputError("two letters of the alphabet are the same number in float64: they cannot be told apart")
    slots = _slots_read(memories)
    if len(letters) ** len(slots) > MAX_COMBINATIONS:
        raise Refusal(f"{len(letters)} letters in {len(slots)} places have more than {MAX_COMBINATIONS} combinations to go through")
    sums: dict[_Sum, list[tuple[int, ...]]] = {}
    alphabet: list[Any] = list(cast("Sequence[Any]", target.alphabet))
    exact = alphabet if letters.ndim == 2 else [(letter,) for letter in alphabet]
    for combination in memories.combinations(slots):
        chosen = [exact[letter] for letter in combination]
        sums.setdefault(_sum_at(memories.readout, _point(memories, slots, chosen)), []).append(combination)
    with working_precision(BITS):
        ordered = sorted(((_ball(key), key) for key in sums), key=lambda pair: pair[0].mid())
        for (one, _), (other, _) in pairwise(ordered):
            if not one < other:
                raise Refusal(f"two values of the read-out near {float(one.mid()):.6g} cannot be told apart in {BITS} bits")
    table = np.full((len(letters),) * len(slots), -1)
    for index, (_, key) in enumerate(ordered):
        table[tuple(np.array(sums[key]).T)] = index
    return Values(memories, tuple(ball for ball, _ in ordered), slots, table)


def _size(target: MemoryTarget) -> int:
    """Coordinates of a letter: those of a token, or one."""
    letters = target.letters()
    return target.dim if letters is not None and letters.ndim == 2 else 1


def _slots_read(target: MemoryTarget) -> tuple[int, ...]:
    """What f reads of (x0, memories), in letters."""
    readout = target.readout
    used = {j for j, w in enumerate(readout.affine) if w != 0}
    used |= {j for monomial, _ in readout.polynomial for j, exponent in enumerate(monomial) if exponent}
    used |= {j for ridge in readout.plain for j, w in enumerate(ridge.direction) if w != 0}
    return tuple(sorted({j // _size(target) for j in used}))


def _point(target: MemoryTarget, slots: Sequence[int], letters: Sequence[Sequence[fmpq]]) -> list[fmpq]:
    """(x0, memories), 0 where f does not look."""
    point, size = [fmpq(0)] * target.readout.coordinates, _size(target)
    for slot, letter in zip(slots, letters, strict=True):
        point[slot * size : (slot + 1) * size] = letter
    return point


def _sum_at(readout: ReadOut, point: Sequence[fmpq]) -> _Sum:
    """f at a point."""
    total = readout.constant + sum((w * x for w, x in zip(readout.affine, point, strict=True)), fmpq(0))
    for monomial, coefficient in readout.polynomial:
        for x, exponent in zip(point, monomial, strict=True):
            coefficient *= x**exponent
        total += coefficient
    rest: dict[tuple[str, fmpq], fmpq] = {}
    for ridge in readout.plain:
        argument = sum((w * x for w, x in zip(ridge.direction, point, strict=True)), ridge.offset)
        exact = AT_ZERO.get(ridge.profile.name) if argument == 0 else ridge.profile.exactly(argument)
        if exact is not None:
            total += ridge.scale * exact
            continue
        sign = SYMMETRY.get(ridge.profile.name, 0) if argument < 0 else 1
        key = (ridge.profile.name, argument if sign == 0 else abs(argument))
        rest[key] = rest.get(key, fmpq(0)) + ridge.scale * (sign or 1)
    return total, tuple(sorted((*key, weight) for key, weight in rest.items() if weight != 0))


def _ball(value: _Sum) -> arb:
    return arb(value[0]) + sum((arb(weight) * FUNCTIONS[name].value(arb(argument)) for name, argument, weight in value[1]), arb(0))


@dataclass(frozen=True, eq=False)
class Decision:
    """How outputs are read as values of a target."""

    rule: Rule
    values: Values

    def borders(self) -> list[arb]:
        """b_1, …, b_{k−1}; 0 if the sign decides."""
        y = self.values.numbers
        with working_precision(BITS):
            return [arb(0)] if self.rule == "sign" else [(a + b) / 2 for a, b in pairwise(y)]

    def margins_below(self, mid: "np.ndarray", rad: "np.ndarray", right: "np.ndarray") -> "np.ndarray":
        """Lower bounds (batch,) of the margins of all outputs within `rad` of `mid`, both (batch, c) in float64, where the values number
        `right` are the right ones. Every difference of two floats is rounded down; what is not finite is −∞."""
        import numpy as np

        rows = np.arange(len(mid))
        with np.errstate(invalid="ignore", over="ignore"):
            low, high = _down(mid - rad), -_down(-mid - rad)
            if self.rule == "argmax":
                others = high.copy()
                others[rows, right] = -np.inf
                found = _down(low[rows, right] - others.max(axis=1))
            else:
                under, over = (np.array([-np.inf, *map(end, self.borders()), np.inf]) for end in (lower, upper))
                found = np.minimum(_down(low[:, 0] - over[right]), _down(under[right + 1] - high[:, 0]))
        known = np.isfinite(mid).all(axis=1) & np.isfinite(rad).all(axis=1) & np.isfinite(found)
        return np.where(known, found, -np.inf)

    def margin(self, outputs: Sequence[float | arb], right: int) -> arb:
        """The margin of outputs (c,), floats or balls, where value number `right` is the right one."""
        with working_precision(BITS):
            if self.rule == "argmax":
                return arb(outputs[right]) - maximum([arb(y) for j, y in enumerate(outputs) if j != right])
            borders, found = self.borders(), arb(outputs[0])
            distances = [found - b for b in borders[:right][-1:]] + [b - found for b in borders[right : right + 1]]
            return -maximum([-distance for distance in distances])

    def room(self) -> float:
        """How far an output may be from the right value, whichever it is, before the decision changes, rounded down; one output only."""
        y = self.values.numbers
        with working_precision(BITS):
            if self.rule == "sign":
                return min(lower(-y[0]), lower(y[1]))
            return min(lower((b - a) / 2) for a, b in pairwise(y))


def _down(x: "np.ndarray") -> "np.ndarray":
    """Below the exact difference of two floats that was rounded to x; infinite numbers stay."""
    import numpy as np

    return np.where(np.isinf(x), x, np.nextafter(x, -np.inf))


def decision_of(target: Target, outputs: int) -> Decision:
    """How a network with so many outputs decides between the values of a target; refused where it cannot."""
    values = values_of(target)
    if len(values) < 2:
        raise InputError(f"{target.description} takes one value only on its alphabet: there is nothing to decide")
    if outputs == 1:
        by_sign = len(values) == 2 and bool(values.numbers[0] < 0) and bool(values.numbers[1] > 0)
        return Decision("sign" if by_sign else "nearest", values)
    if outputs != len(values):
        raise InputError(f"the network has {outputs} outputs, the target {len(values)} values; it takes one output, or one for every value")
    return Decision("argmax", values)
