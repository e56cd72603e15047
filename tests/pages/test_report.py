"""What is in the files: well-formed, self-contained, escaped, with the certificate's numbers; and what is refused."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import fmpq

import lemmaformer as lf
from analyzer.numbers.exact import rational
from constructions.run.execute import run as evaluate
from lemmaformer.results.experiments import Comparison
from tests.pages.cases import network
from verify.bundles.views import engines, sequences, shares
from verify.report.web.layout import embedded
from verify.report.web.proofs import upright
from verify.report.web.prose import inline, prose, with_formulas

VOID = {"meta", "input", "br", "link", "img", "hr"}
NAMESPACES = {"http://www.w3.org/2000/svg", "http://www.w3.org/1998/Math/MathML"}
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


class _Checked(HTMLParser):
    """Every element is closed in order; addresses are collected."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [str(value) for name, value in attrs if name in ("src", "href", "srcset", "action", "data", "poster")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def checked(text: str) -> _Checked:
    """A page that is well-formed and asks for nothing."""
    found = _Checked()
    found.feed(text)
    assert found.open == []
    assert all(address.startswith("#") for address in found.addresses)
    assert set(re.findall(r"https?://[^\s\"'<)]*", text)) <= NAMESPACES
    assert not re.search(r"url\(|@import|fetch\(|XMLHttpRequest|WebSocket|importScripts", text)
    assert found.tags.count("script") == 2 and "default-src 'none'" in text
    return found


