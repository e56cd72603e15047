"""Lin heads in three forms: the same sums, each within its own analysis, and what is certified is what runs."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flint import arb, fmpq
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.errors import InputError, Refusal
from analyzer.families import FormName
from analyzer.numbers.exact import UNIT, rational, working_precision
from constructions.network import recurrences
from constructions.network.precision import SMALLEST, with_x64
from constructions.network.recurrences import BLOCK, FORMS, form_constants, states, using
from constructions.run import execute, fast, reference
from tests.conftest import Result, random_network
from tests.depth import examples
from verify.chain.rounding import Arithmetic, Rounded

OTHERS: tuple[FormName, ...] = ("blocked", "associative")
RATIOS = (0.0, 2.0**-30, 0.25, 1 / 3, 0.9, 1 - 2.0**-6, 1 - 2.0**-11)
ONE = Rounded(arb(1), arb(0))


def computed(form: FormName, ratios: np.ndarray, values: np.ndarray) -> np.ndarray:
    """The states of every ratio (N, H) for values (N,), from 0."""
    constants = {"ratio": ratios, **form_constants(form, ratios)}
    with with_x64(str(ratios.dtype)):
        given = np.broadcast_to(values.astype(ratios.dtype)[:, None, None], (len(values), len(ratios), 1))
        return np.asarray(jax.jit(states)(constants, given))[..., 0]


def exact(ratio: float, values: np.ndarray, dtype: str) -> list[fmpq]:
    """The states as rationals."""
    z, state, found = rational(ratio), fmpq(0), []
    for value in values.astype(dtype):
        state = z * state + rational(float(value))
        found.append(state)
    return found


def allowed(form: FormName, ratio: float, dtype: str) -> arb:
    """How far a state may be from the exact one, for tokens in [−1, 1]."""
    arithmetic, z = Arithmetic(dtype), rational(ratio)
    with working_precision(160):
        if form == "scan":
            return arithmetic.state(arb(z), ONE).error
        return (arithmetic.blocked(z, ONE) if form == "blocked" else arithmetic.associative(z, ONE)).error


@settings(max_examples=examples(24), deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(FORMS), st.sampled_from(["float32", "float64"]), st.sampled_from([1, 70, 140]))
def test_runs_stay_within_the_analysis(seed: int, form: FormName, dtype: str, length: int) -> None:
    rng = np.random.default_rng(seed)
    values = rng.choice([-1.0, 1.0], length) if seed % 2 else rng.uniform(-1, 1, length) ** (1 + seed % 5)
    ratios = np.array([RATIOS[seed % len(RATIOS)]], dtype)
    found, wanted = computed(form, ratios, values)[:, 0], exact(float(ratios[0]), values, dtype)
    bound = allowed(form, float(ratios[0]), dtype)
    assert all(abs(arb(rational(float(one)) - other)) <= bound.upper() for one, other in zip(found, wanted, strict=True))


@pytest.mark.parametrize("dtype", UNIT)
def test_powers_are_rounded_once(dtype: str) -> None:
    ratios = np.array([z for z in RATIOS if z], dtype)
    unit, tiny = UNIT[dtype], SMALLEST[dtype]
    doubled = [1 << k for k in range(64)]
    exponents = {
        "blocked": {"powers": list(range(BLOCK + 1)), "doubled": [BLOCK * k for k in doubled]},
        "associative": {"doubled": doubled},
    }
    for form in OTHERS:
        tables = form_constants(form, ratios)
        assert set(tables) == set(exponents[form])
        for name, h in itertools.product(tables, range(len(ratios))):
            z = rational(float(ratios[h]))
            with working_precision(300):
                for k, stored in zip(exponents[form][name], tables[name][:, h], strict=False):
                    power = arb(z) ** k
                    if stored or name == "powers":
                        assert abs(arb(rational(float(stored))) - power) <= unit * power + tiny
                    else:  # nothing is left to add
                        assert power <= unit / recurrences.SPARE


@dataclass(frozen=True)
class Worst:
    """|exact|, and how far a computed number may be from it: every operation adds what it may, and nothing is summed in one formula."""

    size: np.ndarray
    error: np.ndarray

    def rounded(self, unit: float) -> "Worst":
        return Worst(self.size, self.error + unit * (self.size + self.error))

    def plus(self, other: "Worst", unit: float) -> "Worst":
        return Worst(self.size + other.size, self.error + other.error).rounded(unit)

    def times(self, power: float, unit: float) -> "Worst":
        """The product with a constant that was rounded."""
        return Worst(power * self.size, power * ((1 + unit) * self.error + unit * self.size)).rounded(unit)

    def at(self, places: Any) -> "Worst":
        return Worst(self.size[places], self.error[places])


def worst_windows(tokens: Worst, z: float, base: int, unit: float) -> Worst:
    """In associative form: tokens (N,), powers of z^base."""
    length, shift = len(tokens.size), 1
    for _ in range(recurrences.levels(z, "float32", base)):
        if shift >= length:
            break
        none = np.zeros(min(shift, length))
        moved = Worst(*(np.concatenate([none, part])[:length] for part in (tokens.size, tokens.error)))
        tokens, shift = tokens.plus(moved.times(z ** (base * shift), unit), unit), 2 * shift
    return tokens


def worst_associative(z: float, length: int, unit: float) -> float:
    return float(worst_windows(Worst(np.ones(length), np.zeros(length)), z, 1, unit).error.max())


def worst_blocked(z: float, length: int, unit: float) -> float:
    """Sums of a block from left to right."""
    one, own = Worst(np.ones(()), np.zeros(())), []
    for i in range(BLOCK):
        total = Worst(np.zeros(()), np.zeros(()))
        for j in range(i + 1):
            total = total.plus(one.times(z ** (i - j), unit if i > j else 0.0), unit)
        own.append(total)
    count = length // BLOCK
    ends = worst_windows(Worst(np.full(count, own[-1].size), np.full(count, own[-1].error)), z, BLOCK, unit)
    last = Worst(ends.size[-1], ends.error[-1])
    return max(float(last.times(z ** (i + 1), unit).plus(total, unit).error) for i, total in enumerate(own))


WORST: dict[FormName, Callable[[float, int, float], float]] = {"blocked": worst_blocked, "associative": worst_associative}


@pytest.mark.parametrize("form", OTHERS)
@pytest.mark.parametrize("ratio", [0.25, 0.9, 1 - 2.0**-6])
def test_the_analysis_is_that_of_the_operations(form: FormName, ratio: float) -> None:
    """Never below what the operations may lose one by one, and not far above: sums in any order cost up to four times those in one."""
    unit = 2.0**-24
    by_hand, bound = WORST[form](ratio, 5 * BLOCK, unit), float(allowed(form, ratio, "float32"))
    assert by_hand <= bound * (1 + 1e-9)
    assert bound <= (64 if form == "blocked" and ratio == 0.25 else 13 if form == "blocked" and ratio == 0.9 else 4) * by_hand


class OneRounding(Arithmetic):
    """Sums of many terms taken to round once."""

    def gamma(self, terms: int) -> arb:
        return super().gamma(1)


class HalfUnit(Arithmetic):
    """A type with one bit more than it has."""

    def __init__(self, dtype: str) -> None:
        super().__init__(dtype)
        self.unit = self.unit / 2


@pytest.mark.parametrize(("form", "wrong"), [("blocked", OneRounding), ("associative", HalfUnit)])
def test_a_wrong_constant_is_caught(form: FormName, wrong: type[Arithmetic], monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage of the analysis: operation by operation more may be lost than it then says."""
    ratio = 1 - 2.0**-6
    by_hand = WORST[form](ratio, 5 * BLOCK, 2.0**-24)
    monkeypatch.setitem(test_a_wrong_constant_is_caught.__globals__, "Arithmetic", wrong)
    assert by_hand > allowed(form, ratio, "float32").upper()


