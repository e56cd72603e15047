"""Pages for people: `report` writes what is known of a network, a certificate or a comparison into one HTML file, `explore` an explorer."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from analyzer.errors import InputError, LemmaformerError
from constructions.files.places import check_place, write_file
from lemmaformer.results.base import Plain, Shown
from lemmaformer.results.experiments import Comparison
from verify.report.pages import page_written

if TYPE_CHECKING:
    from analyzer.statements.theorem import Theorem
    from lemmaformer.network import Network
    from verify.chain.certificate import Certificate


def report(what: "Network | Certificate | Comparison | str | Path", out: str | Path, *, overwrite: bool = False) -> Shown:
    """One self-contained HTML file about a network (or the folder of its bundle), a certificate, the certificate file of a limit, or a
    comparison (or a file with its JSON); from the page no request leaves, and it works without a network.

    Needs the extra `pages`. A file that is there is replaced only with `overwrite`.

    >>> import lemmaformer as lf
    >>> net = lf.build(lf.fixed(lags=(2,)))
    >>> lf.report(net, "page.html").as_dict()["kind"]
    'network'
    """
    place = Path(out)
    check_place(place, overwrite=overwrite)
    kind, text = _page(what)
    return _written(kind, text, place, overwrite)


def _written(kind: str, text: str, place: Path, overwrite: bool) -> Shown:
    content = text.encode()
    write_file(place, content, overwrite)
    data: Plain = {"out": str(place), "kind": kind, "bytes": len(content)}
    return Shown(data, (page_written(kind, len(content), place),))


def _page(what: "Network | Certificate | Comparison | str | Path") -> tuple[str, str]:
    """The kind of a page, and its text."""
    from verify.report.web.mathematics import mathml

    mathml("x")  # without the extra nothing is loaded, verified or written
    if isinstance(what, str | Path):
        path = Path(what)
        return ("network", _network_page(_loaded(path), path.resolve().name)) if path.is_dir() else _file_page(path)
    if isinstance(what, Comparison):
        return "comparison", _comparison_page(cast("dict[str, Any]", what.as_dict()))
    from verify.chain.certificate import Certificate

    if isinstance(what, Certificate):
        return "certificate", _certificate_page(what)
    from lemmaformer.network import Network

    if isinstance(what, Network):
        return "network", _network_page(what, str(what.theorem or what.origin))
    raise InputError(f"a page is made of a network, a certificate or a comparison, not of a {type(what).__name__}")


def _loaded(path: Path) -> "Network":
    from lemmaformer.files import load

    return load(path)


def _file_page(path: Path) -> tuple[str, str]:
    """A certificate file of a limit, or the JSON of a comparison; told apart by what they hold."""
    from verify.limits.certificate_files import read_json

    data = read_json(path)
    if isinstance(data, dict) and isinstance(data.get("format"), str):
        return "limit", _limit_page(path, data)
    if isinstance(data, dict) and isinstance(data.get("networks"), list):
        return "comparison", _comparison_page(data)
    raise InputError(f"{str(path)[:80]} is neither a bundle, nor a certificate file of a limit, nor the JSON of a comparison")


def _limit_page(path: Path, data: dict[str, Any]) -> str:
    """The file is re-checked first: what is drawn is what its exact numbers show."""
    from analyzer.statements.registry import THEOREMS
    from lemmaformer.api import verify
    from verify.limits.certificate_files import sides
    from verify.report.web.limits import limit_page

    checked = cast("dict[str, Any]", verify(path).as_dict())
    of_lags = "entries" in checked
    return limit_page(
        checked, THEOREMS["budgeted-error" if of_lags else "hankel"], sides(data) if of_lags else [], str(data.get("unit", ""))
    )


def _comparison_page(data: dict[str, Any]) -> str:
    from verify.report.web.comparisons import comparison_page

    try:
        return comparison_page(data)
    except (KeyError, TypeError, AttributeError, IndexError, ValueError):
        raise InputError("this is not the JSON that a comparison has: a part is missing, or is of another kind") from None


def _certificate_page(certificate: "Certificate") -> str:
    from verify.report.web.networks import NetworkPage, certificate_page

    theorem = _theorem(certificate.theorem)
    about = f"{certificate.theorem}, {certificate.dtype}"
    live: dict[str, Any] = {}
    return certificate_page(NetworkPage("certificate", about, "certificate", "", theorem, "", certificate, (), live))


def _theorem(name: str | None) -> "Theorem | None":
    from analyzer.statements.registry import THEOREMS

    return THEOREMS[name] if name is not None and name in THEOREMS else None


def _network_page(net: "Network", name: str) -> str:
    from analyzer.statements.latex import statement
    from verify.bundles.views.proofs import proof_of
    from verify.report.web.networks import NetworkPage, network_page

    certificate, theorem = net.certificate, _theorem(net.theorem)
    rpe, bank, ffn = net.transformer.layers[0].attention.rpe[0], str(net.card.get("bank")), str(net.card.get("ffn"))
    formula = ""
    if theorem is not None and theorem.expression is not None:
        formula = statement(theorem.expression("log" if rpe == "log" else "lin", bank if bank in ("minimal", "paper") else "tuned"))
    lemmas = proof_of(certificate, net.target, "log" if rpe == "log" else "lin", bank, ffn)
    live, reason = _live(net)
    target = "no target" if net.target is None else net.target.description
    memory = None if net.target is None else net.target.as_memory_target
    readout = "" if memory is None else memory.readout.text
    about = f"{net.sizes['layers']} layer{'' if net.sizes['layers'] == 1 else 's'}, {net.origin}, {net.dtype}"
    return network_page(NetworkPage(name, about, target, readout, theorem, formula, certificate, lemmas, live, reason))


def _live(net: "Network") -> tuple[dict[str, Any], str]:
    """What the script of the page reads, and why the network does not run there, if it does not."""
    from verify.bundles.views import engines, sequences, shares
    from verify.bundles.views.targets import target_data

    network, target = net.transformer, net.target
    longest = 4 if target is None else target.settled
    length = network.within(sequences.length_of(target, longest))
    try:
        engine, reason = engines.engine_of(network, length, longest), ""
    except LemmaformerError as error:
        engine, reason = None, str(error)
    letters = None if target is None else target.letters()
    measured = sequences.MeasuredSequences(network, target, length)
    worst = measured.worst()
    slots = [
        [name if len(places) == 1 else f"{name}[{k}]", place]
        for name, places in net.slots.items()
        for k, place in enumerate(places, start=1)
    ]
    live = {
        "engine": engine,
        "slots": slots,
        "letters": None if letters is None else letters.tolist(),
        "dim": network.dim,
        "domain": [-1, 1] if target is None else list(target.domain),
        "settled": 0 if target is None else target.settled,
        "example": measured.example().as_dict(),
        "worst": None if worst is None else worst.as_dict(),
        "target": target_data(target, length) if network.outputs == 1 else None,
        "panels": shares.panels(network, target, net.slots, length),
        "no_panels": "Attention here reads tokens, or there are several layers: no kernel of positions alone stands for its heads.",
    }
    return live, reason


def explore(out: str | Path, *, overwrite: bool = False) -> Shown:
    """One self-contained HTML file with sliders for lag, heads, bits, relative positions and bank.

    Numbers are certified where the sliders rest on the table that is shipped with the package, and computed, labelled so, between.

    >>> import lemmaformer as lf
    >>> lf.explore("explorer.html").as_dict()["kind"]
    'explorer'
    """
    from analyzer.lemmas.extraction import EXTRACTION, minimal_expression
    from analyzer.statements.latex import statement
    from analyzer.statements.registry import THEOREMS
    from verify.limits.explorer import shipped_table
    from verify.report.web.explorer import explorer_page

    place = Path(out)
    check_place(place, overwrite=overwrite)
    formulas = [
        f"{bank}, {rpe}: {statement(expression)}"
        for rpe in ("lin", "log")
        for bank, expression in (("minimal", minimal_expression(rpe)), ("tuned and paper", EXTRACTION[rpe]))
    ]
    text = explorer_page(shipped_table(), THEOREMS["lag-law"], formulas)
    return _written("explorer", text, place, overwrite)
