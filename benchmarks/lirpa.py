"""Bounds of |network − target| over the box of tokens by auto_LiRPA: the peer's half of `benchmarks.certificates`, which runs it.

    PYTHON benchmarks/lirpa.py [NETWORK.npz ITERATIONS SECONDS]

PYTHON needs torch and auto_LiRPA and nothing of ours; one JSON object comes out, without a network the versions alone.

The peer is helped as far as it goes. Positions that the output does not read are left out, weights that read no tokens are constants, maps
between two nonlinear steps are one map, logits are sums of as few products as their rank asks for, and a softmax is
w_s = 1/(1 + Σ_{r≠s} e^{l_r − l_s}), whose relaxation is far tighter than that of e^{l_s}/Σ_r e^{l_r}. Products are relaxed in the middle of
McCormick's planes, CROWN's intermediate bounds are intersected with those of IBP, and α-CROWN begins there and optimises the intermediate
bounds too. Its bounds hold up to the rounding of float64, which auto_LiRPA does not count.
"""

import json
import sys
import time
import warnings
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch

try:
    import auto_LiRPA

    if not hasattr(auto_LiRPA.BoundedModule, "nodes"):
        raise ImportError("an auto_LiRPA of 2022, whose products and powers α-CROWN does not optimise")
    SOURCE = "auto_LiRPA"
except ImportError:
    from src.abstractor import auto_LiRPA  # the copy that the verifier neuralsat brings along

    SOURCE = "neuralsat"

METHODS = {"IBP": "IBP", "CROWN": "CROWN", "α-CROWN": "CROWN-Optimized"}
"""Their names here and there."""
RATE = 0.1
"""Of the steps of α-CROWN."""
Arrays = Mapping[str, np.ndarray]


class Map(torch.nn.Linear):
    """A linear map with fixed weights (rows, columns) and, if there is one, an offset."""

    def __init__(self, weights: np.ndarray, offset: np.ndarray | None = None) -> None:
        super().__init__(weights.shape[1], weights.shape[0], bias=offset is not None)
        self.weight.data = torch.tensor(weights)
        if offset is not None:
            self.bias.data = torch.tensor(offset)


def block(entries: list[tuple[int, int, np.ndarray]], rows: int, columns: int) -> np.ndarray:
    """A matrix of equal blocks: those listed, as (row, column, block), zero elsewhere."""
    height, width = entries[0][2].shape
    whole = np.zeros((rows * height, columns * width))
    for i, j, entry in entries:
        whole[i * height : (i + 1) * height, j * width : (j + 1) * width] += entry
    return whole


def log_weights(attention: Arrays, rpe: str, distance: int) -> np.ndarray | None:
    """p φ(s) or b(s) of every head; None where heads do not look."""
    if rpe == "table":
        return attention["table"][:, distance] if distance < attention["table"].shape[1] else None
    if rpe == "lin":
        return -attention["decay"] * distance
    return -attention["decay"] * np.log(distance) if distance else None  # log heads do not see the current token


class Layer(torch.nn.Module):
    """One layer at the last `rows` of `n` positions; its input is the flat (B, n·d) stream W x with `widen` = W, (D, d).

    A pair is a head, a position that looks and one that it sees: logits, weights and values are flat vectors over pairs.
    """

    def __init__(self, arrays: Arrays, kind: str, rpe: str, n: int, rows: int, widen: np.ndarray, last: bool) -> None:
        super().__init__()
        attention = {name.removeprefix("attention."): a for name, a in arrays.items()}
        heads = len(attention["value"])
        biases = {s: log_weights(attention, rpe, s) for s in range(n)}
        seen = [(t, j) for t in range(n - rows, n) for j in range(t + 1) if biases[t - j] is not None]
        pairs = [(h, t, j) for h in range(heads) for t, j in seen]
        count, dim = len(pairs), widen.shape[1]
        bias = np.array([biases[t - j][h] for h, t, j in pairs])
        group = np.array([h * n + t for h, t, _ in pairs])
        same = (group[:, None] == group[None, :]).astype(float)
        inner, outer = arrays["feedforward.inner"], arrays["feedforward.outer"]
        residual = block([(i, n - rows + i, widen) for i in range(rows)], rows, n)
        gains = [attention["output"][h] @ attention["value"][h] @ widen for h in range(heads)]
        self.scored = kind == "dp"
        if self.scored:
            query, key = attention["query"] @ widen, attention["key"] @ widen
            if dim < query.shape[1]:  # x·Cy takes fewer products than Qx·Ky
                query, key = np.broadcast_to(np.eye(dim), (heads, dim, dim)), np.einsum("hkd,hke->hde", query, key)
            self.query = Map(block([(p, t, query[h]) for p, (h, t, _) in enumerate(pairs)], count, n))
            self.key = Map(block([(p, j, key[h]) for p, (h, _, j) in enumerate(pairs)], count, n))
            self.logits = Map(np.kron(np.eye(count), np.ones((1, query.shape[1]))), bias)
            rivals = np.argwhere(same - np.eye(count))
            self.differences = Map(np.eye(count)[rivals[:, 1]] - np.eye(count)[rivals[:, 0]])
            self.odds = Map(np.eye(count)[:, rivals[:, 0]], np.ones(count))
            values, outputs = attention["value"] @ widen, attention["output"]
            if dim < values.shape[1]:
                values, outputs = np.broadcast_to(np.eye(dim), (heads, dim, dim)), np.array(gains)
            self.spread = Map(np.kron(np.eye(count), np.ones((values.shape[1], 1))))
            self.value = Map(block([(p, j, values[h]) for p, (h, _, j) in enumerate(pairs)], count, n))
            mixed = block([(t - n + rows, p, outputs[h]) for p, (h, t, _) in enumerate(pairs)], rows, count)
        else:
            weights = np.exp(bias - bias.max())
            weights /= same @ weights
            residual = residual + block([(t - n + rows, j, w * gains[h]) for w, (h, t, j) in zip(weights, pairs, strict=True)], rows, n)
        enter = np.kron(np.eye(rows), inner)
        self.enter = Map(enter @ residual, np.tile(arrays["feedforward.bias"], rows))
        self.enter_mixed = Map(enter @ mixed) if self.scored else None
        self.leave = Map(np.kron(np.eye(rows), outer))
        self.stay = None if last else Map(residual)
        self.stay_mixed = Map(mixed) if self.scored and not last else None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        arguments = self.enter(x)
        if self.scored:
            logits = self.logits(self.query(x) * self.key(x))
            weights = 1 / self.odds(torch.exp(self.differences(logits)))
            mixed = self.spread(weights) * self.value(x)
            arguments = arguments + self.enter_mixed(mixed)
        y = self.leave(torch.relu(arguments))
        if self.stay is None:
            return y
        y = y + self.stay(x)
        return y + self.stay_mixed(mixed) if self.scored else y


