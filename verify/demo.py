"""The demo: heads that the constants ask for, one certified network, one figure with its numbers in CSV files."""

from pathlib import Path
from typing import Any

from flint import fmpq

from analyzer.errors import InputError
from analyzer.exact import upper, working_precision
from analyzer.extraction import attention_bound, solve_heads
from analyzer.kernels import l1_norm
from analyzer.targets import FixedMemory
from analyzer.theorems.lag_law import lag_law
from constructions.bundle import write
from constructions.card import check_output, is_bundle
from constructions.fused import fuse
from constructions.thm_3_1 import build
from verify import report
from verify.bundles import card_of, citation_of
from verify.thm_3_1 import verify

ERROR = 1e-2
LAGS = (1, 4, 16, 64)
LAG = 4
HEADS = (8, 16, 32, 64, 128, 256)
GROWTH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
TARGET = FixedMemory((LAG, 16), 1, "x0 + m1*m2")


def heads_table() -> list[dict[str, Any]]:
    """Per RPE and lag: heads for error 0.01 by the paper's constants, tuned constants, the minimal bank (built), and the law."""
    rows = []
    for rpe in ("lin", "log"):
        for lag in LAGS:
            minimal = build(FixedMemory((lag,)), rpe=rpe, bank="minimal", error=ERROR)
            certificate = verify(minimal.network, minimal.target, "minimal", "spline")
            law = lag_law(rpe, (lag,), ERROR)
            rows.append(
                {
                    "rpe": rpe,
                    "lag": lag,
                    "paper": solve_heads(rpe, (lag,), ERROR, "paper").total_heads,
                    "tuned": solve_heads(rpe, (lag,), ERROR, "tuned").total_heads,
                    "minimal": certificate.sizes["heads"],
                    "certified": certificate.certified,
                    "law": law.heads,
                    "law_status": law.status,
                }
            )
    return rows


def error_curves() -> dict[str, list[tuple[int, float]]]:
    """Bound and certified worst case against heads, lag 4, lin, paper and tuned banks."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for bank in ("paper", "tuned"):
        for heads in HEADS:
            network = build(FixedMemory((LAG,)), bank=bank, heads=heads).network
            layer = fuse(network)
            with working_precision(layer.bits):
                norm = l1_norm(layer.kernel([fmpq(0), fmpq(1)], 0, {LAG: fmpq(1)}))
            curves.setdefault(f"{bank} bound", []).append((heads, upper(attention_bound("lin", (LAG,), heads, bank).total)))
            curves.setdefault(f"{bank} certified", []).append((heads, upper(norm.most)))
    return curves


def growth_curves() -> dict[str, list[tuple[int, int]]]:
    """Heads for error 0.01 against the lag: e^{0.01T} for the paper's constants, nearly linear when tuned, exactly T at best."""
    curves = {
        f"{bank} constants": [(lag, solve_heads("lin", (lag,), ERROR, bank).total_heads) for lag in GROWTH] for bank in ("paper", "tuned")
    }
    return {**curves, "minimal bank = lag law": [(lag, lag) for lag in GROWTH]}


def _law(row: dict[str, Any]) -> str:
    return f"{row['law']}{'' if row['law_status'] == 'proved' else '*'}"


def _prepare(out: Path) -> None:
    try:
        if is_bundle(out) or (out.exists() and not out.is_dir()):
            raise InputError(f"{out} is a bundle or no folder; choose another --out")
        out.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create {str(out)[:80]}: {error.strerror}") from None
    check_output(out / "network")


def run_demo(out: Path, quiet: bool, show: bool) -> dict[str, Any]:
    """Run the tour, write figure, CSV files and bundle into `out`, and return the numbers."""
    _prepare(out)
    with report.progress("counting heads", quiet):
        rows = heads_table()
    if show:
        cells = [[r["rpe"], r["lag"], r["paper"], r["tuned"], r["minimal"], _law(r)] for r in rows]
        title = f"Heads to remember one token, worst-case error {ERROR}"
        columns = ["RPE", "lag", "paper's constants", "tuned", "minimal bank", "lag law"]
        report.console().print(report.table(title, columns, cells))
        report.console().print("* proof sketch only")
    with report.progress("building and certifying", quiet):
        built = build(TARGET, bank="minimal", error=ERROR)
        certificate = verify(built.network, TARGET, built.bank, built.ffn)
    if show:
        lags = ", ".join(map(str, TARGET.lags))
        report.console().print(f"\nA network built from the proof: y = {TARGET.formula}, lags {lags}, error {ERROR}")
        report.show_certificate(certificate)
    card = card_of(built, certificate)
    write(out / "network", built.network, card, citation_of(card))
    with report.progress("drawing", quiet):
        figure = _figure(out)
    if show:
        report.console().print(f"\nbundle {out / 'network'}, figure {figure}, numbers in CSV files beside it", soft_wrap=True)
    return {"heads": rows, "chain": certificate.as_dict(), "figure": figure}


def _figure(out: Path) -> str | None:
    layer = fuse(build(FixedMemory((LAG,)), error=ERROR).network)
    with working_precision(layer.bits):
        kernel = [float(v) for v in layer.kernel([fmpq(0), fmpq(1)], 0).values(0, 13)]
    curves, growth = error_curves(), growth_curves()
    report.write_csv(out / "kernel.csv", ["s", "kappa"], list(enumerate(kernel)))
    report.write_csv(out / "error_against_heads.csv", ["curve", "heads", "error"], [(n, h, e) for n, c in curves.items() for h, e in c])
    report.write_csv(out / "heads_against_lag.csv", ["curve", "lag", "heads"], [(n, t, h) for n, c in growth.items() for t, h in c])
    path = out / "figure.png"
    return str(path) if report.demo_figure(path, kernel, LAG, curves, growth) else None
