"""Shipped certificates: each is re-checked and spares the solver; a damaged one is caught and costs time, never the truth."""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from flint import fmpq

import lemmaformer as lf
from analyzer.errors import InputError
from analyzer.limits.budgeted_error import Dual, PricedBank, RpeSet
from constructions.banks import priced_fit
from constructions.banks.balanced import TOLERANCE
from verify.limits import certificate_files, pairs
from verify.limits.pairs import LOOSE, SHARP, SHIPPED, SOLVED, Pair, horizon, lag_limit, longest_searched, shipped_horizon, shipped_pair
from verify.limits.shipped import table
from verify.limits.shipped.writing import horizon_as_data, written

Run = Callable[..., Any]
FILES: list[tuple[RpeSet, int]] = [(rpe, bits) for rpe in get_args(RpeSet) for bits in table.SIZES]
EIGHT = fmpq(1, 2**8)
ORIGINAL = table.text_of


@pytest.fixture(autouse=True)
def _from_nothing() -> Iterator[None]:
    pairs.forget()
    yield
    pairs.forget()


@pytest.fixture
def no_solver(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the solver was called")

    monkeypatch.setattr(priced_fit, "_linear_programme", refuse)


def damage(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    """Every file of the table as `change` leaves its content."""

    def text_of(rpe: RpeSet, bits: int) -> str:
        data = json.loads(ORIGINAL(rpe, bits))
        change(data)
        return json.dumps(data)

    monkeypatch.setattr(table, "text_of", text_of)
    pairs.forget()


@pytest.mark.parametrize(
    ("rpe", "bits", "lag"), [("lin", 8, 1), ("lin", 24, 5), ("lin", 53, 11), ("log", 24, 4), ("mixed", 8, 2), ("mixed", 24, 5)]
)
def test_pairs_are_re_checked_without_the_solver(no_solver: None, rpe: RpeSet, bits: int, lag: int) -> None:
    pair = lag_limit(rpe, lag, fmpq(1, 2**bits), bits)
    assert pair.source == SHIPPED and 0 < pair.lower <= pair.upper < 1 and pair.ratio <= LOOSE
    assert all(kind in ("lin", "log") if rpe == "mixed" else kind == rpe for kind, _ in pair.bank.heads)


@pytest.mark.parametrize(("rpe", "bits", "lag"), [("lin", 8, 1), ("lin", 24, 5), ("lin", 53, 11), ("log", 8, 2), ("log", 24, 4)])
def test_horizons_are_re_checked_without_the_solver(no_solver: None, rpe: RpeSet, bits: int, lag: int) -> None:
    found = horizon(rpe, fmpq(1, 2**bits), bits)
    assert found.source == SHIPPED and found.horizon == lag and found.upper < 0.5 <= found.next_lower


@pytest.mark.deep
@pytest.mark.parametrize(("rpe", "bits"), FILES)
def test_every_entry_is_re_checked(no_solver: None, rpe: RpeSet, bits: int) -> None:
    unit = fmpq(1, 2**bits)
    uppers = []
    for lag in range(1, longest_searched(unit) + 1):
        pair = shipped_pair(rpe, lag, unit, bits)
        assert pair is not None and pair.lower <= pair.upper and pair.ratio <= (LOOSE if rpe == "mixed" else SHARP)
        uppers.append(pair.upper)
    found = shipped_horizon(rpe, unit, bits)
    assert found is not None and found.upper < 0.5 <= found.next_lower
    assert all(most < 0.5 for most in uppers[: found.horizon]) and all(most > 0.5 for most in uppers[found.horizon :])
    assert certificate_files.check(json.loads(table.text_of(rpe, bits)))["faults"] == []


def test_files_are_small_and_part_of_the_package() -> None:
    import tomllib

    root = Path(__file__).parent.parent.parent
    files = [root / "verify" / "limits" / "shipped" / table.place(rpe, bits) for rpe, bits in FILES]
    assert sum(file.stat().st_size for file in files) < 10**6
    data = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert data["verify.limits.shipped"] == ["*.json"] and all(file.suffix == ".json" for file in files)


@pytest.mark.parametrize(("rpe", "lag"), [("lin", 1), ("lin", 2), ("log", 2), pytest.param("mixed", 2, marks=pytest.mark.deep)])
def test_the_answer_is_that_of_the_solver(solved: list[int], rpe: RpeSet, lag: int) -> None:
    """A search in doubles ends when no |F| exceeds u by more than TOLERANCE: by so much another machine's pair may differ."""
    shipped = lag_limit(rpe, lag, EIGHT, 8)
    assert not solved and shipped.source == SHIPPED
    fresh = lag_limit(rpe, lag, EIGHT, 8, fresh=True)
    assert solved and fresh.source == SOLVED
    assert max(shipped.lower, fresh.lower) <= min(shipped.upper, fresh.upper)
    assert (shipped.lower, shipped.upper) == pytest.approx((fresh.lower, fresh.upper), rel=TOLERANCE)


@pytest.mark.deep
def test_a_file_is_what_the_solver_writes() -> None:
    again, stored = json.loads(written("lin", 8)), json.loads(table.text_of("lin", 8))
    assert again.keys() == stored.keys() and [e["lag"] for e in again["entries"]] == [e["lag"] for e in stored["entries"]]
    for one, other in zip(again["entries"], stored["entries"], strict=True):
        assert (one["lower"], one["upper"]) == pytest.approx((other["lower"], other["upper"]), rel=TOLERANCE)
    assert again["horizon"]["lag"] == stored["horizon"]["lag"] and again["horizon"]["beyond"] == stored["horizon"]["beyond"]


def test_what_proves_a_horizon_is_written_as_it_was_read() -> None:
    for rpe in get_args(RpeSet):
        found = shipped_horizon(rpe, EIGHT, 8)
        assert found is not None and horizon_as_data(found) == json.loads(table.text_of(rpe, 8))["horizon"]


def _entry(data: Any, lag: int = 2) -> Any:
    return next(entry for entry in data["entries"] if entry["lag"] == lag)


def _zero_bank(data: Any) -> None:
    """A true entry that shows little: the zero bank, and a claim to match."""
    for entry in data["entries"]:
        entry["primal"], entry["upper"] = {"heads": [], "weights": [], "residual": "0"}, 1.0


def _poor_sequence(data: Any) -> None:
    """A true entry that shows little: a sequence that is worth u, and a claim to match."""
    for entry in data["entries"]:
        entry["dual"], entry["lower"] = {"edges": ["0"], "values": ["1"]}, 0.0


def _finer_decays(data: Any) -> None:
    for entry in data["entries"]:
        entry["primal"]["heads"] = [[kind, f"{decay.split('*')[0]}1*2^-40"] for kind, decay in entry["primal"]["heads"]]


DAMAGES: dict[str, Callable[[Any], Any]] = {
    "a weight": lambda d: _entry(d)["primal"]["weights"].__setitem__(0, "1"),
    "a decay": lambda d: _entry(d)["primal"]["heads"][0].__setitem__(1, "3"),
    "finer decays than the type has": _finer_decays,
    "a value of the sequence": lambda d: _entry(d)["dual"]["values"].__setitem__(1, "1"),
    "an edge of the sequence": lambda d: _entry(d)["dual"]["edges"].__setitem__(0, "-1"),
    "a false lower bound": lambda d: _entry(d).update(lower=0.95),
    "a false upper bound": lambda d: _entry(d).update(upper=_entry(d)["upper"] * 0.99),
    "bounds that are no numbers": lambda d: _entry(d).update(lower="0.1", upper=None),
    "an infinite claim": lambda d: _entry(d).update(upper=float("inf")),
    "a bank that does little": _zero_bank,
    "a sequence that shows little": _poor_sequence,
    "the entry of another lag": lambda d: (d["entries"].remove(_entry(d)), _entry(d, 1).update(lag=2)),
    "no entry": lambda d: d["entries"].remove(_entry(d)),
    "no entries": lambda d: d.pop("entries"),
    "another arithmetic": lambda d: d.update(unit="1*2^-9"),
    "another type": lambda d: d.update(rpe="other"),
    "absurd numbers": lambda d: _entry(d)["dual"]["values"].__setitem__(0, "1*2^9999999"),
    "too many heads": lambda d: _entry(d)["primal"].update(heads=_entry(d)["primal"]["heads"] * 40),
}


@pytest.mark.deep(
    keep=("lin-a weight", "lin-a value of the sequence", "lin-a false lower bound", "lin-a false upper bound", "lin-no entry")
)
@pytest.mark.parametrize("kind", DAMAGES)
@pytest.mark.parametrize("rpe", ["lin", "log"])
def test_a_damaged_entry_is_caught(monkeypatch: pytest.MonkeyPatch, solved: list[int], rpe: RpeSet, kind: str) -> None:
    trusted = lag_limit(rpe, 2, EIGHT, 8)
    assert trusted.source == SHIPPED and not solved
    damage(monkeypatch, DAMAGES[kind])
    assert shipped_pair(rpe, 2, EIGHT, 8) is None
    found = lag_limit(rpe, 2, EIGHT, 8)
    assert found.source == SOLVED and solved
    assert (found.lower, found.upper) == pytest.approx((trusted.lower, trusted.upper), rel=TOLERANCE)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "null", "{" * 10**5, "\x00\xff", '{"rpe": "lin", "unit": "1*2^-8", "entries": 3, "horizon": 3}']
)
def test_a_file_that_is_none_counts_as_missing(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    for content in (text, ORIGINAL("lin", 8)[: -100 - len(text)]):
        monkeypatch.setattr(table, "text_of", lambda *_, content=content: content)
        pairs.forget()
        assert shipped_pair("lin", 2, EIGHT, 8) is None and shipped_horizon("lin", EIGHT, 8) is None


def test_a_missing_file_is_no_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "place", lambda *_: "none.json")
    pairs.forget()
    assert lag_limit("lin", 1, EIGHT, 8).source == SOLVED and horizon("lin", EIGHT, 8).source == SOLVED


