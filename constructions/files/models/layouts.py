"""Query and key matrices out of the layouts that models store them in. Rows of all of them are outputs, columns what the layer reads.

| layout | rows |
|---|---|
| interleaved | [query, key, value] of head 0, then of head 1, … (BLOOM, Falcon with a key for every head, MiniMax's lightning attention) |
| grouped | for each key: the queries that use it, the key, the value (Falcon's new decoder; one group: Falcon with a single key) |
| stacked | all queries, then all keys, then all values (MPT) |
| apart | arrays of their own (T5, RetNet, MiniMax's softmax layers) |
"""

import numpy as np

from constructions.files.models.folder import Folder
from constructions.files.scores import Scores


def grouped(folder: Folder, stem: str, heads: int, keys: int, width: int, head_dim: int, bias: bool) -> Scores:
    """One array (K · (H/K + 2) · d_k, D) of K groups; interleaved is K = H."""
    rows = (heads + 2 * keys) * head_dim
    name = f"{stem}.weight"
    query, key = _of_groups(folder.read(name, (rows, width)), heads, keys, head_dim)
    biases = np.zeros((heads, head_dim)), np.zeros((heads, head_dim))
    if bias:
        found = _of_groups(folder.read(f"{stem}.bias", (rows,))[:, None], heads, keys, head_dim)
        biases = found[0][..., 0], found[1][..., 0]
    return Scores(name, query, key, *biases)


def _of_groups(array: np.ndarray, heads: int, keys: int, head_dim: int) -> tuple[np.ndarray, np.ndarray]:
    parts = array.reshape(keys, heads // keys + 2, head_dim, -1)
    query = parts[:, :-2].reshape(heads, head_dim, -1)
    return query, np.repeat(parts[:, -2], heads // keys, axis=0)


def stacked(folder: Folder, stem: str, heads: int, keys: int, width: int, head_dim: int, bias: bool) -> Scores:
    """One array ((H + 2K) · d_k, D): queries, keys, values."""
    rows = (heads + 2 * keys) * head_dim
    array = folder.read(f"{stem}.weight", (rows, width))
    offsets = folder.read(f"{stem}.bias", (rows,)) if bias else np.zeros(rows)
    cut, end = heads * head_dim, (heads + keys) * head_dim
    return _repeated(f"{stem}.weight", (array[:cut], array[cut:end]), (offsets[:cut], offsets[cut:end]), heads, keys)


def apart(folder: Folder, query: str, key: str, heads: int, keys: int, width: int, head_dim: int) -> Scores:
    """Arrays (H · d_k, D) and (K · d_k, D) of their own, without biases."""
    arrays = folder.read(query, (heads * head_dim, width)), folder.read(key, (keys * head_dim, width))
    return _repeated(query, arrays, (np.zeros(heads * head_dim), np.zeros(keys * head_dim)), heads, keys)


def _repeated(name: str, arrays: tuple[np.ndarray, np.ndarray], biases: tuple[np.ndarray, np.ndarray], heads: int, keys: int) -> Scores:
    """Heads apart, every key as often as there are queries that use it."""
    width, share = arrays[0].shape[1], heads // keys
    query, key = arrays[0].reshape(heads, -1, width), arrays[1].reshape(keys, -1, width)
    first, second = biases[0].reshape(heads, -1), biases[1].reshape(keys, -1)
    return Scores(name, query, np.repeat(key, share, axis=0), first, np.repeat(second, share, axis=0))
