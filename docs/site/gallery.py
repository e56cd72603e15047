"""The gallery: every kind of figure, drawn when the site is built, with the lines that draw it."""

from collections.abc import Callable
from pathlib import Path

import lemmaformer as lf


def _bounds(path: Path) -> None:
    lf.bounds("thm-3.1", lf.fixed(lags=(4,)), error=1e-2).draw(path)


def _rate(path: Path) -> None:
    lf.bound("thm-3.1", lf.fixed(lags=(4,)), heads=256, figure=path)


def _shares(path: Path) -> None:
    lf.build(lf.fixed(lags=(4,))).draw(path)


def _chain(path: Path) -> None:
    lf.build(lf.fixed(lags=(2, 5), readout="x0 + m1*m2"), error=1e-2).certificate.draw(path)


def _letters(path: Path) -> None:
    lf.build(lf.adaptive([-1, 1], {"m1": [1, 2], "m2": ([2, 1], "m1")}, readout="m1*m2")).draw(path)


def _stream(path: Path) -> None:
    net = lf.build(lf.adaptive([-1, 1], {"m1": [1, 2], "m2": ([2, 1], "m1")}, readout="m1*m2"))
    net.draw(path, [-1, 1, 1, -1, 1, -1, -1, 1])


def _claim(path: Path) -> None:
    lf.check("e <= T/H", {"T": range(1, 5), "H": (8, 16)}, bank="tuned").draw(path)


def _horizon(path: Path) -> None:
    lf.limits.horizon("lin", bits=[8, 11], curves=True).draw(path)


def _lag(path: Path) -> None:
    lf.limits.lag(4, dtype="float32").draw(path)


def _slopes(path: Path) -> None:
    lf.limits.slopes("8,4,2,1", longest=4).draw(path)


def _positions(path: Path) -> None:
    lf.limits.positions(["t5", "table", "stride"], longest=20, dtype="bfloat16").draw(path)


def _kernel(path: Path) -> None:
    lf.limits.kernel("(s+1)**-2", heads=2).draw(path)


def _architectures(path: Path) -> None:
    lf.limits.architectures("(s+1)**-2", sizes=(1, 2, 4), error=0.01).draw(path)


def _order(path: Path) -> None:
    lf.limits.rnn("exp(-s/4)", length=32, swap=10).draw(path)


def _coupling(path: Path) -> None:
    lf.limits.coupling(lf.coupling("exp(-4*(u-v)**2)"), rank=4).draw(path)


def _compared(path: Path) -> None:
    one, two = (lf.build(lf.fixed(lags=(2,)), error=error, dtype=dtype) for error, dtype in ((0.1, "float32"), (0.01, "exact")))
    lf.compare(one, two, sequences=8).draw(path)


FIGURES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "shares": ("How four heads make a delta: each one's share, and their sum", _shares),
    "letters": ("Kernels of adaptive memories, by the letter that decides the lag", _letters),
    "stream": ("The residual stream of the same network, as a table", _stream),
    "chain": ("A certificate: witness ≤ certified ≤ bound, part by part", _chain),
    "rate": ("What a theorem promises against the number of heads", _rate),
    "choices": ("Heads under every choice of constants", _bounds),
    "claim": ("Both sides of a claim, and where it is refuted", _claim),
    "lag": ("What a lag costs in heads, and in float32", _lag),
    "horizon": ("Error against lag, by arithmetic", _horizon),
    "slopes": ("Which lags given slopes resolve", _slopes),
    "positions": ("Which lags schemes of relative positions resolve", _positions),
    "kernel": ("A fading memory between what heads reach and what none can beat", _kernel),
    "architectures": ("One kernel for recurrent, convolutional and attention networks", _architectures),
    "order": ("A kernel in order, and with tokens exchanged", _order),
    "coupling": ("Singular values of a coupling, and the best error of every rank", _coupling),
    "compared": ("Two networks side by side", _compared),
}


def page(folder: Path) -> str:
    """Draw everything into a folder, and make the page that shows it."""
    import inspect
    import textwrap

    folder.mkdir(parents=True, exist_ok=True)
    parts = ["# Gallery", "Figures of this version, drawn when these pages were made. File names end in .pdf, .svg or .png."]
    for name, (title, draw) in FIGURES.items():
        draw(folder / f"{name}.svg")
        lines = textwrap.dedent("".join(inspect.getsourcelines(draw)[0][1:])).replace("path", f'"{name}.svg"').strip()
        parts += [f"## {title}", f"![{title}](gallery/{name}.svg)", f"```python\n{lines}\n```"]
    return "\n\n".join(parts) + "\n"
