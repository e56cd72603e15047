"""The certified worst-case error of any network with one dp-free layer on a fixed or kernel memory target, whatever its weights.

Statement. Let U = offset + Σ_s K(s) x_{t−s} be the residual stream, F = Σ_n a_n relu(b_n·U + c_n) the read-out, m = (x_t, memories) what
the target f = constant + affine·m + Σ_r s_r ψ_r(w_r·m + o_r) reads. Then for all tokens in [−1, 1]

    |F(U) − f(m)| ≤ certified,

and float networks add the rounding of their evaluation. Memories need no slots in the stream, neurons no common directions.

Proof. Neurons along one direction add up to a piecewise linear function P(v) of one functional v of the tokens; those that do not bend on
the range of v, as relu(v) − relu(−v), join the affine part, exactly. What is left is

    E = F − f = constant + B(x) + Σ_u D_u(v_u(x)),      B, v_u linear in the tokens, D_u = P or −s ψ(· + o).

(i) *Slopes.* For any numbers λ_u and a sign σ, with ranges [a_u, b_u] of v_u,

    σE ≤ σ constant + Σ_u max_{[a_u, b_u]} (σD_u(v) − λ_u v) + sup_x (σB + Σ_u λ_u v_u)(x).

The last functional has one kernel, combined before its norm is taken. The right-hand side is convex in λ, and its minimum is the supremum
of the concave envelopes. Slopes come from subgradient steps; soundness does not depend on them.
(ii) *Cells.* Heads are few, so all v_u are nearly functions of m and of a few more functionals q: v = μ·m + η·q + remainder for any numbers
μ, η. The box of (m, q, v) is cut into cells; a cell confines v to μ·m + η·q ± ‖remainder‖₁ besides its own interval. Write y = (q, v) and
rest = v − μ·m; for any multipliers θ, δ

    sup_cell (σB + Σ λ_u v_u) ≤ max_cell (ν·m + θ·y) + ‖σ rest_B + Σ λ_u rest_u − θ·rest_y − δ·m‖₁,      ν = σμ_B + Σ λ_u μ_u − θ·μ_y + δ.

For fixed memories m are single tokens and μ the kernel's values there: with δ = 0 nothing is lost. All of this is convex in (λ, θ, δ) too.
(iii) *Pairs.* Where the argument of a ridge is nearly αv_g for a group of neurons, with e = w·m − αv_g,

    ψ(w·m + o) = ψ(αv_g + o) + p e,      p in the range of ψ' on the cell.

P_g(v) − s ψ(αv + o) is a function of v alone, small where the neurons are a spline of ψ; max (−σ s p − λ) e is attained at ends of p and e.

Norms are sums over a window plus what the heads hold beyond it; kernels come from ball arithmetic, cells are done in double precision
with an a-priori bound of every rounding. The uncut box is done once more with ℓ¹ norms over the infinite past in ball arithmetic where
tails matter: for affine targets and linear read-outs that is the worst-case error itself.

The witness is the error at an explicit sequence, found by ascent from the maximisers in (ii) and from random sequences.
"""

import itertools
import time
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import jax
import numpy as np
from flint import arb, arb_mat, ctx, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.kernels.l1_norms import TAIL_BITS, TAIL_SHARE, DeliveredKernel, Norm, Powers, Taps, l1_norm
from analyzer.kernels.memory_kernels import MemoryKernel
from analyzer.numbers.curves import ROUND, Bends, Curve, Row, bends_of, curve
from analyzer.numbers.exact import lower, nearest, rational, upper, working_precision
from analyzer.numbers.profiles import Ridge
from analyzer.targets.protocol import LayerTarget, Target
from constructions.network.transformer import Transformer, to_exact
from constructions.run import fast
from constructions.run.fused import FusedLayer, fuse
from verify.chain.layer import FFN_BITS, MAX_WITNESS
from verify.chain.rounding import evaluation_error

NOT_COUNTED = "exact weights; rounding not counted"

ENTRIES = 1 << 20
"""Values of heads computed for the window: coordinates times heads times tokens, about a second of ball arithmetic."""
SINGLE, BLOCK = 128, 32
"""Tokens that are taken one by one, and the length of later blocks as a share of their age: a power s^−p is off by p/128 there."""
LATEST = 1 << 14
"""Tokens of a window at most."""
WINDOW_TAIL = 2.0**-20
"""The window grows until the heads hold this much beyond it, or until it is full."""
SLOPE_PIECES = 64
"""Pieces on which ψ' is enclosed."""
PAIRED = 1 / 16
"""A ridge is paired with a group of neurons if their functionals differ by this share at most; any number is sound."""
EXACT_NORMS = 8
"""ℓ¹ norms in ball arithmetic for functionals whose tail the heads bound only crudely."""
WORK = 1 << 33
"""Multiplications spent on cells, a node of a curve counting as NODE_WORK: five to ten seconds of one core."""
NODE_WORK = 32
CRUDE = 2.0**-10
"""The uncut box is done in ball arithmetic if tails and roundings are more than this share of its bound."""
BATCH = 64
"""Cells cut at once."""
STEP_FALL = 4
"""Steps after which their length has fallen to one half."""
MAX_COMMON, LEAST_COMMON = 12, 2.0**-10
"""Principal functionals of the neurons that cells may cut, and the least share of the first that they have; any numbers are sound."""
NARROW = 2.0**-30
"""Shares of a range that are not cut again."""
CLOSE = 1.05
"""Cells are cut until certified is within this factor of the witness."""
ROOT_STEPS, CELL_STEPS = 200, 8
"""Subgradient steps for slopes and multipliers."""
SLACK = 2.0**-44
"""Evaluating a chord takes fewer than 2^9 roundings of numbers below its scale."""
UNDERFLOW = 2.0**-1070
"""Bounds the error of a few products or quotients below the normal numbers, 2^−1075 each, where no relative bound holds."""
STARTS, ASCENT = 64, 40
"""Random starts and steps of the search for a witness. They decide how good it is, never whether it is true."""
FEW_NODES = 8
"""Nodes that are compared all at once instead of by bisection."""
MEASURED = 4
"""Candidates that are evaluated rigorously."""


@dataclass(frozen=True)
class LayerError:
    """witness ≤ worst-case error ≤ certified. `rounding` is the floating-point share of certified, None if it was not counted; `trivial` is
    the error of the best constant output, from below."""

    witness: float
    witness_input: str
    certified: float
    rounding: float | None
    arithmetic: str
    trivial: float
    cells: int
    seconds: float


