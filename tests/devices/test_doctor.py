"""Hypotheses about devices: the one that is here keeps them, simulated ones break those that they should, and no others."""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flint import arb, fmpq

import lemmaformer as lf
from analyzer.numbers.exact import UNIT, rational, upper
from lemmaformer.results.devices import Diagnosis
from tests.devices import simulated
from verify.chain import operands, operations
from verify.chain.device import NEEDED, Evidence, FloatType, above, diagnosis, dot_bound, examine
from verify.chain.operations import FORMS
from verify.chain.rounding import Arithmetic, Rounded

ROOT = Path(__file__).parent.parent.parent
NAMES = {name for needed in NEEDED.values() for name in needed}
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # simulated devices overflow, and one returns no numbers


@pytest.fixture(scope="module")
def here() -> Diagnosis:
    return lf.doctor()


@pytest.mark.deep
def test_the_device_here_keeps_all_hypotheses(here: Diagnosis) -> None:
    assert here.holds and here.violated == [] and all(row["applies"] for row in here.certificates)
    assert [row["dtype"] for row in here.dtypes] == list(UNIT) and not jax.config.jax_enable_x64
    for row in here.dtypes:
        checks: Any = row["checks"]
        assert {check["name"] for check in checks} == NAMES
        assert all(check["holds"] and 0 <= check["worst"] <= 1 and check["hypothesis"] for check in checks)
    assert json.loads(json.dumps(here.as_dict(), allow_nan=False)) == here.as_dict()
    assert here.device["platform"] == jax.devices()[0].platform and "all hypotheses hold" in repr(here)


@pytest.mark.deep
def test_operands_come_near_what_is_allowed(here: Diagnosis) -> None:
    """A check that could not fail would say nothing: these errors are all but the allowed ones."""
    for row in here.dtypes:
        checks: Any = row["checks"]
        worst = {check["name"]: check["worst"] for check in checks}
        assert all(worst[name] > 0.999 for name in ("sum", "product", "quotient", "products of matrices", "taps"))
        assert all(worst[name] > 0.1 for name in ("sums of weights", "recurrence", "exponential"))


KEPT = {
    "ieee": (simulated.Ieee, {"fused": False, "flushes_inputs": False, "flushes_outputs": False}),
    "fusing": (simulated.Fusing, {"fused": True, "flushes_inputs": False, "flushes_outputs": False}),
    "flushing": (simulated.Flushing, {"fused": False, "flushes_inputs": True, "flushes_outputs": True}),
}


@pytest.mark.deep
@pytest.mark.parametrize("name", KEPT)
def test_fusing_and_flushing_are_facts_and_no_faults(name: str) -> None:
    device, facts = KEPT[name]
    found = examine(device())
    assert found.broken == ()
    assert found.facts == {**facts, "correctly_rounded": {"sum": True, "product": True, "quotient": True}}


BROKEN: dict[str, tuple[type[simulated.Ieee], set[str]]] = {
    "flushes normal numbers": (
        simulated.FlushingNormal,
        {"sum", "product", "quotient", "exact results", "products of matrices", "exponential"},
    ),
    "flushes operands only": (simulated.FlushingOperands, {"sum", "product", "quotient"}),
    "truncates": (simulated.Truncating, {"sum", "product", "quotient", "products of matrices", "sums of weights", "taps"}),
    "ten bits": (simulated.FewBits, {"products of matrices", "recurrence by blocks", "softmax"}),
    "fuses with truncation": (simulated.FusingWithTruncation, {"products of matrices", "sums of weights"}),
    "reassociates": (simulated.Reassociating, {"exponential"}),
    "e^0 is not 1": (simulated.NearlyOne, {"exponential"}),
    "halves up": (simulated.HalvesUp, {"whole numbers"}),
    "reciprocals": (simulated.Reciprocals, {"quotient"}),
    "no numbers": (simulated.NoNumbers, {"sums of weights", "softmax"}),
}


