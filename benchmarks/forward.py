"""The fast forward pass against a plain C loop and PyTorch's attention, in one run on this machine.

    python -m benchmarks.forward [--longest 262144] [--repeats 9] [--cpu] [--keep]

One layer of 16 lin heads and 32 neurons on scalar tokens, float32: the shape that `lemmaformer train` starts from. Peers:

* C: the same operations token by token, one loop, compiled here by `cc -O3 -march=native`; left out where there is no compiler;
* PyTorch (extra `torch`): scaled_dot_product_attention on the same values, with the biases −p_h s and a causal mask given beforehand:
  O(N²), so up to 8,192 tokens only, attention alone;
* flex (extra `torch`): PyTorch's flex_attention, compiled, with the bias as a function of the places, blocks after the current token left
  out; not there where it cannot be compiled.

Outputs of all are compared before anything is timed, and the run ends there if they differ by more than 1e-4. Ours is
`constructions.run.execute.run` as users call it, tokens checked and copied, without the first call of a length, which compiles and is
reported apart. All run on one core, ours and the loop in turn; medians count, with --cpu of processor time, which other work on the
machine changes less. The last row has 64 sequences of 512 tokens.
"""

import argparse
import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.ratios import guard

HEADS, WIDTH, MODEL = 16, 32, 2
LENGTHS = (1024, 4096, 8192, 32768, 262144)
LONGEST_PAIRS = 8192
"""Tokens up to which the O(N²) peer is asked."""
PAIRS = ("torch", "flex")
"""Peers that cost O(N²)."""
SAME = 1e-4
LOOP = """
void layer(long n, long heads, long model, long width, const float *x, const float *embedding, const float *ratio, const float *gain,
           const float *value, const float *output, const float *inner, const float *bias, const float *outer, float *y) {
  float state[64] = {0}, u[64];
  for (long t = 0; t < n; t++) {
    for (long d = 0; d < model; d++) u[d] = embedding[d] * x[t];
    for (long h = 0; h < heads; h++) {
      float v = 0;
      for (long d = 0; d < model; d++) v += value[h * model + d] * (embedding[d] * x[t]);
      state[h] = ratio[h] * state[h] + v;
    }
    for (long d = 0; d < model; d++)
      for (long h = 0; h < heads; h++) u[d] += output[d * heads + h] * (gain[h] * state[h]);
    float total = 0;
    for (long m = 0; m < width; m++) {
      float hidden = bias[m];
      for (long d = 0; d < model; d++) hidden += inner[m * model + d] * u[d];
      total += outer[m] * (hidden > 0 ? hidden : 0);
    }
    y[t] = total;
  }
}
"""

Run = Callable[[np.ndarray], np.ndarray]
Clock = Callable[[], float]


def network() -> Any:
    """The layer, at the start of training."""
    from constructions.training.recipes import Shape
    from constructions.training.trainable import initial

    shape = Shape(
        attention="dp-free", rpe="lin", window="infinite", heads=HEADS, layers=1, model_dim=MODEL, key_dim=1, value_dim=1, width=WIDTH
    )  # fmt: skip
    return initial(shape, 1, 0, longest=1024)


