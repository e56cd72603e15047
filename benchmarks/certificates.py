"""Certificates of trained networks beside IBP, CROWN and α-CROWN of auto_LiRPA: the same weights, in one run.

    python benchmarks/certificates.py [--peer PYTHON] [--seconds 60] [--iterations 100] [--case NAME] [--markdown]

Networks are trained here, from fixed seeds, on y_t = x_{t−1} x_{t−3}. Every method bounds sup |network − target| at the last token of a
window that holds all that the output reads; witness is an error that really occurs, so witness/certified is at most 1, and 1 is sharp.
Seconds are processor time. Where tokens are letters, auto_LiRPA, which knows no finite sets, is given the box [−1, 1] that they span: its
bounds hold for more sequences than the witness is looked for in. `benchmarks/lirpa.py` says how it is called; before it is, its module is
compared with our `run` on random tokens. It does not count rounding; ours is counted where the certificate says so.

The peer runs in a process of its own, with any interpreter that has it (--peer), by default this one; without it its columns are empty.
"""

import argparse
import inspect
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import lemmaformer as lf
from analyzer.numbers.exact import decimal_above, decimal_below
from constructions.files.bundle import arrays_of
from constructions.run.execute import run
from constructions.training.recipes import Shape, TrainingRecipe
from verify.report.console import console, show_lines, table

LIRPA = Path(__file__).resolve().parent / "lirpa.py"
PEERS = ("IBP", "CROWN", "α-CROWN")
OURS = "ours"
LAGS = (1, 3)
REACH = 8
SAMPLES, TOLERANCE = 512, 1e-5
"""Sequences on which the peer's module is compared with ours, and how far float32 may be from float64 on them."""
HINT = (
    "auto_LiRPA 0.6 is not there, its columns stay empty: pip install torch numpy gurobipy tqdm packaging && pip install --no-deps "
    "neuralsat, which brings it along (or install it from its repository; up to 0.3 it is too old); --peer PYTHON for an interpreter "
    "that has it"
)


@dataclass(frozen=True)
class Case:
    """A network, how it is trained, and the tokens of the window that it is certified on."""

    shape: Shape
    alphabet: tuple[int, ...] | None = None
    steps: int = 1500
    rate: float = 1e-2
    seed: int = 0

    @property
    def tokens(self) -> int:
        """All that the last output reads: tables reach back layer by layer, finite windows are as long as one table."""
        return 1 + self.shape.layers * (REACH - 1)

    @property
    def target(self) -> Any:
        return lf.fixed(lags=LAGS, readout="m1*m2", alphabet=self.alphabet)


TABLE = Shape(heads=4, width=32, model_dim=3, key_dim=2, rpe="table", reach=REACH)
DP = replace(TABLE, attention="dp")
WINDOW = replace(DP, window="finite", reach=0)
SIGNS = (-1, 1)
CASES = {
    "dp-free, 4 heads": Case(TABLE, steps=3000, rate=3e-2, seed=1),
    "dp, 4 heads": Case(DP),
    "dp, 1 head": Case(replace(DP, heads=1)),
    "dp, 4 lin heads, 8 tokens": Case(replace(WINDOW, rpe="lin"), steps=3000),
    "dp, 4 log heads, 8 tokens": Case(replace(WINDOW, rpe="log"), steps=3000),
    "dp, 4 heads, letters ±1": Case(DP, SIGNS),
    "dp, 2 layers, letters ±1": Case(replace(DP, layers=2), SIGNS),
    "dp-free, 2 layers, letters ±1": Case(replace(TABLE, layers=2), SIGNS),
}


@dataclass(frozen=True)
class Found:
    """What a method says; `certified` is infinite where it says nothing."""

    certified: float
    seconds: float


@dataclass(frozen=True)
class Row:
    name: str
    witness: float
    found: dict[str, Found]

    def cells(self) -> list[str]:
        return [self.name, decimal_below(self.witness, 3), *(self.cell(method) for method in (*PEERS, OURS))]

    def cell(self, method: str) -> str:
        found = self.found.get(method)
        if found is None or not math.isfinite(found.certified):
            return "–"
        return f"{decimal_above(found.certified, 3)} ({decimal_below(self.witness / found.certified, 3)}; {found.seconds:.1f} s)"


TITLE = "sup |network − target|: certified (witness/certified; processor seconds)"
COLUMNS = ("network", "witness", *PEERS, OURS)


def trained(case: Case) -> lf.Network:
    """The trained weights with a card that claims nothing, so that they are certified once, by whoever asks."""
    from constructions.training.trainable import initial, train

    length, target = case.tokens, case.target
    recipe = TrainingRecipe(length=length, first=length - 1, batch=256, steps=case.steps, rate=case.rate, seed=case.seed)
    network, _ = train(initial(case.shape, target.dim, case.seed, length), target, recipe)
    card = {"origin": "imported", "theorem": None, "target": target.describe(), "sizes": network.sizes()}
    return lf.Network(network, {**card, "training": {"recipe": {"length": length}}}, target)