@pytest.mark.deep(keep="flushes normal numbers")
@pytest.mark.parametrize("name", BROKEN)
def test_a_device_that_breaks_a_hypothesis_is_found_out(name: str) -> None:
    device, wanted = BROKEN[name]
    found = diagnosis({"float32": device()})
    assert found["violated"] == [f"float32: {check}" for check in checks_in_order(found) if check in wanted]
    rows: Any = found["certificates"]
    for row in rows:
        assert row["applies"] == (row["dtype"] is None or not wanted & set(NEEDED[row["what"]]))
    types: Any = found["dtypes"]
    for check in types[0]["checks"]:
        assert check["holds"] or (check["operands"] and (check["worst"] is None or check["worst"] > 1))


def checks_in_order(found: Any) -> list[str]:
    return [check["name"] for check in found["dtypes"][0]["checks"]]


@pytest.mark.deep
def test_a_violated_hypothesis_is_shown_with_its_operands(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of ten bits, and no float64 at all: exit code 1, which certificates are left, and the operands."""
    monkeypatch.setattr(operations, "JaxOperations", lambda dtype: simulated.FewBits())
    told = run("doctor", "--json")
    found = told.json
    assert told.code == 1 and found["violated"] == ["float32: products of matrices", "float32: recurrence by blocks", "float32: softmax"]
    assert [row["available"] for row in found["dtypes"]] == [True, False] and "come back as float32" in found["dtypes"][1]["reason"]
    assert {row["what"] for row in found["certificates"] if row["applies"]} == {"exact networks", "limits"}
    Diagnosis(found).show()
    monkeypatch.undo()


FAST_MATH = "--xla_cpu_enable_fast_math=true " + " ".join(
    f"--xla_cpu_fast_math_honor_{what}=false" for what in ("division", "nans", "infs")
)


@pytest.mark.deep
def test_a_compiler_that_rearranges_sums_is_found_out() -> None:
    """XLA itself, allowed to treat floats as real numbers: x − n·ln 2 in one step is the first that goes wrong."""
    call = [sys.executable, "-c", "import sys, cli; sys.argv[1:] = ['doctor', '--json']; cli.main()"]
    done = subprocess.run(
        call, capture_output=True, text=True, cwd=ROOT, env={**os.environ, "XLA_FLAGS": FAST_MATH, "JAX_PLATFORMS": "cpu"}
    )
    assert done.returncode == 1 and "float64: exponential" in json.loads(done.stdout)["violated"]


@pytest.mark.deep
def test_what_is_shown(here: Diagnosis, capsys: pytest.CaptureFixture[str]) -> None:
    here.show()
    shown = capsys.readouterr().out
    assert all(name in shown for name in NAMES) and "all hypotheses hold" in shown and "softmax layers" in shown
    checks: Any = here.dtypes[0]["checks"]
    worse = {**checks[0], "holds": False, "worst": None, "operands": ["1.0", "2.0"]}
    types = [{**here.dtypes[0], "checks": [worse, *checks[1:]]}, {"dtype": "float64", "available": False, "reason": "no such type"}]
    Diagnosis({**here.data, "holds": False, "violated": ["float32: sum"], "dtypes": types}).show()
    shown = capsys.readouterr().out
    assert "not at 1.0, 2.0" in shown and "wrong" in shown and "violated: float32: sum" in shown
    assert "there is no float64 here: no such type" in shown and "|fl(a + b)" in shown


UNUSED = {"hvd,...htd->...htv", "...hts,...sd->...htd"}
"""Products of the reference pass that the fast one does not form: it projects values before they are mixed."""
UNCOUNTED = {"hiv,hvj->hij", "sh,hij->sij", "fij,f...j->f...i", "sij,j->si"}
"""Products around the transforms of slow log heads, whose roundings no certificate counts: `rounding` is null there."""


def test_all_products_of_the_executor_are_asked_for() -> None:
    found = set()
    for file in ("network/recurrences.py", "run/fast.py", "run/reference.py", "run/token_by_token.py"):
        for node in ast.walk(ast.parse((ROOT / "constructions" / file).read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and "->" in node.value and " " not in node.value:
                found.add(node.value)
    assert found - UNUSED - UNCOUNTED == set(FORMS) - {"ij,...j->...i"}  # that of linear RNNs
    assert '"ij,...j->...i"' in (ROOT / "constructions" / "theorems" / "linear_rnn.py").read_text()


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_terms_are_those_that_outputs_add_up(form: str) -> None:
    given = operands.contraction(form, 12, 3, "float64")
    wanted = np.einsum("...i,...i->...", given.left_rows[given.left_of], given.right_rows[given.right_of])
    np.testing.assert_allclose(np.einsum(form, given.left, given.right), wanted, rtol=1e-9, atol=1e-2)  # sums that cancel
    np.testing.assert_allclose(np.einsum(form, abs(given.left), abs(given.right)).sum(), np.einsum("...i,...i->...", *(
        abs(table[place]) for table, place in ((given.left_rows, given.left_of), (given.right_rows, given.right_of)))).sum(), rtol=1e-12,
    )  # fmt: skip


def test_what_is_allowed_is_what_the_analysis_counts() -> None:
    kind, weights, inputs = FloatType("float32", np.zeros(0)), [fmpq(3), fmpq(-5, 7)], [fmpq(1, 3), fmpq(2)]
    gamma = 2 * kind.unit / (1 - 2 * kind.unit)
    by_hand = gamma * (fmpq(1) + fmpq(10, 7)) + 4 * kind.tiny * (1 + fmpq(3) + fmpq(2))
    assert abs(dot_bound(kind, weights, inputs) / by_hand - 1) < fmpq(1, 2**200)
    error = Arithmetic("float32").plus(Rounded(arb(1), arb(0)), Rounded(arb(1), arb(0)), arb(2)).error
    assert upper(abs(error - arb(2 * kind.unit + kind.tiny))) < 1e-20  # u|a + b| + η
    assert above(arb(3)) == 3


def test_evidence_compares_exactly_and_fails_on_what_is_no_number() -> None:
    seen = Evidence()
    seen.see(fmpq(1), fmpq(2), 1.0)
    seen.see(fmpq(10**30 + 1), fmpq(10**30), 2.0)
    judged = seen.judged("name", "text")
    assert not judged.holds and judged.worst == 1.0 and judged.operands == ("2.0",)
    for error, allowed in ((None, fmpq(1)), (fmpq(1), fmpq(0))):
        broken = Evidence()
        broken.see(error, allowed, "here")
        assert not broken.judged("name", "text").holds and broken.judged("name", "text").worst is None
    fine = Evidence()
    fine.see(fmpq(0), fmpq(0), "here")
    assert fine.judged("name", "text").holds and fine.judged("name", "text").worst == 0


def test_the_nearest_number_and_numbers_of_the_type() -> None:
    kind = FloatType("float32", np.zeros(0))
    one, after = np.float32(1), np.nextafter(np.float32(1), np.float32(2))
    middle = (rational(1.0) + rational(float(after))) / 2
    assert kind.is_nearest(one, middle) and not kind.is_nearest(after, middle)  # ties go to even
    assert kind.is_nearest(after, middle + fmpq(1, 10**12)) and not kind.is_nearest(one, middle + fmpq(1, 10**12))
    assert not kind.is_nearest(np.float32(np.nan), middle)
    assert kind.holds_exactly(rational(float(after))) and kind.holds_exactly(fmpq(0)) and kind.holds_exactly(-kind.largest)
    assert not any(map(kind.holds_exactly, (middle, fmpq(1, 3), kind.tiny / 2, 2 * kind.largest)))
