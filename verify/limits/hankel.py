"""A memory kernel between its two sides: a certified bank with H heads above, a certified lower bound for every H heads below.

The certificate is plain data with exact numbers as text, and needs no solver to check:

    primal   decays, weights and residual of a bank: ‖κ − ρ‖₁ is summed in ball arithmetic, infinite tail included
    dual     a section with integer vectors that show its singular value, or a window of signs (`analyzer.limits.hankel`)
"""

from typing import Any

from flint import fmpq

from analyzer.errors import InputError
from analyzer.kernels.l1_norms import norm_of
from analyzer.kernels.memory_kernels import MemoryKernel, parse_kernel
from analyzer.lemmas.extraction import Rpe
from analyzer.limits.hankel import LowerBound, check_lower_bound, lower_bound, remark
from analyzer.numbers.exact import from_text, lower, nearest, to_text, upper, working_precision
from analyzer.ranges import check_range
from constructions.banks.head_banks import HeadBank
from constructions.banks.kernel_banks import MAX_FITTED, bank_error, fitted_bank

FORMAT = "lemmaformer-kernel-certificate"
VERSION = 1
SLACK = 2.0**-20
"""By this share the claim is weaker than what was found: libraries may round the last bits of a ball differently."""
MAX_WORK = 400_000
"""Entries of a section times terms of its kernel that are checked: a few seconds."""
LEAST_DECAY = fmpq(1, 2**64)
"""Slower heads than this are taken for damage."""


def kernel_certificate(text: str, rpe: Rpe, heads: int) -> dict[str, Any]:
    """Both sides for one kernel and number of heads, with what shows them."""
    check_range("heads", heads, 1, MAX_FITTED)
    kernel = parse_kernel(text)
    bank = fitted_bank(rpe, kernel, 1, heads)
    below = lower_bound(kernel, rpe, heads)
    return {
        "format": FORMAT,
        "version": VERSION,
        "kernel": text,
        "rpe": rpe,
        "heads": heads,
        "upper": upper(bank_error(bank, kernel).most) * (1 + SLACK),
        "lower": below.value,
        "primal": {
            "decays": [to_text(p) for p in bank.decays],
            "weights": [to_text(a) for a in bank.weights[0]],
            "residual": to_text(bank.residuals[0]),
        },
        "dual": {
            "kind": below.kind,
            "edges": list(below.edges),
            "vectors": [list(row) for row in below.vectors],
            "claim": to_text(below.claim),
        },
    }


def check_kernel_certificate(data: Any) -> dict[str, Any]:
    """{lower, upper, faults}: both sides as the data show them, and the claims they do not bear out; malformed data are refused."""
    if not isinstance(data, dict) or data.get("format") != FORMAT or type(data.get("version")) is not int or data["version"] != VERSION:
        raise InputError(f"this is no {FORMAT} of version {VERSION}")
    text, rpe, heads = data.get("kernel"), data.get("rpe"), data.get("heads")
    if not isinstance(text, str) or rpe not in ("lin", "log") or type(heads) is not int or not 1 <= heads <= MAX_FITTED:
        raise InputError("a kernel certificate names a kernel, an rpe (lin or log) and heads")
    kernel = parse_kernel(text)
    bank, below = _primal(data.get("primal"), rpe, heads), _dual(data.get("dual"))
    if len(below.edges) ** 2 * len(kernel.terms) > MAX_WORK:
        raise InputError("the section of this kernel certificate is too large to check")
    reached = upper(bank_error(bank, kernel).most)
    shown = check_lower_bound(kernel, rpe, heads, below)
    faults = []
    if not shown:
        faults.append(f"the {below.kind} section does not show the lower bound {below.value:.6g}")
    for name, value, honest in (
        ("lower", below.value, lambda claim: claim <= below.value),
        ("upper", reached, lambda claim: claim >= reached),
    ):
        claim = data.get(name)
        if isinstance(claim, bool) or not isinstance(claim, int | float) or not honest(claim):
            faults.append(f"the certificate claims {name} {str(claim)[:40]!a}, its data give {value:.6g}")
    return {"kernel": text, "rpe": rpe, "heads": heads, "lower": below.value if shown else 0.0, "upper": reached, "faults": faults}


def _numbers(value: Any, what: str) -> tuple[fmpq, ...]:
    if not isinstance(value, list):
        raise InputError(f"{what} must be a list of exact numbers")
    return tuple(from_text(v) for v in value)


def _primal(data: Any, rpe: Rpe, heads: int) -> HeadBank:
    if not isinstance(data, dict) or set(data) != {"decays", "weights", "residual"}:
        raise InputError("the primal side has decays, weights and a residual")
    decays, weights = _numbers(data["decays"], "decays"), _numbers(data["weights"], "weights")
    least = 0 if rpe == "lin" else 1
    if not 1 <= len(decays) <= heads or len(weights) != len(decays) or not all(LEAST_DECAY < p - least < 2**20 for p in decays):
        raise InputError(f"a {rpe} bank with {heads} heads has at most as many decays above {least}, and a weight for each")
    return HeadBank(rpe, decays, (1,), (weights,), (from_text(data["residual"]),))


def _dual(data: Any) -> LowerBound:
    if not isinstance(data, dict) or set(data) != {"kind", "edges", "vectors", "claim"} or not isinstance(data["kind"], str):
        raise InputError("the dual side has a kind, edges, vectors and a claim")
    edges, vectors = data["edges"], data["vectors"]
    rows = [edges, *vectors] if isinstance(vectors, list) else [None]
    if not all(isinstance(row, list) and all(type(v) is int and abs(v) < 2**53 for v in row) for row in rows):
        raise InputError("edges and vectors are lists of whole numbers")
    return LowerBound(from_text(data["claim"]), data["kind"], tuple(edges), tuple(tuple(row) for row in vectors))


def kernel_limits(certificate: dict[str, Any]) -> dict[str, Any]:
    """What `lemmaformer limits kernel` prints of a certificate."""
    text, rpe, heads = certificate["kernel"], certificate["rpe"], certificate["heads"]
    kernel = parse_kernel(text)
    dual = certificate["dual"]
    below = _dual(dual)
    decays = [from_text(p) for p in certificate["primal"]["decays"]]
    result = {
        "kernel": text,
        "rpe": rpe,
        "heads": heads,
        "lower": certificate["lower"],
        "upper": certificate["upper"],
        "ratio": certificate["upper"] / certificate["lower"] if certificate["lower"] > 0 else None,
        "kernel_norm": _norm(kernel),
        "method": dual["kind"],
        "section": _section(dual),
        "heads_used": len(decays),
        "decays": [nearest(p) for p in decays],
    }
    said = remark(kernel, rpe, heads, below)
    return result | ({"note": said} if said else {})


def _section(dual: dict[str, Any]) -> dict[str, int]:
    """Rows of the section and how many tokens it looks at."""
    edges = dual["edges"]
    if dual["kind"] == "hankel":
        return {"rows": len(edges) - 1, "tokens": 2 * edges[-1] - 1}
    return {"rows": len(edges), "tokens": edges[-1] ** 2 if dual["kind"] == "helson" else edges[-1]}


def _norm(kernel: MemoryKernel) -> float:
    """‖ρ‖₁ on s ≥ 1 from below: the error of the zero network that the two sides compare with."""
    with working_precision(128):
        return lower(norm_of(kernel).least - abs(kernel.value(0)))
