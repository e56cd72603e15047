"""Claims: what is read, what is refused, and verdicts for enclosures."""

import pytest
from flint import arb

from analyzer.errors import InputError
from analyzer.language.claims import ClaimVerdict, compare, parse_claim


def value(text: str, **sizes: float) -> arb:
    return parse_claim(f"{text} <= 1").sides[0].value({name: arb(x) for name, x in sizes.items()}, lambda name, index: arb(0))


def test_sizes_and_quantities_are_told_apart() -> None:
    claim = parse_claim("u*4**T/(2*T) <= E_u <= sigma(k) + e")
    assert claim.sizes == {"u", "T", "k"}
    assert claim.quantities == {"E_u", "sigma", "e"}
    assert claim.relations == ("<=", "<=")


@pytest.mark.parametrize(
    ("text", "sizes", "wanted"),
    [
        ("3*T**2/H", {"T": 4, "H": 6}, 8),
        ("4**T/(2*T)", {"T": 3}, 32 / 3),
        ("2**-T", {"T": 3}, 0.125),
        ("sqrt(T)**4", {"T": 3}, 9),
        ("max(T, 5) - min(T, 5)", {"T": 3}, 2),
        ("log2(T)", {"T": 8}, 3),
        ("factorial(T)", {"T": 5}, 120),
        ("zeta(2)*6/pi**2", {}, 1),
        ("ceil(T/2) + floor(T/2)", {"T": 7}, 7),
        ("(T - 5)**3", {"T": 3}, -8),
        ("exp(log(T)) + abs(-T) + tanh(0) + sin(0) + cos(0)", {"T": 3}, 7),
    ],
)
def test_values(text: str, sizes: dict[str, float], wanted: float) -> None:
    found = value(text, **sizes)
    assert found.contains(arb(wanted)) or abs(found - wanted) < 1e-12
    assert found.rad() < 1e-9


@pytest.mark.parametrize(
    "text", ["log(T - 5)", "1/(T - 3)", "(T - 4)**0.5", "sqrt(T - 5)", "zeta(T - 2)", "factorial(T - 5)", "0**(T - 5)"]
)
def test_what_is_undefined_has_no_value(text: str) -> None:
    assert not value(text, T=3).is_finite()


def test_quantities_get_their_index() -> None:
    claim = parse_claim("sigma(k + 1) <= 1")
    assert claim.sides[0].value({"k": arb(2)}, lambda name, index: index * 10) == 30  # type: ignore[operator]


@pytest.mark.parametrize(
    ("left", "relation", "right", "verdict"),
    [
        ((1, 2), "<=", (2.25, 3), ClaimVerdict.HOLDS),
        ((2, 2), "<=", (2, 2), ClaimVerdict.HOLDS),
        ((2, 2), "<", (2, 2), ClaimVerdict.REFUTED),
        ((1, 2), "<=", (1.5, 3), ClaimVerdict.UNDECIDED),
        ((4, 5), "<=", (2, 3), ClaimVerdict.REFUTED),
        ((2.5, 5), "<=", (2, 3), ClaimVerdict.UNDECIDED),
        ((3.25, 5), "<", (2, 3), ClaimVerdict.REFUTED),
        ((2.25, 3), ">=", (1, 2), ClaimVerdict.HOLDS),
        ((1, 2), ">", (4, 5), ClaimVerdict.REFUTED),
    ],
)
def test_verdicts(left: tuple[float, float], relation: str, right: tuple[float, float], verdict: ClaimVerdict) -> None:
    a, b = (arb((low + high) / 2, (high - low) / 2) for low, high in (left, right))
    assert compare(a, relation, b) is verdict


def test_no_number_decides_nothing() -> None:
    assert compare(arb.nan(), "<=", arb(1)) is ClaimVerdict.UNDECIDED
    assert compare(arb(0), "<=", arb("inf")) is ClaimVerdict.UNDECIDED


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "a claim is text"),
        ("e", "no inequality"),
        ("e <=", "no inequality"),
        ("e == 3", "no inequality"),
        ("e <= 3 >= 2", "one way"),
        ("__import__('os') <= 1", "not allowed"),
        ("e.real <= 1", "not allowed"),
        ("(lambda: 1)() <= 1", "not allowed"),
        ("[1] <= 1", "not allowed"),
        ("'a' <= 1", "only real numbers"),
        ("1j <= 1", "only real numbers"),
        ("sigma <= 1", "needs its index"),
        ("exp <= 1", "needs its argument"),
        ("e <= 9**9**9", "bits, the limit"),
        ("1" * 3000 + " <= 1", "characters, the limit"),
        (" <= ".join("1234567"), "sides, the limit"),
    ],
)
def test_other_text_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        parse_claim(text)
