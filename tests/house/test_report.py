"""The report on recorded answers: every result that a command once gave is shown, drawn and put on a page, without being computed again."""

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lemmaformer.planning.rows import Plan
from lemmaformer.results import experiments, limits
from lemmaformer.results.base import Imported, Result

FOLDER = Path(__file__).parent / "snapshots"
KINDS: dict[str, type[Result]] = {
    "compare": experiments.Comparison,
    "experiment arms": experiments.Arms,
    "import": Imported,
    "limits architectures": limits.ArchitecturesTable,
    "limits coupling": limits.CouplingLimit,
    "limits dp-free": limits.DpFreeLimit,
    "limits kernel": limits.KernelLimit,
    "limits lag --horizon": limits.Horizon,
    "limits lag": limits.LagLimit,
    "limits positions": limits.PositionsTable,
    "limits rnn": limits.RnnLimit,
    "limits slopes": limits.SlopesAudit,
    "plan": Plan,
    "spectrum": experiments.SpectrumOfLogits,
}
"""What commands answer with, by how they begin; longer beginnings first."""


def recorded() -> dict[str, tuple[type[Result], dict[str, Any]]]:
    """Every recorded answer of these commands that is no refusal."""
    found = {}
    for family, commands in tomllib.loads((FOLDER / "commands.toml").read_text(encoding="utf-8")).items():
        file = FOLDER / f"{family}.json"
        answers = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        for name, command in commands.items():
            kind = next((kind for start, kind in KINDS.items() if str(command).startswith(start)), None)
            if kind is not None and answers.get(name, {}).get("json") and answers[name]["code"] == 0:
                found[f"{family}, {name}"] = kind, answers[name]["json"]
    return found


ANSWERS = recorded()


def test_all_kinds_are_recorded() -> None:
    assert {kind for kind, _ in ANSWERS.values()} == set(KINDS.values())


@pytest.mark.parametrize("name", ANSWERS)
def test_answers_are_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    kind, data = ANSWERS[name]
    kind(data).show()
    shown = capsys.readouterr()
    assert shown.out.count("\n") >= 2 and shown.err == ""
    page = kind(data)._repr_html_()
    assert page is not None and page.startswith("<") and "</pre>" in page


def is_drawn(kind: type[Result], data: dict[str, Any]) -> bool:
    """Horizons have a figure if their curves were asked for."""
    return kind.drawn_by is not None and (kind is not limits.Horizon or "curves" in data)


@pytest.mark.deep(
    keep=(
        *("adaptive, spectrum", "kernel, limits", "limits, lag law mixed", "limits, horizon figure", "limits, positions", "plan, chain"),
        *("trained, compared", "constructed, compared", "trained, arms", "adaptive, compared", "coupling, compared", "limits, slopes"),
        *("coupling, limits", "coupling, spectrum of a file", "coupling, limits of sines"),
    )
)
@pytest.mark.parametrize("name", [name for name, answer in ANSWERS.items() if is_drawn(*answer)])
def test_answers_are_drawn(name: str, tmp_path: Path) -> None:
    kind, data = ANSWERS[name]
    drawn = kind(data).draw(tmp_path / "figure.png")
    assert drawn.data["figure"] == str(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG") and (tmp_path / "figure.png").stat().st_size > 5000


@pytest.mark.parametrize(
    "command,words",
    [
        ("bound thm-3.1 --lags 4 --heads 256", ["heads", "256", "attention", "lower bound"]),
        ("bound thm-3.1 --lags 4 --error 0.01 --all", ["paper", "tuned", "minimal", "lag law"]),
        ('bound thm-5.1 --kernel "exp(-s)" --heads 64', ["kernels", "64", "exp(-s)"]),
        ("theorems", ["thm-3.1", "lag-law", "jl-4.2"]),
        ("theorems thm-3.1 --graph", ["bump", "interpolation", "read-out"]),
        ("limits lag --lag 5 --heads 3", ["5", "heads"]),
    ],
)
def test_commands_speak_to_people(command: str, words: list[str], run: Callable[..., Any]) -> None:
    import shlex

    found = run(*shlex.split(command))
    assert found.code == 0 and all(word in found.out for word in words)
