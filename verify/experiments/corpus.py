"""A text as numbers, for language models: its own alphabet, and its last tenth held out. No JAX here, so bad files are refused at once."""

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from analyzer.errors import InputError
from analyzer.ranges import check_range

MAX_CHARACTERS = 1 << 24
"""Characters of a text: one pass takes longer than any run here."""
MAX_ALPHABET = 1024
"""Different characters; more of them are tokens, and one-hot vectors no longer the way to store them."""
HELD_OUT = 10
"""One part in ten."""
LEAST_LENGTH, MAX_LENGTH = 8, 256
LEAST_WINDOWS = 4
"""Windows that the held-out part must have room for."""


@dataclass(frozen=True)
class Corpus:
    """Places in the alphabet, in order; `entropy`: nats per character of the held-out part under the frequencies of the first part."""

    alphabet: tuple[str, ...]
    train: np.ndarray
    test: np.ndarray
    entropy: float


def check_length(length: int) -> None:
    check_range("length", length, LEAST_LENGTH, MAX_LENGTH)


def read_corpus(path: Path, length: int) -> Corpus:
    """A UTF-8 text that is long enough for windows of this length in its last tenth."""
    check_length(length)
    if not path.is_file():
        raise InputError(f"{str(path)[:80]} is not a file; `text` takes a UTF-8 text")
    try:
        with path.open("rb") as file:
            data = file.read(4 * MAX_CHARACTERS + 1)
        text = data.decode("utf-8")
    except OSError as error:
        raise InputError(f"cannot read {str(path)[:80]}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{str(path)[:80]} is not a UTF-8 text: byte {error.start} does not fit") from None
    if len(text) > MAX_CHARACTERS:
        raise InputError(f"{str(path)[:80]} has more than {MAX_CHARACTERS} characters; cut it")
    least = HELD_OUT * (LEAST_WINDOWS * length + 1)
    if len(text) < least:
        raise InputError(f"{str(path)[:80]} has {len(text)} characters; windows of {length} need {least} at least, or a smaller length")
    counts = Counter(text)
    if not 2 <= len(counts) <= MAX_ALPHABET:
        raise InputError(f"{str(path)[:80]} has {len(counts)} different characters; a text with 2 to {MAX_ALPHABET} is needed")
    alphabet = tuple(sorted(counts))
    place = {letter: k for k, letter in enumerate(alphabet)}
    numbers = np.fromiter((place[letter] for letter in text), np.int32, len(text))
    cut = len(text) - len(text) // HELD_OUT
    return Corpus(alphabet, numbers[:cut], numbers[cut:], _entropy(numbers[:cut], numbers[cut:], len(alphabet)))


def _entropy(train: np.ndarray, test: np.ndarray, letters: int) -> float:
    """Cross-entropy of single characters, each counted once more than seen."""
    seen = np.bincount(train, minlength=letters) + 1
    return float(math.log(seen.sum()) - np.log(seen[test]).mean())
