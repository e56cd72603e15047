"""ONNX files held against what they claim to be: the graph and the initialisers of a network that is certified."""

from dataclasses import replace
from pathlib import Path

from analyzer.errors import InputError
from constructions.exports.onnx_files import read
from constructions.files.bundle import Bundle
from verify.bundles.claims import strange
from verify.chain.certificate import Certificate


def onnx_bundle(place: Path, needs_card: bool = True) -> tuple[Bundle, dict[str, list[int]], tuple[str, ...]]:
    """The network in an ONNX file with its card, its slots, and what is wrong with the file, as faults of a certificate."""
    found = read(place)
    if needs_card and not {"theorem", "origin"} & set(found.bundle.card):
        raise InputError(f"{str(place)[:80]} carries no card: give a target to certify it on, or export a network that was built")
    faults = () if found.difference is None else (f"the ONNX file: {found.difference}",)
    return found.bundle, found.slots, faults


def changed_network(bundle: Bundle, faults: tuple[str, ...]) -> Certificate:
    """The certificate of a file that was changed and whose network is none that can be certified: nothing is known of its error."""
    certificate = strange(bundle.network, str(bundle.card.get("theorem")), faults[0])
    return replace(certificate, faults=faults)
