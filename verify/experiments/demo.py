"""The demo: heads that the constants ask for, networks for fixed and adaptive memories, what bits allow and depth cures, a figure."""

from pathlib import Path
from typing import Any

from flint import arb, fmpq

from analyzer.errors import InputError
from analyzer.kernels.l1_norms import l1_norm
from analyzer.language.formulas import parse_formula
from analyzer.lemmas.extraction import attention_bound, solve_heads
from analyzer.lemmas.low_rank import BANKS
from analyzer.limits.coupling_rank import best_error
from analyzer.limits.lag_law import lag_law
from analyzer.numbers.exact import lower, upper, working_precision
from analyzer.targets.adaptive import AdaptiveMemory, Memory
from analyzer.targets.coupling import BITS as COUPLING_BITS
from analyzer.targets.coupling import CouplingTarget, parse_coupling
from analyzer.targets.fixed import FixedMemory
from constructions.files.bundle import write
from constructions.files.card import check_output, is_bundle
from constructions.files.places import check_place
from constructions.run.fused import fuse
from constructions.run.lagged import ExactRunner
from constructions.theorems import jl_4_2, shift_chain
from constructions.theorems import thm_4_4 as adaptive
from constructions.theorems.construction import Construction
from constructions.theorems.thm_3_1 import build
from verify.bundles.claims import card_of, citation_of
from verify.chain.certificate import Certificate
from verify.limits.jl_6 import rnn_limits
from verify.limits.pairs import describe_horizon, horizon
from verify.report import tables as report
from verify.theorems.jl_4_2 import coupling_error, read
from verify.theorems.jl_4_2 import verify as certify_coupling
from verify.theorems.shift_chain import verify as certify_chain
from verify.theorems.thm_3_1 import verify
from verify.theorems.thm_4_4 import verify as certify_adaptive

ERROR = 1e-2
LAGS = (1, 4, 16, 64)
LAG = 4
HEADS = (8, 16, 32, 64, 128, 256)
GROWTH = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000)
TARGET = FixedMemory((LAG, 16), 1, "x0 + m1*m2")
NESTED = AdaptiveMemory(((fmpq(-1),), (fmpq(1),)), (Memory("m1", "(3 - x0)/2"), Memory("m2", "(3 - m1)/2")), "x0*m1*m2")
"""g(1) = 1, g(−1) = 2; the second lag is read off the token that the first one found."""
LONG_LAG = 40
KNOTS = 64
"""Pieces of the splines in the table of ranks."""
COUPLING = CouplingTarget(16, parse_coupling("-4*(u-v)**2"), parse_formula("x", ("x",), "f"), parse_formula("y", ("y",), "F"))
"""Tokens attend to those that are close: a coupling of rank 3, and of rank 2 for softmax."""
BITS = {"bfloat16": 8, "float32": 24, "float64": 53}
BUNDLES = ("network", "adaptive", "long_lag", "coupling")
NUMBERS = ("kernel.csv", "error_against_heads.csv", "heads_against_lag.csv")
FIGURE = "figure.png"
SEQUENCE = (1, -1, -1, 1, 1, -1, 1, -1, -1, 1)


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


def mechanism() -> tuple[Construction, Certificate, list[dict[str, Any]]]:
    """The nested target built and certified, and what its slots hold at every position of a short sequence."""
    built = adaptive.build(NESTED, error=ERROR)
    certificate = certify_adaptive(built.network, NESTED, built.bank, built.ffn)
    slots = adaptive.slots_of(NESTED)
    first, second, output = ExactRunner(built.network).stream([[x] for x in SEQUENCE])
    indices = [int(x == 1) for x in SEQUENCE]
    rows = []
    for t, x in enumerate(SEQUENCE):
        seen = NESTED.situation(indices, t)
        if seen is None:
            continue
        wanted = NESTED.readout([arb(v) for v in NESTED.point(seen)])
        row = {"t": t, "token": x, "lag_m1": float(first[t, slots.lag(0)]), "m1": float(second[t, slots.block(1)[0]])}
        rows.append(row | {"lag_m2": float(second[t, slots.lag(1)]), "output": float(output[t]), "wanted": float(wanted)})
    return built, certificate, rows


