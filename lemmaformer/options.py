"""The options of commands and functions that are about no single theorem; those of what is built are in `analyzer.families`."""

from dataclasses import dataclass
from typing import Literal

from analyzer.errors import InputError
from analyzer.families import MAX_SEED, Rpe
from analyzer.options import Options, option

MAX_TOKENS = 1 << 24
"""Numbers in an input array: 128 MB of float64."""
MAX_COMPARED = 8
"""Columns that a page holds."""
MAX_SEQUENCES = 1 << 16
MAX_COMPARED_LENGTH = 1 << 12
"""Tokens per sequence in comparisons, where the reference pass holds N² weights per head: 2^24 of them."""
MIN_STEPS, MAX_STEPS = 20, 10**6
"""Fewer steps train nothing, more take days."""
MAX_SEEDS = 32
MAX_LIMIT_HEADS = 64
"""Heads of a bank that `limits lag` looks for; with more the optimum over any number is as good."""
LEAST_BITS, MAX_BITS = 2, 64

Bits = {"bfloat16": 8, "float32": 24, "float64": 53}
"""B of the unit roundoff 2^-B."""
Arithmetic = Literal["bfloat16", "float32", "float64"]


@dataclass(frozen=True)
class Recipe(Options):
    """How a network is trained: AdamW on fresh random sequences."""

    length: int | None = option(None, "tokens per sequence", least=1, most=1 << 14, shown="three times the longest lag, at least 32")
    batch: int = option(64, "fresh sequences per step", least=1)
    steps: int = option(2000, "training steps", least=MIN_STEPS, most=MAX_STEPS)
    rate: float = option(3e-3, "peak learning rate of AdamW", above=0, below=1)
    weight_decay: float = option(0.0, "weight decay of AdamW", least=0)
    tokens: Literal["uniform", "signs"] = option("uniform", "random tokens: uniform on the domain, or ±1")
    until: float = option(0.0, "stop when the mean loss of a fortieth of the run is below this", least=0)
    patience: int | None = option(None, "stop after so many fortieths of the run without progress", least=1)
    seed: int = option(0, "seed of weights and tokens", least=0, most=MAX_SEED)
    dtype: Literal["float32", "float64"] = option("float32", "arithmetic of the weights")


@dataclass(frozen=True)
class Train(Recipe):
    """A network to be trained, and how.

    >>> import lemmaformer as lf
    >>> lf.Train(rpe="table", heads=2).attention
    'dp-free'
    """

    rpe: Literal["lin", "log", "table", "none"] = option(
        "lin", "relative positions: weights fall like e^{-ps} (lin) or s^{-p} (log), a learnt bias per distance (table), or none"
    )
    attention: Literal["dp-free", "dp", "nf", "tmx"] = option(
        "dp-free",
        "dp-free: scores read positions only; dp: dot products, softmax; nf: dot products, not normalised; tmx: t minus x, not normalised",
    )
    window: Literal["infinite", "finite", "full"] = option(
        "infinite", "softmax over the whole past, zero before the array (infinite), the tokens up to t (finite), or all tokens (full)"
    )
    heads: int = option(8, "heads of every layer", least=1, most=4096)
    layers: int = option(1, "layers", least=1, most=4096)
    width: int = option(32, "neurons of every feed-forward network", least=1)
    model_dim: int | None = option(None, "width of the stream", least=1, shown="x0 and every memory; couplings: query, key and value")
    key_dim: int = option(2, "coordinates of queries and keys (dp, nf)", least=0)
    reach: int | None = option(None, "distances of a table", least=1, shown="the length of the sequences")
    linear: bool = option(False, "no feed-forward network at the end: the output is a coordinate of the stream")

    def check(self) -> None:
        if self.key_dim < 1 and self.attention in ("dp", "nf"):
            raise InputError(f"key_dim is {self.key_dim}; dot products need 1 coordinate or more")


STRUCTURE = ("rpe", "attention", "window", "heads", "layers", "width", "model_dim", "key_dim", "reach", "linear")
"""Options of `train` that describe random weights: a start has its own."""


@dataclass(frozen=True)
class Compare(Options):
    """The random sequences on which networks are compared.

    >>> import lemmaformer as lf
    >>> lf.Compare(sequences=16).seed
    0
    """

    sequences: int = option(256, "random sequences", least=2, most=MAX_SEQUENCES)
    length: int | None = option(
        None, "tokens per sequence", least=1, most=MAX_COMPARED_LENGTH, shown="until the slowest head has seen all but 2^-10 of its weight"
    )
    seed: int = option(0, "seed of the sequences", least=0, most=MAX_SEED)
    tokens: Literal["uniform", "signs"] | None = option(None, "random tokens where there is no alphabet", shown="uniform")


@dataclass(frozen=True)
class ArmsRuns(Recipe):
    """Training beside a construction."""

    continued_rate: float = option(1e-5, "peak rate of the arm that starts from the construction", above=0, below=1)
    supervise: bool = option(False, "a fourth arm, taught what the slots of the stream hold")


