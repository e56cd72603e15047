"""The options of what can be built and bounded, one class per family of targets. No sympy here: help texts answer at once."""

from dataclasses import dataclass, replace
from typing import Literal, Self

from analyzer.errors import InputError, OptionValue
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
LEAST_SQUARES = "least-squares"
"""The bank, and the theorem, of weights that are best in mean square."""
MOST_LEAST_SQUARES = 24
"""Heads of such a bank: in few dimensions decays are found, and Gram matrices solved, in seconds."""
MAX_REACH = 4096
"""Distances of a table of biases."""
MAX_STRIDE = 4096
"""Tokens between two that a head sees."""
LEAST_RATE, MOST_RATE = 2.0**-12, 2.0**6
"""Rates of kerple heads that are built: slower ones are lin heads to all digits that matter, faster ones log heads with huge weights."""
FASTEST = 64
"""Decays beyond this see nothing of a token but its neighbour's last bits."""

Rpe = Literal["lin", "log"]
LayerRpe = Literal["lin", "log", "mixed"]
TableRpe = Literal["table", "t5"]
TABLES: tuple[TableRpe, ...] = ("table", "t5")
"""Heads with a learnt bias per distance, or per bucket of distances."""
KERPLE = "kerple"
"""Heads (1 + rs)^{−p}."""
Dtype = Literal["exact", "float64", "float32"]
ReadOutBy = Literal["spline", "barron"]
NormName = Literal["sup", "mean-square"]
"""How errors are measured: in the worst case over all tokens, or in mean square over independent ones."""
TokenName = Literal["uniform", "signs", "gaussian"]
"""Laws of independent tokens (`analyzer.targets.tokens`)."""

FormName = Literal["scan", "blocked", "associative"]
"""Forms of the recurrence of lin heads (`constructions.network.recurrences`)."""

_RPE = "relative positions: a head's weights fall like e^{-ps} (lin, as ALiBi) or s^{-p} (log, as KERPLE) with the distance s"
_ERROR = "total worst-case error, certified"
_ERROR_NORM = "total error, certified: in the worst case, or with mean-square E|error|²"
_DTYPE = "arithmetic of the weights: exact rationals, or floats that are rounded and then certified"
_FFN = "the feed-forward read-out: piecewise linear (spline), or sampled as in the papers (barron)"
_SEED = "seed of Barron sampling"
_NORM = "what the error is: worst case over all tokens (sup), or mean square over independent ones; the latter has weights of its own"
_TOKENS = "with mean-square: independent tokens, uniform on [-1, 1], signs ±1 or gaussian"
_BOUND_NORM = "what the error is: worst case over all tokens (sup), or mean square over independent ones"
_DECAYS = "with mean-square: the decays p of the heads, such as 0.5,1.5, or optimised ones (heads says how many)"
_UNLESS_HEADS = "0.01 unless heads is given"
_CODE = "what a token contributes to the mean: a whole number (scalar), or one coordinate per token (one-hot)"
_REACH = "table and t5: how many distances heads see"
_RATE = "kerple: r of the weights (1+rs)^-p, the same for all heads"
_RATE_SHOWN = "the largest power of 2 with r(T+1) at most 1/4, T the longest lag"
_STRIDE = "heads see every so many tokens: distances 0, c, 2c, … and no others"


