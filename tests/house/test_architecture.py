"""The house: imports go one way, light commands stay light, the README stays short."""

import ast
import json
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from tests.house import rooms

ROOT = Path(__file__).parent.parent.parent
LAYERS = ("analyzer", "constructions", "verify", "lemmaformer", "cli")
MOST_MODULES = 14
MOST_LINES = 700
MOST_BODY = 60
MOST_PARAMETERS = 8


def _modules(path: Path) -> set[str]:
    """What a file imports, wherever it does so: modules by their whole names."""
    names = set()
    for node in ast.walk(rooms.tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def _imports(path: Path) -> set[str]:
    return {name.split(".")[0] for name in _modules(path)}


def forbidden(edges: Iterable[tuple[str, str]], arrows: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    """Imports that no path of arrows allows."""
    below = nx.DiGraph((room, other) for room, others in arrows.items() for other in others)
    pairs = [(a, b, rooms.room_of(a), rooms.room_of(b)) for a, b in edges]
    return [(a, b) for a, b, own, other in pairs if own != other and other not in nx.descendants(below, own)]


def test_imports_follow_the_arrows() -> None:
    graph = rooms.import_graph()
    assert graph.number_of_edges() > 500
    assert forbidden(graph.edges, rooms.ARROWS) == []
    assert all(module in rooms.ARROWS or not graph[module] for module in rooms.TOPS)


def test_an_import_against_the_arrows_is_seen() -> None:
    assert forbidden([("analyzer.lemmas.bump", "analyzer.theorems.thm_3_1")], rooms.ARROWS)
    assert forbidden([("verify.chain.certificate", "verify.report.bounds")], rooms.ARROWS)
    assert not forbidden([("analyzer.theorems.thm_3_1", "analyzer.lemmas.bump")], rooms.ARROWS)
    lazy = "def f():\n    from analyzer.theorems import thm_3_1\n"
    assert rooms.imports_of(ast.parse(lazy), rooms.modules()) == {"analyzer.theorems.thm_3_1"}


def test_no_module_imports_itself_through_others() -> None:
    """No cycles, those that are hidden in functions included."""
    assert [sorted(found) for found in nx.strongly_connected_components(rooms.import_graph()) if len(found) > 1] == []


def test_rooms_say_what_lives_there_and_what_they_import() -> None:
    for room, below in rooms.ARROWS.items():
        file = rooms.modules()[room]
        if file.name != "__init__.py":
            continue
        text = " ".join((ast.get_docstring(rooms.tree_of(file)) or "").split())
        named = re.findall(r"`([a-z_.]+)`", text.rpartition("May import ")[2])
        assert "May import " in text and tuple(named) == below, room


def test_the_picture_of_rooms_is_drawn_from_the_table() -> None:
    page = rooms.PAGE.read_text()
    assert rooms.drawn(page) == page, "run `make docs`"
    assert rooms.drawn(page.replace("subgraph", "subgroup")) == page
    assert len(page.splitlines()) <= 120


def test_folders_and_files_are_small() -> None:
    files = [ROOT / "cli.py", *(file for top in (*rooms.TOPS, "tests", "examples", "benchmarks") for file in (ROOT / top).rglob("*.py"))]
    folders = Counter(file.parent for file in files if file.name != "__init__.py")
    assert {str(folder): count for folder, count in folders.items() if count > MOST_MODULES} == {}
    lengths = {str(file): len(file.read_text().splitlines()) for file in files}
    assert {file: count for file, count in lengths.items() if count > MOST_LINES} == {}


def test_no_two_classes_share_a_name() -> None:
    found: dict[str, list[str]] = defaultdict(list)
    for module, file in rooms.modules().items():
        for node in ast.walk(rooms.tree_of(file)):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(module)
    assert {name: places for name, places in found.items() if len(places) > 1} == {}


def too_large(source: str) -> list[str]:
    """Functions that are long or take much, unless a comment above them says why."""
    lines, found = source.splitlines(), []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            parameters = sum(argument.arg not in ("self", "cls") for argument in given)
            large = node.end_lineno - node.lineno >= MOST_BODY or parameters > MOST_PARAMETERS  # type: ignore[operator]
            if large and not re.match(r" *# (Long|Many parameters): \w+", lines[first - 2] if first > 1 else ""):
                found.append(f"{node.name}: {node.end_lineno - node.lineno + 1} lines, {parameters} parameters")  # type: ignore[operator]
    return found


def test_functions_are_small() -> None:
    assert {module: found for module, file in rooms.modules().items() if (found := too_large(file.read_text()))} == {}


def test_a_large_function_is_seen() -> None:
    many = f"def f({', '.join('abcdefghi')}):\n    pass\n"
    long = "def g():\n" + "    pass\n" * MOST_BODY
    assert too_large(many) and too_large(long) and not too_large("# Long: one table.\n" + long)
    assert not too_large("def f(self, a, b, c, d, e, f, g, h):\n" + "    pass\n" * (MOST_BODY - 1))


def test_analyzer_never_imports_jax() -> None:
    for file in (ROOT / "analyzer").rglob("*.py"):
        assert "jax" not in _imports(file), file


REPORT = ROOT / "verify" / "report"


def test_nothing_but_the_report_formats() -> None:
    for layer in LAYERS[:-1]:
        for file in (ROOT / layer).rglob("*.py"):
            assert REPORT in file.parents or not _imports(file) & {"rich", "matplotlib"}, f"{file} formats"
    assert not _imports(ROOT / "cli.py") & {"rich", "matplotlib"}


def test_the_report_stands_on_certificates_and_under_the_front_door() -> None:
    for file in (file for layer in LAYERS[:3] for file in (ROOT / layer).rglob("*.py")):
        if REPORT not in file.parents:
            assert not any(name.startswith("verify.report") for name in _modules(file)), f"{file} imports the report"
            continue
        own = {name for name in _modules(file) if name.split(".")[0] in LAYERS}
        below = ("analyzer.", "constructions.files.places.", "verify.chain.certificate.", "verify.report.")
        assert all(name.startswith(below) for name in own), f"{file} imports {own}"


def _kinds(cls: type) -> set[Any]:
    """A class and all that come from it."""
    return {cls}.union(*(_kinds(below) for below in cls.__subclasses__()))


def test_every_pointer_to_the_report_resolves() -> None:
    from lemmaformer.pages import Written
    from lemmaformer.results.base import Result, reporter
    from lemmaformer.results.claims import JudgedClaim
    from lemmaformer.results.experiments import Experiment

    kinds = _kinds(Result) - {Result, Experiment, JudgedClaim}
    assert Written in kinds and len(kinds) > 15
    for kind in kinds:
        assert callable(reporter(kind.shown_by)), kind
        assert kind.drawn_by is None or callable(reporter(kind.drawn_by)), kind


OWN_MODULES = {"protocol.py", "files.py", "fixed.py", "kernel.py", "adaptive.py", "coupling.py", "sequence.py"}
KINDS = {"fixed", "adaptive", "kernel", "coupling", "sequence"}
CLASSES = {"FixedMemory", "AdaptiveMemory", "KernelMemory", "CouplingTarget", "SequenceTarget", "Target", "MemoryTarget", "LayerTarget"}


def _names(node: ast.AST) -> set[str]:
    """Names and attributes in an expression."""
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


def _texts(node: ast.AST) -> set[Any]:
    return {part.value for part in ast.walk(node) if isinstance(part, ast.Constant) and isinstance(part.value, str)}


def told_apart(tree: ast.AST) -> list[str]:
    """Where a file asks which kind a target is: isinstance, classes compared or matched, names of kinds compared or matched."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, classes]) if _names(classes) & CLASSES:
                found.append(f"{node.lineno}: isinstance")
            case ast.MatchClass(cls=cls) if _names(cls) & CLASSES:
                found.append(f"{node.lineno}: case of a class")
            case ast.MatchValue(value=value) if _texts(value) & KINDS:
                found.append(f"{node.lineno}: case of a kind")
            case ast.Compare(left=left, comparators=rest):
                sides = [left, *rest]
                plain = {side.value for side in sides if isinstance(side, ast.Constant) and isinstance(side.value, str)}
                listed = [side for side in sides if isinstance(side, ast.Tuple | ast.List | ast.Set)]
                texts = plain.union(*(_texts(side) for side in listed))
                classes_named = {side.id for side in sides if isinstance(side, ast.Name)}.union(*(_names(side) for side in listed))
                if texts & KINDS or classes_named & CLASSES:
                    found.append(f"{node.lineno}: comparison")
    return found


def test_only_targets_know_their_kinds() -> None:
    files = [ROOT / "cli.py", *(file for room in LAYERS[:-1] for file in sorted((ROOT / room).rglob("*.py")))]
    own = {ROOT / "analyzer" / "targets" / name for name in OWN_MODULES}
    assert own < set(files)
    assert {str(file): found for file in set(files) - own if (found := told_apart(rooms.tree_of(file)))} == {}


@pytest.mark.parametrize(
    "line",
    [
        "isinstance(target, FixedMemory | KernelMemory)",
        "isinstance(target, (targets.FixedMemory, int))",
        "type(target) is AdaptiveMemory",
        "target.describe()['kind'] == 'coupling'",
        "target.kind in ('fixed', 'kernel')",
        "match target:\n    case CouplingTarget():\n        pass",
        "match target.kind:\n    case 'fixed' | 'other':\n        pass",
    ],
)
def test_the_search_for_kinds_finds_them(line: str) -> None:
    assert told_apart(ast.parse(line))
    assert not told_apart(ast.parse("isinstance(a, Coupling)\nkind == 'lin'\ntarget.as_layer_target is None"))


HEAVY = {"dask", "flint", "jax", "matplotlib", "networkx", "numpy", "optax", "rich", "safetensors", "scipy", "sympy"}
"""Libraries whose loading a user would notice."""
BOUND = ["bound", "thm-3.1", "--lags", "4", "--heads", "256", "--json"]


@pytest.mark.deep(keep=("arguments0-loaded0", "arguments3-loaded3"))
@pytest.mark.parametrize(
    ("arguments", "loaded"),
    [
        (["--help"], set()),
        (["bound", "--help"], {"sympy", "flint", "numpy"}),
        (["check", "--help"], {"sympy", "flint", "numpy"}),
        (["doctor", "--help"], set()),
        (["plan", "--help"], {"sympy", "flint", "numpy"}),
        (["plan", "--lags", "4", "--no-build", "--json"], {"sympy", "flint", "numpy"}),
        (BOUND, {"sympy", "flint"}),
        (["theorems", "thm-3.1", "--graph"], {"sympy", "flint", "numpy", "rich", "networkx"}),
    ],
)
def test_light_commands_load_little(arguments: list[str], loaded: set[str]) -> None:
    """Start-up is loading: what it costs in seconds is in `benchmarks/start_up.py`."""
    code = (
        "import sys, cli\n"
        f"sys.argv = ['lemmaformer', *{arguments!r}]\n"
        "try:\n    cli.main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        f"more = {HEAVY!r} & set(sys.modules) - {loaded!r}\n"
        "assert not more, more\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_importing_us_loads_nothing_heavy() -> None:
    heavy = {"jax", "matplotlib", "rich", "scipy", "sympy", "numpy"}
    code = f"import sys, lemmaformer\nassert not {heavy!r} & set(sys.modules), {heavy!r} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize("layer", LAYERS[:-1])
def test_the_library_speaks_of_options_not_of_flags(layer: str) -> None:
    """Flags are how the command line spells options; a message that names one is wrong in Python, and the other way round."""
    for file in (file for file in sorted((ROOT / layer).rglob("*.py")) if file.parent.name != "commands"):
        for node in ast.walk(rooms.tree_of(file)):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                flag = re.search(r"(?<![-\w])--[a-zA-Z]", node.value)
                assert flag is None, f"{file}:{node.lineno} names a flag: {node.value[max(0, flag.start() - 40) : flag.end() + 20]!r}"


@pytest.mark.deep
def test_importing_us_does_not_switch_float64_on() -> None:
    code = (
        "import numpy as np, jax, jax.numpy as jnp\n"
        "from analyzer.targets.fixed import FixedMemory\nfrom constructions.theorems.thm_3_1 import build\n"
        "from constructions.run.execute import run\n"
        "run(build(FixedMemory((1,)), dtype='float64').network, np.ones((4, 1)))\n"
        "assert jnp.ones(2).dtype == 'float32' and not jax.config.jax_enable_x64\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 120


@pytest.mark.deep
def test_the_tour_shows_what_the_demo_prints(tmp_path: Path) -> None:
    page, readme = (ROOT / "docs" / "tour.md").read_text(), (ROOT / "README.md").read_text()
    words = ["demo", "--out", str(tmp_path / "demo"), "--json"]  # a process of its own, as a reader's: solvers start from nothing
    call = [sys.executable, "-c", "import sys, cli; sys.argv[0] = 'lemmaformer'; cli.main()", *words]
    demo = json.loads(subprocess.run(call, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
    for row in demo["adaptive"]["slots"][:2]:
        cells = [
            f"{row['token']:+d}",
            f"{row['lag_m1']:g}",
            f"{row['m1']:+.4f}",
            f"{row['lag_m2']:g}",
            f"{row['output']:+.4f}",
            f"{row['wanted']:+g}",
        ]
        assert f"| {row['t']} | {' | '.join(cells)} |" in page
    assert f"certified to {demo['adaptive']['chain']['certified']:.6g}" in page
    for row in (row for row in demo["heads"] if (row["rpe"], row["lag"]) in (("lin", 4), ("lin", 64), ("log", 64))):
        line = f"| {row['rpe']} | {row['lag']} | {row['paper']} | {row['tuned']} | {row['minimal']} | {row['law']} |"
        assert line in page and line in readme
    for row in (row for row in demo["depth"]["horizons"] if row["arithmetic"] != "bfloat16"):
        cells = [row["rpe"], row["arithmetic"], row["horizon"], f"{row['upper']:.3g}", f"{row['next_lower']:.3g}"]
        assert f"| {' | '.join(map(str, cells))} |" in page
    chain = demo["depth"]["chain"]
    sizes = f"{chain['sizes']['layers']} layers of at most {chain['sizes']['heads']} heads"
    assert sizes in page and f"certified to {chain['certified']:.3g}" in page
    for row in demo["coupling"]["ranks"]:
        assert f"| {row['rank']} | {row['limit']:.6g} | {row['pod']:.6g} | {row['centred']:.6g} |" in page
    assert f"mean square error below {demo['coupling']['rnn']['floor']['mean_square']:.3g} " in page


@pytest.mark.deep
def test_demo_writes_its_files(tmp_path: Path) -> None:
    code = f"import sys, cli; sys.argv = ['lemmaformer', 'demo', '--out', {str(tmp_path / 'demo')!r}]; cli.main()"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert "holds" in done.stdout
    for name in ("figure.png", "kernel.csv", "error_against_heads.csv", "heads_against_lag.csv", "network/card.json"):
        assert (tmp_path / "demo" / name).stat().st_size > 0