def _show_mechanism(certificate: Certificate, rows: list[dict[str, Any]]) -> None:
    out = report.console()
    out.print(f"\nLags that depend on the tokens: y = {NESTED.formula}, read off one after the other, error {ERROR}")
    out.print("\n".join(NESTED.tree_lines()))
    sequence = " ".join(f"{x:+d}" for x in SEQUENCE)
    forms = {"t": "d", "token": "+d", "lag_m1": "g", "m1": "+.4f", "lag_m2": "g", "output": "+.4f", "wanted": "+g"}
    cells = [[format(row[name], form) for name, form in forms.items()] for row in rows]
    columns = ["t", "x_t", "lag slot m1", "m1 = x_{t-lag}", "lag slot m2", "network", "wanted"]
    out.print(report.table(f"The residual stream on {sequence}", columns, cells))
    report.show_certificate(certificate)


def horizons() -> list[dict[str, Any]]:
    """How far one layer sees, per type of heads and arithmetic (log heads in float64 take a minute: `limits lag` finds that horizon)."""
    rows = []
    for rpe, names in (("lin", ("bfloat16", "float32", "float64")), ("log", ("bfloat16", "float32"))):
        for name in names:
            found = horizon(rpe, fmpq(1, 2 ** BITS[name]), BITS[name])  # type: ignore[arg-type]
            rows.append({"rpe": rpe, "arithmetic": name, **describe_horizon(found)})
    return rows


def long_lag() -> tuple[Construction, Certificate]:
    """A float32 network for a lag that no float32 layer holds."""
    built = shift_chain.build(FixedMemory((LONG_LAG,)), bank="balanced", error=ERROR, dtype="float32")
    return built, certify_chain(built.network, built.target, built.bank, built.ffn)


def _show_long_lag(rows: list[dict[str, Any]], certificate: Certificate) -> None:
    out = report.console()
    out.print(
        "\nHow far one dp-free layer sees: the largest lag with error plus price of rounding below 1/2, any decays, both sides certified"
    )
    cells = [[r["rpe"], r["arithmetic"], r["horizon"], report.number(r["upper"]), report.number(r["next_lower"])] for r in rows]
    out.print(report.table("", ["heads", "arithmetic", "horizon", "error there <", "error beyond ≥"], cells))
    out.print(f"\nDepth is the cure: lag {LONG_LAG} in float32, error {ERROR}")
    report.show_certificate(certificate)


def low_rank() -> tuple[Construction, Certificate, list[dict[str, Any]]]:
    """For m_h = 1, 2, 3: the best that any head can do, and what the singular functions of ρ, or of ρ modulo functions of u, reach."""
    rows = []
    for rank in (1, 2, 3):
        row: dict[str, Any] = {"rank": rank, "limit": lower(best_error(COUPLING.coupling, rank))}
        for bank in BANKS:
            network = jl_4_2.build(COUPLING, pod=bank, rank=rank, knots=KNOTS).network
            with working_precision(COUPLING_BITS):
                row[bank] = upper(coupling_error(read(network), COUPLING)[0])
        rows.append(row)
    built = jl_4_2.build(COUPLING, pod="centred", error=ERROR)
    return built, certify_coupling(built.network, COUPLING, built.bank, built.ffn), rows


def _show_low_rank(certificate: Certificate, rows: list[dict[str, Any]], recurrent: dict[str, Any]) -> None:
    out = report.console()
    out.print(
        f"\nOne softmax head instead of positions: y_t = Σ softmax[ρ(x_t, x_s)] x_s, ρ = {COUPLING.coupling.name}; error of the logits:"
    )
    cells = [[r["rank"], *(report.number(r[key]) for key in ("limit", "pod", "centred"))] for r in rows]
    out.print(report.table("", ["m_h", "any head ≥", "singular functions of ρ ≤", "of ρ modulo functions of u ≤"], cells))
    report.show_certificate(certificate)
    out.print(f"\nAnd recurrent networks, Σ e^(-s) x_(t-s) on {recurrent['length']} tokens:")
    report.show_rnn_limits(recurrent)


