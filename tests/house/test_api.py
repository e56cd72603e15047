"""The front door: every public name has an example that runs, options cannot lie, nothing in a signature is vague."""

import ast
import doctest
import inspect
import subprocess
import sys
import typing
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lemmaformer as lf
from analyzer.families import Adaptive, AdaptiveBound, Coupling, CouplingBound, Fixed, FixedBound, Kernel, KernelBound
from analyzer.options import Options, choices_of, typed_fields
from lemmaformer import options as commands
from tests.depth import examples

ROOT = Path(__file__).parent.parent.parent
CLASSES = [Fixed, Adaptive, Kernel, Coupling, FixedBound, AdaptiveBound, KernelBound, CouplingBound] + [
    value for value in vars(commands).values() if inspect.isclass(value) and issubclass(value, Options) and value is not Options
]
CHOICES = [(cls, entry.name) for cls in CLASSES for entry, _ in typed_fields(cls) if choices_of(cls, entry.name)]
LEAST = {FixedBound: {"heads": 8}, AdaptiveBound: {"heads": 8}, KernelBound: {"heads": 8}, CouplingBound: {"rank": 1}}
"""What a class needs before anything else can be wrong with it."""


@pytest.mark.deep(only=("Diagnosis", "doctor", "Plan", "spectrum", "Comparison", "Network", "limits", "train"))
@pytest.mark.parametrize("name", lf.__all__)
def test_every_public_name_has_a_sentence_and_an_example_that_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = getattr(lf, name)
    holders = [found]
    if inspect.ismodule(found):
        holders = [getattr(found, part) for part in found.__all__]
    elif inspect.isclass(found):
        holders += [part for part in vars(found).values() if inspect.isfunction(part) or isinstance(part, property)]
    elif not inspect.isfunction(found):
        holders = [type(found)]
    assert (holders[0].__doc__ or "").strip(), name
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for holder in holders:
        for test in finder.find(holder, name, globs={}):
            runner.run(test)
    assert runner.failures == 0


@pytest.mark.parametrize(("cls", "name"), CHOICES, ids=lambda value: getattr(value, "__name__", value))
@settings(max_examples=examples(20), deadline=None)
@given(text=st.text(max_size=12))
def test_unknown_strings_are_errors_that_name_the_option(cls: type[Options], name: str, text: str) -> None:
    allowed = choices_of(cls, name)
    for wrong in (text, allowed[0].upper(), allowed[0] + "x", f" {allowed[0]}"):
        if wrong in allowed:
            continue
        with pytest.raises(lf.InputError) as caught:
            cls.read({**LEAST.get(cls, {}), name: wrong})
        assert name in str(caught.value) and all(choice in str(caught.value) for choice in allowed)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_misspelt_options_are_errors_that_name_the_known_ones(cls: type[Options]) -> None:
    first = fields(cls)[0].name
    with pytest.raises(lf.InputError, match=f"unknown option '{first}z'; did you mean '{first}'"):
        cls.read({f"{first}z": 1})


