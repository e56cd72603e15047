"""Adaptive memories in floats: balanced banks for lags known at run time, what they reach, refusals, sabotage, the table of the manual."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.families import Adaptive
from analyzer.numbers.exact import UNIT, rational, upper, working_precision
from analyzer.targets.adaptive import AdaptiveMemory
from constructions.banks.balanced_lags import balanced_lag_bank, fitted
from constructions.banks.lag_banks import budgeted_minimal, weight_mass
from constructions.network.precision import MANTISSA
from constructions.run import reference
from constructions.run.execute import run
from constructions.theorems.construction import Construction
from constructions.theorems.thm_4_4 import build, slots_of
from tests.analyzer.test_adaptive import target
from tests.theorems.test_thm_4_4 import GALLERY, certify, edited, example, random_tokens
from verify.bundles.ways_out import attempt
from verify.chain.certificate import Certificate, Verdict
from verify.theorems.thm_4_4 import verify

MANUAL = Path(__file__).parent.parent.parent.parent / "docs" / "certificates.md"


def copies(lag: int) -> AdaptiveMemory:
    """The last token, or the one so far back, as the sign of the current one says."""
    return target({"m": ([1, lag], "x0")}, [[1], [-1]], readout="m")


def wrong_by(built: Construction, lag: int) -> float:
    """The largest error on random signs."""
    x = np.random.default_rng(0).choice([-1.0, 1.0], size=(20, 80, 1))
    place = np.arange(80) - np.where(x[..., 0] == 1, 1, lag)
    wanted = np.take_along_axis(x[..., 0], np.maximum(place, 0), axis=1)
    return float(np.abs(run(built.network, x) - wanted)[place >= 0].max())


def test_what_is_not_said_is_chosen_for_the_arithmetic() -> None:
    assert (Adaptive().resolved_attention, Adaptive().resolved_bank) == ("dp", "minimal")
    lin, log = Adaptive(dtype="float32"), Adaptive(dtype="float32", rpe="log")
    assert (lin.resolved_attention, lin.resolved_bank) == ("dp", "balanced")
    assert (log.resolved_attention, log.resolved_bank) == ("tmx", "minimal")
    chosen = Adaptive(dtype="float64", rpe="log", attention="dp", bank="paper", heads=9)
    assert (chosen.resolved_attention, chosen.resolved_bank) == ("dp", "paper")  # what is said stays
    assert lin.chosen() == {"dtype": "float32"} and lin.resolved().chosen() == {"dtype": "float32", "attention": "dp", "bank": "balanced"}
    for options in ({}, {"dtype": "float64", "rpe": "log"}):
        with pytest.raises(InputError, match="fitted to a float type"):
            Adaptive(bank="balanced", **options)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="a balanced bank has the heads it needs"):
        Adaptive(dtype="float64", heads=7)


@pytest.mark.deep
@pytest.mark.parametrize(
    "dtype,lag,error",
    [("float32", 1, 1e-3), ("float32", 2, 0.01), ("float32", 3, 0.11), ("float32", 4, 0.5),
     ("float64", 5, 1e-3), ("float64", 8, 0.05), ("float64", 9, 0.2), ("float64", 10, 0.5)],
)  # fmt: skip
def test_lags_that_float_types_hold(dtype: str, lag: int, error: float) -> None:
    """Built, certified to the error asked for, and that good when run."""
    built = build(copies(lag), dtype=dtype, error=error)
    certificate = certify(built)
    assert certificate.verdict is Verdict.HOLDS, certificate.advice
    assert certificate.witness <= certificate.certified <= min(error, certificate.bound)
    assert wrong_by(built, lag) <= certificate.certified
    promised = fitted(tuple(sorted(rational(float(p)) for p in built.network.layers[1].attention.decay)), lag, dtype).budget
    assert certificate.parts[1].certified <= upper(promised)


def test_balanced_banks_beat_minimal_ones() -> None:
    """Error and rounding together, in a type of 24 bits; a bank of the same price."""
    bank, budget = balanced_lag_bank((2,), 0.0, "float32") or pytest.fail("no bank")
    price = UNIT["float32"] * (bank.heads + 4)
    minimal = budgeted_minimal("lin", (2,), price, MANTISSA["float32"])
    with working_precision(256):
        z = [(-arb(p)).exp() for p in minimal.decays]
        best = 1 / ((1 - z[0]) * (1 - z[1]) * (1 - z[2])) - 1 + arb(price) * weight_mass(minimal)
        assert 4 * budget < best and bank.heads <= 8


@pytest.mark.deep
def test_refusals_have_a_reason_and_a_way_out() -> None:
    with pytest.raises(Refusal, match="float32 cannot hold lag 9 of m: no balanced lin bank is better than none") as beyond:
        build(copies(9), dtype="float32")
    assert beyond.value.remedies == ({"dtype": "float64"}, {"rpe": "table"}, {"dtype": "exact", "bank": "minimal"})
    with pytest.raises(Refusal, match="float64 cannot hold lag 12 of m") as further:
        build(copies(12), dtype="float64")
    assert further.value.remedies == ({"rpe": "table"}, {"dtype": "exact", "bank": "minimal"})
    with pytest.raises(Refusal, match="float32 does not hold these memories to error 1e-06") as small:
        build(copies(2), dtype="float32", error=1e-6)
    enough = small.value.remedies[-1]["error"]
    assert isinstance(enough, float) and {"dtype": "float64"} in small.value.remedies
    assert attempt(copies(2), {"dtype": "float32", "error": enough}).verdict is Verdict.HOLDS
    chain = target({"a": ([1, 4], "x0"), "b": ([1, 9], "a")}, [[1], [-1]], readout="b")
    with pytest.raises(Refusal, match="cannot hold lag"):
        build(chain, dtype="float32")
    with pytest.raises(Refusal, match="how a machine rounds exp and log"):
        build(copies(2), dtype="float64", rpe="log", attention="dp")


@pytest.mark.deep
def test_shares_are_what_to_aim_at_not_what_to_keep() -> None:
    """Memories of one network use up each other's shares: the certificate of the whole is held against the error, not its parts."""
    chosen = target({"short": ([1, 2], "x0"), "long": ([1, 4], "x0")}, [[1], [-1]], readout="short + long")
    certificate = attempt(chosen, {"dtype": "float32", "error": 0.6})
    parts = {part.name: part.certified for part in certificate.parts}
    assert certificate.verdict is Verdict.HOLDS and certificate.certified <= 0.6
    assert parts["extraction short"] < 0.05 < 0.3 < parts["extraction long"]
    nested = attempt(example("nested"), {"dtype": "float64", "bank": "minimal"})
    assert nested.verdict is Verdict.HOLDS and nested.certified <= 0.01


