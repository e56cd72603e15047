"""What no network of a class can do, with certificates: `lf.limits.lag`, `horizon`, `heads`, `kernel`, `architectures`,
`coupling`, `invariance`, `permutation`, `rnn`, `slopes`, `positions`, `dp_free`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from analyzer.errors import InputError, OptionValue
from lemmaformer.options import (
    LEAST_BITS,
    MAX_BITS,
    MODEL_LAGS,
    MODEL_WINDOW,
    SCHEMES,
    ArchitecturesLimits,
    Bits,
    CouplingLimits,
    DpFreeLimits,
    HeadsLimits,
    InvarianceLimits,
    KernelLimits,
    LagLimits,
    PermutationLimits,
    PositionsLimits,
    RnnLimits,
    SlopesLimits,
)
from lemmaformer.progress import stepping, working
from lemmaformer.results.limits import (
    ArchitecturesTable,
    CouplingLimit,
    DpFreeLimit,
    Horizon,
    InvarianceLimit,
    KernelLimit,
    LagLimit,
    ModelAudit,
    PermutationLimit,
    PositionsTable,
    RnnLimit,
    SlopesAudit,
)
from lemmaformer.results.positions import LagCosts

if TYPE_CHECKING:
    from analyzer.targets.protocol import Target
    from verify.limits.positions import Scheme

__all__ = [
    "architectures",
    "coupling",
    "dp_free",
    "heads",
    "horizon",
    "invariance",
    "kernel",
    "lag",
    "permutation",
    "positions",
    "rnn",
    "slopes",
]


def lag(
    lag: int, options: LagLimits | None = None, *, certificate: str | Path | None = None, overwrite: bool = False, **keywords: OptionValue
) -> LagLimit:
    """How many heads a lag needs and, for a dtype or bits, the least error that the arithmetic allows, over all decays.

    >>> import lemmaformer as lf
    >>> found = lf.limits.lag(1, dtype="bfloat16")
    >>> found.min_heads, found.lower <= found.upper
    (1, True)

    For float types the answer is that of a shipped certificate, re-checked on the way, for other bits that of an earlier run if there
    is one; `fresh=True` solves anew. `source` says which.

    With `norm="mean-square"` the least mean square error of so many heads, as a share of the variance of the tokens:

    >>> found = lf.limits.lag(4, heads=2, norm="mean-square")
    >>> found.lower <= 0.7682207 <= found.upper <= 1.02 * found.lower
    True
    """
    chosen = LagLimits.of(options, keywords)
    if isinstance(lag, bool) or not isinstance(lag, int):
        raise InputError(f"lag is {str(lag)[:40]!r}; give a whole number")
    if chosen.norm == "mean-square":
        return _mean_square_lag(lag, chosen, certificate)
    from flint import fmpq

    from analyzer.limits.lag_law import lag_law
    from constructions.files.places import check_place
    from verify.limits import certificate_files
    from verify.limits.pairs import check_lag, describe_pair, lag_limit

    check_lag(lag)
    if certificate is not None:
        check_place(Path(certificate), overwrite=overwrite)
    law = lag_law(chosen.rpe, (lag,))
    result: dict[str, Any] = {"rpe": chosen.rpe, "lag": lag, "min_heads": law.heads, "proof": law.status, "budgeted_error": None}
    few = chosen.heads is not None and chosen.heads < law.heads
    if chosen.heads is not None:
        result |= {"heads": chosen.heads, "least_error": 1.0 if few else 0.0}
    size = chosen.bits if chosen.dtype is None else Bits[chosen.dtype]
    if certificate is not None and (size is None or few):
        raise InputError("a certificate needs a dtype or bits, and as many heads as the lag law asks for")
    if size is None:
        if chosen.fresh:
            raise InputError("the lag law needs no solver; fresh goes with a dtype or bits")
        return LagLimit(result)
    with working("certifying"):
        pair = lag_limit(chosen.rpe, lag, fmpq(1, 2**size), size, chosen.heads, chosen.fresh)
    result |= {"arithmetic": chosen.dtype or str(size), **describe_pair(pair)}
    if certificate is not None:
        certificate_files.write_json(Path(certificate), certificate_files.certificate([pair], chosen.rpe, pair.unit), overwrite=overwrite)
        result["certificate"] = str(certificate)
    return LagLimit(result)


def _mean_square_lag(lag: int, chosen: LagLimits, certificate: str | Path | None) -> LagLimit:
    """The least mean square error of a lag over all decays."""
    _no_certificate(certificate)
    from analyzer.lemmas.extraction import Rpe as OneType
    from analyzer.limits.lag_law import lag_law
    from verify.limits.mean_square import describe, lag_pair

    assert chosen.heads is not None  # the options see to it
    law = lag_law(chosen.rpe, (lag,))
    with working("searching the decays"):
        found = describe(lag_pair(lag, chosen.heads, cast(OneType, chosen.rpe)))
    few = chosen.heads < law.heads
    parts = {"rpe": chosen.rpe, "lag": lag, "min_heads": law.heads, "proof": law.status, "budgeted_error": None, "heads": chosen.heads}
    return LagLimit(parts | {"least_error": 1.0 if few else 0.0, "norm": chosen.norm, "mean_square": found})


def _no_certificate(certificate: str | Path | None) -> None:
    if certificate is not None:
        raise InputError("a search over all decays has no certificate file; certificates go with norm sup")


def horizon(
    rpe: str = "lin", *, bits: int | Sequence[int] | None = None, dtype: str | None = None, curves: bool = False, fresh: bool = False
) -> Horizon:
    """The largest lag with an error below 1/2, certified from both sides; of all float types unless one is chosen.

    What proves it for float types is shipped and re-checked; with `fresh` it is looked for anew.

    >>> import lemmaformer as lf
    >>> lf.limits.horizon("lin", dtype="bfloat16").horizon
    1
    """
    from flint import fmpq

    from verify.limits.pairs import curve, describe_horizon
    from verify.limits.pairs import horizon as found_horizon

    sizes = [bits] if isinstance(bits, int) else [None] if bits is None else list(bits)
    checked = [LagLimits.read({"rpe": rpe, "dtype": dtype, "bits": size, "fresh": fresh}) for size in sizes]
    kind = checked[0].rpe
    if bits is None:
        units = {name: size for name, size in Bits.items() if dtype in (None, name)}
    else:
        units = {str(size): int(cast(int, size)) for size in sizes}
    rows, drawn = [], {}
    with stepping("looking for the horizon") as step:
        for name, size in units.items():
            found = found_horizon(kind, fmpq(1, 2**size), size, lambda text, name=name: step(f"{name}: {text}"), fresh)  # type: ignore[misc]
            rows.append({"arithmetic": name, "bits": size, **describe_horizon(found)})
            if curves:
                drawn[name] = curve(kind, fmpq(1, 2**size), size, found.horizon + 2, fresh)
    result: dict[str, Any] = {
        "rpe": kind,
        "horizon": rows[0]["horizon"] if len(rows) == 1 else {r["arithmetic"]: r["horizon"] for r in rows},
        "rows": rows,
    }
    if kind == "lin":
        result["rule_holds"] = all(r["horizon"] == r["rule"] for r in rows)
        result["rule_exceptions"] = [r["bits"] for r in rows if r["horizon"] != r["rule"]]
    return Horizon(result | ({"curves": drawn} if curves else {}))


def kernel(
    kernel: str,
    options: KernelLimits | None = None,
    *,
    certificate: str | Path | None = None,
    overwrite: bool = False,
    **keywords: OptionValue,
) -> KernelLimit:
    """A memory kernel with H heads: what a fitted bank reaches, and what no decays and no read-out can beat.

    >>> import lemmaformer as lf
    >>> found = lf.limits.kernel("(s+1)**-2", heads=1)
    >>> 0 < found.lower <= found.upper
    True

    With `norm="mean-square"` the same for the mean square error, as a share of the variance of the tokens.
    """
    chosen = KernelLimits.of(options, keywords)
    if chosen.norm == "mean-square":
        return _mean_square_kernel(kernel, chosen, certificate)
    from constructions.files.places import check_place
    from verify.limits import certificate_files
    from verify.limits.hankel import kernel_certificate, kernel_limits

    if certificate is not None:
        check_place(Path(certificate), overwrite=overwrite)
    with working("fitting and bounding"):
        found = kernel_certificate(kernel, chosen.rpe, chosen.heads)
        result = KernelLimit(kernel_limits(found))
    if certificate is None:
        return result
    certificate_files.write_json(Path(certificate), found, overwrite=overwrite)
    return result.with_place("certificate", certificate)


def _mean_square_kernel(kernel: str, chosen: KernelLimits, certificate: str | Path | None) -> KernelLimit:
    """The least mean square error of a kernel over all decays."""
    _no_certificate(certificate)
    from verify.limits.mean_square import describe, kernel_pair

    with working("fitting and searching the decays"):
        found = describe(kernel_pair(kernel, chosen.heads, chosen.rpe))
    parts = {"kernel": kernel, "rpe": chosen.rpe, "heads": chosen.heads, "norm": chosen.norm}
    return KernelLimit(parts | {"lower": found["lower"], "upper": found["upper"], "mean_square": found})


def architectures(kernel: str, options: ArchitecturesLimits | None = None, **keywords: OptionValue) -> ArchitecturesTable:
    """One memory kernel for linear RNNs, SSMs, CNNs and dp-free Transformers: both sides of the least worst-case error at every size.

    >>> import lemmaformer as lf
    >>> found = lf.limits.architectures("exp(-s)", sizes=(1, 2), error=0.01)
    >>> found.needs["cnn"], found.enough["cnn"], found.enough["rnn"]
    (6, 6, 1)
    """
    from verify.limits.architectures import architecture_limits

    chosen = ArchitecturesLimits.of(options, keywords)
    with stepping("certifying") as step:
        return ArchitecturesTable(architecture_limits(kernel, chosen.sizes, chosen.error, step))


def coupling(target: "Target", options: CouplingLimits | None = None, **keywords: OptionValue) -> CouplingLimit:
    """A coupling: certified singular values, and what no m_h query and key coordinates can beat.

    >>> import lemmaformer as lf
    >>> lf.limits.coupling(lf.coupling("u*v"), rank=1).ranks[0]["rank"]
    1
    """
    from analyzer.targets.coupling import CouplingTarget
    from analyzer.targets.files import target_of_kind
    from verify.limits.coupling_rank import coupling_limits

    chosen = CouplingLimits.of(options, keywords)
    coupled = target_of_kind(target.describe(), "the target", CouplingTarget)
    with working("decomposing"):
        return CouplingLimit(coupling_limits(coupled, chosen.rank, chosen.alpha))


def invariance(target: "Target", options: InvarianceLimits | None = None, **keywords: OptionValue) -> InvarianceLimit:
    """Whether another rho, f or F gives the same target: shown, refuted by a sequence, or undecided; and the ranks that count.

    >>> import lemmaformer as lf
    >>> found = lf.limits.invariance(lf.coupling("u*v"), other_rho="u*v + v")
    >>> found.verdict, found.data["difference"] > 0
    ('different', True)
    """
    from analyzer.targets.coupling import CouplingTarget
    from analyzer.targets.files import target_of_kind
    from verify.limits.coupling_invariance import invariance as compared

    chosen = InvarianceLimits.of(options, keywords)
    given = target.describe()
    said = {name: text for name in ("rho", "f", "F") if (text := getattr(chosen, f"other_{name}")) is not None}
    if not said:
        raise InputError("give another rho, f or F (other_rho, other_f, other_F): what is compared are two representations")
    first = target_of_kind(given, "the target", CouplingTarget)
    second = target_of_kind({**given, **said}, "the other one", CouplingTarget)
    with working("comparing"):
        return InvarianceLimit(compared(first, second))


def heads(options: HeadsLimits | None = None, **keywords: OptionValue) -> LagCosts:
    """Heads, bits and depth of a lag: T heads by relative positions (lag law, π-law) against one by absolute ones (position-heads).

    >>> import lemmaformer as lf
    >>> row = lf.limits.heads(lags=(64,)).rows[0]
    >>> (row["relative_heads"], row["relative_bits"]), (row["absolute_heads"], row["absolute_bits"])
    ((64, 291), (1, 12))
    """
    from verify.theorems.library.position_costs import position_costs

    return LagCosts(position_costs(HeadsLimits.of(options, keywords).lags))


def permutation(target: "Target", options: PermutationLimits | None = None, **keywords: OptionValue) -> PermutationLimit:
    """A function of a sequence: the least worst-case error of networks that do not see positions.

    >>> import lemmaformer as lf
    >>> lf.limits.permutation(lf.sequence("x1*x2 + x3", alphabet=(0, 1)), error=0.1).holds
    False
    """
    from analyzer.targets.files import target_of_kind
    from analyzer.targets.sequence import SequenceTarget
    from verify.limits.permutation_law import permutation_limits

    chosen = PermutationLimits.of(options, keywords)
    with working("going through all sequences"):
        return PermutationLimit(permutation_limits(target_of_kind(target.describe(), "the target", SequenceTarget), chosen.error))


def rnn(
    kernel: str, options: RnnLimits | None = None, *, filter: "Sequence[int | float | str] | None" = None, **keywords: OptionValue
) -> RnnLimit:
    """Recurrent networks: C_RNN of a kernel, what no causal model can do once tokens change places, and what filters do.

    >>> import lemmaformer as lf
    >>> lf.limits.rnn("exp(-s)", swap=10).floor > 0.03
    True
    """
    from analyzer.numbers.exact import number_of
    from verify.limits.jl_6 import rnn_limits

    chosen = RnnLimits.of(options, keywords)
    theta = tuple(number_of(weight, "filter") for weight in filter or ())
    return RnnLimit(rnn_limits(kernel, chosen.length, chosen.swap, theta))


def slopes(
    slopes: str | None = None,
    options: SlopesLimits | None = None,
    *,
    model: str | Path | None = None,
    certificate: str | Path | None = None,
    overwrite: bool = False,
    **keywords: OptionValue,
) -> SlopesAudit:
    """Given slopes, such as "alibi:8" or "0.5,0.25": which lags can position-only heads with these decays resolve at all?

    >>> import lemmaformer as lf
    >>> lf.limits.slopes("alibi:4", longest=2).resolved
    []

    With `model`, a folder with config.json and safetensors, the slopes or biases are the model's own, layer by layer (a `ModelAudit`).
    """
    chosen = SlopesLimits.of(options, keywords)
    if (slopes is None) == (model is None):
        raise InputError("give slopes, or a model's folder")
    if model is not None:
        return _model_slopes(Path(model), chosen, certificate)
    if chosen.layer is not None or chosen.window is not None:
        raise InputError("layer and window go with a model's folder")
    assert slopes is not None
    from flint import fmpq

    from constructions.files.places import check_place
    from verify.limits import certificate_files
    from verify.limits.pairs import MAX_AUDITED, audit, slopes_of

    heads = slopes_of(slopes, chosen.rpe)
    longest = min(len(heads) + 2, MAX_AUDITED) if chosen.longest is None else chosen.longest
    if certificate is not None:
        check_place(Path(certificate), overwrite=overwrite)
    unit, found = fmpq(1, 2 ** Bits[chosen.dtype]), []
    with stepping("auditing") as step:
        for lag in range(1, longest + 1):
            step(f"lag {lag} of {longest}")
            found.append(audit(heads, lag, unit))
    rows = [{"lag": row.lag, "lower": row.lower, "upper": row.upper, "resolved": row.upper < 0.5} for row in found]
    result = SlopesAudit(
        {
            "slopes": slopes,
            "rpe": chosen.rpe,
            "dtype": chosen.dtype,
            "heads": len(heads),
            "decays": [float(p.p) / float(p.q) for _, p in heads],
            "resolved": [r["lag"] for r in rows if r["resolved"]],
            "rows": rows,
        }
    )
    if certificate is None:
        return result
    data = certificate_files.certificate(found, chosen.rpe, unit, heads)
    certificate_files.write_json(Path(certificate), data, overwrite=overwrite)
    return result.with_place("certificate", certificate)


def _model_slopes(folder: Path, chosen: SlopesLimits, certificate: str | Path | None) -> ModelAudit:
    """The audit of a published model's position parts."""
    if certificate is not None:
        raise InputError("certificates go with slopes; give those of one layer, which the answer lists")
    if chosen.rpe != "lin":
        raise InputError("rpe goes with slopes; a model says itself how its weights fall")
    from flint import fmpq

    from constructions.files.models.families import read_model

    read = read_model(folder)
    if chosen.layer is not None and chosen.layer >= read.layers:
        raise InputError(f"layer is {chosen.layer}; the model has the layers 0 to {read.layers - 1}")
    from verify.limits.models import CERTIFIED, NOT_CERTIFIED, audit_model

    longest, window = chosen.longest or MODEL_LAGS, chosen.window or MODEL_WINDOW
    with stepping("auditing") as step:
        found = audit_model(read, chosen.layer, longest, fmpq(1, 2 ** Bits[chosen.dtype]), window, step)
    return ModelAudit(
        {
            "model": str(folder),
            "family": read.family,
            "dtype": chosen.dtype,
            "layers": read.layers,
            "heads": read.heads,
            "longest": longest,
            "window": window if any(part.kind == "buckets" for part in read.positions) else None,
            "resolved": sorted({lag for group in found["groups"] for lag in group["resolved"]}),
            **found,
            "certified": CERTIFIED,
            "not_certified": NOT_CERTIFIED,
            "remarks": list(read.position_remarks),
        }
    )


