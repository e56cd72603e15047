"""Tokens per second of a training step: our reference pass against the same model in plain PyTorch, on this machine.

    python -m benchmarks.training_speed [--threads 2] [--repeats 3] [--seconds 4] [--case NAME] [--cpu] [--keep]

needs the extra `torch`. Model, start, loss, batch sizes and optimiser (Adam, float32, a fresh uniform batch per step) are the same on both
sides: before anything is timed the losses and all gradients at the start are compared on one batch. Ours is
`constructions.training.loop.fit` as `lemmaformer train` uses it, steps inside a scan; compilation is reported apart. PyTorch's side is
eager: batched products, distances and masks precomputed, attention weights that do not depend on tokens computed once per step and not once
per sequence, and the fused Adam.

Every measurement is a process of its own, so that thread pools do not meet, and sides alternate; medians count. Both are given the same
number of threads. With --cpu processor time is counted, which other work on the machine changes less.
Exit code 1 if PyTorch is faster in some case.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ratios import guard

ROOT = Path(__file__).resolve().parent.parent
RATE = 1e-3
Clock = Callable[[], float]
SEED = 0


@dataclass(frozen=True)
class Case:
    """A shape of `constructions.training.trainable.Shape` and a recipe; the target is y_t = x_{t−lag}."""

    attention: str
    rpe: str
    window: str
    heads: int
    layers: int
    model_dim: int
    key_dim: int
    value_dim: int
    width: int
    length: int
    batch: int
    lag: int
    first: int = 0

    @property
    def tokens(self) -> int:
        return self.batch * self.length


CASES = {
    "dp-free lin": Case("dp-free", "lin", "infinite", 16, 1, 2, 1, 1, 32, length=128, batch=32, lag=2),
    "dp-free lin, wide": Case("dp-free", "lin", "infinite", 16, 1, 64, 1, 4, 256, length=128, batch=32, lag=2),
    "dp, 2 layers": Case("dp", "lin", "finite", 4, 2, 16, 4, 4, 64, length=128, batch=32, lag=2),
    "dp, 2 layers, wide": Case("dp", "lin", "finite", 4, 2, 64, 16, 16, 256, length=128, batch=32, lag=2),
    "table, last position": Case("dp-free", "table", "infinite", 32, 1, 2, 1, 1, 32, length=1000, batch=32, lag=900, first=999),
    **{
        f"dp-free lin, N = {n}": Case("dp-free", "lin", "infinite", 2, 1, 2, 1, 1, 32, length=n, batch=max(1, 4096 // n), lag=2)
        for n in (256, 1024, 4096, 16384)
    },
}
"""The last four have as many tokens in a batch, in fewer and longer sequences; PyTorch holds matrices of all pairs."""


def start_of(case: Case) -> Any:
    """The network at the start, and the target."""
    from analyzer.targets.fixed import FixedMemory
    from constructions.training.recipes import Shape
    from constructions.training.trainable import initial

    kept = {name: value for name, value in asdict(case).items() if name not in ("length", "batch", "lag", "first")}
    shape = Shape(**kept, reach=case.length if case.rpe == "table" else 0)
    return initial(shape, 1, SEED, longest=case.length), FixedMemory((case.lag,))


def ours(case: Case, seconds: float, clock: Clock) -> dict[str, float]:
    """Median tokens per second over chunks of steps, and the seconds of compilation."""
    import jax.numpy as jnp

    from constructions.training.loop import Progress, fit
    from constructions.training.recipes import TrainingRecipe
    from constructions.training.trainable import loss_of, optimiser, sampler, to_parameters

    network, target = start_of(case)
    recipe = TrainingRecipe(length=case.length, first=case.first, batch=case.batch, steps=1, rate=RATE)
    draw, loss = sampler(target, recipe, "float32"), loss_of(target, recipe)
    parameters = to_parameters(network.map(jnp.asarray))

    def timed(steps: int, chunk: int) -> list[float]:
        stamps = [clock()]

        def report(_: Progress) -> None:
            stamps.append(clock())

        rule = optimiser(network, replace(recipe, steps=steps))
        fit(loss, parameters, draw, steps=steps, optimiser=rule, seed=SEED, chunk=chunk, report=report)
        return np.diff(stamps).tolist()

    trial = timed(15, 5)[1:]
    chunk = max(1, round(0.2 * 5 / min(trial)))  # a fifth of a second
    count = max(5, round(seconds / 0.2))
    first, *chunks = timed((count + 1) * chunk, chunk)
    return {"tokens_per_second": chunk * case.tokens / statistics.median(chunks), "compilation": first - statistics.median(chunks)}


def torch_model(case: Case, network: Any) -> tuple[list[Any], Any]:
    """Parameters that require gradients, in our order of leaves, and the loss of a batch of tokens (B, N, 1)."""
    import torch
    from torch.nn.functional import pad

    def parameter(array: Any) -> torch.Tensor:
        return torch.tensor(np.asarray(array)).requires_grad_()

    embedding = parameter(network.embedding)
    layers = []
    for layer in network.layers:
        attention, ffn = layer.attention, layer.feedforward
        h, dv, d = attention.value.shape
        layers.append(
            {
                "slope": parameter(np.log(attention.decay)) if case.rpe == "lin" else None,
                "table": parameter(attention.table) if case.rpe == "table" else None,
                "value": parameter(attention.value.reshape(h * dv, d)),
                "output": parameter(attention.output.transpose(1, 0, 2).reshape(d, h * dv)),
                "query": parameter(attention.query.reshape(-1, d)) if case.attention == "dp" else None,
                "key": parameter(attention.key.reshape(-1, d)) if case.attention == "dp" else None,
                "inner": parameter(ffn.inner),
                "bias": parameter(ffn.bias),
                "outer": parameter(ffn.outer),
            }
        )
    parameters = [embedding, *(p for layer in layers for p in layer.values() if p is not None)]
    n, first, lag, heads = case.length, case.first, case.lag, case.heads
    steps = torch.arange(n)
    distance = (steps[:, None] - steps[None, :]).float()
    outside = torch.where(distance < 0, -torch.inf, 0.0)
    reach = distance.clamp(min=0)

    def free_weights(layer: dict[str, Any]) -> torch.Tensor:
        """Weights over the infinite past, whose tokens before the array are 0: (H, rows, N)."""
        if case.rpe == "table":
            return torch.softmax(layer["table"], dim=1).flip(1)[:, None, :]  # the last position
        slopes = layer["slope"].exp()[:, None, None]
        return -torch.expm1(-slopes) * torch.exp(outside - slopes * reach)

    def attend(layer: dict[str, Any], x: torch.Tensor) -> torch.Tensor:
        batch = x.shape[0]
        if case.attention == "dp-free":
            weights = free_weights(layer)
            if x.shape[-1] < case.value_dim * heads:  # tokens are narrower than values: mix them first
                mixed = weights.reshape(-1, n) @ x.transpose(0, 1).reshape(n, -1)  # (H·T, B·D)
                mixed = mixed.view(heads, -1, batch, x.shape[-1])
                value = layer["value"].view(heads, -1, x.shape[-1])
                output = layer["output"].view(-1, heads, case.value_dim)
                return torch.einsum("htbd,hed->bte", mixed, torch.einsum("hvd,ehv->hed", value, output))
            values = (x @ layer["value"].T).view(batch, n, heads, -1).permute(2, 1, 0, 3).reshape(heads, n, -1)
            mixed = torch.bmm(weights, values).view(heads, -1, batch, case.value_dim)
            return mixed.permute(2, 1, 0, 3).reshape(batch, -1, heads * case.value_dim) @ layer["output"].T
        query, key, value = ((x @ layer[part].T).view(batch, n, heads, -1).transpose(1, 2) for part in ("query", "key", "value"))
        bias = outside - layer["slope"].exp()[:, None, None] * reach
        weights = torch.softmax(query @ key.transpose(-1, -2) + bias, dim=-1)
        return (weights @ value).transpose(1, 2).reshape(batch, n, -1) @ layer["output"].T

    def loss(tokens: torch.Tensor) -> torch.Tensor:
        x = tokens @ embedding.T
        for index, layer in enumerate(layers):
            last = index == len(layers) - 1
            u = x[:, first:] + attend(layer, x) if last else x + attend(layer, x)
            change = torch.relu(u @ layer["inner"].T + layer["bias"]) @ layer["outer"].T
            x = change if last else u + change
        wanted = pad(tokens[:, : n - lag, 0], (lag, 0))[:, first:]
        return ((x[..., 0] - wanted) ** 2).mean()

    return parameters, loss


def plain(case: Case, seconds: float, clock: Clock, threads: int) -> dict[str, float]:
    """Median tokens per second of eager PyTorch."""
    import torch

    torch.set_num_threads(threads)
    torch.manual_seed(SEED)
    network, _ = start_of(case)
    parameters, loss = torch_model(case, network)
    rule = torch.optim.Adam(parameters, lr=RATE, fused=True)

    def advance(steps: int) -> float:
        begun = clock()
        for _ in range(steps):
            rule.zero_grad()
            loss(torch.rand(case.batch, case.length, 1) * 2 - 1).backward()
            rule.step()
        return clock() - begun

    advance(1)
    trial = advance(1)
    chunk = max(1, round(0.2 / trial))  # a fifth of a second
    chunks = [advance(chunk) for _ in range(max(3, round(seconds / max(0.2, trial))))]
    return {"tokens_per_second": chunk * case.tokens / statistics.median(chunks), "compilation": 0.0}


def check(case: Case) -> dict[str, float]:
    """The largest difference between the two losses and gradients at the start, relative to the largest entry of each array."""
    import jax
    import jax.numpy as jnp
    import torch

    from constructions.training.recipes import TrainingRecipe
    from constructions.training.trainable import loss_of, to_parameters

    network, target = start_of(case)
    tokens = np.random.default_rng(SEED).uniform(-1, 1, (case.batch, case.length, 1)).astype(np.float32)
    recipe = TrainingRecipe(length=case.length, first=case.first, batch=case.batch)
    value, gradient = jax.value_and_grad(loss_of(target, recipe))(to_parameters(network.map(jnp.asarray)), jnp.asarray(tokens))
    parameters, loss = torch_model(case, network)
    other = loss(torch.tensor(tokens))
    other.backward()
    wanted = [gradient.embedding]
    for layer in gradient.layers:
        a, f = layer.attention, layer.feedforward
        found = {
            "slope": a.decay if case.rpe == "lin" else None,
            "table": a.table,
            "value": a.value,
            "output": jnp.moveaxis(a.output, 0, 1),
            "query": a.query if case.attention == "dp" else None,
            "key": a.key if case.attention == "dp" else None,
        }
        wanted += [array for array in found.values() if array is not None] + [f.inner, f.bias, f.outer]
    pairs = [(np.asarray(w).ravel(), p.grad.numpy().ravel()) for w, p in zip(wanted, parameters, strict=True)]
    pairs.append((np.asarray([float(value)]), np.asarray([other.item()])))
    return {"difference": max(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-30)) for a, b in pairs)}


TOLERANCE = 1e-3
"""Of gradients: sums of up to 32·128·128 products in float32, in another order."""


def measure(side: str, name: str, threads: int, seconds: float, cpu: bool) -> dict[str, float]:
    """One side of one case, in a process of its own."""
    cores = sorted(os.sched_getaffinity(0))[:threads] if hasattr(os, "sched_getaffinity") else []
    environment = os.environ | {"PYTHONPATH": str(ROOT), "NPROC": str(threads), "OMP_NUM_THREADS": str(threads)}
    command = [
        sys.executable,
        "-m",
        "benchmarks.training_speed",
        "--side",
        side,
        "--case",
        name,
        "--threads",
        str(threads),
        "--seconds",
        str(seconds),
    ]
    command += ["--cpu"] if cpu else []
    pin = (lambda: os.sched_setaffinity(0, cores)) if cores else None
    done = subprocess.run(command, env=environment, capture_output=True, text=True, preexec_fn=pin)
    if done.returncode:
        raise SystemExit(f"{side}, {name}: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description="Training speed, ours against plain PyTorch.")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--case", choices=list(CASES))
    parser.add_argument("--cpu", action="store_true", help="count processor time; best with --threads 1")
    parser.add_argument("--keep", action="store_true", help="keep the ratios of this run")
    parser.add_argument("--side", choices=["ours", "torch", "check"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.side:
        case, clock = CASES[given.case], time.process_time if given.cpu else time.perf_counter
        sides = {
            "ours": lambda: ours(case, given.seconds, clock),
            "torch": lambda: plain(case, given.seconds, clock, given.threads),
            "check": lambda: check(case),
        }
        print(json.dumps(sides[given.side]()))
        return
    ratios = {}
    for name in [given.case] if given.case else list(CASES):
        difference = measure("check", name, given.threads, 0, False)["difference"]
        if not difference <= TOLERANCE:
            raise SystemExit(f"{name}: the two models differ by {difference:.2g}; nothing was timed")
        found: dict[str, list[dict[str, float]]] = {"ours": [], "torch": []}
        for _ in range(given.repeats):
            for side, results in found.items():
                results.append(measure(side, name, given.threads, given.seconds, given.cpu))
        speed = {side: statistics.median(r["tokens_per_second"] for r in results) for side, results in found.items()}
        compilation = statistics.median(r["compilation"] for r in found["ours"])
        ratios[name] = speed["ours"] / speed["torch"]
        print(
            f"{name:22} ours {speed['ours']:11,.0f} tokens/s   torch {speed['torch']:11,.0f} tokens/s   ratio {ratios[name]:5.2f}   "
            f"compilation {compilation:.1f} s   gradients differ by {difference:.1g}",
            flush=True,
        )
    clock, least = "processor time" if given.cpu else "wall time", min(ratios.values())
    mean = statistics.geometric_mean(ratios.values())
    print(f"geometric mean of the ratios {mean:.2f}, least {least:.2f}; {given.threads} threads, {clock}")
    guard("training_speed", ratios, given.keep)
    sys.exit(0 if least >= 1 else 1)


if __name__ == "__main__":
    main()
