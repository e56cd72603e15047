"""The style of figures: kinds of files, stems, integer ticks, one colour per method, legends and labels that cover nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lemmaformer as lf
from constructions.run.portions import kernels_by_letter, portions
from lemmaformer.results.base import Result
from tests.house.test_report import ANSWERS, is_drawn
from verify.report import figures
from verify.report.figures import style

HEAD = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}
CURVES = {f"{bank} {what}": [(8, 2.0), (64, 0.5)] for bank in ("paper", "tuned") for what in ("bound", "certified")}
GROWTH = {"paper constants": [(1, 90), (8, 700)], "tuned constants": [(1, 60), (8, 300)], "minimal bank = lag law": [(1, 1), (8, 8)]}
CLAIM = {
    "claim": "e <= T/H", "verdict": "refuted", "basis": "certified", "sides": ["e", "T/H"],
    "rows": [
        {"sizes": {"T": T, "H": H}, "verdict": "holds" if T < 3 else "refuted", "sides": [[0.1 * T, 0.1 * T], [T / H, T / H]]}
        for H in (8, 16) for T in (1, 2, 3)
    ],
}  # fmt: skip
NET = lf.fixed(lags=(2, 4))


@pytest.fixture(scope="module")
def net() -> lf.Network:
    return lf.build(NET, error=0.1)


def page_of(draw: Callable[..., Any], *data: Any) -> Any:
    """The page that a figure's function makes, drawn once so that places are known."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    with matplotlib.rc_context(style.STYLE):
        page = draw.__wrapped__(*data)  # type: ignore[attr-defined]
        FigureCanvasAgg(page).draw()
    return page


