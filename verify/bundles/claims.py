"""Verification of a bundle: the chain from its stored weights, then the card's claims against it."""

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any

from analyzer.errors import InputError, Refusal
from analyzer.families import FormName
from analyzer.options import choices_of
from analyzer.statements.citations import own_citations
from analyzer.statements.registry import THEOREMS
from analyzer.statements.theorem import Theorem
from analyzer.targets.files import target_from_dict
from analyzer.targets.protocol import Target
from analyzer.targets.tokens import TOKEN_LAWS
from analyzer.theorems import jl_4_2, jl_points, thm_3_1, thm_5_1
from constructions.files.bundle import Bundle
from constructions.network.recurrences import using
from constructions.network.transformer import Transformer, check_relative
from constructions.run.sharded import check_cut
from constructions.theorems.construction import Construction
from verify.chain.certificate import Certificate, StrangeWeights, Verdict
from verify.chain.rounding import passing
from verify.layers.dp_free import NOT_COUNTED
from verify.layers.margin import certified_margin
from verify.theorems.mean_square import NORM as MEAN_SQUARE
from verify.theorems.mean_square import verify_mean_square
from verify.theorems.no_theorem import DP_FREE, ORIGINS, SOFTMAX, USUAL, Effort, target_of, trained_length, verify_learnt

ONE_LAYER = (thm_3_1.ID, thm_5_1.ID)
"""Theorems whose bound in the worst case is one in mean square, too."""
CLAIM_TOLERANCE = 2.0**-20
"""A claim may differ from the recomputed number by this share: balls carry 64 bits, libraries may round the last differently."""
SEARCH_TOLERANCES = {DP_FREE: 0.02, SOFTMAX: 0.005}
"""The same where slopes and cells come from a search in floats, which may go another way on another machine (`verify.layers`)."""
WITNESS_TOLERANCE = 2.0
"""Witnesses of float networks are measured, those of theorem 4.2 of Jiang & Li searched for; another machine may do a little worse."""


def verify_bundle(
    bundle: Bundle, margin: bool = False, effort: Effort = USUAL, norm: str | None = None, tokens: str | None = None, claims: bool = True
) -> Certificate:
    """The certificate of the stored weights; a card that claims anything better is a fault. With `margin` decisions are certified too.

    Without a norm it is that of the card, unless decisions are asked about; a card names none if it speaks of the worst case.
    """
    if norm == MEAN_SQUARE or tokens is not None or (norm is None and not margin and built_norm(bundle.card) == MEAN_SQUARE):
        return _verified_in_mean_square(bundle, tokens or str(bundle.card.get("tokens", "uniform")), claims)
    found = _verified(bundle, effort, claims)
    return with_margin(bundle.network, target_of(bundle.card), found, trained_length(bundle.card)) if margin else found


def verify_in_sections(bundle: Bundle, section: int, effort: Effort = USUAL) -> Certificate:
    """The certificate on arrays that several devices share, cut into sections of so many tokens or more (`constructions.run.sharded`).

    Every bound of a scan has what passing its states on costs (`verify.chain.rounding`).
    """
    if built_norm(bundle.card) == MEAN_SQUARE:
        raise Refusal("certificates in mean square are those of one device", {"norm": "sup"})
    steps = section // check_cut(bundle.network)
    if steps < 1:
        raise InputError(f"section is {section}; no head with a stride takes a step in so few tokens")
    with using("scan"):
        return _otherwise(passing(steps), partial(_verified, bundle, effort), section=section)


def verify_in_form(
    bundle: Bundle, form: FormName, margin: bool = False, effort: Effort = USUAL, norm: str | None = None, tokens: str | None = None
) -> Certificate:
    """The same as `verify_bundle` where lin heads run in a form (`constructions.network.recurrences`), with the roundings of that."""
    verified = partial(verify_bundle, bundle, margin, effort, norm, tokens)
    with using("scan"):
        return verified() if form == "scan" else _otherwise(using(form), verified, form=form)


def _otherwise(how: AbstractContextManager[None], verified: Callable[..., Certificate], **named: object) -> Certificate:
    """The certificate of a pass that rounds otherwise than the scans of one device, of which cards speak: claims are held against those."""
    usual = verified()
    with how:
        found = verified(claims=False)
    faults = (*found.faults, *(fault for fault in usual.faults if fault not in found.faults))
    return replace(found, faults=faults, seconds=usual.seconds + found.seconds, details={**found.details, **named})


def with_margin(network: Transformer, target: Target, certificate: Certificate, length: int | None = None) -> Certificate:
    """A certificate with the margin of the network's decisions: they follow from its error only where roundings are counted in that."""
    start = time.perf_counter()
    counted = network.dtype == "exact" or certificate.details.get("arithmetic") != NOT_COUNTED
    found = certified_margin(network, target, length, certificate.certified if counted else math.inf)
    return replace(certificate, margin=found, seconds=certificate.seconds + time.perf_counter() - start)