@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def layer_error(network: Transformer, target: LayerTarget, *, seed: int = 0, length: int | None = None) -> LayerError:
    """Certify a network with one dp-free layer against a target; `seed` is that of the witness's random starts.

    A float network whose rounding is refused is certified as the exact function of its weights, and the result says so; so are networks
    with a finite window, whose error is that at the last position of arrays of `length` tokens, tokens before them being zero for f.
    Numbers beyond double precision end in an infinite bound or a refusal: no warning is due.
    """
    start = time.perf_counter()
    _check(network, target, length)
    if length is not None:
        exact = network.map(to_exact)
        return _certify(_Problem(exact, target, _array_layer(exact, length)), seed, NOT_COUNTED, start)
    if network.dtype == "exact":
        return _certify(_Problem(network, target, fuse(network)), seed, "exact", start)
    try:
        return _certify(_Problem(network, target, fuse(network)), seed, network.dtype, start)
    except Refusal:
        exact = network.map(to_exact)
        return _certify(_Problem(exact, target, fuse(exact)), seed, NOT_COUNTED, start)


def output_at(network: Transformer, target: Target, tokens: np.ndarray, t: int) -> arb:
    """The output of one dp-free layer at token t of (N, d), in balls: the exact function of the weights, zero before them."""
    tokens = tokens[: t + 1]
    exact = network.map(to_exact)
    layer = _array_layer(exact, len(tokens)) if exact.layers[0].attention.window == "finite" else fuse(exact)
    width, ffn = len(layer.offset), exact.layers[0].feedforward
    with working_precision(max(FFN_BITS, layer.bits)):
        recent = [[arb(rational(float(v))) for v in token] for token in tokens[::-1]]
        stream = [arb(o) for o in layer.offset]
        for j in range(width):
            for column in range(tokens.shape[1]):
                kernel = layer.kernel(_unit(j, width), column).values(0, len(recent))
                stream[j] += sum((k * token[column] for k, token in zip(kernel, recent, strict=True)), arb(0))
        output = arb(0)
        for row, bias, outer in zip(ffn.inner, ffn.bias, ffn.outer[0], strict=True):
            before = sum((arb(w) * u for w, u in zip(row, stream, strict=True) if w != 0), arb(bias))
            output += arb(outer) * before.max(arb(0))
        return output


def _check(network: Transformer, target: LayerTarget, length: int | None) -> None:
    if len(network.layers) != 1:
        raise Refusal(f"this network has {len(network.layers)} layers; worst-case errors are certified for one dp-free layer")
    attention, ffn = network.layers[0].attention, network.layers[0].feedforward
    if attention.kind != "dp-free":
        raise Refusal(f"attention is {attention.kind}; worst-case errors are certified for dp-free attention")
    if attention.window == "full":
        raise Refusal("the window is full; worst-case errors are certified for infinite and finite windows")
    if (attention.window == "finite") != (length is not None):
        raise Refusal(f"the window is {attention.window}; give the length of the arrays for finite windows, and only for them")
    if length is not None and not target.places[-1] < length <= LATEST:
        raise Refusal(f"arrays of {length} tokens are not certified: the length exceeds lag {target.places[-1]} and is at most {LATEST}")
    if length == 1 and "log" in attention.rpe:
        raise Refusal("log heads see nothing of an array of one token; give arrays of two tokens at least")
    if any(p != "none" for p in ffn.precision) or ffn.outer.shape[0] != 1:
        raise Refusal("the read-out is rounded or has several outputs; worst-case errors are certified for one real output")
    if network.dim != target.dim:
        raise InputError(f"the network reads tokens of dimension {network.dim}, the target has dimension {target.dim}")
    if network.dtype != "exact" and not all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(network)):
        raise InputError("a weight of this network is not a finite number")


def _certify(problem: "_Problem", seed: int, arithmetic: str, start: float) -> LayerError:
    rounding = problem.rounding()
    search = _Search(problem, seed)
    if problem.parts:
        cover = _Cover(problem, search)
        certified, cells = cover.certified(), cover.count
        candidates = search.ascend(cover.maximisers())
        witness, description = problem.measured(candidates)
    else:
        norms = problem.norms(problem.base)
        certified, cells = abs(arb(problem.constant)) + sum((n.most for n in norms), arb(0)), 1
        witness, description = problem.measured(search.ascend(np.empty((0, 0))))
        if problem.network.dtype == "exact":
            infinite = lower(abs(arb(problem.constant)) + sum((n.least for n in norms), arb(0)))
            if infinite > witness:
                witness, description = infinite, "sign sequence of the error kernel, over all of the past"
    return LayerError(
        witness=max(0.0, witness),
        witness_input=description,
        certified=upper(certified + rounding),
        rounding=None if arithmetic == NOT_COUNTED else upper(rounding),
        arithmetic=arithmetic,
        trivial=problem.target.constant_error(),
        cells=cells,
        seconds=time.perf_counter() - start,
    )


@dataclass(frozen=True)
class ArrayLayer(FusedLayer):
    """Heads whose softmax runs over the tokens of an array, seen from its last position: kernels end with the array, and so do memories."""

    length: int = 0
    biases: tuple[Row, ...] = ()
    """b_h(s) of table heads."""

    def lin(self, gains: list[fmpq]) -> list[Any]:
        """All heads at once, whatever their type."""
        rows = self.biases or ((),) * len(gains)
        used = [
            (arb(g), _array_weights(kind, p, row, self.length, ctx.prec))
            for g, kind, p, row in zip(gains, self.rpe, self.decays, rows, strict=True)
            if g != 0
        ]
        return [Taps(tuple(sum((g * weights[s] for g, weights in used), arb(0)) for s in range(self.length)))] if used else []

    def log(self, gains: list[fmpq]) -> list[Any]:
        return []

    def table(self, gains: list[fmpq]) -> list[Any]:
        return []

    def kernel(
        self,
        row: Sequence[fmpq],
        column: int,
        spikes: dict[int, fmpq] | None = None,
        memories: dict[MemoryKernel, fmpq] | None = None,
    ) -> DeliveredKernel:
        whole = super().kernel(row, column, spikes)
        cut = [Taps(tuple(-arb(w) * v for v in memory.values(0, self.length))) for memory, w in (memories or {}).items()]
        return replace(whole, groups=(*whole.groups, *cut))


@lru_cache(maxsize=256)
def _array_weights(kind: str, decay: fmpq, biases: Row, length: int, bits: int) -> tuple[arb, ...]:
    """softmax of p φ(s) over 0 ≤ s < length (lin, none) or 1 ≤ s < length (log), or of the biases as far as they and the array go."""
    with working_precision(bits):
        if kind == "table":
            raw = [arb(b - max(biases[:length])).exp() for b in biases[:length]]
            raw += [arb(0)] * (length - len(raw))
        elif kind == "log":
            raw = [arb(0), *(arb(s) ** -arb(decay) for s in range(1, length))]
        else:
            raw = [(-arb(decay) * s).exp() for s in range(length)]
        mass = sum(raw, arb(0))
        return tuple(w / mass for w in raw)