@pytest.mark.deep
@pytest.mark.parametrize("suffix", figures.SUFFIXES)
def test_the_suffix_says_what_kind_of_file_it_is(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"tour{suffix}"
    assert figures.tour(path, [0.0, 1.0], 1, CURVES, GROWTH)
    first = path.read_bytes()
    assert first.startswith(HEAD[suffix])
    assert figures.tour(path, [0.0, 1.0], 1, CURVES, GROWTH) and path.read_bytes() == first
    if suffix == ".png":
        width = int.from_bytes(first[16:20], "big")
        assert width == 12 * style.DPI


@pytest.mark.parametrize("name", ["tour", "tour.gif", "tour.png.exe"])
def test_other_kinds_are_refused_and_nothing_is_written(name: str, tmp_path: Path, run: Callable[..., Any]) -> None:
    with pytest.raises(lf.InputError, match="ends in"):
        figures.tour(tmp_path / name, [0.0, 1.0], 1, CURVES, GROWTH)
    refused = run("limits", "lag", "--lag", 4, "--figure", tmp_path / name)
    assert refused.code == 2 and refused.err.count("\n") == 1 and ".svg" in refused.err and not (tmp_path / name).exists()


def test_bound_and_certified_of_one_method_share_a_colour() -> None:
    _, middle, right = page_of(figures.tour, [0.0, 1.0, 0.0], 1, CURVES, GROWTH).axes
    lines = {line.get_label(): line for line in middle.get_lines()}
    for bank in ("paper", "tuned"):
        bound, certified = lines[f"{bank} bound"], lines[f"{bank} certified"]
        assert bound.get_color() == certified.get_color() and bound.get_linestyle() != certified.get_linestyle()
    assert lines["paper bound"].get_color() != lines["tuned bound"].get_color()
    assert {line.get_label(): line.get_color() for line in right.get_lines()}["tuned constants"] == lines["tuned bound"].get_color()
    assert all(line.get_color() in (*style.COLOURS, style.GREY) for axes in (middle, right) for line in axes.get_lines())


def test_kernels_of_whole_numbers_have_stems_and_integer_ticks() -> None:
    from matplotlib.collections import LineCollection

    left = page_of(figures.tour, [0.0, 0.25, 1.0], 2, CURVES, GROWTH).axes[0]
    stems = [part for part in left.collections if isinstance(part, LineCollection)]
    ends = sorted(tuple(segment[-1]) for part in stems for segment in part.get_segments())
    assert ends == [(0.0, 0.0), (1.0, 0.25), (2.0, 1.0)]
    assert all(line.get_linestyle() == "None" for line in left.get_lines() if line.get_marker() == "o")


def whole_ticks(axes: Any) -> list[float]:
    low, high = sorted(axes.get_xlim())
    return [tick for tick in axes.get_xticks() if low <= tick <= high]


def overlap(one: Any, other: Any) -> float:
    """The area that two boxes share, in square pixels."""
    wide = min(one.x1, other.x1) - max(one.x0, other.x0)
    high = min(one.y1, other.y1) - max(one.y0, other.y0)
    return max(0.0, wide) * max(0.0, high)


def check_page(page: Any) -> None:
    """Legends beside the axes, no two labels of an axis on each other, titles inside the page, integer ticks on axes of whole numbers."""
    renderer = page.canvas.get_renderer()
    legends = [*page.legends, *(axes.get_legend() for axes in page.axes if axes.get_legend())]
    for found in legends:
        box = found.get_window_extent(renderer)
        assert all(overlap(box, axes.get_window_extent(renderer)) < 1 for axes in page.axes), "a legend covers data"
    for axes in (axes for axes in page.axes if axes.axison):
        for axis in (axes.xaxis, axes.yaxis):
            labels = [label for label in axis.get_ticklabels(which="both") if label.get_text() and label.get_visible()]
            low, high = sorted(axis.get_view_interval())
            shown = [label for label in labels if low <= label.get_position()[axis.axis_name == "y"] <= high]
            boxes = [label.get_window_extent(renderer) for label in shown]
            for k, box in enumerate(boxes):
                assert all(overlap(box, other) < 1 for other in boxes[k + 1 :]), f"labels collide: {[label.get_text() for label in shown]}"
        if any(word in axes.get_xlabel() for word in ("lag T", "tokens back", "heads H", "m_h", "position t")):
            assert all(float(tick).is_integer() for tick in whole_ticks(axes)), axes.get_xlabel()
    titles = [title for axes in page.axes for title in (axes.title, axes._left_title) if title.get_text()]
    titles += [page._suptitle] if page._suptitle is not None else []
    for title in titles:
        box = title.get_window_extent(renderer)
        assert box.x0 >= -1 and box.x1 <= page.bbox.x1 + 1 and box.y1 <= page.bbox.y1 + 1, f"cut off: {title.get_text()}"
    for k, title in enumerate(titles):
        box = title.get_window_extent(renderer)
        assert all(overlap(box, other.get_window_extent(renderer)) < 1 for other in titles[k + 1 :]), "titles collide"


DRAWN = [name for name, answer in ANSWERS.items() if is_drawn(*answer)]


@pytest.mark.deep(keep="coupling, spectrum of a file")
@pytest.mark.parametrize("name", DRAWN)
def test_recorded_answers_are_drawn_without_collisions(name: str) -> None:
    kind, data = ANSWERS[name]
    assert kind.drawn_by is not None
    check_page(page_of(getattr(figures, kind.drawn_by.partition(":")[2]), data))


@pytest.mark.deep
def test_other_figures_have_no_collisions(net: lf.Network) -> None:
    check_page(page_of(figures.tour, [0.0, 0.0, 1.0, 0.01], 2, CURVES, GROWTH))
    check_page(page_of(figures.claim, CLAIM))
    check_page(page_of(figures.chain, net.certificate.as_dict()))
    check_page(page_of(figures.choices, lf.bounds("thm-3.1", lf.fixed(lags=(4,)), error=1e-2).as_dict()))
    check_page(page_of(figures.shares, {"slots": portions(net.transformer, net.slots)}))


def test_figures_of_experiments_have_no_collisions() -> None:
    trained = {"mse_mean": 1e-3, "published": 2e-3}
    rows = [{"model": model, "target": target, **trained} for model in ("RNN", "Transformer") for target in ("original", "permuted")]
    floor = {"ratios": [{"target": "permuted"}], "floor": {"mse": 5e-4}, "experiment": "jl-table-2", "protocol": {"steps": 9, "seeds": 3}}
    page = page_of(figures.table, {"rows": rows, **floor})
    check_page(page)
    marks = {line.get_label(): line for line in page.axes[0].get_lines()}
    assert list(marks["causal floor (certified)"].get_ydata()) == [1] and list(marks["published"].get_xdata()) == [2e-3] * 4
    squares = [{"name": f"lin, H = {H}", "mse": 0.1 / H, "published": None, "mean_square_floor": 0.01 / H} for H in (1, 2, 4)]
    check_page(page_of(figures.squares, {"rows": squares, **floor}))
    models = [{"attention": kind, "parameters": size, "loss": {"mean": 1.5}} for kind in ("dp", "dp-free") for size in (1000, 2000, 4000)]
    check_page(page_of(figures.losses, {"rows": models, "text": {"entropy": 2.0}, "experiment": "we-lm"}))


def test_sweeps_are_drawn_against_what_varies(tmp_path: Path) -> None:
    found = lf.sweep({"call": "limits.lag", "grid": {"rpe": ["lin", "mixed"], "lag": [2, 3, 4]}})
    page = page_of(figures.swept, found.data, found.rows)
    check_page(page)
    lines = {line.get_label(): list(line.get_ydata()) for line in page.axes[0].get_lines()}
    assert lines == {"rpe = lin": [2, 3, 4], "rpe = mixed": [2, 2, 3]}
    assert (page.axes[0].get_xlabel(), page.axes[0].get_ylabel()) == ("lag", "min_heads")
    assert found.draw(tmp_path / "swept.svg").data["figure"] == str(tmp_path / "swept.svg")
    with pytest.raises(lf.InputError, match="nothing to draw"):
        lf.sweep({"call": "limits.lag", "grid": {"lag": [4]}}).draw(tmp_path / "one.svg")
    assert not (tmp_path / "one.svg").exists()


def test_a_legend_on_the_data_and_labels_on_each_other_are_seen() -> None:
    page = page_of(figures.claim, CLAIM)
    page.axes[0].legend(loc="center")
    with pytest.raises(AssertionError, match="covers"):
        check_page(page_of(type("Drawn", (), {"__wrapped__": staticmethod(lambda: page)})))
    page = page_of(figures.claim, CLAIM)
    page.axes[0].set_xticks([1, 1.01], ["one", "two"])
    with pytest.raises(AssertionError, match="collide"):
        check_page(page_of(type("Drawn", (), {"__wrapped__": staticmethod(lambda: page)})))


def test_shares_add_up_to_the_delta(net: lf.Network) -> None:
    found: Any = portions(net.transformer, net.slots, 12)
    assert list(found) == ["m1", "m2"]
    for lag, name in ((2, "m1"), (4, "m2")):
        total = np.array(found[name]["sum"])
        added = sum(np.array(values) for values in found[name]["heads"].values())
        size = max(abs(v) for values in found[name]["heads"].values() for v in values)
        # each share is rounded once to float64, relative error 2^-53, and adding H of them rounds H - 1 times
        assert np.abs(added - total).max() <= 2 * len(found[name]["heads"]) * 2.0**-53 * size
        assert total.argmax() == lag and np.abs(total - np.eye(12)[lag]).sum() <= net.certificate.certified


def test_kernels_by_letter_peak_at_the_lag_of_the_letter() -> None:
    built = lf.build(lf.adaptive([-1, 1], {"m1": [1, 2]}))
    assert built.target is not None
    found: Any = kernels_by_letter(built.transformer, built.target, built.slots, 8)
    assert [(kernel["letter"], int(np.argmax(kernel["values"]))) for kernel in found["m1"]["kernels"]] == [("-1", 1), ("1", 2)]


@pytest.mark.deep
def test_networks_certificates_and_bounds_are_drawn(net: lf.Network, tmp_path: Path) -> None:
    assert net.draw(tmp_path / "shares.svg").read_bytes().startswith(HEAD[".svg"])
    assert net.draw(tmp_path / "stream.png", [0, 1, 0, 0.5, 0]).read_bytes().startswith(HEAD[".png"])
    drawn = net.certificate.draw(tmp_path / "chain.pdf")
    assert drawn.as_dict()["figure"] == str(tmp_path / "chain.pdf") and "figure" not in net.certificate.as_dict()
    found = lf.bound("thm-3.1", NET, heads=64, figure=tmp_path / "rate.svg")
    assert found.data["figure"] and found.total == lf.bound("thm-3.1", NET, heads=64).total
    chosen = lf.bounds("thm-3.1", NET, heads=64).draw(tmp_path / "choices.png")
    assert {file.name for file in tmp_path.iterdir()} == {"shares.svg", "stream.png", "chain.pdf", "rate.svg", "choices.png"}
    assert chosen.figure == str(tmp_path / "choices.png")


@pytest.mark.deep
def test_what_cannot_be_drawn_says_so(net: lf.Network, tmp_path: Path) -> None:
    near = lf.train(lf.fixed(lags=(1,)), rpe="table", attention="dp", heads=1, steps=20, length=8, batch=2)
    for what in (
        lambda: near.draw(tmp_path / "a.png"),
        lambda: net.draw(tmp_path / "a.png", np.zeros(1000)),
        lambda: lf.limits.dp_free().draw(tmp_path / "a.png"),
        lambda: lf.bound("prop-4.5", lags=(2, 4), figure=tmp_path / "a.png"),
    ):
        with pytest.raises(lf.InputError):
            what()
    assert not list(tmp_path.iterdir())


@pytest.mark.deep
def test_commands_draw(net: lf.Network, tmp_path: Path, run: Callable[..., Any]) -> None:
    net.save(tmp_path / "net")
    np.save(tmp_path / "x.npy", np.array([[0.0, 1.0, 0.0, 0.5]]).T)
    place = {name: tmp_path / f"{name}.svg" for name in ("verify", "run", "bound", "all", "lag", "build")}
    assert run("verify", tmp_path / "net", "--figure", place["verify"], "--json").json["figure"] == str(place["verify"])
    shown = run("run", tmp_path / "net", "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy", "--figure", place["run"])
    assert shown.code == 0 and "figure written to" in shown.out
    assert run("bound", "thm-3.1", "--lags", 4, "--heads", 64, "--figure", place["bound"]).code == 0
    assert run("bound", "thm-3.1", "--lags", 4, "--error", 0.01, "--all", "--figure", place["all"]).code == 0
    assert "figure written to" in run("limits", "lag", "--lag", 4, "--figure", place["lag"]).out
    assert run("build", "fixed", "--lags", 2, "--out", tmp_path / "b", "--figure", place["build"], "--json").json["figure"]
    assert all(path.read_bytes().startswith(HEAD[".svg"]) for path in place.values())


FIGURED = (
    "bound", "verify", "run", "check", "sweep", "compare", "spectrum", "build fixed", "build adaptive", "build kernel", "build coupling",
    "limits lag", "limits kernel", "limits architectures", "limits coupling", "limits rnn", "limits slopes", "limits positions",
    "experiment jl-table-1", "experiment jl-table-2", "experiment jl-table-3",
    "experiment jl-fig-1", "experiment jl-fig-5", "experiment horizon", "experiment arms", "experiment we-1b", "experiment we-lm",
)  # fmt: skip


@pytest.mark.deep(keep=("bound", "verify", "run", "limits lag"))
@pytest.mark.parametrize("command", FIGURED)
def test_commands_that_have_something_to_draw_take_a_figure(command: str, run: Callable[..., Any]) -> None:
    shown = " ".join(run(*command.split(), "--help").out.split())
    assert "--figure PATH" in shown and ".svg" in shown.partition("--figure PATH")[2]


def test_every_result_with_a_figure_names_one() -> None:
    from tests.house.test_architecture import _kinds

    named = {kind.drawn_by.partition(":")[2] for kind in _kinds(Result) if kind.drawn_by}
    assert named <= set(figures.__all__) and len(named) >= 16


@pytest.mark.deep
def test_pyplot_is_left_alone(tmp_path: Path) -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom pathlib import Path\nfrom verify.report import figures\n"
        f"assert figures.choices(Path({str(tmp_path / 'c.png')!r}), "
        "{'theorem': 't', 'error': 0.1, 'rows': [{'bank': 'paper', 'heads': 3}]})\n"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