@pytest.mark.parametrize("form", OTHERS)
def test_a_unit_of_another_type_is_caught_by_a_run(form: FormName) -> None:
    ratio, values = 0.9, np.random.default_rng(0).uniform(0, 1, 128)
    found, wanted = computed(form, np.array([ratio], "float32"), values)[:, 0], exact(float(np.float32(ratio)), values, "float32")
    off = max(abs(arb(rational(float(one)) - other)) for one, other in zip(found, wanted, strict=True))
    assert allowed(form, float(np.float32(ratio)), "float64").upper() < off < allowed(form, float(np.float32(ratio)), "float32").upper()


@pytest.mark.parametrize(("form", "name"), [("blocked", "powers"), ("associative", "doubled")])
def test_powers_with_a_wrong_bit_are_caught_by_a_run(form: FormName, name: str) -> None:
    """Sabotage of a constant: Z_1 with eight bits."""
    ratio, values = np.array([0.9], "float32"), np.ones(128)
    constants = form_constants(form, ratio)
    table = constants[name].copy()
    at = 1 if form == "blocked" else 0
    table[at] = np.round(table[at] * 256) / 256
    found = np.asarray(states({**constants, name: table}, np.ones((128, 1, 1), "float32")))[:, 0, 0]
    wanted = exact(float(ratio[0]), values, "float32")
    off = max(abs(arb(rational(float(one)) - other)) for one, other in zip(found, wanted, strict=True))
    assert off > allowed(form, float(ratio[0]), "float32").upper()


