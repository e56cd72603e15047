"""A folder with a model in it, as Hugging Face lays it out: `config.json`, and `model.safetensors` or several files under an index.

The folder may come from anybody. Nothing in it is run or unpickled, and no byte is read that is not asked for: the configuration and the
index are JSON of bounded size, the header of a safetensors file is bounded before it is parsed, and arrays are read one at a time, after
their shape was compared with what the configuration promises. An index names files of this folder and no others.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open

from analyzer.errors import InputError
from constructions.files.scores import FLOATS, MAX_NUMBERS, read_array

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
MAX_CONFIG = 1 << 20
"""Bytes of a configuration; published ones have a few thousand."""
MAX_INDEX = 1 << 25
"""Bytes of an index; those of the largest mixtures of experts have ten million."""
MAX_HEADER = 1 << 24
"""Bytes of a file's header, of which parsing takes some ten times as many."""
MAX_SHARDS = 4096
PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
PREFIXES = ("", "transformer.", "model.", "rwkv.", "decoder.", "model.decoder.")
"""What stands before the names of a model's arrays, depending on the class that wrote them."""


@dataclass(frozen=True)
class StoredArray:
    """Where an array lies and what it is, known from headers alone."""

    file: str
    shape: tuple[int, ...]
    dtype: str


def is_model(folder: Path) -> bool:
    """Whether a folder has a model's configuration in it, and is no bundle of ours."""
    return (folder / CONFIG).exists() and not (folder / "card.json").exists()


def read_json(path: Path, most: int) -> dict[str, Any]:
    """The object of a JSON file of at most so many bytes."""
    where = _said(path)
    try:
        if not path.is_file():
            raise InputError(f"{where} is not there, or is no file")
        with path.open("rb") as file:
            content = file.read(most + 1)
    except OSError as error:
        raise InputError(f"cannot read {where}: {error.strerror}") from None
    if len(content) > most:
        raise InputError(f"{where} is larger than {most} bytes")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        raise InputError(f"{where} is not valid JSON, or is nested too deeply") from None
    if not isinstance(found, dict):
        raise InputError(f"{where} holds no JSON object")
    return found


def _said(path: Path) -> str:
    """A file of the folder for a message; its name may be anything."""
    return repr(f"{path.parent.name[:40]}/{path.name[:60]}")[1:-1]


MAX_FILE_NAME = 255
"""Bytes of a file's name that file systems take."""


def _is_shard(file: object) -> bool:
    """Whether this is the name of a safetensors file in the folder itself."""
    if not isinstance(file, str) or len(file.encode(errors="replace")) > MAX_FILE_NAME:
        return False
    return Path(file).name == file and "\\" not in file and file.endswith(".safetensors")


class Folder:
    """A model's configuration and its arrays by name; files are opened when they are needed and closed at once."""

    def __init__(self, path: Path) -> None:
        if not path.is_dir():
            raise InputError(f"{str(path)[:80]} is not a folder with a model in it")
        self.path, self.name = path, path.absolute().name[:60]
        self.config = read_json(path / CONFIG, MAX_CONFIG)

    @cached_property
    def arrays(self) -> Mapping[str, StoredArray]:
        """All arrays of the folder, from the headers of its files."""
        if (self.path / INDEX).exists():
            return self._indexed()
        if not (self.path / WEIGHTS).is_file():
            raise InputError(self._no_weights())
        return self._listed(WEIGHTS)

    def _no_weights(self) -> str:
        pickles = sorted(entry.name for entry in self.path.iterdir() if entry.suffix in PICKLES)
        if pickles:
            return f"{self.name}: {pickles[0][:60]!r} is a pickle, which can run code and is not opened; save the model as safetensors"
        return f"{self.name} has neither {WEIGHTS} nor {INDEX}"

    def _indexed(self) -> Mapping[str, StoredArray]:
        places = read_json(self.path / INDEX, MAX_INDEX).get("weight_map")
        if not isinstance(places, dict) or not places:
            raise InputError(f"{self.name}/{INDEX} has no weight_map")
        for file in places.values():
            if (
                not isinstance(file, str)
                or len(file.encode(errors="replace")) > MAX_FILE_NAME
                or Path(file).name != file
                or "\\" in file
                or not file.endswith(".safetensors")
            ):
                raise InputError(f"{self.name}/{INDEX} names {str(file)[:60]!r}; arrays lie in safetensors files of the folder itself")
        shards = sorted(set(places.values()))
        if len(shards) > MAX_SHARDS:
            raise InputError(f"{self.name}/{INDEX} names {len(shards)} files; {MAX_SHARDS} is the most")
        for file in shards:
            if not (self.path / file).is_file():
                raise InputError(f"{self.name} lacks {file[:60]!r}, which {INDEX} names")
        found: dict[str, StoredArray] = {}
        for file in shards:
            found |= {name: place for name, place in self._listed(file).items() if places.get(name) == file}
        lost = next((name for name in places if name not in found), None)
        if lost is not None:
            raise InputError(f"{self.name}: {places[lost][:60]!r} has no array {lost[:60]!r}, which {INDEX} promises")
        return found

    def _listed(self, file: str) -> dict[str, StoredArray]:
        with self._opened(file) as opened:
            slices = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118  it is no mapping
            return {name: StoredArray(file, tuple(part.get_shape()), str(part.get_dtype())) for name, part in slices.items()}

    def _opened(self, file: str) -> Any:
        """An open safetensors file; its header is bounded before it is parsed."""
        path = self.path / file
        try:
            with path.open("rb") as raw:
                size = int.from_bytes(raw.read(8), "little")
            if size > MAX_HEADER:
                raise InputError(f"{_said(path)} says that its header has {size} bytes; {MAX_HEADER} is the most")
            return safe_open(path, framework="numpy")
        except SafetensorError as error:
            raise InputError(f"{_said(path)} is not a safetensors file, or a damaged one: {str(error)[:80]}") from None
        except OSError as error:
            raise InputError(f"cannot read {_said(path)}: {error.strerror or str(error)[:80]}") from None

    def find(self, name: str) -> str | None:
        """The full name of an array, whatever stands before it; None if there is none."""
        return next((prefix + name for prefix in PREFIXES if prefix + name in self.arrays), None)

    def check(self, name: str, *shapes: tuple[int, ...]) -> str:
        """The full name of an array that must be there, with one of these shapes and a float type."""
        full = self.find(name)
        if full is None:
            raise InputError(f"{self.name} has no array {name[:80]!r}, which its {CONFIG} promises")
        stored = self.arrays[full]
        if stored.shape not in shapes:
            wanted = " or ".join(map(str, shapes))
            raise InputError(f"{self.name}: {full[:80]!r} has shape {str(stored.shape)[:60]}; its {CONFIG} promises {wanted}")
        if stored.dtype not in FLOATS:
            raise InputError(f"{self.name}: {full[:80]!r} is of type {stored.dtype}; weights are {', '.join(FLOATS)}")
        return full

    def read(self, name: str, *shapes: tuple[int, ...]) -> np.ndarray:
        """An array in float64, checked, all of its numbers finite."""
        full = self.check(name, *shapes)
        stored = self.arrays[full]
        if math.prod(stored.shape) > MAX_NUMBERS:
            raise InputError(f"{self.name}: {full[:80]!r} holds more than {MAX_NUMBERS} numbers")
        with self._opened(stored.file) as opened:
            return read_array(opened, full)
