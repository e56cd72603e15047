"""Verification of a bundle: the chain from its stored weights, then the card's claims against it."""

import math
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from analyzer.errors import InputError
from analyzer.options import choices_of
from analyzer.statements.citations import own_citations
from analyzer.statements.registry import THEOREMS
from analyzer.statements.theorem import Theorem
from analyzer.targets.files import target_from_dict
from analyzer.theorems import jl_4_2
from constructions.files.bundle import Bundle
from constructions.network.transformer import Transformer
from constructions.theorems.construction import Construction
from verify.chain.certificate import Certificate, StrangeWeights, Verdict
from verify.theorems.no_theorem import DP_FREE, ORIGINS, target_of, trained_length, verify_learnt

CLAIM_TOLERANCE = 2.0**-20
"""A claim may differ from the recomputed number by this share: balls carry 64 bits, libraries may round the last differently."""
SEARCH_TOLERANCE = 0.02
"""The same where slopes and cells come from a search in floats, which may go another way on another machine (`verify.layers.dp_free`)."""
WITNESS_TOLERANCE = 2.0
"""Witnesses of float networks are measured, those of theorem 4.2 of Jiang & Li searched for; another machine may do a little worse."""


def verify_bundle(bundle: Bundle) -> Certificate:
    """The certificate of the stored weights; a card that claims anything better is a fault."""
    card = bundle.card
    if card.get("origin") in ORIGINS:
        return _verify_learnt(bundle)
    theorem = theorem_of(card)
    for key in ("bank", "ffn"):
        allowed = _allowed(theorem, key)
        if allowed and card.get(key) not in allowed:
            raise InputError(f"the card's {key} is {str(card.get(key))[:40]!r}; expected one of {', '.join(allowed)}")
    target = target_from_dict(card.get("target"), "card.json")
    if target.kind != theorem.target:
        raise InputError(f"card.json holds a target of kind {target.kind}; {theorem.id} is about {theorem.target} targets")
    try:
        certificate: Certificate = theorem.verified_by()(bundle.network, target, card["bank"], card["ffn"])
    except StrangeWeights as error:  # the card claims that these weights are the theorem's, and they are not
        return _strange(bundle.network, theorem.id, str(error))
    return replace(certificate, faults=certificate.faults + tuple(_false_claims(card, certificate)))


def _strange(network: Transformer, theorem: str, reason: str) -> Certificate:
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


def theorem_of(card: dict[str, Any]) -> Theorem:
    """The theorem that a card names, if networks are built for it."""
    name = card.get("theorem")
    theorem = THEOREMS.get(str(name))
    if theorem is None or theorem.build is None:
        built = [theorem.id for theorem in THEOREMS.values() if theorem.build is not None]
        raise InputError(f"the card names theorem {str(name)[:40]!r}; networks are built for {', '.join(built)}")
    return theorem


def _allowed(theorem: Theorem, key: str) -> tuple[str, ...]:
    """The strings that a theorem's networks may claim; () where any will do."""
    assert theorem.options is not None
    names = {"bank": ("bank", "pod"), "ffn": ("ffn",)}[key]
    known = [name for name in names if name in theorem.options.__dataclass_fields__]
    if not known:
        return ("spline",) if key == "ffn" else ()
    return choices_of(theorem.options, known[0])


def _verify_learnt(bundle: Bundle) -> Certificate:
    """The chain of trained or imported weights. An imported card has no chain: nobody has claimed anything yet."""
    card = bundle.card
    certificate = verify_learnt(bundle.network, target_of(card), trained_length(card))
    if card.get("sizes") != certificate.sizes:
        return replace(certificate, faults=(f"the card claims sizes {_shown(card.get('sizes'))}, the weights have {certificate.sizes}",))
    if card.get("theorem") is not None:
        return replace(certificate, faults=(f"the card names theorem {_shown(card['theorem'])}, but no theorem built these weights",))
    if card["origin"] == "imported" and "chain" not in card:
        return certificate
    claims = {**card, "theorem": card.get("certificate")}
    return replace(certificate, faults=certificate.faults + tuple(_false_claims(claims, certificate)))


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
        measured = name == "witness" and (certificate.dtype != "exact" or certificate.theorem == jl_4_2.ID)
        searched = certificate.theorem == DP_FREE and name in ("certified", "bound")
        slack = WITNESS_TOLERANCE if measured else 1 + (SEARCH_TOLERANCE if searched else CLAIM_TOLERANCE)
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
    return card | built.choices


def citation_of(card: dict[str, Any]) -> str:
    """What a bundle rests on: the paper, this software, and laws of our own."""
    if card.get("theorem") is None:
        return own_citations(None, None)
    sampled = card["ffn"] == "barron" or card.get("encode") == "barron"
    cite = THEOREMS[card["theorem"]].citation
    papers = [] if cite is None else [cite(card["bank"], "barron" if sampled else card["ffn"])]
    return "\n".join([*papers, own_citations(card["theorem"], card["bank"])])