def test_windows_that_end_too_early_are_caught_by_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sabotage of the number of windows: what lies before the last is more than the analysis says is left out."""
    ratio, values = 0.875, np.ones(300)
    wanted, bound = exact(ratio, values, "float32"), allowed("associative", ratio, "float32")
    monkeypatch.setattr(recurrences, "SPARE", 2.0**-12)
    found = computed("associative", np.array([ratio], "float32"), values)[:, 0]
    recurrences._form_constants.cache_clear()
    assert abs(arb(rational(float(found[-1])) - wanted[-1])) > bound.upper()


@pytest.mark.parametrize("form", OTHERS)
@pytest.mark.parametrize("kind", ["dp-free", "tmx", "finite"])
def test_networks_in_every_form_agree_with_the_plain_pass(form: FormName, kind: str) -> None:
    window = "finite" if kind == "finite" else "infinite"
    network = random_network(np.random.default_rng(5), ["lin", "log", "lin"], "dp-free" if kind == "finite" else kind, window, layers=3)
    tokens = np.random.default_rng(6).uniform(-1, 1, (2, 150, 2))
    wanted = reference.forward(network, tokens)
    found = execute.run(network, tokens, form=form)
    assert np.abs(found - wanted).max() <= 1e-9 * np.abs(wanted).max()
    assert (found != execute.run(network, tokens, form="scan")).any() or kind == "finite"  # finite windows of this length run as taps


def test_only_scans_loop_over_tokens() -> None:
    network = random_network(np.random.default_rng(5), ["lin", "lin"])
    tokens = np.zeros((512, 2))
    loops = {}
    for form in FORMS:
        with with_x64("float64"):
            program = fast.program.lower(network, fast.network_constants(network, 512, form), tokens)
        loops[form] = program.as_text().count("stablehlo.while")
    assert loops == {"scan": 1, "blocked": 0, "associative": 0}


@pytest.fixture(scope="module")
def net() -> lf.Network:
    return lf.build(lf.fixed(lags=(2,)), dtype="float32", error=0.1)


@pytest.mark.parametrize("form", OTHERS)
def test_every_form_has_its_certificate(net: lf.Network, form: FormName) -> None:
    tokens = np.random.default_rng(0).uniform(-1, 1, (4, 300, 1))
    found, outputs = net.verify(form=form), net(tokens, form=form)
    assert found.verdict.value == "holds" and found.details["form"] == form
    assert found.witness <= found.certified <= found.bound and 0 < found.rounding != net.verify(form="scan").rounding
    assert np.abs(outputs[:, 2:] - tokens[:, :-2, 0]).max() <= found.certified  # y_t = x_(t-2)
    assert np.abs(outputs - net(tokens)).max() <= found.rounding + net.certificate.rounding
    said = net.evaluate(tokens, form=form)
    assert said.form == form and said.as_dict()["form"] == form and f"form={form}" in said.remarks()[-1]
    assert net.evaluate(tokens).form is None and "form" not in net.evaluate(tokens).as_dict()


def test_a_changed_weight_is_caught_in_every_form(net: lf.Network) -> None:
    changed, _, _ = net.broken("output", head=2, by=0.05)
    assert {form: changed.verify(form=form).verdict.value for form in FORMS} == dict.fromkeys(FORMS, "violated")


def test_what_a_device_runs_is_what_is_certified(net: lf.Network, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a device takes another form, calls and certificates both do, without being asked."""
    monkeypatch.setattr(recurrences, "of_device", lambda: "blocked")
    tokens = np.random.default_rng(0).uniform(-1, 1, 300)
    assert np.array_equal(net(tokens), net(tokens, form="blocked")) and net.evaluate(tokens).form == "blocked"
    assert net.verify().details["form"] == "blocked"
    built = lf.build(lf.fixed(lags=(2,)), dtype="float32", error=0.1)
    assert built.certificate.details["form"] == "blocked" and built.card["chain"] == net.card["chain"]  # cards speak of scans
    assert "form" not in lf.build(lf.fixed(lags=(2,))).certificate.details  # exact
    table = random_network(np.random.default_rng(0), ["table"])
    assert execute.form_of(table, None) == "scan"
    squares = lf.build(lf.fixed(lags=(2,)), norm="mean-square", heads=2, dtype="float64")
    assert squares.certificate.details["form"] == "blocked"


