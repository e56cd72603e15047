"""`lf.check`: a claim at every point of a grid, and the jobs of which it consists."""

import io
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from flint import fmpq

from analyzer.errors import InputError, OptionValue, Refusal
from analyzer.language.claims import Claim, ClaimVerdict, parse_claim
from analyzer.language.grids import NEEDS, TAKES, Boxes, Over, points, read_over
from analyzer.numbers.exact import from_text, nearest, to_text
from lemmaformer.checking.boxes import check_box
from lemmaformer.checking.tables import GivenTable, read_table
from lemmaformer.options import Bits, Check
from lemmaformer.results.base import Plain
from lemmaformer.results.claims import BoxCheck, ClaimCheck
from lemmaformer.sweeps.engine import Job, Row, run_jobs

if TYPE_CHECKING:
    from analyzer.targets.protocol import Target
    from verify.claims.quantities import Quantities

NETWORKS = ("e", "error", "mse")
"""Quantities of a network."""


@dataclass(frozen=True)
class ClaimPlan:
    """A claim with everything that its points need, checked for sense before anything is computed."""

    claim: Claim
    options: Check
    target: "Target | None"
    points: tuple[dict[str, fmpq], ...]
    given: tuple[dict[str, fmpq], ...]
    """Values of the user's own table at every point."""

    @property
    def sizes(self) -> tuple[str, ...]:
        return tuple(self.points[0])

    def job(self, k: int) -> Job:
        """Point number k as a job: plain data only."""
        parameters: dict[str, Any] = {
            "claim": self.claim.text,
            "sizes": {name: to_text(value) for name, value in self.points[k].items()},
            "options": {name: value for name, value in self.options.chosen().items() if name not in ("rate", "workers")},
        }
        if self.target is not None:
            parameters["target"] = self.target.describe()
        if self.given[k]:
            parameters["given"] = {name: to_text(value) for name, value in self.given[k].items()}
        return Job("check.point", parameters)


def check(
    claim: str,
    over: Over | None = None,
    target: "Target | None" = None,
    options: Check | None = None,
    *,
    box: Boxes | None = None,
    data: str | Path | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    **keywords: OptionValue,
) -> ClaimCheck | BoxCheck:
    """Check an inequality between formulas in sizes and quantities at every point of a grid: it holds, is refuted, or is undecided.

    Quantities are `e`, `error`, `bound`, `heads`, `E_u`, `mse`, `sigma(k)`, `width`, `paper` and `tuned` (docs/claims.md), of the lag T or
    of a target. `data` is a CSV file with quantities of your own, `out` a folder for the counterexample: a bundle
    and tokens that show it. With `box`, such as T=1:100 and H=8:oo, formulas are compared for all real sizes in it.

    >>> import lemmaformer as lf
    >>> lf.check("e <= 3*T**2/H", {"T": (1, 2), "H": (8, 16)}, bank="tuned")
    <ClaimCheck e <= 3*T**2/H: holds at 4 of 4 points, certified>
    >>> lf.check("e <= T/H", ["T=2", "H=8"], bank="tuned").verdict
    'refuted'
    >>> lf.check("T/H <= 3*T**2/(H-1)", box=["T=1:100", "H=8:oo"]).verdict
    'proved'
    """
    start = time.perf_counter()
    chosen = Check.of(options, keywords)
    if box:
        idle = {"a target": target, "data": data, "out": out, "rate": chosen.rate}
        return check_box(claim, over, box, chosen, next((name for name, value in idle.items() if value is not None), None))
    plan = planned(claim, over, target, chosen, None if data is None else Path(data))
    if out is not None:
        check_out(plan, Path(out), overwrite)
    found = run_jobs([plan.job(k) for k in range(len(plan.points))], workers=plan.options.workers, what="points")
    rows = [_row(sizes, row) for sizes, row in zip(plan.points, found, strict=True)]
    if all(row["status"] == "refused" for row in found):
        raise InputError(str(found[0]["reason"]))
    data_of: Plain = {"claim": plan.claim.text, **_summary(plan, rows), "rows": rows, "counterexample": None}
    refuted = next((k for k, row in enumerate(rows) if row["verdict"] == ClaimVerdict.REFUTED.value), None)
    if refuted is not None:
        written = {} if out is None else write_counterexample(plan.job(refuted).parameters, plan.target, Path(out), overwrite)
        data_of["counterexample"] = {key: rows[refuted][key] for key in ("sizes", "sides", "why")} | written
    if plan.options.rate is not None:
        from verify.claims.rates import rates

        data_of["rates"] = rates(plan.claim, plan.options.rate, plan.sizes, rows)
    return ClaimCheck(data_of | {"seconds": time.perf_counter() - start})


