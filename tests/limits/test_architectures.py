"""One kernel, several architectures: closed forms, random networks that must not beat the bounds, and damage that must be seen."""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.kernels.l1_norms import Modes, tail_of
from analyzer.kernels.memory_kernels import MemoryKernel, parse_kernel
from analyzer.limits.curse_of_memory import parameters, state_bound, window_error
from analyzer.limits.hankel import LowerBound, check_lower_bound
from analyzer.numbers.exact import lower, nearest, upper, working_precision
from constructions.banks.state_spaces import StateSpace, realised_space, space_error
from lemmaformer.results.limits import ArchitecturesTable
from tests.depth import examples
from verify.limits import architectures
from verify.limits.architectures import above, below, completely_monotone, consistent, enough, needed, pairs

KERNELS = ["exp(-s/2)", "cos(s)*exp(-s/3)", "(1+s)*exp(-s/5)", "exp(-(s-8)**2/8)", "2*exp(-s/5) - exp(-s/2)", "(s+1)**-2", "s**-2.5"]
WINDOW = 400
"""Tokens of the random networks below: sections of up to 192 rows look at 383."""
VALUES = {text: np.array([float(v) for v in parse_kernel(text).values(0, WINDOW)]) for text in KERNELS}
FADING = KERNELS[1:5]
CLASSES = [(text, states, skip) for text in FADING for states in (1, 3) for skip in (False, True)]
FLOORS = {(text, states, skip): state_bound(parse_kernel(text), states, skip) for text, states, skip in CLASSES}


@pytest.mark.parametrize("window", [1, 2, 7, 40])
def test_a_window_on_an_exponential_errs_by_its_tail(window: int) -> None:
    """ρ(s) = z^s: z^w/(1−z), exactly."""
    z = math.exp(-0.5)
    for side in (below, above):
        assert side("cnn", parse_kernel("exp(-s/2)"), window).value == pytest.approx(z**window / (1 - z), rel=1e-14)
    with working_precision(192):
        least, most = window_error(parse_kernel("exp(-s/2)"), window)
        exact = arb(fmpq(-window, 2)).exp() / (1 - arb(fmpq(-1, 2)).exp())
        assert least <= exact.upper() and exact.lower() <= most and most - least < arb(2) ** -150


def test_one_state_is_exact_for_an_exponential() -> None:
    for name in ("rnn", "ssm", "lin"):
        (pair,) = pairs(parse_kernel("exp(-s/2)"), name, (1,))  # type: ignore[arg-type]
        assert pair.below.value == 0 and pair.above.value < 1e-30
    assert above("log", parse_kernel("s**-2"), 1).value < 1e-12


@pytest.mark.deep
def test_two_states_follow_a_wave_that_heads_cannot() -> None:
    wave = parse_kernel("cos(s)*exp(-s/3)")
    assert below("ssm", wave, 1).value > 0.6 and above("ssm", wave, 2).value < 1e-14 and above("rnn", wave, 2).value < 1e-13
    assert below("lin", wave, 2).value > 0.28 and below("log", wave, 2).value > 0.28


@given(st.sampled_from(KERNELS), st.integers(0, 300))
@settings(max_examples=examples(60), deadline=None)
def test_tails_are_enclosed(text: str, start: int) -> None:
    kernel = parse_kernel(text)
    with working_precision(128):
        least, most = tail_of(kernel, start)
        summed = sum((abs(v) for v in kernel.values(start, start + 600)), arb(0))
        assert least.lower() <= (summed + kernel.tail(start + 600)).upper() and summed.lower() <= most.upper()
        assert most - least <= most * arb(2) ** -12


@given(st.sampled_from(KERNELS[:6]), st.integers(1, 200))
@settings(max_examples=examples(40), deadline=None)
def test_delayed_kernels_come_one_token_later(text: str, s: int) -> None:
    kernel = parse_kernel(text)
    with working_precision(128):
        assert abs(kernel.delayed().value(s) - kernel.value(s - 1)) < arb(2) ** -90
    with pytest.raises(lf.InputError, match="s = 0"):
        parse_kernel("s**-2.5").delayed()


