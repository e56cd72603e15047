"""Pages in a real browser: nothing is asked for, nothing fails, edits change what they should and agree with `run`, keyboard and small
screens work.

Tolerances. Float networks: `run` is within the certificate's `rounding` of the exact function of the weights, and the page's float64 pass,
whose operations are as many, within 2^{−29} of as much for float32; twice that rounding covers both, four times that of a float64 network
covers another order of evaluation. Exact networks with kernels: both sides round every operation once in float64, so n operations are off
by at most n 2^{−53} times what they would give if every term had the same sign, which `magnitude` bounds; the Fourier transforms of `run`
count as 64 operations a value.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from constructions.exports.agreement import prepared
from tests.pages.cases import network
from tests.running.test_positions_and_linear import KINDS as BLIND
from tests.running.test_positions_and_linear import blind
from verify.bundles.views.engines import engine_of

pytestmark = [pytest.mark.reach, pytest.mark.filterwarnings("ignore")]

CHROMIUM = "/usr/bin/chromium"
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--no-first-run"]
RUN = (
    "lin",
    "log",
    "pair",
    "tuned",
    "nested dp",
    "nested tmx",
    "nested float",
    "kernel",
    "coupling",
    "positions",
    "chain",
    "trained dp",
    "trained table",
)
COUPLING = 1e-9
"""Exact couplings run with weights rounded to float64. Scores are sums of at most 8 products of splines of size 1, values and outputs are
splines whose weights are below 10^4: fewer than 10^3 roundings of numbers below 10^4 are off by 10^3 · 10^4 · 2^{−53} ≈ 10^{−9}."""
KINDS = ("lin", "nested tmx", "coupling", "chain", "trained dp")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=QUIET, headless=True)
        yield found
        found.close()


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("browser")

    def write(name: str) -> Path:
        place = folder / f"{name.replace(' ', '-')}.html"
        if place.exists():
            return place
        match name:
            case "explorer":
                lf.explore(place)
            case "limit":
                lf.limits.lag(2, dtype="bfloat16", certificate=folder / "c.json")
                lf.report(folder / "c.json", place)
            case "comparison":
                last = lf.fixed(lags=(2,))
                lf.report(lf.compare(lf.build(last), lf.build(last, rpe="log"), sequences=4), place)
            case _:
                lf.report(network(name), place)
        return place

    return write


@pytest.fixture
def opened(browser: Any, written: Callable[[str], Path]) -> Iterator[Callable[..., Any]]:
    """A page that is open; when the test ends nothing has failed in it, and nothing but its file was asked for."""
    contexts, problems = [], list[str]()

    def open_page(name: str, width: int = 1100, scheme: str = "light") -> Any:
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)
        page, place = context.new_page(), written(name).as_uri()
        page.on("console", lambda message: problems.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: problems.append(f"error: {error}"))
        page.on("request", lambda request: request.url == place or problems.append(f"request: {request.url}"))
        page.goto(place)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert problems == []


def gain(ffn: dict[str, Any]) -> float:
    """Σ|A||B| of a feed-forward network, with its biases: what it makes of numbers up to 1 at most."""
    inner = np.abs(np.array(ffn["inner"])).sum(axis=1) + np.abs(np.array(ffn["bias"]))
    return float((np.abs(np.array(ffn["outer"])) @ inner).max())


def magnitude(engine: dict[str, Any], longest: int) -> float:
    """A bound of what an engine's sums would be if all their terms had one sign, for tokens up to 1 and lags up to the longest.

    Lag slots are whole numbers or their logarithms, rounded to the same ones on both sides: what is off before them does not matter.
    """
    if engine["kind"] == "kernels":
        return max(1.0, *(np.abs(np.array(layer["kernels"])).sum(axis=(1, 2)).max() for layer in engine["layers"])) * gain(
            engine["readout"]
        )
    assert engine["kind"] == "lagged"
    memories = [memory for layer in engine["layers"] for memory in layer["memories"]]
    served = [lag for memory in memories for lag in memory["kernels"][: longest - memory["least"] + 1]]
    sums = [float(np.abs(kernel).sum()) for lag in served for row in lag for kernel in row]
    return max(1.0, *sums) * gain(engine["layers"][-1]["ffn"])


def operations(engine: Any) -> int:
    if isinstance(engine, dict):
        return sum(operations(part) for part in engine.values())
    return sum(operations(part) for part in engine) if isinstance(engine, list) else 1


def tolerance(net: lf.Network, engine: dict[str, Any], longest: int) -> float:
    if net.dtype != "exact":
        return (4 if net.dtype == "float64" else 2) * net.certificate.rounding
    if engine["kind"] == "weights":
        parts = [layer["ffn"][name] for layer in engine["layers"] for name in ("inner", "bias", "outer")]
        assert max(float(np.abs(np.array(part)).max()) for part in parts) < 1e4
        return COUPLING
    return (64 + operations(engine)) * 2.0**-53 * magnitude(engine, longest)


@pytest.mark.parametrize("name", RUN)
def test_the_network_in_the_page_is_the_network(opened: Callable[..., Any], name: str) -> None:
    net, page = network(name), opened(name)
    engine, settled = page.evaluate("[DATA.engine, DATA.settled]")
    length = len(page.evaluate("DATA.example.tokens"))
    allowed = tolerance(net, engine, settled)
    assert 0 < allowed < 0.02
    assert net.target is not None
    for tokens in net.target.draw(np.random.default_rng(5), (3, length)):
        found = np.array(page.evaluate("tokens => runNetwork(DATA.engine, tokens).outputs", tokens.tolist()))[:, 0]
        assert abs(found - net(tokens))[min(settled, length - 1) :].max() <= allowed


@pytest.mark.parametrize(("kind", "window"), BLIND)
def test_positions_and_linear_heads_run_in_the_page(opened: Callable[..., Any], kind: str, window: str) -> None:
    """Random networks, within what rounding can explain (`constructions.exports.plain_rounding`); with another row they are not."""
    given, page = blind(kind, window), opened("lin")
    tokens = np.random.default_rng(5).uniform(-1, 1, (1, 9, given.dim))
    ready = prepared(given, {"r0": [0]}, tokens)

    def off(engine: dict[str, Any]) -> np.ndarray:
        found = page.evaluate("([engine, tokens]) => runNetwork(engine, tokens).outputs", [engine, tokens[0].tolist()])
        return np.abs(np.array(found) - ready.outputs[0])

    assert (off(engine_of(given, 9, 4)) <= ready.tolerance[0]).all()
    moved = replace(given, positions=given.positions + 1e-9 * np.eye(*given.positions.shape))
    assert (off(engine_of(moved, 9, 4)) > ready.tolerance[0]).any()


def test_a_restored_chain_is_exact_in_the_page(opened: Callable[..., Any]) -> None:
    """All outputs are letters."""
    page, net = opened("restored"), network("restored")
    assert net.target is not None
    tokens = net.target.draw(np.random.default_rng(5), (1, 28))[0]
    found = np.array(page.evaluate("tokens => runNetwork(DATA.engine, tokens).outputs", tokens.tolist()))[12:, 0]
    assert abs(found - tokens[:-12, 0]).max() <= 2.0**-40


@pytest.mark.parametrize("name", ["lin", "pair", "nested dp", "kernel", "restored"])
def test_the_page_knows_what_is_wanted(opened: Callable[..., Any], name: str) -> None:
    """Tokens are at most 1, and a read-out here adds up fewer than 100 numbers of size 10 at most: 10^3 · 2^{−53} off."""
    page, target = opened(name), network(name).target
    assert target is not None
    length, first = len(page.evaluate("DATA.example.tokens")), target.settled
    for tokens in target.draw(np.random.default_rng(6), (3, length)):
        found = page.evaluate("tokens => wantedOf(DATA.target, tokens, DATA.letters)", tokens.tolist())
        assert abs(np.array(found[first:], float) - np.asarray(target.values(np)(tokens[None]))[0, first:]).max() <= 1e3 * 2.0**-53


def row(page: Any, name: str) -> list[str]:
    """The last row of the stream with this name."""
    return page.evaluate(
        "name => [...document.querySelectorAll('#stream tr')].filter(r => r.cells[0].textContent === name).at(-1)"
        "  .innerText.split('\\t').slice(1)",
        name,
    )  # type: ignore[no-any-return]


def test_edited_tokens_change_stream_and_output(opened: Callable[..., Any]) -> None:
    page, net = opened("lin"), network("lin")
    before, memory = row(page, "output"), row(page, "m1")
    assert len(before) == 12
    page.get_by_label("token 3", exact=True).fill("0.123")
    after = row(page, "output")
    assert [t for t in range(12) if before[t] != after[t]] == [
        3,
        *range(7, 7 + sum(a != b for a, b in zip(before, after, strict=True)) - 1),
    ]
    assert abs(float(row(page, "m1")[7]) - 0.123) <= net.certificate.certified + 0.5e-3 and row(page, "m1")[7] != memory[7]  # three digits
    tokens = page.evaluate("STATE.tokens")
    assert abs(float(after[7].replace("−", "-")) - net(np.array(tokens))[7]) < 0.5e-3
    page.get_by_label("token 3", exact=True).fill("7")
    assert "a number from -1 to 1" in page.locator("#token-message").inner_text() and row(page, "output") == after


def test_letters_are_chosen_and_lags_follow(opened: Callable[..., Any]) -> None:
    page = opened("nested tmx")
    lags, outputs = row(page, "lag m1"), row(page, "output")
    select = page.get_by_label("token 8", exact=True)
    select.select_option(str(1 - int(select.input_value())))
    assert row(page, "lag m1")[8] != lags[8] and row(page, "output") != outputs


def test_patterns_follow_tokens_where_heads_read_them(opened: Callable[..., Any]) -> None:
    page = opened("trained dp")
    before = page.locator("#pattern svg").inner_html()
    page.get_by_label("token 2", exact=True).fill("-0.9")
    assert page.locator("#pattern svg").inner_html() != before


def test_heads_are_switched_on_and_off(opened: Callable[..., Any]) -> None:
    page = opened("lin")
    figure = page.locator("#kernels figure").first
    whole = figure.inner_html()
    page.locator("#kernels input[type=checkbox]").first.uncheck()
    assert "3 of 4 heads" in figure.inner_text() and figure.inner_html() != whole
    page.get_by_role("button", name="all off").click()
    assert "0 of 4 heads" in figure.inner_text()
    page.get_by_role("button", name="all on").click()
    assert figure.inner_html() == whole
    kernel = page.evaluate("(() => { const k = DATA.panels[0].choices[0]; return [sharesOf(k, [0, 1, 2, 3]), k.total]; })()")
    assert abs(np.array(kernel[0]) - np.array(kernel[1])).max() < 1e-6


def test_partial_sums_of_astronomical_weights(opened: Callable[..., Any]) -> None:
    page = opened("tuned")
    figure, slider = page.locator("#kernels figure").first, page.get_by_label("heads that are added up", exact=False).first
    whole = figure.inner_html()
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert figure.inner_html() != whole and "64 of 64" not in figure.inner_text()


@pytest.mark.parametrize("name", [*KINDS, "comparison", "limit", "explorer"])
def test_mathematics_and_pictures_are_visible(opened: Callable[..., Any], name: str) -> None:
    page = opened(name)
    assert page.locator("svg").count() > 0
    shown = page.evaluate(
        "[...document.querySelectorAll('math, svg[role=img]')].filter(e => !e.closest('details:not([open])'))"
        ".map(e => { const b = e.getBoundingClientRect(); return [b.width, b.height]; })"
    )
    assert shown and all(width > 4 and height > 4 for width, height in shown)


@pytest.mark.parametrize("name", [*KINDS, "comparison", "limit", "explorer"])
def test_a_small_dark_screen_does_not_scroll_sideways(opened: Callable[..., Any], name: str) -> None:
    page = opened(name, 400, "dark")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    ink, paper = (page.evaluate(f"getComputedStyle(document.body).{what}") for what in ("color", "backgroundColor"))
    light = [sum(map(int, colour[4:-1].split(","))) for colour in (ink, paper)]
    assert light[0] > 600 > 120 > light[1]


def test_the_keyboard_reaches_everything(opened: Callable[..., Any]) -> None:
    page = opened("lin")
    controls = page.locator("input, select, button, summary").count()
    reached = set()
    for _ in range(controls + 40):
        page.keyboard.press("Tab")
        seen = page.evaluate(
            "(e => [e.tagName, [...document.querySelectorAll('*')].indexOf(e), getComputedStyle(e).outlineStyle])(document.activeElement)"
        )
        if seen[0] in ("INPUT", "SELECT", "BUTTON", "SUMMARY"):
            reached.add(seen[1])
            assert seen[2] != "none"
    assert len(reached) == controls
    assert page.evaluate("[...document.querySelectorAll('input, select')].every(e => e.labels.length || e.ariaLabel)")


def fact(page: Any, name: str) -> str:
    return str(
        page.evaluate(
            "name => [...document.querySelectorAll('#facts dt')].find(e => e.textContent.startsWith(name))?.nextSibling.textContent", name
        )
    )


def test_sliders_change_the_picture(opened: Callable[..., Any]) -> None:
    page = opened("explorer")
    for slider, key in (("#lag", "ArrowLeft"), ("#heads", "ArrowRight"), ("#bits", "ArrowRight")):
        before = [page.locator(place).inner_html() for place in ("#kernel", "#facts")]
        page.locator(slider).focus()
        page.keyboard.press(key)
        assert [page.locator(place).inner_html() for place in ("#kernel", "#facts")] != before
    for name, value in (("#rpe", "log"), ("#bank", "tuned"), ("#bank", "best")):
        before = page.locator("main").inner_html()
        page.locator(name).select_option(value)
        assert page.locator("main").inner_html() != before


def test_the_explorer_says_what_is_certified(opened: Callable[..., Any]) -> None:
    page = opened("explorer")
    assert "not" not in fact(page, "error + u").split("certified")[0] and fact(page, "error + u").endswith("certified")
    assert fact(page, "horizon").startswith("5")
    page.locator("#bits").focus()
    page.keyboard.press("ArrowRight")
    assert fact(page, "error + u").endswith("computed, not certified")
    page.locator("#heads").focus()
    page.keyboard.press("Home")
    assert "≥ 1" in fact(page, "error") and "lag law" in page.locator("#kernel").inner_text()


@pytest.mark.parametrize(("rpe", "bits", "lag"), [("lin", 24, 4), ("lin", 53, 8), ("lin", 8, 1), ("log", 24, 3), ("log", 53, 5)])
def test_closed_forms_agree_with_the_table(opened: Callable[..., Any], rpe: str, bits: int, lag: int) -> None:
    """Both minimise the same function by the same golden sections; near a minimum it is flat, to second order in the parameter."""
    page = opened("explorer")
    row = page.evaluate("w => near(DATA.minimal, w)", {"rpe": rpe, "bits": bits, "lag": lag})
    found = page.evaluate("([rpe, lag, u]) => (b => b.error + u * b.price)(minimal(rpe, lag, lag, u))", [rpe, lag, 2.0**-bits])
    assert found == pytest.approx(row["total"], rel=1e-3)


def test_interpolating_kernels_agree_with_the_certificate(opened: Callable[..., Any]) -> None:
    """The sum over 4000 distances is the certified one but for its tail, e^{−4000γ}, and float64."""
    net, page = network("tuned"), opened("explorer")
    row = page.evaluate("w => near(DATA.interpolation, w)", {"rpe": "lin", "bank": "tuned", "lag": 2, "heads": 64})
    found = page.evaluate("row => interpolating('lin', 2, 64, row).error", row)
    assert found == pytest.approx(net.certificate.certified, rel=1e-6) and found <= row["error"]