TARGET = lf.fixed(lags=(3,))
SENT_AWAY: dict[str, tuple[Callable[[], object], str]] = {
    "another case": (lambda: lf.build(TARGET, rpe="LIN"), "rpe is 'LIN'; choose from lin, log, mixed"),
    "no bank": (lambda: lf.build(TARGET, bank="nonsense"), "bank is 'nonsense'; choose from paper, tuned, minimal, balanced"),
    "no read-out": (lambda: lf.build(TARGET, ffn="xx"), "ffn is 'xx'; choose from spline, barron"),
    "no decomposition": (lambda: lf.build(lf.coupling("u*v"), pod="nonsense"), "pod is 'nonsense'; choose from pod, centred"),
    "no arithmetic": (lambda: lf.build(TARGET, dtype="float16"), "dtype is 'float16'; choose from exact, float64, float32"),
    "misspelt": (lambda: lf.build(TARGET, banc="minimal"), "unknown option 'banc'; did you mean 'bank'"),
    "theorem": (lambda: lf.build(TARGET, theorem="thm-9"), "unknown theorem 'thm-9'"),
    "another kind": (lambda: lf.build(TARGET, theorem="jl-4.2"), "is about coupling targets, this one is fixed"),
    "bound": (lambda: lf.bound("thm-3.1", TARGET, heads=8, tuning="tuned"), "unknown option 'tuning' of thm-3.1"),
    "no bound": (lambda: lf.bound("prop-4.2"), "has no bound to evaluate"),
    "training": (lambda: lf.train(TARGET, attention="softmax"), "attention is 'softmax'; choose from dp-free, dp, nf, tmx"),
    "comparison": (lambda: lf.compare("a", "b", tokens="gauss"), "tokens is 'gauss'; choose from uniform, signs"),
    "limit": (lambda: lf.limits.lag(4, dtype="float8"), "dtype is 'float8'; choose from bfloat16, float32, float64"),
    "scheme": (lambda: lf.limits.positions("rotary"), "scheme is 'rotary'; choose from all, alibi, t5, kerple, table"),
    "no scheme": (lambda: lf.limits.positions([]), "scheme is ''; choose from all"),
    "buckets": (lambda: lf.limits.positions("t5", buckets=32, distance=16), "distance is 16; it must be above 16"),
    "sizes": (lambda: lf.limits.architectures("exp(-s)", sizes=(0,)), "sizes is '0'; give 1 to 16 whole numbers"),
    "horizon": (lambda: lf.limits.horizon("sin"), "rpe is 'sin'; choose from lin, log, mixed"),
    "experiment": (lambda: lf.experiments.we("we-9"), "experiment is 'we-9'; choose from we-1b"),
    "plan": (lambda: lf.plan(TARGET, dtype="float16"), "dtype is 'float16'; choose from exact, float64, float32"),
    "planned theorem": (lambda: lf.plan(TARGET, theorem="jl-4.2"), "jl-4.2 has no networks for fixed targets"),
    "no design": (lambda: lf.plan(TARGET, theorem="least-squares"), "no theorem called least-squares has a worst-case design"),
    "choices": (lambda: lf.bounds("thm-3.1", TARGET, rpe="xyz", heads=9), "rpe is 'xyz'; choose from lin, log"),
}


@pytest.mark.parametrize("case", SENT_AWAY)
def test_public_functions_refuse_what_nobody_knows(case: str) -> None:
    call, text = SENT_AWAY[case]
    with pytest.raises(lf.InputError) as caught:
        call()
    assert text in str(caught.value)


def test_signatures_are_not_vague() -> None:
    """No public function or method takes or returns Any."""
    vague = []
    for name in lf.__all__:
        found = getattr(lf, name)
        parts = [getattr(found, part) for part in found.__all__] if inspect.ismodule(found) else [found]
        for part in parts:
            methods = (
                [m for n, m in vars(part).items() if inspect.isfunction(m) and not n.startswith("_")] if inspect.isclass(part) else [part]
            )
            for method in methods:
                for key, hint in getattr(method, "__annotations__", {}).items():
                    if hint is Any or hint == "Any":
                        vague.append(f"{name}.{getattr(method, '__name__', '')}: {key}")
    allowed = {"option", "Theorem"}  # a dataclass field of whatever type stands beside it; lags of any theorem
    assert [entry for entry in vague if entry.split(".")[0] not in allowed] == []


def test_importing_us_is_light() -> None:
    code = "import sys, lemmaformer; assert not {'jax', 'sympy', 'numpy', 'flint'} & set(sys.modules), 'heavy'"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
    assert (set(dir(lf)) == set(lf.__all__) and sorted(lf.__all__) == lf.__all__) or set(lf.__all__) == set(dir(lf))
    with pytest.raises(AttributeError):
        lf.nothing  # noqa: B018


def test_the_command_line_is_thin() -> None:
    assert len((ROOT / "cli.py").read_text().splitlines()) <= 200
    files = [ROOT / "cli.py", *(ROOT / "lemmaformer" / "commands").glob("*.py")]
    mentions = [file.name for file in files if "if as_json" in file.read_text()]
    assert mentions == ["flags.py"]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.FunctionDef) and any("answers" in ast.dump(d) for d in node.decorator_list):
                start = node.body[1].lineno if ast.get_docstring(node) and len(node.body) > 1 else node.body[0].lineno
                assert (node.end_lineno or 0) - start < 25, f"{file.name}: {node.name}"