@given(st.sampled_from(sorted(FLOORS)), st.integers(0, 2**32 - 1), st.floats(0.05, 0.999), st.floats(0.5, 1.5))
@settings(max_examples=examples(300, 60), deadline=None)
def test_no_recurrence_beats_its_floor(known: tuple[str, int, bool], seed: int, radius: float, scale: float) -> None:
    """Random real W, poles complex or not, U at random, read out by least squares, then off by a factor: ‖κ − ρ‖₁ on a window."""
    text, states, skip = known
    random, values = np.random.default_rng(seed), VALUES[text]
    transition = random.normal(size=(states, states))
    transition *= radius / np.abs(np.linalg.eigvals(transition)).max()
    moments = [random.normal(size=states)]
    for _ in range(WINDOW - 1):
        moments.append(transition @ moments[-1])
    first = 1 if skip else 0
    functions, wanted = np.array(moments)[first:], values[first:]
    read = np.linalg.lstsq(functions, wanted, rcond=None)[0]
    for weights in (read, scale * read, np.zeros(states)):
        assert np.abs(functions @ weights - wanted).sum() >= FLOORS[known].value * (1 - 1e-9)


@given(st.sampled_from(KERNELS), st.integers(1, 20), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(60), deadline=None)
def test_no_function_of_a_window_beats_the_tail(text: str, window: int, seed: int) -> None:
    """Whatever is answered to a window, one of two pasts with this window is missed by the tail."""
    random, values = np.random.default_rng(seed), VALUES[text]
    seen = random.uniform(-1, 1, window)
    answered = math.tanh(float(random.normal(size=window) @ seen)) + float(random.normal())
    wanted = [float(values[:window] @ seen + sign * np.abs(values[window:]).sum()) for sign in (-1, 1)]
    beyond = upper(parse_kernel(text).tail(WINDOW))
    assert max(abs(answered - want) for want in wanted) >= below("cnn", parse_kernel(text), window).value - beyond - 1e-12


ENTRIES = st.integers(-900, 900).map(lambda k: fmpq(k, 1000))


@given(st.lists(st.tuples(ENTRIES, ENTRIES, ENTRIES, ENTRIES), min_size=1, max_size=3), st.sampled_from(KERNELS))
@settings(max_examples=examples(40), deadline=None)
def test_errors_of_state_spaces_are_enclosed(parts: Sequence[tuple[fmpq, fmpq, fmpq, fmpq]], text: str) -> None:
    """Against the recurrence itself in floating point, on the window, for any poles inside the circle."""
    poles = tuple((a, abs(b) * fmpq(2, 5)) for a, b, _, _ in parts)  # |z|² ≤ 0.81 + 0.13
    space = StateSpace(poles, tuple((p, q if b != 0 else fmpq(0)) for (_, b), (_, _, p, q) in zip(poles, parts, strict=True)), fmpq(1, 3))
    found, run = space_error(space, parse_kernel(text)), response(space, WINDOW)
    summed = float(np.abs(run - VALUES[text]).sum())
    beyond = upper(parse_kernel(text).tail(WINDOW)) + 12 * 0.97**WINDOW / 0.03
    assert lower(found.least) <= summed + beyond + 1e-9 and summed <= upper(found.most) + 1e-9


def response(space: StateSpace, length: int) -> np.ndarray:
    """κ(0), κ(1), … by running h_t = W h_{t−1} + U x_t on an impulse."""
    transition, entered, read = space.matrices()
    matrix, state = np.array([[nearest(v) for v in row] for row in transition]), np.array([nearest(v) for v in entered])
    weights, result = np.array([nearest(v) for v in read]), []
    for _ in range(length):
        result.append(float(weights @ state))
        state = matrix @ state
    return np.array(result) + nearest(space.skip) * (np.arange(length) == 0)


@pytest.mark.deep(keep="cos(s)*exp(-s/3)-2")
@pytest.mark.parametrize("text,states", [("exp(-(s-8)**2/8)", 4), ("cos(s)*exp(-s/3)", 2)])
def test_realisations_reach_what_is_said(text: str, states: int) -> None:
    """The worst sequence of signs, run through the recurrence, errs by the certified number."""
    kernel, space = parse_kernel(text), realised_space(parse_kernel(text), states)
    assert space is not None and space.states <= states
    error = response(space, WINDOW) - VALUES[text]
    certified = space_error(space, kernel)
    assert lower(certified.least) - 1e-12 <= float(np.abs(error).sum()) <= upper(certified.most) + 1e-12
    assert below("ssm", kernel, states).value <= above("ssm", kernel, states).value <= upper(certified.most)


def test_a_changed_weight_is_seen() -> None:
    kernel = parse_kernel("cos(s)*exp(-s/3)")
    space = realised_space(kernel, 2)
    assert space is not None
    for change in (fmpq(1, 10**6), fmpq(-1, 10**9)):
        ((p, q),) = space.weights
        spoilt = StateSpace(space.poles, ((p + change, q),), space.skip)
        assert lower(space_error(spoilt, kernel).least) > upper(space_error(space, kernel).most) + 0.9 * abs(nearest(change))


