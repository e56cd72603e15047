"""Witnesses for softmax layers: explicit sequences with a large error, found in double precision and measured on the real executor.

The error is climbed one token after the other, through a few nodes or all letters, first at the positions that heads weigh most; from
random sequences, from signs, and from the tokens at which bounds of cells would be attained. The best are polished in smaller steps. None
of this has to be right: what counts is the error at the sequence that was found, as a float network runs it, or enclosed for exact ones.
"""

import numpy as np
from flint import arb

from analyzer.numbers.exact import lower, nearest, rational
from analyzer.targets.protocol import memories_of
from constructions.run.execute import run
from verify.chain.enclosed_layers import enclosed_pass
from verify.layers.softmax.problem import SoftmaxProblem

STARTS, MEASURED = 48, 4
"""Random starts, and candidates that are measured."""
WEIGHED = 24
"""Positions that are climbed at."""
TRIED, LETTERS = 9, 32
"""Nodes of a coordinate and letters that are tried at a position."""
SWEEPS = 3
SMALLER = (1 / 8, 1 / 32)
"""Steps of polishing."""
SHORTEST, LONGEST, HEARD = 256, 4096, 2.0**-8
"""Tokens of an array that is run: as many as hold the target's lags and all but this share of every head's mass, between these; zeros
stand before it."""


