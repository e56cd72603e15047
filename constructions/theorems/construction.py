"""What every `build` returns: a network, the target it was built for, and the options it was built with."""

from dataclasses import dataclass
from typing import Any

from analyzer.options import Options
from constructions.network.transformer import Transformer

CARD_OPTIONS = ("attention", "encode", "rounding", "layers")
"""Options beyond bank and read-out that a card names."""


@dataclass(frozen=True)
class Construction:
    """A network built for a target, and what it was built from."""

    target: Any  # one of the targets of `analyzer.targets`: each theorem has its own kind
    options: Options
    network: Transformer
    draws: int | dict[str, int] = 0
    """Barron samples taken until one was certified, in all or for each part; 0 where nothing is sampled."""

    @property
    def bank(self) -> str:
        """What the card calls the heads: the fewest, where nothing is chosen."""
        return str(getattr(self.options, "bank", "own") or "minimal")

    @property
    def ffn(self) -> str:
        return str(getattr(self.options, "ffn", "spline"))

    @property
    def seed(self) -> int:
        return int(getattr(self.options, "seed", 0))

    @property
    def choices(self) -> dict[str, str]:
        """The other options that its card names."""
        return {name: getattr(self.options, name) for name in CARD_OPTIONS if getattr(self.options, name, None) is not None}