def c_loop(net: Any) -> Run | None:
    """The layer as a loop in C."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    from constructions.run.fast import head_constants

    layer = net.layers[0]
    constants = head_constants(layer.attention)
    arrays = (
        net.embedding[:, 0], constants["ratio"], constants["gain"], layer.attention.value[:, 0, :], layer.attention.output[:, :, 0].T,
        layer.feedforward.inner, layer.feedforward.bias, layer.feedforward.outer[0],
    )  # fmt: skip
    held = [np.ascontiguousarray(array, np.float32) for array in arrays]
    folder = Path(tempfile.mkdtemp())
    (folder / "layer.c").write_text(LOOP)
    subprocess.run([compiler, "-O3", "-march=native", "-shared", "-fPIC", "layer.c", "-o", "layer.so"], check=True, cwd=folder)
    function = ctypes.CDLL(str(folder / "layer.so")).layer
    shutil.rmtree(folder)
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in held]
    sizes = [ctypes.c_long(size) for size in (HEADS, MODEL, WIDTH)]

    def run(tokens: np.ndarray) -> np.ndarray:
        result = np.empty(tokens.shape[:-1], np.float32)
        for x, y in zip(tokens, result, strict=True):
            places = [array.ctypes.data_as(ctypes.c_void_p) for array in (x, y)]
            function(ctypes.c_long(len(x)), *sizes, places[0], *pointers, places[1])
        return result

    return run


def torch_attention(net: Any, length: int) -> Run | None:
    """What attention adds to the stream, (batch, N, D); None without PyTorch."""
    try:
        import torch
    except ImportError:
        return None
    attention = net.layers[0].attention
    steps = torch.arange(length)
    distance = (steps[:, None] - steps[None, :]).float()
    bias = torch.where(distance < 0, -torch.inf, 0.0) - torch.tensor(np.asarray(attention.decay))[:, None, None] * distance.clamp(min=0)
    value, output = (torch.tensor(np.asarray(part)) for part in (attention.value[:, 0, :], attention.output[:, :, 0]))
    embedding = torch.tensor(np.asarray(net.embedding))

    def run(tokens: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            values = torch.einsum("bnd,hd->bhn", torch.from_numpy(tokens) @ embedding.T, value)[..., None].contiguous()
            nothing = torch.zeros_like(values)
            mixed = torch.nn.functional.scaled_dot_product_attention(nothing, nothing, values, attn_mask=bias)
            return torch.einsum("hd,bhn->bnd", output, mixed[..., 0]).numpy()

    return run


def flex_attention(net: Any, length: int) -> Run | None:
    """The same by flex_attention, compiled; None where it is not to be had. Queries, keys and values are padded to 16 numbers, which it
    asks for."""
    try:
        import torch
        from torch.nn.attention.flex_attention import create_block_mask
        from torch.nn.attention.flex_attention import flex_attention as flex
    except ImportError:
        return None
    attention = net.layers[0].attention
    decay = torch.tensor(np.asarray(attention.decay))
    value, output = (torch.tensor(np.asarray(part)) for part in (attention.value[:, 0, :], attention.output[:, :, 0]))
    embedding = torch.tensor(np.asarray(net.embedding))
    mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, length, length, device="cpu")
    compiled = torch.compile(flex)

    def score(given: Any, b: Any, h: Any, q: Any, k: Any) -> Any:
        return given - decay[h] * (q - k)

    def run(tokens: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            values = torch.zeros((len(tokens), HEADS, length, 16))
            values[..., 0] = torch.einsum("bnd,hd->bhn", torch.from_numpy(tokens) @ embedding.T, value)
            nothing = torch.zeros_like(values)
            mixed = compiled(nothing, nothing, values, score_mod=score, block_mask=mask)[..., 0]
            return torch.einsum("hd,bhn->bnd", output, mixed).numpy()

    try:
        run(np.zeros((1, length, 1), np.float32))
    except Exception as error:  # a compiler that is missing, a shape that is not supported: many kinds
        print(f"flex_attention is left out: {str(error).splitlines()[0][:100]}", file=sys.stderr)
        return None
    return run


def seconds(run: Run, tokens: np.ndarray, clock: Clock) -> float:
    start = clock()
    run(tokens)
    return clock() - start


def row(net: Any, shape: tuple[int, int], repeats: int, clock: Clock) -> tuple[str, dict[str, float]]:
    """One line of the table, and how many times ours its peers take."""
    from constructions.run.execute import run
    from constructions.run.reference import attend

    tokens = np.random.default_rng(0).uniform(-1, 1, (*shape, 1)).astype(np.float32)

    def ours(x: np.ndarray) -> np.ndarray:
        return run(net, x)

    first = seconds(ours, tokens, time.perf_counter)
    sides: dict[str, Run | None] = {"ours": ours, "C": (loop := c_loop(net))}
    if loop is not None:
        off = float(np.abs(loop(tokens) - ours(tokens)).max())
        if not off <= SAME:
            sys.exit(f"{shape}: the C loop and ours differ by {off:.3g}")
    if shape[0] * shape[1] <= LONGEST_PAIRS:
        sides |= {"torch": torch_attention(net, shape[1]), "flex": flex_attention(net, shape[1])}
        for name in PAIRS:
            peer = sides[name]
            if peer is not None and shape[1] <= LENGTHS[0]:
                _same_attention(net, tokens, peer, attend)
    present = {name: side for name, side in sides.items() if side is not None}
    times: dict[str, list[float]] = {name: [] for name in present}
    for names in (("ours", "C"), PAIRS):  # PyTorch by itself: matrices of all pairs leave nothing else in the caches
        for _ in range(repeats):
            for name in present.keys() & names:
                times[name].append(seconds(present[name], tokens, clock))
    median = {name: statistics.median(found) for name, found in times.items()}
    count = shape[0] * shape[1]
    ratios = {f"{shape[0]} x {shape[1]}, {name}": median[name] / median["ours"] for name in ("C", *PAIRS) if name in median}
    cells = [f"{shape[0]:3} x {shape[1]:6}", f"{1e9 * median['ours'] / count:10.1f}"]
    for name in ("C", *PAIRS):
        known = name in median
        cells.append(f"{1e9 * median[name] / count:10.1f}" if known else f"{'-':>10}")
        cells.append(f"{median[name] / median['ours']:10.2f}" if known else f"{'-':>10}")
    return " ".join([*cells, f"{first:8.2f}"]), ratios


def _same_attention(net: Any, tokens: np.ndarray, peer: Run, attend: Any) -> None:
    """End the run if the peer's attention, whose window ends at the first token, is another than ours in a finite window."""
    from dataclasses import replace

    attention = replace(net.layers[0].attention, window="finite")
    x = tokens @ np.asarray(net.embedding).T
    off = float(np.abs(np.asarray(attend(attention, x, np.zeros(MODEL, np.float32))[0]) - peer(tokens)).max())
    if not off <= SAME:
        sys.exit(f"PyTorch's attention and ours differ by {off:.3g}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--cpu", action="store_true", help="count processor time")
    parser.add_argument("--keep", action="store_true", help="keep the ratios of this run")
    asked, ratios = parser.parse_args(), {}
    os.environ["OMP_NUM_THREADS"] = "1"
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    net, clock = network(), time.process_time if asked.cpu else time.perf_counter
    print("nanoseconds per token, how many times ours a peer takes, and the seconds of the first call of a length")
    print(f"{'sequences':12} {'ours':>10} {'C':>10} {'ratio':>10} {'torch':>10} {'ratio':>10} {'flex':>10} {'ratio':>10} {'first':>8}")
    for shape in [*((1, n) for n in LENGTHS if n <= asked.longest), (64, 512)]:
        line, found = row(net, shape, asked.repeats, clock)
        ratios |= found
        print(line, flush=True)
    guard("forward", ratios, asked.keep)


if __name__ == "__main__":
    main()