class SoftmaxWitness:
    """Ascent on |E|; a sequence is one token per block, (S, d), the current one first."""

    def __init__(self, problem: SoftmaxProblem, seed: int) -> None:
        self.problem, self.rng = problem, np.random.default_rng(seed)
        self.constant = nearest(problem.constant)
        values = problem.nodes.values if problem.nodes.continuous else problem.nodes.values[:-1]
        if problem.nodes.continuous:
            line = np.linspace(-1, 1, TRIED)
            self.tried = [
                np.stack([line if j == i else np.full(TRIED, np.nan) for j in range(problem.dim)], axis=1) for i in range(problem.dim)
            ]
        else:
            self.tried = [values[self.rng.permutation(len(values))[:LETTERS]]]
        shares = (problem.masses.heads / problem.masses.heads.sum(axis=1, keepdims=True)).max(axis=0)
        shares += (problem.masses.memories != 0).sum(axis=0)
        self.order = np.argsort(-shares, kind="stable")[:WEIGHED]
        self.best, self.found = 0.0, [(-1.0, np.zeros((problem.positions, problem.dim)))]
        starts = values[self.rng.integers(len(values), size=(STARTS, problem.positions))]
        if problem.nodes.continuous:
            starts = np.concatenate([starts, np.where(starts < 0, -1.0, 1.0)])
        self.ascend(starts)

    def error(self, x: np.ndarray) -> np.ndarray:
        """E in plain floats."""
        found = self.problem.errors(x, self.constant)
        if self.problem.readings is None:
            return found
        return np.asarray(found - memories_of(self.problem.target).values(np)(self._recent(x))[:, -1])

    def _recent(self, x: np.ndarray) -> np.ndarray:
        """The last tokens in order of time, as far back as lags reach."""
        lengths = np.diff(self.problem.masses.edges)
        count = self.problem.target.settled + 1
        kept = int(np.searchsorted(np.cumsum(lengths), count)) + 1
        return np.repeat(x[:, :kept], np.minimum(lengths[:kept], count), axis=1)[:, :count][:, ::-1]

    def ascend(self, x: np.ndarray) -> float:
        """Climb from sequences (C, S, d), remember the best, and return the largest error ever reached."""
        x = self._allowed(x.copy())
        reached = self.error(x)
        side, best = np.where(reached < 0, -1.0, 1.0), np.abs(reached)
        for _ in range(SWEEPS):
            before = best.copy()
            for place in self.order:
                for tried in self.tried:
                    best = self._try(x, best, side, place, np.where(np.isnan(tried), x[:, None, place], tried[None]))
            if (best <= before).all():
                break
        top = np.argsort(-best, kind="stable")[:MEASURED]
        if self.problem.nodes.continuous and best[top[0]] > self.found[0][0]:
            best[top] = self._polish(x, best, side, top)
        for row in top:
            self.found.append((float(best[row]), x[row].copy()))
        self.found = sorted(self.found, key=lambda pair: -pair[0])[: 2 * MEASURED]
        self.best = max(self.best, self.found[0][0])
        return self.best

    def _try(self, x: np.ndarray, best: np.ndarray, side: np.ndarray, place: int, tokens: np.ndarray) -> np.ndarray:
        """Put the best of these tokens (C, tried, d) at a place, if that is better."""
        trials = np.repeat(x[:, None], tokens.shape[1], axis=1)
        trials[:, :, place] = tokens
        flat = self._allowed(trials.reshape(-1, *x.shape[1:]))
        errors = side[:, None] * self.error(flat).reshape(len(x), -1)
        choice, rows = errors.argmax(axis=1), np.arange(len(x))
        better = errors[rows, choice] > best
        x[better] = flat.reshape(trials.shape)[rows, choice][better]
        return np.where(better, errors[rows, choice], best)

    def _allowed(self, x: np.ndarray) -> np.ndarray:
        """Sequences (C, S, d) of tokens that occur: the zero token, if it is no letter, stands before all letters and never among them,
        where the letter next to it takes its place; changed as they are."""
        nodes = self.problem.nodes
        letters = nodes.values[:-1]
        if nodes.continuous or not letters.any(axis=1).all():
            return x
        zero = ~np.asarray(x.any(axis=2))
        before = np.logical_and.accumulate(zero[:, ::-1], axis=1)[:, ::-1]
        x[zero & ~before] = letters[np.abs(letters).sum(axis=1).argmin()]
        return x

    def _polish(self, x: np.ndarray, best: np.ndarray, side: np.ndarray, rows: np.ndarray) -> np.ndarray:
        some, reached = x[rows], best[rows]
        for step in SMALLER:
            for place in self.order:
                for axis in range(self.problem.dim):
                    moved = np.zeros((1, 2, self.problem.dim))
                    moved[0, :, axis] = step, -step
                    reached = self._try(some, reached, side[rows], place, np.clip(some[:, None, place] + moved, -1, 1))
        x[rows] = some
        return reached

    def measured(self) -> tuple[float, str]:
        """The largest |F − f| of the best sequences, rounded down."""
        network, target = self.problem.network, self.problem.target
        if self.problem.length is None and target.settled >= LONGEST:
            return 0.0, f"none: no array of {LONGEST} tokens holds the target's lags"
        tokens = np.stack([self._tokens(x) for _, x in self.found[:MEASURED]])
        if network.dtype == "exact":
            enclosed = enclosed_pass(network, tokens, first=-1)
            outputs = [arb(float(m), float(r)) for m, r in zip(enclosed.mid[:, -1].ravel(), enclosed.rad[:, -1].ravel(), strict=True)]
            how = "ascent on the error, enclosed"
        else:
            outputs = [arb(rational(float(y))) for y in run(network, tokens)[:, -1]]
            how = f"ascent on the error, run in {network.dtype}"
        errors = [lower(abs(y - target.exact_value(sequence))) for y, sequence in zip(outputs, tokens, strict=True)]
        return max(0.0, *errors), f"{how}: {_shown(tokens[int(np.argmax(errors))])}"

    def _longest(self) -> int:
        edges, heads = self.problem.masses.edges, self.problem.masses.heads
        shares = (np.cumsum(heads, axis=1) / heads.sum(axis=1, keepdims=True)).min(axis=0)
        enough = edges[1 + int(np.argmax(shares >= 1 - HEARD))]  # the last block holds everything
        return int(min(edges[-1], max(SHORTEST, enough, self.problem.target.settled + 1), LONGEST))

    def _tokens(self, x: np.ndarray) -> np.ndarray:
        """An array in order of time, in numbers that every float type holds."""
        edges = self.problem.masses.edges
        limit = self._longest() if self.problem.length is None else self.problem.length
        lengths = np.diff(np.minimum(edges, limit))
        recent = np.repeat(x, lengths, axis=0)
        if limit > len(recent):  # heads that look no further
            recent = np.concatenate([recent, np.repeat(recent[-1:], limit - len(recent), axis=0)])
        given = recent.astype(np.float32).astype(np.float64) if self.problem.nodes.continuous else recent
        return np.asarray(given[::-1])


def _shown(tokens: np.ndarray) -> str:
    """The last tokens, in order of time."""
    shown = [f"{token[0]:.6g}" if len(token) == 1 else "(" + ", ".join(f"{v:.6g}" for v in token) + ")" for token in tokens[-8:]]
    return f"at the last of {'…, ' if len(tokens) > 8 else ''}{', '.join(shown)}"
