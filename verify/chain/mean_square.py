"""The mean-square error of one dp-free layer on independent tokens, from its stored weights.

Setting. Tokens x_t ∈ R^d whose coordinates are independent with mean 0 and variance v (`analyzer.targets.tokens`); a network with one
dp-free layer; a target of fixed or kernel memories.

Statement. (a) If read-out and target are affine, the error is an affine functional of the tokens, b + Σ_i Σ_s κ_i(s) x_{t−s,i}, and

    E|error|² = b² + v Σ_i ‖κ_i‖₂²                                                                                    (M.1)

exactly, whatever the law of the tokens; `analyzer.kernels.l2_norms` encloses it from both sides, infinite past included.

(b) If they are not, let û be the stream, u what it should be, F the feed-forward network and f the read-out with slopes S_r along
directions w_r, r over its affine part and its ridges. For bounded tokens

    (E|error|²)^{1/2} ≤ sup_box |F − f| + min( Σ_r S_r (E|w_r·(û − u)|²)^{1/2},  Σ_k Lip_k (Σ_{j∈slot k} E|û_j − u_j|²)^{1/2} ),     (M.2)

each mean on the right being of the form (M.1).

(c) A float network whose evaluation is off by at most δ for all tokens in [−1, 1] has a root mean square within δ of that of its exact
function.

Proof. (a) The tokens have mean 0, so the constant and the sum are orthogonal in L²; so are different tokens and coordinates.
(b) |F(û) − f(u)| ≤ |F(û) − f(û)| + |f(û) − f(u)|, and the last is at most Σ_r S_r |w_r·(û − u)| by the mean value theorem, ridge by ridge,
or slot by slot Σ_k Lip_k max_{j∈slot k} |û_j − u_j|; Minkowski's inequality takes the mean square of a sum, and a maximum of squares is
at most their sum. (c) Minkowski's inequality once more. ∎

A neuron bends nothing that matters if its kink lies outside the range ‖κ‖₁ of its argument; for Gaussian tokens there is no such range,
and neurons must add up to a straight line. Nor is there a bound of the rounding δ over Gaussian tokens: the mean is that of the exact
function then, and certificates say so. Tokens of float networks are numbers of the type with this mean and variance.
"""

from dataclasses import dataclass

from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.kernels.l1_norms import DeliveredKernel, Powers, l1_norm
from analyzer.kernels.l2_norms import l2_square, square
from analyzer.numbers.curves import Bends, bends_of
from analyzer.numbers.exact import rational, upper, working_precision
from analyzer.targets.protocol import LayerTarget
from analyzer.targets.tokens import TokenLaw
from constructions.network.transformer import Transformer, to_exact
from constructions.run.fused import FusedLayer
from verify.chain.layer import FFN_BITS, read_out_steps
from verify.chain.rounding import evaluation_error

Row = tuple[fmpq, ...]


@dataclass(frozen=True)
class MeanSquare:
    """least ≤ E|error|² of the exact function ≤ most; the evaluation is off by at most `rounding`, None if that is not known.

    `closed`: both ends come from the closed form; otherwise least is 0, and nothing is known from below.
    """

    least: arb
    most: arb
    rounding: arb | None
    closed: bool = True

    @property
    def certified(self) -> arb:
        """Upper bound of the mean square of what is computed, or of the exact function if its rounding is not known."""
        return self.most if self.exact else square(_root(self.most) + self.rounding)

    @property
    def witness(self) -> arb:
        """Lower bound of the same."""
        return self.least if self.exact else square((_root(self.least) - self.rounding).max(arb(0)))

    @property
    def exact(self) -> bool:
        """Whether no rounding is counted."""
        return self.rounding is None or self.rounding.is_zero()


def _root(value: arb) -> arb:
    return value.max(arb(0)).sqrt()


class Curved(Refusal):
    """The error is no affine functional of the tokens."""


@dataclass(frozen=True)
class AffineError:
    """error = constant + Σ_i Σ_s κ_i(s) x_{t−s,i}, κ the kernel of stream·(U − offset) − memory·m."""

    constant: fmpq
    stream: Row
    memory: Row

    def kernel(self, layer: FusedLayer, target: LayerTarget, column: int) -> DeliveredKernel:
        return layer.kernel(self.stream, column, *target.wanted(self.memory, column))


def affine_error(network: Transformer, target: LayerTarget, layer: FusedLayer, bounded: bool) -> AffineError:
    """The error of a network with affine read-out and target; kinks outside the range of `bounded` tokens do not count."""
    if target.readout.ridges:
        raise Curved("the read-out of the target is curved")
    groups, constant = _groups(network, layer)
    stream = [fmpq(0)] * layer.embedding.shape[0]
    for group in groups:
        inside = group
        if group.jumps and bounded:
            with working_precision(layer.bits):
                reach = sum((l1_norm(layer.kernel(group.direction, c)).most for c in range(target.dim)), arb(0))
            if reach.is_finite():
                inside = group.on(rational(upper(reach)))
        if inside.jumps:
            where = "on the range of its arguments" if bounded else "somewhere on the line, which is the range of Gaussian tokens"
            raise Curved(f"the feed-forward network bends {where}")
        constant += inside.intercept
        stream = [a + inside.slope * w for a, w in zip(stream, inside.direction, strict=True)]
    return AffineError(constant - target.readout.constant, tuple(stream), target.readout.affine)


