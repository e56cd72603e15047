"""The documentation site: built in a folder of its own, whole, without a link or a load that leads elsewhere; its tutorials are run."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import lemmaformer as lf

pytestmark = [pytest.mark.reach, pytest.mark.filterwarnings("ignore")]
ROOT = Path(__file__).parent.parent.parent
LOADING = {
    "script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src", "object": "data", "embed": "src", "form": "action",
}  # fmt: skip
"""What a browser loads, or sends to, without being asked."""


class Page(HTMLParser):
    """What a page loads, where it links to, and its anchors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append(tag)
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag in LOADING and LOADING[tag] in given:
            self.loads.append(given[LOADING[tag]])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if "url(" in given.get("style", ""):
            self.loads += re.findall(r"url\(['\"]?([^'\")]+)", given["style"])


@pytest.fixture(scope="module")
def notebooks() -> dict[str, Any]:
    """The three tutorials, run; an assertion in them that fails, fails here."""
    from docs.site import tutorials

    return tutorials.all_executed()


@pytest.fixture(scope="module")
def site(notebooks: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    from docs.site.build import build

    place = tmp_path_factory.mktemp("built") / "site"
    assert build(place, notebooks) > 30
    yield place


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


def test_nothing_is_loaded_from_elsewhere(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        assert [load for load in page.loads if re.match(r"(?:[a-z]+:)?//", load)] == [], path
        for load in page.loads:
            place = unquote(load.partition("?")[0].partition("#")[0])
            assert not place or load.startswith("data:") or (path.parent / place).exists(), (path.name, load)
    for sheet in site.rglob("*.css"):
        assert not re.search(r"(?:@import|url\()\s*['\"]?(?:https?:)?//", sheet.read_text(encoding="utf-8")), sheet


def test_every_link_and_anchor_inside_the_site_exists(site: Path, pages: dict[Path, Page]) -> None:
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link):
                continue
            place, _, anchor = link.partition("#")
            target = (path.parent / unquote(place)).resolve() if place else path
            assert target.exists(), (path.name, link)
            if anchor and target.suffix == ".html":
                assert unquote(anchor) in pages[target].anchors, (path.name, link)


def test_all_pages_of_the_manual_are_there(site: Path, pages: dict[Path, Page]) -> None:
    written = {page.stem for page in (ROOT / "docs").glob("*.md")}
    made = {"index", "start", "contributing", "gallery", "reference", "theorems/index", "tutorials/theorist", "tutorials/teacher"}
    assert {name for name in written | made | {"tutorials/interpretability"} if not (site / f"{name}.html").exists()} == set()
    listed = {(site / link).resolve() for link in pages[site / "index.html"].links if link.endswith(".html")}
    assert {site / f"{name}.html" for name in written} <= listed


def test_theorems_have_formulas_and_proof_graphs(site: Path, pages: dict[Path, Page]) -> None:
    for name, theorem in lf.theorems.items():
        text = (site / "theorems" / f"{name}.html").read_text(encoding="utf-8")
        page = pages[site / "theorems" / f"{name}.html"]
        assert "\\frac" not in text and "{math}" not in text and "_{" not in re.sub(r"<code.*?</code>", "", text, flags=re.DOTALL), name
        if theorem.expression is not None:
            assert page.tags.count("math") >= 2, name
        if theorem.lemmas is not None:
            graph = text[text.index('<svg class="graph"') : text.index("</svg>", text.index('<svg class="graph"'))]
            proof = theorem.proof("lin", "tuned", "spline", (4,) if name == "thm-3.1" else (2, 4))
            assert graph.count("<rect") == len(proof) and graph.count('class="edge"') == proof.number_of_edges()


def test_mathematics_needs_no_script(pages: dict[Path, Page]) -> None:
    assert not [load for page in pages.values() for load in page.loads if "mathjax" in load.lower() or "katex" in load.lower()]


def test_the_reference_has_every_public_name(site: Path, pages: dict[Path, Page]) -> None:
    text = (site / "reference.html").read_text(encoding="utf-8")
    for name in lf.__all__:
        assert f"<h2>{name}<" in text, name
    for module in ("limits", "experiments"):
        for name in getattr(lf, module).__all__:
            assert f"<h3>{module}.{name}<" in text


def test_the_gallery_is_drawn(site: Path, pages: dict[Path, Page]) -> None:
    from docs.site.gallery import FIGURES

    shown = [load for load in pages[site / "gallery.html"].loads if load.endswith(".svg")]
    assert {Path(load).stem for load in shown} >= set(FIGURES)


def test_the_rooms_are_a_picture(site: Path) -> None:
    from tests.house.rooms import ARROWS

    text = (site / "architecture.html").read_text(encoding="utf-8")
    assert "flowchart" not in text and text.count('<rect class="box"') == len(ARROWS)


def test_tutorials_show_what_they_computed(site: Path, notebooks: dict[str, Any]) -> None:
    assert set(notebooks) == {"theorist", "interpretability", "teacher"}
    text = (site / "tutorials" / "theorist.html").read_text(encoding="utf-8")
    assert "6653" in text and text.count("<img") >= 3
    for notebook in notebooks.values():
        assert all(cell.execution_count for cell in notebook.cells if cell.cell_type == "code")


def test_a_wrong_number_in_a_tutorial_is_seen(tmp_path: Path) -> None:
    from nbclient.exceptions import CellExecutionError

    from docs.site.tutorials import FOLDER, executed

    source = (FOLDER / "theorist.py").read_text(encoding="utf-8")
    assert source.count("6653, 527, 4, 4") == 1
    (tmp_path / "wrong.py").write_text(source.replace("6653, 527, 4, 4", "6653, 526, 4, 4"), encoding="utf-8")
    with pytest.raises(CellExecutionError, match="AssertionError"):
        executed(tmp_path / "wrong.py", tmp_path)


@pytest.mark.parametrize("line", ["[dead](nowhere.md)", "[dead](#nowhere)", "```{nonsense}\n```"])
def test_dead_links_stop_the_build(line: str, tmp_path: Path) -> None:
    import shutil

    from docs.site.build import DOCS, _sphinx

    (tmp_path / "source").mkdir()
    shutil.copy(DOCS / "conf.py", tmp_path / "source")
    shutil.copytree(DOCS / "_static", tmp_path / "source" / "_static")
    (tmp_path / "source" / "index.md").write_text(f"# Title\n\n{line}\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        _sphinx(tmp_path / "source", tmp_path / "out", tmp_path / "trees")


def test_pages_that_nobody_has_thought_of_are_listed() -> None:
    from docs.site.build import contents

    assert re.search(r"^surprise$", contents({"index", "start", "surprise", "api"}), re.MULTILINE)


def test_a_folder_that_is_no_site_is_not_replaced(tmp_path: Path) -> None:
    from docs.site.build import main

    (tmp_path / "precious.txt").write_text("mine")
    with pytest.raises(SystemExit, match="no site"):
        main(["--out", str(tmp_path)])
    assert (tmp_path / "precious.txt").read_text() == "mine"


def test_a_browser_draws_formulas_and_asks_for_nothing(site: Path) -> None:
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    said: list[str] = []
    with sync_playwright() as browsers:
        browser = browsers.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 400, "height": 800})
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
        for name in ("theorems/thm-3.1", "tutorials/teacher", "gallery", "architecture", "index"):
            page.goto((site / f"{name}.html").as_uri())
            assert page.evaluate("document.documentElement.scrollWidth") <= 400, name
        page.goto((site / "theorems" / "thm-3.1.html").as_uri())
        assert page.evaluate("Math.min(...[...document.querySelectorAll('div.math math')].map(m => m.getBoundingClientRect().height))") > 20
        browser.close()
    assert said == [] and [url for url in asked if not url.startswith(("file:", "data:"))] == []
