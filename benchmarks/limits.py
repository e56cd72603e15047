"""What a shipped certificate spares: processor time of whole commands, start-up included, re-checked against solved afresh.

    python -m benchmarks.limits [--all] [--keep]

Each row is one command with and without --fresh, one after the other. Both pairs must enclose a common number, or the run ends there: they
are about the same optimum. Rows without a lag are those of `limits lag --horizon`. `--all` adds the rows that take long to solve.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.ratios import guard

ROOT = Path(__file__).resolve().parent.parent
ROWS: tuple[tuple[str, str, int | None], ...] = (
    ("lin", "bfloat16", 1),
    ("lin", "float32", 4),
    ("lin", "float64", 11),
    ("log", "bfloat16", 2),
    ("log", "float32", 4),
    ("mixed", "bfloat16", 2),
    ("mixed", "float32", 4),
    ("lin", "float64", None),
    ("log", "float32", None),
    ("mixed", "bfloat16", None),
)
SLOW: tuple[tuple[str, str, int | None], ...] = (
    ("log", "float64", 8),
    ("mixed", "float64", 6),
    ("mixed", "float32", None),
    ("log", "float64", None),
    ("mixed", "float64", None),
)
"""(type of heads, arithmetic, lag); no lag stands for the horizon."""


def answered(words: Sequence[str]) -> tuple[float, dict[str, Any]]:
    """(user and system time of one command, its JSON)."""
    before = os.times()
    done = subprocess.run([sys.executable, "-m", "cli", "limits", "lag", *words, "--json"], check=True, capture_output=True, cwd=ROOT)
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    return seconds, json.loads(done.stdout)


def agree(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two answers are about the same number."""
    if one.get("budgeted_error") is None:
        return bool(one["horizon"] == other["horizon"])
    pairs = one["budgeted_error"], other["budgeted_error"]
    return bool(max(pair["lower"] for pair in pairs) <= min(pair["upper"] for pair in pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--all", action="store_true", help="also the rows that take a minute and more to solve")
    parser.add_argument("--keep", action="store_true", help="keep the ratios of this run")
    asked, ratios = parser.parse_args(), {}
    rows = (*ROWS, *SLOW) if asked.all else ROWS
    print(f"{'heads':6} {'arithmetic':10} {'lag':>8} {'shipped':>8} {'fresh':>8} {'ratio':>6}")
    for rpe, dtype, lag in rows:
        words = ["--rpe", rpe, "--dtype", dtype, *(["--horizon"] if lag is None else ["--lag", str(lag)])]
        (own, shipped), (other, fresh) = answered(words), answered([*words, "--fresh"])
        if not agree(shipped, fresh):
            sys.exit(f"the shipped certificate and the solver contradict each other: {' '.join(words)}")
        ratios[" ".join(words)] = other / own
        print(f"{rpe:6} {dtype:10} {lag or 'horizon':>8} {own:8.2f} {other:8.2f} {own / other:6.2f}", flush=True)
    guard("limits", ratios, asked.keep)


if __name__ == "__main__":
    main()
