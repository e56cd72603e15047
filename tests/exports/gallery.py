"""The networks that exports are tried on: the cases of every theorem, the targets in `examples`, and random ones of every kind."""

from functools import cache
from pathlib import Path

import numpy as np

import lemmaformer as lf
from analyzer.statements.registry import THEOREMS
from analyzer.targets.files import target_from_dict
from constructions.network.transformer import Transformer
from tests.conftest import random_network

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
CASES = {f"{t.id}-{k}": (t, case) for t in THEOREMS.values() if t.build is not None for k, case in enumerate(t.cases)}
GALLERY = [*CASES, *(file.stem for file in sorted(EXAMPLES.glob("*.toml")))]
KINDS = [
    *((rpe, kind, window) for rpe in ("lin", "log", "table") for kind in ("dp-free", "dp") for window in ("infinite", "finite")),
    *((rpe, kind, window) for rpe in ("lin", "log", "mixed") for kind in ("nf", "tmx") for window in ("infinite", "finite")),
    ("mixed", "dp-free", "infinite"),
    ("none", "dp", "full"),
]
SLOTS = {"token": [0], "others": [1, 2]}


@cache
def built(name: str) -> lf.Network:
    """A network of the gallery."""
    if name in CASES:
        theorem, case = CASES[name]
        return lf.build(target_from_dict(case.target, "case"), theorem=theorem.id, **case.options)
    return lf.build(lf.load_target(EXAMPLES / f"{name}.toml"))


def tokens_of(net: lf.Network, count: int, seed: int = 1) -> np.ndarray:
    """Random sequences of its target."""
    assert net.target is not None
    length = net.target.length or net.transformer.within(net.target.settled + 16)
    return net.target.draw(np.random.default_rng(seed), (count, length))


def random_one(rpe: str, kind: str, window: str, dtype: str = "float64") -> Transformer:
    """Two layers with random weights; lin layers have two outputs."""
    heads = ["lin", "log"] if rpe == "mixed" else [rpe] * 2
    return random_network(np.random.default_rng(7), heads, kind, window, layers=2, dtype=dtype, outputs=2 if rpe == "lin" else 1)
