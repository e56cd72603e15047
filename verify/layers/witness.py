"""Witnesses: explicit sequences with a large error, found in double precision and measured rigorously.

E = constant + B(x) + Σ_u D_u(v_u(x)) is climbed by conditional gradients, x ← x + τ(sign ∇ − x) with the best of a few τ, from sign
sequences, from random ones, and from those at which bounds of cells would be attained. None of this has to be right: what counts is the
error at the sequence that was found, in balls for exact weights, or as a float network runs.
"""

from collections.abc import Sequence

import numpy as np
from flint import arb, arb_mat

from analyzer.numbers.exact import lower, nearest, rational, working_precision
from analyzer.targets.protocol import Target
from constructions.network.transformer import Transformer, to_exact
from constructions.run import fast
from constructions.run.fused import fuse
from verify.chain.layer import FFN_BITS, read_out_in_balls
from verify.layers.decomposition import ErrorDecomposition
from verify.layers.finite_windows import ArrayLayer, array_layer
from verify.layers.functionals import unit

STARTS, ASCENT = 64, 40
"""Random starts and steps of the search for a witness. They decide how good it is, never whether it is true."""
STEPS = (1.0, 0.5, 0.25, 0.1, 0.03)
"""Lengths τ of a step that are tried."""
MEASURED = 4
"""Candidates that are evaluated rigorously."""


class WitnessSearch:
    """Ascent on |E| in double precision. A sequence x is one token per block of the window, one input coordinate after the other."""

    def __init__(self, problem: ErrorDecomposition, seed: int) -> None:
        self.problem = problem
        self.table = problem.kernels.table([*(term.functional for term in problem.terms), problem.base]).window
        self.constant = nearest(problem.constant)
        self.best = 0.0
        self.found: list[tuple[float, np.ndarray]] = []
        rng = np.random.default_rng(seed)
        signs = np.where(self.table < 0, -1.0, 1.0)[-1:]
        starts = [signs, -signs, rng.choice([-1.0, 1.0], (STARTS, signs.shape[1])), rng.uniform(-1, 1, (STARTS, signs.shape[1]))]
        self.ascend(np.concatenate(starts))

    def error(self, x: np.ndarray) -> np.ndarray:
        v = x @ self.table.T
        curved = sum((term.curve(v[:, u]) for u, term in enumerate(self.problem.terms)), np.zeros(len(x)))
        return np.asarray(self.constant + v[:, -1] + curved)

    def gradient(self, x: np.ndarray) -> np.ndarray:
        v = x @ self.table.T
        slopes = [term.curve.slope(v[:, u]) for u, term in enumerate(self.problem.terms)]
        return np.asarray(np.stack([*slopes, np.ones(len(x))], axis=1) @ self.table)

    def ascend(self, starts: np.ndarray) -> None:
        """Climb from these sequences, and remember the best that were ever reached."""
        reached = starts
        side = np.where(self.error(starts) < 0, -1.0, 1.0)
        for _ in range(ASCENT):
            towards = np.where(side[:, None] * self.gradient(reached) < 0, -1.0, 1.0)
            trials = np.stack([reached, *(reached + step * (towards - reached) for step in STEPS)])
            errors = side * self.error(trials.reshape(-1, reached.shape[1])).reshape(len(trials), -1)
            choice = errors.argmax(axis=0)
            reached = trials[choice, np.arange(len(reached))]
            if not choice.any():
                break
        self._remember(reached)

    def _remember(self, sequences: np.ndarray) -> None:
        errors = np.abs(self.error(sequences))
        for i in np.argsort(-errors, kind="stable")[:MEASURED]:
            self.found.append((float(errors[i]), sequences[i]))
        self.found = sorted(self.found, key=lambda pair: -pair[0])[: 2 * MEASURED]
        self.best = self.found[0][0]

    def candidates(self) -> list[np.ndarray]:
        """The best sequences as token arrays (N, d), the worst error first."""
        return [self._tokens(x) for _, x in self.found]

    def _tokens(self, x: np.ndarray) -> np.ndarray:
        """A sequence as an array in order of time, in numbers that every float type holds."""
        blocks = x.reshape(self.problem.target.dim, -1).T.astype(np.float32).astype(np.float64)
        recent = np.repeat(blocks, np.diff(self.problem.kernels.edges), axis=0)
        if isinstance(self.problem.layer, ArrayLayer):
            recent[self.problem.layer.length :] = 0
        return recent[::-1]


def measured(problem: ErrorDecomposition, candidates: Sequence[np.ndarray]) -> tuple[float, str]:
    """The largest |F − f| over token arrays, rounded down: float networks run, exact ones are evaluated in balls."""
    network = problem.network
    if network.dtype == "exact":
        errors = [_error_in_balls(problem, tokens) for tokens in candidates[:MEASURED]]
        return max(errors), "ascent on the error, in ball arithmetic"
    outputs = np.asarray(fast.forward(network, np.array(candidates)))[:, -1]
    pairs = zip(outputs, candidates, strict=True)
    errors = [lower(abs(arb(rational(float(output))) - _wanted(problem, tokens))) for output, tokens in pairs]
    return max(errors), "ascent on the error, run in " + network.dtype


def _wanted(problem: ErrorDecomposition, tokens: np.ndarray) -> arb:
    """f at the last of the tokens."""
    with working_precision(FFN_BITS):
        recent = [[arb(float(v)) for v in token] for token in tokens[::-1]]
        return problem.target.readout(problem.target.memories(recent))


def _error_in_balls(problem: ErrorDecomposition, tokens: np.ndarray) -> float:
    """|F − f| at the last of the tokens; those of a block are equal, and zero beyond the window."""
    with working_precision(problem.layer.bits):
        stream = [arb(o) for o in problem.layer.offset]
        for column, atoms in enumerate(problem.kernels.atoms):
            recent = arb_mat([[arb(float(v))] for v in tokens[::-1, column][problem.kernels.edges[:-1]]])
            mixed = (atoms * recent).entries()
            stream = [before + added for before, added in zip(stream, mixed[: len(stream)], strict=True)]
        output = _read_out(problem.network, stream)
        return lower(abs(output - _wanted(problem, tokens)))


def _read_out(network: Transformer, stream: Sequence[arb]) -> arb:
    ffn = network.layers[0].feedforward
    return read_out_in_balls(ffn.inner, ffn.bias, ffn.outer[0], stream)


def output_at(network: Transformer, target: Target, tokens: np.ndarray, t: int) -> arb:
    """The output of one dp-free layer at token t of (N, d), in balls: the exact function of the weights, zero before them."""
    past, exact = tokens[: t + 1], network.map(to_exact)
    layer = array_layer(exact, len(past)) if exact.layers[0].attention.window == "finite" else fuse(exact)
    with working_precision(max(FFN_BITS, layer.bits)):
        recent = [[arb(rational(float(v))) for v in token] for token in past[::-1]]
        stream = [arb(o) for o in layer.offset]
        for j in range(len(stream)):
            for column in range(tokens.shape[1]):
                kernel = layer.kernel(unit(j, len(stream)), column).values(0, len(recent))
                stream[j] += sum((k * token[column] for k, token in zip(kernel, recent, strict=True)), arb(0))
        return _read_out(exact, stream)
