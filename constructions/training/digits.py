"""Handwritten digits: 1797 images of 8 × 8 pixels in ten classes, as they ship with scikit-learn (UCI's optical recognition set)."""

import numpy as np

from analyzer.errors import InputError

SIDE, PATCH = 8, 2
PATCHES, PIXELS = (SIDE // PATCH) ** 2, PATCH**2
CLASSES = 10
BRIGHTEST = 16
"""Pixels are counts from 0 to this."""


def digits() -> tuple[np.ndarray, np.ndarray]:
    """Patches (1797, 16, 4) with pixels in [0, 1], row by row, and labels (1797,)."""
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InputError("the digits come with scikit-learn, which is not installed: pip install 'lemmaformer[digits]'") from None
    data = load_digits()
    return patches(data.images / BRIGHTEST), data.target.astype(np.int32)


def patches(images: np.ndarray) -> np.ndarray:
    """(n, 8, 8) → (n, 16, 4) in float32: squares of 2 × 2 pixels, from left to right and top to bottom."""
    count = SIDE // PATCH
    squares = images.reshape(-1, count, PATCH, count, PATCH).transpose(0, 1, 3, 2, 4)
    return squares.reshape(-1, PATCHES, PIXELS).astype(np.float32)
