"""The options of commands and functions that are about no single theorem; those of what is built are in `analyzer.families`."""

from dataclasses import dataclass
from typing import Literal

from analyzer.errors import InputError
from analyzer.families import DEFAULT_ERROR, LEAST_ERROR, MAX_SEED, Dtype, FormName, LayerRpe, NormName, ReadOutBy, Rpe, TokenName
from analyzer.options import Options, option
from lemmaformer.sweeps.engine import MAX_WORKERS

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


FORM = "the form in which lin heads run, each with its own rounding"


@dataclass(frozen=True)
class RunningForm(Options):
    """How a network runs."""

    form: FormName | None = option(None, FORM, shown="that of this device")


@dataclass(frozen=True)
class Measure(Options):
    """How an error is measured: in the worst case, of one device or of several, or in mean square over random tokens."""

    norm: NormName | None = option(None, "worst case over all tokens (sup), or mean square over random ones", shown="what it was built for")
    tokens: TokenName | None = option(
        None, "with mean-square: independent tokens, uniform on [-1, 1], signs ±1 or gaussian", shown="what it was built for, or uniform"
    )
    section: int | None = option(
        None, "for arrays that devices share, cut into sections of so many tokens or more", least=1, most=MAX_TOKENS, shown="one device"
    )

    form: FormName | None = option(None, FORM, shown="that of this device")

    def check(self) -> None:
        if self.section is not None and self.form not in (None, "scan"):
            raise InputError("sections are scanned: leave form out")
        if self.section is not None and (self.norm == "mean-square" or self.tokens is not None):
            raise InputError("section is about the worst case: leave norm and tokens out")
        if self.norm == "sup" and self.tokens is not None:
            raise InputError("tokens are drawn for norm=mean-square; the worst case is over all of them")

    def refuse(self, what: str) -> None:
        """Refuse norm, tokens and section beside what is about the worst case on one device."""
        if self.norm == "mean-square" or self.tokens is not None:
            raise InputError(f"{what} is about the worst case: leave norm and tokens out")
        if self.section is not None:
            raise InputError(f"{what} is about one device: leave section out")


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
    devices: int = option(1, "devices of JAX that share every batch", least=1)
    classes: bool = option(False, "a classifier: one output for every value that the target takes on its alphabet, cross-entropy")

    def check(self) -> None:
        if self.key_dim < 1 and self.attention in ("dp", "nf"):
            raise InputError(f"key_dim is {self.key_dim}; dot products need 1 coordinate or more")
        if self.classes and self.linear:
            raise InputError("linear networks have one output; classes needs one for every value")


STRUCTURE = ("rpe", "attention", "window", "heads", "layers", "width", "model_dim", "key_dim", "reach", "linear", "classes")
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
    norm: NormName = option("sup", "the worst case, or the mean square over independent tokens of variance 1 (needs heads)")
    fresh: bool = option(False, "solve anew instead of re-checking the shipped certificate")

    def check(self) -> None:
        if self.dtype is not None and self.bits is not None:
            raise InputError("give dtype or bits, not both")
        if self.norm == "mean-square":
            if self.dtype is not None or self.bits is not None:
                raise InputError("the mean square is that of exact weights; dtype and bits go with norm sup")
            if self.rpe == "mixed":
                raise InputError("no mean-square law is known for heads of both types; give rpe lin or log")
            if self.heads is None:
                raise InputError("the least mean square error depends on the number of heads; give heads")
            if self.fresh:
                raise InputError("no certificates of mean squares are shipped; fresh goes with norm sup")


@dataclass(frozen=True)
class KernelLimits(Options):
    """A memory kernel and heads."""

    heads: int = option(1, "heads", least=1, most=12)
    rpe: Rpe = option("lin", "relative positions: weights fall like e^{-ps} (lin) or s^{-p} (log)")
    norm: NormName = option("sup", "the worst case, or the mean square over independent tokens of variance 1")


@dataclass(frozen=True)
class CouplingLimits(Options):
    """A coupling and ranks."""

    rank: int = option(8, "m_h from 1 up to this one", least=1, most=4096)
    alpha: float | None = option(None, "exponent of the complexities", above=0.5, below=64, shown="the fitted one")


