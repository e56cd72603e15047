"""A Transformer with a hook point at every activation, under the names of TransformerLens. Needs PyTorch, and safetensors to load weights.

    from model import load
    model = load()                                       # config.json and weights.safetensors beside this file
    outputs = model(tokens)                              # tokens (batch, N, d) or (N, d), in [-1, 1] → (batch, N) or (N,)
    outputs, cache = model.run_with_cache(tokens)        # where TransformerLens is installed
    cache["blocks.0.hook_resid_mid"], cache["blocks.0.attn.hook_pattern"], cache["blocks.0.slots.hook_m1"]

Without TransformerLens hook points are plain modules: `model.get_submodule("blocks.0.attn.hook_pattern").register_forward_hook(…)`.

    X⁰_t = W_E x_t + b_E [+ W_pos,t];   U = X + Attn(X);   X ← U + FFN(U);   the last FFN has no residual: it is the read-out
    Attn(X)_t = Σ_h W_O^h Σ_s w_h(t, s) W_V^h X_{t−s};   FFN(u) = W_out relu(W_in u + b_in), on some coordinates rounded

| kind    | score                                 | weight                    |
|---------|---------------------------------------|---------------------------|
| dp-free | p φ(s)                                | softmax over the past     |
| dp      | ⟨W_Q X_t, W_K X_{t−s}⟩ + p φ(s)        | softmax over the past     |
| nf      | the same                              | e^score, not normalised   |
| tmx     | p (φ(s) − φ(w·X_t))                   | e^score, not normalised   |
| linear  | ⟨W_Q X_t, W_K X_{t−s}⟩                 | score / tokens that t sees |
| fused   | heads added up: U_t = Σ_s K(s) x_{t−s} |                           |
| lags    | the same for the lag n in a slot: K(s; n) |                       |

φ(s) = −s in lin heads (s ≥ 0), −log s in log heads (s ≥ 1); table heads have a bias b(s) instead, none heads nothing. Where the window is
infinite the sequence is 0 before the array, all of it in one constant state: scores and patterns have one more column, the first, for
that whole past, with the logarithm of its mass Σ_{s>t} e^{pφ(s)} as its position: −p(t+1) − log(1−e^{−p}) for lin, log ζ(p, t+1) for log.

This is not the evaluation that the network's certificate covers: `model.certified` is False; `model.difference` was measured against that
evaluation on random sequences, and `model.tolerance` is what rounding can explain on them.
"""

import json
import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

try:
    from transformer_lens import HookedRootModule
    from transformer_lens.hook_points import HookPoint
except ImportError:
    HookedRootModule, HookPoint = nn.Module, nn.Identity

SCORED = ("dp", "nf", "linear")
TERMS = 12
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)


def log_hurwitz(p: Tensor, q: Tensor) -> Tensor:
    """log ζ(p, q) = log Σ_{k≥0} (q+k)^{−p} for p > 1, q ≥ 1, by Euler and Maclaurin's sum relative to q^{−p}."""
    terms = sum(torch.exp(-p * torch.log1p(k / q)) for k in range(TERMS))
    end, corrections = q + TERMS, torch.zeros_like(p * q)
    for j in range(len(BERNOULLI), 0, -1):
        corrections = BERNOULLI[j - 1] / math.factorial(2 * j) + (p + 2 * j - 1) / end * (p + 2 * j) / end * corrections
    rest = end / (p - 1) + 0.5 + p / end * corrections
    return torch.log(terms + torch.exp(-p * torch.log1p(TERMS / q)) * rest) - p * torch.log(q)


def round_half_even(values: Tensor, precision: list[str]) -> Tensor:
    """Coordinates marked "integer" rounded to [y], those marked "log" to log max(1, [e^y]); rounding passes no derivative on."""
    kinds = [(kind, [j for j, found in enumerate(precision) if found == kind]) for kind in ("integer", "log")]
    for kind, places in kinds:
        if places:
            picked = values[..., places]
            new = torch.round(picked) if kind == "integer" else torch.log(torch.round(torch.exp(picked)).clamp(min=1))
            values = values.index_copy(-1, torch.tensor(places), new)
    return values


