"""Four virtual devices against one: the same numbers within what certificates count, forward and in training."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb

import lemmaformer as lf
from analyzer.errors import Refusal
from analyzer.numbers.exact import working_precision
from constructions.network import precision
from tests.devices.four import RATE, ROWS, STEPS, WIDE
from verify.chain.rounding import Arithmetic, Rounded

ROOT = Path(__file__).parent.parent.parent


def asked(what: str) -> Any:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    call = [sys.executable, "-m", "tests.devices.four", what]
    told = subprocess.run(call, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **flags})
    assert told.returncode == 0, told.stderr[-2000:]
    return json.loads(told.stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def quick() -> Any:
    return asked("quick")


@pytest.fixture(scope="session")
def deep() -> Any:
    return asked("deep")


def check(found: Any) -> None:
    """Both runs are as near to real arithmetic as their certificates say, and so to each other; the target is as near as certified."""
    assert found["difference"] <= found["rounding"] + found["cut_rounding"]
    assert found["verdict"] == "holds" and found["error"] <= found["certified"]


def test_a_cut_array_is_within_its_certificate(quick: Any) -> None:
    check(quick["lin"])
    assert quick["lin"]["section"] == 51 and quick["lin"]["shape"] == [203]
    assert quick["lin"]["rounding"] < quick["lin"]["cut_rounding"] < 2 * quick["lin"]["rounding"]
    assert quick["lin and log"] < 1e-13


def test_spread_sequences_keep_the_certificate_of_one_device(quick: Any) -> None:
    check(quick["sequences"])
    assert quick["sequences"]["section"] is None and quick["sequences"]["shape"] == [6, 40]


def test_states_and_values_that_are_not_passed_on_are_seen(quick: Any) -> None:
    found = quick["broken"]
    assert max(found["whole"], found["whole values"]) < 1e-13
    assert min(found["no states"], found["wrong power"], found["no values"]) > 1e-3


def test_the_bound_of_a_scan_would_be_too_small(quick: Any) -> None:
    """On real devices, against exact rationals: passing states on costs more than a scan may, and no more than is counted."""
    assert quick["passing"]["scan"] < quick["passing"]["error"] <= quick["passing"]["passed"]


def test_training_on_four_devices_is_training_on_one(quick: Any) -> None:
    """A step moves two runs apart by no more than twice its rounding δ, as I − 2ηXᵀX/n has norm ≤ 1 for η·2d ≤ 1.

    With |x|_∞, |w*|_∞ ≤ 1 and w_0 = 0 the weights stay within |w|₂ ≤ 2√d of 0, so residuals are below R = 2d + d and gradients below 2R.
    """
    unit, residual = 2.0**-53, 3 * WIDE
    gamma = (ROWS + 2 * WIDE + 8) * unit * 1.01
    step = RATE * gamma * 2 * residual + 2 * unit * (2 * WIDE + RATE * 2 * residual)
    apart = STEPS * 2 * WIDE**0.5 * step
    losses = 2 * residual * WIDE * apart + 2 * gamma * residual**2
    found = quick["regression"]
    assert found["weights"] <= apart < 1e-11
    assert max(found["losses"], found["ensemble"]) <= losses < 1e-9
    assert found["fell"] < 0.01 and 4 in found["devices"]


def test_certificates_for_sections() -> None:
    """Longer sections cost less; the passed error never falls below that of a scan."""
    net = lf.build(lf.fixed(lags=(2,)), dtype="float32", error=0.1)
    alone, *cut = (net.certificate, *(net.verify(section=section) for section in (4096, 16, 2)))
    roundings = [found.rounding for found in (alone, *cut)]
    assert roundings == sorted(roundings) and roundings[0] < roundings[1] and cut[0].details["section"] == 4096
    with working_precision(160):
        scanned = Arithmetic("float64").state(arb(0.99), Rounded(arb(1), arb(0)))
        assert all(Arithmetic("float64").passed(arb(0.99) ** n, scanned) > scanned.error for n in (1, 2, 100, 10**5))
    with pytest.raises(Refusal, match="exact"):
        lf.build(lf.fixed(lags=(2,))).verify(section=16)


def test_a_device_without_float64_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    net = lf.build(lf.fixed(lags=(2,)), dtype="float64", error=0.1)
    precision.check_device.cache_clear()
    monkeypatch.setattr(precision, "missing", lambda dtype: "sums of float64 come back as float32" if dtype == "float64" else None)
    with pytest.raises(Refusal, match=r"does not compute in float64 .sums of float64 come back as float32.*float32"):
        net(np.zeros(4))
    precision.check_device.cache_clear()


@pytest.mark.deep
def test_all_kinds_of_heads(deep: Any) -> None:
    assert all(value < (1e-4 if "float32" in name else 1e-12) for name, value in deep["random"].items()), deep["random"]
    for found in deep["built"].values():
        check(found)


@pytest.mark.deep
def test_a_trained_transformer(deep: Any) -> None:
    """Measured, not derived: Adam divides by small numbers."""
    assert deep["trained"] < 1e-9


@pytest.mark.deep
def test_what_devices_refuse(deep: Any) -> None:
    found = deep["refusals"]
    assert found["too many"].startswith("InputError: devices is 5; JAX has 4 devices") and found["none"].startswith(
        "InputError: devices is 0"
    )
    assert found["exact"].startswith("Refusal: several devices run networks of floats")
    assert found["cut where blocks suit"] == "2 None"
    assert found["form"].startswith("Refusal: an array that devices share is cut into sections, and sections are scanned")
    assert "dp heads score every token again" in found["softmax"] and found["softmax, two sequences"] == "(2, 8)"
    assert found["uneven"] == "InputError: a batch of 6 cannot be shared evenly by 4 devices"