@dataclass(frozen=True)
class HeadsLimits(Options):
    """Options of `lf.limits.heads`.

    >>> from lemmaformer.options import HeadsLimits
    >>> HeadsLimits(lags=(4,)).lags
    (4,)
    """

    lags: tuple[int, ...] = option((1, 2, 4, 8, 16, 32, 64, 128, 256), "lags, such as 12,64")


@dataclass(frozen=True)
class PermutationLimits(Options):
    """A function of a sequence, without positions."""

    error: float | None = option(None, "is this worst-case error possible without positions?", least=0.0)


@dataclass(frozen=True)
class InvarianceLimits(Options):
    """Another representation of a coupling."""

    other_rho: str | None = option(None, "another coupling in u and v", shown="the same")
    other_f: str | None = option(None, "another f in x", shown="the same")
    other_F: str | None = option(None, "another F in y", shown="the same")


@dataclass(frozen=True)
class RnnLimits(Options):
    """A kernel and what happens to its tokens."""

    length: int = option(32, "tokens in a sequence", least=1, most=256)
    swap: int = option(10, "the first and the last so many tokens change places", least=0)


MAX_SIZE, MAX_SIZES = 4096, 16
"""Sizes that `limits architectures` compares, and how many of them."""


@dataclass(frozen=True)
class ArchitecturesLimits(Options):
    """Sizes at which architectures are compared."""

    sizes: tuple[int, ...] = option((1, 2, 4, 8), "how many states, tokens of a window and heads, such as 1,2,4", shown="1,2,4,8")
    error: float | None = option(None, "also the sizes that this error certainly needs, and that are enough", above=0)

    def check(self) -> None:
        if not 1 <= len(self.sizes) <= MAX_SIZES or not all(1 <= size <= MAX_SIZE for size in self.sizes):
            said = ",".join(map(str, self.sizes))[:40]
            raise InputError(f"sizes is {said!r}; give 1 to {MAX_SIZES} whole numbers between 1 and {MAX_SIZE}")


MODEL_LAGS, MODEL_WINDOW = 24, 512
"""Lags of a model that are looked at, and tokens of a window of learnt biases, unless others are chosen."""


@dataclass(frozen=True)
class SlopesLimits(Options):
    """Slopes of a model's heads."""

    rpe: Rpe = option("lin", "relative positions: weights fall like e^{-ps} (lin) or s^{-p} (log)")
    longest: int | None = option(
        None, "audit the lags 1 to this one", least=1, most=24, spelt=("lags",), shown="heads + 2, at most 24; a model: 24"
    )
    dtype: Arithmetic = option("float32", "the arithmetic in which weights are stored")
    layer: int | None = option(None, "a model: only this layer, counted from 0", least=0, shown="all of them")
    window: int | None = option(None, "a model with buckets: tokens that a softmax sees", least=2, most=1 << 13, shown="512")


SCHEMES = ("alibi", "t5", "kerple", "table", "stride", "lin", "log", "mixed")
"""Relative positions that `limits positions` knows, in the order of its rows."""


@dataclass(frozen=True)
class PositionsLimits(Options):
    """What schemes of relative positions are given."""

    longest: int = option(24, "the lags 1 to this one", least=1, most=256, spelt=("lags",))
    dtype: Arithmetic = option("float32", "the arithmetic in which weights are stored")
    heads: int = option(8, "alibi: heads, whose slopes are the published ones", least=1, most=MAX_LIMIT_HEADS)
    buckets: int = option(32, "t5: buckets, all of them for the past", least=2, most=512)
    distance: int = option(128, "t5: distance from which on all lags share the last bucket", least=2, most=1 << 16)
    window: int = option(512, "t5: tokens that a softmax sees", least=2, most=1 << 13)
    kerple: str | None = option(None, "kerple: p:r of every head of weights (1 + rs)^-p, such as 4:1,8:0.5", shown="any heads")
    reach: int = option(128, "table: distances, 0 among them", least=1, most=1 << 16)
    stride: int = option(2, "stride: every so many tokens are seen", least=2, most=256)

    def check(self) -> None:
        if self.distance <= self.buckets // 2:
            raise InputError(f"distance is {self.distance}; it must be above {self.buckets // 2}, half of the buckets")


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
class PointsRuns(Options):
    """Training runs beside the constructed networks of points at positions."""

    seeds: int = option(1, "runs per row", least=1, most=MAX_SEEDS)
    steps: int = option(1000, "training steps of every run", least=MIN_STEPS, most=MAX_STEPS)
    seed: int = option(0, "seed of runs and sequences", least=0, most=MAX_SEED)


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
class Workers(Options):
    """Who runs the jobs of a sweep, and which of those in its journal are run again.

    >>> import lemmaformer as lf
    >>> lf.Workers(again="failed").workers
    1
    """

    workers: int = option(1, "processes of Dask; 1 needs no Dask", least=1, most=MAX_WORKERS)
    scheduler: str | None = option(None, "a Dask cluster that exists, such as tcp://127.0.0.1:8786")
    again: Literal["failed", "all"] | None = option(None, "run jobs again that the journal has: those that failed, or all")


