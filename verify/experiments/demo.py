"""The numbers of the tour: heads that constants ask for, networks for fixed and adaptive memories, what bits allow and depth cures."""

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
CLAIMS = ("e <= 3*T**2/H", "e <= T/H")
"""One that is true of tuned banks on the grid below, and one that is not."""
CLAIM_SIZES = ("T=1:4", "H=8,16,32")
BUNDLES = ("network", "adaptive", "long_lag", "coupling", "counterexample")
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


def fixed_memory() -> tuple[Construction, Certificate]:
    """The fixed memories built and certified."""
    built = build(TARGET, bank="minimal", error=ERROR)
    return built, verify(built.network, TARGET, built.bank, built.ffn)


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


def horizons() -> list[dict[str, Any]]:
    """How far one layer sees, per type of heads and arithmetic (log heads in float64: `limits lag` finds that horizon)."""
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


def recurrent() -> dict[str, Any]:
    """A fading memory as recurrent networks see it."""
    return rnn_limits("exp(-s)", 32, 10)


def prepare(out: Path, overwrite: bool) -> None:
    """Make the folder of the tour; what lies where its files go is refused unless `overwrite`."""
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


def write_bundle(path: Path, built: Construction, certificate: Certificate, overwrite: bool) -> None:
    """A network of the tour, with its card."""
    card = card_of(built, certificate)
    write(path, built.network, card, citation_of(card), overwrite)


def kernel_values() -> list[float]:
    """κ(0), κ(1), … of the minimal bank."""
    layer = fuse(build(FixedMemory((LAG,)), error=ERROR).network)
    with working_precision(layer.bits):
        return [float(v) for v in layer.kernel([fmpq(0), fmpq(1)], 0).values(0, 13)]
