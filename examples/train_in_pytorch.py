"""Train one layer of ALiBi-like heads with learnable slopes in PyTorch, and save it for `lemmaformer import`.

    pip install "lemmaformer[torch]" && python examples/train_in_pytorch.py [FOLDER]

The task is y_t = x_{t−2} for tokens in [−1, 1]. A head with slope p gives the token s steps ago the weight e^{−ps}, normalised over the
infinite past, Σ_s e^{−ps} = 1/(1 − e^{−p}); tokens before the sequence are 0. There are no queries and keys: attention is dp-free.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

HEADS, WIDTH, NEURONS, LAG = 8, 4, 16, 2
STEPS, BATCH, LENGTH = 2000, 32, 32

CONFIG = """\
[[layer]]
kind = "dp-free"
window = "infinite"
rpe = "lin"
heads = {heads}

[names]
embedding = "embed.weight"
layers.0.attention.decay = "slopes"
layers.0.attention.value = "value.weight"
layers.0.attention.output = "output.weight"
layers.0.feedforward.inner = "inner.weight"
layers.0.feedforward.outer = "outer.weight"

[target]
kind = "fixed"
lags = [{lag}]
"""


class OneLayer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(1, WIDTH, bias=False)
        self.log_slopes = nn.Parameter(torch.linspace(-2, 1, HEADS))
        self.value = nn.Linear(WIDTH, HEADS, bias=False)
        self.output = nn.Linear(HEADS, WIDTH, bias=False)
        self.inner = nn.Linear(WIDTH, NEURONS)
        self.outer = nn.Linear(NEURONS, 1)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Tokens (batch, N, 1) → outputs (batch, N)."""
        x = self.embed(tokens)
        steps = torch.arange(tokens.shape[1])
        distance = steps[:, None] - steps[None, :]
        slopes = self.log_slopes.exp()[:, None, None]
        weights = -torch.expm1(-slopes) * torch.exp(-slopes * distance.clamp(min=0)) * (distance >= 0)  # (heads, N, N)
        mixed = torch.einsum("hts,bsh->bth", weights, self.value(x))
        u = x + self.output(mixed)
        return self.outer(torch.relu(self.inner(u)))[..., 0]

    def export(self, folder: Path) -> None:
        """The weights as PyTorch stores them, slopes instead of their logarithms, and the file that explains them."""
        state = {name: tensor.detach().clone() for name, tensor in self.state_dict().items()}
        state["slopes"] = state.pop("log_slopes").exp()
        save_file(state, folder / "weights.safetensors")
        (folder / "config.toml").write_text(CONFIG.format(heads=HEADS, lag=LAG))


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "trained_in_pytorch")
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)  # heads with similar slopes cancel: float32 would lose four digits of the outputs
    torch.set_num_threads(1)  # the products are small: more threads would wait for each other
    model = OneLayer()
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    for step in range(1, STEPS + 1):
        tokens = torch.rand(BATCH, LENGTH, 1) * 2 - 1
        loss = ((model(tokens)[:, LAG:] - tokens[:, :-LAG, 0]) ** 2).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 500 == 0:
            print(f"step {step}: mean square error {loss.item():.2e}")
    model.export(folder)
    print(f"saved to {folder}; next:")
    print(f"  lemmaformer import {folder}/weights.safetensors {folder}/config.toml --out {folder}/bundle")
    print(f"  lemmaformer verify {folder}/bundle")


if __name__ == "__main__":
    main()
