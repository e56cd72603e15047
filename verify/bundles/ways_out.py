"""Ways out of a refusal that have been tried: other options of the same target, each built and certified to the error asked for.

Options are those of the builders by their public names: `rpe`, `bank`, `heads`, `error`, `ffn`, `width`, `dtype`, `seed`, `share`,
`depth` (None: one layer; "auto"; a number of layers) for fixed memories, `attention`, `encode`, `rounding`, `layers` ("auto" or "deep")
for adaptive ones, `rank`, `knots` for couplings and points.

Candidates come in the order in which one would like them: more heads of the same bank, a bank fitted to the arithmetic, more layers, more
bits, exact arithmetic, a larger error. A candidate is tried only where its cost is known to be small (`MAX_LAG`, `MAX_TRIALS`), and only
if no law excludes it: a lin layer in floats must obey the π-law, log heads must fall fast enough to be certified.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from analyzer.errors import LemmaformerError, OptionValue, Refusal, larger_error
from analyzer.families import DEFAULT_ERROR
from analyzer.limits.pi_law import best_pi_bound
from analyzer.numbers.exact import UNIT, lower
from analyzer.statements.registry import THEOREMS
from analyzer.targets.protocol import Target
from constructions.network.recurrences import using
from constructions.theorems.thm_3_1 import MAX_FLOAT_HEADS, larger_sizes
from verify.chain.certificate import Certificate, Verdict

MAX_LAG = 24
"""Lags up to which networks are built on trial: each takes seconds at most."""
MAX_TRIALS = 12
"""Candidates that are built."""

Options = Mapping[str, OptionValue]


def asked_error(options: Options) -> float | None:
    """The total error that a network has to be certified to; None where sizes are given and no error."""
    error = options.get("error")
    if error is not None:
        return float(error)  # type: ignore[arg-type]
    sized = any(options.get(name) is not None for name in ("heads", "rank", "knots", "decays"))
    return None if sized else DEFAULT_ERROR


def attempt(target: Target, options: Options) -> Certificate:
    """Build and certify; refused as the builder or the certificate refuses, and if the error asked for is missed."""
    theorem, read = THEOREMS.choose(target, {name: value for name, value in options.items() if value is not None})
    built = theorem.built_by()(target, read)
    with using("scan"):
        certificate: Certificate = theorem.verified_by()(built.network, target, built.bank, built.ffn)
    check(certificate, options)
    return certificate


def check(certificate: Certificate, options: Options) -> None:
    """Refuse what misses the error asked for or, unless a width was forced, right or wrong, violates its theorem."""
    forced = options.get("encode") == "barron" and options.get("width") is not None
    if certificate.verdict is Verdict.VIOLATED and not forced:
        raise violated(certificate, options)
    asked = asked_error(options)
    if asked is not None and certificate.certified > asked and certificate.verdict is not Verdict.VIOLATED:
        raise missed(asked, certificate, options)


def violated(certificate: Certificate, options: Options) -> Refusal:
    """The network does not obey its theorem: too few heads for the rounding margins, or a width that was forced."""
    changes: list[dict[str, OptionValue]] = []
    if options.get("bank") in ("paper", "tuned") and options.get("heads") is not None:
        changes.append({"bank": "minimal", "heads": None})
    if options.get("width") is not None:
        changes.append({"width": None})
    changes += [{"dtype": "float64"}] if options.get("dtype") == "float32" else []
    if options.get("dtype") in ("float32", "float64"):
        changes.append({"dtype": "exact", **({"bank": "minimal"} if options.get("bank") == "balanced" else {})})
    margins = not all(condition.holds for condition in certificate.conditions)
    lacking = "there are too few heads" if options.get("dtype", "exact") == "exact" else f"{options['dtype']} is too coarse"
    reason = f"{lacking} for the rounding margins" if margins else "the network does not obey its own theorem"
    return Refusal(f"{reason}: {certificate.advice}", *changes)


def missed(asked: float, certificate: Certificate, options: Options = {}) -> Refusal:  # noqa: B006 (never changed)
    """The network is certified, but to more than the error that was asked for.

    The error that would do: all but the read-out keeps its size when the error grows, the read-out may take half of the error.
    """
    parts = ", ".join(f"{part.name} {part.certified:.3g}" for part in certificate.parts)
    readout = next((part.certified for part in certificate.parts if part.name == "read-out"), 0.0)
    enough = certificate.certified if readout <= 0 else max(certificate.certified, 2 * (certificate.certified - readout))
    sizes: dict[str, OptionValue] = {name: None for name in ("heads", "width", "rank", "knots") if options.get(name) is not None}
    return Refusal(
        f"the network is certified to {certificate.certified:.3g} only, more than the error {asked:g} asked for "
        f"({parts}, rounding {certificate.rounding or 0:.3g})",
        *([sizes] if sizes else []),
        *larger_error(enough),
    )


def ways_out(target: Target, options: Options) -> list[dict[str, OptionValue]]:
    """The first change of the options that leads to a network certified to the error asked for, or to the default error; none if no
    candidate does. The search ends there: what else would work is among the remedies of the refusal."""
    error = options.get("error")
    goal = error if isinstance(error, float) else DEFAULT_ERROR
    for change in itertools.islice(_CANDIDATES.get(target.kind, _finer_candidates)(target, options, goal), MAX_TRIALS):
        try:
            certificate = attempt(target, {**options, **change})
        except LemmaformerError:
            continue
        if certificate.certified <= goal:
            return [change]
    return []


def explained(refusal: Refusal, target: Target, options: Options) -> Refusal:
    """The refusal with the ways out that were found by trial before its own."""
    tried = ways_out(target, options)
    return Refusal(refusal.reason, *tried, *(way for way in refusal.remedies if way not in tried))


Candidates = Iterator[dict[str, OptionValue]]


def _fixed_candidates(target: Any, options: Options, goal: float) -> Candidates:
    lag, rpe, bank, dtype = target.lags[-1], options.get("rpe", "lin"), options.get("bank", "minimal"), str(options.get("dtype", "exact"))
    freed: dict[str, OptionValue] = {"heads": None} if options.get("heads") is not None else {}
    plain: dict[str, OptionValue] = {"share": False} if options.get("share") else {}
    one_layer = options.get("depth") is None
    if lag > MAX_LAG or target.alphabet is not None:
        return
    if dtype == "exact":
        yield from ({"bank": "minimal", **freed, **plain} for _ in range(bank != "minimal"))
        return
    resolved = rpe == "log" or lower(best_pi_bound(lag, UNIT[dtype])[0]) <= goal
    if one_layer and resolved and bank == "minimal":
        most = int(options.get("heads") or 0)  # type: ignore[arg-type]
        for heads in larger_sizes(lag):
            if most < heads <= MAX_FLOAT_HEADS:
                yield {"heads": heads}
    if one_layer and resolved and bank != "balanced" and rpe == "lin":
        yield {"bank": "balanced", **freed, **plain}
    chain: dict[str, OptionValue] = {"depth": "auto", **({} if rpe == "lin" else {"rpe": "lin"}), **freed, **plain}
    if bank not in ("minimal", "balanced"):
        chain["bank"] = "minimal"
    if one_layer or options["depth"] != "auto" or freed:
        yield chain
    if bank != "balanced":
        yield {**chain, "bank": "balanced"}
    if dtype == "float32":
        yield {"dtype": "float64"}
        yield {"dtype": "float64", **chain}
    yield {"dtype": "exact", **plain, **({"bank": "minimal", **freed} if bank != "minimal" else {})}


def _adaptive_candidates(target: Any, options: Options, goal: float) -> Candidates:
    dtype, bank, rpe = options.get("dtype", "exact"), options.get("bank"), options.get("rpe", "lin")
    freed: dict[str, OptionValue] = {"heads": None} if options.get("heads") is not None else {}
    if max(max(target.occurring(k)) for k in range(len(target.memories))) > MAX_LAG:
        return
    if dtype == "exact":
        yield from ({"bank": "minimal", **freed} for _ in range(bank not in (None, "minimal")))
        return
    machine: dict[str, OptionValue] = {}
    if bank in ("paper", "tuned"):
        machine = {"bank": "balanced" if rpe == "lin" else "minimal", **freed}
    if options.get("rounding", "ideal") != "ideal":
        machine = {**machine, "rounding": "ideal"}
    tmx: dict[str, OptionValue] = {"attention": "tmx"} if options.get("attention") == "dp" and rpe == "log" else {}
    if machine or tmx:
        yield {**machine, **tmx}
    fitted: dict[str, OptionValue] = {**machine, "bank": "balanced"} | ({"rpe": "lin"} if rpe == "log" else {})
    if bank == "minimal" or rpe == "log":
        yield fitted
    if dtype == "float32":
        yield {**machine, **tmx, "dtype": "float64"}
        if bank == "minimal" or rpe == "log":
            yield {**fitted, "dtype": "float64"}
    yield {"dtype": "exact", **({"bank": "minimal"} if bank == "balanced" else {})}


def _kernel_candidates(target: Any, options: Options, goal: float) -> Candidates:
    freed: dict[str, OptionValue] = {"heads": None} if options.get("heads") is not None else {}
    fitted: dict[str, OptionValue] = {"bank": "fitted", **freed} if options.get("bank", "fitted") != "fitted" else {}
    other = "log" if options.get("rpe", "lin") == "lin" else "lin"
    if fitted or freed:
        yield {**fitted, **freed}
    yield {**fitted, **freed, "rpe": other}
    if options.get("dtype", "exact") != "exact":
        yield {**fitted, **freed, "dtype": "exact"}


def _coupling_candidates(target: Any, options: Options, goal: float) -> Candidates:
    freed: dict[str, OptionValue] = {name: None for name in ("rank", "knots") if options.get(name) is not None}
    dtype = options.get("dtype", "exact")
    if freed:
        yield freed
    if dtype == "float32":
        yield {**freed, "dtype": "float64"}
    if dtype != "exact":
        yield {**freed, "dtype": "exact"}


def _sequence_candidates(target: Any, options: Options, goal: float) -> Candidates:
    dtype = options.get("dtype", "exact")
    if options.get("code", "scalar") != "scalar":
        yield {"code": "scalar"}
    if dtype == "float32":
        yield {"dtype": "float64"}
    if dtype != "exact":
        yield {"dtype": "exact"}


def _finer_candidates(target: Any, options: Options, goal: float) -> Candidates:
    """More bits, for tasks."""
    dtype = options.get("dtype", "exact")
    for finer in ("float64", "exact")[("float32", "float64", "exact").index(str(dtype)) :]:
        yield {"dtype": finer}


_CANDIDATES: dict[str, Callable[[Any, Options, float], Candidates]] = {
    "fixed": _fixed_candidates,
    "adaptive": _adaptive_candidates,
    "kernel": _kernel_candidates,
    "coupling": _coupling_candidates,
    "sequence": _sequence_candidates,
    "points": _coupling_candidates,
}
