"""Verification of a bundle: the chain from its stored weights, then the card's claims against it."""

import math
from dataclasses import replace
from importlib.metadata import version
from typing import Any

from analyzer.couplings import coupling_target
from analyzer.errors import InputError
from analyzer.low_rank import BANKS as COUPLING_BANKS
from analyzer.targets import adaptive_target, fixed_target, kernel_target
from analyzer.theorems import THEOREMS, jl_4_2, prop_4_3, prop_4_5, shift_chain, thm_3_1, thm_4_1, thm_4_4, thm_5_1
from constructions import jl_4_2 as coupling
from constructions import thm_3_1 as fixed
from constructions import thm_4_4 as adaptive
from constructions.bundle import Bundle
from verify import jl_4_2 as coupling_certificate
from verify import shift_chain as chain_certificate
from verify import thm_3_1 as fixed_certificate
from verify import thm_4_4 as adaptive_certificate
from verify import thm_5_1 as kernel_certificate
from verify.certificate import Certificate, Verdict
from verify.learnt import DP_FREE, ORIGINS, target_of, trained_length, verify_learnt

FIXED = (thm_3_1.ID, shift_chain.ID)
BANKS = {thm_3_1.ID: thm_3_1.LAYER_BANKS, thm_5_1.ID: thm_5_1.BANKS, shift_chain.ID: shift_chain.BANKS, jl_4_2.ID: COUPLING_BANKS}
ADAPTIVE = (thm_4_1.ID, prop_4_3.ID, thm_4_4.ID, prop_4_5.ID)
CLAIM_TOLERANCE = 2.0**-20
"""A claim may differ from the recomputed number by this share: balls carry 64 bits, libraries may round the last differently."""
SEARCH_TOLERANCE = 0.02
"""The same where slopes and cells come from a search in floats, which may go another way on another machine (`verify.dp_free`)."""
WITNESS_TOLERANCE = 2.0
"""Witnesses of float networks are measured, those of theorem 4.2 of Jiang & Li searched for; another machine may do a little worse."""


def verify_bundle(bundle: Bundle) -> Certificate:
    """The certificate of the stored weights; a card that claims anything better is a fault."""
    card = bundle.card
    if card.get("origin") in ORIGINS:
        return _verify_learnt(bundle)
    theorem = card.get("theorem")
    built = (*FIXED, thm_5_1.ID, *ADAPTIVE, jl_4_2.ID)
    if theorem not in built:
        raise InputError(f"the card names theorem {str(theorem)[:40]!r}; networks are built for {', '.join(built)}")
    banks = BANKS.get(str(theorem), thm_3_1.BANKS)
    for key, allowed in (("bank", banks), ("ffn", ("spline",) if theorem == jl_4_2.ID else ("spline", "barron"))):
        if card.get(key) not in allowed:
            raise InputError(f"the card's {key} is {str(card.get(key))[:40]!r}; expected one of {', '.join(allowed)}")
    if theorem in FIXED:
        certify = fixed_certificate.verify if theorem == thm_3_1.ID else chain_certificate.verify
        certificate = certify(bundle.network, fixed_target(card.get("target"), "card.json"), card["bank"], card["ffn"])
    elif theorem == thm_5_1.ID:
        certificate = kernel_certificate.verify(bundle.network, kernel_target(card.get("target"), "card.json"), card["bank"], card["ffn"])
    elif theorem == jl_4_2.ID:
        coupled = coupling_target(card.get("target"), "card.json")
        certificate = coupling_certificate.verify(bundle.network, coupled, card["bank"], card["ffn"])
    else:
        target = adaptive_target(card.get("target"), "card.json")
        certificate = adaptive_certificate.verify(bundle.network, target, card["bank"], card["ffn"])
    return replace(certificate, faults=certificate.faults + tuple(_false_claims(card, certificate)))


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


def card_of(built: fixed.Construction[Any] | adaptive.Construction | coupling.Construction, certificate: Certificate) -> dict[str, Any]:
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
    if isinstance(built, adaptive.Construction):
        layers = "deep" if built.deep else "auto"
        card |= {"attention": built.attention, "encode": built.encode, "rounding": built.rounding, "layers": layers}
    return card


def citation_of(card: dict[str, Any]) -> str:
    """What a bundle rests on."""
    sampled = card["ffn"] == "barron" or card.get("encode") == "barron"
    return THEOREMS[card["theorem"]].citation(card["bank"], "barron" if sampled else card["ffn"])
