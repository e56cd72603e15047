"""How much faster workers of Dask are than one process on the same sweep: whole commands, start-up included.

    python -m benchmarks.sweep [--bits 24] [--workers 2] [--repeats 2]

Jobs are those of `limits lag`, linear programs of about a second each: lag 3 for every number of bits from 5 on, so that no job finds
anything that another one has left in its process. Both tables must be the same bytes. A row is the least of some runs, the two ways
alternating. The aim is a ratio of 1.6 or more with two workers on two idle cores; how busy the machine was is printed beside it, since a
core that others use cannot be used twice.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPEC = 'call = "limits.lag"\n[options]\nlag = 3\nfresh = true\n[grid]\nbits = "5:{last}"\n'


def swept(folder: Path, name: str, workers: int) -> tuple[float, float]:
    """Seconds of the whole command, by the clock and of processors."""
    out = folder / f"{name}.csv"
    for file in (out, folder / f"{name}.csv.jobs"):
        file.unlink(missing_ok=True)
    words = ["sweep", str(folder / "spec.toml"), "--out", str(out), "--workers", str(workers), "--json"]
    before, start = os.times(), time.perf_counter()
    subprocess.run([sys.executable, "-m", "cli", *words], check=True, capture_output=True, cwd=ROOT)
    after = os.times()
    busy = after.children_user + after.children_system - before.children_user - before.children_system
    return time.perf_counter() - start, busy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--bits", type=int, default=24, help="the last number of bits: one job for each from 5 on")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "spec.toml").write_text(SPEC.format(last=given.bits))
        pairs = [(swept(folder, "one", 1), swept(folder, "many", given.workers)) for _ in range(given.repeats)]
        if (folder / "one.csv").read_bytes() != (folder / "many.csv").read_bytes():
            sys.exit("the tables of one process and of workers differ")
    one, many = (min(times) for times in zip(*pairs, strict=True))
    print(f"{given.bits - 4} jobs on {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}; the tables are the same")
    print(f"{'':20} {'seconds':>8} {'of processors':>14}")
    for title, (seconds, busy) in (("one process", one), (f"{given.workers} workers of Dask", many)):
        print(f"{title:20} {seconds:8.1f} {busy:14.1f}")
    print(f"{'times as fast':20} {one[0] / many[0]:8.2f}")


if __name__ == "__main__":
    main()
