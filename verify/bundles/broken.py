"""Bundles with one changed weight, whose card still makes the claims of the original: what does the verifier say?"""

from pathlib import Path

from constructions.files.bundle import Bundle, write
from constructions.network.transformer import Transformer
from verify.bundles.claims import citation_of, verify_bundle
from verify.chain.certificate import Certificate


def compare_chains(bundle: Bundle, changed: Transformer) -> tuple[Certificate, Certificate]:
    """The certificate of a bundle, and that of other weights under the same card.

    Any claim of the card that the new weights do not keep is a fault of the second certificate. Claims within a tolerance
    (`verify.bundles.claims.CLAIM_TOLERANCE`) of the recomputed numbers count as kept, so that a change that is small enough does hold.
    """
    return verify_bundle(bundle), verify_bundle(Bundle(changed, bundle.card))


def write_broken(path: Path, bundle: Bundle, changed: Transformer, overwrite: bool = False) -> None:
    """Write other weights under a bundle's card, with a hash that is right: only the mathematics can notice."""
    write(path, changed, bundle.card, "" if "origin" in bundle.card else citation_of(bundle.card), overwrite)
