"""Laws of random tokens: independent, mean 0, coordinate by coordinate. Closed forms use nothing but the variance.

`uniform` on [−1, 1] has variance 1/3, `signs` ±1 and `gaussian` have variance 1. Gaussian tokens are not bounded, so that nothing may be
used that holds on [−1, 1] only.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flint import fmpq

from analyzer.families import TokenName

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class TokenLaw:
    """How a coordinate of a token is distributed."""

    name: TokenName
    variance: fmpq
    bounded: bool

    @property
    def text(self) -> str:
        """In words."""
        words = {"uniform": "uniform on [-1, 1]", "signs": "signs ±1", "gaussian": "Gaussian"}[self.name]
        return f"independent tokens, {words} (variance {self.variance})"

    def draw(self, rng: "np.random.Generator", shape: tuple[int, ...]) -> "np.ndarray":
        """An array of independent coordinates."""
        import numpy as np

        if self.name == "gaussian":
            return rng.standard_normal(shape)
        uniform = rng.uniform(-1, 1, shape)
        return uniform if self.name == "uniform" else np.where(uniform < 0, -1.0, 1.0)


TOKEN_LAWS: dict[str, TokenLaw] = {
    "uniform": TokenLaw("uniform", fmpq(1, 3), True),
    "signs": TokenLaw("signs", fmpq(1), True),
    "gaussian": TokenLaw("gaussian", fmpq(1), False),
}
