"""Experiments that were run at full length, kept: their JSON, and pages drawn from it.

    python -m docs.site.experiments we-4a jl-table-2    runs the commands, keeps docs/experiments/ID.json, draws all pages
    python -m docs.site.experiments                     draws the pages of what is kept

A page holds what its command printed, with the date, the machine and the seconds; docs/experiments.md lists all of them with what agrees
with the print. Trained numbers depend on the machine in their last digits, and are sampled.
"""

import io
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console

from lemmaformer.results import experiments as results
from verify.report.console import printed_on

DOCS = Path(__file__).parent.parent
FOLDER, OVERVIEW = DOCS / "experiments", DOCS / "experiments.md"
WIDTH = 140
_FULL: dict[str, type[results.Experiment]] = {
    **dict.fromkeys(("we-1b", "we-2a", "we-2b", "we-4a", "we-4b"), results.WeRegression),
    **dict.fromkeys(("jl-table-2", "jl-table-3"), results.JlTable),
}
_PLAIN: dict[str, type[results.Experiment]] = {
    "we-3a": results.WeRegression,  # at full length hours: five runs of 10,000 steps with dot products over 1000 tokens
    "jl-table-1": results.JlTable1,
    "jl-fig-1": results.JlFigure1,
    **dict.fromkeys(("jl-fig-2", "jl-fig-3", "jl-fig-4"), results.JlPoints),
    "jl-fig-5": results.JlFigure5,
    "horizon": results.HorizonExperiment,
}
COMMANDS: dict[str, tuple[str, type[results.Experiment]]] = {
    **{name: (f"experiment {name} --full", kind) for name, kind in _FULL.items()},
    "we-lm": ("experiment we-lm --text LICENSE", results.WeLanguage),
    **{name: (f"experiment {name}", kind) for name, kind in _PLAIN.items()},
}
"""What is run: the published iterations where an experiment has a full version that ends within two hours, its defaults elsewhere."""


def machine() -> str:
    """Cores, processor and versions."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
    return f"{os.cpu_count()} cores, {model}; Python {platform.python_version()}, JAX {version('jax')} on the CPU"


def run(name: str) -> None:
    """Run one command and keep its answer."""
    command = COMMANDS[name][0]
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "cli", *command.split(), "--json"], cwd=DOCS.parent, capture_output=True, text=True)
    if done.returncode not in (0, 1):
        sys.exit(f"{name}: {done.stderr.strip()}")
    kept = {
        "command": f"lemmaformer {command}",
        "date": time.strftime("%Y-%m-%d"),
        "machine": machine(),
        "seconds": round(time.perf_counter() - start),
        "code": done.returncode,
        "answer": json.loads(done.stdout),
    }
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(json.dumps(kept, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def records() -> dict[str, dict[str, Any]]:
    """What is kept, in the order of the table."""
    return {name: json.loads(file.read_text(encoding="utf-8")) for name in COMMANDS if (file := FOLDER / f"{name}.json").exists()}


def page(name: str, kept: dict[str, Any]) -> str:
    """The page of one experiment: what its command printed."""
    sheet = Console(record=True, file=io.StringIO(), width=WIDTH, highlight=False)
    with printed_on(sheet):
        COMMANDS[name][1](kept["answer"]).show()
    text = "\n".join(line.rstrip() for line in sheet.export_text().splitlines())
    lines = [
        f"# {name}", "", f"`{kept['command']}`, {kept['date']}, {duration(kept['seconds'])}, {kept['machine']}.", "",
        f"{agreement(kept['answer'])} The data: [{name}.json]({name}.json).", "", "```text", text.strip("\n"), "```", "",
    ]  # fmt: skip
    return "\n".join(lines)


def judged(answer: dict[str, Any]) -> Iterator[bool]:
    """Whether each claim of the print that the experiment looks at is found again."""
    for claim in (*answer.get("claims", ()), *answer.get("ratios", ())):
        yield bool(claim["agrees"])
    for fit in answer.get("fits", {}).values():
        yield bool(fit is not None and fit["agrees_with_published"])


def agreement(answer: dict[str, Any]) -> str:
    """How many claims of the print are found again, and whether a certified floor was passed."""
    found = list(judged(answer))
    said = f"{sum(found)} of {len(found)} claims of the print are found again." if found else "No number of the print is compared."
    if "violations" in answer:
        said += f" Certified floors that a run fell below: {answer['violations'] or 'none'}."
    return said


def duration(seconds: int) -> str:
    """Seconds, or minutes from two on."""
    return f"{seconds} s" if seconds < 120 else f"{round(seconds / 60)} min"


def overview(kept: dict[str, dict[str, Any]]) -> str:
    """All experiments that are kept."""
    rows = []
    for name, one in kept.items():
        cells = (f"[{name}](experiments/{name}.md)", f"`{one['command']}`", agreement(one["answer"]), one["date"], duration(one["seconds"]))
        rows.append(f"| {' | '.join(cells)} |")
    head = [
        "# Experiments", "",
        "Published experiments of both papers, repeated with one command each, at full length where it says so. Trained numbers are",
        "sampled; floors and the errors of constructed networks are certified. Each page holds what its command printed and says on what",
        "machine.", "",
        "| experiment | command | agreement | date | took |", "|---|---|---|---|---|",
    ]  # fmt: skip
    return "\n".join([*head, *rows, ""])


def drawn() -> dict[Path, str]:
    """All pages, from what is kept."""
    kept = records()
    return {FOLDER / f"{name}.md": page(name, one) for name, one in kept.items()} | {OVERVIEW: overview(kept)}


def main(names: list[str]) -> None:
    """The command line."""
    unknown = [name for name in names if name not in COMMANDS]
    if unknown:
        sys.exit(f"{unknown[0]!r} is no experiment; choose from {', '.join(COMMANDS)}")
    for name in names:
        run(name)
    for place, text in drawn().items():
        place.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
