"""Addition: right for all inputs, gaps and horizons, both ways to restore carries, sabotage, and what happens beyond the horizon."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import pytest
from flint import fmpq

import lemmaformer as lf
from analyzer.targets.tasks.addition import AdditionTarget
from analyzer.theorems.library.addition import AFFORDABLE, gap, horizon, lost
from constructions.files.broken import breakable, broken
from constructions.network.transformer import Transformer
from constructions.run import fast, reference
from constructions.run.execute import run as evaluate
from constructions.theorems.construction import Construction
from constructions.theorems.library.addition import build
from tests.theorems.library.attacks import mutated
from verify.chain.certificate import StrangeWeights
from verify.theorems.library.addition import AdderReading, Span, SpanArithmetic, verify

WAYS = ("plateaus", "integers")


@cache
def target_of(digits: int, base: int = 10) -> AdditionTarget:
    found = lf.task("addition", digits=digits, base=base)
    assert isinstance(found, AdditionTarget)
    return found


@cache
def built(digits: int, base: int, restore: str, dtype: str) -> Construction:
    return build(target_of(digits, base), restore=restore, dtype=dtype)


def certified(found: Construction, network: Transformer | None = None) -> lf.Certificate:
    return verify(found.network if network is None else network, found.target, found.bank, found.ffn)


def all_sums(target: AdditionTarget) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of n-digit numbers as tokens, and the digits of their sums by integer arithmetic."""
    numbers = np.arange(target.base**target.digits)
    a, b = (grid.ravel() for grid in np.meshgrid(numbers, numbers, indexing="ij"))
    digits = [np.stack([v // target.base**t % target.base for t in range(target.length)], axis=-1) for v in (a, b, a + b)]
    return np.stack(digits[:2], axis=-1) / 16, digits[2]


@pytest.mark.deep(keep="1-10-exact-integers")
@pytest.mark.parametrize("restore", WAYS)
@pytest.mark.parametrize(("digits", "base", "dtype"), [(1, 10, "exact"), (2, 10, "float64"), (2, 10, "float32"), (5, 2, "float64")])
def test_all_pairs_of_short_numbers_are_added(digits: int, base: int, dtype: str, restore: str) -> None:
    found = built(digits, base, restore, dtype)
    tokens, sums = all_sums(found.target)
    assert (evaluate(found.network, tokens) == sums).all()
    assert (found.target.values(np)(tokens) == sums).all()
    chain = certified(found)
    assert chain.verdict is lf.Verdict.HOLDS and chain.witness == chain.certified == chain.bound == chain.rounding == 0


@pytest.mark.deep
@pytest.mark.parametrize("restore", WAYS)
def test_all_pairs_of_three_digit_numbers_are_added(restore: str) -> None:
    found = built(3, 10, restore, "float32")
    tokens, sums = all_sums(found.target)
    assert len(tokens) == 10**6 and (evaluate(found.network, tokens) == sums).all()


@pytest.mark.deep
@pytest.mark.parametrize("restore", WAYS)
def test_ten_digits_in_double_precision_are_certified_and_run(restore: str) -> None:
    found, target = built(10, 10, restore, "float64"), target_of(10)
    chain = certified(found)
    assert chain.verdict is lf.Verdict.HOLDS and chain.certified == 0 and chain.details["inputs"] == str(10**20)
    assert chain.sizes["parameters"] == {"plateaus": 58, "integers": 13}[restore]
    assert chain.parts[0].certified < 2e-4 < chain.parts[0].bound < 1e-3
    rng = np.random.default_rng(0)
    tokens = target.draw(rng, (100_000, target.length))
    tokens[:, -1] = 0
    nines = rng.random((50_000, target.length - 1)) < 0.9  # long chains of carries, with a few digits to start and to stop them
    tokens[:50_000, :-1] = np.where(nines[..., None], np.array([9, 0]) / 16, tokens[:50_000, :-1])
    assert (evaluate(found.network, tokens) == target.values(np)(tokens)).all()
    first, second = 9_999_999_999, 1
    assert target.number(evaluate(found.network, target.tokens(first, second))) == first + second


@pytest.mark.deep
def test_the_fewest_parameters() -> None:
    """All stored numbers are counted, zeros included; the smallest network has neither a second slot nor a third neuron."""
    small, plain = (certified(built(1, 10, restore, "float64")) for restore in ("integers", "plateaus"))
    assert small.sizes["parameters"] == small.details["stored"] == 13 and small.details["nonzero"] == 11
    assert (small.sizes["model_dim"], small.sizes["width"], small.sizes["heads"]) == (1, 1, 1)
    assert plain.sizes["parameters"] == plain.details["stored"] == 58 and plain.details["nonzero"] == 20
    neurons = [len(layer.feedforward.bias) for layer in built(1, 10, "plateaus", "float64").network.layers]
    assert neurons == [2, 3] and not any(layer.feedforward.precision for layer in built(1, 10, "plateaus", "float64").network.layers)


def test_the_gap_by_brute_force_and_the_best_ratio() -> None:
    """(1) and (2): all sequences of sums, and weights that are not geometric."""
    base, length = 3, 4
    sequences = list(itertools.product(range(2 * base - 1), repeat=length))  # the oldest first

    def carries(sums: tuple[int, ...]) -> int:
        carry = 0
        for total in sums:
            carry = int(total + carry >= base)
        return carry

    for weights in (
        [fmpq(1, 3) ** s for s in range(4)],
        [fmpq(1, 4) ** s for s in range(4)],
        [fmpq(1), fmpq(1, 2), fmpq(1, 5), fmpq(1, 20)],
    ):
        values = {c: [sum(w * d for w, d in zip(weights, reversed(s), strict=True)) for s in sequences if carries(s) == c] for c in (0, 1)}
        assert gap(base, weights) == min(values[1]) - max(values[0]) <= weights[0] * fmpq(1, base) ** (length - 1)
    for ratio in (fmpq(1, 11), fmpq(9, 100), fmpq(10_000_001, 10**8), fmpq(1, 5)):
        for t in range(1, 6):
            best = gap(10, [fmpq(1, 10) ** s for s in range(t + 1)])
            assert gap(10, [ratio**s for s in range(t + 1)]) < best == fmpq(1, 10) ** t
    assert gap(10, [fmpq(1, 11) ** s for s in range(4)]) == fmpq(1, 11) ** 3


def test_horizons() -> None:
    assert [horizon(10, dtype) for dtype in ("float32", "float64", "exact")] == [4, 13, None]
    for base, dtype in itertools.product((2, 7, 16), ("float32", "float64")):
        most = horizon(base, dtype)
        assert most is not None and lost(base, most, dtype) <= AFFORDABLE < lost(base, most + 1, dtype)
        assert base ** (most + 1) <= Fraction(3, 256) * 2 ** {"float32": 24, "float64": 53}[dtype] < base ** (most + 2)


@pytest.mark.deep
@pytest.mark.parametrize("restore", WAYS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("base", [2, 3, 7, 10, 16])
def test_networks_at_the_horizon_are_certified(base: int, dtype: str, restore: str) -> None:
    most = horizon(base, dtype)
    assert most is not None
    chain = certified(built(most, base, restore, dtype))
    assert chain.verdict is lf.Verdict.HOLDS and chain.certified == 0
    assert chain.parts[0].certified <= chain.parts[0].bound <= 0.75


def test_beyond_the_horizon_networks_are_refused() -> None:
    with pytest.raises(lf.Refusal, match=r"gap of 10\^-5 .* float32 move by up to 1\.9e-05 .* up to 4 digits") as refused:
        lf.build(target_of(5), dtype="float32")
    assert refused.value.remedies[0] == {"dtype": "float64"}
    with pytest.raises(lf.Refusal, match="up to 13 digits") as refused:
        lf.build(target_of(14), dtype="float64")
    assert refused.value.remedies == ({"dtype": "exact"},)
    with pytest.raises(lf.Refusal, match="up to 4 digits") as refused:
        lf.bound("addition", target_of(14), dtype="float32")
    assert refused.value.remedies == ({"dtype": "exact"},)


@pytest.mark.deep
@pytest.mark.parametrize(("digits", "dtype"), [(7, "float32"), (16, "float64")])
@pytest.mark.parametrize("restore", WAYS)
def test_beyond_the_horizon_a_sum_is_wrong(digits: int, dtype: str, restore: str) -> None:
    """A counterexample that the certificate finds, and a sum of two numbers that comes out wrong."""
    found, target = built(digits, 10, restore, dtype), target_of(digits)
    chain = certified(found)
    assert chain.verdict is lf.Verdict.VIOLATED and 1 <= chain.witness <= chain.certified and chain.parts[0].certified > 1
    pairs = [(10**digits - 1, k) for k in (0, 1)] + [(10**digits - 10**j, 10**j - k) for j in range(1, digits) for k in (0, 1)]
    assert any(target.number(evaluate(found.network, target.tokens(a, b))) != a + b for a, b in pairs)


@pytest.mark.deep
def test_exact_networks_have_no_horizon() -> None:
    for restore in WAYS:
        chain = certified(built(20, 10, restore, "exact"))
        assert chain.verdict is lf.Verdict.HOLDS and chain.certified == 0 and chain.parts[0].certified <= 1 / 8


@pytest.mark.deep(keep="exact-plateaus")
@pytest.mark.parametrize("restore", WAYS)
@pytest.mark.parametrize("dtype", ["exact", "float32"])
def test_every_kind_of_weight_is_read(dtype: str, restore: str) -> None:
    """A hundredth more in any array, zeros that become something, attention in the second layer, another target.

    What layer 1 writes is restored: a hundredth more of it changes no output, and a tenth of it does.
    """
    found = built(3, 5, restore, dtype)
    kinds = breakable(found.network)
    assert kinds == ["embedding", "decay", "value", "output", "inner", "inner-bias", "outer"]
    for kind, layer in itertools.product(kinds, (1, 2)):
        if kind in ("embedding", "decay", "value", "output") and layer == 2:
            continue
        changed, _ = broken(
            found.network, kind, by=-0.9 if (kind, layer) == ("outer", 1) else 0.01, layer=None if kind == "embedding" else layer
        )
        chain = certified(found, changed)
        assert chain.verdict is lf.Verdict.VIOLATED and 0 <= chain.witness <= chain.certified, (kind, layer)
    bias = found.network.bias.copy()
    bias[0] += fmpq(1, 10) if dtype == "exact" else np.float32(0.1)
    assert certified(found, replace(found.network, bias=bias)).certified > 0
    first, second = found.network.layers
    if restore == "integers":
        smooth = replace(second, feedforward=replace(second.feedforward, precision=()))
        assert certified(found, replace(found.network, layers=(first, smooth))).certified > 0.3
    twice = replace(found.network, layers=(first, replace(second, attention=first.attention)))
    assert "a later layer attends" in certified(found, twice).faults[0]
    assert verify(found.network, target_of(3, 4), found.bank, found.ffn).verdict is lf.Verdict.VIOLATED
    with pytest.raises(lf.InputError, match="not a network of addition"):
        certified(found, replace(found.network, layers=(second, first)))


def test_what_may_overflow_is_not_certified() -> None:
    """A neuron that nothing reads, but whose infinity times 0 is no number."""
    found = built(2, 10, "plateaus", "float32")
    first, second = found.network.layers
    neurons = first.feedforward
    wide = [np.concatenate([array, extra], axis=axis).astype("float32") for array, extra, axis in (
        (neurons.inner, np.full((1, neurons.inner.shape[1]), 3e38), 0), (neurons.bias, np.full(1, 3e38), 0),
        (neurons.outer, np.zeros((len(neurons.outer), 1)), 1))]  # fmt: skip
    grown = replace(first, feedforward=replace(neurons, inner=wide[0], bias=wide[1], outer=wide[2]))
    with pytest.raises(StrangeWeights, match="overflow"):
        certified(found, replace(found.network, layers=(grown, second)))


@pytest.mark.deep
@pytest.mark.parametrize("restore", WAYS)
def test_no_run_of_a_changed_network_errs_by_more_than_is_certified(restore: str) -> None:
    """Float networks with relative changes of all weights, on all pairs of two-digit numbers and any last pair."""
    rng = np.random.default_rng(3)
    for dtype, size in itertools.product(("float64", "float32"), (1e-6, 1e-3, 1e-1)):
        found = built(2, 4, restore, dtype)
        network = found.network.map(lambda leaf: (leaf * (1 + size * rng.normal(size=leaf.shape))).astype(leaf.dtype))  # noqa: B023
        letters = np.array(list(itertools.product(range(4), repeat=6))).reshape(-1, 3, 2) / 16
        errors = np.abs(evaluate(network, letters) - found.target.values(np)(letters))
        chain = certified(found, network)
        assert errors.max() <= chain.certified * (1 + 1e-12) and chain.witness <= errors.max()


@pytest.mark.deep
def test_the_certificate_is_sharp_in_exact_arithmetic() -> None:
    """Its worst case is that of all sequences, one by one, in rationals."""
    found = built(2, 3, "plateaus", "exact")
    changed, _ = broken(found.network, "inner-bias", by=-0.3, layer=1)
    reading = AdderReading(changed, found.target)
    worst = fmpq(0)
    for digits in itertools.product(itertools.product(range(3), repeat=2), repeat=3):
        state, carry = reading.start, 0
        for pair in digits:
            x = next(x for (x, total), _ in reading.streams.items() if total == sum(pair))
            state = reading.step(state, x)
            column = sum(pair) + carry
            carry = int(column >= 3)
            out = reading.outputs(state, x)
            worst = max(worst, abs(out.low - (column - 3 * carry)), abs(out.high - (column - 3 * carry)))
    chain = certified(found, changed)
    assert worst > 0 and chain.certified == pytest.approx(float(worst.p) / float(worst.q), rel=1e-12) == chain.witness


def test_spans_contain_what_floats_compute() -> None:
    rng, arithmetic = np.random.default_rng(1), SpanArithmetic("float32")
    for _ in range(200):
        weights, ends = rng.normal(size=4).astype(np.float32), np.sort(rng.normal(size=(4, 2)).astype(np.float32) * 10**6, axis=1)
        inside = np.clip(ends[:, 0] + (ends[:, 1] - ends[:, 0]) * rng.random(4).astype(np.float32), ends[:, 0], ends[:, 1])
        spans = [Span(*(fmpq(*float(v).as_integer_ratio()) for v in pair)) for pair in ends]
        numbers = [fmpq(*float(w).as_integer_ratio()) for w in weights]
        found = arithmetic.dot([Span(w, w) for w in numbers], spans)
        for order in itertools.permutations(range(4)):
            total = np.float32(0)
            for i in order:
                total += weights[i] * inside[i]
            assert found.low <= fmpq(*float(total).as_integer_ratio()) <= found.high
    whole = [Span(fmpq(k), fmpq(k)) for k in (9, 9, 1)]
    assert arithmetic.dot([Span(fmpq(1), fmpq(1))] * 3, whole) == Span(fmpq(19), fmpq(19))


@pytest.mark.deep
def test_both_executors_agree() -> None:
    rng = np.random.default_rng(2)
    for restore in WAYS:
        found = built(6, 10, restore, "float64")
        tokens = found.target.draw(rng, (50, found.target.length))
        assert (fast.forward(found.network, tokens) == np.asarray(reference.forward(found.network, tokens))).all()


def test_tokens_of_numbers_and_bad_ones() -> None:
    target = target_of(3, 16)
    tokens = target.tokens(0xABC, 0xFFF)
    assert tokens.shape == (4, 2) and tokens[0].tolist() == [12 / 16, 15 / 16]
    assert target.number(target.values(np)(tokens)) == 0xABC + 0xFFF
    assert float(target.exact_value(tokens)) == 1 and target.constant_error() == 7.5
    assert target.describe() == {"kind": "addition", "digits": 3, "base": 16} and "base 16" in target.description
    with pytest.raises(lf.InputError, match="not both numbers of 3 digits"):
        target.tokens(16**3, 0)
    with pytest.raises(lf.InputError, match="no pairs of digits"):
        target.check_tokens(tokens + 1 / 32, "here")
    with pytest.raises(lf.InputError, match="5 pairs of digits; this target has 4"):
        target.check_tokens(np.zeros((5, 2)), "here")
    with pytest.raises(lf.InputError, match="base 17 is out of range"):
        lf.task("addition", base=17)


def test_commands(run: Callable[..., Any], tmp_path: Any) -> None:
    out = tmp_path / "adder"
    made = run("build", "addition", "--digits", "10", "--restore", "integers", "--dtype", "float64", "--out", out, "--json")
    assert made.code == 0 and made.json["certified"] == 0 and made.json["sizes"]["parameters"] == 13, made.err
    np.save(tmp_path / "x.npy", target_of(10).tokens(1234567890, 9876543210))
    assert run("run", out, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy").code == 0
    assert target_of(10).number(np.load(tmp_path / "y.npy")) == 11111111100
    promised = run("bound", "addition", "--digits", "10", "--dtype", "float64", "--json").json
    assert promised["horizon"] == 13 and promised["gap"] == f"1/{10**10}" and promised["worst_case"] == 0
    too_long = run("build", "addition", "--digits", "14", "--dtype", "float64", "--out", tmp_path / "no")
    assert too_long.code == 2 and "up to 13 digits" in too_long.err
    mechanism = lf.load(out).mechanism
    assert mechanism["slots"]["prefix"]["meaning"].startswith("the prefix sum")


@pytest.mark.deep(keep="query")
@pytest.mark.parametrize("part", ["value", "query"])
def test_attention_that_is_off_holds_nothing(part: str) -> None:
    """Values that nobody writes, or scores that weigh nothing: where they overflow, 0 times infinity is no number."""
    found = built(2, 4, "plateaus", "float32")
    first, second = found.network.layers
    large, nothing, written = np.zeros((1, 1, 4), "float32"), np.zeros((1, 1, 4), "float32"), np.zeros((1, 4, 1), "float32")
    large[0, 0, 0] = 3e38
    parts = {"value": large} if part == "value" else {"value": nothing, "query": large, "key": large}
    loud = replace(found.network, layers=(first, replace(second, attention=replace(second.attention, output=written, **parts))))
    chain = certified(found, loud)
    assert np.isnan(evaluate(loud, np.full((3, 2), 3 / 16))).any()
    assert chain.verdict is lf.Verdict.VIOLATED and chain.certified == float("inf")
    everywhere = replace(second.attention, value=np.full((1, 1, 4), 3e38, "float32"), output=written)
    with pytest.raises(StrangeWeights, match="no finite number"):
        certified(found, replace(found.network, layers=(first, replace(second, attention=everywhere))))


def test_a_head_that_forgets_at_once_is_read_in_no_time() -> None:
    """e^{−p} for p = 10^18 has more bits than a machine has memory."""
    found = built(2, 4, "plateaus", "float32")
    first, second = found.network.layers
    forgetful = replace(first, attention=replace(first.attention, decay=np.array([1e18], "float32")))
    assert certified(found, replace(found.network, layers=(forgetful, second))).certified >= 1


def test_sums_that_are_too_long_are_refused() -> None:
    """γ = mu(1 + 2^{−10}) is no bound for 20000 terms of float32."""
    third = Span(fmpq(1, 3), fmpq(1, 3))
    with pytest.raises(StrangeWeights, match="20000 terms"):
        SpanArithmetic("float32").dot([third] * 20000, [third] * 20000)


@pytest.mark.deep
@pytest.mark.parametrize("restore", WAYS)
def test_attacks(restore: str) -> None:
    """Rude changes, on all sequences: what runs is never off by more than is certified."""
    rng, seen = np.random.default_rng(11), 0
    found = built(2, 3, restore, "float32")
    letters = np.array(list(itertools.product(range(3), repeat=6))).reshape(-1, 3, 2) / 16
    for _ in range(60):
        network = mutated(found.network, rng)
        try:
            chain = certified(found, network)
        except (lf.InputError, lf.Refusal):
            continue
        seen += 1
        errors = np.abs(evaluate(network, letters) - found.target.values(np)(letters))
        assert chain.certified == float("inf") or errors.max() <= chain.certified * (1 + 1e-12)
    assert seen >= 30