@dataclass(frozen=True)
class Fixed(Options):
    """Fixed memories: one dp-free layer (thm-3.1) or, with a depth, a chain of shifts.

    >>> from lemmaformer import Fixed
    >>> Fixed(bank="tuned", heads=256).bank
    'tuned'
    """

    rpe: LayerRpe | TableRpe | Literal["kerple"] = option(
        "lin", _RPE + "; mixed: one log head beside lin heads; table: a bias per distance; t5: one per bucket; kerple: (1+rs)^{-p}"
    )
    bank: Literal["paper", "tuned", "minimal", "balanced", "least-squares"] = option(
        "minimal",
        "how heads are chosen: as printed (paper), the same proof with its parameters at their best (tuned), "
        "the fewest possible (minimal), the best for a float type (balanced), or with mean-square the best weights (least-squares)",
    )
    heads: int | None = option(None, "heads in all; with a depth the most in a layer", least=1, most=MAX_HEADS)
    error: float | None = option(None, _ERROR_NORM, least=LEAST_ERROR, shown=_UNLESS_HEADS)
    ffn: ReadOutBy = option("spline", _FFN)
    width: int | None = option(None, "neurons of the read-out", least=1, most=MAX_WIDTH)
    dtype: Dtype = option("exact", _DTYPE)
    seed: int = option(0, _SEED, least=0, most=MAX_SEED)
    share: bool = option(False, "paper and tuned banks: every lag uses all heads")
    depth: int | Literal["auto"] | None = option(
        None, "a chain of shifts: so many layers, or auto for the fewest layers, then the fewest heads in all", least=1, most=MAX_DEPTH
    )
    restore: bool = option(False, "with a depth and an alphabet: reset values to letters after every shift")
    reach: int | None = option(None, _REACH, least=2, most=MAX_REACH, shown="the longest lag and one more, for t5 128")
    rate: float | None = option(None, _RATE, least=LEAST_RATE, most=MOST_RATE, shown=_RATE_SHOWN)
    stride: int = option(1, _STRIDE, least=1, most=MAX_STRIDE)
    norm: NormName = option("sup", _NORM)
    tokens: TokenName | None = option(None, _TOKENS, shown="uniform")
    decays: tuple[float, ...] | Literal["optimised"] | None = option(None, _DECAYS, shown="optimised")

    def check(self) -> None:
        object.__setattr__(self, "bank", bank_for(self, "minimal"))
        if self.norm == "mean-square" and (self.depth is not None or self.rpe not in ("lin", "log")):
            raise InputError("norm=mean-square builds one layer of heads of one type: leave depth out, and give rpe lin or log")
        self._check_positions()
        if self.share and self.bank in ("minimal", "balanced"):
            raise InputError(f"share goes with paper and tuned banks; a {self.bank} bank always serves all lags")
        if self.share and self.depth is not None:
            raise InputError("share goes with one layer; a chain of shifts always shares its heads")
        if self.restore and self.depth is None:
            raise InputError("restore needs layers to restore after: give a depth, such as auto")
        if self.rpe in TABLES and (self.depth is not None or self.bank != "minimal"):
            raise InputError(f"rpe={self.rpe} is one layer with one head per lag: leave depth and bank out")
        if self.reach is not None and self.rpe not in TABLES:
            raise InputError(f"reach is how far a table of biases goes: it goes with rpe table or t5, not with {self.rpe}")

    def _check_positions(self) -> None:
        """KERPLE heads and strides come in one layer, and tables see every distance anyway."""
        if self.rpe == "kerple" and (self.depth is not None or self.bank != "minimal"):
            raise InputError("rpe=kerple is one layer with a minimal bank: leave depth and bank out")
        if self.rate is not None and self.rpe != "kerple":
            raise InputError(f"rate is r of the weights (1+rs)^-p: it goes with rpe=kerple, not with {self.rpe}")
        if self.stride > 1 and (self.depth is not None or self.norm == "mean-square" or self.rpe not in ("lin", "log", "mixed")):
            raise InputError(
                "a stride goes with one layer of lin, log or mixed heads and norm=sup: leave depth out, and set one of these rpe"
            )

    @property
    def sloped(self) -> LayerRpe:
        """The type of heads that have a decay and nothing else; theorems about those have no others."""
        if self.rpe == "kerple":
            raise InputError("rpe is 'kerple', weights (1+rs)^-p: that is theorem kerple-heads; here heads are lin, log or mixed")
        if self.rpe == "table" or self.rpe == "t5":
            raise InputError(f"rpe is '{self.rpe}', a bias per distance: that is theorem table-heads; here heads are lin, log or mixed")
        return self.rpe


def bank_for(options: "Fixed | Kernel", usual: str) -> str:
    """The bank for a norm, whose `usual` one stands where none is given; norm, tokens, decays and heads must go together."""
    if options.norm == "sup":
        given = [name for name in ("tokens", "decays") if getattr(options, name) is not None]
        given += ["bank=least-squares"] if options.bank == LEAST_SQUARES else []
        if given:
            raise InputError(f"{given[0]} goes with norm=mean-square, the worst case has no use for it")
        return options.bank
    if options.bank not in (usual, LEAST_SQUARES):
        raise InputError(f"norm=mean-square chooses the best weights itself (bank=least-squares); {options.bank} banks are for norm=sup")
    check_decays(options.rpe, options.decays, options.heads)
    return LEAST_SQUARES


