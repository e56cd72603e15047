"""Shared helpers: the command line in this process, random networks, compiled programs that are kept, and what a run of the tests took."""

import ctypes
import gc
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Before JAX is loaded: programs that were compiled once, in this run or an earlier one, are read from files.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parent.parent / ".cache" / "jax"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES", "none")  # or their names depend on the folder
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")
os.environ["LEMMAFORMER_CACHE"] = "off"  # certificates of earlier runs are for the tests of them alone

import numpy as np
import pytest
from hypothesis import settings

import cli
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer
from tests import depth

STARTED = time.time()
ROOMY, GROWTH = 800, 200
"""A worker lets go of what it can, between modules and above so many MB between tests, once it holds this much more than last time."""
LEFT: list[int] = [0]
"""What was held after the last time, in MB."""
PEAKS: list[int] = []
"""Peak memory of every worker in MB."""

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`deep` is for whole tests; `deep(keep=…)` leaves the cases that it names to `make test`, `deep(only=…)` all but those."""
    for item in items:
        for marker in list(item.iter_markers("deep")):
            case = getattr(item, "callspec", None) and item.callspec.id  # type: ignore[attr-defined]
            keep, only = (
                (names,) if isinstance(names, str) else names for names in (marker.kwargs.get(key, ()) for key in ("keep", "only"))
            )
            if case in keep or (only and case not in only):
                item.own_markers.remove(marker)
    if depth.ASKED == "rest" and items:
        left = [item for item in items if _is_left(item)]
        items[0].config.hook.pytest_deselected(items=[item for item in items if not _is_left(item)])
        items[:] = left


def _is_left(item: pytest.Item) -> bool:
    """Whether a test is deep, needs extras, is a property, or comes from a module that asks how deep it should go."""
    asks = "FULL" in vars(item.module) or getattr(item.function, "is_hypothesis_test", False)  # type: ignore[attr-defined]
    return asks or any(item.get_closest_marker(name) for name in ("deep", "reach"))


def _let_go() -> None:
    """Compiled programs leave the memory, to be read from files when they are needed again, and freed memory goes back to the system."""
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    gc.collect()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)
    LEFT[0] = _held()


def _held() -> int:
    """Memory that this process holds now, in MB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() >> 20 if sys.platform == "linux" else _peak()


@pytest.fixture(scope="module", autouse=True)
def modules_leave_little_behind() -> Iterator[None]:
    yield
    if _held() > LEFT[0] + GROWTH:
        _let_go()


@pytest.fixture(autouse=True)
def tests_begin_small() -> None:
    if _held() > max(ROOMY, LEFT[0] + GROWTH):
        _let_go()


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (1024 if sys.platform != "darwin" else 1024**2)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["peak"] = _peak()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    PEAKS.append(getattr(node, "workeroutput", {}).get("peak", 0))


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """The last words: how long it took, and how much memory."""
    minutes, rest = divmod(round(time.time() - STARTED), 60)
    peaks = PEAKS or [_peak()]
    terminalreporter.write_line(f"took {minutes} min {rest} s in {len(peaks)} process(es), of at most {max(peaks)} MB")


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        return json.loads(self.out)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Call the command line as the console script does."""

    def call(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["lemmaformer", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = int(stop.code or 0)
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


def random_network(
    rng: np.random.Generator,
    rpe: list[str],
    kind: str = "dp-free",
    window: str = "infinite",
    *,
    layers: int = 1,
    width: int = 3,
    dim: int = 2,
    neurons: int = 7,
    dtype: str = "float64",
    bias: bool = True,
    reach: int = 9,
    outputs: int = 1,
) -> Transformer:
    """Random weights of moderate size; log decays lie above 1, tables have `reach` distances."""

    def normal(*shape: int) -> np.ndarray:
        return (0.4 * rng.standard_normal(shape)).astype(dtype)

    heads, rank = len(rpe), 2 if kind in ("dp", "nf") else 0
    stack = []
    for index in range(layers):
        decay = (rng.uniform(0.3, 2.0, heads) + (np.array(rpe) == "log")).astype(dtype) * (np.array(rpe) != "table")
        pointer = normal(heads if kind == "tmx" else 0, width)
        attention = Attention(
            decay, normal(heads, 2, width), normal(heads, width, 2), normal(heads, rank, width), normal(heads, rank, width),
            pointer, tuple(rpe), kind, window,  # type: ignore[arg-type]
            rng.uniform(-3, 3, (heads, reach)).astype(dtype) if "table" in rpe else None,
        )  # fmt: skip
        out = outputs if index == layers - 1 else width
        stack.append(Layer(attention, FeedForward(normal(neurons, width), normal(neurons), normal(out, neurons))))
    return Transformer(normal(width, dim), normal(width) if bias else np.zeros(width, dtype), tuple(stack))
