"""The manual: its targets are read, its examples run, its words are those of the program."""

import doctest
import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import lemmaformer as lf
from analyzer.errors import InputError
from analyzer.options import choices_of
from analyzer.targets.coupling import SineCoupling
from analyzer.targets.files import READERS, target_from_dict

DOCS = Path(__file__).parent.parent.parent / "docs"
KEYS = {
    "fixed": {"kind", "dim", "readout", "lags", "alphabet"},
    "adaptive": {"kind", "alphabet", "readout", "memory"},
    "kernel": {"kind", "dim", "readout", "kernels", "envelopes"},
    "coupling": {"kind", "length", "dim", "rho", "sigma", "rank", "f", "F"},
    "sequence": {"kind", "formula", "alphabet", "length"},
    "points": {"kind", "length", "space", "rho", "f", "F", "points"},
}
"""What the reader of each kind takes."""
INNER = {"adaptive": {"name", "lag", "parent"}, "kernel": {"shape", "rate", "constant"}}
"""Keys of memories and of envelopes."""


def page(name: str) -> str:
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def fences(name: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", page(name), re.MULTILINE | re.DOTALL)


def sections(name: str) -> dict[str, str]:
    """The text under every heading of the second level."""
    parts = re.split(r"^## (.*)\n", page(name), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def parsed(text: str) -> dict[str, Any]:
    return tomllib.loads(text, parse_float=Decimal)


EXAMPLES = [parsed(text) for text in fences("targets", "toml")]


@pytest.mark.parametrize("data", EXAMPLES, ids=lambda data: data["kind"])
def test_every_target_of_the_manual_is_read(data: dict[str, Any]) -> None:
    target = target_from_dict(data, "docs/targets.md")
    assert target.kind == data["kind"]
    assert target_from_dict(target.describe(), "description").describe() == target.describe()


def test_every_kind_has_a_section_and_examples_that_show_its_keys() -> None:
    assert set(KEYS) == set(READERS)
    for kind, keys in KEYS.items():
        shown = [data for data in EXAMPLES if data["kind"] == kind]
        assert len(shown) >= 2, kind
        assert set().union(*shown) >= keys - {"dim"}, kind
        tabled = set(re.findall(r"^\| `\[*([A-Za-z]+)\]*` \|", sections("targets")[f'kind = "{kind}"'], re.MULTILINE))
        assert tabled == keys - {"kind"} | INNER.get(kind, set()), kind


@pytest.mark.parametrize("kind", KEYS)
def test_the_keys_of_the_manual_are_those_of_the_reader(kind: str) -> None:
    """Another key is refused by name; a known one is not, whatever else is wrong with it."""
    example = next(data for data in EXAMPLES if data["kind"] == kind)
    for key in set().union(*KEYS.values()):
        try:
            target_from_dict({**example, key: example.get(key)}, "here")
            known = True
        except InputError as error:
            known = str(error) != f"here: unknown key {key!r}"
        assert known == (key in KEYS[kind]), key


def test_the_defaults_of_the_manual() -> None:
    assert target_from_dict({"kind": "fixed", "lags": [2]}, "here") == lf.fixed(lags=(2,), readout=None, dim=1)
    assert target_from_dict({"kind": "kernel", "kernels": ["exp(-s)"]}, "here") == lf.kernel("exp(-s)", dim=1)
    assert lf.coupling("u*v").describe() == {"kind": "coupling", "length": 16, "rho": "u*v", "f": "x", "F": "y"}
    with pytest.raises(InputError, match="length"):
        target_from_dict({"kind": "coupling", "rho": "u*v"}, "here")
    table = {"name": "m1", "lag": [1, 2]}
    data = {"kind": "adaptive", "alphabet": [[-1], [1]], "memory": [table]}
    assert target_from_dict(data, "here").describe()["memory"][0]["parent"] == "x0"
    sines = next(target_from_dict(data, "here") for data in EXAMPLES if "sigma" in data)
    assert isinstance(sines.coupling, SineCoupling)


def test_the_functions_of_the_manual_are_those_of_the_languages() -> None:
    rows = {
        row[0].strip(" `"): row[2]
        for row in (line.strip("|").split("|") for line in sections("targets")["Expressions"].splitlines() if "|" in line)
    }
    everything = {"exp", "log", "sqrt", "sin", "cos", "tanh", "abs", "relu"}

    def allowed(row: str) -> set[str]:
        named = rows["rho"] if "as `rho`" in rows[row] else rows[row]
        return everything & set(re.findall("[a-z]+", " ".join(re.findall("`([^`]*)`", named))))

    bases: dict[str, tuple[dict[str, Any], str]] = {
        "readout": ({"kind": "fixed", "lags": [1]}, "{}(m1)"),
        "lag": ({"kind": "adaptive", "alphabet": [[1]]}, "{}(x0)"),
        "kernels": ({"kind": "kernel"}, "exp(-s)*{}(s+1)*exp(-2*s)"),
        "rho": ({"kind": "coupling", "length": 4}, "{}(u+v+1)"),
        "sigma": ({"kind": "coupling", "length": 4, "rank": 1}, "{}(k+1)"),
        "f": ({"kind": "coupling", "length": 4, "rho": "u*v"}, "{}(x+1)"),
        "F": ({"kind": "coupling", "length": 4, "rho": "u*v"}, "{}(y+1)"),
        "formula": ({"kind": "sequence", "alphabet": [0, 1], "length": 1}, "{}(x1+1)"),
    }
    assert set(bases) <= set(rows)
    for row, (base, pattern) in bases.items():
        for function in everything:
            text = pattern.format(function)
            value: Any = {"lag": [{"name": "m1", "lag": text}], "kernels": [text]}.get(row, text)
            try:
                target_from_dict({**base, {"lag": "memory"}.get(row, row): value}, "here")
                known = True
            except InputError as error:
                known = "not allowed" not in str(error)
            assert known == (function in allowed(row)), (row, function)


@pytest.mark.deep
def test_every_example_of_the_manual_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(fences("api", "python"))
    test = doctest.DocTestParser().get_doctest(text, {}, "docs/api.md", str(DOCS / "api.md"), 0)
    assert len(test.examples) > 40
    found: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=found.append)
    assert runner.failures == 0, "".join(found)


def test_every_public_name_is_listed() -> None:
    listed = set(re.findall(r"`([A-Za-z_.0-9]+)`", " ".join(re.findall(r"^\|([^|]*)\|", sections("api")["All names"], re.MULTILINE))))
    functions = {f"{module}.{name}" for module in ("limits", "experiments") for name in getattr(lf, module).__all__}
    assert listed == set(lf.__all__) | functions


def test_words_of_the_program_are_explained() -> None:
    explained = re.findall(r"^### (.*)$", page("glossary"), re.MULTILINE)
    assert len(set(explained)) == len(explained)
    banks = {bank for options in (lf.Fixed, lf.Adaptive, lf.Kernel) for bank in choices_of(options, "bank")}
    words = {verdict.value for verdict in lf.Verdict} | banks
    words |= {*choices_of(lf.Coupling, "pod"), *choices_of(lf.Fixed, "ffn"), *choices_of(lf.Fixed, "rpe")}
    words |= {*choices_of(lf.Train, "attention"), *choices_of(lf.Train, "rpe"), *choices_of(lf.Adaptive, "attention")}
    assert words <= set(explained), words - set(explained)
    for window in choices_of(lf.Train, "window"):
        assert f"`{window}`" in page("glossary")
    for kind in READERS:
        assert f"`{kind}`:" in page("glossary")
    for word, text in re.findall(r"^### (.*)\n([^#]*)", page("glossary"), re.MULTILINE):
        assert text.strip(), word


@pytest.mark.parametrize("name", ["targets", "api", "glossary"])
def test_links_lead_somewhere(name: str) -> None:
    for place, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page(name)):
        assert not place or (DOCS / place).is_file()
        assert not anchor or anchor in {title.lower() for title in sections(name)}