RANDOM_TOKENS = 256
"""Random tokens on which a model's logits are looked at where no input is given."""


@dataclass(frozen=True)
class SpectrumHeads(Options):
    """Which heads to look at."""

    layer: int | None = option(None, "only this layer of a bundle or a model, or this pair of arrays of a file, counted from 0", least=0)
    heads: int | None = option(None, "a file: split arrays of shape (H·dk, D) into H heads", least=1)
    tokens: int | None = option(None, "a model without input: random tokens", least=1, most=1 << 16, shown="256")
    seed: int | None = option(None, "a model without input: seed of the random tokens", least=0, most=MAX_SEED, shown="0")


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


@dataclass(frozen=True)
class Check(Options):
    """What the quantities of a claim are about.

    >>> import lemmaformer as lf
    >>> lf.Check(bank="tuned").rpe
    'lin'
    """

    rpe: LayerRpe = option("lin", "relative positions: weights fall like e^{-ps} (lin) or s^{-p} (log); mixed: both in one layer")
    bank: Literal["paper", "tuned", "minimal", "balanced", "fitted"] | None = option(
        None, "how heads are chosen, as in build", shown="the theorem's: minimal for a lag, fitted for a kernel"
    )
    pod: Literal["pod", "centred"] | None = option(None, "couplings: which decomposition, as in build", shown="pod")
    dtype: Literal["exact", "bfloat16", "float32", "float64"] | None = option(
        None, "arithmetic of the weights, and the unit roundoff u (bfloat16: u only)", shown="exact"
    )
    bits: int | None = option(None, "the unit roundoff as 2^-B", least=LEAST_BITS, most=MAX_BITS)
    ffn: ReadOutBy | None = option(None, "the feed-forward read-out, as in build", shown="spline")
    readout: str | None = option(None, "read-out of the lag T, in x0 and m1", shown="m1")
    rate: str | None = option(None, "a size: fit the slopes of both ends of the sides against it")
    workers: int = option(1, "processes that share the points", least=1, most=256)

    def check(self) -> None:
        if self.bits is not None and self.dtype in ("bfloat16", "float32", "float64"):
            raise InputError("give dtype or bits, not both")


@dataclass(frozen=True)
class Export(Options):
    """Which program a network is written for.

    >>> import lemmaformer as lf
    >>> lf.Export(to="numpy").length is None
    True
    """

    to: Literal["torch", "onnx", "jax", "numpy"] = option("torch", "the program that is to run it")
    length: int | None = option(None, "jax: tokens per sequence", least=1, most=1 << 14, shown="those of the sequences compared")

    def check(self) -> None:
        if self.length is not None and self.to != "jax":
            raise InputError(f"length is for programs of one length, to=jax; {self.to} takes sequences of any")


@dataclass(frozen=True)
class Planning(Options):
    """The error that networks are planned for, and in which arithmetic.

    >>> import lemmaformer as lf
    >>> lf.Planning(error=0.05).dtype
    'exact'
    """

    error: float = option(DEFAULT_ERROR, "total worst-case error that every network is certified to", least=LEAST_ERROR)
    dtype: Dtype = option("exact", "arithmetic of the weights: exact rationals, or floats that are rounded and then certified")
    theorem: str | None = option(None, "only the designs of this theorem", shown="all that apply")
    build: bool = option(True, "build and certify every network; otherwise only what theorems ask for is shown")
