"""Verification of a bundle: the chain from its stored weights, then the card's claims against it."""

from dataclasses import replace
from importlib.metadata import version
from typing import Any

from analyzer.errors import InputError
from analyzer.targets import fixed_target
from analyzer.theorems import thm_3_1 as theorem
from constructions.bundle import Bundle
from constructions.thm_3_1 import Construction
from verify import thm_3_1
from verify.certificate import Certificate

CLAIM_TOLERANCE = 2.0**-20
"""A claim may differ from the recomputed number by this share: balls carry 64 bits, libraries may round the last differently."""
WITNESS_TOLERANCE = 2.0
"""The witness of a float network is what one machine measured; another one may round differently within the certificate."""


def verify_bundle(bundle: Bundle) -> Certificate:
    """The certificate of the stored weights; a card that claims anything better is a fault."""
    card = bundle.card
    if card.get("theorem") != theorem.ID:
        raise InputError(f"the card names theorem {card.get('theorem')!r}; known: {theorem.ID}")
    for key, allowed in (("bank", theorem.BANKS), ("ffn", ("spline", "barron"))):
        if card.get(key) not in allowed:
            raise InputError(f"the card's {key} is {card.get(key)!r}; expected one of {', '.join(allowed)}")
    target = fixed_target(card.get("target"), "card.json")
    certificate = thm_3_1.verify(bundle.network, target, card["bank"], card["ffn"])
    return replace(certificate, faults=certificate.faults + tuple(_false_claims(card, certificate)))


def _false_claims(card: dict[str, Any], certificate: Certificate) -> list[str]:
    """Claims that are better than what the weights give (or are not numbers at all)."""
    chain, sizes = card.get("chain"), card.get("sizes")
    if not isinstance(chain, dict) or not isinstance(sizes, dict):
        return ["the card has no chain or sizes to compare with"]
    found, faults = certificate.chain(), []
    for name in ("certified", "bound", "rounding", "witness"):
        claimed: Any = chain.get(name)
        value = found[name]
        slack = 1 + CLAIM_TOLERANCE if name != "witness" or certificate.dtype == "exact" else WITNESS_TOLERANCE
        honest = isinstance(claimed, int | float) and not isinstance(claimed, bool)
        if not honest or not (claimed <= value * slack if name == "witness" else claimed * slack >= value):
            faults.append(f"the card claims {name} {claimed}, the weights give {value:.9g}")
    if chain.get("verdict") != found["verdict"]:
        faults.append(f"the card claims the verdict {chain.get('verdict')!r}, the weights give {found['verdict']!r}")
    if sizes != certificate.sizes:
        faults.append(f"the card claims sizes {sizes}, the weights have {certificate.sizes}")
    return faults


def card_of(built: Construction, certificate: Certificate) -> dict[str, Any]:
    """The card of a network that was just built and certified."""
    return {
        "theorem": certificate.theorem,
        "target": built.target.describe(),
        "bank": built.bank,
        "ffn": built.ffn,
        "sizes": certificate.sizes,
        "chain": certificate.chain(),
        "seeds": {"barron": built.seed, "draws": built.draws},
        "versions": {name: version(name) for name in ("lemmaformer", "jax", "numpy", "python-flint", "sympy")},
    }
