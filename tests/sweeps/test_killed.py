"""A sweep that is killed again and again makes the table of one that was left alone, and does no job twice."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from lemmaformer.sweeps.design import read_design

ROOT = Path(__file__).parent.parent.parent
SPEC = """
call = "bound"

[target]
kind = "fixed"
lags = ["{T}"]

[options]
theorem = "thm-3.1"
rate = 2

[grid]
T = "1:25"
heads = "3:22"
"""
LOGGED = """
import os, sys, cli
from lemmaformer import api

place, plain = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_APPEND | os.O_CREAT), api.bound

def logged(theorem, target, **options):
    os.write(place, f"{target.lags[0]} {options['heads']}\\n".encode())
    return plain(theorem, target, **options)

api.bound = logged
cli.main()
"""
"""The command line, with a line in a file for every job that begins."""


def begun(folder: Path) -> "subprocess.Popen[bytes]":
    arguments = ["sweep", "s.toml", "--out", "t.csv", "--json"]
    return subprocess.Popen([sys.executable, "-c", LOGGED, "executed", *arguments], cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT)})


def lines(folder: Path) -> list[bytes]:
    """The whole rows in the journal."""
    journal = folder / "t.csv.jobs"
    content = journal.read_bytes() if journal.exists() else b""
    return content[: content.rfind(b"\n") + 1].splitlines()[1:]


@pytest.mark.deep
def test_500_jobs_killed_three_times_are_the_table_of_one_run_and_no_job_is_done_twice(tmp_path: Path) -> None:
    numbers = random.Random(16)
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    for folder in (alone, killed):
        folder.mkdir()
        (folder / "s.toml").write_text(SPEC)
    left_alone = begun(alone)
    in_flight: Counter[str] = Counter()
    for wanted in sorted(numbers.sample(range(1, 450), 3)):
        process = begun(killed)
        while len(lines(killed)) < wanted:
            assert process.poll() is None, "it was to be killed before the end"
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL and not (killed / "t.csv").exists()
        before = (killed / "executed").read_text().splitlines()
        if len(before) > len(lines(killed)) + in_flight.total():  # the last one that began was not recorded
            in_flight[before[-1]] += 1
    assert begun(killed).wait() == 0 and left_alone.wait() == 0
    assert (killed / "t.csv").read_bytes() == (alone / "t.csv").read_bytes()
    keys = [job.key for job in read_design(killed / "s.toml").jobs]
    assert [json.loads(line)["key"] for line in lines(killed)] == keys and len(set(keys)) == 500
    executed = Counter((killed / "executed").read_text().splitlines())
    assert executed - in_flight == Counter((alone / "executed").read_text().splitlines()) and len(executed) == 500
    assert sum(",refused," in line for line in (alone / "t.csv").read_text().splitlines()) > 0
