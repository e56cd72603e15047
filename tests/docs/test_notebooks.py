"""Life in a notebook: everything public has a page there, progress is a line that changes, and nothing is shown unasked."""

import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import lemmaformer as lf
from lemmaformer.progress import PROGRESS, stepping, working
from verify.report import progress


@pytest.fixture(scope="module")
def net() -> lf.Network:
    return lf.build(lf.fixed(lags=(2,)))


def test_everything_that_users_hold_has_a_page(net: lf.Network) -> None:
    adaptive = lf.adaptive([-1, 1], {"m1": [1, 2]})
    held: dict[str, tuple[Any, str]] = {
        "network": (net, "certified 0.00"),
        "evaluation": (net.evaluate([0, 1, 0]), "shape"),
        "target": (lf.fixed(lags=(2, 5), readout="x0 + m1*m2"), "x0 + m1*m2"),
        "adaptive": (adaptive, "m1"),
        "kernel": (lf.kernel("exp(-s)"), "exp(-s)"),
        "coupling": (lf.coupling("u*v"), "u*v"),
        "options": (lf.Fixed(bank="balanced"), "balanced"),
        "part": (net.certificate.parts[0], "extraction lag 2"),
        "theorems": (lf.theorems, "lag-law"),
        "certificate": (net.certificate, "holds"),
        "bound": (lf.bound("thm-3.1", lf.fixed(lags=(4,)), heads=64), "64"),
        "limit": (lf.limits.lag(4), "lag law"),
    }
    for name, (thing, word) in held.items():
        page = thing._repr_html_()
        assert page is not None and page.startswith("<") and word in page, name


def test_the_page_of_a_network_has_sizes_slots_and_chain(net: lf.Network) -> None:
    page = net._repr_html_() or ""
    for word in ("thm-3.1", "fixed(2)", "heads 2", "layers 1", "m1 [1]", "witness", "certified", "holds"):
        assert word in page, word


def test_text_of_targets_is_escaped() -> None:
    page: Any = lf.fixed(lags=(2,), readout="relu(m1)")
    assert "relu(m1)" in page._repr_html_()
    from verify.report.showing import html_table

    assert html_table([("<script>", 1)]) == "<table><tr><td>&lt;script&gt;</td><td>1</td></tr></table>"


class Shown:
    """A notebook's output: what was displayed first, and what replaced it."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def update(self, data: dict[str, str], raw: bool) -> None:
        assert raw
        self.lines.append(data["text/plain"])

    def display(self, data: dict[str, str], raw: bool, display_id: bool) -> "Shown":
        assert display_id
        self.update(data, raw)
        return self


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Shown:
    shown = Shown()
    kernel, inside = ModuleType("IPython"), ModuleType("IPython.display")
    kernel.get_ipython = lambda: type("ZMQInteractiveShell", (), {})()  # type: ignore[attr-defined]
    inside.display = shown.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", kernel)
    monkeypatch.setitem(sys.modules, "IPython.display", inside)
    return shown


def test_a_notebook_shows_one_line_that_changes(notebook: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    assert progress.in_notebook()
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock.now)
    token = PROGRESS.set(True)
    try:
        with stepping("certifying") as step:
            step("too early")
            clock.now = 1.0
            step("lag 2 of 5")
        with working("building"):
            clock.now = 3.0
    finally:
        PROGRESS.reset(token)
    assert notebook.lines == ["certifying …", "certifying: lag 2 of 5", "certifying: 1.0 s", "building …", "building: 2.0 s"]


def test_nothing_is_shown_unasked(notebook: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    with working("building"), stepping("certifying") as step:
        step("lag 2")
    assert notebook.lines == [] and capsys.readouterr() == ("", "")


def test_work_that_fails_ends_its_line(notebook: Shown) -> None:
    token = PROGRESS.set(True)
    try:
        with pytest.raises(lf.InputError), working("building"):
            raise lf.InputError("no")
    finally:
        PROGRESS.reset(token)
    assert len(notebook.lines) == 2 and notebook.lines[1].endswith(" s")


def test_without_a_notebook_nothing_is_loaded() -> None:
    assert not progress.in_notebook() and progress.is_silent(True)


@pytest.mark.reach
@pytest.mark.filterwarnings("ignore")
def test_treescope_shows_the_weights(net: lf.Network) -> None:
    import treescope

    text = treescope.render_to_text(net)
    assert "Network" in text and "'fixed(2)'" in text and "transformer" in text and "decay" in text
    assert "thm-3.1" in text and "<treescope-container" in treescope.render_to_html(net)