def test_a_tail_left_out_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """ρ = 0.99^s nearly, one pole that is a little too slow: without tails the certificate falls below what the window shows."""
    kernel, space = parse_kernel("exp(-s/100)"), StateSpace(((fmpq(999, 1000), fmpq(0)),), ((fmpq(1), fmpq(0)),), fmpq(0))
    exact = float(np.abs(0.999 ** np.arange(20000) - np.exp(-np.arange(20000) / 100)).sum())
    assert upper(space_error(space, kernel).most) >= exact * (1 - 1e-9)
    monkeypatch.setattr(Modes, "tail", lambda *_: arb(0))
    monkeypatch.setattr(MemoryKernel, "tail", lambda *_: arb(0))
    assert upper(space_error(space, kernel).most) < exact


def test_a_spoilt_bank_is_certified_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    kernel, honest = parse_kernel("2*exp(-s/7)"), architectures.fitted_bank
    assert above("lin", kernel, 2).value < 1e-30

    def spoilt(*given: Any) -> Any:
        bank = honest(*given)
        return replace(bank, weights=(tuple(a + fmpq(1, 1000) for a in bank.weights[0]),))

    monkeypatch.setattr(architectures, "fitted_bank", spoilt)
    assert above("lin", kernel, 3).value >= 1e-3 * math.exp(-1 / 7)  # a head's kernel adds up to e^{−p} on s ≥ 1


@pytest.mark.parametrize("skip", [False, True])
def test_a_floor_that_is_too_high_is_not_shown(skip: bool) -> None:
    kernel = parse_kernel("exp(-(s-8)**2/8)")
    found, seen = state_bound(kernel, 3, skip), kernel if skip else kernel.delayed()
    assert found.value > 0 and check_lower_bound(seen, "lin", 3, found)
    assert not check_lower_bound(seen, "lin", 3, LowerBound(found.claim * fmpq(1001, 1000), found.kind, found.edges, found.vectors))


@pytest.mark.deep
def test_the_skip_decides_the_matrix() -> None:
    """ρ(0) = 10⁴, far above the rest: a linear RNN pays for it with a state, an SSM does not."""
    kernel = parse_kernel("(s+1/100)**-2")
    assert below("rnn", kernel, 1).value > 3 * below("ssm", kernel, 1).value
    assert state_bound(kernel, 2, skip=False).value <= above("ssm", kernel, 1).value


def test_rows_that_contradict_each_other_are_seen() -> None:
    """lower ≤ upper in every row, and of every class against those that it contains."""
    names = [(name, size) for name in architectures.ARCHITECTURES for size in (1, 2)]
    rows = [{"architecture": name, "size": size, "lower": 0.1, "upper": 0.5} for name, size in names]
    assert consistent(rows)
    small = {("cnn", 1): "", ("rnn", 1): "ssm", ("ssm", 1): "rnn", ("lin", 2): "ssm", ("cnn", 2): "rnn"}
    for place, larger in small.items():
        changed = [row | {"upper": 0.2, "lower": 0.01} if (row["architecture"], row["size"]) == place else row for row in rows]
        for row in changed:
            row["lower"] = 0.3 if row["architecture"] == larger or (not larger and row["architecture"] == "cnn") else row["lower"]
        assert not consistent(changed), place
    assert not ArchitecturesTable({"rows": rows, "architectures": [], "order": False}).holds


@pytest.mark.deep
def test_sizes_for_an_error() -> None:
    found = lf.limits.architectures("exp(-s/2)", sizes=(1, 2), error=0.01)
    assert found.holds and found.needs == {"rnn": 1, "ssm": 1, "cnn": 12, "lin": 1, "log": 3}
    assert found.enough["cnn"] == 12 and found.enough["rnn"] == 1 and (found.enough["log"] or 0) >= 3


@pytest.mark.deep
@pytest.mark.parametrize("error", ["0.1", "0.01", "0.001"])
def test_the_table_of_the_tour(error: str) -> None:
    page = (Path(__file__).parent.parent.parent / "docs" / "tour.md").read_text(encoding="utf-8")
    cells = []
    for name in architectures.ARCHITECTURES:
        found = architectures.sizes_for(name, parse_kernel("s**-2"), float(error))
        ends = found["needs"], found["enough"]
        cells.append(str(ends[0]) if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}")
    assert f"| {error} | {' | '.join(cells)} |" in page


