"""What follows from a network's weights alone, computed once. Answers are found by the weights' content, as arrays can be written to."""

from collections.abc import Callable
from functools import lru_cache, update_wrapper
from typing import Any, Generic, TypeVar

import jax
import numpy as np

from constructions.network.transformer import Transformer

KEPT = 32
"""Networks, with their options, of which answers are kept."""
Answer = TypeVar("Answer")


class Remembered(Generic[Answer]):
    """A function of a float network and hashable options, whose last answers are kept; nobody may change them."""

    def __init__(self, function: Callable[..., Answer]) -> None:
        @lru_cache(maxsize=KEPT)
        def known(structure: Any, stored: tuple[tuple[str, tuple[int, ...], bytes], ...], *options: Any) -> Answer:
            weights = [np.frombuffer(content, dtype).reshape(shape) for dtype, shape, content in stored]
            return function(jax.tree.unflatten(structure, weights), *options)

        self._known = known
        update_wrapper(self, function)

    def __call__(self, network: Transformer, *options: Any) -> Answer:
        leaves, structure = jax.tree.flatten(network)
        arrays = [np.asarray(leaf) for leaf in leaves]
        return self._known(structure, tuple((array.dtype.str, array.shape, array.tobytes()) for array in arrays), *options)

    def forget(self) -> None:
        """Start anew."""
        self._known.cache_clear()