def _groups(network: Transformer, layer: FusedLayer) -> tuple[list[Bends], fmpq]:
    ffn = network.layers[0].feedforward
    return bends_of(to_exact(ffn.inner), to_exact(ffn.bias), to_exact(ffn.outer)[0], tuple(layer.offset))


def affine_mean_square(network: Transformer, target: LayerTarget, layer: FusedLayer, law: TokenLaw) -> MeanSquare:
    """(M.1) of a network with affine read-out and target; raises `Curved` for others."""
    error = affine_error(network, target, layer, law.bounded)
    least, most = functional_mean_square(error, target, layer, law)
    if network.dtype == "exact" or layer.constants is None:
        return MeanSquare(least, most, arb(0) if network.dtype == "exact" else None)
    return MeanSquare(least, most, _rounding(network, target, layer) if law.bounded else None)


def functional_mean_square(error: AffineError, target: LayerTarget, layer: FusedLayer, law: TokenLaw) -> tuple[arb, arb]:
    """Both ends of constant² + v Σ_i ‖κ_i‖₂². Products of weights need twice their bits."""
    with working_precision(2 * layer.bits):
        squares = [l2_square(error.kernel(layer, target, column)) for column in range(target.dim)]
        bias = square(arb(error.constant))
        least = bias + arb(law.variance) * sum((s.least for s in squares), arb(0))
        most = bias + arb(law.variance) * sum((s.most for s in squares), arb(0))
        return least.lower(), most.upper()


def coordinate_mean_square(target: LayerTarget, layer: FusedLayer, j: int, law: TokenLaw) -> arb:
    """The mean square of û_j − u_j from above, where the stream is (x0, memories)."""
    unit = tuple(fmpq(int(i == j)) for i in range(target.readout.coordinates))
    return functional_mean_square(AffineError(layer.offset[j], unit, unit), target, layer, law)[1]


def variance_of(target: LayerTarget, law: TokenLaw) -> arb:
    """The mean square of the best constant's error for an affine target, from below."""
    with working_precision(FFN_BITS):
        wanted = [target.wanted(target.readout.affine, column) for column in range(target.dim)]
        kernels = [
            DeliveredKernel(fmpq(0), (), tuple(sorted(spikes.items())), tuple((w, memory) for memory, w in memories.items()))
            for spikes, memories in wanted
        ]
        return (arb(law.variance) * sum((l2_square(kernel).least for kernel in kernels), arb(0))).lower()


def stream_sizes(layer: FusedLayer, dim: int) -> list[arb]:
    """Upper bounds of |U_j| over tokens in [−1, 1], coordinate by coordinate."""
    width = layer.embedding.shape[0]
    with working_precision(layer.bits):
        units = [[fmpq(int(i == j)) for i in range(width)] for j in range(width)]
        norms = [sum((_size(layer.kernel(unit, c), layer) for c in range(dim)), arb(0)) for unit in units]
        return [norm.upper() + abs(arb(o)) for norm, o in zip(norms, layer.offset, strict=True)]


def _size(kernel: DeliveredKernel, layer: FusedLayer) -> arb:
    """Upper bound of ‖κ‖₁; head by head for powers in exact arithmetic, which fall slowly, and where only a box is asked for."""
    slow = layer.constants is None and any(isinstance(group, Powers) for group in kernel.groups)
    return abs(arb(kernel.residual)) + kernel.tail(0) if slow else l1_norm(kernel).most


def _rounding(network: Transformer, target: LayerTarget, layer: FusedLayer) -> arb:
    """How far the evaluation of a float network can be off for tokens in [−1, 1]."""
    with working_precision(FFN_BITS):
        total, slack = evaluation_error(network, layer, stream_sizes(layer, target.dim))
        for group in _groups(network, layer)[0]:
            moved = sum((abs(arb(w)) * s for w, s in zip(group.direction, slack, strict=True)), arb(0))
            total += arb(group.lipschitz) * moved
        return total


def curved_mean_square(network: Transformer, target: LayerTarget, layer: FusedLayer, law: TokenLaw, name: str) -> MeanSquare:
    """(M.2), for a network whose stream is (x0, memories), as theorem `name` writes it."""
    if not law.bounded:
        raise Refusal("a curved read-out is certified on a box only, and Gaussian tokens leave every box", {"tokens": "uniform"})
    try:
        steps = read_out_steps(network, target, name)
    except InputError as error:
        raise Refusal(str(error)) from None
    along = arb(0)
    for slope, row in steps.slopes:
        shift = sum((w * o for w, o in zip(row, layer.offset, strict=True)), fmpq(0))
        along += slope * _root(functional_mean_square(AffineError(shift, row, row), target, layer, law)[1])
    by_slot = arb(0)
    for k, lipschitz in enumerate(steps.lipschitz):
        squares = [coordinate_mean_square(target, layer, j, law) for j in target.readout.slot(k)]
        by_slot += lipschitz * _root(sum(squares, arb(0)))
    return MeanSquare(arb(0), square(steps.readout + along.min(by_slot)).upper(), steps.rounding, closed=False)
