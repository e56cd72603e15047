"""Mixed minimal banks: ⌊T/2⌋ + 1 heads for every lag T, by Gauss rules (odd lags) and Radau rules with a small node (even lags)."""

import math

import mpmath
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.errors import InputError
from analyzer.lemmas.quadrature import ROOM, closed_bound, gauss, mixed_bound, mixed_rule, precision, radau
from analyzer.limits.lag_law import applies, lag_law
from analyzer.numbers.exact import lower, upper, working_precision
from tests.depth import examples

EVEN = (2, 4, 6, 10)


def mixed(lag: int, error: float = 1e-6) -> lf.Network:
    return lf.build(lf.fixed(lags=(lag,)), rpe="mixed", bank="minimal", error=error)


@given(st.integers(1, 12), st.integers(9, 800))
@settings(max_examples=examples(30), deadline=None)
def test_rules_have_their_zeros_and_one_sign(lag: int, eighths: int) -> None:
    """R(s) = 0 before the lag, R(s) > 0 from it on, positive weights, nodes in (0, 1); and the closed bound (3.10) is one."""
    decay = fmpq(eighths, 8)
    with working_precision(precision(decay, lag // 2)):
        rule = mixed_rule(lag, decay)
        assert rule.lag == lag and len(rule.nodes) == lag // 2
        assert all(0 < z < 1 for z in rule.nodes) and all(w > 0 for w in rule.amplitudes)
        assert all(abs(rule.raw(s)) < arb(2) ** -200 for s in range(1, lag))
        assert all(rule.raw(s) > 0 for s in range(lag, lag + 12))
        tail = sum((rule.raw(s) for s in range(lag + 1, 300)), arb(0)) / rule.raw(lag)
        assert not tail > rule.error()
    assert upper(mixed_bound(lag, decay)) <= upper(closed_bound(lag, decay))


@given(st.integers(1, 5), st.integers(2, 60), st.integers(1, 30))
@settings(max_examples=examples(20), deadline=None)
def test_a_small_node_costs_what_the_page_says(nodes: int, decay: int, depth: int) -> None:
    """(3.9) between two nodes ε: R falls as ε grows at every s, and R(T) at most by 1 − ε/x; so e grows at most by its inverse."""
    p = fmpq(decay)
    with working_precision(precision(p, nodes)):
        least = gauss(p, nodes).nodes[0]
        coarse = fmpq(math.ceil(8 * float((-least.log()).upper())) + depth, 8)
        near, far = radau(p, nodes, coarse), radau(p, nodes, coarse + 40)
        share = 1 - near.nodes[0] / least
        lag = 2 * nodes
        assert all(near.raw(s) < far.raw(s) for s in range(lag, lag + 6))
        assert near.raw(lag) > share * far.raw(lag) and near.error() < far.error() / share
        chosen = radau(p, nodes)
        assert chosen.fastest is not None and chosen.fastest.q == 1 and chosen.nodes[0] * ROOM <= least


def test_lag_two_by_hand() -> None:
    """κ ∝ s^{−p} − ε^{s−1}."""
    p, q = 9, 10
    with mpmath.workdps(30):
        node = mpmath.exp(-q)
        expected = (mpmath.zeta(p) - 1 / (1 - node)) / (mpmath.mpf(2) ** -p - node) - 1
    assert float(mixed_bound(2, fmpq(p), fmpq(q))) == pytest.approx(float(expected), rel=1e-12)


def test_the_error_vanishes_as_the_decay_grows() -> None:
    assert [float(mixed_bound(lag, fmpq(p))) for lag, p in ((4, 60), (6, 120), (10, 200))] == pytest.approx(
        [1.53396e-6, 9.32470e-9, 5.74707e-9], rel=1e-5
    )
    assert [upper(closed_bound(4, fmpq(p))) < 2.0 ** -(p // 4) for p in (40, 80, 160)] == [True] * 3
    assert closed_bound(32, fmpq(200)) == arb.pos_inf()  # η ≥ 1: the formula says nothing, (3.8) does


def test_nodes_that_are_not_small_are_refused() -> None:
    with working_precision(precision(fmpq(20), 2)):
        for fastest in (fmpq(1), fmpq(0), fmpq(-3)):
            with pytest.raises(InputError, match="must fall faster"):
                radau(fmpq(20), 2, fastest)
        with pytest.raises(InputError, match="a lin head at least"):
            radau(fmpq(20), 0)
        for decay, nodes in ((fmpq(1), 2), (fmpq(4), 17)):
            with pytest.raises(InputError, match="p > 1"):
                radau(decay, nodes)


@pytest.mark.parametrize("lag", [*EVEN, 1, 3, 7])
def test_as_many_heads_as_the_law_asks_for(lag: int) -> None:
    certificate = mixed(lag).certificate
    heads = lag // 2 + 1
    assert certificate.sizes["heads"] == heads == certificate.least_heads == lag_law("mixed", (lag,)).heads
    assert certificate.verdict.value == "holds" and 0 < certificate.witness <= certificate.certified <= certificate.bound <= 1e-6
    lin, log = [("lin", fmpq(k)) for k in range(1, lag)], [("log", fmpq(k)) for k in range(2, lag + 1)]
    for count in range(heads):  # every split of fewer heads is below the law
        assert all(applies((*lin[:n], *log[: count - n]), lag) for n in range(count + 1))


@pytest.mark.parametrize("error", [0.5, 1e-2, 1e-12, 1e-24])
def test_errors_large_and_small(error: float) -> None:
    certificate = mixed(4, error).certificate
    assert certificate.holds and error / 2 < certificate.certified <= certificate.bound <= error


@pytest.mark.parametrize("lag", [2, 4, 5])
def test_the_certificate_covers_the_sign_sequence(lag: int) -> None:
    """The kernel of the stored weights, typed a second time: its error at the sign sequence of 200 tokens is certified, and nearly all."""
    net = mixed(lag, 1e-3)
    layer = net.transformer.layers[0].attention
    row = int(net.transformer.embedding.shape[0]) - 1
    with mpmath.workdps(150):

        def number(value: fmpq) -> mpmath.mpf:
            return mpmath.mpf(int(value.p)) / int(value.q)

        kernel = [number(net.transformer.embedding[row, 0]), *[mpmath.mpf(0)] * 199]
        kernel[lag] -= 1
        for h, rpe in enumerate(layer.rpe):
            p, weight = number(layer.decay[h]), number(layer.output[h, row, 0])
            total = 1 / (1 - mpmath.exp(-p)) if rpe == "lin" else mpmath.zeta(p)
            for s in range(rpe == "log", 200):
                kernel[s] += weight / total * (mpmath.exp(-p * s) if rpe == "lin" else mpmath.mpf(s) ** -p)
        signs = [1 if v >= 0 else -1 for v in kernel]
        witness = float(sum(v * x for v, x in zip(kernel, signs, strict=True)))
    assert 0.99 * net.certificate.certified <= witness <= net.certificate.certified * (1 + 1e-12)
    assert lower(arb(witness)) <= net.certificate.bound * (1 + 1e-12)


@pytest.mark.parametrize(
    ("weight", "head"), [("output", 1), ("output", 2), ("output", 3), ("decay", 1), ("decay", 2), ("decay", 3), ("embedding", None)]
)
def test_a_changed_weight_is_seen(weight: str, head: int | None) -> None:
    """Log head, the head with the prescribed node, the other one, the residual: each by a thousandth."""
    _, _, after = mixed(4).broken(weight, head=head, by=1e-3, index=(2, 1) if weight == "embedding" else None)
    assert after.verdict.value == "violated"