def planned(claim: str, over: Over | None, target: "Target | None", options: Check, data: Path | None) -> ClaimPlan:
    """Read claim, grid and table; what does not go together is refused here, before anything heavy is loaded."""
    table = None if data is None else read_table(data)
    grid = None if over is None or len(over) == 0 else read_over(over)
    if grid is None and table is None:
        raise InputError("the claim needs sizes: give over, such as T=1:12, or data with a table of your own")
    sizes = tuple(grid or ())
    sizes, own = (sizes, ()) if table is None else table.split(sizes)
    read = parse_claim(claim, data=own)
    _check_names(read, sizes, own, target, options)
    where, given = _points(grid, table, sizes, tuple(name for name in own if name in read.quantities))
    if options.rate is not None and (options.rate not in sizes or len({at[options.rate] for at in where}) < 2):
        raise InputError(f"rate is {options.rate[:40]!r}, which is no size with several values; the sizes are {', '.join(sizes)}")
    return ClaimPlan(read, options, target, where, given)


def _points(
    grid: Mapping[str, Sequence[fmpq]] | None, table: GivenTable | None, sizes: tuple[str, ...], own: tuple[str, ...]
) -> tuple[tuple[dict[str, fmpq], ...], tuple[dict[str, fmpq], ...]]:
    """The points, and the values that the table gives at each of them."""
    if table is None:
        assert grid is not None
        found = points(grid)
        return tuple(found), tuple({} for _ in found)
    where = points(grid) if grid is not None else [{name: row[name] for name in sizes} for row in table.rows]
    rows = table.matched(where) if grid is not None else list(table.rows)
    return tuple(where), tuple({name: row[name] for name in own} for row in rows)


def _check_names(claim: Claim, sizes: tuple[str, ...], own: tuple[str, ...], target: "Target | None", options: Check) -> None:
    """Sizes that are missing, and sizes that nothing depends on."""
    computed = claim.quantities - set(own)
    derived = {"u"} if unit_of(options) is not None else set()
    missing = sorted(claim.sizes - set(sizes) - derived)
    if missing:
        raise InputError(
            f"the claim has {missing[0]}, which is no quantity and no size that is given; give it a range such as {missing[0]}=1:12"
        )
    taken = claim.sizes.union(*(TAKES[name] for name in computed))
    unused = [name for name in sizes if name not in taken]
    if unused and not own:  # the rows of a table are found by their sizes
        raise InputError(f"size {unused[0]} is given, but nothing in the claim depends on it")
    for name in sorted(computed):
        needed = (*NEEDS.get(name, ()), *(("T",) if target is None and "T" in TAKES[name] else ()))
        absent = next((size for size in needed if size not in sizes), None)
        if absent is not None:
            raise InputError(f"{name} depends on {absent}, which is not given; give it a range such as {absent}={EXAMPLES[absent]}")
    _check_options(claim, computed, sizes, target, options)


def _check_options(claim: Claim, computed: set[str], sizes: tuple[str, ...], target: "Target | None", options: Check) -> None:
    """Options that are missing, and options that nothing depends on."""
    built = computed & set(NETWORKS)
    if "bound" in computed and built and options.bank is None and target is None:
        raise InputError("the claim speaks of a network and of a bound: choose the bank of both, paper or tuned")
    if "sigma" in computed and target is None:
        raise InputError("sigma is a singular value of a coupling: give a target with rho, such as exp(-(u-v)**2)")
    if target is not None and "T" in sizes and "T" not in claim.sizes:
        raise InputError("T is the lag where no target is given; this target has its own")
    rounded = "E_u" in computed or "u" in claim.sizes
    if "E_u" in computed and "u" not in sizes and unit_of(options) is None:
        raise InputError("E_u needs an arithmetic: give dtype or bits, or the size u")
    if options.dtype == "bfloat16" and built:
        raise InputError("dtype bfloat16 says what u is; networks have exact numbers, float64 or float32")
    used = {
        "bank": built or computed & {"bound", "heads"},
        "pod": target is not None,
        "dtype": built or rounded,
        "bits": rounded,
        "ffn": "error" in computed or "width" in computed,
        "readout": target is None and computed & {"error", "mse", "width"},
    }
    idle = next((name for name in options.chosen() if not used.get(name, True)), None)
    if idle is not None:
        raise InputError(f"{idle} is given, but nothing in the claim depends on it")


EXAMPLES = {"T": "1:12", "H": "8,16,32", "eps": "0.1,0.01"}


def unit_of(options: Check) -> fmpq | None:
    """u of the arithmetic that was chosen; none for exact numbers."""
    bits = options.bits if options.bits is not None else Bits.get(options.dtype or "")
    return None if bits is None else fmpq(1, 2**bits)


