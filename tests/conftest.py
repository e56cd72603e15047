"""Shared helpers: the command line in this process, and random one-layer and deep networks."""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

import cli
from constructions.network.transformer import Attention, FeedForward, Layer, Transformer

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


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
        out = 1 if index == layers - 1 else width
        stack.append(Layer(attention, FeedForward(normal(neurons, width), normal(neurons), normal(out, neurons))))
    return Transformer(normal(width, dim), normal(width) if bias else np.zeros(width, dtype), tuple(stack))