@pytest.mark.deep
def test_log_heads_in_floats_read_the_lag_itself() -> None:
    built = build(example("nested"), rpe="log", dtype="float64", error=0.1)
    certificate = certify(built)
    assert certificate.verdict is Verdict.HOLDS and certificate.certified <= 0.1
    assert built.options.attention == "tmx" and built.bank == "minimal"  # type: ignore[attr-defined]


@pytest.mark.deep(keep="float32-0.02")
@pytest.mark.parametrize("dtype,error", [("float32", 0.02), ("float64", 0.01)])
def test_sabotage_of_float_lags(dtype: str, error: float) -> None:
    """A weight of a head off by one part in a hundred, a decay, a ratio of the score: the bank no longer keeps what its decays promise."""
    chosen = copies(2)
    built = build(chosen, dtype=dtype, error=error)
    assert certify(built).verdict is Verdict.HOLDS
    heads, row = built.network.layers[1].attention, slots_of(chosen).block(1)[0]
    strongest = int(np.argmax(np.abs(heads.output[:, row, 0])))

    def caught(**arrays: np.ndarray) -> Certificate:
        certificate = verify(edited(built.network, 1, **arrays), chosen, "balanced", "spline")
        assert certificate.verdict is Verdict.VIOLATED and "extraction m" in certificate.advice, certificate.advice
        return certificate

    def changed(array: np.ndarray, index: Any, factor: float) -> np.ndarray:
        copy = array.copy()
        copy[index] *= array.dtype.type(factor)
        return copy

    caught(output=changed(heads.output, (strongest, row, 0), 1.01))
    caught(output=changed(heads.output, (strongest, row, 0), -1))
    caught(output=changed(heads.output, (strongest, row, 0), 0))
    caught(decay=changed(heads.decay, strongest, 1.01))
    caught(query=changed(heads.query, (strongest, 0, slots_of(chosen).lag(0)), 1.01))
    exact = verify(build(chosen).network, chosen, "balanced", "spline")
    assert exact.verdict is Verdict.VIOLATED and "lin heads in floats" in exact.advice


