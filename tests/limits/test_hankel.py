"""Lower bounds for kernels: closed forms, brute force, and certificates that must fail when touched."""

import itertools
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError
from analyzer.kernels.memory_kernels import parse_kernel
from analyzer.limits.hankel import (
    BITS,
    LowerBound,
    antidifference,
    check_lower_bound,
    hankel_section,
    lower_bound,
    section_bound,
    sign_bound,
)
from analyzer.numbers.exact import working_precision
from tests.depth import examples
from verify.limits.hankel import check_kernel_certificate, kernel_certificate


def test_sections_of_rank_one_have_their_closed_singular_value() -> None:
    """H = 0: σ_1 of (z^{i+j+1}) is z/(1−z²), of ((mn)^{−2}), m, n ≤ N, Σ m^{−4}."""
    z = math.exp(-0.5)
    assert section_bound(parse_kernel("exp(-s/2)"), "lin", 0).value == pytest.approx(z / (1 - z * z), rel=1e-8)
    assert section_bound(parse_kernel("s**-2"), "log", 0).value == pytest.approx(sum(m**-4 for m in range(1, 65)), rel=1e-8)
    for text, rpe in (("exp(-s/2)", "lin"), ("s**-2", "log")):
        assert lower_bound(parse_kernel(text), rpe, 1).value <= 1e-12


@pytest.mark.parametrize("text", ["(s+1)**-1.5", "(s+1)**-2", "(2*s+3)**-3.5", "exp(-s/3) - 2*s**-2.5"])
def test_block_entries_are_sums(text: str) -> None:
    kernel = parse_kernel(text)
    edges = (0, 1, 2, 4, 9, 20)
    with working_precision(BITS):
        section = hankel_section(kernel, edges)
        for (i, (a, b)), (j, (c, d)) in itertools.product(enumerate(itertools.pairwise(edges)), repeat=2):
            total = sum((kernel.value(k + m + 1) for k in range(a, b) for m in range(c, d)), arb(0))
            assert abs(section[i][j] - total / arb((b - a) * (d - c)).sqrt()) < arb(2) ** -180
        second = [antidifference(kernel, n) for n in (7, 8, 9)]
        assert abs(second[0] - 2 * second[1] + second[2] - kernel.value(7)) < arb(2) ** -180


@pytest.mark.deep(keep="exp(-(s-8)**2/8)-60")
@pytest.mark.parametrize("text,plain", [("(s+1)**-2", 400), ("(s+1)**-1.5", 400), ("exp(-(s-8)**2/8)", 60)])
def test_blocks_see_more_than_plain_sections(text: str, plain: int) -> None:
    kernel = parse_kernel(text)
    values = np.array([float(kernel.value(s)) for s in range(1, 2 * plain)])
    singular = np.linalg.svd(values[np.add.outer(np.arange(plain), np.arange(plain))], compute_uv=False)
    for heads in (1, 3, 5):
        assert lower_bound(kernel, "lin", heads).value >= singular[heads] * (1 - 1e-3)


KERNELS = ["(s+1)**-2", "(s+1)**-1.5", "(1+s)*exp(-s/5)", "exp(-(s-8)**2/8)", "cos(s)*exp(-s/3)", "2*exp(-s/5) - exp(-s/2)"]
KNOWN = {
    (text, rpe, heads): lower_bound(parse_kernel(text), rpe, heads) for text in KERNELS[3:] for rpe in ("lin", "log") for heads in (1, 3)
}