def test_parameters_are_counted_as_said() -> None:
    assert [parameters(name, 4) for name in architectures.ARCHITECTURES] == [8, 9, 4, 9, 9]


@pytest.mark.deep
def test_the_curse_of_memory() -> None:
    """A power law: states and windows grow as the error falls, one log head does not."""
    kernel, errors = parse_kernel("s**-2"), (0.1, 0.01, 0.001)
    assert [needed("cnn", kernel, error) for error in errors] == [enough("cnn", kernel, error, 1) for error in errors] == [11, 101, 1001]
    states = [needed("ssm", kernel, error) for error in errors]
    assert states[0] < states[1] < states[2] and states == [needed("lin", kernel, error) for error in errors]
    assert all(enough("log", kernel, error, needed("log", kernel, error)) == 1 for error in errors)
    assert needed("cnn", parse_kernel("s**-1.02"), 0.01) == architectures.WIDEST + 1
    assert enough("cnn", parse_kernel("s**-1.02"), 0.01, 1) is None
    assert needed("ssm", kernel, 10.0) == needed("log", kernel, 10.0) == 0 == enough("ssm", kernel, 10.0, 0)


def test_sizes_beyond_the_search_keep_what_is_known() -> None:
    kernel = parse_kernel("exp(-s/2)")
    assert below("ssm", kernel, 1000).value == 0 and above("ssm", kernel, 1000).value < 1e-30 and below("cnn", kernel, 1000).value > 0
    assert [completely_monotone(parse_kernel(text)) for text in KERNELS] == [True, False, False, False, False, True, True]


@pytest.mark.deep
@pytest.mark.parametrize("text", [*KERNELS, "cos(s)*(s+1)**-2", "-exp(-s/50)*cos(s/10)", "(s+1)**-1.5"])
def test_both_sides_of_every_class(text: str) -> None:
    found = lf.limits.architectures(text, sizes=(1, 2, 3, 4, 8), error=0.05)
    assert found.holds and len(found.rows) == 25
    for name, least in found.needs.items():
        most = found.enough[name]
        assert most is None or least <= most
    for name in architectures.ARCHITECTURES:
        rows: Any = [row for row in found.rows if row["architecture"] == name]
        for side in ("lower", "upper"):
            assert [row[side] for row in rows] == sorted((row[side] for row in rows), reverse=True)


@pytest.mark.deep
def test_the_command(run: Callable[..., Any]) -> None:
    shown = run("limits", "architectures", "--kernel", "exp(-s)", "--sizes", "2,1", "--error", "0.01")
    words = ("linear RNN", "SSM", "CNN", "Transformer, log", "needs at least", "w = 2")
    assert shown.code == 0 and all(word in shown.out for word in words)
    answer = run("limits", "architectures", "--kernel", "exp(-s)", "--sizes", "2,1", "--json").json
    assert answer["sizes"] == [1, 2] and answer["error"] is None and len(answer["rows"]) == 10 and answer["order"] is True
    assert set(answer["rows"][0]) == {"architecture", "size", "parameters", "lower", "upper", "lower_by", "upper_by"}
    assert set(answer["architectures"][0]) == {"architecture", "label", "counts", "about"}


@pytest.mark.parametrize(
    "kernel,options,words",
    [
        ("s**-1", {}, "not summable"),
        ("exp(s)", {}, "not summable"),
        ("exp(-s)*", {}, "kernel"),
        ("__import__('os')", {}, "not allowed"),
        ("exp(-s)", {"sizes": ()}, "sizes is ''; give 1 to 16"),
        ("exp(-s)", {"sizes": (0, 1)}, "sizes is '0,1'"),
        ("exp(-s)", {"sizes": (1, 5000)}, "between 1 and 4096"),
        ("exp(-s)", {"sizes": tuple(range(1, 18))}, "give 1 to 16"),
        ("exp(-s)", {"sizes": "many"}, "sizes is 'many'; give several whole numbers"),
        ("exp(-s)", {"sizes": (True,)}, "sizes is"),
        ("exp(-s)", {"error": 0}, "error 0.0 is out of range"),
        ("exp(-s)", {"error": float("nan")}, "error is nan"),
        ("exp(-s)", {"heads": 3}, "unknown option 'heads'"),
    ],
)
def test_bad_input_is_one_line(kernel: str, options: dict[str, Any], words: str) -> None:
    with pytest.raises(lf.InputError) as caught:
        lf.limits.architectures(kernel, **options)
    assert words in str(caught.value) and "\n" not in str(caught.value)
