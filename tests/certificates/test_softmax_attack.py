"""Attacks on the certificate of one softmax layer: another forward pass, tokens inside cells, and certificates that are broken on purpose.

`violations` draws cells, tokens inside them and any multipliers, and compares ξ, D, y and E, by a forward pass written from the definition
of the network, with what the cells claim about all of their tokens. A claim that any token refutes is a fault, however small the cell.
"""

import itertools
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from flint import fmpq
from scipy.special import zeta

from analyzer.errors import Refusal
from analyzer.numbers.exact import nearest, rational
from analyzer.targets.adaptive import AdaptiveMemory, Memory
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.kernel import KernelMemory
from analyzer.targets.protocol import Target
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer, to_exact
from tests.depth import FULL
from verify.layers.softmax import bounds as bounds_module
from verify.layers.softmax import cover as cover_module
from verify.layers.softmax.bounds import SoftmaxRelaxation
from verify.layers.softmax.certificate import softmax_error
from verify.layers.softmax.cover import Searched, SoftmaxCover
from verify.layers.softmax.masses import position_masses
from verify.layers.softmax.problem import SoftmaxProblem, floats
from verify.layers.softmax.ranges import CellRanges, SoftmaxCells

ROUNDINGS = 1e-9
"""The other forward pass is in double precision, too."""


def plain(network: Transformer) -> Transformer:
    return network.map(lambda a: floats(a) if a.dtype == object else np.asarray(a, float))


def random_layer(rng: np.random.Generator, rpe: list[str], window: str, dim: int, **given: float | str) -> Transformer:
    """One layer of width 3: `steep` is the size of its logits, `scale` that of arguments of neurons, `gain` that of outputs."""
    heads, steep, neurons = len(rpe), float(given.get("steep", 1)), int(given.get("neurons", 5))
    kind, scale, gain = str(given.get("kind", "dp")), float(given.get("scale", 1)), float(given.get("gain", 1))
    score, size = 2 if kind == "dp" else 0, np.sqrt(steep / 3)
    decays: dict[str, list[float]] = {"lin": [0.05, 0.3, 1, 3], "log": [1.01, 1.2, 1.5, 2, 4], "none": [0], "table": [0]}
    attention = Attention(
        decay=np.array([rng.choice(decays[one]) for one in rpe], float), value=rng.normal(size=(heads, 2, 3)),
        output=rng.normal(size=(heads, 3, 2)), query=size * rng.normal(size=(heads, score, 3)),
        key=size * rng.normal(size=(heads, score, 3)),
        pointer=np.zeros((0, 3)), rpe=tuple(rpe), kind=kind, window=window,  # type: ignore[arg-type]
        table=2 * rng.normal(size=(heads, 9 if rng.random() < 0.5 else 30)) if "table" in rpe else None,
    )  # fmt: skip
    ffn = FeedForward(scale * rng.normal(size=(neurons, 3)), scale * rng.normal(size=neurons), gain * rng.normal(size=(1, neurons)))
    network = Transformer(rng.normal(size=(3, dim)), rng.choice([0, 0.5]) * rng.normal(size=3), (Layer(attention, ffn),))
    dtype = str(given.get("dtype", "exact"))
    return network.map(to_exact if dtype == "exact" else lambda a: np.asarray(a, dtype))


def position_weights(attention: Attention, length: int) -> tuple[np.ndarray, np.ndarray]:
    """κ_h(s) for s < length, and what the infinite past adds."""
    near, beyond, s = np.zeros((len(attention.rpe), length)), np.zeros(len(attention.rpe)), np.arange(length)
    for h, (rpe, p) in enumerate(zip(attention.rpe, np.asarray(attention.decay, float), strict=True)):
        if rpe == "lin":
            near[h], beyond[h] = np.exp(-p * s), np.exp(-p * length) / -np.expm1(-p)
        elif rpe == "log":
            near[h, 1:], beyond[h] = s[1:] ** -p, zeta(p, max(length, 1))
        elif rpe == "none":
            near[h] = 1
        else:
            seen = np.exp(attention.table[h] - attention.table[h].max())
            near[h, : len(seen)], beyond[h] = seen[:length], seen[length:].sum()
    return near, beyond if attention.window == "infinite" else np.zeros_like(beyond)