def test_options_come_from_files_too(run: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "options.toml"
    file.write_text('bank = "minimal"\nerror = 0.05\nheads = 3\n')
    assert Fixed.read_file(file) == Fixed(bank="minimal", error=0.05, heads=3)
    made = run("build", "fixed", "--lags", 2, "--options", file, "--heads", 4, "--out", tmp_path / "net", "--json").json
    assert made["sizes"]["heads"] == 4 and made["certified"] <= 0.05
    for text in ('bank = "nonsense"', "banc = 1", "heads = 0.5", "heads ="):
        file.write_text(text)
        with pytest.raises(lf.InputError):
            Fixed.read_file(file)
    assert run("build", "fixed", "--lags", 2, "--options", file, "--out", tmp_path / "more").code == 2 and not (tmp_path / "more").exists()


def test_flags_are_the_options(run: Callable[..., Any]) -> None:
    """Every option of a class is a flag with the same name, and its help is the option's."""
    for line, cls in ((["build", "fixed"], Fixed), (["build", "adaptive"], Adaptive), (["build", "kernel"], Kernel), (["train"], lf.Train)):
        shown = " ".join(run(*line, "--help").out.split())
        for entry, _ in typed_fields(cls):
            assert f"--{entry.name.replace('_', '-')}" in shown
            assert " ".join(entry.metadata["help"].split())[1:20] in shown.replace("- ", "-")


@pytest.mark.parametrize(
    "line",
    [[], ["build"], ["limits"], ["experiment"], ["demo"], ["theorems"], ["bound"], ["verify"], ["run"], ["break"], ["train"], ["import"],
     ["build", "fixed"], ["build", "adaptive"], ["build", "kernel"], ["build", "coupling"], ["limits", "lag"], ["compare"], ["spectrum"],
     ["check"], ["export"], ["plan"], ["doctor"]],
    ids=" ".join,
)  # fmt: skip
def test_help_fits_and_ends_with_an_example(line: list[str], run: Callable[..., Any]) -> None:
    shown = run(*line, "--help")
    assert shown.code == 0 and max(map(len, shown.out.splitlines())) <= 80 and "..." not in shown.out.replace("[ARGS]...", "")
    if line and line not in (["build"], ["limits"], ["experiment"]):
        last = " ".join(" ".join(shown.out.splitlines()[-4:]).split())
        assert "Example: lemmaformer" in last and ("second" in last or "minute" in last)


def test_reports_have_html_and_latex() -> None:
    net = lf.build(TARGET, error=0.1)
    for result in (net.verify(), lf.limits.lag(4), lf.bound("thm-3.1", TARGET, heads=64), lf.bounds("thm-3.1", TARGET, heads=64)):
        page = typing.cast(Any, result)._repr_html_()
        assert page.startswith("<") and "</" in page and len(page) > 60
    text = lf.bound("thm-3.1", TARGET, heads=64, bank="paper")._repr_latex_()
    assert "e \\le" in text and "\\frac{1}{100}" in text and "the lag" in text and "\\alpha" in text.split("paper")[1]
    assert "e \\le" in lf.theorems["thm-3.1"]._repr_latex_()
    assert len(repr(net)) < 100 and "\n" not in repr(net) and len(repr(net.verify())) < 120


def test_tokens_come_in_many_shapes() -> None:
    net = lf.build(lf.fixed(lags=(2,)))
    flat = [0.5, -0.25, 1.0, 0.0]
    column = np.array(flat)[:, None]
    for tokens in (flat, np.array(flat), column, column.tolist()):
        np.testing.assert_array_equal(net(tokens), net(column))
    assert net(np.stack([column, column])).shape == (2, 4)
    for wrong in ([], [[1.0, 2.0]], [2.0], ["a"], [[1.0], [1.0, 0.0]], np.zeros((1, 1, 1, 1))):
        with pytest.raises(lf.InputError):
            net(wrong)
    with pytest.raises(lf.InputError, match="alphabet"):
        net([0, 1], letters=True)
    adaptive = lf.build(lf.adaptive([-1, 1], {"m1": [1, 2]}, readout="x0*m1"), error=0.1)
    letters = [0, 1, 1, 0, 1, 0, 0, 1]
    np.testing.assert_array_equal(adaptive(letters, letters=True), adaptive([2.0 * v - 1 for v in letters]))
    with pytest.raises(lf.InputError):
        adaptive([0, 2], letters=True)


def test_saving_asks_before_it_overwrites(tmp_path: Path) -> None:
    one, two = lf.build(lf.fixed(lags=(1,))), lf.build(lf.fixed(lags=(2,)))
    (tmp_path / "empty").mkdir()
    one.save(tmp_path / "empty")
    with pytest.raises(lf.InputError, match="exists"):
        two.save(tmp_path / "empty")
    assert lf.load(tmp_path / "empty").sizes == one.sizes
    two.save(tmp_path / "empty", overwrite=True)
    assert lf.load(tmp_path / "empty").sizes == two.sizes
    assert lf.load(tmp_path / "empty").slots == {"x0": [0], "m1": [1]}
    card = lf.load(tmp_path / "empty").card
    assert card["slots"] == {"x0": [0], "m1": [1]}