def doctored(pair: Pair, rng: random.Random) -> tuple[PricedBank, Dual]:
    """A bank and a sequence with one or a few numbers changed, by little or by much."""
    size = 2.0 ** rng.randint(-30, 3)

    def moved(value: fmpq) -> fmpq:
        return value + fmpq(int(rng.choice([-1, 1]) * size * 2**40), 2**40) or fmpq(1)

    weights, values = list(pair.bank.weights), list(pair.dual.values)
    for _ in range(rng.randint(1, 4)):
        k, j = rng.randrange(len(weights)), rng.randrange(len(values))
        weights[k], values[j] = moved(weights[k]), moved(values[j])
    return replace(pair.bank, weights=tuple(weights)), replace(pair.dual, values=tuple(values))


@pytest.mark.deep(keep=("lin-1", "log-2"))
@pytest.mark.parametrize(("rpe", "lag"), [("lin", 1), ("log", 2), ("mixed", 2)])
def test_no_doctored_numbers_show_anything_false(monkeypatch: pytest.MonkeyPatch, rpe: RpeSet, lag: int) -> None:
    """Whatever the numbers, and whatever is claimed for them: no lower bound above what a bank reaches, no upper bound below what a
    sequence shows."""
    trusted, rng = lag_limit(rpe, lag, EIGHT, 8), random.Random(11)
    accepted = 0
    for _ in range(12):
        bank, dual = doctored(trusted, rng)
        monkeypatch.setattr(table, "lag_hint", lambda *_, bank=bank, dual=dual: table.LagHint(bank, dual, 0.0, 2.0))
        shipped_pair.cache_clear()
        found = shipped_pair(rpe, lag, EIGHT, 8)
        if found is not None:
            accepted += 1
            assert found.lower <= trusted.upper and trusted.lower <= found.upper
        monkeypatch.setattr(table, "lag_hint", lambda *_, bank=bank, dual=dual: table.LagHint(bank, dual, trusted.upper * 1.001, 2.0))
        shipped_pair.cache_clear()
        assert shipped_pair(rpe, lag, EIGHT, 8) is None  # a lower bound above the optimum is never shown
    assert accepted