@given(st.sampled_from(sorted(KNOWN)), st.data())
@settings(max_examples=examples(150), deadline=None)
def test_no_bank_beats_the_bound(known: tuple[str, str, int], data: st.DataObject) -> None:
    """Random decays, weights by least squares: the ℓ¹ error on a window never falls below the bound."""
    text, rpe, heads = known
    decays = np.array([data.draw(st.floats(0.02, 6)) for _ in range(heads)])
    kernel = parse_kernel(text)
    s = np.arange(1, 120)
    wanted = np.array([float(kernel.value(int(v))) for v in s])
    columns = np.exp(-np.outer(s, decays)) if rpe == "lin" else np.array(s, float)[:, None] ** -(1 + decays)
    scales = np.array([data.draw(st.floats(0.3, 1.5)), 1.0])
    for scale in scales:
        weights = scale * np.linalg.lstsq(columns, wanted, rcond=None)[0]
        assert np.abs(columns @ weights - wanted).sum() >= KNOWN[known].value * (1 - 1e-9)


@given(st.lists(st.integers(-8, 8), min_size=1, max_size=8), st.integers(1, 4))
@settings(max_examples=examples(60), deadline=None)
def test_signs_by_brute_force(sizes: list[int], heads: int) -> None:
    from unittest.mock import Mock

    kernel = Mock(values=lambda start, stop: [arb(v) for v in sizes])
    patterns = [p for p in itertools.product((-1, 1), repeat=len(sizes)) if sum(a != b for a, b in itertools.pairwise(p)) < heads]
    least = min(sum(abs(v) for v, sign in zip(sizes, p, strict=True) if v * sign < 0) for p in patterns)
    assert sign_bound(kernel, heads, len(sizes)) == least


def test_oscillating_kernels_are_bounded_by_their_signs() -> None:
    """cos(s) e^{−s/3} has a Hankel matrix of rank 2: only the signs see that real decays cannot follow it."""
    kernel = parse_kernel("cos(s)*exp(-s/3)")
    assert section_bound(kernel, "lin", 2).value <= 1e-12
    found = lower_bound(kernel, "lin", 2)
    assert found.kind == "signs" and found.value > 0.28
    assert check_lower_bound(kernel, "lin", 2, found)
    assert not check_lower_bound(kernel, "lin", 2, LowerBound(found.claim * fmpq(101, 100), "signs", found.edges))


@pytest.mark.parametrize("text,rpe", [("(s+1)**-2", "lin"), ("exp(-s/5)", "log")])
def test_a_claim_that_is_too_high_is_not_shown(text: str, rpe: Any) -> None:
    kernel = parse_kernel(text)
    found = section_bound(kernel, rpe, 2, 24)
    assert found.value > 0 and check_lower_bound(kernel, rpe, 2, found)
    assert not check_lower_bound(kernel, rpe, 2, LowerBound(found.claim * fmpq(1001, 1000), found.kind, found.edges, found.vectors))
    turned = (found.vectors[0], found.vectors[0], *found.vectors[2:])
    assert not check_lower_bound(kernel, rpe, 2, LowerBound(found.claim, found.kind, found.edges, turned))
    for broken in (
        LowerBound(found.claim, "helson" if rpe == "lin" else "hankel", found.edges, found.vectors),
        LowerBound(found.claim, found.kind, found.edges[::-1], found.vectors),
        LowerBound(found.claim, found.kind, found.edges, found.vectors[1:]),
        LowerBound(-found.claim, found.kind, found.edges, found.vectors),
        LowerBound(found.claim, found.kind, (), found.vectors),
    ):
        with pytest.raises(InputError):
            check_lower_bound(kernel, rpe, 2, broken)


@pytest.mark.deep
@pytest.mark.parametrize("heads", [1, 2, 3, 4])
def test_the_two_sides_of_an_inverse_square(run: Callable[..., Any], heads: int) -> None:
    answer = run("limits", "kernel", "--kernel", "(s+1)**-2", "--heads", heads, "--json").json
    assert {"lower", "upper", "ratio", "section", "decays", "kernel", "rpe", "heads"} <= set(answer)
    assert 0 < answer["lower"] < answer["upper"] and answer["ratio"] <= 7 and len(answer["decays"]) == heads
    known = {1: 0.1697, 2: 0.05405, 3: 0.02059, 4: 0.008394}
    assert answer["upper"] <= known[heads]


