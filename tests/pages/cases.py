"""Networks whose pages are tested: one of every way in which a page runs a network."""

from functools import cache
from pathlib import Path

import lemmaformer as lf

EXAMPLES = Path(__file__).parent.parent.parent / "examples"


@cache
def network(name: str) -> lf.Network:
    """A network by its name; each is built or trained once."""
    nested = lf.load_target(EXAMPLES / "nested.toml") if name.startswith("nested") else None
    match name:
        case "lin":
            return lf.build(lf.fixed(lags=(4,)))
        case "log":
            return lf.build(lf.fixed(lags=(4,)), rpe="log")
        case "pair":
            return lf.build(lf.fixed(lags=(1, 3), dim=2, readout="x0[0] + m1[1]*m2[0]"), error=0.1)
        case "tuned":
            return lf.build(lf.fixed(lags=(2,)), bank="tuned", heads=64)
        case "nested dp":
            assert nested is not None
            return lf.build(nested)
        case "nested tmx":
            assert nested is not None
            return lf.build(nested, attention="tmx", rpe="log")
        case "nested float":
            assert nested is not None
            return lf.build(nested, attention="tmx", dtype="float64", error=0.1)
        case "kernel":
            return lf.build(lf.kernel(["exp(-s/5)", "(s+1)**-2"], readout="k1*k2"), error=0.05)
        case "coupling":
            return lf.build(lf.coupling("exp(-4*(u-v)**2)", F="tanh(2*y)", length=6), error=0.1)
        case "positions":
            return lf.build(lf.fixed(lags=(2,)), theorem="position-heads", length=9, dtype="float64", error=0.05)
        case "chain":
            return lf.build(lf.fixed(lags=(12,)), bank="balanced", depth="auto", dtype="float32")
        case "restored":
            return lf.build(lf.fixed(lags=(12,), alphabet=(-1, 1)), bank="balanced", depth="auto", restore=True, dtype="float32")
        case "trained dp":
            return lf.train(lf.fixed(lags=(2,)), attention="dp", heads=2, steps=20, length=8, batch=4)
        case "trained table":
            return lf.train(lf.fixed(lags=(2,)), rpe="table", heads=2, linear=True, steps=20, length=8, batch=4)
        case "trained classes":
            return lf.train(lf.fixed(lags=(2,), alphabet=(-1, 1)), attention="dp", heads=2, steps=20, length=8, batch=4, classes=True)
    raise KeyError(name)


NETWORKS = (
    "lin", "log", "pair", "tuned", "nested dp", "nested tmx", "nested float", "kernel", "coupling", "chain", "restored", "trained dp",
    "trained table", "trained classes", "positions",
)  # fmt: skip
