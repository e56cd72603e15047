"""Targets as functions of arrays: against the definitions in exact arithmetic, for numpy and JAX alike."""

from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from flint import arb, fmpq

from analyzer.errors import InputError, Refusal
from analyzer.numbers.exact import rational
from analyzer.targets.adaptive import AdaptiveMemory, Memory
from analyzer.targets.files import target_from_dict, target_of_kind
from analyzer.targets.fixed import FixedMemory
from analyzer.targets.kernel import KernelMemory
from analyzer.targets.protocol import Target, memories_of
from analyzer.toml import read_toml

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
READOUTS = ["x0 + 2*m1*m2 - m2**3", "relu(m1 - m2/2) + abs(x0)", "exp(m1) + tanh(2*m2) - sin(x0) + cos(m1 + x0)", None]


def recent(tokens: np.ndarray, t: int, reach: int) -> list[list[arb]]:
    """Tokens from t backwards, zeros before the array."""
    return [[arb(rational(float(v))) for v in tokens[t - s]] if s <= t else [arb(0)] * tokens.shape[1] for s in range(reach)]


@pytest.mark.deep(only="x0 + 2*m1*m2 - m2**3")
@pytest.mark.parametrize("formula", READOUTS)
def test_fixed_targets(formula):
    target = FixedMemory((2, 5), 1, formula)
    tokens = target.draw(np.random.default_rng(1), (2, 12))
    found = target.values(np)(tokens)
    np.testing.assert_allclose(target.values(jnp)(jnp.asarray(tokens, jnp.float32)), found, atol=3e-6)
    for row, t in ((0, 0), (1, 3), (1, 11)):
        wanted = target.readout(target.memories(recent(tokens[row], t, 6)))
        assert found[row, t] == pytest.approx(float(wanted), abs=1e-12)
    assert target.settled == 5


def test_kernel_targets_and_two_coordinates():
    target = KernelMemory(("exp(-s/2)", "(s+1)**-2"), 2, "x0[0] + k1[1]*k2[0]")
    tokens = target.draw(np.random.default_rng(2), (1, 9))
    found = target.values(np)(tokens)[0]
    for t in range(9):
        wanted = target.readout(target.memories(recent(tokens[0], t, 9)))
        assert found[t] == pytest.approx(float(wanted), abs=1e-12)
    np.testing.assert_allclose(target.values(jnp)(jnp.asarray(tokens))[0], found, atol=1e-6)


@pytest.mark.deep(keep="prop_4_2")
@pytest.mark.parametrize("name", ["nested", "tree", "pointer", "content_and_pointer", "prop_4_2"])
def test_adaptive_targets_follow_their_lags(name):
    target = target_of_kind(read_toml(EXAMPLES / f"{name}.toml"), name, AdaptiveMemory)
    rng = np.random.default_rng(3)
    letters = rng.integers(len(target.alphabet), size=40)
    tokens = np.array([[float(arb(v)) for v in token] for token in target.alphabet])[letters]
    found, lags, seen = target.values(np)(tokens), target.lag_values(np)(tokens), target.memory_values(np)(tokens)
    checked = 0
    for t in range(40):
        situation = target.situation(list(letters), t)
        if situation is None:
            continue
        point = target.point(situation)
        assert tuple(lags[t]) == situation.lags
        np.testing.assert_allclose(seen[t], [float(arb(v)) for v in point], atol=1e-12)
        assert found[t] == pytest.approx(float(target.readout([arb(v) for v in point])), abs=1e-12)
        checked += 1
    assert checked >= 40 - target.settled > 0
    np.testing.assert_allclose(target.values(jnp)(jnp.asarray(tokens, jnp.float32)), found, atol=1e-5)


def test_tokens_are_drawn_from_the_target_s_domain():
    rng = np.random.default_rng(0)
    letters = FixedMemory((1,), 2, None, (fmpq(-1), fmpq(1, 2))).draw(rng, (3, 50))
    assert letters.shape == (3, 50, 2) and set(np.unique(letters)) == {-1.0, 0.5}
    signs = FixedMemory((1,)).draw(rng, (3, 50), signs=True)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    uniform = KernelMemory(("exp(-s)",)).draw(rng, (3, 500))
    assert -1 <= uniform.min() < -0.9 and 0.9 < uniform.max() <= 1