def certify(network: lf.Network, seconds: float) -> lf.Certificate:
    """Our certificate, within a budget if the library takes one."""
    budget = {"seconds": seconds} if "seconds" in inspect.signature(network.verify).parameters else {}
    return network.verify(**budget)


def peer_versions(python: str) -> dict[str, str] | None:
    """The versions that an interpreter has of the peer; None if it lacks it."""
    done = subprocess.run([python, str(LIRPA)], capture_output=True, text=True)
    if done.returncode and "ImportError" not in done.stderr and "ModuleNotFoundError" not in done.stderr:
        raise SystemExit(f"{python}: {done.stderr[-2000:]}")
    return None if done.returncode else json.loads(done.stdout)


def peer_bounds(python: str, case: Case, network: lf.Network, iterations: int, seconds: float) -> dict[str, Found]:
    """Every method of the peer, once its module was seen to compute what we do."""
    rng, layers = np.random.default_rng(case.seed), network.transformer.layers
    tokens = rng.uniform(-1, 1, (SAMPLES, case.tokens, 1)).astype(network.dtype)
    wanted = np.prod([tokens[:, case.tokens - 1 - lag, 0] for lag in LAGS], axis=0)
    data = {"tokens": tokens[..., 0], "errors": run(network.transformer, tokens)[:, -1] - wanted, "lags": np.array(LAGS)}
    data |= {"kinds": np.array([layer.attention.kind for layer in layers]), "rpes": np.array([layer.attention.rpe[0] for layer in layers])}
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "network.npz")
        np.savez(place, **arrays_of(network.transformer), **data)
        done = subprocess.run([python, str(LIRPA), place, str(iterations), str(seconds)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"auto_LiRPA: {done.stderr[-2000:]}")
    said = json.loads(done.stdout)
    if not said["difference"] <= TOLERANCE:
        raise SystemExit(f"the peer's module differs from the network by {said['difference']:.2g}; nothing was compared")
    return {method: Found(**said["bounds"][method]) for method in PEERS}


def compared(name: str, case: Case, python: str | None, iterations: int, seconds: float) -> Row:
    """One row of the table: train, certify, ask the peer."""
    network = trained(case)
    begun = time.process_time()
    certificate = certify(network, seconds)
    found = {OURS: Found(certificate.certified, time.process_time() - begun)}
    if python is not None:
        found |= peer_bounds(python, case, network, iterations, seconds)
    false = [method for method, one in found.items() if not one.certified >= certificate.witness]
    if false:
        raise SystemExit(
            f"{name}: {false[0]} certifies {found[false[0]].certified:.6g}, below the error {certificate.witness:.6g} that occurs"
        )
    return Row(name, certificate.witness, found)


def markdown(rows: Sequence[Row]) -> list[str]:
    rule = "|---|" + "---:|" * (len(COLUMNS) - 1)
    head, *body = (f"| {' | '.join(cells)} |" for cells in (COLUMNS, *(row.cells() for row in rows)))
    return [head, rule, *body]


def notes(versions: dict[str, str] | None, iterations: int, seconds: float) -> list[str]:
    lines = [
        "Letters: the witness is a sequence of letters, auto_LiRPA bounds the box that they span. Witnesses are sampled where ours is –."
    ]
    if versions is not None:
        release = f"auto_LiRPA {versions['auto_LiRPA']} (from {versions['source']}), torch {versions['torch']}"
        lines.append(f"{release}, float64, rounding not counted; α-CROWN: at most {iterations} iterations and {seconds:g} s a side.")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Certificates of trained networks, ours beside those of auto_LiRPA.")
    parser.add_argument("--peer", default=sys.executable, metavar="PYTHON", help="an interpreter that has torch and auto_LiRPA")
    parser.add_argument("--seconds", type=float, default=60, help="budget of ours for a network, and of α-CROWN for each side of it")
    parser.add_argument("--iterations", type=int, default=100, help="of α-CROWN")
    parser.add_argument("--case", choices=list(CASES), action="append", help="this network only; may be given again")
    parser.add_argument("--steps", type=int, help="training steps of every network, instead of its own")
    parser.add_argument("--markdown", action="store_true", help="the table as markdown")
    given = parser.parse_args(arguments)
    versions = peer_versions(given.peer)
    if versions is None:
        print(HINT, file=sys.stderr)
    rows = []
    for name in given.case or CASES:
        case = CASES[name] if given.steps is None else replace(CASES[name], steps=given.steps)
        rows.append(compared(name, case, given.peer if versions else None, given.iterations, given.seconds))
        print(f"{name}: done", file=sys.stderr, flush=True)
    said = notes(versions, given.iterations, given.seconds)
    if given.markdown:
        print("\n".join([TITLE, "", *markdown(rows), "", *said]))
    else:
        console().print(table(TITLE, COLUMNS, [row.cells() for row in rows]))
        show_lines(said)


if __name__ == "__main__":
    main()
