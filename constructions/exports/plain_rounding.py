"""The tolerance of another evaluation order: what rounding can explain, derived on given sequences by a running error analysis.

Setting. A network of stored numbers is evaluated by `constructions.run.execute.run`, in floats of unit roundoff u, and by a pass of
another program that performs the same sums, products, quotients, exponentials and logarithms in float64, in any order, fused or not.

Statement. At every output, |one − other| ≤ `tolerance`: a bound of |computed − exact| for the one, and one for the other.

Proof. Every quantity carries its value v, as computed here in float64, and a bound e of |computed − exact|; every number that arises is
then at most m = |v| + 2e in size. With γ_n = nu/(1−nu):

* *sums* Σ w_i x_i of n terms with stored weights, fused or not: γ_{n+2} |w|·m and n η (1 + max|w|)(1 + max m) for flushed products; two of
  these roundings are those of a weight from a rational (exact networks) and of the bias; a row of a table of positions is one more term,
  with as many roundings, and one more rounding of all others;
* *products of computed vectors* ⟨q, k⟩: m_q e_k + e_q m_k, and γ_{n+3} m_q·m_k;
* *positions* p φ(s), with a decay that was rounded, are off by 3u|p φ(s)|, and the logarithm of a mass by 4u|·| + 64u: Euler and
  Maclaurin's sum has below 40 roundings of terms that add up to at most itself;
* *weights* e^a with a off by λ are off by e^{λ'} − 1 relatively, λ' = λ + u(|a| + |a − max a| + 8) for addition, subtraction of the largest
  one and the exponential (4 units are more than any library's). `run` takes lin heads as a recurrence with a rounded ratio, so that e^{−ps}
  carries 2s + 8 roundings more, and starts it where nothing is normalised with a mass 1/(1 − fl(e^{−p})), off by 2u/(1 − e^{−p}); log heads
  as taps whose omitted rest is u/2 in all; and the sum over the whole past from its closed form, off by 4u|·| + 64u. Stored weights (g z^s,
  taps) are what they are: 2s + 3 roundings of the recurrence, additions included, or n + 3 of n taps in `run`; logarithm and exponential
  elsewhere;
* *softmax* Σ w v / Σ w: with ω the normalised weights and ρ their relative errors, Σ ω (ρ m + e) + γ Σ ω m for the numerator and the
  same relatively for the denominator, (Σ ω ρ + γ) |mean|, over one minus that. Weights below e^{−X}, where exponentials of our own stop
  (`constructions.network.exponential`), add (n+1) e^{−X} m each; exponents above X are undecided;
* *linear heads* Σ_s Σ_i q_i k_si v_s / n, whatever is added up or divided first: (e_q m_k + m_q e_k) m_v + m_q m_k e_v and
  γ_{n+k+4} m_q m_k m_v for every term, which is two products, in fewer than n + k additions, and a quotient; n is exact;
* *errors of what is read* pass through linear maps as the whole map does, and not head by head: a dp-free layer with its residual is
  one matrix I + Σ_h W_O^h w_h(t, s) W_V^h; a feed-forward network is one matrix at every position but for neurons whose sign is in doubt,
  which pass on |W_out||W_in| e (pairs a relu(y) − a relu(−y) are a y whatever the sign). The two are multiplied before absolute values are
  taken, as one may undo what the other did;
* *kernels* are rounded once; `run` convolves by FFT: transforms of size n have relative error δ = 8u log₂ n in the 2-norm (Higham,
  Accuracy and Stability of Numerical Algorithms, Theorem 24.2, with twiddle factors good to u), so a convolution has at most
  (2δ + 8u)‖K‖₂‖x‖₂ + δ‖K‖₁‖x‖₂; what is cut off beyond the kernels is below 2^{−52};
* *roundings* [y] and log[e^y] are exact if y is further than e from where they jump; else, as where a lag slot holds more than a table
  reaches, the position is *undecided*, marked by an error of `UNDECIDED`, and so is what reads it.

Arrays have at most `MAX_TAPS` tokens: in longer ones `run` takes slow heads of float networks by FFT. The bounds are evaluated in float64
themselves, sums of positive terms: the factor 1 + 2^{−20} at the end is more than that can cost. ∎
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from analyzer.errors import InputError
from constructions.exports.forms import PortableNetwork, fused_form, lag_tables
from constructions.exports.portable import numpy_model
from constructions.network.exponential import DEEPEST
from constructions.network.transformer import Transformer
from constructions.run.execute import runs_rounded
from constructions.run.positions import MAX_TAPS

UNDECIDED, LARGEST = 1e140, 1e300
DECIDED = 1e15
"""Errors above this come from an undecided rounding, through weights of at least 10^-15."""
UNIT = {"float32": 2.0**-24, "float64": 2.0**-53}
MAX_MAPS = 1 << 25
"""Entries of the maps of a layer together with the step before it, for all sequences; beyond that errors are carried through either."""
MAX_JACOBIAN = 1 << 16
"""Weights of a feed-forward network, times the width of the stream, up to which its matrix is formed at every position."""
FAR = 40.0
"""Scores that are off by more are taken for undecided: e^40 of them would be no number to rely on."""


@dataclass(frozen=True)
class Running:
    """Values and bounds of |computed − exact|, of one shape."""

    value: np.ndarray
    error: np.ndarray
    through: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None
    """Errors before a linear step (…, D), its matrix (…, D, D), and what it added: error ≤ before · |matrix| + added."""

    @property
    def size(self) -> np.ndarray:
        """What no number that arises exceeds."""
        return np.abs(self.value) + 2 * self.error


class Analysis:
    """The running error analysis in one float type."""

    def __init__(self, dtype: str, certified: bool) -> None:
        self.certified = certified  # whether it is `run` that is analysed
        self.unit, self.tiny, self.deepest = UNIT[dtype], float(np.finfo(dtype).tiny), DEEPEST[dtype]

    def gamma(self, terms: Any) -> Any:
        return terms * self.unit / (1 - terms * self.unit)

    def made(self, value: np.ndarray, error: Any) -> Running:
        return Running(value, np.broadcast_to(np.nan_to_num(error, nan=UNDECIDED, posinf=LARGEST), value.shape))

    def sums(self, form: str, weights: np.ndarray, x: Running, terms: int) -> Running:
        """An einsum of stored weights and running values."""
        own = np.abs(weights)
        size = np.einsum(form, own, x.size, optimize=True)
        one = np.ones(x.value.shape if x.value.ndim < 3 else (1, *x.value.shape[1:]))
        used = int(np.einsum(form, np.where(own > 0, 1.0, 0.0), one, optimize=True).max(initial=0)) + 1  # zeros add nothing, in any order
        flushed = self.flushed(terms, own, x.size)
        error = np.einsum(form, own, x.error, optimize=True) + self.gamma(used + 1) * size + flushed
        return self.made(np.einsum(form, weights, x.value, optimize=True), error)

    def flushed(self, terms: int, *factors: np.ndarray) -> float:
        """What flushing to zero moves in sums of so many products of two factors, or of three."""
        sizes = [float(1 + part.max(initial=0, where=part < DECIDED)) for part in factors]
        return 2 * terms * (len(factors) - 1) * self.tiny * math.prod(sizes)

    def plus(self, a: Running, b: Running) -> Running:
        return self.made(a.value + b.value, a.error + b.error + self.unit * (a.size + b.size))

    def products(self, form: str, a: Running, b: Running, terms: int) -> Running:
        """An einsum of two running values."""
        error = (
            np.einsum(form, a.size, b.error) + np.einsum(form, a.error, b.size) + self.gamma(terms + 3) * np.einsum(form, a.size, b.size)
        )
        error = error + self.flushed(terms, a.size, b.size)
        return self.made(np.einsum(form, a.value, b.value), error)

    def feed_forward(self, x: Running, weights: dict[str, np.ndarray], precision: list[str], last: bool) -> Running:
        """The stream after a feed-forward network: with its residual, unless it is the last one."""
        into, bias, out = weights["W_in"], weights["b_in"], weights["W_out"]
        inner = self.sums("dm,...d->...m", into, x, x.value.shape[-1] + 1)
        pre = self.made(inner.value + bias, inner.error + self.gamma(len(into) + 2) * np.abs(bias))
        fresh = pre.error - np.minimum(pre.error, x.error @ np.abs(into))  # the part that arises here
        sure = np.abs(pre.value) > 2 * pre.error
        post = Running(np.maximum(pre.value, 0), np.where(sure & (pre.value < 0), 0, fresh))
        used = int((out != 0).sum(axis=0).max(initial=0))
        found = self.sums("mo,...m->...o", out, Running(post.value, np.where(sure & (pre.value < 0), 0, pre.error)), used)
        if into.shape[0] * out.size <= MAX_JACOBIAN:
            first, second = _pairs(into, bias, out)
            active = np.where(sure & (pre.value > 0), 1.0, 0.0)
            active[..., first], active[..., second] = 1, 0
            sure[..., first] = sure[..., second] = True
            steady = np.einsum("...m,dm,mo->...do", active, into, out, optimize=True)
            steady = steady if last or precision else steady + np.eye(len(into))
            passed = np.einsum("...do,...d->...o", np.abs(steady), x.error) + np.where(sure, 0, x.error @ np.abs(into)) @ np.abs(out)
            size = Running(np.where(pre.value < -2 * pre.error, 0, pre.size), post.error)
            own = passed + self.sums("mo,...m->...o", np.abs(out), size, used).error
        else:
            own = np.full_like(found.error, np.inf)
        if precision:
            found = self.rounded(self.made(found.value, np.minimum(found.error, own)), precision)
        if last:
            return self.made(found.value, found.error if precision else np.minimum(found.error, own))
        after = self.plus(x, found)
        if precision or into.shape[0] * out.size > MAX_JACOBIAN:
            return after
        own = own + self.unit * (x.size + found.size)
        least = self.made(after.value, np.minimum(after.error, own))
        return Running(least.value, least.error, (x.error, steady, own - np.einsum("...do,...d->...o", np.abs(steady), x.error)))

    def rounded(self, y: Running, precision: list[str]) -> Running:
        kinds = np.array(precision)
        power = np.exp(np.minimum(y.value, FAR))
        raw = np.where(kinds == "log", power, y.value)
        off = np.where(kinds == "log", power * (np.expm1(np.minimum(y.error, FAR)) + 16 * self.unit), y.error)
        whole = np.rint(raw)
        jump = (np.abs(raw - whole) + 2 * off >= 0.5) & ~((kinds == "log") & (raw + 2 * off < 0.5))
        value = np.where(kinds == "log", np.log(np.maximum(whole, 1)), whole)
        error = np.where(jump, UNDECIDED, np.where(kinds == "log", 8 * self.unit * np.abs(value), 0))
        exact = kinds == "none"
        return self.made(np.where(exact, y.value, value), np.where(exact, y.error, error))


def _pairs(into: np.ndarray, bias: np.ndarray, out: np.ndarray) -> tuple[list[int], list[int]]:
    """Neurons that are a linear function together, a relu(y) − a relu(−y) = a y."""
    columns = {(*into[:, m], bias[m]): m for m in range(len(bias))}
    found: dict[int, int] = {}
    for m in range(len(bias)):
        other = columns.get((*(-into[:, m]), -bias[m]))
        if other is not None and m < other and not {m, other} & set(found.values()) and (out[m] == -out[other]).all():
            found[m] = other
    return list(found), list(found.values())


def tolerance(network: Transformer, exported: PortableNetwork, tokens: np.ndarray, fast: Transformer | None = None) -> np.ndarray:
    """What `run` and another pass over the exported arrays can differ by at every output for these tokens (batch, N, d): (batch, N, c).

    Infinite where a rounding inside the network is undecided. Where the other pass is the fast one too, on a float network, say which.
    """
    if tokens.shape[-2] > MAX_TAPS:
        raise InputError(f"tolerances are derived for sequences of at most {MAX_TAPS} tokens, not {tokens.shape[-2]}")
    if fast is None:
        own = _error(exported, Analysis("float64", certified=False), tokens)
    else:
        own = _error(exported, Analysis(fast.dtype, certified=True), tokens, lag_tables(fast))
    if network is fast:
        ours = own
    else:
        if network.dtype == "exact" and exported.form == "heads" and not runs_rounded(network):
            exported = fused_form(network, exported.slots, tokens)
        dtype = "float64" if network.dtype == "exact" else network.dtype
        ours = _error(exported, Analysis(dtype, certified=True), tokens, lag_tables(network))
    total = own + ours
    return np.where(total < DECIDED, total * (1 + 2.0**-20), np.inf)


def _error(
    network: PortableNetwork, analysis: Analysis, tokens: np.ndarray, tables: list[dict[str, np.ndarray]] | None = None
) -> np.ndarray:
    """Bounds of |computed − exact| of the outputs."""
    arrays = {name: array.astype(np.float64) for name, array in network.arrays.items()}
    given = tokens.astype(np.float64)
    with np.errstate(all="ignore"):
        embedding, bias = arrays["embed.W_E"], arrays["embed.b_E"]
        start = Running(given, analysis.unit * np.abs(given) if analysis.certified else np.zeros_like(given))
        x = analysis.sums("kd,...k->...d", embedding, start, len(embedding) + 1)
        x = analysis.made(x.value + bias, x.error + analysis.gamma(len(embedding) + 2) * np.abs(bias))
        past = analysis.made(bias, analysis.unit * np.abs(bias))
        if "pos_embed.W_pos" in arrays:
            rows = arrays["pos_embed.W_pos"][: given.shape[-2]]
            x = analysis.plus(x, analysis.made(rows, analysis.gamma(len(embedding) + 2) * np.abs(rows)))
        for index, words in enumerate(network.layers):
            attn, mlp = (numpy_model.part_of(arrays, f"blocks.{index}.{half}") for half in ("attn", "mlp"))
            if words["kind"] == "fused":
                u, before = _kernel(analysis, attn, given), past
            elif words["kind"] == "lags":
                u, before = analysis.plus(x, _lags(analysis, words, attn, x)), past
            else:
                u, before = Heads(analysis, words, attn, {} if tables is None else tables[index]).after(x, past)
            last = index == len(network.layers) - 1
            x, past = (analysis.feed_forward(stream, mlp, words["precision"], last) for stream in (u, before))
    return x.error


@dataclass(frozen=True)
class Heads:
    """The heads of one layer under analysis; `table` has the lag table that `run` looks factors up in, if it does."""

    analysis: Analysis
    words: dict[str, Any]
    weights: dict[str, np.ndarray]
    table: dict[str, np.ndarray]

    def after(self, x: Running, past: Running) -> tuple[Running, Running]:
        """The stream (batch, N, D) after attention, and the constant state before the array."""
        length, width = x.value.shape[-2:]
        bias = numpy_model.positions(self.words, self.weights, length)
        masses = numpy_model.masses(self.words, self.weights, length) if self.infinite else np.zeros((len(bias), length + 1))
        value = self.analysis.sums("hdv,bsd->bhsv", self.weights["W_V"], x, width)
        past_value = self.analysis.sums("hdv,d->hv", self.weights["W_V"], past, width)
        if self.infinite:
            value = _joined(Running(past_value.value[None, :, None], past_value.error[None, :, None]), value, axis=2)
        mixed, pattern = self.mixed(x, past, value, bias, masses)
        terms = self.weights["W_O"].shape[1] * len(bias)
        attended = self.analysis.sums("hvd,bhtv->btd", self.weights["W_O"], mixed, terms)
        after = self.analysis.plus(x, attended)
        if self.words["kind"] == "dp-free":
            after = self.as_one_map(x, past, pattern[0], after)
        if "slot" in self.table:  # a lag beyond the table is read as another
            reading = (self.table["factor"] != self.table["factor"][:, :1]).any(axis=1)
            held, reach = x.value[..., self.table["slot"][reading]], self.table["reach"][reading]
            lost = ((held > reach) | (held < 0)).any(axis=-1, keepdims=True)
            after = self.analysis.made(after.value, np.where(lost, UNDECIDED, after.error))
        return after, self.analysis.plus(past, self.constant(past, past_value, masses[:, 0], terms))

    def mixed(self, x: Running, past: Running, value: Running, bias: np.ndarray, masses: np.ndarray) -> tuple[Running, np.ndarray]:
        """What the weights make of the values, (batch, H, N, v), and the weights of heads that read positions only."""
        if self.words["kind"] == "linear":
            queries, keys = (self.analysis.sums("hdk,btd->bhtk", self.weights[name], x, x.value.shape[-1]) for name in ("W_Q", "W_K"))
            return _linear_mean(self.analysis, queries, keys, value, np.isfinite(bias[0])), bias
        score, roundings = self.scores(x, past, bias, masses)
        return _mixed(self.analysis, self.normalised, score, value, roundings, 2 if self.by_steps else score.value.shape[-1] + 3)

    @property
    def infinite(self) -> bool:
        return bool(self.words["window"] == "infinite")

    @property
    def by_steps(self) -> bool:
        """Whether it is `run` with stored weights: a recurrence, or taps one by one, whose additions are counted with the weights."""
        return self.analysis.certified and bool(self.words["stored"])

    @property
    def by_exponential(self) -> bool:
        """Whether it is `run` with exponentials of our own, and not with factors looked up for lags."""
        return self.analysis.certified and "slot" not in self.table

    @property
    def normalised(self) -> bool:
        """Whether weights are divided by their sum."""
        return self.words["kind"] in ("dp-free", "dp") and not self.words["stored"]

    def scores(self, x: Running, past: Running, bias: np.ndarray, masses: np.ndarray) -> tuple[Running, np.ndarray]:
        """Scores, (batch, H, N, N), with the past as a first column, and roundings of their exponentials beyond those of any pass."""
        analysis, u, (batch, length) = self.analysis, self.analysis.unit, x.value.shape[:2]
        queries, keys = _read(analysis, self.words, self.weights, x)
        if queries is not None and self.words["kind"] == "tmx" and self.by_exponential:  # `run` takes e^{py} on its own
            queries = _below(queries, analysis)
        products = _scores(analysis, queries, keys, batch, len(bias), length)
        score = analysis.made(products.value + bias, products.error + 3 * u * np.abs(np.nan_to_num(bias, neginf=0)))
        steps = np.arange(length)
        roundings = 2.0 * np.abs(steps[:, None] - steps) + 8
        if self.infinite:
            _, past_keys = _read(analysis, self.words, self.weights, _batched(past))
            seen = _scores(analysis, queries, past_keys, batch, len(bias), 1)
            before = masses[:, 1:, None]
            error = seen.error + 4 * u * np.abs(np.nan_to_num(before, neginf=0)) + 64 * u
            score = _joined(analysis.made(seen.value + before, error), score, axis=-1)
            roundings = np.concatenate([2.0 * steps[:, None] + 8, roundings], axis=1)
        if self.words["kind"] == "nf" and self.by_exponential:
            score = _below(score, analysis)
        if not analysis.certified:
            return score, np.zeros((1, 1, 1))
        if self.by_steps:
            lin = np.array([rpe == "lin" for rpe in self.words["rpe"]])[:, None, None]
            counted = np.where(lin, roundings - 5, self.weights["taps"].shape[1] + 3)
            return Running(score.value, np.zeros_like(score.error)), u * np.broadcast_to(counted, score.value.shape[1:])
        closed = 4 * np.abs(masses[:, :1, None]) + 64 + np.where(self.normalised, 0, self.slow)[:, None, None]
        return score, u * (roundings + closed)

    @property
    def slow(self) -> np.ndarray:
        """2/(1 − e^{−p}) for lin heads: what the rounding of e^{−p} does to the sum over the whole past."""
        return np.where([rpe == "lin" for rpe in self.words["rpe"]], 2 / -np.expm1(-np.maximum(self.weights["decay"], 1e-300)), 0)

    def as_one_map(self, x: Running, past: Running, pattern: np.ndarray, after: Running) -> Running:
        """The stream after a layer whose weights read positions only: errors of what it reads pass through I + Σ_h W_O w W_V."""
        length, width = x.value.shape[-2:]
        maps = np.einsum("hjv,hts,hvi->tsij", self.weights["W_V"], pattern, self.weights["W_O"], optimize=True)
        before = np.zeros((length, width))
        if self.infinite:
            before, maps = _carried(maps[:, :1], Running(past.value[None, None], past.error[None, None], _lifted(past)))[0], maps[:, 1:]
        maps[np.arange(length), np.arange(length)] += np.eye(width)
        carried = _carried(maps, x) + before
        if not (x.error.any() or past.error.any()):
            return after
        own, _ = self.after(_still(x.value), _still(past.value))
        plain = replace(self, weights=self.weights | {name: np.abs(self.weights[name]) for name in ("W_V", "W_O")})
        more, _ = plain.after(_still(2 * x.error), _still(2 * past.error))  # roundings grow with what they round: linearly
        return self.analysis.made(after.value, np.minimum(after.error, carried + own.error + more.error))

    def constant(self, past: Running, value: Running, whole: np.ndarray, terms: int) -> Running:
        """What attention adds to the constant state before the array."""
        if not self.infinite:
            return self.analysis.made(np.zeros_like(past.value), 0)
        if self.words["kind"] in ("nf", "tmx"):
            queries, keys = _read(self.analysis, self.words, self.weights, _batched(past))
            own = _scores(self.analysis, queries, keys, 1, len(whole), 1)
            log = own.value[0, :, 0, 0] + whole
            off = own.error[0, :, 0, 0] + self.analysis.unit * (4 * np.abs(whole) + 4 * np.abs(log) + 80 + self.slow)
            if self.by_exponential:
                off = np.where(np.maximum(log, np.abs(own.value[0, :, 0, 0])) + off > self.analysis.deepest, UNDECIDED, off)
            power = self.analysis.made(np.exp(log), np.exp(log) * _relative(off))
            value = self.analysis.products("h,hv->hv", power, value, 1)
        return self.analysis.sums("hvd,hv->d", self.weights["W_O"], value, terms)


def _below(score: Running, analysis: Analysis) -> Running:
    """Exponents above those that exponentials of our own take are undecided."""
    return Running(score.value, np.where(score.value + score.error > analysis.deepest, UNDECIDED, score.error))


def _relative(off: np.ndarray) -> np.ndarray:
    return np.where(off < FAR, np.expm1(np.minimum(off, FAR)), UNDECIDED)


def _lifted(past: Running) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    return None if past.through is None else (past.through[0][None, None], past.through[1][None, None], past.through[2][None, None])


def _carried(maps: np.ndarray, x: Running) -> np.ndarray:
    """Errors of x (batch, S, D) behind the linear maps (T, S, D, D), (batch, T, D); together with the linear step before."""
    plain = np.einsum("tsij,bsj->bti", np.abs(maps), x.error)
    if x.through is None or x.value.size * maps.shape[0] * maps.shape[-1] > MAX_MAPS:
        return plain
    error, matrix, added = x.through
    both = np.abs(np.einsum("tsij,bskj->btsik", maps, matrix, optimize=True))
    return np.minimum(plain, np.einsum("btsik,bsk->bti", both, error, optimize=True) + np.einsum("tsij,bsj->bti", np.abs(maps), added))


def _still(value: np.ndarray) -> Running:
    return Running(value, np.zeros_like(value))


def _batched(past: Running) -> Running:
    return Running(past.value[None, None], past.error[None, None])


def _joined(a: Running, b: Running, axis: int) -> Running:
    """Two beside each other along an axis, the first repeated along all others."""
    shape = list(b.value.shape)
    shape[axis] = a.value.shape[axis]
    value, error = (np.broadcast_to(part, shape) for part in (a.value, a.error))
    return Running(np.concatenate([value, b.value], axis=axis), np.concatenate([error, b.error], axis=axis))


def _read(analysis: Analysis, words: dict[str, Any], weights: dict[str, np.ndarray], x: Running) -> tuple[Running | None, Running | None]:
    """Queries and keys (batch, H, N, k); for tmx the query is p·w·x or p·log max(w·x, 1)."""
    if words["kind"] == "dp-free":
        return None, None
    if words["kind"] != "tmx":
        query, key = (analysis.sums("hdk,btd->bhtk", weights[name], x, x.value.shape[-1]) for name in ("W_Q", "W_K"))
        return query, key
    slot = analysis.sums("hd,btd->bht", weights["pointer"], x, x.value.shape[-1])
    p = weights["decay"][:, None]
    lin = np.array([rpe == "lin" for rpe in words["rpe"]])[:, None]
    log = np.log(np.maximum(slot.value, 1))
    off = np.where(slot.value + slot.error <= 1, 0, slot.error / np.maximum(slot.value - slot.error, 1)) + 4 * analysis.unit * log
    query = analysis.made(p * np.where(lin, slot.value, log), p * np.where(lin, slot.error + analysis.unit * slot.size, off))
    return Running(query.value[..., None], query.error[..., None]), None


def _scores(analysis: Analysis, queries: Running | None, keys: Running | None, batch: int, heads: int, tokens: int) -> Running:
    if queries is None:
        return _still(np.zeros((batch, heads, 1, tokens)))
    if keys is None:
        return queries
    shape = (batch, *keys.value.shape[1:])
    seen = Running(np.broadcast_to(keys.value, shape), np.broadcast_to(keys.error, shape))
    return analysis.products("bhtk,bhsk->bhts", queries, seen, queries.value.shape[-1])


def _mixed(
    analysis: Analysis, normalised: bool, score: Running, value: Running, roundings: np.ndarray, terms: int
) -> tuple[Running, np.ndarray]:
    """Σ_s w v or its mean, (batch, H, N, v), and the weights; sums have so many roundings beyond those of the weights."""
    u, count = analysis.unit, score.value.shape[-1]
    finite = np.isfinite(score.value)
    seen = np.where(finite, score.value, 0)
    top = np.max(score.value, axis=-1, keepdims=True)
    top = np.where(np.isfinite(top) & normalised, top, 0)
    power = u * (np.abs(seen) + np.abs(seen - top) + 8)  # of an exponential; stored weights are taken as they are by `run`
    off = np.where(finite, score.error, 0) + (power if terms > 2 else 0) + roundings
    relative = np.where(finite, _relative(off), 0)
    weights = np.where(finite, np.exp(seen - top), 0)
    if normalised:
        total = weights.sum(axis=-1, keepdims=True)
        weights = weights / np.where(total > 0, total, 1)
    mix = "bhts,bhsv->bhtv"
    mixed = np.einsum(mix, weights, value.value)
    gamma = analysis.gamma(terms)
    error = np.einsum(mix, weights * (1 + relative), value.error) + np.einsum(mix, weights * (relative + gamma), value.size)
    if normalised:
        share = (weights * relative).sum(axis=-1, keepdims=True) + gamma
        error = (error + share * np.abs(mixed)) / np.maximum(1 - share, 1e-3) + np.where(share < 0.5, 0, UNDECIDED)
    left_out = (count + 1) * np.exp(-float(analysis.deepest)) + (u if analysis.certified else 0)
    error = error + analysis.flushed(count, weights, value.size)
    error = error + left_out * value.size.max(axis=2, keepdims=True) * (np.max(weights, axis=-1, keepdims=True) + 1)
    return analysis.made(mixed, error), weights


def _linear_mean(analysis: Analysis, queries: Running, keys: Running, values: Running, seen: np.ndarray) -> Running:
    """Σ_s ⟨q_t, k_s⟩ v_s / n over the n tokens that t sees, (N, N), for (batch, H, N, ·)."""
    count = seen.sum(axis=-1, keepdims=True)
    shares = seen / count

    def mean(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
        return np.einsum("bhtk,bhsk,ts,bhsv->bhtv", q, k, shares, v, optimize=True)

    q, k, v = queries.size, keys.size, values.size
    error = mean(queries.error, k, v) + mean(q, keys.error, v) + mean(q, k, values.error)
    error = error + analysis.gamma(count + q.shape[-1] + 4) * mean(q, k, v)
    flushed = analysis.flushed(seen.shape[-1] * q.shape[-1] + 1, q, k, v)
    return analysis.made(mean(queries.value, keys.value, values.value), error + flushed)


def _fft(analysis: Analysis, size: int) -> float:
    """2δ + 8u + δ for transforms of at most this size."""
    return (3 * 8 * float(np.ceil(np.log2(size))) + 8) * analysis.unit


def _kernel(analysis: Analysis, weights: dict[str, np.ndarray], tokens: np.ndarray) -> Running:
    """offset + Σ K(s) x_{t−s}; both by direct sums and by FFT."""
    length, kernel = tokens.shape[-2], weights["kernel"][..., : tokens.shape[-2]]
    value = numpy_model.causal_sums(kernel, tokens)
    size = numpy_model.causal_sums(np.abs(kernel), np.abs(tokens))
    terms = kernel.shape[-1] * kernel.shape[1] + 3
    norms = np.einsum("dk,bk->bd", np.sqrt((kernel**2).sum(-1)), np.sqrt((tokens**2).sum(-2)))
    norms += np.einsum("dk,bk->bd", np.abs(kernel).sum(-1), np.sqrt((tokens**2).sum(-2)))
    error = analysis.gamma(terms) * size + _fft(analysis, 4 * (length + kernel.shape[-1])) * norms[:, None] + 2.0**-52 * tokens.shape[-1]
    return analysis.made(value + weights["offset"], error + 2 * analysis.unit * np.abs(weights["offset"]))


def _lags(analysis: Analysis, words: dict[str, Any], weights: dict[str, np.ndarray], x: Running) -> Running:
    """Σ_s K(s; n_t) X_{t−s}, by direct sums and by FFT."""
    value, error = np.zeros_like(x.value), np.zeros_like(x.value)
    length = x.value.shape[-2]
    for number, group in enumerate(words["groups"]):
        kernels = weights[f"lags.{number}"][..., :length]
        slot = Running(x.value[..., group["slot"]], x.error[..., group["slot"]])
        lag = analysis.rounded(Running(slot.value[..., None], slot.error[..., None]), ["log" if group["logarithm"] else "integer"])
        number_read = np.exp(lag.value[..., 0]) if group["logarithm"] else lag.value[..., 0]
        place = np.rint(number_read).astype(int) - group["least"]
        inside = np.clip(place, 0, len(kernels) - 1)
        columns = Running(x.value[..., group["columns"]], x.error[..., group["columns"]])
        flat = kernels.reshape(-1, *kernels.shape[2:])
        own, carried, size = (
            numpy_model.causal_sums(k, c).reshape(*x.value.shape[:-1], *kernels.shape[:2])
            for k, c in ((flat, columns.value), (np.abs(flat), columns.error), (np.abs(flat), columns.size))
        )
        norms = np.einsum("lrc,bc->blr", np.abs(kernels).sum(-1), np.sqrt((columns.size**2).sum(1)))
        fast = _fft(analysis, 8 * length) * norms[:, None]
        bound = carried + analysis.gamma(kernels.shape[-1] * kernels.shape[-2] + 3) * size + fast + 2.0**-52
        taken = [np.take_along_axis(a, inside[..., None, None], axis=-2)[..., 0, :] for a in (own, np.broadcast_to(bound, own.shape))]
        lost = (place > len(kernels) - 1) | (lag.error[..., 0] > DECIDED)
        value[..., group["rows"]] += taken[0]
        error[..., group["rows"]] += np.where(lost[..., None], UNDECIDED, taken[1])
    return analysis.made(value, error)
