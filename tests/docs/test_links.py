"""Links of the manual: every relative link of every page leads to a file that exists, and every anchor to a heading."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "experiments").glob("*.md")),
]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s#]*)(?:#([^)\s]*))?\)")


def prose(text: str) -> str:
    """A page without its code, in which brackets before parentheses are no links."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL))


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as file hosts and the site make them."""
    titles = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower().replace("`", "")).strip().replace(" ", "-") for title in titles}


def broken(page: Path, text: str) -> list[str]:
    """Links of a page that lead nowhere."""
    found = []
    for place, anchor in LINK.findall(prose(text)):
        if re.match(r"[a-z]+:", place):
            continue
        path = (page.parent / place).resolve() if place else page
        if not path.exists() or ROOT not in (path, *path.parents):
            found.append(place)
        elif anchor and path.suffix == ".md" and anchor not in anchors(path.read_text(encoding="utf-8")):
            found.append(f"{place}#{anchor}")
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert broken(page, page.read_text(encoding="utf-8")) == []


def test_dead_links_are_seen() -> None:
    page = ROOT / "docs" / "api.md"
    text = "[a](nowhere.md) [b](glossary.md#nothing-like-it) [c](targets.md) `[d](nowhere.md)` [e](https://example.org/x) [f](../../out.md)"
    assert broken(page, text) == ["nowhere.md", "glossary.md#nothing-like-it", "../../out.md"]


def test_tutorials_are_sources_with_assertions() -> None:
    sources = sorted((ROOT / "docs" / "tutorials").glob("*.py"))
    assert [source.stem for source in sources] == ["interpretability", "teacher", "theorist"]
    for source in sources:
        text = source.read_text(encoding="utf-8")
        assert text.count("\nassert ") >= 5 and "# %% [markdown]" in text, source.name
