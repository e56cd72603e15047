"""Ratios of the runs that were kept, and a warning where a new one is much worse.

A benchmark ends with `guard(script, ratios, keep)`. A ratio says how many times as long as ours its peer takes in the same run: larger is
better, and machines hardly matter. What is kept lies in `benchmarks/ratios.json`; `--keep` replaces the rows that were run. A warning is a
line on stderr and changes no exit code: other work on a machine moves single ratios too.
"""

import json
import sys
from pathlib import Path

KEPT = Path(__file__).with_name("ratios.json")
WORSE = 2.0
"""Ratios of two runs of the same code on a busy machine differ by less than this factor."""


def guard(script: str, ratios: dict[str, float], keep: bool) -> list[str]:
    """The rows of a script that are worse than what is kept by more than a factor of `WORSE`, each said on stderr; with `keep` nothing is
    compared, and the rows are kept."""
    kept: dict[str, dict[str, float]] = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    known = kept.get(script, {})
    if keep:
        kept[script] = known | {row: float(f"{ratio:.3g}") for row, ratio in ratios.items()}
        KEPT.write_text(json.dumps(dict(sorted(kept.items())), ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
        return []
    slower = [row for row, ratio in ratios.items() if row in known and not ratio * WORSE >= known[row]]
    for row in slower:
        print(f"warning: {script}, {row}: {ratios[row]:.3g} times ours for the peer, {known[row]:.3g} when it was kept", file=sys.stderr)
    return slower
