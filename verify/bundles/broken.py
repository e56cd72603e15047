"""Bundles with one changed weight, whose card still makes the claims of the original: what does the verifier say?"""

from pathlib import Path

from constructions.files.bundle import Bundle, write
from constructions.network.transformer import Transformer
from constructions.run.execute import form_of
from verify.bundles.claims import citation_of, verify_in_form
from verify.chain.certificate import Certificate


def compare_chains(bundle: Bundle, changed: Transformer) -> tuple[Certificate, Certificate]:
    """The certificate of a bundle, and that of other weights under the same card, both as they run here.

    Any claim of the card that the new weights do not keep is a fault of the second certificate. Claims within a tolerance
    (`verify.bundles.claims.CLAIM_TOLERANCE`) of the recomputed numbers count as kept, so that a change that is small enough does hold.
    """
    form = form_of(bundle.network, None)
    return verify_in_form(bundle, form), verify_in_form(Bundle(changed, bundle.card), form)


def write_broken(path: Path, bundle: Bundle, changed: Transformer, overwrite: bool = False) -> None:
    """Write other weights under a bundle's card, with a hash that is right: only the mathematics can notice."""
    write(path, changed, bundle.card, "" if "origin" in bundle.card else citation_of(bundle.card), overwrite)