def test_what_is_refused(net: lf.Network, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="form"):
        net(np.zeros(4), form="sideways")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown form 'sideways'"), using("sideways"):  # type: ignore[arg-type]
        pass
    with pytest.raises(InputError, match="sections are scanned"):
        net.verify(form="blocked", section=64)
    exactly = lf.build(lf.fixed(lags=(2,)))
    with pytest.raises(Refusal, match="exact"):
        exactly(np.zeros(4), form="blocked")
    assert exactly.verify(form="scan").verdict.value == "holds" and recurrences.chosen() == "scan"
    refuting = tmp_path / "limit.json"
    refuting.write_text("{}")
    with pytest.raises(InputError, match="form is for networks"):
        lf.verify(refuting, form="blocked")


def test_forms_on_the_command_line(net: lf.Network, tmp_path: Path, run: Callable[..., Result]) -> None:
    net.save(tmp_path / "net")
    np.save(tmp_path / "x.npy", np.linspace(-1, 1, 40))
    told = run("verify", tmp_path / "net", "--form", "blocked", "--json")
    assert told.code == 0 and told.json["rounding"] == net.verify(form="blocked").rounding and told.json["form"] == "blocked"
    told = run("run", tmp_path / "net", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--form", "associative", "--json")
    assert told.code == 0 and told.json["form"] == "associative"
    assert np.array_equal(np.load(tmp_path / "y.npy"), net(np.linspace(-1, 1, 40), form="associative"))
    told = run("run", tmp_path / "net", "--input", tmp_path / "x.npy", "--output", tmp_path / "z.npy", "--form", "sideways")
    assert told.code == 2 and "sideways" in told.err and not (tmp_path / "z.npy").exists()
