"""The page of questions: every command runs, and what it prints is what the page shows."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "questions.md").read_text(encoding="utf-8")
LEFT_OUT = "…"
NUMBER = r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)"


def blocks(page: str) -> dict[str, tuple[str, list[str]]]:
    """The command and the lines under every heading of the second level."""
    parts = re.split(r"^## (.*)\n", page, flags=re.MULTILINE)
    found = {}
    for title, text in zip(parts[1::2], parts[2::2], strict=True):
        (block,) = re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        command, *lines = block.splitlines()
        assert command.startswith("$ lemmaformer ")
        found[title] = (command.removeprefix("$ lemmaformer "), lines)
    return found


BLOCKS = blocks(PAGE)
SLOW = (
    "What do strides and buckets of positions lose?",
    "What does the precision of floats do?",
    "Depth or width?",
    "What do the theorems offer for one target?",
    "What is the curse of memory, in numbers?",
)
"""Seconds of work each; the others are part of `make test`."""


def last_place(number: str) -> float:
    """One unit in the last digit that is shown; 0 for whole numbers, which are exact."""
    digits, _, power = number.partition("e")
    return 10.0 ** (int(power or 0) - len(digits.partition(".")[2])) if "." in digits or power else 0.0


def same(shown: str, printed: str) -> bool:
    """Whether a line was printed: same words, numbers to one unit in the last place, as solvers differ by machine; `…` is anything."""
    numbers = re.findall(NUMBER, shown)
    between = [re.escape(text).replace(LEFT_OUT, ".*") for text in re.split(NUMBER, " ".join(shown.split()))]
    found = re.fullmatch(f"({NUMBER})".join(between), " ".join(printed.split()))
    return found is not None and all(
        abs(float(a) - float(b)) <= 1.001 * last_place(a) for a, b in zip(numbers, found.groups(), strict=True)
    )


def not_printed(lines: list[str], output: str) -> list[str]:
    """Lines of a page that an output does not have, in their order and one right after the other but for `…` on a line of its own."""
    printed, place, gap = output.splitlines(), 0, False
    for line in lines:
        if line.strip() == LEFT_OUT:
            gap = True
            continue
        places = range(place, len(printed) if gap else min(place + 1, len(printed)))
        at = next((k for k in places if same(line, printed[k])), None)
        if at is None:
            return [line]
        place, gap = at + 1, False
    return [] if gap or place == len(printed) else [f"the end, {printed[place]!r} is left"]


def changed(lines: list[str]) -> list[list[str]]:
    """The lines with one number changed, in every way: its last digit by two."""
    found = []
    for k, line in enumerate(lines):
        for match in re.finditer(NUMBER, line):
            digits, mark, power = match[0].partition("e")
            other = digits[:-1] + str((int(digits[-1]) + 2) % 10) + mark + power
            found.append([*lines[:k], line[: match.start()] + other + line[match.end() :], *lines[k + 1 :]])
    return found


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a reader stands: beside the examples, at a terminal of 80 columns."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.mark.deep(only=SLOW)
@pytest.mark.parametrize("title", BLOCKS)
def test_the_page_shows_what_is_printed(title: str, folder: Path, run: Callable[..., Any]) -> None:
    """And would not, were one number on it another one."""
    command, lines = BLOCKS[title]
    output = run(*shlex.split(command)).out
    assert not_printed(lines, output) == []
    others = changed(lines)
    assert len(others) >= 3 and all(not_printed(other, output) for other in others)


def test_a_smooth_read_out_needs_few_neurons(folder: Path, run: Callable[..., Any]) -> None:
    """What the page says of the same claim for splines."""
    command, _ = BLOCKS["What does a smooth read-out buy?"]
    found = run(*shlex.split(command.replace("--ffn barron ", "")), "--json")
    assert found.code == 0 and all(row["quantities"]["width"] == [7, 7] for row in found.json["rows"])


def test_every_question_has_an_answer() -> None:
    assert len(BLOCKS) >= 10 and set(SLOW) <= set(BLOCKS)
    for text in re.split(r"^## .*\n", PAGE, flags=re.MULTILINE)[1:]:
        question, answer = re.split(r"^```\n.*?^```$", text, flags=re.MULTILINE | re.DOTALL)
        assert question.strip() and len(answer.split()) > 30


def test_what_was_not_printed_is_seen() -> None:
    output = "error 0.123457, 12 heads\nholds\nwritten to net\n"
    assert not_printed(["error 0.123457, 12 heads", LEFT_OUT], output) == []
    assert not_printed(["error 0.123456, … heads", "holds", LEFT_OUT], output) == []  # one unit in the last place
    assert not_printed([LEFT_OUT, "written to …"], output) == []
    for lines in (
        ["error 0.123459, 12 heads", LEFT_OUT],
        ["error 0.123457, 13 heads", LEFT_OUT],
        ["error 0.123457, 12 heads", "written to net"],
        ["error 0.123457, 12 heads", "holds"],
        [LEFT_OUT, "holds", LEFT_OUT, "error 0.123457, 12 heads", LEFT_OUT],
        [LEFT_OUT, "fails", LEFT_OUT],
    ):
        assert not_printed(lines, output), lines
    assert len(changed(["error 0.123457, 12 heads in float32"])) == 2
