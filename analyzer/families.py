"""The options of what can be built and bounded, one class per family of targets. No sympy here: help texts answer at once."""

from dataclasses import dataclass
from typing import Literal

from analyzer.errors import InputError
from analyzer.options import Options, option

MAX_HEADS = 2048
"""Heads we build: exact weights of an interpolation bank take about 2.55 H bits each."""
MAX_BOUND_HEADS = 10**8
"""More heads than any model has: a larger number is taken for a mistake."""
MAX_WIDTH = 200_000
"""Neurons we build: certifying them one by one takes about a minute."""
MAX_DEPTH = 4096
"""Layers we build: a lag of a few thousand tokens, one at a time."""
MAX_SEED = (1 << 31) - 1
"""JAX without 64 bit types reads seeds as int32."""
LEAST_ERROR = 1e-30
"""Errors below this are not built: the search for a bank carries 256 bits, which resolve 2^-256 next to 1."""
DEFAULT_ERROR = 1e-2

Rpe = Literal["lin", "log"]
LayerRpe = Literal["lin", "log", "mixed"]
Dtype = Literal["exact", "float64", "float32"]
ReadOutBy = Literal["spline", "barron"]

_RPE = "relative positions: a head's weights fall like e^{-ps} (lin, as ALiBi) or s^{-p} (log, as KERPLE) with the distance s"
_ERROR = "total worst-case error, certified"
_DTYPE = "arithmetic of the weights: exact rationals, or floats that are rounded and then certified"
_FFN = "the feed-forward read-out: piecewise linear (spline), or sampled as in the papers (barron)"
_SEED = "seed of Barron sampling"
_UNLESS_HEADS = "0.01 unless heads is given"


@dataclass(frozen=True)
class Fixed(Options):
    """Fixed memories: one dp-free layer (thm-3.1) or, with a depth, a chain of shifts.

    >>> from lemmaformer import Fixed
    >>> Fixed(bank="tuned", heads=256).bank
    'tuned'
    """

    rpe: LayerRpe = option("lin", _RPE + "; mixed: one log head beside lin heads")
    bank: Literal["paper", "tuned", "minimal", "balanced"] = option(
        "minimal",
        "how heads are chosen: as printed (paper), the same proof with its parameters at their best (tuned), "
        "the fewest possible (minimal), or the best for a float type (balanced)",
    )
    heads: int | None = option(None, "heads in all; with a depth the most in a layer", least=1, most=MAX_HEADS)
    error: float | None = option(None, _ERROR, least=LEAST_ERROR, shown=_UNLESS_HEADS)
    ffn: ReadOutBy = option("spline", _FFN)
    width: int | None = option(None, "neurons of the read-out", least=1, most=MAX_WIDTH)
    dtype: Dtype = option("exact", _DTYPE)
    seed: int = option(0, _SEED, least=0, most=MAX_SEED)
    share: bool = option(False, "paper and tuned banks: every lag uses all heads")
    depth: int | Literal["auto"] | None = option(
        None, "a chain of shifts: so many layers, or auto for the fewest layers, then the fewest heads in all", least=1, most=MAX_DEPTH
    )
    restore: bool = option(False, "with a depth and an alphabet: reset values to letters after every shift")

    def check(self) -> None:
        if self.share and self.bank in ("minimal", "balanced"):
            raise InputError(f"share goes with paper and tuned banks; a {self.bank} bank always serves all lags")
        if self.share and self.depth is not None:
            raise InputError("share goes with one layer; a chain of shifts always shares its heads")
        if self.restore and self.depth is None:
            raise InputError("restore needs layers to restore after: give a depth, such as auto")


