"""Bounded work: expressions that would take for ever, or all memory, are refused by name before anything is computed.

Set LEMMAFORMER_FULL=1 for 2500 random expressions of each language, 10,000 in all.
"""

import contextlib
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flint import arb
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from analyzer.errors import InputError, LemmaformerError
from analyzer.kernels.memory_kernels import parse_kernel
from analyzer.language.formulas import parse_formula
from analyzer.language.reader import MAX_CHARACTERS, syntax_tree
from analyzer.language.sizes import MAX_DEPTH
from analyzer.numbers.exact import working_precision
from analyzer.targets.adaptive import AdaptiveMemory
from analyzer.targets.coupling import coupling_from_dict
from analyzer.targets.files import target_from_dict
from analyzer.targets.readout import read_out

SECONDS = 20
BYTES = 2 << 30
EXAMPLES = 2500 if os.environ.get("LEMMAFORMER_FULL") == "1" else 60

TOWER = "((9**64)**64)**64"
"""1.3 million bits; every further power would have 64 times as many."""
READERS = {
    "read-out": lambda text: ["bound", "thm-3.1", "--lags", "4", "--heads", "10", f"--readout={text}"],
    "kernel": lambda text: ["limits", "kernel", "--heads", "2", f"--kernel={text}"],
    "rho": lambda text: ["limits", "coupling", f"--rho={text}"],
    "lag of m": lambda text: ["theorems", "--target", f"LAG:{text}"],
}
"""One command for every language, without JAX; LAG: stands for the file of an adaptive target."""
VARIABLE = {"read-out": "m1", "kernel": "exp(-s)", "rho": "u", "lag of m": "x0"}
TOWERS = [TOWER + "*V", "0*" + TOWER + "+V", "-" + TOWER + "*V", "V+" + TOWER, "V/" + TOWER, "((-9)**64)**64**1*V*((9**64)**64)**64"]
EXPONENTIAL = {"read-out": "exp(exp(exp(9)))*m1", "kernel": "exp(exp(exp(9)))*exp(-s)", "rho": "exp(exp(exp(9)))*u", "lag of m": "exp(9)"}
FAULTS = {
    "1e999999*V": "not a decimal number of reasonable size",
    "9" * 300 + "*V": "not a decimal number of reasonable size",
    "9" * 3000 + "*V": "characters, the limit is 2000",
    "(" * 900 + "V" + ")" * 900: "not an expression",
    "-" * 900 + "V": f"nested more than {MAX_DEPTH} deep",
    "+".join(["V"] * 450): "",
    "*".join(["(V+1)"] * 190): "",
    "(V+1)**-1000000": "",
    "V**V**V**9": "",
    "2**2**2**2**2**9*V": "",
}
"""Text → what the message says, in all languages; V is the language's variable."""
KERNELS = {
    "(s+1)**-1000000": "kernel power '(s+1)**-1000000'",
    "*".join(["s"] * 300) + "*exp(-s)": "has a power beyond 64",
    "*".join(["(s+1)"] * 300) + "*exp(-s)": "more than 64 terms",
    "+".join(f"exp(-{k}*s)" for k in range(1, 100)): "more than 64 terms",
}
"""The same for kernels, whose variable above is an exponential."""
LARGE = [
    *(["limits", "lag", "--lag", "3", "--bits", "2", "--rpe", rpe, "--json"] for rpe in ("lin", "log", "mixed")),
    ["bound", "thm-3.1", "--lags", "4", "--heads", "10", "--readout=" + "+".join(["m1"] * 390)],
    ["limits", "kernel", "--heads", "2", "--kernel=" + "+".join(["exp(-s)"] * 200), "--json"],
    ["limits", "coupling", "--rho=" + "+".join(["u*v"] * 90), "--json"],
]
"""Large, and well formed: these end with an answer."""