def _verified(bundle: Bundle, effort: Effort, claims: bool = True) -> Certificate:
    """The chain in the worst case; with `claims` what the card says is held against it."""
    if bundle.card.get("origin") in ORIGINS:
        return _verify_learnt(bundle, effort, claims)
    card, (theorem, target) = bundle.card, _claimed(bundle)
    if built_norm(card) == MEAN_SQUARE:  # no theorem speaks of its worst case
        return verify_learnt(bundle.network, target, effort=effort)
    try:
        certificate: Certificate = theorem.verified_by()(bundle.network, target, card["bank"], card["ffn"])
    except StrangeWeights as error:  # the card claims that these weights are the theorem's, and they are not
        return strange(bundle.network, theorem.id, str(error))
    return replace(certificate, faults=certificate.faults + tuple(_false_claims(card, certificate))) if claims else certificate


def _verified_in_mean_square(bundle: Bundle, tokens: str, claims: bool) -> Certificate:
    """The same for E|error|². Claims of a card about the worst case are held against the worst case, from which the bound follows."""
    card, network = bundle.card, bundle.network
    if tokens not in TOKEN_LAWS:
        raise InputError(f"the card's tokens are {_shown(tokens)}; expected one of {', '.join(TOKEN_LAWS)}")
    if card.get("origin") in ORIGINS:
        return verify_mean_square(network, target_of(card), tokens, length=trained_length(card))
    theorem, target = _claimed(bundle)
    if built_norm(card) == MEAN_SQUARE:
        try:
            certificate: Certificate = theorem.verified_by()(network, target, card["bank"], card["ffn"], tokens=tokens)
        except StrangeWeights as error:
            return strange(network, theorem.id, str(error))
        false = _false_claims(card, certificate) if claims and tokens == card.get("tokens") else []
        return replace(certificate, faults=certificate.faults + tuple(false))
    if theorem.id not in ONE_LAYER:
        return verify_mean_square(network, target, tokens)
    worst = _verified(bundle, USUAL, claims)
    if not worst.parts:  # weights that are not of the theorem's form
        return worst
    found = verify_mean_square(network, target, tokens, worst)
    broken = worst.verdict is Verdict.VIOLATED and found.verdict is not Verdict.VIOLATED
    return replace(found, faults=(*found.faults, f"in the worst case: {worst.advice}")) if broken else found


def _claimed(bundle: Bundle) -> tuple[Theorem, Target]:
    """Theorem and target of a constructed network's card; refused where they do not belong together."""
    card = bundle.card
    theorem = theorem_of(card)
    if bundle.network.outputs != 1:
        raise InputError(f"{theorem.id} is about networks of one output; this one has {bundle.network.outputs}")
    if not theorem.absolute:
        check_relative(bundle.network, f"the certificate of {theorem.id}")
    for key in ("bank", "ffn"):
        allowed = _allowed(theorem, key, card.get("target"))
        if allowed and card.get(key) not in allowed:
            raise InputError(f"the card's {key} is {str(card.get(key))[:40]!r}; expected one of {', '.join(allowed)}")
    target = target_from_dict(card.get("target"), "card.json")
    if target.kind not in theorem.kinds:
        raise InputError(f"card.json holds a target of kind {target.kind}; {theorem.id} is about {' and '.join(theorem.kinds)} targets")
    return theorem, target


def strange(network: Transformer, theorem: str, reason: str) -> Certificate:
    """The certificate of weights that are not what a theorem's construction writes: nothing is known about their error."""
    return Certificate(
        theorem=theorem,
        witness=0.0,
        witness_input="none: the weights are not of the theorem's form",
        certified=math.inf,
        bound=math.inf,
        rounding=0.0,
        trivial=0.0,
        least_heads=None,
        parts=(),
        sizes=network.sizes(),
        dtype=network.dtype,
        seconds=0.0,
        faults=(reason,),
    )


def built_norm(card: dict[str, Any]) -> str:
    """The norm in which a card's chain is."""
    found = card.get("norm", "sup")
    if found not in ("sup", MEAN_SQUARE):
        raise InputError(f"the card's norm is {_shown(found)}; expected sup or {MEAN_SQUARE}")
    return str(found)


def theorem_of(card: dict[str, Any]) -> Theorem:
    """The theorem that a card names, if networks are built for it."""
    name = card.get("theorem")
    theorem = THEOREMS.get(str(name))
    if theorem is None or theorem.build is None:
        built = [theorem.id for theorem in THEOREMS.values() if theorem.build is not None]
        raise InputError(f"the card names theorem {str(name)[:40]!r}; networks are built for {', '.join(built)}")
    return theorem


def _allowed(theorem: Theorem, key: str, target: Any) -> tuple[str, ...]:
    """The strings that a theorem's networks may claim; () where any will do."""
    options = theorem.options_for(str(target.get("kind")) if isinstance(target, dict) else "")
    assert options is not None
    names = {"bank": ("bank", "pod"), "ffn": ("ffn",)}[key]
    known = [name for name in names if name in options.__dataclass_fields__]
    if not known:
        return ("spline",) if key == "ffn" else ()
    return choices_of(options, known[0])