@dataclass(frozen=True)
class Adaptive(Options):
    """Adaptive memories: lags that depend on the tokens (thm-4.1, thm-4.4, prop-4.3, prop-4.5).

    >>> from lemmaformer import Adaptive
    >>> Adaptive(attention="tmx").rounding
    'ideal'
    """

    rpe: Rpe = option("lin", _RPE)
    attention: Literal["dp", "tmx"] = option("dp", "how scores read a lag: by dot products (dp), or as t minus x (tmx)")
    bank: Literal["paper", "tuned", "minimal"] = option(
        "minimal", "how heads are chosen: as printed (paper), with the best parameters (tuned), or the fewest possible (minimal)"
    )
    encode: Literal["exact", "barron"] = option("exact", "how lags are written: by interpolation, or sampled as in the papers")
    rounding: Literal["ideal", "relu"] = option("ideal", "how lags become integers: [.] and log[exp(.)], or staircases of relu neurons")
    layers: Literal["auto", "deep"] = option("auto", "one layer per level of dependency, or one per memory (deep)")
    heads: int | None = option(None, "paper and tuned banks: heads in every layer", least=1, most=MAX_HEADS)
    error: float | None = option(None, _ERROR, least=LEAST_ERROR, shown=_UNLESS_HEADS)
    ffn: ReadOutBy = option("spline", _FFN)
    width: int | None = option(
        None, "Barron neurons per lag, right or wrong", least=1, most=MAX_WIDTH, shown="the fewest (in powers of 2) that are certified"
    )
    dtype: Dtype = option("exact", _DTYPE)
    seed: int = option(0, _SEED, least=0, most=MAX_SEED)

    def check(self) -> None:
        if self.encode == "barron" and self.rounding == "relu":
            raise InputError("a relu staircase is built on the alphabet itself, nothing is sampled: encode=barron needs rounding=ideal")
        if self.width is not None and self.encode != "barron":
            raise InputError("width is the number of Barron neurons per lag; it goes with encode=barron")
        if self.heads is not None and self.bank == "minimal":
            raise InputError("a minimal bank has the heads it needs; heads goes with bank paper or tuned")

    @property
    def deep(self) -> bool:
        return self.layers == "deep"


@dataclass(frozen=True)
class Kernel(Options):
    """Essentially sparse memories: kernels that fade (thm-5.1).

    >>> from lemmaformer import Kernel
    >>> Kernel(heads=8).bank
    'fitted'
    """

    rpe: Rpe = option("lin", _RPE)
    bank: Literal["paper", "tuned", "fitted"] = option(
        "fitted", "how heads are chosen: as printed (paper), with the best parameters (tuned), or fitted to the kernel in the sum norm"
    )
    heads: int | None = option(None, "heads in all", least=1, most=MAX_HEADS)
    error: float | None = option(None, _ERROR, least=LEAST_ERROR, shown=_UNLESS_HEADS)
    ffn: ReadOutBy = option("spline", _FFN)
    width: int | None = option(None, "neurons of the read-out", least=1, most=MAX_WIDTH)
    dtype: Dtype = option("exact", _DTYPE)
    seed: int = option(0, _SEED, least=0, most=MAX_SEED)


@dataclass(frozen=True)
class Coupling(Options):
    """Low-rank couplings: one softmax head that compares tokens (jl-4.2).

    >>> from lemmaformer import Coupling
    >>> Coupling(rank=2).pod
    'pod'
    """

    rank: int | None = option(None, "m_h, the query and key coordinates", least=1, most=4096, shown="the fewest for the error")
    knots: int | None = option(None, "pieces of the splines, a power of 2", least=1, most=1 << 20, shown="the fewest for the error")
    pod: Literal["pod", "centred"] = option("pod", "which decomposition: of rho, or of rho minus its mean over keys (centred)")
    error: float | None = option(None, _ERROR, least=LEAST_ERROR, shown="0.01 unless rank is given")
    dtype: Dtype = option("exact", _DTYPE)

    @property
    def bank(self) -> str:
        """What cards call it."""
        return self.pod


_SOLVED = "solve for the fewest heads that reach this error"
_TUNING = "the paper's own parameters, or the same proof with its parameters at their best"


@dataclass(frozen=True)
class FixedBound(Options):
    """The bound of thm-3.1: for given heads, or solved for heads or width.

    >>> import lemmaformer as lf
    >>> lf.bound("thm-3.1", lf.fixed(lags=(4,)), heads=256).heads
    256
    """

    rpe: Rpe = option("lin", _RPE)
    bank: Literal["paper", "tuned"] = option("tuned", _TUNING, spelt=("tuning",))
    heads: int | None = option(None, "heads in all", least=1, most=MAX_BOUND_HEADS)
    error: float | None = option(None, _SOLVED, least=LEAST_ERROR, shown=_UNLESS_HEADS)
    solve: Literal["heads", "width"] | None = option(None, "which size to solve for, given an error", shown="heads")
    rate: int | Literal["best"] = option("best", "the rate n of C(n)/H^n", least=1, most=999)
    share: bool = option(False, "every lag uses all heads")
    ffn: ReadOutBy = option("spline", _FFN)

    def check(self) -> None:
        object.__setattr__(self, "error", sizes_given(self.heads, self.error, self.solve))