def _prepare(out: Path, overwrite: bool) -> None:
    try:
        if is_bundle(out) or (out.exists() and not out.is_dir()):
            raise InputError(f"{out} is a bundle or no folder; choose another place")
        out.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot create {str(out)[:80]}: {error.strerror}") from None
    for name in BUNDLES:
        check_output(out / name, overwrite)
    for name in (*NUMBERS, FIGURE):
        check_place(out / name, overwrite)


def run_demo(out: Path, quiet: bool, show: bool, overwrite: bool = False) -> dict[str, Any]:
    """Run the tour, write figure, CSV files and bundles into `out`, and return the numbers; what is there stays unless `overwrite`."""
    _prepare(out, overwrite)
    with report.progress("counting heads", quiet):
        rows = heads_table()
    if show:
        cells = [[r["rpe"], r["lag"], r["paper"], r["tuned"], r["minimal"], r["law"]] for r in rows]
        title = f"Heads to remember one token, worst-case error {ERROR}"
        columns = ["RPE", "lag", "paper's constants", "tuned", "minimal bank", "lag law"]
        report.console().print(report.table(title, columns, cells))
    with report.progress("building and certifying", quiet):
        built = build(TARGET, bank="minimal", error=ERROR)
        certificate = verify(built.network, TARGET, built.bank, built.ffn)
    if show:
        lags = ", ".join(map(str, TARGET.lags))
        report.console().print(f"\nA network built from the proof: y = {TARGET.formula}, lags {lags}, error {ERROR}")
        report.show_certificate(certificate)
    card = card_of(built, certificate)
    write(out / BUNDLES[0], built.network, card, citation_of(card), overwrite)
    with report.progress("building and certifying", quiet):
        nested, nested_certificate, rows_of_slots = mechanism()
    if show:
        _show_mechanism(nested_certificate, rows_of_slots)
    card = card_of(nested, nested_certificate)
    write(out / BUNDLES[1], nested.network, card, citation_of(card), overwrite)
    with report.progress("looking for horizons, building beyond them", quiet):
        seen, (chain, chain_certificate) = horizons(), long_lag()
    if show:
        _show_long_lag(seen, chain_certificate)
    card = card_of(chain, chain_certificate)
    write(out / BUNDLES[2], chain.network, card, citation_of(card), overwrite)
    with report.progress("decomposing a coupling", quiet):
        (coupled, coupled_certificate, ranks), recurrent = low_rank(), rnn_limits("exp(-s)", 32, 10)
    if show:
        _show_low_rank(coupled_certificate, ranks, recurrent)
    card = card_of(coupled, coupled_certificate)
    write(out / BUNDLES[3], coupled.network, card, citation_of(card), overwrite)
    with report.progress("drawing", quiet):
        figure = _figure(out)
    if show:
        names = "bundles network, adaptive, long_lag and coupling"
        report.console().print(f"\n{names} in {out}, figure {figure}, numbers in CSV files beside it", soft_wrap=True)
    slots = {"sequence": list(SEQUENCE), "slots": rows_of_slots, "chain": nested_certificate.as_dict()}
    depth = {"horizons": seen, "chain": chain_certificate.as_dict()}
    coupling = {"ranks": ranks, "chain": coupled_certificate.as_dict(), "rnn": recurrent}
    return {"heads": rows, "chain": certificate.as_dict(), "adaptive": slots, "depth": depth, "coupling": coupling, "figure": figure}


def _figure(out: Path) -> str | None:
    layer = fuse(build(FixedMemory((LAG,)), error=ERROR).network)
    with working_precision(layer.bits):
        kernel = [float(v) for v in layer.kernel([fmpq(0), fmpq(1)], 0).values(0, 13)]
    curves, growth = error_curves(), growth_curves()
    report.write_csv(out / NUMBERS[0], ["s", "kappa"], list(enumerate(kernel)))
    report.write_csv(out / NUMBERS[1], ["curve", "heads", "error"], [(n, h, e) for n, c in curves.items() for h, e in c])
    report.write_csv(out / NUMBERS[2], ["curve", "lag", "heads"], [(n, t, h) for n, c in growth.items() for t, h in c])
    path = out / FIGURE
    return str(path) if report.demo_figure(path, kernel, LAG, curves, growth) else None