ROWS = [line.strip("| ").split(" | ") for line in MANUAL.read_text(encoding="utf-8").splitlines() if line.startswith("| `examples/")]
"""target, longest lag, float32 (error asked for: certified, or why not), float64 at the default error."""


def test_the_table_of_the_manual_has_every_adaptive_example() -> None:
    assert sorted(row[0] for row in ROWS) == sorted(f"`examples/{name}.toml`" for name in GALLERY)
    assert [int(row[1]) for row in ROWS] == [
        max(max(chosen.occurring(k)) for k in range(len(chosen.memories)))
        for chosen in (example(row[0].removeprefix("`examples/").removesuffix(".toml`")) for row in ROWS)
    ]


def of_no_use(name: str, dtype: str) -> str:
    """What the table says of a target that a type does not hold."""
    try:
        assert attempt(example(name), {"dtype": dtype, "error": 0.99}).verdict is Verdict.VACUOUS
    except Refusal as refusal:
        assert "no balanced lin bank is better than none" in str(refusal)
        return "refused"
    return "vacuous"


@pytest.mark.deep
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].removeprefix("`examples/").removesuffix(".toml`"))
def test_the_gallery_in_floats_is_as_the_manual_says(row: list[str]) -> None:
    """Every certified error of the table is that of the network, rounded up to three digits; what is said to be refused is."""
    name = row[0].removeprefix("`examples/").removesuffix(".toml`")
    for dtype, cell in (("float32", row[2]), ("float64", f"0.01: {row[3]}")):
        if ":" not in cell:
            assert cell == of_no_use(name, dtype)
            continue
        error, shown = map(float, cell.split(": "))
        built = build(example(name), dtype=dtype, error=error)
        certificate = certify(built)
        assert certificate.verdict is Verdict.HOLDS, certificate.advice
        assert certificate.witness <= certificate.certified <= min(error, shown) and shown <= 1.02 * certificate.certified
        tokens = random_tokens(example(name), 20, 60)
        wanted, inside = GALLERY[name](tokens)
        quick, plain = run(built.network, tokens), reference.forward(built.network, tokens)
        assert quick.dtype == dtype and np.abs(quick - wanted)[inside].max() <= certificate.certified
        assert np.abs(quick - plain)[inside].max() <= 4 * (certificate.rounding or 0)


def test_the_promise_is_that_of_the_decays_alone() -> None:
    """Other weights on the same decays do not raise it."""
    decays = (fmpq(1), fmpq(2), fmpq(4), fmpq(8))
    with working_precision(200):
        assert upper(fitted(decays, 1, "float64").budget) < upper(fitted(decays[1:], 1, "float64").budget) < 1
        assert 1 <= upper(fitted((fmpq(50),), 5, "float32").budget) < 1.01  # the zero bank
    for many in ((fmpq(1), fmpq(1)), tuple(map(fmpq, range(1, 34)))):
        with pytest.raises(InputError, match="at most 32, all different"):
            fitted(many, 1, "float64")