def _row(sizes: Mapping[str, fmpq], row: Row) -> Plain:
    """A job's row as one of the claim; a refusal or a failure leaves the point undecided."""
    shown: Plain = {"sizes": {name: int(value.p) if value.q == 1 else nearest(value) for name, value in sizes.items()}}
    if row["status"] == "done":
        return shown | {key: row[key] for key in ("verdict", "sides", "quantities", "why")}
    why = str(row["reason"]) if row["status"] == "refused" else f"the computation failed: {row['reason']}"
    return shown | {"verdict": ClaimVerdict.UNDECIDED.value, "sides": None, "quantities": {}, "why": why}


def _summary(plan: ClaimPlan, rows: Sequence[Plain]) -> Plain:
    counts = {verdict.value: sum(row["verdict"] == verdict.value for row in rows) for verdict in ClaimVerdict}
    verdict = next((name for name in ("refuted", "undecided") if counts[name]), "holds")
    given = sorted({name for values in plan.given for name in values})
    return {
        "verdict": verdict,
        "basis": "given data" if given else "certified",
        "given": given,
        "points": len(rows),
        "counts": counts,
        "sides": [side.text for side in plan.claim.sides],
        "relations": list(plan.claim.relations),
        "options": {name: value for name, value in plan.options.chosen().items() if name != "workers"},
        "target": None if plan.target is None else plan.target.description,
    }


def point(
    claim: str,
    sizes: Mapping[str, str],
    options: Mapping[str, OptionValue] | None = None,
    target: "Target | Mapping[str, Any] | None" = None,
    given: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """One point of a grid as plain data: what the jobs of `check` call. Numbers are exact text, a target may be what describes it.

    >>> point("T <= H", {"T": "3", "H": "4"})["verdict"]
    'holds'
    """
    from verify.claims.points import judged

    if isinstance(target, Mapping):
        from analyzer.targets.files import target_from_dict

        target = target_from_dict(dict(target), "target")
    read, at, quantities = located(claim, sizes, options or {}, target, given or {})
    try:
        return judged(read, at, quantities)
    except Refusal as refusal:
        raise Refusal(refusal.reason) from None  # its remedies are options of a build


def located(
    claim: str, sizes: Mapping[str, str], options: Mapping[str, OptionValue], target: "Target | None", given: Mapping[str, str]
) -> "tuple[Claim, dict[str, fmpq], Quantities]":
    """Claim, sizes and quantities of a point, from its plain data."""
    from verify.claims.quantities import Quantities

    own = {name: from_text(value) for name, value in given.items()}
    read, at = parse_claim(claim, data=tuple(own)), {name: from_text(value) for name, value in sizes.items()}
    chosen = Check.read(dict(options))
    unit = unit_of(chosen)
    if "u" in read.sizes and "u" not in at and unit is not None:
        at["u"] = unit
    return read, at, Quantities(at, subject_of(chosen, target), own)


def check_out(plan: ClaimPlan, out: Path, overwrite: bool) -> None:
    """Refuse a place that is taken, and claims of which no network can be a counterexample."""
    from constructions.files.card import check_output

    if not (plan.claim.quantities - set(plan.given[0])) & set(NETWORKS):
        raise InputError(f"out takes a network that refutes the claim; this one speaks of none ({', '.join(NETWORKS)})")
    check_output(out, overwrite)


def write_counterexample(parameters: Mapping[str, Any], target: "Target | None", out: Path, overwrite: bool) -> Plain:
    """Write the network at a point as a bundle and, where an input refutes the claim, its tokens beside it; say what they show."""
    from constructions.files.card import TOKENS
    from constructions.files.places import write_file
    from lemmaformer.network import Network
    from verify.bundles.claims import card_of
    from verify.claims.counterexamples import counterexample, wanted_at

    found = counterexample(*located(parameters["claim"], parameters["sizes"], parameters["options"], target, parameters.get("given", {})))
    made, certificate = found.construction, found.certificate
    Network(made.network, card_of(made, certificate), made.target, certificate).save(out, overwrite=overwrite)
    said: Plain = {"bundle": str(out), "witness": certificate.witness, "certified": certificate.certified, "tokens": None}
    if found.tokens is None:
        return said
    content = io.BytesIO()
    np.save(content, found.tokens)
    write_file(out / TOKENS, content.getvalue(), overwrite)
    wanted = float(wanted_at(made.target, found.tokens, found.position))
    return said | {
        "tokens": str(out / TOKENS),
        "position": found.position,
        "output": found.output,
        "wanted": wanted,
        "error": found.error,
        "tokens_refute": found.alone,
    }


def subject_of(options: Check, target: "Target | None") -> Any:
    """What the quantities are about."""
    from verify.claims.quantities import Subject

    chosen = {name: value for name, value in options.chosen().items() if name in ("rpe", "bank", "pod", "ffn")}
    if options.dtype not in (None, "bfloat16"):
        chosen["dtype"] = options.dtype
    return Subject(target, tuple(sorted(chosen.items())), options.readout, unit_of(options))