def _verify_learnt(bundle: Bundle, effort: Effort, claims: bool) -> Certificate:
    """The chain of trained or imported weights. An imported card has no chain: nobody has claimed anything yet."""
    card = bundle.card
    certificate = verify_learnt(bundle.network, target_of(card), trained_length(card), effort=effort)
    if card.get("sizes") != certificate.sizes:
        return replace(certificate, faults=(f"the card claims sizes {_shown(card.get('sizes'))}, the weights have {certificate.sizes}",))
    if card.get("theorem") is not None:
        return replace(certificate, faults=(f"the card names theorem {_shown(card['theorem'])}, but no theorem built these weights",))
    if not claims or (card["origin"] == "imported" and "chain" not in card):
        return certificate
    claimed = {**card, "theorem": card.get("certificate")}
    return replace(certificate, faults=certificate.faults + tuple(_false_claims(claimed, certificate)))


def _shown(value: Any) -> str:
    """A claim on one line, cut where it is no number."""
    return repr(value)[:80]


def _false_claims(card: dict[str, Any], certificate: Certificate) -> list[str]:
    """Claims that are better than what the weights give (or are not numbers at all)."""
    chain, sizes = card.get("chain"), card.get("sizes")
    if not isinstance(chain, dict) or not isinstance(sizes, dict):
        return ["the card has no chain or sizes to compare with"]
    found, faults = certificate.chain(), []
    for name in ("certified", "bound", "rounding", "witness"):
        claimed = _number(chain.get(name, math.nan))
        value = _number(found[name])
        measured = name == "witness" and (certificate.dtype != "exact" or certificate.theorem in (jl_4_2.ID, jl_points.ID))
        searched = SEARCH_TOLERANCES.get(certificate.theorem, CLAIM_TOLERANCE) if name in ("certified", "bound") else CLAIM_TOLERANCE
        slack = WITNESS_TOLERANCE if measured else 1 + searched
        honest = claimed <= value * slack if name == "witness" else claimed * slack >= value
        if not honest or (chain.get(name) is None) != (found[name] is None):
            faults.append(f"the card claims {name} {_shown(chain.get(name))}, the weights give {found[name]}")
    if chain.get("verdict") != found["verdict"] and not _earlier_verdict(chain.get("verdict"), certificate):
        faults.append(f"the card claims the verdict {_shown(chain.get('verdict'))}, the weights give {found['verdict']!r}")
    if sizes != certificate.sizes:
        faults.append(f"the card claims sizes {_shown(sizes)}, the weights have {certificate.sizes}")
    if card.get("plan") != certificate.details.get("plan"):
        faults.append("the card's plan is not what the weights do")
    if card.get("theorem") != certificate.theorem:
        faults.append(f"the card names {_shown(card.get('theorem'))}, these weights belong to {certificate.theorem}")
    return faults


def _earlier_verdict(claimed: Any, certificate: Certificate) -> bool:
    """Whether a card of before `measured` and `bound_vacuous` says the same: `vacuous` then stood for both, by the bound alone."""
    return claimed == Verdict.VACUOUS.value and (
        certificate.verdict is Verdict.MEASURED or (certificate.verdict is Verdict.HOLDS and certificate.bound_vacuous)
    )


def _number(value: Any) -> float:
    """A claimed number; null stands for no bound at all, anything else is not a number."""
    if value is None:
        return math.inf
    if isinstance(value, bool) or not isinstance(value, int | float):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.nan


def certified(theorem: Theorem, built: Construction) -> Certificate:
    """The certificate of a network that was just built, in the norm that it was built for."""
    norm = {"tokens": getattr(built.options, "tokens", None) or "uniform"} if getattr(built.options, "norm", "sup") == MEAN_SQUARE else {}
    with using("scan"):  # of which cards speak
        found: Certificate = theorem.verified_by()(built.network, built.target, built.bank, built.ffn, **norm)
    return found


def card_of(built: Construction, certificate: Certificate) -> dict[str, Any]:
    """The card of a network that was just built and certified."""
    card: dict[str, Any] = {
        "theorem": certificate.theorem,
        "target": built.target.describe(),
        "bank": built.bank,
        "ffn": built.ffn,
        "sizes": certificate.sizes,
        "chain": certificate.chain(),
        "seeds": {"barron": built.seed, "draws": built.draws},
        "versions": {name: version(name) for name in ("lemmaformer", "jax", "numpy", "python-flint", "sympy")},
    }
    if "plan" in certificate.details:
        card["plan"] = certificate.details["plan"]
    if certificate.norm != "sup":
        card |= {name: certificate.details[name] for name in ("norm", "tokens")}
    return card | built.choices


def citation_of(card: dict[str, Any]) -> str:
    """What a bundle rests on: the paper, this software, and laws of our own."""
    if card.get("theorem") is None:
        return own_citations(None, None)
    sampled = card["ffn"] == "barron" or card.get("encode") == "barron"
    cite = THEOREMS[card["theorem"]].citation
    papers = [] if cite is None else [cite(card["bank"], "barron" if sampled else card["ffn"])]
    return "\n".join([*papers, own_citations(card["theorem"], card["bank"])])