@dataclass(frozen=True)
class AdaptiveBound(Options):
    """The bounds of thm-4.1, thm-4.4, prop-4.3 and prop-4.5, from a target or from the longest lag of each memory.

    >>> import lemmaformer as lf
    >>> lf.bound("thm-4.4", lags=(2, 4), heads=64).theorem
    'thm-4.4'
    """

    rpe: Rpe = option("lin", _RPE)
    lags: tuple[int, ...] | None = option(None, "instead of a target: the longest lag of each memory")
    chain: int | None = option(None, "thm-4.4 with lags: how many memories form the chain; the rest is parallel", least=0, shown="all")
    bank: Literal["paper", "tuned"] = option("tuned", _TUNING, spelt=("tuning",))
    heads: int | None = option(None, "heads in every layer", least=1, most=MAX_BOUND_HEADS)
    error: float | None = option(None, _SOLVED, least=LEAST_ERROR, shown=_UNLESS_HEADS)
    solve: Literal["heads", "width"] | None = option(None, "which size to solve for, given an error", shown="heads")
    rate: int | Literal["best"] = option("best", "the rate n of C(n)/H^n", least=1, most=999)
    ffn: ReadOutBy = option("spline", _FFN)

    def check(self) -> None:
        object.__setattr__(self, "error", sizes_given(self.heads, self.error, self.solve))


@dataclass(frozen=True)
class KernelBound(Options):
    """The bound of thm-5.1.

    >>> import lemmaformer as lf
    >>> lf.bound("thm-5.1", lf.kernel("exp(-s/5)"), heads=64).heads
    64
    """

    rpe: Rpe = option("lin", _RPE)
    bank: Literal["paper", "tuned"] = option("tuned", _TUNING, spelt=("tuning",))
    heads: int | None = option(None, "heads in all", least=1, most=MAX_BOUND_HEADS)
    error: float | None = option(None, _SOLVED, least=LEAST_ERROR, shown=_UNLESS_HEADS)
    solve: Literal["heads"] | None = option(None, "which size to solve for, given an error", shown="heads")
    rate: int | Literal["best"] = option("best", "the rate n of C(n)/H^n", least=1, most=999)

    def check(self) -> None:
        object.__setattr__(self, "error", sizes_given(self.heads, self.error, self.solve))


@dataclass(frozen=True)
class CouplingBound(Options):
    """The bound of jl-4.2: for a rank m_h, or solved for it.

    >>> import lemmaformer as lf
    >>> lf.bound("jl-4.2", lf.coupling("-4*(u-v)**2"), rank=3).theorem
    'jl-4.2'
    """

    rank: int | None = option(None, "m_h, the query and key coordinates", least=1, most=4096)
    error: float | None = option(
        None, "solve for the fewest coordinates that reach this error", least=LEAST_ERROR, shown="0.01 unless rank is given"
    )
    solve: Literal["rank"] | None = option(None, "which size to solve for, given an error", shown="rank")
    knots: int | None = option(None, "pieces of the splines", least=1, most=1 << 20, shown="the fewest for the error, or for 0.01")

    def check(self) -> None:
        if self.solve is not None and self.error is None:
            raise InputError("solve=rank needs an error")
        if self.rank is None and self.error is None:
            object.__setattr__(self, "error", DEFAULT_ERROR)
        if self.rank is not None and self.solve is not None:
            raise InputError("give either a rank, or solve=rank with an error")


def sizes_given(heads: int | None, error: float | None, solve: str | None) -> float | None:
    """The error to solve for: the one that is given, none if heads are, and what networks are built for if neither is."""
    if solve is not None and error is None:
        raise InputError(f"solve={solve} needs an error")
    if heads is not None and (error is not None or solve is not None):
        raise InputError("give either heads, or an error to solve for them, not both")
    return DEFAULT_ERROR if heads is None and error is None else error
