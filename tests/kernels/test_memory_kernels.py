"""Memory kernels from text: values, tails, norms and envelopes against closed forms and long sums."""

import math
from collections.abc import Callable

import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.kernels.l1_norms import DeliveredKernel, Exponentials, Powers, l1_norm, norm_of
from analyzer.kernels.memory_kernels import Envelope, parse_kernel
from analyzer.numbers.exact import lower, upper, working_precision
from analyzer.targets.files import target_from_dict
from analyzer.targets.kernel import KernelMemory
from tests.depth import examples

VALUES: list[tuple[str, Callable[[int], float]]] = [
    ("exp(-s/5)", lambda s: math.exp(-s / 5)),
    ("(s+1)**-2", lambda s: (s + 1) ** -2),
    ("(s+1)**-1.5", lambda s: (s + 1) ** -1.5),
    ("(1+s)*exp(-s/5)", lambda s: (1 + s) * math.exp(-s / 5)),
    ("exp(-(s-8)**2/8)", lambda s: math.exp(-((s - 8) ** 2) / 8)),
    ("cos(s)*exp(-s/3)", lambda s: math.cos(s) * math.exp(-s / 3)),
    ("2*exp(-s/5) - exp(-s/2)", lambda s: 2 * math.exp(-s / 5) - math.exp(-s / 2)),
    ("sin(1 - 2*s)/(3*s + 2)**2.5", lambda s: math.sin(1 - 2 * s) / (3 * s + 2) ** 2.5),
    ("(1 - 2*s)**3*exp(-s)", lambda s: (1 - 2 * s) ** 3 * math.exp(-s)),
    ("s/(s+1)**4/2", lambda s: s / (s + 1) ** 4 / 2),
    ("sqrt(s+1)**-5 * exp(-s/2)**2", lambda s: (s + 1) ** -2.5 * math.exp(-s)),
    ("(exp(-s) - 0.5*exp(-2*s))**2", lambda s: (math.exp(-s) - 0.5 * math.exp(-2 * s)) ** 2),
]
BAD = [
    "", "s", "1", "0", "s-s", "s**-1", "nan", "inf", "1e400", "x", "exp(s)", "exp(-s", "s**-2+", "exp(exp(s))", "exp(-s**3)",
    "(s**2+1)**-1", "(s-3)**-2", "(s-3)**-1.5", "(s-2.5)**-1.5", "(1-s)**-2", "(-s)**-2.5", "exp(-1e-9*s)", "1e99*exp(-s)", "2**-s",
    "exp(-(s-100000)**2)", "exp(-s/1000)*s**20", "s**1e9", "'a'", "True*exp(-s)", "1j*exp(-s)", "__import__('os').getpid()", "exp(-s)[0]",
    "exp(-s, 1)", "s**-2 if s else 0", "(0*s)**-1", "2**0.5*exp(-s)", "exp(-s)" * 400, "(" * 900 + "s" + ")" * 900, "sin(s)", "exp(-s)**-1",
]  # fmt: skip


@pytest.mark.parametrize("text,function", VALUES, ids=[t for t, _ in VALUES])
def test_values(text: str, function: Callable[[int], float]) -> None:
    kernel = parse_kernel(text)
    with working_precision(128):
        for s in (0, 1, 2, 7, 30):
            assert float(kernel.value(s)) == pytest.approx(function(s), rel=1e-12)