class ErrorModule(torch.nn.Module):
    """Tokens (B, N) → network(x) − Π x_{t−lag} at the last position t, (B, 1)."""

    def __init__(self, arrays: Arrays) -> None:
        super().__init__()
        n, kinds, rpes = arrays["tokens"].shape[1], arrays["kinds"], arrays["rpes"]
        if np.any(arrays["bias"]) or arrays["embedding"].shape[1] != 1:
            raise SystemExit("the embedding has a bias, or tokens have several coordinates")
        named = [
            {name.removeprefix(f"layers.{i}."): a.astype(float) for name, a in arrays.items() if name.startswith(f"layers.{i}.")}
            for i in range(len(kinds))
        ]
        reaches = [a["attention.table"].shape[1] if "attention.table" in a else n for a in named]
        rows = [min(n, 1 + sum(reach - 1 for reach in reaches[i + 1 :])) for i in range(len(kinds))]
        widen, layers = arrays["embedding"].astype(float), []
        for i, (before, after) in enumerate(zip([n, *rows], rows, strict=False)):
            layers.append(Layer(named[i], str(kinds[i]), str(rpes[i]), before, after, widen, last=i == len(kinds) - 1))
            widen = np.eye(len(widen))
        self.layers = torch.nn.Sequential(*layers)
        self.factors = torch.nn.ModuleList(Map(np.eye(n)[[n - 1 - lag]]) for lag in arrays["lags"])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        product = self.factors[0](x)
        for factor in self.factors[1:]:
            product = product * factor(x)
        return self.layers(x) - product


def intermediate(bounded: Any) -> dict[str, list[torch.Tensor]]:
    """The bounds that the last method left at the nodes before the output."""
    nodes = [node for node in bounded.nodes() if node.perturbed and node.name != bounded.final_name]
    return {node.name: [node.lower.detach(), node.upper.detach()] for node in nodes if getattr(node, "lower", None) is not None}


def bound(module: torch.nn.Module, n: int, method: str, iterations: int, seconds: float) -> dict[str, float]:
    """An upper bound of |module| on [−1, 1]^N and its processor time, all that the method rests on included.

    α-CROWN optimises the two sides one after the other and has so many seconds of wall time for each; it ends the step that it is in. CROWN
    and α-CROWN are no worse than what they rest on.
    """
    begun = time.process_time()
    search = {
        "iteration": iterations,
        "early_stop_patience": iterations,
        "max_time": seconds,
        "fix_interm_bounds": False,
        "lr_alpha": RATE,
    }
    centre, ones = torch.zeros(1, n), torch.ones(1, n)
    bounded = auto_LiRPA.BoundedModule(module, centre, bound_opts={"mul": {"middle": True}, "optimize_bound_args": search})
    box = auto_LiRPA.BoundedTensor(centre, auto_LiRPA.PerturbationLpNorm(norm=float("inf"), x_L=-ones, x_U=ones))
    reference: dict[str, list[torch.Tensor]] | None = None
    certified = float("inf")
    for name, method_there in METHODS.items():
        lower, upper = bounded.compute_bounds(x=(box,), method=method_there, reference_bounds=reference)
        certified = min(certified, max(-float(lower.detach()), float(upper.detach())))
        if name == method:
            break
        reference = intermediate(bounded)
    return {"certified": certified, "seconds": time.process_time() - begun}


def release(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"


def main() -> None:
    versions = {"torch": torch.__version__, "auto_LiRPA": auto_LiRPA.__version__, "source": f"{SOURCE} {release(SOURCE)}"}
    if len(sys.argv) == 1:
        print(json.dumps(versions))
        return
    place, iterations, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)  # the arrays are small: more threads cost processor time and save none
    with np.load(place) as file:
        arrays = dict(file)
    module = ErrorModule(arrays)
    tokens = torch.tensor(arrays["tokens"].astype(float))
    with torch.no_grad():
        difference = float(np.abs(module(tokens).numpy()[:, 0] - arrays["errors"]).max())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the two libraries think of one another
        found = {method: bound(module, tokens.shape[1], method, iterations, seconds) for method in METHODS}
    print(json.dumps({"difference": difference, "bounds": found}))


if __name__ == "__main__":
    main()