def _array_layer(network: Transformer, length: int) -> ArrayLayer:
    """The fused layer of an exact network with a finite window, for the last of `length` tokens."""
    attention = network.layers[0].attention
    decays = attention.decay
    closed = np.array([fmpq(2)] * len(decays), dtype=object)  # any decay is summable over an array
    summable = replace(attention, decay=closed, rpe=("lin",) * len(decays), window="infinite", table=None)
    layer = fuse(replace(network, layers=(replace(network.layers[0], attention=summable),)))
    biases = () if attention.table is None else tuple(map(tuple, attention.table))
    return ArrayLayer(layer.embedding, layer.offset, layer.gains, decays, attention.rpe, None, length=length, biases=biases)


@dataclass(frozen=True)
class Functional:
    """stream·(U − offset) − memory·m: linear in the tokens."""

    stream: Row
    memory: Row

    def plus(self, other: "Functional", factor: fmpq) -> "Functional":
        pairs = ((self.stream, other.stream), (self.memory, other.memory))
        return Functional(*(tuple(a + factor * b for a, b in zip(x, y, strict=True)) for x, y in pairs))


@dataclass(frozen=True)
class Table:
    """Kernels in double precision: sums over the blocks of the window, column after column, how far they are off in all, and weights of
    what is left of heads and memories beyond that, whose mass is `tails`."""

    window: np.ndarray
    errors: np.ndarray
    beyond: np.ndarray
    tails: np.ndarray

    def tail_sizes(self) -> np.ndarray:
        with np.errstate(invalid="ignore", over="ignore"):
            return np.nan_to_num(np.abs(self.beyond) @ self.tails, nan=np.inf, posinf=np.inf) * (1 + len(self.tails) * 4 * ROUND)

    def sizes(self) -> np.ndarray:
        """Upper bounds of the ℓ¹ norms."""
        count = self.window.shape[1]
        return (np.abs(self.window).sum(axis=1) + self.errors + self.tail_sizes()) * (1 + count * 4 * ROUND)


@dataclass(frozen=True)
class Part:
    """A curved part of E: a functional, a bound of it, and its curve."""

    functional: Functional
    reach: float
    curve: Curve


class _Problem:
    """E = constant + base + Σ parts, and the kernels of functionals."""

    def __init__(self, network: Transformer, target: LayerTarget, layer: FusedLayer) -> None:
        self.network, self.target, self.layer = network, target, layer
        readout, ffn = target.readout, network.layers[0].feedforward
        self.width, self.slots = self.layer.embedding.shape[0], readout.coordinates
        self.no_stream, self.no_memory = (fmpq(0),) * self.width, (fmpq(0),) * self.slots
        weights = (to_exact(ffn.inner), to_exact(ffn.bias), to_exact(ffn.outer)[0])
        self.groups, constant = bends_of(*weights, tuple(self.layer.offset))
        self.radii = np.array([upper(r) for r in target.radii()])
        self.kernels = _Kernels(target, self.layer)
        self.constant = constant - readout.constant
        self.base = Functional(self.no_stream, readout.affine)
        self.bending: list[tuple[Bends, Part]] = []
        functionals = [Functional(group.direction, self.no_memory) for group in self.groups]
        for group, functional, reach in zip(self.groups, functionals, self.kernels.sizes(functionals), strict=True):
            inside = group.on(rational(reach))
            if inside.jumps:
                self.bending.append((inside, Part(functional, reach, curve(inside, [], reach))))
            else:
                self.constant += inside.intercept
                self.base = self.base.plus(functional, inside.slope)
        self.ridges = [(ridge, self._ridge(ridge)) for ridge in readout.ridges]
        self.parts = [part for _, part in (*self.bending, *self.ridges)]
        curved = [part.curve.scale + part.curve.slack for part in self.parts]
        known = [nearest(self.constant), *self.kernels.table([self.base]).window.flat, *curved]
        if not np.isfinite(known).all():
            raise Refusal("the error of this network has no bound in double precision: weights or slopes of the target are too large")

    def _ridge(self, ridge: Ridge) -> Part:
        """−s ψ(v + o) with v = w·m."""
        reach = upper(sum((abs(arb(w)) * arb(r) for w, r in zip(ridge.direction, self.radii, strict=True)), arb(ROUND)))
        return Part(Functional(self.no_stream, tuple(-w for w in ridge.direction)), reach, curve(None, [_along(ridge, fmpq(1))], reach))

    def norms(self, functional: Functional) -> list[Norm]:
        return self.kernels.norms(functional)

    def rounding(self) -> arb:
        """Rounding of a float network's output: that of the read-out, and that of the stream times the groups' Lipschitz constants."""
        if self.network.dtype == "exact":
            return arb(0)
        units = [Functional(_unit(j, self.width), self.no_memory) for j in range(self.width)]
        stream = [arb(size) for size in self.kernels.sizes(units)]
        with working_precision(FFN_BITS):
            total, slack = evaluation_error(self.network, self.layer, stream)
            for group in self.groups:
                moved = sum((abs(arb(w)) * s for w, s in zip(group.direction, slack, strict=True)), arb(0))
                total += arb(group.lipschitz) * moved
            return total

    def measured(self, candidates: Sequence[np.ndarray]) -> tuple[float, str]:
        """The largest |F − f| over token arrays, rounded down: float networks run, exact ones are evaluated in balls."""
        if self.network.dtype == "exact":
            errors = [self._in_balls(tokens) for tokens in candidates[:MEASURED]]
            return max(errors), "ascent on the error, in ball arithmetic"
        outputs = np.asarray(fast.forward(self.network, np.array(candidates)))[:, -1]
        errors = [lower(abs(arb(rational(float(y))) - self._wanted(tokens))) for y, tokens in zip(outputs, candidates, strict=True)]
        return max(errors), "ascent on the error, run in " + self.network.dtype

    def _wanted(self, tokens: np.ndarray) -> arb:
        with working_precision(FFN_BITS):
            recent = [[arb(float(v)) for v in token] for token in tokens[::-1]]
            return self.target.readout(self.target.memories(recent))

    def _in_balls(self, tokens: np.ndarray) -> float:
        """|F − f| at the last of the tokens; those of a block are equal, and zero beyond the window."""
        with working_precision(self.layer.bits):
            stream = [arb(o) for o in self.layer.offset]
            for column, atoms in enumerate(self.kernels.atoms):
                recent = arb_mat([[arb(float(v))] for v in tokens[::-1, column][self.kernels.edges[:-1]]])
                mixed = (atoms * recent).entries()
                stream = [u + v for u, v in zip(stream, mixed[: self.width], strict=True)]
            ffn, output = self.network.layers[0].feedforward, arb(0)
            for row, bias, outer in zip(ffn.inner, ffn.bias, ffn.outer[0], strict=True):
                before = sum((arb(w) * u for w, u in zip(row, stream, strict=True) if w != 0), arb(bias))
                output += arb(outer) * before.max(arb(0))
            return lower(abs(output - self._wanted(tokens)))


