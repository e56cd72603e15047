"""Copying: every admissible short string, the combinatorial half, and the count of states."""

import itertools
from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from analyzer.targets.tasks.copying import CopyingTarget
from analyzer.theorems.library.copying import copied_share, least_bits
from constructions.network.transformer import Transformer
from constructions.run import fast
from constructions.run.execute import run
from constructions.theorems.library.copying import build
from tests.theorems.library.attacks import attacked
from verify.theorems.library.copying import verify


def copying(**parameters: Any) -> CopyingTarget:
    found = lf.task("copying", **parameters)
    assert isinstance(found, CopyingTarget)
    return found


@pytest.mark.parametrize(("letters", "n", "string"), [(3, 2, 3), (3, 3, 5), (2, 4, 8), (2, 4, 2), (4, 4, 1)])
def test_on_admissible_strings_copying_is_hard_induction(letters: int, n: int, string: int) -> None:
    """Every admissible string: the unique earlier occurrence of the current n−1 letters is that in the first copy."""
    target = copying(letters=letters, n=n, string=string)
    tokens = target.word_tokens(target.marked(np.array(target.all_strings())))
    target.check_tokens(tokens, "all strings")
    same = lf.task("induction", letters=letters + 1, n=n, length=target.length)
    asked = slice(target.settled, None)
    assert (target.values(np)(tokens)[:, asked] == same.values(np)(tokens)[:, asked]).all()
    first = target.n - 1
    wanted = (tokens[:, first : first + string].argmax(-1) + 1) / (1 << letters.bit_length())
    assert (target.values(np)(tokens)[:, asked] == wanted).all()


@pytest.mark.deep
@pytest.mark.parametrize("dtype", ["exact", "float32"])
def test_all_strings_are_copied_within_the_certificate(dtype: str) -> None:
    target = copying(letters=3, n=3, string=5)
    net = lf.build(target, dtype=dtype, error=1e-3)
    certificate = net.verify()
    assert certificate.verdict.value == "holds" and certificate.certified <= certificate.bound <= 1e-3
    tokens = target.word_tokens(target.marked(np.array(target.all_strings())))
    errors = np.abs(net(tokens) - target.values(np)(tokens))[:, target.settled :]
    assert len(tokens) > 100 and certificate.certified / 10 <= errors.max() <= certificate.certified


@pytest.mark.deep
def test_the_longest_strings_are_drawn_and_copied() -> None:
    """de Bruijn: A^{n−1} + n − 2 letters, every n−1 letters exactly once."""
    target = copying(letters=4, n=3, string=17)
    tokens = target.draw(np.random.default_rng(0), (50, 0))
    target.check_tokens(tokens, "drawn")
    strings = tokens[:, 2:19].argmax(-1)
    assert all(len({tuple(word[i : i + 2]) for i in range(16)}) == 16 for word in strings) and len({tuple(word) for word in strings}) == 50
    net = lf.build(target, error=1e-2)
    assert np.abs(net(tokens) - target.values(np)(tokens))[:, target.settled :].max() <= net.verify().certified
    with pytest.raises(lf.InputError, match="end at 17 letters"):
        copying(letters=4, n=3, string=18)


@pytest.mark.deep
def test_repeated_letters_are_refused_and_not_copied() -> None:
    target = copying(letters=3, n=2, string=3)
    tokens = target.word_tokens(target.marked(np.array([[0, 1, 0]])))
    with pytest.raises(lf.InputError, match="occur twice"):
        target.check_tokens(tokens, "x")
    errors = np.abs(run(build(target).network, tokens) - target.values(np)(tokens))[:, target.settled :]
    assert errors.max() > 0.1  # after the second 0 nobody can know
    shifted = np.roll(target.word_tokens(target.marked(np.array([[0, 1, 2]]))), 1, axis=1)
    with pytest.raises(lf.InputError, match="is not marks, a string"):
        target.check_tokens(shifted, "x")


def test_no_machine_with_three_states_copies_more_than_three_strings() -> None:
    """(C.2) against all machines: any map from the strings of two of two letters to states, any map from states to what is said."""
    strings = list(itertools.product(range(2), repeat=2))
    most = 0
    for reading in itertools.product(range(3), repeat=4):
        for saying in itertools.product(strings, repeat=3):
            most = max(most, sum(saying[state] == string for state, string in zip(reading, strings, strict=True)))
    assert most == 3 and copied_share(3, 2, 2) * 4 == most
    assert copied_share(4, 2, 2) == copied_share(9, 2, 2) == 1
    assert least_bits(2, 2) == 2 and least_bits(26, 10) == 48 and 2**47 < 26**10 <= 2**48


@pytest.mark.deep
def test_bounds_and_broken_weights() -> None:
    target = copying(letters=3, n=3, string=6)
    promised = lf.bound("copying", target, error=1e-3)
    assert promised.total <= 1e-3 and promised.data["state_bits"] == 10 and promised.data["longest_string"] == 10
    network = build(target, error=1e-3).network
    assert verify(network, target, "own", "spline").verdict.value == "holds"
    network.layers[1].attention.key[0, 0] = network.layers[1].attention.key[0, 0] * 2  # a letter that counts twice
    assert verify(network, target, "own", "spline").verdict.value == "violated"


@pytest.mark.deep
def test_attacks() -> None:
    """Rude changes: where something finite is certified, no admissible string errs by more."""
    target = copying(letters=3, n=3, string=4)
    net = lf.build(target, dtype="float32", error=1e-2).transformer
    tokens = target.word_tokens(target.marked(np.array(target.all_strings())))
    wanted = target.values(np)(tokens)

    def worst(network: Transformer) -> float:
        return float(np.abs(fast.forward(network, tokens) - wanted)[:, target.settled :].max())

    assert attacked(net, lambda network: verify(network, target, "own", "spline"), worst, np.random.default_rng(4), 60) >= 20