@pytest.mark.deep(keep="(1+s)*exp(-s/5)-None-2")
@pytest.mark.parametrize("heads", [2, 4, 6, 8])
@pytest.mark.parametrize("text,most", [("(s+1)**-1.5", 14), ("exp(-(s-8)**2/8)", 600), ("(1+s)*exp(-s/5)", None)])
def test_both_sides_are_certified(run: Callable[..., Any], text: str, most: float | None, heads: int) -> None:
    answer = run("limits", "kernel", "--kernel", text, "--heads", heads, "--json").json
    if most is None:  # a limit of two exponentials: nothing is out of reach
        assert answer["lower"] == 0 and answer["ratio"] is None and answer["upper"] <= 1e-12 and "infimum" in answer["note"]
    else:
        assert 0 < answer["lower"] <= answer["upper"] and answer["ratio"] <= most


@pytest.mark.deep
def test_one_head_is_exact(run: Callable[..., Any]) -> None:
    for text, rpe in (("exp(-s/5)", "lin"), ("s**-2", "log"), ("3*exp(1-s/7)", "lin")):
        answer = run("limits", "kernel", "--kernel", text, "--heads", 1, "--rpe", rpe, "--json").json
        assert answer["upper"] <= 1e-12 and answer["heads_used"] == 1
    assert "fitted bank" in run("limits", "kernel", "--kernel", "exp(-s/5)", "--heads", 1).out


@pytest.fixture(scope="module")
def certificate() -> dict[str, Any]:
    return kernel_certificate("exp(-(s-3)**2)", "lin", 2)


def test_certificates_are_plain_data(certificate: dict[str, Any]) -> None:
    read = json.loads(json.dumps(certificate))
    assert read == certificate
    checked = check_kernel_certificate(read)
    assert checked["faults"] == [] and checked["lower"] == certificate["lower"]
    assert checked["upper"] <= certificate["upper"] <= checked["upper"] * (1 + 2.0**-19)


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["primal"]["weights"].__setitem__(0, "1"),
        lambda c: c["primal"]["decays"].__setitem__(0, "1"),
        lambda c: c["primal"].update(residual="7"),
        lambda c: c["dual"].update(claim="1000"),
        lambda c: c["dual"]["vectors"].__setitem__(0, c["dual"]["vectors"][1]),
        lambda c: c.update(kernel="exp(-(s-4)**2)"),
        lambda c: c.update(lower=c["lower"] * 1.01),
        lambda c: c.update(upper=c["upper"] * 0.99),
        lambda c: c.update(upper=None),
    ],
)
def test_false_certificates_are_caught(certificate: dict[str, Any], change: Callable[[dict[str, Any]], Any]) -> None:
    data = json.loads(json.dumps(certificate))
    change(data)
    assert check_kernel_certificate(data)["faults"]


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c.update(format="other"),
        lambda c: c.update(kernel="exp(s)"),
        lambda c: c.update(kernel=3),
        lambda c: c.update(rpe="cubic"),
        lambda c: c.update(heads=0),
        lambda c: c.update(heads=True),
        lambda c: c.update(primal=[]),
        lambda c: c["primal"].update(decays=["-1", "2"]),
        lambda c: c["primal"].update(weights=["1"]),
        lambda c: c["primal"].update(weights=[0.5, 1.5]),
        lambda c: c["primal"].update(residual="1/0"),
        lambda c: c.update(dual=None),
        lambda c: c["dual"].update(edges=[3, 1]),
        lambda c: c["dual"].update(vectors=[[1.5]]),
        lambda c: c["dual"].update(vectors=7),
        lambda c: c["dual"].update(claim="x"),
    ],
)
def test_malformed_certificates_are_refused(certificate: dict[str, Any], change: Callable[[dict[str, Any]], Any]) -> None:
    data = json.loads(json.dumps(certificate))
    change(data)
    with pytest.raises(InputError):
        check_kernel_certificate(data)
    with pytest.raises(InputError):
        check_kernel_certificate([data])
