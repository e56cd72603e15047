"""How long answers take to begin: processor time of light commands, as ratios to the import of the library they could wait for.

    python -m benchmarks.start_up [--keep]

Every row is the least of `REPEATS` processes, its peer's runs alternating with its own.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.ratios import guard

ROOT = Path(__file__).resolve().parent.parent
REPEATS = 5
RUN = "import sys, cli; sys.argv = ['lemmaformer', *{}]; cli.main()"
ROWS = (
    ("import lemmaformer", "import lemmaformer", "import jax"),
    ("lemmaformer --help", RUN.format(["--help"]), "import jax"),
    ("lemmaformer bound thm-3.1", RUN.format(["bound", "thm-3.1", "--lags", "4", "--heads", "256", "--json"]), "import sympy"),
    ("lemmaformer theorems", RUN.format(["theorems"]), "import sympy"),
    ("an unknown option, refused", RUN.format(["bound", "thm-3.1", "--colour", "red"]), "import sympy"),
    ("a bad lag, refused", RUN.format(["build", "fixed", "--lags", "0", "--out", "none"]), "import sympy"),
    ("too few bits, refused", RUN.format(["build", "fixed", "--lags", "40", "--dtype", "float32", "--out", "none"]), "import jax"),
)
"""(name, code, the import that it is measured against)."""


def seconds(code: str) -> float:
    """User and system time of one process."""
    before = os.times()
    subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=ROOT)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--keep", action="store_true", help="keep the ratios of this run")
    keep, ratios = parser.parse_args().keep, {}
    print(f"{'command':30} {'seconds':>8} {'peer':>14} {'ratio':>6}")
    for name, code, peer in ROWS:
        own, other = (min(times) for times in zip(*((seconds(code), seconds(peer)) for _ in range(REPEATS)), strict=True))
        ratios[name] = other / own
        print(f"{name:30} {own:8.2f} {peer:>14} {own / other:6.2f}")
    guard("start_up", ratios, keep)


if __name__ == "__main__":
    main()
