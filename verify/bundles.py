"""Verification of a bundle: the chain from its stored weights, then the card's claims against it."""

from dataclasses import replace

from analyzer.errors import InputError
from analyzer.targets import target_from_dict
from analyzer.theorems import thm_3_1 as theorem
from constructions.bundle import Bundle
from verify import thm_3_1
from verify.certificate import Certificate

CLAIM_TOLERANCE = 2.0**-20
"""A claim may differ from the recomputed number by this share: balls carry 64 bits, libraries may round the last differently."""


def verify_bundle(bundle: Bundle) -> Certificate:
    """The certificate of the stored weights; a card that claims anything better is a fault."""
    card = bundle.card
    if card.get("theorem") != theorem.ID:
        raise InputError(f"the card names theorem {card.get('theorem')!r}; known: {theorem.ID}")
    for key, allowed in (("bank", ("paper", "tuned", "minimal")), ("ffn", ("spline", "barron"))):
        if card.get(key) not in allowed:
            raise InputError(f"the card's {key} is {card.get(key)!r}; expected one of {', '.join(allowed)}")
    target = target_from_dict(card.get("target", {}), "card.json")
    certificate = thm_3_1.verify(bundle.network, target, card["bank"], card["ffn"])
    return replace(certificate, faults=certificate.faults + tuple(_false_claims(card, certificate)))


def _false_claims(card: dict[str, object], certificate: Certificate) -> list[str]:
    chain, sizes = card.get("chain"), card.get("sizes")
    if not isinstance(chain, dict) or not isinstance(sizes, dict):
        return ["the card has no chain or sizes to compare with"]
    faults = []
    for name, found in (("certified", certificate.certified), ("bound", certificate.bound), ("rounding", certificate.rounding)):
        claimed = chain.get(name)
        if not isinstance(claimed, int | float) or not claimed >= found * (1 - CLAIM_TOLERANCE):
            faults.append(f"the card claims {name} {claimed}, the weights give {found:.9g}")
    if sizes != certificate.sizes:
        faults.append(f"the card claims sizes {sizes}, the weights have {certificate.sizes}")
    return faults