HOST = """
import json, os, resource, sys, time
from pathlib import Path
import cli
results, folder, seconds = [], Path(sys.argv[1]), int(sys.argv[2])
rows = json.loads((folder / "rows.json").read_text())
for arguments in {row[0] + row[1]: row for row in rows[: -int(sys.argv[3])]}.values():
    sys.argv = ["lemmaformer", *arguments[:-1], arguments[-1].split("=")[0] + "=+"]
    try:
        cli.main()
    except SystemExit:
        pass
for number, arguments in enumerate(rows):
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds + 1,) * 2)
        resource.setrlimit(resource.RLIMIT_AS, (8 << 30,) * 2)
        for stream, name in ((1, "out"), (2, "err")):
            os.dup2(os.open(folder / f"{number}.{name}", os.O_WRONLY | os.O_CREAT), stream)
        sys.argv = ["lemmaformer", *arguments]
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException as error:
            print("Traceback", repr(error)[:200], file=sys.stderr)
            code = 70
        sys.stdout.flush(); sys.stderr.flush()
        os._exit(code)
    _, status, usage = os.wait4(child, 0)
    results.append({
        "code": os.waitstatus_to_exitcode(status), "seconds": usage.ru_utime + usage.ru_stime, "bytes": 1024 * usage.ru_maxrss,
        "out": (folder / f"{number}.out").read_text(), "err": (folder / f"{number}.err").read_text(),
    })
(folder / "results.json").write_text(json.dumps(results))
"""
"""Every row is a process of its own, with its processor time and its memory; malformed text has loaded each command's modules before."""


def bad_rows() -> list[tuple[str, list[str], str]]:
    """(language, arguments, what the message says)."""
    rows = []
    for language, command in READERS.items():
        variable = VARIABLE[language]
        rows += [(language, command(text.replace("V", variable)), f"{language} power '((9**64)**64)**64'") for text in TOWERS]
        rows += [(language, command(text.replace("V", variable)), says) for text, says in FAULTS.items()]
        rows.append((language, command(EXPONENTIAL[language]), ""))
    for text, says in KERNELS.items():
        rows.append(("kernel", READERS["kernel"](text), says))
    return rows


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What became of `bad_rows` and `LARGE`, in this order."""
    folder = tmp_path_factory.mktemp("rows")
    rows = []
    for number, arguments in enumerate([arguments for _, arguments, _ in bad_rows()] + LARGE):
        if arguments[-1].startswith("LAG:"):
            target = folder / f"{number}.toml"
            lag = json.dumps(arguments[-1].removeprefix("LAG:"))
            target.write_text(f'kind = "adaptive"\nalphabet = [[-1], [1]]\n[[memory]]\nname = "m"\nlag = {lag}\n')
            arguments = [*arguments[:-1], str(target)]
        rows.append(arguments)
    (folder / "rows.json").write_text(json.dumps(rows))
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    root = Path(__file__).parent.parent.parent
    subprocess.run(
        [sys.executable, "-c", HOST, str(folder), str(SECONDS), str(len(LARGE))], check=True, capture_output=True, cwd=root, env=environment
    )
    return json.loads((folder / "results.json").read_text())


@pytest.mark.deep
@pytest.mark.parametrize("number", range(len(bad_rows())), ids=[f"{language} {a[-1][-40:]}" for language, a, _ in bad_rows()])
def test_enormous_expressions_are_refused_in_one_line(number: int, results: list[dict[str, Any]]) -> None:
    _, _, says = bad_rows()[number]
    result = results[number]
    assert result["code"] == 2, result
    assert result["out"] == ""
    assert result["err"].startswith("lemmaformer: ") and result["err"].count("\n") == 1
    assert says in result["err"]
    assert result["seconds"] < SECONDS
    assert result["bytes"] < BYTES


@pytest.mark.deep
@pytest.mark.parametrize("number", range(len(LARGE)), ids=[" ".join(a)[:60] for a in LARGE])
def test_large_inputs_end_with_an_answer(number: int, results: list[dict[str, Any]]) -> None:
    result = results[len(bad_rows()) + number]
    assert result["code"] == 0, result
    assert result["out"] and "Traceback" not in result["err"]
    assert result["seconds"] < SECONDS
    assert result["bytes"] < BYTES


BUILDS = [
    ["build", "coupling", "--rho", "u*v", "--length", "4096"],
    *(["build", "fixed", "--lags", "3", "--bank", "balanced", "--rpe", "log", "--dtype", dtype] for dtype in ("float32", "float64")),
]

ALONE = """
import json, os, resource, sys
child = os.fork()
if child == 0:
    resource.setrlimit(resource.RLIMIT_CPU, (200, 200))
    os.execv(sys.executable, [sys.executable, "-m", "cli", *sys.argv[2:]])