def forward(network: Transformer, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """F, ξ (C, H, d) and log D_h (C, H) up to the logit of a zero token, for tokens (C, N, d), the current one first."""
    network = plain(network)
    attention, ffn = network.layers[0].attention, network.layers[0].feedforward
    states, (near, beyond) = x @ network.embedding.T + network.bias, position_weights(attention, x.shape[1])
    looking, means, sums = states[:, 0].copy(), [], []
    for h in range(len(attention.rpe)):
        query = states[:, 0] @ attention.query[h].T
        logits, past = np.einsum("ci,csi->cs", query, states @ attention.key[h].T), query @ (attention.key[h] @ network.bias)
        top = np.maximum(logits.max(axis=1), past)
        weights, rest = near[h] * np.exp(logits - top[:, None]), beyond[h] * np.exp(past - top)
        total = weights.sum(axis=1) + rest
        mean = (np.einsum("cs,csi->ci", weights, states) + rest[:, None] * network.bias) / total[:, None]
        looking += mean @ attention.value[h].T @ attention.output[h].T
        means.append(np.einsum("cs,csi->ci", weights, x) / total[:, None])
        sums.append(np.log(total) + top - past)
    outputs = np.maximum(looking @ ffn.inner.T + ffn.bias, 0) @ ffn.outer[0]
    return outputs, np.stack(means, axis=1), np.stack(sums, axis=1)


def errors(network: Transformer, target: Target, x: np.ndarray) -> np.ndarray:
    return np.asarray(forward(network, x)[0] - target.values(np)(x[:, ::-1])[:, -1])


@dataclass(frozen=True)
class Case:
    """A network, a target and the length of arrays."""

    network: Transformer
    target: Target
    length: int | None


def random_target(rng: np.random.Generator, kind: str, dim: int) -> Target:
    one, two = ("x0", "m1") if dim == 1 else ("x0[1]", "m1[0]")
    if kind == "kernel":
        kernel = str(rng.choice(["exp(-s)", "0.5*exp(-0.1*s)", "1/(s+1)**2", "3*exp(-s)"]))
        return KernelMemory((kernel,), dim, f"tanh(2*{two.replace('m1', 'k1')}) + 0.3*{one}")
    longest = int(rng.choice([4, 25]))
    if kind == "adaptive":
        letters = list(dict.fromkeys(tuple(map(float, rng.choice([-1, -0.5, 0, 1], size=dim))) for _ in range(6)))[:3]
        lags = tuple(int(lag) for lag in rng.integers(1, longest, size=len(letters)))
        return AdaptiveMemory(tuple(tuple(map(rational, letter)) for letter in letters), (Memory("m", lags),))
    formula = str(rng.choice([f"{two}*{one}", f"relu({two}-{one})", f"abs({two})+0.5*{one}", f"tanh(3*{two}+{one})"]))
    alphabet = tuple(map(rational, np.sort(rng.choice(9, size=3, replace=False)) / 4 - 1)) if kind == "letters" else None
    return FixedMemory(tuple(sorted({int(lag) for lag in rng.integers(1, longest, size=2)})), dim, formula, alphabet)


def random_case(seed: int) -> Case:
    rng = np.random.default_rng(seed)
    kind, window = ("fixed", "kernel", "adaptive", "letters")[seed % 4], str(rng.choice(["infinite", "infinite", "finite", "full"]))
    heads, dim = int(rng.choice([1, 1, 2, 3, 8])), int(rng.choice([1, 1, 1, 2, 3]))
    family = str(rng.choice(["lin", "log", "mixed", "table", "none"] if window != "infinite" else ["lin", "log", "mixed", "table"]))
    rpe = [str(rng.choice(["lin", "log"])) if family == "mixed" else family for _ in range(heads)]
    network = random_layer(
        rng, rpe, window, dim, steep=rng.choice([0.1, 1, 4, 12]), scale=rng.choice([0.1, 1, 8, 1e-6, 1e6], p=[0.3, 0.4, 0.2, 0.05, 0.05]),
        gain=rng.choice([0.1, 1, 4]), neurons=rng.choice([1, 5, 20]), kind=str(rng.choice(["dp", "dp", "dp-free"])),
        dtype=str(rng.choice(["exact", "float64", "float32"])),
    )  # fmt: skip
    target = random_target(rng, kind, dim)
    return Case(network, target, None if window == "infinite" else target.settled + 1 + int(rng.integers(1, 6)))


def random_ranges(problem: SoftmaxProblem, rng: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Ranges of nodes (C, S, axes) as a search could cut them, with the constants and slacks of −f."""
    picked = [problem.starts[i] for i in rng.integers(len(problem.starts), size=count)]
    low, high = np.stack([s.low for s in picked]), np.stack([s.high for s in picked])
    single, kept = np.diff(problem.masses.edges) == 1, rng.random(count) < 0.2
    for c, s, axis in np.argwhere(high > low):
        if not single[s] or (kept[c] and s) or rng.random() < 0.3:
            continue
        least, most = low[c, s, axis], high[c, s, axis]
        if problem.nodes.continuous:
            width = max(1, int((most - least) * 2.0 ** -rng.integers(0, 8)))
            first = rng.integers(least, most - width + 1)
            low[c, s, axis], high[c, s, axis] = first, first + width
        else:
            low[c, s, axis], high[c, s, axis] = np.sort(rng.integers(least, most + 1, size=2))
    return low, high, np.array([nearest(s.constant) for s in picked]), np.array([s.slack for s in picked])


def tokens_inside(
    problem: SoftmaxProblem, rng: np.random.Generator, low: np.ndarray, high: np.ndarray, count: int, length: int
) -> np.ndarray:
    """Tokens (C, count, length, d), the current one first and zero before them; NaN where a cell of letters has no such array."""
    nodes, edges = problem.nodes, np.array(problem.masses.edges)
    block = np.minimum(np.searchsorted(edges, np.arange(length), side="right") - 1, problem.positions - 1)
    unseen, shape = np.arange(length) >= edges[-1], (len(low), count, length)
    if nodes.continuous:
        least, most = (end[:, block] for end in nodes.ends(low, high))
        least[:, unseen], most[:, unseen] = -1, 1
        place, corner = rng.random((*shape, nodes.dim)), rng.random((*shape, nodes.dim)) < rng.random((*shape[:2], 1, nodes.dim))
        share = np.where(
            rng.random((*shape[:2], 1, 1)) < 0.3, place, np.where(rng.random((*shape, 1)) < rng.choice([0, 0.5]), place, corner)
        )
        return np.asarray(least[:, None] + share * (most - least)[:, None])
    first, end, zero = low[:, block, 0], high[:, block, 0], nodes.last
    first[:, unseen], end[:, unseen] = 0, zero - 1
    index = first[:, None] + np.floor(rng.random(shape) * (np.minimum(end, zero - 1) - first + 1)[:, None]).astype(int)
    result = nodes.values[np.clip(index, 0, zero - 1)]
    for c in range(len(low) if problem.length is None else 0):
        begun = [n for n in range(problem.target.settled + 1, length + 1) if (end[c, n:] == zero).all() and (first[c, :n] < zero).all()]
        for row in range(count):
            if begun:
                result[c, row, rng.choice(begun) :] = 0
            else:
                result[c, row] = np.nan
    return np.asarray(result)


def cut(rng: np.random.Generator, at: np.ndarray, low: np.ndarray, high: np.ndarray, share: float) -> tuple[np.ndarray, np.ndarray]:
    """Some of these ranges made narrower around a point."""
    chosen, width, side = rng.random(at.shape) < share, 2.0 ** -rng.integers(0, 9, size=at.shape), rng.choice([0, 0.5, 1], size=at.shape)
    left, right = np.maximum(low, at - width * side - 1e-12), np.minimum(high, at + width * (1 - side) + 1e-12)
    return np.where(chosen, left, low), np.where(chosen, right, high)


@np.errstate(all="ignore")
def violations(problem: SoftmaxProblem, seed: int, *, cells: int = 8, count: int = 32) -> list[str]:
    """Claims about random cells that tokens inside them refute."""
    rng, network, length = np.random.default_rng(seed), problem.network, problem.length or 40
    low, high, constant, slack = random_ranges(problem, rng, cells)
    x = tokens_inside(problem, rng, low, high, count, length)
    some = np.isfinite(x).all(axis=(1, 2, 3))
    low, high, constant, slack, x = low[some], high[some], constant[some], slack[some], x[some]
    if not len(x):
        return []
    rows, flat = len(x), x.reshape(-1, length, problem.dim)
    _, xi, logs = forward(network, flat)
    error = errors(network, problem.target, flat).reshape(rows, count)
    y = (np.concatenate([flat[:, 0], xi.reshape(len(flat), -1)], axis=1) @ problem.common.T).reshape(rows, count, -1)
    xi, logs = xi.reshape(rows, count, problem.heads, problem.dim), logs.reshape(rows, count, problem.heads)
    side, ends, wide = rng.choice([1.0, -1.0], size=rows), np.ones_like(xi[:, 0]), np.full_like(y[:, 0], np.inf)
    worst = np.arange(rows), (side[:, None] * error).argmax(axis=1)
    mean_low, mean_high = cut(rng, xi[worst], -ends, ends, 0.4)
    common_low, common_high = cut(rng, y[worst], -wide, wide, 0.3)
    inside = ((xi >= mean_low[:, None]) & (xi <= mean_high[:, None])).all(axis=(2, 3))
    inside &= ((y >= common_low[:, None]) & (y <= common_high[:, None])).all(axis=2)
    relaxation = SoftmaxRelaxation(problem)
    keen = relaxation.equal_shares(rows)
    keen = keen * rng.choice([0, 1, 1, 2], size=keen.shape) + np.abs(rng.normal(size=keen.shape)) * rng.choice([0, 0, 0.3])
    given = SoftmaxCells(low, high, -ends, ends.copy(), mean_low, mean_high, common_low, common_high, keen, side, side * constant + slack)
    ranges = CellRanges(problem, given)
    found: list[str] = []

    def claim(name: str, excess: np.ndarray, held: Any = True) -> None:
        most = np.where(held, np.where(np.isnan(excess), np.inf, excess), -np.inf).max()
        if most > ROUNDINGS:
            found.append(f"{name}: {most:.3g}")

    claim("hull", np.maximum(xi - given.hull_high[:, None], given.hull_low[:, None] - xi).max(axis=(2, 3)))
    masses = np.exp(logs - problem.shift) / _largest_masses(problem)
    claim("D", (np.maximum(masses / ranges.mass_high[:, None], ranges.mass_low[:, None] / masses) - 1).max(axis=2))
    batch = relaxation.batch(ranges)
    claim("empty", np.broadcast_to(ranges.empty[:, None], inside.shape).astype(float), inside)
    claim("y", np.maximum(y - given.common_high[:, None], given.common_low[:, None] - y).max(axis=2), inside)
    chords = relaxation.chords(batch)
    best, _ = relaxation.improve(batch, chords, relaxation.bound(batch, chords), 0.0, 6)
    moved, any_at_all = (
        rng.normal(size=chords.shape) * rng.choice([0.01, 0.1, 1, 10]),
        rng.normal(size=chords.shape) * rng.choice([0.1, 3, 100]),
    )
    for name, multipliers in {"chords": chords, "best": best, "moved": chords + moved, "any": any_at_all}.items():
        value = relaxation.bound(batch, multipliers).value
        claim(f"E, {name}", (side[:, None] * error - value[:, None]) / (1 + np.abs(error).max()), inside)
    return found


def _largest_masses(problem: SoftmaxProblem) -> np.ndarray:
    """What heads are divided by."""
    near, _ = position_weights(plain(problem.network).layers[0].attention, problem.length or 4096)
    blocks = [near[:, start:stop].sum(axis=1) for start, stop in itertools.pairwise(problem.masses.edges) if stop <= 4096]
    return np.max(blocks, axis=0)


def largest_error(case: Case, seed: int) -> float:
    """Ascent on |E| over corners and any tokens, one place after the other."""
    rng, target = np.random.default_rng(seed), case.target
    length = case.length or max(target.settled + 1, 24)
    x = target.draw(rng, (32, length))
    x[:16] = np.where(target.signed, np.sign(x[:16]), x[:16])
    best = np.abs(errors(case.network, target, x))
    for place in [*range(length), *range(min(length, 6))]:
        for _ in range(3):
            trial = x.copy()
            trial[:, place] = target.draw(rng, (32, 1))[:, 0]
            if target.signed and rng.random() < 0.7:
                trial[:, place] = np.sign(trial[:, place])
            reached = np.abs(errors(case.network, target, trial))
            x[reached > best], best = trial[reached > best], np.maximum(best, reached)
    return float(best.max())


@pytest.mark.parametrize("seed", range(120 if FULL else 8))
def test_tokens_in_cells_refute_nothing(seed: int) -> None:
    case = random_case(seed)
    try:
        problem = SoftmaxProblem(case.network, case.target, case.length)
    except Refusal:
        return
    assert violations(problem, seed) == []


@pytest.mark.parametrize("seed", range(32) if FULL else (2, 3))
def test_certified_withstands_an_attack(seed: int) -> None:
    case = random_case(1000 + seed)
    try:
        result = softmax_error(case.network, case.target, length=case.length, seconds=0.5 if FULL else 0.05)
    except Refusal:
        return
    reached = largest_error(case, seed)
    assert reached <= result.certified * (1 + ROUNDINGS) + ROUNDINGS
    assert result.witness <= result.certified


def with_table(biases: np.ndarray, window: str) -> Transformer:
    network = random_layer(np.random.default_rng(0), ["table"] * len(biases), window, 1)
    attention = replace(network.layers[0].attention, table=to_exact(biases))
    return replace(network, layers=(Layer(attention, network.layers[0].feedforward),))


def test_long_tables_weigh_what_they_say() -> None:
    biases = np.random.default_rng(1).normal(size=(2, 5000))
    biases[0, 4100:] -= 9
    masses = position_masses(with_table(biases, "infinite").layers[0].attention, None, (0, 1), [0, 1])
    true = np.array([np.exp(biases[:, start:stop]).sum(axis=1) for start, stop in itertools.pairwise(masses.edges)]).T
    np.testing.assert_allclose(masses.heads, true / true.max(axis=1, keepdims=True), rtol=1e-12)
    assert masses.edges[-1] == 5000 and (masses.spare >= 0).all()


def test_faint_tables_keep_their_digits() -> None:
    attention = with_table(np.array([[-741.0, -740.0, 0.0]]), "finite").layers[0].attention
    np.testing.assert_allclose(position_masses(attention, 2, (0, 1), [0, 1]).heads, [[np.exp(-1), 1]], rtol=1e-14)


SLOW = Case(random_layer(np.random.default_rng(3), ["log"], "infinite", 1, steep=2.0), FixedMemory((1,), 1, "m1"), None)
FEW = tuple(fmpq(k, 4) for k in (-4, -2, 1, 3, 4))
SHORT = Case(random_layer(np.random.default_rng(4), ["none"], "finite", 1, steep=4.0), FixedMemory((1,), 1, "m1", FEW), 4)


def problem_of(case: Case) -> SoftmaxProblem:
    return SoftmaxProblem(case.network, case.target, case.length)


def found_in(problem: SoftmaxProblem) -> list[str]:
    return [fault for seed in range(12) for fault in violations(problem, seed)]


def slow_head() -> SoftmaxProblem:
    attention = replace(SLOW.network.layers[0].attention, decay=to_exact(np.array([1.01])))
    return problem_of(replace(SLOW, network=replace(SLOW.network, layers=(Layer(attention, SLOW.network.layers[0].feedforward),))))


def test_a_tail_left_out_is_found() -> None:
    problem = slow_head()
    assert found_in(problem) == []
    problem.masses = replace(problem.masses, spare=np.zeros(1))
    assert any(fault.startswith("D") for fault in found_in(problem))


def test_exponentials_rounded_down_are_found() -> None:
    problem = problem_of(SHORT)
    assert found_in(problem) == []
    problem.table[:, :, 0] *= 1 - 1e-3
    assert any(fault.startswith("D") for fault in found_in(problem))


@pytest.mark.deep(keep="0")
@pytest.mark.parametrize("which", range(4))
def test_inequalities_the_wrong_way_round_are_found(monkeypatch: pytest.MonkeyPatch, which: int) -> None:
    """Each of the four with the other end of D."""
    problem, honest = problem_of(SLOW), SoftmaxRelaxation.references
    assert found_in(problem) == []

    def swapped(self: SoftmaxRelaxation, ranges: CellRanges) -> tuple[np.ndarray, np.ndarray]:
        zeta_, reference = honest(self, ranges)
        reference[:, which] = ranges.mass_low[..., None] if which in (1, 3) else ranges.mass_high[..., None]
        return zeta_, reference

    monkeypatch.setattr(SoftmaxRelaxation, "references", swapped)
    assert any(fault.startswith(("E", "y", "empty")) for fault in found_in(problem))


def test_a_wrong_sign_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds_module, "SIGNS", -bounds_module.SIGNS)
    assert any(fault.startswith(("E", "y", "empty")) for fault in found_in(problem_of(SLOW)))


def test_a_skipped_cell_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two halves the one with the larger bound is forgotten."""
    honest = SoftmaxCover._replace
    reached = largest_error(SHORT, 0)

    def forgetful(self: SoftmaxCover, rows: np.ndarray, cells: SoftmaxCells, found: Searched) -> None:
        pairs = found.value.reshape(2, -1)
        kept = pairs.argmin(axis=0) * len(rows) + np.arange(len(rows))
        honest(self, rows, cells.pick(kept), found.pick(kept))

    assert softmax_error(SHORT.network, SHORT.target, length=4, seconds=0.5).certified >= reached
    monkeypatch.setattr(SoftmaxCover, "_replace", forgetful)
    monkeypatch.setattr(cover_module, "CLOSE", 0.0)
    assert softmax_error(SHORT.network, SHORT.target, length=4, seconds=0.5).certified < reached


def between_nodes(rng: np.random.Generator, dim: int, steep: float, broken: bool = False) -> float:
    """By how much w(q, b) l(b) exceeds what nodes and corners promise, at random q in random cells and b anywhere, per peak."""
    network = random_layer(rng, ["lin"], "infinite", dim, steep=steep)
    problem = SoftmaxProblem(network, FixedMemory((1,), dim, "m1" if dim == 1 else "m1[0]"), None)
    low, high, constant, _ = random_ranges(problem, rng, 16)
    ends, wide = np.ones((16, 1, dim)), np.full((16, len(problem.common)), np.inf)
    side, keen = np.ones(16), SoftmaxRelaxation(problem).equal_shares(16)
    ranges = CellRanges(problem, SoftmaxCells(low, high, -ends, ends.copy(), -ends, ends.copy(), -wide, wide, keen, side, constant))
    gain, offset = rng.normal(size=(16, 1, dim)), rng.normal(size=(16, 1))
    line = gain @ problem.nodes.values.T + offset[..., None]
    raised = line if broken else ranges.raised(line, gain)
    worst, sides, pieces = -np.inf, np.array(list(itertools.product((0, 1), repeat=dim))), problem.nodes.last
    for _ in range(200):
        part = rng.random((16, 1, dim))
        first = rng.integers(0, pieces, size=(16, dim))
        share = rng.choice([0, 0.5, 1], size=(16, 1, dim)) if rng.random() < 0.3 else rng.random((16, 1, dim))
        q = ranges.least[:, 0] + part[:, 0] * (ranges.most - ranges.least)[:, 0]
        b = (first + share[:, 0]) * problem.nodes.step - 1
        of_corner, of_node = (np.where(sides, s, 1 - s).prod(axis=2) for s in (part, share))
        nodes = (first[:, None] + sides) @ (pieces + 1) ** np.arange(dim)[::-1]
        weights = np.take_along_axis(ranges.weights[:, :, 0], nodes[:, None], axis=2)
        promised = np.einsum("cq,cn,cqn,cn->c", of_corner, of_node, weights, np.take_along_axis(raised[:, 0], nodes, axis=1))
        slope = problem.slope0[0] + q @ problem.slope1[0].T
        true = np.exp((slope * b).sum(axis=1) - problem.shift[0]) * ((gain[:, 0] * b).sum(axis=1) + offset[:, 0])
        worst = max(worst, float(((true - promised) / np.abs(weights * raised[:, :1].max()).max(axis=(1, 2))).max()))
    return worst


@pytest.mark.deep(keep="1.0-1")
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("steep", [1.0, 12.0])
def test_nothing_rises_above_the_nodes(dim: int, steep: float) -> None:
    """Part (iv) by itself: random tokens hardly ever come so near to a bound that a missing correction shows."""
    assert max(between_nodes(np.random.default_rng(seed), dim, steep) for seed in range(4)) <= ROUNDINGS
    assert max(between_nodes(np.random.default_rng(seed), dim, steep, broken=True) for seed in range(4)) > 1e-4


def test_the_own_token_rises_above_its_chord_by_its_curvature_at_most() -> None:
    risen, promised = [], []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        network = random_layer(rng, ["lin", "lin"], "infinite", 1, steep=float(rng.choice([1, 4, 12])))
        problem = SoftmaxProblem(network, FixedMemory((1,), 1, "m1"), None)
        low, high, constant, _ = random_ranges(problem, rng, 16)
        ends, wide = np.ones((16, 2, 1)), np.full((16, len(problem.common)), np.inf)
        relaxation, side = SoftmaxRelaxation(problem), np.ones(16)
        given = SoftmaxCells(
            low, high, -ends, ends.copy(), -ends, ends.copy(), -wide, wide, relaxation.equal_shares(16), side, constant
        )  # fmt: skip
        ranges = CellRanges(problem, given)
        gain, offset = rng.normal(size=(16, 2, 1)), rng.normal(size=(16, 2))

        def own(q: np.ndarray, problem: SoftmaxProblem = problem, gain: np.ndarray = gain, offset: np.ndarray = offset) -> np.ndarray:
            theta = (problem.slope0[:, 0] + problem.slope1[:, 0, 0] * q[:, None]) * q[:, None] - problem.shift
            return np.asarray((problem.masses.heads[:, 0] * np.exp(theta) * (gain[..., 0] * q[:, None] + offset)).sum(axis=1))

        first, last = ranges.least[:, 0, 0], ranges.most[:, 0, 0]
        for part in np.linspace(0, 1, 33):
            risen.append(own(first + part * (last - first)) - (1 - part) * own(first) - part * own(last))
            promised.append(relaxation._own_curvature(ranges, gain, offset))
    above = np.array(risen) / np.maximum(np.array(promised), 1e-300)
    assert 0.5 < above.max() <= 1 + ROUNDINGS