def check_decays(rpe: str, decays: "tuple[float, ...] | str | None", heads: int | None) -> None:
    """Refuse decays that no bank has, or that are not as many as the heads; few enough of both for least squares."""
    if isinstance(decays, tuple):
        least = 1 if rpe == "log" else 0
        wrong = [p for p in decays if not least < p <= FASTEST]
        if wrong or not decays:
            raise InputError(f"decays holds {wrong[0] if wrong else 'nothing'}; {rpe} heads have decays above {least}, at most {FASTEST}")
        if len(set(decays)) < len(decays):
            raise InputError("decays repeats a number; heads of equal decays are one head")
        if heads is not None and heads != len(decays):
            raise InputError(f"decays gives {len(decays)} heads, heads says {heads}: give one of them")
    count = len(decays) if isinstance(decays, tuple) else heads
    if count is not None and count > MOST_LEAST_SQUARES:
        raise InputError(f"{count} heads: least squares are for {MOST_LEAST_SQUARES} at most")


@dataclass(frozen=True)
class Adaptive(Options):
    """Adaptive memories: lags that depend on the tokens (thm-4.1, thm-4.4, prop-4.3, prop-4.5, table-lags).

    >>> from lemmaformer import Adaptive
    >>> Adaptive(attention="tmx").rounding
    'ideal'
    """

    rpe: Rpe | Literal["table"] = option("lin", _RPE + "; table: a bias per distance, and neurons that choose (table-lags)")
    attention: Literal["dp", "tmx"] | None = option(
        None, "how scores read a lag: by dot products (dp), or as t minus x (tmx)", shown="dp; tmx for log heads in floats"
    )
    bank: Literal["paper", "tuned", "minimal", "balanced"] | None = option(
        None,
        "how heads are chosen: as printed (paper), with the best parameters (tuned), the fewest possible (minimal), or the best for a "
        "float type (balanced)",
        shown="minimal; balanced for lin heads in floats",
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
        if self.heads is not None and self.resolved_bank in ("minimal", "balanced"):
            raise InputError(f"a {self.resolved_bank} bank has the heads it needs; heads goes with bank paper or tuned")
        if self.bank == "balanced" and (self.dtype == "exact" or self.rpe != "lin"):
            raise InputError("bank is 'balanced', which is fitted to a float type: give dtype float32 or float64, and rpe lin")
        if self.rpe == "table" and self.unlike_a_table:
            raise InputError(f"rpe=table brings every token that may matter and reads no lag: leave {next(iter(self.unlike_a_table))} out")

    @property
    def unlike_a_table(self) -> dict[str, OptionValue]:
        """What is chosen that heads with a bias per distance have no use for, and what stands there for them."""
        usual: dict[str, OptionValue] = {"attention": None, "bank": None, "heads": None, "layers": "auto", "encode": "exact"}
        usual |= {"rounding": "ideal", "width": None}
        return {name: value for name, value in usual.items() if getattr(self, name) != value}

    @property
    def sloped(self) -> Rpe:
        """The type of heads that have a decay; theorems about those have no others."""
        if self.rpe == "table":
            raise InputError("rpe is 'table', a bias per distance: that is theorem table-lags; here heads are lin or log")
        return self.rpe

    @property
    def resolved_attention(self) -> Literal["dp", "tmx"]:
        """The attention asked for; else dot products but for log heads in floats: how a machine rounds log[exp(.)] is not specified, and
        tmx reads the lag itself."""
        return self.attention or ("tmx" if self.rpe == "log" and self.dtype != "exact" else "dp")

    @property
    def resolved_bank(self) -> Literal["paper", "tuned", "minimal", "balanced"]:
        """The bank asked for; else the fewest heads in exact arithmetic and for log heads, and for lin heads in floats those that trade
        extraction error against the rounding of large weights."""
        return self.bank or ("balanced" if self.rpe == "lin" and self.dtype != "exact" else "minimal")

    def resolved(self) -> Self:
        """The same options with attention and bank named."""
        return replace(self, attention=self.resolved_attention, bank=self.resolved_bank)

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
    bank: Literal["paper", "tuned", "fitted", "least-squares"] = option(
        "fitted",
        "how heads are chosen: as printed (paper), with the best parameters (tuned), fitted to the kernel in the sum norm, or with "
        "mean-square the best weights (least-squares)",
    )
    heads: int | None = option(None, "heads in all", least=1, most=MAX_HEADS)
    error: float | None = option(None, _ERROR_NORM, least=LEAST_ERROR, shown=_UNLESS_HEADS)
    ffn: ReadOutBy = option("spline", _FFN)
    width: int | None = option(None, "neurons of the read-out", least=1, most=MAX_WIDTH)
    dtype: Dtype = option("exact", _DTYPE)
    seed: int = option(0, _SEED, least=0, most=MAX_SEED)
    norm: NormName = option("sup", _NORM)
    tokens: TokenName | None = option(None, _TOKENS, shown="uniform")
    decays: tuple[float, ...] | Literal["optimised"] | None = option(None, _DECAYS, shown="optimised")

    def check(self) -> None:
        object.__setattr__(self, "bank", bank_for(self, "fitted"))


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


@dataclass(frozen=True)
class Representation(Options):
    """Functions of a whole sequence of letters: one head that sees all tokens alike (jl-4.1).

    >>> from lemmaformer import Representation
    >>> Representation(code="one-hot").bank
    'one-hot'
    """

    code: Literal["scalar", "one-hot"] = option("scalar", _CODE)
    error: float | None = option(None, _ERROR, least=LEAST_ERROR, shown="0.01")
    dtype: Dtype = option("exact", _DTYPE)

    @property
    def bank(self) -> str:
        """What cards call it."""
        return self.code


@dataclass(frozen=True)
class Points(Options):
    """Couplings of points at positions: one softmax head with values in several dimensions (jl-points).

    >>> from lemmaformer import Points
    >>> Points(rank=2).dtype
    'exact'
    """

    rank: int | None = option(None, "m_h, the query and key coordinates", least=1, most=4096, shown="the fewest for the error")
    knots: int | None = option(None, "boxes: pieces of the splines, a power of 2", least=1, most=4096, shown="the fewest for the error")
    error: float | None = option(None, _ERROR, least=LEAST_ERROR, shown="0.01 unless rank is given")
    dtype: Dtype = option("exact", _DTYPE)

    @property
    def bank(self) -> str:
        """What cards call it: functions of the query are removed."""
        return "centred"


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
    rate: int | Literal["best"] = option("best", "the rate n of C(n)/H^n; kerple-heads: r of the weights (1+rs)^-p", least=1, most=999)
    share: bool = option(False, "every lag uses all heads")
    ffn: ReadOutBy = option("spline", _FFN)
    norm: NormName = option("sup", _BOUND_NORM)
    tokens: TokenName | None = option(None, _TOKENS, shown="uniform")

    def check(self) -> None:
        object.__setattr__(self, "error", sizes_given(self.heads, self.error, self.solve))
        check_norm(self.norm, self.tokens)
        if self.norm == "mean-square" and self.solve == "width":
            raise InputError("a width is that of a read-out in the worst case: solve=width goes with norm=sup")


@dataclass(frozen=True)
class TableBound(Options):
    """The bound of table-heads: for a bias, or solved for it.

    >>> import lemmaformer as lf
    >>> lf.bound("table-heads", lf.fixed(lags=(4, 200)), error=0.01).heads
    2
    """

    rpe: TableRpe = option("table", "a learnt bias per distance (table), or per bucket of distances (t5)")
    bias: int | None = option(None, "the bias b at the lag", least=1, most=1000)
    error: float | None = option(
        None, "solve for the least bias that reaches this error", least=LEAST_ERROR, shown="0.01 unless bias is given"
    )
    reach: int | None = option(None, _REACH, least=2, most=MAX_REACH, shown="the longest lag and one more, for t5 128")

    def check(self) -> None:
        if self.bias is not None and self.error is not None:
            raise InputError("give a bias, or an error that is solved for one, not both")


@dataclass(frozen=True)
class KerpleBound(Options):
    """The bound of kerple-heads, solved for the exponents that reach an error.

    >>> import lemmaformer as lf
    >>> lf.bound("kerple-heads", lf.fixed(lags=(2, 4)), error=0.01).heads
    4
    """

    rpe: Literal["kerple"] = option("kerple", "weights (1+rs)^{-p}")
    rate: float | None = option(None, _RATE, least=LEAST_RATE, most=MOST_RATE, shown=_RATE_SHOWN)
    error: float | None = option(None, "solve for exponents that reach this error", least=LEAST_ERROR, shown="0.01")


@dataclass(frozen=True)
class StrideBound(Options):
    """The bound of stride-heads: that of thm-3.1 for lags divided by the stride.

    >>> import lemmaformer as lf
    >>> lf.bound("stride-heads", lf.fixed(lags=(12,)), stride=4).heads
    3
    """

    rpe: Rpe = option("lin", _RPE)
    stride: int = option(2, _STRIDE, least=2, most=MAX_STRIDE)
    bank: Literal["paper", "tuned", "minimal"] = option("minimal", _TUNING + ", or the fewest heads (minimal)", spelt=("tuning",))
    heads: int | None = option(None, "heads in all", least=1, most=MAX_BOUND_HEADS)
    error: float | None = option(None, _SOLVED, least=LEAST_ERROR, shown=_UNLESS_HEADS)

    def check(self) -> None:
        object.__setattr__(self, "error", sizes_given(self.heads, self.error, None))
        if self.bank == "minimal" and self.heads is not None:
            raise InputError("a minimal bank has as many heads as the longest lag has steps: leave heads out, or take bank tuned")


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
    norm: NormName = option("sup", _BOUND_NORM)
    tokens: TokenName | None = option(None, _TOKENS, shown="uniform")

    def check(self) -> None:
        object.__setattr__(self, "error", sizes_given(self.heads, self.error, self.solve))
        check_norm(self.norm, self.tokens)


@dataclass(frozen=True)
class LeastSquaresBound(Options):
    """The bound of least-squares: the least mean square of given decays.

    >>> import lemmaformer as lf
    >>> lf.bound("least-squares", lf.fixed(lags=(4,)), decays=(0.5, 1.5), tokens="signs").heads
    2
    """

    rpe: Rpe = option("lin", _RPE)
    decays: tuple[float, ...] | None = option(None, "the decays p of the heads, such as 0.5,1.5")
    norm: NormName = option("mean-square", "what the error is: here it is the mean square")
    tokens: TokenName = option("uniform", _TOKENS)

    def check(self) -> None:
        if self.norm != "mean-square":
            raise InputError("least-squares is about norm=mean-square; thm-3.1 and thm-5.1 have bounds of the worst case")
        if self.decays is None:
            raise InputError("decays are needed, such as 0.5,1.5: the least mean square is that of given heads")
        check_decays(self.rpe, self.decays, None)


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


@dataclass(frozen=True)
class PointsBound(Options):
    """The bound of jl-points: for a rank m_h, or solved for it.

    >>> import lemmaformer as lf
    >>> lf.bound("jl-points", lf.points("4*u1*v1", length=3), rank=1).theorem
    'jl-points'
    """

    rank: int | None = option(None, "m_h, the query and key coordinates", least=1, most=4096)
    error: float | None = option(
        None, "solve for the fewest coordinates that reach this error", least=LEAST_ERROR, shown="0.01 unless rank is given"
    )
    solve: Literal["rank"] | None = option(None, "which size to solve for, given an error", shown="rank")
    knots: int | None = option(None, "boxes: pieces of the splines", least=1, most=4096, shown="the fewest for the error, or for 0.01")

    def check(self) -> None:
        if self.solve is not None and self.error is None:
            raise InputError("solve=rank needs an error")
        if self.rank is None and self.error is None:
            object.__setattr__(self, "error", DEFAULT_ERROR)
        if self.rank is not None and self.solve is not None:
            raise InputError("give either a rank, or solve=rank with an error")


def check_norm(norm: str, tokens: str | None) -> None:
    """Tokens have a law for means only."""
    if norm == "sup" and tokens is not None:
        raise InputError("tokens goes with norm=mean-square, the worst case has no use for it")


def sizes_given(heads: int | None, error: float | None, solve: str | None) -> float | None:
    """The error to solve for: the one that is given, none if heads are, and what networks are built for if neither is."""
    if solve is not None and error is None:
        raise InputError(f"solve={solve} needs an error")
    if heads is not None and (error is not None or solve is not None):
        raise InputError("give either heads, or an error to solve for them, not both")
    return DEFAULT_ERROR if heads is None and error is None else error


@dataclass(frozen=True)
class RepresentationBound(Options):
    """The sizes of jl-4.1: heads, value coordinates and neurons.

    >>> import lemmaformer as lf
    >>> lf.bound("jl-4.1", lf.sequence("x1*x2", alphabet=(0, 1))).data["width"]
    3
    """

    code: Literal["scalar", "one-hot"] = option("scalar", _CODE)
