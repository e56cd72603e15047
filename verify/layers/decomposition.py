"""The error of a layer as a constant, a linear functional and functions of one variable.

Neurons along one direction add up to a piecewise linear function P(v) of one functional v of the tokens; those that do not bend on the
range of v, as relu(v) − relu(−v), join the affine part, exactly. What is left is

    E = F − f = constant + B(x) + Σ_u D_u(v_u(x)),      B, v_u linear in the tokens, D_u = P or −s ψ(· + o).

The functions D_u are the *curved terms*, each on a range [−reach, reach] that contains v_u whatever the tokens.
"""

from dataclasses import dataclass, replace

import numpy as np
from flint import arb, fmpq

from analyzer.errors import Refusal
from analyzer.numbers.curves import ROUND, Bends, Curve, bends_of, curve
from analyzer.numbers.exact import nearest, rational, upper
from analyzer.numbers.profiles import Ridge
from analyzer.targets.protocol import LayerTarget
from constructions.network.transformer import Transformer, to_exact
from constructions.run.fused import FusedLayer
from verify.layers.functionals import Functional, WindowKernels


@dataclass(frozen=True)
class CurvedTerm:
    """D(v): a functional v, a bound of |v|, and the curve of D."""

    functional: Functional
    reach: float
    curve: Curve


class ErrorDecomposition:
    """E = constant + base + Σ curved terms, and the kernels of its functionals."""

    def __init__(self, network: Transformer, target: LayerTarget, layer: FusedLayer) -> None:
        self.network, self.target, self.layer = network, target, layer
        readout, ffn = target.readout, network.layers[0].feedforward
        weights = (to_exact(ffn.inner), to_exact(ffn.bias), to_exact(ffn.outer)[0])
        self.groups, constant = bends_of(*weights, tuple(layer.offset))
        self.radii = np.array([upper(r) for r in target.radii()])
        """Bounds of the memories m."""
        self.kernels = WindowKernels(target, layer)
        self.constant = constant - readout.constant
        self.base = self.kernels.of_memories(-w for w in readout.affine)
        self.bending: list[tuple[Bends, CurvedTerm]] = []
        self._gather_neurons()
        self.ridges = [(ridge, self._ridge_term(ridge)) for ridge in readout.ridges]
        self.terms = [term for _, term in (*self.bending, *self.ridges)]
        scales = [term.curve.scale + term.curve.slack for term in self.terms]
        known = [nearest(self.constant), *self.kernels.table([self.base]).window.flat, *scales]
        if not np.isfinite(known).all():
            raise Refusal("the error of this network has no bound in double precision: weights or slopes of the target are too large")

    def _gather_neurons(self) -> None:
        """Groups of neurons that bend become curved terms, the others join the constant and the base."""
        functionals = [self.kernels.of_stream(group.direction) for group in self.groups]
        for group, functional, reach in zip(self.groups, functionals, self.kernels.sizes(functionals), strict=True):
            inside = group.on(rational(reach))
            if inside.jumps:
                self.bending.append((inside, CurvedTerm(functional, reach, curve(inside, [], reach))))
            else:
                self.constant += inside.intercept
                self.base = self.base.plus(functional, inside.slope)

    def _ridge_term(self, ridge: Ridge) -> CurvedTerm:
        """−s ψ(v + o) with v = w·m."""
        reach = upper(sum((abs(arb(w)) * arb(r) for w, r in zip(ridge.direction, self.radii, strict=True)), arb(ROUND)))
        return CurvedTerm(self.kernels.of_memories(ridge.direction), reach, curve(None, [along(ridge, fmpq(1))], reach))


def along(ridge: Ridge, alpha: fmpq) -> Ridge:
    """The ridge as a function of v, its argument being αv + o."""
    return replace(ridge, direction=(alpha,))