@pytest.mark.parametrize("text", BAD, ids=lambda t: t[:25])
def test_bad_kernels_are_refused_in_one_line(text: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_kernel(text)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 250


def test_what_is_undefined_at_zero_counts_as_zero_there() -> None:
    kernel = parse_kernel("s**-2")
    assert kernel.value(0).is_zero() and kernel.value(1) == 1 and not kernel.at_zero
    assert parse_kernel("(s+1)**-2").at_zero


Z = math.exp(-0.2)
NORMS = [
    ("exp(-s/5)", 1 / (1 - Z)),
    ("s**-2", math.pi**2 / 6),
    ("(s+1)**-2", math.pi**2 / 6),
    ("(s+1)**-1.5", 2.612375348685488),
    ("(1+s)*exp(-s/5)", 1 / (1 - Z) ** 2),
    ("exp(-s/10000)", 1 / (1 - math.exp(-1e-4))),
    ("exp(-(s-8)**2/8)", sum(math.exp(-((s - 8) ** 2) / 8) for s in range(60))),
    ("cos(s)*exp(-s/3)", sum(abs(math.cos(s)) * math.exp(-s / 3) for s in range(200))),
    ("exp(-s/500)*sin(s/100)", sum(abs(math.sin(s / 100)) * math.exp(-s / 500) for s in range(20000))),
]


@pytest.mark.parametrize("text,norm", NORMS, ids=[t for t, _ in NORMS])
def test_norms(text: str, norm: float) -> None:
    with working_precision(128):
        found = norm_of(parse_kernel(text))
    assert lower(found.least) <= norm * (1 + 1e-12) and norm * (1 - 1e-12) <= upper(found.most)
    assert upper(found.most) - lower(found.least) <= 1e-3 * norm


@pytest.mark.parametrize(
    "text,power,rate,total",
    [
        ("exp(-s/5)", fmpq(0), fmpq(1, 10), 1 / (1 - math.exp(-0.1))),
        ("s**-5", fmpq(5, 2), fmpq(0), 1.341487257250917),  # ζ(5/2)
        ("exp(-s/5)", fmpq(1), fmpq(0), 1 + Z / (1 - Z) ** 2),
    ],
)
def test_weighted_sums(text: str, power: fmpq, rate: fmpq, total: float) -> None:
    with working_precision(128):
        found = upper(parse_kernel(text).total(power, rate))
    assert total * (1 - 1e-12) <= found <= 1.01 * total


def test_weights_that_are_too_heavy_give_no_number() -> None:
    assert not parse_kernel("exp(-s/5)").total(rate=fmpq(1, 5)).is_finite()
    assert not parse_kernel("s**-3").total(power=fmpq(2)).is_finite()


@given(
    q=st.sampled_from(["0", "1", "2", "-0.5", "-3"]),
    shift=st.integers(0, 5),
    rate=st.sampled_from(["s/2", "s/20", "s**2/50 - s/5", "(s-9)**2/30"]),
    start=st.integers(20, 80),
)
@settings(max_examples=examples(40), deadline=None)
def test_tails_are_upper_bounds(q: str, shift: int, rate: str, start: int) -> None:
    kernel = parse_kernel(f"(s + {shift + 1})**{q} * exp(-({rate}))")
    with working_precision(96):
        summed = sum((abs(kernel.value(s)) for s in range(start, start + 400)), arb(0))
        tail = kernel.tail(start)
        assert summed.lower() <= tail.upper()
        assert tail <= 40 * summed + arb(2) ** -60 or (not tail.is_finite() and start < 40)


@pytest.mark.parametrize("rpe", ["lin", "log"])
@given(data=st.data())
@settings(max_examples=examples(12), deadline=None)
def test_error_kernels_on_blocks(rpe: str, data: st.DataObject) -> None:
    """κ − ρ with sign changes and a heavy tail: the enclosure against a sum of 40000 terms and what the integral leaves."""
    decays = data.draw(st.lists(st.integers(1, 400), min_size=1, max_size=3, unique=True))
    weights = [data.draw(st.integers(-20, 20).filter(bool)) / 64 for _ in decays]
    memory = parse_kernel("(s+1)**-2.5")
    with working_precision(128):
        if rpe == "lin":
            group: Exponentials | Powers = Exponentials(
                tuple((-arb(fmpq(p, 200))).exp() for p in decays), tuple(arb(fmpq(*w.as_integer_ratio())) for w in weights)
            )
            terms = [(w, lambda s, p=p: math.exp(-p * s / 200)) for p, w in zip(decays, weights, strict=True)]
        else:
            group = Powers(tuple(2 + fmpq(p, 100) for p in decays), tuple(arb(fmpq(*w.as_integer_ratio())) for w in weights))
            terms = [(w, lambda s, p=p: s ** -(2 + p / 100) if s else 0.0) for p, w in zip(decays, weights, strict=True)]
        norm = l1_norm(DeliveredKernel(fmpq(0), (group,), subtracted=((fmpq(1), memory),)))
    count = 40_000
    partial = math.fsum(abs(sum(w * k(s) for w, k in terms) - (s + 1) ** -2.5) for s in range(count))
    left = sum(abs(w) for w in weights) / count * 1.1 + count**-1.5
    assert lower(norm.least) <= partial + left
    assert upper(norm.most) >= partial * (1 - 1e-9)
    assert upper(norm.most) - lower(norm.least) <= 1e-3 * partial + 1e-12


def test_envelopes() -> None:
    for text, shape in (("exp(-s/5)", "exponential"), ("(1+s)*exp(-s/5)", "exponential"), ("(s+1)**-1.5", "power")):
        kernel = parse_kernel(text)
        envelope = kernel.envelope
        assert envelope.shape == shape
        kernel.check_envelope(envelope)
        tight = Envelope(envelope.shape, envelope.rate, envelope.constant * fmpq(99, 100))
        with pytest.raises(InputError, match="does not hold"):
            kernel.check_envelope(tight)
        with pytest.raises(InputError, match="does not hold"):
            kernel.check_envelope(Envelope(envelope.shape, envelope.rate * fmpq(11, 10), envelope.constant * 1000))


def test_what_is_exact() -> None:
    assert parse_kernel("2*exp(-s/5) - exp(-s/2)").exact_decays("lin") == [fmpq(1, 5), fmpq(1, 2)]
    assert parse_kernel("3*s**-2 + (2*s)**-3").exact_decays("log") == [2, 3]
    assert parse_kernel("(s+1)**-2").exact_decays("log") == []
    assert parse_kernel("(1+s)*exp(-s/5)").exponentials() == [(fmpq(1, 5), 1)]
    assert parse_kernel("exp(-s**2)").exponentials() is None


def test_targets_round_trip() -> None:
    data = {"kind": "kernel", "dim": 2, "kernels": ["exp(-s/5)", "(s+1)**-2"], "readout": "k1[0]*k2[1]"}
    claims = [{"shape": "exponential", "rate": "1*2^-3", "constant": "1"}, {"shape": "power", "rate": "2", "constant": "5*2^-2"}]
    target = target_from_dict(data | {"envelopes": claims}, "test")
    assert isinstance(target, KernelMemory) and target.describe() == data | {"envelopes": claims}
    assert target_from_dict(target.describe(), "test") == target
    for broken in (
        {"kernels": "exp(-s)"}, {"kernels": []}, {"kernels": ["exp(-s)", "exp(-s)"]}, {"lags": [1]}, {"readout": 3}, {"dim": 0},
        {"envelopes": [{"shape": "power"}]}, {"envelopes": claims[:1]}, {"envelopes": [claims[0] | {"constant": "1*2^-1"}, claims[1]]},
        {"envelopes": [claims[0] | {"rate": True}, claims[1]]}, {"readout": "m1"},
    ):  # fmt: skip
        with pytest.raises(InputError):
            target_from_dict(data | broken, "test")


def test_memories_are_convolutions() -> None:
    target = KernelMemory(("exp(-s/5)", "s**-2"), dim=2)
    tokens = [[arb(1), arb(0)], [arb(0), arb(-1)], [arb(fmpq(1, 2)), arb(0)]]
    found = [float(v) for v in target.memories(tokens)]
    assert found == pytest.approx([1, 0, 1 + Z**2 / 2, -Z, 1 / 8, -1])
    assert [float(r) for r in target.radii()] == pytest.approx([1, 1, *[1 / (1 - Z)] * 2, *[math.pi**2 / 6] * 2], rel=1e-3)
    assert max(float(point[2]) for point in target.attained()) == pytest.approx(1 / (1 - Z))
