"""Sequences that a page begins with: an example, and one with a large error that was searched for by running the network.

Errors here are measured on float64 outputs of `run` against the target's values; the certificate's witness is measured in balls, or as the
float network runs, and may have an infinite past, which a page cannot show.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from analyzer.targets.protocol import Target
from constructions.network.transformer import Transformer
from constructions.run.execute import run

SHORTEST, LONGEST = 12, 32
"""Tokens of the sequences that are shown."""
BATCH = 64
"""Sequences that are run together; the search begins with so many random ones."""
SWEEPS = 4
"""Rounds of the search. These numbers decide how large an error is found, never whether it is there."""


@dataclass(frozen=True)
class Sequence:
    """Tokens (N, d) with outputs of `run` and the target's values; `position` is where the error is largest."""

    tokens: np.ndarray
    outputs: np.ndarray
    wanted: np.ndarray | None
    position: int

    @property
    def error(self) -> float | None:
        """|output − wanted| there."""
        return None if self.wanted is None else float(abs(self.outputs - self.wanted)[self.position])

    def as_dict(self) -> dict[str, Any]:
        """Plain data for a page."""
        wanted = None if self.wanted is None else self.wanted.tolist()
        outputs = np.where(np.isfinite(self.outputs), self.outputs, np.nan)
        shown = [None if not np.isfinite(v).all() else v for v in outputs.tolist()]
        return {"tokens": self.tokens.tolist(), "outputs": shown, "wanted": wanted, "position": self.position, "error": self.error}


def length_of(target: Target | None, longest: int) -> int:
    """Tokens of a sequence on a page: enough for the longest lag twice, within reason."""
    if target is not None and target.length is not None:
        return target.length
    return int(np.clip(2 * longest + 4, SHORTEST, max(LONGEST, min(longest + 4, 3 * LONGEST))))


class MeasuredSequences:
    """A network and its target on sequences of one length: `run` is compiled for one size of batch, and every call fills one."""

    def __init__(self, network: Transformer, target: Target | None, length: int) -> None:
        self.network, self.target, self.length = network, target, length

    def outputs(self, tokens: np.ndarray) -> np.ndarray:
        """Outputs of `run` for tokens (count, N, d)."""
        parts = []
        for start in range(0, len(tokens), BATCH):
            part = tokens[start : start + BATCH]
            filled = np.concatenate([part, np.repeat(part[:1], BATCH - len(part), axis=0)])
            parts.append(run(self.network, filled)[: len(part)])
        return np.concatenate(parts)

    def errors(self, tokens: np.ndarray) -> np.ndarray:
        """|output − wanted| at the last token; −1 where an output is not finite."""
        assert self.target is not None
        wanted = np.asarray(self.target.values(np)(tokens))[:, -1]
        return np.nan_to_num(abs(self.outputs(tokens)[:, -1] - wanted), nan=-1.0, posinf=-1.0)

    def sequence(self, tokens: np.ndarray) -> Sequence:
        """One sequence (N, d) with what is put out and what is wanted."""
        outputs = self.outputs(tokens[None])[0]
        if self.target is None or self.network.outputs != 1:
            return Sequence(tokens, outputs, None, len(tokens) - 1)
        wanted = np.asarray(self.target.values(np)(tokens[None])[0])
        first = min(self.target.settled, len(tokens) - 1)
        errors = np.nan_to_num(abs(outputs - wanted)[first:], nan=-1.0)
        return Sequence(tokens, outputs, wanted, first + int(errors.argmax()))

    def example(self) -> Sequence:
        """A random sequence, in numbers of two digits where tokens are not letters."""
        rng, target = np.random.default_rng(0), self.target
        tokens = rng.uniform(-1, 1, (self.length, self.network.dim)) if target is None else target.draw(rng, (1, self.length))[0]
        return self.sequence(tokens if target is not None and target.alphabet is not None else np.round(tokens, 2))

    def worst(self) -> Sequence | None:
        """A sequence with a large error at its last token: the best of random ones, then tokens moved to the ends of their range, or to
        other letters, all those moves at once that help alone, else the best one. None where there is no target, or are several outputs."""
        target = self.target
        if target is None or self.network.outputs != 1:
            return None
        starts, letters = target.draw(np.random.default_rng(1), (BATCH, self.length), signs=True), target.letters()
        ends = np.full((2, target.dim), np.array(target.domain, float)[:, None]) if letters is None else letters.reshape(len(letters), -1)
        best = starts[self.errors(starts).argmax()]
        for _ in range(SWEEPS):
            moved = _moves(best, ends, letters is None or letters.ndim == 1)
            errors = self.errors(np.concatenate([best[None], moved.reshape(-1, *best.shape)]))
            start, errors = errors[0], errors[1:].reshape(moved.shape[:2])
            choice, gains = errors.argmax(axis=1), errors.max(axis=1)
            if not (gains > start).any():
                break
            together = _together(best, moved, choice, gains > start)
            alone = moved[gains.argmax(), choice[gains.argmax()]]
            both = self.errors(np.stack([together, alone]))
            best = together if both[0] >= both[1] else alone
        return self.sequence(best)


def _moves(tokens: np.ndarray, ends: np.ndarray, single: bool) -> np.ndarray:
    """The sequence with one token moved, or with `single` one coordinate of a token: (moves, values, N, d)."""
    length, dim = tokens.shape
    places = [(t, slice(c, c + 1)) for t in range(length) for c in range(dim)] if single else [(t, slice(None)) for t in range(length)]
    moved = np.repeat(np.repeat(tokens[None, None], len(ends), axis=1), len(places), axis=0)
    for m, (t, part) in enumerate(places):
        for v, value in enumerate(ends):
            moved[m, v, t, part] = value[:1] if single else value
    return moved


def _together(best: np.ndarray, moved: np.ndarray, choice: np.ndarray, helps: np.ndarray) -> np.ndarray:
    result = best.copy()
    for m in np.flatnonzero(helps):
        changed = moved[m, choice[m]] != best
        result[changed] = moved[m, choice[m]][changed]
    return result