_, status, usage = os.wait4(child, 0)
used = {"code": os.waitstatus_to_exitcode(status), "seconds": usage.ru_utime + usage.ru_stime, "bytes": 1024 * usage.ru_maxrss}
open(sys.argv[1], "w").write(json.dumps(used))
"""
"""A command, started by a small process: the most that a process has held counts for those it starts, and test workers hold gigabytes."""


@pytest.mark.deep
@pytest.mark.parametrize("arguments", BUILDS, ids=[" ".join(a[1:]) for a in BUILDS])
def test_the_largest_builds_end_within_their_memory(arguments: list[str], tmp_path: Path) -> None:
    """Couplings of the greatest length, and balanced banks of log heads in floats: an answer, or a refusal with a way out."""
    command = [sys.executable, "-c", ALONE, str(tmp_path / "usage.json"), *arguments, "--out", str(tmp_path / "net")]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parent.parent.parent)
    used = json.loads((tmp_path / "usage.json").read_text())
    assert used["code"] == 0 or (used["code"] == 2 and "certified to" in done.stderr and "; try --" in done.stderr), done.stderr
    assert used["seconds"] < 200
    assert used["bytes"] < BYTES


def test_nesting_up_to_the_limit_is_read_and_beyond_it_refused() -> None:
    """The deepest expressions that are allowed do not exhaust Python's stack, in any language."""
    deep = "-" * (MAX_DEPTH - 2)
    for text in (deep + "m1", "+".join(["m1"] * (MAX_DEPTH - 1))):
        assert read_out(text, ["m1"], 1)
    assert parse_formula(deep + "u", ("u",), "rho").at(1) == 1
    assert parse_kernel(deep[2:] + "exp(-s)").terms
    with pytest.raises(InputError, match="nested more than"):
        syntax_tree("-" * MAX_DEPTH + "x", "formula")


def test_a_caller_deep_in_the_stack_gets_a_refusal() -> None:
    """Who calls from within 700 calls of his own has less stack to offer: still one of our errors."""

    def within(calls: int, action: Callable[[], Any]) -> Any:
        return within(calls - 1, action) if calls else action()

    text = "-" * (MAX_DEPTH - 2)
    for action in (
        lambda: read_out(text + "m1", ["m1"], 1),
        lambda: parse_formula(text + "u", ("u",), "rho"),
        lambda: parse_kernel(text[4:] + "exp(-2*s)"),
    ):
        with pytest.raises(InputError, match="RecursionError"):
            within(700, action)


# Random expressions.

FUNCTION_NAMES = ("exp", "sin", "cos", "sqrt", "log", "tanh", "abs", "relu", "gelu", "__import__", "eval", "gamma")
NUMBERS = ["0", "1", "2", "3", "8", "64", "65", "0.5", ".25", "1.5", "7.", "1e-3", "1e99", "1e-99", "1e999999", "1_000", "9" * 40, "9" * 41]
NUMBERS += ["9" * 400, "0." + "1" * 40, "1j", "0x10", "1e5", "1000000", "4096", "1/3", "pi", "inf", "nan", "True", "None"]


def numbers() -> st.SearchStrategy[str]:
    whole = st.integers(0, 20).map(str)
    decimals = st.decimals(0, 50, places=2, allow_nan=False).map(lambda d: f"{d:f}")
    return st.one_of(whole, decimals, st.sampled_from(NUMBERS), st.integers(0, 10**45).map(str))


def repeated(parts: tuple[str, str, int]) -> str:
    text, sign, count = parts
    return sign.join([text] * count)


def wrapped(parts: tuple[str, str, str, int]) -> str:
    before, text, after, count = parts
    return before * count + text + after * count


