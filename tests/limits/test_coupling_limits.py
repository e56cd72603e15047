"""`limits coupling`: certified spectra and best errors against closed forms."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flint import arb

from analyzer.lemmas.low_rank import complexities
from analyzer.targets.coupling import coupling_from_dict
from verify.limits.coupling_rank import coupling_limits

Run = Callable[..., Any]


def _target(**data: Any) -> Any:
    return coupling_from_dict({"length": 8, **data}, "test")


def test_closed_forms() -> None:
    """sin 2πu cos 2πv has singular value 1/2; u has none modulo functions of u; the distance from rank m is the tail."""
    result = coupling_limits(_target(rho="2*sin(2*pi*u)*cos(2*pi*v) + sin(4*pi*u)*sin(4*pi*v) + u"), 4)
    assert result["rank"] == 3 and result["centred_rank"] == 2 and result["method"] == "exact"
    for pair, exact in zip(result["centred_singular_values"], (1, 0.5), strict=True):
        assert pair[0] <= exact <= pair[1] and pair[1] - pair[0] < 1e-12
    rows = result["rows"]
    assert rows[0]["lower"] <= 0.5 <= rows[0]["upper"] and rows[0]["log_odds"] == pytest.approx(0.5**0.5)
    assert [row["lower"] for row in rows[1:]] == [0, 0, 0] and rows[1]["upper"] < 1e-12 < rows[1]["plain_upper"]


@pytest.mark.deep
def test_brownian_coupling() -> None:
    """min(u, v): σ_k = 1/((k − 1/2)²π²), so best errors without the modulo are their tails."""
    rows = coupling_limits(_target(rho="(u+v-abs(u-v))/2"), 3)["rows"]
    sigma = [1 / ((k - 0.5) ** 2 * 9.869604401089358) for k in range(1, 4000)]
    for row in rows:
        tail = sum(s * s for s in sigma[row["rank"] :]) ** 0.5
        assert row["plain_lower"] <= tail <= row["plain_upper"]
        assert 0 < row["lower"] <= row["upper"] <= row["plain_upper"]


@pytest.mark.deep
def test_complexities() -> None:
    """Given bases: ‖φ‖ = √2, ‖φ_k''‖ = √2 (2πk)², C_1 = 1 at the true exponent."""
    found = complexities(_target(sigma="k**-0.8", rank=6, F="3*y"), 2, 0.8)
    assert float(found.c0) == pytest.approx(3 * 2 * 2**0.5) and float(found.c1) == pytest.approx(1)
    assert found.c2 is not None and float(found.c2) == pytest.approx(2 * 2**0.5 * (2 * 3.141592653589793) ** 2 * 5 / 8)
    kink = complexities(_target(rho="abs(u-v)"), 2, 2.0)
    assert kink.c2 is None and kink.c0 > arb(1)


def test_command(run: Run, tmp_path: Path) -> None:
    figure = tmp_path / "s.png"
    shown = run("limits", "coupling", "--rho", "(u-v)**2", "--rank", 3, "--figure", figure)
    assert shown.code == 0 and "rank 3; modulo functions of u 2" in shown.out and figure.stat().st_size > 0
    result = run("limits", "coupling", "--rho", "exp(u*v)", "--rank", 2, "--json").json
    assert result["method"] == "nystrom" and result["error_bar"] < 1e-12 and result["decay"]["alpha"] > 2
    assert {"c0", "c1", "c2", "alpha"} <= set(result["complexities"])


def test_bound_command(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "t.toml"
    target.write_text('kind = "coupling"\nlength = 8\nrho = "exp(u*v)"\n')
    found = run("bound", "jl-4.2", "--target", target, "--solve", "rank", "--error", "0.01", "--json").json
    assert found["worst_case"] <= 0.01 and found["rank"] >= 2 and "alpha" in found["printed_rate"]
    fewer = run("bound", "jl-4.2", "--target", target, "--rank", found["rank"] - 1, "--knots", found["knots"], "--json").json
    assert fewer["worst_case"] > 0.01 / 2 and fewer["tail"] > found["tail"]