def positions(schemes: str | Sequence[str] = "all", options: PositionsLimits | None = None, **keywords: OptionValue) -> PositionsTable:
    """Which lags schemes of relative positions resolve by position alone: alibi, t5, kerple, table, stride, lin, log, mixed, or all.

    >>> import lemmaformer as lf
    >>> lf.limits.positions(["t5", "table"], longest=20).resolved["t5"][-1]
    15
    """
    chosen = PositionsLimits.of(options, keywords)
    said = (schemes,) if isinstance(schemes, str) else tuple(schemes)
    for name in said or ("",):
        if name not in (*SCHEMES, "all"):
            raise InputError(f"scheme is {str(name)[:40]!r}; choose from all, {', '.join(SCHEMES)}")
    from analyzer.limits.bucket_law import Buckets
    from analyzer.limits.monotone_law import powers_of

    buckets = Buckets(chosen.buckets, chosen.distance)
    heads = None if chosen.kerple is None else powers_of(chosen.kerple)
    from verify.limits.positions import Audits, PositionsGiven, describe, float_differs

    given = PositionsGiven(
        longest=chosen.longest,
        bits=Bits[chosen.dtype],
        alibi=chosen.heads,
        buckets=buckets,
        window=chosen.window,
        kerple=heads,
        reach=chosen.reach,
        stride=chosen.stride,
    )
    with stepping("certifying") as step:
        wanted = cast("list[Scheme]", [name for name in SCHEMES if name in said or "all" in said])
        rows = [describe(row) for row in Audits(given, wanted, step).rows()]
    result: dict[str, Any] = {"dtype": chosen.dtype, "bits": given.bits, "longest": chosen.longest, "schemes": rows}
    if any(row["scheme"] == "t5" for row in rows):
        result["float32_differs"] = float_differs(buckets, chosen.window)
    return PositionsTable(result)