def expressions(names: tuple[str, ...], functions: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Mostly well-formed text over a language's names and functions, some unknown ones among them."""
    leaves = st.one_of(numbers(), st.sampled_from(names), st.sampled_from(names), st.sampled_from(["z", "m9", "x0[0]", "x0[7]", names[0]]))
    signs = st.sampled_from(["+", "-", "*", "/", "**", " + ", " * ", "+", "*"])
    wraps = st.sampled_from(
        [("-", ""), ("(", ")"), ("exp(", ")"), ("(", ")**2"), ("(", ")**64"), ("sin(", ")"), ("(1+", ")"), ("abs(", ")")]
    )

    def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        return st.one_of(
            st.tuples(inner, signs, inner).map(lambda t: f"({t[0]}){t[1]}({t[2]})"),
            st.tuples(inner, signs, inner).map("".join),
            st.tuples(inner, st.sampled_from(["2", "3", "0.5", "-1", "-1.5", "64", "-64", "1/3", "8"])).map(
                lambda t: f"({t[0]})**({t[1]})"
            ),
            inner.map(lambda t: f"-{t}"),
            inner.map(lambda t: f"({t})"),
            st.tuples(st.sampled_from(functions), inner).map(lambda t: f"{t[0]}({t[1]})"),
            st.tuples(st.sampled_from(FUNCTION_NAMES), inner).map(lambda t: f"{t[0]}({t[1]})"),
            st.tuples(inner, st.sampled_from(["+", "*", "-", "/", "**", ","]), st.integers(2, 500)).map(repeated),
            st.tuples(wraps, inner, st.integers(2, 420)).map(lambda t: wrapped((t[0][0], t[1], t[0][1], t[2]))),
        )

    return st.recursive(leaves, grow, max_leaves=12).map(lambda t: t[: MAX_CHARACTERS + 50])


def texts(names: tuple[str, ...], functions: tuple[str, ...], frames: tuple[str, ...]) -> st.SearchStrategy[str]:
    """Expressions, alone and inside frames that make valid ones frequent; cut and spoilt expressions; any text at all."""
    whole = expressions(names, functions)
    framed = st.tuples(st.sampled_from(frames), whole).map(lambda t: t[0].replace("E", t[1]))
    cut = st.tuples(whole, st.integers(0, 40)).map(lambda t: t[0][t[1] :])
    spoilt = st.tuples(whole, st.characters(), st.integers(0, 40)).map(lambda t: t[0][: t[2]] + t[1] + t[0][t[2] :])
    garbage = st.one_of(st.text(max_size=60), st.text("0123456789.e+-*/()[], '\"\\_jxuvsm", max_size=80))
    return st.one_of(whole, framed, framed, framed, cut, spoilt, garbage)


def as_read_out(text: str) -> None:
    memories = [f"m{k}" for k in range(1, 9)]
    f = read_out(text, memories, 1)
    with working_precision(64):
        f([arb(1)] * 9)
        f.lipschitz([arb(1)] * 9)
    read_out(text.replace("m1", "m1[1]").replace("m2", "m2[0]").replace("x0", "x0[1]"), memories, 2)


def as_lag(text: str) -> None:
    memories = [{"name": "m", "lag": text}, {"name": "n", "lag": "2 + x0"}]
    target = target_from_dict({"kind": "adaptive", "alphabet": [[-1], [1]], "memory": memories}, "fuzz")
    assert isinstance(target, AdaptiveMemory)
    target.tree_lines()


def as_kernel(text: str) -> None:
    kernel = parse_kernel(text)
    with working_precision(64):
        kernel.values(0, 8)
        _ = kernel.envelope.rate
    target_from_dict({"kind": "kernel", "kernels": [text]}, "fuzz")


def as_formula(text: str) -> None:
    formula = parse_formula(text, ("u", "v"), "rho")
    with working_precision(64):
        formula.at(arb(0.5), arb(0).union(arb(1)))
        formula.taylor(0, 2, arb(0.5), arb(0).union(arb(1)))
    target = coupling_from_dict({"kind": "coupling", "length": 4, "rho": text}, "fuzz")
    with np.errstate(all="ignore"):
        target.compiled(np)(np.linspace(0, 1, 4))


LANGUAGES: dict[str, tuple[Callable[[str], None], st.SearchStrategy[str]]] = {
    "read-out": (
        as_read_out,
        texts(
            ("m1", "m2", "x0"),
            ("exp", "sin", "tanh", "relu", "abs"),
            ("m1+E", "E*m2", "tanh(m1+E)", "(m1+m2)**(E)", "(m1-E)**3*m2", "(m1+m2+m3+m4)**4*(E)", "(E)**8", "((m1+m2)*(m3+m4))**4+E"),
        ),
    ),
    "lag": (as_lag, texts(("x0", "n", "x0"), ("abs", "relu"), ("2+x0*(E)", "1+(E)*(1-x0*x0)", "abs(E)+1", "2+0*(E)", "1+relu(E)**2"))),
    "kernel": (
        as_kernel,
        texts(
            ("s",), ("exp", "sin", "cos", "sqrt"), ("(E)*exp(-s/3)", "exp(-(E))", "(s+1)**-2*sin(E)", "(E)**-3", "exp(-s)+(E)*exp(-s*s)")
        ),
    ),
    "formula": (
        as_formula,
        texts(
            ("u", "v", "pi"),
            ("exp", "log", "sqrt", "sin", "cos", "tanh", "abs", "relu"),
            ("u*v+E", "exp(-(E)**2)", "E", "sin(E)*u", "tanh(E)"),
        ),
    ),
}
"""A language → what is done with its text, and random texts."""


def test_kernels_of_many_factors_are_refused_by_their_number() -> None:
    """64 terms of 95 fractional powers took minutes: values up to LATEST_PEAK, several times over."""
    sums = "*".join(f"((s+.{k})**-.1+(s+.{k}1)**-.1)" for k in range(1, 7))
    with pytest.raises(InputError, match="powers, exponentials and waves in its terms, the limit is 256"):
        parse_kernel(f"{sums}*{'*'.join(f'(s+{k})**-.1' for k in range(1, 90))}")


DEAREST = {
    "kernel": "*".join(f"((s+.{k})**-.1+(s+.{k}1)**-.1)" for k in range(1, 5))
    + "".join(f"*(s+{k})**-.2" for k in range(1, 11))
    + "*(s-4000.5)**-1",
    "formula": "tanh(" * 180 + "log(((u-v)*(u+v-1)*(u-v-.5)*(v-u-.5))**2)" + ")" * 180,
    "read-out": "+".join(["(m1+m2+m3+m4+m5)**7*m1"] * 80),
    "lag": "+".join(["(x0+n)**7*x0"] * 130),
}
"""The dearest expressions we know: they end with an answer, or with a refusal after seconds of work."""


@pytest.mark.deep(keep="lag")
@pytest.mark.parametrize("language", DEAREST)
def test_the_dearest_expressions_take_seconds(language: str) -> None:
    start = time.process_time()
    with contextlib.suppress(LemmaformerError):
        LANGUAGES[language][0](DEAREST[language])
    assert time.process_time() - start < SECONDS


@pytest.mark.deep(keep=("lag", "kernel"))
@pytest.mark.parametrize("language", LANGUAGES)
def test_random_expressions_are_read_or_refused(language: str) -> None:
    use, strategy = LANGUAGES[language]
    counts: Counter[str] = Counter()
    slowest = (0.0, "")

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(strategy)
    @example("".join(["(" * 150, TOWER, "**64)" * 150]))
    @example("\0")
    @example("")
    def check(text: str) -> None:
        nonlocal slowest
        start = time.process_time()
        try:
            use(text)
            counts["read"] += 1
        except LemmaformerError as error:
            assert "\n" not in str(error)
            counts["refused"] += 1
        taken = time.process_time() - start
        slowest = max(slowest, (taken, text))
        assert taken < SECONDS, f"{taken:.1f} s"

    check()
    print(f"{language}: {dict(counts)}, slowest {slowest[0]:.2f} s: {slowest[1][:200]!r}")
    assert counts["read"] >= EXAMPLES // 20, "too few of the random expressions are valid to say much"
