"""Theorem 3.1 end to end: heads and errors promised, the chain over random targets, float networks in real arithmetic."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError, Refusal
from analyzer.kernels.l1_norms import l1_norm
from analyzer.lemmas.extraction import attention_bound, choose_tuning
from analyzer.numbers.exact import nearest, upper, working_precision
from analyzer.targets.fixed import FixedMemory
from constructions.run import fast, reference
from constructions.run.execute import run
from constructions.run.fused import fuse
from constructions.theorems.assembly import slots
from constructions.theorems.thm_3_1 import build
from tests.depth import examples
from verify.chain.certificate import Certificate, Verdict
from verify.theorems.thm_3_1 import verify


def chain_holds(certificate: Certificate) -> bool:
    return certificate.verdict is not Verdict.VIOLATED and certificate.witness <= certificate.certified <= certificate.bound


def wanted(target: FixedMemory, tokens: np.ndarray) -> np.ndarray:
    """f on a batch (…, N, d), tokens before the array being zero."""
    columns = []
    for lag in (0, *target.lags):
        shifted = np.zeros_like(tokens)
        shifted[..., lag:, :] = tokens[..., : tokens.shape[-2] - lag, :]
        columns.append(shifted)
    stacked = np.concatenate(columns, axis=-1)
    readout = target.readout
    value = stacked @ np.array([nearest(w) for w in readout.affine]) + nearest(readout.constant)
    for ridge in readout.ridges:
        v = stacked @ np.array([nearest(w) for w in ridge.direction]) + nearest(ridge.offset)
        name = ridge.profile.name
        functions = {"relu": lambda v: np.maximum(v, 0), "abs": np.abs, "exp": np.exp, "sin": np.sin, "cos": np.cos, "tanh": np.tanh}
        value = value + nearest(ridge.scale) * (v**ridge.profile.degree if ridge.profile.degree else functions[name](v))
    return value


@pytest.mark.deep(only=("64-0.1-lin", "64-0.1-log", "64-0.001-lin", "64-0.001-log", "64-1e-06-lin", "64-1e-06-log"))
@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("error", [1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize("lag", [1, 2, 5, 16, 64])
def test_minimal_bank_uses_exactly_as_many_heads_as_the_lag(lag: int, error: float, rpe: str) -> None:
    built = build(FixedMemory((lag,)), rpe=rpe, bank="minimal", error=error)
    certificate = verify(built.network, built.target, "minimal", "spline")
    assert certificate.sizes["heads"] == lag
    assert certificate.certified <= error
    assert certificate.verdict is Verdict.HOLDS
    assert certificate.witness >= 0.99 * certificate.certified
    assert certificate.rounding == 0


@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("lag", [2, 5, 64])
def test_one_head_fewer_is_refused_by_the_lag_law(lag: int, rpe: str) -> None:
    with pytest.raises(Refusal, match=f"lag law.*at least {lag} heads"):
        build(FixedMemory((lag,)), rpe=rpe, heads=lag - 1)


@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_lags_share_the_minimal_bank(rpe: str) -> None:
    built = build(FixedMemory((3, 7, 12)), rpe=rpe, error=1e-2)
    certificate = verify(built.network, built.target, "minimal", "spline")
    assert certificate.sizes["heads"] == 12
    assert [part.name for part in certificate.parts] == ["extraction lag 3", "extraction lag 7", "extraction lag 12", "read-out"]
    assert all(part.certified <= 1e-2 for part in certificate.parts)
    assert certificate.verdict is Verdict.HOLDS and certificate.witness >= 0.99 * certificate.certified


@pytest.mark.deep(keep=("lin-paper-16-64", "lin-tuned-1-64", "lin-tuned-16-64", "lin-tuned-4-64", "log-paper-16-64", "log-tuned-1-64"))
@pytest.mark.parametrize("heads", [64, 256, 1024])
@pytest.mark.parametrize("lag", [1, 4, 16])
@pytest.mark.parametrize("bank", ["paper", "tuned"])
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_certified_error_obeys_the_bound(rpe: str, bank: str, lag: int, heads: int) -> None:
    """The certified ℓ¹ error of the stored weights against (3.1)/(3.2)."""
    from constructions.banks.head_banks import interpolation_bank
    from constructions.theorems.assembly import assemble, placeholder

    target = FixedMemory((lag,))
    network = assemble(target, [interpolation_bank(rpe, (lag,), heads, choose_tuning(bank, rpe, lag))], placeholder(target))
    layer = fuse(network)
    with working_precision(layer.bits):
        norm = l1_norm(layer.kernel([fmpq(0), fmpq(1)], 0, {lag: fmpq(1)})).enclosure
    assert upper(norm) <= upper(attention_bound(rpe, (lag,), heads, bank).total)
    assert float(norm.lower()) >= 0.85 * upper(norm)


def test_published_ell_one_error() -> None:
    """T = 4, H = 256, α = γ = 0.01: 0.0480, far below the 238 that (3.1) promises."""
    built = build(FixedMemory((4,)), bank="paper", heads=256)
    certificate = verify(built.network, built.target, "paper", "spline")
    assert certificate.certified == pytest.approx(0.0480, abs=5e-4)
    assert certificate.verdict is Verdict.HOLDS and certificate.bound_vacuous and certificate.as_dict()["bound_vacuous"] is True
    assert "no better than a constant output (1)" in certificate.advice and "--" not in certificate.advice
    assert repr(certificate) == "<Certificate thm-3.1: holds, witness 0.048 ≤ certified 0.0481 ≤ bound 239>"
    (remedy,) = certificate.remedies
    better = build(FixedMemory((4,)), **{key: value for key, value in remedy.items() if value is not None})
    followed = verify(better.network, better.target, better.bank, "spline")
    assert better.bank == "minimal" and followed.verdict is Verdict.HOLDS and not followed.bound_vacuous and not followed.remedies


@pytest.mark.deep(keep=("paper-lin-False", "tuned-log-False"))
@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("rpe", ["lin", "log"])
@pytest.mark.parametrize("bank", ["paper", "tuned"])
def test_identity_readouts_have_sharp_witnesses(bank: str, rpe: str, share: bool) -> None:
    built = build(FixedMemory((2, 3)), rpe=rpe, bank=bank, heads=60, share=share)
    certificate = verify(built.network, built.target, bank, "spline")
    assert chain_holds(certificate)
    if share or rpe == "lin" or bank == "paper":  # two slow log banks that differ: the tail of their sum is only bounded from above
        assert certificate.witness >= 0.99 * certificate.certified
    assert certificate.sizes["heads"] == 60


@st.composite
def problems(draw: st.DrawFn, family: str) -> tuple[FixedMemory, dict[str, Any]]:
    """A random target with random build options: `exact` and `float` minimal banks, or `interpolation` banks."""
    lags = tuple(sorted(draw(st.sets(st.integers(1, 9), min_size=1, max_size=3))))
    dim = draw(st.sampled_from([1, 1, 2]))
    slot_names = ["x0", *(f"m{k}" for k in range(1, len(lags) + 1))]
    pick = st.sampled_from([name if dim == 1 else f"{name}[{i}]" for name in slot_names for i in range(dim)])
    terms = st.one_of(
        pick,
        st.tuples(pick, pick).map("*".join),
        st.tuples(st.sampled_from(["tanh", "sin", "exp", "relu", "abs"]), pick, pick).map(lambda t: f"{t[0]}({t[1]} - {t[2]}/2)"),
        st.tuples(pick, st.integers(2, 3)).map(lambda t: f"{t[0]}**{t[1]}"),
    )
    numbers = st.sampled_from(["0.5", "1", "2", "0.25"])
    formula = " + ".join(f"{c}*{t}" for c, t in draw(st.lists(st.tuples(numbers, terms), min_size=1, max_size=3)))
    options: dict[str, Any] = {"rpe": draw(st.sampled_from(["lin", "log"])), "seed": draw(st.integers(0, 9))}
    if family == "interpolation":
        bank = draw(st.sampled_from(["tuned", "paper"]))
        options |= {"bank": bank, "heads": draw(st.integers(9, 30)), "share": draw(st.booleans())}
    else:
        options["error"] = draw(st.sampled_from([0.5, 1e-1, 1e-2, 1e-4]))
        options["dtype"] = "exact" if family == "exact" else draw(st.sampled_from(["float64", "float32"]))
    if draw(st.booleans()):
        options |= {"ffn": draw(st.sampled_from(["spline", "barron"])), "width": draw(st.integers(24, 60))}
    return FixedMemory(lags, dim, formula), options


@pytest.mark.deep
@pytest.mark.parametrize("family", ["exact", "float", "interpolation"])
@given(data=st.data())
@settings(max_examples=examples(80, quick=5), deadline=None, suppress_health_check=list(HealthCheck))
def test_the_chain_never_breaks(family: str, data: st.DataObject) -> None:
    """240 random targets, read-outs, banks, types: witness ≤ certified ≤ bound, and random inputs stay below certified."""
    target, options = data.draw(problems(family))
    try:
        built = build(target, **options)
    except Refusal as refusal:
        assert "\n" not in str(refusal)
        assert family != "exact" or "width" in options or "neurons" in str(refusal), refusal
        return
    certificate = verify(built.network, target, built.bank, built.ffn)
    assert chain_holds(certificate), certificate
    tokens = np.random.default_rng(0).choice([-1.0, 1.0], (8, 64, target.dim))
    seen = np.abs(run(built.network, tokens).astype(float) - wanted(target, tokens)).max()
    assert seen <= certificate.certified * (1 + 1e-9) + 1e-9  # float64 evaluation of f and of exact networks
    if not target.readout.ridges and built.network.dtype == "exact" and built.bank == "minimal":
        assert certificate.witness >= 0.99 * certificate.certified


@pytest.mark.deep(keep="lin")
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_float32_stays_below_its_certificate(rpe: str) -> None:
    """10,000 random and adversarial inputs in real float32 JAX, both executors."""
    target = FixedMemory((1,))
    built = build(target, rpe=rpe, error=5e-3, dtype="float32")
    certificate = verify(built.network, target, "minimal", "spline")
    assert certificate.certified <= 5e-3 and certificate.dtype == "float32" and certificate.rounding > 0
    rng = np.random.default_rng(0)
    inputs = np.concatenate(
        [
            rng.uniform(-1, 1, (4000, 24, 1)),
            rng.choice([-1.0, 1.0], (4000, 24, 1)),
            rng.choice([-1.0, -1 + 2**-24, 0.0, 2**-30, 1 - 2**-24, 1.0], (1900, 24, 1)),
            np.sign(rng.standard_normal((50, 1, 1))) * (-1.0) ** np.arange(24)[None, :, None],
            np.sign(rng.standard_normal((50, 1, 1))) * np.ones((1, 24, 1)),
        ]
    ).astype(np.float32)
    assert len(inputs) == 10_000
    for executor in (fast.forward, reference.forward):
        error = np.abs(executor(built.network, inputs).astype(float) - wanted(target, inputs.astype(float))).max()
        assert error <= certificate.certified
    assert certificate.witness > 0 or rpe == "log"


@pytest.mark.parametrize("dtype,lags,error", [("float32", (12,), 1e-2), ("float64", (40,), 1e-2), ("float32", (2,), 1e-6)])
def test_what_a_float_cannot_hold_is_refused(dtype: str, lags: tuple[int, ...], error: float) -> None:
    with pytest.raises(Refusal, match=rf"{dtype} cannot hold lag {lags[-1]}|more than any float type") as caught:
        build(FixedMemory(lags), dtype=dtype, error=error)
    assert any(remedy.get("dtype") == "exact" for remedy in caught.value.remedies)


def test_float_types_are_certified_with_their_rounding() -> None:
    target = FixedMemory((2,))
    certified = {}
    for dtype in ("float32", "float64"):
        built = build(target, dtype=dtype, error=0.3)
        certified[dtype] = verify(built.network, target, "minimal", "spline")
    assert certified["float64"].certified < certified["float32"].certified / 100


@pytest.mark.deep(
    only=("lags0-None-options0", "lags5-x0*m1 + (0.5 - m2)**3-options5", "lags8-None-options8", "lags6-m1*x0 + relu(2*m1 - 0.25)-options6")
)
@pytest.mark.parametrize(
    "lags,formula,options",
    [
        ((1,), None, {"rpe": "log", "error": 0.9}),
        ((1,), "0.1*relu(0.3*m1 + x0) + (x0 - m1 + 0.5)**2", {"heads": 2, "error": 0.01}),
        ((1, 2), "cos(0.3*m2 - 0.1*m1 + 0.7*x0 + 0.5)", {"error": 0.01}),
        ((2,), "sin(m1 - 0.1*x0 + 0.5) + cos(m1 - 0.1*x0 - 0.25)", {"error": 0.5, "width": 35}),
        ((4,), "(0.3*x0 - m1 + 0.5)**2 + (0.3*x0 - m1 - 0.25)**3", {"heads": 7, "error": 1e-3}),
        ((1, 3), "x0*m1 + (0.5 - m2)**3", {"rpe": "log", "bank": "tuned", "heads": 35, "error": 0.1}),
        ((3,), "m1*x0 + relu(2*m1 - 0.25)", {"rpe": "log", "dtype": "float32", "error": 3.0, "width": 15}),
        ((1, 6), "(m2 - 0.25)**3", {"bank": "paper", "heads": 48, "error": 0.1}),
        ((1, 2), None, {"bank": "paper", "dtype": "float32", "heads": 13}),
        ((2, 9), "0.5*cos(m1 + 0.1*m2)", {"bank": "paper", "share": True, "heads": 20, "error": 1e-3}),
        ((1, 2, 4), "0.5*x0", {"bank": "tuned", "heads": 9}),
        ((1,), "0.5*x0*x0 + x0", {"error": 0.5}),
        ((1,), "0.5*m1*m1", {"bank": "paper", "heads": 9, "ffn": "barron", "width": 24}),
        ((4,), None, {"bank": "paper", "dtype": "float64", "heads": 3}),
        ((2,), "0.5*relu(x0 + m1 - 0.25) + x0*m1", {"error": 0.9}),
        ((2, 5), "1e-99*m1", {}),
        ((2,), "abs(0.25 - x0 - m1) + (x0 + m1)**3 + relu(x0 + m1 + 0.1)", {"error": 0.5, "rpe": "log"}),
    ],
)
def test_edge_cases_hold(lags: tuple[int, ...], formula: str | None, options: dict[str, object]) -> None:
    """Equality in (3.4), shared directions, boxes at their edge, interpolants that vanish: never a false alarm."""
    built = build(FixedMemory(lags, 1, formula), **options)  # type: ignore[arg-type]
    assert chain_holds(verify(built.network, built.target, built.bank, built.ffn))


@pytest.mark.parametrize(
    "lags,formula,options",
    [
        ((2,), None, {"rpe": "log", "bank": "paper", "dtype": "float32", "heads": 3}),
        ((6,), "0.1*exp(2*x0 - m1 + 0.5)", {"rpe": "log", "bank": "paper", "dtype": "float64", "heads": 37, "ffn": "barron", "width": 52}),
    ],
)
def test_hopeless_networks_are_refused(lags: tuple[int, ...], formula: str | None, options: dict[str, object]) -> None:
    with pytest.raises(Refusal):
        built = build(FixedMemory(lags, 1, formula), **options)  # type: ignore[arg-type]
        verify(built.network, built.target, built.bank, built.ffn)


def test_named_slots() -> None:
    assert slots(FixedMemory((2, 5), 2)) == {"x0": range(2), "m1": range(2, 4), "m2": range(4, 6)}


def test_sign_sequence_run_through_the_network() -> None:
    """The witness of an identity read-out, replayed in float64 through the fused network."""
    target = FixedMemory((4,))
    built = build(target, error=1e-2)
    layer = fuse(built.network)
    with working_precision(layer.bits):
        window = l1_norm(layer.kernel([fmpq(0), fmpq(1)], 0, {4: fmpq(1)})).window
    tokens = np.array([[1.0 if float(v.mid()) >= 0 else -1.0] for v in window])[::-1]
    error = abs(run(built.network, tokens)[-1] - tokens[-5, 0])
    certificate = verify(built.network, target, "minimal", "spline")
    assert error == pytest.approx(certificate.witness, rel=1e-6)
    assert math.isclose(certificate.witness, certificate.certified, rel_tol=1e-6)


def test_composition_is_not_slack_for_affine_readouts() -> None:
    """y = m1 − m2 sees one combined kernel: certified is its norm, below the sum of the parts."""
    target = FixedMemory((1, 2), 1, "m1 - m2")
    built = build(target, error=1e-1)
    certificate = verify(built.network, target, "minimal", "spline")
    assert certificate.witness >= 0.99 * certificate.certified
    assert certificate.certified <= sum(part.certified for part in certificate.parts) * (1 + 1e-12)
    assert arb(certificate.bound) >= arb(certificate.certified)


def test_a_rounded_read_out_is_refused() -> None:
    """[f] instead of f would be off by 1/2 under the same weights."""
    built = build(FixedMemory((2,)), error=1e-2)
    layer = built.network.layers[0]
    rounded = replace(layer, feedforward=replace(layer.feedforward, precision=("integer",)))
    with pytest.raises(InputError, match="not rounded"):
        verify(replace(built.network, layers=(rounded,)), built.target, built.bank, built.ffn)


@pytest.mark.deep
def test_more_bits_are_offered_only_where_no_law_excludes_them() -> None:
    """float64 holds lag 5 of a float32 refusal, but by the π-law no layer of lin heads in it holds lag 12."""
    for lag, offered in ((5, True), (12, False)):
        with pytest.raises(Refusal) as caught:
            build(FixedMemory((lag,)), dtype="float32", error=0.01)
        assert ({"dtype": "float64"} in caught.value.remedies) is offered