def _unit(j: int, size: int) -> Row:
    return tuple(fmpq(int(i == j)) for i in range(size))


def _along(ridge: Ridge, alpha: fmpq) -> Ridge:
    """The ridge as a function of v, its argument being αv + o."""
    return replace(ridge, direction=(alpha,))


def _edges(count: int, lags: Sequence[int]) -> list[int]:
    """Where the blocks of a window begin: single tokens, then blocks that grow geometrically, the lags being blocks of their own."""
    marks = sorted({count, *lags, *(lag + 1 for lag in lags)})
    edges = list(range(SINGLE + 1))
    while edges[-1] < count:
        last = edges[-1]
        edges.append(min(last + last // BLOCK, *(mark for mark in marks if mark > last), count))
    return edges


class _Kernels:
    """Kernels of functionals on a window, and bounds of their ℓ¹ norms.

    Late tokens are taken together: on a block Σ|κ| ≤ |Σκ| + Σ_h |G_h| Σ_s |k_h(s) − mean k_h| for κ = Σ_h G_h k_h, over heads and memories.
    """

    def __init__(self, target: LayerTarget, layer: FusedLayer) -> None:
        self.target, self.layer = target, layer
        width, slots, dim = layer.embedding.shape[0], target.readout.coordinates, target.dim
        count = 1 + max(SINGLE, target.places[-1])
        if count > LATEST:
            raise Refusal(f"lag {target.places[-1]} is not certified: kernels of arbitrary weights are looked at for lags below {LATEST}")
        most = max(count, min(MAX_WITNESS, ENTRIES // (dim * width * len(layer.rpe))))
        no_stream, no_memory = (fmpq(0),) * width, (fmpq(0),) * slots
        self.coordinates = [Functional(_unit(j, width), no_memory) for j in range(width)]
        self.memories = [Functional(no_stream, tuple(-w for w in _unit(k, slots))) for k in range(slots)]
        self.exact_left = EXACT_NORMS
        with working_precision(layer.bits):
            heads = [self._head(h) for h in range(len(layer.rpe))]
            while count < most and not sum((upper(k.tail(count)) for k in heads), 0.0) < WINDOW_TAIL:
                count = min(most, 2 * count)
            self.count = count
            self.edges = _edges(count, target.places)
            spread = [self._beyond(k) for k in heads]
            self.atoms, tails = [], []
            for column in range(dim):
                kernels = [self.kernel(f, column) for f in (*self.coordinates, *self.memories)]
                self.atoms.append(arb_mat([self._sums(kernel.values(0, count)) for kernel in kernels]))
                tails.append([*spread, *map(self._beyond, kernels[width:])])
            self.tails = np.array(tails).ravel()

    def _sums(self, values: Sequence[arb]) -> list[arb]:
        return [sum(values[a:b], arb(0)) for a, b in itertools.pairwise(self.edges)]

    def _beyond(self, kernel: DeliveredKernel) -> float:
        """What a kernel holds beyond the window, and Σ |κ(s) − its mean| over the blocks."""
        values, total = kernel.values(0, self.count), kernel.tail(self.count)
        total += sum((abs(arb(w)) for lag, w in kernel.spikes if lag >= self.count), arb(0))
        for a, b in itertools.pairwise(self.edges):
            if b > a + 1:
                mean = sum(values[a:b], arb(0)) / (b - a)
                total += sum((abs(v - mean) for v in values[a:b]), arb(0))
        return upper(total)

    def _head(self, h: int) -> DeliveredKernel:
        """One head alone."""
        gains = np.full((len(self.layer.rpe), 1, 1), fmpq(0), dtype=object)
        gains[h, 0, 0] = fmpq(1)
        nothing = np.array([[fmpq(0)]], dtype=object)
        return replace(self.layer, embedding=nothing, offset=nothing[0], gains=gains).kernel([fmpq(1)], 0)

    def kernel(self, functional: Functional, column: int) -> DeliveredKernel:
        return self.layer.kernel(functional.stream, column, *self.target.wanted(functional.memory, column))

    def norms(self, functional: Functional) -> list[Norm]:
        """ℓ¹ norms over the infinite past, one per input coordinate."""
        with working_precision(self.layer.bits):
            return [l1_norm(self.kernel(functional, column)) for column in range(self.target.dim)]

    def affordable(self, functional: Functional) -> bool:
        """Whether an ℓ¹ norm in ball arithmetic gains anything soon: slow powers that are no bank are summed over a million tokens, and
        their tails bounded head by head all the same."""
        with working_precision(TAIL_BITS):
            groups = [g for c in range(self.target.dim) for g in self.kernel(functional, c).groups if isinstance(g, Powers)]
            return all(g.is_slow() or g.tail(MAX_WITNESS) <= TAIL_SHARE * g.tail(1) for g in groups)

    def table(self, functionals: Sequence[Functional]) -> Table:
        windows, weights, errors = [], [], np.zeros(len(functionals))
        with working_precision(self.layer.bits):
            # the memories' atoms are kernels of +m, functionals subtract memory·m
            rows = [w for f in functionals for w in (*map(arb, f.stream), *(-arb(w) for w in f.memory))]
            given = arb_mat(len(functionals), len(self.coordinates) + len(self.memories), rows)
            for column, atoms in enumerate(self.atoms):
                entries = (given * atoms).entries()
                window = np.array([float(e) for e in entries]).reshape(len(functionals), len(self.edges) - 1)
                radii = np.array([float(e.rad()) for e in entries]).reshape(window.shape)
                off = np.abs(window) * (2 * ROUND) + radii * (1 + 4 * ROUND) + UNDERFLOW
                errors += off.sum(axis=1) * (1 + self.count * 4 * ROUND) + UNDERFLOW * self.tails.sum()
                windows.append(window)
                gains = [[*self.layer.functional(f.stream, column)[1], *(-w for w in f.memory)] for f in functionals]
                weights.append(
                    np.array([[nearest(w) for w in row] for row in gains]).reshape(
                        len(functionals), len(self.layer.rpe) + len(self.memories)
                    )
                )
        return Table(np.concatenate(windows, axis=1), errors, np.concatenate(weights, axis=1), self.tails)

    def sizes(self, functionals: Sequence[Functional]) -> list[float]:
        """Upper bounds of the ℓ¹ norms; where the heads' tails are most of it, in ball arithmetic."""
        table = self.table(functionals)
        result = []
        for functional, size, tail in zip(functionals, table.sizes(), table.tail_sizes(), strict=True):
            if self.exact_left > 0 and not tail <= size / 2 and self.affordable(functional):
                self.exact_left -= 1
                size = np.fmin(size, upper(sum((n.most for n in self.norms(functional)), arb(0))))
            if not np.isfinite(size):
                raise Refusal("a functional of this network's stream has no bound in double precision: its weights are too large")
            result.append(max(float(size), ROUND))
        return result


@dataclass(frozen=True)
class Product:
    """−s p e: p lies in the range of ψ' between the arguments w·m + o and αv_g + o. ψ' is enclosed piece by piece of its argument."""

    scale: float
    direction: np.ndarray
    offset: float
    alpha: float
    group: int
    edges: np.ndarray
    least: np.ndarray
    most: np.ndarray
    pad: float
    """Bounds the rounding of an argument."""


class _Stack:
    """Curves with the same number of nodes, side by side."""

    def __init__(self, where: list[int], curves: list[Curve]) -> None:
        self.where = np.array(where)
        self.nodes, self.values, self.slopes, self.below, self.above = (
            np.array([getattr(c, name) for c in curves]) for name in ("nodes", "values", "slopes", "below", "above")
        )
        self.largest = np.abs(self.nodes).max(axis=1)
        self.slack = np.array([c.slack + SLACK * c.scale for c in curves]) + UNDERFLOW * (1 + self.largest)
        self.rows = np.arange(len(curves))

    def at(self, v: np.ndarray) -> np.ndarray:
        """Chords at v (C, U)."""
        if self.nodes.shape[1] <= FEW_NODES:
            piece = (self.nodes[:, 1:-1] <= v[..., None]).sum(axis=-1)
        else:
            columns = zip(self.nodes, v.T, strict=True)
            piece = np.stack([np.searchsorted(nodes[1:-1], column, side="right") for nodes, column in columns], axis=1)
        return self.values[self.rows, piece] + self.slopes[self.rows, piece] * (v - self.nodes[self.rows, piece])

    def highest(self, a: np.ndarray, b: np.ndarray, side: np.ndarray, slope: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Upper bound of max_{[a, b]} (σD(v) − λv), and where the chords attain it; all (C, U)."""
        left, right = (side[:, None] * self.at(v) - slope * v for v in (a, b))
        inner = side[:, None, None] * self.values - slope[..., None] * self.nodes
        inner[(self.nodes <= a[..., None]) | (self.nodes >= b[..., None])] = -np.inf
        best = inner.argmax(axis=-1)
        top = np.take_along_axis(inner, best[..., None], axis=-1)[..., 0]
        place = np.where(top > np.maximum(left, right), self.nodes[self.rows, best], np.where(left >= right, a, b))
        bends = np.where(side[:, None, None] > 0, self.above, self.below)
        touched = (self.nodes[:, :-1] < b[..., None]) & (self.nodes[:, 1:] > a[..., None])
        bend = np.where(touched, bends, 0.0).max(axis=-1)
        return np.maximum(np.maximum(left, right), top) + bend + self.slack + SLACK * np.abs(slope) * self.largest, place


@dataclass
class _Bound:
    """Bounds of cells, with what is known where they would be attained."""

    value: np.ndarray
    gradient: np.ndarray
    """By (λ, θ, δ)."""
    gaps: np.ndarray
    """max (σD_u − λ_u v) less its value at the maximiser."""
    tokens: np.ndarray
    tops: np.ndarray
    """Σ_u max (σD_u − λ_u v)."""
    crude: np.ndarray
    """The share of tails and roundings."""

    def take(self, better: np.ndarray, other: "_Bound") -> None:
        for name, mine in vars(self).items():
            mine[better] = getattr(other, name)[better]


@dataclass
class _Cells:
    """Boxes low ≤ (m, q, v) ≤ high, signs σ, (λ, θ, δ), bounds, and gaps of the parts."""

    low: np.ndarray
    high: np.ndarray
    side: np.ndarray
    slopes: np.ndarray
    value: np.ndarray
    gaps: np.ndarray

    def __len__(self) -> int:
        return len(self.side)

    def pick(self, rows: np.ndarray) -> "_Cells":
        return _Cells(*(array[rows] for array in vars(self).values()))

    def replaced(self, rows: np.ndarray, count: int, others: "_Cells") -> None:
        """Put `others` in the place of these rows and, the rest of them, after the first `count`; arrays grow by doubling."""
        fresh = len(others) - len(rows)
        for name, mine in vars(self).items():
            theirs = getattr(others, name)
            while count + fresh > len(mine):
                mine = np.concatenate([mine, np.zeros_like(mine)])
            mine[rows], mine[count : count + fresh] = theirs[: len(rows)], theirs[len(rows) :]
            setattr(self, name, mine)


class _Cover:
    """Cells that cover the box of (m, q, v), for both signs, and their bounds."""

    def __init__(self, problem: _Problem, search: "_Search") -> None:
        self.problem, self.search = problem, search
        self.kernels, self.radii = problem.kernels, problem.radii
        self._pair()
        self.parts, self.slots = len(self.functionals), len(self.radii)
        functionals = [*self.functionals, problem.base]
        self.memories = self.kernels.table(self.kernels.memories)
        hints = _least_squares(self.memories.window, self.kernels.table(functionals).window)
        rests = [f.plus(self._memory(row), fmpq(-1)) for f, row in zip(functionals, hints, strict=True)]
        common = self._common(rests[:-1])
        self.extra = len(common)
        self.hints = np.concatenate([hints, np.zeros((self.extra, self.slots))])
        self.table = self.kernels.table([*rests, *common])
        self.sizes = np.abs(self.hints) @ self.radii + self.table.sizes()
        self._confine(rests[:-1], common)
        columns = self.table.window.shape[1]
        self.gamma = 4 * ROUND * (columns + self.parts + self.slots + self.extra + len(self.table.tails) + 64)
        self.least = UNDERFLOW * (len(self.hints) + self.slots) * float(columns + self.radii.sum() + self.table.tails.sum() + 64)
        self.multipliers = not problem.target.pointwise
        self.constant = nearest(problem.constant)
        nodes = sum(stack.nodes.size for stack in self.stacks)
        self.price = 2 * len(self.hints) * columns + NODE_WORK * (nodes + len(self.hints) * self.slots)
        self.work, self.count = 0, 2
        self._refine()

    def _memory(self, weights: np.ndarray) -> Functional:
        """weights·m."""
        return Functional(self.problem.no_stream, tuple(-rational(w) for w in weights.tolist()))

    def _common(self, rests: Sequence[Functional]) -> list[Functional]:
        """Principal functionals q of the rests: heads are few, so a few of them confine all neurons."""
        window = self.kernels.table(rests).window
        left, values, _ = np.linalg.svd(window / self.reaches[:, None], full_matrices=False)
        kept = [j for j in range(min(MAX_COMMON, len(values))) if values[j] > LEAST_COMMON * max(values[0], LEAST_COMMON)]
        result = []
        for j in kept:
            total = Functional(self.problem.no_stream, self.problem.no_memory)
            for rest, weight in zip(rests, (left[:, j] / self.reaches).tolist(), strict=True):
                total = total.plus(rest, rational(weight))
            result.append(total)
        return result

    def _confine(self, rests: Sequence[Functional], common: Sequence[Functional]) -> None:
        """v = μ·m + η·q + a smaller rest: numbers η, and bounds of those rests."""
        inner = _least_squares(self.table.window[self.parts + 1 :], self.table.window[: self.parts])
        left = []
        for rest, row in zip(rests, inner.tolist(), strict=True):
            for q, weight in zip(common, row, strict=True):
                rest = rest.plus(q, -rational(weight))
            left.append(rest)
        self.spread = np.concatenate([self.hints[: self.parts], inner], axis=1)
        self.left = self.kernels.table(left).sizes()
        self.box = np.concatenate([self.radii, np.maximum(self.table.sizes()[self.parts + 1 :], ROUND), self.reaches])

    def _pair(self) -> None:
        """Parts for bounding: groups of neurons with the ridges that they follow, the products that make up for it, other ridges."""
        problem = self.problem
        bending, ridges = problem.bending, problem.ridges
        followers: dict[int, list[tuple[Ridge, fmpq]]] = {}
        apart = []
        if bending and ridges:
            table = self.kernels.table([part.functional for _, part in (*bending, *ridges)])
            windows, sizes = table.window, np.abs(table.window).sum(axis=1)
        for r, (ridge, part) in enumerate(ridges):
            best: tuple[float, int, float] = (np.inf, 0, 0.0)
            for g in range(len(bending)):
                mine, theirs = windows[g], windows[len(bending) + r]
                alpha = float(np.float32(mine @ theirs / max(mine @ mine, 1e-300)))
                best = min(best, (float(np.abs(theirs - alpha * mine).sum() / sizes[len(bending) + r]), g, alpha))
            if best[0] <= PAIRED and best[2] != 0:
                followers.setdefault(best[1], []).append((ridge, rational(best[2])))
            else:
                apart.append(part)
        self.functionals: list[Functional] = []
        reaches, curves = [], []
        self.products: dict[int, Product] = {}
        for g, (neurons, part) in enumerate(bending):
            pairs = followers.get(g, [])
            whole = curve(neurons, [_along(ridge, alpha) for ridge, alpha in pairs], part.reach) if pairs else part.curve
            curves.append((len(self.functionals), whole))
            self.functionals.append(part.functional)
            reaches.append(part.reach)
        for part in apart:
            curves.append((len(self.functionals), part.curve))
            self.functionals.append(part.functional)
            reaches.append(part.reach)
        for g, pairs in followers.items():
            for ridge, alpha in pairs:
                argument = Functional(problem.no_stream, tuple(-w for w in ridge.direction))
                difference = argument.plus(bending[g][1].functional, -alpha)
                self.products[len(self.functionals)] = self._product(ridge, alpha, g, bending[g][1].reach)
                self.functionals.append(difference)
                reaches.append(self.kernels.sizes([difference])[0])
        self.reaches = np.array(reaches)
        self.curves = dict(curves)
        lengths = sorted({len(c.nodes) for _, c in curves})
        grouped = [[(u, c) for u, c in curves if len(c.nodes) == n] for n in lengths]
        self.stacks = [_Stack([u for u, _ in members], [c for _, c in members]) for members in grouped]

    def _product(self, ridge: Ridge, alpha: fmpq, group: int, reach: float) -> Product:
        direction, middle = np.array([nearest(w) for w in ridge.direction]), nearest(ridge.offset)
        span = max(float(np.abs(direction) @ self.radii), abs(nearest(alpha)) * reach)
        pad = SLACK * (span + abs(middle) + ROUND)
        span += 2 * pad
        edges = np.linspace(middle - span, middle + span, SLOPE_PIECES + 1)
        enclosed = [ridge.profile.first(arb(a).union(arb(b))) for a, b in itertools.pairwise(edges.tolist())]
        least, most = np.array([lower(p) for p in enclosed]), np.array([upper(p) for p in enclosed])
        return Product(nearest(ridge.scale), direction, middle, nearest(alpha), group, edges, least, most, pad)

    def _ranges(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Intervals (C, U) of the parts' functionals on cells."""
        k = self.slots + self.extra
        reach = np.abs(self.spread) @ self.box[:k] + self.left
        centre = (low[:, :k] + high[:, :k]) / 2 @ self.spread.T
        half = (high[:, :k] - low[:, :k]) / 2 @ np.abs(self.spread).T + self.left + self.gamma * reach
        a, b = np.maximum(centre - half, low[:, k:]), np.minimum(centre + half, high[:, k:])
        return np.minimum(a, b), np.maximum(a, b)

    def _slopes(self, product: Product, low: np.ndarray, high: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The range of ψ' on cells."""
        k = self.slots
        w = product.direction
        centre, half = (low[:, :k] + high[:, :k]) / 2 @ w, (high[:, :k] - low[:, :k]) / 2 @ np.abs(w)
        ends = np.stack([centre - half, centre + half, product.alpha * a[:, product.group], product.alpha * b[:, product.group]])
        least, most = ends.min(axis=0) + product.offset - product.pad, ends.max(axis=0) + product.offset + product.pad
        touched = (product.edges[:-1] <= most[:, None]) & (product.edges[1:] >= least[:, None])
        return np.where(touched, product.least, np.inf).min(axis=1), np.where(touched, product.most, -np.inf).max(axis=1)

    def chords(self, low: np.ndarray, high: np.ndarray, side: np.ndarray) -> np.ndarray:
        """(λ, θ, δ): slopes of the chords, no multipliers."""
        a, b = self._ranges(low, high)
        slopes = np.zeros((len(side), 2 * self.parts + self.extra + self.slots))
        for stack in self.stacks:
            left, right = a[:, stack.where], b[:, stack.where]
            slopes[:, stack.where] = side[:, None] * (stack.at(right) - stack.at(left)) / np.maximum(right - left, 1e-300)
        for u, product in self.products.items():
            least, most = self._slopes(product, low, high, a, b)
            slopes[:, u] = -side * product.scale * (least + most) / 2
        return slopes

    def evaluate(self, low: np.ndarray, high: np.ndarray, side: np.ndarray, slopes: np.ndarray) -> _Bound:
        """(ii) for cells low ≤ (m, q, v) ≤ high, signs and (λ, θ, δ)."""
        self.work += len(side) * self.price
        n, k, p, table = self.parts, self.slots, self.extra, self.table
        lam, theta, delta = slopes[:, :n], slopes[:, n : 2 * n + p], slopes[:, 2 * n + p :]
        a, b = self._ranges(low, high)
        weights = np.concatenate([lam - theta[:, p:], side[:, None], -theta[:, :p]], axis=1)
        with np.errstate(invalid="ignore", over="ignore"):
            nu = weights @ self.hints + delta
            kernel = weights @ table.window
            beyond = weights @ table.beyond
            if self.multipliers:
                kernel -= delta @ self.memories.window
                beyond -= delta @ self.memories.beyond
            signs = np.where(kernel < 0, -1.0, 1.0)
            far = np.sign(beyond) * table.tails
            m = np.where(nu >= 0, high[:, :k], low[:, :k])
            seen = m @ self.hints.T + signs @ table.window.T + far @ table.beyond.T
            held = np.concatenate([seen[:, n + 1 :], seen[:, :n]], axis=1)  # q, v at the maximiser
            y = np.where(theta > 0, high[:, k:], np.where(theta < 0, low[:, k:], np.clip(held, low[:, k:], high[:, k:])))
            tail = np.abs(beyond) @ table.tails
            linear = (nu * m).sum(axis=1) + (theta * y).sum(axis=1) + np.abs(kernel).sum(axis=1) + tail
        tops, places, reached = np.empty_like(a), np.empty_like(a), np.empty_like(a)
        inside = np.clip(seen[:, :n], a, b)
        for stack in self.stacks:
            w = stack.where
            tops[:, w], places[:, w] = stack.highest(a[:, w], b[:, w], side, lam[:, w])
            reached[:, w] = side[:, None] * stack.at(inside[:, w]) - lam[:, w] * inside[:, w]
        for u, product in self.products.items():
            least, most = self._slopes(product, low, high, a, b)
            factors = np.stack([-side * product.scale * p - lam[:, u] for p in (least, most)])
            ends = np.stack([a[:, u], b[:, u]])
            values = (factors[:, None] * ends[None]).reshape(4, -1)
            best = values.argmax(axis=0)
            widest = np.abs(ends).max(axis=0)
            tops[:, u] = values.max(axis=0) + SLACK * widest * (np.abs(factors).max(axis=0) + np.abs(lam[:, u]))
            tops[:, u] += UNDERFLOW * (1 + widest) * (1 + np.maximum(np.abs(least), np.abs(most)))
            places[:, u] = ends[best % 2, np.arange(len(side))]
            reached[:, u] = factors.mean(axis=0) * inside[:, u]
        absolute = np.abs(weights) @ (table.errors + self.gamma * self.sizes)
        absolute += np.abs(delta) @ (self.memories.errors + self.gamma * self.radii)
        absolute += self.gamma * (np.abs(tops).sum(axis=1) + np.abs(theta) @ self.box[k:] + abs(self.constant)) + self.least
        value = side * self.constant + tops.sum(axis=1) + linear + absolute
        memories = m - signs @ self.memories.window.T if self.multipliers else np.zeros_like(m)
        gradient = np.concatenate([seen[:, :n] - places, y - held, memories], axis=1)
        value = np.where(np.isfinite(value), value, np.inf)
        return _Bound(value, gradient, tops - reached, self._tokens(signs, m), tops.sum(axis=1) + absolute, tail + absolute)

    def _tokens(self, signs: np.ndarray, m: np.ndarray) -> np.ndarray:
        """Maximisers: signs of the kernel and, where memories are single tokens, the cell's corner."""
        if self.problem.target.pointwise:
            signs = signs.copy()
            for k in range(self.slots):
                slot, column = divmod(k, self.problem.target.dim)
                block = self.kernels.edges.index(self.problem.target.places[slot])
                signs[:, column * (len(self.kernels.edges) - 1) + block] = m[:, k]
        return signs

    def improve(self, low: np.ndarray, high: np.ndarray, side: np.ndarray, slopes: np.ndarray, steps: int) -> tuple[np.ndarray, _Bound]:
        """Polyak's subgradient steps towards the witness, the best kept."""
        scale = np.concatenate([self.reaches, self.box[self.slots :], self.radii])
        best = self.evaluate(low, high, side, slopes)
        kept, at, current = slopes.copy(), slopes, deepcopy(best)
        for step in range(steps):
            scaled = current.gradient / scale
            length = (scaled**2).sum(axis=1)
            excess = np.maximum(current.value - self.search.best, 0) / (1 + step / STEP_FALL)
            with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
                move = np.where(length > 0, excess / length, 0.0)[:, None] * scaled / scale
            at = at - np.where(np.isfinite(move), move, 0.0)
            current = self.evaluate(low, high, side, at)
            better = current.value < best.value
            kept[better] = at[better]
            best.take(better, current)
        return kept, best

    def _refine(self) -> None:
        low, high, side = np.stack([-self.box, -self.box]), np.stack([self.box, self.box]), np.array([1.0, -1.0])
        chords = self.chords(low, high, side)
        slopes, found = self.improve(low, high, side, chords, ROOT_STEPS)
        tried = [(chords, self.evaluate(low, high, side, chords)), (slopes, found)]
        self.whole = [self._whole(sign, tried, row) for row, sign in enumerate(side.tolist())]
        self.cells = _Cells(low, high, side, slopes, found.value, found.gaps)
        self.search.ascend(found.tokens)
        while self.work < WORK:
            chosen = self.worst(BATCH)
            worst = self.cells.pick(chosen)
            axis, cut = self._cuts(worst)
            wanted = (worst.value > CLOSE * self.search.best) & (axis >= 0)
            if not wanted[0]:
                break
            self._split(chosen[wanted], worst.pick(wanted), axis[wanted], cut[wanted])

    def worst(self, count: int) -> np.ndarray:
        """The cells with the largest bounds, the largest first."""
        value = self.cells.value[: self.count]
        top = np.argpartition(-value, min(count, len(value)) - 1)[:count]
        return top[np.argsort(-value[top], kind="stable")]

    def _cuts(self, cells: _Cells) -> tuple[np.ndarray, np.ndarray]:
        """For every cell the coordinate whose halving promises most, and where; −1 if there is none."""
        k = self.slots + self.extra
        a, b = self._ranges(cells.low, cells.high)
        gaps, half = np.maximum(cells.gaps, 0), np.maximum((b - a) / 2, 1e-300)
        width = (cells.high - cells.low) / 2
        share = np.minimum(1, width[:, None, :k] * np.abs(self.spread) / half[..., None])
        together = (gaps[..., None] * share).sum(axis=1) * (width[:, :k] > NARROW * self.box[:k])
        own = gaps * (half > NARROW * self.reaches)
        own[:, list(self.products)] = 0
        scores = np.concatenate([together, own], axis=1)
        axis = np.where(scores.max(axis=1) > 0, scores.argmax(axis=1), -1)
        rows = np.arange(len(cells))
        cut = (cells.low[rows, axis] + cells.high[rows, axis]) / 2
        for i, u in zip(rows, axis - k, strict=True):
            if u >= 0:
                cut[i] = self._kink(int(u), a[i, u], b[i, u])
        return axis, cut

    def _kink(self, part: int, a: float, b: float) -> float:
        """Where to cut the range of a functional: at the kink next to its middle, if there is one."""
        nodes = self.curves[part].nodes
        inner = nodes[(nodes > a) & (nodes < b)]
        return float(inner[np.abs(inner - (a + b) / 2).argmin()]) if len(inner) else (a + b) / 2

    def _split(self, chosen: np.ndarray, parents: _Cells, axis: np.ndarray, cut: np.ndarray) -> None:
        """Two cells for each of these; slopes are inherited or those of the new chords."""
        both = np.tile(np.arange(len(chosen)), 2)
        low, high, side = parents.low[both], parents.high[both], parents.side[both]
        rows = np.arange(len(chosen))
        high[rows, axis] = cut
        low[len(rows) + rows, axis] = cut
        inherited, fresh = parents.slopes[both], self.chords(low, high, side)
        better = self.evaluate(low, high, side, fresh).value < self.evaluate(low, high, side, inherited).value
        slopes, found = self.improve(low, high, side, np.where(better[:, None], fresh, inherited), CELL_STEPS)
        children = _Cells(low, high, side, slopes, np.minimum(parents.value[both], found.value), found.gaps)
        self.cells.replaced(chosen, self.count, children)
        self.count += len(chosen)
        self.search.ascend(found.tokens[np.argsort(-found.value, kind="stable")[:MEASURED]])

    def _whole(self, side: float, found: list[tuple[np.ndarray, _Bound]], row: int) -> arb:
        """(i) for the uncut box in ball arithmetic, where tails or roundings matter to its bound; the best of several slopes."""
        best = arb.pos_inf()
        for slopes, bound in found:
            if np.isfinite(slopes[row]).all() and not bound.crude[row] <= CRUDE * bound.value[row]:
                total = Functional(self.problem.no_stream, self.problem.no_memory).plus(self.problem.base, rational(side))
                for functional, slope in zip(self.functionals, slopes[row, : self.parts].tolist(), strict=True):
                    total = total.plus(functional, rational(slope))
                if not self.kernels.affordable(total):
                    continue
                norm = sum((n.most for n in self.kernels.norms(total)), arb(0))
                here = arb(side) * arb(self.problem.constant) + arb(float(bound.tops[row])) + norm
                best = best.min(here.upper())
        return best

    def certified(self) -> arb:
        """The largest bound of a cell, or what the uncut box gives."""
        value, side = self.cells.value[: self.count], self.cells.side[: self.count]
        largest = (arb(float(value[side == sign].max())) for sign in (1, -1))
        best = [cells.min(whole) for cells, whole in zip(largest, self.whole, strict=True)]
        return best[0].max(best[1]).max(arb(0))

    def maximisers(self) -> np.ndarray:
        """Sequences at which the bounds of the worst cells would be attained."""
        worst = self.cells.pick(self.worst(STARTS))
        return self.evaluate(worst.low, worst.high, worst.side, worst.slopes).tokens


def _least_squares(given: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Rows of numbers with which the rows of `given` come closest to each row of `wanted`."""
    return np.linalg.lstsq(given.T, wanted.T, rcond=None)[0].T


class _Search:
    """Ascent on |E| in double precision: conditional gradients, x ← x + τ(sign ∇ − x) with the best τ."""

    def __init__(self, problem: _Problem, seed: int) -> None:
        self.problem = problem
        self.table = problem.kernels.table([*(part.functional for part in problem.parts), problem.base]).window
        self.constant = nearest(problem.constant)
        self.best = 0.0
        self.found: list[tuple[float, np.ndarray]] = []
        rng = np.random.default_rng(seed)
        signs = np.where(self.table < 0, -1.0, 1.0)[-1:]
        starts = [signs, -signs, rng.choice([-1.0, 1.0], (STARTS, signs.shape[1])), rng.uniform(-1, 1, (STARTS, signs.shape[1]))]
        self.ascend(np.concatenate(starts))

    def error(self, x: np.ndarray) -> np.ndarray:
        v = x @ self.table.T
        curved = sum((part.curve(v[:, u]) for u, part in enumerate(self.problem.parts)), np.zeros(len(x)))
        return np.asarray(self.constant + v[:, -1] + curved)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        v = x @ self.table.T
        slopes = [part.curve.slope(v[:, u]) for u, part in enumerate(self.problem.parts)]
        return np.stack([*slopes, np.ones(len(x))], axis=1) @ self.table

    def look(self, x: np.ndarray) -> None:
        """Remember the best of these sequences."""
        errors = np.abs(self.error(x))
        for i in np.argsort(-errors, kind="stable")[:MEASURED]:
            self.found.append((float(errors[i]), x[i]))
        self.found = sorted(self.found, key=lambda pair: -pair[0])[: 2 * MEASURED]
        self.best = self.found[0][0]

    def ascend(self, starts: np.ndarray) -> list[np.ndarray]:
        """Token arrays (N, d), the worst first, after an ascent from these sequences too."""
        steps = np.array([1.0, 0.5, 0.25, 0.1, 0.03])
        x = starts
        if len(x):
            side = np.where(self.error(x) < 0, -1.0, 1.0)
            for _ in range(ASCENT):
                towards = np.where(side[:, None] * self.gradient(x) < 0, -1.0, 1.0)
                trials = np.stack([x, *(x + step * (towards - x) for step in steps)])
                errors = side * self.error(trials.reshape(-1, x.shape[1])).reshape(len(trials), -1)
                choice = errors.argmax(axis=0)
                x = trials[choice, np.arange(len(x))]
                if not choice.any():
                    break
            self.look(x)
        return [self.tokens(x) for _, x in self.found]

    def tokens(self, x: np.ndarray) -> np.ndarray:
        """A sequence as an array in order of time, in numbers that every float type holds."""
        blocks = x.reshape(self.problem.target.dim, -1).T.astype(np.float32).astype(np.float64)
        recent = np.repeat(blocks, np.diff(self.problem.kernels.edges), axis=0)
        if isinstance(self.problem.layer, ArrayLayer):
            recent[self.problem.layer.length :] = 0
        return recent[::-1]
