"""Certificates of earlier runs: re-checked whenever they are used; a damaged one costs a search, never the truth."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from flint import fmpq

import lemmaformer as lf
from analyzer.errors import InputError
from analyzer.limits.budgeted_error import RpeSet
from verify.limits import exact_parts, pairs
from verify.limits.pairs import KEPT, SHARP, SOLVED, Pair, horizon, lag_limit
from verify.limits.shipped import kept

UNIT, FINER = fmpq(1, 2**6), fmpq(1, 2**12)
Damage = Callable[[dict[str, Any]], None]


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    monkeypatch.setenv("LEMMAFORMER_CACHE", str(tmp_path / "kept"))
    pairs.forget()
    yield tmp_path / "kept"
    pairs.forget()


def asked_anew() -> Pair:
    pairs.forget()
    return lag_limit("lin", 1, UNIT, 6)


def test_a_search_is_made_once(solved: list[int], place: Path) -> None:
    first = asked_anew()
    assert first.source == SOLVED and solved and len(list(place.iterdir())) == 1
    solved.clear()
    again = asked_anew()
    assert again.source == KEPT and not solved
    assert (again.lower, again.upper) == (first.lower, first.upper)
    assert lag_limit("lin", 1, UNIT, 6, fresh=True).source == SOLVED
    assert lag_limit("lin", 1, UNIT, 7).source == SOLVED  # decays of other bits are another question


def _weight(entry: dict[str, Any]) -> None:
    entry["primal"]["weights"][0] = "7"


def _sequence(entry: dict[str, Any]) -> None:
    entry["dual"]["values"] = ["1" for _ in entry["dual"]["values"]]


def _better_than_it_is(entry: dict[str, Any]) -> None:
    entry["upper"] = entry["lower"] = 0.9 * entry["lower"]


def _nothing(entry: dict[str, Any]) -> None:
    entry.clear()


def change(damage: Damage, place: Path) -> None:
    """Damage the only file that is kept."""
    (file,) = place.iterdir()
    entry = json.loads(file.read_text())
    damage(entry)
    file.write_text(json.dumps(entry))


@pytest.mark.parametrize("damage", [_weight, _sequence, _better_than_it_is, _nothing])
def test_damage_is_caught(solved: list[int], place: Path, damage: Damage) -> None:
    first = asked_anew()
    change(damage, place)
    solved.clear()
    again = asked_anew()
    assert again.source == SOLVED and solved and (again.lower, again.upper) == (first.lower, first.upper)
    assert asked_anew().source == KEPT  # what was found anew is kept instead


def test_what_is_no_file_of_ours_counts_as_nothing(place: Path) -> None:
    first = asked_anew()
    file = next(place.iterdir())
    for text in ("", "{", "[]", '{"lower": "nan"}', "\x00"):
        file.write_text(text)
        assert kept.kept_hint("lin", UNIT, 6, 1) is None
        assert asked_anew().upper == first.upper


def test_it_can_be_off_and_needs_no_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LEMMAFORMER_CACHE", "off")
    assert asked_anew().source == asked_anew().source == SOLVED and not list(tmp_path.iterdir())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LEMMAFORMER_CACHE", str(tmp_path / "file" / "below"))
    assert asked_anew().source == asked_anew().source == SOLVED


def test_the_folder_is_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("LEMMAFORMER_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept.folder() == tmp_path / "lemmaformer" / "limits"
    assert lf.limits.lag(lag=1, bits=6).source == SOLVED
    pairs.forget()
    assert lf.limits.lag(lag=1, bits=6).source == KEPT
    assert len(list(kept.folder().glob("*.json"))) == 1  # type: ignore[union-attr]


def test_a_search_begins_with_the_certificate_of_a_neighbour(solved: list[int], place: Path) -> None:
    lag_limit("lin", 1, FINER, 12, fresh=True)
    anew = len(solved)
    pairs.forget()
    lag_limit("lin", 2, FINER, 12)  # of a longer lag: kept
    pairs.forget()
    solved.clear()
    begun = lag_limit("lin", 1, FINER, 12)
    assert begun.source == SOLVED and 0 < len(solved) < anew
    assert begun.lower <= lag_limit("lin", 1, FINER, 12, fresh=True).upper and begun.ratio < SHARP


@pytest.mark.parametrize("damage", [_weight, _sequence])
def test_a_damaged_neighbour_is_put_aside(solved: list[int], place: Path, damage: Damage) -> None:
    wanted = lag_limit("lin", 1, FINER, 12, fresh=True)
    anew = len(solved)
    pairs.forget()
    lag_limit("lin", 2, FINER, 12)
    change(damage, place)
    pairs.forget()
    solved.clear()
    found = lag_limit("lin", 1, FINER, 12)
    assert len(solved) == anew and (found.lower, found.upper) == (wanted.lower, wanted.upper)


def test_a_search_that_is_made_anew_begins_with_nothing(solved: list[int], place: Path) -> None:
    lag_limit("lin", 1, FINER, 12, fresh=True)
    anew = len(solved)
    pairs.forget()
    lag_limit("lin", 2, FINER, 12)
    solved.clear()
    lag_limit("lin", 1, FINER, 12, fresh=True)
    assert len(solved) == anew


@pytest.mark.deep(keep="log")
@pytest.mark.parametrize(("rpe", "bits", "first", "second"), [("log", 12, 1, 3), ("mixed", 9, 1, 3)], ids=["log", "mixed"])
def test_horizons_do_not_rest_on_borrowed_heads(rpe: RpeSet, bits: int, first: int, second: int, place: Path) -> None:
    """A search that began with the certificate of a short lag may hold one head: too few to give other lags up."""
    unit = fmpq(1, 2**bits)
    for lag in (first, second):
        pairs.forget()
        lag_limit(rpe, lag, unit, bits)
    assert pairs._balance(rpe, unit, False).borrowed
    found = horizon(rpe, unit, bits)
    pairs.forget()
    assert found.horizon == horizon(rpe, unit, bits, fresh=True).horizon


HOSTILE: dict[str, Damage] = {
    "tiny steps": lambda entry: entry.update(dual={"edges": ["1", str(2**1100)], "values": ["1", "0"]}, lower=0.0, upper=2.0),
    "huge edges": lambda entry: entry["dual"].update(edges=["1*2^9999999" for _ in entry["dual"]["edges"]]),
    "endless digits": lambda entry: entry["dual"].update(edges=["9" * 4000 for _ in entry["dual"]["edges"]]),
}


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_neighbour_costs_a_search_at_most(hostile: Damage, place: Path) -> None:
    wanted = lag_limit("lin", 1, FINER, 12, fresh=True)
    pairs.forget()
    lag_limit("lin", 2, FINER, 12)
    change(hostile, place)
    for lag in (2, 1):
        pairs.forget()
        found = lag_limit("lin", lag, FINER, 12)
        assert found.source == SOLVED and found.ratio < SHARP
    assert (found.lower, found.upper) == pytest.approx((wanted.lower, wanted.upper), rel=0.02)


@pytest.mark.parametrize("edge", ["1*2^9999999", "9" * 4000, "-1", "1/1", "²", "", 3, None])
def test_edges_that_are_no_plain_numbers_are_refused_unexpanded(edge: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A few bytes of a file may stand for megabytes."""
    monkeypatch.setattr(exact_parts, "from_text", lambda text: pytest.fail(f"{text[:20]} was expanded"))
    with pytest.raises(InputError, match="edges"):
        exact_parts.read_dual({"edges": ["0", edge], "values": ["0", "0"]})