TARGETS: list[Target] = [
    FixedMemory((2, 5), 1, "x0 + m1*m2"),
    FixedMemory((1, 3), 2, None, (fmpq(-1), fmpq(1, 2))),
    KernelMemory(("exp(-s/2)", "(s+1)**-2"), 2, "x0[0] + k1[1]*k2[0]"),
    *(
        target_from_dict(read_toml(EXAMPLES / f"{name}.toml"), name)
        for name in ("nested", "content_and_pointer", "smooth_coupling", "sines")
    ),
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.description)
def test_every_kind_answers_the_protocol(target: Target) -> None:
    length = target.length or target.settled + 9
    tokens = target.draw(np.random.default_rng(4), (5, length))
    low, high = target.domain
    assert tokens.shape == (5, length, target.dim) and low <= tokens.min() <= tokens.max() <= high
    wanted = target.values(np)(tokens)
    assert wanted.shape == (5, length)
    for row, value in zip(tokens, wanted, strict=True):
        assert float(target.exact_value(row)) == pytest.approx(value[-1], abs=1e-12)
    spread = (wanted[:, -1].max() - wanted[:, -1].min()) / 2
    assert spread <= target.constant_error(tokens) + 1e-12
    assert target_from_dict(target.describe(), "test") == target and target.describe()["kind"] == target.kind
    assert target.description.startswith(f"{target.kind}(") and "\n" not in target.description
    target.check_domain(tokens, "test")
    with pytest.raises(InputError, match="outside"):
        target.check_domain(tokens - 3, "test")
    memories = target.as_memory_target
    if memories is None:
        with pytest.raises(Refusal, match="no memories"):
            memories_of(target)
    else:
        assert memories is target and memories.readout.slots == ("x0", *memories.names)
        assert memories.memory_values(np)(tokens).shape == (5, length, memories.readout.coordinates)
    assert target.as_layer_target in (None, target)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.description)
def test_letters_are_known_by_their_places(target: Target) -> None:
    letters = target.letters()
    tokens = target.draw(np.random.default_rng(5), (3, 40))
    assert (letters is None) == (target.alphabet is None) == (target.outside_alphabet(tokens) is None)
    if letters is None:
        assert target.signed == (target.domain == (-1, 1))
        with pytest.raises(InputError, match="no alphabet"):
            target.tokens_of([0])
        return
    assert not target.signed and target.outside_alphabet(tokens) == 0
    tokens[0, :2] += 0.01
    assert target.outside_alphabet(tokens) == 2
    indices = target.nearest_letters(tokens, np)
    np.testing.assert_array_equal(target.tokens_of(indices)[1:], tokens[1:])
    for wrong in ([len(letters)], [-1], [0.5]):
        with pytest.raises(InputError):
            target.tokens_of(wrong)


def test_descriptions_fit_on_a_line() -> None:
    assert FixedMemory((2, 5)).description == "fixed(2, 5)"
    assert len(FixedMemory(tuple(range(1, 65))).description) < 80


def test_lists_are_as_good_as_tuples() -> None:
    assert FixedMemory([3]) == FixedMemory((3,)) == FixedMemory(np.array([3]))  # type: ignore[arg-type]
    assert FixedMemory([3], alphabet=[-1, 1]) == FixedMemory((3,), alphabet=(fmpq(-1), fmpq(1)))  # type: ignore[arg-type]
    assert KernelMemory(["exp(-s)"]) == KernelMemory(("exp(-s)",))  # type: ignore[arg-type]
    memories = [Memory("m1", "1"), Memory("m2", [1, 2])]  # type: ignore[arg-type]
    found = AdaptiveMemory([[-1], [1]], memories)  # type: ignore[arg-type]
    assert found == target_from_dict(found.describe(), "test") and hash(found) == hash(target_from_dict(found.describe(), "test"))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: FixedMemory(3), "lags must be a list"),
        (lambda: FixedMemory("35"), "lags must be a list"),
        (lambda: FixedMemory([]), "there are 0 lags"),
        (lambda: FixedMemory([5, 3]), "increasing"),
        (lambda: FixedMemory([True]), "lag True is not a whole number"),
        (lambda: FixedMemory([1.5]), "lag 1.5 is not a whole number"),
        (lambda: FixedMemory([1], alphabet=0), "the alphabet must be a list"),
        (lambda: KernelMemory("exp(-s)"), "kernels must be a list"),
        (lambda: KernelMemory([1]), "not an expression in s"),
        (lambda: AdaptiveMemory([-1, 1], [Memory("m", "1")]), "a token of the alphabet must be a list"),
        (lambda: AdaptiveMemory([[1]], Memory("m", "1")), "memories must be a list"),
    ],
)
def test_what_is_no_list_is_refused(make: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        make()