def dp_free(options: DpFreeLimits | None = None, **keywords: OptionValue) -> DpFreeLimit:
    """Proposition 4.2: dp-free attention errs by 1 where one dot-product layer reaches any error.

    >>> import lemmaformer as lf
    >>> lf.limits.dp_free(error=1e-3).lower
    1
    """
    from analyzer.numbers.exact import nearest
    from analyzer.theorems import prop_4_2

    chosen = DpFreeLimits.of(options, keywords)
    least = prop_4_2.lower_bound()
    from constructions.theorems.prop_4_2 import build as build_network
    from verify.theorems.prop_4_2 import verify as certify

    reached = certify(build_network(chosen.error))
    points = [{"tokens": list(tokens), "wanted": prop_4_2.wanted(tokens), "weight": str(weight)} for tokens, weight in prop_4_2.CERTIFICATE]
    return DpFreeLimit(
        {
            "theorem": prop_4_2.ID,
            "lower_bound": int(least) if least.q == 1 else nearest(least),
            "lower_bound_exact": str(least),
            "paper": nearest(prop_4_2.PAPER),
            "paper_exact": str(prop_4_2.PAPER),
            "certificate": points,
            "dp": {"layers": 1, "heads": reached.heads, "witness": reached.witness, "certified": reached.certified, "bound": reached.bound},
        }
    )


def bits_of(text: str) -> list[int]:
    """Bits from text: a number such as 24, or a range such as 8-64."""
    ends = text.split("-")
    if len(ends) > 2 or not all(end.isdecimal() and len(end) <= 4 for end in ends):
        raise InputError(f"bits is {text[:20]!r}, neither a number such as 24 nor a range such as 8-64")
    low, high = int(ends[0]), int(ends[-1])
    if not LEAST_BITS <= low <= high <= MAX_BITS:
        raise InputError(f"bits {text} is out of range; give {LEAST_BITS} to {MAX_BITS}")
    return list(range(low, high + 1))