@dataclass(frozen=True)
class LagLimits(Options):
    """A lag and an arithmetic."""

    rpe: Literal["lin", "log", "mixed"] = option("lin", "heads of one type, or of both (mixed)")
    heads: int | None = option(None, "at most so many heads (lin, log)", least=1, most=MAX_LIMIT_HEADS, shown="any number")
    dtype: Arithmetic | None = option(None, "the arithmetic in which weights are stored")
    bits: int | None = option(None, "the same by unit roundoff 2^-B", least=LEAST_BITS, most=MAX_BITS)

    def check(self) -> None:
        if self.dtype is not None and self.bits is not None:
            raise InputError("give dtype or bits, not both")


@dataclass(frozen=True)
class KernelLimits(Options):
    """A memory kernel and heads."""

    heads: int = option(1, "heads", least=1, most=12)
    rpe: Rpe = option("lin", "relative positions: weights fall like e^{-ps} (lin) or s^{-p} (log)")


@dataclass(frozen=True)
class CouplingLimits(Options):
    """A coupling and ranks."""

    rank: int = option(8, "m_h from 1 up to this one", least=1, most=4096)
    alpha: float | None = option(None, "exponent of the complexities", above=0.5, below=64, shown="the fitted one")


@dataclass(frozen=True)
class RnnLimits(Options):
    """A kernel and what happens to its tokens."""

    length: int = option(32, "tokens in a sequence", least=1, most=256)
    swap: int = option(10, "the first and the last so many tokens change places", least=0)


@dataclass(frozen=True)
class SlopesLimits(Options):
    """Slopes of a model's heads."""

    rpe: Rpe = option("lin", "relative positions: weights fall like e^{-ps} (lin) or s^{-p} (log)")
    longest: int | None = option(None, "audit the lags 1 to this one", least=1, most=24, spelt=("lags",), shown="heads + 2, at most 24")
    dtype: Arithmetic = option("float32", "the arithmetic in which weights are stored")


@dataclass(frozen=True)
class DpFreeLimits(Options):
    """How well the dot-product network of Proposition 4.2 does."""

    error: float = option(1e-6, "error that the dot-product network of part (A) is built for", least=1e-30, below=1)


@dataclass(frozen=True)
class Seeds(Options):
    """Runs of an experiment; what is not given has the experiment's own default."""

    seeds: int | None = option(None, "runs per row", least=1, most=MAX_SEEDS)
    steps: int | None = option(None, "training steps of every run", least=MIN_STEPS, most=MAX_STEPS)


@dataclass(frozen=True)
class FullSeeds(Seeds):
    """Runs of an experiment that has a long version."""

    full: bool = option(False, "the published iterations and sizes, more seeds")

    def check(self) -> None:
        if self.full and (self.seeds is not None or self.steps is not None):
            raise InputError("full sets seeds and steps; give one or the other")


@dataclass(frozen=True)
class WeSeeds(FullSeeds):
    """Runs of a regression experiment."""

    seed: int = option(0, "the first seed", least=0, most=MAX_SEED)


@dataclass(frozen=True)
class Fig5(Options):
    """Sequences over which errors are averaged."""

    sequences: int = option(2000, "random sequences that errors are averaged over", least=16, most=100_000)
    seed: int = option(0, "seed of the sequences", least=0, most=MAX_SEED)


@dataclass(frozen=True)
class HorizonRuns(Options):
    """Lags and runs."""

    longest: int = option(12, "lags 1 to this one", least=1, most=16, spelt=("lags",))
    seeds: int = option(2, "runs per row", least=1, most=MAX_SEEDS)
    steps: int = option(2000, "training steps of every run", least=MIN_STEPS, most=MAX_STEPS)


@dataclass(frozen=True)
class Language(Options):
    """Language models of a text's characters."""

    steps: int = option(600, "training steps of every run", least=MIN_STEPS, most=MAX_STEPS)
    seeds: int = option(2, "runs per size", least=1, most=MAX_SEEDS)
    length: int = option(64, "characters of a window", least=8, most=256)


@dataclass(frozen=True)
class Digits(Options):
    """Runs on images of digits."""

    seeds: int = option(6, "runs for every head dimension", least=2, most=MAX_SEEDS)
    steps: int = option(1000, "training steps of every run", least=MIN_STEPS, most=MAX_STEPS)


@dataclass(frozen=True)
class SpectrumHeads(Options):
    """Which heads to look at."""

    layer: int | None = option(None, "only this layer of a bundle, or this pair of arrays of a file, counted from 0", least=0)
    heads: int | None = option(None, "a file: split arrays of shape (H·dk, D) into H heads", least=1)


@dataclass(frozen=True)
class Break(Options):
    """Which weight to change, and by how much.

    >>> import lemmaformer as lf
    >>> lf.Break(weight="output", head=2, by=1e-12).layer is None
    True
    """

    weight: str = option("output", "the array: output, value, decay, embedding, …")
    by: float = option(1e-6, "relative change")
    head: int | None = option(None, "the head, counted from 1", least=1, shown="the one with the largest entry")
    layer: int | None = option(None, "the layer, counted from 1", least=1, shown="the last one")