HORIZONS: dict[str, Callable[[Any], Any]] = {
    "too short": lambda h: h.update(lag=h["lag"] - 1, beyond=[0, *h["beyond"]]),
    "too long": lambda h: h.update(lag=h["lag"] + 1, beyond=h["beyond"][1:]),
    "a lag left out": lambda h: h["beyond"].pop(),
    "nothing beyond": lambda h: h.update(beyond=[]),
    "another bank": lambda h: h["primal"]["weights"].__setitem__(0, "1"),
    "finer decays": lambda h: h["primal"]["heads"][0].__setitem__(1, "1234567*2^-18"),
    "a value of a sequence": lambda h: h["duals"][0]["values"].__setitem__(1, "1"),
    "no such sequence": lambda h: h.update(beyond=[7] * len(h["beyond"])),
    "no such difference": lambda h: h.update(beyond=[{"difference": 999}] * len(h["beyond"])),
    "a difference of too high an order": lambda h: h.update(beyond=[{"difference": 30}] * len(h["beyond"])),
    "a closed form that log heads have not": lambda h: h.update(beyond=[None] * len(h["beyond"])),
    "a lag that is none": lambda h: h.update(lag=True),
}


@pytest.mark.parametrize("kind", HORIZONS)
def test_a_damaged_horizon_is_caught(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    assert shipped_horizon("log", EIGHT, 8) is not None
    damage(monkeypatch, lambda data: HORIZONS[kind](data["horizon"]))
    assert shipped_horizon("log", EIGHT, 8) is None


@pytest.mark.deep
def test_a_damaged_horizon_is_solved(monkeypatch: pytest.MonkeyPatch, solved: list[int]) -> None:
    damage(monkeypatch, lambda data: HORIZONS["too short"](data["horizon"]))
    found = horizon("log", EIGHT, 8)
    assert solved and found.source == SOLVED and found.horizon == 2


def test_fresh_is_an_option(run: Run, solved: list[int]) -> None:
    found = lf.limits.lag(1, dtype="bfloat16")
    assert found.source == SHIPPED and not solved
    assert lf.limits.lag(1, dtype="bfloat16", fresh=True).source == SOLVED and solved
    assert lf.limits.lag(3, dtype="bfloat16", heads=2).source == pairs.LAG_LAW and lf.limits.lag(4).source is None
    assert [row["source"] for row in lf.limits.horizon("lin", bits=[8, 9]).data["rows"]] == [SHIPPED, SOLVED]  # type: ignore[index, union-attr]
    assert lf.limits.horizon("lin", bits=8, fresh=True).data["rows"][0]["source"] == SOLVED  # type: ignore[index, call-overload]
    assert run("limits", "lag", "--lag", 1, "--dtype", "bfloat16", "--fresh", "--json").json["source"] == SOLVED
    assert run("limits", "lag", "--horizon", "--dtype", "bfloat16", "--fresh", "--json").json["rows"][0]["source"] == SOLVED
    assert SHIPPED in run("limits", "lag", "--lag", 1, "--dtype", "bfloat16").out
    for wrong in ({}, {"heads": 2, "norm": "mean-square"}):
        with pytest.raises(InputError, match="fresh goes with"):
            lf.limits.lag(2, fresh=True, **wrong)  # type: ignore[arg-type]


def test_far_lags_and_claims_profit(no_solver: None) -> None:
    assert lag_limit("lin", 40, EIGHT, 8).source == SHIPPED
    assert pairs.least_known("log", 3, EIGHT, 8) > 0.9 and pairs.best_known("log", 2, EIGHT, 8) < 0.5
    assert lf.check("E_u >= u*4**T/(2*T)", bits=8, over=("T=1:2",)).verdict == "holds"
