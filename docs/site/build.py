"""The documentation site: gathers pages, made and written ones, in a folder of its own, and lets Sphinx build them; warnings are errors.

python -m docs.site.build --out build/site
"""

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent
ROOT = DOCS.parent
FIRST = ("start",)
SECTIONS: dict[str, tuple[str, ...]] = {
    "Use": ("targets", "plan", "claims", "sweeps", "exports", "onnx", "doctor", "models", "import", "pages", "questions", "library"),
    "Theory": ("theorems/index", "certificates", "gallery"),
    "Reference": ("api", "reference", "glossary"),
    "Project": ("experiments", "architecture", "decisions", "benchmarks", "contributing"),
}
"""Where pages stand in the contents; those that are not named here stand at the end of Use."""


NAMED = {"start": "Quick start <start>", "api": "Python by subject <api>"}
"""Pages that the contents call otherwise than their titles."""


def build(out: Path, notebooks: Mapping[str, Any] | None = None) -> int:
    """Build the site into a folder; executed tutorials by their names may be given. The number of pages."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        gather(source, notebooks)
        _sphinx(source, out, Path(folder) / "trees")
        return len(list(out.rglob("*.html")))


def gather(source: Path, notebooks: Mapping[str, Any] | None = None) -> None:
    """Everything that Sphinx reads."""
    from docs.site import gallery, reference, theorems, tutorials

    source.mkdir(parents=True)
    pool = ThreadPoolExecutor(1)
    running = pool.submit(tutorials.all_executed) if notebooks is None else None  # in processes of their own, meanwhile
    for page in DOCS.glob("*.md"):
        (source / page.name).write_text(_drawn(_led(page)), encoding="utf-8")
    (source / "experiments").mkdir()
    for page in (DOCS / "experiments").glob("*.md"):
        (source / "experiments" / page.name).write_text(_led(page), encoding="utf-8")
    for picture in (*DOCS.glob("*.png"), *DOCS.glob("*.svg"), DOCS / "conf.py"):
        shutil.copy(picture, source)
    shutil.copytree(DOCS / "_static", source / "_static")
    made = {
        "start.md": _led(ROOT / "README.md"),
        "contributing.md": _led(ROOT / "CONTRIBUTING.md"),
        "reference.md": reference.page(),
        **theorems.pages(),
    }
    made["gallery.md"] = gallery.page(source / "gallery")
    for stem, notebook in (running.result() if running is not None else notebooks or {}).items():
        made[f"tutorials/{stem}.md"] = tutorials.page(notebook, stem, source / "tutorials" / "shown")
    for name, text in made.items():
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    (source / "experiments.md").write_text(_with_list(source / "experiments.md", source / "experiments"), encoding="utf-8")
    (source / "index.md").write_text(contents({str(page.relative_to(source))[:-3] for page in source.rglob("*.md")}), encoding="utf-8")


def contents(pages: set[str]) -> str:
    """The front page: every page stands in one list, those that nobody has thought of too."""
    learn = sorted(page for page in pages if page.startswith("tutorials/"))
    named = {page for section in SECTIONS.values() for page in section} | set(FIRST) | set(learn)
    others = sorted(page for page in pages - named if "/" not in page and page != "index")
    listed = {"Start": FIRST, "Tutorials": learn} | SECTIONS
    listed["Use"] = (*SECTIONS["Use"], *others)
    lines = ["# lemmaformer", "", "Theorems about Transformers as running, certified code.", ""]
    for title, names in listed.items():
        lines += [
            "```{toctree}",
            f":caption: {title}",
            ":maxdepth: 1",
            "",
            *(NAMED.get(name, name) for name in names if name in pages),
            "```",
            "",
        ]
    return "\n".join(lines)


def _with_list(page: Path, below: Path) -> str:
    """A page with the pages of a folder in the contents, below it."""
    listed = "\n".join(f"{below.name}/{one.stem}" for one in sorted(below.glob("*.md")))
    return f"{page.read_text(encoding='utf-8')}\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


def _drawn(page: str) -> str:
    """A page with the picture of the rooms drawn, where it has one in mermaid's language, which browsers do not know."""
    if "```mermaid" not in page:
        return page
    import networkx as nx

    from docs.site.graphs import svg_of
    from tests.house.rooms import ARROWS

    graph = nx.DiGraph((room, below) for room, rooms in ARROWS.items() for below in rooms)
    picture = svg_of(graph, {room: room.replace(".", "\n", 1) for room in graph}, "rooms and who may import whom")
    return re.sub(r"```mermaid\n.*?```", lambda _: f"```{{raw}} html\n{picture}\n```", page, flags=re.DOTALL)


PAGES = {ROOT / "README.md": "start.md", ROOT / "CONTRIBUTING.md": "contributing.md"}
"""Pages of the root as pages of the site."""


def _led(page: Path) -> str:
    """A page with its links as they lead on the site: files of the project that are no pages of it become their names."""

    def led(link: "re.Match[str]") -> str:
        mark, label, place, anchor = link[1], link[2], link[3], link[4] or ""
        if re.match(r"[a-z]+:", place):
            return link[0]
        path = (page.parent / place).resolve()
        if not path.exists():
            return link[0]  # Sphinx will say so
        if path in PAGES:
            return f"{mark}[{label}]({PAGES[path]}{anchor})"
        if path.parent == DOCS / "tutorials":
            return f"{mark}[{label}](tutorials/{path.stem}.md{anchor})"
        if path.parent == DOCS / "experiments" and path.suffix == ".md":
            return f"{mark}[{label}](experiments/{path.name}{anchor})"
        if path.parent == DOCS and path.suffix in (".md", ".png", ".svg"):
            return f"{mark}[{label}]({path.name}{anchor})"
        return f"{label} (`{path.relative_to(ROOT)}`)" if label.strip("`") != str(path.relative_to(ROOT)) else f"`{label.strip('`')}`"

    return re.sub(r"(!?)\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)", led, page.read_text(encoding="utf-8"))


def _sphinx(source: Path, out: Path, trees: Path) -> None:
    from sphinx.cmd.build import build_main

    if out.exists():
        shutil.rmtree(out)
    code = build_main(["-b", "html", "-W", "--keep-going", "-q", "-d", str(trees), str(source), str(out)])
    shutil.rmtree(out / ".doctrees", ignore_errors=True)
    if code:
        raise SystemExit(f"the site was not built: Sphinx ended with {code}")


def main(arguments: list[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Build the documentation site, without network.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="the folder of the site; what is there is replaced")
    chosen = parser.parse_args(arguments)
    if chosen.out.exists() and not (chosen.out / "searchindex.js").exists() and any(chosen.out.iterdir()):
        sys.exit(f"{chosen.out} exists and is no site")
    start = time.perf_counter()
    print(f"{build(chosen.out)} pages in {time.perf_counter() - start:.0f} s: {chosen.out / 'index.html'}")


if __name__ == "__main__":
    main()
