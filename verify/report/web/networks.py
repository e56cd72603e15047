"""The page of a network: statement, chain, proof, kernels, stream, patterns, witness."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from analyzer.statements.theorem import Theorem
from verify.chain.certificate import Certificate
from verify.report.web.chains import chain
from verify.report.web.layout import page, paragraph, section, table
from verify.report.web.proofs import proof_graph
from verify.report.web.prose import prose, with_formulas
from verify.report.words import number

SCRIPTS = ("engine.js", "charts.js", "network.js")


@dataclass(frozen=True)
class NetworkPage:
    """What the page of a network shows.

    `formula` is the theorem's bound as text with LaTeX, `lemmas` the proof with its numbers, `live` what the script reads (engine, tokens,
    slots, panels); `reason` says why there is no engine.
    """

    name: str
    about: str
    target: str
    readout: str
    theorem: Theorem | None
    formula: str
    certificate: Certificate
    lemmas: Sequence[dict[str, Any]]
    live: dict[str, Any]
    reason: str = ""


def network_page(what: NetworkPage) -> str:
    """The file."""
    return page(f"{what.target}: {what.about}", _subtitle(what), _sections(what), what.live, SCRIPTS)


def certificate_page(what: NetworkPage) -> str:
    """A certificate by itself: its statement and its chain; there is no network to run."""
    found = [] if what.theorem is None else [section("Statement", prose(what.theorem.statement), id="statement")]
    found.append(section("Chain", chain(what.certificate), _parts(what.certificate), id="chain"))
    witness = paragraph(f"Error {number(what.certificate.witness)} at {what.certificate.witness_input}.")
    return page(f"Certificate: {what.about}", _subtitle(what), [*found, section("Witness", witness, id="witness")], {}, SCRIPTS)


def _subtitle(what: NetworkPage) -> str:
    sizes, certificate = what.certificate.sizes, what.certificate
    rows = [("network", what.name), ("target", what.target)]
    rows += [("read-out", what.readout)] if what.readout else []
    rows.append(("theorem", f"{what.theorem.id}, {what.theorem.title}" if what.theorem else "none: these weights are not a theorem's"))
    law = "" if certificate.least_heads is None else f" (at least {certificate.least_heads} by the lag law)"
    rows.append(
        (
            "sizes",
            f"layers {sizes['layers']}, heads {sizes['heads']}{law}, width {sizes['width']}, model dimension {sizes['model_dim']}, "
            f"parameters {sizes['parameters']}",
        )
    )
    rows.append(("arithmetic", certificate.dtype))
    return '<dl class="sizes">' + "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in rows) + "</dl>"


def _sections(what: NetworkPage) -> list[str]:
    certificate = what.certificate
    found = []
    if what.theorem is not None:
        rest = f"<details><summary>the whole page, with its proof</summary>{prose(what.theorem.page)}</details>"
        formula = with_formulas(what.formula) if what.formula else ""
        found.append(section("Statement", prose(what.theorem.statement), formula, rest, id="statement"))
    found.append(section("Chain", chain(certificate), _parts(certificate), id="chain"))
    if what.lemmas:
        found.append(section("Proof, with numbers", paragraph(_PROOF, "soft"), proof_graph(what.lemmas), id="proof"))
    if what.live["panels"]:
        alone = what.live["panels"][0]["choices"][0]["shares"] == []
        title, said = ("Where a token is, layer by layer", _LAYERS) if alone else ("How heads make a kernel", _KERNELS)
        found.append(section(title, paragraph(said, "soft"), '<div id="kernels"></div>', id="heads"))
    else:
        found.append(section("Kernels", paragraph(what.live["no_panels"], "soft"), id="heads"))
    found += _live(what)
    found.append(section("Witness", *_witness(what), id="witness"))
    return found


_PROOF = (
    "Every lemma with its budget in symbols; beside it the number certified from the stored weights and what the lemma promises at these "
    "sizes. Arrows lead to what a lemma uses."
)
_LAYERS = "Every layer is linear in the tokens: what a slot holds, s tokens after a single 1."
_KERNELS = (
    "A memory is Σ κ(s) x at distance s; κ is a sum of heads. Switch heads off to see what is left: shares from the exact weights, sums "
    "computed in this page, not certified."
)


def _parts(certificate: Certificate) -> str:
    rows = [
        [part.name, number(part.certified), "-" if "arithmetic" in certificate.details else number(part.bound)]
        for part in certificate.parts
    ]
    if certificate.rounding:
        rows.append(["rounding of evaluation", number(certificate.rounding), number(certificate.rounding)])
    faults = "".join(paragraph(fault, "violated") for fault in certificate.faults[:20])
    return (table(["part", "certified ≤", "bound"], rows, "parts of the chain") if rows else "") + faults


def _live(what: NetworkPage) -> list[str]:
    if what.live["engine"] is None:
        return [section("Stream", paragraph(f"The network does not run in this page: {what.reason}", "soft"), id="live")]
    settled = what.live["settled"]
    early = (
        f" Positions before {settled} (pale) have lags that reach before the array; certificates and the difference leave them out."
        if settled
        else ""
    )
    note = (
        '<p><span class="badge">computed in this page, not certified</span> Largest difference from <code>run</code> on the random '
        "sequence: "
        f'<output id="difference">…</output> (measured).{escape(early)}</p>'
    )
    stream = (
        '<div class="controls" id="sequences"></div><p id="token-message" role="alert" class="violated"></p>'
        '<div class="controls" id="stream-layer"></div><div class="scroll" role="region" aria-label="tokens and residual stream">'
        '<table class="stream" id="stream"><tbody id="tokens"></tbody><tbody id="values"></tbody></table></div>'
        '<p class="note" id="stream-note" role="status"></p>'
    )
    said = paragraph("Edit the tokens: the residual stream after every attention, slot by slot, and the output follow.", "soft")
    patterns = '<div class="controls" id="pattern-choice"></div><figure class="scroll" id="pattern"></figure>'
    return [section("Residual stream", said, note, stream, id="live"), section("Attention", patterns, id="attention")]


def _witness(what: NetworkPage) -> list[str]:
    certificate, worst = what.certificate, what.live["worst"]
    kind = "error" if certificate.norm == "sup" else "mean square error"
    parts = [paragraph(f"The certificate's witness: {kind} {number(certificate.witness)}, {certificate.witness_input}.")]
    if worst is None or worst["error"] is None:
        return parts
    t = worst["position"]
    parts.append(
        paragraph(
            f"A sequence of this page's length, found by a search that ran the network (measured, not certified): at position {t} the "
            f"output is {worst['outputs'][t]:.8g}, wanted is {worst['wanted'][t]:.8g}, error {worst['error']:.6g}. The certificate's "
            "witness may have an infinite past."
        )
    )
    shown = [", ".join(f"{v:g}" for v in token) for token in worst["tokens"]]
    rows = [[f"{k}", text] for k, text in enumerate(shown)]
    head, body = ["position", *(row[0] for row in rows)], [["token", *(row[1] for row in rows)]]
    return [*parts, table(head, body, "the sequence")]