def data_of(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    folder, known = tmp_path_factory.mktemp("pages"), dict[str, str]()

    def make(name: str) -> str:
        if name not in known:
            place = folder / f"{name}.html"
            lf.report(network(name), place)
            known[name] = place.read_text(encoding="utf-8")
        return known[name]

    return make


@pytest.mark.deep(keep=("lin", "log"))
@pytest.mark.parametrize("name", ["lin", "log", "nested tmx"])
def test_a_page_is_well_formed_and_asks_for_nothing(page: Callable[[str], str], name: str) -> None:
    found = checked(page(name))
    assert found.tags.count("math") > 3 and "article" in found.tags


@pytest.mark.deep
@pytest.mark.parametrize(
    "name", ["pair", "tuned", "kernel", "coupling", "chain", "restored", "trained dp", "trained table", "trained classes"]
)
def test_every_kind_of_network_has_a_page(page: Callable[[str], str], name: str) -> None:
    checked(page(name))
    assert (data_of(page(name))["engine"] is not None) and (network(name).certificate.verdict.value in page(name))


@pytest.mark.parametrize("name", ["lin", "nested tmx"])
def test_the_certificates_numbers_are_on_the_page(page: Callable[[str], str], name: str) -> None:
    certificate, text = network(name).certificate, page(name)
    for part in certificate.parts:
        assert f"{part.certified:.6g}" in text and f"{part.bound:.6g}" in text
    assert f'class="verdict {certificate.verdict.value}"' in text
    boxes = re.findall(r'<article class="lemma (\w*)" id="([^"]*)"', text)
    assert len(boxes) >= 4 and {mood for mood, _ in boxes} == {"good", ""}
    ids = {place for _, place in boxes}
    uses = {name for names in re.findall(r'data-uses="([^"]*)"', text) for name in names.split()}
    assert uses < ids


def test_a_violated_certificate_is_red(tmp_path: Path) -> None:
    changed, _, after = network("lin").broken("output", head=2, by=1e9)
    assert after.verdict is lf.Verdict.VIOLATED
    lf.report(changed, tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert 'class="verdict violated"' in text and 'class="lemma bad"' in text


@pytest.mark.parametrize("name", ["lin", "log"])
def test_shares_add_up_to_the_kernel(name: str) -> None:
    """Pairs are off by 2^{−106} of their size each; the total is rounded once, by 2^{−53} of it."""
    net = network(name)
    (panel,) = shares.panels(net.transformer, net.target, net.slots, 12)
    (kernel,) = panel["choices"]
    assert len(kernel["shares"]) == 4 and [s for s, v in enumerate(kernel["wanted"]) if v] == [4]
    for s, total in enumerate(kernel["total"]):
        pairs = [rational(share[s][0]) + rational(share[s][1]) for share in kernel["shares"]]
        size = sum((abs(pair) for pair in pairs), fmpq(0))
        residual = sum((rational(part) for part in kernel["residual"]), fmpq(0)) if s == 0 else fmpq(0)
        exact = sum(pairs, residual)
        assert abs(exact - rational(total)) <= (size + abs(residual)) / 2**105 + abs(rational(total)) / 2**52 + fmpq(1, 2**900)
    off = sum(abs(a - b) for a, b in zip(kernel["total"], kernel["wanted"], strict=True))
    assert 0.5 * net.certificate.certified < off <= net.certificate.certified


@pytest.mark.deep
def test_astronomical_weights_are_given_as_sums() -> None:
    net = network("tuned")
    (panel,) = shares.panels(net.transformer, net.target, net.slots, 12)
    (kernel,) = panel["choices"]
    assert kernel["shares"] is None and kernel["sums"][-1]["count"] in (63, 64)  # an interpolant may have a coefficient 0
    assert np.allclose(kernel["sums"][-1]["values"][1:], kernel["total"][1:], rtol=0, atol=2.0**-50)
    assert max(abs(value) for part in kernel["sums"] for value in part["values"]) > 1e20


@pytest.mark.deep
def test_chains_show_how_a_token_travels() -> None:
    """After the last layer the memory holds the token of 12 steps ago up to the certified error; the carrier moves on layer by layer."""
    net = network("chain")
    found = {panel["name"]: panel["choices"] for panel in shares.panels(net.transformer, net.target, net.slots, 20)}
    last = np.array(found["m1"][0]["total"])
    assert int(last.argmax()) == 12 and abs(last - (np.arange(20) == 12)).sum() <= net.certificate.certified
    peaks = [int(np.argmax(choice["total"])) for choice in reversed(found["carrier"]) if max(choice["total"]) > 0.5]
    assert peaks == sorted(peaks) and peaks[0] < 12


def test_kernels_of_the_engine_are_those_of_run() -> None:
    """Both convolve the same floats: twelve terms, and transforms of 32 points, each off by a few units in the last place of Σ|κ|."""
    net = network("lin")
    engine = engines.engine_of(net.transformer, 12, 4)
    kernels, tokens = np.array(engine["layers"][0]["kernels"]), np.random.default_rng(3).uniform(-1, 1, (12, 1))
    stream = np.array([[sum(kernels[j, 0, s] * tokens[t - s, 0] for s in range(t + 1)) for j in range(2)] for t in range(12)])
    ffn = engine["readout"]
    outputs = np.maximum(stream @ np.array(ffn["inner"]).T + ffn["bias"], 0) @ np.array(ffn["outer"]).T
    assert abs(outputs[:, 0] - evaluate(net.transformer, tokens)).max() <= 100 * 2.0**-53 * abs(kernels).sum()


def test_the_search_finds_what_the_certificate_knows() -> None:
    """For an affine read-out the sign sequence attains the certified error, up to the tail beyond the page and float64."""
    net = network("lin")
    found = sequences.MeasuredSequences(net.transformer, net.target, 12).worst()
    assert found is not None and found.error is not None
    assert 0.99 * net.certificate.witness < found.error <= net.certificate.certified + 1e-12


def test_certificates_and_comparisons_have_pages(tmp_path: Path) -> None:
    certificate = replace(network("lin").certificate, witness_input=HOSTILE, faults=(HOSTILE,))
    assert lf.report(certificate, tmp_path / "c.html").as_dict()["kind"] == "certificate"
    text = (tmp_path / "c.html").read_text()
    checked(text)
    assert "alert(1)" in text and HOSTILE not in text


COMPARED: dict[str, Any] = {
    "sequences": 4, "length": 8, "first": 2, "seed": 0, "tokens": "uniform", "counting_rule": "", "target_kernel": [[0.0, 0.0, 1.0]],
    "kernel_distances": [{"a": "target", "b": HOSTILE, "l1": 0.4}],
    "networks": [
        {
            "name": HOSTILE, "origin": "imported", "theorem": None, "dtype": "float32", "faults": [], "structure": [
                {"kind": "dp", "window": "finite", "rpe": {"lin": 2}, "off": 0, "width": 2, "rounded": False}
            ],
            "sizes": {"layers": 1, "heads": 2, "width": 2, "model_dim": 2, "parameters": 9},
            "sampled": {"rms": {"mean": 0.5, "std": 0.1}, "max": {"mean": 0.7, "std": 0.1}, "overall": {"rms": 0.5125, "max": 0.8},
                "not_finite": 0},
            "certificate": {"by": None, "witness": 0.5, "certified": None, "rounding": None, "arithmetic": None,
                "over": None, "reason": HOSTILE},
            "decays": [{"half_lives": [1.0], "exponents": [], "tables": []}], "mean_square_floor": None, "kernel": [[0.1, 0.2, 0.9]],
            "kernel_reason": None, "probes": [{"layer": 0, "memory": "m1", "r2": 0.9}], "probes_reason": None, "decays_off": None,
        }
    ],
}  # fmt: skip


def test_names_in_a_comparison_are_escaped(tmp_path: Path) -> None:
    lf.report(Comparison(COMPARED), tmp_path / "c.html")
    text = (tmp_path / "c.html").read_text()
    checked(text)
    assert HOSTILE not in text and "0.5125" in text and len(data_of(text)["charts"]) == 1


def test_a_hostile_name_of_a_bundle_is_escaped(tmp_path: Path) -> None:
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    network("lin").save(folder)
    lf.report(folder, tmp_path / "c.html")
    text = (tmp_path / "c.html").read_text()
    checked(text)
    assert "&lt;img src=x onerror=alert(1)&gt;" in text


def test_a_certificate_file_of_a_limit(tmp_path: Path) -> None:
    found = lf.limits.lag(1, dtype="bfloat16", certificate=tmp_path / "c.json")
    assert lf.report(tmp_path / "c.json", tmp_path / "c.html").as_dict()["kind"] == "limit"
    text = (tmp_path / "c.html").read_text()
    checked(text)
    assert f"{found.lower:.6g}" in text and f"{found.upper:.6g}" in text and "dual sequence" in text
    drawn = data_of(text)["charts"][0]["series"][1]["values"]
    assert abs(drawn[1] - 1) < found.upper


def test_data_cannot_leave_their_element() -> None:
    text = embedded({"a": HOSTILE, "b": "\u2028 & <!--"})
    assert not set(text) & set("<>&\u2028") and json.loads(text)["a"] == HOSTILE


def test_prose_and_formulas() -> None:
    assert inline("x_{t−T_1} and `a_b` < *so*") == "x<sub>t−T<sub>1</sub></sub> and <code>a_b</code> &lt; <em>so</em>"
    assert prose("One.\n\n    a_1 ≤ 2\n\nTwo.") == "<p>One.</p>\n<pre>a<sub>1</sub> ≤ 2</pre>\n<p>Two.</p>"
    assert with_formulas("a < b $$x^2$$ where $x$ is").count("<math") == 2
    assert upright(r"E_{FFN} + \frac{Lip_{1}}{H L}") == r"E_{\mathrm{FFN}} + \frac{\mathrm{Lip}_{1}}{H L}"


def test_pages_are_not_overwritten(tmp_path: Path, run: Callable[..., Any]) -> None:
    network("lin").save(tmp_path / "net")
    place = tmp_path / "page.html"
    place.write_text("mine")
    found = run("report", tmp_path / "net", "--out", place)
    assert found.code == 2 and len(found.err.splitlines()) == 1 and place.read_text() == "mine"
    assert run("explore", "--out", place).code == 2 and place.read_text() == "mine"
    found = run("report", tmp_path / "net", "--out", place, "--force", "--json")
    assert found.code == 0 and found.json["kind"] == "network" and found.json["bytes"] == place.stat().st_size


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read"),
        ("hello", "not valid JSON"),
        ("[1, 2]", "neither a bundle"),
        ('{"networks": [{}]}', "not the JSON that a comparison has"),
        ('{"format": "lemmaformer-limit", "version": 1}', "certificate"),
        ('{"format": "something"}', "certificate"),
    ],
)
def test_bad_inputs(tmp_path: Path, run: Callable[..., Any], content: str | None, said: str) -> None:
    given = tmp_path / "given.json"
    if content is not None:
        given.write_text(content)
    found = run("report", given, "--out", tmp_path / "page.html")
    assert found.code == 2 and len(found.err.splitlines()) == 1 and said in found.err
    assert not (tmp_path / "page.html").exists()


def test_bad_places_and_folders(tmp_path: Path, run: Callable[..., Any]) -> None:
    (tmp_path / "empty").mkdir()
    for arguments in (["report", tmp_path / "empty", "--out", tmp_path / "p.html"], ["explore", "--out", tmp_path / "no" / "p.html"]):
        found = run(*arguments)
        assert found.code == 2 and len(found.err.splitlines()) == 1
    with pytest.raises(lf.InputError, match="not of a int"):
        lf.report(3, tmp_path / "p.html")  # type: ignore[arg-type]
    assert list(tmp_path.glob("*.html")) == []


def test_without_the_extra_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "latex2mathml.converter", None)
    with pytest.raises(lf.InputError, match=r"lemmaformer\[pages\]"):
        lf.report(network("lin"), tmp_path / "p.html")
    assert list(tmp_path.iterdir()) == []
