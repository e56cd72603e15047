"""Cards: the files of a bundle, before anything is made of them. No JAX here, so damaged bundles are refused at once.

    card.json             format version, theorem, target, structure, sizes, dtype, chain, seeds, versions, integrity
    weights.safetensors   float networks            exact.json   exact networks (numbers as strings)
    citation.bib          what the network rests on

`integrity` is the SHA-256 of the card's content (without that entry) and of the other files: any change but white space in the card is
noticed. Folders appear whole or not at all: they are written beside their place and renamed into it.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from analyzer.errors import InputError

FORMAT = "lemmaformer-bundle"
VERSION = 1
CARD, FLOATS, EXACT, CITATION = "card.json", "weights.safetensors", "exact.json", "citation.bib"
MAX_BYTES = 1 << 30


@dataclass(frozen=True)
class Files:
    """A card whose integrity was checked, and the bytes of the weights beside it."""

    path: Path
    card: dict[str, Any]
    weights: bytes


def _digest(card: dict[str, Any], files: dict[str, bytes]) -> str:
    digest = hashlib.sha256()
    bare = {key: value for key, value in card.items() if key != "integrity"}
    digest.update(json.dumps(bare, sort_keys=True, ensure_ascii=False).encode(errors="surrogatepass"))
    for name in sorted(files):
        digest.update(name.encode() + hashlib.sha256(files[name]).digest())
    return digest.hexdigest()


def weights_name(dtype: str) -> str:
    return EXACT if dtype == "exact" else FLOATS


def check_output(path: Path) -> None:
    """Refuse an output place that holds anything but a bundle, or a bundle with somebody's files in it."""
    try:
        if path.is_symlink() or path.exists():
            if not is_bundle(path):
                raise InputError(f"{path} exists and is not a lemmaformer bundle; choose another folder")
            strangers = sorted(p.name for p in path.iterdir() if p.name not in (CARD, FLOATS, EXACT, CITATION))
            if strangers:
                raise InputError(f"{path} is a bundle that also holds {strangers[0]!r}; move that away or choose another folder")
        elif not path.absolute().parent.is_dir():
            raise InputError(f"the folder {path.parent} does not exist; create it first")
        os.rmdir(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))  # now, not after hours of work
    except OSError as error:
        raise InputError(f"cannot use {str(path)[:80]}: {error.strerror}") from None


def check_place(path: Path) -> None:
    """Refuse a place for one file that is a folder, or in none."""
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise InputError(f"cannot write {str(path)[:80]}: not a file in an existing folder")


def check_new_folder(path: Path) -> None:
    """Refuse a place for a folder of bundles that is taken, or in no folder."""
    if path.is_symlink() or path.exists():
        raise InputError(f"{str(path)[:80]} exists; choose another folder")
    if not path.absolute().parent.is_dir():
        raise InputError(f"the folder {str(path.parent)[:80]} does not exist; create it first")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A folder to write into, which takes its place when all is written, or never."""
    check_new_folder(path)
    staging = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.absolute().parent))
    try:
        fresh = staging / "new"
        fresh.mkdir()
        yield fresh
        os.rename(fresh, path)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def is_bundle(path: Path) -> bool:
    """Whether a folder has one of our cards in it."""
    try:
        return json.loads((path / CARD).read_text(encoding="utf-8")).get("format") == FORMAT
    except (OSError, ValueError, AttributeError, RecursionError):
        return False


def write_files(path: Path, card: dict[str, Any], weights: bytes, citation: str) -> None:
    """Write a bundle atomically, replacing a bundle that is there."""
    check_output(path)
    files = {weights_name(card["dtype"]): weights, CITATION: citation.encode()}
    card = {"format": FORMAT, "version": VERSION, **card}
    card["integrity"] = _digest(card, files)
    files[CARD] = (json.dumps(card, indent=2, ensure_ascii=False) + "\n").encode()
    try:
        _replace(path.absolute(), files)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def _replace(place: Path, files: dict[str, bytes]) -> None:
    """Put a folder with these files in its place; on failure what was there comes back."""
    staging = Path(tempfile.mkdtemp(prefix=f".{place.name}.", dir=place.parent))
    try:
        fresh = staging / "new"
        fresh.mkdir()
        for name, content in files.items():
            (fresh / name).write_bytes(content)
        if place.exists():
            os.rename(place, staging / "old")
        os.rename(fresh, place)
    finally:
        if not place.exists() and (staging / "old").exists():
            os.rename(staging / "old", place)
        shutil.rmtree(staging, ignore_errors=True)


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise InputError(f"{path} is larger than {MAX_BYTES} bytes")
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None


def read_files(path: Path) -> Files:
    """Read a bundle's files and check format, version and integrity."""
    if not path.is_dir():
        raise InputError(f"{path} is not a bundle folder")
    try:
        card = json.loads(_read(path / CARD))
    except (ValueError, RecursionError):
        raise InputError(f"{path / CARD} is not valid JSON: the bundle is damaged") from None
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise InputError(f"{path / CARD} is not the card of a lemmaformer bundle")
    if type(card.get("version")) is not int or card["version"] != VERSION:
        raise InputError(f"{path} has bundle version {card.get('version')!r}; this program reads version {VERSION}")
    name = weights_name(str(card.get("dtype")))
    files = {file_name: _read(path / file_name) for file_name in (name, CITATION)}
    if card.get("integrity") != _digest(card, files):
        raise InputError(f"{path} fails its integrity check: a file was changed or damaged after it was written")
    return Files(path, card, files[name])