ROOT = DOCS.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
TOPS = ("analyzer", "constructions", "verify", "lemmaformer", "tests", "examples", "benchmarks", "docs")
PLACE = re.compile(rf"(?:{'|'.join(TOPS)})(?:[./][\w/.-]*\w)?")


def named_places(text: str) -> list[str]:
    """Files, folders and modules of the project that a text names between backquotes."""
    quoted = re.findall(r"`([^`\n]+)`", text)
    return [name.rstrip("/") for name in quoted if PLACE.fullmatch(name.rstrip("/"))]


def exists(name: str) -> bool:
    """Whether there is such a file or folder, or such a module, perhaps with a name in it."""
    path = ROOT / name
    if "/" in name or path.is_dir():
        return path.exists()
    parts = name.split(".")
    places = [ROOT.joinpath(*parts[:k]) for k in range(len(parts), 0, -1)]
    found = next((place for place in places if place.is_dir() or place.with_suffix(".py").exists()), None)
    if found is None or len(parts) - len(found.relative_to(ROOT).parts) > 2:
        return False
    inside = parts[len(found.relative_to(ROOT).parts) :]
    return not inside or inside[0] in (found / "__init__.py" if found.is_dir() else found.with_suffix(".py")).read_text()


def test_pages_and_docstrings_name_places_that_exist() -> None:
    modules = [file for top in TOPS[:4] for file in (ROOT / top).rglob("*.py")]
    missing = {(file.name, name) for file in [*PAGES, *modules] for name in named_places(file.read_text()) if not exists(name)}
    assert missing == set()


def test_missing_places_are_seen() -> None:
    text = (
        "`verify/nowhere.py`, `analyzer.lemmas.bump`, `analyzer.theory`, `verify.chain.layer.storage`, `verify.chain.layer.nothing_like_it`"
    )
    assert [name for name in named_places(text) if not exists(name)] == [
        "verify/nowhere.py",
        "analyzer.theory",
        "verify.chain.layer.nothing_like_it",
    ]