class HookedHeads(nn.Module):
    """Heads: queries, keys, scores, patterns, values."""

    def __init__(self, words: dict[str, Any], weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.kind, self.window, self.rpe, self.stored = words["kind"], words["window"], words["rpe"], words["stored"]
        for name, weight in weights.items():
            self.register_parameter(name, nn.Parameter(weight))
        for name in ("q", "k", "v", "z", "attn_scores", "pattern"):
            if name not in "qk" or self.kind in SCORED or (name == "q" and self.kind == "tmx"):
                self.add_module(f"hook_{name}", HookPoint())

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """Attention output for the stream (batch, N, D), and for the constant state (D,) of the positions before it."""
        length, infinite = x.shape[1], self.window == "infinite"
        queries, keys = self.queries(x), self.keys(x)
        scores = self.positions(length) + self.products(queries, keys)
        values = self.hook_v(torch.einsum("hdv,bsd->bshv", self.W_V, x))
        past_value = torch.einsum("hdv,d->hv", self.W_V, past)
        if infinite:
            before = self.masses(length)[:, 1:, None] + self.products(queries, self.keys(past[None, None], hooked=False))
            scores = torch.cat([before.expand(*scores.shape[:-1], 1), scores], dim=-1)
            values = torch.cat([past_value.expand(len(x), 1, *past_value.shape), values], dim=1)
        scores = self.hook_attn_scores(scores.expand(len(x), *scores.shape[1:]))
        mixed = self.hook_z(torch.einsum("bhts,bshv->bthv", self.hook_pattern(self.weights(scores)), values))
        return torch.einsum("hvd,bthv->btd", self.W_O, mixed), self.constant(past, past_value)

    def queries(self, x: Tensor, hooked: bool = True) -> Tensor | None:
        """W_Q x, or for tmx −p φ(w·x), as (batch, N, H, k)."""
        if self.kind == "dp-free":
            return None
        if self.kind == "tmx":
            slot = torch.einsum("hd,btd->bth", self.pointer, x)
            lin = torch.tensor([kind == "lin" for kind in self.rpe])
            found = (self.decay * torch.where(lin, slot, torch.log(slot.clamp(min=1))))[..., None]
        else:
            found = torch.einsum("hdk,btd->bthk", self.W_Q, x)
        return self.hook_q(found) if hooked else found

    def keys(self, x: Tensor, hooked: bool = True) -> Tensor | None:
        """W_K x as (batch, N, H, k); None where scores read no key."""
        if self.kind not in SCORED:
            return None
        found = torch.einsum("hdk,bsd->bshk", self.W_K, x)
        return self.hook_k(found) if hooked else found

    def products(self, queries: Tensor | None, keys: Tensor | None) -> Tensor:
        """The part of the scores that reads the stream, (batch or 1, H, N, N or 1)."""
        if queries is None:
            return torch.zeros(1, 1, 1, 1, dtype=self.decay.dtype)
        return queries.movedim(1, 2) if keys is None else torch.einsum("bthk,bshk->bhts", queries, keys)

    def weights(self, scores: Tensor) -> Tensor:
        """Patterns from scores; a row that sees nothing is 0. Stored weights are normalised already."""
        if self.stored or self.kind in ("nf", "tmx"):
            return torch.exp(scores)
        if self.kind == "linear":
            seen = torch.isfinite(scores)
            return torch.where(seen, scores, 0) / seen.sum(dim=-1, keepdim=True)
        top = scores.max(dim=-1, keepdim=True).values
        powers = torch.exp(scores - torch.where(torch.isfinite(top), top, 0).detach())
        total = powers.sum(dim=-1, keepdim=True)
        return powers / torch.where(total > 0, total, 1)

    def positions(self, length: int) -> Tensor:
        """p φ(s) or b(s) by query and token, (H, N, N), −∞ where a head does not look; of stored weights g z^s or taps the logarithms."""
        steps = torch.arange(length)
        distance = steps[:, None] - steps[None, :]
        if self.stored:
            taps = nn.functional.pad(self.taps, (0, length))[:, :length]
            by_distance = torch.log(taps + self.gain[:, None] * self.ratio[:, None] ** steps)
            return torch.where(distance >= 0, by_distance[:, distance.clamp(min=0)], -torch.inf)
        if "table" in self.rpe:
            reach = self.table.shape[1]
            return torch.where((distance >= 0) & (distance < reach), self.table[:, distance.clamp(0, reach - 1)], -torch.inf)
        s, rows = distance.double(), []
        for kind, p in zip(self.rpe, self.decay.double(), strict=True):
            stretched = {"lin": s, "log": torch.log(s.clamp(min=1)), "none": torch.zeros_like(s)}[kind]
            seen = torch.ones_like(distance, dtype=torch.bool) if self.window == "full" else distance >= (kind == "log")
            rows.append(torch.where(seen, -p * stretched, -torch.inf))
        return torch.stack(rows).to(self.decay.dtype)

    def masses(self, length: int) -> Tensor:
        """log Σ_{s>t} e^{pφ(s)} or e^{b(s)} for t = −1, 0, …, N−1, (H, N+1): the whole past first."""
        t = torch.arange(-1, length, dtype=torch.float64)
        if self.stored:
            tails = nn.functional.pad(self.taps.flip(1).cumsum(1).flip(1), (0, length + 1))[:, : length + 1]
            lin = self.ratio[:, None] > 0
            return torch.where(lin, (t + 1) * torch.log(torch.where(lin, self.ratio[:, None], 1)), torch.log(tails))
        if "table" in self.rpe:
            tails = self.table.double().flip(1).logcumsumexp(1).flip(1)
            tails = torch.cat([tails, torch.full_like(tails[:, :1], -torch.inf)], dim=1)
            return tails[:, (t + 1).long().clamp(max=tails.shape[1] - 1)].to(self.decay.dtype)
        rows = []
        for kind, p in zip(self.rpe, self.decay.double(), strict=True):
            lin = kind == "lin"
            rows.append(-p * (t + 1) - torch.log(-torch.expm1(-p)) if lin else log_hurwitz(p, (t + 1).clamp(min=1)))
        return torch.stack(rows).to(self.decay.dtype)

    def constant(self, past: Tensor, value: Tensor) -> Tensor:
        """What attention returns before the array, where all tokens are the same."""
        if self.window != "infinite":
            return torch.zeros_like(past)
        if self.kind in ("nf", "tmx"):
            same = past[None, None]
            score = self.products(self.queries(same, hooked=False), self.keys(same, hooked=False))[0, :, 0, 0]
            value = torch.exp(self.masses(0)[:, 0] + score)[:, None] * value
        return torch.einsum("hvd,hv->d", self.W_O, value)


def causal_sums(kernel: Tensor, x: Tensor, longest: int | None) -> Tensor:
    """Σ_{s≤t} K(s) x_{t−s} for kernels (out, in, S) and x (batch, N, in): (batch, N, out)."""
    length = x.shape[1]
    if longest is not None and length > longest:
        raise ValueError(f"{length} tokens are more than the {longest} that these kernels are kept for")
    taps = kernel[..., :length]
    padded = nn.functional.pad(x.transpose(1, 2), (taps.shape[-1] - 1, 0))
    return nn.functional.conv1d(padded, taps.flip(-1)).transpose(1, 2)


class HookedKernel(nn.Module):
    """Heads of dp-free layers that were added up with all before them, because weights cancel: U_t = offset + Σ_{s≤t} K(s) x_{t−s}.

    It reads the tokens, not the stream before it: what is changed there does not arrive here.
    """

    def __init__(self, words: dict[str, Any], weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.kernel, self.offset, self.longest = nn.Parameter(weights["kernel"]), nn.Parameter(weights["offset"]), words["longest"]

    def forward(self, tokens: Tensor) -> Tensor:
        """The stream after this layer's attention, (batch, N, D), from tokens (batch, N, d)."""
        return self.offset + causal_sums(self.kernel, tokens, self.longest)


class HookedLags(nn.Module):
    """Heads that read lag slots, added up for every lag n: Σ_s K(s; n_t) X_{t−s}, n_t the integer in the slot, or the largest known."""

    def __init__(self, words: dict[str, Any], weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.groups, self.longest = words["groups"], words["longest"]
        self.lags = nn.ParameterList(weights[f"lags.{j}"] for j in range(len(self.groups)))
        for group in self.groups:
            self.add_module(f"hook_lag_{group['slot']}", HookPoint())

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        change = torch.zeros_like(x)
        for group, kernels in zip(self.groups, self.lags, strict=True):
            held = x[..., group["slot"]]
            lag = torch.round(torch.exp(held.clamp(max=40)) if group["logarithm"] else held)
            lag = self.get_submodule(f"hook_lag_{group['slot']}")(lag)
            place = (lag - group["least"]).clamp(0, len(kernels) - 1).long()
            every = causal_sums(kernels.flatten(0, 1), x[..., group["columns"]], self.longest).unflatten(-1, kernels.shape[:2])
            found = every.take_along_dim(place[..., None, None], dim=-2)[..., 0, :]
            change = change.index_add(-1, torch.tensor(group["rows"]), found)
        return change, torch.zeros_like(past)


ATTENTION = {"fused": HookedKernel, "lags": HookedLags}


class HookedNeurons(nn.Module):
    """W_out relu(W_in u + b_in), rounded where the network says so."""

    def __init__(self, precision: list[str], weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.precision = precision
        self.W_in, self.b_in, self.W_out = (nn.Parameter(weights[name]) for name in ("W_in", "b_in", "W_out"))
        self.hook_pre, self.hook_post = HookPoint(), HookPoint()

    def forward(self, u: Tensor, hooked: bool = True) -> Tensor:
        pre = u @ self.W_in + self.b_in
        post = torch.relu(self.hook_pre(pre) if hooked else pre)
        return round_half_even((self.hook_post(post) if hooked else post) @ self.W_out, self.precision)


class HookedBlock(nn.Module):
    """One layer; every named slot of the stream after attention is a hook point too: `slots.hook_NAME` (batch, N, coordinates)."""

    def __init__(self, words: dict[str, Any], weights: dict[str, Tensor], slots: dict[str, list[int]], last: bool) -> None:
        super().__init__()
        self.places, self.last = slots, last
        self.slots = nn.ModuleDict({slot_hook(name): HookPoint() for name in slots})
        self.attn: nn.Module = ATTENTION.get(words["kind"], HookedHeads)(words, part_of(weights, "attn"))
        self.mlp = HookedNeurons(words["precision"], part_of(weights, "mlp"))
        before = [] if words["kind"] == "fused" else ["resid_pre", "attn_out"]
        for name in (*before, "resid_mid", "mlp_out", *([] if last else ["resid_post"])):
            self.add_module(f"hook_{name}", HookPoint())

    def forward(self, x: Tensor, past: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """The stream (batch, N, D) after this layer, and the constant state (D,) before the array; of the last layer the read-out."""
        if isinstance(self.attn, HookedKernel):
            u = self.hook_resid_mid(self.attn(tokens))
        else:
            x = self.hook_resid_pre(x)
            attended, past_attended = self.attn(x, past)
            u, past = self.hook_resid_mid(x + self.hook_attn_out(attended)), past + past_attended
        for name, places in self.places.items():
            held = u[..., places]
            seen = self.slots[slot_hook(name)](held)
            u = u if seen is held else u.index_copy(-1, torch.tensor(places), seen)
        out, past_out = self.hook_mlp_out(self.mlp(u)), self.mlp(past, hooked=False)
        return (out, past_out) if self.last else (self.hook_resid_post(u + out), past + past_out)


def slot_hook(name: str) -> str:
    """The hook point of a slot; names of modules have no points."""
    return f"hook_{name.replace('.', '_')}"


class HookedEmbedding(nn.Module):
    """W_E x + b_E."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.W_E, self.b_E = nn.Parameter(weights["W_E"]), nn.Parameter(weights["b_E"])

    def forward(self, tokens: Tensor) -> Tensor:
        return tokens @ self.W_E + self.b_E


class HookedPositions(nn.Module):
    """The rows of W_pos for the tokens of an array, (batch, N, D)."""

    def __init__(self, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.W_pos = nn.Parameter(weights["W_pos"])

    def forward(self, tokens: Tensor) -> Tensor:
        if tokens.shape[1] > len(self.W_pos):
            raise ValueError(f"{tokens.shape[1]} tokens are more than the {len(self.W_pos)} that this network has positions for")
        return self.W_pos[: tokens.shape[1]].expand(len(tokens), -1, -1)


class HookedNetwork(HookedRootModule):
    """The network; `slots` names coordinates of its residual stream."""

    certified = False

    def __init__(self, config: dict[str, Any], weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.config, self.slots = config, config["slots"]
        self.form = config["form"]  # "heads", or "kernels" and "lags", which have no attention patterns
        self.difference, self.tolerance = config.get("difference"), config.get("tolerance")
        self.embed = HookedEmbedding(part_of(weights, "embed"))
        layers = config["layers"]
        self.blocks = nn.ModuleList(
            HookedBlock(words, part_of(weights, f"blocks.{i}"), self.slots, i == len(layers) - 1) for i, words in enumerate(layers)
        )
        self.hook_embed, self.hook_readout = HookPoint(), HookPoint()
        if positions := part_of(weights, "pos_embed"):
            self.pos_embed, self.hook_pos_embed = HookedPositions(positions), HookPoint()
        if hasattr(self, "setup"):
            self.setup()

    def forward(self, tokens: Tensor) -> Tensor:
        """Outputs (batch, N), or (batch, N, c) if there are several, for tokens (batch, N, d); without the batch for (N, d)."""
        given = tokens.to(self.embed.W_E.dtype)
        batch = given if given.ndim == 3 else given[None]
        x, past = self.hook_embed(self.embed(batch)), self.embed.b_E
        if hasattr(self, "pos_embed"):
            x = x + self.hook_pos_embed(self.pos_embed(batch))
        for block in self.blocks:
            x, past = block(x, past, batch)
        outputs = self.hook_readout(x)
        outputs = outputs if given.ndim == 3 else outputs[0]
        return outputs[..., 0] if outputs.shape[-1] == 1 else outputs


def part_of(weights: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Weights whose names begin so, by the rest of their names."""
    return {name.removeprefix(f"{prefix}."): weight for name, weight in weights.items() if name.startswith(f"{prefix}.")}


def load(folder: str | Path | None = None) -> HookedNetwork:
    """The network of a folder with config.json and weights.safetensors; that of this file if none is given."""
    from safetensors.torch import load_file

    place = Path(__file__).parent if folder is None else Path(folder)
    return HookedNetwork(json.loads((place / "config.json").read_text()), load_file(place / "weights.safetensors"))
